//! The rows of a stressed database, each written by one lane, and the values that they have in each
//! state.
//!
//! A *lane* is one stream of operations, one after the other: that of a thread or of a future. It
//! alone writes its rows, so it knows their values, and at most one of its operations is undecided
//! when the process dies. A row has a key in every column family. The key's value follows from a
//! *state*, a number; in state 0 the key is absent. Rows of different lanes lie in alternating
//! blocks, so that files, compaction ranges and iterators cover rows of all lanes.
//!
//! Beside the rows, families of counters hold *accounts*, which all lanes write: numbers whose sum
//! is always 0.

use crate::random::Random;

/// Number of adjacent rows of one lane before another lane's begin.
pub(crate) const BLOCK: usize = 16;
/// Kinds of a lane's blocks, repeated in this order.
const KINDS: [Kind; 8] = [
    Kind::Value,
    Kind::Value,
    Kind::Value,
    Kind::Wide,
    Kind::Single,
    Kind::Single,
    Kind::Merged,
    Kind::Merged,
];
/// Number of rows after which the kinds repeat; a lane has a multiple of it.
pub(crate) const CYCLE: usize = BLOCK * KINDS.len();
/// Number of accounts of a family.
pub(crate) const ACCOUNTS: u64 = 12;
/// First byte of the keys of accounts.
pub(crate) const ACCOUNT: u8 = b'a';
/// Bytes of every row's key, and of the part that the rows of a block share.
pub(crate) const KEY_BYTES: usize = 12;
pub(crate) const BLOCK_PREFIX: usize = 10;

pub(crate) type Key = [u8; KEY_BYTES];

/// Kinds of rows by the operations that change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Put and deleted, alone or with a range of its block.
    Value,
    /// Put and deleted, also with ranges over many blocks: all of a lane's rows of this kind are
    /// adjacent.
    Wide,
    /// Put once, then removed with a single deletion.
    Single,
    /// Merged: added to in a family of counters, appended to in one of lists.
    Merged,
}

/// A row in one column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) lane: usize,
    pub(crate) family: usize,
    pub(crate) row: usize,
}

/// Parameters that are fixed for the life of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) families: usize,
    pub(crate) lanes: usize,
    /// Rows of each lane, a multiple of [`CYCLE`].
    pub(crate) rows: usize,
}

/// Returns true for a family of counters, false for one of lists.
pub(crate) fn counts(family: usize) -> bool {
    family.is_multiple_of(2)
}

/// Returns the name of a family's merge operator.
pub(crate) fn merge_operator(family: usize) -> &'static str {
    if counts(family) { "uint64add" } else { "{id=StringAppendOperator;delimiter=,;}" }
}

/// Names of the family with timestamps, and of the one that ingests files behind its entries. The
/// files with their expected states have these names too.
pub(crate) const STAMPED_FAMILY: &str = "stamped";
pub(crate) const BEHIND_FAMILY: &str = "behind";

/// Returns the name of a column family; number 0 is the default one.
pub(crate) fn family_name(family: usize) -> String {
    if family == 0 { "default".into() } else { format!("family{family}") }
}

pub(crate) fn kind(row: usize) -> Kind {
    KINDS[row / BLOCK % KINDS.len()]
}

/// Returns the key of an account.
pub(crate) fn account(number: u64) -> Vec<u8> {
    format!("{}{number:011}", ACCOUNT as char).into_bytes()
}

/// Encodes a list's state: the number of the last item that was removed, and the number of items
/// after it.
pub(crate) fn list_state(removed: u64, items: u64) -> u64 {
    removed << 16 | items
}

/// Decodes a list's state into the arguments of [`list_state`].
pub(crate) fn list_parts(state: u64) -> (u64, u64) {
    (state >> 16, state & 0xffff)
}

/// Returns the text of a list's item of this number.
pub(crate) fn list_item(number: u64) -> Vec<u8> {
    format!("{number}").into_bytes()
}

impl Shape {
    /// Returns the key of a row.
    pub(crate) fn key(&self, lane: usize, row: usize) -> Key {
        let (block, offset) = (row / BLOCK, row % BLOCK);
        let (cycle, place) = (block / KINDS.len(), block % KINDS.len());
        let kind = KINDS[place];
        let of_kind = KINDS.iter().filter(|other| **other == kind).count();
        let before = KINDS[..place].iter().filter(|other| **other == kind).count();
        let ordinal = cycle * of_kind + before;
        let text = match kind {
            Kind::Wide => format!("w{lane:03}{:08}", ordinal * BLOCK + offset),
            Kind::Value => format!("v{ordinal:06}{lane:03}{offset:02}"),
            Kind::Single => format!("s{ordinal:06}{lane:03}{offset:02}"),
            Kind::Merged => format!("m{ordinal:06}{lane:03}{offset:02}"),
        };
        text.as_bytes().try_into().expect("every form has this length")
    }

    /// Returns a lane's rows of kind [`Kind::Wide`], which are adjacent, in the order of their
    /// keys.
    pub(crate) fn wide_rows(&self) -> Vec<usize> {
        (0..self.rows).filter(|row| kind(*row) == Kind::Wide).collect()
    }

    /// Returns all rows in the order of their keys: key, lane, row.
    pub(crate) fn ordered(&self) -> Vec<(Key, usize, usize)> {
        let of = |lane| (0..self.rows).map(move |row| (self.key(lane, row), lane, row));
        let mut all: Vec<_> = (0..self.lanes).flat_map(of).collect();
        all.sort_unstable();
        all
    }

    /// Returns the value of a row in a state; `None` if it is absent.
    pub(crate) fn text(&self, place: Place, state: u64) -> Option<Vec<u8>> {
        match kind(place.row) {
            _ if state == 0 => None,
            Kind::Merged if counts(place.family) => Some(state.to_le_bytes().to_vec()),
            Kind::Merged => {
                let (removed, items) = list_parts(state);
                let items: Vec<Vec<u8>> = (removed + 1..=removed + items).map(list_item).collect();
                (!items.is_empty()).then(|| items.join(&b','))
            }
            _ => Some(self.value(place, state)),
        }
    }

    /// Returns a value of random length that begins with its place and state.
    fn value(&self, place: Place, state: u64) -> Vec<u8> {
        let Place { lane, family, row } = place;
        let mut value = format!("{lane}.{family}.{row}.{state};").into_bytes();
        let mut random = Random::of(&[self.seed, lane as u64, family as u64, row as u64, state]);
        let more = match random.below(100) {
            0..50 => random.below(40),
            50..86 => 40 + random.below(160),
            86..99 => 300 + random.below(500),
            _ => 4000 + random.below(6000),
        };
        // Half of the value is compressible.
        for _ in 0..more.div_ceil(16) {
            value.extend(random.next().to_le_bytes().map(|byte| b'a' + byte % 26));
            value.extend([b'-'; 8]);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SHAPE: Shape = Shape { seed: 7, families: 2, lanes: 3, rows: 2 * CYCLE };

    #[test]
    fn keys_are_different_and_lanes_lie_between_each_other() {
        let all = SHAPE.ordered();
        assert_eq!(all.iter().map(|(key, ..)| *key).collect::<BTreeSet<_>>().len(), 3 * 2 * CYCLE);
        let changes = all.windows(2).filter(|two| two[0].1 != two[1].1).count();
        assert!(changes > 30, "{changes}");
        let wide: Vec<Key> = SHAPE.wide_rows().iter().map(|row| SHAPE.key(1, *row)).collect();
        let first = all.iter().position(|(key, ..)| *key == wide[0]).unwrap();
        assert!(all[first..].iter().map(|(key, ..)| key).take(wide.len()).eq(wide.iter()));
        assert!(all.iter().all(|(key, ..)| key[0] > ACCOUNT) && account(3).len() == KEY_BYTES);
    }

    #[test]
    fn states_are_what_they_say() {
        let merged = (0..CYCLE).find(|row| kind(*row) == Kind::Merged).unwrap();
        let at = |family, row| Place { lane: 1, family, row };
        assert_eq!(SHAPE.text(at(0, merged), 258), Some(258u64.to_le_bytes().to_vec()));
        assert_eq!(SHAPE.text(at(1, merged), list_state(4, 3)), Some(b"5,6,7".to_vec()));
        assert_eq!(SHAPE.text(at(1, merged), list_state(4, 0)), None);
        assert_eq!(SHAPE.text(at(0, 0), 0), None);
        let value = SHAPE.text(at(1, 5), 9).unwrap();
        assert!(value.starts_with(b"1.1.5.9;") && SHAPE.text(at(1, 5), 9) == Some(value.clone()));
        assert_ne!(SHAPE.text(at(1, 5), 10), Some(value));
    }
}
