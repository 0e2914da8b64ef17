//! Repair of a database: RocksDB's `RepairDB`.
//!
//! In: a directory whose files may be damaged or missing. Out: a database that opens, with
//! everything that is readable; unusable files are in `lost`; and a report.
//!
//! | file | holds |
//! |---|---|
//! | `manifest` | reading MANIFESTs that may be damaged |
//! | `tables` | tables and blob files: their properties and content |
//! | `tree` | levels for tables whose levels are unknown |
//! | `lost` | files removed from the database and kept |
//! | `report` | the result of a repair |
//! | `verify` | verification of all files, without changes |
//! | `remove_table` | manual removal of one table from a tree |
//!
//! Order: take LOCK; read everything; renumber tables that share a number; merge tables if needed;
//! link unusable files into `lost`; write a new MANIFEST and CURRENT; remove the original names of
//! files in `lost`; open the database once as usual, which recovers all readable log records into
//! tables, and close it.
//!
//! Invariants:
//! - Files are removed only if another file has their content: merged tables, logs read without
//!   damage, MANIFESTs read without damage.
//! - Until CURRENT names the new MANIFEST the database is as it was, except for tables that share
//!   their number with another, which it may lack anyway. A repair may therefore be interrupted at
//!   any point, and started again.

mod lost;
mod manifest;
mod remove_table;
mod report;
mod tables;
mod tree;
mod verify;

pub use report::{LostFile, RepairReport, RepairedFamily};
pub use verify::{DamagedFile, VerifyProgress, VerifyReport};

use crate::claims::{Claimant, Claims};
use crate::copies::copying;
use crate::db::Db;
use crate::ingest::Numbers;
use crate::open::find_options::{FoundOptions, Purpose, Search};
use crate::open::manifest::Manifest;
use crate::open::wanted::{DEFAULT, Wanted};
use crate::open::{
    BlockCache, DamagedOptions, Directory, LogRecovery, Options, check_path, identity, new_family_options,
    read_write_locked, take_lock,
};
use crate::versions::{write_current, write_synced};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::sync::atomic::AtomicU64;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::SeqNo;
use karst_format::log::{LogEvent, LogReader, LogWriter, RecoveryMode};
use karst_format::properties::TableProperties;
use karst_format::version_edit::{BlobFileGarbage, NewFile, VersionEdit};
use karst_format::write_batch::BatchReader;
use karst_io::{Env, block_on};
use karst_lsm::{BlobFileMetadata, ManifestReplay, TreeOptions, Version, VersionSet};
use karst_mem::CacheOptions;
use karst_storage::open_files::Shared;
use karst_storage::table::cache::TableCache;
use karst_storage::table::writer::{Identity, host_id};
use lost::Lost;
use manifest::{KnownFamily, Salvaged};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tables::{Examined, FoundBlobFile, FoundTable, References, is_damage};

impl Db {
    /// Builds a database from everything readable in directory `path`. MANIFEST, CURRENT and
    /// OPTIONS may be lost or damaged, and so may tables, blob files and logs. Options come from
    /// the newest readable OPTIONS file, changed by `options`; without one, from `options` alone.
    /// Blocks: it reads all tables.
    ///
    /// Unusable files stay in directories `lost`, below the directories that they were in. It may
    /// be called again, also after an interruption. `docs/repair.md` lists the data that it
    /// recovers.
    ///
    /// # Errors
    /// `NotFound`: there are no files of a database. `Locked`: the database is open elsewhere.
    /// `Io`: a file cannot be read or written. `NoSpace`: there is no room for tables that have to
    /// be merged, or for those made from logs. `NotSupported`, `InvalidArgument`: a comparator or a
    /// format is unknown, tables are LevelDB's, a directory belongs to another database, or the
    /// options cannot work. The database is then not worse than before.
    pub fn repair(path: impl AsRef<Path>, options: &Options) -> Result<RepairReport> {
        repair(path.as_ref(), options)
    }

    /// Asynchronous form of [`Db::repair`], on a thread of its own. It begins at the first poll,
    /// and runs to its end even if it is dropped after that.
    ///
    /// # Errors
    /// Those of [`Db::repair`], and `Io` if no thread can be started.
    pub fn repair_async(
        path: impl AsRef<Path>,
        options: &Options,
    ) -> impl Future<Output = Result<RepairReport>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        async move {
            let env = options.environment();
            let job = move || Db::repair(path, &options);
            env.run_apart_async("karst-repair", job).map_err(Error::from)?.await
        }
    }
}

fn repair(path: &Path, options: &Options) -> Result<RepairReport> {
    repair_files(path, options).map_err(|error| error.in_context(format!("repairing {}", path.display())))
}

fn repair_files(path: &Path, options: &Options) -> Result<RepairReport> {
    check_path(path)?;
    let env = options.environment();
    env.ensure_threads()?;
    // One environment for all, because each default one would be created anew with its own threads.
    let options = options.clone().env(env.clone());
    let holds_data = |name: &FileName| {
        use FileName::{Blob, LevelDbTable, Manifest, Table, Wal};
        matches!(name, Table(_) | LevelDbTable(_) | Blob(_) | Manifest(_) | Wal(_))
    };
    let directory = Directory::list(&env, path)?;
    if !directory.files().iter().any(holds_data) {
        return Err(Error::new(ErrorKind::NotFound, "there are no files of a database"));
    }
    let lock = take_lock(&env, path)?;
    // Listed behind the lock, so that the listed files stay unchanged.
    let mut work = Work::look(&env, path, &options)?;
    // Locked before files move, because the directories may belong to another database.
    work.claim(work.places.clone())?;
    work.list_tables()?;
    work.refuse_leveldb()?;
    work.renumber()?;
    work.find_families()?;
    work.find_options()?;
    work.claim([work.wal_path()])?;
    work.examine()?;
    work.look_at_logs()?;
    let trees = work.trees()?;
    work.lost.sync()?;
    work.write_manifest(&trees)?;
    work.lost.leave()?;

    let choices = work.db_options.clone();
    let described_in =
        work.configs.get(&ColumnFamilyId::DEFAULT).and_then(|config| config.described_in.clone());
    let is_options = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(FileName::parse).is_some_and(|name| matches!(name, FileName::Options(_)))
    };
    let described_in = described_in.filter(is_options);
    let named: Vec<&str> = work.options.named_families().collect();
    let wanted = Wanted::AllAnd(&named);
    // Released, because opening claims the directories itself.
    work.claims.give_back();
    let opened =
        read_write_locked(path, &work.options, (None, &[], wanted), &choices, lock, LogRecovery::ForRepair)?;
    let mut report = work.report;
    report.lost = work.lost.files;
    report.options = described_in;
    for family in opened.read.families.all().iter() {
        let version = family.superversion().version().clone();
        report.column_families.push(RepairedFamily {
            id: family.id().0,
            name: family.config.name.clone(),
            tables: version.file_count() as u64,
            bytes: version.size_bytes(),
            blob_files: version.blob_files().len() as u64,
            merged: trees.get(&family.id()).map_or(0, |tree| tree.merged),
        });
    }
    Ok(report)
}

/// A family's tree for the new MANIFEST.
#[derive(Debug, Default)]
struct NewTree {
    edit: VersionEdit,
    merged: u64,
}

/// A repair in progress.
#[derive(Debug)]
struct Work {
    env: Env,
    path: PathBuf,
    options: Options,
    directory: Directory,
    /// All existing directories of tables, each once.
    places: Vec<PathBuf>,
    shared: Arc<Shared>,
    salvaged: Salvaged,
    found: Vec<FoundTable>,
    /// Column family of each table, by file number.
    of_family: BTreeMap<FileNumber, ColumnFamilyId>,
    families: BTreeMap<ColumnFamilyId, KnownFamily>,
    db_options: DbOptions,
    configs: BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>,
    caches: BTreeMap<ColumnFamilyId, Arc<TableCache>>,
    examined: BTreeMap<ColumnFamilyId, Vec<Examined>>,
    blob_files: BTreeMap<FileNumber, FoundBlobFile>,
    numbers: Numbers,
    claims: Claims,
    lost: Lost,
    report: RepairReport,
}

impl Work {
    /// Reads the MANIFESTs. Changes nothing.
    fn look(env: &Env, path: &Path, options: &Options) -> Result<Work> {
        let directory = Directory::list(env, path)?;
        options.check_paths()?;
        let options = &options.spelled_once(env, path);
        let salvaged = Salvaged::read(&directory)?;
        let mut places = Vec::new();
        for (_, place) in options.all_directories(path) {
            // Each directory once, because one may serve several path ids and several families. It
            // may also exist for families not found yet.
            if !places.contains(&place) && env.fs().exists(&place)? {
                places.push(place);
            }
        }
        let directories = options.directories(path);
        let statistics = Arc::new(Statistics::new(StatsLevel::DisableAll));
        let cache = BlockCache::with_options(CacheOptions::default()).shared().clone();
        let db_options = DbOptions::default();
        let shared = Shared::new(env.clone(), cache, statistics, directories, &db_options, false);
        let mut work = Work {
            env: env.clone(),
            path: path.to_owned(),
            // Accepts an older OPTIONS file, because the report names it, and a repair should not
            // fail because of it.
            options: options.clone().damaged_options(DamagedOptions::UseOlder),
            directory,
            places,
            shared: Arc::new(shared),
            families: salvaged.families.clone(),
            salvaged,
            found: Vec::new(),
            of_family: BTreeMap::new(),
            db_options,
            configs: BTreeMap::new(),
            caches: BTreeMap::new(),
            examined: BTreeMap::new(),
            blob_files: BTreeMap::new(),
            numbers: Numbers(Arc::default()),
            claims: Claims::default(),
            lost: Lost::new(env),
            report: RepairReport::default(),
        };
        work.report.manifest = work.salvaged.name.map(|name| work.directory.file(name));
        Ok(work)
    }

    /// Locks existing directories outside of the database's own.
    ///
    /// # Errors
    /// A directory belongs to another database.
    fn claim(&self, directories: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        let mut there = Vec::new();
        for directory in directories {
            if self.env.fs().exists(&directory)? {
                there.push(directory);
            }
        }
        // Without the database's id, because it may be lost.
        self.claims.add(&self.env, Claimant { path: &self.path, id: None }, there)
    }

    /// Lists the tables.
    fn list_tables(&mut self) -> Result<()> {
        let mut used = self.salvaged.next_file.0;
        for place in &self.places {
            for name in Directory::list(&self.env, place)?.files() {
                used = used.max(name.number().unwrap_or_default().0);
                if let FileName::Table(number) | FileName::LevelDbTable(number) = *name {
                    let path = place.join(name.to_string());
                    let size_bytes = self.env.fs().metadata(&path)?.len;
                    self.found.push(FoundTable { number, path_id: 0, path, size_bytes });
                }
            }
        }
        for name in self.directory.files() {
            used = used.max(name.number().unwrap_or_default().0);
        }
        if used >= u64::MAX >> 1 {
            return Err(Error::new(ErrorKind::LimitReached, "file numbers are used up"));
        }
        self.numbers = Numbers(Arc::new(AtomicU64::new(used + 1)));
        Ok(())
    }

    /// Refuses tables of LevelDB, because the repair would move intact tables to `lost`.
    fn refuse_leveldb(&self) -> Result<()> {
        let any = self.any_tables()?;
        for table in &self.found {
            match tables::properties(&any[copying::parent(&table.path)], table) {
                Err(error) if error.kind() == ErrorKind::NotSupported => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the directory of the logs.
    fn wal_path(&self) -> PathBuf {
        match self.db_options.wal_dir.as_str() {
            "" => self.path.clone(),
            elsewhere => PathBuf::from(elsewhere),
        }
    }

    /// Renumbers tables that share a number. The one recorded in the MANIFEST keeps it, or else the
    /// first. The others get new numbers, or are moved to `lost` if they have the size of the
    /// recorded one, because then they are copies.
    fn renumber(&mut self) -> Result<()> {
        let (salvaged, options, path) = (&self.salvaged, &self.options, &self.path);
        self.found.sort_by_key(|table| {
            let known = salvaged.known_as(table.number, table.size_bytes);
            let is_meant = known.is_some_and(|(id, file)| {
                let family = salvaged.families.get(id);
                let directories = family.map(|family| options.directories_of(path, &family.name));
                directories.is_some_and(|of| {
                    of.get(usize::from(file.path_id)).is_some_and(|of| of == copying::parent(&table.path))
                })
            });
            (table.number, !is_meant, table.path.extension() != Some("sst".as_ref()))
        });
        let mut before = None;
        for mut table in std::mem::take(&mut self.found) {
            if before.replace(table.number) != Some(table.number) {
                self.found.push(table);
                continue;
            }
            if self.salvaged.known_as(table.number, table.size_bytes).is_some() {
                let what = format!("there is another table {} of this size", table.number);
                self.lost.take(&table.path, what)?;
                continue;
            }
            table.number = FileNumber(self.numbers.next());
            let to = table.path.with_file_name(FileName::Table(table.number).to_string());
            self.env.fs().rename(&table.path, &to)?;
            self.env.fs().sync_dir(copying::parent(&to))?;
            self.report.renumbered.push((table.path.clone(), to.clone()));
            table.path = to;
            self.found.push(table);
        }
        Ok(())
    }

    /// Returns for each directory a table cache that can read the properties of tables of any
    /// family.
    fn any_tables(&self) -> Result<BTreeMap<PathBuf, Arc<TableCache>>> {
        let (id, options) = (ColumnFamilyId::DEFAULT, new_family_options());
        let config = FamilyConfig::resolve(id, DEFAULT, options, None, Default::default())?;
        let reader = |place: &PathBuf| {
            let shared = Arc::new(self.shared.in_directories(vec![place.clone()], Vec::new()));
            (place.clone(), Arc::new(TableCache::new(shared, &config, None)))
        };
        Ok(self.places.iter().map(reader).collect())
    }

    /// Returns the family of a table: the one recorded in the MANIFEST, or else the one in its
    /// properties, which ingested or imported tables lack.
    fn family_of(&self, table: &FoundTable, properties: &TableProperties) -> ColumnFamilyId {
        let known = self.salvaged.known_as(table.number, table.size_bytes);
        known.map_or_else(|| family_id(properties), |(id, _)| *id)
    }

    /// The directories of a family, by path id.
    fn directories_of(&self, id: ColumnFamilyId) -> Vec<PathBuf> {
        match self.configs.get(&id) {
            Some(config) => self.options.directories_of(&self.path, &config.name),
            None => self.options.directories(&self.path),
        }
    }

    fn blob_path(&self, id: ColumnFamilyId, number: FileNumber) -> PathBuf {
        self.directories_of(id)[0].join(FileName::Blob(number).to_string())
    }

    /// Returns the path id of a table in its family: the one in the MANIFEST if the table is in
    /// that directory, or else the first with its directory. `None` if no path is its directory.
    fn path_id_of(&self, id: ColumnFamilyId, table: &FoundTable) -> Option<u8> {
        let (directories, place) = (self.directories_of(id), copying::parent(&table.path));
        let is_there = |path_id: &u8| directories.get(usize::from(*path_id)).is_some_and(|of| of == place);
        let named = self.salvaged.named.get(&table.number).map(|(_, file)| file.path_id);
        named.filter(is_there).or_else(|| (0..=u8::MAX).zip(&directories).map(|(id, _)| id).find(is_there))
    }

    /// Finds the column families: those in the MANIFEST that were not dropped, and those in the
    /// properties of tables.
    fn find_families(&mut self) -> Result<()> {
        let any = self.any_tables()?;
        let mut by_tables: BTreeMap<ColumnFamilyId, KnownFamily> = BTreeMap::new();
        let mut readable = Vec::new();
        for table in std::mem::take(&mut self.found) {
            let properties = match tables::properties(&any[copying::parent(&table.path)], &table) {
                Ok(properties) => properties,
                Err(error) if is_damage(&error) => {
                    self.lost.take(&table.path, error.to_string())?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let id = self.family_of(&table, &properties);
            let comparator = Some(properties.comparator_name).filter(|name| !name.is_empty());
            let name = match id {
                ColumnFamilyId::DEFAULT => DEFAULT.to_owned(),
                _ => properties.column_family_name,
            };
            self.of_family.insert(table.number, id);
            let family = by_tables.entry(id).or_insert_with(|| KnownFamily { name, ..Default::default() });
            family.comparator = family.comparator.take().or(comparator);
            readable.push(table);
        }
        self.found = readable;
        for (id, family) in by_tables {
            // Not one with the default's name and another id, because only the default can have
            // that name.
            let usurps = id != ColumnFamilyId::DEFAULT && family.name == DEFAULT;
            if usurps || self.salvaged.dropped.contains(&id) {
                continue;
            }
            if let Some(known) = self.families.get_mut(&id) {
                known.comparator = known.comparator.take().or(family.comparator);
            } else {
                self.families.insert(id, family);
            }
        }
        // The larger id wins, because the older of two families with one name must have been
        // dropped.
        let mut names = BTreeSet::new();
        let ids: Vec<ColumnFamilyId> = self.families.keys().rev().copied().collect();
        for id in ids {
            if !names.insert(self.families[&id].name.clone()) {
                self.families.remove(&id);
            }
        }
        Ok(())
    }

    /// Finds the options of the database and of its families, and opens their table caches.
    fn find_options(&mut self) -> Result<()> {
        let mut replay = ManifestReplay::new();
        for (column_family, family) in &self.families {
            let named = Some(family.name.clone()).filter(|_| *column_family != ColumnFamilyId::DEFAULT);
            let id = VersionEdit { column_family: *column_family, ..VersionEdit::default() };
            let edits = [
                named.map(|name| VersionEdit { column_family_add: Some(name), ..id.clone() }),
                Some(VersionEdit { comparator: family.comparator.clone(), ..id }),
            ];
            for edit in edits.into_iter().flatten() {
                replay.add(edit).map_err(|e| Error::new(ErrorKind::Corruption, e.to_string()))?;
            }
        }
        let name = self.salvaged.name.unwrap_or(FileName::Current);
        let manifest = Manifest::made_up(self.directory.file(name), name, replay);
        let found = self.search(&manifest).or_else(|error| {
            if error.kind().is_io() {
                return Err(error);
            }
            // The caller's options may work even if those of every OPTIONS file fail.
            self.options = self.options.clone().damaged_options(DamagedOptions::Ignore);
            self.search(&manifest)
        })?;
        self.db_options = found.db_options;
        self.configs = found.configs;
        for (id, config) in &self.configs {
            let shared = self.options.shared_of(&self.shared, &config.name)?;
            let cache = TableCache::new(shared, config, None);
            self.caches.insert(*id, Arc::new(cache));
        }
        Ok(())
    }

    fn search(&self, manifest: &Manifest) -> Result<FoundOptions> {
        let (directory, options) = (&self.directory, &self.options);
        let (wanted, purpose) = (Wanted::All, Purpose::Writing);
        Search { directory, manifest, options, wanted, purpose }.find()
    }

    /// Reads all tables, and the headers and footers of blob files.
    fn examine(&mut self) -> Result<()> {
        for table in std::mem::take(&mut self.found) {
            let id = self.of_family[&table.number];
            let Some(tables) = self.caches.get(&id) else {
                let what = format!(
                    "the table belongs to column family {id}, which was dropped or has another id now"
                );
                self.lost.take(&table.path, what)?;
                continue;
            };
            if self.salvaged.has_left(table.number) && self.path_id_of(id, &table).is_none() {
                self.lost.take(&table.path, "the table had left the tree; other tables hold its entries")?;
                continue;
            }
            // Fails, because with other paths the table may be in the right place.
            let path_id = self.path_id_of(id, &table).ok_or_else(|| self.elsewhere(id, &table))?;
            let table = table.in_path(path_id);
            let known = self.salvaged.known_as(table.number, table.size_bytes);
            let named = known.map(|(_, file)| file);
            match tables::examine(tables, &table, named) {
                Ok(examined) => self.examined.entry(id).or_default().push(examined),
                Err(error) if is_damage(&error) => self.lost.take(&table.path, error.to_string())?,
                Err(error) => return Err(error),
            }
        }
        let firsts = self.configs.keys().map(|id| self.directories_of(*id).swap_remove(0));
        let firsts: BTreeSet<PathBuf> = firsts.filter(|place| self.places.contains(place)).collect();
        for place in &firsts {
            self.examine_blob_files(place)?;
        }
        for (name, what) in std::mem::take(&mut self.salvaged.damaged) {
            self.lost.keep(&self.directory.file(name), what)?;
        }
        Ok(())
    }

    /// Reads the headers and footers of the blob files in a directory.
    fn examine_blob_files(&mut self, place: &Path) -> Result<()> {
        for name in Directory::list(&self.env, place)?.files() {
            let FileName::Blob(number) = *name else { continue };
            let path = place.join(name.to_string());
            match tables::blob_file(&self.env, place, number) {
                Ok(found) if self.blob_path(found.family, number) == path => {
                    self.blob_files.insert(number, found);
                }
                Ok(found) => {
                    let what = format!(
                        "the file belongs to column family {}, whose blob files are in another directory",
                        found.family
                    );
                    self.lost.take(&path, what)?;
                }
                Err(error) if is_damage(&error) => self.lost.take(&path, error.to_string())?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn elsewhere(&self, id: ColumnFamilyId, table: &FoundTable) -> Error {
        let (path, name) = (table.path.display(), &self.configs[&id].name);
        let text = format!(
            "{path}: column family {name:?} has no such directory; set its cf_paths, or move the table"
        );
        Error::invalid_argument(text)
    }

    /// Copies each log to `lost` that cannot be replayed completely.
    fn look_at_logs(&mut self) -> Result<()> {
        let place = self.wal_path();
        let logs = match Directory::list(&self.env, &place) {
            Ok(directory) => directory.logs(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let known: BTreeSet<ColumnFamilyId> = self.families.keys().copied().collect();
        for number in logs {
            let path = place.join(FileName::Wal(number).to_string());
            let looked = look_at_log(&self.env.fs().read_file(&path)?, number, |id| {
                known.contains(&id) || self.salvaged.dropped.contains(&id)
            });
            self.report.logs += 1;
            self.report.entries_of_unknown_families += looked.of_unknown_families;
            let what = looked.damage.or(looked.torn).or_else(|| {
                let entries = Some(looked.of_unknown_families).filter(|entries| *entries > 0)?;
                Some(format!("the log has {entries} entries of unknown column families"))
            });
            if let Some(what) = what {
                self.lost.keep(&path, what)?;
            }
        }
        Ok(())
    }

    /// Builds the trees for the new MANIFEST.
    fn trees(&mut self) -> Result<BTreeMap<ColumnFamilyId, NewTree>> {
        self.leave_halves()?;
        let doubt = self.doubt_of_trees();
        let versions = match doubt {
            None => Some(self.trees_of_manifest()?),
            Some(_) => None,
        };
        self.report.trees_made_anew = doubt;
        let mut trees = BTreeMap::new();
        for id in self.configs.keys().copied().collect::<Vec<_>>() {
            let examined = self.examined.remove(&id).unwrap_or_default();
            let tree = match &versions {
                Some(set) => self.tree_of_version(id, &set.column_families[&id].version, examined)?,
                None => self.new_tree(id, examined)?,
            };
            trees.insert(id, tree);
        }
        self.leave_unneeded_blob_files(&trees)?;
        Ok(trees)
    }

    /// Moves tables to `lost` that an undamaged MANIFEST does not record, and that refer to missing
    /// or damaged blob files.
    ///
    /// They were written by a job that a crash interrupted. Their entries are complete in the logs
    /// or in other tables; if such a table stayed, its entries would not be recovered from the
    /// logs.
    fn leave_halves(&mut self) -> Result<()> {
        if self.salvaged.doubt.is_some() {
            return Ok(());
        }
        let (named, blob_files) = (&self.salvaged.named, &self.blob_files);
        let is_stray = |table: &Examined| !named.contains_key(&table.file.number);
        let strays = self.examined.values().flatten().filter(|table| is_stray(table));
        let referred: BTreeSet<FileNumber> =
            strays.flat_map(|table| table.references.keys().copied()).collect();
        let mut damaged = BTreeSet::new();
        for number in referred {
            let Some(found) = blob_files.get(&number) else { continue };
            let Some(tables) = self.caches.get(&found.family) else { continue };
            let described = BlobFileMetadata::new(found.addition.clone());
            match block_on(&self.env, tables.blobs.verify(&described)) {
                Ok(()) => {}
                Err(error) if is_damage(&error) => _ = damaged.insert(number),
                Err(error) => return Err(error),
            }
        }
        let is_half = |table: &Examined| {
            let is_bad = |number| !blob_files.contains_key(number) || damaged.contains(number);
            is_stray(table) && table.references.keys().any(is_bad)
        };
        for tables in self.examined.values_mut() {
            let (halves, whole): (Vec<_>, Vec<_>) = std::mem::take(tables).into_iter().partition(is_half);
            *tables = whole;
            for table in halves {
                let what =
                    "no MANIFEST records the table, and it refers to a blob file that is damaged or missing";
                self.lost.take(&table.path, what)?;
            }
        }
        Ok(())
    }

    /// Returns the reason why the trees of the MANIFEST cannot be used, or None.
    fn doubt_of_trees(&self) -> Option<String> {
        let salvaged = &self.salvaged;
        if let Some(doubt) = &salvaged.doubt {
            return Some(doubt.clone());
        }
        let (mut there, mut strays) = (BTreeSet::new(), 0);
        for tables in self.examined.values() {
            let newest_known = newest_known(salvaged, tables);
            for table in tables {
                there.insert(table.file.number);
                if salvaged.named.contains_key(&table.file.number) {
                    continue;
                }
                strays += 1;
                // Compared by family, because a flush of another family may have recorded a newer
                // number since. The output of an unrecorded compaction is no newer than its inputs.
                if table.file.largest_seq > newest_known {
                    let path = table.path.display();
                    return Some(format!(
                        "{path} holds sequence numbers newer than any the MANIFEST records"
                    ));
                }
            }
        }
        let gone = salvaged.live.iter().find(|number| {
            let lost = |place: &PathBuf| self.lost.has(&place.join(FileName::Table(**number).to_string()));
            !there.contains(number) && !self.places.iter().any(lost)
        });
        // The unrecorded tables may have replaced the missing one.
        match gone {
            Some(number) if strays > 0 => {
                Some(format!("table {number} is missing, and some tables are not recorded in the MANIFEST"))
            }
            _ => None,
        }
    }

    fn trees_of_manifest(&self) -> Result<VersionSet> {
        let replay = self.salvaged.replay.clone();
        let set = replay.finish(|found| {
            Ok(self.configs.get(&found.id).map(|config| TreeOptions {
                comparator: config.comparator.clone(),
                level_count: usize::try_from(config.options.num_levels).unwrap_or(1),
                allow_ingest_behind: self.db_options.allow_ingest_behind
                    || config.options.cf_allow_ingest_behind,
                check_consistency: false,
            }))
        });
        set.map_err(|e| Error::new(ErrorKind::Corruption, e.to_string()))
    }

    /// Returns a tree of the MANIFEST, without missing files.
    fn tree_of_version(
        &mut self,
        id: ColumnFamilyId,
        version: &Version,
        examined: Vec<Examined>,
    ) -> Result<NewTree> {
        let shared = self.caches[&id].shared.clone();
        let mut edit = VersionEdit {
            compact_cursors: version.compact_cursors().iter().map(|(l, key)| (*l, key.clone())).collect(),
            ..VersionEdit::default()
        };
        let mut examined: BTreeMap<FileNumber, Examined> =
            examined.into_iter().map(|table| (table.file.number, table)).collect();
        for (level, file) in version.all_files() {
            let path = shared.table_path(file.number, file.path_id)?;
            match examined.remove(&file.number) {
                Some(table) if table.file.size_bytes == file.size_bytes => {
                    // The table's own path, because the table may have been moved to another path
                    // of its family.
                    let path_id = table.file.path_id;
                    edit.new_files.push((level, NewFile { path_id, ..NewFile::clone(file) }));
                }
                Some(table) => {
                    let text =
                        format!("the table's size differs from the MANIFEST's, {} bytes", file.size_bytes);
                    self.lost.take(&table.path, text)?;
                }
                None if self.lost.has(&path) => {}
                None => self.report.missing.push(path),
            }
        }
        for table in examined.into_values() {
            self.lost.take(&table.path, "the table is in no tree; other tables hold its entries")?;
        }
        for (number, blob) in version.blob_files() {
            if !self.blob_files.contains_key(number) {
                self.miss_blob_file(id, *number);
                continue;
            }
            edit.blob_file_additions.push(blob.file.clone());
            if blob.garbage_count > 0 {
                let (count, bytes) = (blob.garbage_count, blob.garbage_bytes);
                edit.blob_file_garbages.push(BlobFileGarbage { number: *number, count, bytes });
            }
        }
        Ok(NewTree { edit, merged: 0 })
    }

    fn miss_blob_file(&mut self, id: ColumnFamilyId, number: FileNumber) {
        let path = self.blob_path(id, number);
        if !self.lost.has(&path) {
            self.report.missing.push(path);
        }
    }

    /// Builds a tree from tables whose levels are unknown.
    fn new_tree(&mut self, id: ColumnFamilyId, examined: Vec<Examined>) -> Result<NewTree> {
        let salvaged = &self.salvaged;
        let has_left = |table: &Examined| salvaged.has_left(table.file.number);
        let (gone, mut kept): (Vec<_>, Vec<_>) = examined.into_iter().partition(has_left);
        for table in gone {
            self.lost.take(&table.path, "the table had left the tree; other tables hold its entries")?;
        }
        for table in &mut kept {
            let there = table.references.keys().find(|number| self.blob_files.contains_key(number));
            table.file.oldest_blob_file = there.copied();
        }
        let config = self.configs[&id].clone();
        let level = tree::last_level(&self.db_options, &config);
        let plan = tree::Plan::of(&config.comparator, kept, level == Level(0));
        let db_id = self.salvaged.db_id.clone().map(|id| String::from_utf8_lossy(&id).into_owned());
        let merging = tree::Merging {
            env: &self.env,
            db_options: &self.db_options,
            file_checksums: self.options.file_checksums(&self.db_options)?,
            config: &config,
            tables: &self.caches[&id],
            identity: &Arc::new(Identity {
                db_id: db_id.unwrap_or_default(),
                session_id: identity::new_session_id(&self.env),
                host_id: host_id(&self.env, &self.db_options),
            }),
            numbers: &self.numbers,
            directory: self.directories_of(id).swap_remove(0),
            level,
        };
        let tree = merging.carry_out(plan)?;
        let mut edit = VersionEdit { new_files: tree.files, ..VersionEdit::default() };
        self.register_blob_files(id, &tree.references, &mut edit);
        Ok(NewTree { edit, merged: tree.merged })
    }

    /// Adds the blob files that the tables refer to; unreferenced values in them count as garbage.
    fn register_blob_files(&mut self, id: ColumnFamilyId, references: &References, edit: &mut VersionEdit) {
        for (number, (count, bytes)) in references {
            let Some(found) = self.blob_files.get(number).filter(|found| found.family == id) else {
                self.miss_blob_file(id, *number);
                continue;
            };
            let (total_count, total_bytes) = (found.addition.total_count, found.addition.total_bytes);
            edit.blob_file_additions.push(found.addition.clone());
            let garbage = total_count.saturating_sub(*count);
            if garbage > 0 {
                let bytes = total_bytes.saturating_sub(*bytes);
                edit.blob_file_garbages.push(BlobFileGarbage { number: *number, count: garbage, bytes });
            }
        }
    }

    /// Moves blob files to `lost` that no tree refers to.
    fn leave_unneeded_blob_files(&mut self, trees: &BTreeMap<ColumnFamilyId, NewTree>) -> Result<()> {
        let additions = trees.values().flat_map(|tree| &tree.edit.blob_file_additions);
        let needed: BTreeSet<FileNumber> = additions.map(|blob| blob.number).collect();
        for (number, found) in self.blob_files.iter().filter(|(number, _)| !needed.contains(number)) {
            let path = self.blob_path(found.family, *number);
            self.lost.take(&path, "no table refers to the blob file")?;
        }
        Ok(())
    }

    /// Writes a MANIFEST with these trees and makes CURRENT name it.
    fn write_manifest(&mut self, trees: &BTreeMap<ColumnFamilyId, NewTree>) -> Result<()> {
        let db_id = match &self.salvaged.db_id {
            Some(id) => Some(id.clone()),
            None if self.directory.contains(FileName::Identity) => {
                let id =
                    String::from_utf8_lossy(&self.directory.read(FileName::Identity)?).trim_end().to_owned();
                Some(id.into_bytes()).filter(|id| !id.is_empty())
            }
            None => None,
        };
        let mut edits = Vec::new();
        if db_id.is_some() {
            edits.push(VersionEdit { db_id, ..VersionEdit::default() });
        }
        let mut last_sequence = self.salvaged.last_seq;
        for (id, tree) in trees {
            let family = &self.families[id];
            edits.push(VersionEdit {
                column_family: *id,
                column_family_add: Some(family.name.clone()).filter(|_| *id != ColumnFamilyId::DEFAULT),
                comparator: Some(self.configs[id].comparator.name().to_owned()),
                ..VersionEdit::default()
            });
            let newest = tree.edit.new_files.iter().map(|(_, file)| file.largest_seq).max();
            last_sequence = last_sequence.max(newest.unwrap_or(SeqNo::ZERO));
            edits.push(VersionEdit {
                column_family: *id,
                log_number: Some(family.log_number),
                full_history_ts_low: family.full_history_ts_low.clone(),
                ..tree.edit.clone()
            });
        }
        let [manifest, written, temporary] = [(); 3].map(|()| FileNumber(self.numbers.next()));
        let largest_id = trees.keys().max().copied().unwrap_or_default();
        edits.push(VersionEdit {
            prev_log_number: Some(FileNumber(0)),
            next_file_number: Some(FileNumber(self.numbers.next())),
            max_column_family: Some(self.salvaged.max_column_family.max(largest_id)),
            min_log_number_to_keep: Some(self.salvaged.min_log_number_to_keep),
            last_sequence: Some(last_sequence),
            ..VersionEdit::default()
        });
        let mut writer = LogWriter::new(FileNumber(0), false);
        let mut bytes = Vec::new();
        for edit in &edits {
            let added = writer.append(&edit.encode(), &mut bytes);
            added.map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
        }
        let (fs, name) = (self.env.fs(), FileName::Manifest(manifest));
        // Written under a temporary name first, because the next repair would trust a partial
        // MANIFEST.
        let unfinished = self.directory.file(FileName::Temp(written));
        write_synced(fs.as_ref(), &unfinished, &bytes)?;
        fs.rename(&unfinished, &self.directory.file(name))?;
        for place in &self.places {
            fs.sync_dir(place)?;
        }
        fs.sync_dir(&self.path)?;
        write_current(fs.as_ref(), &self.path, name, temporary)
    }
}

/// Returns the largest sequence number of a family's tables that are in its tree in the MANIFEST.
fn newest_known(salvaged: &Salvaged, tables: &[Examined]) -> SeqNo {
    let known = tables.iter().filter(|table| salvaged.live.contains(&table.file.number)).map(|table| {
        let named = salvaged.named.get(&table.file.number).map(|(_, file)| file.largest_seq);
        named.unwrap_or_default().max(table.file.largest_seq)
    });
    known.max().unwrap_or_default()
}

/// Returns the column family in a table's properties.
///
/// Compat: tables of old releases, and tables made for ingestion, do not record it.
fn family_id(properties: &TableProperties) -> ColumnFamilyId {
    let said = properties.column_family_id;
    let known = u32::try_from(said).ok().filter(|_| said != i32::MAX as u64);
    known.map_or(ColumnFamilyId::DEFAULT, ColumnFamilyId)
}

/// Result of examining a log.
#[derive(Debug, Default)]
struct Looked {
    damage: Option<String>,
    /// Bytes after the last record that are not a log's normal end: a record not written
    /// completely, as after a crash, or damage that looks like one.
    torn: Option<String>,
    of_unknown_families: u64,
}

/// Examines a log for damage, and for entries of unknown families.
fn look_at_log(bytes: &[u8], number: FileNumber, is_known: impl Fn(ColumnFamilyId) -> bool) -> Looked {
    let mut looked = Looked::default();
    let mut reader = LogReader::new(bytes, number, RecoveryMode::SkipAnyCorruptedRecords);
    let (mut end, mut has_old) = (0, false);
    let mut told = |offset: u64, what: String| {
        looked.damage.get_or_insert_with(|| format!("offset {offset}: {what}"));
    };
    while let Some(event) = reader.next_event() {
        match event {
            LogEvent::Damage(damage) => {
                told(damage.corruption.offset, damage.corruption.what.to_string());
            }
            LogEvent::Record(record) => match BatchReader::parse(record.bytes) {
                Err(c) => told(record.offset, c.what.to_string()),
                Ok(batch) => {
                    end = record.end;
                    for op in batch.ops() {
                        match op {
                            Err(c) => told(record.offset, c.what.to_string()),
                            Ok(op) => {
                                let unknown = op.column_family().is_some_and(|id| !is_known(id));
                                looked.of_unknown_families += u64::from(unknown);
                            }
                        }
                    }
                }
            },
            LogEvent::OldRecord { .. } => has_old = true,
            LogEvent::Predecessor(_) => {}
        }
    }
    let rest = bytes.get(end as usize..).unwrap_or_default();
    if !has_old && !reader.is_recyclable() && end > 0 && rest.iter().any(|byte| *byte != 0) {
        looked.torn = Some(format!("offset {end}: a record that is not whole"));
    }
    looked
}
