//! Restoring a database from a backup.
//!
//! In: a backup, directories. Out: the database in them, replacing an existing one.
//!
//! Invariant: CURRENT is removed first and written last, so an incomplete database is never taken
//! for a complete one.

use super::meta::{BackupFile, SHARED_CHECKSUM};
use super::{
    BackupEngine, Pace, RestoreMode, RestoreOptions, check_crc, check_size, has_same_end, session_for_name,
};
use crate::claims::{Claimant, Claims};
use crate::copies::checkpoint::with_wal_dir;
use crate::copies::copying::{self, Halt, Manner};
use crate::open::wanted::DEFAULT;
use crate::open::{BlockCache, Directory, new_family_options, take_lock};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::sync::Mutex;
use karst_commit::wal::archive::{archive_of, archived, logs_in};
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{SeqNo, TRAILER_BYTES};
use karst_format::options::{OptionSet, OptionsFile, UnknownOptions};
use karst_format::version_edit::NewFile;
use karst_io::{Env, FileLock, block_on};
use karst_lsm::FileMetadata;
use karst_mem::CacheOptions;
use karst_storage::open_files::Shared;
use karst_storage::table::cache::TableCache;
use karst_storage::table::verify;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl BackupEngine {
    /// Restores the database of a backup into `db_dir`, and its logs into `wal_dir`, which may be
    /// the same. Files of an existing database are removed, other files stay. Waits on the calling
    /// thread until all of it is durable.
    ///
    /// Each file is verified while it is copied. The restored OPTIONS file gets the `wal_dir` given
    /// here.
    ///
    /// # Errors
    /// `NotFound`: there is no such backup. `Locked`: a database is open in a directory.
    /// `InvalidArgument`: one of the directories belongs to another database, or `wal_dir` has logs
    /// that cannot be shown to belong to the database in `db_dir`; no file is removed then.
    /// `Corruption`: a file of the backup is missing or damaged; missing ones are found before any
    /// file is removed. `Io`, `NoSpace`: a file could not be read or written. Unless the backup was
    /// found damaged before, the directory has no database then.
    pub fn restore_db_from_backup(
        &self,
        backup_id: u32,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        self.restore_blocking(backup_id, db_dir.as_ref(), wal_dir.as_ref(), options)
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn restore_blocking(
        &self,
        backup_id: u32,
        db_dir: &Path,
        wal_dir: &Path,
        options: &RestoreOptions,
    ) -> Result<()> {
        block_on(&self.env, self.restore_db_from_backup_async(backup_id, db_dir, wal_dir, options))
    }

    /// Restores the newest backup.
    ///
    /// # Errors
    /// Those of [`restore_db_from_backup`](Self::restore_db_from_backup); `NotFound`: there is no
    /// backup.
    pub fn restore_db_from_latest_backup(
        &self,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        let latest = self.backups.keys().next_back().copied();
        let latest = latest.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no backup"))?;
        self.restore_blocking(latest, db_dir.as_ref(), wal_dir.as_ref(), options)
    }

    /// The asynchronous form of [`restore_db_from_backup`](Self::restore_db_from_backup). If it is
    /// dropped, its jobs end soon, and the destination is locked until then; it then has no
    /// database, or, if the restore was complete, the restored one.
    ///
    /// # Errors
    /// Those of [`restore_db_from_backup`](Self::restore_db_from_backup).
    pub async fn restore_db_from_backup_async(
        &self,
        backup_id: u32,
        db_dir: &Path,
        wal_dir: &Path,
        options: &RestoreOptions,
    ) -> Result<()> {
        let told =
            |error: Error| error.in_context(format!("restoring backup {backup_id} to {}", db_dir.display()));
        let files = self.backup(backup_id)?.files.clone();
        let to =
            Target { db: db_dir.to_owned(), wal: wal_dir.to_owned(), keeps_logs: options.keep_log_files };
        self.restore(files, to, options.mode).await.map_err(told)
    }

    async fn restore(&self, files: Vec<BackupFile>, to: Target, mode: RestoreMode) -> Result<()> {
        let mut named = Vec::new();
        for file in files {
            // Invariant: every path of a `meta` file has a restored name.
            let name = file.restored_name().expect("it was parsed");
            named.push((file, name));
        }
        let current = FileName::Current.to_string();
        let Some(at) = named.iter().position(|(_, name)| *name == current) else {
            return Err(Error::new(ErrorKind::Corruption, "the backup has no CURRENT"));
        };
        let directory = self.options.backup_dir.clone();
        let (checked, target) = (named.clone(), to.clone());
        let begun = self.env.run_blocking(move |env| {
            for (file, _) in &checked {
                check_size(env, &directory.join(&file.path), file)?;
            }
            target.lock(env)
        });
        // Shared, so that the destination stays locked while any job writes there, even if the
        // caller is gone.
        let lock: Arc<Locks> = Arc::new(begun.await?);
        let last = named.swap_remove(at);
        let stays = Arc::new(self.stays(&named, &to, mode, &lock).await?);
        named.retain(|(_, name)| !stays.contains(name));
        let (target, locked) = (to.clone(), lock.clone());
        let cleared = move |env: &Env| {
            let _locked = locked;
            target.clear(env, &stays)
        };
        self.env.run_blocking(cleared).await?;
        let (kept, manner) = (lock.clone(), self.options.manner());
        let pace = Pace::of(self.options.restore_rate_limiter.as_ref());
        let (directory, target) = (self.options.backup_dir.clone(), to.clone());
        let copy = move |env: &Env, (file, name): &(BackupFile, String), stop: &Halt| {
            let _locked = &kept;
            match target.has_log(env, name, &directory.join(&file.path))? {
                true => Ok(()),
                false if matches!(FileName::parse(name), Some(FileName::Options(_))) => {
                    target.put_options(env, &directory, file, name, (stop, manner))
                }
                false => put(env, &directory, file, &target.path(name), (stop, &pace, manner)),
            }
        };
        self.in_parallel(self.stop.clone(), named, copy).await?;
        let directory = self.options.backup_dir.clone();
        copying::run(&self.env, self.stop.child(), move |env, stop| {
            let _locked = lock;
            let fs = env.fs();
            if manner.sync {
                fs.sync_dir(&to.wal)?;
            }
            let temporary = to.db.join(FileName::Temp(FileNumber(0)).to_string());
            put(env, &directory, &last.0, &temporary, (stop, &Pace::of(None), manner))?;
            // Before the rename, because CURRENT must not become durable without the name of the
            // MANIFEST.
            if manner.sync {
                fs.sync_dir(&to.db)?;
            }
            stop.check()?;
            fs.rename(&temporary, &to.db.join(last.1))?;
            match manner.sync {
                true => Ok(fs.sync_dir(&to.db)?),
                false => Ok(()),
            }
        })
        .await
    }

    /// Returns the files of the existing database that equal the backup's, and need no copying.
    async fn stays(
        &self,
        named: &[(BackupFile, String)],
        to: &Target,
        mode: RestoreMode,
        lock: &Arc<Locks>,
    ) -> Result<BTreeSet<String>> {
        let may_stay = |name: &str| match FileName::parse(name) {
            Some(FileName::Table(_)) => mode != RestoreMode::PurgeAllFiles,
            Some(FileName::Blob(_)) => mode == RestoreMode::VerifyChecksum,
            _ => false,
        };
        let named: Vec<_> = named.iter().filter(|(_, name)| may_stay(name)).cloned().collect();
        let found = Arc::new(Mutex::new(BTreeSet::new()));
        let (stays, lock, target) = (found.clone(), lock.clone(), to.clone());
        let (directory, tables) = (self.options.backup_dir.clone(), tables_in(&self.env, &to.db)?);
        let look = move |env: &Env, (file, name): &(BackupFile, String), stop: &Halt| {
            let _locked = &lock;
            let there = target.path(name);
            let is_same = match mode {
                RestoreMode::KeepLatestDbSessionIdFiles => {
                    is_of_session(env, &tables, (&directory, file), name, &there)
                }
                _ => has_content(env, &directory, file, &there, stop),
            };
            // An error counts as different, because the file is copied then.
            if is_same.unwrap_or(false) {
                stays.lock().insert(name.clone());
            }
            stop.check()
        };
        self.in_parallel(self.stop.clone(), named, look).await?;
        Ok(std::mem::take(&mut *found.lock()))
    }
}

/// Returns a table cache that reads the properties of any table in a directory.
fn tables_in(env: &Env, directory: &Path) -> Result<Arc<TableCache>> {
    let cache = BlockCache::with_options(CacheOptions::default()).shared().clone();
    let statistics = Arc::new(Statistics::new(StatsLevel::DisableAll));
    let places = vec![directory.to_owned()];
    let shared = Shared::new(env.clone(), cache, statistics, places, &DbOptions::default(), false);
    let (id, options) = (ColumnFamilyId::DEFAULT, new_family_options());
    let config = FamilyConfig::resolve(id, DEFAULT, options, None, Default::default())?;
    Ok(Arc::new(TableCache::new(Arc::new(shared), &config, None)))
}

/// True if a table has the session and the size in the name of the backup's table, and the same
/// properties. Blocks.
fn is_of_session(
    env: &Env,
    tables: &Arc<TableCache>,
    (backups, file): (&Path, &BackupFile),
    name: &str,
    there: &Path,
) -> Result<bool> {
    let (Some(FileName::Table(number)), Some((stem, extension))) =
        (FileName::parse(name), name.rsplit_once('.'))
    else {
        return Ok(false);
    };
    let size = env.fs().metadata(there)?.len;
    let nothing = || vec![0; TRAILER_BYTES];
    let unknown = NewFile::new(number, size, nothing(), nothing(), SeqNo::ZERO, SeqNo::ZERO);
    let properties = block_on(env, verify::properties(tables, &FileMetadata::new(unknown)))?;
    let Some(session) = session_for_name(&properties, number) else { return Ok(false) };
    Ok(file.path == format!("{SHARED_CHECKSUM}/{stem}_s{session}_{size}.{extension}")
        && has_same_end(env, &backups.join(&file.path), there)?)
}

/// Returns true if a file has the same content as the backup's. Blocks.
fn has_content(env: &Env, backups: &Path, file: &BackupFile, there: &Path, stop: &Halt) -> Result<bool> {
    if file.known_size().is_some_and(|size| env.fs().metadata(there).is_ok_and(|found| found.len != size)) {
        return Ok(false);
    }
    let sum = |path: &Path| copying::read(env, path, None, stop, |_| Ok(()));
    let found = sum(there)?;
    match file.crc32c {
        Some(expected) => Ok(found.crc32c == expected),
        None => Ok(found == sum(&backups.join(&file.path))?),
    }
}

/// Copies a file of a backup, and verifies it. Blocks.
fn put(
    env: &Env,
    backups: &Path,
    file: &BackupFile,
    to: &Path,
    (stop, pace, manner): (&Halt, &Pace, Manner),
) -> Result<()> {
    let from = backups.join(&file.path);
    let moved = |chunk: &[u8]| pace.moves(env, chunk.len() as u64);
    let copied = copying::copy_in(env, &from, to, None, (stop, manner), moved)?;
    match file.crc32c {
        Some(expected) => check_crc(&from, copied.crc32c, expected),
        None => Ok(()),
    }
}

/// The locks on a place where a database is restored. The lock on its own directory is dropped
/// last, because the next opener that gets it needs the others too.
type Locks = (Claims, Box<dyn FileLock>);

/// Destination of a restore.
#[derive(Clone)]
struct Target {
    db: PathBuf,
    wal: PathBuf,
    keeps_logs: bool,
}

impl Target {
    fn path(&self, name: &str) -> PathBuf {
        match FileName::parse(name) {
            Some(FileName::Wal(_)) => self.wal.join(name),
            _ => self.db.join(name),
        }
    }

    /// Returns true if a log to keep exists and is at least as long as the backup's at `backed_up`.
    /// Blocks.
    fn has_log(&self, env: &Env, name: &str, backed_up: &Path) -> Result<bool> {
        let (fs, there) = (env.fs(), self.path(name));
        if !self.keeps_logs
            || !matches!(FileName::parse(name), Some(FileName::Wal(_)))
            || !fs.exists(&there)?
        {
            return Ok(false);
        }
        Ok(fs.metadata(&there)?.len >= fs.metadata(backed_up)?.len)
    }

    /// True if logs are in the database's directory.
    fn has_own_logs(&self, env: &Env) -> bool {
        env.fs().canonical(&self.wal) == env.fs().canonical(&self.db)
    }

    /// Creates the destination directories, and locks them. Blocks.
    fn lock(&self, env: &Env) -> Result<Locks> {
        let fs = env.fs();
        fs.create_dir_durably(&self.db)?;
        fs.create_dir_durably(&self.wal)?;
        let lock = take_lock(env, &self.db)?;
        let claims = Claims::default();
        if !self.has_own_logs(env) {
            self.check_logs(env)?;
            // Without an id, because the restored database may get another one when it is opened.
            claims.add(env, Claimant { path: &self.db, id: None }, [self.wal.clone()])?;
        }
        Ok((claims, lock))
    }

    /// Returns an error if a separate log directory has logs that would be removed, and that cannot
    /// be shown to belong to the replaced database. Blocks.
    fn check_logs(&self, env: &Env) -> Result<()> {
        let claimant = Claimant { path: &self.db, id: None };
        claimant.check(env, &self.wal)?;
        let has_logs = !logs_in(env, &self.wal)?.is_empty() || !archived(env, &self.wal)?.is_empty();
        if self.keeps_logs || !has_logs || claimant.is_owner(env, &self.wal)? {
            return Ok(());
        }
        // Compat: RocksDB leaves no other sign than this option.
        let directory = Directory::list(env, &self.db)?;
        let text = directory.newest_options().map(|name| directory.read(name)).transpose()?;
        let file = text.and_then(|text| OptionsFile::parse(&text, UnknownOptions::Keep).ok());
        let named = file.map(|file| PathBuf::from(file.db.wal_dir));
        if named.is_some_and(|named| env.fs().canonical(&named) == env.fs().canonical(&self.wal)) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "{}: the directory has logs that may belong to another database than the one in {}; remove them first if they are not needed, or restore with keep_log_files",
            self.wal.display(),
            self.db.display()
        )))
    }

    /// Copies an OPTIONS file, and sets the directory of the logs in it. Blocks.
    fn put_options(
        &self,
        env: &Env,
        backups: &Path,
        file: &BackupFile,
        name: &str,
        (stop, manner): (&Halt, Manner),
    ) -> Result<()> {
        let from = backups.join(&file.path);
        let mut text = Vec::new();
        let read = copying::read(env, &from, None, stop, |chunk| {
            text.extend_from_slice(chunk);
            Ok(())
        })?;
        if let Some(expected) = file.crc32c {
            check_crc(&from, read.crc32c, expected)?;
        }
        let mut told = DbOptions::default();
        if !self.has_own_logs(env) {
            // Canonical, because the database may be opened in another working directory.
            told.wal_dir = env.fs().canonical(&self.wal).to_string_lossy().into_owned();
        }
        let wal_dir = told.get("wal_dir").unwrap_or_default();
        let changed = with_wal_dir(&text, &wal_dir).map_err(|e| e.in_context(from.display()))?;
        copying::write_in(env, &self.path(name), &changed, manner)
    }

    /// Removes the existing database, except for files that stay. Blocks.
    fn clear(&self, env: &Env, stays: &BTreeSet<String>) -> Result<()> {
        let fs = env.fs();
        let current = self.db.join(FileName::Current.to_string());
        if fs.exists(&current)? {
            fs.remove(&current)?;
            fs.sync_dir(&self.db)?;
        }
        for log in archived(env, &self.wal)? {
            let name = FileName::Wal(log).to_string();
            let old = archive_of(&self.wal).join(&name);
            match self.keeps_logs {
                true => fs.rename(&old, &self.wal.join(name))?,
                false => fs.remove(&old)?,
            }
        }
        for name in fs.list_dir(&self.db)? {
            let gone = match FileName::parse(&name) {
                Some(FileName::Wal(_)) => !self.keeps_logs,
                Some(FileName::Lock | FileName::InfoLog | FileName::OldInfoLog(_)) | None => false,
                Some(_) => !stays.contains(&name),
            };
            if gone {
                fs.remove(&self.db.join(name))?;
            }
        }
        if !self.keeps_logs && !self.has_own_logs(env) {
            for log in logs_in(env, &self.wal)? {
                fs.remove(&self.wal.join(FileName::Wal(log).to_string()))?;
            }
        }
        Ok(())
    }
}
