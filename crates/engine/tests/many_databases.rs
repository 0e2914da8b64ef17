//! Hundreds of databases open at once in one process (a thousand in the long form), and databases
//! that are opened and closed repeatedly: the resources of each while idle, and that none is left.
//!
//! Databases that share an [`Env`] share its threads, rings and drivers; each with an [`Env`] of
//! its own has its own of these.

use karst_engine::io::Env;
use karst_engine::{BottommostLevelCompaction, CompactRangeOptions, Db, FlushOptions, Options};
use karst_testkit::asked::long;
use karst_testkit::eventually;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serializes the tests of this file, because they count resources of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises this process's limit of descriptors to its maximum, and returns it.
fn raise_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes a limit of this process, through memory of ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur
}

/// Resources of this process.
#[derive(Clone, Copy, Debug)]
struct Has {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    memory_kib: u64,
}

fn has() -> Has {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    Has {
        descriptors: count("fd"),
        threads: threads(),
        mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
        memory_kib: memory.trim().trim_end_matches(" kB").parse().unwrap(),
    }
}

/// Returns the number of threads of this process without those of the test harness for the tests of
/// this file, because a waiting test may get its thread at any moment.
fn threads() -> usize {
    let tests = [
        "very_many_that_share_an_environment",
        "fifty_with_an_environment_each",
        "over_and_over_nothing_adds_up",
    ];
    let is_of_harness = |name: &str| !name.is_empty() && tests.iter().any(|test| test.starts_with(name));
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|thread| {
        // A thread may end between the listing and this read.
        std::fs::read_to_string(thread.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| !is_of_harness(name.trim_end())).count()
}

fn open(directory: &Path, number: usize, options: &Options) -> Db {
    let db = Db::open(directory.join(number.to_string()), options).unwrap();
    db.put("key", number.to_string()).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(number.to_string().as_bytes()));
    db
}

/// Opens `many` databases, measures the cost of each, closes them in another order, and waits until
/// the process has the resources that it had before.
fn open_and_close(directory: &Path, many: usize, options: impl Fn() -> Options) -> Has {
    let before = has();
    let mut databases: Vec<Db> = (0..many).map(|number| open(directory, number, &options())).collect();
    let during = has();
    let each = Has {
        descriptors: during.descriptors.saturating_sub(before.descriptors) / many,
        threads: during.threads.saturating_sub(before.threads) / many,
        mappings: during.mappings.saturating_sub(before.mappings) / many,
        memory_kib: during.memory_kib.saturating_sub(before.memory_kib) / many as u64,
    };
    // All of them work while all are open.
    for (number, db) in databases.iter().enumerate().step_by(37) {
        db.put("again", "1").unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(number.to_string().as_bytes()));
    }
    while !databases.is_empty() {
        let db = databases.swap_remove(databases.len() / 2);
        if databases.len().is_multiple_of(2) {
            db.close().unwrap();
        }
    }
    // Numbers of descriptors and threads that are left.
    eventually((0, 0), || {
        // A thread drops its rings of databases that were closed elsewhere at its next read.
        karst_engine::io::block_on(&Env::posix(), async {});
        let now = has();
        let left = |now: usize, before: usize| now.saturating_sub(before);
        (left(now.descriptors, before.descriptors), left(now.threads, before.threads))
    });
    each
}

/// Returns a directory in memory if possible, because the syncs that dominate on a disk are not
/// tested.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Makes the environment create the resources that it creates once, on first use.
fn warm_up(directory: &Path, env: &Env) {
    let databases: Vec<Db> = (0..8).map(|number| open(directory, number, &options(env))).collect();
    for db in &databases {
        // Compactions into and within the last level, so that jobs of every priority run.
        for _ in 0..2 {
            db.put("key", "value").unwrap();
            db.flush(&FlushOptions::default()).unwrap();
            let rewrites = CompactRangeOptions {
                bottommost_level_compaction: BottommostLevelCompaction::Force,
                ..CompactRangeOptions::default()
            };
            db.compact_range(&rewrites, None, None).unwrap();
        }
    }
}

fn options(env: &Env) -> Options {
    // Small memtables, because each log reserves as much space on the disk.
    let text = "create_if_missing=true;write_buffer_size=65536";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

#[test]
fn very_many_that_share_an_environment() {
    let _alone = alone();
    // 300 in the short form are enough to measure the cost of each.
    let many = if raise_descriptors() < 12_000 {
        100
    } else if long() {
        1_000
    } else {
        300
    };
    let directory = directory();
    let env = Env::posix();
    warm_up(directory.path(), &env);
    let each = open_and_close(directory.path(), many, || options(&env));
    println!("{many} open at once: {each:?} each");
    assert!(each.descriptors <= 8 && each.threads == 0, "{each:?}");
    assert!(each.memory_kib <= 400, "{each:?}");
}

#[test]
fn fifty_with_an_environment_each() {
    let _alone = alone();
    raise_descriptors();
    let directory = directory();
    let each = open_and_close(directory.path(), 50, || options(&Env::posix()));
    println!("50 open at once: {each:?} each");
    assert!(each.descriptors <= 24 && each.threads <= 6, "{each:?}");
    assert!(each.memory_kib <= 3000, "{each:?}");
}

#[test]
fn over_and_over_nothing_adds_up() {
    let _alone = alone();
    raise_descriptors();
    let directory = directory();
    let env = Env::posix();
    warm_up(directory.path(), &env);
    let many = if long() { 25 } else { 12 };
    let mut after = Vec::new();
    for round in 0..8 {
        let env = || if round % 2 == 0 { env.clone() } else { Env::posix() };
        open_and_close(directory.path(), many, || options(&env()).set("keep_log_file_num", "2").unwrap());
        let files = std::fs::read_dir(directory.path().join("0")).unwrap().count();
        after.push((has(), files));
    }
    println!("{after:?}");
    // The allocator's retained memory is stable after the first rounds.
    let ((early, _), (late, files)) = (after[3], after[7]);
    assert!(late.descriptors <= early.descriptors && late.threads <= early.threads, "{early:?} {late:?}");
    assert!(late.mappings <= early.mappings + 30, "{early:?} {late:?}");
    assert!(late.memory_kib <= early.memory_kib + 8_000, "{early:?} {late:?}");
    // Each opening flushes the log to a table, and a few tables are compacted into one.
    assert!(files <= 20, "{files} files of one database");
}
