//! Plain writers beside the users, each write with a key of its own: several at once, so that one is acknowledged before an older one is inserted, or one alone, whose entry waits to be inserted with others.
//!
//! Known is what was acknowledged, and what of it is durable: whatever was synced, and all that was acknowledged before that began.

use crate::ledger::FAMILIES;
use karst_engine::io::{Crash, Env, Priority, Task};
use karst_engine::{ReadOptions, Result, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::TransactionDb;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

#[derive(Debug, Default)]
struct Writes {
    count: u64,
    under_way: BTreeSet<String>,
    /// In the order in which they were acknowledged.
    acknowledged: Vec<String>,
    /// Those that survive the power.
    durable: BTreeSet<String>,
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

/// Whether a read that begins now has to insert what was left: something was acknowledged before what is older was inserted.
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
    /// Writes a key.
    pub(crate) async fn write(&self, db: &TransactionDb, sync: bool, looks: bool) -> Result<()> {
        let (key, before) = {
            let mut writes = self.0.lock().unwrap();
            writes.count += 1;
            let key = format!("beside{:06}", writes.count);
            writes.under_way.insert(key.clone());
            (key, writes.acknowledged.len())
        };
        let options = WriteOptions { sync, ..WriteOptions::new() };
        let family = db.db().default_column_family();
        db.put_cf_async(&options, family, key.as_bytes(), key.as_bytes()).await?;
        // Why: it asks without having anything inserted.
        let end = format!("{key}\0");
        let found = db.db().approximate_memtable_stats_cf(family, (key.as_bytes(), end.as_bytes()))?.0;
        let overtakes = looks && reads_insert(db);
        {
            let mut writes = self.0.lock().unwrap();
            writes.early.gathered += u64::from(found == 0);
            writes.early.overtaking += u64::from(overtakes);
            writes.under_way.remove(&key);
            if sync {
                let durable: Vec<_> = writes.acknowledged[..before].to_vec();
                writes.durable.extend(durable);
                writes.durable.insert(key.clone());
            }
            writes.acknowledged.push(key.clone());
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
        let keys: Vec<String> = {
            let writes = self.0.lock().unwrap();
            (1..=writes.count).map(|number| format!("beside{number:06}")).collect()
        };
        let mut found = BTreeSet::new();
        for key in keys {
            let family = db.db().default_column_family();
            let value = db.db().get_cf_async(&ReadOptions::new(), family, key.as_bytes()).await?;
            if value.is_some_and(|value| value[..] == *key.as_bytes()) {
                found.insert(key);
            }
        }
        let mut writes = self.0.lock().unwrap();
        let acknowledged: BTreeSet<String> = writes.acknowledged.iter().cloned().collect();
        let must = if writes.may_be_lost { &writes.durable } else { &acknowledged };
        let lost: Vec<_> = must.difference(&found).collect();
        assert!(lost.is_empty(), "{when}: {lost:?} are lost");
        let may: BTreeSet<String> = acknowledged.union(&writes.under_way).cloned().collect();
        let risen: Vec<_> = found.difference(&may).collect();
        assert!(risen.is_empty(), "{when}: {risen:?} had been refused, or lost before");
        writes.acknowledged = found.iter().cloned().collect();
        writes.durable = found;
        writes.under_way.clear();
        writes.may_be_lost = false;
        Ok(())
    }

    pub(crate) fn early(&self) -> Early {
        self.0.lock().unwrap().early
    }
}
