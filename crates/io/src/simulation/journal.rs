//! The journal of a disk's changes, which allows a test to examine a crash between any two of them
//! without repeating the run.
//!
//! A [`Journal`] begins with the durable state at the start of recording. [`super::crash_states`]
//! replays it. An [`Image`] is the state that a crash leaves; images and the machines that start
//! with them share the bytes of files until a machine changes them.

use super::inode::Change;
use super::names::{NameChange, Names};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file's number, or `None` for a directory.
pub(super) type Entry = Option<u64>;

#[derive(Clone, Debug)]
pub(super) enum Effect {
    Name(NameChange<Entry>),
    SyncDirectory(PathBuf),
    Change { file: u64, change: Change },
    Sync { file: u64 },
}

/// All changes of a disk since it began to record.
#[derive(Debug)]
pub struct Journal {
    pub(super) base: Names<Option<(u64, Arc<Vec<u8>>)>>,
    pub(super) effects: Vec<Effect>,
}

impl Journal {
    pub(super) fn new(base: Names<Option<(u64, Arc<Vec<u8>>)>>) -> Self {
        Self { base, effects: Vec::new() }
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.effects.len()
    }

    /// Returns true if there is no change.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}

/// The files of a disk, all of them durable.
#[derive(Clone, Default)]
pub struct Image {
    /// Content by path; `None` is a directory.
    pub(super) files: Names<Option<Arc<Vec<u8>>>>,
}

impl Image {
    /// Returns each path with the bytes of its file; `None` for a directory.
    pub fn files(&self) -> impl Iterator<Item = (&Path, Option<&[u8]>)> {
        self.files.iter().map(|(path, content)| (&**path, content.as_ref().map(|bytes| &bytes[..])))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.files().map(|(path, content)| (path, content.map(<[u8]>::len)));
        f.debug_map().entries(lines).finish()
    }
}
