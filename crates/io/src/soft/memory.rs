//! A file system in memory.
//!
//! Names and errors are those of POSIX (a missing parent is `NotFound`, a directory does not open,
//! a rename replaces). A file opened for reading keeps its content when its name is removed or
//! replaced. Files opened for direct I/O require reads aligned to 512 bytes and refuse others, like
//! a device.

use crate::error::{Context, Error, Result};
use crate::file::{
    Backend, FileId, FileLock, FileSystem, MappedRange, Metadata, OpenOptions, PositionalFile,
    RandomAccessFile, SoftFile, WritableFile, WriteBackend,
};
use crate::soft::{UnalignedRefused, errno};
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const DIRECT_ALIGNMENT: u32 = 512;

/// A file system in memory. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem {
    tree: Arc<Mutex<Tree>>,
}

/// Lock: the tree, then a file's content.
#[derive(Debug, Default)]
struct Tree {
    /// Nodes by normalized absolute path; the root always exists and is not listed.
    nodes: BTreeMap<PathBuf, Node>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum Node {
    Directory,
    File(Arc<Content>),
}

#[derive(Debug)]
struct Content {
    bytes: Mutex<Vec<u8>>,
    modified: Mutex<SystemTime>,
}

impl Content {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(bytes), modified: Mutex::new(now()) })
    }
}

/// Returns the modification time of a change made now.
fn now() -> SystemTime {
    #[cfg(shuttle)]
    return SystemTime::UNIX_EPOCH + crate::sync::time::now();
    #[cfg(not(shuttle))]
    SystemTime::now()
}

/// Returns the one spelling of a path: from the root, without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

impl Tree {
    fn node(&self, path: &Path) -> io::Result<Node> {
        if path == Path::new("/") {
            return Ok(Node::Directory);
        }
        self.nodes.get(path).cloned().ok_or_else(|| errno(libc::ENOENT))
    }

    fn file(&self, path: &Path) -> io::Result<Arc<Content>> {
        match self.node(path)? {
            Node::File(content) => Ok(content),
            Node::Directory => Err(errno(libc::EISDIR)),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        match self.node(path)? {
            Node::Directory => Ok(()),
            Node::File(_) => Err(errno(libc::ENOTDIR)),
        }
    }

    fn children<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        let below = self.nodes.keys().map(PathBuf::as_path);
        below.filter(move |p| p.parent() == Some(path))
    }

    /// Returns the file at `path`, created if it is missing.
    fn file_or_new(&mut self, path: &Path) -> io::Result<Arc<Content>> {
        self.directory(path.parent().ok_or_else(|| errno(libc::EISDIR))?)?;
        match self.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let content = Content::new(Vec::new());
                self.nodes.insert(path.into(), Node::File(content.clone()));
                Ok(content)
            }
            other => other,
        }
    }
}

impl MemoryFileSystem {
    /// Returns an empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a copy of the content at one moment, as a file system of its own without locks: the
    /// state that a process finds if its predecessor was killed at that moment.
    pub fn copy(&self) -> Self {
        let tree = self.tree.lock();
        // Keyed by address, because a file that has two names must be locked, and copied, once.
        let mut held: BTreeMap<*const Content, _> = BTreeMap::new();
        for node in tree.nodes.values() {
            if let Node::File(content) = node {
                held.entry(Arc::as_ptr(content))
                    .or_insert_with(|| (content.bytes.lock(), *content.modified.lock()));
            }
        }
        // All are locked first, because all files must be copied at one moment.
        let copies: BTreeMap<_, _> = held
            .iter()
            .map(|(file, (bytes, modified))| {
                let bytes = Mutex::new(Vec::clone(bytes));
                (*file, Arc::new(Content { bytes, modified: Mutex::new(*modified) }))
            })
            .collect();
        let copied = tree.nodes.iter().map(|(path, node)| {
            let node = match node {
                Node::File(content) => Node::File(copies[&Arc::as_ptr(content)].clone()),
                Node::Directory => Node::Directory,
            };
            (path.clone(), node)
        });
        let nodes = copied.collect();
        Self { tree: Arc::new(Mutex::new(Tree { nodes, locked: BTreeSet::new() })) }
    }

    fn fresh(&self, path: &Path) -> Result<Arc<Content>> {
        let at = normal(path);
        let mut tree = self.tree.lock();
        tree.file_or_new(&at).context("create", path)?;
        // A new content, because readers of the old one keep it.
        let content = Content::new(Vec::new());
        tree.nodes.insert(at, Node::File(content.clone()));
        Ok(content)
    }

    /// Gives the file at `path` this content, creating it and its directories.
    ///
    /// # Errors
    /// The path is a directory, or a part of it is a file.
    pub fn write_file(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        if let Some(parent) = path.parent() {
            self.create_dir(parent)?;
        }
        let at = normal(path);
        let mut tree = self.tree.lock();
        tree.file_or_new(&at).context("write", path)?;
        tree.nodes.insert(at, Node::File(Content::new(bytes)));
        Ok(())
    }
}

impl FileSystem for MemoryFileSystem {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        let content = self.tree.lock().file(&normal(path)).context("open", path)?;
        let size = content.bytes.lock().len() as u64;
        let alignment = if options.direct { DIRECT_ALIGNMENT } else { 1 };
        Ok(Arc::new(MemoryFile { content, path: path.into(), size, alignment, id: FileId::next() }))
    }

    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        let content = self.tree.lock().file(&normal(path)).context("read", path)?;
        let bytes = content.bytes.lock().clone();
        Ok(bytes)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        let at = normal(path);
        let tree = self.tree.lock();
        tree.directory(&at).context("list", path)?;
        let names = tree.children(&at).filter_map(Path::file_name);
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        Ok(match self.tree.lock().node(&normal(path)).context("stat", path)? {
            Node::Directory => Metadata { len: 0, is_dir: true, modified: None },
            Node::File(content) => Metadata {
                len: content.bytes.lock().len() as u64,
                is_dir: false,
                modified: Some(*content.modified.lock()),
            },
        })
    }

    fn link_count(&self, path: &Path) -> Result<Option<u64>> {
        let tree = self.tree.lock();
        let content = tree.file(&normal(path)).context("stat", path)?;
        let is_it = |node: &&Node| matches!(node, Node::File(other) if Arc::ptr_eq(other, &content));
        Ok(Some(tree.nodes.values().filter(is_it).count() as u64))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        Ok(Box::new(MemoryAppender { content: self.fresh(path)?, path: path.into() }))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let content = self.tree.lock().file_or_new(&normal(path)).context("append to", path)?;
        Ok(Box::new(MemoryAppender { content, path: path.into() }))
    }

    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        Ok(Arc::new(MemoryAppender { content: self.fresh(path)?, path: path.into() }))
    }

    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        let file = MemoryAppender { content: self.fresh(path)?, path: path.into() };
        Ok(Arc::new(UnalignedRefused::new(file, DIRECT_ALIGNMENT as usize)))
    }

    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        let content = self.tree.lock().file(&normal(path)).context("open", path)?;
        Ok(Arc::new(MemoryAppender { content, path: path.into() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (normal(from), normal(to));
        let mut tree = self.tree.lock();
        let node = tree.node(&old).context("rename", from)?;
        let parent = new.parent().unwrap_or(Path::new("/")).to_path_buf();
        tree.directory(&parent).context("rename", to)?;
        match (&node, tree.node(&new)) {
            (Node::File(_), Ok(Node::Directory)) => {
                return Err(Error::new("rename", to, errno(libc::EISDIR)));
            }
            (Node::Directory, Ok(Node::File(_))) => {
                return Err(Error::new("rename", to, errno(libc::ENOTDIR)));
            }
            (Node::Directory, Ok(Node::Directory)) if tree.children(&new).next().is_some() => {
                return Err(Error::new("rename", to, errno(libc::ENOTEMPTY)));
            }
            _ => {}
        }
        let moved: Vec<_> = tree.nodes.keys().filter(|p| p.starts_with(&old)).cloned().collect();
        for path in moved {
            if let (Some(node), Ok(rest)) = (tree.nodes.remove(&path), path.strip_prefix(&old)) {
                let target = if rest.as_os_str().is_empty() { new.clone() } else { new.join(rest) };
                tree.nodes.insert(target, node);
            }
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let at = normal(to);
        let mut tree = self.tree.lock();
        let content = tree.file(&normal(from)).context("link", from)?;
        let parent = at.parent().unwrap_or(Path::new("/"));
        tree.directory(parent).context("link", to)?;
        if tree.node(&at).is_ok() {
            return Err(Error::new("link", to, errno(libc::EEXIST)));
        }
        tree.nodes.insert(at, Node::File(content));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let at = normal(path);
        let mut tree = self.tree.lock();
        tree.file(&at).context("remove", path)?;
        tree.nodes.remove(&at);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let at = normal(path);
        let mut tree = self.tree.lock();
        let mut parts: Vec<_> = at.ancestors().collect();
        parts.pop(); // the root
        for part in parts.into_iter().rev() {
            match tree.nodes.get(part) {
                None => drop(tree.nodes.insert(part.into(), Node::Directory)),
                Some(Node::Directory) => {}
                Some(Node::File(_)) => {
                    return Err(Error::new("create directory", path, errno(libc::ENOTDIR)));
                }
            }
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let at = normal(path);
        let mut tree = self.tree.lock();
        tree.directory(&at).context("remove directory", path)?;
        if tree.children(&at).next().is_some() {
            return Err(Error::new("remove directory", path, errno(libc::ENOTEMPTY)));
        }
        tree.nodes.remove(&at);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.tree.lock().directory(&normal(path)).context("sync directory", path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let at = normal(path);
        let mut tree = self.tree.lock();
        tree.file_or_new(&at).context("lock", path)?;
        if !tree.locked.insert(at.clone()) {
            return Err(Error::new("lock", path, errno(libc::EAGAIN)));
        }
        Ok(Box::new(MemoryLock { tree: self.tree.clone(), at, path: path.into() }))
    }
}

#[derive(Debug)]
struct MemoryFile {
    content: Arc<Content>,
    path: PathBuf,
    size: u64,
    alignment: u32,
    id: FileId,
}

impl RandomAccessFile for MemoryFile {
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
}

impl SoftFile for MemoryFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let unit = u64::from(self.alignment);
        if !offset.is_multiple_of(unit) || !(into.len() as u64).is_multiple_of(unit) {
            return Err(errno(libc::EINVAL));
        }
        let bytes = self.content.bytes.lock();
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

#[derive(Debug)]
struct MemoryAppender {
    content: Arc<Content>,
    path: PathBuf,
}

impl WritableFile for MemoryAppender {
    fn path(&self) -> &Path {
        &self.path
    }
    fn size(&self) -> u64 {
        self.content.bytes.lock().len() as u64
    }
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.content.bytes.lock().extend_from_slice(data);
        *self.content.modified.lock() = now();
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn reserve(&mut self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> Result<()> {
        PositionalFile::truncate(self, size)
    }
}

impl PositionalFile for MemoryAppender {
    fn path(&self) -> &Path {
        &self.path
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let too_large = || Error::at("write", &self.path, offset, errno(libc::EFBIG));
        let start = usize::try_from(offset).map_err(|_| too_large())?;
        let end =
            start.checked_add(data.len()).filter(|end| *end <= isize::MAX as usize).ok_or_else(too_large)?;
        let mut bytes = self.content.bytes.lock();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        *self.content.modified.lock() = now();
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn sync_range(&self, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }
    fn reserve(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn truncate(&self, size: u64) -> Result<()> {
        let size = usize::try_from(size).map_err(|_| errno(libc::EFBIG)).context("truncate", &self.path)?;
        self.content.bytes.lock().resize(size, 0);
        Ok(())
    }
    fn map(&self, offset: u64, len: usize) -> Option<Box<dyn MappedRange>> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        let mut bytes = self.content.bytes.lock();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        Some(Box::new(MemoryRange { content: self.content.clone(), range: end - len..end }))
    }
    fn backend(&self) -> WriteBackend<'_> {
        WriteBackend::Soft
    }
}

#[derive(Debug)]
struct MemoryRange {
    content: Arc<Content>,
    range: Range<usize>,
}

impl MappedRange for MemoryRange {
    fn put(&mut self, offset: u64, data: &[u8]) {
        let start = offset as usize;
        assert!(self.range.start <= start && start + data.len() <= self.range.end);
        self.content.bytes.lock()[start..start + data.len()].copy_from_slice(data);
    }
}

#[derive(Debug)]
struct MemoryLock {
    tree: Arc<Mutex<Tree>>,
    at: PathBuf,
    path: PathBuf,
}

impl FileLock for MemoryLock {
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.tree.lock().locked.remove(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_files_of_two_names_once() {
        let files = MemoryFileSystem::new();
        files.write_file(Path::new("/a"), vec![1]).unwrap();
        files.link(Path::new("/a"), Path::new("/b")).unwrap();
        let copy = files.copy();
        copy.append(Path::new("/a")).unwrap().append(&[2]).unwrap();
        assert_eq!(copy.read_file(Path::new("/b")).unwrap(), [1, 2]);
        assert_eq!(files.read_file(Path::new("/b")).unwrap(), [1]);
    }
}
