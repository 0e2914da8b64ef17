//! Storage of entries: memtables in memory, tables and blob files on disk; and a column family's
//! consistent set of both.
//!
//! In: entries, from writers and jobs; files, through `karst_io`. Out: blocks and values that
//! readers pin. Nothing here decides the visibility of entries: a step of a read states its needs,
//! and its driver waits for them.
//!
//! | module | holds |
//! |---|---|
//! | [`block`] | decoded blocks, and memory of evicted ones |
//! | [`open_files`] | state shared by a database's file readers, and its open files |
//! | [`budget`] | memory charged to the block cache besides blocks |
//! | [`file_checksum`] | checksums of whole files, including users' functions |
//! | [`spans`] | concurrent reads of parts of one file |
//! | [`memtable`] | entries that are not in a table yet |
//! | [`value`] | values that pin their block or memtable |
//! | [`blob`] | values in blob files |
//! | [`table`] | tables: opening, lookup, verification, writing; a read's needs, fetched |
//! | [`superversion`] | memtables and tree, pinned together |
//! | [`column_family`] | the state of one column family, and the set of a database's families |
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
