//! Prefix extractors: which part of a key prefix filters, hash indexes and prefix iteration go by.
//!
//! | name in OPTIONS and table properties | option string | prefix |
//! |---|---|---|
//! | `rocksdb.FixedPrefix.N` | `fixed:N` | first N bytes; shorter keys have none |
//! | `rocksdb.CappedPrefix.N` | `capped:N` | first N bytes, or the whole of a shorter key |
//! | `rocksdb.Noop` | | the key |
//!
//! Specified by RocksDB's util/slice.cc. In: a name, then user keys. Out: prefixes borrowed from
//! the keys.
//! Invariant: two extractors with the same name cut every key alike, so a table filter built under
//! a name may be asked by whoever has an extractor of that name, and by nobody else.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

/// A prefix extractor that the user brings.
///
/// For every key in the domain `transform` must be deterministic, a function of the key alone; and
/// keys that sort between two keys of one prefix must have that prefix too, or prefix iteration
/// misses them.
pub trait SliceTransform: Send + Sync + Debug {
    /// What tables record; two extractors of one name must cut alike.
    fn name(&self) -> &str;
    /// Whether `key` has a prefix.
    fn in_domain(&self, key: &[u8]) -> bool;
    /// The prefix of a key that has one.
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8];
    /// The length of the longest prefix, if there is a longest.
    fn full_length(&self) -> Option<usize> {
        None
    }
}

/// How to cut the prefix off a key.
#[derive(Debug, Clone)]
pub enum PrefixExtractor {
    /// The first so many bytes; shorter keys have no prefix.
    Fixed(usize),
    /// At most the first so many bytes.
    Capped(usize),
    /// The whole key.
    Noop,
    /// The user's own.
    Custom(Arc<dyn SliceTransform>),
}

impl PrefixExtractor {
    /// The built-in extractor with this name, as it stands in OPTIONS files, table properties or
    /// option strings.
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

    /// The name that RocksDB records, such as `rocksdb.FixedPrefix.8`.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            PrefixExtractor::Fixed(n) => Cow::Owned(format!("rocksdb.FixedPrefix.{n}")),
            PrefixExtractor::Capped(n) => Cow::Owned(format!("rocksdb.CappedPrefix.{n}")),
            PrefixExtractor::Noop => Cow::Borrowed("rocksdb.Noop"),
            PrefixExtractor::Custom(t) => Cow::Borrowed(t.name()),
        }
    }

    /// Whether this is the extractor that a table or an OPTIONS file recorded under `name`;
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

    /// Whether `key` has a prefix.
    #[inline]
    #[must_use]
    pub fn in_domain(&self, key: &[u8]) -> bool {
        match self {
            PrefixExtractor::Fixed(n) => key.len() >= *n,
            PrefixExtractor::Capped(_) | PrefixExtractor::Noop => true,
            PrefixExtractor::Custom(t) => t.in_domain(key),
        }
    }

    /// The prefix of a key; for one outside the domain, the key.
    #[inline]
    #[must_use]
    pub fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            PrefixExtractor::Fixed(n) | PrefixExtractor::Capped(n) => &key[..(*n).min(key.len())],
            PrefixExtractor::Noop => key,
            PrefixExtractor::Custom(t) => t.transform(key),
        }
    }

    /// The prefix of `key`, if it has one.
    #[inline]
    #[must_use]
    pub fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.in_domain(key).then(|| self.transform(key))
    }

    /// The length of the longest prefix, if there is a longest: a bound of that length can be
    /// compared by its prefix alone.
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
