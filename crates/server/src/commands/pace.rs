//! Pauses of commands that do much without waiting for the device.

use karstdb::io::yield_now;
use std::cmp::Ordering;

/// Keys or elements that a command handles before other tasks of its thread run.
const STEPS: usize = 256;
/// Keys that a command reads at the same time.
pub(super) const KEYS_AT_ONCE: usize = 1024;

/// The steps of one command since other tasks of its thread ran.
#[derive(Debug, Default)]
pub(super) struct Pace(usize);

impl Pace {
    /// Counts a step; after 256 of them other tasks run.
    pub(super) async fn step(&mut self) {
        self.steps(1).await;
    }

    /// Counts steps that were taken together.
    pub(super) async fn steps(&mut self, count: usize) {
        self.0 += count;
        if self.0 >= STEPS {
            self.0 = 0;
            yield_now().await;
        }
    }
}

impl Pace {
    /// Sorts, in runs that are merged. Equal elements stay in their order.
    pub(super) async fn sort<T>(&mut self, elements: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
        let mut runs = Vec::new();
        let mut rest = elements.into_iter().peekable();
        while rest.peek().is_some() {
            let mut run: Vec<T> = rest.by_ref().take(KEYS_AT_ONCE).collect();
            run.sort_by(&compare);
            self.steps(run.len()).await;
            runs.push(run);
        }
        while runs.len() > 1 {
            let mut merged = Vec::new();
            let mut pairs = runs.into_iter();
            while let Some(first) = pairs.next() {
                merged.push(match pairs.next() {
                    Some(second) => self.merge(first, second, &compare).await,
                    None => first,
                });
            }
            runs = merged;
        }
        runs.pop().unwrap_or_default()
    }

    async fn merge<T>(
        &mut self,
        first: Vec<T>,
        second: Vec<T>,
        compare: impl Fn(&T, &T) -> Ordering,
    ) -> Vec<T> {
        let mut merged = Vec::with_capacity(first.len() + second.len());
        let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
        while let (Some(one), Some(other)) = (first.peek(), second.peek()) {
            let next = if compare(one, other) == Ordering::Greater { second.next() } else { first.next() };
            merged.extend(next);
            self.step().await;
        }
        merged.extend(first);
        merged.extend(second);
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use karstdb::io::{Env, block_on};

    #[test]
    fn others_run_after_256_steps() {
        let mut pace = Pace::default();
        for round in 0..3 {
            assert!((1..STEPS).all(|_| pace.step().now_or_never().is_some()), "round {round}");
            assert!(pace.step().now_or_never().is_none(), "round {round}");
        }
        assert!(pace.steps(1000).now_or_never().is_none());
    }

    #[test]
    fn sorts_keep_the_order_of_equal_elements() {
        let elements: Vec<(u64, u64)> = (0..5000u64).map(|n| (n.wrapping_mul(0x9e37_79b9) % 97, n)).collect();
        let mut expected = elements.clone();
        expected.sort_by_key(|(weight, _)| *weight);
        let mut pace = Pace::default();
        let sorted = block_on(&Env::posix(), pace.sort(elements, |a, b| a.0.cmp(&b.0)));
        assert_eq!(sorted, expected);
    }
}
