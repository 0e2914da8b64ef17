//! Writing tables outside of a database, for ingestion.
//!
//! In: entries in ascending order of their keys, and range tombstones in any order. Out: one synced
//! table file whose properties mark it for ingestion (docs/ingest.md has their layout).
//!
//! Invariants:
//! - Every entry has the sequence number 0; ingestion assigns the effective one.
//! - An unfinished file is removed.

use crate::open::{Options, check_options, check_path, identity, new_family_options};
use karst_base::error::{Error, Result, Shown, check_range};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_commit::entity_of;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{self, SeqNo, ValueType};
use karst_io::{Env, block_on};
use karst_lsm::range_del::{Fragments, RangeTombstone};
use karst_storage::column_family::ColumnFamily;
use karst_storage::file_checksum::FileChecksumGenFactory;
use karst_storage::table::writer::{
    Identity, NeverCut, NewFiles, Outputs, RunWriter, TablePlace, host_id, writer_options,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Compat: database id in the properties of files that RocksDB's writer creates.
const CREATOR: &str = "SST Writer";
/// Compat: the id of an unknown column family.
const ANY_FAMILY: ColumnFamilyId = ColumnFamilyId(i32::MAX as u32);

/// Result of a finished file, like RocksDB's `ExternalSstFileInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExternalSstFileInfo {
    /// Path of the file.
    pub file_path: PathBuf,
    /// First key, with its timestamp if keys have one; empty if there are only range tombstones.
    pub smallest_key: Vec<u8>,
    /// Last key, likewise; empty if there are only range tombstones.
    pub largest_key: Vec<u8>,
    /// Start of the first range tombstone; empty without range tombstones.
    pub smallest_range_del_key: Vec<u8>,
    /// Exclusive end of the last range tombstone; empty without range tombstones.
    pub largest_range_del_key: Vec<u8>,
    /// Checksum of the whole file; empty unless `file_checksum_gen_factory` is set.
    pub file_checksum: Vec<u8>,
    /// Name of the checksum function; empty without one.
    pub file_checksum_func_name: String,
    /// Sequence number of all entries: 0.
    pub sequence_number: u64,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Number of entries, without range tombstones.
    pub num_entries: u64,
    /// Number of range tombstones. Overlapping ones are stored as fragments that do not overlap.
    pub num_range_del_entries: u64,
    /// Version of the format of files for ingestion: 2.
    pub version: u32,
}

/// Writes table files that [`Db::ingest_external_file`](crate::Db::ingest_external_file), or
/// RocksDB's, ingests into a database.
///
/// ```no_run
/// # use karst_engine as karstdb;
/// use karstdb::{Options, SstFileWriter};
/// let mut writer = SstFileWriter::create(&Options::new())?;
/// writer.open("/tmp/fruit.sst")?;
/// writer.put("apple", "ripe")?; // keys ascend
/// writer.put("banana", "green")?;
/// writer.delete_range("x", "z")?; // ranges come at any time
/// let info = writer.finish()?;
/// assert_eq!((info.num_entries, info.num_range_del_entries), (2, 1));
/// # Ok::<(), karstdb::Error>(())
/// ```
///
/// A range tombstone deletes older entries of the database, not the entries of its own file.
///
/// With a comparator that has timestamps, `put_with_ts` and `delete_with_ts` replace all other
/// calls, which are refused then. Entries of one key come with descending timestamps.
///
/// Tables have the options of the column family, but no values in blob files. All calls block
/// because they write files. A writer belongs to one thread at a time. Dropping one before it has
/// finished removes its file.
pub struct SstFileWriter {
    env: Env,
    config: Arc<FamilyConfig>,
    db_options: DbOptions,
    file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    identity: Arc<Identity>,
    files: Arc<Numbers>,
    open: Option<OpenFile>,
}

/// The file that is being written.
struct OpenFile {
    path: PathBuf,
    run: RunWriter<NeverCut>,
    tombstones: Vec<RangeTombstone>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    internal_key: Vec<u8>,
}

/// Allocator of file numbers, unique within one writer.
#[derive(Debug, Default)]
struct Numbers(AtomicU64);

impl NewFiles for Numbers {
    fn new_table(&self) -> FileNumber {
        // Ordering: a counter; it publishes no other data.
        FileNumber(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn new_blob_file(&self) -> FileNumber {
        unreachable!("no value goes to a blob file")
    }
}

impl std::fmt::Debug for SstFileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstFileWriter")
            .field("column_family", &self.config.name)
            .field("open", &self.open.as_ref().map(|open| &open.path))
            .finish_non_exhaustive()
    }
}

impl SstFileWriter {
    /// Returns a writer of files for any column family with the comparator that `options` have for
    /// the default one. The environment and the options of tables come from `options` too.
    ///
    /// # Errors
    /// The options are invalid.
    pub fn create(options: &Options) -> Result<SstFileWriter> {
        let family = options.family_options(new_family_options(), "default")?;
        let instances = options.instances_for("default");
        let config = FamilyConfig::resolve(ANY_FAMILY, "", family, None, instances)?;
        Self::new(options.environment(), config, options)
    }

    /// Returns a writer of files for this column family only, with its current options. Of
    /// `options` only those of the database apply, such as `use_fsync` and
    /// `file_checksum_gen_factory`.
    ///
    /// # Errors
    /// The options are invalid.
    pub fn for_column_family(options: &Options, family: &ColumnFamily) -> Result<SstFileWriter> {
        let env = family.0.tables.shared.env.clone();
        Self::new(env, FamilyConfig::clone(&family.0.settings()), options)
    }

    fn new(env: Env, mut config: FamilyConfig, options: &Options) -> Result<SstFileWriter> {
        let db_options = options.db_options(DbOptions::default())?;
        // Compat: like RocksDB's writer, which has no memtables and takes those of every kind.
        let without_memtables = DbOptions { allow_concurrent_memtable_write: false, ..db_options.clone() };
        check_options::new_family(&without_memtables, &config.options, &config)?;
        let file_checksums = options.file_checksums(&db_options)?;
        // Compat: like RocksDB's writer, because an ingested file cannot refer to blob files.
        config.options.enable_blob_files = false;
        let (host_id, session_id) = (host_id(&env, &db_options), identity::new_session_id(&env));
        let identity = Arc::new(Identity { db_id: CREATOR.to_owned(), session_id, host_id });
        let (config, files) = (Arc::new(config), Arc::default());
        Ok(SstFileWriter { env, config, db_options, file_checksums, identity, files, open: None })
    }

    /// Begins the file at `path`. An existing file is replaced, and unchanged under its other
    /// names.
    ///
    /// # Errors
    /// A file was begun and not finished, or this one cannot be created.
    pub fn open(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.open_at(path.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn open_at(&mut self, path: &Path) -> Result<()> {
        check_path(path)?;
        if let Some(open) = &self.open {
            let text = format!("{} has to be finished before another file", open.path.display());
            return Err(Error::invalid_argument(text));
        }
        // Created now, because otherwise errors of the path would only appear with the first write.
        let fs = self.env.fs();
        match fs.remove(path) {
            // Removed instead of overwritten, because a file ingested with `link_files` also
            // belongs to a database.
            Ok(()) => {}
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
        drop(fs.create(path).map_err(Error::from)?);
        let now_s = self.env.unix_time().as_secs();
        let outputs = Outputs {
            env: self.env.clone(),
            config: self.config.clone(),
            identity: self.identity.clone(),
            new_files: self.files.clone(),
            table_directory: PathBuf::new(),
            path_id: 0,
            temperature: Default::default(),
            blob_directory: PathBuf::new(),
            place: TablePlace::external(path.to_owned(), &self.config.options),
            epoch: 0,
            oldest_ancestor_time_s: now_s,
            oldest_key_time_s: 0,
            newest_key_time_s: 0,
            throttle: None,
            writing: writer_options(&self.db_options),
            warming: None,
            blob_warming: None,
            memory: None,
            file_checksums: self.file_checksums.clone(),
            creations: None,
            space: None,
            stats: Arc::new(Statistics::new(StatsLevel::DisableAll)),
        };
        self.open = Some(OpenFile {
            path: path.to_owned(),
            run: RunWriter::new(outputs, NeverCut, None, (None, None))?,
            tombstones: Vec::new(),
            first: None,
            last: Vec::new(),
            internal_key: Vec::new(),
        });
        Ok(())
    }

    /// Sets a key.
    ///
    /// # Errors
    /// No file is open, the key is not greater than the previous one, key or value are too large,
    /// keys have timestamps, or writing failed.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Value, key.as_ref(), value.as_ref())
    }

    /// Sets a key as of a timestamp.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::put`]; keys have no timestamps, or of another size.
    pub fn put_with_ts(
        &mut self,
        key: impl AsRef<[u8]>,
        ts: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add_with_ts(ValueType::Value, key.as_ref(), ts.as_ref(), value.as_ref())
    }

    /// Removes a key as of a timestamp.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::put_with_ts`].
    pub fn delete_with_ts(&mut self, key: impl AsRef<[u8]>, ts: impl AsRef<[u8]>) -> Result<()> {
        self.add_with_ts(ValueType::DeletionWithTimestamp, key.as_ref(), ts.as_ref(), b"")
    }

    /// Sets a key to an entity of named columns, in any order.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::put`]; a column is given twice.
    pub fn put_entity(&mut self, key: impl AsRef<[u8]>, columns: &[(&[u8], &[u8])]) -> Result<()> {
        self.add(ValueType::WideColumnEntity, key.as_ref(), &entity_of(columns)?)
    }

    /// Adds a merge operand to the database's value of a key.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::put`].
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Merge, key.as_ref(), operand.as_ref())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(ValueType::Deletion, key.as_ref(), b"")
    }

    /// Removes the database's keys from `start` up to, not including, `end`. Ranges may come in any
    /// order, and may overlap each other and the keys of the file. An empty range is ignored.
    ///
    /// # Errors
    /// No file is open, the range ends before it begins, or keys have timestamps.
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.add_range(start.as_ref(), end.as_ref())
    }

    fn add_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.check_no_timestamps()?;
        let open = self.open.as_mut().ok_or_else(not_open)?;
        check_range(&self.config.comparator, start, end)?;
        if !self.config.comparator.equal_user(start, end) {
            open.tombstones.push(RangeTombstone::new(start, end, SeqNo::ZERO));
        }
        Ok(())
    }

    /// # Errors
    /// Keys have timestamps.
    fn check_no_timestamps(&self) -> Result<()> {
        let comparator = &self.config.comparator;
        if comparator.timestamp_size() > 0 {
            let text = format!("a timestamp is required: keys in the order {:?} have one", comparator.name());
            return Err(Error::invalid_argument(text));
        }
        Ok(())
    }

    fn add(&mut self, kind: ValueType, user_key: &[u8], value: &[u8]) -> Result<()> {
        self.check_no_timestamps()?;
        self.add_stored(kind, user_key, value)
    }

    fn add_with_ts(&mut self, kind: ValueType, key: &[u8], ts: &[u8], value: &[u8]) -> Result<()> {
        let size = self.config.comparator.timestamp_size();
        if size == 0 || ts.len() != size {
            let name = self.config.comparator.name();
            let text = format!("a timestamp of {} bytes; keys in the order {name:?} have {size}", ts.len());
            return Err(Error::invalid_argument(text));
        }
        self.add_stored(kind, &[key, ts].concat(), value)
    }

    /// Adds an entry under a user key in its stored form.
    fn add_stored(&mut self, kind: ValueType, user_key: &[u8], value: &[u8]) -> Result<()> {
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let order = &self.config.comparator;
        if open.first.is_some() && order.compare_with_timestamps(&open.last, user_key).is_ge() {
            let (key, last) = (Shown(user_key), Shown(&open.last));
            let text =
                format!("{}: key {key} is not greater than the previous key, {last}", open.path.display());
            return Err(Error::invalid_argument(text));
        }
        open.internal_key.clear();
        key::append(&mut open.internal_key, user_key, key::pack_trailer(SeqNo::ZERO, kind));
        open.run.add(&open.internal_key, value)?;
        open.first.get_or_insert_with(|| user_key.to_vec());
        open.last.clear();
        open.last.extend_from_slice(user_key);
        if open.run.needs_room() {
            block_on(&self.env, open.run.make_room())?;
        }
        Ok(())
    }

    /// Returns the approximate size of the current file in bytes; 0 if none is open.
    pub fn file_size(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.run.written_bytes().0)
    }

    /// Finishes the file. Its content is synced then, but not its name in its directory. Another
    /// file can be opened.
    ///
    /// # Errors
    /// No file is open, it has no entry, or writing failed. The file is removed then.
    pub fn finish(&mut self) -> Result<ExternalSstFileInfo> {
        let env = self.env.clone();
        block_on(&env, self.finish_async())
    }

    /// The asynchronous form of [`SstFileWriter::finish`], which does most of a small file's
    /// writing. If it is dropped, a part of the file remains.
    ///
    /// # Errors
    /// Those of [`SstFileWriter::finish`].
    pub async fn finish_async(&mut self) -> Result<ExternalSstFileInfo> {
        let OpenFile { path, mut run, tombstones, first, last, .. } =
            self.open.take().ok_or_else(not_open)?;
        let ends = |bound: Option<&[u8]>| bound.map(<[u8]>::to_vec).unwrap_or_default();
        let ranges = Fragments::build(&self.config.comparator, tombstones);
        let count = ranges.len();
        let range_ends = match count {
            0 => (Vec::new(), Vec::new()),
            count => (ranges.start(0).to_vec(), ranges.end(count - 1).to_vec()),
        };
        run.lay_over(ranges);
        let finished = run.finish().await.and_then(|(files, _)| {
            let no_entry = || Error::invalid_argument(format!("{}: the file has no entry", path.display()));
            files.tables.into_iter().next().ok_or_else(no_entry)
        });
        let table = finished.inspect_err(|_| remove(&self.env, &path))?;
        let checksum = table.file.checksum.as_ref();
        let properties = &table.properties;
        Ok(ExternalSstFileInfo {
            file_path: path,
            smallest_key: ends(first.as_deref()),
            largest_key: last,
            smallest_range_del_key: range_ends.0,
            largest_range_del_key: range_ends.1,
            file_checksum: checksum.map(|checksum| checksum.value.to_vec()).unwrap_or_default(),
            file_checksum_func_name: checksum
                .map(|checksum| String::from_utf8_lossy(&checksum.function).into_owned())
                .unwrap_or_default(),
            sequence_number: 0,
            file_size: table.file.size_bytes,
            num_entries: properties.num_entries - properties.num_range_deletions,
            num_range_del_entries: properties.num_range_deletions,
            version: properties.external_file_version().unwrap_or_default(),
        })
    }
}

impl Drop for SstFileWriter {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let path = open.path.clone();
            drop(open);
            remove(&self.env, &path);
        }
    }
}

fn not_open() -> Error {
    Error::invalid_argument("no file is open; call `open` first")
}

/// Removes an unfinished file. Errors are ignored, because the caller reports the failure that led
/// here, if any.
fn remove(env: &Env, path: &Path) {
    let _ = env.fs().remove(path);
}
