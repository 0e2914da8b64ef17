//! `--report_interval_seconds`: operations of all threads per interval, written to a file while a
//! workload runs; and other periodic output.
//!
//! Input: counts that each thread adds. Output: `secs_elapsed,interval_qps` and one line per
//! interval in `--report_file`, like db_bench's: operations of the interval, not divided by its
//! length. The threads share one counter for it, so it exists only if the flag is given.

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

/// Tasks of a thread other than counting its own operations.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    /// Counter of the operations of all threads.
    pub(crate) counter: Option<Arc<AtomicU64>>,
    /// Database whose statistics the first thread prints with each report of progress.
    pub(crate) stats_of: Option<Db>,
}

/// Writes the file until it is dropped.
pub(crate) struct Reporter {
    counter: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Truncates the file and starts. Returns `None` unless the flags ask for it.
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
                    note!("karstdb bench: {}; the report ends here", failed(e));
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
            // A panic of the thread is ignored, because it has been printed and does not affect the
            // measurements.
            let _ = thread.join();
        }
    }
}
