//! Callbacks for subcompactions, for the next MANIFEST edit and for the end of a database; and
//! errors that listeners suppress.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, MemoryFileSystem, block_on};
use karst_engine::{
    BackgroundError, BackgroundErrorReason, CompactRangeOptions, CompactionFilter, CompactionInfo, Db,
    ErrorKind, EventListener, FlushOptions, Options, SubcompactionInfo,
};
use karst_testkit::eventually;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
enum Told {
    Begun(CompactionInfo),
    PartBegun(SubcompactionInfo),
    PartCompleted(SubcompactionInfo),
    PreCommit(CompactionInfo),
    Completed(CompactionInfo),
    Failed(CompactionInfo),
    Asked(BackgroundError),
    Error,
    Shutdown,
}

#[derive(Debug, Default)]
struct Listens {
    told: Mutex<Vec<Told>>,
    suppresses: AtomicBool,
}

impl Listens {
    fn hears(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

impl EventListener for Listens {
    fn compaction_begun(&self, compaction: &CompactionInfo) {
        self.hears(Told::Begun(compaction.clone()));
    }
    fn subcompaction_begun(&self, part: &SubcompactionInfo) {
        self.hears(Told::PartBegun(part.clone()));
    }
    fn subcompaction_completed(&self, part: &SubcompactionInfo) {
        self.hears(Told::PartCompleted(part.clone()));
    }
    fn compaction_pre_commit(&self, compaction: &CompactionInfo) {
        self.hears(Told::PreCommit(compaction.clone()));
    }
    fn compaction_completed(&self, compaction: &CompactionInfo) {
        self.hears(Told::Completed(compaction.clone()));
    }
    fn compaction_failed(&self, compaction: &CompactionInfo) {
        self.hears(Told::Failed(compaction.clone()));
    }
    fn suppresses_background_error(&self, error: &BackgroundError) -> bool {
        self.hears(Told::Asked(error.clone()));
        self.suppresses.load(SeqCst)
    }
    fn background_error(&self, _: &BackgroundError) {
        self.hears(Told::Error);
    }
    fn db_shutdown_begun(&self) {
        self.hears(Told::Shutdown);
    }
}

/// Filter that keeps all entries, and panics while armed.
#[derive(Debug, Default)]
struct Fragile(AtomicBool);

impl CompactionFilter for Fragile {
    fn name(&self) -> &str {
        "test.Fragile"
    }
    fn filter(&self, _: u32, _: &[u8], _: FilterInput<'_>) -> FilterDecision {
        assert!(!self.0.load(SeqCst), "the filter's own");
        FilterDecision::Keep
    }
}

fn opened(text: &str) -> (Db, Arc<Listens>, Arc<Fragile>) {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let (listens, fragile) = (Arc::new(Listens::default()), Arc::new(Fragile::default()));
    let all = "create_if_missing=true;disable_auto_compactions=true";
    let options = Options::new().env(env).set_all(all).unwrap().set_all(text).unwrap();
    let options = options.event_listener(listens.clone()).compaction_filter(None, fragile.clone());
    (Db::open("/db", &options).unwrap(), listens, fragile)
}

fn fill(db: &Db) {
    for _ in 0..2 {
        for number in 0..200 {
            db.put(format!("{number:05}"), [b'x'; 100]).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
}

#[test]
fn parts_are_told_between_the_begin_and_what_goes_to_the_manifest() {
    let (db, listens, _) = opened("max_subcompactions=4");
    fill(&db);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    let told = listens.take();
    let Told::Begun(begun) = &told[0] else { panic!("{told:?}") };
    let [.., Told::PreCommit(next), Told::Completed(completed)] = &told[..] else { panic!("{told:?}") };
    let parts = completed.subcompactions;
    let (mut begins, mut ends, mut entries) = (Vec::new(), Vec::new(), (0, 0));
    let (mut bytes, mut replaced) = (0, 0);
    for told in &told[1..told.len() - 2] {
        match told {
            Told::PartBegun(part) => {
                assert!(!ends.contains(&part.subcompaction) && part.input_entries == 0);
                assert_eq!((part.column_family.as_str(), part.job), ("default", begun.job));
                assert_eq!((part.base_level, part.output_level), (begun.base_level, begun.output_level));
                assert_eq!((&part.reason, part.reason_number), (&begun.reason, begun.reason_number));
                begins.push(part.subcompaction);
            }
            Told::PartCompleted(part) => {
                assert!(begins.contains(&part.subcompaction) && part.error.is_none());
                ends.push(part.subcompaction);
                entries = (entries.0 + part.input_entries, entries.1 + part.output_entries);
                assert_eq!((part.stats.input_entries, part.stats.input_files), (part.input_entries, 0));
                replaced += part.stats.replaced;
                bytes += part.output_bytes;
            }
            other => panic!("{other:?}"),
        }
    }
    begins.sort_unstable();
    ends.sort_unstable();
    assert!(parts >= 1 && begins.len() == parts && begins == ends, "{begins:?} {ends:?}");
    assert_eq!(begins, (0..parts as u32).collect::<Vec<_>>());
    assert_eq!(entries, (completed.input_entries, completed.output_entries));
    assert!(entries == (400, 200) && bytes > 0);
    assert_eq!((replaced, completed.stats.replaced), (200, 200));
    assert_eq!((next.job, &next.output_paths), (begun.job, &completed.output_paths));
    assert_eq!(next.output_bytes, completed.output_bytes);
    assert!(next.output_files > 0 && !next.table_properties.is_empty());
    db.close().unwrap();
}

#[test]
fn a_move_has_no_parts_and_a_part_that_fails_says_why() {
    let (db, listens, fragile) = opened("");
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("b", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    fragile.0.store(true, SeqCst);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
    let told = listens.take();
    let [Told::Begun(_), Told::PartBegun(_), Told::PartCompleted(part), rest @ ..] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(part.error.as_ref().unwrap().kind(), ErrorKind::Panicked);
    assert!(!rest.iter().any(|told| matches!(told, Told::PreCommit(_) | Told::Completed(_))), "{told:?}");
    let ended = rest.iter().find_map(|told| if let Told::Failed(info) = told { Some(info) } else { None });
    let (ended, Told::Begun(begun)) = (ended.unwrap(), &told[0]) else { panic!("{told:?}") };
    assert_eq!((ended.job, ended.error.as_ref().unwrap().kind()), (begun.job, ErrorKind::Panicked));
    db.close().unwrap();

    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let listens = Arc::new(Listens::default());
    let options = Options::new().env(env).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options.event_listener(listens.clone())).unwrap();
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    let told = listens.take();
    let [Told::Begun(_), Told::PreCommit(next), Told::Completed(_)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(next.output_files, 1);
    db.close().unwrap();
}

#[test]
fn the_end_is_told_once() {
    let (db, listens, _) = opened("");
    let other = db.clone();
    db.close().unwrap();
    let _ = other.close();
    drop((db, other));
    assert_eq!(listens.take().iter().filter(|told| matches!(told, Told::Shutdown)).count(), 1);
}

#[test]
fn an_error_that_is_suppressed_stops_nothing_and_the_job_is_tried_again() {
    let (db, listens, fragile) = opened("");
    fill(&db);
    listens.suppresses.store(true, SeqCst);
    fragile.0.store(true, SeqCst);
    let told = db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Panicked, "whoever asked for it is told");
    assert!(db.background_error().is_none());
    let told = listens.take();
    assert!(!told.iter().any(|told| matches!(told, Told::Error)), "{told:?}");
    let asked = told.iter().find_map(|told| if let Told::Asked(error) = told { Some(error) } else { None });
    assert_eq!(asked.unwrap().reason, BackgroundErrorReason::Compaction);
    db.put("goes on", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    // The compaction is retried automatically once it can succeed.
    fragile.0.store(false, SeqCst);
    db.set_options(
        db.default_column_family(),
        &[("level0_file_num_compaction_trigger", "2"), ("disable_auto_compactions", "false")],
    )
    .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !listens.take().iter().any(|told| matches!(told, Told::Completed(_))) {
        assert!(Instant::now() < end, "it is not tried again");
        std::thread::sleep(Duration::from_millis(20));
    }
    // An error that no listener suppresses stops the database.
    listens.suppresses.store(false, SeqCst);
    fragile.0.store(true, SeqCst);
    fill(&db);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
    assert!(db.background_error().is_some());
    // The call above may end by the failure of the compaction that began by itself, which takes
    // effect before the listeners' calls.
    eventually(true, || listens.take().iter().any(|told| matches!(told, Told::Error)));
    db.close().unwrap();
}

/// Listener that blocks when asked whether it suppresses an error, until `go_on` receives.
#[derive(Debug)]
struct HoldsUp {
    asked: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl EventListener for HoldsUp {
    fn suppresses_background_error(&self, _: &BackgroundError) -> bool {
        self.asked.send(()).unwrap();
        // An error is ignored, because the sender is dropped when the test fails.
        let _ = self.go_on.lock().unwrap().recv();
        false
    }
}

/// Storage that refuses all writes to tables.
#[derive(Debug)]
struct NoTables;

impl Disturb for NoTables {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        if is_table { Err(io::Error::other("no table is written")) } else { Ok(()) }
    }
}

#[test]
fn who_waits_for_a_flush_that_fails_finds_the_database_stopped() {
    let files = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), NoTables);
    let env = Env::builder().file_system(Arc::new(files)).build();
    let ((asked, is_asked), (release, go_on)) = (sync_channel(1), sync_channel(1));
    let holds = Arc::new(HoldsUp { asked, go_on: Mutex::new(go_on) });
    let options = Options::new().env(env.clone()).event_listener(holds);
    let options = options.db(|db| (db.create_if_missing, db.max_bgerror_resume_count) = (true, 0));
    let db = Db::open("/db", &options).unwrap();
    // Declared after the database, so that a failing test releases the flush before it drops the
    // database.
    let release = release;
    db.put("a", "1").unwrap();
    let flush_options = FlushOptions::default();
    let mut flush = pin!(db.flush_async(&flush_options));
    let mut waits = || flush.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    while is_asked.try_recv().is_err() {
        assert!(waits(), "the database has not stopped yet");
        std::thread::yield_now();
    }
    // Makes waiters check their condition again.
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(db.pause_background_work_async()).poll(&mut cx).is_pending());
    let still_waits = waits();
    release.send(()).unwrap();
    assert!(still_waits, "the database has not stopped yet");
    block_on(&env, flush).unwrap_err();
    assert_eq!(db.background_error().unwrap().reason, BackgroundErrorReason::Flush);
    drop(release);
    drop(db.close());
}
