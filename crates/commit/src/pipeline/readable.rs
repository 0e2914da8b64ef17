//! What a read may go by: everything acknowledged, once it is inserted.
//!
//! In: a read that begins. Out: the sequence number it reads at, and waiting until everything up to
//! that is in the memtables.
//!
//! With `unordered_write` a write may be acknowledged while older ones are still being inserted. A
//! read takes the larger of what is visible and what was acknowledged, which is where some batch
//! ends, and waits for the inserts in between. Without the option nothing is acknowledged before it
//! is visible, and no read waits. docs/guarantees.md has the argument in full.
//!
//! Invariants:
//! - What a read waits for is inserted by writers that are on their way: everything up to an
//!   acknowledged write is persisted (`commit`), so no read waits for a log.
//! - A read that waits has what writers left inserted, be it gathered (`gather`) or left with the
//!   pipeline (`orphans`).
//! - Reads wait for one number, taken when they begin. Writes that come later do not prolong it.

use super::Pipeline;
use crate::host::Host;
use karst_format::key::SeqNo;
use karst_io::{Moments, block_on};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

impl<H: Host> Pipeline<H> {
    /// The sequence number for a read that begins now: everything visible or acknowledged is
    /// included. Take it after pinning a superversion, and read at it only once it
    /// [is readable](Self::is_readable).
    #[inline]
    pub fn read_seq(&self) -> SeqNo {
        self.apply.settle();
        self.publish.acknowledged()
    }

    /// Whether everything up to `seq` is in the memtables and visible.
    #[inline]
    pub fn is_readable(&self, seq: SeqNo) -> bool {
        self.publish.visible() >= seq
    }

    /// Waits on the calling thread until `seq`, which [`read_seq`](Self::read_seq) gave, is
    /// readable: it spins before it sleeps.
    #[cold]
    pub fn wait_until_readable(self: &Arc<Self>, seq: SeqNo) {
        let mut moments = Moments::default();
        while !self.is_readable(seq) {
            if !self.publish.pass(&mut moments) {
                return block_on(&self.around.env, self.readable(seq));
            }
        }
    }

    /// The same as a future, which may be polled anywhere and dropped at any time.
    pub fn readable(self: &Arc<Self>, seq: SeqNo) -> Readable<H> {
        Readable { pipeline: self.clone(), seq, registered: None, counted: false }
    }
}

/// Waits until a sequence number is readable.
#[must_use = "futures do nothing unless polled"]
pub struct Readable<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    seq: SeqNo,
    /// Who is woken when it is.
    registered: Option<Waker>,
    /// Whether it is counted among those who wait for what others have to apply.
    counted: bool,
}

impl<H: Host> Readable<H> {
    /// Waits on the calling thread.
    pub fn wait_here(&self) {
        self.pipeline.wait_until_readable(self.seq);
    }
}

impl<H: Host> Future for Readable<H> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.pipeline.apply.settle();
        if this.pipeline.is_readable(this.seq) {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut this.counted, true) {
            this.pipeline.apply.waiters().count_in();
        }
        this.pipeline.settle_orphans();
        if !this.registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            this.pipeline.publish.register_reader(this.seq, cx.waker());
            this.registered = Some(cx.waker().clone());
            if this.pipeline.is_readable(this.seq) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl<H: Host> Drop for Readable<H> {
    fn drop(&mut self) {
        if self.counted {
            self.pipeline.apply.waiters().count_out();
        }
    }
}
