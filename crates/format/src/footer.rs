//! Table footer: the last bytes of a table, which locate all of its metadata.
//!
//! | bytes | format_version 0 | 1 to 5 | 6 and later |
//! |---|---|---|---|
//! | 1 | (missing) | checksum type | checksum type |
//! | 40 | metaindex handle, index handle, zeros | the same | see below |
//! | 4 | (missing) | format_version | format_version |
//! | 8 | older magic number | magic number | magic number |
//!
//! The 40 bytes of format_version 6 and later:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | 3e 00 7a 00 |
//! | 4 | checksum of the footer with these four bytes zero, plus the context of the footer's offset |
//! | 4 | base of the context checksums ([`crate::checksum::context_modifier`]); not 0 |
//! | 4 | size of the metaindex block, which lies, with its trailer, right in front of the footer |
//! | 16 | reserved, ignored |
//! | 8 | reserved, must be zero |
//!
//! From format_version 6 on the index handle is in the metaindex, under
//! [`crate::metaindex::INDEX`]. Specified by RocksDB's table/format.cc.
//!
//! In: the last bytes of a file. Out: [`Footer`], handles checked against the file's size. Compat:
//! format_versions 0 and 1 of block-based tables are older than RocksDB 4.6; RocksDB itself reads
//! them up to 10.x.

use crate::checksum::{self, ChecksumType};
use crate::coding::{Reader, fixed32_at, fixed64_at, put_fixed32, put_fixed64};
use crate::corruption::Corruption;
use crate::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use std::fmt;

/// The newest format_version of block-based tables that this crate reads.
pub const LATEST_FORMAT_VERSION: u32 = 7;
/// Length of the longest footer, in bytes. Reading this many bytes from the end of the file (or the
/// whole file if smaller) is enough.
pub const MAX_FOOTER_BYTES: usize = 1 + HANDLES_BYTES + 4 + 8;
/// Length of the shortest footer, that of format_version 0, in bytes; no table is smaller.
pub const MIN_FOOTER_BYTES: usize = HANDLES_BYTES + 8;

const HANDLES_BYTES: usize = 2 * BlockHandle::MAX_ENCODED_BYTES;
const MAGIC_BLOCK_BASED: u64 = 0x88e2_41b7_85f4_cff7;
const MAGIC_BLOCK_BASED_OLD: u64 = 0xdb47_7524_8b80_fb57;
const MAGIC_PLAIN: u64 = 0x8242_2296_63bf_9564;
const MAGIC_PLAIN_OLD: u64 = 0x4f34_18eb_7a8f_13b8;
const MAGIC_CUCKOO: u64 = 0x9267_89d0_c5f1_7873;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];

/// Error of decoding a footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FooterError {
    /// A table of a kind, or with a feature, that is known but not supported; the text names it.
    Unsupported(String),
    /// The file is no table, or a damaged one.
    Corrupt(Corruption),
}

impl fmt::Display for FooterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FooterError::Unsupported(what) => f.write_str(what),
            FooterError::Corrupt(c) => c.fmt(f),
        }
    }
}

impl std::error::Error for FooterError {}

impl From<Corruption> for FooterError {
    fn from(c: Corruption) -> Self {
        FooterError::Corrupt(c)
    }
}

/// A decoded footer of a block-based table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The format_version, 0 to [`LATEST_FORMAT_VERSION`].
    pub format_version: u32,
    /// Checksum algorithm of all blocks of the table.
    pub checksum: ChecksumType,
    /// Handle of the metaindex block.
    pub metaindex_handle: BlockHandle,
    /// Handle of the index block (its top level if partitioned); `None` from format_version 6 on,
    /// where the metaindex has it.
    pub index_handle: Option<BlockHandle>,
    /// Base of the context checksums; 0 before format_version 6.
    pub base_context_checksum: u32,
}

impl Footer {
    /// Decodes the footer from `tail`, the last bytes of a file of `file_bytes` bytes:
    /// [`MAX_FOOTER_BYTES`] of them, or the whole file if it is smaller. Offsets in errors count
    /// from the file's start.
    pub fn decode(tail: &[u8], file_bytes: u64) -> Result<Footer, FooterError> {
        let tail_start = file_bytes.saturating_sub(tail.len() as u64);
        Footer::decode_tail(tail, tail_start, file_bytes).map_err(|e| match e {
            FooterError::Corrupt(c) => FooterError::Corrupt(c.rebased(tail_start)),
            unsupported => unsupported,
        })
    }

    fn decode_tail(tail: &[u8], tail_start: u64, file_bytes: u64) -> Result<Footer, FooterError> {
        let (Some(magic_at), Some(end)) =
            (tail.len().checked_sub(8), tail.len().checked_sub(MIN_FOOTER_BYTES))
        else {
            return Err(Corruption::new(
                format!("file of {file_bytes} bytes is too short to be a table"),
                tail.len(),
            )
            .into());
        };
        let magic = fixed64_at(tail, magic_at).unwrap_or(0);
        match magic {
            MAGIC_BLOCK_BASED => {}
            MAGIC_BLOCK_BASED_OLD => return Footer::decode_oldest(&tail[end..], file_bytes),
            MAGIC_PLAIN | MAGIC_PLAIN_OLD => {
                return Err(FooterError::Unsupported("PlainTable files are not supported".into()));
            }
            MAGIC_CUCKOO => {
                return Err(FooterError::Unsupported("CuckooTable files are not supported".into()));
            }
            _ => {
                return Err(Corruption::new(
                    format!("bad table magic number {magic:#018x}, expected {MAGIC_BLOCK_BASED:#018x}"),
                    magic_at,
                )
                .into());
            }
        }
        let Some(start) = tail.len().checked_sub(MAX_FOOTER_BYTES) else {
            return Err(Corruption::new("table is too short for its footer", tail.len()).into());
        };
        let version_at = magic_at - 4;
        let format_version = fixed32_at(tail, version_at).unwrap_or(0);
        if format_version > LATEST_FORMAT_VERSION && format_version < 1 << 16 {
            return Err(FooterError::Unsupported(format!(
                "table has format_version {format_version}; the newest supported is {LATEST_FORMAT_VERSION}"
            )));
        }
        if format_version == 0 || format_version > LATEST_FORMAT_VERSION {
            return Err(Corruption::new(format!("bad format_version {format_version}"), version_at).into());
        }
        let checksum = ChecksumType::from_u8(tail[start])
            .ok_or_else(|| Corruption::new(format!("unknown checksum type {}", tail[start]), start))?;
        let mut footer = Footer {
            format_version,
            checksum,
            metaindex_handle: BlockHandle::NULL,
            index_handle: None,
            base_context_checksum: 0,
        };
        let middle = start + 1;
        if format_version >= 6 {
            footer.decode_extended(&tail[start..], tail_start + start as u64).map_err(|e| match e {
                FooterError::Corrupt(c) => FooterError::Corrupt(c.rebased(start as u64)),
                unsupported => unsupported,
            })?;
        } else {
            footer
                .decode_handles(&tail[middle..middle + HANDLES_BYTES])
                .map_err(|c| c.rebased(middle as u64))?;
        }
        footer.check_handles(file_bytes, middle)
    }

    /// Decodes a footer of format_version 0, which has no checksum type and no version.
    fn decode_oldest(footer_bytes: &[u8], file_bytes: u64) -> Result<Footer, FooterError> {
        let mut footer = Footer {
            format_version: 0,
            checksum: ChecksumType::Crc32c,
            metaindex_handle: BlockHandle::NULL,
            index_handle: None,
            base_context_checksum: 0,
        };
        footer.decode_handles(footer_bytes)?;
        footer.check_handles(file_bytes, 0)
    }

    fn decode_handles(&mut self, bytes: &[u8]) -> Result<(), Corruption> {
        let mut reader = Reader::new(bytes);
        self.metaindex_handle = BlockHandle::decode(&mut reader)?;
        self.index_handle = Some(BlockHandle::decode(&mut reader)?);
        Ok(())
    }

    /// Decodes the middle of a footer of format_version 6 or later. `bytes` is the whole footer, at
    /// file offset `offset`.
    fn decode_extended(&mut self, bytes: &[u8], offset: u64) -> Result<(), FooterError> {
        let mut reader = Reader::new(bytes);
        reader.u8()?;
        if reader.bytes(4)? != EXTENDED_MAGIC {
            return Err(Corruption::new("bad second magic number in the footer", 1u64).into());
        }
        let checksum_at = reader.position();
        let stored = reader.fixed32()?;
        self.base_context_checksum = reader.fixed32()?;
        let metaindex_size = reader.fixed32()?;
        reader.bytes(16)?;
        let reserved = reader.fixed64()?;
        if self.base_context_checksum == 0 {
            return Err(Corruption::new("footer has no base for context checksums", checksum_at + 4).into());
        }
        // Compat: RocksDB adds the context even to the checksum of type none, which is 0.
        let computed = checksum_of(self.checksum, bytes, checksum_at)
            .wrapping_add(checksum::context_modifier(self.base_context_checksum, offset));
        if stored != computed {
            return Err(Corruption::new(
                format!("footer checksum mismatch: stored {stored:#010x}, computed {computed:#010x}"),
                checksum_at,
            )
            .into());
        }
        if reserved != 0 {
            return Err(FooterError::Unsupported("table uses a feature newer than RocksDB 11.8".into()));
        }
        let size = u64::from(metaindex_size);
        let Some(metaindex_offset) = offset.checked_sub(size + BLOCK_TRAILER_BYTES as u64) else {
            return Err(
                Corruption::new(format!("metaindex of {size} bytes does not fit the file"), 13u64).into()
            );
        };
        self.metaindex_handle = BlockHandle { offset: metaindex_offset, size };
        Ok(())
    }

    fn check_handles(self, file_bytes: u64, at: usize) -> Result<Footer, FooterError> {
        for (name, handle) in [("metaindex", Some(self.metaindex_handle)), ("index", self.index_handle)] {
            if let Some(handle) = handle.filter(|handle| handle.range(file_bytes).is_none()) {
                return Err(Corruption::new(
                    format!(
                        "{name} block at {} of {} bytes lies outside the file of {file_bytes}",
                        handle.offset, handle.size
                    ),
                    at,
                )
                .into());
            }
        }
        Ok(self)
    }

    /// Returns the value added to the checksum of the block at `offset`.
    #[inline]
    #[must_use]
    pub fn context(&self, offset: u64) -> u32 {
        checksum::context_modifier(self.base_context_checksum, offset)
    }

    /// Appends the footer, which will be at file offset `offset`.
    ///
    /// # Panics
    /// If the fields do not fit the format_version: it is 0 or too new; an index handle is missing
    /// before 6 or given from 6 on; from 6 on, the metaindex does not end directly before the
    /// footer or the base is 0.
    pub fn encode_into(&self, out: &mut Vec<u8>, offset: u64) {
        assert!((1..=LATEST_FORMAT_VERSION).contains(&self.format_version), "format_version can be written");
        let start = out.len();
        out.push(self.checksum as u8);
        if self.format_version >= 6 {
            assert!(
                self.index_handle.is_none(),
                "the metaindex holds the index handle from format_version 6 on"
            );
            assert_ne!(self.base_context_checksum, 0, "context checksums have a base");
            let metaindex = self.metaindex_handle;
            assert_eq!(
                metaindex.offset + metaindex.size + BLOCK_TRAILER_BYTES as u64,
                offset,
                "the metaindex lies in front of the footer"
            );
            out.extend_from_slice(&EXTENDED_MAGIC);
            put_fixed32(out, 0);
            put_fixed32(out, self.base_context_checksum);
            put_fixed32(out, u32::try_from(metaindex.size).expect("the metaindex is smaller than 4 GiB"));
        } else {
            self.metaindex_handle.encode_into(out);
            self.index_handle
                .expect("the footer holds the index handle before format_version 6")
                .encode_into(out);
        }
        out.resize(start + 1 + HANDLES_BYTES, 0);
        put_fixed32(out, self.format_version);
        put_fixed64(out, MAGIC_BLOCK_BASED);
        if self.format_version >= 6 {
            let checksum_at = 1 + EXTENDED_MAGIC.len();
            let value =
                checksum_of(self.checksum, &out[start..], checksum_at).wrapping_add(self.context(offset));
            out[start + checksum_at..start + checksum_at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Returns the checksum of a footer with the four bytes at `checksum_at` taken as zero.
fn checksum_of(checksum: ChecksumType, footer: &[u8], checksum_at: usize) -> u32 {
    let mut copy = [0; MAX_FOOTER_BYTES];
    copy.copy_from_slice(&footer[..MAX_FOOTER_BYTES]);
    copy[checksum_at..checksum_at + 4].fill(0);
    checksum::compute(checksum, &copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file_with(footer: &Footer, body: u64) -> (Vec<u8>, u64) {
        let mut out = Vec::new();
        footer.encode_into(&mut out, body);
        assert_eq!(out.len(), MAX_FOOTER_BYTES);
        let total = body + out.len() as u64;
        (out, total)
    }

    fn footer() -> impl Strategy<Value = (Footer, u64)> {
        (1u32..=7, 0u8..=4, 1u32.., 0u64..1000, 0u64..1000, 0u64..1000).prop_map(
            |(format_version, checksum, base, index_size, metaindex_size, gap)| {
                let index = BlockHandle { offset: gap, size: index_size };
                let metaindex = BlockHandle { offset: gap + index_size + 5, size: metaindex_size };
                let new = format_version >= 6;
                let footer = Footer {
                    format_version,
                    checksum: ChecksumType::from_u8(checksum).unwrap(),
                    metaindex_handle: metaindex,
                    index_handle: (!new).then_some(index),
                    base_context_checksum: if new { base } else { 0 },
                };
                (footer, metaindex.offset + metaindex.size + 5)
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip((footer, body) in footer()) {
            let (bytes, total) = file_with(&footer, body);
            prop_assert_eq!(Footer::decode(&bytes, total).unwrap(), footer);
        }

        #[test]
        fn flips_never_panic_and_new_footers_catch_them((footer, body) in footer(), bit in 0..MAX_FOOTER_BYTES * 8, cut in 0usize..60) {
            let (mut bytes, total) = file_with(&footer, body);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = Footer::decode(&bytes, total);
            // A flip in the checksum type may select none, which covers nothing; one in the
            // format_version may select an old one, which has no footer checksum.
            let unprotected = decoded.as_ref().is_ok_and(|footer| footer.format_version < 6);
            if footer.format_version >= 6 && footer.checksum != ChecksumType::None && bit >= 8 && !unprotected {
                prop_assert!(decoded.is_err());
            }
            let from = cut.min(bytes.len());
            let _ = Footer::decode(&bytes[from..], total);
            let _ = Footer::decode(&bytes[from..], (bytes.len() - from) as u64);
        }
    }

    #[test]
    fn format_version_0() {
        let mut bytes = vec![0; 100];
        BlockHandle { offset: 40, size: 20 }.encode_into(&mut bytes);
        BlockHandle { offset: 0, size: 30 }.encode_into(&mut bytes);
        bytes.resize(140, 0);
        put_fixed64(&mut bytes, MAGIC_BLOCK_BASED_OLD);
        let footer = Footer::decode(&bytes[bytes.len() - MAX_FOOTER_BYTES..], bytes.len() as u64).unwrap();
        assert_eq!((footer.format_version, footer.checksum), (0, ChecksumType::Crc32c));
        assert_eq!(footer.metaindex_handle, BlockHandle { offset: 40, size: 20 });
        assert_eq!(footer.index_handle, Some(BlockHandle { offset: 0, size: 30 }));
    }

    #[test]
    fn other_tables_are_refused_by_name() {
        for (magic, name) in
            [(MAGIC_PLAIN, "PlainTable"), (MAGIC_PLAIN_OLD, "PlainTable"), (MAGIC_CUCKOO, "CuckooTable")]
        {
            let mut bytes = vec![0; 60];
            put_fixed64(&mut bytes, magic);
            let error = Footer::decode(&bytes, bytes.len() as u64).unwrap_err();
            assert!(matches!(&error, FooterError::Unsupported(what) if what.contains(name)));
        }
        let mut bytes = vec![0; 60];
        put_fixed64(&mut bytes, 1);
        let error = Footer::decode(&bytes, 1060).unwrap_err();
        assert!(matches!(&error, FooterError::Corrupt(c) if c.offset == 1052 && c.what.contains("magic")));
        let mut bytes = vec![0; 60];
        put_fixed32(&mut bytes, 8);
        put_fixed64(&mut bytes, MAGIC_BLOCK_BASED);
        let error = Footer::decode(&bytes, bytes.len() as u64).unwrap_err();
        assert!(matches!(&error, FooterError::Unsupported(what) if what.contains("format_version 8")));
    }
}
