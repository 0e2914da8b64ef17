//! Processor time of this process, for the examples that measure.

use std::time::Duration;

/// Processor time of all threads of this process, in the kernel's clock ticks of 10 ms.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime {
    /// Time in the program.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
}

impl ProcessorTime {
    /// Returns the time so far.
    ///
    /// # Panics
    /// If there is no procfs.
    #[must_use]
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
        // Parsed after the last parenthesis because the second field, the program's name, may
        // contain spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |i: usize| Duration::from_millis(fields[i].parse::<u64>().expect("a number") * 10);
        Self { user: ticks(11), system: ticks(12) }
    }

    /// Returns the time used since `self`.
    #[must_use]
    pub fn elapsed(self) -> Self {
        let now = Self::now();
        Self { user: now.user - self.user, system: now.system - self.system }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let (before, begin) = (ProcessorTime::now(), std::time::Instant::now());
        while before.elapsed().user.is_zero() {
            assert!(begin.elapsed().as_secs() < 300, "no tick in minutes of work");
            std::hint::black_box((0..100_000u64).fold(1, |x, y| std::hint::black_box(x ^ y)));
        }
        assert!(before.elapsed().total() >= before.elapsed().user.min(Duration::from_millis(10)));
    }
}
