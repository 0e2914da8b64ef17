//! Groups of consumers of streams: XGROUP, XACK, XPENDING, XCLAIM and XAUTOCLAIM.

use super::pace::Pace;
use super::streams::{OF_STREAMS, ids, reply_entries};
use super::table::Id;
use super::{Call, QUOTED_AT_MOST, containers, quoted};
use crate::entry_id::EntryId;
use crate::numbers::integer_argument;
use crate::store::{Claim, Consumer, Group, Millis, OpenGroup, OpenStream, Pending, Side, StreamRecord};
use crate::wrong::Wrong;
use std::collections::BTreeMap;

/// Entries that XAUTOCLAIM takes without COUNT, and at most, because COUNT is multiplied.
const CLAIMED: u64 = 100;
const CLAIMED_AT_MOST: u64 = i64::MAX.unsigned_abs() / 16;
/// Pending entries that XAUTOCLAIM looks at for each that it may take.
const LOOKS: u64 = 10;
/// Pending entries that are read together.
const AT_ONCE: u64 = 256;

/// No group of that name.
fn no_group(call: &Call<'_>) -> Wrong {
    let (key, group) = (quoted(&call.args[1], QUOTED_AT_MOST), quoted(&call.args[2], QUOTED_AT_MOST));
    Wrong::new(format!("NOGROUP No such key '{key}' or consumer group '{group}'"))
}

/// No group of the name that follows a subcommand and a key.
pub(super) fn no_group_of_key(call: &Call<'_>) -> Wrong {
    let (key, group) = (quoted(&call.args[2], QUOTED_AT_MOST), quoted(&call.args[3], QUOTED_AT_MOST));
    Wrong::new(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// Arguments that a subcommand does not have.
pub(super) fn wrong_subcommand(call: &Call<'_>) -> Wrong {
    let (sub, name) = (quoted(&call.args[1], QUOTED_AT_MOST), call.word(0).to_ascii_uppercase());
    Wrong::err(format_args!("unknown subcommand or wrong number of arguments for '{sub}'. Try {name} HELP."))
}

/// The stream and the group of a command whose first arguments they are.
async fn opened(call: &mut Call<'_>) -> Result<Option<(OpenStream, OpenGroup)>, Wrong> {
    let Some(stream) = call.access.open_stream(&call.key(1)).await? else { return Ok(None) };
    let group = call.access.open_group(&stream, &call.args[2]).await?;
    Ok(group.map(|group| (stream, group)))
}

/// Writes what a command has changed of groups, which those who watch the key are not told.
fn put(call: &mut Call<'_>, stream: &OpenStream, open: &OpenGroup) -> Result<(), Wrong> {
    call.access.put_group(stream, open)?;
    call.access.put_stream(stream, false)
}

pub(super) async fn group(call: &mut Call<'_>) -> Result<(), Wrong> {
    let sub = call.word(1);
    if sub == "help" {
        containers::help(call, Id::XGroup);
        return Ok(());
    }
    let (makes_stream, read) = group_options(call, &sub)?;
    let (key, name) = (call.key(2), call.args[3].clone());
    let stream = call.access.open_stream(&key).await?;
    if sub == "create" {
        return create(call, stream, makes_stream, read).await;
    }
    let mut stream = stream.ok_or(no_stream())?;
    let Some(mut open) = call.access.open_group(&stream, &name).await? else {
        if sub != "destroy" {
            return Err(no_group_of_key(call));
        }
        call.out.integer(0);
        return Ok(());
    };
    match &*sub {
        "setid" => {
            open.group.last = match call.args[4].as_slice() {
                b"$" => stream.record.last,
                b"-" => EntryId::ZERO,
                b"+" => EntryId::MAX,
                id => EntryId::parse(id, 0)?,
            };
            open.group.read = read;
            put(call, &stream, &open)?;
            call.event(OF_STREAMS, "xgroup-setid", &key);
            call.out.ok();
        }
        "destroy" => {
            call.access.remove_group(&mut stream, open).await?;
            // Wakes the clients that wait for entries of the group.
            call.access.put_stream(&stream, true)?;
            call.event(OF_STREAMS, "xgroup-destroy", &key);
            call.out.integer(1);
        }
        "createconsumer" => {
            let opened = call.access.open_consumer(&mut stream, &mut open, &call.args[4], true).await?;
            let is_new = opened.is_some_and(|(_, is_new)| is_new);
            if is_new {
                put(call, &stream, &open)?;
            }
            call.out.integer(is_new.into());
        }
        _ => {
            let mut pending = 0;
            let opened = call.access.open_consumer(&mut stream, &mut open, &call.args[4], false).await?;
            if let Some((number, _)) = opened {
                pending = call.access.remove_consumer(&mut stream, &mut open, number).await?;
                put(call, &stream, &open)?;
                call.event(OF_STREAMS, "xgroup-delconsumer", &key);
            }
            call.out.integer(pending.cast_signed());
        }
    }
    Ok(())
}

/// Parses MKSTREAM and ENTRIESREAD behind the id of CREATE and SETID.
fn group_options(call: &Call<'_>, sub: &str) -> Result<(bool, Option<u64>), Wrong> {
    let (mut makes_stream, mut read, mut at) = (false, None, 5);
    while at < call.args.len() {
        match (sub, &*call.word(at), call.args.get(at + 1)) {
            ("create", "mkstream", _) => makes_stream = true,
            ("create" | "setid", "entriesread", Some(number)) => {
                read = match integer_argument(number)? {
                    -1 => None,
                    number => Some(
                        u64::try_from(number)
                            .map_err(|_| Wrong::err("value for ENTRIESREAD must be positive or -1"))?,
                    ),
                };
                at += 1;
            }
            _ => return Err(wrong_subcommand(call)),
        }
        at += 1;
    }
    let most = if sub == "create" { 8 } else { 7 };
    if call.args.len() > most {
        return Err(wrong_subcommand(call));
    }
    Ok((makes_stream, read))
}

fn no_stream() -> Wrong {
    Wrong::err(
        "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
         MKSTREAM option to create an empty stream automatically.",
    )
}

async fn create(
    call: &mut Call<'_>,
    stream: Option<OpenStream>,
    makes_stream: bool,
    read: Option<u64>,
) -> Result<(), Wrong> {
    if stream.is_none() && !makes_stream {
        return Err(no_stream());
    }
    let last = match (call.args[4].as_slice(), &stream) {
        (b"$", stream) => stream.as_ref().map_or(EntryId::ZERO, |stream| stream.record.last),
        (id, _) => EntryId::parse(id, 0)?,
    };
    let (is_new, key) = (stream.is_none(), call.key(2));
    let mut stream = match stream {
        Some(stream) => stream,
        None => call.access.new_stream(&key).await?,
    };
    if call.access.group(&stream.record, &call.args[3]).await?.is_some() {
        return Err(Wrong::new("BUSYGROUP Consumer Group name already exists"));
    }
    let group = Group { last, read, ..Group::default() };
    let open = call.access.new_group(&mut stream, &call.args[3], group);
    call.access.put_group(&stream, &open)?;
    call.access.put_stream(&stream, is_new)?;
    call.event(OF_STREAMS, "xgroup-create", &key);
    call.out.ok();
    Ok(())
}

pub(super) async fn acknowledge(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut acknowledged = 0;
    if let Some((mut stream, mut open)) = opened(call).await? {
        let ids = ids(&call.args[3..])?;
        acknowledged = call.access.acknowledge(&mut stream, &mut open, &ids).await?;
        if acknowledged > 0 {
            put(call, &stream, &open)?;
        }
    }
    call.out.integer(acknowledged.cast_signed());
    Ok(())
}

/// Range of XPENDING's long form.
struct Pendings {
    first: EntryId,
    last: EntryId,
    count: u64,
    min_idle: Millis,
    /// Number of the argument that is a consumer.
    consumer: Option<usize>,
}

impl Pendings {
    fn parse(call: &Call<'_>) -> Result<Option<Self>, Wrong> {
        let (mut at, mut min_idle) = (3, 0);
        match call.args.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(Wrong::syntax()),
        }
        if call.is(3, "idle") {
            min_idle = integer_argument(&call.args[4])?;
            if call.args.len() < 8 {
                return Err(Wrong::syntax());
            }
            at = 5;
        }
        let count = u64::try_from(integer_argument(&call.args[at + 2])?).unwrap_or(0);
        let first = EntryId::parse_limit(&call.args[at], true)?;
        let last = EntryId::parse_limit(&call.args[at + 1], false)?;
        let consumer = Some(at + 3).filter(|at| *at < call.args.len());
        Ok(Some(Self { first, last, count, min_idle, consumer }))
    }
}

pub(super) async fn pending(call: &mut Call<'_>) -> Result<(), Wrong> {
    let range = Pendings::parse(call)?;
    let stream = call.access.stream(&call.key(1)).await?.ok_or_else(|| no_group(call))?;
    let group = call.access.group(&stream, &call.args[2]).await?.ok_or_else(|| no_group(call))?;
    match range {
        Some(range) => pending_range(call, &stream, &group, &range).await,
        None => pending_summary(call, &stream, &group).await,
    }
}

async fn pending_summary(call: &mut Call<'_>, stream: &StreamRecord, group: &Group) -> Result<(), Wrong> {
    let all = EntryId::ZERO..=EntryId::MAX;
    let first = call.access.pending_entries(stream, group, all.clone(), Side::Left, 1).await?;
    let last = call.access.pending_entries(stream, group, all, Side::Right, 1).await?;
    call.out.array(4);
    call.out.integer(group.pending.cast_signed());
    let (Some((first, _)), Some((last, _))) = (first.first(), last.first()) else {
        call.out.null();
        call.out.null();
        call.out.null_array();
        return Ok(());
    };
    call.out.bulk_text(first);
    call.out.bulk_text(last);
    let consumers = call.access.consumers(stream, group).await?;
    let owners: Vec<&Consumer> =
        consumers.iter().map(|(_, consumer)| consumer).filter(|consumer| consumer.pending > 0).collect();
    call.out.array(owners.len());
    for consumer in owners {
        call.out.array(2);
        call.out.bulk(&consumer.name);
        call.out.bulk_text(consumer.pending);
    }
    Ok(())
}

async fn pending_range(
    call: &mut Call<'_>,
    stream: &StreamRecord,
    group: &Group,
    range: &Pendings,
) -> Result<(), Wrong> {
    let owner = match range.consumer {
        None => None,
        Some(at) => match call.access.consumer(stream, group, &call.args[at]).await? {
            Some((number, _)) => Some(number),
            None => {
                call.out.array(0);
                return Ok(());
            }
        },
    };
    let (now, mut from, mut found) = (call.access.now(), Some(range.first), Vec::new());
    while let Some(first) = from.take().filter(|first| *first <= range.last) {
        let page = match owner {
            None => {
                call.access.pending_entries(stream, group, first..=range.last, Side::Left, AT_ONCE).await?
            }
            Some(owner) => call.access.pending_owned(stream, group, owner, first, AT_ONCE).await?,
        };
        from = page.last().and_then(|(id, _)| id.next());
        for (id, pending) in page.into_iter().take_while(|(id, _)| *id <= range.last) {
            if found.len() as u64 >= range.count {
                from = None;
                break;
            }
            if range.min_idle == 0 || now.saturating_sub(pending.delivered) >= range.min_idle {
                found.push((id, pending));
            }
        }
    }
    let names = names(call, stream, group, &found).await?;
    let mut pace = Pace::default();
    call.out.array(found.len());
    for (id, pending) in found {
        call.out.array(4);
        call.out.bulk_text(id);
        call.out.bulk(names.get(&pending.consumer).map_or(&b""[..], |consumer| &consumer.name[..]));
        call.out.integer(now.saturating_sub(pending.delivered).max(0));
        call.out.integer(pending.count.cast_signed());
        pace.step().await;
    }
    Ok(())
}

/// The consumers of pending entries, by their numbers.
pub(super) async fn names(
    call: &Call<'_>,
    stream: &StreamRecord,
    group: &Group,
    pending: &[(EntryId, Pending)],
) -> Result<BTreeMap<u64, Consumer>, Wrong> {
    let mut numbers: Vec<u64> = pending.iter().map(|(_, pending)| pending.consumer).collect();
    numbers.sort_unstable();
    numbers.dedup();
    call.access.consumers_of(stream, group, &numbers).await
}

/// Parses the least idle time of a command, in milliseconds.
fn min_idle(call: &Call<'_>) -> Result<Millis, Wrong> {
    let name = call.word(0).to_ascii_uppercase();
    let number = integer_argument(&call.args[4]);
    let number = number.map_err(|_| Wrong::err(format_args!("Invalid min-idle-time argument for {name}")))?;
    Ok(number.max(0))
}

pub(super) async fn claim(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut stream, mut open) = opened(call).await?.ok_or_else(|| no_group(call))?;
    let min_idle = min_idle(call)?;
    let ids: Vec<EntryId> = call.args[5..].iter().map_while(|id| EntryId::parse(id, 0).ok()).collect();
    let now = call.access.now();
    let mut claim = Claim { min_idle, delivered: now, count: None, force: false, just_ids: false };
    let (mut last, mut at) = (EntryId::ZERO, 5 + ids.len());
    while let Some(option) = call.args.get(at) {
        let word = call.word(at);
        let number = |value: &[u8]| {
            integer_argument(value).map_err(|_| {
                let name = word.to_ascii_uppercase();
                Wrong::err(format_args!("Invalid {name} option argument for XCLAIM"))
            })
        };
        match (&*word, call.args.get(at + 1)) {
            ("force", _) => claim.force = true,
            ("justid", _) => claim.just_ids = true,
            ("idle", Some(value)) => (claim.delivered, at) = (now.saturating_sub(number(value)?), at + 1),
            ("time", Some(value)) => (claim.delivered, at) = (number(value)?, at + 1),
            ("retrycount", Some(value)) => (claim.count, at) = (u64::try_from(number(value)?).ok(), at + 1),
            ("lastid", Some(value)) => (last, at) = (EntryId::parse(value, 0)?, at + 1),
            _ => {
                let option = quoted(option, QUOTED_AT_MOST);
                return Err(Wrong::err(format_args!("Unrecognized XCLAIM option '{option}'")));
            }
        }
        at += 1;
    }
    if !(0..=now).contains(&claim.delivered) {
        claim.delivered = now;
    }
    open.group.last = open.group.last.max(last);
    let number = claimant(call, &mut stream, &mut open).await?;
    let (entries, _) = call.access.claim(&mut stream, &mut open, number, &ids, &claim).await?;
    put(call, &stream, &open)?;
    reply_claimed(call, entries, claim.just_ids).await
}

/// Opens the consumer that claims. Returns its number.
async fn claimant(call: &mut Call<'_>, stream: &mut OpenStream, open: &mut OpenGroup) -> Result<u64, Wrong> {
    let opened = call.access.open_consumer(stream, open, &call.args[3], true).await?;
    let number = opened.map_or(0, |(number, _)| number);
    open.consumer_mut(number).seen = call.access.now();
    Ok(number)
}

async fn reply_claimed(
    call: &mut Call<'_>,
    entries: Vec<crate::store::StreamEntry>,
    just_ids: bool,
) -> Result<(), Wrong> {
    if !just_ids {
        return reply_entries(call.out, &entries).await;
    }
    call.out.array(entries.len());
    entries.iter().for_each(|entry| call.out.bulk_text(entry.id));
    Ok(())
}

pub(super) async fn claim_next(call: &mut Call<'_>) -> Result<(), Wrong> {
    let min_idle = min_idle(call)?;
    let first = EntryId::parse_limit(&call.args[5], true)?;
    let (mut count, mut just_ids, mut at) = (CLAIMED, false, 6);
    while at < call.args.len() {
        match (&*call.word(at), call.args.get(at + 1)) {
            ("count", Some(number)) => {
                let number = integer_argument(number).ok().and_then(|number| u64::try_from(number).ok());
                let number = number.filter(|number| (1..=CLAIMED_AT_MOST).contains(number));
                count = number.ok_or(Wrong::err("COUNT must be > 0"))?;
                at += 1;
            }
            ("justid", _) => just_ids = true,
            _ => return Err(Wrong::syntax()),
        }
        at += 1;
    }
    let (mut stream, mut open) = opened(call).await?.ok_or_else(|| no_group(call))?;
    let delivered = call.access.now();
    let claim = Claim { min_idle, delivered, count: None, force: false, just_ids };
    let number = claimant(call, &mut stream, &mut open).await?;
    let (mut looks, mut left, mut from) = (count.saturating_mul(LOOKS), count, Some(first));
    let (mut taken, mut gone) = (Vec::new(), Vec::new());
    while let Some(first) = from.filter(|_| looks > 0 && left > 0) {
        // No more than may be taken, so that all of a page are looked at.
        let most = AT_ONCE.min(left).min(looks);
        let ids = first..=EntryId::MAX;
        let page = call.access.pending_entries(&stream.record, &open.group, ids, Side::Left, most).await?;
        let ids: Vec<EntryId> = page.into_iter().map(|(id, _)| id).collect();
        from = ids.last().and_then(|id| id.next());
        let (entries, removed) = call.access.claim(&mut stream, &mut open, number, &ids, &claim).await?;
        looks -= ids.len() as u64;
        left -= (entries.len() + removed.len()) as u64;
        taken.extend(entries);
        gone.extend(removed);
    }
    let next = match from {
        Some(from) => {
            let ids = from..=EntryId::MAX;
            call.access.pending_entries(&stream.record, &open.group, ids, Side::Left, 1).await?
        }
        None => Vec::new(),
    };
    put(call, &stream, &open)?;
    call.out.array(3);
    call.out.bulk_text(next.first().map_or(EntryId::ZERO, |(id, _)| *id));
    reply_claimed(call, taken, just_ids).await?;
    call.out.array(gone.len());
    gone.iter().for_each(|id| call.out.bulk_text(id));
    Ok(())
}
