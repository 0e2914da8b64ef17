//! [`BackupEngine`]: backups of a database that share files, in RocksDB's own layout.
//!
//! In: open databases, and a directory. Out: numbered backups in it; databases restored from them.
//!
//! | in the directory | is |
//! |---|---|
//! | `meta/N` | the list of files of backup N ([`meta`]); its last byte completes the backup |
//! | `private/N/` | files of backup N alone: CURRENT, MANIFEST, OPTIONS, logs |
//! | `shared_checksum/` | tables and blob files that backups share, with names that distinguish databases |
//! | `shared/` | tables that backups of one database share, named by number only |
//! | `BACKUP_LOCK` | held while an engine has the directory open for writing |
//!
//! A table in `shared_checksum` has the name `000018_sTTY7K99WO3LMXWY7OTP2_1010.sst`: its number,
//! the session that wrote it, its size. A blob file, a table without a session, and one that had
//! another number in that session, have their CRC32c in place of the session; [`ShareFilesNaming`]
//! has the other names. An incomplete file has a `.` before its name and `.tmp` after it.
//!
//! Invariants:
//! - A backup exists once `meta/N` does, and then all files that it names are durable.
//! - Files named by a backup do not change, and are removed only after the last `meta` file that
//!   names them.
//! - While a `meta` file cannot be read, no shared file is removed, because it may belong to that
//!   backup.
//!
//! Compat: RocksDB 7.8 and 11.8; schema version 1 by default, or 2. They do not know `BACKUP_LOCK`.

mod create;
mod meta;
mod restore;
mod workers;

use super::copying::{self, Halt, Manner};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::pacing::{IoPriority, RateLimiter};
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::properties::TableProperties;
use karst_io::{CpuPriority, Env, FileLock, OpenOptions, block_on};
use meta::{BackupFile, Meta, PRIVATE, SHARED, SHARED_CHECKSUM, restored_name};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workers::Workers;

/// Database id in tables that were written for ingestion.
const INGESTED: &str = "SST Writer";
/// Directory of the `meta` files.
const META: &str = "meta";
/// Lock file. Not named `LOCK`, because a database may use this directory too, and locks that file
/// while it is open.
const LOCK: &str = "BACKUP_LOCK";

/// Callback that is invoked periodically while a backup is made.
pub type BackupProgress = Arc<dyn Fn() + Send + Sync>;

/// Naming scheme of files in `shared_checksum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareFilesNaming {
    /// Number, CRC32c and size. Each backup reads every table to compute the CRC, and two tables
    /// may get the same name.
    LegacyCrc32cAndFileSize,
    /// Tables by number and the session that wrote them; blob files, tables without a session, and
    /// ingested or imported tables use the legacy scheme.
    UseDbSessionId {
        /// True if the size follows the session.
        include_file_size: bool,
    },
}

/// Options of a backup engine, with RocksDB's names and defaults.
#[derive(Clone, Debug)]
pub struct BackupEngineOptions {
    /// The directory of backups.
    pub backup_dir: PathBuf,
    /// Share tables and blob files between backups; otherwise each backup has its own. Default
    /// true.
    pub share_table_files: bool,
    /// Give shared files names that distinguish different databases. If false, a directory is for
    /// one database only. Default true.
    pub share_files_with_checksum: bool,
    /// Back up logs. If false, unflushed entries are missing. Default true.
    pub backup_log_files: bool,
    /// Remove existing backups when the engine is opened. Default false.
    pub destroy_old_data: bool,
    /// Number of files copied or verified concurrently. Default 1.
    pub max_background_operations: usize,
    /// Bytes between two calls of the progress callback. Default 4 MiB.
    pub callback_trigger_interval_size: u64,
    /// Maximum bytes a second written by backups; 0, the default, is no limit. Ignored if
    /// `backup_rate_limiter` is set.
    pub backup_rate_limit: u64,
    /// Rate limiter of backup writes. Default none.
    pub backup_rate_limiter: Option<RateLimiter>,
    /// Maximum bytes a second written by restores; 0, the default, is no limit. Ignored if
    /// `restore_rate_limiter` is set.
    pub restore_rate_limit: u64,
    /// Rate limiter of restore writes. Default none.
    pub restore_rate_limiter: Option<RateLimiter>,
    /// Make backups and restored databases durable before the call returns. If false, a power
    /// failure may damage the newest one, but no earlier backup. Default true.
    pub sync: bool,
    /// Bytes per read and write; 0, the default, is 1 MiB.
    pub io_buffer_size: usize,
    /// Maximum number of the newest intact backups that an engine for reading loads. An engine for
    /// writing loads all. Default all.
    pub max_valid_backups_to_open: usize,
    /// Schema of `meta` files, 1 or 2. Releases before 7.0 do not read schema 2. Default 1.
    pub schema_version: u32,
    /// Naming scheme of shared files. Default session and size.
    pub share_files_with_checksum_naming: ShareFilesNaming,
}

impl BackupEngineOptions {
    /// Returns the defaults, for backups in `backup_dir`.
    pub fn new(backup_dir: impl Into<PathBuf>) -> Self {
        Self {
            backup_dir: backup_dir.into(),
            share_table_files: true,
            share_files_with_checksum: true,
            backup_log_files: true,
            destroy_old_data: false,
            max_background_operations: 1,
            callback_trigger_interval_size: 4 << 20,
            backup_rate_limit: 0,
            backup_rate_limiter: None,
            restore_rate_limit: 0,
            restore_rate_limiter: None,
            sync: true,
            io_buffer_size: 0,
            max_valid_backups_to_open: usize::MAX,
            schema_version: 1,
            share_files_with_checksum_naming: ShareFilesNaming::UseDbSessionId { include_file_size: true },
        }
    }

    /// Returns the chunk size and syncing of file copies.
    fn manner(&self) -> Manner {
        let usual = Manner::default();
        let chunk_bytes = if self.io_buffer_size == 0 { usual.chunk_bytes } else { self.io_buffer_size };
        Manner { chunk_bytes, sync: self.sync }
    }

    /// Returns the options with a limiter for each limit that has none.
    fn with_limiters(&self) -> BackupEngineOptions {
        let of = |limit: u64| (limit > 0).then(|| RateLimiter::new(limit));
        let mut options = self.clone();
        options.backup_rate_limiter = options.backup_rate_limiter.or_else(|| of(self.backup_rate_limit));
        options.restore_rate_limiter = options.restore_rate_limiter.or_else(|| of(self.restore_rate_limit));
        options
    }
}

/// Options of one backup.
#[derive(Clone, Default)]
pub struct CreateBackupOptions {
    /// Flush memtables first, so that entries written with `disable_wal` are included. Default
    /// false.
    pub flush_before_backup: bool,
    /// Flush all column families in one change, so that a backup without logs is one state of all
    /// of them. Default false.
    pub atomic_flush: bool,
    /// Called each time that another `callback_trigger_interval_size` bytes were copied, on a
    /// copying thread.
    pub progress_callback: Option<BackupProgress>,
    /// The user's metadata, stored with the backup. Default empty.
    pub app_metadata: Vec<u8>,
    /// Make the engine copy on dedicated threads with `background_thread_cpu_priority` from now on,
    /// unless they already have a lower one. Default false.
    pub decrease_background_thread_cpu_priority: bool,
    /// Priority for `decrease_background_thread_cpu_priority`. Default normal.
    pub background_thread_cpu_priority: CpuPriority,
}

impl std::fmt::Debug for CreateBackupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateBackupOptions")
            .field("flush_before_backup", &self.flush_before_backup)
            .field("atomic_flush", &self.atomic_flush)
            .field("app_metadata", &self.app_metadata)
            .field("decrease_background_thread_cpu_priority", &self.decrease_background_thread_cpu_priority)
            .field("background_thread_cpu_priority", &self.background_thread_cpu_priority)
            .finish_non_exhaustive()
    }
}

/// Files of an existing database in the destination that a restore keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreMode {
    /// Keep tables that the backup has under the same number, session and size, if the last 16 KiB
    /// of both are the same; no other bytes are read. Suitable if files may be missing, but none is
    /// damaged. Files with other naming schemes than the default ([`ShareFilesNaming`]), and
    /// ingested or imported ones, are not kept.
    KeepLatestDbSessionIdFiles,
    /// Keep tables and blob files with the same content as in the backup. All of them are read.
    VerifyChecksum,
    /// Keep no database files.
    #[default]
    PurgeAllFiles,
}

/// Options of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Keep existing logs in the destination and move archived ones back, to be replayed by the
    /// next opening: for backups without logs, to recover later writes. Default false.
    pub keep_log_files: bool,
    /// Existing files that are not copied. Default none.
    pub mode: RestoreMode,
}

/// Metadata of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupInfo {
    /// Number of the backup.
    pub backup_id: u32,
    /// Time of the backup, in seconds of Unix time.
    pub timestamp: u64,
    /// Newest sequence number of the database at that time.
    pub sequence_number: u64,
    /// Size in bytes of all its files, including shared ones.
    pub size: u64,
    /// Number of its files.
    pub number_files: usize,
    /// The user's metadata.
    pub app_metadata: Vec<u8>,
}

/// Creates, lists, verifies, restores and removes backups. Only one engine at a time has a
/// directory open for writing; any number may have it open for reading.
///
/// ```
/// # use karst_engine as karstdb;
/// use karstdb::io::Env;
/// use karstdb::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Options, RestoreOptions};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("db");
/// # let (backups, restored) = (directory.path().join("backups"), directory.path().join("restored"));
/// let db = Db::open(&path, &Options::new().db(|db| db.create_if_missing = true))?;
/// db.put("apple", "ripe")?;
/// let mut engine = BackupEngine::open(&BackupEngineOptions::new(backups), &Env::posix())?;
/// let first = engine.create_new_backup(&db, &CreateBackupOptions::default())?;
/// db.put("apple", "rotten")?;
/// engine.create_new_backup(&db, &CreateBackupOptions::default())?; // copies only what is new
///
/// engine.verify_backup(first, true)?;
/// engine.restore_db_from_backup(first, &restored, &restored, &RestoreOptions::default())?;
/// let restored = Db::open(&restored, &Options::new())?;
/// assert_eq!(restored.get("apple")?.as_deref(), Some(&b"ripe"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BackupEngine {
    env: Env,
    options: BackupEngineOptions,
    backups: BTreeMap<u32, Meta>,
    /// Backups whose `meta` file is unusable, with the error.
    corrupt: BTreeMap<u32, Error>,
    /// Largest number assigned so far, including to failed backups.
    last_id: u32,
    workers: Workers,
    stop: Halt,
    /// Priority of the copying threads.
    cpu_priority: CpuPriority,
    /// `None` if the engine is open for reading.
    lock: Option<Arc<Box<dyn FileLock>>>,
}

/// Stops an engine from any thread; see [`BackupEngine::stopper`].
#[derive(Clone, Debug)]
pub struct StopBackup(Halt);

impl StopBackup {
    /// Makes the engine's current and all later operations fail with `Incomplete`. Does not wait.
    pub fn stop_backup(&self) {
        self.0.stop();
    }
}

impl BackupEngine {
    /// Opens a directory of backups for reading and writing, and creates it if missing. Files of
    /// unfinished backups are removed. Blocks.
    ///
    /// # Errors
    /// `Locked`: another engine has it open for writing. `Io`, `NoSpace`: it cannot be read or
    /// written.
    pub fn open(options: &BackupEngineOptions, env: &Env) -> Result<BackupEngine> {
        let fs = env.fs();
        let directory = &options.backup_dir;
        for part in [META, PRIVATE, SHARED, SHARED_CHECKSUM] {
            fs.create_dir_durably(&directory.join(part))?;
        }
        let lock = fs.lock(&directory.join(LOCK)).map_err(|e| match e.is_locked() {
            true => Error::from(e).with_advice("another engine has the directory open"),
            false => Error::from(e),
        })?;
        let mut engine = Self::read(options, env, usize::MAX)?;
        engine.lock = Some(Arc::new(lock));
        if options.destroy_old_data {
            engine.purge_old_backups(0)?;
            for id in std::mem::take(&mut engine.corrupt).into_keys() {
                engine.env.fs().remove(&engine.meta_path(id))?;
            }
        }
        engine.garbage_collect()?;
        Ok(engine)
    }

    /// Opens a directory of backups to list, verify and restore them. Nothing in it is changed.
    /// Blocks.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open_read_only(options: &BackupEngineOptions, env: &Env) -> Result<BackupEngine> {
        Self::read(options, env, options.max_valid_backups_to_open)
    }

    fn read(options: &BackupEngineOptions, env: &Env, most: usize) -> Result<BackupEngine> {
        let mut engine = BackupEngine {
            env: env.clone(),
            options: options.with_limiters(),
            backups: BTreeMap::new(),
            corrupt: BTreeMap::new(),
            last_id: 0,
            workers: Workers::default(),
            stop: Halt::default(),
            cpu_priority: CpuPriority::Normal,
            lock: None,
        };
        engine.look(most)?;
        for name in env.fs().list_dir(&engine.path(PRIVATE))? {
            engine.last_id = engine.last_id.max(name.trim_end_matches(".tmp").parse().unwrap_or(0));
        }
        Ok(engine)
    }

    /// Loads the existing backups, but only the newest `most` of the intact ones. Blocks.
    fn look(&mut self, most: usize) -> Result<()> {
        let (mut backups, mut corrupt) = (BTreeMap::new(), BTreeMap::new());
        let names = self.env.fs().list_dir(&self.path(META))?;
        let mut ids: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
        ids.sort_unstable();
        self.last_id = self.last_id.max(ids.last().copied().unwrap_or(0));
        for id in ids.into_iter().rev() {
            if backups.len() == most {
                break;
            }
            let path = self.meta_path(id);
            let read = self.env.fs().read_file(&path).map_err(Error::from);
            let parsed =
                read.and_then(|text| Meta::parse(&text).map_err(|what| Error::corruption_at(&path, 0, what)));
            match parsed {
                Ok(meta) => drop(backups.insert(id, meta)),
                Err(error) => drop(corrupt.insert(id, error)),
            }
        }
        (self.backups, self.corrupt) = (backups, corrupt);
        Ok(())
    }

    /// Returns the backups, ordered by number, except those whose `meta` file is unusable. Reads
    /// the files' sizes, and blocks.
    pub fn get_backup_info(&self) -> Vec<BackupInfo> {
        self.backups.iter().map(|(id, meta)| self.info(*id, meta)).collect()
    }

    fn info(&self, id: u32, meta: &Meta) -> BackupInfo {
        let size = |file: &BackupFile| {
            let found = || self.env.fs().metadata(&self.path(&file.path)).ok().map(|found| found.len);
            file.known_size().or_else(found).unwrap_or(0)
        };
        BackupInfo {
            backup_id: id,
            timestamp: meta.timestamp,
            sequence_number: meta.sequence,
            size: meta.files.iter().map(size).sum(),
            number_files: meta.files.len(),
            app_metadata: meta.app_metadata.clone(),
        }
    }

    /// Returns the backups whose `meta` file is unusable, with the error.
    pub fn get_corrupted_backups(&self) -> Vec<(u32, Error)> {
        self.corrupt.iter().map(|(id, error)| (*id, error.clone())).collect()
    }

    /// Returns a handle that stops this engine during a call.
    pub fn stopper(&self) -> StopBackup {
        StopBackup(self.stop.clone())
    }

    /// Verifies that all files of a backup exist with their sizes, and, with
    /// `verify_with_checksum`, their content, by reading them. Waits on the calling thread.
    ///
    /// # Errors
    /// `NotFound`: there is no such backup. `Corruption`: the first file that is missing or differs
    /// from its backed up content.
    pub fn verify_backup(&self, backup_id: u32, verify_with_checksum: bool) -> Result<()> {
        block_on(&self.env, self.verify_backup_async(backup_id, verify_with_checksum))
    }

    /// The asynchronous form of [`verify_backup`](Self::verify_backup). It may be dropped.
    ///
    /// # Errors
    /// Those of [`verify_backup`](Self::verify_backup).
    pub async fn verify_backup_async(&self, backup_id: u32, verify_with_checksum: bool) -> Result<()> {
        let files = self.backup(backup_id)?.files.clone();
        let directory = self.options.backup_dir.clone();
        let verify = move |env: &Env, file: &BackupFile, stop: &Halt| {
            let path = directory.join(&file.path);
            check_size(env, &path, file)?;
            match (file.crc32c, verify_with_checksum) {
                (Some(expected), true) => {
                    check_crc(&path, copying::read(env, &path, None, stop, |_| Ok(()))?.crc32c, expected)
                }
                _ => Ok(()),
            }
        };
        self.in_parallel(Halt::default(), files, verify).await
    }

    /// Removes all backups but the newest `keep`. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: the engine is open for reading. `Io`: a file could not be removed; each
    /// backup is removed completely or not at all, and [`garbage_collect`](Self::garbage_collect)
    /// removes remaining files.
    pub fn purge_old_backups(&mut self, keep: usize) -> Result<()> {
        let old = self.backups.len().saturating_sub(keep);
        let old: Vec<u32> = self.backups.keys().copied().take(old).collect();
        self.delete(&old)
    }

    /// Removes a backup, which may be corrupt. Blocks.
    ///
    /// # Errors
    /// `NotFound`: it does not exist. Otherwise those of
    /// [`purge_old_backups`](Self::purge_old_backups).
    pub fn delete_backup(&mut self, backup_id: u32) -> Result<()> {
        if !self.corrupt.contains_key(&backup_id) {
            self.backup(backup_id)?;
        }
        self.delete(&[backup_id])
    }

    fn delete(&mut self, ids: &[u32]) -> Result<()> {
        self.check_writable()?;
        if ids.is_empty() {
            return Ok(());
        }
        for id in ids {
            self.env.fs().remove(&self.meta_path(*id))?;
            self.backups.remove(id);
            self.corrupt.remove(id);
        }
        // Invariant: synced before any file that they name is removed.
        self.env.fs().sync_dir(&self.path(META))?;
        self.garbage_collect()
    }

    /// Removes files that no backup needs: those of unfinished backups and of interrupted removals.
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`purge_old_backups`](Self::purge_old_backups).
    pub fn garbage_collect(&mut self) -> Result<()> {
        self.check_writable()?;
        block_on(&self.env, self.workers.wait());
        // Reads the directory again, because a backup whose caller was dropped at the end may be
        // complete.
        self.look(usize::MAX)?;
        let fs = self.env.fs();
        let files = self.backups.values().flat_map(|meta| &meta.files);
        let needed: BTreeSet<&str> = files.map(|file| &*file.path).collect();
        // Only by the names that backups give, because other files may be in the directory.
        for directory in [SHARED, SHARED_CHECKSUM] {
            for name in fs.list_dir(&self.path(directory))? {
                let path = format!("{directory}/{name}");
                let temporary = unfinished(&name).map(|name| format!("{directory}/{name}"));
                let gone = match &temporary {
                    Some(path) => restored_name(path).is_some(),
                    None => {
                        self.corrupt.is_empty() && !needed.contains(&*path) && restored_name(&path).is_some()
                    }
                };
                if gone {
                    fs.remove(&self.path(&path))?;
                }
            }
        }
        for name in fs.list_dir(&self.path(PRIVATE))? {
            // Compat: a release of RocksDB has had `N.tmp`.
            let Some(id) = number(name.strip_suffix(".tmp").unwrap_or(&name)) else { continue };
            if name == id.to_string() && (self.backups.contains_key(&id) || self.corrupt.contains_key(&id)) {
                continue;
            }
            let directory = self.path(PRIVATE).join(&name);
            for file in fs.list_dir(&directory)? {
                if FileName::parse(unfinished(&file).unwrap_or(&file)).is_some() {
                    fs.remove(&directory.join(file))?;
                }
            }
            // The outcome is ignored, because foreign files stay, and the directory with them.
            let _ = fs.remove_dir(&directory);
        }
        for name in fs.list_dir(&self.path(META))? {
            if unfinished(&name).is_some_and(|name| number(name).is_some()) {
                fs.remove(&self.path(META).join(name))?;
            }
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => Err(Error::invalid_argument("the directory of backups is open for reading only")),
        }
    }

    fn backup(&self, id: u32) -> Result<&Meta> {
        if let Some(error) = self.corrupt.get(&id) {
            return Err(error.clone());
        }
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no backup {id}"));
        self.backups.get(&id).ok_or_else(missing)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.options.backup_dir.join(below)
    }

    fn meta_path(&self, id: u32) -> PathBuf {
        self.path(META).join(id.to_string())
    }

    /// Runs `work` on each of `items`, with as many threads as the options allow. The first failure
    /// stops the others soon.
    async fn in_parallel<T: Send + 'static>(
        &self,
        stop: Halt,
        items: Vec<T>,
        work: impl Fn(&Env, &T, &Halt) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let queue = Arc::new(Mutex::new(VecDeque::from(items)));
        let work = Arc::new(work);
        let stop = stop.child();
        let _waits = copying::GivenUp(stop.clone());
        let failed = Arc::new(Mutex::new(None));
        let mut jobs = Vec::new();
        for _ in 0..self.options.max_background_operations.max(1) {
            let (queue, work, stop, failed) = (queue.clone(), work.clone(), stop.clone(), failed.clone());
            let at_work = self.workers.enter(self.lock.clone());
            let job = move |env: &Env| {
                let _at_work = at_work;
                // Dropped before `_at_work`, so that their resources are released before the job
                // counts as ended.
                let (queue, work) = (queue, work);
                loop {
                    let Some(item) = queue.lock().pop_front() else { return };
                    let done = stop.check().and_then(|()| work(env, &item, &stop));
                    if let Err(error) = done {
                        queue.lock().clear();
                        failed.lock().get_or_insert(error);
                    }
                }
            };
            // On a dedicated thread for a lowered priority, because a thread that was lowered stays
            // so.
            jobs.push(match self.cpu_priority {
                CpuPriority::Normal | CpuPriority::High => self.env.run_blocking(job),
                lower => self.env.run_lowered("karst-backup", lower, job)?,
            });
        }
        for job in jobs {
            job.await;
        }
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)
    }
}

/// Waits for a rate limiter and reports progress. Blocks.
#[derive(Clone)]
struct Pace {
    limiter: Option<RateLimiter>,
    progress: Option<BackupProgress>,
    every: u64,
    moved: Arc<AtomicU64>,
}

impl Pace {
    fn of(limiter: Option<&RateLimiter>) -> Pace {
        Pace { limiter: limiter.cloned(), progress: None, every: u64::MAX, moved: Arc::default() }
    }

    /// Called before `bytes` are written.
    fn moves(&self, env: &Env, bytes: u64) {
        if let Some(limiter) = &self.limiter {
            block_on(env, limiter.request(env, bytes, IoPriority::Low));
        }
        let before = self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(progress) = &self.progress
            && before / self.every != (before + bytes) / self.every
        {
            progress();
        }
    }
}

/// Parses the number of a backup. A name such as `007` is not one.
fn number(name: &str) -> Option<u32> {
    name.parse::<u32>().ok().filter(|id| *id > 0 && id.to_string() == name)
}

/// Returns the final name of an incomplete file, or None if it is complete.
fn unfinished(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".tmp")
}

/// Returns the session that may identify a table in its name, or None if it does not identify its
/// content.
///
/// An ingested or imported table has none, because its session gave it another number: a second
/// table of that session can have its number and its size.
fn session_for_name(properties: &TableProperties, number: FileNumber) -> Option<&String> {
    let is_own = properties.orig_file_number == number.0 && properties.db_id != INGESTED;
    Some(&properties.db_session_id).filter(|session| is_own && !session.is_empty())
}

/// True if two tables have the same bytes at their ends: the properties there name the database,
/// the session and the number that a table was written with. Blocks.
fn has_same_end(env: &Env, a: &Path, b: &Path) -> Result<bool> {
    const BYTES: u64 = 16 << 10;
    let end = |path: &Path| {
        let file = env.fs().open_random(path, OpenOptions::BUFFERED)?;
        let from = file.size().saturating_sub(BYTES);
        let bytes = block_on(env, karst_io::read(env, &file, from, (file.size() - from) as usize))?;
        Ok::<_, Error>((file.size(), bytes))
    };
    let ((a_size, a), (b_size, b)) = (end(a)?, end(b)?);
    Ok(a_size == b_size && a[..] == b[..])
}

fn check_size(env: &Env, path: &Path, file: &BackupFile) -> Result<()> {
    let found = env.fs().metadata(path).map_err(|e| match e.is_not_found() {
        true => Error::corruption_at(path, 0, "the file is missing"),
        false => Error::from(e),
    })?;
    match file.known_size() {
        Some(size) if size != found.len => {
            let text = format_args!("the file has {} bytes, and should have {size}", found.len);
            Err(Error::corruption_at(path, 0, text))
        }
        _ => Ok(()),
    }
}

fn check_crc(path: &Path, found: u32, expected: u32) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => {
            let text = format_args!("the checksum of the file is {found:08x}, and should be {expected:08x}");
            Err(Error::corruption_at(path, 0, text))
        }
    }
}
