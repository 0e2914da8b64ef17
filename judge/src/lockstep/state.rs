//! The model: the contents of the database, in the simplest possible code.
//!
//! In: operations in order. Out: the correct answer of each. Contents held by a snapshot or an
//! iterator are shared until they change.

use super::engine::{Answer, Change, Failure, Key, Op, Read};
use super::karst::is_range;
use super::options::{FamilyChoice, Nature};
use karst_testkit::Entry;
use karst_testkit::model::{ModelCursor, ModelFamily, Prefix};
use karst_testkit::script::Write;
use karst_testkit::subject::{Cursor, Move, ReadSettings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A column family, dropped or not. Its number is its index in [`State::families`].
pub(super) struct Family {
    pub(super) name: String,
    pub(super) nature: Nature,
    pub(super) dropped: bool,
    /// It was dropped in an earlier life, so no handle exists.
    gone: bool,
    /// Some of its values may be in blob files.
    pub(super) blobs: bool,
    /// The options it has in this life.
    pub(super) choice: FamilyChoice,
}

/// An open iterator.
#[derive(Clone)]
pub(super) struct Iterating {
    pub(super) read: Read,
    cursor: ModelCursor<Arc<ModelFamily>>,
    /// In prefix mode, the prefix of the last seek; the iterator is defined for keys with this
    /// prefix only.
    sought: Option<Vec<u8>>,
}

impl Iterating {
    /// The family's prefix if the iterator is in prefix mode, where it is defined only for keys of
    /// the prefix sought.
    pub(super) fn by_prefix(&self) -> Option<Prefix> {
        let total = self.read.total_order || self.read.auto_prefix;
        if total { None } else { self.cursor.family().prefix }
    }

    /// Moves it, and returns true if its new position is defined.
    pub(super) fn apply(&mut self, step: &Move) -> bool {
        if let (Some(prefix), Move::Seek(key) | Move::SeekForPrev(key)) = (self.by_prefix(), step) {
            self.sought = prefix.of(key).map(<[u8]>::to_vec);
        }
        self.cursor.apply(step).expect("it is moved by steps only where it stands");
        // Beyond the prefix RocksDB promises nothing.
        self.by_prefix().is_none() || self.read.settings.prefix_same_as_start || self.stands()
    }

    /// True if it is at an entry of the prefix sought, and so can be moved by a step.
    pub(super) fn stands(&self) -> bool {
        let beyond = match (self.by_prefix(), self.cursor.current()) {
            (Some(prefix), Some((key, _))) => prefix.of(key) != self.sought.as_deref(),
            _ => false,
        };
        self.cursor.current().is_some() && !beyond
    }

    /// The entry at its position.
    pub(super) fn current(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.cursor.current().map(|(key, value)| (key.to_vec(), value.to_vec()))
    }
}

/// A transaction's changes and locks.
pub(super) struct InTransaction {
    pub(super) name: String,
    /// Changes, and keys that were locked without one.
    done: Vec<Done>,
    save_points: Vec<usize>,
    pub(super) prepared: bool,
    /// True if it comes from an earlier life, so that RocksDB holds no locks for it.
    pub(super) recovered: bool,
}

enum Done {
    Changed(Change),
    Locked(usize, Vec<u8>),
}

impl InTransaction {
    fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.done.iter().map(|done| match done {
            Done::Changed(change) => (change.family(), change.key()),
            Done::Locked(family, key) => (*family, &key[..]),
        })
    }

    /// Number of its changes of a key.
    pub(super) fn times(&self, family: usize, key: &[u8]) -> usize {
        self.changes().filter(|change| change.family() == family && change.key() == key).count()
    }

    fn changes(&self) -> impl Iterator<Item = &Change> {
        self.done.iter().filter_map(|done| match done {
            Done::Changed(change) => Some(change),
            Done::Locked(..) => None,
        })
    }

    pub(super) fn has_save_point(&self) -> bool {
        !self.save_points.is_empty()
    }
}

/// The contents of families, by their numbers.
type Contents = Vec<Arc<ModelFamily>>;

/// Contents that the open secondary shows.
pub(super) struct Secondary {
    families: Vec<usize>,
    contents: Contents,
}

/// Entries of a family that were ingested behind all others, and all changes in front of them.
#[derive(Default)]
struct Behind {
    entries: Vec<Entry>,
    /// First and last keys of the files, which never overlap.
    files: Vec<[Vec<u8>; 2]>,
    changes: Vec<Change>,
}

/// The state of the database.
#[derive(Default)]
pub(super) struct State {
    pub(super) families: Vec<Family>,
    contents: Contents,
    pub(super) snapshots: BTreeMap<usize, Contents>,
    pub(super) iterators: BTreeMap<usize, Iterating>,
    pub(super) transactions: BTreeMap<usize, InTransaction>,
    pub(super) secondary: Option<Secondary>,
    /// Families of which files may be ingested behind all entries.
    behind: BTreeMap<usize, Behind>,
    /// For each snapshot the number of changes that such families had when it was taken.
    changes: BTreeMap<usize, BTreeMap<usize, usize>>,
}

fn failed(kind: &'static str) -> Answer {
    Answer::Failed(Failure { kind, text: "by the rules".into() })
}

impl State {
    /// Adds a family and returns its number.
    pub(super) fn add_family(&mut self, name: String, nature: Nature, choice: FamilyChoice) -> usize {
        self.contents.push(Arc::new(ModelFamily {
            name: name.clone(),
            order: nature.order,
            prefix: choice.prefix,
            entries: Vec::new(),
        }));
        if nature.behind {
            self.behind.insert(self.families.len(), Behind::default());
        }
        let blobs = choice.has_blobs();
        self.families.push(Family { name, nature, dropped: false, gone: false, blobs, choice });
        self.families.len() - 1
    }

    /// The families that are not dropped.
    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.families.len()).filter(|number| !self.families[*number].dropped).collect()
    }

    /// The families that have handles, dropped in this life or not dropped.
    pub(super) fn readable(&self) -> Vec<usize> {
        (0..self.families.len()).filter(|number| !self.families[*number].gone).collect()
    }

    pub(super) fn contents(&self, family: usize) -> &ModelFamily {
        &self.contents[family]
    }

    /// Drops iterators, snapshots and transactions that are not prepared, and sets the families'
    /// options.
    pub(super) fn reopen(&mut self, choices: Vec<(usize, FamilyChoice)>) {
        self.iterators.clear();
        self.snapshots.clear();
        self.changes.clear();
        self.secondary = None;
        self.families.iter_mut().for_each(|family| family.gone = family.dropped);
        self.transactions.retain(|_, transaction| transaction.prepared);
        self.transactions.values_mut().for_each(|transaction| transaction.recovered = true);
        for (number, choice) in choices {
            Arc::make_mut(&mut self.contents[number]).prefix = choice.prefix;
            self.families[number].blobs |= choice.has_blobs();
            self.families[number].choice = choice;
        }
    }

    /// True if a transaction has locked the key; with `recovered_only`, a recovered one, for which
    /// RocksDB holds no locks.
    pub(super) fn is_locked(&self, family: usize, key: &[u8], recovered_only: bool) -> bool {
        self.others_lock(usize::MAX, family, key, recovered_only)
    }

    fn others_lock(&self, own: usize, family: usize, key: &[u8], recovered_only: bool) -> bool {
        let others = self.transactions.iter().filter(|(number, _)| **number != own);
        others
            .filter(|(_, transaction)| transaction.recovered || !recovered_only)
            .any(|(_, transaction)| transaction.keys().any(|locked| locked == (family, key)))
    }

    /// All keys of a family that are locked.
    pub(super) fn locked(&self, family: usize) -> BTreeSet<Vec<u8>> {
        let keys = self.transactions.values().flat_map(InTransaction::keys);
        keys.filter(|(of, _)| *of == family).map(|(_, key)| key.to_vec()).collect()
    }

    fn as_of(&self, read: &Read, family: usize) -> Option<&Arc<ModelFamily>> {
        match read.snapshot {
            None => self.contents.get(family),
            // A family created after the snapshot is not in it.
            Some(number) => self.snapshots[&number].get(family),
        }
    }

    fn get(&self, read: &Read, family: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.as_of(read, family).and_then(|family| family.find(key)).map(<[u8]>::to_vec)
    }

    /// Families of the open secondary that are not dropped. A dropped one keeps an earlier state.
    pub(super) fn followed(&self) -> Vec<usize> {
        let all = self.secondary.iter().flat_map(|secondary| &secondary.families);
        all.copied().filter(|number| !self.families[*number].dropped).collect()
    }

    fn read_secondary(&self, family: usize, keys: &[Key]) -> Answer {
        let contents = &self.secondary.as_ref().expect("it is open").contents[family];
        let forward = contents.entries.iter().cloned().map(Some);
        let backward = contents.entries.iter().rev().cloned().map(Some);
        let found = keys.iter().map(|key| Some((key.0.clone(), contents.find(key)?.to_vec())));
        Answer::Walked(forward.chain([None]).chain(backward).chain([None]).chain(found).collect())
    }

    /// Moves an iterator. Returns the entry after each move, and true for each that is defined.
    pub(super) fn walk(&mut self, number: usize, moves: &[Move]) -> (Answer, Vec<bool>) {
        let iterating = self.iterators.get_mut(&number).expect("it is open");
        let (mut walked, mut defined) = (Vec::new(), Vec::new());
        for step in moves {
            defined.push(iterating.apply(step));
            walked.push(iterating.current());
        }
        (Answer::Walked(walked), defined)
    }

    /// The correct answer of an operation that reads; `Done` for others.
    pub(super) fn answer(&self, op: &Op) -> Answer {
        match op {
            Op::Get { family, key, read } | Op::MayExist { family, key, read } => {
                Answer::Value(self.get(read, *family, key))
            }
            Op::MultiGet { keys, read } => {
                Answer::Values(keys.iter().map(|(family, key)| self.get(read, *family, key)).collect())
            }
            Op::GetInside { transaction, family, key, for_update } => {
                if *for_update && self.others_lock(*transaction, *family, key, false) {
                    return failed("timed out");
                }
                let mut value = self.get(&Read::default(), *family, key);
                let own = self.transactions[transaction].changes();
                for change in own.filter(|change| change.family() == *family && change.key() == &**key) {
                    value = self.changed(value, change);
                }
                Answer::Value(value)
            }
            Op::Change { transaction, change } => {
                match self.others_lock(*transaction, change.family(), change.key(), false) {
                    true => failed("timed out"),
                    false => Answer::Done,
                }
            }
            Op::RollbackToSavePoint { transaction } if !self.transactions[transaction].has_save_point() => {
                failed("not found")
            }
            Op::CreateFamily { name, .. }
                if self.families.iter().any(|family| !family.dropped && family.name == *name) =>
            {
                failed("invalid argument")
            }
            Op::ReadSecondary { family, keys } => self.read_secondary(*family, keys),
            Op::Ingest { family, entries, ways, .. } if ways.behind && self.is_behind(*family, entries) => {
                failed("invalid argument")
            }
            Op::DropFamily { number: 0 } => failed("invalid argument"),
            Op::SetOptions { name, value, .. } => {
                let wrong = ["no_such_option", "num_levels"].contains(&&**name) || value == "many";
                if wrong { failed("invalid argument") } else { Answer::Done }
            }
            Op::Property { family, name } => Answer::Number(match *name {
                "rocksdb.num-snapshots" => Some(self.snapshots.len() as u64),
                "rocksdb.estimate-num-keys" => Some(self.contents[*family].entries.len() as u64),
                "rocksdb.background-errors" | "rocksdb.is-write-stopped" => Some(0),
                _ => None,
            }),
            _ => Answer::Done,
        }
    }

    /// Returns the value after a change.
    fn changed(&self, value: Option<Vec<u8>>, change: &Change) -> Option<Vec<u8>> {
        match change {
            Change::Plain(Write::Put { value, .. }) => Some(value.clone()),
            Change::Plain(Write::Delete { .. } | Write::SingleDelete { .. } | Write::DeleteRange { .. }) => {
                None
            }
            Change::Plain(Write::Merge { family, operand, .. }) => {
                Some(self.families[*family].nature.merging.merge(value.as_deref(), operand))
            }
            // A plain read returns the column with the empty name.
            Change::Entity { columns, .. } => {
                let column = columns.iter().find(|(name, _)| name.is_empty());
                Some(column.map_or(Vec::new(), |(_, value)| value.clone()))
            }
        }
    }

    /// True if a file of these entries overlaps one that was ingested behind all others.
    fn is_behind(&self, family: usize, entries: &[Change]) -> bool {
        let (order, [first, last]) = (self.families[family].nature.order, ends(entries));
        let overlaps = |file: &[Vec<u8>; 2]| {
            order.compare(&file[0], last).is_le() && order.compare(first, &file[1]).is_le()
        };
        self.behind[&family].files.iter().any(overlaps)
    }

    /// Adds entries below all others, also in snapshots.
    fn ingest_behind(&mut self, family: usize, entries: &[Change]) {
        let added =
            entries.iter().filter_map(|entry| Some((entry.key().to_vec(), self.changed(None, entry)?)));
        let added: Vec<Entry> = added.collect();
        let behind = self.behind.get_mut(&family).expect("it is of such a nature");
        behind.entries.extend(added);
        behind.files.push(ends(entries).map(<[u8]>::to_vec));
        let behind = &self.behind[&family];
        let now = self.replayed(family, &behind.entries, &behind.changes);
        let mut before = Vec::new();
        for (number, counts) in &self.changes {
            if let Some(count) = counts.get(&family) {
                before.push((*number, self.replayed(family, &behind.entries, &behind.changes[..*count])));
            }
        }
        self.contents[family] = Arc::new(now);
        for (number, contents) in before {
            self.snapshots.get_mut(&number).expect("it is held")[family] = Arc::new(contents);
        }
    }

    /// Returns a family with these entries after these changes.
    fn replayed(&self, family: usize, entries: &[Entry], changes: &[Change]) -> ModelFamily {
        let mut contents = ModelFamily { entries: Vec::new(), ..(*self.contents[family]).clone() };
        entries.iter().for_each(|(key, value)| contents.set(key, Some(value.clone())));
        changes.iter().for_each(|change| self.change_in(&mut contents, change));
        contents
    }

    fn change_in(&self, contents: &mut ModelFamily, change: &Change) {
        if let Change::Plain(Write::DeleteRange { begin, end, .. }) = change {
            return contents.remove_range(begin, end);
        }
        let value = self.changed(contents.find(change.key()).map(<[u8]>::to_vec), change);
        contents.set(change.key(), value);
    }

    fn change(&mut self, change: &Change) {
        let family = change.family();
        if let Some(behind) = self.behind.get_mut(&family) {
            behind.changes.push(change.clone());
        }
        if let Change::Plain(Write::DeleteRange { begin, end, .. }) = change {
            Arc::make_mut(&mut self.contents[family]).remove_range(begin, end);
            return;
        }
        let before = self.contents[family].find(change.key()).map(<[u8]>::to_vec);
        let value = self.changed(before, change);
        Arc::make_mut(&mut self.contents[family]).set(change.key(), value);
    }

    fn transaction(&mut self, number: usize) -> &mut InTransaction {
        self.transactions.get_mut(&number).expect("it is there")
    }

    /// Applies an operation that both engines carried out.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { changes, .. } => changes.iter().for_each(|change| self.change(change)),
            Op::OpenIterator { number, family, read } => {
                let settings: &ReadSettings = &read.settings;
                let found = match self.as_of(read, *family) {
                    Some(found) => found.clone(),
                    None => {
                        Arc::new(ModelFamily { entries: Vec::new(), ..(*self.contents[*family]).clone() })
                    }
                };
                let cursor = found.cursor(settings);
                let iterating = Iterating { read: read.clone(), cursor, sought: None };
                self.iterators.insert(*number, iterating);
            }
            Op::CloseIterator { number } => drop(self.iterators.remove(number)),
            Op::Snapshot { number } => {
                self.snapshots.insert(*number, self.contents.clone());
                let changes = self.behind.iter().map(|(family, behind)| (*family, behind.changes.len()));
                self.changes.insert(*number, changes.collect());
            }
            Op::Release { number } => {
                self.snapshots.remove(number);
                self.changes.remove(number);
            }
            Op::Ingest { family, entries, ways, .. } if ways.behind => self.ingest_behind(*family, entries),
            // The ranges of a file delete none of its entries.
            Op::Ingest { entries, .. } => {
                let (ranges, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_range(entry));
                ranges.into_iter().chain(others).for_each(|change| self.change(change));
            }
            Op::DropFamily { number } => self.families[*number].dropped = true,
            Op::SetOptions { family, name, value } if name == "enable_blob_files" => {
                self.families[*family].blobs |= value == "true";
            }
            Op::Import { source, number, .. } => {
                let entries = self.contents[*source].entries.clone();
                Arc::make_mut(&mut self.contents[*number]).entries = entries;
            }
            Op::OpenSecondary { families, .. } => {
                let families = families.iter().map(|(number, _, _)| *number).collect();
                self.secondary = Some(Secondary { families, contents: self.contents.clone() });
            }
            Op::CatchUp => {
                self.secondary.as_mut().expect("it is open").contents.clone_from(&self.contents);
            }
            Op::CloseSecondary => self.secondary = None,
            Op::Begin { number, name, .. } => {
                let transaction = InTransaction {
                    name: name.clone(),
                    done: Vec::new(),
                    save_points: Vec::new(),
                    prepared: false,
                    recovered: false,
                };
                self.transactions.insert(*number, transaction);
            }
            Op::Change { transaction, change } => {
                self.transaction(*transaction).done.push(Done::Changed(change.clone()));
            }
            Op::GetInside { transaction, family, key, for_update: true } => {
                self.transaction(*transaction).done.push(Done::Locked(*family, key.0.clone()));
            }
            Op::SavePoint { transaction } => {
                let transaction = self.transaction(*transaction);
                transaction.save_points.push(transaction.done.len());
            }
            Op::RollbackToSavePoint { transaction } => {
                let transaction = self.transaction(*transaction);
                let length = transaction.save_points.pop().expect("it has one");
                transaction.done.truncate(length);
            }
            Op::Prepare { transaction } => self.transaction(*transaction).prepared = true,
            Op::Commit { transaction } => {
                let ended = self.transactions.remove(transaction).expect("it is there");
                ended.changes().for_each(|change| self.change(change));
            }
            Op::Rollback { transaction } => drop(self.transactions.remove(transaction)),
            _ => {}
        }
    }
}

/// First and last key of ascending entries without ranges.
fn ends(entries: &[Change]) -> [&[u8]; 2] {
    [entries[0].key(), entries[entries.len() - 1].key()]
}
