//! Iterators over values with write times.

use super::has_no_time;
use crate::read::iter::{DbIterator, Direction, EntryStream, Streamed};
use karst_base::error::{Error, Result};
use karst_base::ttl::{STAMP_BYTES, parts};
use karst_storage::value::Value;
use std::time::Duration;

/// A [`DbIterator`] of a [`DbWithTtl`](super::DbWithTtl): it returns values without their write
/// times.
///
/// Moves are those of [`DbIterator`]. A value without a write time ends the iterator with
/// `Corruption`, like every other error.
#[derive(Debug)]
pub struct TtlIterator {
    iter: DbIterator,
    /// Error of the current entry, whose value has no write time.
    failed: Option<Error>,
}

impl TtlIterator {
    pub(super) fn new(iter: DbIterator) -> TtlIterator {
        TtlIterator { iter, failed: None }
    }

    fn moved(&mut self, outcome: Result<()>) -> Result<()> {
        self.failed = None;
        outcome?;
        if self.iter.valid() && parts(self.iter.value()).is_none() {
            self.failed = Some(has_no_time());
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Returns true if a step is allowed, as far as the values' write times matter.
    fn may_step(&self) -> bool {
        self.failed.is_none()
    }

    /// Returns true if the iterator is at an entry.
    pub fn valid(&self) -> bool {
        self.failed.is_none() && self.iter.valid()
    }

    /// The current key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "key() of an iterator that is not valid");
        self.iter.key()
    }

    /// The current value. Nothing is copied.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn value(&self) -> &[u8] {
        assert!(self.valid(), "value() of an iterator that is not valid");
        let stored = self.iter.value();
        &stored[..stored.len() - STAMP_BYTES]
    }

    /// The current value with a pin on its memory, for use beyond the next move.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn pinned_value(&self) -> Value {
        let length = self.value().len();
        self.iter.pinned_value().slice(0..length)
    }

    /// The time at which the current value was written, or merged last: whole seconds since 1970.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn written_at(&self) -> Duration {
        assert!(self.valid(), "written_at() of an iterator that is not valid");
        // Invariant: a valid iterator has checked that its value has a write time.
        let stamp = parts(self.iter.value()).map_or(0, |(_, stamp)| u32::from_le_bytes(stamp));
        Duration::from_secs(stamp.into())
    }

    /// Returns the error that ended the last move, or Ok.
    ///
    /// # Errors
    /// That error.
    pub fn status(&self) -> Result<()> {
        self.failed.clone().map_or_else(|| self.iter.status(), Err)
    }

    /// Returns the entries from the current one on; from a new iterator all entries.
    pub fn into_stream(self, direction: Direction) -> EntryStream<TtlIterator> {
        EntryStream::new(self, direction)
    }
}

/// Defines the moves, each with the signature of the move of [`DbIterator`].
macro_rules! moves {
    ($($plain:ident $plain_async:ident ($($key:ident)?) $(if $may:ident, $(#[$attribute:meta])*)?;)*) => {
        impl TtlIterator {
            $(
                #[doc = concat!("Moves the iterator like [`DbIterator::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// Those of that call, and `Corruption` if the value has no write time.
                $($(#[$attribute])*)?
                pub fn $plain(&mut self $(, $key: impl AsRef<[u8]>)?) -> Result<()> {
                    $(assert!(self.$may(), "{}() of an iterator that is not valid", stringify!($plain));)?
                    let outcome = self.iter.$plain($($key)?);
                    self.moved(outcome)
                }

                #[doc = concat!("The asynchronous form of [`TtlIterator::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// Those of that call.
                $($(#[$attribute])*)?
                pub async fn $plain_async(&mut self $(, $key: impl AsRef<[u8]>)?) -> Result<()> {
                    $(assert!(self.$may(), "{}() of an iterator that is not valid", stringify!($plain));)?
                    let outcome = self.iter.$plain_async($($key)?).await;
                    self.moved(outcome)
                }
            )*
        }
    };
}

moves! {
    seek_to_first seek_to_first_async ();
    seek_to_last seek_to_last_async ();
    seek seek_async (key);
    seek_for_prev seek_for_prev_async (key);
    next next_async () if may_step,
        ///
        /// # Panics
        /// When the iterator is not valid.
        #[allow(clippy::should_implement_trait, reason = "the field's name for it")];
    prev prev_async () if may_step,
        ///
        /// # Panics
        /// When the iterator is not valid.
    ;
}

impl Streamed for TtlIterator {
    fn was_sent(&self) -> bool {
        self.iter.was_sent()
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
        let outcome = self.iter.advance(direction).await;
        self.moved(outcome)
    }
}
