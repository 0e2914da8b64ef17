//! Keys of any type: existence, expiry, names, and moves.

use super::collections::{SCAN_COUNT, cursor, scan_count};
use super::pace::{KEYS_AT_ONCE, Pace};
use super::table::{Id, database, target};
use super::{Call, containers, encoding, quoted};
use crate::numbers::integer_argument;
use crate::pattern::Pattern;
use crate::store::{Classes, Key, Kind, Millis};
use crate::wrong::Wrong;

pub(super) async fn del(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut deleted, mut pace) = (0, Pace::default());
    for names in call.args[1..].chunks(KEYS_AT_ONCE) {
        let mut keys: Vec<Key> = names.iter().map(|name| call.session.key(name)).collect();
        if keys.len() > 1 {
            // One round trip for all, instead of one for each.
            let kinds = call.access.kinds(&keys).await?;
            let mut is_there = kinds.iter().map(Option::is_some);
            keys.retain(|_| is_there.next() == Some(true));
            pace.steps(names.len()).await;
        }
        for key in keys {
            if call.access.delete(&key).await? {
                call.event(Classes::GENERIC, "del", &key);
                deleted += 1;
            }
            pace.step().await;
        }
    }
    call.out.integer(deleted);
    Ok(())
}

pub(super) async fn exists(call: &mut Call<'_>) -> Result<(), Wrong> {
    let kinds = call.kinds(1..call.args.len()).await?;
    call.out.count(kinds.iter().flatten().count());
    Ok(())
}

pub(super) async fn type_of(call: &mut Call<'_>) -> Result<(), Wrong> {
    let kind = call.access.kind(&call.key(1)).await?;
    call.out.simple(kind.map_or("none", Kind::name));
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

/// Conditions of the EXPIRE and HEXPIRE families.
#[derive(Default)]
pub(super) struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    pub(super) fn parse(words: &[Vec<u8>]) -> Result<Self, Wrong> {
        let mut of = Self::default();
        for word in words {
            match &*super::lower(word) {
                "nx" => of.nx = true,
                "xx" => of.xx = true,
                "gt" => of.gt = true,
                "lt" => of.lt = true,
                _ => return Err(Wrong::err(format_args!("Unsupported option {}", quoted(word, 128)))),
            }
        }
        if of.nx && (of.xx || of.gt || of.lt) {
            return Err(Wrong::err("NX and XX, GT or LT options at the same time are not compatible"));
        }
        if of.gt && of.lt {
            return Err(Wrong::err("GT and LT options at the same time are not compatible"));
        }
        Ok(of)
    }

    /// Returns true if an expiry may be set in place of `old`. No expiry is later than any.
    pub(super) fn allow(&self, old: Option<Millis>, new: Millis) -> bool {
        let is_later = old.is_some_and(|old| new > old);
        let is_earlier = old.is_none_or(|old| new < old);
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && !is_later
            || self.lt && !is_earlier)
    }
}

async fn set_expiry(call: &mut Call<'_>, unit: i64, origin: Millis) -> Result<(), Wrong> {
    let conditions = Conditions::parse(&call.args[3..])?;
    let number = integer_argument(&call.args[2])?;
    let moment = number.checked_mul(unit).and_then(|span| span.checked_add(origin));
    let moment = moment.ok_or_else(|| Wrong::invalid_expire(&call.word(0)))?;
    let key = call.key(1);
    let is_set = match call.access.expiry(&key).await? {
        Some(old) if conditions.allow(old, moment) => expire_key(call, &key, Some(moment)).await?,
        Some(_) | None => false,
    };
    call.out.integer(is_set.into());
    Ok(())
}

/// Sets or removes the expiry of a key, and tells of it. A time that has come deletes the key.
pub(super) async fn expire_key(call: &mut Call<'_>, key: &Key, at: Option<Millis>) -> Result<bool, Wrong> {
    let is_there = call.access.set_expiry(key, at).await?;
    if is_there {
        let event = match at {
            None => "persist",
            Some(at) if at <= call.access.now() => "del",
            Some(_) => "expire",
        };
        call.event(Classes::GENERIC, event, key);
    }
    Ok(is_there)
}

pub(super) async fn persist(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let has_expiry = call.access.expiry(&key).await?.flatten().is_some();
    if has_expiry {
        expire_key(call, &key, None).await?;
    }
    call.out.integer(has_expiry.into());
    Ok(())
}

pub(super) async fn ttl(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    tell_expiry(call, |moment| ((moment - now).max(0) + 500) / 1000).await
}

pub(super) async fn pttl(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.access.now();
    tell_expiry(call, |moment| (moment - now).max(0)).await
}

pub(super) async fn expire_time(call: &mut Call<'_>) -> Result<(), Wrong> {
    tell_expiry(call, |moment| moment / 1000 + (moment % 1000 + 500) / 1000).await
}

pub(super) async fn pexpire_time(call: &mut Call<'_>) -> Result<(), Wrong> {
    tell_expiry(call, |moment| moment).await
}

async fn tell_expiry(call: &mut Call<'_>, form: impl Fn(Millis) -> i64) -> Result<(), Wrong> {
    let expiry = call.access.expiry(&call.key(1)).await?;
    call.out.integer(expiry.map_or(-2, |expiry| expiry.map_or(-1, form)));
    Ok(())
}

pub(super) async fn rename(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (from, to) = (call.key(1), call.key(2));
    let is_there = match from == to {
        true => call.access.kind(&from).await?.is_some(),
        false => call.access.rename(&from, &to).await? && tell_rename(call, &from, &to),
    };
    if !is_there {
        return Err(Wrong::no_such_key());
    }
    call.out.ok();
    Ok(())
}

/// Tells of the new name of a key. Returns true.
fn tell_rename(call: &mut Call<'_>, from: &Key, to: &Key) -> bool {
    call.event(Classes::GENERIC, "rename_from", from);
    call.event(Classes::GENERIC, "rename_to", to);
    true
}

pub(super) async fn rename_nx(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (from, to) = (call.key(1), call.key(2));
    if call.access.kind(&from).await?.is_none() {
        return Err(Wrong::no_such_key());
    }
    let is_free = call.access.kind(&to).await?.is_none();
    if is_free {
        call.access.rename(&from, &to).await?;
        tell_rename(call, &from, &to);
    }
    call.out.integer(is_free.into());
    Ok(())
}

pub(super) async fn move_to(call: &mut Call<'_>) -> Result<(), Wrong> {
    integer_argument(&call.args[2])?;
    let databases = call.server.store().databases();
    let db = database(&call.args[2], databases).ok_or(Wrong::db_out_of_range())?;
    let from = call.key(1);
    if db == from.db {
        return Err(Wrong::same_object());
    }
    let to = Key { db, name: from.name.clone() };
    let is_moved = call.access.kind(&to).await?.is_none() && call.access.rename(&from, &to).await?;
    if is_moved {
        call.event(Classes::GENERIC, "move_from", &from);
        call.event(Classes::GENERIC, "move_to", &to);
    }
    call.out.integer(is_moved.into());
    Ok(())
}

pub(super) async fn copy(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut replaces, mut at) = (false, 3);
    let from = call.key(1);
    let mut to = call.key(2);
    while at < call.args.len() {
        match &*call.word(at) {
            "replace" => replaces = true,
            "db" if at + 1 < call.args.len() => {
                at += 1;
                integer_argument(&call.args[at])?;
                let databases = call.server.store().databases();
                to.db = database(&call.args[at], databases).ok_or(Wrong::db_out_of_range())?;
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 1;
    }
    // The last of several DB counts, but the table has taken the first one's key.
    if to != target(call.args, from.db) {
        return Err(Wrong::syntax());
    }
    if from == to {
        return Err(Wrong::same_object());
    }
    let may = replaces || call.access.kind(&to).await?.is_none();
    let is_copied = may && call.access.copy(&from, &to).await?;
    if is_copied {
        call.event(Classes::GENERIC, "copy_to", &to);
    }
    call.out.integer(is_copied.into());
    Ok(())
}

pub(super) async fn keys(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut pattern = Pattern::new(&call.args[1])?;
    // Names that take many steps are compared afterwards, where other tasks can run.
    let (mut found, mut late) = (Vec::new(), Vec::new());
    let each = |name: &[u8]| match pattern.matches_at_once(name) {
        Some(true) => found.push(name.to_vec()),
        Some(false) => {}
        None => late.push(name.to_vec()),
    };
    call.access.names(call.session.db(), pattern.prefix(), each).await?;
    pattern.retain(&mut late, |name| name).await;
    found.append(&mut late);
    call.out.array(found.len());
    let mut pace = Pace::default();
    for name in &found {
        call.out.bulk(name);
        pace.step().await;
    }
    Ok(())
}

pub(super) async fn random_key(call: &mut Call<'_>) -> Result<(), Wrong> {
    let name = call.access.random_key(call.session.db()).await?;
    call.out.optional_bulk(name);
    Ok(())
}

pub(super) async fn scan(call: &mut Call<'_>) -> Result<(), Wrong> {
    let cursor = cursor(&call.args[1])?;
    let (mut pattern, mut count, mut kind) = (None, SCAN_COUNT, None);
    for at in (2..call.args.len()).step_by(2) {
        let value = call.args.get(at + 1).ok_or(Wrong::syntax())?;
        match &*call.word(at) {
            "match" => pattern = Some(value),
            "count" => count = scan_count(value)?,
            "type" => kind = Some(super::lower(value)),
            _ => return Err(Wrong::syntax()),
        }
    }
    let (next, mut found) = call.access.scan(call.session.db(), cursor, count).await?;
    found.retain(|(_, of)| kind.as_ref().is_none_or(|kind| kind == of.name()));
    if let Some(pattern) = pattern {
        Pattern::new(pattern)?.retain(&mut found, |(name, _)| name).await;
    }
    call.out.array(2);
    call.out.bulk_text(next);
    call.out.array(found.len());
    found.iter().for_each(|(name, _)| call.out.bulk(name));
    Ok(())
}

pub(super) async fn object(call: &mut Call<'_>) -> Result<(), Wrong> {
    let sub = call.word(1);
    if sub == "help" {
        containers::help(call, Id::Object);
        return Ok(());
    }
    if call.args.len() != 3 {
        return Err(Wrong::syntax());
    }
    let key = call.key(2);
    let Some(kind) = call.access.kind(&key).await? else {
        call.out.null();
        return Ok(());
    };
    match &*sub {
        "encoding" => {
            let encoding = match kind {
                Kind::String => {
                    call.access.string(&key).await?.map_or("raw", |value| encoding::of_string(&value))
                }
                Kind::Hash => encoding::of_hash(call, &key).await?,
                Kind::Set => encoding::of_set(call, &key).await?,
                Kind::List => encoding::of_list(call, &key).await?,
                Kind::SortedSet => encoding::of_sorted_set(call, &key).await?,
                Kind::Stream => "stream",
            };
            call.out.bulk(encoding);
        }
        "refcount" => call.out.integer(1),
        "idletime" => call.out.integer(0),
        _ => {
            return Err(Wrong::err(
                "An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
                 when switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;

    #[test]
    fn conditions_compare_expiries() {
        let allow = |line: &str, old, new| Conditions::parse(&words(line)).unwrap().allow(old, new);
        assert!(allow("", Some(1), 2) && allow("nx", None, 1) && !allow("NX", Some(1), 2));
        assert!(allow("xx", Some(1), 2) && !allow("xx", None, 2));
        assert!(allow("gt", Some(1), 2) && !allow("gt", Some(2), 2) && !allow("gt", None, 2));
        assert!(allow("lt", Some(3), 2) && !allow("lt", Some(2), 2) && allow("lt", None, 2));
        assert!(!allow("xx lt", None, 2));
        assert!(Conditions::parse(&words("nx gt")).is_err() && Conditions::parse(&words("gt lt")).is_err());
        assert!(Conditions::parse(&words("never")).is_err());
    }
}
