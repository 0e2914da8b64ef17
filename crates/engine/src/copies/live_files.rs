//! Deletions held back, the log locked, and the files that make up the database.
//!
//! In: an open database. Out: for each file its name, directory, size and kind, and what of it
//! counts.
//!
//! Invariants:
//! - The list is one state of the database: a MANIFEST up to some record, every table and blob file
//!   that this names, and the logs behind them up to some record that came later.
//! - Logs and MANIFEST count up to their size only. What is behind it is being written.
//!
//! Compat: RocksDB's `GetLiveFilesStorageInfo`, without temperatures. There the older logs need not
//! be trimmed; here all are, since one that is ended may still give back space, or be recycled
//! later.

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

/// What to list, and what to do before. RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveFilesStorageInfoOptions {
    /// Tell the checksums of tables that the MANIFEST has. Default false.
    pub include_checksum_info: bool,
    /// Flush all memtables first if the logs have at least so many bytes together: 0 for always,
    /// `u64::MAX` for never. Without a flush, what was written with `disable_wal` and is not in
    /// tables is missing. Default 0.
    pub wal_size_for_flush: u64,
    /// All column families are flushed in one change, whatever the database's `atomic_flush` says.
    /// Default false.
    pub atomic_flush: bool,
}

/// What kind of file it is.
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
    /// CURRENT, which names it.
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
    /// Its name, such as `000123.sst`.
    pub name: String,
    /// The directory that it is in.
    pub directory: PathBuf,
    /// Its number; 0 for CURRENT.
    pub number: u64,
    /// Which kind of file it is.
    pub kind: DatabaseFileKind,
    /// How many of its bytes count.
    pub size_bytes: u64,
    /// The checksum of the whole file and the name of its function, if it was asked for and the
    /// MANIFEST has it.
    pub checksum: Option<(Vec<u8>, String)>,
    /// It may have more bytes than count, and has to be copied up to its size. Otherwise it does
    /// not change any more, and a hard link will do.
    pub trim_to_size: bool,
    /// What the copy has to hold instead of what the file holds, which may be replaced at any time.
    pub replacement_contents: Option<String>,
}

impl DatabaseFile {
    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// The files of a database, which stay as long as this lives.
#[derive(Debug)]
pub(super) struct HeldFiles {
    pub(super) files: Vec<DatabaseFile>,
    /// The trees that the tables and blob files are of.
    pub(super) moment: Moment,
    _hold: Hold,
}

impl Db {
    /// Has no file of the database be removed, archived or recycled from now on, until
    /// [`Db::enable_file_deletions`] was called as often. When this returns, none is being removed.
    /// Blocks until then.
    ///
    /// Files that nobody needs pile up meanwhile, and are removed when deletions are enabled again,
    /// or when the database is opened the next time.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    pub fn disable_file_deletions(&self) -> Result<()> {
        block_on(self.env(), self.disable_file_deletions_async())
    }

    /// The asynchronous form of [`Db::disable_file_deletions`]. It counts from its first poll on,
    /// also if it is dropped.
    ///
    /// # Errors
    /// As [`Db::disable_file_deletions`].
    pub async fn disable_file_deletions_async(&self) -> Result<()> {
        self.write_half()?.ownership.versions.obsolete().disable().await;
        Ok(())
    }

    /// Takes one [`Db::disable_file_deletions`] back. Once all are, what is not needed is removed,
    /// and this blocks until it is; copies that are being made keep files for themselves. Without
    /// one to take back it only waits for what is being removed.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    pub fn enable_file_deletions(&self) -> Result<()> {
        block_on(self.env(), self.enable_file_deletions_async())
    }

    /// The asynchronous form of [`Db::enable_file_deletions`]. It counts from its first poll on,
    /// also if it is dropped.
    ///
    /// # Errors
    /// As [`Db::enable_file_deletions`].
    pub async fn enable_file_deletions_async(&self) -> Result<()> {
        self.write_half()?.ownership.versions.obsolete().enable().await;
        Ok(())
    }

    /// Lets no write go on until [`Db::unlock_wal`] was called as often. What was acknowledged has
    /// left the process when this returns, and is what every read sees meanwhile. Blocks until
    /// then.
    ///
    /// Writes wait, blocking ones on their threads; those with `no_slowdown` fail with
    /// `Incomplete`. Flushes and compactions go on, as they change nothing that is read.
    ///
    /// # Errors
    /// The database is open for reading only or closed, or the log failed; it is not locked then.
    pub fn lock_wal(&self) -> Result<()> {
        block_on(self.env(), self.lock_wal_async())
    }

    /// The asynchronous form of [`Db::lock_wal`]. Dropped before it ends, it does not count.
    ///
    /// # Errors
    /// As [`Db::lock_wal`].
    pub async fn lock_wal_async(&self) -> Result<()> {
        self.write_half()?.pipeline.lock_wal().await
    }

    /// Takes one [`Db::lock_wal`] back. Does not wait.
    ///
    /// # Errors
    /// The log is not locked; the database is open for reading only or closed.
    pub fn unlock_wal(&self) -> Result<()> {
        self.write_half()?.pipeline.unlock_wal()
    }

    /// The files that make up the database, as of one moment: a copy of all of them, each up to its
    /// size, is a database with everything that was acknowledged before this call, but for what was
    /// written with `disable_wal` and was not flushed. Blocks: it may flush, and writes out the
    /// log.
    ///
    /// Files may be removed as soon as nobody needs them, so call [`Db::disable_file_deletions`]
    /// before and [`Db::enable_file_deletions`] when they are copied. IDENTITY is not among them: a
    /// copy gets its own. A log goes into the directory of the copy, wherever it is now.
    ///
    /// # Errors
    /// The database is open for reading only or closed; memtables cannot be flushed, or the log not
    /// be written.
    pub fn live_files_storage_info(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<DatabaseFile>> {
        block_on(self.env(), self.live_files_storage_info_async(options))
    }

    /// The asynchronous form of [`Db::live_files_storage_info`]. It may be dropped.
    ///
    /// # Errors
    /// As [`Db::live_files_storage_info`].
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
        // Why elsewhere: whoever changes options may be writing them.
        let (moment, options_file) = env.run_blocking(move |_| look()).await;
        // Invariant: behind the look at the MANIFEST; see the module's head.
        write.pipeline.flush_wal(false).await?;
        let written = write.pipeline.written_logs().await?;
        // Why once more otherwise: the logs may have a part of a batch whose other part is of a
        // family that this MANIFEST has not, or what came behind files that were ingested since, or
        // lack what a recovery of the log put into tables.
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

/// Tables and blob files.
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

/// MANIFEST, CURRENT and OPTIONS.
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

/// The logs up to the newest of `written`, of which those named there have so many bytes. The
/// others have ended, and are as long as their files.
async fn logs(db: &Db, moment: &Moment, written: Vec<(FileNumber, u64)>) -> Result<Vec<DatabaseFile>> {
    let directory = match db.options().wal_dir.as_str() {
        "" => db.path().clone(),
        elsewhere => PathBuf::from(elsewhere),
    };
    let newest = written.last().map(|(number, _)| *number).unwrap_or_default();
    let oldest = moment.logs.first().copied().unwrap_or(newest).min(newest);
    // Why by their names: one that came since the look at the MANIFEST may be needed by nobody else
    // already. Why not those above: a log that was made ahead has nothing yet.
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
