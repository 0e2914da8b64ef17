//! Reactors: run the operations.

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

/// `karst_reactor_t`: counted references, the caller's and one of each operation that has not
/// ended. A callback may therefore name a reactor that an earlier callback on its thread destroyed.
///
/// Invariant: `by` is valid until `ending` is set, and is not read after that.
#[derive(Debug)]
pub struct Runner {
    by: UnsafeCell<ManuallyDrop<By>>,
    /// True once its destruction has started.
    ending: AtomicBool,
    completed: AtomicU64,
}

// SAFETY: `Reactor` and `Spawner` may be used from any thread; `PolledReactor` is used on its
// owner's thread only, and dropped there, because dropping the last reference to a `Runner` does
// not drop `by`.
unsafe impl Send for Runner {}
// SAFETY: as above.
unsafe impl Sync for Runner {}

#[derive(Debug)]
enum By {
    Threads(Reactor),
    /// Invariant: only the thread `owner` uses `reactor`.
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

    /// Returns a reactor with one thread, which is never destroyed.
    #[cfg(test)]
    pub(super) fn of_one_thread() -> Arc<Runner> {
        Runner::new(By::Threads(Reactor::builder(&karstdb::io::Env::posix()).build().unwrap()))
    }

    fn by(&self) -> &By {
        // SAFETY: callers come through `alive`, before the destruction by the header's contract.
        unsafe { &*self.by.get() }
    }

    /// Counts a completed operation.
    pub(super) fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the reactor of a handle; fails if it is null or being destroyed.
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

    /// Returns a new reference, for an operation.
    pub(super) fn share(&self) -> Arc<Runner> {
        // SAFETY: handles come from `Arc::into_raw`, and this one still has a reference.
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

    /// Returns the polled reactor; fails if it has threads, on a thread other than its owner's, or
    /// in one of its callbacks.
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

    /// Polls once; with a limit, sleeps and polls until an operation completes or the limit passes.
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
    /// Creates a reactor, which runs operations on databases of this process, each thread on an I/O
    /// channel of its own, created by the environment of `db`. With `threads` 0 it has no thread:
    /// it runs while the thread that created it calls karst_reactor_poll or karst_reactor_run. It
    /// does not keep the database open.
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
    /// Destroys a reactor. Outstanding operations complete as KARST_CANCELLED before it returns,
    /// and calls on the reactor return null meanwhile, so that callbacks cannot start others;
    /// called in a callback of the reactor's own thread, it returns before they complete, and their
    /// callbacks may still name the reactor. A reactor without threads is destroyed on its own
    /// thread and outside of its callbacks; otherwise this call fails, and the reactor stays.
    attempt karst_reactor_destroy(reactor: *mut Runner) {
        if reactor.is_null() { return Ok(()) }
        let found = Runner::alive(reactor)?;
        if matches!(found.by(), By::Caller { .. }) {
            found.polled()?;
        }
        found.ending.store(true, Ordering::Release);
        // SAFETY: this is the last call on it. Callbacks that run from now on read `ending` only.
        ManuallyDrop::drop(&mut *found.by.get());
        drop(Arc::from_raw(reactor.cast_const()));
        Ok(())
    }
    /// Runs the operations that are ready, without blocking, and returns the number that completed.
    /// Returns -1 and does nothing if the reactor has threads, belongs to another thread, or is
    /// being polled.
    call karst_reactor_poll(reactor: *const Runner) -> i64 { turn("karst_reactor_poll", reactor, None) }
    /// Runs operations until one has completed, sleeping while none is ready, and returns the
    /// number that completed; 0 after `timeout_us` microseconds. A negative number is no limit.
    /// Fails like karst_reactor_poll.
    call karst_reactor_run(reactor: *const Runner, timeout_us: i64) -> i64 {
        turn("karst_reactor_run", reactor, Some(u64::try_from(timeout_us).ok().map(Duration::from_micros)))
    }
}
