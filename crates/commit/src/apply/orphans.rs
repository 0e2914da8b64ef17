//! Batches that others than their writers may apply, so that nobody waits for a future that is not
//! polled.
//!
//! In: batches of asynchronous writes that wait for their records to be persisted. Out: the same
//! batches in the memtables: applied by their writers, if those are polled in time, and otherwise
//! by whoever waits behind them or by the leader.
//!
//! A future may be dropped, or kept and not polled: its task may have other things to do, or may
//! itself be waiting, on the same thread, for what is behind this very write. So a batch whose
//! writer has to be polled again is left here, copied, and belongs to the pipeline from then on. A
//! writer that blocks its thread needs no copy: it always comes back.
//!
//! Invariants:
//! - Whoever takes a batch out finishes its ticket, whatever happens.
//! - A batch that is persisted stays here only while its writer may still come for it and nobody
//!   waits behind it ([`LeftBehind`](crate::bargain::LeftBehind)).

use super::Apply;
use crate::bargain::{Fate, Waiters};
use crate::host::{Host, Pins};
use crate::order::Ordered;
use crate::source::Source;
use karst_io::report;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A batch without a writer at hand.
pub(crate) struct Orphan<H: Host> {
    pub(crate) ordered: Ordered,
    pub(crate) sync: bool,
    pub(crate) source: Source<'static>,
    pub(crate) pins: Pins<H::Pin>,
}

impl<H: Host> Apply<H> {
    /// Leaves a batch. The caller looks at the fate of its record after this, or
    /// [abandons](Self::abandon) it.
    pub(crate) fn leave_orphan(&self, orphan: Orphan<H>) {
        self.orphans.leave(orphan.ordered.ticket, orphan);
    }

    /// Takes a batch back.
    ///
    /// # Errors
    /// What became of it, if somebody else applies it, or has.
    pub(crate) fn take_orphan(&self, ticket: u64) -> Result<Orphan<H>, Fate> {
        self.orphans.take(ticket)
    }

    /// Says that the writer of a batch will not come for it. The caller settles after this.
    pub(crate) fn abandon(&self, ticket: u64) {
        self.orphans.abandon(ticket);
    }

    /// Those who wait for what others have to apply. Each settles after it was counted.
    pub(crate) fn waiters(&self) -> &Waiters {
        self.orphans.waiters()
    }

    /// Applies the batches that their writers have left for good and whose records are persisted,
    /// or all if somebody waits; gives up those that failed. `fate` says what became of the record
    /// of a ticket that was asked for with the same `sync`.
    pub(crate) fn settle_orphans(&self, fate: impl Fn(u64, bool) -> Fate) {
        let fate = |ticket: u64, orphan: &Orphan<H>| match orphan.ordered.persists {
            true => fate(ticket, orphan.sync),
            false => Fate::Persisted,
        };
        for (ticket, fate, mut orphan) in self.orphans.settled(self.publish.room_waiters(), fate) {
            let settle = || match fate {
                Fate::Persisted => {
                    self.apply(ticket, &orphan.source, orphan.ordered.first_seq, &mut orphan.pins)
                }
                Fate::Failed | Fate::Open => {
                    orphan.pins.clear();
                    self.finish(ticket);
                }
            };
            // Why caught: the batches behind it in this list have nobody else who would finish
            // them. The panic was reported.
            if catch_unwind(AssertUnwindSafe(settle)).is_err() {
                report!(error, "inserting a batch for its writer panicked");
            }
        }
    }
}
