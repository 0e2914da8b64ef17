//! A simulated machine: one thread, virtual time, a disk whose power fails.
//!
//! A [`Simulation`] has an [`Env`] in which a seed determines everything: the order of tasks, the
//! duration of reads and blocking jobs, the time, random numbers, failing operations, and the state
//! after a power failure. Code that reaches the outside world only through its `Env` runs on it
//! unchanged; `block_on`, `spawn`, `run_blocking`, `sleep`, `read` and `FileWriter` all behave as
//! elsewhere.
//!
//! ```
//! use karst_io::{Crash, FileWriter, Simulation, WriterOptions};
//! use std::path::Path;
//!
//! let simulation = Simulation::new(7);
//! let env = simulation.env().clone();
//! simulation.fs().lose_power_after(3); // create, write, sync, and then
//! let path = Path::new("/file");
//! let done = simulation.run(async {
//!     let mut file = FileWriter::create(&env, path, WriterOptions::default()).await?;
//!     file.append(vec![1; 10]).await?;
//!     file.sync().await?;
//!     env.fs().sync_dir(Path::new("/"))
//! });
//! assert!(done.is_none(), "the power failed while the directory was synced");
//! drop(env);
//! let simulation = simulation.restart(Crash::Power, 8);
//! // The name may be lost, for its directory was not synced; the bytes may not.
//! if let Ok(bytes) = simulation.fs().read_file(path) {
//!     assert_eq!(bytes, [1; 10]);
//! }
//! # use karst_io::FileSystem;
//! ```

mod crash_states;
mod disk;
pub(crate) mod executor;
mod fault;
mod file_system;
mod inode;
mod journal;
mod names;

use crate::block_on::thread_channel;
use crate::env::{Clock, Env};
use crate::memory_network::MemoryNetwork;
pub use crash_states::{CrashPoint, CrashStates};
use executor::Executor;
pub use fault::{Fault, Operation};
pub use file_system::SimulatedFileSystem;
pub use journal::{Image, Journal};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of trace lines that a panic prints.
const TRACE_SHOWN: usize = 500;

/// The cause of the end of a machine's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed. All written data stays, synced or not; locks are released.
    Process,
    /// The power failed. Unsynced data is lost, kept, torn or mixed.
    Power,
}

/// Failure rates of operations on a simulated disk; probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// A read, or opening a file for reading, fails with `EIO`.
    pub read_error: f64,
    /// A write fails, after a part of it.
    pub write_error: f64,
    /// A sync fails; the data it should have made durable may be lost for good.
    pub sync_error: f64,
    /// A file or directory is not created, renamed or removed.
    pub name_error: f64,
    /// Fraction of the failing changes that fail with `ENOSPC`, the others with `EIO`.
    pub no_space: f64,
}

/// A simulated machine; see the module documentation. To be used on one thread. Dropping it drops
/// its tasks.
pub struct Simulation {
    env: Env,
    executor: Arc<Executor>,
    file_system: SimulatedFileSystem,
}

impl Simulation {
    /// Returns a machine with an empty disk.
    pub fn new(seed: u64) -> Self {
        Self::with_disk(SimulatedFileSystem::new(seed), seed, Duration::ZERO)
    }

    /// Returns a machine started with the disk that a crash has left.
    pub fn with_image(image: &Image, seed: u64) -> Self {
        Self::with_disk(SimulatedFileSystem::with_image(image, seed), seed, Duration::ZERO)
    }

    fn with_disk(file_system: SimulatedFileSystem, seed: u64, start: Duration) -> Self {
        let executor = Executor::new(seed, start);
        file_system.attach(&executor);
        let builder = Env::builder().file_system(Arc::new(file_system.clone())).seed(seed);
        let env = builder.network(MemoryNetwork::new(seed)).simulation(executor.clone()).build();
        Self { env, executor, file_system }
    }

    /// Returns its environment.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns its disk.
    pub fn fs(&self) -> &SimulatedFileSystem {
        &self.file_system
    }

    /// Runs `future`, and the tasks that it spawns, until it is ready; or until the power fails:
    /// then drops `future` and returns `None`. Tasks that still run continue in the next call.
    ///
    /// # Panics
    /// If no task can run and `future` is not ready, because tasks wait for each other.
    pub fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        let channel = thread_channel(&self.env);
        self.executor.drive(&channel, future, || self.file_system.is_off())
    }

    /// Ends everything as `crash` does, and restarts the machine with the remaining disk. `seed`
    /// determines the events from now on. All earlier handles are dead; the clock continues.
    pub fn restart(self, crash: Crash, seed: u64) -> Self {
        self.executor.note(format_args!("restart after {crash:?}"));
        // Power off first, in either case, because drops of tasks must not reach the disk.
        self.file_system.lose_power_now();
        self.close();
        self.file_system.end_life(crash == Crash::Power);
        Self::with_disk(self.file_system.clone(), seed, self.executor.clock().now())
    }

    /// Returns a hash of all events since this machine was started, equal for equal seeds and
    /// programs, and the number of steps of its tasks.
    pub fn history(&self) -> (u64, u64) {
        self.executor.history()
    }

    /// Sets the number of steps beyond which the machine panics, to detect tasks that run without
    /// end.
    pub fn set_most_steps(&self, steps: u64) {
        self.executor.set_most_steps(steps);
    }

    /// Keeps a line of text for every event from now on, for [`Simulation::take_trace`]. If the
    /// thread panics, the last of them are printed.
    pub fn keep_trace(&self) {
        self.executor.keep_trace();
    }

    /// Returns the kept lines and stops keeping more.
    pub fn take_trace(&self) -> Vec<String> {
        self.executor.take_trace()
    }

    fn close(&self) {
        self.executor.close(&thread_channel(&self.env));
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace = self.take_trace();
            let from = trace.len().saturating_sub(TRACE_SHOWN);
            trace[from..].iter().for_each(|line| eprintln!("{line}"));
        }
        self.close();
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Simulation(at {:?}, {} steps)", self.env.now(), self.history().1)
    }
}
