//! Checks every read against the order of commits: `get`, `multi_get`, snapshots and iterators in
//! both directions, blocking, as futures and in a reactor's tasks, while writers write batches over
//! several column families at full speed and memtables are flushed and compacted; without
//! transactions, and with all kinds of them, through which is then also read.
//! `karst_testkit::commit_order` documents the checks.
//!
//! The default run takes some seconds. The long one checks at least 10^8 keys, spread over the
//! modes, in some minutes:
//! `KARST_LONG_TESTS=1 cargo test --release -p karst-txn --test commit_order -- --nocapture`;
//! `KARST_CHECKED_KEYS` sets another number.
//!
//! `commit/src/pipeline/tests/broken.rs` tests that the checker detects faults.

use karst_engine::io::{Env, Reactor, block_on, sleep, yield_now};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, ErrorKind, FlushOptions, OptionSet,
    Options, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use karst_testkit::asked::{long, number, seed};
use karst_testkit::commit_order::{
    CommitOrder, Durability, FAMILIES, GROUPS, Key, OPERATORS, Part, SHARED, Store, Value, key, never_seen,
};
use karst_testkit::random::Random;
use karst_txn::{
    BatchDbIterator, OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions,
    WritePolicy,
};
use pollster::block_on as foreign_block_on;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Form of the calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Blocking,
    Async,
    /// Asynchronous calls in a task that shares its thread with others.
    Reactor,
}

/// The database, by its kind of transactions.
#[derive(Clone)]
enum Database {
    Plain(Db),
    Optimistic(OptimisticTransactionDb),
    Locking(TransactionDb),
}

#[derive(Clone)]
struct Calls {
    database: Database,
    families: Vec<ColumnFamily>,
    form: Form,
    counts: Arc<Counts>,
}

/// Number of times each case occurred, to check that every case was exercised.
#[derive(Debug, Default)]
struct Counts {
    /// Number of prepares; also numbers the names.
    prepares: AtomicU64,
    commits: AtomicU64,
    rollbacks: AtomicU64,
    conflicts: AtomicU64,
    /// Plain writes that ask for locks.
    locked_writes: AtomicU64,
    reads_in_transactions: AtomicU64,
}

impl Counts {
    fn met(&self) -> [(&'static str, u64); 6] {
        let Self { prepares, commits, rollbacks, conflicts, locked_writes, reads_in_transactions } = self;
        let all = [
            ("prepares", prepares),
            ("commits", commits),
            ("rollbacks", rollbacks),
            ("conflicts", conflicts),
            ("locked writes", locked_writes),
            ("reads in transactions", reads_in_transactions),
        ];
        all.map(|(what, count)| (what, count.load(Ordering::Relaxed)))
    }

    /// Checks that all cases but `unmet` occurred, and that those did not.
    fn check(&self, unmet: &[&str]) {
        assert!(self.met().iter().all(|(what, count)| (*count > 0) != unmet.contains(what)), "{self:?}");
    }
}

/// Returns true with a chance of one in `times`.
fn one_in(times: u64) -> bool {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static CHANCE: RefCell<Random> = RefCell::new(Random::new(seed() + THREADS.fetch_add(1, Ordering::Relaxed)));
    }
    CHANCE.with_borrow_mut(|chance| chance.one_in(times))
}

/// A transaction of either kind, with calls of one form.
enum Through<'a> {
    Optimistic(&'a Calls, Box<OptimisticTransaction>),
    Locking(&'a Calls, Transaction),
}

/// Calls a method of a transaction in the form of its calls.
macro_rules! call {
    ($transaction:expr, $calls:expr, $plain:ident, $asynchronous:ident ($($argument:expr),*)) => {
        match $calls.form {
            Form::Blocking => $transaction.$plain($($argument),*),
            Form::Async | Form::Reactor => $transaction.$asynchronous($($argument),*).await,
        }
    };
}

impl Through<'_> {
    async fn put(&mut self, family: usize, key: &Key, value: &[u8]) {
        match self {
            Through::Optimistic(calls, one) => one.put_cf(&calls.families[family], key, value),
            Through::Locking(calls, one) => {
                call!(one, calls, put_cf, put_cf_async(&calls.families[family], key, value))
            }
        }
        .unwrap();
    }

    async fn merge(&mut self, family: usize, key: &Key, operand: &[u8]) {
        match self {
            Through::Optimistic(calls, one) => one.merge_cf(&calls.families[family], key, operand),
            Through::Locking(calls, one) => {
                call!(one, calls, merge_cf, merge_cf_async(&calls.families[family], key, operand))
            }
        }
        .unwrap();
    }

    async fn single_delete(&mut self, family: usize, key: &Key) {
        match self {
            Through::Optimistic(calls, one) => one.single_delete_cf(&calls.families[family], key),
            Through::Locking(calls, one) => {
                call!(one, calls, single_delete_cf, single_delete_cf_async(&calls.families[family], key))
            }
        }
        .unwrap();
    }

    async fn get(&self, options: &ReadOptions, family: usize, key: &Key) -> Option<Value> {
        match self {
            Through::Optimistic(calls, one) => {
                call!(one, calls, get_cf, get_cf_async(options, &calls.families[family], key))
            }
            Through::Locking(calls, one) => {
                call!(one, calls, get_cf, get_cf_async(options, &calls.families[family], key))
            }
        }
        .unwrap()
        .map(|value| value.to_vec())
    }

    async fn multi_get(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[&Key],
    ) -> Vec<Option<Value>> {
        let found = match self {
            Through::Optimistic(calls, one) => {
                call!(one, calls, multi_get_cfs, multi_get_cfs_async(options, families, keys))
            }
            Through::Locking(calls, one) => {
                call!(one, calls, multi_get_cfs, multi_get_cfs_async(options, families, keys))
            }
        };
        found.into_iter().map(|value| value.unwrap().map(|value| value.to_vec())).collect()
    }

    async fn multi_get_of(&self, options: &ReadOptions, family: usize, keys: &[Key]) -> Vec<Option<Value>> {
        let found = match self {
            Through::Optimistic(calls, one) => {
                call!(one, calls, multi_get_cf, multi_get_cf_async(options, &calls.families[family], keys))
            }
            Through::Locking(calls, one) => {
                call!(one, calls, multi_get_cf, multi_get_cf_async(options, &calls.families[family], keys))
            }
        };
        found.into_iter().map(|value| value.unwrap().map(|value| value.to_vec())).collect()
    }

    fn iter(&self, options: &ReadOptions, family: usize) -> BatchDbIterator {
        match self {
            Through::Optimistic(calls, one) => one.iter_cf(options, &calls.families[family]),
            Through::Locking(calls, one) => one.iter_cf(options, &calls.families[family]),
        }
        .unwrap()
    }
}

impl Calls {
    fn db(&self) -> &Db {
        match &self.database {
            Database::Plain(db) => db,
            Database::Optimistic(db) => db.db(),
            Database::Locking(db) => db.db(),
        }
    }

    /// Begins a transaction, if the database has any.
    fn begin(&self, options: &WriteOptions) -> Option<Through<'_>> {
        match &self.database {
            Database::Plain(_) => None,
            Database::Optimistic(db) => {
                let one = db.begin(options, &OptimisticTransactionOptions::default());
                Some(Through::Optimistic(self, one.into()))
            }
            Database::Locking(db) => {
                Some(Through::Locking(self, db.begin(options, &TransactionOptions::default())))
            }
        }
    }

    /// Writes a batch by a transaction, or rolls it back. Returns true if it was written, false if
    /// it was refused; `None` if it must still be written.
    async fn write_by_transaction(&self, options: &WriteOptions, batch: &[Part]) -> Option<bool> {
        let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        let mut transaction = self.begin(options)?;
        if one_in(4)
            && let Through::Optimistic(_, one) = &mut transaction
        {
            // Conflicts, because other writers change these keys all the time.
            let (read, family) = (ReadOptions::new(), &self.families[0]);
            for other in (0..GROUPS).step_by(4).map(|group| key(group, 0)) {
                call!(one, self, get_for_update_cf, get_for_update_cf_async(&read, family, &other)).unwrap();
            }
        }
        let commits = !one_in(8);
        for part in batch {
            match part {
                Part::Put { family, key, value } if commits => transaction.put(*family, key, value).await,
                Part::Put { family, key, value } => transaction.put(*family, key, &never_seen(value)).await,
                Part::Merge { family, key, operand } => transaction.merge(*family, key, operand).await,
                Part::SingleDelete { family, key } => transaction.single_delete(*family, key).await,
                Part::Clear { .. } => return None,
            }
        }
        match transaction {
            Through::Optimistic(_, mut one) if !commits => one.rollback().unwrap(),
            Through::Optimistic(_, mut one) => {
                match call!(one, self, commit, commit_async()) {
                    Ok(()) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                        count(&self.counts.conflicts);
                        return Some(false);
                    }
                };
            }
            Through::Locking(_, mut one) => {
                if !one_in(4) {
                    let number = count(&self.counts.prepares);
                    one.set_name(number.to_le_bytes()).unwrap();
                    call!(one, self, prepare, prepare_async()).unwrap();
                }
                match commits {
                    true => call!(one, self, commit, commit_async()).unwrap(),
                    false => call!(one, self, rollback, rollback_async()).unwrap(),
                }
            }
        }
        count(if commits { &self.counts.commits } else { &self.counts.rollbacks });
        commits.then_some(true)
    }

    /// Returns, sometimes, a transaction to read through that has a write of its own.
    async fn reading(&self) -> Option<Through<'_>> {
        if !one_in(4) {
            return None;
        }
        let mut transaction = self.begin(&WriteOptions::new())?;
        let number = self.counts.reads_in_transactions.fetch_add(1, Ordering::Relaxed);
        // Behind all keys, where no other transaction writes.
        transaction
            .put(number as usize % FAMILIES, &key(GROUPS + 1 + number as usize, 0), &Value::default())
            .await;
        Some(transaction)
    }
}

fn options_at(at: Option<&Snapshot>) -> ReadOptions {
    ReadOptions { snapshot: at.cloned(), ..ReadOptions::new() }
}

/// Collects the entries of an iterator of either kind.
macro_rules! scan {
    ($iter:ident, $calls:expr, $from:expr, $entries:expr, $backward:expr) => {{
        let mut found: Vec<(Key, Value)> = Vec::new();
        match $backward {
            false => call!($iter, $calls, seek, seek_async($from)),
            true => call!($iter, $calls, seek_for_prev, seek_for_prev_async($from)),
        }
        .unwrap();
        while $iter.valid() {
            if one_in(300) {
                // The iterator's view stays the same while others write and flush.
                $calls.pause(Duration::from_micros(500)).await;
            }
            found.push(($iter.key().try_into().expect("a key of ours"), $iter.value().to_vec()));
            if found.len() == $entries {
                break;
            }
            match $backward {
                false => call!($iter, $calls, next, next_async()),
                true => call!($iter, $calls, prev, prev_async()),
            }
            .unwrap();
        }
        found
    }};
}

impl Store for Calls {
    type Snapshot = Snapshot;

    async fn write(&self, durability: Durability, batch: &[Part]) -> bool {
        let mut writes = WriteBatch::new();
        for part in batch {
            match part {
                Part::Put { family, key, value } => {
                    writes.put_cf(&self.families[*family], key, value).unwrap()
                }
                Part::Merge { family, key, operand } => {
                    writes.merge_cf(&self.families[*family], key, operand).unwrap()
                }
                Part::SingleDelete { family, key } => {
                    writes.single_delete_cf(&self.families[*family], key).unwrap()
                }
                Part::Clear { family, group } => {
                    let (begin, end) = (key(*group, 0), key(*group + 1, 0));
                    writes.delete_range_cf(&self.families[*family], begin, end).unwrap();
                }
            }
        }
        let options = match durability {
            Durability::Unlogged => WriteOptions::unlogged(),
            Durability::Logged => WriteOptions::new(),
            Durability::Synced => WriteOptions::synced(),
        };
        // Not with a range, because ranges cannot be locked.
        let can_be_locked = !batch.iter().any(|part| matches!(part, Part::Clear { .. }));
        // A rolled back transaction restores the value that it read under the lock.
        let must_be_locked = matches!(self.database, Database::Locking(_))
            && batch.iter().any(|part| matches!(part, Part::Merge { key, .. } if *key == SHARED));
        while can_be_locked && (must_be_locked || !one_in(5)) {
            if let Some(is_written) = self.write_by_transaction(&options, batch).await {
                return is_written;
            }
            if !must_be_locked {
                break;
            }
        }
        if let Database::Locking(db) = &self.database
            && can_be_locked
            && one_in(2)
        {
            self.counts.locked_writes.fetch_add(1, Ordering::Relaxed);
            match self.form {
                Form::Blocking => db.write(&options, &writes).unwrap(),
                Form::Async | Form::Reactor => db.write_async(&options, writes).await.unwrap(),
            }
            return true;
        }
        match self.form {
            Form::Blocking => self.db().write(&options, &writes).unwrap(),
            Form::Async | Form::Reactor => self.db().write_async(&options, &writes).await.unwrap(),
        }
        true
    }

    async fn get(&self, at: Option<&Snapshot>, family: usize, key: &Key) -> Option<Value> {
        let options = options_at(at);
        if let Some(transaction) = self.reading().await {
            return transaction.get(&options, family, key).await;
        }
        let family = &self.families[family];
        let found = match self.form {
            Form::Blocking => self.db().get_cf(&options, family, key),
            Form::Async | Form::Reactor => self.db().get_cf_async(&options, family, key).await,
        };
        found.unwrap().map(|value| value.to_vec())
    }

    async fn multi_get(&self, at: Option<&Snapshot>, keys: &[(usize, Key)]) -> Vec<Option<Value>> {
        let options = options_at(at);
        let families: Vec<&ColumnFamily> = keys.iter().map(|(family, _)| &self.families[*family]).collect();
        let keys_alone: Vec<&Key> = keys.iter().map(|(_, key)| key).collect();
        if let Some(transaction) = self.reading().await {
            if one_in(2) {
                return transaction.multi_get(&options, &families, &keys_alone).await;
            }
            // Family by family, but at one snapshot.
            let snapshot = at.cloned().unwrap_or_else(|| self.snapshot());
            let mut found = vec![None; keys.len()];
            for family in 0..FAMILIES {
                let of_family = || keys.iter().enumerate().filter(|(_, (of, _))| *of == family);
                let some: Vec<Key> = of_family().map(|(_, (_, key))| *key).collect();
                let values = transaction.multi_get_of(&options_at(Some(&snapshot)), family, &some).await;
                of_family().zip(values).for_each(|((at, _), value)| found[at] = value);
            }
            return found;
        }
        let found = match self.form {
            Form::Blocking => self.db().multi_get_cfs(&options, &families, &keys_alone),
            Form::Async | Form::Reactor => {
                self.db().multi_get_cfs_async(&options, &families, &keys_alone).await
            }
        };
        found.into_iter().map(|value| value.unwrap().map(|value| value.to_vec())).collect()
    }

    async fn scan(
        &self,
        at: Option<&Snapshot>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)> {
        let options = options_at(at);
        match self.reading().await {
            Some(transaction) => {
                let mut iter = transaction.iter(&options, family);
                let mut found = scan!(iter, self, from, entries, backward);
                // Without the transaction's own writes.
                found.retain(|(found, _)| *found <= SHARED);
                found
            }
            None => {
                let family = &self.families[family];
                let mut iter = self.db().iter_cf(&options, family).unwrap();
                if one_in(8) {
                    self.db().refresh(&mut iter, family, at).unwrap();
                }
                scan!(iter, self, from, entries, backward)
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.db().snapshot()
    }

    async fn pause(&self, span: Duration) {
        match self.form {
            Form::Reactor if span.is_zero() => yield_now().await,
            Form::Blocking if !span.is_zero() => std::thread::sleep(span),
            Form::Async | Form::Reactor if !span.is_zero() => sleep(self.db().env(), span).await,
            _ => {}
        }
    }
}

/// Returns the number of keys to check, over all modes.
fn keys_to_check() -> u64 {
    number("KARST_CHECKED_KEYS").unwrap_or(if long() { 100_000_000 } else { 1_000_000 })
}

/// Kind of transactions beside the plain writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Transactions {
    #[default]
    Nobody,
    Optimistic,
    Locking(WritePolicy),
}

/// Options with which the database is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mode {
    unordered_write: bool,
    two_write_queues: bool,
    transactions: Transactions,
    /// For batches that are written through the transaction database.
    skip_concurrency_control: bool,
}

fn open(path: &std::path::Path, mode: Mode, counts: &Arc<Counts>) -> Calls {
    let mut options = Options::new()
        .env(Env::posix())
        .db(move |db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
            db.unordered_write = mode.unordered_write;
            db.two_write_queues = mode.two_write_queues;
        })
        .column_families(|cf| {
            cf.write_buffer_size = 1 << 20;
            cf.max_write_buffer_number = 6;
        });
    let families = ["default", "other", "lists"];
    for (name, operator) in families.iter().zip(OPERATORS) {
        options = options.column_family(*name, |cf| {
            cf.set("merge_operator", operator).unwrap();
        });
    }
    let database = match mode.transactions {
        Transactions::Nobody => Database::Plain(Db::open_cf(path, &options, &families).unwrap()),
        Transactions::Optimistic => {
            let transactions = OptimisticTransactionDbOptions::default();
            Database::Optimistic(
                OptimisticTransactionDb::open_cf(path, &options, &transactions, &families).unwrap(),
            )
        }
        Transactions::Locking(write_policy) => {
            let skip_concurrency_control = mode.skip_concurrency_control;
            let transactions = TransactionDbOptions {
                write_policy,
                skip_concurrency_control,
                // No timeout, because no writers wait in a cycle for the one shared key.
                transaction_lock_timeout: -1,
                default_lock_timeout: -1,
                ..TransactionDbOptions::default()
            };
            Database::Locking(TransactionDb::open_cf(path, &options, &transactions, &families).unwrap())
        }
    };
    let mut calls = Calls { database, families: Vec::new(), form: Form::Blocking, counts: counts.clone() };
    calls.families = families.map(|name| calls.db().column_family(name).unwrap()).to_vec();
    assert_eq!(calls.families.len(), FAMILIES);
    calls
}

/// Runs writers and readers in every form until `keys` keys are checked, and counts the cases that
/// occurred.
fn check(mode: Mode, durabilities: &[Durability], pause: Duration, keys: u64, counts: &Arc<Counts>) {
    let directory = tempfile::tempdir().unwrap();
    let calls = open(directory.path(), mode, counts);
    let order = Arc::new(CommitOrder::new(durabilities, pause));
    let in_form = |form| Calls { form, ..calls.clone() };
    block_on(calls.db().env(), order.prepare(&calls));
    let reactor = Reactor::builder(calls.db().env()).threads(1).carries_writes(true).build().unwrap();
    let (start, mut flushes, mut compactions) = (Instant::now(), 0, 0);
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (calls, order) = (in_form(Form::Reactor), order.clone());
            reactor.spawn(move || async move {
                match task {
                    0 => order.write(&calls, 2, 4).await,
                    _ => order.read(&calls, seed() + 1000 + task).await,
                }
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let (order, env) = (&*order, calls.db().env());
        for form in [Form::Blocking, Form::Async] {
            let (writing, reading) = (in_form(form), in_form(form));
            let writer = if form == Form::Blocking { 0 } else { 1 };
            scope.spawn(move || foreign_block_on(order.write(&writing, writer, 4)));
            scope.spawn(move || block_on(env, order.read(&reading, seed() + 1)));
        }
        let (writing, reading) = (in_form(Form::Blocking), in_form(Form::Async));
        scope.spawn(move || foreign_block_on(order.write(&writing, 3, 4)));
        scope.spawn(move || foreign_block_on(order.read(&reading, seed() + 2)));
        while order.checked() < keys && order.violations().0 == 0 {
            std::thread::sleep(Duration::from_millis(20));
            let asynchronously = FlushOptions { wait: false, ..FlushOptions::default() };
            let families: Vec<&ColumnFamily> = calls.families.iter().collect();
            calls.db().flush_cfs(&asynchronously, &families).unwrap();
            flushes += 1;
            if mode.transactions != Transactions::Nobody && flushes % 8 == 0 {
                // Down to the last level, because numbers are zeroed there, and undecided entries
                // are hidden by their numbers.
                let bottommost_level_compaction = BottommostLevelCompaction::Force;
                let all =
                    CompactRangeOptions { bottommost_level_compaction, ..CompactRangeOptions::default() };
                families
                    .iter()
                    .for_each(|family| calls.db().compact_range_cf(&all, family, None, None).unwrap());
                compactions += families.len();
            }
        }
        order.end();
    });
    tasks.into_iter().for_each(|task| task.join().unwrap());
    drop(reactor);
    let (violations, told) = order.violations();
    let (reads, checked, seconds) = (order.reads(), order.checked(), start.elapsed().as_secs_f64());
    println!(
        "{mode:?} {durabilities:?}, writers pause {pause:?}: {checked} keys in {reads} reads checked in {seconds:.1} s ({:.2} million/s), {} batches, {flushes} flushes and {compactions} compactions asked for, {violations} violations",
        checked as f64 / seconds / 1e6,
        order.batches(),
    );
    assert_eq!(violations, 0, "{told:#?}");
    // All entries are there when the database is reopened, because they were logged, or flushed
    // when it was closed.
    calls.db().close().unwrap();
    drop(calls);
    if !durabilities.contains(&Durability::Unlogged) {
        let calls = open(directory.path(), mode, counts);
        block_on(calls.db().env(), order.check_all(&calls));
        assert_eq!(order.violations(), (0, Vec::new()));
    }
}

#[test]
fn reads_see_whole_batches_in_their_order_and_all_that_was_acknowledged() {
    use Durability::{Logged, Synced, Unlogged};
    let modes: [&[Durability]; 3] = [&[Unlogged], &[Logged], &[Unlogged, Logged, Synced]];
    let (keys, counts) = (keys_to_check() / 12, Arc::default());
    for durabilities in modes {
        // Writers that never pause leave little of two processors to readers.
        let (ordered, unordered) = (Mode::default(), Mode { unordered_write: true, ..Mode::default() });
        check(ordered, durabilities, Duration::ZERO, keys / 5, &counts);
        check(unordered, durabilities, Duration::ZERO, keys / 5, &counts);
        check(ordered, durabilities, Duration::from_millis(3), keys, &counts);
        // More keys, because reads must wait here, and would fail otherwise.
        check(unordered, durabilities, Duration::from_millis(3), 3 * keys, &counts);
    }
}

#[test]
fn transactions_that_are_inserted_before_they_are_decided_are_seen_when_they_are() {
    use Durability::{Logged, Unlogged};
    let transactions = Transactions::Locking(WritePolicy::WritePrepared);
    let (keys, counts) = (keys_to_check() / 12, Arc::default());
    let modes: [(bool, bool, bool, &[Durability]); 6] = [
        (false, false, false, &[Logged]),
        (false, true, false, &[Logged]),
        (true, false, false, &[Logged]),
        (true, true, false, &[Logged]),
        (true, true, false, &[Unlogged, Logged]),
        // The options of the published command.
        (true, true, true, &[Logged]),
    ];
    for (unordered_write, two_write_queues, skip_concurrency_control, durabilities) in modes {
        let mode = Mode { unordered_write, two_write_queues, transactions, skip_concurrency_control };
        check(mode, durabilities, Duration::ZERO, keys / 50, &counts);
        check(mode, durabilities, Duration::from_millis(3), keys, &counts);
    }
    counts.check(&["conflicts"]);
}

#[test]
fn transactions_that_are_inserted_when_they_are_committed_are_seen_then() {
    use Durability::{Logged, Unlogged};
    let keys = keys_to_check() / 12;
    for (transactions, unmet) in [
        (Transactions::Optimistic, &["prepares", "locked writes"][..]),
        (Transactions::Locking(WritePolicy::WriteCommitted), &["conflicts"]),
    ] {
        let (mode, counts) = (Mode { transactions, ..Mode::default() }, Arc::default());
        check(mode, &[Logged], Duration::ZERO, keys / 50, &counts);
        check(mode, &[Logged], Duration::from_millis(3), keys / 2, &counts);
        for two_write_queues in [false, true] {
            let mode = Mode { unordered_write: true, two_write_queues, ..mode };
            check(mode, &[Unlogged, Logged], Duration::from_millis(3), keys / 2, &counts);
        }
        counts.check(unmet);
    }
}
