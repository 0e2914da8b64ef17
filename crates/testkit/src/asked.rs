//! Test parameters from the environment: the long form (`KARST_LONG_TESTS=1`), a fixed seed
//! (`KARST_SEED`), the number of seeds (`KARST_SEEDS`), and other numbers by name.

use std::ops::Range;

/// Returns true if the long form is requested.
#[must_use]
pub fn long() -> bool {
    std::env::var_os("KARST_LONG_TESTS").is_some_and(|value| value != "0")
}

/// Returns the number in an environment variable, if set.
///
/// # Panics
/// If the value is not a number, because a test of other parameters than requested would prove
/// nothing.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns the seeds of a test that tries several: `KARST_SEED` alone; `KARST_SEEDS` seeds,
/// starting there or from 0; or the default number for the form.
#[must_use]
pub fn seeds(short: u64, in_long: u64) -> Range<u64> {
    let of_form = if long() { in_long } else { short };
    range(number("KARST_SEED"), number("KARST_SEEDS"), of_form)
}

fn range(first: Option<u64>, count: Option<u64>, of_form: u64) -> Range<u64> {
    match (first, count) {
        (Some(first), count) => first..first + count.unwrap_or(1),
        (None, count) => 0..count.unwrap_or(of_form),
    }
}

/// Returns the seed of a test with a single seed: `KARST_SEED`, or 0. All random choices derive
/// from it and a number of the test's own.
#[must_use]
pub fn seed() -> u64 {
    number("KARST_SEED").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_many_or_those_of_the_form() {
        assert_eq!(range(None, None, 30), 0..30);
        assert_eq!(range(None, Some(7), 30), 0..7);
        assert_eq!(range(Some(5), None, 30), 5..6);
        assert_eq!(range(Some(5), Some(7), 30), 5..12);
    }
}
