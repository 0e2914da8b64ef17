//! The orders of keys that the cells have: the built-in ones with timestamps, by their names, and
//! comparators of users' whose timestamps have other sizes.
//!
//! RocksDB's C API has no constructor for its built-in comparators with timestamps: what is made
//! here has their names and order, and so is the same to whatever is on disk.

use karst_format::comparator::{Comparator, UserComparator};
use rocksdb::Options;
use std::cmp::Ordering;
use std::sync::Arc;

/// How the keys of a column family are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// By bytes, without timestamps.
    Plain,
    /// `leveldb.BytewiseComparator.u64ts`.
    U64,
    /// `rocksdb.ReverseBytewiseComparator.u64ts`.
    ReverseU64,
    /// A user's: short keys first, timestamps of four bytes, big-endian.
    Short,
    /// A user's: by bytes, timestamps of twelve bytes, big-endian.
    Long,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Plain => "leveldb.BytewiseComparator",
            Order::U64 => "leveldb.BytewiseComparator.u64ts",
            Order::ReverseU64 => "rocksdb.ReverseBytewiseComparator.u64ts",
            Order::Short => "judge.ShortFirst.u32ts",
            Order::Long => "judge.Bytewise.u96ts",
        }
    }

    /// Of a timestamp; 0 for none.
    pub(super) fn bytes(self) -> usize {
        match self {
            Order::Plain => 0,
            Order::U64 | Order::ReverseU64 => 8,
            Order::Short => 4,
            Order::Long => 12,
        }
    }

    /// A timestamp as it is stored; the greatest there is for [`u64::MAX`].
    pub(super) fn stamp(self, at: u64) -> Vec<u8> {
        if at == u64::MAX {
            return vec![0xff; self.bytes()];
        }
        match self {
            Order::Plain => Vec::new(),
            Order::U64 | Order::ReverseU64 => at.to_le_bytes().to_vec(),
            Order::Short => u32::try_from(at).expect("a small number").to_be_bytes().to_vec(),
            // Why a tail: zeroes must not be all there is to see of its end.
            Order::Long => [&at.to_be_bytes()[..], &(at as u32).to_le_bytes()].concat(),
        }
    }

    /// The order of keys without timestamps.
    pub(super) fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Plain | Order::U64 | Order::Long => a.cmp(b),
            Order::ReverseU64 => b.cmp(a),
            Order::Short => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        }
    }

    pub(super) fn compare_stamps(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::U64 | Order::ReverseU64 => a.iter().rev().cmp(b.iter().rev()),
            _ => a.cmp(b),
        }
    }

    /// A stored key without its timestamp, if it `has` one.
    fn bare(self, key: &[u8], has: bool) -> &[u8] {
        if has { &key[..key.len() - self.bytes()] } else { key }
    }

    fn compare_stored(self, a: &[u8], b: &[u8]) -> Ordering {
        let ((a, of_a), (b, of_b)) = (a.split_at(a.len() - self.bytes()), b.split_at(b.len() - self.bytes()));
        self.compare(a, b).then_with(|| self.compare_stamps(of_b, of_a))
    }

    /// What tells RocksDB.
    pub(super) fn set(self, options: &mut Options) {
        if self == Order::Plain {
            return;
        }
        options.set_comparator_with_ts(
            self.name(),
            self.bytes(),
            Box::new(move |a, b| self.compare_stored(a, b)),
            Box::new(move |a, b| self.compare_stamps(a, b)),
            Box::new(move |a, has_a, b, has_b| self.compare(self.bare(a, has_a), self.bare(b, has_b))),
        );
    }

    /// What tells KarstDB, which knows the built-in ones by their names.
    pub(super) fn comparator(self) -> Comparator {
        Comparator::from_name(self.name()).unwrap_or_else(|| Comparator::custom(Arc::new(Own(self))))
    }
}

#[derive(Debug)]
struct Own(Order);

impl UserComparator for Own {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.compare_stored(a, b)
    }

    fn timestamp_size(&self) -> usize {
        self.0.bytes()
    }

    fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.compare_stamps(a, b)
    }

    fn compare_without_timestamp(&self, a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
        self.0.compare(self.0.bare(a.0, a.1), self.0.bare(b.0, b.1))
    }
}
