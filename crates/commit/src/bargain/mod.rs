//! What the steps of a commit pipeline share: who leads the log, what others have left to be
//! inserted, and who waits.
//!
//! | type | answers |
//! |---|---|
//! | [`Leadership`] | who writes what was asked for, and how far that is |
//! | [`LeftBehind`] | what has to be inserted for a writer that may not come for it |
//! | [`Gathered`] | what was acknowledged, and is to be inserted together, at the latest when somebody asks |
//! | [`Waiters`] | whether anybody waits |
//!
//! All four are the same bargain: one says what it wants or leaves, and then looks whether somebody
//! is there; the other goes, and then looks whether something is wanted or left. A `SeqCst` fence
//! between the store and the look on both sides makes one of them see the other. They know
//! nothing of records and memtables, so that loom explores the types that ship.

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
