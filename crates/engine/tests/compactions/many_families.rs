//! Thousands of column families, and several that are created at once.

use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{Db, Options, ReadOptions, WriteOptions};
use karst_testkit::processor_time::ProcessorTime;
use karst_testkit::rocksdb_tools::ldb;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The tests of this file run one at a time, as one measures the time of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;write_buffer_size=100000";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

/// What grows with the square of their number takes minutes here: opening 200 took nine seconds
/// when each option was looked for among all defaults of all families.
#[test]
fn two_thousand_families_are_made_and_found_again() {
    let _alone = alone();
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let names: Vec<String> = (0..2000).map(|n| format!("family {n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut own = options(&env);
    for (n, name) in names.iter().enumerate() {
        own = own.column_family(*name, move |options| options.max_write_buffer_number = 3 + n as i32);
    }
    let db = Db::open_cf("/db", &own, &names).unwrap();
    for (n, name) in names.iter().enumerate().step_by(97) {
        let family = db.column_family(name).unwrap();
        db.put_cf(&WriteOptions::new(), &family, "key", n.to_string()).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = Db::open_cf("/db", &Options::new().env(env.clone()), &names).unwrap();
    assert_eq!(db.column_families().len(), 2001);
    for (n, name) in names.iter().enumerate() {
        let family = db.column_family(name).unwrap();
        assert_eq!(db.get_options(&family).unwrap().max_write_buffer_number, 3 + n as i32, "{name}");
        let value = db.get_cf(&ReadOptions::new(), &family, "key").unwrap();
        assert_eq!(value.as_deref(), (n % 97 == 0).then(|| n.to_string()).as_deref().map(str::as_bytes));
    }
    for n in 0..200 {
        db.create_column_family(&format!("another {n}"), &Options::new()).unwrap();
    }
    assert_eq!(db.column_families().len(), 2201);
}

/// Counts the calls that write.
#[derive(Debug, Default)]
struct Writes(AtomicU64);

impl Disturb for Writes {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        // Why not LOG: its lines are written by a thread of their own, as many at once as have
        // come.
        if !path.ends_with("LOG") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What it takes to make so many families at once, to open them again and to add one more: calls
/// that write, bytes of OPTIONS and of the MANIFEST, and processor time.
#[derive(Clone, Copy, Debug)]
struct Cost {
    writes: u64,
    bytes: u64,
    time: Duration,
}

fn cost(families: usize) -> Cost {
    let memory = Arc::new(MemoryFileSystem::new());
    let files = DisturbedFileSystem::new(memory.clone(), Writes::default());
    let writes = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let names: Vec<String> = (0..families).map(|n| format!("family {n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let began = ProcessorTime::now();
    let mut own = options(&env);
    for (n, name) in names.iter().enumerate() {
        own = own.column_family(*name, move |options| options.max_write_buffer_number = 3 + n as i32);
    }
    Db::open_cf("/db", &own, &names).unwrap().close().unwrap();
    let db = Db::open_cf("/db", &Options::new().env(env.clone()), &names).unwrap();
    db.create_column_family("one more", &own).unwrap();
    db.close().unwrap();
    let time = began.elapsed().total();
    let size = |name: &String| memory.metadata(&Path::new("/db").join(name)).unwrap().len;
    let described = |name: &&String| name.starts_with("OPTIONS") || name.starts_with("MANIFEST");
    let bytes = memory.list_dir(Path::new("/db")).unwrap().iter().filter(described).map(size).sum();
    Cost { writes: writes.0.load(Ordering::Relaxed), bytes, time }
}

#[test]
fn four_times_as_many_families_write_four_times_as_much() {
    let _alone = alone();
    let [few, many] = [500, 2000].map(cost);
    println!("500: {few:?}, 2000: {many:?}");
    // Linear is 4, and a square 16.
    assert!(many.bytes <= few.bytes * 9 / 2, "{few:?} {many:?}");
    // All families come in one change of the MANIFEST and one OPTIONS file.
    assert_eq!(many.writes, few.writes, "{few:?} {many:?}");
    // Not linear by a part: each family that is made looks at the names of all, and the list of all
    // is copied. It is the processor's time, so that other processes do not count, but for what
    // they take from its caches: so the best of a few attempts counts.
    let is_near_linear = |[few, many]: [Cost; 2]| many.time <= few.time * 12;
    let again = || is_near_linear([500, 2000].map(cost));
    assert!(is_near_linear([few, many]) || (0..3).any(|_| again()), "{few:?} {many:?}");
}

/// The number of the newest OPTIONS file.
fn options_file(env: &Env, path: &Path) -> u64 {
    let names = env.fs().list_dir(path).unwrap();
    let numbers = names.iter().filter_map(|name| name.strip_prefix("OPTIONS-")?.parse().ok());
    numbers.max().unwrap()
}

#[test]
fn several_are_created_at_once() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (path, env) = (directory.path(), Env::posix());
    let own = options(&env).column_family("b", |options| options.max_write_buffer_number = 7);
    let db = Db::open(path, &options(&env)).unwrap();
    let before = options_file(&env, path);
    let families = db.create_column_families(&["a", "b", "c"], &own).unwrap();
    assert_eq!(options_file(&env, path), before + 1, "OPTIONS was written once");
    assert_eq!(families.iter().map(|family| family.name()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(families[1].options().max_write_buffer_number, 7);
    for family in &families {
        db.put_cf(&WriteOptions::new(), family, "key", family.name()).unwrap();
    }
    // One that exists already, one that is named twice, and one whose options cannot work: none of
    // them is created.
    let bad = options(&env).column_family("e", |options| options.max_write_buffer_number = 0);
    for (names, options, said) in [
        (&["d", "a"][..], &own, "already exists: \"a\""),
        (&["d", "d"], &own, "already exists: \"d\""),
        (&["d", "e"], &bad, "max_write_buffer_number"),
    ] {
        let error = db.create_column_families(names, options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(db.create_column_families(&[], &own).unwrap().is_empty());
    assert_eq!(options_file(&env, path), before + 1);
    db.close().unwrap();
    drop((families, db));
    let listed = ldb(path, &["list_column_families"], b"").unwrap();
    assert!(listed.contains("{default, a, b, c}"), "{listed}");
    assert_eq!(ldb(path, &["--try_load_options", "--column_family=b", "get", "key"], b"").unwrap(), "b\n");
}
