//! Output cutter: chooses the boundaries between a compaction's output files.
//!
//! In: a [`Compaction`], then each entry's internal key in order, with the size of the open output
//! file. Out: true if that file ends before the entry.
//!
//! A file ends when it is full. It ends earlier if that saves work later: at a boundary of the next
//! level's files once it is half full (so that compactions of the two files take whole files of
//! each other's level), before its overlap with the next level makes its own compaction too large,
//! around a file of the next level that it has no key in, and at the boundaries of input files of
//! the output level that are near their time to live, so that young data does not age with them.
//!
//! Invariants: outputs on L0 are not cut; no output is cut between two entries of one user key, so
//! that the files of one compaction do not share a user key.
//!
//! Callers: the compaction job; one cutter for each subcompaction.

use crate::file::FileMetadata;
use crate::pick::{Compaction, boundary_order};
use karst_format::comparator::Comparator;
use karst_format::options::choice::CompactionStyle;
use std::cmp::Ordering;
use std::sync::Arc;

/// The open output file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOutput {
    /// Approximate bytes written to it.
    pub file_bytes: u64,
    /// Approximate bytes of index, filter and all else behind the data. Used only if
    /// [`Compaction::size_includes_tail`].
    pub tail_bytes: u64,
}

/// Decides where output files end.
#[derive(Clone, Debug)]
pub struct OutputCutter {
    limits: Limits,
    grandparents: Grandparents,
    ttl_cuts: Ranges,
    /// The round-robin cursor of the output level, until the keys have passed it.
    split_key: Option<Box<[u8]>>,
    /// True if a cut is due and was postponed because it lay between entries of one user key.
    owes_cut: bool,
}

/// The sizes that limit output files.
#[derive(Clone, Copy, Debug)]
struct Limits {
    to_l0: bool,
    leveled: bool,
    target_file_size: u64,
    max_output_file_size: u64,
    max_compaction_bytes: u64,
    size_includes_tail: bool,
}

/// Position of the current key among the files of the next level.
#[derive(Clone, Debug)]
struct Grandparents {
    files: Vec<Arc<FileMetadata>>,
    comparator: Comparator,
    /// The file that contains the last key, or the next file if no file contains it.
    index: usize,
    in_gap: bool,
    seen_key: bool,
    /// Bytes of the next level's files that the open output overlaps.
    overlapped_bytes: u64,
    /// Number of boundaries that the open output has passed.
    boundaries: u64,
}

impl Grandparents {
    fn new(compaction: &Compaction) -> Grandparents {
        Grandparents {
            files: compaction.grandparents.clone(),
            comparator: compaction.version.comparator().clone(),
            index: 0,
            in_gap: true,
            seen_key: false,
            overlapped_bytes: 0,
            boundaries: 0,
        }
    }

    /// Advances to `key`. Returns the number of boundaries between the previous key and `key`.
    fn advance(&mut self, key: &[u8]) -> u64 {
        let mut crossed = 0;
        while let Some(file) = self.files.get(self.index) {
            if self.in_gap {
                if boundary_order(&self.comparator, key, &file.smallest).is_lt() {
                    break;
                }
                if self.seen_key {
                    crossed += 1;
                    self.overlapped_bytes = self.overlapped_bytes.saturating_add(file.size_bytes);
                }
                self.in_gap = false;
            } else {
                if !self.is_behind(key, file) {
                    break;
                }
                crossed += u64::from(self.seen_key);
                self.in_gap = true;
                self.index += 1;
            }
        }
        self.boundaries += crossed;
        if !self.seen_key {
            self.overlapped_bytes = self.overlap_of(key);
        }
        self.seen_key = true;
        crossed
    }

    /// Returns true if a boundary lies between the previous key and `key`.
    fn crosses(&self, key: &[u8]) -> bool {
        let Some(file) = self.files.get(self.index) else { return false };
        match self.in_gap {
            true => boundary_order(&self.comparator, key, &file.smallest).is_ge(),
            false => self.is_behind(key, file),
        }
    }

    /// Returns true if `key` is behind `file`, the one at `index`, or is also in the next file.
    fn is_behind(&self, key: &[u8], file: &FileMetadata) -> bool {
        match boundary_order(&self.comparator, key, &file.largest) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => self
                .files
                .get(self.index + 1)
                .is_some_and(|next| boundary_order(&self.comparator, key, &next.smallest).is_ge()),
        }
    }

    /// Returns the bytes of the files that contain `key`, the last key passed.
    fn overlap_of(&self, key: &[u8]) -> u64 {
        if self.in_gap {
            return 0;
        }
        let mut bytes = self.files.get(self.index).map_or(0, |file| file.size_bytes);
        for file in self.files[..self.index.min(self.files.len())].iter().rev() {
            if boundary_order(&self.comparator, key, &file.largest).is_ne() {
                break;
            }
            bytes = bytes.saturating_add(file.size_bytes);
        }
        bytes
    }

    /// Starts a new output with `key`.
    fn restart(&mut self, key: &[u8]) {
        self.boundaries = 0;
        self.overlapped_bytes = self.overlap_of(key);
    }
}

/// Files at both of whose ends outputs are cut.
#[derive(Clone, Debug)]
struct Ranges {
    files: Vec<Arc<FileMetadata>>,
    comparator: Comparator,
    next: usize,
    inside: bool,
}

impl Ranges {
    /// Advances to `key`. Returns true if an end of a range lies between the previous key and
    /// `key`.
    fn advance(&mut self, key: &[u8]) -> bool {
        let Some(file) = self.files.get(self.next) else { return false };
        if self.inside {
            if self.comparator.compare_internal(key, &file.largest).is_le() {
                return false;
            }
            self.next += 1;
            self.inside = false;
            return true;
        }
        while let Some(file) = self.files.get(self.next) {
            if self.comparator.compare_internal(key, &file.smallest).is_lt() {
                return false;
            }
            if self.comparator.compare_internal(key, &file.largest).is_le() {
                self.inside = true;
                return true;
            }
            self.next += 1;
        }
        false
    }
}

impl OutputCutter {
    /// Returns a cutter for the compaction, or for a part of it.
    pub fn new(compaction: &Compaction) -> OutputCutter {
        let comparator = compaction.version.comparator().clone();
        OutputCutter {
            limits: Limits {
                to_l0: compaction.output_level.0 == 0,
                leveled: compaction.style == CompactionStyle::Level,
                target_file_size: compaction.target_file_size,
                max_output_file_size: compaction.max_output_file_size,
                max_compaction_bytes: compaction.max_compaction_bytes,
                size_includes_tail: compaction.size_includes_tail,
            },
            grandparents: Grandparents::new(compaction),
            ttl_cuts: Ranges { files: compaction.ttl_cuts.clone(), comparator, next: 0, inside: false },
            split_key: compaction.output_split_key.clone(),
            owes_cut: false,
        }
    }

    /// Returns true if the open output ends before the entry with this internal key. Must be called
    /// for every entry that is written, in order, even if no output is open (the result is then
    /// false). `new_user_key` is true if the previous entry had another user key. After true the
    /// caller starts a new output with the entry. Does not allocate.
    pub fn ends_before(&mut self, key: &[u8], new_user_key: bool, open: Option<OpenOutput>) -> bool {
        if self.limits.to_l0 {
            return false;
        }
        let overlapped_before = self.grandparents.overlapped_bytes;
        let crossed = self.grandparents.advance(key);
        let at_ttl_cut = self.ttl_cuts.advance(key);
        let at_split = self.passes_split_key(key);
        self.owes_cut = open.is_some() && (self.owes_cut || at_ttl_cut || at_split);
        let Some(open) = open.filter(|_| new_user_key) else { return false };
        let ends = self.owes_cut
            || self.is_full(open)
            || (crossed > 0 && self.ends_at_boundary(open.file_bytes, crossed, overlapped_before));
        if ends {
            self.has_ended_before(key);
        }
        ends
    }

    /// Records that the caller ended the output before the entry with this internal key, the last
    /// one passed to [`OutputCutter::ends_before`], although the result was false.
    pub fn has_ended_before(&mut self, key: &[u8]) {
        self.grandparents.restart(key);
        self.owes_cut = false;
    }

    /// Returns true if the result of [`OutputCutter::ends_before`] for this key, the next one, may
    /// depend on the size of the open output, given that it is no larger than `at_most`.
    pub fn goes_by_size(&self, key: &[u8], at_most: OpenOutput) -> bool {
        !self.limits.to_l0 && (self.is_full(at_most) || self.grandparents.crosses(key))
    }

    fn is_full(&self, open: OpenOutput) -> bool {
        let tail = if self.limits.size_includes_tail { open.tail_bytes } else { 0 };
        open.file_bytes.saturating_add(tail) >= self.limits.max_output_file_size
    }

    fn passes_split_key(&mut self, key: &[u8]) -> bool {
        let Some(split) = self.split_key.as_deref() else { return false };
        let passes = self.grandparents.comparator.compare_internal(key, split).is_ge();
        if passes {
            self.split_key = None;
        }
        passes
    }

    /// Returns true if the output ends at a boundary of the next level's files directly before the
    /// key.
    fn ends_at_boundary(&self, file_bytes: u64, crossed: u64, overlapped_before: u64) -> bool {
        let limits = &self.limits;
        let grandparents = &self.grandparents;
        if grandparents.overlapped_bytes.saturating_add(file_bytes) > limits.max_compaction_bytes {
            return true;
        }
        if !limits.leveled {
            return false;
        }
        // A whole file of the next level lies between the two keys and is large enough to be kept
        // out of later compactions.
        let skips_file = crossed >= if grandparents.in_gap { 2 } else { 3 };
        let skipped_bytes = grandparents.overlapped_bytes.saturating_sub(overlapped_before);
        if skips_file && skipped_bytes > limits.target_file_size / 8 {
            return true;
        }
        // The more boundaries were passed, the fuller the file must be, because more boundaries
        // will follow before it is full.
        let percent = 50 + (grandparents.boundaries * 5).min(40);
        file_bytes >= limits.target_file_size.div_ceil(100).saturating_mul(percent)
    }
}

#[cfg(test)]
mod tests;
