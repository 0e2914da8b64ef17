//! A server over KarstDB that speaks Redis' protocol.
//!
//! Each reactor thread owns its ring, its listening socket, its connections and the reads of their
//! commands; a request stays on one thread from its first byte to its answer. Data is kept as
//! docs/formats/redis.md says, in the column families of one KarstDB database.
//!
//! | module | |
//! |---|---|
//! | `resp` | requests from bytes, replies to bytes |
//! | `wrong` | error replies |
//! | `until` | waits for conditions |
//! | `config_file` | files of settings |
//! | `numbers`, `pattern` | numbers and patterns in arguments |
//! | `entry_id` | ids of the entries of streams |
//! | `files` | small files of operators |
//! | `geohash` | positions on the earth as scores |
//! | `hyperloglog` | estimates of numbers of elements, and their bytes |
//! | `rdb` | values as DUMP and RESTORE have them, and files of them |
//! | `lua` | scripts: virtual machines, and what scripts see in them |
//! | `tls` | settings of TLS, certificates, and records around a connection |
//! | `store` | keys, types, expiry and elements over KarstDB |
//! | `server` | state that all connections share |
//! | `session` | state of one client |
//! | `commands` | the table of commands, and their handlers |
//! | `importer` | what another server holds, into a database |
//! | `connection` | one connection: pipelines in, answers out |
//! | `serving` | listeners, and work in the background |
//! | `running` | a server on threads of its own |
//!
//! Modules use those above them only.
#![forbid(unsafe_code)]

mod commands;
mod config_file;
mod connection;
mod entry_id;
mod files;
mod geohash;
mod hyperloglog;
mod importer;
mod lua;
mod numbers;
mod pattern;
mod rdb;
mod resp;
mod running;
mod server;
mod serving;
mod session;
mod store;
mod tls;
mod until;
mod wrong;

pub use config_file::{ConfigLine, parse_config};
pub use importer::{ImportError, ImportOptions, Imported, Importer};
pub use running::Running;
pub use server::{AppendSync, Server, ServerOptions, size};
pub use serving::LocalTask;
