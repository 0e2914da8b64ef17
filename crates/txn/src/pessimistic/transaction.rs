//! A transaction that takes locks: its reads, writes and save points.
//!
//! Invariants:
//! - Every tracked key is locked by the transaction, unless it takes no locks or they were stolen
//!   after it expired.
//! - A call that fails leaves locks and writes as they were before.

use super::db::{Shared, milliseconds};
use super::options::TransactionOptions;
use super::timestamps::Timestamps;
use crate::batch::{BatchDbIterator, Families, WriteBatchWithIndex};
use crate::holder::{Holder, TransactionState};
use crate::lock::Request;
use crate::reads::reads;
use crate::tracked::Tracked;
use crate::workspace::Workspace;
use karst_engine::caller::{Caller, finish};
use karst_engine::format::Op;
use karst_engine::{
    ColumnFamily, Error, ErrorKind, Named, ReadOptions, Result, Shown, Snapshot, TransactionHooks, Value,
    WriteBatch, WriteOptions,
};
use std::sync::Arc;
use std::time::Duration;

/// Lock wait parameters of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Longest wait; `None`: no limit.
    pub(super) timeout: Option<Duration>,
    pub(super) detect_depth: Option<usize>,
    /// The transaction takes no locks.
    pub(super) skip: bool,
}

/// State of a transaction, owned by its handle.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) work: Workspace,
    pub(super) holder: Arc<Holder>,
    pub(super) write_options: WriteOptions,
    pub(super) waiting: Waiting,
    pub(super) skip_prepare: bool,
    pub(super) name: Option<Vec<u8>>,
    pub(super) timestamps: Timestamps,
}

impl Parts {
    /// Rebuilds a prepared transaction of an earlier process. Its keys are tracked, and not locked
    /// yet.
    ///
    /// Compat: RocksDB prepares a transaction that removes ranges, and does not open the database
    /// any more once it has to recover one. Here it can be decided. The ranges are not locked, as
    /// they were not before, and the transaction cannot be read.
    pub(super) fn recovered(shared: &Shared, name: Vec<u8>, batch: &WriteBatch) -> Result<Parts> {
        let mut work = Workspace::new(shared.db.clone(), 0);
        let families = shared.db.column_families();
        for op in batch.iter() {
            // Operations on a family that is not open are skipped, because the family was dropped
            // since and the commit skips it too.
            let Some(family) =
                families.iter().find(|family| op.column_family().is_some_and(|id| id.0 == family.id()))
            else {
                continue;
            };
            // Without timestamps, because the commit sets them.
            let bare = |key| family.comparator().bare(key);
            match op.key().map_or(op, |key| op.with_key(bare(key))) {
                Op::Put { key, value, .. } => work.batch.put_cf(family, key, value)?,
                Op::Delete { key, .. } => work.batch.delete_cf(family, key)?,
                Op::SingleDelete { key, .. } => work.batch.single_delete_cf(family, key)?,
                Op::Merge { key, operand, .. } => work.batch.merge_cf(family, key, operand)?,
                Op::PutEntity { key, entity, .. } => work.batch.put_encoded_entity_cf(family, key, entity)?,
                Op::DeleteRange { begin, end, .. } => {
                    work.batch.delete_range_unread_cf(family, begin, end)?;
                }
                other => {
                    let name = Shown(&name);
                    let text = format!(
                        "prepared transaction {name} has an operation that cannot be read: {other:?}"
                    );
                    return Err(Error::not_supported(text));
                }
            }
            if let Some(key) = op.key() {
                work.tracked.track(family, bare(key), Tracked { since: 0, exclusive: true });
            }
        }
        let holder = shared.new_holder(None);
        holder.set(TransactionState::Prepared);
        let waiting = Waiting { timeout: None, detect_depth: None, skip: false };
        // Compat: the log does not record if the prepare was synced, so the decision is. Writes to
        // families that were dropped since are skipped.
        let write_options = WriteOptions { ignore_missing_column_families: true, ..WriteOptions::synced() };
        let (name, timestamps) = (Some(name), Timestamps::default());
        Ok(Parts { work, holder, write_options, waiting, skip_prepare: true, name, timestamps })
    }

    /// Undoes the lock and the tracking of a key, whose previous tracking was `before`.
    fn take_back(&mut self, shared: &Shared, family: &ColumnFamily, key: &[u8], before: Option<Tracked>) {
        if self.waiting.skip {
            return;
        }
        self.work.tracked.take_back(family.id(), key, before);
        match before {
            None => shared.locks.unlock(&self.holder, family.id(), key),
            Some(before) if !before.exclusive => shared.locks.downgrade(&self.holder, family.id(), key),
            Some(_) => {}
        }
    }
}

/// A transaction of a [`TransactionDb`](super::TransactionDb). Dropping it rolls it back, unless it
/// is prepared.
#[derive(Debug)]
pub struct Transaction {
    pub(super) shared: Arc<Shared>,
    /// `None` during an asynchronous prepare, commit or rollback, and for good once that was
    /// dropped, because it completes without the handle.
    pub(super) parts: Option<Box<Parts>>,
}

/// A lock that was just granted; released when dropped unless `kept`.
struct JustLocked<'a> {
    shared: &'a Shared,
    holder: &'a Holder,
    family: u32,
    key: &'a [u8],
    /// The transaction held the lock as a shared one before.
    upgraded: bool,
    kept: bool,
}

impl Drop for JustLocked<'_> {
    fn drop(&mut self) {
        match self.kept {
            true => {}
            false if self.upgraded => self.shared.locks.downgrade(self.holder, self.family, self.key),
            false => self.shared.locks.unlock(self.holder, self.family, self.key),
        }
    }
}

impl Transaction {
    pub(super) fn begin(
        shared: Arc<Shared>,
        write_options: WriteOptions,
        options: &TransactionOptions,
    ) -> Self {
        let mut work = Workspace::new(shared.db.clone(), options.max_write_batch_size);
        if options.set_snapshot {
            work.take_snapshot();
        }
        let timeout = match options.lock_timeout {
            own if own >= 0 => milliseconds(own),
            _ => milliseconds(shared.options.transaction_lock_timeout),
        };
        let depth = usize::try_from(options.deadlock_detect_depth).unwrap_or(0);
        let waiting = Waiting {
            timeout,
            detect_depth: options.deadlock_detect.then_some(depth),
            skip: options.skip_concurrency_control,
        };
        let parts = Parts {
            work,
            holder: shared.new_holder(milliseconds(options.expiration)),
            write_options,
            waiting,
            skip_prepare: options.skip_prepare,
            name: None,
            timestamps: Timestamps::default(),
        };
        Self { shared, parts: Some(Box::new(parts)) }
    }

    /// Returns the transaction's state, if the database is not closed.
    pub(super) fn parts(&self) -> Result<&Parts> {
        self.shared.db.check_open()?;
        self.parts.as_deref().ok_or_else(given_up)
    }

    pub(super) fn parts_mut(&mut self) -> Result<&mut Parts> {
        self.shared.db.check_open()?;
        self.parts.as_deref_mut().ok_or_else(given_up)
    }

    fn now(&self) -> Duration {
        self.shared.db.env().now()
    }

    /// Returns the transaction's state, if it still accepts writes.
    fn started(&mut self) -> Result<&mut Parts> {
        self.parts()?.holder.check_started(|| self.now())?;
        self.parts_mut()
    }

    /// Returns the transaction's state, if it can still be read.
    fn readable(&self) -> Result<&Parts> {
        let parts = self.parts()?;
        match parts.holder.state() {
            TransactionState::Prepared => Ok(parts),
            _ => parts.holder.check_started(|| self.now()).map(|()| parts),
        }
    }

    /// Returns the id shown in locks and deadlock reports; `None` like [`state`](Self::state).
    pub fn id(&self) -> Option<u64> {
        self.parts.as_ref().map(|parts| parts.holder.id)
    }

    /// Returns the transaction's state; `None` once an asynchronous prepare, commit or rollback was
    /// dropped before it completed.
    pub fn state(&self) -> Option<TransactionState> {
        self.parts.as_ref().map(|parts| parts.holder.state())
    }

    /// Sets the longest wait for a lock, in milliseconds; negative: no limit; 0: no wait.
    ///
    /// # Errors
    /// The transaction accepts no more writes.
    pub fn set_lock_timeout(&mut self, lock_timeout: i64) -> Result<()> {
        self.started()?.waiting.timeout = milliseconds(lock_timeout);
        Ok(())
    }

    /// Sets the name, of 1 to 512 bytes, which two-phase commit needs. No other transaction can
    /// have it until this one has ended.
    ///
    /// # Errors
    /// `InvalidArgument`: the length is wrong, a name is set already, or another transaction has
    /// this name. The transaction accepts no more writes.
    pub fn set_name(&mut self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        let shared = self.shared.clone();
        let parts = self.started()?;
        if parts.name.is_some() {
            return Err(Error::invalid_argument("the transaction has a name already"));
        }
        if name.is_empty() || name.len() > 512 {
            return Err(Error::invalid_argument("a transaction's name has 1 to 512 bytes"));
        }
        shared.register(name)?;
        parts.name = Some(name.to_vec());
        Ok(())
    }

    /// Returns the name.
    pub fn name(&self) -> Option<&[u8]> {
        self.parts.as_ref()?.name.as_deref()
    }

    /// Takes a snapshot: locking a key fails from now on if others have written the key since this
    /// moment. Reads use the snapshot only if [`snapshot`](Self::snapshot) is put into their
    /// options.
    ///
    /// # Errors
    /// The transaction accepts no more writes.
    pub fn set_snapshot(&mut self) -> Result<()> {
        self.started()?.work.take_snapshot();
        Ok(())
    }

    /// Sets a snapshot that was taken before; see [`set_snapshot`](Self::set_snapshot).
    ///
    /// # Errors
    /// The transaction accepts no more writes, or the snapshot is of another database.
    pub fn set_snapshot_to(&mut self, snapshot: Snapshot) -> Result<()> {
        self.started()?.work.use_snapshot(snapshot)
    }

    /// Takes the snapshot right before the next operation that writes or reads for update.
    ///
    /// # Errors
    /// The transaction accepts no more writes.
    pub fn set_snapshot_on_next_operation(&mut self) -> Result<()> {
        self.started()?.work.ask_for_snapshot();
        Ok(())
    }

    /// Returns the snapshot that was set.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.parts.as_ref()?.work.snapshot()
    }

    /// Removes the snapshot.
    pub fn clear_snapshot(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.work.clear_snapshot();
        }
    }

    /// Locks and tracks a key. With `validate`, fails if others have written the key since the
    /// snapshot, or if the key has a timestamp later than the read timestamp.
    async fn lock(
        &mut self,
        by: Caller,
        family: &ColumnFamily,
        key: &[u8],
        exclusive: bool,
        validate: bool,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.started()?;
        parts.work.batch.check(family)?;
        shared.check_family(family)?;
        let Waiting { timeout, detect_depth, skip } = parts.waiting;
        if skip {
            parts.work.begin_operation();
            return Ok(());
        }
        let known = parts.work.tracked.get(family.id(), key);
        let holder = parts.holder.clone();
        let mut just_locked = None;
        if known.is_none_or(|known| exclusive && !known.exclusive) {
            let request = Request { family: family.id(), key, exclusive, timeout, detect_depth };
            shared.locks.lock(by, &holder, request).await?;
            let upgraded = known.is_some();
            just_locked = Some(JustLocked {
                shared: &shared,
                holder: &holder,
                family: family.id(),
                key,
                upgraded,
                kept: false,
            });
        }
        parts.work.begin_operation();
        let snapshot = parts.work.snapshot().filter(|_| validate).cloned();
        let timestamp = parts.timestamps.validated(family, &shared.options).filter(|_| validate);
        // A key validated at an older or equal sequence number is skipped, because the lock has
        // kept others from writing it since.
        let seen = snapshot.as_ref().map(Snapshot::sequence_number);
        let look = match (known, seen) {
            (Some(known), Some(seen)) if known.since <= seen => None,
            _ => snapshot.as_ref(),
        };
        if look.is_some() || timestamp.is_some() {
            let hooks = TransactionHooks::of(&shared.db);
            let timestamp = timestamp.as_ref().map(|bytes| &bytes[..]);
            if hooks.written_since(by, family, key, look, timestamp).await? {
                return Err(changed(family, key));
            }
        }
        let since = match (known, seen) {
            (Some(known), Some(seen)) => known.since.min(seen),
            (Some(known), None) => known.since,
            (None, Some(seen)) => seen,
            (None, None) => shared.db.latest_sequence_number(),
        };
        // Checked again because the transaction may have expired while it waited, and lost other
        // locks.
        holder.check_started(|| shared.db.env().now())?;
        parts.work.tracked.track(family, key, Tracked { since, exclusive });
        if let Some(lock) = &mut just_locked {
            lock.kept = true;
        }
        Ok(())
    }

    /// Locks a key exclusively and writes it. If the batch refuses the write, the lock is restored
    /// to its previous state.
    async fn locked(
        &mut self,
        by: Caller,
        family: &ColumnFamily,
        key: &[u8],
        validate: bool,
        write: impl FnOnce(&mut WriteBatchWithIndex) -> Result<()>,
    ) -> Result<()> {
        let before = self.started()?.work.tracked.get(family.id(), key);
        self.lock(by, family, key, true, validate).await?;
        let shared = self.shared.clone();
        let parts = self.started()?;
        let outcome = write(&mut parts.work.batch);
        if outcome.is_err() {
            parts.take_back(&shared, family, key, before);
        }
        outcome
    }

    fn default_family(&self) -> &ColumnFamily {
        self.shared.db.default_column_family()
    }

    async fn get_by(
        &self,
        by: Caller,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let parts = self.readable()?;
        self.shared.check_family(family)?;
        parts.work.batch.get_by(by, &self.shared.db, options, family, key).await
    }

    async fn multi_get_by<K: AsRef<[u8]> + Sync>(
        &self,
        by: Caller,
        options: &ReadOptions,
        families: Families<'_>,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        let readable = self.readable().and_then(|parts| {
            match families {
                Families::One(family) => self.shared.check_family(family)?,
                Families::OfEach(of) => of.iter().try_for_each(|family| self.shared.check_family(family))?,
            }
            Ok(parts)
        });
        match readable {
            Ok(parts) => parts.work.batch.multi_get_by(by, &self.shared.db, options, families, keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Locks a key of the default column family exclusively, then reads it. Fails if a snapshot is
    /// set and others have written the key since. In a family with timestamps the key is read at
    /// the transaction's read timestamp ([`Self::set_read_timestamp_for_validation`]) and must have
    /// no later one.
    ///
    /// # Errors
    /// `TimedOut`, `Deadlock` or `LimitReached`: the lock was not granted; `Busy`: others have
    /// written the key since the snapshot, or at a later timestamp; `InvalidArgument`: the options
    /// have another timestamp than the transaction; `Expired`; those of [`get`](Self::get).
    pub fn get_for_update(&mut self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let family = self.default_family().clone();
        self.get_for_update_cf(options, &family, key, true, true)
    }

    /// The asynchronous form of [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// Those of [`get_for_update`](Self::get_for_update).
    pub async fn get_for_update_async(&mut self, options: &ReadOptions, key: &[u8]) -> Result<Option<Value>> {
        let family = self.default_family().clone();
        self.get_for_update_cf_async(options, &family, key, true, true).await
    }

    /// Locks a key of a column family, exclusively or shared, then reads it; `do_validate` checks
    /// for writes of others since the snapshot. In a family with timestamps, a read timestamp must
    /// be set if and only if `do_validate` is; without one the newest value is read. With
    /// `enable_udt_validation` off none may be set.
    ///
    /// # Errors
    /// Those of [`get_for_update`](Self::get_for_update); `InvalidArgument` if the rule about the
    /// read timestamp is broken.
    pub fn get_for_update_cf(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        exclusive: bool,
        do_validate: bool,
    ) -> Result<Option<Value>> {
        self.get_for_update_blocking(options, family, key.as_ref(), (exclusive, do_validate))
    }

    /// Not generic, so that it is compiled here and not in each crate that calls it.
    fn get_for_update_blocking(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
        (exclusive, do_validate): (bool, bool),
    ) -> Result<Option<Value>> {
        finish(self.get_for_update_by(Caller::Thread, options, family, key, exclusive, do_validate))
    }

    /// The asynchronous form of [`get_for_update_cf`](Self::get_for_update_cf). Dropped while it
    /// waits for the lock, it has locked nothing; dropped while it reads, the transaction keeps the
    /// lock until it ends.
    ///
    /// # Errors
    /// Those of [`get_for_update_cf`](Self::get_for_update_cf).
    pub async fn get_for_update_cf_async(
        &mut self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
        exclusive: bool,
        do_validate: bool,
    ) -> Result<Option<Value>> {
        self.get_for_update_by(Caller::Task, options, family, key, exclusive, do_validate).await
    }

    async fn get_for_update_by(
        &mut self,
        by: Caller,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
        exclusive: bool,
        validate: bool,
    ) -> Result<Option<Value>> {
        let parts = self.parts()?;
        let options = parts.timestamps.for_update(options, family, validate, &self.shared.options)?;
        let before = parts.work.tracked.get(family.id(), key);
        self.lock(by, family, key, exclusive, validate).await?;
        let outcome = self.get_by(by, &options, family, key).await;
        if outcome.is_err() {
            let shared = self.shared.clone();
            if let Some(parts) = self.parts.as_deref_mut() {
                parts.take_back(&shared, family, key, before);
            }
        }
        outcome
    }

    /// Returns an iterator over a column family that includes the transaction's writes so far. It
    /// locks nothing.
    ///
    /// # Errors
    /// Those of [`WriteBatchWithIndex::iter_with_base_cf`]; the transaction has ended or expired.
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<BatchDbIterator> {
        let parts = self.readable()?;
        self.shared.check_family(family)?;
        parts.work.batch.iter_with_base_cf(&self.shared.db, options, family)
    }

    /// Returns an iterator over the default column family; see [`iter_cf`](Self::iter_cf).
    ///
    /// # Errors
    /// Those of [`iter_cf`](Self::iter_cf).
    pub fn iter(&self, options: &ReadOptions) -> Result<BatchDbIterator> {
        self.iter_cf(options, self.shared.db.default_column_family())
    }

    /// Marks the current state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    ///
    /// # Errors
    /// The transaction accepts no more writes.
    pub fn set_save_point(&mut self) -> Result<()> {
        self.started()?.work.set_save_point();
        Ok(())
    }

    /// Undoes the writes since the last save point, releases the keys that were locked since, and
    /// removes that save point. The snapshot is restored to the one that was set then.
    ///
    /// # Errors
    /// `NotFound` if no save point is set; the transaction accepts no more writes.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let parts = self.started()?;
        let (holder, work) = (&parts.holder, &mut parts.work);
        work.rollback_to_save_point(|family, key| shared.locks.unlock(holder, family, key))
    }

    /// Removes the last save point and keeps the changes since.
    ///
    /// # Errors
    /// `NotFound` if no save point is set; the transaction accepts no more writes.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.started()?.work.pop_save_point()
    }

    /// Adds bytes that are written to the log only.
    ///
    /// # Errors
    /// The batch would be too large; the transaction accepts no more writes.
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.started()?.work.batch.put_log_data(data)
    }

    /// Returns the uncommitted writes.
    pub fn write_batch(&self) -> Option<&WriteBatchWithIndex> {
        self.parts.as_ref().map(|parts| &parts.work.batch)
    }

    /// Returns the number of keys that the transaction has locked.
    pub fn tracked_keys(&self) -> usize {
        self.parts.as_ref().map_or(0, |parts| parts.work.tracked.len())
    }
}

fn given_up() -> Error {
    Error::invalid_argument(
        "the transaction has ended: its prepare, commit or rollback was abandoned, and continues in the background",
    )
}

fn changed(family: &ColumnFamily, key: &[u8]) -> Error {
    let (name, key) = (Named(family.name()), Shown(key));
    let text = format!(
        "key {key} of column family {name:?} was written since the transaction's snapshot, or after the timestamp that it reads at"
    );
    Error::new(ErrorKind::Busy, text)
}

reads!(Transaction, "the transaction has ended or expired");

/// Defines the forms of every call that writes one key.
macro_rules! writes {
    ($($(#[$doc:meta])* $plain:ident $plain_async:ident $cf:ident $cf_async:ident $untracked:ident $untracked_async:ident ($($value:ident)?);)*) => {
        impl Transaction {
            $(
                $(#[$doc])*
                ///
                /// In the default column family. Locks the key exclusively; fails if a snapshot is
                /// set and others have written the key since.
                ///
                /// # Errors
                /// Those of [`get_for_update`](Self::get_for_update); the key, the value or the
                /// batch would be too large.
                pub fn $plain(&mut self, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    let family = self.default_family().clone();
                    self.$cf(&family, key $(, $value)?)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($plain), "`](Self::", stringify!($plain), ").")]
                ///
                /// # Errors
                /// Those of the blocking form.
                pub async fn $plain_async(&mut self, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                    let family = self.default_family().clone();
                    self.$cf_async(&family, key $(, $value)?).await
                }

                /// Performs the write in a column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`", stringify!($plain), "`](Self::", stringify!($plain), ").")]
                pub fn $cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    // Not generic, so that it is compiled here and not in each crate that calls it.
                    fn tracked(own: &mut Transaction, family: &ColumnFamily, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                        finish(own.locked(Caller::Thread, family, key, true, |batch| batch.$cf(family, key $(, $value)?)))
                    }
                    tracked(self, family, key.as_ref() $(, $value.as_ref())?)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($cf), "`](Self::", stringify!($cf), ").")]
                ///
                /// # Errors
                /// Those of the blocking form.
                pub async fn $cf_async(&mut self, family: &ColumnFamily, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                    self.locked(Caller::Task, family, key, true, |batch| batch.$cf(family, key $(, $value)?)).await
                }

                /// Locks and writes the key without checking for writes of others since the
                /// snapshot.
                ///
                /// # Errors
                #[doc = concat!("Those of [`", stringify!($plain), "`](Self::", stringify!($plain), ").")]
                pub fn $untracked(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    fn untracked(own: &mut Transaction, family: &ColumnFamily, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                        finish(own.locked(Caller::Thread, family, key, false, |batch| batch.$cf(family, key $(, $value)?)))
                    }
                    untracked(self, family, key.as_ref() $(, $value.as_ref())?)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($untracked), "`](Self::", stringify!($untracked), ").")]
                ///
                /// # Errors
                /// Those of the blocking form.
                pub async fn $untracked_async(&mut self, family: &ColumnFamily, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                    self.locked(Caller::Task, family, key, false, |batch| batch.$cf(family, key $(, $value)?)).await
                }
            )*
        }
    };
}

writes! {
    /// Sets `key`.
    put put_async put_cf put_cf_async put_untracked put_untracked_async (value);
    /// Removes `key`.
    delete delete_async delete_cf delete_cf_async delete_untracked delete_untracked_async ();
    /// Removes `key`, which was put at most once since it was last removed.
    single_delete single_delete_async single_delete_cf single_delete_cf_async single_delete_untracked single_delete_untracked_async ();
    /// Adds a merge operand to `key`.
    merge merge_async merge_cf merge_cf_async merge_untracked merge_untracked_async (operand);
}
