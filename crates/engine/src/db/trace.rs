//! The trace of what is asked: begun, ended, and what reads have put into it.
//!
//! In: reads that have found their column family. Out: records for the tracer
//! ([`karst_base::trace`]), which gets those of writes from the commit pipeline and those of seeks
//! from iterators. Invariant: nothing is put together for a database that is not traced.

use super::Db;
use karst_base::error::Result;
use karst_base::trace::{TraceOptions, TraceWriter};
use karst_format::ids::ColumnFamilyId;
use karst_format::trace::Query;
use karst_io::block_on;
use karst_storage::column_family::Family;

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
        self.0.tracer.start(options, writer)
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
        self.0.tracer.end().await
    }

    #[inline]
    pub(super) fn trace_get(&self, family: &Family, key: &[u8]) {
        if self.0.tracer.is_on() {
            self.0.tracer.record(&Query::Get { family: family.id(), key });
        }
    }

    /// The same of many keys, each in the column family that `family_of` its number is.
    #[inline]
    pub(super) fn trace_multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        family_of: impl Fn(usize) -> ColumnFamilyId,
    ) {
        if self.0.tracer.is_on() && !keys.is_empty() {
            let keys = keys.iter().enumerate().map(|(index, key)| (family_of(index), key.as_ref()));
            self.0.tracer.record(&Query::MultiGet(keys.collect()));
        }
    }
}
