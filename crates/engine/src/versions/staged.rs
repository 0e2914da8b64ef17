//! The state recorded in the MANIFEST, and that state with changes that are not written yet.
//!
//! In: the state, changes in order. Out: the next state, the records that lead to it, and the files
//! that leave the tree; or the reason why a change does not fit.
//!
//! Invariants:
//! - A change that does not fit leaves no trace: others of its group are applied as if it had not
//!   been queued.
//! - Everything here is computed before anything is written, so the MANIFEST receives no edit that
//!   replay would refuse.

use super::change::Change;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::version_edit::{BlobFileGarbage, VersionEdit, WalAddition};
use karst_lsm::{StoredFile, TreeOptions, Version, VersionBuilder};
use karst_storage::column_family::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The state recorded in the MANIFEST.
#[derive(Clone, Debug)]
pub(super) struct ManifestState {
    pub(super) families: BTreeMap<ColumnFamilyId, FamilyState>,
    pub(super) last_sequence: SeqNo,
    pub(super) max_family: ColumnFamilyId,
    pub(super) min_log: FileNumber,
    /// Logs with the number of bytes known to be synced, if the MANIFEST tracks logs.
    pub(super) wals: BTreeMap<FileNumber, Option<u64>>,
}

/// The state of a column family recorded in the MANIFEST.
#[derive(Clone, Debug)]
pub(super) struct FamilyState {
    pub(super) family: Arc<Family>,
    pub(super) tree: TreeOptions,
    pub(super) log_number: FileNumber,
    pub(super) version: Arc<Version>,
    pub(super) full_history_ts_low: Option<Vec<u8>>,
}

/// Contents of the MANIFEST that options select.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) db_id: Option<Vec<u8>>,
    pub(super) tracks_wals: bool,
}

/// A state with changes that are not written yet.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) state: ManifestState,
    /// Records to append to a MANIFEST that holds the state before.
    pub(super) records: Vec<VersionEdit>,
    /// Files of the old versions that the new ones lack.
    pub(super) leaving: Vec<Arc<StoredFile>>,
    /// Directories with new files.
    pub(super) written: BTreeSet<PathBuf>,
    /// Families with a new version, and dropped ones.
    pub(super) changed: BTreeSet<ColumnFamilyId>,
    pub(super) dropped: Vec<Arc<Family>>,
    /// Old versions, which keep removed files reachable until they are retired.
    pub(super) old_versions: Vec<Arc<Version>>,
}

impl Staged {
    pub(super) fn new(state: ManifestState) -> Staged {
        Staged {
            state,
            records: Vec::new(),
            leaving: Vec::new(),
            written: BTreeSet::new(),
            changed: BTreeSet::new(),
            dropped: Vec::new(),
            old_versions: Vec::new(),
        }
    }

    /// Returns false if the records have to begin a new MANIFEST.
    ///
    /// Compat: RocksDB's secondaries and its `best_efforts_recovery` refuse a MANIFEST with an
    /// atomic group that adds a family ("unexpected CF change in AtomicGroup"). The snapshot at the
    /// beginning of a MANIFEST has no groups, and appears as a whole with CURRENT.
    pub(super) fn may_be_appended(&self) -> bool {
        let adds_in_group =
            |edit: &VersionEdit| edit.column_family_add.is_some() && edit.remaining_in_atomic_group.is_some();
        !self.records.iter().any(adds_in_group)
    }

    /// Applies one change.
    ///
    /// # Errors
    /// The change does not fit; none of it was applied.
    pub(super) fn apply(&mut self, change: &Change, tree_of: impl Fn(&Family) -> TreeOptions) -> Result<()> {
        let mut next = self.state.clone();
        let mut builders: BTreeMap<ColumnFamilyId, VersionBuilder> = BTreeMap::new();
        let mut dropped = Vec::new();
        let mut records = change.edits.clone();
        if let Some(log) = change.first_log {
            next.raise_log_numbers(log, &mut records);
        }
        let trees = records.iter().filter(|edit| is_about_a_tree(edit)).count();
        let added = records.iter().filter(|edit| edit.column_family_add.is_some()).count();
        let edits = records.len();
        // One tree is a group too, because a family created with tables must appear with all of
        // them, or not at all.
        let is_group = trees > 1 || trees > 0 && added > 0;
        for (index, edit) in records.iter_mut().enumerate() {
            let id = edit.column_family;
            if edit.column_family_add.is_some() {
                next.add_family(edit, change, &tree_of)?;
            } else if edit.column_family_drop {
                dropped.push(next.drop_family(id)?);
            } else if is_about_a_tree(edit) {
                let family = next.families.get_mut(&id).ok_or_else(|| gone(id))?;
                if changes_tree(edit) {
                    let base = || VersionBuilder::from_base(family.version.clone());
                    builders.entry(id).or_insert_with(base).apply(edit).map_err(|e| misfit(family, &e))?;
                }
                family.note(edit);
            }
            next.note(edit);
            if is_group {
                assert_eq!(trees + added, edits, "an atomic group is about trees and new families only");
                edit.remaining_in_atomic_group = Some((edits - 1 - index) as u32);
            }
        }
        let mut replaced = Vec::new();
        for (id, builder) in builders {
            let Some(family) = next.families.get_mut(&id) else { continue };
            let version = builder.build(&family.tree).map_err(|e| misfit(family, &e))?;
            let old = std::mem::replace(&mut family.version, Arc::new(version));
            replaced.push((id, old, family.version.clone()));
        }
        // Invariant: nothing fails from here on.
        for (id, old, new) in replaced {
            self.leaving.extend(left(&old, &new));
            self.old_versions.push(old);
            self.changed.insert(id);
        }
        for family in dropped {
            self.leaving.extend(stored_files(&family.version));
            self.old_versions.push(family.version);
            self.dropped.push(family.family);
        }
        for edit in &change.edits {
            let Some(family) = next.families.get(&edit.column_family) else { continue };
            let directories = &family.family.tables.shared.directories;
            let of = |path_id: u8| directories.get(usize::from(path_id)).cloned();
            self.written.extend(edit.new_files.iter().filter_map(|(_, file)| of(file.path_id)));
            self.written.extend(edit.blob_file_additions.first().and_then(|_| of(0)));
        }
        self.state = next;
        self.records.append(&mut records);
        Ok(())
    }

    /// Ends the group: fills in the counters, and determines the logs that are no longer needed.
    /// `of_prepared` is the oldest log that prepared transactions need.
    pub(super) fn finish(
        &mut self,
        next_file_number: FileNumber,
        described: &Described,
        of_prepared: Option<FileNumber>,
    ) {
        let needed = self.state.families.values().map(|family| family.log_number).min().unwrap_or_default();
        let needed = of_prepared.map_or(needed, |log| needed.min(log));
        let advanced = needed > self.state.min_log;
        if advanced {
            self.state.min_log = needed;
            self.state.wals = self.state.wals.split_off(&needed);
        }
        if advanced {
            let min_log_number_to_keep = Some(needed);
            self.records.push(VersionEdit { min_log_number_to_keep, ..VersionEdit::default() });
        }
        if advanced && described.tracks_wals {
            self.records.push(VersionEdit { wal_deletion: Some(needed), ..VersionEdit::default() });
        }
        for edit in &mut self.records {
            // Compat: edits about families or logs have no counters, as RocksDB's.
            if is_about_a_tree(edit) {
                edit.next_file_number = Some(next_file_number);
                edit.last_sequence = Some(self.state.last_sequence);
                edit.prev_log_number = edit.log_number.map(|_| FileNumber(0));
            }
        }
    }
}

impl ManifestState {
    /// Records in `records` that no family needs a log before `log`.
    ///
    /// Families that exist at this moment, because one that the recovery's seal did not list was
    /// created after it, and has no entries in older logs.
    fn raise_log_numbers(&self, log: FileNumber, records: &mut Vec<VersionEdit>) {
        for (id, family) in &self.families {
            match records.iter_mut().find(|edit| edit.column_family == *id) {
                Some(edit) => edit.log_number = edit.log_number.max(Some(log)),
                None if family.log_number < log => {
                    let log_number = Some(log);
                    records.push(VersionEdit { column_family: *id, log_number, ..VersionEdit::default() });
                }
                None => {}
            }
        }
    }

    fn add_family(
        &mut self,
        edit: &mut VersionEdit,
        change: &Change,
        tree_of: &impl Fn(&Family) -> TreeOptions,
    ) -> Result<()> {
        let name = edit.column_family_add.as_deref().unwrap_or_default();
        // Checked again, because another creation of this name may have been staged since the
        // caller checked.
        if self.families.values().any(|other| other.family.config.name == name) {
            let name = Named(name);
            return Err(Error::invalid_argument(format!("Column family already exists: {name:?}")));
        }
        let family = change.created.clone().expect("a created family comes with its edit");
        assert_eq!(family.id(), edit.column_family, "the edit is about the created family");
        // The oldest log that any family needs is enough, because no log can hold entries of an id
        // that was never assigned before. It is chosen only here, because a log that was needed
        // when the family was made may have failed since, and must not be kept for the family.
        let needed = self.families.values().map(|family| family.log_number).min();
        let log_number = needed.unwrap_or_default().max(self.min_log);
        edit.log_number = Some(log_number);
        let state = FamilyState {
            tree: tree_of(&family),
            log_number,
            version: family.superversion().version().clone(),
            full_history_ts_low: None,
            family,
        };
        let known = self.families.insert(edit.column_family, state);
        assert!(known.is_none(), "an id is given once");
        Ok(())
    }

    fn drop_family(&mut self, id: ColumnFamilyId) -> Result<FamilyState> {
        if id == ColumnFamilyId::DEFAULT {
            return Err(Error::invalid_argument("the default column family cannot be dropped"));
        }
        self.families.remove(&id).ok_or_else(|| gone(id))
    }

    fn note(&mut self, edit: &VersionEdit) {
        let newest = edit.new_files.iter().map(|(_, file)| file.largest_seq).max();
        self.last_sequence = self.last_sequence.max(edit.last_sequence.max(newest).unwrap_or_default());
        if edit.column_family_add.is_some() {
            self.max_family = self.max_family.max(edit.column_family);
        }
        for WalAddition { number, synced_size_bytes } in &edit.wal_additions {
            if *number >= self.min_log {
                let size = self.wals.entry(*number).or_default();
                *size = (*size).max(*synced_size_bytes);
            }
        }
    }

    /// Returns the edits that a new MANIFEST begins with.
    pub(super) fn snapshot(&self, next_file_number: FileNumber, described: &Described) -> Vec<VersionEdit> {
        let mut edits = Vec::new();
        if described.db_id.is_some() {
            edits.push(VersionEdit { db_id: described.db_id.clone(), ..VersionEdit::default() });
        }
        if described.tracks_wals {
            let addition = |(number, size): (&FileNumber, &Option<u64>)| WalAddition {
                number: *number,
                synced_size_bytes: *size,
            };
            let wal_additions: Vec<_> = self.wals.iter().map(addition).collect();
            if !wal_additions.is_empty() {
                edits.push(VersionEdit { wal_additions, ..VersionEdit::default() });
            }
            edits.push(VersionEdit { wal_deletion: Some(self.min_log), ..VersionEdit::default() });
        }
        for (id, state) in &self.families {
            let name = state.family.config.name.clone();
            edits.push(VersionEdit {
                column_family: *id,
                column_family_add: Some(name).filter(|_| *id != ColumnFamilyId::DEFAULT),
                comparator: Some(state.family.config.comparator.name().to_owned()),
                ..VersionEdit::default()
            });
            edits.push(state.snapshot(*id));
        }
        edits.push(VersionEdit {
            prev_log_number: Some(FileNumber(0)),
            next_file_number: Some(next_file_number),
            max_column_family: Some(self.max_family),
            min_log_number_to_keep: Some(self.min_log),
            last_sequence: Some(self.last_sequence),
            ..VersionEdit::default()
        });
        edits
    }
}

impl FamilyState {
    fn note(&mut self, edit: &VersionEdit) {
        if let Some(number) = edit.log_number {
            self.log_number = self.log_number.max(number);
        }
        if let Some(low) = &edit.full_history_ts_low {
            let comparator = &self.family.config.comparator;
            let known = self.full_history_ts_low.as_deref();
            if known.is_none_or(|known| comparator.compare_timestamps(known, low).is_lt()) {
                self.full_history_ts_low = Some(low.clone());
            }
        }
    }

    fn snapshot(&self, id: ColumnFamilyId) -> VersionEdit {
        let version = &self.version;
        let garbage = |blob: &Arc<karst_lsm::BlobFileMetadata>| BlobFileGarbage {
            number: blob.number(),
            count: blob.garbage_count,
            bytes: blob.garbage_bytes,
        };
        let blobs = || version.blob_files().values();
        VersionEdit {
            column_family: id,
            log_number: Some(self.log_number),
            compact_cursors: version.compact_cursors().iter().map(|(l, key)| (*l, key.clone())).collect(),
            new_files: version.all_files().map(|(level, file)| (level, (***file).clone())).collect(),
            blob_file_additions: blobs().map(|blob| blob.file.clone()).collect(),
            blob_file_garbages: blobs().map(garbage).filter(|garbage| garbage.count > 0).collect(),
            full_history_ts_low: self.full_history_ts_low.clone(),
            ..VersionEdit::default()
        }
    }
}

/// Returns true if the edit is about a tree, and not about families or logs.
fn is_about_a_tree(edit: &VersionEdit) -> bool {
    edit.column_family_add.is_none()
        && !edit.column_family_drop
        && (edit.wal_additions.is_empty() && edit.wal_deletion.is_none())
}

fn changes_tree(edit: &VersionEdit) -> bool {
    !(edit.new_files.is_empty()
        && edit.deleted_files.is_empty()
        && edit.blob_file_additions.is_empty()
        && edit.blob_file_garbages.is_empty()
        && edit.compact_cursors.is_empty())
}

fn gone(id: ColumnFamilyId) -> Error {
    Error::new(ErrorKind::NotFound, format!("column family {id} was dropped"))
}

fn misfit(family: &FamilyState, error: &karst_lsm::Inconsistent) -> Error {
    let name = Named(&family.family.config.name);
    Error::new(ErrorKind::Corruption, format!("a change does not fit column family {name:?}: {error}"))
}

fn stored_files(version: &Version) -> impl Iterator<Item = Arc<StoredFile>> {
    let tables = version.all_files().map(|(_, file)| file.stored().clone());
    tables.chain(version.blob_files().values().map(|blob| blob.stored().clone()))
}

/// Returns the files that `old` has and `new` lacks.
pub(crate) fn left(old: &Version, new: &Version) -> Vec<Arc<StoredFile>> {
    // Compares only levels that differ, because a level that no edit touched is shared, and a file
    // that moves touches two.
    let same = |index: usize| match (old.levels().get(index), new.levels().get(index)) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        _ => false,
    };
    let touched = |version: &Version| -> Vec<Arc<StoredFile>> {
        let levels = version.levels().iter().enumerate().filter(|(index, _)| !same(*index));
        let tables = levels.flat_map(|(_, level)| level.files()).map(|file| file.stored().clone());
        tables.chain(version.blob_files().values().map(|blob| blob.stored().clone())).collect()
    };
    let stays: BTreeSet<_> = touched(new).iter().map(|file| file.id()).collect();
    touched(old).into_iter().filter(|file| !stays.contains(&file.id())).collect()
}
