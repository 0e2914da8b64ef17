//! The one error of this crate: bytes that are not what their format says.
//!
//! In: a reason and the offset, within the bytes handed to the decoder, at which it stopped.
//! Out: [`Corruption`], which callers lift into an error that also names the file.
//! Invariant: making one never reads the input again and never panics.
//! Used by every decoder of this crate.

use std::borrow::Cow;
use std::fmt;

/// Bytes that do not decode: what was expected or found, and where.
///
/// `offset` counts bytes from the start of the slice handed to the decoder. A caller that knows
/// where that slice lies in a larger one moves it with [`Corruption::rebased`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// What is wrong, in words for a person.
    pub what: Cow<'static, str>,
    /// Where it was noticed, in bytes from the start of the decoded slice.
    pub offset: u64,
    /// The bytes may well be good, but to decode them takes this feature of the crates, which they
    /// were built without.
    pub missing_feature: Option<&'static str>,
}

impl Corruption {
    /// A corruption noticed at `offset` bytes into the decoded slice.
    #[cold]
    pub fn new(what: impl Into<Cow<'static, str>>, offset: impl TryInto<u64>) -> Self {
        Corruption { what: what.into(), offset: offset.try_into().unwrap_or(u64::MAX), missing_feature: None }
    }

    /// The same corruption seen from a slice that starts `base` bytes earlier.
    #[must_use]
    pub fn rebased(mut self, base: u64) -> Self {
        self.offset = self.offset.saturating_add(base);
        self
    }

    /// The same corruption, its reason preceded by `context` ("index block: bad varint").
    #[must_use]
    pub fn within(mut self, context: &str) -> Self {
        self.what = Cow::Owned(format!("{context}: {}", self.what));
        self
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.what, self.offset)
    }
}

impl std::error::Error for Corruption {}
