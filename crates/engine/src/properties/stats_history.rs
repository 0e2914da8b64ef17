//! Statistics history (`stats_persist_period_sec`): the increase of each counter per period.
//!
//! In: the counters, every period. Out: slices with their times; the oldest are dropped when all
//! together exceed `stats_history_buffer_size`.
//!
//! Compat: the first sample is the base of the first slice. Kept in memory only, regardless of
//! `persist_stats_to_disk`.

use karst_base::stats::{Statistics, StatsLevel, Ticker};
use karst_base::sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Increase of the counters in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsSlice {
    /// End of the period, in seconds since 1970.
    pub time_s: u64,
    /// Increase of each counter, by RocksDB's name.
    pub tickers: BTreeMap<&'static str, u64>,
}

impl StatsSlice {
    /// Approximate memory of the slice, in bytes.
    ///
    /// Compat: RocksDB counts a name and a number for each counter.
    fn bytes(&self) -> usize {
        size_of::<u64>() + self.tickers.keys().map(|name| name.len() + size_of::<u64>()).sum::<usize>()
    }
}

/// The slices of a database.
#[derive(Debug, Default)]
pub(crate) struct StatsHistory(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The counters at the last sample.
    last: Option<Vec<u64>>,
    slices: VecDeque<StatsSlice>,
    bytes: usize,
}

impl StatsHistory {
    /// Takes a sample at `now_s`, and drops the oldest slices beyond `most_bytes`.
    pub(crate) fn look(&self, statistics: &Statistics, now_s: u64, most_bytes: usize) {
        if statistics.level() == StatsLevel::DisableAll {
            return;
        }
        let now: Vec<u64> = Ticker::all().map(|ticker| statistics.ticker(ticker)).collect();
        let mut kept = self.0.lock();
        let last = kept.last.replace(now.clone());
        if let Some(last) = last {
            let grown = now.iter().zip(&last).map(|(now, last)| now.saturating_sub(*last));
            let tickers = Ticker::all().map(Ticker::name).zip(grown).collect();
            let slice = StatsSlice { time_s: now_s, tickers };
            kept.bytes += slice.bytes();
            kept.slices.push_back(slice);
        }
        while kept.bytes > most_bytes
            && let Some(oldest) = kept.slices.pop_front()
        {
            kept.bytes -= oldest.bytes();
        }
    }

    /// Returns the slices with times in `times_s`, oldest first.
    pub(crate) fn slices(&self, times_s: Range<u64>) -> Vec<StatsSlice> {
        let kept = self.0.lock();
        kept.slices.iter().filter(|slice| times_s.contains(&slice.time_s)).cloned().collect()
    }
}
