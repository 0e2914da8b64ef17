//! Statistics kept over time (`stats_persist_period_sec`): how much each counter grew in each
//! period.
//!
//! In: the counters, every period. Out: slices with their times, the oldest of which go when all
//! take more than `stats_history_buffer_size`.
//!
//! Compat: the first look is what the first slice is counted from. Kept in memory only, whatever
//! `persist_stats_to_disk` says.

use karst_base::stats::{Statistics, StatsLevel, Ticker};
use karst_base::sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What the counters grew by in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsSlice {
    /// When the period ended, in seconds since 1970.
    pub time_s: u64,
    /// By how much each counter grew, under RocksDB's names.
    pub tickers: BTreeMap<&'static str, u64>,
}

impl StatsSlice {
    /// About how much memory it takes.
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
    /// The counters at the last look.
    last: Option<Vec<u64>>,
    slices: VecDeque<StatsSlice>,
    bytes: usize,
}

impl StatsHistory {
    /// Looks at the counters at `now_s`, and keeps within `most_bytes`.
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

    /// Slices with times in `times_s`, oldest first.
    pub(crate) fn slices(&self, times_s: Range<u64>) -> Vec<StatsSlice> {
        let kept = self.0.lock();
        kept.slices.iter().filter(|slice| times_s.contains(&slice.time_s)).cloned().collect()
    }
}
