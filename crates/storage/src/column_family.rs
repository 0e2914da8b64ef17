//! Column families: each has its own memtables, tree and options; they share log, cache and
//! sequence numbers.
//!
//! In: new memtables from the commit pipeline, new versions from flushes and compactions. Out: a
//! cheap pin of the current superversion.
//!
//! Invariant: a superversion that is installed holds everything its forerunner held, or what became
//! of it. Lock: a family's own; held to exchange the parts of its superversion, never while waiting
//! or reading.

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
    /// As it was opened: what it is called and ordered by never changes; for options see
    /// [`settings`](Self::settings).
    pub config: Arc<FamilyConfig>,
    /// How it reads its tables.
    pub tables: Arc<TableCache>,
    /// Names the database it is of.
    pub database: u64,
    /// What flushes and compactions have done since it was opened.
    pub jobs: LevelJobs,
    current: ArcSwap<SuperVersion>,
    /// Versions that somebody may still use. Lock: whoever exchanges the superversion; readers take
    /// none.
    exchange: Mutex<Vec<Weak<Version>>>,
    dropped: AtomicBool,
    /// See [`Family::unnumbered_through`].
    unnumbered_through: AtomicU64,
    /// Of a family with timestamps.
    history: Option<History>,
}

/// What a column family with timestamps has of the past.
#[derive(Debug)]
pub struct History {
    /// Lock: for a look or a change; nothing is called under it.
    full_history_ts_low: Mutex<Option<Vec<u8>>>,
    /// Lock: the same.
    trim_ts: Mutex<Option<Vec<u8>>>,
}

impl History {
    /// What was written before this timestamp may have been collected, but for the newest entry of
    /// each key; reads at earlier ones are refused.
    pub fn full_history_ts_low(&self) -> Option<Vec<u8>> {
        self.full_history_ts_low.lock().clone()
    }

    /// Sets that timestamp, which the MANIFEST has.
    pub fn set_full_history_ts_low(&self, low: Option<Vec<u8>>) {
        *self.full_history_ts_low.lock() = low;
    }

    /// Compactions drop what was written at timestamps behind this one.
    pub fn trim_ts(&self) -> Option<Vec<u8>> {
        self.trim_ts.lock().clone()
    }

    /// Sets that timestamp, for compactions that begin from now on.
    pub fn set_trim_ts(&self, timestamp: Option<Vec<u8>>) {
        *self.trim_ts.lock() = timestamp;
    }
}

impl Family {
    /// One with this superversion, of the database with this name.
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

    /// What it has of the past, if its keys have timestamps.
    #[inline]
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Its number in all files.
    pub fn id(&self) -> ColumnFamilyId {
        self.config.id
    }

    /// Pins the current superversion. Takes no lock and counts no reference; keep it for one
    /// operation, and clone the `Arc` to keep it longer.
    #[inline]
    pub fn pin(&self) -> Guard<Arc<SuperVersion>> {
        self.current.load()
    }

    /// The current superversion, for an operation that may wait.
    pub fn superversion(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }

    /// An empty memtable for it.
    pub fn new_memtable(&self) -> Arc<MemTable> {
        Arc::new(MemTable::of(self.pin().config()))
    }

    /// Ends the memtable that takes writes and puts `mem` in its place. Returns the sealed one.
    ///
    /// Lock: called under the lock that orders writes, so that no write is between the two.
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

    /// What it is read and written with now.
    pub fn settings(&self) -> Arc<FamilyConfig> {
        self.pin().config().clone()
    }

    /// Has everything from now on read and written with `settings`, which differ in options only.
    pub fn change_settings(&self, settings: Arc<FamilyConfig>) {
        let _exchanging = self.exchange.lock();
        let old = self.current.load_full();
        let (immutable, version) = (old.immutable.to_vec(), old.version.clone());
        let new = SuperVersion::new(old.number() + 1, settings, old.mem.clone(), immutable, version);
        self.current.store(Arc::new(new.lacking_as(&old)));
    }

    /// Puts `mem` in place of the memtable, whose entries are in tables that an install will bring.
    /// For recovery, when nobody reads yet.
    pub fn replace_memtable(&self, mem: Arc<MemTable>) {
        self.exchange(|old| (mem, old.immutable.to_vec(), old.version.clone()));
    }

    /// Puts other memtables, the newest first, and another tree in place of those it has. For a
    /// database that follows what another process writes.
    pub fn replace(&self, mem: Arc<MemTable>, immutable: Vec<Arc<MemTable>>, version: Arc<Version>) {
        self.exchange(|_| (mem, immutable, version));
    }

    /// Puts `version` in place of the tree, and lets go of the sealed memtables in `flushed`, whose
    /// entries are in it. `ingested` is from where on readers have to see what was ingested into
    /// it.
    pub fn install(&self, version: Arc<Version>, flushed: &[Arc<MemTable>], ingested: Option<SeqNo>) {
        let parts = |old: &SuperVersion| {
            let stays = |mem: &&Arc<MemTable>| !flushed.iter().any(|gone| Arc::ptr_eq(gone, mem));
            (old.mem.clone(), old.immutable.iter().filter(stays).cloned().collect(), version)
        };
        self.exchange_with(parts, ingested);
        flushed.iter().for_each(|memtable| memtable.flushed());
    }

    /// The versions that somebody uses, the current one last.
    pub fn live_versions(&self) -> Vec<Arc<Version>> {
        self.exchange.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Says that the family is dropped: it takes no writes and no jobs any more. Reads that hold it
    /// go on.
    pub fn set_dropped(&self) {
        // Ordering: a flag only; whoever must not miss it takes the lock that orders writes.
        self.dropped.store(true, Ordering::Release);
        self.pin().memtables().for_each(|memtable| memtable.flushed());
    }

    /// Whether it is dropped; then it takes no writes and no jobs any more.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Says that a file is about to be ingested whose entries do not get numbers of their own, of
    /// which `seq` is taken for it.
    pub fn note_unnumbered(&self, seq: SeqNo) {
        self.unnumbered_through.fetch_max(seq.0, Ordering::Release);
    }

    /// Up to this sequence number any key may have been written since the database was opened,
    /// without an entry that has such a number; 0 if none was.
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
    /// Lock: whoever adds or removes.
    exchange: Mutex<()>,
}

impl Families {
    /// These, in whatever order.
    pub fn new(mut families: Vec<Arc<Family>>) -> Self {
        families.sort_by_key(|family| family.id());
        Self { open: ArcSwap::from_pointee(families), exchange: Mutex::new(()) }
    }

    /// All of them now, by id.
    pub fn all(&self) -> Arc<Vec<Arc<Family>>> {
        self.open.load_full()
    }

    /// The largest `write_buffer_size` of all, in bytes; 0 without families.
    pub fn largest_write_buffer(&self) -> usize {
        let sizes = self.all();
        sizes.iter().map(|family| family.pin().config().options.write_buffer_size).max().unwrap_or(0)
    }

    /// The open one with this id.
    pub fn get(&self, id: ColumnFamilyId) -> Option<Arc<Family>> {
        let open = self.open.load();
        let index = open.binary_search_by_key(&id, |family| family.id()).ok()?;
        Some(open[index].clone())
    }

    /// Pins the current superversion of an open one; see [`Family::pin`].
    #[inline]
    pub fn pin(&self, id: ColumnFamilyId) -> Option<Guard<Arc<SuperVersion>>> {
        let open = self.open.load();
        // Why: most databases have one, and most writes go to the default one, which is the first.
        let index = match open.first() {
            Some(first) if first.id() == id => 0,
            _ => open.binary_search_by_key(&id, |family| family.id()).ok()?,
        };
        Some(open[index].pin())
    }

    /// Calls `with` with an open one, which it may look at but not keep.
    #[inline]
    pub fn with(&self, id: ColumnFamilyId, with: impl FnOnce(&Arc<Family>)) {
        let open = self.open.load();
        if let Ok(index) = open.binary_search_by_key(&id, |family| family.id()) {
            with(&open[index]);
        }
    }

    /// The open one with this name.
    pub fn named(&self, name: &str) -> Option<Arc<Family>> {
        self.open.load().iter().find(|family| family.config.name == name).cloned()
    }

    /// Adds a family whose id no other has or had.
    pub fn add(&self, family: Arc<Family>) {
        let _exchanging = self.exchange.lock();
        let mut families = Vec::clone(&self.open.load());
        let place = families.partition_point(|other| other.id() < family.id());
        assert!(families.get(place).is_none_or(|other| other.id() != family.id()), "an id is given once");
        families.insert(place, family);
        self.open.store(Arc::new(families));
    }

    /// Takes one out and marks it as dropped.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Its id, by which logs and the MANIFEST call it.
    pub fn id(&self) -> u32 {
        self.0.config.id.0
    }

    /// The options it is read and written with now.
    pub fn options(&self) -> karst_base::options::ColumnFamilyOptions {
        self.0.settings().options.clone()
    }

    /// The order of its keys.
    pub fn comparator(&self) -> &karst_format::comparator::Comparator {
        &self.0.config.comparator
    }

    /// What merges its operands.
    ///
    /// # Errors
    /// There is none, or OPTIONS names one that is not built in and none was supplied.
    pub fn merge_operator(
        &self,
    ) -> karst_base::error::Result<Arc<dyn karst_base::merge_operator::MergeOperator>> {
        self.0.config.merge_operator().cloned()
    }

    /// Whether it is of the same open database as `other`.
    pub fn is_beside(&self, other: &ColumnFamily) -> bool {
        self.0.database == other.0.database
    }

    /// The name of its comparator.
    pub fn comparator_name(&self) -> &str {
        self.0.config.comparator.name()
    }
}
