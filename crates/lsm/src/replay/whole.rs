//! Best-efforts recovery: replays a MANIFEST to the newest state of each column family whose files
//! all exist.
//!
//! In: the edits in their order, and for each added file true if it exists. Out: the replay, with
//! families set back where files are missing, and the names of these families.
//!
//! Invariants:
//! - A family's tree is one that it had between two edits, or the empty one that it began with.
//! - The changes of an atomic group to several families are in all of their trees or in none.
//!
//! A state is kept only when a family becomes incomplete, because most edits lead from one
//! incomplete state to another, or from a complete one to a complete one, and a state is as large
//! as its tree.
use super::{Family, ManifestReplay};
use crate::error::Inconsistent;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::version_edit::{NewFile, VersionEdit};
use std::collections::{BTreeMap, BTreeSet};

/// A file that a MANIFEST adds to a tree.
#[derive(Clone, Copy, Debug)]
pub enum AddedFile<'a> {
    /// A table.
    Table(&'a NewFile),
    /// A blob file.
    Blob(FileNumber),
}

/// Error of [`WholeReplay::add`].
#[derive(Debug)]
pub enum WholeError<E> {
    /// The edit contradicts the previous ones. The replay must be discarded.
    Inconsistent(Inconsistent),
    /// The existence of a file could not be determined.
    Asking(E),
}

/// A replay that tracks missing files.
#[derive(Clone, Debug, Default)]
pub struct WholeReplay {
    replay: ManifestReplay,
    /// Edits of an incomplete atomic group.
    group: Vec<VersionEdit>,
    watched: BTreeMap<ColumnFamilyId, Watched>,
    /// Sets of families that an atomic group changed while one of them was incomplete: they are
    /// complete only together.
    tied: Vec<BTreeSet<ColumnFamilyId>>,
}

/// Missing files of a family.
#[derive(Clone, Debug, Default)]
struct Watched {
    /// Tables of its tree that are missing.
    tables: BTreeSet<FileNumber>,
    /// Blob files that were added to its tree and are missing.
    blobs: BTreeSet<FileNumber>,
    /// The last complete state, if the family is incomplete now.
    last_whole: Option<Family>,
}

impl WholeReplay {
    /// Returns a replay without edits.
    pub fn new() -> WholeReplay {
        WholeReplay::default()
    }

    /// Adds the MANIFEST's next edit. `is_there` receives the name of a column family and a file
    /// that the edit adds to its tree, and returns true if that file exists and is the expected
    /// one.
    ///
    /// # Errors
    /// Those of [`WholeError`].
    pub fn add<E>(
        &mut self,
        edit: VersionEdit,
        mut is_there: impl FnMut(&str, AddedFile<'_>) -> Result<bool, E>,
    ) -> Result<(), WholeError<E>> {
        let to_come = edit.remaining_in_atomic_group.is_some_and(|remaining| remaining > 0);
        self.group.push(edit.clone());
        if to_come {
            return self.replay.add(edit).map_err(WholeError::Inconsistent);
        }
        let group = std::mem::take(&mut self.group);
        let mut lost = Vec::new();
        for edit in &group {
            let id = edit.column_family;
            let of_it = group.iter().filter(|edit| edit.column_family == id);
            let added = of_it.filter_map(|edit| edit.column_family_add.as_deref()).next_back();
            let known = || self.replay.families.get(&id).map(|family| family.name.as_str());
            // An edit of an unknown family is skipped here, because the replay rejects it.
            let Some(name) = added.or_else(known) else { continue };
            for (_, table) in &edit.new_files {
                if !is_there(name, AddedFile::Table(table)).map_err(WholeError::Asking)? {
                    lost.push((id, AddedFile::Table(table)));
                }
            }
            for blob in &edit.blob_file_additions {
                if !is_there(name, AddedFile::Blob(blob.number)).map_err(WholeError::Asking)? {
                    lost.push((id, AddedFile::Blob(blob.number)));
                }
            }
        }
        let changed: BTreeSet<ColumnFamilyId> = group.iter().map(|edit| edit.column_family).collect();
        let counts = |id: &ColumnFamilyId| self.watched.get(id).is_none_or(|it| it.last_whole.is_none());
        // Missing blob files count because a table may refer to them again.
        let in_doubt = !lost.is_empty()
            || changed.iter().any(|id| self.watched.get(id).is_some_and(|it| !it.blobs.is_empty()))
            || !changed.iter().all(counts);
        let mut before = BTreeMap::new();
        if in_doubt {
            let states = changed.iter().filter(|id| counts(id));
            before.extend(states.filter_map(|id| Some((*id, self.replay.families.get(id)?.clone()))));
        }
        self.replay.add(edit).map_err(WholeError::Inconsistent)?;
        for edit in &group {
            let watched = self.watched.entry(edit.column_family).or_default();
            for (_, number) in &edit.deleted_files {
                watched.tables.remove(number);
            }
        }
        for (id, file) in lost {
            let watched = self.watched.entry(id).or_default();
            match file {
                AddedFile::Table(table) => watched.tables.insert(table.number),
                AddedFile::Blob(number) => watched.blobs.insert(number),
            };
        }
        self.settle(changed, before);
        Ok(())
    }

    /// Updates the state of families that were just changed, and of those tied to them: complete or
    /// incomplete.
    fn settle(&mut self, changed: BTreeSet<ColumnFamilyId>, mut before: BTreeMap<ColumnFamilyId, Family>) {
        let mut together = changed;
        self.tied.retain(|tie| {
            let apart = tie.is_disjoint(&together);
            if !apart {
                together.extend(tie);
            }
            apart
        });
        // Dropped families tie no others.
        together.retain(|id| self.replay.families.contains_key(id));
        self.watched.retain(|id, _| self.replay.families.contains_key(id));
        let all_whole = together.iter().all(|id| self.is_whole(*id));
        for id in &together {
            let watched = self.watched.entry(*id).or_default();
            if all_whole {
                watched.last_whole = None;
            } else if watched.last_whole.is_none() {
                let name = &self.replay.families[id].name;
                watched.last_whole = Some(before.remove(id).unwrap_or_else(|| Family::new(name.clone())));
            }
        }
        if !all_whole {
            self.tied.push(together);
        }
    }

    /// Returns true if all files of the family's tree exist.
    fn is_whole(&self, id: ColumnFamilyId) -> bool {
        let (Some(family), Some(watched)) = (self.replay.families.get(&id), self.watched.get(&id)) else {
            return true;
        };
        watched.tables.is_empty() && !watched.blobs.iter().any(|blob| family.builder.needs_blob_file(*blob))
    }

    /// Returns true if every edit that a MANIFEST begins with was added.
    pub fn has_begun(&self) -> bool {
        self.replay.is_whole()
    }

    /// Returns the replay, with each family in its last complete state; and the names of the
    /// families that were set back.
    pub fn into_replay(mut self) -> (ManifestReplay, Vec<String>) {
        let mut set_back = Vec::new();
        for (id, watched) in self.watched {
            if let Some(family) = watched.last_whole {
                set_back.push(family.name.clone());
                self.replay.families.insert(id, family);
            }
        }
        (self.replay, set_back)
    }
}
