//! Version builder: applies version edits to a version and builds the next one.
//!
//! In: a base version (or none, when a MANIFEST is replayed from its start) and edits in their
//! order. Out: the next version, or [`Inconsistent`] that names the file in contradiction.
//!
//! Invariants:
//! - Edits are checked when they are applied: no file is added twice, or deleted from a level that
//!   does not have it; blob garbage fits its file.
//! - The tree is checked when it is built (see [`TreeOptions::check_consistency`]): boundaries in
//!   order, no overlap below L0, no overlap among L0 files of one epoch, no linked blob file that
//!   is all garbage.
//! - Levels that no edit touched are shared with the base; so is a file that only moved to another
//!   level, with the value that the engine attached to it.
#[cfg(test)]
mod tests;

use crate::blob::BlobFileMetadata;
use crate::error::Inconsistent;
use crate::file::FileMetadata;
use crate::level::LevelFiles;
use crate::version::Version;
use karst_format::comparator::Comparator;
use karst_format::ids::{FileNumber, Level};
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage, NewFile, VersionEdit};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The options of a column family that affect its tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// The order of user keys.
    pub comparator: Comparator,
    /// `num_levels`. A tree with files on deeper levels gets as many levels as it needs.
    pub level_count: usize,
    /// `allow_ingest_behind`: the smallest epoch number is reserved for files that are ingested
    /// below all others.
    pub allow_ingest_behind: bool,
    /// `force_consistency_checks`: reject a tree that violates an invariant.
    pub check_consistency: bool,
}

impl Default for TreeOptions {
    /// Returns RocksDB's defaults: bytewise, seven levels, checked.
    fn default() -> TreeOptions {
        TreeOptions {
            comparator: Comparator::Bytewise,
            level_count: 7,
            allow_ingest_behind: false,
            check_consistency: true,
        }
    }
}

/// Collects edits and builds the resulting version.
#[derive(Clone, Debug, Default)]
pub struct VersionBuilder {
    base: Option<Arc<Version>>,
    /// Every file of the tree after the edits so far.
    files: HashMap<FileNumber, (Level, Arc<FileMetadata>)>,
    /// Files that an edit deleted; a file that is added again unchanged has only moved.
    deleted: HashMap<FileNumber, Arc<FileMetadata>>,
    touched: BTreeSet<Level>,
    blob_files: BTreeMap<FileNumber, Arc<BlobFileMetadata>>,
    compact_cursors: BTreeMap<Level, Box<[u8]>>,
}

impl VersionBuilder {
    /// Returns a builder that starts from an empty tree.
    pub fn new() -> VersionBuilder {
        VersionBuilder::default()
    }

    /// Returns a builder that starts from `base`.
    pub fn from_base(base: Arc<Version>) -> VersionBuilder {
        let files = base.all_files().map(|(level, file)| (file.number, (level, Arc::clone(file)))).collect();
        VersionBuilder {
            files,
            blob_files: base.blob_files.clone(),
            compact_cursors: base.compact_cursors.clone(),
            base: Some(base),
            ..VersionBuilder::default()
        }
    }

    /// Applies one edit. The caller selects edits of the right column family.
    ///
    /// # Errors
    /// [`Inconsistent`] when the edit does not fit the tree so far. The builder must then be
    /// discarded.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), Inconsistent> {
        for addition in &edit.blob_file_additions {
            self.add_blob_file(addition)?;
        }
        for garbage in &edit.blob_file_garbages {
            self.add_garbage(garbage)?;
        }
        // Deletions are applied first, because a file that moves is deleted from one level and
        // added to another.
        // Compat: RocksDB reads the deletions into a set, so a repeated one counts once.
        for (level, number) in edit.deleted_files.iter().collect::<BTreeSet<_>>() {
            self.delete_file(*level, *number)?;
        }
        for (level, file) in &edit.new_files {
            self.add_file(*level, file)?;
        }
        for (level, key) in &edit.compact_cursors {
            self.compact_cursors.insert(*level, key.clone());
        }
        Ok(())
    }

    fn add_blob_file(&mut self, addition: &BlobFileAddition) -> Result<(), Inconsistent> {
        let number = addition.number;
        let file = Arc::new(BlobFileMetadata::new(addition.clone()));
        match self.blob_files.insert(number, file) {
            None => Ok(()),
            Some(_) => Err(Inconsistent::new(format!("blob file {number} is added a second time"))),
        }
    }

    fn add_garbage(&mut self, garbage: &BlobFileGarbage) -> Result<(), Inconsistent> {
        let number = garbage.number;
        let Some(file) = self.blob_files.get_mut(&number) else {
            return Err(Inconsistent::new(format!(
                "garbage of blob file {number}, which is not in the tree"
            )));
        };
        let fits = |sum: Option<u64>, total: u64| sum.filter(|sum| *sum <= total);
        let count = fits(file.garbage_count.checked_add(garbage.count), file.file.total_count);
        let bytes = fits(file.garbage_bytes.checked_add(garbage.bytes), file.file.total_bytes);
        let (Some(count), Some(bytes)) = (count, bytes) else {
            return Err(Inconsistent::new(format!("blob file {number} gets more garbage than it has blobs")));
        };
        let file = Arc::make_mut(file);
        (file.garbage_count, file.garbage_bytes) = (count, bytes);
        Ok(())
    }

    fn delete_file(&mut self, level: Level, number: FileNumber) -> Result<(), Inconsistent> {
        match self.files.get(&number) {
            Some((current, _)) if *current == level => {}
            Some((current, _)) => {
                return Err(Inconsistent::new(format!(
                    "table file {number} is deleted from {level} but is on {current}"
                )));
            }
            None => {
                return Err(Inconsistent::new(format!(
                    "table file {number} is deleted from {level} but is not in the tree"
                )));
            }
        }
        if let Some((level, file)) = self.files.remove(&number) {
            self.touched.insert(level);
            self.deleted.insert(number, file);
        }
        Ok(())
    }

    fn add_file(&mut self, level: Level, info: &NewFile) -> Result<(), Inconsistent> {
        let number = info.number;
        if let Some((current, _)) = self.files.get(&number) {
            return Err(Inconsistent::new(format!(
                "table file {number} is added to {level} but is on {current} already"
            )));
        }
        let file = match self.deleted.remove(&number) {
            Some(file) if **file == *info => file,
            Some(file) => Arc::new(FileMetadata::of_same_file(info.clone(), &file)),
            None => Arc::new(FileMetadata::new(info.clone())),
        };
        self.touched.insert(level);
        self.files.insert(number, (level, file));
        Ok(())
    }

    /// Returns true if tables may still refer to this blob file.
    pub(crate) fn needs_blob_file(&self, number: FileNumber) -> bool {
        let oldest = self.files.values().filter_map(|(_, file)| file.oldest_blob_file).min();
        let has_values = |file: &Arc<BlobFileMetadata>| file.garbage_count < file.file.total_count;
        oldest.is_some_and(|oldest| number >= oldest) && self.blob_files.get(&number).is_some_and(has_values)
    }

    /// Builds the version.
    ///
    /// # Errors
    /// [`Inconsistent`] when the tree violates an invariant and `options.check_consistency` is set.
    pub fn build(mut self, options: &TreeOptions) -> Result<Version, Inconsistent> {
        let comparator = &options.comparator;
        // A database last written before epoch numbers existed gets them now, from its sequence
        // numbers, so that all later code can rely on them.
        let epochs_missing = self.files.values().any(|(_, file)| file.epoch_number == 0);
        let deepest = self.files.values().map(|(level, _)| level.index() + 1).max().unwrap_or(0);
        let mut version = Version::empty(comparator.clone(), options.level_count.max(deepest));
        let mut by_level: Vec<Vec<Arc<FileMetadata>>> = vec![Vec::new(); version.levels.len()];
        let base = self.base.take().filter(|_| !epochs_missing);
        let kept = |level: Level| {
            base.as_ref().filter(|_| !self.touched.contains(&level))?.levels.get(level.index()).cloned()
        };
        for (level, file) in self.files.values() {
            if kept(*level).is_none() {
                by_level[level.index()].push(Arc::clone(file));
            }
        }
        for (index, files) in by_level.iter_mut().enumerate() {
            match index {
                0 if epochs_missing => files.sort_by_key(|file| newest_first_by_sequence(file)),
                0 => files.sort_by_key(|file| (Reverse(file.epoch_number), newest_first_by_sequence(file))),
                _ => files.sort_by(|a, b| by_smallest_key(comparator, a, b)),
            }
        }
        if epochs_missing {
            number_epochs(&mut by_level, options.allow_ingest_behind);
        }
        for (index, files) in by_level.into_iter().enumerate() {
            let level = Level(index as u8);
            if options.check_consistency {
                check_level(level, &files, comparator)?;
            }
            version.levels[index] =
                kept(level).unwrap_or_else(|| Arc::new(LevelFiles::new(level, files, comparator)));
        }
        version.blob_files = self.live_blob_files(options.check_consistency)?;
        version.compact_cursors = self.compact_cursors;
        version.compact_cursors.retain(|level, _| level.index() < version.levels.len());
        Ok(version)
    }

    /// Links blob files to the tables that refer to them, and omits those that no table can refer
    /// to: files older than the oldest one that a table names, and files that are all garbage.
    fn live_blob_files(
        &self,
        check_consistency: bool,
    ) -> Result<BTreeMap<FileNumber, Arc<BlobFileMetadata>>, Inconsistent> {
        let mut links: BTreeMap<FileNumber, BTreeSet<FileNumber>> = BTreeMap::new();
        for (_, file) in self.files.values() {
            // Compat: a table may name a blob file that is not in the tree, because RocksDB's older
            // BlobDB keeps its blob files outside of the MANIFEST.
            if let Some(blob_file) =
                file.oldest_blob_file.filter(|number| self.blob_files.contains_key(number))
            {
                links.entry(blob_file).or_default().insert(file.number);
            }
        }
        let mut live = BTreeMap::new();
        let Some(oldest) = links.keys().next().copied() else { return Ok(live) };
        for (number, file) in self.blob_files.range(oldest..) {
            let linked_tables = links.remove(number).unwrap_or_default();
            let mut file = Arc::clone(file);
            if file.linked_tables != linked_tables {
                Arc::make_mut(&mut file).linked_tables = linked_tables;
            }
            if file.is_obsolete() {
                continue;
            }
            if check_consistency && file.garbage_count >= file.file.total_count {
                return Err(Inconsistent::new(format!(
                    "blob file {number} is all garbage, but table file {} refers to it",
                    file.linked_tables.first().copied().unwrap_or_default()
                )));
            }
            live.insert(*number, file);
        }
        Ok(live)
    }
}

type BySequence = (Reverse<u64>, Reverse<u64>, Reverse<FileNumber>);

fn newest_first_by_sequence(file: &FileMetadata) -> BySequence {
    (Reverse(file.largest_seq.0), Reverse(file.smallest_seq.0), Reverse(file.number))
}

fn by_smallest_key(comparator: &Comparator, a: &FileMetadata, b: &FileMetadata) -> Ordering {
    comparator.compare_internal(&a.smallest, &b.smallest).then_with(|| a.number.cmp(&b.number))
}

/// Assigns new epoch numbers to all files: one epoch for each level below L0, deepest first, then
/// one for each L0 file, oldest first.
fn number_epochs(by_level: &mut [Vec<Arc<FileMetadata>>], allow_ingest_behind: bool) {
    let mut next = if allow_ingest_behind { 2 } else { 1 };
    let renumber = |file: &mut Arc<FileMetadata>, epoch: u64| {
        let mut info = NewFile::clone(file);
        info.epoch_number = epoch;
        *file = Arc::new(FileMetadata::of_same_file(info, file));
    };
    let Some((newest, deeper)) = by_level.split_first_mut() else { return };
    for files in deeper.iter_mut().rev().filter(|files| !files.is_empty()) {
        for file in files {
            renumber(file, next);
        }
        next += 1;
    }
    for file in newest.iter_mut().rev() {
        renumber(file, next);
        next += 1;
    }
}

fn check_level(
    level: Level,
    files: &[Arc<FileMetadata>],
    comparator: &Comparator,
) -> Result<(), Inconsistent> {
    for file in files {
        // Files of one key are skipped, so that a user's comparator is called only if there is an
        // order to check.
        let is_one = file.smallest == file.largest;
        if !is_one && comparator.compare_internal(&file.smallest, &file.largest) == Ordering::Greater {
            return Err(Inconsistent::new(format!(
                "table file {} on {level} has a smallest key {} above its largest {}",
                file.number,
                shown(&file.smallest),
                shown(&file.largest)
            )));
        }
    }
    for pair in files.windows(2) {
        let [a, b] = pair else { continue };
        let apart = match level.index() {
            0 if a.epoch_number != b.epoch_number => true,
            0 => {
                comparator.compare_internal(&a.smallest, &b.largest) == Ordering::Greater
                    || comparator.compare_internal(&a.largest, &b.smallest) == Ordering::Less
            }
            _ => comparator.compare_internal(&a.largest, &b.smallest) == Ordering::Less,
        };
        if !apart {
            return Err(Inconsistent::new(format!(
                "table files {} [{}, {}] and {} [{}, {}] overlap on {level}",
                a.number,
                shown(&a.smallest),
                shown(&a.largest),
                b.number,
                shown(&b.smallest),
                shown(&b.largest)
            )));
        }
    }
    Ok(())
}

/// Formats a key for a message: its first bytes, escaped.
fn shown(key: &[u8]) -> String {
    const MOST: usize = 64;
    let more = if key.len() > MOST { "..." } else { "" };
    format!("{}{more}", key[..key.len().min(MOST)].escape_ascii())
}
