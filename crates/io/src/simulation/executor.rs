//! The seeded executor: one thread, one channel, virtual time.
//!
//! Every runnable item (woken tasks, blocking jobs that are due, the future of `block_on`) is a
//! candidate, and the seed chooses among them. Every step takes a little virtual time; without a
//! candidate, time jumps to the next timer. Reads of simulated files are held by the channel's
//! timer, like the delays of other soft files, which puts the real channel under test.
//!
//! A blocking job may linger in the middle of a change of the disk: other work runs, further up the
//! stack, until the job is due again. A job that began first may therefore end last. The caller
//! that starts such a job must not hold a lock that other work takes, neither here nor on a real
//! machine; there it would be slow, here it hangs.
//!
//! Invariants: everything happens on the one thread that first used the executor; equal seeds and
//! equal programs give equal sequences of steps, which [`Executor::history`] sums up. Lock: held
//! between two steps only; tasks, jobs and wakers run without it.

use crate::background;
use crate::channel::Channel;
use crate::current::{Enter, with_current};
use crate::env::Clock;
use crate::random::{Random, mix};
use crate::sync::Mutex;
use crate::thread_pool;
use crate::transport::{Alarm, Completion, Op, OpenOp, SocketOp, Transport, WriteOp};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

/// Maximum virtual time of a step, in nanoseconds.
const STEP_AT_MOST_NS: u64 = 2_000;
/// Maximum delay of a blocking job's start, in nanoseconds. One job in `ONE_JOB_SLOW_IN` is slow,
/// which multiplies its maximum by `SLOW_JOB_TIMES`.
const JOB_DELAY_AT_MOST_NS: u64 = 200_000;
const ONE_JOB_SLOW_IN: u64 = 16;
const SLOW_JOB_TIMES: u64 = 50;
/// One of this many disk changes makes a blocking job linger, for up to `LINGERING_AT_MOST_NS`.
const ONE_CHANGE_SLOW_IN: u64 = 6;
const LINGERING_AT_MOST_NS: u64 = 5_000_000;
/// Maximum number of jobs that linger at a time, because each uses the stack of the one before.
const LINGERING_AT_MOST: u32 = 3;
/// The `main` id for work driven while a job lingers, which waits for no future of a `block_on`.
const NO_MAIN: u64 = u64::MAX;

/// A clock that advances only when the executor advances it.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    now_ns: AtomicU64,
}

/// 2024-01-01, the start of a simulation's clock.
const START_UNIX: Duration = Duration::from_secs(1_704_067_200);

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }
    fn unix_time(&self) -> Duration {
        START_UNIX + self.now()
    }
}

pub(crate) struct Executor {
    state: Mutex<State>,
    clock: Arc<VirtualClock>,
    thread: OnceLock<ThreadId>,
}

struct State {
    random: Random,
    next_id: u64,
    tasks: BTreeMap<u64, Entry>,
    /// Tasks woken that have not run since, in the order of their wakes.
    ready: Vec<u64>,
    /// Blocking jobs and their start times, by number.
    jobs: BTreeMap<u64, (Duration, thread_pool::BlockingJob)>,
    /// True while a blocking job runs; the next field counts the jobs that linger.
    in_job: bool,
    lingering: u32,
    history: u64,
    steps: u64,
    most_steps: u64,
    closed: bool,
    trace: Option<Vec<String>>,
}

struct Entry {
    is_ready: bool,
    body: Body,
}

enum Body {
    /// Not running now.
    Idle(background::Job),
    /// Being polled, further up this thread's stack.
    Running,
    /// The future of a `block_on`, which only that call polls.
    Main,
}

/// The next step.
enum Step {
    Main,
    Task(u64, background::Job),
    Job(thread_pool::BlockingJob),
}

struct TaskWaker {
    executor: Arc<Executor>,
    id: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.executor.wake(self.id);
    }
}

impl Executor {
    /// Returns an executor whose clock begins at `start`. A restarted machine's clock continues,
    /// like a real one.
    pub(crate) fn new(seed: u64, start: Duration) -> Arc<Self> {
        let start_ns = u64::try_from(start.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Self {
            state: Mutex::new(State {
                random: Random::new(seed),
                next_id: 0,
                tasks: BTreeMap::new(),
                ready: Vec::new(),
                jobs: BTreeMap::new(),
                in_job: false,
                lingering: 0,
                history: mix(seed),
                steps: 0,
                most_steps: u64::MAX,
                closed: false,
                trace: None,
            }),
            clock: Arc::new(VirtualClock { now_ns: AtomicU64::new(start_ns) }),
            thread: OnceLock::new(),
        })
    }

    pub(crate) fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// Returns a hash of all events and the number of steps.
    pub(crate) fn history(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.history, state.steps)
    }

    pub(crate) fn set_most_steps(&self, steps: u64) {
        self.state.lock().most_steps = steps;
    }

    pub(crate) fn keep_trace(&self) {
        self.state.lock().trace = Some(Vec::new());
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.state.lock().trace.take().unwrap_or_default()
    }

    /// Adds an event to the history.
    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        struct Sum(u64);
        impl fmt::Write for Sum {
            fn write_str(&mut self, s: &str) -> fmt::Result {
                for b in s.bytes() {
                    self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3);
                }
                Ok(())
            }
        }
        let mut sum = Sum(state.history ^ now.as_nanos() as u64);
        let _ = fmt::Write::write_fmt(&mut sum, what);
        state.history = mix(sum.0);
        if let Some(trace) = &mut state.trace {
            trace.push(format!("{now:?} {what}"));
        }
    }

    pub(crate) fn spawn(self: &Arc<Self>, job: background::Job) {
        self.check_thread();
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return drop(job); // cancels its task
        }
        let id = state.add(Body::Idle(job));
        state.wake(id);
    }

    /// Draws whether the calling code leads a log's round by an [attached](crate::attach) task. A
    /// blocking job does not.
    pub(crate) fn draws_carrying(&self) -> bool {
        self.check_thread();
        let mut state = self.state.lock();
        !state.in_job && !state.closed && state.random.below(2) == 0
    }

    pub(crate) fn run_blocking(&self, job: thread_pool::BlockingJob) {
        self.check_thread();
        let mut state = self.state.lock();
        if state.closed {
            // Run, because the caller that waits for a blocking job relies on its end.
            drop(state);
            return job();
        }
        let times = if state.random.below(ONE_JOB_SLOW_IN) == 0 { SLOW_JOB_TIMES } else { 1 };
        let due = self.clock.now() + Duration::from_nanos(state.random.below(JOB_DELAY_AT_MOST_NS * times));
        let id = state.next_id;
        state.next_id += 1;
        state.jobs.insert(id, (due, job));
    }

    fn wake(&self, id: u64) {
        self.check_thread();
        self.state.lock().wake(id);
    }

    /// Panics on another thread, because the seed does not determine the order of another thread's
    /// actions.
    fn check_thread(&self) {
        let here = std::thread::current().id();
        assert!(
            *self.thread.get_or_init(|| here) == here,
            "a simulation was touched by another thread than its own"
        );
    }

    pub(crate) fn block_on<F: Future>(self: &Arc<Self>, channel: &Rc<Channel>, future: F) -> F::Output {
        match self.drive(channel, future, || false) {
            Some(output) => output,
            None => unreachable!("nothing stops it"),
        }
    }

    /// Runs everything until `future` is ready, and returns its output; or until `stopped` returns
    /// true after a step, and returns `None`, even if `future` is ready.
    ///
    /// # Panics
    /// No candidate can run, and `future` is not ready.
    pub(crate) fn drive<F: Future>(
        self: &Arc<Self>,
        channel: &Rc<Channel>,
        future: F,
        stopped: impl Fn() -> bool,
    ) -> Option<F::Output> {
        struct Main<'a>(&'a Executor, u64);
        impl Drop for Main<'_> {
            fn drop(&mut self) {
                self.0.state.lock().remove(self.1);
            }
        }
        self.check_thread();
        let _entered = Enter::new(channel.clone());
        let id = {
            let mut state = self.state.lock();
            let id = state.add(Body::Main);
            state.wake(id);
            id
        };
        let _main = Main(self, id);
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(TaskWaker { executor: self.clone(), id }));
        while !stopped() {
            let step = self.next(channel, id, None).expect("it waits as long as it takes");
            match step {
                Step::Main => {
                    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return (!stopped()).then_some(output);
                    }
                }
                step => self.perform(step),
            }
        }
        None
    }

    /// Performs a step other than polling the future of a `block_on`.
    fn perform(self: &Arc<Self>, step: Step) {
        let is_job = matches!(step, Step::Job(_));
        let before = std::mem::replace(&mut self.state.lock().in_job, is_job);
        match step {
            Step::Main => unreachable!("only its own call chooses it"),
            Step::Task(task, job) => self.poll_task(task, job),
            Step::Job(job) => job(),
        }
        self.state.lock().in_job = before;
    }

    /// Called before a change of the disk. A blocking job may linger here for a while, in which
    /// other work runs; not once `stopped` returns true.
    pub(crate) fn linger(self: &Arc<Self>, stopped: impl Fn() -> bool) {
        let now = self.clock.now();
        let span = self.state.lock().draw_lingering();
        let (Some(span), Some(channel)) = (span, with_current(|channel| channel.cloned())) else { return };
        self.note(format_args!("linger {span:?}"));
        while !stopped() {
            let Some(step) = self.next(&channel, NO_MAIN, Some(now + span)) else { break };
            self.perform(step);
        }
        self.note(format_args!("lingered"));
        self.state.lock().lingering -= 1;
    }

    fn poll_task(self: &Arc<Self>, id: u64, mut job: background::Job) {
        let waker = Waker::from(Arc::new(TaskWaker { executor: self.clone(), id }));
        match job.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                if let Some(entry) = self.state.lock().tasks.get_mut(&id) {
                    entry.body = Body::Idle(job);
                    return;
                }
                drop(job); // the simulation ended while it ran
            }
            Poll::Ready(()) => {
                let gone = self.state.lock().remove(id);
                drop((gone, job));
            }
        }
    }

    /// Chooses the next step, for the `block_on` whose future is `main`; `None` if no work is left
    /// before `until`.
    fn next(&self, channel: &Channel, main: u64, until: Option<Duration>) -> Option<Step> {
        loop {
            self.advance();
            channel.poll();
            let mut state = self.state.lock();
            let now = self.clock.now();
            if until.is_some_and(|until| now >= until) {
                return None;
            }
            if let Some(step) = state.choose(main, now) {
                let (steps, most) = (state.steps, state.most_steps);
                drop(state);
                assert!(steps <= most, "the simulation does not end: {steps} steps");
                return Some(step);
            }
            let job = state.jobs.values().map(|(due, _)| *due).min();
            let next = [job, channel.next_due(), until].into_iter().flatten().min();
            let Some(next) = next else {
                let left = state.tasks.len();
                drop(state);
                panic!("the simulation is stuck: {left} futures wait, and nothing is left to wake one");
            };
            let next_ns = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
            self.clock.now_ns.fetch_max(next_ns, Ordering::Relaxed);
        }
    }

    fn advance(&self) {
        let span = self.state.lock().random.below(STEP_AT_MOST_NS);
        self.clock.now_ns.fetch_add(span, Ordering::Relaxed);
    }

    /// Drops all tasks, one after the other, and refuses new ones. A task whose drop waits for
    /// others (the last handle of a resource that closes it) finds them alive. Blocking jobs that
    /// have not started by then never start.
    pub(crate) fn close(&self, channel: &Rc<Channel>) {
        let _entered = Enter::new(channel.clone());
        loop {
            let next = {
                let mut state = self.state.lock();
                let at = state.tasks.len() as u64;
                let at = state.random.below(at) as usize;
                let id = state.tasks.keys().nth(at).copied();
                id.and_then(|id| state.remove(id))
            };
            let Some(task) = next else { break };
            drop(task);
        }
        let mut state = self.state.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
    }
}

impl State {
    fn add(&mut self, body: Body) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.tasks.insert(id, Entry { is_ready: false, body });
        id
    }

    /// Draws the time that a change of the disk lingers; `None` unless a blocking job makes it and
    /// it is slow.
    fn draw_lingering(&mut self) -> Option<Duration> {
        let may = self.in_job && !self.closed && self.lingering < LINGERING_AT_MOST;
        if !may || self.random.below(ONE_CHANGE_SLOW_IN) != 0 {
            return None;
        }
        self.lingering += 1;
        Some(Duration::from_nanos(self.random.below(LINGERING_AT_MOST_NS)))
    }

    fn wake(&mut self, id: u64) {
        if let Some(entry) = self.tasks.get_mut(&id)
            && !entry.is_ready
        {
            entry.is_ready = true;
            self.ready.push(id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.ready.retain(|ready| *ready != id);
        self.tasks.remove(&id)
    }

    fn choose(&mut self, main: u64, now: Duration) -> Option<Step> {
        let may_run = |id: &u64| match self.tasks.get(id).map(|entry| &entry.body) {
            Some(Body::Idle(_)) => true,
            Some(Body::Main) => *id == main,
            Some(Body::Running) | None => false,
        };
        let ready: Vec<u64> = self.ready.iter().copied().filter(may_run).collect();
        let due: Vec<u64> = self.jobs.iter().filter(|(_, (at, _))| *at <= now).map(|(id, _)| *id).collect();
        let count = ready.len() + due.len();
        if count == 0 {
            return None;
        }
        let chosen = self.random.below(count as u64) as usize;
        self.steps += 1;
        let id = ready.get(chosen).copied().unwrap_or_else(|| due[chosen - ready.len()]);
        self.history = mix(self.history ^ mix(id) ^ now.as_nanos() as u64);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:?} run {id} of {ready:?} {due:?}"));
        }
        if chosen >= ready.len() {
            return self.jobs.remove(&id).map(|(_, job)| Step::Job(job));
        }
        self.ready.retain(|ready| *ready != id);
        let entry = self.tasks.get_mut(&id)?;
        entry.is_ready = false;
        if matches!(entry.body, Body::Main) {
            return Some(Step::Main);
        }
        match std::mem::replace(&mut entry.body, Body::Running) {
            Body::Idle(job) => Some(Step::Task(id, job)),
            Body::Running | Body::Main => unreachable!("only an idle task is chosen"),
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executor({:?})", self.clock.now())
    }
}

/// The transport of a simulation's channel, whose files have no descriptors.
pub(crate) struct NoTransport(Arc<Alarm>);

impl NoTransport {
    pub(crate) fn new() -> Self {
        Self(Alarm::with_condvar())
    }
}

impl Transport for NoTransport {
    fn queue(&mut self, _: Op) {
        panic!("a simulation read a file of the operating system");
    }
    fn queue_open(&mut self, _: OpenOp) {
        panic!("a simulation opened a file of the operating system");
    }
    fn queue_write(&mut self, _: WriteOp) {
        panic!("a simulation wrote a file of the operating system");
    }
    fn queue_socket(&mut self, _: SocketOp) {
        panic!("a simulation used a socket of the operating system");
    }
    fn cancel_socket(&mut self, _: u32) {}
    fn submit(&mut self) -> bool {
        false
    }
    fn poll(&mut self, _: &mut Vec<Completion>) {}
    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Completion>) {
        panic!("a simulation waited for the operating system");
    }
    fn alarm(&self) -> &Arc<Alarm> {
        &self.0
    }
    fn in_flight(&self) -> usize {
        0
    }
    fn abandon_after_fork(self: Box<Self>) {}
    fn name(&self) -> &'static str {
        "simulation"
    }
}
