//! Filters: which keys a table, or a part of it, does not hold.
//!
//! A filter block ends in five bytes that say how it is built; blocks too short for them are of
//! filters without keys.
//!
//! | first of the five | the rest of them | filter |
//! |---|---|---|
//! | 1..127: number of probes | number of lines, fixed32 | legacy Bloom, local to a line (`legacy_bloom`) |
//! | 0xff | 0, block and probes, 0, 0 | fast local Bloom (`fast_bloom`) |
//! | 0xfe | seed, number of blocks in 24 bits | Standard128 Ribbon (`ribbon`) |
//! | others | | none that this release knows |
//!
//! Byte tables in docs/formats/filter.md. Specified by RocksDB's
//! table/block_based/filter_policy.cc.
//!
//! In: the contents of a filter block, without its trailer. Out: [`FilterReader`]. Parsing never
//! fails: as in RocksDB, a filter of a kind not known, or with parameters that cannot be, answers
//! that any key may be there, and an empty one that none is.
//! Invariant: a key that was added is never denied, whatever the bits, unless the bits were damaged
//! behind the checksum's back. Built by [`builder`]; used by the table reader, one probe a table or
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

/// Length of the description at the end of a filter block, in bytes.
pub(crate) const METADATA_BYTES: usize = 5;
/// First byte of the description of newer Bloom filters.
pub(crate) const NEW_BLOOM_MARKER: u8 = 0xff;
/// First byte of the description of Ribbon filters.
pub(crate) const RIBBON_MARKER: u8 = 0xfe;

/// Seed of the 32-bit hash of legacy filters.
const LEGACY_SEED: u32 = 0xbc9f_1d34;

/// The policy's name in a metaindex, behind [`crate::metaindex::FULL_FILTER_PREFIX`] or its
/// siblings. All built-in filters go by it, as each can read the others'; a filter under another
/// name is a user's own, and is not read.
pub const COMPATIBILITY_NAME: &str = "rocksdb.BuiltinBloomFilter";

/// The hash of a key or prefix, computed once and asked of many filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterHash(u64);

impl FilterHash {
    /// The hash of `key`, a user key without timestamp, or a prefix of one.
    #[inline]
    #[must_use]
    pub fn new(key: &[u8]) -> FilterHash {
        FilterHash(hash64(key))
    }

    /// Its 64 bits.
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The 32-bit hash that legacy filters go by.
#[inline]
pub(crate) fn legacy_filter_hash(key: &[u8]) -> u32 {
    legacy_hash(key, LEGACY_SEED)
}

/// A filter ready to be asked. It owns a copy of the bits, aligned so that a Bloom probe touches
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
    /// The filter in a block's contents.
    #[must_use]
    pub fn parse(contents: &[u8]) -> FilterReader {
        let (bits, metadata) = match contents.split_last_chunk::<METADATA_BYTES>() {
            // Compat: no bits means no keys, whatever the description says.
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

    /// Whether `key` may have been added; `hash` must be its hash. False is certain.
    ///
    /// Why both: legacy filters, in tables of format_version 4 and older, have a hash of their own,
    /// made from `key` when such a filter is asked.
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

    /// Whether `key` may have been added; hashes it.
    #[must_use]
    pub fn may_match_key(&self, key: &[u8]) -> bool {
        self.may_match(key, FilterHash::new(key))
    }

    /// Whether a key with this hash may have been added; the hash is that of the filter's kind.
    pub(crate) fn may_match_hash(&self, hash: u64) -> bool {
        match &self.0 {
            Kind::FastBloom(bloom) => bloom.may_match(hash),
            Kind::Ribbon(ribbon) => ribbon.may_match(hash),
            // Why cut: legacy hashes have 32 bits, and are kept in as many more.
            Kind::LegacyBloom(bloom) => bloom.may_match(hash as u32),
            Kind::AlwaysTrue => true,
            Kind::AlwaysFalse => false,
        }
    }

    /// What it occupies on the heap, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Kind::FastBloom(bloom) => bloom.memory_bytes(),
            Kind::LegacyBloom(bloom) => bloom.memory_bytes(),
            Kind::Ribbon(ribbon) => ribbon.memory_bytes(),
            Kind::AlwaysTrue | Kind::AlwaysFalse => 0,
        }
    }

    /// What kind it is, for people.
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

/// The bits of a cache line, in an order in which bit i of the format is bit i % 64 of word i / 64.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

impl Line {
    pub(crate) const BYTES: usize = 64;

    /// The whole lines in `bits`.
    pub(crate) fn all(bits: &[u8]) -> Box<[Line]> {
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        bits.chunks_exact(Line::BYTES)
            .map(|line| Line(std::array::from_fn(|i| word(&line[8 * i..]))))
            .collect()
    }

    /// Bit `at` % 512 of the line.
    #[inline(always)]
    pub(crate) fn bit(&self, at: u32) -> bool {
        let at = at as usize % 512;
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
}

/// `hash` scaled to 0..`range`.
#[inline(always)]
pub(crate) fn fast_range32(hash: u32, range: u32) -> u32 {
    ((u64::from(hash) * u64::from(range)) >> 32) as u32
}

#[cfg(test)]
pub(crate) mod tests;
