//! Ids of the entries of streams: a time in milliseconds and a number within it.

use crate::wrong::Wrong;
use std::fmt;

/// Maximum length of the text of an id, as Redis has it.
const TEXT_AT_MOST: usize = 127;

/// Id of an entry: milliseconds in the upper 64 bits, a sequence number in the lower ones. The
/// order of ids is that of the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(u128);

impl EntryId {
    /// 0-0, which no entry has.
    pub(crate) const ZERO: Self = Self(0);
    /// The largest one.
    pub(crate) const MAX: Self = Self(u128::MAX);

    pub(crate) const fn new(ms: u64, seq: u64) -> Self {
        Self((ms as u128) << 64 | seq as u128)
    }

    pub(crate) fn ms(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub(crate) fn seq(self) -> u64 {
        self.0 as u64
    }

    /// The id behind it; `None` behind the largest one.
    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// The id before it; `None` before 0-0.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// 16 bytes, whose order is that of the ids.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Parses `ms-seq`, or `ms` alone, whose sequence number is `missing` then.
    ///
    /// # Errors
    /// It is neither.
    pub(crate) fn parse(text: &[u8], missing: u64) -> Result<Self, Wrong> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_AT_MOST);
        let parsed = text.and_then(|text| match text.split_once('-') {
            Some((ms, seq)) => Some(Self::new(ms.parse().ok()?, seq.parse().ok()?)),
            None => Some(Self::new(text.parse().ok()?, missing)),
        });
        parsed.ok_or(Wrong::invalid_entry_id())
    }

    /// Parses the first or the last id of a range: `-`, `+`, an id, or one behind `(` that is not
    /// in the range.
    ///
    /// # Errors
    /// It is none of these, or no id is left in the range.
    pub(crate) fn parse_limit(text: &[u8], is_first: bool) -> Result<Self, Wrong> {
        let missing = if is_first { 0 } else { u64::MAX };
        match text {
            b"-" => Ok(Self::ZERO),
            b"+" => Ok(Self::MAX),
            [b'(', id @ ..] if !id.is_empty() => {
                let id = Self::parse(id, missing)?;
                match is_first {
                    true => id.next().ok_or(Wrong::err("invalid start ID for the interval")),
                    false => id.previous().ok_or(Wrong::err("invalid end ID for the interval")),
                }
            }
            id => Self::parse(id, missing),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms(), self.seq())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ids() {
        let parse = |text: &str| EntryId::parse(text.as_bytes(), 7);
        assert_eq!(parse("5-6"), Ok(EntryId::new(5, 6)));
        assert_eq!(parse("5"), Ok(EntryId::new(5, 7)));
        assert_eq!(parse("18446744073709551615-18446744073709551615"), Ok(EntryId::MAX));
        assert_eq!(EntryId::new(5, 6).to_string(), "5-6");
        for wrong in ["", "-", "+", "5-", "-5", "5-6-7", "5-*", "x", "18446744073709551616", "(5"] {
            assert_eq!(parse(wrong), Err(Wrong::invalid_entry_id()), "{wrong}");
        }
        assert!(parse(&"0".repeat(128)).is_err());
    }

    #[test]
    fn limits_include_or_exclude() {
        let first = |text: &str| EntryId::parse_limit(text.as_bytes(), true);
        let last = |text: &str| EntryId::parse_limit(text.as_bytes(), false);
        assert_eq!((first("-"), last("+")), (Ok(EntryId::ZERO), Ok(EntryId::MAX)));
        assert_eq!((first("5"), last("5")), (Ok(EntryId::new(5, 0)), Ok(EntryId::new(5, u64::MAX))));
        assert_eq!(first("(5"), Ok(EntryId::new(5, 1)));
        assert_eq!(first("(5-18446744073709551615"), Ok(EntryId::new(6, 0)));
        assert_eq!(last("(5-0"), Ok(EntryId::new(4, u64::MAX)));
        assert!(first("(18446744073709551615-18446744073709551615").is_err() && last("(0-0").is_err());
        assert!(first("(+").is_err() && last("(").is_err());
    }

    #[test]
    fn bytes_have_the_order_of_ids() {
        let ids = [EntryId::ZERO, EntryId::new(0, 1), EntryId::new(1, 0), EntryId::new(256, 0), EntryId::MAX];
        let bytes = ids.map(EntryId::to_bytes);
        assert!(ids.is_sorted() && bytes.is_sorted());
        assert_eq!(bytes.map(EntryId::from_bytes), ids);
    }
}
