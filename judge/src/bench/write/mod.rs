//! The rows of the write half: both engines with the same options, the same durability and the same
//! load, alternating in one process.
//!
//! Each run creates its own database and removes it. The figures of a row stand beside their ratios
//! to RocksDB's.

mod contest;
mod load;
mod reads;
mod store;
mod table;
mod transaction_store;
mod transactions;
mod unordered;

use super::Settings;
use super::fio;
use super::measure::Meter;
use super::record::Label;
use load::{End, Keys, Load, Outcome};
use std::path::PathBuf;
use std::time::Instant;
pub(super) use store::jobs_give_way;
use store::{Durability, Engine, Store};
use table::{Column, Row, Table};

/// The parts of `--rows write`, each also a row name of its own.
pub(super) const PARTS: [&str; 7] = [
    "write-fill",
    "write-mapped",
    "write-sync",
    "write-flush",
    "write-compaction",
    "write-overwrite",
    "write-reads",
];

/// Rows that are not parts of `write`, each with several contenders.
pub(super) const CONTESTS: [&str; 3] = ["unordered", "transactions", "contention"];

const VALUE_BYTES: usize = 100;
const ENTRY_BYTES: f64 = (load::KEY_BYTES + VALUE_BYTES) as f64;
const WAL: Durability = Durability { wal: true, sync: false };
const NO_WAL: Durability = Durability { wal: false, sync: false };
const SYNC: Durability = Durability { wal: true, sync: true };

/// Options of both engines, to which rows add others. Memory: five memtables of 64 MiB and a block
/// cache of 32 MiB.
///
/// Compat: a row adds no table options, because of two table factories in one string RocksDB takes
/// only the last.
const OPTIONS: &str = "write_buffer_size=67108864;max_write_buffer_number=5;max_background_jobs=4;\
                       compression=kNoCompression;level_compaction_dynamic_level_bytes=true;\
                       block_based_table_factory={filter_policy=bloomfilter:10:false;block_cache=33554432;};";

pub(super) fn run(settings: &Settings, part: &str) -> Result<(), String> {
    match part {
        "unordered" => unordered::published(settings),
        "contention" => unordered::contention(settings),
        "transactions" => transactions::run(settings),
        "write-fill" => fill(settings, part, "", &[("with a log", WAL), ("without a log", NO_WAL)]),
        "write-mapped" => {
            fill(settings, part, "allow_mmap_writes=true;", &[("with a log and allow_mmap_writes", WAL)])
        }
        "write-sync" => sync(settings),
        "write-flush" => flush(settings),
        "write-compaction" => compaction(settings),
        "write-overwrite" => overwrite(settings),
        _ => reads::while_writing(settings),
    }
}

impl Settings {
    /// Returns the path of a run's folder after removing an existing one.
    fn fresh(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.data.folder.join(format!("write-{name}"));
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        std::fs::create_dir_all(&self.data.folder).map_err(io)?;
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(io)?;
        }
        Ok(path)
    }

    /// Opens a new database for one run and removes it afterwards.
    fn with_store<T>(
        &self,
        engine: Engine,
        options: &str,
        work: impl FnOnce(&Store) -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.fresh("run")?;
        let store = Store::open(engine, &path, &format!("{OPTIONS}{options}"))?;
        let outcome = work(&store);
        store.close()?;
        std::fs::remove_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        outcome
    }

    fn seconds(&self) -> End {
        End::Seconds(self.seconds)
    }
}

fn load(keys: Keys, writers: usize, batch: u64, durability: Durability, end: End) -> Load {
    Load { keys, value_bytes: VALUE_BYTES, batch, writers, durability, end, pace: None }
}

const RATE: [Column; 4] = [
    Column { name: "keys/s", digits: 0, ratio: true },
    Column { name: "CPU us/key", digits: 2, ratio: true },
    Column { name: "p99 us", digits: 1, ratio: false },
    Column { name: "worst ms", digits: 1, ratio: false },
];

/// One run of a load on a new database, in the columns of [`RATE`].
fn rate(settings: &Settings, engine: Engine, options: &str, load: &Load) -> Result<Row, String> {
    settings.with_store(engine, options, |store| {
        let meter = Meter::start();
        let outcome = load.run(store)?;
        let figures = meter.stop(outcome.keys);
        Ok(vec![
            outcome.keys as f64 / outcome.seconds,
            figures.cpu_us(),
            outcome.latencies.percentile_us(99.0),
            outcome.latencies.worst_us() / 1000.0,
        ])
    })
}

fn writers_at(writers: usize, batch: u64) -> Label {
    let text = format!("{writers} writers, batches of {batch}");
    Label::at(text, &[("writers", writers as f64), ("keys a batch", batch as f64)])
}

/// fillrandom and fillseq.
fn fill(settings: &Settings, rows: &str, options: &str, logs: &[(&str, Durability)]) -> Result<(), String> {
    for (name, durability) in logs {
        let mut table = Table::new(format!("fillrandom {name}, 16-byte keys, 100-byte values"), &RATE);
        for batch in [1, 8] {
            for writers in [1, 2, 8, 32] {
                let load = load(Keys::Random(1 << 40), writers, batch, *durability, settings.seconds());
                table.compare(settings, writers_at(writers, batch), |engine| {
                    rate(settings, engine, options, &load)
                })?;
            }
        }
        table.print(settings, rows)?;
    }
    let title = format!("fillseq {}, 16-byte keys, 100-byte values", logs[0].0);
    let mut table = Table::new(title, &RATE);
    for (writers, batch) in [(1, 1), (1, 8), (8, 1)] {
        let load = load(Keys::Sequential, writers, batch, WAL, settings.seconds());
        table
            .compare(settings, writers_at(writers, batch), |engine| rate(settings, engine, options, &load))?;
    }
    table.print(settings, rows)
}

/// fillsync.
fn sync(settings: &Settings) -> Result<(), String> {
    let mut table = Table::new("fillsync: each write is on the device when it returns", &RATE);
    for writers in [1, 16] {
        let load = load(Keys::Random(1 << 40), writers, 1, SYNC, settings.seconds());
        table.compare(settings, writers_at(writers, 1), |engine| rate(settings, engine, "", &load))?;
    }
    table.print(settings, "write-sync")
}

const WORK: [Column; 3] = [
    Column { name: "MB/CPU s", digits: 0, ratio: true },
    Column { name: "MB/s", digits: 0, ratio: true },
    Column { name: "MB written/MB", digits: 2, ratio: true },
];

/// CPU, time and bytes written of background work over `keys` entries, in the columns of [`WORK`].
fn background(keys: u64, work: impl FnOnce() -> Result<(), String>) -> Result<Row, String> {
    let megabytes = keys as f64 * ENTRY_BYTES / 1e6;
    let (meter, written) = (Meter::start(), written_bytes()?);
    work()?;
    let (figures, written) = (meter.stop(1), written_bytes()? - written);
    let cpu_seconds = (figures.user_us + figures.system_us) / 1e6;
    Ok(vec![megabytes / cpu_seconds, megabytes / figures.seconds, written / 1e6 / megabytes])
}

/// Bytes that this process has written to files, by the kernel's count of pages.
fn written_bytes() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/io").map_err(|e| format!("/proc/self/io: {e}"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("write_bytes:"));
    line.and_then(|l| l.trim().parse().ok()).ok_or_else(|| "/proc/self/io has no write_bytes".into())
}

/// Flush of a memtable of random keys, by compression.
fn flush(settings: &Settings) -> Result<(), String> {
    const KEYS: u64 = 1_500_000;
    let mut table = Table::new("Flush of a memtable of 1.5 million random keys (174 MB)", &WORK);
    for (name, options) in [
        ("no compression", ""),
        ("Snappy", "compression=kSnappyCompression;"),
        ("ZSTD", "compression=kZSTD;"),
    ] {
        let options = format!("write_buffer_size=1073741824;disable_auto_compactions=true;{options}");
        let load = load(Keys::Random(1 << 40), 1, 64, NO_WAL, End::Keys(KEYS));
        table.compare(settings, name, |engine| {
            settings.with_store(engine, &options, |store| {
                load.run(store)?;
                background(KEYS, || store.flush())
            })
        })?;
    }
    table.print(settings, "write-flush")
}

/// Compaction of overlapping files into one run, and a whole load with all its compactions.
fn compaction(settings: &Settings) -> Result<(), String> {
    const KEYS: u64 = 3_000_000;
    let mut table = Table::new("Compaction of 6 overlapping files (348 MB) by compact_range", &WORK);
    for (name, options) in [
        ("no compression", ""),
        ("Snappy", "compression=kSnappyCompression;"),
        ("ZSTD", "compression=kZSTD;"),
    ] {
        let options = format!("write_buffer_size=1073741824;disable_auto_compactions=true;{options}");
        table.compare(settings, name, |engine| {
            settings.with_store(engine, &options, |store| {
                for _ in 0..6 {
                    load(Keys::Random(KEYS), 1, 64, NO_WAL, End::Keys(KEYS / 6)).run(store)?;
                    store.flush()?;
                }
                background(KEYS, || store.compact())
            })
        })?;
    }
    table.print(settings, "write-compaction")?;

    const LOADED: u64 = 12_000_000;
    let title = "12 million random writes of 4 million keys until nothing is left to compact, no log (1.4 GB; 16 MB memtables)";
    let mut table = Table::new(title, &WORK);
    for (name, options) in [
        ("leveled", "compaction_style=kCompactionStyleLevel;"),
        ("universal", "compaction_style=kCompactionStyleUniversal;"),
    ] {
        let options = format!(
            "write_buffer_size=16777216;max_bytes_for_level_base=67108864;target_file_size_base=16777216;{options}"
        );
        table.compare(settings, name, |engine| {
            settings.with_store(engine, &options, |store| {
                background(LOADED, || {
                    load(Keys::Random(LOADED / 3), 1, 64, NO_WAL, End::Keys(LOADED)).run(store)?;
                    store.settle()
                })
            })
        })?;
    }
    table.print(settings, "write-compaction")
}

const LATENCY: [Column; 6] = [
    Column { name: "keys/s", digits: 0, ratio: true },
    Column { name: "CPU us/key", digits: 2, ratio: true },
    Column { name: "p50 us", digits: 1, ratio: true },
    Column { name: "p99 us", digits: 1, ratio: true },
    Column { name: "p99.9 us", digits: 1, ratio: true },
    Column { name: "worst ms", digits: 1, ratio: false },
];

fn latency_row(meter: Meter, outcome: &Outcome) -> Row {
    let figures = meter.stop(outcome.keys);
    let us = |percent| outcome.latencies.percentile_us(percent);
    vec![
        outcome.keys as f64 / outcome.seconds,
        figures.cpu_us(),
        us(50.0),
        us(99.0),
        us(99.9),
        outcome.latencies.worst_us() / 1000.0,
    ]
}

/// Latencies of single overwrites at 90 % of the rate that the slower engine sustains.
fn overwrite(settings: &Settings) -> Result<(), String> {
    const KEYS: u64 = 5_000_000;
    const WRITERS: usize = 4;
    // Longer than other rows, because compactions take minutes to fall behind far enough to delay
    // writes.
    let seconds = settings.seconds * 12.0;
    let paced_seconds = settings.paced_seconds.unwrap_or(seconds);
    let overwrites = |seconds| load(Keys::Random(KEYS), WRITERS, 1, WAL, End::Seconds(seconds));
    let prepared = |engine, work: &dyn Fn(&Store) -> Result<Row, String>| {
        settings.with_store(engine, "", |store| {
            load(Keys::Random(KEYS), 1, 64, NO_WAL, End::Keys(KEYS)).run(store)?;
            store.settle()?;
            work(store)
        })
    };
    let mut sustained = Vec::new();
    for engine in Engine::BOTH {
        let row = prepared(engine, &|store| {
            // The time includes the compactions that the writes cause, so that a burst does not
            // count as a sustained rate.
            let start = Instant::now();
            let outcome = overwrites(seconds).run(store)?;
            store.settle()?;
            Ok(vec![outcome.keys as f64 / start.elapsed().as_secs_f64()])
        })?;
        eprintln!("  overwrite: {} sustains {:.0} keys/s", engine.name(), row[0]);
        sustained.push(row[0]);
    }
    let title = |rate: f64| {
        format!(
            "overwrite for {paced_seconds:.0} s at {rate:.0} keys/s, {WRITERS} writers, log, 5 million keys"
        )
    };
    let mut rates = vec![sustained[0].min(sustained[1]) * 0.9];
    // Each engine also at 90 % of its own rate.
    if sustained[1] > sustained[0] {
        rates.push(sustained[1] * 0.9);
    }
    for (number, rate) in rates.into_iter().enumerate() {
        let mut table = Table::new(title(rate), &LATENCY);
        let load = Load { pace: Some(rate), ..overwrites(paced_seconds) };
        let engines: &[Engine] = if number == 0 { &Engine::BOTH } else { &[Engine::KarstDb] };
        table.some(engines, settings, "", |engine| {
            prepared(engine, &|store| {
                let meter = Meter::start();
                let outcome = load.run(store)?;
                Ok(latency_row(meter, &outcome))
            })
        })?;
        table.print(settings, "write-overwrite")?;
        let path = settings.fresh("fio")?;
        let worst_ms = fio::worst_write_ms(&path, rate * ENTRY_BYTES, paced_seconds / 3.0)?;
        println!(
            "\nfio, appending {:.1} MB/s through the page cache: worst write {worst_ms:.1} ms",
            rate * ENTRY_BYTES / 1e6
        );
    }
    Ok(())
}
