//! Two-phase commit across both engines: one prepares transactions and is killed, the other recovers them from its log, lists them, keeps their keys locked (KarstDB; RocksDB does not), and commits or rolls them back; in turns.
//!
//! Under both write policies, each in half of the histories.
//!
//! A history is drawn from a seed: lives, by KarstDB and RocksDB 11.8 in turns, each with writes, transactions that are prepared, committed or rolled back, and flushes. Each life is a process of its own, which first
//! looks whether it finds what the lives before have left, and ends by killing itself (`SIGKILL`) or in order. As everything it needs to know follows from the seed, nothing but the database passes between them.

use crate::rocks;
use karst_engine::{ColumnFamily, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use librocksdb_sys as ffi;
use rocksdb::{ColumnFamilyDescriptor, TransactionDBOptions};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const FAMILIES: [&str; 2] = ["default", "second"];
const KEYS: u64 = 12;
const LIVES: usize = 8;
const SEEDS: u64 = 48;
const DB_OPTIONS: &str =
    "create_if_missing=true;create_missing_column_families=true;write_buffer_size=65536;";
const MERGE: &str = "merge_operator={id=StringAppendOperator;delimiter=,;};";

type Key = (usize, String);
type Changes = Vec<(Key, Change)>;

#[derive(Clone, Debug)]
enum Change {
    Put(String),
    Delete,
    Merge(String),
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

/// What one process does.
#[derive(Clone, Debug)]
struct Life {
    engine: Engine,
    steps: Vec<Step>,
    killed: bool,
}

/// What the database holds.
#[derive(Clone, Debug, Default)]
struct State {
    data: BTreeMap<Key, String>,
    prepared: BTreeMap<String, Changes>,
}

impl State {
    fn apply(&mut self, changes: &Changes) {
        for (key, change) in changes {
            match change {
                Change::Put(value) => drop(self.data.insert(key.clone(), value.clone())),
                Change::Delete => drop(self.data.remove(key)),
                Change::Merge(operand) => {
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
                }
            }
            Step::Flush => {}
        }
    }

    fn is_locked(&self, key: &Key) -> bool {
        self.prepared.values().flatten().any(|(locked, _)| locked == key)
    }
}

/// The policy of a history.
fn policy(seed: u64) -> WritePolicy {
    // Why not by the lowest bit: that says which engine begins.
    if seed / 2 % 2 == 0 { WritePolicy::WriteCommitted } else { WritePolicy::WritePrepared }
}

/// The options of the database in a history.
fn db_options(seed: u64) -> String {
    let queues = match (seed / 4 % 2, policy(seed)) {
        (0, _) => "",
        // What RocksDB's tool chooses for unordered writes through such a database; without two queues, or with the other policy, RocksDB refuses them.
        (_, WritePolicy::WritePrepared) => "unordered_write=true;two_write_queues=true;",
        (_, _) => "two_write_queues=true;",
    };
    format!("{DB_OPTIONS}{queues}")
}

fn keys() -> impl Iterator<Item = Key> {
    (0..FAMILIES.len()).flat_map(|family| (0..KEYS).map(move |key| (family, format!("key{key:02}"))))
}

/// The life of this number, and what it finds.
fn life(seed: u64, number: usize) -> (Life, State) {
    let (mut random, mut state) = (Random::new(seed), State::default());
    let mut names = 0;
    for at in 0.. {
        let engine = if (seed as usize + at) % 2 == 0 { Engine::KarstDb } else { Engine::RocksDb };
        let before = state.clone();
        let mut steps = Vec::new();
        for _ in 0..4 + random.below(12) {
            let step = draw(&mut random, &state, &mut names);
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

fn draw(random: &mut Random, state: &State, names: &mut u64) -> Step {
    let prepared = state.prepared.len();
    match random.below(10) {
        0 => Step::Flush,
        1 => Step::Write(changes(random, state)),
        2 => Step::Transaction(changes(random, state)),
        3..6 if prepared > 0 => {
            let name = state.prepared.keys().nth(random.index(prepared)).expect("there is one").clone();
            Step::Decide { name, commit: !random.one_in(3) }
        }
        _ if prepared < 4 => {
            *names += 1;
            Step::Prepare(format!("transaction {names}"), changes(random, state))
        }
        _ => Step::Flush,
    }
}

fn changes(random: &mut Random, state: &State) -> Changes {
    let mut free: Vec<Key> = keys().filter(|key| !state.is_locked(key)).collect();
    let mut changes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let key = free.swap_remove(random.index(free.len()));
        let text = format!("{}{}", random.below(1000), "v".repeat(random.index(200)));
        changes.push((
            key,
            match random.below(4) {
                0 => Change::Delete,
                1 => Change::Merge(text),
                _ => Change::Put(text),
            },
        ));
    }
    changes
}

/// All histories, in a temporary folder.
pub(crate) fn run() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("karst-judge-prepared-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let (mut recovered, mut decided, mut killed) = (0, 0, 0);
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
            // From the other engine, as they take turns.
            recovered += before.prepared.len();
            let name_of = |step: &Step| match step {
                Step::Decide { name, .. } => Some(name.clone()),
                _ => None,
            };
            decided += life
                .steps
                .iter()
                .filter_map(name_of)
                .filter(|name| before.prepared.contains_key(name))
                .count();
            killed += usize::from(life.killed);
        }
    }
    println!(
        "prepared transactions: {} lives of both engines in turns, {killed} killed; {recovered} recovered from the other's log, {decided} of them decided",
        SEEDS as usize * LIVES
    );
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// One life, in a process of its own. Returns only if it is not to be killed.
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
    // SAFETY: it ends this process, whatever state it is in.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("nothing outlives SIGKILL")
}

/// What was found is what was left.
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
                for ((family, key), change) in changes {
                    let family = &families[*family];
                    match change {
                        Change::Put(value) => batch.put_cf(family, key, value),
                        Change::Delete => batch.delete_cf(family, key),
                        Change::Merge(operand) => batch.merge_cf(family, key, operand),
                    }
                    .map_err(error)?;
                }
                db.write(&WriteOptions::new(), &batch).map_err(error)?;
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
    for ((family, key), change) in changes {
        let family = &families[*family];
        match change {
            Change::Put(value) => transaction.put_cf(family, key, value)?,
            Change::Delete => transaction.delete_cf(family, key)?,
            Change::Merge(operand) => transaction.merge_cf(family, key, operand)?,
        }
    }
    Ok(transaction)
}

type RocksDb = rocksdb::TransactionDB;

/// Chooses the policy WritePrepared, for which the binding has no call; and that rollbacks take back merges as well, which RocksDB leaves in effect otherwise.
fn write_prepared(options: &mut TransactionDBOptions) {
    const { assert!(size_of::<TransactionDBOptions>() == size_of::<usize>()) };
    // SAFETY: the binding's type holds RocksDB's pointer and nothing else, as its size says; the calls change what is pointed to, which `options` owns.
    unsafe {
        let options: *mut ffi::rocksdb_transactiondb_options_t = std::mem::transmute_copy(options);
        let policy = ffi::rocksdb_txndb_write_policy_write_prepared;
        ffi::rocksdb_transactiondb_options_set_write_policy(options, policy as i32);
        ffi::rocksdb_transactiondb_options_set_rollback_merge_operands(options, 1);
    }
}

fn rocksdb(path: &Path, seed: u64, life: &Life, mut state: State) -> Result<(), String> {
    let error = |e: rocksdb::Error| e.to_string();
    let mut transactions = TransactionDBOptions::new();
    transactions.set_default_lock_timeout(1);
    transactions.set_txn_lock_timeout(1);
    if policy(seed) == WritePolicy::WritePrepared {
        write_prepared(&mut transactions);
    }
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
        // Why no look at locks: RocksDB takes none for what it recovers, and leaves it to the application to decide that first. In what it prepares itself it does.
    }
    let mut prepared: BTreeMap<String, rocksdb::Transaction<'_, RocksDb>> = BTreeMap::new();
    for transaction in db.prepared_transactions() {
        let name = transaction.get_name().ok_or("a prepared transaction without a name")?;
        prepared.insert(String::from_utf8_lossy(&name).into_owned(), transaction);
    }
    compare("prepared", &prepared.keys().collect::<Vec<_>>(), &state.prepared.keys().collect())?;
    let begin = |changes: &Changes| {
        let transaction = db.transaction();
        for ((number, key), change) in changes {
            match change {
                Change::Put(value) => transaction.put_cf(family(*number), key, value)?,
                Change::Delete => transaction.delete_cf(family(*number), key)?,
                Change::Merge(operand) => transaction.merge_cf(family(*number), key, operand)?,
            }
        }
        Ok::<_, rocksdb::Error>(transaction)
    };
    for step in &life.steps {
        match step {
            Step::Write(changes) => {
                let mut batch = rocksdb::WriteBatchWithTransaction::<true>::default();
                for ((number, key), change) in changes {
                    match change {
                        Change::Put(value) => batch.put_cf(family(*number), key, value),
                        Change::Delete => batch.delete_cf(family(*number), key),
                        Change::Merge(operand) => batch.merge_cf(family(*number), key, operand),
                    }
                }
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
