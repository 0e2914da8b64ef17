//! How a database is restored from a backup.
//!
//! In: a backup, directories. Out: the database in them, in place of what was there.
//!
//! Invariant: CURRENT is removed first and written last, so half a database is never taken for a
//! whole one.

use super::meta::BackupFile;
use super::{BackupEngine, Pace, RestoreOptions, check_crc, check_size};
use crate::copies::copying::{self, Halt};
use karst_base::error::{Error, ErrorKind, Result};
use karst_commit::wal::archive::{archive_of, archived};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::{Env, FileLock, block_on};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl BackupEngine {
    /// Puts the database of a backup into `db_dir`, and its logs into `wal_dir`, which is the same
    /// unless the database's options have another. What a database left there is removed, other
    /// files stay. Waits on the calling thread until all of it is durable.
    ///
    /// Each file is verified while it is copied.
    ///
    /// # Errors
    /// `NotFound`: there is no such backup. `Locked`: a database is open there. `Corruption`: a
    /// file of the backup is missing or is not what was backed up; files are missing before
    /// anything is removed. `Io`, `NoSpace`: something could not be read or written. Unless the
    /// backup was found wrong before, there is no database in the directory then.
    pub fn restore_db_from_backup(
        &self,
        backup_id: u32,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        let restored =
            self.restore_db_from_backup_async(backup_id, db_dir.as_ref(), wal_dir.as_ref(), options);
        block_on(&self.env, restored)
    }

    /// The same of the newest backup.
    ///
    /// # Errors
    /// As [`restore_db_from_backup`](Self::restore_db_from_backup); `NotFound`: there is none.
    pub fn restore_db_from_latest_backup(
        &self,
        db_dir: impl AsRef<Path>,
        wal_dir: impl AsRef<Path>,
        options: &RestoreOptions,
    ) -> Result<()> {
        let latest = self.backups.keys().next_back().copied();
        let latest = latest.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no backup"))?;
        self.restore_db_from_backup(latest, db_dir, wal_dir, options)
    }

    /// The asynchronous form of [`restore_db_from_backup`](Self::restore_db_from_backup). Dropped,
    /// it ends soon, and the place is locked until then; there is no database then, or, if all was
    /// done already, the restored one.
    ///
    /// # Errors
    /// As [`restore_db_from_backup`](Self::restore_db_from_backup).
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
        self.restore(files, to).await.map_err(told)
    }

    async fn restore(&self, files: Vec<BackupFile>, to: Target) -> Result<()> {
        let mut named = Vec::new();
        for file in files {
            // Invariant: every path of a `meta` file has one.
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
            target.clear(env)
        });
        // Why shared: the place stays locked as long as anyone writes there, whoever waits for it.
        let lock = Arc::new(begun.await?);
        let kept = lock.clone();
        let last = named.swap_remove(at);
        let pace = Pace::of(self.options.restore_rate_limiter.as_ref());
        let (directory, target) = (self.options.backup_dir.clone(), to.clone());
        let copy = move |env: &Env, (file, name): &(BackupFile, String), stop: &Halt| {
            let _locked = &kept;
            match target.has_log(env, name, &directory.join(&file.path))? {
                true => Ok(()),
                false => put(env, &directory, file, &target.path(name), stop, &pace),
            }
        };
        self.in_parallel(self.stop.clone(), named, copy).await?;
        let directory = self.options.backup_dir.clone();
        copying::run(&self.env, self.stop.child(), move |env, stop| {
            let _locked = lock;
            let fs = env.fs();
            fs.sync_dir(&to.wal)?;
            let temporary = to.db.join(FileName::Temp(FileNumber(0)).to_string());
            put(env, &directory, &last.0, &temporary, stop, &Pace::of(None))?;
            // Why before: CURRENT shall not outlive the name of what it names.
            fs.sync_dir(&to.db)?;
            stop.check()?;
            fs.rename(&temporary, &to.db.join(last.1))?;
            Ok(fs.sync_dir(&to.db)?)
        })
        .await
    }
}

/// Copies a file of a backup, and verifies it. Blocks.
fn put(env: &Env, backups: &Path, file: &BackupFile, to: &Path, stop: &Halt, pace: &Pace) -> Result<()> {
    let from = backups.join(&file.path);
    let copied = copying::copy(env, &from, to, None, stop, |chunk| pace.moves(env, chunk.len() as u64))?;
    match file.crc32c {
        Some(expected) => check_crc(&from, copied.crc32c, expected),
        None => Ok(()),
    }
}

/// Where a database is restored.
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

    /// Whether a log that stays is there with no less than the backup's at `backed_up`. Blocks.
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

    /// Removes the database that is there. Gives the lock on the place. Blocks.
    fn clear(&self, env: &Env) -> Result<Box<dyn FileLock>> {
        let fs = env.fs();
        fs.create_dir_durably(&self.db)?;
        fs.create_dir_durably(&self.wal)?;
        let lock = fs.lock(&self.db.join(FileName::Lock.to_string())).map_err(|e| match e.is_locked() {
            true => Error::from(e).with_advice("a database is open there"),
            false => Error::from(e),
        })?;
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
        for directory in [&self.db, &self.wal] {
            for name in fs.list_dir(directory)? {
                let gone = match FileName::parse(&name) {
                    Some(FileName::Wal(_)) => !self.keeps_logs,
                    Some(FileName::Lock | FileName::InfoLog | FileName::OldInfoLog(_)) | None => false,
                    Some(_) => true,
                };
                if gone {
                    fs.remove(&directory.join(name))?;
                }
            }
        }
        Ok(lock)
    }
}
