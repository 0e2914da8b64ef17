//! Tickets finished in every order, and by many threads at once.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_order_publishes_the_finished_prefix() {
    // All permutations of five tickets.
    let mut order = [0u64, 1, 2, 3, 4];
    fn permute(k: usize, order: &mut [u64; 5], check: &mut dyn FnMut(&[u64; 5])) {
        if k == order.len() {
            return check(order);
        }
        for i in k..order.len() {
            order.swap(k, i);
            permute(k + 1, order, check);
            order.swap(k, i);
        }
    }
    let mut seen = 0;
    permute(0, &mut order, &mut |order| {
        let ring = PublishRing::new(8, 100);
        (0..5).for_each(|t| ring.enter(t, 100 + 10 * (t + 1)));
        let mut finished = [false; 5];
        for ticket in order {
            ring.finish(*ticket);
            finished[*ticket as usize] = true;
            let prefix = finished.iter().take_while(|f| **f).count() as u64;
            assert_eq!((ring.published(), ring.value()), (prefix, 100 + 10 * prefix));
        }
        seen += 1;
    });
    assert_eq!(seen, 120);
}

#[test]
fn a_full_ring_has_no_room_until_its_oldest_is_published() {
    let ring = PublishRing::new(2, 0);
    ring.enter(0, 1);
    ring.enter(1, 2);
    ring.finish(1);
    assert!(!ring.has_room(2));
    ring.finish(0);
    assert!(ring.has_room(3) && !ring.has_room(4) && ring.is_published(1, 2) && !ring.is_published(2, 3));
}

#[test]
fn who_waits_is_woken_once_and_a_displaced_waker_too() {
    let ring = PublishRing::new(2, 0);
    let (a, b) = (Arc::new(Count::default()), Arc::new(Count::default()));
    ring.enter(0, 1);
    ring.register(0, &a.clone().into());
    ring.register(0, &b.clone().into());
    assert_eq!(a.0.load(Ordering::SeqCst), 1);
    ring.wake(0, 1);
    ring.finish(0);
    assert_eq!((a.0.load(Ordering::SeqCst), b.0.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn what_is_acknowledged_early_is_told_and_waited_for() {
    let ring = PublishRing::new(4, 10);
    (0..4).for_each(|t| ring.enter(t, 11 + t));
    assert_eq!((ring.value(), ring.acknowledged()), (10, 10));
    ring.finish(2);
    ring.acknowledge(2, 13);
    ring.finish(1);
    ring.acknowledge(1, 12);
    assert_eq!((ring.value(), ring.acknowledged()), (10, 13));
    let [near, far, beyond] = [(); 3].map(|()| Arc::new(Count::default()));
    let woken = |of: &Arc<Count>| of.0.load(Ordering::SeqCst);
    ring.register_reader(11, &near.clone().into());
    ring.register_reader(13, &far.clone().into());
    ring.register_reader(14, &beyond.clone().into());
    ring.finish(0);
    ring.acknowledge(0, 11);
    assert_eq!((ring.value(), ring.acknowledged()), (13, 13));
    assert_eq!((woken(&near), woken(&far), woken(&beyond)), (1, 1, 0));
    // Published by its own finish, so nothing is left to acknowledge.
    ring.finish(3);
    ring.acknowledge(3, 14);
    assert_eq!((ring.acknowledged(), woken(&near), woken(&far), woken(&beyond)), (14, 1, 1, 1));
}

#[test]
fn stress_many_threads_publish_everything_in_order() {
    let (threads, each) = if cfg!(miri) { (3, 30) } else { (4, 50_000u64) };
    let ring = PublishRing::new(16, 0);
    let next = parking_lot::Mutex::new(0u64);
    let written: Vec<std::sync::atomic::AtomicU64> =
        (0..threads * each).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for _ in 0..each {
                    let ticket = loop {
                        let mut next = next.lock();
                        if ring.has_room(*next) {
                            ring.enter(*next, *next + 1);
                            *next += 1;
                            break *next - 1;
                        }
                        drop(next);
                        std::thread::yield_now();
                    };
                    written[ticket as usize].store(ticket + 1, Ordering::Relaxed);
                    ring.finish(ticket);
                    let value = ring.value();
                    // All work below a published value is visible.
                    for seen in value.saturating_sub(8)..value {
                        assert_eq!(written[seen as usize].load(Ordering::Relaxed), seen + 1);
                    }
                    ring.acknowledge(ticket, ticket + 1);
                    let wanted = ring.acknowledged();
                    assert!(wanted > ticket);
                    if ticket % 5 != 0 {
                        continue;
                    }
                    while ring.value() < wanted {
                        std::thread::yield_now();
                    }
                    for seen in wanted.saturating_sub(8)..wanted {
                        assert_eq!(written[seen as usize].load(Ordering::Relaxed), seen + 1);
                    }
                }
            });
        }
    });
    assert_eq!((ring.published(), ring.value()), (threads * each, threads * each));
    assert_eq!(ring.acknowledged(), threads * each);
}
