//! Periodic statistics: in the LOG file, and in memory.

use super::Db;
use crate::properties::{self, StatsSlice};
use std::ops::Range;
use std::sync::Arc;

impl Db {
    /// Starts writing the statistics to the LOG file every `stats_dump_period_sec`, and storing
    /// them every `stats_persist_period_sec`.
    pub(super) fn watch_stats(&self) {
        let Some(write) = &self.0.write else { return };
        let weak = Arc::downgrade(&self.0);
        write.background.on_stats_dump(move || {
            let Some(inner) = weak.upgrade() else { return };
            properties::dump_stats(inner.as_subject());
            // Dropped on another thread, because the last handle closes the database, which waits
            // for the caller of this closure.
            drop(inner.read.env.clone().run_blocking(move |_| drop(inner)));
        });
        let history = self.0.stats_history.clone();
        let read = &self.0.read;
        let (env, options, statistics) = (read.env.clone(), read.db_options.clone(), read.statistics.clone());
        write.background.on_stats_kept(move || {
            history.look(&statistics, env.unix_time().as_secs(), options.get().stats_history_buffer_size);
        });
    }

    /// Returns the increase of each counter of [`Db::statistics`] in each
    /// `stats_persist_period_sec` that ended in `times_s`, in seconds since 1970; oldest first. The
    /// oldest slices are discarded beyond `stats_history_buffer_size` bytes of memory. Databases
    /// that are open for reading only or have no statistics store none.
    pub fn stats_history(&self, times_s: Range<u64>) -> Vec<StatsSlice> {
        self.0.stats_history.slices(times_s)
    }
}
