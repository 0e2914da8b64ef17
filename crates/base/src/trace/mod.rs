//! What is asked of a database, written down while it runs: the query trace; and what is done to
//! its files (`io`).
//!
//! In: reads and writes, each after it has found its column family; writes once they are ordered.
//! Out: records ([`karst_format::trace`]) for a [`TraceWriter`], in the order in which they came.
//!
//! A record is put into a buffer under a short lock, and jobs on threads that may block hand what
//! has gathered to the writer, so no call of the database ever waits for it. Where the writer is
//! too slow, and 64 MiB wait for it, records are left out and counted, and the end of the
//! trace says so.
//!
//! A database that is not traced pays with one relaxed load for each read and two for each write.
//!
//! Locks: the sink's is held by whoever hands records to the writer, while it writes; `running` is
//! locked within, by recorders within the order lock, and never while anybody waits.

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

/// With so many bytes gathered a job begins to write.
const SOME_BYTES: usize = 256 << 10;
/// More bytes do not wait for the writer.
const MOST_BYTES: usize = 64 << 20;

/// Kinds of records that a trace leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter(pub u64);

impl TraceFilter {
    /// Nothing is left out.
    pub const NONE: Self = Self(0);
    /// Gets are.
    pub const GET: Self = Self(1);
    /// Writes are.
    pub const WRITE: Self = Self(1 << 1);
    /// Seeks of iterators are.
    pub const ITERATOR_SEEK: Self = Self(1 << 2);
    /// Seeks of iterators to the last key at or before another are.
    pub const ITERATOR_SEEK_FOR_PREV: Self = Self(1 << 3);
    /// Multi gets are.
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

/// What a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Nothing but the end is added to a trace of more bytes than this. Default: 64 GiB.
    pub max_trace_file_size: u64,
    /// One of so many queries is traced. 0 is as 1. Default: 1, all.
    pub sampling_frequency: u64,
    /// What is left out. It does not count for the sampling. Default: nothing.
    pub filter: TraceFilter,
    /// Writes are in the trace in the order in which they are in the log. Each then adds its record
    /// under the lock that orders writes. Default: no; then writes of several threads at the same
    /// time may change places.
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

/// Where the records of a trace go. Called on threads that may block, one call at a time.
pub trait TraceWriter: Send {
    /// Takes the next record, the prefix included. It is whole.
    ///
    /// # Errors
    /// The trace takes no more records then; the error is told when it is ended.
    fn write(&mut self, record: &[u8]) -> Result<()>;

    /// Takes note that no more records come.
    ///
    /// # Errors
    /// Not all records that were taken are where they should be.
    fn close(&mut self) -> Result<()>;
}

/// What a trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceForm {
    /// What is asked of a database.
    Queries,
    /// What is done to its files.
    FileOperations,
}

/// Whether a database is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Off,
    On,
    /// On, and the order of writes counts.
    InOrder,
}

/// The trace of one database, if there is one. See the module's head.
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
    /// Queries since the last that was traced.
    passed: u64,
    /// Of all records so far.
    bytes: u64,
    /// Records that no job has taken.
    buffer: Vec<u8>,
    /// A job was asked to take them.
    draining: bool,
    /// Nothing is added any more.
    ended: bool,
    /// Records that found no room.
    missing: u64,
    sink: Arc<Mutex<Sink>>,
}

/// What has records written.
struct Sink {
    writer: Box<dyn TraceWriter>,
    failure: Option<Error>,
}

fn none() -> Error {
    Error::invalid_argument("there is no trace to end")
}

impl Tracer {
    /// Traces nothing yet.
    pub fn new(env: Env, form: TraceForm) -> Arc<Self> {
        Arc::new(Self { env, form, mode: AtomicU8::new(Mode::Off as u8), running: Mutex::new(None) })
    }

    /// Whether queries are to be recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Ordering: whoever finds it on looks again under the lock; whoever finds it off came
        // before.
        self.mode.load(Ordering::Relaxed) != Mode::Off as u8
    }

    /// Whether writes are to be recorded under the lock that orders them.
    pub fn preserves_write_order(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == Mode::InOrder as u8
    }

    /// Whether there is a trace to end.
    pub fn has_trace(&self) -> bool {
        self.running.lock().is_some()
    }

    /// Begins a trace. Does not block.
    ///
    /// # Errors
    /// `Busy`: there is one already.
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

    /// Adds a query to the trace, if there is one and its options have it so. Does not block.
    #[cold]
    pub fn record(self: &Arc<Self>, query: &Query<'_>) {
        self.add(query.kind(), |filter| filter.leaves_out(query), |out| query.put_payload(out));
    }

    /// Adds a record of this kind, unless the filter leaves it out, whose payload `put` appends.
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
        // Why under the lock: so the times ascend.
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

    /// Hands everything that has gathered for `sink` to its writer.
    fn drain(&self, sink: &Arc<Mutex<Sink>>) {
        let mut to = sink.lock();
        while let Some(records) = self.take_records(sink) {
            if to.failure.is_none()
                && let Err(error) = write_each(&records, &mut *to.writer)
            {
                to.failure = Some(error);
                // Why already here: what is recorded from now on would go nowhere.
                self.mode.store(Mode::Off as u8, Ordering::Relaxed);
            }
        }
    }

    /// What has gathered for `sink`. `None` if nothing has, or its trace has ended and another may
    /// have begun.
    fn take_records(&self, sink: &Arc<Mutex<Sink>>) -> Option<Vec<u8>> {
        let mut running = self.running.lock();
        let trace = running.as_mut().filter(|trace| Arc::ptr_eq(&trace.sink, sink))?;
        trace.draining = !trace.buffer.is_empty();
        trace.draining.then(|| std::mem::take(&mut trace.buffer))
    }

    /// Ends the trace: its last record is added, all are written, and the writer is closed. Once it
    /// was polled this happens, whether or not it is polled again.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no trace. `Incomplete`: records found no room, as the writer was
    /// too slow. Or what the writer said when it failed first. The trace has ended all the same.
    pub async fn end(self: &Arc<Self>) -> Result<()> {
        self.stop()?;
        let tracer = self.clone();
        self.env.run_blocking(move |_| tracer.finish()).await
    }

    /// Ends the trace if there is one. Blocks.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_if_running(self: &Arc<Self>) -> Result<()> {
        if self.has_trace() { block_on(&self.env, self.end()) } else { Ok(()) }
    }

    /// Takes no more queries, and adds the last record.
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
        // Why looked at: two may end a trace at once, and the next may have begun since.
        let trace = self.running.lock().take_if(|trace| trace.ended && Arc::ptr_eq(&trace.sink, &sink));
        let missing = trace.ok_or_else(none)?.missing;
        let Sink { writer, failure } = &mut *sink.lock();
        let closed = writer.close();
        failure.take().map_or(closed, Err)?;
        match missing {
            0 => Ok(()),
            _ => {
                let text = format!("the trace lacks {missing} records: its writer was too slow for them");
                Err(Error::new(ErrorKind::Incomplete, text))
            }
        }
    }

    fn micros(&self) -> u64 {
        self.env.unix_time().as_micros() as u64
    }
}

/// Hands `records` to `writer`, one by one.
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
