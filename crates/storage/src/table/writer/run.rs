//! A sorted run: ascending entries in, table files out.
//!
//! The caller's [`CutPolicy`] decides where files end. Values that are large enough go to blob
//! files.
//!
//! Invariants:
//! - All entries of a user key are in one file, so that files of a level do not share user keys.
//! - Range tombstones are cut at file boundaries: each file holds the parts in its own key range,
//!   from its first key (the run's lower bound for the first file) up to, not including, the first
//!   key of the next (the run's upper bound for the last).
//! - A run with only range tombstones makes a file, an empty one does not.

use super::blob_files::NewBlobFiles;
use super::collectors::Collectors;
use super::parallel::Compressors;
use super::table_options::compression_threads;
use super::write_behind::WriteBehind;
use super::{Outputs, table_options};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_format::Corruption;
use karst_format::blob::BlobIndex;
use karst_format::checksum::running_hash;
use karst_format::comparator::Comparator;
use karst_format::ids::FileNumber;
use karst_format::key::{self, SeqNo, ValueType};
use karst_format::properties::TableProperties;
use karst_format::table_builder::{CompressionCounts, FinishedTable, TableBuildError, TableBuilder};
use karst_format::unique_id::table_unique_id;
use karst_format::version_edit::{BlobFileAddition, NewFile};
use karst_format::wide_column;
use karst_lsm::OpenOutput;
use karst_lsm::range_del::Fragments;
use std::sync::Arc;

/// Size of the pieces passed to the file, in bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Decides where the files of a run end.
pub trait CutPolicy {
    /// Returns true if a new file should begin with `internal_key`. Called once for each entry, in
    /// order, even if no file is open; the result is used only if one is, and `new_user_key` is
    /// true: the entry before had another user key.
    fn cut_before(&mut self, internal_key: &[u8], new_user_key: bool, open: Option<OpenOutput>) -> bool;

    /// Returns true if the next decision, for this key, may depend on the open file's size, given
    /// that it is at most this.
    fn needs_size(&self, internal_key: &[u8], at_most: OpenOutput) -> bool;
}

/// Writes one file of any size.
#[derive(Clone, Copy, Debug)]
pub struct NeverCut;

impl CutPolicy for NeverCut {
    #[inline]
    fn cut_before(&mut self, _: &[u8], _: bool, _: Option<OpenOutput>) -> bool {
        false
    }

    fn needs_size(&self, _: &[u8], _: OpenOutput) -> bool {
        false
    }
}

/// A table that is complete and synced.
#[derive(Clone, Debug)]
pub struct WrittenTable {
    /// The file's description for the MANIFEST.
    pub file: NewFile,
    /// The table's properties.
    pub properties: TableProperties,
    /// Hash of its entries, if it is to be read back.
    pub entries: Option<EntryHash>,
}

/// A hash over entries in order, without range tombstones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHash {
    hash: u64,
    /// Number of entries added.
    pub entries: u64,
}

impl EntryHash {
    /// Adds an entry.
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) {
        self.hash = running_hash(running_hash(self.hash, internal_key), value);
        self.entries += 1;
    }
}

/// The files of a finished run.
#[derive(Clone, Debug, Default)]
pub struct RunFiles {
    /// The tables, in key order.
    pub tables: Vec<WrittenTable>,
    /// The blob files of the tables.
    pub blob_files: Vec<BlobFileAddition>,
}

/// Writes one sorted run.
#[derive(Debug)]
pub struct RunWriter<C> {
    outputs: Outputs,
    comparator: Comparator,
    policy: C,
    current: Option<OpenTable>,
    /// Present if several threads compress blocks.
    compressors: Option<Compressors>,
    /// Complete tables that are not closed yet.
    ended: Vec<EndedTable>,
    written: Vec<WrittenTable>,
    blobs: Option<NewBlobFiles>,
    tombstones: Option<Arc<Fragments>>,
    /// Start of the current file's key range; `None` if unbounded.
    lower: Option<Vec<u8>>,
    /// End of the run's key range, exclusive.
    upper: Option<Vec<u8>>,
    /// Buffers for entries that become references to blobs.
    key_buffer: Vec<u8>,
    reference: Vec<u8>,
    table_bytes: u64,
}

#[derive(Debug)]
struct OpenTable {
    number: FileNumber,
    file: WriteBehind,
    builder: TableBuilder,
    collectors: Collectors,
    /// Hash of the entries so far, if the table is to be read back.
    entries: Option<EntryHash>,
    created_s: u64,
    oldest_blob: Option<FileNumber>,
}

#[derive(Debug)]
struct EndedTable {
    number: FileNumber,
    file: WriteBehind,
    table: FinishedTable,
    /// True if the table requests its compaction.
    marked: bool,
    entries: Option<EntryHash>,
    created_s: u64,
    oldest_blob: Option<FileNumber>,
}

impl<C: CutPolicy> RunWriter<C> {
    /// Creates a writer for a run of keys in `range` (user keys, the second excluded) with
    /// `tombstones`.
    ///
    /// # Errors
    /// The options are invalid for writing.
    pub fn new(
        outputs: Outputs,
        policy: C,
        tombstones: Option<Arc<Fragments>>,
        range: (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<Self> {
        Ok(RunWriter {
            comparator: outputs.config.comparator.clone(),
            blobs: NewBlobFiles::new(&outputs)?,
            compressors: Compressors::new(&outputs.env, compression_threads(&outputs.config, &outputs.place)),
            outputs,
            policy,
            current: None,
            ended: Vec::new(),
            written: Vec::new(),
            tombstones: tombstones.filter(|fragments| !fragments.is_empty()),
            lower: range.0.map(<[u8]>::to_vec),
            upper: range.1.map(<[u8]>::to_vec),
            key_buffer: Vec::new(),
            reference: Vec::new(),
            table_bytes: 0,
        })
    }

    /// Adds an entry. Internal keys must ascend. Never waits; check
    /// [`needs_room`](Self::needs_room) afterwards.
    ///
    /// # Errors
    /// The key is not greater than the one before, or cannot be stored.
    #[inline]
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(compressors) = &mut self.compressors
            && compressors.is_busy()
            && let Some(open) = &mut self.current
            && self.policy.needs_size(internal_key, open.size_at_most())
        {
            compressors.settle(&mut open.builder);
        }
        let (open, new_user_key) = match &self.current {
            None => (None, true),
            Some(open) => (Some(open.size()), open.ends_with_other_key(&self.comparator, internal_key)),
        };
        if self.policy.cut_before(internal_key, new_user_key, open) && open.is_some() && new_user_key {
            self.end_table(Some(key::user_key(internal_key)))?;
        }
        if self.current.is_none() {
            self.current = Some(OpenTable::new(&self.outputs, self.compressors.is_some())?);
        }
        let kind = internal_key[internal_key.len() - key::TRAILER_BYTES];
        if kind == ValueType::Value as u8 && self.blobs.is_some() && self.add_as_blob(internal_key, value)? {
            return Ok(());
        }
        if kind == ValueType::BlobIndex as u8 || kind == ValueType::WideColumnEntity as u8 {
            self.note_references(internal_key, kind, value)?;
        }
        self.add_entry(internal_key, value)
    }

    #[inline]
    fn add_entry(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let open = self.current.as_mut().expect("a table is open");
        open.builder.add(internal_key, value).map_err(build_error)?;
        if let Some(entries) = &mut open.entries {
            entries.add(internal_key, value);
        }
        open.collectors.add(internal_key, value, open.builder.file_bytes());
        if let Some(compressors) = self.compressors.as_mut().filter(|_| open.builder.has_closed()) {
            compressors.pass_on(&mut open.builder);
        }
        if open.builder.pending_bytes() >= PIECE_BYTES {
            open.hand_over();
            self.outputs.warm(&mut open.builder, open.number, None)?;
        }
        Ok(())
    }

    /// Stores the value in a blob file, if it is large enough.
    fn add_as_blob(&mut self, internal_key: &[u8], value: &[u8]) -> Result<bool> {
        let (user_key, trailer) = key::split(internal_key);
        let Some(blobs) = &mut self.blobs else { return Ok(false) };
        let Some(number) = blobs.add(&self.outputs, user_key, value, &mut self.reference) else {
            return Ok(false);
        };
        let mut internal = std::mem::take(&mut self.key_buffer);
        internal.clear();
        key::append(&mut internal, user_key, trailer & !0xff | ValueType::BlobIndex as u64);
        let reference = std::mem::take(&mut self.reference);
        let added = self.add_entry(&internal, &reference);
        (self.key_buffer, self.reference) = (internal, reference);
        self.current.as_mut().expect("a table is open").note_blob(number);
        added.map(|()| true)
    }

    /// Records the blob files that the entry refers to.
    #[cold]
    fn note_references(&mut self, internal_key: &[u8], kind: u8, value: &[u8]) -> Result<()> {
        let open = self.current.as_mut().expect("a table is open");
        visit_references(internal_key, kind, value, |file, _| open.note_blob(file))
    }

    /// Replaces the run's tombstones. No file of it may have ended yet.
    pub fn lay_over(&mut self, tombstones: Fragments) {
        debug_assert!(self.ended.is_empty() && self.written.is_empty(), "ended files lack these tombstones");
        self.tombstones = (!tombstones.is_empty()).then(|| Arc::new(tombstones));
    }

    /// Returns the bytes of tables and of blob files so far.
    pub fn written_bytes(&self) -> (u64, u64) {
        let open = self.current.as_ref().map_or(0, |open| open.builder.file_bytes());
        (self.table_bytes + open, self.blobs.as_ref().map_or(0, NewBlobFiles::written_bytes))
    }

    /// Returns true if [`make_room`](Self::make_room) must be awaited before more is added.
    #[inline]
    pub fn needs_room(&self) -> bool {
        self.ended.iter().any(|ended| ended.file.has_waiting())
            || self.current.as_ref().is_some_and(|open| open.file.has_waiting())
            || self.blobs.as_ref().is_some_and(NewBlobFiles::needs_room)
    }

    /// Passes ready pieces to their files, after waiting for the pieces before them.
    ///
    /// # Errors
    /// Writing failed.
    pub async fn make_room(&mut self) -> Result<()> {
        for ended in &mut self.ended {
            if let Err(error) = ended.file.make_room().await {
                tell_created(&self.outputs, (ended.number, &ended.table), Some(&error));
                return Err(error);
            }
        }
        // One is left because it is synced while the next one is being built.
        self.close_ended(1).await?;
        if let Some(open) = &mut self.current
            && let Err(error) = open.file.make_room().await
        {
            if let Some(creations) = &self.outputs.creations {
                let (path, bytes) = (self.outputs.table_path(open.number), open.builder.file_bytes());
                creations.table_created(&path, bytes, &TableProperties::default(), Some(&error));
            }
            return Err(error);
        }
        match &mut self.blobs {
            Some(blobs) => blobs.make_room(&self.outputs).await,
            None => Ok(()),
        }
    }

    /// Waits until at most `left` ended tables are unsynced.
    async fn close_ended(&mut self, left: usize) -> Result<()> {
        while self.ended.len() > left {
            let written = self.ended.remove(0).close(&self.outputs).await?;
            self.written.extend(written);
        }
        Ok(())
    }

    /// Ends the run. All its files are synced then; their directory is not. Returns the bytes of
    /// tables and of blob files too.
    ///
    /// # Errors
    /// Writing failed.
    pub async fn finish(mut self) -> Result<(RunFiles, (u64, u64))> {
        if self.current.is_none() && self.has_tombstones_left() {
            self.current = Some(OpenTable::new(&self.outputs, self.compressors.is_some())?);
        }
        if self.current.is_some() {
            let upper = self.upper.take();
            self.end_table(upper.as_deref())?;
        }
        self.make_room().await?;
        self.close_ended(0).await?;
        let (blob_files, blob_bytes) = match self.blobs {
            Some(blobs) => blobs.finish(&self.outputs).await?,
            None => (Vec::new(), 0),
        };
        Ok((RunFiles { tables: self.written, blob_files }, (self.table_bytes, blob_bytes)))
    }

    fn has_tombstones_left(&self) -> bool {
        self.tombstones.as_ref().is_some_and(|fragments| {
            let range = fragments.overlapping(&self.comparator, self.lower.as_deref(), self.upper.as_deref());
            !range.is_empty()
        })
    }

    /// Ends the current file, whose key range ends before `upper`.
    fn end_table(&mut self, upper: Option<&[u8]>) -> Result<()> {
        let mut open = self.current.take().expect("a table is open");
        if let Some(fragments) = &self.tombstones {
            let lower = self.lower.as_deref();
            open.add_tombstones(&self.comparator, fragments, lower, upper)?;
        }
        if let Some(compressors) = &mut self.compressors {
            open.builder.close_data();
            compressors.settle(&mut open.builder);
        }
        let marked = open.collectors.finish(&mut open.builder);
        let table = open.builder.finish().map_err(build_error)?;
        open.hand_over();
        self.outputs.warm(&mut open.builder, open.number, Some(&table.properties))?;
        self.table_bytes += table.file_bytes;
        count_blocks(&self.outputs.stats, &table.compression);
        open.file.end();
        let OpenTable { number, file, entries, created_s, oldest_blob, .. } = open;
        self.ended.push(EndedTable { number, file, table, marked, entries, created_s, oldest_blob });
        self.lower = upper.map(<[u8]>::to_vec);
        Ok(())
    }
}

/// Adds a table's compression counts to the statistics.
fn count_blocks(stats: &Statistics, counts: &CompressionCounts) {
    let recorder = stats.recorder();
    recorder.record(Ticker::NumberBlockCompressed, counts.compressed.blocks);
    recorder.record(Ticker::BytesCompressedFrom, counts.compressed.raw_bytes);
    recorder.record(Ticker::BytesCompressedTo, counts.compressed_to_bytes);
    recorder.record(Ticker::NumberBlockCompressionRejected, counts.rejected.blocks);
    recorder.record(Ticker::BytesCompressionRejected, counts.rejected.raw_bytes);
    recorder.record(Ticker::NumberBlockCompressionBypassed, counts.bypassed.blocks);
    recorder.record(Ticker::BytesCompressionBypassed, counts.bypassed.raw_bytes);
}

/// Calls `found` with the blob file and the stored size of each reference in an entry: a blob
/// reference, or an entity with columns in blob files.
///
/// # Errors
/// The value is invalid for the entry's kind.
pub fn visit_references(
    internal_key: &[u8],
    kind: u8,
    value: &[u8],
    mut found: impl FnMut(FileNumber, u64),
) -> Result<()> {
    let corrupt = |c: Corruption| {
        let key = Shown(key::user_key(internal_key));
        Error::new(ErrorKind::Corruption, format!("blob reference of key {key}: {c}"))
    };
    let mut visit = |reference: &[u8]| -> Result<(), Corruption> {
        match BlobIndex::decode(reference)? {
            BlobIndex::Stored { file, size, .. } | BlobIndex::StoredTtl { file, size, .. } => {
                found(file, size)
            }
            BlobIndex::InlinedTtl { .. } => {}
        }
        Ok(())
    };
    if kind == ValueType::BlobIndex as u8 {
        return visit(value).map_err(corrupt);
    }
    if kind == ValueType::WideColumnEntity as u8 && wide_column::has_blobs(value).map_err(corrupt)? {
        for column in wide_column::decode(value).map_err(corrupt)?.iter().filter(|column| column.is_blob) {
            visit(column.value).map_err(corrupt)?;
        }
    }
    Ok(())
}

impl OpenTable {
    fn new(outputs: &Outputs, in_parallel: bool) -> Result<OpenTable> {
        let number = outputs.new_files.new_table();
        let created_s = outputs.env.unix_time().as_secs();
        let identity = outputs.table_identity(number, created_s);
        let mut options = table_options(&outputs.config, &outputs.place, identity)?;
        options.keep_blocks = outputs.warming.is_some();
        let mut builder = TableBuilder::new(options).map_err(build_error)?;
        if in_parallel {
            builder.defer_compression();
        }
        let file = WriteBehind::new(
            &outputs.env,
            outputs.table_path(number),
            outputs.throttle.clone(),
            outputs.writing,
            outputs.checksum(&outputs.table_path(number)),
            outputs.times(
                if outputs.place.flush {
                    HistogramKind::TableSyncMicros
                } else {
                    HistogramKind::CompactionOutfileSyncMicros
                },
                HistogramKind::SstWriteMicros,
            ),
            outputs.file_charge(),
        );
        let collectors = Collectors::new(&outputs.config, &outputs.place);
        if let Some(creations) = &outputs.creations {
            creations.table_started(&outputs.table_path(number));
        }
        let entries = outputs.hashes_entries().then(EntryHash::default);
        Ok(OpenTable { number, file, builder, collectors, entries, created_s, oldest_blob: None })
    }

    /// Adds the parts of the tombstones from `lower` up to `upper`.
    fn add_tombstones(
        &mut self,
        comparator: &Comparator,
        fragments: &Fragments,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        for i in fragments.overlapping(comparator, lower, upper) {
            let (mut start, mut end) = (fragments.start(i), fragments.end(i));
            if let Some(lower) = lower.filter(|lower| comparator.compare_user(start, lower).is_lt()) {
                start = lower;
            }
            if let Some(upper) = upper.filter(|upper| comparator.compare_user(end, upper).is_gt()) {
                end = upper;
            }
            for seq in fragments.seqs(i) {
                self.builder.add_range_deletion(start, end, SeqNo(seq.0)).map_err(build_error)?;
                self.collectors.add_range_deletion(start, end, SeqNo(seq.0), self.builder.file_bytes());
            }
        }
        Ok(())
    }

    fn size(&self) -> OpenOutput {
        OpenOutput { file_bytes: self.builder.file_bytes(), tail_bytes: self.builder.estimated_tail_bytes() }
    }

    /// Returns an upper bound of the size, for any outcome of compressions under way.
    fn size_at_most(&self) -> OpenOutput {
        OpenOutput {
            file_bytes: self.builder.file_bytes_at_most(),
            tail_bytes: self.builder.estimated_tail_bytes(),
        }
    }

    fn ends_with_other_key(&self, comparator: &Comparator, internal_key: &[u8]) -> bool {
        let last = self.builder.last_key();
        last.is_none_or(|last| !comparator.equal_user(key::user_key(last), key::user_key(internal_key)))
    }

    fn note_blob(&mut self, number: FileNumber) {
        self.oldest_blob = Some(self.oldest_blob.map_or(number, |oldest| oldest.min(number)));
    }

    fn hand_over(&mut self) {
        let next = self.file.buffer();
        self.file.push(self.builder.exchange_output(next));
    }
}

/// Reports to listeners that a table was synced, or failed.
fn tell_created(outputs: &Outputs, (number, table): (FileNumber, &FinishedTable), error: Option<&Error>) {
    if let Some(creations) = &outputs.creations {
        let path = outputs.table_path(number);
        creations.table_created(&path, table.file_bytes, &table.properties, error);
    }
}

impl EndedTable {
    /// Syncs the file. Returns `None` for an empty table.
    async fn close(self, outputs: &Outputs) -> Result<Option<WrittenTable>> {
        let closed = self.file.close().await;
        tell_created(outputs, (self.number, &self.table), closed.as_ref().err());
        let (checksum, table) = (closed?, self.table);
        outputs.takes_room(|| outputs.table_path(self.number), table.file_bytes)?;
        let (Some(smallest), Some(largest)) = (table.smallest, table.largest) else { return Ok(None) };
        let mut file = NewFile::new(
            self.number,
            table.file_bytes,
            smallest,
            largest,
            table.smallest_seq,
            table.largest_seq,
        );
        let identity = &outputs.identity;
        file.path_id = outputs.path_id;
        file.temperature = outputs.temperature;
        file.epoch_number = outputs.epoch;
        file.oldest_ancestor_time_s = outputs.oldest_ancestor_time_s(self.created_s);
        file.creation_time_s = self.created_s;
        file.oldest_blob_file = self.oldest_blob;
        file.marked_for_compaction = self.marked;
        file.unique_id =
            Some(table_unique_id(identity.db_id.as_bytes(), identity.session_id.as_bytes(), self.number.0));
        file.tail_size_bytes = table.file_bytes - table.properties.tail_start_offset.min(table.file_bytes);
        file.checksum = checksum;
        Ok(Some(WrittenTable { file, properties: table.properties, entries: self.entries }))
    }
}

fn build_error(error: TableBuildError) -> Error {
    let text = error.to_string();
    let kind = match &error {
        TableBuildError::Damaged(_) => ErrorKind::Corruption,
        _ => ErrorKind::InvalidArgument,
    };
    Error::with_source(kind, text, error)
}
