//! The state shared by channels of several threads, in every interleaving.

use super::outbox::{Joiner, Message, Outbox};
use crate::flights::{Claim, Flights};
use crate::transport::Alarm;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

/// A thread that takes a message's ring for another reason, and sleeps after that, still receives
/// the message.
#[test]
fn loom_no_message_is_slept_through() {
    let mut model = loom::model::Builder::new();
    // Bounded, because the full search with three threads and two locks takes hours.
    model.preemption_bound = Some(2);
    model.check(|| {
        let alarm = Alarm::with_condvar();
        let outbox = Arc::new(Outbox::new(alarm.clone()));
        let senders: Vec<_> = (0..2)
            .map(|slot| {
                let outbox = outbox.clone();
                thread::spawn(move || outbox.send(Message::Released(Joiner { slot, generation: 0 })))
            })
            .collect();
        let mut heard = 0;
        while heard < 2 {
            // The order of `block_on` and the reactor, followed by `Channel::wait`.
            alarm.take();
            if !outbox.has_messages() && alarm.fall_asleep() {
                alarm.sleep(None);
                alarm.wake_up();
            }
            heard += outbox.take().len();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// Every joiner gets one answer; at most one thread owns the place at a time; and the place is
/// empty at the end.
#[test]
fn loom_whoever_joins_is_told_once() {
    loom::model(|| {
        let flights: Arc<Flights<u64, usize, usize>> = Arc::default();
        let told: Arc<Vec<Mutex<usize>>> = Arc::new((0..3).map(|_| Mutex::new(0)).collect());
        let owners = Arc::new(AtomicUsize::new(0));
        let take_part = move |me: usize| {
            // The third thread reads another key, which competes for the only place.
            let key = if me == 2 { 8 } else { 7 };
            match flights.claim(key, 0, &me, || me) {
                Claim::Own => {
                    assert_eq!(owners.fetch_add(1, Ordering::Relaxed), 0);
                    thread::yield_now();
                    assert_eq!(owners.fetch_sub(1, Ordering::Relaxed), 1);
                    for joiner in flights.end(key, 0) {
                        assert!(joiner != me && joiner != 2);
                        *told[joiner].lock().unwrap() += 1;
                    }
                    false
                }
                Claim::Alone => false,
                Claim::Joined(owner) => {
                    assert!(owner != me && owner != 2 && me != 2);
                    true
                }
            }
            .then_some((me, told.clone()))
        };
        let others: Vec<_> = (1..3)
            .map(|me| {
                let take_part = take_part.clone();
                thread::spawn(move || take_part(me))
            })
            .collect();
        let mut joined: Vec<_> = take_part(0).into_iter().collect();
        for other in others {
            joined.extend(other.join().unwrap());
        }
        for (me, told) in joined {
            assert_eq!(*told[me].lock().unwrap(), 1);
        }
    });
}
