//! Recent results of filters, which predict their next results.

use karst_base::sync::atomic::{AtomicU32, Ordering};

/// A moving share of true results, as a part of [`Lately::ALWAYS`]. Each result has a weight of one
/// 16th.
#[derive(Debug)]
pub(super) struct Lately(AtomicU32);

impl Lately {
    pub(super) const ALWAYS: u32 = 1 << 16;
    const WEIGHT: u32 = 16;

    fn starting_at(share: u32) -> Self {
        Lately(AtomicU32::new(share))
    }

    pub(super) fn always() -> Self {
        Lately::starting_at(Self::ALWAYS)
    }

    pub(super) fn note(&self, so: bool) {
        // Ordering: Relaxed, and not one operation; a lost result does not matter.
        let before = self.0.load(Ordering::Relaxed);
        let add = if so { Self::ALWAYS / Self::WEIGHT } else { 0 };
        self.0.store(before - before / Self::WEIGHT + add, Ordering::Relaxed);
    }

    pub(super) fn share(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Recent filter results on each level, for lookups that had to wait for filters, so that such a
/// lookup can request its next need at the same time.
#[derive(Debug)]
pub struct FilterHistory {
    /// Share of keys that passed, by level; deeper levels count as the last.
    passed: [Lately; FilterHistory::LEVELS],
}

/// The predicted result of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odds {
    /// The filter will let the key pass.
    Passes,
    /// The filter will deny the key.
    Denies,
    /// Either.
    Open,
}

impl FilterHistory {
    const LEVELS: usize = 8;
    /// Minimum share of passes that predicts a pass. High, because after a wrong prediction an
    /// index was read in vain, which may be large.
    const PASSES_AT_LEAST: u32 = Lately::ALWAYS / 16 * 15;
    /// Maximum share of passes that predicts a denial. Less strict, because a pass may be a false
    /// positive, and the data read in vain is small.
    const DENIES_AT_MOST: u32 = Lately::ALWAYS / 8;

    fn of(&self, level: u8) -> &Lately {
        &self.passed[usize::from(level).min(Self::LEVELS - 1)]
    }

    /// Records the result of a filter on `level`.
    #[cold]
    pub fn note(&self, level: u8, may_match: bool) {
        self.of(level).note(may_match);
    }

    /// Returns the predicted result of the next filter on `level`.
    pub fn odds(&self, level: u8) -> Odds {
        match self.of(level).share() {
            Self::PASSES_AT_LEAST.. => Odds::Passes,
            0..=Self::DENIES_AT_MOST => Odds::Denies,
            _ => Odds::Open,
        }
    }
}

impl Default for FilterHistory {
    fn default() -> Self {
        FilterHistory { passed: std::array::from_fn(|_| Lately::starting_at(Lately::ALWAYS / 2)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odds_follow_what_filters_say() {
        let history = FilterHistory::default();
        assert_eq!(history.odds(3), Odds::Open);
        let say = |count, may_match| {
            (0..count).for_each(|_| history.note(3, may_match));
            history.odds(3)
        };
        assert_eq!(say(10, true), Odds::Open);
        assert_eq!(say(90, true), Odds::Passes);
        assert_eq!(say(1000, true), Odds::Passes, "it does not run over");
        assert_eq!(say(2, false), Odds::Open);
        assert_eq!(say(100, false), Odds::Denies);
        assert_eq!(say(1, true), Odds::Denies, "now and then one passes by mistake");
        assert_eq!(say(4, true), Odds::Open);
        assert_eq!((history.odds(2), history.odds(200)), (Odds::Open, Odds::Open));
        (0..100).for_each(|_| history.note(100, true));
        assert_eq!(history.odds(200), Odds::Passes, "deep levels count as one");
    }
}
