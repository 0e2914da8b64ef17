//! Holds up writers for what changes the tree and takes sequence numbers without being a write:
//! files that are ingested.
//!
//! In: a request that everything ordered so far becomes visible, and that nothing is ordered behind
//! it. Out: [`HeldPipeline`], and with it sequence numbers, which become visible when whoever took
//! them says so.
//!
//! Invariant: one at a time. Held writers wait at the door as for room, so no future of theirs has
//! anything that others wait for.
//!
//! Lock: `order`, as in `pipeline`; never held while waiting.

use super::Pipeline;
use crate::host::Host;
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::key::SeqNo;
use std::sync::Arc;

/// See the module.
pub struct HeldPipeline<H: Host>(Arc<Pipeline<H>>);

impl<H: Host> Pipeline<H> {
    /// Holds writers up until the result is dropped. When it is there, everything that was ordered
    /// before is visible.
    ///
    /// # Errors
    /// Writes are refused, or an insert panicked, ever.
    pub async fn hold(self: &Arc<Self>) -> Result<HeldPipeline<H>> {
        while !self.try_hold()? {
            self.wait_for_room(|pipeline| pipeline.is_not_held()).await;
        }
        let held = HeldPipeline(self.clone());
        self.wait_for_room(|pipeline| {
            pipeline.apply.settle();
            pipeline.has_published_all()
        })
        .await;
        self.forget_decided();
        self.check_inserts()?;
        Ok(held)
    }

    /// Has nothing ordered until [`unhold`](Self::unhold); false if somebody else has, or the log
    /// is locked.
    ///
    /// # Errors
    /// Writes are refused.
    fn try_hold(&self) -> Result<bool> {
        let mut line = self.order.lock();
        line.check()?;
        let is_open = line.is_open();
        if is_open {
            line.hold(true);
        }
        Ok(is_open)
    }

    /// Whether [`try_hold`](Self::try_hold) would hold, or fail.
    fn is_not_held(&self) -> bool {
        let line = self.order.lock();
        line.refused().is_some() || line.is_open()
    }

    /// Waits until what was held is held no more; somebody else may hold it by then.
    pub async fn wait_until_not_held(&self) {
        self.wait_for_room(|pipeline| !pipeline.order.lock().is_held()).await;
    }

    /// Takes back [`try_hold`](Self::try_hold).
    fn unhold(&self) {
        self.order.lock().hold(false);
        self.publish.ring_room();
    }

    /// Takes all sequence numbers up to `last`, for entries of unknown keys. Returns the ticket,
    /// which the caller finishes.
    ///
    /// # Errors
    /// Writes are refused.
    fn take_to(&self, last: SeqNo) -> Result<u64> {
        let mut line = self.order.lock();
        line.check()?;
        debug_assert!(line.is_held());
        self.order.note_any_key(last);
        Ok(self.enter_to(&mut line, last))
    }

    /// Has what is written from now on have sequence numbers above `seq`, and makes everything up
    /// to it visible, as a write of so many entries without a log would. Does nothing where that is
    /// so already.
    ///
    /// # Errors
    /// Writes are refused.
    pub async fn skip_to(&self, seq: SeqNo) -> Result<()> {
        loop {
            self.wait_for_room(|pipeline| pipeline.has_room_for(&[])).await;
            if let Some(reached) = self.try_skip_to(seq)? {
                self.wait_until_visible(reached).await;
                return Ok(());
            }
        }
    }

    /// The number that is reached; `None` if there is no room.
    fn try_skip_to(&self, seq: SeqNo) -> Result<Option<SeqNo>> {
        let mut line = self.order.lock();
        line.check()?;
        if line.next_seq() > seq {
            return Ok(Some(line.last_seq()));
        }
        if !self.has_room_in(&line) {
            return Ok(None);
        }
        let ticket = self.enter_to(&mut line, seq);
        drop(line);
        self.apply.finish(ticket);
        Ok(Some(seq))
    }
}

impl<H: Host> Drop for HeldPipeline<H> {
    fn drop(&mut self) {
        self.0.unhold();
    }
}

/// Sequence numbers that are visible once it is dropped.
pub struct TakenNumbers<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    ticket: u64,
}

impl<H: Host> Drop for TakenNumbers<H> {
    fn drop(&mut self) {
        self.pipeline.apply.finish(self.ticket);
    }
}

impl<H: Host> HeldPipeline<H> {
    /// The first sequence number that nobody has taken.
    pub fn next_seq(&self) -> SeqNo {
        self.0.next_seq()
    }

    /// Takes all sequence numbers up to `last`, for entries that do not go through the pipeline and
    /// may have any key. They are visible once the result is dropped, and never taken again,
    /// whatever becomes of them.
    ///
    /// # Errors
    /// There are not so many; a log has failed, or the database is closed.
    pub fn take_to(&self, last: SeqNo) -> Result<TakenNumbers<H>> {
        if last > SeqNo::MAX {
            return Err(Error::new(ErrorKind::LimitReached, "the sequence numbers are used up"));
        }
        let ticket = self.0.take_to(last)?;
        Ok(TakenNumbers { pipeline: self.0.clone(), ticket })
    }
}
