//! The lifecycle of a database: opening for writing, closing, destroying; creating and dropping
//! column families.
//!
//! All calls block because they read and write files. `lifecycle_async` has the asynchronous forms.

use super::Db;
use crate::open::{self, Options};
use karst_base::error::{ErrorKind, Result};
use karst_io::block_on;
use karst_storage::column_family::ColumnFamily;
use std::path::Path;

impl Db {
    /// Opens the database in directory `path` for reading and writing, with all its column
    /// families.
    ///
    /// `create_if_missing` creates a missing database; with `error_if_exists` an existing one is an
    /// error. Both are taken from `options` alone, never from the database's OPTIONS file, and so
    /// is `create_missing_column_families`, which creates missing column families that `options`
    /// names. Entries that are only in the logs are recovered according to `wal_recovery_mode` and,
    /// unless `avoid_flush_during_recovery` is set, flushed to tables.
    ///
    /// ```
    /// # use karst_engine as karstdb;
    /// # use karstdb::{Db, Options};
    /// # let directory = tempfile::tempdir()?;
    /// let options = Options::new()
    ///     .db(|db| (db.create_if_missing, db.create_missing_column_families) = (true, true))
    ///     .column_family("logs", |family| family.num_levels = 4);
    /// let db = Db::open(directory.path(), &options)?;
    /// db.cf("logs")?.put("key", "value")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::open_read_only`]; the database is open elsewhere (`Locked`), is missing or
    /// exists contrary to the options, has prepared transactions; options contradict each other;
    /// the directory cannot be written, for instance because it is full (`NoSpace`). Unless writing
    /// itself fails, nothing but LOCK was changed; if it does, the database is in its old or its
    /// new state.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        Self::open_for_writing(path.as_ref(), options, None)
    }

    /// Opens a database with these column families; the default one may be left out. All existing
    /// ones must be named.
    ///
    /// `create_missing_column_families` creates missing ones, with the options that `options` has
    /// for them.
    ///
    /// # Errors
    /// Those of [`Db::open`]; a column family exists that is not named, or is named and missing.
    pub fn open_cf(path: impl AsRef<Path>, options: &Options, families: &[&str]) -> Result<Db> {
        Self::open_for_writing(path.as_ref(), options, Some(families))
    }

    fn open_for_writing(path: &Path, options: &Options, families: Option<&[&str]>) -> Result<Db> {
        let opened = open::read_write(path, options, families).and_then(|opened| Self::new(opened, options));
        opened.map_err(|error| match error.kind() {
            ErrorKind::NoSpace => error
                .in_context("there is no room to open the database for writing (for reading it needs none)"),
            _ => error,
        })
    }

    /// Returns the names of the column families of the database in `path`, ordered by id. The
    /// database may be open elsewhere.
    ///
    /// # Errors
    /// There is no database, or its MANIFEST cannot be read.
    pub fn list_column_families(path: impl AsRef<Path>, options: &Options) -> Result<Vec<String>> {
        open::list_column_families(path.as_ref(), options)
    }

    /// Removes the database in `path`: all files with names of database files. The directory is
    /// removed unless other files remain in it. Succeeds if there is no database.
    ///
    /// # Errors
    /// The database is open (`Locked`), or a file could not be removed; the others are removed
    /// regardless.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        open::destroy(path.as_ref(), options)
    }

    /// Creates a column family, with the options that `options` has for this name over RocksDB's
    /// defaults.
    ///
    /// ```
    /// # use karst_engine as karstdb;
    /// # use karstdb::{Db, Options};
    /// # let directory = tempfile::tempdir()?;
    /// # let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true))?;
    /// db.create_column_family("users", &Options::new())?;
    /// db.create_column_family("logs", &Options::new().column_families(|cf| cf.num_levels = 4))?;
    /// db.cf("users")?.put("ada", "1815")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The database is open for reading only or closed, the name is in use, its options are
    /// invalid, or the MANIFEST could not be written.
    pub fn create_column_family(&self, name: &str, options: &Options) -> Result<ColumnFamily> {
        self.create_column_families(&[name], options).map(|mut created| created.remove(0))
    }

    /// Creates several column families: OPTIONS is written once, and the MANIFEST is synced as
    /// often as for one or two. Otherwise like [`Db::create_column_family`]; all of them are
    /// validated before any is created.
    ///
    /// # Errors
    /// Those of [`Db::create_column_family`]. Unless the MANIFEST or OPTIONS could not be written,
    /// none is created.
    pub fn create_column_families(&self, names: &[&str], options: &Options) -> Result<Vec<ColumnFamily>> {
        self.check_open()?;
        let write = self.write_half()?;
        // This thread creates the directories of the families.
        let _counted = write.background.counted()?;
        let families = open::create_column_families(&self.0.read, &write.ownership, names, options)?;
        families.iter().for_each(|family| write.background.family_added(family));
        Ok(families.into_iter().map(ColumnFamily).collect())
    }

    /// Drops a column family. It can no longer be written; reads with existing handles, iterators
    /// and snapshots continue, and the last of them frees its files.
    ///
    /// # Errors
    /// The column family is the default one, belongs to another database or was dropped before, the
    /// database is open for reading only or closed, or the MANIFEST could not be written.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        let family = self.family(family)?;
        let write = self.write_half()?;
        // Synced before the drop, because the family's memtable may be all that keeps the log of a
        // section whose commit is not durable; and again after it, because a section may have been
        // committed meanwhile.
        let sync_decisions = || block_on(self.env(), write.pipeline.sync_decisions());
        sync_decisions()?;
        open::drop_column_family(&self.0.read, &write.ownership, family)?;
        write.background.family_dropped(family);
        sync_decisions().map_err(|e| {
            e.in_context("the column family is dropped, but decisions of transactions are not durable")
        })
    }

    /// Closes the database: waits for pending writes, removes obsolete files, and releases the
    /// lock. Every clone of the handle is closed with it, and everything created from one: from
    /// then on every call fails with `Closed`, including reads, transactions, moves of iterators
    /// and reads through snapshots; properties are `None`. Values that were read, and the current
    /// entry of an iterator, stay readable. Calls that cannot fail return the state in memory
    /// ([`path`](Db::path), [`options`](Db::options), [`column_families`](Db::column_families)) or
    /// the state at closing ([`live_files`](Db::live_files),
    /// [`latest_sequence_number`](Db::latest_sequence_number)). Closing twice is no error.
    ///
    /// In a process that was forked from the one that opened the database for writing, every call
    /// fails with `Closed` in the same way, including this one, and dropping a handle does nothing.
    ///
    /// Dropping the last handle also closes the database, without returning errors; iterators that
    /// outlive it continue with the files that they hold, though. If it is dropped inside a
    /// background job of this or another database, in a listener for instance, a separate thread
    /// closes the database, and the drop does not wait for it.
    ///
    /// # Errors
    /// Pending data could not be written. `InvalidArgument`: called inside a background job.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}
