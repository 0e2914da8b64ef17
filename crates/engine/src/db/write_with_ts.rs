//! Calls that write one key at a timestamp, in column families whose comparator has timestamps.
//!
//! In: operations, each with a timestamp of the column family's timestamp size. Out: batches of one
//! operation for the commit pipeline. The forms are those of the calls without timestamps, except
//! the one with options in the default column family.

use super::{Db, TransactionHooks};
use crate::write_half::WriteHalf;
use karst_base::error::{Error, Named, Result};
use karst_commit::{Source, WriteBatch, WriteFuture, WriteOptions};
use karst_storage::column_family::ColumnFamily;
use std::future::Future;

impl Db {
    /// Returns the source of a write of one operation with a timestamp.
    fn one_with_ts(
        &self,
        family: &ColumnFamily,
        add: impl FnOnce(&mut WriteBatch) -> Result<()>,
    ) -> Result<(&WriteHalf, Source<'static>)> {
        let write = self.writable(family)?;
        let mut batch = WriteBatch::new();
        add(&mut batch)?;
        Ok((write, Source::Owned(Box::new(batch))))
    }

    /// Not generic, for the reason that [`Db::write_one`] states.
    fn write_with_ts(&self, options: &WriteOptions, found: Result<(&WriteHalf, Source<'_>)>) -> Result<()> {
        let (write, source) = found?;
        write.pipeline.write(options, source)
    }
}

impl TransactionHooks<'_> {
    /// Refuses a batch that writes to column families whose keys have timestamps.
    ///
    /// # Errors
    /// `NotSupported`: it does.
    pub fn check_no_timestamps(self, batch: &WriteBatch) -> Result<()> {
        self.0.check_open()?;
        for id in batch.families() {
            if let Some(family) = self.0.0.read.families.get(*id)
                && family.config.comparator.timestamp_size() > 0
            {
                let name = Named(&family.config.name);
                let text = format!("transactions in column family {name:?}, whose keys have timestamps");
                return Err(Error::not_supported(text));
            }
        }
        Ok(())
    }
}

/// Generates all forms of a call that writes one key at a timestamp.
macro_rules! calls_with_ts {
    ($($(#[$doc:meta])* $plain:ident $cf:ident $plain_async:ident $cf_async:ident ($($value:ident: $Value:ident)?);)*) => {
        impl Db {
            $(
                $(#[$doc])*
                ///
                /// In the default column family. Blocks the calling thread until the write is
                /// visible, and in the log.
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::put`]. `InvalidArgument`: the column family has no timestamps, or `ts` has another length than its timestamps.")]
                pub fn $plain(&self, key: impl AsRef<[u8]>, ts: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.$cf(&WriteOptions::default(), &self.0.default_family, key, ts $(, $value)?)
                }

                /// With options, in a column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($plain), "`] and of [`Db::put_cf`].")]
                pub fn $cf(&self, options: &WriteOptions, family: &ColumnFamily, key: impl AsRef<[u8]>, ts: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    let found = self.one_with_ts(family, |batch| batch.$cf(family, key.as_ref(), ts.as_ref() $(, $value.as_ref())?));
                    self.write_with_ts(options, found)
                }

                #[doc = concat!("The asynchronous form of [`Db::", stringify!($plain), "`]. Dropping it before its first poll writes nothing; after that the write happens whole or not at all.")]
                pub fn $plain_async<'a, K: AsRef<[u8]> + ?Sized, T: AsRef<[u8]> + ?Sized $(, $Value: AsRef<[u8]> + ?Sized)?>(
                    &'a self,
                    key: &'a K,
                    ts: &'a T,
                    $($value: &'a $Value)?
                ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a, K, T $(, $Value)?> {
                    self.$cf_async(&WriteOptions::default(), &self.0.default_family, key, ts $(, $value)?)
                }

                #[doc = concat!("The asynchronous form of [`Db::", stringify!($cf), "`].")]
                pub fn $cf_async<'a, K: AsRef<[u8]> + ?Sized, T: AsRef<[u8]> + ?Sized $(, $Value: AsRef<[u8]> + ?Sized)?>(
                    &'a self,
                    options: &WriteOptions,
                    family: &ColumnFamily,
                    key: &'a K,
                    ts: &'a T,
                    $($value: &'a $Value)?
                ) -> impl Future<Output = Result<()>> + Send + Unpin + use<'a, K, T $(, $Value)?> {
                    let source = self.one_with_ts(family, |batch| batch.$cf(family, key, ts $(, $value)?));
                    WriteFuture::new(source.map(|(write, source)| write.pipeline.write_async(options, source)))
                }
            )*
        }
    };
}

calls_with_ts! {
    /// Sets `key` to `value` as of the timestamp `ts`.
    put_with_ts put_cf_with_ts put_with_ts_async put_cf_with_ts_async (value: V);
    /// Removes `key` as of the timestamp `ts`: readers at an earlier one still find it. Succeeds if
    /// the key does not exist.
    delete_with_ts delete_cf_with_ts delete_with_ts_async delete_cf_with_ts_async ();
    /// Removes a key as of `ts`; it must have been put at most once since its last removal, and
    /// never merged.
    single_delete_with_ts single_delete_cf_with_ts single_delete_with_ts_async single_delete_cf_with_ts_async ();
}
