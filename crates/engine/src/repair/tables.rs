//! Tables and blob files found in the directories.
//!
//! In: the files. Out: the properties of each and, once its family is known, its content: every
//! block is read and verified, every entry examined. A damaged file is distinguished from one that
//! cannot be read for another reason, which ends the repair.

use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_format::blob::{
    BlobFooter, BlobHeader, BlobIndex, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES,
};
use karst_format::comparator::Comparator;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::{self, InternalKey, SeqNo, TRAILER_BYTES, ValueType};
use karst_format::properties::TableProperties;
use karst_format::unique_id::table_unique_id;
use karst_format::version_edit::{BlobFileAddition, NewFile};
use karst_io::{Env, OpenOptions, block_on};
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::table::cache::TableCache;
use karst_storage::table::verify;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes read ahead of a table.
const READAHEAD_BYTES: u64 = 2 << 20;

/// A table file in one of the directories.
#[derive(Clone, Debug)]
pub(super) struct FoundTable {
    pub(super) number: FileNumber,
    /// Path id in its family, once the family is known; until then 0, with its own directory as the
    /// only path.
    pub(super) path_id: u8,
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
}

impl FoundTable {
    pub(super) fn in_path(&self, path_id: u8) -> FoundTable {
        FoundTable { path_id, ..self.clone() }
    }
}

/// The number of referenced blobs of each blob file, and the bytes of their records.
pub(super) type References = BTreeMap<FileNumber, (u64, u64)>;

/// A table that was read completely.
#[derive(Clone, Debug)]
pub(super) struct Examined {
    pub(super) path: PathBuf,
    /// Its metadata for the MANIFEST, except the epoch.
    pub(super) file: NewFile,
    pub(super) references: References,
}

impl Examined {
    pub(super) fn smallest(&self) -> &[u8] {
        key::user_key(&self.file.smallest)
    }

    pub(super) fn largest(&self) -> &[u8] {
        key::user_key(&self.file.largest)
    }
}

/// Returns true if an error means that the file is damaged, and false if it could not be read for
/// another reason.
///
/// An I/O error of the device counts as damage, because unreadable sectors are what repair is for.
pub(super) fn is_damage(error: &Error) -> bool {
    const EIO: i32 = 5;
    if error.kind() == ErrorKind::Corruption {
        return true;
    }
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.downcast_ref::<std::io::Error>().is_some_and(|io| io.raw_os_error() == Some(EIO)) {
            return true;
        }
        source = error.source();
    }
    false
}

/// Returns placeholder metadata for a table of unknown content.
pub(super) fn unknown(found: &FoundTable, largest_seq: SeqNo) -> Arc<FileMetadata> {
    let nothing = || vec![0; TRAILER_BYTES];
    let zero = SeqNo::ZERO;
    let mut file = NewFile::new(found.number, found.size_bytes, nothing(), nothing(), zero, largest_seq);
    file.path_id = found.path_id;
    Arc::new(FileMetadata::new(file))
}

/// Returns the properties of a table of any family.
///
/// # Errors
/// The table cannot be read, or its format is unknown.
pub(super) fn properties(tables: &Arc<TableCache>, found: &FoundTable) -> Result<TableProperties> {
    block_on(&tables.shared.env, verify::properties(tables, &unknown(found, SeqNo::ZERO)))
}

/// Reads a whole table. `named` is its metadata in a MANIFEST, if any.
///
/// # Errors
/// The table cannot be read, its entries are out of order or differ in number from its properties,
/// or it has none.
pub(super) fn examine(
    tables: &Arc<TableCache>,
    found: &FoundTable,
    named: Option<&NewFile>,
) -> Result<Examined> {
    block_on(&tables.shared.env, examine_async(tables, found, named))
}

async fn examine_async(
    tables: &Arc<TableCache>,
    found: &FoundTable,
    named: Option<&NewFile>,
) -> Result<Examined> {
    let corrupt = |what: String| Error::corruption_at(&found.path, 0, what);
    // Only the MANIFEST may record the sequence number of an ingested file's entries.
    let known_seq = named.map_or(SeqNo::ZERO, |file| file.largest_seq);
    let meta = unknown(found, known_seq);
    verify::table(tables, &meta).await?;
    let table = tables.clone().open(&meta, 0).await?;
    let comparator = &tables.configuration.comparator;
    let mut spanned = Spanned::default();
    let mut references = References::new();
    let inputs = [CompactionInput { level: Level(0), files: vec![meta.clone()] }];
    let options =
        InputOptions { readahead_bytes: READAHEAD_BYTES, verify_checksums: true, lower: None, upper: None };
    let mut input = JobInput::new(tables.clone(), &[], &inputs, options);
    let (mut before, mut points) = (Vec::new(), 0u64);
    input.start().await?;
    while input.valid() {
        let (internal_key, value) = input.entry();
        let parsed = InternalKey::parse(internal_key).map_err(|c| corrupt(format!("an entry: {c}")))?;
        if !before.is_empty() && comparator.compare_internal(&before, internal_key).is_ge() {
            let shown = Shown(parsed.user_key);
            return Err(corrupt(format!("key {shown} is not greater than the previous key")));
        }
        if parsed.kind == ValueType::BlobIndex {
            refer(&mut references, parsed.user_key, value).map_err(corrupt)?;
        }
        spanned.widen(comparator, internal_key, internal_key, &[parsed.seq]);
        points += 1;
        before.clear();
        before.extend_from_slice(internal_key);
        if !input.advance()? {
            input.arrive().await?;
        }
    }
    let properties = table.properties().clone();
    let said = properties.num_entries.saturating_sub(properties.num_range_deletions);
    // Compat: tables of LevelDB do not record the number of entries.
    if properties.num_entries > 0 && said != points {
        return Err(corrupt(format!("the table has {points} entries, its properties say {said}")));
    }
    if let Some(tombstones) = table.range_tombstones() {
        for at in 0..tombstones.len() {
            let seqs = tombstones.seqs(at);
            let newest = seqs.iter().copied().max().unwrap_or_default();
            let kind = ValueType::RangeDeletion;
            let (mut start, mut end) = (Vec::new(), Vec::new());
            key::append(&mut start, tombstones.start(at), key::pack_trailer(newest, kind));
            key::append(&mut end, tombstones.end(at), key::pack_trailer(SeqNo::MAX, kind));
            // Compat: RocksDB's compactions write a tombstone whole into each table that it
            // touches, where it counts within the bounds of the MANIFEST only.
            if let Some(named) = named {
                if comparator.compare_internal(&start, &named.smallest).is_lt() {
                    start = named.smallest.to_vec();
                }
                if comparator.compare_internal(&end, &named.largest).is_gt() {
                    end = named.largest.to_vec();
                }
                if comparator.compare_internal(&start, &end).is_ge() {
                    continue;
                }
            }
            spanned.widen(comparator, &start, &end, seqs);
        }
    }
    let Spanned { ends: Some((smallest, largest)), seqs: Some((low, high)) } = spanned else {
        return Err(corrupt("the table has no entry".to_owned()));
    };
    let mut file = NewFile::new(found.number, found.size_bytes, smallest, largest, low, high);
    file.path_id = found.path_id;
    file.oldest_ancestor_time_s = properties.creation_time;
    file.creation_time_s = properties.file_creation_time;
    if properties.tail_start_offset > 0 {
        file.tail_size_bytes = found.size_bytes - properties.tail_start_offset.min(found.size_bytes);
    }
    if !properties.db_session_id.is_empty() && properties.orig_file_number > 0 {
        let (db, session) = (properties.db_id.as_bytes(), properties.db_session_id.as_bytes());
        file.unique_id = Some(table_unique_id(db, session, properties.orig_file_number));
    }
    if let Some(named) = named {
        file.checksum.clone_from(&named.checksum);
        file.marked_for_compaction = named.marked_for_compaction;
        file.temperature = named.temperature;
    }
    Ok(Examined { path: found.path.clone(), file, references })
}

/// Counts the blob that an entry refers to.
fn refer(references: &mut References, user_key: &[u8], value: &[u8]) -> Result<(), String> {
    let reference =
        BlobIndex::decode(value).map_err(|c| format!("key {}: reference to a blob: {c}", Shown(user_key)))?;
    if let BlobIndex::Stored { file, size, .. } | BlobIndex::StoredTtl { file, size, .. } = reference
        && file != FileNumber(0)
    {
        let record_bytes = (RECORD_HEADER_BYTES + user_key.len()) as u64;
        let of_file = references.entry(file).or_default();
        of_file.0 += 1;
        of_file.1 = of_file.1.saturating_add(record_bytes.saturating_add(size));
    }
    Ok(())
}

/// Key range and sequence number range of entries.
#[derive(Default)]
struct Spanned {
    ends: Option<(Vec<u8>, Vec<u8>)>,
    seqs: Option<(SeqNo, SeqNo)>,
}

impl Spanned {
    fn widen(&mut self, comparator: &Comparator, from: &[u8], to: &[u8], seqs: &[SeqNo]) {
        match &mut self.ends {
            None => self.ends = Some((from.to_vec(), to.to_vec())),
            Some((smallest, largest)) => {
                if comparator.compare_internal(from, smallest).is_lt() {
                    from.clone_into(smallest);
                }
                if comparator.compare_internal(largest, to).is_lt() {
                    to.clone_into(largest);
                }
            }
        }
        for seq in seqs {
            let (low, high) = self.seqs.unwrap_or((*seq, *seq));
            self.seqs = Some((low.min(*seq), high.max(*seq)));
        }
    }
}

/// A blob file, from its header and footer.
#[derive(Clone, Debug)]
pub(super) struct FoundBlobFile {
    pub(super) family: ColumnFamilyId,
    pub(super) addition: BlobFileAddition,
}

/// Reads the header and footer of a blob file.
///
/// # Errors
/// The file cannot be read, or is not a completed blob file.
pub(super) fn blob_file(env: &Env, directory: &Path, number: FileNumber) -> Result<FoundBlobFile> {
    let path = directory.join(FileName::Blob(number).to_string());
    let file = block_on(env, karst_io::open(env, &path, OpenOptions::BUFFERED))?;
    let size = file.size();
    let Some(total_bytes) = size.checked_sub((HEADER_BYTES + FOOTER_BYTES) as u64) else {
        return Err(Error::corruption_at(&path, size, "too short for a blob file"));
    };
    let header = block_on(env, karst_io::read(env, &file, 0, HEADER_BYTES))?;
    let header = BlobHeader::decode(&header).map_err(|c| Error::in_file(&path, 0, c))?;
    let footer_at = size - FOOTER_BYTES as u64;
    let footer = block_on(env, karst_io::read(env, &file, footer_at, FOOTER_BYTES))?;
    let footer = BlobFooter::decode(&footer).map_err(|c| Error::in_file(&path, footer_at, c))?;
    let addition =
        BlobFileAddition { number, total_count: footer.blob_count, total_bytes, ..Default::default() };
    Ok(FoundBlobFile { family: header.column_family, addition })
}
