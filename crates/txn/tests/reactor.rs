//! Transactions as tasks of one reactor: a wait for a lock holds up the task, never the thread.

use karst_engine::io::{JoinHandle, Reactor, sleep, yield_now};
use karst_engine::{ErrorKind, Options, ReadOptions, WriteOptions};
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

struct Bench {
    db: TransactionDb,
    reactor: Reactor,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(write_policy: WritePolicy) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().db(|db| db.create_if_missing = true);
        let transactions = TransactionDbOptions { write_policy, ..TransactionDbOptions::default() };
        let db = TransactionDb::open(directory.path(), &options, &transactions).unwrap();
        let reactor = Reactor::builder(db.db().env()).build().unwrap();
        Bench { db, reactor, _directory: directory }
    }

    fn begin(&self, options: TransactionOptions) -> Transaction {
        let patient = TransactionOptions { lock_timeout: 60_000, ..options };
        self.db.begin(&WriteOptions::new(), &patient)
    }

    fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.reactor.spawn(move || task)
    }

    /// Waits for a task. Meanwhile another one comes round on the same thread, again and again.
    fn join_beside_another<T: Send + 'static>(&self, waiting: JoinHandle<T>) -> T {
        let (rounds, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let other = {
            let (rounds, over) = (rounds.clone(), over.clone());
            self.spawn(async move {
                while !over.load(SeqCst) {
                    rounds.fetch_add(1, SeqCst);
                    yield_now().await;
                }
            })
        };
        let end = Instant::now() + Duration::from_secs(60);
        while rounds.load(SeqCst) < 1000 {
            assert!(Instant::now() < end, "it does not come round");
            std::thread::yield_now();
        }
        let value = waiting.join().unwrap();
        over.store(true, SeqCst);
        other.join().unwrap();
        value
    }
}

const POLICIES: [WritePolicy; 2] = [WritePolicy::WriteCommitted, WritePolicy::WritePrepared];

#[test]
fn who_waits_for_a_lock_holds_up_nobody_on_its_thread() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let mut holder = bench.begin(TransactionOptions::default());
        holder.put("a", "1").unwrap();
        let waiting = {
            let mut waiter = bench.begin(TransactionOptions::default());
            bench.spawn(async move {
                let read = ReadOptions::new();
                let found = waiter.get_for_update_async(&read, b"a").await.unwrap();
                assert_eq!(waiter.get_async(&read, b"a").await.unwrap().as_deref(), found.as_deref());
                waiter.put_async(b"b", b"2").await.unwrap();
                waiter.commit_async().await.unwrap();
                found.map(|value| value.to_vec())
            })
        };
        // The holder commits on that thread, too, after a while.
        let committing = {
            let env = bench.db.db().env().clone();
            bench.spawn(async move {
                sleep(&env, Duration::from_millis(30)).await;
                holder.commit_async().await.unwrap();
            })
        };
        assert_eq!(bench.join_beside_another(waiting), Some(b"1".to_vec()));
        committing.join().unwrap();
        assert_eq!(bench.db.get("b").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(bench.db.lock_status().is_empty());
    }
}

#[test]
fn time_outs_expiry_and_deadlocks_come_to_tasks() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let mut holder = bench.begin(TransactionOptions::default());
        holder.put("a", "1").unwrap();
        let impatient = TransactionOptions { lock_timeout: 5, ..TransactionOptions::default() };
        let refused = {
            let mut transaction = bench.db.begin(&WriteOptions::new(), &impatient);
            bench.spawn(async move { transaction.put_async(b"a", b"2").await })
        };
        let refused = bench.join_beside_another(refused).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
        drop(holder);

        // Until the holder has expired.
        let soon = TransactionOptions { expiration: 1000, ..TransactionOptions::default() };
        let mut holder = bench.begin(soon);
        holder.put("a", "1").unwrap();
        let thief = {
            let mut thief = bench.begin(TransactionOptions::default());
            bench.spawn(async move {
                thief.put_async(b"a", b"3").await?;
                thief.commit_async().await
            })
        };
        bench.join_beside_another(thief).unwrap();
        let expired = bench.spawn(async move { holder.commit_async().await }).join().unwrap().unwrap_err();
        assert_eq!(expired.kind(), ErrorKind::Expired, "{expired}");
        assert_eq!(bench.db.get("a").unwrap().as_deref(), Some(&b"3"[..]));

        let has_first = Arc::new(AtomicU64::new(0));
        let circle = [b"x", b"y"].map(|first| {
            let detecting = TransactionOptions { deadlock_detect: true, ..TransactionOptions::default() };
            let (mut transaction, has_first) = (bench.begin(detecting), has_first.clone());
            bench.spawn(async move {
                transaction.put_async(first, b"1").await.unwrap();
                has_first.fetch_add(1, SeqCst);
                let end = Instant::now() + Duration::from_secs(60);
                while has_first.load(SeqCst) < 2 && Instant::now() < end {
                    yield_now().await;
                }
                let second = if first == b"x" { b"y" } else { b"x" };
                // Who is told gives up, and the other one goes on.
                transaction.put_async(second, b"1").await?;
                transaction.commit_async().await
            })
        });
        let outcomes = circle.map(|task| bench.join_beside_another(task));
        let told: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(told.len() == 1 && told[0].kind() == ErrorKind::Deadlock, "{told:?}");
        assert_eq!(bench.db.get_deadlock_info_buffer()[0].path.len(), 2);
        assert!(bench.db.lock_status().is_empty());
    }
}
