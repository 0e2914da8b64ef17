//! Sets, and what is computed of several sets.

use super::Call;
use super::collections::{card_limit, choose, key_count, pop_count, scan};
use super::pace::{KEYS_AT_ONCE, Pace};
use crate::store::{Access, Classes, Key, Kind};
use crate::wrong::Wrong;
use std::collections::BTreeSet;

const SET: Kind = Kind::Set;
/// Class of the events.
const OF_SETS: Classes = Classes::SET;

/// Members of a set that is computed.
type Members = BTreeSet<Vec<u8>>;

pub(super) async fn add(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let added = put(call.access, &key, call.args[2..].iter()).await?;
    if added > 0 {
        call.event(OF_SETS, "sadd", &key);
    }
    call.out.integer(added.cast_signed());
    Ok(())
}

async fn put(access: &mut Access, key: &Key, members: impl Iterator<Item = &Vec<u8>>) -> Result<u64, Wrong> {
    access.put_elements(key, SET, members.map(|member| (&member[..], &[][..]))).await
}

pub(super) async fn remove(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let removed = call.access.delete_elements(&key, SET, &call.args[2..]).await?;
    if removed > 0 {
        call.access.event_of_removal(OF_SETS, "srem", &key).await?;
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

pub(super) async fn length(call: &mut Call<'_>) -> Result<(), Wrong> {
    let length = call.access.length(&call.key(1), SET).await?;
    call.out.integer(length.cast_signed());
    Ok(())
}

pub(super) async fn is_member(call: &mut Call<'_>) -> Result<(), Wrong> {
    let found = call.access.element(&call.key(1), SET, &call.args[2]).await?;
    call.out.integer(found.is_some().into());
    Ok(())
}

pub(super) async fn are_members(call: &mut Call<'_>) -> Result<(), Wrong> {
    let found = call.access.elements(&call.key(1), SET, &call.args[2..]).await?;
    call.out.array(found.len());
    found.iter().for_each(|found| call.out.integer(found.is_some().into()));
    Ok(())
}

pub(super) async fn members(call: &mut Call<'_>) -> Result<(), Wrong> {
    let all = call.access.all_elements(&call.key(1), SET).await?;
    call.out.set(all.len());
    all.into_iter().for_each(|(member, _)| call.out.bulk(member));
    Ok(())
}

pub(super) async fn move_to(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (from, to, member) = (call.key(1), call.key(2), &call.args[3..]);
    let is_member = call.access.element(&from, SET, &member[0]).await?.is_some();
    if call.access.kind(&from).await?.is_some() && call.access.kind(&to).await?.is_some_and(|it| it != SET) {
        return Err(Wrong::wrong_type());
    }
    if is_member && from != to {
        call.access.delete_elements(&from, SET, member).await?;
        call.access.event_of_removal(OF_SETS, "srem", &from).await?;
        if put(call.access, &to, member.iter()).await? > 0 {
            call.event(OF_SETS, "sadd", &to);
        }
    }
    call.out.integer(is_member.into());
    Ok(())
}

pub(super) async fn pop(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let count = match call.args {
        [_, _] => 1,
        [_, _, count] => pop_count(count)?,
        _ => return Err(Wrong::syntax()),
    };
    let chosen = call.access.random_elements(&key, SET, count).await?;
    let chosen: Vec<Vec<u8>> = chosen.into_iter().map(|(member, _)| member).collect();
    call.access.delete_elements(&key, SET, &chosen).await?;
    if !chosen.is_empty() {
        call.access.event_of_removal(OF_SETS, "spop", &key).await?;
    }
    match call.args.len() {
        2 => call.out.optional_bulk(chosen.first()),
        _ => {
            call.out.set(chosen.len());
            chosen.iter().for_each(|member| call.out.bulk(member));
        }
    }
    Ok(())
}

pub(super) async fn random_member(call: &mut Call<'_>) -> Result<(), Wrong> {
    match call.args {
        [_, _] => {
            let chosen = call.access.random_elements(&call.key(1), SET, 1).await?;
            call.out.optional_bulk(chosen.into_iter().next().map(|(member, _)| member));
        }
        [_, _, count] => {
            let chosen = choose(call, SET, count).await?;
            call.out.array(chosen.len());
            chosen.each(|member, _| call.out.bulk(member)).await;
        }
        _ => return Err(Wrong::syntax()),
    }
    Ok(())
}

pub(super) async fn scan_members(call: &mut Call<'_>) -> Result<(), Wrong> {
    scan(call, SET).await
}

/// A set of several sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Members of all.
    Intersection,
    /// Members of any.
    Union,
    /// Members of the first and of no other.
    Difference,
}

pub(super) async fn inter(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Operation::Intersection).await
}

pub(super) async fn union(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Operation::Union).await
}

pub(super) async fn diff(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Operation::Difference).await
}

async fn reply(call: &mut Call<'_>, operation: Operation) -> Result<(), Wrong> {
    let found = compute(call.access, &call.keys(1..call.args.len()), operation).await?;
    call.out.set(found.len());
    let mut pace = Pace::default();
    for member in &found {
        call.out.bulk(member);
        pace.step().await;
    }
    Ok(())
}

pub(super) async fn inter_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Operation::Intersection).await
}

pub(super) async fn union_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Operation::Union).await
}

pub(super) async fn diff_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Operation::Difference).await
}

/// Puts the members in place of the first key's value of any type.
async fn store(call: &mut Call<'_>, operation: Operation) -> Result<(), Wrong> {
    let to = call.key(1);
    let found = compute(call.access, &call.keys(2..call.args.len()), operation).await?;
    let was_there = call.access.delete(&to).await?;
    put(call.access, &to, found.iter()).await?;
    let event = match operation {
        Operation::Intersection => "sinterstore",
        Operation::Union => "sunionstore",
        Operation::Difference => "sdiffstore",
    };
    call.access.event_of_store(OF_SETS, event, &to, found.len(), was_there);
    call.out.count(found.len());
    Ok(())
}

pub(super) async fn inter_card(call: &mut Call<'_>) -> Result<(), Wrong> {
    let count = key_count(&call.args[1])?;
    if count > call.args.len() - 2 {
        return Err(Wrong::err("Number of keys can't be greater than number of args"));
    }
    let limit = match &call.args[2 + count..] {
        [] => 0,
        [_, limit] if call.is(2 + count, "limit") => card_limit(limit)?,
        _ => return Err(Wrong::syntax()),
    };
    let found = compute(call.access, &call.keys(2..2 + count), Operation::Intersection).await?;
    call.out.count(if limit == 0 { found.len() } else { found.len().min(limit) });
    Ok(())
}

/// Computes a set of several sets; keys that are not there are empty sets.
///
/// # Errors
/// `WRONGTYPE`: one of the keys is no set.
async fn compute(access: &Access, keys: &[Key], operation: Operation) -> Result<Members, Wrong> {
    access.pin();
    let (mut kinds, mut pace) = (Vec::with_capacity(keys.len()), Pace::default());
    for keys in keys.chunks(KEYS_AT_ONCE) {
        kinds.extend(access.kinds(keys).await?);
        pace.steps(keys.len()).await;
    }
    if kinds.iter().flatten().any(|kind| *kind != SET) {
        return Err(Wrong::wrong_type());
    }
    let mut sets: Vec<&Key> = keys.iter().collect();
    match operation {
        Operation::Union => {
            let mut found = Members::new();
            for key in sets {
                for (member, _) in access.all_elements(key, SET).await? {
                    found.insert(member);
                    pace.step().await;
                }
                pace.step().await;
            }
            return Ok(found);
        }
        Operation::Intersection if kinds.iter().any(Option::is_none) => return Ok(Members::new()),
        Operation::Intersection => {
            // The smallest comes first, because its members are looked up in the others.
            let mut lengths = Vec::with_capacity(sets.len());
            for key in sets {
                lengths.push((access.length(key, SET).await?, key));
                pace.step().await;
            }
            lengths.sort_by_key(|(length, _)| *length);
            sets = lengths.into_iter().map(|(_, key)| key).collect();
        }
        Operation::Difference => {}
    }
    let Some((first, others)) = sets.split_first() else { return Ok(Members::new()) };
    let first = access.all_elements(first, SET).await?;
    let mut left: Vec<Vec<u8>> = first.into_iter().map(|(member, _)| member).collect();
    for other in others {
        let mut kept = Vec::new();
        for members in left.chunks_mut(KEYS_AT_ONCE) {
            let found = access.elements(other, SET, members).await?;
            let is_kept = |found: &Option<_>| found.is_some() == (operation == Operation::Intersection);
            let chosen = members.iter_mut().zip(&found).filter(|(_, found)| is_kept(found));
            kept.extend(chosen.map(|(member, _)| std::mem::take(member)));
            pace.steps(found.len()).await;
        }
        left = kept;
        pace.step().await;
    }
    // In their order already.
    Ok(left.into_iter().collect())
}
