//! Memory other than blocks that is charged to the block cache: blocks are evicted for it and may
//! use the room again later.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::{
    BlockCache, BottommostLevelCompaction, CacheOptions, CompactRangeOptions, CompactionFilter, Db,
    FlushOptions, Options, ReadOptions, Statistics, StatsLevel, Ticker, WaitForCompactOptions,
    WriteBufferManager, WriteOptions,
};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_testkit::eventually;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;

fn fill(db: &Db, keys: std::ops::Range<u64>) {
    for number in keys {
        db.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    }
}

#[test]
fn memtables_evict_blocks_and_give_the_room_back() {
    let env = in_memory();
    let cache = BlockCache::new(4 * MIB);
    let budget = WriteBufferManager::with_cache(0, &cache, false);
    let options = Options::new()
        .env(env)
        .block_cache(cache.clone())
        .write_buffer_manager(budget.clone())
        .set("compression", "kNoCompression")
        .unwrap()
        .db(|db| db.create_if_missing = true);
    let db = Db::open(Path::new("/db"), &options).unwrap();
    fill(&db, 0..5000);
    // Above the capacity, because memtables cannot be evicted.
    assert!(cache.memtable_bytes() > 4 * MIB, "{cache:?}");
    assert_eq!((cache.memtable_bytes(), cache.usage_bytes()), (budget.used_bytes(), budget.used_bytes()));
    db.flush(&FlushOptions::default()).unwrap();
    // Here and below, a job that has just ended may hold the last reference to a memtable.
    eventually(true, || cache.memtable_bytes() < MIB / 4);
    for number in 0..5000u64 {
        assert!(db.get(number.to_be_bytes()).unwrap().is_some());
    }
    let read = (cache.memtable_bytes(), cache.usage_bytes());
    assert_eq!(read.0, budget.used_bytes());
    assert!(read.0 < MIB / 4 && read.1 > 3 * MIB && read.1 <= 4 * MIB, "{read:?}");
    fill(&db, 0..2000);
    let written = (cache.memtable_bytes(), cache.usage_bytes());
    assert_eq!(written.0, budget.used_bytes());
    assert!(written.0 > 3 * MIB / 2 && written.1 > 3 * MIB && written.1 <= 4 * MIB, "{written:?}");
    drop(db);
    eventually((0, 0), || (cache.memtable_bytes(), budget.used_bytes()));
    assert!(cache.usage_bytes() < 2 * MIB + MIB / 4, "blocks only: {cache:?}");
}

fn new_db(env: &Env, cache: &BlockCache, one_budget: bool, options: &str) -> Db {
    let options = Options::new()
        .env(env.clone())
        .block_cache(cache.clone())
        .one_memory_budget(one_budget)
        .statistics(Arc::new(Statistics::new(StatsLevel::ExceptTimers)))
        .db(|db| db.create_if_missing = true)
        .set_all(options)
        .unwrap();
    Db::open(Path::new("/db"), &options).unwrap()
}

/// Writes 5,000 entries of 1 KB to tables, and the first 300 to a memtable too.
fn with_tables(env: &Env, cache: &BlockCache, one_budget: bool) -> Db {
    // `db_write_buffer_size` bounds memtables and is not reached, so they take equal space under
    // every capacity.
    let options = "compression=kNoCompression;write_buffer_size=4000000;db_write_buffer_size=8000000;filter_policy=bloomfilter:10";
    let db = new_db(env, cache, one_budget, options);
    fill(&db, 0..5000);
    // Compacts all tables and waits until no job is left, because later jobs would read and flush
    // too.
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    fill(&db, 0..300);
    db
}

fn in_memory() -> Env {
    let files = MemoryFileSystem::new();
    files.create_dir(Path::new("/db")).unwrap();
    Env::builder().file_system(Arc::new(files)).build()
}

#[test]
fn one_budget_counts_memtables_and_what_open_tables_keep() {
    let (env, cache) = (in_memory(), BlockCache::new(4 * MIB));
    let db = with_tables(&env, &cache, true);
    assert!(cache.memtable_bytes() > 300_000, "{cache:?}");
    for number in 0..5000u64 {
        assert!(db.get(number.to_be_bytes()).unwrap().is_some());
    }
    // Tables that a compaction has replaced may stay open for a moment.
    let open = || db.int_property("rocksdb.estimate-table-readers-mem").unwrap() as usize;
    eventually(true, || open() > 5000 && cache.table_bytes() == open());
    assert_eq!(cache.read_bytes(), 0);
    assert!(cache.usage_bytes() <= 4 * MIB, "{cache:?}");
    drop(db);
    eventually((0, 0), || (cache.memtable_bytes(), cache.table_bytes()));

    let (env, cache) = (in_memory(), BlockCache::new(4 * MIB));
    let db = with_tables(&env, &cache, false);
    assert!(db.get(1u64.to_be_bytes()).unwrap().is_some());
    assert_eq!((cache.memtable_bytes(), cache.table_bytes()), (0, 0), "nothing but blocks counts by default");
}

/// Delay of each read in milliseconds.
#[derive(Debug)]
struct Slow(AtomicU64);

impl Disturb for Slow {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        let delay = Some(self.0.load(Ordering::Relaxed)).filter(|ms| *ms > 0).map(Duration::from_millis);
        Some(Disturbance { delay, ..Disturbance::default() })
    }
}

#[test]
fn one_budget_counts_reads_while_they_are_in_flight() {
    let memory = MemoryFileSystem::new();
    memory.create_dir(Path::new("/db")).unwrap();
    let files = DisturbedFileSystem::new(Arc::new(memory), Slow(AtomicU64::new(0)));
    let slow = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let cache = BlockCache::new(4 * MIB);
    let db = with_tables(&env, &cache, true);
    let most_of = |key: u64| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| db.get(key.to_be_bytes()).unwrap().is_some());
            let mut most = 0;
            while !reader.is_finished() {
                most = most.max(cache.read_bytes());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(reader.join().unwrap());
            most
        })
    };
    // Ever slower reads, until this thread has sampled while one was in flight. Each round reads
    // another block.
    let mut rounds = (0..8).map(|round| {
        slow.0.store(100 << round, Ordering::Relaxed);
        most_of(4000 - 400 * round)
    });
    let most = rounds.find(|most| *most > 0);
    assert!(most.is_some_and(|most| (4000..10_000).contains(&most)), "one block: {most:?} bytes");
    assert_eq!(cache.read_bytes(), 0);
}

#[test]
fn iterators_read_ahead_within_the_budget() {
    for strict_capacity in [false, true] {
        let env = in_memory();
        let cache = BlockCache::with_options(CacheOptions {
            capacity_bytes: 4 * MIB,
            strict_capacity,
            ..CacheOptions::default()
        });
        let db = with_tables(&env, &cache, true);
        let far = ReadOptions { readahead_size: MIB, ..ReadOptions::default() };
        let mut iterators: Vec<_> = (0..32).map(|_| db.iter(&far).unwrap()).collect();
        iterators.iter_mut().for_each(|iter| iter.seek_to_first().unwrap());
        let (mut most, mut read) = (0, 0);
        while iterators[0].valid() {
            for iter in &mut iterators {
                (0..100).for_each(|_| iter.next().unwrap());
                most = most.max(cache.read_bytes());
                read += 100;
            }
        }
        assert_eq!(read, 32 * 5000);
        // Half of the capacity for the first iterators; each of the others takes one request, in
        // addition to the request in whose last block it is positioned.
        let requests = 32 * 2 * (72 << 10);
        assert!((MIB..2 * MIB + requests).contains(&most), "{most} bytes ahead");
        drop(iterators);
        assert_eq!(cache.read_bytes(), 0);
    }
}

/// Scans all entries with a readahead of 1 MiB. Returns the maximum of bytes that the scan held in
/// memory, and the number of useful bytes that were read ahead.
fn scan(db: &Db, cache: &BlockCache) -> (usize, u64) {
    let far = ReadOptions { readahead_size: MIB, fill_cache: false, ..ReadOptions::default() };
    let mut iter = db.iter(&far).unwrap();
    let ahead = || db.statistics().ticker(Ticker::PrefetchBytesUseful);
    let (before, mut most, mut read) = (ahead(), 0, 0);
    iter.seek_to_first().unwrap();
    while iter.valid() {
        (most, read) = (most.max(cache.read_bytes()), read + 1);
        iter.next().unwrap();
    }
    assert_eq!(read, 5000);
    (most, ahead() - before)
}

#[test]
fn a_scan_reads_as_far_ahead_as_there_is_room_and_never_stops_to() {
    let all = 4_900_000;
    for (capacity, most) in [
        // The wanted readahead, which grows to 4 MiB when the scan has to wait.
        (64 * MIB, MIB..5 * MIB),
        // Half of the capacity, less the memtable's 300 KB.
        (2 * MIB, 300_000..MIB + MIB / 8),
        // No room: one request, in addition to the request in whose last block the scan is
        // positioned.
        (MIB / 2, 60_000..150_000),
    ] {
        let cache = BlockCache::new(capacity);
        let db = with_tables(&in_memory(), &cache, true);
        let (held, ahead) = scan(&db, &cache);
        assert!(most.contains(&held) && ahead > all, "{capacity}: {held} bytes held, {ahead} read ahead");
        assert_eq!(cache.read_bytes(), 0);
    }
    let cache = BlockCache::new(MIB / 2);
    let db = with_tables(&in_memory(), &cache, false);
    let (held, ahead) = scan(&db, &cache);
    assert!(held == 0 && ahead > all, "without the option: {held} bytes held, {ahead} read ahead");
}

#[test]
fn blob_values_that_are_hidden_do_not_stop_a_scan_from_reading_ahead() {
    let cache = BlockCache::new(MIB / 2);
    let db = new_db(&in_memory(), &cache, true, "enable_blob_files=true;write_buffer_size=64000000");
    fill(&db, 0..5000);
    db.flush(&FlushOptions::default()).unwrap();
    for number in (0..5000u64).step_by(10) {
        db.put(number.to_be_bytes(), [0; 1000]).unwrap();
    }
    let (_, ahead) = scan(&db, &cache);
    // The 500 values hidden by the memtable are read in vain; almost all others are read ahead.
    assert!(ahead > 4_000_000, "{ahead} bytes of 4.5 million");
    drop(db);
    eventually(0, || cache.read_bytes());
}

/// Filter that keeps all entries and records the maximum memory of jobs.
#[derive(Debug)]
struct Watch(BlockCache, AtomicUsize);

impl CompactionFilter for Watch {
    fn name(&self) -> &str {
        "Watch"
    }

    fn filter(&self, _: u32, _: &[u8], _: FilterInput<'_>) -> FilterDecision {
        self.1.fetch_max(self.0.job_bytes(), Ordering::Relaxed);
        FilterDecision::Keep
    }
}

#[test]
fn one_budget_counts_what_jobs_have_in_memory_of_the_files_they_write() {
    for one_budget in [true, false] {
        let cache = BlockCache::new(64 * MIB);
        let watch = Arc::new(Watch(cache.clone(), AtomicUsize::new(0)));
        let options = Options::new()
            .env(in_memory())
            .block_cache(cache.clone())
            .one_memory_budget(one_budget)
            .compaction_filter(None, watch.clone())
            .set_all("create_if_missing=true;compression=kNoCompression;disable_auto_compactions=true")
            .unwrap();
        let db = Db::open(Path::new("/db"), &options).unwrap();
        fill(&db, 0..8000);
        db.flush(&FlushOptions::default()).unwrap();
        let all = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
            ..CompactRangeOptions::default()
        };
        db.compact_range(&all, None::<&[u8]>, None::<&[u8]>).unwrap();
        // A job's buffers grow with its file, of 8 MB, up to the part of the file that is in
        // memory.
        let most = if one_budget { 4 * MIB } else { 0 };
        assert_eq!(watch.1.load(Ordering::Relaxed), most);
        eventually(0, || cache.job_bytes());
    }
}

/// Creates `families` families under one budget of `cache`; their write buffer sizes alone would
/// never fill a memtable.
fn with_families(env: &Env, cache: &BlockCache, families: usize) -> (Db, Vec<karst_engine::ColumnFamily>) {
    let db = new_db(env, cache, true, "compression=kNoCompression");
    let names: Vec<String> = (0..families).map(|n| format!("family {n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    db.create_column_families(&names, &Options::new()).unwrap();
    let families = names.iter().map(|name| db.column_family(name).unwrap()).collect();
    (db, families)
}

#[test]
fn one_budget_bounds_the_memtables_of_many_families() {
    const FAMILIES: usize = 40;
    let (env, cache) = (in_memory(), BlockCache::new(16 * MIB));
    let (db, families) = with_families(&env, &cache, FAMILIES);
    // Each memtable may have grown by less than one unit of accounting, and allocates one block at
    // a time.
    let slack = FAMILIES * (64 << 10);
    let check = |limit: usize| {
        let bytes = db.aggregated_int_property("rocksdb.cur-size-all-mem-tables").unwrap() as usize;
        assert!(bytes < limit + slack, "{bytes} bytes of memtables with a budget of {limit}");
    };
    let write = |rounds: std::ops::Range<u64>, limit: usize| {
        for i in rounds {
            let family = &families[i as usize % FAMILIES];
            let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            db.put_cf(&WriteOptions::unlogged(), family, key, [7; 4096]).unwrap();
            if i % 64 == 0 {
                check(limit);
            }
        }
    };
    write(0..12_000, 8 * MIB);
    // The bound is a share of the cache's current capacity.
    cache.set_capacity(8 * MIB);
    write(12_000..14_000, 8 * MIB);
    write(14_000..20_000, 4 * MIB);
}

/// Memtables that an iterator pins are flushed and stay in memory; the iterating thread can still
/// write.
#[test]
fn a_thread_that_iterates_is_not_held_up_by_what_it_pins() {
    let (env, cache) = (in_memory(), BlockCache::new(4 * MIB));
    let (db, families) = with_families(&env, &cache, 1);
    let put =
        |i: u64| db.put_cf(&WriteOptions::unlogged(), &families[0], i.to_be_bytes(), [7; 4096]).unwrap();
    // 1.6 MiB, below the 2 MiB that memtables may use.
    (0..400).for_each(put);
    let mut iter = db.iter_cf(&ReadOptions::default(), &families[0]).unwrap();
    iter.seek_to_first().unwrap();
    let mut seen = 0;
    while iter.valid() {
        (1..=10).for_each(|n| put(10_000 + seen * 10 + n));
        iter.next().unwrap();
        seen += 1;
    }
    assert_eq!(seen, 400);
}
