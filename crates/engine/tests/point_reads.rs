//! Point lookups in databases that RocksDB wrote, in every form and under conditions that cover the
//! read path: cached, cache of size 0, metadata in the cache, few open files, direct I/O, serial
//! reads, level by level.

use karst_engine::db::Db;
use karst_engine::open::Options;
use karst_engine::options::ReadOptions;
use karst_io::testing::foreign_block_on;
use karst_testkit::asked::long;
use karst_testkit::rocksdb_tools::{db_bench, ldb_scan};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// A database with several L0 files and levels below, and the entries that RocksDB reads from it.
struct Sample {
    directory: TempDir,
    entries: Vec<Entry>,
    /// Number of checks so far.
    checks: AtomicUsize,
}

/// Number of parts into which the short form divides the keys of a sample.
const PARTS: usize = 3;

impl Sample {
    /// Writes a sample with db_bench and these flags on top of the usual ones.
    fn write(flags: &[&str]) -> Sample {
        Sample::write_at_least(4000, flags)
    }

    fn write_at_least(least: usize, flags: &[&str]) -> Sample {
        let directory = tempfile::tempdir().unwrap();
        let mut all = vec![
            "--num=8000",
            "--value_size=100",
            "--write_buffer_size=120000",
            "--target_file_size_base=50000",
            "--max_bytes_for_level_base=150000",
            "--level0_file_num_compaction_trigger=4",
            "--bloom_bits=10",
            "--cache_index_and_filter_blocks=false",
            "--seed=7",
        ];
        all.extend(flags);
        if !flags.iter().any(|flag| flag.starts_with("--benchmarks")) {
            // Not `waitforcompaction`, because it sleeps for five seconds before its first look.
            all.push("--benchmarks=fillrandom,overwrite,compact,overwrite");
        }
        db_bench(directory.path(), &all).unwrap();
        let entries = ldb_scan(directory.path(), "default").unwrap();
        assert!(entries.len() > least, "{} entries", entries.len());
        Sample { directory, entries, checks: AtomicUsize::new(0) }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Asserts that every key is found with its value and that keys in between are not, in all
    /// forms. The short form tests one part of the keys per call, in turn.
    fn check(&self, options: Options, read: &ReadOptions) {
        let db = Db::open_read_only(self.path(), &options).unwrap();
        let family = db.default_column_family();
        let parts = if long() { 1 } else { PARTS };
        let part = self.checks.fetch_add(1, Ordering::Relaxed) % parts;
        let asked: Vec<usize> = (part..self.entries.len()).step_by(parts).collect();
        for (key, value) in asked.iter().map(|i| &self.entries[*i]) {
            assert_eq!(db.get_cf(read, family, key).unwrap().as_deref(), Some(&value[..]), "{key:?}");
        }
        for (key, value) in asked.iter().map(|i| &self.entries[*i]).step_by(7) {
            let found = foreign_block_on(db.get_cf_async(read, family, key)).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{key:?}");
        }
        let absent: Vec<Vec<u8>> = self.entries.iter().map(|(key, _)| [key, &b"!"[..]].concat()).collect();
        for key in asked.iter().map(|i| &absent[*i]).step_by(3) {
            assert_eq!(db.get_cf(read, family, key).unwrap(), None);
        }
        for batch in asked.chunks(97) {
            // Present and absent keys in irregular order, some of them twice.
            let mut wanted: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
            for &i in batch {
                let (key, value) = &self.entries[(i * 7919) % self.entries.len()];
                wanted.push((key, Some(value)));
                if i % 3 == 0 {
                    wanted.push((&absent[i], None));
                }
                if i % 10 == 0 {
                    wanted.push((key, Some(value)));
                }
            }
            let keys: Vec<&[u8]> = wanted.iter().map(|(key, _)| *key).collect();
            let in_one_call = db.multi_get_cf(read, family, &keys);
            let awaited = foreign_block_on(db.multi_get_cf_async(read, family, &keys));
            for (((key, value), a), b) in wanted.iter().zip(in_one_call).zip(awaited) {
                assert_eq!(a.unwrap().as_deref(), *value, "{key:?}");
                assert_eq!(b.unwrap().as_deref(), *value, "{key:?}");
            }
        }
    }
}

fn cache(bytes: usize) -> Options {
    Options::new().block_cache_bytes(bytes)
}

#[test]
fn every_way_through_the_read_path_finds_the_same() {
    let sample = Sample::write(&[]);
    let defaults = ReadOptions::default();
    sample.check(cache(64 << 20), &defaults);
    sample.check(cache(0), &defaults);
    sample.check(cache(1 << 20), &ReadOptions { fill_cache: false, ..ReadOptions::default() });
    sample.check(cache(100_000), &ReadOptions { async_io: false, ..ReadOptions::default() });
    sample.check(cache(0), &ReadOptions { optimize_multiget_for_io: false, ..ReadOptions::default() });
    let few = cache(1 << 20).db(|db| db.max_open_files = 12);
    sample.check(few, &ReadOptions { verify_checksums: false, ..ReadOptions::default() });
    sample.check(cache(0).db(|db| db.use_direct_reads = true), &defaults);
    for bytes in [0, 50_000, 64 << 20] {
        let cached = cache(bytes)
            .column_families(|family| family.table_factory.block_based.cache_index_and_filter_blocks = true);
        sample.check(cached, &defaults);
    }
}

#[test]
fn partitioned_metadata() {
    let sample = Sample::write(&[
        "--partition_index_and_filters=true",
        "--metadata_block_size=512",
        "--format_version=5",
    ]);
    let defaults = ReadOptions::default();
    for bytes in [0, 50_000, 64 << 20] {
        sample.check(cache(bytes), &defaults);
        let cached = cache(bytes).column_families(move |family| {
            let table = &mut family.table_factory.block_based;
            table.cache_index_and_filter_blocks = true;
            table.pin_l0_filter_and_index_blocks_in_cache = bytes > 0;
            table.pin_top_level_index_and_filter = bytes == 0;
        });
        sample.check(cached, &defaults);
    }
}

#[test]
fn values_in_blob_files() {
    let sample = Sample::write(&["--enable_blob_files=true", "--min_blob_size=50", "--value_size=300"]);
    assert!(
        std::fs::read_dir(sample.path())
            .unwrap()
            .any(|e| e.unwrap().path().extension() == Some("blob".as_ref()))
    );
    sample.check(cache(8 << 20), &ReadOptions::default());
    sample.check(cache(0), &ReadOptions { verify_checksums: false, ..ReadOptions::default() });
    sample.check(cache(0).db(|db| db.max_open_files = 12), &ReadOptions::default());
    let compressed = Sample::write(&[
        "--enable_blob_files=true",
        "--value_size=300",
        "--blob_compression_type=zstd",
        "--compression_type=none",
    ]);
    compressed.check(cache(1 << 20), &ReadOptions::default());
}

#[test]
fn merge_operands_over_memtables_files_and_levels() {
    let benchmarks =
        "--benchmarks=fillrandom,mergerandom,compact,mergerandom,overwrite,mergerandom,mergerandom";
    for flags in [&[][..], &["--enable_blob_files=true", "--min_blob_size=1"]] {
        let flags = [&[benchmarks, "--merge_operator=stringappend", "--value_size=40"], flags].concat();
        let sample = Sample::write(&flags);
        let merged = sample.entries.iter().filter(|(_, value)| value.contains(&b','));
        assert!(merged.count() > 1000, "values are made of several operands");
        sample.check(cache(64 << 20), &ReadOptions::default());
        sample.check(cache(0), &ReadOptions::default());
        sample.check(cache(0), &ReadOptions { optimize_multiget_for_io: false, ..ReadOptions::default() });
    }
}

#[test]
fn range_tombstones_and_deletions_hide_what_is_older() {
    let flags = [
        "--benchmarks=fillrandom,overwrite,compact,deleterandom,overwrite",
        "--writes_per_range_tombstone=60",
        "--range_tombstone_width=40",
        "--max_num_range_tombstones=1000",
    ];
    let sample = Sample::write_at_least(1000, &flags);
    let properties = karst_testkit::rocksdb_tools::table_properties(sample.path()).unwrap();
    assert!(properties.lines().any(|line| line.contains("range deletions") && !line.ends_with(" 0")));
    sample.check(cache(64 << 20), &ReadOptions::default());
    sample.check(cache(0), &ReadOptions::default());
    // All other keys that were written have been deleted.
    let db = Db::open_read_only(sample.path(), &cache(1 << 20)).unwrap();
    let live: std::collections::BTreeSet<&[u8]> = sample.entries.iter().map(|(key, _)| &key[..]).collect();
    let mut deleted = 0;
    for number in 0..8000u64 {
        let key = [&number.to_be_bytes()[..], b"00000000"].concat();
        if !live.contains(&key[..]) {
            assert_eq!(db.get(&key).unwrap(), None, "{number}");
            deleted += 1;
        }
    }
    assert!(deleted > 100);
}

#[test]
fn a_read_that_may_not_touch_storage_says_so() {
    let sample = Sample::write(&[]);
    let db = Arc::new(Db::open_read_only(sample.path(), &cache(64 << 20)).unwrap());
    let cached_only =
        ReadOptions { read_tier: karst_engine::options::ReadTier::BlockCache, ..ReadOptions::default() };
    let family = db.default_column_family();
    let mut incomplete = 0;
    for (key, value) in &sample.entries {
        match db.get_cf(&cached_only, family, key) {
            Err(error) => {
                assert_eq!(error.kind(), karst_engine::error::ErrorKind::Incomplete);
                incomplete += 1;
            }
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "only memtables can answer"),
        }
    }
    assert!(incomplete > 0);
    for (key, value) in &sample.entries {
        db.get(key).unwrap();
        assert_eq!(db.get_cf(&cached_only, family, key).unwrap().as_deref(), Some(&value[..]));
    }
}
