//! How a database is opened: what the user sets, over what its OPTIONS file says.
//!
//! In: changes to options by field or by name, and things that no file can hold: environment,
//! statistics, caches, comparators and other instances. Out: the options of the database and of
//! each column family, resolved against what was found on disk.
//!
//! Why changes rather than values: a plain struct could not tell "set to the default" from "not
//! set", and the second must leave alone what the OPTIONS file says.

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

/// What to do where the newest OPTIONS file cannot be read or says what cannot work. RocksDB's
/// caller gives all options itself, so such a file never keeps it from opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedOptions {
    /// Do not open; the error says what can be done.
    #[default]
    Refuse,
    /// Take the newest older OPTIONS file that reads well, and refuse if there is none. The LOG
    /// file says which one it was.
    UseOlder,
    /// Go without an OPTIONS file: the options are RocksDB's defaults and what the caller sets,
    /// which therefore has to be what the database needs (its merge operator, for one).
    Ignore,
}

impl std::str::FromStr for DamagedOptions {
    type Err = Error;

    /// `refuse`, `use_older` or `ignore`, as the tools have it.
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

/// Refuses more than the MANIFEST can tell apart.
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
    /// How many bytes it should hold. What fits into no other path goes to the last one all the
    /// same.
    pub target_size: u64,
}

impl DbPath {
    /// A directory that should hold so many bytes.
    pub fn new(path: impl Into<PathBuf>, target_size: u64) -> DbPath {
        DbPath { path: path.into(), target_size }
    }
}

/// How a database is opened: changes to what its own OPTIONS file says, and to RocksDB's defaults
/// where it says nothing. Start from [`Options::new`].
///
/// | to change | call |
/// |---|---|
/// | an option of the database, such as `create_if_missing` | [`db`](Self::db), with a field of [`DbOptions`] |
/// | an option of all column families | [`column_families`](Self::column_families), with a field of [`ColumnFamilyOptions`] |
/// | an option of one column family | [`column_family`](Self::column_family) |
/// | an option by RocksDB's name, or an option string | [`set`](Self::set), [`set_all`](Self::set_all) |
/// | the block cache | [`block_cache_bytes`](Self::block_cache_bytes), [`block_cache`](Self::block_cache) |
/// | which releases of RocksDB read what is written | [`readable_by`](Self::readable_by) |
/// | a cache of values in blob files | [`blob_cache`](Self::blob_cache) |
/// | what no file can hold | the call of that name: a merge operator, a comparator, a listener, ... |
///
/// Changes are made in the order in which they are given. When the database is opened for writing,
/// its new OPTIONS file has the options as changed, so that the next opening finds them;
/// `create_if_missing`, `error_if_exists` and `create_missing_column_families` hold for one opening
/// only.
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
    /// By the column family's name, `None` for those that have none of their own.
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
    /// By the column family's name, `None` for those that have none of their own.
    family_paths: BTreeMap<Option<String>, Vec<DbPath>>,
    write_prepared: bool,
    one_memory_budget: bool,
    stopped_write_timeout: Option<Duration>,
    db: Vec<Change<DbOptions>>,
    /// By the column family's name, `None` for all of them; each with its place in the order of
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
    /// What the database's OPTIONS file says, and RocksDB's defaults where it says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The environment: files, clock, threads, I/O channels. Default: the operating system's, one
    /// for each database.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Collect statistics. Default: none are collected.
    #[must_use]
    pub fn statistics(mut self, statistics: Arc<Statistics>) -> Self {
        self.statistics = Some(statistics);
        self
    }

    /// The block cache, which several databases may share. Default: one of
    /// [`Options::block_cache_bytes`] for this database.
    #[must_use]
    pub fn block_cache(mut self, cache: BlockCache) -> Self {
        self.block_cache = Some(cache);
        self
    }

    /// Capacity of the block cache in bytes; 0 caches nothing. Default: 32 MiB, as in RocksDB.
    #[must_use]
    pub fn block_cache_bytes(mut self, bytes: usize) -> Self {
        self.block_cache_bytes = Some(bytes);
        self
    }

    /// The cache of a column family's values in blob files, as RocksDB's `blob_cache`; `None` for
    /// all families that have none of their own, a new one included. Families and databases may
    /// share it, and it may be the block cache. Default: none, unless the option `blob_cache` has
    /// a family make one for itself.
    #[must_use]
    pub fn blob_cache(mut self, family: Option<&str>, cache: BlockCache) -> Self {
        self.blob_caches.insert(family.map(str::to_owned), cache);
        self
    }

    /// The block cache's capacity bounds more than blocks: also memtables of a database that is
    /// open for writing (unless a [`write_buffer_manager`](Self::write_buffer_manager) is given,
    /// which decides that itself), the metadata that open tables keep, reads in flight, what
    /// iterators read ahead, and what flushes and compactions have in memory of the files they
    /// write. Blocks are evicted to make room; nothing is refused where none can be, but iterators
    /// read ahead less when half of the capacity is taken by other things than blocks. The
    /// memtables of all column families together have `db_write_buffer_size`, or half of the
    /// capacity where that is 0: the largest are flushed when they come near it, and writers wait
    /// while those that are not flushed have all of it. [`BlockCache`] tells what takes how much.
    /// Default false.
    #[must_use]
    pub fn one_memory_budget(mut self, one: bool) -> Self {
        self.one_memory_budget = one;
        self
    }

    /// What limits how fast flushes and compactions write; several databases may share it. Default:
    /// nothing does.
    #[must_use]
    pub fn rate_limiter(mut self, limiter: RateLimiter) -> Self {
        self.rate_limiter = Some(limiter);
        self
    }

    /// The budget of memtables, which several databases may share. Default: one of
    /// `db_write_buffer_size` for this database.
    #[must_use]
    pub fn write_buffer_manager(mut self, manager: WriteBufferManager) -> Self {
        self.write_buffers = Some(manager);
        self
    }

    /// What limits how much room tables and blob files take, and how fast obsolete files are
    /// removed; several databases may share it. Without effect on a database that is opened for
    /// reading. No file records it. Default: nothing does, and obsolete files are removed at once.
    #[must_use]
    pub fn sst_file_manager(mut self, manager: SstFileManager) -> Self {
        self.space = Some(manager);
        self
    }

    /// How long a write waits while writers are stopped and the flush or compaction that would let
    /// them go on fails each time, as on a full disk: then it returns that job's error. A write's
    /// own `timeout` goes before. `Duration::MAX` for as long as it takes, as RocksDB has it; what
    /// waits for jobs that succeed always does. No file records it. Default: 10 seconds.
    #[must_use]
    pub fn stopped_write_timeout(mut self, timeout: Duration) -> Self {
        self.stopped_write_timeout = Some(timeout);
        self
    }

    /// Who else is told of what happens in the background.
    #[must_use]
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Who takes the lines of LOG in place of the file, as RocksDB's `info_log`; then no LOG is
    /// made. Several databases may have one. No file records it. A database that is open for
    /// reading has no LOG, and tells a logger which options have no effect. Default: none, and LOG
    /// is written.
    #[must_use]
    pub fn logger(mut self, logger: Arc<dyn Logger>) -> Self {
        self.logger = Some(logger);
        self
    }

    /// What makes checksums of whole files, tables and blob files, which the MANIFEST keeps; in
    /// place of what `file_checksum_gen_factory` names. Default: that, and nothing if it names
    /// nothing.
    ///
    /// OPTIONS has the factory's name. Whoever opens the database for writing has to give the
    /// factory again, or `file_checksum_gen_factory=nullptr`.
    #[must_use]
    pub fn file_checksum_gen_factory(mut self, factory: Arc<dyn FileChecksumGenFactory>) -> Self {
        self.file_checksums = Some(factory);
        self
    }

    /// Accept an OPTIONS file with options that are not known, as another engine's or a fork's may
    /// have. Default: refuse it unless a newer RocksDB than the newest one known wrote it.
    #[must_use]
    pub fn ignore_unknown_options(mut self, ignore: bool) -> Self {
        self.ignore_unknown_options = ignore;
        self
    }

    /// What to do where the newest OPTIONS file cannot be read or says what cannot work. Default:
    /// refuse, and say what can be done.
    #[must_use]
    pub fn damaged_options(mut self, choice: DamagedOptions) -> Self {
        self.damaged_options = choice;
        self
    }

    /// Do not read the OPTIONS file at all: the options are RocksDB's defaults and what is set
    /// here. Default false.
    #[must_use]
    pub fn ignore_options_file(mut self, ignore: bool) -> Self {
        self.ignore_options_file = ignore;
        self
    }

    /// What is written can be read by this release of RocksDB, such as `"7.8"`, and by later ones:
    /// limits `format_version` to 5 before RocksDB 8.6 and to 6 before 10.4, and takes back
    /// `track_and_verify_wals`, `separate_key_value_in_data_block` and `uniform_cv_threshold` where
    /// the release does not know them. It goes before every other option, whether the OPTIONS file
    /// or the caller sets that.
    ///
    /// It concerns what is written from now on. No file records it; what it has limited stands in
    /// OPTIONS. Give it to [`Db::create_column_family`](crate::Db::create_column_family) too. How a
    /// database with tables that are there already goes to an older release is told in
    /// `docs/way-down.md`. Default: RocksDB 8.6 and later read what is written.
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
    /// RocksDB has no such release from 7.8 on to 11.8.
    pub fn readable_by(mut self, release: &str) -> Result<Self> {
        self.readable_by = Some(Release::parse(release)?);
        Ok(self)
    }

    /// The directories of tables and blob files, by path id, in place of the database's own, as
    /// RocksDB's `db_paths`: four at most. Flushes and blob files go to the first. A compaction
    /// goes to the first path in which its level, with the levels above it, is within the target
    /// sizes; with universal compaction to the first that has room for the run and for what comes
    /// until it is merged again; and to the last if none has. Which tables are there already stay
    /// where they are until they are compacted. With several paths levels have fixed sizes, as in
    /// RocksDB.
    ///
    /// The database's directory should be among them (first, as a rule) if it has tables. No file
    /// records them: give the same ones at every opening. Those that are missing are made by an
    /// opening for writing. Default: only the database's directory.
    #[must_use]
    pub fn db_paths(mut self, paths: impl IntoIterator<Item = DbPath>) -> Self {
        self.paths = paths.into_iter().collect();
        self
    }

    /// The directories of a column family's tables and blob files, in place of those of
    /// [`db_paths`](Self::db_paths), as RocksDB's `cf_paths`; `None` for all families that have
    /// none of their own, a new one included. The same rules hold, by the bytes of the family
    /// alone. None given: those of `db_paths`.
    ///
    /// Everything that opens the database needs them, [`Db::destroy`](crate::Db::destroy)
    /// included.
    #[must_use]
    pub fn cf_paths(mut self, family: Option<&str>, paths: impl IntoIterator<Item = DbPath>) -> Self {
        self.family_paths.insert(family.map(str::to_owned), paths.into_iter().collect());
        self
    }

    /// Transactions insert when they are prepared, RocksDB's policy WritePrepared: what
    /// `karst_txn::TransactionDb` sets for it. No file records it; logs with prepared transactions
    /// say under which policy they were. Without effect on a database that is opened for reading.
    /// Default false.
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
    /// No option has this name, or the text is no value of it.
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
    /// As [`Options::set`], and for ill-formed text.
    pub fn set_all(self, options: &str) -> Result<Self> {
        let pairs = karst_format::options::text::split(options).map_err(option_error)?;
        pairs.into_iter().try_fold(self, |options, (name, value)| options.set(name, value))
    }

    /// The comparator of a column family, for one that is not built in; `None` for all families.
    #[must_use]
    pub fn comparator(mut self, family: Option<&str>, comparator: Comparator) -> Self {
        self.instances_of(family).comparator = Some(comparator);
        self
    }

    /// The merge operator of a column family, in place of the one OPTIONS names; `None` for all
    /// families.
    #[must_use]
    pub fn merge_operator(mut self, family: Option<&str>, operator: Arc<dyn MergeOperator>) -> Self {
        self.instances_of(family).merge_operator = Some(operator);
        self
    }

    /// The prefix extractor of a column family, in place of the one OPTIONS names; `None` for all
    /// families.
    #[must_use]
    pub fn prefix_extractor(mut self, family: Option<&str>, extractor: PrefixExtractor) -> Self {
        self.instances_of(family).prefix_extractor = Some(extractor);
        self
    }

    /// What decides in compactions which entries survive; `None` for all families.
    #[must_use]
    pub fn compaction_filter(mut self, family: Option<&str>, filter: Arc<dyn CompactionFilter>) -> Self {
        self.instances_of(family).compaction_filter = Some(filter);
        self
    }

    /// What makes such a filter for each part of each job; asked where there is no filter of its
    /// own. `None` for all families.
    #[must_use]
    pub fn compaction_filter_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn CompactionFilterFactory>,
    ) -> Self {
        self.instances_of(family).compaction_filter_factory = Some(factory);
        self
    }

    /// How long entries live; `None` for all families.
    pub(crate) fn time_to_live(mut self, family: Option<&str>, ttl: Arc<TimeToLive>) -> Self {
        self.instances_of(family).ttl = Some(ttl);
        self
    }

    /// What says where compactions end tables, in place of what OPTIONS names; `None` for all
    /// families.
    #[must_use]
    pub fn sst_partitioner_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn SstPartitionerFactory>,
    ) -> Self {
        self.instances_of(family).sst_partitioner_factory = Some(factory);
        self
    }

    /// Adds what looks at the entries of tables and adds properties to them; `None` for all
    /// families that have none of their own. May be called several times; all of them look at every
    /// table. OPTIONS does not name them.
    #[must_use]
    pub fn table_properties_collector_factory(
        mut self,
        family: Option<&str>,
        factory: Arc<dyn TablePropertiesCollectorFactory>,
    ) -> Self {
        self.instances_of(family).collectors.push(factory);
        self
    }

    /// Has tables with many deletions compacted before others; for all column families.
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

    /// The instances supplied for a column family.
    pub(crate) fn instances_for(&self, family: &str) -> Instances {
        let own = self.instances.get(&Some(family.to_owned())).cloned().unwrap_or_default();
        own.or(self.instances.get(&None).unwrap_or(&Instances::default()))
    }

    /// Names of column families that something was set for.
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

    /// The user's logger as a log.
    pub(crate) fn users_log(&self) -> Option<InfoLog> {
        self.logger.clone().map(InfoLog::of)
    }

    pub(crate) fn environment(&self) -> Env {
        self.env.clone().unwrap_or_else(Env::posix)
    }

    pub(crate) fn statistics_or_none(&self) -> Option<&Arc<Statistics>> {
        self.statistics.as_ref()
    }

    /// The cache to use: the one given, or a new one; `from_options` is what the column family's
    /// options say.
    pub(crate) fn cache(&self, from_options: Option<CacheOptions>) -> BlockCache {
        if let Some(cache) = &self.block_cache {
            return cache.clone();
        }
        let mut options = from_options.unwrap_or_default();
        options.capacity_bytes = self.block_cache_bytes.unwrap_or(options.capacity_bytes);
        BlockCache::with_options(options)
    }

    /// Directories of table files by path id, for a database in `path`.
    pub(crate) fn directories(&self, path: &Path) -> Vec<PathBuf> {
        match self.paths.is_empty() {
            true => vec![path.to_owned()],
            false => self.paths.iter().map(|place| place.path.clone()).collect(),
        }
    }

    /// How many bytes each of them should hold; none if there is only the database's own.
    ///
    /// # Errors
    /// There are more than the MANIFEST can tell apart.
    pub(crate) fn path_target_sizes(&self) -> Result<Vec<u64>> {
        match self.paths.len() {
            0..=4 => Ok(self.paths.iter().map(|place| place.target_size).collect()),
            more => Err(Error::not_supported(format!("{more} db_paths; four are the most"))),
        }
    }

    /// The bytes that each directory of a column family should hold, by path id; empty if it has
    /// only the database's own directory.
    ///
    /// # Errors
    /// There are more than the MANIFEST can tell apart.
    pub(crate) fn path_target_sizes_of(&self, family: &str) -> Result<Vec<u64>> {
        match self.paths_of(family) {
            [] => self.path_target_sizes(),
            own => {
                check_cf_paths(own)?;
                Ok(own.iter().map(|place| place.target_size).collect())
            }
        }
    }

    /// Refuses more paths than the MANIFEST can tell apart.
    ///
    /// # Errors
    /// `NotSupported`: there are.
    pub(crate) fn check_paths(&self) -> Result<()> {
        self.path_target_sizes()?;
        self.family_paths.values().try_for_each(|own| check_cf_paths(own))
    }

    /// The same with each directory spelled in one way: as the database's own, `path`, if it is
    /// that one, or as it is named first.
    ///
    /// Why: which tree a file is in is known by where it is. Under another spelling of its
    /// directory a file that is needed would pass for one that a crash has left.
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

    /// The cache of values that a column family was given.
    pub(crate) fn blob_cache_of(&self, family: &str) -> Option<BlockCache> {
        let own = self.blob_caches.get(&Some(family.to_owned()));
        own.or_else(|| self.blob_caches.get(&None)).cloned()
    }

    /// The paths that a column family has of its own; empty if it has none.
    fn paths_of(&self, family: &str) -> &[DbPath] {
        let own = self.family_paths.get(&Some(family.to_owned())).filter(|paths| !paths.is_empty());
        own.or_else(|| self.family_paths.get(&None)).map_or(&[], Vec::as_slice)
    }

    /// Directories of a column family's files by path id, for a database in `path`.
    pub(crate) fn directories_of(&self, path: &Path, family: &str) -> Vec<PathBuf> {
        match self.paths_of(family) {
            [] => self.directories(path),
            own => own.iter().map(|place| place.path.clone()).collect(),
        }
    }

    /// The same files as `shared` has, for a column family.
    ///
    /// # Errors
    /// It has more paths than the MANIFEST can tell apart.
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

    /// The directories of all column families, as far as these options say, each with its path id.
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

    /// Parses an OPTIONS file as these options say.
    pub(crate) fn parse_file(&self, path: &Path, bytes: &[u8]) -> Result<OptionsFile> {
        let unknown = if self.ignore_unknown_options {
            UnknownOptions::Keep
        } else {
            UnknownOptions::RefuseUnlessNewer
        };
        let file = OptionsFile::parse(bytes, unknown).map_err(|e| {
            // Compat: the text is a corruption only if it cannot be read; unknown options may be
            // another engine's.
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

    /// The database's options: `options`, which a file says or a new database has, changed.
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

    /// What makes checksums of the files of a database with these options.
    ///
    /// # Errors
    /// They name what is not built in, and it was not supplied.
    pub(crate) fn file_checksums(
        &self,
        options: &DbOptions,
    ) -> Result<Option<Arc<dyn FileChecksumGenFactory>>> {
        file_checksum::factory(options, self.file_checksums.as_ref())
    }

    /// A column family's options: `options`, which a file says or a new family has, changed.
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

/// The format of tables unless the options say otherwise: what RocksDB releases since 8.6 read.
const FORMAT_VERSION: u32 = 6;

/// What a new column family has unless something is set.
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

/// A column family's option, or one of its tables'.
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
