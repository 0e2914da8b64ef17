//! The load: the same keys and values for every engine, open- and closed-loop, on any number of
//! threads, written in batches to any [`Target`].

use super::store::Durability;
pub(super) use karst_testkit::dataset::db_bench_key as key;
use karst_testkit::latency::{Latencies, Pace};
use karst_testkit::random::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const KEY_BYTES: usize = 16;

/// A store that a load is written to.
pub(super) trait Target: Sync {
    type Writer<'a>: BatchWriter
    where
        Self: 'a;

    /// Returns the batch writer of one worker.
    fn writer(&self, worker: usize, durability: Durability) -> Self::Writer<'_>;
}

/// Makes batches and writes them.
pub(super) trait BatchWriter {
    /// Adds a put to the batch.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String>;
    /// Writes the batch and clears it.
    fn commit(&mut self) -> Result<(), String>;
}

/// Workers are spread over the targets by their numbers.
impl<T: Target> Target for Vec<T> {
    type Writer<'a>
        = T::Writer<'a>
    where
        T: 'a;

    fn writer(&self, worker: usize, durability: Durability) -> T::Writer<'_> {
        self[worker % self.len()].writer(worker, durability)
    }
}

/// Distribution of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Each worker counts up in its own range.
    Sequential,
    /// Uniform from this number of keys.
    Random(u64),
}

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) keys: Keys,
    pub(super) value_bytes: usize,
    pub(super) batch: u64,
    pub(super) writers: usize,
    pub(super) durability: Durability,
    pub(super) end: End,
    /// Keys per second of all writers together; latencies then start when a write was due, not when
    /// it began.
    pub(super) pace: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Duration in seconds.
    Seconds(f64),
    /// Number of keys that each writer writes.
    Keys(u64),
}

/// Results of a load.
pub(super) struct Outcome {
    pub(super) keys: u64,
    pub(super) seconds: f64,
    pub(super) latencies: Latencies,
    /// Share of the workers' time spent neither running nor waiting for a processor.
    pub(super) blocked: f64,
}

/// Measurements of one worker.
struct Worked {
    latencies: Latencies,
    blocked_ns: f64,
    wall_ns: f64,
}

/// Time that this thread has run or waited for a processor, in nanoseconds.
pub(super) fn runnable_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// db_bench's values: pieces of 100 bytes whose second half repeats the first.
pub(super) fn pool() -> Vec<u8> {
    let mut random = Random::new(301);
    let mut pool = Vec::with_capacity(1 << 20);
    while pool.len() < 1 << 20 {
        let half = random.bytes(50);
        pool.extend_from_slice(&half);
        pool.extend_from_slice(&half);
    }
    pool
}

impl Load {
    /// Writes the load to `target` until its end.
    pub(super) fn run<T: Target>(&self, target: &T) -> Result<Outcome, String> {
        self.run_until(target, &AtomicBool::new(false))
    }

    /// Writes the load to `target` until its end or until `stop` is set.
    pub(super) fn run_until<T: Target>(&self, target: &T, stop: &AtomicBool) -> Result<Outcome, String> {
        let (pool, total) = (pool(), AtomicU64::new(0));
        let start = Instant::now();
        let results: Vec<Result<Worked, String>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.writers)
                .map(|worker| {
                    let (pool, total) = (&pool, &total);
                    scope.spawn(move || self.write(target, worker, pool, start, stop, total))
                })
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|_| Err("a writer panicked".into())))
                .collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let mut latencies = Latencies::new();
        let (mut blocked, mut wall) = (0.0, 0.0);
        for result in results {
            let worked = result?;
            latencies.merge(&worked.latencies);
            blocked += worked.blocked_ns;
            wall += worked.wall_ns;
        }
        Ok(Outcome { keys: total.into_inner(), seconds, latencies, blocked: blocked / wall })
    }

    fn write<T: Target>(
        &self,
        target: &T,
        worker: usize,
        pool: &[u8],
        start: Instant,
        stop: &AtomicBool,
        total: &AtomicU64,
    ) -> Result<Worked, String> {
        let (began, runnable) = (Instant::now(), runnable_ns());
        let mut random = Random::new(worker as u64 * 7919 + 17);
        let mut writer = target.writer(worker, self.durability);
        let mut latencies = Latencies::new();
        let (mut at, mut done) = (worker * 4096 % pool.len(), 0_u64);
        let first = (worker as u64) << 40;
        let step = |rate| Duration::from_secs_f64(self.batch as f64 * self.writers as f64 / rate);
        let mut pace = self.pace.map(|rate| Pace::new(step(rate)));
        loop {
            let over = match self.end {
                End::Seconds(seconds) => start.elapsed().as_secs_f64() >= seconds,
                End::Keys(keys) => done >= keys,
            };
            if over || stop.load(Ordering::Relaxed) {
                break;
            }
            for _ in 0..self.batch {
                let number = match self.keys {
                    Keys::Sequential => first + done,
                    Keys::Random(of) => random.below(of),
                };
                done += 1;
                if at + self.value_bytes > pool.len() {
                    at = 0;
                }
                writer.put(&key(number), &pool[at..at + self.value_bytes])?;
                at += self.value_bytes;
            }
            let from = pace.as_mut().map_or_else(Instant::now, Pace::wait);
            writer.commit()?;
            latencies.add(from.elapsed().as_nanos() as u64);
        }
        total.fetch_add(done, Ordering::Relaxed);
        let wall_ns = began.elapsed().as_nanos() as f64;
        let blocked_ns = (wall_ns - (runnable_ns() - runnable)).max(0.0);
        Ok(Worked { latencies, blocked_ns, wall_ns })
    }
}
