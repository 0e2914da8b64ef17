//! Prefix extractors: the part of a key used by prefix filters, hash indexes and prefix iteration.
//!
//! | name in OPTIONS and table properties | option string | prefix |
//! |---|---|---|
//! | `rocksdb.FixedPrefix.N` | `fixed:N` | first N bytes; shorter keys have none |
//! | `rocksdb.CappedPrefix.N` | `capped:N` | first N bytes, or the whole of a shorter key |
//! | `rocksdb.Noop` | | the key |
//!
//! Specified by RocksDB's util/slice.cc. In: a name, then user keys. Out: prefixes borrowed from
//! the keys.
//! Invariant: two extractors with equal names extract equal prefixes, so a table filter may be
//! queried only by an extractor of the name it was built under.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

/// A prefix extractor that the application defines.
///
/// For every key in the domain `transform` must depend on nothing but the key; and keys that sort
/// between two keys of one prefix must have that prefix too, because prefix iteration otherwise
/// misses them.
pub trait SliceTransform: Send + Sync + Debug {
    /// Returns the name that tables record; two extractors of one name must extract equal prefixes.
    fn name(&self) -> &str;
    /// Returns true if `key` has a prefix.
    fn in_domain(&self, key: &[u8]) -> bool;
    /// Returns the prefix of a key that has one.
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8];
    /// Returns the length of the longest prefix, or `None` if it is not bounded.
    fn full_length(&self) -> Option<usize> {
        None
    }
}

/// A prefix extractor: built-in or the application's own.
#[derive(Debug, Clone)]
pub enum PrefixExtractor {
    /// The first bytes of a key, as many as given; shorter keys have no prefix.
    Fixed(usize),
    /// The first bytes of a key, at most as many as given.
    Capped(usize),
    /// The whole key.
    Noop,
    /// The application's own extractor.
    Custom(Arc<dyn SliceTransform>),
}

impl PrefixExtractor {
    /// Returns the built-in extractor with this name in OPTIONS files, table properties or option
    /// strings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PrefixExtractor> {
        let length = |prefix: &str| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<usize>().ok()).flatten()
        };
        if name == "rocksdb.Noop" {
            return Some(PrefixExtractor::Noop);
        }
        if let Some(n) = length("rocksdb.FixedPrefix.").or_else(|| length("fixed:")) {
            return Some(PrefixExtractor::Fixed(n));
        }
        length("rocksdb.CappedPrefix.").or_else(|| length("capped:")).map(PrefixExtractor::Capped)
    }

    /// Returns the name that RocksDB records, such as `rocksdb.FixedPrefix.8`.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            PrefixExtractor::Fixed(n) => Cow::Owned(format!("rocksdb.FixedPrefix.{n}")),
            PrefixExtractor::Capped(n) => Cow::Owned(format!("rocksdb.CappedPrefix.{n}")),
            PrefixExtractor::Noop => Cow::Borrowed("rocksdb.Noop"),
            PrefixExtractor::Custom(t) => Cow::Borrowed(t.name()),
        }
    }

    /// Returns true if this is the extractor that a table or an OPTIONS file recorded as `name`;
    /// allocates nothing.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        match (self, PrefixExtractor::from_name(name)) {
            (PrefixExtractor::Custom(t), _) => t.name() == name,
            (PrefixExtractor::Fixed(a), Some(PrefixExtractor::Fixed(b)))
            | (PrefixExtractor::Capped(a), Some(PrefixExtractor::Capped(b))) => *a == b,
            (PrefixExtractor::Noop, Some(PrefixExtractor::Noop)) => true,
            _ => false,
        }
    }

    /// Returns true if `key` has a prefix.
    #[inline]
    #[must_use]
    pub fn in_domain(&self, key: &[u8]) -> bool {
        match self {
            PrefixExtractor::Fixed(n) => key.len() >= *n,
            PrefixExtractor::Capped(_) | PrefixExtractor::Noop => true,
            PrefixExtractor::Custom(t) => t.in_domain(key),
        }
    }

    /// Returns the prefix of a key, or the key if it is outside the domain.
    #[inline]
    #[must_use]
    pub fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            PrefixExtractor::Fixed(n) | PrefixExtractor::Capped(n) => &key[..(*n).min(key.len())],
            PrefixExtractor::Noop => key,
            PrefixExtractor::Custom(t) => t.transform(key),
        }
    }

    /// Returns the prefix of `key`, if it has one.
    #[inline]
    #[must_use]
    pub fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.in_domain(key).then(|| self.transform(key))
    }

    /// Returns the length of the longest prefix, if bounded: a bound of that length can be compared
    /// by its prefix alone.
    #[must_use]
    pub fn full_length(&self) -> Option<usize> {
        match self {
            PrefixExtractor::Fixed(n) | PrefixExtractor::Capped(n) => Some(*n),
            PrefixExtractor::Noop => None,
            PrefixExtractor::Custom(t) => t.full_length(),
        }
    }
}

impl PartialEq for PrefixExtractor {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (PrefixExtractor::Custom(a), b) => b.has_name(a.name()),
            (a, PrefixExtractor::Custom(b)) => a.has_name(b.name()),
            (PrefixExtractor::Fixed(a), PrefixExtractor::Fixed(b))
            | (PrefixExtractor::Capped(a), PrefixExtractor::Capped(b)) => a == b,
            (PrefixExtractor::Noop, PrefixExtractor::Noop) => true,
            _ => false,
        }
    }
}

impl Eq for PrefixExtractor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct UpToSlash;
    impl SliceTransform for UpToSlash {
        fn name(&self) -> &str {
            "test.UpToSlash"
        }
        fn in_domain(&self, key: &[u8]) -> bool {
            key.contains(&b'/')
        }
        fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
            &key[..=key.iter().position(|&b| b == b'/').unwrap_or(key.len() - 1)]
        }
    }

    #[test]
    fn by_name() {
        for (name, extractor, canonical) in [
            ("rocksdb.FixedPrefix.8", PrefixExtractor::Fixed(8), "rocksdb.FixedPrefix.8"),
            ("fixed:8", PrefixExtractor::Fixed(8), "rocksdb.FixedPrefix.8"),
            ("rocksdb.CappedPrefix.3", PrefixExtractor::Capped(3), "rocksdb.CappedPrefix.3"),
            ("capped:3", PrefixExtractor::Capped(3), "rocksdb.CappedPrefix.3"),
            ("rocksdb.Noop", PrefixExtractor::Noop, "rocksdb.Noop"),
        ] {
            assert_eq!(PrefixExtractor::from_name(name).unwrap(), extractor);
            assert_eq!(extractor.name(), canonical);
            assert!(extractor.has_name(name));
            assert!(extractor.has_name(canonical));
            assert!(!extractor.has_name("rocksdb.FixedPrefix.9"));
        }
        for name in [
            "",
            "fixed:",
            "fixed:x",
            "fixed:-1",
            "fixed:+1",
            "rocksdb.FixedPrefix",
            "capped:99999999999999999999999",
        ] {
            assert!(PrefixExtractor::from_name(name).is_none(), "{name}");
        }
    }

    #[test]
    fn prefixes() {
        let fixed = PrefixExtractor::Fixed(3);
        assert_eq!(fixed.prefix(b"abcd"), Some(&b"abc"[..]));
        assert_eq!(fixed.prefix(b"abc"), Some(&b"abc"[..]));
        assert_eq!(fixed.prefix(b"ab"), None);
        assert_eq!(PrefixExtractor::Capped(3).prefix(b"ab"), Some(&b"ab"[..]));
        assert_eq!(PrefixExtractor::Capped(3).prefix(b"abcd"), Some(&b"abc"[..]));
        assert_eq!(PrefixExtractor::Noop.prefix(b"abcd"), Some(&b"abcd"[..]));
        let custom = PrefixExtractor::Custom(Arc::new(UpToSlash));
        assert_eq!(custom.prefix(b"ab/cd"), Some(&b"ab/"[..]));
        assert_eq!(custom.prefix(b"abcd"), None);
        assert!(custom.has_name("test.UpToSlash"));
        assert_ne!(custom, fixed);
    }
}
