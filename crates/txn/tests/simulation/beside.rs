//! Plain writers beside the users, each write with a key of its own: several at once, so that one
//! is acknowledged before an older one is inserted, or one alone, whose entries are gathered. A
//! write also appends its number to the list of its lane, and deletes the key of the previous write
//! in the lane with a single deletion. The lists therefore show which writes are there, and that
//! each is there once.
//!
//! Tracks the acknowledged writes, and the durable ones: all synced writes, and all acknowledged
//! before such a write began.

use crate::ledger::FAMILIES;
use crate::reading::read;
use karst_engine::io::{Crash, Env, Priority, Task};
use karst_engine::{ReadOptions, Result, WriteBatch, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::TransactionDb;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

/// Number of lanes; large enough that no two concurrent writes share one.
const LANES: u64 = 32;

/// State of all writes, by number.
#[derive(Clone, Debug, Default)]
struct Writes {
    count: u64,
    under_way: BTreeSet<u64>,
    /// Acknowledged writes, in the order of acknowledgement.
    acknowledged: Vec<u64>,
    /// Writes that survive a loss of power.
    durable: BTreeSet<u64>,
    /// The last write of each lane, whose key is there.
    last: BTreeMap<u64, u64>,
    /// The power has failed since the contents were last checked.
    may_be_lost: bool,
    early: Early,
}

/// Number of writes acknowledged before entries were in the memtable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Early {
    /// Acknowledged before its own entry was inserted.
    pub(crate) gathered: u64,
    /// Acknowledged before an older write's entries were inserted.
    pub(crate) overtaking: u64,
}

/// The plain writers' state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside(Arc<Mutex<Writes>>);

fn key_of(write: u64) -> String {
    format!("beside{write:06}")
}

fn list_of(lane: u64) -> String {
    format!("lane{lane}")
}

/// Returns true if a read that begins now has entries inserted that writers left: a write was
/// acknowledged before older entries, or its own, were inserted.
pub(crate) fn reads_insert(db: &TransactionDb) -> bool {
    let entries = || -> u64 {
        let of = |name: &&str| {
            let family = db.db().column_family(name).expect("it is open");
            db.db().int_property_cf(&family, "rocksdb.num-entries-active-mem-table").expect("it is known")
        };
        FAMILIES.iter().map(of).sum()
    };
    let before = entries();
    let read = pin!(db.get_async(b"nobody's"));
    let _ = read.poll(&mut Context::from_waker(Waker::noop()));
    entries() > before
}

impl Beside {
    /// Returns an independent copy of the current state.
    pub(crate) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    /// Performs one write.
    pub(crate) async fn write(&self, db: &TransactionDb, sync: bool, looks: bool) -> Result<()> {
        let (number, last, before) = {
            let mut writes = self.0.lock().unwrap();
            writes.count += 1;
            let number = writes.count;
            writes.under_way.insert(number);
            (number, writes.last.get(&(number % LANES)).copied(), writes.acknowledged.len())
        };
        let (key, mut batch) = (key_of(number), WriteBatch::new());
        batch.put(&key, &key)?;
        batch.merge(list_of(number % LANES), number.to_string())?;
        if let Some(last) = last {
            batch.single_delete(key_of(last))?;
        }
        let options = WriteOptions { sync, ..WriteOptions::new() };
        let family = db.db().default_column_family();
        db.write_async(&options, batch).await?;
        // This call reads the memtable without having gathered entries inserted.
        let end = format!("{key}\0");
        let found = db.db().approximate_memtable_stats_cf(family, (key.as_bytes(), end.as_bytes()))?.0;
        let overtakes = looks && reads_insert(db);
        {
            let mut writes = self.0.lock().unwrap();
            writes.early.gathered += u64::from(found == 0);
            writes.early.overtaking += u64::from(overtakes);
            writes.under_way.remove(&number);
            writes.last.insert(number % LANES, number);
            if sync {
                let durable: Vec<_> = writes.acknowledged[..before].to_vec();
                writes.durable.extend(durable);
                writes.durable.insert(number);
            }
            writes.acknowledged.push(number);
        }
        if looks {
            let seen = db.get_async(key.as_bytes()).await?;
            assert!(seen.is_some(), "{key} was acknowledged, and a read does not see it");
        }
        Ok(())
    }

    /// Starts some writes at once; without `sync` only some of them are synced.
    pub(crate) fn burst(
        &self,
        env: &Env,
        db: &TransactionDb,
        sync: bool,
        random: &mut Random,
    ) -> Vec<Task<Result<()>>> {
        let mut one = || {
            let (this, db) = (self.clone(), db.clone());
            let (sync, looks) = (sync || random.one_in(4), random.one_in(2));
            env.spawn(Priority::Low, async move { this.write(&db, sync, looks).await })
        };
        (0..3).map(|_| one()).collect()
    }

    /// Records that no unfinished write happened, or will.
    pub(crate) fn refused(&self) {
        self.0.lock().unwrap().under_way.clear();
    }

    /// Records a crash. Acknowledged writes survive that of the process.
    pub(crate) fn crashed(&self, crash: Crash) {
        self.0.lock().unwrap().may_be_lost |= crash == Crash::Power;
    }

    /// Checks, after an opening, that the contents are allowed, and takes them as certain.
    pub(crate) async fn settle(&self, db: &TransactionDb, when: &str) -> Result<()> {
        let count = self.0.lock().unwrap().count;
        let keys: Vec<String> = (1..=count).map(key_of).collect();
        let lanes: Vec<String> = (0..LANES).map(list_of).collect();
        let (options, family) = (ReadOptions::new(), (0, db.db().default_column_family()));
        let lists = read(db.db(), &options, family, "lane", &lanes).await?;
        let there = read(db.db(), &options, family, "beside", &keys).await?;
        let (mut found, mut last) = (BTreeSet::new(), BTreeMap::new());
        for (name, list) in &lists {
            let list: Vec<u64> = list.split(',').map(|number| number.parse().expect("a number")).collect();
            assert!(list.is_sorted_by(|a, b| a < b), "{when}: {name} is {list:?}");
            let lane = list[0] % LANES;
            last.extend(list.last().map(|number| (lane, *number)));
            found.extend(list);
        }
        let right: BTreeMap<_, _> = last.values().map(|number| (key_of(*number), key_of(*number))).collect();
        assert_eq!(there, right, "{when}: other keys than those of the last writes in {lists:#?}");
        let mut writes = self.0.lock().unwrap();
        let acknowledged: BTreeSet<u64> = writes.acknowledged.iter().copied().collect();
        let must = if writes.may_be_lost { &writes.durable } else { &acknowledged };
        let lost: Vec<_> = must.difference(&found).collect();
        assert!(lost.is_empty(), "{when}: {lost:?} are lost");
        let may: BTreeSet<u64> = acknowledged.union(&writes.under_way).copied().collect();
        let risen: Vec<_> = found.difference(&may).collect();
        assert!(risen.is_empty(), "{when}: {risen:?} had been refused, or lost before");
        writes.acknowledged = found.iter().copied().collect();
        (writes.durable, writes.last) = (found, last);
        writes.under_way.clear();
        writes.may_be_lost = false;
        Ok(())
    }

    pub(crate) fn early(&self) -> Early {
        self.0.lock().unwrap().early
    }
}
