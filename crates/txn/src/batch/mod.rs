//! Write batches with an index: the uncommitted writes of a transaction, readable before they are
//! written.
//!
//! A batch collects operations like a [`WriteBatch`], and serves reads that see its operations over
//! the database.
//!
//! Invariants:
//! - The batch holds every operation in order; the index holds the result for each key. A rollback
//!   to a save point restores both together.
//! - A refused operation leaves both unchanged.
//! - Keys of column families with timestamps are stored without a timestamp in the index, and in
//!   the batch with space for one, which
//!   [`update_timestamps`](WriteBatchWithIndex::update_timestamps) fills.
//! - The index of a column family is copied on write while an iterator holds it, so an iterator
//!   shows the batch as it was when the iterator was made.

mod entries;
mod index;
mod ingest;
mod iter;
mod read;
mod stream;
#[cfg(test)]
mod tests;

pub use entries::{BatchEntry, BatchEntryKind, BatchIterator};
pub use iter::BatchDbIterator;
pub(crate) use read::Families;
pub use read::InBatch;
pub use stream::BatchEntryStream;

use crate::undo::UndoLog;
use index::{FamilyIndex, Update, Updates};
use karst_engine::format::{ColumnFamilyId, Comparator};
use karst_engine::{ColumnFamily, Db, Error, Named, Result, TransactionHooks, WriteBatch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write batch with an index, so that its operations can be read before they are written.
///
/// ```
/// # use karst_engine::{Db, Options, ReadOptions, WriteOptions};
/// # use karst_txn::WriteBatchWithIndex;
/// # let directory = tempfile::tempdir()?;
/// # let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true))?;
/// db.put("cave", "dry")?;
/// let mut batch = WriteBatchWithIndex::new(&db, true);
/// batch.put("river", "wet")?;
/// let read = ReadOptions::new();
/// assert_eq!(batch.get_from_batch_and_db(&db, &read, "cave")?.as_deref(), Some(&b"dry"[..]));
/// assert_eq!(batch.get_from_batch_and_db(&db, &read, "river")?.as_deref(), Some(&b"wet"[..]));
/// db.write(&WriteOptions::new(), batch.write_batch())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WriteBatchWithIndex {
    batch: WriteBatch,
    /// A put or delete replaces the key's updates in the index; otherwise the index keeps all.
    overwrite_key: bool,
    /// Column family of calls that name none; `None` in a batch that is bound to no database.
    default_family: Option<ColumnFamily>,
    /// Key order of the default column family while `default_family` is `None`.
    default_order: Comparator,
    /// Any column family of the batch's database, once one is known.
    home: Option<ColumnFamily>,
    families: BTreeMap<u32, Arc<FamilyIndex>>,
    /// Previous index entry of each change since the first save point.
    undo: UndoLog<Undo>,
    /// True if the batch contains range deletions, which the index does not hold.
    removes_ranges: bool,
}

#[derive(Debug)]
struct Undo {
    family: u32,
    key: Arc<[u8]>,
    before: Option<Updates>,
}

/// Parameters of a batch that is bound to no database.
#[derive(Clone, Debug)]
pub struct BatchParams {
    /// Bytes to reserve for the encoding; a hint.
    pub reserved_bytes: usize,
    /// The index keeps only the result of a key's newest operations; otherwise all operations.
    pub overwrite_key: bool,
    /// Maximum bytes of the encoding (0: no limit); operations beyond it fail.
    pub max_bytes: usize,
    /// Each operation carries a checksum; see [`WriteBatch::protected`].
    pub is_protected: bool,
    /// Key order of calls that name no column family.
    pub comparator: Comparator,
}

impl Default for BatchParams {
    fn default() -> Self {
        let comparator = Comparator::Bytewise;
        Self { reserved_bytes: 0, overwrite_key: false, max_bytes: 0, is_protected: false, comparator }
    }
}

impl WriteBatchWithIndex {
    /// Creates an empty batch for `db`. With `overwrite_key` the index keeps only the result of a
    /// key's newest operations; otherwise all operations.
    pub fn new(db: &Db, overwrite_key: bool) -> Self {
        Self::with_limit(db, overwrite_key, 0)
    }

    /// Creates an empty batch for `db` of at most `max_bytes` (0: no limit); see
    /// [`new`](Self::new).
    pub fn with_limit(db: &Db, overwrite_key: bool, max_bytes: usize) -> Self {
        let (default_family, params) =
            (db.default_column_family(), BatchParams { overwrite_key, max_bytes, ..Default::default() });
        Self {
            default_family: Some(default_family.clone()),
            home: Some(default_family.clone()),
            default_order: default_family.comparator().clone(),
            ..Self::with_params(params)
        }
    }

    /// Creates an empty batch that is bound to no database. The first column family that is named
    /// binds it to that family's database; calls that name none use the default column family of
    /// the database it is read with or written to.
    pub fn with_params(params: BatchParams) -> Self {
        let batch = WriteBatch::with_capacity(params.reserved_bytes, params.max_bytes)
            .with_default_timestamp_size(params.comparator.timestamp_size());
        Self {
            batch: if params.is_protected { batch.to_protected() } else { batch },
            overwrite_key: params.overwrite_key,
            default_family: None,
            default_order: params.comparator,
            home: None,
            families: BTreeMap::new(),
            undo: UndoLog::default(),
            removes_ranges: false,
        }
    }

    /// Sets a key of the default column family.
    ///
    /// # Errors
    /// The key, the value or the batch would be too large.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::Put(value.as_ref().into()))
    }

    /// Sets a key of a column family. In a family with timestamps, here and in the other calls that
    /// write, the key has no timestamp yet: [`update_timestamps`](Self::update_timestamps) must set
    /// it before the batch is written, or the transaction does when it commits.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and if the column family is of another database.
    pub fn put_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::Put(value.as_ref().into()))
    }

    /// Removes a key of the default column family.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::Delete)
    }

    /// Removes a key of a column family.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::Delete)
    }

    /// Removes a key of the default column family that was put at most once since it was last
    /// removed.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::SingleDelete)
    }

    /// Removes a key of a column family that was put at most once since it was last removed.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::SingleDelete)
    }

    /// Adds a merge operand to a key of the default column family.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); the column family is known and has no merge operator.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::Merge(operand.as_ref().into()))
    }

    /// Adds a merge operand to a key of a column family.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf); the column family has no merge operator.
    pub fn merge_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::Merge(operand.as_ref().into()))
    }

    /// Sets a key of a column family to an entity in the encoding of the log.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf); `Corruption`: the bytes are no entity.
    pub(crate) fn put_encoded_entity_cf(
        &mut self,
        family: &ColumnFamily,
        key: &[u8],
        entity: &[u8],
    ) -> Result<()> {
        let value = entity[TransactionHooks::plain_value_of(entity)?].into();
        self.add(Some(family), key, Update::Entity { entity: entity.into(), value })
    }

    /// Adds a range deletion to the batch and not to its index. The batch can be written
    /// afterwards, but no longer read.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf). `NotSupported`: the column family has timestamps.
    pub(crate) fn delete_range_unread_cf(
        &mut self,
        family: &ColumnFamily,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        self.batch.delete_range_cf(family, begin, end)?;
        self.removes_ranges = true;
        Ok(())
    }

    /// Returns an error if the batch contains range deletions, because its index lacks them.
    fn check_readable(&self) -> Result<()> {
        match self.removes_ranges {
            false => Ok(()),
            true => Err(Error::not_supported("reading in a transaction that removes ranges")),
        }
    }

    /// Compat: always fails because RocksDB does not remove ranges in a batch with an index either.
    ///
    /// # Errors
    /// Always.
    pub fn delete_range(&mut self, _begin: impl AsRef<[u8]>, _end: impl AsRef<[u8]>) -> Result<()> {
        Err(Error::not_supported("delete_range in a write batch with an index"))
    }

    /// Adds bytes that are written to the log only.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.batch.put_log_data(data)
    }

    /// Marks the current state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    pub fn set_save_point(&mut self) {
        self.batch.set_save_point();
        self.undo.set_save_point();
    }

    /// Undoes the operations added since the last save point, and removes that save point.
    ///
    /// # Errors
    /// `NotFound` if no save point is set.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        self.batch.rollback_to_save_point()?;
        for Undo { family, key, before } in self.undo.take_back() {
            let index = self.families.get_mut(&family).expect("what was noted has an index");
            Arc::make_mut(index).restore(key, before);
        }
        Ok(())
    }

    /// Removes the last save point and keeps the operations added since.
    ///
    /// # Errors
    /// `NotFound` if no save point is set.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.batch.pop_save_point()?;
        self.undo.pop_save_point();
        Ok(())
    }

    /// Removes all operations and save points.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.families.clear();
        self.undo.clear();
        self.removes_ranges = false;
        self.home = self.default_family.clone();
    }

    /// Sets the timestamp of all keys in column families with timestamps, replacing one that is
    /// already set; see [`WriteBatch::update_timestamps`]. Reads of the batch are not affected.
    ///
    /// # Errors
    /// Those of [`WriteBatch::update_timestamps`]; no timestamp was changed.
    pub fn update_timestamps(
        &mut self,
        timestamp: impl AsRef<[u8]>,
        timestamp_size: impl Fn(u32) -> Option<usize>,
    ) -> Result<()> {
        self.batch.update_timestamps(timestamp, timestamp_size)
    }

    /// Returns a copy of the batch with this timestamp on all keys that need one.
    pub(crate) fn stamped(&self, timestamp: &[u8]) -> Result<WriteBatch> {
        let mut batch = self.batch.clone();
        let size = |index: &Arc<FamilyIndex>| index.order().timestamp_size();
        batch.update_timestamps(timestamp, |family| self.families.get(&family).map(size))?;
        Ok(batch)
    }

    /// Returns the batch, to be written.
    pub fn write_batch(&self) -> &WriteBatch {
        &self.batch
    }

    /// Returns the number of operations.
    pub fn count(&self) -> u32 {
        self.batch.count()
    }

    /// Returns true if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns the length of the encoding in bytes.
    pub fn data_size(&self) -> usize {
        self.batch.data_size()
    }

    /// Returns the column family of calls that name none, over `db`.
    fn default_of<'a>(&'a self, db: &'a Db) -> &'a ColumnFamily {
        self.default_family.as_ref().unwrap_or_else(|| db.default_column_family())
    }

    /// Refuses a column family of another database.
    pub(crate) fn check(&self, family: &ColumnFamily) -> Result<()> {
        if self.home.as_ref().is_none_or(|home| family.is_beside(home)) {
            return Ok(());
        }
        let text = format!("column family {:?} is of another database", Named(family.name()));
        Err(Error::invalid_argument(text))
    }

    /// Adds an operation; `None` stands for the default column family.
    fn add(&mut self, family: Option<&ColumnFamily>, key: &[u8], update: Update) -> Result<()> {
        let default = self.default_family.clone();
        let family = family.or(default.as_ref());
        let (id, order) = match family {
            Some(family) => (family.id(), family.comparator()),
            None => (ColumnFamilyId::DEFAULT.0, &self.default_order),
        };
        if let Some(family) = family {
            self.check(family)?;
        }
        // The orders can differ if the default column family was first used without being named.
        if let Some(index) = self.families.get(&id)
            && index.order().name() != order.name()
        {
            let (had, has) = (index.order().name(), order.name());
            let text = format!("the batch has keys of the column family in the order {had:?}, not {has:?}");
            return Err(Error::invalid_argument(text));
        }
        match (family, &update) {
            (Some(family), Update::Put(value)) => self.batch.put_cf(family, key, value)?,
            (Some(family), Update::Delete) => self.batch.delete_cf(family, key)?,
            (Some(family), Update::SingleDelete) => self.batch.single_delete_cf(family, key)?,
            (Some(family), Update::Merge(operand)) => {
                family.merge_operator()?;
                self.batch.merge_cf(family, key, operand)?;
            }
            (Some(family), Update::Entity { entity, .. }) => {
                self.batch.put_encoded_entity_cf(family, key, entity)?;
            }
            (None, Update::Entity { .. }) => unreachable!("entities come with their column family"),
            (None, Update::Put(value)) => self.batch.put(key, value)?,
            (None, Update::Delete) => self.batch.delete(key)?,
            (None, Update::SingleDelete) => self.batch.single_delete(key)?,
            (None, Update::Merge(operand)) => self.batch.merge(key, operand)?,
        }
        let new = || Arc::new(FamilyIndex::new(order));
        let index = Arc::make_mut(self.families.entry(id).or_insert_with(new));
        if let Some((key, before)) = index.add(key, update, self.overwrite_key, self.undo.is_kept()) {
            self.undo.push(Undo { family: id, key, before });
        }
        if let (None, Some(family)) = (&self.home, family) {
            self.home = Some(family.clone());
        }
        Ok(())
    }
}
