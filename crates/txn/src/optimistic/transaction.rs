//! One optimistic transaction.
//!
//! Invariants:
//! - Every tracked key comes with a sequence number from before it was read, and at or above that
//!   of a snapshot which is held until the transaction ends.
//! - A call that is refused leaves what the transaction depends on as it was.
//! - A commit either writes all, or nothing; then the transaction goes on and may be rolled back.
//!   One whose future was dropped on the way takes nothing more, as it is not known what became of
//!   it.

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

/// A transaction of an [`OptimisticTransactionDb`](super::OptimisticTransactionDb). Dropped, it is
/// rolled back.
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

    /// From now on a key that is written or read for update must not have been written by others
    /// since this moment. Reads see this moment only if [`snapshot`](Self::snapshot) is put into
    /// their options.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn set_snapshot(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.take_snapshot();
        Ok(())
    }

    /// As [`set_snapshot`](Self::set_snapshot), with the moment of a snapshot that was taken
    /// before.
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

    /// The snapshot that was set.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.work.snapshot()
    }

    /// Forgets the snapshot: keys that come from now on count from when they come.
    pub fn clear_snapshot(&mut self) {
        self.work.clear_snapshot();
    }

    /// Refuses what is asked of a transaction that takes nothing more, or whose database is closed.
    fn check_open(&self) -> Result<()> {
        self.work.db.check_open()?;
        let what = match self.state {
            State::Open => return Ok(()),
            State::Committing => "its commit was given up, and it is not known what became of it",
            State::Committed => "it has been committed",
            State::RolledBack => "it has been rolled back",
        };
        Err(Error::invalid_argument(format!("the transaction takes nothing more: {what}")))
    }

    /// Refuses a column family of another database, and one whose keys have timestamps.
    ///
    /// Compat: RocksDB takes what is written there, and fails the commit, as nothing can say its
    /// timestamp.
    fn check(&self, family: &ColumnFamily) -> Result<()> {
        if family.comparator().timestamp_size() > 0 {
            let name = Named(family.name());
            let text =
                format!("optimistic transactions in column family {name:?}, whose keys have timestamps");
            return Err(Error::not_supported(text));
        }
        self.work.batch.check(family)
    }

    /// Takes note of a key that the transaction depends on.
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

    /// As [`get`](Self::get), and the commit depends on nobody else having written the key.
    ///
    /// # Errors
    /// The same.
    pub fn get_for_update(&mut self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_for_update_cf(options, &self.default_family().clone(), key)
    }

    /// The asynchronous form of [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// The same.
    pub async fn get_for_update_async(&mut self, options: &ReadOptions, key: &[u8]) -> Result<Option<Value>> {
        self.get_for_update_cf_async(options, &self.default_family().clone(), key).await
    }

    /// The same of a column family.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
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
    /// The same.
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

    /// An iterator over a column family as the transaction sees it now.
    ///
    /// # Errors
    /// As [`WriteBatchWithIndex::iter_with_base_cf`]; the transaction has ended.
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<BatchDbIterator> {
        self.check_open()?;
        self.check(family)?;
        self.work.batch.iter_with_base_cf(&self.work.db, options, family)
    }

    /// The same over the default column family.
    ///
    /// # Errors
    /// As [`iter_cf`](Self::iter_cf).
    pub fn iter(&self, options: &ReadOptions) -> Result<BatchDbIterator> {
        self.iter_cf(options, self.work.db.default_column_family())
    }

    /// Marks the present state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    ///
    /// # Errors
    /// The transaction has ended.
    pub fn set_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.set_save_point();
        Ok(())
    }

    /// Takes back what was written and tracked since the last save point, and that save point. The
    /// snapshot is what it was.
    ///
    /// # Errors
    /// `NotFound` if there is none; the transaction has ended.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.rollback_to_save_point(|_, _| {})
    }

    /// Forgets the last save point and keeps what was done since.
    ///
    /// # Errors
    /// `NotFound` if there is none; the transaction has ended.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.check_open()?;
        self.work.pop_save_point()
    }

    /// Adds bytes that go to the log and nowhere else.
    ///
    /// # Errors
    /// The batch would be too large; the transaction has ended.
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.check_open()?;
        self.work.batch.put_log_data(data)
    }

    /// What was written so far.
    pub fn write_batch(&self) -> &WriteBatchWithIndex {
        &self.work.batch
    }

    /// How many keys the commit depends on.
    pub fn tracked_keys(&self) -> usize {
        self.work.tracked.len()
    }

    /// Writes everything at once, if nobody else has written a key that the transaction has written
    /// or read for update.
    ///
    /// # Errors
    /// `Busy` if somebody has. Otherwise as [`Db::write`]. Nothing was written, but for an `Io`
    /// error of the log, after which that is not known. The transaction goes on; roll it back.
    /// `InvalidArgument`: it has ended.
    pub fn commit(&mut self) -> Result<()> {
        finish(self.commit_by(Caller::Thread))
    }

    /// The asynchronous form of [`commit`](Self::commit). Dropped after its first poll, it leaves a
    /// transaction that takes nothing more; it was committed, whole, or not.
    ///
    /// # Errors
    /// The same.
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

    /// Gives up everything.
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

/// The forms of a call that writes one key.
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

                /// The same in a column family.
                ///
                /// # Errors
                #[doc = concat!("As [`", stringify!($plain), "`](Self::", stringify!($plain), "), and if the column family is of another database.")]
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

                /// The same without the commit depending on the key.
                ///
                /// # Errors
                #[doc = concat!("As [`", stringify!($cf), "`](Self::", stringify!($cf), ").")]
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
