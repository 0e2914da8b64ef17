//! The blob files of a run: values in, references out.
//!
//! In: a user key and a value. Out: the reference to store in the table, if the value is large
//! enough; at the end a description of each file. A file ends when it has reached `blob_file_size`,
//! and the next value starts another.
//!
//! Invariant: a value is in a file before the reference to it leaves this module.

use super::Outputs;
use super::table_options::compression_type;
use super::write_behind::WriteBehind;
use karst_base::error::Result;
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_format::blob::{BlobFooter, BlobHeader, BlobIndex, BlobRecord, HEADER_BYTES, RECORD_HEADER_BYTES};
use karst_format::compression::{self, CompressionType};
use karst_format::ids::FileNumber;
use karst_format::options::choice::Compression;
use karst_format::version_edit::BlobFileAddition;
use std::sync::Arc;

/// Size of the pieces passed to the file, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The blob files of one run.
#[derive(Debug)]
pub(super) struct NewBlobFiles {
    /// Minimum size in bytes of a value that goes to a blob file.
    min_bytes: u64,
    file_bytes: u64,
    compression: CompressionType,
    compression_level: Option<i32>,
    open: Option<OpenFile>,
    ended: Vec<OpenFile>,
    finished: Vec<BlobFileAddition>,
    compressed: Vec<u8>,
    /// Bytes written so far, over all files.
    written_bytes: u64,
    stats: Arc<Statistics>,
}

#[derive(Debug)]
struct OpenFile {
    number: FileNumber,
    file: WriteBehind,
    /// Bytes built, but not passed to the file yet.
    building: Vec<u8>,
    /// Size of the file in bytes, including those being built.
    size: u64,
    count: u64,
    /// Size of all records in bytes.
    bytes: u64,
}

impl NewBlobFiles {
    /// Returns `None` if the options keep values of this level in tables.
    pub(super) fn new(outputs: &Outputs) -> Result<Option<NewBlobFiles>> {
        let family = &outputs.config.options;
        let starting_level = usize::try_from(family.blob_file_starting_level).unwrap_or(0);
        if !family.enable_blob_files || outputs.place.level < starting_level {
            return Ok(None);
        }
        let level = family.blob_compression_opts.level;
        Ok(Some(NewBlobFiles {
            min_bytes: family.min_blob_size,
            file_bytes: family.blob_file_size,
            compression: match family.blob_compression_type {
                Compression::Disable => CompressionType::None,
                choice => compression_type(choice)?,
            },
            // Compat: 32767 stands for the algorithm's own default.
            compression_level: Some(level).filter(|level| *level != 32767),
            open: None,
            ended: Vec::new(),
            finished: Vec::new(),
            compressed: Vec::new(),
            written_bytes: 0,
            stats: outputs.stats.clone(),
        }))
    }

    /// Stores a value that is large enough in a file, and the reference to it in `reference`.
    /// Returns the file's number.
    pub(super) fn add(
        &mut self,
        outputs: &Outputs,
        user_key: &[u8],
        value: &[u8],
        reference: &mut Vec<u8>,
    ) -> Option<FileNumber> {
        if (value.len() as u64) < self.min_bytes {
            return None;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let open = OpenFile::new(outputs, self.compression);
                self.written_bytes += open.size;
                none.insert(open)
            }
        };
        let stored = if self.compression == CompressionType::None {
            value
        } else {
            let begun = self.stats.detailed_timers_enabled().then(|| outputs.env.now());
            self.compressed.clear();
            compression::compress_into(
                self.compression,
                self.compression_level,
                value,
                None,
                &mut self.compressed,
            );
            if let Some(begun) = begun {
                let micros = outputs.env.now().saturating_sub(begun).as_micros();
                let micros = u64::try_from(micros).unwrap_or(u64::MAX);
                self.stats.measure(HistogramKind::BlobDbCompressionMicros, micros);
            }
            &self.compressed
        };
        let offset = open.size + (RECORD_HEADER_BYTES + user_key.len()) as u64;
        BlobRecord { key: user_key, value: stored, expiration: 0 }.encode_into(&mut open.building);
        let record_bytes = (RECORD_HEADER_BYTES + user_key.len() + stored.len()) as u64;
        open.size += record_bytes;
        open.bytes += record_bytes;
        open.count += 1;
        self.written_bytes += record_bytes;
        let number = open.number;
        if let Some(warming) = &outputs.blob_warming {
            warming.take(number, offset, value);
        }
        reference.clear();
        BlobIndex::Stored { file: number, offset, size: stored.len() as u64, compression: self.compression }
            .encode_into(reference);
        if open.building.len() >= PIECE_BYTES {
            open.hand_over();
        }
        if open.size >= self.file_bytes {
            self.end_file();
        }
        Some(number)
    }

    fn end_file(&mut self) {
        if let Some(mut open) = self.open.take() {
            let before = open.building.len();
            BlobFooter { blob_count: open.count, expiration_range: (0, 0) }.encode_into(&mut open.building);
            self.written_bytes += (open.building.len() - before) as u64;
            open.size += (open.building.len() - before) as u64;
            open.hand_over();
            self.ended.push(open);
        }
    }

    /// Returns the bytes written so far, over all files.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns true if [`make_room`](Self::make_room) has work to do.
    pub(super) fn needs_room(&self) -> bool {
        !self.ended.is_empty() || self.open.as_ref().is_some_and(|open| open.file.has_waiting())
    }

    /// Passes on ready pieces, and closes ended files.
    pub(super) async fn make_room(&mut self, outputs: &Outputs) -> Result<()> {
        while let Some(ended) = self.ended.pop() {
            let bytes = ended.size;
            self.finished.push(ended.close(outputs).await?);
            self.stats.record(Ticker::BlobDbBlobFileBytesWritten, bytes);
            self.stats.tick(Ticker::BlobDbBlobFileSynced);
        }
        match &mut self.open {
            Some(open) => {
                let outcome = open.file.make_room().await;
                if let (Err(error), Some(creations)) = (&outcome, &outputs.creations) {
                    let counts = (open.count, open.bytes);
                    creations.blob_file_created(&outputs.blob_path(open.number), counts, Some(error));
                }
                outcome
            }
            None => Ok(()),
        }
    }

    /// Ends the last file. All are synced. Returns their total size in bytes too.
    pub(super) async fn finish(mut self, outputs: &Outputs) -> Result<(Vec<BlobFileAddition>, u64)> {
        self.end_file();
        self.make_room(outputs).await?;
        self.finished.sort_by_key(|file| file.number);
        Ok((self.finished, self.written_bytes))
    }
}

impl OpenFile {
    fn new(outputs: &Outputs, compression: CompressionType) -> OpenFile {
        let number = outputs.new_files.new_blob_file();
        let mut building = Vec::with_capacity(HEADER_BYTES);
        let header = BlobHeader {
            column_family: outputs.config.id,
            compression,
            has_ttl: false,
            expiration_range: (0, 0),
        };
        header.encode_into(&mut building);
        let file = WriteBehind::new(
            &outputs.env,
            outputs.blob_path(number),
            outputs.throttle.clone(),
            outputs.writing,
            outputs.checksum(&outputs.blob_path(number)),
            outputs.times(HistogramKind::BlobDbBlobFileSyncMicros, HistogramKind::BlobDbBlobFileWriteMicros),
            outputs.file_charge(),
        );
        if let Some(creations) = &outputs.creations {
            creations.blob_file_started(&outputs.blob_path(number));
        }
        let size = building.len() as u64;
        OpenFile { number, file, building, size, count: 0, bytes: 0 }
    }

    fn hand_over(&mut self) {
        let next = self.file.buffer();
        self.file.push(std::mem::replace(&mut self.building, next));
    }

    async fn close(self, outputs: &Outputs) -> Result<BlobFileAddition> {
        let closed = self.file.close().await;
        if let Some(creations) = &outputs.creations {
            let path = outputs.blob_path(self.number);
            creations.blob_file_created(&path, (self.count, self.bytes), closed.as_ref().err());
        }
        let checksum = closed?;
        outputs.takes_room(|| outputs.blob_path(self.number), self.size)?;
        let (checksum_method, checksum_value) =
            checksum.map(|checksum| (checksum.function.into(), checksum.value.into())).unwrap_or_default();
        Ok(BlobFileAddition {
            number: self.number,
            total_count: self.count,
            total_bytes: self.bytes,
            checksum_method,
            checksum_value,
        })
    }
}
