//! The order of user keys, and of the internal keys made from them.
//!
//! In: two keys. Out: their order. The built-in orders are variants of an enum so that the common
//! one inlines into search loops; anything else is a trait object.
//!
//! Compat: the names are RocksDB's; the MANIFEST and every table's properties carry them, and a
//! database must be opened with the comparator that it was made with. Comparators with user-defined
//! timestamps are refused by name.
//!
//! Invariant: comparing never panics, whatever the bytes; keys too short for an internal trailer
//! still have a total order.

use crate::key;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// An order of user keys that this crate does not know by itself.
pub trait UserComparator: Send + Sync + fmt::Debug {
    /// The name that the database carries.
    fn name(&self) -> &str;

    /// The order of two user keys. It must be total and must never change once data exists.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// May replace `start` by something shorter in `[start, limit)`; used for index keys. Doing
    /// nothing is right.
    fn shorten_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let _ = (start, limit);
    }

    /// May replace `key` by something shorter that is not smaller; used for the last index key.
    /// Doing nothing is right.
    fn shorten_successor(&self, key: &mut Vec<u8>) {
        let _ = key;
    }

    /// Whether two keys with different bytes may compare equal. Hash indexes cannot be used then.
    fn different_bytes_may_be_equal(&self) -> bool {
        true
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
    /// Anything else.
    Custom(Arc<dyn UserComparator>),
}

const BYTEWISE: &str = "leveldb.BytewiseComparator";
const REVERSE_BYTEWISE: &str = "rocksdb.ReverseBytewiseComparator";
const UINT64: &str = "rocksdb.Uint64Comparator";
/// What RocksDB appends to the names of comparators with user-defined timestamps.
const TIMESTAMP_SUFFIX: &str = ".u64ts";

/// A comparator name that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownComparator {
    /// The name asked for.
    pub name: String,
}

impl fmt::Display for UnknownComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.ends_with(TIMESTAMP_SUFFIX) {
            write!(
                f,
                "comparator {:?} orders keys with user-defined timestamps, which are not supported",
                self.name
            )
        } else {
            write!(f, "comparator {:?} is not built in; pass it in the column family's options", self.name)
        }
    }
}

impl std::error::Error for UnknownComparator {}

impl Comparator {
    /// The built-in comparator with RocksDB's name `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Comparator> {
        match name {
            BYTEWISE => Some(Comparator::Bytewise),
            REVERSE_BYTEWISE => Some(Comparator::ReverseBytewise),
            UINT64 => Some(Comparator::Uint64),
            _ => None,
        }
    }

    /// Like [`Comparator::from_name`], with an error that says why there is none.
    pub fn lookup(name: &str) -> Result<Comparator, UnknownComparator> {
        Comparator::from_name(name).ok_or_else(|| UnknownComparator { name: name.to_owned() })
    }

    /// The name that the database carries.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Comparator::Bytewise => BYTEWISE,
            Comparator::ReverseBytewise => REVERSE_BYTEWISE,
            Comparator::Uint64 => UINT64,
            Comparator::Custom(c) => c.name(),
        }
    }

    /// The order of two user keys.
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
            Comparator::Bytewise => a.cmp(b),
            Comparator::ReverseBytewise => b.cmp(a),
            Comparator::Uint64 => match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
                (Ok(a), Ok(b)) => u64::from_le_bytes(a).cmp(&u64::from_le_bytes(b)),
                // Why: RocksDB asserts eight bytes; a total order keeps hostile keys harmless.
                _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            },
            Comparator::Custom(c) => c.compare(a, b),
        }
    }

    /// Whether two user keys are the same to this order.
    #[inline(always)]
    #[must_use]
    pub fn equal_user(&self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Comparator::Custom(c) => c.compare(a, b).is_eq(),
            _ => equal_bytes(a, b),
        }
    }

    /// The order of two encoded internal keys: user key ascending, then trailer descending (newest
    /// first).
    #[inline(always)]
    #[must_use]
    pub fn compare_internal(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (user_a, trailer_a) = key::split(a);
        let (user_b, trailer_b) = key::split(b);
        self.compare_user(user_a, user_b).then_with(|| trailer_b.cmp(&trailer_a))
    }

    /// Replaces the user key `start` by a shorter one in `[start, limit)` where that is easy.
    pub fn shorten_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        match self {
            Comparator::Bytewise => shorten_separator_ascending(start, limit),
            Comparator::ReverseBytewise => shorten_separator_descending(start, limit),
            Comparator::Uint64 => {}
            Comparator::Custom(c) => c.shorten_separator(start, limit),
        }
    }

    /// Replaces the user key by a shorter one that is not smaller where that is easy.
    pub fn shorten_successor(&self, key: &mut Vec<u8>) {
        match self {
            Comparator::Bytewise => {
                if let Some(i) = key.iter().position(|&b| b != 0xff) {
                    key[i] += 1;
                    key.truncate(i + 1);
                }
            }
            Comparator::ReverseBytewise | Comparator::Uint64 => {}
            Comparator::Custom(c) => c.shorten_successor(key),
        }
    }

    /// Whether two keys with different bytes may compare equal.
    #[must_use]
    pub fn different_bytes_may_be_equal(&self) -> bool {
        matches!(self, Comparator::Custom(c) if c.different_bytes_may_be_equal())
    }
}

/// Byte order, the first eight bytes as one integer where both keys have them.
#[inline(always)]
fn compare_bytes(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some((head_a, rest_a)), Some((head_b, rest_b))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
    {
        // Why: most comparisons of a search end within eight bytes, and a call of memcmp costs more
        // than this.
        let (head_a, head_b) = (u64::from_be_bytes(*head_a), u64::from_be_bytes(*head_b));
        if head_a != head_b {
            return head_a.cmp(&head_b);
        }
        return compare_rest(rest_a, rest_b);
    }
    a.cmp(b)
}

/// The same for what is behind the first eight bytes. Out of line: few comparisons come here.
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

/// Whether two keys are the same bytes. Keys of 8 to 16 bytes are covered by their first and their
/// last eight.
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
        // Why: bumping the byte that differs would reach the limit itself, so a later one is
        // bumped.
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
            for c in [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Uint64] {
                prop_assert_eq!(c.compare_internal(&a, &b), c.compare_internal(&b, &a).reverse());
            }
        }
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
        for c in [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Uint64] {
            assert_eq!(Comparator::from_name(c.name()).unwrap().name(), c.name());
        }
        let refused = Comparator::lookup("leveldb.BytewiseComparator.u64ts").unwrap_err();
        assert!(refused.to_string().contains("user-defined timestamps"));
        assert!(Comparator::lookup("mine").unwrap_err().to_string().contains("not built in"));
    }
}
