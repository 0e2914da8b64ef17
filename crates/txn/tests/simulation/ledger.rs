//! Users of a transaction database, and checks of the contents that they leave.
//!
//! A [`User`] has keys of its own and uses transactions in all ways: writes, prepares, commits and
//! rolls back, now or after the next opening, drops handles and retrieves them. It tracks
//! acknowledged and unfinished changes. The contents after a crash must match one or the other:
//! nothing lost, nothing half-applied, and nothing applied twice. To detect that, each write not
//! only puts and deletes, but also appends to a list, moves a value from one counter to another in
//! another family, so that the sum of all is zero, and puts a key that does not exist or deletes it
//! with a single deletion.

use crate::reading::{read, text};
use karst_engine::io::Env;
use karst_engine::{
    ColumnFamily, Db, DbOptions, ErrorKind, OptionSet, Options, ReadOptions, Result, WriteOptions,
};
use karst_testkit::random::Random;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState};
use std::collections::BTreeMap;

pub(crate) const PATH: &str = "/db";
/// Families with lists, and families with counters.
pub(crate) const FAMILIES: [&str; 4] = ["default", "second", "counts", "counted"];
/// Number of families with lists.
pub(crate) const LISTING: usize = 2;
/// Keys of one user in each family with lists, which are put, deleted and appended to.
const KEYS: usize = 8;
/// Keys of one user for put and single deletion, its lists, and its counters. Enough that some are
/// free beside any prepared transactions.
const OTHERS: usize = 4;

/// A key: number of the column family, and its bytes.
pub(crate) type Key = (usize, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(String),
    Delete,
    /// Removes a key that was put once.
    SingleDelete,
    /// Appends to a list, where a second application shows.
    Merge(String),
    /// Adds to a counter, where a second application shows.
    Add(i64),
}

/// Writes a change into a batch or a transaction.
macro_rules! write {
    ($to:expr, $family:expr, $key:expr, $change:expr) => {
        match $change {
            Change::Put(value) => $to.put_cf($family, $key, value)?,
            Change::Delete => $to.delete_cf($family, $key)?,
            Change::SingleDelete => $to.single_delete_cf($family, $key)?,
            Change::Merge(operand) => $to.merge_cf($family, $key, operand)?,
            Change::Add(count) => $to.merge_cf($family, $key, count.to_le_bytes())?,
        }
    };
}

/// Contents of a user's part of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) data: BTreeMap<Key, String>,
    /// Prepared transactions by name.
    pub(crate) prepared: BTreeMap<String, Vec<(Key, Change)>>,
}

impl State {
    fn apply(&mut self, changes: &[(Key, Change)]) {
        for (key, change) in changes {
            match change {
                Change::Put(value) => drop(self.data.insert(key.clone(), value.clone())),
                Change::Delete | Change::SingleDelete => drop(self.data.remove(key)),
                Change::Add(count) => {
                    let value = self.data.entry(key.clone()).or_default();
                    let before: i64 = if value.is_empty() { 0 } else { value.parse().expect("a counter") };
                    *value = (before + count).to_string();
                }
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

    /// Returns true if a user has keys of every kind that none of its transactions has locked. Each
    /// locks one counter, and prepares that failed but were written may have locked them all.
    pub(crate) fn has_free_keys(&self) -> bool {
        self.prepared.len() < OTHERS
    }

    fn locked(&self) -> Vec<&Key> {
        self.prepared.values().flatten().map(|(key, _)| key).collect()
    }
}

/// Acknowledged state, and the states that may exist instead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) certain: State,
    pub(crate) under_way: Option<State>,
    /// Earlier states, back to the last durable write, to which a loss of power may revert.
    pub(crate) unsynced: Vec<State>,
}

impl Known {
    fn begin(&mut self, change: impl FnOnce(&mut State)) {
        let mut after = self.certain.clone();
        change(&mut after);
        self.under_way = Some(after);
    }

    fn done(&mut self) {
        self.certain = self.under_way.take().expect("something was begun");
    }

    /// Completes the unfinished change; if `synced`, it is durable with everything before it.
    fn done_and(&mut self, synced: bool) {
        let before = self.certain.clone();
        self.done();
        match synced {
            true => self.unsynced.clear(),
            false => self.unsynced.push(before),
        }
    }

    /// Returns the changes of `name`, if it was prepared in any state that may be found.
    fn prepared(&self, name: &str) -> Option<&Vec<(Key, Change)>> {
        let states = [&self.certain].into_iter().chain(&self.under_way).chain(&self.unsynced);
        states.filter_map(|state| state.prepared.get(name)).next()
    }

    /// Discards the unfinished change, which did not happen.
    pub(crate) fn refused(&mut self) {
        self.under_way = None;
    }

    /// Checks that `found` is an allowed state, and takes it as certain.
    pub(crate) fn settle(&mut self, found: &State, when: &str) {
        let under_way = self.under_way.take();
        let unsynced = std::mem::take(&mut self.unsynced);
        assert!(
            *found == self.certain || Some(found) == under_way.as_ref() || unsynced.contains(found),
            "{when}: found {found:#?}\nbut acknowledged is {:#?}\nand under way {under_way:#?}\nand may be lost {unsynced:#?}",
            self.certain
        );
        self.certain = found.clone();
    }
}

pub(crate) fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;ttl=0;periodic_compaction_seconds=0;\
        write_buffer_size=20000;max_manifest_file_size=2000;merge_operator={id=StringAppendOperator;delimiter=,;}";
    let early = crate::early();
    let more = move |db: &mut DbOptions| (db.unordered_write, db.two_write_queues) = early;
    let options = Options::new().set_all(text).unwrap().db(more).env(env.clone());
    FAMILIES[LISTING..].iter().fold(options, |options, name| {
        options.column_family(*name, |cf| {
            cf.set("merge_operator", "uint64add").unwrap();
        })
    })
}

pub(crate) fn open(options: &Options) -> Result<TransactionDb> {
    let transactions = TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy: crate::policy(),
        ..TransactionDbOptions::default()
    };
    TransactionDb::open_cf(PATH, options, &transactions, &FAMILIES)
}

/// One user of the database.
pub(crate) struct User {
    number: usize,
    db: TransactionDb,
    families: Vec<ColumnFamily>,
    random: Random,
    /// Writes are synced; otherwise they survive a crash of the process only.
    sync: bool,
    /// Only some writes are synced.
    pub(crate) wavers: bool,
    /// Blocking forms of calls are used too. Not beside other users, because their tasks share the
    /// thread that such a call blocks.
    pub(crate) blocking: bool,
    next_name: u64,
    /// Number of the last appended name.
    appended: u64,
    /// Handles of prepared transactions that are kept.
    handles: BTreeMap<String, Transaction>,
}

/// Action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write,
    Transaction,
    Prepare,
    Commit,
    Rollback,
}

impl User {
    pub(crate) fn new(number: usize, db: &TransactionDb, sync: bool, random: Random) -> User {
        let families = FAMILIES.map(|name| db.db().column_family(name).expect("it is open")).to_vec();
        let life = random.clone().next_u64() % 1_000_000;
        User {
            number,
            db: db.clone(),
            families,
            random,
            sync,
            wavers: false,
            blocking: true,
            next_name: life,
            appended: 0,
            handles: BTreeMap::new(),
        }
    }

    fn options(&self) -> WriteOptions {
        if self.sync { WriteOptions::synced() } else { WriteOptions::new() }
    }

    /// Draws a step that is possible now.
    pub(crate) fn draw(&mut self, known: &Known) -> Step {
        let prepared = known.certain.prepared.len();
        if !known.certain.has_free_keys() {
            return if self.random.one_in(3) { Step::Rollback } else { Step::Commit };
        }
        match self.random.below(8) {
            0 => Step::Write,
            1 | 2 => Step::Transaction,
            3 | 4 if prepared > 0 => Step::Commit,
            5 if prepared > 0 => Step::Rollback,
            // At most this many, so that some keys stay free.
            _ if prepared < 1 + LISTING => Step::Prepare,
            _ => Step::Commit,
        }
    }

    /// Returns the user's keys of one kind.
    fn of_kind(&self, kind: char, count: usize, families: std::ops::Range<usize>) -> Vec<Key> {
        let of = |key| families.clone().map(move |family| (family, key));
        let all = (0..count).flat_map(of);
        all.map(|(family, key)| (family, format!("u{}{kind}{key}", self.number))).collect()
    }

    /// Returns all of the user's keys in a family.
    fn keys(&self, family: usize) -> Vec<Key> {
        let lists = [('k', KEYS), ('s', OTHERS), ('l', OTHERS)];
        let kinds = if family < LISTING { &lists[..] } else { &[('c', OTHERS)] };
        kinds.iter().flat_map(|(kind, count)| self.of_kind(*kind, *count, family..family + 1)).collect()
    }

    /// Draws changes of keys that no prepared transaction has locked; some must be free.
    fn changes(&mut self, state: &State) -> Vec<(Key, Change)> {
        let locked = state.locked();
        let free =
            |keys: Vec<Key>| -> Vec<Key> { keys.into_iter().filter(|key| !locked.contains(&key)).collect() };
        let mut plain = free(self.of_kind('k', KEYS, 0..LISTING));
        let singles = free(self.of_kind('s', OTHERS, 0..LISTING));
        let lists = free(self.of_kind('l', OTHERS, 0..LISTING));
        let counters = free(self.of_kind('c', OTHERS, LISTING..LISTING + 1));
        let mut changes = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            if plain.is_empty() {
                break;
            }
            let key = plain.swap_remove(self.random.index(plain.len()));
            let text = format!("{}{}", self.random.below(1000), "x".repeat(self.random.index(400)));
            let change = match self.random.below(4) {
                0 => Change::Merge(text),
                1 if state.data.contains_key(&key) => Change::Delete,
                _ => Change::Put(text),
            };
            changes.push((key, change));
        }
        let key = singles[self.random.index(singles.len())].clone();
        let change = match state.data.contains_key(&key) {
            true => Change::SingleDelete,
            false => Change::Put(self.random.below(1000).to_string()),
        };
        changes.push((key, change));
        self.appended += 1;
        let list = lists[self.random.index(lists.len())].clone();
        changes.push((list, Change::Merge(self.appended.to_string())));
        let (family, key) = counters[self.random.index(counters.len())].clone();
        let count = 1 + self.random.below(9) as i64;
        changes.push(((family, key.clone()), Change::Add(count)));
        changes.push(((family + 1, key), Change::Add(-count)));
        changes
    }

    /// Performs one step and updates `known`, after success and failure alike. Returns the step's
    /// error.
    pub(crate) async fn step(&mut self, step: Step, known: &std::sync::Mutex<Known>) -> Result<()> {
        let state = known.lock().unwrap().certain.clone();
        if self.wavers {
            self.sync = self.random.one_in(4);
        }
        let name = |random: &mut Random| {
            state.prepared.keys().nth(random.index(state.prepared.len())).expect("one is prepared").clone()
        };
        match step {
            Step::Write => {
                let changes = self.changes(&state);
                known.lock().unwrap().begin(|state| state.apply(&changes));
                let mut batch = karst_engine::WriteBatch::new();
                for ((family, key), change) in &changes {
                    write!(batch, &self.families[*family], key, change);
                }
                self.db.write_async(&self.options(), batch).await?;
            }
            Step::Transaction => {
                let changes = self.changes(&state);
                let mut transaction = self.begin(&changes)?;
                known.lock().unwrap().begin(|state| state.apply(&changes));
                transaction.commit_async().await?;
            }
            Step::Prepare => {
                let changes = self.changes(&state);
                let mut transaction = self.begin(&changes)?;
                let name = format!("user {} {}", self.number, self.next_name);
                self.next_name += 1;
                transaction.set_name(&name)?;
                known.lock().unwrap().begin(|state| drop(state.prepared.insert(name.clone(), changes)));
                let prepared = match self.random.one_in(2) || !self.blocking {
                    true => transaction.prepare_async().await,
                    false => transaction.prepare(),
                };
                if let Err(error) = prepared {
                    assert_eq!(transaction.state(), Some(TransactionState::Started), "{error}");
                    return Err(error);
                }
                if self.random.one_in(2) {
                    self.handles.insert(name, transaction);
                }
            }
            Step::Commit | Step::Rollback => {
                let name = name(&mut self.random);
                let mut transaction = match self.handles.remove(&name) {
                    Some(transaction) => transaction,
                    None => self.db.get_transaction_by_name(&name)?,
                };
                known.lock().unwrap().begin(|state| {
                    let changes = state.prepared.remove(&name).expect("it is prepared");
                    if step == Step::Commit {
                        state.apply(&changes);
                    }
                });
                let outcome = match (step, self.random.one_in(2) || !self.blocking) {
                    (Step::Commit, true) => transaction.commit_async().await,
                    (Step::Commit, false) => transaction.commit(),
                    (_, true) => transaction.rollback_async().await,
                    (_, false) => transaction.rollback(),
                };
                if let Err(error) = outcome {
                    assert_eq!(transaction.state(), Some(TransactionState::Prepared), "{error}");
                    return Err(error);
                }
            }
        }
        match self.wavers {
            // Not for decisions, because the options of the handle, set when it began, apply to
            // them.
            true => {
                known.lock().unwrap().done_and(self.sync && !matches!(step, Step::Commit | Step::Rollback))
            }
            false => known.lock().unwrap().done(),
        }
        Ok(())
    }

    /// Begins a transaction with these changes.
    fn begin(&self, changes: &[(Key, Change)]) -> Result<Transaction> {
        let mut transaction = self.db.begin(&self.options(), &TransactionOptions::default());
        for ((family, key), change) in changes {
            write!(transaction, &self.families[*family], key, change);
        }
        Ok(transaction)
    }

    /// Drops all handles.
    pub(crate) fn let_go(&mut self) {
        self.handles.clear();
    }

    /// Reads the user's keys in all forms of reads, and checks the sum of its counters.
    pub(crate) async fn read(&self, options: &ReadOptions) -> Result<BTreeMap<Key, String>> {
        self.read_from(self.db.db(), options).await
    }

    /// Reads the user's keys from another instance of the database.
    pub(crate) async fn read_from(&self, db: &Db, options: &ReadOptions) -> Result<BTreeMap<Key, String>> {
        let mut found = BTreeMap::new();
        for (family, name) in FAMILIES.iter().enumerate() {
            let handle = &db.column_family(name).expect("it is open");
            let keys: Vec<String> = self.keys(family).into_iter().map(|(_, key)| key).collect();
            let entries = read(db, options, (family, handle), &format!("u{}", self.number), &keys).await?;
            found.extend(entries.into_iter().map(|(key, value)| ((family, key), value)));
        }
        let counters = found.iter().filter(|((family, _), _)| *family >= LISTING);
        let sum: i64 = counters.map(|(_, count)| count.parse::<i64>().expect("a counter")).sum();
        assert_eq!(sum, 0, "what one family has the other has not: {found:#?}");
        Ok(found)
    }

    /// Reads this user's part of the database: its keys, as readers see them, and its prepared
    /// transactions, with their changes and locks.
    pub(crate) async fn find(&mut self, known: &Known) -> Result<State> {
        self.let_go();
        let read = ReadOptions::new();
        let mut found = State { data: self.read(&read).await?, ..State::default() };
        let own = format!("user {} ", self.number);
        for name in self.db.get_all_prepared_transactions() {
            let name = String::from_utf8(name).unwrap();
            if !name.starts_with(&own) {
                continue;
            }
            // Its changes are those of the prepare, if it shows their results.
            let changes = known.prepared(&name);
            let changes =
                changes.unwrap_or_else(|| panic!("{name} is not one that may be prepared: {known:#?}"));
            let transaction = self.db.get_transaction_by_name(&name)?;
            let mut after = found.clone();
            after.apply(changes);
            for ((family, key), _) in changes {
                let seen = transaction.get_cf_async(&read, &self.families[*family], key.as_bytes()).await?;
                let seen = seen.map(|value| text(*family, &value));
                assert_eq!(seen.as_ref(), after.data.get(&(*family, key.clone())), "{name} writes {key}");
            }
            found.prepared.insert(name, changes.clone());
        }
        Ok(found)
    }

    /// Checks that every key of a prepared transaction is locked, and no other.
    pub(crate) async fn check_locks(&self, state: &State) {
        let locked = state.locked();
        for (family, handle) in self.families.iter().enumerate() {
            for key in self.keys(family) {
                let mut probe = self.db.begin(&WriteOptions::new(), &TransactionOptions::default());
                let got = probe
                    .get_for_update_cf_async(&ReadOptions::new(), handle, key.1.as_bytes(), true, true)
                    .await;
                let refused = got.err().map(|error| error.kind());
                let expected = locked.contains(&&key).then_some(ErrorKind::TimedOut);
                assert_eq!(refused, expected, "{key:?}, prepared are {:?}", state.prepared);
            }
        }
    }
}

/// Checks that all locks belong to prepared transactions.
pub(crate) fn check_lock_count(db: &TransactionDb, states: &[&State]) {
    let expected: usize = states.iter().map(|state| state.locked().len()).sum();
    assert_eq!(db.lock_status().len(), expected, "{:?}", db.lock_status());
}
