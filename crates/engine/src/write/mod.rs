//! Writing: batches as users build them, and the pipeline that commits them.
//!
//! A write goes through four steps (docs in `pipeline`): it is *ordered* under one short lock,
//! *persisted* by whoever leads the log at that moment, *applied* to the memtables by its own
//! writer at the same time as others are, and *published* in order.
//!
//! | file | holds |
//! |---|---|
//! | `batch` | [`WriteBatch`] |
//! | `options` | [`WriteOptions`] |
//! | `host` | what the pipeline needs of its database |
//! | `database` | the host in a real database, and sealing for flushes |
//! | `pipeline` | order, switching of logs and memtables, failure and resumption |
//! | `persist` | the leader that writes and syncs logs |
//! | `commit` | one write as a future: the steps, waiting, and what becomes of it when it is dropped |
//! | `orphans` | batches that others than their writers may apply |
//! | `readable` | what a read that begins may see, and waiting for it |
//! | `conflicts` | which keys were written lately, for writes that depend on it |
//! | `gather` | writes that are acknowledged and whose entries wait to be inserted together |
//! | `held` | writers held up while files are ingested |
//! | `two_phase` | what is written for a transaction that is prepared, committed or rolled back |
//! | `source` | what is written: a batch or a single operation |

mod batch;
mod commit;
mod conflicts;
mod database;
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

pub use batch::WriteBatch;
pub(crate) use batch::entity_of;
pub(crate) use commit::WriteFuture;
pub(crate) use conflicts::Claim;
pub(crate) use database::{DatabaseHost, Sealer};
#[cfg(test)]
use host::Host;
pub use options::WriteOptions;
pub(crate) use pipeline::{Parts, Pipeline, Rules};
pub(crate) use source::Source;
pub(crate) use two_phase::{Phase, PhaseWrite, Section, batch_of};
