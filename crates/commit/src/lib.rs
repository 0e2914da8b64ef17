//! How writes are committed: batches as users build them, the pipeline that they go through, the
//! log that it writes; and what a log says when it is read back.
//!
//! In: batches and options; the database, as the trait [`Host`]. Out: log records, entries of
//! memtables, and what is visible. What it does not know: tables, versions, jobs.
//!
//! `pipeline/mod.rs` explains the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `batch` | [`WriteBatch`] |
//! | `options` | [`WriteOptions`] |
//! | `source` | what is written: a batch, a single operation or a phase |
//! | `two_phase` | what is written for a transaction that is prepared, committed or rolled back |
//! | `conflicts` | which keys were written recently, for writes that depend on it |
//! | `host` | what the pipeline needs from its database |
//! | `order` `persist` `apply` `publish` | the four steps, each with its state |
//! | `bargain` | who leads, what others left, who waits: what the steps share with those who wait |
//! | `ring` | tickets that are finished in any order and published in theirs |
//! | `pipeline` | the write as a future, which alone knows all four steps |
//! | [`wal`] | log files, and what they do to the memtables when a database is opened |
//!
//! `bargain` and `ring` are lock-free; loom explores them, as they ship, and `PendingRanges` with
//! the ring: `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p
//! karst-commit --lib loom`
#![forbid(unsafe_code)]

mod apply;
mod bargain;
mod batch;
mod conflicts;
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
