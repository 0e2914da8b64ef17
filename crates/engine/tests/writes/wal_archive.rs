//! Obsolete logs that are kept in `archive`: their content, how long they stay, and that they
//! disturb no other operation.

use karst_engine::io::Env;
use karst_engine::{Db, ErrorKind, FlushOptions, Options, WalFile, WalUpdates, WriteBatch, WriteOptions};
use karst_testkit::eventually;
use karst_testkit::rocksdb_tools::{ldb, ldb_scan, run};
use std::path::Path;

fn options(more: &str) -> Options {
    let text = format!("create_if_missing=true;format_version=5;{more}");
    Options::new().set_all(&text).unwrap()
}

fn fill(db: &Db, rounds: std::ops::Range<usize>) {
    for round in rounds {
        for n in 0..20 {
            db.put(format!("{round:03}-{n:03}"), "value").unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
}

fn names(path: &Path) -> Vec<String> {
    let found = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

#[test]
fn logs_are_archived_and_say_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (path, archive) = (directory.path(), directory.path().join("archive"));
    let options = options("WAL_ttl_seconds=100000;recycle_log_file_num=4");
    let db = Db::open(path, &options).unwrap();
    assert_eq!(db.options().recycle_log_file_num, 0, "what is archived is not recycled");
    fill(&db, 0..5);
    db.put("last", "1").unwrap();
    db.close().unwrap();
    let db = Db::open_read_only(path, &options).unwrap();
    let files = db.get_sorted_wal_files().unwrap();
    assert_eq!(files.len(), 6, "{files:?}");
    assert_eq!(names(&archive).len(), 5);
    for (index, file) in files.iter().enumerate() {
        assert_eq!((file.archived, file.start_sequence), (index < 5, index as u64 * 20 + 1), "{file:?}");
        assert!(path.join(&file.name[1..]).exists());
        let walfile = format!("--walfile={}", path.join(&file.name[1..]).display());
        let dumped = run("ldb", &["dump_wal", &walfile, "--header"], b"").unwrap();
        assert!(dumped.contains(&format!("{},", index * 20 + 1)), "{dumped}");
    }
    // A log can be in this state between the flush that made it obsolete and its move to the
    // archive.
    let waiting = &names(&archive)[1];
    std::fs::rename(archive.join(waiting), path.join(waiting)).unwrap();
    assert_eq!(db.get_sorted_wal_files().unwrap().len(), 6);
    std::fs::rename(path.join(waiting), archive.join(waiting)).unwrap();
    drop(db);
    // RocksDB opens the database and leaves the archive unchanged.
    ldb(path, &["put", "more", "1"], b"").unwrap();
    assert_eq!(ldb_scan(path, "default").unwrap().len(), 102);
    let db = Db::open(path, &options).unwrap();
    assert_eq!(db.get("004-019").unwrap().as_deref(), Some(&b"value"[..]));
    drop(db);
    assert!(names(&archive).len() >= 6);
    Db::destroy(path, &options).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_log_that_cannot_be_archived_is_archived_later() {
    let directory = tempfile::tempdir().unwrap();
    let (path, archive) = (directory.path(), directory.path().join("archive"));
    let db = Db::open(path, &options("WAL_ttl_seconds=100000")).unwrap();
    fill(&db, 0..1);
    eventually(true, || archive.is_dir() && names(&archive).len() == 1);
    // A file blocks the directory's path.
    std::fs::rename(&archive, path.join("away")).unwrap();
    std::fs::write(&archive, "").unwrap();
    fill(&db, 1..3);
    let waiting = names(path);
    std::fs::remove_file(&archive).unwrap();
    std::fs::rename(path.join("away"), &archive).unwrap();
    // Several rounds, because the last attempt that fails may end only after the next one.
    let mut round = 3;
    eventually(true, || {
        fill(&db, round..round + 1);
        round += 1;
        waiting.iter().all(|name| archive.join(name).exists())
    });
    assert!(waiting.len() >= 2 && names(&archive).len() >= 4, "{waiting:?}");
}

#[test]
fn archived_logs_go_when_there_are_too_many_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options = options("WAL_size_limit_MB=1");
    for life in 0..6 {
        let db = Db::open(path, &options).unwrap();
        for n in 0..40 {
            db.put(format!("{life}-{n:03}"), vec![b'v'; 10_000]).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
    }
    // 400 kB each: two fit. The limit is checked when the first log of each process life is
    // retired, so one more may have followed.
    let left = names(&path.join("archive"));
    assert!((2..=4).contains(&left.len()), "{left:?}");
    let bytes = Env::posix().fs().metadata(&path.join("archive").join(&left[0])).unwrap().len;
    assert!(bytes > 300_000, "{bytes}");
    let db = Db::open(path, &options).unwrap();
    assert!((0..6).all(|life| db.get(format!("{life}-039")).unwrap().is_some()));
}

/// Returns the sequence numbers and counts of the batches that are available now.
fn now(updates: &mut WalUpdates) -> Vec<(u64, u32)> {
    updates.map(|update| update.unwrap()).map(|update| (update.sequence, update.batch.count())).collect()
}

fn batch(keys: &[&str]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    keys.iter().for_each(|key| batch.put(key, "").unwrap());
    batch
}

#[test]
fn updates_are_found_in_archived_and_live_logs_and_as_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("WAL_ttl_seconds=100000")).unwrap();
    assert_eq!(db.get_updates_since(1).unwrap_err().kind(), ErrorKind::NotFound);
    let flush = || db.flush(&FlushOptions::default()).unwrap();
    db.put("a", "").unwrap();
    db.write(&WriteOptions::new(), &batch(&["b", "c", "d"])).unwrap();
    flush();
    db.put("e", "").unwrap();
    assert_eq!(now(&mut db.get_updates_since(0).unwrap()), [(1, 1), (2, 3), (5, 1)]);
    assert_eq!(now(&mut db.get_updates_since(3).unwrap()), [(2, 3), (5, 1)], "the batch that has it");
    let mut updates = db.get_updates_since(5).unwrap();
    assert_eq!(now(&mut updates), [(5, 1)]);
    assert_eq!(now(&mut updates), []);
    db.put("f", "").unwrap();
    assert_eq!(now(&mut updates), [(6, 1)], "in the log that it has read already");
    db.put("g", "").unwrap();
    flush();
    db.put("h", "").unwrap();
    flush();
    assert_eq!(now(&mut updates), [(7, 1), (8, 1)], "over a switch");
    // An unlogged write is reported once, as a gap.
    db.put_opt(&WriteOptions { disable_wal: true, ..WriteOptions::new() }, "lost", "").unwrap();
    assert_eq!(now(&mut updates), [], "what comes behind it may still be on its way");
    db.put("i", "").unwrap();
    let gap = updates.next().unwrap().unwrap_err();
    assert!(gap.kind() == ErrorKind::NotFound && gap.to_string().contains("9 to 9"), "{gap}");
    assert_eq!(now(&mut updates), [(10, 1)]);
    let batch = db.get_updates_since(2).unwrap().next().unwrap().unwrap().batch;
    let copy = tempfile::tempdir().unwrap();
    let replica = Db::open(copy.path(), &options("")).unwrap();
    replica.write(&WriteOptions::new(), &batch).unwrap();
    assert!(replica.get("d").unwrap().is_some() && replica.get("a").unwrap().is_none());
}

#[test]
fn updates_begin_with_what_the_logs_still_have() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    fill(&db, 0..3);
    db.put("z", "").unwrap();
    let first = || db.get_updates_since(1).unwrap().next().unwrap().unwrap().sequence;
    // Obsolete logs are removed in the background.
    eventually(true, || first() > 1);
    assert!(first() <= 61, "{}", first());
    drop(db);
    let db = Db::open(directory.path(), &options("allow_2pc=true")).unwrap();
    assert_eq!(db.get_updates_since(1).unwrap_err().kind(), ErrorKind::NotSupported);
}

#[test]
fn a_follower_of_many_writers_misses_nothing() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Db::open(directory.path(), &options("WAL_ttl_seconds=100000")).unwrap();
    let replica = Db::open(copy.path(), &options("")).unwrap();
    const WRITERS: u32 = 3;
    const EACH: u32 = 400;
    db.put("first", "").unwrap();
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let db = &db;
            threads.spawn(move || {
                for n in 0..EACH {
                    db.put(format!("{n}"), format!("{writer}")).unwrap();
                    if n % 100 == writer {
                        db.flush(&FlushOptions::default()).unwrap();
                    }
                }
            });
        }
        let mut updates = db.get_updates_since(1).unwrap();
        let mut next = 1;
        while next <= u64::from(WRITERS * EACH) + 1 {
            for update in &mut updates {
                let update = update.unwrap();
                assert_eq!(update.sequence, next);
                replica.write(&WriteOptions::new(), &update.batch).unwrap();
                next += u64::from(update.batch.count());
            }
        }
    });
    for n in 0..EACH {
        let key = n.to_string();
        assert_eq!(db.get(&key).unwrap().as_deref(), replica.get(&key).unwrap().as_deref());
    }
}

#[test]
fn the_log_that_is_written_is_told_without_a_look_into_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    let size = |file: &WalFile| std::fs::metadata(directory.path().join(&file.name[1..])).unwrap().len();
    db.put("a", "1").unwrap();
    let first = db.get_current_wal_file().unwrap();
    assert_eq!((first.size_bytes, first.start_sequence), (size(&first), 0));
    assert!(first.size_bytes > 0 && !first.archived);
    db.flush(&FlushOptions::default()).unwrap();
    db.put("b", "2").unwrap();
    let second = db.get_current_wal_file().unwrap();
    assert!(second.number > first.number, "{second:?}");
    assert_eq!(second.size_bytes, size(&second));
    let sorted = db.get_sorted_wal_files().unwrap();
    assert_eq!(sorted.last().unwrap().number, second.number);
}
