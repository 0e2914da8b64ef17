//! Ownership of directories outside of the database's own: `wal_dir`, `db_paths`, `cf_paths`.
//!
//! In: a database, and a directory that its options name. Out: the lock on that directory, or an
//! error that names the database that owns it.
//!
//! A database that is open for writing holds LOCK in each of these directories, and the file names
//! the database by its id and its path, and the directory itself by its path. Nothing in such a
//! directory is replayed, changed or removed before that file was read.
//!
//! | LOCK in the directory | the directory belongs to |
//! |---|---|
//! | names this database | this database |
//! | names a path with a database that may have that id | that one; this one is refused |
//! | names a path without a database | this database from now on, because the other was moved or removed |
//! | names another directory, because it was copied or moved with this one | this database from now on |
//! | names no directory, or is missing | this database from now on |
//!
//! A directory with a CURRENT is another database's own directory, and is refused.
//!
//! The id alone is not enough, because a copy of a database has the id and the OPTIONS of the
//! original. Compat: RocksDB reads no LOCK, and locks only the one in the database's own directory.
//! A directory that RocksDB wrote therefore belongs to the first database that is opened with it.

use karst_base::error::{Error, Result};
use karst_base::sync::Mutex;
use karst_format::file_name::FileName;
use karst_io::{Env, FileLock};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// First line of a LOCK that names an owner.
const HEAD: &[u8] = b"karstdb.owner\n";

/// A database that uses directories outside of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    /// The database's own directory.
    pub(crate) path: &'a Path,
    /// Id of the database, or None if unknown.
    pub(crate) id: Option<&'a str>,
}

impl Claimant<'_> {
    /// Returns those of `directories` that are not the database's own, each once.
    pub(crate) fn outside(&self, env: &Env, directories: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
        let mut seen = BTreeSet::from([env.fs().canonical(self.path)]);
        directories.into_iter().filter(|directory| seen.insert(env.fs().canonical(directory))).collect()
    }

    /// Locks an existing directory outside of the database's own, unless it belongs to another
    /// database. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: it belongs to another database. `Locked`: another database has it open.
    pub(crate) fn hold(&self, env: &Env, directory: &Path) -> Result<Box<dyn FileLock>> {
        self.check(env, directory)?;
        let lock = env.fs().lock(&lock_of(directory)).map_err(|e| match e.is_locked() {
            true => Error::from(e).with_advice("another database has the directory open"),
            false => Error::from(e),
        })?;
        // Again, because another database may have had the lock until now.
        self.check(env, directory)?;
        Ok(lock)
    }

    /// Locks the directory like [`hold`](Self::hold), and durably names this database in its LOCK.
    ///
    /// # Errors
    /// Those of [`hold`](Self::hold); LOCK cannot be written.
    pub(crate) fn claim(&self, env: &Env, directory: &Path) -> Result<Box<dyn FileLock>> {
        let lock = self.hold(env, directory)?;
        let (fs, path) = (env.fs(), lock_of(directory));
        let own = fs.canonical(self.path);
        let id = self.id.unwrap_or_default().as_bytes();
        let of = fs.canonical(directory);
        let text = [HEAD, id, b"\n", own.as_os_str().as_bytes(), b"\0", of.as_os_str().as_bytes()].concat();
        if fs.read_file(&path)? != text {
            let mut file = fs.create(&path)?;
            file.append(&text)?;
            file.sync()?;
            fs.sync_dir(directory)?;
        }
        Ok(lock)
    }

    /// Returns an error for a directory outside of the database's own that belongs to another
    /// database. Changes nothing. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: it belongs to another database.
    pub(crate) fn check(&self, env: &Env, directory: &Path) -> Result<()> {
        refuse_own_of_another(env, directory)?;
        self.check_owner(env, directory)
    }

    /// True if LOCK in a directory names this database. Blocks.
    ///
    /// # Errors
    /// LOCK cannot be read.
    pub(crate) fn is_owner(&self, env: &Env, directory: &Path) -> Result<bool> {
        Ok(Owner::of(env, directory)?.is_some_and(|owner| owner.is(env, self)))
    }

    /// Returns an error if LOCK in a directory names another database that still exists.
    pub(crate) fn check_owner(&self, env: &Env, directory: &Path) -> Result<()> {
        let Some(owner) = Owner::of(env, directory)? else { return Ok(()) };
        if owner.is(env, self) || !owner.is_there(env, self) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "{}: the directory belongs to the database in {}, as {} says; the database in {} needs another one, or that file has to be removed if it is wrong",
            directory.display(),
            owner.path.display(),
            lock_of(directory).display(),
            self.path.display(),
        )))
    }
}

/// The locked directories outside of a database's own.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Locks by canonical path. Lock: held while directories are added or released, with I/O under
    /// it.
    locks: Mutex<BTreeMap<PathBuf, Box<dyn FileLock>>>,
}

impl Claims {
    /// Claims those of `directories` that are outside and not claimed yet. All must exist. Blocks.
    ///
    /// # Errors
    /// Those of [`Claimant::claim`].
    pub(crate) fn add(
        &self,
        env: &Env,
        claimant: Claimant<'_>,
        directories: impl IntoIterator<Item = PathBuf>,
    ) -> Result<()> {
        let mut locks = self.locks.lock();
        for directory in claimant.outside(env, directories) {
            if let Entry::Vacant(vacant) = locks.entry(env.fs().canonical(&directory)) {
                vacant.insert(claimant.claim(env, &directory)?);
            }
        }
        Ok(())
    }

    /// Releases all locks.
    pub(crate) fn give_back(&self) {
        self.locks.lock().clear();
    }
}

fn lock_of(directory: &Path) -> PathBuf {
    directory.join(FileName::Lock.to_string())
}

/// Returns an error for another database's own directory.
fn refuse_own_of_another(env: &Env, directory: &Path) -> Result<()> {
    match env.fs().exists(&directory.join(FileName::Current.to_string()))? {
        true => Err(Error::invalid_argument(format!(
            "{}: the directory has a database, so its files are not another database's",
            directory.display()
        ))),
        false => Ok(()),
    }
}

/// The database named by LOCK.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// Id of the owner; empty if unknown.
    id: Vec<u8>,
    path: PathBuf,
}

impl Owner {
    /// Reads LOCK; `None` if it is missing, names no database, or was written in another directory.
    fn of(env: &Env, directory: &Path) -> Result<Option<Owner>> {
        match env.fs().read_file(&lock_of(directory)) {
            Ok(bytes) => {
                let canonical = env.fs().canonical(directory);
                Ok(Owner::parse(&bytes).and_then(|(owner, of)| (of == canonical).then_some(owner)))
            }
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Parses the owner, and the directory that LOCK was written in.
    fn parse<'b>(bytes: &'b [u8]) -> Option<(Owner, PathBuf)> {
        let split = |bytes: &'b [u8], end: u8| {
            let at = bytes.iter().position(|byte| *byte == end)?;
            Some((&bytes[..at], &bytes[at + 1..]))
        };
        let (id, rest) = split(bytes.strip_prefix(HEAD)?, b'\n')?;
        let (path, directory) = split(rest, b'\0')?;
        let path_of = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        Some((Owner { id: id.to_vec(), path: path_of(path) }, path_of(directory)))
    }

    /// True if the owner is `claimant`, judged by ids and paths.
    fn is(&self, env: &Env, claimant: &Claimant<'_>) -> bool {
        let same_id = self.id.is_empty() || claimant.id.is_none_or(|id| id.as_bytes() == self.id);
        same_id && self.path == env.fs().canonical(claimant.path)
    }

    /// True if the owner is another database than `claimant` and may still be at its path.
    fn is_there(&self, env: &Env, claimant: &Claimant<'_>) -> bool {
        use FileName::{Blob, Current, LevelDbTable, Manifest, Table, Wal};
        if self.path == env.fs().canonical(claimant.path) {
            // A database with another id was there, and can have been moved.
            return true;
        }
        let names = match env.fs().list_dir(&self.path) {
            Ok(names) => names,
            // A directory that cannot be listed counts as a database.
            Err(e) => return !e.is_not_found(),
        };
        let is_data = |name: &String| {
            matches!(
                FileName::parse(name),
                Some(Current | Manifest(_) | Table(_) | LevelDbTable(_) | Blob(_) | Wal(_))
            )
        };
        if !names.iter().any(is_data) {
            return false;
        }
        let identity = self.path.join(FileName::Identity.to_string());
        let id = env.fs().read_file(&identity).unwrap_or_default();
        let id = id.trim_ascii_end();
        id.is_empty() || self.id.is_empty() || id == self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_an_owner_or_none() {
        let owner =
            |id: &str, path: &str, of: &str| Some((Owner { id: id.into(), path: path.into() }, of.into()));
        for (bytes, found) in [
            (&b""[..], None),
            (b"karstdb.owner", None),
            (b"karstdb.owner\n", None),
            (b"karstdb.owner\nid", None),
            (b"something else\nid\n/db", None),
            (b"karstdb.owner\nid\n/db", None),
            (b"karstdb.owner\nid\n\0", owner("id", "", "")),
            (b"karstdb.owner\n\n/db\0/w", owner("", "/db", "/w")),
            (b"karstdb.owner\nid\n/a\nb \0/w\n", owner("id", "/a\nb ", "/w\n")),
        ] {
            assert_eq!(Owner::parse(bytes), found, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
