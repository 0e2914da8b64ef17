//! Hashes.

use super::Call;
use super::collections::{choose, scan};
use crate::numbers::{float_argument, float_sum, integer, integer_argument};
use crate::resp::Protocol;
use crate::store::{Classes, Key, Kind, Lifetime};
use crate::wrong::Wrong;
use karstdb::Value;

pub(super) const HASH: Kind = Kind::Hash;
/// Class of the events.
pub(super) const OF_HASHES: Classes = Classes::HASH;

pub(super) async fn get(call: &mut Call<'_>) -> Result<(), Wrong> {
    let value = call.access.element(&call.key(1), HASH, &call.args[2]).await?;
    call.out.optional_bulk(value);
    Ok(())
}

pub(super) async fn mget(call: &mut Call<'_>) -> Result<(), Wrong> {
    let values = call.access.elements(&call.key(1), HASH, &call.args[2..]).await?;
    call.out.array(values.len());
    values.into_iter().for_each(|value| call.out.optional_bulk(value));
    Ok(())
}

pub(super) async fn get_all(call: &mut Call<'_>) -> Result<(), Wrong> {
    let all = call.access.all_elements(&call.key(1), HASH).await?;
    call.out.map(all.len());
    for (field, value) in all {
        call.out.bulk(field);
        call.out.bulk(value);
    }
    Ok(())
}

pub(super) async fn keys(call: &mut Call<'_>) -> Result<(), Wrong> {
    let all = call.access.all_elements(&call.key(1), HASH).await?;
    call.out.array(all.len());
    all.into_iter().for_each(|(field, _)| call.out.bulk(field));
    Ok(())
}

pub(super) async fn values(call: &mut Call<'_>) -> Result<(), Wrong> {
    let all = call.access.all_elements(&call.key(1), HASH).await?;
    call.out.array(all.len());
    all.into_iter().for_each(|(_, value)| call.out.bulk(value));
    Ok(())
}

pub(super) async fn length(call: &mut Call<'_>) -> Result<(), Wrong> {
    let length = call.access.length(&call.key(1), HASH).await?;
    call.out.integer(length.cast_signed());
    Ok(())
}

pub(super) async fn str_len(call: &mut Call<'_>) -> Result<(), Wrong> {
    let value = call.access.element(&call.key(1), HASH, &call.args[2]).await?;
    call.out.count(value.map_or(0, |value| value.len()));
    Ok(())
}

pub(super) async fn exists(call: &mut Call<'_>) -> Result<(), Wrong> {
    let value = call.access.element(&call.key(1), HASH, &call.args[2]).await?;
    call.out.integer(value.is_some().into());
    Ok(())
}

pub(super) async fn set(call: &mut Call<'_>) -> Result<(), Wrong> {
    let added = put_pairs(call, "hset").await?;
    call.out.integer(added);
    Ok(())
}

pub(super) async fn mset(call: &mut Call<'_>) -> Result<(), Wrong> {
    put_pairs(call, "hmset").await?;
    call.out.ok();
    Ok(())
}

async fn put_pairs(call: &mut Call<'_>, command: &str) -> Result<i64, Wrong> {
    let (pairs, rest) = call.args[2..].as_chunks();
    if !rest.is_empty() {
        return Err(Wrong::arity(command));
    }
    let pairs = pairs.iter().map(|[field, value]| (&field[..], &value[..]));
    let key = call.key(1);
    let added = call.access.put_elements(&key, HASH, pairs).await?;
    call.event(OF_HASHES, "hset", &key);
    Ok(added.cast_signed())
}

pub(super) async fn set_nx(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let is_new = call.access.element(&key, HASH, &call.args[2]).await?.is_none();
    if is_new {
        put(call, &key, &call.args[3], "hset").await?;
    }
    call.out.integer(is_new.into());
    Ok(())
}

/// Puts the field that the second argument names with the expiry that it has, and tells of it.
async fn put(call: &mut Call<'_>, key: &Key, value: &[u8], event: &'static str) -> Result<(), Wrong> {
    let pair = std::iter::once((&call.args[2][..], value));
    call.access.put_elements_for(key, HASH, pair, Lifetime::Keep).await?;
    call.event(OF_HASHES, event, key);
    Ok(())
}

pub(super) async fn del(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let removed = call.access.delete_elements(&key, HASH, &call.args[2..]).await?;
    if removed > 0 {
        call.access.event_of_removal(OF_HASHES, "hdel", &key).await?;
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

pub(super) async fn incr_by(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (key, increment) = (call.key(1), integer_argument(&call.args[3])?);
    let old = call.access.element(&key, HASH, &call.args[2]).await?;
    let old = old.map_or(Some(0), |old| integer(&old)).ok_or(Wrong::hash_not_an_integer())?;
    let sum = old.checked_add(increment).ok_or(Wrong::overflow())?;
    put(call, &key, sum.to_string().as_bytes(), "hincrby").await?;
    call.out.integer(sum);
    Ok(())
}

pub(super) async fn incr_by_float(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (key, increment) = (call.key(1), &call.args[3]);
    if !float_argument(increment)?.is_finite() {
        return Err(Wrong::err("value is NaN or Infinity"));
    }
    let old = call.access.element(&key, HASH, &call.args[2]).await?;
    let old = old.as_ref().map_or(&b"0"[..], |old| old);
    float_argument(old).map_err(|_| Wrong::hash_not_a_float())?;
    let sum = float_sum(old, increment)?;
    put(call, &key, sum.as_bytes(), "hincrbyfloat").await?;
    call.out.bulk(sum);
    Ok(())
}

pub(super) async fn scan_fields(call: &mut Call<'_>) -> Result<(), Wrong> {
    scan(call, HASH).await
}

pub(super) async fn random_field(call: &mut Call<'_>) -> Result<(), Wrong> {
    let with_values = match call.args {
        [_, _] => {
            let chosen = call.access.random_elements(&call.key(1), HASH, 1).await?;
            call.out.optional_bulk(chosen.into_iter().next().map(|(field, _)| field));
            return Ok(());
        }
        [_, _, _] => false,
        [_, _, _, _] if call.is(3, "withvalues") => true,
        _ => return Err(Wrong::syntax()),
    };
    let chosen = choose(call, HASH, &call.args[2]).await?;
    let has_pairs = with_values && call.out.protocol() == Protocol::Three;
    call.out.array(if with_values && !has_pairs { 2 * chosen.len() } else { chosen.len() });
    let each = |field: &[u8], value: &Value| {
        if has_pairs {
            call.out.array(2);
        }
        call.out.bulk(field);
        if with_values {
            call.out.bulk(value);
        }
    };
    chosen.each(each).await;
    Ok(())
}
