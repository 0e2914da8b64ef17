//! An iterator as a `Stream` of entries, forward or backward.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::error::Result;
use crate::read::iter::DbIterator;
use crate::table::Value;

/// Which way a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In key order.
    Forward,
    /// Against key order.
    Backward,
}

type Moved = Pin<Box<dyn Future<Output = (DbIterator, Result<()>)> + Send>>;

/// A `Stream` of keys and values from where an iterator stands; see [`DbIterator::into_stream`].
///
/// The values pin what they are in, the keys are copies. After an error the stream ends.
#[must_use = "streams do nothing unless polled"]
pub struct EntryStream {
    direction: Direction,
    state: State,
}

enum State {
    /// At the entry that comes next.
    At(Box<DbIterator>),
    /// On its way to it.
    Moving(Moved),
    Ended,
}

impl DbIterator {
    /// The entries from the current one on: of an iterator that was never sent anywhere all entries, from the first one (backward: from the last). One that has run off its end, or found nothing
    /// where it was sent, makes an empty stream.
    ///
    /// Moves inside a block are plain code; only those that have to read make the stream pend.
    pub fn into_stream(self, direction: Direction) -> EntryStream {
        EntryStream { direction, state: State::At(Box::new(self)) }
    }

    /// The same entries as of [`into_stream`](Self::into_stream) as a Rust iterator, which blocks the calling thread where it has to read.
    pub fn entries(&mut self, direction: Direction) -> Entries<'_> {
        Entries { iter: self, direction, fresh: true }
    }
}

impl EntryStream {
    fn begin(mut iter: Box<DbIterator>, direction: Direction) -> Moved {
        Box::pin(async move {
            let moved = match direction {
                Direction::Forward => iter.seek_to_first_async().await,
                Direction::Backward => iter.seek_to_last_async().await,
            };
            (*iter, moved)
        })
    }

    fn go_on(mut iter: Box<DbIterator>, direction: Direction) -> Moved {
        Box::pin(async move {
            let moved = match direction {
                Direction::Forward => iter.next_async().await,
                Direction::Backward => iter.prev_async().await,
            };
            (*iter, moved)
        })
    }
}

impl Stream for EntryStream {
    type Item = Result<(Box<[u8]>, Value)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::At(iter) if !iter.was_sent() => {
                    self.state = State::Moving(EntryStream::begin(iter, self.direction));
                }
                State::At(iter) if !iter.valid() => {
                    // An iterator that failed before it was made a stream tells so.
                    return Poll::Ready(iter.status().err().map(Err));
                }
                State::At(iter) => {
                    let entry = (iter.key().into(), iter.pinned_value());
                    self.state = State::Moving(EntryStream::go_on(iter, self.direction));
                    return Poll::Ready(Some(Ok(entry)));
                }
                State::Moving(mut moving) => match moving.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.state = State::Moving(moving);
                        return Poll::Pending;
                    }
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready((iter, Ok(()))) => self.state = State::At(Box::new(iter)),
                },
            }
        }
    }
}

impl std::fmt::Debug for EntryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryStream").field("direction", &self.direction).finish_non_exhaustive()
    }
}

/// The entries of an iterator, one after the other; see [`DbIterator::entries`].
#[derive(Debug)]
pub struct Entries<'a> {
    iter: &'a mut DbIterator,
    direction: Direction,
    fresh: bool,
}

impl Iterator for Entries<'_> {
    type Item = Result<(Box<[u8]>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let fresh = std::mem::take(&mut self.fresh);
        let moved = match self.direction {
            Direction::Forward if !self.iter.was_sent() => self.iter.seek_to_first(),
            Direction::Backward if !self.iter.was_sent() => self.iter.seek_to_last(),
            _ if fresh || !self.iter.valid() => Ok(()),
            Direction::Forward => self.iter.next(),
            Direction::Backward => self.iter.prev(),
        };
        if let Err(error) = moved {
            return Some(Err(error));
        }
        self.iter.valid().then(|| Ok((self.iter.key().into(), self.iter.pinned_value())))
    }
}
