//! `karstdb bench`: db_bench's workloads over one database, with db_bench's flags and output.
//!
//! [`flags`] parses the command line, [`workload`] the names of workloads, [`open`] makes or opens
//! the database, [`database_options`] turns flags into its options, [`front`] is the target of
//! writes; [`reads`], [`writes`], [`transactions`] and [`coroutine`] are the loops, [`levels`] has
//! flushes and compactions, [`copies`] backups, [`ingest`] ingested tables, [`trace`] traces;
//! [`key`] and [`values`] draw keys and values, [`rate`] limits writers, [`report`] prints results,
//! [`reporter`] those of a running workload.

mod copies;
mod coroutine;
mod database_options;
mod flags;
mod front;
mod ingest;
mod key;
mod known_flags;
mod levels;
mod open;
mod rate;
mod reads;
mod report;
mod reporter;
mod trace;
mod transactions;
mod values;
mod workload;
mod writes;

use crate::output::{Fault, note, say};
pub(crate) use database_options::{info, translate};
use flags::Flags;
pub(crate) use front::Front;
use karst_engine::{Result, WriteOptions, perf_context};
use key::{Keys, Random};
use open::Bench;
use reads::Target;
use report::{Ops, Totals, found_message};
use reporter::{Reporter, Watch};
use serde_json::json;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use workload::{Beside, Reading, Work, Workload};
use writes::{Fill, Writing};

const HELP: &str = "karstdb bench [--FLAG[=VALUE] ...]

Writes and reads a database with db_bench's workloads and prints db_bench's result lines.
Without --db the database is made in a temporary directory and removed afterwards.
With --json the output is a line of JSON with the settings, and one for each run of a workload.
";

/// Runs the program with the arguments after `bench`.
pub(crate) fn run(args: &[String]) -> std::result::Result<(), Fault> {
    let parsed = flags::parse(args).map_err(Fault::Usage)?;
    if parsed.help {
        let names = workload::names();
        return say!(
            "{HELP}\nWorkloads: {names}\n\nFlags, by db_bench's names, with their defaults:\n{}  \
             and every option of the database by its own or by db_bench's name, such as --write_buffer_size",
            Flags::help()
        );
    }
    for name in &parsed.not_honoured {
        note!("karstdb bench: flag --{name} has no effect here yet");
    }
    let flags = parsed.flags;
    front::say_choices(&flags);
    let mut workloads = workload::parse(&flags.benchmarks).map_err(Fault::Usage)?;
    if flags.trace_file.is_empty() && workloads.iter().any(|workload| workload.work == Work::Replay) {
        return Err(Fault::Usage("replay needs --trace_file".into()));
    }
    if flags.db.is_empty() && !workloads[0].work.needs_no_data() {
        note!("no --db given: filluniquerandom goes first");
        workloads.insert(0, workload::named("filluniquerandom")?);
    }
    let mut bench = Bench::open(&flags, workloads.iter().any(|w| w.work.writes()))?;
    if flags.json {
        let (version, path) = (env!("CARGO_PKG_VERSION"), bench.db().path().display().to_string());
        say!("{}", json!({ "program": "karstdb bench", "version": version, "arguments": args, "db": path }))?;
    } else {
        open::print_header(&flags, &bench)?;
    }
    let seed = if flags.seed != 0 { flags.seed as u64 } else { open::clock_seed() };
    let mut seeds = Random::new(seed);
    for workload in &workloads {
        run_workload(workload, &flags, &mut bench, &mut seeds).map_err(|fault| fault.of(&workload.name))?;
    }
    if flags.statistics && flags.json {
        say!("{}", report::statistics_json(bench.db().statistics()))?;
    } else if flags.statistics {
        say!("STATISTICS:\n{}", bench.db().statistics())?;
    }
    Ok(bench.close()?)
}

/// Runs one entry of --benchmarks with its repetitions.
fn run_workload(
    workload: &Workload,
    flags: &Flags,
    bench: &mut Bench,
    seeds: &mut Random,
) -> std::result::Result<(), Fault> {
    if workload.work.fresh() {
        if flags.use_existing_db && !flags.db.is_empty() {
            return match flags.json {
                true => {
                    say!("{}", json!({ "workload": workload.name, "skipped": "use_existing_db is true" }))
                }
                false => say!("{:<12} : skipped (--use_existing_db is true)", workload.name),
            };
        }
        let never_stalled = matches!(workload.work, Work::FillDeterministic(_));
        bench.renew(flags, if never_stalled { &levels::NEVER_STALLED } else { &[] })?;
    }
    let traced = trace::start(workload.work, flags, bench.db())?;
    let mut rates = Vec::new();
    for round in 0..workload.warm_ups + workload.repeats {
        if let Some(report) = run_once(workload, flags, bench, seeds)? {
            report.print(&workload.name, flags)?;
            if workload.work == Work::RandomTransaction {
                transactions::verify(&bench.front, flags)?;
            }
            if round >= workload.warm_ups {
                rates.push(report.ops_per_second());
            }
        }
    }
    if traced {
        bench.db().end_trace()?;
    }
    if flags.json { Ok(()) } else { print_repeats(&workload.name, &rates) }
}

fn run_once(
    workload: &Workload,
    flags: &Flags,
    bench: &mut Bench,
    seeds: &mut Random,
) -> std::result::Result<Option<Totals>, Fault> {
    let cpu = report::Cpu::so_far();
    let reporter = Reporter::start(flags)?;
    let watch = Watch {
        counter: reporter.as_ref().map(Reporter::counter),
        stats_of: (flags.stats_per_interval > 0).then(|| bench.db().clone()),
    };
    match workload.work {
        Work::Property(name) => {
            let text = bench.db().property(name).unwrap_or_else(|| "(failed)".into());
            match flags.json {
                true => say!("{}", json!({ "workload": workload.name, "text": text }))?,
                false => say!("\n{text}\n")?,
            }
            Ok(None)
        }
        Work::Flush => levels::flush(bench, flags).map(|()| None),
        Work::WaitForCompaction => levels::wait_for_compaction(bench, flags).map(|()| None),
        Work::CompactAll => {
            levels::compact(bench, false)?;
            Ok(None)
        }
        Work::Compact => {
            let mut ops = Ops::new(flags, 0);
            levels::compact(bench, true)?;
            ops.stop();
            Ok(Some(Totals::merge(vec![ops], cpu, String::new())))
        }
        Work::Backup | Work::Restore => {
            let mut ops = Ops::new(flags, 0);
            match workload.work {
                Work::Backup => copies::backup(bench.db(), flags)?,
                _ => copies::restore(bench.db(), flags)?,
            }
            ops.stop();
            Ok(Some(Totals::merge(vec![ops], cpu, String::new())))
        }
        Work::Replay => {
            let mut ops = Ops::new(flags, 0);
            trace::replay(bench, flags)?;
            ops.stop();
            Ok(Some(Totals::merge(vec![ops], cpu, String::new())))
        }
        Work::FillDeterministic(order) => {
            let mut ops = Ops::new(flags, 0);
            ops.watched_by(&watch);
            levels::fill_deterministic(bench, flags, order, seeds, &mut ops)?;
            ops.stop();
            Ok(Some(Totals::merge(vec![ops], cpu, String::new())))
        }
        work => {
            let options = open::read_options(flags);
            let target = Target {
                front: &bench.front,
                db: bench.db(),
                families: &bench.families,
                flags,
                options: &options,
                watch: &watch,
            };
            let ops = match work {
                Work::Coroutines(batched) => coroutine::run(&target, seeds.next(), batched),
                _ => on_threads(work, target, seeds),
            };
            let ops = ops?;
            let mut message = String::new();
            if let Work::Fill(filling) = work
                && filling.short
            {
                message = format!("({} ops)", flags.num / 1000);
            }
            if work.counts_found() {
                message = found_message(&ops);
            }
            if work == Work::RandomTransaction {
                message = transactions::message(&bench.front, &ops);
            }
            Ok(Some(Totals::merge(ops, cpu, message)))
        }
    }
}

/// Runs a loop on its threads. Returns their counts, with the first thread's perf context as its
/// message if that is enabled.
fn on_threads(work: Work, target: Target<'_>, seeds: &mut Random) -> Result<Vec<Ops>> {
    let flags = target.flags;
    let threads = if work.alone() { 1 } else { flags.threads as usize };
    let beside = usize::from(matches!(work, Work::Beside(..)));
    let w = Writing {
        options: write_options(work, flags),
        pace: rate::Pace::new(flags.benchmark_write_rate_limit),
        readers: AtomicUsize::new(threads),
        target,
    };
    let ready = Barrier::new(threads + beside);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads + beside)
            .map(|thread| {
                let (mut keys, w, ready) = (Keys::new(flags, seeds.next()), &w, &ready);
                scope.spawn(move || {
                    open::set_perf_level(flags);
                    ready.wait();
                    let mut ops = Ops::new(flags, thread as i32);
                    ops.watched_by(w.target.watch);
                    let result = match work {
                        Work::Beside(_, what) if thread == threads => {
                            writes::write_beside(w, &mut keys, &mut ops, what == Beside::Merges)
                        }
                        _ => {
                            let result = run_thread(work, w, &mut keys, &mut ops);
                            w.readers.fetch_sub(1, Ordering::Relaxed);
                            result
                        }
                    };
                    ops.stop();
                    if flags.perf_level > 1 && thread == 0 {
                        ops.message.push_str(&format!(" PERF_CONTEXT:\n{}", perf_context::to_text(true)));
                    }
                    result.map(|()| ops)
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a workload thread panicked")).collect()
    })
}

fn write_options(work: Work, flags: &Flags) -> WriteOptions {
    let sync = flags.sync || matches!(work, Work::Fill(filling) if filling.sync);
    WriteOptions { sync, disable_wal: flags.disable_wal, ..WriteOptions::default() }
}

fn run_thread(work: Work, w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let t = &w.target;
    match work {
        Work::Read(reading) | Work::Beside(reading, _) => read(reading, t, keys, ops),
        Work::ReadToCache => reads::read_to_cache(t, ops),
        Work::Verify(whole_files) => reads::verify(t, ops, whole_files),
        Work::Fill(filling) => writes::fill(w, &Fill::new(&filling, t.flags), keys, ops),
        Work::Delete(sequential) => writes::delete(w, keys, ops, sequential),
        Work::Update => writes::update_random(w, keys, ops),
        Work::MergeRandom => writes::merge_random(w, keys, ops),
        Work::Ingest => ingest::ingest(t, keys, ops),
        Work::RandomTransaction => transactions::random_transaction(w, keys, ops),
        Work::ReadRandomWriteRandom => writes::read_random_write_random(w, keys, ops),
        Work::ReadRandomMergeRandom => writes::read_random_merge_random(w, keys, ops),
        _ => unreachable!("run_once does these itself"),
    }
}

fn read(reading: Reading, t: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    match reading {
        Reading::Random => reads::read_random(t, keys, ops),
        Reading::Missing => reads::read_missing(t, keys, ops),
        Reading::MultiRandom => reads::multi_read_random(t, keys, ops),
        Reading::Seek => reads::seek_random(t, keys, ops),
        Reading::Forward => reads::read_sequential(t, ops, true),
        Reading::Backward => reads::read_sequential(t, ops, false),
    }
}

/// Prints db_bench's summary of a workload that ran several times.
fn print_repeats(name: &str, rates: &[f64]) -> std::result::Result<(), Fault> {
    if rates.len() < 2 {
        return Ok(());
    }
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mean = sorted.iter().sum::<f64>() / n as f64;
    let variance = sorted.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let interval = 1.96 * (variance / n as f64).sqrt();
    let median = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
    say!("{name} [AVG    {n} runs] : {mean:.0} (\u{b1} {interval:.0}) ops/sec")?;
    say!("{name} [MEDIAN {n} runs] : {median:.0} ops/sec")
}
