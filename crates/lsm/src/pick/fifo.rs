//! FIFO compaction: keeps the newest data, like a cache. Only small files of L0 are merged, if the
//! options enable it; when the files have too many bytes or are too old, the oldest are deleted.
//!
//! In: a [`Tree`]. Out: files to delete, or files of L0 to merge.
//!
//! A tree that was leveled before has deeper levels; they are emptied first, by key, since the age
//! order of their files is unknown.

use super::assemble::Draft;
use super::compaction::{Compaction, CompactionReason, CompactionWork};
use super::intra_l0;
use super::tree::{Selection, Tree};
use crate::file::FileMetadata;
use karst_format::options::nested::FifoOptions;

/// Size at which merged files of L0 are cut, in bytes.
const MERGED_FILE_BYTES: u64 = 16 << 20;

fn fifo<'a>(tree: &Tree<'a>) -> &'a FifoOptions {
    &tree.options().family.compaction_options_fifo
}

/// Returns the limit in bytes: of tables, or of tables and blob files.
fn limit_bytes(options: &FifoOptions) -> u64 {
    if options.max_data_files_size > 0 { options.max_data_files_size } else { options.max_table_files_size }
}

fn blob_bytes(tree: &Tree<'_>) -> u64 {
    let blobs = tree.context.version.blob_files().values();
    blobs.fold(0, |sum, blob| sum.saturating_add(blob.file_bytes()))
}

/// Returns the score: above 1 if files should be deleted or merged.
pub(crate) fn score(tree: &Tree<'_>) -> f64 {
    let options = fifo(tree);
    let free: Vec<_> = tree.files(0).iter().filter(|file| !tree.taken(file)).collect();
    let mut bytes = tree.compensated_level_bytes(0, true);
    if options.max_data_files_size > 0 {
        bytes = bytes.saturating_add(blob_bytes(tree));
    }
    let mut score = bytes as f64 / limit_bytes(options).max(1) as f64;
    let family = &tree.options().family;
    if score < 1.0 && options.allow_compaction {
        score = score.max(free.len() as f64 / f64::from(family.level0_file_num_compaction_trigger));
    }
    if score < 1.0 && free.iter().any(|file| expired(tree, file)) {
        score = 1.0;
    }
    if score < 1.0 && tree.deepest.is_some_and(|deepest| deepest > 0) && too_large(tree) {
        // L0's size does not include the files below L0.
        score = 1.0;
    }
    score
}

fn too_large(tree: &Tree<'_>) -> bool {
    let (bytes, limit) = effective_bytes(tree);
    bytes > limit
}

/// Returns the bytes of all files that count, and their limit.
fn effective_bytes(tree: &Tree<'_>) -> (u64, u64) {
    let options = fifo(tree);
    let tables = tree.context.version.size_bytes();
    let blobs = if options.max_data_files_size > 0 { blob_bytes(tree) } else { 0 };
    (tables.saturating_add(blobs), limit_bytes(options))
}

fn expired(tree: &Tree<'_>, file: &FileMetadata) -> bool {
    let ttl = tree.options().family.ttl;
    let written = file.newest_key_time_s();
    ttl > 0 && written != 0 && tree.context.now_s > ttl && written < tree.context.now_s - ttl
}

pub(crate) fn pick(tree: &Tree<'_>) -> Option<Compaction> {
    expired_files(tree).or_else(|| files_too_many_bytes(tree)).or_else(|| small_files(tree))
}

fn delete(tree: &Tree<'_>, files: &Selection, reason: CompactionReason) -> Compaction {
    let mut draft = Draft::new(tree, vec![tree.input(files)], files.level, reason);
    draft.work = Some(CompactionWork::Delete);
    draft.score = score(tree);
    draft.assemble(tree)
}

/// Deletes the oldest files, as long as they are expired; `None` if there would still be too many
/// bytes, because the deletion by size then deletes more.
fn expired_files(tree: &Tree<'_>) -> Option<Compaction> {
    if tree.context.running.holds_l0() {
        return None;
    }
    let files = tree.files(0);
    let first = files.iter().rposition(|file| !expired(tree, file)).map_or(0, |index| index + 1);
    if first == files.len() {
        return None;
    }
    let gone = Selection::of(0, first..files.len());
    let (bytes, limit) = effective_bytes(tree);
    let tables = tree.context.version.size_bytes().max(1);
    // Each table is assumed to hold its share of the blobs.
    let left = 1.0 - tree.selected_bytes(&gone) as f64 / tables as f64;
    if left * bytes as f64 > limit as f64 {
        return None;
    }
    Some(delete(tree, &gone, CompactionReason::FifoTtl))
}

/// Deletes the oldest files until the rest is small enough; on a level below L0 those with the
/// smallest keys.
fn files_too_many_bytes(tree: &Tree<'_>) -> Option<Compaction> {
    let (mut bytes, limit) = effective_bytes(tree);
    if bytes <= limit || tree.context.running.holds_l0() {
        return None;
    }
    let level = tree.deepest?;
    let files = tree.files(level);
    let with_blobs = fifo(tree).max_data_files_size > 0;
    let share = if with_blobs { (bytes / files.len() as u64).max(1) } else { 0 };
    let oldest_first: Vec<usize> =
        if level == 0 { (0..files.len()).rev().collect() } else { (0..files.len()).collect() };
    let mut gone = Vec::new();
    for index in oldest_first {
        let file = &files[index];
        if tree.taken(file) {
            continue;
        }
        bytes = bytes.saturating_sub(if with_blobs { share } else { file.size_bytes });
        gone.push(index);
        if bytes <= limit {
            break;
        }
    }
    if gone.is_empty() {
        return None;
    }
    gone.sort_unstable();
    Some(delete(tree, &Selection::of(level, gone), CompactionReason::FifoMaxSize))
}

/// Merges small files of L0 into one. Files much larger than a memtable were merged before and are
/// left alone, so that they can still expire.
fn small_files(tree: &Tree<'_>) -> Option<Compaction> {
    let options = fifo(tree);
    let family = &tree.options().family;
    if !options.allow_compaction || tree.context.running.holds_l0() {
        return None;
    }
    let fewest = usize::try_from(family.level0_file_num_compaction_trigger).ok()?;
    let most = super::options::scaled(family.write_buffer_size as u64, 1.1);
    let files = intra_l0::by_cost(tree, fewest.max(2), most)?;
    let mut draft = Draft::new(tree, vec![tree.input(&files)], 0, CompactionReason::FifoReduceNumFiles);
    draft.target_file_size = MERGED_FILE_BYTES;
    draft.compression = Some(family.compression);
    draft.score = score(tree);
    Some(draft.assemble(tree))
}
