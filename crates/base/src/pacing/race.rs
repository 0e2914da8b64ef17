//! A race of two futures: resolves with the first to finish. Used to wait for an event with a
//! timeout.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The outcome of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raced<A, B> {
    /// The first finished, with its output.
    First(A),
    /// The second finished, with its output.
    Second(B),
}

/// Returns a future that resolves when either finishes; the other is dropped. If both are ready,
/// `first` wins.
pub fn race<A: Future + Unpin, B: Future + Unpin>(first: A, second: B) -> Race<A, B> {
    Race { first, second }
}

#[derive(Debug)]
/// A race of two futures.
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
