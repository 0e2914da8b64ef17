//! File observers: callbacks for every operation on an environment's files, made once the operation
//! has ended.
//!
//! An environment has any number of [`FileObserver`]s. Each is called for every read, write, sync
//! and so on of the files opened since the environment's first observer was added. An environment
//! without observers pays one pointer load for each read and each use of its file system.
//!
//! Invariant: observing changes neither the effect of an operation nor its result.

use crate::error::{Error, Result};
use crate::file::{
    FileLock, FileSystem, MappedRange, Metadata, OpenOptions, PositionalFile, RandomAccessFile, WritableFile,
};
use crate::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileOperation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A sync of the written bytes.
    Sync,
    /// The start of writeback of a range.
    RangeSync,
    /// A truncation.
    Truncate,
    /// The close of a file open for writing.
    Close,
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileOperationInfo<'a> {
    /// The kind of operation.
    pub operation: FileOperation,
    /// Path of the file.
    pub path: &'a Path,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes read or written, or requested if the operation failed.
    pub length: u64,
    /// Duration of the operation; a read's begins when it is requested.
    pub duration: Duration,
    /// The error if the operation failed.
    pub error: Option<&'a Error>,
}

/// A callback for operations on files. Called on the thread that did the operation or waits for it,
/// which may be any thread; must not block or panic.
pub trait FileObserver: Send + Sync + std::fmt::Debug {
    /// Called when an operation has ended.
    fn ended(&self, operation: &FileOperationInfo<'_>);
}

/// The observers of an environment.
#[derive(Default)]
pub(crate) struct Observers(Mutex<Vec<Weak<dyn FileObserver>>>);

impl Observers {
    pub(crate) fn add(&self, observer: &Arc<dyn FileObserver>) {
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(observer));
    }

    pub(crate) fn tell(&self, info: &FileOperationInfo<'_>) {
        // Copied, because an observer may be slow and other threads notify observers meanwhile.
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|observer| observer.ended(info));
    }
}

/// A file system whose files are observed.
#[derive(Clone)]
pub(crate) struct ObservedFileSystem {
    pub(crate) inner: Arc<dyn FileSystem>,
    /// Returns the time.
    pub(crate) now: Arc<dyn Fn() -> Duration + Send + Sync>,
    pub(crate) observers: Arc<Observers>,
}

impl std::fmt::Debug for ObservedFileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObservedFileSystem").field(&self.inner).finish()
    }
}

impl ObservedFileSystem {
    /// Runs `work` and reports it to the observers.
    fn tell<T>(
        &self,
        (operation, path): (FileOperation, &Path),
        (offset, length): (u64, u64),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begun = (self.now)();
        let outcome = work();
        let duration = (self.now)().saturating_sub(begun);
        let error = outcome.as_ref().err();
        self.observers.tell(&FileOperationInfo { operation, path, offset, length, duration, error });
        outcome
    }

    fn writable(&self, file: Result<Box<dyn WritableFile>>) -> Result<Box<dyn WritableFile>> {
        file.map(|file| Box::new(ObservedWritable { file: Some(file), system: self.clone() }) as _)
    }

    fn positional(&self, file: Result<Arc<dyn PositionalFile>>) -> Result<Arc<dyn PositionalFile>> {
        file.map(|file| Arc::new(ObservedPositional { file: Some(file), system: self.clone() }) as _)
    }
}

impl FileSystem for ObservedFileSystem {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        self.inner.open_random(path, options)
    }
    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let begun = (self.now)();
        let outcome = self.inner.read_file(path);
        let duration = (self.now)().saturating_sub(begun);
        let length = outcome.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let (operation, error) = (FileOperation::Read, outcome.as_ref().err());
        self.observers.tell(&FileOperationInfo { operation, path, offset: 0, length, duration, error });
        outcome
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.inner.list_dir(path)
    }
    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.inner.metadata(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn canonical(&self, path: &Path) -> PathBuf {
        self.inner.canonical(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.writable(self.inner.create(path))
    }
    fn create_like(&self, path: &Path, like: &Path) -> Result<Box<dyn WritableFile>> {
        self.writable(self.inner.create_like(path, like))
    }
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.writable(self.inner.append(path))
    }
    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.positional(self.inner.create_positional(path))
    }
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.positional(self.inner.create_direct(path))
    }
    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.positional(self.inner.open_positional(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.inner.create_dir(path)
    }
    fn create_dir_durably(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_durably(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.inner.free_bytes(path)
    }
    fn is_posix(&self) -> bool {
        self.inner.is_posix()
    }
}

/// Invariant: `file` is `Some` until this is dropped.
#[derive(Debug)]
struct ObservedWritable {
    file: Option<Box<dyn WritableFile>>,
    system: ObservedFileSystem,
}

/// Closes a file and reports it to the observers.
fn close<F>(system: &ObservedFileSystem, path: &Path, file: Option<F>) {
    let closed = system.tell((FileOperation::Close, path), (0, 0), || {
        drop(file);
        Ok(())
    });
    debug_assert!(closed.is_ok());
}

impl ObservedWritable {
    fn file(&self) -> &dyn WritableFile {
        self.file.as_deref().expect("it is there until this is dropped")
    }

    fn change<T>(
        &mut self,
        operation: FileOperation,
        place: (u64, u64),
        work: impl FnOnce(&mut dyn WritableFile) -> Result<T>,
    ) -> Result<T> {
        let path = self.file().path().to_owned();
        let file = self.file.as_deref_mut().expect("it is there until this is dropped");
        self.system.tell((operation, &path), place, || work(file))
    }
}

impl WritableFile for ObservedWritable {
    fn path(&self) -> &Path {
        self.file().path()
    }
    fn size(&self) -> u64 {
        self.file().size()
    }
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let place = (self.size(), data.len() as u64);
        self.change(FileOperation::Write, place, |file| file.append(data))
    }
    fn sync(&mut self) -> Result<()> {
        self.change(FileOperation::Sync, (0, 0), |file| file.sync())
    }
    fn sync_all(&mut self) -> Result<()> {
        self.change(FileOperation::Sync, (0, 0), |file| file.sync_all())
    }
    fn reserve(&mut self, offset: u64, len: u64) -> Result<()> {
        self.file.as_deref_mut().expect("it is there until this is dropped").reserve(offset, len)
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        self.change(FileOperation::Truncate, (size, 0), |file| file.truncate(size))
    }
}

impl Drop for ObservedWritable {
    fn drop(&mut self) {
        let path = self.path().to_owned();
        close(&self.system, &path, self.file.take());
    }
}

/// Invariant: `file` is `Some` until this is dropped.
#[derive(Debug)]
struct ObservedPositional {
    file: Option<Arc<dyn PositionalFile>>,
    system: ObservedFileSystem,
}

impl ObservedPositional {
    fn file(&self) -> &dyn PositionalFile {
        self.file.as_deref().expect("it is there until this is dropped")
    }

    fn tell(
        &self,
        operation: FileOperation,
        place: (u64, u64),
        work: impl FnOnce(&dyn PositionalFile) -> Result<()>,
    ) -> Result<()> {
        self.system.tell((operation, self.path()), place, || work(self.file()))
    }
}

impl PositionalFile for ObservedPositional {
    fn path(&self) -> &Path {
        self.file().path()
    }
    fn alignment(&self) -> usize {
        self.file().alignment()
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.tell(FileOperation::Write, (offset, data.len() as u64), |file| file.write_at(offset, data))
    }
    fn sync(&self) -> Result<()> {
        self.tell(FileOperation::Sync, (0, 0), |file| file.sync())
    }
    fn sync_all(&self) -> Result<()> {
        self.tell(FileOperation::Sync, (0, 0), |file| file.sync_all())
    }
    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()> {
        self.tell(FileOperation::RangeSync, (offset, len), |file| file.sync_range(offset, len, strict))
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.file().reserve(offset, len)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.tell(FileOperation::Truncate, (size, 0), |file| file.truncate(size))
    }
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        self.file().map(offset, len)
    }
}

impl Drop for ObservedPositional {
    fn drop(&mut self) {
        let path = self.path().to_owned();
        close(&self.system, &path, self.file.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, MemoryFileSystem, block_on, open, read};

    type Note = (FileOperation, String, (u64, u64), bool);

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<Note>>);

    impl Notes {
        fn take(&self) -> Vec<Note> {
            std::mem::take(&mut self.0.lock())
        }
    }

    impl FileObserver for Notes {
        fn ended(&self, info: &FileOperationInfo<'_>) {
            let path = info.path.to_string_lossy().into_owned();
            self.0.lock().push((info.operation, path, (info.offset, info.length), info.error.is_some()));
        }
    }

    #[test]
    fn operations_are_told_while_somebody_observes() {
        use FileOperation::*;
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let path = Path::new("/a");
        env.fs().create(path).unwrap().append(b"before").unwrap();
        let notes = Arc::new(Notes::default());
        let observer: Arc<dyn FileObserver> = notes.clone();
        env.observe(&observer);
        let told = |operation, place| (operation, "/a".to_owned(), place, false);

        let mut file = env.fs().create(path).unwrap();
        file.append(b"12345").unwrap();
        file.append(b"678").unwrap();
        file.sync().unwrap();
        file.truncate(6).unwrap();
        assert_eq!((file.size(), file.path()), (6, path));
        drop(file);
        let expected = [
            told(Write, (0, 5)),
            told(Write, (5, 3)),
            told(Sync, (0, 0)),
            told(Truncate, (6, 0)),
            told(Close, (0, 0)),
        ];
        assert_eq!(notes.take(), expected);

        let file = env.fs().open_positional(path).unwrap();
        file.write_at(2, b"xy").unwrap();
        file.sync_range(0, 4, false).unwrap();
        file.sync_all().unwrap();
        drop(file.clone());
        drop(file);
        let expected =
            [told(Write, (2, 2)), told(RangeSync, (0, 4)), told(Sync, (0, 0)), told(Close, (0, 0))];
        assert_eq!(notes.take(), expected);

        let file = block_on(&env, open(&env, path, OpenOptions::BUFFERED)).unwrap();
        assert_eq!(&*block_on(&env, read(&env, &file, 1, 3)).unwrap(), b"2xy");
        assert_eq!(env.fs().read_file(path).unwrap(), b"12xy56");
        env.fs().read_file(Path::new("/none")).unwrap_err();
        let missing = (Read, "/none".to_owned(), (0, 0), true);
        assert_eq!(notes.take(), [told(Read, (1, 3)), told(Read, (0, 6)), missing]);

        drop(observer);
        let weak = Arc::downgrade(&notes);
        drop(notes);
        assert!(weak.upgrade().is_none(), "an environment keeps no observer");
        env.fs().create(path).unwrap().append(b"after").unwrap();
    }
}
