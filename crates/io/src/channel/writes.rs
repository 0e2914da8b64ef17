//! The part of the [`Core`] that carries writes, syncs and reservations of files.
//!
//! An operation is one slot from its start to its end. A short or interrupted step goes on where it
//! ended; the data stays with the transport until the step has come back, even if no future waits.

use super::core::{Core, INTERRUPTIONS_AT_MOST, is_passing};
use super::slot::{Answer, Phase, Ticket, Waiter, Work, WriteWork};
use crate::error::Failure;
use crate::posix::unless_unsupported;
use crate::stats::Counters;
use crate::transport::{WriteAction, WriteOp};
use std::cell::Cell;
use std::io;

impl Core {
    /// Queues an operation on a file open for writing. It comes before waiting reads, because
    /// others wait for the end of a write, and few writes are in flight.
    pub(super) fn begin_write(&mut self, op: WriteOp, waiter: Waiter) -> Ticket {
        Counters::bump(&self.counters.writes, 1);
        let index = self.allocate(Work::Write(WriteWork { op: Some(op), interruptions: 0 }));
        self.issue_next(index);
        self.join(index, waiter)
    }

    /// Starts the next step of a write. Returns false if the transport is full.
    pub(super) fn issue_write(&mut self, index: u32, queued: &Cell<usize>) -> bool {
        let Some(transport) = &mut self.transport else { return false };
        if transport.in_flight() >= self.depth {
            return false;
        }
        let slot = &mut self.slots[index as usize];
        let Work::Write(work) = &mut slot.work else { unreachable!("only writes are issued here") };
        let Some(mut op) = work.op.take() else { unreachable!("a waiting write has not flown") };
        let (offset, len) = op.action.place();
        let disturbance = op.file.disturb(offset, len).unwrap_or_default();
        op.token = index;
        op.at_most = disturbance.shorten_to.map_or(usize::MAX, |most| most.max(1));
        slot.phase = Phase::Flying;
        if let Some(errno) = disturbance.fail {
            self.write_landed(op, Err(io::Error::from_raw_os_error(errno)));
            return true;
        }
        transport.queue_write(op);
        queued.set(queued.get() + 1);
        self.note_in_flight();
        true
    }

    /// Handles the end of a step of a write: continues or completes it.
    pub(super) fn write_landed(&mut self, mut op: WriteOp, result: io::Result<usize>) {
        let index = op.token;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.phase, Phase::Flying, "a completion for a slot that flies not");
        if slot.interested == 0 {
            return self.release(index);
        }
        let Work::Write(work) = &mut slot.work else { unreachable!("only writes fly as writes") };
        let ended = match (result, &mut op.action) {
            (Ok(written), WriteAction::Write { data, start, .. }) => {
                *start += written;
                work.interruptions = 0;
                match *start == data.len() {
                    true => Some(Ok(())),
                    false if written == 0 => Some(Err(io::ErrorKind::WriteZero.into())),
                    false => None,
                }
            }
            (Ok(_), _) => Some(Ok(())),
            (Err(e), _) if is_passing(&e) && work.interruptions < INTERRUPTIONS_AT_MOST => {
                work.interruptions += 1;
                None
            }
            (Err(e), WriteAction::Reserve { .. }) => Some(unless_unsupported(e)),
            (Err(e), _) => Some(Err(e)),
        };
        match ended {
            Some(ended) => self.complete(index, ended.map(|()| Answer::Written).map_err(Failure::from)),
            None => {
                Counters::bump(&self.counters.continued, 1);
                work.op = Some(op);
                self.issue_next(index);
            }
        }
    }
}
