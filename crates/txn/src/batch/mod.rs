//! Write batches that can be read: what a transaction has written before anybody else sees it.
//!
//! In: operations. Out: the same as a [`WriteBatch`], and reads that see the batch over the
//! database.
//!
//! Invariants:
//! - The batch holds every operation in its order; the index says what it amounts to for each key.
//!   Both are taken back together to a save point.
//! - An operation that is refused leaves both as they were.
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
use karst_engine::{ColumnFamily, Db, Error, Named, Result, WriteBatch};
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
    default_family: ColumnFamily,
    families: BTreeMap<u32, Arc<FamilyIndex>>,
    /// What the index had before each change.
    undo: UndoLog<Undo>,
}

#[derive(Debug)]
struct Undo {
    family: u32,
    key: Arc<[u8]>,
    before: Option<Updates>,
}

impl WriteBatchWithIndex {
    /// An empty batch for `db`. With `overwrite_key` the index keeps what a key's newest operations
    /// amount to; otherwise all of them.
    pub fn new(db: &Db, overwrite_key: bool) -> Self {
        Self::with_limit(db, overwrite_key, 0)
    }

    /// The same, refusing to grow over `max_bytes` (0: no limit).
    pub fn with_limit(db: &Db, overwrite_key: bool, max_bytes: usize) -> Self {
        Self {
            batch: WriteBatch::with_capacity(0, max_bytes),
            overwrite_key,
            default_family: db.default_column_family().clone(),
            families: BTreeMap::new(),
            undo: UndoLog::default(),
        }
    }

    /// Sets a key of the default column family.
    ///
    /// # Errors
    /// The key, the value or the batch would be too large.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&self.default_family.clone(), key, value)
    }

    /// Sets a key of a column family.
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the column family is of another database.
    pub fn put_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check(family)?;
        self.batch.put_cf(family, key, value)?;
        self.note(family, key, Update::Put(value.into()));
        Ok(())
    }

    /// Removes a key of the default column family.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf(&self.default_family.clone(), key)
    }

    /// Removes a key of a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.check(family)?;
        self.batch.delete_cf(family, key.as_ref())?;
        self.note(family, key.as_ref(), Update::Delete);
        Ok(())
    }

    /// Removes a key of the default column family that was put at most once since it was last
    /// removed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf(&self.default_family.clone(), key)
    }

    /// The same in a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.check(family)?;
        self.batch.single_delete_cf(family, key.as_ref())?;
        self.note(family, key.as_ref(), Update::SingleDelete);
        Ok(())
    }

    /// Adds a merge operand to a key of the default column family.
    ///
    /// # Errors
    /// As [`put`](Self::put); the column family has no merge operator.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_cf(&self.default_family.clone(), key, operand)
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
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.check(family)?;
        family.merge_operator()?;
        self.batch.merge_cf(family, key, operand)?;
        self.note(family, key, Update::Merge(operand.into()));
        Ok(())
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

    /// The column family of calls that name none.
    pub(crate) fn default_family(&self) -> &ColumnFamily {
        &self.default_family
    }

    /// Refuses a column family of another database.
    pub(crate) fn check(&self, family: &ColumnFamily) -> Result<()> {
        if family.is_beside(&self.default_family) {
            return Ok(());
        }
        let text = format!("column family {:?} is of another database", Named(family.name()));
        Err(Error::invalid_argument(text))
    }

    fn note(&mut self, family: &ColumnFamily, key: &[u8], update: Update) {
        let new = || Arc::new(FamilyIndex::new(family));
        let index = Arc::make_mut(self.families.entry(family.id()).or_insert_with(new));
        if let Some((key, before)) = index.add(key, update, self.overwrite_key, self.undo.is_kept()) {
            self.undo.push(Undo { family: family.id(), key, before });
        }
    }
}
