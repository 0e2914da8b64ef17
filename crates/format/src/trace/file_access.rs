//! What the records of an I/O trace say: operations on files.
//!
//! The first record's payload is the magic number (length-prefixed) and the version of the RocksDB
//! that made it (two fixed32). Those behind it are of kind 12, and their times are in nanoseconds
//! of a clock that never goes back. There is no last record.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | which numbers follow below: bit 0 the size, bit 1 the length, bit 2 the offset, fixed64 |
//! | ... | the operation, such as `Read` (length-prefixed) |
//! | 8 | how long it took, in nanoseconds, fixed64 |
//! | ... | `OK` or what failed, and the name of the file (each length-prefixed) |
//! | 8 each | size of the file, length and offset of what was read or written, fixed64, if there |
//! | 8 | bit 0: the id of a request follows (length-prefixed), fixed64 |
//!
//! Specified by RocksDB's trace_replay/io_tracer.cc.

use super::{BEGIN, MAGIC, Prefix, put_record};
use crate::coding::{Reader, put_fixed32, put_fixed64, put_length_prefixed};
use crate::corruption::Corruption;

/// The kind of a record that says what was done to a file.
pub const FILE_ACCESS: u8 = 12;

const SIZE_BIT: u64 = 1;
const LENGTH_BIT: u64 = 1 << 1;
const OFFSET_BIT: u64 = 1 << 2;
const REQUEST_BIT: u64 = 1;

/// What was done to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAccess<'a> {
    /// What it was, by RocksDB's name.
    pub operation: &'a [u8],
    /// How long it took, in nanoseconds.
    pub nanos: u64,
    /// `OK`, or what failed.
    pub status: &'a [u8],
    /// The file's name, without its directory.
    pub file_name: &'a [u8],
    /// Its size, in bytes.
    pub size: Option<u64>,
    /// How many bytes were read or written.
    pub length: Option<u64>,
    /// Where in the file.
    pub offset: Option<u64>,
}

/// Appends the first record of an I/O trace, which says that a RocksDB of `rocksdb_version` made
/// it.
pub fn put_io_header(out: &mut Vec<u8>, micros: u64, (major, minor): (u32, u32)) {
    put_record(out, micros, BEGIN, |payload| {
        put_length_prefixed(payload, MAGIC.as_bytes());
        put_fixed32(payload, major);
        put_fixed32(payload, minor);
    });
}

/// The version of RocksDB that the first record of an I/O trace names.
///
/// # Errors
/// It is no first record of an I/O trace.
pub fn io_header(prefix: Prefix, payload: &[u8]) -> Result<(u32, u32), Corruption> {
    let mut r = Reader::new(payload);
    if prefix.kind != BEGIN || r.length_prefixed()? != MAGIC.as_bytes() {
        return Err(Corruption::new("an I/O trace does not begin as one", 0u64));
    }
    let version = (r.fixed32()?, r.fixed32()?);
    if r.is_empty() { Ok(version) } else { Err(r.corruption("bytes behind the header of an I/O trace")) }
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

    /// What a payload says. The id of a request is passed over.
    ///
    /// # Errors
    /// It does not decode.
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
            false => Err(r.corruption("bytes behind an access to a file")),
        }
    }
}
