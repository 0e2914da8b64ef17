//! Block builder: prefix-compressed entries, restart points, hash index. The byte tables are in the
//! parent module.
//!
//! In: entries in ascending order. Out: the block's contents, ready for compression.
//! Invariant: the caller keeps the order of keys, which is not checked; [`super::Block::parse`]
//! reads back any block that is built.

use super::search::common_prefix;
use super::{
    BUCKET_COLLISION, BUCKET_EMPTY, HASH_INDEX_BIT, HASH_INDEX_SEED, MAX_HASH_INDEX_BLOCK_BYTES,
    MAX_HASH_INDEX_RESTART, MAX_RESTARTS, SEPARATED_BIT, UNIFORM_BIT,
};
use crate::coding::{put_fixed16, put_fixed32, put_varint32};
use crate::hash::legacy_hash;
use crate::key;

/// Layout of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockShape {
    /// Number of entries per restart point, at which a key is stored whole. At least 1.
    pub restart_interval: usize,
    /// True if keys between restart points omit the bytes shared with the previous key.
    pub share_prefixes: bool,
    /// Keys per bucket of a hash index over user keys, or no hash index. Keys must then be internal
    /// keys.
    pub hash_index_ratio: Option<f64>,
    /// True if all values are stored behind all keys (format_version 7).
    pub separate_values: bool,
}

impl BlockShape {
    /// Returns a plain block with a restart point every `restart_interval` entries.
    #[must_use]
    pub fn plain(restart_interval: usize) -> Self {
        BlockShape {
            restart_interval: restart_interval.max(1),
            share_prefixes: true,
            hash_index_ratio: None,
            separate_values: false,
        }
    }
}

/// A block being built.
#[derive(Debug)]
pub struct BlockBuilder {
    shape: BlockShape,
    keys: Vec<u8>,
    /// Spare buffer for the keys of the next block.
    spare: Vec<u8>,
    values: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    since_restart: usize,
    entry_count: usize,
    /// Hash and restart number of each user key; `None` once there are too many restart points.
    hashes: Option<Vec<(u32, u8)>>,
    uniform: bool,
}

impl BlockBuilder {
    /// Returns a builder of an empty block.
    #[must_use]
    pub fn new(shape: BlockShape) -> Self {
        assert!(shape.restart_interval >= 1, "a restart interval holds at least one entry");
        BlockBuilder {
            shape,
            keys: Vec::new(),
            spare: Vec::new(),
            values: Vec::new(),
            restarts: vec![0],
            last_key: Vec::new(),
            since_restart: 0,
            entry_count: 0,
            hashes: shape.hash_index_ratio.map(|_| Vec::new()),
            uniform: false,
        }
    }

    /// Adds an entry.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.add_entry(key, value, None, self.shape.share_prefixes);
    }

    /// Adds an entry whose value has no length in the block: `whole` is stored if the key shares
    /// nothing with the previous one, else `delta`.
    pub fn add_undelimited(&mut self, key: &[u8], whole: &[u8], delta: &[u8]) {
        self.add_entry(key, whole, Some(delta), self.shape.share_prefixes);
    }

    /// Adds an entry whose value has no length in the block and whose key is stored whole.
    pub fn add_undelimited_alone(&mut self, key: &[u8], whole: &[u8]) {
        self.add_entry(key, whole, Some(&[]), false);
    }

    fn add_entry(&mut self, key: &[u8], value: &[u8], delta: Option<&[u8]>, share_prefix: bool) {
        let mut shared = 0;
        if self.since_restart == self.shape.restart_interval {
            self.restarts.push(size32(self.keys.len()));
            self.since_restart = 0;
        } else if share_prefix && self.entry_count > 0 {
            shared = common_prefix(&self.last_key, key);
        }
        let own = &key[shared..];
        put_varint32(&mut self.keys, size32(shared));
        put_varint32(&mut self.keys, size32(own.len()));
        if delta.is_none() {
            put_varint32(&mut self.keys, size32(value.len()));
        }
        if self.shape.separate_values && self.since_restart == 0 {
            put_varint32(&mut self.keys, size32(self.values.len()));
        }
        self.keys.extend_from_slice(own);
        let value = match delta {
            Some(delta) if shared != 0 => delta,
            _ => value,
        };
        let values = if self.shape.separate_values { &mut self.values } else { &mut self.keys };
        values.extend_from_slice(value);
        if let Some(hashes) = &mut self.hashes {
            let restart = self.restarts.len() - 1;
            if restart > MAX_HASH_INDEX_RESTART {
                self.hashes = None;
            } else {
                hashes.push((legacy_hash(key::user_key(key), HASH_INDEX_SEED), restart as u8));
            }
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(own);
        self.since_restart += 1;
        self.entry_count += 1;
    }

    /// Returns true if no entry has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Returns the number of entries added.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entry_count
    }

    /// Returns the last key added.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Returns the size in bytes of the block that [`BlockBuilder::finish`] would return now; an
    /// estimate if there is a hash index.
    #[must_use]
    pub fn size_estimate(&self) -> usize {
        let hash_index = self.hashes.as_ref().map_or(0, |hashes| self.bucket_count(hashes.len()) + 2);
        let values_offset = if self.shape.separate_values { 4 } else { 0 };
        self.keys.len() + self.values.len() + 4 * self.restarts.len() + hash_index + values_offset + 4
    }

    /// Returns an estimate of [`BlockBuilder::size_estimate`] after one more entry.
    #[must_use]
    pub fn size_estimate_with(&self, key: &[u8], value: &[u8]) -> usize {
        let restart = if self.since_restart == self.shape.restart_interval { 4 } else { 0 };
        let lengths =
            4 + crate::coding::varint_len(key.len() as u64) + crate::coding::varint_len(value.len() as u64);
        self.size_estimate() + key.len() + value.len() + restart + lengths
    }

    /// Returns the memory of a finished block to the builder, for a later one.
    pub fn recycle(&mut self, mut contents: Vec<u8>) {
        contents.clear();
        if self.keys.capacity() == 0 {
            self.keys = contents;
        } else {
            self.spare = contents;
        }
    }

    fn bucket_count(&self, key_count: usize) -> usize {
        let ratio = self.shape.hash_index_ratio.filter(|&r| r > 0.0).unwrap_or(0.75);
        // Made odd because the hash spreads badly over a power of two.
        (key_count as f64 / ratio) as usize | 1
    }

    /// Marks the current block as one with evenly spread keys, for readers that interpolate.
    pub fn mark_uniform(&mut self) {
        self.uniform = true;
    }

    /// Returns the contents of the block and resets the builder.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let estimate = self.size_estimate();
        let mut out = std::mem::replace(&mut self.keys, std::mem::take(&mut self.spare));
        out.reserve(estimate.saturating_sub(out.len()));
        let values_start = size32(out.len());
        out.extend_from_slice(&self.values);
        for &restart in &self.restarts {
            put_fixed32(&mut out, restart);
        }
        let restart_count = size32(self.restarts.len());
        assert!(restart_count <= MAX_RESTARTS, "a block has fewer than 2^28 restart points");
        let mut packed = restart_count;
        if let Some(hashes) = self.hashes.as_ref().filter(|_| estimate <= MAX_HASH_INDEX_BLOCK_BYTES) {
            let count = self.bucket_count(hashes.len());
            let mut buckets = vec![BUCKET_EMPTY; count];
            for &(hash, restart) in hashes {
                let bucket = &mut buckets[hash as usize % count];
                *bucket = match *bucket {
                    BUCKET_EMPTY => restart,
                    same if same == restart => restart,
                    _ => BUCKET_COLLISION,
                };
            }
            out.extend_from_slice(&buckets);
            put_fixed16(&mut out, count as u16);
            packed |= HASH_INDEX_BIT;
        }
        if self.shape.separate_values {
            put_fixed32(&mut out, values_start);
            packed |= SEPARATED_BIT;
        }
        if std::mem::take(&mut self.uniform) {
            packed |= UNIFORM_BIT;
        }
        put_fixed32(&mut out, packed);
        self.values.clear();
        self.restarts.truncate(1);
        self.last_key.clear();
        self.since_restart = 0;
        self.entry_count = 0;
        self.hashes = self.shape.hash_index_ratio.map(|_| Vec::new());
        out
    }
}

fn size32(n: usize) -> u32 {
    u32::try_from(n).expect("keys, values and blocks are smaller than 4 GiB")
}
