//! Tables that RocksDB 7.8 writes with a matrix of options: every block decodes, and every entry
//! equals the one that RocksDB's own sst_dump prints. Each test asserts that the feature it tests
//! is present in the file.

mod support;

use karst_format::checksum::ChecksumType;
use karst_format::compression::CompressionType;
use karst_format::index::IndexType;
use karst_format::key::{self, InternalKey, SeqNo, ValueType};
use karst_format::metaindex::FilterKind;
use std::path::PathBuf;
use support::{Table, scan_lines, sst_dump_scan, tool};

/// The tables of a database that db_bench created; their directory is deleted with this value.
struct Made {
    _directory: tempfile::TempDir,
    tables: Vec<PathBuf>,
}

fn make(arguments: &[&str]) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let db = format!("--db={}", directory.path().display());
    let mut all =
        vec![&db[..], "--benchmarks=fillrandom,flush", "--num=1500", "--seed=1", "--compression_ratio=0.4"];
    all.extend_from_slice(arguments);
    tool("db_bench", &all);
    let mut tables: Vec<PathBuf> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "sst"))
        .collect();
    tables.sort();
    assert!(!tables.is_empty(), "db_bench left no table");
    Made { _directory: directory, tables }
}

/// Compares every table with sst_dump, and seeks every tenth entry; returns the first table for
/// further checks.
fn check(made: &Made) -> Table {
    let mut first = None;
    for path in &made.tables {
        let table = Table::open(path);
        let entries = table.scan().unwrap();
        assert!(!entries.is_empty());
        assert_eq!(scan_lines(&entries), sst_dump_scan(path));
        let mut backwards = table.scan_backwards().unwrap();
        backwards.reverse();
        assert_eq!(backwards, entries);
        let points = table.properties.num_entries - table.properties.num_range_deletions;
        assert_eq!(entries.len() as u64, points);
        for (i, (key, value)) in entries.iter().enumerate().step_by(10) {
            assert_eq!(table.seek(key).unwrap().as_ref(), Some(&(key.clone(), value.clone())));
            let user_key = key::user_key(key);
            assert_ne!(table.may_contain(user_key).unwrap(), Some(false));
            // A target that sorts before all entries of the user key.
            let target = InternalKey { user_key, seq: SeqNo::MAX, kind: ValueType::FOR_SEEK }.to_vec();
            let newest =
                entries[..=i].iter().rposition(|(k, _)| key::user_key(k) != user_key).map_or(0, |p| p + 1);
            assert_eq!(table.seek(&target).unwrap().as_ref(), Some(&entries[newest]));
        }
        first.get_or_insert(table);
    }
    first.unwrap()
}

#[test]
fn format_versions_and_compressions() {
    for format_version in 0..=5 {
        for (name, compression) in [
            ("none", CompressionType::None),
            ("snappy", CompressionType::Snappy),
            ("zlib", CompressionType::Zlib),
            ("bzip2", CompressionType::Bzip2),
            ("lz4", CompressionType::Lz4),
            ("lz4hc", CompressionType::Lz4hc),
            ("zstd", CompressionType::Zstd),
        ] {
            let made = make(&[
                &format!("--format_version={format_version}"),
                &format!("--compression_type={name}"),
                "--checksum_type=1",
            ]);
            let table = check(&made);
            assert_eq!(table.footer.format_version, format_version);
            assert!(table.compressions.borrow().contains(&compression), "{name}");
            assert_eq!(table.layout().delta_handles, format_version >= 4);
            assert_eq!(table.layout().user_keys, format_version >= 3);
        }
    }
}

#[test]
fn dictionaries() {
    for (name, compression) in [
        ("zlib", CompressionType::Zlib),
        ("lz4", CompressionType::Lz4),
        ("lz4hc", CompressionType::Lz4hc),
        ("zstd", CompressionType::Zstd),
    ] {
        // The second round trains a ZSTD dictionary in place of raw content; its length exceeds
        // zlib's window.
        for extra in [
            &["--compression_max_dict_bytes=2048"][..],
            &[
                "--compression_max_dict_bytes=40000",
                "--compression_zstd_max_train_bytes=200000",
                "--value_size=1000",
            ],
        ] {
            let made = make(&[&[&*format!("--compression_type={name}"), "--num=1500"][..], extra].concat());
            let table = check(&made);
            assert!(table.has_dictionary(), "{name}");
            assert!(table.compressions.borrow().contains(&compression), "{name}");
        }
    }
}

#[test]
fn checksums() {
    for number in 0..=4u8 {
        let table = check(&make(&[&format!("--checksum_type={number}"), "--num=500"]));
        assert_eq!(table.footer.checksum, ChecksumType::from_u8(number).unwrap());
    }
}

#[test]
fn index_types() {
    for (arguments, index_type) in [
        (&["--index_with_first_key=true"][..], IndexType::BinarySearchWithFirstKey),
        (
            &["--index_with_first_key=true", "--index_block_restart_interval=7"],
            IndexType::BinarySearchWithFirstKey,
        ),
        (&["--index_block_restart_interval=16"], IndexType::BinarySearch),
        (&["--index_shortening_mode=0"], IndexType::BinarySearch),
        (&["--index_shortening_mode=2"], IndexType::BinarySearch),
        (&["--enable_index_compression=false"], IndexType::BinarySearch),
        (
            &["--partition_index=true", "--metadata_block_size=300", "--num=4000"],
            IndexType::TwoLevelIndexSearch,
        ),
        (
            &[
                "--partition_index=true",
                "--metadata_block_size=300",
                "--index_block_restart_interval=3",
                "--num=4000",
            ],
            IndexType::TwoLevelIndexSearch,
        ),
        (&["--use_hash_search=true", "--prefix_size=8"], IndexType::HashSearch),
    ] {
        for format_version in [2, 3, 5] {
            let version = format!("--format_version={format_version}");
            let table = check(&make(&[arguments, &[&version]].concat()));
            assert_eq!(table.properties.index_type(), Ok(index_type), "{arguments:?}");
            if index_type == IndexType::TwoLevelIndexSearch {
                assert!(table.properties.index_partitions > 1, "{arguments:?}");
            }
        }
    }
}

#[test]
fn filters() {
    for (arguments, kind) in [
        (&["--bloom_bits=10"][..], FilterKind::Full),
        (&["--bloom_bits=10", "--format_version=4"], FilterKind::Full),
        (&["--bloom_bits=10", "--use_ribbon_filter=true"], FilterKind::Full),
        (&["--bloom_bits=10", "--prefix_size=8", "--whole_key_filtering=true"], FilterKind::Full),
        (
            &["--bloom_bits=10", "--partition_index_and_filters=true", "--metadata_block_size=1000"],
            FilterKind::Partitioned,
        ),
        (
            &[
                "--bloom_bits=10",
                "--partition_index_and_filters=true",
                "--metadata_block_size=1000",
                "--format_version=3",
            ],
            FilterKind::Partitioned,
        ),
    ] {
        let table = check(&make(arguments));
        assert_eq!(table.metaindex.filter().map(|(kind, ..)| kind), Some(kind), "{arguments:?}");
        let absent = (0..1000)
            .filter(|i| table.may_contain(format!("absent{i:010}").as_bytes()).unwrap() == Some(true));
        assert!(absent.count() < 60, "{arguments:?}");
    }
}

#[test]
fn block_shapes() {
    for arguments in [
        &["--block_size=1024", "--block_restart_interval=1"][..],
        &["--block_size=65536", "--block_restart_interval=64"],
        &["--block_size=16384", "--use_data_block_hash_index=true"],
        &["--block_size=4096", "--use_data_block_hash_index=true", "--data_block_hash_table_util_ratio=0.5"],
        &["--block_align=true", "--compression_type=none"],
        &["--value_size=100000", "--num=50", "--compression_type=none"],
        &["--value_size=0", "--key_size=4"],
        &["--key_size=500", "--num=500"],
    ] {
        let table = check(&make(arguments));
        let hash_wanted = arguments.contains(&"--use_data_block_hash_index=true");
        assert_eq!(table.data_blocks_with_hash_index.get() > 0, hash_wanted, "{arguments:?}");
    }
}

#[test]
fn every_flipped_byte_of_a_real_table_is_noticed_or_harmless() {
    let made = make(&["--num=300", "--compression_type=zstd", "--bloom_bits=10", "--checksum_type=4"]);
    let bytes = std::fs::read(&made.tables[0]).unwrap();
    let good = Table::from_bytes(bytes.clone()).scan().unwrap();
    let handles_end = bytes.len() - 53 + 41;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let read = Table::try_from_bytes(damaged).and_then(|table| {
            let _ = table.may_contain(b"0000000000000004")?;
            table.scan()
        });
        // No checksum covers the padding behind the handles of an older footer, and it has no
        // meaning.
        match read {
            Err(_) => {}
            Ok(entries) => {
                assert!(entries == good && (bytes.len() - 53..handles_end).contains(&at), "byte {at}")
            }
        }
    }
}
