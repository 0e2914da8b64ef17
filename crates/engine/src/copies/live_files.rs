//! Holding file deletions, locking the log, and listing the files that make up the database.
//!
//! In: an open database. Out: for each file its name, directory, size, kind, and the valid length.
//!
//! Invariants:
//! - The list is one state of the database: a MANIFEST up to some record, every table and blob file
//!   that it names, and the logs up to some later record.
//! - Logs and MANIFEST are valid up to the listed size only, because bytes after it are being
//!   written.
//!
//! Compat: RocksDB's `GetLiveFilesStorageInfo`, without temperatures. RocksDB does not require
//! trimming of older logs; here all are trimmed, because a finished one may still be truncated or
//! recycled later.

use crate::background::FlushOptions;
use crate::db::Db;
use crate::sealing::Sealing;
use crate::versions::{Hold, Moment};
use crate::write_half::WriteHalf;
use karst_base::error::{Error, Result};
use karst_base::events::FlushReason;
use karst_commit::wal::archive::logs_in;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::{Env, block_on};
use karst_storage::blob;
use std::path::PathBuf;

/// Options of the listing, with RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveFilesStorageInfoOptions {
    /// Return the checksums of tables that the MANIFEST has. Default false.
    pub include_checksum_info: bool,
    /// Flush all memtables first if the logs have at least this many bytes in total: 0 for always,
    /// `u64::MAX` for never. Without a flush, entries that were written with `disable_wal` and are
    /// not in tables are missing. Default 0.
    pub wal_size_for_flush: u64,
    /// Flush all column families in one change, regardless of the database's `atomic_flush`.
    /// Default false.
    pub atomic_flush: bool,
}

/// Kind of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum DatabaseFileKind {
    /// A table.
    Table,
    /// A blob file.
    Blob,
    /// The MANIFEST in force.
    Manifest,
    /// CURRENT, which names the MANIFEST.
    Current,
    /// The newest OPTIONS file.
    Options,
    /// A log.
    Wal,
}

/// A file that the database consists of; see [`Db::live_files_storage_info`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DatabaseFile {
    /// File name, such as `000123.sst`.
    pub name: String,
    /// Directory of the file.
    pub directory: PathBuf,
    /// File number; 0 for CURRENT.
    pub number: u64,
    /// Kind of the file.
    pub kind: DatabaseFileKind,
    /// Number of valid bytes.
    pub size_bytes: u64,
    /// The checksum of the whole file and the name of its function, if requested and recorded in
    /// the MANIFEST.
    pub checksum: Option<(Vec<u8>, String)>,
    /// True if the file may have more bytes than `size_bytes`, and must be copied up to that size.
    /// Otherwise it is immutable, and may be hard linked.
    pub trim_to_size: bool,
    /// Content for the copy instead of the file's, because the file may be replaced at any time.
    pub replacement_contents: Option<String>,
}

impl DatabaseFile {
    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// The files of a database, kept for the lifetime of this value.
#[derive(Debug)]
pub(super) struct HeldFiles {
    pub(super) files: Vec<DatabaseFile>,
    /// The trees that the tables and blob files belong to.
    pub(super) moment: Moment,
    _hold: Hold,
}

impl Db {
    /// Disables removal, archiving and recycling of the database's files, until
    /// [`Db::enable_file_deletions`] was called as often. No file is being removed when this
    /// returns. Blocks until then.
    ///
    /// Obsolete files accumulate meanwhile, and are removed when deletions are enabled again, or at
    /// the next opening.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    pub fn disable_file_deletions(&self) -> Result<()> {
        block_on(self.env(), self.disable_file_deletions_async())
    }

    /// The asynchronous form of [`Db::disable_file_deletions`]. It takes effect at its first poll,
    /// even if it is dropped.
    ///
    /// # Errors
    /// Those of [`Db::disable_file_deletions`].
    pub async fn disable_file_deletions_async(&self) -> Result<()> {
        self.write_half()?.ownership.versions.obsolete().disable().await;
        Ok(())
    }

    /// Undoes one [`Db::disable_file_deletions`]. Once all are undone, obsolete files are removed,
    /// and this blocks until they are; copies in progress hold their own files. If deletions are
    /// not disabled it only waits for removals in progress.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    pub fn enable_file_deletions(&self) -> Result<()> {
        block_on(self.env(), self.enable_file_deletions_async())
    }

    /// The asynchronous form of [`Db::enable_file_deletions`]. It takes effect at its first poll,
    /// even if it is dropped.
    ///
    /// # Errors
    /// Those of [`Db::enable_file_deletions`].
    pub async fn enable_file_deletions_async(&self) -> Result<()> {
        self.write_half()?.ownership.versions.obsolete().enable().await;
        Ok(())
    }

    /// Blocks all writes until [`Db::unlock_wal`] was called as often. When this returns,
    /// acknowledged writes are with the operating system, and reads see exactly these meanwhile.
    /// Blocks until then.
    ///
    /// Writes wait, blocking ones on their threads; those with `no_slowdown` fail with
    /// `Incomplete`. Flushes and compactions continue, because they change no visible data.
    ///
    /// # Errors
    /// The database is open for reading only or closed, or the log failed; it is not locked then.
    pub fn lock_wal(&self) -> Result<()> {
        block_on(self.env(), self.lock_wal_async())
    }

    /// The asynchronous form of [`Db::lock_wal`]. If it is dropped before it ends, the log is not
    /// locked.
    ///
    /// # Errors
    /// Those of [`Db::lock_wal`].
    pub async fn lock_wal_async(&self) -> Result<()> {
        self.write_half()?.pipeline.lock_wal().await
    }

    /// Undoes one [`Db::lock_wal`]. Does not wait.
    ///
    /// # Errors
    /// The log is not locked; the database is open for reading only or closed.
    pub fn unlock_wal(&self) -> Result<()> {
        self.write_half()?.pipeline.unlock_wal()
    }

    /// Returns the files that make up the database, as of one moment: a copy of all of them, each
    /// up to its size, is a database with everything that was acknowledged before this call, except
    /// unflushed entries written with `disable_wal`. Blocks: it may flush, and writes out the log.
    ///
    /// Files may be removed as soon as they become obsolete, so call [`Db::disable_file_deletions`]
    /// before and [`Db::enable_file_deletions`] after copying them. IDENTITY is not included,
    /// because a copy gets its own. A log goes into the directory of the copy, regardless of its
    /// current one.
    ///
    /// # Errors
    /// The database is open for reading only or closed; memtables cannot be flushed, or the log
    /// cannot be written.
    pub fn live_files_storage_info(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<DatabaseFile>> {
        block_on(self.env(), self.live_files_storage_info_async(options))
    }

    /// The asynchronous form of [`Db::live_files_storage_info`]. It may be dropped.
    ///
    /// # Errors
    /// Those of [`Db::live_files_storage_info`].
    pub async fn live_files_storage_info_async(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<DatabaseFile>> {
        Ok(held_files(self, options).await?.files)
    }
}

/// Holds the files of the database, and lists them.
pub(super) async fn held_files(db: &Db, options: &LiveFilesStorageInfoOptions) -> Result<HeldFiles> {
    let (env, write) = (db.env(), db.write_half()?);
    let hold = write.ownership.versions.obsolete().hold().await;
    if wants_flush(db, write, options.wal_size_for_flush).await? {
        let whole = FlushOptions { force_atomic_flush: options.atomic_flush, ..FlushOptions::default() };
        write.background.flush_families(Sealing::All, whole, FlushReason::GetLiveFiles).await?;
    }
    let (moment, options_file, written) = loop {
        let failed = write.pipeline.failed_log();
        let look = write.ownership.look();
        // On another thread, because a change of options may hold the lock while it writes files.
        let (moment, options_file) = env.run_blocking(move |_| look()).await;
        // Invariant: the log is flushed after the MANIFEST was read; see the module's head.
        write.pipeline.flush_wal(false).await?;
        let written = write.pipeline.written_logs().await?;
        // Repeated otherwise, because the logs may hold a part of a batch whose other part belongs
        // to a family missing from this MANIFEST, or entries after files that were ingested since,
        // or lack entries that a recovery of the log put into tables.
        let now = write.ownership.versions.moment();
        if moment.goes_with_logs(&now) && write.pipeline.failed_log() == failed {
            break (moment, options_file, written);
        }
    };
    let mut files = stored_files(&moment, options.include_checksum_info)?;
    files.extend(described_files(db, &moment, options_file).await?);
    files.extend(logs(db, &moment, written).await?);
    Ok(HeldFiles { files, moment, _hold: hold })
}

async fn wants_flush(db: &Db, write: &WriteHalf, limit: u64) -> Result<bool> {
    if matches!(limit, 0 | u64::MAX) {
        return Ok(limit == 0);
    }
    let moment = write.ownership.versions.moment();
    let written = write.pipeline.written_logs().await?;
    let logs = logs(db, &moment, written).await?;
    Ok(logs.iter().map(|log| log.size_bytes).sum::<u64>() >= limit)
}

/// Returns the tables and blob files.
fn stored_files(moment: &Moment, with_checksums: bool) -> Result<Vec<DatabaseFile>> {
    let mut files = Vec::new();
    for (family, version) in &moment.trees {
        let shared = &family.tables.shared;
        for (_, table) in version.all_files() {
            let path = shared.table_path(table.number, table.path_id)?;
            let checksum = table.checksum.as_ref().filter(|_| with_checksums);
            files.push(DatabaseFile {
                checksum: checksum
                    .map(|c| (c.value.to_vec(), String::from_utf8_lossy(&c.function).into_owned())),
                ..at(path, table.number, DatabaseFileKind::Table, table.size_bytes)
            });
        }
        for (number, described) in version.blob_files() {
            let size_bytes = blob::file_bytes(described);
            files.push(at(shared.blob_path(*number), *number, DatabaseFileKind::Blob, size_bytes));
        }
    }
    Ok(files)
}

/// Returns MANIFEST, CURRENT and OPTIONS.
async fn described_files(
    db: &Db,
    moment: &Moment,
    options_file: Option<FileName>,
) -> Result<Vec<DatabaseFile>> {
    let (number, size_bytes) = moment.manifest;
    let manifest = FileName::Manifest(number);
    let own = |name: FileName| db.path().join(name.to_string());
    let contents = format!("{manifest}\n");
    let mut files = vec![
        DatabaseFile {
            trim_to_size: true,
            ..at(own(manifest), number, DatabaseFileKind::Manifest, size_bytes)
        },
        DatabaseFile {
            size_bytes: contents.len() as u64,
            replacement_contents: Some(contents),
            ..at(own(FileName::Current), FileNumber(0), DatabaseFileKind::Current, 0)
        },
    ];
    if let Some(name) = options_file {
        let (path, number) = (own(name), name.number().unwrap_or_default());
        let looked = path.clone();
        let found = db.env().run_blocking(move |env| env.fs().metadata(&looked)).await?;
        files.push(at(path, number, DatabaseFileKind::Options, found.len));
    }
    Ok(files)
}

/// Returns the logs from the oldest needed one up to the newest of `written`, which holds the valid
/// bytes of logs that may still be written. The others have ended, and are as long as their files.
async fn logs(db: &Db, moment: &Moment, written: Vec<(FileNumber, u64)>) -> Result<Vec<DatabaseFile>> {
    let directory = match db.options().wal_dir.as_str() {
        "" => db.path().clone(),
        elsewhere => PathBuf::from(elsewhere),
    };
    let newest = written.last().map(|(number, _)| *number).unwrap_or_default();
    let oldest = moment.logs.first().copied().unwrap_or(newest).min(newest);
    // Found by file name, because a log that came since the MANIFEST was read may already be needed
    // by this copy only. Newer logs are skipped, because a log that was created ahead is empty.
    let list = move |env: &Env| {
        let numbers = logs_in(env, &directory)?.into_iter().filter(|log| (oldest..=newest).contains(log));
        let mut files = Vec::new();
        for number in numbers {
            let path = directory.join(FileName::Wal(number).to_string());
            let size_bytes = match written.iter().find(|(log, _)| *log == number) {
                Some((_, bytes)) => *bytes,
                None => env.fs().metadata(&path)?.len,
            };
            let file = at(path, number, DatabaseFileKind::Wal, size_bytes);
            files.push(DatabaseFile { trim_to_size: true, ..file });
        }
        Ok::<_, Error>(files)
    };
    db.env().run_blocking(list).await
}

fn at(path: PathBuf, number: FileNumber, kind: DatabaseFileKind, size_bytes: u64) -> DatabaseFile {
    DatabaseFile {
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        directory: path.parent().map(PathBuf::from).unwrap_or_default(),
        number: number.0,
        kind,
        size_bytes,
        checksum: None,
        trim_to_size: false,
        replacement_contents: None,
    }
}
