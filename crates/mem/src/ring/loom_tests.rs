//! Every interleaving of the publication of a few tickets. Run as the crate's head says.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use std::task::Wake;

#[test]
fn loom_what_is_finished_is_published_and_seen() {
    loom::model(|| {
        let ring = Arc::new(PublishRing::new(2, 0));
        let work = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        ring.enter(0, 1);
        ring.enter(1, 2);
        let other = {
            let (ring, work) = (ring.clone(), work.clone());
            thread::spawn(move || {
                work[1].store(7, Ordering::Relaxed);
                ring.finish(1);
            })
        };
        work[0].store(7, Ordering::Relaxed);
        ring.finish(0);
        // A reader sees the work of all that it is told of.
        for done in &work[..ring.value() as usize] {
            assert_eq!(done.load(Ordering::Relaxed), 7);
        }
        other.join().unwrap();
        assert_eq!((ring.published(), ring.value()), (2, 2));
    });
}

#[test]
fn loom_three_finishers_leave_nothing_behind() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(4, 0));
        (0..3).for_each(|t| ring.enter(t, t + 1));
        let others: Vec<_> = [2, 1]
            .map(|ticket| {
                let ring = ring.clone();
                thread::spawn(move || ring.finish(ticket))
            })
            .into();
        ring.finish(0);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!((ring.published(), ring.value()), (3, 3));
    });
}

#[test]
fn loom_a_run_and_what_is_behind_it_are_published_together() {
    loom::model(|| {
        let ring = Arc::new(PublishRing::new(4, 0));
        (0..3).for_each(|t| ring.enter(t, t + 1));
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.finish(2))
        };
        ring.finish_run(0, 2);
        // The other may have published all three and not have stored the value yet.
        assert!(ring.is_published(1, 2) && ring.value() >= 2);
        other.join().unwrap();
        assert_eq!((ring.published(), ring.value()), (3, 3));
    });
}

/// Wakes are counted with a plain atomic: the model only asks whether there was one.
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn loom_nobody_sleeps_through_a_publication() {
    loom::model(|| {
        let ring = Arc::new(PublishRing::new(2, 0));
        ring.enter(0, 1);
        ring.enter(1, 2);
        let bell = std::sync::Arc::new(Bell(AtomicUsize::new(0)));
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.finish(0))
        };
        ring.finish(1);
        ring.register(1, &bell.clone().into());
        let seen = ring.is_published(1, 2);
        other.join().unwrap();
        // Either the waiter saw it, or it was woken.
        assert!(seen || bell.0.load(Ordering::Acquire) > 0);
        assert_eq!(ring.value(), 2);
    });
}

#[test]
fn loom_a_slot_is_used_again_while_its_publisher_is_slow() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(1, 0));
        ring.enter(0, 1);
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.finish(0))
        };
        while !ring.has_room(1) {
            thread::yield_now();
        }
        ring.enter(1, 2);
        ring.finish(1);
        other.join().unwrap();
        assert_eq!((ring.published(), ring.value()), (2, 2));
    });
}
