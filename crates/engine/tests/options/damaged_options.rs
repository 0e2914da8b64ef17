//! OPTIONS files that are cut short or have a flipped bit: each is read, or refused with an error
//! that names the remedies; with a remedy the database opens and has all its data.

use karst_engine::format::Comparator;
use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{DamagedOptions, Db, FlushOptions, OptionSet, Options, ReadOptions, Result, WriteOptions};
use karst_testkit::rocksdb_tools::{db_bench, ldb_scan};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEYS: usize = 50;

fn options(env: &Env) -> Options {
    Options::new().env(env.clone())
}

fn in_memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

/// Adds the options without which the data cannot be read, from any file.
fn needed(options: Options) -> Options {
    options.column_family("default", |family| {
        family.set("merge_operator", "uint64add").unwrap();
    })
}

/// Returns an environment with a database of two families with tables and a log, options that
/// differ from the defaults, and two OPTIONS files.
fn sample() -> Env {
    let env = in_memory();
    let text = "create_if_missing=true;write_buffer_size=100000;filter_policy=bloomfilter:10;num_levels=6;\
                prefix_extractor=fixed:3;compression_opts={level=3};compression_per_level=kNoCompression:kLZ4Compression";
    let made = needed(options(&env).set_all(text).unwrap());
    let made = made.column_family("reversed", |family| {
        family.set("comparator", "rocksdb.ReverseBytewiseComparator").unwrap();
    });
    let db = Db::open("/db", &needed(options(&env).set_all(text).unwrap())).unwrap();
    let reversed = db.create_column_family("reversed", &made).unwrap();
    let write = WriteOptions::new();
    for n in 0..KEYS {
        db.put(format!("key{n:03}"), format!("value {n}")).unwrap();
        db.put_cf(&write, &reversed, format!("key{n:03}"), format!("reversed {n}")).unwrap();
        if n == KEYS / 2 {
            db.merge("counter", 1u64.to_le_bytes()).unwrap();
            db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &reversed]).unwrap();
        }
    }
    db.merge("counter", 1u64.to_le_bytes()).unwrap();
    db.set_options(&reversed, &[("write_buffer_size", "200000")]).unwrap();
    db.set_options(&reversed, &[("write_buffer_size", "300000")]).unwrap();
    db.close().unwrap();
    env
}

/// Asserts that all data is present, in order.
fn check(db: &Db, how: &str) {
    let read = ReadOptions { total_order_seek: true, ..ReadOptions::new() };
    let mut expected: Vec<(String, String)> =
        (0..KEYS).map(|n| (format!("key{n:03}"), format!("value {n}"))).collect();
    let reversed = db.column_family("reversed").unwrap();
    for n in [0, KEYS / 2, KEYS - 1] {
        let key = format!("key{n:03}");
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(format!("value {n}").as_bytes()), "{how}");
        let value = db.get_cf(&read, &reversed, &key).unwrap();
        assert_eq!(value.as_deref(), Some(format!("reversed {n}").as_bytes()), "{how}");
    }
    assert!(db.get("key").unwrap().is_none() && db.get("key999").unwrap().is_none(), "{how}");
    expected.insert(0, ("counter".to_owned(), String::from_utf8(2u64.to_le_bytes().to_vec()).unwrap()));
    let all = |family| {
        let mut iter = db.iter_cf(&read, family).unwrap();
        let mut found = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((text(iter.key()), text(iter.value())));
            iter.next().unwrap();
        }
        found
    };
    assert_eq!(all(db.default_column_family()), expected, "{how}");
    let backwards: Vec<_> =
        (0..KEYS).rev().map(|n| (format!("key{n:03}"), format!("reversed {n}"))).collect();
    assert_eq!(all(&reversed), backwards, "{how}");
}

/// Returns the OPTIONS files, newest first.
fn options_files(env: &Env) -> Vec<PathBuf> {
    let mut names = env.fs().list_dir(Path::new("/db")).unwrap();
    names.retain(|name| name.starts_with("OPTIONS-"));
    names.sort();
    names.iter().rev().map(|name| Path::new("/db").join(name)).collect()
}

fn overwrite(env: &Env, path: &Path, bytes: &[u8]) {
    let mut file = env.fs().create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

/// Returns the file cut short at every fifth byte, and with a bit flipped in every second byte.
fn damages(whole: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let cuts = (0..whole.len()).step_by(5).map(|len| (format!("cut to {len}"), whole[..len].to_vec()));
    let flips = (0..whole.len()).step_by(2).map(|at| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << (at / 2 % 8);
        (format!("flipped at {at}"), bytes)
    });
    cuts.chain(flips)
}

/// Returns true if the database opened with default options; else asserts that the error names the
/// file and both remedies.
fn opened_or_told(opened: Result<Db>, newest: &Path, older: Option<&Path>, how: &str) -> bool {
    let error = match opened {
        Ok(db) => {
            check(&db, how);
            return true;
        }
        Err(error) => error.to_string(),
    };
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    for part in [&*name(newest), "damaged_options = Ignore", "--damaged_options=ignore"] {
        assert!(error.contains(part), "{how}: {error}");
    }
    match older {
        Some(older) => {
            for part in [&*name(older), "damaged_options = UseOlder", "--damaged_options=use_older"] {
                assert!(error.contains(part), "{how}: {error}");
            }
        }
        None => assert!(error.contains("no older OPTIONS file can be used"), "{how}: {error}"),
    }
    false
}

#[test]
fn every_damaged_file_is_read_or_there_is_a_way_out() {
    let env = sample();
    let files = options_files(&env);
    let [newest, older] = files.as_slice() else { panic!("{files:?}") };
    let whole = env.fs().read_file(newest).unwrap();
    let (mut opened, mut told) = (0, 0);
    for (how, bytes) in damages(&whole) {
        overwrite(&env, newest, &bytes);
        match opened_or_told(Db::open_read_only("/db", &needed(options(&env))), newest, Some(older), &how) {
            true => opened += 1,
            false => told += 1,
        }
        for choice in [DamagedOptions::UseOlder, DamagedOptions::Ignore] {
            let options = needed(options(&env).damaged_options(choice));
            let db = Db::open_read_only("/db", &options);
            check(&db.unwrap_or_else(|e| panic!("{how}, {choice:?}: {e}")), &how);
        }
    }
    assert!(opened > 50 && told > 50, "{opened} were opened, {told} refused");
}

/// Returns an environment with a copy of the database's files.
fn copy(env: &Env) -> Env {
    let other = in_memory();
    other.fs().create_dir(Path::new("/db")).unwrap();
    for name in env.fs().list_dir(Path::new("/db")).unwrap() {
        let path = Path::new("/db").join(name);
        overwrite(&other, &path, &env.fs().read_file(&path).unwrap());
    }
    other
}

fn log_of(env: &Env) -> String {
    String::from_utf8(env.fs().read_file(Path::new("/db/LOG")).unwrap()).unwrap()
}

/// Opens for writing too; LOG holds the options used, and the next opening finds an intact file.
#[test]
fn the_way_out_is_said_in_the_log_and_leads_to_a_good_file() {
    let env = sample();
    let files = options_files(&env);
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let whole = env.fs().read_file(&files[0]).unwrap();
    for (how, bytes) in damages(&whole).step_by(13) {
        overwrite(&env, &files[0], &bytes);
        let env = copy(&env);
        let reversed = |db: &Db| db.column_family("reversed").unwrap().options().write_buffer_size;
        if opened_or_told(Db::open("/db", &needed(options(&env))), &files[0], Some(&files[1]), &how) {
            continue;
        }
        for (choice, said, size) in [
            (DamagedOptions::UseOlder, format!("options come from {} and", name(&files[1])), 200_000),
            (DamagedOptions::Ignore, "options come from the defaults and".to_owned(), 64 << 20),
        ] {
            let env = copy(&env);
            let db = Db::open("/db", &needed(options(&env).damaged_options(choice)));
            let db = db.unwrap_or_else(|e| panic!("{how}, {choice:?}: {e}"));
            check(&db, &how);
            assert_eq!(reversed(&db), size, "{how}, {choice:?}");
            db.put("new", "x").unwrap();
            db.flush(&FlushOptions::default()).unwrap();
            db.close().unwrap();
            drop(db);
            let log = log_of(&env);
            let line =
                log.lines().find(|line| line.contains(&said)).unwrap_or_else(|| panic!("{how}: {log}"));
            assert!(line.contains("[WARN]") && line.contains(&name(&files[0])), "{how}: {line}");
            let db = Db::open("/db", &options(&env)).unwrap_or_else(|e| panic!("{how}, again: {e}"));
            assert_eq!(reversed(&db), size, "{how}, {choice:?}");
            assert!(db.get("new").unwrap().is_some() && !log_of(&env).contains("options come from"));
        }
    }
}

#[test]
fn where_all_files_are_damaged_only_going_without_is_left() {
    let env = sample();
    for path in options_files(&env) {
        overwrite(&env, &path, b"[DBOptions]\n");
    }
    let newest = &options_files(&env)[0];
    for choice in [DamagedOptions::Refuse, DamagedOptions::UseOlder] {
        let opened = Db::open_read_only("/db", &needed(options(&env).damaged_options(choice)));
        assert!(!opened_or_told(opened, newest, None, "all damaged"));
    }
    let ignoring = options(&env).damaged_options(DamagedOptions::Ignore);
    check(&Db::open_read_only("/db", &needed(ignoring.clone())).unwrap(), "all damaged");
    // The MANIFEST is still checked: a comparator that differs from a family's is refused, and the
    // error names the family's.
    let wrong = needed(ignoring.clone()).comparator(Some("reversed"), Comparator::Bytewise);
    let error = Db::open_read_only("/db", &wrong).unwrap_err().to_string();
    assert!(error.contains("rocksdb.ReverseBytewiseComparator"), "{error}");
    // The caller has to supply options that only the file had.
    let error = Db::open_read_only("/db", &ignoring).unwrap().get("counter").unwrap_err().to_string();
    assert!(error.contains("merge operator"), "{error}");
}

/// Errors in the caller's own options are not blamed on the file.
#[test]
fn what_the_caller_has_wrong_is_told_without_a_way_out() {
    let env = sample();
    for text in ["memtable=nosuch", "format_version=1"] {
        let error = Db::open("/db", &options(&env).set_all(text).unwrap()).unwrap_err().to_string();
        assert!(!error.contains("damaged_options"), "{error}");
    }
}

/// OPTIONS files that RocksDB wrote.
#[test]
fn files_of_rocksdb() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    db_bench(path, &["--benchmarks=fillrandom", "--num=2000", "--num_column_families=2"]).unwrap();
    let expected = ldb_scan(path, "default").unwrap();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains("/OPTIONS-"));
    files.sort();
    let newest = files.last().unwrap();
    let whole = std::fs::read(newest).unwrap();
    let mut told = 0;
    for (how, bytes) in damages(&whole).step_by(whole.len() / 40) {
        std::fs::write(newest, bytes).unwrap();
        if let Err(error) = Db::open_read_only(path, &Options::new()) {
            assert!(error.to_string().contains("--damaged_options=ignore"), "{how}: {error}");
            told += 1;
        }
        let ignoring = Options::new().damaged_options(DamagedOptions::Ignore);
        let db = Db::open_read_only(path, &ignoring).unwrap_or_else(|e| panic!("{how}: {e}"));
        let mut iter = db.iter(&ReadOptions::new()).unwrap();
        iter.seek_to_first().unwrap();
        for (key, value) in &expected {
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]), "{how}");
            iter.next().unwrap();
        }
        assert!(!iter.valid(), "{how}");
    }
    assert!(told > 5, "{told}");
}
