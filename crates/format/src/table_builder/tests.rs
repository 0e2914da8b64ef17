//! Tests of tables whose bytes change while they are built. Sound tables are tested in
//! tests/built_tables.rs.

use super::*;
use crate::filter::FilterPolicy;
use crate::filter::tests::{Trouble, trouble_next};
use std::cell::Cell;

thread_local! {
    /// Number of blocks that this thread compresses before the one that loses a bit.
    static FLIP_AFTER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Flips a bit of a compressed block, if a test requested it.
pub(super) fn flip_if_asked(compressed: &mut [u8]) {
    FLIP_AFTER.set(match FLIP_AFTER.get() {
        Some(0) => {
            let middle = compressed.len() / 2;
            compressed[middle] ^= 1;
            None
        }
        Some(more) => Some(more - 1),
        None => None,
    });
}

fn options(compression: CompressionType, verifies: bool) -> TableOptions {
    TableOptions {
        compression,
        verify_compression: verifies,
        verify_filters: verifies,
        block_bytes: 1000,
        filter_policy: Some(FilterPolicy::bloom(10.0)),
        ..TableOptions::default()
    }
}

fn built(options: TableOptions, elsewhere: bool) -> Result<FinishedTable, TableBuildError> {
    let mut builder = TableBuilder::new(options).unwrap();
    if elsewhere {
        builder.defer_compression();
    }
    for number in 0..600_u32 {
        let user_key = format!("key{number:06}");
        let key =
            InternalKey { user_key: user_key.as_bytes(), seq: SeqNo(1), kind: ValueType::Value }.to_vec();
        builder.add(&key, format!("value {} {}", number / 7, "again and ".repeat(5)).as_bytes())?;
    }
    if elsewhere {
        builder.close_data();
        let closed: Vec<_> = builder.take_closed().collect();
        closed.into_iter().for_each(|block| builder.add_compressed(block.compress()));
    }
    builder.finish()
}

fn all() -> impl Iterator<Item = CompressionType> {
    let is_written = |compression: &CompressionType| {
        !matches!(compression, CompressionType::None | CompressionType::ZstdNotFinal)
    };
    CompressionType::ALL.into_iter().filter(is_written)
}

#[test]
fn a_block_that_was_compressed_wrongly_is_found_where_that_is_asked_for() {
    for (compression, elsewhere) in all().flat_map(|compression| [(compression, false), (compression, true)])
    {
        let sound = built(options(compression, true), elsewhere).unwrap();
        let blocks = u32::try_from(sound.compression.compressed.blocks).unwrap();
        assert!(blocks > 10, "{compression:?}: {blocks}");
        for after in [0, blocks / 2] {
            FLIP_AFTER.set(Some(after));
            let found = built(options(compression, true), elsewhere).unwrap_err();
            assert!(matches!(found, TableBuildError::Damaged(_)) && FLIP_AFTER.get().is_none());
            assert!(found.to_string().contains(compression.name()), "{found}");
            FLIP_AFTER.set(Some(after));
            built(options(compression, false), elsewhere).unwrap();
        }
        let plain = built(options(compression, false), elsewhere).unwrap();
        assert_eq!(plain.file_bytes, sound.file_bytes, "looking changes nothing");
    }
}

#[test]
fn a_filter_that_was_built_wrongly_is_found_where_that_is_asked_for() {
    for trouble in [Trouble::Hash, Trouble::Block] {
        for partition_filters in [false, true] {
            let options = |verifies| TableOptions {
                partition_filters,
                index_type: if partition_filters {
                    IndexType::TwoLevelIndexSearch
                } else {
                    IndexType::BinarySearch
                },
                ..options(CompressionType::None, verifies)
            };
            built(options(true), false).unwrap();
            trouble_next(trouble);
            let found = built(options(true), false).unwrap_err();
            assert!(matches!(found, TableBuildError::Damaged(_)) && found.to_string().contains("filter"));
            trouble_next(trouble);
            built(options(false), false).unwrap();
        }
    }
}

/// Padding does not depend on deferred compression.
#[test]
fn super_blocks_are_the_same_when_blocks_are_compressed_elsewhere() {
    let options = || TableOptions {
        super_block_bytes: 2048,
        super_block_overhead_ratio: 4,
        ..options(CompressionType::Lz4, true)
    };
    let here = built(options(), false).unwrap();
    let plain = built(TableOptions { super_block_bytes: 0, ..options() }, false).unwrap();
    assert!(here.file_bytes > plain.file_bytes, "there is padding");
    assert_eq!(here.file_bytes, built(options(), true).unwrap().file_bytes);
}
