//! Traces: files of records of the queries that a database received, with their times.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | time, in microseconds since 1970, fixed64 |
//! | 1 | kind of the record |
//! | 4 | length of the payload n, fixed32 |
//! | n | payload |
//!
//! The first record is of kind [`BEGIN`]; its payload is the text that [`put_header`] writes. The
//! last one is of kind [`END`] and has no payload; it is missing if the trace was not ended. There
//! are no checksums. Specified by RocksDB's trace_replay/trace_replay.h. The records between them
//! hold [`Query`]s. An I/O trace has another first record, no last one, and [`FileAccess`]es.
//!
//! In: records and texts. Out: bytes; and back, borrowed, or [`Corruption`].
//! Invariant: a payload that decodes has no bytes left over, and memory is bounded by its length.

mod file_access;
mod query;
#[cfg(test)]
mod tests;

use crate::coding::{put_fixed32, put_fixed64};
use crate::corruption::Corruption;

pub use file_access::{FILE_ACCESS, FileAccess, io_header, put_io_header};
pub use query::Query;

/// Length of a record's prefix, in bytes.
pub const PREFIX_BYTES: usize = 13;

/// Kind of the first record of a trace.
pub const BEGIN: u8 = 1;
/// Kind of the last record of a trace.
pub const END: u8 = 2;

/// Start of the first record's text.
const MAGIC: &str = "feedcafedeadbeef";
const VERSION_LABEL: &str = "Trace Version: ";

/// Version of the traces written: 0.2.
const VERSION: Version = Version(2);

/// Version of a trace, which determines the layout of its payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// Returns true if each payload begins with a bitmap of its fields, which version 0.2
    /// introduced.
    fn has_maps(self) -> bool {
        self >= VERSION
    }
}

/// Prefix of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Time, in microseconds since 1970.
    pub micros: u64,
    /// The kind of the record.
    pub kind: u8,
    /// Length of the payload, in bytes.
    pub payload_bytes: u32,
}

impl Prefix {
    /// Decodes a prefix.
    pub fn decode(bytes: [u8; PREFIX_BYTES]) -> Prefix {
        let [t0, t1, t2, t3, t4, t5, t6, t7, kind, n0, n1, n2, n3] = bytes;
        Prefix {
            micros: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            kind,
            payload_bytes: u32::from_le_bytes([n0, n1, n2, n3]),
        }
    }
}

/// Splits one whole record into its prefix and its payload.
///
/// # Errors
/// If the record's length is not the one in its prefix.
pub fn split(record: &[u8]) -> Result<(Prefix, &[u8]), Corruption> {
    let Some((prefix, payload)) = record.split_first_chunk() else {
        return Err(Corruption::new("a record of a trace is cut off in its prefix", record.len()));
    };
    let prefix = Prefix::decode(*prefix);
    if payload.len() as u64 != u64::from(prefix.payload_bytes) {
        let text = format!("a payload of {} bytes, where {} are said", payload.len(), prefix.payload_bytes);
        return Err(Corruption::new(text, PREFIX_BYTES));
    }
    Ok((prefix, payload))
}

/// Appends a record whose payload `put` appends. Returns false, and appends nothing, if the payload
/// is longer than 4 GiB - 1, the format's limit.
pub fn put_record(out: &mut Vec<u8>, micros: u64, kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = out.len();
    put_fixed64(out, micros);
    out.push(kind);
    put_fixed32(out, 0);
    put(out);
    let Ok(payload_bytes) = u32::try_from(out.len() - start - PREFIX_BYTES) else {
        out.truncate(start);
        return false;
    };
    out[start + PREFIX_BYTES - 4..start + PREFIX_BYTES].copy_from_slice(&payload_bytes.to_le_bytes());
    true
}

/// Appends the first record of a trace, which names the `rocksdb_version` that made it.
pub fn put_header(out: &mut Vec<u8>, micros: u64, (major, minor): (u32, u32)) {
    let text = format!(
        "{MAGIC}\t{VERSION_LABEL}0.{}\tRocksDB Version: {major}.{minor}\tFormat: Timestamp OpType Payload\n",
        VERSION.0
    );
    put_record(out, micros, BEGIN, |payload| payload.extend_from_slice(text.as_bytes()));
}

/// Returns the version that the first record of a trace names.
///
/// # Errors
/// If the record is not the first record of a trace.
pub fn version(prefix: Prefix, payload: &[u8]) -> Result<Version, Corruption> {
    if prefix.kind != BEGIN {
        let text = format!("a trace begins with a record of kind {BEGIN}, not {}", prefix.kind);
        return Err(Corruption::new(text, 8u64));
    }
    let bad = |what| Corruption::new(what, PREFIX_BYTES);
    let text = std::str::from_utf8(payload).map_err(|_| bad("the header of a trace is no text"))?;
    let mut parts = text.split('\t');
    if parts.next() != Some(MAGIC) {
        return Err(bad("the header of a trace lacks its magic number"));
    }
    let version = parts.next().and_then(|part| part.strip_prefix(VERSION_LABEL));
    let (major, minor) =
        version.and_then(|text| text.split_once('.')).ok_or_else(|| bad("a trace without a version"))?;
    match (major.parse::<u16>(), minor.parse::<u16>()) {
        (Ok(major), Ok(minor)) => Ok(Version(u32::from(major) * 10 + u32::from(minor))),
        _ => Err(bad("the version of a trace is no number")),
    }
}
