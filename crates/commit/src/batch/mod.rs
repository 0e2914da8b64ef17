//! Write batches as users build them: operations that are written together or not at all.
//!
//! In: operations, each checked against the size limits as it is added. Out: RocksDB's encoding,
//! and what the commit pipeline wants to know without decoding it: which column families are
//! touched, which of them are merged into, and whether checksums protect the keys.
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

/// Longest key in bytes: with its sequence number it must stay below 4 GiB.
const LARGEST_KEY_BYTES: usize = u32::MAX as usize - 8;
/// Longest value in bytes.
const LARGEST_VALUE_BYTES: usize = u32::MAX as usize;
/// Most bytes of a batch's encoding where no smaller limit is set.
const LARGEST_BATCH_BYTES: usize = u32::MAX as usize;
/// Most bytes that the frame of one operation takes: tag, family, two lengths, a timed put's time.
const FRAME_BYTES: usize = 1 + 5 + 5 + 5 + 8;

/// Refuses a key or value that no log record, memtable or table could hold.
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

/// What a plain read returns of an entity as logs have it: a part of its bytes.
///
/// # Errors
/// `Corruption`: it is no entity, or refers to blobs, which only tables do.
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

/// The stored form of an entity of these columns.
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

/// Key and value of an operation, or what stands in their places.
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

/// The checksum that protects one operation: its place and the checksum that a memtable has of its
/// key and value.
fn protection_of(op: &Op<'_>) -> u64 {
    let (key, value) = strings(op);
    place_of(op) ^ pair_checksum(key, value)
}

/// What the checksum of an operation has of its kind and its column family.
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

/// Operations that are written together or not at all, in RocksDB's encoding.
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
    /// Column families of its operations, each once, in the order they came up.
    families: SmallVec<[ColumnFamilyId; 2]>,
    /// Those that are merged into.
    merged: SmallVec<[ColumnFamilyId; 1]>,
    /// Whether one of them removes a range.
    removes_ranges: bool,
    unsettled: Unsettled,
    /// The open database whose families were named, by its number.
    database: Option<u64>,
    save_points: Vec<SavePoint>,
    /// Most bytes of the encoding; 0 for no limit.
    max_bytes: usize,
    /// One checksum for each operation, if the batch is protected.
    protection: Option<Vec<u64>>,
    /// The default column family has timestamps of so many bytes, where no column family is named.
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
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `reserved_bytes`, that refuses to grow over `max_bytes` (0: no
    /// limit). The room is a hint: what there is no memory for, or what a batch may not grow to, is
    /// not reserved.
    pub fn with_capacity(reserved_bytes: usize, max_bytes: usize) -> Self {
        let most = if max_bytes == 0 { LARGEST_BATCH_BYTES } else { max_bytes.min(LARGEST_BATCH_BYTES) };
        let reserved_bytes = reserved_bytes.min(most);
        let records = write_batch::WriteBatch::with_capacity(reserved_bytes);
        Self { records, max_bytes, ..Self::default() }
    }

    /// The batch, which is for a database whose default column family has timestamps of so many
    /// bytes: operations that name no column family get their timestamps from
    /// [`update_timestamps`](Self::update_timestamps).
    ///
    /// # Panics
    /// The batch has operations.
    #[must_use]
    pub fn with_default_timestamp_size(mut self, bytes: usize) -> Self {
        assert_eq!(self.count(), 0, "the keys of a batch have timestamps from the first on");
        self.default_timestamp_bytes = bytes;
        self
    }

    /// An empty batch whose operations each carry a checksum from the moment they are added until
    /// they are logged, and where memtables have checksums (`memtable_protection_bytes_per_key`)
    /// until they are flushed.
    pub fn protected() -> Self {
        Self { protection: Some(Vec::new()), ..Self::default() }
    }

    /// The same operations, protected from now on if they were not before.
    #[doc(hidden)]
    pub fn to_protected(&self) -> Self {
        let mut batch = self.clone();
        let of_each = || batch.iter().map(|op| protection_of(&op)).collect();
        if batch.protection.is_none() {
            batch.protection = Some(of_each());
        }
        batch
    }

    /// Whether its operations carry checksums.
    #[doc(hidden)]
    pub fn is_protected(&self) -> bool {
        self.protection.is_some()
    }

    /// Its operations, each with the checksum of its key and value that is left if the operation is
    /// still the one that was added; if it carries none, with one made now.
    #[doc(hidden)]
    pub fn iter_protected(&self) -> impl Iterator<Item = (Op<'_>, u64)> {
        let checksums = self.protection.as_deref().unwrap_or_default();
        self.iter().enumerate().map(|(index, op)| {
            let checksum = checksums.get(index).copied().unwrap_or_else(|| protection_of(&op));
            (op, checksum ^ place_of(&op))
        })
    }

    /// Takes over an encoded batch once every operation in it has decoded, and could have been
    /// added here. Why so strict: what is logged and cannot be flushed keeps the database from
    /// being opened.
    ///
    /// Keys of column families that have timestamps end in them; which those are is only known when
    /// the batch is written, and one with a key that is too short for that is refused then.
    ///
    /// # Errors
    /// `Corruption`: it does not decode, or a wide-column entity in it does not; the error says
    /// where. `NotSupported`: it has markers of a transaction, or references into blob files, which
    /// only the database itself makes. `InvalidArgument`: a key or the batch is too large.
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

    /// Leaves out the marks with which batches end under WritePrepared, RocksDB's and ours
    /// ([`BATCH_END`]). Why: in a log they would say how what is before them is numbered.
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

    /// Sets a key of the default column family. In a database whose default column family has
    /// timestamps the batch is refused when it is written, as are those of all calls here that name
    /// no column family: such keys need [`put_cf_with_ts`](Self::put_cf_with_ts), or
    /// [`put_cf`](Self::put_cf) and [`update_timestamps`](Self::update_timestamps).
    ///
    /// # Errors
    /// The key, the value or the batch would be too large.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::Put { cf, key: key.as_ref(), value: value.as_ref() })
    }

    /// Sets a key of a column family. If that has timestamps, here and in the other calls that name
    /// one, [`update_timestamps`](Self::update_timestamps) has to give the key one before the batch
    /// is written.
    ///
    /// # Errors
    /// As [`put`](Self::put), and if other operations are on column families of another database.
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
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::Delete { cf: ColumnFamilyId::DEFAULT, key: key.as_ref() })
    }

    /// Removes a key of a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(Some(family), Op::Delete { cf: family.0.id(), key: key.as_ref() })
    }

    /// Removes a key of the default column family that was put at most once since it was last
    /// removed.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::SingleDelete { cf: ColumnFamilyId::DEFAULT, key: key.as_ref() })
    }

    /// The same in a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.push(Some(family), Op::SingleDelete { cf: family.0.id(), key: key.as_ref() })
    }

    /// Removes the keys of the default column family from `begin` up to, not including, `end`.
    /// Writing the batch fails if `end` comes before `begin` in the order of the column family, as
    /// `Db::delete_range` does; the batch does not know that order yet.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::DeleteRange { cf, begin: begin.as_ref(), end: end.as_ref() })
    }

    /// The same in a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf). `NotSupported`: the column family has timestamps.
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
    /// As [`put`](Self::put).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let cf = ColumnFamilyId::DEFAULT;
        self.push(None, Op::Merge { cf, key: key.as_ref(), operand: operand.as_ref() })
    }

    /// Adds a merge operand to a key of a column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn merge_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let cf = family.0.id();
        self.push(Some(family), Op::Merge { cf, key: key.as_ref(), operand: operand.as_ref() })
    }

    /// Sets a key to an entity of named columns, in any order; the column with the empty name is
    /// what a plain read returns. `None` is the default column family.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf), and if a column is given twice, or the column family has
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

    /// The same with an entity as logs have it, which `plain_value_of` has taken.
    ///
    /// # Errors
    /// As [`put_entity`](Self::put_entity).
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

    /// Adds bytes that go to the log and nowhere else.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_log_data(&mut self, data: impl AsRef<[u8]>) -> Result<()> {
        self.push(None, Op::LogData(data.as_ref()))
    }

    /// Marks the present state for [`rollback_to_save_point`](Self::rollback_to_save_point). Save
    /// points nest.
    pub fn set_save_point(&mut self) {
        let point = self.here();
        self.save_points.push(point);
    }

    /// Takes back what was added since the last save point, and that save point.
    ///
    /// # Errors
    /// `NotFound` if there is none.
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

    /// Forgets the last save point and keeps what was added since.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.save_points.pop().map(|_| ()).ok_or_else(no_save_point)
    }

    /// Empties it and keeps its memory.
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

    /// How many operations it holds; log data does not count.
    pub fn count(&self) -> u32 {
        self.records.count()
    }

    /// Whether it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of its encoding.
    pub fn data_size(&self) -> usize {
        self.records.as_bytes().len()
    }

    /// Its encoding, as RocksDB's `WriteBatch::Data`. The sequence number in it is 0, or what
    /// [`from_bytes`](Self::from_bytes) got.
    pub fn as_bytes(&self) -> &[u8] {
        self.records.as_bytes()
    }

    /// Its operations in order.
    pub fn iter(&self) -> impl Iterator<Item = Op<'_>> {
        // Invariant: every operation was encoded here or decoded by `from_bytes`.
        self.records.reader().ops().map(|op| op.expect("a batch decodes"))
    }

    /// Column families that it touches.
    #[doc(hidden)]
    pub fn families(&self) -> &[ColumnFamilyId] {
        &self.families
    }

    /// Column families that it merges into.
    #[doc(hidden)]
    pub fn merged(&self) -> &[ColumnFamilyId] {
        &self.merged
    }

    /// The ranges that it removes. Goes through its operations only if there is one.
    #[doc(hidden)]
    pub fn removed_ranges(&self) -> impl Iterator<Item = (ColumnFamilyId, &[u8], &[u8])> {
        let ops = self.removes_ranges.then(|| self.iter()).into_iter().flatten();
        ops.filter_map(|op| match op {
            Op::DeleteRange { cf, begin, end } => Some((cf, begin, end)),
            _ => None,
        })
    }

    /// Whether it removes a range and does something else too.
    #[doc(hidden)]
    pub fn mixes_ranges(&self) -> bool {
        self.removes_ranges && self.count() > 1
    }

    /// The database whose column families were named in it, by its number.
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

    /// Adds an operation whose key is as it is to be stored.
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

    /// The exact form of a check that the estimate did not pass.
    #[cold]
    fn check_growth(&self, op: &Op<'_>, limit: usize) -> Result<()> {
        let (key, value) = strings(op);
        // Why: beyond the largest batch not even the trial encoding fits.
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

    /// Takes note of what the pipeline asks about an operation.
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

    /// The sequence number in its header; for batches that come from a log.
    pub fn sequence_number(&self) -> u64 {
        let SeqNo(seq) = self.records.reader().seq();
        seq
    }
}

fn corrupt(e: Corruption) -> Error {
    let text = format!("write batch, offset {}: {}", e.offset, e.what);
    Error::with_source(ErrorKind::Corruption, text, e)
}

/// Refuses what decodes, at `offset` of a batch that was made elsewhere, but is nothing that could
/// be added here.
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
