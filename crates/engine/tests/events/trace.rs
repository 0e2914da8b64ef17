//! Traces: the recorded operations and their order; that no operation waits for the trace; and that
//! a replay has the recorded effects and answers.

use karst_engine::format::Op;
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::io::{Env, FileSystem, MemoryFileSystem};
use karst_engine::{
    Caller, ColumnFamily, Db, Error, ErrorKind, FileTraceReader, FileTraceWriter, FlushOptions, Options,
    ReadOptions, ReplayOptions, Replayer, Result, TraceAnswer, TraceFilter, TraceOptions, TraceQuery,
    TraceReader, TraceWriter, TransactionHooks, WriteBatch, WriteOptions, caller::finish,
};
use karst_format::trace::{self, FileAccess};
use karst_testkit::rocksdb_tools;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const TRACE: &str = "/trace";

fn memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn open(env: &Env, path: &str) -> Db {
    let options = Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    let options = options.set("merge_operator", "StringAppendOperator").unwrap();
    Db::open_cf(path, &options, &["default", "second"]).unwrap()
}

fn start(db: &Db, options: TraceOptions) {
    let writer = FileTraceWriter::create(db.env(), TRACE).unwrap();
    db.start_trace(options, Box::new(writer)).unwrap();
}

fn replayer(db: &Db, path: &str) -> Replayer {
    let reader = FileTraceReader::open(db.env(), path).unwrap();
    Replayer::new(db, &db.column_families(), Box::new(reader)).unwrap()
}

/// Returns one line for each record of the trace.
fn lines(db: &Db) -> Vec<String> {
    let replayer = replayer(db, TRACE);
    replayer.prepare().unwrap();
    let mut lines = Vec::new();
    let mut last = replayer.header_timestamp();
    assert!(last > 0);
    while let Some(record) = replayer.next().unwrap() {
        assert!(record.micros() >= last, "times ascend");
        last = record.micros();
        lines.push(line(&record.query().unwrap()));
    }
    lines
}

fn line(query: &TraceQuery<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match query {
        TraceQuery::Write(batch) => {
            let batch = WriteBatch::from_bytes(batch.to_vec()).unwrap();
            let keys = batch.iter().map(|op| match op {
                Op::DeleteRange { begin, .. } => text(begin),
                op => text(op.key().unwrap()),
            });
            let keys: Vec<_> = keys.collect();
            format!("write {}: {}", batch.count(), keys.join(" "))
        }
        TraceQuery::Get { family, key } => format!("get {family} {}", text(key)),
        TraceQuery::Seek { family, key, lower, upper } => {
            format!("seek {family} {} [{} {}]", text(key), text(lower), text(upper))
        }
        TraceQuery::SeekForPrev { family, key, lower, upper } => {
            format!("back {family} {} [{} {}]", text(key), text(lower), text(upper))
        }
        TraceQuery::MultiGet(keys) => {
            let keys: Vec<_> = keys.iter().map(|(family, key)| format!("{family}/{}", text(key))).collect();
            format!("many {}", keys.join(" "))
        }
    }
}

/// Calls every kind of traced operation.
fn work(db: &Db) {
    let second = db.column_family("second").unwrap();
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    db.put("a", "1").unwrap();
    wait(db.put_cf_async(&write, &second, b"b", b"2")).unwrap();
    let mut batch = WriteBatch::new();
    batch.merge("a", "more").unwrap();
    batch.delete_range_cf(&second, "c", "d").unwrap();
    db.write(&write, &batch).unwrap();
    wait(db.write_async(&write, &batch)).unwrap();
    db.put_opt(&WriteOptions { protection_bytes_per_key: 8, ..write }, "p", "3").unwrap();
    db.put_opt(&WriteOptions { disable_wal: true, ..write }, "w", "4").unwrap();
    db.get("a").unwrap();
    wait(db.get_cf_async(&read, &second, b"none")).unwrap();
    db.multi_get(&["a", "x"]);
    wait(db.multi_get_async(&["y"]));
    db.multi_get_cfs(&read, &[&second, db.default_column_family()], &["b", "a"]);
    wait(db.multi_get_cfs_async(&read, &[&second], &["b"]));
    db.multi_get::<&str>(&[]);
    let mut iter = db.iter(&read).unwrap();
    iter.seek_to_first().unwrap();
    iter.next().unwrap();
    iter.seek("p").unwrap();
    wait(iter.seek_for_prev_async("o")).unwrap();
    let bounds = ReadOptions {
        iterate_lower_bound: Some(b"a".to_vec()),
        iterate_upper_bound: Some(b"q".to_vec()),
        ..ReadOptions::new()
    };
    let mut iter = db.iter(&bounds).unwrap();
    iter.seek_to_first().unwrap();
    iter.seek_to_last().unwrap();
    wait(iter.seek_async("b")).unwrap();
    // A refused operation is not in the trace.
    db.delete_range("z", "a").unwrap_err();
}

const WORK: [&str; 17] = [
    "write 1: a",
    "write 1: b",
    "write 2: a c",
    "write 2: a c",
    "write 1: p",
    "write 1: w",
    "get 0 a",
    "get 1 none",
    "many 0/a 0/x",
    "many 0/y",
    "many 1/b 0/a",
    "many 1/b",
    "seek 0 p [ ]",
    "back 0 o [ ]",
    "seek 0 a [a q]",
    "back 0 q [a q]",
    "seek 0 b [a q]",
];

#[test]
fn everything_that_is_asked_is_in_the_trace_in_its_order() {
    for preserve_write_order in [false, true] {
        let db = open(&memory(), "/db");
        db.put("before", "").unwrap();
        start(&db, TraceOptions { preserve_write_order, ..TraceOptions::default() });
        work(&db);
        db.end_trace().unwrap();
        db.put("after", "").unwrap();
        db.get("after").unwrap();
        assert_eq!(lines(&db), WORK);
        db.close().unwrap();
    }
}

#[test]
fn filters_sampling_and_the_largest_size_leave_records_out() {
    let db = open(&memory(), "/db");
    let traced = |options| {
        start(&db, options);
        work(&db);
        wait(db.end_trace_async()).unwrap();
        lines(&db)
    };
    let without = |start: &str| WORK.into_iter().filter(|line| !line.starts_with(start)).collect::<Vec<_>>();
    for (filter, start) in [
        (TraceFilter::WRITE, "write"),
        (TraceFilter::GET, "get"),
        (TraceFilter::MULTI_GET, "many"),
        (TraceFilter::ITERATOR_SEEK, "seek"),
        (TraceFilter::ITERATOR_SEEK_FOR_PREV, "back"),
    ] {
        assert_eq!(traced(TraceOptions { filter, ..TraceOptions::default() }), without(start));
    }
    // Filtered operations do not count for sampling.
    let filter = TraceFilter::WRITE | TraceFilter::GET;
    let every_third = traced(TraceOptions { filter, sampling_frequency: 3, ..TraceOptions::default() });
    assert_eq!(every_third, ["many 1/b 0/a", "back 0 o [ ]", "seek 0 b [a q]"]);
    // The header alone exceeds the limit of 1 byte, so no record is written.
    assert!(traced(TraceOptions { max_trace_file_size: 1, ..TraceOptions::default() }).is_empty());
    let some = traced(TraceOptions { max_trace_file_size: 200, ..TraceOptions::default() });
    assert!(
        !some.is_empty()
            && some.len() < 5
            && WORK.starts_with(&some.iter().map(|l| &**l).collect::<Vec<_>>())
    );
    db.close().unwrap();
}

#[test]
fn with_preserved_order_writes_are_as_in_the_log() {
    let db = open(&memory(), "/db");
    start(&db, TraceOptions { preserve_write_order: true, ..TraceOptions::default() });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..500 {
                    match n % 2 {
                        0 => db.put(format!("{thread}-{n}"), "").unwrap(),
                        _ => wait(db.put_async(format!("{thread}-{n}").as_bytes(), b"")).unwrap(),
                    }
                }
            });
        }
    });
    db.end_trace().unwrap();
    let traced = lines(&db);
    assert_eq!(traced.len(), 2000);
    let logged: Vec<_> = db
        .get_updates_since(1)
        .unwrap()
        .map_while(Result::ok)
        .take(2000)
        .map(|update| line(&TraceQuery::Write(update.batch.as_bytes())))
        .collect();
    assert!(traced == logged, "the trace has another order than the log");
    db.close().unwrap();
}

type Contents = Vec<(Vec<u8>, Vec<u8>)>;

fn contents(db: &Db, family: &ColumnFamily) -> Contents {
    let mut iter = db.iter_cf(&ReadOptions::new(), family).unwrap();
    let mut all = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    all
}

fn all_contents(db: &Db) -> Vec<Contents> {
    db.column_families().iter().map(|family| contents(db, family)).collect()
}

fn shown(answer: &TraceAnswer) -> String {
    match answer {
        TraceAnswer::Written => "written".to_owned(),
        TraceAnswer::Value(value) => format!("{:?}", value.as_deref()),
        TraceAnswer::Entry(entry) => {
            format!("{:?}", entry.as_ref().map(|(key, value)| (&key[..], &value[..])))
        }
        TraceAnswer::Values(values) => {
            format!("{:?}", values.iter().map(|value| value.as_deref()).collect::<Vec<_>>())
        }
    }
}

const FAST: ReplayOptions = ReplayOptions { num_threads: 1, fast_forward: 1e9 };

#[test]
fn a_replay_does_the_same_and_is_answered_alike() {
    let env = memory();
    let db = open(&env, "/db");
    start(&db, TraceOptions::default());
    work(&db);
    db.end_trace().unwrap();
    let again = open(&env, "/again");
    let replayed = replayer(&again, TRACE);
    replayed.prepare().unwrap();
    let (tell, told) = mpsc::channel();
    replayed
        .replay(&FAST, move |record, answer| {
            tell.send((line(&record.query().unwrap()), shown(&answer.unwrap()))).unwrap();
        })
        .unwrap();
    let told: Vec<_> = told.iter().collect();
    assert_eq!(told.iter().map(|(asked, _)| &**asked).collect::<Vec<_>>(), WORK);
    let answers: BTreeMap<_, _> = told.iter().map(|(asked, answer)| (&**asked, &**answer)).collect();
    let a = "[49, 44, 109, 111, 114, 101, 44, 109, 111, 114, 101]";
    assert_eq!(answers["write 2: a c"], "written");
    assert_eq!(answers["get 0 a"], format!("Some({a})"));
    assert_eq!(answers["get 1 none"], "None");
    assert_eq!(answers["many 0/a 0/x"], format!("[Some({a}), None]"));
    assert_eq!(answers["many 1/b 0/a"], format!("[Some([50]), Some({a})]"));
    assert_eq!(answers["back 0 o [ ]"], format!("Some(([97], {a}))"));
    assert_eq!(answers["back 0 q [a q]"], "Some(([112], [51]))");
    assert_eq!(answers["seek 0 b [a q]"], "Some(([112], [51]))");
    assert_eq!(all_contents(&again), all_contents(&db));

    // Replays record by record, as tasks, with equal answers.
    let by_record = open(&env, "/by_record");
    let stepped = replayer(&by_record, TRACE);
    wait(stepped.prepare_async()).unwrap();
    for (_, answer) in &told {
        let record = wait(stepped.next_async()).unwrap().expect("as many as before");
        assert_eq!(&shown(&wait(stepped.execute_async(&record)).unwrap()), answer);
    }
    assert!(wait(stepped.next_async()).unwrap().is_none());
    assert_eq!(all_contents(&by_record), all_contents(&db));

    // Replays on threads, and a second time from the beginning.
    for options in [FAST, ReplayOptions { num_threads: 4, ..FAST }] {
        let threaded = open(&env, &format!("/threads-{}", options.num_threads));
        let replayed = replayer(&threaded, TRACE);
        for _ in 0..2 {
            replayed.prepare().unwrap();
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = asked.clone();
            let count = move |_: &_, answer: Result<TraceAnswer>| {
                answer.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            };
            wait(replayed.replay_async(&options, count)).unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), WORK.len());
        }
        let at_end = replayed.replay(&options, |_, _| ()).unwrap_err();
        assert_eq!(at_end.kind(), ErrorKind::Incomplete);
        threaded.close().unwrap();
    }
    db.close().unwrap();
}

#[test]
fn a_replay_keeps_the_pace_that_it_is_told_and_stops_when_dropped() {
    let env = memory();
    let db = open(&env, "/db");
    start(&db, TraceOptions::default());
    std::thread::sleep(Duration::from_millis(300));
    db.put("a", "1").unwrap();
    db.end_trace().unwrap();
    let replayed = replayer(&db, TRACE);
    let took = |options: &ReplayOptions| {
        replayed.prepare().unwrap();
        let began = Instant::now();
        replayed.replay(options, |_, _| ()).unwrap();
        began.elapsed()
    };
    let half = Duration::from_millis(150);
    for num_threads in [1, 2] {
        assert!(took(&ReplayOptions { num_threads, ..ReplayOptions::default() }) >= 2 * half);
        let twice_as_fast = took(&ReplayOptions { num_threads, fast_forward: 2.0 });
        assert!(twice_as_fast >= half, "{twice_as_fast:?}");
        let slower = took(&ReplayOptions { num_threads, fast_forward: 0.5 });
        assert!(slower >= 4 * half, "{slower:?}");
        // Several attempts, because the machine may be busy. A replay that kept the pace would take
        // that long each time.
        let mut at_once = (0..100).map(|_| took(&ReplayOptions { num_threads, fast_forward: 1e6 }));
        assert!(at_once.any(|took| took < 2 * half));
    }
    for fast_forward in [0.0, -1.0, f64::NAN] {
        let refused = replayed.replay(&ReplayOptions { fast_forward, ..FAST }, |_, _| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }

    // Replays 300 milliseconds over a day: nothing waits for the rest once the future is dropped.
    replayed.prepare().unwrap();
    db.delete("a").unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let set = asked.clone();
    let day = ReplayOptions { num_threads: 2, fast_forward: 0.3 / 86_400.0 };
    let mut replay = Box::pin(replayed.replay_async(&day, move |_, _| set.store(true, Ordering::Relaxed)));
    let once = std::future::poll_fn(|cx| {
        assert!(replay.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    });
    wait(once);
    drop(replay);
    db.close().unwrap();
    drop((replayed, db));
    let began = Instant::now();
    while Arc::strong_count(&asked) > 1 {
        assert!(began.elapsed() < Duration::from_secs(300), "the threads of a dropped replay go on");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!asked.load(Ordering::Relaxed));
}

/// Trace writer that records what it is given, can fail after `fail_after` records, and blocks
/// until `gate` receives.
struct Watched {
    records: Arc<Mutex<Vec<Vec<u8>>>>,
    fail_after: usize,
    gate: Option<mpsc::Receiver<()>>,
    closed: Arc<AtomicBool>,
}

impl Watched {
    fn new() -> Self {
        Watched { records: Arc::default(), fail_after: usize::MAX, gate: None, closed: Arc::default() }
    }
}

impl TraceWriter for Watched {
    fn write(&mut self, record: &[u8]) -> Result<()> {
        if let Some(gate) = self.gate.take() {
            gate.recv().unwrap();
        }
        let mut records = self.records.lock().unwrap();
        if records.len() == self.fail_after {
            return Err(Error::new(ErrorKind::Io, "the disk of traces is gone"));
        }
        records.push(record.to_vec());
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn one_trace_at_a_time_is_begun_and_ended() {
    let db = open(&memory(), "/db");
    assert_eq!(db.end_trace().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let writer = Watched::new();
    let (records, closed) = (writer.records.clone(), writer.closed.clone());
    db.start_trace(TraceOptions::default(), Box::new(writer)).unwrap();
    let second = db.start_trace(TraceOptions::default(), Box::new(Watched::new())).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy);
    db.put("a", "1").unwrap();
    db.end_trace().unwrap();
    assert!(closed.load(Ordering::Relaxed));
    // Each call of the writer has one whole record: the header, the write, the end.
    let kinds: Vec<_> = records.lock().unwrap().iter().map(|record| record[8]).collect();
    assert_eq!(kinds, [1, 3, 2]);
    assert_eq!(db.end_trace().unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.start_trace(TraceOptions::default(), Box::new(Watched::new())).unwrap();
    db.close().unwrap();
}

#[test]
fn closing_and_dropping_a_database_end_its_trace() {
    let env = memory();
    open(&env, "/db").close().unwrap();
    let writable = || open(&env, "/db");
    let for_reading = || Db::open_read_only("/db", &Options::new().env(env.clone())).unwrap();
    for open in [&writable as &dyn Fn() -> Db, &for_reading] {
        for end in [|db: Db| db.close().unwrap(), drop] {
            let (db, writer) = (open(), Watched::new());
            let (records, closed) = (writer.records.clone(), writer.closed.clone());
            db.start_trace(TraceOptions::default(), Box::new(writer)).unwrap();
            db.get("a").unwrap();
            end(db);
            assert!(closed.load(Ordering::Relaxed));
            let kinds: Vec<_> = records.lock().unwrap().iter().map(|record| record[8]).collect();
            assert_eq!(kinds, [1, 4, 2]);
        }
    }
}

#[test]
fn a_writer_that_fails_harms_its_trace_only() {
    let db = open(&memory(), "/db");
    let writer = Watched { fail_after: 2, ..Watched::new() };
    let records = writer.records.clone();
    db.start_trace(TraceOptions::default(), Box::new(writer)).unwrap();
    for n in 0..10 {
        db.put(format!("{n}"), "x").unwrap();
    }
    let failed = db.end_trace().unwrap_err();
    assert_eq!((failed.kind(), records.lock().unwrap().len()), (ErrorKind::Io, 2));
    assert!(failed.to_string().contains("the disk of traces is gone"), "{failed}");
    // The trace has ended despite the error.
    start(&db, TraceOptions::default());
    db.get("0").unwrap().unwrap();
    db.end_trace().unwrap();
    assert_eq!(lines(&db), ["get 0 0"]);
    db.close().unwrap();
}

#[test]
fn nobody_waits_for_a_slow_writer_and_its_trace_says_what_it_lacks() {
    let db = open(&memory(), "/db");
    let (go_on, gate) = mpsc::channel();
    let writer = Watched { gate: Some(gate), ..Watched::new() };
    let records = writer.records.clone();
    db.start_trace(TraceOptions::default(), Box::new(writer)).unwrap();
    // More than the queue holds, while the writer accepts nothing until all of it was put.
    let value = vec![b'x'; 1 << 20];
    for n in 0..80 {
        db.put(format!("{n:02}"), &value).unwrap();
    }
    go_on.send(()).unwrap();
    let lacks = db.end_trace().unwrap_err();
    assert_eq!(lacks.kind(), ErrorKind::Incomplete);
    let written = records.lock().unwrap().len() - 2;
    assert!((60..80).contains(&written), "{written} records");
    assert!(lacks.to_string().contains(&format!("lacks {} records", 80 - written)), "{lacks}");
    db.close().unwrap();
}

#[test]
fn a_prepared_transaction_is_in_the_trace_once_with_what_it_inserts() {
    for write_prepared in [false, true] {
        let env = memory();
        let options = Options::new().env(env).write_prepared(write_prepared).db(|db| {
            db.create_if_missing = true;
            db.allow_2pc = true;
        });
        let db = Db::open("/db", &options).unwrap();
        let hooks = TransactionHooks::of(&db);
        let (thread, write) = (Caller::Thread, WriteOptions::new());
        start(&db, TraceOptions::default());
        let mut batch = WriteBatch::new();
        batch.put("in", "1").unwrap();
        finish(hooks.prepare(thread, &write, b"one", batch)).unwrap();
        db.put("between", "").unwrap();
        finish(hooks.commit_prepared(thread, &write, b"one", None)).unwrap();
        db.end_trace().unwrap();
        let mut expected = ["write 1: between", "write 1: in"];
        if write_prepared {
            expected.reverse();
        }
        let traced: Vec<_> = lines(&db).into_iter().filter(|line| !line.starts_with("write 0")).collect();
        assert_eq!(traced, expected, "write_prepared: {write_prepared}");
        db.close().unwrap();
    }
}

#[test]
fn what_is_no_trace_is_refused_and_what_is_cut_off_is_told() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let db = open(&env, "/db");
    let fresh = |bytes: &[u8]| {
        files.write_file(Path::new("/other"), bytes.to_vec()).unwrap();
        replayer(&db, "/other")
    };
    start(&db, TraceOptions::default());
    db.put("a", "1").unwrap();
    db.get("a").unwrap();
    db.end_trace().unwrap();
    let whole = files.read_file(Path::new(TRACE)).unwrap();

    let unprepared = fresh(&whole);
    assert_eq!(unprepared.header_timestamp(), 0);
    assert_eq!(unprepared.next().unwrap_err().kind(), ErrorKind::Incomplete);
    assert_eq!(unprepared.replay(&FAST, |_, _| ()).unwrap_err().kind(), ErrorKind::Incomplete);
    for bytes in [&b""[..], b"short", &whole[..60], &[0; 100]] {
        let refused = fresh(bytes).prepare().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    }
    assert!(FileTraceReader::open(&env, "/missing").is_err());

    // A trace cut at the end of a record ends there; a cut elsewhere is damage.
    let header = 13 + u32::from_le_bytes(whole[9..13].try_into().unwrap()) as usize;
    let mut ends = 0;
    for len in header..whole.len() {
        let cut = fresh(&whole[..len]);
        cut.prepare().unwrap();
        match cut.replay(&FAST, |_, _| ()) {
            Ok(()) => ends += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(error.to_string().contains("/other"), "{error}");
            }
        }
    }
    assert_eq!(ends, 3, "behind the header, the write and the get");

    // A length larger than any file.
    let mut long = whole.clone();
    long[header + 9..header + 13].fill(0xff);
    let long = fresh(&long);
    long.prepare().unwrap();
    assert_eq!(long.next().unwrap_err().kind(), ErrorKind::Corruption);

    // Records of other kinds than queries are reported and skipped.
    let mut other_kind = whole.clone();
    other_kind[header + 8] = 12;
    let passes = fresh(&other_kind);
    passes.prepare().unwrap();
    let (tell, told) = mpsc::channel();
    passes
        .replay(&FAST, move |_, answer| {
            tell.send(answer.map_err(|error| error.kind()).map(|answer| shown(&answer))).unwrap();
        })
        .unwrap();
    let told: Vec<_> = told.iter().collect();
    assert_eq!(told, [Err(ErrorKind::NotSupported), Ok("Some([49])".to_owned())]);
    db.close().unwrap();
}

#[test]
fn a_replay_ends_with_the_first_error() {
    let env = memory();
    let db = open(&env, "/db");
    let second = db.column_family("second").unwrap();
    start(&db, TraceOptions::default());
    db.put("a", "1").unwrap();
    db.get_cf(&ReadOptions::new(), &second, "b").unwrap();
    db.put("c", "1").unwrap();
    db.end_trace().unwrap();
    let again = open(&env, "/again");
    let reader = FileTraceReader::open(&env, TRACE).unwrap();
    let first_only = [again.default_column_family().clone()];
    let replayed = Replayer::new(&again, &first_only, Box::new(reader)).unwrap();
    replayed.prepare().unwrap();
    let error = replayed.replay(&FAST, |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("column family 1"), "{error}");
    assert!(again.get("a").unwrap().is_some() && again.get("c").unwrap().is_none());
    let reader = FileTraceReader::open(&env, TRACE).unwrap();
    let foreign = Replayer::new(&again, &[second], Box::new(reader)).err().unwrap();
    assert_eq!(foreign.kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
}

#[test]
fn a_reader_gives_whole_records_and_begins_anew() {
    let db = open(&memory(), "/db");
    start(&db, TraceOptions::default());
    // Larger than one read of the trace.
    db.put("large", vec![b'x'; 1 << 20]).unwrap();
    db.get("large").unwrap();
    db.end_trace().unwrap();
    let mut reader = FileTraceReader::open(db.env(), TRACE).unwrap();
    for _ in 0..2 {
        let sizes: Vec<_> =
            std::iter::from_fn(|| reader.read().unwrap()).map(|record| record.len()).collect();
        assert_eq!(sizes.len(), 4);
        assert!(sizes[1] > 1 << 20 && sizes[2] == 13 + 8 + 4 + 1 + 5 && sizes[3] == 13);
        reader.reset().unwrap();
    }
    db.close().unwrap();
}

/// Returns the records of an I/O trace: operation, file, offset and length.
fn accesses(env: &Env, path: &str) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    let mut reader = FileTraceReader::open(env, path).unwrap();
    let header = reader.read().unwrap().unwrap();
    let (prefix, payload) = trace::split(&header).unwrap();
    assert_eq!(trace::io_header(prefix, payload).unwrap(), (11, 8));
    let mut all = Vec::new();
    while let Some(record) = reader.read().unwrap() {
        let (prefix, payload) = trace::split(&record).unwrap();
        assert_eq!(prefix.kind, trace::FILE_ACCESS);
        let access = FileAccess::decode(payload).unwrap();
        assert_eq!(access.status, b"OK");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.push((text(access.operation), text(access.file_name), access.offset, access.length));
    }
    all
}

#[test]
fn an_io_trace_has_what_is_done_to_the_files_of_its_database() {
    let env = memory();
    let (db, other) = (open(&env, "/db"), open(&env, "/other"));
    let begin = |options| {
        db.start_io_trace(options, Box::new(FileTraceWriter::create(&env, TRACE).unwrap())).unwrap();
    };
    assert_eq!(db.end_io_trace().unwrap_err().kind(), ErrorKind::InvalidArgument);
    begin(TraceOptions::default());
    let second = db.start_io_trace(TraceOptions::default(), Box::new(Watched::new())).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Busy);
    db.put("a", "1").unwrap();
    other.put("a", "1").unwrap();
    for db in [&db, &other] {
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.put_opt(&WriteOptions { sync: true, ..WriteOptions::new() }, "b", "2").unwrap();
    db.verify_checksum().unwrap();
    wait(db.end_io_trace_async()).unwrap();
    let all = accesses(&env, TRACE);
    let of = |operation: &str, suffix: &str| {
        all.iter().filter(|(name, file, ..)| name == operation && file.ends_with(suffix)).count()
    };
    for (operation, suffix) in [
        ("Append", ".sst"),
        ("Sync", ".sst"),
        ("Close", ".sst"),
        ("Read", ".sst"),
        ("Append", ".log"),
        ("Sync", ".log"),
    ] {
        assert!(of(operation, suffix) > 0, "no {operation} of {suffix}: {all:?}");
    }
    // All accesses are to one table of one database.
    let mut tables: Vec<_> =
        all.iter().map(|(_, file, ..)| file).filter(|file| file.ends_with(".sst")).collect();
    tables.sort();
    tables.dedup();
    assert_eq!(tables.len(), 1, "{all:?}");
    let (_, _, offset, length) = all.iter().find(|(name, ..)| name == "Append").unwrap();
    assert!(offset.is_some() && length.is_some_and(|length| length > 0));
    let (_, _, offset, length) = all.iter().find(|(name, ..)| name == "Sync").unwrap();
    assert_eq!((*offset, *length), (None, None));

    // Sampling drops records, and none is written once the trace has its maximum size or has ended.
    begin(TraceOptions { sampling_frequency: 1000, ..TraceOptions::default() });
    db.verify_checksum().unwrap();
    db.end_io_trace().unwrap();
    assert!(accesses(&env, TRACE).is_empty());
    begin(TraceOptions { max_trace_file_size: 1, ..TraceOptions::default() });
    db.verify_checksum().unwrap();
    db.end_io_trace().unwrap();
    db.verify_checksum().unwrap();
    assert!(accesses(&env, TRACE).is_empty());
    // Closing the database ends the trace.
    begin(TraceOptions::default());
    db.verify_checksum().unwrap();
    db.close().unwrap();
    assert!(accesses(&env, TRACE).iter().any(|(name, ..)| name == "Read"));
    other.close().unwrap();
}

/// Compiles a program for a tool of RocksDB's library that Debian does not package as a program.
fn library_tool(directory: &Path, function: &str) -> String {
    let source = directory.join(format!("{function}.cc"));
    let text = format!(
        "namespace rocksdb {{ int {function}(int, char**); }}\n\
         int main(int argc, char** argv) {{ return rocksdb::{function}(argc, argv); }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let program = source.with_extension("tool").to_str().unwrap().to_owned();
    rocksdb_tools::run("c++", &[source.to_str().unwrap(), "-o", &program, "-l:librocksdb.so.7.8"], b"")
        .unwrap();
    program
}

#[test]
fn rocksdb_analyses_our_traces() {
    let directory = tempfile::tempdir().unwrap();
    let [path, queries, io] = ["db", "queries", "io"].map(|name| directory.path().join(name));
    let db = on_disk(&path);
    let to = |path: &Path| Box::new(FileTraceWriter::create(db.env(), path).unwrap());
    db.start_trace(TraceOptions::default(), to(&queries)).unwrap();
    db.start_io_trace(TraceOptions::default(), to(&io)).unwrap();
    for n in 0..50 {
        db.put(format!("key{n}"), "value").unwrap();
    }
    for n in 0..30 {
        db.get(format!("key{n}")).unwrap();
    }
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    (0..20).for_each(|n| iter.seek(format!("key{n}")).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.end_trace().unwrap();
    db.end_io_trace().unwrap();
    drop(iter);
    db.close().unwrap();

    let analyzer = library_tool(directory.path(), "trace_analyzer_tool");
    let trace = format!("--trace_path={}", queries.display());
    let output = format!("--output_dir={}", directory.path().display());
    let all = ["--analyze_get", "--analyze_put", "--analyze_iterator"];
    let out = rocksdb_tools::run(&analyzer, &[&[&trace[..], &output], &all[..]].concat(), b"").unwrap();
    let counts = "Total_gets: 30 Total_write_batches: 50 Total_seeks: 20 Total_seek_for_prevs: 0";
    assert!(out.contains("Total_requests: 100 ") && out.contains(counts), "{out}");

    let parser = library_tool(directory.path(), "io_tracer_parser");
    let out = rocksdb_tools::run(&parser, &[&format!("--io_trace_file={}", io.display())], b"").unwrap();
    assert!(out.contains("RocksDB Major Version: 11\nRocksDB Minor Version: 8\n"), "{out}");
    let parsed = out.lines().filter(|line| line.starts_with("Access Time")).count();
    assert_eq!(parsed, accesses(&Env::posix(), io.to_str().unwrap()).len(), "{out}");
    assert!(
        out.contains(".sst") && out.contains("File Operation: Append") && out.contains("IO Status: OK"),
        "{out}"
    );
}

fn on_disk(path: &Path) -> Db {
    Db::open(path, &Options::new().db(|db| db.create_if_missing = true)).unwrap()
}

#[test]
fn db_bench_writes_traces_that_are_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let [theirs, ours, trace] = ["theirs", "ours", "trace"].map(|name| directory.path().join(name));
    let flag = format!("--trace_file={}", trace.display());
    let benchmarks = "--benchmarks=fillrandom,overwrite,deleterandom,readrandom,multireadrandom,seekrandom";
    let flags = ["--num=2000", "--seed=7", "--max_scan_distance=10", benchmarks, &flag];
    rocksdb_tools::db_bench(&theirs, &flags).unwrap();
    let db = on_disk(&ours);
    let replayed = {
        let reader = FileTraceReader::open(db.env(), &trace).unwrap();
        Replayer::new(&db, &db.column_families(), Box::new(reader)).unwrap()
    };
    replayed.prepare().unwrap();
    let kinds = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    let counted = kinds.clone();
    replayed
        .replay(&FAST, move |record, answer| {
            answer.unwrap();
            let line = line(&record.query().unwrap());
            let kind = line.split(' ').next().unwrap().to_owned();
            *counted.lock().unwrap().entry(kind).or_default() += 1;
        })
        .unwrap();
    let kinds = kinds.lock().unwrap();
    // Compat: each benchmark of db_bench truncates the file, so it holds the last one's trace.
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["seek"], "{kinds:?}");
    assert_eq!(kinds["seek"], 2000);
    db.close().unwrap();
}

#[test]
fn what_db_bench_wrote_is_there_after_a_replay() {
    let directory = tempfile::tempdir().unwrap();
    let [theirs, ours, trace] = ["theirs", "ours", "trace"].map(|name| directory.path().join(name));
    let flag = format!("--trace_file={}", trace.display());
    let flags = ["--num=2000", "--seed=7", "--reads=500", "--benchmarks=readrandomwriterandom", &flag];
    rocksdb_tools::db_bench(&theirs, &flags).unwrap();
    let db = on_disk(&ours);
    let reader = FileTraceReader::open(db.env(), &trace).unwrap();
    let replayed = Replayer::new(&db, &db.column_families(), Box::new(reader)).unwrap();
    replayed.prepare().unwrap();
    replayed.replay(&FAST, |_, answer| drop(answer.unwrap())).unwrap();
    let theirs = rocksdb_tools::ldb_scan(&theirs, "default").unwrap();
    let ours = contents(&db, db.default_column_family());
    assert!(!ours.is_empty() && ours == theirs, "{} entries, {} of RocksDB", ours.len(), theirs.len());
    db.close().unwrap();
}

#[test]
fn db_bench_replays_our_traces() {
    let directory = tempfile::tempdir().unwrap();
    let [theirs, ours, trace] = ["theirs", "ours", "trace"].map(|name| directory.path().join(name));
    let db = on_disk(&ours);
    let writer = FileTraceWriter::create(db.env(), &trace).unwrap();
    db.start_trace(TraceOptions::default(), Box::new(writer)).unwrap();
    for n in 0..500u32 {
        db.put(format!("{:05}", n * 7919 % 500), n.to_le_bytes()).unwrap();
    }
    let mut batch = WriteBatch::new();
    batch.delete("00007").unwrap();
    batch.single_delete("00008").unwrap();
    batch.delete_range("00100", "00200").unwrap();
    db.write(&WriteOptions::new(), &batch).unwrap();
    let bounds = ReadOptions {
        iterate_lower_bound: Some(b"00010".to_vec()),
        iterate_upper_bound: Some(b"00020".to_vec()),
        ..ReadOptions::new()
    };
    db.get("00001").unwrap();
    db.multi_get(&["00002", "none"]);
    let mut iter = db.iter(&bounds).unwrap();
    iter.seek("00011").unwrap();
    iter.seek_for_prev("00019").unwrap();
    drop(iter);
    db.end_trace().unwrap();
    let ours = contents(&db, db.default_column_family());
    db.close().unwrap();
    let flag = format!("--trace_file={}", trace.display());
    for threads in ["1", "3"] {
        let theirs = theirs.with_extension(threads);
        // Compat: with one column family, db_bench passes none to its replay, which fails.
        let families = "--num_column_families=2";
        rocksdb_tools::db_bench(&theirs, &["--benchmarks=fillseq", "--num=1", families]).unwrap();
        let threads = format!("--trace_replay_threads={threads}");
        let flags = [
            "--use_existing_db=1",
            families,
            "--benchmarks=replay",
            "--trace_replay_fast_forward=1000000",
            &threads,
            &flag,
        ];
        let out = rocksdb_tools::db_bench(&theirs, &flags).unwrap();
        assert!(out.contains("Replay completed from trace_file"), "{out}");
        if threads.ends_with('1') {
            let mut replayed = rocksdb_tools::ldb_scan(&theirs, "default").unwrap();
            // Drops the key that the database had before the replay.
            replayed.retain(|(key, _)| key.len() == 5);
            assert_eq!(replayed, ours);
        }
    }
}
