//! Logs that are kept in `archive` after nobody needs them: what is in them, how long they stay, and that they disturb nobody.

use karst_engine::io::Env;
use karst_engine::{Db, FlushOptions, Options};
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
    drop(db);
    // RocksDB opens the database, and leaves the archive alone.
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
    // 400 kB each: two fit. The look is at the first log that is retired in each life, so one more may have come behind it.
    let left = names(&path.join("archive"));
    assert!((2..=4).contains(&left.len()), "{left:?}");
    let bytes = Env::posix().fs().metadata(&path.join("archive").join(&left[0])).unwrap().len;
    assert!(bytes > 300_000, "{bytes}");
    let db = Db::open(path, &options).unwrap();
    assert!((0..6).all(|life| db.get(format!("{life}-039")).unwrap().is_some()));
}
