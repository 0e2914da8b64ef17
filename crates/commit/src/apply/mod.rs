//! The apply step: inserts a persisted batch into the memtables and finishes its ticket.
//!
//! It takes ordered and persisted batches with their pins. Every ticket is finished, even if an
//! insert panics.
//!
//! | file | holds |
//! |---|---|
//! | `gather` | small writes that are acknowledged and wait to be inserted together |
//! | `orphans` | batches that others than their writers may apply |
//!
//! Invariants:
//! - Any query for the visible sequence number first inserts the waiting entries, so every
//!   acknowledged write is visible to it.
//! - An insert that panics finishes its ticket and marks the memtable as broken: no entry of it is
//!   read or flushed any more, and no write is ordered until the database is reopened.

mod gather;
mod orphans;

pub(crate) use gather::Gather;
pub(crate) use orphans::Orphan;

use crate::handoff::LeftBehind;
use crate::host::{Around, Host, Pins};
use crate::publish::Publish;
use crate::source::Source;
use gather::Gathering;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::health::BackgroundErrorReason;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// State of the apply step.
pub(crate) struct Apply<H: Host> {
    around: Arc<Around<H>>,
    publish: Arc<Publish>,
    /// Batches whose writers may not come back for them.
    orphans: LeftBehind<Orphan<H>>,
    /// True if an insert ever panicked. Set before its ticket is finished.
    has_panicked: AtomicBool,
    /// Tickets of batches whose insert panicked.
    panicked: Mutex<Vec<u64>>,
    gathering: Gathering,
}

impl<H: Host> Apply<H> {
    pub(crate) fn new(around: Arc<Around<H>>, publish: Arc<Publish>) -> Self {
        Self {
            around,
            publish,
            orphans: LeftBehind::default(),
            has_panicked: AtomicBool::new(false),
            panicked: Mutex::default(),
            gathering: Gathering::default(),
        }
    }

    /// Finishes a ticket whose work is done.
    pub(crate) fn finish(&self, ticket: u64) {
        self.publish.finish(ticket);
        // A waiter behind this ticket may also wait for the gathered entries, which no other caller
        // would insert.
        self.settle();
        self.publish.ring_room();
    }

    /// Inserts a batch, finishes its ticket and releases the pins.
    ///
    /// # Panics
    /// A comparator panics. The ticket is finished nevertheless, because later tickets wait for it,
    /// and the database takes no more writes.
    pub(crate) fn apply(&self, ticket: u64, source: &Source<'_>, first_seq: SeqNo, pins: &mut Pins<H::Pin>) {
        let inserting = Applying { apply: self, ticket, pins: &pins[..] };
        if let Some(phase) = source.phase() {
            phase.applies();
        }
        // Invariant: no two entries share a sequence number, so none is a duplicate.
        source.insert::<H>(first_seq, pins).expect("a sequence number is used once");
        std::mem::forget(inserting);
        let applying = Applying { apply: self, ticket, pins: &[] };
        self.applied(pins);
        if let Some(phase) = source.phase() {
            phase.applied(first_seq);
        }
        std::mem::forget(applying);
        self.finish(ticket);
    }

    /// Reports the insert to the host for each memtable, and releases the pins.
    fn applied(&self, pins: &mut Pins<H::Pin>) {
        let Around { env, host, stalls, .. } = &*self.around;
        for (family, pin) in pins.drain(..) {
            host.applied(family, &pin);
        }
        if karst_mem::wants_blocks() {
            // Detached: no caller waits for it, and a memtable that needs memory sooner allocates
            // it itself.
            let spare_bytes = stalls.spare_memory_bytes();
            drop(env.run_blocking(move |_| karst_mem::stock_blocks(spare_bytes)));
        }
    }

    /// Checks that memtables hold all that was inserted into them.
    ///
    /// # Errors
    /// An insert ever panicked.
    pub(crate) fn check_inserts(&self) -> Result<()> {
        match self.has_panicked.load(Ordering::Relaxed) {
            true => Err(insert_panicked()),
            false => Ok(()),
        }
    }

    /// Returns true if the insert of this ticket panicked.
    #[inline]
    pub(crate) fn has_panicked(&self, ticket: u64) -> bool {
        self.has_panicked.load(Ordering::Relaxed) && self.panicked.lock().contains(&ticket)
    }

    /// Refuses all further writes after an insert panicked: that of `ticket`, or of a group if
    /// `None`. Then calls `finish`, and reports the error.
    ///
    /// Fatal, because a part of a batch may be in the memtable, which is not read any more. The log
    /// has the whole batch, and no flush happens any more, so it is recovered when the database is
    /// reopened.
    #[cold]
    fn insert_panicked(&self, ticket: Option<u64>, finish: impl FnOnce()) {
        self.panicked.lock().extend(ticket);
        self.has_panicked.store(true, Ordering::Relaxed);
        let health = &self.around.health;
        let noted = health.note(&insert_panicked(), BackgroundErrorReason::MemTable);
        // Caught, because `finish` also inserts entries that wait behind, and a second panic while
        // unwinding would abort the process.
        let _ = catch_unwind(AssertUnwindSafe(finish));
        if let Some(noted) = noted {
            health.tell(noted);
        }
    }
}

fn insert_panicked() -> Error {
    Error::new(ErrorKind::Panicked, "inserting a batch into a memtable panicked, as a comparator may have")
}

/// A batch whose insert is under way. Dropped only if that panics.
struct Applying<'a, H: Host> {
    apply: &'a Apply<H>,
    ticket: u64,
    /// Memtables that may have a part of the batch.
    pins: &'a [(ColumnFamilyId, H::Pin)],
}

impl<H: Host> Drop for Applying<'_, H> {
    fn drop(&mut self) {
        // All memtables, because a reader of any other one would see half of the batch.
        self.pins.iter().for_each(|(_, pin)| H::memtable(pin).mark_broken());
        self.apply.insert_panicked(Some(self.ticket), || self.apply.finish(self.ticket));
    }
}
