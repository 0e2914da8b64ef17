//! Point reads of a batch, and of a batch over its database.
//!
//! The batch's entry for a key takes precedence; the database is read only for keys without an
//! entry, or with merge operands alone. Snapshots in the options apply to the database only.

use super::WriteBatchWithIndex;
use super::index::{Amount, amount, merged};
use karst_engine::caller::{Caller, finish};
use karst_engine::format::ColumnFamilyId;
use karst_engine::{ColumnFamily, Db, Error, Named, ReadOptions, Result, Value};
use std::sync::Arc;

/// State of a key in a batch.
#[derive(Clone, Debug)]
pub enum InBatch {
    /// The batch has no operation on the key.
    Absent,
    /// The key is removed.
    Deleted,
    /// The key is set to this value.
    Value(Value),
    /// These merge operands, oldest first, apply to the database's value.
    Operands(Vec<Arc<[u8]>>),
}

/// Column families of the keys of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Families<'a> {
    One(&'a ColumnFamily),
    /// One column family for each key.
    OfEach(&'a [&'a ColumnFamily]),
}

impl<'a> Families<'a> {
    /// Pairs each key with its family.
    fn with<K: AsRef<[u8]>>(self, keys: &'a [K]) -> Vec<(&'a ColumnFamily, &'a [u8])> {
        match self {
            Families::One(family) => keys.iter().map(|key| (family, key.as_ref())).collect(),
            Families::OfEach(families) => {
                assert_eq!(families.len(), keys.len(), "each key has a column family");
                families.iter().copied().zip(keys.iter().map(AsRef::as_ref)).collect()
            }
        }
    }
}

/// Refuses a read without the timestamp that it needs, or with one of the wrong length.
///
/// Checked here too because keys that the batch holds never reach the database.
fn check_timestamp(options: &ReadOptions, family: &ColumnFamily) -> Result<()> {
    let (size, name) = (family.comparator().timestamp_size(), Named(family.name()));
    let text = match options.timestamp.as_ref().map(Vec::len) {
        given if given.unwrap_or(0) == size && given.is_some() == (size > 0) => return Ok(()),
        None => format!("column family {name:?} has timestamps, and is read at one (ReadOptions::timestamp)"),
        Some(_) if size == 0 => format!("column family {name:?} has no timestamps to read at"),
        Some(given) => {
            format!("a timestamp of {given} bytes; those of column family {name:?} have {size}")
        }
    };
    Err(Error::invalid_argument(text))
}

impl WriteBatchWithIndex {
    /// Returns the state of a key of the default column family in the batch alone.
    ///
    /// # Errors
    /// The merge operator failed, or operands need merging and the batch is bound to no database.
    pub fn get_from_batch(&self, key: impl AsRef<[u8]>) -> Result<InBatch> {
        match &self.default_family {
            Some(family) => self.get_from_batch_cf(family, key),
            None => self.said(None, ColumnFamilyId::DEFAULT.0, key.as_ref()),
        }
    }

    /// Returns the state of a key of a column family in the batch alone.
    ///
    /// # Errors
    /// Those of [`get_from_batch`](Self::get_from_batch), and if the column family is of another
    /// database.
    pub fn get_from_batch_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<InBatch> {
        self.check(family)?;
        self.said(Some(family), family.id(), key.as_ref())
    }

    fn said(&self, family: Option<&ColumnFamily>, id: u32, key: &[u8]) -> Result<InBatch> {
        self.check_readable()?;
        let Some(updates) = self.families.get(&id).and_then(|index| index.get(key)) else {
            return Ok(InBatch::Absent);
        };
        Ok(match amount(family, key, updates)? {
            Amount::Value(value) => InBatch::Value(value.into()),
            Amount::Deleted => InBatch::Deleted,
            Amount::Operands(operands) => InBatch::Operands(operands),
        })
    }

    /// Returns the value of a key of the default column family as if the batch had been written.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`], and if the merge operator failed.
    pub fn get_from_batch_and_db(
        &self,
        db: &Db,
        options: &ReadOptions,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.get_from_batch_and_db_cf(db, options, self.default_of(db), key)
    }

    /// The asynchronous form of [`get_from_batch_and_db`](Self::get_from_batch_and_db).
    ///
    /// # Errors
    /// Those of the blocking form.
    pub async fn get_from_batch_and_db_async(
        &self,
        db: &Db,
        options: &ReadOptions,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.get_by(Caller::Task, db, options, self.default_of(db), key).await
    }

    /// Returns the value of a key of a column family as if the batch had been written.
    ///
    /// # Errors
    /// Those of [`get_from_batch_and_db`](Self::get_from_batch_and_db), and if the column family is
    /// of another database.
    pub fn get_from_batch_and_db_cf(
        &self,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        finish(self.get_by(Caller::Thread, db, options, family, key.as_ref()))
    }

    /// The asynchronous form of [`get_from_batch_and_db_cf`](Self::get_from_batch_and_db_cf).
    ///
    /// # Errors
    /// Those of the blocking form.
    pub async fn get_from_batch_and_db_cf_async(
        &self,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.get_by(Caller::Task, db, options, family, key).await
    }

    pub(crate) async fn get_by(
        &self,
        by: Caller,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<Value>> {
        db.check_open()?;
        check_timestamp(options, family)?;
        let operands = match self.get_from_batch_cf(family, key)? {
            InBatch::Value(value) => return Ok(Some(value)),
            InBatch::Deleted => return Ok(None),
            InBatch::Absent => Vec::new(),
            InBatch::Operands(operands) => operands,
        };
        let existing = match by {
            Caller::Thread => db.get_cf(options, family, key)?,
            Caller::Task => db.get_cf_async(options, family, key).await?,
        };
        match operands.is_empty() {
            true => Ok(existing),
            false => merged(family, key, existing, &operands).map(Some),
        }
    }

    /// Returns the values of `keys` of the default column family, in the order of the keys, as if
    /// the batch had been written. Keys that need the database are read in one `multi_get`.
    pub fn multi_get_from_batch_and_db<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.multi_get_from_batch_and_db_cf(db, options, self.default_of(db), keys)
    }

    /// The asynchronous form of [`multi_get_from_batch_and_db`](Self::multi_get_from_batch_and_db).
    pub async fn multi_get_from_batch_and_db_async<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.multi_get_from_batch_and_db_cf_async(db, options, self.default_of(db), keys).await
    }

    /// Returns the values of `keys` of a column family; see
    /// [`multi_get_from_batch_and_db`](Self::multi_get_from_batch_and_db).
    pub fn multi_get_from_batch_and_db_cf<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        finish(self.multi_get_by(Caller::Thread, db, options, Families::One(family), keys))
    }

    /// The asynchronous form of
    /// [`multi_get_from_batch_and_db_cf`](Self::multi_get_from_batch_and_db_cf).
    pub async fn multi_get_from_batch_and_db_cf_async<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.multi_get_by(Caller::Task, db, options, Families::One(family), keys).await
    }

    /// Returns the values of `keys`, each in its own column family, as if the batch had been
    /// written. All keys that need the database are read at one sequence number.
    ///
    /// # Panics
    /// When there are not as many column families as keys.
    pub fn multi_get_from_batch_and_db_cfs<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        finish(self.multi_get_by(Caller::Thread, db, options, Families::OfEach(families), keys))
    }

    /// The asynchronous form of
    /// [`multi_get_from_batch_and_db_cfs`](Self::multi_get_from_batch_and_db_cfs).
    ///
    /// # Panics
    /// When there are not as many column families as keys.
    pub async fn multi_get_from_batch_and_db_cfs_async<K: AsRef<[u8]> + Sync>(
        &self,
        db: &Db,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.multi_get_by(Caller::Task, db, options, Families::OfEach(families), keys).await
    }

    pub(crate) async fn multi_get_by<K: AsRef<[u8]> + Sync>(
        &self,
        by: Caller,
        db: &Db,
        options: &ReadOptions,
        families: Families<'_>,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        let keys = families.with(keys);
        if let Err(closed) = db.check_open() {
            return keys.iter().map(|_| Err(closed.clone())).collect();
        }
        let said: Vec<_> = keys
            .iter()
            .map(|(family, key)| {
                check_timestamp(options, family).and_then(|()| self.get_from_batch_cf(family, key))
            })
            .collect();
        let is_open = |said: &Result<InBatch>| matches!(said, Ok(InBatch::Absent | InBatch::Operands(_)));
        let (of_open, open): (Vec<&ColumnFamily>, Vec<&[u8]>) =
            keys.iter().zip(&said).filter(|(_, said)| is_open(said)).map(|(key, _)| *key).unzip();
        let read = match (by, families) {
            _ if open.is_empty() => Vec::new(),
            (Caller::Thread, Families::One(family)) => db.multi_get_cf(options, family, &open),
            (Caller::Thread, Families::OfEach(_)) => db.multi_get_cfs(options, &of_open, &open),
            (Caller::Task, Families::One(family)) => db.multi_get_cf_async(options, family, &open).await,
            (Caller::Task, Families::OfEach(_)) => db.multi_get_cfs_async(options, &of_open, &open).await,
        };
        let mut read = read.into_iter();
        let mut next = || read.next().expect("there is an answer for each key");
        keys.iter()
            .zip(said)
            .map(|((family, key), said)| match said? {
                InBatch::Value(value) => Ok(Some(value)),
                InBatch::Deleted => Ok(None),
                InBatch::Absent => next(),
                InBatch::Operands(operands) => merged(family, key, next()?, &operands).map(Some),
            })
            .collect()
    }
}
