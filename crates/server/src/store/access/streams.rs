//! Streams: entries in the order of their ids, and the record with its counts and ids.
//!
//! A command that writes opens the stream, changes it, and puts its record at the end
//! ([`Access::put_stream`]). Adding takes constant time. The record has the first entry's id, so
//! that a walk does not step over the entries that were removed before it.

use super::super::layout::{
    Body, Head, StreamRecord, entry_key, entry_value, group_key, split_entry, split_fields, stream_value,
};
use super::walk::Side;
use super::{Access, DeadVersion, Key, Kind, expect};
use crate::entry_id::EntryId;
use crate::wrong::Wrong;
use karstdb::Value;
use karstdb::io::yield_now;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

const STREAM: Kind = Kind::Stream;
/// Number of entries up to which those that go are deleted one by one even if all go.
const SMALL: u64 = 128;
/// Entries that are written, or read by one round of lookups, before other tasks run.
const AT_ONCE: usize = 256;
/// Maximum number of entries that one call removes, unless it takes all: the id of each is held in
/// memory, and its deletion.
pub(super) const REMOVED_AT_MOST: u64 = if cfg!(test) { 1000 } else { 4 << 20 };

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct StreamEntry {
    pub(crate) id: EntryId,
    value: Value,
}

impl StreamEntry {
    /// Its fields and their values, in turns.
    ///
    /// # Errors
    /// The store is damaged.
    pub(crate) fn fields(&self) -> Result<Vec<&[u8]>, Wrong> {
        let fields =
            split_fields(&self.value).ok_or(Wrong::storage("an entry of no layout of this store"))?;
        Ok(fields.into_iter().map(|range| &self.value[range]).collect())
    }
}

/// A stream that is being written.
pub(crate) struct OpenStream {
    pub(crate) key: Key,
    /// The head as it was stored; `None`: there was no key.
    head: Option<Head>,
    pub(crate) record: StreamRecord,
}

pub(super) fn stream_of(head: &Head) -> Option<StreamRecord> {
    match head.body {
        Body::Stream(stream) => Some(stream),
        Body::String { .. } | Body::Collection(_) => None,
    }
}

impl Access {
    /// Returns the record of a stream; what follows sees the same state.
    ///
    /// # Errors
    /// `WRONGTYPE`, as for [`open_stream`](Self::open_stream).
    pub(crate) async fn stream(&self, key: &Key) -> Result<Option<StreamRecord>, Wrong> {
        self.pin();
        let record = expect(self.live(key).await?, STREAM)?;
        Ok(record.and_then(|record| stream_of(&record.head)))
    }

    /// Opens a stream to write it.
    pub(crate) async fn open_stream(&mut self, key: &Key) -> Result<Option<OpenStream>, Wrong> {
        let head = expect(self.live_to_write(key).await?, STREAM)?.map(|record| record.head);
        Ok(head.and_then(|head| {
            let record = stream_of(&head)?;
            Some(OpenStream { key: key.clone(), head: Some(head), record })
        }))
    }

    /// Makes a stream in place of none.
    pub(crate) async fn new_stream(&mut self, key: &Key) -> Result<OpenStream, Wrong> {
        let record = StreamRecord { version: self.new_version(key.db).await?, ..StreamRecord::default() };
        Ok(OpenStream { key: key.clone(), head: None, record })
    }

    /// Writes the record of a stream, of which those who watch the key and wait for it are `told`.
    pub(crate) fn put_stream(&mut self, stream: &OpenStream, told: bool) -> Result<(), Wrong> {
        let expiry = stream.head.and_then(|head| head.expiry);
        let value = stream_value(expiry, &stream.record);
        self.write_head(&stream.key, stream.head.as_ref(), expiry, &value)?;
        if told { self.touch(&stream.key) } else { Ok(()) }
    }

    /// Returns up to `count` entries with these ids from an end on.
    pub(crate) async fn entries(
        &self,
        stream: &StreamRecord,
        ids: RangeInclusive<EntryId>,
        end: Side,
        count: u64,
    ) -> Result<Vec<StreamEntry>, Wrong> {
        let mut found = Vec::new();
        let (first, last) = (*ids.start().max(&stream.first), *ids.end().min(&stream.last));
        if stream.length == 0 || first > last || count == 0 {
            return Ok(found);
        }
        let mut behind = entry_key(stream.version, last);
        behind.push(0);
        let lower = entry_key(stream.version, first).to_vec();
        let mut walk = self.walk_within(&self.store.0.elements, lower, Some(behind.to_vec()))?;
        walk.begin(end).await?;
        while let Some((key, _)) = walk.entry() {
            found.push(StreamEntry { id: split_entry(key)?, value: walk.value() });
            if found.len() as u64 >= count {
                break;
            }
            walk.leave(end).await?;
        }
        Ok(found)
    }

    /// Returns the entries of many ids, read at the same time, in the order of `ids`.
    pub(crate) async fn entries_of(
        &self,
        stream: &StreamRecord,
        ids: &[EntryId],
    ) -> Result<Vec<Option<StreamEntry>>, Wrong> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let keys: Vec<_> = ids.iter().map(|id| entry_key(stream.version, *id)).collect();
            let values = self.multi_get(&self.store.0.elements, &keys).await?;
            found.extend(
                ids.iter().zip(values).map(|(id, value)| value.map(|value| StreamEntry { id: *id, value })),
            );
        }
        Ok(found)
    }

    /// Adds an entry, whose id is behind the last one, with fields and values in turns.
    pub(crate) fn append<F: AsRef<[u8]>>(
        &mut self,
        stream: &mut OpenStream,
        id: EntryId,
        fields: &[F],
    ) -> Result<(), Wrong> {
        let (record, store) = (&mut stream.record, self.store.clone());
        let key = entry_key(record.version, id);
        self.changes()?.batch.put_cf(&store.0.elements, key, entry_value(fields))?;
        if record.length == 0 {
            record.first = id;
        }
        record.last = id;
        record.length += 1;
        record.added = record.added.saturating_add(1);
        Ok(())
    }

    /// Undoes [`append`](Self::append), in the batch alone: the stream is not put afterwards.
    pub(crate) fn take_back(&mut self, stream: &OpenStream, id: EntryId) -> Result<(), Wrong> {
        let (key, store) = (entry_key(stream.record.version, id), self.store.clone());
        Ok(self.changes()?.batch.delete_cf(&store.0.elements, key)?)
    }

    /// Removes the first entries: up to `count`, with ids up to `last`. Returns their number. Their
    /// ids do not count as deleted.
    ///
    /// # Errors
    /// More than 4,194,304 are to go, and not all; nothing is removed.
    pub(crate) async fn trim(
        &mut self,
        stream: &mut OpenStream,
        last: EntryId,
        count: u64,
    ) -> Result<u64, Wrong> {
        let record = stream.record;
        if record.length == 0 || count == 0 || last < record.first {
            return Ok(0);
        }
        if count >= record.length && last >= record.last && record.length > SMALL && record.others == 0 {
            let version = self.new_version(stream.key.db).await?;
            let dead = DeadVersion { version: record.version, elements: record.length };
            self.changes()?.dead.push(dead);
            stream.record = StreamRecord { version, length: 0, first: EntryId::ZERO, ..record };
            return Ok(record.length);
        }
        let mut gone = Vec::new();
        let lower = entry_key(record.version, record.first).to_vec();
        let upper = group_key(record.version, &[]).to_vec();
        let mut walk = self.walk_within(&self.store.0.elements, lower, Some(upper))?;
        walk.first().await?;
        let mut first = EntryId::ZERO;
        while let Some((key, _)) = walk.entry() {
            let id = split_entry(key)?;
            if id > last || gone.len() as u64 >= count {
                first = id;
                break;
            }
            if gone.len() as u64 >= REMOVED_AT_MOST {
                return Err(Wrong::err("more than 4194304 entries are to be trimmed; trim them in parts"));
            }
            gone.push(id);
            walk.next().await?;
        }
        drop(walk);
        self.delete_entries(stream, &gone).await?;
        stream.record.first = first;
        Ok(gone.len() as u64)
    }

    /// Removes entries by their ids. Returns the number of those that were there.
    pub(crate) async fn remove_entries(
        &mut self,
        stream: &mut OpenStream,
        ids: &[EntryId],
    ) -> Result<u64, Wrong> {
        let ids: BTreeSet<EntryId> = ids.iter().copied().collect();
        let ids: Vec<EntryId> = ids.into_iter().collect();
        let found = self.entries_of(&stream.record, &ids).await?;
        let gone: Vec<EntryId> = found.into_iter().flatten().map(|entry| entry.id).collect();
        let Some(highest) = gone.last() else { return Ok(0) };
        self.delete_entries(stream, &gone).await?;
        stream.record.max_deleted = stream.record.max_deleted.max(*highest);
        if stream.record.length == 0 {
            stream.record.first = EntryId::ZERO;
        } else if gone[0] <= stream.record.first {
            let record = stream.record;
            let first = self.entries(&record, gone[0]..=EntryId::MAX, Side::Left, 1).await?;
            stream.record.first = first.first().map_or(record.first, |entry| entry.id);
        }
        Ok(gone.len() as u64)
    }

    /// Deletes existing entries.
    async fn delete_entries(&mut self, stream: &mut OpenStream, ids: &[EntryId]) -> Result<(), Wrong> {
        let store = self.store.clone();
        for ids in ids.chunks(AT_ONCE) {
            for id in ids {
                let key = entry_key(stream.record.version, *id);
                self.changes()?.batch.delete_cf(&store.0.elements, key)?;
            }
            if ids.len() == AT_ONCE {
                yield_now().await;
            }
        }
        stream.record.length = stream.record.length.saturating_sub(ids.len() as u64);
        Ok(())
    }
}
