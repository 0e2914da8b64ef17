//! Counts of a workload's threads, and the result lines of db_bench.
//!
//! Each thread owns an [`Ops`]; nothing is shared while a workload runs. [`Totals::print`] merges
//! them into db_bench's result line, followed by this process's CPU time, which db_bench does not
//! print.

use super::flags::Flags;
use super::reporter::Watch;
use crate::output::{Fault, is_watched, note, say, to_stderr};
use karst_engine::stats::Histogram;
use karst_engine::stats::{HistogramKind, Statistics, Ticker};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Kind of an operation, for the histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read,
    Write,
    Delete,
    Seek,
    Merge,
    Update,
    /// Any other operation, such as a transaction.
    Other,
}

/// db_bench's names of the kinds, in their order.
const KIND_NAMES: [&str; 7] = ["read", "write", "delete", "seek", "merge", "update", "op"];

/// Counts of one thread.
pub(crate) struct Ops {
    thread: i32,
    start: Instant,
    finish: Instant,
    last_op: Instant,
    last_report: (Instant, u64),
    next_report: u64,
    pub(crate) done: u64,
    pub(crate) bytes: u64,
    pub(crate) found: u64,
    pub(crate) read: u64,
    /// Transactions that conflicted with another one and did not commit.
    pub(crate) aborts: u64,
    /// Text for the result line.
    pub(crate) message: String,
    /// True for a background thread, whose counts are not part of the result.
    pub(crate) aside: bool,
    /// By kind; empty without histograms.
    latencies_us: Vec<Histogram>,
    progress: Progress,
    watch: Watch,
}

/// Returns true if a flag of progress was given, so that progress is reported even if standard
/// error is not a terminal.
fn is_asked_for(flags: &Flags) -> bool {
    ["progress_reports", "stats_interval", "stats_interval_seconds", "stats_per_interval"]
        .iter()
        .any(|name| flags.given.contains(name))
}

#[derive(Clone, Copy)]
struct Progress {
    shown: bool,
    /// Total number of the thread's operations, if it is known.
    total: Option<u64>,
    every_ops: u64,
    every: Duration,
}

impl Ops {
    pub(crate) fn new(flags: &Flags, thread: i32) -> Ops {
        let now = Instant::now();
        let every_ops = flags.stats_interval.max(0) as u64;
        Ops {
            thread,
            start: now,
            finish: now,
            last_op: now,
            last_report: (now, 0),
            next_report: if every_ops > 0 { every_ops } else { 100 },
            done: 0,
            bytes: 0,
            found: 0,
            read: 0,
            aborts: 0,
            message: String::new(),
            aside: false,
            latencies_us: if flags.histogram {
                KIND_NAMES.iter().map(|_| Histogram::new()).collect()
            } else {
                Vec::new()
            },
            progress: Progress {
                shown: flags.progress_reports && (is_asked_for(flags) || is_watched()),
                total: None,
                every_ops,
                every: Duration::from_secs(flags.stats_interval_seconds.max(0) as u64),
            },
            watch: Watch::default(),
        }
    }

    /// Sets the thread's tasks other than counting.
    pub(crate) fn watched_by(&mut self, watch: &Watch) {
        self.watch = watch.clone();
    }

    /// Sets the total number of operations.
    pub(crate) fn expect(&mut self, total: u64) {
        self.progress.total = Some(total);
    }

    /// Excludes the time since the last operation from the next one.
    pub(crate) fn restart_operation(&mut self) {
        if !self.latencies_us.is_empty() {
            self.last_op = Instant::now();
        }
    }

    /// Counts `count` operations of a kind that end now.
    pub(crate) fn finished(&mut self, kind: OpKind, count: u64) {
        if let Some(histogram) = self.latencies_us.get_mut(kind as usize) {
            let now = Instant::now();
            histogram.add((now - self.last_op).as_micros() as u64);
            self.last_op = now;
        }
        self.done += count;
        if let Some(counter) = &self.watch.counter {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        if self.done >= self.next_report && self.progress.shown {
            self.show_progress();
        }
    }

    #[cold]
    fn show_progress(&mut self) {
        if self.progress.every_ops == 0 {
            // The steps grow with the count: one and a half digits of precision.
            let magnitude = 10u64.pow(self.next_report.ilog10());
            self.next_report +=
                if self.next_report / magnitude < 5 { magnitude / 2 } else { magnitude }.clamp(100, 100_000);
            to_stderr(format_args!("... finished {} ops{:50}\r", self.done, self.outlook()));
            return;
        }
        self.next_report += self.progress.every_ops;
        let now = Instant::now();
        let (since, done_then) = self.last_report;
        if now - since < self.progress.every {
            return;
        }
        let (step, all) = ((now - since).as_secs_f64(), (now - self.start).as_secs_f64());
        note!(
            "... thread {}: ({},{}) ops and ({:.1},{:.1}) ops/second in ({step:.6},{all:.6}) seconds",
            self.thread,
            self.done - done_then,
            self.done,
            (self.done - done_then) as f64 / step,
            self.done as f64 / all,
        );
        self.last_report = (now, self.done);
        if let Some(db) = self.watch.stats_of.as_ref().filter(|_| self.thread == 0) {
            note!("{}", db.property("rocksdb.stats").unwrap_or_default());
        }
    }

    /// Returns, for long loads, text such as ", 5 % of 20000000 at 312345 a second, 61 s left".
    fn outlook(&self) -> String {
        let elapsed = self.start.elapsed().as_secs_f64();
        match self.progress.total.filter(|total| *total >= 100_000 && *total > self.done) {
            Some(total) if elapsed > 0.0 => {
                let rate = self.done as f64 / elapsed;
                let left = (total - self.done) as f64 / rate;
                format!(", {} % of {total} at {rate:.0} a second, {left:.0} s left", self.done * 100 / total)
            }
            _ => String::new(),
        }
    }

    pub(crate) fn stop(&mut self) {
        self.finish = Instant::now();
    }
}

/// End of a thread's loop: after `--duration`, checked every `check_every` operations, else after
/// `max_ops`.
pub(crate) struct Until {
    deadline: Option<Instant>,
    check_every: u64,
    max_ops: u64,
    ops: u64,
}

impl Until {
    pub(crate) fn new(flags: &Flags, max_ops: u64) -> Until {
        let deadline =
            (flags.duration > 0).then(|| Instant::now() + Duration::from_secs(flags.duration as u64));
        Until { deadline, check_every: flags.ops_between_duration_checks as u64, max_ops, ops: 0 }
    }

    /// Ends after `count` operations, ignoring --duration.
    pub(crate) fn operations(count: u64) -> Until {
        Until { deadline: None, check_every: 1, max_ops: count, ops: 0 }
    }

    /// Adds `count` operations. Returns true if they must not be done any more.
    pub(crate) fn done(&mut self, count: u64) -> bool {
        let before = self.ops;
        self.ops += count;
        match self.deadline {
            Some(deadline) => {
                self.ops / self.check_every != before / self.check_every && Instant::now() >= deadline
            }
            None => self.ops > self.max_ops,
        }
    }

    /// Returns the total number of operations, if no deadline ends the loop.
    pub(crate) fn total(&self) -> Option<u64> {
        self.deadline.is_none().then_some(self.max_ops)
    }
}

/// CPU time of this process, all of its threads and the kernel threads working for it included, in
/// microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) user: i64,
    pub(crate) system: i64,
}

impl Cpu {
    pub(crate) fn so_far() -> Cpu {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
        let (user, system) = (usage.user_time(), usage.system_time());
        Cpu { user: user.num_microseconds(), system: system.num_microseconds() }
    }

    fn since(before: Cpu) -> Cpu {
        let now = Cpu::so_far();
        Cpu { user: now.user - before.user, system: now.system - before.system }
    }

    fn micros(self) -> f64 {
        (self.user + self.system) as f64
    }
}

/// Merged counts of all threads of one workload.
pub(crate) struct Totals {
    ops: Ops,
    thread_seconds: f64,
    cpu: Cpu,
    message: String,
}

impl Totals {
    /// Merges the counts. `cpu_before` is the CPU time before the first thread started.
    pub(crate) fn merge(threads: Vec<Ops>, cpu_before: Cpu, message: String) -> Totals {
        let cpu = Cpu::since(cpu_before);
        let mut message = message;
        let mut threads = threads.into_iter().filter(|ops| !ops.aside);
        let mut all = threads.next().expect("at least one thread");
        let mut thread_seconds = (all.finish - all.start).as_secs_f64();
        append(&mut message, &all.message);
        for t in threads {
            append(&mut message, &t.message);
            thread_seconds += (t.finish - t.start).as_secs_f64();
            all.start = all.start.min(t.start);
            all.finish = all.finish.max(t.finish);
            all.done += t.done;
            all.bytes += t.bytes;
            all.found += t.found;
            all.read += t.read;
            for (all, one) in all.latencies_us.iter_mut().zip(&t.latencies_us) {
                all.merge(one);
            }
        }
        Totals { ops: all, thread_seconds, cpu, message }
    }

    pub(crate) fn ops_per_second(&self) -> f64 {
        self.ops.done.max(1) as f64 / self.elapsed()
    }

    fn elapsed(&self) -> f64 {
        (self.ops.finish - self.ops.start).as_secs_f64().max(1e-9)
    }

    /// Prints the result line in db_bench's format, then CPU time and histogram if enabled; or all
    /// of it as JSON.
    pub(crate) fn print(&self, name: &str, flags: &Flags) -> Result<(), Fault> {
        if flags.json {
            return say!("{}", self.json(name, flags));
        }
        let done = self.ops.done.max(1);
        let elapsed = self.elapsed();
        let mut extra = String::new();
        if self.ops.bytes > 0 {
            extra = format!(" {:6.1} MB/s", self.ops.bytes as f64 / 1_048_576.0 / elapsed);
        }
        if !self.message.is_empty() {
            extra.push(' ');
            extra.push_str(&self.message);
        }
        say!(
            "{name:<12} : {:11.3} micros/op {} ops/sec {elapsed:.3} seconds {done} operations;{extra}",
            self.thread_seconds * 1e6 / done as f64,
            self.ops_per_second() as u64,
        )?;
        if flags.cpu {
            say!(
                "{:<12}   {:11.3} micros CPU/op ({:.3} s user, {:.3} s system)",
                "",
                self.cpu.micros() / done as f64,
                self.cpu.user as f64 / 1e6,
                self.cpu.system as f64 / 1e6,
            )?;
        }
        for (kind, histogram) in KIND_NAMES.iter().zip(&self.ops.latencies_us) {
            if histogram.count() > 0 {
                say!("Microseconds per {kind}:\n{histogram}")?;
            }
        }
        Ok(())
    }

    fn json(&self, name: &str, flags: &Flags) -> Value {
        let (done, elapsed) = (self.ops.done, self.elapsed());
        let per_op = |micros: f64| micros / done.max(1) as f64;
        let kinds = KIND_NAMES.iter().zip(&self.ops.latencies_us);
        let latencies: Map<String, Value> = kinds
            .filter(|(_, histogram)| histogram.count() > 0)
            .map(|(kind, histogram)| (kind.to_string(), histogram_json(histogram)))
            .collect();
        json!({
            "workload": name,
            "threads": flags.threads,
            "operations": done,
            "seconds": elapsed,
            "ops_per_second": done as f64 / elapsed,
            "micros_per_op": per_op(self.thread_seconds * 1e6),
            "bytes": self.ops.bytes,
            "found": self.ops.found,
            "cpu_user_seconds": self.cpu.user as f64 / 1e6,
            "cpu_system_seconds": self.cpu.system as f64 / 1e6,
            "cpu_micros_per_op": per_op(self.cpu.micros()),
            "latency_micros": latencies,
            "message": self.message,
        })
    }
}

fn histogram_json(histogram: &Histogram) -> Value {
    json!({
        "count": histogram.count(),
        "average": histogram.average(),
        "p50": histogram.percentile(50.0),
        "p99": histogram.percentile(99.0),
        "p99.9": histogram.percentile(99.9),
        "least": histogram.min(),
        "most": histogram.max(),
    })
}

/// Returns the tickers and histograms that are not zero.
pub(crate) fn statistics_json(statistics: &Statistics) -> Value {
    let tickers = Ticker::all().map(|ticker| (ticker.name(), json!(statistics.ticker(ticker))));
    let histograms = HistogramKind::all().map(|kind| (kind.name(), statistics.histogram(kind)));
    let tickers = tickers.filter(|(_, count)| *count != json!(0));
    let histograms = histograms.filter(|(_, all)| all.count() > 0);
    let histograms = histograms.map(|(name, all)| (name, histogram_json(&all)));
    let named = tickers.chain(histograms).map(|(name, value)| (name.to_string(), value));
    json!({ "statistics": named.collect::<Map<String, Value>>() })
}

fn append(message: &mut String, more: &str) {
    if !message.is_empty() && !more.is_empty() {
        message.push(' ');
    }
    message.push_str(more);
}

/// Returns "(found of read found)" in db_bench's format.
pub(crate) fn found_message(threads: &[Ops]) -> String {
    let (found, read) =
        threads.iter().filter(|t| !t.aside).fold((0, 0), |(f, r), t| (f + t.found, r + t.read));
    format!("({found} of {read} found)")
}
