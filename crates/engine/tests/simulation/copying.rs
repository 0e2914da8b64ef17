//! Checkpoints and backups that are taken beside all other tasks. Each is opened, and equals a
//! state that the database had while it was taken. Between two lives a backup may be restored in
//! place of the database, which then has that backup's entries.

use crate::machine::{User, Weather, World, check_all, cut_of, given_up};
use crate::store::{self, Families};
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, ErrorKind, RestoreMode,
    RestoreOptions, Result,
};
use karst_io::{Env, FileSystem};
use karst_testkit::chronicle::Cut;
use karst_testkit::random::Random;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Prefixes of the names of checkpoints and of restored backups, and the directory of backups.
const COPY: &str = "copy-";
const RESTORED: &str = "restored-";
const CURRENT: &str = "CURRENT";
const BACKUPS: &str = "/backups";

/// Removes the directory of a copy, if it exists; it has no subdirectories. CURRENT is removed
/// first, durably, because a directory without it is no database after a crash.
fn remove(fs: &dyn FileSystem, directory: &Path) -> karst_io::Result<()> {
    if !fs.exists(directory)? {
        return Ok(());
    }
    let mut names = fs.list_dir(directory)?;
    names.sort_by_key(|name| name != CURRENT);
    for name in names {
        let is_current = name == CURRENT;
        fs.remove(&directory.join(name))?;
        if is_current {
            fs.sync_dir(directory)?;
        }
    }
    fs.remove_dir(directory)
}

impl User {
    /// Runs after opening: verifies the finished checkpoints that an earlier life left, and removes
    /// all copies.
    pub(crate) async fn check_left(&self) {
        let (fs, world) = (self.env.fs().clone(), &self.world);
        let names = world.ok("listing", fs.list_dir(Path::new("/")).map_err(Into::into)).await;
        for name in names.iter().filter(|name| name.starts_with(COPY) || name.starts_with(RESTORED)) {
            let directory = Path::new("/").join(name);
            let is_there = fs.exists(&directory.join(CURRENT)).map_err(Into::into);
            let is_there = world.ok("looking for a copy", is_there).await;
            if name.starts_with(COPY) && !name.ends_with(".tmp") && is_there {
                let options = world.plan.options_of_copy(&self.env, &directory);
                let opened = store::open_copy(&directory, &options);
                let copy = world.ok("opening a copy that was left", opened).await;
                world.ok("verifying a copy that was left", copy.verify_checksum()).await;
                world.ok("closing a copy", copy.close()).await;
            }
            let removed = remove(fs.as_ref(), &directory).map_err(Into::into);
            world.ok("removing a copy", removed).await;
        }
    }

    /// Takes a checkpoint or a backup and compares it with the chronicle.
    pub(crate) async fn copy(&mut self) {
        let restores = self.random.one_in(4);
        let kind = if restores { RESTORED } else { COPY };
        let directory = PathBuf::from(format!("/{kind}{:x}", self.random.next_u64()));
        let before = self.world.acknowledged();
        let flushes = self.random.one_in(2);
        let made = match restores {
            true => self.back_up(&directory, flushes).await.map(Some),
            false => self.checkpoint(&directory, flushes).await.map(|()| None),
        };
        let after = self.world.begun();
        if let Some(backup) = made {
            let cut = self.check_copy(&directory, flushes, (&before, &after)).await;
            if let (Some(id), Some(cut)) = (backup, cut) {
                *self.world.backup.lock().unwrap() = Some((id, cut));
            }
            // Some copies stay for the next life, which opens them for writing. An error is ignored
            // because a copy that was not removed is such a one.
            if !self.random.one_in(4) {
                let _ = remove(self.env.fs().as_ref(), &directory);
            }
        }
    }

    /// Returns `None` if the call was dropped, or failed as it may.
    async fn checkpoint(&mut self, directory: &Path, flushes: bool) -> Option<()> {
        let least = if flushes { 0 } else { [u64::MAX, 20_000][self.random.index(2)] };
        let polls = if self.random.one_in(4) { self.random.below(30) } else { u64::MAX };
        let checkpoint = self.world.ok("a checkpoint", Checkpoint::new(&self.db)).await;
        let made = given_up(checkpoint.create_checkpoint_async(directory, least), polls).await?;
        self.world.unless_foul("a checkpoint", made).await
    }

    async fn back_up(&mut self, directory: &Path, flushes: bool) -> Option<u32> {
        let mut options = BackupEngineOptions::new(BACKUPS);
        options.max_background_operations = 1 + self.random.index(3);
        let mut engine = match BackupEngine::open(&options, &self.env) {
            // Another task makes a backup, or has dropped a call whose job is still under way.
            Err(e) if e.kind() == ErrorKind::Locked => return None,
            opened => self.world.unless_foul("opening the backups", opened).await?,
        };
        let corrupt = engine.get_corrupted_backups();
        assert!(corrupt.is_empty() || self.world.weather == Weather::Foul, "{corrupt:?}");
        let create = CreateBackupOptions { flush_before_backup: flushes, ..Default::default() };
        let polls = if self.random.one_in(4) { self.random.below(40) } else { u64::MAX };
        let created = given_up(engine.create_new_backup_async(&self.db, &create), polls).await?;
        let id = self.world.unless_foul("a backup", created).await?;
        let restored = restore(&engine, id, directory).await;
        self.world.unless_foul("restoring a backup", restored).await?;
        let purged = engine.purge_old_backups(1 + self.random.index(3));
        self.world.unless_foul("purging backups", purged).await.map(|()| id)
    }

    /// Returns the batches of the copy, after comparing them with the chronicle.
    async fn check_copy(
        &self,
        directory: &Path,
        flushed: bool,
        (before, after): (&Cut, &Cut),
    ) -> Option<Cut> {
        let world = &self.world;
        // Opened read-only because this runs in a task, and a database open for writing must not be
        // closed in one.
        let opened = Db::open_read_only(directory, &world.plan.options_of_copy(&self.env, directory));
        let copy = world.unless_foul("opening a copy", opened).await?;
        let families = Families::of(&copy, &world.plan);
        let snapshot = copy.snapshot();
        let cut = cut_of(world, &copy, &families, &snapshot).await;
        drop(snapshot);
        let checked = world.chronicle().check_copy(&cut, before, after, flushed);
        checked.unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        check_all(world, &copy, &families, &cut).await;
        Some(cut)
    }
}

/// Runs before opening: now and then restores a backup in place of the database, and always if the
/// power failed during such a restore. Returns true if it restored one.
pub(crate) async fn restore_in_place(world: &World, env: &Env, random: &mut Random) -> bool {
    let was_restoring = world.restoring.load(Ordering::Relaxed);
    let backup = world.backup.lock().unwrap().clone();
    let Some((id, cut)) = backup.filter(|_| world.plan.has_one_path()) else { return false };
    if !was_restoring && random.one_in(2) {
        return false;
    }
    let engine = BackupEngine::open(&BackupEngineOptions::new(BACKUPS), env);
    let engine = world.ok("opening the backups", engine).await;
    if !engine.get_backup_info().iter().any(|info| info.backup_id == id) {
        assert!(!was_restoring, "the backup {id} is lost");
        return false;
    }
    world.restoring.store(true, Ordering::Relaxed);
    let modes =
        [RestoreMode::PurgeAllFiles, RestoreMode::VerifyChecksum, RestoreMode::KeepLatestDbSessionIdFiles];
    let how = RestoreOptions { mode: modes[random.index(3)], ..RestoreOptions::default() };
    let (to, logs) = (Path::new(store::DIRECTORY), Path::new(world.plan.log_directory()));
    let restored = engine.restore_db_from_backup_async(id, to, logs, &how).await;
    world.ok("restoring in place", restored).await;
    world.restoring.store(false, Ordering::Relaxed);
    world.chronicle().restore(&cut);
    world.restored.fetch_add(1, Ordering::Relaxed);
    true
}

async fn restore(engine: &BackupEngine, id: u32, to: &Path) -> Result<()> {
    engine.verify_backup_async(id, true).await?;
    engine.restore_db_from_backup_async(id, to, to, &RestoreOptions::default()).await
}
