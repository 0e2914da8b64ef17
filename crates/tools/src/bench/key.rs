//! db_bench's keys: encoding of numbers as keys, and distributions of random numbers.

use super::flags::Flags;
pub(crate) use crate::random::Random;

/// Generator of the keys of one thread.
pub(crate) struct Keys {
    random: Random,
    num: u64,
    key_size: usize,
    prefix_size: usize,
    /// Number of prefixes; 0 without prefixes.
    prefixes: u64,
    exp_range: f64,
    /// Number of keys in a batch, and their distance; with a distance of 0 each is random.
    batch: u64,
    stride: u64,
}

impl Keys {
    pub(crate) fn new(flags: &Flags, seed: u64) -> Keys {
        let prefixes =
            if flags.keys_per_prefix > 0 { (flags.num / flags.keys_per_prefix).max(1) as u64 } else { 0 };
        Keys {
            random: Random::new(seed),
            num: flags.num as u64,
            key_size: flags.key_size as usize,
            prefix_size: flags.prefix_size as usize,
            prefixes,
            exp_range: flags.read_random_exp_range,
            batch: flags.batch_size as u64,
            stride: flags.multiread_stride as u64,
        }
    }

    /// Returns a key number, distributed as by --read_random_exp_range.
    pub(crate) fn draw(&mut self) -> u64 {
        let raw = self.random.next();
        if self.exp_range == 0.0 {
            return raw % self.num;
        }
        let unit = (raw >> 2) as f64 / (1u64 << 62) as f64;
        let position = ((-unit * self.exp_range).exp() * self.num as f64) as u64;
        // Scatters the frequent keys over the whole key space, as db_bench does.
        position.wrapping_mul(0x5bd1_e995) % self.num
    }

    /// Returns a random number of any size.
    pub(crate) fn raw(&mut self) -> u64 {
        self.random.next()
    }

    /// Returns the first key of a strided batch, chosen so that the whole batch lies below --num.
    pub(crate) fn batch_start(&mut self) -> u64 {
        let first = self.draw();
        if first + (self.batch - 1) * self.stride >= self.num {
            self.num - self.batch * self.stride
        } else {
            first
        }
    }

    /// Fills `batch` with the keys of the next multi_get.
    pub(crate) fn next_batch(&mut self, batch: &mut [Vec<u8>]) {
        let mut number = if self.stride > 0 { self.batch_start() } else { 0 };
        for key in batch {
            if self.stride == 0 {
                number = self.draw();
            }
            self.encode(number, key);
            number += self.stride;
        }
    }

    /// Returns a random number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.next() % limit
    }

    /// Writes the bytes of key `number`: prefix, eight bytes big-endian, then '0' up to the key's
    /// size.
    pub(crate) fn encode(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        if self.prefixes > 0 {
            push_big_endian(key, number % self.prefixes, self.prefix_size.min(8));
            key.resize(self.prefix_size, b'0');
        }
        let room = self.key_size.saturating_sub(key.len()).min(8);
        push_big_endian(key, number, room);
        key.resize(self.key_size, b'0');
    }
}

/// Order in which a workload writes its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From 0 up.
    Sequential,
    /// Random, with repetitions.
    Random,
    /// A random permutation of all keys.
    UniqueRandom,
}

/// Key numbers in one [`Order`].
pub(crate) struct Sequence {
    order: Order,
    random: Random,
    num: u64,
    next: u64,
    /// The permutation of `UniqueRandom`.
    shuffled: Vec<u32>,
}

impl Sequence {
    /// Returns a sequence of numbers below `num`.
    ///
    /// # Errors
    /// `num` is too large for a permutation.
    pub(crate) fn new(order: Order, num: u64, seed: u64) -> Result<Sequence, String> {
        let mut random = Random::new(seed);
        let mut shuffled = Vec::new();
        if order == Order::UniqueRandom {
            let count = u32::try_from(num).map_err(|_| format!("--num {num} is too large to shuffle"))?;
            shuffled.extend(0..count);
            for i in (1..shuffled.len()).rev() {
                shuffled.swap(i, (random.next() % (i as u64 + 1)) as usize);
            }
        }
        Ok(Sequence { order, random, num, next: 0, shuffled })
    }

    /// Returns the next number. A permutation starts over at its end.
    pub(crate) fn next(&mut self) -> u64 {
        let at = self.next;
        match self.order {
            Order::Random => return self.random.next() % self.num,
            Order::Sequential => self.next += 1,
            Order::UniqueRandom => {
                self.next = (at + 1) % self.num;
                return u64::from(self.shuffled[at as usize]);
            }
        }
        at
    }
}

/// Appends the `width` low bytes of `value`, most significant first.
fn push_big_endian(key: &mut Vec<u8>, value: u64, width: usize) {
    key.extend_from_slice(&value.to_be_bytes()[8 - width..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_look_like_db_benchs() {
        let flags = Flags { key_size: 16, num: 1000, ..Flags::default() };
        let mut key = Vec::new();
        Keys::new(&flags, 1).encode(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\x01\x0200000000");

        let short = Flags { key_size: 4, ..Flags::default() };
        Keys::new(&short, 1).encode(0x0102, &mut key);
        assert_eq!(key, b"\0\0\x01\x02");

        let prefixed =
            Flags { key_size: 20, prefix_size: 10, keys_per_prefix: 10, num: 1000, ..Flags::default() };
        Keys::new(&prefixed, 1).encode(205, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\0\x0500\0\0\0\0\0\0\0\xcd00");
    }

    #[test]
    fn sequences_are_in_their_orders() {
        let take = |order, n| {
            let mut sequence = Sequence::new(order, 1000, 7).unwrap();
            (0..n).map(|_| sequence.next()).collect::<Vec<u64>>()
        };
        assert_eq!(take(Order::Sequential, 1000), (0..1000).collect::<Vec<_>>());
        let mut unique = take(Order::UniqueRandom, 1000);
        assert!(!unique.is_sorted());
        unique.sort_unstable();
        assert_eq!(unique, (0..1000).collect::<Vec<_>>());
        assert!(take(Order::Random, 5000).iter().all(|n| *n < 1000));
    }

    #[test]
    fn draws_stay_below_num() {
        for exp in [0.0, 10.0] {
            let flags = Flags { num: 77, read_random_exp_range: exp, ..Flags::default() };
            let mut keys = Keys::new(&flags, 3);
            assert!((0..10_000).all(|_| keys.draw() < 77));
        }
    }
}
