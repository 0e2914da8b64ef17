//! Reactors: what runs the operations.

use crate::boundary::*;
use crate::handle::Database;
use karstdb::io::{PolledReactor, Reactor, Spawner};
use karstdb::{Error, ErrorKind};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// `karst_reactor_t`.
#[derive(Debug)]
pub struct Runner {
    by: ManuallyDrop<By>,
    /// It is being destroyed. Then nothing else of it is looked at: callbacks that run meanwhile
    /// may still name it.
    ending: AtomicBool,
    tally: Arc<Tally>,
}

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

/// How many operations a reactor has completed.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(super) fn completed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Runner {
    /// The reactor of a handle, unless it is being destroyed.
    pub(super) unsafe fn alive<'a>(handle: *const Runner) -> karstdb::Result<&'a Runner> {
        if handle.is_null() {
            return Err(invalid("a reactor is null"));
        }
        // SAFETY: the caller's handle is not destroyed. Why no reference to the whole: it may be in
        // the middle of that.
        let ending = unsafe { &(*handle).ending };
        if ending.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Busy, "the reactor is being destroyed"));
        }
        Ok(unsafe { &*handle })
    }

    pub(super) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    /// Runs an operation's task.
    pub(super) fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        match &*self.by {
            By::Threads(reactor) => reactor.spawn_detached(task),
            By::Caller { reactor, owner, .. } if *owner == std::thread::current().id() => reactor.spawn(task),
            By::Caller { spawner, .. } => spawner.spawn(task),
        }
    }

    /// The reactor to poll, if the caller may.
    fn polled(&self) -> karstdb::Result<&PolledReactor> {
        match &*self.by {
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
        let before = self.tally.0.load(Ordering::Relaxed);
        let until = at_most.flatten().and_then(|limit| Instant::now().checked_add(limit));
        loop {
            reactor.poll();
            let completed = self.tally.0.load(Ordering::Relaxed) - before;
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
        Ok(give(Runner { by: ManuallyDrop::new(by), ending: AtomicBool::new(false), tally: Arc::default() }))
    }
    /// Ends a reactor. Operations that are outstanding are completed as KARST_CANCELLED before it
    /// returns, and calls on it return null meanwhile, so that callbacks cannot begin others; when
    /// it is called in a callback of the reactor's own thread, they complete after that. A reactor
    /// without threads is ended on its own thread and outside of its callbacks; otherwise that is
    /// the error, and it stays.
    attempt karst_reactor_destroy(reactor: *mut Runner) {
        if reactor.is_null() { return Ok(()) }
        let found = Runner::alive(reactor)?;
        if matches!(&*found.by, By::Caller { .. }) {
            found.polled()?;
        }
        found.ending.store(true, Ordering::Release);
        // SAFETY: this is the last call on it. Callbacks that run meanwhile look at `ending` alone.
        ManuallyDrop::drop(&mut (*reactor).by);
        end(reactor);
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
