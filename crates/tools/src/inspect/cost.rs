//! Cost of a point lookup in reads, estimated from the shape of the tree.
//!
//! The model: all keys are equally likely. A lookup checks the filter of each file that may hold
//! the key, from new to old, and reads a data block if the filter passes it, until it finds the
//! key. A filter of `b` bits per key passes an absent key with probability `0.6185^b` (that of a
//! Bloom filter; Ribbon filters reach it with fewer bits).

use super::tree::{Facts, Family, Level};

/// Expected numbers of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// With index and filters in memory: data blocks, and blobs if values are in blob files.
    pub(super) warm: f64,
    /// With nothing in memory but the open files: filter and index, or their partitions, as well.
    pub(super) cold: f64,
}

/// Returns the costs of an existing key and of an absent one.
pub(super) fn lookup(family: &Family) -> (Cost, Cost) {
    let total: u64 = family.levels.iter().map(Level::entries).sum();
    let blob = if family.blobs.is_empty() { 0.0 } else { 1.0 };
    let (mut hit, mut miss) = (Cost { warm: 0.0, cold: 0.0 }, Cost { warm: 0.0, cold: 0.0 });
    // Probability that the lookup reaches this file.
    let mut reaches = 1.0;
    for level in &family.levels {
        // On L0 files overlap and each is checked; on the other levels at most one file is.
        let groups: Vec<Vec<&Facts>> = if level.number == 0 {
            level.facts().map(|facts| vec![facts]).collect()
        } else {
            vec![level.facts().collect()]
        };
        for files in groups.iter().filter(|files| !files.is_empty()) {
            let entries: u64 = files.iter().map(|facts| facts.entries).sum();
            let here = if total > 0 { entries as f64 / total as f64 } else { 0.0 };
            let passes = average(files, passes_filter);
            let metadata = average(files, metadata_reads);
            let index = average(files, index_reads);
            miss.warm += passes;
            miss.cold += metadata + passes * (index + 1.0);
            // The key is found here, or the filter passes it in vain on the way to an older file.
            let in_vain = (reaches - here).max(0.0);
            hit.warm += here * (1.0 + blob) + in_vain * passes;
            hit.cold += reaches * metadata + here * (index + 1.0 + blob) + in_vain * passes * (index + 1.0);
            reaches = in_vain;
        }
    }
    (hit, miss)
}

fn average(files: &[&Facts], of: impl Fn(&Facts) -> f64) -> f64 {
    files.iter().map(|facts| of(facts)).sum::<f64>() / files.len() as f64
}

/// Returns the probability that the filter passes a key that is not in the file.
fn passes_filter(facts: &Facts) -> f64 {
    facts.filter.as_ref().map_or(1.0, |filter| 0.6185f64.powf(filter.bits_per_key))
}

/// Returns the reads for the filter: its block, and its top level if it is partitioned.
fn metadata_reads(facts: &Facts) -> f64 {
    facts.filter.as_ref().map_or(0.0, |filter| if filter.partitioned { 2.0 } else { 1.0 })
}

/// Returns the reads to find the data block in the index.
fn index_reads(facts: &Facts) -> f64 {
    if facts.index_partitioned { 2.0 } else { 1.0 }
}
