//! Insertion of blocks into the block cache as they are written (`prepopulate_block_cache`), so
//! that the first read of a new table hits.
//!
//! In: the blocks of a table being written, uncompressed, and finally its properties. Out: these
//! blocks in the cache, under their readers' keys.
//!
//! Invariant: a file number is used once, so blocks of a failed job are never looked up, and are
//! evicted like others.

use super::context::count_cache_add;
use super::decode::Layout;
use crate::block::{BlockKind, CachedBlock};
use crate::open_files::Shared;
use karst_base::error::Result;
use karst_base::options::BlockBasedTableOptions;
use karst_format::Corruption;
use karst_format::block::Block;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::options::choice::PrepopulateBlockCache;
use karst_format::properties::TableProperties;
use karst_format::table_builder::WrittenBlock;
use karst_mem::{CacheKey, Priority};
use std::borrow::Cow;
use std::sync::Arc;

/// Inserts the blocks of a job's tables into the cache.
#[derive(Clone, Debug)]
pub struct Warming {
    shared: Arc<Shared>,
    data: Priority,
    metadata: Priority,
    /// True if open tables own all metadata except partitions, so that only those are cached.
    partitions_only: bool,
}

impl Warming {
    /// Returns `None` if the options exclude such a job. Compat: blocks of compactions have the
    /// lowest priority.
    pub fn of(shared: &Arc<Shared>, options: &BlockBasedTableOptions, flush: bool) -> Option<Self> {
        if options.no_block_cache {
            return None;
        }
        let data = match (options.prepopulate_block_cache, flush) {
            (PrepopulateBlockCache::Disable, _) | (PrepopulateBlockCache::FlushOnly, false) => return None,
            (_, true) => Priority::Low,
            (_, false) => Priority::Bottom,
        };
        let high = flush && options.cache_index_and_filter_blocks_with_high_priority;
        let metadata = if high { Priority::High } else { data };
        let partitions_only = !options.cache_index_and_filter_blocks;
        Some(Self { shared: shared.clone(), data, metadata, partitions_only })
    }

    /// Inserts blocks written for a table. Metadata follows when the table is finished, with its
    /// properties.
    pub fn take(
        &self,
        number: FileNumber,
        blocks: Vec<WrittenBlock>,
        properties: Option<&TableProperties>,
    ) -> Result<(), Corruption> {
        let layout = properties.map(|properties| Layout::new(properties, SeqNo::ZERO)).transpose()?;
        for WrittenBlock { kind, handle, contents } in blocks {
            let is_partition = matches!(kind, BlockKind::IndexPartition | BlockKind::FilterPartition);
            let (priority, block) = match &layout {
                _ if kind == BlockKind::Data => (self.data, CachedBlock::Data(Block::parse(contents)?)),
                Some(layout) if is_partition || !self.partitions_only => {
                    (self.metadata, layout.parse(kind, Cow::Owned(contents))?)
                }
                _ => continue,
            };
            let charge = self.shared.block_charge(&block);
            count_cache_add(&self.shared.stats, kind, charge);
            drop(self.shared.cache.insert(
                CacheKey(self.shared.file_id(number), handle.offset),
                block,
                charge,
                priority,
            ));
        }
        Ok(())
    }
}
