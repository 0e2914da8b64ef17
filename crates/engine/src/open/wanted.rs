//! Which column families an opening is asked for.

use std::collections::BTreeSet;

/// The name of the column family that every database has.
pub(crate) const DEFAULT: &str = "default";

/// Which column families to open.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// All there are.
    All,
    /// These and the default one, which have to exist.
    Named(&'a [&'a str]),
    /// All there are, and these as well, which may be missing.
    AllAnd(&'a [&'a str]),
}

impl<'a> Wanted<'a> {
    /// Whether a family of this name is to be opened.
    pub(crate) fn opened(&self) -> impl Fn(&str) -> bool + use<'a> {
        let named: Option<BTreeSet<&'a str>> = match self {
            Wanted::Named(names) => Some(names.iter().copied().collect()),
            Wanted::All | Wanted::AllAnd(_) => None,
        };
        move |name| named.as_ref().is_none_or(|named| name == DEFAULT || named.contains(name))
    }
}
