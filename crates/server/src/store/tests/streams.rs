//! Streams with groups for the model: changes, made in the model and in a store, and the whole of a
//! stream as it is read from a store.

use super::super::*;
use crate::entry_id::EntryId;
use karst_testkit::random::Random;
use std::collections::BTreeMap;

const ALL: std::ops::RangeInclusive<EntryId> = EntryId::ZERO..=EntryId::MAX;

/// A stream in the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelStream {
    entries: BTreeMap<EntryId, Vec<Vec<u8>>>,
    last: EntryId,
    max_deleted: EntryId,
    added: u64,
    groups: BTreeMap<Vec<u8>, ModelGroup>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelGroup {
    last: EntryId,
    /// Times at which each was seen and active.
    consumers: BTreeMap<Vec<u8>, (Millis, Option<Millis>)>,
    /// Consumer, time and number of deliveries.
    pending: BTreeMap<EntryId, (Vec<u8>, Millis, u64)>,
}

/// A change of a stream.
#[derive(Clone, Debug)]
pub(super) enum StreamChange {
    /// Adds an entry after a number of milliseconds, and keeps up to a number of entries.
    Add(u64, Vec<Vec<u8>>, Option<u64>),
    /// Removes the first entries: up to an id, and a number.
    Trim(EntryId, u64),
    Remove(Vec<EntryId>),
    MakeGroup(Vec<u8>, EntryId),
    /// The rest is for this group, if there is one.
    OfGroup(Vec<u8>, GroupChange),
}

/// A change of a group.
#[derive(Clone, Debug)]
pub(super) enum GroupChange {
    Remove,
    SetBack(EntryId),
    RemoveConsumer(Vec<u8>),
    /// Delivers to a consumer; true: entries are not pending.
    Deliver(Vec<u8>, u64, bool),
    DeliverAgain(Vec<u8>, EntryId, u64),
    Acknowledge(Vec<EntryId>),
    /// A consumer claims; true: by force.
    Claim(Vec<u8>, Vec<EntryId>, bool),
}

fn random_id(random: &mut Random) -> EntryId {
    EntryId::new(random.below(40), random.below(2))
}

fn random_ids(random: &mut Random) -> Vec<EntryId> {
    (0..=random.below(6)).map(|_| random_id(random)).collect()
}

pub(super) fn random_stream_change(random: &mut Random) -> StreamChange {
    let name = |random: &mut Random| vec![b'g' + random.below(2) as u8; 1 + random.below(2) as usize];
    let consumer = |random: &mut Random| vec![b'c'; random.below(3) as usize];
    match random.below(20) {
        0..7 => {
            let fields = (0..2).map(|_| random.bytes(random.clone().below(4) as usize)).collect();
            StreamChange::Add(random.below(3), fields, Some(random.below(9)).filter(|_| random.one_in(4)))
        }
        7 => StreamChange::Trim(random_id(random), random.below(5)),
        8 => StreamChange::Remove(random_ids(random)),
        9..11 => StreamChange::MakeGroup(name(random), random_id(random)),
        _ => {
            let change = match random.below(16) {
                0 => GroupChange::Remove,
                1 => GroupChange::SetBack(random_id(random)),
                2 => GroupChange::RemoveConsumer(consumer(random)),
                3..8 => GroupChange::Deliver(consumer(random), 1 + random.below(4), random.one_in(5)),
                8 => GroupChange::DeliverAgain(consumer(random), random_id(random), 1 + random.below(3)),
                9..13 => GroupChange::Acknowledge(random_ids(random)),
                _ => GroupChange::Claim(consumer(random), random_ids(random), random.one_in(2)),
            };
            StreamChange::OfGroup(name(random), change)
        }
    }
}

/// The id of an entry that is added.
fn next_id(last: EntryId, later: u64) -> EntryId {
    let behind = last.next().expect("few entries");
    EntryId::new(last.ms() + later, 0).max(behind)
}

impl ModelStream {
    /// True for changes that make a stream where there is none.
    pub(super) fn is_made_by(change: &StreamChange) -> bool {
        matches!(change, StreamChange::Add(..) | StreamChange::MakeGroup(..))
    }

    pub(super) fn change(&mut self, change: &StreamChange, now: Millis) {
        match change {
            StreamChange::Add(later, fields, most) => {
                self.last = next_id(self.last, *later);
                self.added += 1;
                self.entries.insert(self.last, fields.clone());
                while most.is_some_and(|most| self.entries.len() as u64 > most) {
                    self.entries.pop_first();
                }
            }
            StreamChange::Trim(last, count) => {
                let gone: Vec<EntryId> =
                    self.entries.range(..=last).map(|(id, _)| *id).take(*count as usize).collect();
                self.entries.retain(|id, _| !gone.contains(id));
            }
            StreamChange::Remove(ids) => {
                for id in ids {
                    if self.entries.remove(id).is_some() {
                        self.max_deleted = self.max_deleted.max(*id);
                    }
                }
            }
            StreamChange::MakeGroup(name, last) => {
                let fresh = ModelGroup { last: *last, ..ModelGroup::default() };
                self.groups.entry(name.clone()).or_insert(fresh);
            }
            StreamChange::OfGroup(name, GroupChange::Remove) => drop(self.groups.remove(name)),
            StreamChange::OfGroup(name, change) => {
                if let Some(group) = self.groups.get_mut(name) {
                    group.change(&self.entries, change, now);
                }
            }
        }
    }
}

impl ModelGroup {
    /// Notes that a consumer has a command, which has got entries or has not.
    fn see(&mut self, consumer: &[u8], now: Millis, is_active: bool) {
        let times = self.consumers.entry(consumer.to_vec()).or_insert((now, None));
        times.0 = now;
        if is_active {
            times.1 = Some(now);
        }
    }

    fn change(&mut self, entries: &BTreeMap<EntryId, Vec<Vec<u8>>>, change: &GroupChange, now: Millis) {
        match change {
            GroupChange::Remove => {}
            GroupChange::SetBack(last) => self.last = *last,
            GroupChange::RemoveConsumer(name) => {
                self.consumers.remove(name);
                self.pending.retain(|_, (owner, ..)| owner != name);
            }
            GroupChange::Deliver(name, count, acknowledges) => {
                let ids = entries.keys().filter(|id| **id > self.last).take(*count as usize);
                let ids: Vec<EntryId> = ids.copied().collect();
                self.see(name, now, !ids.is_empty());
                for id in ids {
                    self.last = id;
                    if !acknowledges {
                        self.pending.insert(id, (name.clone(), now, 1));
                    }
                }
            }
            GroupChange::DeliverAgain(name, from, count) => {
                let owned = self.pending.range_mut(from..).filter(|(_, (owner, ..))| owner == name);
                let mut any = false;
                for (id, (_, delivered, deliveries)) in owned.take(*count as usize) {
                    any = true;
                    if entries.contains_key(id) {
                        (*delivered, *deliveries) = (now, *deliveries + 1);
                    }
                }
                self.see(name, now, any);
            }
            GroupChange::Acknowledge(ids) => self.pending.retain(|id, _| !ids.contains(id)),
            GroupChange::Claim(name, ids, force) => {
                let mut any = false;
                for id in ids {
                    if !entries.contains_key(id) {
                        self.pending.remove(id);
                    } else if *force || self.pending.contains_key(id) {
                        let count = self.pending.get(id).map_or(1, |(_, _, count)| *count);
                        self.pending.insert(*id, (name.clone(), now, count + 1));
                        any = true;
                    }
                }
                self.see(name, now, any);
            }
        }
    }
}

/// Makes a change in the store.
pub(super) async fn change_stream(
    access: &mut Access,
    key: &Key,
    change: &StreamChange,
) -> Result<(), Wrong> {
    let mut stream = match access.open_stream(key).await? {
        Some(stream) => stream,
        None if ModelStream::is_made_by(change) => access.new_stream(key).await?,
        None => return Ok(()),
    };
    match change {
        StreamChange::Add(later, fields, most) => {
            let id = next_id(stream.record.last, *later);
            access.append(&mut stream, id, fields)?;
            let gone = stream.record.length.saturating_sub(most.unwrap_or(u64::MAX));
            access.trim(&mut stream, EntryId::MAX, gone).await?;
        }
        StreamChange::Trim(last, count) => drop(access.trim(&mut stream, *last, *count).await?),
        StreamChange::Remove(ids) => drop(access.remove_entries(&mut stream, ids).await?),
        StreamChange::MakeGroup(name, last) => {
            if access.group(&stream.record, name).await?.is_none() {
                let group = Group { last: *last, ..Group::default() };
                let open = access.new_group(&mut stream, name, group);
                access.put_group(&stream, &open)?;
            }
        }
        StreamChange::OfGroup(name, change) => {
            if let Some(open) = access.open_group(&stream, name).await? {
                change_group(access, &mut stream, open, change).await?;
            }
        }
    }
    access.put_stream(&stream, true)
}

async fn change_group(
    access: &mut Access,
    stream: &mut OpenStream,
    mut open: OpenGroup,
    change: &GroupChange,
) -> Result<(), Wrong> {
    let name = match change {
        GroupChange::Remove => return access.remove_group(stream, open).await,
        GroupChange::RemoveConsumer(name)
        | GroupChange::Deliver(name, ..)
        | GroupChange::DeliverAgain(name, ..)
        | GroupChange::Claim(name, ..) => Some(name),
        GroupChange::SetBack(_) | GroupChange::Acknowledge(_) => None,
    };
    let makes = !matches!(change, GroupChange::RemoveConsumer(_));
    let consumer = match name {
        Some(name) => access.open_consumer(stream, &mut open, name, makes).await?.map(|(number, _)| number),
        None => None,
    };
    let number = consumer.unwrap_or(u64::MAX);
    if let Some(number) = consumer {
        open.consumer_mut(number).seen = access.now();
    }
    match change {
        GroupChange::Remove => {}
        GroupChange::SetBack(last) => open.group.last = *last,
        GroupChange::RemoveConsumer(_) if consumer.is_none() => {}
        GroupChange::RemoveConsumer(_) => drop(access.remove_consumer(stream, &mut open, number).await?),
        GroupChange::Deliver(_, count, acknowledges) => {
            access.deliver(stream, &mut open, number, *count, *acknowledges).await?;
        }
        GroupChange::DeliverAgain(_, from, count) => {
            access.deliver_again(stream, &mut open, number, *from, *count).await?;
        }
        GroupChange::Acknowledge(ids) => drop(access.acknowledge(stream, &mut open, ids).await?),
        GroupChange::Claim(_, ids, force) => {
            let (delivered, force) = (access.now(), *force);
            let claim = Claim { min_idle: 0, delivered, count: None, force, just_ids: false };
            access.claim(stream, &mut open, number, ids, &claim).await?;
        }
    }
    access.put_group(stream, &open)
}

/// Reads all of a stream that is there, and checks its counts and its bounds.
pub(super) async fn read_stream(access: &Access, key: &Key) -> ModelStream {
    let record = access.stream(key).await.unwrap().expect("it was listed");
    let mut stream = ModelStream {
        last: record.last,
        max_deleted: record.max_deleted,
        added: record.added,
        ..ModelStream::default()
    };
    for entry in access.entries(&record, ALL, Side::Left, u64::MAX).await.unwrap() {
        let fields = entry.fields().unwrap().into_iter().map(<[u8]>::to_vec).collect();
        stream.entries.insert(entry.id, fields);
    }
    assert_eq!(record.length, stream.entries.len() as u64);
    assert_eq!(record.first, stream.entries.keys().next().copied().unwrap_or_default());
    for (name, group) in access.groups(&record).await.unwrap() {
        let mut model = ModelGroup { last: group.last, ..ModelGroup::default() };
        let pending = access.pending_entries(&record, &group, ALL, Side::Left, u64::MAX).await.unwrap();
        assert_eq!(group.pending, pending.len() as u64);
        if let (Some((first, _)), Some((last, _))) = (pending.first(), pending.last()) {
            assert!(group.lowest == *first && group.highest >= *last, "{group:?}");
        }
        let consumers = access.consumers(&record, &group).await.unwrap();
        assert_eq!(group.consumers, consumers.len() as u64);
        for (number, consumer) in consumers {
            let owned = access.pending_owned(&record, &group, number, EntryId::ZERO, u64::MAX).await.unwrap();
            assert_eq!(consumer.pending, owned.len() as u64);
            assert!(owned.iter().all(|(_, pending)| pending.consumer == number));
            for (id, pending) in owned {
                model.pending.insert(id, (consumer.name.clone(), pending.delivered, pending.count));
            }
            model.consumers.insert(consumer.name, (consumer.seen, consumer.active));
        }
        assert_eq!(model.pending.len(), pending.len(), "pending entries have owners");
        stream.groups.insert(name, model);
    }
    stream
}

/// Number of entries of a queue that is removed from its beginning.
const QUEUE: u64 = 3000;

#[test]
fn a_stream_used_as_a_queue_stays_fast() {
    super::with_store(|_, store| async move {
        let queue = super::key("queue");
        let mut access = store.change_at(std::slice::from_ref(&queue), 1).await;
        let mut stream = access.new_stream(&queue).await.unwrap();
        let open = access.new_group(&mut stream, b"g", Group::default());
        access.put_group(&stream, &open).unwrap();
        for ms in 1..=QUEUE {
            access.append(&mut stream, EntryId::new(ms, 0), &[b"f", b"v"]).unwrap();
        }
        let mut open = access.open_group(&stream, b"g").await.unwrap().unwrap();
        let (consumer, _) = access.open_consumer(&mut stream, &mut open, b"c", true).await.unwrap().unwrap();
        let delivered = access.deliver(&mut stream, &mut open, consumer, u64::MAX, false).await.unwrap();
        assert_eq!((delivered.len() as u64, open.group.read), (QUEUE, Some(QUEUE)));
        access.put_group(&stream, &open).unwrap();
        access.put_stream(&stream, true).unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        for ms in 1..QUEUE {
            let mut access = store.change_at(std::slice::from_ref(&queue), 1).await;
            let mut stream = access.open_stream(&queue).await.unwrap().unwrap();
            let mut open = access.open_group(&stream, b"g").await.unwrap().unwrap();
            let ids = [EntryId::new(ms, 0)];
            assert_eq!(access.acknowledge(&mut stream, &mut open, &ids).await.unwrap(), 1);
            assert_eq!(access.remove_entries(&mut stream, &ids).await.unwrap(), 1);
            access.put_group(&stream, &open).unwrap();
            access.put_stream(&stream, true).unwrap();
            access.commit(Durability::Logged).await.unwrap();
            // No walk begins before what is left.
            assert_eq!((stream.record.first.ms(), open.group.lowest.ms()), (ms + 1, ms + 1));
        }
        store.check().await;
        let left = read_stream(&store.view(1), &queue).await;
        assert_eq!((left.entries.len(), left.groups[&b"g"[..]].pending.len()), (1, 1));
    });
}
