//! The environment: everything that is not determined by a program's input. Files, time,
//! randomness, threads, and the channels through which files are read.
//!
//! An [`Env`] is cheap to clone and shared by everything that belongs to one database or one test.
//! It is the only way the engine reaches the outside world, so a simulation can own all of it.

use crate::background::{self, Pools, Priority, Task};
use crate::blocking::{self, Blocking};
use crate::buffer::slab::Slabs;
use crate::channel::sharing::SharedReads;
use crate::channel::{Channel, ChannelOptions};
use crate::driver::Driver;
use crate::error::Error;
use crate::file::FileSystem;
use crate::giving_way::Hurry;
use crate::observed::{FileObserver, ObservedFileSystem, Observers};
use crate::posix::{self, CpuPriority, PosixFileSystem};
use crate::remote::RemoteOp;
use crate::report;
use crate::ring::Ring;
use crate::simulation::executor::Executor;
#[cfg(feature = "testing")]
use crate::simulation::executor::NoTransport;
use crate::stats::{CounterSet, IoStats};
use crate::sync::Mutex;
use crate::sync::thread::JoinHandle;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::thread_pool::ThreadPool;
use crate::threads::{Starter, ThreadAllowance};
use crate::transport::Transport;
use crate::waking::wake;
use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What carries reads to the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// io_uring if it works here, else threads; which one is said once in the log if it is threads.
    #[default]
    Auto,
    /// Threads that call `pread`, even where io_uring works.
    Threads,
}

impl FromStr for TransportKind {
    type Err = String;
    /// `auto` or `threads`.
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "threads" => Ok(Self::Threads),
            other => Err(format!("unknown transport `{other}`; expected `auto` or `threads`")),
        }
    }
}

/// Tells the time. Both clocks may be made up.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since some moment in the past; never goes back.
    fn now(&self) -> Duration;
    /// Time since 1970, UTC; may jump.
    fn unix_time(&self) -> Duration;
    /// Time that the calling thread has spent on a processor; always zero if nobody can tell.
    fn thread_cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The clocks of the operating system. Where shuttle explores threads there is none, and what
/// stands for time goes on with the threads.
#[derive(Debug)]
pub struct SystemClock {
    #[cfg(not(shuttle))]
    start: Instant,
    #[cfg(shuttle)]
    start: Duration,
}

#[cfg(shuttle)]
impl Default for SystemClock {
    fn default() -> Self {
        Self { start: crate::sync::time::now() }
    }
}

#[cfg(shuttle)]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        crate::sync::time::now() - self.start
    }
    fn unix_time(&self) -> Duration {
        self.now()
    }
}

#[cfg(not(shuttle))]
impl Default for SystemClock {
    fn default() -> Self {
        /// Why one of all: a time of one environment's clock is then one of every other's.
        static START: OnceLock<Instant> = OnceLock::new();
        Self { start: *START.get_or_init(Instant::now) }
    }
}

#[cfg(not(shuttle))]
impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
    fn thread_cpu_time(&self) -> Duration {
        crate::posix::thread_cpu_time()
    }
}

/// The outside world of one database or one test. Clones share it.
#[derive(Clone)]
pub struct Env(Arc<Inner>);

struct Inner {
    file_system: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    seed: AtomicU64,
    maker: Arc<ChannelMaker>,
    blocking: ThreadPool,
    background: Pools,
    /// What runs its futures, if they are simulated.
    simulation: Option<Arc<Executor>>,
    starter: Starter,
    driver: OnceLock<Driver>,
    /// Lock: held to start the driver. The driver of a forked child, whose parent had started one.
    child_driver: Mutex<Option<Driver>>,
    direct_refusal_said: AtomicBool,
    /// Once somebody observes files.
    observed: OnceLock<Observed>,
}

/// Who is told of operations on files, and the file system that tells.
struct Observed {
    observers: Arc<Observers>,
    file_system: Arc<dyn FileSystem>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        crate::block_on::env_ended();
    }
}

/// Who uses a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The calls of one thread: few reads in flight.
    Calls,
    /// A reactor or the driver: many.
    Many,
}

/// Makes channels, each on the thread that will use it. Does not keep the environment alive.
pub(crate) struct ChannelMaker {
    kind: TransportKind,
    depth: u32,
    submit_batch: usize,
    register: bool,
    fallback_said: AtomicBool,
    readers: ThreadPool,
    /// What the channels' timers go by.
    clock: Arc<dyn Clock>,
    /// In a simulation nothing is carried by the operating system.
    simulated: bool,
    counters: CounterSet,
    /// What its channels read.
    flights: Arc<SharedReads>,
    /// What their buffers are cut from.
    slabs: Arc<Slabs>,
    fork_generation: u64,
}

impl ChannelMaker {
    pub(crate) fn make(&self, purpose: Purpose) -> Channel {
        let (share, depth) = match purpose {
            Purpose::Calls => (4, self.depth.min(128)),
            Purpose::Many => (1, self.depth),
        };
        let options = ChannelOptions {
            depth: depth as usize,
            submit_batch: self.submit_batch,
            pool_share: share,
            // Why not for calls: a thread with one read at a time gains little, and locked memory
            // is short.
            register: self.register && purpose == Purpose::Many,
            clock: self.clock.clone(),
            slabs: self.shared(&self.slabs),
            flights: self.shared(&self.flights),
        };
        let channel = Channel::new(self.transport(depth), self.counters.add_channel(), &options);
        report!(debug, transport = channel.transport_name(), ?purpose, "made an I/O channel");
        channel
    }

    /// What the environment's channels share, for a new one.
    fn shared<T: Default>(&self, of_all: &Arc<T>) -> Arc<T> {
        if self.fork_generation == posix::fork_generation() {
            of_all.clone()
        } else {
            // A thread of the parent may have held a lock of it, and the reads of its table never
            // land here. A child's channels share nothing.
            Arc::default()
        }
    }

    fn transport(&self, depth: u32) -> Box<dyn Transport> {
        #[cfg(feature = "testing")]
        if self.simulated {
            return Box::new(NoTransport::new());
        }
        if self.kind == TransportKind::Auto {
            match Ring::new(depth) {
                Ok(ring) => return Box::new(ring),
                Err(e) => {
                    if !self.fallback_said.swap(true, Ordering::Relaxed) {
                        report!(warn, error = %e, "io_uring cannot be used here; reading with threads instead");
                    }
                }
            }
        }
        Box::new(self.readers.transport())
    }
}

impl Env {
    /// The operating system's files, clock and threads.
    pub fn posix() -> Self {
        Self::builder().build()
    }

    /// Choose what the environment consists of.
    pub fn builder() -> EnvBuilder {
        EnvBuilder::default()
    }

    /// Its files. All calls block.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        self.0.observed.get().map_or(&self.0.file_system, |observed| &observed.file_system)
    }

    /// Has `observer` told of the operations on files: of all reads, and of what is done to files
    /// that are opened for writing from now on. For as long as somebody keeps it.
    pub fn observe(&self, observer: &Arc<dyn FileObserver>) {
        let observed = self.0.observed.get_or_init(|| {
            let (observers, clock) = (Arc::<Observers>::default(), self.0.clock.clone());
            let file_system = Arc::new(ObservedFileSystem {
                inner: self.0.file_system.clone(),
                now: Arc::new(move || clock.now()),
                observers: observers.clone(),
            });
            Observed { observers, file_system }
        });
        observed.observers.add(observer);
    }

    /// Who observes files, if anybody does.
    pub(crate) fn observers(&self) -> Option<&Observers> {
        self.0.observed.get().map(|observed| &*observed.observers)
    }

    /// Monotonic time since the environment was made (or as its clock has it).
    pub fn now(&self) -> Duration {
        self.0.clock.now()
    }

    /// Time since 1970, UTC.
    pub fn unix_time(&self) -> Duration {
        self.0.clock.unix_time()
    }

    /// Its clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// The name of this machine, at most 255 bytes. Empty in a simulation, which is to be the same
    /// everywhere.
    pub fn host_name(&self) -> String {
        if self.0.simulation.is_some() { String::new() } else { posix::host_name() }
    }

    /// A number for seeding a random generator; each call returns another, all determined by the
    /// environment's seed.
    pub fn random_seed(&self) -> u64 {
        mix(self.0.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
    }

    /// Start a thread.
    ///
    /// # Errors
    /// The operating system has none left, or the environment is simulated.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        if self.0.simulation.is_some() {
            let e = io::Error::new(io::ErrorKind::Unsupported, "a simulation has no threads");
            return Err(Error::new("start thread", name, e));
        }
        self.0.starter.start(name, body).map_err(|e| Error::new("start thread", name, e))
    }

    /// Has the threads without which nothing that is started goes on: one for
    /// [`run_blocking`](Self::run_blocking) and one for [`spawn`](Self::spawn). They stay as long
    /// as the environment. A simulation needs none.
    ///
    /// # Errors
    /// The operating system has none left.
    pub fn ensure_threads(&self) -> Result<(), Error> {
        if self.0.simulation.is_some() {
            return Ok(());
        }
        self.0.blocking.ensure().map_err(|e| Error::new("start thread", "karst-blocking", e))?;
        self.0.background.ensure(self)
    }

    /// Run `job` on a thread that may block, and get its result without blocking. The job starts at
    /// once; dropping the future gives up the result only.
    ///
    /// Where no thread can be had, and [`ensure_threads`](Self::ensure_threads) has not seen to it,
    /// the job is done by whoever awaits it, and waits until then.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Env) -> T + Send + 'static,
    ) -> Blocking<T> {
        let env = self.clone();
        let (job, mut blocking) = blocking::job(move || job(&env));
        match &self.0.simulation {
            Some(executor) => executor.run_blocking(job),
            None => blocking.stranded = self.0.blocking.run(job),
        }
        blocking
    }

    /// Run `job` on a thread that nobody else uses, so that it may wait for jobs of any kind. In a
    /// simulation it is one of the blocking jobs.
    ///
    /// # Errors
    /// The operating system has no thread left; `job` was dropped.
    pub fn run_apart(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        if self.0.simulation.is_some() {
            drop(self.run_blocking(move |_| job()));
            return Ok(());
        }
        self.spawn_thread(name, job).map(drop)
    }

    /// Does as [`run_apart`](Self::run_apart) with a job that may block, on a thread with a lower
    /// share of the processors, and gives the job's value without blocking. Where the operating
    /// system does not allow that the thread is as others.
    ///
    /// # Errors
    /// As [`run_apart`](Self::run_apart).
    pub fn run_lowered<T: Send + 'static>(
        &self,
        name: &str,
        priority: CpuPriority,
        job: impl FnOnce(&Env) -> T + Send + 'static,
    ) -> Result<Blocking<T>, Error> {
        let (env, simulated) = (self.clone(), self.0.simulation.is_some());
        self.run_apart_async(name, move || {
            if !simulated && let Err(error) = posix::lower_cpu_priority(posix::thread_number(), priority) {
                report!(warn, %error, "a thread keeps its share of the processors");
            }
            job(&env)
        })
    }

    /// Does as [`run_apart`](Self::run_apart), and gives the job's value without blocking. The job
    /// starts at once; dropping the future gives up the value only.
    ///
    /// # Errors
    /// As [`run_apart`](Self::run_apart).
    pub fn run_apart_async<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Blocking<T>, Error> {
        let (job, blocking) = blocking::apart(job);
        self.run_apart(name, job)?;
        Ok(blocking)
    }

    /// Start a background job on a thread of `priority`. It begins at once, whatever becomes of the
    /// [`Task`]: dropping that lets the job run on; awaiting it, anywhere, gives the job's value,
    /// or says that it panicked. While the job waits, other jobs use its thread; while it computes
    /// or blocks, those on the same thread wait.
    ///
    /// When the last clone of the environment is dropped, jobs that still run are dropped at their
    /// next await.
    pub fn spawn<F>(&self, priority: Priority, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (job, task) = background::job(future);
        match &self.0.simulation {
            Some(executor) => executor.spawn(job),
            None => self.0.background.run(self, priority, job),
        }
        task
    }

    /// Let up to `threads` threads (at least one) run the jobs of `priority`. Threads beyond a
    /// lowered number finish the jobs they have.
    pub fn set_background_threads(&self, priority: Priority, threads: usize) {
        self.0.background.set_limit(priority, threads);
    }

    /// How many threads may run the jobs of `priority`.
    pub fn background_threads(&self, priority: Priority) -> usize {
        self.0.background.limit(priority)
    }

    /// The threads that run the jobs of `priority`, those to come too, have the lowest share of the
    /// processors from now on: RocksDB's `LowerThreadPoolCPUPriority`. Without the right to take it
    /// back there is no way back.
    pub fn lower_thread_pool_cpu_priority(&self, priority: Priority) {
        self.0.background.lower_cpu(priority);
    }

    /// The same with devices: they read and write when nobody else does, as far as the scheduler of
    /// the device heeds that. That is what they read; files are written by threads that jobs of all
    /// priorities share.
    pub fn lower_thread_pool_io_priority(&self, priority: Priority) {
        self.0.background.lower_io(priority);
    }

    /// Somebody waits for the jobs of `priority`: where [jobs give way](EnvBuilder::jobs_give_way),
    /// they do not until what is returned is dropped. Does not wait.
    #[doc(hidden)]
    pub fn hurry(&self, priority: Priority) -> Hurry {
        self.0.background.hurry(priority)
    }

    /// Says, once for the environment, that a file is read or written through the page cache
    /// because direct I/O, which was asked for, is not to be had.
    #[doc(hidden)]
    pub fn say_direct_refused(&self, refused: &Error) {
        if !self.0.direct_refusal_said.swap(true, Ordering::Relaxed) {
            report!(warn, error = %refused, "the file system refuses direct I/O: files go through the page cache");
        }
    }

    /// Counters and gauges of all its channels.
    pub fn io_stats(&self) -> IoStats {
        self.0.maker.counters.sum()
    }

    pub(crate) fn maker(&self) -> &Arc<ChannelMaker> {
        &self.0.maker
    }

    pub(crate) fn downgrade(&self) -> WeakEnv {
        WeakEnv(Arc::downgrade(&self.0))
    }

    pub(crate) fn executor(&self) -> Option<&Arc<Executor>> {
        self.0.simulation.as_ref()
    }

    /// Give an operation to the driver thread, which is started by the first.
    pub(crate) fn driver_send(&self, op: Arc<RemoteOp>) {
        if self.0.simulation.is_some() {
            return refuse(&op, "a simulated operation was polled outside of the simulation");
        }
        if let Some(driver) = self.0.driver.get().filter(|driver| !driver.is_inherited()) {
            return driver.send(op);
        }
        let mut child = self.0.child_driver.lock();
        let start = || Driver::start(self.0.maker.clone(), &self.0.starter);
        // Why looked again: somebody else may have started it.
        let started = match self.0.driver.get() {
            None => start().map(|driver| drop(self.0.driver.set(driver))),
            Some(driver) if !driver.is_inherited() => Ok(()),
            Some(_) if child.as_ref().is_some_and(|driver| !driver.is_inherited()) => Ok(()),
            Some(_) => start().map(|driver| drop(child.replace(driver))),
        };
        let driver = self.0.driver.get().filter(|driver| !driver.is_inherited()).or(child.as_ref());
        match (started, driver) {
            (Ok(()), Some(driver)) => driver.send(op),
            (Err(e), _) => {
                drop(child);
                refuse(&op, &no_driver(&e));
            }
            (Ok(()), None) => unreachable!("it was just started"),
        }
    }
}

fn no_driver(e: &io::Error) -> String {
    format!("the I/O driver thread cannot start: {e}")
}

fn refuse(op: &RemoteOp, why: &str) {
    if let Some(waker) = op.fail(why) {
        wake(waker);
    }
}

/// The finalizer of splitmix64.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("file_system", &self.0.file_system).finish_non_exhaustive()
    }
}

/// A reference that does not keep the environment alive.
pub(crate) struct WeakEnv(Weak<Inner>);

impl WeakEnv {
    pub(crate) fn is(&self, env: &Env) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&env.0))
    }
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Chooses what an [`Env`] consists of.
#[derive(Debug)]
pub struct EnvBuilder {
    file_system: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    transport: TransportKind,
    depth: u32,
    submit_batch: usize,
    register_buffers: bool,
    threads: usize,
    thread_allowance: Option<Arc<ThreadAllowance>>,
    giving_way: Vec<Priority>,
    simulation: Option<Arc<Executor>>,
}

impl Default for EnvBuilder {
    fn default() -> Self {
        Self {
            file_system: Arc::new(PosixFileSystem),
            clock: Arc::new(SystemClock::default()),
            seed: None,
            transport: TransportKind::Auto,
            depth: 256,
            submit_batch: 6,
            register_buffers: true,
            threads: 64,
            thread_allowance: None,
            giving_way: Priority::COMPACTIONS.to_vec(),
            simulation: None,
        }
    }
}

impl EnvBuilder {
    /// Where files are. Default: the operating system's.
    pub fn file_system(mut self, file_system: Arc<dyn FileSystem>) -> Self {
        self.file_system = file_system;
        self
    }

    /// What tells the time. Default: the operating system's clocks.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The seed of all random numbers. Default: another one in each process.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// What carries reads. Default: [`TransportKind::Auto`].
    pub fn transport(mut self, kind: TransportKind) -> Self {
        self.transport = kind;
        self
    }

    /// Most reads that a channel has with the kernel at a time, 1 to 4096; more wait in the
    /// channel. Default: 256.
    pub fn depth(mut self, reads: u32) -> Self {
        self.depth = reads.clamp(1, 4096);
        self
    }

    /// Submit as soon as so many reads are queued, without waiting for the end of the ready list.
    /// Default: 6. A reactor also submits after each task while little is in flight.
    pub fn submit_batch(mut self, reads: usize) -> Self {
        self.submit_batch = reads.max(1);
        self
    }

    /// Whether reactors and the driver register their buffers with the kernel for direct reads, if
    /// locked memory allows. Default: yes.
    pub fn register_buffers(mut self, yes: bool) -> Self {
        self.register_buffers = yes;
        self
    }

    /// Most threads for blocking jobs, and most threads for reads where io_uring is not used. They
    /// are started when needed. Default: 64.
    pub fn threads(mut self, most: usize) -> Self {
        self.threads = most.max(1);
        self
    }

    /// How many threads it may start, of all kinds: see
    /// [`testing::ThreadAllowance`](crate::testing::ThreadAllowance). Default: as many as the
    /// operating system has.
    #[cfg(feature = "testing")]
    pub fn thread_allowance(mut self, allowance: Arc<ThreadAllowance>) -> Self {
        self.thread_allowance = Some(allowance);
        self
    }

    /// The priorities whose background threads leave the processors to the program's other threads
    /// where these are short, until somebody waits for a job or a backlog presses, as far as the
    /// operating system lets that be taken back. Writes that come at a steady pace wait less then;
    /// where processors are always short, what gives way waits longer, and reads have more tables
    /// of L0 to look into, or, with [`Priority::High`], more memtables. Default:
    /// [`Priority::COMPACTIONS`]. None: `&[]`.
    pub fn jobs_give_way(mut self, priorities: &[Priority]) -> Self {
        self.giving_way = priorities.to_vec();
        self
    }

    /// Run everything on a simulation's executor, by its clock.
    #[cfg(feature = "testing")]
    pub(crate) fn simulation(mut self, executor: Arc<Executor>) -> Self {
        self.simulation = Some(executor);
        self
    }

    /// Make the environment.
    pub fn build(self) -> Env {
        use std::hash::{BuildHasher, RandomState};
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let starter = Starter::within(self.thread_allowance);
        let maker = ChannelMaker {
            kind: self.transport,
            depth: self.depth,
            submit_batch: self.submit_batch,
            register: self.register_buffers,
            fallback_said: AtomicBool::new(false),
            readers: ThreadPool::new(self.threads, "karst-read", starter.clone()),
            clock: match &self.simulation {
                Some(executor) => executor.clock().clone(),
                None => Arc::new(SystemClock::default()),
            },
            simulated: self.simulation.is_some(),
            counters: CounterSet::default(),
            flights: Arc::default(),
            slabs: Arc::default(),
            fork_generation: posix::fork_generation(),
        };
        Env(Arc::new(Inner {
            file_system: self.file_system,
            clock: match &self.simulation {
                Some(executor) => executor.clock().clone(),
                None => self.clock,
            },
            simulation: self.simulation,
            seed: AtomicU64::new(seed),
            maker: Arc::new(maker),
            blocking: ThreadPool::new(self.threads, "karst-blocking", starter.clone()),
            background: Pools::new(|_| 1, &self.giving_way),
            starter,
            driver: OnceLock::new(),
            child_driver: Mutex::new(None),
            direct_refusal_said: AtomicBool::new(false),
            observed: OnceLock::new(),
        }))
    }
}
