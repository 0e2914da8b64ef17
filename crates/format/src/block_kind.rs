//! The kinds of blocks in a table.

/// Purpose of a block in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// A block of entries.
    Data,
    /// The index, or the top level of a partitioned index.
    Index,
    /// A partition of the index.
    IndexPartition,
    /// A full filter.
    Filter,
    /// The top level of a partitioned filter.
    FilterIndex,
    /// A partition of the filter.
    FilterPartition,
}

impl BlockKind {
    /// Returns the name for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Data => "data block",
            BlockKind::Index => "index block",
            BlockKind::IndexPartition => "index partition",
            BlockKind::Filter => "filter block",
            BlockKind::FilterIndex => "filter partition index",
            BlockKind::FilterPartition => "filter partition",
        }
    }

    /// Returns true if the block holds metadata of the table rather than entries.
    #[must_use]
    #[inline]
    pub fn is_metadata(self) -> bool {
        self != BlockKind::Data
    }

    /// Returns true if RocksDB counts the block among filter blocks.
    #[must_use]
    #[inline]
    pub fn is_filter(self) -> bool {
        matches!(self, BlockKind::Filter | BlockKind::FilterIndex | BlockKind::FilterPartition)
    }
}
