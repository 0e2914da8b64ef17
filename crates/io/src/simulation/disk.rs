//! The simulated machine's disk: names, files, locks, and power failures.
//!
//! Names are durable once their directory is synced; until then a power failure keeps the first of
//! their changes, or, less often, any of them. A rename happens as a whole or not at all. Every
//! change, and every read, may be made to fail. The disk may have a limited capacity, or no room
//! for files of some names. Lock: one mutex around a disk (in [`super::file_system`]), then a
//! file's bytes.

use super::Trouble;
use super::fault::{Fault, Faulty, Operation};
use super::inode::{Change, Inode};
use super::journal::{Effect, Image, Journal};
use super::names::{NameChange, Names, remove_orphans};
use crate::random::Random;
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
    /// Number of changes until the power fails.
    pub(super) fuse: Option<u64>,
    /// Changes since the disk was made.
    pub(super) changes: u64,
    pub(super) is_off: bool,
    /// Number of starts of the machine; handles opened in an earlier life are dead.
    pub(super) life: u64,
    pub(super) failures: u64,
    /// Bytes available to all files together; `None` for no limit.
    pub(super) capacity: Option<u64>,
    /// Returns true for the paths of files that find no room.
    pub(super) full: Option<fn(&Path) -> bool>,
    /// Injected faults of operations.
    pub(super) faulty: Option<Faulty>,
    /// Recorded changes, while recording.
    pub(super) journal: Option<Journal>,
    files_made: u64,
}

/// The outcome of a change.
pub(super) enum Fate {
    Happens,
    /// The change fails after this fraction of it (0 to 1) has happened.
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

    /// Returns a disk with these files, all of them durable.
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

    /// Returns the number of the next file made here.
    pub(super) fn next_file(&mut self) -> u64 {
        self.files_made += 1;
        self.files_made
    }

    /// Begins to record, starting from the disk's present state.
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

    /// Appends an effect to the journal, if recording.
    fn record(&mut self, effect: impl FnOnce() -> Effect) {
        if let Some(journal) = &mut self.journal {
            journal.effects.push(effect());
        }
    }

    /// Changes a file's content.
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

    /// Returns the bytes by which files may still grow; `None` without a limit. The caller must not
    /// hold a file's lock.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let capacity = self.capacity?;
        // Keyed by number, because a file takes up its room once, even if it has several names.
        let sized = |node: &Node| match node {
            Node::Directory => None,
            Node::File(file) => {
                let inode = file.lock();
                Some((inode.id, inode.taken_bytes() as u64))
            }
        };
        let files: BTreeMap<u64, u64> = self.names.values().filter_map(sized).collect();
        Some(capacity.saturating_sub(files.values().sum()))
    }

    /// Returns true if a file of this path finds no room at all.
    pub(super) fn is_full_for(&self, path: &Path) -> bool {
        self.full.is_some_and(|full| full(path))
    }

    /// Returns the number of the `wanted` bytes from `offset` of the file at `path` that find room.
    pub(super) fn room(&self, path: &Path, file: &File, offset: usize, wanted: usize) -> usize {
        if self.is_full_for(path) {
            return 0;
        }
        let Some(free) = self.free_bytes() else { return wanted };
        let len = file.lock().taken_bytes();
        // Existing and reserved bytes need no room.
        let end = len.saturating_add(usize::try_from(free).unwrap_or(usize::MAX));
        wanted.min(end.saturating_sub(offset))
    }

    /// Reserves room for the first `end` bytes of the file at `path`, at most half of the free
    /// space.
    pub(super) fn reserve(&self, path: &Path, file: &File, end: u64) -> io::Result<()> {
        let end = usize::try_from(end).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        let more = end.saturating_sub(file.lock().taken_bytes()) as u64;
        if self.is_full_for(path) || self.free_bytes().is_some_and(|free| more > free / 2) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let mut inode = file.lock();
        inode.reserved = inode.reserved.max(end);
        Ok(())
    }

    /// Returns an error unless the machine is on and still in `life`.
    pub(super) fn check_on(&self, life: u64) -> io::Result<()> {
        if self.is_off || self.life != life {
            return Err(io::Error::other("the simulated machine is off"));
        }
        Ok(())
    }

    /// Draws the outcome of a change that fails with `probability`; fails it if the machine is off
    /// or the power fails now.
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

    /// Draws the outcome of a change that happens as a whole or not at all.
    pub(super) fn whole(&mut self, life: u64, probability: f64) -> io::Result<()> {
        match self.fate(life, probability) {
            Fate::Happens => Ok(()),
            Fate::Fails(e, _) => Err(e),
        }
    }

    /// Returns the injected fault of this operation, and counts it.
    pub(super) fn fault(&mut self, operation: Operation, path: &Path) -> Option<Fault> {
        let fault = self.faulty.as_mut().and_then(|faulty| (faulty.0)(operation, path));
        self.failures += u64::from(fault.is_some());
        fault
    }

    /// Fails if an error is injected into this operation.
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

    /// Returns an error unless a new file can be made at `path`: its parent must be a directory,
    /// and `path` must not.
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

    /// Renames; the caller has checked both paths.
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

    /// Ends the process, while the machine goes on: all written data stays.
    pub(super) fn lose_process(&mut self) {
        self.begin_life();
    }

    /// Restarts the machine after a power failure.
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
