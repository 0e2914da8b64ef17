//! A file system that passes operations to another through a hook: a delay, a fault, a record of
//! reads.

use crate::error::{Context, Error, Result};
use crate::file::{
    Backend, Disturbance, FileId, FileLock, FileSystem, MappedRange, Metadata, OpenOptions, PositionalFile,
    RandomAccessFile, WritableFile, WriteBackend,
};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A hook between a file system and its user.
pub trait Disturb: Send + Sync + Debug + 'static {
    /// Called before each read that is handed to the file below; see [`RandomAccessFile::disturb`].
    /// Must not block.
    fn read(&self, path: &Path, offset: u64, len: usize) -> Option<Disturbance>;

    /// Called before a file is opened for reading. May block, like the opening itself.
    ///
    /// # Errors
    /// The error with which the open fails.
    fn open(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// Called before a file is opened for reading, with its options. Default: [`open`](Self::open).
    ///
    /// # Errors
    /// The error with which the open fails.
    fn open_as(&self, path: &Path, options: OpenOptions) -> io::Result<()> {
        let _ = options;
        self.open(path)
    }

    /// Called before a file is created that bypasses the page cache. Default:
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// The error with which the creation fails.
    fn create_direct(&self, path: &Path) -> io::Result<()> {
        self.write(path)
    }

    /// Called before a file is synced with all its metadata (`fsync`). Default:
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// The error with which the sync fails.
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.write(path)
    }

    /// Called before the writeback of a range is started; see [`PositionalFile::sync_range`].
    fn sync_range(&self, path: &Path, strict: bool) {
        let _ = (path, strict);
    }

    /// Called before a hard link is made. Default: [`write`](Self::write) of the new name.
    ///
    /// # Errors
    /// The error with which the link fails.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = from;
        self.write(to)
    }

    /// Returns true if [`step`](Self::step) is called for what the channel writes. Default: false;
    /// the channel then makes blocking calls, for which [`write`](Self::write) is called.
    fn follows_channel(&self) -> bool {
        false
    }

    /// Called before each step of a write, sync or reservation that is handed to the file below by
    /// the channel; see [`PositionalFile::disturb`]. Must not block.
    fn step(&self, path: &Path, offset: u64, len: usize) -> Option<Disturbance> {
        let _ = (path, offset, len);
        None
    }

    /// Called before a file or directory is created, changed or synced.
    ///
    /// # Errors
    /// The error with which the operation fails.
    fn write(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
}

/// `inner`, disturbed by `D`.
#[derive(Debug)]
pub struct DisturbedFileSystem<D> {
    inner: Arc<dyn FileSystem>,
    between: Arc<D>,
}

impl<D: Disturb> DisturbedFileSystem<D> {
    /// Puts the hook `between` over `inner`.
    pub fn new(inner: Arc<dyn FileSystem>, between: D) -> Self {
        Self { inner, between: Arc::new(between) }
    }

    /// Returns the hook.
    pub fn between(&self) -> &Arc<D> {
        &self.between
    }
}

impl<D> Clone for DisturbedFileSystem<D> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), between: self.between.clone() }
    }
}

#[derive(Debug)]
struct DisturbedFile<D> {
    inner: Arc<dyn RandomAccessFile>,
    between: Arc<D>,
    id: FileId,
}

impl<D: Disturb> RandomAccessFile for DisturbedFile<D> {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn id(&self) -> FileId {
        self.id
    }
    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }
    fn backend(&self) -> Backend<'_> {
        self.inner.backend()
    }
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        let below = self.inner.disturb(offset, len);
        match self.between.read(self.inner.path(), offset, len) {
            Some(ours) => Some(ours.and(below)),
            None => below,
        }
    }
}

#[derive(Debug)]
struct DisturbedAppender<D> {
    inner: Box<dyn WritableFile>,
    between: Arc<D>,
}

impl<D: Disturb> WritableFile for DisturbedAppender<D> {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.between.write(self.inner.path()).context("append to", self.inner.path())?;
        self.inner.append(data)
    }
    fn sync(&mut self) -> Result<()> {
        self.between.write(self.inner.path()).context("sync", self.inner.path())?;
        self.inner.sync()
    }
    fn sync_all(&mut self) -> Result<()> {
        self.between.sync_all(self.inner.path()).context("sync", self.inner.path())?;
        self.inner.sync_all()
    }
    fn reserve(&mut self, offset: u64, len: u64) -> Result<()> {
        self.inner.reserve(offset, len)
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.between.write(self.inner.path()).context("truncate", self.inner.path())?;
        self.inner.truncate(size)
    }
}

#[derive(Debug)]
struct DisturbedWriter<D> {
    inner: Arc<dyn PositionalFile>,
    between: Arc<D>,
}

impl<D: Disturb> PositionalFile for DisturbedWriter<D> {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.between.write(self.path()).map_err(|e| Error::at("write", self.path(), offset, e))?;
        self.inner.write_at(offset, data)
    }
    fn sync(&self) -> Result<()> {
        self.between.write(self.path()).context("sync", self.path())?;
        self.inner.sync()
    }
    fn sync_all(&self) -> Result<()> {
        self.between.sync_all(self.path()).context("sync", self.path())?;
        self.inner.sync_all()
    }
    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()> {
        self.between.sync_range(self.path(), strict);
        self.inner.sync_range(offset, len, strict)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.between.write(self.path()).context("reserve space in", self.path())?;
        self.inner.reserve(offset, len)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.between.write(self.path()).context("truncate", self.path())?;
        self.inner.truncate(size)
    }
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        self.between.write(self.path()).ok()?;
        self.inner.map(offset, len)
    }
    fn backend(&self) -> WriteBackend<'_> {
        if self.between.follows_channel() { self.inner.backend() } else { WriteBackend::Blocking }
    }
    fn disturb(&self, offset: u64, len: usize) -> Option<Disturbance> {
        let ours = self.between.step(self.path(), offset, len);
        match (ours, self.inner.disturb(offset, len)) {
            (Some(ours), below) => Some(ours.and(below)),
            (None, below) => below,
        }
    }
}

impl<D: Disturb> DisturbedFileSystem<D> {
    fn appender(&self, inner: Box<dyn WritableFile>) -> Box<dyn WritableFile> {
        Box::new(DisturbedAppender { inner, between: self.between.clone() })
    }
}

impl<D: Disturb> FileSystem for DisturbedFileSystem<D> {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        self.between.open_as(path, options).context("open", path)?;
        let inner = self.inner.open_random(path, options)?;
        Ok(Arc::new(DisturbedFile { inner, between: self.between.clone(), id: FileId::next() }))
    }
    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        self.between.open(path).context("read", path)?;
        self.inner.read_file(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list_dir(path)
    }
    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.inner.metadata(path)
    }
    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        self.inner.link_count(path)
    }
    fn canonical(&self, path: &Path) -> PathBuf {
        self.inner.canonical(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.between.write(path).context("create", path)?;
        Ok(self.appender(self.inner.create(path)?))
    }
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.between.write(path).context("append to", path)?;
        Ok(self.appender(self.inner.append(path)?))
    }
    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.between.write(path).context("create", path)?;
        let inner = self.inner.create_positional(path)?;
        Ok(Arc::new(DisturbedWriter { inner, between: self.between.clone() }))
    }
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.between.create_direct(path).context("create", path)?;
        let inner = self.inner.create_direct(path)?;
        Ok(Arc::new(DisturbedWriter { inner, between: self.between.clone() }))
    }
    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.between.write(path).context("open", path)?;
        let inner = self.inner.open_positional(path)?;
        Ok(Arc::new(DisturbedWriter { inner, between: self.between.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.between.write(from).context("rename", from)?;
        self.inner.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.between.link(from, to).context("link", from)?;
        self.inner.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.between.write(path).context("remove", path)?;
        self.inner.remove(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.between.write(path).context("create directory", path)?;
        self.inner.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.between.write(path).context("remove directory", path)?;
        self.inner.remove_dir(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.inner.free_bytes(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.between.write(path).context("sync directory", path)?;
        self.inner.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
}
