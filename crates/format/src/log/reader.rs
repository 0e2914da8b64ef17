//! Log reader: turns the bytes of a log file into logical records and reports of damage.
//!
//! In: a whole file as a slice (of a file that is still being written, a prefix of any length).
//! Out: [`LogEvent`]s in file order, then `None` for good.
//!
//! Invariants: every call moves forward or ends, so reading takes time linear in the file; offsets
//! never pass the end of the slice; the reader buffers at most one record, whose size in a
//! compressed log is bounded by [`LogReader::with_max_record_bytes`].
//!
//! Compat: RocksDB drops the rest of a block after a bad length or checksum, since the length may
//! be the damaged part; it takes a record with another log's number for the end; it skips zeroed
//! space silently. In two cases RocksDB's reader loops for ever (a recyclable record in a log that
//! began with a legacy one) or loses a record silently (a payload that does not decompress); this
//! reader reports damage there.

use super::{
    BLOCK_BYTES, HEADER_BYTES, Predecessor, RECYCLABLE_HEADER_BYTES, RecoveryMode, TimestampSize, record_type,
};
use crate::checksum;
use crate::coding::{self, Reader};
use crate::compression::CompressionType;
use crate::corruption::Corruption;
use crate::ids::{ColumnFamilyId, FileNumber};
use std::fmt;
use std::ops::Range;
#[cfg(feature = "zstd")]
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// RocksDB's number for ZSTD in a compression record.
const ZSTD: u32 = 7;
/// Limit of a record's decompressed size in bytes; every batch that RocksDB writes is smaller.
const MAX_RECORD_BYTES: usize = u32::MAX as usize;

/// A logical record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'r> {
    /// Its payload, decompressed and assembled from its fragments.
    pub bytes: &'r [u8],
    /// Offset in the file at which its first physical record begins.
    pub offset: u64,
    /// Offset in the file at which its last physical record ends.
    pub end: u64,
    /// True if zeroed space lies between this record and the previous one; records may have been
    /// lost there.
    pub behind_zeroes: bool,
    /// Timestamp sizes that apply to it. A column family without an entry has no timestamps.
    pub timestamp_sizes: &'r [TimestampSize],
}

/// A part of the file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Kind and file offset of the damage.
    pub corruption: Corruption,
    /// Bytes of payload or file that are dropped because of it.
    pub dropped_bytes: u64,
}

/// An event that the reader returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent<'r> {
    /// A record.
    Record(Record<'r>),
    /// Damage that the recovery mode does not accept. The next call resumes behind it.
    Damage(Damage),
    /// Point-in-time recovery only: the log ends at `offset` because a record of an older log
    /// follows, left in the recycled file. Only the next log's first sequence number can tell if
    /// records are missing there.
    OldRecord {
        /// Offset in the file at which the old record begins.
        offset: u64,
    },
    /// The previous log's number and extent, as recorded in this log.
    Predecessor(Predecessor),
}

/// Reads the records of one log.
pub struct LogReader<'a> {
    data: &'a [u8],
    /// Offset in the file of the first byte of `data`.
    base: u64,
    /// Next byte to read.
    pos: usize,
    /// End of the block that `pos` lies in.
    block_end: usize,
    /// True if the block that ends at `block_end` is shorter than `BLOCK_BYTES`: it is the last
    /// one.
    last_block: bool,
    done: bool,
    log_number: u32,
    mode: RecoveryMode,
    /// True if the log is a MANIFEST, whose last record may lack sectors.
    manifest: bool,
    /// True once a recyclable record was read.
    recycled: bool,
    /// True once a whole record was returned.
    record_seen: bool,
    compression_seen: bool,
    decoder: Option<RecordDecoder>,
    max_record_bytes: usize,
    timestamp_sizes: Vec<TimestampSize>,
    /// Offset of the first fragment of the record being assembled in `partial`.
    partial_start: Option<usize>,
    partial: Vec<u8>,
    /// True if zeroed space was passed since the last record.
    zeroes: bool,
}

/// A physical record that passed its checksum, or the reason why none could be read.
enum Physical {
    Fragment {
        kind: u8,
        offset: usize,
        payload: Range<usize>,
    },
    End,
    /// Fewer bytes than a header at the end of the file.
    TornHeader {
        dropped: usize,
    },
    /// The payload runs past its block.
    BadLength {
        offset: usize,
        dropped: usize,
    },
    BadChecksum {
        offset: usize,
        dropped: usize,
    },
    /// The last record lacks its last sectors, which never reached the device.
    Unfinished {
        dropped: usize,
    },
    /// Zeroed space.
    Unused,
    /// Not a record type of this log.
    Foreign {
        offset: usize,
        dropped: usize,
    },
    /// A record with another log's number.
    Old {
        offset: usize,
    },
}

/// Location of a complete record's payload.
enum Payload {
    InFile(Range<usize>),
    /// In `LogReader::partial`.
    Assembled,
}

/// An event that does not borrow the reader yet.
enum Found {
    Record { payload: Payload, offset: usize },
    Damage(Damage),
    Old(usize),
    Predecessor(Predecessor),
    End,
}

/// Bytes that a device writes atomically.
const SECTOR: usize = 512;

/// Returns true if the record from `start` to `end` is the last one, and was cut by a power failure
/// after the file got its length: from a sector boundary within it to its end the file is zero.
///
/// No other bad checksum of the last record is excused, because an edit that was synced may be
/// damaged later, and skipping it then would lose data that the database had acknowledged.
fn lacks_its_last_sectors(data: &[u8], start: usize, end: usize) -> bool {
    let written = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let missing = written.next_multiple_of(SECTOR);
    start < missing && missing < end
}

impl<'a> LogReader<'a> {
    /// Returns a reader of the log with number `log_number`; `data` is its whole file.
    #[must_use]
    pub fn new(data: &'a [u8], log_number: FileNumber, mode: RecoveryMode) -> LogReader<'a> {
        LogReader {
            data,
            base: 0,
            pos: 0,
            block_end: 0,
            last_block: false,
            done: false,
            // Truncated because the header holds only the low half; RocksDB compares the same half.
            log_number: log_number.0 as u32,
            mode,
            manifest: false,
            recycled: false,
            record_seen: false,
            compression_seen: false,
            decoder: None,
            max_record_bytes: MAX_RECORD_BYTES,
            timestamp_sizes: Vec::new(),
            partial_start: None,
            partial: Vec::new(),
            zeroes: false,
        }
    }

    /// Returns a reader of a MANIFEST. A torn tail is skipped silently, because the edit in it
    /// never took effect.
    #[must_use]
    pub fn manifest(data: &'a [u8]) -> LogReader<'a> {
        LogReader {
            manifest: true,
            ..LogReader::new(data, FileNumber(0), RecoveryMode::TolerateCorruptedTailRecords)
        }
    }

    /// Rejects records that decompress to more than `bytes`; the default is 4 GiB, more than any
    /// batch has.
    #[must_use]
    pub fn with_max_record_bytes(mut self, bytes: usize) -> LogReader<'a> {
        self.max_record_bytes = bytes;
        self
    }

    /// Resumes a log of which a part was read before: `data` begins at file offset `base`, a
    /// multiple of [`BLOCK_BYTES`], and the last record read ended at `end`. `recyclable` is the
    /// value that [`is_recyclable`](Self::is_recyclable) returned then. A compressed log cannot be
    /// resumed: it is read from its beginning.
    #[must_use]
    pub fn resumed(mut self, base: u64, end: u64, recyclable: bool) -> LogReader<'a> {
        debug_assert!(base.is_multiple_of(BLOCK_BYTES as u64) && base <= end);
        let at = usize::try_from(end.saturating_sub(base)).unwrap_or(usize::MAX).min(self.data.len());
        self.base = base;
        self.pos = at;
        self.block_end = at.next_multiple_of(BLOCK_BYTES).min(self.data.len());
        self.last_block = at != self.block_end && !self.block_end.is_multiple_of(BLOCK_BYTES);
        (self.recycled, self.record_seen) = (recyclable, true);
        self
    }

    /// Sets the timestamp sizes that were in effect at the end of the part read before.
    #[must_use]
    pub fn with_timestamp_sizes(mut self, sizes: Vec<TimestampSize>) -> LogReader<'a> {
        self.timestamp_sizes = sizes;
        self
    }

    /// Returns true if the records are compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.decoder.is_some()
    }

    /// Returns the timestamp sizes that apply to the records read from here on. A column family
    /// without an entry has no timestamps.
    #[must_use]
    pub fn timestamp_sizes(&self) -> &[TimestampSize] {
        &self.timestamp_sizes
    }

    /// Returns true if records of this log carry its number, in which case the file may hold
    /// records of an older log.
    #[must_use]
    pub fn is_recyclable(&self) -> bool {
        self.recycled
    }

    /// Returns the file offset up to which the log has been read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Returns the next event, or `None` at the end of the log.
    pub fn next_event(&mut self) -> Option<LogEvent<'_>> {
        Some(match self.advance() {
            Found::Record { payload, offset } => LogEvent::Record(self.record(payload, offset)),
            Found::Damage(damage) => LogEvent::Damage(damage),
            Found::Old(offset) => LogEvent::OldRecord { offset: self.base + offset as u64 },
            Found::Predecessor(p) => LogEvent::Predecessor(p),
            Found::End => return None,
        })
    }

    /// Returns the next record or damage, and skips the other events.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, Damage>> {
        loop {
            match self.advance() {
                Found::Record { payload, offset } => return Some(Ok(self.record(payload, offset))),
                Found::Damage(damage) => return Some(Err(damage)),
                Found::Old(_) | Found::Predecessor(_) => {}
                Found::End => return None,
            }
        }
    }

    fn record(&mut self, payload: Payload, offset: usize) -> Record<'_> {
        let behind_zeroes = std::mem::take(&mut self.zeroes);
        let bytes = match payload {
            Payload::InFile(range) => &self.data[range],
            Payload::Assembled => &self.partial[..],
        };
        let (offset, end) = (self.base + offset as u64, self.base + self.pos as u64);
        Record { bytes, offset, end, behind_zeroes, timestamp_sizes: &self.timestamp_sizes }
    }

    fn advance(&mut self) -> Found {
        if self.done {
            return Found::End;
        }
        loop {
            let step = match self.physical() {
                Physical::Fragment { kind, offset, payload } => self.fragment(kind, offset, payload),
                Physical::Unused => self.give_up_partial("zeroed space"),
                Physical::Foreign { offset, dropped } => {
                    self.damage("recyclable record in a log that began with legacy ones", offset, dropped)
                }
                Physical::BadLength { dropped, .. } if self.last_block => {
                    self.end_of_log("truncated record body", dropped)
                }
                Physical::BadLength { .. } | Physical::BadChecksum { .. } if self.recycled_tail() => {
                    // In a recycled file the bytes behind the last record belong to an older log
                    // and may begin inside one of its records.
                    self.done = true;
                    self.partial_start = None;
                    Some(Found::End)
                }
                Physical::BadLength { offset, dropped } => self.damage("bad record length", offset, dropped),
                Physical::BadChecksum { offset, dropped } => {
                    self.damage("checksum mismatch", offset, dropped)
                }
                Physical::Old { offset } => self.old_record(offset),
                Physical::TornHeader { dropped } => self.end_of_log("truncated header", dropped),
                Physical::Unfinished { dropped } => {
                    self.end_of_log("record without its last sectors", dropped)
                }
                Physical::End => self.end_of_log("", 0),
            };
            if let Some(found) = step {
                return found;
            }
        }
    }

    fn recycled_tail(&self) -> bool {
        self.recycled && self.mode == RecoveryMode::TolerateCorruptedTailRecords
    }

    /// Reports damage at `offset`; a record begun before it is lost too.
    fn damage(&mut self, what: impl Into<String>, offset: usize, dropped: usize) -> Option<Found> {
        let mut what = what.into();
        let mut dropped_bytes = dropped as u64;
        if let Some(start) = self.partial_start.take() {
            what = format!("{what}, in the middle of the record that begins at {}", self.base + start as u64);
            dropped_bytes += self.partial.len() as u64;
        }
        Some(Found::Damage(Damage {
            corruption: Corruption::new(what, self.base + offset as u64),
            dropped_bytes,
        }))
    }

    /// Reports damage if a record was begun and not ended.
    fn give_up_partial(&mut self, why: &str) -> Option<Found> {
        let start = self.partial_start?;
        self.damage(why.to_owned(), start, 0)
    }

    /// Ends the log. A torn last record is reported only in the modes that report torn tails.
    fn end_of_log(&mut self, what: &str, dropped: usize) -> Option<Found> {
        self.done = true;
        let torn = dropped > 0 || self.partial_start.is_some();
        if torn && self.mode.reports_torn_tail() {
            let what = if what.is_empty() { "end of file" } else { what };
            return self.damage(what, self.data.len() - dropped, dropped);
        }
        self.partial_start = None;
        Some(Found::End)
    }

    fn old_record(&mut self, offset: usize) -> Option<Found> {
        if self.mode == RecoveryMode::SkipAnyCorruptedRecords {
            return self.give_up_partial("record of an older log");
        }
        self.done = true;
        match self.partial_start {
            Some(_) if self.mode.reports_torn_tail() => self.damage("record of an older log", offset, 0),
            None if self.mode == RecoveryMode::PointInTimeRecovery => Some(Found::Old(offset)),
            _ => {
                self.partial_start = None;
                Some(Found::End)
            }
        }
    }

    /// Processes one valid physical record; returns `None` if it completes nothing.
    fn fragment(&mut self, kind: u8, offset: usize, payload: Range<usize>) -> Option<Found> {
        use record_type as t;
        let base = match kind {
            t::RECYCLABLE_FULL..=t::RECYCLABLE_LAST => kind - t::RECYCLABLE_OFFSET,
            _ => kind,
        };
        match base {
            t::FULL | t::FIRST => {
                if self.partial_start.is_some() && !self.partial.is_empty() {
                    // The unfinished record is reported first; the next call reads this fragment
                    // again.
                    // Compat: old writers left an empty first fragment at the end of a block;
                    // nothing is lost by dropping it.
                    self.pos = offset;
                    return self.give_up_partial("partial record without end");
                }
                self.partial.clear();
                self.partial_start = None;
                if let Some(decoder) = &mut self.decoder {
                    decoder.restart();
                } else if base == t::FULL {
                    self.record_seen = true;
                    return Some(Found::Record { payload: Payload::InFile(payload), offset });
                }
                self.partial_start = Some(offset);
                self.append(offset, payload, base == t::FULL)
            }
            t::MIDDLE | t::LAST => {
                if self.partial_start.is_none() {
                    return self.damage("missing start of fragmented record", offset, payload.len());
                }
                self.append(offset, payload, base == t::LAST)
            }
            t::SET_COMPRESSION => self.set_compression(offset, &self.data[payload]),
            t::PREDECESSOR | t::RECYCLABLE_PREDECESSOR => {
                match Predecessor::decode(&self.data[payload.clone()]) {
                    Ok(p) if self.partial_start.is_none() => Some(Found::Predecessor(p)),
                    Ok(_) => self.damage("predecessor record", offset, 0),
                    Err(_) => self.damage("undecodable predecessor record", offset, payload.len()),
                }
            }
            t::TIMESTAMP_SIZES | t::RECYCLABLE_TIMESTAMP_SIZES => {
                self.set_timestamp_sizes(offset, &self.data[payload])
            }
            unknown if unknown & t::SAFE_TO_IGNORE != 0 => {
                self.partial_start = None;
                None
            }
            unknown => self.damage(format!("unknown record type {unknown}"), offset, payload.len()),
        }
    }

    /// Adds a fragment to the record being assembled.
    fn append(&mut self, offset: usize, payload: Range<usize>, last: bool) -> Option<Found> {
        let fragment = &self.data[payload];
        match &mut self.decoder {
            None => self.partial.extend_from_slice(fragment),
            Some(decoder) => {
                if let Err(what) = decoder.decode(fragment, &mut self.partial, self.max_record_bytes) {
                    return self.damage(what, offset, fragment.len());
                }
                if last && decoder.frame_open {
                    return self.damage(
                        "record that ends before its compressed frame",
                        offset,
                        fragment.len(),
                    );
                }
            }
        }
        if !last {
            return None;
        }
        self.record_seen = true;
        self.partial_start.take().map(|offset| Found::Record { payload: Payload::Assembled, offset })
    }

    fn set_compression(&mut self, offset: usize, payload: &[u8]) -> Option<Found> {
        let kind = coding::fixed32_at(payload, 0);
        let what = match kind {
            None => "undecodable compression record".to_owned(),
            Some(kind) if kind != 0 && kind != ZSTD => {
                format!("log compressed in way {kind}, which logs cannot be")
            }
            Some(kind) if kind == ZSTD && !CompressionType::Zstd.is_built_in() => {
                let missing = CompressionType::Zstd.check_built_in().err()?;
                let corruption = missing.rebased(offset as u64);
                return Some(Found::Damage(Damage { corruption, dropped_bytes: payload.len() as u64 }));
            }
            Some(kind) => {
                let again = std::mem::replace(&mut self.compression_seen, true);
                self.decoder = if kind == ZSTD { Some(RecordDecoder::new()) } else { None };
                if again {
                    "second compression record".to_owned()
                } else if self.record_seen || self.partial_start.is_some() {
                    "compression record after other records".to_owned()
                } else {
                    return None;
                }
            }
        };
        self.damage(what, offset, payload.len())
    }

    fn set_timestamp_sizes(&mut self, offset: usize, payload: &[u8]) -> Option<Found> {
        let begun = self.partial_start.is_some();
        match decode_timestamp_sizes(payload, &self.timestamp_sizes) {
            Ok(sizes) => {
                self.timestamp_sizes.extend(sizes);
                if begun { self.damage("timestamp size record", offset, 0) } else { None }
            }
            Err(what) => self.damage(what, offset, payload.len()),
        }
    }

    /// Reads one physical record and moves behind it.
    fn physical(&mut self) -> Physical {
        loop {
            let left = self.block_end - self.pos;
            if left < HEADER_BYTES {
                match self.next_block() {
                    Some(end) => return end,
                    None => continue,
                }
            }
            let offset = self.pos;
            let header = &self.data[offset..offset + HEADER_BYTES];
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = header[6];
            let recyclable = record_type::is_recyclable(kind);
            let mut header_bytes = HEADER_BYTES;
            if recyclable {
                header_bytes = RECYCLABLE_HEADER_BYTES;
                if self.record_seen && !self.recycled {
                    self.pos = self.block_end;
                    return Physical::Foreign { offset, dropped: left };
                }
                self.recycled = true;
                if left < RECYCLABLE_HEADER_BYTES {
                    match self.next_block() {
                        Some(end) => return end,
                        None => continue,
                    }
                }
            }
            if header_bytes + length > left {
                self.pos = self.block_end;
                return Physical::BadLength { offset, dropped: left };
            }
            let end = offset + header_bytes + length;
            if recyclable && coding::fixed32_at(self.data, offset + HEADER_BYTES) != Some(self.log_number) {
                self.pos = end;
                return Physical::Old { offset };
            }
            if kind == record_type::ZERO && length == 0 {
                self.pos = self.block_end;
                // Less than a recyclable header is no loss, because a writer leaves such a rest of
                // a block empty.
                self.zeroes |= left >= RECYCLABLE_HEADER_BYTES;
                return Physical::Unused;
            }
            let stored = coding::fixed32_at(self.data, offset);
            let computed = checksum::mask_crc(crc32c::crc32c(&self.data[offset + 6..end]));
            if stored != Some(computed) {
                self.pos = self.block_end;
                if self.manifest && lacks_its_last_sectors(self.data, offset, end) {
                    return Physical::Unfinished { dropped: self.data.len() - offset };
                }
                return Physical::BadChecksum { offset, dropped: left };
            }
            self.pos = end;
            return Physical::Fragment { kind, offset, payload: offset + header_bytes..end };
        }
    }

    /// Moves to the next block; returns how the log ends if there is no further block.
    fn next_block(&mut self) -> Option<Physical> {
        if self.last_block {
            let dropped = self.block_end - self.pos;
            self.pos = self.block_end;
            return Some(if dropped > 0 { Physical::TornHeader { dropped } } else { Physical::End });
        }
        self.pos = self.block_end;
        self.block_end = self.data.len().min(self.pos + BLOCK_BYTES);
        self.last_block = self.block_end - self.pos < BLOCK_BYTES;
        None
    }
}

impl fmt::Debug for LogReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader")
            .field("pos", &self.pos)
            .field("bytes", &self.data.len())
            .field("mode", &self.mode)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

/// Decodes timestamp sizes: six bytes an entry, column family id and size.
fn decode_timestamp_sizes(payload: &[u8], known: &[TimestampSize]) -> Result<Vec<TimestampSize>, String> {
    let mut sizes: Vec<TimestampSize> = Vec::new();
    let mut r = Reader::new(payload);
    while !r.is_empty() {
        let (Ok(cf), Ok(bytes)) = (r.fixed32(), r.fixed16()) else {
            return Err(format!("timestamp size record of {} bytes", payload.len()));
        };
        let cf = ColumnFamilyId(cf);
        if bytes == 0 {
            return Err(format!("timestamp size 0 recorded for column family {cf}"));
        }
        if known.iter().chain(&sizes).any(|s| s.cf == cf) {
            return Err(format!("timestamp size of column family {cf} recorded twice"));
        }
        sizes.push(TimestampSize { cf, bytes });
    }
    Ok(sizes)
}

/// Decompresses the fragments of one record after the other. A record is one ZSTD frame, split at
/// arbitrary positions.
#[cfg(feature = "zstd")]
struct RecordDecoder {
    decoder: Option<Decoder<'static>>,
    /// True while a frame is incomplete.
    frame_open: bool,
    buffer: Vec<u8>,
}

/// Placeholder for builds without ZSTD.
#[cfg(not(feature = "zstd"))]
struct RecordDecoder {
    frame_open: bool,
}

#[cfg(not(feature = "zstd"))]
impl RecordDecoder {
    fn new() -> RecordDecoder {
        RecordDecoder { frame_open: false }
    }

    fn restart(&mut self) {}

    fn decode(&mut self, _: &[u8], _: &mut Vec<u8>, _: usize) -> Result<(), String> {
        CompressionType::Zstd.check_built_in().map_err(|missing| missing.what.into_owned())
    }
}

#[cfg(feature = "zstd")]
impl RecordDecoder {
    fn new() -> RecordDecoder {
        RecordDecoder { decoder: Decoder::new().ok(), frame_open: false, buffer: vec![0; BLOCK_BYTES] }
    }

    /// Discards the incomplete frame.
    fn restart(&mut self) {
        self.frame_open = false;
        let restarted = self.decoder.as_mut().is_some_and(|d| d.reinit().is_ok());
        if !restarted {
            self.decoder = Decoder::new().ok();
        }
    }

    fn decode(&mut self, fragment: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> Result<(), String> {
        if fragment.is_empty() {
            return Ok(());
        }
        let decoder = self.decoder.as_mut().ok_or("ZSTD could not be set up")?;
        let mut input = InBuffer::around(fragment);
        loop {
            let before = input.pos();
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            let wanted = decoder
                .run(&mut input, &mut output)
                .map_err(|e| format!("payload that does not decompress: {e}"))?;
            let produced = output.as_slice();
            // Called after the end of a frame, the decoder asks for the header of a next one, so
            // `wanted` counts only if something was consumed or produced.
            if input.pos() > before || !produced.is_empty() {
                self.frame_open = wanted != 0;
            }
            if produced.len() > max_bytes.saturating_sub(out.len()) {
                return Err(format!("record that decompresses to over {max_bytes} bytes"));
            }
            out.extend_from_slice(produced);
            // A full buffer may mean that the decoder holds more output; a buffer not filled means
            // that it is drained.
            if input.pos() == fragment.len() && produced.len() < BLOCK_BYTES {
                return Ok(());
            }
        }
    }
}
