//! Files, clocks, threads and the asynchronous I/O channel.
//!
//! Every input that is not an argument of the program (files, time, randomness, threads) comes from
//! an [`Env`]. Files are read through channels. A channel is one thread's ring, op slots and
//! buffers; a future uses the channel of the thread that first polls it:
//!
//! ```text
//!   read(), open(), sleep()                       futures: Send, droppable at any time
//!        |  bind at the first poll
//!        +-- block_on ----> the calling thread's own channel      (operation, block_on)
//!        +-- a reactor ---> the reactor thread's channel
//!        +-- elsewhere ---> the driver thread's channel           (remote, driver)
//!   channel: slots, single flight, backlog, timer                 (channel, buffer)
//!   transport: queue, submit, poll, wait                          (ring: io_uring; thread_pool: pread)
//! ```
//!
//! ```
//! # mod karstdb { pub use karst_io as io; }
//! use karstdb::io::{Env, MemoryFileSystem, OpenOptions, Reactor, block_on, open, read};
//! use std::{path::Path, sync::Arc};
//!
//! let files = MemoryFileSystem::new();
//! files.write_file(Path::new("/db/table"), b"limestone".to_vec())?;
//! let env = Env::builder().file_system(Arc::new(files)).build(); // or Env::posix()
//!
//! // On this thread, waiting on its own ring.
//! let file = block_on(&env, open(&env, Path::new("/db/table"), OpenOptions::DIRECT))?;
//! assert_eq!(&*block_on(&env, read(&env, &file, 4, 5))?, b"stone");
//!
//! // On a thread that runs many tasks and owns its ring.
//! let reactor = Reactor::builder(&env).build()?;
//! let task = reactor.spawn(move || async move { read(&env, &file, 0, 4).await });
//! assert_eq!(&*task.join().unwrap()?, b"lime");
//! # Ok::<(), karstdb::io::Error>(())
//! ```
//!
//! The feature `testing` adds the simulated machine ([`Simulation`]) and file systems that are
//! slow, faulty or watched; without it, code that only they use is not compiled in, or not used.
//!
//! `unsafe` is confined to the modules marked with `allow(unsafe_code)` below.
#![deny(unsafe_code)]
#![cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub, rustdoc::broken_intra_doc_links))]

mod aligned;
mod background;
mod block_on;
mod blocking;
#[allow(unsafe_code)] // memory that the kernel writes to
mod buffer;
mod channel;
mod cpu_time;
mod current;
mod driver;
mod env;
mod error;
mod file;
mod flights;
mod giving_way;
mod memory_network;
mod moments;
pub mod net;
#[cfg(not(feature = "testing"))]
mod no_simulation;
mod observed;
mod operation;
#[allow(unsafe_code)] // system calls that std does not offer
mod posix;
mod promise;
mod random;
mod reactor;
mod readiness;
mod remote;
#[doc(hidden)]
pub mod reporting;
#[allow(unsafe_code)] // io_uring
mod ring;
#[cfg(feature = "testing")]
mod simulation;
mod soft;
mod stats;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod thread_pool;
mod threads;
mod transport;
mod waking;
mod writer;
mod writing;

pub use background::{Priority, Task};
pub use block_on::{block_on, reap};
pub use blocking::Blocking;
pub use buffer::ReadBuf;
pub use cpu_time::CpuTimed;
pub use current::in_background;
pub use env::{Clock, Env, EnvBuilder, SystemClock, TransportKind};
pub use error::{Error, Result};
pub use file::{
    Backend, Disturbance, FileId, FileLock, FileSystem, MAP_ALIGNMENT, MappedRange, Metadata, OpenOptions,
    PositionalFile, RandomAccessFile, SoftFile, WritableFile, WriteBackend,
};
pub use giving_way::Hurry;
#[doc(hidden)]
pub use moments::let_others_run;
pub use moments::{Moments, Standstill};
pub use observed::{FileObserver, FileOperation, FileOperationInfo};
pub use operation::{OpenFuture, ReadFuture, Sleep, open, read, sleep};
pub use posix::{CpuPriority, OwnProcess, PosixFileSystem};
pub use reactor::{
    HoldTimeHistogram, IdlePolicy, JoinError, JoinHandle, PolledReactor, Reactor, ReactorBuilder,
    ReactorStats, Spawner, YieldNow, spawn_local, yield_now,
};
#[doc(hidden)]
pub use reactor::{attach, carries_writes, may_write_by_call};
#[cfg(feature = "testing")]
pub use simulation::{
    Crash, CrashPoint, CrashStates, Fault, Image, Journal, Operation, SimulatedFileSystem, Simulation,
    Trouble,
};
pub use soft::MemoryFileSystem;
#[cfg(feature = "testing")]
pub use soft::{
    Disturb, DisturbedFileSystem, FaultCounts, FaultFileSystem, FaultPlan, Faults, Latency, LatencyFileSystem,
};
pub use stats::IoStats;
pub use waking::{Event, EventListener, wake};
pub use writer::{FileWriter, WriterOptions};
pub use writing::{WriteFuture, reserve_space, sync_file, write_at};

#[cfg(not(feature = "testing"))]
use no_simulation as simulation;
