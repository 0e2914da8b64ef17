//! Write batches that can be read: what a transaction has written before anybody else sees it.
//!
//! In: operations. Out: the same as a [`WriteBatch`], and reads that see the batch over the
//! database.
//!
//! Invariants:
//! - The batch holds every operation in its order; the index says what it amounts to for each key.
//!   Both are taken back together to a save point.
//! - An operation that is refused leaves both as they were.
//! - Keys of column families with timestamps are in the index without any, and in the batch with
//!   room for one, which [`update_timestamps`](WriteBatchWithIndex::update_timestamps) fills.
//! - The index of a column family is copied before it is changed while an iterator looks at it; so
//!   an iterator shows the batch as it was when the iterator was made.

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

/// A write batch with an index, so that what it holds can be read before it is written.
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
    /// A put or delete replaces what the index had for its key; otherwise it keeps all.
    overwrite_key: bool,
    /// The column family of calls that name none; `None` in a batch that was made for no database.
    default_family: Option<ColumnFamily>,
    /// The order of that column family while it is not known.
    default_order: Comparator,
    /// One of the column families of the database it is for, once that is known.
    home: Option<ColumnFamily>,
    families: BTreeMap<u32, Arc<FamilyIndex>>,
    /// What the index had before each change.
    undo: UndoLog<Undo>,
    /// The batch removes ranges, which the index does not know.
    removes_ranges: bool,
}

#[derive(Debug)]
struct Undo {
    family: u32,
    key: Arc<[u8]>,
    before: Option<Updates>,
}

/// How a batch that is made for no database is made.
#[derive(Clone, Debug)]
pub struct BatchParams {
    /// Room for so many bytes, which is a hint.
    pub reserved_bytes: usize,
    /// The index keeps what a key's newest operations amount to; otherwise all of them.
    pub overwrite_key: bool,
    /// The batch refuses to grow over so many bytes (0: no limit).
    pub max_bytes: usize,
    /// Each operation carries a checksum; see [`WriteBatch::protected`].
    pub is_protected: bool,
    /// The order of the default column family, for calls that name no column family.
    pub comparator: Comparator,
}

impl Default for BatchParams {
    fn default() -> Self {
        let comparator = Comparator::Bytewise;
        Self { reserved_bytes: 0, overwrite_key: false, max_bytes: 0, is_protected: false, comparator }
    }
}

impl WriteBatchWithIndex {
    /// An empty batch for `db`. With `overwrite_key` the index keeps what a key's newest operations
    /// amount to; otherwise all of them.
    pub fn new(db: &Db, overwrite_key: bool) -> Self {
        Self::with_limit(db, overwrite_key, 0)
    }

    /// The same, refusing to grow over `max_bytes` (0: no limit).
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

    /// An empty batch for no database yet: it is for the one of the first column family that is
    /// named, and calls that name none are on the default column family of whatever database it is
    /// read with or written to.
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

    /// Sets a key of a column family. If that has timestamps, here and in the other calls that
    /// write, the key has none yet: [`update_timestamps`](Self::update_timestamps) has to give it
    /// one before the batch is written, or the transaction does when it commits.
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the column family is of another database.
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
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::Delete)
    }

    /// Removes a key of a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::Delete)
    }

    /// Removes a key of the default column family that was put at most once since it was last
    /// removed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::SingleDelete)
    }

    /// The same in a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::SingleDelete)
    }

    /// Adds a merge operand to a key of the default column family.
    ///
    /// # Errors
    /// As [`put`](Self::put); the column family is known and has no merge operator.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(None, key.as_ref(), Update::Merge(operand.as_ref().into()))
    }

    /// Adds a merge operand to a key of a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf); the column family has no merge operator.
    pub fn merge_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(Some(family), key.as_ref(), Update::Merge(operand.as_ref().into()))
    }

    /// Sets a key of a column family to an entity as a log has it.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf); `Corruption`: it is no entity.
    pub(crate) fn put_encoded_entity_cf(
        &mut self,
        family: &ColumnFamily,
        key: &[u8],
        entity: &[u8],
    ) -> Result<()> {
        let value = entity[TransactionHooks::plain_value_of(entity)?].into();
        self.add(Some(family), key, Update::Entity { entity: entity.into(), value })
    }

    /// Removes a range in the batch and not in its index, so that the batch can be written and not
    /// be read any more.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf). `NotSupported`: the column family has timestamps.
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

    /// Refuses to read a batch whose index does not tell all.
    fn check_readable(&self) -> Result<()> {
        match self.removes_ranges {
            false => Ok(()),
            true => Err(Error::not_supported("reading in a transaction that removes ranges")),
        }
    }

    /// Compat: as in RocksDB, ranges cannot be removed in a batch that is read.
    ///
    /// # Errors
    /// Always.
    pub fn delete_range(&mut self, _begin: impl AsRef<[u8]>, _end: impl AsRef<[u8]>) -> Result<()> {
        Err(Error::not_supported("delete_range in a write batch with an index"))
    }

    /// Adds bytes that go to the log and nowhere else.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.batch.put_log_data(data)
    }

    /// Marks the present state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    pub fn set_save_point(&mut self) {
        self.batch.set_save_point();
        self.undo.set_save_point();
    }

    /// Takes back what was added since the last save point, and that save point.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        self.batch.rollback_to_save_point()?;
        for Undo { family, key, before } in self.undo.take_back() {
            let index = self.families.get_mut(&family).expect("what was noted has an index");
            Arc::make_mut(index).restore(key, before);
        }
        Ok(())
    }

    /// Forgets the last save point and keeps what was added since.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.batch.pop_save_point()?;
        self.undo.pop_save_point();
        Ok(())
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.families.clear();
        self.undo.clear();
        self.removes_ranges = false;
        self.home = self.default_family.clone();
    }

    /// Gives all keys of column families that have timestamps this one, those too that have another
    /// already; see [`WriteBatch::update_timestamps`]. What is read from the batch stays the same.
    ///
    /// # Errors
    /// As [`WriteBatch::update_timestamps`]; nothing was changed.
    pub fn update_timestamps(
        &mut self,
        timestamp: impl AsRef<[u8]>,
        timestamp_size: impl Fn(u32) -> Option<usize>,
    ) -> Result<()> {
        self.batch.update_timestamps(timestamp, timestamp_size)
    }

    /// The batch with this timestamp on all keys that have any.
    pub(crate) fn stamped(&self, timestamp: &[u8]) -> Result<WriteBatch> {
        let mut batch = self.batch.clone();
        let size = |index: &Arc<FamilyIndex>| index.order().timestamp_size();
        batch.update_timestamps(timestamp, |family| self.families.get(&family).map(size))?;
        Ok(batch)
    }

    /// The batch, to be written.
    pub fn write_batch(&self) -> &WriteBatch {
        &self.batch
    }

    /// How many operations it holds.
    pub fn count(&self) -> u32 {
        self.batch.count()
    }

    /// Whether it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Bytes of its encoding.
    pub fn data_size(&self) -> usize {
        self.batch.data_size()
    }

    /// The column family of calls that name none, with `db` below.
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

    /// Adds an operation; without a family, on the default one.
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
        // Why this can be: the default column family was first used without being named.
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
