//! Checkpoints and backups that are taken beside everybody else. Each is opened, and is a state
//! that the database could have been in while it was taken.

use crate::machine::{User, Weather, check_all, cut_of, given_up};
use crate::store::{self, Families};
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, ErrorKind, RestoreOptions, Result,
};
use karst_io::FileSystem;
use karst_testkit::chronicle::Cut;
use std::path::{Path, PathBuf};

/// How the names of checkpoints begin, and of backups that are restored; where backups are.
const COPY: &str = "copy-";
const RESTORED: &str = "restored-";
const CURRENT: &str = "CURRENT";
const BACKUPS: &str = "/backups";

/// Removes the directory of a copy, if it is there. A copy has no directory in it. CURRENT goes
/// first, and durably: what a crash leaves without it is no database.
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
    /// After opening: checkpoints that have their name are whole, and go; what was not finished
    /// goes too.
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

    /// Takes a checkpoint or a backup and holds it against the chronicle.
    pub(crate) async fn copy(&mut self) {
        let restores = self.random.one_in(4);
        let kind = if restores { RESTORED } else { COPY };
        let directory = PathBuf::from(format!("/{kind}{:x}", self.random.next_u64()));
        let before = self.world.acknowledged();
        let flushes = self.random.one_in(2);
        let made = match restores {
            true => self.back_up(&directory, flushes).await,
            false => self.checkpoint(&directory, flushes).await,
        };
        let after = self.world.begun();
        if made.is_some() {
            self.check_copy(&directory, flushes, (&before, &after)).await;
            // Some stay for the next life, which opens them for writing. Why the outcome does not
            // matter: so it is with what could not be removed.
            if !self.random.one_in(4) {
                let _ = remove(self.env.fs().as_ref(), &directory);
            }
        }
    }

    /// `None` if it was given up, or failed as it may.
    async fn checkpoint(&mut self, directory: &Path, flushes: bool) -> Option<()> {
        let least = if flushes { 0 } else { [u64::MAX, 20_000][self.random.index(2)] };
        let polls = if self.random.one_in(4) { self.random.below(30) } else { u64::MAX };
        let checkpoint = self.world.ok("a checkpoint", Checkpoint::new(&self.db)).await;
        let made = given_up(checkpoint.create_checkpoint_async(directory, least), polls).await?;
        self.world.unless_foul("a checkpoint", made).await
    }

    async fn back_up(&mut self, directory: &Path, flushes: bool) -> Option<()> {
        let mut options = BackupEngineOptions::new(BACKUPS);
        options.max_background_operations = 1 + self.random.index(3);
        let mut engine = match BackupEngine::open(&options, &self.env) {
            // Somebody else makes one, or has given one up that is not over yet.
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
        self.world.unless_foul("purging backups", purged).await
    }

    async fn check_copy(&self, directory: &Path, flushed: bool, (before, after): (&Cut, &Cut)) {
        let world = &self.world;
        // Why for reading: this is a job, and a database that is open for writing is not closed in
        // one.
        let opened = Db::open_read_only(directory, &world.plan.options_of_copy(&self.env, directory));
        let Some(copy) = world.unless_foul("opening a copy", opened).await else { return };
        let families = Families::of(&copy, &world.plan);
        let snapshot = copy.snapshot();
        let cut = cut_of(world, &copy, &families, &snapshot).await;
        drop(snapshot);
        let checked = world.chronicle().check_copy(&cut, before, after, flushed);
        checked.unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        check_all(world, &copy, &families, &cut).await;
    }
}

async fn restore(engine: &BackupEngine, id: u32, to: &Path) -> Result<()> {
    engine.verify_backup_async(id, true).await?;
    engine.restore_db_from_backup_async(id, to, to, &RestoreOptions::default()).await
}
