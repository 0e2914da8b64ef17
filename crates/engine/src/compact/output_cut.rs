//! Where the outputs of a compaction are cut.
//!
//! In: the compaction, and each key with the current file's size. Out: whether to cut before it: at the target size, before the key at which the
//! output level's round robin goes on, and before a file would overlap too much of the next level.

use std::sync::Arc;

use karst_format::comparator::Comparator;
use karst_format::key;
use karst_lsm::FileMetadata;
use karst_lsm::pick::Compaction;

use crate::table::writer::CutPolicy;

/// See the module.
#[derive(Debug)]
pub(crate) struct OutputCut {
    comparator: Comparator,
    max_file_bytes: u64,
    max_overlap_bytes: u64,
    grandparents: Vec<Arc<FileMetadata>>,
    /// The first file of the next level that does not end before the last key.
    at: usize,
    /// Bytes of the next level's files that the current file has passed.
    passed_bytes: u64,
    split: Option<Box<[u8]>>,
}

impl OutputCut {
    pub(crate) fn new(compaction: &Compaction) -> Self {
        OutputCut {
            comparator: compaction.version.comparator().clone(),
            max_file_bytes: compaction.max_output_file_size,
            max_overlap_bytes: compaction.max_compaction_bytes,
            grandparents: compaction.grandparents.clone(),
            at: 0,
            passed_bytes: 0,
            split: compaction.output_split_key.clone(),
        }
    }
}

impl CutPolicy for OutputCut {
    fn cut_before(&mut self, internal_key: &[u8], file_bytes: u64) -> bool {
        let user_key = key::user_key(internal_key);
        while let Some(file) = self.grandparents.get(self.at)
            && self.comparator.compare_user(file.largest_user_key(), user_key).is_lt()
        {
            self.passed_bytes += file.size_bytes;
            self.at += 1;
        }
        let mut cut =
            file_bytes >= self.max_file_bytes || self.passed_bytes + file_bytes > self.max_overlap_bytes;
        if let Some(split) = &self.split
            && self.comparator.compare_internal(internal_key, split).is_ge()
        {
            self.split = None;
            cut = true;
        }
        if cut {
            self.passed_bytes = 0;
        }
        cut
    }
}
