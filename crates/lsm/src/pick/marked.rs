//! Files that are due for compaction independently of their level's size.
//!
//! In: a [`Tree`]. Out: for each reason the free files, with their levels, upper levels first:
//! marked by users or by a collector, bottommost with old entries that no snapshot needs, older
//! than the time to live, not rewritten for too long, or referring to blob files that are mostly
//! garbage.

use super::tree::Tree;
use crate::file::FileMetadata;
use karst_format::options::choice::CompactionStyle;
use std::cmp::Ordering;
use std::sync::Arc;

/// Level and index of a file.
pub(crate) type Place = (usize, usize);

fn places<'t>(
    tree: &'t Tree<'_>,
    levels: std::ops::Range<usize>,
    due: impl Fn(&Arc<FileMetadata>) -> bool + 't,
) -> Vec<Place> {
    let all = levels
        .flat_map(|level| tree.files(level).iter().enumerate().map(move |(at, file)| (level, at, file)));
    all.filter(|(_, _, file)| !tree.taken(file) && due(file)).map(|(level, at, _)| (level, at)).collect()
}

/// Returns the files marked for compaction, except for those of the deepest level, which have no
/// level to move to.
pub(crate) fn by_users(tree: &Tree<'_>) -> Vec<Place> {
    let deepest = (1..=tree.last_output_level()).rev().find(|&level| !tree.files(level).is_empty());
    places(tree, 0..deepest.unwrap_or(1), |file| file.is_marked())
}

/// Returns files with nothing older below them, all of whose entries every snapshot sees: rewriting
/// them drops old versions and deletions, and makes their sequence numbers 0.
pub(crate) fn bottommost(tree: &Tree<'_>) -> Vec<Place> {
    // Entries with timestamps keep their sequence numbers as long as the history that they belong
    // to can be read, and merge operands always do. A file of such entries would be rewritten
    // without end.
    //
    // Compat: RocksDB rewrites the files whose latest timestamp is before `full_history_ts_low`.
    if tree.options().allow_ingest_behind || tree.comparator().timestamp_size() > 0 {
        return Vec::new();
    }
    let delay = u64::from(tree.options().family.bottommost_file_compaction_delay);
    let newest_creation = tree.context.now_s.saturating_sub(delay);
    let settled = |file: &FileMetadata| {
        delay == 0
            || file.creation_time_s == 0
            || (newest_creation > 0 && file.creation_time_s <= newest_creation)
    };
    let due = |file: &Arc<FileMetadata>| {
        file.largest_seq.0 != 0 && file.largest_seq < tree.context.oldest_snapshot && settled(file)
    };
    let mut found = places(tree, 0..tree.level_count, due);
    found.retain(|&(level, at)| {
        let file = &tree.files(level)[at];
        let l0_index = (level == 0).then_some(at);
        !tree.older_data_may_exist(level, l0_index, file.smallest_user_key(), file.largest_user_key())
    });
    found
}

/// Leveled: returns the files whose data is older than `ttl`, except for those of the last level.
pub(crate) fn expired(tree: &Tree<'_>) -> Vec<Place> {
    let ttl = tree.options().family.ttl;
    if ttl == 0 || tree.options().family.compaction_style != CompactionStyle::Level {
        return Vec::new();
    }
    let limit = tree.context.now_s.saturating_sub(ttl);
    places(tree, 0..tree.last_output_level(), |file| {
        file.oldest_ancestor_time_s != 0 && file.oldest_ancestor_time_s < limit
    })
}

/// Returns the files that were written longer ago than `periodic_compaction_seconds`. Files that
/// record no time are left alone.
///
/// Compat: RocksDB uses the file system's time instead; databases that old are rewritten for other
/// reasons first.
pub(crate) fn periodic(tree: &Tree<'_>) -> Vec<Place> {
    let seconds = tree.options().family.periodic_compaction_seconds;
    if seconds == 0 || seconds > tree.context.now_s {
        return Vec::new();
    }
    // Looks ahead, because files that become due before the next time of little use are rewritten
    // during the current one.
    let ahead = tree.options().offpeak.map_or(0, |offpeak| offpeak.ahead_s(tree.context.now_s));
    let limit = tree.context.now_s - seconds + ahead;
    places(tree, 0..tree.last_output_level() + 1, |file| {
        let written =
            if file.creation_time_s != 0 { file.creation_time_s } else { file.oldest_ancestor_time_s };
        written != 0 && written < limit
    })
}

/// Returns the tables that refer to the oldest blob file, if the blob files that compactions
/// collect from are garbage for at least `blob_garbage_collection_force_threshold`.
pub(crate) fn blob_garbage(tree: &Tree<'_>) -> Vec<Place> {
    let family = &tree.options().family;
    let (age_cutoff, threshold) =
        (family.blob_garbage_collection_age_cutoff, family.blob_garbage_collection_force_threshold);
    let blob_files = tree.context.version.blob_files();
    let collected = (age_cutoff * blob_files.len() as f64) as usize;
    if !family.enable_blob_garbage_collection
        || collected == 0
        || threshold.partial_cmp(&1.0) != Some(Ordering::Less)
    {
        return Vec::new();
    }
    let (mut bytes, mut garbage) = (0u64, 0u64);
    for blob in blob_files.values().take(collected) {
        bytes = bytes.saturating_add(blob.file.total_bytes);
        garbage = garbage.saturating_add(blob.garbage_bytes);
    }
    let Some(oldest) = blob_files.values().next() else { return Vec::new() };
    if (garbage as f64) < threshold * bytes as f64 {
        return Vec::new();
    }
    places(tree, 0..tree.last_output_level() + 1, |file| oldest.linked_tables.contains(&file.number))
}
