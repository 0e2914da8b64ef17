//! The life of a database: opened for writing, closed, destroyed; its column families created and
//! dropped.
//!
//! All calls block: they read and write files. `lifecycle_async` has the forms that do not.

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
    /// With `create_if_missing` it is made if there is none; with `error_if_exists` there must be
    /// none. Both are taken from `options` alone, never from the database's OPTIONS file, and so is
    /// `create_missing_column_families`, with which the column families that `options` has
    /// something of by name are made where they are missing. What is only in the logs is recovered
    /// as `wal_recovery_mode` says and, unless `avoid_flush_during_recovery` is set, written to
    /// tables.
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
    /// As [`Db::open_read_only`]; the database is open elsewhere (`Locked`), is missing or exists
    /// against the options, has prepared transactions; options contradict each other; the directory
    /// cannot be written, for want of room for instance (`NoSpace`). Unless writing itself fails,
    /// nothing but LOCK was changed; if it does, the database is as it was or as it was to be.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        Self::open_for_writing(path.as_ref(), options, None)
    }

    /// The same, with the column families named; the default one need not be. All that exist have
    /// to be named.
    ///
    /// With `create_missing_column_families` those that are missing are made, with the options that
    /// `options` has for them.
    ///
    /// # Errors
    /// As [`Db::open`]; a column family exists that is not named, or is named and missing.
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

    /// Names of the column families of the database in `path`, by id. It may be open elsewhere.
    ///
    /// # Errors
    /// There is no database, or its MANIFEST cannot be read.
    pub fn list_column_families(path: impl AsRef<Path>, options: &Options) -> Result<Vec<String>> {
        open::list_column_families(path.as_ref(), options)
    }

    /// Removes the database in `path`: all files with names that a database's files have. Others
    /// stay, and then the directory does. No error if there is no database.
    ///
    /// # Errors
    /// It is open (`Locked`), or a file could not be removed; the others are removed all the same.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        open::destroy(path.as_ref(), options)
    }

    /// Creates a column family, with what `options` has for one of this name over RocksDB's
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
    /// The database is open for reading only or closed, there is one of this name, its options
    /// cannot be used, or the MANIFEST could not be written.
    pub fn create_column_family(&self, name: &str, options: &Options) -> Result<ColumnFamily> {
        self.create_column_families(&[name], options).map(|mut created| created.remove(0))
    }

    /// Creates several column families at once: OPTIONS is written once, and the MANIFEST synced as
    /// often as if they were one or two. As [`Db::create_column_family`] otherwise; what is wrong
    /// with one of them is found before any is created.
    ///
    /// # Errors
    /// As [`Db::create_column_family`]. Unless the MANIFEST or OPTIONS could not be written, none
    /// is created.
    pub fn create_column_families(&self, names: &[&str], options: &Options) -> Result<Vec<ColumnFamily>> {
        self.check_open()?;
        let write = self.write_half()?;
        // The directories of the families are made on this thread.
        let _counted = write.background.counted()?;
        let families = open::create_column_families(&self.0.read, &write.ownership, names, options)?;
        families.iter().for_each(|family| write.background.family_added(family));
        Ok(families.into_iter().map(ColumnFamily).collect())
    }

    /// Drops a column family. It cannot be written any more; reads with handles, iterators and
    /// snapshots that exist go on, and the last of them frees its files.
    ///
    /// # Errors
    /// It is the default one, is of another database or was dropped before, the database is open
    /// for reading only or closed, or the MANIFEST could not be written.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        let family = self.family(family)?;
        let write = self.write_half()?;
        // Why: the family's memtable may be all that keeps the log of a section whose commit is not
        // durable. Why also behind it: one may have been committed meanwhile.
        let sync_decisions = || block_on(self.env(), write.pipeline.sync_decisions());
        sync_decisions()?;
        open::drop_column_family(&self.0.read, &write.ownership, family)?;
        write.background.family_dropped(family);
        sync_decisions().map_err(|e| {
            e.in_context("the column family is dropped, but decisions of transactions are not durable")
        })
    }

    /// Closes the database: waits for what is being written, removes files that nobody needs, and
    /// gives the lock back. Every clone of the handle is closed with it, and so is whatever was
    /// made with one: from then on every call fails with `Closed`, reads and transactions included,
    /// and so does every move of an iterator and every read through a snapshot; properties are
    /// `None`. Values that were read, and what an iterator stands at, stay readable. Calls that
    /// cannot fail tell what is in memory ([`path`](Db::path), [`options`](Db::options),
    /// [`column_families`](Db::column_families)) or was when the database was closed
    /// ([`live_files`](Db::live_files), [`latest_sequence_number`](Db::latest_sequence_number)).
    /// Closing twice is no error.
    ///
    /// In a process that was forked from the one that opened the database for writing, every call
    /// fails with `Closed` in the same way, this one too, and dropping a handle does nothing.
    ///
    /// The last handle that is dropped does the same, without telling what failed; iterators that
    /// outlive it go on with the files that they hold, though. Where it is dropped inside a
    /// background job of this or another database, in a listener for instance, the database is
    /// closed by a thread of its own, and the drop does not wait for it.
    ///
    /// # Errors
    /// What had to be written could not be. `InvalidArgument`: it is called inside a background
    /// job.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}
