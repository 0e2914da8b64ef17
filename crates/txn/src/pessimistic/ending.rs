//! Prepare, commit and rollback of a transaction that takes locks.
//!
//! Invariants:
//! - Locks are held until the outcome is known: a commit is visible before anybody else gets a lock
//!   on what it wrote.
//! - What fails leaves the transaction where it was before, with its locks; it can be tried again
//!   or rolled back.
//! - The asynchronous forms own the transaction while they run, and run to their end when they are
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
    /// Where keys have timestamps, this is the one that reads for update read at. From now on a key
    /// that is locked and validated must have no later one, which fails with `Busy` otherwise, and
    /// with `InvalidArgument` where the column family keeps no history of that time any more
    /// (`full_history_ts_low`): a later deletion may be gone.
    /// Works only with
    /// [`enable_udt_validation`](super::TransactionDbOptions::enable_udt_validation). The greatest
    /// number stands for none, which it is in the beginning.
    ///
    /// # Errors
    /// `InvalidArgument`: it was later before. The database is closed, or an asynchronous prepare,
    /// commit or rollback was dropped on the way.
    pub fn set_read_timestamp_for_validation(&mut self, timestamp: u64) -> Result<()> {
        self.parts_mut()?.timestamps.set_read(timestamp)
    }

    /// The timestamp that the commit gives to every key that was written in column families with
    /// timestamps. It may be set whenever, also once the transaction is prepared; prepared
    /// transactions of an earlier life have none. The greatest number stands for none.
    ///
    /// **Timestamps of one key must not go back**: whoever commits sees to it, by reading for
    /// update with a timestamp, or otherwise.
    ///
    /// # Errors
    /// `InvalidArgument`: it is not above the one to read at. The database is closed, or an
    /// asynchronous prepare, commit or rollback was dropped on the way.
    pub fn set_commit_timestamp(&mut self, timestamp: u64) -> Result<()> {
        let shared = self.shared.clone();
        self.parts_mut()?.timestamps.set_commit(timestamp, &shared.options)
    }

    /// The timestamp that was set to commit at.
    pub fn commit_timestamp(&self) -> Option<u64> {
        self.parts.as_ref()?.timestamps.commit()
    }

    /// Takes a step that goes to its end, whoever waits for it: the transaction is out of the
    /// handle meanwhile.
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

    /// Writes everything at once and lets go of the locks. Once it is prepared, that is the second
    /// phase.
    ///
    /// # Errors
    /// `Expired`; it has ended, or was not prepared and must be; `InvalidArgument`: it has written
    /// keys with timestamps, and [has none](Self::set_commit_timestamp); otherwise as
    /// [`Db::write`](karst_engine::Db::write). Nothing was written, but for an `Io` error of the
    /// log, after which that is not known. The transaction is where it was before, with its locks.
    pub fn commit(&mut self) -> Result<()> {
        finish(self.commit_by(Caller::Thread))
    }

    /// The asynchronous form of [`commit`](Self::commit). Once it was polled it goes on if it is
    /// dropped.
    ///
    /// # Errors
    /// The same.
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

    /// The first phase: makes it durable (with `sync`; otherwise it survives the process) without
    /// effect. It can only be committed or rolled back then, does not expire, and is found again
    /// after a crash.
    ///
    /// # Errors
    /// It has no name, has ended or expired, or is prepared; otherwise as
    /// [`Db::write`](karst_engine::Db::write). It goes on as before, with its locks.
    pub fn prepare(&mut self) -> Result<()> {
        finish(self.prepare_by(Caller::Thread))
    }

    /// The asynchronous form of [`prepare`](Self::prepare). Once it was polled it goes on if it is
    /// dropped, and the transaction can be had by name.
    ///
    /// # Errors
    /// The same.
    pub async fn prepare_async(&mut self) -> Result<()> {
        self.end_async(Ending::Prepare).await
    }

    async fn prepare_by(&mut self, by: Caller) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.parts_mut()?;
        let now = || shared.db.env().now();
        parts.holder.check_started(now)?;
        let Some(name) = parts.name.clone() else {
            return Err(Error::invalid_argument("a transaction is prepared under a name; it has none"));
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

    /// Gives up everything and lets go of the locks. Of a prepared transaction that is logged.
    ///
    /// # Errors
    /// It has ended. If it is prepared, as [`Db::write`](karst_engine::Db::write); it is prepared
    /// as before then.
    pub fn rollback(&mut self) -> Result<()> {
        finish(self.rollback_by(Caller::Thread))
    }

    /// The asynchronous form of [`rollback`](Self::rollback). Once it was polled it goes on if it
    /// is dropped.
    ///
    /// # Errors
    /// The same.
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

    /// The transaction is in `after` if that went well, and in `before` otherwise.
    fn decided(
        &mut self,
        outcome: Result<(), Error>,
        before: TransactionState,
        after: TransactionState,
    ) -> Result<()> {
        let shared = self.shared.clone();
        // Why whether the database is closed or not: it may have been meanwhile.
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

/// A step has failed: the transaction is where it was before. It may have expired meanwhile, so
/// that its locks may be stolen now.
fn back_to(shared: &super::db::Shared, parts: &Parts, before: TransactionState) {
    parts.holder.set(before);
    for (family, key) in parts.work.tracked.iter() {
        shared.locks.look_again(family, key);
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
