//! Panics of user code that the database calls: a merge operator, a prefix extractor, a filter's
//! factory, an event listener, a logger, a waker. The affected call returns an error, no other call
//! waits forever, and no lock stays taken.
//!
//! Comparators and compaction filters are in `misuse.rs`, subscribers of `tracing` in
//! `subscriber.rs`.

use karst_engine::compaction_filter::{CompactionFilterFactory, FilterContext};
use karst_engine::format::{PrefixExtractor, SliceTransform};
use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::merge_operator::{MergeFailed, Merged};
use karst_engine::{
    BackgroundError, BlobFileCreationInfo, CompactRangeOptions, CompactionFilter, CompactionInfo, Db, Error,
    ErrorKind, EventListener, FileCreationInfo, FileDeletionInfo, FileOperationInfo, FlushInfo, FlushOptions,
    LogLevel, Logger, MemTableInfo, MergeOperator, Options, ReadOptions, Severity, SubcompactionInfo,
    TableFileCreationInfo, WriteOptions,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Time limit that only a wait without end reaches.
const FOREVER: Duration = Duration::from_secs(600);

fn options() -> Options {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    Options::new().env(env).db(|db| db.create_if_missing = true)
}

/// Runs `work` on a thread of its own, and panics if it does not end.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    let worker = std::thread::spawn(move || {
        let result = work();
        tell.send(()).unwrap();
        result
    });
    match told.recv_timeout(FOREVER) {
        Err(RecvTimeoutError::Timeout) => panic!("{what} does not end"),
        _ => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn panics<T>(what: &str, call: impl FnOnce() -> T) {
    assert!(
        catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err(),
        "{what}: the panic is the caller's own"
    );
}

/// Writes, reads, flushes and compacts from several threads, and closes the database.
fn everything_works(db: Db) {
    ends("the database", move || {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..20 {
                        let key = format!("works {thread} {round}");
                        db.put_opt(&WriteOptions::synced(), &key, "1").unwrap();
                        assert!(db.get(&key).unwrap().is_some());
                    }
                });
            }
        });
        db.flush(&FlushOptions::default()).unwrap();
        db.compact_range(&CompactRangeOptions::default(), Some(b"w"), Some(b"x")).unwrap();
        db.close().unwrap();
    });
}

/// Merge operator that returns the last operand, and panics at one key while armed.
#[derive(Debug, Default)]
struct Fragile(AtomicBool);

impl Fragile {
    fn meets(&self, key: &[u8]) {
        assert!(!(self.0.load(SeqCst) && key == b"boom"), "the user's own");
    }
}

impl MergeOperator for Fragile {
    fn name(&self) -> &str {
        "tests.Fragile"
    }
    fn full_merge(&self, key: &[u8], _: Option<&[u8]>, operands: &[&[u8]]) -> Result<Merged, MergeFailed> {
        self.meets(key);
        Ok(Merged::Bytes(operands.last().unwrap().to_vec()))
    }
}

#[test]
fn a_merge_operator_that_panics_is_its_readers_own_and_stops_jobs_with_an_error() {
    let fragile = Arc::new(Fragile::default());
    let options = options().merge_operator(None, fragile.clone());
    let open = || Db::open("/db", &options).unwrap();
    let db = open();
    db.put("a", "1").unwrap();
    db.put("boom", "0").unwrap();
    db.merge("boom", "1").unwrap();
    db.merge("boom", "2").unwrap();
    db.put("c", "1").unwrap();
    fragile.0.store(true, SeqCst);
    panics("get", || db.get("boom"));
    panics("multi_get", || db.multi_get(&["a", "boom", "c"]));
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    panics("next", || iter.next());
    let mut back = db.iter(&ReadOptions::new()).unwrap();
    back.seek_to_last().unwrap();
    panics("prev", || back.prev());
    // Both iterators can be positioned elsewhere.
    iter.seek("c").unwrap();
    assert_eq!(iter.key(), b"c");
    back.seek_to_first().unwrap();
    assert_eq!(back.key(), b"a");
    drop((iter, back));
    assert!(db.get("a").unwrap().is_some() && db.get("c").unwrap().is_some());
    db.put("later", "1").unwrap();

    // A panic in a job stops the database, as any panic of a job does.
    let other = db.clone();
    let told = ends("flush", move || other.flush(&FlushOptions::default())).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Panicked, "{told}");
    assert!(told.to_string().contains("the user's own"), "{told}");
    assert_eq!(db.background_error().unwrap().severity, Severity::Fatal);
    assert_eq!(db.put("refused", "1").unwrap_err().kind(), ErrorKind::Panicked);
    assert!(db.get("later").unwrap().is_some(), "it is read as before");
    let last = db.clone();
    ends("close", move || last.close()).unwrap();
    drop(db);

    // Replay merges nothing; the first flush of the replayed entries does.
    fragile.0.store(false, SeqCst);
    let db = open();
    assert_eq!(db.get("boom").unwrap().as_deref(), Some(&b"2"[..]));
    assert!(db.get("later").unwrap().is_some());
    everything_works(db);
}

impl SliceTransform for Fragile {
    fn name(&self) -> &str {
        "tests.FragilePrefix"
    }
    fn in_domain(&self, _: &[u8]) -> bool {
        true
    }
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        self.meets(key);
        &key[..key.len().min(1)]
    }
}

#[test]
fn a_prefix_extractor_that_panics_is_its_callers_own() {
    let fragile = Arc::new(Fragile::default());
    let options = options()
        .prefix_extractor(None, PrefixExtractor::Custom(fragile.clone()))
        .set_all("filter_policy=bloomfilter:10;whole_key_filtering=false")
        .unwrap();
    let db = Db::open("/db", &options).unwrap();
    db.put("boom", "1").unwrap();
    db.put("c", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    fragile.0.store(true, SeqCst);
    panics("get", || db.get("boom"));
    let by_prefix = ReadOptions { prefix_same_as_start: true, ..ReadOptions::new() };
    let mut iter = db.iter(&by_prefix).unwrap();
    panics("seek", || iter.seek("boom"));
    iter.seek("c").unwrap();
    assert_eq!(iter.key(), b"c");
    drop(iter);
    assert!(db.get("c").unwrap().is_some());
    everything_works(db);
}

impl CompactionFilterFactory for Fragile {
    fn name(&self) -> &str {
        "tests.FragileFactory"
    }
    fn create(&self, _: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        self.meets(b"boom");
        None
    }
}

#[test]
fn a_factory_of_filters_that_panics_stops_the_database_with_an_error() {
    let fragile = Arc::new(Fragile::default());
    let options = options().compaction_filter_factory(None, fragile.clone());
    let db = Db::open("/db", &options).unwrap();
    db.put("key", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    fragile.0.store(true, SeqCst);
    let other = db.clone();
    let compact = move || other.compact_range(&CompactRangeOptions::default(), None, None);
    let told = ends("compaction", compact).unwrap_err();
    assert!(told.kind() == ErrorKind::Panicked && told.to_string().contains("the user's own"), "{told}");
    assert_eq!(db.background_error().unwrap().severity, Severity::Fatal);
    assert!(db.get("key").unwrap().is_some());
    let last = db.clone();
    ends("close", move || last.close()).unwrap();
    drop(db);
    fragile.0.store(false, SeqCst);
    everything_works(Db::open("/db", &options).unwrap());
}

/// Listener that panics in every call.
#[derive(Debug, Default)]
struct BadListener(AtomicU64);

impl BadListener {
    fn called(&self) {
        self.0.fetch_add(1, SeqCst);
        panic!("the listener's own");
    }
}

impl EventListener for BadListener {
    fn flush_begun(&self, _: &FlushInfo) {
        self.called();
    }
    fn flush_completed(&self, _: &FlushInfo) {
        self.called();
    }
    fn compaction_begun(&self, _: &CompactionInfo) {
        self.called();
    }
    fn compaction_completed(&self, _: &CompactionInfo) {
        self.called();
    }
    fn subcompaction_begun(&self, _: &SubcompactionInfo) {
        self.called();
    }
    fn subcompaction_completed(&self, _: &SubcompactionInfo) {
        self.called();
    }
    fn compaction_pre_commit(&self, _: &CompactionInfo) {
        self.called();
    }
    fn db_shutdown_begun(&self) {
        self.called();
    }
    fn should_be_notified_on_file_io(&self) -> bool {
        true
    }
    fn file_read_finished(&self, _: &FileOperationInfo<'_>) {
        self.called();
    }
    fn file_write_finished(&self, _: &FileOperationInfo<'_>) {
        self.called();
    }
    fn file_sync_finished(&self, _: &FileOperationInfo<'_>) {
        self.called();
    }
    fn file_close_finished(&self, _: &FileOperationInfo<'_>) {
        self.called();
    }
    fn suppresses_background_error(&self, _: &BackgroundError) -> bool {
        self.called();
        true
    }
    fn background_error(&self, _: &BackgroundError) {
        self.called();
    }
    fn recovered(&self, _: &BackgroundError) {
        self.called();
    }
    fn stall_changed(&self, _: &str, _: &str) {
        self.called();
    }
    fn error_recovery_begun(&self, _: &BackgroundError) {
        self.called();
    }
    fn error_recovery_ended(&self, _: &BackgroundError, _: Option<&Error>) {
        self.called();
    }
    fn table_file_creation_started(&self, _: &FileCreationInfo) {
        self.called();
    }
    fn table_file_created(&self, _: &TableFileCreationInfo) {
        self.called();
    }
    fn table_file_deleted(&self, _: &FileDeletionInfo) {
        self.called();
    }
    fn blob_file_creation_started(&self, _: &FileCreationInfo) {
        self.called();
    }
    fn blob_file_created(&self, _: &BlobFileCreationInfo) {
        self.called();
    }
    fn blob_file_deleted(&self, _: &FileDeletionInfo) {
        self.called();
    }
    fn memtable_sealed(&self, _: &MemTableInfo) {
        self.called();
    }
    fn manual_flush_scheduled(&self, _: &[String]) {
        self.called();
    }
}

#[test]
fn a_listener_that_panics_changes_nothing() {
    let listener = Arc::new(BadListener::default());
    let options = options().event_listener(listener.clone()).set("max_write_buffer_number", "2").unwrap();
    let db = Db::open("/db", &options).unwrap();
    db.pause_background_work().unwrap();
    for _ in 0..2 {
        db.put("key", "1").unwrap();
        db.flush(&FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() }).unwrap();
    }
    let stalled = listener.0.load(SeqCst);
    assert!(stalled > 0, "nobody is told that writers are stopped: the test shows nothing");
    db.continue_background_work().unwrap();
    everything_works(db);
    assert!(listener.0.load(SeqCst) >= stalled + 13, "each kind of call");
    assert!(Db::open("/db", &options).unwrap().get("key").unwrap().is_some());
}

/// Waker that panics when it is woken, and counts the calls.
#[derive(Default)]
struct BadWaker(AtomicU64);

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic!("the waker's own");
    }
}

/// Polls with a waker that panics, until the future ends.
fn ends_by_polling<F: Future>(what: &str, bad: &Arc<BadWaker>, future: F) -> F::Output {
    let waker = Waker::from(bad.clone());
    let mut future: Pin<Box<F>> = Box::pin(future);
    let end = std::time::Instant::now() + FOREVER;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(std::time::Instant::now() < end, "{what} does not end");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Logger of level `least` that records every line and panics at it.
#[derive(Debug)]
struct BadLogger {
    least: LogLevel,
    lines: Mutex<Vec<(LogLevel, String)>>,
}

impl Logger for BadLogger {
    fn log(&self, level: LogLevel, text: &str) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push((level, text.to_owned()));
        panic!("the logger's own");
    }
    fn level(&self) -> LogLevel {
        self.least
    }
}

#[test]
fn a_logger_takes_the_place_of_the_file_and_may_panic() {
    for least in [LogLevel::Info, LogLevel::Header] {
        let logger = Arc::new(BadLogger { least, lines: Mutex::default() });
        let files = Arc::new(MemoryFileSystem::new());
        let env = Env::builder().file_system(files).build();
        // The option applies to the LOG file; the logger has a level of its own.
        let options = Options::new().env(env.clone()).logger(logger.clone());
        let options =
            options.db(|db| db.create_if_missing = true).set("info_log_level", "FATAL_LEVEL").unwrap();
        everything_works(Db::open("/db", &options).unwrap());
        let lines = std::mem::take(&mut *logger.lines.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(
            lines.iter().any(|(level, text)| *level == LogLevel::Header && text == "DB: /db"),
            "{lines:?}"
        );
        assert_eq!(
            lines.iter().any(|(_, text)| text.contains("Flushed")),
            least == LogLevel::Info,
            "{lines:?}"
        );
        assert!(lines.iter().all(|(level, _)| *level >= least), "{lines:?}");
        assert!(lines.iter().all(|(_, text)| !text.ends_with('\n') || text.contains("table_factory")));
        let names = env.fs().list_dir(Path::new("/db")).unwrap();
        assert!(!names.iter().any(|name| name.starts_with("LOG") && name != "LOCK"), "{names:?}");
        // Opening for reading warns about options without effect, and creates no file either.
        let idle = options.set("use_adaptive_mutex", "true").unwrap();
        drop(Db::open_read_only("/db", &idle).unwrap());
        let told = std::mem::take(&mut *logger.lines.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(
            told.iter().any(|(level, text)| *level == LogLevel::Warn && text.contains("use_adaptive_mutex")),
            least == LogLevel::Info,
            "{told:?}"
        );
    }
}

#[test]
fn a_waker_that_panics_holds_up_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .db(|db| db.create_if_missing = true)
        .set_all("write_buffer_size=65536")
        .unwrap()
        .block_cache_bytes(0);
    let db = Db::open(directory.path(), &options).unwrap();
    let bad = Arc::new(BadWaker::default());
    let over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..2)
        .map(|thread| {
            let (db, over) = (db.clone(), over.clone());
            std::thread::spawn(move || {
                for round in 0u64.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    let key = format!("{thread}{round}");
                    db.put_opt(&WriteOptions::synced(), &key, vec![b'x'; 500]).unwrap();
                    db.get(&key).unwrap();
                    if round % 50 == 7 {
                        db.flush(&FlushOptions::default()).unwrap();
                    }
                }
            })
        })
        .collect();
    for round in 0..100 {
        let key = format!("{round}").into_bytes();
        let synced = WriteOptions::synced();
        ends_by_polling("put", &bad, db.put_opt_async(&synced, &key, b"1")).unwrap();
        if round % 10 == 3 {
            ends_by_polling("flush", &bad, db.flush_async(&FlushOptions::default())).unwrap();
            ends_by_polling("get", &bad, db.get_async(b"00")).unwrap();
        }
        // A future that is not polled any more.
        let waker = Waker::from(bad.clone());
        let put = pin!(db.put_opt_async(&synced, &key, b"2"));
        drop(put.poll(&mut Context::from_waker(&waker)));
    }
    over.store(true, SeqCst);
    for other in others {
        ends("a writer", move || other.join().expect("the panic is not this writer's"));
    }
    assert!(bad.0.load(SeqCst) > 20, "hardly anything was woken: the test shows nothing");
    everything_works(db);
}
