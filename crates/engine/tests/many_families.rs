//! Thousands of column families, and several that are created at once.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{Db, Options, ReadOptions, WriteOptions};
use karst_testkit::rocksdb_tools::ldb;
use std::path::Path;
use std::sync::Arc;

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;write_buffer_size=100000";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

/// What grows with the square of their number takes minutes here: opening 200 took nine seconds
/// when each option was looked for among all defaults of all families.
#[test]
fn two_thousand_families_are_made_and_found_again() {
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

/// The number of the newest OPTIONS file.
fn options_file(env: &Env, path: &Path) -> u64 {
    let names = env.fs().list_dir(path).unwrap();
    let numbers = names.iter().filter_map(|name| name.strip_prefix("OPTIONS-")?.parse().ok());
    numbers.max().unwrap()
}

#[test]
fn several_are_created_at_once() {
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
        (&["d", "a"][..], &own, "\"a\" exists already"),
        (&["d", "d"], &own, "\"d\" exists already"),
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
