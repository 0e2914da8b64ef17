//! Partitioners: where compactions cut tables, which tables may be moved, what OPTIONS and
//! RocksDB's tools show, and a database whose partitioner panics.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, PartitionerRequest,
    ReadOptions, Severity, SstPartitioner, SstPartitionerContext, SstPartitionerFactory,
    SstPartitionerFixedPrefixFactory, WaitForCompactOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn in_memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn options(env: &Env, text: &str) -> Options {
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    options.set_all(&format!("disable_auto_compactions=true;{text}")).unwrap()
}

fn by_prefix(length: usize) -> Arc<dyn SstPartitionerFactory> {
    Arc::new(SstPartitionerFixedPrefixFactory { length })
}

/// Returns the tables of each level, as `level:smallest-largest`.
fn tables(db: &Db) -> Vec<String> {
    let mut tables: Vec<String> = db
        .live_files()
        .iter()
        .map(|file| {
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            format!("{}:{}-{}", file.level.unwrap(), text(&file.smallest_key), text(&file.largest_key))
        })
        .collect();
    tables.sort();
    tables
}

fn put_all(db: &Db, keys: &[&str]) {
    for key in keys {
        db.put(key, "1").unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
}

fn compact(db: &Db) {
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
}

fn rewrite(db: &Db) {
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&options, None, None).unwrap();
}

fn keys(db: &Db) -> Vec<String> {
    let iter = db.iter(&ReadOptions::new()).unwrap();
    iter.into_iter().map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
}

#[test]
fn compactions_cut_where_prefixes_change_and_flushes_do_not() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env, "").sst_partitioner_factory(None, by_prefix(2))).unwrap();
    put_all(&db, &["aa1", "aa2", "ab1", "b"]);
    assert_eq!(tables(&db), ["0:aa1-b"]);
    put_all(&db, &["aa2", "ac1", "b", "bb3"]);
    compact(&db);
    let cut = ["6:aa1-aa2", "6:ab1-ab1", "6:ac1-ac1", "6:b-b", "6:bb3-bb3"];
    let cut = cut.map(|table| table.replacen('6', &tables(&db)[0][..1], 1));
    assert_eq!(tables(&db), cut);
    assert_eq!(keys(&db), ["aa1", "aa2", "ab1", "ac1", "b", "bb3"]);
    db.close().unwrap();
}

/// Snapshots keep several versions of a key; no table boundary separates them.
#[test]
fn versions_of_a_key_stay_together() {
    let env = in_memory();
    let asked = Arc::new(Asks::default());
    let db = Db::open("/db", &options(&env, "").sst_partitioner_factory(None, asked.clone())).unwrap();
    let mut snapshots = Vec::new();
    for _ in 0..3 {
        put_all(&db, &["a", "b"]);
        snapshots.push(db.snapshot());
    }
    asked.cuts.store(true, SeqCst);
    compact(&db);
    let of_level = tables(&db)[0][..1].to_owned();
    assert_eq!(tables(&db), [format!("{of_level}:a-a"), format!("{of_level}:b-b")]);
    let found = asked.requests.lock().unwrap().clone();
    assert_eq!(found, [("a".to_owned(), "b".to_owned())], "each user key once, after the first");
    db.close().unwrap();
}

#[test]
fn tables_that_may_not_move_are_merged() {
    for (may_move, count) in [(true, 1), (false, 2)] {
        let env = in_memory();
        let asked = Arc::new(Asks::default());
        asked.may_move.store(may_move, SeqCst);
        let db = Db::open("/db", &options(&env, "").sst_partitioner_factory(None, asked.clone())).unwrap();
        put_all(&db, &["a", "b"]);
        let before = db.live_files()[0].number;
        asked.cuts.store(true, SeqCst);
        compact(&db);
        assert_eq!(*asked.moves.lock().unwrap(), [("a".to_owned(), "b".to_owned())]);
        let files = db.live_files();
        assert!(files.iter().all(|file| file.level > Some(0)));
        assert_eq!((files.len(), files[0].number == before), (count, may_move));
        assert_eq!(keys(&db), ["a", "b"]);
        db.close().unwrap();
    }
}

/// With the built-in partitioner, only tables within one partition may be moved.
#[test]
fn tables_of_one_prefix_move() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env, "").sst_partitioner_factory(None, by_prefix(1))).unwrap();
    put_all(&db, &["a1", "a2"]);
    let before = db.live_files()[0].number;
    compact(&db);
    let files = db.live_files();
    assert!(files.len() == 1 && files[0].level > Some(0) && files[0].number == before);
    db.close().unwrap();
}

#[test]
fn by_itself_and_in_several_parts_and_under_every_style() {
    for style in ["kCompactionStyleLevel", "kCompactionStyleUniversal"] {
        for parts in [1, 4] {
            let env = in_memory();
            let text = format!(
                "disable_auto_compactions=false;level0_file_num_compaction_trigger=2;compression=kNoCompression;\
                 compaction_style={style};max_subcompactions={parts}"
            );
            let with = options(&env, &text).sst_partitioner_factory(None, by_prefix(1));
            let db = Db::open("/db", &with).unwrap();
            let mut expected = Vec::new();
            for round in 0..6 {
                for first in ["a", "b", "c", "d"] {
                    for index in 0..50 {
                        let key = format!("{first}{index:03}{round}");
                        db.put(&key, [7; 500]).unwrap();
                        expected.push(key);
                    }
                }
                db.flush(&FlushOptions::default()).unwrap();
            }
            db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
            compact(&db);
            expected.sort();
            assert_eq!(keys(&db), expected);
            for file in db.live_files().iter().filter(|file| file.level > Some(0)) {
                assert_eq!(file.smallest_key[0], file.largest_key[0], "{style} {parts}");
            }
            assert!(tables(&db).len() >= 4, "{style} {parts}: {:?}", tables(&db));
            db.close().unwrap();
        }
    }
}

fn newest_options(path: &Path) -> String {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let of_options =
        |name: &std::path::PathBuf| name.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-");
    std::fs::read_to_string(names.filter(of_options).max().unwrap()).unwrap()
}

#[test]
fn options_name_it_and_have_it_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let create = Options::new().db(|db| db.create_if_missing = true);
    let create = create.set("format_version", "5").unwrap();
    let text = "sst_partitioner_factory={id=SstPartitionerFixedPrefixFactory;length=1;}";
    let db = Db::open(directory.path(), &create.clone().sst_partitioner_factory(None, by_prefix(1))).unwrap();
    put_all(&db, &["a1", "a2", "b1"]);
    db.close().unwrap();
    let written = newest_options(directory.path());
    assert!(written.contains(&format!("{text}\n")), "{written}");
    // RocksDB parses the text.
    let checked = std::process::Command::new("ldb")
        .args(["--try_load_options", &format!("--db={}", directory.path().display()), "scan"])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    // Partitioner from OPTIONS, without an instance, and from text.
    for again in [Options::new(), Options::new().set_all(text).unwrap()] {
        let db = Db::open(directory.path(), &again).unwrap();
        db.put("c1", "1").unwrap();
        rewrite(&db);
        assert_eq!(tables(&db).len(), 3);
        assert!(newest_options(directory.path()).contains(text));
        // A change of other options keeps the partitioner.
        let family = db.default_column_family().clone();
        db.set_options(&family, &[("level0_file_num_compaction_trigger", "7")]).unwrap();
        assert!(newest_options(directory.path()).contains(text));
        db.close().unwrap();
    }
}

/// Partitioner factory that records requests and answers with its flags.
#[derive(Debug, Default)]
struct Asks {
    cuts: AtomicBool,
    may_move: AtomicBool,
    panics: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<(String, String)>>>,
    moves: Arc<Mutex<Vec<(String, String)>>>,
}

fn texts(a: &[u8], b: &[u8]) -> (String, String) {
    (String::from_utf8_lossy(a).into_owned(), String::from_utf8_lossy(b).into_owned())
}

impl SstPartitionerFactory for Asks {
    fn name(&self) -> &str {
        "test.Asks"
    }

    fn create(&self, context: &SstPartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>> {
        assert!(context.output_level > 0 && context.smallest_user_key <= context.largest_user_key);
        let [cuts, may_move] = [&self.cuts, &self.may_move].map(|flag| flag.load(SeqCst));
        let (panics, requests, moves) = (self.panics.clone(), self.requests.clone(), self.moves.clone());
        Some(Box::new(Asking { cuts, may_move, panics, requests, moves }))
    }
}

struct Asking {
    cuts: bool,
    may_move: bool,
    panics: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<(String, String)>>>,
    moves: Arc<Mutex<Vec<(String, String)>>>,
}

impl SstPartitioner for Asking {
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool {
        assert!(!self.panics.load(SeqCst), "the partitioner's own");
        self.requests.lock().unwrap().push(texts(request.prev_user_key, request.current_user_key));
        self.cuts
    }

    fn can_do_trivial_move(&mut self, smallest: &[u8], largest: &[u8]) -> bool {
        assert!(!self.panics.load(SeqCst), "the partitioner's own");
        self.moves.lock().unwrap().push(texts(smallest, largest));
        self.may_move
    }
}

#[test]
fn one_that_panics_stops_the_database_with_an_error_and_loses_nothing() {
    // It panics when asked about a move, and when asked where to cut.
    for tables_before in [1, 2] {
        let env = in_memory();
        let asked = Arc::new(Asks::default());
        let with = options(&env, "").sst_partitioner_factory(None, asked.clone());
        let db = Db::open("/db", &with).unwrap();
        for _ in 0..tables_before {
            put_all(&db, &["a", "b"]);
        }
        asked.panics.store(true, SeqCst);
        let told = db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Panicked, "{told}");
        assert!(told.to_string().contains("the partitioner's own"), "{told}");
        assert_eq!(db.background_error().unwrap().severity, Severity::Fatal);
        assert_eq!(keys(&db), ["a", "b"]);
        assert_eq!(tables(&db).len(), tables_before);
        db.close().unwrap();
        asked.panics.store(false, SeqCst);
        let db = Db::open("/db", &with).unwrap();
        compact(&db);
        assert_eq!(keys(&db), ["a", "b"]);
        db.close().unwrap();
    }
}
