//! Batches that must be applied exactly once, and the expected contents of a database with a given
//! number of each writer's batches.
//!
//! Each batch does the same in all families of counters: it adds one to its writer's total and to
//! some counters that all writers share (`uint64add`), puts its number under its writer's mark, and
//! puts a key of its own that a later batch of the writer removes with a single deletion. In the
//! families of lists it appends its number to a list of its writer. A batch follows from seed,
//! writer and number alone; the marks, which applying a batch twice does not change, therefore
//! determine the exact content of everything else, which it does change.
//!
//! [`Tally::check`] reads all of it in four ways: get, `multi_get`, an iterator forward and one
//! backward. They must agree with each other and with the expected contents.

use crate::Entry;
use crate::chronicle::{Chronicle, Cut, mark, marked};
use crate::random::Random;
use crate::script::Write;
use crate::subject::Subject;
use crate::ways::differences;
use std::collections::{BTreeMap, BTreeSet};

/// The families and their merge operators: first those with counters, then those with lists.
pub const FAMILIES: [(&str, &str); 5] = [
    ("counts", "uint64add"),
    ("counted", "uint64add"),
    ("recounted", "uint64add"),
    ("lists", "{id=StringAppendOperator;delimiter=,;}"),
    ("listed", "{id=StringAppendTESTOperator;delimiter=,;}"),
];
/// Number of families with counters.
pub const COUNTING: usize = 3;
/// Number of counters that writers share.
const COUNTERS: u64 = 12;
/// Number of batches that append to one list before the next is started, and number of lists a
/// writer keeps.
const IN_A_LIST: u64 = 32;
const LISTS_KEPT: u64 = 6;
/// Maximum number of further batches of its writer after which a batch's own key is removed.
const LIFE_AT_MOST: u64 = 40;
/// Maximum number of wrong keys in a message.
const TOLD: usize = 12;

/// The batches of a database's writers.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    seed: u64,
    writers: usize,
    /// Number of the first family; the others follow.
    first: usize,
}

/// The random part of one batch.
struct Drawn {
    counters: Vec<u64>,
    life: u64,
    value: Vec<u8>,
}

impl Tally {
    /// Creates the batches of `writers` writers, whose families are numbered from `first` on.
    #[must_use]
    pub fn new(seed: u64, writers: usize, first: usize) -> Self {
        Self { seed, writers, first }
    }

    /// Returns the number of writers.
    #[must_use]
    pub fn writers(&self) -> usize {
        self.writers
    }

    fn drawn(&self, writer: usize, number: u64) -> Drawn {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut random = Random::new(random.next_u64() ^ writer as u64);
        let counters = (0..1 + random.below(3)).map(|_| random.below(COUNTERS)).collect();
        let life = 1 + random.below(LIFE_AT_MOST);
        let len = if random.one_in(6) { 300 + random.index(400) } else { random.index(80) };
        let letter = b'a' + (random.below(26)) as u8;
        Drawn { counters, life, value: vec![letter; len] }
    }

    /// Returns a writer's batch with this number; the first has number 1.
    #[must_use]
    pub fn batch(&self, writer: usize, number: u64) -> Vec<Write> {
        let drawn = self.drawn(writer, number);
        let mut changes = Vec::new();
        for family in self.first..self.first + COUNTING {
            let one = |key: Vec<u8>| Write::Merge { family, key, operand: 1u64.to_le_bytes().to_vec() };
            changes.push(one(total(writer)));
            changes.extend(drawn.counters.iter().map(|counter| one(shared(*counter))));
            changes.push(Write::Put { family, key: single(writer, number), value: drawn.value.clone() });
            for earlier in number.saturating_sub(LIFE_AT_MOST).max(1)..number {
                if earlier + self.drawn(writer, earlier).life == number {
                    changes.push(Write::SingleDelete { family, key: single(writer, earlier) });
                }
            }
            changes.push(Write::Put { family, key: mark(writer), value: number.to_string().into_bytes() });
        }
        for family in self.first + COUNTING..self.first + FAMILIES.len() {
            let at = number / IN_A_LIST;
            let operand = number.to_string().into_bytes();
            changes.push(Write::Merge { family, key: list(writer, at), operand });
            if number.is_multiple_of(IN_A_LIST) && at >= LISTS_KEPT {
                changes.push(Write::Delete { family, key: list(writer, at - LISTS_KEPT) });
            }
        }
        changes
    }

    /// Returns the first put of its writer's mark in a batch: family, key and value. A database
    /// that has this entry has the batch.
    #[must_use]
    pub fn mark_of(changes: &[Write]) -> Option<(usize, &[u8], &[u8])> {
        changes.iter().find_map(|change| match change {
            Write::Put { family, key, value } if *key == mark(Chronicle::owner(key)?) => {
                Some((*family, &key[..], &value[..]))
            }
            _ => None,
        })
    }

    /// Returns all entries of a family, by its number among [`FAMILIES`], in a database that has
    /// the batches of `cut`.
    #[must_use]
    pub fn entries(&self, family: usize, cut: &Cut) -> Vec<Entry> {
        let all = if family < COUNTING { self.counted(cut) } else { listed(cut) };
        all.into_iter().collect()
    }

    fn counted(&self, cut: &Cut) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let (mut all, mut counters) = (BTreeMap::new(), BTreeMap::new());
        for (writer, batches) in cut.0.iter().enumerate().filter(|(_, batches)| **batches > 0) {
            all.insert(mark(writer), batches.to_string().into_bytes());
            all.insert(total(writer), batches.to_le_bytes().to_vec());
            for number in 1..=*batches {
                let drawn = self.drawn(writer, number);
                for counter in drawn.counters {
                    *counters.entry(counter).or_insert(0u64) += 1;
                }
                if number + drawn.life > *batches {
                    all.insert(single(writer, number), drawn.value);
                }
            }
        }
        all.extend(counters.into_iter().map(|(at, count)| (shared(at), count.to_le_bytes().to_vec())));
        all
    }

    /// Returns keys that are absent in a cut and were present shortly before: the most likely to
    /// reappear.
    fn removed(&self, family: usize, cut: &Cut) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        for (writer, batches) in cut.0.iter().enumerate() {
            match family < COUNTING {
                true => keys.extend(
                    (batches.saturating_sub(2 * LIFE_AT_MOST).max(1)..=*batches).map(|n| single(writer, n)),
                ),
                false => keys.extend((0..(batches / IN_A_LIST).saturating_sub(1)).map(|at| list(writer, at))),
            }
        }
        keys
    }

    /// Checks that everything in a store agrees with its marks, in each way of reading, and that
    /// each writer's mark is within `at_least` and `at_most`.
    ///
    /// # Errors
    /// A difference, or the store cannot be read.
    pub fn check(&self, store: &dyn Subject, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
        let cut = self.cut(store)?;
        let mut wrong = Vec::new();
        for (writer, seen) in cut.0.iter().enumerate() {
            let (least, most) = (at_least.0[writer], at_most.0[writer]);
            if !(least..=most).contains(seen) {
                wrong.push(format!(
                    "writer {writer}: batch {seen} is the last; {least} was acknowledged, {most} begun"
                ));
            }
        }
        for (family, (name, _)) in FAMILIES.iter().enumerate() {
            self.check_family(store, family, name, &cut, &mut wrong)?;
        }
        if wrong.is_empty() {
            return Ok(cut);
        }
        let (count, told) = (wrong.len(), wrong.iter().take(TOLD).cloned().collect::<Vec<_>>());
        Err(format!("{}, {cut:?}: {count} wrong:\n  {}", store.name(), told.join("\n  ")))
    }

    /// Returns the batches recorded by the marks of the first family.
    fn cut(&self, store: &dyn Subject) -> Result<Cut, String> {
        let number = |writer| marked(store.get(FAMILIES[0].0, &mark(writer))?.as_deref());
        (0..self.writers).map(number).collect::<Result<_, _>>().map(Cut)
    }

    fn check_family(
        &self,
        store: &dyn Subject,
        family: usize,
        name: &str,
        cut: &Cut,
        wrong: &mut Vec<String>,
    ) -> Result<(), String> {
        let right: BTreeMap<_, _> = self.entries(family, cut).into_iter().collect();
        wrong.extend(differences(store, name, &right, self.removed(family, cut))?);
        Ok(())
    }
}

fn listed(cut: &Cut) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (writer, batches) in cut.0.iter().enumerate() {
        let last = batches / IN_A_LIST;
        let first = (last + 1).saturating_sub(LISTS_KEPT);
        for number in (first * IN_A_LIST).max(1)..=*batches {
            let entry = all.entry(list(writer, number / IN_A_LIST)).or_default();
            if !entry.is_empty() {
                entry.push(b',');
            }
            entry.extend(number.to_string().bytes());
        }
    }
    all
}

fn total(writer: usize) -> Vec<u8> {
    format!("total{writer}").into_bytes()
}

fn shared(counter: u64) -> Vec<u8> {
    format!("counter{counter:02}").into_bytes()
}

fn single(writer: usize, number: u64) -> Vec<u8> {
    format!("single{writer}/{number}").into_bytes()
}

fn list(writer: usize, at: u64) -> Vec<u8> {
    format!("list{writer}/{at}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Cursor, Move, ReadSettings};

    type Families = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

    /// A store that has applied batches, read plainly; `by_get` overrides the result of lookups of
    /// one key.
    struct Applied {
        families: Families,
        by_get: Option<(usize, Vec<u8>, Vec<u8>)>,
    }

    impl Applied {
        fn new() -> Self {
            Self { families: vec![BTreeMap::new(); FAMILIES.len()], by_get: None }
        }

        fn apply(&mut self, changes: &[Write]) {
            for change in changes {
                match change {
                    Write::Put { family, key, value } => {
                        drop(self.families[*family].insert(key.clone(), value.clone()));
                    }
                    Write::Delete { family, key } | Write::SingleDelete { family, key } => {
                        drop(self.families[*family].remove(key));
                    }
                    Write::Merge { family, key, operand } => {
                        let value = self.families[*family].entry(key.clone()).or_default();
                        if *family < COUNTING {
                            let number = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
                            *value = (number(value) + number(operand)).to_le_bytes().to_vec();
                        } else {
                            value.extend(if value.is_empty() { &b""[..] } else { b"," });
                            value.extend(operand);
                        }
                    }
                    Write::DeleteRange { .. } => unreachable!("none is drawn"),
                }
            }
        }

        fn at(&self, family: &str) -> usize {
            FAMILIES.iter().position(|(name, _)| *name == family).unwrap()
        }
    }

    struct At<'a>(Vec<(&'a Vec<u8>, &'a Vec<u8>)>, Option<usize>);

    impl Cursor for At<'_> {
        fn apply(&mut self, step: &Move) -> Result<(), String> {
            self.1 = match (step, self.1) {
                (Move::First, _) => Some(0),
                (Move::Last, _) => self.0.len().checked_sub(1),
                (Move::Next, Some(at)) => Some(at + 1),
                (Move::Prev, Some(at)) => at.checked_sub(1),
                _ => unreachable!("not used"),
            };
            Ok(())
        }
        fn current(&self) -> Option<(&[u8], &[u8])> {
            self.1.and_then(|at| self.0.get(at)).map(|(key, value)| (&key[..], &value[..]))
        }
    }

    impl Subject for Applied {
        fn name(&self) -> String {
            "a map".into()
        }
        fn column_families(&self) -> Result<Vec<String>, String> {
            unreachable!("not used")
        }
        fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
            let family = self.at(family);
            match &self.by_get {
                Some((of, other, value)) if (*of, &other[..]) == (family, key) => Ok(Some(value.clone())),
                _ => Ok(self.families[family].get(key).cloned()),
            }
        }
        fn multi_get(&self, family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
            keys.iter().map(|key| Ok(self.families[self.at(family)].get(key).cloned())).collect()
        }
        fn cursor<'a>(&'a self, family: &str, _: &ReadSettings) -> Result<Box<dyn Cursor + 'a>, String> {
            Ok(Box::new(At(self.families[self.at(family)].iter().collect(), None)))
        }
    }

    const BATCHES: u64 = 700;

    /// A database after `BATCHES` batches of each of two writers, alternating.
    fn applied(tally: &Tally) -> (Applied, Cut) {
        let mut store = Applied::new();
        for number in 1..=BATCHES {
            (0..2).for_each(|writer| store.apply(&tally.batch(writer, number)));
        }
        (store, Cut(vec![BATCHES; 2]))
    }

    #[test]
    fn what_batches_come_to_is_what_is_expected_of_their_number() {
        let tally = Tally::new(3, 2, 0);
        let (mut store, cut) = applied(&tally);
        assert_eq!(tally.check(&store, &cut, &cut), Ok(cut.clone()));
        store.apply(&tally.batch(1, BATCHES + 1));
        let more = Cut(vec![BATCHES, BATCHES + 1]);
        assert_eq!(tally.check(&store, &cut, &more), Ok(more.clone()));
        let error = tally.check(&store, &cut, &cut).unwrap_err();
        assert!(
            error.contains("writer 1: batch 701 is the last; 700 was acknowledged, 700 begun"),
            "{error}"
        );
        assert!(
            tally.check(&store, &Cut(vec![BATCHES + 1; 2]), &more).is_err(),
            "an acknowledged one is lost"
        );
    }

    #[test]
    fn a_batch_that_is_applied_twice_is_wrong_in_every_family() {
        let tally = Tally::new(3, 2, 0);
        let (mut store, cut) = applied(&tally);
        store.apply(&tally.batch(1, BATCHES));
        let error = tally.check(&store, &cut, &cut).unwrap_err();
        assert!(
            error.contains(
                "counts \"total1\": get 701, multi_get 701, forward 701, backward 701; right is 700"
            ),
            "{error}"
        );
        for (name, _) in FAMILIES {
            assert!(error.contains(&format!("\n  {name} ")), "{error}");
        }
    }

    #[test]
    fn ways_of_reading_that_differ_and_torn_batches_are_told() {
        let tally = Tally::new(3, 2, 0);
        let (mut store, cut) = applied(&tally);
        store.by_get = Some((1, b"total0".to_vec(), 699u64.to_le_bytes().to_vec()));
        let error = tally.check(&store, &cut, &cut).unwrap_err();
        assert!(
            error.contains("1 wrong:\n  counted \"total0\": get 699, multi_get 700, forward 700"),
            "{error}"
        );
        let (mut store, cut) = applied(&tally);
        let torn = tally
            .batch(0, BATCHES + 1)
            .into_iter()
            .filter(|change| matches!(change, Write::Put { family: 2, .. }));
        store.apply(&torn.collect::<Vec<_>>());
        assert!(tally.check(&store, &cut, &cut).unwrap_err().contains("recounted \"w0\""));
    }
}
