//! `multi_get`: a batch of keys, each with a lookup of its own.
//!
//! Every key is stepped once, in the order given, which completes those that are in memory. The
//! needs of the others are collected over all keys and fetched concurrently, each block once; a key
//! is stepped again as soon as a block it waits for arrives. Keys do not wait for each other, so
//! files, levels, partitions, blobs and merge operands are read in parallel without a separate
//! mode.
//!
//! At most [`WINDOW`] keys wait at a time. Once the window is full, the keys not stepped yet are
//! sorted, and stepped in that order each time half of the window is free. An arrival polls all
//! reads in flight and a need is compared with all of them, so the cost of both is bounded by the
//! window and not by the number of keys.
//!
//! Keys of a large memtable are searched there [`LANES`] at a time before they are stepped, because
//! searches that wait for memory together take a fraction of the time.
//!
//! With `optimize_multiget_for_io` (the default) a key that has to wait requests at once the filter
//! and index partitions of all files that may hold it, on all levels. `async_io=false` fetches from
//! one file at a time.
//!
//! Keys are not sorted before the window is full, because sorting would add a comparison sort to
//! every hit for locality alone; reads are sorted by file and offset when they are issued. The
//! remaining keys are sorted because neighbouring keys are in the same blocks, so they belong in
//! one window.

use crate::read::View;
use crate::read::lookup::Lookup;
use crate::read::sought_key::{SoughtKey, Timestamp};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, PerfMetric};
use karst_base::snapshot::ReadAt;
use karst_base::stats::{HistogramKind, Ticker};
use karst_storage::memtable::LANES;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::drive::{self, Attempt};
use karst_storage::table::fetch::{Fetches, Waiter};
use karst_storage::table::needs::{Held, NeedKey, Stop};
use karst_storage::value::Value;
use smallvec::SmallVec;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The results of a batch, in the order of its keys.
pub(crate) type Results = Vec<Result<Option<Value>>>;

/// Tables and superversion of a column family that a batch reads.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) tables: Arc<TableCache>,
    pub(crate) superversion: Arc<SuperVersion>,
}

/// The sources of a batch; most batches read one column family.
pub(crate) trait Sources {
    /// Returns the source of the key at `index`, as a number below `len`.
    fn of_key(&self, index: usize) -> usize;
    /// Returns the source with this number.
    fn get(&self, number: usize) -> (&Arc<TableCache>, &Arc<SuperVersion>);
    /// Returns the number of sources.
    fn len(&self) -> usize;
}

/// The sources of a batch whose keys are all of one column family.
pub(crate) struct One<'a>(pub(crate) &'a Arc<TableCache>, pub(crate) &'a Arc<SuperVersion>);

impl Sources for One<'_> {
    #[inline]
    fn of_key(&self, _: usize) -> usize {
        0
    }
    #[inline]
    fn get(&self, _: usize) -> (&Arc<TableCache>, &Arc<SuperVersion>) {
        (self.0, self.1)
    }
    fn len(&self) -> usize {
        1
    }
}

/// The sources of a batch whose keys name their source each.
pub(crate) struct Many<'a> {
    pub(crate) sources: &'a [Source],
    /// The index of each key's source.
    pub(crate) of_keys: &'a [u32],
}

impl Sources for Many<'_> {
    fn of_key(&self, index: usize) -> usize {
        self.of_keys[index] as usize
    }
    fn get(&self, number: usize) -> (&Arc<TableCache>, &Arc<SuperVersion>) {
        let source = &self.sources[number];
        (&source.tables, &source.superversion)
    }
    fn len(&self) -> usize {
        self.sources.len()
    }
}

/// Maximum number of keys of a batch that wait at a time. Half of them keep a device busy while the
/// other half is replaced.
const WINDOW: usize = 128;

/// A key of a batch.
#[derive(Clone, Copy)]
struct Key<'k> {
    bytes: &'k [u8],
    /// Index of the key's result.
    index: usize,
    source: usize,
}

/// A key that waits for a read.
struct Waiting<'k> {
    lookup: Lookup,
    key: Key<'k>,
    /// Id of this waiter. Ids are not reused, so a block read ahead for a completed key is not
    /// handed to its successor in the place.
    number: Waiter,
    /// A block has arrived for the key since its last step.
    ready: bool,
}

/// The keys that wait. The place of each is its number modulo [`WINDOW`].
#[derive(Default)]
struct Window<'k> {
    places: Vec<Option<Waiting<'k>>>,
    /// For each free place, the number that the next key in it gets.
    free: Vec<Waiter>,
    /// The numbers of keys that a block has arrived for.
    ready: Vec<Waiter>,
}

impl<'k> Window<'k> {
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Adds a key that has to wait. The window must hold fewer than [`WINDOW`].
    fn add(&mut self, lookup: Lookup, key: Key<'k>) -> &mut Waiting<'k> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as Waiter - 1
        });
        self.places[place_of(number)].insert(Waiting { lookup, key, number, ready: false })
    }

    fn remove(&mut self, number: Waiter) {
        self.places[place_of(number)] = None;
        // Reads of 2^25 earlier keys of a place do not last until the numbers wrap around.
        self.free.push(number.wrapping_add(WINDOW as Waiter));
    }

    /// Hands a fetched block to key `number`, unless the key is completed.
    fn supply(&mut self, number: Waiter, name: NeedKey, result: Result<Held>) {
        let waiting = self.places[place_of(number)].as_mut().filter(|waiting| waiting.number == number);
        if let Some(waiting) = waiting {
            waiting.lookup.needs.supply(name, result);
            if !std::mem::replace(&mut waiting.ready, true) {
                self.ready.push(number);
            }
        }
    }

    fn waiting(&mut self) -> impl Iterator<Item = &mut Waiting<'k>> {
        self.places.iter_mut().flatten()
    }
}

fn place_of(number: Waiter) -> usize {
    number as usize % WINDOW
}

/// A batch after its first pass: results, keys that have to wait, and keys not stepped yet.
struct Batch<'k> {
    /// One result per key; those of incomplete keys are filled in later.
    results: Results,
    window: Window<'k>,
    /// Keys not stepped yet, in the order to step them.
    rest: std::vec::IntoIter<Key<'k>>,
    /// The timestamp of each key's value, if the options have a timestamp.
    timestamps: Vec<Option<Timestamp>>,
    value_bytes: u64,
    /// Start time, if times are collected.
    began: Option<Duration>,
}

/// Steps every key once, until the window is full. Allocates only the results unless a key has to
/// wait.
#[inline]
fn first_pass<'k, K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &ReadOptions,
    at: &ReadAt,
    keys: &'k [K],
) -> Batch<'k> {
    let began = match sources.len() {
        0 => None,
        _ => View::of(sources.get(0), options).ctx.start_timer(),
    };
    let results = Vec::with_capacity(keys.len());
    let timestamps = if options.timestamp.is_some() { vec![None; keys.len()] } else { Vec::new() };
    let (window, rest) = (Window::default(), Vec::new().into_iter());
    let mut batch = Batch { results, window, rest, timestamps, value_bytes: 0, began };
    for (index, key) in keys.iter().enumerate() {
        if index.is_multiple_of(LANES) {
            warm(sources, options, at, index, &keys[index..keys.len().min(index + LANES)]);
        }
        let source = sources.of_key(index);
        let (tables, superversion) = sources.get(source);
        let view = View::new(tables, superversion, options).at(at);
        let mut lookup = Lookup::new(key.as_ref(), options, at.seq);
        let result = match lookup.step(&view) {
            Ok(value) => {
                batch.note_timestamp(index, &mut lookup);
                batch.accept(options, Ok(value))
            }
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Need) => {
                batch.window.add(lookup, Key { bytes: key.as_ref(), index, source });
                Ok(None)
            }
        };
        batch.results.push(result);
        if batch.window.len() == WINDOW {
            batch.leave(sources, keys);
            break;
        }
    }
    batch
}

/// Has the searches of the next keys in large memtables wait for memory together, instead of one
/// after the other. `first` is the index of the first of these keys.
fn warm<K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &ReadOptions,
    at: &ReadAt,
    first: usize,
    keys: &[K],
) {
    // Fewer searches save less than the repetition of their comparisons costs.
    const FEWEST: usize = 4;
    if keys.len() < FEWEST {
        return;
    }
    let source = sources.of_key(first);
    let mut large = sources.get(source).1.memtables().filter(|table| table.gains_from_warming()).peekable();
    if large.peek().is_none() {
        return;
    }
    let same = (first..).zip(keys).filter(|(index, _)| sources.of_key(*index) == source);
    let sought: SmallVec<[SoughtKey; LANES]> =
        same.map(|(_, key)| SoughtKey::new(key.as_ref(), options, at.seq)).collect();
    let sought: SmallVec<[&[u8]; LANES]> = sought.iter().map(|key| &**key).collect();
    large.for_each(|table| table.warm(&sought));
}

impl<'k> Batch<'k> {
    /// Sorts the keys not stepped yet and keeps them for later.
    #[cold]
    fn leave<K: AsRef<[u8]>>(&mut self, sources: &impl Sources, keys: &'k [K]) {
        let left = self.results.len()..keys.len();
        let key = |index: usize| Key { bytes: keys[index].as_ref(), index, source: sources.of_key(index) };
        let mut rest: Vec<Key<'k>> = left.map(key).collect();
        // Sorted by bytes and not by the comparator, because only locality depends on the order.
        rest.sort_unstable_by(|a, b| (a.source, a.bytes).cmp(&(b.source, b.bytes)));
        self.rest = rest.into_iter();
        self.results.resize_with(keys.len(), || Ok(None));
    }

    #[inline]
    fn note_timestamp(&mut self, index: usize, lookup: &mut Lookup) {
        if let Some(place) = self.timestamps.get_mut(index) {
            *place = lookup.take_timestamp();
        }
    }

    /// Applies the limit on the bytes of one batch's values.
    #[inline]
    fn accept(&mut self, options: &ReadOptions, result: Result<Option<Value>>) -> Result<Option<Value>> {
        if let Ok(Some(value)) = &result {
            if self.value_bytes > options.value_size_soft_limit {
                return Err(Error::new(
                    ErrorKind::LimitReached,
                    "the batch's values are larger than value_size_soft_limit",
                ));
            }
            self.value_bytes = self.value_bytes.saturating_add(value.len() as u64);
        }
        result
    }

    /// Fetches the blocks that waiting keys need and steps the keys, then the remaining keys, until
    /// all are done.
    ///
    /// Not generic, for the reason given at `Db::write_one`.
    async fn finish(&mut self, sources: &(dyn Sources + Sync), options: &ReadOptions, at: &ReadAt) {
        let view_of = |source: usize| {
            let (tables, superversion) = sources.get(source);
            View::new(tables, superversion, options).at(at)
        };
        let mut fetches = Fetches::new(options, HistogramKind::FileReadMultigetMicros);
        let ctx = view_of(0).ctx;
        let mut timer = ctx.thread_timer();
        for waiting in self.window.waiting() {
            waiting.ask(&view_of(waiting.key.source), &mut fetches);
        }
        while self.window.len() > 0 {
            fetches.launch(&ctx);
            let window = &mut self.window;
            let arrived = drive::arrival(&ctx, &mut fetches, |number, name, result| {
                window.supply(number, name, result);
            });
            if let Err(late) = arrived.await {
                self.give_up(view_of, at, &late);
                break;
            }
            let mut ready = std::mem::take(&mut self.window.ready);
            for number in ready.drain(..) {
                self.step(number, view_of, &mut fetches);
            }
            self.window.ready = ready; // keep its capacity
            if self.rest.len() > 0 && self.window.len() <= WINDOW / 2 {
                // `arrival` notices a deadline only while nothing arrives.
                if ctx.is_late() {
                    self.give_up(view_of, at, &drive::late());
                    break;
                }
                // First steps have a timer of their own.
                ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
                while self.window.len() < WINDOW
                    && let Some(key) = self.rest.next()
                {
                    let view = view_of(key.source);
                    if let Some(lookup) = self.first_step(key, &view, at) {
                        self.window.add(lookup, key).ask(&view, &mut fetches);
                    }
                }
                timer = ctx.thread_timer();
            }
        }
        ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
        fetches.count_levels(&ctx);
    }

    /// Steps a waiting key.
    fn step<'a>(&mut self, number: Waiter, view_of: impl Fn(usize) -> View<'a>, fetches: &mut Fetches) {
        let Some(waiting) = &mut self.window.places[place_of(number)] else {
            unreachable!("it is ready for a step")
        };
        waiting.ready = false;
        let view = view_of(waiting.key.source);
        let result = match waiting.lookup.step(&view) {
            Ok(value) => Ok(value),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Need) => return waiting.ask(&view, fetches),
        };
        let (key, timestamp) = (waiting.key, waiting.lookup.take_timestamp());
        self.window.remove(number);
        self.end(key, view.ctx.options, result, timestamp);
    }

    /// Steps a key for the first time. Returns its lookup if it has to wait.
    fn first_step(&mut self, key: Key<'_>, view: &View<'_>, at: &ReadAt) -> Option<Lookup> {
        let options = view.ctx.options;
        let mut lookup = Lookup::new(key.bytes, options, at.seq);
        let result = match lookup.step(view) {
            Ok(value) => Ok(value),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Need) => return Some(lookup),
        };
        let timestamp = lookup.take_timestamp();
        self.end(key, options, result, timestamp);
        None
    }

    /// Stores the result of a key that the first pass did not complete.
    fn end(
        &mut self,
        key: Key<'_>,
        options: &ReadOptions,
        result: Result<Option<Value>>,
        timestamp: Option<Timestamp>,
    ) {
        if let Some(place) = self.timestamps.get_mut(key.index) {
            *place = timestamp;
        }
        self.results[key.index] = self.accept(options, result);
    }

    /// Ends a batch whose deadline has passed: stores `error` for each key that waits or would have
    /// to. The remaining keys are still stepped, because a key in memory gets its answer regardless
    /// of its position in the batch.
    #[cold]
    fn give_up<'a>(&mut self, view_of: impl Fn(usize) -> View<'a>, at: &ReadAt, error: &Error) {
        for waiting in self.window.places.iter().flatten() {
            self.results[waiting.key.index] = Err(error.clone());
        }
        while let Some(key) = self.rest.next() {
            if self.first_step(key, &view_of(key.source), at).is_some() {
                self.results[key.index] = Err(error.clone());
            }
        }
    }

    fn count(&self, sources: &impl Sources, options: &ReadOptions) {
        if self.results.is_empty() || sources.len() == 0 {
            return;
        }
        View::of(sources.get(0), options).ctx.measure_since(HistogramKind::DbMultiget, self.began);
        let stats = &sources.get(0).0.shared.stats;
        if stats.enabled() || perf_context::level() != perf_context::PerfLevel::Disable {
            let found = self.results.iter().filter(|result| matches!(result, Ok(Some(_)))).count();
            let recorder = stats.recorder();
            recorder.tick(Ticker::NumberMultigetCalls);
            recorder.record(Ticker::NumberMultigetKeysRead, self.results.len() as u64);
            recorder.record(Ticker::NumberMultigetKeysFound, found as u64);
            recorder.record(Ticker::NumberMultigetBytesRead, self.value_bytes);
            recorder.measure(HistogramKind::BytesPerMultiget, self.value_bytes);
            perf_context::count(PerfMetric::MultigetReadBytes, self.value_bytes);
        }
    }
}

impl Waiting<'_> {
    /// Requests the blocks the lookup waits for and, with `optimize_multiget_for_io`, those it will
    /// need later.
    fn ask(&mut self, view: &View<'_>, fetches: &mut Fetches) {
        let options = view.ctx.options;
        if options.async_io && options.optimize_multiget_for_io {
            self.lookup.look_ahead(view);
        }
        fetches.collect_for(&mut self.lookup.needs, self.number);
    }
}

/// Returns the values of `keys` as of `at`, in their order. Blocks the calling thread if it has to
/// read.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    sources: &(impl Sources + Sync),
    options: &ReadOptions,
    at: &ReadAt,
    keys: &[K],
) -> Results {
    multi_get_with_timestamps(sources, options, at, keys).0
}

/// Like [`multi_get`], with the timestamp of each value if the options have a timestamp; without
/// one, the timestamps are empty.
pub(crate) fn multi_get_with_timestamps<K: AsRef<[u8]>>(
    sources: &(impl Sources + Sync),
    options: &ReadOptions,
    at: &ReadAt,
    keys: &[K],
) -> (Results, Vec<Option<Timestamp>>) {
    let mut batch = first_pass(sources, options, at, keys);
    if batch.window.len() > 0 {
        finish_blocking(&mut batch, sources, options, at);
    }
    batch.count(sources, options);
    (batch.results, batch.timestamps)
}

/// Not generic, for the reason given at `Db::write_one`.
fn finish_blocking(
    batch: &mut Batch<'_>,
    sources: &(dyn Sources + Sync),
    options: &ReadOptions,
    at: &ReadAt,
) {
    karst_io::block_on(&sources.get(0).0.shared.env, batch.finish(sources, options, at));
}

/// First pass of the asynchronous form: done from memory, or a future that reads the rest.
pub(crate) fn attempt<'a, K: AsRef<[u8]> + Sync>(
    sources: &impl Sources,
    options: &'a ReadOptions,
    at: ReadAt,
    keys: &'a [K],
) -> Attempt<'a, Results> {
    let batch = first_pass(sources, options, &at, keys);
    if batch.window.len() == 0 {
        batch.count(sources, options);
        return Attempt::Done(batch.results);
    }
    let owned: Vec<Source> = (0..sources.len())
        .map(|number| {
            let (tables, superversion) = sources.get(number);
            Source { tables: tables.clone(), superversion: superversion.clone() }
        })
        .collect();
    Attempt::Waiting(finished(batch, owned, options, at.kept()))
}

fn finished<'a>(
    mut batch: Batch<'a>,
    owned: Vec<Source>,
    options: &'a ReadOptions,
    at: ReadAt,
) -> Pin<Box<dyn Future<Output = Results> + Send + 'a>> {
    Box::pin(async move {
        // Incomplete keys carry the number of their source, so `of_keys` is not read.
        let sources = Many { sources: &owned, of_keys: &[] };
        batch.finish(&sources, options, &at).await;
        batch.count(&sources, options);
        batch.results
    })
}
