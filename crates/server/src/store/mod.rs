//! The data model over KarstDB: numbered databases of keys, each with a type and an expiry, and
//! collections with an entry for each element.
//!
//! In: the accesses of commands. Out: values, and batches that KarstDB writes whole. The bytes are
//! those of docs/formats/redis.md.
//!
//! Invariants:
//! - The record of a key is written only by a holder of the key's stripe ([`locks`]), from its read
//!   to the end of its write. So read-modify-write commands count exactly.
//! - All writes of a command or of one EXEC, with the changes of sizes, expiries and dead versions,
//!   are one batch: a crash keeps all of it or nothing.
//! - A key whose expiry has come is absent for every access that begins in that millisecond or
//!   later, deleted or not. An access that writes begins when it has the stripes of its keys.
//!
//! Lock order: stripes in ascending order, then the reservation of numbers ([`numbers`]). The locks
//! in memory are held for single operations.

mod access;
mod counts;
mod cursors;
mod databases;
mod dead;
mod events;
mod functions;
mod layout;
mod locks;
mod maintain;
mod numbers;
#[cfg(test)]
mod tests;
mod waiters;

pub(crate) use access::{
    Access, Claim, FieldChange, Lifetime, OpenGroup, OpenStream, ScoreRule, Scored, Side, SortedRange,
    StreamEntry, score_of,
};
pub(crate) use events::{Classes, Interests, KeyEvent, News, Observer};
pub(crate) use layout::{Consumer, Group, Pending, StreamRecord};
pub(crate) use waiters::{Served, Waiter};

use crate::wrong::Wrong;
use counts::Counts;
use cursors::Cursors;
use databases::Databases;
use dead::{Dead, DeadElements};
use event_listener::Event;
use events::Observed;
use karstdb::io::Env;
use karstdb::{Associative, ColumnFamily, Db, Error, ErrorKind, Options, merge_operator};
use locks::{Counters, Locks};
use numbers::Numbers;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use waiters::Waiters;

/// Milliseconds since 1970, UTC.
pub(crate) type Millis = i64;

impl From<Error> for Wrong {
    fn from(e: Error) -> Self {
        Self::storage(e)
    }
}

/// A key of one of the numbered databases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Number of the database, below [`Store::databases`].
    pub(crate) db: u16,
    /// Its name; any bytes.
    pub(crate) name: Vec<u8>,
}

/// Type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    String,
    Hash,
    Set,
    List,
    SortedSet,
    Stream,
}

impl Kind {
    /// Name in the reply of TYPE.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::List => "list",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }
}

/// Kind of thing that expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiring {
    Keys,
    /// Fields of hashes.
    Fields,
}

/// Moment at which a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The write is on the device (`appendfsync always`).
    Synced,
    /// The write is in the operating system's file (`everysec`, `no`).
    Logged,
}

/// Options of [`Store::open`].
#[derive(Clone, Debug)]
pub(crate) struct StoreOptions {
    /// Number of databases, at least 1. Default: 16.
    pub(crate) databases: u16,
    /// Options of the KarstDB database, below those that the layout needs. Default: none changed.
    pub(crate) options: Options,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { databases: 16, options: Options::new() }
    }
}

/// An open store; a clone is another handle of it. `Send` and `Sync`.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    db: Db,
    elements: ColumnFamily,
    expiries: ColumnFamily,
    fields: ColumnFamily,
    server: ColumnFamily,
    count: u16,
    databases: Databases,
    numbers: Numbers,
    locks: Locks,
    waiters: Waiters,
    observed: Observed,
    counts: Counts,
    dead: Arc<Dead>,
    /// Positions of open cursors.
    cursors: Mutex<Cursors>,
    /// The earliest expiries of keys and of fields that may be due next; `i64::MAX` if there is
    /// none.
    due: [AtomicI64; 2],
    /// Notified when `due` has become earlier, and when the store closes.
    wake: Event,
    is_closing: AtomicBool,
    /// State of the random numbers.
    random: AtomicU64,
}

impl Store {
    /// Opens or creates the store.
    ///
    /// # Errors
    /// Those of [`Db::open_async`]. `NotSupported`: the directory has a database that is no store
    /// of this layout. `Corruption`: records of the store are damaged.
    pub(crate) async fn open(path: &Path, options: &StoreOptions, env: &Env) -> karstdb::Result<Store> {
        let dead = Arc::new(Dead::default());
        let settings = options.options.clone().env(env.clone()).db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        });
        let families = ["default", layout::ELEMENTS, layout::EXPIRIES, layout::FIELDS, layout::SERVER];
        let filter = |offset| Arc::new(DeadElements { dead: dead.clone(), offset });
        let settings = families[1..]
            .iter()
            .fold(settings, |settings, family| settings.column_family(*family, |_| {}))
            .merge_operator(Some(layout::SERVER), Arc::new(Associative(merge_operator::UInt64Add)))
            .compaction_filter_factory(Some(layout::ELEMENTS), filter(0))
            // Behind the time.
            .compaction_filter_factory(Some(layout::FIELDS), filter(8));
        let db = Db::open_async(path, &settings).await?;
        match Self::load(&db, options, dead).await {
            Ok(store) => Ok(store),
            Err(error) => {
                // The first error is the one to tell; the database was only read.
                let _ = db.close_async().await;
                Err(error)
            }
        }
    }

    async fn load(db: &Db, options: &StoreOptions, dead: Arc<Dead>) -> karstdb::Result<Store> {
        let family = |name: &str| {
            let missing = || Error::new(ErrorKind::NotFound, format!("column family {name:?}"));
            db.column_family(name).ok_or_else(missing)
        };
        let (elements, expiries) = (family(layout::ELEMENTS)?, family(layout::EXPIRIES)?);
        let (fields, server) = (family(layout::FIELDS)?, family(layout::SERVER)?);
        match db.get_cf_async(&Default::default(), &server, layout::FORMAT).await? {
            Some(version) if *version == layout::FORMAT_VERSION.to_le_bytes() => {}
            Some(_) => return Err(Error::not_supported("a store of another version of the layout")),
            None => {
                let mut first = db.iter(&Default::default())?;
                first.seek_to_first_async().await?;
                if first.valid() {
                    let text = "the database has keys and is no store of this server; use an empty directory";
                    return Err(Error::not_supported(text));
                }
                let version = layout::FORMAT_VERSION.to_le_bytes();
                db.put_cf_async(&Default::default(), &server, layout::FORMAT, &version).await?;
            }
        }
        let databases = Databases::load(db, &server, options.databases.max(1)).await?;
        let numbers = Numbers::load(db, &server).await?;
        dead.load(maintain::dead_versions(db, &server).await?.into_iter());
        Ok(Store(Arc::new(Inner {
            elements,
            expiries,
            fields,
            server,
            count: options.databases.max(1),
            databases,
            numbers,
            locks: Locks::new(),
            waiters: Waiters::default(),
            observed: Observed::default(),
            counts: Counts::default(),
            dead,
            cursors: Mutex::default(),
            due: Default::default(),
            wake: Event::new(),
            is_closing: false.into(),
            random: db.env().random_seed().into(),
            db: db.clone(),
        })))
    }

    /// Ends [`maintain`](Self::maintain), puts everything on the device and closes the database.
    ///
    /// # Errors
    /// A write of before could not be put on the device, or the database failed to close.
    pub(crate) async fn close(&self) -> karstdb::Result<()> {
        self.end_maintenance();
        let synced = self.sync().await;
        self.0.db.close_async().await?;
        synced
    }

    /// Has [`maintain`](Self::maintain) return by itself, once what it has begun to commit is
    /// committed. Does not wait.
    pub(crate) fn end_maintenance(&self) {
        self.0.is_closing.store(true, Ordering::Release);
        self.0.wake.notify(usize::MAX);
    }

    /// Returns the database below, for INFO, checkpoints and metrics.
    pub(crate) fn db(&self) -> &Db {
        &self.0.db
    }

    /// Returns the counts of lookups and of expired keys.
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the news that commits tell the observer.
    pub(crate) fn interests(&self) -> &Arc<Interests> {
        &self.0.observed.interests
    }

    /// Has commits tell an observer of what they have done. Called once.
    pub(crate) fn observe(&self, observer: impl Observer + 'static) {
        let _is_first = self.0.observed.observer.set(Box::new(observer));
    }

    /// Returns the time of the environment's clock.
    pub(crate) fn now(&self) -> Millis {
        Millis::try_from(self.0.db.env().unix_time().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Returns the number of databases.
    pub(crate) fn databases(&self) -> u16 {
        self.0.count
    }

    /// Returns the number of keys of a database, with those that have expired and are not deleted
    /// yet. Takes constant time.
    pub(crate) fn size(&self, db: u16) -> u64 {
        self.0.databases.now()[usize::from(db)].size().max(0).cast_unsigned()
    }

    /// Returns an access that only reads. A call that needs several reads takes a snapshot for it
    /// and for those that follow.
    pub(crate) fn view(&self, now: Millis) -> Access {
        Access::new(self, now, None)
    }

    /// Returns an access that may write `keys`, which nobody else writes until it is dropped. Waits
    /// for others that write keys of the same stripes; its time is the one behind the wait.
    pub(crate) async fn change(&self, keys: &[Key]) -> Access {
        let guards = self.0.locks.lock(keys).await;
        Access::new(self, self.now(), Some(guards))
    }

    /// [`change`](Self::change) with a time of the caller's.
    async fn change_at(&self, keys: &[Key], now: Millis) -> Access {
        let guards = self.0.locks.lock(keys).await;
        Access::new(self, now, Some(guards))
    }

    /// Returns an access that may write any key while nobody else writes: for FLUSHALL, FLUSHDB,
    /// SWAPDB, and an EXEC with one of these, or with reads of keys that it does not name. Its time
    /// is the one behind the wait for the others.
    pub(crate) async fn change_all(&self) -> Access {
        let guards = self.0.locks.lock_all().await;
        Access::new(self, self.now(), Some(guards))
    }

    /// [`change_all`](Self::change_all) with a time of the caller's.
    #[cfg(test)]
    async fn change_all_at(&self, now: Millis) -> Access {
        let guards = self.0.locks.lock_all().await;
        Access::new(self, now, Some(guards))
    }

    /// Watches a key from now on.
    ///
    /// # Errors
    /// The key could not be read.
    pub(crate) async fn watch(&self, key: &Key) -> Result<Watch, Wrong> {
        // Under the key's stripe, so that no write lies between the count and the read.
        self.watch_with(self.change(std::slice::from_ref(key)).await, key).await
    }

    async fn watch_with(&self, access: Access, key: &Key) -> Result<Watch, Wrong> {
        let counters = self.0.locks.watch(key);
        let mut watch = Watch {
            changes: counters.changes.load(Ordering::Relaxed),
            removals: counters.removals.load(Ordering::Relaxed),
            counters: Some(counters),
            existed: false,
            expiry: None,
            key: key.clone(),
            store: self.clone(),
        };
        if let Some(expiry) = access.expiry(key).await? {
            (watch.existed, watch.expiry) = (true, expiry);
        }
        Ok(watch)
    }

    /// Puts everything that was committed on the device (`appendfsync everysec`).
    ///
    /// # Errors
    /// The log could not be written or synced.
    pub(crate) async fn sync(&self) -> karstdb::Result<()> {
        self.0.db.flush_wal_async(true).await
    }

    /// Returns the next random number. The environment's seed determines it.
    pub(crate) fn random(&self) -> u64 {
        let state = self.0.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Has what expires deleted from `at` on, if that is earlier than what is known.
    fn due_at(&self, of: Expiring, at: Millis) {
        if self.0.due[of as usize].fetch_min(at, Ordering::AcqRel) > at {
            self.0.wake.notify(usize::MAX);
        }
    }
}

/// A watched key. `Send` and `Sync`.
pub(crate) struct Watch {
    store: Store,
    key: Key,
    /// Taken when it is dropped.
    counters: Option<Arc<Counters>>,
    changes: u64,
    removals: u64,
    existed: bool,
    expiry: Option<Millis>,
}

impl Watch {
    /// Returns true if the key was changed, or has expired, since [`Store::watch`]. Exact while the
    /// caller has an [`Access`] that may write the key: EXEC takes one for the watched keys too.
    pub(crate) fn is_touched(&self, now: Millis) -> bool {
        let Some(counters) = &self.counters else { return true };
        self.changes != counters.changes.load(Ordering::Relaxed)
            || self.existed && self.removals != counters.removals.load(Ordering::Relaxed)
            || self.expiry.is_some_and(|at| at <= now)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(counters) = self.counters.take() {
            self.store.0.locks.unwatch(&self.key, counters);
        }
    }
}
