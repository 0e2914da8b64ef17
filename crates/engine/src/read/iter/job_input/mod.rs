//! The input of a flush or a compaction: every entry of the given memtables and files, in the order
//! of internal keys.
//!
//! In: memtables, the picked files by level, the job's part of the key range. Out: each entry as it
//! is stored, older versions, deletions and entries under range tombstones included; the caller
//! decides which to drop. Range tombstones are not among the entries: the caller takes them from
//! `MemTable::range_tombstones` and `Table::range_tombstones` (`TableCache::open` returns an open
//! table), and clips them to their file's boundaries.
//!
//! Files are read ahead with several large requests in flight per sorted run, the next file of a
//! run before the current one ends. The block cache is read but by default not filled.
//!
//! Invariant: nothing blocks; a move is plain code while the next entry is in memory, and a future
//! for any executor if it has to be read.
//!
//! Called by: flush and compaction jobs.

#[cfg(test)]
pub(super) mod tests;

use crate::read::iter::index_position::To;
use crate::read::iter::merging::Merging;
use crate::read::iter::readahead::ReadaheadLimits;
use crate::read::iter::{Bounds, PrefixFilter};
use karst_base::error::Result;
use karst_base::options::ReadOptions;
use karst_base::stats::HistogramKind;
use karst_format::key;
use karst_lsm::pick::CompactionInput;
use karst_storage::memtable::MemTable;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Step};
use karst_storage::table::fetch::Fetches;
use karst_storage::table::needs::{Needs, Stop};
#[cfg(test)]
use karst_storage::value::Value;
use std::sync::Arc;

/// Read options of a job's input.
#[derive(Clone, Debug)]
pub(crate) struct InputOptions {
    /// Maximum number of bytes to read ahead per sorted run, reached only if less does not keep up;
    /// 0 reads block by block. RocksDB's `compaction_readahead_size`.
    pub(crate) readahead_bytes: u64,
    /// Verify the checksum of every block.
    pub(crate) verify_checksums: bool,
    /// First user key of the job, or None for the start.
    pub(crate) lower: Option<Vec<u8>>,
    /// First user key behind the job, or None for the end.
    pub(crate) upper: Option<Vec<u8>>,
}

/// All entries of a job's input. A new one has no position: call [`start`](Self::start) first.
pub(crate) struct JobInput {
    tables: Arc<TableCache>,
    options: ReadOptions,
    bounds: Bounds,
    merging: Merging,
    needs: Needs,
    fetches: Fetches,
    valid: bool,
}

pub(super) struct Move<'a> {
    pub(super) merging: &'a mut Merging,
    pub(super) needs: &'a mut Needs,
    pub(super) bounds: &'a Bounds,
}

impl Step for Move<'_> {
    type Out = ();

    #[inline]
    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<(), Stop> {
        self.merging.settle(ctx, self.needs, &PrefixFilter::default(), self.bounds)
    }

    fn needs(&mut self) -> &mut Needs {
        self.needs
    }
}

impl JobInput {
    /// Creates the input from `memtables` and `inputs`. Only entries within the options' bounds are
    /// read from the files; a run's files are given in the level's order.
    pub(crate) fn new(
        tables: Arc<TableCache>,
        memtables: &[Arc<MemTable>],
        inputs: &[CompactionInput],
        input_options: InputOptions,
    ) -> Self {
        let InputOptions { readahead_bytes, verify_checksums, lower, upper } = input_options;
        let readahead = match readahead_bytes {
            0 => ReadaheadLimits::off(),
            bytes => ReadaheadLimits::for_job(bytes),
        };
        let options = ReadOptions {
            fill_cache: false,
            verify_checksums,
            adaptive_readahead: true,
            total_order_seek: true,
            ignore_range_deletions: true,
            ..ReadOptions::default()
        };
        let merging = Merging::of_inputs(&tables.configuration.comparator, memtables, inputs, readahead);
        let fetches = Fetches::new(&options, HistogramKind::FileReadCompactionMicros);
        let bounds = Bounds { lower, upper };
        JobInput { tables, options, bounds, merging, needs: Needs::new(), fetches, valid: false }
    }

    /// Sets if blocks read are put into the block cache.
    pub(crate) fn filling_cache(mut self, fill_cache: bool) -> Self {
        self.options.fill_cache = fill_cache;
        self
    }

    /// Moves to the last entry. No move is possible from there.
    pub(crate) async fn start_at_last(&mut self) -> Result<()> {
        self.merging.begin(To::Last, &[], &mut self.needs);
        self.settle().await
    }

    /// Moves to the first entry.
    pub(crate) async fn start(&mut self) -> Result<()> {
        match &self.bounds.lower {
            None => self.merging.begin(To::First, &[], &mut self.needs),
            Some(lower) => {
                self.merging.begin(To::AtOrAfter, &key::before_all_of(lower), &mut self.needs);
            }
        }
        self.settle().await
    }

    /// Returns true if the input is at an entry.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    /// The entry's internal key, and its value as it is stored. The input must be valid.
    #[inline]
    pub(crate) fn entry(&self) -> (&[u8], &[u8]) {
        self.merging.entry()
    }

    /// The value with a pin on its memory beyond the next move. The input must be valid.
    #[cfg(test)]
    pub(crate) fn pinned_value(&self) -> Value {
        self.merging.pin_value()
    }

    /// Moves to the next entry. Returns true if the entry, or the end, was reached already;
    /// otherwise [`arrive`](Self::arrive) has to be awaited. The input must be valid, and is not
    /// after an error.
    ///
    /// Not a future, because most entries are in memory, and each would create one.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        debug_assert!(self.valid);
        self.valid = false;
        let is_there = self.merging.advance_at_once()?;
        if is_there {
            self.valid = self.is_within_bounds();
        }
        Ok(is_there)
    }

    /// Completes the move that [`advance`](Self::advance) could not complete.
    pub(crate) async fn arrive(&mut self) -> Result<()> {
        self.settle().await
    }

    /// Returns true if the current entry is before the upper bound.
    #[inline]
    fn is_within_bounds(&self) -> bool {
        self.bounds.upper.is_none()
            || !self
                .bounds
                .upper_excludes(&self.tables.configuration.comparator, key::user_key(self.merging.key()))
    }

    async fn settle(&mut self) -> Result<()> {
        self.valid = false;
        let JobInput { tables, options, bounds, merging, needs, fetches, .. } = self;
        let ctx = ReadCtx::of_job(tables, options);
        let mut step = Move { merging, needs, bounds };
        match step.step(&ctx) {
            Ok(()) if !step.needs.has_needs() => {}
            Ok(()) => drive::start_async(ctx, step.needs, fetches).await,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Need) => drive::drive(ctx, &mut step, fetches).await?,
        }
        self.valid = self.merging.valid() && self.is_within_bounds();
        Ok(())
    }
}

impl std::fmt::Debug for JobInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobInput").field("valid", &self.valid).finish_non_exhaustive()
    }
}
