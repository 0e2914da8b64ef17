//! Opening a database as of a timestamp, without later entries.
//!
//! In: a database, and a timestamp. Out: the open database, without the later entries of column
//! families with timestamps.
//!
//! All tables of such a column family are rewritten by compactions that drop the later entries.
//! Invariant: compactions that do not know the timestamp have ended before the first new file
//! number is taken, so a table with that number or a larger one has no later entry.
//!
//! Compat: like RocksDB's `DB::OpenAndTrimHistory`: if it fails, or is interrupted, some entries
//! may be gone and others not; it may be called again. The MANIFEST records nothing else about it.

use super::Db;
use super::lifecycle_async::apart;
use crate::background::FlushOptions;
use crate::open::Options;
use karst_base::error::{Error, Named, Result};
use karst_base::options::DbOptions;
use karst_lsm::pick::{BottommostLevelCompaction, CompactRangeOptions};
use karst_storage::column_family::{ColumnFamily, History};
use std::future::Future;
use std::path::Path;

/// Resets the trim timestamp of a column family's compactions when dropped.
struct Trimming<'a>(&'a History);

impl Drop for Trimming<'_> {
    fn drop(&mut self) {
        self.0.set_trim_ts(None);
    }
}

impl Db {
    /// The asynchronous form of [`Db::open_and_trim_history`].
    pub fn open_and_trim_history_async(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
        timestamp: impl AsRef<[u8]>,
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        let families: Vec<String> = families.iter().map(|name| (*name).to_owned()).collect();
        let timestamp = timestamp.as_ref().to_vec();
        apart(options.environment(), "karst-open", move || {
            let families: Vec<&str> = families.iter().map(|name| &name[..]).collect();
            Db::open_and_trim_history(path, &options, &families, timestamp)
        })
    }

    /// Opens like [`Db::open_cf`], and removes all entries with timestamps after `timestamp`,
    /// including deletions, from the column families that have timestamps. Blocks until all their
    /// tables are rewritten. An empty timestamp removes nothing.
    ///
    /// If it fails, some of these entries may have been removed; it may be called again.
    ///
    /// # Errors
    /// Those of [`Db::open_cf`] and [`Db::compact_range`]. `InvalidArgument`:
    /// `avoid_flush_during_recovery` is set, or timestamps have another size. `NotSupported`:
    /// tables cannot be rewritten, as with FIFO compaction.
    pub fn open_and_trim_history(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
        timestamp: impl AsRef<[u8]>,
    ) -> Result<Db> {
        Self::open_and_trim(path.as_ref(), options, families, timestamp.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn open_and_trim(path: &Path, options: &Options, families: &[&str], timestamp: &[u8]) -> Result<Db> {
        if options.db_options(DbOptions::default())?.avoid_flush_during_recovery {
            return Err(Error::invalid_argument(
                "history is not trimmed with avoid_flush_during_recovery".to_owned(),
            ));
        }
        let db = Db::open_cf(path, options, families)?;
        if timestamp.is_empty() {
            return Ok(db);
        }
        let trimmed = db.column_families();
        let trimmed = || trimmed.iter().filter(|family| family.comparator().timestamp_size() > 0);
        trimmed().try_for_each(|family| super::timestamps::check_size(&family.0, timestamp))?;
        trimmed().try_for_each(|family| db.trim(family, timestamp))?;
        Ok(db)
    }

    fn trim(&self, family: &ColumnFamily, timestamp: &[u8]) -> Result<()> {
        let Some(history) = family.0.history() else { return Ok(()) };
        history.set_trim_ts(Some(timestamp.to_vec()));
        let _trimming = Trimming(history);
        // Flushed first, because flushes do not trim.
        self.flush_cfs(&FlushOptions::default(), &[family])?;
        // Compactions that began before do not trim either, and end now; those that begin from now
        // on trim.
        self.pause_background_work()?;
        let first = self.write_half()?.ownership.versions.new_file_number();
        self.continue_background_work()?;
        let all = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            ..CompactRangeOptions::default()
        };
        self.compact_range_cf(&all, family, None, None)?;
        if family.0.pin().version().all_files().any(|(_, file)| file.number < first) {
            return Err(Error::not_supported(format!(
                "column family {:?}: trimming its history, as its compactions do not write all tables anew",
                Named(family.name())
            )));
        }
        Ok(())
    }
}
