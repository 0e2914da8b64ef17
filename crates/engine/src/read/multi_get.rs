//! `multi_get`: a batch of keys, each a lookup of its own.
//!
//! Every key is stepped once, in the order given, which ends those that are in memory. The others'
//! needs are collected over all keys, fetched at the same time and once each, and every key is
//! stepped again as soon as something it waits for has come. Nothing waits for its neighbours, so
//! files, levels, partitions, blobs and merge operands are read in parallel without a mode of their
//! own.
//!
//! With `optimize_multiget_for_io` (the default) a key that has to wait asks at once for the filter
//! and index partitions of all files that may hold it, on all levels. `async_io=false` fetches from
//! one file at a time.
//!
//! Why keys are not sorted: sorting would buy locality at the price of a comparison sort on every
//! hit. Reads are sorted by file and offset where it matters, when they are issued.

use crate::read::View;
use crate::read::lookup::Lookup;
use crate::read::sought_key::Timestamp;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, PerfMetric};
use karst_base::snapshot::ReadAt;
use karst_base::stats::{HistogramKind, Ticker};
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::drive::{self, Attempt};
use karst_storage::table::fetch::Fetches;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;
use std::sync::Arc;
use std::time::Duration;

/// The results of a batch, in the order of its keys.
pub(crate) type Results = Vec<Result<Option<Value>>>;

/// A column family as a batch sees it, with the sequence number that the batch reads at.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) tables: Arc<TableCache>,
    pub(crate) superversion: Arc<SuperVersion>,
}

/// Sources of a batch: most read one column family.
pub(crate) trait Sources {
    /// The source of the key at `index`, as a number smaller than `len`.
    fn of_key(&self, index: usize) -> usize;
    /// The source with this number.
    fn get(&self, number: usize) -> (&Arc<TableCache>, &Arc<SuperVersion>);
    /// How many sources there are.
    fn len(&self) -> usize;
}

/// All keys are of one column family.
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

/// Each key names its source.
pub(crate) struct Many<'a> {
    pub(crate) sources: &'a [Source],
    /// For each key the index of its source.
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

/// A key that has to wait.
struct Waiting {
    lookup: Lookup,
    /// Its place among the results.
    index: usize,
    source: usize,
    /// Something came for it since its last step.
    ready: bool,
    /// It has its result; what was read ahead for it may still come.
    done: bool,
}

/// What the first pass leaves: results, and keys that have to wait.
struct Batch {
    results: Results,
    waiting: Vec<Waiting>,
    /// Of each key's value, where the options have a timestamp.
    timestamps: Vec<Option<Timestamp>>,
    value_bytes: u64,
    /// When it began, if times are collected.
    began: Option<Duration>,
}

/// Steps every key once. Allocates nothing but the results unless a key has to wait.
#[inline]
fn first_pass<K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &ReadOptions,
    at: &ReadAt,
    keys: &[K],
) -> Batch {
    let began = match sources.len() {
        0 => None,
        _ => View::of(sources.get(0), options).ctx.start_timer(),
    };
    let results = Vec::with_capacity(keys.len());
    let timestamps = if options.timestamp.is_some() { vec![None; keys.len()] } else { Vec::new() };
    let mut batch = Batch { results, timestamps, waiting: Vec::new(), value_bytes: 0, began };
    for (index, key) in keys.iter().enumerate() {
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
                batch.waiting.push(Waiting { lookup, index, source, ready: false, done: false });
                Ok(None)
            }
        };
        batch.results.push(result);
    }
    batch
}

impl Batch {
    #[inline]
    fn note_timestamp(&mut self, index: usize, lookup: &mut Lookup) {
        if let Some(place) = self.timestamps.get_mut(index) {
            *place = lookup.take_timestamp();
        }
    }

    /// Applies the limit on the bytes of one batch.
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

    /// Fetches what the waiting keys need and steps them until none is left.
    async fn finish(&mut self, sources: &impl Sources, options: &ReadOptions, at: &ReadAt) {
        let view_of = |source: usize| {
            let (tables, superversion) = sources.get(source);
            View::new(tables, superversion, options).at(at)
        };
        let mut fetches = Fetches::new(options, HistogramKind::FileReadMultigetMicros);
        let mut unfinished = self.waiting.len();
        let ctx = view_of(self.waiting[0].source).ctx;
        let timer = ctx.thread_timer();
        for (number, waiting) in self.waiting.iter_mut().enumerate() {
            waiting.prepare(&view_of(waiting.source), options);
            fetches.collect_for(&mut waiting.lookup.needs, number as u32);
        }
        while unfinished > 0 {
            fetches.launch(&ctx);
            let waiting = &mut self.waiting;
            let arrived = drive::arrival(&ctx, &mut fetches, |number, key, result| {
                let waiting = &mut waiting[number as usize];
                if !waiting.done {
                    waiting.lookup.needs.supply(key, result);
                    waiting.ready = true;
                }
            });
            if let Err(late) = arrived.await {
                for waiting in self.waiting.iter().filter(|waiting| !waiting.done) {
                    self.results[waiting.index] = Err(late.clone());
                }
                break;
            }
            for number in 0..self.waiting.len() {
                let waiting = &mut self.waiting[number];
                if !std::mem::take(&mut waiting.ready) {
                    continue;
                }
                let view = view_of(waiting.source);
                let result = match waiting.lookup.step(&view) {
                    Ok(value) => Ok(value),
                    Err(Stop::Error(error)) => Err(error),
                    Err(Stop::Need) => {
                        waiting.prepare(&view, options);
                        fetches.collect_for(&mut waiting.lookup.needs, number as u32);
                        continue;
                    }
                };
                waiting.done = true;
                waiting.lookup.needs = Needs::new();
                let index = waiting.index;
                if let Some(place) = self.timestamps.get_mut(index) {
                    *place = waiting.lookup.take_timestamp();
                }
                self.results[index] = self.accept(options, result);
                unfinished -= 1;
            }
        }
        ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
        fetches.count_levels(&ctx);
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

impl Waiting {
    /// Asks for everything that this key will need sooner or later, where the options want that.
    fn prepare(&mut self, view: &View<'_>, options: &ReadOptions) {
        if options.async_io && options.optimize_multiget_for_io {
            self.lookup.look_ahead(view);
        }
    }
}

/// The values of `keys` as of `at`, in their order. Waits on the calling thread if it has to.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &ReadOptions,
    at: &ReadAt,
    keys: &[K],
) -> Results {
    multi_get_with_timestamps(sources, options, at, keys).0
}

/// The same, and the timestamp of each value if the options have one; otherwise of none.
pub(crate) fn multi_get_with_timestamps<K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &ReadOptions,
    at: &ReadAt,
    keys: &[K],
) -> (Results, Vec<Option<Timestamp>>) {
    let mut batch = first_pass(sources, options, at, keys);
    if !batch.waiting.is_empty() {
        let env = &sources.get(0).0.shared.env;
        karst_io::block_on(env, batch.finish(sources, options, at));
    }
    batch.count(sources, options);
    (batch.results, batch.timestamps)
}

/// The first pass of the asynchronous form: done from memory, or a future that waits for the rest.
pub(crate) fn attempt<'a, K: AsRef<[u8]>>(
    sources: &impl Sources,
    options: &'a ReadOptions,
    at: ReadAt,
    keys: &[K],
) -> Attempt<'a, Results> {
    let mut batch = first_pass(sources, options, &at, keys);
    if batch.waiting.is_empty() {
        batch.count(sources, options);
        return Attempt::Done(batch.results);
    }
    let owned: Vec<Source> = (0..sources.len())
        .map(|number| {
            let (tables, superversion) = sources.get(number);
            Source { tables: tables.clone(), superversion: superversion.clone() }
        })
        .collect();
    let at = at.kept();
    Attempt::Waiting(Box::pin(async move {
        // Each waiting key knows its source by number; the others are done.
        let sources = Many { sources: &owned, of_keys: &[] };
        batch.finish(&sources, options, &at).await;
        batch.count(&sources, options);
        batch.results
    }))
}
