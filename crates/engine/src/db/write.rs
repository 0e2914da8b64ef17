//! Calls that write.
//!
//! In: operations and batches. Out: writes for the commit pipeline. Every call comes in three
//! forms: plain, with options, in a column family; and each of them blocking or asynchronous. The
//! blocking form may lead the log on the calling thread; the asynchronous one never blocks. A
//! refused call has written nothing.

use super::Db;
use crate::write_half::WriteHalf;
use karst_base::error::{Error, Named, Result, check_range};
use karst_commit::{Source, WriteBatch, WriteFuture, WriteOptions, timestamp_required};
use karst_format::write_batch::Op;
use karst_io::block_on;
use karst_storage::column_family::{ColumnFamily, Family};
use std::future::Future;

impl Db {
    /// Returns the source of a write of one operation on `family`.
    fn one<'a>(&self, family: &ColumnFamily, op: Op<'a>) -> Result<(&WriteHalf, Source<'a>)> {
        let write = self.writable(family)?;
        if family.0.config.comparator.timestamp_size() > 0 {
            return timestamp_required(family.name());
        }
        if matches!(op, Op::Merge { .. }) {
            check_operator(&family.0)?;
        }
        if let Op::DeleteRange { begin, end, .. } = op {
            check_range(&family.0.config.comparator, begin, end)?;
        }
        Ok((write, Source::one(op)?))
    }

    /// Writes one operation. Not generic, unlike the calls below, so that the commit pipeline is
    /// compiled here and not again in each crate that calls them.
    fn write_one(&self, options: &WriteOptions, family: &ColumnFamily, op: Op<'_>) -> Result<()> {
        let (write, source) = self.one(family, op)?;
        write.pipeline.write(options, source)
    }

    /// Returns the half that writes, if the column family is open and belongs to this database.
    pub(super) fn writable(&self, family: &ColumnFamily) -> Result<&WriteHalf> {
        let write = self.write_half()?;
        if family.0.database != self.0.database {
            return Err(super::foreign(family));
        }
        if family.0.is_dropped() {
            let text = format!("column family {:?} was dropped", Named(family.name()));
            return Err(Error::invalid_argument(text));
        }
        Ok(write)
    }

    pub(super) fn batch_source<'a>(&self, batch: &'a WriteBatch) -> Result<(&WriteHalf, Source<'a>)> {
        let write = self.write_half()?;
        batch.check_timestamps(&self.0.default_family, |family| self.0.read.families.get(family))?;
        self.check_batch(batch)?;
        Ok((write, Source::Batch(batch)))
    }

    /// Returns the half that writes, if a batch can be prepared: its timestamps may come with its
    /// commit.
    pub(super) fn preparing(&self, batch: &WriteBatch) -> Result<&WriteHalf> {
        let write = self.write_half()?;
        let family = |family| self.0.read.families.get(family);
        batch.check_timestamps_to_come(&self.0.default_family, family)?;
        self.check_batch(batch)?;
        Ok(write)
    }

    /// Refuses a batch that cannot be written, regardless of its timestamps.
    fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        if batch.database().is_some_and(|database| database != self.0.database) {
            return Err(Error::invalid_argument(
                "the write batch has operations on column families of another database",
            ));
        }
        for family in batch.merged() {
            // A family that is not open is no error here, because the write options decide whether
            // it may be missing.
            if let Some(family) = self.0.read.families.get(*family) {
                check_operator(&family)?;
            }
        }
        for (family, begin, end) in batch.removed_ranges() {
            if let Some(family) = self.0.read.families.get(family) {
                check_range(&family.config.comparator, begin, end)?;
            }
        }
        Ok(())
    }
}

fn check_operator(family: &Family) -> Result<()> {
    family.config.merge_operator().map(|_| ())
}

/// Generates all forms of a call that writes one operation.
macro_rules! calls {
    ($($(#[$doc:meta])* $plain:ident $opt:ident $cf:ident $plain_async:ident $opt_async:ident $cf_async:ident ($($arg:ident: $Key:ident),*) = $op:expr;)*) => {
        impl Db {
            $(
                $(#[$doc])*
                ///
                /// In the default column family. Blocks the calling thread until the write is
                /// visible, and logged unless the options disable that.
                ///
                /// # Errors
                /// No entry was written if a key or value exceeds its limit, the database is open
                /// for reading only or closed, writes are refused because of a background error,
                /// the keys of the column family need timestamps, or the arguments are invalid.
                /// After an `Io` error of the log itself, the write may or may not be found when
                /// the database is reopened.
                pub fn $plain(&self, $($arg: impl AsRef<[u8]>),*) -> Result<()> {
                    self.$cf(&WriteOptions::default(), &self.0.default_family, $($arg),*)
                }

                /// With options, in the default column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($plain), "`], and those of the options; see [`WriteOptions`].")]
                pub fn $opt(&self, options: &WriteOptions, $($arg: impl AsRef<[u8]>),*) -> Result<()> {
                    self.$cf(options, &self.0.default_family, $($arg),*)
                }

                /// With options, in a column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($opt), "`], and an error if the column family was dropped or is of another database.")]
                pub fn $cf(&self, options: &WriteOptions, family: &ColumnFamily, $($arg: impl AsRef<[u8]>),*) -> Result<()> {
                    self.write_one(options, family, ($op)(family.0.id(), $($arg.as_ref()),*))
                }

                #[doc = concat!("The asynchronous form of [`Db::", stringify!($plain), "`]. Dropping it before its first poll writes nothing; after that the write happens whole or not at all.")]
                pub fn $plain_async<'a, $($Key: AsRef<[u8]> + ?Sized),*>(
                    &'a self,
                    $($arg: &'a $Key),*
                ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a, $($Key),*> {
                    self.$cf_async(&WriteOptions::default(), &self.0.default_family, $($arg),*)
                }

                #[doc = concat!("The asynchronous form of [`Db::", stringify!($opt), "`].")]
                pub fn $opt_async<'a, $($Key: AsRef<[u8]> + ?Sized),*>(
                    &'a self,
                    options: &WriteOptions,
                    $($arg: &'a $Key),*
                ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a, $($Key),*> {
                    self.$cf_async(options, &self.0.default_family, $($arg),*)
                }

                #[doc = concat!("The asynchronous form of [`Db::", stringify!($cf), "`].")]
                pub fn $cf_async<'a, $($Key: AsRef<[u8]> + ?Sized),*>(
                    &'a self,
                    options: &WriteOptions,
                    family: &ColumnFamily,
                    $($arg: &'a $Key),*
                ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a, $($Key),*> {
                    let source = self.one(family, ($op)(family.0.id(), $($arg.as_ref()),*));
                    WriteFuture::new(source.map(|(write, source)| write.pipeline.write_async(options, source)))
                }
            )*
        }
    };
}

calls! {
    /// Sets `key` to `value`.
    put put_opt put_cf put_async put_opt_async put_cf_async (key: K, value: V) = |cf, key, value| Op::Put { cf, key, value };
    /// Removes `key`. Succeeds if the key does not exist.
    delete delete_opt delete_cf delete_async delete_opt_async delete_cf_async (key: K) = |cf, key| Op::Delete { cf, key };
    /// Removes `key`, which must have been put at most once since its last removal, and never
    /// merged. Cheaper than a delete, because it vanishes together with that put.
    single_delete single_delete_opt single_delete_cf single_delete_async single_delete_opt_async single_delete_cf_async (key: K) = |cf, key| Op::SingleDelete { cf, key };
    /// Adds a merge operand to `key`. The column family needs a merge operator.
    merge merge_opt merge_cf merge_async merge_opt_async merge_cf_async (key: K, operand: V) = |cf, key, operand| Op::Merge { cf, key, operand };
    /// Removes all keys from `begin` up to, not including, `end`; none if they are equal. An `end`
    /// before `begin` is refused as `InvalidArgument`, here and in a batch.
    delete_range delete_range_opt delete_range_cf delete_range_async delete_range_opt_async delete_range_cf_async (begin: B, end: E) = |cf, begin, end| Op::DeleteRange { cf, begin, end };
}

impl Db {
    /// Writes a batch atomically; readers see all of it or nothing. The batch is unchanged and may
    /// be written again.
    ///
    /// # Errors
    /// Those of [`Db::put_opt`]; a column family in it was dropped or belongs to another database;
    /// a merge in a column family without an operator; a range that ends before it begins. In
    /// column families with timestamps, `InvalidArgument`: a key has none, or none yet
    /// ([`WriteBatch::update_timestamps`]); `NotSupported`: a range is removed.
    pub fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        let (write, source) = self.batch_source(batch)?;
        write.pipeline.write(options, source)
    }

    /// The asynchronous form of [`Db::write`]. Dropping it before its first poll writes nothing;
    /// after that the batch is written completely or not at all. It blocks no thread: the log is
    /// written by a thread that may block or, on a reactor that [carries
    /// writes](crate::io::ReactorBuilder::carries_writes), on the thread's own ring; a short write
    /// without a sync is then one call to the operating system on that thread.
    pub fn write_async<'a>(
        &'a self,
        options: &WriteOptions,
        batch: &'a WriteBatch,
    ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a> {
        let source = self.batch_source(batch);
        WriteFuture::new(source.map(|(write, source)| write.pipeline.write_async(options, source)))
    }

    /// Flushes the records that gathered under `manual_wal_flush` to the operating system, and with
    /// `sync` everything in the logs to the device.
    ///
    /// After a failure of the log that was overcome (`Db::resume`), the guarantee covers earlier
    /// acknowledged writes too, because they are then in tables on the device, though they may
    /// never have reached the log.
    ///
    /// # Errors
    /// The log fails or has failed, or the database is open for reading only.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        block_on(self.env(), self.flush_wal_async(sync))
    }

    /// The asynchronous form of [`Db::flush_wal`].
    ///
    /// # Errors
    /// Those of [`Db::flush_wal`].
    pub async fn flush_wal_async(&self, sync: bool) -> Result<()> {
        self.write_half()?.pipeline.flush_wal(sync).await
    }

    /// Makes all that is in the logs durable: [`Db::flush_wal`] with `sync`.
    ///
    /// # Errors
    /// Those of [`Db::flush_wal`].
    pub fn sync_wal(&self) -> Result<()> {
        self.flush_wal(true)
    }

    /// The asynchronous form of [`Db::sync_wal`].
    ///
    /// # Errors
    /// Those of [`Db::flush_wal`].
    pub async fn sync_wal_async(&self) -> Result<()> {
        self.flush_wal_async(true).await
    }
}
