//! Importing a column family from tables that another database exported.
//!
//! In: tables with their metadata. Out: a new column family with these tables; or neither a family
//! nor files.
//!
//! | step | changes |
//! |---|---|
//! | the metadata is checked on its own | nothing |
//! | tables are linked or copied, under numbers of the database, and synced | files that nothing refers to |
//! | all entries are read, and compared with the metadata | nothing |
//! | sequence numbers up to the largest entry's are skipped | the sequence number |
//! | a new MANIFEST has the family with all its tables | the family |
//! | OPTIONS is written; exported files that were moved lose their original names | |
//!
//! Invariants:
//! - A family that can be found by its name has all its tables, even after a crash.
//! - Writes into the family are newer than its tables.
//! - Files in the directory are written by a job of the database, which closing waits for.
//!
//! Compat: RocksDB's `CreateColumnFamilyWithImport`. RocksDB creates the family first, so a crash
//! may leave it without tables.

use super::export::{ExportImportFilesMetaData, ExportedFile};
use crate::background::{Background, FileEnd};
use crate::db::Db;
use crate::ingest::{LookOver, MOST_SEQ, Way, bring, check_length, is_in_blob_file, look_over};
use crate::open::{self, Options};
use crate::pipeline_host::DatabaseHost;
use crate::versions::{Change, JobFiles, Versions};
use karst_base::error::{Error, Named, Result, Shown};
use karst_base::options::DbOptions;
use karst_commit::Pipeline;
use karst_format::comparator::Comparator;
use karst_format::file_name::FileName;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{self, InternalKey, SeqNo};
use karst_format::unique_id::table_unique_id;
use karst_format::version_edit::{FileChecksum, NewFile, VersionEdit};
use karst_io::{Env, OpenOptions, block_on};
use karst_lsm::{FileCounts, FileMetadata};
use karst_storage::column_family::{ColumnFamily, Family};
use karst_storage::file_checksum::RunningChecksum;
use karst_storage::table::Table;
use karst_storage::table::cache::file_counts;
use karst_storage::table::verify;
use karst_storage::table::writer::NewFiles;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Options of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportColumnFamilyOptions {
    /// Use hard links, or copies if links are not supported, and remove the exported files at the
    /// end. Otherwise they are copied and stay. Default false.
    pub move_files: bool,
}

impl Db {
    /// Creates a column family from exported tables, with the options that `options` has for this
    /// name. Blocks: it copies or links the tables, reads each, and writes OPTIONS.
    ///
    /// When the call returns, the family exists with all its tables, or not at all. After a crash
    /// meanwhile, too.
    ///
    /// # Errors
    /// Those of [`Db::create_column_family`]; if OPTIONS could not be written, the family exists
    /// with its tables. `InvalidArgument`: there are no files, they have another comparator, are on
    /// levels that the family lacks, overlap within a level, have sequence numbers in the upper
    /// half of the number space, or are to be moved out of a database's directory. `NotFound`,
    /// `Corruption`: a file is missing, or contradicts the metadata. `NotSupported`: a value is in
    /// a blob file. `Closed`: the database was closed meanwhile. The exported files stay then.
    ///
    /// Every entry of each file is read, because nothing else shows that the metadata is right.
    /// Only levels and epoch numbers are taken from the metadata unchecked.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &Options,
        import: &ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        let told = |error: Error| error.in_context(format!("importing column family {:?}", Named(name)));
        self.check_open()?;
        self.import(name, options, *import, metadata).map_err(told)
    }

    fn import(
        &self,
        name: &str,
        options: &Options,
        ImportColumnFamilyOptions { move_files }: ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        let (read, write) = (&self.0.read, self.write_half()?);
        check(metadata)?;
        if read.pending.is_some() {
            // Reason: undecided entries are hidden by their sequence numbers, which entries in the
            // files may have as well.
            let text = "no import into a database of transactions that insert when they prepare";
            return Err(Error::not_supported(text.to_owned()));
        }
        let (background, ownership) = (&write.background, &write.ownership);
        // This thread writes the family's directories and OPTIONS.
        let _counted = background.counted()?;
        let (family, creation) = open::column_family_to_be(read, ownership, name, options)?;
        check_family(&family, metadata)?;
        if move_files {
            check_moved(self.env(), &family, metadata)?;
        }
        let import = Import {
            background: background.clone(),
            pipeline: write.pipeline.clone(),
            versions: ownership.versions.clone(),
            db_options: read.db_options.get(),
            family: family.clone(),
            creation,
            files: metadata.files.clone(),
            move_files,
        };
        block_on(self.env(), background.job("an import", import.run()))?;
        open::options_behind_change(read, ownership)?;
        Ok(ColumnFamily(family))
    }
}

/// Returns an error for metadata that is invalid for every family.
fn check(metadata: &ExportImportFilesMetaData) -> Result<()> {
    if metadata.files.is_empty() {
        return Err(Error::invalid_argument("the list of files is empty"));
    }
    let mut names = BTreeSet::new();
    for file in &metadata.files {
        let name = &file.name;
        if !matches!(FileName::parse(name), Some(FileName::Table(_))) || name.contains('/') {
            return Err(Error::invalid_argument(format!("{name:?} is not the name of a table")));
        }
        if !names.insert((&file.directory, name)) {
            return Err(Error::invalid_argument(format!("{name} is listed twice")));
        }
        if file.smallest_seq > file.largest_seq {
            return Err(Error::invalid_argument(format!("{name}: its bounds are none")));
        }
        if file.largest_seq > MOST_SEQ.0 {
            let seq = file.largest_seq;
            let text = format!("{name}: sequence number {seq} leaves too few; the largest may be {MOST_SEQ}");
            return Err(Error::invalid_argument(text));
        }
    }
    Ok(())
}

/// Returns an error for files that the family cannot hold.
fn check_family(family: &Family, metadata: &ExportImportFilesMetaData) -> Result<()> {
    let config = &family.config;
    let comparator = &config.comparator;
    if metadata.db_comparator_name != comparator.name() {
        let (theirs, ours) = (&metadata.db_comparator_name, comparator.name());
        let text =
            format!("the files are in the order of comparator {theirs:?}, the family in that of {ours:?}");
        return Err(Error::invalid_argument(text));
    }
    let levels = usize::try_from(config.options.num_levels).unwrap_or(1);
    for file in &metadata.files {
        if file.level as usize >= levels {
            let text = format!("{} is of level {}, and the family has {levels}", file.name, file.level);
            return Err(Error::invalid_argument(text));
        }
        if file.smallest.is_empty() && file.largest.is_empty() {
            continue;
        }
        let is_key = |end: &[u8]| {
            InternalKey::parse(end).is_ok_and(|key| check_length(comparator, key.user_key).is_ok())
        };
        if !is_key(&file.smallest)
            || !is_key(&file.largest)
            || comparator.compare_internal(&file.smallest, &file.largest).is_gt()
        {
            return Err(Error::invalid_argument(format!("{}: its bounds are none", file.name)));
        }
    }
    Ok(())
}

/// Returns an error if files to move belong to a database, this one or another.
fn check_moved(env: &Env, family: &Family, metadata: &ExportImportFilesMetaData) -> Result<()> {
    let shared = &family.tables.shared;
    for directory in metadata.files.iter().map(|file| &file.directory).collect::<BTreeSet<_>>() {
        let has_manifest = || env.fs().exists(&directory.join(FileName::Current.to_string()));
        if shared.all_places().iter().any(|(_, own)| own == directory) || has_manifest()? {
            let text =
                format!("{}: the directory has a database, whose files are not moved", directory.display());
            return Err(Error::invalid_argument(text));
        }
    }
    Ok(())
}

/// A validated import; runs as a job of the database.
struct Import {
    background: Arc<Background>,
    pipeline: Arc<Pipeline<DatabaseHost>>,
    versions: Arc<Versions>,
    db_options: Arc<DbOptions>,
    family: Arc<Family>,
    /// The edit that adds the family to the MANIFEST.
    creation: VersionEdit,
    files: Vec<ExportedFile>,
    move_files: bool,
}

/// A table that was linked or copied and examined.
struct Found {
    level: u32,
    /// Epoch number from the metadata: the order in which tables reached L0.
    epoch_number: u64,
    name: String,
    /// True if the metadata has the bounds, false if they are those of the content.
    has_bounds: bool,
    /// The table's MANIFEST entry, without the epoch number.
    file: NewFile,
    counts: FileCounts,
}

impl Import {
    async fn run(self) -> Result<()> {
        let new_files = self.versions.job_files(0);
        let mut found = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let from = file.directory.join(&file.name);
            found.push(self.take(&new_files, file, &from).await.map_err(|error| named(&from, error))?);
        }
        let found = in_order(&self.family.config.comparator, found)?;
        let largest = found.iter().map(|found| found.file.largest_seq).max().unwrap_or_default();
        // Invariant: skipped before the family can be written.
        self.background.while_open(self.pipeline.skip_to(largest)).await?;
        self.install(found, &new_files).await?;
        self.background.family_added(&self.family);
        if self.move_files {
            let moved = self.files.iter().map(|file| file.directory.join(&file.name));
            self.background.remove_moved(moved.collect()).await;
        }
        Ok(())
    }

    /// Links or copies a file to its destination and examines it there.
    async fn take(&self, new_files: &Arc<JobFiles>, file: &ExportedFile, from: &Path) -> Result<Found> {
        let shared = &self.family.tables.shared;
        let number = new_files.new_table();
        let at = shared.table_path(number, 0)?;
        let way = if self.move_files { Way::LinkOrCopy } else { Way::Copy };
        bring(&self.background, &self.db_options, (from, &at), way).await?;
        let found = self.background.while_open(self.examine(number, &at, file)).await;
        // The table was opened without its bounds, so the next reader opens it anew.
        shared.open_files.forget(number);
        found
    }

    /// Reads a file at its destination, and returns an error if it contradicts the metadata.
    async fn examine(&self, number: FileNumber, at: &Path, file: &ExportedFile) -> Result<Found> {
        let tables = &self.family.tables;
        let of = at.to_owned();
        let size = tables.shared.env.run_blocking(move |env| env.fs().metadata(&of)).await?.len;
        if file.size_bytes != 0 && file.size_bytes != size {
            let text = format_args!("the file has {size} bytes, and {} were exported", file.size_bytes);
            return Err(Error::corruption_at(at, 0, text));
        }
        let nothing = || vec![0; key::TRAILER_BYTES];
        let seqs = (SeqNo(file.smallest_seq), SeqNo(file.largest_seq));
        let opened = NewFile::new(number, size, nothing(), nothing(), seqs.0, seqs.1);
        let opened = Arc::new(FileMetadata::new(opened));
        // Invariant: its comparator is the family's, which opening the table has checked.
        let table = tables.clone().open(&opened, file.level).await?;
        let span = self.span(&table, &opened, file).await?;
        let mut new = NewFile::new(number, size, span.smallest, span.largest, span.seqs.0, span.seqs.1);
        let properties = table.properties();
        // Compat: RocksDB counts the age of an imported table from its import.
        let now_s = tables.shared.env.unix_time().as_secs();
        (new.oldest_ancestor_time_s, new.creation_time_s) = (now_s, now_s);
        if properties.tail_start_offset > 0 {
            new.tail_size_bytes = size - properties.tail_start_offset.min(size);
        }
        if !properties.db_session_id.is_empty() && properties.orig_file_number > 0 {
            let (db, session) = (properties.db_id.as_bytes(), properties.db_session_id.as_bytes());
            new.unique_id = Some(table_unique_id(db, session, properties.orig_file_number));
        }
        new.checksum = self.checksum(at, file).await?;
        Ok(Found {
            level: file.level,
            epoch_number: file.epoch_number,
            name: file.name.clone(),
            has_bounds: !file.smallest.is_empty(),
            file: new,
            counts: file_counts(properties),
        })
    }

    /// Returns the range of keys and sequence numbers of a table's entries. Returns an error if an
    /// entry is outside the bounds in the metadata, because it would not be found, or would be
    /// newer than later writes. Values in blob files are refused, because the blob file is missing
    /// here.
    async fn span(&self, table: &Table, opened: &Arc<FileMetadata>, file: &ExportedFile) -> Result<Span> {
        let tables = &self.family.tables;
        let comparator = &tables.configuration.comparator;
        let given = file.smallest_seq..=file.largest_seq;
        let outside = |what: &str| {
            let text = format_args!("{what} is not within the bounds that the metadata has");
            Error::corruption_at(table.path(), 0, text)
        };
        let mut span = None;
        let all = LookOver { all: true, fill_cache: false };
        look_over(tables, (table, opened), all, |key, value| {
            let parsed = InternalKey::parse(key)
                .map_err(|c| Error::corruption_at(table.path(), 0, format_args!("an entry: {c}")))?;
            let shown = Shown(parsed.user_key);
            if is_in_blob_file(parsed.kind, value)? {
                return Err(Error::not_supported(format!("the value of key {shown} is in a blob file")));
            }
            let is_outside = !file.smallest.is_empty()
                && (comparator.compare_internal(key, &file.smallest).is_lt()
                    || comparator.compare_internal(key, &file.largest).is_gt());
            if is_outside || !given.contains(&parsed.seq.0) {
                return Err(outside(&format!("key {shown} with sequence number {}", parsed.seq)));
            }
            Span::widen(&mut span, comparator, [key, key], &[parsed.seq]);
            Ok(())
        })
        .await?;
        if let Some(tombstones) = table.range_tombstones() {
            for at in 0..tombstones.len() {
                check_length(comparator, tombstones.start(at))?;
                check_length(comparator, tombstones.end(at))?;
                if !tombstones.seqs(at).iter().all(|seq| given.contains(&seq.0)) {
                    return Err(outside("a range tombstone's sequence number"));
                }
                let [start, end] = FileEnd::of_tombstone(tombstones, at).map(|end| end.internal_key(None));
                Span::widen(&mut span, comparator, [&start, &end], tombstones.seqs(at));
            }
        }
        let mut span = span.ok_or_else(|| Error::invalid_argument("it has no entry"))?;
        if !file.smallest.is_empty() {
            // A range tombstone counts only within the bounds of its file.
            span.clip(comparator, &file.smallest, &file.largest);
        }
        match comparator.compare_internal(&span.smallest, &span.largest).is_gt() {
            true => Err(outside("each entry")),
            false => Ok(span),
        }
    }

    /// Returns the checksum of the whole file: the exported one if it is right and the function is
    /// known, or one of the database's own function.
    async fn checksum(&self, at: &Path, file: &ExportedFile) -> Result<Option<FileChecksum>> {
        let shared = &self.family.tables.shared;
        let factory = shared.file_checksums.as_ref();
        let known = file.checksum.as_ref().and_then(|(value, function)| {
            Some((RunningChecksum::by_function(factory, at, function.as_bytes()).ok()?, value))
        });
        let own = || factory.and_then(|factory| RunningChecksum::of_new(factory, at));
        let (running, exported) = match known {
            Some((running, value)) => (running, Some(value)),
            None => match own() {
                Some(running) => (running, None),
                None => return Ok(None),
            },
        };
        let opened = karst_io::open(&shared.env, at, OpenOptions::BUFFERED).await?;
        let found = verify::file_checksum(shared, &opened, running).await?;
        let value = found.as_ref().map(|found| &*found.value).unwrap_or_default();
        if let Some(exported) = exported.filter(|exported| ***exported != *value) {
            let text = format_args!("checksum of the whole file: {value:02x?}, {exported:02x?} was exported");
            return Err(Error::corruption_at(at, 0, text));
        }
        Ok(found)
    }

    /// Adds the family, with its tables, to the MANIFEST.
    async fn install(&self, found: Vec<Found>, new_files: &Arc<JobFiles>) -> Result<()> {
        let (id, versions) = (self.family.id(), &self.versions);
        let below = versions.new_epoch(id);
        let mut tables = VersionEdit { column_family: id, ..VersionEdit::default() };
        let mut counts = Vec::with_capacity(found.len());
        for mut one in found {
            one.file.epoch_number = if one.level == 0 { versions.new_epoch(id) } else { below };
            counts.push((one.file.number, one.counts));
            tables.new_files.push((Level(one.level as u8), one.file));
        }
        let change = Change {
            edits: vec![self.creation.clone(), tables],
            created: Some(self.family.clone()),
            files: new_files.take(),
            counts,
            ..Change::default()
        };
        versions.install(change).await
    }
}

/// Returns the error with the path of the exported file.
fn named(path: &Path, error: Error) -> Error {
    if error.to_string().contains(&*path.to_string_lossy()) {
        return error;
    }
    error.in_context(path.display().to_string())
}

/// Range of internal keys and sequence numbers of entries.
struct Span {
    smallest: Vec<u8>,
    largest: Vec<u8>,
    seqs: (SeqNo, SeqNo),
}

impl Span {
    fn widen(span: &mut Option<Span>, comparator: &Comparator, [from, to]: [&[u8]; 2], seqs: &[SeqNo]) {
        let Some(first) = seqs.first() else { return };
        let span = span.get_or_insert_with(|| Span {
            smallest: from.to_vec(),
            largest: to.to_vec(),
            seqs: (*first, *first),
        });
        if comparator.compare_internal(from, &span.smallest).is_lt() {
            from.clone_into(&mut span.smallest);
        }
        if comparator.compare_internal(to, &span.largest).is_gt() {
            to.clone_into(&mut span.largest);
        }
        for seq in seqs {
            span.seqs = (span.seqs.0.min(*seq), span.seqs.1.max(*seq));
        }
    }

    fn clip(&mut self, comparator: &Comparator, smallest: &[u8], largest: &[u8]) {
        if comparator.compare_internal(&self.smallest, smallest).is_lt() {
            smallest.clone_into(&mut self.smallest);
        }
        if comparator.compare_internal(&self.largest, largest).is_gt() {
            largest.clone_into(&mut self.largest);
        }
    }
}

/// Returns tables grouped by level, L0 last, in the order in which they reached L0, or by key on
/// other levels.
///
/// Compat: RocksDB refuses overlapping tables too, in a check that `force_consistency_checks` turns
/// off. It writes range tombstones into each table of a run that they touch, whole, and only the
/// bounds of the tables cut them; so tables of such a run overlap if the metadata lacks the bounds.
/// No bound in between would be right: a neighbour that was compacted since may be followed by
/// older levels that have entries with smaller sequence numbers, which are not deleted.
///
/// # Errors
/// `InvalidArgument`: two tables of a level below L0 overlap.
fn in_order(comparator: &Comparator, mut found: Vec<Found>) -> Result<Vec<Found>> {
    found.sort_by(|a, b| {
        // L0 last, because its entries are newer than those below.
        let by_level = b.level.cmp(&a.level);
        by_level.then_with(|| match a.level {
            0 => (a.epoch_number, a.file.largest_seq).cmp(&(b.epoch_number, b.file.largest_seq)),
            _ => comparator.compare_internal(&a.file.smallest, &b.file.smallest),
        })
    });
    for pair in found.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        let is_sorted = one.level == next.level && one.level > 0;
        if is_sorted && comparator.compare_internal(&one.file.largest, &next.file.smallest).is_ge() {
            let mut text = format!("{} and {} of level {} overlap", one.name, next.name, one.level);
            if !(one.has_bounds && next.has_bounds) {
                text.push_str("; without the smallest and largest internal keys that were exported, range tombstones count to their ends");
            }
            return Err(Error::invalid_argument(text));
        }
    }
    Ok(found)
}
