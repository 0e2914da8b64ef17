//! What a file and a file system are to the rest of KarstDB.
//!
//! A file opened for reading says how the channel reaches it: by a file descriptor, which the
//! transport (io_uring or threads) reads from, or by a [`SoftFile`], which lives in this process.
//! Either way reads go through the same channel and complete later, never in the call that started
//! them, so a test on an in-memory file exercises the paths that a disk does.
//!
//! Invariant: a file's content below [`RandomAccessFile::size`] does not change while it is open
//! for reading. Identical reads in flight share one operation because of it.

use crate::error::Result;
use crate::sync::counting::{self, AtomicU64};
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How to open a file for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenOptions {
    /// Bypass the page cache (`O_DIRECT`). Reads are aligned to the device inside; callers ask for
    /// any offset and length.
    pub direct: bool,
}

impl OpenOptions {
    /// Read through the page cache.
    pub const BUFFERED: Self = Self { direct: false };
    /// Bypass the page cache.
    pub const DIRECT: Self = Self { direct: true };
}

/// A number that no other open file of this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// The next unused number.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(counting::next_name(&NEXT))
    }
}

/// How the channel reaches a file's bytes.
#[derive(Debug)]
pub enum Backend<'a> {
    /// By a file descriptor of the operating system.
    Fd(BorrowedFd<'a>),
    /// By a file that lives in this process.
    Soft(&'a dyn SoftFile),
}

/// A file open for reading at any offset. Shared freely between threads.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Its length in bytes when it was opened.
    fn size(&self) -> u64;
    /// Its process-unique number.
    fn id(&self) -> FileId;
    /// What offset and length of a read must be a multiple of: 1, or the device's for `O_DIRECT`. A
    /// power of two. The channel reads more and trims; callers need not care.
    fn alignment(&self) -> u32;
    /// How the channel reaches it.
    fn backend(&self) -> Backend<'_>;
    /// What goes wrong with a read of `len` bytes at `offset`: asked once for each read handed to
    /// the backend, `None` on every file that is not there to test others.
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        let _ = (offset, len);
        None
    }
}

/// A file whose bytes are in this process.
pub trait SoftFile: Send + Sync + Debug {
    /// Copy bytes from `offset` into `into`; fewer than asked only at the end of the file. Must not
    /// block.
    ///
    /// # Errors
    /// Whatever the file wants its reader to see.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// What goes wrong with one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Complete it no earlier than this after it was issued.
    pub delay: Option<Duration>,
    /// Do not read at all: fail with this errno.
    pub fail: Option<i32>,
    /// Read at most this many bytes, at least one (rounded up to the alignment, as a device would).
    pub shorten_to: Option<usize>,
    /// After reading, flip one bit: this number modulo the bits read.
    pub flip_bit: Option<u64>,
}

impl Disturbance {
    /// Both: the longer delay, the shorter read, and whichever failure or flip there is (ours
    /// first).
    pub fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            delay: self.delay.max(other.delay),
            fail: self.fail.or(other.fail),
            shorten_to: match (self.shorten_to, other.shorten_to) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            flip_bit: self.flip_bit.or(other.flip_bit),
        }
    }
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes (0 for a directory).
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// When its content last changed, where that is known.
    pub modified: Option<SystemTime>,
}

/// A file open for appending. All calls block; see [`crate::Env::run_blocking`].
pub trait WritableFile: Send + Debug {
    /// The path it was opened by.
    fn path(&self) -> &Path;
    /// Bytes in the file, those just appended included.
    fn size(&self) -> u64;
    /// Add `data` at the end. The bytes have left the process when this returns, but are not
    /// durable.
    ///
    /// # Errors
    /// The write failed; the file may hold a part of `data`.
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Make the data and the length durable (`fdatasync`).
    ///
    /// # Errors
    /// The sync failed: what was appended since the last sync may be lost, and the file must not be
    /// trusted with more.
    fn sync(&mut self) -> Result<()>;
    /// The same, and what else the file system knows of the file, such as when it was changed
    /// (`fsync`). The same as [`sync`](Self::sync) where there is no difference.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_all(&mut self) -> Result<()> {
        self.sync()
    }
    /// Reserve space for `len` bytes from `offset`, without a change of the file's length. Does
    /// nothing where the file system cannot.
    ///
    /// # Errors
    /// There is no such space.
    fn reserve(&mut self, offset: u64, len: u64) -> Result<()>;
    /// Cut the file to `size` bytes, and give back the space reserved beyond.
    ///
    /// # Errors
    /// It could not be cut.
    fn truncate(&mut self, size: u64) -> Result<()>;
}

/// A file open for writing at any offset, by any number of threads. All calls block; async code
/// writes through a [`crate::FileWriter`].
pub trait PositionalFile: Send + Sync + Debug {
    /// The path it was opened by.
    fn path(&self) -> &Path;
    /// What offset and length of a write, and where its data is in memory, must be a multiple of:
    /// 1, or for a file that was made by [`FileSystem::create_direct`] what the device wants. A
    /// power of two. [`crate::FileWriter`] takes care of it.
    fn alignment(&self) -> usize {
        1
    }
    /// Write all of `data` at `offset`. The bytes have left the process when this returns, but are
    /// not durable. A gap before `offset` reads as zeros.
    ///
    /// # Errors
    /// The write failed; a part of `data` may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Make the data written so far and the length durable (`fdatasync`).
    ///
    /// # Errors
    /// The sync failed: what was written since the last sync may be lost, and the file must not be
    /// trusted with more.
    fn sync(&self) -> Result<()>;
    /// The same, and what else the file system knows of the file, such as when it was changed
    /// (`fsync`). The same as [`sync`](Self::sync) where there is no difference.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_all(&self) -> Result<()> {
        self.sync()
    }
    /// Have `len` bytes from `offset` begin to travel to the device, without waiting for it and
    /// without any promise. `strict`: first wait until what began to travel before, of all up to
    /// there, has arrived, so that no more than one stretch is on its way.
    ///
    /// # Errors
    /// The device has failed. That it cannot be asked is no error.
    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()>;
    /// Reserve space for `len` bytes from `offset`, without a change of the file's length. Does
    /// nothing where the file system cannot.
    ///
    /// # Errors
    /// There is no such space.
    fn reserve(&self, offset: u64, len: u64) -> Result<()>;
    /// Cut the file to `size` bytes, and give back the space reserved beyond.
    ///
    /// # Errors
    /// It could not be cut.
    fn truncate(&self, size: u64) -> Result<()>;
    /// The `len` bytes from `offset`, a multiple of [`MAP_ALIGNMENT`], as memory. The file becomes
    /// at least that long, with zeros. `None` where the file system cannot do it, or has no room
    /// for it; the file is then as it was, and [`write_at`](Self::write_at) says what is wrong.
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        let _ = (offset, len);
        None
    }
}

/// Where a [`PositionalFile::map`] may begin: a multiple of so many bytes. Why: a page of every
/// processor there is.
pub const MAP_ALIGNMENT: u64 = 64 << 10;

/// A stretch of a file as memory. What is put there has left the process, as with
/// [`PositionalFile::write_at`], but without a call to the operating system; it is durable after
/// [`PositionalFile::sync`].
pub trait MappedRange: Send + Debug {
    /// Puts `data` at `offset` of the file. A file system that fails when it is asked for the
    /// memory of the file, as one does that has become read-only, ends the process (`SIGBUS`).
    ///
    /// # Panics
    /// `data` does not lie within the stretch.
    fn put(&mut self, offset: u64, data: &[u8]);
}

/// A held lock file; dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {
    /// The path of the lock file.
    fn path(&self) -> &Path;
}

/// A place where files are. All calls block the calling thread, for as long as metadata operations
/// take; the asynchronous way to open a file is [`crate::open`], and to do anything else
/// [`crate::Env::run_blocking`].
pub trait FileSystem: Send + Sync + Debug {
    /// Open a file for reading.
    ///
    /// # Errors
    /// It does not exist, may not be read, is a directory, or does not support direct I/O where
    /// that is asked.
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// As for [`FileSystem::open_random`], or the read failed.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>>;

    /// The names in a directory, without `.` and `..`, sorted.
    ///
    /// # Errors
    /// It does not exist, is no directory or may not be read.
    fn list_dir(&self, path: &Path) -> Result<Vec<String>>;

    /// What is at `path`, following symbolic links.
    ///
    /// # Errors
    /// Nothing is, or it may not be looked at.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// Whether anything is at `path`.
    ///
    /// # Errors
    /// It cannot be told (a parent may not be searched, the device fails).
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A path that is the same for all spellings of one directory, as far as can be told: without
    /// symbolic links, `.` and `..`, and from the root. The directory need not be there.
    ///
    /// Provided for file systems that have none of these but `.`.
    fn canonical(&self, path: &Path) -> PathBuf {
        path.components().collect()
    }

    /// Create a file, or cut an existing one to nothing, and open it for appending.
    ///
    /// # Errors
    /// It cannot be created.
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Open an existing file for appending, or create it.
    ///
    /// # Errors
    /// It cannot be opened.
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Create a file, or cut an existing one to nothing, and open it for writing at any offset.
    ///
    /// # Errors
    /// It cannot be created.
    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// The same, bypassing the page cache (`O_DIRECT`): each write must be aligned
    /// ([`PositionalFile::alignment`]).
    ///
    /// # Errors
    /// It cannot be created; with an error of which [`crate::Error::is_direct_unsupported`] is
    /// true, not for direct I/O.
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// Open an existing file for writing at any offset. What is in it stays until it is written
    /// over.
    ///
    /// # Errors
    /// It does not exist, or cannot be opened.
    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// Give `from` the name `to`, replacing what had it.
    ///
    /// # Errors
    /// It cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Give the file `from` the second name `to`: both name the same bytes from then on, and each
    /// is removed for itself. The new name is durable once its directory is synced.
    ///
    /// # Errors
    /// `from` is no file, or something has the name `to` already; with an error of which
    /// [`crate::Error::is_link_unsupported`] is true, there can be no such name for the file, but a
    /// copy of it can be made.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = to;
        let why = "the file system has no second names for files";
        Err(crate::error::Error::new("link", from, io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// How many names the file has; `None` where nobody can tell.
    ///
    /// # Errors
    /// It does not exist, or cannot be looked at.
    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// Remove a file.
    ///
    /// # Errors
    /// It does not exist or cannot be removed.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Create a directory and its missing parents; no error if it exists.
    ///
    /// # Errors
    /// It cannot be created.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// Create a directory and its missing parents, and make their names durable, and its own also
    /// if it was there. A parent that may not be read cannot be synced, and is passed over.
    ///
    /// # Errors
    /// It cannot be created, or a parent not be synced.
    fn create_dir_durably(&self, path: &Path) -> Result<()> {
        let mut unsynced = Vec::new();
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            let was_there = self.exists(dir)?;
            if let Some(parent) = dir.parent().filter(|_| !was_there || dir == path) {
                unsynced.push(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
            }
            if was_there {
                break;
            }
        }
        self.create_dir(path)?;
        for parent in unsynced.into_iter().rev() {
            match self.sync_dir(parent) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// It does not exist, is not empty or cannot be removed.
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Make the names in a directory durable.
    ///
    /// # Errors
    /// The sync failed.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Take an exclusive lock on the file at `path`, creating it if it is missing.
    ///
    /// # Errors
    /// Another process, or this one, holds it: then the operation of the error is `"lock"` and its
    /// kind `WouldBlock` ([`Error::is_locked`](crate::Error::is_locked)). Or the file cannot be
    /// created.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Bytes that may still be written where `path` is; `None` where nobody can tell.
    ///
    /// # Errors
    /// It does not exist, or the file system was not asked successfully.
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// Whether opening a file for reading here is opening that path with the operating system and
    /// nothing more. Then [`crate::open`] has the channel do it, without a thread.
    fn is_posix(&self) -> bool {
        false
    }
}
