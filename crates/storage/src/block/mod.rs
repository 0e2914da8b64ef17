//! Entries of the block cache: decoded blocks, and the charge of each.
//!
//! In: a block's bytes, uncompressed and owned. Out: a [`CachedBlock`] behind a [`BlockRef`], which
//! pins it.
//! Invariant: a block is decoded once, at insertion; readers do not modify it. A handle to a block
//! of another kind (from a damaged index) is detected when the block is used.

pub(crate) mod stock;

use karst_format::block::Block;
use karst_format::filter::FilterReader;
use karst_format::index::IndexBlock;
use karst_mem::Handle;

pub use karst_format::block_kind::BlockKind;

/// A decoded block.
#[derive(Debug)]
pub enum CachedBlock {
    /// A data block.
    Data(Block),
    /// An index block, an index partition, or the top level of a partitioned filter.
    Index(IndexBlock),
    /// A full filter or a partition of one.
    Filter(FilterReader),
    /// A value from a blob file, uncompressed.
    Blob(Box<[u8]>),
}

/// A pinned block: stays in memory even if the cache evicts it.
pub type BlockRef = Handle<CachedBlock>;

impl CachedBlock {
    /// Returns true if the block was decoded as `kind` requires.
    #[inline]
    pub fn is(&self, kind: BlockKind) -> bool {
        match self {
            CachedBlock::Data(_) => kind == BlockKind::Data,
            CachedBlock::Index(_) => {
                matches!(kind, BlockKind::Index | BlockKind::IndexPartition | BlockKind::FilterIndex)
            }
            CachedBlock::Filter(_) => matches!(kind, BlockKind::Filter | BlockKind::FilterPartition),
            CachedBlock::Blob(_) => false,
        }
    }

    /// Returns the data block. Invariant: `Pending::block` has checked the kind.
    #[inline]
    pub fn as_data(&self) -> &Block {
        match self {
            CachedBlock::Data(block) => block,
            other => other.misused(),
        }
    }

    /// Returns the index block. Invariant: as for [`CachedBlock::as_data`].
    #[inline]
    pub fn as_index(&self) -> &IndexBlock {
        match self {
            CachedBlock::Index(block) => block,
            other => other.misused(),
        }
    }

    /// Returns the filter. Invariant: as for [`CachedBlock::as_data`].
    #[inline]
    pub(crate) fn as_filter(&self) -> &FilterReader {
        match self {
            CachedBlock::Filter(filter) => filter,
            other => other.misused(),
        }
    }

    #[cold]
    fn misused(&self) -> ! {
        unreachable!("a block's kind is checked before it is used")
    }

    /// Returns the block's memory in bytes.
    pub(crate) fn charge_bytes(&self) -> usize {
        let contents = match self {
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Index(block) => block.memory_bytes(),
            CachedBlock::Filter(filter) => filter.memory_bytes(),
            CachedBlock::Blob(value) => value.len(),
        };
        contents + size_of::<CachedBlock>()
    }
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        if let CachedBlock::Data(block) = self {
            stock::give(block.take_memory());
        }
    }
}
