//! The rate limiter: background jobs wait for its permission before they write, which leaves device
//! bandwidth to others.
//!
//! In: requests with a priority. Out: permission, at most `rate * refill period` bytes in each
//! period. Databases may share it.
//!
//! Fairness: higher priorities go first, except in one of `fairness` refills, where lower ones do,
//! so that none starves. No thread refills it: the first waiter to wake after the end of a period
//! refills it for all.
//! An auto-tuned limiter periodically checks the share of periods that were exhausted, and raises
//! or lowers the rate slightly, up to its maximum.
//! Invariant: a request is in a queue exactly while its future lives and is not granted. Lock: its
//! own; never held while waiting.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use karst_io::Env;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The priority of a background write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IoPriority {
    /// Compactions.
    Low,
    /// Compactions that writers wait for.
    Mid,
    /// Flushes.
    High,
    /// User calls.
    User,
}

impl IoPriority {
    const COUNT: usize = 4;
    const ALL: [IoPriority; Self::COUNT] =
        [IoPriority::Low, IoPriority::Mid, IoPriority::High, IoPriority::User];
}

/// Limits the bytes per second that background jobs write. Clones share the limiter.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_per_sec: AtomicU64,
    refill_period: Duration,
    fairness: u64,
    state: Mutex<State>,
    through: [Through; IoPriority::COUNT],
}

#[derive(Debug, Default)]
struct Through {
    bytes: AtomicU64,
    requests: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes left in the current period.
    available: u64,
    /// Start of the next period, by the clock of the last caller.
    next_refill: Option<Duration>,
    refills: u64,
    next_ticket: u64,
    queues: [VecDeque<Request>; IoPriority::COUNT],
    tuning: Option<Tuning>,
}

/// State of auto-tuning.
///
/// Compat: the constants are those of RocksDB's auto-tuned limiters.
#[derive(Debug)]
struct Tuning {
    max_bytes_per_sec: u64,
    /// Time of the last adjustment.
    since: Option<Duration>,
    /// Periods since then that ended with waiting requests.
    drained: u64,
}

impl Tuning {
    /// Number of periods between adjustments.
    const PERIODS: u32 = 100;
    /// Ratio of the maximum rate to the minimum rate.
    const RANGE: u64 = 20;

    /// Returns the new rate, if an adjustment is due.
    fn rate(&mut self, now: Duration, period: Duration, before: u64) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        // A clock that goes back is taken for another environment's, as in `refill`.
        let elapsed = now.checked_sub(since).unwrap_or_else(|| period * Self::PERIODS);
        if elapsed < period * Self::PERIODS {
            return None;
        }
        let periods = elapsed.as_nanos().div_ceil(period.as_nanos());
        let percent = u128::from(std::mem::take(&mut self.drained)) * 100 / periods;
        self.since = Some(now);
        let least = (self.max_bytes_per_sec / Self::RANGE).max(1);
        let by_five_percent = |from: u64, to: u64| {
            let changed = u128::from(before) * u128::from(from) / u128::from(to);
            u64::try_from(changed).unwrap_or(u64::MAX)
        };
        Some(match percent {
            0 => least,
            1..50 => by_five_percent(100, 105).max(least),
            50..=90 => before,
            _ => by_five_percent(105, 100).max(before.saturating_add(1)).min(self.max_bytes_per_sec),
        })
    }
}

#[derive(Debug)]
struct Request {
    ticket: u64,
    left: u64,
}

impl RateLimiter {
    /// Creates a limiter of `bytes_per_sec` with periods of 100 ms; lower priorities go first in
    /// one of 10 periods.
    ///
    /// # Panics
    /// If `bytes_per_sec` is 0.
    pub fn new(bytes_per_sec: u64) -> Self {
        Self::with_periods(bytes_per_sec, Duration::from_millis(100), 10)
    }

    /// Creates a limiter with the given refill period and fairness.
    ///
    /// # Panics
    /// If an argument is 0.
    pub fn with_periods(bytes_per_sec: u64, refill_period: Duration, fairness: u64) -> Self {
        assert!(bytes_per_sec > 0 && !refill_period.is_zero() && fairness > 0, "a rate limiter has a rate");
        Self(Arc::new(Shared {
            bytes_per_sec: AtomicU64::new(bytes_per_sec),
            refill_period,
            fairness,
            state: Mutex::default(),
            through: Default::default(),
        }))
    }

    /// Creates an auto-tuned limiter: its rate follows demand between a twentieth of
    /// `max_bytes_per_sec` and that maximum. It starts at half.
    ///
    /// # Panics
    /// If an argument is 0.
    pub fn auto_tuned(max_bytes_per_sec: u64, refill_period: Duration, fairness: u64) -> Self {
        assert!(max_bytes_per_sec > 0, "a rate limiter has a rate");
        let limiter = Self::with_periods((max_bytes_per_sec / 2).max(1), refill_period, fairness);
        limiter.0.state.lock().tuning = Some(Tuning { max_bytes_per_sec, since: None, drained: 0 });
        limiter
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_sec(&self) -> u64 {
        self.0.bytes_per_sec.load(Ordering::Relaxed)
    }

    /// Changes the rate, from the next period on.
    ///
    /// # Panics
    /// If `bytes_per_sec` is 0.
    pub fn set_bytes_per_sec(&self, bytes_per_sec: u64) {
        assert!(bytes_per_sec > 0, "a rate limiter has a rate");
        self.0.bytes_per_sec.store(bytes_per_sec, Ordering::Relaxed);
    }

    /// Returns the bytes requested so far, of one priority or of all.
    pub fn total_bytes_through(&self, priority: Option<IoPriority>) -> u64 {
        self.sum(priority, |through| &through.bytes)
    }

    /// Returns the number of requests so far, of one priority or of all.
    pub fn total_requests(&self, priority: Option<IoPriority>) -> u64 {
        self.sum(priority, |through| &through.requests)
    }

    fn sum(&self, priority: Option<IoPriority>, of: impl Fn(&Through) -> &AtomicU64) -> u64 {
        let chosen = IoPriority::ALL.iter().filter(|p| priority.is_none_or(|only| only == **p));
        chosen.map(|p| of(&self.0.through[*p as usize]).load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of bytes granted in one period.
    pub fn single_burst_bytes(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_sec()) * self.0.refill_period.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    /// Waits until `bytes` may be written. A request larger than one period's bytes takes several
    /// periods. Dropping the future cancels the rest of the request.
    pub async fn request(&self, env: &Env, bytes: u64, priority: IoPriority) {
        self.wait_for(env, bytes, priority).await;
    }

    /// Does the same as `request`; returns how often it waited for a period to end.
    #[doc(hidden)]
    pub async fn wait_for(&self, env: &Env, bytes: u64, priority: IoPriority) -> u64 {
        let mut waits = 0;
        if bytes == 0 {
            return waits;
        }
        let through = &self.0.through[priority as usize];
        through.requests.fetch_add(1, Ordering::Relaxed);
        through.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some(queued) = self.enqueue(env.now(), bytes, priority) else { return waits };
        while let Some(wait) = queued.left_to_wait(env.now()) {
            waits += 1;
            karst_io::sleep(env, wait).await;
        }
        waits
    }

    /// Takes the available bytes; returns a queued request if they do not suffice.
    fn enqueue(&self, now: Duration, bytes: u64, priority: IoPriority) -> Option<Queued<'_>> {
        let mut state = self.0.state.lock();
        let tuned = state.tuning.as_mut();
        if let Some(rate) =
            tuned.and_then(|tuning| tuning.rate(now, self.0.refill_period, self.bytes_per_sec()))
        {
            self.set_bytes_per_sec(rate);
        }
        self.refill(&mut state, now);
        let nobody_waits = state.queues.iter().all(VecDeque::is_empty);
        let taken = if nobody_waits { bytes.min(state.available) } else { 0 };
        state.available -= taken;
        if taken == bytes {
            return None;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queues[priority as usize].push_back(Request { ticket, left: bytes - taken });
        Some(Queued { limiter: self, ticket, priority })
    }

    /// Starts a new period if it is due, and grants its bytes to queued requests.
    fn refill(&self, state: &mut State, now: Duration) {
        let period = self.0.refill_period;
        let next = *state.next_refill.get_or_insert(now);
        // The second test handles a limiter shared by environments with unrelated clocks.
        if now < next && next - now <= period {
            return;
        }
        state.next_refill = Some(now + period);
        if state.queues.iter().any(|queue| !queue.is_empty())
            && let Some(tuning) = &mut state.tuning
        {
            tuning.drained += 1;
        }
        state.refills += 1;
        // Replaces the remainder because idle periods accumulate no credit.
        state.available = self.single_burst_bytes();
        let low_first = state.refills.is_multiple_of(self.0.fairness);
        let mut order = IoPriority::ALL;
        if !low_first {
            order.reverse();
        }
        for priority in order {
            let queue = &mut state.queues[priority as usize];
            while let Some(first) = queue.front_mut().filter(|_| state.available > 0) {
                let granted = first.left.min(state.available);
                first.left -= granted;
                state.available -= granted;
                if first.left == 0 {
                    queue.pop_front();
                }
            }
        }
    }
}

/// A queued request; dropping it removes it from its queue.
struct Queued<'a> {
    limiter: &'a RateLimiter,
    ticket: u64,
    priority: IoPriority,
}

impl Queued<'_> {
    /// Returns the time until the next refill; `None` once the request is granted.
    fn left_to_wait(&self, now: Duration) -> Option<Duration> {
        let mut state = self.limiter.0.state.lock();
        self.limiter.refill(&mut state, now);
        let waits = state.queues[self.priority as usize].iter().any(|r| r.ticket == self.ticket);
        let next = state.next_refill.unwrap_or(now);
        waits.then(|| next.saturating_sub(now).max(Duration::from_micros(1)))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.0.state.lock();
        state.queues[self.priority as usize].retain(|r| r.ticket != self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    #[test]
    fn a_period_lets_its_bytes_through_and_no_more() {
        let limiter = RateLimiter::new(1_000);
        let now = Duration::from_secs(1);
        assert!(limiter.enqueue(now, 60, IoPriority::Low).is_none());
        let late = limiter.enqueue(now, 140, IoPriority::Low).unwrap();
        assert_eq!(late.left_to_wait(now), Some(PERIOD));
        // The first period granted forty bytes; the second has exactly enough for the rest.
        assert_eq!(late.left_to_wait(now + PERIOD), None);
        let next = limiter.enqueue(now + PERIOD, 1, IoPriority::High).unwrap();
        assert!(next.left_to_wait(now + PERIOD).is_some());
        assert_eq!(next.left_to_wait(now + 2 * PERIOD), None);
    }

    #[test]
    fn flushes_go_before_compactions_but_not_always() {
        let limiter = RateLimiter::with_periods(1_000, PERIOD, 3);
        let mut now = Duration::from_secs(1);
        assert!(limiter.enqueue(now, 100, IoPriority::Low).is_none());
        let low: Vec<_> = (0..3).filter_map(|_| limiter.enqueue(now, 100, IoPriority::Low)).collect();
        let high: Vec<_> = (0..3).filter_map(|_| limiter.enqueue(now, 100, IoPriority::High)).collect();
        assert_eq!((low.len(), high.len()), (3, 3));
        let mut order = Vec::new();
        for _ in 0..6 {
            now += PERIOD;
            let granted =
                |queued: &[Queued<'_>]| queued.iter().filter(|q| q.left_to_wait(now).is_none()).count();
            order.push((granted(&low), granted(&high)));
        }
        // The first period was the first refill, so lower priorities go first in the third.
        assert_eq!(order, [(0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn a_limiter_that_tunes_itself_follows_what_is_asked_for() {
        let limiter = RateLimiter::auto_tuned(100_000, PERIOD, 10);
        let mut now = Duration::from_secs(1);
        let mut rates = vec![limiter.bytes_per_sec()];
        // Number of the next 100 periods whose demand exceeds them.
        for too_short in [95, 95, 70, 10, 10, 0, 100] {
            for period in 0..100 {
                let bytes = if period < too_short { limiter.single_burst_bytes() + 1 } else { 1 };
                let queued = limiter.enqueue(now, bytes, IoPriority::Low);
                now += PERIOD;
                if let Some(queued) = queued {
                    assert_eq!(queued.left_to_wait(now), None);
                }
            }
            drop(limiter.enqueue(now, 0, IoPriority::Low));
            rates.push(limiter.bytes_per_sec());
        }
        assert_eq!(rates, [50_000, 52_500, 55_125, 55_125, 52_500, 50_000, 5_000, 5_250]);
        // The rate does not exceed the maximum.
        let limiter = RateLimiter::auto_tuned(102, PERIOD, 10);
        limiter.set_bytes_per_sec(100);
        let queued = limiter.enqueue(Duration::ZERO, u64::MAX, IoPriority::Low);
        for period in 1..=100 {
            queued.as_ref().unwrap().left_to_wait(PERIOD * period);
        }
        drop(limiter.enqueue(PERIOD * 100, 1, IoPriority::Low));
        assert_eq!(limiter.bytes_per_sec(), 102);
    }

    #[test]
    fn who_gives_up_leaves_the_queue() {
        let limiter = RateLimiter::new(1_000);
        let now = Duration::from_secs(1);
        let first = limiter.enqueue(now, 1_000_000, IoPriority::Low).unwrap();
        let second = limiter.enqueue(now, 50, IoPriority::Low).unwrap();
        assert!(second.left_to_wait(now + PERIOD).is_some());
        drop(first);
        assert_eq!(second.left_to_wait(now + 2 * PERIOD), None);
    }

    #[test]
    fn requests_are_counted_by_priority() {
        let env = Env::posix();
        let limiter = RateLimiter::new(1 << 30);
        karst_io::block_on(&env, limiter.request(&env, 70, IoPriority::High));
        karst_io::block_on(&env, limiter.request(&env, 30, IoPriority::Low));
        assert_eq!(limiter.total_bytes_through(None), 100);
        assert_eq!(limiter.total_bytes_through(Some(IoPriority::High)), 70);
        assert_eq!(limiter.total_requests(Some(IoPriority::Low)), 1);
    }
}
