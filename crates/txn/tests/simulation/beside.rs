//! Plain writers beside the users, each write with a key of its own: several at once, so that one
//! is acknowledged before an older one is inserted, or one alone, whose entries wait to be inserted
//! with others. A write also appends its number to the list of its lane, and deletes the key of the
//! write before it there singly. So the lists say which writes are there, and each is in them once.
//!
//! Known is what was acknowledged, and what of it is durable: whatever was synced, and all that was
//! acknowledged before that began.

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

/// Why so many: no two writes at the same time go to one.
const LANES: u64 = 32;

/// Writes go by their numbers.
#[derive(Clone, Debug, Default)]
struct Writes {
    count: u64,
    under_way: BTreeSet<u64>,
    /// In the order in which they were acknowledged.
    acknowledged: Vec<u64>,
    /// Those that survive the power.
    durable: BTreeSet<u64>,
    /// Of each lane, the last one, whose key is there.
    last: BTreeMap<u64, u64>,
    /// The power has failed since it was known what is there.
    may_be_lost: bool,
    early: Early,
}

/// How often something was acknowledged before it was in the memtable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Early {
    /// A write, before its own entry was.
    pub(crate) gathered: u64,
    /// A write, before an older one's entries were.
    pub(crate) overtaking: u64,
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside(Arc<Mutex<Writes>>);

fn key_of(write: u64) -> String {
    format!("beside{write:06}")
}

fn list_of(lane: u64) -> String {
    format!("lane{lane}")
}

/// Whether a read that begins now has to insert what was left: something was acknowledged before
/// what is older was inserted.
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
    /// Another that knows the same, and learns nothing of what this one does.
    pub(crate) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    /// One write.
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
        // Why: it asks without having anything inserted.
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

    /// Some writes at once; without `sync` some of them are synced and some are not.
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

    /// What is under way did not happen, and will not.
    pub(crate) fn refused(&self) {
        self.0.lock().unwrap().under_way.clear();
    }

    /// What was acknowledged survives the process.
    pub(crate) fn crashed(&self, crash: Crash) {
        self.0.lock().unwrap().may_be_lost |= crash == Crash::Power;
    }

    /// After an opening: what is there is what may be, and is taken for certain.
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
