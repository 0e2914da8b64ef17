//! Reads as much as possible from MANIFESTs that may be damaged.
//!
//! In: the directory. Out: [`Salvaged`]: the readable content of the authoritative MANIFEST, and
//! the reason for doubt if it is incomplete.
//!
//! The authoritative MANIFEST is the one that CURRENT names, or the newest one with any record if
//! CURRENT is unusable. All records read from it are true: a table that left the tree was replaced
//! by others, and a dropped family is gone.

use crate::open::Directory;
use crate::open::wanted::DEFAULT;
use karst_base::error::Result;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::LogReader;
use karst_format::version_edit::{NewFile, VersionEdit};
use karst_lsm::ManifestReplay;
use std::collections::{BTreeMap, BTreeSet};

/// A column family found in a MANIFEST or in tables.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownFamily {
    pub(super) name: String,
    pub(super) comparator: Option<String>,
    /// The oldest log that the family may need.
    pub(super) log_number: FileNumber,
    pub(super) full_history_ts_low: Option<Vec<u8>>,
}

/// The content read from a MANIFEST.
#[derive(Clone, Debug, Default)]
pub(super) struct Salvaged {
    /// The MANIFEST, if one could be read at least in part.
    pub(super) name: Option<FileName>,
    /// Reason why its trees cannot be trusted; `None` if they can.
    pub(super) doubt: Option<String>,
    /// Damaged MANIFESTs, each with its first damage.
    pub(super) damaged: Vec<(FileName, String)>,
    /// The edits read.
    pub(super) replay: ManifestReplay,
    pub(super) families: BTreeMap<ColumnFamilyId, KnownFamily>,
    pub(super) dropped: BTreeSet<ColumnFamilyId>,
    /// Every table in its edits: the last metadata, and the family whose tree had it.
    pub(super) named: BTreeMap<FileNumber, (ColumnFamilyId, NewFile)>,
    /// The tables in its trees at the end.
    pub(super) live: BTreeSet<FileNumber>,
    pub(super) last_seq: SeqNo,
    pub(super) next_file: FileNumber,
    pub(super) min_log_number_to_keep: FileNumber,
    pub(super) max_column_family: ColumnFamilyId,
    pub(super) db_id: Option<Vec<u8>>,
    records: u64,
}

impl Salvaged {
    /// Returns the metadata and the family of the table with this number and size.
    pub(super) fn known_as(&self, number: FileNumber, size_bytes: u64) -> Option<&(ColumnFamilyId, NewFile)> {
        self.named.get(&number).filter(|(_, file)| file.size_bytes == size_bytes)
    }

    /// Returns true if the table with this number was in a tree and has left it.
    pub(super) fn has_left(&self, number: FileNumber) -> bool {
        self.named.contains_key(&number) && !self.live.contains(&number)
    }

    /// Reads the MANIFESTs of a directory.
    pub(super) fn read(directory: &Directory) -> Result<Salvaged> {
        let mut candidates = directory.manifests();
        let several = candidates.len() > 1;
        let mut damaged = Vec::new();
        let current = match directory.current_manifest() {
            Ok(name) => {
                candidates.retain(|other| *other != name);
                candidates.insert(0, name);
                Some(name)
            }
            // Returned here, because an I/O error must not be treated as damage.
            Err(error) if error.kind().is_io() => return Err(error),
            Err(_) => None,
        };
        let mut found = Salvaged::default();
        for name in candidates {
            let one = Self::of(name, &directory.read(name)?);
            damaged.extend(one.doubt.clone().map(|what| (name, what)));
            if one.records > 0 {
                found = one;
                if current != Some(name) && several {
                    let text = "CURRENT names another file, and several MANIFESTs exist";
                    found.doubt.get_or_insert_with(|| text.to_owned());
                }
                break;
            }
        }
        if found.name.is_none() {
            found.doubt = Some("no MANIFEST can be read".to_owned());
        }
        let default = KnownFamily { name: DEFAULT.to_owned(), ..KnownFamily::default() };
        found.families.entry(ColumnFamilyId::DEFAULT).or_insert(default);
        found.damaged = damaged;
        Ok(found)
    }

    /// Reads a MANIFEST's bytes up to the first damage.
    pub(super) fn of(name: FileName, bytes: &[u8]) -> Salvaged {
        let mut found = Salvaged { name: Some(name), ..Salvaged::default() };
        let mut reader = LogReader::manifest(bytes);
        let mut group = Vec::new();
        while let Some(record) = reader.next_record() {
            let edit = match record {
                Ok(record) => {
                    let offset = record.offset;
                    let edit = VersionEdit::decode(record.bytes);
                    edit.map_err(|e| format!("offset {offset}: version edit: {}", e.what))
                }
                Err(damage) => {
                    Err(format!("offset {}: {}", damage.corruption.offset, damage.corruption.what))
                }
            };
            let offset = reader.position();
            // Without a copy of the replay, because a replay that rejected an edit is not used
            // further.
            let added = edit.and_then(|edit| {
                found.replay.add(edit.clone()).map_err(|e| format!("before offset {offset}: {e}"))?;
                Ok(edit)
            });
            match added {
                Ok(edit) => {
                    found.records += 1;
                    let complete = edit.remaining_in_atomic_group.unwrap_or(0) == 0;
                    group.push(edit);
                    if complete {
                        group.drain(..).for_each(|edit| found.note(&edit));
                    }
                }
                Err(what) => {
                    found.doubt = Some(what);
                    break;
                }
            }
        }
        if found.records == 0 {
            found.doubt.get_or_insert_with(|| "the MANIFEST has no record".to_owned());
        }
        found
    }

    fn note(&mut self, edit: &VersionEdit) {
        let id = edit.column_family;
        if edit.column_family_drop {
            self.families.remove(&id);
            self.dropped.insert(id);
            let named = &self.named;
            self.live.retain(|number| named.get(number).is_none_or(|(of, _)| *of != id));
        } else {
            let family = self.families.entry(id).or_default();
            if let Some(name) = &edit.column_family_add {
                family.name.clone_from(name);
            } else if id == ColumnFamilyId::DEFAULT {
                family.name = DEFAULT.to_owned();
            }
            family.comparator = edit.comparator.clone().or(family.comparator.take());
            family.log_number = family.log_number.max(edit.log_number.unwrap_or_default());
            let low = edit.full_history_ts_low.clone();
            family.full_history_ts_low = low.or(family.full_history_ts_low.take());
        }
        for (_, number) in &edit.deleted_files {
            self.live.remove(number);
        }
        for (_, file) in &edit.new_files {
            self.live.insert(file.number);
            self.named.insert(file.number, (id, file.clone()));
        }
        self.last_seq = self.last_seq.max(edit.last_sequence.unwrap_or_default());
        self.next_file = self.next_file.max(edit.next_file_number.unwrap_or_default());
        let keep = edit.min_log_number_to_keep.unwrap_or_default();
        self.min_log_number_to_keep = self.min_log_number_to_keep.max(keep);
        let largest = edit.max_column_family.unwrap_or_default().max(id);
        self.max_column_family = self.max_column_family.max(largest);
        self.db_id = edit.db_id.clone().or(self.db_id.take());
    }
}
