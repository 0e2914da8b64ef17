//! A secondary instance beside a primary that prepares, commits and rolls back under either policy,
//! flushes, compacts with blob garbage collection, starts new MANIFESTs, drops column families and
//! is reopened. A secondary that has caught up shows the committed state; a snapshot or an iterator
//! keeps showing the state it was made at.
//!
//! All on a file system in memory, determined by a seed. Environment: `KARST_SEED` runs one seed
//! only, `KARST_SEEDS` that many from there on, `KARST_LONG_TESTS=1` the long form.

use karst_engine::io::{Env, MemoryFileSystem, block_on};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, DbIterator, FlushOptions, OptionSet,
    Options, ReadOptions, Result, WriteBatch, WriteOptions,
};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::collections::BTreeMap;
use std::sync::Arc;

const PATH: &str = "/db";
/// A family with text, and one with counters, which is dropped and created again.
const FAMILIES: [(usize, &str); 2] = [(0, "default"), (1, "counted")];
const KEYS: usize = 6;
const NAMES: usize = 4;

type Key = (usize, String);
/// Committed entries.
type Model = BTreeMap<Key, String>;

#[derive(Clone, Debug)]
enum Change {
    Put(String),
    Delete,
    /// Appends to text, adds to a counter.
    Merge(u64),
}

fn apply(model: &mut Model, changes: &[(Key, Change)]) {
    for (key, change) in changes {
        match change {
            Change::Put(value) => drop(model.insert(key.clone(), value.clone())),
            Change::Delete => drop(model.remove(key)),
            Change::Merge(count) if key.0 == 0 => {
                let value = model.entry(key.clone()).or_default();
                *value = [&value[..], &appended(*count)].join(if value.is_empty() { "" } else { "," });
            }
            Change::Merge(count) => {
                let value = model.entry(key.clone()).or_insert_with(|| "0".to_owned());
                *value = (value.parse::<u64>().unwrap() + count).to_string();
            }
        }
    }
}

/// Returns text long enough for a blob file.
fn appended(count: u64) -> String {
    format!("appended-{count:020}")
}

macro_rules! write {
    ($to:expr, $families:expr, $changes:expr) => {
        for ((number, key), change) in $changes {
            let family = &$families[*number];
            match change {
                Change::Put(value) if *number == 0 => $to.put_cf(family, key, value).unwrap(),
                Change::Put(value) => {
                    $to.put_cf(family, key, value.parse::<u64>().unwrap().to_le_bytes()).unwrap();
                }
                Change::Delete => $to.delete_cf(family, key).unwrap(),
                Change::Merge(count) if *number == 0 => $to.merge_cf(family, key, appended(*count)).unwrap(),
                Change::Merge(count) => $to.merge_cf(family, key, count.to_le_bytes()).unwrap(),
            }
        }
    };
}

fn options(env: &Env, random: &mut Random) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;ttl=0;\
        periodic_compaction_seconds=0;write_buffer_size=100000;max_open_files=-1;disable_auto_compactions=true;\
        merge_operator={id=StringAppendOperator;delimiter=,;};min_blob_size=10;\
        enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1.0";
    let mut options = Options::new().set_all(text).unwrap().env(env.clone());
    for (name, values) in [
        ("max_manifest_file_size", ["300", "100000"]),
        ("recycle_log_file_num", ["0", "2"]),
        ("enable_blob_files", ["false", "true"]),
        ("wal_compression", ["kNoCompression", "kZSTD"]),
    ] {
        options = options.set(name, values[random.index(2)]).unwrap();
    }
    options.column_family("counted", |family| {
        family.set("merge_operator", "uint64add").unwrap();
    })
}

/// A prepared transaction and its changes.
type Prepared = (Option<Transaction>, Vec<(Key, Change)>);

/// The primary and its expected contents.
struct Primary {
    options: Options,
    db: Option<TransactionDb>,
    policy: WritePolicy,
    model: Model,
    /// By name; the handle is `None` after a reopening, until it is retrieved by name.
    prepared: BTreeMap<String, Prepared>,
    /// Number of times that `counted` was created.
    generation: u64,
    written: u64,
}

impl Primary {
    async fn open(&mut self) {
        let transactions = TransactionDbOptions {
            transaction_lock_timeout: 0,
            default_lock_timeout: 0,
            write_policy: self.policy,
            ..TransactionDbOptions::default()
        };
        let names = FAMILIES.map(|(_, name)| name);
        self.db = Some(TransactionDb::open_cf(PATH, &self.options, &transactions, &names).unwrap());
    }

    fn db(&self) -> &TransactionDb {
        self.db.as_ref().expect("it is open")
    }

    fn families(&self) -> Vec<ColumnFamily> {
        families(self.db().db())
    }

    /// Draws changes of keys that no prepared transaction has.
    fn changes(&mut self, random: &mut Random) -> Vec<(Key, Change)> {
        let taken: Vec<&Key> =
            self.prepared.values().flat_map(|(_, changes)| changes).map(|(key, _)| key).collect();
        let all = FAMILIES.iter().flat_map(|(number, _)| (0..KEYS).map(move |key| (*number, key)));
        let mut free: Vec<Key> = all.map(|(number, key)| (number, format!("k{key}"))).collect();
        free.retain(|key| !taken.contains(&key));
        let mut changes = Vec::new();
        for _ in 0..1 + random.below(3) {
            if free.is_empty() {
                break;
            }
            let key = free.swap_remove(random.index(free.len()));
            self.written += 1;
            let value = if key.0 == 0 { appended(self.written) } else { self.written.to_string() };
            let change = match random.below(5) {
                0 => Change::Delete,
                1 | 2 => Change::Merge(self.written),
                _ => Change::Put(value),
            };
            // Some keys are changed twice.
            if random.one_in(4) {
                changes.push((key.clone(), Change::Merge(1)));
            }
            changes.push((key, change));
        }
        changes
    }

    fn begin(&self, changes: &[(Key, Change)]) -> Transaction {
        let mut transaction = self.db().begin(&WriteOptions::new(), &TransactionOptions::default());
        let families = self.families();
        write!(transaction, families, changes);
        transaction
    }

    async fn step(&mut self, random: &mut Random) {
        let names: Vec<String> = self.prepared.keys().cloned().collect();
        match random.below(20) {
            0..3 => {
                let changes = self.changes(random);
                let (mut batch, families) = (WriteBatch::new(), self.families());
                write!(batch, families, &changes);
                self.db().write_async(&WriteOptions::new(), batch).await.unwrap();
                apply(&mut self.model, &changes);
            }
            3..5 => {
                let changes = self.changes(random);
                self.begin(&changes).commit_async().await.unwrap();
                apply(&mut self.model, &changes);
            }
            5..9 => {
                let name = format!("t{}", random.index(NAMES));
                let changes = self.changes(random);
                if self.prepared.contains_key(&name) || changes.is_empty() {
                    return;
                }
                let mut transaction = self.begin(&changes);
                transaction.set_name(&name).unwrap();
                transaction.prepare_async().await.unwrap();
                self.prepared.insert(name, (Some(transaction), changes));
            }
            9..12 if !names.is_empty() => self.decide(&names[random.index(names.len())], random).await,
            12..15 => {
                let families = self.families();
                let some = if random.one_in(2) { &families[..] } else { &families[..1 + random.index(1)] };
                let some: Vec<&ColumnFamily> = some.iter().collect();
                self.db().db().flush_cfs_async(&FlushOptions::default(), &some).await.unwrap();
            }
            15 | 16 => {
                let bottommost_level_compaction = BottommostLevelCompaction::Force;
                let all = CompactRangeOptions { bottommost_level_compaction, ..Default::default() };
                let family = &self.families()[random.index(2)];
                self.db().db().compact_range_cf_async(&all, family, None, None).await.unwrap();
            }
            17 | 18 => self.reopen(random).await,
            19 if self
                .prepared
                .values()
                .all(|(_, changes)| changes.iter().all(|((number, _), _)| *number == 0)) =>
            {
                let counted = &self.families()[1];
                self.db().db().drop_column_family_async(counted).await.unwrap();
                self.db().db().create_column_family_async("counted", &self.options).await.unwrap();
                self.model.retain(|(number, _), _| *number == 0);
                self.generation += 1;
            }
            _ => {}
        }
    }

    async fn decide(&mut self, name: &str, random: &mut Random) {
        let (transaction, changes) = self.prepared.remove(name).expect("it is prepared");
        let mut transaction = transaction.unwrap_or_else(|| self.db().get_transaction_by_name(name).unwrap());
        match random.one_in(3) {
            true => transaction.rollback_async().await.unwrap(),
            false => {
                transaction.commit_async().await.unwrap();
                apply(&mut self.model, &changes);
            }
        }
    }

    async fn reopen(&mut self, random: &mut Random) {
        self.prepared.values_mut().for_each(|(transaction, _)| *transaction = None);
        self.db().db().close_async().await.unwrap();
        self.db = None;
        if self.prepared.is_empty() && random.one_in(2) {
            self.policy = match self.policy {
                WritePolicy::WriteCommitted => WritePolicy::WritePrepared,
                _ => WritePolicy::WriteCommitted,
            };
        }
        self.open().await;
    }
}

fn families(db: &Db) -> Vec<ColumnFamily> {
    FAMILIES.iter().map(|(_, name)| db.column_family(name).unwrap()).collect()
}

/// A snapshot and an iterator with the state that they must keep showing.
struct Held {
    model: Model,
    snapshot: ReadOptions,
    iter: DbIterator,
}

/// A secondary and its expected contents.
struct Secondary {
    db: Db,
    families: Vec<ColumnFamily>,
    generation: u64,
    /// The primary has dropped `counted` since. That family is not compared any more, because its
    /// prepared entries may be shown once they are committed; held views still are.
    is_dropped: bool,
    shown: Model,
    held: Vec<Held>,
}

impl Secondary {
    async fn open(primary: &Primary, number: u64) -> Result<Secondary> {
        let db = Db::open_as_secondary_async(PATH, format!("/secondary{number}"), &primary.options).await?;
        let (generation, shown) = (primary.generation, primary.model.clone());
        Ok(Secondary { families: families(&db), db, generation, is_dropped: false, shown, held: Vec::new() })
    }

    async fn catch_up(&mut self, primary: &Primary) -> Result<()> {
        self.db.try_catch_up_with_primary_async().await?;
        self.is_dropped = self.generation != primary.generation;
        self.shown = primary.model.clone();
        self.shown.retain(|(number, _), _| *number == 0 || !self.is_dropped);
        Ok(())
    }

    async fn hold(&mut self) {
        if self.is_dropped {
            return;
        }
        let snapshot = ReadOptions { snapshot: Some(self.db.snapshot()), ..ReadOptions::new() };
        let iter = self.db.iter_cf(&ReadOptions::new(), &self.families[0]).unwrap();
        self.held.push(Held { model: self.shown.clone(), snapshot, iter });
    }

    async fn check(&mut self, when: &str) {
        let mut found = shown(&self.db, &self.families, &ReadOptions::new()).await;
        found.retain(|(number, _), _| *number == 0 || !self.is_dropped);
        assert_eq!(found, self.shown, "{when}");
        for held in &mut self.held {
            let found = shown(&self.db, &self.families, &held.snapshot).await;
            assert_eq!(found, held.model, "{when}, at a snapshot");
            let found = scanned(&mut held.iter, 0, false).await;
            let model = held.model.iter().filter(|((number, _), _)| *number == 0);
            let model: Model = model.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(found, model, "{when}, by an iterator");
        }
    }
}

/// Returns the entries that a database shows. Fails if `get`, `multi_get` and an iterator in either
/// direction disagree.
async fn shown(db: &Db, families: &[ColumnFamily], options: &ReadOptions) -> Model {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let mut model = Model::new();
    for (number, family) in families.iter().enumerate() {
        let (mut ones, mut many) = (Model::new(), Model::new());
        for (key, value) in keys.iter().zip(db.multi_get_cf_async(options, family, &keys).await) {
            if let Some(value) = value.unwrap() {
                many.insert((number, key.clone()), text(number, &value));
            }
            if let Some(value) = db.get_cf_async(options, family, key.as_bytes()).await.unwrap() {
                ones.insert((number, key.clone()), text(number, &value));
            }
        }
        assert_eq!(ones, many, "get and multi_get");
        for backward in [false, true] {
            let mut iter = db.iter_cf(options, family).unwrap();
            assert_eq!(scanned(&mut iter, number, backward).await, ones, "get and an iterator");
        }
        model.append(&mut ones);
    }
    model
}

async fn scanned(iter: &mut DbIterator, number: usize, backward: bool) -> Model {
    let mut found = Model::new();
    match backward {
        false => iter.seek_to_first_async().await.unwrap(),
        true => iter.seek_to_last_async().await.unwrap(),
    }
    while iter.valid() {
        let key = String::from_utf8(iter.key().to_vec()).unwrap();
        let again = found.insert((number, key), text(number, iter.value()));
        assert_eq!(again, None, "an iterator comes by a key twice");
        match backward {
            false => iter.next_async().await.unwrap(),
            true => iter.prev_async().await.unwrap(),
        }
    }
    found
}

fn text(number: usize, value: &[u8]) -> String {
    match number {
        0 => String::from_utf8(value.to_vec()).unwrap(),
        _ => u64::from_le_bytes(value.try_into().unwrap()).to_string(),
    }
}

async fn run(env: &Env, policy: WritePolicy, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut primary = Primary {
        options: options(env, &mut random),
        db: None,
        policy,
        model: Model::new(),
        prepared: BTreeMap::new(),
        generation: 0,
        written: 0,
    };
    primary.open().await;
    let (mut number, mut caught_up) = (0, 0);
    let mut secondary = Secondary::open(&primary, number).await.unwrap();
    for step in 0..60 {
        let when = format!("seed {seed}, step {step}");
        primary.step(&mut random).await;
        if random.one_in(3) {
            secondary.catch_up(&primary).await.unwrap_or_else(|e| panic!("{when}: {e}"));
            secondary.check(&when).await;
            caught_up += 1;
            match random.below(6) {
                0 | 1 => secondary.hold().await,
                2 if !secondary.held.is_empty() => {
                    let index = random.index(secondary.held.len());
                    drop(secondary.held.remove(index));
                }
                3 if random.one_in(4) => {
                    number += 1;
                    secondary = Secondary::open(&primary, number).await.unwrap();
                    secondary.check(&format!("{when}, opened anew")).await;
                }
                4 if random.one_in(2) => {
                    let db = Db::open_read_only(PATH, &primary.options).unwrap();
                    let found = shown(&db, &families(&db), &ReadOptions::new()).await;
                    assert_eq!(found, primary.model, "{when}, read only");
                }
                _ => {}
            }
        }
    }
    caught_up
}

#[test]
fn a_secondary_shows_what_is_committed_whatever_the_primary_does() {
    let mut caught_up = 0;
    for seed in asked::seeds(20, 1000) {
        for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
            println!("seed {seed}, {policy:?}; to replay it: KARST_SEED={seed}");
            let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
            caught_up += block_on(&env, run(&env, policy, seed));
        }
    }
    assert!(caught_up > 300 || asked::number("KARST_SEED").is_some(), "{caught_up} catch-ups only");
}

/// A primary on a real disk, and the directory of its secondary.
struct Pair {
    directory: tempfile::TempDir,
    policy: WritePolicy,
}

impl Pair {
    fn new(policy: WritePolicy) -> Pair {
        Pair { directory: tempfile::tempdir().unwrap(), policy }
    }

    fn options() -> Options {
        let text = "create_if_missing=true;create_missing_column_families=true";
        Options::new().set_all(text).unwrap().column_family("counted", |family| {
            family.set("merge_operator", "uint64add").unwrap();
        })
    }

    fn open(&self) -> TransactionDb {
        let transactions = TransactionDbOptions { write_policy: self.policy, ..Default::default() };
        let path = self.directory.path().join("db");
        TransactionDb::open_cf(path, &Pair::options(), &transactions, &["default", "counted"]).unwrap()
    }

    fn secondary(&self) -> Db {
        let path = self.directory.path();
        Db::open_as_secondary(path.join("db"), path.join("secondary"), &Pair::options()).unwrap()
    }
}

fn named(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    transaction.set_name(name).unwrap();
    transaction
}

fn flush_all(db: &TransactionDb) {
    let families = families(db.db());
    let families: Vec<&ColumnFamily> = families.iter().collect();
    db.db().flush_cfs(&FlushOptions::default(), &families).unwrap();
}

fn value(db: &Db, key: &str) -> Option<Vec<u8>> {
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    iter.seek(key).unwrap();
    let by_iterator = (iter.valid() && iter.key() == key.as_bytes()).then(|| iter.value().to_vec());
    let value = db.get(key).unwrap().map(|value| value.to_vec());
    assert_eq!(value, by_iterator);
    value
}

const BOTH: [WritePolicy; 2] = [WritePolicy::WriteCommitted, WritePolicy::WritePrepared];

/// The secondary has seen the transaction prepared. The log with its commit is removed before the
/// secondary catches up.
#[test]
fn a_commit_is_shown_whose_log_is_gone() {
    for policy in BOTH {
        let pair = Pair::new(policy);
        let primary = pair.open();
        let secondary = pair.secondary();
        let mut transaction = named(&primary, "t");
        transaction.put("key", "value").unwrap();
        transaction.prepare().unwrap();
        secondary.try_catch_up_with_primary().unwrap();
        assert_eq!(value(&secondary, "key"), None, "{policy:?}");
        let before = ReadOptions { snapshot: Some(secondary.snapshot()), ..ReadOptions::new() };
        transaction.commit().unwrap();
        flush_all(&primary);
        secondary.try_catch_up_with_primary().unwrap();
        assert_eq!(value(&secondary, "key").as_deref(), Some(&b"value"[..]), "{policy:?}");
        assert!(secondary.get_opt(&before, "key").unwrap().is_none(), "{policy:?}");
    }
}

/// The log with the commit is removed too; the next transaction of that name brings its own entries
/// only.
#[test]
fn the_next_transaction_of_a_name_does_not_bring_back_what_the_one_before_wrote() {
    for policy in BOTH {
        let pair = Pair::new(policy);
        let primary = pair.open();
        let secondary = pair.secondary();
        let mut transaction = named(&primary, "t");
        transaction.put("key", "old").unwrap();
        transaction.prepare().unwrap();
        secondary.try_catch_up_with_primary().unwrap();
        transaction.commit().unwrap();
        drop(transaction);
        primary.put("key", "new").unwrap();
        flush_all(&primary);
        let mut transaction = named(&primary, "t");
        transaction.put("other", "value").unwrap();
        transaction.prepare().unwrap();
        transaction.commit().unwrap();
        secondary.try_catch_up_with_primary().unwrap();
        assert_eq!(value(&secondary, "key").as_deref(), Some(&b"new"[..]), "{policy:?}");
        assert_eq!(value(&secondary, "other").as_deref(), Some(&b"value"[..]), "{policy:?}");
    }
}

/// The primary is reopened, and logs prepared sections anew. The secondary has not seen their first
/// log.
#[test]
fn what_is_logged_anew_counts_once() {
    for policy in BOTH {
        let pair = Pair::new(policy);
        let primary = pair.open();
        primary.put("key", "value").unwrap();
        let secondary = pair.secondary();
        let mut transaction = named(&primary, "t");
        let counted = primary.db().column_family("counted").unwrap();
        transaction.merge_cf(&counted, "count", 5u64.to_le_bytes()).unwrap();
        transaction.prepare().unwrap();
        drop(transaction);
        primary.db().close().unwrap();
        drop(primary);
        let primary = pair.open();
        primary.put("key", "again").unwrap();
        secondary.try_catch_up_with_primary().unwrap();
        let counted = secondary.column_family("counted").unwrap();
        let count = || secondary.get_cf(&ReadOptions::new(), &counted, "count").unwrap();
        assert!(count().is_none(), "{policy:?}");
        primary.get_transaction_by_name("t").unwrap().commit().unwrap();
        secondary.try_catch_up_with_primary().unwrap();
        assert_eq!(count().as_deref(), Some(&5u64.to_le_bytes()[..]), "{policy:?}");
    }
}

/// The database is opened with `allow_2pc=false`. The log of a prepared section is older than those
/// that the column families need.
#[test]
fn what_is_prepared_is_not_shown_without_allow_2pc() {
    let pair = Pair::new(WritePolicy::WritePrepared);
    let primary = pair.open();
    let mut transaction = named(&primary, "t");
    transaction.put("key", "value").unwrap();
    transaction.prepare().unwrap();
    flush_all(&primary);
    primary.put("other", "value").unwrap();
    let (path, options) =
        (pair.directory.path().join("db"), Pair::options().set("allow_2pc", "false").unwrap());
    let read_only = Db::open_read_only(&path, &options).unwrap();
    let secondary = Db::open_as_secondary(&path, pair.directory.path().join("secondary"), &options).unwrap();
    for db in [&read_only, &secondary] {
        assert_eq!((value(db, "key"), value(db, "other").is_some()), (None, true));
    }
}
