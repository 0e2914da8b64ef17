//! Block handles: offset and size of a block in its file.
//!
//! | bytes | content |
//! |---|---|
//! | 1-10 | offset, varint64 |
//! | 1-10 | size, varint64, without the 5-byte block trailer |
//!
//! Specified by RocksDB's table/format.h. In: a reader. Out: a handle, not yet checked against any
//! file size; [`BlockHandle::range`] checks it.

use crate::coding::{self, Reader};
use crate::corruption::Corruption;
use std::ops::Range;

/// Bytes behind every block of a block-based table: compression type, then checksum.
pub const BLOCK_TRAILER_BYTES: usize = 5;

/// Offset and size of a block in its file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct BlockHandle {
    /// First byte of the block.
    pub offset: u64,
    /// Length without the trailer.
    pub size: u64,
}

impl BlockHandle {
    /// Length of the longest encoding, in bytes.
    pub const MAX_ENCODED_BYTES: usize = 2 * coding::MAX_VARINT64_BYTES;
    /// The null handle.
    pub const NULL: BlockHandle = BlockHandle { offset: 0, size: 0 };

    /// Returns true for the null handle.
    #[must_use]
    pub fn is_null(&self) -> bool {
        *self == BlockHandle::NULL
    }

    /// Returns true if the block of `next` begins right behind this block's trailer.
    #[must_use]
    pub fn is_followed_by(&self, next: BlockHandle) -> bool {
        self.offset.checked_add(self.size).and_then(|end| end.checked_add(BLOCK_TRAILER_BYTES as u64))
            == Some(next.offset)
    }

    /// Reads one handle.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<BlockHandle, Corruption> {
        Ok(BlockHandle { offset: reader.varint64()?, size: reader.varint64()? })
    }

    /// Reads a handle that must fill `bytes` exactly.
    pub fn decode_exact(bytes: &[u8]) -> Result<BlockHandle, Corruption> {
        let mut reader = Reader::new(bytes);
        let handle = BlockHandle::decode(&mut reader)?;
        if reader.is_empty() { Ok(handle) } else { Err(reader.corruption("bytes left after a block handle")) }
    }

    /// Appends the encoded handle.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        coding::put_varint64(out, self.offset);
        coding::put_varint64(out, self.size);
    }

    /// Returns the byte range of block and trailer in a file of `file_bytes` bytes; `None` if the
    /// range is not inside the file.
    #[must_use]
    pub fn range(&self, file_bytes: u64) -> Option<Range<u64>> {
        let end = self.offset.checked_add(self.size)?.checked_add(BLOCK_TRAILER_BYTES as u64)?;
        (end <= file_bytes).then_some(self.offset..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(offset: u64, size: u64) {
            let handle = BlockHandle { offset, size };
            let mut out = Vec::new();
            handle.encode_into(&mut out);
            prop_assert_eq!(BlockHandle::decode_exact(&out).unwrap(), handle);
            out.push(0);
            prop_assert!(BlockHandle::decode_exact(&out).is_err());
            if let Some(r) = handle.range(1 << 40) {
                prop_assert!(r.end <= 1 << 40 && r.end - r.start == size + 5);
            }
        }
    }
}
