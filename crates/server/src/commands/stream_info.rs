//! XINFO: properties of a stream, its groups and their consumers.

use super::stream_groups::{names, no_group_of_key, wrong_subcommand};
use super::streams::{reply_entries, reply_entry};
use super::table::Id;
use super::{Call, containers};
use crate::entry_id::EntryId;
use crate::numbers::integer_argument;
use crate::server::FormSetting;
use crate::store::{Consumer, Group, Side, StreamRecord};
use crate::wrong::Wrong;
use std::ops::RangeInclusive;

const ALL: RangeInclusive<EntryId> = EntryId::ZERO..=EntryId::MAX;
/// Entries, and pending ones of each group and consumer, that FULL returns without COUNT.
const SHOWN: u64 = 10;

pub(super) async fn info(call: &mut Call<'_>) -> Result<(), Wrong> {
    let sub = call.word(1);
    if sub == "help" {
        containers::help(call, Id::XInfo);
        return Ok(());
    }
    if call.args.len() < 3 {
        return Err(wrong_subcommand(call));
    }
    let stream = call.access.stream(&call.key(2)).await?.ok_or(Wrong::no_such_key())?;
    match &*sub {
        "consumers" => {
            let group = call.access.group(&stream, &call.args[3]).await?;
            let group = group.ok_or_else(|| no_group_of_key(call))?;
            consumers(call, &stream, &group).await
        }
        "groups" => groups(call, &stream).await,
        _ => match call.args.len() {
            3 => summary(call, &stream).await,
            4 if call.is(3, "full") => full(call, &stream, SHOWN).await,
            6 if call.is(3, "full") && call.is(4, "count") => {
                let count = match integer_argument(&call.args[5])? {
                    0 => u64::MAX,
                    count => u64::try_from(count).unwrap_or(SHOWN),
                };
                full(call, &stream, count).await
            }
            _ => Err(wrong_subcommand(call)),
        },
    }
}

/// Adds a name and an integer.
fn number(call: &mut Call<'_>, name: &str, number: u64) {
    call.out.bulk(name);
    call.out.integer(number.cast_signed());
}

/// Adds a name and a text.
fn text(call: &mut Call<'_>, name: &str, text: impl std::fmt::Display) {
    call.out.bulk(name);
    call.out.bulk_text(text);
}

/// Adds a name and an integer, or null.
fn optional(call: &mut Call<'_>, name: &str, number: Option<i64>) {
    call.out.bulk(name);
    match number {
        Some(number) => call.out.integer(number),
        None => call.out.null(),
    }
}

async fn consumers(call: &mut Call<'_>, stream: &StreamRecord, group: &Group) -> Result<(), Wrong> {
    let (consumers, now) = (call.access.consumers(stream, group).await?, call.access.now());
    call.out.array(consumers.len());
    for (_, consumer) in consumers {
        call.out.map(4);
        call.out.bulk("name");
        call.out.bulk(&consumer.name);
        number(call, "pending", consumer.pending);
        let since = |time: i64| Some(now.saturating_sub(time).max(0));
        optional(call, "idle", since(consumer.seen));
        optional(call, "inactive", consumer.active.map_or(Some(-1), since));
    }
    Ok(())
}

async fn groups(call: &mut Call<'_>, stream: &StreamRecord) -> Result<(), Wrong> {
    let groups = call.access.groups(stream).await?;
    call.out.array(groups.len());
    for (name, group) in groups {
        call.out.map(6);
        call.out.bulk("name");
        call.out.bulk(name);
        number(call, "consumers", group.consumers);
        number(call, "pending", group.pending);
        text(call, "last-delivered-id", group.last);
        optional(call, "entries-read", group.read.map(u64::cast_signed));
        optional(call, "lag", group.lag(stream));
    }
    Ok(())
}

/// The first properties, in both forms. The nodes are those that Redis would have at least.
fn properties(call: &mut Call<'_>, stream: &StreamRecord) {
    let node = call.server.settings().forms().get(FormSetting::StreamEntries).unsigned_abs();
    let nodes = if node == 0 { stream.length.min(1) } else { stream.length.div_ceil(node) };
    number(call, "length", stream.length);
    number(call, "radix-tree-keys", nodes);
    number(call, "radix-tree-nodes", nodes + 1);
    text(call, "last-generated-id", stream.last);
    text(call, "max-deleted-entry-id", stream.max_deleted);
    number(call, "entries-added", stream.added);
    text(call, "recorded-first-entry-id", stream.first);
}

async fn summary(call: &mut Call<'_>, stream: &StreamRecord) -> Result<(), Wrong> {
    let groups = call.access.groups(stream).await?.len();
    call.out.map(10);
    properties(call, stream);
    number(call, "groups", groups as u64);
    for (name, end) in [("first-entry", Side::Left), ("last-entry", Side::Right)] {
        let entries = call.access.entries(stream, ALL, end, 1).await?;
        call.out.bulk(name);
        match entries.first() {
            Some(entry) => reply_entry(call.out, entry)?,
            None => call.out.null(),
        }
    }
    Ok(())
}

async fn full(call: &mut Call<'_>, stream: &StreamRecord, count: u64) -> Result<(), Wrong> {
    call.out.map(9);
    properties(call, stream);
    let entries = call.access.entries(stream, ALL, Side::Left, count).await?;
    call.out.bulk("entries");
    reply_entries(call.out, &entries).await?;
    let groups = call.access.groups(stream).await?;
    call.out.bulk("groups");
    call.out.array(groups.len());
    for (name, group) in groups {
        call.out.map(7);
        call.out.bulk("name");
        call.out.bulk(name);
        text(call, "last-delivered-id", group.last);
        optional(call, "entries-read", group.read.map(u64::cast_signed));
        optional(call, "lag", group.lag(stream));
        number(call, "pel-count", group.pending);
        let pending = call.access.pending_entries(stream, &group, ALL, Side::Left, count).await?;
        let names = names(call, stream, &group, &pending).await?;
        call.out.bulk("pending");
        call.out.array(pending.len());
        for (id, pending) in pending {
            call.out.array(4);
            call.out.bulk_text(id);
            call.out.bulk(names.get(&pending.consumer).map_or(&b""[..], |consumer| &consumer.name[..]));
            call.out.integer(pending.delivered);
            call.out.integer(pending.count.cast_signed());
        }
        let consumers = call.access.consumers(stream, &group).await?;
        call.out.bulk("consumers");
        call.out.array(consumers.len());
        for (number, consumer) in consumers {
            full_consumer(call, stream, &group, (number, consumer), count).await?;
        }
    }
    Ok(())
}

async fn full_consumer(
    call: &mut Call<'_>,
    stream: &StreamRecord,
    group: &Group,
    (owner, consumer): (u64, Consumer),
    count: u64,
) -> Result<(), Wrong> {
    call.out.map(5);
    call.out.bulk("name");
    call.out.bulk(&consumer.name);
    optional(call, "seen-time", Some(consumer.seen));
    optional(call, "active-time", Some(consumer.active.unwrap_or(-1)));
    number(call, "pel-count", consumer.pending);
    let pending = call.access.pending_owned(stream, group, owner, EntryId::ZERO, count).await?;
    call.out.bulk("pending");
    call.out.array(pending.len());
    for (id, pending) in pending {
        call.out.array(3);
        call.out.bulk_text(id);
        call.out.integer(pending.delivered);
        call.out.integer(pending.count.cast_signed());
    }
    Ok(())
}
