//! Loom models of a few transactions that lock, wait, release, end and are stolen from, with the
//! real locks, graph and holders. Loom reports a wait that never ends as a deadlock. Run as the
//! crate's head says.
//!
//! Each of these faults was planted, and a model fails:
//!
//! - A waiter listens, enters the graph, or is counted, after the stripe's mutex is released; is
//!   counted out before it has left the graph; enters after the search for cycles; is not counted,
//!   or does not leave.
//! - An unlock notifies before it has released; a downgrade does not notify; either leaves the
//!   edges of the waiters; a joining holder is not added to them.
//! - A failed end does not notify, or notifies without the mutex.
//! - A holder's state is changed by a load and a store; a thief takes the second lock of a holder
//!   as held, or steals in any state.
//!
//! The atomics are all `Relaxed`, so no ordering can be weakened.

use super::*;
use crate::TransactionState;
use loom::cell::UnsafeCell;
use loom::thread;
use std::task::{Context, Wake, Waker};

/// Bounded, because with the events' own locks some models take very long otherwise.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A transaction's id is one more than its index in `holders`.
struct Shared {
    locks: Locks,
    holders: Vec<Arc<Holder>>,
    /// Data that the locks on the two keys guard.
    values: [UnsafeCell<()>; 2],
}

const KEYS: [&[u8]; 2] = [b"0", b"1"];
/// The clock is past this; at `ZERO` it is not.
const EXPIRED: Option<Duration> = Some(Duration::from_nanos(1));

impl Shared {
    fn new<const N: usize>(expire_at: [Option<Duration>; N]) -> Arc<Self> {
        let locks = Locks::new(Env::builder().seed(1).build(), 2, None, 1);
        // Created now, because a family's map is created under a lock that loom does not see.
        let map = locks.map(0);
        let [first, second] = KEYS.map(|key| std::ptr::from_ref(locks.stripe(&map, key)));
        assert_ne!(first, second, "with this seed they are of one stripe");
        let holders =
            (1..).zip(expire_at).map(|(id, expires_at)| Arc::new(Holder::new(id, expires_at))).collect();
        Arc::new(Self { locks, holders, values: Default::default() })
    }

    /// Takes a lock without a timeout, or fails with a deadlock.
    async fn ask(&self, who: usize, key: usize, exclusive: bool, detects: bool) -> Result<()> {
        let request = Request {
            family: 0,
            key: KEYS[key],
            exclusive,
            timeout: None,
            detect_depth: detects.then_some(50),
        };
        self.locks.lock(Caller::Task, &self.holders[who], request).await
    }

    /// Takes an exclusive lock, and waits for it.
    fn lock(&self, who: usize, key: usize) -> Result<()> {
        wait(self.ask(who, key, true, true))
    }

    fn unlock(&self, who: usize, key: usize) {
        self.locks.unlock(&self.holders[who], 0, KEYS[key]);
    }

    /// Called by the lock's holder only; loom reports concurrent calls.
    fn write(&self, key: usize) {
        self.values[key].with_mut(|_| ());
    }

    fn spawn<T: 'static>(self: &Arc<Self>, body: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let shared = self.clone();
        thread::spawn(move || body(&shared))
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

// Not loom's `block_on`, because it prints a line for each wait.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn loom_who_waits_is_rung() {
    explore(|| {
        let shared = Shared::new([None, None]);
        let other = shared.spawn(|shared| {
            wait(shared.ask(1, 0, true, false)).unwrap();
            shared.write(0);
            shared.unlock(1, 0);
        });
        wait(shared.ask(0, 0, true, false)).unwrap();
        shared.write(0);
        shared.unlock(0, 0);
        other.join().unwrap();
        assert!(shared.locks.status().is_empty());
    });
}

#[test]
fn loom_who_waits_for_a_shared_lock_is_rung_when_it_is_one() {
    explore(|| {
        let shared = Shared::new([None, None]);
        shared.lock(0, 0).unwrap();
        let other = shared.spawn(|shared| wait(shared.ask(1, 0, false, false)).unwrap());
        shared.locks.downgrade(&shared.holders[0], 0, KEYS[0]);
        other.join().unwrap();
        assert_eq!(shared.locks.status()[0].transactions, [1, 2]);
    });
}

#[test]
fn loom_of_two_who_wait_for_each_other_one_is_told() {
    explore(|| {
        let shared = Shared::new([None, None]);
        (0..2).for_each(|who| shared.lock(who, who).unwrap());
        let cross = |shared: &Shared, who: usize| {
            let told = shared.lock(who, 1 - who).is_err();
            if !told {
                shared.write(1 - who);
                shared.unlock(who, 1 - who);
            }
            shared.unlock(who, who);
            told
        };
        let other = shared.spawn(move |shared| cross(shared, 1));
        let told = cross(&shared, 0);
        assert!(told != other.join().unwrap());
        assert!(shared.locks.status().is_empty() && shared.locks.graph.waiting_count() == 0);
    });
}

/// One waits for a key exclusively; another joins the key's shared lock, and then waits for the
/// first.
#[test]
fn loom_who_joins_a_shared_lock_is_waited_for() {
    explore(|| {
        let shared = Shared::new([None, None, None]);
        shared.lock(0, 0).unwrap();
        wait(shared.ask(2, 1, false, true)).unwrap();
        let other = shared.spawn(|shared| {
            let told = shared.lock(0, 1).is_err();
            shared.unlock(0, 0);
            told
        });
        wait(shared.ask(1, 1, false, true)).unwrap();
        let told = shared.lock(1, 0).is_err();
        shared.unlock(1, 1);
        shared.unlock(2, 1);
        assert!(!(told && other.join().unwrap()));
    });
}

/// One has a key, and waits for another or gives that up; the other's holder releases its key, and
/// only then waits for the first.
fn let_go(gives_up: bool, downgrades: bool) {
    explore(move || {
        let shared = Shared::new([None, None]);
        (0..2).for_each(|who| shared.lock(who, who).unwrap());
        let other = shared.spawn(move |shared| {
            {
                let mut second = pin!(shared.ask(1, 0, !downgrades, true));
                if gives_up {
                    let _ = second.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                } else {
                    wait(second).expect("nobody waits in a circle");
                }
            }
            shared.unlock(1, 1);
            shared.unlock(1, 0);
        });
        match downgrades {
            false => shared.unlock(0, 0),
            true => shared.locks.downgrade(&shared.holders[0], 0, KEYS[0]),
        }
        shared.lock(0, 1).expect("nobody waits in a circle");
        other.join().unwrap();
        assert_eq!(shared.locks.graph.waiting_count(), 0);
    });
}

#[test]
fn loom_who_has_let_go_closes_no_circle() {
    let_go(false, false);
    let_go(false, true);
}

#[test]
fn loom_who_has_given_up_closes_no_circle() {
    let_go(true, false);
}

/// Each of two thieves wants one of the keys of an expired transaction while it commits.
#[test]
fn loom_the_thieves_have_all_locks_or_the_commit_has() {
    explore(|| {
        let shared = Shared::new([EXPIRED, None, None]);
        (0..2).for_each(|key| shared.lock(0, key).unwrap());
        let thieves = [0, 1].map(|key| {
            shared.spawn(move |shared| {
                wait(shared.ask(1 + key, key, true, false)).unwrap();
                shared.write(key);
            })
        });
        let victim = &shared.holders[0];
        let committed = victim.leave_started(|| Duration::ZERO, TransactionState::AwaitingCommit).is_ok();
        if committed {
            (0..2).for_each(|key| shared.write(key));
            victim.set(TransactionState::Committed);
            (0..2).for_each(|key| shared.unlock(0, key));
        }
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        let state = if committed { TransactionState::Committed } else { TransactionState::LocksStolen };
        assert_eq!(victim.state(), state);
    });
}

/// The commit of an expired transaction fails while another transaction waits for it.
#[test]
fn loom_who_waits_is_rung_when_locks_may_be_stolen_again() {
    explore(|| {
        let shared = Shared::new([EXPIRED, None]);
        shared.lock(0, 0).unwrap();
        let victim = &shared.holders[0];
        victim.leave_started(|| Duration::ZERO, TransactionState::AwaitingCommit).unwrap();
        let thief = shared.spawn(|shared| wait(shared.ask(1, 0, true, false)).unwrap());
        victim.set(TransactionState::Started);
        shared.locks.look_again(0, KEYS[0]);
        thief.join().unwrap();
        assert_eq!(victim.state(), TransactionState::LocksStolen);
    });
}
