//! The apply step: a batch whose record is where it has to be goes into the memtables, and its
//! ticket ends.
//!
//! In: batches that were ordered and are persisted, with their pins. Out: their entries, and their
//! tickets finished, whatever happens.
//!
//! | file | holds |
//! |---|---|
//! | `gather` | small writes that are acknowledged and wait to be inserted together |
//! | `orphans` | batches that others than their writers may apply |
//!
//! Invariants:
//! - Whoever asks what is visible first inserts what is left to be inserted, so an acknowledged
//!   write is visible to whoever asks.
//! - An insert that panics ends its ticket, and with it the memtable's: nobody is given anything of
//!   it any more, and nothing is ordered, until the database is opened anew.

mod gather;
mod orphans;

pub(crate) use gather::Gather;
pub(crate) use orphans::Orphan;

use crate::bargain::LeftBehind;
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

/// See the module's head.
pub(crate) struct Apply<H: Host> {
    around: Arc<Around<H>>,
    publish: Arc<Publish>,
    /// Batches of writers that may not come back for them.
    orphans: LeftBehind<Orphan<H>>,
    /// Whether an insert panicked, ever. Set before its ticket is finished.
    has_panicked: AtomicBool,
    /// The tickets of batches whose insert panicked.
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

    /// Ends a ticket, whose work is done.
    pub(crate) fn finish(&self, ticket: u64) {
        self.publish.finish(ticket);
        // Why: whoever waits behind this ticket may wait for those too, and nobody else would come
        // for them.
        self.settle();
        self.publish.ring_room();
    }

    /// Inserts a batch, and ends its ticket. Lets go of the pins.
    ///
    /// # Panics
    /// A comparator does. The ticket is finished all the same, since everyone behind it waits for
    /// it, and the database takes no more writes.
    pub(crate) fn apply(&self, ticket: u64, source: &Source<'_>, first_seq: SeqNo, pins: &mut Pins<H::Pin>) {
        let inserting = Applying { apply: self, ticket, pins: &pins[..] };
        if let Some(phase) = source.phase() {
            phase.applies();
        }
        // Invariant: no two entries have one number, so none can be there already.
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

    /// Says of each memtable that something was inserted. Lets go of the pins.
    fn applied(&self, pins: &mut Pins<H::Pin>) {
        let Around { env, host, stalls, .. } = &*self.around;
        for (family, pin) in pins.drain(..) {
            host.applied(family, &pin);
        }
        if karst_mem::wants_blocks() {
            // Why detached: nobody waits for it; memtables that need memory sooner get it
            // themselves.
            let spare_bytes = stalls.spare_memory_bytes();
            drop(env.run_blocking(move |_| karst_mem::stock_blocks(spare_bytes)));
        }
    }

    /// Whether memtables have all that was inserted into them.
    ///
    /// # Errors
    /// An insert panicked, ever.
    pub(crate) fn check_inserts(&self) -> Result<()> {
        match self.has_panicked.load(Ordering::Relaxed) {
            true => Err(insert_panicked()),
            false => Ok(()),
        }
    }

    /// Whether the insert of this ticket panicked.
    #[inline]
    pub(crate) fn has_panicked(&self, ticket: u64) -> bool {
        self.has_panicked.load(Ordering::Relaxed) && self.panicked.lock().contains(&ticket)
    }

    /// Takes no more writes, since an insert panicked, that of `ticket` if it is of one only; then
    /// `finish`es what was being inserted, and tells of it.
    ///
    /// Why fatal: a part of a batch may be in the memtable, where nobody reads any more. The log
    /// has all of it, and nothing is flushed any more; so it is whole when the database is opened
    /// anew.
    #[cold]
    fn insert_panicked(&self, ticket: Option<u64>, finish: impl FnOnce()) {
        self.panicked.lock().extend(ticket);
        self.has_panicked.store(true, Ordering::Relaxed);
        let health = &self.around.health;
        let noted = health.note(&insert_panicked(), BackgroundErrorReason::MemTable);
        // Why caught: it inserts what waits behind, too, and a second panic would be the process's
        // end.
        let _ = catch_unwind(AssertUnwindSafe(finish));
        if let Some(noted) = noted {
            health.tell(noted);
        }
    }
}

fn insert_panicked() -> Error {
    Error::new(ErrorKind::Panicked, "inserting a batch into a memtable panicked, as a comparator may have")
}

/// A batch that is being inserted. Dropped if that panics.
struct Applying<'a, H: Host> {
    apply: &'a Apply<H>,
    ticket: u64,
    /// The memtables that may have a part of it.
    pins: &'a [(ColumnFamilyId, H::Pin)],
}

impl<H: Host> Drop for Applying<'_, H> {
    fn drop(&mut self) {
        // Why all: whichever it was, a reader of another would see half of the batch.
        self.pins.iter().for_each(|(_, pin)| H::memtable(pin).mark_broken());
        self.apply.insert_panicked(Some(self.ticket), || self.apply.finish(self.ticket));
    }
}
