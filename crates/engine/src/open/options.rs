//! Options of an opening: the user's changes, applied over the OPTIONS file.
//!
//! In: changes to options by field or by name, and objects that no file can hold: environment,
//! statistics, caches, comparators and other instances. Out: the options of the database and of
//! each column family, resolved against the state found on disk.
//!
//! Changes rather than values, because a plain struct could not distinguish "set to the default"
//! from "not set", and an option that is not set must keep its value from the OPTIONS file.

use super::cache::BlockCache;
use super::readable_by::Release;
use karst_base::compaction_filter::{CompactionFilter, CompactionFilterFactory};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::events::{EventListener, InfoLog, Logger};
use karst_base::merge_operator::MergeOperator;
use karst_base::options::{
    BlockBasedTableOptions, ColumnFamilyOptions, CompactOnDeletion, DbOptions, Instances, OptionError,
    OptionSet,
};
use karst_base::pacing::{RateLimiter, WriteBufferManager};
use karst_base::sst_file_manager::SstFileManager;
use karst_base::sst_partitioner::SstPartitionerFactory;
use karst_base::stats::Statistics;
use karst_base::table_properties_collector::TablePropertiesCollectorFactory;
use karst_base::ttl::TimeToLive;
use karst_format::comparator::Comparator;
use karst_format::options::{Object, OptionsFile, UnknownOptions, did_you_mean};
use karst_format::slice_transform::PrefixExtractor;
use karst_io::{Env, report};
use karst_mem::CacheOptions;
use karst_storage::file_checksum::{self, FileChecksumGenFactory};
use karst_storage::open_files::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

type Change<T> = Arc<dyn Fn(&mut T) -> std::result::Result<(), OptionError> + Send + Sync>;

/// Reaction to a newest OPTIONS file that cannot be read or has invalid options. RocksDB's caller
/// passes all options itself, so such a file never prevents an opening there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedOptions {
    /// Do not open; the error names remedies.
    #[default]
    Refuse,
    /// Use the newest older OPTIONS file that is readable, and refuse if there is no such file. The
    /// LOG file names it.
    UseOlder,
    /// Use no OPTIONS file: the options are RocksDB's defaults and the caller's changes, which
    /// therefore must include everything the database needs (its merge operator, for example).
    Ignore,
}

impl std::str::FromStr for DamagedOptions {
    type Err = Error;

    /// Parses `refuse`, `use_older` or `ignore`, the values of the tools' option.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "refuse" => Ok(DamagedOptions::Refuse),
            "use_older" => Ok(DamagedOptions::UseOlder),
            "ignore" => Ok(DamagedOptions::Ignore),
            _ => Err(Error::invalid_argument(format!(
                "damaged_options: {text:?}; there are refuse, use_older and ignore"
            ))),
        }
    }
}

/// Returns an error for more paths than the MANIFEST can represent.
fn check_cf_paths(own: &[DbPath]) -> Result<()> {
    match own.len() {
        0..=4 => Ok(()),
        more => Err(Error::not_supported(format!("{more} cf_paths; four are the most"))),
    }
}

/// A directory of tables; see [`Options::db_paths`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbPath {
    /// The directory.
    pub path: PathBuf,
    /// Bytes that the directory should hold. Files that fit into no path go to the last one
    /// regardless.
    pub target_size: u64,
}

impl DbPath {
    /// Returns a path with this target size in bytes.
    pub fn new(path: impl Into<PathBuf>, target_size: u64) -> DbPath {
        DbPath { path: path.into(), target_size }
    }
}

/// Options of an opening: changes to the database's own OPTIONS file, and to RocksDB's defaults for
/// options that it lacks. Start from [`Options::new`].
///
/// | to change | call |
/// |---|---|
/// | an option of the database, such as `create_if_missing` | [`db`](Self::db), with a field of [`DbOptions`] |
/// | an option of all column families | [`column_families`](Self::column_families), with a field of [`ColumnFamilyOptions`] |
/// | an option of one column family | [`column_family`](Self::column_family) |
/// | an option by RocksDB's name, or an option string | [`set`](Self::set), [`set_all`](Self::set_all) |
/// | the block cache | [`block_cache_bytes`](Self::block_cache_bytes), [`block_cache`](Self::block_cache) |
/// | the oldest release of RocksDB that can read the files | [`readable_by`](Self::readable_by) |
/// | a cache of values in blob files | [`blob_cache`](Self::blob_cache) |
/// | an object that no file can hold | the call of that name: a merge operator, a comparator, a listener, ... |
///
/// Changes are applied in call order. When the database is opened for writing, its new OPTIONS file
/// has the changed options, so that the next opening finds them; `create_if_missing`,
/// `error_if_exists` and `create_missing_column_families` apply to one opening only.
///
/// ```
/// # use karst_engine as karstdb;
/// use karstdb::Options;
/// let options = Options::new()
///     .db(|db| {
///         db.create_if_missing = true;
///         db.max_open_files = 500;
///     })
///     .column_families(|cf| cf.table_factory.block_based.cache_index_and_filter_blocks = true)
///     .set("use_direct_reads", "true")?
///     .block_cache_bytes(256 << 20);
/// # Ok::<(), karstdb::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Options {
    env: Option<Env>,
    statistics: Option<Arc<Statistics>>,
    block_cache: Option<BlockCache>,
    block_cache_bytes: Option<usize>,
    /// By column family name; `None` for families without their own.
    blob_caches: BTreeMap<Option<String>, BlockCache>,
    ignore_unknown_options: bool,
    ignore_options_file: bool,
    damaged_options: DamagedOptions,
    readable_by: Option<Release>,
    rate_limiter: Option<RateLimiter>,
    write_buffers: Option<WriteBufferManager>,
    space: Option<SstFileManager>,
    listeners: Vec<Arc<dyn EventListener>>,
    logger: Option<Arc<dyn Logger>>,
    file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    paths: Vec<DbPath>,
    /// By column family name; `None` for families without their own.
    family_paths: BTreeMap<Option<String>, Vec<DbPath>>,
    write_prepared: bool,
    one_memory_budget: bool,
    stopped_write_timeout: Option<Duration>,
    db: Vec<Change<DbOptions>>,
    /// By column family name, `None` for all of them; each with its position in the order of
    /// changes.
    families: BTreeMap<Option<String>, Vec<(usize, Change<ColumnFamilyOptions>)>>,
    instances: BTreeMap<Option<String>, Instances>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("env", &self.env)
            .field("statistics", &self.statistics)
            .field("block_cache_bytes", &self.block_cache_bytes)
            .field("changes", &(self.db.len() + self.family_changes()))
            .field("instances", &self.instances)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Returns options without changes: the database's OPTIONS file, and RocksDB's defaults for
    /// options that it lacks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the environment: files, clock, threads, I/O channels. Default: the operating system's,
    /// one for each database.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Collects statistics. Default: none are collected.
    #[must_use]
    pub fn statistics(mut self, statistics: Arc<Statistics>) -> Self {
        self.statistics = Some(statistics);
        self
    }

    /// Sets the block cache, which several databases may share. Default: one of
    /// [`Options::block_cache_bytes`] for this database.
    #[must_use]
    pub fn block_cache(mut self, cache: BlockCache) -> Self {
        self.block_cache = Some(cache);
        self
    }

    /// Sets the capacity of the block cache in bytes; 0 caches nothing. Default: 32 MiB, like in
    /// RocksDB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: usize) -> Self {
        self.block_cache_bytes = Some(bytes);
        self
    }

    /// Sets the cache of a column family's values in blob files, like RocksDB's `blob_cache`;
    /// `None` for all families without their own, including new ones. Families and databases may
    /// share it, and it may be the block cache. Default: none, unless the option `blob_cache` makes
    /// a family create its own.
    #[must_use]
    pub fn blob_cache(mut self, family: Option<&str>, cache: BlockCache) -> Self {
        self.blob_caches.insert(family.map(str::to_owned), cache);
        self
    }

    /// Makes the block cache's capacity bound more than blocks: also memtables of a database that
    /// is open for writing (unless a [`write_buffer_manager`](Self::write_buffer_manager) is set,
    /// which decides that itself), the metadata of open tables, reads in flight, iterators'
    /// readahead, and buffers of flushes and compactions. Blocks are evicted to make room; if that
    /// is impossible no operation is refused, but iterators read ahead less when half of the
    /// capacity is used for other things than blocks. The memtables of all column families together
    /// are limited to `db_write_buffer_size`, or half of the capacity if that is 0: the largest are
    /// flushed when they come near it, and writers wait while unflushed memtables use all of it.
    /// [`BlockCache`] reports the usage by kind. Default false.
    #[must_use]
    pub fn one_memory_budget(mut self, one: bool) -> Self {
        self.one_memory_budget = one;
        self
    }

    /// Limits the write rate of flushes and compactions; several databases may share the limiter.
    /// Default: no limit.
    #[must_use]
    pub fn rate_limiter(mut self, limiter: RateLimiter) -> Self {
        self.rate_limiter = Some(limiter);
        self
    }

    /// Sets the budget of memtables, which several databases may share. Default: one of
    /// `db_write_buffer_size` for this database.
    #[must_use]
    pub fn write_buffer_manager(mut self, manager: WriteBufferManager) -> Self {
        self.write_buffers = Some(manager);
        self
    }

    /// Limits the space of tables and blob files, and the removal rate of obsolete files; several
    /// databases may share the manager. No effect on a database that is opened for reading. No file
    /// records it. Default: no limits, and obsolete files are removed at once.
    #[must_use]
    pub fn sst_file_manager(mut self, manager: SstFileManager) -> Self {
        self.space = Some(manager);
        self
    }

    /// Sets how long a write waits while writers are stopped and the flush or compaction that would
    /// unblock them keeps failing, for example on a full disk: then the write returns that job's
    /// error. A write's own `timeout` takes precedence. `Duration::MAX` waits indefinitely, like
    /// RocksDB; waits for jobs that succeed are never limited. No file records it. Default: 10
    /// seconds.
    #[must_use]
    pub fn stopped_write_timeout(mut self, timeout: Duration) -> Self {
        self.stopped_write_timeout = Some(timeout);
        self
    }

    /// Adds a listener for background events.
    #[must_use]
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Sets a logger that receives the lines of LOG instead of the file, like RocksDB's `info_log`;
    /// no LOG is created then. Several databases may share it. No file records it. A database that
    /// is open for reading has no LOG, and reports options without effect to a logger. Default:
    /// none, and LOG is written.
    #[must_use]
    pub fn logger(mut self, logger: Arc<dyn Logger>) -> Self {
        self.logger = Some(logger);
        self
    }

    /// Sets the factory of checksums of whole files, tables and blob files, which the MANIFEST
    /// records; it replaces the one that `file_checksum_gen_factory` names. Default: the named one,
    /// or none.
    ///
    /// OPTIONS records the factory's name. Openings for writing must pass the factory again, or
    /// `file_checksum_gen_factory=nullptr`.
    #[must_use]
    pub fn file_checksum_gen_factory(mut self, factory: Arc<dyn FileChecksumGenFactory>) -> Self {
        self.file_checksums = Some(factory);
        self
    }

    /// Accepts an OPTIONS file with unknown options, which another engine or a fork may write.
    /// Default: such a file is refused unless a RocksDB newer than the newest known release wrote
    /// it.
    #[must_use]
    pub fn ignore_unknown_options(mut self, ignore: bool) -> Self {
        self.ignore_unknown_options = ignore;
        self
    }

    /// Sets the reaction to a newest OPTIONS file that cannot be read or has invalid options.
    /// Default: refuse, and name remedies.
    #[must_use]
    pub fn damaged_options(mut self, choice: DamagedOptions) -> Self {
        self.damaged_options = choice;
        self
    }

    /// Ignores the OPTIONS file: the options are RocksDB's defaults and the changes made here.
    /// Default false.
    #[must_use]
    pub fn ignore_options_file(mut self, ignore: bool) -> Self {
        self.ignore_options_file = ignore;
        self
    }

    /// Writes only files that this release of RocksDB, such as `"7.8"`, and later ones can read:
    /// limits `format_version` to 5 before RocksDB 8.6 and to 6 before 10.4, and turns off
    /// `track_and_verify_wals`, `separate_key_value_in_data_block` and `uniform_cv_threshold` if
    /// the release does not know them. It overrides every other option, from the OPTIONS file or
    /// the caller.
    ///
    /// It applies to files written from now on. No file records it; the limited options are
    /// recorded in OPTIONS. Pass it to
    /// [`Db::create_column_family`](crate::Db::create_column_family) too. `docs/downgrade.md`
    /// describes the downgrade of a database with existing tables. Default: RocksDB 8.6 and later
    /// can read the files.
    ///
    /// ```
    /// # use karst_engine as karstdb;
    /// # use karstdb::Options;
    /// let options = Options::new().db(|db| db.create_if_missing = true).readable_by("7.8")?;
    /// assert!(Options::new().readable_by("6.29").is_err());
    /// # Ok::<(), karstdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `release` is no RocksDB release from 7.8 to 11.8.
    pub fn readable_by(mut self, release: &str) -> Result<Self> {
        self.readable_by = Some(Release::parse(release)?);
        Ok(self)
    }

    /// Sets the directories of tables and blob files, by path id, instead of the database's own,
    /// like RocksDB's `db_paths`: at most four. Flushes and blob files go to the first. A
    /// compaction goes to the first path in which its level, with the levels above it, is within
    /// the target sizes; with universal compaction to the first that has room for the run and for
    /// later ones until it is merged again; and to the last if none has. Existing tables stay in
    /// their path until they are compacted. With several paths levels have fixed sizes, like in
    /// RocksDB.
    ///
    /// The database's directory should be among them (usually first) if it has tables. No file
    /// records them: pass the same ones at every opening. An opening for writing creates missing
    /// ones. Default: only the database's directory.
    #[must_use]
    pub fn db_paths(mut self, paths: impl IntoIterator<Item = DbPath>) -> Self {
        self.paths = paths.into_iter().collect();
        self
    }

    /// Sets the directories of a column family's tables and blob files, instead of those of
    /// [`db_paths`](Self::db_paths), like RocksDB's `cf_paths`; `None` for all families without
    /// their own, including new ones. The rules of `db_paths` apply to the bytes of the family
    /// alone. Empty: those of `db_paths`.
    ///
    /// Every call that opens the database needs them, including
    /// [`Db::destroy`](crate::Db::destroy).
    #[must_use]
    pub fn cf_paths(mut self, family: Option<&str>, paths: impl IntoIterator<Item = DbPath>) -> Self {
        self.family_paths.insert(family.map(str::to_owned), paths.into_iter().collect());
        self
    }

    /// Makes transactions insert when they are prepared, RocksDB's policy WritePrepared;
    /// `karst_txn::TransactionDb` sets it. No file records it; logs with prepared transactions
    /// record their policy. No effect on a database that is opened for reading. Default false.
    #[must_use]
    pub fn write_prepared(mut self, write_prepared: bool) -> Self {
        self.write_prepared = write_prepared;
        self
    }

    /// Changes options of the database.
    #[must_use]
    pub fn db(mut self, change: impl Fn(&mut DbOptions) + Send + Sync + 'static) -> Self {
        self.db.push(Arc::new(move |options| {
            change(options);
            Ok(())
        }));
        self
    }

    /// Changes options of every column family.
    #[must_use]
    pub fn column_families(
        mut self,
        change: impl Fn(&mut ColumnFamilyOptions) + Send + Sync + 'static,
    ) -> Self {
        self.change_families(None, infallible(change));
        self
    }

    /// Changes options of one column family.
    #[must_use]
    pub fn column_family(
        mut self,
        name: impl Into<String>,
        change: impl Fn(&mut ColumnFamilyOptions) + Send + Sync + 'static,
    ) -> Self {
        self.change_families(Some(name.into()), infallible(change));
        self
    }

    /// Sets one option by RocksDB's name: of the database, or of every column family or its tables.
    ///
    /// # Errors
    /// The name is unknown, or the text is no valid value.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = (name.to_owned(), value.to_owned());
        if DbOptions::entry(&name).is_some() || DbOptions::RETIRED.contains(&&*name) {
            DbOptions::default().set(&name, &value).map_err(option_error)?;
            self.db.push(Arc::new(move |options| options.set(&name, &value).map(|_| ())));
            return Ok(self);
        }
        set_in_family(&mut ColumnFamilyOptions::default(), &name, &value).map_err(option_error)?;
        self.change_families(None, Arc::new(move |options| set_in_family(options, &name, &value)));
        Ok(self)
    }

    /// Sets options from an option string, `"name=value;name={nested=value}"`; see
    /// [`Options::set`].
    ///
    /// # Errors
    /// Those of [`Options::set`]; the text is malformed.
    pub fn set_all(self, options: &str) -> Result<Self> {
        let pairs = karst_format::options::text::split(options).map_err(option_error)?;
        pairs.into_iter().try_fold(self, |options, (name, value)| options.set(name, value))
    }

    /// Sets the comparator of a column family, if it is not built in; `None` for all families.
    #[must_use]
    pub fn comparator(mut self, family: Option<&str>, comparator: Comparator) -> Self {
        self.instances_of(family).comparator = Some(comparator);
        self
    }

    /// Sets the merge operator of a column family, instead of the one in OPTIONS; `None` for all
    /// families.
    #[must_use]
    pub fn merge_operator(mut self, family: Option<&str>, operator: Arc<dyn MergeOperator>) -> Self {
        self.instances_of(family).merge_operator = Some(operator);
        self
    }

    /// Sets the prefix extractor of a column family, instead of the one in OPTIONS; `None` for all
    /// families.
    #[must_use]
    pub fn prefix_extractor(mut self, family: Option<&str>, extractor: PrefixExtractor) -> Self {
        self.instances_of(family).prefix_extractor = Some(extractor);
        self
    }

    /// Sets the user's compaction filter; `None` for all families.
    #[must_use]
    pub fn compaction_filter(mut self, family: Option<&str>, filter: Arc<dyn CompactionFilter>) -> Self {
        self.instances_of(family).compaction_filter = Some(filter);
        self
    }

    /// Sets the factory of compaction filters, called for each part of each job, for families
    /// without a filter of their own. `None` for all families.
    #[must_use]
    pub fn compaction_filter_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn CompactionFilterFactory>,
    ) -> Self {
        self.instances_of(family).compaction_filter_factory = Some(factory);
        self
    }

    /// Sets the time to live of entries; `None` for all families.
    pub(crate) fn time_to_live(mut self, family: Option<&str>, ttl: Arc<TimeToLive>) -> Self {
        self.instances_of(family).ttl = Some(ttl);
        self
    }

    /// Sets the factory of partitioners, which end the tables of compactions, instead of the one in
    /// OPTIONS; `None` for all families.
    #[must_use]
    pub fn sst_partitioner_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn SstPartitionerFactory>,
    ) -> Self {
        self.instances_of(family).sst_partitioner_factory = Some(factory);
        self
    }

    /// Adds a factory of collectors, which add properties to tables from their entries; `None` for
    /// all families without their own. May be called several times; all collectors see every table.
    /// OPTIONS does not name them.
    #[must_use]
    pub fn table_properties_collector_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn TablePropertiesCollectorFactory>,
    ) -> Self {
        self.instances_of(family).collectors.push(factory);
        self
    }

    /// Makes tables with many deletions compact before others, in all column families.
    #[must_use]
    pub fn compact_on_deletion(self, rule: CompactOnDeletion) -> Self {
        self.column_families(move |family| family.table_properties_collectors.0 = rule.option_text())
    }

    fn change_families(&mut self, family: Option<String>, change: Change<ColumnFamilyOptions>) {
        let place = self.family_changes();
        self.families.entry(family).or_default().push((place, change));
    }

    fn family_changes(&self) -> usize {
        self.families.values().map(Vec::len).sum()
    }

    fn instances_of(&mut self, family: Option<&str>) -> &mut Instances {
        self.instances.entry(family.map(str::to_owned)).or_default()
    }

    /// Returns the instances supplied for a column family.
    pub(crate) fn instances_for(&self, family: &str) -> Instances {
        let own = self.instances.get(&Some(family.to_owned())).cloned().unwrap_or_default();
        own.or(self.instances.get(&None).unwrap_or(&Instances::default()))
    }

    /// Returns the names of column families with changes or instances of their own.
    pub(crate) fn named_families(&self) -> impl Iterator<Item = &str> {
        let changed = self.families.keys().filter_map(|name| name.as_deref());
        changed.chain(self.instances.keys().filter_map(|name| name.as_deref()))
    }

    pub(crate) fn is_write_prepared(&self) -> bool {
        self.write_prepared
    }

    pub(crate) fn has_one_memory_budget(&self) -> bool {
        self.one_memory_budget
    }

    pub(crate) fn stopped_writes_patience(&self) -> Duration {
        self.stopped_write_timeout.unwrap_or(Duration::from_secs(10))
    }

    pub(crate) fn limiter(&self) -> Option<RateLimiter> {
        self.rate_limiter.clone()
    }

    pub(crate) fn write_buffers(&self) -> Option<WriteBufferManager> {
        self.write_buffers.clone()
    }

    pub(crate) fn file_manager(&self) -> Option<SstFileManager> {
        self.space.clone()
    }

    pub(crate) fn event_listeners(&self) -> Vec<Arc<dyn EventListener>> {
        self.listeners.clone()
    }

    /// Returns the user's logger as a log.
    pub(crate) fn users_log(&self) -> Option<InfoLog> {
        self.logger.clone().map(InfoLog::of)
    }

    pub(crate) fn environment(&self) -> Env {
        self.env.clone().unwrap_or_else(Env::posix)
    }

    pub(crate) fn statistics_or_none(&self) -> Option<&Arc<Statistics>> {
        self.statistics.as_ref()
    }

    /// Returns the cache to use: the supplied one, or a new one; `from_options` is the default
    /// column family's choice.
    pub(crate) fn cache(&self, from_options: Option<CacheOptions>) -> BlockCache {
        if let Some(cache) = &self.block_cache {
            return cache.clone();
        }
        let mut options = from_options.unwrap_or_default();
        options.capacity_bytes = self.block_cache_bytes.unwrap_or(options.capacity_bytes);
        BlockCache::with_options(options)
    }

    /// Returns the directories of table files by path id, for a database in `path`.
    pub(crate) fn directories(&self, path: &Path) -> Vec<PathBuf> {
        match self.paths.is_empty() {
            true => vec![path.to_owned()],
            false => self.paths.iter().map(|place| place.path.clone()).collect(),
        }
    }

    /// Returns the target size of each of these directories in bytes; empty if there is only the
    /// database's own.
    ///
    /// # Errors
    /// There are more paths than the MANIFEST can represent.
    pub(crate) fn path_target_sizes(&self) -> Result<Vec<u64>> {
        match self.paths.len() {
            0..=4 => Ok(self.paths.iter().map(|place| place.target_size).collect()),
            more => Err(Error::not_supported(format!("{more} db_paths; four are the most"))),
        }
    }

    /// Returns the target sizes in bytes of a column family's directories, by path id; empty if it
    /// has only the database's own directory.
    ///
    /// # Errors
    /// There are more paths than the MANIFEST can represent.
    pub(crate) fn path_target_sizes_of(&self, family: &str) -> Result<Vec<u64>> {
        match self.paths_of(family) {
            [] => self.path_target_sizes(),
            own => {
                check_cf_paths(own)?;
                Ok(own.iter().map(|place| place.target_size).collect())
            }
        }
    }

    /// Returns an error for more paths than the MANIFEST can represent.
    ///
    /// # Errors
    /// `NotSupported`: there are more.
    pub(crate) fn check_paths(&self) -> Result<()> {
        self.path_target_sizes()?;
        self.family_paths.values().try_for_each(|own| check_cf_paths(own))
    }

    /// Returns the options with a unique spelling of each directory: that of the database's own,
    /// `path`, if it is the same directory, otherwise the first spelling.
    ///
    /// Files are matched to trees by their path, so under another spelling of its directory a live
    /// file would be taken for a leftover of a crash.
    pub(crate) fn spelled_once(&self, env: &Env, path: &Path) -> Options {
        let mut spellings = BTreeMap::from([(env.fs().canonical(path), path.to_owned())]);
        let mut spell = |place: &mut DbPath| {
            let spelling = spellings.entry(env.fs().canonical(&place.path));
            place.path = spelling.or_insert_with(|| place.path.clone()).clone();
        };
        let mut same = self.clone();
        same.paths.iter_mut().for_each(&mut spell);
        same.family_paths.values_mut().flatten().for_each(spell);
        same
    }

    /// Returns the cache of blob values that was supplied for a column family.
    pub(crate) fn blob_cache_of(&self, family: &str) -> Option<BlockCache> {
        let own = self.blob_caches.get(&Some(family.to_owned()));
        own.or_else(|| self.blob_caches.get(&None)).cloned()
    }

    /// Returns the paths that were set for a column family; empty if none were.
    fn paths_of(&self, family: &str) -> &[DbPath] {
        let own = self.family_paths.get(&Some(family.to_owned())).filter(|paths| !paths.is_empty());
        own.or_else(|| self.family_paths.get(&None)).map_or(&[], Vec::as_slice)
    }

    /// Returns the directories of a column family's files by path id, for a database in `path`.
    pub(crate) fn directories_of(&self, path: &Path, family: &str) -> Vec<PathBuf> {
        match self.paths_of(family) {
            [] => self.directories(path),
            own => own.iter().map(|place| place.path.clone()).collect(),
        }
    }

    /// Returns `shared` with a column family's own directories.
    ///
    /// # Errors
    /// There are more paths than the MANIFEST can represent.
    pub(crate) fn shared_of(&self, shared: &Arc<Shared>, family: &str) -> Result<Arc<Shared>> {
        let own = self.paths_of(family);
        check_cf_paths(own)?;
        if own.is_empty() {
            return Ok(shared.clone());
        }
        let sizes = own.iter().map(|place| place.target_size).collect();
        let directories = own.iter().map(|place| place.path.clone()).collect();
        Ok(Arc::new(shared.in_directories(directories, sizes)))
    }

    /// Returns the directories of all column families in these options, each with its path id.
    pub(crate) fn all_directories(&self, path: &Path) -> Vec<(u8, PathBuf)> {
        let own = self.family_paths.values().map(|paths| paths.iter().map(|at| at.path.clone()).collect());
        let all = std::iter::once(self.directories(path)).chain(own);
        let each = all.flat_map(|directories: Vec<PathBuf>| (0..=u8::MAX).zip(directories));
        each.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn reads_options_file(&self) -> bool {
        !self.ignore_options_file
    }

    pub(crate) fn damaged_options_choice(&self) -> DamagedOptions {
        self.damaged_options
    }

    /// Parses an OPTIONS file, with unknown options treated as these options specify.
    pub(crate) fn parse_file(&self, path: &Path, bytes: &[u8]) -> Result<OptionsFile> {
        let unknown = if self.ignore_unknown_options {
            UnknownOptions::Keep
        } else {
            UnknownOptions::RefuseUnlessNewer
        };
        let file = OptionsFile::parse(bytes, unknown).map_err(|e| {
            // Compat: unreadable text is a corruption; unknown options may be another engine's.
            let kind = match e.kind {
                karst_format::options::OptionErrorKind::Unknown => ErrorKind::NotSupported,
                _ => ErrorKind::Corruption,
            };
            Error::with_source(kind, format!("{}, {e}", path.display()), e)
        })?;
        for option in &file.unknown {
            let (section, name) = (&option.section, &option.name);
            report!(warn, file = %path.display(), line = option.line, "unknown option {name} in [{section}]");
        }
        Ok(file)
    }

    /// Applies the changes to the database options `options`, which come from a file or a new
    /// database.
    pub(crate) fn db_options(&self, mut options: DbOptions) -> Result<DbOptions> {
        for change in &self.db {
            change(&mut options).map_err(option_error)?;
        }
        if let Some(factory) = &self.file_checksums {
            options.file_checksum_gen_factory = Object::new(factory.name());
        }
        if let Some(release) = self.readable_by {
            release.limit(&mut options);
        }
        Ok(options)
    }

    /// Returns the factory of file checksums for a database with these options.
    ///
    /// # Errors
    /// The options name a factory that is neither built in nor supplied.
    pub(crate) fn file_checksums(
        &self,
        options: &DbOptions,
    ) -> Result<Option<Arc<dyn FileChecksumGenFactory>>> {
        file_checksum::factory(options, self.file_checksums.as_ref())
    }

    /// Applies the changes to the column family options `options`, which come from a file or a new
    /// family.
    pub(crate) fn family_options(
        &self,
        mut options: ColumnFamilyOptions,
        family: &str,
    ) -> Result<ColumnFamilyOptions> {
        let of = |name: Option<String>| self.families.get(&name).map_or(&[][..], Vec::as_slice);
        let (all, own) = (of(None), of(Some(family.to_owned())));
        let mut changes: Vec<_> = all.iter().chain(own).collect();
        changes.sort_by_key(|(place, _)| *place);
        for (_, change) in changes {
            change(&mut options).map_err(option_error)?;
        }
        if let Some(release) = self.readable_by {
            release.limit_family(&mut options);
        }
        Ok(options)
    }
}

/// Default format version of tables, readable by RocksDB releases since 8.6.
const FORMAT_VERSION: u32 = 6;

/// Returns the default options of a new column family.
pub(crate) fn new_family_options() -> ColumnFamilyOptions {
    let mut options = ColumnFamilyOptions::default();
    options.table_factory.block_based.format_version = FORMAT_VERSION;
    options
}

fn infallible(
    change: impl Fn(&mut ColumnFamilyOptions) + Send + Sync + 'static,
) -> Change<ColumnFamilyOptions> {
    Arc::new(move |options| {
        change(options);
        Ok(())
    })
}

/// Sets an option of a column family or of its tables.
fn set_in_family(
    options: &mut ColumnFamilyOptions,
    name: &str,
    value: &str,
) -> std::result::Result<(), OptionError> {
    let is_unknown = |e: &OptionError| e.kind == karst_format::options::OptionErrorKind::Unknown;
    let outcome = match options.set(name, value) {
        Err(e) if is_unknown(&e) => options.table_factory.block_based.set(name, value),
        outcome => outcome,
    };
    outcome.map(|_| ()).map_err(|mut e| {
        if is_unknown(&e) {
            let names = DbOptions::names().chain(ColumnFamilyOptions::names());
            let near = did_you_mean(name, names.chain(BlockBasedTableOptions::names()));
            e.what = format!(
                "neither the database nor column families nor block-based tables have this option{near}"
            );
        }
        e
    })
}

fn option_error(error: OptionError) -> Error {
    Error::with_source(ErrorKind::InvalidArgument, format!("option {error}"), error)
}
