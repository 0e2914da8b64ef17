//! The internal key that a lookup seeks; it moves behind each entry seen.
//!
//! In: a user key, and the sequence number to read at; in a column family with timestamps a
//! timestamp too. Out: an internal key to search for, and at the end the timestamp of the entry
//! found.

use karst_base::options::ReadOptions;
use karst_format::key::{SeqNo, TRAILER_BYTES, ValueType, pack_trailer};
use smallvec::SmallVec;
use std::ops::Deref;

/// A user-defined timestamp, in its comparator's encoding.
pub type Timestamp = Box<[u8]>;

/// An internal key to search for; dereferences to its bytes.
#[derive(Clone, Debug)]
pub(super) struct SoughtKey {
    /// The stored user key, and a trailer with the newest sequence number not seen yet.
    bytes: SmallVec<[u8; 48]>,
    /// Timestamp of the newest entry that was taken.
    taken: Option<Timestamp>,
}

impl Deref for SoughtKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl SoughtKey {
    /// Creates the sought key of `user_key` as of `seq` and the options' timestamp, if set.
    #[inline]
    pub(super) fn new(user_key: &[u8], options: &ReadOptions, seq: SeqNo) -> Self {
        let mut bytes = SmallVec::new();
        bytes.extend_from_slice(user_key);
        if let Some(timestamp) = &options.timestamp {
            bytes.extend_from_slice(timestamp);
        }
        bytes.extend_from_slice(&pack_trailer(seq, ValueType::FOR_SEEK).to_le_bytes());
        SoughtKey { bytes, taken: None }
    }

    /// The stored user key.
    #[inline]
    pub(super) fn user_key(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - TRAILER_BYTES]
    }

    /// Moves to entries with sequence number `seq` or older, at the current timestamp.
    #[inline]
    fn move_to(&mut self, seq: SeqNo) {
        self.set_trailer(pack_trailer(seq, ValueType::FOR_SEEK));
    }

    /// Moves to entries older than `seq`, at the current timestamp or an earlier one.
    #[cold]
    pub(super) fn move_behind(&mut self, seq: SeqNo) {
        // No entry of the same timestamp sorts behind sequence number 0.
        self.set_trailer(seq.0.checked_sub(1).map_or(0, |seq| pack_trailer(SeqNo(seq), ValueType::FOR_SEEK)));
    }

    #[inline]
    fn set_trailer(&mut self, trailer: u64) {
        let end = self.bytes.len() - TRAILER_BYTES;
        self.bytes[end..].copy_from_slice(&trailer.to_le_bytes());
    }

    /// Moves to the newest entry that a read at `seq` sees.
    #[inline]
    pub(super) fn move_to_start(&mut self, options: &ReadOptions, seq: SeqNo) {
        if let Some(timestamp) = &options.timestamp {
            let end = self.bytes.len() - TRAILER_BYTES;
            self.bytes[end - timestamp.len()..end].copy_from_slice(timestamp);
        }
        self.move_to(seq);
    }

    /// Moves to the timestamp of an entry of the key, given its stored user key.
    #[cold]
    pub(super) fn move_to_timestamp_of(&mut self, user_key: &[u8]) {
        // All bytes are replaced, because keys with other bytes may be equal in a user-defined
        // comparator.
        self.bytes.clear();
        self.bytes.extend_from_slice(user_key);
        self.bytes.resize(user_key.len() + TRAILER_BYTES, 0);
    }

    /// Moves to the timestamp of an entry and records the entry as taken.
    #[cold]
    pub(super) fn take(&mut self, user_key: &[u8], options: &ReadOptions) {
        let bytes = options.timestamp.as_ref().map_or(0, Vec::len);
        let timestamp = &user_key[user_key.len().saturating_sub(bytes)..];
        self.taken.get_or_insert_with(|| timestamp.into());
        self.move_to_timestamp_of(user_key);
    }

    /// Returns true if an entry of a column family with timestamps was taken.
    #[inline]
    pub(super) fn has_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes the timestamp of the newest entry taken, in a column family with timestamps.
    #[inline]
    pub(super) fn take_timestamp(&mut self) -> Option<Timestamp> {
        self.taken.take()
    }
}
