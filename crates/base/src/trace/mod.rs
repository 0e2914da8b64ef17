//! The query trace, which records a database's operations while it runs, and the I/O trace of its
//! files (`io`).
//!
//! In: reads and writes, each after it has found its column family; writes once they are ordered.
//! Out: records ([`karst_format::trace`]) for a [`TraceWriter`], in order of arrival.
//!
//! Records are appended to a buffer under a short lock, and jobs on threads that may block pass the
//! buffer to the writer, so that no database call waits for it. If the writer is too slow and 64
//! MiB are buffered, records are dropped and counted, and the end of the trace reports it.
//!
//! An untraced database pays one relaxed load per read and two per write.
//!
//! Locks: the sink's is held while records are passed to the writer; `running` is locked within it,
//! and by recorders within the order lock, and never while waiting.

mod io;

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::sync::counting::{AtomicU8, Ordering};
use karst_format::options::file::KNOWN_VERSION;
use karst_format::trace::{END, PREFIX_BYTES, Prefix, Query, put_header, put_io_header, put_record};
use karst_io::{Env, block_on};
use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

pub use io::IoObserver;

/// Number of buffered bytes at which a job begins to write.
const SOME_BYTES: usize = 256 << 10;
/// Number of buffered bytes above which records are dropped.
const MOST_BYTES: usize = 64 << 20;

/// Kinds of records that a trace omits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter(pub u64);

impl TraceFilter {
    /// Omits nothing.
    pub const NONE: Self = Self(0);
    /// Omits gets.
    pub const GET: Self = Self(1);
    /// Omits writes.
    pub const WRITE: Self = Self(1 << 1);
    /// Omits iterator seeks.
    pub const ITERATOR_SEEK: Self = Self(1 << 2);
    /// Omits iterator seeks to the last key at or before the target.
    pub const ITERATOR_SEEK_FOR_PREV: Self = Self(1 << 3);
    /// Omits multi-gets.
    pub const MULTI_GET: Self = Self(1 << 4);

    fn leaves_out(self, query: &Query<'_>) -> bool {
        let kind = match query {
            Query::Get { .. } => Self::GET,
            Query::Write(_) => Self::WRITE,
            Query::Seek { .. } => Self::ITERATOR_SEEK,
            Query::SeekForPrev { .. } => Self::ITERATOR_SEEK_FOR_PREV,
            Query::MultiGet(_) => Self::MULTI_GET,
        };
        self.0 & kind.0 != 0
    }
}

impl BitOr for TraceFilter {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Options of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Maximum size of the trace in bytes; beyond it only the end record is added. Default: 64 GiB.
    pub max_trace_file_size: u64,
    /// Traces one of this number of queries. 0 means 1. Default: 1, all.
    pub sampling_frequency: u64,
    /// Kinds of records to omit; they do not count for the sampling. Default: none.
    pub filter: TraceFilter,
    /// Keeps writes in the order of the log; each write then adds its record under the lock that
    /// orders writes. Default: false; concurrent writes may then be reordered.
    pub preserve_write_order: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            max_trace_file_size: 64 << 30,
            sampling_frequency: 1,
            filter: TraceFilter::NONE,
            preserve_write_order: false,
        }
    }
}

/// Destination of a trace's records. Called on threads that may block, one call at a time.
pub trait TraceWriter: Send {
    /// Receives the next complete record, including its prefix.
    ///
    /// # Errors
    /// Ends the recording; the error is returned when the trace is ended.
    fn write(&mut self, record: &[u8]) -> Result<()>;

    /// Called after the last record.
    ///
    /// # Errors
    /// Records could not be stored completely.
    fn close(&mut self) -> Result<()>;
}

/// The subject of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceForm {
    /// Operations of the database.
    Queries,
    /// Operations on its files.
    FileOperations,
}

/// The tracing state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Off,
    On,
    /// On, with writes in the order of the log.
    InOrder,
}

/// The trace of one database, if any; see the module.
pub struct Tracer {
    env: Env,
    form: TraceForm,
    /// A [`Mode`].
    mode: AtomicU8,
    running: Mutex<Option<Running>>,
}

/// A trace that has begun.
struct Running {
    options: TraceOptions,
    /// Queries since the last traced one.
    passed: u64,
    /// Size of all records so far.
    bytes: u64,
    /// Records not yet taken by a job.
    buffer: Vec<u8>,
    /// True if a job was started to take them.
    draining: bool,
    /// True if no more records are added.
    ended: bool,
    /// Number of records dropped because the buffer was full.
    missing: u64,
    sink: Arc<Mutex<Sink>>,
}

/// The writer and its first failure.
struct Sink {
    writer: Box<dyn TraceWriter>,
    failure: Option<Error>,
}

fn none() -> Error {
    Error::invalid_argument("there is no trace to end")
}

impl Tracer {
    /// Creates a tracer without a trace.
    pub fn new(env: Env, form: TraceForm) -> Arc<Self> {
        Arc::new(Self { env, form, mode: AtomicU8::new(Mode::Off as u8), running: Mutex::new(None) })
    }

    /// Returns true if queries should be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Ordering: a caller that reads on checks again under the lock; one that reads off came
        // before the trace.
        self.mode.load(Ordering::Relaxed) != Mode::Off as u8
    }

    /// Returns true if writes should be recorded under the lock that orders them.
    pub fn preserves_write_order(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == Mode::InOrder as u8
    }

    /// Returns true if there is a trace to end.
    pub fn has_trace(&self) -> bool {
        self.running.lock().is_some()
    }

    /// Begins a trace. Does not block.
    ///
    /// # Errors
    /// `Busy`: a trace is already running.
    pub fn start(&self, options: TraceOptions, writer: Box<dyn TraceWriter>) -> Result<()> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Err(Error::new(ErrorKind::Busy, "the database is traced already; end that trace first"));
        }
        let mut buffer = Vec::new();
        let version = (KNOWN_VERSION[0], KNOWN_VERSION[1]);
        match self.form {
            TraceForm::Queries => put_header(&mut buffer, self.micros(), version),
            TraceForm::FileOperations => put_io_header(&mut buffer, self.micros(), version),
        }
        *running = Some(Running {
            options,
            passed: 0,
            bytes: buffer.len() as u64,
            buffer,
            draining: false,
            ended: false,
            missing: 0,
            sink: Arc::new(Mutex::new(Sink { writer, failure: None })),
        });
        let mode = if options.preserve_write_order { Mode::InOrder } else { Mode::On };
        self.mode.store(mode as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Adds a query to the trace, if there is one and its options include it. Does not block.
    #[cold]
    pub fn record(self: &Arc<Self>, query: &Query<'_>) {
        self.add(query.kind(), |filter| filter.leaves_out(query), |out| query.put_payload(out));
    }

    /// Adds a record of this kind, with the payload that `put` appends, unless the filter omits it.
    fn add(
        self: &Arc<Self>,
        kind: u8,
        leaves_out: impl FnOnce(TraceFilter) -> bool,
        put: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut running = self.running.lock();
        let Some(trace) = running.as_mut().filter(|trace| !trace.ended) else { return };
        if trace.bytes > trace.options.max_trace_file_size || leaves_out(trace.options.filter) {
            return;
        }
        trace.passed += 1;
        if trace.passed < trace.options.sampling_frequency {
            return;
        }
        trace.passed = 0;
        let before = trace.buffer.len();
        // Taken under the lock so that times ascend.
        let time = match self.form {
            TraceForm::Queries => self.micros(),
            TraceForm::FileOperations => self.env.now().as_nanos() as u64,
        };
        if before > MOST_BYTES || !put_record(&mut trace.buffer, time, kind, put) {
            trace.missing += 1;
            return;
        }
        trace.bytes += (trace.buffer.len() - before) as u64;
        if trace.buffer.len() < SOME_BYTES || std::mem::replace(&mut trace.draining, true) {
            return;
        }
        let sink = trace.sink.clone();
        drop(running);
        let tracer = self.clone();
        drop(self.env.run_blocking(move |_| tracer.drain(&sink)));
    }

    /// Passes all buffered records of `sink` to its writer.
    fn drain(&self, sink: &Arc<Mutex<Sink>>) {
        let mut to = sink.lock();
        while let Some(records) = self.take_records(sink) {
            if to.failure.is_none()
                && let Err(error) = write_each(&records, &mut *to.writer)
            {
                to.failure = Some(error);
                // Stopped already here because later records would be lost.
                self.mode.store(Mode::Off as u8, Ordering::Relaxed);
            }
        }
    }

    /// Takes the buffered records of `sink`. `None` if it is empty, or if its trace has ended
    /// and another may have begun.
    fn take_records(&self, sink: &Arc<Mutex<Sink>>) -> Option<Vec<u8>> {
        let mut running = self.running.lock();
        let trace = running.as_mut().filter(|trace| Arc::ptr_eq(&trace.sink, sink))?;
        trace.draining = !trace.buffer.is_empty();
        trace.draining.then(|| std::mem::take(&mut trace.buffer))
    }

    /// Ends the trace: adds its last record, writes all records and closes the writer. After the
    /// first poll this happens even if it is not polled again.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no trace. `Incomplete`: records were dropped because the writer
    /// was too slow. Or the writer's first error. The trace has ended in any case but the first.
    pub async fn end(self: &Arc<Self>) -> Result<()> {
        self.stop()?;
        let tracer = self.clone();
        self.env.run_blocking(move |_| tracer.finish()).await
    }

    /// Ends the trace, if any. Blocks.
    ///
    /// # Errors
    /// Those of [`end`](Self::end).
    pub fn end_if_running(self: &Arc<Self>) -> Result<()> {
        if self.has_trace() { block_on(&self.env, self.end()) } else { Ok(()) }
    }

    /// Stops recording, and adds the last record.
    fn stop(&self) -> Result<()> {
        let mut running = self.running.lock();
        let trace = running.as_mut().ok_or_else(none)?;
        self.mode.store(Mode::Off as u8, Ordering::Relaxed);
        // Compat: an I/O trace has no last record.
        if !std::mem::replace(&mut trace.ended, true) && self.form == TraceForm::Queries {
            put_record(&mut trace.buffer, self.micros(), END, |_| ());
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let sink = self.running.lock().as_ref().map(|trace| trace.sink.clone()).ok_or_else(none)?;
        self.drain(&sink);
        // Checked because two callers may end a trace at once, and the next one may have begun
        // since.
        let trace = self.running.lock().take_if(|trace| trace.ended && Arc::ptr_eq(&trace.sink, &sink));
        let missing = trace.ok_or_else(none)?.missing;
        let Sink { writer, failure } = &mut *sink.lock();
        let closed = writer.close();
        failure.take().map_or(closed, Err)?;
        match missing {
            0 => Ok(()),
            _ => {
                let text = format!("the trace lacks {missing} records, because its writer was too slow");
                Err(Error::new(ErrorKind::Incomplete, text))
            }
        }
    }

    fn micros(&self) -> u64 {
        self.env.unix_time().as_micros() as u64
    }
}

/// Passes `records` to `writer`, one by one.
fn write_each(mut records: &[u8], writer: &mut dyn TraceWriter) -> Result<()> {
    while let Some(prefix) = records.first_chunk() {
        let len = PREFIX_BYTES + Prefix::decode(*prefix).payload_bytes as usize;
        let (record, rest) = records.split_at(len);
        writer.write(record)?;
        records = rest;
    }
    Ok(())
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
