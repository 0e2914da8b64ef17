//! Read sequence numbers: a read includes everything acknowledged, once it is inserted.
//!
//! A new read gets the sequence number it reads at, and can wait until everything up to that is in
//! the memtables.
//!
//! With `unordered_write` a write may be acknowledged while older ones are still being inserted. A
//! read takes the larger of the visible and the acknowledged sequence number, which is the end of
//! some batch, and waits for the inserts in between. Without the option no write is acknowledged
//! before it is visible, and no read waits. docs/guarantees.md has the argument in full.
//!
//! Invariants:
//! - A read waits only for inserts of active writers: everything up to an acknowledged write is
//!   persisted (`commit`), so no read waits for a log.
//! - A waiting read has the entries inserted that writers left, gathered (`gather`) or with the
//!   pipeline (`orphans`).
//! - A read waits for one number, taken when it begins. Later writes do not prolong the wait.

use super::Pipeline;
use crate::host::Host;
use karst_format::key::SeqNo;
use karst_io::{Moments, block_on};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

impl<H: Host> Pipeline<H> {
    /// Returns the sequence number for a read that begins now, which includes everything visible or
    /// acknowledged. Take it after pinning a superversion, and read at it only once it
    /// [is readable](Self::is_readable).
    #[inline]
    pub fn read_seq(&self) -> SeqNo {
        self.apply.settle();
        self.publish.acknowledged()
    }

    /// Returns true if everything up to `seq` is in the memtables and visible.
    #[inline]
    pub fn is_readable(&self, seq: SeqNo) -> bool {
        self.publish.visible() >= seq
    }

    /// Blocks the calling thread until `seq`, a result of [`read_seq`](Self::read_seq), is
    /// readable; spins before it sleeps.
    #[cold]
    pub fn wait_until_readable(self: &Arc<Self>, seq: SeqNo) {
        let mut moments = Moments::default();
        while !self.is_readable(seq) {
            if !self.publish.pass(&mut moments) {
                return block_on(&self.around.env, self.readable(seq));
            }
        }
    }

    /// Returns a future that waits until `seq` is readable. It may be polled anywhere and dropped
    /// at any time.
    pub fn readable(self: &Arc<Self>, seq: SeqNo) -> Readable<H> {
        Readable { pipeline: self.clone(), seq, registered: None, counted: false }
    }
}

/// A future that waits until a sequence number is readable.
#[must_use = "futures do nothing unless polled"]
pub struct Readable<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    seq: SeqNo,
    /// Waker registered for the sequence number.
    registered: Option<Waker>,
    /// True once counted among the waiters for work of others.
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
