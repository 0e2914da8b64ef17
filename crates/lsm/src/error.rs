//! The error of this crate: an edit that does not fit the state it is applied to.
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// A version edit contradicts the state so far, or the resulting tree breaks one of its invariants.
///
/// `what` names the files, levels and column families concerned. The caller adds the MANIFEST's
/// name and the record's offset, which are not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistent {
    /// Description of the contradiction.
    pub what: Cow<'static, str>,
}

impl Inconsistent {
    /// Returns an error with this description.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Inconsistent {
        Inconsistent { what: what.into() }
    }
}

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Inconsistent {}
