//! Tests of the handoffs that need no interleavings.

use super::*;
use crate::ring::PublishRing;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn after_a_failure_nobody_leads_until_it_is_recovered_from() {
    let leadership = Leadership::default();
    leadership.ask(0, false);
    assert!(leadership.try_lead() && !leadership.try_lead());
    assert_eq!(leadership.begin_round(), Some((0, false)));
    leadership.fail();
    assert_eq!(leadership.begin_round(), None);
    leadership.leave();
    leadership.ask(1, true);
    leadership.ask_for_switched_log();
    assert!(!leadership.try_lead() && !leadership.is_led());
    assert_eq!([0, 1].map(|ticket| leadership.fate(ticket, false)), [Fate::Failed; 2]);
    assert!(leadership.is_past(leadership.goals()));
    leadership.recover(2);
    assert!(!leadership.try_lead());
    leadership.ask(2, true);
    assert!(leadership.try_lead());
    assert_eq!(leadership.begin_round(), Some((2, true)));
    leadership.reach_written(3);
    assert_eq!([false, true].map(|sync| leadership.fate(2, sync)), [Fate::Persisted, Fate::Open]);
}

#[test]
fn a_writer_that_comes_late_is_told_that_its_work_failed() {
    let left = LeftBehind::default();
    let (others, fate) =
        (Waiters::default(), |ticket, _: &&str| [Fate::Failed, Fate::Persisted, Fate::Open][ticket as usize]);
    (0..3).for_each(|ticket| left.leave(ticket, "work"));
    assert!(left.settled(&others, fate).is_empty(), "their writers may come");
    let waiting = others.enter();
    assert_eq!(left.settled(&others, fate), [(0, Fate::Failed, "work"), (1, Fate::Persisted, "work")]);
    assert_eq!(
        [0, 1, 2, 0].map(|ticket| left.take(ticket)),
        [Err(Fate::Failed), Err(Fate::Persisted), Ok("work"), Err(Fate::Persisted)]
    );
    left.leave(0, "more");
    left.abandon(0);
    drop(waiting);
    assert_eq!(left.settled(&others, fate), [(0, Fate::Failed, "more")]);
    assert_eq!(left.take(0), Err(Fate::Persisted), "nobody comes to be told");
}

#[test]
fn tickets_of_work_that_panics_are_finished() {
    let (ring, gathered, waiters) = (PublishRing::new(4, 0), Gathered::<u32>::default(), Waiters::default());
    (0..3).for_each(|ticket| ring.enter(ticket, ticket + 1));
    let leave = |ticket: u64, enough: bool| {
        let add = |work: &mut u32| {
            *work += 1;
            enough
        };
        gathered.leave(&ring, (ticket, ticket + 1), |_| true, add, &waiters, |_| panic!("it does"))
    };
    assert!(leave(0, false) && gathered.any() && ring.value() == 0);
    assert!(!leave(2, false), "it is not next");
    assert!(catch_unwind(AssertUnwindSafe(|| leave(1, true))).is_err());
    assert!(!gathered.any() && ring.value() == 2);
    assert!(leave(2, false) && gathered.any());
    gathered.settle(&ring, |work| assert_eq!(*work, 3));
    gathered.settle(&ring, |_| panic!("nothing waits"));
    assert_eq!(ring.value(), 3);
}
