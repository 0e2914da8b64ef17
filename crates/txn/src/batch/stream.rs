//! A `Stream` of entries from an iterator over a batch and its database, forward or backward.

use super::BatchDbIterator;
use karst_engine::{Direction, EntryStream, Result, Streamed, Value};

/// A `Stream` of keys and values from an iterator's position on; see
/// [`BatchDbIterator::into_stream`].
pub type BatchEntryStream = EntryStream<BatchDbIterator>;

impl BatchDbIterator {
    /// Turns the iterator into a stream of the entries from the current one on. An iterator that
    /// was never moved yields all entries, from the first one (backward: from the last). One that
    /// ran off its end, or whose seek found no entry, yields an empty stream.
    pub fn into_stream(self, direction: Direction) -> BatchEntryStream {
        EntryStream::new(self, direction)
    }
}

impl Streamed for BatchDbIterator {
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
