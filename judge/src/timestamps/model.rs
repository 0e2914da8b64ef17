//! A simple model of a column family with timestamps, and the check that every kind of read of a
//! store agrees with it.

use super::Family;
use super::order::Order;
use karst_testkit::random::Random;
use std::collections::BTreeMap;

/// Timestamps of a read: `at`, or with `start` all from `start` to `at`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// None if the family has no timestamps.
    pub(super) at: Option<u64>,
    pub(super) start: Option<u64>,
}

/// A cursor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) stamp: Vec<u8>,
    /// Sequence number and kind if the cursor shows every timestamp; otherwise 0.
    pub(super) trailer: u64,
    /// None for a deletion.
    pub(super) value: Option<Vec<u8>>,
}

pub(super) trait Cursor {
    fn first(&mut self) -> Result<(), String>;
    fn last(&mut self) -> Result<(), String>;
    fn seek(&mut self, key: &[u8]) -> Result<(), String>;
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), String>;
    fn next(&mut self) -> Result<(), String>;
    fn prev(&mut self) -> Result<(), String>;
    fn row(&self) -> Option<Row>;
}

/// A value and its timestamp.
pub(super) type Found = Option<(Vec<u8>, Vec<u8>)>;

/// Reads of an open database.
pub(super) trait Store {
    fn name(&self) -> String;
    fn get(&self, family: usize, view: View, key: &[u8]) -> Result<Found, String>;
    fn multi_get(&self, family: usize, view: View, keys: &[Vec<u8>]) -> Result<Vec<Found>, String>;
    fn cursor(&self, family: usize, view: View, bounds: Bounds<'_>) -> Result<Box<dyn Cursor + '_>, String>;
    /// True if reads of trimmed history are refused at once. RocksDB refuses them from its next
    /// version on, because it collects no entries before.
    fn refuses_at_once(&self) -> bool;
    /// True if a cursor that shows every timestamp can move backward. RocksDB 11.8's then shows
    /// entries before the first timestamp, and of two entries at one timestamp the older.
    fn shows_all_backward(&self) -> bool;
    /// `full_history_ts_low`; None or empty if all history is kept.
    fn low(&self, family: usize) -> Result<Option<Vec<u8>>, String>;
}

/// Lower bound, inclusive, and upper bound, exclusive.
pub(super) type Bounds<'a> = Option<(&'a [u8], &'a [u8])>;

/// One column family.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// The last value written per key and timestamp; None for a deletion.
    entries: BTreeMap<Vec<u8>, BTreeMap<u64, Option<Vec<u8>>>>,
    pub(super) low: Option<u64>,
    /// The latest timestamp of all entries.
    pub(super) latest: u64,
}

impl Model {
    pub(super) fn write(&mut self, key: &[u8], at: u64, value: Option<Vec<u8>>) {
        self.entries.entry(key.to_vec()).or_default().insert(at, value);
        self.latest = self.latest.max(at);
    }

    /// The latest timestamp of a key.
    pub(super) fn latest_of(&self, key: &[u8]) -> u64 {
        self.entries.get(key).and_then(|of| of.keys().next_back()).copied().unwrap_or_default()
    }

    /// True if the latest entry of the key is a value.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.entries.get(key).and_then(|of| of.values().next_back()).is_some_and(Option::is_some)
    }

    fn get(&self, key: &[u8], at: u64) -> Option<(u64, &Vec<u8>)> {
        let (at, value) = self.entries.get(key)?.range(..=at).next_back()?;
        Some((*at, value.as_ref()?))
    }

    fn keys(&self, order: Order) -> Vec<&Vec<u8>> {
        let mut keys: Vec<&Vec<u8>> = self.entries.keys().collect();
        keys.sort_by(|a, b| order.compare(a, b));
        keys
    }

    /// The rows of a cursor in order: key, timestamp and value.
    fn rows(&self, order: Order, view: View) -> Vec<(Vec<u8>, u64, Option<Vec<u8>>)> {
        let at = view.at.unwrap_or(u64::MAX);
        let mut rows = Vec::new();
        for key in self.keys(order) {
            match view.start {
                None => {
                    rows.extend(self.get(key, at).map(|(at, value)| (key.clone(), at, Some(value.clone()))))
                }
                Some(start) => {
                    let shown = self.entries[key].range(start..=at).rev();
                    rows.extend(shown.map(|(at, value)| (key.clone(), *at, value.clone())));
                }
            }
        }
        rows
    }

    /// The views to read at, including those at the edge of the kept history.
    fn views(&self, order: Order, random: &mut Random) -> Vec<View> {
        if order == Order::Plain {
            return vec![View::default()];
        }
        let low = self.low.unwrap_or_default();
        let between = |random: &mut Random| low + random.below(self.latest.saturating_sub(low) + 2);
        let mut views = vec![];
        for at in [low, between(random), between(random), self.latest, u64::MAX] {
            views.push(View { at: Some(at), start: None });
        }
        let start = between(random);
        let end = start + random.below(6);
        for (start, at) in [(low, u64::MAX), (start, end), (between(random), self.latest.max(low))] {
            views.push(View { at: Some(at), start: Some(start.min(at)) });
        }
        views
    }
}

/// Checks all reads of a store against the models. Returns the rows of all cursors, for comparison
/// with another store's.
pub(super) fn check(
    store: &dyn Store,
    families: &[Family],
    models: &[Model],
    seed: u64,
) -> Result<Vec<Row>, String> {
    let mut all = Vec::new();
    for (number, (family, model)) in families.iter().zip(models).enumerate() {
        let mut random = Random::new(seed);
        let check = Check { store, family: number, order: family.order, model };
        let context = |e: String| format!("{}, column family {}: {e}", store.name(), family.name);
        check.refusals().map_err(context)?;
        for view in model.views(family.order, &mut random) {
            let checked = check.at(view, &mut random);
            all.extend(checked.map_err(|e| context(format!("{view:?}, low {:?}: {e}", model.low)))?);
        }
    }
    Ok(all)
}

struct Check<'a> {
    store: &'a dyn Store,
    family: usize,
    order: Order,
    model: &'a Model,
}

impl Check<'_> {
    /// Checks that reads before `full_history_ts_low` are refused.
    fn refusals(&self) -> Result<(), String> {
        if self.order == Order::Plain {
            return Ok(());
        }
        let low = self.store.low(self.family)?.filter(|low| !low.is_empty());
        let wanted = self.model.low.map(|low| self.order.stamp(low));
        if low != wanted {
            return Err(format!("full_history_ts_low is {low:?}, not {wanted:?}"));
        }
        if !self.store.refuses_at_once() {
            return Ok(());
        }
        let Some(before) = self.model.low.and_then(|low| low.checked_sub(1)) else { return Ok(()) };
        let refused = |what: &str, outcome: Result<(), String>| match outcome {
            Err(text) if text.contains("full_history_ts_low") => Ok(()),
            Err(text) => Err(format!("{what} before full_history_ts_low: {text}")),
            Ok(()) => Err(format!("{what} before full_history_ts_low is not refused")),
        };
        let view = View { at: Some(before), start: None };
        refused("get", self.store.get(self.family, view, b"k").map(drop))?;
        refused("multi_get", self.store.multi_get(self.family, view, &[b"k".to_vec()]).map(drop))?;
        let walk = |view| self.store.cursor(self.family, view, None).and_then(|mut cursor| cursor.first());
        refused("iteration", walk(view))?;
        // If only `start` lies before it, the cursor shows the remaining entries.
        walk(View { at: Some(u64::MAX), start: Some(before) })
    }

    /// True if a store may return `told` as the timestamp of an entry at `at`: an entry before
    /// `low` may have lost its timestamp, which is zero then.
    fn is_stamp(&self, told: &[u8], at: u64) -> bool {
        let is_past = self.model.low.is_some_and(|low| at < low);
        self.order == Order::Plain
            || told == self.order.stamp(at)
            || is_past && told.iter().all(|byte| *byte == 0)
    }

    fn is_found(&self, found: &Found, key: &[u8], at: u64) -> Result<(), String> {
        let wanted = self.model.get(key, at);
        let same = match (found, wanted) {
            (None, None) => true,
            (Some((value, stamp)), Some((at, wanted))) => value == wanted && self.is_stamp(stamp, at),
            _ => false,
        };
        if same {
            return Ok(());
        }
        Err(format!("key {}: {found:?} was read, {wanted:?} is right", key.escape_ascii()))
    }

    fn at(&self, view: View, random: &mut Random) -> Result<Vec<Row>, String> {
        let keys: Vec<Vec<u8>> = self.model.keys(self.order).into_iter().cloned().collect();
        if view.start.is_none() {
            let at = view.at.unwrap_or(u64::MAX);
            let mut sought = keys.clone();
            sought.push(b"none of them".to_vec());
            for (key, found) in sought.iter().zip(self.store.multi_get(self.family, view, &sought)?) {
                self.is_found(&found, key, at).map_err(|e| format!("multi_get: {e}"))?;
                let found = self.store.get(self.family, view, key)?;
                self.is_found(&found, key, at).map_err(|e| format!("get: {e}"))?;
            }
        }
        let rows = self.model.rows(self.order, view);
        let cursor = self.store.cursor(self.family, view, None)?;
        let backward = view.start.is_none() || self.store.shows_all_backward();
        let mut walk = Walk { check: self, rows: &rows, cursor, backward };
        let passed = walk.through()?;
        walk.about(&keys, random)?;
        if keys.len() > 8 {
            let (lower, upper) = (&keys[random.index(keys.len() / 2)], &keys[keys.len() / 2]);
            let within = rows.iter().filter(|(key, ..)| {
                self.order.compare(key, lower).is_ge() && self.order.compare(key, upper).is_lt()
            });
            let rows: Vec<_> = within.cloned().collect();
            let cursor = self.store.cursor(self.family, view, Some((lower, upper)))?;
            let mut walk = Walk { check: self, rows: &rows, cursor, backward };
            walk.through().map_err(|e| format!("within bounds: {e}"))?;
        }
        Ok(passed)
    }
}

/// A cursor and the rows that it must show.
struct Walk<'a> {
    check: &'a Check<'a>,
    rows: &'a [(Vec<u8>, u64, Option<Vec<u8>>)],
    cursor: Box<dyn Cursor + 'a>,
    backward: bool,
}

impl Walk<'_> {
    /// Returns the cursor's row, or an error if it is not this one.
    fn stands(&self, at: Option<usize>, what: &str) -> Result<Option<Row>, String> {
        let (row, wanted) = (self.cursor.row(), at.and_then(|at| self.rows.get(at)));
        let same = match (&row, wanted) {
            (None, None) => true,
            (Some(row), Some((key, at, value))) => {
                row.key == *key && row.value == *value && self.check.is_stamp(&row.stamp, *at)
            }
            _ => false,
        };
        if same { Ok(row) } else { Err(format!("{what}: the cursor is at {row:?}, {wanted:?} is right")) }
    }

    /// Moves through all rows forward and backward.
    fn through(&mut self) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        self.cursor.first()?;
        for at in 0..=self.rows.len() {
            let Some(row) = self.stands(Some(at), "forward")? else { break };
            rows.push(row);
            self.cursor.next()?;
        }
        if !self.backward {
            return Ok(rows);
        }
        self.cursor.last()?;
        for at in (0..self.rows.len()).rev() {
            self.stands(Some(at), "backward")?;
            self.cursor.prev()?;
        }
        self.stands(None, "before the first")?;
        Ok(rows)
    }

    /// Makes 40 random moves.
    fn about(&mut self, keys: &[Vec<u8>], random: &mut Random) -> Result<(), String> {
        let mut at = None;
        let mut path = String::new();
        for _ in 0..40 {
            match (random.below(8), at, keys.is_empty()) {
                (0, _, false) => {
                    let key = &keys[random.index(keys.len())];
                    path += &format!(" seek {}", key.escape_ascii());
                    self.cursor.seek(key)?;
                    at = self.rows.iter().position(|row| self.check.order.compare(&row.0, key).is_ge());
                }
                (1, _, false) if self.backward => {
                    let key = &keys[random.index(keys.len())];
                    path += &format!(" seek_for_prev {}", key.escape_ascii());
                    self.cursor.seek_for_prev(key)?;
                    at = self.rows.iter().rposition(|row| self.check.order.compare(&row.0, key).is_le());
                }
                (2..=4, Some(here), _) if self.backward => {
                    path += " prev";
                    self.cursor.prev()?;
                    at = here.checked_sub(1);
                }
                (_, Some(here), _) => {
                    path += " next";
                    self.cursor.next()?;
                    at = Some(here + 1).filter(|at| *at < self.rows.len());
                }
                (number, ..) => {
                    let number = if self.backward { number } else { 0 };
                    path = if number % 2 == 0 { " first" } else { " last" }.to_string();
                    if number % 2 == 0 {
                        self.cursor.first()?
                    } else {
                        self.cursor.last()?
                    }
                    let end = if number % 2 == 0 { Some(0) } else { self.rows.len().checked_sub(1) };
                    at = end.filter(|_| !self.rows.is_empty());
                }
            }
            self.stands(at, &path)?;
        }
        Ok(())
    }
}
