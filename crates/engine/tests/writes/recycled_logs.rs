//! Logs that reuse the files of older ones (`recycle_log_file_num`), logs written through a memory
//! map (`allow_mmap_writes`), and space that is reserved for logs and MANIFESTs: KarstDB and
//! RocksDB recover all entries after any end of the process, and nothing is left behind.

use karst_engine::io::{Crash, Env, FileSystem, MemoryFileSystem, PosixFileSystem, Simulation};
use karst_engine::{Db, ErrorKind, FlushOptions, Options, WriteOptions};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use karst_testkit::{asked, eventually};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;recycle_log_file_num=2;write_buffer_size=100000;format_version=5";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

fn logs(env: &Env, directory: &Path) -> Vec<String> {
    let names = env.fs().list_dir(directory).unwrap();
    names.into_iter().filter(|name| name.ends_with(".log")).collect()
}

fn value(n: usize) -> Vec<u8> {
    vec![b'a' + (n % 26) as u8; 50 + n * 7 % 300]
}

/// Puts numbered keys, with a flush after each hundred.
fn fill(db: &Db, numbers: std::ops::Range<usize>) {
    for n in numbers {
        db.put(format!("key{n:05}"), value(n)).unwrap();
        if n % 100 == 99 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
}

fn check(db: &Db, count: usize) {
    for n in 0..count {
        assert_eq!(db.get(format!("key{n:05}")).unwrap().as_deref(), Some(&value(n)[..]), "{n}");
    }
    assert_eq!(db.get(format!("key{count:05}")).unwrap(), None);
}

/// A log's file is reused under a later number, with the end of its former content in it; closing
/// removes the spare ones.
#[test]
fn logs_take_the_files_of_older_ones() {
    let directory = tempfile::tempdir().unwrap();
    let (path, env) = (directory.path(), Env::posix());
    let db = Db::open(path, &options(&env)).unwrap();
    // Files become spares in the background. Writes until the newest log is in a file longer than
    // itself and another spare waits.
    let (needed, count) = (1..50)
        .find_map(|hundreds| {
            let count = 100 * hundreds + 1;
            fill(&db, if hundreds == 1 { 0 } else { count - 100 }..count);
            check(&db, count);
            let needed: BTreeSet<u64> = db.log_numbers().into_iter().collect();
            let there = logs(&env, path);
            assert!(there.len() <= needed.len() + 2, "{there:?}, needed {needed:?}");
            let newest = path.join(format!("{:06}.log", needed.last().unwrap()));
            let bytes = env.fs().read_file(&newest).unwrap();
            (there.len() > needed.len() && bytes.len() > 5000 && bytes[6] == 5).then_some((needed, count))
        })
        .expect("a log is written over an older one's file");
    // Other processes read all entries while the log is being written.
    assert_eq!(ldb_scan(path, "default").unwrap().len(), count);
    check(&Db::open_read_only(path, &Options::new()).unwrap(), count);
    db.close().unwrap();
    drop(db);
    assert_eq!(logs(&env, path).len(), needed.len());
    assert_eq!(ldb_scan(path, "default").unwrap().len(), count);
    ldb(path, &["put", "other", "x"], b"").unwrap();
    check(&Db::open(path, &options(&env)).unwrap(), count);
}

/// A database that was not closed: RocksDB and KarstDB recover all entries, although the newest log
/// ends in the middle of an older log's record.
#[test]
fn both_engines_recover_from_recycled_logs() {
    for ends_at in [1000, 1007, 1031, 1099] {
        let directory = tempfile::tempdir().unwrap();
        let (path, env) = (directory.path(), Env::posix());
        let db = Db::open(path, &options(&env)).unwrap();
        fill(&db, 0..ends_at);
        let copy = tempfile::tempdir().unwrap();
        // Background jobs are paused so that the copy is of one moment.
        db.pause_background_work().unwrap();
        for name in env.fs().list_dir(path).unwrap() {
            match std::fs::copy(path.join(&name), copy.path().join(&name)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {} // obsolete by now
                copied => drop(copied.unwrap()),
            }
        }
        drop(db);
        let recovered = ldb_scan(copy.path(), "default").unwrap();
        assert_eq!(recovered.len(), ends_at);
        let db = Db::open(copy.path(), &options(&env)).unwrap();
        check(&db, ends_at);
        assert_eq!(db.log_damage(), None);
        // Spares of the former process are not reused.
        db.put("more", "1").unwrap();
        drop(db);
        let db = Db::open(copy.path(), &options(&env)).unwrap();
        let needed: BTreeSet<u64> = db.log_numbers().into_iter().collect();
        eventually(needed.len(), || logs(&env, copy.path()).len());
        assert_eq!(db.get("more").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// A database whose process was killed: the newest log ends in zeros up to the end of the mapping.
/// RocksDB and KarstDB recover all entries, also when KarstDB keeps the log and writes another.
/// Logs are not mapped in recovery modes that could take the zeros for damage.
#[test]
fn both_engines_recover_from_mapped_logs() {
    let modes = [
        "kPointInTimeRecovery",
        "kSkipAnyCorruptedRecords",
        "kTolerateCorruptedTailRecords",
        "kAbsoluteConsistency",
    ];
    for (mode, further) in modes.iter().flat_map(|mode| {
        [
            "",
            "avoid_flush_during_recovery=true",
            "avoid_flush_during_recovery=true;track_and_verify_wals=true",
        ]
        .map(|further| (mode, further))
    }) {
        // The last log ends in the first mapped stretch, and after it.
        for count in [1000, 5000] {
            let directory = tempfile::tempdir().unwrap();
            let (path, env) = (directory.path(), Env::posix());
            let text = format!(
                "create_if_missing=true;write_buffer_size=10000000;format_version=5;allow_mmap_writes=true;wal_recovery_mode={mode};{further}"
            );
            let options = Options::new().env(env.clone()).set_all(&text).unwrap();
            let db = Db::open(path, &options).unwrap();
            for n in 0..count {
                db.put(format!("key{n:05}"), value(n)).unwrap();
                // A value larger than a mapping is written instead.
                if n == 700 {
                    db.put("big", vec![b'b'; 300_000]).unwrap();
                }
            }
            let copied = |from: &Path| {
                let copy = tempfile::tempdir().unwrap();
                for name in env.fs().list_dir(from).unwrap() {
                    // Files that opening found obsolete may disappear meanwhile.
                    match std::fs::copy(from.join(&name), copy.path().join(&name)) {
                        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                        copied => drop(copied.unwrap()),
                    }
                }
                copy
            };
            let copy = copied(path);
            drop(db);
            let newest = copy.path().join(logs(&env, copy.path()).last().unwrap());
            let bytes = env.fs().read_file(&newest).unwrap();
            let is_mapped = bytes.len().is_multiple_of(64 << 10) && bytes.ends_with(&[0; 100]);
            assert_eq!(is_mapped, *mode == "kPointInTimeRecovery", "{} bytes", bytes.len());
            let ours = copied(copy.path());
            // RocksDB 7.8 does not know `track_and_verify_wals`.
            let scan = |path: &Path, count: usize| {
                let found = || ldb_scan(path, "default").unwrap().len();
                assert!(
                    further.contains("track_and_verify_wals") || found() == count + 1,
                    "{mode} {further}"
                );
            };
            scan(copy.path(), count);
            for again in 0..2 {
                let db = Db::open(ours.path(), &options).unwrap();
                check(&db, count + again);
                assert_eq!(db.log_damage(), None, "{mode} {further}");
                db.put(format!("key{:05}", count + again), value(count + again)).unwrap();
                let killed = copied(ours.path());
                drop(db);
                scan(killed.path(), count + again + 1);
                check(&Db::open(killed.path(), &options).unwrap(), count + again + 1);
            }
        }
    }
}

/// Logs are not recycled in recovery modes that take a recycled log's end for damage.
#[test]
fn recovery_modes_that_exclude_it_turn_it_off() {
    let modes = [
        ("kPointInTimeRecovery", true),
        ("kSkipAnyCorruptedRecords", true),
        ("kTolerateCorruptedTailRecords", false),
        ("kAbsoluteConsistency", false),
    ];
    for (mode, recycles) in modes {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = options(&env).set("wal_recovery_mode", mode).unwrap();
        let db = Db::open("/db", &options).unwrap();
        assert_eq!(db.options().recycle_log_file_num, if recycles { 2 } else { 0 }, "{mode}");
        fill(&db, 0..500);
        let spares = || logs(&env, Path::new("/db")).len().saturating_sub(db.log_numbers().len());
        // Obsolete logs are removed in the background.
        if !recycles {
            eventually(0, spares);
        }
        assert_eq!(spares() > 0, recycles, "{mode}: {} spares", spares());
        drop(db);
        check(&Db::open("/db", &options).unwrap(), 500);
    }
}

/// Power failures at every change while logs are recycled: synced entries are recovered, and the
/// recovered entries are a prefix.
#[test]
fn nothing_synced_is_lost_with_the_power() {
    let mut reused = 0;
    for seed in asked::seeds(150, 2000) {
        let mut simulation = Simulation::new(seed);
        let directory = Path::new("/db");
        simulation.fs().create_dir(directory).unwrap();
        simulation.fs().sync_dir(Path::new("/")).unwrap();
        let (mut certain, mut written) = (0usize, 0usize);
        for life in 0..4 {
            simulation.fs().lose_power_after(40 + (seed * 31 + life * 7) % 160);
            let env = simulation.env().clone();
            let (synced, begun) = (std::cell::Cell::new(certain), std::cell::Cell::new(written));
            let _ = simulation.run(async {
                let db = Db::open(directory, &options(&env)).unwrap_or_else(|e| panic!("{seed}: {e}"));
                let mut count = 0;
                while db.get_async(format!("{count:05}").as_bytes()).await?.is_some() {
                    count += 1;
                }
                assert!(
                    count >= synced.get() && count <= begun.get(),
                    "{seed}: {count}, synced {}",
                    synced.get()
                );
                loop {
                    let sync = count % 5 == 4;
                    let options = WriteOptions { sync, ..WriteOptions::default() };
                    begun.set(count + 1);
                    let (key, value) = (format!("{count:05}"), vec![b'v'; 40 + count % 90]);
                    db.put_opt_async(&options, key.as_bytes(), &value).await?;
                    count += 1;
                    if sync {
                        synced.set(count);
                    }
                    if count % 12 == 0 {
                        db.flush_async(&FlushOptions::default()).await?;
                        reused += usize::from(logs(&env, directory).len() > db.log_numbers().len());
                    }
                }
                #[allow(unreachable_code)]
                Ok::<(), karst_engine::Error>(())
            });
            (certain, written) = (synced.get(), begun.get());
            drop(env);
            let crash = if (seed + life) % 3 == 0 { Crash::Process } else { Crash::Power };
            simulation = simulation.restart(crash, seed * 10 + life);
        }
    }
    assert!(reused > 100, "{reused} flushes left a spare");
}

/// Reserved space does not show in a file's length, and is released.
#[test]
fn space_is_reserved_and_given_back() {
    use std::os::unix::fs::MetadataExt;
    let scratch = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let allocated = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    let probe = scratch.path().join("probe");
    let file = PosixFileSystem.create_positional(&probe).unwrap();
    file.reserve(0, 1 << 20).unwrap();
    let can_reserve = allocated(&probe) >= 1 << 20;
    for allow in [true, false] {
        let path = scratch.path().join(format!("db-{allow}"));
        let options = Options::new()
            .db(|db| db.create_if_missing = true)
            .column_families(|cf| cf.write_buffer_size = 4 << 20)
            .set("allow_fallocate", if allow { "true" } else { "false" })
            .unwrap();
        let db = Db::open(&path, &options).unwrap();
        db.put("a", "1").unwrap();
        let log = path.join(format!("{:06}.log", db.log_numbers().last().unwrap()));
        let names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let manifest = names.filter(|p| p.to_string_lossy().contains("MANIFEST-")).last().unwrap();
        let expected = if allow && can_reserve { [(4 << 20) + (4 << 20) / 10, 4 << 20] } else { [0, 0] };
        for (file, expected) in [&log, &manifest].into_iter().zip(expected) {
            assert!(std::fs::metadata(file).unwrap().len() < 5000);
            assert!(allocated(file) >= expected, "{}: {}", file.display(), allocated(file));
            assert!(expected > 0 || allocated(file) < 1 << 20, "{}: {}", file.display(), allocated(file));
        }
        db.close().unwrap();
        assert!(allocated(&log) < 1 << 16 && allocated(&manifest) < 1 << 16);
    }
}

/// Compat: RocksDB refuses such writes too, because its recovery of recycled logs relies on
/// sequence numbers without gaps.
#[test]
fn writes_without_a_log_do_not_go_with_recycled_logs() {
    for (recycled, works) in [("0", true), ("2", false)] {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let given = options(&env).set("recycle_log_file_num", recycled).unwrap();
        let db = Db::open("/db", &given).unwrap();
        let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::new() };
        let outcome = db.put_opt(&unlogged, "k", "v");
        assert_eq!(outcome.is_ok(), works);
        if let Err(error) = outcome {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(text.contains("disable_wal") && text.contains("recycle_log_file_num"), "{text}");
        }
        assert_eq!(db.get("k").unwrap().is_some(), works);
    }
}
