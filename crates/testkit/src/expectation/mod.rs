//! Recorded answers of one store to a fixed, seeded set of queries, to be compared with another's.
//!
//! [`Expectation::record`] queries a trusted store (RocksDB itself, or the model of `ldb scan`'s
//! output); [`Expectation::check`] queries the one under test and reports the first answer that
//! differs. Queries: full scan forward and backward, random cursor walks (seeks, reverse seeks,
//! turns) with and without bounds and in prefix mode, every key and many absent keys by get and by
//! multi_get.
//!
//! On disk (`encode`/`decode`): a private little-endian format, read back by the same build only.
//!
//! Invariant: every answer of a walk is an entry of the forward scan; `record` refuses a store that
//! violates this, and one whose get, multi_get and scans disagree with each other.

use crate::model::{Order, Prefix};
use crate::random::Random;
use crate::subject::{Move, ReadSettings, Subject};
use crate::{Entry, show};
use std::collections::HashMap;

/// The queries of one column family.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// The column family's name.
    pub column_family: String,
    /// Its comparator.
    pub order: Order,
    /// Its prefix extractor; prefix-mode walks are made only with one.
    pub prefix: Option<Prefix>,
    /// Absent keys worth querying, above all deleted ones.
    pub probes: Vec<Vec<u8>>,
    /// Number of random walks.
    pub walks: usize,
}

/// A cursor's moves and the result of each: an index into the entries, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    settings: ReadSettings,
    steps: Vec<(Move, Option<u32>)>,
}

/// The answers of one column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyExpectation {
    /// Its name.
    pub name: String,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
    absent: Vec<Vec<u8>>,
    walks: Vec<Walk>,
}

/// The answers of a whole database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The answers of each column family queried.
    pub families: Vec<FamilyExpectation>,
}

/// Counts of comparisons, for a test to print and to assert that they are not zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// Entries seen by the forward scans.
    pub entries: usize,
    /// Keys queried by get, and again by multi_get.
    pub keys: usize,
    /// Cursor moves of the walks.
    pub moves: usize,
}

const BATCH_AT_MOST: usize = 64;

impl Expectation {
    /// Queries a trusted store. An error if it contradicts itself.
    pub fn record(store: &dyn Subject, inquiries: &[Inquiry], seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let families =
            inquiries.iter().map(|q| record_family(store, q, random.fork())).collect::<Result<_, _>>()?;
        Ok(Expectation { families })
    }

    /// Queries another store in the same way; the first difference is the error.
    pub fn check(&self, store: &dyn Subject) -> Result<Compared, String> {
        let mut compared = Compared::default();
        let known = store.column_families()?;
        for family in &self.families {
            if !known.contains(&family.name) {
                return Err(format!("{}: no column family {}; it has {known:?}", store.name(), family.name));
            }
            check_family(store, family, &mut compared)
                .map_err(|e| format!("{}, column family {}: {e}", store.name(), family.name))?;
        }
        Ok(compared)
    }
}

fn record_family(
    store: &dyn Subject,
    inquiry: &Inquiry,
    mut random: Random,
) -> Result<FamilyExpectation, String> {
    let name = &inquiry.column_family;
    let entries = scan(store, name, &Move::First, &Move::Next, usize::MAX)?;
    let mut backward = scan(store, name, &Move::Last, &Move::Prev, usize::MAX)?;
    backward.reverse();
    if entries != backward {
        return Err(format!("{}, column family {name}: the scans disagree", store.name()));
    }
    let index: HashMap<&[u8], u32> =
        entries.iter().enumerate().map(|(i, (k, _))| (k.as_slice(), i as u32)).collect();
    let mut absent = absent_keys(&entries, &inquiry.probes, &mut random);
    absent.retain(|k| !index.contains_key(k.as_slice()));
    let mut walks = Vec::new();
    for number in 0..inquiry.walks {
        let settings = draw_settings(inquiry, &entries, &absent, number, &mut random);
        walks.push(record_walk(store, inquiry, &entries, &index, &absent, settings, &mut random)?);
    }
    let family = FamilyExpectation { name: name.clone(), entries, absent, walks };
    check_family(store, &family, &mut Compared::default())
        .map_err(|e| format!("{} contradicts itself in column family {name}: {e}", store.name()))?;
    Ok(family)
}

/// Returns absent keys similar to present ones, because filters and separators fail on neighbours
/// rather than on noise.
fn absent_keys(entries: &[Entry], probes: &[Vec<u8>], random: &mut Random) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = probes.to_vec();
    keys.extend([b"".to_vec(), b"\0".to_vec(), vec![0xff; 9]]);
    for _ in 0..entries.len().min(300) {
        let mut key = entries[random.index(entries.len())].0.clone();
        match random.below(4) {
            0 => key.push(random.next_u64() as u8),
            1 => drop(key.pop()),
            2 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(1 + random.below(3) as u8);
                }
            }
            _ => {
                let at = random.index(key.len().max(1));
                if let Some(byte) = key.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        keys.push(key);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn draw_key(entries: &[Entry], absent: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if entries.is_empty() || (random.one_in(3) && !absent.is_empty()) {
        return if absent.is_empty() { Vec::new() } else { absent[random.index(absent.len())].clone() };
    }
    entries[random.index(entries.len())].0.clone()
}

fn draw_settings(
    inquiry: &Inquiry,
    entries: &[Entry],
    absent: &[Vec<u8>],
    number: usize,
    random: &mut Random,
) -> ReadSettings {
    let mut settings = ReadSettings::default();
    match number % 4 {
        0 => {}
        1 if inquiry.prefix.is_some() => settings.prefix_same_as_start = true,
        _ => {
            let mut bounds = [draw_key(entries, absent, random), draw_key(entries, absent, random)];
            bounds.sort_by(|a, b| inquiry.order.compare(a, b));
            let [low, high] = bounds;
            settings.lower_bound = (!random.one_in(3)).then_some(low);
            settings.upper_bound = (!random.one_in(3)).then_some(high);
        }
    }
    settings
}

fn record_walk(
    store: &dyn Subject,
    inquiry: &Inquiry,
    entries: &[Entry],
    index: &HashMap<&[u8], u32>,
    absent: &[Vec<u8>],
    settings: ReadSettings,
    random: &mut Random,
) -> Result<Walk, String> {
    let mut cursor = store.cursor(&inquiry.column_family, &settings)?;
    let mut steps = Vec::new();
    let count = 8 + random.index(60);
    // A direction is kept for a while: long runs cross blocks and files, and turns still happen.
    let mut forward = true;
    while steps.len() < count {
        if random.one_in(6) {
            forward = !forward;
        }
        let jump = cursor.current().is_none() || random.one_in(12);
        let step = if settings.prefix_same_as_start {
            if !jump {
                Move::Next
            } else {
                match prefixed(inquiry, draw_key(entries, absent, random)) {
                    Some(key) => Move::Seek(key),
                    None => continue,
                }
            }
        } else if !jump {
            if forward { Move::Next } else { Move::Prev }
        } else {
            match random.below(10) {
                0 => Move::First,
                1 => Move::Last,
                2..=5 => Move::Seek(draw_key(entries, absent, random)),
                _ => Move::SeekForPrev(draw_key(entries, absent, random)),
            }
        };
        cursor.apply(&step)?;
        let at = match cursor.current() {
            None => None,
            Some((key, value)) => {
                let at = *index
                    .get(key)
                    .ok_or_else(|| format!("{step:?} led to {}, which the scan lacks", show(key)))?;
                if entries[at as usize].1 != value {
                    return Err(format!("{}: the value differs from the scan's", show(key)));
                }
                Some(at)
            }
        };
        steps.push((step, at));
    }
    Ok(Walk { settings, steps })
}

/// Returns a key for a prefix-mode seek: only a key with a prefix has a defined answer.
fn prefixed(inquiry: &Inquiry, key: Vec<u8>) -> Option<Vec<u8>> {
    inquiry.prefix.and_then(|p| p.of(&key)).is_some().then_some(key)
}

fn scan(
    store: &dyn Subject,
    family: &str,
    start: &Move,
    onward: &Move,
    limit: usize,
) -> Result<Vec<Entry>, String> {
    let mut cursor = store.cursor(family, &ReadSettings::default())?;
    let mut entries = Vec::new();
    let mut step = start;
    while entries.len() < limit {
        cursor.apply(step)?;
        let Some((key, value)) = cursor.current() else { break };
        entries.push((key.to_vec(), value.to_vec()));
        step = onward;
    }
    Ok(entries)
}

fn check_family(
    store: &dyn Subject,
    family: &FamilyExpectation,
    compared: &mut Compared,
) -> Result<(), String> {
    // Requests one entry more than expected, so that an endless scan fails instead of hanging.
    let limit = family.entries.len() + 1;
    let forward = scan(store, &family.name, &Move::First, &Move::Next, limit)?;
    same_entries("forward scan", &forward, family.entries.iter())?;
    let backward = scan(store, &family.name, &Move::Last, &Move::Prev, limit)?;
    same_entries("backward scan", &backward, family.entries.iter().rev())?;
    compared.entries += forward.len();
    compared.keys += check_keys(store, family)?;
    for (number, walk) in family.walks.iter().enumerate() {
        check_walk(store, family, walk)
            .map_err(|e| format!("walk {number} ({}): {e}", show_settings(&walk.settings)))?;
        compared.moves += walk.steps.len();
    }
    Ok(())
}

fn same_entries<'a>(
    what: &str,
    found: &[Entry],
    wanted: impl ExactSizeIterator<Item = &'a Entry>,
) -> Result<(), String> {
    let count = wanted.len();
    for (i, (want, have)) in wanted.zip(found).enumerate() {
        if want.0 != have.0 {
            return Err(format!("{what}, entry {i}: key {}, not {}", show(&have.0), show(&want.0)));
        }
        if want.1 != have.1 {
            let (have, want) = (show(&have.1), show(&want.1));
            return Err(format!("{what}, entry {i}, key {}: {have}, not {want}", show(&found[i].0)));
        }
    }
    if count != found.len() {
        return Err(format!("{what}: {} entries, not {count}", found.len()));
    }
    Ok(())
}

fn check_keys(store: &dyn Subject, family: &FamilyExpectation) -> Result<usize, String> {
    let mut wanted: Vec<(&Vec<u8>, Option<&Vec<u8>>)> = family
        .entries
        .iter()
        .map(|(k, v)| (k, Some(v)))
        .chain(family.absent.iter().map(|k| (k, None)))
        .collect();
    for (key, value) in &wanted {
        let found = store.get(&family.name, key).map_err(|e| format!("get {}: {e}", show(key)))?;
        same_value("get", key, found.as_ref(), *value)?;
    }
    // A fixed shuffle: batches mix present and absent keys of all files, unsorted, some of them
    // twice.
    let mut random = Random::new(wanted.len() as u64);
    for i in (1..wanted.len()).rev() {
        wanted.swap(i, random.index(i + 1));
    }
    let mut rest = wanted.as_slice();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at((1 + random.index(BATCH_AT_MOST)).min(rest.len()));
        rest = later;
        let mut batch = batch.to_vec();
        if random.one_in(4) {
            batch.push(batch[random.index(batch.len())]);
        }
        let keys: Vec<Vec<u8>> = batch.iter().map(|(k, _)| (*k).clone()).collect();
        let found = store.multi_get(&family.name, &keys).map_err(|e| format!("multi_get: {e}"))?;
        if found.len() != keys.len() {
            return Err(format!("multi_get of {} keys: {} answers", keys.len(), found.len()));
        }
        for ((key, value), found) in batch.iter().zip(&found) {
            same_value("multi_get", key, found.as_ref(), *value)?;
        }
    }
    Ok(wanted.len())
}

fn same_value(
    what: &str,
    key: &[u8],
    found: Option<&Vec<u8>>,
    wanted: Option<&Vec<u8>>,
) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let text = |v: Option<&Vec<u8>>| v.map_or("nothing".to_string(), |v| show(v));
    Err(format!("{what} {}: {}, not {}", show(key), text(found), text(wanted)))
}

fn check_walk(store: &dyn Subject, family: &FamilyExpectation, walk: &Walk) -> Result<(), String> {
    let mut cursor = store.cursor(&family.name, &walk.settings)?;
    for (number, (step, at)) in walk.steps.iter().enumerate() {
        cursor.apply(step).map_err(|e| format!("move {number}, {}: {e}", show_move(step)))?;
        let wanted = at.map(|i| &family.entries[i as usize]);
        let found = cursor.current();
        if found != wanted.map(|(k, v)| (k.as_slice(), v.as_slice())) {
            let found = found.map_or("nowhere".into(), |(k, _)| show(k));
            let wanted = wanted.map_or("nowhere".into(), |(k, _)| show(k));
            let before = number.checked_sub(1).map(|n| &walk.steps[n]);
            let before = before.map_or("the start".into(), |(m, _)| show_move(m));
            let step = show_move(step);
            return Err(format!("move {number}, {step} after {before}: {found}, not {wanted}"));
        }
    }
    Ok(())
}

fn show_move(step: &Move) -> String {
    match step {
        Move::Seek(key) => format!("seek {}", show(key)),
        Move::SeekForPrev(key) => format!("seek for prev {}", show(key)),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn show_settings(settings: &ReadSettings) -> String {
    let bound = |b: &Option<Vec<u8>>| b.as_ref().map_or("none".to_string(), |b| show(b));
    let prefix = if settings.prefix_same_as_start { ", same prefix" } else { "" };
    format!("bounds {} to {}{prefix}", bound(&settings.lower_bound), bound(&settings.upper_bound))
}

mod stored;

#[cfg(test)]
mod tests;
