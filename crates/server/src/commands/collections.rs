//! Parts of commands of hashes, sets and sorted sets: HSCAN, SSCAN and ZSCAN, options of all scans,
//! random counts.

use super::Call;
use super::pace::Pace;
use crate::numbers::{float_text, integer_argument};
use crate::pattern::Pattern;
use crate::store::{Kind, score_of};
use crate::wrong::Wrong;
use karstdb::Value;

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
