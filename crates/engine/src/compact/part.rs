//! One part of a compaction: the entries of a range of keys, from the input files through the
//! filter into new files.
//!
//! In: the state shared by the whole job ([`Work`]), and the range. Out: the part's files and
//! counts. Invariant: a part that fails leaves its files to their guards.

use super::blob_garbage::BlobGarbage;
use super::entry_filter::{EntryCounts, EntryFilter, EntrySink, FilterOptions, MayHold, Pushed, UserFilter};
use super::inputs::InputFacts;
use super::progress::{Progress, Reported};
use super::stripes::Stripes;
use super::tombstones::left_over;
use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::compaction_filter::{FilterContext, TableCreationReason};
use karst_base::error::Result;
use karst_base::options::FamilyConfig;
use karst_base::sst_partitioner::{PartitionerRequest, SstPartitioner, SstPartitionerContext};
use karst_format::ids::FileNumber;
use karst_format::key::{SeqNo, TRAILER_BYTES, ValueType, user_key};
use karst_lsm::pick::{Compaction, CompactionInput, CompactionReason};
use karst_lsm::{OpenOutput, OutputCutter};
use karst_storage::blob::BlobNeed;
use karst_storage::block::CachedBlock;
use karst_storage::column_family::{Family, History};
use karst_storage::table::cache::TableCache;
use karst_storage::table::writer::{CutPolicy, Outputs, RunFiles, RunWriter};
use std::sync::Arc;

/// State that all parts of a compaction share.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) family: Arc<Family>,
    pub(crate) compaction: Arc<Compaction>,
    /// Table cache that reads `inputs`, which may be separate metadata of the compaction's files.
    pub(crate) tables: Arc<TableCache>,
    pub(crate) inputs: Vec<CompactionInput>,
    pub(crate) facts: InputFacts,
    pub(crate) stripes: Stripes,
    pub(crate) outputs: Outputs,
    pub(crate) progress: Arc<Progress>,
    pub(crate) readahead_bytes: u64,
    pub(crate) verify_checksums: bool,
    pub(crate) enforce_single_deletes: bool,
    /// Files may be ingested behind all others, so no entry is known to be the oldest.
    pub(crate) ingest_behind: bool,
    pub(crate) blob_cutoff: FileNumber,
}

impl Work {
    /// Returns the outputs of a part, with the ages of the inputs that it overlaps.
    fn outputs_of(&self, (lower, upper): (Option<&[u8]>, Option<&[u8]>)) -> Outputs {
        let comparator = self.compaction.version.comparator();
        let files = self.inputs.iter().flat_map(|input| &input.files).filter(|file| {
            !lower.is_some_and(|lower| comparator.compare_user(file.largest_user_key(), lower).is_lt())
                && !upper
                    .is_some_and(|upper| comparator.compare_user(file.smallest_user_key(), upper).is_ge())
        });
        let oldest = files.clone().map(|file| file.oldest_ancestor_time_s).filter(|time| *time != 0).min();
        let newest = files.map(|file| file.newest_key_time_s()).max();
        Outputs {
            oldest_ancestor_time_s: oldest.unwrap_or(0),
            newest_key_time_s: newest.unwrap_or(0),
            ..self.outputs.clone()
        }
    }

    /// Returns the user's filter for one part: the family's own, or one that its factory creates.
    fn user_filter(&self) -> Result<Option<UserFilter>> {
        let (config, compaction) = (&self.family.config, &self.compaction);
        let level = u32::from(compaction.start_level().0);
        let context = FilterContext {
            is_full_compaction: compaction.full,
            is_manual_compaction: compaction.reason == CompactionReason::ManualCompaction,
            input_start_level: Some(level),
            column_family_id: config.id.0,
            reason: TableCreationReason::Compaction,
        };
        config.filter_for(&context).map(|filter| UserFilter::new(filter, level)).transpose()
    }
}

/// Files and counts of a completed part.
#[derive(Debug, Default)]
pub(crate) struct PartResult {
    pub(crate) files: RunFiles,
    pub(crate) counts: EntryCounts,
    pub(crate) garbage: BlobGarbage,
    /// Bytes written to tables, and to blob files.
    pub(crate) written_bytes: (u64, u64),
}

/// A range of user keys; the end is excluded.
pub(crate) type PartRange = (Option<Box<[u8]>>, Option<Box<[u8]>>);

/// Cuts outputs by the tree's rules and by the user's partitioner.
struct ByCutter {
    cutter: OutputCutter,
    partitions: Option<Partitions>,
}

/// A partitioner, with the last user key that was passed to it.
struct Partitions {
    partitioner: Box<dyn SstPartitioner>,
    last_key: Vec<u8>,
}

impl ByCutter {
    fn new(work: &Work) -> ByCutter {
        let compaction = &*work.compaction;
        let partitions = if compaction.output_level.0 == 0 {
            None
        } else {
            partitioner(&work.family.config, compaction)
                .map(|partitioner| Partitions { partitioner, last_key: Vec::new() })
        };
        ByCutter { cutter: OutputCutter::new(compaction), partitions }
    }
}

impl Partitions {
    fn begins_with(&mut self, user_key: &[u8], new_user_key: bool, open: Option<OpenOutput>) -> bool {
        if !new_user_key {
            return false;
        }
        let begins = open.is_some_and(|open| {
            let request = PartitionerRequest::new(&self.last_key, user_key, open.file_bytes);
            self.partitioner.should_partition(&request)
        });
        self.last_key.clear();
        self.last_key.extend_from_slice(user_key);
        begins
    }
}

/// Creates the user's partitioner for `compaction`, if a factory is set.
pub(super) fn partitioner(config: &FamilyConfig, compaction: &Compaction) -> Option<Box<dyn SstPartitioner>> {
    let factory = config.sst_partitioner_factory.as_ref()?;
    factory.create(&SstPartitionerContext::new(
        (compaction.full, compaction.is_manual()),
        u32::from(compaction.output_level.0),
        (&compaction.smallest_user_key, &compaction.largest_user_key),
    ))
}

impl CutPolicy for ByCutter {
    #[inline]
    fn cut_before(&mut self, internal_key: &[u8], new_user_key: bool, open: Option<OpenOutput>) -> bool {
        let ends = self.cutter.ends_before(internal_key, new_user_key, open);
        let Some(partitions) = &mut self.partitions else { return ends };
        let partitioned = partitions.begins_with(user_key(internal_key), new_user_key, open);
        if partitioned && !ends {
            self.cutter.has_ended_before(internal_key);
        }
        ends || partitioned
    }

    fn needs_size(&self, internal_key: &[u8], at_most: OpenOutput) -> bool {
        self.cutter.goes_by_size(internal_key, at_most)
    }
}

struct RunSink {
    run: RunWriter<ByCutter>,
    garbage: BlobGarbage,
    has_blobs: bool,
}

impl EntrySink for RunSink {
    #[inline]
    fn emit(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        if self.has_blobs {
            let kind = internal_key[internal_key.len() - TRAILER_BYTES];
            if kind == ValueType::BlobIndex as u8 || kind == ValueType::WideColumnEntity as u8 {
                self.garbage.goes(internal_key, kind, value)?;
            }
        }
        self.run.add(internal_key, value)
    }
}

/// Number of entries between two checks for cancellation.
const LOOK_EVERY: u32 = 4096;

/// Runs the part of the work that lies in `range`.
pub(crate) async fn run(work: &Work, range: &PartRange) -> Result<PartResult> {
    let compaction = &*work.compaction;
    let (lower, upper) = (range.0.as_deref(), range.1.as_deref());
    let bottommost = compaction.bottommost && !work.ingest_behind;
    let mut counts = EntryCounts::default();
    let tombstones = work.facts.tombstones.as_ref().map(|fragments| {
        let mut older = compaction.older_data();
        let may_overlap =
            |from: &[u8], to: &[u8]| work.ingest_behind || (!bottommost && older.may_overlap(from, to));
        let left = left_over(compaction.version.comparator(), fragments, &work.stripes, may_overlap);
        counts.range_dels_dropped += left.dropped_obsolete;
        left.fragments
    });
    let has_blobs = !compaction.version.blob_files().is_empty();
    let policy = ByCutter::new(work);
    let mut sink = RunSink {
        run: RunWriter::new(work.outputs_of((lower, upper)), policy, tombstones, (lower, upper))?,
        garbage: BlobGarbage::default(),
        has_blobs,
    };
    // Searched in the picked version, because a file that enters a lower level later comes from a
    // compaction without these inputs, and so has no older entries of their keys.
    let mut older = compaction.older_data();
    let may_hold = (!work.ingest_behind)
        .then(|| Box::new(move |user_key: &[u8]| older.may_hold(user_key)) as MayHold<'_>);
    let mut filter = EntryFilter::new(FilterOptions {
        config: work.family.settings(),
        stripes: work.stripes.clone(),
        tombstones: work.facts.tombstones.clone(),
        bottommost,
        may_hold,
        enforce_single_deletes: work.enforce_single_deletes,
        write_conflict_snapshot: SeqNo::MAX,
        blob_cutoff: work.blob_cutoff,
        history_low: work.family.history().and_then(History::full_history_ts_low),
        trim_ts: work.family.history().and_then(History::trim_ts),
        user: work.user_filter()?,
    });
    let options = InputOptions {
        readahead_bytes: work.readahead_bytes,
        verify_checksums: work.verify_checksums,
        lower: lower.map(<[u8]>::to_vec),
        upper: upper.map(<[u8]>::to_vec),
    };
    let mut input = JobInput::new(work.tables.clone(), &[], &work.inputs, options);
    let mut reported = Reported::default();
    let mut until_look = LOOK_EVERY;
    input.start().await?;
    while input.valid() {
        let (internal_key, value) = input.entry();
        if has_blobs {
            let kind = internal_key[internal_key.len() - TRAILER_BYTES];
            if kind == ValueType::BlobIndex as u8 || kind == ValueType::WideColumnEntity as u8 {
                sink.garbage.comes(internal_key, kind, value)?;
            }
        }
        let mut pushed = filter.push(internal_key, value, &mut sink)?;
        while pushed == Pushed::NeedsBlob {
            pushed = supply_blob(work, &mut filter, &mut sink).await?;
        }
        until_look -= 1;
        if sink.run.needs_room() || until_look == 0 {
            until_look = LOOK_EVERY;
            report(work, &mut reported, filter.counts(), &sink);
            work.progress.check()?;
            sink.run.make_room().await?;
        }
        if !input.advance()? {
            input.arrive().await?;
        }
    }
    filter.finish(&mut sink)?;
    report(work, &mut reported, filter.counts(), &sink);
    counts.add(filter.counts());
    drop(filter);
    let (files, written_bytes) = sink.run.finish().await?;
    Ok(PartResult { files, counts, garbage: sink.garbage, written_bytes })
}

fn report(work: &Work, reported: &mut Reported, counts: &EntryCounts, sink: &RunSink) {
    let (tables, blobs) = sink.run.written_bytes();
    reported.report(
        &work.progress,
        counts.input_records,
        counts.input_key_bytes + counts.input_value_bytes,
        counts.output_records,
        tables + blobs,
    );
}

/// Reads the blob value that the filter waits for.
async fn supply_blob(work: &Work, filter: &mut EntryFilter<'_>, sink: &mut RunSink) -> Result<Pushed> {
    let (user_key, reference) = filter.wanted();
    let need = BlobNeed::new(&work.family.tables.blobs, &work.compaction.version, user_key, reference)?;
    let block = need.fetch(true, false).await?;
    match &*block {
        CachedBlock::Blob(value) => filter.supply(value, sink),
        _ => unreachable!("a blob was asked for"),
    }
}
