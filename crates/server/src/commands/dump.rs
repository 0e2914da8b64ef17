//! DUMP and RESTORE: a value as one string of bytes, which other servers read too.

use super::dump_streams::{self, BYTES_OF_WRITE, bad_format, too_many};
use super::pace::Pace;
use super::zsets::score_argument;
use super::{Call, WRITES_AT_MOST};
use crate::numbers::integer_argument;
use crate::rdb::{BadPayload, Checksum, Field, Reader, StreamReader, Type, Writer, split_footer};
use crate::store::{Classes, Key, Kind, Lifetime, Millis, ScoreRule, Scored, Side, score_of};
use crate::wrong::Wrong;
use std::collections::BTreeMap;

/// Number of bytes that are summed in one piece.
const SUMMED_AT_ONCE: usize = 64 << 10;
/// Maximum number of elements that are written by one call, and of their bytes.
const ELEMENTS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Sums the bytes of a payload. Lets other tasks run in between.
async fn sum_of(bytes: &[u8]) -> u64 {
    let (mut sum, mut pace) = (Checksum::default(), Pace::default());
    for part in bytes.chunks(SUMMED_AT_ONCE) {
        sum.add(part);
        pace.steps(32).await;
    }
    sum.sum()
}

pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.access.pin();
    let key = call.key(1);
    let Some(kind) = call.access.kind(&key).await? else {
        call.out.null();
        return Ok(());
    };
    let mut writer = match kind {
        Kind::Hash => match write_hash(call, &key).await? {
            Some(writer) => writer,
            None => {
                call.out.null();
                return Ok(());
            }
        },
        Kind::List => write_list(call, &key).await?,
        Kind::Set => write_elements(call, &key, kind, Type::Set).await?,
        Kind::SortedSet => write_elements(call, &key, kind, Type::SortedSet).await?,
        Kind::Stream => dump_streams::dump(call, &key).await?,
        Kind::String => {
            let mut writer = Writer::new(Type::String, 1);
            let text = call.access.string(&key).await?;
            writer.string(text.as_ref().map_or(&[][..], |text| text));
            writer
        }
    };
    let sum = sum_of(writer.end()).await;
    call.out.bulk(writer.seal(sum));
    Ok(())
}

async fn write_list(call: &Call<'_>, key: &Key) -> Result<Writer, Wrong> {
    let (values, mut pace) = (call.access.list_range(key, 0..u64::MAX).await?, Pace::default());
    let mut writer = Writer::new(Type::List, values.len() as u64);
    for value in &values {
        writer.string(value);
        pace.step().await;
    }
    Ok(writer)
}

/// Writes a hash; `None` if all of its fields have expired.
async fn write_hash(call: &Call<'_>, key: &Key) -> Result<Option<Writer>, Wrong> {
    if !call.access.fields_expire(key).await? {
        return write_elements(call, key, Kind::Hash, Type::Hash).await.map(Some);
    }
    let (fields, mut pace) = (call.access.all_fields(key).await?, Pace::default());
    let count = fields.len() as u64;
    if count == 0 {
        return Ok(None);
    }
    let earliest = fields.iter().filter_map(|(_, (_, expiry))| *expiry).min();
    let mut writer = match earliest {
        None => Writer::new(Type::Hash, count),
        Some(earliest) => Writer::of_fields(count, earliest),
    };
    for (name, (value, expiry)) in &fields {
        match earliest {
            None => {
                writer.string(name);
                writer.string(value);
            }
            Some(earliest) => writer.field(name, value, *expiry, earliest),
        }
        pace.step().await;
    }
    Ok(Some(writer))
}

async fn write_elements(call: &Call<'_>, key: &Key, kind: Kind, of: Type) -> Result<Writer, Wrong> {
    let (elements, mut pace) = (call.access.all_elements(key, kind).await?, Pace::default());
    let mut writer = Writer::new(of, elements.len() as u64);
    for (name, value) in &elements {
        writer.string(name);
        match kind {
            Kind::Hash => writer.string(value),
            Kind::SortedSet => writer.score(score_of(value)?),
            _ => {}
        }
        pace.step().await;
    }
    Ok(writer)
}

/// Options of RESTORE. IDLETIME and FREQ are checked; accesses are not kept.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

fn options(call: &Call<'_>) -> Result<Options, Wrong> {
    let (mut options, mut idle, mut frequency, mut at) = (Options::default(), false, false, 4);
    while at < call.args.len() {
        let number = call.args.get(at + 1);
        match (&*call.word(at), number) {
            ("replace", _) => options.replaces = true,
            ("absttl", _) => options.is_absolute = true,
            ("idletime", Some(number)) if !frequency => {
                if integer_argument(number)? < 0 {
                    return Err(Wrong::err("Invalid IDLETIME value, must be >= 0"));
                }
                (idle, at) = (true, at + 1);
            }
            ("freq", Some(number)) if !idle => {
                if !(0..=255).contains(&integer_argument(number)?) {
                    return Err(Wrong::err("Invalid FREQ value, must be >= 0 and <= 255"));
                }
                (frequency, at) = (true, at + 1);
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 1;
    }
    Ok(options)
}

/// The expiry that an argument says, in milliseconds; 0 is none.
fn expiry(argument: &[u8], is_absolute: bool, now: Millis) -> Result<Option<Millis>, Wrong> {
    match integer_argument(argument)? {
        0 => Ok(None),
        number @ 1.. if is_absolute => Ok(Some(number)),
        number @ 1.. => match number.checked_add(now) {
            Some(at) => Ok(Some(at)),
            None => Err(Wrong::invalid_expire("restore")),
        },
        _ => Err(Wrong::err("Invalid TTL value, must be >= 0")),
    }
}

pub(super) async fn restore(call: &mut Call<'_>) -> Result<(), Wrong> {
    let options = options(call)?;
    let key = call.key(1);
    if !options.replaces && call.access.kind(&key).await?.is_some() {
        return Err(Wrong::new("BUSYKEY Target key name already exists."));
    }
    let now = call.access.now();
    let expiry = expiry(&call.args[2], options.is_absolute, now)?;
    let not_right = || Wrong::err("DUMP payload version or checksum are wrong");
    let (body, summed, sum) = split_footer(&call.args[3]).map_err(|_| not_right())?;
    if sum_of(summed).await != sum {
        return Err(not_right());
    }
    check(body).await?;
    let was_there = call.access.delete(&key).await?;
    let mut lives = expiry.is_none_or(|at| at > now);
    if lives {
        write(call, &key, body, expiry).await?;
        // All fields of a hash may have expired.
        lives = call.access.kind(&key).await?.is_some();
    }
    call.access.event_of_store(Classes::GENERIC, "restore", &key, lives.into(), was_there);
    call.out.ok();
    Ok(())
}

/// Reads a whole value, so that nothing is written of one that is damaged, or whose writes would
/// take more than [`WRITES_AT_MOST`] of memory.
async fn check(body: &[u8]) -> Result<(), Wrong> {
    if let Some(reader) = StreamReader::new(body).map_err(bad_format)? {
        return dump_streams::check(reader).await;
    }
    let mut bytes = 0;
    let (mut reader, mut pace) = (Reader::new(body).map_err(bad_format)?, Pace::default());
    let (has_scores, mut is_score) = (reader.of() == Type::SortedSet, false);
    while reader.of() == Type::ExpiringHash {
        let Some(field) = reader.next_field().map_err(bad_format)? else { return Ok(()) };
        bytes += field.name.len() + field.value.len() + 2 * BYTES_OF_WRITE;
        if bytes > WRITES_AT_MOST {
            return Err(too_many());
        }
        pace.step().await;
    }
    while let Some(part) = reader.next().map_err(bad_format)? {
        if has_scores && is_score {
            score(&part)?;
        }
        is_score = !is_score;
        bytes += part.len() + BYTES_OF_WRITE;
        if bytes > WRITES_AT_MOST {
            return Err(too_many());
        }
        pace.step().await;
    }
    Ok(())
}

/// Parses the score of a member.
fn score(part: &[u8]) -> Result<f64, Wrong> {
    score_argument(part).map_err(|_| bad_format(BadPayload))
}

/// Writes a value that was checked to a key that is absent.
async fn write(call: &mut Call<'_>, key: &Key, body: &[u8], expiry: Option<Millis>) -> Result<(), Wrong> {
    if let Some(reader) = StreamReader::new(body).map_err(bad_format)? {
        dump_streams::restore(call, key, reader).await?;
        return match expiry {
            Some(_) => call.access.set_expiry(key, expiry).await.map(|_| ()),
            None => Ok(()),
        };
    }
    let mut reader = Reader::new(body).map_err(bad_format)?;
    match reader.of() {
        Type::String => {
            let text = reader.next().map_err(bad_format)?.unwrap_or_default();
            let lifetime = expiry.map_or(Lifetime::Forever, Lifetime::Until);
            return call.access.set_string(key, &text, lifetime).await;
        }
        Type::ExpiringHash => write_fields(call, key, &mut reader).await?,
        _ => write_collection(call, key, &mut reader).await?,
    }
    if expiry.is_some() {
        call.access.set_expiry(key, expiry).await?;
    }
    Ok(())
}

/// Writes the fields of a hash with their expiries, as far as these have not come.
async fn write_fields(call: &mut Call<'_>, key: &Key, reader: &mut Reader<'_>) -> Result<(), Wrong> {
    let (mut pace, now) = (Pace::default(), call.access.now());
    loop {
        // The last of a name counts.
        let (mut fields, mut bytes, mut steps) = (BTreeMap::new(), 0, 0);
        while steps < ELEMENTS_AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(Field { name, value, expiry }) = reader.next_field().map_err(bad_format)? else { break };
            (bytes, steps) = (bytes + name.len() + value.len(), steps + 1);
            fields.insert(name, (value, expiry));
        }
        if steps == 0 {
            return Ok(());
        }
        let is_over = |expiry: &Option<Millis>| expiry.is_some_and(|at| at <= now);
        let over = fields.iter().filter(|(_, (_, expiry))| is_over(expiry));
        let over: Vec<Vec<u8>> = over.map(|(name, _)| name.to_vec()).collect();
        let living = fields.iter().filter(|(_, (_, expiry))| !is_over(expiry));
        let living = living.map(|(name, (value, expiry))| {
            (&name[..], &value[..], expiry.map_or(Lifetime::Forever, Lifetime::Until))
        });
        call.access.put_elements_each(key, Kind::Hash, living).await?;
        // Those of their names that came before.
        if !over.is_empty() {
            call.access.delete_elements(key, Kind::Hash, &over).await?;
        }
        pace.steps(steps).await;
    }
}

/// Writes the elements of any other collection.
async fn write_collection(call: &mut Call<'_>, key: &Key, reader: &mut Reader<'_>) -> Result<(), Wrong> {
    let mut pace = Pace::default();
    loop {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        // Pairs are not torn.
        while parts.len() < ELEMENTS_AT_ONCE && bytes < BYTES_AT_ONCE || parts.len() % 2 == 1 {
            let Some(part) = reader.next().map_err(bad_format)? else { break };
            bytes += part.len();
            parts.push(part);
        }
        if parts.is_empty() {
            break;
        }
        match reader.of() {
            Type::List => drop(call.access.list_push(key, Side::Right, &parts).await?),
            Type::Set => {
                let members = parts.iter().map(|member| (&member[..], &[][..]));
                call.access.put_elements(key, Kind::Set, members).await?;
            }
            Type::SortedSet => {
                let pairs = parts.as_chunks().0.iter();
                let pairs = pairs.map(|[member, text]| Ok((member.to_vec(), score(text)?)));
                let pairs: Vec<Scored> = pairs.collect::<Result<_, Wrong>>()?;
                call.access.put_scores(key, &pairs, ScoreRule::default()).await?;
            }
            _ => {
                let pairs = parts.as_chunks().0.iter().map(|[field, value]| (&field[..], &value[..]));
                call.access.put_elements(key, Kind::Hash, pairs).await?;
            }
        }
        pace.steps(parts.len()).await;
    }
    Ok(())
}
