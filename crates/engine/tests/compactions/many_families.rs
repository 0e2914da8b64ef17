//! Thousands of column families, and calls that create several families.

use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{Db, Options, ReadOptions, WriteOptions};
use karst_testkit::processor_time::ProcessorTime;
use karst_testkit::rocksdb_tools::ldb;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Serializes the tests of this file, because one of them measures the processor time of the
/// process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;write_buffer_size=100000";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

/// Work quadratic in the number of families takes minutes here: opening 200 took nine seconds when
/// each option was looked up among all defaults of all families.
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

/// Counts writing calls.
#[derive(Debug, Default)]
struct Writes(AtomicU64);

impl Disturb for Writes {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        // LOG is left out, because a thread of its own writes its lines, in batches of varying
        // size.
        if !path.ends_with("LOG") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Cost of creating the families in one call, reopening them and adding another one: writing calls,
/// bytes of OPTIONS and MANIFEST, and processor time.
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
    // A linear cost grows by 4, a quadratic one by 16.
    assert!(many.bytes <= few.bytes * 9 / 2, "{few:?} {many:?}");
    // All families are created by one edit of the MANIFEST and one OPTIONS file.
    assert_eq!(many.writes, few.writes, "{few:?} {many:?}");
    // Not strictly linear, because creating a family looks at all names and copies the list of all
    // families. Processor time excludes other processes except for their use of its caches, so the
    // best of a few attempts counts.
    let is_near_linear = |[few, many]: [Cost; 2]| many.time <= few.time * 12;
    let again = || is_near_linear([500, 2000].map(cost));
    assert!(is_near_linear([few, many]) || (0..3).any(|_| again()), "{few:?} {many:?}");
}

/// Returns the number of the newest OPTIONS file.
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
    // An existing name, a repeated name and a family with impossible options: the call creates no
    // family.
    let bad = options(&env).column_family("e", |options| options.memtable_protection_bytes_per_key = 3);
    for (names, options, said) in [
        (&["d", "a"][..], &own, "already exists: \"a\""),
        (&["d", "d"], &own, "already exists: \"d\""),
        (&["d", "e"], &bad, "memtable_protection_bytes_per_key"),
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
