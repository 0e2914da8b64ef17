//! Traits of files and file systems, and the options to open them.
//!
//! A file opened for reading tells the channel how to reach its bytes: by a file descriptor, which
//! the transport (io_uring or threads) reads from, or by a [`SoftFile`], which lives in this
//! process. Either way reads go through the same channel and complete later, never in the call that
//! started them. A test on an in-memory file therefore runs the same code as a disk does.
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

/// Options to open a file for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenOptions {
    /// Bypass the page cache (`O_DIRECT`). The channel aligns reads to the device; callers may ask
    /// for any offset and length.
    pub direct: bool,
}

impl OpenOptions {
    /// Read through the page cache.
    pub const BUFFERED: Self = Self { direct: false };
    /// Bypass the page cache.
    pub const DIRECT: Self = Self { direct: true };
}

/// Identifies an open file; unique among the open files of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// Returns the next unused number.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(counting::next_name(&NEXT))
    }
}

/// Access path of the channel to a file's bytes.
#[derive(Debug)]
pub enum Backend<'a> {
    /// A file descriptor of the operating system.
    Fd(BorrowedFd<'a>),
    /// A file that lives in this process.
    Soft(&'a dyn SoftFile),
}

/// Access path of the channel to a file open for writing.
#[derive(Debug)]
pub enum WriteBackend<'a> {
    /// A file descriptor of the operating system.
    Fd(BorrowedFd<'a>),
    /// A file that lives in this process: its calls do not block.
    Soft,
    /// A file with blocking calls only, which are made on a thread that may block.
    Blocking,
}

/// A file open for reading at any offset. Shared freely between threads.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Returns the path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Returns its length in bytes when it was opened.
    fn size(&self) -> u64;
    /// Returns its process-unique number.
    fn id(&self) -> FileId;
    /// Returns the alignment of a read's offset and length in bytes: 1, or the device's for
    /// `O_DIRECT`. A power of two. The channel reads more and trims; callers need not align.
    fn alignment(&self) -> u32;
    /// Returns the channel's access path to the file.
    fn backend(&self) -> Backend<'_>;
    /// Returns the fault injected into a read of `len` bytes at `offset`. Called once for each read
    /// handed to the backend; `None` on every file outside of tests.
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        let _ = (offset, len);
        None
    }
}

/// A file whose bytes are in this process.
pub trait SoftFile: Send + Sync + Debug {
    /// Copies bytes from `offset` into `into`; returns fewer than asked only at the end of the
    /// file. Must not block.
    ///
    /// # Errors
    /// Those the file chooses to return to its reader.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A fault injected into one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Minimum time from issue to completion.
    pub delay: Option<Duration>,
    /// Errno to fail with, without reading.
    pub fail: Option<i32>,
    /// Maximum number of bytes to read, at least one (rounded up to the alignment, like a device).
    pub shorten_to: Option<usize>,
    /// Number of the bit to flip after reading, modulo the bits read.
    pub flip_bit: Option<u64>,
}

impl Disturbance {
    /// Combines two faults: the longer delay, the shorter read, and the failure or flip of either
    /// (this one's first).
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

/// Metadata of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes (0 for a directory).
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
    /// Time of the last change of content, where the file system knows it.
    pub modified: Option<SystemTime>,
}

/// A file open for appending. All calls block; see [`crate::Env::run_blocking`].
pub trait WritableFile: Send + Debug {
    /// Returns the path it was opened by.
    fn path(&self) -> &Path;
    /// Returns the bytes in the file, including those just appended.
    fn size(&self) -> u64;
    /// Appends `data`. The bytes have left the process when this returns, but are not durable.
    ///
    /// # Errors
    /// The write failed; the file may hold a part of `data`.
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Makes the data and the length durable (`fdatasync`).
    ///
    /// # Errors
    /// The sync failed: bytes appended since the last sync may be lost, and the caller must append
    /// nothing more to the file.
    fn sync(&mut self) -> Result<()>;
    /// Makes the data and all metadata durable, such as the time of modification (`fsync`). Equal
    /// to [`sync`](Self::sync) where the file system makes no difference.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    fn sync_all(&mut self) -> Result<()> {
        self.sync()
    }
    /// Reserves space for `len` bytes from `offset` without changing the file's length. Does
    /// nothing if the file system does not support it. A reservation takes at most half of the free
    /// space, because a file that may never need it must leave room for the others.
    ///
    /// # Errors
    /// The device has no such space, or the reservation would take more than half of it; it has
    /// then taken none.
    fn reserve(&mut self, offset: u64, len: u64) -> Result<()>;
    /// Cuts the file to `size` bytes and releases the space reserved beyond.
    ///
    /// # Errors
    /// The file could not be cut.
    fn truncate(&mut self, size: u64) -> Result<()>;
}

/// A file open for writing at any offset, by any number of threads. All calls block; async code
/// appends through a [`crate::FileWriter`], or writes through its channel with [`crate::write_at`].
pub trait PositionalFile: Send + Sync + Debug {
    /// Returns the path it was opened by.
    fn path(&self) -> &Path;
    /// Returns the alignment in bytes of a write's offset, length and memory address: 1, or the
    /// device's for a file made by [`FileSystem::create_direct`]. A power of two.
    /// [`crate::FileWriter`] aligns its writes.
    fn alignment(&self) -> usize {
        1
    }
    /// Writes all of `data` at `offset`. The bytes have left the process when this returns, but are
    /// not durable. A gap before `offset` reads as zeros.
    ///
    /// # Errors
    /// The write failed; a part of `data` may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes the data written before this call and the length durable (`fdatasync`).
    ///
    /// # Errors
    /// The sync failed: bytes written since the last sync may be lost, and the caller must write
    /// nothing more to the file.
    fn sync(&self) -> Result<()>;
    /// Makes the data and all metadata durable, such as the time of modification (`fsync`). Equal
    /// to [`sync`](Self::sync) where the file system makes no difference.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    fn sync_all(&self) -> Result<()> {
        self.sync()
    }
    /// Starts writeback of `len` bytes from `offset`, without waiting for it and without any
    /// guarantee of durability. With `strict`, first waits for the writeback of all earlier bytes,
    /// which keeps at most one range in flight.
    ///
    /// # Errors
    /// The device has failed. Lack of support is no error.
    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()>;
    /// Reserves space for `len` bytes from `offset` without changing the file's length. Does
    /// nothing if the file system does not support it. A reservation takes at most half of the free
    /// space, because a file that may never need it must leave room for the others.
    ///
    /// # Errors
    /// The device has no such space, or the reservation would take more than half of it; it has
    /// then taken none.
    fn reserve(&self, offset: u64, len: u64) -> Result<()>;
    /// Cuts the file to `size` bytes and releases the space reserved beyond.
    ///
    /// # Errors
    /// The file could not be cut.
    fn truncate(&self, size: u64) -> Result<()>;
    /// Maps `len` bytes from `offset`, a multiple of [`MAP_ALIGNMENT`], into memory. Extends the
    /// file with zeros to the end of the range. Returns `None`, with the file unchanged, if the
    /// file system cannot map or has no room; [`write_at`](Self::write_at) then returns the error.
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        let _ = (offset, len);
        None
    }
    /// Returns the channel's access path to the file. Default: blocking calls. A file that does
    /// more in its calls than the operating system does has no other.
    fn backend(&self) -> WriteBackend<'_> {
        WriteBackend::Blocking
    }
    /// Returns the fault injected into a write of `len` bytes at `offset`, or with `len` 0 into a
    /// sync or a reservation. Called once for each step handed to the backend; `None` on every file
    /// outside of tests. Flipped bits have no effect, and delays only on soft files.
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        let _ = (offset, len);
        None
    }
}

/// Alignment in bytes of the offset of [`PositionalFile::map`]: a multiple of the page size of
/// every supported processor.
pub const MAP_ALIGNMENT: u64 = 64 << 10;

/// A range of a file mapped into memory. Bytes put there have left the process, like those of
/// [`PositionalFile::write_at`], but without a system call; they are durable after
/// [`PositionalFile::sync`].
pub trait MappedRange: Send + Debug {
    /// Copies `data` to `offset` of the file. If the file system cannot supply the page, for
    /// example because it has become read-only, the process dies of `SIGBUS`.
    ///
    /// # Panics
    /// `data` does not lie within the range.
    fn put(&mut self, offset: u64, data: &[u8]);
}

/// A held lock file; dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {
    /// Returns the path of the lock file.
    fn path(&self) -> &Path;
}

/// A file system. All calls block the calling thread for the time of a metadata operation.
/// [`crate::open`] opens a file asynchronously; [`crate::Env::run_blocking`] runs the other
/// operations.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file does not exist, may not be read, is a directory, or does not support direct I/O
    /// although `options` ask for it.
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>>;

    /// Returns all bytes of a file.
    ///
    /// # Errors
    /// Those of [`FileSystem::open_random`], or the read failed.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>>;

    /// Returns the names in a directory, without `.` and `..`, sorted.
    ///
    /// # Errors
    /// The directory does not exist, is no directory or may not be read.
    fn list_dir(&self, path: &Path) -> Result<Vec<String>>;

    /// Returns the metadata of the entry at `path`, following symbolic links.
    ///
    /// # Errors
    /// The entry does not exist, or access to it is denied.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// Returns true if a file or directory exists at `path`.
    ///
    /// # Errors
    /// The answer is unknown (a parent may not be searched, the device fails).
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns one path for all spellings of a directory, as far as possible: absolute, without
    /// symbolic links, `.` and `..`. The directory need not exist.
    ///
    /// The default suits file systems in which only `.` gives a path a second spelling.
    fn canonical(&self, path: &Path) -> PathBuf {
        path.components().collect()
    }

    /// Creates a file, or truncates an existing one, and opens it for appending.
    ///
    /// # Errors
    /// The file cannot be created.
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Creates a file that does not exist, and opens it for appending. Its access rights are those
    /// of the file `like`, or its owner's only without one. File systems without access rights
    /// only check that it does not exist.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    fn create_like(&self, path: &Path, like: &Path) -> Result<Box<dyn WritableFile>> {
        let _has_no_rights = like;
        if self.exists(path)? {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(crate::Error::new("create", path.display().to_string(), exists));
        }
        self.create(path)
    }

    /// Opens an existing file for appending, or creates it.
    ///
    /// # Errors
    /// The file cannot be opened.
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>>;

    /// Creates a file, or truncates an existing one, and opens it for writing at any offset.
    ///
    /// # Errors
    /// The file cannot be created.
    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// Creates a file like [`create_positional`](Self::create_positional), bypassing the page cache
    /// (`O_DIRECT`): each write must be aligned ([`PositionalFile::alignment`]).
    ///
    /// # Errors
    /// The file cannot be created, or, if [`crate::Error::is_direct_unsupported`] is true of the
    /// error, cannot be created for direct I/O.
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// Opens an existing file for writing at any offset. Its content stays until it is overwritten.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened.
    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>>;

    /// Renames `from` to `to`, replacing an existing file `to`.
    ///
    /// # Errors
    /// The file cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Creates a hard link `to` of the file `from`: both names refer to the same bytes, and each is
    /// removed separately. The new name is durable once its directory is synced.
    ///
    /// # Errors
    /// `from` is no file, or `to` exists. If [`crate::Error::is_link_unsupported`] is true of the
    /// error, the file cannot have such a link, but can be copied.
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = to;
        let why = "the file system has no second names for files";
        Err(crate::error::Error::new("link", from, io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// Returns the number of hard links of the file; `None` if the file system does not count them.
    ///
    /// # Errors
    /// The file does not exist, or its metadata cannot be read.
    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The file does not exist or cannot be removed.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Creates a directory and its missing parents; no error if it exists.
    ///
    /// # Errors
    /// The directory cannot be created.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// Creates a directory and its missing parents and makes their names durable; an existing
    /// directory's own name is synced too. A parent that may not be read cannot be synced, and is
    /// skipped.
    ///
    /// # Errors
    /// The directory cannot be created, or a parent cannot be synced.
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

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The directory does not exist, is not empty or cannot be removed.
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The sync failed.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Takes an exclusive lock on the file at `path`, creating it if it is missing.
    ///
    /// # Errors
    /// Another process, or this one, holds it: then the operation of the error is `"lock"` and its
    /// kind `WouldBlock` ([`Error::is_locked`](crate::Error::is_locked)). Or the file cannot be
    /// created.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Returns the bytes that can still be written to the file system of `path`; `None` if unknown.
    ///
    /// # Errors
    /// `path` does not exist, or the operating system refused the query.
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// Returns true if opening a file for reading is no more than opening that path with the
    /// operating system. [`crate::open`] then opens it through the channel, without a thread.
    fn is_posix(&self) -> bool {
        false
    }
}
