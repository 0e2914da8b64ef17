//! The transport without io_uring: a pool of threads that call `pread` and `pwrite`.
//!
//! One pool serves all channels of an environment. It starts a thread when an op finds none idle,
//! up to a limit; idle threads end after a while. Each channel has its own list of completions, and
//! results go to the list of the channel that asked.
//!
//! If no thread can be started, reads, opens and writes run on the thread that submits them; they
//! touch only the channel's list. Jobs may take any lock, including one that their submitter holds,
//! and therefore stay in the queue: [`ThreadPool::ensure`] starts a thread beforehand, and a job
//! without a thread runs on the thread that awaits it ([`Stranded`]).
//!
//! Operations on sockets need no thread: [`Readiness`] tries them when epoll reports the socket.
//!
//! Lock: the pool's queue and each channel's list have a mutex each, held for a push or a swap; the
//! queue's is also held to start a thread, because every counted thread must exist. (The ring
//! transport has no locks; this is the fallback.)

use crate::file::{Backend, WriteBackend};
use crate::posix::{self, PosixFile};
use crate::readiness::Readiness;
use crate::report;
use crate::sync::{Condvar, Mutex};
use crate::threads::Starter;
use crate::transport::{Alarm, Completion, Op, OpenOp, SocketOp, Transport, WriteAction, WriteOp};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const IDLE_LIMIT: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(5) };

/// A job for a thread that may block.
pub(crate) type BlockingJob = Box<dyn FnOnce() + Send>;

enum Work {
    Read(Op, Arc<Returns>),
    Open(OpenOp, Arc<Returns>),
    Write(WriteOp, Arc<Returns>),
    Run(BlockingJob),
}

/// Threads of an environment that may block.
pub(crate) struct ThreadPool {
    shared: Mutex<Arc<PoolShared>>,
}

struct PoolShared {
    state: Mutex<PoolState>,
    available: Condvar,
    limit: usize,
    name: String,
    starter: Starter,
    fork_generation: u64,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Work>,
    /// Threads that were started and have not ended.
    threads: usize,
    /// True if one of the threads stays until the pool ends.
    has_resident: bool,
    idle: usize,
    closed: bool,
}

impl ThreadPool {
    pub(crate) fn new(limit: usize, name: &str, starter: Starter) -> Self {
        Self { shared: Mutex::new(PoolShared::new(limit.max(1), name, starter)) }
    }

    /// Queues `job` for one of the threads. Returns its queue if the pool has no thread.
    pub(crate) fn run(&self, job: BlockingJob) -> Option<Stranded> {
        let shared = self.shared();
        let has_threads = shared.push([Work::Run(job)]);
        (!has_threads).then_some(Stranded(shared))
    }

    /// Starts a thread that stays until the pool ends, which guarantees that every job runs.
    ///
    /// # Errors
    /// The operating system can start no more threads.
    pub(crate) fn ensure(&self) -> io::Result<()> {
        let shared = self.shared();
        let mut state = shared.state.lock();
        if !state.has_resident {
            shared.start(&mut state, true)?;
            state.has_resident = true;
        }
        Ok(())
    }

    /// Returns a transport for the calling thread.
    pub(crate) fn transport(&self) -> Threads {
        let returns = Arc::new(Returns { done: Mutex::default(), alarm: Alarm::with_condvar() });
        Threads { pool: self.shared(), returns, queued: Vec::new(), in_flight: 0, sockets: None }
    }

    fn shared(&self) -> Arc<PoolShared> {
        let mut shared = self.shared.lock();
        if shared.fork_generation != posix::fork_generation() {
            // Its threads, the reads in their queue, and the waiters on its condition variable
            // stayed with the parent.
            let fresh = PoolShared::new(shared.limit, &shared.name, shared.starter.clone());
            std::mem::forget(std::mem::replace(&mut *shared, fresh));
        }
        shared.clone()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let shared = self.shared.get_mut();
        if shared.fork_generation == posix::fork_generation() {
            shared.state.lock().closed = true;
            shared.available.notify_all();
        }
    }
}

impl PoolShared {
    fn new(limit: usize, name: &str, starter: Starter) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            available: Condvar::new(),
            limit,
            name: name.into(),
            starter,
            fork_generation: posix::fork_generation(),
        })
    }

    /// Queues work, and starts threads if all are busy. Returns true if the pool has a thread.
    fn push(self: &Arc<Self>, work: impl IntoIterator<Item = Work>) -> bool {
        let mut state = self.state.lock();
        state.queue.extend(work);
        let wanted =
            state.queue.len().saturating_sub(state.idle).min(self.limit - state.threads.min(self.limit));
        let woken = state.queue.len().min(state.idle);
        let refused = (0..wanted).find_map(|_| self.start(&mut state, false).err());
        let has_threads = state.threads > 0;
        drop(state);
        for _ in 0..woken {
            self.available.notify_one();
        }
        if let Some(e) = refused {
            report!(warn, error = %e, "cannot start an I/O thread");
        }
        has_threads
    }

    /// Starts a thread, which ends after an idle time unless `stays`.
    fn start(self: &Arc<Self>, state: &mut PoolState, stays: bool) -> io::Result<()> {
        let shared = self.clone();
        self.starter.start(&self.name, move || shared.work(stays))?;
        state.threads += 1;
        Ok(())
    }

    /// The main loop of a thread: runs the queue's work and waits for more. Ends with the pool or,
    /// unless `stays`, after an idle time.
    fn work(&self, stays: bool) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                work.perform_and_go_on();
                state = self.state.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let mut timed_out = false;
            if stays {
                state = self.available.wait(state);
            } else {
                (state, timed_out) = self.available.wait_for(&self.state, state, IDLE_LIMIT);
            }
            state.idle -= 1;
            if timed_out && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Runs the queued work on the calling thread as long as the pool has no thread.
    fn drain(&self) {
        loop {
            let work = {
                let mut state = self.state.lock();
                if state.threads > 0 {
                    return;
                }
                state.queue.pop_front()
            };
            match work {
                Some(work) => work.perform_and_go_on(),
                None => return,
            }
        }
    }
}

/// A queue of jobs for which no thread could be started.
pub(crate) struct Stranded(Arc<PoolShared>);

impl Stranded {
    /// Runs the queued jobs that no thread runs. The caller must hold no lock.
    pub(crate) fn help(&self) {
        self.0.drain();
    }
}

impl Work {
    /// Performs the work and catches the panic of a waker or of a value's drop. Such a panic must
    /// end neither this thread, which is counted and has other work to do, nor a caller that does
    /// the work in its place.
    fn perform_and_go_on(self) {
        if catch_unwind(AssertUnwindSafe(|| self.perform())).is_err() {
            report!(error, "a waker, or the end of a job, has panicked");
        }
    }

    fn perform(self) {
        match self {
            Self::Run(job) => job(),
            Self::Read(mut op, returns) => {
                let Op { file, buffer, start, len, offset, .. } = &mut op;
                let result = match file.backend() {
                    Backend::Fd(fd) => posix::read_into(fd, buffer, *start, *len, *offset),
                    Backend::Soft(_) => Err(io::ErrorKind::InvalidInput.into()),
                };
                returns.give(Completion::Read { op, result });
            }
            Self::Open(OpenOp { token, path, options }, returns) => {
                let path = Path::new(OsStr::from_bytes(path.as_bytes()));
                returns.give(Completion::Opened { token, result: PosixFile::open(path, options) });
            }
            Self::Write(op, returns) => {
                let result = match op.file.backend() {
                    WriteBackend::Fd(fd) => op.action.take_step(fd, op.at_most),
                    _ => Err(io::ErrorKind::InvalidInput.into()),
                };
                returns.give(Completion::Written { op, result });
            }
        }
    }
}

impl WriteAction {
    /// Takes one step, of at most `at_most` bytes. Returns the number of bytes written. Blocks.
    fn take_step(&self, fd: BorrowedFd<'_>, at_most: usize) -> io::Result<usize> {
        match self {
            Self::Write { data, start, offset } => {
                let rest = &data[*start..];
                posix::write_some(fd, &rest[..rest.len().min(at_most)], offset + *start as u64)
            }
            Self::Sync { all } => posix::sync_once(fd, *all).map(|()| 0),
            Self::Reserve { offset, len } => posix::allocate(fd, *offset, *len).map(|()| 0),
        }
    }
}

/// The destination of a channel's completions.
struct Returns {
    done: Mutex<Vec<Completion>>,
    alarm: Arc<Alarm>,
}

impl Returns {
    fn give(&self, completion: Completion) {
        self.done.lock().push(completion);
        self.alarm.ring();
    }
}

/// A channel's side of the pool.
pub(crate) struct Threads {
    pool: Arc<PoolShared>,
    returns: Arc<Returns>,
    queued: Vec<Work>,
    in_flight: usize,
    /// Set by the first operation on a socket.
    sockets: Option<Readiness>,
}

impl Threads {
    /// Hands over what has completed.
    fn take(&mut self, done: &mut Vec<Completion>) {
        let before = done.len();
        done.append(&mut self.returns.done.lock());
        self.in_flight -= done.len() - before;
        if let Some(sockets) = &mut self.sockets {
            sockets.take(done);
        }
    }
}

impl Transport for Threads {
    fn queue(&mut self, op: Op) {
        self.in_flight += 1;
        self.queued.push(Work::Read(op, self.returns.clone()));
    }

    fn queue_open(&mut self, op: OpenOp) {
        self.in_flight += 1;
        self.queued.push(Work::Open(op, self.returns.clone()));
    }

    fn queue_write(&mut self, op: WriteOp) {
        self.in_flight += 1;
        self.queued.push(Work::Write(op, self.returns.clone()));
    }

    fn queue_socket(&mut self, op: SocketOp) {
        let sockets = match &mut self.sockets {
            Some(sockets) => sockets,
            none => match self.returns.alarm.add_eventfd().and_then(|()| Readiness::new(&self.returns.alarm))
            {
                Ok(sockets) => none.insert(sockets),
                Err(e) => {
                    self.in_flight += 1;
                    return self.returns.give(Completion::Socket { op, result: Err(e) });
                }
            },
        };
        sockets.start(op);
    }

    fn cancel_socket(&mut self, token: u32) {
        if let Some(sockets) = &mut self.sockets {
            sockets.cancel(token);
        }
    }

    fn submit(&mut self) -> bool {
        let any = !self.queued.is_empty();
        if any && !self.pool.push(self.queued.drain(..)) {
            self.pool.drain();
        }
        any
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        if let Some(sockets) = &mut self.sockets {
            sockets.wait(Some(Duration::ZERO));
        }
        self.take(done);
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) {
        self.submit();
        let before = done.len();
        // Asked first, because reads that complete all the time must not hold sockets up.
        self.poll(done);
        if done.len() == before && self.returns.alarm.fall_asleep() {
            match &mut self.sockets {
                Some(sockets) => sockets.wait(timeout),
                None => self.returns.alarm.sleep(timeout),
            }
            self.returns.alarm.wake_up();
            self.returns.alarm.silence();
            self.take(done);
        }
    }

    fn alarm(&self) -> &Arc<Alarm> {
        &self.returns.alarm
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn abandon_after_fork(self: Box<Self>) {
        std::mem::forget(self);
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut done = Vec::new();
        self.sockets.as_mut().into_iter().for_each(Readiness::cancel_all);
        while self.in_flight > 0 {
            self.wait(None, &mut done);
            done.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking;
    use crate::threads::ThreadAllowance;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};

    #[test]
    fn an_idle_thread_ends_and_the_resident_one_stays() {
        let allowance = ThreadAllowance::new(1);
        let pool = ThreadPool::new(4, "test", Starter::within(Some(allowance.clone())));
        let (tell, told) = mpsc::channel();
        let job = || {
            let tell = tell.clone();
            Box::new(move || tell.send(()).unwrap())
        };
        let threads = || pool.shared().state.lock().threads;
        assert!(pool.run(job()).is_none());
        told.recv().unwrap();
        while threads() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pool.ensure().is_err());
        allowance.set(1);
        pool.ensure().unwrap();
        std::thread::sleep(10 * IDLE_LIMIT);
        assert_eq!(threads(), 1);
        assert!(pool.run(job()).is_none(), "though no more can be started");
        told.recv().unwrap();
    }

    /// A future's waker is called on the thread of its job.
    #[test]
    fn a_waker_that_panics_ends_no_thread() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("the waker's own");
            }
        }
        let allowance = ThreadAllowance::new(1);
        let pool = ThreadPool::new(4, "test", Starter::within(Some(allowance.clone())));
        pool.ensure().unwrap();
        for round in 0..3 {
            let (go, gone) = mpsc::channel::<()>();
            let (work, mut future) = blocking::job(move || gone.recv().is_err());
            let waker = Waker::from(Arc::new(Panics));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(pool.run(work).is_none());
            drop(go);
            let (tell, told) = mpsc::channel();
            assert!(pool.run(Box::new(move || tell.send(()).unwrap())).is_none(), "no thread counts");
            let told = told.recv_timeout(Duration::from_secs(300));
            assert!(told.is_ok(), "round {round}: the thread is gone, and another cannot be started");
            assert_eq!(pool.shared().state.lock().threads, 1);
        }
    }
}
