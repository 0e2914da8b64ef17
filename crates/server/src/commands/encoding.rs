//! OBJECT ENCODING: the name of the form that Redis would have for a value. Here all values of a
//! type have one form.

use super::Call;
use super::pace::Pace;
use crate::numbers::integer;
use crate::server::FormSetting;
use crate::store::{Key, Kind};
use crate::wrong::Wrong;

/// Longest string that Redis keeps in one piece with its header, in bytes (`embstr`).
const EMBEDDED_AT_MOST: usize = 44;
/// Sizes in bytes that `list-max-listpack-size` -1 to -5 stand for.
const LIST_SIZES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Bytes that Redis' packed list has for itself, and at most for each short element.
const LIST_HEADER: usize = 7;
const ELEMENT_HEADER: usize = 2;

/// The name for a string.
pub(super) fn of_string(value: &[u8]) -> &'static str {
    match value.len() {
        _ if integer(value).is_some() => "int",
        ..=EMBEDDED_AT_MOST => "embstr",
        _ => "raw",
    }
}

/// The name for a hash.
pub(super) async fn of_hash(call: &Call<'_>, key: &Key) -> Result<&'static str, Wrong> {
    let is_packed = is_packed(call, key, Kind::Hash, FormSetting::HashEntries, FormSetting::HashValue);
    Ok(match is_packed.await? {
        true if call.access.fields_expire(key).await? => "listpackex",
        true => "listpack",
        false => "hashtable",
    })
}

/// The name for a sorted set.
pub(super) async fn of_sorted_set(call: &Call<'_>, key: &Key) -> Result<&'static str, Wrong> {
    let (entries, value) = (FormSetting::SortedSetEntries, FormSetting::SortedSetValue);
    let is_packed = is_packed(call, key, Kind::SortedSet, entries, value);
    Ok(if is_packed.await? { "listpack" } else { "skiplist" })
}

/// Returns true if a hash or a sorted set has at most as many elements, and none longer, than two
/// settings say.
async fn is_packed(
    call: &Call<'_>,
    key: &Key,
    kind: Kind,
    entries: FormSetting,
    longest: FormSetting,
) -> Result<bool, Wrong> {
    call.access.pin();
    if !is_within(call, key, kind, entries).await? {
        return Ok(false);
    }
    let longest = limit(call, longest) as usize;
    let (elements, mut pace) = (call.access.all_elements(key, kind).await?, Pace::default());
    for (name, value) in elements {
        // The value in a sorted set is a score.
        if name.len() > longest || kind == Kind::Hash && value.len() > longest {
            return Ok(false);
        }
        pace.step().await;
    }
    Ok(true)
}

/// The name for a set.
pub(super) async fn of_set(call: &Call<'_>, key: &Key) -> Result<&'static str, Wrong> {
    call.access.pin();
    let may_be_integers = is_within(call, key, Kind::Set, FormSetting::SetIntegers).await?;
    let may_be_listed = is_within(call, key, Kind::Set, FormSetting::SetEntries).await?;
    if !may_be_integers && !may_be_listed {
        return Ok("hashtable");
    }
    let longest = limit(call, FormSetting::SetValue) as usize;
    let (mut are_integers, mut are_short, mut pace) = (true, true, Pace::default());
    for (member, _) in call.access.all_elements(key, Kind::Set).await? {
        are_integers &= integer(&member).is_some();
        are_short &= member.len() <= longest;
        pace.step().await;
    }
    Ok(match (may_be_integers && are_integers, may_be_listed && are_short) {
        (true, _) => "intset",
        (false, true) => "listpack",
        (false, false) => "hashtable",
    })
}

/// The name for a list.
pub(super) async fn of_list(call: &Call<'_>, key: &Key) -> Result<&'static str, Wrong> {
    call.access.pin();
    let (length, most) = (call.access.length(key, Kind::List).await?, limit(call, FormSetting::ListSize));
    let at_most = match most {
        0.. => return Ok(if length <= most.unsigned_abs().max(1) { "listpack" } else { "quicklist" }),
        _ => LIST_SIZES[(most.unsigned_abs() as usize).min(LIST_SIZES.len()) - 1],
    };
    if length as usize > at_most / ELEMENT_HEADER {
        return Ok("quicklist");
    }
    let mut bytes = LIST_HEADER;
    for element in call.access.list_range(key, 0..length).await? {
        bytes += ELEMENT_HEADER + element.len();
    }
    Ok(if bytes <= at_most { "listpack" } else { "quicklist" })
}

/// A setting that is not negative.
fn limit(call: &Call<'_>, form: FormSetting) -> i64 {
    call.server.settings().forms().get(form)
}

/// Returns true if a collection has at most as many elements as a setting says.
async fn is_within(call: &Call<'_>, key: &Key, kind: Kind, form: FormSetting) -> Result<bool, Wrong> {
    Ok(call.access.length(key, kind).await? <= limit(call, form).unsigned_abs())
}
