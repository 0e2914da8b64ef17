//! Iterators: walk a column family in key order, in both directions.
//!
//! | file | holds |
//! |---|---|
//! | this one | [`DbIterator`], the user's iterator: synchronous and asynchronous calls over common steps |
//! | `visible` | from internal entries to visible keys: versions, deletions, merges, bounds, prefixes |
//! | `merging` | memtables, L0 files and levels merged; collects range tombstones |
//! | `level_cursor`, `table_cursor`, `index_position` | one level, one table, one index |
//! | `block_feed`, `blob_feed`, `run`, `readahead` | blocks and blob values read ahead of a scan; the size of requests, and the readahead window |
//! | `internal` | every entry, hidden ones too, for tools |
//! | `job_input` | the entries of chosen memtables and files, for flush and compaction |
//! | `stream`, `range` | entries as a `Stream` or a Rust iterator; those of a range of keys, from both ends |
//!
//! Everything below [`DbIterator`] is plain code that stops where something has to be fetched and
//! is called again, as lookups do (see `table::needs`).

mod blob_feed;
mod block_feed;
mod index_position;
pub(crate) mod internal;
pub(crate) mod job_input;
mod level_cursor;
mod merging;
mod range;
pub(crate) mod readahead;
mod run;
mod stream;
mod table_cursor;
mod visible;

use crate::read::{Gate, View};
use karst_base::error::{Error, Result};
use karst_base::life::Life;
use karst_base::options::{ReadOptions, ReadTier};
use karst_base::perf_context::{self, PerfLevel, PerfMetric, Timer};
use karst_base::snapshot::ReadAt;
use karst_base::stats::{HistogramKind, Ticker};
use karst_format::comparator::Comparator;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;
use karst_format::slice_transform::PrefixExtractor;
use karst_format::trace::Query;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::Table;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Step};
use karst_storage::table::fetch::Fetches;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;
use merging::Merging;
use readahead::{MOST_BYTES, ReadaheadLimits};
use std::sync::Arc;
use std::time::Duration;
use visible::Visible;

pub use internal::InternalIterator;
pub use range::{KeyBounds, Range};
pub use stream::{Direction, Entries, EntryStream, Streamed};

/// The bounds of an iteration, as stored user keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Lower bound, included.
    lower: Option<Vec<u8>>,
    /// Upper bound, excluded.
    upper: Option<Vec<u8>>,
}

impl Bounds {
    /// Returns true if `user_key` is at or behind the upper bound.
    #[inline]
    fn upper_excludes(&self, comparator: &Comparator, user_key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| comparator.compare_user(user_key, upper).is_ge())
    }

    /// Returns true if `user_key` is before the lower bound.
    #[inline]
    fn lower_excludes(&self, comparator: &Comparator, user_key: &[u8]) -> bool {
        self.lower.as_deref().is_some_and(|lower| comparator.compare_user(user_key, lower).is_lt())
    }
}

/// Prefix extractor with which a seek consults prefix filters, or None if it does not consult them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixFilter(Option<PrefixExtractor>);

/// Consults no prefix filter.
static NO_PREFIX_FILTER: PrefixFilter = PrefixFilter(None);

impl PrefixFilter {
    /// Compat: as in RocksDB, prefix filters are consulted unless `total_order_seek` is set; keys
    /// that such an iterator returns beyond the prefix of its seek are then undefined. With
    /// `prefix_seek_opt_in_only` they are consulted only if `prefix_same_as_start` is set. With
    /// `auto_prefix_mode` they are consulted only where they cannot change the result.
    fn new(options: &ReadOptions, superversion: &SuperVersion, opt_in_only: bool) -> Self {
        let total_order = options.total_order_seek || options.auto_prefix_mode || opt_in_only;
        let asks = options.prefix_same_as_start || !total_order;
        PrefixFilter(superversion.config().prefix_extractor.clone().filter(|_| asks))
    }

    fn may_match(
        &self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        internal_key: &[u8],
    ) -> Result<bool, Stop> {
        match &self.0 {
            Some(extractor) => {
                let told = table.prefix_may_match(ctx, needs, internal_key, extractor)?;
                told.iter().for_each(|may_match| table.count_prefix_filter(ctx, *may_match));
                Ok(told.unwrap_or(true))
            }
            None => Ok(true),
        }
    }
}

/// An iterator over the keys of a column family, as of its creation (or of the snapshot in its
/// options).
///
/// A new iterator has no position: seek first. While [`valid`](Self::valid), [`key`](Self::key) and
/// [`value`](Self::value) are the current entry; they are borrowed until the next move. After an
/// error the iterator is not valid, and [`status`](Self::status) repeats the error until the next
/// seek.
///
/// Every move has two forms. The plain one may block the calling thread while it reads; no other
/// thread takes part. The `_async` one is a `Send` future for any executor; dropping it leaves the
/// iterator without a position, so that it needs a seek, and nothing else is lost.
///
/// Once its database is closed, every move fails with `Closed`, regardless of the target. The
/// current entry, and values that were [pinned](Self::pinned_value), stay readable.
///
/// The iterator pins the memtables and files it reads from; drop it soon, or bring a long-lived one
/// up to date with [`Db::refresh`](crate::Db::refresh).
pub struct DbIterator {
    scan: Scan,
    needs: Needs,
    fetches: Fetches,
    status: Result<()>,
    /// Life of the database that the iterator reads.
    life: Arc<Life>,
    /// Barrier that the first seek waits for.
    gate: Option<Box<dyn Gate>>,
    /// Start time of the seek in progress, if times are collected.
    seek_began: Option<Duration>,
    /// Timer of the move in progress, and the metric its time counts for, if the thread takes
    /// times.
    timed: Option<(Timer, PerfMetric)>,
    /// The move in progress, or the last one.
    moving: Moving,
    /// True once the iterator was sent to a position.
    was_sent: bool,
}

/// Kind of a move; selects the tickers for moves and for moves that reached an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moving {
    Seek,
    Next,
    Prev,
}

impl Moving {
    fn tickers(self) -> [Ticker; 2] {
        match self {
            Moving::Seek => [Ticker::NumberDbSeek, Ticker::NumberDbSeekFound],
            Moving::Next => [Ticker::NumberDbNext, Ticker::NumberDbNextFound],
            Moving::Prev => [Ticker::NumberDbPrev, Ticker::NumberDbPrevFound],
        }
    }
}

/// The data that the steps of an iterator work on.
struct Scan {
    tables: Arc<TableCache>,
    superversion: Arc<SuperVersion>,
    at: ReadAt,
    options: ReadOptions,
    bounds: Bounds,
    prefix: PrefixFilter,
    visible: Visible,
}

/// One move of an iterator.
struct Move<'a> {
    view: View<'a>,
    bounds: &'a Bounds,
    prefix: &'a PrefixFilter,
    visible: &'a mut Visible,
    needs: &'a mut Needs,
}

impl Step for Move<'_> {
    type Out = ();

    #[inline]
    fn step(&mut self, _: &ReadCtx<'_>) -> Result<(), Stop> {
        self.visible.go_on(&self.view, self.needs, self.prefix, self.bounds)
    }

    fn needs(&mut self) -> &mut Needs {
        self.needs
    }
}

impl DbIterator {
    /// Creates an iterator over `superversion` as of `at`. It can be read once `gate` is passed,
    /// and only while the database has a `life`.
    pub(crate) fn new(
        tables: Arc<TableCache>,
        superversion: Arc<SuperVersion>,
        at: ReadAt,
        options: ReadOptions,
        (life, gate): (Arc<Life>, Option<Box<dyn Gate>>),
    ) -> Result<Self> {
        if options.read_tier == ReadTier::Memtable {
            return Err(Error::not_supported("an iterator with read_tier Memtable".to_owned()));
        }
        let order = superversion.version().comparator();
        let stored = |bound: &Option<Vec<u8>>| bound.as_deref().map(|key| order.with_greatest_timestamp(key));
        let bounds = Bounds {
            lower: stored(&options.iterate_lower_bound),
            upper: stored(&options.iterate_upper_bound),
        };
        let visible = visible(&superversion, &at, &bounds, &options);
        let prefix = PrefixFilter::new(&options, &superversion, tables.shared.prefix_seek_opt_in_only);
        let fetches = Fetches::new(&options, HistogramKind::FileReadDbIteratorMicros);
        tables.shared.stats.tick(Ticker::NoIteratorCreated);
        Ok(DbIterator {
            scan: Scan { tables, superversion, at: at.kept(), options, bounds, prefix, visible },
            needs: Needs::new(),
            fetches,
            status: Ok(()),
            life,
            gate,
            seek_began: None,
            timed: None,
            moving: Moving::Seek,
            was_sent: false,
        })
    }

    /// Blocks the calling thread until the gate of the first seek is passed.
    ///
    /// # Errors
    /// Those of [`check_open`](Self::check_open).
    #[inline]
    fn pass_gate(&mut self) -> Result<()> {
        self.check_open()?;
        if let Some(gate) = self.gate.take() {
            gate.wait();
            self.scan.begin_anew();
        }
        Ok(())
    }

    async fn pass_gate_async(&mut self) -> Result<()> {
        self.check_open()?;
        if let Some(gate) = &mut self.gate {
            gate.await;
            self.gate = None;
            self.scan.begin_anew();
        }
        Ok(())
    }

    /// Fails a move once the database is closed, and then leaves the iterator without a position.
    /// Every move calls this first.
    ///
    /// # Errors
    /// `Closed`.
    #[doc(hidden)]
    #[inline]
    pub fn check_open(&mut self) -> Result<()> {
        match self.life.check() {
            Ok(()) => Ok(()),
            Err(ended) => self.refuse(ended),
        }
    }

    #[cold]
    fn refuse(&mut self, ended: Error) -> Result<()> {
        self.gate = None;
        self.finish(Err(ended))
    }

    /// The tables it reads from, which belong to one column family of one database.
    pub(crate) fn tables(&self) -> &Arc<TableCache> {
        &self.scan.tables
    }

    /// The read options.
    pub(crate) fn options(&self) -> &ReadOptions {
        &self.scan.options
    }

    /// Creates another iterator over this state with these options and without a position.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    fn twin(&self) -> Result<DbIterator> {
        let Scan { tables, superversion, at, options, .. } = &self.scan;
        // No gate, because an iterator that was sent to a position has passed it.
        let lives = (self.life.clone(), None);
        DbIterator::new(tables.clone(), superversion.clone(), at.again(), options.clone(), lives)
    }

    /// Compares the current key to another.
    fn compare(&self, key: &[u8]) -> std::cmp::Ordering {
        self.scan.superversion.version().comparator().compare_bare(self.key(), key)
    }

    /// Returns true if the iterator is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.scan.visible.valid()
    }

    /// The current key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "key() of an iterator that is not valid");
        self.scan.visible.key()
    }

    /// The timestamp of the current entry; empty in a column family without timestamps.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn timestamp(&self) -> &[u8] {
        assert!(self.valid(), "timestamp() of an iterator that is not valid");
        self.scan.visible.timestamp()
    }

    /// Returns true if the current entry is a deletion. Only an iterator with
    /// [`iter_start_ts`](ReadOptions::iter_start_ts) is ever at a deletion.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn is_deletion(&self) -> bool {
        let [kind, ..] = self.trailer().to_le_bytes();
        // Both are checked, because without `iter_start_ts` the trailer is 0, which reads as a
        // deletion.
        self.scan.visible.shows_all() && ValueType::from_u8(kind).is_some_and(ValueType::is_deletion)
    }

    /// Sequence number and type of the current entry, as in its internal key. Exact only with
    /// [`iter_start_ts`](ReadOptions::iter_start_ts).
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[doc(hidden)]
    pub fn trailer(&self) -> u64 {
        assert!(self.valid(), "trailer() of an iterator that is not valid");
        self.scan.visible.trailer()
    }

    /// The current value. Nothing is copied.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        assert!(self.valid(), "value() of an iterator that is not valid");
        self.scan.visible.value()
    }

    /// The current value with a pin on its memory, for use beyond the next move.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn pinned_value(&self) -> Value {
        assert!(self.valid(), "pinned_value() of an iterator that is not valid");
        self.scan.visible.pin_value()
    }

    /// Returns true once the iterator was sent to a position; false if it is new.
    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// Returns the error that ended the last move, or Ok.
    pub fn status(&self) -> Result<()> {
        self.status.clone()
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.pass_gate()?;
        self.begin_seek_to_first();
        self.settle()
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.pass_gate()?;
        self.begin_seek_to_last();
        self.settle()
    }

    /// Moves to the first key at or behind `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.pass_gate()?;
        self.begin_seek(key.as_ref());
        self.settle()
    }

    /// Moves to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.pass_gate()?;
        self.begin_seek_for_prev(key.as_ref());
        self.settle()
    }

    /// Moves to the next key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "the field's name for it; entries() is the Rust iterator"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.begin_next()?;
        self.settle()
    }

    /// Moves to the previous key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.begin_prev()?;
        self.settle()
    }

    /// Asynchronous form of [`seek_to_first`](Self::seek_to_first).
    pub async fn seek_to_first_async(&mut self) -> Result<()> {
        self.pass_gate_async().await?;
        self.begin_seek_to_first();
        self.settle_async().await
    }

    /// Asynchronous form of [`seek_to_last`](Self::seek_to_last).
    pub async fn seek_to_last_async(&mut self) -> Result<()> {
        self.pass_gate_async().await?;
        self.begin_seek_to_last();
        self.settle_async().await
    }

    /// Asynchronous form of [`seek`](Self::seek).
    pub async fn seek_async(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.pass_gate_async().await?;
        self.begin_seek(key.as_ref());
        drop(key);
        self.settle_async().await
    }

    /// Asynchronous form of [`seek_for_prev`](Self::seek_for_prev).
    pub async fn seek_for_prev_async(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.pass_gate_async().await?;
        self.begin_seek_for_prev(key.as_ref());
        drop(key);
        self.settle_async().await
    }

    /// Asynchronous form of [`next`](Self::next).
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub async fn next_async(&mut self) -> Result<()> {
        self.begin_next()?;
        self.settle_async().await
    }

    /// Asynchronous form of [`prev`](Self::prev).
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub async fn prev_async(&mut self) -> Result<()> {
        self.begin_prev()?;
        self.settle_async().await
    }

    fn begin_seek_to_first(&mut self) {
        self.count_seek();
        // Compat: a trace records a seek only with a key, so a seek to the first key is recorded
        // only if there is a lower bound.
        if let Some(lower) = &self.scan.options.iterate_lower_bound {
            self.trace_seek(lower, |family, key, lower, upper| Query::Seek { family, key, lower, upper });
        }
        let scan = &mut self.scan;
        scan.adapt_prefix_filter(None);
        // Compat: with a lower bound this is a seek to it, and the iteration stays in the bound's
        // prefix.
        let lower = scan.options.iterate_lower_bound.as_deref();
        let start = lower.and_then(|lower| scan.start_prefix(lower));
        scan.visible.begin_seek(lower, start, &mut self.needs);
    }

    fn begin_seek_to_last(&mut self) {
        self.count_seek();
        if let Some(upper) = &self.scan.options.iterate_upper_bound {
            self.trace_seek(upper, |family, key, lower, upper| Query::SeekForPrev {
                family,
                key,
                lower,
                upper,
            });
        }
        let scan = &mut self.scan;
        let upper = scan.options.iterate_upper_bound.as_deref().map(|upper| (upper, true));
        let start = upper.and_then(|(upper, _)| scan.start_prefix(upper));
        scan.visible.begin_seek_back(upper, start, &mut self.needs);
    }

    fn begin_seek(&mut self, key: &[u8]) {
        self.count_seek();
        self.trace_seek(key, |family, key, lower, upper| Query::Seek { family, key, lower, upper });
        let scan = &mut self.scan;
        scan.adapt_prefix_filter(Some(key));
        let comparator = scan.superversion.version().comparator();
        let lower = scan.options.iterate_lower_bound.as_deref();
        let lower = lower.filter(|lower| comparator.compare_bare(key, lower).is_lt());
        let start = scan.start_prefix(key);
        scan.visible.begin_seek(Some(lower.unwrap_or(key)), start, &mut self.needs);
    }

    fn begin_seek_for_prev(&mut self, key: &[u8]) {
        self.count_seek();
        self.trace_seek(key, |family, key, lower, upper| Query::SeekForPrev { family, key, lower, upper });
        let scan = &mut self.scan;
        let comparator = scan.superversion.version().comparator();
        let upper = scan.options.iterate_upper_bound.as_deref();
        let upper = upper.filter(|upper| comparator.compare_bare(key, upper).is_ge());
        let start = scan.start_prefix(key);
        let target = upper.map_or((key, false), |upper| (upper, true));
        scan.visible.begin_seek_back(Some(target), start, &mut self.needs);
    }

    #[inline]
    fn begin_next(&mut self) -> Result<()> {
        self.check_open()?;
        assert!(self.valid(), "next() of an iterator that is not valid");
        self.moving = Moving::Next;
        if perf_context::level() >= PerfLevel::EnableCount {
            self.count_next();
        }
        match self.scan.visible.begin_next(&mut self.needs) {
            Ok(()) => Ok(()),
            failed => self.finish(failed),
        }
    }

    #[inline]
    fn begin_prev(&mut self) -> Result<()> {
        self.check_open()?;
        assert!(self.valid(), "prev() of an iterator that is not valid");
        (self.moving, self.timed) = (Moving::Prev, None);
        perf_context::count(PerfMetric::IterPrevCount, 1);
        self.scan.visible.begin_prev(&mut self.needs);
        Ok(())
    }

    /// Completes the move that the last `begin` started, on the calling thread.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        let DbIterator { scan, needs, fetches, .. } = self;
        let mut step = scan.step(needs);
        let ctx = step.view.ctx;
        let result = match step.step(&ctx) {
            Ok(()) if !step.needs.has_needs() => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Ok(()) => {
                // Reads ahead start now; the scan does not wait for them yet.
                drive::start(ctx, step.needs, fetches);
                Ok(())
            }
            Err(Stop::Need) => drive::wait_with(ctx, &mut step, fetches),
        };
        self.finish(result)
    }

    async fn settle_async(&mut self) -> Result<()> {
        let DbIterator { scan, needs, fetches, .. } = self;
        let mut step = scan.step(needs);
        let ctx = step.view.ctx;
        let result = match step.step(&ctx) {
            Ok(()) if !step.needs.has_needs() => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Ok(()) => {
                drive::start_async(ctx, step.needs, fetches).await;
                Ok(())
            }
            Err(Stop::Need) => drive::drive(ctx, &mut step, fetches).await,
        };
        self.finish(result)
    }

    #[inline]
    fn finish(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.give_up(error);
        } else if self.status.is_err() {
            self.status = Ok(());
        }
        if self.scan.tables.shared.stats.enabled() || perf_context::level() >= PerfLevel::EnableCount {
            self.count_move();
        }
        result
    }

    /// Leaves the iterator without a position and drops its reads in flight, because later reads
    /// that joined them would be as late.
    #[cold]
    fn give_up(&mut self, error: &Error) {
        self.scan.visible.fail();
        self.needs = Needs::new();
        self.fetches = Fetches::new(&self.scan.options, HistogramKind::FileReadDbIteratorMicros);
        self.status = Err(error.clone());
    }

    fn count_move(&mut self) {
        let ctx = ReadCtx::new(&self.scan.tables, &self.scan.options);
        let recorder = ctx.stats().recorder();
        let [moves, found] = self.moving.tickers();
        recorder.tick(moves);
        if self.scan.visible.valid() {
            let bytes = (self.scan.visible.key().len() + self.scan.visible.value().len()) as u64;
            recorder.tick(found);
            recorder.record(Ticker::IterBytesRead, bytes);
            perf_context::count(PerfMetric::IterReadBytes, bytes);
        }
        ctx.measure_since(HistogramKind::DbSeek, self.seek_began.take());
        if let Some((timer, metric)) = self.timed.take() {
            ctx.stop(timer, metric);
        }
    }

    /// Counts the start of a step to the next key.
    #[cold]
    fn count_next(&mut self) {
        perf_context::count(PerfMetric::IterNextCount, 1);
        let ctx = ReadCtx::new(&self.scan.tables, &self.scan.options);
        self.timed = Some((ctx.thread_timer(), PerfMetric::FindNextUserEntryTime));
    }

    /// Adds a seek to the database's trace, if tracing is on.
    #[inline]
    fn trace_seek<'a>(
        &'a self,
        key: &'a [u8],
        query: impl FnOnce(ColumnFamilyId, &'a [u8], &'a [u8], &'a [u8]) -> Query<'a>,
    ) {
        let Scan { tables, superversion, options, .. } = &self.scan;
        if tables.shared.tracer.is_on() {
            let lower = options.iterate_lower_bound.as_deref().unwrap_or_default();
            let upper = options.iterate_upper_bound.as_deref().unwrap_or_default();
            tables.shared.tracer.record(&query(superversion.config().id, key, lower, upper));
        }
    }

    /// Counts the start of a seek.
    fn count_seek(&mut self) {
        self.was_sent = true;
        self.moving = Moving::Seek;
        perf_context::count(PerfMetric::IterSeekCount, 1);
        let ctx = ReadCtx::new(&self.scan.tables, &self.scan.options);
        self.timed = Some((ctx.thread_timer(), PerfMetric::SeekInternalSeekTime));
        self.seek_began = ctx.start_timer();
    }
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        self.scan.tables.shared.stats.tick(Ticker::NoIteratorDeleted);
    }
}

/// Creates the visible view of `superversion` as of `at`, before the first seek.
fn visible(superversion: &SuperVersion, at: &ReadAt, bounds: &Bounds, options: &ReadOptions) -> Visible {
    let readahead = readahead_limits(options, superversion);
    let merging = Merging::new(superversion, at.seq, bounds, readahead, !options.ignore_range_deletions);
    let skips_before_seek = superversion.config().options.max_sequential_skip_in_iterations;
    let comparator = superversion.version().comparator();
    let visible = Visible::new(merging, at.seq, readahead, skips_before_seek);
    match comparator.timestamp_size() {
        0 => visible,
        bytes => visible.with_timestamps(bytes, options),
    }
}

impl Scan {
    /// Examines the memtables again: which are empty, and which ranges are deleted in them.
    #[cold]
    fn begin_anew(&mut self) {
        self.visible = visible(&self.superversion, &self.at, &self.bounds, &self.options);
    }

    fn step<'a>(&'a mut self, needs: &'a mut Needs) -> Move<'a> {
        Move {
            view: View::new(&self.tables, &self.superversion, &self.options).at(&self.at),
            bounds: &self.bounds,
            prefix: &self.prefix,
            visible: &mut self.visible,
            needs,
        }
    }

    /// Returns the prefix that an iteration from `key` stays in.
    fn start_prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        if !self.options.prefix_same_as_start {
            return None;
        }
        self.superversion.config().prefix_extractor.as_ref()?.prefix(key).map(<[u8]>::to_vec)
    }

    /// Applies `auto_prefix_mode`: consults prefix filters if all keys from `key`, or from the
    /// lower bound, up to the upper bound have its prefix.
    fn adapt_prefix_filter(&mut self, key: Option<&[u8]>) {
        if !self.options.auto_prefix_mode || self.options.total_order_seek {
            return;
        }
        let extractor = self.superversion.config().prefix_extractor.as_ref();
        let lower = key.or(self.options.iterate_lower_bound.as_deref());
        let range = lower.zip(self.options.iterate_upper_bound.as_deref());
        let one_prefix = extractor.zip(range).is_some_and(|(extractor, (from, upper))| {
            extractor.prefix(from).is_some_and(|prefix| extractor.prefix(upper) == Some(prefix))
        });
        self.prefix = PrefixFilter(extractor.cloned().filter(|_| one_prefix));
    }
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DbIterator");
        shown.field("valid", &self.valid());
        if self.valid() {
            shown.field("key", &self.key().escape_ascii().to_string());
        }
        shown.finish_non_exhaustive()
    }
}

/// Returns the readahead limits of scans with these options.
pub(crate) fn readahead_limits(options: &ReadOptions, superversion: &SuperVersion) -> ReadaheadLimits {
    if !options.async_io || options.read_tier != ReadTier::All {
        return ReadaheadLimits::off();
    }
    if options.readahead_size > 0 {
        return ReadaheadLimits::fixed(options.readahead_size as u64);
    }
    let table = superversion.config().options.table_factory.block_based.clone();
    ReadaheadLimits {
        initial_bytes: (table.initial_auto_readahead_size as u64).min(table.max_auto_readahead_size as u64),
        max_bytes: table.max_auto_readahead_size as u64,
        waiting_bytes: MOST_BYTES,
        blocks_before: u32::try_from(table.num_file_reads_for_auto_readahead).unwrap_or(u32::MAX),
        is_needed: false,
    }
}
