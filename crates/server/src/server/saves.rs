//! Copies of the database that SAVE and BGSAVE make: checkpoints.
//!
//! The copy is `checkpoint` in the directory of the option: a database by itself, whose tables are
//! hard links where both are on one file system. A new one is made as `checkpoint.new` and takes
//! the place of the old one when it is complete; after a crash in between the old one may be
//! `checkpoint.old`.

use crate::until::until;
use event_listener::Event;
use karstdb::io::FileSystem;
use karstdb::{Checkpoint, Db};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Names of the copy, of one that is being made, and of one that is being removed.
const NAMES: [&str; 3] = ["checkpoint", "checkpoint.new", "checkpoint.old"];

/// State of the copies.
#[derive(Debug)]
pub(crate) struct Saves {
    directory: Option<PathBuf>,
    is_running: AtomicBool,
    has_failed: AtomicBool,
    /// Seconds of the environment's clock when the last copy was complete, or of the start.
    last: AtomicU64,
    ended: Event,
}

/// The right to make a copy, which one caller at a time has.
pub(crate) struct Saving(Arc<Saves>);

impl Drop for Saving {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::SeqCst);
        self.0.ended.notify(usize::MAX);
    }
}

impl Saves {
    pub(crate) fn new(directory: Option<PathBuf>, now: Duration) -> Self {
        Self {
            directory,
            is_running: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            last: AtomicU64::new(now.as_secs()),
            ended: Event::new(),
        }
    }

    /// The directory of the copies; `None`: none are made.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// True if the last copy could not be made.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Seconds of the environment's clock when the last copy was complete, or of the start.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Begins a copy, unless one is being made.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Saving> {
        let was_running = self.is_running.swap(true, Ordering::SeqCst);
        (!was_running).then(|| Saving(self.clone()))
    }

    /// Waits until a copy has ended and `is_so` holds.
    pub(crate) async fn ended_and(&self, is_so: impl Fn() -> bool) {
        until(&self.ended, is_so).await;
    }
}

impl Saving {
    /// Makes a copy in `directory`. Blocks until it is durable, on a thread for that.
    ///
    /// # Errors
    /// It could not be made. The copy of before is kept.
    pub(crate) fn run(&self, db: &Db, directory: &Path) -> karstdb::Result<()> {
        let saved = save(db, directory);
        self.0.has_failed.store(saved.is_err(), Ordering::Relaxed);
        if saved.is_ok() {
            self.0.last.store(db.env().unix_time().as_secs(), Ordering::Relaxed);
        }
        saved
    }
}

fn save(db: &Db, directory: &Path) -> karstdb::Result<()> {
    let (files, [copy, new, old]) = (&**db.env().fs(), NAMES.map(|name| directory.join(name)));
    // What a crash has left.
    remove(files, &new)?;
    match files.exists(&copy)? {
        true => remove(files, &old)?,
        false if files.exists(&old)? => files.rename(&old, &copy)?,
        false => {}
    }
    Checkpoint::new(db)?.create_checkpoint(&new, 0)?;
    let replaces = files.exists(&copy)?;
    if replaces {
        files.rename(&copy, &old)?;
    }
    files.rename(&new, &copy)?;
    files.sync_dir(directory)?;
    if replaces {
        remove(files, &old)?;
    }
    Ok(())
}

/// Removes a directory of files, if there is one.
fn remove(files: &dyn FileSystem, directory: &Path) -> karstdb::io::Result<()> {
    if !files.exists(directory)? {
        return Ok(());
    }
    for name in files.list_dir(directory)? {
        files.remove(&directory.join(name))?;
    }
    files.remove_dir(directory)
}
