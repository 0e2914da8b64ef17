//! Locks alone: who gets them, who waits, and what ends the waiting.

use super::*;
use karst_engine::caller::finish;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

fn locks(most: Option<u64>) -> Locks {
    Locks::new(Env::posix(), 4, most, 5)
}

fn holder(id: u64) -> Arc<Holder> {
    Arc::new(Holder::new(id, None))
}

fn request(key: &[u8], exclusive: bool, timeout_ms: u64) -> Request<'_> {
    let timeout = Some(Duration::from_millis(timeout_ms));
    Request { family: 0, key, exclusive, timeout, detect_depth: Some(50) }
}

fn lock(locks: &Locks, of: &Arc<Holder>, key: &[u8], exclusive: bool) -> Option<ErrorKind> {
    finish(locks.lock(Caller::Thread, of, request(key, exclusive, 0))).err().map(|error| error.kind())
}

#[test]
fn shared_locks_go_together_and_exclusive_ones_do_not() {
    let (locks, a, b) = (locks(None), holder(1), holder(2));
    assert_eq!((lock(&locks, &a, b"k", false), lock(&locks, &b, b"k", false)), (None, None));
    assert_eq!(lock(&locks, &a, b"k", true), Some(ErrorKind::TimedOut), "not while another has it");
    locks.unlock(&b, 0, b"k");
    assert_eq!(lock(&locks, &a, b"k", true), None);
    assert_eq!(lock(&locks, &a, b"k", false), None);
    assert_eq!(lock(&locks, &b, b"k", false), Some(ErrorKind::TimedOut), "it keeps what it has");
    locks.downgrade(&a, 0, b"k");
    assert_eq!(lock(&locks, &b, b"k", false), None);
    locks.unlock(&holder(3), 0, b"k");
    let status = locks.status();
    assert_eq!((status.len(), &status[0].transactions[..], status[0].exclusive), (1, &[1, 2][..], false));
    locks.unlock(&a, 0, b"k");
    locks.unlock(&b, 0, b"k");
    assert!(locks.status().is_empty());
}

#[test]
fn no_more_than_allowed_are_locked() {
    let (locks, a) = (locks(Some(2)), holder(1));
    assert_eq!((lock(&locks, &a, b"1", true), lock(&locks, &a, b"2", true)), (None, None));
    assert_eq!(lock(&locks, &a, b"3", true), Some(ErrorKind::LimitReached));
    assert_eq!(lock(&locks, &a, b"1", true), None, "it has it already");
    locks.unlock(&a, 0, b"2");
    assert_eq!(lock(&locks, &a, b"3", true), None);
}

#[test]
fn whoever_waits_is_told_on_threads_and_on_tasks() {
    let (locks, a) = (Arc::new(locks(None)), holder(1));
    for round in 0..50 {
        assert_eq!(lock(&locks, &a, b"k", true), None);
        let (sender, receiver) = mpsc::channel();
        let threads: Vec<_> = (2..6)
            .map(|id| {
                let (locks, sender) = (locks.clone(), sender.clone());
                std::thread::spawn(move || {
                    let me = holder(id);
                    let by = if id % 2 == 0 { Caller::Thread } else { Caller::Task };
                    let wait = locks.lock(by, &me, request(b"k", true, 60_000));
                    match by {
                        Caller::Thread => finish(wait).unwrap(),
                        Caller::Task => pollster::block_on(wait).unwrap(),
                    }
                    sender.send(id).unwrap();
                    locks.unlock(&me, 0, b"k");
                })
            })
            .collect();
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        assert!(receiver.try_recv().is_err(), "it is held");
        locks.unlock(&a, 0, b"k");
        assert_eq!(receiver.iter().take(4).count(), 4);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Three wait in a cycle; the one that closes it gets the error, with the cycle, and the others
/// continue when it has released its lock.
#[test]
fn the_last_of_a_circle_is_told() {
    let locks = Arc::new(locks(None));
    let holders: Vec<_> = (1..=3).map(holder).collect();
    let keys: [&[u8]; 3] = [b"k1", b"k2", b"k3"];
    for (holder, key) in holders.iter().zip(keys) {
        assert_eq!(lock(&locks, holder, key, true), None);
    }
    let waiters: Vec<_> = [0, 1]
        .map(|n| {
            let (locks, holder) = (locks.clone(), holders[n].clone());
            std::thread::spawn(move || {
                finish(locks.lock(Caller::Thread, &holder, request(keys[n + 1], true, 60_000))).unwrap();
                locks.unlock(&holder, 0, keys[n + 1]);
                locks.unlock(&holder, 0, keys[n]);
            })
        })
        .into();
    while locks.graph.waiting_count() < 2 {
        std::thread::yield_now();
    }
    let refused =
        finish(locks.lock(Caller::Thread, &holders[2], request(keys[0], true, 60_000))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Deadlock);
    assert!(refused.to_string().contains("transaction 1 waits for 2 (key k2"), "{refused}");
    let path = &locks.deadlocks()[0].path;
    let waits: Vec<_> = path.iter().map(|info| (info.transaction, &info.waiting_key[..])).collect();
    assert_eq!(waits, vec![(1, keys[1]), (2, keys[2]), (3, keys[0])]);
    locks.unlock(&holders[2], 0, keys[2]);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert!(locks.status().is_empty() && locks.graph.waiting_count() == 0);
}

/// A waiter has not looked again when the holder, which has released only that key, waits for it in
/// turn: no cycle.
#[test]
fn a_lock_that_was_let_go_of_closes_no_circle() {
    for downgraded in [false, true] {
        let (locks, a, b) = (locks(None), holder(1), holder(2));
        assert_eq!((lock(&locks, &a, b"1", true), lock(&locks, &b, b"2", true)), (None, None));
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = pin!(locks.lock(Caller::Task, &b, request(b"1", !downgraded, 60_000)));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        match downgraded {
            false => locks.unlock(&a, 0, b"1"),
            true => locks.downgrade(&a, 0, b"1"),
        }
        let mut second = pin!(locks.lock(Caller::Task, &a, request(b"2", true, 60_000)));
        assert!(second.as_mut().poll(&mut cx).is_pending(), "it is told of a deadlock");
        assert!(waits.as_mut().poll(&mut cx).is_ready());
        locks.unlock(&b, 0, b"2");
        assert!(second.as_mut().poll(&mut cx).is_ready());
    }
}

/// A waiter for a shared lock waits also for holders that have joined since.
#[test]
fn who_joins_a_shared_lock_is_waited_for() {
    let locks = locks(None);
    let [first, second, waits] = [1, 2, 3].map(holder);
    assert_eq!((lock(&locks, &first, b"1", false), lock(&locks, &waits, b"2", true)), (None, None));
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting = pin!(locks.lock(Caller::Task, &waits, request(b"1", true, 60_000)));
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    assert_eq!(lock(&locks, &second, b"1", false), None);
    let mut circle = pin!(locks.lock(Caller::Task, &second, request(b"2", true, 60_000)));
    let Poll::Ready(Err(told)) = circle.as_mut().poll(&mut cx) else { panic!("it waits") };
    assert_eq!(told.kind(), ErrorKind::Deadlock, "{told}");
    for holder in [&first, &second] {
        locks.unlock(holder, 0, b"1");
    }
    assert!(waiting.as_mut().poll(&mut cx).is_ready());
}

/// Keys of one stripe are woken together, so a simulation's history depends on the assignment.
#[test]
fn a_seed_decides_which_keys_share_a_stripe() {
    let stripes = |seed| {
        let locks = Locks::new(Env::builder().seed(seed).build(), 16, None, 5);
        let map = locks.map(0);
        let place = |key: u32| {
            let stripe: *const Stripe = locks.stripe(&map, &key.to_le_bytes());
            map.stripes.iter().position(|other| std::ptr::eq(other, stripe))
        };
        (0..100).map(place).collect::<Vec<_>>()
    };
    assert_eq!(stripes(1), stripes(1));
    assert_ne!(stripes(1), stripes(2));
}

#[test]
fn locks_of_an_expired_transaction_are_taken_over() {
    let (locks, other) = (locks(None), holder(2));
    let expired = Arc::new(Holder::new(1, Some(Duration::ZERO)));
    assert_eq!(lock(&locks, &expired, b"k", true), None);
    assert_eq!(lock(&locks, &other, b"k", true), None);
    assert!(expired.check_started(|| Duration::MAX).is_err_and(|error| error.kind() == ErrorKind::Expired));
    locks.unlock(&expired, 0, b"k");
    assert_eq!(locks.status()[0].transactions, [2], "who has lost it lets go of nothing");

    let committing = Arc::new(Holder::new(3, Some(Duration::from_secs(1 << 40))));
    assert_eq!(lock(&locks, &committing, b"j", true), None);
    committing.leave_started(|| Duration::ZERO, crate::TransactionState::AwaitingCommit).unwrap();
    assert!(!committing.steal());
    assert_eq!(lock(&locks, &other, b"j", true), Some(ErrorKind::TimedOut));
}
