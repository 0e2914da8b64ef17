//! The operations of a lane: drawn only from its random numbers, the flags and the states of its
//! own rows, so that a seed draws the same operations again.
//!
//! In: a [`Draws`], the source of draws. Out: [`Operation`]s, which `lane` executes.

use super::flags::Flags;
use super::rows::{ACCOUNTS, BLOCK, Kind, Place, Shape, counts, kind, list_item, list_parts, list_state};
use crate::random::Random;

/// Maximum number of rows that one batch changes, and that a range deletion covers.
const ROWS_OF_A_BATCH: u64 = 4;
const RANGE_AT_MOST: u64 = 64;
/// Maximum number of rows of a scan, and of a multi_get.
const SCAN_AT_MOST: u64 = 120;
const MULTI_GET_AT_MOST: u64 = 24;
/// Maximum number of items of a list before it is begun anew.
const ITEMS_AT_MOST: u64 = 20;

/// One entry of a batch, with the next state of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Place, u64),
    Delete(Place, u64),
    SingleDelete(Place),
    /// The last field is the operand.
    Merge(Place, u64, Vec<u8>),
    /// All rows of one family from the first to the last, in the order of their keys.
    DeleteRange(Vec<Place>),
}

impl Change {
    /// Returns the rows that the entry changes, with their next states.
    pub(crate) fn states(&self) -> Vec<(Place, u64)> {
        match self {
            Change::Put(place, next) | Change::Delete(place, next) | Change::Merge(place, next, _) => {
                vec![(*place, *next)]
            }
            Change::SingleDelete(place) => vec![(*place, 0)],
            Change::DeleteRange(places) => places.iter().map(|place| (*place, 0)).collect(),
        }
    }
}

/// Ways of writing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteForm {
    /// A batch, or the single call if it has one entry.
    Batch {
        sync: bool,
    },
    /// Without the log; acknowledged only after a flush.
    Unlogged,
    /// Files that are ingested.
    Ingested,
    Transaction {
        sync: bool,
        prepare: bool,
        roll_back: bool,
        save_point: bool,
    },
}

/// An account of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) family: usize,
    pub(crate) number: u64,
}

/// Parameters of a walk over entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) backward: bool,
    /// True if iterator bounds end the walk, false if the caller checks for its end.
    pub(crate) bounds: bool,
    /// True if the walk runs under a snapshot, where both directions and multi_get must find the
    /// same entries.
    pub(crate) compared: bool,
    pub(crate) readahead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get {
        family: usize,
        row: usize,
    },
    MultiGet {
        family: usize,
        rows: Vec<usize>,
    },
    /// `count` rows from position `first` in the order of keys.
    Scan {
        family: usize,
        first: usize,
        count: usize,
        walk: Walk,
    },
    /// The block of this row.
    Prefix {
        family: usize,
        row: usize,
    },
    /// The sum of all accounts.
    Sum,
    Write {
        changes: Vec<Change>,
        form: WriteForm,
    },
    /// Moves an amount from one account to another and puts a row in the same write.
    Transfer {
        from: Account,
        to: Account,
        amount: u64,
        mark: Change,
        form: WriteForm,
    },
}

/// Features of a life's database that limit the draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    pub(crate) transactions: bool,
    pub(crate) two_phases: bool,
    pub(crate) unlogged: bool,
}

/// A lane's source of draws.
pub(crate) struct Draws<'a> {
    pub(crate) shape: Shape,
    pub(crate) flags: &'a Flags,
    pub(crate) abilities: Abilities,
    pub(crate) lane: usize,
    pub(crate) wide: Vec<usize>,
    pub(crate) random: Random,
}

impl<'a> Draws<'a> {
    pub(crate) fn new(
        shape: Shape,
        flags: &'a Flags,
        abilities: Abilities,
        lane: usize,
        random: Random,
    ) -> Draws<'a> {
        Draws { shape, flags, abilities, lane, wide: shape.wide_rows(), random }
    }

    /// Draws the lane's operation of this number.
    pub(crate) fn draw(&mut self, number: u64, state: &dyn Fn(Place) -> u64) -> Operation {
        let all = self.shape.lanes * self.shape.rows;
        let family = self.random.index(self.shape.families);
        let f = self.flags;
        let mut left = self.random.below(100);
        let mut is = |percent: u64| match left.checked_sub(percent) {
            Some(rest) => {
                left = rest;
                false
            }
            None => {
                left = u64::MAX;
                true
            }
        };
        if is(f.readpercent) {
            return match self.random.one_in(2) {
                true => Operation::Get { family, row: self.random.index(all) },
                false => {
                    let count = 1 + self.random.below(MULTI_GET_AT_MOST);
                    Operation::MultiGet { family, rows: (0..count).map(|_| self.random.index(all)).collect() }
                }
            };
        }
        if is(f.prefixpercent) {
            return Operation::Prefix { family, row: self.random.index(all) };
        }
        if is(f.iterpercent) {
            if self.random.one_in(8) {
                return Operation::Sum;
            }
            let count = (1 + self.random.index(SCAN_AT_MOST as usize)).min(all);
            let first = self.random.index(all - count + 1);
            let walk = Walk {
                backward: self.random.one_in(2),
                bounds: self.random.one_in(2),
                compared: self.random.one_in(3),
                readahead: self.random.one_in(4),
            };
            return Operation::Scan { family, first, count, walk };
        }
        if is(f.writepercent) {
            let changes = self.changes(number, false, state);
            return Operation::Write { form: self.form(&changes), changes };
        }
        if is(f.delpercent) {
            let changes = self.changes(number, true, state);
            return Operation::Write { form: self.form(&changes), changes };
        }
        if is(f.delrangepercent) {
            let changes = vec![self.range(family)];
            return Operation::Write { form: self.form(&changes), changes };
        }
        self.transfer(number)
    }

    /// Draws changes of some rows, each at most once, in one family or in all.
    fn changes(&mut self, number: u64, delete: bool, state: &dyn Fn(Place) -> u64) -> Vec<Change> {
        let count = if self.random.one_in(2) { 1 } else { 1 + self.random.below(ROWS_OF_A_BATCH) };
        let mut rows: Vec<usize> = (0..count).map(|_| self.random.index(self.shape.rows)).collect();
        rows.sort_unstable();
        rows.dedup();
        let families = if self.random.one_in(3) {
            0..self.shape.families
        } else {
            let family = self.random.index(self.shape.families);
            family..family + 1
        };
        let mut changes = Vec::new();
        for row in rows {
            for family in families.clone() {
                let place = Place { lane: self.lane, family, row };
                changes.push(self.change(place, number, delete, state(place)));
            }
        }
        changes
    }

    fn change(&mut self, place: Place, number: u64, delete: bool, now: u64) -> Change {
        match kind(place.row) {
            Kind::Single if now != 0 => Change::SingleDelete(place),
            Kind::Single => Change::Put(place, number),
            Kind::Merged if counts(place.family) => match delete {
                true => Change::Delete(place, 0),
                false if self.random.one_in(8) => Change::Put(place, 1 + self.random.below(1 << 40)),
                false => {
                    let more = 1 + self.random.below(1000);
                    Change::Merge(place, now + more, more.to_le_bytes().to_vec())
                }
            },
            Kind::Merged => {
                let (removed, items) = list_parts(now);
                let last = removed + items;
                match delete || items >= ITEMS_AT_MOST {
                    true if self.random.one_in(2) => Change::Put(place, list_state(last, 1)),
                    true => Change::Delete(place, list_state(last, 0)),
                    false => Change::Merge(place, list_state(removed, items + 1), list_item(last + 1)),
                }
            }
            Kind::Value | Kind::Wide if delete => Change::Delete(place, 0),
            Kind::Value | Kind::Wide => Change::Put(place, number),
        }
    }

    /// Draws a range deletion within a block, or over rows of many blocks.
    fn range(&mut self, family: usize) -> Change {
        let place = |row| Place { lane: self.lane, family, row };
        if self.random.one_in(2) {
            let count = (1 + self.random.below(RANGE_AT_MOST) as usize).min(self.wide.len());
            let first = self.random.index(self.wide.len() - count + 1);
            return Change::DeleteRange(self.wide[first..][..count].iter().map(|row| place(*row)).collect());
        }
        let mut block = self.random.index(self.shape.rows / BLOCK);
        while kind(block * BLOCK) != Kind::Value {
            block = (block + 1) % (self.shape.rows / BLOCK);
        }
        let from = self.random.index(BLOCK);
        let to = from + 1 + self.random.index(BLOCK - from);
        Change::DeleteRange((from..to).map(|offset| place(block * BLOCK + offset)).collect())
    }

    fn form(&mut self, changes: &[Change]) -> WriteForm {
        let can = self.abilities;
        let sync = self.random.one_in(self.flags.sync_one_in);
        let one_family = changes
            .iter()
            .flat_map(Change::states)
            .all(|(place, _)| place.family == changes[0].states()[0].0.family);
        // Batches with single deletions are not ingested, because the files have no such entries.
        let singly = changes.iter().any(|change| matches!(change, Change::SingleDelete(_)));
        if !singly && self.random.one_in(self.flags.ingest_external_file_one_in) {
            return WriteForm::Ingested;
        }
        if can.unlogged && one_family && self.random.one_in(self.flags.disable_wal_one_in) {
            return WriteForm::Unlogged;
        }
        let ranges = changes.iter().any(|change| matches!(change, Change::DeleteRange(_)));
        if can.transactions && !ranges && self.random.below(100) < self.flags.txnpercent {
            return WriteForm::Transaction {
                sync,
                prepare: can.two_phases && self.random.one_in(2),
                roll_back: self.random.one_in(6),
                save_point: self.random.one_in(6),
            };
        }
        WriteForm::Batch { sync }
    }

    fn transfer(&mut self, number: u64) -> Operation {
        let counting = self.shape.families.div_ceil(2);
        let mut account =
            || Account { family: 2 * self.random.index(counting), number: self.random.below(ACCOUNTS) };
        let (from, mut to) = (account(), account());
        if from == to {
            to.number = (to.number + 1) % ACCOUNTS;
        }
        let amount = 1 + self.random.below(1 << 20);
        let mut row = self.random.index(self.shape.rows);
        while kind(row) != Kind::Value {
            row = (row + BLOCK) % self.shape.rows;
        }
        let place = Place { lane: self.lane, family: self.random.index(self.shape.families), row };
        let mark = Change::Put(place, number);
        let form = match self.form(std::slice::from_ref(&mark)) {
            WriteForm::Unlogged | WriteForm::Ingested => WriteForm::Batch { sync: false },
            form => form,
        };
        Operation::Transfer { from, to, amount, mark, form }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::CYCLE;
    use super::*;
    use std::collections::HashMap;

    fn operations(seed: u64, count: u64) -> Vec<Operation> {
        let shape = Shape { seed, families: 3, lanes: 4, rows: 2 * CYCLE };
        let flags = Flags { disable_wal_one_in: 50, ..Flags::default() };
        let abilities = Abilities { transactions: true, two_phases: true, unlogged: true };
        let mut draws = Draws::new(shape, &flags, abilities, 2, Random::of(&[seed]));
        let mut states: HashMap<(usize, usize), u64> = HashMap::new();
        let mut all = Vec::new();
        for number in 1..=count {
            let operation =
                draws.draw(number, &|place| *states.get(&(place.family, place.row)).unwrap_or(&0));
            if let Operation::Write { changes, .. } = &operation {
                for (place, next) in changes.iter().flat_map(Change::states) {
                    assert_eq!(place.lane, 2);
                    states.insert((place.family, place.row), next);
                }
            }
            all.push(operation);
        }
        all
    }

    #[test]
    fn a_seed_draws_the_same_operations_and_another_others() {
        assert_eq!(operations(5, 2000), operations(5, 2000));
        assert_ne!(operations(5, 100), operations(6, 100));
    }

    #[test]
    fn everything_is_drawn_and_a_single_deletion_only_of_what_was_put_once() {
        let all = operations(9, 20_000);
        let some = |is: &dyn Fn(&Operation) -> bool| all.iter().filter(|one| is(one)).count();
        let changes = |is: &dyn Fn(&Change) -> bool| {
            some(&|one| matches!(one, Operation::Write { changes, .. } if changes.iter().any(is)))
        };
        let counted = [
            some(&|one| matches!(one, Operation::Get { .. })),
            some(&|one| matches!(one, Operation::MultiGet { .. })),
            some(&|one| matches!(one, Operation::Prefix { .. })),
            some(&|one| matches!(one, Operation::Sum)),
            some(&|one| matches!(one, Operation::Scan { walk, .. } if walk.backward && walk.bounds)),
            some(&|one| matches!(one, Operation::Scan { walk, .. } if walk.compared)),
            some(&|one| matches!(one, Operation::Transfer { form: WriteForm::Batch { .. }, .. })),
            some(&|one| matches!(one, Operation::Transfer { form: WriteForm::Transaction { .. }, .. })),
            some(&|one| matches!(one, Operation::Write { form: WriteForm::Unlogged, .. })),
            some(&|one| matches!(one, Operation::Write { form: WriteForm::Ingested, .. })),
            changes(&|one| matches!(one, Change::Put(..))),
            changes(&|one| matches!(one, Change::Delete(..))),
            changes(&|one| matches!(one, Change::SingleDelete(..))),
            changes(&|one| matches!(one, Change::Merge(..))),
            changes(&|one| matches!(one, Change::DeleteRange(places) if places.len() > BLOCK)),
        ];
        assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
        let mut there = std::collections::BTreeSet::new();
        for operation in &all {
            let Operation::Write { changes, .. } = operation else { continue };
            for change in changes {
                match change {
                    Change::Put(place, _) if kind(place.row) == Kind::Single => {
                        assert!(there.insert(*place), "put twice");
                    }
                    Change::SingleDelete(place) => assert!(there.remove(place), "not there"),
                    _ => {}
                }
            }
        }
    }
}
