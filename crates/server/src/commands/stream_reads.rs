//! XREAD and XREADGROUP: entries behind an id, of several streams; the waiting is in `blocking`.

use super::pace::Pace;
use super::streams::reply_entry;
use super::{Call, QUOTED_AT_MOST, quoted, table};
use crate::entry_id::EntryId;
use crate::numbers::{integer_argument, milliseconds_argument};
use crate::resp::Protocol;
use crate::session::Session;
use crate::store::{Key, OpenGroup, OpenStream, Side, StreamEntry};
use crate::wrong::Wrong;
use std::time::Duration;

/// Place in a stream from which on it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFrom {
    /// Behind an id.
    Behind(EntryId),
    /// `$`: behind the last entry of now.
    End,
    /// `+`: at the last entry.
    Last,
    /// `>`: at the first entry that was not delivered to the group.
    New,
}

/// Arguments of a read.
pub(super) struct StreamRead {
    /// The streams, with the places where they are read.
    streams: Vec<(Key, ReadFrom)>,
    /// Maximum number of entries of each stream.
    count: u64,
    /// Group and consumer of XREADGROUP.
    reader: Option<(Vec<u8>, Vec<u8>)>,
    /// Entries are acknowledged when they are delivered.
    acknowledges: bool,
}

/// Entries of a stream, or the ids of those that were removed from it.
type Found = Vec<(EntryId, Option<StreamEntry>)>;

impl StreamRead {
    /// Parses a command. Returns the time that it waits too: `None`: it does not wait;
    /// `Some(None)`: forever.
    pub(super) fn parse(
        args: &[Vec<u8>],
        session: &Session,
        of_group: bool,
    ) -> Result<(Self, Option<Option<Duration>>), Wrong> {
        let (mut count, mut waits, mut reader, mut acknowledges) = (u64::MAX, None, None, false);
        let only_in_group = |option: &str| match of_group {
            true => Ok(()),
            false => Err(Wrong::err(format_args!(
                "The {option} option is only supported by XREADGROUP. You called XREAD instead."
            ))),
        };
        let mut at = 1;
        let ids = loop {
            let (Some(word), more) = (args.get(at), args.len().saturating_sub(at + 1)) else {
                return Err(Wrong::syntax());
            };
            match &*word.to_ascii_lowercase() {
                b"block" if more > 0 => {
                    if session.is_script() {
                        let name = quoted(&args[0], QUOTED_AT_MOST);
                        return Err(Wrong::err(format_args!(
                            "{name} command is not allowed with BLOCK option from scripts"
                        )));
                    }
                    at += 1;
                    let millis = milliseconds_argument(&args[at])?.unsigned_abs();
                    waits = Some((millis > 0).then(|| Duration::from_millis(millis)));
                }
                b"count" if more > 0 => {
                    at += 1;
                    count = u64::try_from(integer_argument(&args[at])?).unwrap_or(0);
                }
                b"streams" if more > 0 => {
                    if more % 2 == 1 {
                        return Err(Wrong::err(
                            "Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                             specified.",
                        ));
                    }
                    break at + 1 + more / 2;
                }
                b"group" if more >= 2 => {
                    only_in_group("GROUP")?;
                    reader = Some((args[at + 1].clone(), args[at + 2].clone()));
                    at += 2;
                }
                b"noack" => {
                    only_in_group("NOACK")?;
                    acknowledges = true;
                }
                _ => return Err(Wrong::syntax()),
            }
            at += 1;
        };
        if of_group && reader.is_none() {
            return Err(Wrong::err("Missing GROUP option for XREADGROUP"));
        }
        let mut streams = Vec::new();
        for (name, id) in args[at + 1..ids].iter().zip(&args[ids..]) {
            streams.push((session.key(name), ReadFrom::parse(id, of_group)?));
        }
        let count = if count == 0 { u64::MAX } else { count };
        Ok((Self { streams, count, reader, acknowledges }, waits))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.streams.iter().map(|(key, _)| key)
    }

    /// True if no command that reads at the same time may get these entries too.
    pub(super) fn takes(&self) -> bool {
        self.reader.is_some()
    }
}

impl ReadFrom {
    fn parse(text: &[u8], of_group: bool) -> Result<Self, Wrong> {
        let meaningless = |id: &str| {
            Wrong::err(format_args!(
                "The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of \
                 this consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID \
                 would just return an empty result set."
            ))
        };
        match text {
            b"$" if of_group => Err(meaningless("$")),
            b"+" if of_group => Err(meaningless("+")),
            b"$" => Ok(Self::End),
            b"+" => Ok(Self::Last),
            b">" if of_group => Ok(Self::New),
            b">" => Err(Wrong::err(
                "The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> \
                 option.",
            )),
            id => EntryId::parse(id, 0).map(Self::Behind),
        }
    }
}

/// Replies with the entries of the streams, if there are some. Those of a group are taken only of
/// the keys that are `free`. A read that has waited is refused if its group is gone.
pub(super) async fn attempt(
    call: &mut Call<'_>,
    read: &mut StreamRead,
    free: &[Key],
    has_waited: bool,
) -> Result<bool, Wrong> {
    let mut found: Vec<(Vec<u8>, Found)> = Vec::new();
    match read.reader.clone() {
        None => {
            call.access.pin();
            for (key, from) in &mut read.streams {
                let entries = entries(call, key, from, read.count, has_waited).await?;
                if !entries.is_empty() {
                    let entries = entries.into_iter().map(|entry| (entry.id, Some(entry))).collect();
                    found.push((key.name.clone(), entries));
                }
            }
        }
        Some((group, consumer)) => {
            if read.streams.len() > 1 {
                // Nothing is written before all are known to be there.
                for (key, _) in &read.streams {
                    open(call, key, &group, has_waited).await?;
                }
            }
            for (key, from) in &read.streams {
                let (stream, open) = open(call, key, &group, has_waited).await?;
                let is_free = !matches!(from, ReadFrom::New) || free.contains(key);
                if has_waited && (!is_free || stream.record.last <= open.group.last) {
                    continue;
                }
                let from = Some(*from).filter(|_| is_free);
                found.extend(take(call, read, (stream, open), from, &consumer).await?);
            }
        }
    }
    if found.is_empty() {
        return Ok(false);
    }
    let is_map = call.out.protocol() == Protocol::Three;
    if is_map {
        call.out.map(found.len())
    } else {
        call.out.array(found.len())
    }
    for (name, entries) in found {
        if !is_map {
            call.out.array(2);
        }
        call.out.bulk(name);
        reply(call, entries).await?;
    }
    Ok(true)
}

async fn reply(call: &mut Call<'_>, entries: Found) -> Result<(), Wrong> {
    let mut pace = Pace::default();
    call.out.array(entries.len());
    for (id, entry) in entries {
        match entry {
            Some(entry) => reply_entry(call.out, &entry)?,
            None => {
                call.out.array(2);
                call.out.bulk_text(id);
                call.out.null_array();
            }
        }
        pace.step().await;
    }
    Ok(())
}

/// The entries that XREAD gets of a stream. `$` and `+` become the id that they stand for.
async fn entries(
    call: &Call<'_>,
    key: &Key,
    from: &mut ReadFrom,
    count: u64,
    has_waited: bool,
) -> Result<Vec<StreamEntry>, Wrong> {
    let stream = match call.access.stream(key).await {
        Err(wrong) if has_waited && !wrong.is_of_store() => None,
        stream => stream?,
    };
    let Some(stream) = stream else {
        if matches!(from, ReadFrom::End | ReadFrom::Last) {
            *from = ReadFrom::Behind(EntryId::ZERO);
        }
        return Ok(Vec::new());
    };
    let behind = match *from {
        ReadFrom::Behind(id) => id,
        ReadFrom::End | ReadFrom::New => stream.last,
        ReadFrom::Last => {
            *from = ReadFrom::Behind(stream.last);
            let all = EntryId::ZERO..=EntryId::MAX;
            return call.access.entries(&stream, all, Side::Right, 1).await;
        }
    };
    *from = ReadFrom::Behind(behind);
    match behind.next() {
        Some(first) => call.access.entries(&stream, first..=EntryId::MAX, Side::Left, count).await,
        None => Ok(Vec::new()),
    }
}

/// Opens a stream and the group of a read.
async fn open(
    call: &mut Call<'_>,
    key: &Key,
    group: &[u8],
    has_waited: bool,
) -> Result<(OpenStream, OpenGroup), Wrong> {
    let stream = match call.access.open_stream(key).await {
        Err(wrong) if has_waited && !wrong.is_of_store() => None,
        stream => stream?,
    };
    let Some(stream) = stream else {
        return Err(match has_waited {
            true => Wrong::new("UNBLOCKED the stream key no longer exists"),
            false => no_group(key, group),
        });
    };
    match call.access.open_group(&stream, group).await? {
        Some(group) => Ok((stream, group)),
        None if has_waited => {
            Err(Wrong::new("NOGROUP the consumer group this client was blocked on no longer exists"))
        }
        None => Err(no_group(key, group)),
    }
}

fn no_group(key: &Key, group: &[u8]) -> Wrong {
    let (key, group) = (quoted(&key.name, QUOTED_AT_MOST), quoted(group, QUOTED_AT_MOST));
    Wrong::new(format!(
        "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    ))
}

/// Delivers entries of a stream to a consumer, from a place on (`None`: none). Returns them with
/// the key's name, if there are some or the place is an id.
async fn take(
    call: &mut Call<'_>,
    read: &StreamRead,
    (mut stream, mut open): (OpenStream, OpenGroup),
    from: Option<ReadFrom>,
    consumer: &[u8],
) -> Result<Option<(Vec<u8>, Found)>, Wrong> {
    let opened = call.access.open_consumer(&mut stream, &mut open, consumer, true).await?;
    let Some((number, _)) = opened else { return Ok(None) };
    open.consumer_mut(number).seen = call.access.now();
    let found = match from {
        Some(ReadFrom::Behind(id)) => Some(match id.next() {
            Some(first) => {
                call.access.deliver_again(&mut stream, &mut open, number, first, read.count).await?
            }
            None => Vec::new(),
        }),
        Some(_) => {
            let (count, acknowledges) = (read.count, read.acknowledges);
            let entries = call.access.deliver(&mut stream, &mut open, number, count, acknowledges).await?;
            let found: Found = entries.into_iter().map(|entry| (entry.id, Some(entry))).collect();
            Some(found).filter(|found| !found.is_empty())
        }
        None => None,
    };
    call.access.put_group(&stream, &open)?;
    call.access.put_stream(&stream, false)?;
    Ok(found.map(|found| (stream.key.name, found)))
}

/// XREAD and XREADGROUP within EXEC, where they do not wait.
pub(super) async fn read(call: &mut Call<'_>) -> Result<(), Wrong> {
    let of_group = table::find(&call.args[0]).is_some_and(|spec| spec.id == table::Id::XReadGroup);
    let (mut read, _) = StreamRead::parse(call.args, call.session, of_group)?;
    let keys: Vec<Key> = read.keys().cloned().collect();
    if !attempt(call, &mut read, &keys, false).await? {
        call.out.null_array();
    }
    Ok(())
}
