//! Cursors of SCAN, HSCAN and SSCAN: numbers of 64 bits for positions in an order of names.
//!
//! In: the name to go on from. Out: a number, and the name back. The lower half of a cursor is from
//! a number that is given out once; the upper half is the beginning of the name. A cursor that is
//! not remembered, because it is of before a restart or 65,536 newer ones were made, goes on from
//! that beginning: names may come twice, and none is left out.

use std::collections::{HashMap, VecDeque};

/// Number of cursors that are remembered.
const REMEMBERED: usize = 1 << 16;

/// The remembered cursors of a store.
#[derive(Default)]
pub(super) struct Cursors {
    positions: HashMap<u64, Box<[u8]>>,
    /// Cursors, oldest first.
    order: VecDeque<u64>,
}

impl Cursors {
    /// Returns a cursor for a position; `None` if `number` gives none, because 0 is no cursor.
    pub(super) fn add(&mut self, number: u64, position: &[u8]) -> Option<u64> {
        let mut beginning = [0; 4];
        let length = position.len().min(4);
        beginning[..length].copy_from_slice(&position[..length]);
        let number = number & u64::from(u32::MAX);
        let cursor = u64::from(u32::from_be_bytes(beginning)) << 32 | number;
        if number == 0 {
            return None;
        }
        if self.positions.insert(cursor, position.into()).is_none() {
            self.order.push_back(cursor);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.positions.remove(&oldest);
        }
        Some(cursor)
    }

    /// Returns the position of a cursor, or one before it; of any number.
    pub(super) fn position(&self, cursor: u64) -> Vec<u8> {
        if let Some(position) = self.positions.get(&cursor) {
            return position.to_vec();
        }
        let beginning = ((cursor >> 32) as u32).to_be_bytes();
        // Zeros may stand for the end of a shorter name.
        let length = beginning.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        beginning[..length].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_cursor_goes_back() {
        let mut cursors = Cursors::default();
        let names = [&b""[..], b"a", b"\0", b"a\0\0\0\0", b"abcdefgh", b"\xff\xff\xff\xff\xff"];
        let open: Vec<u64> =
            (1..).zip(names).map(|(number, name)| cursors.add(number, name).unwrap()).collect();
        for (cursor, name) in open.iter().zip(names) {
            assert_eq!(cursors.position(*cursor), name);
            let before = Cursors::default().position(*cursor);
            assert!(&before[..] <= name && name.starts_with(&before), "{name:?}");
        }
        for number in 100..100 + REMEMBERED as u64 {
            cursors.add(number, b"b").unwrap();
        }
        assert_eq!(cursors.positions.len(), REMEMBERED);
        assert_eq!(cursors.position(open[4]), b"abcd");
        assert_eq!(cursors.add(1 << 32, b"a"), None);
    }
}
