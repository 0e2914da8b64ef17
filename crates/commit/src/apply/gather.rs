//! Gathering of small writes: their entries are acknowledged before they are inserted, so that
//! several are inserted together.
//!
//! It takes writes of a few point entries whose records are persisted. Their entries are in the
//! memtable at the latest when a reader asks what is visible.
//!
//! An insert is a search, a chain of cache misses. `SkipList::link_all` interleaves several
//! searches to overlap their memory latency, but a writer that puts one key at a time has nothing
//! to interleave with. Its entry is therefore copied into the memtable's memory, where it stays,
//! and linked together with those of the next writes: by the writer that completes a group, or by
//! the first reader. docs/decisions/memtable-search.md has costs and gains.
//!
//! Invariants, besides those of [`Gathered`]:
//! - All waiting writes go to one memtable. Any other write is inserted at once.
//! - Gathering is for a lone writer. A reader that finds waiting entries, or a writer that finds
//!   another one here, makes the next [`HOLD_OFF`] writes insert their own entries: readers must
//!   not do the writers' work, and concurrent writers gain nothing because the processor has
//!   several searches already.

use super::{Apply, Applying};
use crate::handoff::Gathered;
use crate::host::{Host, Pins};
use crate::source::Source;
use karst_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use karst_format::key::SeqNo;
use karst_mem::Unlinked;
use karst_storage::memtable::MemTable;
use smallvec::SmallVec;
use std::sync::Arc;

/// Entries per group: the number of searches that `link_all` interleaves.
const GROUP: usize = 8;
/// Writes that insert their own entries after a writer met a reader or another writer here.
const HOLD_OFF: u32 = 256;

type Entries = SmallVec<[Unlinked; GROUP]>;

/// Result of offering a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// The write waits, or was published with the group. It is acknowledged in both cases.
    Waits,
    /// The write was inserted; the caller finishes its ticket.
    Inserted,
    /// The write was not taken.
    No,
}

/// State of gathering.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Number of coming writes that must insert their own entries.
    hold_off: AtomicU32,
    waiting: Gathered<Group>,
}

#[derive(Debug, Default)]
struct Group {
    /// Memtable of the entries; `None` if the group is empty.
    memtable: Option<Arc<MemTable>>,
    entries: Entries,
}

impl<H: Host> Apply<H> {
    /// Offers a write that may be applied. Releases the pins if the write is taken.
    pub(crate) fn gather(
        &self,
        source: &Source<'_>,
        (ticket, first_seq, last_seq): (u64, SeqNo, SeqNo),
        pins: &mut Pins<H::Pin>,
    ) -> Gather {
        // Ordering: `Relaxed`, because the count is only a heuristic. Stored rather than
        // subtracted: racing writers may count one step together.
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

    // `entries` by reference because it occupies some hundred bytes.
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

    /// Inserts all waiting entries. Readers call it before they read.
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
        // Invariant: `has_panicked` is set before these tickets are finished.
        let panicking = SetUnlessForgotten(&self.has_panicked);
        insert(&memtable, group.entries.drain(..));
        std::mem::forget(panicking);
    }

    #[cold]
    fn hold_off(&self) {
        // Ordering: `Relaxed`, because the count is only a heuristic.
        self.gathering.hold_off.store(HOLD_OFF, Ordering::Relaxed);
    }
}

struct SetUnlessForgotten<'a>(&'a AtomicBool);

impl Drop for SetUnlessForgotten<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A group whose insert may be under way. Dropped only if that panics, after its tickets are
/// finished.
struct Inserting<'a, H: Host>(&'a Apply<H>);

impl<H: Host> Drop for Inserting<'_, H> {
    fn drop(&mut self) {
        self.0.insert_panicked(None, || self.0.publish.ring_room());
    }
}

fn insert(memtable: &MemTable, entries: impl IntoIterator<Item = Unlinked>) {
    // Invariant: no two entries share a sequence number, so none is a duplicate.
    memtable.link(entries).expect("a sequence number is used once");
}
