//! Write batches as users build them: operations that are written atomically.
//!
//! Operations are checked against the size limits as they are added, and stored in RocksDB's
//! encoding. A batch also keeps what the commit pipeline needs without decoding it: the column
//! families it touches, those it merges into, and checksums of its keys.
//!
//! Invariant: an operation that is refused leaves the batch as it was.

mod timestamps;

use crate::wal::replay::BATCH_END;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_format::Corruption;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_format::wide_column::{self, DefaultColumn, WideColumn};
use karst_format::write_batch::{self, HEADER_BYTES, Op};
use karst_storage::column_family::ColumnFamily;
use karst_storage::memtable::pair_checksum;
use smallvec::SmallVec;
use std::fmt::Display;
use std::ops::Range;
use timestamps::Unsettled;

pub use timestamps::timestamp_required;

/// Maximum key length in bytes: with its sequence number it must stay below 4 GiB.
const LARGEST_KEY_BYTES: usize = u32::MAX as usize - 8;
/// Maximum value length in bytes.
const LARGEST_VALUE_BYTES: usize = u32::MAX as usize;
/// Maximum bytes of a batch's encoding, unless a smaller limit is set.
const LARGEST_BATCH_BYTES: usize = u32::MAX as usize;
/// Maximum bytes of one operation beside key and value: tag, family, two lengths, a timed put's
/// time.
const FRAME_BYTES: usize = 1 + 5 + 5 + 5 + 8;

/// Refuses a key or value that no log record, memtable or table can hold.
pub(super) fn check_sizes(op: &Op<'_>) -> Result<()> {
    let (key, value) = strings(op);
    if key.len() > LARGEST_KEY_BYTES {
        return Err(too_large("key", key.len(), LARGEST_KEY_BYTES));
    }
    if value.len() > LARGEST_VALUE_BYTES {
        return Err(too_large("value", value.len(), LARGEST_VALUE_BYTES));
    }
    Ok(())
}

/// Returns the range of the bytes of an encoded entity that a plain read returns.
///
/// # Errors
/// `Corruption`: the bytes are no entity, or refer to blobs, which only tables do.
#[doc(hidden)]
pub fn plain_value_of(entity: &[u8]) -> Result<Range<usize>> {
    let corrupt = |what: &dyn Display| {
        Error::new(ErrorKind::Corruption, format!("a wide-column entity in a write batch: {what}"))
    };
    if wide_column::has_blobs(entity).map_err(|e| corrupt(&e))? {
        return Err(corrupt(&"it refers to blobs"));
    }
    match wide_column::default_column(entity).map_err(|e| corrupt(&e))? {
        DefaultColumn::Inline(range) => Ok(range),
        DefaultColumn::Absent | DefaultColumn::Blob(_) => Ok(0..0),
    }
}

/// Returns the stored form of an entity of these columns.
///
/// # Errors
/// A column is given twice, or all together are too large.
pub fn entity_of(columns: &[(&[u8], &[u8])]) -> Result<Vec<u8>> {
    let mut sorted: Vec<WideColumn<'_>> =
        columns.iter().map(|&(name, value)| WideColumn { name, value, is_blob: false }).collect();
    sorted.sort_by(|a, b| a.name.cmp(b.name));
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let name = String::from_utf8_lossy(twice[0].name);
        let name = Named(&name);
        return Err(Error::invalid_argument(format!("column {name:?} of an entity is given twice")));
    }
    let bytes = columns.iter().map(|(name, value)| name.len() + value.len() + 10).sum::<usize>();
    if bytes > LARGEST_VALUE_BYTES {
        return Err(too_large("wide-column entity", bytes, LARGEST_VALUE_BYTES));
    }
    let mut entity = Vec::with_capacity(bytes + 10);
    wide_column::encode_into(&sorted, &mut entity);
    Ok(entity)
}

#[cold]
fn too_large(what: &str, bytes: usize, limit: usize) -> Error {
    Error::invalid_argument(format!("a {what} of {bytes} bytes; {limit} is the most"))
}

/// Returns key and value of an operation, or the strings in their places.
fn strings<'a>(op: &Op<'a>) -> (&'a [u8], &'a [u8]) {
    match *op {
        Op::Put { key, value, .. } | Op::TimedPut { key, value, .. } => (key, value),
        Op::Delete { key, .. } | Op::SingleDelete { key, .. } => (key, b""),
        Op::DeleteRange { begin, end, .. } => (begin, end),
        Op::Merge { key, operand, .. } => (key, operand),
        Op::PutBlobIndex { key, index, .. } => (key, index),
        Op::PutEntity { key, entity, .. } => (key, entity),
        Op::LogData(data) => (b"", data),
        Op::Noop | Op::BeginPrepare(_) => (b"", b""),
        Op::EndPrepare { xid } | Op::Commit { xid } | Op::Rollback { xid } => (xid, b""),
        Op::CommitWithTimestamp { xid, timestamp } => (xid, timestamp),
    }
}

/// Returns the checksum that protects one operation: that of its kind and family, combined with the
/// memtable's checksum of its key and value.
fn protection_of(op: &Op<'_>) -> u64 {
    let (key, value) = strings(op);
    place_of(op) ^ pair_checksum(key, value)
}

/// Returns the part of an operation's checksum that covers its kind and column family.
fn place_of(op: &Op<'_>) -> u64 {
    let kind: u64 = match op {
        Op::Put { .. } => 1,
        Op::Delete { .. } => 2,
        Op::SingleDelete { .. } => 3,
        Op::DeleteRange { .. } => 4,
        Op::Merge { .. } => 5,
        Op::PutBlobIndex { .. } => 6,
        Op::PutEntity { .. } => 7,
        Op::TimedPut { .. } => 8,
        _ => 9,
    };
    let family = op.column_family().unwrap_or(ColumnFamilyId::DEFAULT);
    (kind | u64::from(family.0) << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Operations that are written atomically, in RocksDB's encoding.
///
/// ```
/// # use karst_commit as karstdb;
/// use karstdb::WriteBatch;
/// let mut batch = WriteBatch::new();
/// batch.put("cave", "limestone")?;
/// batch.set_save_point();
/// batch.delete("river")?;
/// batch.rollback_to_save_point()?;
/// assert_eq!(batch.count(), 1);
/// # Ok::<(), karst_base::error::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    records: write_batch::WriteBatch,
    /// Column families of its operations, each once, in order of first use.
    families: SmallVec<[ColumnFamilyId; 2]>,
    /// Column families that it merges into.
    merged: SmallVec<[ColumnFamilyId; 1]>,
    /// True if an operation removes a range.
    removes_ranges: bool,
    unsettled: Unsettled,
    /// Number of the open database whose column families were named.
    database: Option<u64>,
    save_points: Vec<SavePoint>,
    /// Maximum bytes of the encoding; 0: no limit.
    max_bytes: usize,
    /// One checksum for each operation, if the batch is protected.
    protection: Option<Vec<u64>>,
    /// Timestamp size of the default column family in operations that name no column family.
    default_timestamp_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct SavePoint {
    len: usize,
    count: u32,
    families: usize,
    merged: usize,
    removes_ranges: bool,
    unsettled: Unsettled,
    protected: usize,
}

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty batch with `reserved_bytes` reserved, of at most `max_bytes` (0: no limit).
    /// The reservation is a hint, limited by `max_bytes` and by the memory available.
    pub fn with_capacity(reserved_bytes: usize, max_bytes: usize) -> Self {
        let most = if max_bytes == 0 { LARGEST_BATCH_BYTES } else { max_bytes.min(LARGEST_BATCH_BYTES) };
        let reserved_bytes = reserved_bytes.min(most);
        let records = write_batch::WriteBatch::with_capacity(reserved_bytes);
        Self { records, max_bytes, ..Self::default() }
    }

    /// Sets the timestamp size of the default column family: operations that name no column family
    /// get their timestamps from [`update_timestamps`](Self::update_timestamps).
    ///
    /// # Panics
    /// The batch has operations.
    #[must_use]
    pub fn with_default_timestamp_size(mut self, bytes: usize) -> Self {
        assert_eq!(self.count(), 0, "the keys of a batch have timestamps from the first on");
        self.default_timestamp_bytes = bytes;
        self
    }

    /// Creates an empty batch whose operations each carry a checksum from when they are added until
    /// they are logged or, if memtables have checksums (`memtable_protection_bytes_per_key`),
    /// flushed.
    pub fn protected() -> Self {
        Self { protection: Some(Vec::new()), ..Self::default() }
    }

    /// Returns a copy whose operations carry checksums, computed now unless the batch has them.
    #[doc(hidden)]
    pub fn to_protected(&self) -> Self {
        let mut batch = self.clone();
        let of_each = || batch.iter().map(|op| protection_of(&op)).collect();
        if batch.protection.is_none() {
            batch.protection = Some(of_each());
        }
        batch
    }

    /// Returns true if the operations carry checksums.
    #[doc(hidden)]
    pub fn is_protected(&self) -> bool {
        self.protection.is_some()
    }

    /// Iterates over the operations, each with the checksum of its key and value derived from the
    /// one taken when it was added, or with a new one if the batch has none.
    #[doc(hidden)]
    pub fn iter_protected(&self) -> impl Iterator<Item = (Op<'_>, u64)> {
        let checksums = self.protection.as_deref().unwrap_or_default();
        self.iter().enumerate().map(|(index, op)| {
            let checksum = checksums.get(index).copied().unwrap_or_else(|| protection_of(&op));
            (op, checksum ^ place_of(&op))
        })
    }

    /// Decodes an encoded batch. Every operation must decode and pass the checks of those added
    /// here, because an operation that is logged and cannot be flushed keeps the database from
    /// being opened.
    ///
    /// Keys of column families with timestamps end in them. Those families are known only when the
    /// batch is written, and a batch with a key that is too short is refused then.
    /// # Errors
    /// `Corruption`: the batch, or a wide-column entity in it, does not decode; the error names the
    /// offset. `NotSupported`: it has markers of a transaction, or references into blob files,
    /// which only the database itself makes. `InvalidArgument`: a key or the batch is too large.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        if bytes.len() > LARGEST_BATCH_BYTES {
            return Err(too_large("write batch", bytes.len(), LARGEST_BATCH_BYTES));
        }
        let records = write_batch::WriteBatch::from_bytes(bytes).map_err(corrupt)?;
        let mut batch = Self::new();
        let mut has_ends = false;
        let mut ops = records.reader().ops();
        loop {
            let offset = ops.offset();
            let Some(op) = ops.next() else { break };
            let op = op.map_err(corrupt)?;
            check_foreign(&op, offset)?;
            has_ends |= op == Op::Noop;
            batch.note(&op);
        }
        batch.unsettled.foreign = true;
        batch.records = records;
        if has_ends {
            batch.leave_out_ends();
        }
        Ok(batch)
    }

    /// Removes the end marks of WritePrepared batches, RocksDB's and ours ([`BATCH_END`]), because
    /// in a log they determine the numbering of the operations before them.
    #[cold]
    fn leave_out_ends(&mut self) {
        let marked = std::mem::take(&mut self.records);
        let bytes = marked.as_bytes();
        let without = bytes.strip_suffix(&BATCH_END).unwrap_or(bytes).len();
        let mut ops = marked.reader().ops();
        while ops.offset() < without
            && let Some(Ok(op)) = ops.next()
        {
            if op != Op::Noop {
                self.records.push(op);
            }
        }
        self.records.set_seq(marked.reader().seq());
    }

    /// Sets a key of the default column family. If that family has timestamps, a batch with calls
    /// that name no column family is refused when it is written: such keys need
    /// [`put_cf_with_ts`](Self::put_cf_with_ts), or [`put_cf`](Self::put_cf) and
    /// [`update_timestamps`](Self::update_timestamps).
    ///
    /// # Errors
    /// The key, the value or the batch would be too large.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::Put { cf, key: key.as_ref(), value: value.as_ref() })
    }

    /// Sets a key of a column family. If the family has timestamps, here and in the other calls
    /// that name one, [`update_timestamps`](Self::update_timestamps) must set the key's timestamp
    /// before the batch is written.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and if other operations are on column families of another
    /// database.
    pub fn put_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = family.0.id();
        self.push(Some(family), Op::Put { cf, key: key.as_ref(), value: value.as_ref() })
    }

    /// Removes a key of the default column family.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::Delete { cf: ColumnFamilyId::DEFAULT, key: key.as_ref() })
    }

    /// Removes a key of a column family.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(Some(family), Op::Delete { cf: family.0.id(), key: key.as_ref() })
    }

    /// Removes a key of the default column family that was put at most once since it was last
    /// removed.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::SingleDelete { cf: ColumnFamilyId::DEFAULT, key: key.as_ref() })
    }

    /// Removes a key of a column family that was put at most once since it was last removed.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(Some(family), Op::SingleDelete { cf: family.0.id(), key: key.as_ref() })
    }

    /// Removes the keys of the default column family from `begin` up to, not including, `end`.
    /// Writing the batch, like `Db::delete_range`, fails if `end` comes before `begin` in the
    /// family's order, which the batch does not know.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::DeleteRange { cf, begin: begin.as_ref(), end: end.as_ref() })
    }

    /// Removes the keys of a column family from `begin` up to, not including, `end`; see
    /// [`delete_range`](Self::delete_range).
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf). `NotSupported`: the column family has timestamps.
    pub fn delete_range_cf(
        &mut self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = family.0.id();
        self.push(Some(family), Op::DeleteRange { cf, begin: begin.as_ref(), end: end.as_ref() })
    }

    /// Adds a merge operand to a key of the default column family.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::Merge { cf, key: key.as_ref(), operand: operand.as_ref() })
    }

    /// Adds a merge operand to a key of a column family.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf).
    pub fn merge_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = family.0.id();
        self.push(Some(family), Op::Merge { cf, key: key.as_ref(), operand: operand.as_ref() })
    }

    /// Sets a key to an entity of named columns, in any order; a plain read returns the column with
    /// the empty name. `None` is the default column family.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf), and if a column is given twice, or the column family has
    /// timestamps.
    pub fn put_entity(
        &mut self,
        family: Option<&ColumnFamily>,
        key: impl AsRef<[u8]>,
        columns: &[(&[u8], &[u8])],
    ) -> Result<()> {
        let entity = entity_of(columns)?;
        let cf = family.map_or(ColumnFamilyId::DEFAULT, |family| family.0.id());
        self.push(family, Op::PutEntity { cf, key: key.as_ref(), entity: &entity })
    }

    /// Sets a key of a column family to an encoded entity that `plain_value_of` has accepted.
    ///
    /// # Errors
    /// Those of [`put_entity`](Self::put_entity).
    #[doc(hidden)]
    pub fn put_encoded_entity_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        entity: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = family.0.id();
        self.push(Some(family), Op::PutEntity { cf, key: key.as_ref(), entity: entity.as_ref() })
    }

    /// Adds bytes that are written to the log only.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::LogData(data.as_ref()))
    }

    /// Marks the current state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    pub fn set_save_point(&mut self) {
        let point = self.here();
        self.save_points.push(point);
    }

    /// Removes the operations added since the last save point, and that save point.
    ///
    /// # Errors
    /// `NotFound` if no save point is set.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        let point = self.save_points.pop().ok_or_else(no_save_point)?;
        self.records.truncate(point.len, point.count);
        self.families.truncate(point.families);
        self.merged.truncate(point.merged);
        self.removes_ranges = point.removes_ranges;
        self.unsettled = point.unsettled;
        if let Some(protection) = &mut self.protection {
            protection.truncate(point.protected);
        }
        Ok(())
    }

    /// Removes the last save point and keeps the operations added since.
    ///
    /// # Errors
    /// `NotFound` if no save point is set.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.save_points.pop().map(|_| ()).ok_or_else(no_save_point)
    }

    /// Removes all operations and save points, and keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.families.clear();
        self.merged.clear();
        self.removes_ranges = false;
        self.unsettled = Unsettled::default();
        self.database = None;
        self.save_points.clear();
        if let Some(protection) = &mut self.protection {
            protection.clear();
        }
    }

    /// Returns the number of operations; log data does not count.
    pub fn count(&self) -> u32 {
        self.records.count()
    }

    /// Returns true if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the length of the encoding in bytes.
    pub fn data_size(&self) -> usize {
        self.records.as_bytes().len()
    }

    /// Returns the encoding, like RocksDB's `WriteBatch::Data`. Its sequence number is 0, or that
    /// of the bytes passed to [`from_bytes`](Self::from_bytes).
    pub fn as_bytes(&self) -> &[u8] {
        self.records.as_bytes()
    }

    /// Iterates over the operations in order.
    pub fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        // Invariant: every operation was encoded here or decoded by `from_bytes`.
        self.records.reader().ops().map(|op| op.expect("a batch decodes"))
    }

    /// Returns the column families of its operations.
    #[doc(hidden)]
    pub fn families(&self) -> &[ColumnFamilyId] {
        &self.families
    }

    /// Returns the column families that it merges into.
    #[doc(hidden)]
    pub fn merged(&self) -> &[ColumnFamilyId] {
        &self.merged
    }

    /// Iterates over the ranges that it removes. Decodes the operations only if there is a range.
    #[doc(hidden)]
    pub fn removed_ranges(&self) -> impl Iterator<Item = (ColumnFamilyId, &[u8], &[u8])> {
        let ops = self.removes_ranges.then(|| self.iter()).into_iter().flatten();
        ops.filter_map(|op| match op {
            Op::DeleteRange { cf, begin, end } => Some((cf, begin, end)),
            _ => None,
        })
    }

    /// Returns true if it removes a range and has other operations too.
    #[doc(hidden)]
    pub fn mixes_ranges(&self) -> bool {
        self.removes_ranges && self.count() > 1
    }

    /// Returns the number of the database whose column families were named in it.
    #[doc(hidden)]
    pub fn database(&self) -> Option<u64> {
        self.database
    }

    /// Compares each operation with the checksum that was taken when it was added, if the batch is
    /// protected.
    #[doc(hidden)]
    pub fn verify(&self) -> Result<()> {
        let Some(protection) = &self.protection else { return Ok(()) };
        let mut checksums = protection.iter();
        let damaged = |at: usize, what: &str| {
            Error::new(ErrorKind::Corruption, format!("write batch in memory, offset {at}: {what}"))
        };
        let mut ops = self.records.reader().ops();
        loop {
            let at = ops.offset();
            match ops.next() {
                None => break,
                Some(Err(e)) => return Err(damaged(at, &e.what)),
                Some(Ok(op)) if checksums.next() != Some(&protection_of(&op)) => {
                    return Err(damaged(at, "an operation does not match its checksum"));
                }
                Some(Ok(_)) => {}
            }
        }
        match checksums.next() {
            None => Ok(()),
            Some(_) => Err(damaged(self.data_size(), "operations are missing")),
        }
    }

    fn here(&self) -> SavePoint {
        SavePoint {
            len: self.data_size(),
            count: self.count(),
            families: self.families.len(),
            merged: self.merged.len(),
            removes_ranges: self.removes_ranges,
            unsettled: self.unsettled,
            protected: self.protection.as_ref().map_or(0, Vec::len),
        }
    }

    fn push(&mut self, family: Option<&ColumnFamily>, op: Op<'_>) -> Result<()> {
        match family {
            Some(family) if family.comparator().timestamp_size() > 0 => {
                self.push_without_timestamp(family, op)
            }
            Some(_) => self.push_whole(family, op),
            None if self.default_timestamp_bytes > 0 && op.column_family().is_some() => {
                self.push_unnamed_without_timestamp(op)
            }
            None => {
                self.push_whole(None, op)?;
                self.unsettled.unnamed |= op.column_family().is_some();
                Ok(())
            }
        }
    }

    /// Adds an operation whose key is in its stored form.
    fn push_whole(&mut self, family: Option<&ColumnFamily>, op: Op<'_>) -> Result<()> {
        check_sizes(&op)?;
        let (key, value) = strings(&op);
        let grown = self.data_size() as u64 + (key.len() as u64 + value.len() as u64) + FRAME_BYTES as u64;
        let limit = if self.max_bytes == 0 { LARGEST_BATCH_BYTES } else { self.max_bytes };
        if grown > limit as u64 {
            self.check_growth(&op, limit)?;
        }
        if let Some(family) = family {
            let database = family.0.database;
            if *self.database.get_or_insert(database) != database {
                return Err(Error::invalid_argument(format!(
                    "column family {:?} is of another database than others in the batch",
                    Named(family.name())
                )));
            }
        }
        self.push_checked(op);
        Ok(())
    }

    /// Adds an operation that is within the limits.
    #[doc(hidden)]
    pub fn push_checked(&mut self, op: Op<'_>) {
        self.note(&op);
        self.records.push(op);
    }

    /// Exact check of the size limit, made when the estimate exceeds it.
    #[cold]
    fn check_growth(&self, op: &Op<'_>, limit: usize) -> Result<()> {
        let (key, value) = strings(op);
        // Checked first, because beyond the largest batch not even the trial encoding fits.
        if key.len() + value.len() <= limit {
            let mut alone = write_batch::WriteBatch::new();
            alone.push(*op);
            if self.data_size() + alone.as_bytes().len() - HEADER_BYTES <= limit {
                return Ok(());
            }
        }
        let text =
            format!("a write batch of {} bytes would grow over its limit of {limit}", self.data_size());
        Err(Error::new(ErrorKind::LimitReached, text))
    }

    /// Records families, merges, ranges and the checksum of an operation.
    fn note(&mut self, op: &Op<'_>) {
        if let Some(cf) = op.column_family() {
            if !self.families.contains(&cf) {
                self.families.push(cf);
            }
            if matches!(op, Op::Merge { .. }) && !self.merged.contains(&cf) {
                self.merged.push(cf);
            }
            self.removes_ranges |= matches!(op, Op::DeleteRange { .. });
        }
        if let Some(protection) = &mut self.protection {
            protection.push(protection_of(op));
        }
    }

    /// Returns the sequence number in its header, which is set in batches read from a log.
    pub fn sequence_number(&self) -> u64 {
        let SeqNo(seq) = self.records.reader().seq();
        seq
    }
}

fn corrupt(e: Corruption) -> Error {
    let text = format!("write batch, offset {}: {}", e.offset, e.what);
    Error::with_source(ErrorKind::Corruption, text, e)
}

/// Refuses an operation that decodes, at `offset` of a batch made elsewhere, but could not have
/// been added here.
fn check_foreign(op: &Op<'_>, offset: usize) -> Result<()> {
    let references = || {
        let text = format!("write batch, offset {offset}: a reference into a blob file");
        Err(Error::not_supported(text))
    };
    match *op {
        Op::BeginPrepare(_)
        | Op::EndPrepare { .. }
        | Op::Commit { .. }
        | Op::CommitWithTimestamp { .. }
        | Op::Rollback { .. } => Err(Error::not_supported("a write batch with markers of a transaction")),
        Op::PutBlobIndex { .. } => references(),
        Op::PutEntity { entity, .. } => match wide_column::has_blobs(entity) {
            Ok(true) => references(),
            Ok(false) => check_sizes(op),
            Err(e) => {
                let what =
                    format!("the wide-column entity of the operation here, at its offset {}", e.offset);
                Err(corrupt(Corruption::new(format!("{what}: {}", e.what), offset)))
            }
        },
        _ => check_sizes(op),
    }
}

#[cold]
fn no_save_point() -> Error {
    Error::new(ErrorKind::NotFound, "the write batch has no save point")
}

#[cfg(test)]
mod tests;
