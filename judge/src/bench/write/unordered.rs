//! The published comparison of unordered writes, with its variants, in one table: fillrandom in
//! batches of 8 by 2, 8 and 32 threads, with and without a log; ordered, unordered, and through
//! databases with transactions under both write policies. A second table measures contention
//! between threads.
//!
//! Upper bounds for a commit pipeline on this machine are measured with the same code and batches.
//! *No waiting*: writers of one database that do not wait until the log has their records
//! (`manual_wal_flush`), with two batches per write of the log, the fewest at which no writer
//! waits. *No waiting, as many writes*: an estimate for as many writes of the log as KarstDB's
//! unordered writes need, on the straight line of time per key over writes of the log, through no
//! waiting with two batches per write and with sixteen. *Nobody to meet*: one database per
//! processor, each with one writer, so that processors share no memory either.

use super::contest::{Contender, Contest, Derived};
use super::load::{Keys, Load, Target};
use super::store::{Durability, Engine, Store};
use super::table::{Column, Row};
use super::transaction_store::{Policy, TransactionStore};
use super::{NO_WAL, WAL, load};
use crate::bench::Settings;
use crate::bench::measure::Meter;
use crate::bench::record::Label;
use std::path::Path;

/// The options that db_bench derives from the published command.
pub(super) const PUBLISHED: &str = "write_buffer_size=67108864;max_write_buffer_number=16;max_background_jobs=64;level0_file_num_compaction_trigger=99999;\
     level0_slowdown_writes_trigger=99999;level0_stop_writes_trigger=99999;enable_pipelined_write=false;disable_auto_compactions=true;compression=kSnappyCompression;\
     level_compaction_dynamic_level_bytes=false;";
pub(super) const UNORDERED: &str = "unordered_write=true;";
/// Unordered writes whose log is written once its buffer exceeds one batch of the published
/// command; with [`NO_WAITING_FEW_WRITES`] once it exceeds fifteen.
const NO_WAITING: &str = "unordered_write=true;manual_wal_flush=true;writable_file_max_buffer_size=1024;";
const NO_WAITING_FEW_WRITES: &str =
    "unordered_write=true;manual_wal_flush=true;writable_file_max_buffer_size=16384;";
/// `--num` and `--batch_size` of the published command.
pub(super) const NUM: u64 = 10_000_000;
pub(super) const BATCH: u64 = 8;
pub(super) const THREADS: [usize; 3] = [2, 8, 32];

/// Columns of a fill by several threads. `writes` are system calls, nearly all of them on the log;
/// `blocked` is the share of the writers' time spent neither running nor waiting for a processor,
/// which is time in locks and waits.
const FILL: [Column; 7] = [
    Column { name: "keys/s", digits: 0, ratio: true },
    Column { name: "CPU us/key", digits: 2, ratio: true },
    Column { name: "system us/key", digits: 2, ratio: false },
    Column { name: "writes/1000 keys", digits: 0, ratio: false },
    Column { name: "switches/1000 keys", digits: 1, ratio: false },
    Column { name: "blocked %", digits: 0, ratio: false },
    Column { name: "p99 us", digits: 0, ratio: false },
];

/// Indexes into [`FILL`].
const RATE: usize = 0;
const WRITES: usize = 3;

const DURABILITIES: [(&str, Durability); 2] = [("with a log", WAL), ("without a log", NO_WAL)];

/// One run of a fill, in the columns of [`FILL`].
fn fill<T: Target>(
    settings: &Settings,
    target: &T,
    threads: usize,
    durability: Durability,
) -> Result<Row, String> {
    let load: Load = load(Keys::Random(NUM), threads, BATCH, durability, settings.seconds());
    let meter = Meter::start();
    let outcome = load.run(target)?;
    let figures = meter.stop(outcome.keys);
    Ok(vec![
        outcome.keys as f64 / outcome.seconds,
        figures.cpu_us(),
        figures.system_us / figures.operations,
        figures.writes * 1000.0 / figures.operations,
        figures.switches * 1000.0 / figures.operations,
        outcome.blocked * 100.0,
        outcome.latencies.percentile_us(99.0),
    ])
}

/// Fills the target that `open` creates in a new folder, then closes it.
fn filled<T: Target>(
    settings: &Settings,
    threads: usize,
    durability: Durability,
    open: impl FnOnce(&Path) -> Result<T, String>,
    close: impl FnOnce(T) -> Result<(), String>,
) -> Result<Row, String> {
    settings.with_path(|path| {
        let target = open(path)?;
        let row = fill(settings, &target, threads, durability);
        close(target)?;
        row
    })
}

/// Fills one database.
fn one(
    settings: &Settings,
    engine: Engine,
    more: &str,
    threads: usize,
    durability: Durability,
) -> Result<Row, String> {
    let options = format!("{PUBLISHED}{more}");
    filled(settings, threads, durability, |path| Store::open(engine, path, &options), Store::close)
}

/// Fills one database per processor, each with one writer.
fn nobody_to_meet(settings: &Settings, engine: Engine, durability: Durability) -> Result<Row, String> {
    let processors = processors();
    let open = |path: &Path| {
        std::fs::create_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let open = |number: usize| Store::open(engine, &path.join(number.to_string()), PUBLISHED);
        (0..processors).map(open).collect::<Result<Vec<Store>, String>>()
    };
    let close = |stores: Vec<Store>| stores.into_iter().try_for_each(Store::close);
    filled(settings, processors, durability, open, close)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Estimates the figures without waiting at as many writes of the log as `real` has, linearly from
/// two runs without waiting.
fn at_equal_writes(real: &Row, more_writes: &Row, fewer_writes: &Row) -> Row {
    let seconds = |row: &Row| 1.0 / row[RATE];
    let slope = (seconds(more_writes) - seconds(fewer_writes)) / (more_writes[WRITES] - fewer_writes[WRITES]);
    let mut row = vec![f64::NAN; FILL.len()];
    row[RATE] = 1.0 / (seconds(more_writes) + slope * (real[WRITES] - more_writes[WRITES]));
    row[WRITES] = real[WRITES];
    row
}

pub(super) fn published(settings: &Settings) -> Result<(), String> {
    // db_bench's choice for the published command: WritePrepared, without locks for batches outside
    // of transactions.
    const PREPARED: Policy = Policy::Prepared { locks: false };
    const REAL: &str = "KarstDB unordered";
    const MORE_WRITES: &str = "KarstDB, no waiting";
    const FEWER_WRITES: &str = "KarstDB, no waiting, few writes";
    const EQUAL_WRITES: &str = "KarstDB, no waiting, as many writes";
    const APART: &str = "KarstDB, nobody to meet";
    let title = format!(
        "fillrandom in batches of 8, as published for unordered writes, and its variants; {} processors",
        processors()
    );
    let baselines = &[
        "RocksDB ordered",
        "RocksDB unordered",
        "RocksDB WriteCommitted",
        "RocksDB WritePrepared, unordered",
        REAL,
        EQUAL_WRITES,
        APART,
    ];
    let mut table = Contest::new(title, &FILL, baselines);
    for (name, durability) in DURABILITIES {
        for threads in THREADS {
            let plain = |engine, more: &'static str| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || one(settings, engine, more, threads, durability))
            };
            let through = |engine, policy, more: &'static str| -> Box<dyn FnMut() -> Result<Row, String>> {
                let options = format!("{PUBLISHED}{more}");
                Box::new(move || {
                    let open = |path: &Path| TransactionStore::open(engine, policy, path, &options);
                    filled(settings, threads, durability, open, TransactionStore::close)
                })
            };
            let mut contenders: Vec<Contender<'_>> = vec![
                ("RocksDB ordered", plain(Engine::RocksDb, "")),
                ("RocksDB unordered", plain(Engine::RocksDb, UNORDERED)),
                ("RocksDB WriteCommitted", through(Engine::RocksDb, Policy::Committed, "")),
                ("RocksDB WritePrepared, unordered", through(Engine::RocksDb, PREPARED, UNORDERED)),
                ("KarstDB ordered", plain(Engine::KarstDb, "")),
                (REAL, plain(Engine::KarstDb, UNORDERED)),
                ("KarstDB WriteCommitted", through(Engine::KarstDb, Policy::Committed, "")),
                ("KarstDB WritePrepared, unordered", through(Engine::KarstDb, PREPARED, UNORDERED)),
                (APART, Box::new(|| nobody_to_meet(settings, Engine::KarstDb, durability))),
            ];
            let mut derived: Vec<Derived<'_>> = Vec::new();
            // Without a log unordered writes never wait.
            if durability == WAL {
                contenders.push((MORE_WRITES, plain(Engine::KarstDb, NO_WAITING)));
                contenders.push((FEWER_WRITES, plain(Engine::KarstDb, NO_WAITING_FEW_WRITES)));
                let place = |name| contenders.iter().position(|c| c.0 == name).expect("it takes part");
                let [real, more, fewer] = [REAL, MORE_WRITES, FEWER_WRITES].map(place);
                derived.push((
                    EQUAL_WRITES,
                    Box::new(move |rows| at_equal_writes(&rows[real], &rows[more], &rows[fewer])),
                ));
            }
            let label =
                Label::from(name).with(format!("{threads} threads {name}"), &[("threads", threads as f64)]);
            table.round(settings, label, contenders, &derived)?;
        }
    }
    table.print(settings, "unordered")
}

/// Throughput and cost of unordered writes by the number of threads.
pub(super) fn contention(settings: &Settings) -> Result<(), String> {
    for (name, durability) in DURABILITIES {
        let title = format!("Contention: unordered fillrandom {name}, batches of 8, by threads");
        let mut table = Contest::new(title, &FILL, &["RocksDB unordered"]);
        for threads in [1, 2, 4, 8, 16, 32, 64] {
            let run = |engine| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || one(settings, engine, UNORDERED, threads, durability))
            };
            let contenders = vec![
                ("RocksDB unordered", run(Engine::RocksDb)),
                ("KarstDB unordered", run(Engine::KarstDb)),
            ];
            let label = Label::at(format!("{threads} threads"), &[("threads", threads as f64)]);
            table.round(settings, label, contenders, &[])?;
        }
        table.print(settings, "contention")?;
    }
    Ok(())
}

impl Settings {
    /// Calls `work` with a path that does not exist, and removes the path afterwards.
    pub(super) fn with_path<T>(&self, work: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
        let path = self.fresh("run")?;
        let outcome = work(&path);
        match std::fs::remove_dir_all(&path) {
            Err(e) if outcome.is_ok() && path.exists() => Err(format!("{}: {e}", path.display())),
            _ => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_at_equal_writes_is_on_the_line_through_the_other_two() {
        // 1 us a key and 4 us a write of the log.
        let with_writes = |writes: f64| {
            let mut row = vec![0.0; FILL.len()];
            (row[RATE], row[WRITES]) = (1e6 / (1.0 + 4.0 * writes / 1000.0), writes);
            row
        };
        let at = at_equal_writes(&with_writes(125.0), &with_writes(62.5), &with_writes(8.0));
        assert!((at[RATE] - 1e6 / 1.5).abs() < 1.0, "{at:?}");
        assert_eq!(at[WRITES], 125.0);
    }
}
