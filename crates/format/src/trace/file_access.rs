//! Payloads of an I/O trace: one file operation per record.
//!
//! The payload of the first record is the magic number (length-prefixed) and the version of the
//! RocksDB that made the trace (two fixed32). The records behind it are of kind 12; their times are
//! in nanoseconds of a monotonic clock. There is no last record.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | bits for the numbers that follow: bit 0 the size, bit 1 the length, bit 2 the offset, fixed64 |
//! | ... | the operation, such as `Read` (length-prefixed) |
//! | 8 | duration, in nanoseconds, fixed64 |
//! | ... | `OK` or the error, and the name of the file (each length-prefixed) |
//! | 8 each | size of the file, length and offset of the bytes read or written, fixed64, if their bits are set |
//! | 8 | bit 0: the id of a request follows (length-prefixed), fixed64 |
//!
//! Specified by RocksDB's trace_replay/io_tracer.cc.

use super::{BEGIN, MAGIC, Prefix, put_record};
use crate::coding::{Reader, put_fixed32, put_fixed64, put_length_prefixed};
use crate::corruption::Corruption;

/// Kind of a record that describes a file operation.
pub const FILE_ACCESS: u8 = 12;

const SIZE_BIT: u64 = 1;
const LENGTH_BIT: u64 = 1 << 1;
const OFFSET_BIT: u64 = 1 << 2;
const REQUEST_BIT: u64 = 1;

/// An operation on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAccess<'a> {
    /// RocksDB's name of the operation.
    pub operation: &'a [u8],
    /// Duration, in nanoseconds.
    pub nanos: u64,
    /// `OK`, or the error.
    pub status: &'a [u8],
    /// The file's name, without its directory.
    pub file_name: &'a [u8],
    /// Size of the file, in bytes.
    pub size: Option<u64>,
    /// Number of bytes read or written.
    pub length: Option<u64>,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
}

/// Appends the first record of an I/O trace, which names the `rocksdb_version` that made it.
pub fn put_io_header(out: &mut Vec<u8>, micros: u64, (major, minor): (u32, u32)) {
    put_record(out, micros, BEGIN, |payload| {
        put_length_prefixed(payload, MAGIC.as_bytes());
        put_fixed32(payload, major);
        put_fixed32(payload, minor);
    });
}

/// Returns the version of RocksDB that the first record of an I/O trace names.
///
/// # Errors
/// If the record is not the first record of an I/O trace.
pub fn io_header(prefix: Prefix, payload: &[u8]) -> Result<(u32, u32), Corruption> {
    let mut r = Reader::new(payload);
    if prefix.kind != BEGIN || r.length_prefixed()? != MAGIC.as_bytes() {
        return Err(Corruption::new("an I/O trace does not begin as one", 0u64));
    }
    let version = (r.fixed32()?, r.fixed32()?);
    if r.is_empty() { Ok(version) } else { Err(r.corruption("bytes after the header of an I/O trace")) }
}

impl<'a> FileAccess<'a> {
    /// Appends the payload of its record.
    pub fn put_payload(&self, out: &mut Vec<u8>) {
        let numbers = [(SIZE_BIT, self.size), (LENGTH_BIT, self.length), (OFFSET_BIT, self.offset)];
        put_fixed64(out, numbers.iter().filter(|(_, n)| n.is_some()).map(|(bit, _)| bit).sum());
        put_length_prefixed(out, self.operation);
        put_fixed64(out, self.nanos);
        put_length_prefixed(out, self.status);
        put_length_prefixed(out, self.file_name);
        numbers.into_iter().filter_map(|(_, n)| n).for_each(|n| put_fixed64(out, n));
        put_fixed64(out, 0);
    }

    /// Decodes a payload. The id of a request is skipped.
    ///
    /// # Errors
    /// If the payload does not decode.
    pub fn decode(payload: &'a [u8]) -> Result<FileAccess<'a>, Corruption> {
        let mut r = Reader::new(payload);
        let bits = r.fixed64()?;
        if bits & !(SIZE_BIT | LENGTH_BIT | OFFSET_BIT) != 0 {
            return Err(r.corruption(format!("an access to a file with unknown numbers {bits:#x}")));
        }
        let operation = r.length_prefixed()?;
        let nanos = r.fixed64()?;
        let (status, file_name) = (r.length_prefixed()?, r.length_prefixed()?);
        let mut number = |bit| (bits & bit != 0).then(|| r.fixed64()).transpose();
        let (size, length, offset) = (number(SIZE_BIT)?, number(LENGTH_BIT)?, number(OFFSET_BIT)?);
        match r.fixed64()? {
            0 => {}
            REQUEST_BIT => drop(r.length_prefixed()?),
            unknown => return Err(r.corruption(format!("an access with unknown data {unknown:#x}"))),
        }
        match r.is_empty() {
            true => Ok(FileAccess { operation, nanos, status, file_name, size, length, offset }),
            false => Err(r.corruption("bytes after an access to a file")),
        }
    }
}
