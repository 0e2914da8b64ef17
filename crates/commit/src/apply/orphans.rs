//! Batches that others than their writers may apply, so that no waiter depends on a future that is
//! not polled.
//!
//! An asynchronous write leaves its batch here while it waits for its record to be persisted. The
//! batch is applied by its writer, if that is polled in time, and otherwise by a waiter behind it
//! or by the leader.
//!
//! A future may be dropped, or kept and not polled: its task may be busy, or may wait, on the same
//! thread, for a later write. A batch whose writer has to be polled again is therefore copied here
//! and owned by the pipeline. A blocking writer needs no copy because it always comes back.
//!
//! Invariants:
//! - The caller that takes a batch out finishes its ticket, in every case.
//! - A persisted batch stays here only while its writer may still come for it and no caller waits
//!   behind it ([`LeftBehind`](crate::handoff::LeftBehind)).

use super::Apply;
use crate::handoff::{Fate, Waiters};
use crate::host::{Host, Pins};
use crate::order::Ordered;
use crate::source::Source;
use karst_io::report;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A batch that is separated from its writer.
pub(crate) struct Orphan<H: Host> {
    pub(crate) ordered: Ordered,
    pub(crate) sync: bool,
    pub(crate) source: Source<'static>,
    pub(crate) pins: Pins<H::Pin>,
}

impl<H: Host> Apply<H> {
    /// Leaves a batch. Afterwards the caller checks the fate of its record, or
    /// [abandons](Self::abandon) it.
    pub(crate) fn leave_orphan(&self, orphan: Orphan<H>) {
        self.orphans.leave(orphan.ordered.ticket, orphan);
    }

    /// Takes a batch back.
    ///
    /// # Errors
    /// Fate of the batch, if another caller applies it, or has.
    pub(crate) fn take_orphan(&self, ticket: u64) -> Result<Orphan<H>, Fate> {
        self.orphans.take(ticket)
    }

    /// Marks a batch whose writer will not come for it. The caller settles afterwards.
    pub(crate) fn abandon(&self, ticket: u64) {
        self.orphans.abandon(ticket);
    }

    /// Counter of callers that wait for batches of others. Each settles after it was counted.
    pub(crate) fn waiters(&self) -> &Waiters {
        self.orphans.waiters()
    }

    /// Applies the persisted batches that were abandoned, or all persisted ones if any caller
    /// waits; gives up those that failed. `fate` returns the fate of a ticket's record for the
    /// given `sync`.
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
            // Caught, because no other caller would finish the remaining batches of this list. The
            // panic was reported.
            if catch_unwind(AssertUnwindSafe(settle)).is_err() {
                report!(error, "inserting a batch for its writer panicked");
            }
        }
    }
}
