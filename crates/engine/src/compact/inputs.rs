//! Facts about input files that a job needs before it reads entries: range tombstones, the expected
//! number of entries, and the keys at which to cut the work.
//!
//! In: the inputs of a compaction. Out: all tables open ([`OPENED_TOGETHER`] at a time), their
//! tombstones in one set of fragments.

use karst_base::error::Result;
use karst_format::comparator::Comparator;
use karst_format::ids::{FileNumber, Level};
use karst_format::properties::TableProperties;
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use karst_storage::table::Table;
use karst_storage::table::cache::TableCache;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Maximum number of tables opened concurrently.
const OPENED_TOGETHER: usize = 32;

/// Facts about the inputs of a job.
#[derive(Debug)]
pub(crate) struct InputFacts {
    /// All range tombstones, clipped to their files; `None` without any.
    pub(crate) tombstones: Option<Arc<Fragments>>,
    /// Entries that are not range tombstones.
    pub(crate) records: u64,
    /// The tables' properties, by file number.
    pub(crate) properties: Vec<(FileNumber, Arc<TableProperties>)>,
}

type Opening = Pin<Box<dyn Future<Output = Result<Arc<Table>>> + Send>>;

/// Opens all input tables and collects their facts.
pub(crate) async fn look_at(tables: &Arc<TableCache>, inputs: &[CompactionInput]) -> Result<InputFacts> {
    let comparator = &tables.configuration.comparator;
    // Collected, because with a closure held over an await the compiler cannot tell that the job is
    // Send.
    let files: Vec<(Level, &Arc<FileMetadata>)> =
        inputs.iter().flat_map(|input| input.files.iter().map(move |file| (input.level, file))).collect();
    let mut files = files.into_iter();
    let mut running: Vec<(&Arc<FileMetadata>, Opening)> = Vec::new();
    let mut tombstones = Vec::new();
    let (mut records, mut all_properties) = (0, Vec::new());
    loop {
        while running.len() < OPENED_TOGETHER
            && let Some((level, file)) = files.next()
        {
            let (tables, owned) = (tables.clone(), file.clone());
            let opening = async move { tables.open(&owned, u32::from(level.0)).await };
            running.push((file, Box::pin(opening)));
        }
        if running.is_empty() {
            break;
        }
        let (index, opened) = poll_fn(|cx| {
            for (index, (_, opening)) in running.iter_mut().enumerate() {
                if let Poll::Ready(result) = opening.as_mut().poll(cx) {
                    return Poll::Ready((index, result));
                }
            }
            Poll::Pending
        })
        .await;
        let (file, _) = running.swap_remove(index);
        let table = opened?;
        let properties = table.properties();
        records += properties.num_entries.saturating_sub(properties.num_range_deletions);
        all_properties.push((file.number, properties.clone()));
        if let Some(fragments) = table.range_tombstones() {
            clip(comparator, file, fragments, &mut tombstones);
        }
    }
    let tombstones = (!tombstones.is_empty()).then(|| Arc::new(Fragments::build(comparator, tombstones)));
    Ok(InputFacts { tombstones, records, properties: all_properties })
}

/// Adds a file's tombstones, clipped to its boundaries.
///
/// The largest key ends them even if it is an entry's: only a file that shares its last user key
/// with the next file of its level has tombstones that reach further, and then the next file is an
/// input too and holds the rest.
fn clip(comparator: &Comparator, file: &FileMetadata, fragments: &Fragments, into: &mut Vec<RangeTombstone>) {
    let (lower, upper) = (file.smallest_user_key(), file.largest_user_key());
    for i in fragments.overlapping(comparator, Some(lower), Some(upper)) {
        let (mut start, mut end) = (fragments.start(i), fragments.end(i));
        if comparator.compare_user(start, lower).is_lt() {
            start = lower;
        }
        if comparator.compare_user(end, upper).is_gt() {
            end = upper;
        }
        into.extend(fragments.seqs(i).iter().map(|seq| RangeTombstone::new(start, end, *seq)));
    }
}

/// Returns the user keys at which a compaction can be cut into at most `parts` of similar size.
pub(crate) fn boundaries(comparator: &Comparator, inputs: &[CompactionInput], parts: u32) -> Vec<Box<[u8]>> {
    let mut starts: Vec<(&[u8], u64)> = inputs
        .iter()
        .flat_map(|input| input.files.iter().map(|file| (file.smallest_user_key(), file.size_bytes)))
        .collect();
    starts.sort_by(|a, b| comparator.compare_user(a.0, b.0));
    let total: u64 = starts.iter().map(|(_, size)| size).sum();
    let mut cuts: Vec<Box<[u8]>> = Vec::new();
    let (mut before, mut next) = (0u64, 1u64);
    for (start, size) in starts {
        let due = next < u64::from(parts)
            && u128::from(before) * u128::from(parts) >= u128::from(total) * u128::from(next);
        if before > 0 && due && cuts.last().is_none_or(|last| comparator.compare_user(last, start).is_lt()) {
            // All timestamps of a key belong to one part.
            cuts.push(comparator.with_greatest_timestamp(comparator.bare(start)).into());
            while next < u64::from(parts)
                && u128::from(before) * u128::from(parts) >= u128::from(total) * u128::from(next)
            {
                next += 1;
            }
        }
        before += size;
    }
    // A cut at the smallest key would make an empty part.
    let smallest = inputs.iter().flat_map(|input| input.files.iter().map(|file| file.smallest_user_key()));
    let smallest = smallest.min_by(|a, b| comparator.compare_user(a, b));
    cuts.retain(|cut| smallest.is_none_or(|smallest| comparator.compare_user(smallest, cut).is_lt()));
    cuts
}
