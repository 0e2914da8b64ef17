//! The published comparison of unordered writes: fillrandom in batches of 8 by 2, 8 and 32 threads, ordered and unordered, with and without a log; and what
//! threads cost each other.
//!
//! Two bounds on what a pipeline can do on this machine are measured, with the same code and batches. *No waiting*: writers of one database that do not wait until the log has their records (`manual_wal_flush`),
//! two batches to a write of the log, the fewest with which anybody goes on at once. *Nobody to meet*: as many databases as there are processors, each with one writer, so that processors share no memory either.

use super::contest::{Contender, Contest};
use super::load::{Keys, Load, Target};
use super::store::{Durability, Engine, Store};
use super::table::{Column, Row};
use super::{NO_WAL, WAL, load};
use crate::bench::Settings;
use crate::bench::measure::Meter;
use std::path::Path;

/// What db_bench makes of the published command, in options.
pub(super) const PUBLISHED: &str = "write_buffer_size=67108864;max_write_buffer_number=16;max_background_jobs=64;level0_file_num_compaction_trigger=99999;\
     level0_slowdown_writes_trigger=99999;level0_stop_writes_trigger=99999;enable_pipelined_write=false;disable_auto_compactions=true;compression=kSnappyCompression;\
     level_compaction_dynamic_level_bytes=false;";
pub(super) const UNORDERED: &str = "unordered_write=true;";
/// Unordered writes that do not wait for the log, until there is more for it than a batch of the published command.
const NO_WAITING: &str = "unordered_write=true;manual_wal_flush=true;writable_file_max_buffer_size=1024;";
/// `--num` and `--batch_size` of the published command.
pub(super) const NUM: u64 = 10_000_000;
pub(super) const BATCH: u64 = 8;
pub(super) const THREADS: [usize; 3] = [2, 8, 32];

/// Columns of a fill by several threads. `blocked` is the share of their time in which writers neither ran nor waited for a processor: time in locks and waits.
pub(super) const FILL: [Column; 6] = [
    Column { name: "keys/s", digits: 0, ratio: true },
    Column { name: "CPU us/key", digits: 2, ratio: true },
    Column { name: "system us/key", digits: 2, ratio: false },
    Column { name: "switches/1000 keys", digits: 1, ratio: false },
    Column { name: "blocked %", digits: 0, ratio: false },
    Column { name: "p99 us", digits: 0, ratio: false },
];

pub(super) const DURABILITIES: [(&str, Durability); 2] = [("with a log", WAL), ("without a log", NO_WAL)];

/// One run of a fill, in the columns of [`FILL`].
pub(super) fn fill<T: Target>(
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
        figures.switches * 1000.0 / figures.operations,
        outcome.blocked * 100.0,
        outcome.latencies.percentile_us(99.0),
    ])
}

/// A fill of one database.
fn one(
    settings: &Settings,
    engine: Engine,
    more: &str,
    threads: usize,
    durability: Durability,
) -> Result<Row, String> {
    settings.with_path(|path| {
        let store = Store::open(engine, path, &format!("{PUBLISHED}{more}"))?;
        let row = fill(settings, &store, threads, durability);
        store.close()?;
        row
    })
}

/// As many databases as processors, each with one writer.
fn nobody_to_meet(settings: &Settings, engine: Engine, durability: Durability) -> Result<Row, String> {
    let processors = processors();
    settings.with_path(|path| {
        std::fs::create_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let open = |number: usize| Store::open(engine, &path.join(number.to_string()), PUBLISHED);
        let stores = (0..processors).map(open).collect::<Result<Vec<Store>, String>>()?;
        let row = fill(settings, &stores, processors, durability);
        stores.into_iter().try_for_each(Store::close)?;
        row
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn published(settings: &Settings) -> Result<(), String> {
    for (name, durability) in DURABILITIES {
        let title = format!(
            "fillrandom {name}, batches of 8, as published for unordered writes; {} processors",
            processors()
        );
        let mut table = Contest::new(
            title,
            &FILL,
            &["RocksDB ordered", "RocksDB unordered", "KarstDB, no waiting", "KarstDB, nobody to meet"],
        );
        for threads in THREADS {
            let run = |engine, more: &'static str| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || one(settings, engine, more, threads, durability))
            };
            let mut contenders: Vec<Contender<'_>> = vec![
                ("RocksDB ordered", run(Engine::RocksDb, "")),
                ("RocksDB unordered", run(Engine::RocksDb, UNORDERED)),
                ("KarstDB ordered", run(Engine::KarstDb, "")),
                ("KarstDB unordered", run(Engine::KarstDb, UNORDERED)),
                (
                    "KarstDB, nobody to meet",
                    Box::new(|| nobody_to_meet(settings, Engine::KarstDb, durability)),
                ),
            ];
            // Without a log unordered writes wait for nothing as it is.
            if durability == WAL {
                contenders.push(("KarstDB, no waiting", run(Engine::KarstDb, NO_WAITING)));
            }
            table.round(settings, &format!("{threads} threads"), contenders)?;
        }
        table.print();
    }
    Ok(())
}

/// How what threads cost each other grows with their number.
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
            table.round(settings, &format!("{threads} threads"), contenders)?;
        }
        table.print();
    }
    Ok(())
}

impl Settings {
    /// A path where nothing is, for one run; what is there afterwards is removed.
    pub(super) fn with_path<T>(&self, work: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
        let path = self.fresh("run")?;
        let outcome = work(&path);
        match std::fs::remove_dir_all(&path) {
            Err(e) if outcome.is_ok() && path.exists() => Err(format!("{}: {e}", path.display())),
            _ => outcome,
        }
    }
}
