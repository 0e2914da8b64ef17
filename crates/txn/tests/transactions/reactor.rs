//! Transactions as tasks of one reactor: a wait for a lock, or for the log, blocks the task, never
//! the thread.

use karst_engine::io::{
    Disturb, Disturbance, DisturbedFileSystem, Env, JoinHandle, PosixFileSystem, Reactor, yield_now,
};
use karst_engine::{ErrorKind, Options, ReadOptions, WriteOptions};
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

/// A disk that blocks writes of a log while the flag is set.
#[derive(Debug, Default)]
struct Holding(AtomicBool);

impl Disturb for Holding {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        while path.extension().is_some_and(|of| of == "log") && self.0.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

struct Bench {
    disk: Arc<DisturbedFileSystem<Holding>>,
    db: TransactionDb,
    reactor: Reactor,
    /// Number of rounds of another task on the reactor's thread.
    rounds: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(write_policy: WritePolicy) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DisturbedFileSystem::new(Arc::new(PosixFileSystem), Holding::default()));
        let env = Env::builder().file_system(disk.clone()).build();
        let options = Options::new().env(env).db(|db| db.create_if_missing = true);
        let transactions = TransactionDbOptions { write_policy, ..TransactionDbOptions::default() };
        let db = TransactionDb::open(directory.path(), &options, &transactions).unwrap();
        let reactor = Reactor::builder(db.db().env()).threads(1).build().unwrap();
        Bench { disk, db, reactor, rounds: Arc::default(), _directory: directory }
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

    fn wait(&self) -> Arc<Wait> {
        Arc::new(Wait { rounds: self.rounds.clone(), ..Wait::default() })
    }

    /// Waits for tasks while another task runs round after round on the same thread.
    fn join_beside_another<T: Send + 'static>(&self, tasks: Vec<JoinHandle<T>>) -> Vec<T> {
        let over = Arc::new(AtomicBool::new(false));
        let other = {
            let (rounds, over) = (self.rounds.clone(), over.clone());
            self.spawn(async move {
                while !over.load(SeqCst) {
                    rounds.fetch_add(1, SeqCst);
                    yield_now().await;
                }
            })
        };
        let values = tasks.into_iter().map(|task| task.join().unwrap()).collect();
        over.store(true, SeqCst);
        other.join().unwrap();
        values
    }
}

/// Duration of a wait, in rounds of the other task.
#[derive(Debug, Default)]
struct Wait {
    rounds: Arc<AtomicU64>,
    /// Number of rounds at the first pending poll, and at the end.
    began: OnceLock<u64>,
    ended: OnceLock<u64>,
}

impl Wait {
    /// Runs `future`, which must wait.
    async fn of<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            let now = self.rounds.load(SeqCst);
            match polled {
                Poll::Ready(_) => self.ended.set(now).unwrap(),
                Poll::Pending => drop(self.began.get_or_init(|| now)),
            }
            polled
        })
        .await
    }

    /// Returns the rounds made during the wait, until now or its end.
    fn made(&self) -> u64 {
        let now = self.ended.get().copied().unwrap_or_else(|| self.rounds.load(SeqCst));
        self.began.get().map_or(0, |began| now - began)
    }

    /// Lets enough rounds pass during the wait. Called by the task that ends the wait, which must
    /// not end before.
    async fn lasts(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.made() < ROUNDS {
            assert!(Instant::now() < end, "nobody waits, or nobody comes round meanwhile: {self:?}");
            yield_now().await;
        }
        assert!(self.ended.get().is_none(), "it did not wait: {self:?}");
    }
}

/// More rounds than a blocked thread could make.
const ROUNDS: u64 = 1000;

const POLICIES: [WritePolicy; 2] = [WritePolicy::WriteCommitted, WritePolicy::WritePrepared];

#[test]
fn who_waits_for_a_lock_holds_up_nobody_on_its_thread() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let mut holder = bench.begin(TransactionOptions::default());
        holder.put("a", "1").unwrap();
        let wait = bench.wait();
        let waiting = {
            let (mut waiter, wait) = (bench.begin(TransactionOptions::default()), wait.clone());
            bench.spawn(async move {
                let read = ReadOptions::new();
                let found = wait.of(waiter.get_for_update_async(&read, b"a")).await.unwrap();
                assert_eq!(waiter.get_async(&read, b"a").await.unwrap().as_deref(), found.as_deref());
                waiter.put_async(b"b", b"2").await.unwrap();
                waiter.commit_async().await.unwrap();
                found.map(|value| value.to_vec())
            })
        };
        // The holder commits on that thread too, after enough rounds of the other task.
        let committing = bench.spawn(async move {
            wait.lasts().await;
            holder.commit_async().await.unwrap();
            None
        });
        assert_eq!(bench.join_beside_another(vec![waiting, committing]), [Some(b"1".to_vec()), None]);
        assert_eq!(bench.db.get("b").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(bench.db.lock_status().is_empty());
    }
}

/// Repeats `waited` with longer times, until enough rounds were made during the wait, so that the
/// machine's speed does not matter. `waited` returns the number of rounds.
fn others_come_round(waited: impl Fn(i64) -> u64) {
    let made: Vec<_> = (0..7).map(|round| waited(500 << round)).take_while(|made| *made <= ROUNDS).collect();
    assert!(made.len() < 7, "others came round {made:?} times");
}

#[test]
fn time_outs_expiry_and_deadlocks_come_to_tasks() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        let mut holder = bench.begin(TransactionOptions::default());
        holder.put("a", "1").unwrap();
        others_come_round(|span_ms| {
            let impatient = TransactionOptions { lock_timeout: span_ms, ..TransactionOptions::default() };
            let wait = bench.wait();
            let refused = {
                let (mut transaction, wait) =
                    (bench.db.begin(&WriteOptions::new(), &impatient), wait.clone());
                bench.spawn(async move { wait.of(transaction.put_async(b"a", b"2")).await })
            };
            let refused = bench.join_beside_another(vec![refused]).remove(0).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
            wait.made()
        });
        drop(holder);

        // Until the holder has expired.
        others_come_round(|span_ms| {
            let soon = TransactionOptions { expiration: span_ms, ..TransactionOptions::default() };
            let mut holder = bench.begin(soon);
            if let Err(expired) = holder.put("a", "1") {
                assert_eq!(expired.kind(), ErrorKind::Expired, "{expired}");
                return 0;
            }
            let wait = bench.wait();
            let thief = {
                let (mut thief, wait) = (bench.begin(TransactionOptions::default()), wait.clone());
                bench.spawn(async move {
                    wait.of(thief.put_async(b"a", b"3")).await?;
                    thief.commit_async().await
                })
            };
            bench.join_beside_another(vec![thief]).remove(0).unwrap();
            let expired =
                bench.spawn(async move { holder.commit_async().await }).join().unwrap().unwrap_err();
            assert_eq!(expired.kind(), ErrorKind::Expired, "{expired}");
            assert_eq!(bench.db.get("a").unwrap().as_deref(), Some(&b"3"[..]));
            wait.made()
        });

        let has_first = Arc::new(AtomicU64::new(0));
        let waits = [bench.wait(), bench.wait()];
        let circle = [(b"x", 0), (b"y", 1)].map(|(first, number)| {
            let waits = waits.clone();
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
                // The transaction that gets the deadlock gives up after enough rounds, and the
                // other one continues.
                if let Err(told) = waits[number].of(transaction.put_async(second, b"1")).await {
                    waits[1 - number].lasts().await;
                    return Err(told);
                }
                transaction.commit_async().await
            })
        });
        let outcomes = bench.join_beside_another(circle.into());
        let told: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(told.len() == 1 && told[0].kind() == ErrorKind::Deadlock, "{told:?}");
        assert_eq!(bench.db.get_deadlock_info_buffer()[0].path.len(), 2);
        assert!(bench.db.lock_status().is_empty());
    }
}

#[test]
fn who_waits_for_the_log_holds_up_nobody_on_its_thread() {
    for policy in POLICIES {
        let bench = Bench::new(policy);
        bench.db.put("a", "before").unwrap();
        for rolls_back in [false, true] {
            let waits = [bench.wait(), bench.wait()];
            let mut transaction = bench.begin(TransactionOptions::default());
            transaction.set_name("one").unwrap();
            let ending = {
                let (disk, waits) = (bench.disk.clone(), waits.clone());
                bench.spawn(async move {
                    transaction.put_async(b"a", b"after").await.unwrap();
                    disk.between().0.store(true, SeqCst);
                    waits[0].of(transaction.prepare_async()).await.unwrap();
                    disk.between().0.store(true, SeqCst);
                    match rolls_back {
                        false => waits[1].of(transaction.commit_async()).await.unwrap(),
                        true => waits[1].of(transaction.rollback_async()).await.unwrap(),
                    };
                })
            };
            // Each is released after enough rounds.
            let disk = bench.disk.clone();
            let letting_go = bench.spawn(async move {
                for wait in waits {
                    wait.lasts().await;
                    disk.between().0.store(false, SeqCst);
                }
            });
            bench.join_beside_another(vec![ending, letting_go]);
            assert_eq!(bench.db.get("a").unwrap().as_deref(), Some(&b"after"[..]));
        }
    }
}
