//! Keyspace events, and the observer that commits tell of them and of the keys that have changed.
//!
//! In: events of handlers and of expiry, keys that a batch has written. Out: one call of the
//! [`Observer`] for each commit, behind its write and before its keys are unlocked. So the observer
//! sees the commits that write a key in their order.

use super::Key;
use futures_util::future::LocalBoxFuture;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Classes of events, and the channels that get them: a letter of `notify-keyspace-events` each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes(u32);

impl Classes {
    /// Channels by keys.
    pub(crate) const BY_KEY: Self = Self(1);
    /// Channels by events.
    pub(crate) const BY_EVENT: Self = Self(2);
    /// Commands for keys of any type.
    pub(crate) const GENERIC: Self = Self(4);
    pub(crate) const STRING: Self = Self(8);
    pub(crate) const LIST: Self = Self(16);
    pub(crate) const SET: Self = Self(32);
    pub(crate) const HASH: Self = Self(64);
    pub(crate) const SORTED_SET: Self = Self(128);
    pub(crate) const STREAM: Self = Self(1024);
    /// Deletions of expired keys.
    pub(crate) const EXPIRED: Self = Self(256);
    /// Lookups of keys that are not there.
    pub(crate) const MISS: Self = Self(1 << 12);
    /// Keys that were not there before.
    pub(crate) const NEW: Self = Self(1 << 13);
    /// Those of `A`. Evictions and modules are among them.
    const ALL: Self = Self(0xffc);
    const CHANNELS: Self = Self::BY_KEY.and(Self::BY_EVENT);

    /// Letters in the order in which CONFIG GET has them.
    const LETTERS: [(u8, Self); 14] = [
        (b'g', Self::GENERIC),
        (b'$', Self::STRING),
        (b'l', Self::LIST),
        (b's', Self::SET),
        (b'h', Self::HASH),
        (b'z', Self::SORTED_SET),
        (b'x', Self::EXPIRED),
        (b'e', Self(512)),
        (b't', Self::STREAM),
        (b'd', Self(2048)),
        (b'n', Self::NEW),
        (b'K', Self::BY_KEY),
        (b'E', Self::BY_EVENT),
        (b'm', Self::MISS),
    ];

    /// Those of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if both have a class.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Parses letters; `None` if one is unknown.
    pub(crate) fn parse(letters: &[u8]) -> Option<Self> {
        letters.iter().try_fold(Self::default(), |classes, letter| {
            let known = Self::LETTERS.iter().find(|(of, _)| of == letter).map(|(_, class)| *class);
            Some(classes.and(if *letter == b'A' { Self::ALL } else { known? }))
        })
    }
}

/// The letters, each once and in one order, with `A` for all that it stands for.
impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.0 & Self::ALL.0 == Self::ALL.0;
        if has_all {
            f.write_str("A")?;
        }
        let letters = Self::LETTERS.iter().filter(|(_, class)| self.meets(*class));
        letters
            .filter(|(_, class)| !has_all || !class.meets(Self::ALL))
            .try_for_each(|(letter, _)| write!(f, "{}", char::from(*letter)))
    }
}

/// An event of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    /// Name by which Redis knows it.
    pub(crate) name: &'static str,
    pub(crate) key: Key,
}

/// Effects of a commit. A key may be in `changed` more than once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News<'a> {
    /// Events that were asked for, in their order.
    pub(crate) events: &'a [KeyEvent],
    /// Keys that were written, and expired ones that were deleted.
    pub(crate) changed: [&'a [Key]; 2],
    /// True if all keys of a database were removed or moved.
    pub(crate) is_flush: bool,
    /// Number of the client that has written; 0: none has.
    pub(crate) writer: u64,
}

/// Gets the news of commits.
pub(crate) trait Observer: Send + Sync {
    /// Called behind each commit, while the keys that it has written are locked. Must not wait for
    /// locks on keys.
    fn committed<'a>(&'a self, news: News<'a>) -> LocalBoxFuture<'a, ()>;
}

/// Bit of [`Interests`] that is set while changes of keys are asked for.
const CHANGES: u32 = 1 << 31;

/// Kinds of news that the observer wants; no others are kept for it.
#[derive(Debug, Default)]
pub(crate) struct Interests(AtomicU32);

impl Interests {
    /// Returns the classes of the events that are asked for.
    pub(crate) fn classes(&self) -> Classes {
        Classes(self.0.load(Ordering::Relaxed) & !CHANGES)
    }

    pub(crate) fn set_classes(&self, classes: Classes) {
        let replaced = |bits: u32| Some(bits & CHANGES | classes.0);
        let _always_set = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, replaced);
    }

    /// True if the observer wants events of one of these classes.
    pub(crate) fn has(&self, classes: Classes) -> bool {
        let asked = self.classes();
        asked.meets(classes) && asked.meets(Classes::CHANNELS)
    }

    /// Asks for the changes of keys, or does not any more. Commits that become visible later tell
    /// of them.
    pub(crate) fn set_changes(&self, are_asked: bool) {
        match are_asked {
            true => self.0.fetch_or(CHANGES, Ordering::SeqCst),
            false => self.0.fetch_and(!CHANGES, Ordering::SeqCst),
        };
        fence(Ordering::SeqCst);
    }

    fn has_changes(&self) -> bool {
        // Ordering: the commit is seen by reads that begin behind a `set_changes` that is not seen
        // here. Both have a fence between their write and their read.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) & CHANGES != 0
    }
}

/// The observer of a store.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) interests: std::sync::Arc<Interests>,
    pub(super) observer: OnceLock<Box<dyn Observer>>,
}

impl Observed {
    /// Tells the observer of a commit, which can be seen already.
    pub(super) async fn tell(&self, news: News<'_>) {
        let has_changes = || {
            let is_changed = news.is_flush || news.changed.iter().any(|keys| !keys.is_empty());
            is_changed && self.interests.has_changes()
        };
        if (!news.events.is_empty() || has_changes())
            && let Some(observer) = self.observer.get()
        {
            observer.committed(news).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_one_order() {
        let texts = [
            ("", ""),
            ("KEA", "AKE"),
            ("gKE", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("eKlEn$", "$lenKE"),
            ("g$lshzxetdmn", "Anm"),
            ("Am", "Am"),
        ];
        for (given, text) in texts {
            let classes = Classes::parse(given.as_bytes()).unwrap();
            assert_eq!(classes.to_string(), text);
            assert_eq!(Classes::parse(text.as_bytes()), Some(classes));
        }
        assert_eq!((Classes::parse(b"KEq"), Classes::parse(b"k")), (None, None));
    }

    #[test]
    fn nothing_is_asked_for_without_a_channel() {
        let interests = Interests::default();
        interests.set_changes(true);
        for (letters, has) in [("A", false), ("KA", true), ("Eg", true), ("Em", false), ("", false)] {
            interests.set_classes(Classes::parse(letters.as_bytes()).unwrap());
            assert_eq!(interests.has(Classes::GENERIC), has, "{letters}");
            assert!(interests.has_changes());
        }
    }
}
