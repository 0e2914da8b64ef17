//! What databases leave behind that were closed and dropped: no descriptor and no thread in the
//! process, and in the directory the same few files however often.

use karst_engine::{Db, Options};
use karst_io::{Env, MemoryFileSystem};
use karst_testkit::eventually;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// The tests of this file run one at a time, as they count what the whole process has.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // Why not poisoned: that one has failed is no failure of the others.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn open(directory: &Path, number: usize) -> Db {
    let options = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open(directory.join(number.to_string()), &options).unwrap();
    db.put("key", "value").unwrap();
    db
}

/// Reads a table, and so has the calling thread's own ring.
fn read(db: &Db) {
    db.flush(&Default::default()).unwrap();
    assert!(db.get("key").unwrap().is_some());
}

#[test]
fn dropped_databases_leave_no_descriptors_and_no_threads() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), 0));
    let before = (descriptors(), threads());
    let databases: Vec<Db> = (1..20).map(|number| open(directory.path(), number)).collect();
    databases.iter().for_each(read);
    assert!(descriptors() > before.0 + 40, "each has its rings");
    drop(databases);
    // Why not equal: threads of tests that ran before end too.
    eventually(true, || descriptors() <= before.0 && threads() <= before.1);
}

#[test]
fn a_thread_lets_go_of_databases_that_others_dropped_when_it_reads_again() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let stays = open(directory.path(), 0);
    std::thread::scope(|scope| {
        let (ask, asked) = mpsc::channel::<Vec<Arc<Db>>>();
        let (answer, answered) = mpsc::channel();
        let stays = &stays;
        scope.spawn(move || {
            while let Ok(databases) = asked.recv() {
                databases.iter().for_each(|db| read(db));
                drop(databases);
                read(stays);
                answer.send(()).unwrap();
            }
        });
        let reads = |databases: Vec<Arc<Db>>| {
            ask.send(databases).unwrap();
            answered.recv().unwrap();
        };
        reads(Vec::new());
        let before = descriptors();
        let databases: Vec<_> = (1..10).map(|number| Arc::new(open(directory.path(), number))).collect();
        reads(databases.clone());
        drop(databases);
        reads(Vec::new());
        eventually(true, || descriptors() <= before);
        drop(ask);
    });
}

/// How many files of each kind are in the directory: numbers and times taken out of their names.
fn kinds(env: &Env, path: &Path) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for name in env.fs().list_dir(path).unwrap() {
        *kinds.entry(name.replace(|c: char| c.is_ascii_digit(), "")).or_default() += 1;
    }
    kinds
}

#[test]
fn opening_and_closing_leaves_so_many_files_however_often() {
    let _alone = alone();
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new()
        .env(env.clone())
        .db(|db| db.create_if_missing = true)
        .set("keep_log_file_num", "4")
        .unwrap();
    let path = Path::new("/db");
    let mut after = Vec::new();
    for round in 0..60u64 {
        let db = Db::open(path, &options).unwrap();
        db.put("key", round.to_be_bytes()).unwrap();
        // Why waited for: closing gives up what runs, and a session may be shorter than any
        // compaction.
        db.wait_for_compact(&Default::default()).unwrap();
        db.close().unwrap();
        drop(db);
        after.push(kinds(&env, path));
    }
    let files = |kind: &str| after.iter().map(|kinds| kinds.get(kind).copied().unwrap_or(0)).max();
    assert_eq!(files("LOG.old."), Some(3), "keep_log_file_num counts LOG too");
    assert_eq!(files("OPTIONS-"), Some(2));
    assert_eq!(files("MANIFEST-"), Some(1));
    assert_eq!(files(".log"), Some(1));
    // Each opening makes one of what is in the log, and every few of them become one.
    assert!(files(".sst") <= Some(8), "{after:?}");
    let others = ["CURRENT", "IDENTITY", "LOCK", "LOG"];
    assert!(others.iter().all(|name| files(name) == Some(1)));
    assert_eq!(after.last().unwrap().len(), 5 + others.len(), "{:?}", after.last());
}
