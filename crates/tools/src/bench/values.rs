//! db_bench's values: slices of a megabyte of random pieces, each repeated so that values compress
//! by --compression_ratio.

use super::flags::Flags;
use super::key::Random;

/// Generator of one thread's values.
pub(crate) struct Values {
    pool: Vec<u8>,
    at: usize,
    sizes: Sizes,
    random: Random,
    /// Percentage of values that are the first one of the pool.
    same_percentage: u64,
}

/// Distribution of the lengths of values.
enum Sizes {
    Fixed(usize),
    Uniform(usize, usize),
    Normal(usize, usize),
}

const POOL_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 100;
const SEED: u64 = 301;

impl Values {
    /// Returns values with the lengths that the flags select.
    pub(crate) fn new(flags: &Flags) -> Values {
        let (min, max) = (flags.value_size_min as usize, flags.value_size_max as usize);
        let sizes = match flags.value_size_distribution_type.as_str() {
            "uniform" => Sizes::Uniform(min, max),
            "normal" => Sizes::Normal(min, max),
            _ => Sizes::Fixed(flags.value_size as usize),
        };
        Values::of(flags, sizes)
    }

    /// Returns values of one length, for fill100K.
    pub(crate) fn fixed(flags: &Flags, size_bytes: usize) -> Values {
        Values::of(flags, Sizes::Fixed(size_bytes))
    }

    fn of(flags: &Flags, sizes: Sizes) -> Values {
        let largest = match sizes {
            Sizes::Fixed(size) => size,
            Sizes::Uniform(_, max) | Sizes::Normal(_, max) => max,
        };
        let fresh = ((PIECE_BYTES as f64 * flags.compression_ratio) as usize).clamp(1, PIECE_BYTES);
        let mut random = Random::new(SEED);
        let mut pool = Vec::with_capacity(POOL_BYTES.max(largest) + PIECE_BYTES);
        while pool.len() < POOL_BYTES.max(largest) {
            let piece: Vec<u8> = (0..fresh).map(|_| random.next() as u8).collect();
            pool.extend(piece.iter().cycle().take(PIECE_BYTES));
        }
        Values { pool, at: 0, sizes, random, same_percentage: flags.same_value_percentage.max(0) as u64 }
    }

    /// Returns the next value.
    pub(crate) fn next(&mut self) -> &[u8] {
        let size = self.size();
        if self.same_percentage > 0 && self.random.next() % 100 < self.same_percentage {
            return &self.pool[..size];
        }
        if self.at + size > self.pool.len() {
            self.at = 0;
        }
        self.at += size;
        &self.pool[self.at - size..self.at]
    }

    fn size(&mut self) -> usize {
        match self.sizes {
            Sizes::Fixed(size) => size,
            Sizes::Uniform(min, max) => min + (self.random.next() % (max - min + 1) as u64) as usize,
            Sizes::Normal(min, max) => {
                // The sum of twelve uniform numbers is almost normal, with variance 1; as in
                // db_bench 99 % lie in the range, and the rest is clamped to it.
                let sum: f64 = (0..12).map(|_| (self.random.next() >> 11) as f64 / (1u64 << 53) as f64).sum();
                let (middle, deviation) = ((min + max) as f64 / 2.0, (max - min) as f64 / 6.0);
                ((middle + (sum - 6.0) * deviation) as usize).clamp(min, max)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_lengths_and_repeat_as_asked() {
        let mut values = Values::new(&Flags { value_size: 300, compression_ratio: 0.2, ..Flags::default() });
        for _ in 0..5000 {
            let value = values.next();
            assert_eq!(value.len(), 300);
            // Any 300 bytes include a whole piece: 20 fresh bytes, five times.
            assert!((0..=200).any(|at| (0..80).all(|i| value[at + i] == value[at + i + 20])));
        }
        for kind in ["uniform", "normal"] {
            let flags = Flags {
                value_size_distribution_type: kind.into(),
                value_size_min: 10,
                value_size_max: 30,
                ..Flags::default()
            };
            let mut values = Values::new(&flags);
            let lengths: Vec<usize> = (0..3000).map(|_| values.next().len()).collect();
            assert!(lengths.iter().all(|n| (10..=30).contains(n)), "{kind}");
            let mean = lengths.iter().sum::<usize>() as f64 / 3000.0;
            assert!((19.0..21.0).contains(&mean), "{kind}: {mean}");
        }
        let mut same = Values::new(&Flags { same_value_percentage: 100, ..Flags::default() });
        assert_eq!(same.next().to_vec(), same.next());
    }
}
