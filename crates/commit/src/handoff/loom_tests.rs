//! Loom models of writers, leaders and waiters, in every interleaving. Run as the crate's head
//! says.

use super::*;
use crate::ring::PublishRing;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Tickets under their lock, and the leadership of their log.
struct Log {
    next: Mutex<u64>,
    leadership: Leadership,
    /// True if rounds fail; number of failed rounds.
    fails: bool,
    failed: AtomicUsize,
}

impl Log {
    fn new(fails: bool) -> Arc<Self> {
        let (next, leadership) = (Mutex::new(0), Leadership::default());
        Arc::new(Self { next, leadership, fails, failed: AtomicUsize::new(0) })
    }

    fn ask(&self, sync: bool) -> u64 {
        let mut next = self.next.lock().unwrap();
        let ticket = *next;
        *next += 1;
        self.leadership.ask(ticket, sync);
        ticket
    }

    /// Leads while there is work.
    fn lead(&self) {
        while self.leadership.try_lead() {
            let (end, round) = {
                let next = self.next.lock().unwrap();
                (*next, self.leadership.begin_round())
            };
            let Some((first, sync)) = round else {
                self.leadership.leave();
                continue;
            };
            assert!(first <= end);
            match self.fails {
                true => self.leadership.fail(),
                false => self.leadership.reach_written(end),
            }
            if sync && !self.fails {
                self.leadership.reach_synced(end);
            }
            assert_eq!(
                self.failed.fetch_add(usize::from(self.fails), Ordering::Relaxed),
                0,
                "a round after a failure"
            );
            self.leadership.leave();
        }
    }
}

/// Three writers, any of which may do the work of the others.
fn ask_and_lead(syncs: [bool; 3], fails: bool) {
    explore(move || {
        let log = Log::new(fails);
        let others = [syncs[1], syncs[2]].map(|sync| {
            let log = log.clone();
            thread::spawn(move || {
                let ticket = log.ask(sync);
                log.lead();
                ticket
            })
        });
        let own = log.ask(syncs[0]);
        log.lead();
        let all = [own].into_iter().chain(others.map(|other| other.join().unwrap()));
        let done = if fails { Fate::Failed } else { Fate::Persisted };
        for (ticket, sync) in all.zip(syncs) {
            assert_eq!(log.leadership.fate(ticket, sync), done, "ticket {ticket}");
        }
        assert!(!log.leadership.is_led());
    });
}

#[test]
fn loom_nothing_that_was_asked_for_is_left() {
    ask_and_lead([false; 3], false);
    ask_and_lead([false, true, false], false);
}

#[test]
fn loom_nobody_waits_for_a_leader_that_failed() {
    ask_and_lead([false, true, false], true);
}

#[test]
fn loom_a_switched_log_gets_its_round() {
    explore(|| {
        let log = Log::new(false);
        let other = {
            let log = log.clone();
            thread::spawn(move || {
                log.ask(false);
                log.lead();
            })
        };
        {
            let _next = log.next.lock().unwrap();
            log.leadership.ask_for_switched_log();
        }
        log.lead();
        other.join().unwrap();
        assert!(!log.leadership.needs_leader() && !log.leadership.is_led());
    });
}

/// A writer leaves its work and never returns, or abandons it. The leader, or a waiter, does it,
/// once.
fn leave_work(abandons: bool, waits: bool) {
    explore(move || {
        let log = Log::new(false);
        let shared = Arc::new((LeftBehind::<()>::default(), AtomicUsize::new(0)));
        let settle = |log: &Log, shared: &(LeftBehind<()>, AtomicUsize)| {
            let settled =
                shared.0.settled(&Waiters::default(), |ticket, ()| log.leadership.fate(ticket, false));
            shared.1.fetch_add(settled.len(), Ordering::Relaxed);
        };
        assert_eq!(log.ask(false), 0);
        let leader = {
            let (log, shared) = (log.clone(), shared.clone());
            thread::spawn(move || {
                log.lead();
                settle(&log, &shared);
            })
        };
        let waiter = waits.then(|| {
            let (log, shared) = (log.clone(), shared.clone());
            thread::spawn(move || {
                shared.0.waiters().count_in();
                settle(&log, &shared);
            })
        });
        shared.0.leave(0, ());
        if abandons {
            shared.0.abandon(0);
            settle(&log, &shared);
        } else if log.leadership.fate(0, false) == Fate::Persisted && shared.0.take(0).is_ok() {
            shared.1.fetch_add(1, Ordering::Relaxed);
        }
        leader.join().unwrap();
        waiter.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(shared.1.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_what_is_left_is_done_once_if_somebody_waits() {
    leave_work(false, true);
}

#[test]
fn loom_what_is_abandoned_is_done_once() {
    leave_work(true, false);
    leave_work(true, true);
}

/// Gathered work and the ring of its tickets. The work of a ticket sets its bit.
struct Small {
    ring: PublishRing,
    gathered: Gathered<usize>,
    done: AtomicUsize,
    waiters: Waiters,
}

impl Small {
    /// Enters tickets 0 and 1.
    fn new() -> Arc<Self> {
        let ring = PublishRing::new(2, 0);
        (0..2).for_each(|ticket| ring.enter(ticket, ticket + 1));
        Arc::new(Self {
            ring,
            gathered: Gathered::default(),
            done: AtomicUsize::new(0),
            waiters: Waiters::default(),
        })
    }

    fn insert(&self, work: &mut usize) {
        self.done.fetch_or(std::mem::take(work), Ordering::Relaxed);
    }

    fn settle(&self) {
        if self.gathered.any() {
            self.gathered.settle(&self.ring, |work| self.insert(work));
        }
    }

    fn at_once(&self, ticket: u64) {
        self.insert(&mut (1 << ticket));
        self.ring.finish(ticket);
        self.settle();
    }

    /// Leaves the work of a ticket, or does it if it is not taken.
    fn leave(&self, ticket: u64) {
        let add = |work: &mut usize| {
            *work |= 1 << ticket;
            false
        };
        let next = (ticket, ticket + 1);
        if !self.gathered.leave(&self.ring, next, |_| true, add, &self.waiters, |work| self.insert(work)) {
            self.at_once(ticket);
        }
    }
}

#[test]
fn loom_nobody_waits_for_what_is_gathered() {
    explore(|| {
        let small = Small::new();
        let other = {
            let small = small.clone();
            thread::spawn(move || small.at_once(1))
        };
        small.leave(0);
        other.join().unwrap();
        assert_eq!((small.ring.value(), small.done.load(Ordering::Relaxed)), (2, 3));
    });
}

#[test]
fn loom_who_waits_for_room_or_a_number_has_what_is_gathered_done() {
    explore(|| {
        let small = Small::new();
        let other = {
            let small = small.clone();
            thread::spawn(move || {
                small.waiters.count_in();
                small.settle();
            })
        };
        small.leave(0);
        other.join().unwrap();
        assert_eq!((small.ring.value(), small.done.load(Ordering::Relaxed)), (1, 1));
    });
}

#[test]
fn loom_two_who_leave_and_one_who_reads_lose_nothing() {
    explore(|| {
        let (small, told) = (Small::new(), Arc::new(AtomicUsize::new(0)));
        let others = [0, 1].map(|ticket| {
            let (small, told) = (small.clone(), told.clone());
            thread::spawn(move || {
                small.leave(ticket);
                told.fetch_or(1 << ticket, Ordering::Release);
            })
        });
        let told = told.load(Ordering::Acquire);
        small.settle();
        let value = small.ring.acknowledged();
        assert!(told & 1 == 0 || value >= 1, "told {told}, value {value}");
        let done = small.done.load(Ordering::Relaxed);
        assert_eq!(done & ((1 << value) - 1), (1 << value) - 1, "value {value}");
        others.into_iter().for_each(|other| other.join().unwrap());
        small.settle();
        assert_eq!((small.ring.value(), small.done.load(Ordering::Relaxed)), (2, 3));
    });
}

#[test]
fn loom_who_waits_for_room_is_told_of_it() {
    explore(|| {
        let shared = Arc::new((PublishRing::new(1, 0), Waiters::default(), AtomicUsize::new(0)));
        shared.0.enter(0, 1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.finish(0);
                if shared.1.any() {
                    shared.2.fetch_add(1, Ordering::Release);
                }
            })
        };
        let waiting = shared.1.enter();
        let has_room = shared.0.has_room(1);
        other.join().unwrap();
        drop(waiting);
        assert!(has_room || shared.2.load(Ordering::Acquire) > 0);
        assert!(!shared.1.any());
    });
}
