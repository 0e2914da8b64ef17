//! DUMP and RESTORE: a value as one string of bytes, which other servers read too.

use super::pace::Pace;
use super::{Call, WRITES_AT_MOST, dump_streams, restoring};
use crate::numbers::integer_argument;
use crate::rdb::{Checksum, Type, Writer, split_footer};
use crate::store::{Classes, Key, Kind, Millis, score_of};
use crate::wrong::Wrong;

/// Number of bytes that are summed in one piece.
const SUMMED_AT_ONCE: usize = 64 << 10;

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
    restoring::check(body, WRITES_AT_MOST).await?;
    let was_there = call.access.delete(&key).await?;
    let mut lives = expiry.is_none_or(|at| at > now);
    if lives {
        restoring::write(call.access, &key, body, expiry, None).await?;
        // All fields of a hash may have expired.
        lives = call.access.kind(&key).await?.is_some();
    }
    call.access.event_of_store(Classes::GENERIC, "restore", &key, lives.into(), was_there);
    call.out.ok();
    Ok(())
}
