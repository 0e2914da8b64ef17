//! Deliveries of a stream's entries to the consumers of a group, acknowledgements and claims; and
//! how far a group is behind.

use super::super::layout::{Group, Pending, StreamRecord};
use super::groups::{OpenGroup, pause};
use super::streams::{OpenStream, StreamEntry};
use super::walk::Side;
use super::{Access, Millis};
use crate::entry_id::EntryId;
use crate::wrong::Wrong;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Maximum number of entries that one delivery takes of a stream: each is held in memory, and its
/// writes.
const DELIVERED_AT_MOST: u64 = 1 << 20;

/// Manner in which entries change their owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Entries that were delivered later than this many milliseconds ago stay; 0: none.
    pub(crate) min_idle: Millis,
    /// New time of the last delivery.
    pub(crate) delivered: Millis,
    /// New number of deliveries; `None`: one more, or as it is with `just_ids`.
    pub(crate) count: Option<u64>,
    /// Entries that are not pending become so.
    pub(crate) force: bool,
    /// Only the ids are asked for.
    pub(crate) just_ids: bool,
}

impl StreamRecord {
    /// True if the ids from `from` on may have one that XDEL has deleted before the last entry.
    fn has_deleted_from(&self, from: EntryId) -> bool {
        let is_none = self.length == 0 || self.max_deleted == EntryId::ZERO;
        !is_none && self.first <= self.max_deleted && from <= self.max_deleted
    }

    /// Number of entries that were ever added up to an id, if that can be known.
    pub(crate) fn added_up_to(&self, id: EntryId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last || self.length == 0 && id < self.last {
            return Some(self.added);
        }
        let is_whole = self.max_deleted == EntryId::ZERO || self.max_deleted < self.first;
        let before = self.added.saturating_sub(self.length);
        match id.cmp(&self.first) {
            Ordering::Less if is_whole && id < self.last => Some(before),
            Ordering::Equal if is_whole && id < self.last => Some(before + 1),
            _ => None,
        }
    }
}

impl Group {
    /// Number of entries that are to be delivered, if it can be known.
    pub(crate) fn lag(&self, stream: &StreamRecord) -> Option<i64> {
        let read = match self.read {
            _ if stream.added == 0 => return Some(0),
            Some(read) if !stream.has_deleted_from(self.last) => Some(read),
            _ => stream.added_up_to(self.last),
        };
        read.map(|read| stream.added.wrapping_sub(read).cast_signed())
    }

    /// Notes that an entry is delivered.
    fn advance(&mut self, stream: &StreamRecord, id: EntryId) {
        self.read = match self.read {
            Some(read) if !stream.has_deleted_from(id) => Some(read.saturating_add(1)),
            read if stream.added == 0 => read,
            _ => stream.added_up_to(id),
        };
        self.last = id;
    }
}

impl Access {
    /// Delivers up to `count` entries behind the last one that was delivered to a consumer that is
    /// open, 1,048,576 at most. They are pending unless `acknowledges`.
    pub(crate) async fn deliver(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        consumer: u64,
        count: u64,
        acknowledges: bool,
    ) -> Result<Vec<StreamEntry>, Wrong> {
        let Some(from) = open.group.last.next() else { return Ok(Vec::new()) };
        let count = count.min(DELIVERED_AT_MOST);
        let entries = self.entries(&stream.record, from..=EntryId::MAX, Side::Left, count).await?;
        let highest = open.group.highest;
        // Known ones there are only where the group was set back, or entries were claimed by force.
        let looked: Vec<EntryId> =
            entries.iter().map(|entry| entry.id).take_while(|id| *id <= highest && !acknowledges).collect();
        let mut known = self.pending_of(&stream.record, &open.group, &looked).await?;
        known.resize(entries.len(), None);
        self.open_owners(stream, open, known.iter().copied().flatten()).await?;
        let now = self.now();
        for (number, (entry, before)) in entries.iter().zip(known).enumerate() {
            open.group.advance(&stream.record, entry.id);
            if !acknowledges {
                let pending = Pending { consumer, delivered: now, count: 1 };
                self.put_pending(stream, open, entry.id, before, pending)?;
            }
            pause(number).await;
        }
        if !entries.is_empty() {
            open.consumer_mut(consumer).active = Some(now);
        }
        Ok(entries)
    }

    /// Delivers up to `count` pending entries from `from` on to the consumer that they were
    /// delivered to before. Those that were removed from the stream have only their ids.
    pub(crate) async fn deliver_again(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        consumer: u64,
        from: EntryId,
        count: u64,
    ) -> Result<Vec<(EntryId, Option<StreamEntry>)>, Wrong> {
        let count = count.min(DELIVERED_AT_MOST);
        let pending = self.pending_owned(&stream.record, &open.group, consumer, from, count).await?;
        let ids: Vec<EntryId> = pending.iter().map(|(id, _)| *id).collect();
        let entries = self.entries_of(&stream.record, &ids).await?;
        let now = self.now();
        for (number, ((id, before), entry)) in pending.iter().zip(&entries).enumerate() {
            if entry.is_some() {
                let again = Pending { delivered: now, count: before.count.saturating_add(1), ..*before };
                self.put_pending(stream, open, *id, Some(*before), again)?;
            }
            pause(number).await;
        }
        if !ids.is_empty() {
            open.consumer_mut(consumer).active = Some(now);
        }
        Ok(ids.into_iter().zip(entries).collect())
    }

    /// Ends the pending state of entries. Returns the number of those that were pending.
    pub(crate) async fn acknowledge(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        ids: &[EntryId],
    ) -> Result<u64, Wrong> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let found = self.pending_of(&stream.record, &open.group, &ids).await?;
        self.open_owners(stream, open, found.iter().copied().flatten()).await?;
        let mut gone = Vec::new();
        for (id, pending) in ids.into_iter().zip(found) {
            let Some(pending) = pending else { continue };
            self.drop_pending(stream, open, id, pending.consumer)?;
            pause(gone.len()).await;
            gone.push(id);
        }
        self.raise_lowest(stream, open, &gone).await?;
        Ok(gone.len() as u64)
    }

    /// Makes a consumer that is open the owner of entries. Returns those that it has now, and the
    /// ids of pending ones that are not in the stream any more, which end to be pending.
    pub(crate) async fn claim(
        &mut self,
        stream: &mut OpenStream,
        open: &mut OpenGroup,
        consumer: u64,
        ids: &[EntryId],
        claim: &Claim,
    ) -> Result<(Vec<StreamEntry>, Vec<EntryId>), Wrong> {
        let entries = self.entries_of(&stream.record, ids).await?;
        let found = self.pending_of(&stream.record, &open.group, ids).await?;
        self.open_owners(stream, open, found.iter().copied().flatten()).await?;
        let mut known: BTreeMap<EntryId, Option<Pending>> = ids.iter().copied().zip(found).collect();
        let (mut taken, mut gone, now) = (Vec::new(), Vec::new(), self.now());
        for (number, (id, entry)) in ids.iter().zip(entries).enumerate() {
            pause(number).await;
            let Some(before) = known.get_mut(id) else { continue };
            match (entry, *before) {
                (None, Some(pending)) => {
                    self.drop_pending(stream, open, *id, pending.consumer)?;
                    gone.push(*id);
                    *before = None;
                }
                (None, None) => {}
                (Some(_), Some(pending))
                    if claim.min_idle > 0 && now.saturating_sub(pending.delivered) < claim.min_idle => {}
                (Some(_), None) if !claim.force => {}
                (Some(entry), _) => {
                    // One that is made by force was delivered once, as Redis counts it.
                    let count = before.map_or(1, |pending| pending.count);
                    let count = claim.count.unwrap_or(count.saturating_add((!claim.just_ids).into()));
                    let after = Pending { consumer, delivered: claim.delivered, count };
                    self.put_pending(stream, open, *id, *before, after)?;
                    *before = Some(after);
                    taken.push(entry);
                }
            }
        }
        self.raise_lowest(stream, open, &gone).await?;
        if !taken.is_empty() {
            open.consumer_mut(consumer).active = Some(now);
        }
        Ok((taken, gone))
    }
}
