//! Threads that give way: those of background jobs leave the processors to the program's other
//! threads, until somebody waits for what they do.
//!
//! In: the threads of a priority, which join; whoever is in a hurry. Out: threads that run on what
//! others leave, or as ordinary ones do while anybody hurries.
//!
//! Why: a writer needs a processor for some microseconds again and again, a job has one for as long
//! as it lasts. Scheduled alike, each job that runs takes a share that the writers lack, and they
//! fall behind for as long as it runs. docs/decisions/background-work.md says what it costs, and
//! why it is not the default.
//!
//! Invariants:
//! - What an ordinary thread has is what the program's first thread has when the first job runs; it
//!   is given back whole.
//! - Nothing is given up that could not be taken back: without `CAP_SYS_NICE`, and with too low an
//!   `RLIMIT_NICE`, such threads keep their share and only interrupt nobody. If the program is not
//!   scheduled by the ordinary policy, nothing is ever changed.
//! - A thread that such a thread starts is an ordinary one, though the operating system would have
//!   it inherit.

use crate::posix::{self, ThreadNumber};
use crate::sync::Mutex;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// The threads of a priority.
#[derive(Debug)]
pub(crate) struct GivingWay {
    /// How much nicer than ordinary threads they are.
    nicer_by: i32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    threads: Vec<ThreadNumber>,
    hurries: usize,
    fork_generation: u64,
}

impl State {
    /// In a fork's child: the threads stayed with the parent.
    fn leave_inherited(&mut self) {
        let now = posix::fork_generation();
        if self.fork_generation != now {
            self.threads.clear();
            self.fork_generation = now;
        }
    }
}

impl GivingWay {
    pub(crate) fn new(nicer_by: i32) -> Arc<Self> {
        Arc::new(Self { nicer_by, state: Mutex::default() })
    }

    fn apply(&self, hurries: usize, threads: &[ThreadNumber]) {
        // Why looked at first: without threads, as in a simulation, nothing is asked of the
        // operating system.
        if !threads.is_empty()
            && let Some(ordinary) = posix::ordinary_scheduling()
        {
            for thread in threads {
                // Why ignored: a thread that goes on as it was loses nothing but this.
                let _ = match hurries {
                    0 => ordinary.give_way(*thread, self.nicer_by),
                    _ => ordinary.restore(*thread),
                };
            }
        }
    }

    /// The calling thread is one of these from now on, until what is returned is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Joined {
        let thread = posix::thread_number();
        let mut state = self.state.lock();
        state.leave_inherited();
        state.threads.push(thread);
        self.apply(state.hurries, &[thread]);
        drop(state);
        GIVES_WAY.set(true);
        Joined { of: self.clone(), thread }
    }

    fn change(&self, hurries: impl FnOnce(usize) -> usize) {
        let mut state = self.state.lock();
        state.leave_inherited();
        let before = std::mem::replace(&mut state.hurries, 0);
        state.hurries = hurries(before);
        if (before == 0) != (state.hurries == 0) {
            // Lock: under it, so that of two changes the later stays.
            self.apply(state.hurries, &state.threads);
        }
    }
}

/// A thread that gives way. Dropped by the thread itself when it ends.
pub(crate) struct Joined {
    of: Arc<GivingWay>,
    thread: ThreadNumber,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.of.state.lock().threads.retain(|thread| *thread != self.thread);
    }
}

/// Somebody waits for what the background threads of a priority do: until this is dropped they
/// share the processors as ordinary threads do. See [`Env::hurry`](crate::Env::hurry).
#[must_use = "it lasts until it is dropped"]
pub struct Hurry(Option<Arc<GivingWay>>);

impl Hurry {
    /// Threads of `group` are ordinary ones until this is dropped; without one nobody gives way.
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

/// What a thread that the calling one starts does first, so that it is an ordinary one.
pub(crate) fn for_child() -> impl FnOnce() + Send + 'static {
    let inherits = GIVES_WAY.get();
    move || {
        if inherits && let Some(ordinary) = posix::ordinary_scheduling() {
            // Why ignored: as above.
            let _ = ordinary.restore(posix::thread_number());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// How the calling thread is scheduled.
    fn found() -> (i32, i32) {
        let own = posix::thread_number();
        (posix::policy(own), posix::niceness(own).unwrap())
    }

    #[test]
    fn threads_give_way_until_somebody_hurries_and_their_children_do_not() {
        // Whoever runs the tests may have had them scheduled otherwise.
        let Some(ordinary) = posix::ordinary_scheduling() else { return };
        let before = found();
        let way = GivingWay::new(7);
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
    fn who_hurries_first_is_heard_by_a_thread_that_comes_later() {
        let before = found();
        let way = GivingWay::new(7);
        let _hurry = Hurry::of(Some(&way));
        let thread = std::thread::spawn(move || {
            let _joined = way.join();
            found()
        });
        assert_eq!(thread.join().unwrap(), before);
    }
}
