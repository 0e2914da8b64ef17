//! The files of a database directory: finding them, and reading the small ones.
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

    /// The directory `path`, which is not there yet.
    pub(super) fn none(env: &Env, path: &Path) -> Directory {
        Directory { env: env.clone(), path: path.to_owned(), files: Vec::new() }
    }

    /// Whether no file in it has a name that a database's files have.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub(crate) fn file(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }

    /// The numbers of its logs, ascending.
    pub(crate) fn logs(&self) -> BTreeSet<FileNumber> {
        let number = |file: &FileName| match file {
            FileName::Wal(number) => Some(*number),
            _ => None,
        };
        self.files.iter().filter_map(number).collect()
    }

    /// The OPTIONS files, the one written last first.
    pub(crate) fn options_files(&self) -> Vec<FileName> {
        let mut files: Vec<FileName> =
            self.files.iter().filter(|f| matches!(f, FileName::Options(_))).copied().collect();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.number()));
        files
    }

    /// The MANIFESTs, the newest first.
    pub(crate) fn manifests(&self) -> Vec<FileName> {
        let mut files: Vec<FileName> =
            self.files.iter().filter(|f| matches!(f, FileName::Manifest(_))).copied().collect();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.number()));
        files
    }

    /// All its files.
    pub(crate) fn files(&self) -> &[FileName] {
        &self.files
    }

    /// The OPTIONS file written last.
    pub(crate) fn newest_options(&self) -> Option<FileName> {
        self.options_files().first().copied()
    }

    /// Whether it has this file.
    pub(crate) fn contains(&self, name: FileName) -> bool {
        self.files.contains(&name)
    }

    /// All bytes of one of its files.
    pub(crate) fn read(&self, name: FileName) -> Result<Vec<u8>> {
        read_file(self.env.fs().as_ref(), &self.file(name))
    }

    /// The manifest that CURRENT names.
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

/// All bytes of a file.
pub(crate) fn read_file(fs: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    fs.read_file(path).map_err(|e| io_error("opening the database", e))
}

/// The bytes of a file from an offset on; none if it is not that long. Blocks.
pub(crate) fn read_from(env: &Env, path: &Path, offset: u64) -> Result<Vec<u8>> {
    let whole = || env.fs().open_random(path, OpenOptions::BUFFERED);
    let file = whole().map_err(|e| io_error("following the database", e))?;
    let Some(length) = file.size().checked_sub(offset) else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    // Why in parts: a read has its limits.
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

/// Refuses a path that names no directory.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::invalid_argument("the path of the database is empty")),
        false => Ok(()),
    }
}

/// An error of the file system, which names the path itself.
pub(crate) fn io_error(doing: &str, error: karst_io::Error) -> Error {
    Error::from(error).in_context(doing)
}
