//! MANIFEST failures while a flush has sealed memtables and the log was switched, with transactions
//! prepared under WritePrepared, unordered writes and two write queues. The database has a
//! background error and resumes; sequence numbers never go backwards, readers and snapshots show
//! the right state, and transactions prepared before are decided afterwards, once. The files left
//! by a crash at any of these moments give the same results.

use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, PosixFileSystem};
use karst_engine::{
    BackgroundErrorReason, ErrorKind, FlushOptions, Options, ReadOptions, Result, Severity, Snapshot,
    WriteBatch, WriteOptions,
};
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A disk that refuses writes of a MANIFEST, and new MANIFESTs, while it fails.
#[derive(Debug, Default)]
struct Failing {
    fails: AtomicBool,
    failed: AtomicU64,
}

impl Disturb for Failing {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let is_manifest = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"));
        if is_manifest && self.fails.load(SeqCst) {
            self.failed.fetch_add(1, SeqCst);
            return Err(io::Error::other("the MANIFEST is out of order"));
        }
        Ok(())
    }
}

/// Options of writes, and the way in which the database fails and resumes.
#[derive(Clone, Copy, Debug)]
struct Setting {
    unordered_write: bool,
    two_write_queues: bool,
    /// A full memtable is flushed and the database resumes by itself; otherwise on request.
    by_itself: bool,
}

fn each_setting(test: impl Fn(Setting)) {
    for early in [(false, false), (false, true), (true, false), (true, true)] {
        for by_itself in [false, true] {
            let (unordered_write, two_write_queues) = early;
            let setting = Setting { unordered_write, two_write_queues, by_itself };
            println!("{setting:?}");
            test(setting);
        }
    }
}

fn open(path: &Path, setting: Setting, env: Option<&Env>) -> TransactionDb {
    let options = Options::new()
        .db(move |db| {
            db.create_if_missing = true;
            (db.unordered_write, db.two_write_queues) = (setting.unordered_write, setting.two_write_queues);
            db.max_bgerror_resume_count = if setting.by_itself { i32::MAX } else { 0 };
            db.bgerror_resume_retry_interval = 20_000;
        })
        .column_families(|family| family.write_buffer_size = 64 << 10)
        .set("merge_operator", "uint64add")
        .unwrap();
    let options = match env {
        Some(env) => options.env(env.clone()),
        None => options,
    };
    let transactions = TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy: WritePolicy::WritePrepared,
        ..TransactionDbOptions::default()
    };
    TransactionDb::open(path, &options, &transactions).unwrap()
}

const ONE: [u8; 8] = 1u64.to_le_bytes();

/// Prepares, under `name`, a transaction that adds one to a key of that name, so that a second
/// application shows.
fn prepare(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = begin(db, name);
    transaction.prepare().unwrap();
    transaction
}

fn begin(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    transaction.set_name(name).unwrap();
    transaction.merge(name, ONE).unwrap();
    transaction
}

fn kind<T>(outcome: Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

type Contents = BTreeMap<String, u64>;

fn contents<const N: usize>(pairs: [(&str, u64); N]) -> Contents {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns all entries, at a snapshot or the newest state.
fn all(db: &TransactionDb, snapshot: Option<&Snapshot>) -> Contents {
    let mut iterator = db.iter(&ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::new() }).unwrap();
    let mut found = Contents::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        let key = String::from_utf8(iterator.key().to_vec()).unwrap();
        found.insert(key, u64::from_le_bytes(iterator.value().try_into().unwrap()));
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    found
}

fn names(db: &TransactionDb) -> Vec<String> {
    db.get_all_prepared_transactions().into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

/// The largest sequence number so far.
#[derive(Debug, Default)]
struct Numbers(u64);

impl Numbers {
    fn never_go_backwards(&mut self, db: &TransactionDb, when: &str) {
        let snapshot = db.snapshot().sequence_number();
        let now = db.db().latest_sequence_number();
        assert!(now >= self.0 && snapshot >= self.0, "{when}: {now} and {snapshot} after {}", self.0);
        self.0 = now;
    }
}

/// Flushes a memtable, which fails.
fn fail(db: &TransactionDb, setting: Setting) {
    let outcome = match setting.by_itself {
        // Until writes are refused.
        true => std::iter::repeat_with(|| db.put("filler", [0; 8])).find(|outcome| outcome.is_err()).unwrap(),
        false => db.db().flush(&FlushOptions::default()),
    };
    assert_eq!(kind(outcome), Some(ErrorKind::Io));
}

/// Waits for the end of the background error, or resumes.
fn resume(db: &TransactionDb, setting: Setting) {
    // Several attempts, because a job that failed may report it only now, so that this call returns
    // that error.
    let mut refusals_left = 8;
    while db.db().background_error().is_some() {
        if setting.by_itself {
            std::thread::yield_now();
        } else if let Err(error) = db.db().resume() {
            assert!(refusals_left > 0, "{error}");
            refusals_left -= 1;
        }
    }
}

/// Copies the files at one moment, at which none is created, removed or grown.
fn copied(path: &Path) -> tempfile::TempDir {
    let listed = || -> BTreeMap<PathBuf, u64> {
        let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path());
        files.filter_map(|file| Some((file.clone(), file.metadata().ok()?.len()))).collect()
    };
    loop {
        let (to, before) = (tempfile::tempdir().unwrap(), listed());
        let copies = before.keys().map(|file| std::fs::copy(file, to.path().join(file.file_name().unwrap())));
        if copies.collect::<io::Result<Vec<_>>>().is_ok() && listed() == before {
            return to;
        }
    }
}

/// Checks the state that a crash at this moment leaves: all acknowledged writes, and the
/// `undecided` transactions, to be decided.
fn check_crash(path: &Path, setting: Setting, expected: &Contents, undecided: &[&str], least: u64) {
    let crashed = copied(path);
    let mut expected = expected.clone();
    for round in 0..2 {
        let db = open(crashed.path(), setting, None);
        assert_eq!(db.db().log_damage(), None);
        assert!(db.db().latest_sequence_number() >= least);
        assert_eq!(all(&db, None), expected, "opening {round}");
        if round == 0 {
            assert_eq!(names(&db), undecided);
            for (n, name) in undecided.iter().enumerate() {
                let mut transaction = db.get_transaction_by_name(name).unwrap();
                if n % 2 == 0 {
                    transaction.commit().unwrap();
                    expected.insert((*name).to_owned(), 1);
                } else {
                    transaction.rollback().unwrap();
                }
            }
            assert_eq!(all(&db, None), expected);
            assert!(db.lock_status().is_empty());
        }
    }
}

#[test]
fn numbers_never_go_backwards_and_what_was_prepared_before_is_decided_once_behind_it() {
    each_setting(|setting| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let files = DisturbedFileSystem::new(Arc::new(PosixFileSystem), Failing::default());
        let disk = files.between().clone();
        let env = Env::builder().file_system(Arc::new(files)).build();
        let db = open(path, setting, Some(&env));
        let mut numbers = Numbers::default();
        db.merge("plain", ONE).unwrap();
        db.put("filler", [0; 8]).unwrap();
        let mut committed = prepare(&db, "committed");
        let mut rolled_back = prepare(&db, "rolled back");
        drop((prepare(&db, "left"), prepare(&db, "taken up")));
        let mut early = prepare(&db, "early");
        early.commit().unwrap();
        let before = contents([("early", 1), ("filler", 0), ("plain", 1)]);
        let snapshot = db.snapshot();
        db.merge("plain", ONE).unwrap();
        numbers.never_go_backwards(&db, "before");

        disk.fails.store(true, SeqCst);
        let mut refused = begin(&db, "refused");
        fail(&db, setting);
        let error = db.db().background_error().unwrap();
        assert_eq!((error.reason, error.severity), (BackgroundErrorReason::ManifestWrite, Severity::Hard));
        assert!(disk.failed.load(SeqCst) > 0);
        numbers.never_go_backwards(&db, "when it failed");
        let meanwhile = contents([("early", 1), ("filler", 0), ("plain", 2)]);
        let during = db.snapshot();
        let io = Some(ErrorKind::Io);
        for round in 0..3 {
            assert_eq!(kind(db.merge("plain", ONE)), io);
            assert_eq!(kind(refused.prepare()), io);
            assert_eq!(kind(committed.commit()), io);
            assert_eq!(kind(pollster::block_on(committed.commit_async())), io);
            assert_eq!(kind(rolled_back.rollback()), io);
            assert_eq!(all(&db, None), meanwhile, "{round}");
            assert_eq!(names(&db), ["committed", "left", "rolled back", "taken up"]);
            numbers.never_go_backwards(&db, "what is refused");
            if !setting.by_itself {
                assert_eq!(kind(db.db().resume()), io, "the MANIFEST fails still");
                numbers.never_go_backwards(&db, "when it did not resume");
            }
        }
        check_crash(path, setting, &meanwhile, &["committed", "left", "rolled back", "taken up"], numbers.0);

        disk.fails.store(false, SeqCst);
        resume(&db, setting);
        numbers.never_go_backwards(&db, "resumed");
        let after = db.snapshot();
        assert_eq!(all(&db, None), meanwhile);
        check_crash(path, setting, &meanwhile, &["committed", "left", "rolled back", "taken up"], numbers.0);
        let last = numbers.0;
        db.merge("plain", ONE).unwrap();
        numbers.never_go_backwards(&db, "a write");
        assert!(numbers.0 > last, "a write took no number");
        committed.commit().unwrap();
        let last = numbers.0;
        numbers.never_go_backwards(&db, "a commit");
        assert!(numbers.0 > last, "a commit took no number");
        rolled_back.rollback().unwrap();
        db.get_transaction_by_name("taken up").unwrap().commit().unwrap();
        refused.prepare().unwrap();
        refused.commit().unwrap();
        drop(prepare(&db, "new"));
        let now = contents([
            ("committed", 1),
            ("early", 1),
            ("filler", 0),
            ("plain", 3),
            ("refused", 1),
            ("taken up", 1),
        ]);
        let check = |when: &str| {
            assert_eq!(all(&db, None), now, "{when}");
            assert_eq!(all(&db, Some(&snapshot)), before, "{when}");
            assert_eq!(all(&db, Some(&during)), meanwhile, "{when}");
            assert_eq!(all(&db, Some(&after)), meanwhile, "{when}");
        };
        check("decided");
        numbers.never_go_backwards(&db, "decided");
        check_crash(path, setting, &now, &["left", "new"], numbers.0);
        db.db().flush(&FlushOptions::default()).unwrap();
        check("flushed");
        db.db().compact_range(&Default::default(), None, None).unwrap();
        check("compacted");
        numbers.never_go_backwards(&db, "compacted");
        check_crash(path, setting, &now, &["left", "new"], numbers.0);
        drop((committed, rolled_back, early, refused, snapshot, during, after, db));

        let db = open(path, setting, None);
        numbers.never_go_backwards(&db, "opened again");
        assert_eq!((all(&db, None), db.db().log_damage()), (now.clone(), None));
        db.get_transaction_by_name("left").unwrap().commit().unwrap();
        db.get_transaction_by_name("new").unwrap().rollback().unwrap();
        let mut expected = now;
        expected.insert("left".to_owned(), 1);
        assert_eq!(all(&db, None), expected);
        assert!(db.lock_status().is_empty());
    });
}

/// Writers of all kinds continue while the MANIFEST fails from time to time: acknowledged writes
/// are there once, refused ones are not, and a reader never sees an older state or a part of a
/// transaction.
#[test]
fn writers_beside_a_failing_manifest_count_what_was_acknowledged() {
    const WRITERS: usize = 3;
    const FAILURES: u64 = 2;
    each_setting(|setting| {
        let directory = tempfile::tempdir().unwrap();
        let files = DisturbedFileSystem::new(Arc::new(PosixFileSystem), Failing::default());
        let disk = files.between().clone();
        let env = Env::builder().file_system(Arc::new(files)).build();
        let db = open(directory.path(), setting, Some(&env));
        let over = AtomicBool::new(false);
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (db, over) = (&db, &over);
                    scope.spawn(move || write_until(db, writer, over))
                })
                .collect();
            scope.spawn(|| watch(&db, WRITERS, &over));
            let end = End(&over);
            for _ in 0..FAILURES {
                let before = db.db().latest_sequence_number();
                while db.db().latest_sequence_number() < before + 100 {
                    // A job that failed may report it after the end of the failure.
                    resume(&db, setting);
                    std::thread::yield_now();
                }
                disk.fails.store(true, SeqCst);
                assert_eq!(kind(db.db().flush(&FlushOptions::default())), Some(ErrorKind::Io));
                let failed = db.db().latest_sequence_number();
                disk.fails.store(false, SeqCst);
                resume(&db, setting);
                assert!(db.db().latest_sequence_number() >= failed);
            }
            drop(end);
            while !writers.iter().all(|writer| writer.is_finished()) {
                resume(&db, setting);
                std::thread::yield_now();
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let check = |db: &TransactionDb| {
            let found = all(db, None);
            for (writer, count) in acknowledged.iter().enumerate() {
                for side in ["x", "y"] {
                    assert_eq!(found.get(&format!("{side}{writer}")), Some(count), "{acknowledged:?}");
                }
            }
            assert!(db.lock_status().is_empty() && names(db).is_empty());
        };
        check(&db);
        let last = db.db().latest_sequence_number();
        drop(db);
        let db = open(directory.path(), setting, None);
        assert!(db.db().latest_sequence_number() >= last && db.db().log_damage().is_none());
        check(&db);
    });
}

/// Stops the other threads, even if a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Adds one to two keys at once, repeatedly, by a plain write, a one-phase and a two-phase commit,
/// with rollbacks between. Returns the number of acknowledged additions.
fn write_until(db: &TransactionDb, writer: usize, over: &AtomicBool) -> u64 {
    let (x, y) = (format!("x{writer}"), format!("y{writer}"));
    let mut acknowledged = 0;
    for round in 0_u64.. {
        if over.load(SeqCst) {
            break;
        }
        let done = match round % 3 {
            0 => {
                let mut batch = WriteBatch::new();
                batch.merge(&x, ONE).unwrap();
                batch.merge(&y, ONE).unwrap();
                db.write(&WriteOptions::new(), &batch).is_ok()
            }
            how => {
                let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
                transaction.merge(&x, ONE).unwrap();
                transaction.merge(&y, ONE).unwrap();
                match how {
                    1 => transaction.commit().is_ok(),
                    _ => in_two_phases(&mut transaction, &format!("{writer} {round}"), round % 2 == 0),
                }
            }
        };
        acknowledged += u64::from(done);
    }
    acknowledged
}

/// Prepares a transaction, and commits or rolls it back until that succeeds. Returns true if it was
/// committed.
fn in_two_phases(transaction: &mut Transaction, name: &str, commits: bool) -> bool {
    transaction.set_name(name).unwrap();
    if transaction.prepare().is_err() {
        return false;
    }
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = if commits { transaction.commit() } else { transaction.rollback() } {
        assert!(error.kind() == ErrorKind::Io && Instant::now() < end, "{error}");
        std::thread::yield_now();
    }
    commits
}

/// Reads all the time, and checks that numbers and counts never go backwards, and that entries
/// written together are seen together.
fn watch(db: &TransactionDb, writers: usize, over: &AtomicBool) {
    let (mut numbers, mut counts) = (Numbers::default(), vec![0; writers]);
    while !over.load(SeqCst) {
        numbers.never_go_backwards(db, "meanwhile");
        let found = all(db, Some(&db.snapshot()));
        for (writer, count) in counts.iter_mut().enumerate() {
            let [x, y] = ["x", "y"].map(|side| found.get(&format!("{side}{writer}")).copied().unwrap_or(0));
            assert!(x == y && x >= *count, "{x} and {y} after {count}");
            *count = x;
        }
    }
}
