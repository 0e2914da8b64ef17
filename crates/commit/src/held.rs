//! Writers held up, for what changes the tree and takes sequence numbers without being a write:
//! files that are ingested.
//!
//! In: a wish to have everything that was ordered visible, and nothing ordered behind it. Out:
//! [`HeldPipeline`], and with it sequence numbers, which become visible when whoever took them says
//! so.
//!
//! Invariant: one at a time. Held writers wait at the door as for room, so no future of theirs has
//! anything that others wait for.
//!
//! Lock: `order`, as in `pipeline`; never held while waiting.

use super::host::Host;
use super::pipeline::Pipeline;
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
            pipeline.settle();
            pipeline.has_published_all()
        })
        .await;
        self.forget_decided();
        self.check_inserts()?;
        Ok(held)
    }
}

impl<H: Host> Drop for HeldPipeline<H> {
    fn drop(&mut self) {
        self.0.unhold();
    }
}

/// Sequence numbers that are visible once it is dropped.
pub struct Taken<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    ticket: u64,
}

impl<H: Host> Drop for Taken<H> {
    fn drop(&mut self) {
        self.pipeline.finish(self.ticket);
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
    pub fn take_to(&self, last: SeqNo) -> Result<Taken<H>> {
        if last > SeqNo::MAX {
            return Err(Error::new(ErrorKind::LimitReached, "the sequence numbers are used up"));
        }
        let ticket = self.0.take_to(last)?;
        Ok(Taken { pipeline: self.0.clone(), ticket })
    }
}
