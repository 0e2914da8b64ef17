//! Recently written keys, so that a write can require that no other writer has overwritten what it
//! has read.
//!
//! Under the order lock, every write records its keys with its last sequence number. A [`Claim`]
//! has keys, and a sequence number up to which its caller has checked them for writes; it holds if
//! no write to them was ordered since. docs/decisions/transactions.md has the argument.
//!
//! Invariants:
//! - A bucket holds the largest sequence number of all writes ordered to any key of the bucket,
//!   inserted or not, failed ones included. A bucket may report a write to a key that was not
//!   written, but never misses one.
//! - The bytes of a key determine its bucket. Each column family has a bucket for all of its keys
//!   too, which a claim names if the comparator may find different bytes equal.
//! - Buckets are read and written under the order lock only, so no write is ordered between the
//!   check of a claim and the order of the write that depends on it.

use super::source::Source;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::filter::hash64;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use smallvec::SmallVec;

/// Buckets of a write's keys, and true if it removes ranges.
#[derive(Debug, Default)]
pub(super) struct Written {
    buckets: SmallVec<[u32; 8]>,
    ranges: bool,
}

/// Last sequence numbers of recently written keys, by bucket.
#[derive(Debug)]
pub(super) struct Conflicts {
    buckets: u32,
    /// Lock: taken under the order lock only, so it is never contended.
    last: Mutex<LastWrites>,
}

#[derive(Debug)]
struct LastWrites {
    /// Last sequence number by bucket. Allocated zeroed, so memory is used as buckets are.
    of_keys: Vec<u64>,
    /// Last sequence number that may be any key's: of the last write that removed a range, or of
    /// the writes ordered before tracking began.
    of_all: u64,
}

/// Condition of a write: none of these keys is written after `seen`.
#[derive(Debug)]
pub struct Claim {
    buckets: Vec<u32>,
    seen: SeqNo,
    overtaken: AtomicU64,
}

impl Claim {
    /// Returns the sequence number to wait for before checking the keys again, if the write was
    /// refused because a key may have been written.
    pub fn overtaken(&self) -> Option<SeqNo> {
        let seq = self.overtaken.load(Ordering::Relaxed);
        (seq > 0).then_some(SeqNo(seq))
    }
}

impl Written {
    /// Returns the record of a write that may change any key.
    pub(super) fn of_any_key() -> Self {
        Self { ranges: true, ..Self::default() }
    }
}

impl Conflicts {
    /// Tracks all writes after `floor`, in `buckets` buckets.
    pub(super) fn new(buckets: u32, floor: SeqNo) -> Self {
        let buckets = buckets.max(1);
        let last = LastWrites { of_keys: vec![0; buckets as usize], of_all: floor.0 };
        Self { buckets, last: Mutex::new(last) }
    }

    /// Returns the bucket of a key, or of a whole column family.
    fn bucket(&self, family: ColumnFamilyId, key: Option<&[u8]>) -> u32 {
        let hash = key.map_or(!0, hash64) ^ u64::from(family.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Multiplication avoids a division and allows any number of buckets.
        ((u128::from(hash) * u128::from(self.buckets)) >> 64) as u32
    }

    /// Returns a claim on `keys`, which were checked up to `seen`; `None` is any key of the column
    /// family.
    pub(super) fn claim<'a>(
        &self,
        keys: impl Iterator<Item = (ColumnFamilyId, Option<&'a [u8]>)>,
        seen: SeqNo,
    ) -> Claim {
        let buckets = keys.map(|(family, key)| self.bucket(family, key)).collect();
        Claim { buckets, seen, overtaken: AtomicU64::new(0) }
    }

    /// Returns the buckets that a write changes. Needs no lock.
    pub(super) fn written_by(&self, source: &Source<'_>) -> Written {
        let (mut written, mut before) = (Written::default(), None);
        source.each_op(|op| {
            let Some(family) = op.column_family() else { return };
            if before.replace(family) != Some(family) {
                written.buckets.push(self.bucket(family, None));
            }
            match op.key() {
                Some(key) => written.buckets.push(self.bucket(family, Some(key))),
                None => written.ranges = true,
            }
        });
        written
    }

    /// Records a write that is ordered. Lock: under the order lock.
    pub(super) fn note(&self, written: &Written, last_seq: SeqNo) {
        let mut last = self.last.lock();
        for bucket in &written.buckets {
            last.of_keys[*bucket as usize] = last_seq.0;
        }
        if written.ranges {
            last.of_all = last_seq.0;
        }
    }

    /// Returns true if no write to the claim's keys was ordered after `seen`. Otherwise stores the
    /// newest in the claim. Lock: under the order lock.
    pub(super) fn holds(&self, claim: &Claim) -> bool {
        let last = self.last.lock();
        let newest = claim.buckets.iter().map(|bucket| last.of_keys[*bucket as usize].max(last.of_all)).max();
        match newest.filter(|newest| *newest > claim.seen.0) {
            None => true,
            Some(newest) => {
                claim.overtaken.store(newest, Ordering::Relaxed);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteBatch;

    fn key(name: &[u8]) -> impl Iterator<Item = (ColumnFamilyId, Option<&[u8]>)> {
        std::iter::once((ColumnFamilyId::DEFAULT, Some(name)))
    }

    #[test]
    fn a_claim_is_overtaken_by_writes_to_its_keys_only() {
        let conflicts = Conflicts::new(1 << 16, SeqNo(10));
        let mut batch = WriteBatch::new();
        batch.put("a", "1").unwrap();
        batch.merge("b", "2").unwrap();
        conflicts.note(&conflicts.written_by(&Source::Batch(&batch)), SeqNo(21));
        let overtaken = |name: &[u8], seen| {
            let claim = conflicts.claim(key(name), SeqNo(seen));
            assert_eq!(conflicts.holds(&claim), claim.overtaken().is_none());
            claim.overtaken()
        };
        for name in [b"a", b"b"] {
            assert_eq!((overtaken(name, 20), overtaken(name, 21)), (Some(SeqNo(21)), None));
        }
        assert_eq!((overtaken(b"c", 10), overtaken(b"c", 9)), (None, Some(SeqNo(10))), "from the floor on");
        let mut ranges = WriteBatch::new();
        ranges.delete_range("x", "z").unwrap();
        conflicts.note(&conflicts.written_by(&Source::Batch(&ranges)), SeqNo(22));
        assert_eq!(overtaken(b"c", 21), Some(SeqNo(22)), "a range may hold any key");
        assert!(conflicts.holds(&conflicts.claim(std::iter::empty(), SeqNo::ZERO)), "no key, no conflict");
    }

    #[test]
    fn a_claim_on_any_key_is_overtaken_by_writes_to_its_family_only() {
        let conflicts = Conflicts::new(1 << 16, SeqNo(10));
        let mut batch = WriteBatch::new();
        batch.put("a", "1").unwrap();
        conflicts.note(&conflicts.written_by(&Source::Batch(&batch)), SeqNo(21));
        let holds = |family: ColumnFamilyId, seen| {
            conflicts.holds(&conflicts.claim(std::iter::once((family, None)), SeqNo(seen)))
        };
        assert!(!holds(ColumnFamilyId::DEFAULT, 20) && holds(ColumnFamilyId::DEFAULT, 21));
        assert!(holds(ColumnFamilyId(1), 10));
    }
}
