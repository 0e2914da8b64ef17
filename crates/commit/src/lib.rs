//! Commit of writes: batches as users build them, the pipeline that they pass through, the log that
//! it writes, and its replay.
//!
//! It takes batches, options and the database as the trait [`Host`], and produces log records,
//! memtable entries and the visible sequence number. It does not know tables, versions or jobs.
//!
//! `pipeline/mod.rs` explains the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `batch` | [`WriteBatch`] |
//! | `options` | [`WriteOptions`] |
//! | `source` | contents of a write: a batch, a single operation or a phase |
//! | `two_phase` | prepare, commit and rollback of a transaction, as written |
//! | `conflicts` | recently written keys, for conditional writes |
//! | `host` | interface of the pipeline to its database |
//! | `order` `persist` `apply` `publish` | the four steps, each with its state |
//! | `handoff` | handoffs between the steps: leadership, work left for others, waiters |
//! | `ring` | tickets that are finished in any order and published in ticket order |
//! | `pipeline` | the write as a future, which passes through all four steps |
//! | [`wal`] | log files, and their replay into memtables when a database is opened |
//!
//! `handoff` and `ring` are lock-free; loom explores them, as they ship, and `PendingRanges` with
//! the ring: `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p
//! karst-commit --lib loom`
#![forbid(unsafe_code)]

mod apply;
mod batch;
mod conflicts;
mod handoff;
mod host;
mod options;
mod order;
mod persist;
mod pipeline;
mod publish;
mod ring;
mod source;
mod two_phase;
pub mod wal;

pub use batch::{WriteBatch, entity_of, plain_value_of, timestamp_required};
pub use conflicts::Claim;
pub use host::Host;
pub use options::WriteOptions;
pub use pipeline::{Commit, HeldPipeline, Parts, Pipeline, Readable, Rules, TakenNumbers, WriteFuture};
pub use source::Source;
pub use two_phase::{Phase, PhaseWrite, Section, batch_of};
