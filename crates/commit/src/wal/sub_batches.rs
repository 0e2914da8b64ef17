//! Numbering of a prepared section's operations under the policy WritePrepared: all share one
//! number until a key repeats, which begins the next number.
//!
//! Computed from the operations in order, and the key order of each column family: for each
//! operation the offset of its number from the first, and the count of numbers, at least one.
//!
//! Compat: RocksDB's sub-batches. After a crash RocksDB finds the undecided entries of its tables
//! by a section's numbers, so both engines must number alike. entries of its tables are not
//! decided; so both must number alike.

use karst_format::ids::ColumnFamilyId;
use karst_format::write_batch::Op;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Number of operations that are numbered without a heap allocation.
const FEW: usize = 8;

/// Numbering of a section's operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubBatches {
    /// Offset of each operation that writes; empty if all have the first number.
    offsets: Box<[u32]>,
    count: u32,
}

impl SubBatches {
    /// Computes the numbering; `order` compares user keys of a column family.
    pub fn of<'a>(
        ops: impl Iterator<Item = Op<'a>>,
        order: impl Fn(ColumnFamilyId, &[u8], &[u8]) -> Ordering,
    ) -> SubBatches {
        let keys: SmallVec<[(ColumnFamilyId, &[u8]); FEW]> =
            ops.filter_map(|op| Some((op.column_family()?, key_of(&op)))).collect();
        let compare = |a: usize, b: usize| {
            let ((family, key), (other_family, other)) = (keys[a], keys[b]);
            family.cmp(&other_family).then_with(|| order(family, key, other))
        };
        let mut sorted: SmallVec<[usize; FEW]> = (0..keys.len()).collect();
        sorted.sort_by(|a, b| compare(*a, *b));
        if sorted.windows(2).all(|pair| compare(pair[0], pair[1]).is_ne()) {
            return SubBatches { offsets: Box::default(), count: 1 };
        }
        // Index of the previous operation on each key, if any.
        let mut before = vec![None; keys.len()];
        for pair in sorted.windows(2).filter(|pair| compare(pair[0], pair[1]).is_eq()) {
            before[pair[1]] = Some(pair[0]);
        }
        let (mut start, mut offset) = (0, 0);
        let number = |(index, before): (usize, Option<usize>)| {
            if before.is_some_and(|before| before >= start) {
                start = index;
                offset += 1;
            }
            offset
        };
        let offsets: Box<[u32]> = before.into_iter().enumerate().map(number).collect();
        SubBatches { count: offsets.last().map_or(1, |last| last + 1), offsets }
    }

    /// Returns the offset of a writing operation's number from the first.
    #[inline]
    pub fn offset(&self, index: usize) -> u32 {
        self.offsets.get(index).copied().unwrap_or(0)
    }

    /// Returns the count of numbers.
    pub fn count(&self) -> u32 {
        self.count
    }
}

fn key_of<'a>(op: &Op<'a>) -> &'a [u8] {
    match *op {
        Op::DeleteRange { begin, .. } => begin,
        op => op.key().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(keys: &[(u32, &'static str)]) -> (Vec<u32>, u32) {
        let op =
            |(cf, key): &(u32, &'static str)| Op::Delete { cf: ColumnFamilyId(*cf), key: key.as_bytes() };
        let of = SubBatches::of(keys.iter().map(op), |_, a, b| a.cmp(b));
        ((0..keys.len()).map(|index| of.offset(index)).collect(), of.count())
    }

    #[test]
    fn a_key_that_comes_again_begins_the_next_number() {
        assert_eq!(numbered(&[]), (vec![], 1));
        assert_eq!(numbered(&[(0, "a"), (0, "b"), (1, "a")]), (vec![0, 0, 0], 1));
        assert_eq!(numbered(&[(0, "a"), (0, "a"), (0, "a")]), (vec![0, 1, 2], 3));
        // "b" came before the number that "a" began, so it does not begin another.
        assert_eq!(numbered(&[(0, "b"), (0, "a"), (0, "a"), (0, "b"), (0, "b")]), (vec![0, 0, 1, 1, 2], 3));
    }
}
