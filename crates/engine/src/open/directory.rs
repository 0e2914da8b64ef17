//! Listing a database directory, and reading its small files.
//!
//! In: a directory. Out: file names by kind; the bytes of CURRENT, MANIFEST, OPTIONS, IDENTITY.
//! Only reads: nothing is created, not even LOCK.
//!
//! Invariant: every error names the file, or the directory in which it is missing.

use karst_base::error::{Error, ErrorKind, Result};
use karst_format::file_name::{self, FileName};
use karst_format::ids::FileNumber;
use karst_io::{Env, FileSystem, OpenOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A database directory, listed once.
#[derive(Debug)]
pub(crate) struct Directory {
    env: Env,
    path: PathBuf,
    files: Vec<FileName>,
}

impl Directory {
    /// Lists the directory.
    pub(crate) fn list(env: &Env, path: &Path) -> Result<Directory> {
        let names = env.fs().list_dir(path).map_err(|e| io_error("listing the database directory", e))?;
        let files = names.iter().filter_map(|name| FileName::parse(name)).collect();
        Ok(Directory { env: env.clone(), path: path.to_owned(), files })
    }

    /// Returns a listing of the directory `path`, which does not exist yet.
    pub(super) fn none(env: &Env, path: &Path) -> Directory {
        Directory { env: env.clone(), path: path.to_owned(), files: Vec::new() }
    }

    /// Returns true if it has no file with a name of database files.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in it.
    pub(crate) fn file(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }

    /// Returns the numbers of its logs, ascending.
    pub(crate) fn logs(&self) -> BTreeSet<FileNumber> {
        let number = |file: &FileName| match file {
            FileName::Wal(number) => Some(*number),
            _ => None,
        };
        self.files.iter().filter_map(number).collect()
    }

    /// Returns the OPTIONS files, the newest first.
    pub(crate) fn options_files(&self) -> Vec<FileName> {
        let mut files: Vec<FileName> =
            self.files.iter().filter(|f| matches!(f, FileName::Options(_))).copied().collect();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.number()));
        files
    }

    /// Returns the MANIFESTs, the newest first.
    pub(crate) fn manifests(&self) -> Vec<FileName> {
        let mut files: Vec<FileName> =
            self.files.iter().filter(|f| matches!(f, FileName::Manifest(_))).copied().collect();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.number()));
        files
    }

    /// Returns all its database files.
    pub(crate) fn files(&self) -> &[FileName] {
        &self.files
    }

    /// Returns the newest OPTIONS file.
    pub(crate) fn newest_options(&self) -> Option<FileName> {
        self.options_files().first().copied()
    }

    /// Returns true if it has this file.
    pub(crate) fn contains(&self, name: FileName) -> bool {
        self.files.contains(&name)
    }

    /// Reads one of its files.
    pub(crate) fn read(&self, name: FileName) -> Result<Vec<u8>> {
        read_file(self.env.fs().as_ref(), &self.file(name))
    }

    /// Returns the MANIFEST that CURRENT names.
    pub(crate) fn current_manifest(&self) -> Result<FileName> {
        let path = self.file(FileName::Current);
        if !self.contains(FileName::Current) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{}: missing; {} is no database", path.display(), self.path.display()),
            ));
        }
        let contents = self.read(FileName::Current)?;
        let manifest = file_name::parse_current(&contents).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&contents[..contents.len().min(40)]).into_owned();
            Error::corruption_at(
                &path,
                0,
                format!("expected the name of a MANIFEST and a newline, found {shown:?}"),
            )
        })?;
        if !self.contains(manifest) {
            return Err(Error::new(
                ErrorKind::Corruption,
                format!("{}: missing, though CURRENT names it", self.file(manifest).display()),
            ));
        }
        Ok(manifest)
    }
}

/// Reads a file.
pub(crate) fn read_file(fs: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    fs.read_file(path).map_err(|e| io_error("opening the database", e))
}

/// Reads a file from an offset on; returns no bytes if it is shorter. Blocks.
pub(crate) fn read_from(env: &Env, path: &Path, offset: u64) -> Result<Vec<u8>> {
    let whole = || env.fs().open_random(path, OpenOptions::BUFFERED);
    let file = whole().map_err(|e| io_error("following the database", e))?;
    let Some(length) = file.size().checked_sub(offset) else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    // Read in parts, because the size of one read is limited.
    const MOST: u64 = 1 << 20;
    while (bytes.len() as u64) < length {
        let at = offset + bytes.len() as u64;
        let wanted = (length - bytes.len() as u64).min(MOST) as usize;
        let read = karst_io::block_on(env, karst_io::read(env, &file, at, wanted));
        let read = read.map_err(|e| io_error("following the database", e))?;
        if read.is_empty() {
            break;
        }
        bytes.extend_from_slice(&read);
    }
    Ok(bytes)
}

/// Returns an error for an empty path.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::invalid_argument("the path of the database is empty")),
        false => Ok(()),
    }
}

/// Returns an error of the file system, which already names the path.
pub(crate) fn io_error(doing: &str, error: karst_io::Error) -> Error {
    Error::from(error).in_context(doing)
}
