//! Scheduling of background threads: they yield the processors to the program's other threads until
//! a caller waits for their jobs. The user may also lower their priority for good.
//!
//! The threads of a priority join a [`GivingWay`]. They run at a lower priority while no [`Hurry`]
//! exists, and at the ordinary one while one does.
//!
//! Reason: a writer needs a processor for some microseconds again and again, a job occupies one
//! until it ends. At equal priority each running job takes processor time from the writers, which
//! fall behind until it ends. docs/decisions/background-work.md gives the cost, and the reason that
//! it is not the default.
//!
//! Invariants:
//! - The ordinary scheduling is that of the program's first thread when the first job runs; all of
//!   it is restored.
//! - A priority is lowered only if it can be restored: without `CAP_SYS_NICE`, and with too low an
//!   `RLIMIT_NICE`, such threads keep their niceness and merely do not preempt other threads. If
//!   the program is not scheduled by the ordinary policy, nothing is ever changed. A priority that
//!   the user lowers is not restored, as in RocksDB, and does not depend on these conditions.
//! - A thread started by such a thread is an ordinary one, although the operating system would let
//!   it inherit the priority.

use crate::posix::{self, CpuPriority, ThreadNumber};
use crate::sync::{Mutex, thread_local};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

thread_local! {
    static GIVES_WAY: RefCell<Option<Arc<GivingWay>>> = const { RefCell::new(None) };
}

/// The threads of a priority.
#[derive(Debug)]
pub(crate) struct GivingWay {
    /// Niceness added to that of ordinary threads, or `None` if these threads do not give way.
    nicer_by: Option<i32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    threads: Vec<ThreadNumber>,
    hurries: usize,
    /// True if the user gave the threads the lowest CPU priority; a [`Hurry`] does not change that.
    low_cpu: bool,
    /// True if the user gave the threads the idle I/O class.
    idle_io: bool,
    fork_generation: u64,
}

impl State {
    /// Forgets the threads in a forked child: they stayed with the parent.
    fn leave_inherited(&mut self) {
        let now = posix::fork_generation();
        if self.fork_generation != now {
            self.threads.clear();
            self.fork_generation = now;
        }
    }
}

impl GivingWay {
    pub(crate) fn new(nicer_by: Option<i32>) -> Arc<Self> {
        Arc::new(Self { nicer_by, state: Mutex::default() })
    }

    /// Returns true if its threads give way.
    pub(crate) fn gives_way(&self) -> bool {
        self.nicer_by.is_some()
    }

    fn apply(&self, state: &State, threads: &[ThreadNumber]) {
        // Returns early, because without threads, as in a simulation, no system call may be made.
        if threads.is_empty() {
            return;
        }
        for thread in threads {
            // Errors are ignored, because a thread that keeps its priority still works.
            if state.low_cpu {
                let _ = posix::lower_cpu_priority(*thread, CpuPriority::Low);
            } else if let Some(nicer_by) = self.nicer_by
                && let Some(ordinary) = posix::ordinary_scheduling()
            {
                let _ = match state.hurries {
                    0 => ordinary.give_way(*thread, nicer_by),
                    _ => ordinary.restore(*thread),
                };
            }
            if state.idle_io {
                let _ = posix::set_io_priority(*thread, posix::IO_IDLE);
            }
        }
    }

    /// Gives its threads, present and future, the lowest CPU priority.
    pub(crate) fn lower_cpu(&self) {
        self.lower(|state| state.low_cpu = true);
    }

    /// Gives its threads, present and future, the idle I/O class.
    pub(crate) fn lower_io(&self) {
        self.lower(|state| state.idle_io = true);
    }

    fn lower(&self, set: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.leave_inherited();
        set(&mut state);
        self.apply(&state, &state.threads);
    }

    /// Adds the calling thread to the group until the returned value is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Joined {
        let thread = posix::thread_number();
        let mut state = self.state.lock();
        state.leave_inherited();
        state.threads.push(thread);
        self.apply(&state, &[thread]);
        drop(state);
        let before = GIVES_WAY.with(|way| way.borrow_mut().replace(self.clone()));
        drop(before);
        Joined { of: self.clone(), thread }
    }

    fn change(&self, hurries: impl FnOnce(usize) -> usize) {
        let mut state = self.state.lock();
        state.leave_inherited();
        let before = std::mem::replace(&mut state.hurries, 0);
        state.hurries = hurries(before);
        if (before == 0) != (state.hurries == 0) {
            // Applied under the lock, which makes the later of two changes win.
            self.apply(&state, &state.threads);
        }
    }
}

/// Membership of a thread in the group. Dropped by the thread itself when it ends.
pub(crate) struct Joined {
    of: Arc<GivingWay>,
    thread: ThreadNumber,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.of.state.lock().threads.retain(|thread| *thread != self.thread);
    }
}

/// Marks that a caller waits for the background threads of a priority: until this is dropped they
/// are scheduled as ordinary threads. See [`Env::hurry`](crate::Env::hurry).
#[must_use = "it lasts until it is dropped"]
pub struct Hurry(Option<Arc<GivingWay>>);

impl Hurry {
    /// Restores the threads of `group` to ordinary scheduling until this is dropped; does nothing
    /// for `None`, which stands for threads that never give way.
    pub(crate) fn of(group: Option<&Arc<GivingWay>>) -> Self {
        if let Some(group) = group {
            group.change(|hurries| hurries + 1);
        }
        Self(group.cloned())
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.change(|hurries| hurries - 1);
        }
    }
}

impl fmt::Debug for Hurry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hurry")
    }
}

/// Returns the first action of a thread that the calling thread starts; it restores ordinary
/// scheduling.
pub(crate) fn for_child() -> impl FnOnce() + Send + 'static {
    let way = GIVES_WAY.with(|way| way.borrow().clone());
    let (cpu, io) = way.map_or((false, false), |way| {
        let state = way.state.lock();
        (way.gives_way() || state.low_cpu, state.idle_io)
    });
    move || {
        // Errors are ignored as in `apply`.
        if cpu && let Some(ordinary) = posix::ordinary_scheduling() {
            let _ = ordinary.restore(posix::thread_number());
        }
        if io {
            let _ = posix::set_io_priority(posix::thread_number(), posix::IO_ORDINARY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Returns the policy and niceness of the calling thread.
    fn found() -> (i32, i32) {
        let own = posix::thread_number();
        (posix::policy(own), posix::niceness(own).unwrap())
    }

    #[test]
    fn threads_give_way_until_somebody_hurries_and_their_children_do_not() {
        // The test's own process may run under another scheduling policy.
        let Some(ordinary) = posix::ordinary_scheduling() else { return };
        let before = found();
        let way = GivingWay::new(Some(7));
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answers) = mpsc::channel();
        let of_thread = way.clone();
        let thread = std::thread::spawn(move || {
            let _joined = of_thread.join();
            while asked.recv().is_ok() {
                let start = for_child();
                let child = std::thread::spawn(move || {
                    start();
                    found()
                });
                answer.send((found(), child.join().unwrap())).unwrap();
            }
        });
        let look = || {
            ask.send(()).unwrap();
            answers.recv().unwrap()
        };
        let (gives_way, child) = look();
        assert_eq!(gives_way, ordinary.giving_way(7));
        assert_ne!(gives_way, before);
        assert_eq!(child, before);
        let (first, second) = (Hurry::of(Some(&way)), Hurry::of(Some(&way)));
        assert_eq!(look(), (before, before));
        drop(first);
        assert_eq!(look(), (before, before), "somebody still hurries");
        drop(second);
        assert_eq!(look(), (gives_way, before));
        assert_eq!(found(), before);
        drop(ask);
        thread.join().unwrap();
        assert!(way.state.lock().threads.is_empty());
    }

    #[test]
    fn what_is_lowered_stays_so_whoever_hurries_and_is_not_inherited() {
        let before = found();
        let ordinary_io = posix::io_priority(posix::thread_number());
        for gives_way in [None, Some(7)] {
            let way = GivingWay::new(gives_way);
            way.lower_io();
            let (ask, asked) = mpsc::channel::<()>();
            let (answer, answers) = mpsc::channel();
            let of_thread = way.clone();
            let look = || (found(), posix::io_priority(posix::thread_number()));
            let thread = std::thread::spawn(move || {
                let _joined = of_thread.join();
                while asked.recv().is_ok() {
                    let start = for_child();
                    let child = std::thread::spawn(move || {
                        start();
                        look()
                    });
                    answer.send((look(), child.join().unwrap())).unwrap();
                }
            });
            let asked_for = || {
                ask.send(()).unwrap();
                answers.recv().unwrap()
            };
            let ((_, io), (_, io_of_child)) = asked_for();
            assert_eq!((io, io_of_child), (posix::IO_IDLE, ordinary_io));
            // A running thread is lowered too.
            way.lower_cpu();
            assert_eq!(asked_for().0.0.1, 19);
            let hurry = Hurry::of(Some(&way));
            assert_eq!(asked_for().0.0.1, 19);
            drop(hurry);
            let ((_, nice), io) = asked_for().0;
            assert_eq!((nice, io), (19, posix::IO_IDLE));
            drop(ask);
            thread.join().unwrap();
        }
        assert_eq!(found(), before);
    }

    #[test]
    fn who_hurries_first_is_heard_by_a_thread_that_comes_later() {
        let before = found();
        let way = GivingWay::new(Some(7));
        let _hurry = Hurry::of(Some(&way));
        let thread = std::thread::spawn(move || {
            let _joined = way.join();
            found()
        });
        assert_eq!(thread.join().unwrap(), before);
    }
}
