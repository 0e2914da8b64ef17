//! Lists; the commands that wait are in `blocking`.

use super::Call;
use super::collections::{ManyPop, many_pop, pop_count};
use crate::numbers::integer_argument;
use crate::store::{Classes, Key, Kind, Side};
use crate::wrong::Wrong;
use karstdb::Value;
use std::ops::Range;

const LIST: Kind = Kind::List;
/// Class of the events.
const OF_LISTS: Classes = Classes::LIST;

pub(super) async fn left_push(call: &mut Call<'_>) -> Result<(), Wrong> {
    push(call, Side::Left).await
}

pub(super) async fn right_push(call: &mut Call<'_>) -> Result<(), Wrong> {
    push(call, Side::Right).await
}

/// Names of the events of a push and of a pop.
fn events_of(side: Side) -> (&'static str, &'static str) {
    match side {
        Side::Left => ("lpush", "lpop"),
        Side::Right => ("rpush", "rpop"),
    }
}

/// Pops elements, and tells of it.
pub(super) async fn pop_and_tell(
    call: &mut Call<'_>,
    key: &Key,
    side: Side,
    count: u64,
) -> Result<Vec<Value>, Wrong> {
    let values = call.access.list_pop(key, side, count).await?;
    if !values.is_empty() {
        call.access.event_of_removal(OF_LISTS, events_of(side).1, key).await?;
    }
    Ok(values)
}

async fn push(call: &mut Call<'_>, side: Side) -> Result<(), Wrong> {
    let key = call.key(1);
    let length = call.access.list_push(&key, side, &call.args[2..]).await?;
    call.event(OF_LISTS, events_of(side).0, &key);
    call.out.integer(length.cast_signed());
    Ok(())
}

pub(super) async fn left_push_existing(call: &mut Call<'_>) -> Result<(), Wrong> {
    push_existing(call, Side::Left).await
}

pub(super) async fn right_push_existing(call: &mut Call<'_>) -> Result<(), Wrong> {
    push_existing(call, Side::Right).await
}

async fn push_existing(call: &mut Call<'_>, side: Side) -> Result<(), Wrong> {
    if call.access.length(&call.key(1), LIST).await? > 0 {
        return push(call, side).await;
    }
    call.out.integer(0);
    Ok(())
}

pub(super) async fn left_pop(call: &mut Call<'_>) -> Result<(), Wrong> {
    pop(call, Side::Left).await
}

pub(super) async fn right_pop(call: &mut Call<'_>) -> Result<(), Wrong> {
    pop(call, Side::Right).await
}

async fn pop(call: &mut Call<'_>, side: Side) -> Result<(), Wrong> {
    let key = call.key(1);
    let count = match call.args {
        [_, _] => None,
        [_, _, count] => Some(pop_count(count)?),
        _ => return Err(Wrong::arity(&call.word(0))),
    };
    if count.is_some() && call.access.length(&key, LIST).await? == 0 {
        call.out.null_array();
        return Ok(());
    }
    let values = pop_and_tell(call, &key, side, count.unwrap_or(1)).await?;
    match count {
        None => call.out.optional_bulk(values.first()),
        Some(_) => {
            call.out.array(values.len());
            values.iter().for_each(|value| call.out.bulk(value));
        }
    }
    Ok(())
}

pub(super) async fn length(call: &mut Call<'_>) -> Result<(), Wrong> {
    let length = call.access.length(&call.key(1), LIST).await?;
    call.out.integer(length.cast_signed());
    Ok(())
}

/// The index that an argument says, where negative ones count from the end; `None`: there is no
/// such element.
fn index_of(index: i64, length: u64) -> Option<u64> {
    let index = if index < 0 { length.checked_add_signed(index)? } else { index.cast_unsigned() };
    Some(index).filter(|index| *index < length)
}

/// The indexes from one argument to another, both included.
pub(super) fn range_of(start: i64, end: i64, length: u64) -> Range<u64> {
    let from =
        |index: i64| if index < 0 { length.saturating_add_signed(index) } else { index.cast_unsigned() };
    let behind = match end {
        0.. => end.cast_unsigned() + 1,
        _ => length.checked_add_signed(end).map_or(0, |end| end + 1),
    };
    from(start).min(length)..behind.min(length)
}

pub(super) async fn range(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (start, end) = (integer_argument(&call.args[2])?, integer_argument(&call.args[3])?);
    let key = call.key(1);
    call.access.pin();
    let length = call.access.length(&key, LIST).await?;
    let values = call.access.list_range(&key, range_of(start, end, length)).await?;
    call.out.array(values.len());
    values.iter().for_each(|value| call.out.bulk(value));
    Ok(())
}

pub(super) async fn index(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (key, index) = (call.key(1), integer_argument(&call.args[2])?);
    call.access.pin();
    let length = call.access.length(&key, LIST).await?;
    let value = match index_of(index, length) {
        Some(index) => call.access.list_range(&key, index..index + 1).await?.into_iter().next(),
        None => None,
    };
    call.out.optional_bulk(value);
    Ok(())
}

pub(super) async fn set(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let length = call.access.length(&key, LIST).await?;
    if length == 0 {
        return Err(Wrong::no_such_key());
    }
    let index = index_of(integer_argument(&call.args[2])?, length).ok_or(Wrong::index_out_of_range())?;
    call.access.list_set(&key, index, &call.args[3]).await?;
    call.event(OF_LISTS, "lset", &key);
    call.out.ok();
    Ok(())
}

pub(super) async fn trim(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (start, end) = (integer_argument(&call.args[2])?, integer_argument(&call.args[3])?);
    let key = call.key(1);
    let length = call.access.length(&key, LIST).await?;
    call.access.list_trim(&key, range_of(start, end, length)).await?;
    if length > 0 {
        call.access.event_of_removal(OF_LISTS, "ltrim", &key).await?;
    }
    call.out.ok();
    Ok(())
}

pub(super) async fn remove(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (key, count) = (call.key(1), integer_argument(&call.args[2])?);
    let values = call.access.list_range(&key, 0..u64::MAX).await?;
    let is_wanted = |value: &[u8]| value == call.args[3];
    let places = values.iter().enumerate().filter(|(_, value)| is_wanted(value)).map(|(place, _)| place);
    let most =
        if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let mut gone: Vec<usize> =
        if count < 0 { places.rev().take(most).collect() } else { places.take(most).collect() };
    gone.sort_unstable();
    if let Some(first) = gone.first() {
        let is_kept = |place: &usize| gone.binary_search(place).is_err();
        let kept: Vec<_> = (*first..values.len()).filter(is_kept).map(|place| &values[place]).collect();
        call.access.list_replace(&key, *first as u64, &kept).await?;
        call.access.event_of_removal(OF_LISTS, "lrem", &key).await?;
    }
    call.out.count(gone.len());
    Ok(())
}

pub(super) async fn insert(call: &mut Call<'_>) -> Result<(), Wrong> {
    let behind = match &*call.word(2) {
        "before" => 0,
        "after" => 1,
        _ => return Err(Wrong::syntax()),
    };
    let (key, pivot, value) = (call.key(1), &call.args[3], &call.args[4]);
    let values = call.access.list_range(&key, 0..u64::MAX).await?;
    let Some(place) = values.iter().position(|it| it[..] == pivot[..]) else {
        call.out.integer(if values.is_empty() { 0 } else { -1 });
        return Ok(());
    };
    let place = place + behind;
    let mut moved: Vec<&[u8]> = vec![value];
    moved.extend(values[place..].iter().map(|value| &value[..]));
    call.access.list_replace(&key, place as u64, &moved).await?;
    call.event(OF_LISTS, "linsert", &key);
    call.out.count(values.len() + 1);
    Ok(())
}

/// Parses the name of an end.
pub(super) fn side(word: &[u8]) -> Result<Side, Wrong> {
    match &*super::lower(word) {
        "left" => Ok(Side::Left),
        "right" => Ok(Side::Right),
        _ => Err(Wrong::syntax()),
    }
}

pub(super) async fn pop_push(call: &mut Call<'_>) -> Result<(), Wrong> {
    move_element(call, Side::Right, Side::Left).await
}

pub(super) async fn move_to(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (from, to) = (side(&call.args[3])?, side(&call.args[4])?);
    move_element(call, from, to).await
}

async fn move_element(call: &mut Call<'_>, taken: Side, given: Side) -> Result<(), Wrong> {
    let (from, to) = (call.key(1), call.key(2));
    let is_there = call.access.length(&from, LIST).await? > 0;
    if !is_there {
        call.out.null();
        return Ok(());
    }
    move_between(call, &from, &to, taken, given).await
}

/// Moves an element of a list that exists.
pub(super) async fn move_between(
    call: &mut Call<'_>,
    from: &Key,
    to: &Key,
    taken: Side,
    given: Side,
) -> Result<(), Wrong> {
    if call.access.kind(to).await?.is_some_and(|kind| kind != LIST) {
        return Err(Wrong::wrong_type());
    }
    let values = call.access.list_pop(from, taken, 1).await?;
    call.access.list_push(to, given, &values).await?;
    call.event(OF_LISTS, events_of(given).0, to);
    call.access.event_of_removal(OF_LISTS, events_of(taken).1, from).await?;
    call.out.optional_bulk(values.first());
    Ok(())
}

pub(super) async fn positions(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut rank, mut count, mut most) = (1, None, 0);
    for at in (3..call.args.len()).step_by(2) {
        let number = integer_argument(call.args.get(at + 1).ok_or(Wrong::syntax())?);
        match &*call.word(at) {
            "rank" => rank = number?,
            "count" => {
                let number = number.ok().and_then(|it| usize::try_from(it).ok());
                count = Some(number.ok_or(Wrong::err("COUNT can't be negative"))?);
            }
            "maxlen" => {
                let number = number.ok().and_then(|it| usize::try_from(it).ok());
                most = number.ok_or(Wrong::err("MAXLEN can't be negative"))?;
            }
            _ => return Err(Wrong::syntax()),
        }
    }
    if rank == 0 {
        let why = "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                   negative to start from the end of the list";
        return Err(Wrong::err(why));
    }
    if rank == i64::MIN {
        return Err(Wrong::err(
            "value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let values = call.access.list_range(&call.key(1), 0..u64::MAX).await?;
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let looks = if most == 0 { usize::MAX } else { most };
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let is_found = |place: &usize| values[*place][..] == call.args[2][..];
    let found: Vec<usize> = if rank < 0 {
        (0..values.len()).rev().take(looks).filter(is_found).skip(skipped).take(wanted).collect()
    } else {
        (0..values.len()).take(looks).filter(is_found).skip(skipped).take(wanted).collect()
    };
    match (count, found.first()) {
        (None, Some(place)) => call.out.count(*place),
        (None, None) => call.out.null(),
        (Some(_), _) => {
            call.out.array(found.len());
            found.iter().for_each(|place| call.out.count(*place));
        }
    }
    Ok(())
}

pub(super) async fn pop_many(call: &mut Call<'_>) -> Result<(), Wrong> {
    let ManyPop { keys, end, most } = many_pop(call.args, 1, side)?;
    for key in call.keys(keys) {
        if call.access.length(&key, LIST).await? > 0 {
            return pop_from(call, &key, end, most).await;
        }
    }
    call.out.null_array();
    Ok(())
}

/// Pops elements of a list that exists, and replies with its key and them.
pub(super) async fn pop_from(call: &mut Call<'_>, key: &Key, side: Side, most: u64) -> Result<(), Wrong> {
    let values = pop_and_tell(call, key, side, most).await?;
    call.out.array(2);
    call.out.bulk(&key.name);
    call.out.array(values.len());
    values.iter().for_each(|value| call.out.bulk(value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_count_from_either_end() {
        assert_eq!((index_of(0, 3), index_of(-1, 3), index_of(-3, 3)), (Some(0), Some(2), Some(0)));
        assert_eq!((index_of(3, 3), index_of(-4, 3), index_of(i64::MIN, 3)), (None, None, None));
        assert_eq!(range_of(0, -1, 3), 0..3);
        assert_eq!(range_of(-100, 100, 3), 0..3);
        assert_eq!(range_of(i64::MIN, i64::MAX, 3), 0..3);
        assert!(
            range_of(2, 1, 3).is_empty() && range_of(5, 9, 3).is_empty() && range_of(0, -4, 3).is_empty()
        );
    }
}
