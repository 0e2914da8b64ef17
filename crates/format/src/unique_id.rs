//! Unique id of a table file, made of the database, the session and the file number it was written
//! by.
//!
//! In: the three properties that every table since RocksDB 6.24 has. Out: the 128 bits that the
//! MANIFEST keeps for the file, so that a file swapped for another one is detected when it is
//! opened.
//!
//! | half | content |
//! |---|---|
//! | first | the lower 64 bits of the session id |
//! | second | the upper half of XXH3-128 of the database id, seeded with the session id's upper bits, xor the file number |
//!
//! Specified by RocksDB's table/unique_id.cc. Pure; never fails: a session id that is not in the
//! usual form is hashed.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// Number of base-36 digits in the lower part of a session id.
const LOWER_DIGITS: usize = 12;

/// Returns the id of the file that session `db_session_id` of database `db_id` wrote under
/// `file_number`.
#[must_use]
pub fn table_unique_id(db_id: &[u8], db_session_id: &[u8], file_number: u64) -> [u64; 2] {
    let (upper, lower) = decode_session_id(db_session_id).unwrap_or_else(|| {
        let hash = xxh3_128(db_session_id);
        let (upper, lower) = ((hash >> 64) as u64, hash as u64);
        (upper, if lower == 0 { upper | 1 } else { lower })
    });
    let database = (xxh3_128_with_seed(db_id, upper) >> 64) as u64;
    [lower, database ^ file_number]
}

/// Returns upper and lower bits of a session id: 13 to 24 digits in base 36, the last twelve of
/// which hold 62 bits.
fn decode_session_id(id: &[u8]) -> Option<(u64, u64)> {
    if !(LOWER_DIGITS + 1..=24).contains(&id.len()) {
        return None;
    }
    let (a, b) = id.split_at(id.len() - LOWER_DIGITS);
    let (a, b) = (parse_base36(a)?, parse_base36(b)?);
    Some((a >> 2, (b & (u64::MAX >> 2)) | (a << 62)))
}

fn parse_base36(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = char::from(digit).to_digit(36)?;
        Some(value.wrapping_mul(36).wrapping_add(u64::from(digit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_decode_to_all_their_bits() {
        assert_eq!(decode_session_id(b"00000000000000000001"), Some((0, 1)));
        assert_eq!(decode_session_id(b"00000001000000000000"), Some((0, 1 << 62)));
        assert_eq!(decode_session_id(b"00000004000000000000"), Some((1, 0)));
        assert_eq!(decode_session_id(b"abcdefghijklmnopqrst"), decode_session_id(b"ABCDEFGHIJKLMNOPQRST"));
        assert_eq!(decode_session_id(b"short"), None);
        assert_eq!(decode_session_id(b"0000000000000000000!"), None);
    }

    #[test]
    fn every_part_counts() {
        let id = table_unique_id(b"db", b"0123456789ABCDEFGHIJ", 7);
        assert_ne!(id, table_unique_id(b"dc", b"0123456789ABCDEFGHIJ", 7));
        assert_ne!(id, table_unique_id(b"db", b"0123456789ABCDEFGHIK", 7));
        assert_ne!(id, table_unique_id(b"db", b"0123456789ABCDEFGHIJ", 8));
        assert_ne!(table_unique_id(b"", b"", 0)[0], 0);
    }
}
