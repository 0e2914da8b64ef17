//! Preparation of an ingestion: files are brought into the directory and checked, before the
//! database changes.
//!
//! In: paths of external files. Out: [`PreparedFile`]s: linked or copied under numbers of the
//! database, synced, and validated. A refused file leaves no file behind.
//!
//! Invariants:
//! - The checked file is the one that the database keeps, not the external one.
//! - This runs in a job that closing waits for, and ends soon when the database is being closed, so
//!   that no bytes are written to the directory after another opener has taken it.

use super::arg::IngestExternalFileArg;
use super::bring::{Way, bring};
use super::look_over::{LookOver, MOST_SEQ, check_length, is_in_blob_file, look_over};
use crate::background::{Background, FamilyIngest, FileEnd, IngestExternalFileOptions, PreparedFile};
use crate::versions::Versions;
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_base::options::DbOptions;
use karst_format::ids::FileNumber;
use karst_format::key::{InternalKey, SeqNo, TRAILER_BYTES, ValueType};
use karst_format::properties::TableProperties;
use karst_format::unique_id::table_unique_id;
use karst_format::version_edit::{FileChecksum, NewFile};
use karst_io::{Env, OpenOptions};
use karst_lsm::FileMetadata;
use karst_storage::column_family::Family;
use karst_storage::file_checksum::RunningChecksum;
use karst_storage::table::Table;
use karst_storage::table::verify;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns an error for arguments that are invalid for any file.
fn check_arg(arg: &IngestExternalFileArg) -> Result<()> {
    let options = &arg.options;
    let refuse = |what: &str| Err(Error::invalid_argument(format!("ingesting files: {what}")));
    if arg.external_files.is_empty() {
        return refuse("the list of files is empty");
    }
    if options.move_files && options.link_files {
        return refuse("`move_files` and `link_files` do not go together");
    }
    if options.ingest_behind && options.allow_db_generated_files {
        return refuse("`ingest_behind` and `allow_db_generated_files` do not go together");
    }
    for given in [arg.files_checksums.len(), arg.files_checksum_func_names.len()] {
        if given != 0 && given != arg.external_files.len() {
            return refuse(
                "there have to be as many checksums, and names of their functions, as files, or none",
            );
        }
    }
    if arg.files_checksums.len() != arg.files_checksum_func_names.len() {
        return refuse("checksums and the names of their functions come together");
    }
    Ok(())
}

/// Prepares all files of `arg`, for `family`.
///
/// # Errors
/// A file cannot be read, linked or copied, or is invalid; the options do not allow it; the
/// database is being closed. No file is left behind then.
pub(super) async fn prepare(
    background: &Arc<Background>,
    versions: &Arc<Versions>,
    db_options: &DbOptions,
    family: &Arc<Family>,
    arg: &IngestExternalFileArg,
) -> Result<FamilyIngest> {
    check_arg(arg)?;
    let options = arg.options;
    if options.ingest_behind && family.config.comparator.timestamp_size() > 0 {
        // Compat: like RocksDB. The timestamps are not known to be older than those of the tree.
        let name = Named(&family.config.name);
        let text = format!("ingesting behind in column family {name:?}, whose keys have timestamps");
        return Err(Error::not_supported(text));
    }
    let mut files = Vec::with_capacity(arg.external_files.len());
    for (index, path) in arg.external_files.iter().enumerate() {
        let given = arg.files_checksums.get(index).zip(arg.files_checksum_func_names.get(index));
        let one = One { background, versions, db_options, family, options, path };
        files.push(one.prepare(given).await.map_err(|error| named(path, error))?);
    }
    let comparator = &family.config.comparator;
    // If any two files overlap, so do two neighbours in the order of their smallest keys.
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by(|a, b| comparator.compare_user(a.smallest.user_key(), b.smallest.user_key()));
    let overlap = sorted.windows(2).any(|pair| pair[0].overlaps(pair[1], comparator));
    if overlap && options.ingest_behind {
        return Err(Error::not_supported("files that overlap each other cannot be ingested behind"));
    }
    Ok(FamilyIngest { family: family.clone(), files, options, overlap })
}

/// Returns the error with the path of the external file.
fn named(path: &Path, error: Error) -> Error {
    if error.to_string().contains(&*path.to_string_lossy()) {
        return error;
    }
    error.in_context(format!("ingesting {}", path.display()))
}

/// Preparation of one file.
struct One<'a> {
    background: &'a Arc<Background>,
    versions: &'a Arc<Versions>,
    db_options: &'a DbOptions,
    family: &'a Arc<Family>,
    options: IngestExternalFileOptions,
    path: &'a PathBuf,
}

/// Bounds, sequence numbers and properties of an examined file.
struct Found {
    smallest: FileEnd,
    largest: FileEnd,
    /// Smallest and largest sequence number of its entries.
    seqs: (SeqNo, SeqNo),
    properties: Arc<TableProperties>,
}

impl One<'_> {
    async fn prepare(&self, given: Option<(&Vec<u8>, &String)>) -> Result<PreparedFile> {
        self.background.check_open()?;
        let shared = &self.family.tables.shared;
        if self.options.move_files && shared.has_place_of(self.path) {
            return Err(Error::invalid_argument(
                "the file is in a directory of this database, where it may be a table in use, so it is not moved",
            ));
        }
        let guard = self.versions.new_table(0);
        let internal_path = shared.table_path(guard.number(), 0)?;
        let way = match self.options.move_files || self.options.link_files {
            true if self.options.failed_move_fall_back_to_copy => Way::LinkOrCopy,
            true => Way::Link,
            false => Way::Copy,
        };
        bring(self.background, self.db_options, (self.path, &internal_path), way).await?;
        let of = internal_path.clone();
        let metadata = self.env().run_blocking(move |env| env.fs().metadata(&of)).await?;
        let found = self.background.while_open(self.examine(guard.number(), metadata.len)).await;
        // Closed, because it was opened without its number in the tree; the next reader opens it
        // anew.
        shared.open_files.forget(guard.number());
        let Found { smallest, largest, seqs, properties } = found?;
        let ends = [&smallest, &largest].map(|end| end.internal_key(None));
        let [first, last] = ends;
        let mut file = NewFile::new(guard.number(), metadata.len, first, last, seqs.0, seqs.1);
        file.unique_id = (!properties.db_session_id.is_empty()).then(|| {
            let (db, session) = (properties.db_id.as_bytes(), properties.db_session_id.as_bytes());
            table_unique_id(db, session, properties.orig_file_number)
        });
        file.tail_size_bytes = metadata.len - properties.tail_start_offset.min(metadata.len);
        // Compat: a file with a single range tombstone and no other entry is best compacted away.
        file.marked_for_compaction = properties.num_entries == 1 && properties.num_range_deletions == 1;
        file.checksum = self.background.while_open(self.checksum(&internal_path, given)).await?;
        let external_path = self.path.clone();
        Ok(PreparedFile { guard, external_path, internal_path, file, smallest, largest, properties })
    }

    fn env(&self) -> &Env {
        &self.family.tables.shared.env
    }

    /// Validates the file, and returns its bounds, sequence numbers and properties.
    async fn examine(&self, number: FileNumber, size: u64) -> Result<Found> {
        let nothing = || vec![0; TRAILER_BYTES];
        let zero = SeqNo::ZERO;
        let file = Arc::new(FileMetadata::new(NewFile::new(number, size, nothing(), nothing(), zero, zero)));
        let tables = &self.family.tables;
        let table = tables.clone().open(&file, 0).await?;
        self.check_properties(table.properties())?;
        if self.options.verify_checksums_before_ingest {
            verify::table(tables, &file).await?;
        }
        let mut entries = self.entries(&table, &file).await?;
        if self.looks_at_all() {
            check_counts(&table, entries.points)?;
        }
        if let Some(tombstones) = table.range_tombstones() {
            let comparator = &tables.configuration.comparator;
            for at in 0..tombstones.len() {
                let [start, end] = FileEnd::of_tombstone(tombstones, at);
                check_length(comparator, start.user_key())?;
                check_length(comparator, end.user_key())?;
                entries.widen(comparator, start, end, tombstones.seqs(at));
            }
        }
        let Entries { ends: Some((smallest, largest)), seqs: Some(seqs), .. } = entries else {
            return Err(Error::invalid_argument("the file has no entry"));
        };
        if seqs.1 > MOST_SEQ {
            let seq = seqs.1;
            let text = format!(
                "an entry has sequence number {seq}, which leaves too few; the largest may be {MOST_SEQ}"
            );
            return Err(Error::invalid_argument(text));
        }
        let properties = table.properties().clone();
        Ok(Found { smallest, largest, seqs, properties })
    }

    fn check_properties(&self, properties: &TableProperties) -> Result<()> {
        let is_external = properties.external_file_version().is_some();
        if !is_external && !self.options.allow_db_generated_files {
            return Err(Error::invalid_argument(
                "the file was not made by SstFileWriter, and `allow_db_generated_files` is not set",
            ));
        }
        let (any, theirs) = (i32::MAX as u64, properties.column_family_id);
        if theirs != any && theirs != u64::from(self.family.id().0) && !self.options.allow_db_generated_files
        {
            let own = self.family.id();
            let text =
                format!("the file was made for the column family with id {theirs}, not for this one, {own}");
            return Err(Error::invalid_argument(text));
        }
        Ok(())
    }

    /// Returns true if every entry is checked, not only the first and the last one.
    fn looks_at_all(&self) -> bool {
        self.options.verify_checksums_before_ingest || self.options.allow_db_generated_files
    }

    /// Reads the first and the last entry, without range tombstones; all entries if all must be
    /// checked.
    async fn entries(&self, table: &Table, file: &Arc<FileMetadata>) -> Result<Entries> {
        let mut entries = Entries::default();
        let how = LookOver { all: self.looks_at_all(), fill_cache: self.options.fill_cache };
        look_over(&self.family.tables, (table, file), how, |key, value| self.note(&mut entries, key, value))
            .await?;
        Ok(entries)
    }

    /// Records an entry, or returns an error if it may not be ingested.
    fn note(&self, entries: &mut Entries, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let key = InternalKey::parse(internal_key)
            .map_err(|c| Error::new(ErrorKind::Corruption, format!("an entry of the file: {c}")))?;
        if is_in_blob_file(key.kind, value)? {
            let text =
                format!("key {} has a value in a blob file, which cannot be ingested", Shown(key.user_key));
            return Err(Error::not_supported(text));
        }
        if !key.kind.is_stored() || key.kind == ValueType::RangeDeletion {
            let (kind, shown) = (key.kind, Shown(key.user_key));
            let text = format!("key {shown} has an entry of type {kind:?}, which cannot be ingested");
            return Err(Error::not_supported(text));
        }
        if key.seq > SeqNo::ZERO && !self.options.allow_db_generated_files {
            let (seq, shown) = (key.seq, Shown(key.user_key));
            let text = format!("key {shown} has sequence number {seq}; in a file to be ingested all are 0");
            return Err(Error::new(ErrorKind::Corruption, text));
        }
        let end = FileEnd::Entry(key.user_key.to_vec(), key.seq, key.kind);
        entries.widen(&self.family.tables.configuration.comparator, end.clone(), end, &[key.seq]);
        entries.points += 1;
        Ok(())
    }

    /// Returns the checksum of the whole file, if the database records such checksums.
    async fn checksum(
        &self,
        path: &Path,
        given: Option<(&Vec<u8>, &String)>,
    ) -> Result<Option<FileChecksum>> {
        let shared = &self.family.tables.shared;
        let Some(factory) = &shared.file_checksums else { return Ok(None) };
        let running = match given {
            Some((_, function)) => RunningChecksum::by_function(Some(factory), path, function.as_bytes())?,
            None => match RunningChecksum::of_new(factory, path) {
                Some(running) => running,
                None => return Ok(None),
            },
        };
        if let Some((value, function)) = given.filter(|_| !self.options.verify_file_checksum) {
            let (value, function) = (value.clone().into(), function.as_bytes().into());
            return Ok(Some(FileChecksum { value, function }));
        }
        let file = karst_io::open(self.env(), path, OpenOptions::BUFFERED).await?;
        let found = verify::file_checksum(shared, &file, running).await?;
        let value = found.as_ref().map(|found| &*found.value).unwrap_or_default();
        if let Some((expected, _)) = given.filter(|(expected, _)| **expected != *value) {
            let text = format!("checksum of the whole file: {value:02x?}, {expected:02x?} was given");
            return Err(Error::new(ErrorKind::Corruption, text));
        }
        Ok(found)
    }
}

/// Compares the number of entries found in a table with its properties.
///
/// Checked here, because a later compaction checks it too, and a mismatch then stops the whole
/// database.
fn check_counts(table: &Table, points: u64) -> Result<()> {
    let properties = table.properties();
    let tombstones = properties.num_range_deletions;
    let said = properties.num_entries.saturating_sub(tombstones);
    if points != said {
        let text = format!("{points} entries were found, its properties say that it has {said}");
        return Err(Error::new(ErrorKind::Corruption, text));
    }
    // The number of tombstones is not compared, because overlapping ones are fragmented when the
    // table is opened.
    let has_tombstones = table.range_tombstones().is_some();
    if has_tombstones != (tombstones > 0) {
        let found = if has_tombstones { "range tombstones" } else { "no range tombstone" };
        let text = format!("{found} were found, its properties say that it has {tombstones}");
        return Err(Error::new(ErrorKind::Corruption, text));
    }
    Ok(())
}

/// Range of the examined entries.
#[derive(Default)]
struct Entries {
    ends: Option<(FileEnd, FileEnd)>,
    seqs: Option<(SeqNo, SeqNo)>,
    /// Number of examined entries, without range tombstones.
    points: u64,
}

impl Entries {
    fn widen(
        &mut self,
        comparator: &karst_format::comparator::Comparator,
        from: FileEnd,
        to: FileEnd,
        seqs: &[SeqNo],
    ) {
        let is_before = |a: &FileEnd, b: &FileEnd| {
            comparator.compare_internal(&a.internal_key(None), &b.internal_key(None)).is_lt()
        };
        self.ends = Some(match self.ends.take() {
            None => (from, to),
            Some((smallest, largest)) => (
                if is_before(&from, &smallest) { from } else { smallest },
                if is_before(&largest, &to) { to } else { largest },
            ),
        });
        for seq in seqs {
            let (low, high) = self.seqs.unwrap_or((*seq, *seq));
            self.seqs = Some((low.min(*seq), high.max(*seq)));
        }
    }
}
