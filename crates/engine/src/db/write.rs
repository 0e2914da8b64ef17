//! Writes: single operations and batches. Each call has a blocking form and an asynchronous one.
//!
//! The blocking form may lead the log on the calling thread; the asynchronous one never blocks. Dropping its future before the first poll writes nothing; later, the write
//! happens whole or not at all.

use super::Db;
use crate::column_family::{ColumnFamily, Family};
use crate::error::{Error, ErrorKind, Result};
use crate::write::{Source, WriteBatch, WriteOptions};
use karst_format::write_batch::Op;
use std::sync::Arc;

impl Db {
    /// Writes a batch: all of it or nothing.
    ///
    /// # Errors
    /// The database is open for reading only or closed; the batch names a column family that is of another database or not open, or merges into one without an operator; writes
    /// are refused because of a background error; with `no_slowdown` the write would have had to wait; the log failed, and then it is not known whether the batch is found
    /// again after the database is opened anew.
    pub fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        self.check_batch(batch)?;
        self.live()?.pipeline.write(options, Source::Batch(batch))
    }

    /// The asynchronous form of [`Db::write`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn write_async(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        self.check_batch(batch)?;
        self.live()?.pipeline.write_async(options, Source::Batch(batch)).await
    }

    /// Sets `key` to `value` in the default column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&WriteOptions::default(), &self.0.default_family, key, value)
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put_cf(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::Put { cf, key: key.as_ref(), value: value.as_ref() })?;
        self.live()?.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::put`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn put_async(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_cf_async(&WriteOptions::default(), &self.0.default_family, key, value).await
    }

    /// The asynchronous form of [`Db::put_cf`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn put_cf_async(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::Put { cf, key, value })?;
        self.live()?.pipeline.write_async(options, source).await
    }

    /// Removes `key` in the default column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf(&WriteOptions::default(), &self.0.default_family, key)
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_cf(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::Delete { cf, key: key.as_ref() })?;
        self.live()?.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::delete`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn delete_async(&self, key: &[u8]) -> Result<()> {
        self.delete_cf_async(&WriteOptions::default(), &self.0.default_family, key).await
    }

    /// The asynchronous form of [`Db::delete_cf`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn delete_cf_async(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::Delete { cf, key })?;
        self.live()?.pipeline.write_async(options, source).await
    }

    /// Removes `key`, which was set at most once since it was last removed, and never merged into, in the default column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf(&WriteOptions::default(), &self.0.default_family, key)
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn single_delete_cf(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::SingleDelete { cf, key: key.as_ref() })?;
        self.live()?.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::single_delete`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn single_delete_async(&self, key: &[u8]) -> Result<()> {
        self.single_delete_cf_async(&WriteOptions::default(), &self.0.default_family, key).await
    }

    /// The asynchronous form of [`Db::single_delete_cf`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn single_delete_cf_async(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::SingleDelete { cf, key })?;
        self.live()?.pipeline.write_async(options, source).await
    }

    /// Removes the keys from `begin` up to, not including, `end` in the default column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_cf(&WriteOptions::default(), &self.0.default_family, begin, end)
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_range_cf(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::DeleteRange { cf, begin: begin.as_ref(), end: end.as_ref() })?;
        self.live()?.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::delete_range`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn delete_range_async(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        self.delete_range_cf_async(&WriteOptions::default(), &self.0.default_family, begin, end).await
    }

    /// The asynchronous form of [`Db::delete_range_cf`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn delete_range_cf_async(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        let source = Source::one(Op::DeleteRange { cf, begin, end })?;
        self.live()?.pipeline.write_async(options, source).await
    }

    /// Merges `operand` into `key` in the default column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_cf(&WriteOptions::default(), &self.0.default_family, key, operand)
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn merge_cf(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        self.check_merge(family)?;
        let source = Source::one(Op::Merge { cf, key: key.as_ref(), operand: operand.as_ref() })?;
        self.live()?.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::merge`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn merge_async(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.merge_cf_async(&WriteOptions::default(), &self.0.default_family, key, operand).await
    }

    /// The asynchronous form of [`Db::merge_cf`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn merge_cf_async(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let cf = self.writable_family(family)?.id();
        self.check_merge(family)?;
        let source = Source::one(Op::Merge { cf, key, operand })?;
        self.live()?.pipeline.write_async(options, source).await
    }

    /// Has what was written so far leave the process, where `manual_wal_flush` keeps it, and with `sync` reach the device. Blocks.
    ///
    /// # Errors
    /// The database is open for reading only, or the log failed, now or before.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        karst_io::block_on(self.env(), self.flush_wal_async(sync))
    }

    /// The asynchronous form of [`Db::flush_wal`].
    ///
    /// # Errors
    /// As [`Db::flush_wal`].
    pub async fn flush_wal_async(&self, sync: bool) -> Result<()> {
        self.live()?.pipeline.flush_wal(sync).await
    }

    /// A column family of this database that takes writes.
    #[inline]
    fn writable_family<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        let family = self.family(family)?;
        if family.is_dropped() { Err(dropped(family)) } else { Ok(family) }
    }

    fn check_merge(&self, family: &ColumnFamily) -> Result<()> {
        family.0.config.merge_operator().map(|_| ())
    }

    fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        if batch.database().is_some_and(|database| database != self.0.database) {
            return Err(Error::invalid_argument("the batch names column families of another database"));
        }
        for id in batch.merged() {
            if let Some(family) = self.0.opened.families.get(*id) {
                family.config.merge_operator()?;
            }
        }
        Ok(())
    }
}

#[cold]
fn dropped(family: &Family) -> Error {
    let text = format!("column family {:?} was dropped", family.config.name);
    Error::new(ErrorKind::InvalidArgument, text)
}
