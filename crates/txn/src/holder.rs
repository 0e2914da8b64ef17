//! The shared state of a transaction: id, expiration time and progress.
//!
//! Invariant: locks are stolen only from a transaction that has expired and is still `Started`; a
//! commit or prepare leaves that state first. Both change it by compare and exchange, so exactly
//! one succeeds.
//!
//! Ordering: `Relaxed`, because the race is decided in the state alone; data that a lock guards is
//! handed over under the mutex of the lock's stripe.

use crate::sync::{AtomicU8, Ordering};
use karst_engine::{Error, ErrorKind, Result};
use std::time::Duration;

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum TransactionState {
    /// Accepts reads and writes.
    Started,
    /// Prepare is in progress.
    AwaitingPrepare,
    /// Prepared: survives a crash, and can be committed or rolled back.
    Prepared,
    /// Commit is in progress.
    AwaitingCommit,
    /// Committed.
    Committed,
    /// Rollback is in progress.
    AwaitingRollback,
    /// Rolled back.
    RolledBack,
    /// Expired; other transactions have taken its locks.
    LocksStolen,
}

use TransactionState::*;

const STATES: [TransactionState; 8] = [
    Started,
    AwaitingPrepare,
    Prepared,
    AwaitingCommit,
    Committed,
    AwaitingRollback,
    RolledBack,
    LocksStolen,
];

/// Shared state of one transaction.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) id: u64,
    expires_at: Option<Duration>,
    state: AtomicU8,
}

impl Holder {
    /// Creates the state `Started`. `expires_at` is a time of the environment's clock.
    pub(crate) fn new(id: u64, expires_at: Option<Duration>) -> Self {
        Self { id, expires_at, state: AtomicU8::new(Started as u8) }
    }

    pub(crate) fn state(&self) -> TransactionState {
        STATES[usize::from(self.state.load(Ordering::Relaxed))]
    }

    pub(crate) fn set(&self, state: TransactionState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Time from which the locks may be stolen while the state is `Started`; `None`: never.
    pub(crate) fn expires_at(&self) -> Option<Duration> {
        self.expires_at
    }

    /// Returns true if the transaction's locks may be stolen, or have been.
    pub(crate) fn is_expired(&self, now: impl Fn() -> Duration) -> bool {
        // `now` is a function because a transaction without expiration needs no clock.
        self.expires_at.is_some_and(|at| at <= now()) && matches!(self.state(), Started | LocksStolen)
    }

    /// Moves the state of an expired transaction to `LocksStolen`; returns false if it has left
    /// `Started` otherwise.
    pub(crate) fn steal(&self) -> bool {
        self.change(Started, LocksStolen) || self.state() == LocksStolen
    }

    fn change(&self, from: TransactionState, to: TransactionState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Fails unless the transaction is `Started` and has not expired.
    pub(crate) fn check_started(&self, now: impl Fn() -> Duration) -> Result<()> {
        match self.state() {
            Started | LocksStolen if self.is_expired(&now) => Err(expired()),
            Started => Ok(()),
            state => Err(Self::refusal(state)),
        }
    }

    /// Moves the state from `Started` to `to`, unless the transaction has expired.
    pub(crate) fn leave_started(&self, now: impl Fn() -> Duration, to: TransactionState) -> Result<()> {
        self.check_started(now)?;
        match self.change(Started, to) {
            true => Ok(()),
            false => Err(Self::refusal(self.state())),
        }
    }

    /// Returns the error for a call that is not allowed in `state`.
    pub(crate) fn refusal(state: TransactionState) -> Error {
        let what = match state {
            Started => "it is not prepared",
            LocksStolen => return expired(),
            Prepared => "it has been prepared, and can only be committed or rolled back",
            Committed => "it has been committed",
            RolledBack => "it has been rolled back",
            AwaitingPrepare | AwaitingCommit | AwaitingRollback => {
                "its prepare, commit or rollback was abandoned, and its outcome is not known yet"
            }
        };
        Error::invalid_argument(format!("the transaction refuses the call: {what}"))
    }
}

fn expired() -> Error {
    Error::new(ErrorKind::Expired, "the transaction has expired, and others may have its locks")
}
