//! A token bucket that stores a time instead of tokens: the time until which all admitted bytes are
//! paid for.
//!
//! In: the time, bytes and a rate. Out: the time their owner must wait. Pure; the owner holds the
//! lock around it.
//! Invariant: over any span of time no more than `rate * (span + BURST)` bytes have finished
//! waiting, if the rate stays constant.

use std::time::Duration;

/// Credit that an idle bucket accumulates, as time.
const BURST: Duration = Duration::from_millis(1);

/// A token bucket; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    paid_until: Duration,
}

impl Bucket {
    /// Admits `bytes` at `bytes_per_sec` (at least 1); returns the time their owner must wait.
    pub(super) fn take(&mut self, now: Duration, bytes: u64, bytes_per_sec: u64) -> Duration {
        let from = self.paid_until.max(now.saturating_sub(BURST));
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_sec.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid_until = from.saturating_add(cost);
        self.paid_until.saturating_sub(now)
    }

    /// Clears all debt, so that the first writer after a pause does not pay for earlier ones.
    pub(super) fn clear(&mut self) {
        self.paid_until = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_lets_more_through_than_the_rate(
            steps in proptest::collection::vec((0u64..5_000_000, 1u64..100_000), 1..50),
            rate in 1_000u64..10_000_000,
        ) {
            let mut bucket = Bucket::default();
            let (mut now, mut through) = (Duration::from_secs(5), 0u64);
            let start = now;
            for (pause_ns, bytes) in steps {
                now += Duration::from_nanos(pause_ns);
                now += bucket.take(now, bytes, rate);
                through += bytes;
                let allowed = (now - start + BURST).as_secs_f64() * rate as f64;
                prop_assert!(through as f64 <= allowed * 1.000_001 + 1.0, "{through} bytes, {allowed} allowed");
            }
        }
    }

    #[test]
    fn those_who_come_together_wait_one_after_the_other() {
        let mut bucket = Bucket::default();
        let now = Duration::from_secs(1);
        bucket.take(now, 1_000, 1_000_000); // credit of the idle time
        let waits: Vec<u128> = (0..3).map(|_| bucket.take(now, 2_000, 1_000_000).as_millis()).collect();
        assert_eq!(waits, [2, 4, 6]);
        bucket.clear();
        assert_eq!(bucket.take(now, 500, 1_000_000), Duration::ZERO);
    }
}
