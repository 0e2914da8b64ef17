//! How writes are committed: batches as users build them, the pipeline that they go through, the
//! log that it writes; and what a log says when it is read back.
#![forbid(unsafe_code)]

mod batch;
mod conflicts;
mod gather;
mod held;
mod host;
mod options;
mod orphans;
mod persist;
mod pipeline;
mod readable;
mod source;
#[cfg(test)]
mod tests;
mod two_phase;
pub mod wal;
mod write;

pub use batch::{WriteBatch, entity_of};
pub use conflicts::Claim;
pub use held::{HeldPipeline, Taken};
pub use host::Host;
pub use options::WriteOptions;
pub use pipeline::{Parts, Pipeline, Rules};
pub use readable::Readable;
pub use source::Source;
pub use two_phase::{Phase, PhaseWrite, Section, batch_of};
pub use write::{Commit, WriteFuture};
