//! Manual compactions. Each call has a blocking form and an asynchronous one; background threads do
//! the work either way.

use super::Db;
use super::timestamps::stored;
use karst_base::error::Result;
use karst_base::events::CompactionInfo;
use karst_format::ids::FileNumber;
use karst_lsm::pick::{CompactFilesOptions, CompactRangeOptions, UserKeyRange};
use karst_storage::column_family::ColumnFamily;

impl Db {
    /// Compacts the keys of the default column family from `begin` to `end`, both included; `None`
    /// is unbounded. Memtables are flushed, and tables are compacted down to the deepest level that
    /// holds data of the range. Blocks until it is done.
    ///
    /// # Errors
    /// The database is open for reading only or closed, the options are invalid, or a flush or a
    /// compaction failed.
    pub fn compact_range(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_cf(options, self.default_column_family(), begin, end)
    }

    /// Compacts a range of keys of any column family, like [`Db::compact_range`].
    ///
    /// # Errors
    /// Those of [`Db::compact_range`]; the column family belongs to another database.
    pub fn compact_range_cf(
        &self,
        options: &CompactRangeOptions,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        karst_io::block_on(self.env(), self.compact_range_cf_async(options, family, begin, end))
    }

    /// The asynchronous form of [`Db::compact_range`]. Dropping the future cancels the running
    /// compaction; finished ones are kept.
    ///
    /// # Errors
    /// Those of [`Db::compact_range`].
    pub async fn compact_range_async(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_cf_async(options, self.default_column_family(), begin, end).await
    }

    /// The asynchronous form of [`Db::compact_range_cf`]. Dropping the future cancels the running
    /// compaction; finished ones are kept.
    ///
    /// # Errors
    /// Those of [`Db::compact_range_cf`].
    pub async fn compact_range_cf_async(
        &self,
        options: &CompactRangeOptions,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        if let Some(low) = &options.full_history_ts_low {
            self.increase_full_history_ts_low_async(family, low).await?;
        }
        let family = self.family(family)?;
        let (begin, end) = (begin.map(|key| stored(family, key)), end.map(|key| stored(family, key)));
        let background = &self.write_half()?.background;
        background.compact_range(family, options.clone(), begin.as_deref(), end.as_deref()).await
    }

    /// Cancels the compactions that [`Db::compact_range`] and [`Db::compact_files`] run, and
    /// refuses others with `Incomplete` until [`Db::enable_manual_compaction`]. Calls nest. Waits
    /// until none runs, on the calling thread. Automatic compactions continue.
    ///
    /// # Errors
    /// The database is open for reading only, or closed.
    pub fn disable_manual_compaction(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.disable_manual_compaction_async())
    }

    /// The asynchronous form of [`Db::disable_manual_compaction`]. It takes effect at its first
    /// poll, even if it is dropped before it ends.
    ///
    /// # Errors
    /// Those of [`Db::disable_manual_compaction`].
    pub async fn disable_manual_compaction_async(&self) -> Result<()> {
        self.write_half()?.background.disable_manual_compaction().await;
        Ok(())
    }

    /// Undoes one [`Db::disable_manual_compaction`]. Does not wait.
    ///
    /// # Errors
    /// Manual compactions are not disabled, or the database is open for reading only, or closed.
    pub fn enable_manual_compaction(&self) -> Result<()> {
        self.write_half()?.background.enable_manual_compaction()
    }

    /// Cancels all running compactions, automatic ones included, and starts none until
    /// [`Db::resume_all_compactions`]. Calls nest. Waits until none runs, on the calling thread.
    ///
    /// Calls that compact, and those that wait for compactions, fail with `Incomplete` meanwhile.
    /// Flushes continue, and writers too until they would have to wait for a compaction; then they
    /// wait until compactions are resumed. The outputs of an aborted compaction are removed, and it
    /// starts over. A compaction that is about to finish may still complete.
    ///
    /// # Errors
    /// The database is open for reading only, or closed.
    pub fn abort_all_compactions(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.abort_all_compactions_async())
    }

    /// The asynchronous form of [`Db::abort_all_compactions`]. It takes effect at its first poll,
    /// even if it is dropped before it ends.
    ///
    /// # Errors
    /// Those of [`Db::abort_all_compactions`].
    pub async fn abort_all_compactions_async(&self) -> Result<()> {
        self.write_half()?.background.abort_compactions().await;
        Ok(())
    }

    /// Undoes one [`Db::abort_all_compactions`]. Does not wait.
    ///
    /// # Errors
    /// Compactions are not aborted, or the database is open for reading only, or closed.
    pub fn resume_all_compactions(&self) -> Result<()> {
        self.write_half()?.background.resume_compactions()
    }

    /// Marks the files that overlap the keys from `begin` to `end` (both included; `None` is
    /// unbounded) for compaction before others, one level at a time, if automatic compactions are
    /// enabled. Does not wait. The mark is lost when the database is closed. Memtables are not
    /// affected.
    ///
    /// # Errors
    /// The database is open for reading only, or the column family belongs to another database.
    pub fn suggest_compact_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        let family = self.family(family)?;
        let (begin, end) = (begin.map(|key| stored(family, key)), end.map(|key| stored(family, key)));
        let background = &self.write_half()?.background;
        background.suggest_compact_range(family, (begin.as_deref(), end.as_deref()));
        Ok(())
    }

    /// Deletes the table files whose keys all lie within one of the ranges (the second key included
    /// if `include_end`; `None` is unbounded), in one change. Files of L0, files that are being
    /// compacted and memtables stay, so keys of the range may stay too; older entries of deleted
    /// keys may reappear, also for snapshots. Blocks.
    ///
    /// # Errors
    /// The database is open for reading only or closed, the column family belongs to another
    /// database, or the MANIFEST could not be written.
    pub fn delete_files_in_ranges(
        &self,
        family: &ColumnFamily,
        ranges: &[UserKeyRange<'_>],
        include_end: bool,
    ) -> Result<()> {
        karst_io::block_on(self.env(), self.delete_files_in_ranges_async(family, ranges, include_end))
    }

    /// The asynchronous form of [`Db::delete_files_in_ranges`].
    ///
    /// # Errors
    /// Those of [`Db::delete_files_in_ranges`].
    pub async fn delete_files_in_ranges_async(
        &self,
        family: &ColumnFamily,
        ranges: &[UserKeyRange<'_>],
        include_end: bool,
    ) -> Result<()> {
        let family = self.family(family)?;
        let end = |key: Option<&[u8]>| key.map(|key| stored(family, key).into_owned());
        let owned: Vec<_> = ranges.iter().map(|(from, to)| (end(*from), end(*to))).collect();
        let ranges: Vec<_> = owned.iter().map(|(from, to)| (from.as_deref(), to.as_deref())).collect();
        self.write_half()?.background.delete_files_in_ranges(family, &ranges, include_end).await
    }

    /// Compacts the files with these numbers, and those that must be compacted with them, to
    /// `output_level`. Returns the numbers of the output files. Blocks.
    ///
    /// # Errors
    /// Those of [`Db::compact_range`]; a file is not in the tree, or the level is invalid
    /// (`InvalidArgument`); a running compaction has one of the files, or writes to their key range
    /// (`TryAgain`).
    pub fn compact_files(
        &self,
        options: &CompactFilesOptions,
        family: &ColumnFamily,
        files: &[u64],
        output_level: usize,
    ) -> Result<Vec<u64>> {
        karst_io::block_on(self.env(), self.compact_files_async(options, family, files, output_level))
    }

    /// The asynchronous form of [`Db::compact_files`]. Dropping the future cancels the compaction.
    ///
    /// # Errors
    /// Those of [`Db::compact_files`].
    pub async fn compact_files_async(
        &self,
        options: &CompactFilesOptions,
        family: &ColumnFamily,
        files: &[u64],
        output_level: usize,
    ) -> Result<Vec<u64>> {
        let told = self.compact_files_with_info_async(options, family, files, output_level).await?;
        Ok(told.0)
    }

    /// Like [`Db::compact_files_async`], and also returns the info that listeners get at the end.
    ///
    /// # Errors
    /// Those of [`Db::compact_files`].
    pub async fn compact_files_with_info_async(
        &self,
        options: &CompactFilesOptions,
        family: &ColumnFamily,
        files: &[u64],
        output_level: usize,
    ) -> Result<(Vec<u64>, CompactionInfo)> {
        let family = self.family(family)?;
        let files: Vec<FileNumber> = files.iter().map(|number| FileNumber(*number)).collect();
        let background = &self.write_half()?.background;
        let (summary, info) = background.compact_files(family, *options, &files, output_level).await?;
        Ok((summary.tables.iter().map(|file| file.number.0).collect(), info))
    }
}
