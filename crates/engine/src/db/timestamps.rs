//! User-defined timestamps: reads that return them, and the retained history.
//!
//! In: keys, and in the options the timestamp to read at. Out: values with the timestamps that they
//! were written with. A column family has timestamps if its comparator has
//! ([`Comparator::timestamp_size`](karst_format::comparator::Comparator::timestamp_size)); the tree
//! stores each key followed by its timestamp, and user keys without one get the greatest timestamp,
//! which sorts before all others of the key.
//!
//! Invariant: a reader first pins a tree and then compares its timestamp with
//! `full_history_ts_low`, so no version that it needs was dropped from the pinned tree.

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
    /// Returns the value of `key` in a column family, as of the options' timestamp, and the
    /// timestamp that it was written with. Blocks the calling thread while it reads files.
    ///
    /// # Errors
    /// Those of [`Db::get_cf`]; `InvalidArgument`: the column family has no timestamps.
    pub fn get_cf_with_ts(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Timestamp)>> {
        self.get_with_ts_blocking(options, family, key.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
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
    /// Those of [`Db::get_cf_with_ts`].
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

    /// Returns the values of `keys` in a column family, with timestamps as in
    /// [`Db::get_cf_with_ts`], in the order of the keys. Blocks are read concurrently, as in
    /// [`Db::multi_get`]; waits on the calling thread.
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

    /// Returns the timestamp before which a column family keeps only the newest entry of each key;
    /// `None` if all history is kept.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, or belongs to another database.
    pub fn full_history_ts_low(&self, family: &ColumnFamily) -> Result<Option<Vec<u8>>> {
        Ok(history_of(self.family(family)?)?.full_history_ts_low())
    }

    /// Discards a column family's history before `timestamp`: compactions may drop entries before
    /// it that a later entry before it hides, and reads at earlier timestamps are refused from now
    /// on. The limit is in the MANIFEST when this returns. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, the timestamp is not of their size,
    /// or is before the current limit. The database is open for reading only or closed, or the
    /// MANIFEST could not be written.
    pub fn increase_full_history_ts_low(
        &self,
        family: &ColumnFamily,
        timestamp: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.increase_ts_low_blocking(family, timestamp.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn increase_ts_low_blocking(&self, family: &ColumnFamily, timestamp: &[u8]) -> Result<()> {
        karst_io::block_on(self.env(), self.increase_full_history_ts_low_async(family, timestamp))
    }

    /// The asynchronous form of [`Db::increase_full_history_ts_low`].
    ///
    /// # Errors
    /// Those of [`Db::increase_full_history_ts_low`].
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
        // Of two concurrent calls, the later timestamp wins.
        refuse_earlier()
    }

    /// Returns an error unless the options have a timestamp exactly if the family does, and one
    /// that is readable. The tree must be pinned before.
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
        // Compat: an iteration may begin before it (`iter_start_ts`), and shows the remaining
        // history.
        check_kept(family, timestamp)
    }
}

/// Returns an error if `timestamp` is below `full_history_ts_low` of the family. The caller has
/// pinned the tree that it reads.
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

/// Returns a user's key or bound in the form that the tree stores: before all of the key's entries.
pub(super) fn stored<'k>(family: &Family, bare: &'k [u8]) -> Cow<'k, [u8]> {
    match family.history() {
        None => Cow::Borrowed(bare),
        Some(_) => Cow::Owned(family.config.comparator.with_greatest_timestamp(bare)),
    }
}

/// Returns the history state of a family with timestamps.
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
