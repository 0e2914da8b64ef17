//! An iterator over a batch and its database as a `Stream` of entries, forward or backward.

use super::BatchDbIterator;
use karst_engine::{Direction, EntryStream, Result, Streamed, Value};

/// A `Stream` of keys and values from where an iterator stands; see
/// [`BatchDbIterator::into_stream`].
pub type BatchEntryStream = EntryStream<BatchDbIterator>;

impl BatchDbIterator {
    /// The entries from the current one on: of an iterator that was never sent anywhere all
    /// entries, from the first one (backward: from the last). One that has run off its end, or
    /// found nothing where it was sent, makes an empty stream.
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
