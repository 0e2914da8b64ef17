//! Many transactions want the same few keys: they wait for locks with and without a timeout, in
//! cycles, expire, are stolen from, are dropped half-way, prepared, committed and rolled back.
//!
//! Every granted lock is recorded, and a transaction that gets a deadlock error checks at once
//! which locks are held. In the end acknowledged writes are there once, refused ones are not, and
//! no lock is held.

use crate::appends::{Appends, Lists, appended, counts, read, some_lists};
use crate::ledger::{FAMILIES, Key, PATH, options};
use crate::{each_seed, give_up, micros};
use karst_engine::io::{Env, Priority, Simulation, sleep};
use karst_engine::{ColumnFamily, ErrorKind, FlushOptions, ReadOptions, Result, WriteBatch, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time limit; a wait without a timeout and a simulation that hangs would exceed it.
const AT_MOST: Duration = Duration::from_secs(2);

/// Number of times each case occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn add_all(&mut self, other: &Counts) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }
}

/// A lock that was granted to a transaction.
#[derive(Clone, Debug)]
struct Held {
    transaction: u64,
    key: Key,
    exclusive: bool,
    expires_at: Option<Duration>,
    /// The transaction is prepared or being committed, and can no longer be stolen from.
    leaves: bool,
}

impl Held {
    /// Returns true if others may take the lock, or have.
    fn is_stolen(&self, env: &Env) -> bool {
        !self.leaves && self.expires_at.is_some_and(|at| at <= env.now())
    }
}

#[derive(Clone)]
struct Bench {
    db: TransactionDb,
    env: Env,
    families: Vec<ColumnFamily>,
    appends: Arc<Mutex<Appends>>,
    held: Arc<Mutex<Vec<Held>>>,
    counts: Arc<Mutex<Counts>>,
}

impl Bench {
    fn open(env: &Env) -> Bench {
        let transactions = TransactionDbOptions {
            // No timeout: only transactions that detect deadlocks wait that long.
            transaction_lock_timeout: -1,
            default_lock_timeout: 2,
            write_policy: crate::policy(),
            ..TransactionDbOptions::default()
        };
        let db = TransactionDb::open_cf(PATH, &options(env), &transactions, &FAMILIES).unwrap();
        let families = FAMILIES.map(|name| db.db().column_family(name).expect("it is open")).to_vec();
        Bench {
            db,
            env: env.clone(),
            families,
            appends: Arc::default(),
            held: Arc::default(),
            counts: Arc::default(),
        }
    }

    fn count(&self, what: &'static str) {
        self.counts.lock().unwrap().add(what);
    }

    /// Returns the holders of a lock on `key`, and true if it is exclusive.
    fn holders(&self, (family, key): &Key) -> (Vec<u64>, bool) {
        let id = self.families[*family].id();
        let mut status = self.db.lock_status().into_iter();
        let lock = status.find(|lock| lock.family == id && lock.key == key.as_bytes());
        lock.map_or((Vec::new(), false), |lock| (lock.transactions, lock.exclusive))
    }

    /// Returns true if others hold a conflicting lock that cannot be stolen.
    fn is_held_for_long(&self, key: &Key, by: u64, exclusive: bool) -> bool {
        let (holders, held) = self.holders(key);
        let stolen: BTreeSet<u64> = self
            .held
            .lock()
            .unwrap()
            .iter()
            .filter(|held| held.is_stolen(&self.env))
            .map(|held| held.transaction)
            .collect();
        (held || exclusive) && holders.iter().any(|holder| *holder != by && !stolen.contains(holder))
    }

    /// Records a lock. No other transaction may have it, unless one of the two may be stolen from.
    fn hold(&self, new: Held) {
        let mut held = self.held.lock().unwrap();
        for other in held.iter().filter(|other| other.transaction != new.transaction && other.key == new.key)
        {
            let together = !(other.exclusive || new.exclusive);
            let stolen = other.is_stolen(&self.env) || new.is_stolen(&self.env);
            assert!(together || stolen, "two have a lock: {other:?} and {new:?}");
        }
        held.push(new);
    }

    /// Removes the locks of a transaction that has released them, or is about to.
    fn let_go(&self, transaction: u64) {
        self.held.lock().unwrap().retain(|held| held.transaction != transaction);
    }

    /// Marks a transaction as one that can no longer be stolen from.
    fn leaves(&self, transaction: u64) {
        let mut held = self.held.lock().unwrap();
        held.iter_mut().filter(|held| held.transaction == transaction).for_each(|held| held.leaves = true);
    }

    /// Checks that the reported deadlock is one: each transaction waits for a lock that the next
    /// one holds now.
    fn check_deadlock(&self, told: u64, key: &Key) {
        let found = self.db.get_deadlock_info_buffer().remove(0);
        assert!(!found.limit_exceeded, "{found:?}");
        let last = found.path.last().expect("a circle has somebody");
        assert_eq!((last.transaction, &last.waiting_key[..]), (told, key.1.as_bytes()), "{found}");
        for (index, info) in found.path.iter().enumerate() {
            let next = found.path[(index + 1) % found.path.len()].transaction;
            let family = self.families.iter().position(|family| family.id() == info.family).unwrap();
            let key = (family, String::from_utf8(info.waiting_key.clone()).unwrap());
            let (holders, exclusive) = self.holders(&key);
            assert!(
                holders.contains(&next) && (exclusive || info.exclusive),
                "{next} is not waited for, {holders:?} hold {key:?}: {found}"
            );
        }
    }

    /// Locks one list and appends the name. Returns an error that a transaction may meet here.
    async fn append(&self, work: &mut Work, key: &Key, name: &str, how: u64) -> Result<()> {
        let family = &self.families[key.0];
        let (id, key_bytes, transaction) = (work.id, key.1.as_bytes(), &mut work.transaction);
        let hold = |exclusive| Held {
            transaction: id,
            key: key.clone(),
            exclusive,
            expires_at: work.expires_at,
            leaves: false,
        };
        let must_wait = self.is_held_for_long(key, id, how > 0);
        let written = async {
            if how == 2 {
                return transaction.merge_cf_async(family, key_bytes, name.as_bytes()).await;
            }
            let read = ReadOptions::new();
            let exclusive = how == 1;
            let list = transaction.get_for_update_cf_async(&read, family, key_bytes, exclusive, true).await?;
            self.hold(hold(exclusive));
            let list = appended(list.as_deref(), name);
            transaction.put_cf_async(family, key_bytes, list.as_bytes()).await
        };
        let outcome = written.await;
        match &outcome {
            Ok(()) => {
                self.hold(hold(true));
                if must_wait {
                    self.count("waits that ended well");
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::Deadlock => {
                    assert!(work.detects, "{error}");
                    self.check_deadlock(id, key);
                    self.count("deadlocks");
                }
                ErrorKind::TimedOut => {
                    assert!(!work.is_endless, "{error}");
                    self.count("timeouts");
                }
                ErrorKind::Busy => {
                    assert!(work.transaction.snapshot().is_some(), "{error}");
                    self.count("conflicts with a snapshot");
                }
                ErrorKind::Expired => {
                    assert!(work.is_expired(&self.env), "{error}");
                    self.count("expired while they worked");
                }
                _ => panic!("{error}"),
            },
        }
        outcome
    }

    fn begin(&self, random: &mut Random) -> Work {
        let detects = random.one_in(2);
        let is_endless = detects && random.one_in(2);
        let expiration = if random.one_in(3) { 1 + random.below(4) as i64 } else { -1 };
        let options = TransactionOptions {
            set_snapshot: random.one_in(6),
            deadlock_detect: detects,
            lock_timeout: if is_endless { -1 } else { random.below(6) as i64 },
            expiration,
            ..TransactionOptions::default()
        };
        let now = self.env.now();
        let expires_at = u64::try_from(expiration).ok().map(|span| now + Duration::from_millis(span));
        let write = WriteOptions { sync: random.one_in(4), ..WriteOptions::new() };
        let transaction = self.db.begin(&write, &options);
        let id = transaction.id().expect("it has begun");
        Work { transaction, id, expires_at, detects, is_endless }
    }

    /// Runs one transaction from beginning to end.
    async fn transact(&self, random: &mut Random, name: &str) {
        let mut work = self.begin(random);
        let mut lists = BTreeSet::new();
        let id = work.id;
        for key in some_lists(random) {
            if random.one_in(3) {
                sleep(&self.env, micros(random, 2500)).await;
            }
            // Some locks are released by a rollback to a save point; the list is then not appended
            // to.
            let save_point = random.one_in(3) && work.transaction.set_save_point().is_ok();
            let how = random.below(3);
            let patience = if random.one_in(6) { micros(random, 1500) } else { AT_MOST };
            let appending = self.append(&mut work, &key, name, how);
            match give_up(&self.env, patience, appending).await {
                None => self.count("waits that were dropped"),
                // The transaction may continue with the locks it has.
                Some(Err(_)) if random.one_in(2) => {}
                Some(Err(_)) => return self.end_badly(work, random).await,
                Some(Ok(())) if save_point && random.one_in(2) => {
                    // Meanwhile others begin to wait for the lock, and this one for theirs.
                    sleep(&self.env, micros(random, 1000)).await;
                    self.held.lock().unwrap().retain(|held| held.transaction != id || held.key != key);
                    if work.transaction.rollback_to_save_point().is_err() {
                        return self.end_badly(work, random).await;
                    }
                    self.count("save points");
                }
                Some(Ok(())) => drop(lists.insert(key)),
            }
        }
        // A transaction that has a list has its counters, unless both were stolen.
        for (_, key) in &lists {
            for (counters, one) in counts() {
                let family = &self.families[counters];
                if work.transaction.merge_cf_async(family, key.as_bytes(), &one).await.is_err() {
                    return self.end_badly(work, random).await;
                }
            }
        }
        match random.below(8) {
            0 => self.end_badly(work, random).await,
            1 | 2 => self.prepare(work, random, name, lists).await,
            3 => {
                // Recorded as released first, because the moment of the commit's release cannot be
                // seen.
                self.let_go(id);
                let expired = work.is_expired(&self.env);
                self.appends.lock().unwrap().begin(name, lists);
                let patience = micros(random, 400);
                match give_up(&self.env, patience, work.transaction.commit_async()).await {
                    Some(outcome) => self.ended(outcome, expired, name),
                    // The commit continues after it was dropped.
                    None => {
                        assert!(!expired, "{name} was not refused at once");
                        self.appends.lock().unwrap().promise(name);
                        self.count("commits that were dropped");
                    }
                }
                self.count_stolen(&work);
            }
            _ => self.commit(work, name, lists).await,
        }
    }

    async fn commit(&self, mut work: Work, name: &str, lists: BTreeSet<Key>) {
        let expired = work.is_expired(&self.env);
        self.appends.lock().unwrap().begin(name, lists);
        if !expired {
            self.leaves(work.id);
        }
        let outcome = work.transaction.commit_async().await;
        self.let_go(work.id);
        self.ended(outcome, expired, name);
        self.count_stolen(&work);
    }

    /// Checks that a commit succeeds unless its transaction had expired when it began.
    fn ended(&self, outcome: Result<()>, expired: bool, name: &str) {
        match outcome {
            Ok(()) => {
                assert!(!expired, "{name} had expired, and was committed");
                self.appends.lock().unwrap().acknowledge(name);
                self.count("commits");
            }
            Err(error) => {
                assert!(expired && error.kind() == ErrorKind::Expired, "{name}: {error}");
                self.appends.lock().unwrap().refuse(name);
            }
        }
    }

    /// Prepares a transaction, which cannot be stolen from afterwards, and decides it.
    async fn prepare(&self, mut work: Work, random: &mut Random, name: &str, lists: BTreeSet<Key>) {
        let id = work.id;
        let expired = work.is_expired(&self.env);
        let named = work.transaction.set_name(name);
        if expired {
            assert_eq!(named.map_err(|e| e.kind()), Err(ErrorKind::Expired), "{name}");
            return self.end_badly(work, random).await;
        }
        named.unwrap();
        self.leaves(id);
        let patience = if random.one_in(3) { micros(random, 400) } else { AT_MOST };
        let dropped = give_up(&self.env, patience, work.transaction.prepare_async()).await;
        let in_hand = dropped.map(|prepared| prepared.unwrap_or_else(|e| panic!("{name}: {e}"))).is_some();
        sleep(&self.env, micros(random, 6000)).await;
        if work.is_expired(&self.env) {
            self.count("prepared for longer than they would have lasted");
        }
        let mut transaction = work.transaction;
        if !in_hand || random.one_in(2) {
            // A transaction whose future was dropped is retrieved by name once it is prepared.
            drop(transaction);
            transaction = loop {
                match self.db.get_transaction_by_name(name) {
                    Ok(transaction) => break transaction,
                    Err(error) => assert!(!in_hand && error.kind() == ErrorKind::Busy, "{name}: {error}"),
                }
                sleep(&self.env, Duration::from_micros(50)).await;
            };
        }
        assert_eq!(transaction.state(), Some(TransactionState::Prepared), "{name}");
        let commit = random.one_in(2);
        let outcome = match commit {
            true => {
                self.appends.lock().unwrap().begin(name, lists);
                transaction.commit_async().await
            }
            false => transaction.rollback_async().await,
        };
        outcome.unwrap_or_else(|e| panic!("{name}: {e}"));
        self.let_go(id);
        if commit {
            self.appends.lock().unwrap().acknowledge(name);
        }
        self.count("prepared");
    }

    /// Ends a transaction by rollback or drop.
    async fn end_badly(&self, mut work: Work, random: &mut Random) {
        self.count_stolen(&work);
        self.let_go(work.id);
        if random.one_in(2) {
            work.transaction.rollback_async().await.unwrap();
        }
    }

    fn count_stolen(&self, work: &Work) {
        if work.transaction.state() == Some(TransactionState::LocksStolen) {
            assert!(work.is_expired(&self.env), "stolen from a transaction that has not expired");
            self.count("stolen");
        }
    }

    /// Writes to one list or several without a transaction.
    async fn write(&self, random: &mut Random, name: &str) {
        let lists = some_lists(random);
        let mut batch = WriteBatch::new();
        for key in &lists {
            batch.merge_cf(&self.families[key.0], &key.1, name).unwrap();
            for (counters, one) in counts() {
                batch.merge_cf(&self.families[counters], &key.1, one).unwrap();
            }
        }
        self.appends.lock().unwrap().begin(name, lists.into_iter().collect());
        let patience = if random.one_in(4) { micros(random, 400) } else { AT_MOST };
        let options = WriteOptions { sync: random.one_in(4), ..WriteOptions::new() };
        match give_up(&self.env, patience, self.db.write_async(&options, batch)).await {
            // The write continues, and may or may not get its locks.
            None => self.count("plain writes that were dropped"),
            Some(Ok(())) => self.appends.lock().unwrap().acknowledge(name),
            Some(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                self.appends.lock().unwrap().refuse(name);
                self.count("plain writes that timed out");
            }
        }
    }

    /// Reads all lists at one snapshot.
    async fn lists(&self) -> Lists {
        read(self.db.db(), &self.families).await.unwrap()
    }

    /// Checks that a reader sees every write acknowledged when it began, and none by half.
    async fn look(&self, when: &str) {
        let must = self.appends.lock().unwrap().acknowledged();
        let found = self.lists().await;
        let appends = self.appends.lock().unwrap().clone();
        appends.check(&found, &must, when);
    }
}

/// An unfinished transaction.
struct Work {
    transaction: Transaction,
    id: u64,
    expires_at: Option<Duration>,
    detects: bool,
    is_endless: bool,
}

impl Work {
    fn is_expired(&self, env: &Env) -> bool {
        self.expires_at.is_some_and(|at| at <= env.now())
    }
}

/// Runs all workers to their end. Checks that no lock is left, and that all required writes are
/// there.
async fn contend(env: &Env, seed: u64) -> Counts {
    let bench = Bench::open(env);
    let begun = env.now();
    let mut random = Random::new(seed);
    let mut tasks = Vec::new();
    for user in 0..7 {
        let (bench, mut random) = (bench.clone(), random.fork());
        tasks.push(env.spawn(Priority::Low, async move {
            for n in 0..12 {
                let name = format!("{user}.{n}");
                match user {
                    0 => bench.write(&mut random, &name).await,
                    _ => bench.transact(&mut random, &name).await,
                }
                sleep(&bench.env, micros(&mut random, 500)).await;
            }
        }));
    }
    let reader = bench.clone();
    tasks.push(env.spawn(Priority::Low, async move {
        for n in 0..12 {
            reader.look(&format!("seed {seed}, meanwhile")).await;
            if n % 4 == 3 {
                reader.db.db().flush_async(&FlushOptions::default()).await.unwrap();
            }
            sleep(&reader.env, micros(&mut random, 5000)).await;
        }
    }));
    for task in tasks {
        task.await.unwrap_or_else(|e| panic!("{e}"));
    }
    // Transactions that were dropped complete in the background.
    while !bench.db.lock_status().is_empty() && env.now() < begun + AT_MOST {
        sleep(env, Duration::from_millis(1)).await;
    }
    assert_eq!(bench.db.lock_status(), []);
    assert!(env.now() < begun + AT_MOST, "it took {:?}", env.now() - begun);
    assert!(bench.held.lock().unwrap().is_empty(), "{:?}", bench.held);
    let found = bench.lists().await;
    bench.appends.lock().unwrap().check_at_end(&found, &format!("seed {seed}, at the end"));
    bench.db.db().close().unwrap();
    let counts = bench.counts.lock().unwrap();
    counts.clone()
}

/// Returns the counts of a seed's cases, and a number that summarizes the whole history.
fn history(seed: u64) -> (Counts, (u64, u64)) {
    let simulation = Simulation::new(seed);
    simulation.set_most_steps(1_000_000);
    let env = simulation.env().clone();
    let counts = simulation.run(contend(&env, seed)).expect("the power is on");
    (counts, simulation.history())
}

#[test]
fn transactions_that_want_the_same_keys_come_to_an_end_and_lose_nothing() {
    let mut total = Counts::default();
    each_seed("transactions_that_want_the_same_keys_come_to_an_end_and_lose_nothing", 100, 2000, |seed| {
        let (counts, summed) = history(seed);
        if seed < 2 {
            assert_eq!((counts.clone(), summed), history(seed), "the same seed, and another history");
        }
        total.add_all(&counts);
    });
    println!("{total:?}");
    for what in [
        "commits",
        "prepared",
        "prepared for longer than they would have lasted",
        "waits that ended well",
        "waits that were dropped",
        "commits that were dropped",
        "timeouts",
        "plain writes that timed out",
        "deadlocks",
        "stolen",
        "save points",
        "conflicts with a snapshot",
    ] {
        let one = crate::number("KARST_SEED").is_some();
        assert!(one || total.0.get(what).is_some_and(|count| *count > 5), "too few {what}: {total:?}");
    }
}

/// Returns the number of times that both of a pair were off, although each transaction leaves one
/// on.
async fn switch_off(env: &Env, seed: u64, for_update: bool) -> u64 {
    let bench = Bench::open(env);
    let db = &bench.db;
    let mut random = Random::new(seed);
    for key in ["x", "y"] {
        db.put_async(key.as_bytes(), b"on").await.unwrap();
    }
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (db, env, mut random) = (db.clone(), env.clone(), random.fork());
        tasks.push(env.clone().spawn(Priority::Low, async move {
            let mut skews = 0;
            for _ in 0..10 {
                let options = TransactionOptions {
                    set_snapshot: !for_update,
                    deadlock_detect: true,
                    ..TransactionOptions::default()
                };
                let mut transaction = db.begin(&WriteOptions::new(), &options);
                let read = ReadOptions { snapshot: transaction.snapshot().cloned(), ..ReadOptions::new() };
                let mut keys = ["x", "y"];
                keys.swap(0, random.index(2));
                let outcome: Result<u64> = async {
                    let mut off = Vec::new();
                    for key in keys.map(str::as_bytes) {
                        let value = match for_update {
                            true => transaction.get_for_update_async(&read, key).await?,
                            false => transaction.get_async(&read, key).await?,
                        };
                        if value.as_deref() == Some(b"off") {
                            off.push(key);
                        }
                    }
                    match off[..] {
                        [] => transaction.put_async(keys[1].as_bytes(), b"off").await?,
                        [off, ..] => transaction.put_async(off, b"on").await?,
                    }
                    transaction.commit_async().await.map(|()| u64::from(off.len() > 1))
                }
                .await;
                match outcome {
                    Ok(skew) => skews += skew,
                    Err(e) => assert!(matches!(e.kind(), ErrorKind::Deadlock | ErrorKind::Busy), "{e}"),
                }
                drop(transaction);
                sleep(&env, micros(&mut random, 300)).await;
            }
            skews
        }));
    }
    let mut skews = 0;
    for task in tasks {
        skews += task.await.unwrap_or_else(|e| panic!("{e}"));
    }
    assert_eq!(db.lock_status(), []);
    db.db().close().unwrap();
    skews
}

/// Reads for update prevent write skew, reads at a snapshot do not.
#[test]
fn write_skew_comes_of_plain_reads_only() {
    let mut skews = 0;
    each_seed("write_skew_comes_of_plain_reads_only", 10, 400, |seed| {
        for for_update in [true, false] {
            let simulation = Simulation::new(seed);
            simulation.set_most_steps(1_000_000);
            let env = simulation.env().clone();
            let seen = simulation.run(switch_off(&env, seed, for_update)).expect("the power is on");
            assert!(!for_update || seen == 0, "{seen} transactions found both off");
            skews += seen;
        }
    });
    println!("{skews} transactions found both off, having read without locks");
    assert!(skews > 0 || crate::number("KARST_SEED").is_some(), "what was to be seen was not");
}
