//! Reading a database directory, for openings for reading and for writing.
//!
//! In: a directory and [`Options`]. Out: [`Loaded`]: options, column families with their trees and
//! the logs to replay; or an error that names the file, the offset and the expected content.
//!
//! Order: CURRENT, MANIFEST, the directory again, OPTIONS, trees, presence and sizes of tables and
//! blob files, the list of logs; then, by [`Logs::replay`], the logs. All reads block the calling
//! thread.
//! Invariant: nothing is written.
//!
//! The directory is listed again, because if another process writes, logs that were listed before
//! the MANIFEST was read may not be all that it refers to. Logs listed after it are, unless it has
//! changed in between.

use super::cache::BlockCache;
use super::directory::{Directory, io_error, read_file};
use super::find_options::{FoundOptions, Purpose, Search};
use super::manifest::Manifest;
use super::options::Options;
use super::wanted::Wanted;
use crate::claims::Claimant;
use crate::read::newest;
use karst_base::error::{Error, ErrorKind, Named, Result, named_list, unquoted};
use karst_base::events::FileIoEvents;
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::pacing::WriteBufferManager;
use karst_base::snapshot::ReadAt;
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::sync::counting::{AtomicU64, Ordering};
use karst_commit::wal::recovery::{Recovered, Recovery};
use karst_commit::wal::replay::Target;
use karst_commit::wal::replay_duplicates::Tables;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::SeqNo;
use karst_format::log::RecoveryMode;
use karst_format::options::Cache;
use karst_format::version_edit::NewFile;
use karst_io::{Env, FileObserver, report};
use karst_lsm::replay::whole::AddedFile;
use karst_lsm::{Inconsistent, TreeOptions, Version, VersionSet};
use karst_mem::CacheOptions;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use karst_storage::open_files::Shared;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::cache::opened_together;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The state read from a directory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) env: Env,
    pub(super) directory: Directory,
    pub(super) db_options: DbOptions,
    pub(super) statistics: Arc<Statistics>,
    pub(super) shared: Arc<Shared>,
    pub(super) set: VersionSet,
    /// Column families with empty memtables.
    pub(super) families: Vec<Arc<Family>>,
    pub(super) logs: Logs,
    pub(super) manifest: FileName,
    pub(super) manifest_bytes: u64,
    pub(super) db_id: Option<String>,
    /// Notes about the options for LOG.
    pub(super) notes: Vec<String>,
    /// Notes about state that best-efforts recovery has left out.
    pub(super) left_out: Vec<String>,
    /// Notifies listeners of operations on files, if they want it.
    pub(super) observer: Option<Arc<dyn FileObserver>>,
}

/// Registers the listeners that want notifications of operations on the database's files.
fn observe(
    env: &Env,
    options: &Options,
    db_options: &DbOptions,
    path: &Path,
    directories: &[PathBuf],
) -> Option<Arc<dyn FileObserver>> {
    let wal_directory = Some(PathBuf::from(&db_options.wal_dir)).filter(|_| !db_options.wal_dir.is_empty());
    let places = directories.iter().cloned().chain(wal_directory).chain([path.to_owned()]);
    let observer = FileIoEvents::of(options.event_listeners(), places.collect())?;
    env.observe(&observer);
    Some(observer)
}

/// Reads the database in `path`. For writing, a missing directory of logs counts as empty, because
/// it is created later.
pub(super) fn load(
    env: &Env,
    path: &Path,
    options: &Options,
    wanted: Wanted<'_>,
    purpose: Purpose,
) -> Result<Loaded> {
    let (manifest, directory, left_out) = match is_best_efforts(options, purpose)? {
        true => read_whole_manifest(env, path, options)?,
        false => {
            let (manifest, directory) = read_manifest(env, path)?;
            (manifest, directory, Vec::new())
        }
    };
    check_names(&directory, &manifest, options, wanted)?;
    let search = Search { directory: &directory, manifest: &manifest, options, wanted, purpose };
    let FoundOptions { db_options, configs, mut notes } = search.find()?;
    left_out.iter().for_each(|what| report!(warn, "best_efforts_recovery: {what}"));
    notes.extend(left_out.iter().map(|what| format!("best_efforts_recovery: {what}")));
    let (manifest_path, manifest_name, manifest_bytes) =
        (manifest.path.clone(), manifest.name, manifest.size_bytes);
    let set = build_trees(manifest, &configs, &db_options)?;
    let directories_of = |id| match configs.get(&id) {
        Some(config) => options.directories_of(path, &config.name),
        None => options.directories(path),
    };
    check_files(env, directories_of, &set, &manifest_path)?;

    let directories: Vec<_> = options.all_directories(path).into_iter().map(|(_, place)| place).collect();
    let observer = observe(env, options, &db_options, path, &directories);
    let mut logs = Logs::find(env, &directory, &db_options, &set, (purpose, left_out.is_empty()))?;
    if !left_out.is_empty() {
        // Compat: like RocksDB. The logs' entries are newer than the omitted state.
        logs.numbers.clear();
    }

    let statistics = options.statistics_or_none().cloned();
    let statistics = statistics.unwrap_or_else(|| Arc::new(Statistics::new(StatsLevel::DisableAll)));
    let mut shared = Shared::new(
        env.clone(),
        options.cache(cache_options(&configs)).shared().clone(),
        statistics.clone(),
        options.directories(path),
        &db_options,
        options.has_one_memory_budget(),
    );
    shared.is_secondary = purpose == Purpose::Following;
    // An error is ignored, because writers were already refused, and readers verify the checksums
    // they can.
    shared.file_checksums = options.file_checksums(&db_options).unwrap_or_default();
    shared.path_target_sizes = options.path_target_sizes()?;
    shared.space = options.file_manager().filter(|_| purpose == Purpose::Writing);
    let shared = Arc::new(shared);
    let families = make_families(&set, &configs, &shared, options)?;
    if db_options.max_open_files < 0 && !(db_options.open_files_async && purpose == Purpose::Writing) {
        // Compat: if files stay open, RocksDB opens all tables at this point, and detects damage.
        for family in &families {
            karst_io::block_on(
                env,
                family.tables.open_all(family.pin().version(), opened_together(&db_options)),
            )?;
        }
    }
    Ok(Loaded {
        db_id: database_id(&directory, &set)?,
        env: env.clone(),
        directory,
        db_options,
        statistics,
        shared,
        set,
        families,
        logs,
        manifest: manifest_name,
        manifest_bytes,
        notes,
        left_out,
        observer,
    })
}

/// Returns true if the newest states with complete files are wanted. Only the caller can set this,
/// never the OPTIONS file.
pub(super) fn is_best_efforts(options: &Options, purpose: Purpose) -> Result<bool> {
    let is_set = options.db_options(DbOptions::default())?.best_efforts_recovery;
    match is_set && purpose == Purpose::Following {
        true => Err(Error::not_supported("best_efforts_recovery of a secondary instance")),
        false => Ok(is_set),
    }
}

/// Returns the MANIFEST for best-efforts recovery, the directory, and notes about the omitted
/// state: the MANIFEST that CURRENT names, or else the newest that yields a state.
///
/// CURRENT has precedence, unlike in RocksDB, because a newer MANIFEST may be truncated between two
/// column families.
fn read_whole_manifest(
    env: &Env,
    path: &Path,
    options: &Options,
) -> Result<(Manifest, Directory, Vec<String>)> {
    let directory = Directory::list(env, path)?;
    let mut names = directory.manifests();
    if let Ok(current) = directory.current_manifest() {
        names.sort_by_key(|name| *name != current);
    }
    let mut first = None;
    for name in names {
        let read = Manifest::read_whole(&directory, name, |family, file| {
            let (name, path_id, bytes) = match file {
                AddedFile::Table(table) => {
                    (FileName::Table(table.number), table.path_id, Some(table.size_bytes))
                }
                AddedFile::Blob(number) => (FileName::Blob(number), 0, None),
            };
            let directories = options.directories_of(path, family);
            let Some(directory) = directories.get(usize::from(path_id)) else { return Ok(false) };
            match env.fs().metadata(&directory.join(name.to_string())) {
                Ok(metadata) => Ok(bytes.is_none_or(|bytes| bytes == metadata.len)),
                Err(e) if e.is_not_found() => Ok(false),
                Err(e) => Err(io_error("best_efforts_recovery", e)),
            }
        });
        match read {
            Ok((manifest, left_out)) => return Ok((manifest, directory, left_out)),
            // Only these, because other errors may be temporary.
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
                report!(warn, %error, "best_efforts_recovery: trying an older MANIFEST");
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let none = || Error::new(ErrorKind::Corruption, format!("{}: there is no MANIFEST", path.display()));
    Err(first.unwrap_or_else(none))
}

/// Returns the MANIFEST, and the directory as listed after the MANIFEST had been read and had not
/// changed.
fn read_manifest(env: &Env, path: &Path) -> Result<(Manifest, Directory)> {
    const ATTEMPTS: usize = 10;
    let mut directory = Directory::list(env, path)?;
    for _ in 0..ATTEMPTS {
        let manifest = Manifest::read(&directory)?;
        directory = Directory::list(env, path)?;
        let now = env.fs().metadata(&manifest.path).map_err(|e| io_error("opening the database", e))?;
        if directory.current_manifest()? == manifest.name && now.len == manifest.size_bytes {
            return Ok((manifest, directory));
        }
    }
    Err(Error::new(
        ErrorKind::TryAgain,
        format!("{}: the MANIFEST changed during each attempt to read it", path.display()),
    ))
}

/// Returns an error for names of column families that do not exist.
fn check_names(
    directory: &Directory,
    manifest: &Manifest,
    options: &Options,
    wanted: Wanted<'_>,
) -> Result<()> {
    let (named, may_miss) = match wanted {
        Wanted::All => (&[][..], &[][..]),
        Wanted::Named(names) => (names, &[][..]),
        Wanted::AllAnd(names) => (&[][..], names),
    };
    let exist: BTreeSet<&str> = manifest.replay.column_families().map(|found| found.name).collect();
    let may_miss: BTreeSet<&str> = may_miss.iter().copied().collect();
    for name in named.iter().copied().chain(options.named_families()) {
        if !may_miss.contains(name) && !exist.contains(name) {
            let names: Vec<&str> = manifest.replay.column_families().map(|found| found.name).collect();
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "Column family not found: {}; {} has {}; one is created by Db::create_column_family, and by opening with create_missing_column_families, by Db::open_cf if it is named there",
                    unquoted(&[name]),
                    directory.path().display(),
                    named_list(&names)
                ),
            ));
        }
    }
    Ok(())
}

pub(super) fn build_trees(
    manifest: Manifest,
    configs: &BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>,
    db_options: &DbOptions,
) -> Result<VersionSet> {
    for found in manifest.replay.column_families() {
        let ours = configs.get(&found.id).map(|config| config.comparator.name());
        if let (Some(recorded), Some(ours)) = (found.comparator, ours)
            && recorded != ours
        {
            let (name, path) = (Named(found.name), manifest.path.display());
            return Err(Error::invalid_argument(format!(
                "{ours}: does not match existing comparator {recorded}, by which column family {name:?} is ordered ({path})"
            )));
        }
    }
    let trees = manifest.replay.finish(|found| {
        let tree = configs.get(&found.id).map(|config| TreeOptions {
            comparator: config.comparator.clone(),
            level_count: usize::try_from(config.options.num_levels).unwrap_or(1),
            allow_ingest_behind: db_options.allow_ingest_behind || config.options.cf_allow_ingest_behind,
            check_consistency: config.options.force_consistency_checks,
        });
        Ok::<_, Inconsistent>(tree)
    });
    trees.map_err(|e| Error::corruption_at(&manifest.path, manifest.size_bytes, e))
}

/// Checks that every table exists with its size in the MANIFEST, and that every blob file exists.
///
/// Checked at opening, because a missing file should be reported now rather than by the first read
/// that needs it.
fn check_files(
    env: &Env,
    directories_of: impl Fn(ColumnFamilyId) -> Vec<PathBuf>,
    set: &VersionSet,
    manifest: &Path,
) -> Result<()> {
    let missing = |path: &Path| {
        let text = format!("{}: missing, though {} lists it", path.display(), manifest.display());
        Error::new(ErrorKind::Corruption, text)
    };
    for state in set.column_families.values() {
        let directories = directories_of(state.id);
        for (level, file) in state.version.all_files() {
            let path = table_path(&directories, level, file)?;
            let metadata = match env.fs().metadata(&path) {
                Ok(metadata) => metadata,
                Err(e)
                    if e.is_not_found() && env.fs().exists(&path.with_extension("ldb")).unwrap_or(false) =>
                {
                    let path = path.with_extension("ldb");
                    return Err(Error::not_supported(format!("{}: a table of LevelDB", path.display())));
                }
                Err(e) if e.is_not_found() => return Err(missing(&path)),
                Err(e) => return Err(io_error("opening the database", e)),
            };
            if metadata.len != file.size_bytes {
                let what = format!(
                    "the file has {} bytes, {} says {}",
                    metadata.len,
                    manifest.display(),
                    file.size_bytes
                );
                return Err(Error::corruption_at(&path, metadata.len.min(file.size_bytes), what));
            }
        }
        for number in state.version.blob_files().keys() {
            let path = directories[0].join(FileName::Blob(*number).to_string());
            if !env.fs().exists(&path).map_err(|e| io_error("opening the database", e))? {
                return Err(missing(&path));
            }
        }
    }
    Ok(())
}

fn table_path(directories: &[PathBuf], level: Level, file: &NewFile) -> Result<PathBuf> {
    let directory = directories.get(usize::from(file.path_id)).ok_or_else(|| {
        Error::invalid_argument(format!(
            "table {} of level {} is in path {}, but only {} are given; set db_paths, or the column family's cf_paths",
            file.number.0,
            level.0,
            file.path_id,
            directories.len()
        ))
    })?;
    Ok(directory.join(FileName::Table(file.number).to_string()))
}

/// Receiver of memtables while logs are replayed into them.
pub(super) trait TakesLogs {
    /// Takes the full memtable of `target` and replaces it by an empty one.
    ///
    /// # Errors
    /// The memtable could not be written; the replay ends.
    fn full(&mut self, target: &mut Target) -> Result<()>;

    /// Called after `log` was replayed.
    ///
    /// # Errors
    /// Those of [`full`](Self::full).
    fn behind(&mut self, log: FileNumber, recovery: &mut Recovery) -> Result<()>;
}

/// The logs to replay.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// Directory of the logs.
    pub(super) directory: PathBuf,
    pub(super) numbers: Vec<FileNumber>,
    /// Logs below this number may be missing. It is smaller than that of all families if an older
    /// log has sections of prepared transactions.
    pub(super) first_needed: FileNumber,
    pub(super) mode: RecoveryMode,
    /// True if there may be prepared transactions.
    pub(super) two_phases: bool,
    /// Last sequence number in the MANIFEST.
    last_seq: SeqNo,
    /// Log number of each family, and true if it has tables.
    families: BTreeMap<ColumnFamilyId, (FileNumber, bool)>,
}

impl Logs {
    /// Returns the total bytes of the logs.
    pub(super) fn bytes(&self, env: &Env) -> Result<u64> {
        let sizes = sizes_now(env, &self.directory, &self.numbers)?;
        Ok(sizes.into_iter().map(|(_, bytes)| bytes as u64).sum())
    }

    fn find(
        env: &Env,
        directory: &Directory,
        db_options: &DbOptions,
        set: &VersionSet,
        (purpose, all_count): (Purpose, bool),
    ) -> Result<Logs> {
        let separate = match db_options.wal_dir.as_str() {
            "" => None,
            path => Some(match Directory::list(env, Path::new(path)) {
                // Compat: like RocksDB, which creates it, and refuses only to read without it.
                Err(e) if purpose == Purpose::Writing && e.kind() == ErrorKind::NotFound => {
                    report!(warn, wal_dir = path, "the directory of logs is missing, and is created");
                    Directory::none(env, Path::new(path))
                }
                listed => listed.map_err(|e| e.in_context("wal_dir"))?,
            }),
        };
        if let Some(separate) = &separate {
            let id = database_id(directory, set)?;
            let claimant = Claimant { path: directory.path(), id: id.as_deref() };
            for place in claimant.outside(env, [separate.path().to_owned()]) {
                // For reading too, because the logs of another database have wrong entries.
                claimant.check(env, &place).map_err(|e| e.in_context("wal_dir"))?;
            }
        }
        let wal_directory = separate.as_ref().unwrap_or(directory);
        let needed = first_needed(db_options, set);
        if db_options.track_and_verify_wals_in_manifest && all_count {
            check_logs(env, wal_directory, set)?;
        }
        let of_family = |state: &karst_lsm::ColumnFamilyState| {
            (state.id, (state.log_number, state.version.file_count() > 0))
        };
        Ok(Logs {
            directory: wal_directory.path().to_owned(),
            numbers: wal_directory.logs().into_iter().filter(|number| *number >= needed).collect(),
            first_needed: needed,
            mode: RecoveryMode::from_name(db_options.wal_recovery_mode.name()).unwrap_or_default(),
            two_phases: db_options.allow_2pc,
            last_seq: set.last_sequence,
            families: set.column_families.values().map(of_family).collect(),
        })
    }

    /// Replays the logs into the memtables of `families`, for which they were found.
    pub(super) fn replay(&self, env: &Env, families: &[Arc<Family>]) -> Result<Recovered> {
        struct InMemory;
        impl TakesLogs for InMemory {
            fn full(&mut self, _: &mut Target) -> Result<()> {
                Ok(())
            }

            fn behind(&mut self, _: FileNumber, _: &mut Recovery) -> Result<()> {
                Ok(())
            }
        }
        self.replay_by(env, families, |_| usize::MAX, None, &mut InMemory)
    }

    /// Replays the logs a memtable at a time. `taker` receives each memtable that has reached its
    /// family's limit of memory, `most_bytes`, or the total of a `budget`.
    pub(super) fn replay_by(
        &self,
        env: &Env,
        families: &[Arc<Family>],
        most_bytes: impl Fn(&Family) -> usize,
        budget: Option<WriteBufferManager>,
        taker: &mut dyn TakesLogs,
    ) -> Result<Recovered> {
        let targets = families.iter().map(|family| Target {
            cf: family.id(),
            log_number: self.families[&family.id()].0,
            memtable: family.superversion().mem().clone(),
            memory_bytes: most_bytes(family),
            tables: FamilyTables::of(env, family),
        });
        let behind = (self.last_seq, self.first_needed);
        let mut recovery = Recovery::new(self.mode, targets.collect(), behind, self.two_phases);
        if let Some(budget) = budget {
            recovery.replay_mut().keep_within(budget);
        }
        for (number, size_bytes) in sizes_now(env, &self.directory, &self.numbers)? {
            let path = self.directory.join(FileName::Wal(number).to_string());
            let mut bytes = read_file(env.fs().as_ref(), &path)?;
            bytes.truncate(size_bytes);
            recovery.log(number, &path, &bytes, &mut |target| taker.full(target))?;
            taker.behind(number, &mut recovery)?;
        }
        let with_tables = families.iter().filter(|family| self.families[&family.id()].1);
        let recovered = recovery
            .finish(with_tables.map(|family| (family.config.name.as_str(), self.families[&family.id()].0)))?;
        report!(debug, "{} entries replayed from {} logs", recovered.applied, self.numbers.len());
        for passed in &recovered.passed {
            report!(
                warn,
                "column family {}: {} entries of the logs, up to sequence number {}, were skipped, because tables have them already",
                passed.column_family,
                passed.entries,
                passed.through
            );
        }
        if !recovered.undecided.is_empty() {
            report!(
                info,
                "{} prepared transactions are not committed and have no effect",
                recovered.undecided.len()
            );
        }
        Ok(recovered)
    }
}

/// Returns the number below which logs hold only entries that are in tables.
///
/// Compat: with two-phase commit a log older than every family's own may hold prepared sections
/// that a later one commits. `min_log_number_to_keep` applies without `allow_2pc` too, because the
/// option may differ from that of the last writer, and undecided sections would be taken for
/// committed. Old versions of RocksDB write that number with `allow_2pc` only.
pub(super) fn first_needed(db_options: &DbOptions, set: &VersionSet) -> FileNumber {
    match set.min_log_number_to_keep {
        FileNumber(0) if !db_options.allow_2pc => set.min_log_number(),
        needed => needed,
    }
}

/// The tables of a family that is being opened, for finding entries that they share with the logs.
#[derive(Debug)]
pub(super) struct FamilyTables {
    env: Env,
    family: Arc<Family>,
    version: Arc<Version>,
    largest_seq: SeqNo,
    /// The family's tree without memtables, created on first use.
    tree: OnceLock<SuperVersion>,
}

impl FamilyTables {
    /// Returns the family's tables, or `None` if it has none.
    fn of(env: &Env, family: &Arc<Family>) -> Option<Arc<dyn Tables>> {
        Self::of_version(env, family, family.pin().version().clone())
    }

    /// Returns the tables of a version that is not installed yet.
    pub(super) fn of_version(
        env: &Env,
        family: &Arc<Family>,
        version: Arc<Version>,
    ) -> Option<Arc<dyn Tables>> {
        let largest_seq = version.all_files().map(|(_, file)| file.largest_seq).max()?;
        let (env, family, tree) = (env.clone(), family.clone(), OnceLock::new());
        Some(Arc::new(Self { env, family, version, largest_seq, tree }))
    }
}

impl Tables for FamilyTables {
    fn largest_seq(&self) -> SeqNo {
        self.largest_seq
    }

    fn written_since(&self, key: &[u8], seq: SeqNo) -> Result<bool> {
        let tree = self.tree.get_or_init(|| {
            let config = self.family.pin().config().clone();
            let mem = Arc::new(MemTable::new(config.comparator.clone()));
            SuperVersion::new(0, config, mem, Vec::new(), self.version.clone())
        });
        let since = ReadAt::all_to(seq);
        karst_io::block_on(&self.env, newest::written_since(&self.family.tables, tree, key, &since, None))
    }
}

/// Returns the number of bytes to read of each log: its size as of one moment.
///
/// The newest is measured first, because if another process writes, a log has all its records
/// before the next one has any. Therefore, for each record in the measured part of a log, all
/// earlier records are in the measured parts too.
fn sizes_now(env: &Env, directory: &Path, logs: &[FileNumber]) -> Result<Vec<(FileNumber, usize)>> {
    let size_of = |number: &FileNumber| {
        let metadata = env.fs().metadata(&directory.join(FileName::Wal(*number).to_string()));
        let len = metadata.map_err(|e| io_error("opening the database", e))?.len;
        Ok((*number, usize::try_from(len).unwrap_or(usize::MAX)))
    };
    let mut sizes = logs.iter().rev().map(size_of).collect::<Result<Vec<_>>>()?;
    sizes.reverse();
    Ok(sizes)
}

/// Checks that the logs that the MANIFEST tracks exist with their sizes.
fn check_logs(env: &Env, directory: &Directory, set: &VersionSet) -> Result<()> {
    for (number, synced_bytes) in &set.wals {
        let path = directory.file(FileName::Wal(*number));
        let missing = || {
            Error::new(
                ErrorKind::Corruption,
                format!("{}: missing, though the MANIFEST tracks it", path.display()),
            )
        };
        let metadata = env
            .fs()
            .metadata(&path)
            .map_err(|e| if e.is_not_found() { missing() } else { io_error("checking the logs", e) })?;
        let synced = synced_bytes.unwrap_or(0);
        if metadata.len < synced {
            let what =
                format!("the log has {} bytes, the MANIFEST says that {synced} were synced", metadata.len);
            return Err(Error::corruption_at(&path, metadata.len, what));
        }
    }
    Ok(())
}

fn make_families(
    set: &VersionSet,
    configs: &BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>,
    shared: &Arc<Shared>,
    options: &Options,
) -> Result<Vec<Arc<Family>>> {
    static DATABASES: AtomicU64 = AtomicU64::new(1);
    // Ordering: only an id; it publishes no other data.
    let database = DATABASES.fetch_add(1, Ordering::Relaxed);
    let family = |state: &karst_lsm::ColumnFamilyState| {
        let config = configs[&state.id].clone();
        let memtable = Arc::new(MemTable::of(&config));
        let shared = options.shared_of(shared, &config.name)?;
        let family = make_family(database, config, &shared, memtable, state.version.clone(), options);
        if let Some(history) = family.history() {
            if !state.persist_user_defined_timestamps {
                return Err(Error::not_supported(format!(
                    "column family {:?}: its tables have no timestamps (persist_user_defined_timestamps=false)",
                    Named(&state.name)
                )));
            }
            history.set_full_history_ts_low(state.full_history_ts_low.clone());
        }
        Ok(family)
    };
    set.column_families.values().map(family).collect()
}

/// Returns an open column family with this memtable and tree.
pub(super) fn make_family(
    database: u64,
    config: Arc<FamilyConfig>,
    shared: &Arc<Shared>,
    memtable: Arc<MemTable>,
    version: Arc<Version>,
    options: &Options,
) -> Arc<Family> {
    let asked = || cache_of(&config.options.blob_cache).map(BlockCache::with_options);
    let blob_cache = options.blob_cache_of(&config.name).or_else(asked);
    let blob_cache = blob_cache.map(|cache| cache.shared().clone());
    let tables = Arc::new(TableCache::new(shared.clone(), &config, blob_cache));
    let superversion = SuperVersion::new(1, config.clone(), memtable, Vec::new(), version);
    Arc::new(Family::new(database, config, tables, superversion))
}

/// Returns the default column family's options for the block cache. The others have the same or
/// none.
fn cache_options(configs: &BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>) -> Option<CacheOptions> {
    let default = configs.get(&ColumnFamilyId::DEFAULT)?;
    cache_of(&default.options.table_factory.block_based.block_cache)
}

/// Returns the options of a cache that is requested by text.
fn cache_of(asked: &Cache) -> Option<CacheOptions> {
    let defaults = CacheOptions::default();
    Some(CacheOptions {
        capacity_bytes: asked.capacity_bytes?,
        strict_capacity: asked.strict_capacity,
        metadata_fraction: asked.metadata_fraction.unwrap_or(defaults.metadata_fraction),
        ..defaults
    })
}

/// Returns the database's id: the MANIFEST's, or else the IDENTITY file's.
fn database_id(directory: &Directory, set: &VersionSet) -> Result<Option<String>> {
    let bytes = match &set.db_id {
        Some(id) => id.clone(),
        None if directory.contains(FileName::Identity) => directory.read(FileName::Identity)?,
        None => return Ok(None),
    };
    Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}
