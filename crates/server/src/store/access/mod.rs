//! The reads and writes of one command, or of one EXEC.
//!
//! In: keys and values of the protocol. Out: values, and one batch at the commit. This file has
//! what all types share: reads of KarstDB, the record of a key, the commit.
//!
//! Invariants:
//! - A call that refuses, for a type or for an argument, has written nothing. One that fails
//!   because the store does ([`Wrong::is_of_store`]) may have written a part, so the access is
//!   abandoned.
//! - The batch keeps the key's record, its entry in `expiries`, the size of its database and the
//!   dead versions equal: [`Access::write_head`] and [`Access::unlink`] are the only writers of
//!   records.

mod collections;
mod deliveries;
mod events;
mod fields;
mod groups;
mod keys;
mod lists;
mod scan;
mod streams;
mod strings;
mod walk;
mod zsets;

pub(crate) use deliveries::Claim;
pub(crate) use fields::FieldChange;
pub(crate) use groups::OpenGroup;
pub(crate) use streams::{OpenStream, StreamEntry};
pub(crate) use strings::Lifetime;
pub(crate) use walk::Side;
pub(crate) use zsets::{ScoreRule, Scored, SortedRange, score_of};

use super::databases::{Database, Mapping};
use super::dead::DeadVersion;
use super::events::{Classes, KeyEvent, News};
use super::layout::{self, Collection, Head, stored_key};
use super::locks::Guards;
use super::{Durability, Expiring, Key, Kind, Millis, Served, Store, Waiter};
use crate::wrong::Wrong;
use karstdb::{ColumnFamily, ReadOptions, Value, WriteBatchWithIndex, WriteOptions};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The reads and writes of one command, or of one EXEC. Its own writes are seen by its reads at
/// once, and by others after [`commit`](Self::commit); dropped without it they never were. A key
/// whose expiry has come is absent.
///
/// Calls that refuse, such as with `WRONGTYPE`, have written nothing. After an error of the store
/// ([`Wrong::is_of_store`]) the access is dropped or [abandoned](Self::abandon). Calls that write
/// need [`Store::change`] with the keys that they write, or [`Store::change_all`]; on a view they
/// fail.
pub(crate) struct Access {
    store: Store,
    now: Millis,
    mapping: Mapping,
    /// Options of the reads of a view once it has a snapshot.
    snapshot: OnceLock<ReadOptions>,
    /// Options of all other reads.
    newest: ReadOptions,
    /// `None` in a view.
    changes: Option<Changes>,
    /// Hash of the last key that a view has looked for: a command that looks twice is counted once.
    counted: AtomicU64,
    /// Number of the client whose commands it carries out; 0: none.
    writer: u64,
    /// Events of lookups of a view.
    misses: Mutex<Vec<KeyEvent>>,
}

/// Writes that are not committed, and what they change beside the database.
struct Changes {
    batch: WriteBatchWithIndex,
    /// Keys added to each base, less those removed.
    growth: BTreeMap<u16, i64>,
    touched: Vec<Key>,
    /// Keys of streams that have expired, whose waiters are woken too.
    gone: Vec<Key>,
    dead: Vec<DeadVersion>,
    /// Databases that lost all their keys, by their number and what they were.
    flushed: Vec<(u16, Arc<Database>)>,
    swapped: bool,
    /// True if FLUSHALL or FLUSHDB has run, also where there was nothing to remove.
    is_flush: bool,
    /// Expired keys that were removed.
    expired: Vec<Key>,
    /// Events that the commit tells the observer.
    events: Vec<KeyEvent>,
    /// The earliest expiries of keys and of fields that were set.
    due: [Millis; 2],
    /// The waiters that the commits so far have signalled.
    served: Served,
    /// The locks on the keys, until the access is dropped.
    _guards: Guards,
}

impl Changes {
    /// Forgets the writes, and keeps the locks.
    fn clear(&mut self) {
        self.batch.clear();
        self.growth.clear();
        self.touched.clear();
        self.gone.clear();
        self.dead.clear();
        self.flushed.clear();
        self.expired.clear();
        self.events.clear();
        (self.swapped, self.is_flush, self.due) = (false, false, [Millis::MAX; 2]);
    }
}

/// The record of a key as it is stored.
struct Record {
    head: Head,
    value: Value,
}

impl Access {
    pub(super) fn new(store: &Store, now: Millis, guards: Option<Guards>) -> Access {
        let changes = guards.map(|guards| Changes {
            batch: WriteBatchWithIndex::new(&store.0.db, true),
            growth: BTreeMap::new(),
            touched: Vec::new(),
            gone: Vec::new(),
            dead: Vec::new(),
            flushed: Vec::new(),
            swapped: false,
            is_flush: false,
            expired: Vec::new(),
            events: Vec::new(),
            due: [Millis::MAX; 2],
            served: Served::default(),
            _guards: guards,
        });
        // The mapping is read under the locks, and stays as it is until they are released.
        let mapping = store.0.databases.now();
        let store = store.clone();
        Access {
            store,
            now,
            mapping,
            snapshot: OnceLock::new(),
            newest: ReadOptions::new(),
            changes,
            counted: AtomicU64::new(0),
            writer: 0,
            misses: Mutex::default(),
        }
    }

    /// Returns the time at which the access sees expiries.
    pub(crate) fn now(&self) -> Millis {
        self.now
    }

    /// Returns the databases as the access sees them.
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the number of keys of a database, with the writes of this access.
    pub(crate) fn size(&self, db: u16) -> u64 {
        let database = &self.mapping[usize::from(db)];
        let growth = self.changes.as_ref().and_then(|changes| changes.growth.get(&database.base));
        (database.size() + growth.copied().unwrap_or(0)).max(0).cast_unsigned()
    }

    /// [`size`](Self::size); of a view that is pinned as of its snapshot.
    pub(crate) async fn size_seen(&self, db: u16) -> Result<u64, Wrong> {
        if self.changes.is_some() || self.snapshot.get().is_none() {
            return Ok(self.size(db));
        }
        let key = layout::size_key(self.base(db));
        let size = self.get(&self.store.0.server, &key).await?;
        let size = size.map_or(Ok(0), |size| layout::counter(&key, &size))?;
        Ok(size.cast_signed().max(0).cast_unsigned())
    }

    /// Returns the bytes of the writes that are not committed.
    pub(crate) fn pending(&self) -> usize {
        self.changes.as_ref().map_or(0, |changes| changes.batch.data_size())
    }

    /// Forgets all writes since the last commit. The access can go on, with its keys still locked.
    pub(crate) fn abandon(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.clear();
            self.mapping = self.store.0.databases.now();
        }
    }

    /// Takes the last place in the queues of keys that it has locked. A waiter that `reads` is
    /// woken by removals too.
    pub(crate) fn wait_for(&self, keys: &[Key], reads: bool) -> Waiter {
        Waiter::new(&self.store, keys, reads)
    }

    /// Returns those of the keys, which it has locked, of which no waiter that came before is about
    /// to take something.
    pub(crate) fn unclaimed(&self, keys: &[Key]) -> Vec<Key> {
        self.store.0.waiters.unclaimed(keys)
    }

    /// Returns true if a client waits for one of the keys, which it has locked.
    pub(crate) fn are_awaited(&self, keys: &[Key]) -> bool {
        self.store.0.waiters.have_any(keys)
    }

    /// Unlocks the keys. Returns the waiters that its commits have signalled.
    pub(crate) fn unlock(self) -> Served {
        self.changes.map_or_else(Served::default, |changes| changes.served)
    }

    /// Makes the writes visible, and as durable as asked for. Without writes it returns at once.
    /// The access can go on afterwards, with its keys still locked.
    ///
    /// The future must be run to its end: the database finishes a write whose future is dropped,
    /// but the keys would be unlocked before, and the sizes in memory would not follow until the
    /// store is opened again.
    ///
    /// # Errors
    /// The write was refused or failed. All writes of the access are gone.
    pub(crate) async fn commit(&mut self, durability: Durability) -> Result<(), Wrong> {
        let committed = self.try_commit(durability).await;
        if committed.is_err() {
            self.abandon();
        }
        Ok(committed?)
    }

    async fn try_commit(&mut self, durability: Durability) -> karstdb::Result<()> {
        let Some(changes) = &mut self.changes else {
            self.tell_misses().await;
            return Ok(());
        };
        let inner = &self.store.0;
        let is_flushed = |base: u16| changes.flushed.iter().any(|(_, database)| database.base == base);
        for (&base, &keys) in changes.growth.iter().filter(|(base, keys)| **keys != 0 && !is_flushed(**base))
        {
            changes.batch.merge_cf(&inner.server, layout::size_key(base), keys.to_le_bytes())?;
        }
        for dead in &changes.dead {
            let count = dead.elements.to_le_bytes();
            changes.batch.put_cf(&inner.server, layout::dead_key(dead.version), count)?;
        }
        let remapped = changes.swapped || !changes.flushed.is_empty();
        if remapped {
            let bases = layout::bases_value(self.mapping.iter().map(|database| database.base));
            changes.batch.put_cf(&inner.server, layout::BASES, bases)?;
        }
        if changes.batch.is_empty() {
            // A command may have events although it changes nothing, such as LTRIM of a whole list.
            let (events, is_flush) = (&changes.events[..], changes.is_flush);
            inner.observed.tell(News { events, is_flush, writer: self.writer, ..News::default() }).await;
            changes.clear();
            return Ok(());
        }
        let options = WriteOptions { sync: durability == Durability::Synced, ..WriteOptions::new() };
        if remapped {
            let mut batch = changes.batch.write_batch().clone();
            for (_, database) in &changes.flushed {
                // No base is 65535.
                let (first, behind) = (database.base.to_be_bytes(), (database.base + 1).to_be_bytes());
                batch.delete_range_cf(inner.db.default_column_family(), first, behind)?;
                batch.delete_range_cf(&inner.elements, first, behind)?;
                batch.delete_cf(&inner.server, layout::size_key(database.base))?;
                let (first, behind) = layout::names_of(database.base);
                batch.delete_range_cf(&inner.server, first, behind)?;
            }
            inner.databases.freeze(&inner.db);
            inner.db.write_async(&options, &batch).await.inspect_err(|_| inner.databases.thaw())?;
        } else {
            inner.db.write_async(&options, changes.batch.write_batch()).await?;
        }
        for database in self.mapping.iter().filter(|database| !is_flushed(database.base)) {
            if let Some(&keys) = changes.growth.get(&database.base) {
                database.grow(keys);
            }
        }
        if remapped {
            let removed: Vec<_> = changes.flushed.iter().map(|(_, database)| database.clone()).collect();
            inner.databases.set(self.mapping.clone(), &removed);
        }
        if !changes.dead.is_empty() {
            inner.dead.add(changes.dead.iter().copied(), inner.db.latest_sequence_number());
        }
        for (db, _) in &changes.flushed {
            inner.locks.remove_all(*db);
            changes.gone.extend(inner.waiters.keys_in(*db));
        }
        for key in &changes.touched {
            inner.locks.touch(key);
        }
        changes.served.add(inner.waiters.signal(changes.touched.iter().chain(&changes.gone)));
        inner.counts.note_expired(changes.expired.len() as u64);
        for of in [Expiring::Keys, Expiring::Fields] {
            let at = changes.due[of as usize];
            if at < Millis::MAX {
                self.store.due_at(of, at);
            }
        }
        let news = News {
            events: &changes.events,
            changed: [&changes.touched, &changes.expired],
            is_flush: changes.is_flush || remapped,
            writer: self.writer,
        };
        inner.observed.tell(news).await;
        changes.clear();
        Ok(())
    }

    /// Returns the writes.
    fn changes(&mut self) -> Result<&mut Changes, Wrong> {
        self.changes.as_mut().ok_or_else(|| Wrong::err("a write in an access that only reads"))
    }

    /// Returns the base of a database.
    fn base(&self, db: u16) -> u16 {
        self.mapping[usize::from(db)].base
    }

    fn stored(&self, key: &Key) -> layout::Bytes {
        stored_key(self.base(key.db), &key.name)
    }

    /// Makes the reads of a view from now on see one state. An access that writes has its keys
    /// locked instead.
    pub(crate) fn pin(&self) {
        if self.changes.is_none() {
            self.snapshot.get_or_init(|| {
                let snapshot = Some(self.store.0.db.snapshot());
                // Ordering: looked at behind the snapshot, because a mapping is frozen before the
                // batch that it is not for can be seen.
                match self.mapping.last() {
                    Some(last) => last.clone(),
                    None => ReadOptions { snapshot, ..ReadOptions::new() },
                }
            });
        }
    }

    fn options(&self) -> &ReadOptions {
        self.snapshot.get().unwrap_or(&self.newest)
    }

    /// Reads KarstDB, without the writes of this access, by a call that gets the options. The call
    /// is repeated if the first one may have seen a state that the mapping is not for.
    async fn read<T>(&self, call: impl AsyncFn(&ReadOptions) -> T) -> T {
        let read = call(self.options()).await;
        match self.mapping.last() {
            Some(last) if self.changes.is_none() && self.snapshot.get().is_none() => call(last).await,
            _ => read,
        }
    }

    /// Returns the writes, if there are some.
    fn batch(&self) -> Option<&WriteBatchWithIndex> {
        self.changes.as_ref().map(|changes| &changes.batch).filter(|batch| !batch.is_empty())
    }

    /// Reads a key of KarstDB, with the writes of this access.
    async fn get(&self, family: &ColumnFamily, key: &[u8]) -> karstdb::Result<Option<Value>> {
        let db = &self.store.0.db;
        match self.batch() {
            Some(batch) => batch.get_from_batch_and_db_cf_async(db, self.options(), family, key).await,
            None => self.read(async |options| db.get_cf_async(options, family, key).await).await,
        }
    }

    /// Reads many keys of KarstDB at the same time, as of one moment.
    async fn multi_get<K: AsRef<[u8]> + Sync>(
        &self,
        family: &ColumnFamily,
        keys: &[K],
    ) -> karstdb::Result<Vec<Option<Value>>> {
        let db = &self.store.0.db;
        let read = match self.batch() {
            Some(batch) => batch.multi_get_from_batch_and_db_cf_async(db, self.options(), family, keys).await,
            None => self.read(async |options| db.multi_get_cf_async(options, family, keys).await).await,
        };
        read.into_iter().collect()
    }

    /// Reads many records at the same time, as of one moment, without the writes of this access.
    /// Returns a result for each. Values that come after `at_most` bytes of others are not read:
    /// their result is `LimitReached`.
    async fn records_within(
        &self,
        keys: &[layout::Bytes],
        at_most: u64,
    ) -> Vec<karstdb::Result<Option<Value>>> {
        let (db, family) = (&self.store.0.db, self.default_family());
        let read = async |options: &ReadOptions| {
            let options = ReadOptions { value_size_soft_limit: at_most, ..options.clone() };
            db.multi_get_cf_async(&options, family, keys).await
        };
        self.read(read).await
    }

    fn default_family(&self) -> &ColumnFamily {
        self.store.0.db.default_column_family()
    }

    /// Reads the record of a key, expired or not.
    async fn record(&self, key: &Key) -> karstdb::Result<Option<Record>> {
        let stored = self.stored(key);
        let value = self.get(self.default_family(), &stored).await?;
        value.map(|value| Ok(Record { head: Head::decode(&stored, &value)?, value })).transpose()
    }

    /// Decodes the record of a key, if it is there and has not expired.
    fn live_record(&self, stored: &[u8], value: Option<Value>) -> karstdb::Result<Option<Record>> {
        let Some(value) = value else { return Ok(None) };
        let head = Head::decode(stored, &value)?;
        Ok((!head.is_expired(self.now)).then_some(Record { head, value }))
    }

    /// Reads the record of a key that has not expired.
    async fn live(&self, key: &Key) -> karstdb::Result<Option<Record>> {
        let stored = self.stored(key);
        let record = self.live_record(&stored, self.get(self.default_family(), &stored).await?)?;
        self.count_lookup(key, record.is_some());
        Ok(record)
    }

    /// Counts a lookup for INFO if the access only reads.
    fn count_lookup(&self, key: &Key, is_there: bool) {
        if self.changes.is_none() {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            // 0 is that of no key.
            let hash = hasher.finish() | 1;
            if self.counted.swap(hash, Ordering::Relaxed) != hash {
                self.store.0.counts.note_lookup(is_there);
                if !is_there {
                    self.note_miss(key);
                }
            }
        }
    }

    /// Reads the records of many keys, in one round trip; those that are absent or expired are
    /// `None`.
    async fn live_many(&self, keys: &[Key]) -> karstdb::Result<Vec<Option<Record>>> {
        let stored: Vec<_> = keys.iter().map(|key| self.stored(key)).collect();
        let values = self.multi_get(self.default_family(), &stored).await?;
        let records = stored.iter().zip(values).map(|(key, value)| self.live_record(key, value));
        let records: Vec<_> = records.collect::<karstdb::Result<_>>()?;
        for (key, record) in keys.iter().zip(&records) {
            self.count_lookup(key, record.is_some());
        }
        Ok(records)
    }

    /// Reads the record of a key that is about to be written. An expired one is removed.
    async fn live_to_write(&mut self, key: &Key) -> Result<Option<Record>, Wrong> {
        self.changes()?;
        match self.record(key).await? {
            Some(record) if record.head.is_expired(self.now) => {
                // It was absent before, so no watch of it is touched.
                self.unlink(key, &record.head)?;
                self.bury(&record.head)?;
                let changes = self.changes()?;
                changes.expired.push(key.clone());
                if record.head.kind == Kind::Stream {
                    changes.gone.push(key.clone());
                }
                self.event(Classes::EXPIRED, "expired", key);
                Ok(None)
            }
            record => Ok(record),
        }
    }

    /// Puts the record `value` of a key, whose expiry is `expiry`, in place of `before`. Elements
    /// of the collection before stay; see [`bury`](Self::bury).
    fn put_head(
        &mut self,
        key: &Key,
        before: Option<&Head>,
        expiry: Option<Millis>,
        value: &[u8],
    ) -> Result<(), Wrong> {
        self.write_head(key, before, expiry, value)?;
        self.touch(key)
    }

    /// [`put_head`](Self::put_head) of which those who watch the key, or wait for it, are not told.
    fn write_head(
        &mut self,
        key: &Key,
        before: Option<&Head>,
        expiry: Option<Millis>,
        value: &[u8],
    ) -> Result<(), Wrong> {
        let (stored, base, store) = (self.stored(key), self.base(key.db), self.store.clone());
        let changes = self.changes()?;
        changes.batch.put_cf(store.0.db.default_column_family(), &stored, value)?;
        let old = before.and_then(|head| head.expiry);
        if old != expiry {
            if let Some(at) = old {
                changes.batch.delete_cf(&store.0.expiries, layout::expiry_key(at, &stored))?;
            }
            if let Some(at) = expiry {
                changes.batch.put_cf(&store.0.expiries, layout::expiry_key(at, &stored), [])?;
                let due = &mut changes.due[Expiring::Keys as usize];
                *due = at.min(*due);
            }
        }
        if before.is_none() {
            *changes.growth.entry(base).or_default() += 1;
            self.event(Classes::NEW, "new", key);
        }
        let version = Head::decode(&stored, value)?.expiring_version();
        if let Some(version) = version.filter(|_| version != before.and_then(Head::expiring_version)) {
            self.changes()?.batch.put_cf(&store.0.server, layout::named_key(version), &key.name)?;
        }
        Ok(())
    }

    /// Puts the record `value` of a key in place of `before`, whose elements become dead.
    fn replace(
        &mut self,
        key: &Key,
        before: Option<&Head>,
        expiry: Option<Millis>,
        value: &[u8],
    ) -> Result<(), Wrong> {
        if let Some(before) = before {
            self.bury(before)?;
        }
        self.put_head(key, before, expiry, value)
    }

    /// Removes the record of a key, `head`, with its elements.
    fn remove(&mut self, key: &Key, head: &Head) -> Result<(), Wrong> {
        self.unlink(key, head)?;
        self.touch(key)?;
        self.bury(head)
    }

    /// Has the commit tell those who watch a key.
    fn touch(&mut self, key: &Key) -> Result<(), Wrong> {
        self.changes()?.touched.push(key.clone());
        Ok(())
    }

    /// Removes the record of a key, `head`, and not its elements.
    fn unlink(&mut self, key: &Key, head: &Head) -> Result<(), Wrong> {
        let (stored, base, store) = (self.stored(key), self.base(key.db), self.store.clone());
        let changes = self.changes()?;
        changes.batch.delete_cf(store.0.db.default_column_family(), &stored)?;
        if let Some(at) = head.expiry {
            changes.batch.delete_cf(&store.0.expiries, layout::expiry_key(at, &stored))?;
        }
        if let Some(version) = head.expiring_version() {
            changes.batch.delete_cf(&store.0.server, layout::named_key(version))?;
        }
        *changes.growth.entry(base).or_default() -= 1;
        Ok(())
    }

    /// Makes the version of a collection dead.
    fn bury(&mut self, head: &Head) -> Result<(), Wrong> {
        if let Some(version) = head.version() {
            let store = self.store.clone();
            let changes = self.changes()?;
            changes.dead.push(DeadVersion { version, elements: head.entries() });
            if head.expiring_version().is_some() {
                changes.batch.delete_cf(&store.0.server, layout::named_key(version))?;
            }
        }
        Ok(())
    }

    /// Returns a new collection of a database, without elements.
    async fn new_collection(&self, db: u16) -> Result<Collection, Wrong> {
        let version = self.new_version(db).await?;
        Ok(Collection { version, count: 0, first: 0, fields_expire: false })
    }

    /// Returns the version of a new collection of a database.
    async fn new_version(&self, db: u16) -> Result<u64, Wrong> {
        let inner = &self.store.0;
        let number = inner.numbers.next(&inner.db, &inner.server).await?;
        Ok(u64::from(self.base(db)) << layout::NUMBER_BITS | number)
    }
}

/// Checks the type of a record.
fn expect(record: Option<Record>, kind: Kind) -> Result<Option<Record>, Wrong> {
    match record {
        Some(record) if record.head.kind != kind => Err(Wrong::wrong_type()),
        record => Ok(record),
    }
}
