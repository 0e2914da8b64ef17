//! What can be said about keys without reading their values: how large a range is, and whether a
//! key may exist.

use super::Db;
use super::timestamps::stored;
use crate::read::sizes::{self, KeyRange, SizeApproximationOptions};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::{ReadOptions, ReadTier};
use karst_storage::column_family::ColumnFamily;
use karst_storage::value::Value;

impl Db {
    /// About how many bytes of table files each range of the default column family takes: the keys
    /// from the first on and before the second. Reads indexes that are not in memory, and waits for
    /// them on the calling thread.
    ///
    /// # Errors
    /// An index could not be read, or is damaged.
    pub fn approximate_sizes(&self, ranges: &[KeyRange<'_>]) -> Result<Vec<u64>> {
        self.approximate_sizes_cf(&SizeApproximationOptions::default(), &self.0.default_family, ranges)
    }

    /// The same of any column family, and of what `options` say.
    ///
    /// # Errors
    /// As [`Db::approximate_sizes`], and if the column family is of another database.
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
    /// As [`Db::approximate_sizes_cf`].
    pub async fn approximate_sizes_cf_async(
        &self,
        options: &SizeApproximationOptions,
        family: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<Vec<u64>> {
        let SizeApproximationOptions { include_memtables, include_files, include_blob_files, .. } = *options;
        if !include_memtables && !include_files && !include_blob_files {
            return Err(Error::new(ErrorKind::InvalidArgument, "sizes of nothing were asked for"));
        }
        let family = self.family(family)?;
        let owned: Vec<_> =
            ranges.iter().map(|(from, to)| (stored(family, from), stored(family, to))).collect();
        let ranges: Vec<KeyRange<'_>> = owned.iter().map(|(from, to)| (&**from, &**to)).collect();
        sizes::approximate_sizes(&family.tables, &family.superversion(), options, &ranges).await
    }

    /// About how many entries the memtables of a column family have for the keys of a range, older
    /// versions too, and how many bytes they take. Reads nothing.
    ///
    /// # Errors
    /// The column family is of another database.
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

    /// Whether `key` may be in the default column family, as far as memory tells: no is certain,
    /// yes is not. Never reads from storage.
    ///
    /// # Errors
    /// As [`Db::get`], of what is in memory: it is damaged, or merge operands cannot be merged.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.key_may_exist_cf(&self.0.default_read, &self.0.default_family, key)?.0)
    }

    /// The same of any column family, and the value if it is in memory.
    ///
    /// # Errors
    /// As [`Db::key_may_exist`], and if the column family or the snapshot is of another database.
    pub fn key_may_exist_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<(bool, Option<Value>)> {
        self.key_may_exist_bytes(options, family, key.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` gives.
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
