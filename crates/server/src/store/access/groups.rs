//! Groups of consumers of a stream, pending entries and their owners. Deliveries are in
//! `deliveries`.
//!
//! A command that writes opens the stream and the group, changes them, and puts both at the end
//! ([`Access::put_group`], [`Access::put_stream`]).
//!
//! Invariants:
//! - A pending entry has one element by its id, with its consumer's number, and one by consumer and
//!   id. [`Access::put_pending`] and [`Access::drop_pending`] are the only writers of both, and
//!   count them in the group, the consumer and the stream.
//! - The group's `lowest` is the id of the first pending entry, so that a walk does not step over
//!   those that were acknowledged before it. No pending entry is behind `highest`, so that
//!   deliveries in the order of ids look for none.

use super::super::events::Classes;
use super::super::layout::{
    self, Consumer, Group, Pending, StreamRecord, consumer_key, consumer_name_key, group_key, group_prefixes,
    owned_key, owned_prefix, pending_key, split_consumer_name, split_group_key, split_owned,
    split_pending_key,
};
use super::Access;
use super::streams::{OpenStream, REMOVED_AT_MOST};
use super::walk::Side;
use crate::entry_id::EntryId;
use crate::wrong::Wrong;
use karstdb::io::yield_now;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Pending entries that are looked at or changed before other tasks run.
const AT_ONCE: usize = 256;

/// A group that is being written, with the consumers that were looked at.
pub(crate) struct OpenGroup {
    name: Vec<u8>,
    pub(crate) group: Group,
    /// By their numbers; `put_group` writes them.
    consumers: BTreeMap<u64, Consumer>,
}

impl OpenGroup {
    /// A consumer that was opened.
    pub(crate) fn consumer_mut(&mut self, number: u64) -> &mut Consumer {
        self.consumers.entry(number).or_default()
    }
}

impl Access {
    /// Finds a group by its name.
    pub(crate) async fn group(&self, stream: &StreamRecord, name: &[u8]) -> Result<Option<Group>, Wrong> {
        let key = group_key(stream.version, name);
        let value = self.get(&self.store.0.elements, &key).await?;
        Ok(value.map(|value| Group::decode(&key, &value)).transpose()?)
    }

    /// Returns all groups with their names, in the order of the names.
    pub(crate) async fn groups(&self, stream: &StreamRecord) -> Result<Vec<(Vec<u8>, Group)>, Wrong> {
        let mut walk = self.walk(&self.store.0.elements, &group_key(stream.version, &[]))?;
        let mut found = Vec::new();
        walk.first().await?;
        while let Some((key, value)) = walk.entry() {
            found.push((split_group_key(key)?.to_vec(), Group::decode(key, value)?));
            walk.next().await?;
        }
        Ok(found)
    }

    /// Opens a group to write it.
    pub(crate) async fn open_group(
        &self,
        stream: &OpenStream,
        name: &[u8],
    ) -> Result<Option<OpenGroup>, Wrong> {
        let group = self.group(&stream.record, name).await?;
        Ok(group.map(|group| OpenGroup { name: name.to_vec(), group, consumers: BTreeMap::new() }))
    }

    /// Makes a group of a name that no group has.
    pub(crate) fn new_group(&self, stream: &mut OpenStream, name: &[u8], group: Group) -> OpenGroup {
        stream.record.others += 1;
        let group = Group { number: next_number(stream), ..group };
        OpenGroup { name: name.to_vec(), group, consumers: BTreeMap::new() }
    }

    /// Writes a group and those of its consumers that were opened.
    pub(crate) fn put_group(&mut self, stream: &OpenStream, open: &OpenGroup) -> Result<(), Wrong> {
        let (version, store) = (stream.record.version, self.store.clone());
        let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
        batch.put_cf(elements, group_key(version, &open.name), open.group.encode())?;
        for (number, consumer) in &open.consumers {
            batch.put_cf(elements, consumer_key(version, open.group.number, *number), consumer.encode())?;
        }
        Ok(())
    }

    /// Removes a group with all that it has.
    ///
    /// # Errors
    /// It has more than 4,194,304 pending entries; nothing is removed.
    pub(crate) async fn remove_group(
        &mut self,
        stream: &mut OpenStream,
        open: OpenGroup,
    ) -> Result<(), Wrong> {
        refuse_many(open.group.pending)?;
        let (version, store) = (stream.record.version, self.store.clone());
        let elements = &store.0.elements;
        let mut removed = 1;
        for prefix in group_prefixes(version, open.group.number) {
            let mut gone = Vec::new();
            let mut walk = self.walk(elements, &prefix)?;
            walk.first().await?;
            while let Some((key, _)) = walk.entry() {
                gone.push(layout::Bytes::from_slice(key));
                walk.next().await?;
            }
            removed += gone.len() as u64;
            for (number, key) in gone.iter().enumerate() {
                self.changes()?.batch.delete_cf(elements, key)?;
                pause(number).await;
            }
        }
        self.changes()?.batch.delete_cf(elements, group_key(version, &open.name))?;
        stream.record.others = stream.record.others.saturating_sub(removed);
        Ok(())
    }

    /// Finds a consumer, with its number.
    pub(crate) async fn consumer(
        &self,
        stream: &StreamRecord,
        group: &Group,
        name: &[u8],
    ) -> Result<Option<(u64, Consumer)>, Wrong> {
        let key = consumer_name_key(stream.version, group.number, name);
        let Some(value) = self.get(&self.store.0.elements, &key).await? else { return Ok(None) };
        let (_, number) = split_consumer_name(&key, &value)?;
        let found = self.consumers_of(stream, group, &[number]).await?;
        Ok(found.into_iter().next())
    }

    /// Returns consumers by their numbers.
    pub(crate) async fn consumers_of(
        &self,
        stream: &StreamRecord,
        group: &Group,
        numbers: &[u64],
    ) -> Result<BTreeMap<u64, Consumer>, Wrong> {
        let mut found = BTreeMap::new();
        for numbers in numbers.chunks(AT_ONCE) {
            let key = |number: &u64| consumer_key(stream.version, group.number, *number);
            let keys: Vec<_> = numbers.iter().map(key).collect();
            let values = self.multi_get(&self.store.0.elements, &keys).await?;
            for ((number, key), value) in numbers.iter().zip(&keys).zip(values) {
                let value = value.ok_or_else(|| layout::corrupt(layout::ELEMENTS, key))?;
                found.insert(*number, Consumer::decode(key, &value)?);
            }
        }
        Ok(found)
    }

    /// Returns all consumers with their numbers, in the order of their names.
    pub(crate) async fn consumers(
        &self,
        stream: &StreamRecord,
        group: &Group,
    ) -> Result<Vec<(u64, Consumer)>, Wrong> {
        let mut numbers = Vec::new();
        let prefix = consumer_name_key(stream.version, group.number, &[]);
        let mut walk = self.walk(&self.store.0.elements, &prefix)?;
        walk.first().await?;
        while let Some((key, value)) = walk.entry() {
            numbers.push(split_consumer_name(key, value)?.1);
            walk.next().await?;
        }
        let mut found = self.consumers_of(stream, group, &numbers).await?;
        Ok(numbers.iter().filter_map(|number| found.remove_entry(number)).collect())
    }

    /// Opens a consumer, and creates a missing one if `makes`. Returns its number, and true if
    /// it is new.
    pub(crate) async fn open_consumer(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        name: &[u8],
        makes: bool,
    ) -> Result<Option<(u64, bool)>, Wrong> {
        if let Some((number, consumer)) = self.consumer(&stream.record, &open.group, name).await? {
            open.consumers.entry(number).or_insert(consumer);
            return Ok(Some((number, false)));
        }
        if !makes {
            return Ok(None);
        }
        let (number, store) = (next_number(stream), self.store.clone());
        let key = consumer_name_key(stream.record.version, open.group.number, name);
        self.changes()?.batch.put_cf(&store.0.elements, key, number.to_be_bytes())?;
        let consumer = Consumer { name: name.to_vec(), seen: self.now(), active: None, pending: 0 };
        open.consumers.insert(number, consumer);
        open.group.consumers += 1;
        stream.record.others += 2;
        self.event(Classes::STREAM, "xgroup-createconsumer", &stream.key);
        Ok(Some((number, true)))
    }

    /// Opens consumers by their numbers.
    pub(super) async fn open_owners(
        &self,
        stream: &OpenStream,
        open: &mut OpenGroup,
        pending: impl Iterator<Item = Pending>,
    ) -> Result<(), Wrong> {
        let mut numbers: Vec<u64> = pending.map(|pending| pending.consumer).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| !open.consumers.contains_key(number));
        let found = self.consumers_of(&stream.record, &open.group, &numbers).await?;
        open.consumers.extend(found);
        Ok(())
    }

    /// Removes a consumer that is open, with its pending entries. Returns their number.
    ///
    /// # Errors
    /// They are more than 4,194,304; nothing is removed.
    pub(crate) async fn remove_consumer(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        number: u64,
    ) -> Result<u64, Wrong> {
        refuse_many(open.consumer_mut(number).pending)?;
        let owned = self.owned(&stream.record, &open.group, number, EntryId::ZERO, u64::MAX).await?;
        for (count, id) in owned.iter().enumerate() {
            self.drop_pending(stream, open, *id, number)?;
            pause(count).await;
        }
        self.raise_lowest(stream, open, &owned).await?;
        let Some(consumer) = open.consumers.remove(&number) else { return Ok(0) };
        let (version, group, store) = (stream.record.version, open.group.number, self.store.clone());
        let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
        batch.delete_cf(elements, consumer_name_key(version, group, &consumer.name))?;
        batch.delete_cf(elements, consumer_key(version, group, number))?;
        open.group.consumers = open.group.consumers.saturating_sub(1);
        stream.record.others = stream.record.others.saturating_sub(2);
        Ok(owned.len() as u64)
    }

    /// Returns the pending entries of many ids, in the order of `ids`.
    pub(super) async fn pending_of(
        &self,
        stream: &StreamRecord,
        group: &Group,
        ids: &[EntryId],
    ) -> Result<Vec<Option<Pending>>, Wrong> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let key = |id: &EntryId| pending_key(stream.version, group.number, *id);
            let keys: Vec<_> = ids.iter().map(key).collect();
            let values = self.multi_get(&self.store.0.elements, &keys).await?;
            for (key, value) in keys.iter().zip(values) {
                found.push(value.map(|value| Pending::decode(key, &value)).transpose()?);
            }
        }
        Ok(found)
    }

    /// Returns up to `count` pending entries of a group, with their ids, from an end on.
    pub(crate) async fn pending_entries(
        &self,
        stream: &StreamRecord,
        group: &Group,
        ids: RangeInclusive<EntryId>,
        end: Side,
        count: u64,
    ) -> Result<Vec<(EntryId, Pending)>, Wrong> {
        let mut found = Vec::new();
        let (first, last) = (*ids.start().max(&group.lowest), *ids.end().min(&group.highest));
        if group.pending == 0 || first > last || count == 0 {
            return Ok(found);
        }
        let lower = pending_key(stream.version, group.number, first).to_vec();
        let mut behind = pending_key(stream.version, group.number, last);
        behind.push(0);
        let mut walk = self.walk_within(&self.store.0.elements, lower, Some(behind.to_vec()))?;
        walk.begin(end).await?;
        while let Some((key, value)) = walk.entry() {
            found.push((split_pending_key(key)?, Pending::decode(key, value)?));
            if found.len() as u64 >= count {
                break;
            }
            walk.leave(end).await?;
        }
        Ok(found)
    }

    /// Returns the ids of up to `count` pending entries of a consumer from `from` on.
    async fn owned(
        &self,
        stream: &StreamRecord,
        group: &Group,
        consumer: u64,
        from: EntryId,
        count: u64,
    ) -> Result<Vec<EntryId>, Wrong> {
        let mut found = Vec::new();
        if group.pending == 0 || count == 0 {
            return Ok(found);
        }
        let prefix = owned_prefix(stream.version, group.number, consumer);
        let mut walk = self.walk(&self.store.0.elements, &prefix)?;
        let from = from.max(group.lowest);
        walk.seek(&owned_key(stream.version, group.number, consumer, from)).await?;
        while let Some((key, _)) = walk.entry() {
            found.push(split_owned(key)?);
            if found.len() as u64 >= count {
                break;
            }
            walk.next().await?;
        }
        Ok(found)
    }

    /// Returns up to `count` pending entries of a consumer from `from` on, with their ids.
    pub(crate) async fn pending_owned(
        &self,
        stream: &StreamRecord,
        group: &Group,
        consumer: u64,
        from: EntryId,
        count: u64,
    ) -> Result<Vec<(EntryId, Pending)>, Wrong> {
        let ids = self.owned(stream, group, consumer, from, count).await?;
        let found = self.pending_of(stream, group, &ids).await?;
        Ok(ids.into_iter().zip(found).filter_map(|(id, pending)| Some((id, pending?))).collect())
    }

    /// Writes a pending entry in place of `before`. Its consumer is open, and that of `before`.
    pub(crate) fn put_pending(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        id: EntryId,
        before: Option<Pending>,
        pending: Pending,
    ) -> Result<(), Wrong> {
        let (version, group, store) = (stream.record.version, open.group.number, self.store.clone());
        let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
        batch.put_cf(elements, pending_key(version, group, id), pending.encode())?;
        let owner = before.map(|before| before.consumer);
        if owner == Some(pending.consumer) {
            return Ok(());
        }
        batch.put_cf(elements, owned_key(version, group, pending.consumer, id), [])?;
        open.consumer_mut(pending.consumer).pending += 1;
        match owner {
            Some(owner) => {
                batch.delete_cf(elements, owned_key(version, group, owner, id))?;
                let count = &mut open.consumer_mut(owner).pending;
                *count = count.saturating_sub(1);
            }
            None => {
                let is_first = open.group.pending == 0;
                open.group.lowest = if is_first { id } else { open.group.lowest.min(id) };
                open.group.highest = open.group.highest.max(id);
                open.group.pending += 1;
                stream.record.others += 2;
            }
        }
        Ok(())
    }

    /// Deletes a pending entry of a consumer that is open. [`raise_lowest`](Self::raise_lowest)
    /// follows.
    pub(super) fn drop_pending(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        id: EntryId,
        consumer: u64,
    ) -> Result<(), Wrong> {
        let (version, group, store) = (stream.record.version, open.group.number, self.store.clone());
        let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
        batch.delete_cf(elements, pending_key(version, group, id))?;
        batch.delete_cf(elements, owned_key(version, group, consumer, id))?;
        let count = &mut open.consumer_mut(consumer).pending;
        *count = count.saturating_sub(1);
        open.group.pending = open.group.pending.saturating_sub(1);
        stream.record.others = stream.record.others.saturating_sub(2);
        Ok(())
    }

    /// Finds the first pending entry again if it is one of those that were deleted.
    pub(super) async fn raise_lowest(
        &self,
        stream: &OpenStream,
        open: &mut OpenGroup,
        deleted: &[EntryId],
    ) -> Result<(), Wrong> {
        let lowest = open.group.lowest;
        if open.group.pending > 0 && deleted.contains(&lowest) {
            let all = lowest..=EntryId::MAX;
            let first = self.pending_entries(&stream.record, &open.group, all, Side::Left, 1).await?;
            open.group.lowest = first.first().map_or(lowest, |(id, _)| *id);
        }
        Ok(())
    }
}

/// The next number of a group or a consumer.
fn next_number(stream: &mut OpenStream) -> u64 {
    let number = stream.record.next_number;
    stream.record.next_number += 1;
    number
}

fn refuse_many(pending: u64) -> Result<(), Wrong> {
    match pending > REMOVED_AT_MOST {
        true => Err(Wrong::err("more than 4194304 entries are pending; acknowledge some of them before")),
        false => Ok(()),
    }
}

/// Lets other tasks run after many steps.
pub(super) async fn pause(number: usize) {
    if number % AT_ONCE == AT_ONCE - 1 {
        yield_now().await;
    }
}
