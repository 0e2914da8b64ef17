//! The record log: the framing of write-ahead logs and of the manifest.
//!
//! The file is a sequence of blocks of 32 KiB. A physical record never crosses a block's end; a
//! logical record that does not fit is cut into a first, middle and last one. A rest of a block too
//! short for a header is filled with zeroes.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | CRC32c, masked, of everything after the length |
//! | 2 | length of the payload |
//! | 1 | record type |
//! | 4 | recyclable types only: low half of the log's number, which tells its records from those of an older log in a reused file |
//! | ... | payload |
//!
//! The table of types is in docs/formats/wal.md. Specified by RocksDB's db/log_format.h,
//! db/log_writer.h.
//!
//! In: the bytes of a whole file ([`LogReader`]), or records to write ([`LogWriter`]). Out: records
//! and every damaged place, with offsets; or bytes to append. Used by WAL replay, the MANIFEST
//! reader and the tools.

mod reader;
mod writer;

pub use reader::{Damage, LogEvent, LogReader, Record};
pub use writer::LogWriter;

use crate::coding::{self, Reader};
use crate::corruption::Corruption;
use crate::ids::{ColumnFamilyId, FileNumber};
use crate::key::SeqNo;

/// Length of a block of the log, in bytes.
pub const BLOCK_BYTES: usize = 32 << 10;
/// Length of the header of a legacy record, in bytes.
pub const HEADER_BYTES: usize = 7;
/// Length of the header of a recyclable record, in bytes.
pub const RECYCLABLE_HEADER_BYTES: usize = 11;

/// Record types, by the number that the header stores.
pub(crate) mod record_type {
    pub(crate) const ZERO: u8 = 0;
    pub(crate) const FULL: u8 = 1;
    pub(crate) const FIRST: u8 = 2;
    pub(crate) const MIDDLE: u8 = 3;
    pub(crate) const LAST: u8 = 4;
    /// Offset from each of the four types above to its recyclable form.
    pub(crate) const RECYCLABLE_OFFSET: u8 = 4;
    pub(crate) const RECYCLABLE_FULL: u8 = 5;
    pub(crate) const RECYCLABLE_LAST: u8 = 8;
    pub(crate) const SET_COMPRESSION: u8 = 9;
    pub(crate) const TIMESTAMP_SIZES: u8 = 10;
    pub(crate) const RECYCLABLE_TIMESTAMP_SIZES: u8 = 11;
    pub(crate) const PREDECESSOR: u8 = 130;
    pub(crate) const RECYCLABLE_PREDECESSOR: u8 = 131;
    /// Bit of a record type that lets readers skip the record if they do not know the type.
    pub(crate) const SAFE_TO_IGNORE: u8 = 0x80;

    pub(crate) fn is_recyclable(t: u8) -> bool {
        (RECYCLABLE_FULL..=RECYCLABLE_LAST).contains(&t)
            || t == RECYCLABLE_TIMESTAMP_SIZES
            || t == RECYCLABLE_PREDECESSOR
    }
}

/// Damage that recovery accepts in a log, by RocksDB's number.
///
/// The reader distinguishes damage that a crash leaves at the tail of a log from all other damage;
/// see [`LogEvent`]. On [`LogEvent::Damage`] the caller fails under `TolerateCorruptedTailRecords`
/// and `AbsoluteConsistency`; under `PointInTimeRecovery` it stops replaying, and continues with a
/// later log only if that log's first sequence number is the next one; under
/// `SkipAnyCorruptedRecords` it continues to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum RecoveryMode {
    /// A torn tail is accepted, all other damage is an error.
    TolerateCorruptedTailRecords = 0,
    /// All damage is an error, a torn tail too.
    AbsoluteConsistency = 1,
    /// Reports the same damage as `AbsoluteConsistency`; the caller keeps the records before it.
    #[default]
    PointInTimeRecovery = 2,
    /// Damaged records are skipped and all readable ones are returned.
    SkipAnyCorruptedRecords = 3,
}

impl RecoveryMode {
    const NAMES: [(&'static str, RecoveryMode); 4] = [
        ("kTolerateCorruptedTailRecords", RecoveryMode::TolerateCorruptedTailRecords),
        ("kAbsoluteConsistency", RecoveryMode::AbsoluteConsistency),
        ("kPointInTimeRecovery", RecoveryMode::PointInTimeRecovery),
        ("kSkipAnyCorruptedRecords", RecoveryMode::SkipAnyCorruptedRecords),
    ];

    /// Returns the mode with this name in OPTIONS.
    #[must_use]
    pub fn from_name(name: &str) -> Option<RecoveryMode> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
    }

    /// Returns the mode's name in OPTIONS.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Returns true if a tail torn by a crash is reported as damage.
    pub(crate) fn reports_torn_tail(self) -> bool {
        matches!(self, RecoveryMode::AbsoluteConsistency | RecoveryMode::PointInTimeRecovery)
    }
}

/// The previous log's number and extent, recorded in a log so that a missing or shortened log is
/// detected (`track_and_verify_wals`).
///
/// | bytes | content |
/// |---|---|
/// | 8 | number of the previous log |
/// | 8 | its size in bytes |
/// | 8 | the last sequence number in it, 0 if it holds no record |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Predecessor {
    /// Number of the previous log.
    pub log: FileNumber,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The last sequence number in it, 0 if it holds no record.
    pub last_seq: SeqNo,
}

impl Predecessor {
    /// Reads the payload of a predecessor record; bytes behind it are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Predecessor, Corruption> {
        let mut r = Reader::new(bytes);
        Ok(Predecessor {
            log: FileNumber(r.fixed64()?),
            size_bytes: r.fixed64()?,
            last_seq: SeqNo(r.fixed64()?),
        })
    }

    /// Appends the payload of a predecessor record.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        coding::put_fixed64(out, self.log.0);
        coding::put_fixed64(out, self.size_bytes);
        coding::put_fixed64(out, self.last_seq.0);
    }
}

/// Length of the timestamps at the end of a column family's user keys, for the records that follow
/// in the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimestampSize {
    /// Id of the column family.
    pub cf: ColumnFamilyId,
    /// Length of its timestamps in bytes, never 0.
    pub bytes: u16,
}

#[cfg(test)]
mod tests;
