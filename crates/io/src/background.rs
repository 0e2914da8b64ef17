//! Background jobs: [`Env::spawn`](crate::Env::spawn), the pools of threads that run them, and the
//! [`Task`] that waits for one.
//!
//! A pool has one priority and a maximum number of reactor threads, each with its own channel. A
//! new job starts a thread if every thread of the pool has a job; otherwise it goes to the thread
//! with the fewest jobs. A job stays on its thread, which keeps its I/O on one ring, and while it
//! waits, the thread's other jobs run: a job may await jobs of its own pool. If the operating
//! system refuses a thread to a pool, another pool's thread runs its jobs.
//!
//! Invariant: a job ends exactly once: with its value, with its panic, or cancelled because its
//! pool ends. The pools end with the environment. A job that holds the environment keeps them
//! alive, therefore the caller that spawns such a job must wait for it.

use crate::current::AtWork;
use crate::env::Env;
use crate::error::Error;
use crate::giving_way::{GivingWay, Hurry};
use crate::reactor::{Join, JoinError, Reactor, with_ending};
use crate::report;
use crate::sync::Mutex;
use crate::sync::{AtomicUsize, Ordering, counting};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The urgency of a job; each priority has its own threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Compactions into the last level, when they must not hold up the others.
    Bottom,
    /// Compactions.
    Low,
    /// Flushes and other jobs that writers wait for.
    High,
}

impl Priority {
    /// All priorities, the least urgent first.
    pub const ALL: [Self; 3] = [Self::Bottom, Self::Low, Self::High];
    /// The priorities of compactions.
    pub const COMPACTIONS: [Self; 2] = [Self::Bottom, Self::Low];

    fn name(self) -> &'static str {
        match self {
            Self::Bottom => "karst-bottom",
            Self::Low => "karst-low",
            Self::High => "karst-high",
        }
    }

    /// Returns the niceness added to the threads of this priority. Flushes get less, because
    /// writers wait for flushes sooner than for compactions.
    fn nicer_by(self) -> i32 {
        match self {
            Self::Bottom | Self::Low => 19,
            Self::High => 10,
        }
    }
}

/// A job's future, which stores its own result.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handle of a job started with [`Env::spawn`](crate::Env::spawn). Awaiting it gives the job's
/// result; dropping it lets the job run on.
#[must_use = "dropping it lets the job run on, its result unseen; say so with `drop`"]
pub struct Task<T> {
    join: Arc<Join<T>>,
}

impl<T> Task<T> {
    /// Returns true if the job has ended.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.join.poll(cx)
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({})", if self.is_finished() { "finished" } else { "running" })
    }
}

/// Turns a future into a job and the task that waits for it.
pub(crate) fn job<F>(future: F) -> (Job, Task<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let join = Join::new();
    let ending = with_ending(join.clone(), future);
    let marked = async move {
        let mut ending = pin!(ending);
        poll_fn(|cx| {
            let _running = Running::new();
            let _at_work = AtWork::new();
            ending.as_mut().poll(cx)
        })
        .await;
    };
    (Box::pin(marked), Task { join })
}

/// Number of background jobs of this process that are being polled. Excludes jobs that wait, and
/// [`Env::run_blocking`](crate::Env::run_blocking), because writers may wait for that.
static RUNNING: counting::AtomicUsize = counting::AtomicUsize::new(0);

/// Counts a job while it is polled.
struct Running;

impl Running {
    fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if a background job of this process is running, as far as this thread knows.
#[inline]
pub(crate) fn jobs_are_running() -> bool {
    RUNNING.load(Ordering::Relaxed) > 0
}

/// The threads of all priorities.
pub(crate) struct Pools([Pool; 3]);

struct Pool {
    priority: Priority,
    limit: AtomicUsize,
    threads: Mutex<Threads>,
    /// CPU and I/O priority control that the pool's threads join.
    giving_way: Arc<GivingWay>,
}

#[derive(Default)]
struct Threads {
    running: Vec<PoolThread>,
    fork_generation: u64,
}

struct PoolThread {
    reactor: Reactor,
    /// Jobs given to this thread that have not ended.
    jobs: Arc<AtomicUsize>,
}

/// Counts a job until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pools {
    pub(crate) fn new(limits: impl Fn(Priority) -> usize, giving_way: &[Priority]) -> Self {
        Self(Priority::ALL.map(|priority| Pool {
            priority,
            limit: AtomicUsize::new(limits(priority).max(1)),
            threads: Mutex::default(),
            giving_way: GivingWay::new(giving_way.contains(&priority).then(|| priority.nicer_by())),
        }))
    }

    pub(crate) fn set_limit(&self, priority: Priority, threads: usize) {
        self.0[priority as usize].limit.store(threads.max(1), Ordering::Relaxed);
    }

    pub(crate) fn limit(&self, priority: Priority) -> usize {
        self.0[priority as usize].limit.load(Ordering::Relaxed)
    }

    pub(crate) fn hurry(&self, priority: Priority) -> Hurry {
        let way = &self.0[priority as usize].giving_way;
        Hurry::of(way.gives_way().then_some(way))
    }

    /// Gives the threads of `priority` the lowest CPU priority, for good.
    pub(crate) fn lower_cpu(&self, priority: Priority) {
        self.0[priority as usize].giving_way.lower_cpu();
    }

    /// Gives the threads of `priority` the lowest I/O priority, for good.
    pub(crate) fn lower_io(&self, priority: Priority) {
        self.0[priority as usize].giving_way.lower_io();
    }

    /// Starts a thread for the most urgent jobs if the pool has none; it also runs the jobs of
    /// pools that can start no thread of their own.
    ///
    /// # Errors
    /// The operating system can start no more threads.
    pub(crate) fn ensure(&self, env: &Env) -> Result<(), Error> {
        self.0[Priority::High as usize].ensure(env)
    }

    /// Gives a job to a thread of its priority, or of another one if none can be started. Without
    /// any thread the job is dropped, which cancels it.
    pub(crate) fn run(&self, env: &Env, priority: Priority, job: Job) {
        let others = Priority::ALL.into_iter().filter(|other| *other != priority).rev();
        let mut pools = others.map(|other| &self.0[other as usize]);
        let mut refused = self.0[priority as usize].run(env, job);
        while let Err(job) = refused {
            let Some(pool) = pools.next() else {
                return report!(error, "a background job is cancelled: no thread");
            };
            refused = pool.run_on_started(job);
        }
    }
}

impl Pool {
    fn ensure(&self, env: &Env) -> Result<(), Error> {
        let mut threads = self.threads.lock();
        threads.leave_inherited();
        match threads.running.is_empty() {
            true => self.start(env, &mut threads),
            false => Ok(()),
        }
    }

    fn start(&self, env: &Env, threads: &mut Threads) -> Result<(), Error> {
        let builder = Reactor::builder(env).name(self.priority.name());
        let reactor = builder.giving_way(Some(self.giving_way.clone())).build()?;
        threads.running.push(PoolThread { reactor, jobs: Arc::default() });
        Ok(())
    }

    /// Gives the job to the thread with the fewest jobs, or to a new one. Returns the job if the
    /// pool has no thread.
    fn run(&self, env: &Env, job: Job) -> Result<(), Job> {
        let mut threads = self.threads.lock();
        threads.leave_inherited();
        let limit = self.limit.load(Ordering::Relaxed);
        let least = threads.running.iter().take(limit).map(PoolThread::load).min();
        if least != Some(0)
            && threads.running.len() < limit
            && let Err(e) = self.start(env, &mut threads)
        {
            report!(warn, error = %e, priority = ?self.priority, "cannot start another background thread");
        }
        threads.give(limit, job)
    }

    /// Gives the job to the running thread with the fewest jobs, without starting one. Returns the
    /// job if no thread runs.
    fn run_on_started(&self, job: Job) -> Result<(), Job> {
        let mut threads = self.threads.lock();
        threads.leave_inherited();
        threads.give(self.limit.load(Ordering::Relaxed), job)
    }
}

impl PoolThread {
    fn load(&self) -> usize {
        self.jobs.load(Ordering::Relaxed)
    }
}

impl Threads {
    /// Gives the job to the one of the first `limit` threads that has the fewest jobs.
    fn give(&self, limit: usize, job: Job) -> Result<(), Job> {
        let Some(thread) = self.running.iter().take(limit).min_by_key(|thread| thread.load()) else {
            return Err(job);
        };
        thread.jobs.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(thread.jobs.clone());
        let started = thread.reactor.spawn(move || async move {
            let _counted = counted;
            job.await;
        });
        drop(started);
        Ok(())
    }

    /// Forgets the threads in a forked child: they stayed with the parent.
    fn leave_inherited(&mut self) {
        let now = crate::posix::fork_generation();
        if self.fork_generation != now {
            std::mem::forget(std::mem::take(&mut self.running));
            self.fork_generation = now;
        }
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        for pool in &mut self.0 {
            pool.threads.get_mut().leave_inherited();
        }
    }
}
