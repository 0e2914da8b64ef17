//! `karst bench`: db_bench's read workloads over one database, with db_bench's flags and output.
//!
//! [`flags`] reads the command line, [`open`] opens the database (or makes a small one), [`reads`] and
//! [`coroutine`] are the workloads, [`key`] draws keys, [`report`] prints.

mod coroutine;
mod flags;
mod key;
mod known_flags;
mod open;
mod reads;
mod report;

use flags::Flags;
use karst_engine::perf_context;
use key::{Keys, Random};
use reads::Target;
use report::{Ops, Report, cpu_seconds, found_message};
use std::sync::Barrier;

const HELP: &str = "karst bench [--FLAG[=VALUE] ...]

Reads a RocksDB or KarstDB database with db_bench's workloads and prints db_bench's result lines.
Without --db it makes a small database first, reads it, and removes it.

Flags, by db_bench's names, with their defaults:
";

/// Run the program with the arguments after `bench`; the error is for stderr.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let parsed = flags::parse(args)?;
    if parsed.help {
        print!("{HELP}{}", Flags::help());
        return Ok(());
    }
    for name in &parsed.not_honoured {
        eprintln!("karst bench: flag --{name} has no effect here yet");
    }
    let workloads = parse_workloads(&parsed.flags.benchmarks)?;
    let flags = parsed.flags;
    let bench = open::open(&flags)?;
    open::print_header(&flags, &bench);
    let seed = if flags.seed != 0 { flags.seed as u64 } else { open::clock_seed() };
    let mut seeds = Random::new(seed);
    for workload in &workloads {
        let mut rates = Vec::new();
        for round in 0..workload.warm_ups + workload.repeats {
            let report = run_once(workload, &flags, &bench, &mut seeds)
                .map_err(|e| format!("{}: {e}", workload.name))?;
            if let Some(report) = report {
                report.print(&workload.name, &flags);
                if round >= workload.warm_ups {
                    rates.push(report.ops_per_second());
                }
            }
        }
        print_repeats(&workload.name, &rates);
    }
    if flags.statistics {
        println!("STATISTICS:\n{}", bench.db.statistics());
    }
    Ok(())
}

/// One entry of --benchmarks.
#[derive(Debug)]
struct Workload {
    name: String,
    repeats: usize,
    warm_ups: usize,
}

const READS: [&str; 9] = [
    "readrandom",
    "multireadrandom",
    "seekrandom",
    "readseq",
    "readreverse",
    "readmissing",
    "readtocache",
    "readrandomcoroutine",
    "multireadrandomcoroutine",
];
const PROPERTIES: [&str; 3] = ["stats", "levelstats", "sstables"];

fn parse_workloads(list: &str) -> Result<Vec<Workload>, String> {
    let mut workloads = Vec::new();
    for entry in list.split(',').filter(|e| !e.is_empty()) {
        let (name, mut suffix) = entry.split_at(entry.find('[').unwrap_or(entry.len()));
        let mut workload = Workload { name: name.to_string(), repeats: 1, warm_ups: 0 };
        while let Some(rest) = suffix.strip_prefix('[') {
            let (argument, after) =
                rest.split_once(']').ok_or(format!("benchmark `{entry}`: `[` without `]`"))?;
            for part in argument.split('-') {
                let count = part.get(1..).and_then(|n| n.parse().ok());
                match (part.chars().next(), count) {
                    (Some('X'), Some(n)) if n > 0 => workload.repeats = n,
                    (Some('W'), Some(n)) => workload.warm_ups = n,
                    _ => return Err(format!("benchmark `{entry}`: `{part}` is neither X3 nor W1")),
                }
            }
            suffix = after;
        }
        if !suffix.is_empty() {
            return Err(format!("benchmark `{entry}`: text after `]`"));
        }
        if !READS.contains(&name) && !PROPERTIES.contains(&name) {
            return Err(format!(
                "unknown benchmark `{name}`; there are {} and {}",
                READS.join(", "),
                PROPERTIES.join(", ")
            ));
        }
        workloads.push(workload);
    }
    if workloads.is_empty() { Err("--benchmarks names no workload".into()) } else { Ok(workloads) }
}

fn run_once(
    workload: &Workload,
    flags: &Flags,
    bench: &open::Bench,
    seeds: &mut Random,
) -> karst_engine::Result<Option<Report>> {
    let name = workload.name.as_str();
    if PROPERTIES.contains(&name) {
        let text = bench.db.property(&format!("rocksdb.{name}"));
        println!("\n{}", text.unwrap_or_default());
        return Ok(None);
    }
    let options = open::read_options(flags);
    let target = Target { db: &bench.db, families: &bench.families, flags, options: &options };
    let cpu = cpu_seconds();
    if let "readrandomcoroutine" | "multireadrandomcoroutine" = name {
        let ops = coroutine::run(&target, seeds.next(), name.starts_with("multi"))?;
        let message = found_message(&ops);
        return Ok(Some(Report::merge(ops, cpu, message)));
    }
    let threads = if name == "readtocache" { 1 } else { flags.threads };
    let ready = Barrier::new(threads as usize);
    let results: Vec<karst_engine::Result<(Ops, Option<String>)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (mut keys, target, ready) = (Keys::new(flags, seeds.next()), &target, &ready);
                scope.spawn(move || {
                    open::set_perf_level(flags);
                    ready.wait();
                    let mut ops = Ops::new(flags, thread);
                    let result = run_thread(name, target, &mut keys, &mut ops);
                    ops.stop();
                    let perf = (flags.perf_level > 1 && thread == 0).then(|| perf_context::to_text(true));
                    result.map(|()| (ops, perf))
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a workload thread panicked")).collect()
    });
    let mut ops = Vec::new();
    let mut perf = None;
    for result in results {
        let (one, text) = result?;
        ops.push(one);
        perf = perf.or(text);
    }
    let mut message = if name.starts_with("readseq") || name == "readreverse" || name == "readtocache" {
        String::new()
    } else {
        found_message(&ops)
    };
    if let Some(perf) = perf {
        message.push_str(&format!(" PERF_CONTEXT:\n{perf}"));
    }
    Ok(Some(Report::merge(ops, cpu, message)))
}

fn run_thread(name: &str, target: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> karst_engine::Result<()> {
    match name {
        "readrandom" => reads::read_random(target, keys, ops),
        "readmissing" => reads::read_missing(target, keys, ops),
        "multireadrandom" => reads::multi_read_random(target, keys, ops),
        "seekrandom" => reads::seek_random(target, keys, ops),
        "readseq" => reads::read_sequential(target, ops, true),
        "readreverse" => reads::read_sequential(target, ops, false),
        "readtocache" => reads::read_to_cache(target, ops),
        _ => unreachable!("parse_workloads knows the same names"),
    }
}

/// db_bench's summary of a workload that ran several times.
fn print_repeats(name: &str, rates: &[f64]) {
    if rates.len() < 2 {
        return;
    }
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mean = sorted.iter().sum::<f64>() / n as f64;
    let variance = sorted.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let interval = 1.96 * (variance / n as f64).sqrt();
    let median = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
    println!("{name} [AVG    {n} runs] : {mean:.0} (\u{b1} {interval:.0}) ops/sec");
    println!("{name} [MEDIAN {n} runs] : {median:.0} ops/sec");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_a_workload() {
        let w = parse_workloads("readrandom[X3-W1],seekrandom").unwrap();
        assert_eq!((w[0].name.as_str(), w[0].repeats, w[0].warm_ups), ("readrandom", 3, 1));
        assert_eq!((w[1].repeats, w[1].warm_ups), (1, 0));
        assert!(parse_workloads("fillseq").unwrap_err().contains("unknown benchmark `fillseq`"));
        assert!(parse_workloads("readseq[X0]").is_err());
        assert!(parse_workloads("").is_err());
    }
}
