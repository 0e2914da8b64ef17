//! The reference model: each column family is a list of entries sorted by its comparator, read by
//! the simplest possible code. In: the output of RocksDB's `ldb scan`. Out: answers to every query
//! of a [`Subject`].

use crate::Entry;
use crate::subject::{Cursor, Move, ReadSettings, Subject};
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// The comparators that RocksDB ships and its tools support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// `leveldb.BytewiseComparator`.
    #[default]
    Bytewise,
    /// `rocksdb.ReverseBytewiseComparator`.
    ReverseBytewise,
}

impl Order {
    /// Compares two user keys.
    #[must_use]
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Bytewise => a.cmp(b),
            Order::ReverseBytewise => b.cmp(a),
        }
    }
}

/// The prefix extractor of a column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// `rocksdb.FixedPrefix.N`: the first N bytes; shorter keys have none.
    Fixed(usize),
    /// `rocksdb.CappedPrefix.N`: the first N bytes or the whole key.
    Capped(usize),
}

impl Prefix {
    /// Returns the prefix of a key, if it has one.
    #[must_use]
    pub fn of(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Prefix::Fixed(n) => key.get(..n),
            Prefix::Capped(n) => Some(&key[..key.len().min(n)]),
        }
    }
}

/// One column family of the model.
#[derive(Clone, Debug, Default)]
pub struct ModelFamily {
    /// Its name.
    pub name: String,
    /// Its comparator.
    pub order: Order,
    /// Its prefix extractor.
    pub prefix: Option<Prefix>,
    /// Its entries. Invariant: strictly ascending by `order`.
    pub entries: Vec<Entry>,
}

/// A database's contents.
#[derive(Clone, Debug, Default)]
pub struct Model {
    families: Vec<ModelFamily>,
}

impl Model {
    /// Creates a model of these column families; an error if a family's entries are out of order.
    pub fn new(families: Vec<ModelFamily>) -> Result<Self, String> {
        for family in &families {
            for pair in family.entries.windows(2) {
                if family.order.compare(&pair[0].0, &pair[1].0) != Ordering::Less {
                    return Err(format!(
                        "column family {}: {} comes before {}",
                        family.name,
                        crate::show(&pair[0].0),
                        crate::show(&pair[1].0)
                    ));
                }
            }
        }
        Ok(Model { families })
    }

    fn family(&self, name: &str) -> Result<&ModelFamily, String> {
        self.families.iter().find(|f| f.name == name).ok_or_else(|| format!("no column family {name}"))
    }
}

impl ModelFamily {
    /// Returns the number of entries less than `key`.
    fn before(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|(k, _)| self.order.compare(k, key) == Ordering::Less)
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(self.before(key)).filter(|(k, _)| k == key).map(|(_, v)| v.as_slice())
    }

    /// Sets a key's value, or removes the key.
    pub fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        let at = self.before(key);
        let is_there = self.entries.get(at).is_some_and(|(k, _)| k == key);
        match value {
            Some(value) if is_there => self.entries[at].1 = value,
            Some(value) => self.entries.insert(at, (key.to_vec(), value)),
            None if is_there => drop(self.entries.remove(at)),
            None => {}
        }
    }

    /// Removes the keys from `begin` (included) to `end` (excluded).
    pub fn remove_range(&mut self, begin: &[u8], end: &[u8]) {
        let (begin, end) = (self.before(begin), self.before(end));
        self.entries.drain(begin..end.max(begin));
    }

    /// Returns a cursor that keeps the family's current state.
    #[must_use]
    pub fn cursor(self: Arc<Self>, settings: &ReadSettings) -> ModelCursor<Arc<Self>> {
        ModelCursor::new(self, settings)
    }
}

impl Subject for Model {
    fn name(&self) -> String {
        "the reference model".into()
    }

    fn column_families(&self) -> Result<Vec<String>, String> {
        Ok(self.families.iter().map(|f| f.name.clone()).collect())
    }

    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(self.family(column_family)?.find(key).map(<[u8]>::to_vec))
    }

    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        keys.iter().map(|key| self.get(column_family, key)).collect()
    }

    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String> {
        Ok(Box::new(ModelCursor::new(self.family(column_family)?, settings)))
    }
}

/// A position in a family of the model.
#[derive(Clone, Debug)]
pub struct ModelCursor<F> {
    family: F,
    /// The entries within the bounds are `low..high`.
    low: usize,
    high: usize,
    same_prefix: bool,
    prefix: Option<Vec<u8>>,
    at: Option<usize>,
}

impl<F: Deref<Target = ModelFamily>> ModelCursor<F> {
    fn new(family: F, settings: &ReadSettings) -> Self {
        let low = settings.lower_bound.as_deref().map_or(0, |k| family.before(k));
        let high = settings.upper_bound.as_deref().map_or(family.entries.len(), |k| family.before(k));
        let same_prefix = settings.prefix_same_as_start;
        ModelCursor { family, low, high, same_prefix, prefix: None, at: None }
    }

    /// Returns the family it iterates over.
    #[must_use]
    pub fn family(&self) -> &ModelFamily {
        &self.family
    }

    fn stand(&mut self, at: Option<usize>) {
        self.at = at.filter(|i| (self.low..self.high).contains(i));
    }

    /// Invariant: in prefix mode a cursor is at a key with the prefix sought, or invalid.
    fn keep_prefix(&mut self) {
        if let (Some(wanted), Some(i), Some(extractor)) = (&self.prefix, self.at, self.family.prefix)
            && extractor.of(&self.family.entries[i].0) != Some(&wanted[..])
        {
            self.at = None;
        }
    }
}

impl<F: Deref<Target = ModelFamily>> Cursor for ModelCursor<F> {
    fn apply(&mut self, step: &Move) -> Result<(), String> {
        match step {
            Move::First => self.stand(Some(self.low)),
            Move::Last => self.stand(self.high.checked_sub(1)),
            Move::Seek(key) => self.stand(Some(self.family.before(key).max(self.low))),
            Move::SeekForPrev(key) => {
                let family = &*self.family;
                let after = family
                    .entries
                    .partition_point(|(k, _)| family.order.compare(k, key) != Ordering::Greater);
                self.stand(after.min(self.high).checked_sub(1));
            }
            Move::Next => self.stand(self.at.ok_or("next without an entry")?.checked_add(1)),
            Move::Prev => self.stand(self.at.ok_or("prev without an entry")?.checked_sub(1)),
        }
        if let (true, Move::Seek(key) | Move::SeekForPrev(key)) = (self.same_prefix, step) {
            self.prefix = self.family.prefix.and_then(|p| p.of(key)).map(<[u8]>::to_vec);
        }
        self.keep_prefix();
        Ok(())
    }

    fn current(&self) -> Option<(&[u8], &[u8])> {
        self.at.map(|i| &self.family.entries[i]).map(|(k, v)| (k.as_slice(), v.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let entries = ["a1", "a3", "b1", "b3"].map(|k| (k.as_bytes().to_vec(), vec![1])).to_vec();
        let name = "default".to_string();
        Model::new(vec![ModelFamily {
            name,
            order: Order::Bytewise,
            prefix: Some(Prefix::Fixed(1)),
            entries,
        }])
        .expect("sorted")
    }

    fn walk(settings: &ReadSettings, moves: &[Move]) -> Vec<Option<String>> {
        let model = model();
        let mut cursor = model.cursor("default", settings).expect("cursor");
        let mut seen = Vec::new();
        for step in moves {
            cursor.apply(step).expect("step");
            seen.push(cursor.current().map(|(k, _)| String::from_utf8_lossy(k).into_owned()));
        }
        seen
    }

    #[test]
    fn a_cursor_keeps_to_its_bounds_and_prefix() {
        let some = |s: &str| Some(s.to_string());
        let bounded = ReadSettings {
            lower_bound: Some(b"a2".to_vec()),
            upper_bound: Some(b"b3".to_vec()),
            ..Default::default()
        };
        let moves = [
            Move::First,
            Move::Next,
            Move::Next,
            Move::Last,
            Move::Prev,
            Move::Prev,
            Move::SeekForPrev(b"zz".to_vec()),
            Move::Seek(b"a".to_vec()),
        ];
        let seen = [some("a3"), some("b1"), None, some("b1"), some("a3"), None, some("b1"), some("a3")];
        assert_eq!(walk(&bounded, &moves), seen);

        let prefix = ReadSettings { prefix_same_as_start: true, ..Default::default() };
        let moves = [Move::Seek(b"a2".to_vec()), Move::Next, Move::Seek(b"a4".to_vec())];
        assert_eq!(walk(&prefix, &moves), [some("a3"), None, None]);
    }

    #[test]
    fn entries_out_of_order_are_refused() {
        let entries = vec![(b"b".to_vec(), vec![]), (b"a".to_vec(), vec![])];
        let family = ModelFamily { name: "default".into(), entries, ..Default::default() };
        assert!(Model::new(vec![family.clone()]).is_err());
        assert!(Model::new(vec![ModelFamily { order: Order::ReverseBytewise, ..family }]).is_ok());
    }
}
