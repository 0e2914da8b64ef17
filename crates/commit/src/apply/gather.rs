//! Small writes that are acknowledged before their entries are inserted, so that several are
//! inserted together.
//!
//! In: writes of a few point entries whose records are where they have to be. Out: the same entries
//! in the memtable, at the latest when somebody asks what is visible.
//!
//! Why: an insert is a search, a chain of cache misses; `SkipList::link_all` lets several searches
//! take turns in waiting for memory, but a writer that puts one key at a time has nothing to take
//! turns with. So its entry is copied into the memtable's memory, where it stays, and is linked
//! together with those of the next writes: by the writer that completes a group, or by the first
//! reader. docs/decisions/memtable-search.md has what it costs and brings.
//!
//! Invariants, besides those of [`Gathered`]:
//! - The writes that wait all go to one memtable. Any other write is inserted at once.
//! - It is for a writer that is alone. Whoever meets somebody else at it, a reader that finds
//!   something left or another writer, has the next [`HOLD_OFF`] writes insert their own entries:
//!   readers are not made to do what writers left, and writers at the same time have nothing to
//!   gain, as the processor has several searches already.

use super::{Apply, Applying};
use crate::bargain::Gathered;
use crate::host::{Host, Pins};
use crate::source::Source;
use karst_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use karst_format::key::SeqNo;
use karst_mem::Unlinked;
use karst_storage::memtable::MemTable;
use smallvec::SmallVec;
use std::sync::Arc;

/// Entries that are inserted together: as many as searches take turns.
const GROUP: usize = 8;
/// Writes that insert their own entries after somebody met another here.
const HOLD_OFF: u32 = 256;

type Entries = SmallVec<[Unlinked; GROUP]>;

/// What became of a write that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// It waits, or was published with those that waited. It is acknowledged either way.
    Waits,
    /// It was inserted, and its ticket is to be finished.
    Inserted,
    /// It was left alone.
    No,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Writes still to be inserted at once.
    hold_off: AtomicU32,
    waiting: Gathered<Group>,
}

#[derive(Debug, Default)]
struct Group {
    /// `None` if there is nothing.
    memtable: Option<Arc<MemTable>>,
    entries: Entries,
}

impl<H: Host> Apply<H> {
    /// Offers a write that may be applied. If it is taken, the pins are let go of.
    pub(crate) fn gather(
        &self,
        source: &Source<'_>,
        (ticket, first_seq, last_seq): (u64, SeqNo, SeqNo),
        pins: &mut Pins<H::Pin>,
    ) -> Gather {
        // Ordering: only steers. Why not subtracted: writers that race here may take one step
        // together.
        let hold_off = self.gathering.hold_off.load(Ordering::Relaxed);
        if hold_off > 0 {
            self.gathering.hold_off.store(hold_off - 1, Ordering::Relaxed);
            return Gather::No;
        }
        let [(_, pin)] = &pins[..] else { return Gather::No };
        if !source.has_few() {
            return Gather::No;
        }
        let memtable = H::memtable(pin);
        let mut entries = Entries::new();
        let applying = Applying { apply: self, ticket, pins: &pins[..] };
        source.each_point(first_seq, |entry| entries.push(memtable.prepare(entry)));
        std::mem::forget(applying);
        let outcome = self.leave(memtable, (ticket, last_seq), &mut entries);
        self.applied(pins);
        match outcome {
            Gather::Waits => self.publish.ring_room(),
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
        let fits = |group: &Group| group.memtable.as_ref().is_none_or(|other| Arc::ptr_eq(other, memtable));
        let add = |group: &mut Group| {
            group.memtable.get_or_insert_with(|| memtable.clone());
            entries.drain(..).for_each(|entry| group.entries.push(entry));
            group.entries.len() >= GROUP
        };
        let waiting = &self.gathering.waiting;
        let inserting = Inserting(self);
        let insert_group = |group: &mut Group| self.insert_group(group);
        let left = self.publish.leave(waiting, (ticket, last_seq), fits, add, insert_group);
        std::mem::forget(inserting);
        if left {
            return Gather::Waits;
        }
        let applying = Applying { apply: self, ticket, pins: &[] };
        insert(memtable, entries.drain(..));
        std::mem::forget(applying);
        Gather::Inserted
    }

    /// Has everything inserted that waits. For readers too, before they read.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.gathering.waiting.any() {
            self.hold_off();
            let inserting = Inserting(self);
            self.publish.settle(&self.gathering.waiting, |group| self.insert_group(group));
            std::mem::forget(inserting);
            self.publish.ring_room();
        }
    }

    #[cold]
    fn insert_group(&self, group: &mut Group) {
        let Some(memtable) = group.memtable.take() else { return };
        // Invariant: whoever sees these tickets finished knows.
        let panicking = SetUnlessForgotten(&self.has_panicked);
        insert(&memtable, group.entries.drain(..));
        std::mem::forget(panicking);
    }

    #[cold]
    fn hold_off(&self) {
        // Ordering: only steers.
        self.gathering.hold_off.store(HOLD_OFF, Ordering::Relaxed);
    }
}

struct SetUnlessForgotten<'a>(&'a AtomicBool);

impl Drop for SetUnlessForgotten<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A group that may be being inserted. Dropped if that panics, when its tickets are finished.
struct Inserting<'a, H: Host>(&'a Apply<H>);

impl<H: Host> Drop for Inserting<'_, H> {
    fn drop(&mut self) {
        self.0.insert_panicked(None, || self.0.publish.ring_room());
    }
}

fn insert(memtable: &MemTable, entries: impl IntoIterator<Item = Unlinked>) {
    // Invariant: no two entries have one number, so none can be there already.
    memtable.link(entries).expect("a sequence number is used once");
}
