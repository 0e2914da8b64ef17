//! What the environment asks of a test: its long form (`KARST_LONG_TESTS=1`), a seed of one's own
//! (`KARST_SEED`), how many of them (`KARST_SEEDS`), and numbers of other names.

use std::ops::Range;

/// Whether the long form is asked for.
#[must_use]
pub fn long() -> bool {
    std::env::var_os("KARST_LONG_TESTS").is_some_and(|value| value != "0")
}

/// The number that a variable holds.
///
/// # Panics
/// It holds something else: a test of something else than what was asked for would show nothing.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seeds of a test that tries many: `KARST_SEED` alone, or `KARST_SEEDS` of them from there on,
/// or from 0, or so many as its form has.
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

/// The seed of a test that has one; it is 0 unless `KARST_SEED` says otherwise, and everything is
/// drawn from it and a number of the test's own.
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
