//! Batches that others than their writers may apply, so that nobody waits for a future that is not polled.
//!
//! In: batches of asynchronous writes that wait for their records to be persisted. Out: the same batches in the memtables: applied by their writers, if those are polled in time, and
//! otherwise by whoever waits behind them or by the leader.
//!
//! A future may be dropped, or kept and not polled: its task may have other things to do, or may itself be waiting, on the same thread, for what is behind this very write. So a
//! batch whose writer has to be polled again is left here, copied, and belongs to the pipeline from then on. A writer that blocks its thread needs no copy: it always comes back.
//!
//! Invariants:
//! - Whoever takes a batch out finishes its ticket, whatever happens.
//! - A batch that is persisted stays here only while its writer may still come for it and nobody waits behind it.
//!
//! Ordering: who brings a batch adds it and then looks at its fate; the leader moves the fate and then looks here. Who waits counts itself and then looks here; the leader moves the fate and then looks
//! at who waits. All `SeqCst`, so one of them settles it.

use super::host::Host;
use super::persist::Fate;
use super::pipeline::{Ordered, Pipeline};
use super::source::{Pins, Source};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module's head.
pub(super) struct Orphans<H: Host> {
    /// By ticket.
    left: Mutex<BTreeMap<u64, Orphan<H>>>,
    count: AtomicUsize,
    /// How many of them are abandoned.
    abandoned: AtomicUsize,
    /// Who waits for what others have to apply.
    waiters: AtomicUsize,
    /// Whether applying one panicked, ever.
    panicked: AtomicBool,
}

/// A batch without a writer at hand.
pub(super) struct Orphan<H: Host> {
    pub(super) ordered: Ordered,
    pub(super) sync: bool,
    pub(super) source: Source<'static>,
    pub(super) pins: Pins<H::Pin>,
    /// Its writer will not come for it.
    pub(super) abandoned: bool,
}

impl<H: Host> Default for Orphans<H> {
    fn default() -> Self {
        Self {
            left: Mutex::default(),
            count: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
        }
    }
}

/// Counts one who waits, for as long as it lives.
pub(super) struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Waiter(count)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<H: Host> Orphans<H> {
    pub(super) fn leave(&self, orphan: Orphan<H>) {
        let abandoned = usize::from(orphan.abandoned);
        self.abandoned.fetch_add(abandoned, Ordering::SeqCst);
        self.left.lock().insert(orphan.ordered.ticket, orphan);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a batch back; `None` if somebody else applies it, or has.
    pub(super) fn take(&self, ticket: u64) -> Option<Orphan<H>> {
        let orphan = self.left.lock().remove(&ticket)?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(orphan)
    }

    /// Says that the writer will not come.
    pub(super) fn abandon(&self, ticket: u64) {
        if let Some(orphan) = self.left.lock().get_mut(&ticket) {
            orphan.abandoned = true;
            self.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Counts one who waits for what others have to apply. It [settles](Pipeline::settle_orphans) after this.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        Waiter::new(&self.waiters)
    }

    /// Counts in one who waits and cannot hold a [`Waiter`].
    pub(super) fn count_in(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn count_out(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    fn have_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Whether applying a batch for its writer panicked, ever.
    pub(super) fn have_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Those whose fate is settled, and of these, unless `all` are wanted, those that are abandoned.
    fn settled(&self, all: bool, fate: impl Fn(&Orphan<H>) -> Fate) -> Vec<(Fate, Orphan<H>)> {
        let mut left = self.left.lock();
        let wanted = |orphan: &Orphan<H>| {
            let fate = if all || orphan.abandoned { fate(orphan) } else { Fate::Open };
            Some(fate).filter(|fate| *fate != Fate::Open)
        };
        let found: Vec<_> =
            left.iter().filter_map(|(ticket, orphan)| Some((*ticket, wanted(orphan)?))).collect();
        let take = |(ticket, fate)| Some((fate, left.remove(&ticket)?));
        let settled: Vec<_> = found.into_iter().filter_map(take).collect();
        let abandoned = settled.iter().filter(|(_, orphan)| orphan.abandoned).count();
        self.count.fetch_sub(settled.len(), Ordering::SeqCst);
        self.abandoned.fetch_sub(abandoned, Ordering::SeqCst);
        settled
    }
}

impl<H: Host> Pipeline<H> {
    /// Applies the batches that their writers have left for good and whose records are persisted, or all if somebody waits; gives up those that failed.
    pub(super) fn settle_orphans(&self) {
        let Orphans { count, abandoned, .. } = &self.orphans;
        if count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let all = self.orphans.have_waiters() || self.has_room_waiters();
        // Why: the others are many where many futures write at a time, and are looked through for nothing.
        if !all && abandoned.load(Ordering::SeqCst) == 0 {
            return;
        }
        let fate = |orphan: &Orphan<H>| match orphan.ordered.persists {
            true => self.persist.fate(orphan.ordered.ticket, orphan.sync),
            false => Fate::Persisted,
        };
        for (fate, mut orphan) in self.orphans.settled(all, fate) {
            let (ticket, first_seq) = (orphan.ordered.ticket, orphan.ordered.first_seq);
            if fate != Fate::Persisted {
                drop(orphan.pins);
                self.finish(ticket);
                continue;
            }
            // Why caught: the batches behind it in this list have nobody else who would finish them. The panic was reported.
            let apply = || self.apply(ticket, &orphan.source, first_seq, &mut orphan.pins);
            if catch_unwind(AssertUnwindSafe(apply)).is_err() {
                self.orphans.panicked.store(true, Ordering::SeqCst);
                tracing::error!("inserting a batch for its writer panicked");
            }
        }
    }
}
