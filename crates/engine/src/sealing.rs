//! Operations of the commit pipeline that jobs use: sealing memtables, syncing logs, waiting for
//! visibility, holding writers.
//!
//! A trait, because writers start jobs, and jobs seal memtables, and neither may name the other.

use karst_base::error::Result;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A seal without a waiting future. Dropped once it is handled.
pub(crate) trait SealRequest: Send {
    /// Returns the families to seal, or None to skip; called once no other seal is running.
    fn which(&self) -> Option<Sealing>;

    /// Called when the seal is done, or has failed. No other begins before this returns; it must
    /// not wait.
    fn ended(&self, outcome: Result<&Sealed>);

    /// Called when other seals may run again, and listeners know the sealed memtables.
    fn told(&self);
}

/// The commit pipeline, as used by jobs.
pub(crate) trait SealsMemtables: Send + Sync + std::fmt::Debug {
    /// Begins a new log, and seals the non-empty memtables of the families that `which` names. Both
    /// happen under the lock that orders writes.
    fn seal(&self, which: Sealing) -> BoxFuture<'_, Result<Sealed>>;

    /// Seals like [`seal`](Self::seal), for the families that `request` names, on a thread that may
    /// block. Does not wait.
    ///
    /// It is not one of the flush jobs, because writers wait for it, and a job may be waiting for a
    /// flush that occupies its thread.
    fn seal_soon(&self, request: Box<dyn SealRequest>);

    /// Makes all records in the logs durable.
    ///
    /// # Errors
    /// The log fails, or has failed before.
    fn sync_logs(&self) -> BoxFuture<'_, Result<()>>;

    /// Makes decisions about prepared transactions durable that jobs may have relied on. A job
    /// calls it before its output is installed.
    ///
    /// # Errors
    /// Those of [`sync_logs`](Self::sync_logs).
    fn sync_decisions(&self) -> BoxFuture<'_, Result<()>>;

    /// Returns true if memtables may hold entries that are in no log.
    fn has_unlogged(&self) -> bool;

    /// Called when the MANIFEST has changed, so that logs may be obsolete.
    fn installed(&self);

    /// Returns true if a write or a sync of the log has failed, and the log was not resumed since.
    fn log_has_failed(&self) -> bool;

    /// Returns an error if [`resume`](Self::resume) could not restore the database.
    ///
    /// # Errors
    /// The log failed while transactions were prepared.
    fn check_resumable(&self) -> Result<()>;

    /// Accepts writes again after a failed log. Every memtable was sealed and flushed before, and
    /// the MANIFEST needs no log before `first_log`, which the seal returned.
    ///
    /// # Errors
    /// That log has failed too.
    fn resume(&self, first_log: FileNumber) -> BoxFuture<'_, Result<()>>;

    /// Holds writers, once no other caller holds them.
    ///
    /// # Errors
    /// Writes are refused. An insert has panicked, at any time.
    fn hold(&self) -> BoxFuture<'_, Result<Box<dyn HeldWriters>>>;

    /// Waits until everything up to `seq`, which is already in tables, is visible.
    fn wait_published(&self, seq: SeqNo) -> BoxFuture<'_, ()>;

    /// Waits until everything up to `seq` is visible.
    ///
    /// # Errors
    /// An insert has panicked, at any time: a memtable may lack a part of a batch, which the log
    /// has.
    fn wait_visible(&self, seq: SeqNo) -> BoxFuture<'_, Result<()>>;
}

/// Held writers: no write is ordered during its lifetime, and all earlier ones are visible.
pub(crate) trait HeldWriters: Send + Sync {
    /// Returns the first unused sequence number.
    fn next_seq(&self) -> SeqNo;

    /// Takes all sequence numbers up to `last`, for entries that do not go through the pipeline and
    /// may have any key. They become visible when the result is dropped, and are never used again,
    /// even if the entries are not written.
    ///
    /// # Errors
    /// The numbers are exhausted; a log has failed, or the database is closed.
    fn take_to(&self, last: SeqNo) -> Result<TakenNumbers>;
}

/// Sequence numbers that become visible when this is dropped.
pub(crate) struct TakenNumbers(#[expect(dead_code, reason = "it is dropped")] Box<dyn Send>);

impl TakenNumbers {
    pub(crate) fn new(taken: impl Send + 'static) -> Self {
        Self(Box::new(taken))
    }
}

impl std::fmt::Debug for TakenNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenNumbers").finish_non_exhaustive()
    }
}

/// Families whose memtables are sealed.
#[derive(Clone, Debug)]
pub(crate) enum Sealing {
    Of(Vec<Arc<Family>>),
    /// All families that are open when the seal happens.
    ///
    /// Not a list, because a family that is created between the list and the seal may have a part
    /// of a batch whose other parts are sealed without it.
    All,
}

/// Result of a seal.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    /// The families covered by the seal. Their sealed memtables hold all entries that were ordered
    /// to them before the seal, and none that were ordered later.
    pub(crate) families: Vec<Arc<Family>>,
    /// The memtables that this seal sealed, with their families.
    pub(crate) memtables: Vec<(Arc<Family>, Arc<MemTable>)>,
    /// The first log that may have entries ordered after the seal.
    pub(crate) log: FileNumber,
    /// Upper bound of the sequence numbers of entries ordered before the seal.
    pub(crate) largest_seq: SeqNo,
}
