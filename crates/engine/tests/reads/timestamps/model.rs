//! Simple model of a column family with timestamps. Checks that every form of reading agrees with
//! it.

use karst_engine::format::Comparator;
use karst_engine::io::block_on;
use karst_engine::{ColumnFamily, Db, DbIterator, ReadOptions, Snapshot, WriteOptions};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries in the order of the column family: latest timestamp of a key first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// By key and timestamp: the last value written, or `None` if it was deleted.
    pub(crate) entries: BTreeMap<Vec<u8>, BTreeMap<u64, Option<Vec<u8>>>>,
    pub(crate) reversed: bool,
}

type Entry = (Vec<u8>, u64, Vec<u8>);

impl Model {
    pub(crate) fn write(&mut self, key: &[u8], at: u64, value: Option<&[u8]>) {
        self.entries.entry(key.to_vec()).or_default().insert(at, value.map(<[u8]>::to_vec));
    }

    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<(u64, Vec<u8>)> {
        let (at, value) = self.entries.get(key)?.range(..=at).next_back()?;
        Some((*at, value.clone()?))
    }

    /// Returns the latest timestamp of a key; 0 if it has none.
    pub(crate) fn latest(&self, key: &[u8]) -> u64 {
        self.entries.get(key).and_then(|entries| entries.keys().next_back()).copied().unwrap_or_default()
    }

    fn ordered<T>(&self, mut entries: Vec<T>) -> Vec<T> {
        if self.reversed {
            entries.reverse();
        }
        entries
    }

    /// Returns the entries that an iteration at `at` shows.
    pub(crate) fn shown(&self, at: u64) -> Vec<Entry> {
        let of = |key: &Vec<u8>| self.get(key, at).map(|(at, value)| (key.clone(), at, value));
        self.ordered(self.entries.keys().filter_map(of).collect())
    }

    /// Returns the entries that an iteration from `start` to `at` shows; deletions are `None`.
    pub(crate) fn all(&self, start: u64, at: u64) -> Vec<(Vec<u8>, u64, Option<Vec<u8>>)> {
        let keys = self.ordered(self.entries.iter().collect());
        let of = |(key, entries): (&Vec<u8>, &BTreeMap<u64, Option<Vec<u8>>>)| {
            let range = entries.range((Bound::Included(start), Bound::Included(at))).rev();
            range.map(|(at, value)| (key.clone(), *at, value.clone())).collect::<Vec<_>>()
        };
        keys.into_iter().flat_map(of).collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.entries.keys()
    }
}

pub(crate) fn read_at(at: u64) -> ReadOptions {
    ReadOptions { timestamp: Some(at.to_le_bytes().to_vec()), ..ReadOptions::new() }
}

pub(crate) fn number(timestamp: &[u8]) -> u64 {
    u64::from_le_bytes(timestamp.try_into().expect("eight bytes"))
}

pub(crate) fn put(db: &Db, family: &ColumnFamily, key: &[u8], at: u64, value: &[u8]) {
    db.put_cf_with_ts(&WriteOptions::default(), family, key, at.to_le_bytes(), value).unwrap();
}

pub(crate) fn delete(db: &Db, family: &ColumnFamily, key: &[u8], at: u64) {
    db.delete_cf_with_ts(&WriteOptions::default(), family, key, at.to_le_bytes()).unwrap();
}

fn entry(iter: &DbIterator) -> Entry {
    assert!(!iter.is_deletion(), "only an iterator over all timestamps shows deletions");
    (iter.key().to_vec(), number(iter.timestamp()), iter.value().to_vec())
}

/// Compares all ways of reading `family` at `at` with the model.
pub(crate) fn agree(db: &Db, family: &ColumnFamily, model: &Model, at: u64, snapshot: Option<&Snapshot>) {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..read_at(at) };
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    for key in &keys {
        let wanted = model.get(key, at);
        let got = db.get_cf_with_ts(&options, family, key).unwrap();
        let got = got.map(|(value, timestamp)| (number(&timestamp), value.to_vec()));
        assert_eq!(got, wanted, "{:?} at {at}", key.escape_ascii().to_string());
        let value = db.get_cf(&options, family, key).unwrap().map(|value| value.to_vec());
        assert_eq!(value, wanted.map(|(_, value)| value));
        let later = block_on(db.env(), db.get_cf_async(&options, family, *key)).unwrap();
        assert_eq!(later.map(|value| value.to_vec()), value);
    }
    let many = db.multi_get_cf_with_ts(&options, family, &keys);
    for (key, got) in keys.iter().zip(many) {
        let got = got.unwrap().map(|(value, timestamp)| (number(&timestamp), value.to_vec()));
        assert_eq!(got, model.get(key, at));
    }
    let shown = model.shown(at);
    let mut iter = db.iter_cf(&options, family).unwrap();
    let mut forward = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        forward.push(entry(&iter));
        iter.next().unwrap();
    }
    assert_eq!(forward, shown, "forward at {at}");
    let mut backward = Vec::new();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.push(entry(&iter));
        iter.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(backward, shown, "backward at {at}");
    let order = if model.reversed { Comparator::ReverseBytewise } else { Comparator::Bytewise };
    for key in keys.iter().step_by(3) {
        iter.seek(key).unwrap();
        let first = shown.iter().position(|(shown, ..)| order.compare_user(shown, key).is_ge());
        assert_eq!(iter.valid().then(|| entry(&iter)), first.map(|first| shown[first].clone()));
        if iter.valid() {
            // Changes direction in the middle of the versions of a key.
            let here = first.unwrap();
            iter.prev().unwrap();
            assert_eq!(iter.valid().then(|| entry(&iter)), here.checked_sub(1).map(|at| shown[at].clone()));
        }
        if iter.valid() {
            iter.next().unwrap();
            assert_eq!(iter.valid().then(|| entry(&iter)), Some(shown[first.unwrap()].clone()));
        }
        iter.seek_for_prev(key).unwrap();
        let last = shown.iter().rposition(|(shown, ..)| order.compare_user(shown, key).is_le());
        assert_eq!(iter.valid().then(|| entry(&iter)), last.map(|last| shown[last].clone()));
        if iter.valid() {
            iter.next().unwrap();
            assert_eq!(iter.valid().then(|| entry(&iter)), shown.get(last.unwrap() + 1).cloned());
        }
    }
    if keys.len() > 8 {
        let (lower, upper) = (keys[keys.len() / 4], keys[keys.len() / 2]);
        let (lower, upper) = if model.reversed { (upper, lower) } else { (lower, upper) };
        let bounded = ReadOptions {
            iterate_lower_bound: Some(lower.clone()),
            iterate_upper_bound: Some(upper.clone()),
            ..options.clone()
        };
        let within = |(key, ..): &&Entry| {
            order.compare_user(key, lower).is_ge() && order.compare_user(key, upper).is_lt()
        };
        let wanted: Vec<Entry> = shown.iter().filter(within).cloned().collect();
        let mut iter = db.iter_cf(&bounded, family).unwrap();
        let mut got = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            got.push(entry(&iter));
            iter.next().unwrap();
        }
        assert_eq!(got, wanted, "within bounds");
        iter.seek_to_last().unwrap();
        assert_eq!(iter.valid().then(|| entry(&iter)), wanted.last().cloned());
    }
}

/// Compares an iterator over all timestamps from `start` to `at` with the model, in both directions
/// and with changes of direction.
pub(crate) fn agree_on_all(db: &Db, family: &ColumnFamily, model: &Model, start: u64, at: u64) {
    let options = ReadOptions { iter_start_ts: Some(start.to_le_bytes().to_vec()), ..read_at(at) };
    let mut iter = db.iter_cf(&options, family).unwrap();
    let entry = |iter: &DbIterator| {
        let value = (!iter.is_deletion()).then(|| iter.value().to_vec());
        (iter.key().to_vec(), number(iter.timestamp()), value)
    };
    let wanted = model.all(start, at);
    let mut got = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        got.push(entry(&iter));
        iter.next().unwrap();
    }
    assert_eq!(got, wanted, "from {start} to {at}");
    got.clear();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        got.push(entry(&iter));
        iter.prev().unwrap();
    }
    got.reverse();
    assert_eq!(got, wanted, "backward from {start} to {at}");
    iter.seek_to_first().unwrap();
    for _ in 0..wanted.len() / 2 {
        iter.next().unwrap();
    }
    for place in (0..wanted.len() / 2).rev() {
        iter.prev().unwrap();
        assert_eq!(entry(&iter), wanted[place], "turned round");
        if place % 3 == 0 {
            iter.next().unwrap();
            assert_eq!(entry(&iter), wanted[place + 1], "turned round twice");
            iter.prev().unwrap();
        }
    }
}
