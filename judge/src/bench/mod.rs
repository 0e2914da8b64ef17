//! The side-by-side benchmark: fio, RocksDB 11.8 and KarstDB on the same files with the same keys,
//! in turns.
//!
//! Every throughput stands beside its CPU and reads per operation; ratios are to fio and to
//! RocksDB. Output is Markdown on standard output, progress on standard error.

mod data;
mod fio;
mod measure;
mod record;
#[path = "../../../report/src/results.rs"]
mod results;
mod rows;
mod slow;
mod workload;
mod write;

use data::{Data, Layout};
use record::Record;
use std::cell::RefCell;
use std::path::PathBuf;

const HELP: &str = "karst-judge bench
  --data DIR      where its databases are kept and, the first time, made: 20 GB
                  (default $KARST_BENCH_DATA, else /var/tmp/karst)
  --slowfs BIN    the slowfs program, for the rows on slow storage (default $KARST_SLOWFS)
  --rows A,B,...  which (default all): point, metadata, multiget, cold, cached, scan, tree, write, unordered, transactions, contention; parts of write are
                  write-fill, write-mapped, write-sync, write-flush, write-compaction, write-overwrite, write-reads
  --seconds N     of each run (default 5)
  --paced-seconds N  of the overwrites at 90 % of the sustained rate (default 12 times --seconds)
  --repeat N      runs of each, interleaved; medians are printed (default 3)
  --give-way      in the rows of writes and transactions, background jobs of both engines leave the processors to the writers
  --results DIR   also write what was measured to a file in DIR, as JSON: the run's machine, date, commit and command,
                  and each median; `cargo xtask report` makes a page of them
  --make-data     make the databases and stop";

const ROWS: [&str; 11] = [
    "point",
    "metadata",
    "multiget",
    "cold",
    "cached",
    "scan",
    "tree",
    "write",
    "unordered",
    "transactions",
    "contention",
];

/// Settings from the command line.
struct Settings {
    data: Data,
    slowfs: Option<PathBuf>,
    rows: Vec<String>,
    seconds: f64,
    paced_seconds: Option<f64>,
    repeat: usize,
    /// File of the results, or None without `--results`.
    record: Option<RefCell<Record>>,
}

impl Settings {
    /// Records the measurements if `--results` was given.
    fn keep(
        &self,
        rows: &str,
        measurements: impl IntoIterator<Item = results::Measurement>,
    ) -> Result<(), String> {
        self.record.as_ref().map_or(Ok(()), |record| record.borrow_mut().add(rows, measurements))
    }
}

pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    let folder = std::env::var_os("KARST_BENCH_DATA").map_or("/var/tmp/karst".into(), PathBuf::from);
    let mut settings = Settings {
        data: Data { folder },
        slowfs: std::env::var_os("KARST_SLOWFS").map(PathBuf::from),
        rows: ROWS.map(String::from).to_vec(),
        seconds: 5.0,
        paced_seconds: None,
        repeat: 3,
        record: None,
    };
    let mut results: Option<PathBuf> = None;
    let mut only_data = false;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if *word == "--help" {
            println!("{HELP}");
            return Ok(());
        }
        if *word == "--make-data" {
            only_data = true;
            continue;
        }
        if *word == "--give-way" {
            write::jobs_give_way()?;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: no value\n\n{HELP}"))?;
        let number = || value.parse::<f64>().ok().filter(|n| *n > 0.0).ok_or(format!("{word}: {value}?"));
        match *word {
            "--data" => settings.data.folder = value.into(),
            "--slowfs" => settings.slowfs = Some(value.into()),
            "--rows" => settings.rows = value.split(',').map(String::from).collect(),
            "--seconds" => settings.seconds = number()?,
            "--paced-seconds" => settings.paced_seconds = Some(number()?),
            "--repeat" => settings.repeat = number()? as usize,
            "--results" => results = Some(value.into()),
            _ => return Err(format!("bench: {word}?\n\n{HELP}")),
        }
    }
    if let Some(unknown) = settings
        .rows
        .iter()
        .find(|row| !ROWS.contains(&row.as_str()) && !write::PARTS.contains(&row.as_str()))
    {
        return Err(format!("bench: no rows {unknown}\n\n{HELP}"));
    }
    if only_data {
        settings.data.tree()?;
        return Layout::ALL.into_iter().try_for_each(|layout| settings.data.values(layout).map(drop));
    }
    if let Some(folder) = results {
        settings.record = Some(RefCell::new(Record::begin(&folder, args)?));
    }
    rows::run(&settings)
}
