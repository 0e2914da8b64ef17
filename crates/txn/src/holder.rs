//! A transaction as others see it: its id, when it expires, and how far it is.
//!
//! Invariant: locks are stolen only from a transaction that has expired and is still `Started`;
//! whoever commits or prepares leaves that state first. Both change it by compare and exchange, so
//! one of them wins.
//!
//! Ordering: `Relaxed`. Who wins is decided in the state alone; what a lock guards is handed over
//! under the mutex of the lock's stripe.

use crate::sync::{AtomicU8, Ordering};
use karst_engine::{Error, ErrorKind, Result};
use std::time::Duration;

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum TransactionState {
    /// It takes reads and writes.
    Started,
    /// It is being prepared.
    AwaitingPrepare,
    /// It is prepared: it survives a crash, and can be committed or rolled back.
    Prepared,
    /// It is being committed.
    AwaitingCommit,
    /// It was committed.
    Committed,
    /// It is being rolled back.
    AwaitingRollback,
    /// It was rolled back.
    RolledBack,
    /// It has expired, and others have taken its locks.
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

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) id: u64,
    expires_at: Option<Duration>,
    state: AtomicU8,
}

impl Holder {
    /// `expires_at` is a time of the environment's clock.
    pub(crate) fn new(id: u64, expires_at: Option<Duration>) -> Self {
        Self { id, expires_at, state: AtomicU8::new(Started as u8) }
    }

    pub(crate) fn state(&self) -> TransactionState {
        STATES[usize::from(self.state.load(Ordering::Relaxed))]
    }

    pub(crate) fn set(&self, state: TransactionState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// When its locks may be stolen; never once it is prepared.
    pub(crate) fn expires_at(&self) -> Option<Duration> {
        self.expires_at
    }

    /// Whether its locks may be stolen, or have been.
    pub(crate) fn is_expired(&self, now: impl Fn() -> Duration) -> bool {
        // Why a function: a transaction that does not expire needs no clock.
        self.expires_at.is_some_and(|at| at <= now()) && matches!(self.state(), Started | LocksStolen)
    }

    /// Takes its locks away. Called when it has expired.
    pub(crate) fn steal(&self) -> bool {
        self.change(Started, LocksStolen) || self.state() == LocksStolen
    }

    fn change(&self, from: TransactionState, to: TransactionState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Refuses what only a transaction that has started, and not expired, may do.
    pub(crate) fn check_started(&self, now: impl Fn() -> Duration) -> Result<()> {
        match self.state() {
            Started | LocksStolen if self.is_expired(&now) => Err(expired()),
            Started => Ok(()),
            state => Err(Self::refusal(state)),
        }
    }

    /// Goes from `Started` to `to`, unless it has expired.
    pub(crate) fn leave_started(&self, now: impl Fn() -> Duration, to: TransactionState) -> Result<()> {
        self.check_started(now)?;
        match self.change(Started, to) {
            true => Ok(()),
            false => Err(Self::refusal(self.state())),
        }
    }

    /// Why a transaction in this state does not do what was asked.
    pub(crate) fn refusal(state: TransactionState) -> Error {
        let what = match state {
            Started => "it has not been prepared",
            LocksStolen => return expired(),
            Prepared => "it has been prepared, and can only be committed or rolled back",
            Committed => "it has been committed",
            RolledBack => "it has been rolled back",
            AwaitingPrepare | AwaitingCommit | AwaitingRollback => {
                "its prepare, commit or rollback was given up, and what became of it is being found out"
            }
        };
        Error::invalid_argument(format!("the transaction does not do this: {what}"))
    }
}

fn expired() -> Error {
    Error::new(ErrorKind::Expired, "the transaction has expired, and others may have its locks")
}
