//! Number of round trips to storage that an operation takes; reads that are issued together count
//! as one.
//!
//! Every read of the file system takes the same long time, so reads form waves. A cold batch of 64
//! keys with partitioned metadata takes one wave per dependent hop, not one per key and level.

use karst_engine::{CompactRangeOptions, Db, FlushOptions, Options, ReadOptions};
use karst_io::testing::foreign_block_on;
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, PosixFileSystem};
use karst_testkit::rocksdb_tools::{db_bench, ldb_scan};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

thread_local! {
    /// Duration of a read in the test that runs on this thread.
    static READ: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs a test with ever slower reads until it passes, because a read must take longer than
/// everything that happens between two waves, and that time depends on the machine.
fn with_ever_slower_reads(test: impl Fn()) {
    for slowness in [1, 4, 16] {
        READ.set(Duration::from_millis(150) * slowness);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)).is_ok() {
            return;
        }
        eprintln!("{:?} a read was too fast for this machine, or the test fails", READ.get());
    }
    READ.set(Duration::from_secs(10));
    test();
}

/// A read of a file.
#[derive(Debug)]
struct Read {
    issued: Duration,
    path: PathBuf,
    offset: u64,
    len: usize,
}

impl Read {
    fn overlaps(&self, other: &Read) -> bool {
        self.path == other.path
            && self.offset < other.offset + other.len as u64
            && other.offset < self.offset + self.len as u64
    }
}

/// Delays every read by the same time and records it.
#[derive(Debug)]
struct Waves {
    begin: Instant,
    each: Duration,
    reads: Mutex<Vec<Read>>,
}

impl Disturb for Waves {
    fn read(&self, path: &Path, offset: u64, len: usize) -> Option<Disturbance> {
        let mut reads = self.reads.lock();
        reads.push(Read { issued: self.begin.elapsed(), path: path.to_owned(), offset, len });
        Some(Disturbance { delay: Some(self.each), ..Disturbance::default() })
    }
}

impl Waves {
    /// Returns the reads since the last call.
    fn take_reads(&self) -> Vec<Read> {
        std::mem::take(&mut *self.reads.lock())
    }

    /// Returns the numbers of waves and of reads since the last call.
    fn take(&self) -> (usize, usize) {
        let reads = self.take_reads();
        (waves(&reads), reads.len())
    }
}

/// Returns the number of waves. A wave ends when no read is issued for half the duration of a read.
fn waves(reads: &[Read]) -> usize {
    let gaps = reads.windows(2).filter(|pair| pair[1].issued - pair[0].issued > READ.get() / 2).count();
    if reads.is_empty() { 0 } else { gaps + 1 }
}

struct Cold {
    db: Db,
    waves: Arc<Waves>,
    keys: Vec<Vec<u8>>,
    _directory: tempfile::TempDir,
}

/// Opens, with an empty cache, the database that db_bench writes for these benchmarks.
fn made(benchmarks: &str, flags: &[&str], cache_bytes: usize, cached_metadata: bool) -> Cold {
    let directory = tempfile::tempdir().unwrap();
    let benchmarks = format!("--benchmarks={benchmarks}");
    let mut all = vec![
        "--num=20000",
        &benchmarks,
        "--write_buffer_size=200000",
        "--target_file_size_base=100000",
        "--max_bytes_for_level_base=300000",
        "--bloom_bits=16",
    ];
    all.extend(flags);
    db_bench(directory.path(), &all).unwrap();
    opened(directory, cache_bytes, cached_metadata)
}

/// Opens a database with an empty cache.
fn opened(directory: tempfile::TempDir, cache_bytes: usize, cached_metadata: bool) -> Cold {
    let keys = ldb_scan(directory.path(), "default").unwrap().into_iter().map(|(key, _)| key).collect();
    opened_with(directory, keys, cache_bytes, cached_metadata)
}

fn opened_with(
    directory: tempfile::TempDir,
    keys: Vec<Vec<u8>>,
    cache_bytes: usize,
    cached_metadata: bool,
) -> Cold {
    let waves = Waves { begin: Instant::now(), each: READ.get(), reads: Mutex::default() };
    let files = DisturbedFileSystem::new(Arc::new(PosixFileSystem), waves);
    let waves = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let options = Options::new().env(env).block_cache_bytes(cache_bytes).column_families(move |family| {
        family.table_factory.block_based.cache_index_and_filter_blocks = cached_metadata;
    });
    let db = Db::open_read_only(directory.path(), &options).unwrap();
    waves.take();
    Cold { db, waves, keys, _directory: directory }
}

/// Opens, with an empty cache, a tree of several levels whose tables hold their own metadata.
fn cold(flags: &[&str], cache_bytes: usize) -> Cold {
    // Not `waitforcompaction`, because it sleeps for five seconds before its first look.
    let cold = made("fillrandom,overwrite,compact,overwrite,flush", flags, cache_bytes, false);
    let levels: BTreeSet<_> = cold.db.live_files().iter().map(|file| file.level).collect();
    assert!(levels.len() >= 3, "the tree has the levels {levels:?}");
    cold
}

/// Returns a database with all keys in the last level, read without a cache.
fn uncached(flags: &[&str]) -> Cold {
    made("fillrandom,compact", flags, 0, true)
}

const PARTITIONED: &[&str] = &["--partition_index_and_filters=true", "--metadata_block_size=512"];

impl Cold {
    /// Returns 64 keys spread over the whole range; each `seed` picks other ones.
    fn batch(&self, seed: usize) -> Vec<&[u8]> {
        let step = self.keys.len() / 64;
        (0..64).map(|i| &self.keys[i * step + seed % step][..]).collect()
    }

    /// Reads a batch and returns the numbers of waves and of reads that it took.
    fn read(&self, options: &ReadOptions, seed: usize, awaited: bool) -> (usize, usize) {
        let reads = self.reads_of(options, seed, awaited);
        (waves(&reads), reads.len())
    }

    fn reads_of(&self, options: &ReadOptions, seed: usize, awaited: bool) -> Vec<Read> {
        let keys = self.batch(seed);
        let family = self.db.default_column_family();
        let results = if awaited {
            foreign_block_on(self.db.multi_get_cf_async(options, family, &keys))
        } else {
            self.db.multi_get_cf(options, family, &keys)
        };
        assert!(results.iter().all(|result| result.as_ref().unwrap().is_some()));
        self.waves.take_reads()
    }
}

#[test]
fn a_cold_batch_with_partitioned_metadata_takes_its_dependent_hops() {
    with_ever_slower_reads(|| {
        // Hops: partitions of filter and index, then data; one more for keys that their newest
        // candidate file turns out to lack.
        let cold = cold(PARTITIONED, 64 << 20);
        let defaults = ReadOptions::default();
        let (waves, reads) = cold.read(&defaults, 0, false);
        assert!((2..=3).contains(&waves), "{waves} round trips for {reads} reads");
        // Neighbouring blocks are read together, so there are fewer reads than blocks, but more
        // than the 64 data blocks that the keys are in.
        assert!(reads > 64, "{reads} reads: the metadata was not cold");
        let (waves, reads) = cold.read(&defaults, 17, true);
        assert!(waves <= 3, "{waves} round trips for {reads} reads");
        // The second read of these keys finds all blocks in the cache.
        assert_eq!(cold.read(&defaults, 17, true), (0, 0));
    });
}

#[test]
fn nothing_is_fetched_twice_without_a_cache() {
    with_ever_slower_reads(|| {
        let cold = cold(PARTITIONED, 0);
        for awaited in [true, false] {
            let reads = cold.reads_of(&ReadOptions::default(), 0, awaited);
            let waves = waves(&reads);
            assert!(waves <= 3, "{waves} round trips for {reads:?}");
            // The number of reads is not fixed, because adjacent blocks are read together only if
            // both are wanted at that moment.
            for (i, read) in reads.iter().enumerate() {
                let twice = reads[..i].iter().find(|other| other.overlaps(read));
                assert!(twice.is_none(), "{read:?} and {twice:?}");
            }
        }
    });
}

#[test]
fn filter_and_index_are_read_together_where_filters_let_keys_pass() {
    with_ever_slower_reads(|| {
        let partitioned = [PARTITIONED, &["--pin_top_level_index_and_filter=true"]].concat();
        for (flags, most_reads) in [(&[][..], 2), (&partitioned, 3)] {
            let cold = uncached(flags);
            let get = |key: &[u8]| assert!(cold.db.get(key).unwrap().is_some());
            let absent = |key: &[u8]| assert!(cold.db.get([key, b"!"].concat()).unwrap().is_none());
            let batch = cold.batch(0);
            get(batch[3]);
            assert_eq!(cold.waves.take(), (3, 3), "{flags:?}: nothing is known yet");
            // Lookups after the batch use the filter statistics that it gathered.
            cold.read(&ReadOptions::default(), 0, false);
            get(batch[3]);
            let (waves, reads) = cold.waves.take();
            assert!(waves == 2 && reads <= most_reads, "{flags:?}: {waves} round trips, {reads} reads");
            let family = cold.db.default_column_family();
            let one_by_one = ReadOptions { async_io: false, ..ReadOptions::default() };
            assert!(cold.db.get_cf(&one_by_one, family, batch[3]).unwrap().is_some());
            assert_eq!(cold.waves.take(), (3, 3), "{flags:?}: who wants one read at a time gets no other");
            absent(batch[3]);
            absent(batch[5]);
            cold.waves.take();
            absent(batch[7]);
            assert_eq!(cold.waves.take(), (1, 1), "{flags:?}: it is open again what the filter will say");
        }
    });
}

#[test]
fn without_a_cache_metadata_is_shared_with_lookups_that_wait() {
    with_ever_slower_reads(|| {
        let cold = uncached(&[]);
        let key = cold.batch(0)[3];
        let other = cold.keys.iter().rfind(|other| &other[..] < key).unwrap();
        let env = cold.db.env().clone();
        karst_io::block_on(&env, async {
            let early = cold.db.get_async(key);
            let late = async {
                // By now the first lookup has its filter and its index, and waits for data.
                karst_io::sleep(&env, READ.get() * 5 / 2).await;
                cold.db.get_async(other).await
            };
            let (mut early, mut late) = (pin!(early), pin!(late));
            let (mut first, mut second) = (None, None);
            std::future::poll_fn(|cx| {
                for (future, out) in [
                    (early.as_mut() as Pin<&mut dyn Future<Output = _>>, &mut first),
                    (late.as_mut(), &mut second),
                ] {
                    if out.is_none()
                        && let Poll::Ready(value) = future.poll(cx)
                    {
                        *out = Some(value.unwrap().is_some());
                    }
                }
                if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!((first, second), (Some(true), Some(true)));
        });
        let (_, reads) = cold.waves.take();
        assert!((3..=4).contains(&reads), "{reads} reads: filter, index and data, and data");
        // Nothing stays in memory afterwards.
        assert!(cold.db.get(key).unwrap().is_some());
        assert_eq!(cold.waves.take().1, 3);
    });
}

#[test]
fn a_cold_batch_with_metadata_in_memory_takes_one_round_trip() {
    with_ever_slower_reads(|| {
        let cold = cold(&[], 64 << 20);
        let (waves, reads) = cold.read(&ReadOptions::default(), 0, false);
        assert!(waves <= 2, "{waves} round trips for {reads} reads");
        assert!((48..=80).contains(&reads), "{reads} reads for 64 keys");
    });
}

#[test]
fn where_a_filter_is_often_wrong_the_next_file_is_read_at_the_same_time() {
    with_ever_slower_reads(|| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new()
        .db(|db| db.create_if_missing = true)
        .set_all("format_version=5;filter_policy=bloomfilter:2:false;disable_auto_compactions=true;compression=kNoCompression")
        .unwrap();
        let key = |number: u32| format!("key{number:05}").into_bytes();
        let db = Db::open(directory.path(), &options).unwrap();
        (0..20_000).for_each(|number| db.put(key(number), [b'a'; 100]).unwrap());
        db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
        // One key in 67 has a newer version. The filter of its file passes every fourth key that
        // the file lacks.
        (0..300).for_each(|number| db.put(key(number * 67 + 1), [b'b'; 2000]).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
        drop(db);
        let cold = opened(directory, 64 << 20, false);
        assert_eq!(cold.read(&ReadOptions::default(), 0, false).0, 2, "nothing is known yet");
        let (waves, reads) = cold.read(&ReadOptions::default(), 150, false);
        assert_eq!(waves, 1, "{reads} reads");
        assert!((65..110).contains(&reads), "{reads} reads: one for each key, and those in vain");
        // If the newer file has the key, its value is returned, whichever read completes first.
        let newer: Vec<_> = (0..30).map(|number| key(number * 670 + 1)).collect();
        let values = cold.db.multi_get(&newer);
        assert!(values.iter().all(|value| value.as_ref().unwrap().as_ref().unwrap()[..] == [b'b'; 2000]));
        assert_eq!(cold.waves.take().0, 1);
        // By now most answers of the filter have been right.
        assert_eq!(cold.read(&ReadOptions::default(), 250, false).0, 2);
    });
}

/// Each file has an operand of the key, at a different offset.
#[test]
fn blocks_of_files_with_operands_are_read_at_the_same_time() {
    with_ever_slower_reads(|| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new()
            .db(|db| db.create_if_missing = true)
            .set_all("merge_operator=uint64add;disable_auto_compactions=true;compression=kNoCompression")
            .unwrap();
        let db = Db::open(directory.path(), &options).unwrap();
        for file in 0..4 {
            (0..file * 200).for_each(|number| db.put(format!("before{number:05}"), [b'a'; 100]).unwrap());
            db.merge("key", 1u64.to_le_bytes()).unwrap();
            db.flush(&FlushOptions::default()).unwrap();
        }
        drop(db);
        let cold = opened_with(directory, vec![b"key".to_vec()], 64 << 20, false);
        let value = cold.db.multi_get(&cold.keys).remove(0).unwrap().unwrap();
        assert_eq!(value[..], 4u64.to_le_bytes());
        // The first round trip reveals that the newest entry is an operand.
        assert_eq!(cold.waves.take(), (2, 4));
    });
}

#[test]
fn a_scan_that_waits_reads_further_and_further_ahead() {
    with_ever_slower_reads(|| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().db(|db| db.create_if_missing = true);
        let db = Db::open(directory.path(), &options.set("compression", "kNoCompression").unwrap()).unwrap();
        (0..20_000).for_each(|number| db.put(format!("{number:05}"), [b'a'; 100]).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
        drop(db);
        let cold = opened_with(directory, Vec::new(), 64 << 20, false);
        let options = ReadOptions { readahead_size: 64 << 10, ..ReadOptions::default() };
        let mut scan = cold.db.iter(&options).unwrap();
        scan.seek_to_first().unwrap();
        let mut entries = 0;
        while scan.valid() {
            entries += 1;
            scan.next().unwrap();
        }
        assert_eq!(entries, 20_000);
        let (waves, reads) = cold.waves.take();
        assert!(waves < 12, "{waves} round trips for {reads} reads of two megabytes");
    });
}

#[test]
fn without_async_io_files_are_read_one_after_another_and_the_blocks_of_one_together() {
    with_ever_slower_reads(|| {
        let cold = cold(&[], 64 << 20);
        let serial = ReadOptions { async_io: false, ..ReadOptions::default() };
        let reads = cold.reads_of(&serial, 5, false);
        let files: std::collections::BTreeSet<_> = reads.iter().map(|read| &read.path).collect();
        assert!(
            files.len() > 1 && reads.len() > 2 * files.len(),
            "{} reads of {} files",
            reads.len(),
            files.len()
        );
        for (i, read) in reads.iter().enumerate() {
            let other = reads[..i]
                .iter()
                .find(|other| other.path != read.path && read.issued - other.issued < READ.get());
            assert!(other.is_none(), "{read:?} and {other:?}");
        }
        // The blocks of one file are read together, in one round trip per visit to the file.
        let waves = waves(&reads);
        assert!(waves <= 4 * files.len() && waves < reads.len(), "{waves} round trips for {reads:?}");
    });
}

#[test]
fn level_by_level_takes_a_round_trip_more_for_every_level() {
    with_ever_slower_reads(|| {
        let cold = cold(PARTITIONED, 64 << 20);
        let by_level = ReadOptions { optimize_multiget_for_io: false, ..ReadOptions::default() };
        let (by_levels, reads_by_level) = cold.read(&by_level, 5, false);
        let cold = self::cold(PARTITIONED, 64 << 20);
        let (at_once, reads_at_once) = cold.read(&ReadOptions::default(), 5, false);
        assert!(
            at_once < by_levels,
            "{by_levels} round trips for {reads_by_level} reads, {at_once} for {reads_at_once}"
        );
    });
}
