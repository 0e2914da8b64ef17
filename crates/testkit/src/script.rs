//! Random histories of a database: a sequence of writes, flushes, compactions and reopens, and the
//! expected contents.
//!
//! In: a seed and the operations allowed in each column family ([`Plan`]). Out: [`Step`]s for any
//! store to execute ([`Writes`]), and a [`Ledger`] that computes the contents by the simplest
//! possible code: a sorted map for each column family.
//!
//! Invariant: a history follows from its seed alone. Single deletes apply only to keys that were
//! put once since they were last absent, because they are defined for nothing else; such keys have
//! their own prefix in the family (`single/...`).

use crate::Entry;
use crate::expectation::Inquiry;
use crate::matrix::Family;
use crate::model::{Model, ModelFamily, Order};
use crate::random::Random;
use std::collections::BTreeMap;

/// One operation of a batch. `family` is the number of a column family in its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Write {
    /// Sets the value of a key.
    Put { family: usize, key: Vec<u8>, value: Vec<u8> },
    /// Deletes a key.
    Delete { family: usize, key: Vec<u8> },
    /// Deletes a key that was put once.
    SingleDelete { family: usize, key: Vec<u8> },
    /// Deletes all keys from `begin` (included) to `end` (excluded).
    DeleteRange { family: usize, begin: Vec<u8>, end: Vec<u8> },
    /// Adds an operand to a key; a chronicle's operator appends it to the value after a comma.
    Merge { family: usize, key: Vec<u8>, operand: Vec<u8> },
}

/// An operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Step {
    /// Writes an atomic batch.
    Write(Vec<Write>),
    /// Flushes a family's memtable.
    Flush(usize),
    /// Compacts all of a family.
    Compact(usize),
    /// Compacts the keys from `begin` to `end` of a family.
    CompactRange { family: usize, begin: Vec<u8>, end: Vec<u8> },
    /// Closes the database without flushing, and opens it again.
    Reopen,
}

impl Step {
    /// Describes the step for messages, without keys and values.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Step::Write(writes) => format!("a batch of {}", writes.len()),
            Step::CompactRange { family, .. } => format!("CompactRange({family})"),
            other => format!("{other:?}"),
        }
    }
}

/// A store that executes steps.
pub trait Writes {
    /// Returns the store's name, for messages.
    fn name(&self) -> String;
    /// Executes one step to its end.
    fn apply(&mut self, step: &Step) -> Result<(), String>;
}

/// Merge operators that RocksDB ships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Joins operands with a delimiter.
    Append(Vec<u8>),
    /// Adds 8-byte little-endian numbers.
    Add,
    /// Keeps the largest, bytewise.
    Max,
    /// Keeps the newest.
    Put,
    /// Exclusive-or of bytes; the longer one's tail stays.
    Xor,
}

impl Merging {
    /// Returns the operator in a family's `merge_operator=` line, if it has one.
    ///
    /// # Panics
    /// If the operator is unknown here, because a test would compare nothing.
    #[must_use]
    pub fn of(family: &Family) -> Option<Merging> {
        let line = family.options.iter().find_map(|line| line.strip_prefix("merge_operator="))?;
        Some(match line {
            "uint64add" => Merging::Add,
            "max" => Merging::Max,
            "put" => Merging::Put,
            "bytesxor" => Merging::Xor,
            _ if line.contains("StringAppend") => {
                let delimiter = line.split("delimiter=").nth(1).and_then(|rest| rest.split(';').next());
                Merging::Append(delimiter.unwrap_or(",").as_bytes().to_vec())
            }
            _ => panic!("no rule for merge operator {line}"),
        })
    }

    /// Returns the value of a key after another operand.
    #[must_use]
    pub fn merge(&self, existing: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        match (self, existing) {
            (Merging::Append(delimiter), Some(existing)) => [existing, delimiter, operand].concat(),
            (Merging::Add, _) => {
                existing.map_or(0, number).wrapping_add(number(operand)).to_le_bytes().to_vec()
            }
            (Merging::Xor, Some(existing)) => {
                let byte = |from: &[u8], at: usize| from.get(at).copied().unwrap_or(0);
                let len = existing.len().max(operand.len());
                (0..len).map(|at| byte(existing, at) ^ byte(operand, at)).collect()
            }
            (Merging::Max, Some(existing)) if existing >= operand => existing.to_vec(),
            _ => operand.to_vec(),
        }
    }
}

/// The operations allowed in a history.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The column families: their keys, values, comparators.
    pub families: Vec<Family>,
    /// True if ranges are deleted.
    pub delete_ranges: bool,
    /// True if keys are deleted singly.
    pub single_deletes: bool,
}

/// The expected contents of a database after a history.
#[derive(Clone, Debug)]
pub struct Ledger {
    families: Vec<FamilyLedger>,
}

#[derive(Clone, Debug)]
struct FamilyLedger {
    family: Family,
    merging: Option<Merging>,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys that were deleted, and ends of ranges.
    probes: Vec<Vec<u8>>,
}

/// Maximum number of probes kept for each family.
const PROBES_AT_MOST: usize = 600;

impl Ledger {
    /// Creates the ledger of an empty database.
    #[must_use]
    pub fn new(plan: &Plan) -> Ledger {
        let families = plan.families.iter().map(|family| FamilyLedger {
            merging: Merging::of(family),
            family: family.clone(),
            entries: BTreeMap::new(),
            probes: Vec::new(),
        });
        Ledger { families: families.collect() }
    }

    /// Applies a step to the contents.
    pub fn apply(&mut self, step: &Step) {
        let Step::Write(writes) = step else { return };
        for write in writes {
            match write {
                Write::Put { family, key, value } => {
                    self.families[*family].entries.insert(key.clone(), value.clone());
                }
                Write::Delete { family, key } | Write::SingleDelete { family, key } => {
                    let own = &mut self.families[*family];
                    own.entries.remove(key);
                    own.probe(key);
                }
                Write::DeleteRange { family, begin, end } => self.families[*family].delete_range(begin, end),
                Write::Merge { family, key, operand } => {
                    let own = &mut self.families[*family];
                    let rule = own.merging.as_ref().expect("only a family with an operator gets operands");
                    let merged = rule.merge(own.entries.get(key).map(Vec::as_slice), operand);
                    own.entries.insert(key.clone(), merged);
                }
            }
        }
    }

    /// Returns the number of entries of a family.
    #[must_use]
    pub fn len(&self, family: usize) -> usize {
        self.families[family].entries.len()
    }

    /// Returns true if a family has no entries.
    #[must_use]
    pub fn is_empty(&self, family: usize) -> bool {
        self.len(family) == 0
    }

    /// Returns the entries of each family, in its order.
    #[must_use]
    pub fn contents(&self) -> Vec<Vec<Entry>> {
        let of = |own: &FamilyLedger| {
            let mut entries: Vec<Entry> = own.entries.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            if own.family.order == Order::ReverseBytewise {
                entries.reverse();
            }
            entries
        };
        self.families.iter().map(of).collect()
    }

    /// Returns the contents as a model, to be read.
    pub fn model(&self) -> Result<Model, String> {
        let families = self.families.iter().zip(self.contents()).map(|(own, entries)| ModelFamily {
            name: own.family.name.into(),
            order: own.family.order,
            prefix: own.family.prefix,
            entries,
        });
        Model::new(families.collect())
    }

    /// Returns queries about the contents.
    #[must_use]
    pub fn inquiries(&self, walks: usize) -> Vec<Inquiry> {
        let inquiries = self.families.iter().map(|own| Inquiry {
            column_family: own.family.name.into(),
            order: own.family.order,
            prefix: own.family.prefix,
            probes: own.probes.clone(),
            walks,
        });
        inquiries.collect()
    }
}

impl FamilyLedger {
    fn probe(&mut self, key: &[u8]) {
        if self.probes.len() < PROBES_AT_MOST {
            self.probes.push(key.to_vec());
        }
    }

    fn delete_range(&mut self, begin: &[u8], end: &[u8]) {
        let order = self.family.order;
        self.entries.retain(|key, _| order.compare(key, begin).is_lt() || order.compare(key, end).is_ge());
        self.probe(begin);
        self.probe(end);
    }
}

/// Draws a history.
#[derive(Debug)]
pub struct Script {
    plan: Plan,
    random: Random,
    /// Number of the next value, so that no two writes of a key are alike.
    version: u64,
    /// By family: keys put once and not deleted yet, and the number of such keys so far.
    singles: Vec<(Vec<u64>, u64)>,
}

impl Script {
    /// Creates the history with this seed.
    #[must_use]
    pub fn new(plan: &Plan, seed: u64) -> Script {
        let singles = vec![(Vec::new(), 0); plan.families.len()];
        Script { plan: plan.clone(), random: Random::new(seed), version: 1, singles }
    }

    /// Returns all keys of a family once, in a random order, in batches of up to 40; for a family
    /// that merges, a third of them as operands.
    pub fn bulk(&mut self, family: usize) -> Vec<Step> {
        let own = self.plan.families[family].clone();
        let merges = Merging::of(&own).is_some();
        let entries = own.entries(0, own.bulk, &mut self.random);
        let mut steps = Vec::new();
        for chunk in entries.chunks(40) {
            let writes = chunk.iter().cloned().map(|(key, value)| {
                if merges && self.random.one_in(3) {
                    Write::Merge { family, key, operand: value }
                } else {
                    Write::Put { family, key, value }
                }
            });
            steps.push(Step::Write(writes.collect()));
        }
        steps
    }

    /// Draws a batch of 1 to `at_most` random writes, over all families.
    pub fn batch(&mut self, at_most: usize) -> Step {
        let count = 1 + self.random.index(at_most);
        let mut writes = Vec::with_capacity(count);
        while writes.len() < count {
            let family = self.random.index(self.plan.families.len());
            self.write(family, &mut writes);
        }
        Step::Write(writes)
    }

    /// Draws a batch, or occasionally a flush, a compaction or a reopen.
    pub fn step(&mut self, at_most: usize) -> Step {
        let family = self.random.index(self.plan.families.len());
        match self.random.below(200) {
            0..=3 => Step::Flush(family),
            4 => Step::Compact(family),
            5 | 6 => {
                let [begin, end] = self.ends(family, 400);
                Step::CompactRange { family, begin, end }
            }
            7 => Step::Reopen,
            _ => self.batch(at_most),
        }
    }

    fn write(&mut self, family: usize, writes: &mut Vec<Write>) {
        let own = self.plan.families[family].clone();
        self.version += 1;
        let number = self.random.below(own.bulk + own.bulk / 8);
        let (key, value) = (own.keys.key(number), own.values.value(number, self.version));
        let merges = Merging::of(&own).is_some();
        writes.push(match self.random.below(100) {
            0..=17 => Write::Delete { family, key },
            18..=20 if self.plan.delete_ranges => {
                // Usually narrow; a wide range of ragged keys can span everything, so it is rare.
                let width = if self.random.one_in(12) { 300 } else { 1 + self.random.below(12) };
                let [begin, end] = self.ends(family, width);
                if begin == end {
                    return;
                }
                Write::DeleteRange { family, begin, end }
            }
            21..=45 if merges => Write::Merge { family, key, operand: value },
            46..=60 if self.plan.single_deletes => self.single(family, value),
            _ => Write::Put { family, key, value },
        });
    }

    /// Draws the ends of a range of `width` keys, in the family's order.
    fn ends(&mut self, family: usize, width: u64) -> [Vec<u8>; 2] {
        let own = &self.plan.families[family];
        let width = width.min(own.bulk / 4).max(1);
        let from = self.random.below(own.bulk - width);
        let mut ends = [own.keys.key(from), own.keys.key(from + width)];
        ends.sort_by(|a, b| own.order.compare(a, b));
        ends
    }

    /// Puts a new single-use key, or deletes an existing one singly.
    fn single(&mut self, family: usize, value: Vec<u8>) -> Write {
        let (there, count) = &mut self.singles[family];
        let keys = self.plan.families[family].keys;
        let key = |i: u64| [b"single/".as_slice(), &keys.key(i)].concat();
        if !there.is_empty() && self.random.one_in(2) {
            let at = self.random.index(there.len());
            return Write::SingleDelete { family, key: key(there.swap_remove(at)) };
        }
        *count += 1;
        there.push(*count);
        Write::Put { family, key: key(*count), value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(order: Order) -> Plan {
        let family = Family {
            order,
            ..Family::new("default").options(&["merge_operator={id=StringAppendOperator;delimiter=+;}"])
        };
        Plan { families: vec![family], delete_ranges: true, single_deletes: true }
    }

    #[test]
    fn a_seed_gives_one_history_with_every_kind_of_write() {
        let history = |seed| {
            let mut script = Script::new(&plan(Order::Bytewise), seed);
            (0..2000).map(|_| script.step(8)).collect::<Vec<_>>()
        };
        assert_eq!(history(3), history(3));
        assert_ne!(history(3), history(4));
        let text = format!("{:?}", history(3));
        for kind in ["Put", "Delete {", "SingleDelete", "DeleteRange", "Merge", "Flush", "Compact(", "Reopen"]
        {
            assert!(text.contains(kind), "{kind}");
        }
    }

    #[test]
    fn the_ledger_deletes_ranges_in_the_order_of_keys_and_merges_as_named() {
        for order in [Order::Bytewise, Order::ReverseBytewise] {
            let mut ledger = Ledger::new(&plan(order));
            let put = |key: &str| Write::Put { family: 0, key: key.into(), value: b"v".to_vec() };
            let mut ends = ["b", "d"].map(|k| k.as_bytes().to_vec());
            ends.sort_by(|a, b| order.compare(a, b));
            let [begin, end] = ends;
            ledger.apply(&Step::Write(vec![
                put("a"),
                put("b"),
                put("c"),
                put("d"),
                Write::DeleteRange { family: 0, begin, end },
                Write::Merge { family: 0, key: b"a".to_vec(), operand: b"w".to_vec() },
            ]));
            let left: Vec<&[u8]> = ledger.families[0].entries.keys().map(Vec::as_slice).collect();
            let last: &[u8] = if order == Order::Bytewise { b"d" } else { b"b" };
            assert_eq!(left, [b"a", last]);
            assert_eq!(ledger.families[0].entries[b"a".as_slice()], b"v+w");
            ledger.model().unwrap();
        }
        assert_eq!(Merging::Add.merge(Some(&7u64.to_le_bytes()), &5u64.to_le_bytes()), 12u64.to_le_bytes());
        assert_eq!(Merging::Max.merge(Some(b"b"), b"a"), b"b");
    }

    #[test]
    fn single_deletes_meet_one_put_each() {
        let mut script = Script::new(&plan(Order::Bytewise), 9);
        let mut there = std::collections::BTreeSet::new();
        let mut deleted = 0;
        for _ in 0..3000 {
            let Step::Write(writes) = script.batch(8) else { panic!("a batch is a write") };
            for write in writes {
                match write {
                    Write::Put { key, .. } if key.starts_with(b"single/") => assert!(there.insert(key)),
                    Write::SingleDelete { key, .. } => {
                        deleted += 1;
                        assert!(there.remove(&key));
                    }
                    _ => {}
                }
            }
        }
        assert!(deleted > 100);
    }
}
