//! What jobs need of the commit pipeline: memtables sealed, logs synced, what is visible, writers
//! held.
//!
//! Why by a trait: writers have jobs done, and jobs have memtables sealed; neither knows the other.

use karst_base::error::Result;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that is not named.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A seal that nobody waits for. Dropped once it is dealt with.
pub(crate) trait SealRequest: Send {
    /// Whose memtables are sealed, if anybody's; asked once no other seal is under way.
    fn which(&self) -> Option<Sealing>;

    /// The seal is done, or has failed. No other begins before this returns; it must not wait.
    fn ended(&self, outcome: Result<&Sealed>);

    /// Others may seal again, and listeners were told of what was sealed.
    fn told(&self);
}

/// The commit pipeline, as jobs see it.
pub(crate) trait SealsMemtables: Send + Sync + std::fmt::Debug {
    /// Begins a new log, and seals the memtables that hold anything of the families that `which`
    /// names. Both happen under the lock that orders writes.
    fn seal(&self, which: Sealing) -> BoxFuture<'_, Result<Sealed>>;

    /// Does as [`seal`](Self::seal) for what `request` names, on a thread that may block. Does not
    /// wait.
    ///
    /// Why not as a job among those of flushes: writers wait for it, and a job waits for the flush
    /// that has its thread.
    fn seal_soon(&self, request: Box<dyn SealRequest>);

    /// Makes all that is in logs durable.
    ///
    /// # Errors
    /// The log fails, or has failed before.
    fn sync_logs(&self) -> BoxFuture<'_, Result<()>>;

    /// Makes the decisions about prepared transactions durable that jobs may have gone by. A job
    /// calls it before what it wrote is installed.
    ///
    /// # Errors
    /// As [`sync_logs`](Self::sync_logs).
    fn sync_decisions(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether memtables may hold entries that are in no log.
    fn has_unlogged(&self) -> bool;

    /// The MANIFEST has changed; logs may be needed no more.
    fn installed(&self);

    /// Whether a write or a sync of the log has failed, and nothing has resumed since.
    fn log_has_failed(&self) -> bool;

    /// Refuses what [`resume`](Self::resume) could not make good.
    ///
    /// # Errors
    /// The log failed while transactions were prepared.
    fn check_resumable(&self) -> Result<()>;

    /// Takes writes again after a failed log. Every memtable was sealed and flushed before, and the
    /// MANIFEST needs no log before `first_log`, which the seal has named.
    ///
    /// # Errors
    /// That log has failed as well.
    fn resume(&self, first_log: FileNumber) -> BoxFuture<'_, Result<()>>;

    /// Holds writers up, once nobody else does.
    ///
    /// # Errors
    /// Writes are refused. An insert panicked, ever.
    fn hold(&self) -> BoxFuture<'_, Result<Box<dyn HeldWriters>>>;

    /// Waits until everything up to `seq`, which is in tables, is visible.
    fn wait_published(&self, seq: SeqNo) -> BoxFuture<'_, ()>;

    /// Waits until everything up to `seq` is visible.
    ///
    /// # Errors
    /// An insert panicked, ever: a memtable may lack a part of a batch, which the log has.
    fn wait_visible(&self, seq: SeqNo) -> BoxFuture<'_, Result<()>>;
}

/// Writers that are held up: nobody's write is ordered while it lives, and what was ordered before
/// is visible.
pub(crate) trait HeldWriters: Send + Sync {
    /// The first sequence number that nobody has taken.
    fn next_seq(&self) -> SeqNo;

    /// Takes all sequence numbers up to `last`, for entries that do not go through the pipeline and
    /// may have any key. They are visible once the result is dropped, and never taken again,
    /// whatever becomes of them.
    ///
    /// # Errors
    /// There are not so many; a log has failed, or the database is closed.
    fn take_to(&self, last: SeqNo) -> Result<TakenNumbers>;
}

/// Sequence numbers that are visible once it is dropped.
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

/// Whose memtables are sealed.
#[derive(Clone, Debug)]
pub(crate) enum Sealing {
    Of(Vec<Arc<Family>>),
    /// Those of all families that are open when the seal happens.
    ///
    /// Why not a list: a family that is created between the list and the seal may have a part of a
    /// batch whose other parts are sealed without it.
    All,
}

/// What a seal has done.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    /// The families that it was about. Their memtables that are sealed now hold all that was
    /// ordered to them before the seal, and nothing that was ordered later.
    pub(crate) families: Vec<Arc<Family>>,
    /// What was sealed, and whose it is.
    pub(crate) memtables: Vec<(Arc<Family>, Arc<MemTable>)>,
    /// Entries ordered later are in this log or a later one.
    pub(crate) log: FileNumber,
    /// Entries ordered earlier have at most this number.
    pub(crate) largest_seq: SeqNo,
}
