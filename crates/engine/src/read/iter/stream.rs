//! An iterator as a `Stream` of entries, forward or backward.

use crate::read::iter::DbIterator;
use futures_core::Stream;
use karst_base::error::Result;
use karst_storage::value::Value;
use std::borrow::BorrowMut;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In key order.
    Forward,
    /// Against key order.
    Backward,
}

/// An iterator that can become a stream of its entries: those of this crate and of its
/// transactions.
pub trait Streamed: Send + Sized + 'static {
    /// Returns true once the iterator was sent to a position; false if it is new.
    fn was_sent(&self) -> bool;
    /// Returns true if the iterator is at an entry.
    fn valid(&self) -> bool;
    /// Returns the error that ended the last move, or Ok.
    ///
    /// # Errors
    /// That error.
    fn status(&self) -> Result<()>;
    /// Returns the current entry: a copy of the key, and the value with a pin on its memory.
    fn entry(&self) -> (Box<[u8]>, Value);
    /// Moves to the next entry, or from a new iterator to the first. Backward, moves to the
    /// previous entry, or to the last.
    fn advance(&mut self, direction: Direction) -> impl Future<Output = Result<()>> + Send;
}

impl Streamed for DbIterator {
    fn was_sent(&self) -> bool {
        self.was_sent()
    }

    fn valid(&self) -> bool {
        self.valid()
    }

    fn status(&self) -> Result<()> {
        self.status()
    }

    fn entry(&self) -> (Box<[u8]>, Value) {
        (self.key().into(), self.pinned_value())
    }

    async fn advance(&mut self, direction: Direction) -> Result<()> {
        match (self.was_sent(), direction) {
            (false, Direction::Forward) => self.seek_to_first_async().await,
            (false, Direction::Backward) => self.seek_to_last_async().await,
            (true, Direction::Forward) => self.next_async().await,
            (true, Direction::Backward) => self.prev_async().await,
        }
    }
}

type Moved<I> = Pin<Box<dyn Future<Output = (Box<I>, Result<()>)> + Send>>;

/// A `Stream` of keys and values from an iterator's position on; see [`DbIterator::into_stream`].
///
/// Values pin their memory, keys are copies. The stream ends after an error.
#[must_use = "streams do nothing unless polled"]
pub struct EntryStream<I = DbIterator> {
    direction: Direction,
    state: State<I>,
}

enum State<I> {
    /// At the next entry to return.
    At(Box<I>),
    /// Moving to the next entry.
    Moving(Moved<I>),
    Ended,
}

impl DbIterator {
    /// Returns the entries from the current one on; from a new iterator all entries, starting at
    /// the first (backward: at the last). An iterator that moved past its end, or whose seek found
    /// nothing, makes an empty stream.
    ///
    /// Moves inside a block are plain code; the stream pends only when it has to read.
    pub fn into_stream(self, direction: Direction) -> EntryStream {
        EntryStream::new(self, direction)
    }

    /// Returns the entries of [`into_stream`](Self::into_stream) as a Rust iterator, which blocks
    /// the calling thread while it reads.
    pub fn entries(&mut self, direction: Direction) -> Entries<&mut DbIterator> {
        Entries { iter: self, direction, fresh: true, ended: false }
    }
}

/// `for entry in db.iter(&options)?`: the entries from the current position on, forward; from a new
/// iterator all entries.
impl IntoIterator for DbIterator {
    type Item = Result<(Box<[u8]>, Value)>;
    type IntoIter = Entries<DbIterator>;

    fn into_iter(self) -> Entries<DbIterator> {
        Entries { iter: self, direction: Direction::Forward, fresh: true, ended: false }
    }
}

impl<I: Streamed> EntryStream<I> {
    /// Returns the entries of `iter` from the current one on; from a new iterator all entries.
    pub fn new(iter: I, direction: Direction) -> Self {
        Self { direction, state: State::At(Box::new(iter)) }
    }

    fn moving(mut iter: Box<I>, direction: Direction) -> State<I> {
        State::Moving(Box::pin(async move {
            let moved = iter.advance(direction).await;
            (iter, moved)
        }))
    }
}

impl<I: Streamed> Stream for EntryStream<I> {
    type Item = Result<(Box<[u8]>, Value)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::At(iter) if !iter.was_sent() => {
                    self.state = Self::moving(iter, self.direction);
                }
                State::At(iter) if !iter.valid() => {
                    // An iterator that failed before it became a stream returns its error.
                    return Poll::Ready(iter.status().err().map(Err));
                }
                State::At(iter) => {
                    let entry = iter.entry();
                    self.state = Self::moving(iter, self.direction);
                    return Poll::Ready(Some(Ok(entry)));
                }
                State::Moving(mut moving) => match moving.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.state = State::Moving(moving);
                        return Poll::Pending;
                    }
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready((iter, Ok(()))) => self.state = State::At(iter),
                },
            }
        }
    }
}

impl<I> std::fmt::Debug for EntryStream<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryStream").field("direction", &self.direction).finish_non_exhaustive()
    }
}

/// The entries of an iterator in order; see [`DbIterator::entries`].
#[derive(Debug)]
pub struct Entries<I> {
    iter: I,
    direction: Direction,
    fresh: bool,
    /// The end was reached, or an error was returned, which happens once.
    ended: bool,
}

impl<I: BorrowMut<DbIterator>> Iterator for Entries<I> {
    type Item = Result<(Box<[u8]>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let iter = self.iter.borrow_mut();
        let moved = match self.direction {
            Direction::Forward if !iter.was_sent() => iter.seek_to_first(),
            Direction::Backward if !iter.was_sent() => iter.seek_to_last(),
            _ if fresh || !iter.valid() => Ok(()),
            Direction::Forward => iter.next(),
            Direction::Backward => iter.prev(),
        };
        if let Err(error) = moved {
            self.ended = true;
            return Some(Err(error));
        }
        iter.valid().then(|| Ok((iter.key().into(), iter.pinned_value())))
    }
}
