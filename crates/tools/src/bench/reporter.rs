//! `--report_interval_seconds`: operations a second of all threads together, written to a file
//! while a workload runs; and what else is said at intervals.
//!
//! In: counts that each thread adds. Out: `secs_elapsed,interval_qps` and one line an interval in
//! `--report_file`, as db_bench writes them: operations of the interval, not divided by its length.
//! The threads share one counter for it, so it is there only when asked for.

use super::flags::Flags;
use crate::output::note;
use karst_engine::Db;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a thread does beside counting its own operations.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    /// Where operations of all threads are counted.
    pub(crate) counter: Option<Arc<AtomicU64>>,
    /// Whose statistics the first thread shows whenever it reports progress.
    pub(crate) stats_of: Option<Db>,
}

/// Writes the file until it is dropped.
pub(crate) struct Reporter {
    counter: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// `None` unless the flags ask for it. Begins the file anew.
    pub(crate) fn start(flags: &Flags) -> Result<Option<Reporter>, String> {
        let Ok(seconds @ 1..) = u64::try_from(flags.report_interval_seconds) else { return Ok(None) };
        let name = flags.report_file.clone();
        let failed = move |e: std::io::Error| format!("flag --report_file: {name}: {e}");
        let mut file = File::create(&flags.report_file).map_err(&failed)?;
        file.write_all(b"secs_elapsed,interval_qps\n").map_err(&failed)?;
        let counter = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = channel();
        let theirs = counter.clone();
        let thread = std::thread::spawn(move || {
            let started = Instant::now();
            let mut before = 0;
            while stopped.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
                let done = theirs.load(Ordering::Relaxed);
                let elapsed = started.elapsed().as_secs_f64().round();
                if let Err(e) = writeln!(file, "{elapsed},{}", done - before) {
                    note!("karst bench: {}; no more is reported", failed(e));
                    return;
                }
                before = done;
            }
        });
        Ok(Some(Reporter { counter, stop: Some(stop), thread: Some(thread) }))
    }

    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.counter.clone()
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Why ignored: a panic of it has been printed, and changes nothing of what was
            // measured.
            let _ = thread.join();
        }
    }
}
