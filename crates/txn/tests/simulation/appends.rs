//! Lists to which many append, and what has to be in them.
//!
//! In: who appends to which lists, and what became of it. Out, of lists that are found: whether
//! everyone who was acknowledged is there once in each of their lists, who was refused in none, and
//! who is under way in all or in none; and whether there is an order of all of them by which each
//! list could have come about. So a lost update, half a transaction and two who had one lock are
//! seen.
//!
//! Whoever appends also adds one to the list's counter in one family and takes one from that in
//! another, so that what is applied twice or by halves is seen even where it puts the whole list.

use crate::ledger::{Key, LISTING};
use crate::reading;
use karst_engine::{ColumnFamily, Db, ReadOptions, Result};
use karst_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    UnderWay,
    /// It is under way, and nothing refuses it.
    Sure,
    Acknowledged,
}

/// Those who were refused are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appends(BTreeMap<String, (BTreeSet<Key>, Fate)>);

/// What lists hold: names with commas between them.
pub(crate) type Lists = BTreeMap<Key, String>;

/// Why so few: everybody is to meet everybody.
const LISTS: usize = 5;

fn list(number: usize) -> Key {
    (number % LISTING, format!("list{number}"))
}

/// What an append to a list counts: the counters' family, and what is added there under the list's
/// key.
pub(crate) fn counts() -> [(usize, [u8; 8]); 2] {
    [(LISTING, 1i64.to_le_bytes()), (LISTING + 1, (-1i64).to_le_bytes())]
}

/// One to three of them, in any order.
pub(crate) fn some_lists(random: &mut Random) -> Vec<Key> {
    let mut all: Vec<usize> = (0..LISTS).collect();
    (0..1 + random.below(3)).map(|_| list(all.swap_remove(random.index(all.len())))).collect()
}

/// All lists, as of one moment. Their counters say how long they are.
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

/// `list` with `name` at its end.
pub(crate) fn appended(list: Option<&[u8]>, name: &str) -> String {
    match list {
        None => name.to_owned(),
        Some(list) => format!("{},{name}", String::from_utf8_lossy(list)),
    }
}

impl Appends {
    /// From now on `name` may be found.
    pub(crate) fn begin(&mut self, name: &str, lists: BTreeSet<Key>) {
        if !lists.is_empty() {
            let known = self.0.insert(name.to_owned(), (lists, Fate::UnderWay));
            assert!(known.is_none(), "{name} appends twice");
        }
    }

    pub(crate) fn acknowledge(&mut self, name: &str) {
        self.set(name, Fate::Acknowledged);
    }

    /// It will be there in the end, unless there is a crash.
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

    /// Everyone who has to be found from now on.
    pub(crate) fn acknowledged(&self) -> BTreeSet<String> {
        self.all(&[Fate::Acknowledged])
    }

    fn all(&self, fates: &[Fate]) -> BTreeSet<String> {
        let all = self.0.iter().filter(|(_, (_, fate))| fates.contains(fate));
        all.map(|(name, _)| name.clone()).collect()
    }

    /// Those in `must` are found, and nobody who was refused, each whole, once, and in one order.
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

    /// The same of what is found when nobody is under way any more, and nothing has crashed.
    pub(crate) fn check_at_end(&self, found: &Lists, when: &str) {
        self.check(found, &self.all(&[Fate::Acknowledged, Fate::Sure]), when);
    }

    /// The same of what is found after a crash. What was under way is known now.
    pub(crate) fn settle(&mut self, found: &Lists, when: &str) {
        self.check(found, &self.acknowledged(), when);
        let there: BTreeSet<&str> = found.values().flat_map(|list| list.split(',')).collect();
        self.0.retain(|name, _| there.contains(name.as_str()));
        self.0.values_mut().for_each(|(_, fate)| *fate = Fate::Acknowledged);
    }
}

/// Names that lists have in orders that contradict each other.
fn circle(found: &Lists) -> Vec<&str> {
    let mut lists: Vec<Vec<&str>> = found.values().map(|list| list.split(',').rev().collect()).collect();
    loop {
        // Whoever is the first in all lists that are left and have it, is taken out.
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
