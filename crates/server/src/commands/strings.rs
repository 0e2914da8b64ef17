//! Strings: GET, SET and their relatives, counters, and parts of strings.

use super::Call;
use super::pace::{KEYS_AT_ONCE, Pace};
use crate::numbers::{float_sum, integer, integer_argument};
use crate::store::{Classes, Key, Lifetime, Millis};
use crate::wrong::Wrong;

/// Maximum length of a string that APPEND and SETRANGE make, in bytes.
pub(super) const STRING_AT_MOST: u64 = 512 << 20;

/// Units and origins of the expiry that an option gives.
#[derive(Clone, Copy)]
pub(super) enum ExpiryOption {
    Seconds,
    Millis,
    AtSeconds,
    AtMillis,
}

impl ExpiryOption {
    pub(super) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "ex" => Self::Seconds,
            "px" => Self::Millis,
            "exat" => Self::AtSeconds,
            "pxat" => Self::AtMillis,
            _ => return None,
        })
    }

    /// The moment that an argument says.
    pub(super) fn moment(self, argument: &[u8], now: Millis, command: &str) -> Result<Millis, Wrong> {
        let number = integer_argument(argument)?;
        let (unit, origin) = match self {
            Self::Seconds => (1000, now),
            Self::Millis => (1, now),
            Self::AtSeconds => (1000, 0),
            Self::AtMillis => (1, 0),
        };
        let moment = number.checked_mul(unit).and_then(|span| span.checked_add(origin));
        moment.filter(|_| number > 0).ok_or_else(|| Wrong::invalid_expire(command))
    }
}

pub(super) async fn get(call: &mut Call<'_>) -> Result<(), Wrong> {
    let value = call.access.string(&call.key(1)).await?;
    call.out.optional_bulk(value);
    Ok(())
}

pub(super) async fn mget(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.out.array(call.args.len() - 1);
    call.pin_if_many(call.args.len() - 1);
    let mut pace = Pace::default();
    for names in call.args[1..].chunks(KEYS_AT_ONCE) {
        let keys: Vec<Key> = names.iter().map(|name| call.session.key(name)).collect();
        let values = call.access.strings(&keys).await?;
        values.into_iter().for_each(|value| call.out.optional_bulk(value));
        pace.steps(keys.len()).await;
    }
    Ok(())
}

pub(super) async fn set(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut lifetime, mut expiry, mut must_exist, mut returns_old) = (Lifetime::Forever, None, None, false);
    let mut at = 3;
    while at < call.args.len() {
        match &*call.word(at) {
            "nx" if must_exist != Some(true) => must_exist = Some(false),
            "xx" if must_exist != Some(false) => must_exist = Some(true),
            "get" => returns_old = true,
            "keepttl" if expiry.is_none() => lifetime = Lifetime::Keep,
            word => {
                let option = ExpiryOption::from_word(word);
                let is_first = expiry.is_none() && lifetime == Lifetime::Forever;
                let option = option.filter(|_| is_first && at + 1 < call.args.len());
                at += 1;
                expiry = Some((option.ok_or(Wrong::syntax())?, at));
            }
        }
        at += 1;
    }
    if let Some((option, at)) = expiry {
        lifetime = Lifetime::Until(option.moment(&call.args[at], call.access.now(), "set")?);
    }
    let key = call.key(1);
    let old = if returns_old { call.access.string(&key).await? } else { None };
    let may = match must_exist {
        None => true,
        Some(must) => must == call.access.kind(&key).await?.is_some(),
    };
    if may {
        set_and_tell(call, &key, &call.args[2], lifetime).await?;
    }
    match (returns_old, may) {
        (true, _) => call.out.optional_bulk(old),
        (false, true) => call.out.ok(),
        (false, false) => call.out.null(),
    }
    Ok(())
}

/// Sets a string, and tells of it.
async fn set_and_tell(call: &mut Call<'_>, key: &Key, value: &[u8], lifetime: Lifetime) -> Result<(), Wrong> {
    match lifetime {
        // A time that has come deletes the key.
        Lifetime::Until(at) if at <= call.access.now() => {
            if call.access.delete(key).await? {
                call.event(Classes::GENERIC, "del", key);
            }
            return Ok(());
        }
        _ => call.access.set_string(key, value, lifetime).await?,
    }
    call.event(Classes::STRING, "set", key);
    if matches!(lifetime, Lifetime::Until(_)) {
        call.event(Classes::GENERIC, "expire", key);
    }
    Ok(())
}

/// Changes a string and keeps its expiry, and tells of it by an event's name.
pub(super) async fn change(
    call: &mut Call<'_>,
    key: &Key,
    value: &[u8],
    event: &'static str,
) -> Result<(), Wrong> {
    call.access.set_string(key, value, Lifetime::Keep).await?;
    call.event(Classes::STRING, event, key);
    Ok(())
}

pub(super) async fn set_nx(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let is_new = call.access.kind(&key).await?.is_none();
    if is_new {
        set_and_tell(call, &key, &call.args[2], Lifetime::Forever).await?;
    }
    call.out.integer(is_new.into());
    Ok(())
}

pub(super) async fn set_ex(call: &mut Call<'_>) -> Result<(), Wrong> {
    set_until(call, ExpiryOption::Seconds, "setex").await
}

pub(super) async fn pset_ex(call: &mut Call<'_>) -> Result<(), Wrong> {
    set_until(call, ExpiryOption::Millis, "psetex").await
}

async fn set_until(call: &mut Call<'_>, option: ExpiryOption, command: &str) -> Result<(), Wrong> {
    let moment = option.moment(&call.args[2], call.access.now(), command)?;
    set_and_tell(call, &call.key(1), &call.args[3], Lifetime::Until(moment)).await?;
    call.out.ok();
    Ok(())
}

pub(super) async fn get_set(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    set_and_tell(call, &key, &call.args[2], Lifetime::Forever).await?;
    call.out.optional_bulk(old);
    Ok(())
}

pub(super) async fn get_del(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    if old.is_some() {
        call.access.delete(&key).await?;
        call.event(Classes::GENERIC, "del", &key);
    }
    call.out.optional_bulk(old);
    Ok(())
}

pub(super) async fn get_ex(call: &mut Call<'_>) -> Result<(), Wrong> {
    let expiry = match (call.args.len(), &*call.word(2)) {
        (2, _) => None,
        (3, "persist") => Some(None),
        (4, word) => {
            let option = ExpiryOption::from_word(word).ok_or(Wrong::syntax())?;
            Some(Some(option.moment(&call.args[3], call.access.now(), "getex")?))
        }
        _ => return Err(Wrong::syntax()),
    };
    let key = call.key(1);
    let value = call.access.string(&key).await?;
    if let (Some(expiry), true) = (expiry, value.is_some()) {
        // PERSIST of a key without expiry is no change: those who watch the key are not told.
        if expiry.is_some() || call.access.expiry(&key).await?.flatten().is_some() {
            super::keys::expire_key(call, &key, expiry).await?;
        }
    }
    call.out.optional_bulk(value);
    Ok(())
}

pub(super) async fn mset(call: &mut Call<'_>) -> Result<(), Wrong> {
    set_pairs(call, "mset").await?;
    call.out.ok();
    Ok(())
}

pub(super) async fn mset_nx(call: &mut Call<'_>) -> Result<(), Wrong> {
    if call.args.len().is_multiple_of(2) {
        return Err(Wrong::arity("msetnx"));
    }
    let (mut is_free, mut pace) = (true, Pace::default());
    for pairs in call.args[1..].chunks(2 * KEYS_AT_ONCE) {
        is_free &= call.access.kinds(&keys_of(call, pairs)).await?.iter().all(Option::is_none);
        pace.steps(pairs.len()).await;
    }
    if is_free {
        set_pairs(call, "msetnx").await?;
    }
    call.out.integer(is_free.into());
    Ok(())
}

async fn set_pairs(call: &mut Call<'_>, command: &str) -> Result<(), Wrong> {
    if call.args.len().is_multiple_of(2) {
        return Err(Wrong::arity(command));
    }
    let (args, mut pace) = (call.args, Pace::default());
    for pairs in args[1..].chunks(2 * KEYS_AT_ONCE) {
        let keys = keys_of(call, pairs);
        if keys.len() > 1 {
            // One round trip brings all records into memory, instead of one for each.
            call.access.kinds(&keys).await?;
        }
        for (key, pair) in keys.iter().zip(pairs.chunks_exact(2)) {
            set_and_tell(call, key, &pair[1], Lifetime::Forever).await?;
            pace.step().await;
        }
    }
    Ok(())
}

/// The keys of pairs of a key and a value.
fn keys_of(call: &Call<'_>, pairs: &[Vec<u8>]) -> Vec<Key> {
    pairs.iter().step_by(2).map(|name| call.session.key(name)).collect()
}

pub(super) async fn str_len(call: &mut Call<'_>) -> Result<(), Wrong> {
    let value = call.access.string(&call.key(1)).await?;
    call.out.count(value.map_or(0, |value| value.len()));
    Ok(())
}

pub(super) async fn append(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    let more = &call.args[2];
    let length = old.as_ref().map_or(0, |old| old.len()) + more.len();
    if length as u64 > STRING_AT_MOST {
        return Err(Wrong::string_too_long());
    }
    let value = match &old {
        Some(old) => [&old[..], more].concat(),
        None => more.clone(),
    };
    change(call, &key, &value, "append").await?;
    call.out.count(length);
    Ok(())
}

pub(super) async fn set_range(call: &mut Call<'_>) -> Result<(), Wrong> {
    let offset = integer_argument(&call.args[2])?;
    let offset = usize::try_from(offset).map_err(|_| Wrong::offset_out_of_range())?;
    let key = call.key(1);
    let part = &call.args[3];
    let old = call.access.string(&key).await?;
    if part.is_empty() {
        call.out.count(old.map_or(0, |old| old.len()));
        return Ok(());
    }
    let end = offset.checked_add(part.len()).filter(|end| *end as u64 <= STRING_AT_MOST);
    let end = end.ok_or(Wrong::string_too_long())?;
    let mut value = old.map(|old| old.to_vec()).unwrap_or_default();
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    change(call, &key, &value, "setrange").await?;
    call.out.count(value.len());
    Ok(())
}

pub(super) async fn get_range(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (start, end) = (integer_argument(&call.args[2])?, integer_argument(&call.args[3])?);
    let value = call.access.string(&call.key(1)).await?;
    let value = value.as_ref().map_or(&[][..], |value| &value[..]);
    call.out.bulk(range(value, start, end));
    Ok(())
}

/// Part of `value` from `start` to `end`, both included; negative ones count from its end.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let length = value.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(length - 1));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

pub(super) async fn incr(call: &mut Call<'_>) -> Result<(), Wrong> {
    add(call, 1).await
}

pub(super) async fn decr(call: &mut Call<'_>) -> Result<(), Wrong> {
    add(call, -1).await
}

pub(super) async fn incr_by(call: &mut Call<'_>) -> Result<(), Wrong> {
    let increment = integer_argument(&call.args[2])?;
    add(call, increment).await
}

pub(super) async fn decr_by(call: &mut Call<'_>) -> Result<(), Wrong> {
    let decrement = integer_argument(&call.args[2])?;
    add(call, decrement.checked_neg().ok_or(Wrong::decrement_overflow())?).await
}

async fn add(call: &mut Call<'_>, increment: i64) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = match call.access.string(&key).await? {
        Some(old) => integer(&old).ok_or(Wrong::not_an_integer())?,
        None => 0,
    };
    let sum = old.checked_add(increment).ok_or(Wrong::overflow())?;
    change(call, &key, sum.to_string().as_bytes(), "incrby").await?;
    call.out.integer(sum);
    Ok(())
}

pub(super) async fn incr_by_float(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    let sum = float_sum(old.as_ref().map_or(b"0", |old| &old[..]), &call.args[2])?;
    change(call, &key, sum.as_bytes(), "incrbyfloat").await?;
    call.out.bulk(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_string() {
        let cases: [(i64, i64, &str); 9] = [
            (0, 3, "This"),
            (0, -1, "This is"),
            (-2, -1, "is"),
            (5, 100, "is"),
            (5, 4, ""),
            (-1, -3, ""),
            (100, 200, ""),
            (i64::MIN, i64::MAX, "This is"),
            (-100, 0, "T"),
        ];
        for (start, end, part) in cases {
            assert_eq!(range(b"This is", start, end), part.as_bytes(), "{start} {end}");
        }
        assert_eq!(range(b"", 0, -1), b"");
    }
}
