//! Two-phase commit across both engines: one prepares transactions and is killed, the other
//! recovers them from its log, lists them, keeps their keys locked (KarstDB; RocksDB does not), and
//! commits or rolls them back.
//!
//! Each write policy has half of the histories.
//!
//! A history is drawn from a seed: lives, by KarstDB and RocksDB 11.8 in turns, each with writes,
//! transactions that are prepared, committed or rolled back, and flushes. Each life is its own
//! process, which first compares the database with the state the earlier lives left, and ends by
//! killing itself (`SIGKILL`) or by a close. The expected state follows from the seed, so only the
//! database passes between lives.

use crate::rocks;
use karst_engine::{ColumnFamily, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use librocksdb_sys as ffi;
use rocksdb::{ColumnFamilyDescriptor, TransactionDBOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const FAMILIES: [&str; 2] = ["default", "second"];
const KEYS: u64 = 16;
/// Number of keys that are put once and removed by a single deletion. They sort after the others,
/// so no range contains them.
const SINGLES: u64 = 4;
/// Maximum number of changes of a key in a prepared transaction. If the family was flushed, RocksDB
/// 11.8 forgets at recovery which key began a sub-batch (`DuplicateDetector`). It then misses a
/// repetition of this key that it counted at prepare, and shows the undecided entries of the last
/// sub-batch.
const TIMES: usize = 2;
const LIVES: usize = 8;
const SEEDS: u64 = 48;
const DB_OPTIONS: &str =
    "create_if_missing=true;create_missing_column_families=true;write_buffer_size=65536;";
const MERGE: &str = "merge_operator={id=StringAppendOperator;delimiter=,;};";

type Key = (usize, String);
type Changes = Vec<Change>;

#[derive(Clone, Debug)]
enum Change {
    Put(Key, String),
    Delete(Key),
    SingleDelete(Key),
    Merge(Key, String),
    /// From the first key up to the second, exclusive, in one family. In plain batches only.
    DeleteRange(Key, String),
    LogData(String),
}

impl Change {
    fn key(&self) -> Option<&Key> {
        match self {
            Change::Put(key, _)
            | Change::Delete(key)
            | Change::SingleDelete(key)
            | Change::Merge(key, _)
            | Change::DeleteRange(key, _) => Some(key),
            Change::LogData(_) => None,
        }
    }
}

/// True if a key comes more than once, which takes another sequence number under WritePrepared.
fn repeats(changes: &Changes) -> bool {
    let mut keys = BTreeSet::new();
    changes.iter().filter_map(Change::key).any(|key| !keys.insert(key))
}

#[derive(Clone, Debug)]
enum Step {
    /// A plain batch.
    Write(Changes),
    /// A transaction that is not prepared.
    Transaction(Changes),
    Prepare(String, Changes),
    Decide {
        name: String,
        commit: bool,
    },
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    KarstDb,
    RocksDb,
}

/// Actions of one process.
#[derive(Clone, Debug)]
struct Life {
    engine: Engine,
    steps: Vec<Step>,
    killed: bool,
}

/// The expected contents of the database.
#[derive(Clone, Debug, Default)]
struct State {
    data: BTreeMap<Key, String>,
    prepared: BTreeMap<String, Changes>,
    /// Keys that a rollback may have put again, so that a single deletion would meet more than one
    /// put.
    restored: BTreeSet<Key>,
}

impl State {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(key, value) => drop(self.data.insert(key.clone(), value.clone())),
                Change::Delete(key) => {
                    self.data.remove(key);
                    self.restored.remove(key);
                }
                Change::SingleDelete(key) => drop(self.data.remove(key)),
                Change::DeleteRange((family, begin), end) => {
                    self.data.retain(|(of, key), _| of != family || key < begin || key >= end);
                }
                Change::LogData(_) => {}
                Change::Merge(key, operand) => {
                    let value = self.data.entry(key.clone()).or_default();
                    if !value.is_empty() {
                        value.push(',');
                    }
                    value.push_str(operand);
                }
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Write(changes) | Step::Transaction(changes) => self.apply(changes),
            Step::Prepare(name, changes) => drop(self.prepared.insert(name.clone(), changes.clone())),
            Step::Decide { name, commit } => {
                let changes = self.prepared.remove(name).expect("it is prepared");
                if *commit {
                    self.apply(&changes);
                } else {
                    let touched = changes.iter().filter_map(Change::key);
                    self.restored.extend(touched.filter(|key| self.data.contains_key(*key)).cloned());
                }
            }
            Step::Flush => {}
        }
    }

    fn is_locked(&self, key: &Key) -> bool {
        self.prepared.values().flatten().any(|change| change.key() == Some(key))
    }
}

/// Write policy of a history.
fn policy(seed: u64) -> WritePolicy {
    // The lowest bit of the seed chooses the engine that begins, the next one the policy.
    if (seed / 2).is_multiple_of(2) { WritePolicy::WriteCommitted } else { WritePolicy::WritePrepared }
}

/// The options of the database in a history.
fn db_options(seed: u64) -> String {
    let queues = match (seed / 4 % 2, policy(seed)) {
        (0, _) => "",
        // db_bench's choice for unordered writes with transactions; without two queues, or under
        // WriteCommitted, RocksDB refuses them.
        (_, WritePolicy::WritePrepared) => "unordered_write=true;two_write_queues=true;",
        (_, _) => "two_write_queues=true;",
    };
    format!("{DB_OPTIONS}{queues}")
}

fn keys() -> impl Iterator<Item = Key> {
    let names = || (0..KEYS).map(name).chain((0..SINGLES).map(|key| format!("single{key}")));
    (0..FAMILIES.len()).flat_map(move |family| names().map(move |key| (family, key)))
}

fn name(key: u64) -> String {
    format!("key{key:02}")
}

fn is_single(key: &Key) -> bool {
    key.1.starts_with("single")
}

/// Returns life `number` and the state that it must find.
fn life(seed: u64, number: usize) -> (Life, State) {
    let (mut random, mut state) = (Random::new(seed), State::default());
    let mut names = 0;
    for at in 0.. {
        let engine = if (seed as usize + at).is_multiple_of(2) { Engine::KarstDb } else { Engine::RocksDb };
        // RocksDB writes no batch with a range under WritePrepared ("DeleteRangeCF not
        // implemented"): it does not count their sub-batches. It replays KarstDB's.
        let ranges = engine == Engine::KarstDb || policy(seed) == WritePolicy::WriteCommitted;
        let before = state.clone();
        let mut steps = Vec::new();
        for _ in 0..4 + random.below(12) {
            let step = draw(&mut random, &state, &mut names, ranges);
            state.take(&step);
            steps.push(step);
        }
        let killed = !random.one_in(3);
        if at == number {
            return (Life { engine, steps, killed }, before);
        }
    }
    unreachable!("lives do not end")
}

fn draw(random: &mut Random, state: &State, names: &mut u64, ranges: bool) -> Step {
    let prepared = state.prepared.len();
    match random.below(10) {
        0 => Step::Flush,
        1 => Step::Write(changes(random, state, usize::MAX, ranges)),
        2 => Step::Transaction(changes(random, state, usize::MAX, false)),
        3..6 if prepared > 0 => {
            let name = state.prepared.keys().nth(random.index(prepared)).expect("there is one").clone();
            Step::Decide { name, commit: !random.one_in(3) }
        }
        _ if prepared < 4 => {
            *names += 1;
            Step::Prepare(format!("transaction {names}"), changes(random, state, TIMES, false))
        }
        _ => Step::Flush,
    }
}

/// Draws changes in which each key comes at most `most` times.
fn changes(random: &mut Random, state: &State, most: usize, ranges: bool) -> Changes {
    let mut free: Vec<Key> = keys().filter(|key| !state.is_locked(key)).collect();
    let (mut used, mut changes, mut now) = (Vec::<Key>::new(), Vec::new(), state.clone());
    for _ in 0..1 + random.below(5) {
        let times = |key: &Key| used.iter().filter(|other| *other == key).count();
        let again: Vec<&Key> = used.iter().filter(|key| times(key) < most).collect();
        let key = if !again.is_empty() && (random.one_in(3) || free.is_empty()) {
            again[random.index(again.len())].clone()
        } else {
            free.swap_remove(random.index(free.len()))
        };
        used.push(key.clone());
        let text = format!("{}{}", random.below(1000), "v".repeat(random.index(200)));
        let change = match random.below(4) {
            _ if is_single(&key) && !now.data.contains_key(&key) => Change::Put(key, text),
            _ if is_single(&key) && !now.restored.contains(&key) => Change::SingleDelete(key),
            _ if is_single(&key) => Change::Delete(key),
            0 => Change::Delete(key),
            1 => Change::Merge(key, text),
            _ => Change::Put(key, text),
        };
        now.apply(std::slice::from_ref(&change));
        changes.push(change);
        if ranges && random.one_in(3) {
            let range = range(random, &now);
            now.apply(range.as_slice());
            changes.extend(range);
        }
        if random.one_in(6) {
            changes.push(Change::LogData(format!("note {}", random.below(1000))));
        }
    }
    changes
}

/// Draws a range without locked keys, because its deletion takes no locks.
fn range(random: &mut Random, state: &State) -> Option<Change> {
    let (family, begin) = (random.index(FAMILIES.len()), random.below(KEYS));
    let most = begin + 1 + random.below(6);
    let is_free = |key: &u64| !state.is_locked(&(family, name(*key)));
    let end = begin + (begin..most).take_while(is_free).count() as u64;
    (end > begin).then(|| Change::DeleteRange((family, name(begin)), name(end)))
}

/// Runs all histories in a temporary folder.
pub(crate) fn run() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("karst-judge-prepared-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let (mut recovered, mut decided, mut killed) = (0, 0, 0);
    // Transactions of more than one sub-batch among these, and plain batches of several that were
    // replayed from a log.
    let (mut recovered_repeats, mut decided_repeats, mut replayed_repeats) = (0, 0, 0);
    // Decided transactions with single deletions and with log data, and batches with ranges.
    let (mut singles, mut notes, mut ranges) = (0, 0, 0);
    for seed in 0..SEEDS {
        let path = folder.join(seed.to_string());
        for number in 0..LIVES {
            let (life, before) = life(seed, number);
            let status = Command::new(&program)
                .arg("prepared-life")
                .arg(&path)
                .args([seed.to_string(), number.to_string()])
                .status()
                .map_err(|e| e.to_string())?;
            let ended = if life.killed { status.signal() == Some(libc::SIGKILL) } else { status.success() };
            if !ended {
                return Err(format!(
                    "history {seed}, life {number} of {:?}: {status}; its database is in {}",
                    life.engine,
                    path.display()
                ));
            }
            // Prepared by the other engine, because the engines alternate.
            recovered += before.prepared.len();
            let is_prepared = policy(seed) == WritePolicy::WritePrepared;
            let counts_twice = |changes: &Changes| is_prepared && repeats(changes);
            recovered_repeats += before.prepared.values().filter(|changes| counts_twice(changes)).count();
            for step in &life.steps {
                if let Step::Decide { name, .. } = step
                    && let Some(changes) = before.prepared.get(name)
                {
                    decided += 1;
                    decided_repeats += usize::from(counts_twice(changes));
                    singles += usize::from(changes.iter().any(|c| matches!(c, Change::SingleDelete(_))));
                    notes += usize::from(changes.iter().any(|c| matches!(c, Change::LogData(_))));
                }
            }
            let behind_flush = life.steps.iter().rev().take_while(|step| !matches!(step, Step::Flush));
            for step in behind_flush {
                if let Step::Write(changes) | Step::Transaction(changes) = step
                    && life.killed
                {
                    replayed_repeats += usize::from(counts_twice(changes));
                    ranges += usize::from(changes.iter().any(|c| matches!(c, Change::DeleteRange(..))));
                }
            }
            killed += usize::from(life.killed);
        }
    }
    println!(
        "prepared transactions: {} lives of both engines in turns, {killed} killed; {recovered} recovered from the other's log ({recovered_repeats} of more than one sub-batch), {decided} of them decided ({decided_repeats}; {singles} with single deletions, {notes} with log data); of what was not prepared, {replayed_repeats} of more than one sub-batch and {ranges} with ranges behind the last flush of who was killed",
        SEEDS as usize * LIVES
    );
    let counts = [
        ("recovered", recovered),
        ("recovered, of more than one sub-batch", recovered_repeats),
        ("decided", decided),
        ("decided, of more than one sub-batch", decided_repeats),
        ("decided, with single deletions", singles),
        ("decided, with log data", notes),
        ("replayed, of more than one sub-batch", replayed_repeats),
        ("replayed, with ranges", ranges),
    ];
    if let Some((what, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(format!("nothing was {what}: the histories show less than they are for"));
    }
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Runs one life in this process. Returns only if the life is not killed.
pub(crate) fn live(path: &str, seed: &str, number: &str) -> Result<(), String> {
    let seed = seed.parse().map_err(|e| format!("{seed}: {e}"))?;
    let number = number.parse().map_err(|e| format!("{number}: {e}"))?;
    let (life, state) = life(seed, number);
    let lived = match life.engine {
        Engine::KarstDb => karst(Path::new(path), seed, &life, state),
        Engine::RocksDb => rocksdb(Path::new(path), seed, &life, state),
    };
    lived.map_err(|e| format!("history {seed}, {:?}, life {number}, {:?}: {e}", policy(seed), life.engine))
}

fn kill() -> ! {
    // SAFETY: the signal ends this process in any state.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("nothing outlives SIGKILL")
}

/// Returns an error unless the found contents are those the last life left.
fn compare<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, left: &T) -> Result<(), String> {
    if found == left { Ok(()) } else { Err(format!("{what}: found {found:?}, and left was {left:?}")) }
}

fn karst(path: &Path, seed: u64, life: &Life, mut state: State) -> Result<(), String> {
    let error = |e: karst_engine::Error| e.to_string();
    let (options, write_policy) = (format!("{}{MERGE}", db_options(seed)), policy(seed));
    let options = Options::new().set_all(&options).map_err(error)?;
    let transactions =
        TransactionDbOptions { default_lock_timeout: 0, write_policy, ..TransactionDbOptions::default() };
    let db = TransactionDb::open_cf(path, &options, &transactions, &FAMILIES).map_err(error)?;
    let families: Vec<ColumnFamily> =
        FAMILIES.iter().map(|name| db.db().column_family(name).expect("it is open")).collect();
    let read = ReadOptions::new();
    for key in keys() {
        let value = db.db().get_cf(&read, &families[key.0], &key.1).map_err(error)?;
        let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
        compare(&format!("{key:?}"), &value.as_ref(), &state.data.get(&key))?;
        let probe = db.begin(&WriteOptions::new(), &quick()).get_for_update_cf(
            &read,
            &families[key.0],
            &key.1,
            true,
            true,
        );
        compare(&format!("{key:?} is locked"), &probe.is_err(), &state.is_locked(&key))?;
    }
    let names: Vec<String> = db
        .get_all_prepared_transactions()
        .iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    compare("prepared", &names, &state.prepared.keys().cloned().collect())?;
    for step in &life.steps {
        match step {
            Step::Write(changes) => {
                let mut batch = WriteBatch::new();
                for change in changes {
                    match change {
                        Change::Put((family, key), value) => batch.put_cf(&families[*family], key, value),
                        Change::Delete((family, key)) => batch.delete_cf(&families[*family], key),
                        Change::SingleDelete((family, key)) => {
                            batch.single_delete_cf(&families[*family], key)
                        }
                        Change::Merge((family, key), operand) => {
                            batch.merge_cf(&families[*family], key, operand)
                        }
                        Change::DeleteRange((family, begin), end) => {
                            batch.delete_range_cf(&families[*family], begin, end)
                        }
                        Change::LogData(data) => batch.put_log_data(data),
                    }
                    .map_err(error)?;
                }
                // Ranges cannot be locked, so batches with ranges are written without locks.
                let ranges = changes.iter().any(|change| matches!(change, Change::DeleteRange(..)));
                let write = WriteOptions::new();
                if ranges { db.db().write(&write, &batch) } else { db.write(&write, &batch) }
                    .map_err(error)?;
            }
            Step::Transaction(changes) => {
                karst_transaction(&db, &families, changes).and_then(|mut t| t.commit()).map_err(error)?;
            }
            Step::Prepare(name, changes) => {
                let mut transaction = karst_transaction(&db, &families, changes).map_err(error)?;
                transaction.set_name(name).and_then(|()| transaction.prepare()).map_err(error)?;
            }
            Step::Decide { name, commit } => {
                let mut transaction = db.get_transaction_by_name(name).map_err(error)?;
                if *commit { transaction.commit() } else { transaction.rollback() }.map_err(error)?;
            }
            Step::Flush => {
                let families: Vec<&ColumnFamily> = families.iter().collect();
                db.db().flush_cfs(&FlushOptions::default(), &families).map_err(error)?;
            }
        }
        state.take(step);
    }
    if life.killed {
        kill();
    }
    db.db().close().map_err(error)
}

fn quick() -> TransactionOptions {
    TransactionOptions { lock_timeout: 0, ..TransactionOptions::default() }
}

fn karst_transaction(
    db: &TransactionDb,
    families: &[ColumnFamily],
    changes: &Changes,
) -> karst_engine::Result<Transaction> {
    let mut transaction = db.begin(&WriteOptions::new(), &quick());
    for change in changes {
        match change {
            Change::Put((family, key), value) => transaction.put_cf(&families[*family], key, value)?,
            Change::Delete((family, key)) => transaction.delete_cf(&families[*family], key)?,
            Change::SingleDelete((family, key)) => transaction.single_delete_cf(&families[*family], key)?,
            Change::Merge((family, key), operand) => {
                transaction.merge_cf(&families[*family], key, operand)?
            }
            Change::DeleteRange(..) => unreachable!("ranges are in plain batches only"),
            Change::LogData(data) => transaction.put_log_data(data)?,
        }
    }
    Ok(transaction)
}

type RocksDb = rocksdb::TransactionDB;

/// Sets options that the binding has no call for. Plain batches take no locks, because RocksDB
/// cannot lock ranges, nor single deletions outside of the default family. Under WritePrepared,
/// rollbacks also undo merges, which RocksDB leaves in effect by default.
fn choose(options: &mut TransactionDBOptions, policy: WritePolicy) {
    const { assert!(size_of::<TransactionDBOptions>() == size_of::<usize>()) };
    // SAFETY: the binding's type holds only RocksDB's pointer, which its size confirms; the calls
    // change the object behind it, which `options` owns.
    unsafe {
        let options: *mut ffi::rocksdb_transactiondb_options_t = std::mem::transmute_copy(options);
        ffi::rocksdb_transactiondb_options_set_skip_concurrency_control(options, 1);
        if policy == WritePolicy::WritePrepared {
            let policy = ffi::rocksdb_txndb_write_policy_write_prepared;
            ffi::rocksdb_transactiondb_options_set_write_policy(options, policy as i32);
            ffi::rocksdb_transactiondb_options_set_rollback_merge_operands(options, 1);
        }
    }
}

/// Adds log data to a transaction; the binding has no call for it.
fn put_log_data(transaction: &rocksdb::Transaction<'_, RocksDb>, data: &str) {
    const { assert!(size_of::<rocksdb::Transaction<'_, RocksDb>>() == size_of::<usize>()) };
    // SAFETY: the binding's type holds only RocksDB's pointer, which its size confirms; RocksDB
    // copies the bytes.
    unsafe {
        let transaction: *mut ffi::rocksdb_transaction_t = std::mem::transmute_copy(transaction);
        ffi::rocksdb_transaction_put_log_data(transaction, data.as_ptr().cast(), data.len());
    }
}

fn rocksdb(path: &Path, seed: u64, life: &Life, mut state: State) -> Result<(), String> {
    let error = |e: rocksdb::Error| e.to_string();
    let mut transactions = TransactionDBOptions::new();
    transactions.set_default_lock_timeout(1);
    transactions.set_txn_lock_timeout(1);
    choose(&mut transactions, policy(seed));
    let descriptors = FAMILIES
        .iter()
        .map(|name| rocks::options(MERGE).map(|options| ColumnFamilyDescriptor::new(*name, options)))
        .collect::<Result<Vec<_>, String>>()?;
    let options = rocks::options(&db_options(seed))?;
    let db: RocksDb =
        RocksDb::open_cf_descriptors(&options, &transactions, path, descriptors).map_err(error)?;
    let family = |number: usize| db.cf_handle(FAMILIES[number]).expect("it was opened with the database");
    for key in keys() {
        let value = db.get_cf(family(key.0), &key.1).map_err(error)?;
        let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
        compare(&format!("{key:?}"), &value.as_ref(), &state.data.get(&key))?;
        // Locks are not checked, because RocksDB takes none for recovered transactions and expects
        // the application to decide these first.
    }
    let mut prepared: BTreeMap<String, rocksdb::Transaction<'_, RocksDb>> = BTreeMap::new();
    for transaction in db.prepared_transactions() {
        let name = transaction.get_name().ok_or("a prepared transaction without a name")?;
        prepared.insert(String::from_utf8_lossy(&name).into_owned(), transaction);
    }
    compare("prepared", &prepared.keys().collect::<Vec<_>>(), &state.prepared.keys().collect())?;
    let begin = |changes: &Changes| {
        let transaction = db.transaction();
        for change in changes {
            match change {
                Change::Put((number, key), value) => transaction.put_cf(family(*number), key, value)?,
                Change::Delete((number, key)) => transaction.delete_cf(family(*number), key)?,
                Change::SingleDelete((number, key)) => {
                    // The C API has no single deletion in a transaction, but can add the records of
                    // a batch.
                    let mut batch = rocksdb::WriteBatchWithTransaction::<true>::default();
                    batch.single_delete_cf(family(*number), key);
                    transaction.rebuild_from_writebatch(&batch)?;
                }
                Change::Merge((number, key), operand) => {
                    transaction.merge_cf(family(*number), key, operand)?
                }
                Change::DeleteRange(..) => unreachable!("ranges are in plain batches only"),
                Change::LogData(data) => put_log_data(&transaction, data),
            }
        }
        Ok::<_, rocksdb::Error>(transaction)
    };
    for step in &life.steps {
        match step {
            Step::Write(changes) => {
                // The binding has ranges only in batches for databases without transactions, which
                // have the same encoding.
                let mut batch = rocksdb::WriteBatchWithTransaction::<false>::default();
                for change in changes {
                    match change {
                        Change::Put((number, key), value) => batch.put_cf(family(*number), key, value),
                        Change::Delete((number, key)) => batch.delete_cf(family(*number), key),
                        Change::SingleDelete((number, key)) => batch.single_delete_cf(family(*number), key),
                        Change::Merge((number, key), operand) => {
                            batch.merge_cf(family(*number), key, operand);
                        }
                        Change::DeleteRange((number, begin), end) => {
                            batch.delete_range_cf(family(*number), begin, end);
                        }
                        Change::LogData(data) => batch.put_log_data(data),
                    }
                }
                let batch = rocksdb::WriteBatchWithTransaction::<true>::from_data(batch.data());
                db.write(batch).map_err(error)?;
            }
            Step::Transaction(changes) => begin(changes).and_then(|t| t.commit()).map_err(error)?,
            Step::Prepare(name, changes) => {
                let transaction = begin(changes).map_err(error)?;
                transaction.set_name(name.as_bytes()).map_err(error)?;
                transaction.prepare().map_err(error)?;
                prepared.insert(name.clone(), transaction);
            }
            Step::Decide { name, commit } => {
                let transaction = prepared.remove(name).ok_or("it is not prepared")?;
                if *commit { transaction.commit() } else { transaction.rollback() }.map_err(error)?;
            }
            Step::Flush => {
                for number in 0..FAMILIES.len() {
                    db.flush_cf(family(number)).map_err(error)?;
                }
            }
        }
        state.take(step);
    }
    if life.killed {
        kill();
    }
    Ok(())
}
