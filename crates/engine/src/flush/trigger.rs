//! Triggers of seals and flushes: writers detect the conditions, and notify the scheduler.
//!
//! In: each insert, each append to the log; from the commit pipeline, on the writer's thread. Out:
//! at most one [`Trigger`] per cause, until it is handled.
//!
//! Invariant: a writer without a trigger pays a few relaxed loads. The sink neither waits nor takes
//! a lock that a caller may hold.

use karst_base::events::FlushReason;
use karst_base::options::ColumnFamilyOptions;
use karst_base::pacing::WriteBufferManager;
use karst_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::sync::{Arc, OnceLock};

/// Condition that requires a flush.
#[derive(Clone, Debug)]
pub(crate) enum Trigger {
    /// The family's memtable has reached its size limit.
    MemtableFull(Arc<Family>),
    /// All memtables together, possibly of several databases, exceed their budget.
    OverBudget,
    /// The logs exceed their limit; the memtables that need the oldest one should be flushed.
    LogsTooLong,
}

impl Trigger {
    /// Returns the reason of flushes that the trigger starts.
    pub(crate) fn reason(&self) -> FlushReason {
        match self {
            Trigger::MemtableFull(_) => FlushReason::WriteBufferFull,
            Trigger::OverBudget => FlushReason::WriteBufferManager,
            Trigger::LogsTooLong => FlushReason::WalFull,
        }
    }
}

/// Fraction of `write_buffer_size` by which a memtable may exceed it before writes to it wait for
/// its seal: less than a block of its memory.
const OVER_PART: usize = 32;

type Sink = Box<dyn Fn(Trigger) + Send + Sync>;

/// Detects flush triggers and passes each to the scheduler once; see the module.
pub(crate) struct Triggers {
    budget: WriteBufferManager,
    /// Total bytes of all logs above which memtables are flushed; 0 for no limit.
    max_log_bytes: AtomicU64,
    sink: OnceLock<Sink>,
    /// True if the trigger was sent, and is not handled yet.
    over_budget: AtomicBool,
    logs_too_long: AtomicBool,
}

impl std::fmt::Debug for Triggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers").field("max_log_bytes", &self.max_log_bytes).finish_non_exhaustive()
    }
}

impl Triggers {
    /// Creates triggers without a scheduler; none are sent until [`connect`](Self::connect).
    pub(crate) fn new(budget: WriteBufferManager) -> Self {
        Self {
            budget,
            max_log_bytes: AtomicU64::new(0),
            sink: OnceLock::new(),
            over_budget: AtomicBool::new(false),
            logs_too_long: AtomicBool::new(false),
        }
    }

    /// Sets the scheduler. Only the first call has an effect.
    pub(crate) fn connect(&self, sink: impl Fn(Trigger) + Send + Sync + 'static) {
        // Ignored, because a second sink would be a second scheduler, which no caller has.
        let _ = self.sink.set(Box::new(sink));
    }

    /// Sets the limit of the total bytes of all logs; 0 for no limit.
    pub(crate) fn set_max_log_bytes(&self, bytes: u64) {
        self.max_log_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the limits of the total bytes of all logs, and of all memtables; 0 for no limit.
    pub(crate) fn budgets(&self) -> (u64, usize) {
        (self.max_log_bytes.load(Ordering::Relaxed), self.budget.limit_bytes())
    }

    /// Returns the budget of all memtables.
    pub(crate) fn budget(&self) -> &WriteBufferManager {
        &self.budget
    }

    /// Called after a writer has inserted its entries into the family's `memtable`, under these
    /// options.
    #[inline]
    pub(crate) fn inserted(&self, family: &Arc<Family>, memtable: &MemTable, options: &ColumnFamilyOptions) {
        let bytes = memtable.memory_bytes();
        memtable.follow_budget(&self.budget, bytes);
        let tombstones = options.memtable_max_range_deletions as usize;
        let full = bytes >= options.write_buffer_size
            || (tombstones > 0 && memtable.range_tombstone_count() >= tombstones);
        if full {
            self.filled(family, memtable, bytes, options.write_buffer_size);
        }
        if self.budget.should_flush() && !self.over_budget.swap(true, Ordering::Relaxed) {
            self.tell(Trigger::OverBudget);
        }
    }

    #[cold]
    fn filled(&self, family: &Arc<Family>, memtable: &MemTable, bytes: usize, size: usize) {
        if memtable.ask_to_be_sealed() {
            self.tell(Trigger::MemtableFull(family.clone()));
        }
        // Not at once, because a memtable is full when its last block is begun, and writers need
        // not wait for the seal while that has room.
        if bytes > size.saturating_add(size / OVER_PART) {
            memtable.mark_overfull();
        }
    }

    /// Called when the logs needed a moment ago have grown to `bytes` in total.
    #[inline]
    pub(crate) fn logs_grew(&self, bytes: u64) {
        let limit = self.max_log_bytes.load(Ordering::Relaxed);
        if limit > 0 && bytes > limit && !self.logs_too_long.swap(true, Ordering::Relaxed) {
            self.tell(Trigger::LogsTooLong);
        }
    }

    /// Called when the scheduler has handled [`Trigger::OverBudget`].
    pub(crate) fn budget_dealt_with(&self) {
        self.over_budget.store(false, Ordering::Relaxed);
    }

    /// Called when the scheduler has handled [`Trigger::LogsTooLong`].
    pub(crate) fn logs_dealt_with(&self) {
        self.logs_too_long.store(false, Ordering::Relaxed);
    }

    #[cold]
    fn tell(&self, trigger: Trigger) {
        if let Some(sink) = self.sink.get() {
            sink(trigger);
        }
    }
}
