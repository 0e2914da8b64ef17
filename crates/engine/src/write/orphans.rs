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
//! - A batch that is persisted stays here only while its writer may still come for it and nobody waits behind it ([`LeftBehind`]).
//!

use super::host::Host;
use super::pipeline::{Ordered, Pipeline};
use super::source::{Pins, Source};
use karst_mem::commit::{Fate, LeftBehind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's head.
pub(super) struct Orphans<H: Host> {
    pub(super) left: LeftBehind<Orphan<H>>,
    /// Whether applying one panicked, ever.
    panicked: AtomicBool,
}

/// A batch without a writer at hand.
pub(super) struct Orphan<H: Host> {
    pub(super) ordered: Ordered,
    pub(super) sync: bool,
    pub(super) source: Source<'static>,
    pub(super) pins: Pins<H::Pin>,
}

impl<H: Host> Default for Orphans<H> {
    fn default() -> Self {
        Self { left: LeftBehind::default(), panicked: AtomicBool::new(false) }
    }
}

impl<H: Host> Orphans<H> {
    /// Whether applying a batch for its writer panicked, ever.
    pub(super) fn have_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }
}

impl<H: Host> Pipeline<H> {
    /// Applies the batches that their writers have left for good and whose records are persisted, or all if somebody waits; gives up those that failed.
    pub(super) fn settle_orphans(&self) {
        let fate = |ticket: u64, orphan: &Orphan<H>| match orphan.ordered.persists {
            true => self.persist.leadership.fate(ticket, orphan.sync),
            false => Fate::Persisted,
        };
        for (ticket, fate, mut orphan) in self.orphans.left.settled(|| self.has_room_waiters(), fate) {
            if fate != Fate::Persisted {
                drop(orphan.pins);
                self.finish(ticket);
                continue;
            }
            // Why caught: the batches behind it in this list have nobody else who would finish them. The panic was reported.
            let apply = || self.apply(ticket, &orphan.source, orphan.ordered.first_seq, &mut orphan.pins);
            if catch_unwind(AssertUnwindSafe(apply)).is_err() {
                self.orphans.panicked.store(true, Ordering::Release);
                tracing::error!("inserting a batch for its writer panicked");
            }
        }
    }
}
