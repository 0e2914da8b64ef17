//! Logs that RocksDB's tools left unflushed, killed while writing, torn, recycled or compressed.
//! KarstDB and `ldb` must read equal entries from them.

use karst_engine::WriteOptions;
use karst_engine::db::Db;
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::open::Options;
use karst_engine::options::ReadOptions;
use karst_testkit::eventually;
use karst_testkit::rocksdb_tools::{Killed, db_bench, ldb, ldb_scan, run};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Returns every file of a directory with its bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Returns all entries of a column family; iterator and get must agree. Leaves the directory
/// unchanged.
fn read(directory: &Path, family: &str) -> Result<Vec<karst_testkit::Entry>, String> {
    let before = contents(directory);
    let db = Db::open_read_only(directory, &Options::new()).map_err(|e| e.to_string())?;
    let family = db.column_family(family).ok_or("no such column family")?;
    let options = ReadOptions::new();
    let mut iter = db.iter_cf(&options, &family).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    iter.seek_to_first().map_err(|e| e.to_string())?;
    while iter.valid() {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().map_err(|e| e.to_string())?;
    }
    for (key, value) in &all {
        assert_eq!(db.get_cf(&options, &family, key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(contents(directory) == before, "reading changed the directory");
    Ok(all)
}

fn agree(directory: &Path, family: &str) -> usize {
    let theirs = ldb_scan(directory, family).unwrap();
    let ours = read(directory, family).unwrap();
    assert!(ours == theirs, "{} entries, ldb has {}", ours.len(), theirs.len());
    ours.len()
}

/// Returns the paths of the logs, oldest first.
fn logs(directory: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    }
}

/// Changes an option in the newest OPTIONS file, so that both engines open with it.
fn set_option(directory: &Path, name: &str, value: &str) {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let options = names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("OPTIONS-"));
    for path in options {
        let text = fs::read_to_string(&path).unwrap();
        let changed: String = text
            .lines()
            .map(|line| match line.trim_start().split_once('=') {
                Some((n, _)) if n == name => format!("  {name}={value}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_ne!(text, changed, "{name} was there and had another value");
        fs::write(&path, changed).unwrap();
    }
}

#[test]
fn what_ldb_put_left_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path();
    ldb(db, &["--create_if_missing", "batchput", "a", "1", "b", "2", "c", "3"], b"").unwrap();
    ldb(db, &["create_column_family", "other"], b"").unwrap();
    ldb(db, &["--column_family=other", "put", "o", "9"], b"").unwrap();
    // One process, so that all entries stay in one log.
    let script = b"put d 4\nput e 5\ndelete b\nput a 11\ndelete nothing\n";
    ldb(db, &["query"], script).unwrap();
    assert!(logs(db).iter().any(|log| fs::metadata(log).unwrap().len() > 0));
    assert_eq!(agree(db, "default"), 4);
    assert_eq!(agree(db, "other"), 1);
    ldb(db, &["deleterange", "c", "e"], b"").unwrap();
    assert_eq!(agree(db, "default"), 2);
}

#[test]
fn what_db_bench_left_in_several_logs() {
    for flags in [
        &["--wal_compression=zstd"][..],
        &["--num_column_families=3", "--disable_auto_compactions"][..],
        &["--disable_wal"][..],
        &["--merge_operator=stringappend", "--benchmarks=fillrandom,mergerandom"][..],
        &["--benchmarks=fillrandom,deleterandom,overwrite", "--batch_size=7"][..],
        &["--allow_concurrent_memtable_write=false", "--enable_pipelined_write=true", "--threads=3"][..],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut all = vec!["--num=3000", "--value_size=60", "--write_buffer_size=150000", "--seed=5"];
        if !flags.iter().any(|flag| flag.starts_with("--benchmarks")) {
            all.push("--benchmarks=fillrandom");
        }
        all.extend(flags);
        db_bench(directory.path(), &all).unwrap();
        let entries = agree(directory.path(), "default");
        assert!(entries > 500, "{flags:?}: {entries}");
        if flags[0].contains("column_families") {
            agree(directory.path(), "column_family_name_000001");
            agree(directory.path(), "column_family_name_000002");
        }
    }
}

#[test]
fn recycled_logs() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path();
    let flags = ["--benchmarks=fillrandom", "--num=200", "--value_size=100"];
    db_bench(db, &flags).unwrap();
    let options_file = tempfile::NamedTempFile::new().unwrap();
    set_option(db, "recycle_log_file_num", "2");
    // RocksDB 7.8 recycles logs in no stricter mode.
    set_option(db, "wal_recovery_mode", "kSkipAnyCorruptedRecords");
    set_option(db, "write_buffer_size", "65536");
    set_option(db, "arena_block_size", "4096");
    let newest = contents(db).into_iter().rfind(|(path, _)| path.to_string_lossy().contains("OPTIONS-"));
    fs::write(options_file.path(), newest.unwrap().1).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let options = format!("--options_file={}", options_file.path().display());
    db_bench(
        fresh.path(),
        &[&options, "--benchmarks=fillrandom,overwrite", "--num=3000", "--value_size=100"],
    )
    .unwrap();
    // Invariant of the test: recyclable records, and a log with bytes of its former use after its
    // end.
    let log = fs::read(logs(fresh.path()).pop().unwrap()).unwrap();
    assert!((5..=8).contains(&log[6]), "record type {}", log[6]);
    assert!(agree(fresh.path(), "default") > 1500);
}

/// Returns the bytes of logs and tables while another process creates the directory and writes
/// them.
fn written_bytes(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|e| e == "log" || e == "sst"));
    files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

#[test]
fn killed_while_writing() {
    for (number, flags) in
        [&["--wal_compression=zstd"][..], &["--sync=true"][..], &["--threads=4"][..]].iter().enumerate()
    {
        let directory = tempfile::tempdir().unwrap();
        let db = format!("--db={}", directory.path().display());
        let started = Command::new("db_bench")
            .args([db.as_str(), "--benchmarks=fillrandom", "--num=100000000", "--write_buffer_size=300000"])
            .args(*flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = Killed(started.unwrap());
        eventually(true, || written_bytes(directory.path()) > 20_000);
        std::thread::sleep(Duration::from_millis(150 * number as u64));
        drop(child);
        assert!(!logs(directory.path()).is_empty());
        let entries = agree(directory.path(), "default");
        assert!(entries > 10, "{flags:?}: {entries}");
    }
}

#[test]
fn torn_and_damaged_logs_in_every_recovery_mode() {
    let directory = tempfile::tempdir().unwrap();
    let flags = [
        "--benchmarks=fillrandom",
        "--num=800",
        "--value_size=90",
        "--write_buffer_size=10000000",
        "--seed=3",
    ];
    db_bench(directory.path(), &flags).unwrap();
    let whole = fs::read(logs(directory.path()).pop().unwrap()).unwrap();
    assert!(whole.len() > 3 * 32768, "several blocks: {} bytes", whole.len());
    let modes = [
        "kTolerateCorruptedTailRecords",
        "kAbsoluteConsistency",
        "kSkipAnyCorruptedRecords",
        "kPointInTimeRecovery",
    ];
    let (mut opened, mut refused) = (0, 0);
    for mode in modes {
        for damage in 0..8 {
            let mut bytes = whole.clone();
            match damage {
                0 => bytes.truncate(whole.len() - 1),
                1 => bytes.truncate(whole.len() - 60),
                2 => bytes.truncate(2 * 32768 + 3),
                3 => bytes[40_000] ^= 1,
                4 => bytes[whole.len() - 20] ^= 0x80,
                5 => bytes.extend_from_slice(&[0; 5000]),
                6 => bytes[4..6].copy_from_slice(&[0xff, 0xff]),
                _ => bytes.truncate(0),
            }
            let torn = tempfile::tempdir().unwrap();
            copy(directory.path(), torn.path());
            fs::write(torn.path().join(logs(directory.path()).pop().unwrap().file_name().unwrap()), &bytes)
                .unwrap();
            if mode != "kPointInTimeRecovery" {
                set_option(torn.path(), "wal_recovery_mode", mode);
            }
            let theirs = ldb_scan(torn.path(), "default");
            let ours = read(torn.path(), "default");
            match (&theirs, &ours) {
                (Ok(theirs), Ok(ours)) => {
                    assert!(ours == theirs, "{mode} {damage}: {} entries, ldb {}", ours.len(), theirs.len());
                    opened += 1;
                }
                (Err(_), Err(ours)) => {
                    assert!(ours.contains(".log, offset "), "{mode} {damage}: {ours}");
                    refused += 1;
                }
                _ => panic!(
                    "{mode} {damage}: ldb {:?}, KarstDB {:?}",
                    theirs.map(|t| t.len()),
                    ours.map(|o| o.len())
                ),
            }
        }
    }
    assert!(opened >= 15 && refused >= 5, "{opened} opened, {refused} refused");
}

#[test]
fn the_log_may_be_in_a_directory_of_its_own() {
    let (directory, wal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wal_dir = format!("--wal_dir={}", wal.path().display());
    db_bench(directory.path(), &["--benchmarks=fillrandom", "--num=500", &wal_dir]).unwrap();
    assert!(logs(directory.path()).is_empty() && !logs(wal.path()).is_empty());
    assert!(agree(directory.path(), "default") > 200);
    fs::remove_dir_all(wal.path()).unwrap();
    let error = Db::open_read_only(directory.path(), &Options::new()).unwrap_err().to_string();
    assert!(error.contains(&wal.path().display().to_string()) && error.contains("wal_dir"), "{error}");
}

/// RocksDB writes no LOCK next to its logs and ignores one that KarstDB wrote.
#[test]
fn rocksdb_and_karstdb_take_turns_with_logs_in_a_directory_of_their_own() {
    let (directory, wal) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path().join("db");
    let wal_dir = format!("--wal_dir={}", wal.path().display());
    let fill = |more: &[&str]| db_bench(&path, &[&["--num=500", &wal_dir], more].concat()).unwrap();
    fill(&["--benchmarks=fillseq"]);
    assert!(!wal.path().join("LOCK").exists());
    assert_eq!(agree(&path, "default"), 500);
    let db = Db::open(&path, &Options::new()).unwrap();
    db.put("of karst", "1").unwrap();
    db.close().unwrap();
    drop(db);
    let lock = fs::read(wal.path().join("LOCK")).unwrap();
    let owner = path.canonicalize().unwrap();
    assert!(String::from_utf8_lossy(&lock).contains(owner.to_str().unwrap()));
    fill(&["--benchmarks=overwrite", "--use_existing_db=true"]);
    assert_eq!(fs::read(wal.path().join("LOCK")).unwrap(), lock);
    assert_eq!(agree(&path, "default"), 501);
    Db::open(&path, &Options::new()).unwrap().close().unwrap();
    assert_eq!(agree(&path, "default"), 501);
}

#[test]
fn a_database_may_be_read_while_another_process_has_it_open() {
    let directory = tempfile::tempdir().unwrap();
    ldb(directory.path(), &["--create_if_missing", "batchput", "a", "1", "b", "2"], b"").unwrap();
    let mut child = Command::new("ldb")
        .args([&format!("--db={}", directory.path().display()), "query"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The process has the database open once its write is in a log.
    child.stdin.as_mut().unwrap().write_all(b"put c 3\n").unwrap();
    let has_put = |log: &PathBuf| fs::read(log).is_ok_and(|bytes| bytes.ends_with(b"\x01c\x013"));
    eventually(true, || logs(directory.path()).iter().any(has_put));
    let locked = run("ldb", &[&format!("--db={}", directory.path().display()), "put", "x", "y"], b"");
    assert!(locked.is_err(), "the other process holds the lock");
    assert_eq!(read(directory.path(), "default").unwrap().len(), 3);
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Entries recovered after damage are flushed to tables. If they stayed in the damaged log, an
/// opening in another mode would stop at the damage and lose all later writes.
#[test]
fn what_was_recovered_behind_skipped_damage_does_not_depend_on_the_log_any_more() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let open = |mode| {
        let options = Options::new().env(env.clone()).db(|db| {
            db.create_if_missing = true;
            db.avoid_flush_during_recovery = true;
        });
        Db::open("/db", &options.set("wal_recovery_mode", mode).unwrap()).unwrap()
    };
    let db = open("kPointInTimeRecovery");
    // Each value is larger than a block of the log, so that the others remain readable.
    let value = |key: &str| key.repeat(100_000);
    ["a", "b", "c"].iter().for_each(|key| db.put(key, value(key)).unwrap());
    let log = *db.log_numbers().last().unwrap();
    db.close().unwrap();
    let path = Path::new("/db").join(format!("{log:06}.log"));
    let mut bytes = files.read_file(&path).unwrap();
    let middle = bytes.windows(3).position(|three| three == b"bbb").unwrap() + 50_000;
    bytes[middle] ^= 1;
    files.write_file(&path, bytes).unwrap();
    let found = |db: &Db| ["a", "b", "c", "d"].map(|key| db.get(key).unwrap().is_some());

    let db = open("kSkipAnyCorruptedRecords");
    assert_eq!(found(&db), [true, false, true, false]);
    db.put("d", value("d")).unwrap();
    db.close().unwrap();
    assert_eq!(found(&open("kPointInTimeRecovery")), [true, false, true, true]);
}

/// With an enforced budget of memtables, replay flushes to tables whenever the budget is used up.
#[test]
fn the_budget_of_memtables_counts_while_logs_are_replayed() {
    let tables = |limit: usize, enforces: bool| {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        });
        let options = options.column_family("other", |_| {}).column_families(|family| {
            family.disable_auto_compactions = true;
        });
        let db = Db::open_cf("/db", &options, &["default", "other"]).unwrap();
        let other = db.column_family("other").unwrap();
        for n in 0..4000_u32 {
            db.put(n.to_string(), [b'v'; 500]).unwrap();
            db.put_cf(&WriteOptions::new(), &other, n.to_string(), [b'o'; 100]).unwrap();
        }
        db.close().unwrap();
        drop((db, other));
        let options = options.db(move |db| {
            db.db_write_buffer_size = limit;
            db.enforce_write_buffer_manager_during_recovery = enforces;
        });
        let db = Db::open_cf("/db", &options, &["default", "other"]).unwrap();
        let other = db.column_family("other").unwrap();
        for n in [0, 1777, 3999] {
            assert_eq!(db.get(n.to_string()).unwrap().as_deref(), Some(&[b'v'; 500][..]));
            let read = db.get_cf(&ReadOptions::new(), &other, n.to_string()).unwrap();
            assert_eq!(read.as_deref(), Some(&[b'o'; 100][..]));
        }
        let all = db.live_files();
        let of = |name: &str| all.iter().filter(|file| file.column_family == name).count();
        (of("default"), of("other"))
    };
    assert_eq!((tables(0, true), tables(512 << 10, false)), ((1, 1), (1, 1)));
    let (default, other) = tables(512 << 10, true);
    assert!(default == other && (4..=20).contains(&default), "{default} {other}");
}

/// With `open_files_async`, a table that cannot be opened does not keep the database from opening;
/// LOG has the error, and reads of the table return it.
#[test]
fn tables_are_opened_beside_what_the_database_does_where_that_is_asked_for() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let options = options.column_families(|family| family.disable_auto_compactions = true);
    let db = Db::open("/db", &options).unwrap();
    for key in ["a", "b"] {
        db.put(key, key).unwrap();
        db.flush(&karst_engine::FlushOptions::default()).unwrap();
    }
    let table = db.live_files().into_iter().find(|file| file.smallest_key == b"a").unwrap();
    db.close().unwrap();
    drop(db);
    let path = table.directory.join(&table.name);
    let length = env.fs().read_file(&path).unwrap().len();
    env.fs().create(&path).unwrap().append(&vec![0; length]).unwrap();
    Db::open("/db", &options).unwrap_err();
    let options = options.db(|db| {
        db.open_files_async = true;
        db.skip_stats_update_on_db_open = true;
    });
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"b"[..]));
    db.get("a").unwrap_err();
    let log = || String::from_utf8(env.fs().read_file(Path::new("/db/LOG")).unwrap()).unwrap();
    eventually(true, || log().contains("a table cannot be opened"));
    db.close().unwrap();
}

/// Counts the tables that are being opened concurrently, and blocks each until `wanted` of them
/// are.
#[derive(Debug, Default)]
struct Opens {
    wanted: usize,
    now: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Disturb for Opens {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn open(&self, path: &Path) -> std::io::Result<()> {
        if path.extension().is_none_or(|extension| extension != "sst") {
            return Ok(());
        }
        let mut now = self.now.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        self.changed.notify_all();
        // A generous limit; opening too few files fails the test.
        let minutes = Duration::from_secs(300);
        now = self.changed.wait_timeout_while(now, minutes, |now| now.1 < self.wanted).unwrap().0;
        now.0 -= 1;
        Ok(())
    }
}

/// Opening a database opens `max_file_opening_threads` tables concurrently.
#[test]
fn as_many_tables_are_opened_at_a_time_as_the_option_says() {
    let memory = Arc::new(MemoryFileSystem::new());
    let options = |env: &Env, threads| {
        Options::new()
            .env(env.clone())
            .db(move |db| {
                db.create_if_missing = true;
                db.max_file_opening_threads = threads;
            })
            .column_families(|family| family.disable_auto_compactions = true)
    };
    let env = Env::builder().file_system(memory.clone()).build();
    let db = Db::open("/db", &options(&env, 16)).unwrap();
    for n in 0..24_u32 {
        db.put(n.to_string(), "value").unwrap();
        db.flush(&karst_engine::FlushOptions::default()).unwrap();
    }
    db.close().unwrap();
    drop(db);
    for threads in [1, 3] {
        let opens = Opens { wanted: threads, ..Opens::default() };
        let counted = DisturbedFileSystem::new(memory.clone(), opens);
        let opens = counted.between().clone();
        let env = Env::builder().file_system(Arc::new(counted)).build();
        let db = Db::open("/db", &options(&env, threads as i32)).unwrap();
        assert_eq!(opens.now.lock().unwrap().1, threads);
        db.close().unwrap();
    }
}

/// A MANIFEST that was damaged while the database was open is rewritten on close with
/// `verify_manifest_content_on_close`.
#[test]
fn a_damaged_manifest_is_noticed_when_the_database_is_closed() {
    for verifies in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let statistics = Arc::new(karst_engine::Statistics::default());
        let options = Options::new().statistics(statistics.clone()).db(move |db| {
            db.create_if_missing = true;
            db.verify_manifest_content_on_close = verifies;
        });
        let db = Db::open(directory.path(), &options).unwrap();
        db.put("key", "value").unwrap();
        db.flush(&karst_engine::FlushOptions::default()).unwrap();
        let current = fs::read_to_string(directory.path().join("CURRENT")).unwrap();
        let manifest = directory.path().join(current.trim());
        let mut bytes = fs::read(&manifest).unwrap();
        bytes[20] ^= 1;
        fs::OpenOptions::new().write(true).open(&manifest).unwrap().write_all(&bytes).unwrap();
        db.close().unwrap();
        drop(db);
        let failures = statistics.ticker(karst_engine::Ticker::ManifestValidationFailureCount);
        assert_eq!(failures, u64::from(verifies));
        assert_eq!(manifest.exists(), !verifies, "the damaged one is gone");
        let reopened =
            Db::open(directory.path(), &options).map(|db| db.get("key").unwrap().unwrap().to_vec());
        assert_eq!(reopened.ok(), verifies.then(|| b"value".to_vec()));
    }
}
