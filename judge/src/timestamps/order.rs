//! The key orders of the cells: the built-in ones with timestamps, by name, and user comparators
//! whose timestamps have other sizes.
//!
//! RocksDB's C API has no constructor for its built-in comparators with timestamps. The comparators
//! here have the same names and order, so the files are the same.

use karst_format::comparator::{Comparator, UserComparator};
use rocksdb::Options;
use std::cmp::Ordering;
use std::sync::Arc;

/// Order of the keys of a column family.
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

    /// Size of a timestamp in bytes; 0 for none.
    pub(super) fn bytes(self) -> usize {
        match self {
            Order::Plain => 0,
            Order::U64 | Order::ReverseU64 => 8,
            Order::Short => 4,
            Order::Long => 12,
        }
    }

    /// Encodes a timestamp; [`u64::MAX`] stands for the greatest.
    pub(super) fn stamp(self, at: u64) -> Vec<u8> {
        if at == u64::MAX {
            return vec![0xff; self.bytes()];
        }
        match self {
            Order::Plain => Vec::new(),
            Order::U64 | Order::ReverseU64 => at.to_le_bytes().to_vec(),
            Order::Short => u32::try_from(at).expect("a small number").to_be_bytes().to_vec(),
            // The last four bytes repeat the low bits, so that a truncated timestamp differs.
            Order::Long => [&at.to_be_bytes()[..], &(at as u32).to_le_bytes()].concat(),
        }
    }

    /// Compares keys without timestamps.
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

    /// Strips the timestamp of a stored key that `has` one.
    fn bare(self, key: &[u8], has: bool) -> &[u8] {
        if has { &key[..key.len() - self.bytes()] } else { key }
    }

    fn compare_stored(self, a: &[u8], b: &[u8]) -> Ordering {
        let ((a, of_a), (b, of_b)) = (a.split_at(a.len() - self.bytes()), b.split_at(b.len() - self.bytes()));
        self.compare(a, b).then_with(|| self.compare_stamps(of_b, of_a))
    }

    /// Sets the comparator in RocksDB's options.
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

    /// KarstDB's comparator, found by name if it is built in.
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
