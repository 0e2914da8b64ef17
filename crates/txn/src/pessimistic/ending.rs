//! How a transaction ends.
//!
//! Invariants:
//! - Locks are held until the outcome is known: a commit is visible before anybody else gets a lock on what it wrote.
//! - What fails leaves the transaction where it was before, with its locks; it can be tried again or rolled back.
//! - The asynchronous forms own the transaction while they run, and run to their end when they are dropped.

use super::transaction::{Parts, Transaction};
use crate::completion::complete;
use crate::holder::{Holder, TransactionState};
use karst_engine::caller::{Caller, finish};
use karst_engine::{Error, Result};

impl Transaction {
    /// Takes the transaction out of the handle, for work that must end whoever waits for it.
    fn take(&mut self) -> Result<Transaction> {
        self.parts()?;
        Ok(Transaction { shared: self.shared.clone(), parts: self.parts.take() })
    }

    /// Writes everything at once and lets go of the locks. Once it is prepared, that is the second phase.
    ///
    /// # Errors
    /// `Expired`; it has ended, or was not prepared and must be; otherwise as [`Db::write`](karst_engine::Db::write). Nothing was written, but for an `Io` error of the log, after which that is not known.
    /// The transaction is where it was before, with its locks.
    pub fn commit(&mut self) -> Result<()> {
        finish(self.commit_by(Caller::Thread))
    }

    /// The asynchronous form of [`commit`](Self::commit). Once it was polled it goes on if it is dropped.
    ///
    /// # Errors
    /// The same.
    pub async fn commit_async(&mut self) -> Result<()> {
        let mut taken = self.take()?;
        let env = self.shared.db.env().clone();
        let (mut taken, outcome) = complete(&env, async move {
            let outcome = taken.commit_by(Caller::Task).await;
            (taken, outcome)
        })
        .await;
        self.parts = taken.parts.take();
        outcome
    }

    async fn commit_by(&mut self, by: Caller) -> Result<()> {
        let shared = self.shared.clone();
        let now = shared.db.env().now();
        let parts = self.parts_mut()?;
        if !parts.skip_prepare {
            return Err(Holder::refusal(parts.holder.state()));
        }
        parts.holder.leave_started(now, TransactionState::AwaitingCommit)?;
        let (options, batch) = (&parts.write_options, parts.work.batch.write_batch());
        let outcome = match by {
            _ if batch.is_empty() => Ok(()),
            Caller::Thread => shared.db.write(options, batch),
            Caller::Task => shared.db.write_async(options, batch).await,
        };
        self.decided(outcome, TransactionState::Started, TransactionState::Committed)
    }

    /// Gives up everything and lets go of the locks.
    ///
    /// # Errors
    /// It has ended.
    pub fn rollback(&mut self) -> Result<()> {
        let parts = self.parts_mut()?;
        match parts.holder.state() {
            TransactionState::Started | TransactionState::LocksStolen => {
                parts.holder.set(TransactionState::AwaitingRollback);
                self.decided(Ok(()), TransactionState::Started, TransactionState::RolledBack)
            }
            state => Err(Holder::refusal(state)),
        }
    }

    /// The transaction is in `after` if that went well, and in `before` otherwise.
    fn decided(
        &mut self,
        outcome: Result<(), Error>,
        before: TransactionState,
        after: TransactionState,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.parts_mut()?;
        if outcome.is_err() {
            parts.holder.set(before);
            return outcome;
        }
        parts.holder.set(after);
        release(&shared, parts);
        Ok(())
    }
}

/// Lets go of locks and name.
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
            _ => {
                parts.holder.set(TransactionState::RolledBack);
                release(&self.shared, &mut parts);
            }
        }
    }
}
