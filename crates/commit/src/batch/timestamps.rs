//! Keys with user-defined timestamps in batches.
//!
//! In: operations on column families whose comparator has timestamps, with one or with zeroes that
//! hold its place; the timestamp that comes in their stead. Out: keys as they are logged and
//! stored, which end in their timestamps; or why a batch cannot be written.
//!
//! What a batch knows depends on how an operation came in. Where a column family was named, so was
//! its comparator. Where none was, the operation is on the default one of whatever database the
//! batch is written to, and its key has no timestamp. What came as bytes has keys of which nothing
//! is known but that they have to be long enough.

use super::{WriteBatch, strings};
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_format::ids::ColumnFamilyId;
use karst_format::log::TimestampSize;
use karst_format::write_batch::{self, Op};
use karst_storage::column_family::{ColumnFamily, Family};
use std::sync::Arc;

/// What has to be looked at before a batch is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsettled {
    /// Zeroes stand where timestamps have to come.
    pub(super) placeholders: bool,
    /// It has operations on the default column family that was not named.
    pub(super) unnamed: bool,
    /// It has operations that came as bytes.
    pub(super) foreign: bool,
}

/// Refuses what needs a timestamp and has none.
///
/// # Errors
/// Always.
#[cold]
pub fn timestamp_required<T>(family: &str) -> Result<T> {
    let family = Named(family);
    Err(Error::invalid_argument(format!("a timestamp is required in column family {family:?}")))
}

/// Refuses a range where keys have timestamps.
///
/// # Errors
/// Always.
#[cold]
fn no_ranges<T>(family: &str) -> Result<T> {
    let family = Named(family);
    let text = format!("removing a range in column family {family:?}, whose keys have timestamps");
    Err(Error::not_supported(text))
}

/// Refuses a timestamp that is not as long as the column family's are.
fn check_size(family: &ColumnFamily, timestamp: &[u8]) -> Result<()> {
    let (size, name) = (family.comparator().timestamp_size(), Named(family.name()));
    let text = match size {
        size if size == timestamp.len() && size > 0 => return Ok(()),
        0 => format!("column family {name:?} has no timestamps, and one was given"),
        size => {
            format!("a timestamp of {} bytes; those of column family {name:?} have {size}", timestamp.len())
        }
    };
    Err(Error::invalid_argument(text))
}

impl WriteBatch {
    /// Sets a key of a column family that has timestamps, at one.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf); the column family has no timestamps, or others of another size.
    pub fn put_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::Put { cf: family.0.id(), key: key.as_ref(), value: value.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// Removes a key of a column family that has timestamps, at one: it is found as of earlier
    /// ones.
    ///
    /// # Errors
    /// As [`put_cf_with_ts`](Self::put_cf_with_ts).
    pub fn delete_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::Delete { cf: family.0.id(), key: key.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// The same of a key that was put at most once since it was last removed.
    ///
    /// # Errors
    /// As [`put_cf_with_ts`](Self::put_cf_with_ts).
    pub fn single_delete_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::SingleDelete { cf: family.0.id(), key: key.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// Adds a merge operand to a key of a column family that has timestamps, at one.
    ///
    /// # Errors
    /// As [`put_cf_with_ts`](Self::put_cf_with_ts).
    pub fn merge_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::Merge { cf: family.0.id(), key: key.as_ref(), operand: operand.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// Whether it has keys that were added without the timestamp that they need:
    /// [`update_timestamps`](Self::update_timestamps) has to be called before it is written.
    pub fn needs_timestamps(&self) -> bool {
        self.unsettled.placeholders
    }

    /// Gives all keys of column families that have timestamps this one, those too that were added
    /// with another. `timestamp_size` says how many bytes the timestamps of the column family with
    /// an id have: 0 if it has none, nothing if it is not known.
    ///
    /// # Errors
    /// Nothing was changed. `NotFound`: a column family is not known. `InvalidArgument`: one has
    /// timestamps of another size, or a key is shorter than its timestamp. `NotSupported`: the
    /// batch removes a range where keys have timestamps. `Corruption`: the batch is protected and
    /// does not match its checksums.
    pub fn update_timestamps(
        &mut self,
        timestamp: impl AsRef<[u8]>,
        timestamp_size: impl Fn(u32) -> Option<usize>,
    ) -> Result<()> {
        let timestamp = timestamp.as_ref();
        // Why first: the checksums are made anew of what is there then.
        self.verify()?;
        let mut places = Vec::new();
        let start = self.as_bytes().as_ptr() as usize;
        for op in self.iter() {
            let Some(cf) = op.column_family() else { continue };
            let size = timestamp_size(cf.0).ok_or_else(|| {
                let text = format!("column family {cf}, of which no size of timestamps is known");
                Error::new(ErrorKind::NotFound, text)
            })?;
            if size == 0 {
                continue;
            }
            if size != timestamp.len() {
                let given = timestamp.len();
                let text = format!("a timestamp of {given} bytes; those of column family {cf} have {size}");
                return Err(Error::invalid_argument(text));
            }
            let (key, _) = strings(&op);
            check_key(cf, &op, size)?;
            places.push(key.as_ptr() as usize - start + key.len() - size);
        }
        let mut bytes = self.as_bytes().to_vec();
        for place in places {
            bytes[place..place + timestamp.len()].copy_from_slice(timestamp);
        }
        // Invariant: no length in it has changed.
        self.records = write_batch::WriteBatch::from_bytes(bytes).expect("a batch decodes");
        if self.protection.is_some() {
            self.protection = Some(self.iter().map(|op| super::protection_of(&op)).collect());
        }
        self.unsettled.placeholders = false;
        self.save_points.iter_mut().for_each(|point| point.unsettled.placeholders = false);
        Ok(())
    }

    /// What a log has to say of the column families that it touches and that have timestamps.
    /// `family` gives those that are open.
    ///
    /// # Errors
    /// Timestamps are longer than a log can say.
    #[doc(hidden)]
    pub fn timestamp_sizes(
        &self,
        family: impl Fn(ColumnFamilyId) -> Option<Arc<Family>>,
    ) -> Result<Vec<TimestampSize>> {
        let mut sizes = Vec::new();
        for family in self.families().iter().filter_map(|id| family(*id)) {
            let bytes = family.config.comparator.timestamp_size();
            let said = u16::try_from(bytes).map_err(|_| {
                let name = Named(&family.config.name);
                let most = u16::MAX;
                let text =
                    format!("timestamps of {bytes} bytes in column family {name:?}; a log can name {most}");
                Error::invalid_argument(text)
            })?;
            if said > 0 {
                sizes.push(TimestampSize { cf: family.id(), bytes: said });
            }
        }
        Ok(sizes)
    }

    /// Refuses what cannot be written as far as timestamps go, to a database with this default
    /// column family. `family` gives those that are open; one that is not is nobody's concern here.
    ///
    /// # Errors
    /// `InvalidArgument`: timestamps are missing. `NotSupported`: a range of keys with timestamps.
    #[doc(hidden)]
    #[inline]
    pub fn check_timestamps(
        &self,
        default: &ColumnFamily,
        family: impl Fn(ColumnFamilyId) -> Option<Arc<Family>>,
    ) -> Result<()> {
        let Unsettled { placeholders, unnamed, foreign } = self.unsettled;
        if placeholders || foreign || (unnamed && default.comparator().timestamp_size() > 0) {
            return self.check_unsettled(default, family);
        }
        Ok(())
    }

    #[cold]
    fn check_unsettled(
        &self,
        default: &ColumnFamily,
        family: impl Fn(ColumnFamilyId) -> Option<Arc<Family>>,
    ) -> Result<()> {
        if self.unsettled.placeholders {
            return Err(Error::invalid_argument(
                "the write batch has keys without their timestamps, which `update_timestamps` gives them",
            ));
        }
        self.check_sizes_of_timestamps(default, family)
    }

    /// The same of a batch whose timestamps may come later: it is only logged now.
    ///
    /// # Errors
    /// The same, but for keys without their timestamps that have room for them.
    #[doc(hidden)]
    pub fn check_timestamps_to_come(
        &self,
        default: &ColumnFamily,
        family: impl Fn(ColumnFamilyId) -> Option<Arc<Family>>,
    ) -> Result<()> {
        let Unsettled { unnamed, foreign, .. } = self.unsettled;
        if foreign || (unnamed && default.comparator().timestamp_size() > 0) {
            return self.check_sizes_of_timestamps(default, family);
        }
        Ok(())
    }

    fn check_sizes_of_timestamps(
        &self,
        default: &ColumnFamily,
        family: impl Fn(ColumnFamilyId) -> Option<Arc<Family>>,
    ) -> Result<()> {
        let open: Vec<Arc<Family>> = self.families().iter().filter_map(|id| family(*id)).collect();
        let with_timestamps = |cf| {
            let family = open.iter().find(|family| family.id() == cf);
            family.filter(|family| family.config.comparator.timestamp_size() > 0)
        };
        for op in self.iter() {
            if let Some(cf) = op.column_family()
                && let Some(family) = with_timestamps(cf)
            {
                if matches!(op, Op::DeleteRange { .. }) {
                    return no_ranges(&family.config.name);
                }
                check_key(cf, &op, family.config.comparator.timestamp_size())?;
            }
        }
        if self.unsettled.unnamed && default.comparator().timestamp_size() > 0 {
            return timestamp_required(default.name());
        }
        Ok(())
    }

    /// Adds an operation on a column family whose keys have timestamps, with zeroes in its place.
    #[cold]
    pub(super) fn push_without_timestamp(&mut self, family: &ColumnFamily, op: Op<'_>) -> Result<()> {
        let zeroes = vec![0; family.comparator().timestamp_size()];
        if let Op::PutEntity { .. } = op {
            // Compat: RocksDB's batches take entities only where there are no timestamps.
            return timestamp_required(family.name());
        }
        self.push_with_timestamp(family, op, &zeroes)?;
        self.unsettled.placeholders = true;
        Ok(())
    }

    /// The same on the default column family, of which no more is known than how long they are.
    #[cold]
    pub(super) fn push_unnamed_without_timestamp(&mut self, op: Op<'_>) -> Result<()> {
        match op {
            Op::PutEntity { .. } => return timestamp_required("default"),
            Op::DeleteRange { .. } => return no_ranges("default"),
            _ => {}
        }
        let (key, _) = strings(&op);
        let mut stored = key.to_vec();
        stored.resize(key.len() + self.default_timestamp_bytes, 0);
        self.push_whole(None, op.with_key(&stored))?;
        // Why foreign: nothing says that the database it is written to has such timestamps.
        self.unsettled.foreign = true;
        self.unsettled.placeholders = true;
        Ok(())
    }

    fn push_with_timestamp(&mut self, family: &ColumnFamily, op: Op<'_>, timestamp: &[u8]) -> Result<()> {
        if let Op::DeleteRange { .. } = op {
            return no_ranges(family.name());
        }
        check_size(family, timestamp)?;
        let (key, _) = strings(&op);
        let key = [key, timestamp].concat();
        self.push_whole(Some(family), op.with_key(&key))
    }
}

/// Refuses an operation whose key is shorter than its timestamp, and ranges.
fn check_key(cf: ColumnFamilyId, op: &Op<'_>, size: usize) -> Result<()> {
    if let Op::DeleteRange { .. } = op {
        return no_ranges(&cf.to_string());
    }
    let (key, _) = strings(op);
    if key.len() < size {
        let (key, bytes) = (Shown(key), key.len());
        let text = format!(
            "key {key} of column family {cf} has {bytes} bytes; its timestamp alone would have {size}"
        );
        return Err(Error::invalid_argument(text));
    }
    Ok(())
}
