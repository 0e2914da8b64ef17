//! Memory of a process whose database has one budget (`Options::one_memory_budget`), under
//! concurrent writers, readers, scans, flushes and compactions.
//!
//! `cargo run --release -p karst-tools --example memory_budget DIRECTORY BUDGET_MIB SECONDS [KEYS
//! [OPTIONS]]`
//!
//! Once a second it samples the process's memory (`/proc/self/smaps_rollup`) and its parts. It
//! prints the largest sample, every sixtieth one, and the largest mappings. The directory's
//! database is created anew. The allocator is that of the tools. docs/decisions/memory-budget.md
//! has the results.

use karst_engine::{
    BlockCache, Db, FlushOptions, Options, ReadOptions, Statistics, StatsLevel, WriteBufferManager,
};
use karst_io::Env;
use karst_testkit::dataset::db_bench_key;
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tikv_jemalloc_ctl::{epoch, stats};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MIB: usize = 1 << 20;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
const SCANNERS: u64 = 2;
const VALUE_BYTES: usize = 1000;

/// Returns the numbers of `KEY: N kB` lines of a file of procfs, in bytes.
fn numbers(file: &str) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(file).expect("procfs");
    let line = |line: &str| {
        let (key, rest) = line.split_once(':')?;
        let number: usize = rest.split_whitespace().next()?.parse().ok()?;
        Some((key.to_owned(), if rest.ends_with("kB") { number << 10 } else { number }))
    };
    text.lines().filter_map(line).collect()
}

/// Memory of the process at a moment, in bytes.
#[derive(Clone, Debug, Default)]
struct Sample {
    second: u64,
    rss: usize,
    anonymous: usize,
    huge: usize,
    /// Bytes charged to the budget.
    charged: usize,
    memtables: usize,
    tables: usize,
    reads: usize,
    jobs: usize,
    pinned: usize,
    /// Not charged: memory of channels for reads.
    channels: usize,
    /// Blocks kept for the next memtables.
    stock: usize,
    /// Bytes that the allocator has given out, the resident bytes of those allocations, and all of
    /// its resident bytes.
    heap_used: usize,
    heap_active: usize,
    heap_resident: usize,
    threads: usize,
}

impl Sample {
    fn take(second: u64, cache: &BlockCache, env: &Env) -> Self {
        let rollup = numbers("/proc/self/smaps_rollup");
        // The statistics are those of the last epoch.
        epoch::advance().expect("statistics");
        Self {
            second,
            rss: rollup["Rss"],
            anonymous: rollup["Anonymous"],
            huge: rollup["AnonHugePages"],
            charged: cache.usage_bytes(),
            memtables: cache.memtable_bytes(),
            tables: cache.table_bytes(),
            reads: cache.read_bytes(),
            jobs: cache.job_bytes(),
            pinned: cache.pinned_bytes(),
            channels: usize::try_from(env.io_stats().buffer_bytes).unwrap_or_default(),
            stock: WriteBufferManager::stock_bytes(),
            heap_used: stats::allocated::read().expect("statistics"),
            heap_active: stats::active::read().expect("statistics"),
            heap_resident: stats::resident::read().expect("statistics"),
            threads: numbers("/proc/self/status")["Threads"],
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / MIB as f64;
        let blocks = self.charged.saturating_sub(self.memtables + self.tables + self.reads + self.jobs);
        write!(
            f,
            "{:4} s: rss {:.0} (anonymous {:.0}, of it huge {:.0}) | charged {:.0} (blocks {:.0}, pinned {:.0}; memtables {:.0}, tables {:.1}, reads {:.1}, jobs {:.1}) | \
             stock {:.0}, channels {:.1} | heap used {:.0}, active {:.0}, resident {:.0} | {} threads",
            self.second,
            mib(self.rss),
            mib(self.anonymous),
            mib(self.huge),
            mib(self.charged),
            mib(blocks),
            mib(self.pinned),
            mib(self.memtables),
            mib(self.tables),
            mib(self.reads),
            mib(self.jobs),
            mib(self.stock),
            mib(self.channels),
            mib(self.heap_used),
            mib(self.heap_active),
            mib(self.heap_resident),
            self.threads,
        )
    }
}

/// Returns the mappings with the most resident memory, as the operating system lists them.
fn largest_mappings() -> Vec<(usize, String)> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let (mut all, mut head) = (Vec::new(), String::new());
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            head = line.to_owned();
        } else if let Some(rest) = line.strip_prefix("Rss:") {
            let kib: usize = rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
            all.push((kib << 10, head.clone()));
        }
    }
    all.sort_by(|a, b| b.cmp(a));
    all
}

struct Load<'a> {
    db: &'a Db,
    keys: u64,
    end: Instant,
    done: [AtomicU64; 3],
}

impl Load<'_> {
    fn goes_on(&self, kind: usize) -> bool {
        self.done[kind].fetch_add(1, Ordering::Relaxed);
        Instant::now() < self.end
    }

    fn write(&self, writer: u64) {
        let mut random = Random::new(writer * 7919 + 17);
        let pool = random.bytes(MIB);
        while self.goes_on(0) {
            let at = random.index(MIB - VALUE_BYTES);
            let key = db_bench_key(random.below(self.keys));
            self.db.put(key, &pool[at..at + VALUE_BYTES]).expect("a write");
        }
    }

    fn read(&self, reader: u64) {
        let mut random = Random::new(reader * 31 + 5);
        while self.goes_on(1) {
            drop(self.db.get(db_bench_key(random.below(self.keys))).expect("a read"));
        }
    }

    fn scan(&self, scanner: u64) {
        let mut random = Random::new(scanner * 101 + 3);
        while self.goes_on(2) {
            let mut iter = self.db.iter(&ReadOptions::default()).expect("an iterator");
            iter.seek(db_bench_key(random.below(self.keys))).expect("a seek");
            for _ in 0..random.below(20_000) {
                if !iter.valid() {
                    break;
                }
                iter.next().expect("a step");
            }
        }
    }

    fn flush(&self) {
        while Instant::now() + Duration::from_secs(7) < self.end {
            std::thread::sleep(Duration::from_secs(7));
            self.db.flush(&FlushOptions::default()).expect("a flush");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, budget, seconds, rest @ ..] = &arguments[..] else {
        panic!("DIRECTORY BUDGET_MIB SECONDS [KEYS [OPTIONS]]")
    };
    let budget_bytes = budget.parse::<usize>().expect("MiB") * MIB;
    let seconds: u64 = seconds.parse().expect("seconds");
    let keys: u64 = rest.first().map_or(1_500_000, |keys| keys.parse().expect("keys"));
    let path = Path::new(directory);
    let _ = std::fs::remove_dir_all(path);
    let (env, cache) = (Env::posix(), BlockCache::new(budget_bytes));
    let before = Sample::take(0, &cache, &env);
    println!("before: {before}");
    let options = Options::new()
        .env(env.clone())
        .block_cache(cache.clone())
        .one_memory_budget(true)
        .statistics(Arc::new(Statistics::new(StatsLevel::ExceptTimers)))
        .set_all("max_background_jobs=4;block_based_table_factory={filter_policy=bloomfilter:10:false;}")
        .and_then(|options| options.set_all(rest.get(1).map_or("", String::as_str)))
        .expect("options")
        .db(|db| db.create_if_missing = true);
    let db = Db::open(path, &options).expect("a database");
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let load = Load { db: &db, keys, end, done: Default::default() };
    let mut most = before;
    let mut mappings = Vec::new();
    std::thread::scope(|scope| {
        let load = &load;
        (0..WRITERS).for_each(|writer| drop(scope.spawn(move || load.write(writer))));
        (0..READERS).for_each(|reader| drop(scope.spawn(move || load.read(reader))));
        (0..SCANNERS).for_each(|scanner| drop(scope.spawn(move || load.scan(scanner))));
        scope.spawn(|| load.flush());
        for second in 1.. {
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            let sample = Sample::take(second, &cache, &env);
            if second % 60 == 0 {
                println!("{sample}");
            }
            if sample.rss > most.rss {
                (most, mappings) = (sample, largest_mappings());
            }
        }
    });
    let counts = load.done.each_ref().map(|n| n.load(Ordering::Relaxed));
    println!("{} puts, {} gets, {} scans; {} bytes in tables", counts[0], counts[1], counts[2], {
        db.int_property("rocksdb.total-sst-files-size").unwrap_or_default()
    });
    println!("most: {most}");
    for (bytes, mapping) in mappings.iter().take(12) {
        println!("  {:7.1} MiB {mapping}", *bytes as f64 / MIB as f64);
    }
    db.close().expect("closed");
    println!("closed: {}", Sample::take(seconds, &cache, &env));
    drop(db);
    std::fs::remove_dir_all(path).expect("removed");
}
