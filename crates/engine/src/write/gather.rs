//! Small writes that are acknowledged before their entries are inserted, so that several are inserted together.
//!
//! In: writes of a few point entries whose records are where they have to be. Out: the same entries in the memtable, at the latest when somebody asks what is visible.
//!
//! Why: an insert is a search, a chain of cache misses; `SkipList::link_all` lets several searches take turns in waiting for memory, but a writer that puts one key at a time has nothing to take
//! turns with. So its entry is copied into the memtable's memory, where it stays, and is linked together with those of the next writes: by the writer that completes a group, or by the first
//! reader. docs/decisions/memtable-search.md has what it costs and brings.
//!
//! Invariants:
//! - The writes that wait are the first that are not published, and all go to one memtable. Any other write is inserted at once.
//! - A write waits only while nobody waits for it: not if the next ticket is finished already, or someone waits for room or visibility; and whoever finishes a ticket in any other way has
//!   everything inserted that waits.
//! - It is for a writer that is alone. Whoever meets somebody else at it, a reader that finds something left or another writer, has the next [`HOLD_OFF`] writes
//!   insert their own entries: readers are not made to do what writers left, and writers at the same time have nothing to gain, as the processor has several searches already.
//!
//! Lock: `waiting` is held while entries are linked, so that who finds that something waits also waits until it is in; nothing else is taken under it but the ring's wakers.
//!
//! Ordering: who leaves a write stores `count`, fences, and looks for those who wait behind it (the next ticket's mark, `room_waiters`); they make their mark, fence, and look at `count`.
//! One sees the other.

use super::commit::Applying;
use super::host::Host;
use super::pipeline::Pipeline;
use super::source::{Pins, Source};
use crate::memtable::MemTable;
use karst_format::key::SeqNo;
use karst_mem::Unlinked;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Entries that are inserted together: as many as searches take turns.
const GROUP: usize = 8;
/// Writes that insert their own entries after somebody met another here.
const HOLD_OFF: u32 = 256;

type Entries = SmallVec<[Unlinked; GROUP]>;

/// What became of a write that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gather {
    /// It waits, or was published with those that waited. It is acknowledged either way.
    Waits,
    /// It was inserted, and its ticket is to be finished.
    Inserted,
    /// It was left alone.
    No,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// How many writes wait. Changed under the lock.
    count: AtomicU64,
    /// Writes still to be inserted at once.
    hold_off: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// `None` if nothing waits.
    memtable: Option<Arc<MemTable>>,
    entries: Entries,
    /// Writes that the entries are of; their tickets are the first that are not published.
    writes: u64,
    /// The last one's sequence number.
    last_seq: SeqNo,
}

impl<H: Host> Pipeline<H> {
    /// Offers a write that may be applied. If it is taken, the pins are let go of.
    pub(super) fn gather(
        &self,
        source: &Source<'_>,
        (ticket, first_seq, last_seq): (u64, SeqNo, SeqNo),
        pins: &mut Pins<H::Pin>,
    ) -> Gather {
        // Ordering: only steers. Why not subtracted: writers that race here may take one step together.
        let hold_off = self.gathered.hold_off.load(Ordering::Relaxed);
        if hold_off > 0 {
            self.gathered.hold_off.store(hold_off - 1, Ordering::Relaxed);
            return Gather::No;
        }
        let [(_, pin)] = &pins[..] else { return Gather::No };
        if !source.has_few() {
            return Gather::No;
        }
        let memtable = H::memtable(pin);
        let mut entries = Entries::new();
        source.each_point(first_seq, |entry| entries.push(memtable.prepare(entry)));
        let outcome = self.leave(memtable, (ticket, last_seq), &mut entries);
        self.applied(pins);
        match outcome {
            Gather::Waits => self.ring_room(),
            Gather::Inserted | Gather::No => self.hold_off(),
        }
        outcome
    }

    // Why by reference: they are some hundred bytes, used or not.
    fn leave(
        &self,
        memtable: &Arc<MemTable>,
        (ticket, last_seq): (u64, SeqNo),
        entries: &mut Entries,
    ) -> Gather {
        let gathered = &self.gathered;
        let next = |waiting: &Waiting| {
            let elsewhere = waiting.memtable.as_ref().is_some_and(|other| !Arc::ptr_eq(other, memtable));
            !elsewhere && self.ring.published() + waiting.writes == ticket
        };
        let Some(mut waiting) = gathered.waiting.try_lock().filter(|waiting| next(waiting)) else {
            let applying = Applying { pipeline: self, ticket };
            insert(memtable, entries.drain(..));
            std::mem::forget(applying);
            return Gather::Inserted;
        };
        if waiting.memtable.is_none() {
            waiting.memtable = Some(memtable.clone());
        }
        entries.drain(..).for_each(|entry| waiting.entries.push(entry));
        waiting.writes += 1;
        waiting.last_seq = last_seq;
        gathered.count.store(waiting.writes, Ordering::Release);
        fence(Ordering::SeqCst);
        if waiting.entries.len() >= GROUP || self.ring.is_finished(ticket + 1) || self.has_room_waiters() {
            self.settle_locked(&mut waiting);
        }
        Gather::Waits
    }

    /// Has everything inserted that waits. For readers too, before they read.
    #[inline]
    pub(super) fn settle(&self) {
        // Ordering: see the module's head; on the way of those who have made their mark.
        if self.gathered.count.load(Ordering::SeqCst) > 0 {
            self.hold_off();
            self.settle_locked(&mut self.gathered.waiting.lock());
            self.ring_room();
        }
    }

    #[cold]
    fn hold_off(&self) {
        // Ordering: only steers.
        self.gathered.hold_off.store(HOLD_OFF, Ordering::Relaxed);
    }

    #[cold]
    fn settle_locked(&self, waiting: &mut Waiting) {
        let Some(memtable) = waiting.memtable.take() else { return };
        // Why caught: their tickets are finished whatever happens, or everyone behind them waits for ever.
        let inserted = catch_unwind(AssertUnwindSafe(|| insert(&memtable, waiting.entries.drain(..))));
        let (first, writes) = (self.ring.published(), std::mem::take(&mut waiting.writes));
        self.ring.finish_run(first, writes);
        let published = self.ring.is_published(first + writes - 1, waiting.last_seq.0);
        debug_assert!(published, "all before them were published");
        // Ordering: who finds nothing waiting finds it published, and the value with it.
        self.gathered.count.store(0, Ordering::Release);
        if let Err(panic) = inserted {
            waiting.entries.clear();
            self.insert_panicked();
            resume_unwind(panic);
        }
    }
}

fn insert(memtable: &MemTable, entries: impl IntoIterator<Item = Unlinked>) {
    // Invariant: no two entries have one number, so none can be there already.
    memtable.link(entries).expect("a sequence number is used once");
}
