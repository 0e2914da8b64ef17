//! Prepare, commit and rollback of a transaction that takes locks.
//!
//! Invariants:
//! - Locks are held until the outcome is known: a commit is visible before another transaction gets
//!   a lock on a key that it wrote.
//! - A step that fails leaves the transaction in its previous state, with its locks; it can be
//!   retried or rolled back.
//! - The asynchronous forms own the transaction while they run, and complete even if they are
//!   dropped.

use super::transaction::{Parts, Transaction};
use crate::completion::complete;
use crate::holder::{Holder, TransactionState};
use karst_engine::caller::{Caller, finish};
use karst_engine::{Error, Result, TransactionHooks};

/// A step towards a transaction's end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Prepare,
    Commit,
    Rollback,
}

impl Transaction {
    /// Sets the timestamp at which reads for update read, in column families with timestamps.
    /// Locking with validation fails from now on with `Busy` if the key has a later timestamp, and
    /// with `InvalidArgument` if the timestamp is below `full_history_ts_low` of the column family,
    /// because a later deletion may have been dropped.
    /// Without [`enable_udt_validation`](super::TransactionDbOptions::enable_udt_validation) such
    /// reads fail once it is set. `u64::MAX` stands for no timestamp, the initial state.
    ///
    /// # Errors
    /// `InvalidArgument`: a later timestamp was set before. The database is closed, or an
    /// asynchronous prepare, commit or rollback was dropped before it completed.
    pub fn set_read_timestamp_for_validation(&mut self, timestamp: u64) -> Result<()> {
        self.parts_mut()?.timestamps.set_read(timestamp)
    }

    /// Sets the timestamp that the commit writes to every key in column families with timestamps.
    /// It may be set at any time, even once the transaction is prepared; transactions recovered
    /// after a restart have none. `u64::MAX` stands for no timestamp.
    ///
    /// **Timestamps of one key must not decrease**: the caller must ensure that, by reading for
    /// update with a timestamp or otherwise.
    ///
    /// # Errors
    /// `InvalidArgument`: it is not above the timestamp to read at. The database is closed, or an
    /// asynchronous prepare, commit or rollback was dropped before it completed.
    pub fn set_commit_timestamp(&mut self, timestamp: u64) -> Result<()> {
        let shared = self.shared.clone();
        self.parts_mut()?.timestamps.set_commit(timestamp, &shared.options)
    }

    /// Returns the timestamp that was set to commit at.
    pub fn commit_timestamp(&self) -> Option<u64> {
        self.parts.as_ref()?.timestamps.commit()
    }

    /// Takes a step that completes even if it is dropped. The handle is empty meanwhile, because
    /// the step owns the transaction.
    async fn end_async(&mut self, ending: Ending) -> Result<()> {
        self.parts()?;
        let mut taken = Transaction { shared: self.shared.clone(), parts: self.parts.take() };
        let env = self.shared.db.env().clone();
        let (mut taken, outcome) = complete(&env, async move {
            let outcome = match ending {
                Ending::Prepare => taken.prepare_by(Caller::Task).await,
                Ending::Commit => taken.commit_by(Caller::Task).await,
                Ending::Rollback => taken.rollback_by(Caller::Task).await,
            };
            (taken, outcome)
        })
        .await;
        self.parts = taken.parts.take();
        outcome
    }

    /// Writes everything atomically and releases the locks. Commits a prepared transaction as the
    /// second phase of two-phase commit.
    ///
    /// # Errors
    /// `Expired`; it has ended, or was not prepared and must be; `InvalidArgument`: it has written
    /// keys with timestamps, and [none is set](Self::set_commit_timestamp); otherwise those of
    /// [`Db::write`](karst_engine::Db::write). Nothing was written, except that the outcome of an
    /// `Io` error of the log is unknown. The transaction returns to its previous state, with its
    /// locks.
    pub fn commit(&mut self) -> Result<()> {
        finish(self.commit_by(Caller::Thread))
    }

    /// The asynchronous form of [`commit`](Self::commit). After its first poll the commit completes
    /// even if it is dropped.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub async fn commit_async(&mut self) -> Result<()> {
        self.end_async(Ending::Commit).await
    }

    async fn commit_by(&mut self, by: Caller) -> Result<()> {
        let shared = self.shared.clone();
        let now = || shared.db.env().now();
        let parts = self.parts_mut()?;
        let timestamp = parts.timestamps.commit_bytes();
        let timestamp = timestamp.as_ref().map(|bytes| &bytes[..]);
        if parts.holder.state() == TransactionState::Prepared {
            parts.timestamps.check_commit(parts.work.batch.write_batch())?;
            parts.holder.set(TransactionState::AwaitingCommit);
            let outcome = TransactionHooks::of(&shared.db)
                .commit_prepared(by, &parts.write_options, name_of(parts), timestamp)
                .await;
            return self.decided(outcome, TransactionState::Prepared, TransactionState::Committed);
        }
        if !parts.skip_prepare {
            return Err(Holder::refusal(parts.holder.state()));
        }
        parts.holder.check_started(now)?;
        parts.timestamps.check_commit(parts.work.batch.write_batch())?;
        parts.holder.leave_started(now, TransactionState::AwaitingCommit)?;
        let outcome = parts.work.write(by, &parts.write_options, timestamp).await;
        self.decided(outcome, TransactionState::Started, TransactionState::Committed)
    }

    /// Performs the first phase of two-phase commit: makes the writes durable (with `sync`;
    /// otherwise they survive the process) without making them visible. Afterwards the transaction
    /// can only be committed or rolled back, does not expire, and is recovered after a crash.
    ///
    /// # Errors
    /// It has no name, has ended or expired, or is prepared; otherwise those of
    /// [`Db::write`](karst_engine::Db::write). The transaction continues as before, with its locks.
    pub fn prepare(&mut self) -> Result<()> {
        finish(self.prepare_by(Caller::Thread))
    }

    /// The asynchronous form of [`prepare`](Self::prepare). After its first poll the prepare
    /// completes even if it is dropped; the transaction can then be retrieved by name.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub async fn prepare_async(&mut self) -> Result<()> {
        self.end_async(Ending::Prepare).await
    }

    async fn prepare_by(&mut self, by: Caller) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.parts_mut()?;
        let now = || shared.db.env().now();
        parts.holder.check_started(now)?;
        let Some(name) = parts.name.clone() else {
            return Err(Error::invalid_argument("a transaction needs a name to be prepared, and has none"));
        };
        parts.holder.leave_started(now, TransactionState::AwaitingPrepare)?;
        let batch = parts.work.batch.write_batch().clone();
        let outcome = TransactionHooks::of(&shared.db).prepare(by, &parts.write_options, &name, batch).await;
        match outcome {
            Ok(()) => parts.holder.set(TransactionState::Prepared),
            Err(_) => back_to(&shared, parts, TransactionState::Started),
        }
        outcome
    }

    /// Discards all writes and releases the locks. The rollback of a prepared transaction is
    /// logged.
    ///
    /// # Errors
    /// It has ended. If it is prepared, those of [`Db::write`](karst_engine::Db::write); it stays
    /// prepared then.
    pub fn rollback(&mut self) -> Result<()> {
        finish(self.rollback_by(Caller::Thread))
    }

    /// The asynchronous form of [`rollback`](Self::rollback). After its first poll the rollback
    /// completes even if it is dropped.
    ///
    /// # Errors
    /// Those of [`rollback`](Self::rollback).
    pub async fn rollback_async(&mut self) -> Result<()> {
        self.end_async(Ending::Rollback).await
    }

    async fn rollback_by(&mut self, by: Caller) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.parts_mut()?;
        let state = parts.holder.state();
        let outcome = match state {
            TransactionState::Started | TransactionState::LocksStolen => Ok(()),
            TransactionState::Prepared => {
                parts.holder.set(TransactionState::AwaitingRollback);
                TransactionHooks::of(&shared.db)
                    .rollback_prepared(by, &parts.write_options, name_of(parts))
                    .await
            }
            state => Err(Holder::refusal(state)),
        };
        self.decided(outcome, state, TransactionState::RolledBack)
    }

    /// Sets the state to `after` if `outcome` is a success, and to `before` otherwise.
    fn decided(
        &mut self,
        outcome: Result<(), Error>,
        before: TransactionState,
        after: TransactionState,
    ) -> Result<()> {
        let shared = self.shared.clone();
        // Not through `parts_mut`, because the database may have been closed meanwhile.
        let parts = self.parts.as_deref_mut().expect("whoever decides has it in hand");
        if outcome.is_err() {
            back_to(&shared, parts, before);
            return outcome;
        }
        parts.holder.set(after);
        release(&shared, parts);
        Ok(())
    }
}

/// Returns the transaction to `before` after a failed step. Wakes the waiters for its locks,
/// because it may have expired meanwhile, so that its locks may be stolen.
fn back_to(shared: &super::db::Shared, parts: &Parts, before: TransactionState) {
    parts.holder.set(before);
    for (family, key) in parts.work.tracked.iter() {
        shared.locks.look_again(family, key);
    }
}

/// Releases the locks and the name.
fn release(shared: &super::db::Shared, parts: &mut Parts) {
    for (family, key) in parts.work.tracked.iter() {
        shared.locks.unlock(&parts.holder, family, key);
    }
    parts.work.clear();
    if let Some(name) = &parts.name {
        shared.unregister(name);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        match parts.holder.state() {
            TransactionState::Committed | TransactionState::RolledBack => {}
            TransactionState::Prepared => {
                let name = name_of(&parts).to_vec();
                self.shared.park(&name, parts);
            }
            _ => {
                parts.holder.set(TransactionState::RolledBack);
                release(&self.shared, &mut parts);
            }
        }
    }
}

fn name_of(parts: &Parts) -> &[u8] {
    parts.name.as_deref().expect("what is prepared has a name")
}
