//! User-defined timestamps: reads that tell them, and the history that is kept.
//!
//! In: keys, and in the options the timestamp to read at. Out: values with the timestamps that they
//! were written with. A column family has timestamps if its comparator has
//! ([`Comparator::timestamp_size`](karst_format::comparator::Comparator::timestamp_size)); the tree
//! stores each key with the timestamp behind it, and whatever comes from a user without one gets
//! the greatest there is, which sorts before all others of the key.
//!
//! Invariant: whoever reads has pinned a tree first and compares its timestamp with
//! `full_history_ts_low` then, so nothing that it needs was collected in what it has pinned.

use super::Db;
use crate::read::sought_key::Timestamp;
use crate::read::{get, multi_get};
use crate::versions::Change;
use karst_base::error::{Error, Named, Result, Shown};
use karst_base::options::ReadOptions;
use karst_format::version_edit::VersionEdit;
use karst_storage::column_family::{ColumnFamily, Family, History};
use karst_storage::value::Value;
use std::borrow::Cow;

impl Db {
    /// The value of `key` in a column family, as of the options' timestamp, and the timestamp that
    /// it was written with. Waits on the calling thread if it has to read.
    ///
    /// # Errors
    /// As [`Db::get_cf`]; `InvalidArgument`: the column family has no timestamps.
    pub fn get_cf_with_ts(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Timestamp)>> {
        self.get_with_ts_blocking(options, family, key.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` gives.
    fn get_with_ts_blocking(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> Result<Option<(Value, Timestamp)>> {
        karst_io::block_on(self.env(), self.get_cf_with_ts_async(options, family, key))
    }

    /// The asynchronous form of [`Db::get_cf_with_ts`].
    ///
    /// # Errors
    /// As [`Db::get_cf_with_ts`].
    pub async fn get_cf_with_ts_async(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Timestamp)>> {
        history_of(self.family(family)?)?;
        let (family, superversion, at) = {
            let (family, superversion, at) = self.view(options, family)?;
            (family, superversion.clone(), at.kept())
        };
        if let Some(gate) = self.gate(at.seq) {
            gate.await;
        }
        get::get_with_timestamp(&family.tables, &superversion, options, &at, key.as_ref()).await
    }

    /// The values of `keys` in a column family, as [`Db::get_cf_with_ts`] tells them, in the order
    /// of the keys. What has to be read is read at the same time, as in [`Db::multi_get`]; waits on
    /// the calling thread.
    pub fn multi_get_cf_with_ts<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<(Value, Timestamp)>>> {
        let viewed =
            self.family(family).and_then(|of| history_of(of)).and_then(|_| self.view(options, family));
        let (family, superversion, at) = match viewed {
            Ok(viewed) => viewed,
            Err(e) => return keys.iter().map(|_| Err(e.clone())).collect(),
        };
        self.wait_until_readable(at.seq);
        let one = multi_get::One(&family.tables, &superversion);
        let (values, timestamps) = multi_get::multi_get_with_timestamps(&one, options, &at, keys);
        let with = |value: Option<Value>, timestamp: Option<Timestamp>| {
            value.map(|value| (value, timestamp.unwrap_or_default()))
        };
        values.into_iter().zip(timestamps).map(|(value, at)| Ok(with(value?, at))).collect()
    }

    /// The timestamp before which a column family keeps no more than the newest entry of each key;
    /// `None` if all history is kept.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, or is of another database.
    pub fn full_history_ts_low(&self, family: &ColumnFamily) -> Result<Option<Vec<u8>>> {
        Ok(history_of(self.family(family)?)?.full_history_ts_low())
    }

    /// Has a column family keep no history before `timestamp`: compactions may drop entries before
    /// it that a later entry before it hides, and reads at earlier timestamps are refused from now
    /// on. It is in the MANIFEST when this returns. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, the timestamp is not of their size,
    /// or history was given up further than that. The database is open for reading only or closed,
    /// or the MANIFEST could not be written.
    pub fn increase_full_history_ts_low(
        &self,
        family: &ColumnFamily,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.increase_ts_low_blocking(family, timestamp.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` gives.
    fn increase_ts_low_blocking(&self, family: &ColumnFamily, timestamp: &[u8]) -> Result<()> {
        karst_io::block_on(self.env(), self.increase_full_history_ts_low_async(family, timestamp))
    }

    /// The asynchronous form of [`Db::increase_full_history_ts_low`].
    ///
    /// # Errors
    /// As [`Db::increase_full_history_ts_low`].
    pub async fn increase_full_history_ts_low_async(
        &self,
        family: &ColumnFamily,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        let family = self.family(family)?;
        let (write, history) = (self.write_half()?, history_of(family)?);
        let timestamp = timestamp.as_ref();
        check_size(family, timestamp)?;
        let comparator = &family.config.comparator;
        let refuse_earlier = || match history.full_history_ts_low() {
            Some(low) if comparator.compare_timestamps(timestamp, &low).is_lt() => {
                Err(Error::invalid_argument(format!(
                    "column family {:?}: full_history_ts_low is {} already, and cannot become {}",
                    Named(&family.config.name),
                    Shown(&low),
                    Shown(timestamp)
                )))
            }
            _ => Ok(()),
        };
        refuse_earlier()?;
        let edit = VersionEdit {
            column_family: family.id(),
            full_history_ts_low: Some(timestamp.to_vec()),
            ..VersionEdit::default()
        };
        write.ownership.versions.install(Change::edit(edit)).await?;
        // Of two calls that come at the same time, the later timestamp stays.
        refuse_earlier()
    }

    /// Whether the options have a timestamp just if the family has them, and one that can be read
    /// at. The tree that is read was pinned before.
    #[inline]
    pub(super) fn check_timestamps(options: &ReadOptions, family: &Family) -> Result<()> {
        match family.history() {
            None if options.timestamp.is_none() => Ok(()),
            _ => Self::check_timestamp(options, family),
        }
    }

    #[cold]
    fn check_timestamp(options: &ReadOptions, family: &Family) -> Result<()> {
        if family.history().is_none() {
            return Err(Error::invalid_argument(format!(
                "column family {:?} has no timestamps to read at",
                Named(&family.config.name)
            )));
        }
        let Some(timestamp) = &options.timestamp else {
            return Err(Error::invalid_argument(format!(
                "column family {:?} has timestamps, and is read at one (ReadOptions::timestamp)",
                Named(&family.config.name)
            )));
        };
        check_size(family, timestamp)?;
        options.iter_start_ts.iter().try_for_each(|start| check_size(family, start))?;
        // Compat: an iteration may begin before it (`iter_start_ts`), and is shown what is left.
        check_kept(family, timestamp)
    }
}

/// Refuses a timestamp from before what the family's history is kept of. The tree that is read was
/// pinned before.
pub(super) fn check_kept(family: &Family, timestamp: &[u8]) -> Result<()> {
    match family.history().and_then(History::full_history_ts_low) {
        Some(low) if family.config.comparator.compare_timestamps(timestamp, &low).is_lt() => {
            Err(Error::invalid_argument(format!(
                "column family {:?} is read at the timestamp {}, and keeps no history before {} (full_history_ts_low)",
                Named(&family.config.name),
                Shown(timestamp),
                Shown(&low)
            )))
        }
        _ => Ok(()),
    }
}

/// A key or a bound as a user says it, as the tree has it: before all of the key's entries.
pub(super) fn stored<'k>(family: &Family, bare: &'k [u8]) -> Cow<'k, [u8]> {
    match family.history() {
        None => Cow::Borrowed(bare),
        Some(_) => Cow::Owned(family.config.comparator.with_greatest_timestamp(bare)),
    }
}

/// What a family has of the past.
fn history_of(family: &Family) -> Result<&History> {
    family.history().ok_or_else(|| {
        Error::invalid_argument(format!("column family {:?} has no timestamps", Named(&family.config.name)))
    })
}

pub(super) fn check_size(family: &Family, timestamp: &[u8]) -> Result<()> {
    let bytes = family.config.comparator.timestamp_size();
    if timestamp.len() == bytes {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a timestamp of {} bytes; those of column family {:?} have {bytes}",
        timestamp.len(),
        Named(&family.config.name)
    )))
}
