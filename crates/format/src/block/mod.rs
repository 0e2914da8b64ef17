//! Blocks of sorted key-value entries: data blocks, index blocks, metaindex, properties, range
//! tombstones.
//!
//! | bytes | content |
//! |---|---|
//! | ... | entries, see below |
//! | ... | values, if separated from the keys |
//! | 4 each | restart points: offsets of entries that store their whole key |
//! | 1 each, 2 | optional hash index: one byte a bucket, a restart number (254 collision, 255 empty), then the number of buckets |
//! | 4 | offset of the first value, if separated |
//! | 4 | bits 0-27 number of restart points; bit 28 values separated; bit 29 keys evenly spread; bit 31 hash index |
//!
//! | entry bytes | content |
//! |---|---|
//! | 1-5 | key bytes shared with the previous key; 0 at restart points |
//! | 1-5 | key bytes stored here |
//! | 1-5 | value length; left out in index blocks with delta-encoded handles |
//! | 1-5 | offset among the values; only at restart points of blocks with separated values |
//! | ... | key bytes, then the value unless separated |
//!
//! Specified by RocksDB's table/block_based/block_builder.cc, data_block_footer.h and
//! data_block_hash_index.h.
//!
//! In: the decompressed bytes. Out: [`Block`], which owns them and the offsets of their parts;
//! [`BlockCursor`] walks it.
//! Invariant: parsing reads the tail only, so its cost does not depend on the block's size; entries
//! are checked when a cursor reaches them.

mod builder;
mod cursor;
mod entry;
mod search;
#[cfg(test)]
mod tests;

pub use builder::{BlockBuilder, BlockShape};
pub use cursor::{BlockCursor, PointSeek};

use crate::coding::fixed32_at;
use crate::corruption::Corruption;
use crate::hash::legacy_hash;

pub(crate) use entry::{KeyKind, ValueLayout};

const HASH_INDEX_BIT: u32 = 1 << 31;
const UNIFORM_BIT: u32 = 1 << 29;
const SEPARATED_BIT: u32 = 1 << 28;
const MAX_RESTARTS: u32 = (1 << 28) - 1;
/// Length of the packed integer at a block's end, in bytes.
const TAIL_BYTES: usize = 4;
/// Size in bytes from which on a block has no hash index.
const MAX_HASH_INDEX_BLOCK_BYTES: usize = 1 << 16;
/// Largest restart number that a bucket can hold.
const MAX_HASH_INDEX_RESTART: usize = 253;
const BUCKET_COLLISION: u8 = 254;
const BUCKET_EMPTY: u8 = 255;
const HASH_INDEX_SEED: u32 = 397;

/// A parsed block. Immutable and cheap to share; every entry is read through a [`BlockCursor`].
pub struct Block {
    contents: Vec<u8>,
    /// End of the entries: the first value if values are separated, else the first restart point.
    keys_end: u32,
    /// Offset of the first restart point, which is the end of the values.
    restarts_start: u32,
    restart_count: u32,
    /// Number of buckets of the hash index, which lies behind the restart points; 0 without one.
    bucket_count: u32,
    separated: bool,
    uniform: bool,
    /// True if `restarts` holds all restart points.
    restarts_are_here: bool,
    /// Restart points of a small block, copied so that a lookup does not read the block's tail,
    /// which is on another page of memory.
    restarts: [u16; RESTARTS_KEPT],
}

/// Maximum number of restart points kept in `Block::restarts`; with ten, `Block` fills a cache
/// line.
const RESTARTS_KEPT: usize = 10;

impl Block {
    /// Takes decompressed block contents, without the trailer. Reads only the tail.
    pub fn parse(contents: impl Into<Vec<u8>>) -> Result<Block, Corruption> {
        let contents = contents.into();
        let size = contents.len();
        if u32::try_from(size).is_err() {
            return Err(Corruption::new(format!("block of {size} bytes is larger than 4 GiB"), size));
        }
        let tail = |end: usize, what: &'static str| {
            let at = end.checked_sub(4).ok_or(Corruption::new(what, end))?;
            Ok((at, fixed32_at(&contents, at).ok_or(Corruption::new(what, at))?))
        };
        let (mut end, packed) = tail(size, "block is too short for its tail")?;
        let restart_count = packed & !(HASH_INDEX_BIT | UNIFORM_BIT | SEPARATED_BIT);
        if restart_count > MAX_RESTARTS {
            return Err(Corruption::new(format!("unknown feature bits in block tail {packed:#010x}"), end));
        }
        let mut values_start = None;
        if packed & SEPARATED_BIT != 0 {
            let (at, offset) = tail(end, "block is too short for its values offset")?;
            values_start = Some(offset);
            end = at;
        }
        let mut bucket_count = 0;
        if packed & HASH_INDEX_BIT != 0 {
            let buckets_end =
                end.checked_sub(2).ok_or(Corruption::new("block is too short for its hash index", end))?;
            bucket_count = u32::from(u16::from_le_bytes([contents[buckets_end], contents[buckets_end + 1]]));
            let fits =
                bucket_count > 0 && end < MAX_HASH_INDEX_BLOCK_BYTES && bucket_count as usize <= buckets_end;
            if !fits {
                return Err(Corruption::new(
                    format!("hash index of {bucket_count} buckets does not fit the block"),
                    buckets_end,
                ));
            }
            end = buckets_end - bucket_count as usize;
        }
        let restarts_start = (restart_count as usize).checked_mul(4).and_then(|n| end.checked_sub(n));
        let Some(restarts_start) = restarts_start else {
            return Err(Corruption::new(
                format!("{restart_count} restart points do not fit a block of {size} bytes"),
                size - TAIL_BYTES,
            ));
        };
        // Invariant: all offsets below fit 32 bits because the whole block does.
        let restarts_start = restarts_start as u32;
        let keys_end = values_start.unwrap_or(restarts_start);
        if keys_end > restarts_start {
            return Err(Corruption::new(format!("values start at {keys_end}, behind the values' end"), end));
        }
        if restart_count == 0 && restarts_start != 0 {
            return Err(Corruption::new("block with entries has no restart points", size - TAIL_BYTES));
        }
        let mut block = Block {
            contents,
            keys_end,
            restarts_start,
            restart_count,
            bucket_count,
            separated: values_start.is_some(),
            uniform: packed & UNIFORM_BIT != 0,
            restarts_are_here: false,
            restarts: [0; RESTARTS_KEPT],
        };
        block.keep_restarts();
        Ok(block)
    }

    fn keep_restarts(&mut self) {
        let count = self.restart_count as usize;
        if count > RESTARTS_KEPT {
            return;
        }
        for i in 0..count {
            let Ok(offset) = u16::try_from(self.restart_offset(i)) else { return };
            self.restarts[i] = offset;
        }
        self.restarts_are_here = true;
    }

    /// Returns the whole contents, as passed to [`Block::parse`].
    #[inline(always)]
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// Returns the size of the contents, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.contents.len()
    }

    /// Returns the memory that the block occupies, in bytes, for charging a cache.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.contents.capacity() + size_of::<Block>()
    }

    /// Moves the memory of the contents out, for another block. The block must not be read
    /// afterwards.
    #[must_use]
    pub fn take_memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.contents)
    }

    /// Returns the number of restart points.
    #[must_use]
    pub fn restart_count(&self) -> usize {
        self.restart_count as usize
    }

    /// Returns true if the block has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys_end == 0
    }

    /// Returns true if the block has a hash index for point lookups.
    #[must_use]
    pub fn has_hash_index(&self) -> bool {
        self.bucket_count != 0
    }

    /// Returns true if values are stored apart from the keys.
    #[must_use]
    pub fn has_separated_values(&self) -> bool {
        self.separated
    }

    /// Returns true if the writer marked the keys as evenly spread.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// Returns the entries: all bytes before the values or restart points.
    #[inline(always)]
    fn keys(&self) -> &[u8] {
        &self.contents[..self.keys_end as usize]
    }

    /// Returns the key at restart point `index` and the offset of its entry in the contents; `None`
    /// if the entry does not decode.
    pub(crate) fn restart_entry(&self, index: usize, layout: ValueLayout) -> Option<(&[u8], usize)> {
        let offset = self.restart_offset(index);
        Some((entry::restart_key(self, offset, layout)?, offset))
    }

    /// Returns the offset in the contents of restart point `index`.
    #[inline]
    pub(crate) fn restart_position(&self, index: usize) -> usize {
        self.restarts_start as usize + 4 * index
    }

    /// Returns the offset of the entry at restart point `index`; it may lie beyond the entries if
    /// the block is corrupt.
    #[inline(always)]
    fn restart_offset(&self, index: usize) -> usize {
        debug_assert!(index < self.restart_count as usize);
        if self.restarts_are_here {
            return self.restarts[index].into();
        }
        // Invariant: parse checked that all restart points lie inside the contents.
        let at = self.restarts_start as usize + 4 * index;
        match self.contents.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => usize::MAX,
        }
    }

    /// Returns the hash index's bucket for `user_key`. The block must have a hash index.
    #[inline]
    fn bucket(&self, user_key: &[u8]) -> u8 {
        debug_assert!(self.has_hash_index());
        let bucket = legacy_hash(user_key, HASH_INDEX_SEED) % self.bucket_count;
        let buckets_start = self.restarts_start as usize + 4 * self.restart_count as usize;
        self.contents[buckets_start + bucket as usize]
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block")
            .field("size_bytes", &self.contents.len())
            .field("restart_count", &self.restart_count)
            .field("bucket_count", &self.bucket_count)
            .field("separated", &self.separated)
            .field("uniform", &self.uniform)
            .finish()
    }
}
