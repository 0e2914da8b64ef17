//! Single flight between channels: joins a read that another channel has in flight, while that
//! channel is polled.
//!
//! ```text
//!   this channel                    [`Flights`]                   another channel
//!   read_or_join  --- claim --->  owned by another, name left
//!   Phase::Joined                       <------- end, all names ---  tell_joiners: Landed, or keep_private: Released
//!   hear          <------------------- its outbox ------------------
//! ```
//!
//! The other channel completes a joined read for all its waiters, regardless of which of its own
//! futures are still polled; this channel's waiters wait for their own channel only. No joiner
//! waits forever:
//! - A channel that will not be polled for a while (at the end of a `block_on`, of a thread, of a
//!   reactor), or whose own futures have all lost interest, releases its joiners, which then read
//!   for themselves.
//! - A thread may also stop polling without notice: a task blocks, or computes for long, perhaps
//!   until the joining thread itself continues. Therefore a joined slot is on its own channel's
//!   timer; if the other thread has not looked for completions since and does not wait for them at
//!   present, the slot reads for itself.

use super::core::Core;
use super::outbox::{Joiner, Message, Outbox};
use super::slot::{Outcome, Phase, ReadKey, Sharing, Slot, Work};
use crate::flights::{Claim, Flights};
use crate::stats::Counters;
use std::sync::Arc;
use std::time::Duration;

/// The reads that an environment's channels have in flight.
pub(crate) type SharedReads = Flights<ReadKey, Arc<Outbox>, (Arc<Outbox>, Joiner)>;

/// Time after which a joiner stops waiting for a channel that shows no sign of life. Not shorter,
/// because a runnable thread may have to wait for a processor. Not longer, because a read is late
/// by this time if the other thread is stuck.
const PATIENCE: Duration = Duration::from_millis(1);

impl Core {
    /// Joins the identical read of another channel; otherwise queues the new read here.
    pub(super) fn read_or_join(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let joiner = Joiner { slot: index, generation: slot.generation };
        let Work::Read(work) = &mut slot.work else { unreachable!("only reads are shared") };
        let name = || (self.outbox.clone(), joiner);
        match self.flights.claim(work.key, work.key.hash(), &self.outbox, name) {
            Claim::Joined(owner) => {
                work.sharing = Sharing::Joined { beats: owner.beats(), owner };
                slot.phase = Phase::Joined;
                Counters::bump(&self.counters.joined, 1);
                Counters::bump(&self.counters.joined_elsewhere, 1);
                let at = self.now() + PATIENCE;
                return self.hold_until(index, at);
            }
            Claim::Own => {
                work.sharing = Sharing::Open;
                self.open += 1;
            }
            Claim::Alone => {}
        }
        self.read(index);
    }

    fn read(&mut self, index: u32) {
        Counters::bump(&self.counters.reads, 1);
        self.slots[index as usize].phase = Phase::Waiting;
        self.backlog.push_back(index);
    }

    /// Called when a joined slot is due: keeps waiting if the other channel shows a sign of life,
    /// else reads here.
    pub(super) fn look_after(&mut self, index: u32) {
        let Some(Sharing::Joined { owner, beats }) = self.sharing_of(index) else {
            unreachable!("a joined slot knows whom it has joined");
        };
        let now = owner.beats();
        if now % 2 == 1 || now != *beats {
            *beats = now;
            let at = self.now() + PATIENCE;
            return self.hold_until(index, at);
        }
        // The slot's name is still in the table, therefore the read is private from now on.
        self.part(index);
        self.read(index);
    }

    fn part(&mut self, index: u32) {
        if let Some(sharing) = self.sharing_of(index) {
            *sharing = Sharing::Private;
        }
        Counters::bump(&self.counters.left, 1);
    }

    /// Handles another thread's answer about a joined read. It may be late: the slot may have given
    /// up on the read, or belong to another operation.
    pub(super) fn hear(&mut self, joiner: Joiner, outcome: Option<Outcome>) {
        let slot: &Slot = &self.slots[joiner.slot as usize];
        if slot.generation != joiner.generation || slot.phase != Phase::Joined {
            return;
        }
        match outcome {
            Some(outcome) => self.settle(joiner.slot, outcome),
            None => {
                self.part(joiner.slot);
                self.read_or_join(joiner.slot);
            }
        }
    }

    /// Sends the outcome of a read to the channels that have joined it.
    pub(super) fn tell_joiners(&mut self, index: u32, outcome: &Outcome) {
        for (outbox, joiner) in self.end_sharing(index) {
            outbox.send(Message::Landed(joiner, outcome.clone()));
        }
    }

    /// Releases the channels that have joined this read; no other channel can join it any more.
    pub(super) fn keep_private(&mut self, index: u32) {
        for (outbox, joiner) in self.end_sharing(index) {
            outbox.send(Message::Released(joiner));
        }
    }

    /// Releases the joiners of all reads, because this channel may not be polled any more.
    pub(super) fn keep_all_private(&mut self) {
        if self.open > 0 {
            let reads: Vec<u32> = self.joinable.values().copied().collect();
            reads.into_iter().for_each(|index| self.keep_private(index));
            debug_assert_eq!(self.open, 0, "a read that is open to others can be joined here as well");
        }
    }

    fn end_sharing(&mut self, index: u32) -> Vec<(Arc<Outbox>, Joiner)> {
        let Work::Read(work) = &mut self.slots[index as usize].work else { return Vec::new() };
        if !matches!(work.sharing, Sharing::Open) {
            return Vec::new();
        }
        work.sharing = Sharing::Private;
        self.open -= 1;
        self.flights.end(work.key, work.key.hash())
    }

    fn sharing_of(&mut self, index: u32) -> Option<&mut Sharing> {
        match &mut self.slots[index as usize].work {
            Work::Read(work) => Some(&mut work.sharing),
            _ => None,
        }
    }
}
