//! The trace of what is asked: begun, ended, and what reads have put into it.
//!
//! In: reads that have found their column family. Out: records for the tracer
//! ([`karst_base::trace`]), which gets those of writes from the commit pipeline and those of seeks
//! from iterators. Invariant: nothing is put together for a database that is not traced.

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
    /// Tells the I/O trace of operations, while there is one. Lock: held to exchange it.
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

    /// Ends those that run. Blocks.
    ///
    /// # Errors
    /// As [`Db::end_trace`].
    pub(super) fn end(&self) -> Result<()> {
        drop(self.observer.lock().take());
        let queries = self.queries.end_if_running();
        self.io.end_if_running().and(queries)
    }
}

impl Db {
    /// Begins to write down what is asked of the database: writes, gets, multi gets and seeks of
    /// iterators, with their times, in RocksDB's format. Does not block, and neither does what is
    /// traced: records are handed to `writer` on a thread that may. Closing the database ends the
    /// trace.
    ///
    /// # Errors
    /// `Busy`: the database is traced already. `Closed`.
    pub fn start_trace(&self, options: TraceOptions, writer: Box<dyn TraceWriter>) -> Result<()> {
        self.check_open()?;
        self.0.traces.queries.start(options, writer)
    }

    /// Ends the trace. Blocks until all of its records are with its writer.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no trace. `Incomplete`: records are missing, as the writer was
    /// too slow for them. Or what the writer said when it failed first. In the last two cases the
    /// trace has ended.
    pub fn end_trace(&self) -> Result<()> {
        block_on(self.env(), self.end_trace_async())
    }

    /// The asynchronous form of [`Db::end_trace`]. Once it was polled the trace ends, whether or
    /// not it is polled again.
    ///
    /// # Errors
    /// As [`Db::end_trace`].
    pub async fn end_trace_async(&self) -> Result<()> {
        self.check_open()?;
        self.0.traces.queries.end().await
    }

    /// Begins to write down what is done to the database's files: reads, and writes, syncs and so
    /// on of files that are opened for writing from now on. Of the options the largest size and the
    /// sampling count. Does not block.
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

    /// Ends the I/O trace. Blocks until all of its records are with its writer.
    ///
    /// # Errors
    /// As [`Db::end_trace`].
    pub fn end_io_trace(&self) -> Result<()> {
        block_on(self.env(), self.end_io_trace_async())
    }

    /// The asynchronous form of [`Db::end_io_trace`]. Once it was polled the trace ends, whether or
    /// not it is polled again.
    ///
    /// # Errors
    /// As [`Db::end_trace`].
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

    /// The same of many keys, each in the column family that `family_of` its number is.
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
    /// Where its files are.
    fn directories(&self) -> Vec<PathBuf> {
        let wal_directory = PathBuf::from(&self.read.db_options.get().wal_dir);
        let mut all: Vec<_> = self.read.shared.all_places().into_iter().map(|(_, place)| place).collect();
        all.push(self.read.path.clone());
        all.extend(Some(wal_directory).filter(|directory| !directory.as_os_str().is_empty()));
        all
    }
}
