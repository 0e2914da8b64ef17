//! Handoffs between the steps of a commit pipeline: leadership of the log, work left for others,
//! and waiters.
//!
//! | type | holds |
//! |---|---|
//! | [`Leadership`] | leader flag, requested goals and progress of the log |
//! | [`LeftBehind`] | batches to be inserted for writers that may not come back |
//! | [`Gathered`] | acknowledged writes to be inserted together, at the latest when a reader asks |
//! | [`Waiters`] | number of callers that wait |
//!
//! All four follow one protocol: one side publishes a request or leaves work, and then checks for
//! the other side; that one leaves, and then checks for requests or work. A `SeqCst` fence between
//! store and check on both sides makes at least one see the other. The types know nothing of
//! records and memtables, so that loom explores the types that ship.

mod gathered;
mod leadership;
mod left_behind;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiters;

pub(crate) use gathered::Gathered;
pub(crate) use leadership::{Fate, Goals, Leadership};
pub(crate) use left_behind::LeftBehind;
pub(crate) use waiters::{Waiter, Waiters};
