//! Loom models of the publication of a few tickets. Run as the crate's head says.

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
        // A reader sees the work of every ticket up to the value.
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
        // The other may have published all three without having stored the value yet.
        assert!(ring.is_published(1, 2) && ring.value() >= 2);
        other.join().unwrap();
        assert_eq!((ring.published(), ring.value()), (3, 3));
    });
}

/// Counts wakes with a plain atomic, because the model only checks that there was one.
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
        // The waiter saw it, or was woken.
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

/// Two writers finish out of order and acknowledge; a third thread that learns of the
/// acknowledgement waits for the value and finds both batches whole.
#[test]
fn loom_what_was_acknowledged_is_read_whole() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(2, 0));
        let work = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        // Set by a writer after its write has returned, outside of the ring.
        let told = Arc::new(AtomicUsize::new(0));
        ring.enter(0, 1);
        ring.enter(1, 2);
        let writers = [0, 1].map(|ticket| {
            let (ring, work, told) = (ring.clone(), work.clone(), told.clone());
            thread::spawn(move || {
                work[ticket].store(7, Ordering::Relaxed);
                ring.finish(ticket as u64);
                ring.acknowledge(ticket as u64, ticket as u64 + 1);
                told.fetch_or(1 << ticket, Ordering::Release);
            })
        });
        let told = told.load(Ordering::Acquire);
        let (acknowledged, value) = (ring.acknowledged(), ring.value());
        assert!(told & 2 == 0 || acknowledged == 2, "acknowledged {acknowledged}, told {told}");
        assert!(told & 1 == 0 || acknowledged >= 1);
        // A reader of the value sees the work of every ticket that it includes; it waits for the
        // rest.
        for done in &work[..value as usize] {
            assert_eq!(done.load(Ordering::Relaxed), 7);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(ring.value() == 2 && ring.acknowledged() == 2);
    });
}

#[test]
fn loom_no_reader_sleeps_through_the_publication_that_it_waits_for() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(2, 0));
        ring.enter(0, 1);
        ring.enter(1, 2);
        let bell = std::sync::Arc::new(Bell(AtomicUsize::new(0)));
        let others = [1, 0].map(|ticket| {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.finish(ticket);
                ring.acknowledge(ticket, ticket + 1);
            })
        });
        let wanted = ring.acknowledged();
        ring.register_reader(wanted, &bell.clone().into());
        let seen = ring.value() >= wanted;
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(ring.value() >= wanted);
        assert!(seen || bell.0.load(Ordering::Acquire) > 0, "nobody woke the reader of {wanted}");
    });
}

/// Acknowledged values only grow between two reads, with any acknowledgements in between.
#[test]
fn loom_acknowledged_never_falls() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(4, 0));
        (0..3).for_each(|t| ring.enter(t, t + 1));
        let others = [2, 1].map(|ticket| {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.finish(ticket);
                ring.acknowledge(ticket, ticket + 1);
            })
        });
        let (first, value) = (ring.acknowledged(), ring.value());
        let second = ring.acknowledged();
        assert!(first <= second && value <= second, "{first} {value} {second}");
        ring.finish(0);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((ring.value(), ring.acknowledged()), (3, 3));
    });
}

/// Checks that the model can fail: a reader that uses `acknowledged` without waiting reads entries
/// that are not written yet.
#[test]
#[should_panic(expected = "read before it was written")]
fn loom_a_reader_that_does_not_wait_is_found_out() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let ring = Arc::new(PublishRing::new(2, 0));
        let work = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        ring.enter(0, 1);
        ring.enter(1, 2);
        let writers = [0, 1].map(|ticket| {
            let (ring, work) = (ring.clone(), work.clone());
            thread::spawn(move || {
                work[ticket].store(7, Ordering::Relaxed);
                ring.finish(ticket as u64);
                ring.acknowledge(ticket as u64, ticket as u64 + 1);
            })
        });
        for done in &work[..ring.acknowledged() as usize] {
            assert_eq!(done.load(Ordering::Relaxed), 7, "read before it was written");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
