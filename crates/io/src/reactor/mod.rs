//! The reactor: threads that each own a channel and run tasks to completion on it.
//!
//! A task lives on one thread from its start to its end and need not be `Send`; the closure that
//! makes it is. Its reads go to the thread's own ring, without a lock or another thread in between.
//! When no task is ready, the thread spins for a moment if its [`IdlePolicy`] says so, then sleeps
//! in the kernel until a read completes or another thread wakes it.
//!
//! A task that computes for long, or blocks, delays every other task of its thread;
//! [`ReactorStats::hold_times`] shows by how much. The loop submits queued reads to the kernel
//! every few of them, not only after the whole ready list, which lets the device work while the
//! other tasks run.

mod attached;
mod hold_time;
mod join;
mod polled;
mod task;

use crate::channel::Channel;
use crate::current::{self, Enter};
use crate::env::{Env, Purpose};
use crate::error::Error;
use crate::giving_way::GivingWay;
use crate::report;
use crate::stats::{Counters, IoStats};
use crate::sync::counting::AtomicU64;
use crate::sync::mpsc::{Receiver, Sender, channel};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{AtomicUsize, Ordering, spin_loop, thread_local};
use crate::transport::Alarm;
pub use attached::{attach, carries_writes, may_write_by_call};
pub use hold_time::HoldTimeHistogram;
use hold_time::HoldTimes;
pub(crate) use join::Join;
pub use join::{JoinError, JoinHandle};
pub use polled::{PolledReactor, Spawner};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use task::{Table, TaskKey, Tasks};
pub use task::{YieldNow, yield_now};

/// Behavior of a reactor thread when no task is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Sleep in the kernel at once: least CPU.
    Block,
    /// Look for completions for this time, then sleep: saves the wake-up if they arrive within it,
    /// and costs CPU if not.
    SpinThenBlock(Duration),
    /// Never sleep: for a thread that owns its core.
    Spin,
}

/// Threads that run tasks. Dropping it drops the tasks and ends the threads.
pub struct Reactor {
    threads: Vec<ReactorThread>,
    next: AtomicUsize,
}

struct ReactorThread {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The part of a reactor thread's state that other threads use.
struct Shared {
    inbox: Sender<Message>,
    alarm: Arc<Alarm>,
    stats: Arc<LoopStats>,
    thread: ThreadId,
}

struct LoopStats {
    hold_times: HoldTimes,
    sleeps: AtomicU64,
    io: Arc<Counters>,
    fork_generation: u64,
}

enum Message {
    Start(Box<dyn FnOnce(&Local) + Send>),
    Task(SendTask),
    Ready(TaskKey),
    Abort(TaskKey),
    Stop,
}

/// A task made on another thread. It reports its own end.
type SendTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The part of a reactor's state that only its own thread uses.
struct Local {
    shared: Arc<Shared>,
    tasks: Tasks,
    /// Tasks that other threads may wait for; see [`attach`].
    attached: Tasks,
    /// True if tasks may be attached.
    carries_writes: bool,
    /// Number of calls that the running task has made instead of operations on the ring.
    calls: Cell<u32>,
    /// True while an attached task is run.
    runs_attached: Cell<bool>,
    /// True while the thread waits for the ends of its attached tasks.
    finishes: Cell<bool>,
    channel: Rc<Channel>,
}

/// Statistics of one reactor thread.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReactorStats {
    /// Times that tasks held the thread from one await to the next, including the submission of the
    /// reads that they began.
    pub hold_times: HoldTimeHistogram,
    /// Number of times the thread slept.
    pub sleeps: u64,
    /// Statistics of its channel.
    pub io: IoStats,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

fn with_local<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    let local = LOCAL.try_with(|local| local.borrow().clone()).ok().flatten();
    f(local.as_deref())
}

impl Shared {
    fn send(&self, message: Message) {
        // Not sent: a reactor that has ended has no task left to wake.
        if self.inbox.send(message).is_ok() {
            self.alarm.ring();
        }
    }

    fn is_this_thread(&self) -> bool {
        self.thread == thread::current().id()
    }
}

/// Builds a [`Reactor`].
#[derive(Debug)]
pub struct ReactorBuilder {
    env: Env,
    threads: usize,
    idle: IdlePolicy,
    name: String,
    pin: bool,
    carries_writes: bool,
    gives_way: Option<Arc<GivingWay>>,
}

impl ReactorBuilder {
    /// The number of threads, each with its own channel. Default: 1.
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count.max(1);
        self
    }

    /// The behavior of a thread when no task is ready. Default: [`IdlePolicy::Block`].
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// The threads' name. Default: `karst-reactor`.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Binds each thread to one of the CPUs this process may use, in turn. Default: false.
    pub fn pin(mut self, yes: bool) -> Self {
        self.pin = yes;
        self
    }

    /// Carries the log of a database on the rings of its threads: an asynchronous write that finds
    /// no other one at work writes and syncs the log for all, without a thread that may block. A
    /// small write without a sync is then a call on the thread itself. Default: false, which leaves
    /// the log to threads that may block.
    ///
    /// Other threads' writes then wait for these rings. A task must therefore not block its thread
    /// until another thread has written, except in this crate's and the database's calls:
    /// `block_on` of another executor (`futures`, `pollster`), a lock or a channel of the standard
    /// library may wait for ever, and all writers with it. A task that computes for long delays all
    /// writers.
    pub fn carries_writes(mut self, yes: bool) -> Self {
        self.carries_writes = yes;
        self
    }

    /// Adds its threads to `group`, whose threads give way to others.
    pub(crate) fn giving_way(mut self, group: Option<Arc<GivingWay>>) -> Self {
        self.gives_way = group;
        self
    }

    /// Starts the threads. Returns when all are ready.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn build(self) -> Result<Reactor, Error> {
        let mut reactor = Reactor { threads: Vec::new(), next: AtomicUsize::new(0) };
        for number in 0..self.threads {
            let pin_to = self.pin.then_some(number);
            reactor.threads.push(start(&self, pin_to)?);
        }
        Ok(reactor)
    }
}

impl Reactor {
    /// Returns a builder for a reactor of `env`.
    pub fn builder(env: &Env) -> ReactorBuilder {
        ReactorBuilder {
            env: env.clone(),
            threads: 1,
            idle: IdlePolicy::Block,
            name: "karst-reactor".into(),
            pin: false,
            carries_writes: false,
            gives_way: None,
        }
    }

    /// Runs the future that `make` returns, on the next thread in turn.
    pub fn spawn<M, F>(&self, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len(), make)
    }

    /// Runs the future that `make` returns, on thread number `thread` (modulo their count).
    pub fn spawn_on<M, F>(&self, thread: usize, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let shared = self.threads[thread % self.threads.len()].shared.clone();
        let join = Join::new();
        let theirs = join.clone();
        let start = move |local: &Local| launch(local, theirs, async move { make().await });
        shared.send(Message::Start(Box::new(start)));
        JoinHandle { join, shared }
    }

    /// Runs a task that reports its own end, on the next thread in turn; allocates only the task's
    /// slot. A reactor that ends drops it.
    pub fn spawn_detached(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let thread = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        self.threads[thread].shared.send(Message::Task(task));
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns the statistics of each thread.
    pub fn stats(&self) -> Vec<ReactorStats> {
        let of = |t: &ReactorThread| ReactorStats {
            hold_times: t.shared.stats.hold_times.snapshot(),
            sleeps: t.shared.stats.sleeps.load(Ordering::Relaxed),
            io: IoStats::of(&t.shared.stats.io),
        };
        self.threads.iter().map(of).collect()
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reactor({} threads)", self.threads.len())
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        current::finish_attached();
        self.threads.iter().for_each(|t| t.shared.send(Message::Stop));
        for reactor in &mut self.threads {
            let Some(thread) = reactor.thread.take() else { continue };
            if reactor.shared.stats.fork_generation != crate::posix::fork_generation() {
                std::mem::forget(thread); // it stayed with the parent
            } else if !reactor.shared.is_this_thread() {
                let _ = thread.join();
            }
        }
    }
}

/// Runs `future` on the calling reactor thread.
///
/// # Panics
/// If the calling thread is no reactor's.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    with_local(|local| {
        let local = local.expect("spawn_local is for code that a reactor runs");
        let join = Join::new();
        launch(local, join.clone(), future);
        JoinHandle { join, shared: local.shared.clone() }
    })
}

/// Wraps `future` to store its end in `join`: its value, its panic, or its drop before either.
pub(crate) fn with_ending<F: Future>(join: Arc<Join<F::Output>>, future: F) -> impl Future<Output = ()> {
    /// Stores `Cancelled` when dropped, unless a result is already stored.
    struct Ending<T>(Arc<Join<T>>);
    impl<T> Drop for Ending<T> {
        fn drop(&mut self) {
            self.0.finish(Err(JoinError::Cancelled));
        }
    }
    // A tuple, because if it is dropped before its first poll, the future is dropped before
    // `Ending` stores the end.
    let parts = (future, Ending(join));
    async move {
        let (future, ending) = parts;
        let result = {
            let mut future = pin!(future);
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
                Err(payload) => Poll::Ready(Err(JoinError::Panicked(payload))),
            })
            .await
        };
        ending.0.finish(result);
    }
}

/// Makes a task of a future, with its end stored for the handle.
fn launch<F>(local: &Local, join: Arc<Join<F::Output>>, future: F)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let control = join.control.clone();
    let task = with_ending(join, future);
    if control.aborted.load(Ordering::SeqCst) {
        return;
    }
    let key = local.tasks.add(&local.shared, Box::pin(task));
    let _ = control.key.set(key);
    // Ordering: the handle stores `aborted` and then looks for the key; this thread stores the key
    // and then looks at `aborted`.
    if control.aborted.load(Ordering::SeqCst) {
        local.tasks.abort(key);
    }
}

fn start(builder: &ReactorBuilder, pin_to: Option<usize>) -> Result<ReactorThread, Error> {
    let ReactorBuilder { env, name, idle, gives_way, .. } = builder;
    let (idle, gives_way, carries_writes) = (*idle, gives_way.clone(), builder.carries_writes);
    let (inbox, messages) = channel();
    let (ready, is_ready) = channel();
    let env_of_thread = env.clone();
    let thread = env.spawn_thread(name, move || {
        if let Some(number) = pin_to
            && let Err(e) = crate::posix::pin_to_cpu(number)
        {
            report!(warn, error = %e, "cannot bind a reactor's thread to a CPU");
        }
        let _gives_way = gives_way.map(|group| group.join());
        let io = Rc::new(env_of_thread.maker().make(Purpose::Many));
        // Dropped, because the reactor must not keep the environment alive.
        drop(env_of_thread);
        let local = Rc::new(Local::new(&io, inbox, carries_writes));
        if carries_writes {
            current::set_attached(Some(local.clone()));
        }
        let shared = local.shared.clone();
        LOCAL.with(|slot| *slot.borrow_mut() = Some(local.clone()));
        let _entered = Enter::new(io);
        if ready.send(shared).is_ok() {
            run(&local, &messages, idle);
        }
        local.tasks.clear();
        // Tasks that the ends of others have attached are finished too; none is attached
        // afterwards.
        current::finish_attached();
        current::set_attached(None);
        // Messages sent meanwhile are dropped with the inbox, which cancels their tasks.
        LOCAL.with(|slot| slot.borrow_mut().take());
    })?;
    let shared = is_ready.recv();
    let shared =
        shared.map_err(|_| Error::new("start thread", name, io::Error::other("it ended at once")))?;
    Ok(ReactorThread { shared, thread: Some(thread) })
}

impl Local {
    /// Makes the state of a reactor on this thread.
    fn new(channel: &Rc<Channel>, inbox: Sender<Message>, carries_writes: bool) -> Self {
        current::announce(channel);
        let stats = Arc::new(LoopStats {
            hold_times: HoldTimes::new(),
            sleeps: AtomicU64::new(0),
            io: channel.counters(),
            fork_generation: crate::posix::fork_generation(),
        });
        let alarm = channel.alarm().clone();
        let shared = Arc::new(Shared { inbox, alarm, stats, thread: thread::current().id() });
        Self {
            shared,
            tasks: Tasks::of(Table::Ordinary),
            attached: Tasks::of(Table::Attached),
            carries_writes,
            runs_attached: Cell::new(false),
            finishes: Cell::new(false),
            calls: Cell::new(0),
            channel: channel.clone(),
        }
    }

    fn table(&self, table: Table) -> &Tasks {
        match table {
            Table::Ordinary => &self.tasks,
            Table::Attached => &self.attached,
        }
    }

    /// Returns true if a task is ready to run.
    fn has_ready(&self) -> bool {
        self.tasks.ready_count() + self.attached.ready_count() > 0
    }
}

fn run(local: &Local, messages: &Receiver<Message>, idle: IdlePolicy) {
    let stats = &local.shared.stats;
    while let ControlFlow::Continue(began) = turn(local, messages) {
        if local.has_ready() {
            local.channel.submit();
            continue;
        }
        if spin(local, idle, began) {
            stats.sleeps.store(stats.sleeps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            local.channel.wait(None);
        }
    }
}

/// Takes in completions and messages, and runs each ready task once, without waiting. Returns the
/// time at which the last one ended, or `Break` if the reactor must end.
fn turn(local: &Local, messages: &Receiver<Message>) -> ControlFlow<(), Instant> {
    let (channel, tasks, stats) = (&local.channel, &local.tasks, &local.shared.stats);
    // Cleared before the work, because this thread's own wakes have rung too, and the next wait
    // must not return for those.
    channel.alarm().take();
    while let Ok(message) = messages.try_recv() {
        match message {
            Message::Start(start) => start(local),
            Message::Task(task) => drop(tasks.add(&local.shared, task)),
            Message::Ready(key) => local.table(key.table).make_ready(key),
            Message::Abort(key) => local.table(key.table).abort(key),
            Message::Stop => return ControlFlow::Break(()),
        }
    }
    let mut began = Instant::now();
    let mut ran = || {
        channel.submit_if_few_fly();
        local.calls.set(0);
        let ended = Instant::now();
        stats.hold_times.record(ended - began);
        began = ended;
    };
    // Only the tasks ready now, because completions and messages must be taken in before a task
    // that yields runs again.
    for _ in 0..tasks.ready_count() {
        tasks.run_next();
        ran();
    }
    // Behind the tasks, because they add to the round of a log that was begun by one of them.
    local.run_attached(local.attached.ready_count(), ran);
    channel.poll();
    ControlFlow::Continue(began)
}

/// Looks for work without sleeping for as long as the policy allows. Returns true if it found none
/// and the thread must sleep.
fn spin(local: &Local, idle: IdlePolicy, since: Instant) -> bool {
    let limit = match idle {
        IdlePolicy::Block => return true,
        IdlePolicy::SpinThenBlock(limit) => Some(limit),
        IdlePolicy::Spin => None,
    };
    local.channel.submit();
    loop {
        for _ in 0..16 {
            spin_loop();
            local.channel.poll();
            // Completions may have queued the next step of an operation, which no task waits to do.
            local.channel.submit();
            if local.has_ready() || local.channel.alarm().take() {
                return false;
            }
        }
        if limit.is_some_and(|limit| since.elapsed() >= limit) {
            return true;
        }
    }
}
