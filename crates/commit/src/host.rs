//! Interface of the commit pipeline to its database, injected so that the pipeline can be tested
//! without a database.
//!
//! Any writing thread may call it. Each method documents the lock under which it is called; none
//! may wait or do I/O.

use karst_base::error::{Error, Result};
use karst_base::health::Health;
use karst_base::pacing::StallController;
use karst_base::stats::Statistics;
use karst_base::trace::Tracer;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_io::Env;
use karst_storage::memtable::MemTable;
use smallvec::SmallVec;
use std::sync::Arc;

/// The database, as the commit pipeline sees it.
pub trait Host: Send + Sync + 'static {
    /// Pins the memtable of one column family for one write.
    type Pin: Send + Unpin;

    /// Pins the memtable that takes a column family's writes; `None` if the family does not exist.
    ///
    /// Lock: the order lock, so no memtable is sealed meanwhile.
    ///
    /// # Errors
    /// The family takes no writes.
    fn pin(&self, family: ColumnFamilyId) -> Result<Option<Self::Pin>>;

    /// Returns true if the memtable of a column family must be sealed before a write is ordered
    /// into it.
    ///
    /// Lock: possibly the order lock.
    fn is_overfull(&self, family: ColumnFamilyId) -> bool;

    /// Returns the pinned memtable.
    fn memtable(pin: &Self::Pin) -> &Arc<MemTable>;

    /// Records that `log` holds a prepared section, and must be kept until that is decided.
    ///
    /// Lock: the order lock.
    fn prepared(&self, log: FileNumber);

    /// Records that a batch was inserted into, or has its memory in, the pinned memtable of
    /// `family`, which may be full now. Called by the batch's writer, without a lock, before the
    /// batch is visible.
    fn applied(&self, family: ColumnFamilyId, pin: &Self::Pin);

    /// Reports the total bytes of the logs that were needed when the round was taken, this round
    /// included. Called by the leader after each round, while it has the files.
    fn logs_grew(&self, bytes: u64);

    /// Reports that a log could not be written or synced. The pipeline takes no more writes until
    /// [`Pipeline::resume`](super::Pipeline::resume). Called once for each failure, by the leader,
    /// without a lock.
    fn log_failed(&self, error: &Error);

    /// Reports that `bytes` bytes of a log that takes no more writes are durable; for
    /// `track_and_verify_wals_in_manifest`. Called by the leader under the lock of the files.
    fn log_synced(&self, log: FileNumber, bytes: u64);

    /// Reports that a log takes no more writes and its file no longer changes, so that the file may
    /// be recycled once it is not needed. Called without a lock.
    fn log_ended(&self, log: FileNumber);
}

/// Memtables pinned for one write, by column family.
pub(crate) type Pins<P> = SmallVec<[(ColumnFamilyId, P); 1]>;

/// Surroundings of the pipeline that the steps use.
pub(crate) struct Around<H> {
    pub(crate) env: Env,
    pub(crate) host: H,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) tracer: Arc<Tracer>,
}
