//! What a point lookup costs in reads, estimated from the shape of the tree.
//!
//! The model: keys are equally likely to be asked for. A lookup asks the filter of each file that
//! may hold the key, from new to old, and reads a data block where the filter lets it pass, until
//! it finds the key. A filter of `b` bits a key lets a key pass that is not there with probability
//! `0.6185^b` (a Bloom filter's; Ribbon filters are as good with fewer bits).

use super::tree::{Facts, Family, Level};

/// Expected numbers of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// Index and filters in memory: data blocks, and blobs where values are in blob files.
    pub(super) warm: f64,
    /// Nothing in memory but the open files: filter and index, or their partitions, as well.
    pub(super) cold: f64,
}

/// The costs of a key that is there and of one that is not.
pub(super) fn lookup(family: &Family) -> (Cost, Cost) {
    let total: u64 = family.levels.iter().map(Level::entries).sum();
    let blob = if family.blobs.is_empty() { 0.0 } else { 1.0 };
    let (mut hit, mut miss) = (Cost { warm: 0.0, cold: 0.0 }, Cost { warm: 0.0, cold: 0.0 });
    // The chance that the lookup comes as far as this file.
    let mut reaches = 1.0;
    for level in &family.levels {
        // On L0 files overlap and each is asked; below, at most one file is.
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
            // Found here, or let pass in vain on the way to an older file.
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

/// The chance that the filter lets a key pass that is not in the file.
fn passes_filter(facts: &Facts) -> f64 {
    facts.filter.as_ref().map_or(1.0, |filter| 0.6185f64.powf(filter.bits_per_key))
}

/// Reads to ask the filter: the block, and its top level if it is partitioned.
fn metadata_reads(facts: &Facts) -> f64 {
    facts.filter.as_ref().map_or(0.0, |filter| if filter.partitioned { 2.0 } else { 1.0 })
}

/// Reads to find the data block in the index.
fn index_reads(facts: &Facts) -> f64 {
    if facts.index_partitioned { 2.0 } else { 1.0 }
}
