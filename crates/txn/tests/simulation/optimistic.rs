//! Optimistic transactions and plain writers append to the same lists, and the process or the power
//! fails at any change of the disk. Acknowledged appends are there, unfinished ones are whole or
//! absent, refused ones are absent, and no update is lost.

use crate::appends::{Appends, appended, counts, read, some_lists};
use crate::crashes::crash_at;
use crate::ledger::{FAMILIES, Key, PATH, options};
use crate::{each_seed_of, give_up, long, micros};
use karst_engine::io::{Crash, Priority, Simulation, sleep};
use karst_engine::{ColumnFamily, ErrorKind, FlushOptions, ReadOptions, Result, WriteBatch, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::{
    OptimisticTransactionDb, OptimisticTransactionDbOptions, OptimisticTransactionOptions, WritePolicy,
};
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);
/// Number of users with transactions, and without.
const USERS: [u64; 2] = [3, 2];

#[derive(Clone)]
struct Bench {
    db: OptimisticTransactionDb,
    families: Vec<ColumnFamily>,
    appends: Arc<Mutex<Appends>>,
    write_options: WriteOptions,
}

impl Bench {
    fn open(simulation: &Simulation, appends: &Arc<Mutex<Appends>>, sync: bool, seed: u64) -> Result<Bench> {
        // In some lives every key is in one bucket.
        let occ_lock_buckets = if seed.is_multiple_of(4) { 1 } else { 1 << 10 };
        let transactions = OptimisticTransactionDbOptions { occ_lock_buckets };
        let options = options(simulation.env());
        let db = OptimisticTransactionDb::open_cf(PATH, &options, &transactions, &FAMILIES)?;
        let families = FAMILIES.map(|name| db.column_family(name).expect("it is open")).to_vec();
        let write_options = if sync { WriteOptions::synced() } else { WriteOptions::new() };
        Ok(Bench { db, families, appends: appends.clone(), write_options })
    }

    fn begin(&self, name: &str, lists: impl IntoIterator<Item = Key>) {
        self.appends.lock().unwrap().begin(name, lists.into_iter().collect());
    }

    /// Records an outcome, `None` if the future was dropped. Returns true if the write was refused.
    fn ended(&self, outcome: Option<Result<()>>, name: &str) -> Result<bool> {
        let mut appends = self.appends.lock().unwrap();
        match outcome {
            None => Ok(false),
            Some(Ok(())) => {
                appends.acknowledge(name);
                Ok(false)
            }
            Some(Err(error)) if error.kind() == ErrorKind::Busy => {
                appends.refuse(name);
                Ok(true)
            }
            Some(Err(error)) => Err(error),
        }
    }

    /// Runs one transaction, whose commit may be dropped unfinished. Returns true if it was
    /// refused.
    async fn transact(&self, random: &mut Random, name: &str, dropped: bool) -> Result<bool> {
        let set_snapshot = random.one_in(3);
        let options = OptimisticTransactionOptions { set_snapshot };
        let mut transaction = self.db.begin(&self.write_options, &options);
        let lists = some_lists(random);
        for (family, key) in &lists {
            for (counters, one) in counts() {
                transaction.merge_cf(&self.families[counters], key, one)?;
            }
            let family = &self.families[*family];
            if random.one_in(4) {
                transaction.merge_cf(family, key, name)?;
                continue;
            }
            let list =
                transaction.get_for_update_cf_async(&ReadOptions::new(), family, key.as_bytes()).await?;
            transaction.put_cf(family, key, appended(list.as_deref(), name))?;
            if random.one_in(4) {
                sleep(self.db.env(), micros(random, 300)).await;
            }
        }
        if random.one_in(10) {
            transaction.rollback()?;
            return Ok(false);
        }
        self.begin(name, lists);
        let patience = if dropped { micros(random, 300) } else { LONG };
        let outcome = give_up(self.db.env(), patience, transaction.commit_async()).await;
        let refused = self.ended(outcome, name)?;
        if refused {
            transaction.rollback()?;
        }
        Ok(refused)
    }

    /// Writes without a transaction, and without reading the lists.
    async fn write(&self, random: &mut Random, name: &str) -> Result<bool> {
        let lists = some_lists(random);
        let mut batch = WriteBatch::new();
        for (family, key) in &lists {
            batch.merge_cf(&self.families[*family], key, name)?;
            for (counters, one) in counts() {
                batch.merge_cf(&self.families[counters], key, one)?;
            }
        }
        self.begin(name, lists);
        let patience = if random.one_in(6) { micros(random, 300) } else { LONG };
        let outcome = self.db.write_async(&self.write_options, &batch);
        self.ended(give_up(self.db.env(), patience, outcome).await, name)
    }

    /// Checks that the contents are allowed, and takes them as certain.
    async fn settle(&self, when: &str) -> Result<()> {
        let found = read(&self.db, &self.families).await?;
        self.appends.lock().unwrap().settle(&found, when);
        Ok(())
    }
}

/// Runs one life: open, work, close. Ends early, anywhere, if the power fails. Returns the number
/// of refused transactions.
async fn live(
    simulation: &Simulation,
    appends: &Arc<Mutex<Appends>>,
    steps: u64,
    sync: bool,
    seed: u64,
) -> u64 {
    let fs = simulation.fs().clone();
    let Ok(bench) = Bench::open(simulation, appends, sync, seed) else {
        assert!(fs.is_off(), "opening failed");
        return std::future::pending().await;
    };
    let mut random = Random::new(seed);
    let mut tasks = Vec::new();
    for user in 0..USERS[0] + USERS[1] {
        let (bench, fs, mut random) = (bench.clone(), fs.clone(), random.fork());
        tasks.push(simulation.env().spawn(Priority::Low, async move {
            let mut refused = 0;
            for n in 0..steps {
                let name = format!("{seed}.{user}.{n}");
                let outcome = match user < USERS[0] {
                    true => {
                        let dropped = random.one_in(6);
                        bench.transact(&mut random, &name, dropped).await
                    }
                    false => bench.write(&mut random, &name).await,
                };
                if outcome.is_err() && fs.is_off() {
                    return std::future::pending().await;
                }
                refused += u64::from(outcome.unwrap_or_else(|e| panic!("{name}: {e}")));
                if random.one_in(16) {
                    let asked = bench.db.flush_async(&FlushOptions::default()).await;
                    assert!(asked.is_ok() || fs.is_off(), "flush: {asked:?}");
                }
            }
            refused
        }));
    }
    let mut refused = 0;
    for task in tasks {
        refused += task.await.unwrap_or_else(|e| panic!("{e}"));
    }
    let closed = bench.db.close();
    assert!(closed.is_ok() || fs.is_off(), "close: {closed:?}");
    refused
}

/// Checks the contents, and continues to work if asked. `None` if the power failed meanwhile.
fn look(
    simulation: &Simulation,
    appends: &Arc<Mutex<Appends>>,
    goes_on: bool,
    seed: u64,
    when: &str,
) -> Option<()> {
    simulation.run(async {
        let looked = async {
            let bench = Bench::open(simulation, appends, true, seed)?;
            bench.settle(when).await?;
            if goes_on {
                let mut random = Random::new(seed);
                let name = when.replace(',', ";");
                let refused = bench.transact(&mut random, &name, false).await?;
                assert!(!refused, "{when}: nobody else wrote");
                bench.settle(when).await?;
            }
            bench.db.close()
        };
        match looked.await {
            Err(_) if simulation.fs().is_off() => std::future::pending().await,
            looked => looked.unwrap_or_else(|e| panic!("{when}: {e}")),
        }
    })
}

#[test]
fn a_crash_at_every_change_of_the_disk_leaves_optimistic_transactions_whole() {
    let (mut tried, refused) = (0, Cell::new(0));
    let step = if long() { 1 } else { 16 };
    let crash_users_at = |seed, at, crash| {
        let (appends, sync) = (Arc::default(), crash == Crash::Power);
        crash_at(
            seed,
            at,
            crash,
            async |simulation, steps, seed| {
                refused.set(refused.get() + live(simulation, &appends, steps, sync, seed).await);
            },
            |simulation, goes_on, seed, when| look(simulation, &appends, goes_on, seed, when),
        )
    };
    let name = "a_crash_at_every_change_of_the_disk_leaves_optimistic_transactions_whole";
    each_seed_of(&[WritePolicy::WriteCommitted], name, 6, 12, |seed| {
        for crash in [Crash::Power, Crash::Process] {
            let changes = crash_users_at(seed, u64::MAX / 2, crash);
            assert!(changes > 20, "{changes} changes only");
            for at in (seed * 5 % step..changes).step_by(step as usize) {
                crash_users_at(seed, at, crash);
                tried += 1;
            }
        }
    });
    println!("{tried} crashes, {} transactions were refused", refused.get());
    let one = crate::number("KARST_SEED").is_some();
    assert!(one || (tried > 50 && refused.get() > 100), "{tried} crashes, {} refused", refused.get());
}
