//! What holds entries: memtables in memory, tables and blob files on storage; and what a column
//! family has of them at one moment.
//!
//! In: entries, from writers and jobs; files, through `karst_io`. Out: blocks and values that
//! readers pin. Nothing here decides which entries count: a step of a read asks, and whoever drives
//! it waits.
//!
//! | module | holds |
//! |---|---|
//! | [`block`] | decoded blocks, and the memory of those that are gone |
//! | [`open_files`] | what a database shares for reading files, and the files that it keeps open |
//! | [`budget`] | what counts against the block cache beside blocks |
//! | [`file_checksum`] | checksums of whole files, of users' functions too |
//! | [`spans`] | many parts of one file at the same time |
//! | [`memtable`] | entries that are in no table yet |
//! | [`value`] | a value that pins what it lies in |
//! | [`blob`] | values in blob files |
//! | [`table`] | tables: opened, asked, verified, written; what a read needs, and how it is fetched |
//! | [`superversion`] | memtables and tree, pinned together |
//! | [`column_family`] | the state of a column family, and of all of a database |
#![forbid(unsafe_code)]

pub mod blob;
pub mod block;
pub mod budget;
pub mod column_family;
pub mod file_checksum;
pub mod memtable;
pub mod open_files;
pub mod spans;
pub mod superversion;
pub mod table;
pub mod value;
