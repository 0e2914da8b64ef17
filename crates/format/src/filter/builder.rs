//! Filter builders: collect the hashes of a table's keys and prefixes, then construct the bits.
//!
//! In: user keys without timestamps, in the table's order. Out: the contents of a filter block.
//! Invariant: of adjacent equal hashes one is kept, because prefixes repeat; the filter's size
//! follows from the number of hashes kept. [`FilterBitsBuilder`] constructs one block of bits after
//! the other; [`FilterBuilder`] decides if a key, its prefix or both are added; partitions are cut
//! by [`super::PartitionedFilterBuilder`].
//!
//! Compat: RocksDB by default rounds a filter's size up to its allocator's size class
//! (optimize_filters_for_memory); here it is the policy's size. Readers accept any size.

use super::bits_per_key::BitsPerKey;
use super::{
    FilterReader, METADATA_BYTES, fast_bloom, hash64, legacy_bloom, legacy_filter_hash, ribbon_solver,
};
use crate::slice_transform::PrefixExtractor;

/// Layout of the bits that are constructed from the hashes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Construction {
    FastBloom(BitsPerKey),
    LegacyBloom(BitsPerKey),
    Ribbon(BitsPerKey),
}

/// Collects hashes and constructs filter blocks. Created by [`super::FilterPolicy::builder`].
#[derive(Debug, Clone)]
pub struct FilterBitsBuilder {
    construction: Construction,
    hashes: Vec<u64>,
    last_prefix: Option<u64>,
    check: Option<Check>,
}

/// Verification state: detects a block that lacks a hash that was added.
#[derive(Debug, Clone, Copy, Default)]
struct Check {
    /// Order-independent sum of all hashes added since the last block.
    sum: u64,
    damaged: bool,
}

impl FilterBitsBuilder {
    pub(super) fn new(construction: Construction) -> FilterBitsBuilder {
        FilterBitsBuilder { construction, hashes: Vec::new(), last_prefix: None, check: None }
    }

    /// Verifies all blocks built from now on; see [`is_damaged`](Self::is_damaged).
    pub fn verify(&mut self) {
        self.check.get_or_insert_default();
    }

    /// Returns true if a block was built from other hashes than those added, or does not match one
    /// of them. Always false unless [`verify`](Self::verify) was called.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.check.is_some_and(|check| check.damaged)
    }

    #[inline]
    fn push(&mut self, hash: u64) {
        if let Some(check) = &mut self.check {
            check.sum = check.sum.wrapping_add(hash);
        }
        self.hashes.push(hash);
    }

    /// Adds a key, or a prefix alone.
    pub fn add_key(&mut self, key: &[u8]) {
        let hash = self.hash(key);
        if self.hashes.last() != Some(&hash) {
            self.push(hash);
        }
    }

    /// Adds a key and its prefix.
    pub fn add_key_and_prefix(&mut self, key: &[u8], prefix: &[u8]) {
        let (key, prefix) = (self.hash(key), self.hash(prefix));
        let last_key = self.hashes.last().copied();
        let last_prefix = self.last_prefix.replace(prefix);
        // The prefix is added first, so that the last hash is always that of the last key.
        if last_prefix != Some(prefix) && prefix != key && last_key != Some(prefix) {
            self.push(prefix);
        }
        // The last prefix is compared too, because in reverse order a key that is its own prefix
        // comes last of its group.
        if last_key != Some(key) && last_prefix != Some(key) {
            self.push(key);
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        match self.construction {
            Construction::LegacyBloom(_) => u64::from(legacy_filter_hash(key)),
            Construction::FastBloom(_) | Construction::Ribbon(_) => hash64(key),
        }
    }

    /// Returns the number of hashes kept: different keys and prefixes, except for equal ones that
    /// were not adjacent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns true if nothing was added since the last block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the length in bytes of a block with `keys` keys.
    #[must_use]
    pub fn block_bytes_for(&self, keys: usize) -> usize {
        if keys == 0 {
            return 0;
        }
        let first = self.hashes.first().copied().unwrap_or(0);
        METADATA_BYTES
            + match self.construction {
                Construction::FastBloom(bits) => fast_bloom::bytes_for(keys, bits.milli()),
                Construction::LegacyBloom(bits) => legacy_bloom::bytes_for(keys, bits.whole()),
                Construction::Ribbon(bits) => {
                    ribbon_solver::bytes_for(keys, first, bits.one_in_false_positives(), bits.milli())
                }
            }
    }

    /// Returns the approximate number of keys that fit into a block of `bytes` bytes.
    #[must_use]
    pub fn keys_for_block_bytes(&self, bytes: usize) -> usize {
        match self.construction {
            Construction::FastBloom(bits) => fast_bloom::keys_for(bytes, bits.milli()),
            Construction::LegacyBloom(bits) => legacy_bloom::keys_for(bytes, bits.whole()),
            Construction::Ribbon(bits) => {
                ribbon_solver::keys_for(bytes, bits.one_in_false_positives(), bits.milli())
            }
        }
    }

    /// Returns the block with all hashes added since the last one; empty if there were no hashes.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let hashes = std::mem::take(&mut self.hashes);
        self.last_prefix = None;
        if hashes.is_empty() {
            return Vec::new();
        }
        #[cfg(test)]
        let hashes = super::tests::flipped(hashes);
        let block = match self.construction {
            Construction::FastBloom(bits) => fast_bloom::build(&hashes, bits.milli()),
            Construction::LegacyBloom(bits) => legacy_bloom::build(&hashes, bits.whole()),
            Construction::Ribbon(bits) => {
                ribbon_solver::build(&hashes, bits.one_in_false_positives(), bits.milli())
                    .unwrap_or_else(|| fast_bloom::build(&hashes, bits.milli()))
            }
        };
        #[cfg(test)]
        let block = super::tests::damaged(block);
        if let Some(check) = &mut self.check {
            let sum = hashes.iter().fold(0_u64, |sum, hash| sum.wrapping_add(*hash));
            let reader = FilterReader::parse(&block);
            let sound = sum == check.sum && hashes.iter().all(|hash| reader.may_match_hash(*hash));
            *check = Check { sum: 0, damaged: check.damaged || !sound };
        }
        block
    }
}

/// Builds the filter of a whole table.
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    pub(super) bits: FilterBitsBuilder,
    pub(super) prefixes: Option<PrefixExtractor>,
    pub(super) whole_keys: bool,
}

impl FilterBuilder {
    /// Returns a builder that adds prefixes if there is an extractor, and whole keys if
    /// `whole_keys`.
    #[must_use]
    pub fn new(
        bits: FilterBitsBuilder,
        prefixes: Option<PrefixExtractor>,
        whole_keys: bool,
    ) -> FilterBuilder {
        FilterBuilder { bits, prefixes, whole_keys }
    }

    /// Adds a user key without its timestamp.
    pub fn add(&mut self, user_key: &[u8]) {
        match self.prefixes.as_ref().and_then(|e| e.prefix(user_key)) {
            Some(prefix) if self.whole_keys => self.bits.add_key_and_prefix(user_key, prefix),
            Some(prefix) => self.bits.add_key(prefix),
            None if self.whole_keys => self.bits.add_key(user_key),
            None => {}
        }
    }

    /// Returns the number of entries added, for the table property `rocksdb.num.filter_entries`.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.bits.len()
    }

    /// Returns [`FilterBitsBuilder::is_damaged`].
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.bits.is_damaged()
    }

    /// Returns the contents of the filter block; `None` if nothing was added, and no block is
    /// written.
    #[must_use]
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.bits.is_empty() { None } else { Some(self.bits.finish()) }
    }
}
