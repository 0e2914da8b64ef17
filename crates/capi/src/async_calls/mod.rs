//! Asynchronous calls in C, beyond RocksDB's API: `karst.h`.
//!
//! In: calls that name a reactor, which runs them, and a `karst_notify_t`, which names the queue or
//! callback of their completion. Out: one operation for each call, and one completion for each
//! operation, by a callback or in a completion queue.
//!
//! ```text
//!   karst_get_async ...  ->  start     ->  a task of the reactor  ->  op::Op::complete
//!                                                 ^                       |          |
//!   karst_op_cancel  -> wakes it -----------------+                   callback     queue
//! ```
//!
//! Invariants:
//! - An operation completes exactly once: with its outcome, its panic, or as cancelled, even if its
//!   reactor ends first. Its completion is delivered once, to one queue or callback.
//! - After a call has returned, the library reads nothing that the caller passed except the
//!   reference-counted insides of handles: options, keys and batches are copied or moved.
//! - `karst_op_release` gives up the caller's reference to an operation; destroying a queue gives
//!   up those of the completions that were not taken from it.

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
