//! Reading block-based tables.
//!
//! In: a file of a version. Out: an open [`Table`], which finds the block that may hold a key and
//! decodes the blocks it is given. All reads of storage go through [`Needs`] and
//! [`drive`](mod@drive): a table never waits itself, but for opening and [`verify`].
//!
//! Where metadata lives, as in RocksDB: with `cache_index_and_filter_blocks=false` (the default) a
//! whole index, a whole filter and the top level of partitioned ones belong to the open table;
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

/// Metadata of a table: a block that the table may hold itself.
#[derive(Debug)]
struct MetaBlock {
    handle: BlockHandle,
    kind: BlockKind,
    /// Held by the table: either its own or pinned in the cache.
    held: Option<BlockRef>,
}

/// A metadata block in hand.
pub enum MetaRef<'a> {
    /// One that the table holds.
    Held(&'a CachedBlock),
    /// One that was found in the cache, or read.
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
    /// Partitions that stay in the cache for as long as the table is open.
    pinned_partitions: Vec<BlockRef>,
    metadata_has_high_priority: bool,
    /// The level it was opened for, to count reads by.
    level: u32,
    /// Nothing can lie below that.
    is_on_last_level: bool,
    /// See [`mark_leaving`](Self::mark_leaving).
    leaving: OnceLock<(Arc<BlockCache<CachedBlock>>, u32)>,
    /// What it takes of the budget of memory.
    _charge: Option<Charge>,
}

impl Table {
    /// The open file.
    pub fn file(&self) -> &Arc<dyn RandomAccessFile> {
        &self.file
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The file's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// What the file says of itself.
    pub fn properties(&self) -> &Arc<TableProperties> {
        &self.properties
    }

    #[inline]
    /// The order of its keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// The table's range tombstones, cut into fragments.
    #[inline]
    pub fn range_tombstones(&self) -> Option<&Arc<Fragments>> {
        self.range_tombstones.as_ref()
    }

    /// The sequence number of every entry, where keys do not tell it (an ingested file).
    #[inline]
    pub fn global_seqno(&self) -> Option<SeqNo> {
        self.layout.global_seqno
    }

    /// Whether the index has a second level.
    #[inline]
    pub fn index_is_partitioned(&self) -> bool {
        self.layout.index_is_partitioned
    }

    /// The index block (or its top level), if the table holds it itself.
    #[inline]
    pub fn held_index(&self) -> Option<&CachedBlock> {
        self.index.held.as_deref()
    }

    /// Where the index block (or its top level) is.
    #[inline]
    pub fn index_handle(&self) -> BlockHandle {
        self.index.handle
    }

    /// Names a block within the process.
    #[inline]
    pub fn cache_key(&self, handle: BlockHandle) -> CacheKey {
        CacheKey(self.file_id, handle.offset)
    }

    /// Whether filter and index can be asked without a read, wherever the cache stands.
    pub fn metadata_is_held(&self) -> bool {
        let whole = |meta: &MetaBlock| meta.held.is_some() && meta.kind != BlockKind::FilterIndex;
        !self.layout.index_is_partitioned && whole(&self.index) && self.filter_block().is_none_or(whole)
    }

    /// The filter, or the top level of a partitioned one.
    fn filter_block(&self) -> Option<&MetaBlock> {
        self.filter.as_ref().map(|filter| &filter.block)
    }

    /// The index block, or the top level of a partitioned index: its entries are then handles of
    /// partitions.
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

    /// Keeps filter and index (of partitioned ones the top) in hand as far as they are in the
    /// cache.
    ///
    /// For reads that wait while the cache holds more than fits: each that comes to this table
    /// meanwhile finds them, and without those who wait they would be gone with the first that
    /// ends.
    #[cold]
    pub fn keep_metadata_in_hand(&self, ctx: &ReadCtx<'_>, needs: &mut Needs) {
        for meta in self.filter_block().into_iter().chain([&self.index]).filter(|meta| meta.held.is_none()) {
            needs.hold_if_cached(ctx, self.cache_key(meta.handle));
        }
    }

    /// How long the filter is if it may have to be read, in bytes; a partition of it is small and
    /// counts for nothing.
    pub fn filter_bytes(&self) -> u64 {
        self.filter_block().filter(|block| block.held.is_none()).map_or(0, |block| block.handle.size)
    }

    /// A partition of the index.
    #[inline]
    pub(crate) fn index_partition(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        handle: BlockHandle,
    ) -> Result<BlockRef, Stop> {
        needs.block(ctx, self, handle, BlockKind::IndexPartition)
    }

    /// A data block.
    #[inline]
    pub fn data_block(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        handle: BlockHandle,
    ) -> Result<BlockRef, Stop> {
        needs.block(ctx, self, handle, BlockKind::Data)
    }

    /// The data block that holds the first entry at or behind the internal key `key`, by the index;
    /// `None` if no entry of the key can be in the table.
    #[inline]
    pub fn locate(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
    ) -> Result<Option<BlockHandle>, Stop> {
        Ok(self.seek_data(ctx, needs, key, |cursor, block| self.data_handle(cursor, block, key))?.flatten())
    }

    /// The data block behind the one that [`locate`](Self::locate) names, where that has no entry
    /// at or behind `key`; `None` if no entry of the key can be in it.
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

    /// Where in the file the first data block lies that may have entries at or behind the internal
    /// key `key`; behind all of them if none does.
    pub fn offset_of(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
    ) -> Result<u64, Stop> {
        let found = self.seek_data(ctx, needs, key, |cursor, _| cursor.handle().offset)?;
        Ok(found.unwrap_or(self.properties.data_size))
    }

    /// What `found` makes of the index's entry for the first data block that may have entries at or
    /// behind `key`; `None` if there is none.
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

    /// The handle under the cursor, unless the index tells that the block begins behind the key.
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

    /// Moves `cursor` to the first entry of `block` at or behind `key`; false if no entry of the
    /// key is in the table.
    #[inline]
    pub fn seek_point(
        &self,
        cursor: &mut BlockCursor,
        block: &Block,
        key: &[u8],
        handle: BlockHandle,
    ) -> Result<bool> {
        // Why `PastEnd` ends the search: the index key of this block is at or behind the key and
        // before every key of the next block.
        cursor
            .seek_for_get(block, &self.comparator, key)
            .map(|found| found == karst_format::block::PointSeek::At)
            .map_err(|c| self.corrupt(handle, c))
    }

    /// The entry under the cursor, with the sequence number that counts.
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

    /// Moves `cursor` on by one entry of the same block.
    #[inline]
    pub fn next_entry(&self, cursor: &mut BlockCursor, block: &Block, handle: BlockHandle) -> Result<bool> {
        cursor.next(block).map_err(|c| self.corrupt(handle, c))
    }

    /// The handles of all entries of an index block.
    fn all_handles(&self, block: &CachedBlock, handle: BlockHandle) -> Result<Vec<BlockHandle>> {
        let mut handles = Vec::new();
        add_handles_in(block, self.file.size(), &mut handles).map_err(|c| self.corrupt(handle, c))?;
        Ok(handles)
    }

    /// Counts a read of it that begins.
    pub(crate) fn count_read(&self, ctx: &ReadCtx<'_>, bytes: u64) {
        let recorder = ctx.stats().recorder();
        let (count, sum) = match self.is_on_last_level {
            true => (Ticker::LastLevelReadCount, Ticker::LastLevelReadBytes),
            false => (Ticker::NonLastLevelReadCount, Ticker::NonLastLevelReadBytes),
        };
        recorder.tick(count);
        recorder.record(sum, bytes);
    }

    /// The level that the table was opened for.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Refuses handles that do not lie inside the file.
    pub fn check_bounds(&self, handle: BlockHandle) -> Result<()> {
        check_bounds(self.path(), self.file.size(), handle)
    }

    /// An error for damage that `format` found in the contents of the block at `handle`.
    ///
    /// The offset is that of the block: contents may have been compressed.
    #[cold]
    pub fn corrupt(&self, handle: BlockHandle, corruption: karst_format::Corruption) -> Error {
        Error::in_block(self.path(), handle.offset, corruption)
    }

    /// The file ended inside a block.
    #[cold]
    pub fn truncated(&self, handle: BlockHandle, kind: BlockKind) -> Error {
        Error::corruption_at(
            self.path(),
            handle.offset,
            format_args!("file ends inside a {} of {} bytes", kind.name(), handle.size),
        )
    }

    /// The block, if it was decoded as what `kind` asks for.
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

    /// What the open table takes in memory besides the block cache, in bytes.
    pub fn memory_bytes(&self) -> usize {
        // Why alone: what it has pinned in the cache is the cache's.
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

/// Adds to `handles` all that an index of a file of `size_bytes` names. There are no more than the
/// file can have.
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

/// Refuses handles that do not lie inside a file of `size_bytes`.
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
