//! Option descriptions: section, name, type, effect and mutability of an option.

use std::fmt;

/// Section of an OPTIONS file that contains an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// `[DBOptions]`
    Db,
    /// `[CFOptions "name"]`
    ColumnFamily,
    /// `[TableOptions/BlockBasedTable "name"]`
    BlockBasedTable,
    /// Within the braces of another option.
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
    /// Section that contains the option.
    pub section: Section,
    /// RocksDB's name.
    pub name: &'static str,
    /// The type's name, for people.
    pub kind: &'static str,
    /// True if the option may change while the database is open.
    pub mutable: bool,
    /// True if KarstDB implements the option. Otherwise it is parsed, kept and printed, and has no
    /// effect.
    pub honoured: bool,
    /// True if the option is printed in OPTIONS files and option strings. Objects that live outside
    /// of the database are not.
    pub printed: bool,
    /// The option's meaning, in one line.
    pub meaning: &'static str,
}
