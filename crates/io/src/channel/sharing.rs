//! Single flight between channels: a read that another channel has in flight is joined, as long as
//! that channel is polled.
//!
//! ```text
//!   this channel                    [`Flights`]                   another channel
//!   read_or_join  --- claim --->  owned by another, name left
//!   Phase::Joined                       <------- end, all names ---  tell_joiners: Landed, or keep_private: Released
//!   hear          <------------------- its outbox ------------------
//! ```
//!
//! A read is joined, not a future: the other channel completes it whoever of its own futures is
//! still polled, and this one's waiters wait for their own channel only. Nobody waits for ever:
//! - A channel that will not be polled for a while (the end of a `block_on`, of a thread, of a
//!   reactor) or whose own futures have all lost interest releases those who joined, and they read
//!   for themselves.
//! - A thread may also stop to poll without saying so: a task blocks, or computes for long, perhaps
//!   until the very thread that has joined goes on. So a joined slot is on its own channel's timer,
//!   and if the other thread has neither looked for completions since, nor waits for them just now,
//!   the slot reads for itself.

use super::core::Core;
use super::outbox::{Joiner, Message, Outbox};
use super::slot::{Outcome, Phase, ReadKey, Sharing, Slot, Work};
use crate::flights::{Claim, Flights};
use crate::stats::Counters;
use std::sync::Arc;
use std::time::Duration;

/// The reads that an environment's channels have in flight.
pub(crate) type SharedReads = Flights<ReadKey, Arc<Outbox>, (Arc<Outbox>, Joiner)>;

/// After so long without a sign of life from a channel its reads are waited for no more. Why not
/// less: a thread that is ready to run may have to wait for a processor. Why not more: it is how
/// long a read is late if the other thread is stuck.
const PATIENCE: Duration = Duration::from_millis(1);

impl Core {
    /// Let a new read wait for the same read of another channel, else for its turn here.
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

    /// A joined slot's time has come: does the other channel still do the read?
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
        // Its name is still there; so from now on it is private.
        self.part(index);
        self.read(index);
    }

    fn part(&mut self, index: u32) {
        if let Some(sharing) = self.sharing_of(index) {
            *sharing = Sharing::Private;
        }
        Counters::bump(&self.counters.left, 1);
    }

    /// What another thread has said about a read that was joined. It may be late: the slot may have
    /// given up on it, or be another's.
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

    /// Send the outcome of a read to the channels that have joined it.
    pub(super) fn tell_joiners(&mut self, index: u32, outcome: &Outcome) {
        for (outbox, joiner) in self.end_sharing(index) {
            outbox.send(Message::Landed(joiner, outcome.clone()));
        }
    }

    /// Let no other channel wait for this read.
    pub(super) fn keep_private(&mut self, index: u32) {
        for (outbox, joiner) in self.end_sharing(index) {
            outbox.send(Message::Released(joiner));
        }
    }

    /// Let no other channel wait for any read: nobody may come to poll this one.
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
