//! Bytes of the families (docs/formats/redis.md), in both directions.
//!
//! In: keys, heads, elements. Out: the keys and values of KarstDB, and back. Decoders accept any
//! bytes: what the layout does not allow is a `Corruption` that names the family and the key.
//!
//! Words: a *base* is the number of a database below the mapping of SELECT's numbers; a *head* is
//! the beginning of a key's value; a *version* names one life of a collection, is unique, and
//! begins with the base in its upper 16 bits.

mod streams;

pub(crate) use streams::{Consumer, Group, Pending, StreamRecord};
pub(super) use streams::{
    consumer_key, consumer_name_key, entry_key, entry_value, group_key, group_prefixes, owned_key,
    owned_prefix, pending_key, split_consumer_name, split_entry, split_fields, split_group_key, split_owned,
    split_pending_key, stream_value,
};

use super::{Kind, Millis};
use karstdb::{Error, ErrorKind, Result};
use smallvec::SmallVec;

/// Keys of the database that are built for one call.
pub(super) type Bytes = SmallVec<[u8; 64]>;

/// Family of the elements of collections.
pub(super) const ELEMENTS: &str = "elements";
/// Family of the keys with an expiry, in the order of their expiry.
pub(super) const EXPIRIES: &str = "expiries";
/// Family of the fields of hashes with an expiry, in the order of their expiry.
pub(super) const FIELDS: &str = "fields";
/// Family of the store's own records.
pub(super) const SERVER: &str = "server";

/// Record of the layout's version.
pub(super) const FORMAT: &[u8] = b"format";
/// Layout that this code reads and writes.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Record of the end of the numbers that may have been given out.
pub(super) const NUMBERS: &[u8] = b"numbers";
/// Record of the base of each database.
pub(super) const BASES: &[u8] = b"bases";
/// Beginning of the records of sizes; the base follows.
pub(super) const SIZE: &[u8] = b"size:";
/// Beginning of the records of dead versions; the version follows.
pub(super) const DEAD: &[u8] = b"dead:";

/// Beginning of the records of the names of hashes whose fields may expire; the version follows.
pub(super) const NAMED: &[u8] = b"name:";

/// Bits of a version below its base.
pub(super) const NUMBER_BITS: u32 = 48;

const KIND: u8 = 0x0f;
const HAS_EXPIRY: u8 = 0x80;
/// Mark of a hash whose fields may have expiries.
const FIELDS_EXPIRE: u8 = 0x40;
/// Flags of a hash's field without an expiry of its own.
const PLAIN_FIELD: u8 = 0;
/// Flags of a hash's field with one, which follows.
const EXPIRING_FIELD: u8 = 1;
/// First byte behind the version in the keys of a sorted set's members.
const OF_MEMBER: u8 = 0;
/// First byte behind the version in the keys of a sorted set's index.
const OF_SCORE: u8 = 1;

/// The decoded beginning of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Time from which on the key is gone.
    pub(super) expiry: Option<Millis>,
    pub(super) body: Body,
}

/// The rest of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A string, from this offset on.
    String {
        begins: usize,
    },
    Collection(Collection),
    Stream(StreamRecord),
}

/// A hash, a set, a list or a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) version: u64,
    /// Number of elements, at least 1.
    pub(super) count: u64,
    /// Of a list the position of its first element. Of a sorted set a place in [`order_of`]'s order
    /// that no member's score is before. 0 in other types.
    pub(super) first: u64,
    /// True if fields of the hash may have expiries: the server has a record of its name then.
    pub(super) fields_expire: bool,
}

impl Head {
    /// Decodes the value of `key` in the family `default`.
    pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Head> {
        Self::parse(value).ok_or_else(|| corrupt("default", key))
    }

    fn parse(value: &[u8]) -> Option<Head> {
        let (&first, rest) = value.split_first()?;
        let kind = match first & KIND {
            1 => Kind::String,
            2 => Kind::Hash,
            3 => Kind::Set,
            4 => Kind::List,
            5 => Kind::SortedSet,
            6 => Kind::Stream,
            _ => return None,
        };
        let fields_expire = kind == Kind::Hash && first & FIELDS_EXPIRE != 0;
        let marks = first & !KIND & if fields_expire { !FIELDS_EXPIRE } else { u8::MAX };
        let (expiry, rest) = match marks {
            0 => (None, rest),
            HAS_EXPIRY => {
                let (expiry, rest) = rest.split_first_chunk()?;
                (Some(i64::from_be_bytes(*expiry)), rest)
            }
            _ => return None,
        };
        let body = match kind {
            Kind::String => Body::String { begins: value.len() - rest.len() },
            Kind::Stream => Body::Stream(StreamRecord::parse(rest)?),
            Kind::Hash | Kind::Set | Kind::List | Kind::SortedSet => {
                let (version, rest) = rest.split_first_chunk()?;
                let (count, rest) = rest.split_first_chunk()?;
                let (version, count) = (u64::from_be_bytes(*version), u64::from_be_bytes(*count));
                let first = match (kind, rest) {
                    (Kind::List | Kind::SortedSet, first) => u64::from_be_bytes(first.try_into().ok()?),
                    (_, []) => 0,
                    _ => return None,
                };
                let is_whole = count > 0 && (kind != Kind::List || first.checked_add(count).is_some());
                Body::Collection(is_whole.then_some(Collection { version, count, first, fields_expire })?)
            }
        };
        Some(Head { kind, expiry, body })
    }

    /// True if the key is gone at `now`.
    pub(super) fn is_expired(&self, now: Millis) -> bool {
        self.expiry.is_some_and(|at| at <= now)
    }

    /// Version of a hash whose fields may have expiries.
    pub(super) fn expiring_version(&self) -> Option<u64> {
        match self.body {
            Body::Collection(hash) if hash.fields_expire => Some(hash.version),
            _ => None,
        }
    }

    /// The version of a collection.
    pub(super) fn version(&self) -> Option<u64> {
        match self.body {
            Body::String { .. } => None,
            Body::Collection(Collection { version, .. }) | Body::Stream(StreamRecord { version, .. }) => {
                Some(version)
            }
        }
    }

    /// Number of entries of the collection in the family `elements`: two for each member of a
    /// sorted set, and those of a stream's groups.
    pub(super) fn entries(&self) -> u64 {
        match (self.kind, self.body) {
            (_, Body::String { .. }) => 0,
            (_, Body::Stream(stream)) => stream.length.saturating_add(stream.others),
            (Kind::SortedSet, Body::Collection(set)) => set.count.saturating_mul(2),
            (_, Body::Collection(collection)) => collection.count,
        }
    }
}

fn encode_start(kind: Kind, expiry: Option<Millis>, room: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(9 + room);
    let kind = match kind {
        Kind::String => 1,
        Kind::Hash => 2,
        Kind::Set => 3,
        Kind::List => 4,
        Kind::SortedSet => 5,
        Kind::Stream => 6,
    };
    match expiry {
        None => value.push(kind),
        Some(at) => {
            value.push(kind | HAS_EXPIRY);
            value.extend(at.to_be_bytes());
        }
    }
    value
}

/// Encodes the value of a string.
pub(super) fn string_value(expiry: Option<Millis>, text: &[u8]) -> Vec<u8> {
    let mut value = encode_start(Kind::String, expiry, text.len());
    value.extend(text);
    value
}

/// Encodes the value of a collection's key.
pub(super) fn collection_value(kind: Kind, expiry: Option<Millis>, collection: Collection) -> Vec<u8> {
    let mut value = encode_start(kind, expiry, 24);
    if let (true, Some(start)) = (collection.fields_expire, value.first_mut()) {
        *start |= FIELDS_EXPIRE;
    }
    value.extend(collection.version.to_be_bytes());
    value.extend(collection.count.to_be_bytes());
    if matches!(kind, Kind::List | Kind::SortedSet) {
        value.extend(collection.first.to_be_bytes());
    }
    value
}

/// Key of `name` in the family `default`.
pub(super) fn stored_key(base: u16, name: &[u8]) -> Bytes {
    joined(&base.to_be_bytes(), name)
}

/// Splits a key of the family `default` into base and name.
pub(super) fn split_stored(key: &[u8]) -> Result<(u16, &[u8])> {
    match key.split_first_chunk() {
        Some((base, name)) => Ok((u16::from_be_bytes(*base), name)),
        None => Err(corrupt("default", key)),
    }
}

/// Key of an element.
pub(super) fn element_key(version: u64, element: &[u8]) -> Bytes {
    joined(&version.to_be_bytes(), element)
}

/// Version that is at an offset of a key; `None` for a key that the layout does not have.
pub(super) fn version_at(key: &[u8], offset: usize) -> Option<u64> {
    key.get(offset..)?.first_chunk().map(|version| u64::from_be_bytes(*version))
}

/// Splits the version from an element's key.
pub(super) fn element_of(key: &[u8]) -> Result<&[u8]> {
    key.get(8..).ok_or_else(|| corrupt(ELEMENTS, key))
}

/// Beginning of the keys of a collection's elements by their names.
pub(super) fn names_prefix(kind: Kind, version: u64) -> Bytes {
    name_key(kind, version, &[])
}

/// Key of the element with a name: a field or a member.
pub(super) fn name_key(kind: Kind, version: u64, name: &[u8]) -> Bytes {
    match kind {
        Kind::SortedSet => tagged(version, OF_MEMBER, &[name]),
        _ => element_key(version, name),
    }
}

/// Splits what is before the name from an element's key.
pub(super) fn name_of(kind: Kind, key: &[u8]) -> Result<&[u8]> {
    match (kind, element_of(key)?) {
        (Kind::SortedSet, [OF_MEMBER, name @ ..]) => Ok(name),
        (Kind::SortedSet, _) => Err(corrupt(ELEMENTS, key)),
        (_, name) => Ok(name),
    }
}

/// Number whose order is that of the scores, which are not NaN. Both zeros have one number. The
/// numbers before and behind that of a score are no overflow.
pub(super) fn order_of(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The score of a number of [`order_of`]; `None` for NaN.
fn score_at(order: u64) -> Option<f64> {
    let bits = if order >> 63 == 0 { !order } else { order & !(1 << 63) };
    Some(f64::from_bits(bits)).filter(|score| !score.is_nan())
}

/// Encodes a score.
pub(super) fn score_value(score: f64) -> [u8; 8] {
    order_of(score).to_be_bytes()
}

/// Decodes a score; `None` if it is none.
pub(super) fn split_score(value: &[u8]) -> Option<f64> {
    score_at(u64::from_be_bytes(value.try_into().ok()?))
}

/// Key of a sorted set's index: of a member, whose score has this number in the order of scores.
/// The key without a member precedes those of all members with the score.
pub(super) fn score_key(version: u64, order: u64, member: &[u8]) -> Bytes {
    tagged(version, OF_SCORE, &[&order.to_be_bytes(), member])
}

/// Beginning of the keys of a sorted set's index, which is the end of those of its members.
pub(super) fn scores_prefix(version: u64) -> Bytes {
    tagged(version, OF_SCORE, &[])
}

/// Decodes an entry of a sorted set, of a member or of the index.
pub(super) fn split_scored<'a>(key: &'a [u8], value: &[u8]) -> Result<(&'a [u8], f64)> {
    let entry = match element_of(key)? {
        [OF_MEMBER, member @ ..] => split_score(value).map(|score| (member, score)),
        [OF_SCORE, rest @ ..] if value.is_empty() => rest
            .split_first_chunk()
            .and_then(|(order, member)| Some((member, score_at(u64::from_be_bytes(*order))?))),
        _ => None,
    };
    entry.ok_or_else(|| corrupt(ELEMENTS, key))
}

fn tagged(version: u64, tag: u8, parts: &[&[u8]]) -> Bytes {
    let mut key = element_key(version, &[tag]);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// Encodes the value of an element, of a hash with the expiry of the field. A set's has none.
pub(super) fn element_value(kind: Kind, expiry: Option<Millis>, text: &[u8]) -> Vec<u8> {
    match (kind, expiry) {
        (Kind::Hash, None) => [&[PLAIN_FIELD], text].concat(),
        (Kind::Hash, Some(at)) => [&[EXPIRING_FIELD], &at.to_be_bytes()[..], text].concat(),
        (Kind::List | Kind::SortedSet, _) => text.to_vec(),
        (Kind::Set | Kind::String | Kind::Stream, _) => Vec::new(),
    }
}

/// Checks the value of an element, and returns the offset of the user's bytes in it, and the expiry
/// of a field.
pub(super) fn split_element(kind: Kind, key: &[u8], value: &[u8]) -> Result<(usize, Option<Millis>)> {
    match (kind, value) {
        (Kind::Hash, [PLAIN_FIELD, ..]) => Ok((1, None)),
        (Kind::Hash, [EXPIRING_FIELD, rest @ ..]) => {
            let at = rest.first_chunk().ok_or_else(|| corrupt(ELEMENTS, key))?;
            Ok((9, Some(i64::from_be_bytes(*at))))
        }
        (Kind::Set, []) | (Kind::List, _) => Ok((0, None)),
        (Kind::SortedSet, score) if split_score(score).is_some() => Ok((0, None)),
        _ => Err(corrupt(ELEMENTS, key)),
    }
}

/// Key of the expiry of a stored key. Negative times count as 0.
pub(super) fn expiry_key(at: Millis, stored: &[u8]) -> Bytes {
    joined(&at.max(0).cast_unsigned().to_be_bytes(), stored)
}

/// Splits a key of the family `expiries` into the time, the base and the name.
pub(super) fn split_expiry(key: &[u8]) -> Result<(Millis, u16, &[u8])> {
    let bad = || corrupt(EXPIRIES, key);
    let (at, stored) = key.split_first_chunk().ok_or_else(bad)?;
    let at = Millis::try_from(u64::from_be_bytes(*at)).map_err(|_| bad())?;
    let (base, name) = stored.split_first_chunk().ok_or_else(bad)?;
    Ok((at, u16::from_be_bytes(*base), name))
}

/// Key in the family of expiring fields. Negative times count as 0.
pub(super) fn field_key(at: Millis, version: u64, field: &[u8]) -> Bytes {
    let mut key = joined(&at.max(0).cast_unsigned().to_be_bytes(), &version.to_be_bytes());
    key.extend_from_slice(field);
    key
}

/// Splits a key of the family of expiring fields into the time, the version and the field.
pub(super) fn split_field(key: &[u8]) -> Result<(Millis, u64, &[u8])> {
    let bad = || corrupt(FIELDS, key);
    let (at, rest) = key.split_first_chunk().ok_or_else(bad)?;
    let at = Millis::try_from(u64::from_be_bytes(*at)).map_err(|_| bad())?;
    let (version, field) = rest.split_first_chunk().ok_or_else(bad)?;
    Ok((at, u64::from_be_bytes(*version), field))
}

/// Base of the database in which a version was made.
pub(super) fn base_of(version: u64) -> u16 {
    (version >> NUMBER_BITS) as u16
}

/// Key of the record of the name of a hash whose fields may expire.
pub(super) fn named_key(version: u64) -> Bytes {
    joined(NAMED, &version.to_be_bytes())
}

/// First key of the records of names of a base's hashes, and the key behind them. No base is 65535.
pub(super) fn names_of(base: u16) -> (Bytes, Bytes) {
    (joined(NAMED, &base.to_be_bytes()), joined(NAMED, &(base + 1).to_be_bytes()))
}

/// Key of the record of a database's size.
pub(super) fn size_key(base: u16) -> Bytes {
    joined(SIZE, &base.to_be_bytes())
}

/// Key of the record of a dead version.
pub(super) fn dead_key(version: u64) -> Bytes {
    joined(DEAD, &version.to_be_bytes())
}

/// Decodes the version of a record's key that begins with [`DEAD`].
pub(super) fn split_dead(key: &[u8]) -> Result<u64> {
    let version = key.strip_prefix(DEAD).and_then(|version| version.try_into().ok());
    version.map(u64::from_be_bytes).ok_or_else(|| corrupt(SERVER, key))
}

/// Decodes a number of the family `server`, which its merge operator adds to.
pub(super) fn counter(key: &[u8], value: &[u8]) -> Result<u64> {
    value.try_into().map(u64::from_le_bytes).map_err(|_| corrupt(SERVER, key))
}

/// Encodes the bases of all databases.
pub(super) fn bases_value(bases: impl Iterator<Item = u16>) -> Vec<u8> {
    bases.flat_map(u16::to_be_bytes).collect()
}

/// Decodes the bases of all databases, which are all different and below 65535.
pub(super) fn split_bases(value: &[u8]) -> Result<Vec<u16>> {
    let (pairs, rest) = value.as_chunks();
    let bases: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let mut sorted = bases.clone();
    sorted.sort_unstable();
    let differ = sorted.windows(2).all(|two| two[0] != two[1]) && sorted.last() != Some(&u16::MAX);
    match rest.is_empty() && differ {
        true => Ok(bases),
        false => Err(corrupt(SERVER, BASES)),
    }
}

/// The first key behind all those that begin with `prefix`; `None` if there is none.
pub(super) fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

fn joined(first: &[u8], second: &[u8]) -> Bytes {
    let mut key = Bytes::with_capacity(first.len() + second.len());
    key.extend_from_slice(first);
    key.extend_from_slice(second);
    key
}

/// An error for bytes that the layout does not have.
pub(super) fn corrupt(family: &str, key: &[u8]) -> Error {
    let shown = &key[..key.len().min(64)];
    let text =
        format!("no layout of this store: family {family}, key {:?}", shown.escape_ascii().to_string());
    Error::new(ErrorKind::Corruption, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for expiry in [None, Some(0), Some(1), Some(i64::MAX)] {
            let begins = if expiry.is_some() { 9 } else { 1 };
            for text in [&b""[..], b"a", &[0xff; 100]] {
                let head = Head::decode(b"k", &string_value(expiry, text)).unwrap();
                assert_eq!(head, Head { kind: Kind::String, expiry, body: Body::String { begins } });
            }
            for (kind, first) in
                [(Kind::Hash, 0), (Kind::Set, 0), (Kind::List, 1 << 63), (Kind::SortedSet, 0)]
            {
                let collection =
                    Collection { version: u64::MAX - 1, count: 7, first, fields_expire: kind == Kind::Hash };
                let head = Head::decode(b"k", &collection_value(kind, expiry, collection)).unwrap();
                assert_eq!(head, Head { kind, expiry, body: Body::Collection(collection) });
            }
        }
    }

    const EMPTY: Collection = Collection { version: 0, count: 0, first: 0, fields_expire: false };

    #[test]
    fn fields_come_back_with_their_expiries() {
        for expiry in [None, Some(0), Some(i64::MAX)] {
            for text in [&b""[..], b"abc"] {
                let value = element_value(Kind::Hash, expiry, text);
                let (begins, at) = split_element(Kind::Hash, b"", &value).unwrap();
                assert_eq!((&value[begins..], at), (text, expiry));
            }
        }
        // As it was written before fields had expiries.
        assert_eq!(split_element(Kind::Hash, b"", b"\0v").unwrap(), (1, None));
        let key = field_key(5, 7, b"f");
        assert_eq!(split_field(&key).unwrap(), (5, 7, &b"f"[..]));
        assert_eq!((version_at(&key, 8), version_at(&key, 10)), (Some(7), None));
        assert_eq!(field_key(-5, 7, b"f"), field_key(0, 7, b"f"));
    }

    #[test]
    fn other_bytes_are_corruption() {
        let collection = collection_value(Kind::Set, Some(5), Collection { version: 1, count: 1, ..EMPTY });
        for length in 0..collection.len() {
            let error = Head::decode(b"\x00\x00key", &collection[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains("default") && error.to_string().contains("key"), "{error}");
        }
        let longer = [&collection[..], b"x"].concat();
        let none = collection_value(Kind::Set, None, Collection { version: 1, ..EMPTY });
        let beyond = Collection { version: 1, count: 2, first: u64::MAX - 1, ..EMPTY };
        let beyond = collection_value(Kind::List, None, beyond);
        for value in [&longer[..], &none, &beyond, &[0], &[6], &[7], &[0x41], &[0x91], &[0x43, 0], &[0x62]] {
            assert!(Head::decode(b"k", value).is_err(), "{value:?}");
        }
        assert!(split_stored(b"a").is_err() && split_stored(b"ab").is_ok());
        assert!(split_expiry(&[0xff; 20]).is_err() && split_expiry(&[0; 9]).is_err());
        assert!(element_of(&[0; 7]).is_err() && element_of(&[0; 8]).is_ok());
        assert!(
            split_element(Kind::Hash, b"", b"").is_err()
                && split_element(Kind::Hash, b"", b"\x01\0\0\0\0\0\0\0").is_err()
                && split_element(Kind::Hash, b"", b"\x02\0\0\0\0\0\0\0\0").is_err()
        );
        assert!(split_element(Kind::Set, b"", b"x").is_err());
        assert!(split_field(&[0; 15]).is_err() && split_field(&[0xff; 16]).is_err());
        assert!(split_dead(b"dead:1234567").is_err() && split_dead(&dead_key(9)).is_ok_and(|it| it == 9));
        assert!(split_bases(b"\0\0\0").is_err() && split_bases(b"\0\x01\0\x01").is_err());
        assert!(counter(SIZE, b"1234567").is_err());
    }

    #[test]
    fn keys_of_the_index_have_the_order_of_their_scores() {
        let smallest = f64::from_bits(1);
        let scores = [f64::NEG_INFINITY, -1e300, -2.0, -1.5, -smallest, 0.0, smallest, 1.0, f64::INFINITY];
        let keys: Vec<Bytes> = scores.iter().map(|score| score_key(7, order_of(*score), b"m")).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for (key, score) in keys.iter().zip(scores) {
            assert_eq!(split_scored(key, b"").unwrap(), (&b"m"[..], score));
            let member = name_key(Kind::SortedSet, 7, b"m");
            assert_eq!(split_scored(&member, &score_value(score)).unwrap(), (&b"m"[..], score));
            assert!(member < *key && name_of(Kind::SortedSet, key).is_err());
        }
        assert_eq!(score_value(-0.0), score_value(0.0));
        assert!(order_of(f64::NEG_INFINITY) > 0 && order_of(f64::INFINITY) < u64::MAX);
        let nan = score_key(7, u64::MAX, b"m");
        for (key, value) in [(&nan[..], &b""[..]), (&keys[0], b"x"), (&keys[0][..16], b""), (&nan[..8], b"")]
        {
            assert!(split_scored(key, value).is_err());
        }
        for value in [&[0; 7][..], &[0; 9], &[0xff; 8], &[0; 8], b""] {
            assert!(split_element(Kind::SortedSet, b"", value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn keys_behind_a_prefix() {
        assert_eq!(behind(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(behind(b"\xff"), None);
    }
}
