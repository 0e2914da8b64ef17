//! Query and I/O traces: start, end, and the records of reads.
//!
//! In: reads that have found their column family. Out: records for the tracer
//! ([`karst_base::trace`]), which gets those of writes from the commit pipeline and those of seeks
//! from iterators. Invariant: no record is built for a database that is not traced.

use super::{Db, Inner};
use karst_base::error::Result;
use karst_base::sync::Mutex;
use karst_base::trace::{IoObserver, TraceForm, TraceOptions, TraceWriter, Tracer};
use karst_format::ids::ColumnFamilyId;
use karst_format::trace::Query;
use karst_io::{Env, FileObserver, block_on};
use karst_storage::column_family::Family;
use std::path::PathBuf;
use std::sync::Arc;

/// The traces of a database. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    pub(super) queries: Arc<Tracer>,
    io: Arc<Tracer>,
    /// Passes file operations to the I/O trace while there is one. Lock: held to exchange it.
    observer: Arc<Mutex<Option<Arc<dyn FileObserver>>>>,
}

impl Traces {
    pub(super) fn new(env: &Env, queries: Arc<Tracer>) -> Self {
        let io = Tracer::new(env.clone(), TraceForm::FileOperations);
        Self { queries, io, observer: Arc::default() }
    }

    pub(super) fn any(&self) -> bool {
        self.queries.has_trace() || self.io.has_trace()
    }

    /// Ends the running traces. Blocks.
    ///
    /// # Errors
    /// Those of [`Db::end_trace`].
    pub(super) fn end(&self) -> Result<()> {
        drop(self.observer.lock().take());
        let queries = self.queries.end_if_running();
        self.io.end_if_running().and(queries)
    }
}

impl Db {
    /// Starts a trace of the queries of the database: writes, gets, multi gets and seeks of
    /// iterators, with their times, in RocksDB's format. Neither this call nor a traced one blocks,
    /// because a thread that may block passes the records to `writer`. Closing the database ends
    /// the trace.
    ///
    /// # Errors
    /// `Busy`: the database is traced already. `Closed`.
    pub fn start_trace(&self, options: TraceOptions, writer: Box<dyn TraceWriter>) -> Result<()> {
        self.check_open()?;
        self.0.traces.queries.start(options, writer)
    }

    /// Ends the trace. Blocks until its writer has all of its records.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no trace. `Incomplete`: records are missing because the writer
    /// was too slow. Otherwise the writer's first error. In the last two cases the trace has ended.
    pub fn end_trace(&self) -> Result<()> {
        block_on(self.env(), self.end_trace_async())
    }

    /// The asynchronous form of [`Db::end_trace`]. Once polled, the trace ends even if the future
    /// is dropped.
    ///
    /// # Errors
    /// Those of [`Db::end_trace`].
    pub async fn end_trace_async(&self) -> Result<()> {
        self.check_open()?;
        self.0.traces.queries.end().await
    }

    /// Starts a trace of the operations on the database's files: all reads, and writes, syncs and
    /// other operations of files that are opened for writing from now on. Of the options only the
    /// maximum size and the sampling apply. Does not block.
    ///
    /// # Errors
    /// `Busy`: there is an I/O trace already. `Closed`.
    pub fn start_io_trace(&self, options: TraceOptions, writer: Box<dyn TraceWriter>) -> Result<()> {
        self.check_open()?;
        let traces = &self.0.traces;
        traces.io.start(options, writer)?;
        let observer = IoObserver::of(traces.io.clone(), self.0.directories());
        self.env().observe(&observer);
        *traces.observer.lock() = Some(observer);
        Ok(())
    }

    /// Ends the I/O trace. Blocks until its writer has all of its records.
    ///
    /// # Errors
    /// Those of [`Db::end_trace`].
    pub fn end_io_trace(&self) -> Result<()> {
        block_on(self.env(), self.end_io_trace_async())
    }

    /// The asynchronous form of [`Db::end_io_trace`]. Once polled, the trace ends even if the
    /// future is dropped.
    ///
    /// # Errors
    /// Those of [`Db::end_trace`].
    pub async fn end_io_trace_async(&self) -> Result<()> {
        self.check_open()?;
        drop(self.0.traces.observer.lock().take());
        self.0.traces.io.end().await
    }

    #[inline]
    pub(super) fn trace_get(&self, family: &Family, key: &[u8]) {
        if self.0.traces.queries.is_on() {
            self.0.traces.queries.record(&Query::Get { family: family.id(), key });
        }
    }

    /// Traces a multi get; `family_of` maps the index of a key to its column family.
    #[inline]
    pub(super) fn trace_multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        family_of: impl Fn(usize) -> ColumnFamilyId,
    ) {
        if self.0.traces.queries.is_on() && !keys.is_empty() {
            let keys = keys.iter().enumerate().map(|(index, key)| (family_of(index), key.as_ref()));
            self.0.traces.queries.record(&Query::MultiGet(keys.collect()));
        }
    }
}

impl Inner {
    /// Returns the directories of the database's files.
    fn directories(&self) -> Vec<PathBuf> {
        let wal_directory = PathBuf::from(&self.read.db_options.get().wal_dir);
        let mut all: Vec<_> = self.read.shared.all_places().into_iter().map(|(_, place)| place).collect();
        all.push(self.read.path.clone());
        all.extend(Some(wal_directory).filter(|directory| !directory.as_os_str().is_empty()));
        all
    }
}
