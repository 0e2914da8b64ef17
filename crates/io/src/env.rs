//! The environment: files, time, randomness, threads, and the channels through which files are
//! read.
//!
//! An [`Env`] is cheap to clone and shared by all parts of one database or one test. The engine
//! reaches the outside world only through it, which lets a simulation own all of it.

use crate::background::{self, Pools, Priority, Task};
use crate::blocking::{self, Blocking};
use crate::buffer::slab::Slabs;
use crate::channel::sharing::SharedReads;
use crate::channel::{Channel, ChannelOptions};
use crate::driver::Driver;
use crate::error::Error;
use crate::file::FileSystem;
use crate::giving_way::Hurry;
use crate::memory_network::MemoryNetwork;
use crate::observed::{FileObserver, ObservedFileSystem, Observers};
use crate::posix::{self, CpuPriority, PosixFileSystem};
use crate::random::mix;
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

/// The transport that carries reads to the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// io_uring if it works here, else threads; falling back to threads is logged once.
    #[default]
    Auto,
    /// Threads that call `pread`, even where io_uring works.
    Threads,
}

impl FromStr for TransportKind {
    type Err = String;
    /// Parses `auto` or `threads`.
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "threads" => Ok(Self::Threads),
            other => Err(format!("unknown transport `{other}`; expected `auto` or `threads`")),
        }
    }
}

/// A source of time. A test may supply its own clocks.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Monotonic time since an arbitrary moment in the past.
    fn now(&self) -> Duration;
    /// Wall-clock time since 1970, UTC; may jump.
    fn unix_time(&self) -> Duration;
    /// CPU time of the calling thread; always zero if the clock cannot measure it.
    fn thread_cpu_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The clocks of the operating system. Under shuttle, which explores thread interleavings, time is
/// a counter that advances with the threads.
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
        /// One start for all environments of the process, because a time read from one
        /// environment's clock is then valid in every other.
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
    /// The executor that runs this environment's futures in a simulation.
    simulation: Option<Arc<Executor>>,
    starter: Starter,
    driver: OnceLock<Driver>,
    /// Lock: held to start the driver. The driver started in a forked child whose parent already
    /// had one.
    child_driver: Mutex<Option<Driver>>,
    direct_refusal_said: AtomicBool,
    /// Set by the first call of [`Env::observe`].
    observed: OnceLock<Observed>,
    /// The network inside of the process, if it has one.
    network: Option<MemoryNetwork>,
}

/// The file observers, and the file system that reports operations to them.
struct Observed {
    observers: Arc<Observers>,
    file_system: Arc<dyn FileSystem>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        crate::block_on::env_ended();
    }
}

/// The user of a channel; determines its depth and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The calls of one thread: few reads in flight.
    Calls,
    /// A reactor or the driver: many reads in flight.
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
    /// Clock of the channels' timers.
    clock: Arc<dyn Clock>,
    /// True in a simulation, where the operating system carries no reads.
    simulated: bool,
    counters: CounterSet,
    /// Reads in flight that this environment's channels can join.
    flights: Arc<SharedReads>,
    /// Memory from which the channels' buffers are cut.
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
            // Calls do not register, because a thread with one read at a time gains little and
            // locked memory is scarce.
            register: self.register && purpose == Purpose::Many,
            clock: self.clock.clone(),
            slabs: self.shared(&self.slabs),
            flights: self.shared(&self.flights),
        };
        let channel = Channel::new(self.transport(depth), self.counters.add_channel(), &options);
        report!(debug, transport = channel.transport_name(), ?purpose, "made an I/O channel");
        channel
    }

    /// Returns the structure that the environment's channels share, for a new channel.
    fn shared<T: Default>(&self, of_all: &Arc<T>) -> Arc<T> {
        if self.fork_generation == posix::fork_generation() {
            of_all.clone()
        } else {
            // A thread of the parent may have held one of its locks, and the reads in its table
            // never complete in the child. A child's channels share nothing.
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
    /// Returns an environment of the operating system's files, clock and threads.
    pub fn posix() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for an environment.
    pub fn builder() -> EnvBuilder {
        EnvBuilder::default()
    }

    /// Returns the file system. All its calls block.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        self.0.observed.get().map_or(&self.0.file_system, |observed| &observed.file_system)
    }

    /// Notifies `observer` of operations on files: of all reads, and of operations on files opened
    /// for writing from now on. Ends when the last `Arc` of the observer is dropped.
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

    /// Returns the observers of files, or `None` before the first [`Env::observe`].
    pub(crate) fn observers(&self) -> Option<&Observers> {
        self.0.observed.get().map(|observed| &*observed.observers)
    }

    /// The network inside of the process that its sockets use, if not the operating system's.
    pub fn memory_network(&self) -> Option<&MemoryNetwork> {
        self.0.network.as_ref()
    }

    /// Returns the monotonic time of the environment's clock. The system clock starts at zero with
    /// the first environment of the process.
    pub fn now(&self) -> Duration {
        self.0.clock.now()
    }

    /// Returns the time since 1970, UTC.
    pub fn unix_time(&self) -> Duration {
        self.0.clock.unix_time()
    }

    /// Returns the environment's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Returns the name of this machine, at most 255 bytes. Empty in a simulation, because a
    /// simulation must behave identically on every machine.
    pub fn host_name(&self) -> String {
        if self.0.simulation.is_some() { String::new() } else { posix::host_name() }
    }

    /// Returns a number for seeding a random generator. Each call returns another number; the
    /// environment's seed determines all of them.
    pub fn random_seed(&self) -> u64 {
        mix(self.0.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// The operating system can start no more threads, or the environment is simulated.
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

    /// Starts the minimum of threads: one for [`run_blocking`](Self::run_blocking) and one for
    /// [`spawn`](Self::spawn). Without them no job makes progress. They run until the environment
    /// ends. A simulation needs none.
    ///
    /// # Errors
    /// The operating system can start no more threads.
    pub fn ensure_threads(&self) -> Result<(), Error> {
        if self.0.simulation.is_some() {
            return Ok(());
        }
        self.0.blocking.ensure().map_err(|e| Error::new("start thread", "karst-blocking", e))?;
        self.0.background.ensure(self)
    }

    /// Runs `job` on a thread that may block, and returns a future of its result. The job starts at
    /// once; dropping the future gives up the result only.
    ///
    /// If no thread can be started, and [`ensure_threads`](Self::ensure_threads) has not started
    /// one, the job runs on the thread that awaits the future, and not before.
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

    /// Runs `job` on a thread of its own, which lets it wait for jobs of any kind. In a simulation
    /// it is one of the blocking jobs.
    ///
    /// # Errors
    /// The operating system can start no more threads; `job` was dropped.
    pub fn run_apart(&self, name: &str, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        if self.0.simulation.is_some() {
            drop(self.run_blocking(move |_| job()));
            return Ok(());
        }
        self.spawn_thread(name, job).map(drop)
    }

    /// Runs a blocking job on a thread of its own with a lower CPU priority, and returns a future
    /// of the job's value. If the operating system does not allow the lower priority, the thread
    /// has the ordinary one.
    ///
    /// # Errors
    /// Those of [`run_apart`](Self::run_apart).
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

    /// Runs `job` on a thread of its own like [`run_apart`](Self::run_apart), and returns a future
    /// of the job's value. The job starts at once; dropping the future gives up the value only.
    ///
    /// # Errors
    /// Those of [`run_apart`](Self::run_apart).
    pub fn run_apart_async<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Blocking<T>, Error> {
        let (job, blocking) = blocking::apart(job);
        self.run_apart(name, job)?;
        Ok(blocking)
    }

    /// Starts a background job on a thread of `priority`. It begins at once. Awaiting the [`Task`],
    /// on any executor, gives the job's value, or an error if the job panicked; dropping it lets
    /// the job run on. While the job waits, other jobs use its thread; while it computes or blocks,
    /// the jobs on the same thread wait.
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

    /// Sets the maximum number of threads (at least one) that run the jobs of `priority`. Threads
    /// beyond a lowered number finish the jobs they have.
    pub fn set_background_threads(&self, priority: Priority, threads: usize) {
        self.0.background.set_limit(priority, threads);
    }

    /// Returns the maximum number of threads that run the jobs of `priority`.
    pub fn background_threads(&self, priority: Priority) -> usize {
        self.0.background.limit(priority)
    }

    /// Gives the threads that run the jobs of `priority`, present and future, the lowest CPU
    /// priority: RocksDB's `LowerThreadPoolCPUPriority`. A process without the right to raise
    /// priorities cannot undo it.
    pub fn lower_thread_pool_cpu_priority(&self, priority: Priority) {
        self.0.background.lower_cpu(priority);
    }

    /// Gives the threads of `priority` the idle I/O class: their reads are served when no other
    /// process uses the device, if the device's I/O scheduler honors that. Affects reads only,
    /// because files are written by threads that jobs of all priorities share.
    pub fn lower_thread_pool_io_priority(&self, priority: Priority) {
        self.0.background.lower_io(priority);
    }

    /// Marks the jobs of `priority` as waited for: where [jobs give
    /// way](EnvBuilder::jobs_give_way), they do not until the returned guard is dropped. Does not
    /// wait.
    #[doc(hidden)]
    pub fn hurry(&self, priority: Priority) -> Hurry {
        self.0.background.hurry(priority)
    }

    /// Logs, once for the environment, that files are read or written through the page cache
    /// because the file system refused direct I/O.
    #[doc(hidden)]
    pub fn say_direct_refused(&self, refused: &Error) {
        if !self.0.direct_refusal_said.swap(true, Ordering::Relaxed) {
            report!(warn, error = %refused, "the file system refuses direct I/O: files go through the page cache");
        }
    }

    /// Returns the counters and gauges of all channels of the environment.
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

    /// Sends an operation to the driver thread, which the first operation starts.
    pub(crate) fn driver_send(&self, op: Arc<RemoteOp>) {
        if self.0.simulation.is_some() {
            return refuse(&op, "a simulated operation was polled outside of the simulation");
        }
        if let Some(driver) = self.0.driver.get().filter(|driver| !driver.is_inherited()) {
            return driver.send(op);
        }
        let mut child = self.0.child_driver.lock();
        let start = || Driver::start(self.0.maker.clone(), &self.0.starter);
        // Checked again under the lock, because another thread may have started it.
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

/// Builds an [`Env`].
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
    network: Option<MemoryNetwork>,
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
            network: None,
        }
    }
}

impl EnvBuilder {
    /// The file system. Default: the operating system's.
    pub fn file_system(mut self, file_system: Arc<dyn FileSystem>) -> Self {
        self.file_system = file_system;
        self
    }

    /// The source of time. Default: the operating system's clocks.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The seed of all random numbers. Default: a random one in each process.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The transport of reads. Default: [`TransportKind::Auto`].
    pub fn transport(mut self, kind: TransportKind) -> Self {
        self.transport = kind;
        self
    }

    /// Maximum number of reads that a channel submits to the kernel at a time, 1 to 4096; more wait
    /// in the channel. Default: 256.
    pub fn depth(mut self, reads: u32) -> Self {
        self.depth = reads.clamp(1, 4096);
        self
    }

    /// Number of queued reads at which a channel submits without waiting for the end of the ready
    /// list. Default: 6. A reactor also submits after each task while little is in flight.
    pub fn submit_batch(mut self, reads: usize) -> Self {
        self.submit_batch = reads.max(1);
        self
    }

    /// Registers the buffers of reactors and the driver with the kernel for direct reads, if the
    /// limit of locked memory allows. Default: true.
    pub fn register_buffers(mut self, yes: bool) -> Self {
        self.register_buffers = yes;
        self
    }

    /// Maximum number of threads for blocking jobs, and maximum number of threads for reads if
    /// io_uring is not used. Threads are started when needed. Default: 64.
    pub fn threads(mut self, most: usize) -> Self {
        self.threads = most.max(1);
        self
    }

    /// Limits the number of threads of all kinds that the environment may start: see
    /// [`testing::ThreadAllowance`](crate::testing::ThreadAllowance). Default: the operating
    /// system's limit.
    #[cfg(feature = "testing")]
    pub fn thread_allowance(mut self, allowance: Arc<ThreadAllowance>) -> Self {
        self.thread_allowance = Some(allowance);
        self
    }

    /// Priorities whose background threads yield the processors to the program's other threads when
    /// processors are scarce, until a caller waits for a job or a backlog presses, provided that
    /// the operating system lets a priority be raised again. Writes at a steady pace then wait
    /// less. If processors are always scarce, the yielding jobs wait longer, and reads have more L0
    /// tables to search or, with [`Priority::High`], more memtables. Default:
    /// [`Priority::COMPACTIONS`]. None: `&[]`.
    pub fn jobs_give_way(mut self, priorities: &[Priority]) -> Self {
        self.giving_way = priorities.to_vec();
        self
    }

    /// Connects sockets of [`net`](crate::net) inside of the process. Default: the operating
    /// system's network.
    pub fn network(mut self, network: MemoryNetwork) -> Self {
        self.network = Some(network);
        self
    }

    /// Runs everything on a simulation's executor, by its clock.
    #[cfg(feature = "testing")]
    pub(crate) fn simulation(mut self, executor: Arc<Executor>) -> Self {
        self.simulation = Some(executor);
        self
    }

    /// Builds the environment.
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
            network: self.network,
        }))
    }
}
