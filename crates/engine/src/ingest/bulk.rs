//! The bulk loader, which creates a database from streams of entries.
//!
//! In: entries. Unsorted ones gather in a memtable and are written as a sorted run; sorted ones are
//! written directly. Out: a database directory.
//!
//! Order: runs are written from the oldest to the newest, so each run goes to a level above all
//! earlier ones; only L0 takes several. This is checked, because otherwise reads would find older
//! entries first.
//!
//! Invariants:
//! - LOCK is held from before the first look at the directory until CURRENT is durable.
//! - No directory of the new database holds a file of a database when the load begins, so only the
//!   loader's own files are replaced.
//! - CURRENT is written last, when all files and their names are durable. Without it the directory
//!   is no database, however far the load has come.

use crate::open::{
    Options, check_options, check_path, identity, new_family_options, take_lock, write_identity,
};
use crate::versions::{write_current, write_synced};
use karst_base::error::{Error, ErrorKind, Named, Result, Shown, check_range};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::file_name::{FileName, is_trash};
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::{self, SeqNo, ValueType};
use karst_format::log::LogWriter;
use karst_format::options::changed_head;
use karst_format::version_edit::{BlobFileAddition, NewFile, VersionEdit};
use karst_io::{Env, FileLock, FileSystem};
use karst_lsm::OpenOutput;
use karst_lsm::pick::CompactionOptions;
use karst_storage::memtable::{MemTable, stored_kind};
use karst_storage::table::writer::{
    CutPolicy, Identity as WriterIdentity, NewFiles, Outputs, RunFiles, RunWriter, TablePlace, host_id,
    writer_options,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Creates a new database.
///
/// ```no_run
/// # use karst_engine as karstdb;
/// use karstdb::{BulkLoader, Options};
/// let mut loader = BulkLoader::create("/tmp/new-db", &Options::new())?;
/// loader.put(b"older", b"value")?;
/// loader.seal(2)?; // all so far becomes one sorted run on L2
/// loader.put(b"newer", b"value")?;
/// loader.finish()?; // the rest goes to L0
/// # Ok::<(), karstdb::Error>(())
/// ```
///
/// All calls block because they write files. A loader that is dropped before
/// [`BulkLoader::finish`], like a crash, leaves files but no database. The next load refuses these
/// files; [`Db::destroy`](crate::Db::destroy) removes them.
///
/// Tables and blob files go to the directories of [`Options::db_paths`] and [`Options::cf_paths`],
/// like those of flushes and compactions.
pub struct BulkLoader {
    env: Env,
    path: PathBuf,
    options: Options,
    db_options: DbOptions,
    families: Vec<LoadedFamily>,
    files: Numbers,
    last_seq: SeqNo,
    identity: Identity,
    _lock: Box<dyn FileLock>,
}

impl std::fmt::Debug for BulkLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoader")
            .field("path", &self.path)
            .field("families", &self.families.len())
            .field("last_seq", &self.last_seq)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct LoadedFamily {
    config: Arc<FamilyConfig>,
    memtable: MemTable,
    files: Vec<(Level, NewFile)>,
    blob_files: Vec<BlobFileAddition>,
    /// Level of the last run.
    highest: Option<usize>,
    /// Level reserved for files that are ingested behind all others, or None.
    reserved: Option<usize>,
    next_epoch: u64,
}

/// Allocator of file numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) Arc<AtomicU64>);

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        // Ordering: a counter; it publishes no other data.
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl NewFiles for Numbers {
    fn new_table(&self) -> FileNumber {
        FileNumber(self.next())
    }
    fn new_blob_file(&self) -> FileNumber {
        FileNumber(self.next())
    }
}

/// Ends a file at its target size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetSize(pub(crate) u64);

impl CutPolicy for TargetSize {
    fn cut_before(&mut self, _: &[u8], _: bool, open: Option<OpenOutput>) -> bool {
        open.is_some_and(|open| open.file_bytes + open.tail_bytes >= self.0)
    }

    fn needs_size(&self, _: &[u8], at_most: OpenOutput) -> bool {
        at_most.file_bytes + at_most.tail_bytes >= self.0
    }
}

#[derive(Clone, Debug)]
struct Identity {
    db_id: String,
    session_id: String,
    now_s: u64,
}

impl BulkLoader {
    /// Creates a database in directory `path`, which is created if missing. The default column
    /// family gets its options from `options`.
    ///
    /// # Errors
    /// The directory, or another one of the new database, holds a file of a database; it is locked;
    /// or the options are invalid.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<BulkLoader> {
        Self::create_at(path.as_ref().to_owned(), options)
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn create_at(path: PathBuf, options: &Options) -> Result<BulkLoader> {
        let env = options.environment();
        check_path(&path)?;
        let db_options = options.db_options(DbOptions::default())?;
        check_options::database(&db_options)?;
        options.check_paths()?;
        let default = LoadedFamily::new(&db_options, options, ColumnFamilyId::DEFAULT, "default")?;
        let fs = env.fs();
        fs.create_dir_durably(&path)?;
        let lock = take_lock(&env, &path)?;
        let options = options.spelled_once(&env, &path);
        let directories: BTreeSet<PathBuf> =
            options.all_directories(&path).into_iter().map(|(_, directory)| directory).collect();
        let logs = match db_options.wal_dir.as_str() {
            "" => path.clone(),
            elsewhere => PathBuf::from(elsewhere),
        };
        let archives = [path.join("archive"), logs.join("archive")];
        for directory in directories.iter().chain([&path, &logs]).chain(&archives) {
            check_unused(fs.as_ref(), directory)?;
        }
        for directory in directories.iter().filter(|directory| **directory != path) {
            fs.create_dir_durably(directory)?;
        }
        Ok(BulkLoader {
            identity: Identity::new(&env),
            db_options,
            options,
            families: vec![default],
            files: Numbers(Arc::new(AtomicU64::new(4))),
            last_seq: SeqNo::ZERO,
            _lock: lock,
            path,
            env,
        })
    }

    /// Adds a column family.
    ///
    /// # Errors
    /// The name is in use, or its options are invalid.
    pub fn create_column_family(&mut self, name: &str) -> Result<ColumnFamilyId> {
        if self.families.iter().any(|family| family.config.name == name) {
            let name = Named(name);
            return Err(Error::invalid_argument(format!("Column family already exists: {name:?}")));
        }
        let id = ColumnFamilyId(self.families.len() as u32);
        self.families.push(LoadedFamily::new(&self.db_options, &self.options, id, name)?);
        Ok(id)
    }

    /// Sets a key of the default column family.
    ///
    /// # Errors
    /// Those of [`BulkLoader::write`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ColumnFamilyId::DEFAULT, ValueType::Value, key, value)
    }

    /// Removes a key of the default column family.
    ///
    /// # Errors
    /// Those of [`BulkLoader::write`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(ColumnFamilyId::DEFAULT, ValueType::Deletion, key, b"")
    }

    /// Adds a merge operand to a key of the default column family.
    ///
    /// # Errors
    /// Those of [`BulkLoader::write`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.write(ColumnFamilyId::DEFAULT, ValueType::Merge, key, operand)
    }

    /// Removes the keys of the default column family from `start` up to, not including, `end`.
    ///
    /// # Errors
    /// Those of [`BulkLoader::write`].
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.write(ColumnFamilyId::DEFAULT, ValueType::RangeDeletion, start, end)
    }

    /// Adds an entry of any kind that tables store, newer than all earlier ones. Keys may come in
    /// any order; entries that fill a write buffer (`write_buffer_size`) are written to L0.
    ///
    /// In a column family with timestamps `key` ends with its timestamp. Entries of a key at
    /// different timestamps are all kept.
    ///
    /// # Errors
    /// The column family does not exist, tables cannot store the kind, the key is shorter than a
    /// timestamp of its column family, a range ends before it begins or is deleted in a column
    /// family with timestamps, the value is a reference into a blob file, or writing failed; in
    /// this last case the loader keeps the entry, and a later call writes it.
    pub fn write(&mut self, family: ColumnFamilyId, kind: ValueType, key: &[u8], value: &[u8]) -> Result<()> {
        if !kind.is_stored() {
            return Err(Error::invalid_argument(format!("{kind:?} is not the type of an entry")));
        }
        let family_index = self.index(family)?;
        self.families[family_index].check_entry(kind, key, value)?;
        let seq = self.next_seq()?;
        let target = &self.families[family_index];
        target
            .memtable
            .add(seq, kind, key, value)
            .map_err(|_| Error::invalid_argument("a sequence number was used twice"))?;
        if target.memtable.memory_bytes() >= target.config.options.write_buffer_size {
            self.seal_family(family_index, 0)?;
        }
        Ok(())
    }

    /// Writes the entries added to the default column family since the last seal as one sorted run
    /// of `level`.
    ///
    /// # Errors
    /// The level is not above all earlier runs, the tree lacks it, or writing failed.
    pub fn seal(&mut self, level: usize) -> Result<()> {
        self.seal_family(0, level)
    }

    /// Seals any column family, like [`BulkLoader::seal`].
    ///
    /// # Errors
    /// Those of [`BulkLoader::seal`].
    pub fn seal_cf(&mut self, family: ColumnFamilyId, level: usize) -> Result<()> {
        let index = self.index(family)?;
        self.seal_family(index, level)
    }

    /// Begins a run of `level` whose keys come in ascending order, newer than all earlier entries;
    /// they are written directly to files.
    ///
    /// # Errors
    /// Those of [`BulkLoader::seal`]; entries of the family wait to be sealed, which would be
    /// older.
    pub fn sorted_run(&mut self, family: ColumnFamilyId, level: usize) -> Result<SortedRun<'_>> {
        let index = self.index(family)?;
        if !self.families[index].memtable.is_empty() {
            return Err(Error::invalid_argument("entries added before have to be sealed first"));
        }
        self.families[index].check_level(level)?;
        let writer = self.run_writer(index, level, None)?;
        Ok(SortedRun { loader: self, index, level, writer, key: Vec::new() })
    }

    /// Writes unsealed entries to L0, and makes the directory a database.
    ///
    /// # Errors
    /// Writing failed. The directory is no database then, or, if only CURRENT may not be durable, a
    /// complete one.
    pub fn finish(mut self) -> Result<()> {
        for index in 0..self.families.len() {
            self.seal_family(index, 0)?;
        }
        let fs = self.env.fs().clone();
        let directories = (0..self.families.len()).flat_map(|index| self.directories(index));
        for directory in directories.collect::<BTreeSet<_>>() {
            fs.sync_dir(&directory)?;
        }
        let manifest = FileName::Manifest(FileNumber(self.files.next()));
        let options = FileName::Options(FileNumber(self.files.next()));
        let log = FileNumber(self.files.next());
        let temporary = FileNumber(self.files.next());
        if self.db_options.write_identity_file {
            write_identity(&self.env, &self.path, &self.identity.db_id)?;
        }
        write_synced(fs.as_ref(), &self.file(manifest), &self.manifest(log)?)?;
        let mut text = changed_head(&self.db_options);
        self.families.iter().for_each(|family| text += family.config.options_text());
        write_synced(fs.as_ref(), &self.file(options), text.as_bytes())?;
        // Before CURRENT, because otherwise it may become durable without the names of these files.
        fs.sync_dir(&self.path)?;
        write_current(fs.as_ref(), &self.path, manifest, temporary)
    }

    /// Returns the directories of a column family's files, by path id.
    fn directories(&self, index: usize) -> Vec<PathBuf> {
        self.options.directories_of(&self.path, &self.families[index].config.name)
    }

    fn index(&self, family: ColumnFamilyId) -> Result<usize> {
        let index = family.0 as usize;
        if index >= self.families.len() {
            return Err(Error::invalid_argument(format!("there is no column family {family}")));
        }
        Ok(index)
    }

    fn next_seq(&mut self) -> Result<SeqNo> {
        if self.last_seq >= SeqNo::MAX {
            return Err(Error::new(ErrorKind::LimitReached, "no sequence number is left"));
        }
        self.last_seq = SeqNo(self.last_seq.0 + 1);
        Ok(self.last_seq)
    }

    fn seal_family(&mut self, index: usize, level: usize) -> Result<()> {
        if self.families[index].memtable.is_empty() {
            return Ok(());
        }
        self.families[index].check_level(level)?;
        let files = self.write_memtable(index, level)?;
        self.install(index, level, files);
        // Replaced only now, so that a failed seal can be retried and no entry is lost.
        let family = &mut self.families[index];
        family.memtable = MemTable::new(family.config.comparator.clone());
        Ok(())
    }

    fn write_memtable(&self, index: usize, level: usize) -> Result<RunFiles> {
        let full = &self.families[index].memtable;
        let mut writer = self.run_writer(index, level, full.range_tombstones())?;
        let mut at = full.first();
        let mut done_with: Option<&[u8]> = None;
        while let Some(position) = at {
            let internal_key = full.key(position);
            let (user_key, trailer) = key::split(internal_key);
            // Compared with timestamps, because entries of a key at different timestamps are all
            // readable.
            let hides = |done: &[u8]| full.comparator().compare_with_timestamps(done, user_key).is_eq();
            let hidden = done_with.is_some_and(hides);
            if !hidden {
                let value = full.value(full.value_at(position));
                writer.add(internal_key, value)?;
                if writer.needs_room() {
                    karst_io::block_on(&self.env, writer.make_room())?;
                }
                // Older entries of the key are skipped after a value or a deletion, because no
                // reader sees them; a merge operand or a single delete needs them.
                done_with = hides_older(trailer as u8).then_some(user_key);
            }
            at = full.next(position);
        }
        Ok(karst_io::block_on(&self.env, writer.finish())?.0)
    }

    fn run_writer(
        &self,
        index: usize,
        level: usize,
        tombstones: Option<Arc<karst_lsm::range_del::Fragments>>,
    ) -> Result<RunWriter<TargetSize>> {
        let family = &self.families[index];
        let options = &family.config.options;
        // Compat: an L0 file is as large as the flushed memtable; on lower levels the file size
        // grows from level to level.
        let factor = u64::try_from(options.target_file_size_multiplier).unwrap_or(1);
        let growth = factor.saturating_pow(level.saturating_sub(1) as u32);
        let target = match level {
            0 => u64::MAX,
            _ => options.target_file_size_base.saturating_mul(growth),
        };
        let last_level = level + 1 >= usize::try_from(options.num_levels).unwrap_or(1);
        let directories = self.directories(index);
        let path_id =
            family.path_id(&self.db_options, level, self.options.path_target_sizes_of(&family.config.name)?);
        let outputs = Outputs {
            env: self.env.clone(),
            config: family.config.clone(),
            identity: Arc::new(WriterIdentity {
                db_id: self.identity.db_id.clone(),
                session_id: self.identity.session_id.clone(),
                host_id: host_id(&self.env, &self.db_options),
            }),
            new_files: Arc::new(self.files.clone()),
            table_directory: directories[usize::from(path_id)].clone(),
            path_id,
            temperature: Default::default(),
            blob_directory: directories[0].clone(),
            place: TablePlace { bottommost: last_level, ..TablePlace::in_level(level) },
            epoch: family.next_epoch,
            oldest_ancestor_time_s: self.identity.now_s,
            oldest_key_time_s: self.identity.now_s,
            newest_key_time_s: self.identity.now_s,
            throttle: None,
            writing: writer_options(&self.db_options),
            warming: None,
            blob_warming: None,
            memory: None,
            file_checksums: self.options.file_checksums(&self.db_options)?,
            creations: None,
            space: None,
            stats: Arc::new(Statistics::new(StatsLevel::DisableAll)),
        };
        RunWriter::new(outputs, TargetSize(target), tombstones, (None, None))
    }

    fn install(&mut self, index: usize, level: usize, files: RunFiles) {
        let family = &mut self.families[index];
        let tables = files.tables.into_iter().map(|table| (Level(level as u8), table.file));
        family.files.extend(tables);
        family.blob_files.extend(files.blob_files);
        family.next_epoch += 1;
        family.highest = Some(level);
    }

    /// Returns the MANIFEST, with the records that RocksDB writes for a database with these files.
    fn manifest(&self, log: FileNumber) -> Result<Vec<u8>> {
        let mut edits = vec![VersionEdit {
            db_id: Some(self.identity.db_id.clone().into_bytes()),
            ..VersionEdit::default()
        }];
        for family in &self.families {
            let id = family.config.id;
            if id != ColumnFamilyId::DEFAULT {
                edits.push(VersionEdit {
                    column_family: id,
                    column_family_add: Some(family.config.name.clone()),
                    ..VersionEdit::default()
                });
            }
            edits.push(VersionEdit {
                column_family: id,
                comparator: Some(family.config.comparator.name().to_owned()),
                ..VersionEdit::default()
            });
            edits.push(VersionEdit {
                column_family: id,
                log_number: Some(log),
                new_files: family.files.clone(),
                blob_file_additions: family.blob_files.clone(),
                ..VersionEdit::default()
            });
        }
        edits.push(VersionEdit {
            prev_log_number: Some(FileNumber(0)),
            next_file_number: Some(FileNumber(self.files.next())),
            max_column_family: Some(ColumnFamilyId(self.families.len() as u32 - 1)),
            min_log_number_to_keep: Some(log),
            last_sequence: Some(self.last_seq),
            ..VersionEdit::default()
        });
        let mut writer = LogWriter::new(FileNumber(0), false);
        let mut bytes = Vec::new();
        for edit in &edits {
            writer
                .append(&edit.encode(), &mut bytes)
                .map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
        }
        Ok(bytes)
    }

    fn file(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }
}

/// Returns an error for a directory that holds a file of a database other than LOCK, because the
/// load might replace it, or the loaded database might use or remove it.
fn check_unused(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    if !fs.exists(directory)? {
        return Ok(());
    }
    let names = fs.list_dir(directory)?;
    let is_used = |name: &&String| match FileName::parse(name) {
        Some(file) => file != FileName::Lock,
        None => is_trash(name),
    };
    let current = FileName::Current.to_string();
    if names.contains(&current) {
        let text = format!("{}: there is a database already", directory.join(current).display());
        return Err(Error::invalid_argument(text));
    }
    let Some(used) = names.iter().find(is_used) else { return Ok(()) };
    let text =
        format!("{}: the file exists, and a load needs unused directories", directory.join(used).display());
    Err(Error::invalid_argument(text).with_advice(
        "`Db::destroy` removes the files of an unfinished load, and `Db::repair` opens a database that has lost CURRENT",
    ))
}

/// Returns true if an entry of this type hides all older ones of its key.
fn hides_older(kind: u8) -> bool {
    [ValueType::Value, ValueType::Deletion, ValueType::BlobIndex, ValueType::WideColumnEntity]
        .iter()
        .any(|hides| *hides as u8 == kind)
}

impl LoadedFamily {
    fn new(db: &DbOptions, options: &Options, id: ColumnFamilyId, name: &str) -> Result<LoadedFamily> {
        let asked = options.family_options(new_family_options(), name)?;
        let config = FamilyConfig::resolve(id, name, asked.clone(), None, options.instances_for(name))?;
        check_options::new_family(db, &asked, &config)?;
        let reserved = CompactionOptions::new(db, &config.options, Vec::new()).reserved_level();
        Ok(LoadedFamily {
            memtable: MemTable::new(config.comparator.clone()),
            config: Arc::new(config),
            files: Vec::new(),
            blob_files: Vec::new(),
            highest: None,
            // Compat: epoch number 1 is for files that are ingested behind all others.
            next_epoch: if reserved.is_some() { 2 } else { 1 },
            reserved,
        })
    }

    /// Returns an error for a key that is shorter than a timestamp, for a range that ends before it
    /// begins or if keys have timestamps, and for a reference into a blob file.
    fn check_entry(&self, kind: ValueType, key: &[u8], value: &[u8]) -> Result<()> {
        let (name, size) = (Named(&self.config.name), self.config.comparator.timestamp_size());
        if size > 0 && kind == ValueType::RangeDeletion {
            return Err(Error::not_supported(format!(
                "removing a range in column family {name:?}, whose keys have timestamps"
            )));
        }
        if key.len() < size {
            let (key, bytes) = (Shown(key), key.len());
            return Err(Error::invalid_argument(format!(
                "key {key} of column family {name:?} has {bytes} bytes; its timestamp alone would have {size}"
            )));
        }
        match kind {
            ValueType::RangeDeletion => check_range(&self.config.comparator, key, value),
            // The database has no blob file yet that the reference could name.
            ValueType::BlobIndex => Err(Error::invalid_argument(
                "a reference into a blob file; a load is given values, and writes blob files of them by itself",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the id of the path that a run of `level` is written to.
    fn path_id(&self, db: &DbOptions, level: usize, sizes: Vec<u64>) -> u8 {
        if level == 0 {
            return 0;
        }
        CompactionOptions::new(db, &self.config.options, sizes).path_of_level(level)
    }

    fn check_level(&self, level: usize) -> Result<()> {
        let name = Named(&self.config.name);
        if level >= usize::try_from(self.config.options.num_levels).unwrap_or(0) {
            return Err(Error::invalid_argument(format!("column family {name:?} has no level {level}")));
        }
        if Some(level) == self.reserved {
            return Err(Error::invalid_argument(format!(
                "level {level} of column family {name:?} is reserved for files that are ingested behind"
            )));
        }
        match self.highest {
            Some(highest) if level >= highest && (level > 0 || highest > 0) => {
                Err(Error::invalid_argument(format!(
                    "a run of level {level} in column family {name:?} has to come before that of level {highest}, as it is older"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Identity {
    fn new(env: &Env) -> Identity {
        Identity {
            db_id: identity::new_db_id(env),
            session_id: identity::new_session_id(env),
            now_s: env.unix_time().as_secs(),
        }
    }
}

/// A run whose keys come in ascending order; see [`BulkLoader::sorted_run`]. Dropping it without
/// [`SortedRun::finish`] discards it.
pub struct SortedRun<'a> {
    loader: &'a mut BulkLoader,
    index: usize,
    level: usize,
    writer: RunWriter<TargetSize>,
    key: Vec<u8>,
}

impl std::fmt::Debug for SortedRun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SortedRun").field("level", &self.level).finish_non_exhaustive()
    }
}

impl SortedRun<'_> {
    /// Sets the next key.
    ///
    /// # Errors
    /// Those of [`SortedRun::write`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(ValueType::Value, key, value)
    }

    /// Adds an entry of any kind except a range tombstone.
    ///
    /// # Errors
    /// The key is not greater than the previous one, tables cannot store the kind, or writing
    /// failed.
    pub fn write(&mut self, kind: ValueType, key: &[u8], value: &[u8]) -> Result<()> {
        if !kind.is_stored() || kind == ValueType::RangeDeletion {
            return Err(Error::invalid_argument(format!(
                "{kind:?} is not the type of an entry of a sorted run"
            )));
        }
        let family = &self.loader.families[self.index];
        family.check_entry(kind, key, value)?;
        let kind = stored_kind(&family.config.comparator, kind);
        let seq = self.loader.next_seq()?;
        self.key.clear();
        key::append(&mut self.key, key, key::pack_trailer(seq, kind));
        self.writer.add(&self.key, value)?;
        if self.writer.needs_room() {
            karst_io::block_on(&self.loader.env, self.writer.make_room())?;
        }
        Ok(())
    }

    /// Finishes the run and adds it to the new database.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(self) -> Result<()> {
        let SortedRun { loader, index, level, writer, .. } = self;
        let (files, _) = karst_io::block_on(&loader.env, writer.finish())?;
        loader.install(index, level, files);
        Ok(())
    }
}
