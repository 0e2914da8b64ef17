//! Tables that this crate builds with a matrix of options, read back by this crate and by RocksDB's
//! own sst_dump, which verifies checksums, walks the index and prints every entry.

mod support;

use karst_format::checksum::ChecksumType;
use karst_format::comparator::Comparator;
use karst_format::compression::CompressionType;
use karst_format::filter::FilterPolicy;
use karst_format::handle::BlockHandle;
use karst_format::index::IndexType;
use karst_format::key::{self, InternalKey, SeqNo, ValueType};
use karst_format::slice_transform::PrefixExtractor;
use karst_format::table_builder::{
    IndexShortening, TableBuildError, TableBuilder, TableIdentity, TableOptions,
};
use support::{Entries, Table, scan_lines, sst_dump_scan, tool};

/// Returns keys of several lengths with shared prefixes, some with many versions, and every kind of
/// point entry.
fn entries(count: u32) -> Entries {
    let mut entries = Vec::new();
    let mut random = 88_172_645_463_325_252u64;
    for i in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let user = match i % 4 {
            0 => format!("key{i:08}"),
            1 => format!("key{i:08}/with/a/longer/path"),
            _ => format!("key{i:08}{:03}", random % 1000),
        };
        let versions = if i % 97 == 5 { 60 } else { 1 + random % 2 };
        for version in 0..versions {
            let kind = match random % 11 {
                0 => ValueType::Deletion,
                1 => ValueType::Merge,
                2 => ValueType::SingleDeletion,
                _ => ValueType::Value,
            };
            let key = InternalKey { user_key: user.as_bytes(), seq: SeqNo(1000 - version), kind }.to_vec();
            let value = match kind {
                ValueType::Deletion | ValueType::SingleDeletion => Vec::new(),
                _ => format!("value {i} {version} {}", "x".repeat((random % 90) as usize)).into_bytes(),
            };
            entries.push((key, value));
        }
    }
    entries
}

fn build(options: TableOptions, entries: &Entries, range_deletions: &[(&str, &str, u64)]) -> Vec<u8> {
    let mut builder = TableBuilder::new(options).unwrap();
    let mut bytes = Vec::new();
    for (i, (key, value)) in entries.iter().enumerate() {
        builder.add(key, value).unwrap();
        if i % 100 == 0 {
            bytes.extend(builder.take_output());
        }
    }
    for (start, end, seq) in range_deletions {
        builder.add_range_deletion(start.as_bytes(), end.as_bytes(), SeqNo(*seq)).unwrap();
    }
    let finished = builder.finish().unwrap();
    bytes.extend(builder.take_output());
    assert_eq!(finished.file_bytes, bytes.len() as u64);
    bytes
}

fn base() -> TableOptions {
    TableOptions {
        format_version: 5,
        identity: TableIdentity {
            db_id: "3b6f7a53-0000-4000-8000-000000000001".into(),
            db_session_id: "ABCDEFGHIJKLMNOPQRST".into(),
            file_number: 9,
            creation_time: 1_700_000_000,
            ..TableIdentity::default()
        },
        ..TableOptions::default()
    }
}

/// Reads the table back with this crate and, up to format_version 5, with sst_dump 7.8.
fn check(name: &str, options: TableOptions, entries: &Entries) -> Table {
    let format_version = options.format_version;
    let filtered = options.filter_policy.is_some() && options.whole_key_filtering;
    let bytes = build(options, entries, &[]);
    let table = Table::from_bytes(bytes.clone());
    assert_eq!(table.scan().unwrap_or_else(|e| panic!("{name}: {e}")), *entries, "{name}");
    let mut backwards = table.scan_backwards().unwrap();
    backwards.reverse();
    assert_eq!(backwards, *entries, "{name}");
    assert_eq!(table.properties.num_entries, entries.len() as u64);
    for (key, value) in entries.iter().step_by(7) {
        assert_eq!(table.seek(key).unwrap().as_ref(), Some(&(key.clone(), value.clone())), "{name}");
        if filtered {
            assert_eq!(table.may_contain(key::user_key(key)).unwrap(), Some(true), "{name}");
        }
    }
    if format_version <= 5 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("000009.sst");
        std::fs::write(&path, &bytes).unwrap();
        let file = format!("--file={}", path.display());
        tool("sst_dump", &[&file, "--command=verify", "--verify_checksum"]);
        assert_eq!(sst_dump_scan(&path), scan_lines(entries), "{name}");
        let shown = tool("sst_dump", &[&file, "--command=none", "--show_properties"]);
        assert!(shown.contains(&format!("# entries: {}", entries.len())), "{name}: {shown}");
    }
    table
}

#[test]
fn format_versions_and_index_types() {
    let entries = entries(1500);
    for format_version in 2..=7 {
        for index_type in [
            IndexType::BinarySearch,
            IndexType::HashSearch,
            IndexType::TwoLevelIndexSearch,
            IndexType::BinarySearchWithFirstKey,
        ] {
            for index_restart_interval in [1, 5] {
                let options = TableOptions {
                    format_version,
                    index_type,
                    index_restart_interval,
                    metadata_block_bytes: 512,
                    prefix_extractor: (index_type == IndexType::HashSearch)
                        .then_some(PrefixExtractor::Fixed(9)),
                    ..base()
                };
                let table = check(
                    &format!("{format_version} {index_type:?} {index_restart_interval}"),
                    options,
                    &entries,
                );
                assert_eq!(table.properties.index_type(), Ok(index_type));
                assert_eq!(table.layout().delta_handles, format_version >= 4);
                // Some keys have more versions than fit into a block.
                assert!(!table.layout().user_keys);
                if index_type == IndexType::TwoLevelIndexSearch {
                    assert!(table.properties.index_partitions > 1);
                }
            }
        }
    }
}

#[test]
fn user_keys_in_the_index() {
    let entries: Entries =
        entries(2000).into_iter().filter(|(key, _)| InternalKey::parse(key).unwrap().seq.0 == 1000).collect();
    for index_type in
        [IndexType::BinarySearch, IndexType::TwoLevelIndexSearch, IndexType::BinarySearchWithFirstKey]
    {
        for index_shortening in [
            IndexShortening::NoShortening,
            IndexShortening::ShortenSeparators,
            IndexShortening::ShortenSeparatorsAndSuccessor,
        ] {
            let options = TableOptions { index_type, index_shortening, metadata_block_bytes: 512, ..base() };
            let table = check(&format!("{index_type:?} {index_shortening:?}"), options, &entries);
            assert!(table.layout().user_keys);
        }
    }
}

#[test]
fn compressions_with_and_without_dictionary() {
    let entries = entries(2000);
    for compression in CompressionType::ALL {
        if compression == CompressionType::ZstdNotFinal {
            continue;
        }
        for max_dictionary_bytes in [0, 4096] {
            let options = TableOptions {
                compression,
                max_dictionary_bytes,
                max_dictionary_buffer_bytes: if max_dictionary_bytes > 0 { 40_000 } else { 0 },
                block_bytes: 2000,
                ..base()
            };
            let table = check(&format!("{compression:?} {max_dictionary_bytes}"), options, &entries);
            assert!(table.compressions.borrow().contains(&compression));
            assert_eq!(
                table.has_dictionary(),
                max_dictionary_bytes > 0 && compression != CompressionType::None
            );
        }
    }
}

#[test]
fn keys_may_be_stored_whole() {
    let entries = entries(1000);
    for separate_values in [false, true] {
        let options = |share_prefixes| TableOptions {
            share_prefixes,
            separate_values,
            format_version: if separate_values { 7 } else { 5 },
            ..base()
        };
        let whole = check("whole", options(false), &entries).properties.data_size;
        assert!(whole > check("shared", options(true), &entries).properties.data_size + 10_000);
    }
}

#[test]
fn data_blocks_lie_in_units_of_their_own() {
    let entries: Entries = entries(3000).into_iter().filter(|(_, value)| value.len() < 100).collect();
    for index_type in [IndexType::BinarySearch, IndexType::TwoLevelIndexSearch] {
        let options = TableOptions {
            align_blocks: true,
            delta_encode_handles: false,
            index_type,
            metadata_block_bytes: 512,
            ..base()
        };
        let table = check("aligned", options, &entries);
        for (_, handle, _) in table.data_handles().unwrap() {
            assert!(handle.offset % 4096 == 0 && handle.size + 5 <= 4096, "{handle:?}");
        }
    }
    let compressed = TableOptions { align_blocks: true, compression: CompressionType::Lz4, ..base() };
    assert!(matches!(TableBuilder::new(compressed), Err(TableBuildError::BadOptions(_))));
}

/// Data blocks do not cross super blocks if the padding is small enough, and the handles behind the
/// padding are whole.
#[test]
fn data_blocks_do_not_straddle_super_blocks() {
    let entries = entries(3000);
    for (compression, index_type, format_version, ratio) in [
        (CompressionType::None, IndexType::BinarySearch, 5, 4),
        (CompressionType::None, IndexType::TwoLevelIndexSearch, 5, 4),
        (CompressionType::Lz4, IndexType::BinarySearch, 5, 8),
        (CompressionType::Zstd, IndexType::BinarySearchWithFirstKey, 7, 4),
        (CompressionType::None, IndexType::BinarySearch, 3, 0),
    ] {
        let options = TableOptions {
            compression,
            index_type,
            format_version,
            index_restart_interval: 5,
            block_bytes: 1500,
            super_block_bytes: 16_384,
            super_block_overhead_ratio: ratio,
            ..base()
        };
        let table = check(&format!("{compression:?} {index_type:?}"), options, &entries);
        let handles: Vec<_> =
            table.data_handles().unwrap().into_iter().map(|(_, handle, _)| handle).collect();
        let straddling =
            |handle: &BlockHandle| handle.offset / 16_384 != (handle.offset + handle.size) / 16_384;
        let padded = handles.windows(2).filter(|pair| !pair[0].is_followed_by(pair[1]));
        let room: Vec<_> = padded.map(|pair| pair[1].offset - pair[0].offset - pair[0].size - 5).collect();
        if ratio == 0 {
            assert!(room.is_empty() && handles.iter().any(straddling));
        } else {
            assert!(!room.is_empty() && room.iter().all(|bytes| *bytes < 16_384 / ratio as u64), "{room:?}");
            assert!(!handles.iter().any(straddling));
        }
    }
}

#[test]
fn zstd_trains_its_dictionary() {
    let entries = entries(4000);
    let options = |zstd_max_train_bytes, use_zstd_dict_trainer| TableOptions {
        compression: CompressionType::Zstd,
        max_dictionary_bytes: 4096,
        zstd_max_train_bytes,
        use_zstd_dict_trainer,
        block_bytes: 1000,
        ..base()
    };
    let trained = check("trained", options(100_000, true), &entries);
    assert!(trained.has_dictionary());
    let told = &trained.properties.compression_options;
    assert!(
        told.contains("zstd_max_train_bytes=100000;") && told.contains("use_zstd_dict_trainer=1;"),
        "{told}"
    );
    let magic = 0xEC30_A437_u32.to_le_bytes();
    let has_magic = |options| build(options, &entries, &[]).windows(4).any(|bytes| bytes == magic);
    assert!(has_magic(options(100_000, true)), "a dictionary of ZSTD's own form");
    assert!(!has_magic(options(100_000, false)) && !has_magic(options(0, true)), "the data itself");
    // Too few samples to train on.
    let few = &entries[..20].to_vec();
    assert!(!check("few", options(100_000, true), few).has_dictionary());
}

#[test]
fn some_blocks_are_compressed_to_tell_how_well_that_goes() {
    let entries = entries(2000);
    let of = |sample_for_compression| {
        let options = TableOptions { sample_for_compression, ..base() };
        let properties = check("sampled", options, &entries).properties;
        let (fast, slow) = (
            properties.fast_compression_estimated_data_size,
            properties.slow_compression_estimated_data_size,
        );
        (properties.data_size, fast, slow)
    };
    let (data, fast, slow) = of(1);
    assert!(slow > data / 20 && slow < fast && fast < data * 3 / 4, "{data} {fast} {slow}");
    let (_, some_fast, some_slow) = of(5);
    assert!(some_fast.abs_diff(fast) < fast / 5 && some_slow.abs_diff(slow) < slow / 5);
    assert_eq!(of(0), (data, 0, 0));
}

#[test]
fn checksums() {
    let entries = entries(300);
    for number in 0..=4 {
        let checksum = ChecksumType::from_u8(number).unwrap();
        for format_version in [5, 6] {
            let options = TableOptions { checksum, format_version, ..base() };
            let table = check(&format!("{checksum:?} {format_version}"), options, &entries);
            assert_eq!(table.footer.checksum, checksum);
        }
    }
}

#[test]
fn block_shapes() {
    let entries = entries(2000);
    for (block_bytes, restart_interval, data_block_hash_ratio, separate_values) in [
        (1 << 10, 1, None, false),
        (4 << 10, 16, Some(0.75), false),
        (32 << 10, 4, Some(0.5), false),
        (128 << 10, 16, Some(0.75), false),
        (4 << 10, 16, None, true),
        (4 << 10, 8, Some(0.75), true),
    ] {
        let options = TableOptions {
            block_bytes,
            restart_interval,
            data_block_hash_ratio,
            separate_values,
            format_version: if separate_values { 7 } else { 5 },
            ..base()
        };
        let table = check(&format!("{block_bytes} {restart_interval} {separate_values}"), options, &entries);
        // A block of 64 KiB or more has no hash index; the last one is smaller.
        let hashed = table.data_blocks_with_hash_index.get() > 0;
        assert_eq!(hashed, data_block_hash_ratio.is_some());
    }
}

#[test]
fn filters() {
    let entries = entries(1500);
    for policy in [FilterPolicy::bloom(10.0), FilterPolicy::ribbon(10.0, -1)] {
        for partition_filters in [false, true] {
            for format_version in [4, 5, 6] {
                for prefix_extractor in [None, Some(PrefixExtractor::Fixed(8))] {
                    let options = TableOptions {
                        filter_policy: Some(policy),
                        partition_filters,
                        format_version,
                        prefix_extractor,
                        index_type: if partition_filters {
                            IndexType::TwoLevelIndexSearch
                        } else {
                            IndexType::BinarySearch
                        },
                        metadata_block_bytes: 1024,
                        ..base()
                    };
                    let name = format!("{policy:?} {partition_filters} {format_version}");
                    let table = check(&name, options, &entries);
                    assert!(table.properties.num_filter_entries > 500, "{name}");
                    let absent = (0..2000)
                        .filter(|i| table.may_contain(format!("kez{i}").as_bytes()).unwrap() == Some(true));
                    assert!(absent.count() < 100, "{name}");
                }
            }
        }
    }
}

#[test]
fn range_deletions() {
    let directory = tempfile::tempdir().unwrap();
    for with_points in [true, false] {
        let entries = if with_points { entries(50) } else { Vec::new() };
        let deletions = [("a", "b", 7), ("key00000010", "key00000020", 2000), ("zz", "zzz", 8)];
        let bytes = build(base(), &entries, &deletions);
        let table = Table::from_bytes(bytes.clone());
        assert_eq!(table.scan().unwrap(), entries);
        let read: Vec<_> = table
            .range_deletions()
            .unwrap()
            .iter()
            .map(|(key, end)| {
                let key = InternalKey::parse(key).unwrap();
                (
                    String::from_utf8(key.user_key.into()).unwrap(),
                    String::from_utf8(end.clone()).unwrap(),
                    key.seq.0,
                )
            })
            .collect();
        let expected: Vec<_> = deletions.iter().map(|(a, b, s)| (a.to_string(), b.to_string(), *s)).collect();
        assert_eq!(read, expected);
        assert_eq!(table.properties.num_range_deletions, 3);
        let path = directory.path().join("000010.sst");
        std::fs::write(&path, &bytes).unwrap();
        let file = format!("--file={}", path.display());
        let shown = tool("sst_dump", &[&file, "--command=scan", "--show_properties"]);
        assert!(shown.contains("# range deletions: 3"), "{shown}");
        let raw = tool("sst_dump", &[&file, "--command=raw"]);
        let dump = std::fs::read_to_string(directory.path().join("000010_dump.txt")).unwrap();
        assert!(dump.contains("Range deletions"), "{raw} {dump}");
    }
}

#[test]
fn other_comparators() {
    let mut entries = entries(500);
    entries.sort_by(|(a, _), (b, _)| Comparator::ReverseBytewise.compare_internal(a, b));
    for index_type in [IndexType::BinarySearch, IndexType::TwoLevelIndexSearch] {
        let options = TableOptions {
            comparator: Comparator::ReverseBytewise,
            index_type,
            metadata_block_bytes: 300,
            ..base()
        };
        check("reverse", options, &entries);
    }
}

#[test]
fn equal_input_gives_equal_bytes_and_another_seed_does_not() {
    let entries = entries(100);
    let options = TableOptions { format_version: 6, ..base() };
    let bytes = build(options.clone(), &entries, &[]);
    assert_eq!(bytes, build(options.clone(), &entries, &[]));
    let identity = TableIdentity { context_seed: 12345, ..options.identity.clone() };
    assert_ne!(bytes, build(TableOptions { identity, ..options }, &entries, &[]));
}

#[test]
fn damage_is_noticed() {
    let entries = entries(60);
    let options = TableOptions {
        format_version: 6,
        compression: CompressionType::Lz4,
        filter_policy: Some(FilterPolicy::bloom(10.0)),
        ..base()
    };
    let bytes = build(options, &entries, &[("a", "b", 7)]);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let read = Table::try_from_bytes(damaged).and_then(|table| {
            let _ = table.may_contain(b"key00000004")?;
            let _ = table.range_deletions()?;
            table.scan()
        });
        // A flip in the first 16 reserved bytes, which are ignored, is detected by the footer's
        // checksum.
        assert!(read.is_err(), "flipping a bit of byte {at} of {} went unnoticed", bytes.len());
    }
    for length in (0..bytes.len()).step_by(7) {
        assert!(Table::try_from_bytes(bytes[..length].to_vec()).is_err());
    }
}

#[test]
fn bounds_take_in_range_deletions() {
    let internal =
        |user: &str, seq, kind| InternalKey { user_key: user.as_bytes(), seq: SeqNo(seq), kind }.to_vec();
    let mut builder = TableBuilder::new(base()).unwrap();
    builder.add(&internal("d", 5, ValueType::Value), b"1").unwrap();
    builder.add(&internal("m", 9, ValueType::Value), b"2").unwrap();
    let finished = builder.finish().unwrap();
    assert_eq!(finished.smallest, Some(internal("d", 5, ValueType::Value)));
    assert_eq!(finished.largest, Some(internal("m", 9, ValueType::Value)));
    assert_eq!((finished.smallest_seq, finished.largest_seq), (SeqNo(5), SeqNo(9)));

    let mut builder = TableBuilder::new(base()).unwrap();
    builder.add_range_deletion(b"a", b"e", SeqNo(3)).unwrap();
    builder.add(&internal("b", 5, ValueType::Value), b"1").unwrap();
    builder.add_range_deletion(b"a", b"z", SeqNo(4)).unwrap();
    let finished = builder.finish().unwrap();
    assert_eq!(finished.smallest, Some(internal("a", 4, ValueType::RangeDeletion)));
    assert_eq!(finished.largest, Some(internal("z", SeqNo::MAX.0, ValueType::RangeDeletion)));
    assert_eq!((finished.smallest_seq, finished.largest_seq), (SeqNo(3), SeqNo(5)));

    let empty = TableBuilder::new(base()).unwrap().finish().unwrap();
    assert_eq!((empty.smallest, empty.largest), (None, None));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let internal = |user: &str, kind| InternalKey { user_key: user.as_bytes(), seq: SeqNo(1), kind }.to_vec();
    let mut builder = TableBuilder::new(base()).unwrap();
    builder.add(&internal("b", ValueType::Value), b"").unwrap();
    for key in ["a", "b"] {
        let error = builder.add(&internal(key, ValueType::Value), b"").unwrap_err();
        assert!(matches!(error, TableBuildError::OutOfOrder { .. }));
    }
    assert!(matches!(builder.add(b"short", b""), Err(TableBuildError::BadKey(_))));
    assert!(matches!(
        builder.add(&internal("c", ValueType::RangeDeletion), b"d"),
        Err(TableBuildError::Misplaced(_))
    ));
    assert!(matches!(builder.add_range_deletion(b"b", b"b", SeqNo(1)), Err(TableBuildError::Misplaced(_))));
    for options in [
        TableOptions { format_version: 1, ..base() },
        TableOptions { format_version: 8, ..base() },
        TableOptions { restart_interval: 0, ..base() },
        TableOptions { block_bytes: 0, ..base() },
        TableOptions { partition_filters: true, ..base() },
        TableOptions { index_type: IndexType::HashSearch, ..base() },
        TableOptions { compression: CompressionType::ZstdNotFinal, ..base() },
    ] {
        assert!(matches!(TableBuilder::new(options), Err(TableBuildError::BadOptions(_))));
    }
}

#[test]
fn evenly_lying_keys_mark_the_index_and_change_nothing_else() {
    let value = |i: u64| format!("value {i}").into_bytes();
    let key = |user_key: u64| {
        InternalKey { user_key: &user_key.to_be_bytes(), seq: SeqNo(7), kind: ValueType::Value }.to_vec()
    };
    let even: Entries = (0..3000).map(|i| (key(i * 1000), value(i))).collect();
    // Each distance is larger than the sum of all before it.
    let uneven: Entries = (0..3000u64).map(|i| (key(i + (1 << (i / 50))), value(i))).collect();
    for format_version in [5, 6, 7] {
        for index_type in [IndexType::BinarySearch, IndexType::TwoLevelIndexSearch] {
            let options = |uniform_cv_threshold| TableOptions {
                format_version,
                index_type,
                uniform_cv_threshold,
                metadata_block_bytes: 512,
                block_bytes: 256,
                ..base()
            };
            let with = |threshold, entries: &Entries| {
                let table = Table::from_bytes(build(options(threshold), entries, &[]));
                assert_eq!(table.scan().unwrap(), *entries);
                assert_eq!(table.seek(&entries[1234].0).unwrap().as_ref(), Some(&entries[1234]));
                table.properties.num_uniform_blocks
            };
            let partitioned = index_type == IndexType::TwoLevelIndexSearch;
            let marked = with(0.5, &even);
            assert!(if partitioned { marked > 5 } else { marked == 1 }, "{marked}");
            assert_eq!(with(-1.0, &even), 0);
            assert!(partitioned || with(0.5, &uneven) == 0);
            let (marked, plain) = (build(options(0.5), &even, &[]), build(options(-1.0), &even, &[]));
            let data_bytes = Table::from_bytes(plain.clone()).properties.data_size as usize;
            assert_eq!(marked[..data_bytes], plain[..data_bytes]);
        }
    }
}

#[test]
fn blocks_that_are_compressed_elsewhere_make_the_same_file() {
    let entries = entries(3000);
    for (max_dictionary_bytes, index_type) in
        [(0, IndexType::BinarySearch), (500, IndexType::TwoLevelIndexSearch)]
    {
        let options = TableOptions {
            compression: CompressionType::Zstd,
            max_dictionary_bytes,
            max_dictionary_buffer_bytes: 20_000,
            index_type,
            filter_policy: FilterPolicy::from_option_string("bloomfilter:10:false").unwrap(),
            ..base()
        };
        let whole = build(options.clone(), &entries, &[]);
        let mut builder = TableBuilder::new(options).unwrap();
        builder.defer_compression();
        let (mut bytes, mut away) = (Vec::new(), std::collections::VecDeque::new());
        for (key, value) in &entries {
            builder.add(key, value).unwrap();
            away.extend(builder.take_closed());
            assert!(builder.file_bytes_at_most() >= builder.file_bytes());
            // At most nine blocks are in flight.
            while away.len() > 9 {
                let block: karst_format::table_builder::ClosedBlock = away.pop_front().unwrap();
                builder.add_compressed(if away.len() % 2 == 0 {
                    block.compress()
                } else {
                    std::thread::spawn(move || block.compress()).join().unwrap()
                });
            }
            bytes.extend(builder.take_output());
        }
        builder.close_data();
        away.extend(builder.take_closed());
        let most = builder.file_bytes_at_most();
        let elsewhere = |block: karst_format::table_builder::ClosedBlock| {
            std::thread::spawn(move || block.compress()).join().unwrap()
        };
        away.drain(..).for_each(|block| builder.add_compressed(elsewhere(block)));
        assert!(builder.file_bytes() <= most);
        let finished = builder.finish().unwrap();
        bytes.extend(builder.take_output());
        assert_eq!(finished.file_bytes, bytes.len() as u64);
        let differs = bytes.iter().zip(&whole).position(|(a, b)| a != b);
        assert_eq!(differs, None, "with a dictionary of {max_dictionary_bytes} bytes");
        assert_eq!(bytes.len(), whole.len());
    }
}
