//! Checksums that stay with the entries of a memtable, so that a bit that flips in memory is found
//! when the entry is read or flushed.
//!
//! In: `memtable_protection_bytes_per_key`; an entry. Out: so many bytes, which the memtable keeps
//! behind the entry's value; whether an entry matches them.
//!
//! Invariant: the checksum of an entry is made of [`pair`] and of sequence number and kind. A
//! protected batch has `pair` of each operation from when the operation was added to it, and the
//! memtable goes on from that and not from the bytes that it is given; so there is no moment at
//! which nothing protects them.

use karst_format::filter::hash64;

/// The checksum of a key and a value.
#[inline]
pub fn pair(key: &[u8], value: &[u8]) -> u64 {
    // Why the multiplication: a swap of key and value must show.
    hash64(key).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ hash64(value)
}

/// How many bytes of checksum each entry has; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection(u8);

impl Protection {
    /// The values of `memtable_protection_bytes_per_key` that there are.
    pub const SUPPORTED: [u32; 5] = [0, 1, 2, 4, 8];

    /// Checked where options are; what is not supported is taken for the most.
    pub(super) fn of(bytes_per_key: u32) -> Self {
        Self(if Self::SUPPORTED.contains(&bytes_per_key) { bytes_per_key as u8 } else { 8 })
    }

    #[inline]
    pub(super) fn is_on(self) -> bool {
        self.0 != 0
    }

    #[inline]
    pub(super) fn bytes(self) -> usize {
        usize::from(self.0)
    }

    /// The checksum of an entry with this trailer, from that of its key and value. The first
    /// [`bytes`](Self::bytes) of it are kept.
    pub(super) fn checksum(self, pair: u64, trailer: u64) -> [u8; 8] {
        // Why hashed: whichever bytes are kept, each bit of the number and the kind must have its
        // part in them.
        (pair ^ hash64(&trailer.to_le_bytes())).to_le_bytes()
    }

    /// Whether a stored value, its checksum behind it, belongs to a key with this trailer.
    pub(super) fn matches(self, user_key: &[u8], trailer: u64, stored: &[u8]) -> bool {
        let Some((value, checksum)) = stored.split_at_checked(stored.len().wrapping_sub(self.bytes())) else {
            return false;
        };
        self.checksum(pair(user_key, value), trailer)[..self.bytes()] == *checksum
    }
}
