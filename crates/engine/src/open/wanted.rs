//! The column families to open.

use std::collections::BTreeSet;

/// Name of the column family that every database has.
pub(crate) const DEFAULT: &str = "default";

/// The column families to open.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// All existing ones.
    All,
    /// These and the default one, which must exist.
    Named(&'a [&'a str]),
    /// All existing ones, and these as well, which may be missing.
    AllAnd(&'a [&'a str]),
}

impl<'a> Wanted<'a> {
    /// Returns a predicate that is true for the names of families to open.
    pub(crate) fn opened(&self) -> impl Fn(&str) -> bool + use<'a> {
        let named: Option<BTreeSet<&'a str>> = match self {
            Wanted::Named(names) => Some(names.iter().copied().collect()),
            Wanted::All | Wanted::AllAnd(_) => None,
        };
        move |name| named.as_ref().is_none_or(|named| name == DEFAULT || named.contains(name))
    }
}
