//! Waits for two futures, of which the first to end counts. It serves to wait for an event, but not
//! for ever.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Which of two futures ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raced<A, B> {
    /// The first, with its output.
    First(A),
    /// The second, with its output.
    Second(B),
}

/// Waits for either; the other is dropped. If both are ready the first counts.
pub fn race<A: Future + Unpin, B: Future + Unpin>(first: A, second: B) -> Race<A, B> {
    Race { first, second }
}

#[derive(Debug)]
/// The race of two futures.
pub struct Race<A, B> {
    first: A,
    second: B,
}

impl<A: Future + Unpin, B: Future + Unpin> Future for Race<A, B> {
    type Output = Raced<A::Output, B::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.first).poll(cx) {
            return Poll::Ready(Raced::First(output));
        }
        Pin::new(&mut self.second).poll(cx).map(Raced::Second)
    }
}
