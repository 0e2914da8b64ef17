//! Keys with user-defined timestamps in batches.
//!
//! Operations on column families with timestamps are added with a timestamp, or with zeroes as a
//! placeholder that `update_timestamps` replaces. Keys are logged and stored with the timestamp at
//! their end. Checks before a write refuse batches whose timestamps are missing or too short.
//!
//! The checks depend on the origin of an operation. One that names a column family has its
//! comparator. One that names none is on the default column family of the database the batch is
//! written to, and its key has no timestamp. Keys of a decoded batch can only be checked for their
//! minimum length.

use super::{WriteBatch, strings};
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_format::ids::ColumnFamilyId;
use karst_format::log::TimestampSize;
use karst_format::write_batch::{self, Op};
use karst_storage::column_family::{ColumnFamily, Family};
use std::sync::Arc;

/// Properties of a batch that need a check before it is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsettled {
    /// Some keys have zeroes in place of their timestamps.
    pub(super) placeholders: bool,
    /// Some operations are on the default column family without naming it.
    pub(super) unnamed: bool,
    /// Some operations were decoded from bytes.
    pub(super) foreign: bool,
}

/// Returns the error for a key that needs a timestamp and has none.
///
/// # Errors
/// Always.
#[cold]
pub fn timestamp_required<T>(family: &str) -> Result<T> {
    let family = Named(family);
    Err(Error::invalid_argument(format!("a timestamp is required in column family {family:?}")))
}

/// Returns the error for the removal of a range where keys have timestamps.
///
/// # Errors
/// Always.
#[cold]
fn no_ranges<T>(family: &str) -> Result<T> {
    let family = Named(family);
    let text = format!("removing a range in column family {family:?}, whose keys have timestamps");
    Err(Error::not_supported(text))
}

/// Refuses a timestamp whose length differs from the column family's.
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
    /// Sets a key at a timestamp, in a column family with timestamps.
    ///
    /// # Errors
    /// Those of [`put_cf`](Self::put_cf); the column family has no timestamps, or timestamps of
    /// another size.
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

    /// Removes a key at a timestamp, in a column family with timestamps; reads at earlier
    /// timestamps still find it.
    ///
    /// # Errors
    /// Those of [`put_cf_with_ts`](Self::put_cf_with_ts).
    pub fn delete_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::Delete { cf: family.0.id(), key: key.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// Removes a key that was put at most once since it was last removed, at a timestamp.
    ///
    /// # Errors
    /// Those of [`put_cf_with_ts`](Self::put_cf_with_ts).
    pub fn single_delete_cf_with_ts(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        let op = Op::SingleDelete { cf: family.0.id(), key: key.as_ref() };
        self.push_with_timestamp(family, op, timestamp.as_ref())
    }

    /// Adds a merge operand to a key at a timestamp, in a column family with timestamps.
    ///
    /// # Errors
    /// Those of [`put_cf_with_ts`](Self::put_cf_with_ts).
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

    /// Returns true if keys were added without the timestamp that they need:
    /// [`update_timestamps`](Self::update_timestamps) must be called before the batch is written.
    pub fn needs_timestamps(&self) -> bool {
        self.unsettled.placeholders
    }

    /// Sets the timestamp of all keys in column families with timestamps, replacing any earlier
    /// one. `timestamp_size` returns the size in bytes of a column family's timestamps by id: 0 if
    /// it has none, `None` if the family is not known.
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
        // Verified first, because the checksums are computed anew below.
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
        // Invariant: the lengths in the encoding have not changed.
        self.records = write_batch::WriteBatch::from_bytes(bytes).expect("a batch decodes");
        if self.protection.is_some() {
            self.protection = Some(self.iter().map(|op| super::protection_of(&op)).collect());
        }
        self.unsettled.placeholders = false;
        self.save_points.iter_mut().for_each(|point| point.unsettled.placeholders = false);
        Ok(())
    }

    /// Returns the timestamp sizes that a log must name for the column families that the batch
    /// touches. `family` looks up open ones.
    ///
    /// # Errors
    /// A timestamp size exceeds the log's limit of `u16::MAX`.
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

    /// Refuses a batch whose timestamps are not ready to be written to a database with this default
    /// column family. `family` looks up open ones; operations on others are not checked.
    ///
    /// # Errors
    /// `InvalidArgument`: timestamps are missing, or keys are shorter than them. `NotSupported`: a
    /// range of keys with timestamps.
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

    /// Checks a batch that is only logged now, and whose timestamps may be set at commit; see
    /// [`check_timestamps`](Self::check_timestamps).
    ///
    /// # Errors
    /// Those of [`check_timestamps`](Self::check_timestamps), except for keys with a placeholder in
    /// place of a timestamp.
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

    /// Adds an operation on a column family with timestamps, with zeroes in place of the timestamp.
    #[cold]
    pub(super) fn push_without_timestamp(&mut self, family: &ColumnFamily, op: Op<'_>) -> Result<()> {
        let zeroes = vec![0; family.comparator().timestamp_size()];
        if let Op::PutEntity { .. } = op {
            // Compat: RocksDB's batches take entities only in families without timestamps.
            return timestamp_required(family.name());
        }
        self.push_with_timestamp(family, op, &zeroes)?;
        self.unsettled.placeholders = true;
        Ok(())
    }

    /// Adds an operation on the default column family, of whose timestamps only the size is known,
    /// with zeroes in place of the timestamp.
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
        // Marked as foreign, because the database it is written to may have other timestamps.
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

/// Refuses ranges, and an operation whose key is shorter than its timestamp.
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
