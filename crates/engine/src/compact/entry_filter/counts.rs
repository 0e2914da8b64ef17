//! Counts of entries that passed through a filter, for statistics and for checking a job.

use karst_format::key::ValueType;

/// Counts of one filter; those of several filters can be [added](EntryCounts::add).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryCounts {
    /// Input entries.
    pub(crate) input_records: u64,
    /// Deletions and single deletions among the input entries.
    pub(crate) input_deletions: u64,
    /// Bytes of the input entries' internal keys.
    pub(crate) input_key_bytes: u64,
    /// Bytes of the input entries' values.
    pub(crate) input_value_bytes: u64,
    /// Output entries.
    pub(crate) output_records: u64,
    /// Entries dropped because a newer entry hides them.
    pub(crate) dropped_hidden: u64,
    /// Deletions dropped because no entry is left to delete.
    pub(crate) dropped_obsolete: u64,
    /// Entries dropped because of a range tombstone (counted as hidden too).
    pub(crate) dropped_range_del: u64,
    /// Deletions dropped above the last level, because no lower level holds their key (counted as
    /// obsolete too).
    pub(crate) dropped_optimized: u64,
    /// Entries dropped by the user's filter.
    pub(crate) dropped_user: u64,
    /// Range tombstones dropped because no entry is left to delete.
    pub(crate) range_dels_dropped: u64,
    /// Single deletions above an entry that violates their contract.
    pub(crate) single_deletes_mismatched: u64,
    /// Single deletions dropped without having met an entry.
    pub(crate) single_deletes_without_entry: u64,
    /// Timed puts that got their preferred sequence number.
    pub(crate) timed_puts_swapped: u64,
    /// Values read from blob files.
    pub(crate) blobs_read: u64,
    /// Bytes of these values.
    pub(crate) blob_bytes_read: u64,
    /// Values rewritten from a blob file that is being emptied.
    pub(crate) blobs_relocated: u64,
    /// Bytes of the rewritten values.
    pub(crate) blob_bytes_relocated: u64,
    /// Merge operands merged into another entry.
    pub(crate) operands_merged: u64,
}

impl EntryCounts {
    #[inline]
    pub(super) fn note_input(&mut self, kind: ValueType, internal_key: &[u8], value: &[u8]) {
        self.input_records += 1;
        self.input_key_bytes += internal_key.len() as u64;
        self.input_value_bytes += value.len() as u64;
        self.input_deletions += u64::from(kind.is_deletion());
    }

    /// Adds the counts of another filter.
    pub(crate) fn add(&mut self, other: &EntryCounts) {
        self.input_records += other.input_records;
        self.input_deletions += other.input_deletions;
        self.input_key_bytes += other.input_key_bytes;
        self.input_value_bytes += other.input_value_bytes;
        self.output_records += other.output_records;
        self.dropped_hidden += other.dropped_hidden;
        self.dropped_obsolete += other.dropped_obsolete;
        self.dropped_range_del += other.dropped_range_del;
        self.dropped_optimized += other.dropped_optimized;
        self.dropped_user += other.dropped_user;
        self.range_dels_dropped += other.range_dels_dropped;
        self.single_deletes_mismatched += other.single_deletes_mismatched;
        self.single_deletes_without_entry += other.single_deletes_without_entry;
        self.timed_puts_swapped += other.timed_puts_swapped;
        self.blobs_read += other.blobs_read;
        self.blob_bytes_read += other.blob_bytes_read;
        self.blobs_relocated += other.blobs_relocated;
        self.blob_bytes_relocated += other.blob_bytes_relocated;
        self.operands_merged += other.operands_merged;
    }
}
