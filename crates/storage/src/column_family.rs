//! Column families: each has its own memtables, tree and options; they share log, cache and
//! sequence numbers.
//!
//! In: new memtables from the commit pipeline, new versions from flushes and compactions. Out: a
//! cheap pin of the current superversion.
//!
//! Invariant: a new superversion holds everything its predecessor held, or the result of its flush
//! or compaction. Lock: a family's own; held to replace parts of its superversion, never while
//! waiting or reading.

use crate::memtable::{MemTable, Seal};
use crate::superversion::SuperVersion;
use crate::table::cache::TableCache;
use karst_base::options::FamilyConfig;
use karst_base::stats::level_jobs::LevelJobs;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use karst_base::sync::{ArcSwap, Guard};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_lsm::Version;
use std::sync::{Arc, Weak};

/// A column family of an open database. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct ColumnFamily(#[doc(hidden)] pub Arc<Family>);

/// The state of a column family.
#[derive(Debug)]
pub struct Family {
    /// The configuration at open: name and comparator never change; for current options see
    /// [`settings`](Self::settings).
    pub config: Arc<FamilyConfig>,
    /// The family's open tables and their read configuration.
    pub tables: Arc<TableCache>,
    /// Id of the family's database.
    pub database: u64,
    /// Sums over flushes and compactions since the database was opened.
    pub jobs: LevelJobs,
    current: ArcSwap<SuperVersion>,
    /// Versions that may still be in use. Lock: held while the superversion is replaced; readers
    /// take none.
    exchange: Mutex<Vec<Weak<Version>>>,
    dropped: AtomicBool,
    /// See [`Family::unnumbered_through`].
    unnumbered_through: AtomicU64,
    /// Present if the family has timestamps.
    history: Option<History>,
}

/// History bounds of a column family with timestamps.
#[derive(Debug)]
pub struct History {
    /// Lock: held for one load or store only.
    full_history_ts_low: Mutex<Option<Vec<u8>>>,
    /// Lock: held for one load or store only.
    trim_ts: Mutex<Option<Vec<u8>>>,
}

impl History {
    /// Returns the timestamp before which only the newest entry of each key is sure to be kept;
    /// reads at earlier timestamps are refused.
    pub fn full_history_ts_low(&self) -> Option<Vec<u8>> {
        self.full_history_ts_low.lock().clone()
    }

    /// Sets that timestamp, as recorded in the MANIFEST.
    pub fn set_full_history_ts_low(&self, low: Option<Vec<u8>>) {
        *self.full_history_ts_low.lock() = low;
    }

    /// Returns the timestamp after which compactions drop entries.
    pub fn trim_ts(&self) -> Option<Vec<u8>> {
        self.trim_ts.lock().clone()
    }

    /// Sets that timestamp, for compactions that begin from now on.
    pub fn set_trim_ts(&self, timestamp: Option<Vec<u8>>) {
        *self.trim_ts.lock() = timestamp;
    }
}

impl Family {
    /// Creates a family of the database with id `database`.
    pub fn new(
        database: u64,
        config: Arc<FamilyConfig>,
        tables: Arc<TableCache>,
        superversion: SuperVersion,
    ) -> Self {
        let has_timestamps = config.comparator.timestamp_size() > 0;
        Self {
            history: has_timestamps
                .then(|| History { full_history_ts_low: Mutex::new(None), trim_ts: Mutex::new(None) }),
            config,
            tables,
            database,
            jobs: LevelJobs::default(),
            exchange: Mutex::new(vec![Arc::downgrade(superversion.version())]),
            current: ArcSwap::from_pointee(superversion),
            dropped: AtomicBool::new(false),
            unnumbered_through: AtomicU64::new(0),
        }
    }

    /// Returns the history bounds if the keys have timestamps.
    #[inline]
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Returns the family's id.
    pub fn id(&self) -> ColumnFamilyId {
        self.config.id
    }

    /// Pins the current superversion. Takes no lock and counts no reference; keep it for one
    /// operation, and clone the `Arc` to keep it longer.
    #[inline]
    pub fn pin(&self) -> Guard<Arc<SuperVersion>> {
        self.current.load()
    }

    /// Returns the current superversion, for an operation that may wait.
    pub fn superversion(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }

    /// Creates an empty memtable for the family.
    pub fn new_memtable(&self) -> Arc<MemTable> {
        Arc::new(MemTable::of(self.pin().config()))
    }

    /// Seals the active memtable and replaces it with `mem`. Returns the sealed one.
    ///
    /// Lock: called under the lock that orders writes, so that no write falls between the two.
    pub fn seal(&self, seal: Seal, mem: Arc<MemTable>) -> Arc<MemTable> {
        let mut sealed = None;
        mem.begins_behind(seal.largest_seq);
        self.exchange(|old| {
            old.mem.seal(seal);
            sealed = Some(old.mem.clone());
            let immutable = std::iter::once(&old.mem).chain(old.immutable.iter()).cloned().collect();
            (mem, immutable, old.version.clone())
        });
        sealed.expect("`exchange` calls once")
    }

    /// Returns the current configuration.
    pub fn settings(&self) -> Arc<FamilyConfig> {
        self.pin().config().clone()
    }

    /// Replaces the configuration; `settings` differ in options only.
    pub fn change_settings(&self, settings: Arc<FamilyConfig>) {
        let _exchanging = self.exchange.lock();
        let old = self.current.load_full();
        let (immutable, version) = (old.immutable.to_vec(), old.version.clone());
        let new = SuperVersion::new(old.number() + 1, settings, old.mem.clone(), immutable, version);
        self.current.store(Arc::new(new.lacking_as(&old)));
    }

    /// Replaces the memtable with `mem`; a later install brings the tables with its entries. For
    /// recovery, before any reads.
    pub fn replace_memtable(&self, mem: Arc<MemTable>) {
        self.exchange(|old| (mem, old.immutable.to_vec(), old.version.clone()));
    }

    /// Replaces memtables (newest first) and tree. For a secondary instance.
    pub fn replace(&self, mem: Arc<MemTable>, immutable: Vec<Arc<MemTable>>, version: Arc<Version>) {
        self.exchange(|_| (mem, immutable, version));
    }

    /// Replaces the tree with `version` and drops the sealed memtables in `flushed`, whose entries
    /// are in it. `ingested` is the first sequence number at which readers must see the ingested
    /// files.
    pub fn install(&self, version: Arc<Version>, flushed: &[Arc<MemTable>], ingested: Option<SeqNo>) {
        let parts = |old: &SuperVersion| {
            let stays = |mem: &&Arc<MemTable>| !flushed.iter().any(|gone| Arc::ptr_eq(gone, mem));
            (old.mem.clone(), old.immutable.iter().filter(stays).cloned().collect(), version)
        };
        self.exchange_with(parts, ingested);
        flushed.iter().for_each(|memtable| memtable.flushed());
    }

    /// Returns the versions in use, the current one last.
    pub fn live_versions(&self) -> Vec<Arc<Version>> {
        self.exchange.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Marks the family as dropped: no more writes and jobs. Existing reads continue.
    pub fn set_dropped(&self) {
        // Ordering: a flag only; callers that must not miss it take the lock that orders writes.
        self.dropped.store(true, Ordering::Release);
        self.pin().memtables().for_each(|memtable| memtable.flushed());
    }

    /// Returns true if the family is dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Announces the ingestion of a file whose entries get no sequence numbers of their own; `seq`
    /// is the one allocated for the file.
    pub fn note_unnumbered(&self, seq: SeqNo) {
        self.unnumbered_through.fetch_max(seq.0, Ordering::Release);
    }

    /// Returns the largest sequence number allocated since the open to an ingested file whose
    /// entries have no numbers of their own; 0 if none. Any key may have been written up to it,
    /// although the key's entries have smaller numbers.
    pub fn unnumbered_through(&self) -> SeqNo {
        SeqNo(self.unnumbered_through.load(Ordering::Acquire))
    }

    fn exchange(
        &self,
        next: impl FnOnce(&SuperVersion) -> (Arc<MemTable>, Vec<Arc<MemTable>>, Arc<Version>),
    ) {
        self.exchange_with(next, None);
    }

    fn exchange_with(
        &self,
        next: impl FnOnce(&SuperVersion) -> (Arc<MemTable>, Vec<Arc<MemTable>>, Arc<Version>),
        ingested: Option<SeqNo>,
    ) {
        let mut versions = self.exchange.lock();
        let old = self.current.load_full();
        let (mem, immutable, version) = next(&old);
        if !Arc::ptr_eq(&version, old.version()) {
            versions.retain(|version| version.strong_count() > 0);
            versions.push(Arc::downgrade(&version));
        }
        let new = SuperVersion::new(old.number() + 1, old.config().clone(), mem, immutable, version);
        match ingested {
            None => self.current.store(Arc::new(new.lacking_as(&old))),
            Some(seq) => {
                self.current.store(Arc::new(new));
                old.lacks_from(seq);
            }
        }
    }
}

/// The open column families of a database, by id. Readers take no lock.
#[derive(Debug)]
pub struct Families {
    open: ArcSwap<Vec<Arc<Family>>>,
    /// Lock: held while families are added or removed.
    exchange: Mutex<()>,
}

impl Families {
    /// Takes families in any order.
    pub fn new(mut families: Vec<Arc<Family>>) -> Self {
        families.sort_by_key(|family| family.id());
        Self { open: ArcSwap::from_pointee(families), exchange: Mutex::new(()) }
    }

    /// Returns all open families, by id.
    pub fn all(&self) -> Arc<Vec<Arc<Family>>> {
        self.open.load_full()
    }

    /// Returns the largest `write_buffer_size` of all families, in bytes; 0 without families.
    pub fn largest_write_buffer(&self) -> usize {
        let sizes = self.all();
        sizes.iter().map(|family| family.pin().config().options.write_buffer_size).max().unwrap_or(0)
    }

    /// Returns the open family with this id.
    pub fn get(&self, id: ColumnFamilyId) -> Option<Arc<Family>> {
        let open = self.open.load();
        let index = open.binary_search_by_key(&id, |family| family.id()).ok()?;
        Some(open[index].clone())
    }

    /// Pins the current superversion of an open family; see [`Family::pin`].
    #[inline]
    pub fn pin(&self, id: ColumnFamilyId) -> Option<Guard<Arc<SuperVersion>>> {
        let open = self.open.load();
        // The default family is first and checked first because most writes go to it.
        let index = match open.first() {
            Some(first) if first.id() == id => 0,
            _ => open.binary_search_by_key(&id, |family| family.id()).ok()?,
        };
        Some(open[index].pin())
    }

    /// Calls `with` with an open family, which it must not keep.
    #[inline]
    pub fn with(&self, id: ColumnFamilyId, with: impl FnOnce(&Arc<Family>)) {
        let open = self.open.load();
        if let Ok(index) = open.binary_search_by_key(&id, |family| family.id()) {
            with(&open[index]);
        }
    }

    /// Returns the open family with this name.
    pub fn named(&self, name: &str) -> Option<Arc<Family>> {
        self.open.load().iter().find(|family| family.config.name == name).cloned()
    }

    /// Adds a family; its id must be unused, past families included.
    pub fn add(&self, family: Arc<Family>) {
        let _exchanging = self.exchange.lock();
        let mut families = Vec::clone(&self.open.load());
        let place = families.partition_point(|other| other.id() < family.id());
        assert!(families.get(place).is_none_or(|other| other.id() != family.id()), "an id is given once");
        families.insert(place, family);
        self.open.store(Arc::new(families));
    }

    /// Removes a family and marks it as dropped.
    pub fn remove(&self, id: ColumnFamilyId) -> Option<Arc<Family>> {
        let _exchanging = self.exchange.lock();
        let mut families = Vec::clone(&self.open.load());
        let index = families.binary_search_by_key(&id, |family| family.id()).ok()?;
        let removed = families.remove(index);
        removed.set_dropped();
        self.open.store(Arc::new(families));
        Some(removed)
    }
}

impl ColumnFamily {
    /// Returns the family's name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Returns the family's id, as in logs and the MANIFEST.
    pub fn id(&self) -> u32 {
        self.0.config.id.0
    }

    /// Returns the current options.
    pub fn options(&self) -> karst_base::options::ColumnFamilyOptions {
        self.0.settings().options.clone()
    }

    /// Returns the comparator of its keys.
    pub fn comparator(&self) -> &karst_format::comparator::Comparator {
        &self.0.config.comparator
    }

    /// Returns the family's merge operator.
    ///
    /// # Errors
    /// No operator is configured, or OPTIONS names one that is neither built in nor supplied.
    pub fn merge_operator(
        &self,
    ) -> karst_base::error::Result<Arc<dyn karst_base::merge_operator::MergeOperator>> {
        self.0.config.merge_operator().cloned()
    }

    /// Returns true if both are of the same open database.
    pub fn is_beside(&self, other: &ColumnFamily) -> bool {
        self.0.database == other.0.database
    }

    /// Returns the name of its comparator.
    pub fn comparator_name(&self) -> &str {
        self.0.config.comparator.name()
    }
}
