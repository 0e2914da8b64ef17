//! Partitioned filters: a filter cut into blocks of about equal size, each over a range of keys,
//! and an index over them.
//!
//! | in the file | content |
//! |---|---|
//! | filter blocks | one for each partition, in the layout of a small table's filter |
//! | index block | for each partition a key and a block handle, as in an index over index partitions |
//!
//! The index is named `partitionedfilter.rocksdb.BuiltinBloomFilter` in the metaindex. Its keys are
//! internal keys, or user keys without trailer if the table's index has those (property
//! `rocksdb.index.key.is.user.key`), and its handles are delta-encoded if the table's are. A reader
//! seeks the internal key it looks for; behind the last key it queries the last partition, which
//! may still hold a prefix.
//!
//! Cutting follows RocksDB's `decouple_partitioned_filters`, the default since release 10. If the
//! current partition holds as many entries as fit its size when a key is added, the partition is
//! closed under its last key, with sequence number 0 and type deletion, so that all entries of that
//! user key sort before it. (In coupled mode the index determines the cuts, and the key is that of
//! the index partition; readers see no difference.) With prefixes, the first prefix of the next
//! partition is added to the closed one too, and its last prefix to the next: an iterator that
//! seeks between two partitions then finds the prefix in either. Specified by RocksDB's
//! table/block_based/partitioned_filter_block.cc.
//!
//! In: user keys in the table's order. Out: the partitions, which the table builder writes and
//! indexes.
//! Invariant: every key and its prefix are in the partition that the index maps them to.

use super::builder::FilterBuilder;
use crate::key::{self, SeqNo, ValueType};

/// A closed partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPartition {
    /// Its key in the index, an internal key not smaller than any of its keys.
    pub last_key: Vec<u8>,
    /// Contents of its filter block.
    pub block: Vec<u8>,
}

/// Builds the partitions of a table's filter.
#[derive(Debug)]
pub struct PartitionedFilterBuilder {
    filter: FilterBuilder,
    keys_per_partition: usize,
    last_user_key: Option<Vec<u8>>,
    timestamp_bytes: usize,
    partitions: Vec<FilterPartition>,
    entries: usize,
}

impl PartitionedFilterBuilder {
    /// Returns a builder of partitions of about `partition_bytes`: RocksDB passes
    /// `metadata_block_size` less `block_size_deviation` percent.
    ///
    /// `timestamp_bytes` is the length of the comparator's timestamps, 0 without.
    #[must_use]
    pub fn new(
        filter: FilterBuilder,
        partition_bytes: usize,
        timestamp_bytes: usize,
    ) -> PartitionedFilterBuilder {
        let keys = |bytes| filter.bits.keys_for_block_bytes(bytes);
        let mut keys_per_partition = keys(partition_bytes);
        if keys_per_partition < 1 {
            // The size may be too small for one key, so a larger one is tried.
            let mut larger = partition_bytes.saturating_add(4).max(16);
            keys_per_partition = loop {
                match keys(larger) {
                    0 if larger <= 100_000 => larger += larger / 4,
                    0 => break partition_bytes.max(1),
                    enough => break enough,
                }
            };
        }
        if keys_per_partition > 1 && filter.prefixes.is_some() {
            // One entry is reserved for the next partition's first prefix.
            keys_per_partition -= 1;
        }
        PartitionedFilterBuilder {
            filter,
            keys_per_partition,
            last_user_key: None,
            timestamp_bytes,
            partitions: Vec::new(),
            entries: 0,
        }
    }

    /// Adds a user key without its timestamp; keys come in the table's order.
    pub fn add(&mut self, user_key: &[u8]) {
        if self.filter.bits.len() >= self.keys_per_partition {
            self.cut(Some(user_key));
        }
        self.filter.add(user_key);
        let last = self.last_user_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(user_key);
    }

    /// Closes the current partition; `next` is the first key of the next one.
    fn cut(&mut self, next: Option<&[u8]>) {
        let last = self.last_user_key.clone().unwrap_or_default();
        let prefixes = self.filter.prefixes.clone();
        let prefix = |key| prefixes.as_ref().and_then(|e| e.prefix(key));
        if let Some(prefix) = next.and_then(prefix) {
            if self.filter.whole_keys {
                self.filter.bits.add_key_and_prefix(prefix, prefix);
            } else {
                self.filter.bits.add_key(prefix);
            }
        }
        self.entries += self.filter.bits.len();
        let block = self.filter.bits.finish();
        let mut last_key = Vec::with_capacity(last.len() + self.timestamp_bytes + key::TRAILER_BYTES);
        last_key.extend_from_slice(&last);
        // The lowest timestamp, because greater ones sort first.
        last_key.resize(last.len() + self.timestamp_bytes, 0);
        key::append(&mut last_key, &[], key::pack_trailer(SeqNo::ZERO, ValueType::Deletion));
        self.partitions.push(FilterPartition { last_key, block });
        if next.is_some()
            && let Some(prefix) = prefix(&last)
        {
            self.filter.bits.add_key(prefix);
        }
    }

    /// Returns the number of entries added, for the table property `rocksdb.num.filter_entries`.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries + self.filter.bits.len()
    }

    /// Returns all partitions in order, none if nothing was added (the table then has no filter),
    /// and true if one of them is [damaged](super::FilterBitsBuilder::is_damaged).
    #[must_use]
    pub fn finish(mut self) -> (Vec<FilterPartition>, bool) {
        if !self.filter.bits.is_empty() {
            self.cut(None);
        }
        (self.partitions, self.filter.is_damaged())
    }
}
