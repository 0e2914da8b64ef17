//! [`SimulatedFileSystem`]: the file system of a simulated machine.
//!
//! Names and errors are those of POSIX; [`super::disk`] describes power failures and injected
//! errors. Reads take a seeded time. Every event becomes a part of the simulation's history.

use super::Trouble;
use super::disk::{Disk, Fate, File, Node};
use super::executor::Executor;
use super::fault::{Fault, Faulty, Operation, elsewhere};
use super::inode::{Change, Inode, SECTOR};
use super::journal::{Image, Journal};
use crate::env::Clock;
use crate::error::{Context, Error, Result};
use crate::file::{
    Backend, Disturbance, FileId, FileLock, FileSystem, MappedRange, Metadata, OpenOptions, PositionalFile,
    RandomAccessFile, SoftFile, WritableFile, WriteBackend,
};
use crate::soft::{UnalignedRefused, errno, normal};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

const DIRECT_ALIGNMENT: u32 = 512;
/// Maximum time of a step of an asynchronous write, in microseconds, and that of a slow one.
const STEP_US: u64 = 200;
const SLOW_STEP_US: u64 = 5000;
/// Probabilities of a slow, an interrupted and a short step.
const SLOW_STEPS: f64 = 0.06;
const INTERRUPTED_STEPS: f64 = 0.05;
const SHORT_STEPS: f64 = 0.1;

/// The file system of a simulated machine. Clones share the files.
#[derive(Clone)]
pub struct SimulatedFileSystem {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Mutex<Disk>,
    /// The executor whose history records the events, if attached.
    executor: Mutex<Weak<Executor>>,
}

impl Shared {
    fn note(&self, what: fmt::Arguments<'_>) {
        let executor = self.executor.lock().upgrade();
        if let Some(executor) = executor {
            executor.note(what);
        }
    }

    /// Records the event like [`Shared::note`], before a change; a blocking job may linger here.
    fn begin_change(&self, what: fmt::Arguments<'_>) {
        let executor = self.executor.lock().upgrade();
        if let Some(executor) = executor {
            executor.note(what);
            executor.linger(|| self.disk.lock().is_off);
        }
    }

    /// Draws the time of a step of an asynchronous write, and the faults that its writer must not
    /// notice.
    fn step_of_write(&self, len: usize) -> Disturbance {
        let random = &mut self.disk.lock().random;
        let most_us = if random.chance(SLOW_STEPS) { SLOW_STEP_US } else { STEP_US };
        Disturbance {
            delay: Some(Duration::from_nanos(random.below(most_us * 1000))),
            fail: random.chance(INTERRUPTED_STEPS).then_some(libc::EINTR),
            shorten_to: (len > 1 && random.chance(SHORT_STEPS))
                .then(|| 1 + random.below(len as u64) as usize),
            flip_bit: None,
        }
    }

    fn unix_time(&self) -> Duration {
        let executor = self.executor.lock().upgrade();
        executor.map_or(Duration::ZERO, |executor| executor.clock().unix_time())
    }

    /// Writes to a file: all of `data`, or a part of it and an error. Returns the number of bytes
    /// written.
    fn write(
        &self,
        life: u64,
        path: &Path,
        file: &File,
        offset: u64,
        data: &[u8],
    ) -> (usize, io::Result<()>) {
        self.begin_change(format_args!("write {} {offset}+{}", path.display(), data.len()));
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= i64::MAX as u64);
        let (Ok(offset), Some(_)) = (usize::try_from(offset), end) else {
            return (0, Err(errno(libc::EFBIG)));
        };
        let modified = self.unix_time();
        let mut disk = self.disk.lock();
        let probability = disk.trouble.write_error;
        let room = disk.room(path, file, offset, data.len());
        let fault = if disk.is_off { None } else { disk.fault(Operation::Write, path) };
        let (portion, result) = match (disk.fate(life, probability), fault) {
            (Fate::Happens, Some(Fault::Fail(code))) => ((data.len() / 2).min(room), Err(errno(code))),
            (Fate::Happens, _) if room < data.len() => (room, Err(errno(libc::ENOSPC))),
            (Fate::Happens, _) => (data.len(), Ok(())),
            (Fate::Fails(e, fraction), _) => (((data.len() as f64 * fraction) as usize).min(room), Err(e)),
        };
        if portion > 0 {
            let mut bytes = data[..portion].to_vec();
            let (len, mut offset) = (file.lock().current.len(), offset);
            match fault {
                Some(Fault::Misdirected) => offset = elsewhere(offset, len),
                // The file still grows to the end of the write, as if its blocks had been reserved.
                Some(Fault::Stale) => {
                    let inode = file.lock();
                    let before = inode.current.get(offset..).unwrap_or_default();
                    bytes.clear();
                    bytes.extend_from_slice(&before[..portion.min(before.len())]);
                    bytes.resize(portion, 0);
                }
                Some(fault) => fault.flip(&mut bytes),
                None => {}
            }
            disk.change(file, Change::Write { offset, data: bytes.into() });
            file.lock().modified = modified;
        }
        (portion, result)
    }

    fn sync(&self, life: u64, path: &Path, file: &File) -> io::Result<()> {
        self.begin_change(format_args!("sync {}", path.display()));
        let mut disk = self.disk.lock();
        let struck = matches!(disk.fault(Operation::Sync, path), Some(Fault::Fail(_)));
        let probability = if struck { 1.0 } else { disk.trouble.sync_error };
        match disk.fate(life, probability) {
            Fate::Happens => {
                disk.sync(file);
                Ok(())
            }
            Fate::Fails(e, _) if disk.is_off || disk.life != life => Err(e),
            Fate::Fails(e, _) => {
                disk.fail_sync(file);
                Err(e)
            }
        }
    }

    fn truncate(&self, life: u64, path: &Path, file: &File, size: u64) -> io::Result<()> {
        self.begin_change(format_args!("truncate {} {size}", path.display()));
        let size = usize::try_from(size).map_err(|_| errno(libc::EFBIG))?;
        let mut disk = self.disk.lock();
        disk.strike(Operation::Truncate, path)?;
        let probability = disk.trouble.write_error;
        disk.whole(life, probability)?;
        disk.change(file, Change::Cut(size));
        file.lock().reserved = 0;
        Ok(())
    }

    fn reserve(&self, life: u64, path: &Path, file: &File, (offset, len): (u64, u64)) -> Result<()> {
        let disk = self.disk.lock();
        let reserved = disk.check_on(life).and_then(|()| disk.reserve(path, file, offset + len));
        reserved.map_err(|e| Error::at("reserve space in", path, offset, e))
    }
}

impl SimulatedFileSystem {
    /// Returns an empty disk, whose latencies, failures and losses come from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::of(Disk::new(seed))
    }

    /// Returns the disk that a crash has left: everything on it is durable.
    pub fn with_image(image: &Image, seed: u64) -> Self {
        Self::of(Disk::with(image, seed))
    }

    fn of(disk: Disk) -> Self {
        Self { shared: Arc::new(Shared { disk: Mutex::new(disk), executor: Mutex::new(Weak::new()) }) }
    }

    /// Records every change from now on, for [`SimulatedFileSystem::take_journal`].
    ///
    /// # Panics
    /// If some data on the disk is not durable; and later, if a sync fails, because a journal
    /// cannot describe the state after it.
    pub fn record(&self) {
        self.shared.disk.lock().begin_journal();
    }

    /// Returns the number of recorded changes.
    pub fn recorded(&self) -> usize {
        self.shared.disk.lock().journal.as_ref().map_or(0, Journal::len)
    }

    /// Returns the recorded changes and ends the recording.
    pub fn take_journal(&self) -> Option<Journal> {
        self.shared.disk.lock().journal.take()
    }

    pub(super) fn attach(&self, executor: &Arc<Executor>) {
        *self.shared.executor.lock() = Arc::downgrade(executor);
    }

    /// Sets the probabilities of failures from now on.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.shared.disk.lock().trouble = trouble;
    }

    /// Limits the bytes of all files together from now on, reserved bytes included; `None` for no
    /// limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.disk.lock().capacity = bytes;
    }

    /// From now on files for which `full` returns true find no room: they are neither created nor
    /// written to. `None` for no such files.
    pub fn set_full(&self, full: Option<fn(&Path) -> bool>) {
        self.shared.disk.lock().full = full;
    }

    /// From now on calls `faults` before each operation for its fault. `faults` must not touch the
    /// disk.
    pub fn set_faults(&self, faults: impl FnMut(Operation, &Path) -> Option<Fault> + Send + 'static) {
        self.shared.disk.lock().faulty = Some(Faulty(Box::new(faults)));
    }

    /// Makes the power fail at the change (a write, sync, create, rename or removal) that follows
    /// `changes` more.
    pub fn lose_power_after(&self, changes: u64) {
        self.shared.disk.lock().fuse = Some(changes);
    }

    /// Makes the power fail now.
    pub fn lose_power_now(&self) {
        self.shared.disk.lock().is_off = true;
    }

    /// Returns true if the power has failed, after which every operation fails until the machine is
    /// restarted.
    pub fn is_off(&self) -> bool {
        self.shared.disk.lock().is_off
    }

    /// Returns the number of changes.
    pub fn changes(&self) -> u64 {
        self.shared.disk.lock().changes
    }

    /// Returns the number of operations that were made to fail.
    pub fn failures(&self) -> u64 {
        self.shared.disk.lock().failures
    }

    /// Ends the life of all open handles: with the process only, or with the machine's power.
    pub(super) fn end_life(&self, with_power: bool) {
        let mut disk = self.shared.disk.lock();
        if with_power {
            disk.lose_power();
        } else {
            disk.lose_process();
        }
    }

    fn begin_change(&self, op: &str, path: &Path) {
        self.shared.begin_change(format_args!("{op} {}", path.display()));
    }

    fn note(&self, op: &str, path: &Path) {
        self.shared.note(format_args!("{op} {}", path.display()));
    }

    /// Makes a new, empty file at `path`, replacing any other.
    fn fresh(&self, path: &Path) -> io::Result<(File, u64)> {
        let at = normal(path);
        let modified = self.shared.unix_time();
        let mut disk = self.shared.disk.lock();
        disk.check_place(&at)?;
        disk.strike(Operation::Create, path)?;
        let life = disk.life;
        let probability = disk.trouble.name_error;
        disk.whole(life, probability)?;
        if disk.is_full_for(path) {
            return Err(errno(libc::ENOSPC));
        }
        let file = Arc::new(Mutex::new(Inode::new(disk.next_file(), modified)));
        disk.put(&at, Node::File(file.clone()));
        Ok((file, life))
    }

    /// Returns the file at `path`, or a new one.
    fn file_or_fresh(&self, path: &Path) -> io::Result<(File, u64)> {
        {
            let disk = self.shared.disk.lock();
            match disk.file(&normal(path)) {
                Ok(file) => {
                    disk.check_on(disk.life)?;
                    return Ok((file, disk.life));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        self.fresh(path)
    }

    /// Returns a writer of a new file, at any offset.
    fn new_writer(&self, path: &Path) -> Result<Writer> {
        self.begin_change("create", path);
        let (file, life) = self.fresh(path).context("create", path)?;
        Ok(Writer { shared: self.shared.clone(), file, path: path.into(), life, size: 0, end: 0 })
    }

    fn appender(&self, path: &Path, found: (File, u64)) -> Box<dyn WritableFile> {
        let (file, life) = found;
        let size = file.lock().current.len() as u64;
        Box::new(Writer { shared: self.shared.clone(), file, path: path.into(), life, size, end: size })
    }
}

impl FileSystem for SimulatedFileSystem {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        self.note("open", path);
        let mut disk = self.shared.disk.lock();
        let life = disk.life;
        disk.check_on(life).context("open", path)?;
        let file = disk.file(&normal(path)).context("open", path)?;
        disk.strike(Operation::Open, path).context("open", path)?;
        if disk.fails_to_read() {
            return Err(Error::new("open", path, errno(libc::EIO)));
        }
        let size = file.lock().current.len() as u64;
        let alignment = if options.direct { DIRECT_ALIGNMENT } else { 1 };
        let (shared, path) = (self.shared.clone(), path.into());
        let wrong = Mutex::default();
        Ok(Arc::new(Reader { shared, file, path, life, size, alignment, id: FileId::next(), wrong }))
    }

    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        self.note("read all", path);
        let mut disk = self.shared.disk.lock();
        disk.check_on(disk.life).context("read", path)?;
        let file = disk.file(&normal(path)).context("read", path)?;
        if disk.fails_to_read() {
            return Err(Error::new("read", path, errno(libc::EIO)));
        }
        let mut bytes = file.lock().current.to_vec();
        match disk.fault(Operation::ReadAll, path) {
            Some(Fault::Fail(code)) => return Err(Error::new("read", path, errno(code))),
            Some(Fault::Misdirected) => {
                let from = elsewhere(0, bytes.len());
                bytes.rotate_left(from);
            }
            // Its last sector as it was before it was written, simulated by zeros.
            Some(Fault::Stale) => {
                let from = bytes.len().saturating_sub(1) / SECTOR * SECTOR;
                bytes[from..].fill(0);
            }
            Some(fault) => fault.flip(&mut bytes),
            None => {}
        }
        Ok(bytes)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.note("list", path);
        let at = normal(path);
        let mut disk = self.shared.disk.lock();
        disk.check_on(disk.life).context("list", path)?;
        disk.directory(&at).context("list", path)?;
        disk.strike(Operation::List, path).context("list", path)?;
        let names = disk.children(&at).filter_map(Path::file_name);
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let mut disk = self.shared.disk.lock();
        disk.check_on(disk.life).context("stat", path)?;
        disk.strike(Operation::Metadata, path).context("stat", path)?;
        Ok(match disk.node(&normal(path)).context("stat", path)? {
            Node::Directory => Metadata { len: 0, is_dir: true, modified: None },
            Node::File(file) => {
                let inode = file.lock();
                let modified = Some(SystemTime::UNIX_EPOCH + inode.modified);
                Metadata { len: inode.current.len() as u64, is_dir: false, modified }
            }
        })
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.begin_change("create", path);
        Ok(self.appender(path, self.fresh(path).context("create", path)?))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.begin_change("append to", path);
        Ok(self.appender(path, self.file_or_fresh(path).context("append to", path)?))
    }

    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        Ok(Arc::new(self.new_writer(path)?))
    }

    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        Ok(Arc::new(UnalignedRefused::new(self.new_writer(path)?, DIRECT_ALIGNMENT as usize)))
    }

    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.note("open to write", path);
        let (file, life) = {
            let mut disk = self.shared.disk.lock();
            disk.check_on(disk.life).context("open", path)?;
            disk.strike(Operation::OpenToWrite, path).context("open", path)?;
            (disk.file(&normal(path)).context("open", path)?, disk.life)
        };
        let size = file.lock().current.len() as u64;
        let (shared, path) = (self.shared.clone(), path.into());
        Ok(Arc::new(Writer { shared, file, path, life, size, end: size }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.begin_change(format_args!("rename {} {}", from.display(), to.display()));
        let (old, new) = (normal(from), normal(to));
        let mut disk = self.shared.disk.lock();
        let node = disk.node(&old).context("rename", from)?;
        let parent = new.parent().unwrap_or(Path::new("/")).to_path_buf();
        disk.directory(&parent).context("rename", to)?;
        let refusal = match (&node, disk.node(&new)) {
            (Node::File(_), Ok(Node::Directory)) => Some(libc::EISDIR),
            (Node::Directory, Ok(Node::File(_))) => Some(libc::ENOTDIR),
            (Node::Directory, Ok(Node::Directory)) if disk.children(&new).next().is_some() => {
                Some(libc::ENOTEMPTY)
            }
            _ => None,
        };
        if let Some(code) = refusal {
            return Err(Error::new("rename", to, errno(code)));
        }
        disk.strike(Operation::Rename, from).context("rename", from)?;
        let (life, probability) = (disk.life, disk.trouble.name_error);
        disk.whole(life, probability).context("rename", from)?;
        if old != new {
            disk.rename(&old, &new, node);
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.begin_change(format_args!("link {} {}", from.display(), to.display()));
        let at = normal(to);
        let mut disk = self.shared.disk.lock();
        let file = disk.file(&normal(from)).context("link", from)?;
        disk.check_place(&at).context("link", to)?;
        if disk.node(&at).is_ok() {
            return Err(Error::new("link", to, errno(libc::EEXIST)));
        }
        disk.strike(Operation::Link, to).context("link", from)?;
        let (life, probability) = (disk.life, disk.trouble.name_error);
        disk.whole(life, probability).context("link", from)?;
        disk.put(&at, Node::File(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.begin_change("remove", path);
        let at = normal(path);
        let mut disk = self.shared.disk.lock();
        disk.file(&at).context("remove", path)?;
        disk.strike(Operation::Remove, path).context("remove", path)?;
        let (life, probability) = (disk.life, disk.trouble.name_error);
        disk.whole(life, probability).context("remove", path)?;
        disk.remove(&at);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.begin_change("create directory", path);
        let at = normal(path);
        let mut disk = self.shared.disk.lock();
        let mut parts: Vec<_> = at.ancestors().collect();
        parts.pop(); // the root
        for part in parts.into_iter().rev() {
            match disk.node(part) {
                Ok(Node::Directory) => {}
                Ok(Node::File(_)) => return Err(Error::new("create directory", path, errno(libc::ENOTDIR))),
                Err(_) => {
                    disk.strike(Operation::CreateDirectory, part).context("create directory", path)?;
                    let (life, probability) = (disk.life, disk.trouble.name_error);
                    disk.whole(life, probability).context("create directory", path)?;
                    disk.put(part, Node::Directory);
                }
            }
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.begin_change("remove directory", path);
        let at = normal(path);
        let mut disk = self.shared.disk.lock();
        disk.directory(&at).context("remove directory", path)?;
        if disk.children(&at).next().is_some() {
            return Err(Error::new("remove directory", path, errno(libc::ENOTEMPTY)));
        }
        let (life, probability) = (disk.life, disk.trouble.name_error);
        disk.whole(life, probability).context("remove directory", path)?;
        disk.remove(&at);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.begin_change("sync directory", path);
        let at = normal(path);
        let mut disk = self.shared.disk.lock();
        disk.directory(&at).context("sync directory", path)?;
        disk.strike(Operation::SyncDirectory, path).context("sync directory", path)?;
        let (life, probability) = (disk.life, disk.trouble.sync_error);
        disk.whole(life, probability).context("sync directory", path)?;
        disk.sync_dir(&at);
        Ok(())
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        let disk = self.shared.disk.lock();
        disk.node(&normal(path)).context("ask for free space of", path)?;
        Ok(disk.free_bytes())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.note("lock", path);
        let at = normal(path);
        let (_, life) = self.file_or_fresh(path).context("lock", path)?;
        let mut disk = self.shared.disk.lock();
        disk.strike(Operation::Lock, path).context("lock", path)?;
        if !disk.locked.insert(at.clone()) {
            return Err(Error::new("lock", path, errno(libc::EAGAIN)));
        }
        Ok(Box::new(Lock { shared: self.shared.clone(), at, path: path.into(), life }))
    }
}

impl Disk {
    fn fails_to_read(&mut self) -> bool {
        let fails = self.random.chance(self.trouble.read_error);
        self.failures += u64::from(fails);
        fails
    }
}

struct Reader {
    shared: Arc<Shared>,
    file: File,
    path: PathBuf,
    life: u64,
    size: u64,
    alignment: u32,
    id: FileId,
    /// Reads, by their offsets, that are to return wrong bytes.
    wrong: Mutex<BTreeMap<u64, Fault>>,
}

impl RandomAccessFile for Reader {
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
        Backend::Soft(self)
    }
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        self.shared.note(format_args!("read {} {offset}+{len}", self.path.display()));
        let mut disk = self.shared.disk.lock();
        let most_us = if disk.random.chance(0.02) { 5000 } else { 200 };
        let delay = Some(Duration::from_nanos(disk.random.below(most_us * 1000)));
        let fail = disk.fails_to_read().then_some(libc::EIO);
        let shorten_to = disk.random.chance(0.02).then(|| disk.random.below(len as u64) as usize + 1);
        let mut disturbance = Disturbance { delay, fail, shorten_to, flip_bit: None };
        match disk.fault(Operation::Read, &self.path) {
            Some(Fault::Fail(code)) => disturbance.fail = Some(code),
            Some(Fault::Short) => disturbance.shorten_to = Some(1 + len / 3),
            Some(Fault::Delay(more)) => disturbance.delay = Some(more),
            Some(Fault::Flip(bit)) => disturbance.flip_bit = Some(bit),
            Some(fault) => drop(self.wrong.lock().insert(offset, fault)),
            None => {}
        }
        Some(disturbance)
    }
}

impl SoftFile for Reader {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.shared.disk.lock().check_on(self.life)?;
        let unit = u64::from(self.alignment);
        if !offset.is_multiple_of(unit) || !(into.len() as u64).is_multiple_of(unit) {
            return Err(errno(libc::EINVAL));
        }
        let inode = self.file.lock();
        let rest = usize::try_from(offset).ok().and_then(|at| inode.current.get(at..)).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        match self.wrong.lock().remove(&offset) {
            Some(Fault::Misdirected) => {
                let from = elsewhere(offset as usize, inode.current.len());
                let other = &inode.current[from..];
                let some = other.len().min(len);
                into[..some].copy_from_slice(&other[..some]);
            }
            Some(Fault::Stale) => into[..len.min(SECTOR)].fill(0),
            _ => {}
        }
        Ok(len)
    }
}

struct Writer {
    shared: Arc<Shared>,
    file: File,
    path: PathBuf,
    life: u64,
    /// Initial bytes of the file and those of successful appends.
    size: u64,
    /// Offset of the next append; beyond `size` after one that failed in part, like a file's
    /// cursor.
    end: u64,
}

impl WritableFile for Writer {
    fn path(&self) -> &Path {
        &self.path
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let (written, result) = self.shared.write(self.life, &self.path, &self.file, self.end, data);
        self.end += written as u64;
        result.map_err(|e| Error::at("append to", &self.path, self.size, e))?;
        self.size += data.len() as u64;
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        self.shared.sync(self.life, &self.path, &self.file).context("sync", &self.path)
    }
    fn reserve(&mut self, offset: u64, len: u64) -> Result<()> {
        self.shared.reserve(self.life, &self.path, &self.file, (offset, len))
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.shared.truncate(self.life, &self.path, &self.file, size).context("truncate", &self.path)?;
        (self.size, self.end) = (size, size);
        Ok(())
    }
}

impl PositionalFile for Writer {
    fn path(&self) -> &Path {
        &self.path
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let (_, result) = self.shared.write(self.life, &self.path, &self.file, offset, data);
        result.map_err(|e| Error::at("write", &self.path, offset, e))
    }
    fn sync(&self) -> Result<()> {
        self.shared.sync(self.life, &self.path, &self.file).context("sync", &self.path)
    }
    fn sync_range(&self, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.shared.reserve(self.life, &self.path, &self.file, (offset, len))
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.shared.truncate(self.life, &self.path, &self.file, size).context("truncate", &self.path)
    }
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        let end = offset + len as u64;
        if (self.file.lock().current.len() as u64) < end {
            self.shared.truncate(self.life, &self.path, &self.file, end).ok()?;
        }
        let (shared, file, path) = (self.shared.clone(), self.file.clone(), self.path.clone());
        Some(Box::new(Mapped { shared, file, path, life: self.life, range: offset..end }))
    }
    fn backend(&self) -> WriteBackend<'_> {
        WriteBackend::Soft
    }
    fn disturb(&self, _: u64, len: usize) -> Option<Disturbance> {
        Some(self.shared.step_of_write(len))
    }
}

struct Mapped {
    shared: Arc<Shared>,
    file: File,
    path: PathBuf,
    life: u64,
    range: Range<u64>,
}

impl MappedRange for Mapped {
    fn put(&mut self, offset: u64, data: &[u8]) {
        assert!(self.range.start <= offset && offset + data.len() as u64 <= self.range.end);
        self.shared.note(format_args!("put {} {offset}+{}", self.path.display(), data.len()));
        // Not written after a power failure, because the mapped memory is lost.
        let mut disk = self.shared.disk.lock();
        if disk.check_on(self.life).is_ok() {
            disk.change(&self.file, Change::Write { offset: offset as usize, data: data.into() });
        }
    }
}

struct Lock {
    shared: Arc<Shared>,
    at: PathBuf,
    path: PathBuf,
    life: u64,
}

impl FileLock for Lock {
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut disk = self.shared.disk.lock();
        if disk.life == self.life {
            disk.locked.remove(&self.at);
        }
    }
}

macro_rules! debug_as_path {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.path.display())
            }
        }
    )*};
}
debug_as_path!(Reader, Writer, Mapped, Lock);

impl fmt::Debug for SimulatedFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedFileSystem")
    }
}
