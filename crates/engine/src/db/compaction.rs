//! Compactions as the user asks for them. Each call has a blocking form and an asynchronous one;
//! the work is done by background threads either way.

use super::Db;
use super::timestamps::stored;
use karst_base::error::Result;
use karst_base::events::CompactionInfo;
use karst_format::ids::FileNumber;
use karst_lsm::pick::{CompactFilesOptions, CompactRangeOptions, UserKeyRange};
use karst_storage::column_family::ColumnFamily;

impl Db {
    /// Compacts the keys of the default column family from `begin` to `end`, both included; `None`
    /// is open: what is in memory goes to tables, and the tables down to the deepest level that has
    /// data of the range. Blocks until it is done.
    ///
    /// # Errors
    /// The database is open for reading only or closed, the options do not fit, or a flush or a
    /// compaction failed.
    pub fn compact_range(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_cf(options, self.default_column_family(), begin, end)
    }

    /// The same for any column family.
    ///
    /// # Errors
    /// As [`Db::compact_range`], and if the column family is of another database.
    pub fn compact_range_cf(
        &self,
        options: &CompactRangeOptions,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        karst_io::block_on(self.env(), self.compact_range_cf_async(options, family, begin, end))
    }

    /// The asynchronous form of [`Db::compact_range`]. Dropping the future cancels what it runs;
    /// what was done stays done.
    ///
    /// # Errors
    /// As [`Db::compact_range`].
    pub async fn compact_range_async(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_cf_async(options, self.default_column_family(), begin, end).await
    }

    /// The asynchronous form of [`Db::compact_range_cf`]. Dropping the future cancels what it runs;
    /// what was done stays done.
    ///
    /// # Errors
    /// As [`Db::compact_range_cf`].
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
    /// refuses others with `Incomplete` until [`Db::enable_manual_compaction`]. Calls add up. Waits
    /// until none runs, on the calling thread. Compactions that start by themselves go on.
    ///
    /// # Errors
    /// The database is open for reading only, or closed.
    pub fn disable_manual_compaction(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.disable_manual_compaction_async())
    }

    /// The asynchronous form of [`Db::disable_manual_compaction`]. It counts from its first poll
    /// on, also if it is dropped before it ends.
    ///
    /// # Errors
    /// As [`Db::disable_manual_compaction`].
    pub async fn disable_manual_compaction_async(&self) -> Result<()> {
        self.write_half()?.background.disable_manual_compaction().await;
        Ok(())
    }

    /// Takes one [`Db::disable_manual_compaction`] back. Does not wait.
    ///
    /// # Errors
    /// They are not disabled, or the database is open for reading only, or closed.
    pub fn enable_manual_compaction(&self) -> Result<()> {
        self.write_half()?.background.enable_manual_compaction()
    }

    /// Cancels all compactions that run, those that started by themselves too, and lets none begin
    /// until [`Db::resume_all_compactions`]. Calls add up. Waits until none runs, on the calling
    /// thread.
    ///
    /// Calls that compact, and those that wait for compactions, fail with `Incomplete` meanwhile.
    /// Flushes go on, and writers until they would have to wait for a compaction; then they wait
    /// until compactions are resumed. Whatever an aborted compaction wrote is removed, and it
    /// begins anew. One that is all but done may end as if nothing was.
    ///
    /// # Errors
    /// The database is open for reading only, or closed.
    pub fn abort_all_compactions(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.abort_all_compactions_async())
    }

    /// The asynchronous form of [`Db::abort_all_compactions`]. It counts from its first poll on,
    /// also if it is dropped before it ends.
    ///
    /// # Errors
    /// As [`Db::abort_all_compactions`].
    pub async fn abort_all_compactions_async(&self) -> Result<()> {
        self.write_half()?.background.abort_compactions().await;
        Ok(())
    }

    /// Takes one [`Db::abort_all_compactions`] back. Does not wait.
    ///
    /// # Errors
    /// They are not aborted, or the database is open for reading only, or closed.
    pub fn resume_all_compactions(&self) -> Result<()> {
        self.write_half()?.background.resume_compactions()
    }

    /// Has what overlaps the keys from `begin` to `end` (both included; `None` is open) compacted
    /// before others, one level at a time, as far as compactions start by themselves. Does not
    /// wait, and is forgotten when the database is closed. What is in memory takes no part.
    ///
    /// # Errors
    /// The database is open for reading only, or the column family is of another database.
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
    /// if `include_end` says so; `None` is open), in one change. Files of L0, files that are being
    /// compacted and what is in memory stay, and so may keys of the range; older entries of deleted
    /// keys may come to light, also for snapshots. Blocks.
    ///
    /// # Errors
    /// The database is open for reading only or closed, the column family is of another database,
    /// or the MANIFEST could not be written.
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
    /// As [`Db::delete_files_in_ranges`].
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

    /// Compacts the files with these numbers, and those that have to go along, to `output_level`.
    /// Returns the numbers of the files that came of it. Blocks.
    ///
    /// # Errors
    /// As [`Db::compact_range`]; a file is not in the tree, or the level cannot be
    /// (`InvalidArgument`); a compaction that is running has one of the files, or writes to their
    /// keys (`TryAgain`).
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
    /// As [`Db::compact_files`].
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

    /// As [`Db::compact_files_async`], and returns besides what listeners are told at the end.
    ///
    /// # Errors
    /// As [`Db::compact_files`].
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
