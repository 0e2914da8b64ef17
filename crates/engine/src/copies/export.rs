//! Column families that are exported into a directory of tables, and imported into another
//! database.
//!
//! In: a column family; or tables that were exported, with what is known of them. Out: a directory,
//! with what is known of its files; or a new column family with these tables.
//!
//! Tables keep their levels and sequence numbers. The database that imports goes on behind the
//! largest of these, as if it had written so many entries without a log, so that all of them are
//! seen and what is written later is newer.
//!
//! Compat: RocksDB's `ExportColumnFamily` and `CreateColumnFamilyWithImport`. Families with blob
//! files are refused here, since neither takes these along.

use super::checkpoint::Checkpoint;
use super::copying::{self, Halt, Staging};
use crate::background::{FileEnd, FlushOptions};
use crate::db::Db;
use crate::ingest::{LookOver, is_in_blob_file, look_over};
use crate::open::Options;
use crate::sealing::Sealing;
use crate::versions::{Change, JobFiles};
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_base::events::FlushReason;
use karst_format::file_name::FileName;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{self, InternalKey, SeqNo};
use karst_format::unique_id::table_unique_id;
use karst_format::version_edit::{FileChecksum, NewFile, VersionEdit};
use karst_io::block_on;
use karst_lsm::FileMetadata;
use karst_storage::column_family::ColumnFamily;
use karst_storage::table::Table;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table of an exported column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name, such as `000123.sst`.
    pub name: String,
    /// The directory that it was exported into.
    pub directory: PathBuf,
    /// The level that it was in.
    pub level: u32,
    /// Its size in bytes; 0 has an import take what the file has.
    pub size_bytes: u64,
    /// The smallest internal key: the user key and eight bytes. If this and the largest one are
    /// empty, an import takes both from the table.
    pub smallest: Vec<u8>,
    /// The largest internal key.
    pub largest: Vec<u8>,
    /// The smallest sequence number.
    pub smallest_seq: u64,
    /// The largest sequence number.
    pub largest_seq: u64,
    /// The order in which files reached L0; 0 if unknown.
    pub epoch_number: u64,
    /// The checksum of the whole file and the name of its function, if recorded.
    pub checksum: Option<(Vec<u8>, String)>,
}

/// What is known of an exported column family. Whoever takes the files elsewhere may take this
/// apart, and put it together there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportImportFilesMetaData {
    /// The name of the comparator that its keys are in the order of.
    pub db_comparator_name: String,
    /// Its tables.
    pub files: Vec<ExportedFile>,
}

/// How tables come into the database that imports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportColumnFamilyOptions {
    /// Hard links, or copies where there can be none, and the exported files are removed at the
    /// end. Else they are copied and stay. Default false.
    pub move_files: bool,
}

impl Checkpoint<'_> {
    /// Puts the tables of a column family into `directory`, which must not be there and whose
    /// parent must: hard links, or copies where there can be none. Memtables are flushed first.
    /// Waits on the calling thread until the directory is durable.
    ///
    /// # Errors
    /// As [`create_checkpoint`](Checkpoint::create_checkpoint). `NotSupported`: the family has blob
    /// files, or the database is of the write policy WritePrepared, whose tables may have what is
    /// not decided. `InvalidArgument`: the family is of another database. `NotFound`: it was
    /// dropped.
    pub fn export_column_family(
        &self,
        family: &ColumnFamily,
        directory: impl AsRef<Path>,
    ) -> Result<ExportImportFilesMetaData> {
        block_on(self.db.env(), self.export_column_family_async(family, directory.as_ref()))
    }

    /// The asynchronous form of [`export_column_family`](Self::export_column_family). Dropped, it
    /// takes away soon what it has made.
    ///
    /// # Errors
    /// As [`export_column_family`](Self::export_column_family).
    pub async fn export_column_family_async(
        &self,
        family: &ColumnFamily,
        directory: &Path,
    ) -> Result<ExportImportFilesMetaData> {
        let told = |error: Error| {
            let name = Named(family.name());
            error.in_context(format!("exporting column family {name:?} to {}", directory.display()))
        };
        export(self.db, family, directory).await.map_err(told)
    }
}

async fn export(db: &Db, family: &ColumnFamily, directory: &Path) -> Result<ExportImportFilesMetaData> {
    let (env, write, to) = (db.env(), db.write_half()?, directory.to_owned());
    let ownership = &write.ownership;
    db.family(family)?;
    if db.0.read.pending.is_some() {
        return Err(Error::not_supported("tables may have what transactions have not decided"));
    }
    env.run_blocking({
        let to = to.clone();
        move |env| copying::refuse_existing(env, &to)
    })
    .await?;
    let hold = ownership.versions.obsolete().hold().await;
    let which = Sealing::Of(vec![family.0.clone()]);
    write.background.flush_families(which, FlushOptions::default(), FlushReason::GetLiveFiles).await?;
    let trees = ownership.versions.moment().trees;
    let tree = trees.into_iter().find(|(other, _)| Arc::ptr_eq(other, &family.0));
    let (_, version) =
        tree.ok_or_else(|| Error::new(ErrorKind::NotFound, "the column family was dropped"))?;
    if !version.blob_files().is_empty() {
        return Err(Error::not_supported("the column family has blob files"));
    }
    let mut files = Vec::new();
    for (level, table) in version.all_files() {
        let from = family.0.tables.shared.table_path(table.number, table.path_id)?;
        let checksum = table.checksum.as_ref();
        let exported = ExportedFile {
            name: FileName::Table(table.number).to_string(),
            directory: to.clone(),
            level: u32::from(level.0),
            size_bytes: table.size_bytes,
            smallest: table.smallest.to_vec(),
            largest: table.largest.to_vec(),
            smallest_seq: table.smallest_seq.0,
            largest_seq: table.largest_seq.0,
            epoch_number: table.epoch_number,
            checksum: checksum.map(|c| (c.value.to_vec(), String::from_utf8_lossy(&c.function).into_owned())),
        };
        files.push((from, exported));
    }
    let db_comparator_name = family.0.config.comparator.name().to_owned();
    copying::run(env, Halt::default(), move |env, stop| {
        // Why here: they stay as long as this goes on, whoever waits for it.
        let (_hold, _version) = (hold, version);
        let staging = Staging::begin(env, &to)?;
        for (from, file) in &files {
            stop.check()?;
            copying::link_or_copy(env, from, &staging.path(&file.name), stop)?;
        }
        // Why: an export is no database, and nobody locks it.
        staging.finish_without_lock()?;
        let files = files.into_iter().map(|(_, file)| file).collect();
        Ok(ExportImportFilesMetaData { db_comparator_name, files })
    })
    .await
}

impl Db {
    /// Creates a column family of tables that were exported, with what `options` has for one of
    /// this name. Blocks: it copies or links the tables, opens each, and writes OPTIONS.
    ///
    /// All of it is there when the call returns, or no such family is. If the process ends
    /// meanwhile, the family may be there and empty.
    ///
    /// # Errors
    /// As [`Db::create_column_family`]. `InvalidArgument`: there are no files, they are in the
    /// order of another comparator, are in levels that the family has not, or overlap within one.
    /// `NotFound`, `Corruption`: a file is missing, or is not what the metadata says it is.
    /// `NotSupported`: a value is in a blob file. The exported files stay then.
    ///
    /// Every entry of each file is read, as nothing else tells whether the metadata is right.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &Options,
        import: &ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        let told = |error: Error| error.in_context(format!("importing column family {:?}", Named(name)));
        let write = self.write_half()?;
        check(metadata).map_err(told)?;
        if self.0.read.pending.is_some() {
            // Why: what is undecided is hidden by its numbers, which the files may have too.
            let text = "no import into a database of transactions that insert when they prepare";
            return Err(told(Error::not_supported(text.to_owned())));
        }
        let largest = metadata.files.iter().map(|file| file.largest_seq).max().unwrap_or(0);
        // Invariant: before there is the family; so what is written into it is newer than the
        // files.
        block_on(self.env(), write.pipeline.skip_to(SeqNo(largest))).map_err(told)?;
        let family = self.create_column_family(name, options)?;
        let imported = import_into(self, &family, *import, metadata);
        if let Err(error) = imported {
            // Why its outcome does not matter: what went wrong first is told.
            let _ = self.drop_column_family(&family);
            return Err(told(error));
        }
        Ok(family)
    }
}

/// What can be said of the metadata by itself.
fn check(metadata: &ExportImportFilesMetaData) -> Result<()> {
    if metadata.files.is_empty() {
        return Err(Error::invalid_argument("there are no files"));
    }
    let mut names = BTreeSet::new();
    for file in &metadata.files {
        let name = &file.name;
        let keys = [&file.smallest, &file.largest];
        let are_missing = keys.iter().all(|key| key.is_empty());
        if !are_missing && keys.iter().any(|key| key.len() < key::TRAILER_BYTES)
            || file.smallest_seq > file.largest_seq
            // The last number of all would leave none for writes.
            || file.largest_seq >= SeqNo::MAX.0
        {
            return Err(Error::invalid_argument(format!("{name}: its bounds are none")));
        }
        if !names.insert((&file.directory, name)) {
            return Err(Error::invalid_argument(format!("{name} is there twice")));
        }
        if !matches!(FileName::parse(name), Some(FileName::Table(_))) || name.contains('/') {
            return Err(Error::invalid_argument(format!("{name:?} is no name of a table")));
        }
    }
    Ok(())
}

/// Whether the family can have such files.
fn check_family(family: &ColumnFamily, metadata: &ExportImportFilesMetaData) -> Result<()> {
    let config = &family.0.config;
    let comparator = &config.comparator;
    if metadata.db_comparator_name != comparator.name() {
        let (theirs, ours) = (&metadata.db_comparator_name, comparator.name());
        let text =
            format!("the files are in the order of comparator {theirs:?}, the family in that of {ours:?}");
        return Err(Error::invalid_argument(text));
    }
    let levels = usize::try_from(config.options.num_levels).unwrap_or(1);
    if let Some(file) = metadata.files.iter().find(|file| file.level as usize >= levels) {
        let text = format!("{} is of level {}, and the family has {levels}", file.name, file.level);
        return Err(Error::invalid_argument(text));
    }
    Ok(())
}

/// Tables, with the numbers that they have here, by level, and in the order in which they reached
/// L0, or lie in their level.
fn in_order(
    family: &ColumnFamily,
    mut files: Vec<(FileNumber, ExportedFile)>,
) -> Result<Vec<(FileNumber, ExportedFile)>> {
    let comparator = &family.0.config.comparator;
    let is_none = |(_, file): &&(FileNumber, ExportedFile)| {
        comparator.compare_internal(&file.smallest, &file.largest).is_gt()
    };
    if let Some((_, file)) = files.iter().find(is_none) {
        return Err(Error::invalid_argument(format!("{}: its bounds are none", file.name)));
    }
    files.sort_by(|(_, a), (_, b)| {
        // Why L0 last: what is there is newer than what is below.
        let by_level = b.level.cmp(&a.level);
        by_level.then_with(|| match a.level {
            0 => (a.epoch_number, a.largest_seq).cmp(&(b.epoch_number, b.largest_seq)),
            _ => comparator.compare_internal(&a.smallest, &b.smallest),
        })
    });
    for pair in files.windows(2) {
        let (one, next) = (&pair[0].1, &pair[1].1);
        if one.level != next.level || one.level == 0 {
            continue;
        }
        if comparator.compare_internal(&one.largest, &next.smallest).is_ge() {
            let text = format!("{} and {} of level {} overlap", one.name, next.name, one.level);
            return Err(Error::invalid_argument(text));
        }
    }
    Ok(files)
}

/// The file that was put in its place, with what the metadata leaves out: its size, or where it
/// begins and ends.
///
/// Compat: a program in C that puts metadata together cannot give internal keys, and RocksDB reads
/// them from the table then.
fn completed(family: &ColumnFamily, file: &ExportedFile, number: FileNumber) -> Result<ExportedFile> {
    let (tables, mut file) = (&family.0.tables, file.clone());
    let env = &tables.shared.env;
    if file.size_bytes == 0 {
        file.size_bytes = env.fs().metadata(&tables.shared.table_path(number, 0)?)?.len;
    }
    if !file.smallest.is_empty() {
        return Ok(file);
    }
    let nothing = || vec![0; key::TRAILER_BYTES];
    let seqs = (SeqNo(file.smallest_seq), SeqNo(file.largest_seq));
    let described = NewFile::new(number, file.size_bytes, nothing(), nothing(), seqs.0, seqs.1);
    let described = Arc::new(FileMetadata::new(described));
    let opened = block_on(env, tables.clone().open(&described, file.level));
    // Why: it was opened as what it is without its bounds; whoever reads it from now on opens it
    // anew.
    tables.shared.open_files.forget(number);
    let table = opened?;
    let mut ends = Vec::new();
    let first_and_last = LookOver { all: false, fill_cache: false };
    block_on(
        env,
        look_over(tables, (&table, &described), first_and_last, |key, _| {
            ends.push(key.to_vec());
            Ok(())
        }),
    )?;
    if let Some(tombstones) = table.range_tombstones() {
        for at in 0..tombstones.len() {
            ends.extend(FileEnd::of_tombstone(tombstones, at).map(|end| end.internal_key(None)));
        }
    }
    let comparator = &tables.configuration.comparator;
    ends.sort_by(|a, b| comparator.compare_internal(a, b));
    let nothing = || Error::invalid_argument(format!("{} has no entry", file.name));
    file.largest = ends.last().cloned().ok_or_else(nothing)?;
    file.smallest = ends.swap_remove(0);
    Ok(file)
}

fn import_into(
    db: &Db,
    family: &ColumnFamily,
    import: ImportColumnFamilyOptions,
    metadata: &ExportImportFilesMetaData,
) -> Result<()> {
    let (env, write, shared) = (db.env(), db.write_half()?, &family.0.tables.shared);
    let ownership = &write.ownership;
    check_family(family, metadata)?;
    let new_files = ownership.versions.job_files(0);
    let stop = Halt::default();
    let mut files = Vec::new();
    for file in &metadata.files {
        let number = new_number(&new_files);
        let (from, to) = (file.directory.join(&file.name), shared.table_path(number, 0)?);
        match import.move_files {
            true => copying::link_or_copy(env, &from, &to, &stop)?,
            false => copying::copy(env, &from, &to, None, &stop, |_| {}).map(drop)?,
        }
        files.push((number, completed(family, file, number)?));
    }
    let files = in_order(family, files)?;
    let mut edit = VersionEdit { column_family: family.0.id(), ..VersionEdit::default() };
    let mut counts = Vec::new();
    let below = ownership.versions.new_epoch(family.0.id());
    for (number, file) in files {
        let epoch = if file.level == 0 { ownership.versions.new_epoch(family.0.id()) } else { below };
        let (table, known) = described(family, &file, number, epoch)?;
        counts.push((number, known));
        edit.new_files.push((Level(file.level as u8), table));
    }
    let change = Change { files: new_files.take(), counts, ..Change::edit(edit) };
    block_on(env, ownership.versions.install(change))?;
    write.background.family_added(&family.0);
    write.background.schedule();
    if import.move_files {
        for file in &metadata.files {
            // Why its outcome does not matter: the family is there.
            let _ = env.fs().remove(&file.directory.join(&file.name));
        }
    }
    Ok(())
}

fn new_number(files: &Arc<JobFiles>) -> FileNumber {
    use karst_storage::table::writer::NewFiles;
    files.new_table()
}

/// Refuses a table that has anything outside of the bounds that the metadata gives it: it would not
/// be found, or be newer than what is written later. Values in blob files mean nothing here.
///
/// Why all of it: nothing but the entries tells either.
fn check_bounds(family: &ColumnFamily, table: &Table, file: &Arc<FileMetadata>) -> Result<()> {
    let tables = &family.0.tables;
    let comparator = &tables.configuration.comparator;
    let seqs = file.smallest_seq..=file.largest_seq;
    let outside = |what: &str| {
        let text = format_args!("{what} is not within the bounds that the metadata has");
        Err(Error::corruption_at(table.path(), 0, text))
    };
    let all = LookOver { all: true, fill_cache: false };
    let look = look_over(tables, (table, file), all, |key, value| {
        let parsed = InternalKey::parse(key)
            .map_err(|c| Error::corruption_at(table.path(), 0, format_args!("an entry: {c}")))?;
        if is_in_blob_file(parsed.kind, value)? {
            let shown = Shown(parsed.user_key);
            return Err(Error::not_supported(format!("the value of key {shown} is in a blob file")));
        }
        if comparator.compare_internal(key, &file.smallest).is_lt()
            || comparator.compare_internal(key, &file.largest).is_gt()
            || !seqs.contains(&parsed.seq)
        {
            return outside(&format!("key {} with sequence number {}", Shown(parsed.user_key), parsed.seq));
        }
        Ok(())
    });
    block_on(&tables.shared.env, look)?;
    // Why not where they begin and end: what reaches beyond the bounds does not count.
    let tombstones = table.range_tombstones();
    let mut numbers = tombstones.iter().flat_map(|all| (0..all.len()).flat_map(|at| all.seqs(at)));
    match numbers.all(|seq| seqs.contains(seq)) {
        true => Ok(()),
        false => outside("a range tombstone's sequence number"),
    }
}

/// Opens a table that was put in its place, and says of it what the MANIFEST is to say.
fn described(
    family: &ColumnFamily,
    file: &ExportedFile,
    number: FileNumber,
    epoch: u64,
) -> Result<(NewFile, karst_lsm::FileCounts)> {
    let (smallest, largest) = (file.smallest.clone(), file.largest.clone());
    let seqs = (SeqNo(file.smallest_seq), SeqNo(file.largest_seq));
    let mut new = NewFile::new(number, file.size_bytes, smallest, largest, seqs.0, seqs.1);
    let tables = &family.0.tables;
    let opened = Arc::new(FileMetadata::new(new.clone()));
    let table = block_on(&tables.shared.env, tables.clone().open(&opened, file.level))?;
    let found = table.file().size();
    if found != file.size_bytes {
        let text = format_args!("the file has {found} bytes, and {} were exported", file.size_bytes);
        return Err(Error::corruption_at(table.path(), 0, text));
    }
    // Invariant: its comparator is the family's, which opening it has checked.
    check_bounds(family, &table, &opened)?;
    let properties = table.properties();
    new.epoch_number = epoch;
    new.oldest_ancestor_time_s = properties.creation_time;
    new.creation_time_s = properties.file_creation_time;
    new.tail_size_bytes = file.size_bytes - properties.tail_start_offset.min(file.size_bytes);
    if properties.tail_start_offset == 0 {
        new.tail_size_bytes = 0;
    }
    if !properties.db_session_id.is_empty() && properties.orig_file_number > 0 {
        let (db, session) = (properties.db_id.as_bytes(), properties.db_session_id.as_bytes());
        new.unique_id = Some(table_unique_id(db, session, properties.orig_file_number));
    }
    new.checksum = file.checksum.as_ref().map(|(value, function)| FileChecksum {
        value: value.clone().into(),
        function: function.as_bytes().into(),
    });
    Ok((new, karst_storage::table::cache::file_counts(properties)))
}
