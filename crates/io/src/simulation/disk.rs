//! The simulated machine's disk: names, files, locks, and when the power fails.
//!
//! Names are durable once their directory is synced; until then a power failure keeps the first of
//! the changes made to them, or, less often, any. A rename happens as a whole or not. Every change,
//! and every read, may be made to fail. The disk may have room for so many bytes only, or none for
//! files of some names. Lock: one mutex around a disk (in [`super::file_system`]), then a file's
//! bytes.

use super::Trouble;
use super::executor::Random;
use super::fault::{Fault, Faulty, Operation};
use super::inode::{Change, Inode};
use super::journal::{Effect, Image, Journal};
use super::names::{NameChange, Names, remove_orphans};
use crate::soft::errno;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type File = Arc<Mutex<Inode>>;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Directory,
    File(File),
}

#[derive(Debug)]
pub(super) struct Disk {
    pub(super) names: Names<Node>,
    durable: Names<Node>,
    /// Changes of names that are not in `durable`, in order.
    unsynced: Vec<NameChange<Node>>,
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) random: Random,
    pub(super) trouble: Trouble,
    /// The power fails with so many more changes.
    pub(super) fuse: Option<u64>,
    /// Changes since the disk was made.
    pub(super) changes: u64,
    pub(super) is_off: bool,
    /// How often the machine was started; what was opened in an earlier life is dead.
    pub(super) life: u64,
    pub(super) failures: u64,
    /// Bytes of all files together; `None` for no end of them.
    pub(super) capacity: Option<u64>,
    /// Whether files of this path find no room.
    pub(super) full: Option<fn(&Path) -> bool>,
    /// What goes wrong with which operations, if anything does.
    pub(super) faulty: Option<Faulty>,
    /// What has happened, if that is recorded.
    pub(super) journal: Option<Journal>,
    files_made: u64,
}

/// How a change goes.
pub(super) enum Fate {
    Happens,
    /// It fails, after this fraction of it (0 to 1) has happened.
    Fails(io::Error, f64),
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            names: Names::new(),
            durable: Names::new(),
            unsynced: Vec::new(),
            locked: BTreeSet::new(),
            random: Random::new(seed ^ 0xD15C),
            trouble: Trouble::default(),
            fuse: None,
            changes: 0,
            is_off: false,
            life: 0,
            failures: 0,
            capacity: None,
            full: None,
            faulty: None,
            journal: None,
            files_made: 0,
        }
    }

    /// With these files, all of them durable.
    pub(super) fn with(image: &Image, seed: u64) -> Self {
        let mut disk = Self::new(seed);
        for (path, content) in &image.files {
            let file = content.as_ref().map(|content| Inode::with(disk.next_file(), content.clone()));
            let node = file.map_or(Node::Directory, |file| Node::File(Arc::new(Mutex::new(file))));
            disk.names.insert(path.clone(), node);
        }
        disk.durable = disk.names.clone();
        disk
    }

    /// The number of the next file that is made here.
    pub(super) fn next_file(&mut self) -> u64 {
        self.files_made += 1;
        self.files_made
    }

    /// Begin to record, from what is there now.
    pub(super) fn begin_journal(&mut self) {
        let content = |node: &Node| match node {
            Node::Directory => None,
            Node::File(file) => {
                let inode = file.lock();
                assert!(inode.is_synced(), "the journal begins where everything is durable");
                Some((inode.id, inode.current.clone()))
            }
        };
        assert!(self.unsynced.is_empty(), "the journal begins where all names are durable");
        let base = self.names.iter().map(|(path, node)| (path.clone(), content(node))).collect();
        self.journal = Some(Journal::new(base));
    }

    /// Something has happened; say it to the journal.
    fn record(&mut self, effect: impl FnOnce() -> Effect) {
        if let Some(journal) = &mut self.journal {
            journal.effects.push(effect());
        }
    }

    /// Change a file's content.
    pub(super) fn change(&mut self, file: &File, change: Change) {
        let mut inode = file.lock();
        self.record(|| Effect::Change { file: inode.id, change: change.clone() });
        inode.change(change);
    }

    pub(super) fn sync(&mut self, file: &File) {
        let mut inode = file.lock();
        self.record(|| Effect::Sync { file: inode.id });
        inode.sync();
    }

    pub(super) fn fail_sync(&mut self, file: &File) {
        assert!(self.journal.is_none(), "a journal does not know what a failed sync leaves");
        file.lock().fail_sync(&mut self.random);
    }

    /// Bytes that files may still grow by, where there is an end to them. Not to be called with a
    /// file's lock.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let capacity = self.capacity?;
        // Why by its number: a file takes up its room once, however many names it has.
        let sized = |node: &Node| match node {
            Node::Directory => None,
            Node::File(file) => {
                let inode = file.lock();
                Some((inode.id, inode.current.len() as u64))
            }
        };
        let files: BTreeMap<u64, u64> = self.names.values().filter_map(sized).collect();
        Some(capacity.saturating_sub(files.values().sum()))
    }

    /// Whether there is no room at all for a file of this path.
    pub(super) fn is_full_for(&self, path: &Path) -> bool {
        self.full.is_some_and(|full| full(path))
    }

    /// Bytes of `wanted` from `offset` of the file at `path` that there is room for.
    pub(super) fn room(&self, path: &Path, file: &File, offset: usize, wanted: usize) -> usize {
        if self.is_full_for(path) {
            return 0;
        }
        let Some(free) = self.free_bytes() else { return wanted };
        let len = file.lock().current.len();
        // Bytes that are there already need no room.
        let end = len.saturating_add(usize::try_from(free).unwrap_or(usize::MAX));
        wanted.min(end.saturating_sub(offset))
    }

    /// Whether the machine is on, for something opened in `life`.
    pub(super) fn check_on(&self, life: u64) -> io::Result<()> {
        if self.is_off || self.life != life {
            return Err(io::Error::other("the simulated machine is off"));
        }
        Ok(())
    }

    /// What becomes of a change that fails with `probability`, by itself.
    pub(super) fn fate(&mut self, life: u64, probability: f64) -> Fate {
        if let Err(off) = self.check_on(life) {
            return Fate::Fails(off, 0.0);
        }
        self.changes += 1;
        if let Some(fuse) = &mut self.fuse {
            if *fuse == 0 {
                self.is_off = true;
                let portion =
                    if self.random.chance(0.3) { 1.0 } else { self.random.below(1000) as f64 / 1000.0 };
                return Fate::Fails(io::Error::other("the simulated power failed"), portion);
            }
            *fuse -= 1;
        }
        if self.random.chance(probability) {
            self.failures += 1;
            let code = if self.random.chance(self.trouble.no_space) { libc::ENOSPC } else { libc::EIO };
            return Fate::Fails(errno(code), self.random.below(1000) as f64 / 1000.0);
        }
        Fate::Happens
    }

    /// A change that either happens or not.
    pub(super) fn whole(&mut self, life: u64, probability: f64) -> io::Result<()> {
        match self.fate(life, probability) {
            Fate::Happens => Ok(()),
            Fate::Fails(e, _) => Err(e),
        }
    }

    /// What is to go wrong with this operation.
    pub(super) fn fault(&mut self, operation: Operation, path: &Path) -> Option<Fault> {
        let fault = self.faulty.as_mut().and_then(|faulty| (faulty.0)(operation, path));
        self.failures += u64::from(fault.is_some());
        fault
    }

    /// An operation that either happens or fails.
    pub(super) fn strike(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.fault(operation, path) {
            Some(Fault::Fail(code)) => Err(errno(code)),
            _ => Ok(()),
        }
    }

    pub(super) fn node(&self, path: &Path) -> io::Result<Node> {
        if path == Path::new("/") {
            return Ok(Node::Directory);
        }
        self.names.get(path).cloned().ok_or_else(|| errno(libc::ENOENT))
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        match self.node(path)? {
            Node::File(file) => Ok(file),
            Node::Directory => Err(errno(libc::EISDIR)),
        }
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<()> {
        match self.node(path)? {
            Node::Directory => Ok(()),
            Node::File(_) => Err(errno(libc::ENOTDIR)),
        }
    }

    pub(super) fn children<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.names.keys().map(PathBuf::as_path).filter(move |p| p.parent() == Some(path))
    }

    /// What a new file at `path` needs: a directory above it, and no directory in its place.
    pub(super) fn check_place(&self, path: &Path) -> io::Result<()> {
        self.directory(path.parent().ok_or_else(|| errno(libc::EISDIR))?)?;
        match self.names.get(path) {
            Some(Node::Directory) => Err(errno(libc::EISDIR)),
            _ => Ok(()),
        }
    }

    pub(super) fn put(&mut self, path: &Path, node: Node) {
        self.rename_by(NameChange::Put(path.into(), node));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.rename_by(NameChange::Remove(path.into()));
    }

    /// See the caller for what must be true of the two.
    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.rename_by(NameChange::Rename { from: from.into(), to: to.into(), node });
    }

    fn rename_by(&mut self, change: NameChange<Node>) {
        change.apply(&mut self.names);
        self.record(|| {
            Effect::Name(change.map(|node| match node {
                Node::Directory => None,
                Node::File(file) => Some(file.lock().id),
            }))
        });
        self.unsynced.push(change);
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        self.record(|| Effect::SyncDirectory(dir.into()));
        for change in self.unsynced.extract_if(.., |change| change.is_in(dir)) {
            change.apply(&mut self.durable);
        }
    }

    /// The process is gone, the machine goes on: what it has written is there.
    pub(super) fn lose_process(&mut self) {
        self.begin_life();
    }

    /// The machine starts again after a power failure.
    pub(super) fn lose_power(&mut self) {
        let in_order = self.random.chance(0.8);
        let kept = self.random.below(self.unsynced.len() as u64 + 1) as usize;
        for (number, change) in std::mem::take(&mut self.unsynced).iter().enumerate() {
            if if in_order { number < kept } else { self.random.chance(0.5) } {
                change.apply(&mut self.durable);
            }
        }
        remove_orphans(&mut self.durable, |node| matches!(node, Node::Directory));
        self.names = self.durable.clone();
        for node in self.names.values() {
            if let Node::File(file) = node {
                file.lock().lose_power(&mut self.random);
            }
        }
        self.begin_life();
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.is_off = false;
        self.fuse = None;
        self.locked.clear();
    }
}
