//! What is in a stressed database: rows, each in the hand of one lane, and what each holds in a
//! state.
//!
//! A *lane* is one stream of operations, one after the other: that of a thread or of a future. It
//! alone writes its rows, so it knows what they hold, and at most one of its operations is
//! undecided when the process dies. A row has a key in every column family. What the key holds
//! there follows from a *state*, a number: 0 is nothing. Lanes' rows lie in blocks between each
//! other's, so that files, ranges of compactions and iterators are of all of them.
//!
//! Beside the rows, families of counters hold *accounts*, which all lanes write: numbers of which
//! the sum is always 0.

use crate::random::Random;

/// Rows that lie beside each other before another lane's begin.
pub(crate) const BLOCK: usize = 16;
/// What the blocks of a lane are, over and over.
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
/// A lane has so many rows or a multiple of it.
pub(crate) const CYCLE: usize = BLOCK * KINDS.len();
/// Accounts of a family.
pub(crate) const ACCOUNTS: u64 = 12;
/// With what the keys of accounts begin.
pub(crate) const ACCOUNT: u8 = b'a';
/// Bytes of every row's key, and of the part that the rows of a block share.
pub(crate) const KEY_BYTES: usize = 12;
pub(crate) const BLOCK_PREFIX: usize = 10;

pub(crate) type Key = [u8; KEY_BYTES];

/// What is done with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Put and deleted, alone or with a range of its block.
    Value,
    /// The same, and ranges over many blocks: all of these rows of a lane lie beside each other.
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

/// What stays the same for the life of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) families: usize,
    pub(crate) lanes: usize,
    /// Of each lane, a multiple of [`CYCLE`].
    pub(crate) rows: usize,
}

/// A counter's family adds, a list's appends.
pub(crate) fn counts(family: usize) -> bool {
    family.is_multiple_of(2)
}

/// The name of a family's merge operator.
pub(crate) fn merge_operator(family: usize) -> &'static str {
    if counts(family) { "uint64add" } else { "{id=StringAppendOperator;delimiter=,;}" }
}

/// Name of the family with timestamps, and of the one that takes files behind all it has. The files
/// of what is expected of them have these names too.
pub(crate) const STAMPED_FAMILY: &str = "stamped";
pub(crate) const BEHIND_FAMILY: &str = "behind";

/// The name of a column family; the first is the default one.
pub(crate) fn family_name(family: usize) -> String {
    if family == 0 { "default".into() } else { format!("family{family}") }
}

pub(crate) fn kind(row: usize) -> Kind {
    KINDS[row / BLOCK % KINDS.len()]
}

/// The key of an account.
pub(crate) fn account(number: u64) -> Vec<u8> {
    format!("{}{number:011}", ACCOUNT as char).into_bytes()
}

/// A list's state: the number of the last item that was removed, and how many there are behind it.
pub(crate) fn list_state(removed: u64, items: u64) -> u64 {
    removed << 16 | items
}

/// What a list's state is made of.
pub(crate) fn list_parts(state: u64) -> (u64, u64) {
    (state >> 16, state & 0xffff)
}

/// What is appended to a list as an item of this number.
pub(crate) fn list_item(number: u64) -> Vec<u8> {
    format!("{number}").into_bytes()
}

impl Shape {
    /// The key of a row.
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

    /// The rows of a lane that lie beside each other as [`Kind::Wide`], in the order of their keys.
    pub(crate) fn wide_rows(&self) -> Vec<usize> {
        (0..self.rows).filter(|row| kind(*row) == Kind::Wide).collect()
    }

    /// All rows, in the order of their keys.
    pub(crate) fn ordered(&self) -> Vec<(Key, usize, usize)> {
        let of = |lane| (0..self.rows).map(move |row| (self.key(lane, row), lane, row));
        let mut all: Vec<_> = (0..self.lanes).flat_map(of).collect();
        all.sort_unstable();
        all
    }

    /// What a row holds in a state.
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

    /// A value that says where it belongs, and is of any length.
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
        // Half of it can be compressed away.
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
