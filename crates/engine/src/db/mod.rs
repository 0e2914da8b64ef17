//! The database handle, which delegates to the layers below.
//!
//! In: keys and options. Out: values that pin their blocks. Each call has a blocking form, which
//! uses the calling thread only, and an asynchronous one, a `Send` future for any executor; both
//! run the same code. The handle is cheap to clone and may be used from any thread.

mod background;
mod cf;
mod clip;
mod closing;
mod compaction;
mod hooks;
mod ingest;
mod lifecycle;
mod lifecycle_async;
mod metadata;
mod read_at;
mod secondary;
mod set_options;
mod sizes;
mod stats_history;
mod timestamps;
mod trace;
mod trim;
mod two_phase;
mod validation;
mod verify;
mod wal_files;
mod wal_updates;
mod write;
mod write_with_ts;

use crate::open::{self, Opened, Options, ReadHalf};
use crate::properties;
use crate::read::iter::{DbIterator, InternalIterator};
use crate::read::{get, multi_get};
use crate::write_half::WriteHalf;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::events::Events;
use karst_base::options::{DbOptions, ReadOptions};
use karst_base::snapshot::{ReadAt, Snapshot, Snapshots, pin_with_all};
use karst_base::stats::Statistics;
use karst_base::sync::Guard;
use karst_base::sync::Mutex;
use karst_io::Env;
use karst_storage::column_family::{ColumnFamily, Family};
use karst_storage::superversion::SuperVersion;
use karst_storage::table::drive::{Attempt, Lazy};
use karst_storage::value::Value;
use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::properties::{BlobMetaData, ColumnFamilyMetaData, LevelMetaData, LiveFile, StatsSlice};
pub use cf::Cf;
pub use hooks::TransactionHooks;
pub use metadata::TablePropertiesCollection;
use trace::Traces;
pub use two_phase::PreparedTransaction;
use two_phase::Sections;
pub use validation::Unchanged;
pub use wal_files::WalFile;
pub use wal_updates::{WalUpdate, WalUpdates};

/// An open database.
///
/// Opened with [`Db::open`], it can be read and written. Opened with [`Db::open_read_only`], it
/// shows the state of its files at that moment and writes nothing to its directory. Opened with
/// [`Db::open_as_secondary`], it follows the writes of another process.
#[derive(Clone, Debug)]
pub struct Db(pub(crate) Arc<Inner>);

/// State shared by all handles of a database. Each part owns its own state; no lock covers all of
/// it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) read: ReadHalf,
    /// `None` if the database is open for reading only.
    pub(crate) write: Option<WriteHalf>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Undecided prepared sections by name. Lock: held to look or change, never while waiting.
    sections: Mutex<Sections>,
    default_family: ColumnFamily,
    default_read: ReadOptions,
    database: u64,
    traces: Traces,
    opened_at: std::time::Duration,
    /// Time at which the statistics of writes were last read.
    last_asked: properties::LastAsked,
    stats_history: Arc<properties::StatsHistory>,
    cache_entries: properties::CacheEntries,
}

impl Inner {
    /// Returns the database in the form that properties read.
    pub(crate) fn as_subject(&self) -> properties::Subject<'_> {
        properties::Subject {
            read: &self.read,
            write: self.write.as_ref(),
            snapshots: &self.snapshots,
            opened_at: self.opened_at,
            last_asked: &self.last_asked,
            cache_entries: &self.cache_entries,
        }
    }
}

impl Db {
    /// Opens the database in directory `path` for reading, with all its column families.
    ///
    /// Entries that are only in the log are read into memory; the recovery mode is the database's
    /// own (`wal_recovery_mode`) unless `options` overrides it. Blocks the calling thread.
    ///
    /// # Errors
    /// The directory is no database, a file is missing, damaged or foreign, a comparator is
    /// unknown, or an option is out of range. `TryAgain`: another process changed the database each
    /// time it was read. The error names the file, the offset and the expected content.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Db> {
        Self::open_for_reading(path.as_ref(), options, None)
    }

    /// Opens some of the column families for reading; the default one is always open.
    ///
    /// # Errors
    /// Those of [`Db::open_read_only`]; a named column family does not exist.
    pub fn open_cf_read_only(path: impl AsRef<Path>, options: &Options, families: &[&str]) -> Result<Db> {
        Self::open_for_reading(path.as_ref(), options, Some(families))
    }

    fn open_for_reading(path: &Path, options: &Options, families: Option<&[&str]>) -> Result<Db> {
        Self::new(open::read_only(path, options, families)?, options)
    }

    fn new(opened: Opened, options: &Options) -> Result<Db> {
        let Opened { read, ownership, prepared, notes } = opened;
        let first = read.families.all().first().cloned();
        let default_family = first.filter(|f| f.config.name == "default").ok_or_else(|| {
            Error::new(
                ErrorKind::Corruption,
                format!("{}: the default column family is missing", read.path.display()),
            )
        })?;
        let snapshots = Arc::new(Snapshots::new(read.pending.clone(), read.db_options.get().allow_2pc));
        let write = match ownership {
            Some(ownership) => Some(WriteHalf::start(&read, ownership, &notes, options, &snapshots)?),
            None if read.secondary.is_some() => None,
            None => {
                let families: Vec<_> = read.families.all().iter().map(|f| f.settings()).collect();
                let events = Events::new(options.users_log(), Vec::new());
                events.opened_for_reading(&read.db_options.get(), families.iter().map(|f| &**f));
                None
            }
        };
        let db = Db(Arc::new(Inner {
            snapshots,
            write,
            default_read: ReadOptions::default(),
            database: default_family.database,
            default_family: ColumnFamily(default_family),
            traces: Traces::new(&read.env, read.shared.tracer.clone()),
            opened_at: read.env.now(),
            sections: Mutex::new(Sections::found(&prepared)),
            last_asked: properties::LastAsked::default(),
            stats_history: Arc::default(),
            cache_entries: properties::CacheEntries::default(),
            read,
        }));
        db.watch_stats();
        Ok(db)
    }

    /// Returns the value of `key` in the default column family. Blocks the calling thread while it
    /// reads files.
    ///
    /// # Errors
    /// A block could not be read, or is damaged.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_cf(&self.0.default_read, &self.0.default_family, key)
    }

    /// Returns the value of `key` in the default column family, read with `options`.
    ///
    /// # Errors
    /// Those of [`Db::get`], and those that the options cause.
    #[inline]
    pub fn get_opt(&self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_cf(options, &self.0.default_family, key)
    }

    /// Returns the value of `key` in a column family.
    ///
    /// # Errors
    /// Those of [`Db::get_opt`]; the column family or the snapshot belongs to another database.
    #[inline]
    pub fn get_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.get_bytes(options, family, key.as_ref())
    }

    /// Implements [`Db::get_cf`]. Not generic, so that the lookup is compiled here and not again in
    /// each crate that calls it.
    fn get_bytes(&self, options: &ReadOptions, family: &ColumnFamily, key: &[u8]) -> Result<Option<Value>> {
        let (family, superversion, at) = self.view(options, family)?;
        self.trace_get(family, key);
        self.wait_until_readable(at.seq);
        get::get(&family.tables, &superversion, options, &at, key)
    }

    /// The asynchronous form of [`Db::get`].
    pub fn get_async<'a>(
        &'a self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        self.get_cf_async(&self.0.default_read, &self.0.default_family, key)
    }

    /// The asynchronous form of [`Db::get_opt`].
    pub fn get_opt_async<'a>(
        &'a self,
        options: &'a ReadOptions,
        key: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        self.get_cf_async(options, &self.0.default_family, key)
    }

    /// The asynchronous form of [`Db::get_cf`]. A cached value is returned by the first poll,
    /// without an allocation.
    pub fn get_cf_async<'a>(
        &'a self,
        options: &'a ReadOptions,
        family: &'a ColumnFamily,
        key: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        let key = key.as_ref();
        Lazy::new(move || match self.view(options, family) {
            Ok((family, superversion, at)) => {
                self.trace_get(family, key);
                self.attempt_at(at.seq, move || get::attempt(&family.tables, &superversion, options, at, key))
            }
            Err(e) => Attempt::Done(Err(e)),
        })
    }

    /// Returns the values of `keys` in the default column family, in the order of the keys. Blocks
    /// are read concurrently for up to 128 keys; further keys follow as earlier ones finish.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>>> {
        self.multi_get_cf(&self.0.default_read, &self.0.default_family, keys)
    }

    /// Returns the values of `keys` in a column family, in the order of the keys, read with
    /// `options`.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        match self.view(options, family) {
            Ok((family, superversion, at)) => {
                self.trace_multi_get(keys, |_| family.id());
                self.wait_until_readable(at.seq);
                multi_get::multi_get(&multi_get::One(&family.tables, &superversion), options, &at, keys)
            }
            Err(e) => failed(&e, keys.len()),
        }
    }

    /// Returns the values of `keys`, each in its own column family, all as of the same moment.
    ///
    /// # Panics
    /// If there are not as many column families as keys.
    pub fn multi_get_cfs<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        match self.batch(options, families, keys.len()) {
            Ok(batch) => {
                self.trace_multi_get(keys, |index| families[index].0.id());
                self.wait_until_readable(batch.at.seq);
                multi_get::multi_get(&batch.many(), options, &batch.at, keys)
            }
            Err(e) => failed(&e, keys.len()),
        }
    }

    /// The asynchronous form of [`Db::multi_get`].
    pub fn multi_get_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        self.multi_get_cf_async(&self.0.default_read, &self.0.default_family, keys)
    }

    /// The asynchronous form of [`Db::multi_get_cf`].
    pub fn multi_get_cf_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        options: &'a ReadOptions,
        family: &'a ColumnFamily,
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        Lazy::new(move || match self.view(options, family) {
            Ok((family, superversion, at)) => {
                self.trace_multi_get(keys, |_| family.id());
                self.attempt_at(at.seq, move || {
                    multi_get::attempt(&multi_get::One(&family.tables, &superversion), options, at, keys)
                })
            }
            Err(e) => Attempt::Done(failed(&e, keys.len())),
        })
    }

    /// The asynchronous form of [`Db::multi_get_cfs`].
    ///
    /// # Panics
    /// If there are not as many column families as keys.
    pub fn multi_get_cfs_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        options: &'a ReadOptions,
        families: &'a [&'a ColumnFamily],
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        Lazy::new(move || match self.batch(options, families, keys.len()) {
            Ok(Batch { sources, of_keys, at }) => {
                self.trace_multi_get(keys, |index| families[index].0.id());
                self.attempt_at(at.seq, move || {
                    let many = multi_get::Many { sources: &sources, of_keys: &of_keys };
                    multi_get::attempt(&many, options, at, keys)
                })
            }
            Err(e) => Attempt::Done(failed(&e, keys.len())),
        })
    }

    /// Takes a snapshot of the current state, for reads through [`ReadOptions::snapshot`]. Does not
    /// wait for writers: with `unordered_write` the first read through it waits for pending
    /// inserts. Blocks only while files are ingested that get no sequence number and that snapshots
    /// must not see, until the MANIFEST is synced; must therefore not be called in jobs of the
    /// environment, in which listeners, filters and merge operators run, because the ingestion may
    /// need them.
    pub fn snapshot(&self) -> Snapshot {
        let now_s = self.env().unix_time().as_secs();
        if let Some(secondary) = &self.0.read.secondary {
            let view = secondary.view();
            return self.0.snapshots.take_state(&view.at, view.clone(), now_s);
        }
        // In a forked child nothing releases locks that the parent held.
        let regardless = self.0.read.life.is_left_behind();
        loop {
            if let Some(snapshot) = self.0.snapshots.take(|| self.newest_seq(), now_s, regardless) {
                return snapshot;
            }
            if let Some(write) = &self.0.write {
                karst_io::block_on(self.env(), write.pipeline.wait_until_not_held());
            }
        }
    }

    /// Returns the sequence number of the newest acknowledged entry.
    pub fn latest_sequence_number(&self) -> u64 {
        self.newest_seq().0
    }

    /// Returns the default column family.
    pub fn default_column_family(&self) -> &ColumnFamily {
        &self.0.default_family
    }

    /// Returns the open column family of this name, or None.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        self.0.read.families.named(name).map(ColumnFamily)
    }

    /// Returns all open column families, ordered by id.
    pub fn column_families(&self) -> Vec<ColumnFamily> {
        self.0.read.families.all().iter().cloned().map(ColumnFamily).collect()
    }

    /// Returns the names of column families that exist but were not opened.
    pub fn unopened_column_families(&self) -> &[String] {
        &self.0.read.unopened
    }

    /// Returns the statistics; they stay empty unless [`Options::statistics`] was given.
    pub fn statistics(&self) -> &Arc<Statistics> {
        &self.0.read.statistics
    }

    /// Returns the environment: files, clock, threads, I/O.
    pub fn env(&self) -> &Env {
        &self.0.read.env
    }

    /// Returns the directory of the database.
    pub fn path(&self) -> &PathBuf {
        &self.0.read.path
    }

    /// Returns the database options in effect now.
    pub fn options(&self) -> Arc<DbOptions> {
        self.0.read.db_options.get()
    }

    /// Returns the numbers of the logs that hold entries not yet in tables, ascending.
    pub fn log_numbers(&self) -> Vec<u64> {
        self.0.as_subject().logs().iter().map(|number| number.0).collect()
    }

    /// Returns the place of log damage that ended point-in-time recovery, or None: file, offset and
    /// error. Entries after it are not visible.
    pub fn log_damage(&self) -> Option<&str> {
        self.0.read.log_damage.as_deref()
    }

    /// Returns a description of entries that the opening found in both the logs and the tables, or
    /// None: their column families, count and largest sequence number. They are counted once. The
    /// logs of an intact database have no entries that are in tables.
    pub fn log_duplicates(&self) -> Option<&str> {
        self.0.read.log_duplicates.as_deref()
    }

    /// Returns the database's identity, or None.
    pub fn identity(&self) -> Option<&str> {
        self.0.read.db_id.as_deref()
    }

    /// Returns an iterator over the default column family. It must be positioned by a seek first.
    ///
    /// # Errors
    /// Those that the options cause.
    pub fn iter(&self, options: &ReadOptions) -> Result<DbIterator> {
        self.iter_cf(options, &self.0.default_family)
    }

    /// Returns an iterator over a column family, as of now. Never blocks; the first seek does any
    /// waiting.
    ///
    /// # Errors
    /// Those of [`Db::iter`]; the column family or the snapshot belongs to another database.
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<DbIterator> {
        let (family, superversion, at) = self.view(options, family)?;
        let gate = self.gate(at.seq);
        DbIterator::new(
            family.tables.clone(),
            Guard::into_inner(superversion),
            at,
            options.clone(),
            (self.0.read.life.clone(), gate),
        )
    }

    /// Returns an iterator over each of several column families, in their order, all as of the same
    /// moment.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    pub fn iter_cfs(&self, options: &ReadOptions, families: &[&ColumnFamily]) -> Result<Vec<DbIterator>> {
        let Batch { sources, of_keys, at } = self.batch(options, families, families.len())?;
        let iterators = of_keys.iter().map(|number| {
            let source = &sources[*number as usize];
            let held = (self.0.read.life.clone(), self.gate(at.seq));
            let (tables, superversion) = (source.tables.clone(), source.superversion.clone());
            DbIterator::new(tables, superversion, at.again(), options.clone(), held)
        });
        iterators.collect()
    }

    /// Updates an iterator over `family` to the newest state, or that of `snapshot`, with the
    /// options it was created with, and releases the memtables and files of the old state. It has
    /// no position until the next seek.
    ///
    /// # Errors
    /// The iterator is not over `family`, or the snapshot belongs to another database; the iterator
    /// is then unchanged.
    pub fn refresh(
        &self,
        iterator: &mut DbIterator,
        family: &ColumnFamily,
        snapshot: Option<&Snapshot>,
    ) -> Result<()> {
        if !Arc::ptr_eq(&self.family(family)?.tables, iterator.tables()) {
            let name = Named(family.name());
            return Err(Error::invalid_argument(format!("the iterator is not over column family {name:?}")));
        }
        let options = ReadOptions { snapshot: snapshot.cloned(), ..iterator.options().clone() };
        *iterator = self.iter_cf(&options, family)?;
        Ok(())
    }

    /// Returns an iterator over all entries of a column family, including hidden ones; for tools.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    #[doc(hidden)]
    pub fn internal_iter(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<InternalIterator> {
        let family = self.family(family)?;
        // Waits until all acknowledged entries have been inserted.
        self.wait_until_readable(self.newest_seq());
        let (tables, life) = (family.tables.clone(), self.0.read.life.clone());
        Ok(InternalIterator::new(tables, family.superversion(), options.clone(), life))
    }

    /// Returns an error if the database is closed, or was opened by the process that this one was
    /// forked from.
    ///
    /// # Errors
    /// `Closed`.
    #[doc(hidden)]
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.0.read.life.check()
    }

    #[inline]
    pub(crate) fn family<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        self.check_open()?;
        if family.0.database == self.0.database { Ok(&family.0) } else { Err(foreign(family)) }
    }

    /// Pins the superversion of each distinct column family of a batch once, all readable at one
    /// sequence number.
    fn batch(&self, options: &ReadOptions, families: &[&ColumnFamily], keys: usize) -> Result<Batch> {
        assert_eq!(families.len(), keys, "each key has a column family");
        let mut distinct: Vec<&Arc<Family>> = Vec::new();
        let mut numbers = HashMap::new();
        let mut of_keys = Vec::with_capacity(keys);
        for family in families {
            let family = self.family(family)?;
            let of_family = numbers.entry(Arc::as_ptr(family)).or_insert_with(|| {
                distinct.push(family);
                distinct.len() as u32 - 1
            });
            of_keys.push(*of_family);
        }
        let pin = || -> Vec<_> { distinct.iter().map(|family| family.superversion()).collect() };
        let has_all = |pinned: &Vec<Arc<SuperVersion>>, seq| pinned.iter().all(|one| one.has_all_to(seq));
        let (pinned, at) = match &self.0.read.secondary {
            Some(secondary) => {
                let view = self.secondary_view(secondary, options)?;
                (distinct.iter().map(|family| view.of(family)).collect(), view.at.again())
            }
            None => pin_with_all(pin, || self.read_at(options), has_all)?,
        };
        distinct.iter().try_for_each(|family| Self::check_timestamps(options, family))?;
        let sources = distinct.iter().zip(pinned);
        let sources = sources
            .map(|(family, superversion)| multi_get::Source { tables: family.tables.clone(), superversion })
            .collect();
        Ok(Batch { sources, of_keys, at })
    }
}

/// Pinned sources of a read over several column families.
struct Batch {
    sources: Vec<multi_get::Source>,
    of_keys: Vec<u32>,
    at: ReadAt,
}

impl Batch {
    fn many(&self) -> multi_get::Many<'_> {
        multi_get::Many { sources: &self.sources, of_keys: &self.of_keys }
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        if self.read.life.is_left_behind() {
            return self.read.life.check();
        }
        if karst_io::in_background() {
            // Refused, because it would wait for the job that it is called by.
            return Err(Error::invalid_argument(
                "a database cannot be closed inside a background job, such as a listener's callback; drop the handle there, or close it elsewhere",
            ));
        }
        self.read.life.end();
        if let Some(secondary) = &self.read.secondary {
            secondary.close(&self.read.env);
        }
        let closed = self.write.as_ref().map_or(Ok(()), WriteHalf::close);
        closed.and(self.traces.end())
    }
}

#[cold]
fn foreign(family: &ColumnFamily) -> Error {
    Error::invalid_argument(format!("column family {:?} is of another database", Named(family.name())))
}

fn failed(error: &Error, keys: usize) -> Vec<Result<Option<Value>>> {
    (0..keys).map(|_| Err(error.clone())).collect()
}
