//! Record of concurrent writers' batches, and checks of the states a reader may see: live, in a
//! snapshot, and after a crash.
//!
//! Each writer owns a part of the keys (`w3/...`, in all column families) and makes one batch after
//! the other. Every batch also puts the batch's number under the writer's mark (`w3`), in every
//! column family that it touches and in the first. The marks therefore tell a reader which batches
//! it sees (a [`Cut`]), and with that the value of every key, although the order of different
//! writers' batches is unknown.
//!
//! Invariants checked here: a cut contains everything acknowledged before it was taken, and nothing
//! that began after; the state after a crash contains everything synced, and with each batch all
//! those acknowledged before it began, and no part of another.

use crate::random::Random;
use crate::script::Write;
use crate::{Entry, show};
use std::collections::BTreeMap;

/// Number of batches seen, by writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut(pub Vec<u64>);

/// All batches of one database's writers.
#[derive(Clone, Debug)]
pub struct Chronicle {
    families: usize,
    writers: Vec<Writer>,
    /// Number of begins and acknowledgements so far, of all writers.
    moment: u64,
    /// True if states from before a crash may still be checked.
    keeps_history: bool,
}

#[derive(Clone, Debug, Default)]
struct Writer {
    /// Batches by number; number 1 is at index 0.
    batches: Vec<Batch>,
    acknowledged: u64,
    /// Number of the last batch that must survive a power failure.
    durable: u64,
    keys: BTreeMap<(usize, Vec<u8>), Versions>,
    /// Keys that were put once, to be deleted singly.
    singles: Vec<(usize, Vec<u8>)>,
    singles_made: u64,
    unlogged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    began: u64,
    acknowledged: Option<u64>,
}

/// The values of a key, each with the batch that wrote it; ascending.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// Number of distinct keys of a writer in each column family.
const KEYS: u64 = 60;

/// Returns the key that holds a writer's last batch number.
#[must_use]
pub fn mark(writer: usize) -> Vec<u8> {
    format!("w{writer}").into_bytes()
}

fn key(writer: usize, number: u64) -> Vec<u8> {
    format!("w{writer}/{number:03}").into_bytes()
}

/// Parses the number in a mark's value; 0 if there is no value.
///
/// # Errors
/// The value is not a number.
pub fn marked(value: Option<&[u8]>) -> Result<u64, String> {
    match value.map(|v| (v, std::str::from_utf8(v).ok().and_then(|text| text.parse().ok()))) {
        None => Ok(0),
        Some((_, Some(number))) => Ok(number),
        Some((bytes, None)) => Err(format!("a mark holds {}", show(bytes))),
    }
}

fn version_at(versions: &Versions, batch: u64) -> Option<&[u8]> {
    let count = versions.partition_point(|(number, _)| *number <= batch);
    versions[..count].last().and_then(|(_, value)| value.as_deref())
}

impl Chronicle {
    /// Creates the chronicle of a new database.
    #[must_use]
    pub fn new(families: usize, writers: usize) -> Self {
        Self {
            families,
            writers: (0..writers).map(|_| Writer::default()).collect(),
            moment: 0,
            keeps_history: false,
        }
    }

    /// Returns the number of writers.
    #[must_use]
    pub fn writers(&self) -> usize {
        self.writers.len()
    }

    /// Declares that this writer's batches are not logged: only those given to
    /// [`Chronicle::make_durable`] must survive, still in order.
    pub fn set_unlogged(&mut self, writer: usize) {
        self.writers[writer].unlogged = true;
    }

    /// Keeps states from before a crash from now on, for [`Chronicle::check_old_state`].
    pub fn keep_history(&mut self) {
        self.keeps_history = true;
    }

    /// Returns the number of batches begun.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.writers.iter().map(|w| w.batches.len() as u64).sum()
    }

    /// Draws the next batch of a writer, over the column families in `families`, and records its
    /// begin. The last put's value is the batch's number.
    pub fn begin(&mut self, writer: usize, families: &[usize], random: &mut Random) -> (u64, Vec<Write>) {
        self.moment += 1;
        let began = self.moment;
        let own = &mut self.writers[writer];
        own.batches.push(Batch { began, acknowledged: None });
        let number = own.batches.len() as u64;
        let mut changes = Vec::new();
        let count = if random.one_in(20) { 40 } else { 1 + random.index(6) };
        for _ in 0..count {
            let family = families[random.index(families.len())];
            let change = own.draw(writer, family, number, random);
            own.record(number, &change);
            changes.push(change);
        }
        for family in families {
            let value = number.to_string().into_bytes();
            let change = Write::Put { family: *family, key: mark(writer), value };
            own.record(number, &change);
            changes.push(change);
        }
        (number, changes)
    }

    /// Records that the batch was acknowledged; `durable`: it must survive a power failure.
    pub fn acknowledge(&mut self, writer: usize, number: u64, durable: bool) {
        self.moment += 1;
        let moment = self.moment;
        let own = &mut self.writers[writer];
        own.batches[number as usize - 1].acknowledged = Some(moment);
        own.acknowledged = own.acknowledged.max(number);
        if durable {
            own.durable = own.durable.max(number);
        }
    }

    /// Returns the last acknowledged batch of each writer.
    #[must_use]
    pub fn acknowledged(&self) -> Cut {
        Cut(self.writers.iter().map(|w| w.acknowledged).collect())
    }

    /// Returns the last begun batch of each writer.
    #[must_use]
    pub fn begun(&self) -> Cut {
        Cut(self.writers.iter().map(|w| w.batches.len() as u64).collect())
    }

    /// Requires `cut` to survive a power failure from now on: a flush or a sync of everything,
    /// begun after the cut, has ended.
    pub fn make_durable(&mut self, cut: &Cut) {
        for (own, number) in self.writers.iter_mut().zip(&cut.0) {
            own.durable = own.durable.max(*number);
        }
    }

    /// Returns the writer that owns a key.
    #[must_use]
    pub fn owner(key: &[u8]) -> Option<usize> {
        let digits = key.strip_prefix(b"w")?;
        let digits = &digits[..digits.iter().position(|b| *b == b'/').unwrap_or(digits.len())];
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Returns the value of a key in a cut.
    #[must_use]
    pub fn value(&self, family: usize, key: &[u8], cut: &Cut) -> Option<&[u8]> {
        let writer = Self::owner(key)?;
        let versions = self.writers.get(writer)?.keys.get(&(family, key.to_vec()))?;
        version_at(versions, cut.0[writer])
    }

    /// Returns all entries of a column family in a cut, in bytewise order.
    #[must_use]
    pub fn entries(&self, family: usize, cut: &Cut) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (own, batch) in self.writers.iter().zip(&cut.0) {
            let of_family = own.keys.iter().filter(|((of, _), _)| *of == family);
            entries.extend(of_family.filter_map(|((_, key), versions)| {
                version_at(versions, *batch).map(|value| (key.clone(), value.to_vec()))
            }));
        }
        entries.sort();
        entries
    }

    /// Draws a key that some writer has written, or might write.
    pub fn any_key(&self, random: &mut Random) -> Vec<u8> {
        let writer = random.index(self.writers.len());
        match random.below(12) {
            0 => mark(writer),
            _ => key(writer, random.below(KEYS)),
        }
    }

    /// Checks that a value read between two moments is one that the key had then. `before` was
    /// acknowledged when the read began, and `after` had begun when it ended.
    ///
    /// # Errors
    /// The key had no such value.
    pub fn check_read(
        &self,
        family: usize,
        key: &[u8],
        got: Option<&[u8]>,
        before: &Cut,
        after: &Cut,
    ) -> Result<(), String> {
        let Some(writer) = Self::owner(key) else { return Err(format!("{} has no owner", show(key))) };
        let (first, last) = (before.0[writer], after.0[writer]);
        let none = Versions::new();
        let versions = self.writers[writer].keys.get(&(family, key.to_vec())).unwrap_or(&none);
        let inside = versions.iter().filter(|(number, _)| *number > first && *number <= last);
        let mut allowed = inside.map(|(_, value)| value.as_deref());
        if version_at(versions, first) == got || allowed.any(|value| value == got) {
            return Ok(());
        }
        let text = |value: Option<&[u8]>| value.map_or("nothing".into(), show);
        Err(format!(
            "family {family}, {}: read {}, but it was {} in batch {first}, and batches up to {last} had begun",
            show(key),
            text(got),
            text(version_at(versions, first)),
        ))
    }

    /// Checks that a snapshot taken between two moments may see `cut`.
    ///
    /// # Errors
    /// It misses an acknowledged batch, or sees one that had not begun.
    pub fn check_cut(&self, cut: &Cut, before: &Cut, after: &Cut) -> Result<(), String> {
        for (writer, seen) in cut.0.iter().enumerate() {
            let (first, last) = (before.0[writer], after.0[writer]);
            if *seen < first || *seen > last {
                return Err(format!(
                    "writer {writer}: batch {seen} is the last seen; {first} was acknowledged before, {last} had begun"
                ));
            }
        }
        self.check_order(cut, true)
    }

    /// Checks that a copy made between two moments may contain `cut`. Unlogged batches are required
    /// only if the copy `flushed`.
    ///
    /// # Errors
    /// It misses an acknowledged batch, or has one that had not begun.
    pub fn check_copy(&self, cut: &Cut, before: &Cut, after: &Cut, flushed: bool) -> Result<(), String> {
        for (writer, (own, seen)) in self.writers.iter().zip(&cut.0).enumerate() {
            let first = if own.unlogged && !flushed { 0 } else { before.0[writer] };
            let last = after.0[writer];
            if *seen < first || *seen > last {
                return Err(format!(
                    "writer {writer}: batch {seen} is the last in the copy; {first} had to be there, {last} had begun"
                ));
            }
        }
        self.check_order(cut, false)
    }

    /// Checks that a cut has, with each batch, all those acknowledged before it began.
    fn check_order(&self, cut: &Cut, with_unlogged: bool) -> Result<(), String> {
        let counts = |own: &Writer| with_unlogged || !own.unlogged;
        let last_begun = |(own, seen): (&Writer, &u64)| {
            seen.checked_sub(1).filter(|_| counts(own)).map(|at| own.batches[at as usize].began)
        };
        let Some(began) = self.writers.iter().zip(&cut.0).filter_map(last_begun).max() else {
            return Ok(());
        };
        for (writer, (own, seen)) in self.writers.iter().zip(&cut.0).enumerate() {
            let missing = own.batches.iter().skip(*seen as usize).filter(|_| counts(own));
            let position = missing.clone().position(|b| b.acknowledged.is_some_and(|moment| moment < began));
            if let Some(position) = position {
                return Err(format!(
                    "batch {} of writer {writer} is missing, though it was acknowledged before one that is there began",
                    *seen + position as u64 + 1
                ));
            }
        }
        Ok(())
    }

    /// Checks that `cut` may be the state after a crash, and makes it the current state. `power`:
    /// unsynced batches may be lost; otherwise only unacknowledged ones.
    ///
    /// # Errors
    /// A batch that had to survive is missing, or one is present that cannot be.
    pub fn survive(&mut self, cut: &Cut, power: bool) -> Result<(), String> {
        for (writer, (own, seen)) in self.writers.iter().zip(&cut.0).enumerate() {
            let least = if power || own.unlogged { own.durable } else { own.acknowledged };
            let most = own.batches.len() as u64;
            if *seen < least || *seen > most {
                return Err(format!(
                    "writer {writer}: batch {seen} is the last that survived; {least} had to, and {most} had begun"
                ));
            }
        }
        self.check_order(cut, false)?;
        for (own, seen) in self.writers.iter_mut().zip(&cut.0) {
            own.forget_after(*seen, power, self.keeps_history);
        }
        Ok(())
    }

    /// Resets the state to `cut`, durably, after the restore of a backup that contains it.
    pub fn restore(&mut self, cut: &Cut) {
        for (own, seen) in self.writers.iter_mut().zip(&cut.0) {
            own.forget_after(*seen, true, self.keeps_history);
        }
    }

    /// Checks that these entries are a past state of the column family, after some begun batches of
    /// each writer. Returns these: each writer's last batch that touched the family.
    ///
    /// # Errors
    /// They are no such state.
    pub fn check_old_state(&self, family: usize, entries: &[Entry]) -> Result<Cut, String> {
        let find = |key: Vec<u8>| {
            let at = entries.binary_search_by(|(other, _)| other.cmp(&key)).ok()?;
            Some(entries[at].1.as_slice())
        };
        let seen: Result<Vec<u64>, String> =
            (0..self.writers.len()).map(|writer| marked(find(mark(writer)))).collect();
        let (cut, begun) = (Cut(seen?), self.begun());
        if let Some(writer) = cut.0.iter().zip(&begun.0).position(|(seen, begun)| seen > begun) {
            return Err(format!("family {family}: batch {} of writer {writer} never was", cut.0[writer]));
        }
        let right = self.entries(family, &cut);
        if right == entries {
            return Ok(cut);
        }
        let differs = right.iter().zip(entries).position(|(a, b)| a != b);
        let at = differs.unwrap_or(right.len().min(entries.len()));
        let text = |entries: &[Entry]| match entries.get(at) {
            Some((key, value)) => format!("{} = {}", show(key), show(value)),
            None => "the end".into(),
        };
        Err(format!("family {family} with {cut:?} has {}, not {}", text(entries), text(&right)))
    }

    /// Returns the number of column families.
    #[must_use]
    pub fn families(&self) -> usize {
        self.families
    }
}

impl Writer {
    fn current(&self, family: usize, key: &[u8]) -> Option<&[u8]> {
        self.keys.get(&(family, key.to_vec())).and_then(|versions| versions.last()?.1.as_deref())
    }

    fn draw(&mut self, writer: usize, family: usize, number: u64, random: &mut Random) -> Write {
        let at = random.below(KEYS);
        let key = key(writer, at);
        match random.below(100) {
            0..=14 => Write::Delete { family, key },
            15..=17 => {
                let width = if random.one_in(8) { 40 } else { 1 + random.below(6) };
                Write::DeleteRange { family, begin: key, end: self::key(writer, (at + width).min(KEYS + 1)) }
            }
            18..=40 => {
                // Merged values are deleted when long, because they would grow without bound.
                let long = self.current(family, &key).is_some_and(|v| v.len() > 4000);
                let operand = format!("{number}").into_bytes();
                if long { Write::Delete { family, key } } else { Write::Merge { family, key, operand } }
            }
            41..=50 => self.single(writer, family, number, random),
            _ => Write::Put { family, key, value: value(number, random) },
        }
    }

    /// Puts a new single-use key, or deletes an existing one singly.
    fn single(&mut self, writer: usize, family: usize, number: u64, random: &mut Random) -> Write {
        // Only of this family, because the batch has no mark in others.
        let of_family = self.singles.iter().enumerate().filter(|(_, (of, _))| *of == family);
        let candidates: Vec<usize> = of_family.map(|(at, _)| at).collect();
        if !candidates.is_empty() && random.one_in(2) {
            let (family, key) = self.singles.swap_remove(candidates[random.index(candidates.len())]);
            return Write::SingleDelete { family, key };
        }
        self.singles_made += 1;
        let key = format!("w{writer}/s{}", self.singles_made).into_bytes();
        self.singles.push((family, key.clone()));
        Write::Put { family, key, value: value(number, random) }
    }

    fn record(&mut self, number: u64, change: &Write) {
        let (family, key, value) = match change {
            Write::Put { family, key, value } => (*family, key, Some(value.clone())),
            Write::Delete { family, key } | Write::SingleDelete { family, key } => (*family, key, None),
            Write::Merge { family, key, operand } => {
                let merged = match self.current(*family, key) {
                    Some(existing) => [existing, b",", operand].concat(),
                    None => operand.clone(),
                };
                (*family, key, Some(merged))
            }
            Write::DeleteRange { family, begin, end } => {
                let range = (*family, begin.clone())..(*family, end.clone());
                for versions in self.keys.range_mut(range).map(|(_, versions)| versions) {
                    if versions.last().is_some_and(|(_, value)| value.is_some()) {
                        add_version(versions, number, None);
                    }
                }
                return;
            }
        };
        add_version(self.keys.entry((family, key.clone())).or_default(), number, value);
    }

    /// Discards the batches after `last`.
    fn forget_after(&mut self, last: u64, power: bool, keeps_history: bool) {
        self.batches.truncate(last as usize);
        self.acknowledged = last;
        // After a power failure the remaining state is on the device; after a process's end it may
        // be in memory.
        self.durable = if power { last } else { self.durable.min(last) };
        for batch in &mut self.batches {
            batch.acknowledged.get_or_insert(batch.began);
        }
        for versions in self.keys.values_mut() {
            let count = versions.partition_point(|(number, _)| *number <= last);
            versions.truncate(count);
            if !keeps_history {
                // Drops versions that no cut can see any more.
                versions.drain(..count.saturating_sub(1));
            }
        }
        let is_there = |versions: &Versions| versions.last().is_some_and(|(_, value)| value.is_some());
        self.keys.retain(|_, versions| is_there(versions) || (keeps_history && !versions.is_empty()));
        let there =
            |(family, key): &(usize, Vec<u8>)| self.keys.get(&(*family, key.clone())).is_some_and(is_there);
        self.singles.retain(there);
        // A single-use key whose deletion was lost may be deleted again, and is not put again.
        for (family, key) in self.keys.iter().filter(|(_, versions)| is_there(versions)).map(|(key, _)| key) {
            let is_single =
                key.iter().position(|b| *b == b'/').is_some_and(|at| key.get(at + 1) == Some(&b's'));
            if is_single && !self.singles.contains(&(*family, key.clone())) {
                self.singles.push((*family, key.clone()));
            }
        }
    }
}

/// Adds a version; the last change of a key within one batch wins.
fn add_version(versions: &mut Versions, number: u64, value: Option<Vec<u8>>) {
    versions.pop_if(|(last, _)| *last == number);
    versions.push((number, value));
}

/// Draws a value that starts with its batch's number.
fn value(number: u64, random: &mut Random) -> Vec<u8> {
    let len = match random.below(20) {
        0 => 3000,
        1..=4 => 400,
        _ => random.index(60),
    };
    let mut value = format!("{number}:").into_bytes();
    let filler = random.next_u64();
    value.resize(value.len() + len, b'a' + (filler % 26) as u8);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writers with three batches each, in sequence.
    fn chronicle() -> Chronicle {
        let (mut chronicle, mut random) = (Chronicle::new(1, 2), Random::new(1));
        for number in 1..=3 {
            for writer in 0..2 {
                assert_eq!(chronicle.begin(writer, &[0], &mut random).0, number);
                chronicle.acknowledge(writer, number, number == 2);
            }
        }
        chronicle
    }

    #[test]
    fn what_survives_is_a_prefix_with_all_that_was_synced() {
        let survives = |cut: [u64; 2], power| chronicle().survive(&Cut(cut.to_vec()), power).is_ok();
        assert!(survives([3, 3], false) && survives([3, 3], true));
        assert!(survives([2, 2], true) && survives([3, 2], true));
        assert!(!survives([2, 2], false), "an acknowledged batch was lost with the process alone");
        assert!(!survives([1, 2], true), "a synced batch was lost");
        assert!(!survives([2, 3], true), "a batch was lost, and a later one of another writer was not");
        assert!(!survives([3, 4], true), "a batch that never was");
    }

    #[test]
    fn what_was_restored_is_all_that_there_is_and_survives() {
        let mut chronicle = chronicle();
        let cut = Cut(vec![1, 2]);
        chronicle.restore(&cut);
        assert_eq!((chronicle.acknowledged(), chronicle.begun()), (cut.clone(), cut.clone()));
        assert!(chronicle.clone().survive(&Cut(vec![1, 1]), true).is_err());
        assert!(chronicle.survive(&cut, true).is_ok());
        assert_eq!(chronicle.begin(0, &[0], &mut Random::new(1)).0, 2);
    }

    #[test]
    fn unlogged_batches_survive_as_far_as_they_were_flushed() {
        let survives = |cut: [u64; 2], flushed: u64| {
            let mut chronicle = chronicle();
            chronicle.set_unlogged(1);
            chronicle.writers[1].durable = 0;
            chronicle.make_durable(&Cut(vec![0, flushed]));
            chronicle.survive(&Cut(cut.to_vec()), false).is_ok()
        };
        assert!(survives([3, 0], 0) && survives([3, 2], 1) && !survives([3, 0], 1) && !survives([2, 3], 0));
    }

    #[test]
    fn values_are_those_of_the_cut() {
        let mut chronicle = chronicle();
        for seen in 0..=3u64 {
            let cut = Cut(vec![seen, 3]);
            let value = chronicle.value(0, &mark(0), &cut).map(<[u8]>::to_vec);
            assert_eq!(marked(value.as_deref()), Ok(seen));
            let entries = chronicle.entries(0, &cut);
            assert!(entries.iter().all(|(key, value)| chronicle.value(0, key, &cut) == Some(value)));
            assert_eq!(entries.iter().any(|(key, _)| key == b"w0"), seen > 0);
        }
        let read = |c: &Chronicle, got: Option<&[u8]>| {
            c.check_read(0, b"w0", got, &Cut(vec![1, 3]), &Cut(vec![2, 3]))
        };
        assert!(read(&chronicle, Some(b"1")).is_ok() && read(&chronicle, Some(b"2")).is_ok());
        assert!(read(&chronicle, Some(b"3")).is_err() && read(&chronicle, None).is_err());
        chronicle.survive(&Cut(vec![3, 2]), true).unwrap();
        assert_eq!(chronicle.begun(), Cut(vec![3, 2]));
        assert_eq!(chronicle.value(0, b"w1", &Cut(vec![3, 2])), Some(b"2".as_slice()));
    }

    #[test]
    fn an_old_state_is_one_that_was() {
        let mut chronicle = chronicle();
        chronicle.keep_history();
        let old = chronicle.entries(0, &Cut(vec![1, 2]));
        chronicle.survive(&Cut(vec![2, 2]), true).unwrap();
        assert_eq!(chronicle.check_old_state(0, &old), Ok(Cut(vec![1, 2])));
        assert_eq!(chronicle.check_old_state(0, &[]), Ok(Cut(vec![0, 0])));
        // A value of another batch, a missing key, and a discarded batch.
        for wrong in 0..3 {
            let mut entries = old.clone();
            match wrong {
                0 => entries[0].1 = b"2".to_vec(),
                1 => drop(entries.pop()),
                _ => entries[0].1 = b"3".to_vec(),
            }
            assert!(chronicle.check_old_state(0, &entries).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_kind_of_change_is_drawn_and_singles_meet_one_put_each() {
        let (mut chronicle, mut random) = (Chronicle::new(2, 1), Random::new(5));
        let mut text = String::new();
        let mut singles = std::collections::BTreeSet::new();
        for _ in 0..600 {
            let (_, changes) = chronicle.begin(0, &[0, 1], &mut random);
            for change in &changes {
                match change {
                    Write::Put { family, key, .. } if key.starts_with(b"w0/s") => {
                        assert!(singles.insert((*family, key.clone())));
                    }
                    Write::SingleDelete { family, key } => assert!(singles.remove(&(*family, key.clone()))),
                    _ => {}
                }
            }
            text += &format!("{changes:?}");
        }
        for kind in ["Put", "Delete {", "SingleDelete", "DeleteRange", "Merge"] {
            assert!(text.contains(kind), "{kind}");
        }
        assert_eq!(Chronicle::owner(b"w12/003"), Some(12));
        assert_eq!(Chronicle::owner(b"x"), None);
    }
}
