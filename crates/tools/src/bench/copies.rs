//! Workloads backup and restore.

use super::flags::Flags;
use karst_engine::pacing::RateLimiter;
use karst_engine::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, ErrorKind, RestoreOptions, Result,
};
use std::path::PathBuf;

fn limiter(bytes_per_sec: u64) -> Option<RateLimiter> {
    (bytes_per_sec > 0).then(|| RateLimiter::new(bytes_per_sec))
}

fn directory(db: &Db, given: &str, name: &str) -> PathBuf {
    if given.is_empty() { db.path().join(name) } else { PathBuf::from(given) }
}

fn options(db: &Db, flags: &Flags) -> BackupEngineOptions {
    let mut options = BackupEngineOptions::new(directory(db, &flags.backup_dir, "backup"));
    options.backup_rate_limiter = limiter(flags.backup_rate_limit);
    options.restore_rate_limiter = limiter(flags.restore_rate_limit);
    options
}

/// Adds a backup of the database and verifies it, as db_bench does.
pub(super) fn backup(db: &Db, flags: &Flags) -> Result<()> {
    let mut engine = BackupEngine::open(&options(db, flags), db.env())?;
    let id = engine.create_new_backup(db, &CreateBackupOptions::default())?;
    engine.verify_backup(id, false)
}

/// Restores the latest backup, and opens the restored database.
pub(super) fn restore(db: &Db, flags: &Flags) -> Result<()> {
    let to = directory(db, &flags.restore_dir, "restore");
    let options = options(db, flags);
    if options.backup_dir == to {
        let text = "--backup_dir and --restore_dir are the same";
        return Err(karst_engine::Error::new(ErrorKind::InvalidArgument, text));
    }
    let engine = BackupEngine::open_read_only(&options, db.env())?;
    engine.restore_db_from_latest_backup(&to, &to, &RestoreOptions::default())?;
    Db::open_read_only(&to, &karst_engine::Options::new()).map(drop)
}
