//! Filters: approximate sets of the keys in a table or partition, which never deny a key that was
//! added.
//!
//! A filter block ends in five bytes of metadata that describe its construction; a shorter block is
//! a filter without keys.
//!
//! | first byte of metadata | the other four | filter |
//! |---|---|---|
//! | 1..127: number of probes | number of lines, fixed32 | legacy Bloom, local to a line (`legacy_bloom`) |
//! | 0xff | 0, block and probes, 0, 0 | fast local Bloom (`fast_bloom`) |
//! | 0xfe | seed, number of blocks in 24 bits | Standard128 Ribbon (`ribbon`) |
//! | others | | unknown to this release |
//!
//! Byte tables in docs/formats/filter.md. Specified by RocksDB's
//! table/block_based/filter_policy.cc.
//!
//! In: the contents of a filter block, without its trailer. Out: [`FilterReader`]. Parsing never
//! fails: like in RocksDB, a filter of an unknown kind or with invalid parameters matches every
//! key, and an empty one matches none.
//! Invariant: a key that was added always matches, unless the bits were damaged without the
//! checksum noticing. Built by [`builder`]; used by the table reader, one probe per table or
//! partition.

mod bits_per_key;
pub mod builder;
mod fast_bloom;
mod hash64;
mod legacy_bloom;
pub mod partition;
pub mod policy;
mod ribbon;
mod ribbon_solver;

pub use bits_per_key::BitsPerKey;
pub use builder::{FilterBitsBuilder, FilterBuilder};
pub use hash64::hash64;
pub use partition::PartitionedFilterBuilder;
pub use policy::{FilterContext, FilterPolicy};

use crate::hash::legacy_hash;
use fast_bloom::FastBloom;
use legacy_bloom::LegacyBloom;
use ribbon::Ribbon;

/// Length of the metadata at the end of a filter block, in bytes.
pub(crate) const METADATA_BYTES: usize = 5;
/// First metadata byte of the fast local Bloom filters.
pub(crate) const NEW_BLOOM_MARKER: u8 = 0xff;
/// First metadata byte of Ribbon filters.
pub(crate) const RIBBON_MARKER: u8 = 0xfe;

/// Seed of the 32-bit hash of legacy filters.
const LEGACY_SEED: u32 = 0xbc9f_1d34;

/// Name of the policy in a metaindex, behind [`crate::metaindex::FULL_FILTER_PREFIX`] or its
/// siblings. All built-in filters share it, because each reader reads them all; a filter with
/// another name is a user's own, and is not read.
pub const COMPATIBILITY_NAME: &str = "rocksdb.BuiltinBloomFilter";

/// Hash of a key or prefix, computed once and tested against many filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterHash(u64);

impl FilterHash {
    /// Returns the hash of `key`, a user key without timestamp, or a prefix of one.
    #[inline]
    #[must_use]
    pub fn new(key: &[u8]) -> FilterHash {
        FilterHash(hash64(key))
    }

    /// Returns the 64 bits of the hash.
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Returns the 32-bit hash that legacy filters use.
#[inline]
pub(crate) fn legacy_filter_hash(key: &[u8]) -> u32 {
    legacy_hash(key, LEGACY_SEED)
}

/// A filter ready for queries. It owns a copy of the bits, aligned so that a Bloom probe touches
/// one cache line.
#[derive(Debug)]
pub struct FilterReader(Kind);

#[derive(Debug)]
enum Kind {
    AlwaysTrue,
    AlwaysFalse,
    FastBloom(FastBloom),
    LegacyBloom(LegacyBloom),
    Ribbon(Ribbon),
}

impl FilterReader {
    /// Parses the contents of a filter block.
    #[must_use]
    pub fn parse(contents: &[u8]) -> FilterReader {
        let (bits, metadata) = match contents.split_last_chunk::<METADATA_BYTES>() {
            // Compat: no bits means no keys, for any metadata.
            Some((bits, metadata)) if !bits.is_empty() => (bits, *metadata),
            _ => return FilterReader(Kind::AlwaysFalse),
        };
        let kind = match metadata[0] {
            NEW_BLOOM_MARKER => FastBloom::parse(bits, metadata).map(Kind::FastBloom),
            RIBBON_MARKER => Ribbon::parse(bits, metadata).map(Kind::Ribbon),
            1..=127 => LegacyBloom::parse(bits, metadata).map(Kind::LegacyBloom),
            _ => None,
        };
        FilterReader(kind.unwrap_or(Kind::AlwaysTrue))
    }

    /// Returns true if `key` may have been added, false if it certainly was not; `hash` must be the
    /// key's hash.
    ///
    /// `key` is needed too because legacy filters, in tables of format_version 4 and older, have
    /// another hash, which is computed from `key` when such a filter is queried.
    #[inline]
    #[must_use]
    pub fn may_match(&self, key: &[u8], hash: FilterHash) -> bool {
        match &self.0 {
            Kind::FastBloom(bloom) => bloom.may_match(hash.0),
            Kind::Ribbon(ribbon) => ribbon.may_match(hash.0),
            Kind::LegacyBloom(bloom) => bloom.may_match(legacy_filter_hash(key)),
            Kind::AlwaysTrue => true,
            Kind::AlwaysFalse => false,
        }
    }

    /// Returns true if `key` may have been added; computes its hash.
    #[must_use]
    pub fn may_match_key(&self, key: &[u8]) -> bool {
        self.may_match(key, FilterHash::new(key))
    }

    /// Returns true if a key with this hash may have been added; the hash is that of the filter's
    /// kind.
    pub(crate) fn may_match_hash(&self, hash: u64) -> bool {
        match &self.0 {
            Kind::FastBloom(bloom) => bloom.may_match(hash),
            Kind::Ribbon(ribbon) => ribbon.may_match(hash),
            // Truncated because legacy hashes have 32 bits and are stored in 64.
            Kind::LegacyBloom(bloom) => bloom.may_match(hash as u32),
            Kind::AlwaysTrue => true,
            Kind::AlwaysFalse => false,
        }
    }

    /// Returns the heap memory that the filter occupies, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Kind::FastBloom(bloom) => bloom.memory_bytes(),
            Kind::LegacyBloom(bloom) => bloom.memory_bytes(),
            Kind::Ribbon(ribbon) => ribbon.memory_bytes(),
            Kind::AlwaysTrue | Kind::AlwaysFalse => 0,
        }
    }

    /// Returns a description of the filter's kind, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::FastBloom(bloom) => format!("fast local Bloom, {} probes", bloom.probes()),
            Kind::LegacyBloom(bloom) => format!("legacy Bloom, {} probes", bloom.probes()),
            Kind::Ribbon(ribbon) => format!("Standard128 Ribbon, up to {} result bits", ribbon.columns()),
            Kind::AlwaysTrue => "none that excludes anything".to_owned(),
            Kind::AlwaysFalse => "empty".to_owned(),
        }
    }
}

/// The bits of a cache line; bit i of the format is bit i % 64 of word i / 64.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

impl Line {
    pub(crate) const BYTES: usize = 64;

    /// Returns the whole lines in `bits`.
    pub(crate) fn all(bits: &[u8]) -> Box<[Line]> {
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        bits.chunks_exact(Line::BYTES)
            .map(|line| Line(std::array::from_fn(|i| word(&line[8 * i..]))))
            .collect()
    }

    /// Returns bit `at` % 512 of the line.
    #[inline(always)]
    pub(crate) fn bit(&self, at: u32) -> bool {
        let at = at as usize % 512;
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
}

/// Returns `hash` scaled to 0..`range`.
#[inline(always)]
pub(crate) fn fast_range32(hash: u32, range: u32) -> u32 {
    ((u64::from(hash) * u64::from(range)) >> 32) as u32
}

#[cfg(test)]
pub(crate) mod tests;
