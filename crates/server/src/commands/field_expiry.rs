//! Fields of hashes with expiries: the HEXPIRE family, HTTL and its relatives, HPERSIST, and
//! HGETEX, HSETEX and HGETDEL.

use super::Call;
use super::hashes::{HASH, OF_HASHES};
use super::keys::Conditions;
use super::strings::ExpiryOption;
use crate::numbers::integer_argument;
use crate::store::{FieldChange, Lifetime, Millis};
use crate::wrong::Wrong;
use std::ops::Range;

/// Maximum of a field's expiry, in milliseconds since 1970, as Redis has it.
const LATEST: Millis = (1 << 46) - 1;

/// Parses FIELDS, the number of fields, and the fields, of `step` arguments each, from the argument
/// `at` to the end. Returns the numbers of the arguments behind them.
fn fields(call: &Call<'_>, at: usize, step: usize) -> Result<Range<usize>, Wrong> {
    if !call.is(at, "fields") {
        return Err(Wrong::err("Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = call.args.get(at + 1).and_then(|count| integer_argument(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Wrong::err("Parameter `numFields` should be greater than 0"))?;
    let given = at + 2..call.args.len();
    match count.checked_mul(step) == Some(given.len()) {
        true => Ok(given),
        false => Err(Wrong::err("The `numfields` parameter must match the number of arguments")),
    }
}

/// The moment that an argument says.
fn moment(argument: &[u8], unit: i64, origin: Millis, command: &str) -> Result<Millis, Wrong> {
    let number = integer_argument(argument)?;
    if number < 0 {
        return Err(Wrong::err("invalid expire time, must be >= 0"));
    }
    let moment = number.checked_mul(unit).and_then(|span| span.checked_add(origin));
    moment.filter(|at| *at <= LATEST).ok_or_else(|| Wrong::invalid_expire(command))
}

/// Tells of fields that have got other expiries or are gone.
async fn tell(call: &mut Call<'_>, changes: &[FieldChange], event: &'static str) -> Result<(), Wrong> {
    let key = call.key(1);
    if changes.contains(&FieldChange::Done) {
        call.event(OF_HASHES, event, &key);
    }
    if changes.contains(&FieldChange::Deleted) {
        call.access.event_of_removal(OF_HASHES, "hdel", &key).await?;
    }
    Ok(())
}

pub(super) async fn expire(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    set_expiry(call, 1000, now).await
}

pub(super) async fn pexpire(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    set_expiry(call, 1, now).await
}

pub(super) async fn expire_at(call: &mut Call<'_>) -> Result<(), Wrong> {
    set_expiry(call, 1000, 0).await
}

pub(super) async fn pexpire_at(call: &mut Call<'_>) -> Result<(), Wrong> {
    set_expiry(call, 1, 0).await
}

async fn set_expiry(call: &mut Call<'_>, unit: i64, origin: Millis) -> Result<(), Wrong> {
    let at = moment(&call.args[2], unit, origin, &call.word(0))?;
    let has_condition = ["nx", "xx", "gt", "lt"].iter().any(|word| call.is(3, word));
    let conditions = Conditions::parse(&call.args[3..3 + usize::from(has_condition)])?;
    let names = &call.args[fields(call, 3 + usize::from(has_condition), 1)?];
    let allows = |old| conditions.allow(old, at);
    let changes = call.access.set_field_expiries(&call.key(1), names, Some(at), allows).await?;
    tell(call, &changes, "hexpire").await?;
    call.out.array(changes.len());
    for change in changes {
        call.out.integer(match change {
            FieldChange::Missing => -2,
            FieldChange::Refused => 0,
            FieldChange::Done => 1,
            FieldChange::Deleted => 2,
        });
    }
    Ok(())
}

pub(super) async fn persist(call: &mut Call<'_>) -> Result<(), Wrong> {
    let names = &call.args[fields(call, 2, 1)?];
    let changes = call.access.set_field_expiries(&call.key(1), names, None, |old| old.is_some()).await?;
    tell(call, &changes, "hpersist").await?;
    call.out.array(changes.len());
    for change in changes {
        call.out.integer(match change {
            FieldChange::Missing => -2,
            FieldChange::Refused => -1,
            FieldChange::Done | FieldChange::Deleted => 1,
        });
    }
    Ok(())
}

pub(super) async fn ttl(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    tell_expiry(call, |at| (at - now + 999) / 1000).await
}

pub(super) async fn pttl(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    tell_expiry(call, |at| at - now).await
}

pub(super) async fn expire_time(call: &mut Call<'_>) -> Result<(), Wrong> {
    tell_expiry(call, |at| at / 1000 + i64::from(at % 1000 > 0)).await
}

pub(super) async fn pexpire_time(call: &mut Call<'_>) -> Result<(), Wrong> {
    tell_expiry(call, |at| at).await
}

async fn tell_expiry(call: &mut Call<'_>, form: impl Fn(Millis) -> i64) -> Result<(), Wrong> {
    let names = &call.args[fields(call, 2, 1)?];
    let found = call.access.fields(&call.key(1), names).await?;
    call.out.array(found.len());
    for field in found {
        call.out.integer(match field {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(at))) => form(at),
        });
    }
    Ok(())
}

/// Expiry that an option says, at the argument `at`: that of EX, PX, EXAT or PXAT. Returns the
/// number of the argument behind it.
fn expiry_option(call: &Call<'_>, at: usize) -> Result<Option<(Millis, usize)>, Wrong> {
    let (Some(option), Some(number)) = (ExpiryOption::from_word(&call.word(at)), call.args.get(at + 1))
    else {
        return Ok(None);
    };
    let moment = option.moment(number, call.access.now(), &call.word(0))?;
    match moment <= LATEST {
        true => Ok(Some((moment, at + 2))),
        false => Err(Wrong::invalid_expire(&call.word(0))),
    }
}

pub(super) async fn get_ex(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (expiry, behind) = match expiry_option(call, 2)? {
        Some((at, behind)) => (Some(Some(at)), behind),
        None if call.is(2, "persist") => (Some(None), 3),
        None => (None, 2),
    };
    let (key, names) = (call.key(1), &call.args[fields(call, behind, 1)?]);
    let found = call.access.fields(&key, names).await?;
    if let Some(at) = expiry {
        let allows = |old: Option<Millis>| at.is_some() || old.is_some();
        let changes = call.access.set_field_expiries(&key, names, at, allows).await?;
        tell(call, &changes, if at.is_some() { "hexpire" } else { "hpersist" }).await?;
    }
    call.out.array(found.len());
    found.into_iter().for_each(|field| call.out.optional_bulk(field.map(|(value, _)| value)));
    Ok(())
}

pub(super) async fn get_del(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (key, names) = (call.key(1), &call.args[fields(call, 2, 1)?]);
    let found = call.access.fields(&key, names).await?;
    if call.access.delete_elements(&key, HASH, names).await? > 0 {
        call.access.event_of_removal(OF_HASHES, "hdel", &key).await?;
    }
    call.out.array(found.len());
    found.into_iter().for_each(|field| call.out.optional_bulk(field.map(|(value, _)| value)));
    Ok(())
}

pub(super) async fn set_ex(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut must_exist, mut lifetime, mut at) = (None, None, 2);
    loop {
        match &*call.word(at) {
            "fnx" if must_exist.is_none() => must_exist = Some(false),
            "fxx" if must_exist.is_none() => must_exist = Some(true),
            "keepttl" if lifetime.is_none() => lifetime = Some(Lifetime::Keep),
            _ => match expiry_option(call, at)? {
                Some((moment, behind)) if lifetime.is_none() => {
                    lifetime = Some(Lifetime::Until(moment));
                    at = behind;
                    continue;
                }
                Some(_) => return Err(Wrong::syntax()),
                None => break,
            },
        }
        at += 1;
    }
    let (key, pairs) = (call.key(1), fields(call, at, 2)?);
    let (pairs, _) = call.args[pairs].as_chunks::<2>();
    let names: Vec<Vec<u8>> = pairs.iter().map(|[name, _]| name.clone()).collect();
    let found = call.access.fields(&key, &names).await?;
    let is_set = must_exist.is_none_or(|must| found.iter().all(|field| field.is_some() == must));
    call.out.integer(is_set.into());
    match lifetime.unwrap_or(Lifetime::Forever) {
        _ if !is_set => {}
        // The fields are there for no time.
        Lifetime::Until(moment) if moment <= call.access.now() => {
            if call.access.delete_elements(&key, HASH, &names).await? > 0 {
                call.access.event_of_removal(OF_HASHES, "hdel", &key).await?;
            }
        }
        lifetime => {
            let pairs = pairs.iter().map(|[name, value]| (&name[..], &value[..]));
            call.access.put_elements_for(&key, HASH, pairs, lifetime).await?;
            call.event(OF_HASHES, "hset", &key);
            if matches!(lifetime, Lifetime::Until(_)) {
                call.event(OF_HASHES, "hexpire", &key);
            }
        }
    }
    Ok(())
}
