//! Seeded random numbers of the tools, so that a run can be repeated.

/// SplitMix64 generator: small, fast, and sufficient to choose keys. Equal seeds give equal numbers
/// on every machine.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a generator whose seed depends on all of these numbers.
    pub(crate) fn of(parts: &[u64]) -> Random {
        Random(parts.iter().fold(0, |state, part| Random(state ^ part).next()))
    }

    /// Returns a number below `bound`, which must not be zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Like [`Random::below`], for indices.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns true with probability 1 / `n`; never if `n` is 0.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// Returns a random element.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }
}
