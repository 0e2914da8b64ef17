//! Reading block-based tables.
//!
//! In: a file of a version. Out: an open [`Table`], which finds the block that may hold a key and
//! decodes the blocks it is given. All storage reads go through [`Needs`] and [`drive`](mod@drive):
//! a table never waits itself, except for opening and [`verify`].
//!
//! Metadata is placed as in RocksDB: with `cache_index_and_filter_blocks=false` (the default) an
//! unpartitioned index or filter and the top level of a partitioned one belong to the open table;
//! otherwise they are in the block cache with high priority, some of them pinned. Partitions are
//! always in the block cache. Compression dictionaries and range tombstones always belong to the
//! open table.
//!
//! Used by: lookups, iterators, tools.

pub mod cache;
pub mod context;
mod decode;
pub mod drive;
pub mod fetch;
mod filter;
mod filter_history;
pub mod needs;
mod open;
mod tail;
mod uncache;
pub mod verify;
pub mod warming;
pub mod writer;

use crate::block::{BlockKind, BlockRef, CachedBlock};
use crate::table::context::ReadCtx;
use crate::table::decode::{Layout, Storage};
use crate::table::needs::{Needs, Stop};
use karst_base::error::{Error, Result};
use karst_base::stats::Ticker;
use karst_format::block::{Block, BlockCursor};
use karst_format::comparator::Comparator;
use karst_format::compression::Dictionary;
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_format::ids::FileNumber;
use karst_format::index::IndexCursor;
use karst_format::key::{InternalKey, SeqNo};
use karst_format::properties::TableProperties;
use karst_io::RandomAccessFile;
use karst_lsm::range_del::Fragments;
use karst_mem::{BlockCache, CacheKey, Charge};
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use filter::KeyHash;
pub use filter_history::{FilterHistory, Odds};

/// A metadata block, which the table may hold itself.
#[derive(Debug)]
struct MetaBlock {
    handle: BlockHandle,
    kind: BlockKind,
    /// The block, if owned by the table or pinned in the cache.
    held: Option<BlockRef>,
}

/// A metadata block in hand.
pub enum MetaRef<'a> {
    /// Held by the table.
    Held(&'a CachedBlock),
    /// Found in the cache, or read.
    Pinned(BlockRef),
}

impl std::ops::Deref for MetaRef<'_> {
    type Target = CachedBlock;
    #[inline]
    fn deref(&self) -> &CachedBlock {
        match self {
            MetaRef::Held(block) => block,
            MetaRef::Pinned(block) => block,
        }
    }
}

/// An open table file. Immutable and shared; all methods may be called from any thread.
#[derive(Debug)]
pub struct Table {
    file: Arc<dyn RandomAccessFile>,
    number: FileNumber,
    file_id: u64,
    comparator: Comparator,
    storage: Storage,
    layout: Layout,
    properties: Arc<TableProperties>,
    index: MetaBlock,
    filter: Option<filter::TableFilter>,
    range_tombstones: Option<Arc<Fragments>>,
    dictionary: Option<Arc<Dictionary>>,
    /// Partitions pinned in the cache while the table is open.
    pinned_partitions: Vec<BlockRef>,
    metadata_has_high_priority: bool,
    /// The level it was opened for, used in read counts.
    level: u32,
    /// True if no level is below its level.
    is_on_last_level: bool,
    /// See [`mark_leaving`](Self::mark_leaving).
    leaving: OnceLock<(Arc<BlockCache<CachedBlock>>, u32)>,
    /// Its charge to the memory budget.
    _charge: Option<Charge>,
}

impl Table {
    /// Returns the open file.
    pub fn file(&self) -> &Arc<dyn RandomAccessFile> {
        &self.file
    }

    /// Returns the file's path, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the file's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Returns the table's properties.
    pub fn properties(&self) -> &Arc<TableProperties> {
        &self.properties
    }

    #[inline]
    /// Returns the comparator of its keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// Returns the table's range tombstones, cut into fragments.
    #[inline]
    pub fn range_tombstones(&self) -> Option<&Arc<Fragments>> {
        self.range_tombstones.as_ref()
    }

    /// Returns the sequence number of every entry, if not stored in the keys (an ingested file).
    #[inline]
    pub fn global_seqno(&self) -> Option<SeqNo> {
        self.layout.global_seqno
    }

    /// Returns true if the index has a second level.
    #[inline]
    pub fn index_is_partitioned(&self) -> bool {
        self.layout.index_is_partitioned
    }

    /// Returns the index block (or its top level), if the table holds it itself.
    #[inline]
    pub fn held_index(&self) -> Option<&CachedBlock> {
        self.index.held.as_deref()
    }

    /// Returns the handle of the index block (or its top level).
    #[inline]
    pub fn index_handle(&self) -> BlockHandle {
        self.index.handle
    }

    /// Returns a block's cache key, unique within the process.
    #[inline]
    pub fn cache_key(&self, handle: BlockHandle) -> CacheKey {
        CacheKey(self.file_id, handle.offset)
    }

    /// Returns true if filter and index can be used without a read, regardless of the cache.
    pub fn metadata_is_held(&self) -> bool {
        let whole = |meta: &MetaBlock| meta.held.is_some() && meta.kind != BlockKind::FilterIndex;
        !self.layout.index_is_partitioned && whole(&self.index) && self.filter_block().is_none_or(whole)
    }

    /// Returns the filter, or the top level of a partitioned one.
    fn filter_block(&self) -> Option<&MetaBlock> {
        self.filter.as_ref().map(|filter| &filter.block)
    }

    /// Returns the index block, or the top level of a partitioned index, whose entries are handles
    /// of partitions.
    #[inline]
    pub fn index<'a>(self: &'a Arc<Self>, ctx: &ReadCtx<'_>, needs: &mut Needs) -> Result<MetaRef<'a>, Stop> {
        self.meta(&self.index, ctx, needs)
    }

    #[inline]
    fn meta<'a>(
        self: &'a Arc<Self>,
        meta: &'a MetaBlock,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
    ) -> Result<MetaRef<'a>, Stop> {
        match &meta.held {
            Some(block) => Ok(MetaRef::Held(block)),
            None => needs.block(ctx, self, meta.handle, meta.kind).map(MetaRef::Pinned),
        }
    }

    /// Keeps filter and index (or their top levels) in hand if the cache has them.
    ///
    /// For reads that wait while the cache is over its capacity: other reads of this table find the
    /// blocks meanwhile, which would otherwise be evicted when the first read ends.
    #[cold]
    pub fn keep_metadata_in_hand(&self, ctx: &ReadCtx<'_>, needs: &mut Needs) {
        for meta in self.filter_block().into_iter().chain([&self.index]).filter(|meta| meta.held.is_none()) {
            needs.hold_if_cached(ctx, self.cache_key(meta.handle));
        }
    }

    /// Returns the size in bytes of a filter that may have to be read; 0 for a partitioned one,
    /// whose partitions are small.
    pub fn filter_bytes(&self) -> u64 {
        self.filter_block().filter(|block| block.held.is_none()).map_or(0, |block| block.handle.size)
    }

    /// Returns a partition of the index.
    #[inline]
    pub(crate) fn index_partition(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        handle: BlockHandle,
    ) -> Result<BlockRef, Stop> {
        needs.block(ctx, self, handle, BlockKind::IndexPartition)
    }

    /// Returns a data block.
    #[inline]
    pub fn data_block(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        handle: BlockHandle,
    ) -> Result<BlockRef, Stop> {
        needs.block(ctx, self, handle, BlockKind::Data)
    }

    /// Returns the data block with the first entry at or after the internal key `key`, by the
    /// index; `None` if no entry of the key can be in the table.
    #[inline]
    pub fn locate(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
    ) -> Result<Option<BlockHandle>, Stop> {
        Ok(self.seek_data(ctx, needs, key, |cursor, block| self.data_handle(cursor, block, key))?.flatten())
    }

    /// Returns the data block after the one from [`locate`](Self::locate), for use if that has no
    /// entry at or after `key`; `None` if no entry of the key can be in it.
    ///
    /// Such a block can hold entries of the key, because index keys may have no sequence numbers.
    /// With timestamps the index key of a block may equal `key` although its last entry is newer;
    /// the next block continues with earlier timestamps.
    #[cold]
    pub fn locate_behind(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
    ) -> Result<Option<BlockHandle>, Stop> {
        let index = self.index(ctx, needs)?;
        let mut cursor = IndexCursor::new();
        let mut found = self.seek_index(&mut cursor, &index, self.index.handle, key)?;
        if !self.layout.index_is_partitioned {
            found = found && self.next_index_entry(&mut cursor, &index, self.index.handle)?;
            return Ok(if found { self.data_handle(&cursor, &index, key) } else { None });
        }
        let mut is_behind = false;
        while found {
            let handle = cursor.handle();
            let partition = self.index_partition(ctx, needs, handle)?;
            let mut inner = IndexCursor::new();
            let mut here = self.seek_index(&mut inner, &partition, handle, key)?;
            if here && !is_behind {
                is_behind = true;
                here = self.next_index_entry(&mut inner, &partition, handle)?;
            }
            if here {
                return Ok(self.data_handle(&inner, &partition, key));
            }
            found = self.next_index_entry(&mut cursor, &index, self.index.handle)?;
        }
        Ok(None)
    }

    fn next_index_entry(
        &self,
        cursor: &mut IndexCursor,
        block: &CachedBlock,
        handle: BlockHandle,
    ) -> Result<bool> {
        cursor.next(block.as_index()).map_err(|c| self.corrupt(handle, c))
    }

    /// Returns the file offset of the first data block that may have entries at or after the
    /// internal key `key`; the end of the data if none does.
    pub fn offset_of(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
    ) -> Result<u64, Stop> {
        let found = self.seek_data(ctx, needs, key, |cursor, _| cursor.handle().offset)?;
        Ok(found.unwrap_or(self.properties.data_size))
    }

    /// Applies `found` to the index entry of the first data block that may have entries at or after
    /// `key`; `None` if no block does.
    #[inline]
    fn seek_data<T>(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
        found: impl FnOnce(&IndexCursor, &CachedBlock) -> T,
    ) -> Result<Option<T>, Stop> {
        let index = self.index(ctx, needs)?;
        let mut cursor = IndexCursor::new();
        if !self.seek_index(&mut cursor, &index, self.index.handle, key)? {
            return Ok(None);
        }
        if !self.layout.index_is_partitioned {
            return Ok(Some(found(&cursor, &index)));
        }
        loop {
            let handle = cursor.handle();
            let partition = self.index_partition(ctx, needs, handle)?;
            let mut inner = IndexCursor::new();
            if self.seek_index(&mut inner, &partition, handle, key)? {
                return Ok(Some(found(&inner, &partition)));
            }
            // The top level's key may be larger than any in its partition.
            if !self.next_index_entry(&mut cursor, &index, self.index.handle)? {
                return Ok(None);
            }
        }
    }

    #[inline]
    fn seek_index(
        &self,
        cursor: &mut IndexCursor,
        block: &CachedBlock,
        handle: BlockHandle,
        key: &[u8],
    ) -> Result<bool> {
        cursor.seek(block.as_index(), &self.comparator, key).map_err(|c| self.corrupt(handle, c))
    }

    /// Returns the handle under the cursor, unless the index shows that the block begins after the
    /// key.
    #[inline]
    fn data_handle(&self, cursor: &IndexCursor, block: &CachedBlock, key: &[u8]) -> Option<BlockHandle> {
        if let Some(first) = cursor.first_internal_key(block.as_index()) {
            let (user_key, first) = (karst_format::key::user_key(key), karst_format::key::user_key(first));
            if self.comparator.compare_user(user_key, first).is_lt() {
                return None;
            }
        }
        Some(cursor.handle())
    }

    /// Moves `cursor` to the first entry of `block` at or after `key`; returns false if no entry of
    /// the key is in the table.
    #[inline]
    pub fn seek_point(
        &self,
        cursor: &mut BlockCursor,
        block: &Block,
        key: &[u8],
        handle: BlockHandle,
    ) -> Result<bool> {
        // `PastEnd` ends the search because the index key of this block is at or after the key and
        // before every key of the next block.
        cursor
            .seek_for_get(block, &self.comparator, key)
            .map(|found| found == karst_format::block::PointSeek::At)
            .map_err(|c| self.corrupt(handle, c))
    }

    /// Returns the entry under the cursor, with the effective sequence number.
    #[inline]
    pub fn entry<'a>(
        &self,
        cursor: &'a BlockCursor,
        block: &'a Block,
        handle: BlockHandle,
    ) -> Result<InternalKey<'a>> {
        let mut entry = InternalKey::parse(cursor.key(block)).map_err(|c| self.corrupt(handle, c))?;
        if let Some(seq) = self.layout.global_seqno {
            entry.seq = seq;
        }
        Ok(entry)
    }

    /// Moves `cursor` to the next entry of the same block.
    #[inline]
    pub fn next_entry(&self, cursor: &mut BlockCursor, block: &Block, handle: BlockHandle) -> Result<bool> {
        cursor.next(block).map_err(|c| self.corrupt(handle, c))
    }

    /// Returns the handles of all entries of an index block.
    fn all_handles(&self, block: &CachedBlock, handle: BlockHandle) -> Result<Vec<BlockHandle>> {
        let mut handles = Vec::new();
        add_handles_in(block, self.file.size(), &mut handles).map_err(|c| self.corrupt(handle, c))?;
        Ok(handles)
    }

    /// Counts a read of the table.
    pub(crate) fn count_read(&self, ctx: &ReadCtx<'_>, bytes: u64) {
        let recorder = ctx.stats().recorder();
        let (count, sum) = match self.is_on_last_level {
            true => (Ticker::LastLevelReadCount, Ticker::LastLevelReadBytes),
            false => (Ticker::NonLastLevelReadCount, Ticker::NonLastLevelReadBytes),
        };
        recorder.tick(count);
        recorder.record(sum, bytes);
    }

    /// Returns the level that the table was opened for.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Returns an error for a handle that does not lie inside the file.
    pub fn check_bounds(&self, handle: BlockHandle) -> Result<()> {
        check_bounds(self.path(), self.file.size(), handle)
    }

    /// Returns the error for damage that `format` found in the contents of the block at `handle`.
    ///
    /// Its offset is the block's, because contents may have been compressed.
    #[cold]
    pub fn corrupt(&self, handle: BlockHandle, corruption: karst_format::Corruption) -> Error {
        Error::in_block(self.path(), handle.offset, corruption)
    }

    /// Returns the error for a file that ends inside a block.
    #[cold]
    pub fn truncated(&self, handle: BlockHandle, kind: BlockKind) -> Error {
        Error::corruption_at(
            self.path(),
            handle.offset,
            format_args!("file ends inside a {} of {} bytes", kind.name(), handle.size),
        )
    }

    /// Returns the block, or an error if it was not decoded as `kind` requires.
    #[inline]
    pub fn checked(&self, block: BlockRef, handle: BlockHandle, kind: BlockKind) -> Result<BlockRef> {
        if block.is(kind) { Ok(block) } else { Err(self.wrong_kind(handle, kind)) }
    }

    #[cold]
    fn wrong_kind(&self, handle: BlockHandle, kind: BlockKind) -> Error {
        Error::corruption_at(
            self.path(),
            handle.offset,
            format_args!("the index leads to a {} where another kind of block is", kind.name()),
        )
    }

    /// Returns the open table's memory outside of the block cache, in bytes.
    pub fn memory_bytes(&self) -> usize {
        // Blocks pinned in the cache are shared and belong to the cache.
        let own = |meta: &MetaBlock| {
            meta.held.as_ref().filter(|block| block.is_alone()).map_or(0, |block| block.charge_bytes())
        };
        size_of::<Table>()
            + own(&self.index)
            + self.filter_block().map_or(0, own)
            + self.range_tombstones.as_ref().map_or(0, |fragments| fragments.memory_bytes())
            + self.dictionary.as_ref().map_or(0, |dictionary| dictionary.memory_bytes())
    }
}

/// Adds all handles in an index of a file of `size_bytes` to `handles`. An error if there are more
/// than the file can have.
fn add_handles_in(
    block: &CachedBlock,
    size_bytes: u64,
    handles: &mut Vec<BlockHandle>,
) -> Result<(), karst_format::Corruption> {
    let (index, mut cursor) = (block.as_index(), IndexCursor::new());
    let mut found = cursor.seek_to_first(index)?;
    while found {
        handles.push(cursor.handle());
        if handles.len() as u64 > size_bytes / BLOCK_TRAILER_BYTES as u64 {
            return Err(karst_format::Corruption::new(
                "indexes with more blocks than the file can have",
                0u64,
            ));
        }
        found = cursor.next(index)?;
    }
    Ok(())
}

/// Returns an error for a handle that does not lie inside a file of `size_bytes`.
fn check_bounds(path: &Path, size_bytes: u64, handle: BlockHandle) -> Result<()> {
    if handle.range(size_bytes).is_some() {
        return Ok(());
    }
    Err(Error::corruption_at(
        path,
        handle.offset,
        format_args!(
            "a block of {} bytes and its trailer of {BLOCK_TRAILER_BYTES} do not fit a file of {size_bytes} bytes",
            handle.size
        ),
    ))
}
