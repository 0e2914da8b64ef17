//! Identifiers that are stored in files: file numbers, column family ids, levels.
//!
//! Plain values with no invariants beyond their width.
use std::fmt;

/// The number of a file of a database. Table, blob, log, MANIFEST and OPTIONS files share one
/// number space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

impl FileNumber {
    /// The largest number that a MANIFEST can hold, because two bits are reserved for the path id
    /// where both are packed into 64 bits.
    pub const MAX: FileNumber = FileNumber(0x3FFF_FFFF_FFFF_FFFF);
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The id of a column family. 0 is the default column family; ids of dropped families are not used
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnFamilyId(pub u32);

impl ColumnFamilyId {
    /// The column family named `default`, which every database has.
    pub const DEFAULT: ColumnFamilyId = ColumnFamilyId(0);
}

impl fmt::Display for ColumnFamilyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A level of the tree, 0 the newest.
///
/// One byte, where RocksDB has an `int`: no tree has more levels, and a hostile level cannot make a
/// table of levels large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u8);

impl Level {
    /// Returns the level as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}
