//! Work in the background: deletes expired keys, and drops the elements of dead collections.
//!
//! Expired keys are found in the order of their expiry in the family `expiries`, and deleted under
//! their stripes like any other write. An entry there without a key of that expiry is left from a
//! database that was removed, and is deleted alone. So it is with fields of hashes, in `fields`.
//!
//! Elements of dead collections go with the compactions that come by themselves. The whole family
//! is compacted only if they are a large part of it, because that costs a rewrite of all the
//! others.

use super::dead::{DeadVersion, Load};
use super::layout::{
    self, behind, counter, dead_key, expiry_key, named_key, split_dead, split_expiry, split_field, stored_key,
};
use super::{Durability, Expiring, Key, Millis, Store};
use crate::wrong::Wrong;
use futures_util::future::{Either, join, select};
use karstdb::io::{report, sleep, yield_now};
use karstdb::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, ReadOptions, Value, WriteBatch,
    WriteOptions,
};
use std::collections::BTreeMap;
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

    /// Sleeps until something may be due, the maintenance is to end, or for [`LONGEST`].
    async fn nap(&self) {
        let wake = self.0.wake.listen();
        let now = self.now();
        let earliest = self.0.due.iter().map(|due| due.load(Ordering::Acquire)).min();
        let until = earliest.unwrap_or(Millis::MAX).saturating_sub(now).max(0).cast_unsigned();
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

    /// Deletes all keys and fields whose expiry has come at `now`, or fewer if the maintenance is
    /// to end.
    pub(super) async fn delete_due(&self, now: Millis) -> Result<(), Wrong> {
        self.delete_due_of(Expiring::Keys, now).await?;
        self.delete_due_of(Expiring::Fields, now).await
    }

    async fn delete_due_of(&self, of: Expiring, now: Millis) -> Result<(), Wrong> {
        let earliest = &self.0.due[of as usize];
        // Behind what was deleted, because a walk over that would look at each entry again.
        let mut position: Option<Vec<u8>> = None;
        while !self.is_closing() {
            yield_now().await;
            // No entry is earlier. What is set from here on lowers it again.
            let from = earliest.swap(Millis::MAX, Ordering::AcqRel);
            let first = expiry_key(from, &[]).to_vec();
            let begin = position.take().map_or(first.clone(), |position| position.min(first));
            match self.delete_from(of, &begin, now).await {
                Ok(Some(last)) => position = Some(last),
                Ok(None) => return Ok(()),
                Err(error) => {
                    // The time that the entries not deleted begin with.
                    let left = begin.first_chunk().map_or(0, |at| i64::from_be_bytes(*at));
                    earliest.fetch_min(left, Ordering::AcqRel);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Deletes the first keys or fields that are due, from an entry of their family on. Returns the
    /// last entry deleted, or `None` if none was due; then `due` is at most the time of the next
    /// one.
    async fn delete_from(&self, of: Expiring, begin: &[u8], now: Millis) -> Result<Option<Vec<u8>>, Wrong> {
        let mut due: Vec<Vec<u8>> = Vec::with_capacity(AT_ONCE);
        let family = match of {
            Expiring::Keys => &self.0.expiries,
            Expiring::Fields => &self.0.fields,
        };
        let mut entries = self.0.db.iter_cf(&ReadOptions::new(), family)?;
        entries.seek_async(begin).await?;
        while entries.valid() && due.len() < AT_ONCE {
            let at = match of {
                Expiring::Keys => split_expiry(entries.key())?.0,
                Expiring::Fields => split_field(entries.key())?.0,
            };
            if at > now {
                self.0.due[of as usize].fetch_min(at, Ordering::AcqRel);
                break;
            }
            due.push(entries.key().to_vec());
            entries.next_async().await?;
        }
        drop(entries);
        if due.is_empty() {
            return Ok(None);
        }
        let are_deleted = match of {
            Expiring::Keys => self.delete_keys(&due, now).await?,
            Expiring::Fields => self.delete_fields(&due, now).await?,
        };
        // Otherwise the next call finds the entries again.
        Ok(if are_deleted { due.pop() } else { Some(begin.to_vec()) })
    }

    /// Deletes the keys of these entries of the family `expiries`, and the entries. Returns false
    /// if the databases were exchanged meanwhile, so that nothing is deleted.
    async fn delete_keys(&self, due: &[Vec<u8>], now: Millis) -> Result<bool, Wrong> {
        let mapping = self.0.databases.now();
        let due: Vec<_> = due.iter().map(|entry| split_expiry(entry)).collect::<karstdb::Result<_>>()?;
        let keys: Vec<Option<Key>> = due.iter().map(|(_, base, name)| mapping.key_of(*base, name)).collect();
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

    /// Deletes the fields of these entries of the family `fields`, and the entries. Returns false
    /// if a hash got another name meanwhile, so that nothing is deleted.
    async fn delete_fields(&self, due: &[Vec<u8>], now: Millis) -> Result<bool, Wrong> {
        let mapping = self.0.databases.now();
        let due: Vec<_> = due.iter().map(|entry| split_field(entry)).collect::<karstdb::Result<_>>()?;
        let mut versions: Vec<u64> = due.iter().map(|(_, version, _)| *version).collect();
        versions.dedup();
        let names = self.names_of(&versions).await?;
        let key_of = |(version, name): (&u64, &Option<Value>)| {
            Some((*version, mapping.key_of(layout::base_of(*version), name.as_ref()?)?))
        };
        let keys: BTreeMap<u64, Key> = versions.iter().zip(&names).filter_map(key_of).collect();
        // With one key at least, because a held stripe keeps the mapping as it is.
        let mut locked: Vec<Key> = keys.values().cloned().collect();
        locked.push(Key { db: 0, name: Vec::new() });
        let mut access = self.change_at(&locked, now).await;
        // A version without a name has none later, and a name that is the same is the hash's.
        if !access.mapping().is(&mapping) || self.names_of(&versions).await? != names {
            return Ok(false);
        }
        for entry in due {
            access.expire_field(entry, keys.get(&entry.1)).await?;
        }
        access.commit(Durability::Logged).await?;
        Ok(true)
    }

    /// Reads the names of hashes whose fields may expire, by their versions.
    async fn names_of(&self, versions: &[u64]) -> karstdb::Result<Vec<Option<Value>>> {
        let keys: Vec<_> = versions.iter().map(|version| named_key(*version)).collect();
        self.0.db.multi_get_cf_async(&ReadOptions::new(), &self.0.server, &keys).await.into_iter().collect()
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

    /// Compacts all elements and all entries of fields, and forgets the versions that were dead
    /// before. Does neither if the maintenance is to end.
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
        for family in [&self.0.elements, &self.0.fields] {
            let compaction = pin!(self.0.db.compact_range_cf_async(&options, family, None, None));
            match select(compaction, pin!(self.closing())).await {
                Either::Left((ended, _)) => ended?,
                Either::Right(_) => return Ok(()),
            }
        }
        let versions: Vec<u64> = compacted.versions().collect();
        for versions in versions.chunks(FORGOTTEN_AT_ONCE) {
            let mut batch = WriteBatch::new();
            for &version in versions {
                batch.delete_cf(&self.0.server, dead_key(version))?;
            }
            self.0.db.write_async(&WriteOptions::new(), &batch).await?;
            // A short write does not wait.
            yield_now().await;
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
