//! Options that change while the database is open: effective at once, found by the next opening and
//! by RocksDB, all or none of a call.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::perf_context::{self, PerfLevel, PerfMetric};
use karst_engine::{Db, ErrorKind, FlushOptions, Options, WaitForCompactOptions};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;format_version=5;write_buffer_size=10000000";
    Options::new().env(env.clone()).set_all(text).unwrap()
}

fn in_memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn put(db: &Db, numbers: std::ops::Range<usize>) {
    for n in numbers {
        db.put(format!("key{n:06}"), vec![b'v'; 100]).unwrap();
    }
}

fn files_at_l0(db: &Db) -> usize {
    db.live_files().iter().filter(|file| file.level == Some(0)).count()
}

#[test]
fn what_is_changed_is_in_force_at_once() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    let family = db.column_family("default").unwrap();
    put(&db, 0..2000);
    assert_eq!(db.live_files().len(), 0, "all of it is in the memtable");
    // The next write seals the memtable, which is larger than the new limit.
    db.set_options(&family, &[("write_buffer_size", "50000"), ("disable_auto_compactions", "true")]).unwrap();
    put(&db, 2000..2001);
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(db.live_files().len(), 1);
    for n in 0..8 {
        put(&db, 3000 + n..3001 + n);
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(files_at_l0(&db), 9, "nothing is compacted by itself");
    // The new limits stop writers.
    db.pause_background_work().unwrap();
    let limits = [
        ("disable_auto_compactions", "false"),
        ("level0_stop_writes_trigger", "9"),
        ("level0_slowdown_writes_trigger", "8"),
    ];
    db.set_options(&family, &limits).unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(1));
    db.set_options(
        &family,
        &[("level0_stop_writes_trigger", "36"), ("level0_slowdown_writes_trigger", "20")],
    )
    .unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    db.continue_background_work().unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(files_at_l0(&db), 0, "compactions begin at once");
    // Later compactions write tables with the new table options.
    db.set_options(&family, &[("block_based_table_factory", "{block_size=1000}")]).unwrap();
    assert_eq!(db.get_options(&family).unwrap().table_factory.block_based.block_size, 1000);
    db.set_db_options(&[("max_background_jobs", "6"), ("delayed_write_rate", "1000000")]).unwrap();
    assert_eq!((db.options().max_background_jobs, db.options().delayed_write_rate), (6, 1_000_000));
    assert!((0..2001).all(|n| db.get(format!("key{n:06}")).unwrap().is_some()));
}

/// A new memtable has the options at its creation, not those at the database's opening.
#[test]
fn the_next_memtable_has_the_filter_that_is_asked_for_now() {
    let db = Db::open("/db", &options(&in_memory())).unwrap();
    let family = db.column_family("default").unwrap();
    let passed_by = || {
        perf_context::reset();
        assert!(db.get("not there").unwrap().is_none());
        perf_context::get(PerfMetric::BloomMemtableMissCount)
    };
    perf_context::set_level(PerfLevel::EnableCount);
    put(&db, 0..10);
    assert_eq!(passed_by(), 0);
    let filter = [("memtable_whole_key_filtering", "true"), ("memtable_prefix_bloom_size_ratio", "0.1")];
    db.set_options(&family, &filter).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    put(&db, 10..20);
    assert_eq!(passed_by(), 1);
    assert!(db.get("key000015").unwrap().is_some());
}

#[test]
fn what_cannot_change_is_named_and_nothing_has_changed() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    let family = db.column_family("default").unwrap();
    // Other files are removed in the background after the opening.
    let names = || {
        let mut names = env.fs().list_dir(std::path::Path::new("/db")).unwrap();
        names.retain(|name| name.starts_with("OPTIONS"));
        names
    };
    let (before, db_before, files) = (db.get_options(&family).unwrap(), db.options(), names());
    let of_family = [
        ("num_levels", "3", "num_levels"),
        ("comparator", "rocksdb.ReverseBytewiseComparator", "comparator"),
        ("no_such_option", "1", "no_such_option"),
        ("write_buffer_size", "x", "write_buffer_size"),
        ("max_background_jobs", "3", "max_background_jobs"),
        ("prefix_extractor", "fixed:3", "prefix_extractor"),
        ("max_write_buffer_number", "x", "max_write_buffer_number"),
        ("block_based_table_factory", "{filter_policy=bloomfilter:10}", "filter_policy"),
    ];
    for (name, value, named) in of_family {
        let error = db.set_options(&family, &[("write_buffer_size", "77777"), (name, value)]).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    for (name, value) in
        [("wal_dir", "/x"), ("write_buffer_size", "1"), ("max_open_files", "100"), ("nothing", "")]
    {
        let error = db.set_db_options(&[("max_background_jobs", "7"), (name, value)]).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!((db.get_options(&family).unwrap(), db.options()), (before, db_before));
    assert_eq!(names(), files, "no OPTIONS file was written");
    drop(db);
    let read_only = Db::open_read_only("/db", &Options::new().env(env.clone())).unwrap();
    let family = read_only.column_family("default").unwrap();
    let error = read_only.set_options(&family, &[("write_buffer_size", "77777")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Subscriber that records the texts of `tracing` events.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Opening for reading writes no LOG, so the warning goes to subscribers of `tracing`.
#[test]
fn a_database_open_for_reading_tells_what_has_no_effect() {
    let env = in_memory();
    Db::open("/db", &options(&env)).unwrap().close().unwrap();
    let text = "log_readahead_size=3;compression_opts={checksum=true};read_amp_bytes_per_bit=8";
    let options = Options::new().env(env.clone()).set_all(text).unwrap();
    let heard = Heard::default();
    tracing::subscriber::with_default(heard.clone(), || Db::open_read_only("/db", &options).unwrap());
    let heard = heard.0.lock().unwrap();
    for names in ["log_readahead_size", "compression_opts.checksum", "read_amp_bytes_per_bit"] {
        let event = format!("message=options without effect: {names}");
        assert!(heard.contains(&event), "{event}: {heard:?}");
    }
    let files = env.fs().list_dir(std::path::Path::new("/db")).unwrap();
    let logs = files.iter().filter(|name| name.starts_with("LOG"));
    assert_eq!(logs.count(), 1, "opening for reading writes nothing: {files:?}");
}

#[test]
fn the_log_file_says_what_has_changed_and_nothing_else() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    let log = || String::from_utf8(env.fs().read_file(std::path::Path::new("/db/LOG")).unwrap()).unwrap();
    db.set_db_options(&[("max_background_jobs", "6"), ("delayed_write_rate", "0")]).unwrap();
    let table = "{block_size=1000;index_block_search_type=kInterpolation}";
    let of_family = [("write_buffer_size", "77777"), ("block_based_table_factory", table)];
    db.set_options(db.default_column_family(), &of_family).unwrap();
    db.close().unwrap();
    let log = log();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    let count = |name: &str| (lines(&format!(" Options.{name}: ")), lines(&format!("] Options.{name}=")));
    assert_eq!((count("max_background_jobs"), count("max_total_wal_size")), ((1, 1), (1, 0)), "{log}");
    assert_eq!((count("delayed_write_rate"), lines("KarstDB version")), ((1, 0), 1), "{log}");
    assert_eq!((lines("[database] Options.max_background_jobs=6, was 2"), count("table_factory").1), (1, 0));
    assert_eq!((lines("[default] Options.write_buffer_size=77777, was "), count("num_levels").1), (1, 0));
    assert_eq!(lines("[default] Options.block_size=1000, was 4096"), 1, "{log}");
    assert_eq!(lines("have no effect in KarstDB: index_block_search_type"), 1, "{log}");
}

#[test]
fn the_next_opening_and_rocksdb_find_what_was_changed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, env) = (directory.path(), Env::posix());
    let db = Db::open(path, &options(&env)).unwrap();
    let other = db.create_column_family("other", &options(&env)).unwrap();
    put(&db, 0..10);
    db.set_options(&other, &[("target_file_size_base", "1234567"), ("compression_opts", "{level=5}")])
        .unwrap();
    db.set_db_options(&[("max_total_wal_size", "7654321"), ("max_subcompactions", "3")]).unwrap();
    db.set_options(&other, &[("ttl", "1000000")]).unwrap();
    db.close().unwrap();
    drop((other, db));
    let names = env.fs().list_dir(path).unwrap();
    assert!(names.iter().filter(|name| name.starts_with("OPTIONS-")).count() <= 2, "{names:?}");
    // RocksDB uses the file too, and writes its own.
    ldb(path, &["--try_load_options", "put", "new", "1"], b"").unwrap();
    assert_eq!(ldb_scan(path, "default").unwrap().len(), 11);
    let db = Db::open(path, &Options::new()).unwrap();
    let other = db.get_options(&db.column_family("other").unwrap()).unwrap();
    assert_eq!(
        (other.target_file_size_base, other.ttl, other.compression_opts.level),
        (1_234_567, 1_000_000, 5)
    );
    assert_eq!((db.options().max_total_wal_size, db.options().max_subcompactions), (7_654_321, 3));
    assert_ne!(db.get_options(&db.column_family("default").unwrap()).unwrap().ttl, 1_000_000);
}

/// Under load from several threads, reads stay correct, and in the end all sources agree on the
/// current options.
#[test]
fn stress_options_change_while_everything_goes_on() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    let family = db.column_family("default").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&db, 0..20_000));
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if db.get("key000000").unwrap().is_some() {
                    assert_eq!(db.get("key000000").unwrap().as_deref(), Some(&[b'v'; 100][..]));
                }
            }
        });
        for thread in 0..2 {
            let (db, family, over) = (&db, &family, &over);
            scope.spawn(move || {
                let mut n = 0;
                while !over.load(Ordering::Relaxed) {
                    n += 1;
                    let size = (30_000 + (n * 7919 + thread * 13) % 90_000).to_string();
                    let trigger = (2 + n % 4).to_string();
                    db.set_options(
                        family,
                        &[("write_buffer_size", &size), ("level0_file_num_compaction_trigger", &trigger)],
                    )
                    .unwrap();
                    db.set_db_options(&[("max_background_jobs", &(2 + n % 5).to_string())]).unwrap();
                }
            });
        }
        writer.join().unwrap();
        over.store(true, Ordering::Relaxed);
    });
    let (now, jobs) = (db.get_options(&family).unwrap(), db.options().max_background_jobs);
    assert!((0..20_000).all(|n| db.get(format!("key{n:06}")).unwrap().is_some()));
    db.close().unwrap();
    drop((family, db));
    let db = Db::open("/db", &Options::new().env(env.clone())).unwrap();
    let found = db.get_options(&db.column_family("default").unwrap()).unwrap();
    assert_eq!(
        (found.write_buffer_size, found.level0_file_num_compaction_trigger, db.options().max_background_jobs),
        (now.write_buffer_size, now.level0_file_num_compaction_trigger, jobs)
    );
}
