//! Work in the background: deletes expired keys, and drops the elements of dead collections.
//!
//! Expired keys are found in the order of their expiry in the family `expiries`, and deleted under
//! their stripes like any other write. An entry there without a key of that expiry is left from a
//! database that was removed, and is deleted alone.
//!
//! Elements of dead collections go with the compactions that come by themselves. The whole family
//! is compacted only if they are a large part of it, because that costs a rewrite of all the
//! others.

use super::dead::{DeadVersion, Load};
use super::layout::{self, behind, counter, dead_key, expiry_key, split_dead, split_expiry, stored_key};
use super::{Durability, Key, Millis, Store};
use crate::wrong::Wrong;
use futures_util::future::{Either, join, select};
use karstdb::io::{report, sleep, yield_now};
use karstdb::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, ReadOptions, WriteBatch, WriteOptions,
};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of expired keys that one batch deletes.
const AT_ONCE: usize = 64;
/// Longest sleep. The clock of expiries may jump, and snapshots end without a notice.
const LONGEST: Duration = Duration::from_secs(1);
/// Number of dead elements below which the family of elements is not compacted for them.
const FEW_ELEMENTS: u64 = 1000;
/// Part of the family, as its divisor, that dead elements are from which on it is compacted.
const PART: u64 = 4;
/// Number of dead versions from which on it is compacted in any case, because each takes memory.
const MANY_VERSIONS: u64 = 4_000_000;
/// Shortest time between two such compactions.
const COMPACTION_PERIOD: Duration = Duration::from_secs(3600);
/// That time while there are [`MANY_VERSIONS`].
const CROWDED_PERIOD: Duration = Duration::from_secs(60);
/// Number of records of dead versions that one batch deletes.
const FORGOTTEN_AT_ONCE: usize = 1000;

impl Store {
    /// Deletes expired keys and the elements of deleted collections, until
    /// [`end_maintenance`](Self::end_maintenance). One task runs it, to its end, because it
    /// commits. A failure is noted and the work tried again, because a full disk may have room
    /// again.
    pub(crate) async fn maintain(&self) {
        join(self.delete_expired(), self.sweep()).await;
    }

    fn is_closing(&self) -> bool {
        self.0.is_closing.load(Ordering::Acquire)
    }

    /// Waits until the maintenance is to end.
    async fn closing(&self) {
        while !self.is_closing() {
            let wake = self.0.wake.listen();
            if !self.is_closing() {
                wake.await;
            }
        }
    }

    /// Sleeps for a time, or until the maintenance is to end.
    async fn pause(&self, span: Duration) {
        select(pin!(sleep(self.0.db.env(), span)), pin!(self.closing())).await;
    }

    /// Sleeps until `due` may be over, the maintenance is to end, or for [`LONGEST`].
    async fn nap(&self) {
        let wake = self.0.wake.listen();
        let now = self.now();
        let until = self.0.due.load(Ordering::Acquire).saturating_sub(now).max(0).cast_unsigned();
        if until > 0 && !self.is_closing() {
            let span = Duration::from_millis(until).min(LONGEST);
            select(pin!(sleep(self.0.db.env(), span)), wake).await;
        }
    }

    async fn delete_expired(&self) {
        while !self.is_closing() {
            match self.delete_due(self.now()).await {
                Ok(()) => self.nap().await,
                Err(error) => {
                    report!(warn, %error, "expired keys are not deleted");
                    self.pause(LONGEST).await;
                }
            }
        }
    }

    /// Deletes all keys whose expiry has come at `now`, or fewer if the maintenance is to end.
    pub(super) async fn delete_due(&self, now: Millis) -> Result<(), Wrong> {
        // Behind what was deleted, because a walk over that would look at each entry again.
        let mut position: Option<Vec<u8>> = None;
        while !self.is_closing() {
            yield_now().await;
            // No entry is earlier. What is set from here on lowers it again.
            let from = self.0.due.swap(Millis::MAX, Ordering::AcqRel);
            let first = expiry_key(from, &[]).to_vec();
            let begin = position.take().map_or(first.clone(), |position| position.min(first));
            match self.delete_from(&begin, now).await {
                Ok(Some(last)) => position = Some(last),
                Ok(None) => return Ok(()),
                Err(error) => {
                    // The time that the entries not deleted begin with.
                    let left = begin.first_chunk().map_or(0, |at| i64::from_be_bytes(*at));
                    self.0.due.fetch_min(left, Ordering::AcqRel);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Deletes the first keys that are due, from an entry of `expiries` on. Returns the last entry
    /// deleted, or `None` if none was due; then `due` is at most the time of the next one.
    async fn delete_from(&self, begin: &[u8], now: Millis) -> Result<Option<Vec<u8>>, Wrong> {
        let mut due = Vec::with_capacity(AT_ONCE);
        let mut last = None;
        let mut entries = self.0.db.iter_cf(&ReadOptions::new(), &self.0.expiries)?;
        entries.seek_async(begin).await?;
        while entries.valid() && due.len() < AT_ONCE {
            let (at, base, name) = split_expiry(entries.key())?;
            if at > now {
                self.0.due.fetch_min(at, Ordering::AcqRel);
                break;
            }
            due.push((at, base, name.to_vec()));
            last = Some(entries.key().to_vec());
            entries.next_async().await?;
        }
        drop(entries);
        match last {
            // The next call finds the entries again.
            Some(_) if !self.delete_all(&due, now).await? => Ok(Some(begin.to_vec())),
            last => Ok(last),
        }
    }

    /// Deletes the keys of these entries of the family `expiries`, and the entries. Returns false
    /// if the databases were exchanged meanwhile, so that nothing is deleted.
    async fn delete_all(&self, due: &[(Millis, u16, Vec<u8>)], now: Millis) -> Result<bool, Wrong> {
        let mapping = self.0.databases.now();
        let key_of = |(_, base, name): &(Millis, u16, Vec<u8>)| {
            let db = mapping.iter().position(|database| database.base == *base)?;
            Some(Key { db: u16::try_from(db).ok()?, name: name.clone() })
        };
        let keys: Vec<Option<Key>> = due.iter().map(key_of).collect();
        // With one key at least, because a held stripe keeps the mapping as it is.
        let mut locked: Vec<Key> = keys.iter().flatten().cloned().collect();
        locked.push(Key { db: 0, name: Vec::new() });
        // At the time for which the entries were found: they are due whatever the clock says now.
        let mut access = self.change_at(&locked, now).await;
        if !access.mapping().is(&mapping) {
            return Ok(false);
        }
        for ((at, base, name), key) in due.iter().zip(&keys) {
            access.expire(*at, &stored_key(*base, name), key.as_ref()).await?;
        }
        access.commit(Durability::Logged).await?;
        Ok(true)
    }

    async fn sweep(&self) {
        let mut last = None;
        while !self.is_closing() {
            // Read before the oldest snapshot: a snapshot taken later is not older than it.
            let settled = self.0.db.latest_sequence_number();
            // Synced first, because a filter must not act on a deletion that a power failure
            // undoes.
            if self.0.dead.waits()
                && let Err(error) = self.sync().await
            {
                report!(warn, %error, "elements of deleted keys are kept, because the log was not synced");
                self.pause(LONGEST).await;
                continue;
            }
            let oldest = self.0.db.int_property("rocksdb.oldest-snapshot-sequence").filter(|&it| it > 0);
            let load = self.0.dead.release(Some(oldest.map_or(settled, |oldest| oldest.min(settled))));
            let now = self.0.db.env().now();
            // Not after an hour if versions are many, because each takes memory.
            let period = if load.versions >= MANY_VERSIONS { CROWDED_PERIOD } else { COMPACTION_PERIOD };
            let may = last.is_none_or(|last| now.saturating_sub(last) >= period);
            if may && is_worth_a_compaction(load, self.elements()) {
                last = Some(now);
                if let Err(error) = self.drop_dead().await {
                    report!(warn, %error, "elements of deleted keys are not dropped");
                }
            }
            self.pause(LONGEST).await;
        }
    }

    /// Returns about the number of elements of all collections, dead ones among them.
    fn elements(&self) -> u64 {
        let estimate = self.0.db.int_property_cf(&self.0.elements, "rocksdb.estimate-num-keys");
        estimate.unwrap_or(u64::MAX)
    }

    /// Compacts all elements, and forgets the versions that were dead before. Does neither if the
    /// maintenance is to end.
    pub(super) async fn drop_dead(&self) -> karstdb::Result<()> {
        let compacted = self.0.dead.begin();
        // A compaction that has begun before drops fewer, and may put others into a table that the
        // one to come does not read any more.
        while compacted.is_filtered_by_fewer() && !self.is_closing() {
            self.pause(LONGEST / 100).await;
        }
        let options = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            ..CompactRangeOptions::default()
        };
        let compaction = pin!(self.0.db.compact_range_cf_async(&options, &self.0.elements, None, None));
        match select(compaction, pin!(self.closing())).await {
            Either::Left((ended, _)) => ended?,
            Either::Right(_) => return Ok(()),
        }
        let versions: Vec<u64> = compacted.versions().collect();
        for versions in versions.chunks(FORGOTTEN_AT_ONCE) {
            let mut batch = WriteBatch::new();
            for &version in versions {
                batch.delete_cf(&self.0.server, dead_key(version))?;
            }
            self.0.db.write_async(&WriteOptions::new(), &batch).await?;
        }
        self.0.dead.forget();
        Ok(())
    }
}

/// Returns true if the dead elements are many enough for a compaction of the family, which has
/// about `elements`.
fn is_worth_a_compaction(dead: Load, elements: u64) -> bool {
    dead.elements >= FEW_ELEMENTS && dead.elements >= elements / PART || dead.versions >= MANY_VERSIONS
}

/// Reads the dead versions of an earlier opening.
pub(super) async fn dead_versions(db: &Db, server: &ColumnFamily) -> karstdb::Result<Vec<DeadVersion>> {
    let options = ReadOptions { iterate_upper_bound: behind(layout::DEAD), ..ReadOptions::new() };
    let mut records = db.iter_cf(&options, server)?;
    records.seek_async(layout::DEAD).await?;
    let mut versions = Vec::new();
    while records.valid() {
        let elements = counter(records.key(), records.value())?;
        versions.push(DeadVersion { version: split_dead(records.key())?, elements });
        records.next_async().await?;
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_is_for_many_dead_elements() {
        let is_worth = |versions, elements, all| is_worth_a_compaction(Load { versions, elements }, all);
        assert!(is_worth(1, 250_000, 1_000_000) && !is_worth(20_000, 249_999, 1_000_000));
        assert!(!is_worth(10, 999, 1000) && is_worth(MANY_VERSIONS, MANY_VERSIONS, u64::MAX));
    }
}
