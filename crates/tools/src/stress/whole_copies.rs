//! Copies of the whole database, made before lanes write, so that their contents are known exactly:
//! each is verified like the database itself. A backup is kept together with the expected state,
//! and replaces the database before a later life.
//!
//! They are in the directory with the suffix `.saved`: `backups`, `expected`, and `id`, the number
//! of the backup, which is written last. The file `restoring` exists while the backup is restored
//! in place of the database; a life after one that was killed meanwhile begins by restoring again.

use super::calls::{Calls, Store};
use super::extras::Extras;
use super::place::{Site, beside, replace};
use super::rows::family_name;
use super::verify::Whole;
use super::wrong::Wrong;
use crate::bench::Front;
use crate::random::Random;
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, Options, RestoreMode,
    RestoreOptions,
};
use karst_io::Env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the directory of the backup and its expected state.
pub(crate) fn folder(db: &Path) -> PathBuf {
    beside(db, ".saved")
}

/// Returns true for a file of the expected state that changes with the database.
fn goes_with_the_database(name: &str) -> bool {
    name.starts_with("lane-") || ["further", "imports", "stamped", "behind", "front"].contains(&name)
}

fn copy_expected(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if goes_with_the_database(&entry.file_name().to_string_lossy()) {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn engine(saved: &Path) -> Result<BackupEngine, Wrong> {
    let options = BackupEngineOptions::new(saved.join("backups"));
    BackupEngine::open(&options, &Env::posix()).map_err(|e| Wrong::Failed(format!("backups: {e}")))
}

/// Restores the backup in place of the database, with its expected state. With `begins` false, only
/// if a killed process had begun to. Returns true if it was done.
pub(crate) fn restore(place: &Site, begins: bool, random: &mut Random) -> Result<bool, Wrong> {
    let saved = folder(&place.db);
    let marker = saved.join("restoring");
    let id = std::fs::read_to_string(saved.join("id")).ok().and_then(|text| text.trim().parse().ok());
    let Some(id) = id.filter(|_| begins || marker.exists()) else { return Ok(false) };
    std::fs::write(&marker, "")?;
    let modes =
        [RestoreMode::PurgeAllFiles, RestoreMode::VerifyChecksum, RestoreMode::KeepLatestDbSessionIdFiles];
    let how = RestoreOptions { mode: *random.pick(&modes), ..RestoreOptions::default() };
    engine(&saved)?
        .restore_db_from_backup(id, &place.db, &place.db, &how)
        .map_err(|e| Wrong::Failed(format!("a backup restored in the place of the database: {e}")))?;
    copy_expected(&saved.join("expected"), &place.expected)?;
    std::fs::remove_file(&marker)?;
    Ok(true)
}

/// Parameters for making and verifying a copy.
pub(crate) struct Copying<'a> {
    pub(crate) place: &'a Site,
    pub(crate) options: &'a Options,
    pub(crate) whole: &'a Whole<'a>,
    pub(crate) families: usize,
}

impl Copying<'_> {
    /// Keeps a backup for [`restore`], and verifies a copy elsewhere: that backup, or a checkpoint.
    /// No lane writes meanwhile.
    pub(crate) fn copy(&self, db: &Db, extras: &mut Extras, random: &mut Random) -> Result<(), Wrong> {
        let failed = |e: karst_engine::Error| Wrong::Failed(format!("a copy of the whole database: {e}"));
        let (saved, copy) = (folder(&self.place.db), beside(&self.place.db, ".copy-whole"));
        let id_file = saved.join("id");
        if id_file.exists() {
            std::fs::remove_file(&id_file)?;
        }
        std::fs::create_dir_all(&saved)?;
        let mut engine = engine(&saved)?;
        let how = CreateBackupOptions { flush_before_backup: random.one_in(2), ..Default::default() };
        let id = engine.create_new_backup(db, &how).map_err(failed)?;
        engine.purge_old_backups(1).map_err(failed)?;
        copy_expected(&self.place.expected, &saved.join("expected"))?;
        replace(&id_file, &id.to_string())?;
        if random.one_in(2) {
            let restored = engine.restore_db_from_backup(id, &copy, &copy, &RestoreOptions::default());
            restored.map_err(failed)?;
        } else {
            let least = [0, u64::MAX][random.index(2)];
            Checkpoint::new(db).and_then(|made| made.create_checkpoint(&copy, least)).map_err(failed)?;
        }
        drop(engine);
        let db = Db::open_read_only(&copy, self.options).map_err(failed)?;
        let families: Option<Vec<_>> =
            (0..self.families).map(|family| db.column_family(&family_name(family))).collect();
        let missing = || Wrong::Mismatch(format!("of column families: one is not in {}", copy.display()));
        let store = Store { front: Front::Plain(db), families: families.ok_or_else(missing)? };
        let calls = Calls { store: Arc::new(store), asynchronous: false };
        self.whole.verify(&calls)?;
        extras.verify(&calls.store, false)?;
        drop(calls);
        std::fs::remove_dir_all(&copy)?;
        Ok(())
    }
}
