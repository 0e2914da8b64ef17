//! Replay of a MANIFEST: rebuilds the database's state from decoded edits.
//!
//! In: every record's [`VersionEdit`] in order, through [`ManifestReplay::add`]; then, for each
//! column family found, the options under which it is opened. Out: a [`VersionSet`], or
//! [`Inconsistent`].
//!
//! Invariants:
//! - An atomic group takes effect with its last edit; one cut short at the MANIFEST's end has no
//!   effect.
//! - Comparators are checked against the names in the MANIFEST before a tree is ordered by them.
//!
//! Replay has two steps because a tree can be ordered only once its comparator is known, and the
//! caller chooses comparators by name after it has seen the column families. Adding and deleting
//! files needs no order.
#[cfg(test)]
mod tests;
pub mod whole;

use crate::error::Inconsistent;
use crate::version_builder::{TreeOptions, VersionBuilder};
use crate::version_set::{ColumnFamilyState, DEFAULT_COLUMN_FAMILY, VersionSet};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::version_edit::{VersionEdit, WalAddition};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Collects the edits of a MANIFEST.
#[derive(Clone, Debug)]
pub struct ManifestReplay {
    families: BTreeMap<ColumnFamilyId, Family>,
    /// The names of `families`.
    names: HashSet<String>,
    /// Edits of an incomplete atomic group.
    group: Vec<VersionEdit>,
    db_id: Option<Vec<u8>>,
    log_number: Option<FileNumber>,
    prev_log_number: FileNumber,
    next_file_number: Option<FileNumber>,
    min_log_number_to_keep: FileNumber,
    max_column_family: ColumnFamilyId,
    last_sequence: Option<SeqNo>,
    wals: BTreeMap<FileNumber, Option<u64>>,
    wals_gone_below: FileNumber,
    last_compacted_manifest_file_size: Option<u64>,
}

/// A column family while its edits are collected.
#[derive(Clone, Debug)]
struct Family {
    builder: VersionBuilder,
    name: String,
    comparator: Option<String>,
    log_number: FileNumber,
    full_history_ts_low: Option<Vec<u8>>,
    persist_user_defined_timestamps: bool,
}

impl Family {
    fn new(name: String) -> Family {
        Family {
            builder: VersionBuilder::new(),
            name,
            comparator: None,
            log_number: FileNumber(0),
            full_history_ts_low: None,
            persist_user_defined_timestamps: true,
        }
    }
}

/// A column family that a MANIFEST describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFamily<'a> {
    /// The family's id.
    pub id: ColumnFamilyId,
    /// The family's name.
    pub name: &'a str,
    /// Name of the comparator that orders the family, if the MANIFEST records it.
    pub comparator: Option<&'a str>,
}

impl Default for ManifestReplay {
    fn default() -> ManifestReplay {
        ManifestReplay::new()
    }
}

impl ManifestReplay {
    /// Returns a replay without edits: a database with an empty default column family.
    pub fn new() -> ManifestReplay {
        let default = Family::new(DEFAULT_COLUMN_FAMILY.to_owned());
        ManifestReplay {
            families: BTreeMap::from([(ColumnFamilyId::DEFAULT, default)]),
            names: HashSet::from([DEFAULT_COLUMN_FAMILY.to_owned()]),
            group: Vec::new(),
            db_id: None,
            log_number: None,
            prev_log_number: FileNumber(0),
            next_file_number: None,
            min_log_number_to_keep: FileNumber(0),
            max_column_family: ColumnFamilyId(0),
            last_sequence: None,
            wals: BTreeMap::new(),
            wals_gone_below: FileNumber(0),
            last_compacted_manifest_file_size: None,
        }
    }

    /// Returns the column families that exist after the edits so far, by id.
    pub fn column_families(&self) -> impl Iterator<Item = FoundFamily<'_>> {
        self.families.iter().map(|(id, family)| FoundFamily {
            id: *id,
            name: &family.name,
            comparator: family.comparator.as_deref(),
        })
    }

    /// Returns true if every edit that a MANIFEST begins with was added; without them there is no
    /// state to build.
    pub fn is_whole(&self) -> bool {
        self.log_number.is_some() && self.next_file_number.is_some() && self.last_sequence.is_some()
    }

    /// Returns true if an atomic group is incomplete.
    pub fn in_atomic_group(&self) -> bool {
        !self.group.is_empty()
    }

    /// Adds the MANIFEST's next edit.
    ///
    /// # Errors
    /// [`Inconsistent`] when the edit contradicts the previous ones. The replay must then be
    /// discarded.
    pub fn add(&mut self, edit: VersionEdit) -> Result<(), Inconsistent> {
        let Some(remaining) = edit.remaining_in_atomic_group else {
            if self.in_atomic_group() {
                return Err(Inconsistent::new("an atomic group is interrupted by an edit outside of it"));
            }
            return self.apply(&edit);
        };
        if let Some(last) = self.group.last().and_then(|edit| edit.remaining_in_atomic_group)
            && last.checked_sub(1) != Some(remaining)
        {
            return Err(Inconsistent::new(format!(
                "an atomic group with {last} edits to come goes on with {remaining} to come"
            )));
        }
        self.group.push(edit);
        if remaining == 0 {
            for edit in std::mem::take(&mut self.group) {
                self.apply(&edit)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, edit: &VersionEdit) -> Result<(), Inconsistent> {
        let id = edit.column_family;
        if let Some(name) = &edit.column_family_add {
            self.add_family(id, name)?;
        } else if edit.column_family_drop {
            let Some(dropped) = self.families.remove(&id) else {
                return Err(Inconsistent::new(format!("column family {id} is dropped but does not exist")));
            };
            self.names.remove(&dropped.name);
        } else if is_about_logs_only(edit) {
            for addition in &edit.wal_additions {
                self.add_wal(addition)?;
            }
            if let Some(below) = edit.wal_deletion {
                self.delete_wals(below);
            }
        } else {
            let family = self.families.get_mut(&id).ok_or_else(|| {
                Inconsistent::new(format!("an edit is about column family {id}, which does not exist"))
            })?;
            family
                .builder
                .apply(edit)
                .map_err(|error| Inconsistent::new(format!("column family {:?}: {error}", family.name)))?;
        }
        self.note_family(edit);
        self.note_counters(edit);
        Ok(())
    }

    fn add_family(&mut self, id: ColumnFamilyId, name: &str) -> Result<(), Inconsistent> {
        if self.families.contains_key(&id) || !self.names.insert(name.to_owned()) {
            return Err(Inconsistent::new(format!("column family {name:?} ({id}) is added a second time")));
        }
        self.families.insert(id, Family::new(name.to_owned()));
        self.max_column_family = self.max_column_family.max(id);
        Ok(())
    }

    fn note_family(&mut self, edit: &VersionEdit) {
        let Some(family) = self.families.get_mut(&edit.column_family) else { return };
        // Compat: a log number that decreases is ignored, as in RocksDB.
        if let Some(number) = edit.log_number.filter(|number| *number >= family.log_number) {
            family.log_number = number;
            self.log_number = self.log_number.max(Some(number));
        }
        if let Some(name) = &edit.comparator {
            family.comparator = Some(name.clone());
        }
        if let Some(persisted) = edit.persist_user_defined_timestamps {
            family.persist_user_defined_timestamps = persisted;
        }
        if let Some(timestamp) = &edit.full_history_ts_low {
            family.full_history_ts_low = Some(timestamp.clone());
        }
    }

    fn note_counters(&mut self, edit: &VersionEdit) {
        if edit.db_id.is_some() {
            self.db_id.clone_from(&edit.db_id);
        }
        if let Some(number) = edit.prev_log_number {
            self.prev_log_number = number;
        }
        if edit.next_file_number.is_some() {
            self.next_file_number = edit.next_file_number;
        }
        if let Some(id) = edit.max_column_family {
            self.max_column_family = self.max_column_family.max(id);
        }
        if let Some(number) = edit.min_log_number_to_keep {
            self.min_log_number_to_keep = self.min_log_number_to_keep.max(number);
        }
        self.last_sequence = self.last_sequence.max(edit.last_sequence);
        if edit.last_compacted_manifest_file_size.is_some() {
            self.last_compacted_manifest_file_size = edit.last_compacted_manifest_file_size;
        }
    }

    fn add_wal(&mut self, addition: &WalAddition) -> Result<(), Inconsistent> {
        if addition.number < self.wals_gone_below {
            return Ok(());
        }
        match self.wals.get_mut(&addition.number) {
            None => {
                self.wals.insert(addition.number, addition.synced_size_bytes);
            }
            Some(_) if addition.synced_size_bytes.is_none() => {
                return Err(Inconsistent::new(format!("log {} is created a second time", addition.number)));
            }
            // Compat: edits with the sizes of one log may be out of order, so the larger size is
            // kept.
            Some(size) => *size = (*size).max(addition.synced_size_bytes),
        }
        Ok(())
    }

    fn delete_wals(&mut self, below: FileNumber) {
        if below > self.wals_gone_below {
            self.wals_gone_below = below;
            self.wals = self.wals.split_off(&below);
        }
    }

    /// Builds the state. `open` returns the options with which a column family is opened, or `None`
    /// to leave it closed.
    ///
    /// # Errors
    /// [`Inconsistent`] when the MANIFEST lacks a required field, when a comparator is not the one
    /// that a family was created with, when a tree violates an invariant, or when `open` returned
    /// it.
    pub fn finish(
        self,
        mut open: impl FnMut(FoundFamily<'_>) -> Result<Option<TreeOptions>, Inconsistent>,
    ) -> Result<VersionSet, Inconsistent> {
        let missing = |what| Inconsistent::new(format!("the MANIFEST has no {what}"));
        let log_number = self.log_number.ok_or_else(|| missing("log number"))?;
        let recorded_next = self.next_file_number.ok_or_else(|| missing("next file number"))?;
        let last_sequence = self.last_sequence.ok_or_else(|| missing("last sequence number"))?;
        let mut column_families = BTreeMap::new();
        let mut unopened = BTreeMap::new();
        for (id, family) in self.families {
            let found = FoundFamily { id, name: &family.name, comparator: family.comparator.as_deref() };
            match open(found)? {
                Some(options) => {
                    column_families.insert(id, family.build(id, &options)?);
                }
                None => {
                    unopened.insert(id, family.name);
                }
            }
        }
        // Compat: the recorded number is the MANIFEST's own or older, so it counts as used.
        let used = recorded_next.max(log_number).max(self.prev_log_number);
        Ok(VersionSet {
            db_id: self.db_id,
            next_file_number: FileNumber(used.0 + 1),
            last_sequence,
            prev_log_number: self.prev_log_number,
            min_log_number_to_keep: self.min_log_number_to_keep,
            max_column_family: self.max_column_family,
            wals: self.wals,
            last_compacted_manifest_file_size: self.last_compacted_manifest_file_size,
            column_families,
            unopened,
        })
    }
}

impl Family {
    fn build(self, id: ColumnFamilyId, options: &TreeOptions) -> Result<ColumnFamilyState, Inconsistent> {
        let name = self.name;
        if let Some(recorded) = self.comparator.filter(|recorded| recorded != options.comparator.name()) {
            return Err(Inconsistent::new(format!(
                "column family {name:?} is ordered by comparator {recorded:?}, not by {:?}",
                options.comparator.name()
            )));
        }
        let version = self
            .builder
            .build(options)
            .map_err(|error| Inconsistent::new(format!("column family {name:?}: {error}")))?;
        let newest = version.all_files().map(|(_, file)| file.epoch_number).max().unwrap_or(0);
        let reserved = u64::from(options.allow_ingest_behind);
        Ok(ColumnFamilyState {
            id,
            name,
            log_number: self.log_number,
            version: Arc::new(version),
            next_epoch_number: newest.max(reserved).saturating_add(1),
            full_history_ts_low: self.full_history_ts_low,
            persist_user_defined_timestamps: self.persist_user_defined_timestamps,
        })
    }
}

/// Returns true if the edit concerns only logs, and so no column family.
fn is_about_logs_only(edit: &VersionEdit) -> bool {
    (!edit.wal_additions.is_empty() || edit.wal_deletion.is_some())
        && edit.new_files.is_empty()
        && edit.deleted_files.is_empty()
        && edit.blob_file_additions.is_empty()
        && edit.blob_file_garbages.is_empty()
}
