//! An iterator over a batch and its database as a `Stream` of entries, forward or backward.

use super::BatchDbIterator;
use futures_core::Stream;
use karst_engine::{Direction, Result, Value};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Moved = Pin<Box<dyn Future<Output = (Box<BatchDbIterator>, Result<()>)> + Send>>;

/// A `Stream` of keys and values from where an iterator stands; see [`BatchDbIterator::into_stream`].
///
/// The values pin what they are in, the keys are copies. After an error the stream ends.
#[must_use = "streams do nothing unless polled"]
pub struct BatchEntryStream {
    direction: Direction,
    state: State,
}

enum State {
    /// At the entry that comes next.
    At(Box<BatchDbIterator>),
    /// On its way to it.
    Moving(Moved),
    Ended,
}

impl BatchDbIterator {
    /// The entries from the current one on: of an iterator that was never sent anywhere all entries, from the first one (backward: from the last). One that has run off its end, or found nothing
    /// where it was sent, makes an empty stream.
    pub fn into_stream(self, direction: Direction) -> BatchEntryStream {
        BatchEntryStream { direction, state: State::At(Box::new(self)) }
    }
}

impl BatchEntryStream {
    fn moving(mut iter: Box<BatchDbIterator>, direction: Direction) -> State {
        State::Moving(Box::pin(async move {
            let moved = match (iter.was_sent(), direction) {
                (false, Direction::Forward) => iter.seek_to_first_async().await,
                (false, Direction::Backward) => iter.seek_to_last_async().await,
                (true, Direction::Forward) => iter.next_async().await,
                (true, Direction::Backward) => iter.prev_async().await,
            };
            (iter, moved)
        }))
    }
}

impl Stream for BatchEntryStream {
    type Item = Result<(Box<[u8]>, Value)>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::At(iter) if !iter.was_sent() => {
                    self.state = BatchEntryStream::moving(iter, self.direction);
                }
                State::At(iter) if !iter.valid() => {
                    // An iterator that failed before it was made a stream tells so.
                    return Poll::Ready(iter.status().err().map(Err));
                }
                State::At(iter) => {
                    let entry = (iter.key().into(), iter.pinned_value());
                    self.state = BatchEntryStream::moving(iter, self.direction);
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

impl std::fmt::Debug for BatchEntryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchEntryStream").field("direction", &self.direction).finish_non_exhaustive()
    }
}
