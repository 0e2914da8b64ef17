//! The description of an option: its section, its name, and whether it has an effect and may
//! change.

use std::fmt;

/// Where in an OPTIONS file an option stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// `[DBOptions]`
    Db,
    /// `[CFOptions "name"]`
    ColumnFamily,
    /// `[TableOptions/BlockBasedTable "name"]`
    BlockBasedTable,
    /// Inside the braces of another option.
    Nested,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Section::Db => "DBOptions",
            Section::ColumnFamily => "CFOptions",
            Section::BlockBasedTable => "TableOptions/BlockBasedTable",
            Section::Nested => "nested options",
        })
    }
}

/// The description of one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Where it stands.
    pub section: Section,
    /// RocksDB's name.
    pub name: &'static str,
    /// The type's name, for people.
    pub kind: &'static str,
    /// It may change while the database is open.
    pub mutable: bool,
    /// KarstDB does what it says. Otherwise it is parsed, kept and printed, and has no effect.
    pub honoured: bool,
    /// It is printed in OPTIONS files and option strings. Objects that live outside of the database
    /// are not.
    pub printed: bool,
    /// What it means, in one line.
    pub meaning: &'static str,
}
