//! Log writer: frames records into the bytes to append to the file.
//!
//! In: records, in order. Out: bytes appended to a buffer that the caller writes to the file
//! completely and in order. Invariants: the writer tracks the offset within the current block, so
//! bytes it returned must not be dropped; a block never ends in a partial header.

use super::{
    BLOCK_BYTES, HEADER_BYTES, Predecessor, RECYCLABLE_HEADER_BYTES, TimestampSize, record_type as t,
};
use crate::checksum;
use crate::coding;
#[cfg(not(feature = "zstd"))]
use crate::compression::CompressionType;
use crate::ids::FileNumber;
use std::fmt;
#[cfg(feature = "zstd")]
use zstd::stream::raw::{CParameter, Encoder, Operation, OutBuffer};

#[cfg(feature = "zstd")]
type RecordEncoder = Encoder<'static>;
/// Uninhabited placeholder for builds without ZSTD.
#[cfg(not(feature = "zstd"))]
type RecordEncoder = std::convert::Infallible;

/// Frames records for one log file.
pub struct LogWriter {
    log_number: u64,
    recyclable: bool,
    block_offset: usize,
    encoder: Option<RecordEncoder>,
    compressed: Vec<u8>,
    /// Buffer in which a record is assembled if it does not fit into the current block.
    joined: Vec<u8>,
    timestamp_sizes: Vec<TimestampSize>,
}

impl LogWriter {
    /// Returns a writer at the start of the log `log_number`. With `recyclable` every record
    /// carries the number, so that the file may be overwritten later without being truncated.
    #[must_use]
    pub fn new(log_number: FileNumber, recyclable: bool) -> LogWriter {
        LogWriter {
            log_number: log_number.0,
            recyclable,
            block_offset: 0,
            encoder: None,
            compressed: Vec::new(),
            joined: Vec::new(),
            timestamp_sizes: Vec::new(),
        }
    }

    /// Returns a writer that appends to a legacy log of `file_bytes` bytes whose last record is
    /// whole.
    #[must_use]
    pub fn resume(log_number: FileNumber, file_bytes: u64) -> LogWriter {
        let block_offset = (file_bytes % BLOCK_BYTES as u64) as usize;
        LogWriter { block_offset, ..LogWriter::new(log_number, false) }
    }

    /// Compresses the records that follow with ZSTD and records that in the log. Must be called
    /// before anything else is written.
    ///
    /// # Errors
    /// When ZSTD cannot be set up, or this build is without it; the log then stays uncompressed and
    /// nothing was appended.
    ///
    /// # Panics
    /// When the log has bytes already.
    pub fn compress_with_zstd(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        assert!(self.block_offset == 0 && self.encoder.is_none(), "a log is compressed from its start");
        #[cfg(feature = "zstd")]
        {
            let mut encoder = Encoder::new(zstd::DEFAULT_COMPRESSION_LEVEL)?;
            encoder.set_parameter(CParameter::ChecksumFlag(true))?;
            self.emit(t::SET_COMPRESSION, &7u32.to_le_bytes(), out);
            self.encoder = Some(encoder);
            Ok(())
        }
        #[cfg(not(feature = "zstd"))]
        {
            let _ = out;
            let missing = CompressionType::Zstd.check_built_in();
            missing.map_err(|missing| std::io::Error::new(std::io::ErrorKind::Unsupported, missing))
        }
    }

    /// Appends one record.
    ///
    /// # Errors
    /// When compression fails; nothing was appended then.
    pub fn append(&mut self, record: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        if self.encoder.is_some() && !record.is_empty() {
            self.compress(record)?;
            let compressed = std::mem::take(&mut self.compressed);
            self.append_fragments(&compressed, out);
            self.compressed = compressed;
        } else {
            self.append_fragments(record, out);
        }
        Ok(())
    }

    /// Appends one record of `bytes` bytes. `put` is called once and appends the record to the
    /// buffer it receives.
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    #[inline]
    pub fn append_with(
        &mut self,
        bytes: usize,
        put: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        if self.encoder.is_none() && self.block_offset + self.header_bytes() + bytes <= BLOCK_BYTES {
            let kind = t::FULL + if self.recyclable { t::RECYCLABLE_OFFSET } else { 0 };
            self.emit_with(kind, bytes, put, out);
            return Ok(());
        }
        let mut whole = std::mem::take(&mut self.joined);
        whole.clear();
        put(&mut whole);
        let appended = self.append(&whole, out);
        // A larger buffer is freed, because one large record must not keep its memory for the life
        // of the log.
        if whole.capacity() <= 8 * BLOCK_BYTES {
            self.joined = whole;
        }
        appended
    }

    /// Records the number and extent of the previous log.
    pub fn append_predecessor(&mut self, predecessor: &Predecessor, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(24);
        predecessor.encode_into(&mut payload);
        let kind = if self.recyclable { t::RECYCLABLE_PREDECESSOR } else { t::PREDECESSOR };
        self.emit_whole(kind, &payload, out);
    }

    /// Records the timestamp sizes of column families that this log does not name yet.
    ///
    /// # Panics
    /// When a size is 0 or differs from the one recorded: neither can change while a database is
    /// open.
    pub fn append_timestamp_sizes(&mut self, sizes: &[TimestampSize], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        for size in sizes {
            assert!(size.bytes != 0, "no size is recorded for a column family without timestamps");
            match self.timestamp_sizes.iter().find(|s| s.cf == size.cf) {
                Some(known) => assert_eq!(known, size, "the timestamp size of a column family is fixed"),
                None => {
                    coding::put_fixed32(&mut payload, size.cf.0);
                    coding::put_fixed16(&mut payload, size.bytes);
                    self.timestamp_sizes.push(*size);
                }
            }
        }
        // One record holds them all unless there are over five thousand column families.
        for part in payload.chunks((BLOCK_BYTES - RECYCLABLE_HEADER_BYTES) / 6 * 6) {
            let kind = if self.recyclable { t::RECYCLABLE_TIMESTAMP_SIZES } else { t::TIMESTAMP_SIZES };
            self.emit_whole(kind, part, out);
        }
    }

    fn header_bytes(&self) -> usize {
        if self.recyclable { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES }
    }

    fn append_fragments(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let recyclable = if self.recyclable { t::RECYCLABLE_OFFSET } else { 0 };
        let mut rest = record;
        let mut first = true;
        loop {
            if BLOCK_BYTES - self.block_offset < self.header_bytes() {
                self.fill_block(out);
            }
            let room = BLOCK_BYTES - self.block_offset - self.header_bytes();
            let (fragment, behind) = rest.split_at(rest.len().min(room));
            let kind = match (first, behind.is_empty()) {
                (true, true) => t::FULL,
                (true, false) => t::FIRST,
                (false, true) => t::LAST,
                (false, false) => t::MIDDLE,
            };
            self.emit(kind + recyclable, fragment, out);
            rest = behind;
            first = false;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Writes a record that must not be fragmented; starts a new block if this one has too little
    /// space.
    fn emit_whole(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        if BLOCK_BYTES - self.block_offset < self.header_bytes() + payload.len() {
            self.fill_block(out);
        }
        self.emit(kind, payload, out);
    }

    fn fill_block(&mut self, out: &mut Vec<u8>) {
        out.resize(out.len() + BLOCK_BYTES - self.block_offset, 0);
        self.block_offset = 0;
    }

    fn emit(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        self.emit_with(kind, payload.len(), |out| out.extend_from_slice(payload), out);
    }

    #[inline]
    fn emit_with(&mut self, kind: u8, bytes: usize, put: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(RECYCLABLE_HEADER_BYTES + bytes);
        let [low, high] = u16::try_from(bytes).expect("a fragment fits a block").to_le_bytes();
        out.extend_from_slice(&[0, 0, 0, 0, low, high, kind]);
        if t::is_recyclable(kind) {
            coding::put_fixed32(out, self.log_number as u32);
        }
        let payload = out.len();
        put(out);
        // Checked in release builds too, because a record with a wrong length hides all records
        // behind it.
        assert_eq!(out.len() - payload, bytes, "a record is as long as was said");
        let crc = checksum::mask_crc(crc32c::crc32c(&out[start + 6..]));
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.block_offset += out.len() - start;
        debug_assert!(self.block_offset <= BLOCK_BYTES);
    }

    #[cfg(not(feature = "zstd"))]
    fn compress(&mut self, _: &[u8]) -> std::io::Result<()> {
        match self.encoder {
            Some(encoder) => match encoder {},
            None => Ok(()),
        }
    }

    /// Compresses `record` into `self.compressed` as one frame.
    #[cfg(feature = "zstd")]
    fn compress(&mut self, record: &[u8]) -> std::io::Result<()> {
        self.compressed.clear();
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        encoder.reinit()?;
        encoder.set_pledged_src_size(Some(record.len() as u64))?;
        let mut buffer = [0; 4096];
        let mut input = zstd::stream::raw::InBuffer::around(record);
        while input.pos() < record.len() {
            let mut output = OutBuffer::around(&mut buffer[..]);
            encoder.run(&mut input, &mut output)?;
            self.compressed.extend_from_slice(output.as_slice());
        }
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            let left = encoder.finish(&mut output, true)?;
            self.compressed.extend_from_slice(output.as_slice());
            if left == 0 {
                return Ok(());
            }
        }
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("log_number", &self.log_number)
            .field("recyclable", &self.recyclable)
            .field("block_offset", &self.block_offset)
            .field("compressed", &self.encoder.is_some())
            .finish_non_exhaustive()
    }
}
