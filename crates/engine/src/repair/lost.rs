//! Files that a repair removes from a database and keeps, in the directory `lost` next to them.
//!
//! In: files, each with the reason why it is unusable. Out: the files linked into `lost`, and at
//! the end only there.
//!
//! Invariant: first all files get a link in `lost`, durably; then the database stops using them;
//! then their original names are removed. An interruption at any point therefore leaves the
//! database either as it was or repaired, and no file is gone.

use super::report::LostFile;
use crate::copies::copying::{self, Halt};
use karst_base::error::{Error, Result};
use karst_io::Env;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Name of the directory, as in RocksDB.
const LOST: &str = "lost";

/// Files to move into `lost`.
#[derive(Debug)]
pub(super) struct Lost {
    env: Env,
    pub(super) files: Vec<LostFile>,
    /// Files whose original names will be removed.
    leaving: Vec<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Lost {
    pub(super) fn new(env: &Env) -> Lost {
        Lost { env: env.clone(), files: Vec::new(), leaving: Vec::new(), directories: BTreeSet::new() }
    }

    /// Returns true if a file will be moved to `lost`.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.leaving.iter().any(|leaving| leaving == path)
    }

    /// Links a file into `lost`. Its original name is removed later.
    ///
    /// # Errors
    /// The file cannot be linked or copied.
    pub(super) fn take(&mut self, path: &Path, reason: impl Into<String>) -> Result<()> {
        self.keep(path, reason)?;
        self.leaving.push(path.to_owned());
        Ok(())
    }

    /// Links a file into `lost` that is removed or replaced by other means.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub(super) fn keep(&mut self, path: &Path, reason: impl Into<String>) -> Result<()> {
        let (fs, beside) = (self.env.fs(), copying::parent(path));
        let directory = beside.join(LOST);
        if self.directories.insert(directory.clone()) {
            fs.create_dir_durably(&directory)?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut to = directory.join(&name);
        let mut again = 0;
        while fs.exists(&to)? {
            // An interrupted repair has linked it already.
            if self.is_same(path, &to)? {
                break;
            }
            again += 1;
            to = directory.join(format!("{name}.{again}"));
        }
        if !fs.exists(&to)? {
            let copied = copying::link_or_copy(&self.env, path, &to, &Halt::default());
            // The result of the removal is ignored, because the first error is returned.
            copied.inspect_err(|_| drop(fs.remove(&to)))?;
        }
        self.files.push(LostFile { path: path.to_owned(), lost: to, reason: reason.into() });
        Ok(())
    }

    fn is_same(&self, a: &Path, b: &Path) -> Result<bool> {
        let fs = self.env.fs();
        if fs.metadata(a)?.len != fs.metadata(b)?.len {
            return Ok(false);
        }
        let stop = Halt::default();
        // An unreadable part prevents the comparison; both files are kept then.
        let sum = |path: &Path| copying::read(&self.env, path, None, &stop, |_| Ok(())).ok();
        Ok(matches!((sum(a), sum(b)), (Some(a), Some(b)) if a == b))
    }

    /// Makes the links durable.
    ///
    /// # Errors
    /// A directory cannot be synced.
    pub(super) fn sync(&self) -> Result<()> {
        self.directories.iter().try_for_each(|directory| Ok(self.env.fs().sync_dir(directory)?))
    }

    /// Removes the original names.
    ///
    /// # Errors
    /// A name cannot be removed; the others are removed.
    pub(super) fn leave(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        let mut places = BTreeSet::new();
        for path in self.leaving.drain(..) {
            match self.env.fs().remove(&path) {
                Err(e) if !e.is_not_found() => outcome = Err(Error::from(e)),
                _ => drop(places.insert(copying::parent(&path).to_owned())),
            }
        }
        for place in &places {
            self.env.fs().sync_dir(place)?;
        }
        outcome
    }
}
