//! `multi_get` of more keys than its window holds: the values returned, the number of reads in
//! flight, and batches that end early.

use karst_engine::io::MemoryFileSystem;
use karst_engine::{
    BlockCache, ColumnFamily, CompactRangeOptions, Db, ErrorKind, FlushOptions, HistogramKind, Options,
    ReadOptions, Result, Statistics, StatsLevel, Value,
};
use karst_io::testing::{foreign_block_on, poll_times, quiesce};
use karst_io::{Clock, Disturb, Disturbance, DisturbedFileSystem, Env, SystemClock, block_on};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of keys of a batch that wait for storage at a time.
const WINDOW: u64 = 128;

/// Number of keys in a batch that fills the window several times.
const COUNT: usize = 500;

/// Counts reads; the clock `ByReads` advances by one millisecond at each of them.
#[derive(Debug, Default)]
struct Reads(AtomicU64);

impl Reads {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Disturb for Reads {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[derive(Debug)]
struct ByReads(Arc<Reads>);

impl Clock for ByReads {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.count())
    }

    fn unix_time(&self) -> Duration {
        SystemClock::default().unix_time()
    }
}

/// Larger than a block, and larger than the widest gap in a file over which two blocks are read
/// together.
const VALUE: [u8; 5000] = [7; 5000];

fn key(number: usize) -> String {
    format!("key{number:06}")
}

/// Returns every other key of a table that has one block per key, so that no two of them are read
/// together. Their order differs from that of the table.
fn distant_keys(count: usize) -> Vec<String> {
    (0..count).map(|index| key(index * 7 % count * 2)).collect()
}

/// A database with only its metadata in memory.
struct Cold {
    db: Db,
    statistics: Arc<Statistics>,
    reads: Arc<Reads>,
    cache: BlockCache,
}

/// Returns a table with the distant keys and one key after each, and a cache of capacity 0.
fn cold() -> Cold {
    let files = MemoryFileSystem::new();
    let options = |env| {
        let all = "block_size=512;compression=kNoCompression;disable_auto_compactions=true";
        Options::new().env(env).db(|db| db.create_if_missing = true).set_all(all).unwrap()
    };
    let filling = Env::builder().file_system(Arc::new(files.clone())).build();
    let db = Db::open("/db", &options(filling)).unwrap();
    (0..COUNT * 2).for_each(|number| db.put(key(number), VALUE).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.close().unwrap();
    let disturbed = DisturbedFileSystem::new(Arc::new(files), Reads::default());
    let reads = disturbed.between().clone();
    let clock = Arc::new(ByReads(reads.clone()));
    let env = Env::builder().file_system(Arc::new(disturbed)).clock(clock).build();
    let (statistics, cache) = (Arc::new(Statistics::new(StatsLevel::All)), BlockCache::new(0));
    let options = options(env).statistics(statistics.clone()).block_cache(cache.clone());
    let db = Db::open_read_only("/db", &options).unwrap();
    // Opens the table.
    assert!(db.get(key(1)).unwrap().is_some());
    reads.0.store(0, Ordering::Relaxed);
    Cold { db, statistics, reads, cache }
}

fn all_found(answers: &[Result<Option<Value>>]) -> bool {
    answers.iter().all(|answer| answer.as_ref().unwrap().as_deref() == Some(&VALUE[..]))
}

#[test]
fn what_is_in_flight_does_not_grow_with_the_batch() {
    let keys = distant_keys(COUNT);
    let Cold { db, statistics, reads, .. } = cold();
    let in_flight = || statistics.histogram(HistogramKind::MultigetIoBatchSize);
    let mut answers = db.multi_get(&keys[..64]);
    assert_eq!(in_flight().max(), 64, "a small batch is read at once");
    answers.extend(db.multi_get(&keys[64..]));
    assert!(all_found(&answers));
    assert_eq!(reads.count(), COUNT as u64, "each block is read once");
    assert_eq!(in_flight().max(), WINDOW);
    // The window fills once and then by halves.
    let launches = in_flight().count();
    assert!(launches < 12, "{launches} times reads were started");
}

#[test]
fn a_batch_that_is_dropped_at_any_poll_leaves_nothing() {
    let keys = distant_keys(COUNT);
    let Cold { db, cache, .. } = cold();
    let mut given_up = 0;
    for polls in 1.. {
        let ended = block_on(db.env(), async {
            let mut batch = pin!(db.multi_get_async(&keys));
            let ended = poll_times(batch.as_mut(), polls).await;
            let in_use = db.env().io_stats().slots_in_use as u64;
            assert!(in_use <= WINDOW, "{in_use} reads at a time");
            ended
        });
        quiesce(db.env());
        if let Some(answers) = ended {
            assert!(all_found(&answers));
            break;
        }
        given_up += 1;
        assert_eq!(cache.pinned_bytes(), 0, "after {polls} polls");
    }
    assert!(given_up > 0);
    assert!(all_found(&foreign_block_on(db.multi_get_async(&keys))));
    quiesce(db.env());
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn a_deadline_that_passes_ends_a_batch_though_its_reads_still_come() {
    let mut keys = distant_keys(COUNT);
    let Cold { db, reads, .. } = cold();
    let family = db.default_column_family();
    // A key outside of the table's range is answered without a read, at any place in the batch.
    keys.push("none".into());
    for awaited in [false, true] {
        let before = reads.count();
        let deadline = Some(db.env().now() + Duration::from_millis(250));
        let options = ReadOptions { deadline, ..ReadOptions::new() };
        let mut answers = if awaited {
            foreign_block_on(db.multi_get_cf_async(&options, family, &keys))
        } else {
            db.multi_get_cf(&options, family, &keys)
        };
        let reads = reads.count() - before;
        assert!(reads < 350, "{reads} reads, each a millisecond");
        assert_eq!(answers.pop().unwrap().unwrap(), None);
        let in_time = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((1..350).contains(&in_time), "{in_time} answers in a quarter of a second");
        for answer in answers {
            match answer {
                Ok(value) => assert_eq!(value.as_deref(), Some(&VALUE[..])),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
            }
        }
    }
}

#[test]
fn the_limit_on_the_bytes_of_values_holds_for_a_large_batch() {
    let keys = distant_keys(COUNT);
    let Cold { db, .. } = cold();
    let options = ReadOptions { value_size_soft_limit: 400 * VALUE.len() as u64, ..ReadOptions::new() };
    let answers = db.multi_get_cf(&options, db.default_column_family(), &keys);
    let full = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(full, 401, "values up to the first beyond the limit");
    let mut refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.all(|error| error.kind() == ErrorKind::LimitReached));
}

/// Writes values, blob values, merge operands, deletions and range deletions to two families on
/// several levels. The files remain in `files`.
fn fill(files: &MemoryFileSystem) {
    let env = Env::builder().file_system(Arc::new(files.clone())).build();
    let db = Db::open("/db", &mixed_options(env)).unwrap();
    let other = db.create_column_family("other", &mixed_options(db.env().clone())).unwrap();
    for family in [db.default_column_family(), &other] {
        let write = |kind: usize, step: usize| {
            let options = karst_engine::WriteOptions::new();
            for number in (kind..1000).step_by(step) {
                let length = if number % 3 == 0 { 300 } else { 8 };
                let value = vec![(number % 251) as u8 + kind as u8; length];
                match (number + kind) % 7 {
                    0 => db.delete_cf(&options, family, key(number)).unwrap(),
                    1 => db.merge_cf(&options, family, key(number), &value).unwrap(),
                    _ => db.put_cf(&options, family, key(number), &value).unwrap(),
                }
            }
        };
        write(0, 1);
        db.flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        db.compact_range_cf(&CompactRangeOptions::default(), family, None::<&[u8]>, None::<&[u8]>).unwrap();
        write(1, 3);
        let options = karst_engine::WriteOptions::new();
        db.delete_range_cf(&options, family, key(400), key(450)).unwrap();
        db.flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        write(2, 5);
        db.flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        write(3, 50);
    }
    db.close().unwrap();
}

fn mixed_options(env: Env) -> Options {
    let all = "merge_operator=stringappend;enable_blob_files=true;min_blob_size=100;block_size=512;\
               filter_policy=bloomfilter:10:false;disable_auto_compactions=true";
    Options::new().env(env).db(|db| db.create_if_missing = true).set_all(all).unwrap()
}

/// Returns 2,000 keys: most of the existing ones, some of them several times, and some missing
/// ones.
fn mixed_keys() -> Vec<String> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    (0..2000).map(|_| if next() % 5 == 0 { format!("none{}", next()) } else { key(next() % 1050) }).collect()
}

fn shown(answers: Vec<Result<Option<Value>>>) -> Vec<Option<Vec<u8>>> {
    answers.into_iter().map(|answer| answer.unwrap().map(|value| value.to_vec())).collect()
}

#[test]
fn each_answer_is_that_of_a_get_in_the_order_of_the_keys() {
    let files = MemoryFileSystem::new();
    fill(&files);
    let keys = mixed_keys();
    let modes = [(true, true, true), (false, true, true), (true, false, true), (true, true, false)];
    for (async_io, optimize_multiget_for_io, fill_cache) in modes {
        let options = ReadOptions { async_io, optimize_multiget_for_io, fill_cache, ..ReadOptions::new() };
        // Each database starts with an empty cache that is too small for all blocks.
        let open = || {
            let env = Env::builder().file_system(Arc::new(files.clone())).build();
            Db::open_read_only("/db", &mixed_options(env).block_cache_bytes(32 << 10)).unwrap()
        };
        let expected: [Vec<_>; 2] = {
            let db = open();
            ["default", "other"].map(|family| {
                let family = db.column_family(family).unwrap();
                shown(keys.iter().map(|key| db.get_cf(&options, &family, key)).collect())
            })
        };
        let found = expected[0].iter().flatten().count();
        assert!((800..1800).contains(&found), "{found} found");
        let mode = format!("async_io {async_io}, all levels {optimize_multiget_for_io}, fills {fill_cache}");
        for awaited in [false, true] {
            let db = open();
            let other = db.column_family("other").unwrap();
            let default = db.default_column_family();
            let in_one = if awaited {
                foreign_block_on(db.multi_get_cf_async(&options, &other, &keys))
            } else {
                db.multi_get_cf(&options, &other, &keys)
            };
            assert!(shown(in_one) == expected[1], "{mode}, one family, awaited {awaited}");
            // The keys alternate between the families irregularly.
            let of_key = |index: usize| usize::from(index.is_multiple_of(3));
            let families: Vec<&ColumnFamily> =
                (0..keys.len()).map(|index| [default, &other][of_key(index)]).collect();
            let in_both = if awaited {
                block_on(db.env(), db.multi_get_cfs_async(&options, &families, &keys))
            } else {
                db.multi_get_cfs(&options, &families, &keys)
            };
            let both: Vec<_> = (0..keys.len()).map(|index| expected[of_key(index)][index].clone()).collect();
            assert!(shown(in_both) == both, "{mode}, two families, awaited {awaited}");
        }
    }
}
