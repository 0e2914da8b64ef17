//! Internal keys: the sort key of the tree, as stored in blocks, memtables and file boundaries.
//!
//! | bytes | content |
//! |---|---|
//! | n | user key |
//! | 8 | trailer, little-endian: sequence number << 8 \| value type |
//!
//! Sorted by user key ascending, then trailer descending, so the newest entry of a user key comes
//! first. Specified by RocksDB's db/dbformat.h.
//!
//! In: slices. Out: parts borrowed from them, or [`Corruption`]. Invariant: nothing here allocates
//! except `encode_into` and [`InternalKey::to_vec`].

use crate::corruption::Corruption;

/// Length of the trailer behind the user key, in bytes.
pub const TRAILER_BYTES: usize = 8;

/// A sequence number: the position of a write in the history of the database, 56 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// The smallest sequence number; entries at the bottom of the tree that no snapshot separates
    /// carry it.
    pub const ZERO: SeqNo = SeqNo(0);
    /// The largest sequence number, 56 bits; a read at it sees every entry.
    pub const MAX: SeqNo = SeqNo((1 << 56) - 1);
}

impl std::fmt::Display for SeqNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Type of an entry, by the number that RocksDB stores. Types marked WAL occur in write batches
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are RocksDB's and say it")]
pub enum ValueType {
    Deletion = 0x00,
    Value = 0x01,
    Merge = 0x02,
    /// WAL: a blob for readers of the log, without effect.
    LogData = 0x03,
    /// WAL.
    ColumnFamilyDeletion = 0x04,
    /// WAL.
    ColumnFamilyValue = 0x05,
    /// WAL.
    ColumnFamilyMerge = 0x06,
    SingleDeletion = 0x07,
    /// WAL.
    ColumnFamilySingleDeletion = 0x08,
    /// WAL: two-phase commit.
    BeginPrepareXid = 0x09,
    /// WAL: two-phase commit.
    EndPrepareXid = 0x0a,
    /// WAL: two-phase commit.
    CommitXid = 0x0b,
    /// WAL: two-phase commit.
    RollbackXid = 0x0c,
    /// WAL.
    Noop = 0x0d,
    /// WAL.
    ColumnFamilyRangeDeletion = 0x0e,
    /// In range deletion blocks and file boundaries; in a boundary it marks an exclusive end.
    RangeDeletion = 0x0f,
    /// WAL.
    ColumnFamilyBlobIndex = 0x10,
    BlobIndex = 0x11,
    /// WAL: two-phase commit.
    BeginPersistedPrepareXid = 0x12,
    /// WAL: two-phase commit.
    BeginUnprepareXid = 0x13,
    DeletionWithTimestamp = 0x14,
    /// WAL: two-phase commit.
    CommitXidAndTimestamp = 0x15,
    WideColumnEntity = 0x16,
    /// WAL.
    ColumnFamilyWideColumnEntity = 0x17,
    /// A value followed by its write time (TimedPut).
    ValuePreferredSeqno = 0x18,
    /// WAL.
    ColumnFamilyValuePreferredSeqno = 0x19,
}

impl ValueType {
    /// Type to seek with: sorts before every entry of the same user key and sequence number.
    pub const FOR_SEEK: ValueType = ValueType::ValuePreferredSeqno;
    /// Type to seek backwards with: sorts after every entry of the same user key and sequence
    /// number.
    pub const FOR_SEEK_FOR_PREV: ValueType = ValueType::Deletion;

    /// Returns the type with the number `n`, or `None` if RocksDB 11.8 does not define it.
    #[inline]
    #[must_use]
    pub const fn from_u8(n: u8) -> Option<ValueType> {
        use ValueType::*;
        Some(match n {
            0x00 => Deletion,
            0x01 => Value,
            0x02 => Merge,
            0x03 => LogData,
            0x04 => ColumnFamilyDeletion,
            0x05 => ColumnFamilyValue,
            0x06 => ColumnFamilyMerge,
            0x07 => SingleDeletion,
            0x08 => ColumnFamilySingleDeletion,
            0x09 => BeginPrepareXid,
            0x0a => EndPrepareXid,
            0x0b => CommitXid,
            0x0c => RollbackXid,
            0x0d => Noop,
            0x0e => ColumnFamilyRangeDeletion,
            0x0f => RangeDeletion,
            0x10 => ColumnFamilyBlobIndex,
            0x11 => BlobIndex,
            0x12 => BeginPersistedPrepareXid,
            0x13 => BeginUnprepareXid,
            0x14 => DeletionWithTimestamp,
            0x15 => CommitXidAndTimestamp,
            0x16 => WideColumnEntity,
            0x17 => ColumnFamilyWideColumnEntity,
            0x18 => ValuePreferredSeqno,
            0x19 => ColumnFamilyValuePreferredSeqno,
            _ => return None,
        })
    }

    /// Returns true if an entry of this type deletes its key.
    #[inline]
    #[must_use]
    pub const fn is_deletion(self) -> bool {
        use ValueType::*;
        matches!(self, Deletion | SingleDeletion | DeletionWithTimestamp)
    }

    /// Returns true if the type may occur in an internal key (in a table, a memtable or a file
    /// boundary), not only in a WAL.
    #[inline]
    #[must_use]
    pub const fn is_stored(self) -> bool {
        use ValueType::*;
        matches!(
            self,
            Deletion
                | Value
                | Merge
                | SingleDeletion
                | RangeDeletion
                | BlobIndex
                | DeletionWithTimestamp
                | WideColumnEntity
                | ValuePreferredSeqno
        )
    }
}

/// Returns the trailer of an internal key as an integer; greater trailers sort first.
#[inline(always)]
#[must_use]
pub const fn pack_trailer(seq: SeqNo, kind: ValueType) -> u64 {
    (seq.0 << 8) | kind as u64
}

/// Trailer of a file's largest key if that key is the exclusive end of a range tombstone, so the
/// file has no entry of that user key.
pub const RANGE_TOMBSTONE_SENTINEL: u64 = pack_trailer(SeqNo::MAX, ValueType::RangeDeletion);

/// Splits an encoded internal key into user key and trailer without checking the value type.
///
/// A slice shorter than a trailer is returned whole, with trailer 0, so that comparing hostile keys
/// is total. Code that needs valid parts calls [`InternalKey::parse`], which rejects such slices.
#[inline(always)]
#[must_use]
pub fn split(internal_key: &[u8]) -> (&[u8], u64) {
    match internal_key.split_last_chunk::<TRAILER_BYTES>() {
        Some((user_key, trailer)) => (user_key, u64::from_le_bytes(*trailer)),
        None => (internal_key, 0),
    }
}

/// Returns the user key of an encoded internal key; see [`split`].
#[inline(always)]
#[must_use]
pub fn user_key(internal_key: &[u8]) -> &[u8] {
    split(internal_key).0
}

/// A decoded internal key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The user key, without the trailer.
    pub user_key: &'a [u8],
    /// Sequence number of the write.
    pub seq: SeqNo,
    /// Type of the entry.
    pub kind: ValueType,
}

impl<'a> InternalKey<'a> {
    /// Decodes an internal key; rejects bytes without a trailer and value types that do not occur
    /// in keys.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<InternalKey<'a>, Corruption> {
        let Some((user_key, trailer)) = bytes.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(Corruption::new(
                format!("internal key of {} bytes has no trailer", bytes.len()),
                0u64,
            ));
        };
        let trailer = u64::from_le_bytes(*trailer);
        match ValueType::from_u8(trailer as u8) {
            Some(kind) if kind.is_stored() => Ok(InternalKey { user_key, seq: SeqNo(trailer >> 8), kind }),
            _ => Err(Corruption::new(
                format!("internal key with unknown value type {:#04x}", trailer as u8),
                user_key.len(),
            )),
        }
    }

    /// Returns the trailer as an integer.
    #[inline]
    #[must_use]
    pub const fn trailer(&self) -> u64 {
        pack_trailer(self.seq, self.kind)
    }

    /// Appends the encoded key.
    #[inline]
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        append(out, self.user_key, self.trailer());
    }

    /// Returns the encoded key in a new buffer.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.user_key.len() + TRAILER_BYTES);
        self.encode_into(&mut out);
        out
    }
}

/// Appends an internal key made of `user_key` and `trailer`.
#[inline]
pub fn append(out: &mut Vec<u8>, user_key: &[u8], trailer: u64) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&trailer.to_le_bytes());
}

/// Returns the internal key that sorts before every entry of `user_key` and after all entries of
/// smaller user keys.
#[must_use]
pub fn before_all_of(user_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(user_key.len() + TRAILER_BYTES);
    append(&mut key, user_key, pack_trailer(SeqNo::MAX, ValueType::FOR_SEEK));
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(user in proptest::collection::vec(any::<u8>(), 0..40), seq in 0..=SeqNo::MAX.0, kind in 0u8..=0x20) {
            if let Some(kind) = ValueType::from_u8(kind) {
                prop_assert_eq!(ValueType::from_u8(kind as u8), Some(kind));
                let key = InternalKey { user_key: &user, seq: SeqNo(seq), kind };
                let bytes = key.to_vec();
                prop_assert_eq!(split(&bytes), (&user[..], key.trailer()));
                match InternalKey::parse(&bytes) {
                    Ok(back) => { prop_assert!(kind.is_stored()); prop_assert_eq!(back, key); }
                    Err(_) => prop_assert!(!kind.is_stored()),
                }
            }
        }
    }

    #[test]
    fn short_keys_are_refused() {
        for n in 0..TRAILER_BYTES {
            assert!(InternalKey::parse(&vec![0; n]).is_err());
        }
    }
}
