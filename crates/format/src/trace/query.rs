//! Payloads of a query trace: writes and reads.
//!
//! From version 0.2 on a payload begins with a fixed64 bitmap of its fields, which follow in
//! ascending order of their bits.
//!
//! | kind | bit: field |
//! |---|---|
//! | 3 write | 1: write batch (length-prefixed), with its header |
//! | 4 get | 2: column family (fixed32); 3: key (length-prefixed) |
//! | 5 seek, 6 seek for prev | 4: column family (fixed32); 5: key; 6: lower bound; 7: upper bound (length-prefixed; each bound is optional) |
//! | 13 multi get | 8: number of keys n (fixed32); 9: n column families (fixed32 each, length-prefixed as a whole); 10: n keys (length-prefixed each and as a whole) |
//!
//! In version 0.1 the payload of a write is the batch, that of a get or seek a column family and a
//! key; there are no bounds and no multi get.

use super::Version;
use crate::coding::{Reader, put_fixed32, put_fixed64, put_length_prefixed};
use crate::corruption::Corruption;
use crate::ids::ColumnFamilyId;

const WRITE: u8 = 3;
const GET: u8 = 4;
const SEEK: u8 = 5;
const SEEK_FOR_PREV: u8 = 6;
const MULTI_GET: u8 = 13;

const BATCH_BIT: u32 = 1;
const GET_FAMILY_BIT: u32 = 2;
const GET_KEY_BIT: u32 = 3;
const SEEK_FAMILY_BIT: u32 = 4;
const SEEK_KEY_BIT: u32 = 5;
const LOWER_BIT: u32 = 6;
const UPPER_BIT: u32 = 7;
const COUNT_BIT: u32 = 8;
const FAMILIES_BIT: u32 = 9;
const KEYS_BIT: u32 = 10;

/// A request to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query<'a> {
    /// A write batch, encoded as in [`crate::write_batch`].
    Write(&'a [u8]),
    /// A lookup of a key.
    Get {
        /// Column family of the key.
        family: ColumnFamilyId,
        /// Key looked up.
        key: &'a [u8],
    },
    /// A seek of an iterator to the first key not smaller than `key`.
    Seek {
        /// Column family of the iterator.
        family: ColumnFamilyId,
        /// Target of the seek.
        key: &'a [u8],
        /// The iterator's inclusive lower bound; empty without one.
        lower: &'a [u8],
        /// The iterator's exclusive upper bound; empty without one.
        upper: &'a [u8],
    },
    /// A seek of an iterator to the last key not greater than `key`.
    SeekForPrev {
        /// Column family of the iterator.
        family: ColumnFamilyId,
        /// Target of the seek.
        key: &'a [u8],
        /// The iterator's inclusive lower bound; empty without one.
        lower: &'a [u8],
        /// The iterator's exclusive upper bound; empty without one.
        upper: &'a [u8],
    },
    /// A lookup of several keys, each with its column family.
    MultiGet(Vec<(ColumnFamilyId, &'a [u8])>),
}

impl<'a> Query<'a> {
    /// Returns the kind of its record.
    pub fn kind(&self) -> u8 {
        match self {
            Query::Write(_) => WRITE,
            Query::Get { .. } => GET,
            Query::Seek { .. } => SEEK,
            Query::SeekForPrev { .. } => SEEK_FOR_PREV,
            Query::MultiGet(_) => MULTI_GET,
        }
    }

    /// Appends the payload of its record.
    pub fn put_payload(&self, out: &mut Vec<u8>) {
        match self {
            Query::Write(batch) => {
                put_map(out, &[BATCH_BIT]);
                put_length_prefixed(out, batch);
            }
            Query::Get { family, key } => {
                put_map(out, &[GET_FAMILY_BIT, GET_KEY_BIT]);
                put_fixed32(out, family.0);
                put_length_prefixed(out, key);
            }
            Query::Seek { family, key, lower, upper } | Query::SeekForPrev { family, key, lower, upper } => {
                let bounds = [(LOWER_BIT, lower), (UPPER_BIT, upper)];
                let bounds = bounds.into_iter().filter(|(_, bound)| !bound.is_empty());
                let mut bits = vec![SEEK_FAMILY_BIT, SEEK_KEY_BIT];
                bits.extend(bounds.clone().map(|(bit, _)| bit));
                put_map(out, &bits);
                put_fixed32(out, family.0);
                put_length_prefixed(out, key);
                bounds.for_each(|(_, bound)| put_length_prefixed(out, bound));
            }
            Query::MultiGet(keys) => {
                put_map(out, &[COUNT_BIT, FAMILIES_BIT, KEYS_BIT]);
                put_fixed32(out, keys.len() as u32);
                let (mut families, mut joined) = (Vec::new(), Vec::new());
                for (family, key) in keys {
                    put_fixed32(&mut families, family.0);
                    put_length_prefixed(&mut joined, key);
                }
                put_length_prefixed(out, &families);
                put_length_prefixed(out, &joined);
            }
        }
    }

    /// Decodes the payload of a record in a trace of this version; `None` for kinds of records that
    /// are no queries.
    ///
    /// # Errors
    /// If the payload does not decode.
    pub fn decode(version: Version, kind: u8, payload: &'a [u8]) -> Result<Option<Query<'a>>, Corruption> {
        let mut fields = Fields { r: Reader::new(payload), bits: 0 };
        let query = match kind {
            WRITE if !version.has_maps() => return Ok(Some(Query::Write(payload))),
            WRITE => {
                fields.read_map(version, &[], &[BATCH_BIT])?;
                Query::Write(fields.bytes(BATCH_BIT)?)
            }
            GET => {
                fields.read_map(version, &[GET_FAMILY_BIT, GET_KEY_BIT], &[])?;
                Query::Get {
                    family: ColumnFamilyId(fields.number(GET_FAMILY_BIT)?),
                    key: fields.bytes(GET_KEY_BIT)?,
                }
            }
            SEEK | SEEK_FOR_PREV => {
                fields.read_map(version, &[SEEK_FAMILY_BIT, SEEK_KEY_BIT], &[LOWER_BIT, UPPER_BIT])?;
                let family = ColumnFamilyId(fields.number(SEEK_FAMILY_BIT)?);
                let [key, lower, upper] =
                    [fields.bytes(SEEK_KEY_BIT)?, fields.bytes(LOWER_BIT)?, fields.bytes(UPPER_BIT)?];
                match kind {
                    SEEK => Query::Seek { family, key, lower, upper },
                    _ => Query::SeekForPrev { family, key, lower, upper },
                }
            }
            MULTI_GET => {
                fields.read_map(version, &[], &[COUNT_BIT, FAMILIES_BIT, KEYS_BIT])?;
                let count = fields.number(COUNT_BIT)?;
                let (families, keys) = (fields.bytes(FAMILIES_BIT)?, fields.bytes(KEYS_BIT)?);
                Query::MultiGet(pairs(count, families, keys)?)
            }
            _ => return Ok(None),
        };
        match fields.r.is_empty() {
            true => Ok(Some(query)),
            false => Err(fields.r.corruption("bytes after the last field of a traced query")),
        }
    }
}

fn put_map(out: &mut Vec<u8>, bits: &[u32]) {
    put_fixed64(out, bits.iter().fold(0, |map, bit| map | 1 << bit));
}

/// Cursor over the fields of a payload.
struct Fields<'a> {
    r: Reader<'a>,
    bits: u64,
}

impl<'a> Fields<'a> {
    /// Reads the bitmap of fields. A trace of version 0.1 has no bitmap: it has exactly the fields
    /// `oldest`. Bits outside of `oldest` and `later` are an error.
    fn read_map(&mut self, version: Version, oldest: &[u32], later: &[u32]) -> Result<(), Corruption> {
        let bits = |of: &[u32]| of.iter().fold(0u64, |map, bit| map | 1 << bit);
        if !version.has_maps() {
            if oldest.is_empty() {
                return Err(self.r.corruption("a query of a kind that traces of version 0.1 do not have"));
            }
            self.bits = bits(oldest);
            return Ok(());
        }
        self.bits = self.r.fixed64()?;
        match self.bits & !(bits(oldest) | bits(later)) {
            0 => Ok(()),
            unknown => Err(self.r.corruption(format!("a traced query with unknown fields {unknown:#x}"))),
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.bits & 1 << bit != 0
    }

    /// Reads a number; 0 if the field is absent.
    fn number(&mut self, bit: u32) -> Result<u32, Corruption> {
        if self.has(bit) { self.r.fixed32() } else { Ok(0) }
    }

    /// Reads a string; empty if the field is absent.
    fn bytes(&mut self, bit: u32) -> Result<&'a [u8], Corruption> {
        if self.has(bit) { self.r.length_prefixed() } else { Ok(&[]) }
    }
}

/// Pairs `count` column families with as many keys.
fn pairs<'a>(
    count: u32,
    families: &[u8],
    keys: &'a [u8],
) -> Result<Vec<(ColumnFamilyId, &'a [u8])>, Corruption> {
    if count == 0 || families.len() as u64 != u64::from(count) * 4 {
        let text = format!("a multi get of {count} keys with {} bytes of column families", families.len());
        return Err(Corruption::new(text, 8u64));
    }
    let (mut families, mut keys) = (Reader::new(families), Reader::new(keys));
    let mut pairs = Vec::new();
    while !families.is_empty() {
        pairs.push((ColumnFamilyId(families.fixed32()?), keys.length_prefixed()?));
    }
    match keys.is_empty() {
        true => Ok(pairs),
        false => Err(keys.corruption("more keys than column families in a multi get")),
    }
}
