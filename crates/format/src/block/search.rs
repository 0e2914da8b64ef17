//! Search in a block: finds the restart interval, then the entry in it.
//!
//! The search is written once over [`Order`], and compiled for three orders: bytewise over internal
//! keys, bytewise over user keys, and any other.
//!
//! In the bytewise orders the scan of an interval assembles no keys. It tracks the number of bytes
//! that the previous key has in common with the target. An entry that shares more than these with
//! the previous key differs from the target at the same byte as the previous key, so it is smaller
//! too; otherwise its first `shared` bytes are the target's, and only its own bytes are compared.
//! Thus a point lookup copies nothing until it has found its entry.

use super::Block;
use super::entry::{self, Entry, KeyKind, ValueLayout};
use crate::comparator::Comparator;
use crate::key::{self, TRAILER_BYTES};
use std::cmp::Ordering;
use std::ops::Range;

/// Comparison of keys with a target.
pub(super) trait Order {
    /// Returns the order of `key` relative to the target, and a number of leading bytes known to be
    /// equal in both. The caller knows the first `known` bytes to be equal.
    fn compare_from(&self, key: &[u8], known: usize) -> (Ordering, usize);

    /// Returns the order of `key` relative to the target.
    #[inline(always)]
    fn compare(&self, key: &[u8]) -> Ordering {
        self.compare_from(key, 0).0
    }

    /// Returns the first restart point in `within` whose key is not smaller than the target, and
    /// true if that key equals the target; `None` if the bytes are not a block. Keys of restart
    /// points before `within` are smaller than the target, those behind it greater.
    #[inline(always)]
    fn first_restart_not_below(
        &self,
        block: &Block,
        layout: ValueLayout,
        within: Range<usize>,
    ) -> Option<(usize, bool)> {
        // Invariant: restart keys below `low` are smaller than the target, those from `high` on
        // greater.
        let Range { start: mut low, end: mut high } = within;
        // All keys between two bounds share the bytes that both bounds share with the target, so
        // these bytes are skipped. Keys of a block have long prefixes in common, and this saves a
        // call of memcmp for each.
        let (mut common_low, mut common_high) = (0, 0);
        while low < high {
            let middle = low + (high - low) / 2;
            let key = entry::restart_key(block, block.restart_offset(middle), layout)?;
            let (order, same) = self.compare_from(key, common_low.min(common_high));
            match order {
                Ordering::Less => (low, common_low) = (middle + 1, same),
                Ordering::Greater => (high, common_high) = (middle, same),
                Ordering::Equal => return Some((middle, true)),
            }
        }
        Some((low, false))
    }
}

/// Bytewise order; `INTERNAL` keys have a trailer, sorted descending.
pub(super) struct Bytewise<'a, const INTERNAL: bool> {
    user: &'a [u8],
    trailer: u64,
}

impl<'a, const INTERNAL: bool> Bytewise<'a, INTERNAL> {
    pub(super) fn new(target: &'a [u8]) -> Self {
        let (user, trailer) = if INTERNAL { key::split(target) } else { (target, 0) };
        Bytewise { user, trailer }
    }
}

impl<const INTERNAL: bool> Order for Bytewise<'_, INTERNAL> {
    /// The number returned is the length of the common prefix of the user keys.
    #[inline(always)]
    fn compare_from(&self, key: &[u8], known: usize) -> (Ordering, usize) {
        let (user, trailer) = if INTERNAL { key::split(key) } else { (key, 0) };
        let known = known.min(user.len());
        let same = known + common_prefix(&user[known..], &self.user[known..]);
        let order = match (user.get(same), self.user.get(same)) {
            (Some(a), Some(b)) => a.cmp(b),
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (None, None) => self.trailer.cmp(&trailer),
        };
        (order, same)
    }
}

/// Any other order.
pub(super) struct General<'a> {
    pub(super) comparator: &'a Comparator,
    pub(super) kind: KeyKind,
    pub(super) target: &'a [u8],
}

impl Order for General<'_> {
    #[inline]
    fn compare_from(&self, key: &[u8], _known: usize) -> (Ordering, usize) {
        let order = match self.kind {
            KeyKind::Internal => self.comparator.compare_internal(key, self.target),
            KeyKind::User => self.comparator.compare_with_timestamps(key, self.target),
        };
        // 0 because a custom order says nothing about prefixes.
        (order, 0)
    }
}

/// Result of a scan that assembles no keys.
pub(super) enum Scan {
    /// The entry found; its key is the first `shared` bytes of the target's user key, then its own
    /// bytes.
    Found { at: usize, entry: Entry },
    /// Every entry of the interval is smaller than the target.
    Exhausted,
    /// The entries share bytes in a way that this scan cannot follow; the caller scans with keys.
    NeedsKeys,
    /// The bytes at `at` are not an entry.
    Corrupt { at: usize },
}

impl<const INTERNAL: bool> Bytewise<'_, INTERNAL> {
    /// Finds the first entry not smaller than the target among those from `start`, a restart point,
    /// to `limit`.
    #[inline]
    pub(super) fn scan(&self, block: &Block, start: usize, limit: usize, layout: ValueLayout) -> Scan {
        let trailer_bytes = if INTERNAL { TRAILER_BYTES } else { 0 };
        let target = self.user;
        // Of the previous key: bytes in common with the target, length of its user key, end of its
        // value.
        let (mut common, mut previous_user_len, mut previous_value_end) = (0, 0, 0);
        let mut at = start;
        while at < limit {
            let Some(entry) = entry::decode(block, at, at == start, previous_value_end, layout) else {
                return Scan::Corrupt { at };
            };
            let own = &block.contents[entry.key_start..entry.key_end];
            let shared = entry.shared;
            // An entry that shares bytes with the previous key's trailer, or ends inside the shared
            // bytes: rare, and left to the scan with keys.
            if shared > previous_user_len || own.len() < trailer_bytes {
                return if at == start { Scan::Corrupt { at } } else { Scan::NeedsKeys };
            }
            let own_user = &own[..own.len() - trailer_bytes];
            if shared <= common {
                let rest = &target[shared..];
                let same = common_prefix(own_user, rest);
                common = shared + same;
                let order = match (own_user.get(same), rest.get(same)) {
                    (Some(a), Some(b)) => a.cmp(b),
                    (None, Some(_)) => Ordering::Less,
                    (Some(_), None) => Ordering::Greater,
                    (None, None) if INTERNAL => self.trailer.cmp(&key::split(own).1),
                    (None, None) => Ordering::Equal,
                };
                if order.is_ge() {
                    return Scan::Found { at, entry };
                }
            }
            previous_user_len = shared + own_user.len();
            previous_value_end = entry.value_end;
            at = entry.next;
        }
        Scan::Exhausted
    }

    /// Returns the target's user key, from which a found entry takes its shared bytes.
    pub(super) fn user_key(&self) -> &[u8] {
        self.user
    }
}

/// Returns the length of the common prefix of two slices.
#[inline(always)]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut i = 0;
    while let (Some(x), Some(y)) = (a[i..].first_chunk::<8>(), b[i..].first_chunk::<8>()) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return i + differ.trailing_zeros() as usize / 8;
        }
        i += 8;
    }
    while i < n && a[i] == b[i] {
        i += 1;
    }
    i
}
