//! The numbered databases, and the base of each: the number that its keys begin with.
//!
//! SWAPDB exchanges bases, and removing all keys of a database gives it a fresh base, so both take
//! constant time. A base is used again only when no access from before is left.
//!
//! Invariant: a view reads by its mapping only states from before the commit that replaces the
//! mapping. The commit puts a snapshot into the old mapping ([`Mapping::freeze`]) before its batch
//! can be seen, and the new mapping into place afterwards; a view that finds the snapshot reads
//! there. So no reader sees the keys of such a commit in the wrong database.

use super::Key;
use super::layout::{BASES, SERVER, bases_value, corrupt, counter, size_key, split_bases};
use karstdb::io::{report, yield_now};
use karstdb::{ColumnFamily, Db, ErrorKind, ReadOptions, Result, WriteOptions};
use parking_lot::{Mutex, RwLock};
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// A database below the mapping.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) base: u16,
    /// Number of its keys.
    size: AtomicI64,
}

impl Database {
    /// Returns the number of keys, with those that have expired and are not deleted yet.
    pub(super) fn size(&self) -> i64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Adds to the number of keys.
    pub(super) fn grow(&self, keys: i64) {
        self.size.fetch_add(keys, Ordering::Relaxed);
    }
}

/// The databases at one moment, by their number. A clone is another handle of it.
#[derive(Clone, Debug)]
pub(super) struct Mapping(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    databases: Vec<Arc<Database>>,
    /// Options of reads of the last state that the mapping is for, once another is to replace it.
    last: OnceLock<ReadOptions>,
}

impl Mapping {
    pub(super) fn new(databases: Vec<Arc<Database>>) -> Mapping {
        Mapping(Arc::new(Mapped { databases, last: OnceLock::new() }))
    }

    /// Makes the state of now the last one that is read by this mapping. The caller keeps all
    /// others from writing until it has set another mapping.
    fn freeze(&self, db: &Db) {
        let options = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
        self.0.last.get_or_init(|| options);
    }

    /// Returns the options of reads of the last state, if another mapping is to come or has come.
    pub(super) fn last(&self) -> Option<&ReadOptions> {
        self.0.last.get()
    }

    /// Returns the key with a name of a base; `None` if the base is no database's.
    pub(super) fn key_of(&self, base: u16, name: &[u8]) -> Option<Key> {
        let db = self.iter().position(|database| database.base == base)?;
        Some(Key { db: u16::try_from(db).ok()?, name: name.to_vec() })
    }

    /// Returns true if both are handles of one mapping.
    pub(super) fn is(&self, other: &Mapping) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Mapping {
    type Target = [Arc<Database>];

    fn deref(&self) -> &[Arc<Database>] {
        &self.0.databases
    }
}

/// The databases of a store.
#[derive(Debug)]
pub(super) struct Databases {
    now: RwLock<Mapping>,
    /// Databases that were removed, while an access may still use them.
    removed: Mutex<Vec<(u16, Weak<Database>)>>,
}

impl Databases {
    /// Loads the records of at least `count` databases; records those that are new.
    pub(super) async fn load(db: &Db, server: &ColumnFamily, count: u16) -> Result<Databases> {
        let record = db.get_cf_async(&Default::default(), server, BASES).await?;
        let known = record.map_or(Ok(Vec::new()), |value| split_bases(&value))?;
        let mut bases = known.clone();
        while bases.len() < usize::from(count) {
            let free = (0..u16::MAX).find(|base| !bases.contains(base));
            bases.push(free.ok_or_else(|| corrupt(SERVER, BASES))?);
        }
        if bases != known {
            let value = bases_value(bases.iter().copied());
            db.put_cf_async(&WriteOptions::new(), server, BASES, &value).await?;
        }
        let mut list = Vec::with_capacity(bases.len());
        for base in bases {
            let key = size_key(base);
            let mut size = match db.get_cf_async(&Default::default(), server, &key[..]).await? {
                None => 0,
                Some(value) => counter(&key, &value)?.cast_signed(),
            };
            if size < 0 {
                report!(warn, base, size, "a database's size is not possible; its keys are counted");
                size = count_keys(db, base).await?;
                db.put_cf_async(&WriteOptions::new(), server, &key[..], &size.to_le_bytes()).await?;
            }
            list.push(Arc::new(Database { base, size: size.into() }));
        }
        Ok(Databases { now: RwLock::new(Mapping::new(list)), removed: Mutex::default() })
    }

    /// Returns the databases as they are.
    pub(super) fn now(&self) -> Mapping {
        self.now.read().clone()
    }

    /// Returns an empty database whose base no other uses: none of `mapping`, and none that an
    /// access may still read.
    pub(super) fn fresh(&self, mapping: &Mapping, also: &[Arc<Database>]) -> Result<Arc<Database>> {
        let mut removed = self.removed.lock();
        removed.retain(|(_, database)| database.strong_count() > 0);
        let now = self.now();
        let is_used = |base: u16| {
            let mut known = now.iter().chain(mapping.iter()).chain(also);
            known.any(|database| database.base == base) || removed.iter().any(|(other, _)| *other == base)
        };
        match (0..u16::MAX).find(|&base| !is_used(base)) {
            Some(base) => Ok(Arc::new(Database { base, size: 0.into() })),
            None => Err(karstdb::Error::new(ErrorKind::LimitReached, "all 65535 bases are in use")),
        }
    }

    /// Prepares [`set`](Self::set), before the batch of the new mapping is written: views read what
    /// is there now until then. The caller has all stripes.
    pub(super) fn freeze(&self, db: &Db) {
        self.now().freeze(db);
    }

    /// Ends what [`freeze`](Self::freeze) began, after the batch has failed.
    pub(super) fn thaw(&self) {
        let mut now = self.now.write();
        *now = Mapping::new(now.to_vec());
    }

    /// Makes `mapping` that of accesses from now on; `removed` are databases that it lost.
    pub(super) fn set(&self, mapping: Mapping, removed: &[Arc<Database>]) {
        let gone = removed.iter().map(|database| (database.base, Arc::downgrade(database)));
        self.removed.lock().extend(gone);
        *self.now.write() = mapping;
    }
}

/// Counts the keys of a base.
async fn count_keys(db: &Db, base: u16) -> Result<i64> {
    let (first, behind) = (base.to_be_bytes(), (base + 1).to_be_bytes());
    let options = ReadOptions { iterate_upper_bound: Some(behind.to_vec()), ..ReadOptions::new() };
    let mut keys = db.iter(&options)?;
    keys.seek_async(first).await?;
    let mut count = 0;
    while keys.valid() {
        count += 1;
        if count % 256 == 0 {
            yield_now().await;
        }
        keys.next_async().await?;
    }
    Ok(count)
}
