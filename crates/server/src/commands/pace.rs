//! Pauses of commands that do much without waiting for the device.

use karstdb::io::yield_now;

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn others_run_after_256_steps() {
        let mut pace = Pace::default();
        for round in 0..3 {
            assert!((1..STEPS).all(|_| pace.step().now_or_never().is_some()), "round {round}");
            assert!(pace.step().now_or_never().is_none(), "round {round}");
        }
        assert!(pace.steps(1000).now_or_never().is_none());
    }
}
