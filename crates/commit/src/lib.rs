//! How writes are committed: batches as users build them, the pipeline that they go through, the
//! log that it writes; and what a log says when it is read back.
#![forbid(unsafe_code)]

mod apply;
mod batch;
mod conflicts;
mod host;
mod options;
mod order;
mod persist;
mod pipeline;
mod publish;
mod source;
mod two_phase;
pub mod wal;

pub use batch::{WriteBatch, entity_of};
pub use conflicts::Claim;
pub use host::Host;
pub use options::WriteOptions;
pub use pipeline::{Commit, HeldPipeline, Parts, Pipeline, Readable, Rules, TakenNumbers, WriteFuture};
pub use source::Source;
pub use two_phase::{Phase, PhaseWrite, Section, batch_of};
