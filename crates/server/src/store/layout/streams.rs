//! Streams in the families: the record of the key; entries, groups, consumers and pending entries
//! as elements.

use super::super::{Kind, Millis};
use super::{Bytes, ELEMENTS, corrupt, element_of, encode_start, tagged};
use crate::entry_id::EntryId;
use karstdb::Result;
use std::ops::Range;

/// First bytes behind the version in the keys of a stream's elements.
const OF_ENTRY: u8 = 0;
const OF_GROUP: u8 = 1;
/// Of the number of a consumer, by its group and name.
const OF_CONSUMER_NAME: u8 = 2;
/// Of a consumer, by its group and number.
const OF_CONSUMER: u8 = 3;
/// Of a pending entry, by its group and id.
const OF_PENDING: u8 = 4;
/// Of a pending entry without a value, by its group, consumer and id.
const OF_OWNED: u8 = 5;

/// The record of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamRecord {
    pub(crate) version: u64,
    /// Number of its entries; may be 0.
    pub(crate) length: u64,
    /// Id of the last entry that was added, or of XSETID.
    pub(crate) last: EntryId,
    /// Id of the first entry; 0-0 if there is none.
    pub(crate) first: EntryId,
    /// The largest id that XDEL has deleted.
    pub(crate) max_deleted: EntryId,
    /// Number of entries that were ever added.
    pub(crate) added: u64,
    /// Number of its elements that are no entries.
    pub(crate) others: u64,
    /// The next number of a group or a consumer.
    pub(crate) next_number: u64,
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) number: u64,
    /// Id of the last entry that was delivered.
    pub(crate) last: EntryId,
    /// No pending entry has a larger id.
    pub(crate) highest: EntryId,
    /// Id of the first pending entry, if there is one.
    pub(crate) lowest: EntryId,
    /// Number of entries of the stream up to the last one that was delivered; `None`: unknown.
    pub(crate) read: Option<u64>,
    /// Number of pending entries.
    pub(crate) pending: u64,
    /// Number of consumers.
    pub(crate) consumers: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub(crate) name: Vec<u8>,
    /// Time of its last command.
    pub(crate) seen: Millis,
    /// Time of its last command that got an entry.
    pub(crate) active: Option<Millis>,
    /// Number of its pending entries.
    pub(crate) pending: u64,
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Number of the consumer.
    pub(crate) consumer: u64,
    /// Time of the last delivery.
    pub(crate) delivered: Millis,
    /// Number of deliveries.
    pub(crate) count: u64,
}

/// Reads numbers from the front of bytes.
fn numbers<const N: usize>(mut bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (first, rest) = bytes.split_first_chunk()?;
        (*number, bytes) = (u64::from_be_bytes(*first), rest);
    }
    Some((numbers, bytes))
}

fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A number with a value for `None`, which no clock and no counter has.
fn optional(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number != u64::MAX)
}

impl StreamRecord {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (
            [version, length, last, last_seq, first, first_seq, deleted, deleted_seq, added, others, next],
            [],
        ) = numbers(bytes)?
        else {
            return None;
        };
        let (last, first) = (EntryId::new(last, last_seq), EntryId::new(first, first_seq));
        let max_deleted = EntryId::new(deleted, deleted_seq);
        let record = Self { version, length, last, first, max_deleted, added, others, next_number: next };
        Some(record).filter(|_| length == 0 || first <= last)
    }
}

/// Encodes the value of a stream's key.
pub(in super::super) fn stream_value(expiry: Option<Millis>, stream: &StreamRecord) -> Vec<u8> {
    let mut value = encode_start(Kind::Stream, expiry, 88);
    value.extend(bytes_of(&[stream.version, stream.length]));
    for id in [stream.last, stream.first, stream.max_deleted] {
        value.extend(id.to_bytes());
    }
    value.extend(bytes_of(&[stream.added, stream.others, stream.next_number]));
    value
}

/// Key of an entry. Keys of entries precede those of all other elements of a stream.
pub(in super::super) fn entry_key(version: u64, id: EntryId) -> Bytes {
    tagged(version, OF_ENTRY, &[&id.to_bytes()])
}

/// Decodes the key of an entry.
pub(in super::super) fn split_entry(key: &[u8]) -> Result<EntryId> {
    match element_of(key)? {
        [OF_ENTRY, id @ ..] => id.try_into().map(EntryId::from_bytes).map_err(|_| corrupt(ELEMENTS, key)),
        _ => Err(corrupt(ELEMENTS, key)),
    }
}

/// Encodes the value of an entry: fields and values in turns, each behind its length.
pub(in super::super) fn entry_value<F: AsRef<[u8]>>(fields: &[F]) -> Vec<u8> {
    let mut value = Vec::with_capacity(fields.iter().map(|field| field.as_ref().len() + 2).sum());
    for field in fields {
        let mut length = field.as_ref().len();
        while length >= 0x80 {
            value.push(length as u8 | 0x80);
            length >>= 7;
        }
        value.push(length as u8);
        value.extend_from_slice(field.as_ref());
    }
    value
}

/// Decodes the value of an entry. Returns where fields and values are in it, in turns; `None`: it
/// is none.
pub(in super::super) fn split_fields(value: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut found, mut at) = (Vec::new(), 0usize);
    while at < value.len() {
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let byte = *value.get(at)?;
            at += 1;
            length |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            match byte {
                ..0x80 => break,
                _ if shift > 28 => return None,
                _ => {}
            }
        }
        let end = at.checked_add(length).filter(|end| *end <= value.len())?;
        found.push(at..end);
        at = end;
    }
    Some(found).filter(|found| found.len().is_multiple_of(2))
}

/// Key of a group; without a name the beginning of the keys of all groups, which is the end of
/// those of the entries.
pub(in super::super) fn group_key(version: u64, name: &[u8]) -> Bytes {
    tagged(version, OF_GROUP, &[name])
}

/// Decodes the name of a group.
pub(in super::super) fn split_group_key(key: &[u8]) -> Result<&[u8]> {
    match element_of(key)? {
        [OF_GROUP, name @ ..] => Ok(name),
        _ => Err(corrupt(ELEMENTS, key)),
    }
}

/// Beginnings of the keys of all elements of a group but its own.
pub(in super::super) fn group_prefixes(version: u64, group: u64) -> [Bytes; 4] {
    [OF_CONSUMER_NAME, OF_CONSUMER, OF_PENDING, OF_OWNED]
        .map(|tag| tagged(version, tag, &[&group.to_be_bytes()]))
}

/// Key of the number of a consumer; without a name the beginning of those of the whole group.
pub(in super::super) fn consumer_name_key(version: u64, group: u64, name: &[u8]) -> Bytes {
    tagged(version, OF_CONSUMER_NAME, &[&group.to_be_bytes(), name])
}

/// Decodes the name of a consumer and its number.
pub(in super::super) fn split_consumer_name<'a>(key: &'a [u8], value: &[u8]) -> Result<(&'a [u8], u64)> {
    let found = match element_of(key)? {
        [OF_CONSUMER_NAME, rest @ ..] => rest.get(8..).zip(value.try_into().ok()),
        _ => None,
    };
    found.map(|(name, number)| (name, u64::from_be_bytes(number))).ok_or_else(|| corrupt(ELEMENTS, key))
}

/// Key of a consumer.
pub(in super::super) fn consumer_key(version: u64, group: u64, number: u64) -> Bytes {
    tagged(version, OF_CONSUMER, &[&group.to_be_bytes(), &number.to_be_bytes()])
}

/// Key of a pending entry of a group.
pub(in super::super) fn pending_key(version: u64, group: u64, id: EntryId) -> Bytes {
    tagged(version, OF_PENDING, &[&group.to_be_bytes(), &id.to_bytes()])
}

/// Decodes the id of a pending entry.
pub(in super::super) fn split_pending_key(key: &[u8]) -> Result<EntryId> {
    last_id(key, OF_PENDING, 25)
}

/// Key of a pending entry of a consumer.
pub(in super::super) fn owned_key(version: u64, group: u64, consumer: u64, id: EntryId) -> Bytes {
    tagged(version, OF_OWNED, &[&group.to_be_bytes(), &consumer.to_be_bytes(), &id.to_bytes()])
}

/// Beginning of the keys of the pending entries of a consumer.
pub(in super::super) fn owned_prefix(version: u64, group: u64, consumer: u64) -> Bytes {
    tagged(version, OF_OWNED, &[&group.to_be_bytes(), &consumer.to_be_bytes()])
}

/// Decodes the id of a consumer's pending entry.
pub(in super::super) fn split_owned(key: &[u8]) -> Result<EntryId> {
    last_id(key, OF_OWNED, 33)
}

/// The id at the end of an element of this length.
fn last_id(key: &[u8], tag: u8, length: usize) -> Result<EntryId> {
    let element = element_of(key)?;
    match element.split_last_chunk() {
        Some(([first, ..], id)) if *first == tag && element.len() == length => Ok(EntryId::from_bytes(*id)),
        _ => Err(corrupt(ELEMENTS, key)),
    }
}

impl Group {
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        let mut value = bytes_of(&[self.number]);
        for id in [self.last, self.highest, self.lowest] {
            value.extend(id.to_bytes());
        }
        value.extend(bytes_of(&[self.read.unwrap_or(u64::MAX), self.pending, self.consumers]));
        value
    }

    /// Decodes the value of `key`.
    pub(in super::super) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        let Some(([number, last, last_seq, high, high_seq, low, low_seq, read, pending, consumers], [])) =
            numbers(value)
        else {
            return Err(corrupt(ELEMENTS, key));
        };
        let (highest, lowest) = (EntryId::new(high, high_seq), EntryId::new(low, low_seq));
        let last = EntryId::new(last, last_seq);
        Ok(Self { number, last, highest, lowest, read: optional(read), pending, consumers })
    }
}

impl Consumer {
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        let active = self.active.map_or(u64::MAX, i64::cast_unsigned);
        let mut value = bytes_of(&[self.seen.cast_unsigned(), active, self.pending]);
        value.extend(&self.name);
        value
    }

    /// Decodes the value of `key`.
    pub(in super::super) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        let ([seen, active, pending], name) = numbers(value).ok_or_else(|| corrupt(ELEMENTS, key))?;
        let active = optional(active).map(u64::cast_signed);
        Ok(Self { name: name.to_vec(), seen: seen.cast_signed(), active, pending })
    }
}

impl Pending {
    pub(in super::super) fn encode(&self) -> Vec<u8> {
        bytes_of(&[self.consumer, self.delivered.cast_unsigned(), self.count])
    }

    /// Decodes the value of `key`.
    pub(in super::super) fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        match numbers(value) {
            Some(([consumer, delivered, count], [])) => {
                Ok(Self { consumer, delivered: delivered.cast_signed(), count })
            }
            _ => Err(corrupt(ELEMENTS, key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Body, Head};
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId::new(ms, ms + 1)
    }

    #[test]
    fn records_come_back() {
        let stream = StreamRecord {
            version: 1,
            length: 2,
            last: id(9),
            first: id(3),
            max_deleted: id(8),
            added: 4,
            others: 5,
            next_number: 6,
        };
        for expiry in [None, Some(7)] {
            let value = stream_value(expiry, &stream);
            let head = Head::decode(b"k", &value).unwrap();
            assert_eq!(head, Head { kind: Kind::Stream, expiry, body: Body::Stream(stream) });
            assert_eq!((head.version(), head.entries()), (Some(1), 7));
            assert!((0..value.len()).all(|length| Head::decode(b"k", &value[..length]).is_err()));
            assert!(Head::decode(b"k", &[&value[..], b"x"].concat()).is_err());
        }
        let torn = StreamRecord { first: id(10), ..stream };
        assert!(Head::decode(b"k", &stream_value(None, &torn)).is_err());
        let empty = StreamRecord { length: 0, ..torn };
        assert!(Head::decode(b"k", &stream_value(None, &empty)).is_ok());
    }

    #[test]
    fn elements_come_back() {
        for read in [None, Some(0), Some(77)] {
            let ids = (id(1), id(2), id(3));
            let (number, pending, consumers) = (4, 5, 6);
            let group =
                Group { number, last: ids.0, highest: ids.1, lowest: ids.2, read, pending, consumers };
            assert_eq!(Group::decode(b"", &group.encode()).unwrap(), group);
            assert!(Group::decode(b"", &group.encode()[1..]).is_err());
        }
        for active in [None, Some(0), Some(5)] {
            let consumer = Consumer { name: b"c".to_vec(), seen: 3, active, pending: 9 };
            assert_eq!(Consumer::decode(b"", &consumer.encode()).unwrap(), consumer);
        }
        let pending = Pending { consumer: 1, delivered: 2, count: 3 };
        assert_eq!(Pending::decode(b"", &pending.encode()).unwrap(), pending);
        assert!(Pending::decode(b"", b"").is_err() && Consumer::decode(b"", &[0; 23]).is_err());
    }

    #[test]
    fn keys_come_back_in_the_order_of_ids() {
        assert_eq!(split_entry(&entry_key(7, id(5))).unwrap(), id(5));
        assert_eq!(split_pending_key(&pending_key(7, 1, id(5))).unwrap(), id(5));
        assert_eq!(split_owned(&owned_key(7, 1, 2, id(5))).unwrap(), id(5));
        assert_eq!(split_group_key(&group_key(7, b"g")).unwrap(), b"g");
        let number = 9u64.to_be_bytes();
        assert_eq!(split_consumer_name(&consumer_name_key(7, 1, b"c"), &number).unwrap(), (&b"c"[..], 9));
        assert!(entry_key(7, id(5)) < entry_key(7, id(6)) && entry_key(7, EntryId::MAX) < group_key(7, b""));
        for key in [&entry_key(7, id(5))[..24], &pending_key(7, 1, id(5)), &group_key(7, b"")] {
            assert!(split_entry(key).is_err() && split_owned(key).is_err());
        }
        assert!(split_pending_key(&entry_key(7, id(5))).is_err());
        assert!(split_consumer_name(&consumer_name_key(7, 1, b"c"), &number[1..]).is_err());
    }

    #[test]
    fn fields_come_back() {
        let long = vec![b'x'; 20_000];
        let fields: [&[u8]; 4] = [b"field", b"", &long, b"value"];
        let value = entry_value(&fields);
        let split = |value: &[u8]| -> Option<Vec<Vec<u8>>> {
            Some(split_fields(value)?.into_iter().map(|range| value[range].to_vec()).collect())
        };
        assert_eq!(split(&value).unwrap(), fields);
        assert_eq!(split(b""), Some(Vec::new()));
        for wrong in
            [&b"\x01"[..], b"\x01a", b"\xff\xff\xff\xff\xff\x01a", b"\x80", &value[..value.len() - 1]]
        {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }
}
