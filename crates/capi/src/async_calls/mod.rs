//! Asynchronous calls in C, beyond RocksDB's API: `karst.h`.
//!
//! In: calls that name a reactor, which runs them, and a `karst_notify_t`, which says where they
//! are completed. Out: for each call one operation, and for each operation one completion, by a
//! callback or in a completion queue.
//!
//! ```text
//!   karst_get_async ...  ->  start     ->  a task of the reactor  ->  op::Op::complete
//!                                                 ^                       |          |
//!   karst_op_cancel  -> wakes it -----------------+                   callback     queue
//! ```
//!
//! Invariants:
//! - An operation completes exactly once: with its outcome, its panic, or as cancelled; also when
//!   its reactor ends first. Its completion goes to one place, once.
//! - After a call has returned, nothing that the caller passed is looked at any more but the
//!   handles' insides, which are counted: options, keys and batches are copied or moved.
//! - The caller's share of an operation is given up by `karst_op_release`, or with a queue that is
//!   destroyed before the completion was taken from it.

mod calls;
mod iterator;
mod op;
mod queue;
mod reactor;
mod start;
mod status;

pub(crate) use status::Status;

/// The functions of `karst.h`, in the order of the header.
pub(crate) const NAMES: &[&[crate::signature::Signature]] =
    &[reactor::NAMES, queue::NAMES, op::NAMES, calls::NAMES, iterator::NAMES];
