//! Estimates about keys that read no values: the size of a range, and whether a key may exist.

use super::Db;
use super::timestamps::stored;
use crate::read::sizes::{self, KeyRange, SizeApproximationOptions};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::{ReadOptions, ReadTier};
use karst_storage::column_family::ColumnFamily;
use karst_storage::value::Value;

impl Db {
    /// Returns the approximate bytes of table files that each range of the default column family
    /// takes: the keys from the first, up to but not including the second. Reads indexes that are
    /// not in memory, and waits for them on the calling thread.
    ///
    /// # Errors
    /// An index could not be read, or is damaged.
    pub fn approximate_sizes(&self, ranges: &[KeyRange<'_>]) -> Result<Vec<u64>> {
        self.approximate_sizes_cf(&SizeApproximationOptions::default(), &self.0.default_family, ranges)
    }

    /// Returns the approximate bytes of each range of any column family, in the parts (tables,
    /// memtables) that `options` include.
    ///
    /// # Errors
    /// Those of [`Db::approximate_sizes`]; the column family belongs to another database.
    /// `InvalidArgument`: the options include nothing.
    pub fn approximate_sizes_cf(
        &self,
        options: &SizeApproximationOptions,
        family: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<Vec<u64>> {
        karst_io::block_on(self.env(), self.approximate_sizes_cf_async(options, family, ranges))
    }

    /// The asynchronous form of [`Db::approximate_sizes_cf`].
    ///
    /// # Errors
    /// Those of [`Db::approximate_sizes_cf`].
    pub async fn approximate_sizes_cf_async(
        &self,
        options: &SizeApproximationOptions,
        family: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<Vec<u64>> {
        let SizeApproximationOptions { include_memtables, include_files, include_blob_files, .. } = *options;
        if !include_memtables && !include_files && !include_blob_files {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "neither memtables nor files are included in the size",
            ));
        }
        let family = self.family(family)?;
        let owned: Vec<_> =
            ranges.iter().map(|(from, to)| (stored(family, from), stored(family, to))).collect();
        let ranges: Vec<KeyRange<'_>> = owned.iter().map(|(from, to)| (&**from, &**to)).collect();
        sizes::approximate_sizes(&family.tables, &family.superversion(), options, &ranges).await
    }

    /// Returns the approximate number of entries, including older versions, and of bytes that the
    /// memtables of a column family hold for a range of keys. Reads no file.
    ///
    /// # Errors
    /// The column family belongs to another database.
    pub fn approximate_memtable_stats_cf(
        &self,
        family: &ColumnFamily,
        (start, end): KeyRange<'_>,
    ) -> Result<(u64, u64)> {
        let family = self.family(family)?;
        let (start, end) = (&*stored(family, start), &*stored(family, end));
        let superversion = family.superversion();
        let each = superversion.memtables().map(|memtable| memtable.estimate_between(start, end));
        Ok(each.fold((0, 0), |(entries, bytes), of| (entries + of.0, bytes + of.1)))
    }

    /// Returns false if memory shows that `key` is not in the default column family, true if it may
    /// be. Never reads from storage.
    ///
    /// # Errors
    /// Those of [`Db::get`], for data in memory: it is damaged, or merge operands cannot be merged.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.key_may_exist_cf(&self.0.default_read, &self.0.default_family, key)?.0)
    }

    /// Returns for a key of any column family whether it may exist, and its value if that is in
    /// memory.
    ///
    /// # Errors
    /// Those of [`Db::key_may_exist`]; the column family or the snapshot belongs to another
    /// database.
    pub fn key_may_exist_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<(bool, Option<Value>)> {
        self.key_may_exist_bytes(options, family, key.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn key_may_exist_bytes(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<(bool, Option<Value>)> {
        let options = ReadOptions { read_tier: ReadTier::BlockCache, ..options.clone() };
        match self.get_cf(&options, family, key) {
            Ok(value) => Ok((value.is_some(), value)),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok((true, None)),
            Err(error) => Err(error),
        }
    }
}
