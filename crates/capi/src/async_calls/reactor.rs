//! Reactors: what runs the operations.

use crate::boundary::*;
use crate::handle::Database;
use karstdb::io::{PolledReactor, Reactor, Spawner};
use karstdb::{Error, ErrorKind};
use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// `karst_reactor_t`: the caller's share, and one of each operation that has not ended. So a
/// callback may name it, though it was destroyed in an earlier one on the same thread.
///
/// Invariant: `by` is there until `ending` is set, and nobody looks at it after that.
#[derive(Debug)]
pub struct Runner {
    by: UnsafeCell<ManuallyDrop<By>>,
    /// It is being destroyed, or was.
    ending: AtomicBool,
    completed: AtomicU64,
}

// SAFETY: `Reactor` and `Spawner` may be used from any thread; `PolledReactor` is used on its
// owner's alone, where it is dropped too, as the last share of a `Runner` does not drop `by`.
unsafe impl Send for Runner {}
// SAFETY: as above.
unsafe impl Sync for Runner {}

#[derive(Debug)]
enum By {
    Threads(Reactor),
    /// Invariant: `reactor` is touched on the thread `owner` alone.
    Caller {
        reactor: Box<PolledReactor>,
        spawner: Spawner,
        owner: ThreadId,
    },
}

impl Runner {
    fn new(by: By) -> Arc<Runner> {
        let by = UnsafeCell::new(ManuallyDrop::new(by));
        Arc::new(Runner { by, ending: AtomicBool::new(false), completed: AtomicU64::new(0) })
    }

    /// One of its own, which is never destroyed.
    #[cfg(test)]
    pub(super) fn of_one_thread() -> Arc<Runner> {
        Runner::new(By::Threads(Reactor::builder(&karstdb::io::Env::posix()).build().unwrap()))
    }

    fn by(&self) -> &By {
        // SAFETY: who has it by `alive` looks before it is destroyed, by the header's contract.
        unsafe { &*self.by.get() }
    }

    /// Takes note that an operation has completed.
    pub(super) fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// The reactor of a handle, unless it is being destroyed.
    pub(super) unsafe fn alive<'a>(handle: *const Runner) -> karstdb::Result<&'a Runner> {
        if handle.is_null() {
            return Err(invalid("a reactor is null"));
        }
        // SAFETY: the handle is not destroyed, or this is a callback of one of its operations.
        let runner = unsafe { &*handle };
        match runner.ending.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Busy, "the reactor is being destroyed")),
            false => Ok(runner),
        }
    }

    /// A share for an operation.
    pub(super) fn share(&self) -> Arc<Runner> {
        // SAFETY: handles come from `Arc::into_raw`, and this one has a share still.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// Runs an operation's task.
    pub(super) fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        match self.by() {
            By::Threads(reactor) => reactor.spawn_detached(task),
            By::Caller { reactor, owner, .. } if *owner == std::thread::current().id() => reactor.spawn(task),
            By::Caller { spawner, .. } => spawner.spawn(task),
        }
    }

    /// The reactor to poll, if the caller may.
    fn polled(&self) -> karstdb::Result<&PolledReactor> {
        match self.by() {
            By::Threads(_) => Err(invalid("the reactor has threads of its own")),
            By::Caller { owner, .. } if *owner != std::thread::current().id() => {
                Err(invalid("the reactor belongs to the thread that created it"))
            }
            By::Caller { reactor, .. } if reactor.is_polled() => {
                Err(Error::new(ErrorKind::Busy, "the reactor is being polled: this is one of its callbacks"))
            }
            By::Caller { reactor, .. } => Ok(reactor),
        }
    }

    /// Polls, and with a limit sleeps in between until an operation has completed.
    fn turn(&self, at_most: Option<Option<Duration>>) -> karstdb::Result<i64> {
        let reactor = self.polled()?;
        let before = self.completed.load(Ordering::Relaxed);
        let until = at_most.flatten().and_then(|limit| Instant::now().checked_add(limit));
        loop {
            reactor.poll();
            let completed = self.completed.load(Ordering::Relaxed) - before;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if completed > 0 || at_most.is_none() || left.is_some_and(|left| left.is_zero()) {
                return Ok(i64::try_from(completed).unwrap_or(i64::MAX));
            }
            reactor.wait(left);
        }
    }
}

unsafe fn turn(name: &'static str, reactor: *const Runner, at_most: Option<Option<Duration>>) -> i64 {
    or_say(name, unsafe { Runner::alive(reactor) }.and_then(|reactor| reactor.turn(at_most))).unwrap_or(-1)
}

capi! {
    /// A reactor, which runs operations on databases of this process, each thread on an I/O
    /// channel of its own, made as `db` makes them. With `threads` 0 it has none: it runs while
    /// the thread that created it calls karst_reactor_poll or karst_reactor_run. It does not keep
    /// the database.
    attempt karst_reactor_create(db: *const Database, threads: u32) -> *mut Runner {
        let env = of(db)?.db.env();
        let by = match threads {
            0 => {
                let reactor = PolledReactor::new(env)?;
                By::Caller { spawner: reactor.spawner(), reactor: Box::new(reactor), owner: std::thread::current().id() }
            }
            threads => By::Threads(Reactor::builder(env).name("karst-async").threads(threads as usize).build()?),
        };
        Ok(Arc::into_raw(Runner::new(by)).cast_mut())
    }
    /// Ends a reactor. Operations that are outstanding are completed as KARST_CANCELLED before it
    /// returns, and calls on it return null meanwhile, so that callbacks cannot begin others; when
    /// it is called in a callback of the reactor's own thread, they complete after that, and their
    /// callbacks may still name it. A reactor
    /// without threads is ended on its own thread and outside of its callbacks; otherwise that is
    /// the error, and it stays.
    attempt karst_reactor_destroy(reactor: *mut Runner) {
        if reactor.is_null() { return Ok(()) }
        let found = Runner::alive(reactor)?;
        if matches!(found.by(), By::Caller { .. }) {
            found.polled()?;
        }
        found.ending.store(true, Ordering::Release);
        // SAFETY: this is the last call on it. Callbacks that run from now on look at `ending`
        // alone.
        ManuallyDrop::drop(&mut *found.by.get());
        drop(Arc::from_raw(reactor.cast_const()));
        Ok(())
    }
    /// Goes on with what can go on, without waiting: how many operations have completed. -1, and
    /// nothing is done: the reactor has threads, it is another thread's, or it is being polled.
    call karst_reactor_poll(reactor: *const Runner) -> i64 { turn("karst_reactor_poll", reactor, None) }
    /// The same until an operation has completed, asleep while there is nothing to do. 0 after
    /// `timeout_us` microseconds; a negative number is no limit.
    call karst_reactor_run(reactor: *const Runner, timeout_us: i64) -> i64 {
        turn("karst_reactor_run", reactor, Some(u64::try_from(timeout_us).ok().map(Duration::from_micros)))
    }
}
