//! Iterators over values with times.

use super::has_no_time;
use crate::read::iter::{DbIterator, Direction, EntryStream, Streamed};
use karst_base::error::{Error, Result};
use karst_base::ttl::{STAMP_BYTES, parts};
use karst_storage::value::Value;
use std::time::Duration;

/// A [`DbIterator`] of a [`DbWithTtl`](super::DbWithTtl): its values are shown without their times.
///
/// Moves are as there. A value that has no time behind it ends the iterator with `Corruption`, as
/// every other error does.
#[derive(Debug)]
pub struct TtlIterator {
    iter: DbIterator,
    /// The value where it stands has no time.
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

    /// Whether a step is no mistake of the caller's, as far as the values' times are concerned.
    fn may_step(&self) -> bool {
        self.failed.is_none()
    }

    /// Whether the iterator stands at an entry.
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

    /// The current value with what keeps it in memory, to be kept beyond the next move.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn pinned_value(&self) -> Value {
        let length = self.value().len();
        self.iter.pinned_value().slice(0..length)
    }

    /// When the current value was written, or merged last: the time since 1970, in whole seconds.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn written_at(&self) -> Duration {
        assert!(self.valid(), "written_at() of an iterator that is not valid");
        // Invariant: a valid iterator has looked at the time.
        let stamp = parts(self.iter.value()).map_or(0, |(_, stamp)| u32::from_le_bytes(stamp));
        Duration::from_secs(stamp.into())
    }

    /// The error that ended the last move, if one did.
    ///
    /// # Errors
    /// That error.
    pub fn status(&self) -> Result<()> {
        self.failed.clone().map_or_else(|| self.iter.status(), Err)
    }

    /// The entries from the current one on; all, of one that was never sent anywhere.
    pub fn into_stream(self, direction: Direction) -> EntryStream<TtlIterator> {
        EntryStream::new(self, direction)
    }
}

/// The moves, each as that of [`DbIterator`].
macro_rules! moves {
    ($($plain:ident $plain_async:ident ($($key:ident)?) $(if $may:ident, $(#[$attribute:meta])*)?;)*) => {
        impl TtlIterator {
            $(
                #[doc = concat!("As [`DbIterator::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// As there, and where the value has no time behind it.
                $($(#[$attribute])*)?
                pub fn $plain(&mut self $(, $key: impl AsRef<[u8]>)?) -> Result<()> {
                    $(assert!(self.$may(), "{}() of an iterator that is not valid", stringify!($plain));)?
                    let outcome = self.iter.$plain($($key)?);
                    self.moved(outcome)
                }

                #[doc = concat!("The asynchronous form of [`TtlIterator::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// As there.
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
