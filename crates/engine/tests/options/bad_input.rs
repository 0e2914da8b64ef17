//! Directories without a complete database: every error names the file and the expected content,
//! and the directory stays unchanged.

use karst_engine::format::{Comparator, UserComparator};
use karst_engine::{
    BulkLoader, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteBatch,
    WriteOptions,
};
use karst_testkit::rocksdb_tools::{db_bench, ldb};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Returns a database with tables on two levels, a blob file, a log and two column families.
fn sample() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let flags = [
        "--benchmarks=fillrandom",
        "--num=6000",
        "--write_buffer_size=60000",
        "--value_size=100",
        "--enable_blob_files=true",
        "--min_blob_size=90",
        "--num_column_families=2",
    ];
    db_bench(directory.path(), &flags).unwrap();
    directory
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Returns the last file whose name contains `part`.
fn file(directory: &Path, part: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = contents(directory).into_keys().collect();
    files.retain(|path| path.file_name().unwrap().to_string_lossy().contains(part));
    files.into_iter().next_back().unwrap_or_else(|| panic!("no file {part}"))
}

fn refused(directory: &Path, options: &Options) -> (ErrorKind, String) {
    let before = contents(directory);
    let error = Db::open_read_only(directory, options).unwrap_err();
    assert!(contents(directory) == before, "{error}: the directory has changed");
    (error.kind(), error.to_string())
}

/// Asserts that opening after `change` fails with all of `said` in the message.
fn check(change: impl Fn(&Path), options: &Options, kind: ErrorKind, said: &[&str]) {
    let directory = sample();
    change(directory.path());
    let (found, text) = refused(directory.path(), options);
    assert_eq!(found, kind, "{text}");
    for part in said {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn the_sample_itself_opens() {
    let directory = sample();
    let before = contents(directory.path());
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    assert_eq!(db.column_families().len(), 2);
    let key = [0; 16];
    db.get(key).unwrap();
    assert!(contents(directory.path()) == before);
    for part in [".sst", ".blob", ".log"] {
        file(directory.path(), part);
    }
}

#[test]
fn directories_that_are_no_database() {
    let missing = tempfile::tempdir().unwrap().path().join("nothing here");
    let error = Db::open_read_only(&missing, &Options::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("nothing here"), "{error}");
    assert!(!missing.exists());

    let empty = tempfile::tempdir().unwrap();
    let (kind, text) = refused(empty.path(), &Options::new());
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("CURRENT: missing") && text.contains("is no database"), "{text}");

    let plain = tempfile::NamedTempFile::new().unwrap();
    let error = Db::open_read_only(plain.path(), &Options::new()).unwrap_err().to_string();
    assert!(error.contains(&plain.path().display().to_string()), "{error}");
}

#[test]
fn current() {
    let options = Options::new();
    let write = |bytes: &'static [u8]| move |db: &Path| fs::write(db.join("CURRENT"), bytes).unwrap();
    for garbage in
        [&b""[..], b"MANIFEST-000005", b"MANIFEST\n", b"000005.log\n", b"\xff\xfe\n", b"../MANIFEST-000001\n"]
    {
        check(
            write(garbage),
            &options,
            ErrorKind::Corruption,
            &["CURRENT, offset 0", "expected the name of a MANIFEST"],
        );
    }
    check(
        write(b"MANIFEST-999999\n"),
        &options,
        ErrorKind::Corruption,
        &["MANIFEST-999999: missing", "CURRENT names it"],
    );
}

#[test]
fn manifest() {
    let options = Options::new();
    let kind = ErrorKind::Corruption;
    check(
        |db| fs::write(file(db, "MANIFEST"), b"").unwrap(),
        &options,
        kind,
        &["MANIFEST-", "offset 0", "no record"],
    );
    check(|db| fs::write(file(db, "MANIFEST"), [7; 500]).unwrap(), &options, kind, &["MANIFEST-", "offset "]);
    check(
        |db| {
            let path = file(db, "MANIFEST");
            let mut bytes = fs::read(&path).unwrap();
            bytes[70] ^= 0x40;
            fs::write(path, bytes).unwrap();
        },
        &options,
        kind,
        &["MANIFEST-", "offset ", "checksum mismatch"],
    );
    // A file of another kind, also in the log format.
    check(
        |db| {
            fs::copy(file(db, ".log"), file(db, "MANIFEST")).unwrap();
        },
        &options,
        kind,
        &["MANIFEST-", "offset 0"],
    );
}

#[test]
fn tables_and_blob_files() {
    let options = Options::new();
    let kind = ErrorKind::Corruption;
    check(|db| fs::remove_file(file(db, ".sst")).unwrap(), &options, kind, &[".sst: missing", "MANIFEST-"]);
    check(|db| fs::remove_file(file(db, ".blob")).unwrap(), &options, kind, &[".blob: missing", "MANIFEST-"]);
    check(
        |db| {
            let path = file(db, ".sst");
            let bytes = fs::read(&path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        },
        &options,
        kind,
        &[".sst, offset ", "MANIFEST-", "says"],
    );
    // The right size, but not the content of a table.
    check(
        |db| {
            let path = file(db, ".sst");
            let len = fs::metadata(&path).unwrap().len() as usize;
            fs::write(path, vec![b'x'; len]).unwrap();
        },
        &options,
        kind,
        &[".sst, offset ", "magic"],
    );
}

#[test]
fn options_file() {
    let append = |text: &'static str| {
        move |db: &Path| {
            let path = file(db, "OPTIONS");
            let whole = fs::read_to_string(&path).unwrap();
            fs::write(path, whole.replacen("[DBOptions]\n", &format!("[DBOptions]\n{text}\n"), 1)).unwrap();
        }
    };
    let plain = Options::new();
    check(append("  frobnicate=yes"), &plain, ErrorKind::NotSupported, &["OPTIONS-", "line ", "frobnicate"]);
    check(
        append("  max_open_files=lots"),
        &plain,
        ErrorKind::Corruption,
        &["OPTIONS-", "line ", "max_open_files", "lots"],
    );
    check(
        append("  max_open_files=-7"),
        &plain,
        ErrorKind::Corruption,
        &["OPTIONS-", "max_open_files", "-7"],
    );
    check(
        |db| fs::write(file(db, "OPTIONS"), b"\xff\xff").unwrap(),
        &plain,
        ErrorKind::Corruption,
        &["OPTIONS-", "line 1"],
    );
    // A file that is not read does no harm, and unknown options may be ignored.
    let directory = sample();
    append("  frobnicate=yes")(directory.path());
    Db::open_read_only(directory.path(), &Options::new().ignore_unknown_options(true)).unwrap();
    fs::write(file(directory.path(), "OPTIONS"), b"\xff").unwrap();
    Db::open_read_only(directory.path(), &Options::new().ignore_options_file(true)).unwrap();
}

#[test]
fn options_of_the_caller() {
    assert!(Options::new().set("no_such_option", "1").unwrap_err().to_string().contains("no_such_option"));
    for (name, near) in [
        ("max_open_flies", "max_open_files"),
        ("write_bufer_size", "write_buffer_size"),
        ("format_verison", "format_version"),
        ("compresion_opts.level", "compression_opts.level"),
    ] {
        let error = Options::new().set(name, "1").unwrap_err().to_string();
        assert!(error.contains(name) && error.ends_with(&format!("did you mean `{near}`?")), "{error}");
    }
    let error = Options::new().set("max_open_files", "many").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("max_open_files") && error.to_string().contains("many"), "{error}");
    assert!(
        Options::new()
            .set_all("block_size=4096;num_levels=257")
            .unwrap_err()
            .to_string()
            .contains("num_levels")
    );
    assert!(Options::new().set_all("block_size").is_err());
    let directory = sample();
    let named = Options::new().column_family("nobody", |_| {});
    let (kind, text) = refused(directory.path(), &named);
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(text.contains("found: nobody;") && text.contains("column_family_name_000001"), "{text}");
    let error = Db::open_cf_read_only(directory.path(), &Options::new(), &["who"]).unwrap_err().to_string();
    assert!(error.contains("found: who;"), "{error}");
    let some = Db::open_cf_read_only(directory.path(), &Options::new(), &[]).unwrap();
    assert_eq!(some.unopened_column_families(), ["column_family_name_000001"]);
    // Handles of one database are refused by another.
    let other = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let foreign = other.default_column_family();
    let options = karst_engine::ReadOptions::new();
    assert!(some.get_cf(&options, foreign, "k").unwrap_err().to_string().contains("another database"));
    assert!(some.multi_get_cfs(&options, &[foreign], &["k"])[0].is_err());
    let snapshot = karst_engine::ReadOptions { snapshot: Some(other.snapshot()), ..options };
    assert!(some.get_opt(&snapshot, "k").unwrap_err().to_string().contains("another database"));
    assert!(some.iter(&snapshot).is_err());
}

/// Comparator that orders shorter keys first.
#[derive(Debug)]
struct ByLength;

impl UserComparator for ByLength {
    fn name(&self) -> &str {
        "tests.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

#[test]
fn comparators() {
    let kind = ErrorKind::InvalidArgument;
    let wrong = Options::new().comparator(None, Comparator::ReverseBytewise);
    check(
        |_| {},
        &wrong,
        kind,
        &["MANIFEST-", "leveldb.BytewiseComparator", "rocksdb.ReverseBytewiseComparator"],
    );

    let directory = tempfile::tempdir().unwrap();
    let supplied = Options::new().comparator(None, Comparator::Custom(Arc::new(ByLength)));
    let mut loader = BulkLoader::create(directory.path(), &supplied).unwrap();
    for key in ["ccc", "bb", "a", "dddd", "aa"] {
        loader.put(key.as_bytes(), key.as_bytes()).unwrap();
    }
    loader.finish().unwrap();
    let (kind, text) = refused(directory.path(), &Options::new());
    assert_eq!(kind, ErrorKind::NotSupported);
    assert!(text.contains("MANIFEST-") && text.contains("\"tests.ByLength\""), "{text}");
    let db = Db::open_read_only(directory.path(), &supplied).unwrap();
    let mut iter = db.iter(&karst_engine::ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    let keys: Vec<_> = iter.entries(karst_engine::Direction::Forward).map(|e| e.unwrap().0).collect();
    assert_eq!(keys.iter().map(|k| k.len()).collect::<Vec<_>>(), [1, 2, 2, 3, 4]);
}

#[test]
fn merge_operators_that_are_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--merge_operator=stringappend", "--benchmarks=mergerandom", "--num=50", "--value_size=8"];
    db_bench(directory.path(), &flags).unwrap();
    ldb(directory.path(), &["put", "plain", "value"], b"").unwrap();
    let path = file(directory.path(), "OPTIONS");
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("merge_operator=")).unwrap();
    fs::write(&path, text.replace(line, "  merge_operator=my.Operator")).unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    assert_eq!(db.get("plain").unwrap().as_deref(), Some(&b"value"[..]));
    let mut iter = db.iter(&karst_engine::ReadOptions::new()).unwrap();
    let error = iter.seek_to_first().unwrap_err().to_string();
    assert!(error.contains("\"my.Operator\"") && error.contains("\"default\""), "{error}");
    let supplied = karst_engine::merge_operator::from_name("stringappend").unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new().merge_operator(None, supplied)).unwrap();
    let mut iter = db.iter(&karst_engine::ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    let entries: Result<Vec<_>, _> = iter.entries(karst_engine::Direction::Forward).collect();
    assert!(entries.unwrap().len() > 10);
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let error = Options::new().set_all("block_based_table_factory={block_cache=lots}").unwrap_err();
    assert!(error.to_string().contains("block_cache"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let create = || {
        Options::new().db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        })
    };
    let sized = |bytes: usize| {
        move |family: &mut karst_engine::ColumnFamilyOptions| {
            family.table_factory.block_based.block_cache.capacity_bytes = Some(bytes);
        }
    };
    let of_other = create().column_family("other", sized(1 << 20));
    let error = Db::open_cf(directory.path(), &of_other, &["default", "other"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("\"other\": option block_cache"), "{error}");
    let db = Db::open(directory.path(), &create().column_families(sized(1 << 20))).unwrap();
    assert_eq!(db.property("rocksdb.block-cache-capacity").as_deref(), Some("1048576"));
    let error = db.create_column_family("third", &Options::new().column_families(sized(3))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    db.create_column_family("third", &Options::new().column_families(sized(1 << 20))).unwrap();
    db.create_column_family("fourth", &Options::new()).unwrap();
}

/// A family that is filled by ingesting alone accepts no write of any kind, and no log with one.
/// The default family cannot be of this kind.
#[test]
fn a_family_that_disallows_writes_takes_none() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    let filled = |disallows: bool| {
        options.clone().column_family("filled", move |family| family.disallow_memtable_writes = disallows)
    };
    let open = |disallows| Db::open_cf(directory.path(), &filled(disallows), &["default", "filled"]);
    let kind = |error: karst_engine::Error| (error.kind(), error.to_string());
    let refused = |outcome: karst_engine::Result<()>| {
        let (kind, text) = kind(outcome.unwrap_err());
        assert!(kind == ErrorKind::InvalidArgument && text.contains("disallow_memtable_writes"), "{text}");
    };
    let default = options.clone().column_family("default", |family| family.disallow_memtable_writes = true);
    refused(Db::open(directory.path(), &default).map(drop));
    let db = open(true).unwrap();
    let family = db.column_family("filled").unwrap();
    refused(db.put_cf(&WriteOptions::new(), &family, "key", "value"));
    let mut batch = WriteBatch::new();
    batch.put("key", "value").unwrap();
    batch.delete_cf(&family, "key").unwrap();
    refused(db.write(&WriteOptions::new(), &batch));
    assert_eq!(db.get("key").unwrap().as_deref(), None, "a batch is written as a whole or not");
    db.put("key", "value").unwrap();
    db.close().unwrap();
    drop(db);
    // Written while writes are allowed, and left in the log.
    let db = open(false).unwrap();
    db.put_cf(&WriteOptions::new(), &db.column_family("filled").unwrap(), "logged", "value").unwrap();
    db.close().unwrap();
    drop(db);
    refused(open(true).map(drop));
    let read = |db: &Db| db.get_cf(&ReadOptions::new(), &db.column_family("filled").unwrap(), "logged");
    // Moves the log's entry to a table.
    let db = open(false).unwrap();
    assert_eq!(read(&db).unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
    drop(db);
    let db = open(true).unwrap();
    assert_eq!(read(&db).unwrap().as_deref(), Some(&b"value"[..]));
    refused(db.put_cf(&WriteOptions::new(), &db.column_family("filled").unwrap(), "logged", "other"));
}

/// Values that RocksDB takes for the nearest sensible ones, instead of refusing them, open a
/// database that can be written, flushed, compacted, read and opened again.
#[test]
fn values_that_rocksdb_makes_good_are_made_good() {
    for text in [
        "block_based_table_factory={}",
        "block_based_table_factory={ }",
        "block_based_table_factory={block_restart_interval=0;index_block_restart_interval=-3}",
        "block_based_table_factory={block_size=0;block_size_deviation=101;metadata_block_size=0}",
        "block_based_table_factory={block_size_deviation=-1;index_type=kTwoLevelIndexSearch;metadata_block_size=0}",
        "level0_slowdown_writes_trigger=50;level0_stop_writes_trigger=40",
        "level0_file_num_compaction_trigger=9;level0_slowdown_writes_trigger=3;level0_stop_writes_trigger=-1",
        "num_levels=0",
        "num_levels=-1;compaction_style=kCompactionStyleUniversal",
        "max_write_buffer_number=-1",
        "min_write_buffer_number_to_merge=-1",
        "write_buffer_size={64K}",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().set_all(&format!("create_if_missing=true;{text}"));
        let options = options.unwrap_or_else(|e| panic!("{text}: {e}"));
        for round in 0..3 {
            let db = Db::open(directory.path(), &options).unwrap_or_else(|e| panic!("{text}: {e}"));
            for number in 0..200 {
                db.put(format!("{number:03}"), format!("{round}")).unwrap();
            }
            db.flush(&FlushOptions::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
            let whole = CompactRangeOptions::default();
            db.compact_range(&whole, None, None).unwrap_or_else(|e| panic!("{text}: {e}"));
            let found = (0..200).filter(|number| db.get(format!("{number:03}")).unwrap().is_some()).count();
            assert_eq!(found, 200, "{text}");
            db.close().unwrap();
        }
    }
}
