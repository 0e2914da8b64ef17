//! Lists to which many writers append, and the checks of their contents.
//!
//! Records the lists to which each writer appends, and the outcome. Checks that every acknowledged
//! writer is once in each of its lists, a refused one in none, and an unfinished one in all or
//! none; and that one order of all writers explains all lists. This detects lost updates, half
//! transactions and locks that two transactions had.
//!
//! A writer also adds one to the list's counter in one family and subtracts one from that in
//! another, so that a write applied twice or by half is detected even if it puts the whole list.

use crate::ledger::{Key, LISTING};
use crate::reading;
use karst_engine::{ColumnFamily, Db, ReadOptions, Result};
use karst_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Outcome of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    UnderWay,
    /// Unfinished, and cannot be refused any more.
    Sure,
    Acknowledged,
}

/// Writers by name, without the refused ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appends(BTreeMap<String, (BTreeSet<Key>, Fate)>);

/// Contents of lists: names separated by commas.
pub(crate) type Lists = BTreeMap<Key, String>;

/// Number of lists; few, so that all writers conflict.
const LISTS: usize = 5;

fn list(number: usize) -> Key {
    (number % LISTING, format!("list{number}"))
}

/// Returns the counter changes of an append to a list: the counters' family, and the value added
/// under the list's key.
pub(crate) fn counts() -> [(usize, [u8; 8]); 2] {
    [(LISTING, 1i64.to_le_bytes()), (LISTING + 1, (-1i64).to_le_bytes())]
}

/// Returns one to three lists in random order.
pub(crate) fn some_lists(random: &mut Random) -> Vec<Key> {
    let mut all: Vec<usize> = (0..LISTS).collect();
    (0..1 + random.below(3)).map(|_| list(all.swap_remove(random.index(all.len())))).collect()
}

/// Reads all lists at one snapshot, and checks that their counters equal their lengths.
pub(crate) async fn read(db: &Db, families: &[ColumnFamily]) -> Result<Lists> {
    let options = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
    let (mut found, mut counted) = (Lists::new(), Vec::new());
    for family in families.iter().enumerate() {
        let is_here = |key: &Key| family.0 >= LISTING || key.0 == family.0;
        let keys: Vec<String> = (0..LISTS).map(list).filter(is_here).map(|(_, key)| key).collect();
        let entries = reading::read(db, &options, family, "list", &keys).await?;
        match family.0 < LISTING {
            true => found.extend(entries.into_iter().map(|(key, list)| ((family.0, key), list))),
            false => counted.push(entries),
        }
    }
    let lengths = |sign: i64| {
        let length = |list: &String| (sign * list.split(',').count() as i64).to_string();
        found.iter().map(|((_, key), list)| (key.clone(), length(list))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(counted, [lengths(1), lengths(-1)], "counters that are not as long as lists: {found:#?}");
    Ok(found)
}

/// Returns `list` with `name` appended.
pub(crate) fn appended(list: Option<&[u8]>, name: &str) -> String {
    match list {
        None => name.to_owned(),
        Some(list) => format!("{},{name}", String::from_utf8_lossy(list)),
    }
}

impl Appends {
    /// Registers `name`, which may be found from now on.
    pub(crate) fn begin(&mut self, name: &str, lists: BTreeSet<Key>) {
        if !lists.is_empty() {
            let known = self.0.insert(name.to_owned(), (lists, Fate::UnderWay));
            assert!(known.is_none(), "{name} appends twice");
        }
    }

    pub(crate) fn acknowledge(&mut self, name: &str) {
        self.set(name, Fate::Acknowledged);
    }

    /// Marks `name` as certain to be found in the end, unless there is a crash.
    pub(crate) fn promise(&mut self, name: &str) {
        self.set(name, Fate::Sure);
    }

    fn set(&mut self, name: &str, now: Fate) {
        if let Some((_, fate)) = self.0.get_mut(name) {
            *fate = now;
        }
    }

    pub(crate) fn refuse(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the names that must be found from now on.
    pub(crate) fn acknowledged(&self) -> BTreeSet<String> {
        self.all(&[Fate::Acknowledged])
    }

    fn all(&self, fates: &[Fate]) -> BTreeSet<String> {
        let all = self.0.iter().filter(|(_, (_, fate))| fates.contains(fate));
        all.map(|(name, _)| name.clone()).collect()
    }

    /// Checks that the names in `must` are found, refused ones are not, and each is whole, found
    /// once, and in one order.
    pub(crate) fn check(&self, found: &Lists, must: &BTreeSet<String>, when: &str) {
        let mut in_lists: BTreeMap<&str, BTreeSet<Key>> = BTreeMap::new();
        for (key, list) in found {
            for name in list.split(',') {
                let again = !in_lists.entry(name).or_default().insert(key.clone());
                assert!(!again, "{when}: {name} is in {key:?} twice: {found:#?}");
            }
        }
        for (name, lists) in &in_lists {
            let known = self.0.get(*name).map(|(lists, _)| lists);
            assert_eq!(Some(lists), known, "{when}: {name} is in the lists on the left: {found:#?}");
        }
        let lost: Vec<_> = must.iter().filter(|name| !in_lists.contains_key(name.as_str())).collect();
        assert!(lost.is_empty(), "{when}: {lost:?} were acknowledged and are in no list: {found:#?}");
        let circle = circle(found);
        assert!(circle.is_empty(), "{when}: {circle:?} came in no order: {found:#?}");
    }

    /// Checks the lists after all writers have finished without a crash.
    pub(crate) fn check_at_end(&self, found: &Lists, when: &str) {
        self.check(found, &self.all(&[Fate::Acknowledged, Fate::Sure]), when);
    }

    /// Checks the lists after a crash, and resolves the unfinished writers.
    pub(crate) fn settle(&mut self, found: &Lists, when: &str) {
        self.check(found, &self.acknowledged(), when);
        let there: BTreeSet<&str> = found.values().flat_map(|list| list.split(',')).collect();
        self.0.retain(|name, _| there.contains(name.as_str()));
        self.0.values_mut().for_each(|(_, fate)| *fate = Fate::Acknowledged);
    }
}

/// Returns the names whose orders in the lists contradict each other.
fn circle(found: &Lists) -> Vec<&str> {
    let mut lists: Vec<Vec<&str>> = found.values().map(|list| list.split(',').rev().collect()).collect();
    loop {
        // Removes a name that is first in all remaining lists that have it.
        let first = lists
            .iter()
            .filter_map(|list| list.last().copied())
            .find(|first| lists.iter().all(|list| list.last() == Some(first) || !list.contains(first)));
        match first {
            Some(first) => {
                for list in &mut lists {
                    let _ = list.pop_if(|last| *last == first);
                }
            }
            None => return lists.into_iter().flatten().collect(),
        }
    }
}
