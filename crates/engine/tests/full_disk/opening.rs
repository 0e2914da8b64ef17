//! Opening with any free space from none up: it succeeds wholly, or returns how many bytes it lacks
//! and loses nothing, and the space that it requires is small.

use super::{Entries, all, all_in, key, options, value};
use karst_engine::caller::{Caller, finish};
use karst_engine::{Db, ErrorKind, Options, SstFileManager, TransactionHooks, WriteBatch, WriteOptions};
use karst_format::ids::FileNumber;
use karst_format::log::{LogReader, RecoveryMode};
use karst_io::{Crash, Simulation};
use std::path::{Path, PathBuf};

const MEMTABLE: usize = 64 << 10;
/// Bytes that the MANIFEST, CURRENT and OPTIONS of two families require.
const REST: u64 = 48 << 10;
/// Step in bytes of the free space that is tried.
const STEP: usize = 4 << 10;

/// Paths and contents of files.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// The files that a killed process has left, and the entries that they hold.
struct Left {
    files: Files,
    model: Entries,
    /// Total size in bytes of all logs.
    log_bytes: u64,
    /// True if a transaction is prepared and undecided.
    prepared: bool,
}

impl Left {
    /// Returns the total size of all files in bytes.
    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Returns the contents of the logs, oldest first.
    fn logs(&mut self) -> Vec<&mut (PathBuf, Vec<u8>)> {
        let mut logs: Vec<_> = self.files.iter_mut().filter(|(path, _)| is_log(path)).collect();
        logs.sort_unstable();
        logs
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// State of a transaction whose prepared section is in a log that no family needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transaction {
    Absent,
    Undecided,
    Committed,
}

const NAME: &[u8] = b"transaction";

fn files_of(simulation: &Simulation) -> Files {
    let fs = simulation.env().fs();
    let names = fs.list_dir(Path::new("/db")).unwrap();
    let paths = names.iter().map(|name| Path::new("/db").join(name));
    // A process that is gone holds no lock.
    let paths = paths.filter(|path| !path.ends_with("LOCK"));
    paths.map(|path| (path.clone(), fs.read_file(&path).unwrap())).collect()
}

fn machine_with(files: &Files) -> Simulation {
    let simulation = Simulation::new(1);
    let fs = simulation.env().fs();
    fs.create_dir(Path::new("/db")).unwrap();
    for (path, bytes) in files {
        let mut file = fs.create(path).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }
    fs.sync_dir(Path::new("/db")).unwrap();
    simulation
}

fn small(options: Options) -> Options {
    options.column_families(|cf| (cf.write_buffer_size, cf.max_write_buffer_number) = (MEMTABLE, 8))
}

/// Leaves a table and about five unflushed memtables in as many logs, with entries of these
/// families in turns.
fn left(families: &[&str], change: fn(Options) -> Options) -> Left {
    left_behind(families, 20, change, Transaction::Absent)
}

/// Leaves `flushed` flushed entries and about five unflushed memtables. A transaction is prepared
/// before the flush, and decided after it.
fn left_behind(
    families: &[&str],
    flushed: u64,
    change: fn(Options) -> Options,
    transaction: Transaction,
) -> Left {
    let simulation = Simulation::new(1);
    let options = change(small(options(simulation.env())));
    let db = Db::open("/db", &options).unwrap();
    let mut model = Entries::new();
    let handles: Vec<_> = families
        .iter()
        .map(|name| match *name {
            "default" => db.default_column_family().clone(),
            name => db.create_column_family(name, &options).unwrap(),
        })
        .collect();
    let mut put = |i: u64| {
        let (key, value) = (key(i), value(i, 1000));
        let family = &handles[i as usize % handles.len()];
        db.put_cf(&WriteOptions::default(), family, &key, &value).unwrap();
        model.insert(key, value);
    };
    (0..flushed).for_each(&mut put);
    let (hooks, write) = (TransactionHooks::of(&db), WriteOptions::new());
    if transaction != Transaction::Absent {
        let mut batch = WriteBatch::new();
        batch.put(NAME, "1").unwrap();
        finish(hooks.prepare(Caller::Thread, &write, NAME, batch)).unwrap();
    }
    db.flush(&karst_engine::FlushOptions::default()).unwrap();
    db.pause_background_work().unwrap();
    if transaction == Transaction::Committed {
        commit(&db);
    }
    (flushed..flushed + 320).for_each(&mut put);
    if transaction == Transaction::Committed {
        model.insert(NAME.to_vec(), b"1".to_vec());
    }
    drop((handles, db));
    let files = files_of(&simulation.restart(Crash::Process, 2));
    let log_bytes = files.iter().filter(|(path, _)| is_log(path)).map(|(_, bytes)| bytes.len() as u64).sum();
    Left { files, model, log_bytes, prepared: transaction == Transaction::Undecided }
}

fn commit(db: &Db) {
    finish(TransactionHooks::of(db).commit_prepared(Caller::Thread, &WriteOptions::new(), NAME, None))
        .unwrap();
}

fn all_of(db: &Db, families: &[&str]) -> Entries {
    let mut found = all(db);
    for name in families.iter().filter(|name| **name != "default") {
        found.append(&mut all_in(db, &db.column_family(name).unwrap()));
    }
    found
}

/// Opens the files with free space from none to more than is useful. Opening must succeed with
/// `enough` bytes.
fn sweep(what: &str, left: &Left, families: &[&str], change: fn(Options) -> Options, enough: u64) {
    let used = left.bytes();
    let (mut smallest, mut errors) = (None, Vec::new());
    for room in (0..left.log_bytes + 3 * REST).step_by(STEP) {
        let simulation = machine_with(&left.files);
        let options = change(small(options(simulation.env())));
        let at = format!("{what}, {room} bytes free");
        simulation.fs().set_capacity(Some(used + room));
        match Db::open("/db", &options) {
            Ok(db) => {
                smallest.get_or_insert(room);
                assert!(all_of(&db, families) == left.model, "{at}: not what was written");
                db.close().unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{at}: {error}");
                let text = error.to_string();
                assert!(text.contains("/db") && text.contains(" bytes are lacking"), "{at}: {text}");
                assert!(room < enough, "{at}: {text}");
                errors.push((room, text));
                // The first attempt leaves no files that take space from a second one.
                let names = files_of(&simulation).len();
                let again = Db::open("/db", &options).map(|db| db.close().unwrap());
                assert!(again.is_ok() || files_of(&simulation).len() <= names, "{at}: it adds up");
            }
        }
        simulation.fs().set_capacity(None);
        let db = Db::open("/db", &options).unwrap();
        assert!(all_of(&db, families) == left.model, "{at}: something is lost");
        db.put("more", "of it").unwrap();
        if left.prepared {
            commit(&db);
            assert_eq!(db.get(NAME).unwrap().as_deref(), Some(&b"1"[..]), "{at}: not prepared");
        }
        db.close().unwrap();
    }
    let smallest = smallest.expect("with room for everything it opens");
    println!("{what}: {} bytes of logs open with {smallest} bytes free", left.log_bytes);
    errors.dedup_by(|a, b| a.1 == b.1);
    errors.iter().step_by(8).for_each(|(room, text)| println!("  with {room}: {text}"));
    assert!(smallest <= enough, "{what}: it takes {smallest} bytes, and {enough} are enough");
}

const ONE: [&str; 1] = ["default"];
const ONE_MEMTABLE: u64 = MEMTABLE as u64 * 5 / 4 + REST;

fn as_is(options: Options) -> Options {
    options
}

/// Fewer memtables than the logs fill.
fn less_memory(options: Options) -> Options {
    options.column_families(|cf| cf.max_write_buffer_number = 2)
}

fn recycled(options: Options) -> Options {
    options.db(|db| db.recycle_log_file_num = 8)
}

fn blobs(options: Options) -> Options {
    less_memory(options).column_families(|cf| (cf.enable_blob_files, cf.min_blob_size) = (true, 500))
}

#[test]
fn what_memtables_may_hold_opens_without_room_for_tables_of_it() {
    sweep("in memory", &left(&ONE, as_is), &ONE, as_is, REST);
    let two = ["default", "other"];
    sweep("two families", &left(&two, as_is), &two, as_is, REST);
}

#[test]
fn what_memtables_may_not_hold_opens_with_room_for_one() {
    sweep("step by step", &left(&ONE, as_is), &ONE, less_memory, ONE_MEMTABLE);
    sweep("into blob files", &left(&ONE, as_is), &ONE, blobs, ONE_MEMTABLE);
}

/// The last record is cut, as by a log that ran out of space within it.
#[test]
fn a_log_that_ends_within_a_record_takes_room_for_one_memtable() {
    let mut left = left(&ONE, as_is);
    let (_, bytes) = left.logs().pop().unwrap();
    bytes.truncate(bytes.len() - 100);
    left.model.remove(&key(339));
    for mode in ["kPointInTimeRecovery", "kTolerateCorruptedTailRecords"] {
        let change: fn(Options) -> Options = match mode {
            "kPointInTimeRecovery" => as_is,
            _ => |options| options.set("wal_recovery_mode", "kTolerateCorruptedTailRecords").unwrap(),
        };
        sweep(mode, &left, &ONE, change, ONE_MEMTABLE);
    }
}

#[test]
fn logs_in_files_that_were_used_before_take_room_for_one_memtable() {
    sweep(
        "recycled logs",
        &left_behind(&ONE, 600, recycled, Transaction::Absent),
        &ONE,
        recycled,
        ONE_MEMTABLE,
    );
}

fn two_phases(options: Options) -> Options {
    options.db(|db| db.allow_2pc = true)
}

fn two_phases_in_less_memory(options: Options) -> Options {
    less_memory(two_phases(options))
}

/// The log of the section is older than all that the families need, and only the replay needs it.
#[test]
fn a_section_in_a_log_that_no_family_needs_is_kept() {
    // No log is removed before the decision is replayed, so undecided sections take more room.
    for (transaction, enough) in [(Transaction::Committed, ONE_MEMTABLE), (Transaction::Undecided, u64::MAX)]
    {
        let left = left_behind(&ONE, 20, two_phases, transaction);
        let what = if left.prepared { "undecided" } else { "committed" };
        sweep(what, &left, &ONE, two_phases, enough);
        sweep(what, &left, &ONE, two_phases_in_less_memory, enough);
    }
}

/// Returns the ends of the whole records of a log, which is not of a recycled file.
fn record_ends(log: &[u8]) -> Vec<usize> {
    let mut reader = LogReader::new(log, FileNumber(0), RecoveryMode::AbsoluteConsistency);
    let mut ends = Vec::new();
    while let Some(record) = reader.next_record() {
        ends.push(record.expect("a sound record").end as usize);
    }
    assert_eq!(ends.last(), Some(&log.len()), "the log ends with a record");
    ends
}

/// Only the log behind it shows that a log has lost its end, so each opening must have read both
/// before it removes one.
#[test]
fn a_log_that_lost_its_last_record_is_damage_to_each_opening() {
    let mut left = left(&ONE, as_is);
    let mut logs = left.logs();
    assert!(logs.len() >= 4, "{} logs", logs.len());
    let cut = logs.len() / 2;
    let ends = record_ends(&logs[cut].1);
    logs[cut].1.truncate(ends[ends.len() - 2]);
    let used = left.bytes();
    for mode in ["kTolerateCorruptedTailRecords", "kAbsoluteConsistency"] {
        for room in (0..left.log_bytes + REST).step_by(4 * STEP) {
            let simulation = machine_with(&left.files);
            let opening = less_memory(small(options(simulation.env())));
            let opening = opening.set("wal_recovery_mode", mode).unwrap();
            simulation.fs().set_capacity(Some(used + room));
            for attempt in 0..4 {
                let opened = Db::open("/db", &opening).map(drop);
                let error = opened.expect_err("a record is missing").kind();
                let at = format!("{mode}, {room} bytes free, attempt {attempt}: {error:?}");
                assert!(error == ErrorKind::Corruption || attempt < 2 && error == ErrorKind::NoSpace, "{at}");
                if attempt == 1 {
                    simulation.fs().set_capacity(None);
                }
            }
        }
    }
    // Point-in-time recovery ends before the missing record, with any room.
    let simulation = machine_with(&left.files);
    let db = Db::open("/db", &less_memory(small(options(simulation.env())))).unwrap();
    let entries = left.model.len();
    left.model = all(&db);
    assert!((entries / 4..entries * 3 / 4).contains(&left.model.len()), "{}", left.model.len());
    drop(db);
    sweep("point in time", &left, &ONE, less_memory, left.log_bytes + REST);
}

/// A compaction was writing tables when the process was killed.
#[test]
fn what_a_crash_left_goes_before_room_is_wanted() {
    let mut left = left(&ONE, as_is);
    left.files.push(("/db/000900.sst".into(), vec![1; 2 << 20]));
    sweep("beside leftovers", &left, &ONE, less_memory, 0);
    sweep("beside leftovers, with a delete rate", &left, &ONE, slowly_removed, 0);
    left.files.last_mut().unwrap().0 = "/db/000900.sst.trash".into();
    sweep("beside trash", &left, &ONE, less_memory, 0);
    sweep("beside trash, with a delete rate", &left, &ONE, slowly_removed, 0);
}

fn slowly_removed(options: Options) -> Options {
    let manager = SstFileManager::new();
    manager.set_delete_rate_bytes_per_second(1 << 10);
    less_memory(options).sst_file_manager(manager)
}

/// The leftovers of a crash are larger than all logs, so these go one by one, to the archive.
#[test]
fn logs_that_steps_have_archived_stay_whole() {
    let mut left = left(&ONE, as_is);
    let logs: Files = left.files.iter().filter(|(path, _)| is_log(path)).cloned().collect();
    left.files.push(("/db/000900.sst".into(), vec![1; 2 << 20]));
    let used = left.bytes();
    let simulation = machine_with(&left.files);
    let opening = less_memory(small(options(simulation.env())));
    let opening = opening.db(|db| (db.wal_ttl_seconds, db.avoid_flush_during_recovery) = (3600, true));
    simulation.fs().set_capacity(Some(used));
    let db = Db::open("/db", &opening).unwrap();
    assert!(all(&db) == left.model);
    db.close().unwrap();
    let mut archived = 0;
    for (path, bytes) in logs {
        let archive = Path::new("/db/archive").join(path.file_name().unwrap());
        let exists = simulation.env().fs().exists(&archive).unwrap();
        let found = simulation.env().fs().read_file(if exists { &archive } else { &path }).unwrap();
        assert!(found == bytes, "{}: {} of {} bytes", path.display(), found.len(), bytes.len());
        archived += usize::from(exists);
    }
    assert!(archived > 2, "{archived} logs in the archive");
}

/// At each failure the logs still exist, or tables have their entries.
#[test]
fn a_power_failure_at_any_change_of_an_opening_without_room_loses_nothing() {
    let left = left(&ONE, as_is);
    let used = left.bytes();
    for (course, change, room) in
        [("in memory", as_is as fn(Options) -> Options, REST), ("step by step", less_memory, ONE_MEMTABLE)]
    {
        let mut failures = 0;
        for changes in 0.. {
            let simulation = machine_with(&left.files);
            simulation.env().fs().sync_dir(Path::new("/")).unwrap();
            simulation.fs().set_capacity(Some(used + room));
            simulation.fs().lose_power_after(changes);
            let opening = change(small(options(simulation.env())));
            let _ = simulation.run(async { Db::open("/db", &opening).map(|db| drop(db.close())) });
            let whole = !simulation.fs().is_off();
            drop(opening);
            let simulation = simulation.restart(Crash::Power, changes);
            simulation.fs().set_capacity(None);
            let opening = change(small(options(simulation.env())));
            let db = Db::open("/db", &opening).unwrap();
            assert!(all(&db) == left.model, "{course}, power failure after {changes} changes");
            db.close().unwrap();
            if whole {
                break;
            }
            failures += 1;
        }
        println!("{course}: {failures} power failures");
        assert!(failures > 20, "{course}: the power failed {failures} times only");
    }
}
