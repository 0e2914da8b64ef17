//! Holds up writers for changes of the tree that take sequence numbers without being a write:
//! ingestion of files.
//!
//! [`Pipeline::hold`] waits until everything ordered is visible, and stops ordering. The
//! [`HeldPipeline`] gives out sequence numbers, which become visible when their owner drops them.
//!
//! Invariants: at most one holder. A caller that waits while the log is locked holds writers once
//! that ends, even if the log is locked again before it runs. Held writers wait for room before the
//! order step, so no unpolled future of theirs delays others.
//!
//! Lock: `order`, as in `pipeline`; never held while waiting.

use super::Pipeline;
use crate::host::Host;
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::key::SeqNo;
use std::sync::Arc;

/// A pipeline whose writers are held up until this is dropped.
pub struct HeldPipeline<H: Host>(Arc<Pipeline<H>>);

impl<H: Host> Pipeline<H> {
    /// Holds up writers until the result is dropped. Everything that was ordered before is visible
    /// when it returns.
    ///
    /// # Errors
    /// Writes are refused, or an insert ever panicked.
    pub async fn hold(self: &Arc<Self>) -> Result<HeldPipeline<H>> {
        let mut waiting = None;
        while !self.try_hold(waiting.is_some())? {
            waiting.get_or_insert_with(|| WaitingToHold::new(self));
            self.wait_for_room(|pipeline| pipeline.is_not_held()).await;
        }
        let held = HeldPipeline(self.clone());
        drop(waiting);
        self.wait_for_room(|pipeline| {
            pipeline.apply.settle();
            pipeline.has_published_all()
        })
        .await;
        self.forget_decided();
        self.check_inserts()?;
        Ok(held)
    }

    /// Stops ordering until [`unhold`](Self::unhold); returns false if another caller has, or the
    /// log is locked. A caller that `has_waited` has a [`WaitingToHold`].
    ///
    /// # Errors
    /// Writes are refused.
    fn try_hold(&self, has_waited: bool) -> Result<bool> {
        let mut line = self.order.lock();
        line.check()?;
        Ok(line.take_hold(has_waited))
    }

    /// Returns true if [`try_hold`](Self::try_hold) would hold, or fail.
    fn is_not_held(&self) -> bool {
        let line = self.order.lock();
        line.refused().is_some() || line.can_take_hold()
    }

    /// Waits until writers are not held up; another caller may hold them again by then.
    pub async fn wait_until_not_held(&self) {
        self.wait_for_room(|pipeline| !pipeline.order.lock().is_held()).await;
    }

    /// Undoes [`try_hold`](Self::try_hold).
    fn unhold(&self) {
        self.order.lock().release_hold();
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

    /// Makes later writes use sequence numbers above `seq`, and everything up to it visible, like a
    /// write of that many entries without a log. No effect if `seq` was used already.
    ///
    /// # Errors
    /// Writes are refused.
    pub async fn skip_to(self: &Arc<Self>, seq: SeqNo) -> Result<()> {
        let held = self.hold().await?;
        let ticket = {
            let mut line = self.order.lock();
            line.check()?;
            (line.next_seq() <= seq).then(|| self.enter_to(&mut line, seq))
        };
        if let Some(ticket) = ticket {
            self.apply.finish(ticket);
        }
        drop(held);
        Ok(())
    }
}

impl<H: Host> Drop for HeldPipeline<H> {
    fn drop(&mut self) {
        self.0.unhold();
    }
}

/// A caller of [`Pipeline::hold`] that waits.
struct WaitingToHold<'a, H: Host>(&'a Pipeline<H>);

impl<'a, H: Host> WaitingToHold<'a, H> {
    fn new(pipeline: &'a Pipeline<H>) -> Self {
        pipeline.order.lock().wait_to_hold();
        Self(pipeline)
    }
}

impl<H: Host> Drop for WaitingToHold<'_, H> {
    fn drop(&mut self) {
        if self.0.order.lock().leave_holders() {
            self.0.publish.ring_room();
        }
    }
}

/// Sequence numbers that become visible when this is dropped.
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
    /// Returns the first unused sequence number.
    pub fn next_seq(&self) -> SeqNo {
        self.0.next_seq()
    }

    /// Takes all sequence numbers up to `last`, for entries that bypass the pipeline and may have
    /// any key. They become visible when the result is dropped, and are never reused, even if their
    /// entries are discarded.
    ///
    /// # Errors
    /// The sequence numbers are used up; a log has failed, or the database is closed.
    pub fn take_to(&self, last: SeqNo) -> Result<TakenNumbers<H>> {
        if last > SeqNo::MAX {
            return Err(Error::new(ErrorKind::LimitReached, "the sequence numbers are used up"));
        }
        let ticket = self.0.take_to(last)?;
        Ok(TakenNumbers { pipeline: self.0.clone(), ticket })
    }
}
