//! Seeded keys and values with the shapes that find bugs: long shared prefixes, neighbours that
//! differ in the last byte, lengths from one byte to a page, empty values, values larger than any
//! block.
//!
//! Invariant: `key(i)` and `value(i, version)` depend on nothing but the shape and their arguments,
//! so a test can name a key without keeping it; distinct `i` below [`KeyShape::distinct`] give
//! distinct keys.

use crate::random::Random;

/// Returns db_bench's key with this number and its default length: eight big-endian bytes and zeros
/// as text.
#[must_use]
pub fn db_bench_key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Shape of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// `user/003/01542`: text in groups of 500 with a shared prefix, in the order of their numbers.
    Text,
    /// Eight big-endian bytes.
    Number,
    /// Bytes of every value, lengths 1 to 4,096, short ones more often; many are prefixes of
    /// others.
    Ragged,
}

/// Shape of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// Text of a small vocabulary, up to some 200 bytes: it compresses, and a dictionary helps.
    Phrases,
    /// Random bytes, 0 to about 300.
    Noise,
    /// Empty, small, around a block, up to 1 MiB for a few.
    Extreme,
    /// Eight bytes, little-endian, for operators that add.
    Counter,
}

impl KeyShape {
    /// Returns the number of distinct keys in `key(0..)` before repetition.
    #[must_use]
    pub fn distinct(self) -> u64 {
        match self {
            KeyShape::Text | KeyShape::Ragged => 100_000,
            KeyShape::Number => u64::MAX,
        }
    }

    /// Returns the key with number `i`.
    #[must_use]
    pub fn key(self, i: u64) -> Vec<u8> {
        match self {
            KeyShape::Text => format!("user/{:03}/{:05}", i / 500, i).into_bytes(),
            KeyShape::Number => (i * 3).to_be_bytes().to_vec(),
            KeyShape::Ragged => {
                // The tail makes it unique; the head is one of a few long runs, so that neighbours
                // share long prefixes.
                let mut random = Random::new(i);
                let mut key = Vec::new();
                if i >= 200 {
                    let head = Random::new(random.below(5)).bytes(1200);
                    let len = match random.below(20) {
                        0 => 1 + random.index(4085),
                        1..=4 => random.index(300),
                        _ => random.index(24),
                    };
                    key.extend(head.iter().cycle().take(len));
                    key.extend_from_slice(&[0xff, (i >> 16) as u8, (i >> 8) as u8]);
                }
                key.push(i as u8);
                key
            }
        }
    }
}

const WORDS: [&str; 16] = [
    "river ",
    "limestone ",
    "cave ",
    "spring ",
    "dissolves ",
    "under ",
    "the ",
    "plateau ",
    "sink",
    "hole ",
    "water ",
    "table ",
    "2026-01-",
    "flow=",
    "depth:",
    "\u{17e}ivo ",
];

impl ValueShape {
    /// Returns the value that write number `version` gives to key number `i`.
    #[must_use]
    pub fn value(self, i: u64, version: u64) -> Vec<u8> {
        let mut random = Random::new(i.wrapping_mul(0x1_0000_01b3) ^ version.wrapping_mul(0x9e37_79b9));
        match self {
            ValueShape::Phrases => {
                let count = random.index(28);
                let mut text = format!("{i}/{version} ");
                (0..count).for_each(|_| text.push_str(WORDS[random.index(WORDS.len())]));
                text.into_bytes()
            }
            ValueShape::Noise => {
                let len = random.index(300);
                random.bytes(len)
            }
            ValueShape::Extreme => {
                let len = match i % 64 {
                    0 => 0,
                    1 if i % 1024 == 1 => 1 << 20,
                    1..=3 => 3500 + random.index(1500),
                    4 => 60_000 + random.index(10_000),
                    _ => random.index(120),
                };
                random.bytes(len)
            }
            ValueShape::Counter => (random.below(1000)).to_le_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_reach_both_lengths() {
        for shape in [KeyShape::Text, KeyShape::Number, KeyShape::Ragged] {
            let keys: HashSet<Vec<u8>> = (0..20_000).map(|i| shape.key(i)).collect();
            assert_eq!(keys.len(), 20_000, "{shape:?}");
        }
        let lengths = || (0..20_000).map(|i| KeyShape::Ragged.key(i).len());
        assert_eq!(lengths().min(), Some(1));
        assert!(lengths().max() > Some(4000) && lengths().max() <= Some(4096), "{:?}", lengths().max());
    }

    #[test]
    fn extreme_values_are_empty_and_a_mebibyte() {
        assert!(ValueShape::Extreme.value(64, 3).is_empty());
        assert_eq!(ValueShape::Extreme.value(1, 0).len(), 1 << 20);
    }
}
