//! Per-entry checksums in a memtable, which detect bit flips in memory when an entry is read or
//! flushed.
//!
//! In: `memtable_protection_bytes_per_key`; an entry. Out: that number of checksum bytes, which the
//! memtable stores after the entry's value; true if an entry matches them.
//!
//! Invariant: an entry's checksum combines [`pair`] with its sequence number and kind. A protected
//! batch has the `pair` of each operation from the time it was added, and the memtable uses that
//! instead of the bytes it receives; the entry is therefore protected at all times.

use karst_format::filter::hash64;

/// Returns the checksum of a key and a value.
#[inline]
pub fn pair(key: &[u8], value: &[u8]) -> u64 {
    // The multiplication makes a swap of key and value detectable.
    hash64(key).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ hash64(value)
}

/// Number of checksum bytes per entry; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection(u8);

impl Protection {
    /// Supported values of `memtable_protection_bytes_per_key`.
    pub const SUPPORTED: [u32; 5] = [0, 1, 2, 4, 8];

    /// Options are validated elsewhere; an unsupported value becomes the maximum.
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

    /// Returns the checksum of an entry with this trailer, from that of its key and value. The
    /// first [`bytes`](Self::bytes) of it are stored.
    pub(super) fn checksum(self, pair: u64, trailer: u64) -> [u8; 8] {
        // The trailer is hashed so that each of its bits affects all stored bytes.
        (pair ^ hash64(&trailer.to_le_bytes())).to_le_bytes()
    }

    /// Returns true if a stored value, followed by its checksum, belongs to a key with this
    /// trailer.
    pub(super) fn matches(self, user_key: &[u8], trailer: u64, stored: &[u8]) -> bool {
        let Some((value, checksum)) = stored.split_at_checked(stored.len().wrapping_sub(self.bytes())) else {
            return false;
        };
        self.checksum(pair(user_key, value), trailer)[..self.bytes()] == *checksum
    }
}
