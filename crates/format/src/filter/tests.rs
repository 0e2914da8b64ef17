//! Tests of filters: no key denied, false positives within bounds, unusual and hostile blocks.
//! Filters that RocksDB built are queried in tests/rocksdb_filters.rs.

use super::*;
use crate::slice_transform::PrefixExtractor;
use policy::FilterContext;
use proptest::prelude::*;

const CONTEXT: FilterContext = FilterContext { format_version: 6, level: None };
const LEGACY: FilterContext = FilterContext { format_version: 4, level: None };

thread_local! {
    /// Damage to inject when this thread builds the next filter block.
    static TROUBLE: std::cell::Cell<Option<Trouble>> = const { std::cell::Cell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A bit of a hash that was added is flipped.
    Hash,
    /// The block's bits are cleared.
    Block,
}

/// Damages the next filter block that this thread builds.
pub(crate) fn trouble_next(trouble: Trouble) {
    TROUBLE.set(Some(trouble));
}

pub(super) fn flipped(mut hashes: Vec<u64>) -> Vec<u64> {
    if TROUBLE.get() == Some(Trouble::Hash) {
        TROUBLE.set(None);
        hashes[0] ^= 1 << 20;
    }
    hashes
}

pub(super) fn damaged(mut block: Vec<u8>) -> Vec<u8> {
    if TROUBLE.get() == Some(Trouble::Block) {
        TROUBLE.set(None);
        let bits = block.len() - METADATA_BYTES;
        block[..bits].fill(0);
    }
    block
}

#[test]
fn a_filter_that_is_checked_tells_what_went_wrong_while_it_was_built() {
    let kinds = [
        (FilterPolicy::bloom(10.0), CONTEXT),
        (FilterPolicy::bloom(10.0), LEGACY),
        (FilterPolicy::ribbon(10.0, -1), CONTEXT),
    ];
    for ((policy, context), trouble) in kinds
        .into_iter()
        .flat_map(|kind| [None, Some(Trouble::Hash), Some(Trouble::Block)].map(|t| (kind, t)))
    {
        for checked in [false, true] {
            let mut builder = policy.builder(context).unwrap();
            if checked {
                builder.verify();
            }
            (0..5000).for_each(|i| builder.add_key(&key(i)));
            trouble.into_iter().for_each(trouble_next);
            let _ = builder.finish();
            assert_eq!(builder.is_damaged(), checked && trouble.is_some(), "{policy:?} {trouble:?}");
            // The flag stays set although the next block is sound.
            (0..50).for_each(|i| builder.add_key(&key(i)));
            let _ = builder.finish();
            assert_eq!(builder.is_damaged(), checked && trouble.is_some());
        }
    }
}

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

fn build(policy: FilterPolicy, context: FilterContext, keys: std::ops::Range<u32>) -> Vec<u8> {
    let mut builder = policy.builder(context).unwrap();
    keys.for_each(|i| builder.add_key(&key(i)));
    builder.finish()
}

/// Returns the false positives among a million keys that were not added, in percent.
fn false_positives(filter: &FilterReader) -> f64 {
    let n = 1_000_000;
    let passed = (0..n).filter(|i| filter.may_match_key(&key(0x4000_0000 + i))).count();
    passed as f64 * 100.0 / f64::from(n)
}

#[test]
fn no_key_is_denied_and_few_others_pass() {
    for (bits, percent) in [(5.0, 10.0), (10.0, 1.0), (15.0, 0.12), (20.0, 0.03)] {
        for (policy, context, kind) in [
            (FilterPolicy::bloom(bits), CONTEXT, "fast local Bloom"),
            (FilterPolicy::bloom(bits), LEGACY, "legacy Bloom"),
            (FilterPolicy::ribbon(bits, 0), CONTEXT, "Standard128 Ribbon"),
        ] {
            let block = build(policy, context, 0..20_000);
            let filter = FilterReader::parse(&block);
            assert!(filter.describe().starts_with(kind), "{}", filter.describe());
            assert!((0..20_000).all(|i| filter.may_match_key(&key(i))));
            let found = false_positives(&filter);
            let allowed = if kind == "legacy Bloom" { 1.5 * percent + 0.25 } else { 1.15 * percent };
            assert!(found < allowed, "{found}% with {}", filter.describe());
            let size = block.len() as f64 * 8.0 / 20_000.0;
            let expected = if kind == "Standard128 Ribbon" { 0.78 } else { 1.02 } * bits;
            assert!(size < expected && size > 0.6 * bits, "{size} bits a key with {}", filter.describe());
            assert_eq!(filter.memory_bytes(), block.len() - METADATA_BYTES);
        }
    }
}

#[test]
fn every_number_of_keys() {
    for keys in (0..300).chain([511, 512, 1000, 1023, 1024, 1025, 2000, 4096]) {
        for (policy, context) in [
            (FilterPolicy::bloom(10.0), CONTEXT),
            (FilterPolicy::bloom(10.0), LEGACY),
            (FilterPolicy::bloom(99.0), CONTEXT),
            (FilterPolicy::ribbon(7.0, 0), CONTEXT),
            (FilterPolicy::ribbon(1.0, 0), CONTEXT),
            (FilterPolicy::ribbon(100.0, 0), CONTEXT),
        ] {
            let mut builder = policy.builder(context).unwrap();
            (0..keys).for_each(|i| builder.add_key(&key(i)));
            let promised = builder.block_bytes_for(builder.len());
            let block = builder.finish();
            assert_eq!(block.len(), promised, "{policy:?} with {keys} keys");
            assert!(builder.is_empty());
            let filter = FilterReader::parse(&block);
            assert!((0..keys).all(|i| filter.may_match_key(&key(i))), "{policy:?} with {keys} keys");
            assert_eq!(keys == 0, block.is_empty());
            assert!(keys > 0 || !filter.may_match_key(b"anything"));
        }
    }
}

#[test]
fn size_and_number_of_keys_fit_each_other() {
    for policy in [FilterPolicy::bloom(10.0), FilterPolicy::bloom(3.3), FilterPolicy::ribbon(10.0, 0)] {
        for context in [CONTEXT, LEGACY] {
            let builder = policy.builder(context).unwrap();
            for bytes in (0..20_000).step_by(97) {
                let keys = builder.keys_for_block_bytes(bytes);
                assert!(
                    builder.block_bytes_for(keys) <= bytes.max(6),
                    "{policy:?}: {keys} keys in {bytes} bytes"
                );
                let more = keys + keys / 20 + 300;
                assert!(
                    builder.block_bytes_for(more) > bytes,
                    "{policy:?}: over {keys} keys in {bytes} bytes"
                );
            }
        }
    }
}

#[test]
fn parity_of_one_bit_more_or_less() {
    assert_eq!(ribbon::parity(0), 0);
    assert_eq!(ribbon::parity(u128::MAX), 0);
    for i in 0..128 {
        assert_eq!(ribbon::parity(1 << i), 1);
        assert_eq!(ribbon::parity(u128::MAX ^ 1 << i), 1);
    }
}

/// Bits that equalled RocksDB's when recorded; a change that alters them produces filters that
/// RocksDB misreads.
#[test]
fn pinned_bits() {
    let bloom = FilterPolicy::bloom;
    let ribbon = |bits| FilterPolicy::ribbon(bits, 0);
    for (policy, keys, context, hash) in [
        (bloom(10.0), 3000, CONTEXT, 0xd3bd_a795_43c2_030a),
        (bloom(10.0), 3000, LEGACY, 0xde5e_b8eb_7834_12b6),
        (ribbon(10.0), 3000, CONTEXT, 0x7da5_8779_9d06_15c9),
        (bloom(3.7), 5000, CONTEXT, 0x6fae_94ca_a7f8_2530),
        (bloom(3.7), 5000, LEGACY, 0x5ebc_0a42_4142_6413),
        (ribbon(3.7), 5000, CONTEXT, 0x91d4_3401_8501_5df1),
        (bloom(19.0), 1025, CONTEXT, 0x5d27_ce4c_7ed8_24e9),
        (bloom(19.0), 1025, LEGACY, 0xcccc_c677_7a49_246d),
        (ribbon(19.0), 1025, CONTEXT, 0x85dc_e8d5_7f90_9840),
        (bloom(16.0), 40_000, CONTEXT, 0x387c_1f31_a7d4_4217),
        (bloom(16.0), 40_000, LEGACY, 0x7429_4960_cb1c_fe57),
        (ribbon(16.0), 40_000, CONTEXT, 0x8c02_7db2_a615_45cd),
    ] {
        let mut builder = policy.builder(context).unwrap();
        (0..keys).for_each(|i| builder.add_key(&key(3 * i)));
        assert_eq!(hash64(&builder.finish()), hash, "{policy:?}, {keys} keys, {context:?}");
    }
}

#[test]
fn what_is_reserved_or_broken_excludes_nothing() {
    let always = |metadata: [u8; 5], bits: usize| {
        let mut block = vec![0; bits];
        block.extend_from_slice(&metadata);
        let filter = FilterReader::parse(&block);
        let answers: Vec<bool> = (0..500).map(|i| filter.may_match_key(&key(i))).collect();
        if answers.iter().all(|a| *a) {
            Some(true)
        } else if answers.iter().all(|a| !a) {
            Some(false)
        } else {
            None
        }
    };
    // No bits, no keys.
    assert_eq!(always([6, 1, 0, 0, 0], 0), Some(false));
    assert!(!FilterReader::parse(b"").may_match_key(b"a"));
    assert!(!FilterReader::parse(b"abcd").may_match_key(b"a"));
    // Known kinds whose bits are all clear match nothing.
    assert_eq!(always([0xff, 0, 6, 0, 0], 64), Some(false));
    assert_eq!(always([0xff, 0, 30, 0, 0], 640), Some(false));
    assert_eq!(always([6, 1, 0, 0, 0], 64), Some(false));
    assert_eq!(always([127, 3, 0, 0, 0], 192), Some(false));
    assert_eq!(always([6, 3, 0, 0, 0], 3 * 256), Some(false));
    assert_eq!(always([6, 3, 0, 0, 0], 3), Some(false));
    assert_eq!(always([0xfe, 0, 2, 0, 0], 32 * 16), Some(false));
    // Ribbon with fewer segments than blocks: some hashes have no bits to be tested.
    assert_eq!(always([0xfe, 0, 2, 0, 0], 16), None);
    for (metadata, bits) in [
        ([0, 1, 0, 0, 0], 64),    // no probes
        ([0x80, 1, 0, 0, 0], 64), // markers of the future
        ([0xfd, 1, 0, 0, 0], 64),
        ([6, 0, 0, 0, 0], 64),     // no lines
        ([6, 3, 0, 0, 0], 64),     // lines that do not divide the bits
        ([6, 3, 0, 0, 0], 3 * 65), // a line that is no power of two
        ([6, 0xff, 0xff, 0xff, 0xff], 64),
        ([0xff, 1, 6, 0, 0], 64),       // another layout
        ([0xff, 0, 6 | 32, 0, 0], 128), // larger lines
        ([0xff, 0, 0, 0, 0], 64),       // no probes
        ([0xff, 0, 31, 0, 0], 64),      // too many probes
        ([0xff, 0, 6, 1, 0], 64),       // reserved bytes
        ([0xff, 0, 6, 0, 1], 64),
        ([0xff, 0, 6, 0, 0], 63), // less than a line
        ([0xfe, 0, 1, 0, 0], 64), // too few blocks
        ([0xfe, 0, 0, 0, 0], 64),
        ([0xfe, 0, 2, 0, 0], 15), // less than a segment
    ] {
        assert_eq!(always(metadata, bits), Some(true), "{metadata:?} behind {bits} bytes");
    }
}

proptest! {
    #[test]
    fn hostile_blocks_are_asked_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), marker in 0usize..5, keys in proptest::collection::vec(any::<[u8; 8]>(), 1..20)) {
        let mut bytes = bytes;
        if let Some(m) = bytes.len().checked_sub(METADATA_BYTES) {
            let known = [0xff, 0xfe, 6, 1, bytes[m]][marker];
            bytes[m] = known;
            if known == 0xff { bytes[m + 1] = 0; bytes[m + 3] = 0; bytes[m + 4] = 0; }
        }
        let filter = FilterReader::parse(&bytes);
        for k in &keys { let _ = filter.may_match_key(k); }
        prop_assert!(filter.memory_bytes() <= bytes.len());
    }

    #[test]
    fn foreign_lines_are_read_like_our_own(hashes in proptest::collection::vec(any::<u32>(), 1..50), probe in any::<u32>(), lines in 1u32..9) {
        // Lines of 64 bytes have a path of their own; it must agree with the path for any length.
        let mut bits = vec![0u8; lines as usize * 64];
        for h in &hashes {
            let start = (h % lines) as usize * 64;
            for i in 0..6u32 {
                let bit = h.wrapping_add(h.rotate_right(17).wrapping_mul(i)) as usize % 512;
                bits[start + bit / 8] |= 1 << (bit % 8);
            }
        }
        let [b0, b1, b2, b3] = lines.to_le_bytes();
        let filter = legacy_bloom::LegacyBloom::parse(&bits, [6, b0, b1, b2, b3]).unwrap();
        for h in &hashes { prop_assert!(filter.may_match(*h)); }
        let start = (probe % lines) as usize * 64;
        let expected = (0..6u32).all(|i| {
            let bit = probe.wrapping_add(probe.rotate_right(17).wrapping_mul(i)) as usize % 512;
            bits[start + bit / 8] >> (bit % 8) & 1 != 0
        });
        prop_assert_eq!(filter.may_match(probe), expected);
    }
}

#[test]
fn repeated_prefixes_count_once() {
    for context in [CONTEXT, LEGACY] {
        let mut b = FilterPolicy::bloom(10.0).builder(context).unwrap();
        let steps: [(&str, Option<&str>, usize); 10] = [
            ("pre", None, 1),
            ("pre1", Some("pre"), 2),
            ("qre", Some("qre"), 3),
            ("rre-1", Some("rre"), 5),
            ("rre", Some("rre"), 5),
            ("rre2", Some("rre"), 6),
            ("s*", None, 7),
            ("s*", None, 7),
            ("tre42", Some("tre"), 9),
            ("tre", Some("tre"), 9),
        ];
        for (key, prefix, len) in steps {
            match prefix {
                Some(prefix) => b.add_key_and_prefix(key.as_bytes(), prefix.as_bytes()),
                None => b.add_key(key.as_bytes()),
            }
            assert_eq!(b.len(), len, "after {key}");
        }
    }
}

#[test]
fn keys_and_prefixes() {
    let bits = || FilterPolicy::bloom(20.0).builder(CONTEXT).unwrap();
    for (whole_keys, prefixes) in [(true, true), (true, false), (false, true), (false, false)] {
        let extractor = prefixes.then_some(PrefixExtractor::Fixed(4));
        let mut builder = FilterBuilder::new(bits(), extractor, whole_keys);
        (0..1000u32).for_each(|i| builder.add(format!("{i:04}-{i:04}").as_bytes()));
        builder.add(b"sml");
        let expected = 1000 * (usize::from(whole_keys) + usize::from(prefixes)) + usize::from(whole_keys);
        assert_eq!(builder.entries(), expected);
        let Some(block) = builder.finish() else {
            assert_eq!(expected, 0);
            continue;
        };
        let filter = FilterReader::parse(&block);
        let passing = |keys: &dyn Fn(u32) -> String| {
            (0..1000).filter(|i| filter.may_match_key(keys(*i).as_bytes())).count()
        };
        assert_eq!(passing(&|i| format!("{i:04}-{i:04}")) == 1000, whole_keys);
        assert_eq!(passing(&|i| format!("{i:04}")) == 1000, prefixes);
        assert_eq!(filter.may_match_key(b"sml"), whole_keys);
    }
}

#[test]
fn partitions() {
    for (whole_keys, prefixes) in [(true, false), (true, true), (false, true)] {
        let extractor = prefixes.then_some(PrefixExtractor::Fixed(6));
        let bits = FilterPolicy::bloom(10.0).builder(CONTEXT).unwrap();
        let filter = FilterBuilder::new(bits, extractor.clone(), whole_keys);
        let mut builder = PartitionedFilterBuilder::new(filter, 4096, 0);
        let keys: Vec<_> = (0..20_000u32).map(|i| format!("{:06}-{i:08}", i / 3).into_bytes()).collect();
        keys.iter().for_each(|k| builder.add(k));
        let entries = builder.entries();
        let (partitions, _) = builder.finish();
        let least = if whole_keys { 20_000 } else { 6_667 };
        assert!(entries >= least, "{entries}");
        assert!(partitions.len() > 1 && partitions.len() < entries / 1000, "{} partitions", partitions.len());
        assert!(partitions.iter().all(|p| p.block.len() <= 4096 + 64));
        let readers: Vec<_> = partitions.iter().map(|p| FilterReader::parse(&p.block)).collect();
        for (i, k) in keys.iter().enumerate() {
            // The first partition whose key is not before the key looked for.
            let at = partitions.iter().position(|p| crate::key::user_key(&p.last_key) >= &k[..]).unwrap();
            assert!(!whole_keys || readers[at].may_match_key(k));
            let Some(extractor) = &extractor else { continue };
            let prefix = extractor.transform(k);
            assert!(readers[at].may_match_key(prefix));
            // A seek to a key before this one, behind the last of another prefix, may land in the
            // partition before.
            if i > 0 && extractor.transform(&keys[i - 1]) != prefix {
                let between = prefix;
                let at =
                    partitions.iter().position(|p| crate::key::user_key(&p.last_key) >= between).unwrap();
                assert!(readers[at].may_match_key(prefix));
            }
        }
    }
}

#[test]
fn tiny_partitions() {
    let bits = FilterPolicy::bloom(10.0).builder(CONTEXT).unwrap();
    let mut builder = PartitionedFilterBuilder::new(FilterBuilder::new(bits, None, true), 1, 8);
    (0..500u32).for_each(|i| builder.add(&i.to_be_bytes()));
    let (partitions, _) = builder.finish();
    assert!(partitions.len() >= 9);
    assert!(partitions.iter().all(|p| p.last_key.len() == 4 + 8 + 8 && p.block.len() == 64 + METADATA_BYTES));
    let bits = FilterPolicy::bloom(10.0).builder(CONTEXT).unwrap();
    assert!(
        PartitionedFilterBuilder::new(FilterBuilder::new(bits, None, true), 4096, 0).finish().0.is_empty()
    );
}
