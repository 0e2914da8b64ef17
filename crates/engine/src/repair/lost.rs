//! Files that a repair takes out of a database: they stay, in the directory `lost` beside where
//! they were.
//!
//! In: files, and why each is of no use. Out: the same files in `lost`, and, at the end, only
//! there.
//!
//! Invariant: first all get their second names, durably; then the database gets on without them;
//! then they lose their first names. So whatever is cut short, the database is as it was or
//! repaired, and no file is gone.

use super::report::LostFile;
use crate::copies::copying::{self, Halt};
use karst_base::error::{Error, Result};
use karst_io::Env;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The name of the directory, as RocksDB has it.
const LOST: &str = "lost";

/// Files on their way into `lost`.
#[derive(Debug)]
pub(super) struct Lost {
    env: Env,
    pub(super) files: Vec<LostFile>,
    /// Those that lose their first names.
    leaving: Vec<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Lost {
    pub(super) fn new(env: &Env) -> Lost {
        Lost { env: env.clone(), files: Vec::new(), leaving: Vec::new(), directories: BTreeSet::new() }
    }

    /// Whether a file is on its way there.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.leaving.iter().any(|leaving| leaving == path)
    }

    /// Gives a file a second name in `lost`. It is going to leave the database.
    ///
    /// # Errors
    /// It cannot be linked or copied.
    pub(super) fn take(&mut self, path: &Path, reason: impl Into<String>) -> Result<()> {
        self.keep(path, reason)?;
        self.leaving.push(path.to_owned());
        Ok(())
    }

    /// Gives a file that leaves by itself, or is replaced, a second name in `lost`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
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
            // Why: an earlier repair that was cut short put it there.
            if self.is_same(path, &to)? {
                break;
            }
            again += 1;
            to = directory.join(format!("{name}.{again}"));
        }
        if !fs.exists(&to)? {
            let copied = copying::link_or_copy(&self.env, path, &to, &Halt::default());
            // Why its outcome does not matter: what went wrong first is told.
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
        // Why: where a part cannot be read, nobody can tell, and both are kept.
        let sum = |path: &Path| copying::read(&self.env, path, None, &stop, |_| Ok(())).ok();
        Ok(matches!((sum(a), sum(b)), (Some(a), Some(b)) if a == b))
    }

    /// Makes the second names durable.
    ///
    /// # Errors
    /// A directory cannot be synced.
    pub(super) fn sync(&self) -> Result<()> {
        self.directories.iter().try_for_each(|directory| Ok(self.env.fs().sync_dir(directory)?))
    }

    /// Takes the first names away.
    ///
    /// # Errors
    /// One cannot be removed; the others are.
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
