//! Random histories of a database: what is written, flushed, compacted and reopened in which order,
//! and what must be in it then.
//!
//! In: a seed and what each column family may see ([`Plan`]). Out: [`Step`]s for any store to carry
//! out ([`Writes`]), and a [`Ledger`] that knows the outcome by the plainest possible code: a
//! sorted map for each column family.
//!
//! Invariant: a history follows from its seed alone. A single delete is only made of a key that was
//! put once since it was last absent, because it is defined for nothing else; such keys are the
//! family's own (`single/...`).

use crate::Entry;
use crate::expectation::Inquiry;
use crate::matrix::Family;
use crate::model::{Model, ModelFamily, Order};
use crate::random::Random;
use std::collections::BTreeMap;

/// One entry of a write. `family` is the number of a column family in its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Write {
    /// The value of a key.
    Put { family: usize, key: Vec<u8>, value: Vec<u8> },
    /// A key is gone.
    Delete { family: usize, key: Vec<u8> },
    /// A key that was put once is gone.
    SingleDelete { family: usize, key: Vec<u8> },
    /// All keys from `begin` to before `end` are gone.
    DeleteRange { family: usize, begin: Vec<u8>, end: Vec<u8> },
    /// One more operand for a key; a chronicle's operator appends it to the value after a comma.
    Merge { family: usize, key: Vec<u8>, operand: Vec<u8> },
}

/// What a store is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Step {
    /// A batch, atomic.
    Write(Vec<Write>),
    /// Write a family's memtable to a file.
    Flush(usize),
    /// Compact all of a family.
    Compact(usize),
    /// Compact the keys from `begin` to `end` of a family.
    CompactRange { family: usize, begin: Vec<u8>, end: Vec<u8> },
    /// Close the database, what is in memtables unflushed, and open it again.
    Reopen,
}

impl Step {
    /// What it is, for messages: without keys and values.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Step::Write(writes) => format!("a batch of {}", writes.len()),
            Step::CompactRange { family, .. } => format!("CompactRange({family})"),
            other => format!("{other:?}"),
        }
    }
}

/// A store that is written.
pub trait Writes {
    /// What it is, for messages.
    fn name(&self) -> String;
    /// Carry out one step to its end.
    fn apply(&mut self, step: &Step) -> Result<(), String>;
}

/// How operands combine: the operators that RocksDB ships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Joined by a delimiter.
    Append(Vec<u8>),
    /// Little-endian numbers of 8 bytes, added.
    Add,
    /// The largest, bytewise.
    Max,
    /// The newest.
    Put,
    /// Bytes by exclusive or; the longer one's tail stays.
    Xor,
}

impl Merging {
    /// The operator that a family's `merge_operator=` line names, if it has one.
    ///
    /// # Panics
    /// The line names one that is not known here: a test would compare nothing.
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

    /// The value of a key behind one more operand.
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

/// What may happen in a history.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The column families: their keys, values, comparators.
    pub families: Vec<Family>,
    /// Whether ranges are deleted.
    pub delete_ranges: bool,
    /// Whether keys are deleted singly.
    pub single_deletes: bool,
}

/// What is in a database after a history.
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

/// Probes kept for each family.
const PROBES_AT_MOST: usize = 600;

impl Ledger {
    /// An empty database.
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

    /// What a step does to the contents.
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

    /// How many entries a family holds.
    #[must_use]
    pub fn len(&self, family: usize) -> usize {
        self.families[family].entries.len()
    }

    /// Whether a family holds none.
    #[must_use]
    pub fn is_empty(&self, family: usize) -> bool {
        self.len(family) == 0
    }

    /// The entries of each family, in its order.
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

    /// The contents, to be read.
    pub fn model(&self) -> Result<Model, String> {
        let families = self.families.iter().zip(self.contents()).map(|(own, entries)| ModelFamily {
            name: own.family.name.into(),
            order: own.family.order,
            prefix: own.family.prefix,
            entries,
        });
        Model::new(families.collect())
    }

    /// How to question a store about them.
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
    /// Numbers values, so that no two writes of a key are alike.
    version: u64,
    /// By family: keys put once and not deleted yet, and how many there were.
    singles: Vec<(Vec<u64>, u64)>,
}

impl Script {
    /// The history of this seed.
    #[must_use]
    pub fn new(plan: &Plan, seed: u64) -> Script {
        let singles = vec![(Vec::new(), 0); plan.families.len()];
        Script { plan: plan.clone(), random: Random::new(seed), version: 1, singles }
    }

    /// All keys of a family once, in a random order, in batches of up to 40; for a family that
    /// merges, a third of them as operands.
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

    /// A batch of 1 to `at_most` random writes, over all families.
    pub fn batch(&mut self, at_most: usize) -> Step {
        let count = 1 + self.random.index(at_most);
        let mut writes = Vec::with_capacity(count);
        while writes.len() < count {
            let family = self.random.index(self.plan.families.len());
            self.write(family, &mut writes);
        }
        Step::Write(writes)
    }

    /// A batch, or once in a while a flush, a compaction or a reopening.
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
                // Mostly narrow; a wide one of ragged keys can span everything, so it is rare.
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

    /// The ends of a range of `width` keys, in the family's order.
    fn ends(&mut self, family: usize, width: u64) -> [Vec<u8>; 2] {
        let own = &self.plan.families[family];
        let width = width.min(own.bulk / 4).max(1);
        let from = self.random.below(own.bulk - width);
        let mut ends = [own.keys.key(from), own.keys.key(from + width)];
        ends.sort_by(|a, b| own.order.compare(a, b));
        ends
    }

    /// A key of its own is put, or one that was put once is deleted singly.
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
