//! Opening for writing: databases that are created, reopened or refused, and the state that a crash
//! at any change leaves.

use karst_engine::io::{Disturb, DisturbedFileSystem, MemoryFileSystem};
use karst_engine::io::{Env, FileSystem};
use karst_engine::{Db, ErrorKind, Options, ReadOptions};
use karst_testkit::rocksdb_tools::ldb;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn create() -> Options {
    Options::new().db(|db| db.create_if_missing = true)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    names(path).into_iter().map(|name| (name.clone(), std::fs::read(path.join(name)).unwrap())).collect()
}

fn with_prefix<'a>(names: &'a [String], prefix: &str) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|name| name.starts_with(prefix)).collect()
}

fn all_of(db: &Db, family: &str) -> Vec<(String, String)> {
    let family = db.column_family(family).unwrap();
    let mut iterator = db.iter_cf(&ReadOptions::default(), &family).unwrap();
    let (mut found, text) = (Vec::new(), |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap());
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.push((text(iterator.key()), text(iterator.value())));
        iterator.next().unwrap();
    }
    found
}

#[test]
fn a_new_database_is_opened_again_and_rocksdb_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/db");
    let options = create().set("format_version", "5").unwrap();
    let db = Db::open(&path, &options).unwrap();
    let identity = db.identity().unwrap().to_owned();
    assert_eq!(db.get("key").unwrap(), None);
    drop(db);
    for round in 0..4 {
        let db = Db::open(&path, &Options::new()).unwrap();
        assert_eq!(db.identity(), Some(identity.as_str()), "round {round}");
        db.close().unwrap();
        db.close().unwrap();
        let names = names(&path);
        assert_eq!(with_prefix(&names, "MANIFEST-").len(), 1, "{names:?}");
        assert!((1..=2).contains(&with_prefix(&names, "OPTIONS-").len()), "{names:?}");
        assert!(!names.iter().any(|name| name.ends_with("dbtmp")), "{names:?}");
    }
    assert_eq!(std::fs::read_to_string(path.join("IDENTITY")).unwrap(), identity);
    let families = ldb(&path, &["list_column_families"], b"").unwrap();
    assert!(families.contains("{default}"), "{families}");
    assert!(ldb(&path, &["checkconsistency"], b"").unwrap().contains("OK"));
    let manifest = ldb(&path, &["manifest_dump"], b"").unwrap();
    assert!(manifest.contains("next_file_number"), "{manifest}");
    ldb(&path, &["put", "key", "value"], b"").unwrap();
    let db = Db::open(&path, &Options::new()).unwrap();
    assert_eq!(all_of(&db, "default"), [("key".to_owned(), "value".to_owned())]);
}

#[test]
fn what_rocksdb_left_in_logs_reaches_tables_that_rocksdb_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ldb(path, &["--create_if_missing", "put", "a", "1"], b"").unwrap();
    ldb(path, &["create_column_family", "other"], b"").unwrap();
    ldb(path, &["--column_family=other", "put", "b", "2"], b"").unwrap();
    ldb(path, &["put", "c", "3"], b"").unwrap();
    std::fs::write(path.join("000777.sst"), b"left by a crash").unwrap();
    std::fs::write(path.join("000778.blob"), b"left by a crash").unwrap();
    std::fs::write(path.join("000003.dbtmp"), b"left by a crash").unwrap();
    std::fs::write(path.join("notes.txt"), b"not ours").unwrap();
    std::fs::write(path.join("000779.sst.bak"), b"not ours").unwrap();
    let db = Db::open(path, &Options::new()).unwrap();
    assert_eq!(all_of(&db, "default").len(), 2);
    assert_eq!(all_of(&db, "other"), [("b".to_owned(), "2".to_owned())]);
    let live: Vec<String> = db.live_files().into_iter().map(|file| file.name).collect();
    let seq = db.latest_sequence_number();
    assert!(
        live.iter().any(|name| name.as_str() > "000779.sst"),
        "{live:?}: numbers in the directory are taken"
    );
    db.close().unwrap();
    let names = names(path);
    assert!(
        names.iter().any(|n| n == "notes.txt") && names.iter().any(|n| n == "000779.sst.bak"),
        "{names:?}"
    );
    let tables: Vec<&String> = names.iter().filter(|name| name.ends_with(".sst")).collect();
    assert_eq!(tables.len(), live.len(), "{names:?}");
    assert!(!names.iter().any(|n| n.ends_with(".blob") || n.ends_with("dbtmp")), "{names:?}");
    assert!(ldb(path, &["checkconsistency"], b"").unwrap().contains("OK"));
    assert_eq!(ldb(path, &["scan"], b"").unwrap(), "a : 1\nc : 3\n");
    let db = Db::open(path, &Options::new()).unwrap();
    assert_eq!(db.latest_sequence_number(), seq);
}

#[test]
fn memtables_are_kept_when_asked_and_their_logs_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ldb(path, &["--create_if_missing", "put", "a", "1"], b"").unwrap();
    let log = names(path).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    let log: u64 = log.trim_end_matches(".log").parse().unwrap();
    let options = Options::new().db(|db| db.avoid_flush_during_recovery = true);
    for _ in 0..3 {
        let db = Db::open(path, &options).unwrap();
        assert!(db.live_files().is_empty());
        assert_eq!(all_of(&db, "default"), [("a".to_owned(), "1".to_owned())]);
        assert_eq!(db.log_numbers()[0], log, "the log that has the entry stays");
    }
    let db = Db::open(path, &Options::new().db(|db| db.avoid_flush_during_recovery = false)).unwrap();
    assert_eq!((db.live_files().len(), db.log_numbers().len()), (1, 1));
    assert!(db.log_numbers()[0] > log);
}

#[test]
fn a_hole_is_never_followed_by_a_new_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ldb(path, &["--create_if_missing", "put", "a", "1"], b"").unwrap();
    ldb(path, &["put", "b", "2"], b"").unwrap();
    let log = names(path).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    let mut bytes = std::fs::read(path.join(&log)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path.join(&log), bytes).unwrap();
    let db = Db::open(path, &Options::new().db(|db| db.avoid_flush_during_recovery = true)).unwrap();
    assert!(db.log_damage().is_some());
    let damaged: u64 = log.trim_end_matches(".log").parse().unwrap();
    assert!(db.log_numbers().iter().all(|number| *number > damaged), "{:?}", db.log_numbers());
    let found = all_of(&db, "default");
    drop(db);
    let db = Db::open(path, &Options::new()).unwrap();
    assert_eq!((all_of(&db, "default"), db.log_damage()), (found, None));
}

#[test]
fn column_families_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small = create().column_family("small", |cf| cf.write_buffer_size = 1234567);
    let missing = Db::open_cf(path, &create(), &["small"]).map(drop).unwrap_err();
    assert!(missing.to_string().contains("small"), "{missing}");
    let options = small.clone().db(|db| db.create_missing_column_families = true);
    let db = Db::open_cf(path, &options, &["small", "default"]).unwrap();
    let large = db.create_column_family("large", &Options::new()).unwrap();
    let error = db.create_column_family("large", &Options::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!((large.id(), db.column_families().len()), (2, 3));
    drop(db);
    assert_eq!(Db::list_column_families(path, &Options::new()).unwrap(), ["default", "small", "large"]);
    let error = Db::open_cf(path, &Options::new(), &["small"]).map(drop).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidArgument
            && error.to_string().contains("Column families not opened: large"),
        "{error}"
    );
    let listed = ldb(path, &["list_column_families"], b"").unwrap();
    assert!(listed.contains("small") && listed.contains("large"), "{listed}");
    ldb(path, &["--column_family=small", "put", "k", "v"], b"").unwrap();

    let db = Db::open(path, &Options::new()).unwrap();
    let small = db.column_family("small").unwrap();
    assert_eq!(small.options().write_buffer_size, 1234567, "OPTIONS is read back");
    let tables = || names(path).into_iter().filter(|name| name.ends_with(".sst")).count();
    assert_eq!(tables(), 1);
    let mut iterator = db.iter_cf(&ReadOptions::default(), &small).unwrap();
    db.drop_column_family(&small).unwrap();
    assert!(db.column_family("small").is_none());
    let again = db.drop_column_family(&small).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound, "{again}");
    let default = db.default_column_family().clone();
    assert!(db.drop_column_family(&default).is_err());
    iterator.seek_to_first().unwrap();
    assert_eq!(iterator.value(), b"v", "a dropped family is read on");
    assert_eq!(tables(), 1);
    drop((iterator, small));
    let another = db.create_column_family("small", &Options::new()).unwrap();
    assert_eq!(another.id(), 3, "ids are not given twice");
    db.close().unwrap();
    assert_eq!(tables(), 0, "{:?}", names(path));
    let closed = db.create_column_family("late", &Options::new()).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed, "{closed}");
    drop(db);
    assert_eq!(Db::list_column_families(path, &Options::new()).unwrap(), ["default", "large", "small"]);
    assert!(ldb(path, &["checkconsistency"], b"").unwrap().contains("OK"));
}

#[test]
fn families_that_options_name_are_made_where_they_are_missing() {
    let fs = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(fs).build();
    let named = Options::new()
        .env(env.clone())
        .set("create_if_missing", "true")
        .unwrap()
        .column_family("default", |family| family.num_levels = 5)
        .column_family("users", |family| family.num_levels = 4);
    let missing = named.clone().set("create_missing_column_families", "true").unwrap();
    let families = || Db::list_column_families("/db", &Options::new().env(env.clone())).unwrap();
    let levels_of =
        |db: &Db, family: &str| db.get_options(&db.column_family(family).unwrap()).unwrap().num_levels;
    // A database is created with all families or not at all.
    let error = Db::open(
        "/db",
        &missing.clone().column_family("more", |family| family.memtable_protection_bytes_per_key = 3),
    );
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!env.fs().exists(Path::new("/db/CURRENT")).unwrap());
    let db = Db::open("/db", &missing).unwrap();
    assert_eq!((levels_of(&db, "default"), levels_of(&db, "users")), (5, 4));
    db.cf("users").unwrap().put("key", "value").unwrap();
    drop(db);
    assert_eq!(families(), ["default", "users"]);
    // An existing database gets its missing families only with `create_missing_column_families`.
    let more = |options: &Options| options.clone().column_family("more", |family| family.num_levels = 3);
    assert_eq!(Db::open("/db", &more(&named)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let reading = Db::open_read_only("/db", &more(&missing));
    assert_eq!(reading.unwrap_err().kind(), ErrorKind::InvalidArgument, "reading makes nothing");
    assert_eq!(families(), ["default", "users"]);
    for _ in 0..2 {
        let db = Db::open("/db", &more(&missing)).unwrap();
        assert_eq!((levels_of(&db, "users"), levels_of(&db, "more")), (4, 3));
        assert_eq!(db.cf("users").unwrap().get("key").unwrap().unwrap(), b"value");
        drop(db);
        assert_eq!(families(), ["default", "users", "more"]);
    }
    // A call that names families must name all of them.
    let error = Db::open_cf(
        "/db",
        &missing.column_family("most", |family| family.num_levels = 2),
        &["users", "more"],
    );
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(families(), ["default", "users", "more"]);
}

#[test]
fn families_come_and_go_at_the_same_time_and_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), &create().set_all("format_version=5;write_buffer_size=65536").unwrap())
        .unwrap();
    let churn = |thread: usize| {
        for round in 0..8 {
            let family = db.create_column_family(&format!("{thread}-{round}"), &Options::new()).unwrap();
            let (writer, target) = (db.clone(), family.clone());
            let writer = std::thread::spawn(move || {
                let options = karst_engine::WriteOptions::default();
                (0..).find_map(|n: u32| writer.put_cf(&options, &target, n.to_be_bytes(), [7; 999]).err())
            });
            while all_of_family(&db, &family) < 20 {
                std::thread::yield_now();
            }
            if round % 2 == 0 {
                db.flush_cfs(&karst_engine::FlushOptions::default(), &[&family]).unwrap();
            }
            db.drop_column_family(&family).unwrap();
            let error = writer.join().unwrap().unwrap();
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::NotFound), "{error}");
            assert!(all_of_family(&db, &family) >= 20, "reads with the handle go on");
        }
        db.create_column_family(&format!("{thread} stays"), &Options::new()).unwrap().id()
    };
    let mut ids: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn({
                    let churn = &churn;
                    move || churn(thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    db.put("k", "v").unwrap();
    db.flush(&karst_engine::FlushOptions::default()).unwrap();
    db.close().unwrap();
    drop(db);
    let names = names(folder.path());
    assert_eq!(names.iter().filter(|name| name.ends_with(".sst")).count(), 1, "{names:?}");
    let families = Db::list_column_families(folder.path(), &Options::new()).unwrap();
    assert_eq!(families.len(), 4, "{families:?}");
    assert!(ldb(folder.path(), &["checkconsistency"], b"").unwrap().contains("OK"));
}

fn all_of_family(db: &Db, family: &karst_engine::ColumnFamily) -> usize {
    let mut iterator = db.iter_cf(&ReadOptions::default(), family).unwrap();
    iterator.seek_to_first().unwrap();
    let mut count = 0;
    while iterator.valid() {
        count += 1;
        iterator.next().unwrap();
    }
    count
}

#[test]
fn what_cannot_be_opened_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let found = || {
        let mut found = contents(&path);
        // A handle writes to LOG at any time, and the first opener creates LOCK.
        found.retain(|name, _| name != "LOG" && name != "LOCK");
        found
    };
    let refused = |options: &Options| {
        let before = path.exists().then(found);
        let error = Db::open(&path, options).map(drop).unwrap_err();
        assert_eq!(before, path.exists().then(found), "{error}");
        error.to_string()
    };
    assert!(refused(&Options::new()).contains("create_if_missing"));
    assert!(!path.exists());
    let contradictory = create().db(|db| {
        db.unordered_write = true;
        db.enable_pipelined_write = true;
    });
    assert!(refused(&contradictory).contains("unordered_write"));
    let contradictory = create().db(|db| {
        db.unordered_write = true;
        db.allow_concurrent_memtable_write = false;
    });
    assert!(refused(&contradictory).contains("unordered_write"));
    drop(Db::open(&path, &create()).unwrap());
    let merging = |cf: &mut karst_engine::ColumnFamilyOptions| cf.max_successive_merges = 2;
    let contradictory = create().db(|db| db.unordered_write = true).column_families(merging);
    assert!(refused(&contradictory).contains("max_successive_merges"));
    assert!(refused(&create().db(|db| db.error_if_exists = true)).contains("error_if_exists"));
    let unknown = refused(&Options::new().column_families(|cf| cf.memtable_protection_bytes_per_key = 3));
    assert!(unknown.contains("memtable_protection_bytes_per_key"), "{unknown}");
    assert!(
        refused(&Options::new().set("comparator", "rocksdb.ReverseBytewiseComparator").unwrap())
            .contains("comparator")
    );
    let db = Db::open(&path, &Options::new()).unwrap();
    assert!(refused(&Options::new()).contains("open elsewhere"));
    assert_eq!(Db::destroy(&path, &Options::new()).unwrap_err().kind(), ErrorKind::Locked);
    drop(db);
    let current = std::fs::read(path.join("CURRENT")).unwrap();
    std::fs::write(path.join("CURRENT"), b"MANIFEST-").unwrap();
    assert!(refused(&create()).contains("CURRENT"));
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    assert!(refused(&create()).contains("CURRENT"), "a database is not made over another");
    std::fs::write(path.join("CURRENT"), &current).unwrap();
    let manifest = path.join(String::from_utf8(current).unwrap().trim_end());
    let bytes = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &bytes[..bytes.len() - 3]).unwrap();
    refused(&Options::new());
    std::fs::write(&manifest, &bytes).unwrap();
    drop(Db::open(&path, &Options::new()).unwrap());
}

/// The reader shares nothing with the writer but the directory, like a reader in another process.
#[test]
fn reading_while_another_writes_is_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let options = create().set_all("max_manifest_file_size=1;max_manifest_space_amp_pct=0").unwrap();
    let db = Db::open(path, &options).unwrap();
    let other = db.create_column_family("other", &Options::new()).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut written = 0;
        while !seen.load(Ordering::Relaxed) {
            let key = format!("{written:08}");
            db.put(&key, b"").unwrap();
            db.put_cf(&karst_engine::WriteOptions::default(), &other, &key, b"").unwrap();
            if written % 5 == 4 {
                let family =
                    if written % 2 == 0 { db.default_column_family().clone() } else { other.clone() };
                db.flush_cfs(&karst_engine::FlushOptions::default(), &[&family]).unwrap();
            }
            written += 1;
        }
        written
    });
    let mut last = 0;
    // No fixed number of rounds, because the writer may not have had a processor yet.
    let (mut round, mut overtaken) = (0, 0);
    while (round < 40 || last == 0) && !writer.is_finished() {
        let reader = match Db::open_read_only(path, &Options::new()) {
            Ok(reader) => reader,
            // Files that the reader had listed were removed before it opened them, on each attempt.
            Err(error) if error.kind() == ErrorKind::TryAgain && overtaken < 500 => {
                overtaken += 1;
                continue;
            }
            Err(error) => panic!("round {round}: {error}"),
        };
        let (first, second) = (all_of(&reader, "default").len(), all_of(&reader, "other").len());
        assert!(first == second || first == second + 1, "round {round}: {first} and {second}");
        let newest = all_of(&reader, "default").pop();
        assert_eq!(newest.map(|(key, _)| key), first.checked_sub(1).map(|n| format!("{n:08}")), "no hole");
        assert!(first >= last, "what was seen stays: {last}, then {first}");
        last = first;
        round += 1;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() >= last && last > 0);
}

#[test]
fn a_destroyed_database_is_gone_and_other_files_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    Db::destroy(&path, &Options::new()).unwrap();
    drop(Db::open(&path, &create()).unwrap());
    std::fs::create_dir(path.join("archive")).unwrap();
    std::fs::write(path.join("archive/000009.log"), b"").unwrap();
    std::fs::write(path.join("mine"), b"").unwrap();
    Db::destroy(&path, &Options::new()).unwrap();
    assert_eq!(names(&path), ["mine"]);
    std::fs::remove_file(path.join("mine")).unwrap();
    drop(Db::open(&path, &create()).unwrap());
    Db::destroy(&path, &Options::new()).unwrap();
    assert!(!path.exists());
}

/// Lets the first `.0` changes of files succeed and fails all later ones, so that the files are
/// those that a crash leaves.
#[derive(Debug)]
struct CrashAfter(AtomicU64);

impl Disturb for CrashAfter {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<karst_engine::io::Disturbance> {
        None
    }

    fn write(&self, _: &Path) -> std::io::Result<()> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| std::io::Error::from_raw_os_error(5))
    }
}

fn in_memory(files: &BTreeMap<String, Vec<u8>>) -> MemoryFileSystem {
    let memory = MemoryFileSystem::new();
    for (name, bytes) in files {
        memory.write_file(&Path::new("/db").join(name), bytes.clone()).unwrap();
    }
    memory
}

fn options_on(fs: impl FileSystem + 'static) -> Options {
    create().env(Env::builder().file_system(Arc::new(fs)).build())
}

/// Runs `act` with a crash after each of its changes until it completes, and `check` on the files
/// that each crash leaves.
fn crash_everywhere(
    files: &BTreeMap<String, Vec<u8>>,
    act: impl Fn(&Options) -> karst_engine::Result<()>,
    check: impl Fn(&Options, bool, &str),
) -> u64 {
    for changes in 0..1000 {
        let memory = in_memory(files);
        let crashing =
            DisturbedFileSystem::new(Arc::new(memory.clone()), CrashAfter(AtomicU64::new(changes)));
        let done = act(&options_on(crashing)).is_ok();
        let at = format!("crash after {changes} changes");
        check(&options_on(memory.clone()), done, &at);
        let left = memory.list_dir(Path::new("/db")).unwrap();
        assert_eq!(with_prefix(&left, "MANIFEST-").len(), 1, "{at}: {left:?}");
        assert!(!left.iter().any(|name| name.ends_with("dbtmp")), "{at}: {left:?}");
        if done {
            return changes;
        }
    }
    panic!("it never ends");
}

#[test]
fn a_crash_while_a_database_is_made_leaves_one_that_opens_or_none() {
    let files = BTreeMap::new();
    let act = |options: &Options| Db::open("/db", options).map(drop);
    let check = |options: &Options, _: bool, at: &str| {
        let db = Db::open("/db", options).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(all_of(&db, "default").is_empty());
    };
    assert!(crash_everywhere(&files, act, check) > 10);
}

#[test]
fn a_crash_during_recovery_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    ldb(folder.path(), &["--create_if_missing", "put", "a", "1"], b"").unwrap();
    ldb(folder.path(), &["create_column_family", "other"], b"").unwrap();
    ldb(folder.path(), &["--column_family=other", "put", "b", "2"], b"").unwrap();
    ldb(folder.path(), &["put", "c", "3"], b"").unwrap();
    let files = contents(folder.path());
    let act = |options: &Options| Db::open("/db", options)?.close();
    let check = |options: &Options, _: bool, at: &str| {
        let db = Db::open("/db", options).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!((all_of(&db, "default").len(), all_of(&db, "other").len()), (2, 1), "{at}");
        let tables = db.live_files().len();
        db.close().unwrap();
        let left = db.env().fs().list_dir(Path::new("/db")).unwrap();
        assert_eq!(left.iter().filter(|name| name.ends_with(".sst")).count(), tables, "{at}: {left:?}");
    };
    assert!(crash_everywhere(&files, act, check) > 10);
}

#[test]
fn a_crash_while_families_come_and_go_leaves_the_old_or_the_new_state() {
    let files = BTreeMap::new();
    let act = |options: &Options| {
        let options =
            options.clone().set_all("max_manifest_file_size=1;max_manifest_space_amp_pct=0").unwrap();
        let db = Db::open("/db", &options)?;
        for round in 0..4 {
            let family = db.create_column_family(&format!("f{round}"), &options)?;
            if round % 2 == 1 {
                db.drop_column_family(&family)?;
            }
        }
        db.close()
    };
    let expected: [&[&str]; 5] = [
        &["default"],
        &["default", "f0"],
        &["default", "f0", "f1"],
        &["default", "f0", "f2"],
        &["default", "f0", "f2", "f3"],
    ];
    let check = |options: &Options, done: bool, at: &str| {
        let db = Db::open("/db", options).unwrap_or_else(|e| panic!("{at}: {e}"));
        let found: Vec<String> = db.column_families().iter().map(|f| f.name().to_owned()).collect();
        assert!(expected.iter().any(|names| found == *names), "{at}: {found:?}");
        assert!(!done || found == expected[3], "{at}: {found:?}");
        db.close().unwrap();
    };
    assert!(crash_everywhere(&files, act, check) > 40);
}

/// Removes every table before it is opened and changes the directory: the view of a reader that
/// compactions in another process overtake.
#[derive(Debug)]
struct Overtaking(MemoryFileSystem, AtomicU64);

impl Disturb for Overtaking {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<karst_engine::io::Disturbance> {
        None
    }

    fn open(&self, path: &Path) -> std::io::Result<()> {
        if path.extension().is_none_or(|extension| extension != "sst") {
            return Ok(());
        }
        let newer = 1000 + self.1.fetch_add(1, Ordering::Relaxed);
        self.0.write_file(&path.with_file_name(format!("{newer:06}.sst")), Vec::new()).unwrap();
        Err(std::io::ErrorKind::NotFound.into())
    }
}

#[test]
fn whoever_is_overtaken_each_time_is_told_to_try_again() {
    let files = MemoryFileSystem::new();
    let options = |env: &Env| create().env(env.clone()).set("max_open_files", "-1").unwrap();
    let env = Env::builder().file_system(Arc::new(files.clone())).build();
    let db = Db::open("/db", &options(&env)).unwrap();
    db.put("key", "value").unwrap();
    db.flush(&karst_engine::FlushOptions::default()).unwrap();
    db.close().unwrap();
    let overtaking = DisturbedFileSystem::new(Arc::new(files.clone()), Overtaking(files, AtomicU64::new(0)));
    let disturbed = Env::builder().file_system(Arc::new(overtaking.clone())).build();
    let error = Db::open_read_only("/db", &options(&disturbed)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgain, "{error}");
    assert!(error.to_string().contains(".sst"), "the last reason is told: {error}");
    assert!(overtaking.between().1.load(Ordering::Relaxed) > 1, "it starts over by itself");
    assert!(Db::open_read_only("/db", &options(&env)).unwrap().get("key").unwrap().is_some());
}

#[test]
fn there_is_no_identity_file_where_none_is_wanted() {
    for (wanted, files) in [("true", 1), ("false", 0)] {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = create().env(env.clone()).set("write_identity_file", wanted).unwrap();
        let identity = || {
            let names = env.fs().list_dir(Path::new("/db")).unwrap();
            names.iter().filter(|name| *name == "IDENTITY").count()
        };
        let db = Db::open("/db", &options).unwrap();
        let id = db.identity().unwrap().to_owned();
        db.close().unwrap();
        assert_eq!(identity(), files);
        // The MANIFEST holds the identity now, and opening again creates no file.
        let db = Db::open("/db", &options).unwrap();
        assert_eq!(db.identity(), Some(&*id));
        db.close().unwrap();
        assert_eq!(identity(), files);
    }
}
