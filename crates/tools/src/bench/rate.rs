//! --benchmark_write_rate_limit: limit in bytes per second for all writers of a workload together.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Rate limit that several threads share.
pub(crate) struct Pace {
    bytes_per_second: f64,
    /// Time at which the next byte is due.
    next: Mutex<Instant>,
}

/// Maximum delay that a writer may make up for.
const CATCH_UP: Duration = Duration::from_millis(100);

impl Pace {
    /// Returns `None` without a limit.
    pub(crate) fn new(bytes_per_second: u64) -> Option<Pace> {
        (bytes_per_second > 0)
            .then(|| Pace { bytes_per_second: bytes_per_second as f64, next: Mutex::new(Instant::now()) })
    }

    /// Blocks until `bytes` may be written.
    pub(crate) fn wait(&self, bytes: usize) {
        let due = {
            let mut next = self.next.lock().expect("no holder panics");
            let now = Instant::now();
            let due = (*next).max(now.checked_sub(CATCH_UP).unwrap_or(now));
            *next = due + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            due
        };
        let left = due.saturating_duration_since(Instant::now());
        // Short waits are skipped, because a sleep takes at least about 50 us.
        if left > Duration::from_micros(100) {
            std::thread::sleep(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_together_keep_the_pace() {
        assert!(Pace::new(0).is_none());
        // Before the first byte is due, because this thread may lose its processor in between.
        let start = Instant::now();
        let pace = Pace::new(1_000_000).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| pace.wait(1000)));
            }
        });
        // 200 kB at 1 MB/s; the last thousand bytes are admitted before their time has passed.
        assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
    }
}
