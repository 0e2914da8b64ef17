//! DUMP and RESTORE of streams with their groups.

use super::Call;
use super::pace::Pace;
use crate::entry_id::EntryId;
use crate::rdb::{
    BadPayload, PackedConsumer, PackedGroup, PackedPending, StreamPart, StreamReader, StreamTotals,
    StreamWriter, Writer,
};
use crate::server::FormSetting;
use crate::store::{Access, Durability, Group, Key, Millis, OpenStream, Pending, Side, StreamRecord};
use crate::wrong::Wrong;
use std::collections::{BTreeMap, HashMap};

/// Bytes that the write of an element takes beside those of the element, about.
pub(super) const BYTES_OF_WRITE: usize = 128;
/// Entries that are read together.
const AT_ONCE: u64 = 1024;

/// Parts in which a collection is written.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// Bytes of writes of a part; `None`: there is only one, which the caller commits.
    pub(super) bytes: Option<usize>,
    /// Expiry of the key, which each part has, so that none outlives it after a crash.
    pub(super) expiry: Option<Millis>,
}

impl Parts {
    /// True if what was written is to be committed.
    pub(super) fn is_full(self, access: &Access) -> bool {
        self.bytes.is_some_and(|bytes| access.pending() >= bytes)
    }

    /// Gives the key its expiry, behind a part or the whole of a collection.
    pub(super) async fn set_expiry(self, access: &mut Access, key: &Key) -> Result<(), Wrong> {
        if self.expiry.is_some() {
            access.set_expiry(key, self.expiry).await?;
        }
        Ok(())
    }

    /// Commits what was written of a collection.
    pub(super) async fn commit(self, access: &mut Access, key: &Key) -> Result<(), Wrong> {
        self.set_expiry(access, key).await?;
        access.commit(Durability::Logged).await
    }
}

pub(super) fn bad_format(_: BadPayload) -> Wrong {
    Wrong::err("Bad data format")
}

/// The writes of a value would take too much memory.
pub(super) fn too_many() -> Wrong {
    Wrong::err("the value has more elements than can be written at once")
}

/// Writes an existing stream.
pub(super) async fn dump(call: &Call<'_>, key: &Key) -> Result<Writer, Wrong> {
    let stream = call.access.stream(key).await?.unwrap_or_default();
    let forms = call.server.settings().forms();
    let setting = |of| usize::try_from(forms.get(of)).unwrap_or(usize::MAX);
    let mut writer =
        StreamWriter::new(setting(FormSetting::StreamEntries), setting(FormSetting::StreamBytes));
    let (mut from, mut pace) = (Some(EntryId::ZERO), Pace::default());
    while let Some(first) = from {
        let page = call.access.entries(&stream, first..=EntryId::MAX, Side::Left, AT_ONCE).await?;
        for entry in &page {
            writer.entry(entry.id, &entry.fields()?);
            pace.step().await;
        }
        from = page.last().and_then(|entry| entry.id.next());
    }
    let groups = call.access.groups(&stream).await?;
    let StreamRecord { length, last, first, max_deleted, added, .. } = stream;
    let totals = StreamTotals { length, last, first, max_deleted, added };
    let mut writer = writer.totals(&totals, groups.len());
    for (name, group) in groups {
        StreamWriter::group(&mut writer, &packed(call, &stream, name, &group).await?);
    }
    Ok(writer)
}

/// A group with its consumers and pending entries.
async fn packed(
    call: &Call<'_>,
    stream: &StreamRecord,
    name: Vec<u8>,
    group: &Group,
) -> Result<PackedGroup, Wrong> {
    let (mut consumers, mut places) = (Vec::new(), HashMap::new());
    for (number, consumer) in call.access.consumers(stream, group).await? {
        places.insert(number, consumers.len());
        let (name, seen, active) = (consumer.name, consumer.seen, consumer.active);
        consumers.push(PackedConsumer { name, seen, active });
    }
    let (mut pending, mut from) = (BTreeMap::new(), Some(EntryId::ZERO));
    while let Some(first) = from {
        let page =
            call.access.pending_entries(stream, group, first..=EntryId::MAX, Side::Left, AT_ONCE).await?;
        from = page.last().and_then(|(id, _)| id.next());
        for (id, Pending { consumer, delivered, count }) in page {
            let consumer = places.get(&consumer).copied();
            let consumer = consumer.ok_or(Wrong::storage("a pending entry without a consumer"))?;
            pending.insert(id, PackedPending { delivered, count, consumer });
        }
    }
    Ok(PackedGroup { name, last: group.last, read: group.read, consumers, pending })
}

/// Reads a whole stream, so that nothing is written of one that is damaged or too large.
pub(super) async fn check(mut reader: StreamReader<'_>, at_most: usize) -> Result<(), Wrong> {
    let (mut bytes, mut pace) = (0usize, Pace::default());
    while let Some(part) = reader.next().map_err(bad_format)? {
        bytes += match part {
            StreamPart::Entry(_, fields) => fields.iter().map(|field| field.len() + 4).sum(),
            StreamPart::Deleted | StreamPart::Totals(_) => 0,
            StreamPart::Group(group) => 2 * BYTES_OF_WRITE * (group.pending.len() + group.consumers.len()),
        };
        bytes += BYTES_OF_WRITE;
        if bytes > at_most {
            return Err(too_many());
        }
        pace.step().await;
    }
    Ok(())
}

/// Writes a stream that was checked to a key that is absent. Its entries are committed in `parts`.
pub(super) async fn restore(
    access: &mut Access,
    key: &Key,
    mut reader: StreamReader<'_>,
    parts: Parts,
) -> Result<(), Wrong> {
    let mut stream = access.new_stream(key).await?;
    let (mut pace, counts_reads) = (Pace::default(), reader.counts_reads());
    while let Some(next) = reader.next().map_err(bad_format)? {
        match next {
            StreamPart::Entry(id, fields) => {
                access.append(&mut stream, id, &fields)?;
                if parts.is_full(access) {
                    access.put_stream(&stream, true)?;
                    parts.commit(access, key).await?;
                    let written = access.open_stream(key).await?;
                    stream = written.ok_or(Wrong::storage("a stream is gone while it is written"))?;
                }
            }
            StreamPart::Deleted => {}
            StreamPart::Totals(totals) => {
                let (last, max_deleted, added) = (totals.last, totals.max_deleted, totals.added);
                stream.record = StreamRecord { last, max_deleted, added, ..stream.record };
            }
            StreamPart::Group(mut group) => {
                if !counts_reads {
                    group.read = stream.record.added_up_to(group.last);
                }
                restore_group(access, &mut stream, group).await?;
            }
        }
        pace.step().await;
    }
    access.put_stream(&stream, true)
}

async fn restore_group(
    access: &mut Access,
    stream: &mut OpenStream,
    packed: PackedGroup,
) -> Result<(), Wrong> {
    let group = Group { last: packed.last, read: packed.read, ..Group::default() };
    let mut open = access.new_group(stream, &packed.name, group);
    let (mut numbers, mut pace) = (Vec::new(), Pace::default());
    for PackedConsumer { name, seen, active } in packed.consumers {
        let opened = access.open_consumer(stream, &mut open, &name, true).await?;
        let number = opened.map_or(0, |(number, _)| number);
        let consumer = open.consumer_mut(number);
        (consumer.seen, consumer.active) = (seen, active);
        numbers.push(number);
        pace.step().await;
    }
    for (id, PackedPending { delivered, count, consumer }) in packed.pending {
        let consumer = numbers.get(consumer).copied().unwrap_or_default();
        access.put_pending(stream, &mut open, id, None, Pending { consumer, delivered, count })?;
        pace.step().await;
    }
    access.put_group(stream, &open)
}
