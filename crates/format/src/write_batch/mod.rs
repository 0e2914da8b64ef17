//! Write batches: the operations of one atomic write, in the form that the WAL stores.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | sequence number of the first counted operation |
//! | 4 | number of counted operations |
//! | ... | operations: a tag (a [`ValueType`]), the column family id (varint32) for some tags, then strings |
//!
//! The table of tags is in docs/formats/write_batch.md. Specified by RocksDB's db/write_batch.cc.
//!
//! In: the payload of a WAL record. Out: [`Op`]s borrowed from it, or [`Corruption`] with the
//! offset of the operation.
//! Invariant: iterating allocates nothing; the number of counted operations is compared with the
//! header at the end, so a reader that must not apply half a batch decodes it to its end first.
//! Used by WAL replay, the tools and writers.

use crate::coding::{self, Reader};
use crate::corruption::Corruption;
use crate::ids::ColumnFamilyId;
use crate::key::{SeqNo, ValueType};

/// Length of the header of a batch, in bytes.
pub const HEADER_BYTES: usize = 12;

/// Write policy of a prepared section, which begins with an [`Op::BeginPrepare`] marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrepareKind {
    /// WriteCommitted: the data is in the WAL only and is applied when the commit marker is read.
    Committed,
    /// WritePrepared: the data is applied at once, under the sequence number of the prepare.
    Prepared,
    /// WriteUnprepared: as WritePrepared, and more data of the transaction may follow.
    Unprepared,
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "cf, key and value say what they are")]
pub enum Op<'a> {
    /// Sets a key.
    Put { cf: ColumnFamilyId, key: &'a [u8], value: &'a [u8] },
    /// Removes a key.
    Delete { cf: ColumnFamilyId, key: &'a [u8] },
    /// Removes a key that was put at most once since it was last removed.
    SingleDelete { cf: ColumnFamilyId, key: &'a [u8] },
    /// Removes the keys from `begin` up to, but not including, `end`.
    DeleteRange { cf: ColumnFamilyId, begin: &'a [u8], end: &'a [u8] },
    /// Adds a merge operand.
    Merge { cf: ColumnFamilyId, key: &'a [u8], operand: &'a [u8] },
    /// Sets a key to a reference into a blob file; see [`crate::blob::BlobIndex`].
    PutBlobIndex { cf: ColumnFamilyId, key: &'a [u8], index: &'a [u8] },
    /// Sets a key to a wide-column entity; see [`crate::wide_column`].
    PutEntity { cf: ColumnFamilyId, key: &'a [u8], entity: &'a [u8] },
    /// Sets a key, with `write_unix_time` (seconds) as its write time.
    TimedPut { cf: ColumnFamilyId, key: &'a [u8], value: &'a [u8], write_unix_time: u64 },
    /// Bytes for readers of the log; no effect on data and no sequence number.
    LogData(&'a [u8]),
    /// No operation; in a WritePrepared log it separates sub-batches.
    Noop,
    /// The operations up to the next `EndPrepare` belong to a prepared transaction.
    BeginPrepare(PrepareKind),
    /// Ends a prepared section and names its transaction.
    EndPrepare { xid: &'a [u8] },
    /// Commits the named transaction.
    Commit { xid: &'a [u8] },
    /// Commits the named transaction at a user-defined timestamp.
    CommitWithTimestamp { xid: &'a [u8], timestamp: &'a [u8] },
    /// Rolls the named transaction back.
    Rollback { xid: &'a [u8] },
}

impl Op<'_> {
    /// Returns true if the header's count includes the operation, in which case it takes a sequence
    /// number in databases with one for each key.
    #[inline]
    #[must_use]
    pub fn is_counted(&self) -> bool {
        use Op::*;
        match self {
            Put { .. }
            | Delete { .. }
            | SingleDelete { .. }
            | DeleteRange { .. }
            | Merge { .. }
            | PutBlobIndex { .. }
            | PutEntity { .. }
            | TimedPut { .. } => true,
            LogData(_)
            | Noop
            | BeginPrepare(_)
            | EndPrepare { .. }
            | Commit { .. }
            | CommitWithTimestamp { .. }
            | Rollback { .. } => false,
        }
    }

    /// Returns the column family that the operation writes to, if any.
    #[inline]
    #[must_use]
    pub fn column_family(&self) -> Option<ColumnFamilyId> {
        use Op::*;
        match *self {
            Put { cf, .. }
            | Delete { cf, .. }
            | SingleDelete { cf, .. }
            | DeleteRange { cf, .. }
            | Merge { cf, .. }
            | PutBlobIndex { cf, .. }
            | PutEntity { cf, .. }
            | TimedPut { cf, .. } => Some(cf),
            LogData(_)
            | Noop
            | BeginPrepare(_)
            | EndPrepare { .. }
            | Commit { .. }
            | CommitWithTimestamp { .. }
            | Rollback { .. } => None,
        }
    }
}

impl<'a> Op<'a> {
    /// Returns the key that the operation writes to, if it writes to exactly one.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        use Op::*;
        match *self {
            Put { key, .. }
            | Delete { key, .. }
            | SingleDelete { key, .. }
            | Merge { key, .. }
            | PutBlobIndex { key, .. }
            | PutEntity { key, .. }
            | TimedPut { key, .. } => Some(key),
            DeleteRange { .. }
            | LogData(_)
            | Noop
            | BeginPrepare(_)
            | EndPrepare { .. }
            | Commit { .. }
            | CommitWithTimestamp { .. }
            | Rollback { .. } => None,
        }
    }
}

impl<'a> Op<'a> {
    /// Returns the operation with its key replaced, if it writes to exactly one.
    #[must_use]
    pub fn with_key(self, key: &'a [u8]) -> Self {
        match self {
            Op::Put { cf, value, .. } => Op::Put { cf, key, value },
            Op::TimedPut { cf, value, write_unix_time, .. } => {
                Op::TimedPut { cf, key, value, write_unix_time }
            }
            Op::Delete { cf, .. } => Op::Delete { cf, key },
            Op::SingleDelete { cf, .. } => Op::SingleDelete { cf, key },
            Op::Merge { cf, operand, .. } => Op::Merge { cf, key, operand },
            Op::PutBlobIndex { cf, index, .. } => Op::PutBlobIndex { cf, key, index },
            Op::PutEntity { cf, entity, .. } => Op::PutEntity { cf, key, entity },
            Op::DeleteRange { .. }
            | Op::LogData(_)
            | Op::Noop
            | Op::BeginPrepare(_)
            | Op::EndPrepare { .. }
            | Op::Commit { .. }
            | Op::CommitWithTimestamp { .. }
            | Op::Rollback { .. } => self,
        }
    }
}

impl Op<'_> {
    /// Encodes the operation, without a batch header, by calling `put` with one part after the
    /// other.
    ///
    /// # Panics
    /// When a string is 4 GiB long or longer.
    #[inline]
    pub fn encode(&self, put: &mut impl FnMut(&[u8])) {
        use ValueType as T;
        match *self {
            Op::Put { cf, key, value } => pair(put, T::Value, T::ColumnFamilyValue, cf, key, value),
            Op::Delete { cf, key } => tagged(put, T::Deletion, T::ColumnFamilyDeletion, cf, key),
            Op::SingleDelete { cf, key } => {
                tagged(put, T::SingleDeletion, T::ColumnFamilySingleDeletion, cf, key);
            }
            Op::DeleteRange { cf, begin, end } => {
                pair(put, T::RangeDeletion, T::ColumnFamilyRangeDeletion, cf, begin, end);
            }
            Op::Merge { cf, key, operand } => pair(put, T::Merge, T::ColumnFamilyMerge, cf, key, operand),
            Op::PutBlobIndex { cf, key, index } => {
                pair(put, T::BlobIndex, T::ColumnFamilyBlobIndex, cf, key, index);
            }
            Op::PutEntity { cf, key, entity } => {
                pair(put, T::WideColumnEntity, T::ColumnFamilyWideColumnEntity, cf, key, entity);
            }
            Op::TimedPut { cf, key, value, write_unix_time } => {
                tagged(put, T::ValuePreferredSeqno, T::ColumnFamilyValuePreferredSeqno, cf, key);
                length(put, value.len() + 8);
                put(value);
                put(&write_unix_time.to_le_bytes());
            }
            Op::LogData(data) => marker(put, T::LogData, &[data]),
            Op::Noop => marker(put, T::Noop, &[]),
            Op::BeginPrepare(PrepareKind::Committed) => marker(put, T::BeginPrepareXid, &[]),
            Op::BeginPrepare(PrepareKind::Prepared) => marker(put, T::BeginPersistedPrepareXid, &[]),
            Op::BeginPrepare(PrepareKind::Unprepared) => marker(put, T::BeginUnprepareXid, &[]),
            Op::EndPrepare { xid } => marker(put, T::EndPrepareXid, &[xid]),
            Op::Commit { xid } => marker(put, T::CommitXid, &[xid]),
            Op::CommitWithTimestamp { xid, timestamp } => {
                marker(put, T::CommitXidAndTimestamp, &[timestamp, xid]);
            }
            Op::Rollback { xid } => marker(put, T::RollbackXid, &[xid]),
        }
    }
}

#[inline]
fn varint32(put: &mut impl FnMut(&[u8]), mut v: u32) {
    let mut bytes = [0; 5];
    let mut len = 0;
    loop {
        bytes[len] = v as u8 | 0x80;
        v >>= 7;
        len += 1;
        if v == 0 {
            bytes[len - 1] &= 0x7f;
            return put(&bytes[..len]);
        }
    }
}

#[inline]
fn length(put: &mut impl FnMut(&[u8]), bytes: usize) {
    varint32(put, u32::try_from(bytes).expect("a string of a batch is shorter than 4 GiB"));
}

#[inline]
fn string(put: &mut impl FnMut(&[u8]), bytes: &[u8]) {
    length(put, bytes.len());
    put(bytes);
}

#[inline]
fn tagged(put: &mut impl FnMut(&[u8]), plain: ValueType, with_cf: ValueType, cf: ColumnFamilyId, key: &[u8]) {
    if cf == ColumnFamilyId::DEFAULT {
        put(&[plain as u8]);
    } else {
        put(&[with_cf as u8]);
        varint32(put, cf.0);
    }
    string(put, key);
}

#[inline]
fn pair(
    put: &mut impl FnMut(&[u8]),
    plain: ValueType,
    with_cf: ValueType,
    cf: ColumnFamilyId,
    key: &[u8],
    value: &[u8],
) {
    tagged(put, plain, with_cf, cf, key);
    string(put, value);
}

fn marker(put: &mut impl FnMut(&[u8]), tag: ValueType, strings: &[&[u8]]) {
    put(&[tag as u8]);
    for s in strings {
        string(put, s);
    }
}

/// A batch as stored: header checked for length, operations decoded as they are iterated.
#[derive(Debug, Clone, Copy)]
pub struct BatchReader<'a> {
    bytes: &'a [u8],
    seq: u64,
    count: u32,
}

impl<'a> BatchReader<'a> {
    /// Reads the header of a batch.
    pub fn parse(bytes: &'a [u8]) -> Result<BatchReader<'a>, Corruption> {
        let mut header = Reader::new(bytes);
        let (seq, count) = (header.fixed64(), header.fixed32());
        match (seq, count) {
            (Ok(seq), Ok(count)) if seq <= SeqNo::MAX.0 => Ok(BatchReader { bytes, seq, count }),
            (Ok(seq), Ok(_)) => {
                Err(Corruption::new(format!("write batch with sequence number {seq}, over 56 bits"), 0u64))
            }
            _ => Err(Corruption::new(
                format!("write batch of {} bytes is shorter than its header", bytes.len()),
                bytes.len(),
            )),
        }
    }

    /// Returns the sequence number of the first counted operation; the following ones count up from
    /// it.
    #[must_use]
    pub fn seq(&self) -> SeqNo {
        SeqNo(self.seq)
    }

    /// Returns the number of counted operations that the header states; see [`Op::is_counted`].
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the whole batch as stored.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns an iterator over the operations in order. It ends after an error; a wrong count in
    /// the header is an error at the end.
    #[must_use]
    pub fn ops(&self) -> Ops<'a> {
        let mut reader = Reader::new(self.bytes);
        // Invariant: `parse` has read the whole header.
        let _ = reader.bytes(HEADER_BYTES);
        Ops { reader, expected: self.count, found: 0, done: false }
    }
}

/// Iterator over the operations of a [`BatchReader`].
#[derive(Debug, Clone)]
pub struct Ops<'a> {
    reader: Reader<'a>,
    expected: u32,
    found: u32,
    done: bool,
}

impl Ops<'_> {
    /// Returns the offset in the batch of the next operation, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.reader.position()
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, Corruption>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.reader.is_empty() {
            self.done = true;
            if self.found != self.expected {
                return Some(Err(self.reader.corruption(format!(
                    "write batch holds {} operations, its header says {}",
                    self.found, self.expected
                ))));
            }
            return None;
        }
        let start = self.reader.position();
        match decode_op(&mut self.reader) {
            Ok(op) => {
                // Saturating, so that no count can wrap around to the expected one.
                self.found = self.found.saturating_add(u32::from(op.is_counted()));
                Some(Ok(op))
            }
            Err(error) => {
                self.done = true;
                Some(Err(error.within(&format!("operation at {start} of a write batch"))))
            }
        }
    }
}

fn decode_op<'a>(r: &mut Reader<'a>) -> Result<Op<'a>, Corruption> {
    use ValueType as T;
    let at = r.position();
    let tag = r.u8()?;
    let unknown = || Corruption::new(format!("unknown tag {tag:#04x}"), at);
    let Some(tag) = ValueType::from_u8(tag) else { return Err(unknown()) };
    let cf = match tag {
        T::ColumnFamilyValue
        | T::ColumnFamilyDeletion
        | T::ColumnFamilySingleDeletion
        | T::ColumnFamilyRangeDeletion
        | T::ColumnFamilyMerge
        | T::ColumnFamilyBlobIndex
        | T::ColumnFamilyWideColumnEntity
        | T::ColumnFamilyValuePreferredSeqno => ColumnFamilyId(r.varint32()?),
        _ => ColumnFamilyId::DEFAULT,
    };
    Ok(match tag {
        T::Value | T::ColumnFamilyValue => {
            Op::Put { cf, key: r.length_prefixed()?, value: r.length_prefixed()? }
        }
        T::Deletion | T::ColumnFamilyDeletion => Op::Delete { cf, key: r.length_prefixed()? },
        T::SingleDeletion | T::ColumnFamilySingleDeletion => {
            Op::SingleDelete { cf, key: r.length_prefixed()? }
        }
        T::RangeDeletion | T::ColumnFamilyRangeDeletion => {
            Op::DeleteRange { cf, begin: r.length_prefixed()?, end: r.length_prefixed()? }
        }
        T::Merge | T::ColumnFamilyMerge => {
            Op::Merge { cf, key: r.length_prefixed()?, operand: r.length_prefixed()? }
        }
        T::BlobIndex | T::ColumnFamilyBlobIndex => {
            Op::PutBlobIndex { cf, key: r.length_prefixed()?, index: r.length_prefixed()? }
        }
        T::WideColumnEntity | T::ColumnFamilyWideColumnEntity => {
            Op::PutEntity { cf, key: r.length_prefixed()?, entity: r.length_prefixed()? }
        }
        T::ValuePreferredSeqno | T::ColumnFamilyValuePreferredSeqno => {
            let key = r.length_prefixed()?;
            let packed_at = r.position();
            let (value, write_unix_time) = split_packed_value(r.length_prefixed()?)
                .ok_or_else(|| Corruption::new("timed put without its time", packed_at))?;
            Op::TimedPut { cf, key, value, write_unix_time }
        }
        T::LogData => Op::LogData(r.length_prefixed()?),
        T::Noop => Op::Noop,
        T::BeginPrepareXid => Op::BeginPrepare(PrepareKind::Committed),
        T::BeginPersistedPrepareXid => Op::BeginPrepare(PrepareKind::Prepared),
        T::BeginUnprepareXid => Op::BeginPrepare(PrepareKind::Unprepared),
        T::EndPrepareXid => Op::EndPrepare { xid: r.length_prefixed()? },
        T::CommitXid => Op::Commit { xid: r.length_prefixed()? },
        T::CommitXidAndTimestamp => {
            let timestamp = r.length_prefixed()?;
            Op::CommitWithTimestamp { xid: r.length_prefixed()?, timestamp }
        }
        T::RollbackXid => Op::Rollback { xid: r.length_prefixed()? },
        T::DeletionWithTimestamp => return Err(unknown()),
    })
}

/// Splits a [`ValueType::ValuePreferredSeqno`] value into the user's value and the eight bytes
/// behind it, which hold the write time in a batch (seconds since 1970) and the preferred sequence
/// number in memtables and tables.
#[inline]
#[must_use]
pub fn split_packed_value(packed: &[u8]) -> Option<(&[u8], u64)> {
    let (value, tail) = packed.split_last_chunk::<8>()?;
    Some((value, u64::from_le_bytes(*tail)))
}

/// A batch that is being built.
///
/// Keys, values and the whole batch must each be shorter than 4 GiB; longer strings panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for WriteBatch {
    fn default() -> Self {
        WriteBatch::new()
    }
}

impl WriteBatch {
    /// Returns an empty batch with sequence number 0.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    /// Returns an empty batch with capacity for `bytes` bytes in all, if the memory is available.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> WriteBatch {
        let mut buffer = Vec::new();
        // Failure is ignored because the capacity is a hint; a batch that needs the memory fails
        // when it grows.
        let _ = buffer.try_reserve_exact(bytes.max(HEADER_BYTES));
        buffer.resize(HEADER_BYTES, 0);
        WriteBatch { bytes: buffer, count: 0 }
    }

    /// Takes ownership of a stored batch, after decoding every operation in it.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<WriteBatch, Corruption> {
        let reader = BatchReader::parse(&bytes)?;
        let count = reader.count();
        reader.ops().try_for_each(|op| op.map(|_| ()))?;
        Ok(WriteBatch { bytes, count })
    }

    /// Appends one operation.
    #[inline]
    pub fn push(&mut self, op: Op<'_>) {
        let bytes = &mut self.bytes;
        op.encode(&mut |part| bytes.extend_from_slice(part));
        if op.is_counted() {
            self.count = self.count.checked_add(1).expect("a batch holds fewer than 2^32 operations");
            self.bytes[8..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
        }
    }

    /// Sets a key of the default column family.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(Op::Put { cf: ColumnFamilyId::DEFAULT, key, value });
    }

    /// Removes a key of the default column family.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(Op::Delete { cf: ColumnFamilyId::DEFAULT, key });
    }

    /// Adds a merge operand to a key of the default column family.
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) {
        self.push(Op::Merge { cf: ColumnFamilyId::DEFAULT, key, operand });
    }

    /// Removes the keys of the default column family from `begin` up to, but not including, `end`.
    pub fn delete_range(&mut self, begin: &[u8], end: &[u8]) {
        self.push(Op::DeleteRange { cf: ColumnFamilyId::DEFAULT, begin, end });
    }

    /// Sets the sequence number of the first counted operation.
    pub fn set_seq(&mut self, seq: SeqNo) {
        self.bytes[..8].copy_from_slice(&seq.0.to_le_bytes());
    }

    /// Returns the number of counted operations.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if the batch has no operations, counted or not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// Removes all operations and keeps the buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.count = 0;
    }

    /// Restores an earlier state, in which the batch had `len` bytes and `count` counted
    /// operations.
    ///
    /// # Panics
    /// If the batch is shorter than that.
    pub fn truncate(&mut self, len: usize, count: u32) {
        assert!((HEADER_BYTES..=self.bytes.len()).contains(&len) && count <= self.count, "a batch shrinks");
        self.bytes.truncate(len);
        self.count = count;
        self.bytes[8..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// Returns the batch as the WAL stores it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns a reader of the batch.
    #[must_use]
    pub fn reader(&self) -> BatchReader<'_> {
        let seq = coding::fixed64_at(&self.bytes, 0).unwrap_or(0);
        BatchReader { bytes: &self.bytes, seq, count: self.count }
    }
}

#[cfg(test)]
mod tests;
