//! The operating system's file system, and the few system calls that `std` does not offer.
//!
//! The blocking calls here are metadata operations and appends; reads of open files go through the
//! channel. For `O_DIRECT`, `statx` returns the device's alignment (Linux 6.1); 4096 bytes, which
//! suits every device, are used where it does not.

mod epoll;
mod mapping;

pub(crate) use self::epoll::{Epoll, receive_into};
use self::mapping::Mapping;
use crate::error::{Context, Error, Result};
use crate::file::{
    Backend, FileId, FileLock, FileSystem, MappedRange, Metadata, OpenOptions, PositionalFile,
    RandomAccessFile, WritableFile, WriteBackend,
};
use crate::report;
use crate::sync::counting::{AtomicU64, Ordering};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const DEFAULT_DIRECT_ALIGNMENT: u32 = 4096;

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixFileSystem;

/// Returns the CPU time of the calling thread; zero if the system cannot measure it.
#[cfg_attr(shuttle, expect(dead_code))]
pub(crate) fn thread_cpu_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` only.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    match failed {
        0 => std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => std::time::Duration::ZERO,
    }
}

/// An open file of the operating system.
#[derive(Debug)]
pub(crate) struct PosixFile {
    fd: OwnedFd,
    path: PathBuf,
    size: u64,
    alignment: u32,
    id: FileId,
}

impl PosixFile {
    /// Opens a file; blocks.
    pub(crate) fn open(path: &Path, options: OpenOptions) -> io::Result<Self> {
        let custom = if options.direct { libc::O_DIRECT } else { 0 };
        let fd: OwnedFd = fs::OpenOptions::new().read(true).custom_flags(custom).open(path)?.into();
        let status = describe(fd.as_fd())?;
        Self::new(fd, &status, path, options)
    }

    /// Makes a file of a descriptor that was opened with `options`, and of its `statx`.
    pub(crate) fn new(
        fd: OwnedFd,
        found: &libc::statx,
        path: &Path,
        options: OpenOptions,
    ) -> io::Result<Self> {
        if u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let alignment = if options.direct { direct_alignment(found)? } else { 1 };
        Ok(Self { fd, path: path.into(), size: found.stx_size, alignment, id: FileId::next() })
    }
}

impl RandomAccessFile for PosixFile {
    fn path(&self) -> &Path {
        &self.path
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn id(&self) -> FileId {
        self.id
    }
    fn alignment(&self) -> u32 {
        self.alignment
    }
    fn backend(&self) -> Backend<'_> {
        Backend::Fd(self.fd.as_fd())
    }
}

impl FileSystem for PosixFileSystem {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        Ok(Arc::new(PosixFile::open(path, options).context("open", path)?))
    }

    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path).context("read", path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path).context("list", path)? {
            // No file of a database has a name that is not UTF-8; it is listed in a lossy form
            // rather than omitted.
            names.push(entry.context("list", path)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let m = fs::metadata(path).context("stat", path)?;
        let is_dir = m.is_dir();
        Ok(Metadata { len: if is_dir { 0 } else { m.len() }, is_dir, modified: m.modified().ok() })
    }

    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        Ok(Some(fs::metadata(path).context("stat", path)?.nlink()))
    }

    fn canonical(&self, path: &Path) -> PathBuf {
        let of_parent = || {
            let name = path.file_name()?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Some(std::fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?.join(name))
        };
        let found = std::fs::canonicalize(path).ok().or_else(of_parent);
        found.or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned())
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(path);
        Ok(Box::new(Appender { file: file.context("create", path)?, path: path.into(), size: 0 }))
    }

    fn create_like(&self, path: &Path, like: &Path) -> Result<Box<dyn WritableFile>> {
        let mode = match fs::metadata(like) {
            Ok(metadata) => metadata.mode() & 0o777,
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0o600,
            Err(e) => return Err(e).context("stat", like),
        };
        // Other users must not open it before it has its rights.
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.context("create", path)?;
        file.set_permissions(fs::Permissions::from_mode(mode)).context("set the mode of", path)?;
        Ok(Box::new(Appender { file, path: path.into(), size: 0 }))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let file = fs::OpenOptions::new().append(true).create(true).open(path).context("append to", path)?;
        let size = file.metadata().context("append to", path)?.len();
        Ok(Box::new(Appender { file, path: path.into(), size }))
    }

    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        // Opened for reading too, because the mapping of a file that is written to must be
        // readable.
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        Ok(Arc::new(PosixWriter { file: file.context("create", path)?, path: path.into(), alignment: 1 }))
    }

    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path).context("create", path)?;
        let found = describe(file.as_fd()).context("create", path)?;
        // The larger of both alignments, because a write has a multiple of it as its length and as
        // its address in memory.
        let alignment =
            direct_alignment(&found).context("create", path)?.max(found.stx_dio_mem_align) as usize;
        Ok(Arc::new(PosixWriter { file, path: path.into(), alignment }))
    }

    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        let file = fs::OpenOptions::new().write(true).open(path).context("open", path)?;
        Ok(Arc::new(PosixWriter { file, path: path.into(), alignment: 1 }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).context("rename", from)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).context("link", from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).context("remove", path)
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).context("create directory", path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).context("remove directory", path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        File::open(path).and_then(|dir| dir.sync_all()).context("sync directory", path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.context("lock", path)?;
        // Compat: an fcntl lock, like RocksDB's; each sees the other's lock. A lock of the open
        // file description conflicts with those, and unlike them also within one process, and is
        // not lost when another descriptor of the file is closed.
        set_lock(file.as_fd(), libc::F_WRLCK).context("lock", path)?;
        Ok(Box::new(PosixLock { file, path: path.into(), fork_generation: fork_generation() }))
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        free_bytes(path).map(Some).context("ask for free space of", path)
    }

    fn is_posix(&self) -> bool {
        true
    }
}

/// Returns the name of this machine; empty if the operating system does not know it.
pub(crate) fn host_name() -> String {
    // Compat: the same maximum length as in RocksDB.
    let mut name = [0u8; 256];
    // SAFETY: the call writes at most `name.len()` bytes.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    if failed == 0 { String::from_utf8_lossy(&name[..len]).into_owned() } else { String::new() }
}

/// Returns the bytes that an unprivileged user can still write.
fn free_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte, and the structure outlives the call.
    free_bytes_found(|found| unsafe { libc::statvfs(path.as_ptr(), found) })
}

/// Returns the free bytes of the file system of an open file.
fn free_bytes_beside(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: the descriptor is open, and the structure outlives the call.
    free_bytes_found(|found| unsafe { libc::fstatvfs(fd.as_raw_fd(), found) })
}

fn free_bytes_found(find: impl FnOnce(&mut libc::statvfs) -> libc::c_int) -> io::Result<u64> {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    match find(&mut found) {
        0 => Ok((found.f_bavail as u64).saturating_mul(found.f_frsize as u64)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[derive(Debug)]
struct Appender {
    file: File,
    path: PathBuf,
    size: u64,
}

impl WritableFile for Appender {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn append(&mut self, data: &[u8]) -> Result<()> {
        let written = self.file.write_all(data);
        written.map_err(|e| Error::at("append to", &self.path, self.size, e))?;
        self.size += data.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().context("sync", &self.path)
    }

    fn sync_all(&mut self) -> Result<()> {
        self.file.sync_all().context("sync", &self.path)
    }

    fn reserve(&mut self, offset: u64, len: u64) -> Result<()> {
        let reserved = reserve_space(self.file.as_fd(), offset, len);
        reserved.map_err(|e| Error::at("reserve space in", &self.path, offset, e))
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        use std::io::Seek;
        self.file.set_len(size).context("truncate", &self.path)?;
        self.file.seek(io::SeekFrom::End(0)).context("truncate", &self.path)?;
        self.size = size;
        Ok(())
    }
}

#[derive(Debug)]
struct PosixWriter {
    file: File,
    path: PathBuf,
    alignment: usize,
}

impl PositionalFile for PosixWriter {
    fn path(&self) -> &Path {
        &self.path
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.file.write_all_at(data, offset).map_err(|e| Error::at("write", &self.path, offset, e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().context("sync", &self.path)
    }

    fn sync_all(&self) -> Result<()> {
        self.file.sync_all().context("sync", &self.path)
    }

    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()> {
        // From the file's start, because a strict call waits for all writeback started earlier.
        let (offset, len) = if strict { (0, offset + len) } else { (offset, len) };
        let begun = begin_write_back(self.file.as_fd(), offset, len, strict);
        begun.map_err(|e| Error::at("sync", &self.path, offset, e))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let reserved = reserve_space(self.file.as_fd(), offset, len);
        reserved.map_err(|e| Error::at("reserve space in", &self.path, offset, e))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.file.set_len(size).context("truncate", &self.path)
    }

    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        Mapping::new(&self.file, offset, len).ok().map(|mapping| Box::new(mapping) as _)
    }

    fn backend(&self) -> WriteBackend<'_> {
        // The memory of a channel's write has no alignment.
        if self.alignment == 1 { WriteBackend::Fd(self.file.as_fd()) } else { WriteBackend::Blocking }
    }
}

#[derive(Debug)]
struct PosixLock {
    file: File,
    path: PathBuf,
    fork_generation: u64,
}

impl Drop for PosixLock {
    fn drop(&mut self) {
        // Released before the file is closed, because a child that another thread has forked, and
        // that has not reached its `exec` yet, has the file open too, and would keep the lock until
        // then. Not released in a child, because the lock is the parent's.
        if self.fork_generation == fork_generation()
            && let Err(error) = set_lock(self.file.as_fd(), libc::F_UNLCK)
        {
            report!(warn, file = %self.path.display(), %error, "a lock was not released before its file was closed");
        }
    }
}

impl FileLock for PosixLock {
    fn path(&self) -> &Path {
        &self.path
    }
}

/// The fields to request from `statx`; the next constant has the flags of the call.
pub(crate) const STATX_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_DIOALIGN;
pub(crate) const STATX_FLAGS: i32 = libc::AT_EMPTY_PATH;

/// Returns the flags for opening a file for reading.
pub(crate) fn open_flags(options: OpenOptions) -> i32 {
    libc::O_RDONLY | libc::O_CLOEXEC | if options.direct { libc::O_DIRECT } else { 0 }
}

/// Returns memory for a `statx` to fill.
pub(crate) fn blank_statx() -> libc::statx {
    // SAFETY: all-zero bytes are a valid `statx`.
    unsafe { std::mem::zeroed() }
}

/// Returns the alignment in bytes that direct I/O on a file requires.
///
/// # Errors
/// The file does not support direct I/O, or the device requires an alignment that buffers do not
/// have.
fn direct_alignment(found: &libc::statx) -> io::Result<u32> {
    if found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(DEFAULT_DIRECT_ALIGNMENT);
    }
    let (memory, offset) = (found.stx_dio_mem_align, found.stx_dio_offset_align);
    // Buffers start at multiples of 4096; a larger memory alignment, or an offset alignment that is
    // no power of two, is not supported.
    if memory as usize <= crate::buffer::MEMORY_ALIGNMENT && offset.is_power_of_two() {
        return Ok(offset);
    }
    let why = "the file system does not support direct I/O on this file";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

fn describe(fd: BorrowedFd<'_>) -> io::Result<libc::statx> {
    let mut found = blank_statx();
    // SAFETY: the descriptor is open, the empty path is a terminated string, `found` outlives the
    // call.
    let result = unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), STATX_FLAGS, STATX_MASK, &mut found) };
    if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

fn set_lock(fd: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `flock`: from the start of the file to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open and `lock` outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel start to write dirty pages of a range; with `wait_before`, after it has completed
/// the writeback started earlier. Does nothing if the system call is not supported.
fn begin_write_back(fd: BorrowedFd<'_>, offset: u64, len: u64, wait_before: bool) -> io::Result<()> {
    let (offset, len) = (file_offset(offset)?, file_offset(len)?);
    let wait = if wait_before { libc::SYNC_FILE_RANGE_WAIT_BEFORE } else { 0 };
    let flags = libc::SYNC_FILE_RANGE_WRITE | wait;
    // SAFETY: the descriptor is open; no memory is involved.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => unless_unsupported(io::Error::last_os_error()),
    }
}

/// Checks that a reservation takes at most half of the free space.
///
/// Asked before the reservation, because ext4 without room for all leaves the blocks allocated so
/// far with the file, and none for others. File systems that do not tell their free space are not
/// limited.
pub(crate) fn may_reserve(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    if free_bytes_beside(fd).is_ok_and(|free| len > free / 2) {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    file_offset(offset).and(file_offset(len)).map(drop)
}

/// Allocates blocks, beyond the end of the file too, without changing its length; does nothing if
/// the file system does not support it.
fn reserve_space(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    loop {
        match allocate(fd, offset, len) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            allocated => return allocated.or_else(unless_unsupported),
        }
    }
}

/// Allocates blocks like [`PositionalFile::reserve`], but fails if it is interrupted or not
/// supported.
pub(crate) fn allocate(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    may_reserve(fd, offset, len)?;
    let (offset, len) = (file_offset(offset)?, file_offset(len)?);
    // SAFETY: the descriptor is open; no memory is involved.
    succeeded(unsafe { libc::fallocate(fd.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, len) })
}

/// Calls `pwrite` once. Returns the number of bytes written.
pub(crate) fn write_some(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<usize> {
    let offset = file_offset(offset)?;
    // SAFETY: the descriptor is open, and `data` can be read.
    let written = unsafe { libc::pwrite(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), offset) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Calls `fdatasync` once, or `fsync` if all metadata is to be durable too.
pub(crate) fn sync_once(fd: BorrowedFd<'_>, all: bool) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: the descriptor is open; no memory is involved.
    succeeded(unsafe { if all { libc::fsync(fd) } else { libc::fdatasync(fd) } })
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn unless_unsupported(e: io::Error) -> io::Result<()> {
    match e.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(()),
        _ => Err(e),
    }
}

fn file_offset(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Calls `pread` into a buffer that the caller owns alone.
pub(crate) fn read_into(
    fd: BorrowedFd<'_>,
    buffer: &mut crate::buffer::Buffer,
    start: usize,
    len: usize,
    offset: u64,
) -> io::Result<usize> {
    assert!(start + len <= buffer.capacity());
    let Ok(offset) = libc::off_t::try_from(offset) else { return Err(io::ErrorKind::InvalidInput.into()) };
    // SAFETY: `start + len` is inside the buffer as just checked, and `&mut` excludes all other
    // users.
    let result = unsafe { libc::pread(fd.as_raw_fd(), buffer.start().add(start).cast(), len, offset) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// Makes an eventfd, to which one thread writes to wake another out of its ring.
pub(crate) fn eventfd() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, without another owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Returns the number of forks between this process and the one that first called this. An object
/// that recorded another number was made in an ancestor.
pub(crate) fn fork_generation() -> u64 {
    use std::sync::Once;
    static REGISTER: Once = Once::new();
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    REGISTER.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is safe in a forked child.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(registered, 0, "pthread_atfork is out of memory");
    });
    GENERATION.load(Ordering::Relaxed)
}

/// See [`fork_generation`].
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process that made this value, distinguished from the children forked from it later (by the C
/// library's `fork`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnProcess {
    fork_generation: u64,
}

impl OwnProcess {
    /// Returns a value for the calling process.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it says where it was made")]
    pub fn new() -> Self {
        Self { fork_generation: fork_generation() }
    }

    /// Returns true if the calling process is the one that made it. One relaxed load.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self.fork_generation == GENERATION.load(Ordering::Relaxed)
    }
}

/// The operating system's number of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(libc::pid_t);

/// Returns the number of the calling thread.
pub(crate) fn thread_number() -> ThreadNumber {
    // SAFETY: the call takes no arguments and touches no memory.
    ThreadNumber(unsafe { libc::gettid() })
}

/// CPU priority of a thread, the lowest first. RocksDB's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuPriority {
    /// Runs only when no other thread wants the processor (`SCHED_IDLE`).
    Idle,
    /// The lowest priority of an ordinary thread (niceness 19).
    Low,
    /// The priority of ordinary threads.
    #[default]
    Normal,
    /// Higher than `Normal`. No function here raises a thread above the priority it had.
    High,
}

/// Returns the niceness of a thread, -20 to 19; a nicer thread gets less CPU time when processors
/// are scarce.
pub(crate) fn niceness(thread: ThreadNumber) -> Option<i32> {
    // SAFETY: the call takes numbers only. The system call itself, because the library function
    // cannot distinguish -1 from an error.
    let found = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, thread.0) };
    // The kernel returns 20 minus the niceness, which is never negative.
    (found > 0).then(|| 20 - found as i32)
}

/// Scheduling of the ordinary threads of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduling {
    nice: i32,
    /// True if threads may raise their niceness and restore it.
    may_be_nicer: bool,
}

impl Scheduling {
    /// Makes `thread` yield to others: adds `nicer_by` to its niceness.
    pub(crate) fn give_way(self, thread: ThreadNumber, nicer_by: i32) -> io::Result<()> {
        let (policy, nice) = self.giving_way(nicer_by);
        // Sets the policy too, because a `SCHED_BATCH` thread does not preempt others when it wakes
        // up.
        set_policy(thread, policy)?;
        set_niceness(thread, nice)
    }

    /// Returns policy and niceness of threads that give way.
    pub(crate) fn giving_way(self, nicer_by: i32) -> (libc::c_int, i32) {
        let nicer_by = if self.may_be_nicer { nicer_by } else { 0 };
        (libc::SCHED_BATCH, (self.nice + nicer_by).min(19))
    }

    /// Makes `thread` run as an ordinary one.
    pub(crate) fn restore(self, thread: ThreadNumber) -> io::Result<()> {
        set_policy(thread, libc::SCHED_OTHER)?;
        set_niceness(thread, self.nice)
    }
}

/// Returns the scheduling policy of a thread; negative if unknown.
pub(crate) fn policy(thread: ThreadNumber) -> libc::c_int {
    // SAFETY: the call takes a number only.
    unsafe { libc::sched_getscheduler(thread.0) }
}

/// Lowers the CPU priority of a thread for good, as RocksDB does.
pub(crate) fn lower_cpu_priority(thread: ThreadNumber, priority: CpuPriority) -> io::Result<()> {
    match priority {
        CpuPriority::Idle => set_policy(thread, libc::SCHED_IDLE),
        CpuPriority::Low => set_niceness(thread, 19),
        CpuPriority::Normal | CpuPriority::High => Ok(()),
    }
}

/// I/O priority of a thread whose requests are served when no other process uses the device:
/// RocksDB's lower one.
pub(crate) const IO_IDLE: libc::c_int = 3 << 13;
/// I/O priority of a thread for which none was set.
pub(crate) const IO_ORDINARY: libc::c_int = 0;

/// The `who` argument of `ioprio_get` and `ioprio_set` that selects one thread.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Returns the I/O priority of a thread.
#[cfg(test)]
pub(crate) fn io_priority(thread: ThreadNumber) -> libc::c_int {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread.0) as libc::c_int }
}

pub(crate) fn set_io_priority(thread: ThreadNumber, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread.0, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_policy(thread: ThreadNumber, policy: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are the parameters of a policy that has none.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameters outlive the call.
    match unsafe { libc::sched_setscheduler(thread.0, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_niceness(thread: ThreadNumber, nice: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.0 as libc::id_t, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the scheduling of ordinary threads, or `None` if the process does not run under the
/// ordinary policy.
pub(crate) fn ordinary_scheduling() -> Option<Scheduling> {
    static FOUND: OnceLock<Option<Scheduling>> = OnceLock::new();
    let find = || {
        let process = ThreadNumber(libc::pid_t::try_from(std::process::id()).ok()?);
        if policy(process) != libc::SCHED_OTHER {
            return None;
        }
        let scheduling = Scheduling { nice: niceness(process)?, may_be_nicer: true };
        // Tried on a thread that ends afterwards, because the permission depends on capabilities,
        // limits and the sandbox of the process.
        let tried = std::thread::Builder::new().name("karst-try".into()).spawn(move || {
            let own = thread_number();
            scheduling.give_way(own, 1).and_then(|()| scheduling.restore(own))
        });
        let goes_back = matches!(tried.ok()?.join(), Ok(Ok(())));
        Some(Scheduling { may_be_nicer: goes_back, ..scheduling })
    };
    *FOUND.get_or_init(find)
}

/// Binds the calling thread to one of the CPUs it may use: number `number`, modulo their count.
pub(crate) fn pin_to_cpu(number: usize) -> io::Result<()> {
    // SAFETY: all-zero bytes are an empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the set has `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &mut allowed) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all numbers are below the set's size.
    let cpus: Vec<usize> =
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) }).collect();
    let cpu = *cpus.get(number % cpus.len().max(1)).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: all-zero bytes are an empty set.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: the set has `size` bytes.
    if unsafe { libc::sched_setaffinity(0, size, &one) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cloned descriptor stands for a child between `fork` and `exec`: the same open file
    /// description.
    #[test]
    fn a_lock_is_given_back_while_a_forked_child_still_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let file = File::create(&path).unwrap();
        set_lock(file.as_fd(), libc::F_WRLCK).unwrap();
        let inherited = file.try_clone().unwrap();
        let lock = PosixLock { file, path: path.clone(), fork_generation: fork_generation() };
        drop(lock);
        drop(PosixFileSystem.lock(&path).expect("the lock is free"));
        drop(inherited);
        // A child that drops its inherited lock leaves the parent's lock held.
        let file = File::create(&path).unwrap();
        set_lock(file.as_fd(), libc::F_WRLCK).unwrap();
        let of_parent = file.try_clone().unwrap();
        drop(PosixLock { file, path: path.clone(), fork_generation: fork_generation() + 1 });
        PosixFileSystem.lock(&path).expect_err("the parent has it");
        drop(of_parent);
    }

    #[test]
    fn free_space_is_told_for_what_exists() {
        let folder = tempfile::tempdir().unwrap();
        let free = PosixFileSystem.free_bytes(folder.path()).unwrap().unwrap();
        // Only more than 0, because the file system may be nearly full.
        assert!(free > 0);
        assert!(PosixFileSystem.free_bytes(&folder.path().join("missing")).unwrap_err().is_not_found());
    }
}
