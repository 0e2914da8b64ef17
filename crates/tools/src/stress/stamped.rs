//! A column family with timestamps, written by one lane: puts and deletions at timestamps that
//! never decrease, and now and then a raise of `full_history_ts_low`. Reads at timestamps from
//! there on are compared with the list of all writes.

use super::calls::{Store, family_named};
use super::outcomes::Outcomes;
use super::rows::STAMPED_FAMILY as NAME;
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{CompactRangeOptions, Db, Error, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const KEYS: u64 = 40;
/// Steps that share a timestamp, and timestamps of history that are kept.
const STEPS_AT_ONCE: u64 = 4;
const KEPT: u64 = 30;

/// A step, derived from the seed and its number.
enum Step {
    /// A put, or a deletion if `value` is `None`.
    Write {
        key: u64,
        value: Option<Vec<u8>>,
    },
    Raise,
}

fn name(key: u64) -> Vec<u8> {
    format!("{key:03}").into_bytes()
}

fn at_of(number: u64) -> u64 {
    1 + number / STEPS_AT_ONCE
}

fn failed(error: Error) -> Wrong {
    Wrong::Failed(format!("column family {NAME}: {error}"))
}

type Value = Option<Vec<u8>>;

pub(crate) struct Stamped {
    outcomes: Outcomes,
    seed: u64,
    /// Writes of each key, the oldest first: timestamp and value.
    writes: BTreeMap<u64, Vec<(u64, Value)>>,
    /// The latest timestamp, and `full_history_ts_low`.
    latest: u64,
    low: u64,
}

impl Stamped {
    pub(crate) fn open(folder: &Path, seed: u64) -> io::Result<Stamped> {
        let outcomes = Outcomes::open(&folder.join(NAME))?;
        let mut stamped = Stamped { outcomes, seed, writes: BTreeMap::new(), latest: 1, low: 0 };
        let done: Vec<u64> = stamped.outcomes.done().collect();
        done.into_iter().for_each(|number| stamped.apply(number));
        Ok(stamped)
    }

    fn step_of(&self, number: u64) -> Step {
        let mut random = Random::of(&[self.seed, 13, number]);
        if random.one_in(60) {
            return Step::Raise;
        }
        let key = random.below(KEYS);
        let value = (!random.one_in(5)).then(|| {
            let len = *random.pick(&[0, 20, 500]);
            format!("{number};").into_bytes().into_iter().chain(std::iter::repeat_n(b's', len)).collect()
        });
        Step::Write { key, value }
    }

    /// Applies a step that took place to the model.
    fn apply(&mut self, number: u64) {
        let at = at_of(number);
        self.latest = at;
        match self.step_of(number) {
            Step::Raise => self.low = at.saturating_sub(KEPT),
            Step::Write { key, value } => {
                let writes = self.writes.entry(key).or_default();
                writes.push((at, value));
                // Of the writes at or below `low` the newest stays, because reads from there on see
                // it.
                let below = writes.partition_point(|(at, _)| *at <= self.low);
                writes.drain(..below.saturating_sub(1));
            }
        }
    }

    /// Returns a key's value at a timestamp, and the timestamp of its write.
    fn value(&self, key: u64, at: u64) -> Option<(u64, &Vec<u8>)> {
        let (written, value) = self.writes.get(&key)?.iter().rev().find(|(written, _)| *written <= at)?;
        Some((*written, value.as_ref()?))
    }

    /// Runs the next step, then some reads.
    pub(crate) fn step(&mut self, store: &Store, flush_log: bool, random: &mut Random) -> Result<(), Wrong> {
        let (db, family) = (store.db(), family_named(store.db(), NAME)?);
        let number = self.outcomes.begin()?;
        let ts = at_of(number).to_le_bytes();
        match self.step_of(number) {
            Step::Raise => {
                let low = at_of(number).saturating_sub(KEPT);
                db.increase_full_history_ts_low(&family, low.to_le_bytes()).map_err(failed)?;
            }
            Step::Write { key, value } => {
                let mut batch = WriteBatch::new();
                match value {
                    Some(value) => batch.put_cf_with_ts(&family, name(key), ts, value),
                    None => batch.delete_cf_with_ts(&family, name(key), ts),
                }
                .map_err(failed)?;
                db.write(&WriteOptions::default(), &batch).map_err(failed)?;
                if flush_log {
                    db.flush_wal(false).map_err(failed)?;
                }
            }
        }
        self.outcomes.end(number, true)?;
        self.apply(number);
        match random.below(100) {
            0..3 => db.flush_cfs(&FlushOptions::default(), &[&family]).map_err(failed)?,
            3 => {
                let all = CompactRangeOptions::default();
                db.compact_range_cf(&all, &family, None, None).map_err(failed)?;
            }
            _ => {}
        }
        let at = self.low + random.below(self.latest + 1 - self.low.min(self.latest));
        self.check(db, at)
    }

    /// Decides whether the last write of a killed process took place.
    fn settle(&mut self, db: &Db) -> Result<(), Wrong> {
        let Some(number) = self.outcomes.undecided() else { return Ok(()) };
        let done = match self.step_of(number) {
            // No later read has a timestamp below it.
            Step::Raise => true,
            Step::Write { key, value } => {
                let found =
                    db.get_cf(&at(at_of(number)), &family_named(db, NAME)?, name(key)).map_err(failed)?;
                found.as_deref() == value.as_deref()
            }
        };
        self.outcomes.end(number, done)?;
        if done {
            self.apply(number);
        }
        Ok(())
    }

    /// Verifies reads at all timestamps that are kept. With `settle`, an undecided step is decided
    /// first; without it, the check is skipped while one is undecided.
    pub(crate) fn verify(&mut self, db: &Db, settle: bool) -> Result<(), Wrong> {
        if settle {
            self.settle(db)?;
        }
        if self.outcomes.undecided().is_some() {
            return Ok(());
        }
        let first = self.low.max(self.latest.saturating_sub(KEPT));
        (first..=self.latest).try_for_each(|at| self.check(db, at))
    }

    /// Compares all keys at a timestamp with the model, by get, multi_get and an iterator in both
    /// directions.
    fn check(&self, db: &Db, timestamp: u64) -> Result<(), Wrong> {
        let (family, o) = (family_named(db, NAME)?, at(timestamp));
        let wrong = |way: &str, key: &[u8], right: Option<&[u8]>, found: Option<&[u8]>| {
            Wrong::Mismatch(format!(
                "by {way} at timestamp {timestamp}: column family {NAME}, key {}: expected {}, found {}",
                key.escape_ascii(),
                shown(right),
                shown(found)
            ))
        };
        let keys: Vec<Vec<u8>> = (0..KEYS).map(name).collect();
        let many = db.multi_get_cf(&o, &family, &keys);
        for (key, many) in (0..KEYS).zip(many) {
            let right = self.value(key, timestamp);
            let value = right.map(|(_, value)| &value[..]);
            let (one, many) =
                (db.get_cf_with_ts(&o, &family, name(key)).map_err(failed)?, many.map_err(failed)?);
            let found = one.as_ref().map(|(found, _)| &found[..]);
            if found != value {
                return Err(wrong("get", &name(key), value, found));
            }
            if many.as_deref() != value {
                return Err(wrong("multi_get", &name(key), value, many.as_deref()));
            }
            if let (Some((_, ts)), Some((written, _))) = (&one, right)
                && ts[..] != written.to_le_bytes()
            {
                return Err(wrong(
                    "the timestamp of get",
                    &name(key),
                    Some(&written.to_le_bytes()),
                    Some(ts),
                ));
            }
        }
        let right: Vec<(Vec<u8>, &Vec<u8>)> =
            (0..KEYS).filter_map(|key| Some((name(key), self.value(key, timestamp)?.1))).collect();
        for backward in [false, true] {
            let mut iter = db.iter_cf(&o, &family).map_err(failed)?;
            if backward { iter.seek_to_last() } else { iter.seek_to_first() }.map_err(failed)?;
            let mut found = Vec::new();
            while iter.valid() {
                found.push((iter.key().to_vec(), iter.value().to_vec()));
                if backward { iter.prev() } else { iter.next() }.map_err(failed)?;
            }
            if backward {
                found.reverse();
            }
            let way = if backward { "an iterator backward" } else { "an iterator" };
            for at in 0..found.len().max(right.len()) {
                let (found, right) = (found.get(at), right.get(at));
                if found.map(|(key, value)| (key, value)) != right.map(|(key, value)| (key, *value)) {
                    let key = right.map(|(key, _)| key).or(found.map(|(key, _)| key)).expect("one has it");
                    let of = |value: &Vec<u8>| value.clone();
                    return Err(wrong(
                        way,
                        key,
                        right.map(|(_, value)| of(value)).as_deref(),
                        found.map(|(_, value)| of(value)).as_deref(),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn at(timestamp: u64) -> ReadOptions {
    ReadOptions {
        timestamp: Some(timestamp.to_le_bytes().to_vec()),
        total_order_seek: true,
        ..ReadOptions::default()
    }
}
