//! Loom models of a range's life with readers, and with the ring that publishes the numbers. Run as
//! the crate's head says.

use super::PublishRing;
use karst_mem::PendingRanges;
use loom::sync::Arc;
use loom::thread;

/// A range 1..2 of ticket 0, another write at 2 of ticket 1, and the decision at 3 of ticket 2.
fn live(pending: &PendingRanges, ring: &PublishRing, removes: bool) {
    let range = pending.add(1, 1, ring.value());
    (0..2).for_each(|ticket| ring.enter(ticket, ticket + 1));
    ring.finish(0);
    ring.finish(1);
    ring.enter(2, 3);
    range.decide(3);
    ring.finish(2);
    if removes {
        pending.remove_decided(ring.value());
    }
}

/// Returns the number a reader reads at, and true if it sees the range; checks that this is right.
fn look(pending: &PendingRanges, ring: &PublishRing) -> (u64, bool) {
    let (at, list) = pending.pin(|| ring.acknowledged());
    let hidden = || list.as_ref().is_some_and(|list| list.hides(1, at));
    let sees = at >= 1 && !hidden();
    assert_eq!(sees, at >= 3, "at {at}");
    assert_eq!(sees, at >= 1 && !hidden(), "what was seen changed at {at}");
    (at, sees)
}

fn check(removes: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new((PendingRanges::new(), PublishRing::new(4, 0)));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || live(&shared.0, &shared.1, removes))
        };
        let first = look(&shared.0, &shared.1);
        let second = look(&shared.0, &shared.1);
        assert!(first.0 <= second.0 && first.1 <= second.1, "a reader went back");
        writer.join().unwrap();
        assert_eq!(look(&shared.0, &shared.1), (3, true));
    });
}

#[test]
fn loom_a_range_is_seen_from_its_decision_on() {
    check(false);
}

#[test]
fn loom_a_range_that_is_removed_stays_seen() {
    check(true);
}

#[test]
fn loom_a_number_above_an_unfinished_range_is_read_without_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((PendingRanges::new(), PublishRing::new(4, 0)));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (pending, ring) = (&shared.0, &shared.1);
                pending.add(1, 1, ring.value());
                (0..2).for_each(|ticket| ring.enter(ticket, ticket + 1));
                // A later write is acknowledged first.
                ring.finish(1);
                ring.acknowledge(1, 2);
                ring.finish(0);
            })
        };
        let (at, list) = shared.0.pin(|| shared.1.acknowledged());
        assert!(at < 1 || list.is_some_and(|list| list.hides(1, at)), "an undecided range is seen at {at}");
        writer.join().unwrap();
    });
}

/// RocksDB's pull request 14544: of two threads that refreshed a list, one replaced a newer list by
/// an older one.
#[test]
fn loom_no_list_takes_the_place_of_a_newer_one() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pending = Arc::new(PendingRanges::new());
        pending.add(1, 1, 0).decide(2);
        let others = {
            let pending = pending.clone();
            thread::spawn(move || pending.remove_decided(2))
        };
        let range = pending.add(3, 1, 0);
        assert!(pending.now().hides(3, 3), "what is undecided is seen");
        others.join().unwrap();
        assert!(pending.now().hides(3, 3), "a list without it took the place of that with it");
        range.decide(4);
        pending.remove_decided(4);
        assert!(pending.now().is_empty());
    });
}
