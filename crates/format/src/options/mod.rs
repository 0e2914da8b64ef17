//! Declarative tables of every option of RocksDB 11.8 and 7.8.
//!
//! [`DbOptions`], [`ColumnFamilyOptions`] and [`BlockBasedTableOptions`] are plain structs under
//! RocksDB's names with RocksDB's defaults. The tables that declare them (`db`, `column_family`,
//! `block_based`, `nested`) also generate access by name: [`OptionSet::set`], [`OptionSet::get`],
//! option strings (`"a=b;c={d=e}"`), the description of each option ([`OptionInfo`]: type, default,
//! mutability while the database is open, effect in KarstDB, meaning), and the OPTIONS file
//! ([`OptionsFile`]).
//!
//! In: text. Out: typed values, or an [`OptionError`] that names section, option and line.
//!
//! Invariants:
//! - Each option has one row in one table; no other code in the workspace states an option's type
//!   or default.
//! - Printed options parse back to equal values.
//! - An option that RocksDB knows is never rejected for its name; one that RocksDB has dropped is
//!   kept as text (`retired`).
//!
//! Callers: the engine (open, `set_options`), the tools (flags) and the C API.
#[macro_use]
mod table;

pub mod block_based;
pub mod choice;
pub mod column_family;
pub mod db;
mod error;
pub mod file;
mod info;
mod nearest;
pub mod nested;
pub mod text;
pub mod value;

pub use block_based::BlockBasedTableOptions;
pub use choice::InfoLogLevel;
pub use column_family::{ColumnFamilyOptions, TableFactory};
pub use db::DbOptions;
pub use error::{OptionError, OptionErrorKind};
pub use file::{NamedColumnFamily, OptionsFile, UnknownOptions, changed_head, changed_sections};
pub use info::{OptionInfo, Section};
pub use nearest::{did_you_mean, nearest};
pub use table::{Assigned, OptionEntry, OptionSet};
pub use value::{Cache, Object, OptionValue, Unprinted, ValueError, Verbatim, WithoutText};

#[cfg(test)]
mod tests;
