//! Cost of one run of a workload (operations, time, CPU, reads), and medians over interleaved
//! repetitions, printed as a Markdown table with ratios.

use super::Settings;
use super::record::{Label, figure};
use super::results::Figure;
use std::time::{Duration, Instant};

/// Measurements of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) operations: f64,
    pub(super) seconds: f64,
    pub(super) user_us: f64,
    pub(super) system_us: f64,
    /// Voluntary context switches.
    pub(super) switches: f64,
    /// System calls that write, of all threads.
    pub(super) writes: f64,
    /// Reads from files, or None if this run cannot count them.
    pub(super) reads: Option<f64>,
    /// Bytes that storage delivered, or None if this run cannot count them.
    pub(super) bytes: Option<f64>,
    /// Mean time of one batch, for workloads of batches.
    pub(super) batch_ms: Option<f64>,
}

impl Figures {
    pub(super) fn rate(&self) -> f64 {
        self.operations / self.seconds
    }

    pub(super) fn cpu_us(&self) -> f64 {
        (self.user_us + self.system_us) / self.operations
    }

    /// The figures by the names that the report uses.
    fn named(&self, unit: &str) -> Vec<Figure> {
        let each = |total: Option<f64>| total.map(|total| total / self.operations);
        let several = match unit {
            "MB" => unit.to_string(),
            "batch" => format!("{unit}es"),
            _ => format!("{unit}s"),
        };
        let all = [
            figure(format!("{several}/s"), Some(self.rate())),
            figure(format!("CPU us/{unit}"), Some(self.cpu_us())),
            figure(format!("reads/{unit}"), each(self.reads)),
            figure(format!("bytes/{unit}"), each(self.bytes)),
            figure("batch ms", self.batch_ms),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Measures the cost of a run from [`Meter::start`] to [`Meter::stop`].
pub(super) struct Meter {
    start: Instant,
    usage: (f64, f64),
    switches: f64,
    io: ProcessIo,
}

impl Meter {
    pub(super) fn start() -> Self {
        let io = ProcessIo::now();
        Meter { usage: cpu(), switches: switches(), io, start: Instant::now() }
    }

    /// Starts a meter for the work of a child process, ended by [`Meter::stop_children`].
    pub(super) fn of_children() -> Self {
        Meter { usage: cpu_of(libc::RUSAGE_CHILDREN), ..Meter::start() }
    }

    /// Returns the cost of a child process that counted `operations` in `seconds`. Its CPU time
    /// includes its start.
    pub(super) fn stop_children(self, operations: f64, seconds: f64) -> Figures {
        let (user, system) = cpu_of(libc::RUSAGE_CHILDREN);
        let (user_us, system_us) = (user - self.usage.0, system - self.usage.1);
        Figures { operations, seconds, user_us, system_us, ..Figures::default() }
    }

    /// Returns the cost of `operations`. `reads` counts the process's read system calls, which is
    /// complete for an engine that reads synchronously; an engine with io_uring counts its reads
    /// itself.
    pub(super) fn stop(self, operations: u64) -> Figures {
        let seconds = self.start.elapsed().as_secs_f64();
        let (user, system) = cpu();
        let io = ProcessIo::now();
        Figures {
            operations: operations as f64,
            seconds,
            user_us: user - self.usage.0,
            system_us: system - self.usage.1,
            switches: switches() - self.switches,
            writes: io.writes - self.io.writes,
            reads: Some(io.reads - self.io.reads),
            bytes: Some(io.storage_bytes - self.io.storage_bytes),
            batch_ms: None,
        }
    }
}

/// CPU time of this process in microseconds, user and system, over all threads including the
/// kernel's that work for it.
fn cpu() -> (f64, f64) {
    cpu_of(libc::RUSAGE_SELF)
}

/// Voluntary context switches of this process so far.
fn switches() -> f64 {
    usage_of(libc::RUSAGE_SELF).ru_nvcsw as f64
}

fn usage_of(who: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and the call writes within it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    }
}

fn cpu_of(who: libc::c_int) -> (f64, f64) {
    let usage = usage_of(who);
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    (us(usage.ru_utime), us(usage.ru_stime))
}

/// I/O counters of this process since its start.
struct ProcessIo {
    /// System calls.
    reads: f64,
    writes: f64,
    /// Bytes read from storage.
    storage_bytes: f64,
}

impl ProcessIo {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        ProcessIo { reads: field("syscr:"), writes: field("syscw:"), storage_bytes: field("read_bytes:") }
    }
}

/// A deadline shared by the workers of one run.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(seconds: f64) -> Self {
        Deadline(Instant::now() + Duration::from_secs_f64(seconds))
    }

    pub(super) fn passed(self) -> bool {
        Instant::now() >= self.0
    }
}

type Prepare<'a> = Box<dyn FnMut() -> Result<(), String> + 'a>;
type Run<'a> = Box<dyn FnMut() -> Result<Figures, String> + 'a>;

/// One workload, run by several engines.
pub(super) struct Section<'a> {
    title: String,
    /// Name in the report, if it is not the title.
    workload: Option<String>,
    unit: &'static str,
    before: Prepare<'a>,
    entries: Vec<(Label, Run<'a>)>,
}

impl<'a> Section<'a> {
    pub(super) fn new(title: impl Into<String>, unit: &'static str) -> Self {
        Section {
            title: title.into(),
            workload: None,
            unit,
            before: Box::new(|| Ok(())),
            entries: Vec::new(),
        }
    }

    /// Sets the workload name, under which the report joins several sections.
    pub(super) fn part_of(&mut self, workload: impl Into<String>) {
        self.workload = Some(workload.into());
    }

    /// Sets the unmeasured preparation of each run.
    pub(super) fn before_each(&mut self, prepare: impl FnMut() -> Result<(), String> + 'a) {
        self.before = Box::new(prepare);
    }

    pub(super) fn entry(
        &mut self,
        label: impl Into<Label>,
        run: impl FnMut() -> Result<Figures, String> + 'a,
    ) {
        self.entries.push((label.into(), Box::new(run)));
    }

    /// Runs all entries in turn, `settings.repeat` times, prints the medians, and records them
    /// under `rows`.
    pub(super) fn run(mut self, settings: &Settings, rows: &str) -> Result<(), String> {
        let repeat = settings.repeat;
        let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); self.entries.len()];
        for round in 0..repeat {
            for ((label, run), figures) in self.entries.iter_mut().zip(&mut runs) {
                let one = (self.before)()
                    .and_then(|()| run())
                    .map_err(|e| format!("{}: {}: {e}", self.title, label.text))?;
                eprintln!(
                    "  {} [{}/{repeat}] {}: {:.0} {}/s, {:.2} us CPU",
                    self.title,
                    round + 1,
                    label.text,
                    one.rate(),
                    self.unit,
                    one.cpu_us()
                );
                figures.push(one);
            }
        }
        let medians: Vec<Figures> = runs.into_iter().map(median).collect();
        self.print(&medians);
        let workload = self.workload.as_ref().unwrap_or(&self.title);
        let measured = self.entries.iter().zip(&medians).map(|((label, _), figures)| {
            let of_engine = label.of_engine();
            of_engine.measurement(workload, label.engine(), repeat, figures.named(self.unit))
        });
        settings.keep(rows, measured)
    }

    fn print(&self, medians: &[Figures]) {
        let rate_of = |start: &str| {
            let at = self.entries.iter().position(|(label, _)| label.text.starts_with(start));
            at.map(|i| medians[i].rate())
        };
        let (fio, rocks) = (rate_of("fio"), rate_of("RocksDB"));
        let number = |v: Option<f64>, digits: usize| v.map_or("".into(), |v| format!("{v:.digits$}"));
        println!("\n### {}\n", self.title);
        let unit = self.unit;
        println!(
            "| engine | {unit}/s | CPU us/{unit} | user | reads/{unit} | bytes/{unit} | batch ms | x fio | x RocksDB |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
        for ((label, _), f) in self.entries.iter().zip(medians) {
            println!(
                "| {} | {:.0} | {:.2} | {:.2} | {} | {} | {} | {} | {} |",
                label.text,
                f.rate(),
                f.cpu_us(),
                f.user_us / f.operations,
                number(f.reads.map(|r| r / f.operations), 2),
                number(f.bytes.map(|b| b / f.operations), 0),
                number(f.batch_ms, 2),
                number(fio.map(|r| f.rate() / r), 2),
                number(rocks.map(|r| f.rate() / r), 2),
            );
        }
    }
}

/// The run with the median rate.
fn median(mut runs: Vec<Figures>) -> Figures {
    runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}
