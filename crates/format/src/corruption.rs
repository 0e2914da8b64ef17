//! The error of every decoder in this crate: bytes that violate their format.
//!
//! In: a reason and the offset, within the bytes handed to the decoder, at which it stopped.
//! Out: [`Corruption`], which callers lift into an error that also names the file.
//! Invariant: constructing one never reads the input again and never panics.
//! Used by every decoder of this crate.

use std::borrow::Cow;
use std::fmt;

/// Bytes that do not decode: what was expected or found, and where.
///
/// `offset` counts bytes from the start of the slice handed to the decoder. A caller that knows
/// where that slice lies in a larger one moves it with [`Corruption::rebased`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// Description of the damage, for people.
    pub what: Cow<'static, str>,
    /// Offset of the damage, in bytes from the start of the decoded slice.
    pub offset: u64,
    /// Cargo feature that decoding these bytes requires and this build lacks; the bytes themselves
    /// may be valid.
    pub missing_feature: Option<&'static str>,
}

impl Corruption {
    /// Returns a corruption found at `offset` bytes into the decoded slice.
    #[cold]
    pub fn new(what: impl Into<Cow<'static, str>>, offset: impl TryInto<u64>) -> Self {
        Corruption { what: what.into(), offset: offset.try_into().unwrap_or(u64::MAX), missing_feature: None }
    }

    /// Returns the same corruption relative to a slice that starts `base` bytes earlier.
    #[must_use]
    pub fn rebased(mut self, base: u64) -> Self {
        self.offset = self.offset.saturating_add(base);
        self
    }

    /// Returns the same corruption with `context` before its reason ("index block: bad varint").
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
