//! `get`: the lookup of one key.
//!
//! A hit is plain code on the caller's stack, in both forms. At the first miss the lookup moves
//! into the loop that waits; only the asynchronous form allocates then.

use crate::read::View;
use crate::read::lookup::Lookup;
use crate::read::sought_key::Timestamp;
use karst_base::error::Result;
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, PerfMetric};
use karst_base::snapshot::ReadAt;
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Attempt, Step};
use karst_storage::table::fetch::Fetches;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;
use std::sync::Arc;
use std::time::Duration;

/// A lookup with the view that it searches.
struct PointRead<'a> {
    lookup: Lookup,
    view: View<'a>,
}

impl Step for PointRead<'_> {
    type Out = Option<Value>;

    #[inline]
    fn step(&mut self, _: &ReadCtx<'_>) -> Result<Option<Value>, Stop> {
        self.lookup.step(&self.view)
    }

    fn needs(&mut self) -> &mut Needs {
        &mut self.lookup.needs
    }
}

/// Returns the value of `key` as of `at`. Blocks the calling thread if it has to read.
#[inline]
pub(crate) fn get(
    tables: &Arc<TableCache>,
    superversion: &SuperVersion,
    options: &ReadOptions,
    at: &ReadAt,
    key: &[u8],
) -> Result<Option<Value>> {
    let view = View::new(tables, superversion, options).at(at);
    let began = view.ctx.start_timer();
    let mut lookup = Lookup::new(key, options, at.seq);
    let result = match lookup.step(&view) {
        Ok(value) => Ok(value),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Need) => wait(lookup, view),
    };
    count(&view.ctx, began, &result);
    result
}

#[cold]
fn wait(lookup: Lookup, view: View<'_>) -> Result<Option<Value>> {
    let mut read = PointRead { lookup, view };
    let timer = view.ctx.thread_timer();
    let result = drive::wait(view.ctx, &mut read);
    view.ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
    result
}

/// First step of the asynchronous form: done from memory, or a future that reads the rest.
#[inline]
pub(crate) fn attempt<'a>(
    tables: &Arc<TableCache>,
    superversion: &Arc<SuperVersion>,
    options: &'a ReadOptions,
    at: ReadAt,
    key: &[u8],
) -> Attempt<'a, Result<Option<Value>>> {
    let view = View::new(tables, superversion, options).at(&at);
    let began = view.ctx.start_timer();
    let mut lookup = Lookup::new(key, options, at.seq);
    let result = match lookup.step(&view) {
        Ok(value) => Ok(value),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Need) => {
            let waiting = finish(lookup, tables.clone(), superversion.clone(), options, (at.kept(), began));
            return Attempt::Waiting(Box::pin(waiting));
        }
    };
    count(&view.ctx, began, &result);
    Attempt::Done(result)
}

/// A lookup that also returns the entry's timestamp.
struct TimestampedRead<'a>(PointRead<'a>);

impl Step for TimestampedRead<'_> {
    type Out = Option<(Value, Timestamp)>;

    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<Self::Out, Stop> {
        let value = self.0.step(ctx)?;
        Ok(value.map(|value| (value, self.0.lookup.take_timestamp().unwrap_or_default())))
    }

    fn needs(&mut self) -> &mut Needs {
        self.0.needs()
    }
}

/// Returns the value of `key` as of `at` and the options' timestamp, and the timestamp that it was
/// written with.
pub(crate) async fn get_with_timestamp(
    tables: &Arc<TableCache>,
    superversion: &SuperVersion,
    options: &ReadOptions,
    at: &ReadAt,
    key: &[u8],
) -> Result<Option<(Value, Timestamp)>> {
    let view = View::new(tables, superversion, options).at(at);
    let began = view.ctx.start_timer();
    let mut read = TimestampedRead(PointRead { lookup: Lookup::new(key, options, at.seq), view });
    let result = match read.step(&view.ctx) {
        Ok(found) => Ok(found),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Need) => {
            let mut fetches = Fetches::new(options, HistogramKind::FileReadGetMicros);
            drive::drive(view.ctx, &mut read, &mut fetches).await
        }
    };
    let counted = match &result {
        Ok(found) => Ok(found.as_ref().map(|(value, _)| value.clone())),
        Err(error) => Err(error.clone()),
    };
    count(&view.ctx, began, &counted);
    result
}

async fn finish(
    lookup: Lookup,
    tables: Arc<TableCache>,
    superversion: Arc<SuperVersion>,
    options: &ReadOptions,
    (at, began): (ReadAt, Option<Duration>),
) -> Result<Option<Value>> {
    let view = View::new(&tables, &superversion, options).at(&at);
    let mut read = PointRead { lookup, view };
    let mut fetches = Fetches::new(options, HistogramKind::FileReadGetMicros);
    let timer = view.ctx.thread_timer();
    let result = drive::drive(view.ctx, &mut read, &mut fetches).await;
    view.ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
    count(&view.ctx, began, &result);
    result
}

#[inline]
fn count(ctx: &ReadCtx<'_>, began: Option<Duration>, result: &Result<Option<Value>>) {
    let stats = ctx.stats();
    if stats.enabled() || perf_context::level() != perf_context::PerfLevel::Disable {
        ctx.measure_since(HistogramKind::DbGet, began);
        count_slow(stats, result);
    }
}

fn count_slow(stats: &Statistics, result: &Result<Option<Value>>) {
    let recorder = stats.recorder();
    recorder.tick(Ticker::NumberKeysRead);
    if let Ok(Some(value)) = result {
        let bytes = value.len() as u64;
        recorder.record(Ticker::BytesRead, bytes);
        recorder.measure(HistogramKind::BytesPerRead, bytes);
        perf_context::count(PerfMetric::GetReadBytes, bytes);
    }
}
