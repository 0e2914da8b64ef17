//! The order of user keys, and of the internal keys made from them.
//!
//! In: two keys. Out: their order. The built-in orders are variants of an enum, so that the common
//! one is inlined into search loops; user comparators are trait objects.
//!
//! With a comparator that has user-defined timestamps, the last [`Comparator::timestamp_size`]
//! bytes of every stored user key are its timestamp:
//!
//! | function | compares |
//! |---|---|
//! | [`Comparator::compare_user`] | stored user keys without their timestamps |
//! | [`Comparator::compare_with_timestamps`] | stored user keys: timestamps descend within a key |
//! | [`Comparator::compare_bare`] | user keys as passed to the API, which have no timestamps behind them |
//!
//! Without timestamps the three are equal.
//!
//! Compat: the names are RocksDB's; the MANIFEST and every table's properties record them, and a
//! database must be opened with the comparator that it was created with.
//!
//! Invariant: comparing never panics on any bytes; keys too short for an internal trailer still
//! have a total order.

use crate::key;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// An order of user keys that the application defines.
pub trait UserComparator: Send + Sync + fmt::Debug {
    /// Returns the name that the database records.
    fn name(&self) -> &str;

    /// Returns the order of two user keys. It must be total and must never change once data exists.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// May replace `start` by a shorter key in `[start, limit)`; used for index keys. Doing nothing
    /// is correct.
    fn shorten_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let _ = (start, limit);
    }

    /// May replace `key` by a shorter key that is not smaller; used for the last index key. Doing
    /// nothing is correct.
    fn shorten_successor(&self, key: &mut Vec<u8>) {
        let _ = key;
    }

    /// Returns true if two keys with different bytes may compare equal; hash indexes are then not
    /// used.
    fn different_bytes_may_be_equal(&self) -> bool {
        true
    }

    /// Returns the length in bytes of the timestamp at the end of each stored key; 0 for keys
    /// without timestamps. It must never change. If it is not 0, [`compare`](Self::compare)
    /// receives keys with timestamps, and orders the later timestamp first if the keys before them
    /// are equal.
    fn timestamp_size(&self) -> usize {
        0
    }

    /// Returns the order of two timestamps; the greater one is the later. The default compares
    /// little-endian integers. The latest timestamp must consist of bytes 0xff, the earliest one of
    /// zeroes.
    fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.iter().rev().cmp(b.iter().rev())
    }

    /// Returns the order of two keys without their timestamps; the bool of each key is true if a
    /// timestamp is at its end. The default calls [`compare`](Self::compare) with the same
    /// timestamp on both, which copies them.
    fn compare_without_timestamp(&self, a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
        let bytes = self.timestamp_size();
        if bytes == 0 {
            return self.compare(a.0, b.0);
        }
        let with_zeroes = |(key, has_timestamp): (&[u8], bool)| {
            let bare = key.len() - if has_timestamp { bytes.min(key.len()) } else { 0 };
            [&key[..bare], &vec![0; bytes]].concat()
        };
        self.compare(&with_zeroes(a), &with_zeroes(b))
    }
}

/// An order of user keys. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Comparator {
    /// `leveldb.BytewiseComparator`: by bytes, ascending.
    #[default]
    Bytewise,
    /// `rocksdb.ReverseBytewiseComparator`: by bytes, descending.
    ReverseBytewise,
    /// `rocksdb.Uint64Comparator`: eight-byte keys as native (little-endian) integers, ascending.
    Uint64,
    /// `leveldb.BytewiseComparator.u64ts`: by bytes, ascending, then by timestamps, eight-byte
    /// little-endian integers, descending.
    BytewiseU64Ts,
    /// `rocksdb.ReverseBytewiseComparator.u64ts`: by bytes, descending, then by timestamps as
    /// above.
    ReverseBytewiseU64Ts,
    /// A user comparator without timestamps.
    Custom(Arc<dyn UserComparator>),
    /// A user comparator with timestamps of this many bytes. Created by [`Comparator::custom`].
    CustomWithTimestamps(Arc<dyn UserComparator>, usize),
}

const BYTEWISE: &str = "leveldb.BytewiseComparator";
const REVERSE_BYTEWISE: &str = "rocksdb.ReverseBytewiseComparator";
const UINT64: &str = "rocksdb.Uint64Comparator";
const BYTEWISE_U64_TS: &str = "leveldb.BytewiseComparator.u64ts";
const REVERSE_BYTEWISE_U64_TS: &str = "rocksdb.ReverseBytewiseComparator.u64ts";
const U64_TS_BYTES: usize = size_of::<u64>();

/// Error: no built-in comparator has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownComparator {
    /// The name that was looked up.
    pub name: String,
}

impl fmt::Display for UnknownComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "comparator {:?} is not built in; pass it in the column family's options", self.name)
    }
}

impl std::error::Error for UnknownComparator {}

impl Comparator {
    /// Returns the built-in comparator with RocksDB's name `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Comparator> {
        match name {
            BYTEWISE => Some(Comparator::Bytewise),
            REVERSE_BYTEWISE => Some(Comparator::ReverseBytewise),
            UINT64 => Some(Comparator::Uint64),
            BYTEWISE_U64_TS => Some(Comparator::BytewiseU64Ts),
            REVERSE_BYTEWISE_U64_TS => Some(Comparator::ReverseBytewiseU64Ts),
            _ => None,
        }
    }

    /// Wraps a user comparator.
    #[must_use]
    pub fn custom(comparator: Arc<dyn UserComparator>) -> Comparator {
        match comparator.timestamp_size() {
            0 => Comparator::Custom(comparator),
            bytes => Comparator::CustomWithTimestamps(comparator, bytes),
        }
    }

    /// Returns the length in bytes of the timestamp at the end of each stored user key; 0 for keys
    /// without timestamps.
    #[inline]
    #[must_use]
    pub fn timestamp_size(&self) -> usize {
        match self {
            Comparator::Bytewise
            | Comparator::ReverseBytewise
            | Comparator::Uint64
            | Comparator::Custom(_) => 0,
            Comparator::BytewiseU64Ts | Comparator::ReverseBytewiseU64Ts => U64_TS_BYTES,
            Comparator::CustomWithTimestamps(_, bytes) => *bytes,
        }
    }

    /// Splits a stored user key into key and timestamp. If it is shorter than a timestamp, all of
    /// it is taken as the timestamp.
    #[inline]
    #[must_use]
    pub fn split_timestamp<'k>(&self, user_key: &'k [u8]) -> (&'k [u8], &'k [u8]) {
        user_key.split_at(user_key.len().saturating_sub(self.timestamp_size()))
    }

    /// Returns a stored user key without its timestamp.
    #[inline]
    #[must_use]
    pub fn bare<'k>(&self, user_key: &'k [u8]) -> &'k [u8] {
        self.split_timestamp(user_key).0
    }

    /// Returns the comparator of [`Comparator::from_name`], or an error with the name.
    pub fn lookup(name: &str) -> Result<Comparator, UnknownComparator> {
        Comparator::from_name(name).ok_or_else(|| UnknownComparator { name: name.to_owned() })
    }

    /// Returns `bare` with the timestamp that sorts before all others of the key.
    ///
    /// Compat: as in RocksDB the greatest timestamp of every comparator consists of bytes 0xff.
    #[must_use]
    pub fn with_greatest_timestamp(&self, bare: &[u8]) -> Vec<u8> {
        let mut key = bare.to_vec();
        key.resize(bare.len() + self.timestamp_size(), 0xff);
        key
    }

    /// Returns the internal key that sorts before every entry of the stored `user_key` with any
    /// timestamp, and after all entries of smaller keys.
    #[must_use]
    pub fn before_all_of(&self, user_key: &[u8]) -> Vec<u8> {
        key::before_all_of(&self.with_greatest_timestamp(self.bare(user_key)))
    }

    /// Returns the name that the database records.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Comparator::Bytewise => BYTEWISE,
            Comparator::ReverseBytewise => REVERSE_BYTEWISE,
            Comparator::Uint64 => UINT64,
            Comparator::BytewiseU64Ts => BYTEWISE_U64_TS,
            Comparator::ReverseBytewiseU64Ts => REVERSE_BYTEWISE_U64_TS,
            Comparator::Custom(c) | Comparator::CustomWithTimestamps(c, _) => c.name(),
        }
    }

    /// Returns the order of two stored user keys, ignoring their timestamps.
    #[inline(always)]
    #[must_use]
    pub fn compare_user(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::Bytewise => compare_bytes(a, b),
            other => other.compare_user_uncommon(a, b),
        }
    }

    #[inline(never)]
    fn compare_user_uncommon(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::BytewiseU64Ts | Comparator::ReverseBytewiseU64Ts => {
                self.compare_bare(self.bare(a), self.bare(b))
            }
            // Keys shorter than a timestamp are ordered here, because users' code relies on their
            // length.
            Comparator::CustomWithTimestamps(c, bytes) if a.len() >= *bytes && b.len() >= *bytes => {
                c.compare_without_timestamp((a, true), (b, true))
            }
            Comparator::CustomWithTimestamps(..) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            _ => self.compare_bare(a, b),
        }
    }

    /// Returns the order of two user keys without timestamps behind them, as passed to the API.
    #[must_use]
    pub fn compare_bare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::Bytewise | Comparator::BytewiseU64Ts => a.cmp(b),
            Comparator::ReverseBytewise | Comparator::ReverseBytewiseU64Ts => b.cmp(a),
            Comparator::Uint64 => match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
                (Ok(a), Ok(b)) => u64::from_le_bytes(a).cmp(&u64::from_le_bytes(b)),
                // RocksDB asserts eight bytes; a total order keeps hostile keys harmless.
                _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            },
            Comparator::Custom(c) => c.compare(a, b),
            Comparator::CustomWithTimestamps(c, _) => c.compare_without_timestamp((a, false), (b, false)),
        }
    }

    /// Returns the order of two stored user keys; of equal keys the one with the greater timestamp
    /// sorts first.
    #[inline(always)]
    #[must_use]
    pub fn compare_with_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::Bytewise => compare_bytes(a, b),
            other => other.compare_with_timestamps_uncommon(a, b),
        }
    }

    #[inline(never)]
    fn compare_with_timestamps_uncommon(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::BytewiseU64Ts | Comparator::ReverseBytewiseU64Ts => {
                let ((a, a_timestamp), (b, b_timestamp)) = (self.split_timestamp(a), self.split_timestamp(b));
                self.compare_bare(a, b).then_with(|| self.compare_timestamps(b_timestamp, a_timestamp))
            }
            // Keys shorter than a timestamp are ordered here, because users' code relies on their
            // length.
            Comparator::CustomWithTimestamps(c, bytes) if a.len() >= *bytes && b.len() >= *bytes => {
                c.compare(a, b)
            }
            Comparator::CustomWithTimestamps(..) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            _ => self.compare_bare(a, b),
        }
    }

    /// Returns the order of two timestamps; the greater one is the later. Without timestamps all
    /// are equal.
    #[must_use]
    pub fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Comparator::BytewiseU64Ts | Comparator::ReverseBytewiseU64Ts => {
                match (<[u8; U64_TS_BYTES]>::try_from(a), <[u8; U64_TS_BYTES]>::try_from(b)) {
                    (Ok(a), Ok(b)) => u64::from_le_bytes(a).cmp(&u64::from_le_bytes(b)),
                    _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
                }
            }
            Comparator::CustomWithTimestamps(c, _) => c.compare_timestamps(a, b),
            _ => Ordering::Equal,
        }
    }

    /// Returns true if two stored user keys are equal, ignoring their timestamps.
    #[inline(always)]
    #[must_use]
    pub fn equal_user(&self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Comparator::Bytewise | Comparator::ReverseBytewise | Comparator::Uint64 => equal_bytes(a, b),
            other => other.compare_user_uncommon(a, b).is_eq(),
        }
    }

    /// Returns the order of two encoded internal keys: user key ascending, timestamp descending,
    /// then trailer descending (newest first).
    #[inline(always)]
    #[must_use]
    pub fn compare_internal(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (user_a, trailer_a) = key::split(a);
        let (user_b, trailer_b) = key::split(b);
        self.compare_with_timestamps(user_a, user_b).then_with(|| trailer_b.cmp(&trailer_a))
    }

    /// Replaces the user key `start` by a shorter one in `[start, limit)` if a short one is cheap
    /// to find.
    pub fn shorten_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        match self {
            Comparator::Bytewise => shorten_separator_ascending(start, limit),
            Comparator::ReverseBytewise => shorten_separator_descending(start, limit),
            Comparator::Custom(c) => c.shorten_separator(start, limit),
            // Keys with timestamps are not shortened, because the shorter key would need a
            // timestamp too.
            Comparator::Uint64
            | Comparator::BytewiseU64Ts
            | Comparator::ReverseBytewiseU64Ts
            | Comparator::CustomWithTimestamps(..) => {}
        }
    }

    /// Replaces the user key by a shorter one that is not smaller if one is cheap to find.
    pub fn shorten_successor(&self, key: &mut Vec<u8>) {
        match self {
            Comparator::Bytewise => {
                if let Some(i) = key.iter().position(|&b| b != 0xff) {
                    key[i] += 1;
                    key.truncate(i + 1);
                }
            }
            Comparator::Custom(c) => c.shorten_successor(key),
            Comparator::ReverseBytewise
            | Comparator::Uint64
            | Comparator::BytewiseU64Ts
            | Comparator::ReverseBytewiseU64Ts
            | Comparator::CustomWithTimestamps(..) => {}
        }
    }

    /// Returns true if stored user keys with different bytes may be equal, which all keys with
    /// timestamps may.
    #[must_use]
    pub fn different_bytes_may_be_equal(&self) -> bool {
        match self {
            Comparator::Custom(c) => c.different_bytes_may_be_equal(),
            _ => self.timestamp_size() > 0,
        }
    }
}

/// Compares bytewise, the first eight bytes as one integer if both keys have them.
#[inline(always)]
fn compare_bytes(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some((head_a, rest_a)), Some((head_b, rest_b))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
    {
        // Most comparisons of a search end within eight bytes, and a call of memcmp costs more than
        // this.
        let (head_a, head_b) = (u64::from_be_bytes(*head_a), u64::from_be_bytes(*head_b));
        if head_a != head_b {
            return head_a.cmp(&head_b);
        }
        return compare_rest(rest_a, rest_b);
    }
    a.cmp(b)
}

/// Compares the bytes behind the first eight. Out of line because few comparisons reach them.
#[inline(never)]
fn compare_rest(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some((head_a, rest_a)), Some((head_b, rest_b))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
    {
        let (head_a, head_b) = (u64::from_be_bytes(*head_a), u64::from_be_bytes(*head_b));
        if head_a != head_b || (rest_a.is_empty() && rest_b.is_empty()) {
            return head_a.cmp(&head_b);
        }
        return rest_a.cmp(rest_b);
    }
    a.cmp(b)
}

/// Returns true if two keys are equal bytes. Keys of 8 to 16 bytes are compared by their first and
/// their last eight.
#[inline(always)]
fn equal_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some(head), Some(tail)) = (a.first_chunk::<8>(), a.last_chunk::<8>()) else { return a == b };
    b.first_chunk() == Some(head)
        && b.last_chunk() == Some(tail)
        && (a.len() <= 16 || a[8..a.len() - 8] == b[8..b.len() - 8])
}

fn shorten_separator_ascending(start: &mut Vec<u8>, limit: &[u8]) {
    let differ = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
    if differ >= start.len().min(limit.len()) || start[differ] >= limit[differ] {
        return;
    }
    if differ + 1 < limit.len() || start[differ] + 1 < limit[differ] {
        start[differ] += 1;
        start.truncate(differ + 1);
    } else if let Some(i) = start[differ + 1..].iter().position(|&b| b != 0xff) {
        // Incrementing the byte that differs would reach the limit itself, so a later byte is
        // incremented.
        let i = differ + 1 + i;
        start[i] += 1;
        start.truncate(i + 1);
    }
}

fn shorten_separator_descending(start: &mut Vec<u8>, limit: &[u8]) {
    let differ = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
    if differ < start.len().min(limit.len()) && start[differ] > limit[differ] {
        start.truncate(differ + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Comparator; 5] = [
        Comparator::Bytewise,
        Comparator::ReverseBytewise,
        Comparator::Uint64,
        Comparator::BytewiseU64Ts,
        Comparator::ReverseBytewiseU64Ts,
    ];

    fn short_key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()], 0..12)
    }

    proptest! {
        #[test]
        fn bytewise_is_slice_order(a in short_key(), b in short_key()) {
            prop_assert_eq!(Comparator::Bytewise.compare_user(&a, &b), a.cmp(&b));
            prop_assert_eq!(Comparator::ReverseBytewise.compare_user(&a, &b), b.cmp(&a));
        }

        #[test]
        fn long_keys_that_share_bytes_are_told_apart(
            mut a in proptest::collection::vec(0_u8..3, 0..40), at: proptest::sample::Index, byte in 0_u8..3, cut in 0_usize..3,
        ) {
            let mut b = a.clone();
            if !b.is_empty() {
                let at = at.index(b.len());
                b[at] = byte;
            }
            for _ in 0..2 {
                prop_assert_eq!(Comparator::Bytewise.compare_user(&a, &b), a.cmp(&b));
                prop_assert_eq!(Comparator::Bytewise.equal_user(&a, &b), a == b);
                a.truncate(a.len().saturating_sub(cut));
            }
        }

        #[test]
        fn separators_stay_between(a in short_key(), b in short_key()) {
            for c in [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Uint64] {
                let (lo, hi) = match c.compare_user(&a, &b) {
                    Ordering::Less => (&a, &b),
                    Ordering::Greater => (&b, &a),
                    Ordering::Equal => continue,
                };
                let mut separator = lo.clone();
                c.shorten_separator(&mut separator, hi);
                prop_assert!(c.compare_user(lo, &separator).is_le());
                prop_assert!(c.compare_user(&separator, hi).is_lt());
                prop_assert!(separator.len() <= lo.len());
                let mut successor = lo.clone();
                c.shorten_successor(&mut successor);
                prop_assert!(c.compare_user(lo, &successor).is_le());
            }
        }

        #[test]
        fn internal_order_is_total(a: Vec<u8>, b: Vec<u8>) {
            for c in ALL {
                prop_assert_eq!(c.compare_internal(&a, &b), c.compare_internal(&b, &a).reverse());
            }
        }

        #[test]
        fn users_need_not_say_all(a in short_key(), b in short_key(), at: u64, other: u64) {
            #[derive(Debug)]
            struct Plain;
            impl UserComparator for Plain {
                fn name(&self) -> &str {
                    "plain"
                }
                fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
                    Comparator::BytewiseU64Ts.compare_with_timestamps(a, b)
                }
                fn timestamp_size(&self) -> usize {
                    8
                }
            }
            let (users, own) = (Comparator::custom(Arc::new(Plain)), Comparator::BytewiseU64Ts);
            let stored = |key: &[u8], timestamp: u64| [key, &timestamp.to_le_bytes()].concat();
            let (x, y) = (stored(&a, at), stored(&b, other));
            prop_assert_eq!(users.timestamp_size(), 8);
            prop_assert_eq!(users.compare_user(&x, &y), own.compare_user(&x, &y));
            prop_assert_eq!(users.compare_bare(&a, &b), own.compare_bare(&a, &b));
            prop_assert_eq!(users.compare_with_timestamps(&x, &y), own.compare_with_timestamps(&x, &y));
            prop_assert_eq!(
                users.compare_timestamps(&at.to_le_bytes(), &other.to_le_bytes()), at.cmp(&other)
            );
            prop_assert_eq!(users.compare_internal(&a, &b), users.compare_internal(&b, &a).reverse());
        }

        #[test]
        fn timestamps_descend_within_a_key(a in short_key(), b in short_key(), at: u64, other: u64) {
            let stored = |key: &[u8], timestamp: u64| [key, &timestamp.to_le_bytes()].concat();
            for (c, bare) in [
                (Comparator::BytewiseU64Ts, Comparator::Bytewise),
                (Comparator::ReverseBytewiseU64Ts, Comparator::ReverseBytewise),
            ] {
                let order = bare.compare_user(&a, &b);
                let (stored_a, stored_b) = (stored(&a, at), stored(&b, other));
                prop_assert_eq!(c.compare_bare(&a, &b), order);
                prop_assert_eq!(c.compare_user(&stored_a, &stored_b), order);
                prop_assert_eq!(c.equal_user(&stored_a, &stored_b), order.is_eq());
                prop_assert_eq!(
                    c.compare_with_timestamps(&stored_a, &stored_b),
                    order.then(other.cmp(&at))
                );
                prop_assert_eq!(c.compare_timestamps(&at.to_le_bytes(), &other.to_le_bytes()), at.cmp(&other));
                prop_assert_eq!(c.split_timestamp(&stored_a), (&a[..], &at.to_le_bytes()[..]));
            }
        }
    }

    /// A user comparator that relies on every stored key ending in a timestamp.
    #[derive(Debug)]
    struct FourBytes;

    impl UserComparator for FourBytes {
        fn name(&self) -> &str {
            "test.FourBytes"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            let ((a, of_a), (b, of_b)) = (a.split_at(a.len() - 4), b.split_at(b.len() - 4));
            a.cmp(b).then_with(|| of_b.cmp(of_a))
        }
        fn timestamp_size(&self) -> usize {
            4
        }
        fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
        fn compare_without_timestamp(&self, a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
            let bare = |(key, stamped): (&[u8], bool)| key[..key.len() - 4 * usize::from(stamped)].to_vec();
            bare(a).cmp(&bare(b))
        }
    }

    #[test]
    fn users_code_gets_no_stored_key_without_a_timestamp() {
        let c = Comparator::custom(Arc::new(FourBytes));
        for compare in [Comparator::compare_user, Comparator::compare_with_timestamps] {
            assert!(compare(&c, b"", b"k0001").is_lt());
            assert!(compare(&c, b"k0001", b"abc").is_gt());
        }
        assert!(c.compare_user(b"k0001", b"k0002").is_eq());
        assert!(c.compare_with_timestamps(b"k0001", b"k0002").is_gt());
    }

    #[test]
    fn newest_first() {
        let at = |seq| {
            key::InternalKey { user_key: b"k", seq: key::SeqNo(seq), kind: key::ValueType::Value }.to_vec()
        };
        assert!(Comparator::Bytewise.compare_internal(&at(9), &at(8)).is_lt());
    }

    #[test]
    fn names() {
        for c in ALL {
            assert_eq!(Comparator::from_name(c.name()).unwrap().name(), c.name());
        }
        assert!(Comparator::lookup("mine").unwrap_err().to_string().contains("not built in"));
    }
}
