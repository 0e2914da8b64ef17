//! What the commit pipeline needs from the database it is part of. It is injected, so that the
//! pipeline can be tested without a database.
//!
//! Calls come from any thread that writes. Each says under which lock it is made; none may wait or
//! do I/O.

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
    /// Keeps the memtable of one column family in hand for one write.
    type Pin: Send + Unpin;

    /// Pins the memtable that takes the writes of a column family now; `None` if there is no such
    /// family.
    ///
    /// Lock: the one that orders writes, so no memtable is sealed meanwhile.
    ///
    /// # Errors
    /// The family takes no writes.
    fn pin(&self, family: ColumnFamilyId) -> Result<Option<Self::Pin>>;

    /// Whether the memtable of a column family has to be sealed before a write is ordered into it.
    ///
    /// Lock: perhaps the one that orders writes.
    fn is_overfull(&self, family: ColumnFamilyId) -> bool;

    /// The pinned memtable.
    fn memtable(pin: &Self::Pin) -> &Arc<MemTable>;

    /// A prepared section is in `log`, which has to be kept until it is decided.
    ///
    /// Lock: the one that orders writes.
    fn prepared(&self, log: FileNumber);

    /// A batch was inserted into, or has its memory in, the pinned memtable of `family`, which may
    /// be full now. Called by its writer, without a lock, before the batch is visible.
    fn applied(&self, family: ColumnFamilyId, pin: &Self::Pin);

    /// All logs that were needed when the round was taken have so many bytes with it. Called by the
    /// leader after each round, under its lock.
    fn logs_grew(&self, bytes: u64);

    /// A log could not be written or synced. The pipeline takes no more writes until
    /// [`Pipeline::resume`](super::Pipeline::resume). Called once for each failure, by the leader,
    /// without a lock.
    fn log_failed(&self, error: &Error);

    /// A log that takes no more writes is durable, with so many bytes; for
    /// `track_and_verify_wals_in_manifest`. Called by the leader under its lock.
    fn log_synced(&self, log: FileNumber, bytes: u64);

    /// A log takes no more writes, and its file is not changed any more: it may become another
    /// log's once nobody needs it. Called without a lock.
    fn log_ended(&self, log: FileNumber);
}

/// Memtables pinned for one write, by column family.
pub(crate) type Pins<P> = SmallVec<[(ColumnFamilyId, P); 1]>;

/// What the steps reach of what is around the pipeline.
pub(crate) struct Around<H> {
    pub(crate) env: Env,
    pub(crate) host: H,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) tracer: Arc<Tracer>,
}
