//! Every read against the order of commits: `get`, `multi_get`, snapshots and iterators in both directions, blocking, as futures and in a reactor's tasks, while writers write
//! batches over several column families at full speed and memtables are flushed and compacted. What is checked says `karst_testkit::commit_order`.
//!
//! The default run takes some seconds. The long one checks at least 10^8 keys, spread over the modes, in some minutes:
//! `KARST_LONG_TESTS=1 cargo test --release -p karst-engine --test commit_order -- --nocapture`; `KARST_CHECKED_KEYS` sets another number.
//!
//! That the checker finds what it looks for is tested in `engine/src/write/tests/broken.rs`.

use karst_engine::caller::{Caller, finish};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, DbIterator, FlushOptions, Options,
    ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
use karst_io::testing::foreign_block_on;
use karst_io::{Env, Reactor, block_on, sleep, yield_now};
use karst_testkit::commit_order::{
    CommitOrder, Durability, FAMILIES, GROUPS, KEYS, Key, Part, Store, Value, key,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Which calls are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Blocking,
    Async,
    /// The asynchronous ones, in a task that shares its thread with others.
    Reactor,
}

#[derive(Clone)]
struct Calls {
    db: Db,
    families: Vec<ColumnFamily>,
    form: Form,
    /// Batches are prepared and committed, some rolled back and written anew: numbers for their names.
    prepares: Option<Arc<AtomicU64>>,
}

impl Calls {
    /// Prepares and commits a batch; false if it was rolled back.
    async fn in_two_phases(&self, number: u64, options: &WriteOptions, batch: &WriteBatch) -> bool {
        let (db, name, commits) = (&self.db, number.to_le_bytes(), !number.is_multiple_of(8));
        let work = |by| async move {
            db.prepare(by, options, &name, batch.clone()).await.unwrap();
            match commits {
                true => db.commit_prepared(by, options, &name).await.unwrap(),
                false => db.rollback_prepared(by, options, &name).await.unwrap(),
            }
        };
        match self.form {
            Form::Blocking => finish(work(Caller::Thread)),
            Form::Async | Form::Reactor => work(Caller::Task).await,
        }
        commits
    }
}

fn value_of(bytes: &[u8]) -> Value {
    bytes.try_into().expect("a value of ours")
}

fn options_at(at: Option<&Snapshot>) -> ReadOptions {
    ReadOptions { snapshot: at.cloned(), ..ReadOptions::new() }
}

impl Store for Calls {
    type Snapshot = Snapshot;

    async fn write(&self, durability: Durability, batch: &[Part]) {
        let mut writes = WriteBatch::new();
        for part in batch {
            match part {
                Part::Put { family, key, value } => {
                    writes.put_cf(&self.families[*family], key, value).unwrap()
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
        // Why not with a range: what is prepared has none.
        if let Some(numbers) = &self.prepares
            && !batch.iter().any(|part| matches!(part, Part::Clear { .. }))
        {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if !number.is_multiple_of(5) && self.in_two_phases(number, &options, &writes).await {
                return;
            }
        }
        match self.form {
            Form::Blocking => self.db.write(&options, &writes).unwrap(),
            Form::Async | Form::Reactor => self.db.write_async(&options, &writes).await.unwrap(),
        }
    }

    async fn get(&self, at: Option<&Snapshot>, family: usize, key: &Key) -> Option<Value> {
        let (options, family) = (options_at(at), &self.families[family]);
        let found = match self.form {
            Form::Blocking => self.db.get_cf(&options, family, key),
            Form::Async | Form::Reactor => self.db.get_cf_async(&options, family, key).await,
        };
        found.unwrap().map(|value| value_of(&value))
    }

    async fn multi_get(&self, at: Option<&Snapshot>, keys: &[(usize, Key)]) -> Vec<Option<Value>> {
        let options = options_at(at);
        let families: Vec<&ColumnFamily> = keys.iter().map(|(family, _)| &self.families[*family]).collect();
        let keys: Vec<&Key> = keys.iter().map(|(_, key)| key).collect();
        let found = match self.form {
            Form::Blocking => self.db.multi_get_cfs(&options, &families, &keys),
            Form::Async | Form::Reactor => self.db.multi_get_cfs_async(&options, &families, &keys).await,
        };
        found.into_iter().map(|value| value.unwrap().map(|value| value_of(&value))).collect()
    }

    async fn scan(
        &self,
        at: Option<&Snapshot>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)> {
        let mut iter = self.db.iter_cf(&options_at(at), &self.families[family]).unwrap();
        let mut found = Vec::with_capacity(entries);
        let entry =
            |iter: &DbIterator| (iter.key().try_into().expect("a key of ours"), value_of(iter.value()));
        match (self.form, backward) {
            (Form::Blocking, false) => iter.seek(from).unwrap(),
            (Form::Blocking, true) => iter.seek_for_prev(from).unwrap(),
            (_, false) => iter.seek_async(from).await.unwrap(),
            (_, true) => iter.seek_for_prev_async(from).await.unwrap(),
        }
        while iter.valid() {
            found.push(entry(&iter));
            if found.len() == entries {
                break;
            }
            match (self.form, backward) {
                (Form::Blocking, false) => iter.next().unwrap(),
                (Form::Blocking, true) => iter.prev().unwrap(),
                (_, false) => iter.next_async().await.unwrap(),
                (_, true) => iter.prev_async().await.unwrap(),
            }
        }
        found
    }

    fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    async fn pause(&self, span: Duration) {
        match self.form {
            Form::Reactor if span.is_zero() => yield_now().await,
            Form::Blocking if !span.is_zero() => std::thread::sleep(span),
            Form::Async | Form::Reactor if !span.is_zero() => sleep(self.db.env(), span).await,
            _ => {}
        }
    }
}

fn long() -> bool {
    std::env::var_os("KARST_LONG_TESTS").is_some_and(|value| value != "0")
}

/// Keys to check, over all modes.
fn keys_to_check() -> u64 {
    let asked = std::env::var("KARST_CHECKED_KEYS").ok().map(|text| text.parse().expect("a number of keys"));
    asked.unwrap_or(if long() { 100_000_000 } else { 1_500_000 })
}

/// How the database is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mode {
    unordered_write: bool,
    write_prepared: bool,
    two_write_queues: bool,
}

fn open(path: &std::path::Path, mode: Mode) -> Calls {
    let options = Options::new()
        .env(Env::posix())
        .db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        })
        .db(move |db| {
            db.unordered_write = mode.unordered_write;
            db.two_write_queues = mode.two_write_queues;
            db.allow_2pc = mode.write_prepared;
        })
        .write_prepared(mode.write_prepared)
        .column_families(|cf| {
            cf.write_buffer_size = 1 << 20;
            cf.max_write_buffer_number = 6;
        });
    let db = Db::open_cf(path, &options, &["default", "other"]).unwrap();
    let families = vec![db.default_column_family().clone(), db.column_family("other").unwrap()];
    assert_eq!(families.len(), FAMILIES);
    let prepares = mode.write_prepared.then(Arc::default);
    Calls { db, families, form: Form::Blocking, prepares }
}

/// Writers and readers in every form until so many keys are checked.
fn check(mode: Mode, durabilities: &[Durability], pause: Duration, keys: u64) {
    let directory = tempfile::tempdir().unwrap();
    let calls = open(directory.path(), mode);
    let order = Arc::new(CommitOrder::new(durabilities, pause));
    let in_form = |form| Calls { form, ..calls.clone() };
    block_on(calls.db.env(), order.prepare(&calls));
    let reactor = Reactor::builder(calls.db.env()).threads(1).build().unwrap();
    let (start, mut flushes, mut compactions) = (Instant::now(), 0, 0);
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (calls, order) = (in_form(Form::Reactor), order.clone());
            reactor.spawn(move || async move {
                match task {
                    0 => order.write(&calls, 2, 4).await,
                    _ => order.read(&calls, 1000 + task).await,
                }
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let (order, env) = (&*order, calls.db.env());
        for form in [Form::Blocking, Form::Async] {
            let (writing, reading) = (in_form(form), in_form(form));
            let writer = if form == Form::Blocking { 0 } else { 1 };
            scope.spawn(move || foreign_block_on(order.write(&writing, writer, 4)));
            scope.spawn(move || block_on(env, order.read(&reading, 1)));
        }
        let (writing, reading) = (in_form(Form::Blocking), in_form(Form::Async));
        scope.spawn(move || foreign_block_on(order.write(&writing, 3, 4)));
        scope.spawn(move || foreign_block_on(order.read(&reading, 2)));
        while order.checked() < keys && order.violations().0 == 0 {
            std::thread::sleep(Duration::from_millis(20));
            let asynchronously = FlushOptions { wait: false, ..FlushOptions::default() };
            let families: Vec<&ColumnFamily> = calls.families.iter().collect();
            calls.db.flush_cfs(&asynchronously, &families).unwrap();
            flushes += 1;
            if mode.write_prepared && flushes % 8 == 0 {
                // Why down to the last level: there numbers are zeroed, by which what is undecided is hidden.
                let bottommost_level_compaction = BottommostLevelCompaction::Force;
                let all =
                    CompactRangeOptions { bottommost_level_compaction, ..CompactRangeOptions::default() };
                families
                    .iter()
                    .for_each(|family| calls.db.compact_range_cf(&all, family, None, None).unwrap());
                compactions += families.len();
            }
        }
        order.end();
    });
    tasks.into_iter().for_each(|task| task.join().unwrap());
    drop(reactor);
    let (violations, told) = order.violations();
    let (checked, seconds) = (order.checked(), start.elapsed().as_secs_f64());
    println!(
        "{mode:?} {durabilities:?}, writers pause {pause:?}: {checked} keys checked in {seconds:.1} s ({:.2} million/s), {} batches, {flushes} flushes and {compactions} compactions asked for, {violations} violations",
        checked as f64 / seconds / 1e6,
        order.batches(),
    );
    assert_eq!(violations, 0, "{told:#?}");
    // All of it is there when the database is opened anew, whether it was logged or flushed when it was closed.
    calls.db.close().unwrap();
    drop(calls);
    if !durabilities.contains(&Durability::Unlogged) {
        let calls = open(directory.path(), mode);
        let entries = block_on(calls.db.env(), calls.scan(None, 1, &key(0, 0), GROUPS * KEYS + 1, false));
        assert_eq!(entries.len(), GROUPS * KEYS);
        block_on(calls.db.env(), order.check_all(&calls));
        assert_eq!(order.violations(), (0, Vec::new()));
    }
}

#[test]
fn reads_see_whole_batches_in_their_order_and_all_that_was_acknowledged() {
    use Durability::{Logged, Synced, Unlogged};
    let modes: [&[Durability]; 3] = [&[Unlogged], &[Logged], &[Unlogged, Logged, Synced]];
    let keys = keys_to_check() / 12;
    for durabilities in modes {
        // Writers that never pause leave readers little of two processors.
        let (ordered, unordered) = (Mode::default(), Mode { unordered_write: true, ..Mode::default() });
        check(ordered, durabilities, Duration::ZERO, keys / 5);
        check(unordered, durabilities, Duration::ZERO, keys / 5);
        check(ordered, durabilities, Duration::from_millis(3), keys);
        // Why more: here reads have to wait, and go wrong if they do not.
        check(unordered, durabilities, Duration::from_millis(3), 3 * keys);
    }
}

#[test]
fn transactions_that_are_inserted_before_they_are_decided_are_seen_when_they_are() {
    use Durability::{Logged, Unlogged};
    let keys = keys_to_check() / 12;
    let modes: [(bool, bool, &[Durability]); 4] = [
        (false, false, &[Logged]),
        (false, true, &[Logged]),
        (true, true, &[Logged]),
        (true, true, &[Unlogged, Logged]),
    ];
    for (unordered_write, two_write_queues, durabilities) in modes {
        let mode = Mode { unordered_write, two_write_queues, write_prepared: true };
        check(mode, durabilities, Duration::ZERO, keys / 50);
        check(mode, durabilities, Duration::from_millis(3), keys);
    }
}
