//! Index blocks: map keys to the blocks that may hold them.
//!
//! An index block is an ordinary block ([`crate::block`]) whose entries are
//!
//! | part | content |
//! |---|---|
//! | key | not smaller than any key of the block, and smaller than any key of the next block: an internal key, or a user key alone if properties say so |
//! | value | block handle; from format_version 4 on, whole only if the key shares no bytes with the previous one, else the difference of the sizes as a signed varint, in which case the block directly follows the previous one |
//! | | first internal key of the block, length-prefixed (index type 3 only) |
//!
//! This layout is used for a table's index, for the partitions and the top of a two-level
//! index, and for the top of a partitioned filter. Index type 1 (hash) adds two blocks that only
//! speed up RocksDB's search; the index is complete without them, so they are not read. Specified
//! by RocksDB's table/block_based/index_builder.h and table/format.h.
//!
//! In: decompressed bytes, and the layout from the properties. Out: handles.
//! Invariant: handles are not checked against the file; see [`BlockHandle::range`].

use crate::block::{Block, BlockCursor, KeyKind, ValueLayout};
use crate::coding::{self, Reader};
use crate::comparator::Comparator;
use crate::corruption::Corruption;
use crate::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::key::{self, SeqNo};

mod guide;
#[cfg(test)]
mod tests;

use guide::Guide;

/// Kind of a table's index, by the number in its properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum IndexType {
    /// One block, searched by binary search.
    BinarySearch = 0,
    /// `BinarySearch` with two more blocks for searching by prefix.
    HashSearch = 1,
    /// A top block over partitions.
    TwoLevelIndexSearch = 2,
    /// `BinarySearch` with the first key of each block.
    BinarySearchWithFirstKey = 3,
}

impl IndexType {
    /// Returns the type with RocksDB's number `n`.
    #[must_use]
    pub const fn from_u32(n: u32) -> Option<IndexType> {
        Some(match n {
            0 => IndexType::BinarySearch,
            1 => IndexType::HashSearch,
            2 => IndexType::TwoLevelIndexSearch,
            3 => IndexType::BinarySearchWithFirstKey,
            _ => return None,
        })
    }

    /// Returns the name in option strings, such as `kBinarySearch`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            IndexType::BinarySearch => "kBinarySearch",
            IndexType::HashSearch => "kHashSearch",
            IndexType::TwoLevelIndexSearch => "kTwoLevelIndexSearch",
            IndexType::BinarySearchWithFirstKey => "kBinarySearchWithFirstKey",
        }
    }
}

/// Encoding of the entries of an index block; equal for all index blocks of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexLayout {
    /// True if keys are user keys (property `rocksdb.index.key.is.user.key`).
    pub user_keys: bool,
    /// True if handles are delta-encoded and have no stored length (property
    /// `rocksdb.index.value.is.delta.encoded`).
    pub delta_handles: bool,
    /// True if values end with the block's first key (index type 3; not the top of a partitioned
    /// filter).
    pub first_keys: bool,
}

impl IndexLayout {
    fn key_kind(self) -> KeyKind {
        if self.user_keys { KeyKind::User } else { KeyKind::Internal }
    }

    fn value_layout(self) -> ValueLayout {
        match (self.delta_handles, self.first_keys) {
            (false, _) => ValueLayout::Sized,
            (true, false) => ValueLayout::Handle,
            (true, true) => ValueLayout::HandleAndFirstKey,
        }
    }
}

/// A parsed index block.
#[derive(Debug)]
pub struct IndexBlock {
    block: Block,
    layout: IndexLayout,
    /// Search guide, if the block is large.
    guide: Option<Box<Guide>>,
}

impl IndexBlock {
    /// Takes decompressed block contents, without the trailer. Reads only the tail.
    pub fn parse(contents: Box<[u8]>, layout: IndexLayout) -> Result<IndexBlock, Corruption> {
        let block = Block::parse(contents)?;
        let guide = Guide::for_block(&block);
        Ok(IndexBlock { block, layout, guide })
    }

    /// Returns the encoding of the entries.
    #[must_use]
    pub fn layout(&self) -> IndexLayout {
        self.layout
    }

    /// Returns the underlying block.
    #[must_use]
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Returns the memory that the block occupies, in bytes, for charging a cache.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // The guide is included before it is built, because a block's charge is constant while it
        // is in a cache.
        let guide = if self.guide.is_some() { Guide::memory_bytes(&self.block) } else { 0 };
        self.block.memory_bytes() + guide
    }

    /// Returns true if there are no entries (a table of range tombstones only).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Returns the handle of the block that may hold `internal_key`; `None` if the key is behind
    /// all blocks.
    pub fn find(
        &self,
        comparator: &Comparator,
        internal_key: &[u8],
    ) -> Result<Option<BlockHandle>, Corruption> {
        let mut cursor = IndexCursor::new();
        Ok(cursor.seek(self, comparator, internal_key)?.then_some(cursor.handle))
    }
}

/// A position in an index block. It is used with one block until it is positioned again; see
/// [`BlockCursor`].
#[derive(Debug, Clone, Default)]
pub struct IndexCursor {
    cursor: BlockCursor,
    handle: BlockHandle,
    /// Range of the first key within the block's contents; empty if the index does not store it.
    first_key: std::ops::Range<usize>,
    restamped: Option<Box<(SeqNo, Vec<u8>)>>,
}

impl IndexCursor {
    /// Returns a cursor without a position.
    #[must_use]
    pub fn new() -> Self {
        IndexCursor::default()
    }

    /// Returns a cursor for a file whose entries all have the sequence number `seq`, which its keys
    /// do not hold (an ingested file); [`IndexCursor::first_internal_key`] returns keys with that
    /// sequence number. Allocates.
    #[must_use]
    pub fn with_global_seqno(seq: SeqNo) -> Self {
        IndexCursor { restamped: Some(Box::new((seq, Vec::new()))), ..IndexCursor::default() }
    }

    /// Clears the position.
    pub fn reset(&mut self) {
        self.cursor.reset();
    }

    /// Returns true if the cursor is at an entry.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// Returns the handle of the current entry's block. The cursor must be valid.
    #[inline]
    #[must_use]
    pub fn handle(&self) -> BlockHandle {
        debug_assert!(self.valid());
        self.handle
    }

    /// Returns the current entry's key: an internal key, or a user key alone
    /// ([`IndexLayout::user_keys`]).
    #[inline]
    #[must_use]
    pub fn key<'a>(&'a self, index: &'a IndexBlock) -> &'a [u8] {
        self.cursor.key(&index.block)
    }

    /// Returns the user key of the current entry's key. No user key of its block is greater.
    #[inline]
    #[must_use]
    pub fn user_key<'a>(&'a self, index: &'a IndexBlock) -> &'a [u8] {
        let key = self.key(index);
        if index.layout.user_keys { key } else { key::user_key(key) }
    }

    /// Returns the first internal key of the current entry's block, if the index stores it.
    #[inline]
    #[must_use]
    pub fn first_internal_key<'a>(&'a self, index: &'a IndexBlock) -> Option<&'a [u8]> {
        if self.first_key.is_empty() {
            return None;
        }
        match &self.restamped {
            Some(restamped) => Some(&restamped.1),
            None => index.block.contents().get(self.first_key.clone()),
        }
    }

    /// Moves to the entry of the block that may hold `internal_key`; returns false if the key is
    /// behind all blocks.
    #[inline]
    pub fn seek(
        &mut self,
        index: &IndexBlock,
        comparator: &Comparator,
        internal_key: &[u8],
    ) -> Result<bool, Corruption> {
        let layout = index.layout;
        let target = if layout.user_keys { key::user_key(internal_key) } else { internal_key };
        let within = match &index.guide {
            Some(guide) if matches!(comparator, Comparator::Bytewise) => {
                guide.narrow(&index.block, layout, target)
            }
            _ => 0..index.block.restart_count(),
        };
        let found = match layout.value_layout() {
            // The layout is a constant in each arm, so that the entry decoder is inlined without a
            // branch on it.
            ValueLayout::Sized => self.cursor.seek_in(
                &index.block,
                comparator,
                target,
                layout.key_kind(),
                ValueLayout::Sized,
                within,
            )?,
            ValueLayout::Handle => self.cursor.seek_in(
                &index.block,
                comparator,
                target,
                layout.key_kind(),
                ValueLayout::Handle,
                within,
            )?,
            other => {
                self.cursor.seek_in(&index.block, comparator, target, layout.key_kind(), other, within)?
            }
        };
        if found {
            self.decode_here(index)?;
        }
        Ok(found)
    }

    /// Moves to the first entry; returns false if the index is empty.
    pub fn seek_to_first(&mut self, index: &IndexBlock) -> Result<bool, Corruption> {
        let found = self.cursor.seek_to_first_in(&index.block, index.layout.value_layout())?;
        if found {
            self.decode_here(index)?;
        }
        Ok(found)
    }

    /// Moves to the last entry; returns false if the index is empty.
    pub fn seek_to_last(&mut self, index: &IndexBlock) -> Result<bool, Corruption> {
        let found = self.cursor.seek_to_last_in(&index.block, index.layout.value_layout())?;
        if found {
            self.decode_here(index)?;
        }
        Ok(found)
    }

    /// Moves one entry forward; returns false at the end. The cursor must be valid.
    #[inline]
    pub fn next(&mut self, index: &IndexBlock) -> Result<bool, Corruption> {
        let previous = self.handle;
        let found = self.cursor.next_in(&index.block, index.layout.value_layout())?;
        if found {
            let value = self.cursor.value_range();
            self.decode_value(index, value, self.cursor.shares_with_previous().then_some(previous))?;
        }
        Ok(found)
    }

    /// Moves one entry back; returns false at the start. The cursor must be valid.
    pub fn prev(&mut self, index: &IndexBlock) -> Result<bool, Corruption> {
        let found = self.cursor.prev_in(&index.block, index.layout.value_layout())?;
        if found {
            self.decode_here(index)?;
        }
        Ok(found)
    }

    /// Decodes the value of an entry reached without passing the entry before.
    #[inline]
    fn decode_here(&mut self, index: &IndexBlock) -> Result<(), Corruption> {
        let value = self.cursor.value_range();
        if index.layout.delta_handles && self.cursor.shares_with_previous() {
            return self.decode_from_restart(index, value);
        }
        self.decode_value(index, value, None)
    }

    /// Adds up the size differences from the restart point on.
    #[cold]
    fn decode_from_restart(
        &mut self,
        index: &IndexBlock,
        value: std::ops::Range<usize>,
    ) -> Result<(), Corruption> {
        let mut previous = None;
        let walked =
            self.cursor.for_each_value_before(&index.block, index.layout.value_layout(), |shares, value| {
                let handle = decode_handle(&mut Reader::new(value), previous.filter(|_| shares));
                previous = handle.as_ref().ok().copied();
                handle.map(|_| ())
            });
        walked.and_then(|()| self.decode_value(index, value, previous)).inspect_err(|_| self.cursor.reset())
    }

    #[inline]
    fn decode_value(
        &mut self,
        index: &IndexBlock,
        value: std::ops::Range<usize>,
        previous: Option<BlockHandle>,
    ) -> Result<(), Corruption> {
        let start = value.start;
        let mut reader = Reader::new(&index.block.contents()[value]);
        let previous = previous.filter(|_| index.layout.delta_handles);
        let decoded = decode_handle(&mut reader, previous).and_then(|handle| {
            let first_key =
                if index.layout.first_keys { Some(reader.length_prefixed()?.len()) } else { None };
            Ok((handle, first_key))
        });
        match decoded {
            Ok((handle, first_key)) => {
                self.handle = handle;
                let end = start + reader.position();
                self.first_key = end - first_key.unwrap_or(0)..end;
                if self.restamped.is_some() {
                    self.restamp(index);
                }
                Ok(())
            }
            Err(e) => {
                self.cursor.reset();
                Err(e.within("index entry").rebased(start as u64))
            }
        }
    }

    #[cold]
    fn restamp(&mut self, index: &IndexBlock) {
        let Some(restamped) = &mut self.restamped else { return };
        let stored = index.block.contents().get(self.first_key.clone()).unwrap_or_default();
        let (user_key, trailer) = key::split(stored);
        let (seq, key) = &mut **restamped;
        key.clear();
        key::append(key, user_key, (seq.0 << 8) | (trailer & 0xff));
    }
}

/// Decodes a handle, or the difference to the previous one.
#[inline]
fn decode_handle(reader: &mut Reader<'_>, previous: Option<BlockHandle>) -> Result<BlockHandle, Corruption> {
    let Some(previous) = previous else { return BlockHandle::decode(reader) };
    let delta = reader.varsigned64()?;
    let offset = previous
        .offset
        .checked_add(previous.size)
        .and_then(|end| end.checked_add(BLOCK_TRAILER_BYTES as u64));
    match (offset, previous.size.checked_add_signed(delta)) {
        (Some(offset), Some(size)) => Ok(BlockHandle { offset, size }),
        _ => Err(reader.corruption("block handle out of range")),
    }
}

/// Appends the value of an index entry with a whole handle.
pub fn encode_value(out: &mut Vec<u8>, handle: BlockHandle, first_key: Option<&[u8]>) {
    handle.encode_into(out);
    if let Some(first_key) = first_key {
        coding::put_length_prefixed(out, first_key);
    }
}

/// Appends the value of an index entry with the size difference to the block directly before.
pub fn encode_delta(out: &mut Vec<u8>, handle: BlockHandle, previous: BlockHandle, first_key: Option<&[u8]>) {
    debug_assert!(previous.is_followed_by(handle));
    coding::put_varsigned64(out, handle.size.wrapping_sub(previous.size) as i64);
    if let Some(first_key) = first_key {
        coding::put_length_prefixed(out, first_key);
    }
}
