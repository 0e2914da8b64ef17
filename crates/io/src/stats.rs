//! Counters of an environment's reads and writes, and gauges that leak tests compare with zero.
//!
//! Each channel has its own [`Counters`], written by its own thread, because counting then needs no
//! shared cache line; the environment adds them up when asked. Sums of channels that have ended are
//! kept.

use crate::sync::Mutex;
use crate::sync::counting::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

/// A sum over all channels of an environment at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IoStats {
    /// Reads started, without joined ones.
    pub reads: u64,
    /// Writes, syncs and reservations started by [`write_at`](crate::write_at) and its like, except
    /// those with blocking calls.
    pub writes: u64,
    /// Bytes that reads returned, counted once for all reads joined on one channel.
    pub bytes: u64,
    /// Reads that found an identical one in flight and shared it.
    pub joined: u64,
    /// Joined reads whose owner is another channel: of another thread, of a reactor or of the
    /// driver.
    pub joined_elsewhere: u64,
    /// Reads joined elsewhere that were done here after all, because the other channel was no
    /// longer polled.
    pub left: u64,
    /// Operations whose last waiter went away before they completed.
    pub abandoned: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Number of continuations of short or interrupted operations.
    pub continued: u64,
    /// Number of times that queued reads were handed to the kernel or to the threads.
    pub submits: u64,
    /// Gauge: operations in the kernel, on a thread or in a soft file.
    pub in_flight: i64,
    /// Gauge: operations that exist: waiting, in flight, or done and not yet fetched.
    pub slots_in_use: i64,
    /// Gauge: buffers held by reads in flight and by [`crate::ReadBuf`]s.
    pub buffers_out: i64,
    /// Gauge: bytes of memory that channels have allocated for reads, used or not.
    pub buffer_bytes: i64,
}

impl IoStats {
    fn add(&mut self, c: &Counters) {
        let read = |a: &AtomicU64| a.load(Ordering::Relaxed);
        self.reads += read(&c.reads);
        self.writes += read(&c.writes);
        self.bytes += read(&c.bytes);
        self.joined += read(&c.joined);
        self.joined_elsewhere += read(&c.joined_elsewhere);
        self.left += read(&c.left);
        self.abandoned += read(&c.abandoned);
        self.errors += read(&c.errors);
        self.continued += read(&c.continued);
        self.submits += read(&c.submits);
        self.in_flight += c.in_flight.load(Ordering::Relaxed);
        self.slots_in_use += c.slots_in_use.load(Ordering::Relaxed);
        self.buffers_out += c.buffers_out.load(Ordering::Relaxed);
        self.buffer_bytes += c.buffer_bytes.load(Ordering::Relaxed);
    }

    pub(crate) fn of(counters: &Counters) -> Self {
        let mut stats = Self::default();
        stats.add(counters);
        stats
    }

    /// Returns true if no operation is in flight or waiting and no buffer is held.
    pub fn is_quiescent(&self) -> bool {
        self.in_flight == 0 && self.slots_in_use == 0 && self.buffers_out == 0
    }
}

/// One channel's counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) joined_elsewhere: AtomicU64,
    pub(crate) left: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) continued: AtomicU64,
    pub(crate) submits: AtomicU64,
    pub(crate) in_flight: AtomicI64,
    pub(crate) slots_in_use: AtomicI64,
    buffers_out: AtomicI64,
    buffer_bytes: AtomicI64,
}

impl Counters {
    /// Adds to a counter that only the channel's thread writes: a plain load and store, without a
    /// locked instruction.
    pub(crate) fn bump(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// Adds to a gauge like [`Counters::bump`].
    pub(crate) fn shift(gauge: &AtomicI64, by: i64) {
        gauge.store(gauge.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    pub(crate) fn buffer_taken(&self) {
        self.buffers_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn buffer_returned(&self) {
        self.buffers_out.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn memory_got(&self, bytes: usize) {
        self.buffer_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    pub(crate) fn memory_given_back(&self, bytes: usize) {
        self.buffer_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

/// The counters of all channels of an environment.
#[derive(Debug, Default)]
pub(crate) struct CounterSet {
    channels: Mutex<Vec<Arc<Counters>>>,
    gone: Counters,
}

impl CounterSet {
    pub(crate) fn add_channel(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut channels = self.channels.lock();
        // Counters without another holder cannot change any more. Buffers hold theirs.
        channels.retain(|c| {
            let held = Arc::strong_count(c) > 1;
            if !held {
                self.gone.absorb(c);
            }
            held
        });
        channels.push(counters.clone());
        counters
    }

    pub(crate) fn sum(&self) -> IoStats {
        let channels = self.channels.lock();
        let mut sum = IoStats::default();
        sum.add(&self.gone);
        channels.iter().for_each(|c| sum.add(c));
        sum
    }
}

impl Counters {
    fn absorb(&self, other: &Self) {
        let pairs = [
            (&self.reads, &other.reads),
            (&self.writes, &other.writes),
            (&self.bytes, &other.bytes),
            (&self.joined, &other.joined),
            (&self.joined_elsewhere, &other.joined_elsewhere),
            (&self.left, &other.left),
            (&self.abandoned, &other.abandoned),
            (&self.errors, &other.errors),
            (&self.continued, &other.continued),
            (&self.submits, &other.submits),
        ];
        for (to, from) in pairs {
            Self::bump(to, from.load(Ordering::Relaxed));
        }
        let gauges = [
            (&self.in_flight, &other.in_flight),
            (&self.slots_in_use, &other.slots_in_use),
            (&self.buffers_out, &other.buffers_out),
            (&self.buffer_bytes, &other.buffer_bytes),
        ];
        for (to, from) in gauges {
            Self::shift(to, from.load(Ordering::Relaxed));
        }
    }
}
