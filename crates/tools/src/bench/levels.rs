//! Workloads that change the tree directly: flush, compact, waitforcompaction, and the fills with a
//! fixed tree shape.

use super::flags::Flags;
use super::key::{Keys, Order, Random};
use super::open::Bench;
use super::rate::Pace;
use super::reads::Target;
use super::report::Ops;
use super::reporter::Watch;
use super::writes::{self, Fill, Writing};
use crate::output::{Fault, say};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamilyOptions, CompactFilesOptions, CompactRangeOptions, FlushOptions,
    LiveFile, ReadOptions, Result, WaitForCompactOptions, WriteOptions,
};
use karst_format::options::choice::CompactionStyle;
use std::sync::atomic::AtomicUsize;

/// Workload flush: flushes every family's memtable to a file.
pub(crate) fn flush(bench: &Bench, flags: &Flags) -> std::result::Result<(), Fault> {
    let families: Vec<_> = bench.families.iter().collect();
    bench.db().flush_cfs(&FlushOptions::default(), &families)?;
    if flags.json { Ok(()) } else { say!("flush memtable") }
}

/// Workload waitforcompaction.
pub(crate) fn wait_for_compaction(bench: &Bench, flags: &Flags) -> std::result::Result<(), Fault> {
    let path = bench.db().path().display();
    let options = WaitForCompactOptions::default();
    if flags.json {
        return Ok(bench.db().wait_for_compact(&options)?);
    }
    say!("waitforcompaction({path}): started")?;
    let outcome = bench.db().wait_for_compact(&options);
    let said = outcome.as_ref().map_or_else(ToString::to_string, |()| "OK".to_string());
    say!("waitforcompaction({path}): finished with status ({said})")?;
    Ok(outcome?)
}

/// Workloads compact and compactall: compacts the whole default family; with `rewrite`, its last
/// level too.
pub(crate) fn compact(bench: &Bench, rewrite: bool) -> Result<()> {
    let mut options = CompactRangeOptions::default();
    if rewrite {
        options.bottommost_level_compaction = BottommostLevelCompaction::ForceOptimized;
    }
    bench.db().compact_range(&options, None, None)
}

/// Options with which the L0 of a deterministic fill never stalls writers.
pub(crate) const NEVER_STALLED: [(&str, &str); 2] =
    [("level0_slowdown_writes_trigger", "400000000"), ("level0_stop_writes_trigger", "400000000")];

/// Shape of the tree of a deterministic fill.
struct Shape {
    universal: bool,
    num_levels: usize,
    /// Ratio of each run's size to that of the next one.
    shrink: f64,
    /// Bytes of a file of the last level.
    file_bytes: u64,
}

impl Shape {
    /// Returns the shape for the current options.
    fn of(options: &ColumnFamilyOptions) -> std::result::Result<Shape, String> {
        if !options.disable_auto_compactions {
            return Err("it needs --disable_auto_compactions".into());
        }
        let universal = match options.compaction_style {
            CompactionStyle::Level => false,
            CompactionStyle::Universal => true,
            other => return Err(format!("it lays out no tree of {other:?}")),
        };
        let shrink = if universal {
            f64::from(options.compaction_options_universal.size_ratio + 200) / 100.0
        } else {
            options.max_bytes_for_level_multiplier
        };
        let (num_levels, file_bytes) = (options.num_levels as usize, options.target_file_size_base);
        Ok(Shape { universal, num_levels, shrink, file_bytes })
    }

    /// Returns the minimum number of runs in the tree.
    fn runs(&self) -> usize {
        if self.universal { self.num_levels } else { self.num_levels.saturating_sub(1) }
    }
}

/// Workloads fillseqdeterministic and filluniquerandomdeterministic: write sorted runs, each
/// smaller than the one before, one per level from the last one up; the first is written in
/// `order`, the others shuffled.
pub(crate) fn fill_deterministic(
    bench: &Bench,
    flags: &Flags,
    order: Order,
    seeds: &mut Random,
    ops: &mut Ops,
) -> std::result::Result<(), Fault> {
    let shape = Shape::of(&bench.families[0].options())?;
    let read_options = ReadOptions::default();
    let watch = Watch::default();
    let w = Writing {
        target: Target {
            front: &bench.front,
            db: bench.db(),
            families: &bench.families,
            flags,
            options: &read_options,
            watch: &watch,
        },
        options: WriteOptions { sync: flags.sync, disable_wal: flags.disable_wal, ..WriteOptions::default() },
        pace: Pace::new(flags.benchmark_write_rate_limit),
        readers: AtomicUsize::new(0),
    };
    let mut runs: Vec<Vec<u64>> = Vec::new();
    let mut writes = w.target.writes();
    let num = flags.num as u64;
    while writes > 0 {
        let order = if runs.is_empty() { order } else { Order::UniqueRandom };
        let fill =
            Fill { order, num, writes: writes.min(num), value_bytes: None, batch: flags.batch_size as u64 };
        writes::fill(&w, &fill, &mut Keys::new(flags, seeds.next()), ops)?;
        bench.db().flush(&FlushOptions::default())?;
        let known: Vec<u64> = runs.iter().flatten().copied().collect();
        let mut run: Vec<u64> =
            level_files(bench, 0).iter().map(|f| f.number).filter(|number| !known.contains(number)).collect();
        if run.is_empty() {
            break;
        }
        let small = run.len() == 1;
        if !shape.universal && runs.len() + 1 == shape.runs() {
            // Compat: a third of the smallest run stays on L0. The newest files come first.
            run.drain(..run.len() / 3);
        }
        runs.push(run);
        if small || (!shape.universal && runs.len() == shape.runs()) {
            break;
        }
        writes = (writes as f64 / shape.shrink) as u64;
    }
    if runs.len() < shape.runs() {
        return Err(format!("--num {num} is too small to fill {} levels", shape.num_levels).into());
    }
    for (number, run) in runs.iter().enumerate() {
        let level = (shape.num_levels - 1).saturating_sub(number);
        if level > 0 || run.len() > 1 {
            let options =
                CompactFilesOptions { output_file_size_limit: shape.file_bytes, ..Default::default() };
            bench.db().compact_files(&options, &bench.families[0], run, level)?;
        }
    }
    if flags.json { Ok(()) } else { print_tree(bench, shape.num_levels) }
}

/// Returns the default family's files of a level.
fn level_files(bench: &Bench, level: u32) -> Vec<LiveFile> {
    let mut files = bench.db().live_files();
    files.retain(|file| file.column_family == "default" && file.level == Some(level));
    files
}

fn print_tree(bench: &Bench, num_levels: usize) -> std::result::Result<(), Fault> {
    say!("---------------------- DB 0 LSM ---------------------")?;
    for level in 0..num_levels as u32 {
        let files = level_files(bench, level);
        let (Some(first), Some(last)) = (files.first(), files.last()) else { continue };
        if level == 0 {
            for file in &files {
                say!("Level[0]: /{}(size: {} bytes)", file.name, file.size_bytes)?;
            }
        } else {
            let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
            say!("Level[{level}]: /{} - /{}(total size: {bytes} bytes)", first.name, last.name)?;
        }
    }
    Ok(())
}
