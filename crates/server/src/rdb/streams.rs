//! Streams as DUMP has them: entries packed into nodes, then counts and ids, then the groups.
//!
//! Read: the three encodings that Redis 5 to 7.2 writes. Written: that of Redis 7.0.
//!
//! A node is an id of 16 bytes and a listpack: numbers of entries and of deleted ones, fields of a
//! first entry, and for each entry flags, the difference of its id to that of the node, fields and
//! values (the values alone if the fields are those of the first entry), and its number of
//! elements.

use super::packed::{Form, ListPack, Packed};
use super::{BadPayload, Bytes, EXPANDED_AT_MOST, Layout, Reader, Result, Type, VERSION_WRITTEN, Writer};
use crate::entry_id::EntryId;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Flags of an entry: it was deleted; its fields are those of the node.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// Largest node that is written, in bytes, apart from its last entry.
const NODE_AT_MOST: usize = 1 << 30;

/// Counts and ids of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamTotals {
    pub(crate) length: u64,
    pub(crate) last: EntryId,
    /// Id of the first entry; for readers that of an entry before says it.
    pub(crate) first: EntryId,
    pub(crate) max_deleted: EntryId,
    pub(crate) added: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedConsumer {
    pub(crate) name: Vec<u8>,
    pub(crate) seen: i64,
    pub(crate) active: Option<i64>,
}

/// A delivery that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedPending {
    pub(crate) delivered: i64,
    pub(crate) count: u64,
    /// Place of the consumer in the group's list.
    pub(crate) consumer: usize,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedGroup {
    pub(crate) name: Vec<u8>,
    pub(crate) last: EntryId,
    /// Number of entries that were read, if it is known.
    pub(crate) read: Option<u64>,
    pub(crate) consumers: Vec<PackedConsumer>,
    /// By their ids.
    pub(crate) pending: BTreeMap<EntryId, PackedPending>,
}

/// Fields and values in turns.
type Fields<'a> = Vec<Cow<'a, [u8]>>;

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamPart<'a> {
    Entry(EntryId, Fields<'a>),
    /// A deleted entry. It has no content, and is a part of its own because readers pause between
    /// parts.
    Deleted,
    Totals(StreamTotals),
    Group(PackedGroup),
}

/// Encoding of a stream; each has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Encoding {
    /// Redis 5.
    Entries,
    /// Redis 7.0: with the counts of what was added and read.
    Counts,
    /// Redis 7.2: with the times at which consumers were active.
    Times,
}

/// The node that is read.
struct Node<'a> {
    id: EntryId,
    packed: Packed<'a>,
    fields: Vec<Cow<'a, [u8]>>,
}

/// A stream that is read from a payload.
pub(crate) struct StreamReader<'a> {
    strings: Reader<'a>,
    encoding: Encoding,
    node: Option<Node<'a>>,
    /// Nodes that are left; `None`: the totals were read.
    nodes: Option<u64>,
    groups: u64,
    names: HashSet<Vec<u8>>,
    /// Number of entries, and the id of the last one.
    entries: u64,
    last: EntryId,
}

impl<'a> StreamReader<'a> {
    /// Begins to read a payload without its footer; `None` if it is no stream.
    ///
    /// # Errors
    /// There is nothing behind the type.
    pub(crate) fn new(body: &'a [u8]) -> Result<Option<Self>> {
        let encoding = match body.first() {
            Some(15) => Encoding::Entries,
            Some(19) => Encoding::Counts,
            Some(21) => Encoding::Times,
            _ => return Ok(None),
        };
        let mut bytes = Bytes(&body[1..]);
        let nodes = Some(bytes.length()?);
        let (of, layout, room) = (Type::Stream, Layout::Strings, EXPANDED_AT_MOST);
        let strings = Reader { bytes, of, layout, left: 0, node: None, count: 0, room };
        let (names, last) = (HashSet::new(), EntryId::ZERO);
        Ok(Some(Self { strings, encoding, node: None, nodes, groups: 0, names, entries: 0, last }))
    }

    /// True if groups have the numbers of entries that were read, where these are known.
    pub(crate) fn counts_reads(&self) -> bool {
        self.encoding >= Encoding::Counts
    }

    /// Returns the next part: entries in the order of their ids, the totals, groups; `None` at the
    /// end. Each part agrees with those before it.
    pub(crate) fn next(&mut self) -> Result<Option<StreamPart<'a>>> {
        loop {
            if let Some(node) = &mut self.node {
                if let Some((id, fields)) = node.next()? {
                    let Some(fields) = fields else { return Ok(Some(StreamPart::Deleted)) };
                    if id <= self.last {
                        return Err(BadPayload);
                    }
                    self.last = id;
                    self.entries += 1;
                    return Ok(Some(StreamPart::Entry(id, fields)));
                }
                self.node = None;
            }
            match self.nodes {
                Some(0) => {
                    self.nodes = None;
                    return self.totals().map(StreamPart::Totals).map(Some);
                }
                Some(left) => {
                    self.nodes = Some(left - 1);
                    let id = self.strings.string()?;
                    let id = EntryId::from_bytes(<[u8; 16]>::try_from(&id[..]).map_err(|_| BadPayload)?);
                    self.node = Some(Node::new(id, self.strings.string()?)?);
                }
                None if self.groups == 0 => {
                    return if self.strings.bytes.0.is_empty() { Ok(None) } else { Err(BadPayload) };
                }
                None => {
                    self.groups -= 1;
                    return self.group().map(StreamPart::Group).map(Some);
                }
            }
        }
    }

    fn id(&mut self) -> Result<EntryId> {
        Ok(EntryId::new(self.strings.bytes.length()?, self.strings.bytes.length()?))
    }

    fn totals(&mut self) -> Result<StreamTotals> {
        let length = self.strings.bytes.length()?;
        let mut totals = StreamTotals { length, last: self.id()?, added: length, ..Default::default() };
        if self.encoding >= Encoding::Counts {
            (totals.first, totals.max_deleted) = (self.id()?, self.id()?);
            totals.added = self.strings.bytes.length()?;
        }
        self.groups = self.strings.bytes.length()?;
        match length == self.entries && totals.last >= self.last {
            true => Ok(totals),
            false => Err(BadPayload),
        }
    }

    fn group(&mut self) -> Result<PackedGroup> {
        let name = self.strings.string()?.into_owned();
        if !self.names.insert(name.clone()) {
            return Err(BadPayload);
        }
        let last = self.id()?;
        let mut read = None;
        if self.counts_reads() {
            read = Some(self.strings.bytes.length()?).filter(|read| *read != u64::MAX);
        }
        let mut pending = BTreeMap::new();
        for _ in 0..self.strings.bytes.length()? {
            let id = EntryId::from_bytes(self.strings.bytes.array()?);
            let delivered = i64::from_le_bytes(self.strings.bytes.array()?);
            let count = self.strings.bytes.length()?;
            if pending.insert(id, PackedPending { delivered, count, consumer: usize::MAX }).is_some() {
                return Err(BadPayload);
            }
        }
        let (mut consumers, mut names) = (Vec::new(), HashSet::new());
        for _ in 0..self.strings.bytes.length()? {
            let name = self.strings.string()?.into_owned();
            if !names.insert(name.clone()) {
                return Err(BadPayload);
            }
            let seen = i64::from_le_bytes(self.strings.bytes.array()?);
            let mut active = Some(seen);
            if self.encoding >= Encoding::Times {
                active = Some(i64::from_le_bytes(self.strings.bytes.array()?)).filter(|active| *active >= 0);
            }
            for _ in 0..self.strings.bytes.length()? {
                let id = EntryId::from_bytes(self.strings.bytes.array()?);
                let owned = pending.get_mut(&id).ok_or(BadPayload)?;
                if owned.consumer != usize::MAX {
                    return Err(BadPayload);
                }
                owned.consumer = consumers.len();
            }
            consumers.push(PackedConsumer { name, seen, active });
        }
        match pending.values().all(|pending| pending.consumer != usize::MAX) {
            true => Ok(PackedGroup { name, last, read, consumers, pending }),
            false => Err(BadPayload),
        }
    }
}

impl<'a> Node<'a> {
    fn new(id: EntryId, bytes: Cow<'a, [u8]>) -> Result<Self> {
        let mut node = Self { id, packed: Packed::new(Form::ListPack, bytes)?, fields: Vec::new() };
        let (_entries, _deleted) = (node.number()?, node.number()?);
        for _ in 0..node.number()? {
            let field = node.packed.next()?.ok_or(BadPayload)?;
            node.fields.push(field);
        }
        match node.number()? {
            0 => Ok(node),
            _ => Err(BadPayload),
        }
    }

    fn number(&mut self) -> Result<i64> {
        let text = self.packed.next()?.ok_or(BadPayload)?;
        std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or(BadPayload)
    }

    /// Returns the next entry, without fields if it was deleted.
    fn next(&mut self) -> Result<Option<(EntryId, Option<Fields<'a>>)>> {
        let Some(flags) = self.packed.next()? else { return Ok(None) };
        let flags: i64 =
            std::str::from_utf8(&flags).ok().and_then(|text| text.parse().ok()).ok_or(BadPayload)?;
        let (ms, seq) = (self.number()?, self.number()?);
        let id = EntryId::new(
            self.id.ms().wrapping_add(ms.cast_unsigned()),
            self.id.seq().wrapping_add(seq.cast_unsigned()),
        );
        let (is_deleted, has_same) = (flags & DELETED != 0, flags & SAME_FIELDS != 0);
        let count = if has_same { self.fields.len() as i64 } else { self.number()? };
        let mut fields = Vec::new();
        for at in 0..count {
            // Names of the node may be long, and are copied for an entry that has them only.
            let field = match has_same {
                true if is_deleted => Cow::Borrowed(&[][..]),
                true => self.fields.get(at as usize).cloned().ok_or(BadPayload)?,
                false => self.packed.next()?.ok_or(BadPayload)?,
            };
            let value = self.packed.next()?.ok_or(BadPayload)?;
            if !is_deleted {
                fields.extend([field, value]);
            }
        }
        let _elements = self.number()?;
        Ok(Some((id, (!is_deleted).then_some(fields))))
    }
}

/// A stream that is written.
pub(crate) struct StreamWriter {
    entries_at_most: usize,
    bytes_at_most: usize,
    /// Nodes that are complete.
    nodes: Writer,
    count: u64,
    /// The node that is written: its entries, how many they are, and the fields of the first one.
    node: ListPack,
    node_id: EntryId,
    entries: usize,
    fields: Vec<Vec<u8>>,
}

impl StreamWriter {
    /// Begins a stream. `entries_at_most` and `bytes_at_most` limit a node; 0: no limit.
    pub(crate) fn new(entries_at_most: usize, bytes_at_most: usize) -> Self {
        let most = |most: usize, limit: usize| if most == 0 { limit } else { most.min(limit) };
        Self {
            entries_at_most: most(entries_at_most, usize::MAX),
            bytes_at_most: most(bytes_at_most, NODE_AT_MOST),
            nodes: Writer(Vec::new(), VERSION_WRITTEN),
            count: 0,
            node: ListPack::default(),
            node_id: EntryId::ZERO,
            entries: 0,
            fields: Vec::new(),
        }
    }

    /// Adds an entry, with fields and values in turns.
    pub(crate) fn entry(&mut self, id: EntryId, fields: &[&[u8]]) {
        if self.entries >= self.entries_at_most || self.node.len() >= self.bytes_at_most {
            self.end_node();
        }
        let (pairs, _) = fields.as_chunks::<2>();
        if self.entries == 0 {
            self.node_id = id;
            self.fields = pairs.iter().map(|[field, _]| field.to_vec()).collect();
        }
        self.entries += 1;
        let known = self.fields.iter().map(|field| &field[..]);
        let is_same = known.eq(pairs.iter().map(|[field, _]| *field));
        let node = &mut self.node;
        node.integer(if is_same { SAME_FIELDS } else { 0 });
        node.integer(id.ms().wrapping_sub(self.node_id.ms()).cast_signed());
        node.integer(id.seq().wrapping_sub(self.node_id.seq()).cast_signed());
        let count = pairs.len() as i64;
        if !is_same {
            node.integer(count);
        }
        for [field, value] in pairs {
            if !is_same {
                node.text(field);
            }
            node.text(value);
        }
        node.integer(if is_same { count + 3 } else { 2 * count + 4 });
    }

    fn end_node(&mut self) {
        if self.entries == 0 {
            return;
        }
        let mut head = ListPack::default();
        head.integer(self.entries as i64);
        head.integer(0);
        head.integer(self.fields.len() as i64);
        self.fields.iter().for_each(|field| head.text(field));
        head.integer(0);
        head.append(&std::mem::take(&mut self.node));
        self.nodes.raw(&self.node_id.to_bytes());
        self.nodes.raw(&head.end());
        self.count += 1;
        self.entries = 0;
    }

    /// Adds what follows the entries. The groups follow by [`group`](Self::group).
    pub(crate) fn totals(mut self, totals: &StreamTotals, groups: usize) -> Writer {
        self.end_node();
        let mut writer = Writer::new(Type::Stream, self.count);
        writer.0.append(&mut self.nodes.0);
        writer.length(totals.length);
        for id in [totals.last, totals.first, totals.max_deleted] {
            writer.length(id.ms());
            writer.length(id.seq());
        }
        writer.length(totals.added);
        writer.length(groups as u64);
        writer
    }

    /// Adds a group behind the totals.
    pub(crate) fn group(writer: &mut Writer, group: &PackedGroup) {
        writer.string(&group.name);
        writer.length(group.last.ms());
        writer.length(group.last.seq());
        writer.length(group.read.unwrap_or(u64::MAX));
        writer.length(group.pending.len() as u64);
        let mut owned = vec![Vec::new(); group.consumers.len()];
        for (id, pending) in &group.pending {
            writer.0.extend(id.to_bytes());
            writer.0.extend(pending.delivered.to_le_bytes());
            writer.length(pending.count);
            if let Some(owned) = owned.get_mut(pending.consumer) {
                owned.push(*id);
            }
        }
        writer.length(group.consumers.len() as u64);
        for (consumer, owned) in group.consumers.iter().zip(owned) {
            writer.string(&consumer.name);
            writer.0.extend(consumer.seen.to_le_bytes());
            writer.length(owned.len() as u64);
            owned.iter().for_each(|id| writer.0.extend(id.to_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId::new(ms, 7)
    }

    fn group() -> PackedGroup {
        let consumer = |name: &str| PackedConsumer { name: name.into(), seen: 5, active: Some(5) };
        let pending = |consumer| PackedPending { delivered: 6, count: 2, consumer };
        PackedGroup {
            name: b"g".to_vec(),
            last: id(4),
            read: None,
            consumers: vec![consumer("idle"), consumer("busy")],
            pending: BTreeMap::from([(id(1), pending(1)), (id(3), pending(1))]),
        }
    }

    fn parts(body: &[u8]) -> Result<Vec<StreamPart<'_>>> {
        let mut reader = StreamReader::new(body)?.ok_or(BadPayload)?;
        let mut parts = Vec::new();
        while let Some(part) = reader.next()? {
            parts.push(part);
        }
        Ok(parts)
    }

    fn written(entries_at_most: usize) -> (Vec<u8>, StreamTotals) {
        let mut writer = StreamWriter::new(entries_at_most, 4096);
        let long = vec![b'v'; 5000];
        for ms in 1..20u64 {
            let value: &[u8] = if ms == 9 { &long } else { b"-17" };
            match ms % 3 {
                0 => writer.entry(id(ms * ms), &[b"other", value, b"", b""]),
                _ => writer.entry(id(ms * ms), &[b"field", value]),
            }
        }
        let totals =
            StreamTotals { length: 19, last: id(u64::MAX), first: id(1), max_deleted: id(2), added: 1 << 40 };
        let mut writer = writer.totals(&totals, 1);
        StreamWriter::group(&mut writer, &group());
        (writer.0, totals)
    }

    #[test]
    fn streams_come_back() {
        for entries_at_most in [0, 1, 3, 100] {
            let (body, totals) = written(entries_at_most);
            let mut parts = parts(&body).unwrap();
            assert_eq!(parts.pop(), Some(StreamPart::Group(group())));
            assert_eq!(parts.pop(), Some(StreamPart::Totals(totals)));
            assert_eq!(parts.len(), 19);
            for (ms, part) in (1..).zip(parts) {
                let StreamPart::Entry(found, fields) = part else { panic!("{part:?}") };
                assert_eq!((found, fields.len()), (id(ms * ms), if ms % 3 == 0 { 4 } else { 2 }));
                assert_eq!(fields[1].len(), if ms == 9 { 5000 } else { 3 });
            }
        }
    }

    #[test]
    fn deleted_entries_are_stepped_over_one_by_one() {
        let mut node = ListPack::default();
        for number in [1, 2, 1] {
            node.integer(number); // entries, deleted ones, fields
        }
        node.text(&[b'n'; 100_000]);
        node.integer(0);
        for (flags, seq) in [(DELETED | SAME_FIELDS, 1), (DELETED, 2), (SAME_FIELDS, 3)] {
            node.integer(flags);
            node.integer(0);
            node.integer(seq);
            if flags == DELETED {
                node.integer(1);
                node.text(b"other");
            }
            node.text(b"v");
            node.integer(4);
        }
        let mut writer = Writer::new(Type::Stream, 1);
        writer.raw(&EntryId::new(7, 0).to_bytes());
        writer.raw(&node.end());
        for number in [1, 7, 3, 7, 3, 7, 2, 3, 0] {
            writer.length(number);
        }
        let parts = parts(&writer.0).unwrap();
        assert_eq!(parts[..2], [StreamPart::Deleted, StreamPart::Deleted]);
        let StreamPart::Entry(id, fields) = &parts[2] else { panic!("{:?}", parts[2]) };
        assert_eq!((*id, fields[0].len(), &fields[1][..]), (EntryId::new(7, 3), 100_000, &b"v"[..]));
        assert_eq!(parts.len(), 4);
    }

    #[test]
    fn damaged_ones_are_refused_or_read_without_a_panic() {
        let (body, _) = written(3);
        for length in 0..body.len() {
            assert!(parts(&body[..length]).is_err(), "{length}");
        }
        for at in 0..body.len().min(600) {
            for byte in [0, 1, 0x7f, 0x80, 0xf4, 0xff] {
                let mut damaged = body.clone();
                damaged[at] = byte;
                let _either = parts(&damaged);
            }
        }
        assert!(parts(&[&body[..], b"x"].concat()).is_err());
        let twice = {
            let mut writer = StreamWriter::new(1, 0).totals(&StreamTotals::default(), 2);
            StreamWriter::group(&mut writer, &group());
            StreamWriter::group(&mut writer, &group());
            writer.0
        };
        assert!(parts(&twice).is_err());
        let longer = StreamWriter::new(1, 0).totals(&StreamTotals { length: 1, ..Default::default() }, 0);
        assert!(parts(&longer.0).is_err());
    }
}
