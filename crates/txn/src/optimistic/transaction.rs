//! One optimistic transaction.
//!
//! Invariants:
//! - Every tracked key has a sequence number from before it was read, at or above that of a
//!   snapshot that is held until the transaction ends.
//! - A refused call leaves the tracked keys unchanged.
//! - A commit writes all or nothing. After a failed commit the transaction continues and may be
//!   rolled back. After a commit whose future was dropped it refuses every call, because the
//!   outcome is unknown.

use super::options::OptimisticTransactionOptions;
use crate::batch::{BatchDbIterator, Families, WriteBatchWithIndex};
use crate::reads::reads;
use crate::tracked::Tracked;
use crate::workspace::Workspace;
use karst_engine::caller::{Caller, finish};
use karst_engine::{
    ColumnFamily, Db, Error, Named, ReadOptions, Result, Snapshot, TransactionHooks, Value, WriteOptions,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Committing,
    Committed,
    RolledBack,
}

/// A transaction of an [`OptimisticTransactionDb`](super::OptimisticTransactionDb). Dropping it
/// rolls it back.
#[derive(Debug)]
pub struct OptimisticTransaction {
    work: Workspace,
    write_options: WriteOptions,
    state: State,
}

impl OptimisticTransaction {
    pub(super) fn new(db: Db, write_options: WriteOptions, options: &OptimisticTransactionOptions) -> Self {
        let mut work = Workspace::new(db, 0);
        if options.set_snapshot {
            work.take_snapshot();
        }
        Self { work, write_options, state: State::Open }
    }

    /// Takes a snapshot: the commit fails if others have written, since this moment, a key that is
    /// written or read for update from now on. Reads use the snapshot only if
    /// [`snapshot`](Self::snapshot) is put into their options.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn set_snapshot(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.take_snapshot();
        Ok(())
    }

    /// Sets a snapshot that was taken before; see [`set_snapshot`](Self::set_snapshot).
    ///
    /// # Errors
    /// The transaction has ended, or the snapshot is of another database.
    pub fn set_snapshot_to(&mut self, snapshot: Snapshot) -> Result<()> {
        self.check_open()?;
        self.work.use_snapshot(snapshot)
    }

    /// Takes the snapshot right before the next operation that writes or reads for update.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn set_snapshot_on_next_operation(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.ask_for_snapshot();
        Ok(())
    }

    /// Returns the snapshot that was set.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.work.snapshot()
    }

    /// Removes the snapshot: keys tracked from now on are validated from the time they are tracked.
    pub fn clear_snapshot(&mut self) {
        self.work.clear_snapshot();
    }

    /// Fails if the transaction has ended, its commit was abandoned, or the database is closed.
    fn check_open(&self) -> Result<()> {
        self.work.db.check_open()?;
        let what = match self.state {
            State::Open => return Ok(()),
            State::Committing => "its commit was abandoned, and its outcome is not known",
            State::Committed => "it has been committed",
            State::RolledBack => "it has been rolled back",
        };
        Err(Error::invalid_argument(format!("the transaction has ended: {what}")))
    }

    /// Refuses a column family of another database, and one whose keys have timestamps.
    ///
    /// Compat: RocksDB accepts such writes, and fails the commit because no timestamp can be set.
    fn check(&self, family: &ColumnFamily) -> Result<()> {
        if family.comparator().timestamp_size() > 0 {
            let name = Named(family.name());
            let text =
                format!("optimistic transactions in column family {name:?}, whose keys have timestamps");
            return Err(Error::not_supported(text));
        }
        self.work.batch.check(family)
    }

    /// Tracks a key that the transaction depends on.
    fn track(&mut self, family: &ColumnFamily, key: &[u8], exclusive: bool) -> Result<()> {
        self.check(family)?;
        self.work.begin_operation();
        let since = self.work.since();
        self.work.tracked.track(family, key, Tracked { since, exclusive });
        Ok(())
    }

    fn default_family(&self) -> &ColumnFamily {
        self.work.db.default_column_family()
    }

    async fn get_by(
        &self,
        by: Caller,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.check_open()?;
        self.check(family)?;
        self.work.batch.get_by(by, &self.work.db, options, family, key).await
    }

    async fn multi_get_by<K: AsRef<[u8]> + Sync>(
        &self,
        by: Caller,
        options: &ReadOptions,
        families: Families<'_>,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        let checked = self.check_open().and_then(|()| match families {
            Families::One(family) => self.check(family),
            Families::OfEach(families) => families.iter().try_for_each(|family| self.check(family)),
        });
        if let Err(error) = checked {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        self.work.batch.multi_get_by(by, &self.work.db, options, families, keys).await
    }

    /// Reads a key like [`get`](Self::get); the commit fails if others write the key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_for_update(&mut self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_for_update_cf(options, &self.default_family().clone(), key)
    }

    /// The asynchronous form of [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// Those of [`get_for_update`](Self::get_for_update).
    pub async fn get_for_update_async(&mut self, options: &ReadOptions, key: &[u8]) -> Result<Option<Value>> {
        self.get_for_update_cf_async(options, &self.default_family().clone(), key).await
    }

    /// Reads a key of a column family; see [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// Those of [`get_cf`](Self::get_cf).
    pub fn get_for_update_cf(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.get_for_update_blocking(options, family, key.as_ref())
    }

    /// Not generic, so that it is compiled here and not in each crate that calls it.
    fn get_for_update_blocking(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        finish(self.get_for_update_by(Caller::Thread, options, family, key))
    }

    /// The asynchronous form of [`get_for_update_cf`](Self::get_for_update_cf).
    ///
    /// # Errors
    /// Those of [`get_for_update_cf`](Self::get_for_update_cf).
    pub async fn get_for_update_cf_async(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.get_for_update_by(Caller::Task, options, family, key).await
    }

    async fn get_for_update_by(
        &mut self,
        by: Caller,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.check_open()?;
        let before = self.work.tracked.get(family.id(), key);
        self.track(family, key, false)?;
        let outcome = self.get_by(by, options, family, key).await;
        if outcome.is_err() {
            self.work.tracked.take_back(family.id(), key, before);
        }
        outcome
    }

    /// Returns an iterator over a column family that includes the transaction's writes so far.
    ///
    /// # Errors
    /// Those of [`WriteBatchWithIndex::iter_with_base_cf`]; the transaction has ended.
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<BatchDbIterator> {
        self.check_open()?;
        self.check(family)?;
        self.work.batch.iter_with_base_cf(&self.work.db, options, family)
    }

    /// Returns an iterator over the default column family; see [`iter_cf`](Self::iter_cf).
    ///
    /// # Errors
    /// Those of [`iter_cf`](Self::iter_cf).
    pub fn iter(&self, options: &ReadOptions) -> Result<BatchDbIterator> {
        self.iter_cf(options, self.work.db.default_column_family())
    }

    /// Marks the current state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn set_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.set_save_point();
        Ok(())
    }

    /// Undoes writes and tracked keys since the last save point, and removes that save point. The
    /// snapshot is restored to the one that was set then.
    ///
    /// # Errors
    /// `NotFound` if no save point is set; the transaction has ended.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.rollback_to_save_point(|_, _| {})
    }

    /// Removes the last save point and keeps the changes since.
    ///
    /// # Errors
    /// `NotFound` if no save point is set; the transaction has ended.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.pop_save_point()
    }

    /// Adds bytes that are written to the log only.
    ///
    /// # Errors
    /// The batch would be too large; the transaction has ended.
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.check_open()?;
        self.work.batch.put_log_data(data)
    }

    /// Returns the uncommitted writes.
    pub fn write_batch(&self) -> &WriteBatchWithIndex {
        &self.work.batch
    }

    /// Returns the number of keys that the commit depends on.
    pub fn tracked_keys(&self) -> usize {
        self.work.tracked.len()
    }

    /// Writes everything atomically, if no other writer has changed a key that the transaction has
    /// written or read for update.
    ///
    /// # Errors
    /// `Busy` if another writer has. Otherwise those of [`Db::write`]. Nothing was written, except
    /// that the outcome of an `Io` error of the log is unknown. The transaction continues; roll it
    /// back. `InvalidArgument`: it has ended.
    pub fn commit(&mut self) -> Result<()> {
        finish(self.commit_by(Caller::Thread))
    }

    /// The asynchronous form of [`commit`](Self::commit). If it is dropped after its first poll,
    /// the transaction is committed whole or not at all, and refuses every further call.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub async fn commit_async(&mut self) -> Result<()> {
        self.commit_by(Caller::Task).await
    }

    async fn commit_by(&mut self, by: Caller) -> Result<()> {
        self.check_open()?;
        self.state = State::Committing;
        let outcome = match self.work.tracked.unchanged() {
            none if none.is_empty() => self.work.write(by, &self.write_options, None).await,
            keys => {
                let batch = self.work.batch.write_batch();
                TransactionHooks::of(&self.work.db)
                    .write_if_unchanged(by, &self.write_options, batch, &keys)
                    .await
            }
        };
        self.state = if outcome.is_ok() { State::Committed } else { State::Open };
        if outcome.is_ok() {
            self.work.clear();
        }
        outcome
    }

    /// Discards all writes.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn rollback(&mut self) -> Result<()> {
        self.check_open()?;
        self.state = State::RolledBack;
        self.work.clear();
        Ok(())
    }
}

reads!(OptimisticTransaction, "the transaction has ended");

/// Defines the forms of every call that writes one key.
macro_rules! writes {
    ($($(#[$doc:meta])* $plain:ident $cf:ident $untracked:ident ($($value:ident)?);)*) => {
        impl OptimisticTransaction {
            $(
                $(#[$doc])*
                ///
                /// In the default column family.
                ///
                /// # Errors
                /// The key, the value or the batch would be too large; the transaction has ended.
                pub fn $plain(&mut self, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.$cf(&self.default_family().clone(), key $(, $value)?)
                }

                /// Performs the write in a column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`", stringify!($plain), "`](Self::", stringify!($plain), "), and `InvalidArgument` if the column family is of another database.")]
                pub fn $cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.check_open()?;
                    let key = key.as_ref();
                    let before = self.work.tracked.get(family.id(), key);
                    self.track(family, key, true)?;
                    let outcome = self.work.batch.$cf(family, key $(, $value)?);
                    if outcome.is_err() {
                        self.work.tracked.take_back(family.id(), key, before);
                    }
                    outcome
                }

                /// Performs the write without making the commit depend on the key.
                ///
                /// # Errors
                #[doc = concat!("Those of [`", stringify!($cf), "`](Self::", stringify!($cf), ").")]
                pub fn $untracked(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.check_open()?;
                    self.check(family)?;
                    self.work.batch.$cf(family, key $(, $value)?)
                }
            )*
        }
    };
}

writes! {
    /// Sets `key`.
    put put_cf put_untracked (value);
    /// Removes `key`.
    delete delete_cf delete_untracked ();
    /// Removes `key`, which was put at most once since it was last removed.
    single_delete single_delete_cf single_delete_untracked ();
    /// Adds a merge operand to `key`.
    merge merge_cf merge_untracked (operand);
}
