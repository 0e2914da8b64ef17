//! Parts of commands of several types: HSCAN, SSCAN and ZSCAN, options of all scans, counts, random
//! elements, and the arguments of LMPOP and ZMPOP.

use super::Call;
use super::pace::Pace;
use crate::numbers::{float_text, integer_argument};
use crate::pattern::Pattern;
use crate::store::{Kind, Side, score_of};
use crate::wrong::Wrong;
use karstdb::Value;
use std::ops::Range;

/// Number of keys or elements that a scan looks at without COUNT.
pub(super) const SCAN_COUNT: usize = 10;
/// Maximum of COUNT; a larger one is served as this.
const SCAN_AT_MOST: i64 = 10_000;
/// Maximum number of elements that one command draws with repetition.
const DRAWN_AT_MOST: u64 = 1 << 20;
/// Maximum of the sum of their lengths in bytes, with the values of a hash.
const DRAWN_BYTES_AT_MOST: usize = 512 << 20;

/// Parses the cursor of a scan.
pub(super) fn cursor(argument: &[u8]) -> Result<u64, Wrong> {
    let cursor = std::str::from_utf8(argument).ok().and_then(|cursor| cursor.parse().ok());
    cursor.ok_or(Wrong::invalid_cursor())
}

/// Parses the value of COUNT.
pub(super) fn scan_count(argument: &[u8]) -> Result<usize, Wrong> {
    match integer_argument(argument)? {
        number @ 1.. => Ok(number.min(SCAN_AT_MOST) as usize),
        _ => Err(Wrong::syntax()),
    }
}

/// Parses the count of a pop, which is not negative.
pub(super) fn pop_count(argument: &[u8]) -> Result<u64, Wrong> {
    let count = integer_argument(argument).ok().and_then(|count| u64::try_from(count).ok());
    count.ok_or(Wrong::not_positive())
}

/// Parses a number above 0; `why` is the error's text for anything else.
fn positive(argument: &[u8], why: &str) -> Result<u64, Wrong> {
    let number = integer_argument(argument).ok().and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| Wrong::err(why))
}

/// Parses the number of keys that follow, which is above 0.
pub(super) fn key_count(argument: &[u8]) -> Result<usize, Wrong> {
    let count = positive(argument, "numkeys should be greater than 0")?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Parses the LIMIT of SINTERCARD and ZINTERCARD; 0 is none.
pub(super) fn card_limit(argument: &[u8]) -> Result<usize, Wrong> {
    let limit = integer_argument(argument).ok().and_then(|limit| usize::try_from(limit).ok());
    limit.ok_or(Wrong::err("LIMIT can't be negative"))
}

/// Arguments of LMPOP and ZMPOP, and of BLMPOP and BZMPOP.
pub(super) struct ManyPop {
    /// Numbers of the arguments that are keys.
    pub(super) keys: Range<usize>,
    pub(super) end: Side,
    /// Maximum number of elements.
    pub(super) most: u64,
}

/// Parses the arguments from the number of keys on, which is the argument `at`. `end` parses the
/// name of an end.
pub(super) fn many_pop(
    args: &[Vec<u8>],
    at: usize,
    end: impl FnOnce(&[u8]) -> Result<Side, Wrong>,
) -> Result<ManyPop, Wrong> {
    let count = key_count(&args[at])?;
    if count > args.len() - at - 2 {
        return Err(Wrong::syntax());
    }
    let rest = at + 1 + count;
    let end = end(&args[rest])?;
    let most = match &args[rest + 1..] {
        [] => 1,
        [word, most] if word.eq_ignore_ascii_case(b"count") => {
            positive(most, "count should be greater than 0")?
        }
        _ => return Err(Wrong::syntax()),
    };
    Ok(ManyPop { keys: at + 1..rest, end, most })
}

/// HSCAN, SSCAN and ZSCAN: replies with the cursor, and with the elements: those of a hash with
/// their values unless NOVALUES is given, those of a sorted set with their scores as strings.
pub(super) async fn scan(call: &mut Call<'_>, kind: Kind) -> Result<(), Wrong> {
    let cursor = cursor(&call.args[2])?;
    let (mut pattern, mut count, mut values) = (None, SCAN_COUNT, kind != Kind::Set);
    let mut at = 3;
    while at < call.args.len() {
        let value = call.args.get(at + 1).ok_or(Wrong::syntax());
        match &*call.word(at) {
            "match" => pattern = Some(value?),
            "count" => count = scan_count(value?)?,
            "novalues" if kind == Kind::Hash => {
                values = false;
                at += 1;
                continue;
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 2;
    }
    let (next, mut found) = call.access.scan_elements(&call.key(1), kind, cursor, count).await?;
    if let Some(pattern) = pattern {
        Pattern::new(pattern)?.retain(&mut found, |(name, _)| name).await;
    }
    call.out.array(2);
    call.out.bulk_text(next);
    call.out.array(if values { 2 * found.len() } else { found.len() });
    for (name, value) in found {
        call.out.bulk(name);
        match kind {
            Kind::SortedSet => call.out.bulk(float_text(score_of(&value)?)),
            _ if values => call.out.bulk(value),
            _ => {}
        }
    }
    Ok(())
}

/// The elements that SRANDMEMBER, HRANDFIELD and ZRANDMEMBER choose.
pub(super) struct Chosen {
    elements: Vec<(Vec<u8>, Value)>,
    places: Vec<usize>,
}

impl Chosen {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Calls `each` with every chosen element. Lets other tasks run in between.
    pub(super) async fn each(&self, mut each: impl FnMut(&[u8], &Value)) {
        let mut pace = Pace::default();
        for place in &self.places {
            let (name, value) = &self.elements[*place];
            each(name, value);
            pace.step().await;
        }
    }
}

/// Chooses elements for a count: all different if it is not negative, each drawn from all
/// otherwise.
pub(super) async fn choose(call: &Call<'_>, kind: Kind, count: &[u8]) -> Result<Chosen, Wrong> {
    let (key, count) = (call.key(1), integer_argument(count)?);
    if count >= 0 {
        let elements = call.access.random_elements(&key, kind, count.unsigned_abs()).await?;
        let places = (0..elements.len()).collect();
        return Ok(Chosen { elements, places });
    }
    if count.unsigned_abs() > DRAWN_AT_MOST {
        return Err(Wrong::err("value is out of range"));
    }
    let (elements, places) = call.access.draw_elements(&key, kind, count.unsigned_abs()).await?;
    let bytes = places.iter().map(|place| elements[*place].0.len() + elements[*place].1.len());
    if bytes.sum::<usize>() > DRAWN_BYTES_AT_MOST {
        return Err(Wrong::err("the elements would be longer than 512 MiB together"));
    }
    Ok(Chosen { elements, places })
}
