//! Streams: their entries. Groups of consumers are in `stream_groups`, XREAD and XREADGROUP in
//! `stream_reads`, XINFO in `stream_info`.

use super::Call;
use super::pace::Pace;
use crate::entry_id::EntryId;
use crate::numbers::integer_argument;
use crate::resp::Encoder;
use crate::server::FormSetting;
use crate::store::{Classes, OpenStream, Side, StreamEntry, StreamRecord};
use crate::wrong::Wrong;

/// Class of the events.
pub(super) const OF_STREAMS: Classes = Classes::STREAM;
/// Limit of an approximate trim of streams whose nodes have no maximum, and the largest one.
const TRIMMED_BY_DEFAULT: i64 = 10_000;
const TRIMMED_AT_MOST: i64 = 1_000_000;

/// Entries that a stream keeps when it is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The last ones, up to this number.
    Length(u64),
    /// Those with this id, and behind it.
    From(EntryId),
}

/// Arguments of XTRIM, and of XADD before the id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trim {
    kept: Option<Kept>,
    is_approximate: bool,
    /// Maximum number of entries that go; 0: any.
    limit: i64,
    /// XADD makes no stream.
    is_for_existing: bool,
}

/// Id of the entry that XADD adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewId {
    /// `*`: of this moment.
    Now,
    /// `ms-*`: the next one of a millisecond.
    Of(u64),
    Given(EntryId),
}

impl NewId {
    fn parse(text: &[u8]) -> Result<Self, Wrong> {
        match text.strip_suffix(b"-*") {
            Some(ms) => Ok(Self::Of(EntryId::parse(&[ms, b"-0"].concat(), 0)?.ms())),
            None => EntryId::parse(text, 0).map(Self::Given),
        }
    }

    /// The id of an entry that is added to a stream; `None`: it is not behind the last one.
    fn resolve(self, stream: &StreamRecord, now: i64) -> Option<EntryId> {
        let behind = stream.last.next()?;
        match self {
            Self::Now => Some(EntryId::new(now.max(0).cast_unsigned(), 0).max(behind)),
            Self::Of(ms) if ms == behind.ms() => Some(behind),
            Self::Of(ms) => Some(EntryId::new(ms, 0)).filter(|id| *id > behind),
            Self::Given(id) => Some(id).filter(|id| *id >= behind),
        }
    }
}

/// Parses options from the third argument on: up to the id of XADD, whose place is returned, or to
/// the end of XTRIM.
fn trim_arguments(call: &Call<'_>, adds: bool) -> Result<(Trim, usize), Wrong> {
    let (mut trim, mut at, mut has_limit) = (Trim::default(), 2, false);
    while let Some(argument) = call.args.get(at) {
        let more = call.args.len() - at - 1;
        match &*call.word(at) {
            "*" if adds => break,
            word @ ("maxlen" | "minid") if more > 0 => {
                if trim.kept.is_some() {
                    let why = "syntax error, MAXLEN and MINID options at the same time are not compatible";
                    return Err(Wrong::err(why));
                }
                let mark = call.args[at + 1].as_slice();
                trim.is_approximate = more >= 2 && mark == b"~";
                at += if more >= 2 && matches!(mark, b"~" | b"=") { 2 } else { 1 };
                trim.kept = Some(match word {
                    "maxlen" => {
                        let length = u64::try_from(integer_argument(&call.args[at])?);
                        Kept::Length(length.map_err(|_| Wrong::err("The MAXLEN argument must be >= 0."))?)
                    }
                    _ => Kept::From(EntryId::parse(&call.args[at], 0)?),
                });
            }
            "limit" if more > 0 => {
                at += 1;
                (trim.limit, has_limit) = (integer_argument(&call.args[at])?, true);
                if trim.limit < 0 {
                    return Err(Wrong::err("The LIMIT argument must be >= 0."));
                }
            }
            "nomkstream" if adds => trim.is_for_existing = true,
            _ if adds => {
                NewId::parse(argument)?;
                break;
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 1;
    }
    if trim.limit > 0 && trim.kept.is_none() {
        let why = "syntax error, LIMIT cannot be used without specifying a trimming strategy";
        return Err(Wrong::err(why));
    }
    if !adds && trim.kept.is_none() {
        return Err(Wrong::err("syntax error, XTRIM must be called with a trimming strategy"));
    }
    if has_limit && !trim.is_approximate {
        return Err(Wrong::err("syntax error, LIMIT cannot be used without the special ~ option"));
    }
    if trim.is_approximate && !has_limit {
        trim.limit = match node_entries(call).saturating_mul(100) {
            0 => TRIMMED_BY_DEFAULT,
            limit => limit.min(TRIMMED_AT_MOST),
        };
    }
    Ok((trim, at))
}

/// Number of entries of a node of Redis' streams, by which an approximate trim counts; 0: any.
fn node_entries(call: &Call<'_>) -> i64 {
    call.server.settings().forms().get(FormSetting::StreamEntries)
}

/// Removes the first entries of a stream that is not to keep them. Returns their number.
async fn trim_stream(call: &mut Call<'_>, stream: &mut OpenStream, trim: &Trim) -> Result<u64, Wrong> {
    let limit = if trim.limit == 0 { u64::MAX } else { trim.limit.unsigned_abs() };
    let (last, count) = match trim.kept {
        None => return Ok(0),
        Some(Kept::Length(length)) => {
            let node = node_entries(call).max(1).unsigned_abs();
            let count = stream.record.length.saturating_sub(length).min(limit);
            let count = match trim.is_approximate {
                true => whole_nodes(&stream.record, node, count),
                false => count,
            };
            (EntryId::MAX, count)
        }
        Some(Kept::From(id)) => match id.previous() {
            Some(last) => (last, limit),
            None => return Ok(0),
        },
    };
    call.access.trim(stream, last, count).await
}

/// Number of the first entries, up to `count`, that are whole nodes. Each node has `node` entries,
/// but for the first one, which has lost some, and the last one.
fn whole_nodes(stream: &StreamRecord, node: u64, count: u64) -> u64 {
    let first = node - stream.added.saturating_sub(stream.length) % node;
    match count {
        _ if count >= stream.length => stream.length,
        _ if count < first => 0,
        _ => first + (count - first) / node * node,
    }
}

pub(super) async fn add(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (trim, at) = trim_arguments(call, true)?;
    let (Some(id), Some(fields)) = (call.args.get(at), call.args.get(at + 1..)) else {
        return Err(Wrong::arity("xadd"));
    };
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(Wrong::arity("xadd"));
    }
    let id = if id == b"*" { NewId::Now } else { NewId::parse(id)? };
    if id == NewId::Given(EntryId::ZERO) {
        return Err(Wrong::err("The ID specified in XADD must be greater than 0-0"));
    }
    let key = call.key(1);
    let mut stream = match call.access.open_stream(&key).await? {
        Some(stream) => stream,
        None if trim.is_for_existing => {
            call.out.null();
            return Ok(());
        }
        None => call.access.new_stream(&key).await?,
    };
    if stream.record.last == EntryId::MAX {
        let why = "The stream has exhausted the last possible ID, unable to add more items";
        return Err(Wrong::err(why));
    }
    let id = id.resolve(&stream.record, call.access.now());
    let why = "The ID specified in XADD is equal or smaller than the target stream top item";
    let id = id.ok_or(Wrong::err(why))?;
    call.access.append(&mut stream, id, fields)?;
    let trimmed = match trim_stream(call, &mut stream, &trim).await {
        Ok(trimmed) => trimmed,
        Err(refused) => {
            // Others of a transaction are committed, and this entry is not to be with them.
            call.access.take_back(&stream, id)?;
            return Err(refused);
        }
    };
    call.event(OF_STREAMS, "xadd", &key);
    if trimmed > 0 {
        call.event(OF_STREAMS, "xtrim", &key);
    }
    call.access.put_stream(&stream, true)?;
    call.out.bulk_text(id);
    Ok(())
}

pub(super) async fn trim(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (trim, _) = trim_arguments(call, false)?;
    let mut removed = 0;
    if let Some(mut stream) = call.access.open_stream(&call.key(1)).await? {
        removed = trim_stream(call, &mut stream, &trim).await?;
        if removed > 0 {
            call.access.put_stream(&stream, true)?;
            call.event(OF_STREAMS, "xtrim", &stream.key);
        }
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

pub(super) async fn length(call: &mut Call<'_>) -> Result<(), Wrong> {
    let stream = call.access.stream(&call.key(1)).await?;
    call.out.integer(stream.map_or(0, |stream| stream.length.cast_signed()));
    Ok(())
}

pub(super) async fn delete(call: &mut Call<'_>) -> Result<(), Wrong> {
    let stream = call.access.open_stream(&call.key(1)).await?;
    let ids = if stream.is_some() { ids(&call.args[2..])? } else { Vec::new() };
    let mut removed = 0;
    if let Some(mut stream) = stream {
        removed = call.access.remove_entries(&mut stream, &ids).await?;
        if removed > 0 {
            call.access.put_stream(&stream, true)?;
            call.event(OF_STREAMS, "xdel", &stream.key);
        }
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

/// Parses ids.
pub(super) fn ids(args: &[Vec<u8>]) -> Result<Vec<EntryId>, Wrong> {
    args.iter().map(|id| EntryId::parse(id, 0)).collect()
}

pub(super) async fn range(call: &mut Call<'_>) -> Result<(), Wrong> {
    range_from(call, Side::Left).await
}

pub(super) async fn reverse_range(call: &mut Call<'_>) -> Result<(), Wrong> {
    range_from(call, Side::Right).await
}

async fn range_from(call: &mut Call<'_>, end: Side) -> Result<(), Wrong> {
    let (first, last) = if end == Side::Left { (2, 3) } else { (3, 2) };
    let first = EntryId::parse_limit(&call.args[first], true)?;
    let last = EntryId::parse_limit(&call.args[last], false)?;
    let (mut count, mut at) = (u64::MAX, 4);
    while at < call.args.len() {
        match (&*call.word(at), call.args.get(at + 1)) {
            ("count", Some(number)) => count = u64::try_from(integer_argument(number)?).unwrap_or(0),
            _ => return Err(Wrong::syntax()),
        }
        at += 2;
    }
    let Some(stream) = call.access.stream(&call.key(1)).await? else {
        call.out.array(0);
        return Ok(());
    };
    if count == 0 {
        call.out.null_array();
        return Ok(());
    }
    let entries = call.access.entries(&stream, first..=last, end, count).await?;
    reply_entries(call.out, &entries).await
}

pub(super) async fn reply_entries(out: &mut Encoder, entries: &[StreamEntry]) -> Result<(), Wrong> {
    let mut pace = Pace::default();
    out.array(entries.len());
    for entry in entries {
        reply_entry(out, entry)?;
        pace.step().await;
    }
    Ok(())
}

pub(super) fn reply_entry(out: &mut Encoder, entry: &StreamEntry) -> Result<(), Wrong> {
    let fields = entry.fields()?;
    out.array(2);
    out.bulk_text(entry.id);
    out.array(fields.len());
    fields.into_iter().for_each(|field| out.bulk(field));
    Ok(())
}

pub(super) async fn set_id(call: &mut Call<'_>) -> Result<(), Wrong> {
    let id = EntryId::parse(&call.args[2], 0)?;
    let (mut added, mut max_deleted, mut at) = (None, EntryId::ZERO, 3);
    while at < call.args.len() {
        match (&*call.word(at), call.args.get(at + 1)) {
            ("entriesadded", Some(number)) => {
                let number = u64::try_from(integer_argument(number)?);
                added = Some(number.map_err(|_| Wrong::err("entries_added must be positive"))?);
            }
            ("maxdeletedid", Some(deleted)) => {
                max_deleted = EntryId::parse(deleted, 0)?;
                if id < max_deleted {
                    let why = "The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                    return Err(Wrong::err(why));
                }
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 2;
    }
    let stream = call.access.open_stream(&call.key(1)).await?;
    let mut stream = stream.ok_or(Wrong::no_such_key())?;
    if stream.record.length > 0 {
        let all = EntryId::ZERO..=EntryId::MAX;
        let top = call.access.entries(&stream.record, all, Side::Right, 1).await?;
        if top.first().is_some_and(|top| id < top.id) {
            return Err(Wrong::err("The ID specified in XSETID is smaller than the target stream top item"));
        }
        if added.is_some_and(|added| added < stream.record.length) {
            let why = "The entries_added specified in XSETID is smaller than the target stream length";
            return Err(Wrong::err(why));
        }
    }
    stream.record.last = id;
    stream.record.added = added.unwrap_or(stream.record.added);
    if max_deleted != EntryId::ZERO {
        stream.record.max_deleted = max_deleted;
    }
    call.access.put_stream(&stream, false)?;
    call.event(OF_STREAMS, "xsetid", &stream.key);
    call.out.ok();
    Ok(())
}

/// Bytes of a stream for MEMORY USAGE, beside its record: about those of its entries, by the first
/// ones.
pub(super) async fn memory(call: &mut Call<'_>, samples: u64, of_each: u64) -> Result<u64, Wrong> {
    let key = call.key(2);
    let Some(stream) = call.access.stream(&key).await? else { return Ok(0) };
    let read = call.access.entries(&stream, EntryId::ZERO..=EntryId::MAX, Side::Left, samples).await?;
    let mut sum = 0;
    for entry in &read {
        sum += entry.fields()?.iter().map(|field| field.len() as u64 + 1).sum::<u64>();
    }
    let of_entries = stream.length.saturating_mul(of_each + sum / read.len().max(1) as u64);
    Ok(of_entries.saturating_add(stream.others.saturating_mul(2 * of_each)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximate_trims_remove_whole_nodes() {
        let whole = |added, length, count| {
            whole_nodes(&StreamRecord { added, length, ..StreamRecord::default() }, 100, count)
        };
        assert_eq!((whole(1000, 1000, 445), whole(1000, 1000, 99)), (400, 0));
        assert_eq!((whole(1000, 555, 111), whole(1000, 555, 54)), (55, 0));
        assert_eq!((whole(1000, 555, 155), whole(1000, 555, 555)), (155, 555));
        assert_eq!((whole(3, 3, 2), whole(3, 3, 3), whole(0, 0, 0)), (0, 3, 0));
    }

    #[test]
    fn new_ids_are_behind_the_last_one() {
        let stream = StreamRecord { last: EntryId::new(5, 6), ..StreamRecord::default() };
        let resolve = |text: &str, now| {
            let id = if text == "*" { NewId::Now } else { NewId::parse(text.as_bytes()).unwrap() };
            id.resolve(&stream, now).map(|id| id.to_string())
        };
        assert_eq!(resolve("*", 9).as_deref(), Some("9-0"));
        assert_eq!(resolve("*", 5).as_deref(), Some("5-7"));
        assert_eq!(resolve("*", -1).as_deref(), Some("5-7"));
        assert_eq!(resolve("5-*", 0).as_deref(), Some("5-7"));
        assert_eq!(resolve("6-*", 0).as_deref(), Some("6-0"));
        assert_eq!(resolve("5-7", 0).as_deref(), Some("5-7"));
        assert_eq!((resolve("4-*", 0), resolve("5-6", 0), resolve("5", 0)), (None, None, None));
        let full = StreamRecord { last: EntryId::new(5, u64::MAX), ..stream };
        assert_eq!(
            (NewId::Of(5).resolve(&full, 0), NewId::Of(6).resolve(&full, 0)),
            (None, Some(EntryId::new(6, 0)))
        );
        assert_eq!(NewId::Now.resolve(&StreamRecord { last: EntryId::MAX, ..stream }, 0), None);
        assert_eq!(NewId::Of(0).resolve(&StreamRecord::default(), 0), Some(EntryId::new(0, 1)));
        assert!(
            NewId::parse(b"-*").is_err() && NewId::parse(b"*").is_err() && NewId::parse(b"1-2-*").is_err()
        );
    }
}
