//! The kinds of blocks that a table has, by what they are for.

/// What a block of a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Entries.
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
    /// For messages.
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

    /// Whether it is metadata of the table rather than entries.
    #[must_use]
    #[inline]
    pub fn is_metadata(self) -> bool {
        self != BlockKind::Data
    }

    /// Whether RocksDB counts it among filter blocks.
    #[must_use]
    #[inline]
    pub fn is_filter(self) -> bool {
        matches!(self, BlockKind::Filter | BlockKind::FilterIndex | BlockKind::FilterPartition)
    }
}
