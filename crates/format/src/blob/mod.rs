//! Blob files, which hold large values outside the tree, and the references to them.
//!
//! | part of a file | bytes | content |
//! |---|---|---|
//! | header | 4 | magic number 0x00248f37 |
//! | | 4 | version, 1 |
//! | | 4 | column family id |
//! | | 1 | flags: bit 0, values have a time to live |
//! | | 1 | compression type |
//! | | 8, 8 | range of expiration times |
//! | record | 8 | key length |
//! | | 8 | value length, as stored |
//! | | 8 | expiration time, 0 without |
//! | | 4 | CRC32c, masked, of the 24 bytes before |
//! | | 4 | CRC32c, masked, of key and value |
//! | | ... | key, value |
//! | footer | 4 | magic number |
//! | | 8 | number of values |
//! | | 8, 8 | range of expiration times |
//! | | 4 | CRC32c, masked, of the 28 bytes before |
//!
//! A file without a footer is unfinished. Expiration times belong to a former engine (stacked
//! BlobDB); RocksDB's own are 0. Specified by RocksDB's db/blob/blob_log_format.h and blob_index.h.
//!
//! In: slices of exactly the part's length; each record is one slice. Out: the parts, values
//! borrowed, or [`Corruption`].
//! Invariant: the CRC of a value that parses has been checked.

use crate::checksum::mask_crc;
use crate::coding::{self, Reader};
use crate::compression::CompressionType;
use crate::corruption::Corruption;
use crate::ids::{ColumnFamilyId, FileNumber};

/// Length of a file's header, in bytes.
pub const HEADER_BYTES: usize = 30;
/// Length of a file's footer, in bytes.
pub const FOOTER_BYTES: usize = 32;
/// Length of a record before its key, in bytes.
pub const RECORD_HEADER_BYTES: usize = 32;

const MAGIC_NUMBER: u32 = 0x0024_8f37;
const VERSION: u32 = 1;
const HAS_TTL: u8 = 1;

/// First and last expiration time, in seconds since 1970; both 0 without expiration.
pub type ExpirationRange = (u64, u64);

/// Header of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobHeader {
    /// Column family that the values belong to.
    pub column_family: ColumnFamilyId,
    /// Compression of each value.
    pub compression: CompressionType,
    /// True if values have expiration times.
    pub has_ttl: bool,
    /// Range of the expiration times, approximate.
    pub expiration_range: ExpirationRange,
}

impl BlobHeader {
    /// Decodes [`HEADER_BYTES`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<BlobHeader, Corruption> {
        expect_length(bytes, HEADER_BYTES, "blob file header")?;
        let mut r = Reader::new(bytes);
        check_magic(&mut r)?;
        let version = r.fixed32()?;
        if version != VERSION {
            return Err(Corruption::new(format!("blob file version {version}, known is {VERSION}"), 4u64));
        }
        let column_family = ColumnFamilyId(r.fixed32()?);
        let flags = r.u8()?;
        let at = r.position() as u64;
        let compression = CompressionType::from_u8(r.u8()?).map_err(|c| c.rebased(at))?;
        Ok(BlobHeader {
            column_family,
            compression,
            has_ttl: flags & HAS_TTL != 0,
            expiration_range: (r.fixed64()?, r.fixed64()?),
        })
    }

    /// Appends the header.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        coding::put_fixed32(out, MAGIC_NUMBER);
        coding::put_fixed32(out, VERSION);
        coding::put_fixed32(out, self.column_family.0);
        out.push(if self.has_ttl { HAS_TTL } else { 0 });
        out.push(self.compression as u8);
        coding::put_fixed64(out, self.expiration_range.0);
        coding::put_fixed64(out, self.expiration_range.1);
    }
}

/// Footer of a finished blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFooter {
    /// Number of values in the file.
    pub blob_count: u64,
    /// Range of the expiration times, exact.
    pub expiration_range: ExpirationRange,
}

impl BlobFooter {
    /// Decodes [`FOOTER_BYTES`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<BlobFooter, Corruption> {
        expect_length(bytes, FOOTER_BYTES, "blob file footer")?;
        let mut r = Reader::new(bytes);
        check_magic(&mut r)?;
        let footer = BlobFooter { blob_count: r.fixed64()?, expiration_range: (r.fixed64()?, r.fixed64()?) };
        check_crc(&mut r, &bytes[..FOOTER_BYTES - 4], "blob file footer")?;
        Ok(footer)
    }

    /// Appends the footer.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let start = out.len();
        coding::put_fixed32(out, MAGIC_NUMBER);
        coding::put_fixed64(out, self.blob_count);
        coding::put_fixed64(out, self.expiration_range.0);
        coding::put_fixed64(out, self.expiration_range.1);
        let crc = mask_crc(crc32c::crc32c(&out[start..]));
        coding::put_fixed32(out, crc);
    }
}

/// Header of a record, for readers that do not have the whole record yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRecordHeader {
    /// Length of the key in bytes.
    pub key_bytes: u64,
    /// Length of the value as stored, in bytes.
    pub value_bytes: u64,
    /// Expiration time of the value, 0 for never.
    pub expiration: u64,
    blob_crc: u32,
}

impl BlobRecordHeader {
    /// Decodes [`RECORD_HEADER_BYTES`] bytes. The lengths have passed a CRC but are not checked
    /// against any bound.
    pub fn decode(bytes: &[u8]) -> Result<BlobRecordHeader, Corruption> {
        expect_length(bytes, RECORD_HEADER_BYTES, "blob record header")?;
        let mut r = Reader::new(bytes);
        let (key_bytes, value_bytes, expiration) = (r.fixed64()?, r.fixed64()?, r.fixed64()?);
        check_crc(&mut r, &bytes[..24], "blob record header")?;
        Ok(BlobRecordHeader { key_bytes, value_bytes, expiration, blob_crc: r.fixed32()? })
    }

    /// Returns the length of the whole record in bytes; `None` if the sum overflows.
    #[must_use]
    pub fn record_bytes(&self) -> Option<u64> {
        self.key_bytes.checked_add(self.value_bytes)?.checked_add(RECORD_HEADER_BYTES as u64)
    }
}

/// A whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRecord<'a> {
    /// User key of the value.
    pub key: &'a [u8],
    /// The value as stored, compressed if the header of the file says so.
    pub value: &'a [u8],
    /// Expiration time of the value, 0 for never.
    pub expiration: u64,
}

impl<'a> BlobRecord<'a> {
    /// Decodes a record that fills `bytes` exactly, and checks its CRCs.
    pub fn parse(bytes: &'a [u8]) -> Result<BlobRecord<'a>, Corruption> {
        let Some((header, rest)) = bytes.split_at_checked(RECORD_HEADER_BYTES) else {
            return Err(Corruption::new(
                format!("blob record of {} bytes is shorter than its header", bytes.len()),
                bytes.len(),
            ));
        };
        let header = BlobRecordHeader::decode(header)?;
        if header.record_bytes() != Some(bytes.len() as u64) {
            return Err(Corruption::new(
                format!(
                    "blob record of a key of {} and a value of {} bytes, in {} bytes",
                    header.key_bytes,
                    header.value_bytes,
                    bytes.len()
                ),
                0u64,
            ));
        }
        if mask_crc(crc32c::crc32c(rest)) != header.blob_crc {
            return Err(Corruption::new(
                "blob record: checksum mismatch of key and value",
                RECORD_HEADER_BYTES,
            ));
        }
        let (key, value) = rest.split_at(header.key_bytes as usize);
        Ok(BlobRecord { key, value, expiration: header.expiration })
    }

    /// Appends the record. The value starts `RECORD_HEADER_BYTES + key.len()` bytes after the
    /// record's start.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let start = out.len();
        coding::put_fixed64(out, self.key.len() as u64);
        coding::put_fixed64(out, self.value.len() as u64);
        coding::put_fixed64(out, self.expiration);
        let header_crc = mask_crc(crc32c::crc32c(&out[start..]));
        coding::put_fixed32(out, header_crc);
        let blob_crc = crc32c::crc32c_append(crc32c::crc32c(self.key), self.value);
        coding::put_fixed32(out, mask_crc(blob_crc));
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }
}

/// Reference that the tree stores in place of a value in a blob file; or, in the former engine, an
/// inlined value with an expiration time.
///
/// | bytes | content |
/// |---|---|
/// | 1 | 0 inlined with expiration, 1 stored, 2 stored with expiration |
/// | 1-10 | expiration time, varint64: types 0 and 2 |
/// | ... | value: type 0 |
/// | 1-10 | file number, varint64: types 1 and 2, like all that follows |
/// | 1-10 | offset of the value (not of its record) in the file, varint64 |
/// | 1-10 | length of the value as stored, varint64 |
/// | 1 | compression type |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobIndex<'a> {
    /// The value itself. Only the former engine wrote these.
    InlinedTtl {
        /// Expiration time, in seconds since 1970.
        expiration: u64,
        /// The value.
        value: &'a [u8],
    },
    /// A value in a blob file.
    Stored {
        /// Number of the blob file. 0 stands for the file that holds the reference, in tables with
        /// embedded blobs.
        file: FileNumber,
        /// Offset of the value in the file, in bytes.
        offset: u64,
        /// Length of the value as stored, in bytes.
        size: u64,
        /// Compression of the value.
        compression: CompressionType,
    },
    /// A value in a blob file, with expiration. Only the former engine wrote these.
    StoredTtl {
        /// Expiration time, in seconds since 1970.
        expiration: u64,
        /// Number of the blob file.
        file: FileNumber,
        /// Offset of the value in the file, in bytes.
        offset: u64,
        /// Length of the value as stored, in bytes.
        size: u64,
        /// Compression of the value.
        compression: CompressionType,
    },
}

impl<'a> BlobIndex<'a> {
    /// Decodes a reference that fills `bytes` exactly.
    pub fn decode(bytes: &'a [u8]) -> Result<BlobIndex<'a>, Corruption> {
        let mut r = Reader::new(bytes);
        let kind = r.u8()?;
        let expiration = match kind {
            0 | 2 => r.varint64()?,
            1 => 0,
            _ => return Err(Corruption::new(format!("unknown type of blob reference {kind}"), 0u64)),
        };
        if kind == 0 {
            return Ok(BlobIndex::InlinedTtl { expiration, value: r.rest() });
        }
        let (file, offset, size) = (FileNumber(r.varint64()?), r.varint64()?, r.varint64()?);
        let at = r.position() as u64;
        let compression = CompressionType::from_u8(r.u8()?).map_err(|c| c.rebased(at))?;
        if !r.is_empty() {
            return Err(r.corruption("bytes left after a blob reference"));
        }
        Ok(match kind {
            1 => BlobIndex::Stored { file, offset, size, compression },
            _ => BlobIndex::StoredTtl { expiration, file, offset, size, compression },
        })
    }

    /// Appends the reference.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        match *self {
            BlobIndex::InlinedTtl { expiration, value } => {
                out.push(0);
                coding::put_varint64(out, expiration);
                out.extend_from_slice(value);
            }
            BlobIndex::Stored { file, offset, size, compression } => {
                out.push(1);
                put_stored(out, file, offset, size, compression);
            }
            BlobIndex::StoredTtl { expiration, file, offset, size, compression } => {
                out.push(2);
                coding::put_varint64(out, expiration);
                put_stored(out, file, offset, size, compression);
            }
        }
    }
}

fn put_stored(out: &mut Vec<u8>, file: FileNumber, offset: u64, size: u64, compression: CompressionType) {
    coding::put_varint64(out, file.0);
    coding::put_varint64(out, offset);
    coding::put_varint64(out, size);
    out.push(compression as u8);
}

fn expect_length(bytes: &[u8], length: usize, what: &str) -> Result<(), Corruption> {
    if bytes.len() == length {
        return Ok(());
    }
    Err(Corruption::new(
        format!("{what} of {} bytes, expected {length}", bytes.len()),
        bytes.len().min(length),
    ))
}

fn check_magic(r: &mut Reader<'_>) -> Result<(), Corruption> {
    let magic = r.fixed32()?;
    if magic == MAGIC_NUMBER {
        return Ok(());
    }
    Err(Corruption::new(format!("magic number {magic:#010x} is not a blob file's"), 0u64))
}

fn check_crc(r: &mut Reader<'_>, covered: &[u8], what: &str) -> Result<(), Corruption> {
    let at = r.position();
    if r.fixed32()? == mask_crc(crc32c::crc32c(covered)) {
        return Ok(());
    }
    Err(Corruption::new(format!("{what}: checksum mismatch"), at))
}

#[cfg(test)]
mod tests;
