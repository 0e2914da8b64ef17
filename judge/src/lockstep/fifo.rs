//! FIFO compaction in lockstep: both engines open copies of one database whose files have many ages
//! and sizes, drop the files that are too old or too many, and must keep the same entries.
//!
//! KarstDB writes the database with a clock that is set back; ages are whole hours, and limits lie
//! half an hour between them, so the result does not depend on the speed of the machine.

use super::engine::{Answer, Change, Engine, Key, Moves, Op, Opening, Read};
use super::karst::Karst;
use super::rocks::Rocks;
use karst_engine::{Db, FlushOptions, Options};
use karst_io::{Clock, Env, SystemClock};
use karst_testkit::Entry;
use karst_testkit::kills::copy;
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use karst_testkit::subject::Move;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Openings of one database, each by the engine that did not have the directory before.
const OPENINGS: usize = 4;
const HOUR: u64 = 3600;
/// Bytes of a table beside its blocks, about.
const TABLE_BYTES: u64 = 1200;
/// Bytes of an entry's share of a block and of the index, about.
const ENTRY_BYTES: u64 = 40;
/// Bytes by which the size of a table differs from the estimate, at most.
const ESTIMATE_BYTES: u64 = 500;

/// The system's clock, set back by some seconds.
#[derive(Debug, Default)]
struct PastClock {
    system: SystemClock,
    back: AtomicU64,
}

impl Clock for PastClock {
    fn now(&self) -> Duration {
        self.system.now()
    }

    fn unix_time(&self) -> Duration {
        let back = Duration::from_secs(self.back.load(Ordering::Relaxed));
        self.system.unix_time().saturating_sub(back)
    }
}

/// A file of the model.
struct File {
    hours: u64,
    bytes: u64,
    entries: Vec<Entry>,
}

/// Contents of one database, the oldest file first.
struct Queue {
    random: Random,
    files: Vec<File>,
    keys: u64,
}

impl Queue {
    /// Draws the entries of a new file.
    fn draw(&mut self, hours: u64) -> Vec<Entry> {
        let entries: Vec<Entry> = (0..4 + self.random.index(8))
            .map(|_| {
                self.keys += 1;
                let length = 2000 + self.random.index(2000);
                (format!("{:05}", self.keys).into_bytes(), self.random.bytes(length))
            })
            .collect();
        let bytes = |(key, value): &Entry| (key.len() + value.len()) as u64 + ENTRY_BYTES;
        let bytes = entries.iter().map(bytes).sum::<u64>();
        self.files.push(File { hours, bytes: bytes + TABLE_BYTES, entries: entries.clone() });
        entries
    }

    /// True if the limit is so near the size of the newest files that the estimate cannot tell
    /// which is larger for the engines.
    fn is_near(&self, limit: u64) -> bool {
        (1..=self.files.len()).any(|count| {
            let newest = self.files.iter().rev().take(count);
            newest.map(|file| file.bytes).sum::<u64>().abs_diff(limit) <= ESTIMATE_BYTES * count as u64
        })
    }

    /// Drops the oldest files while they are too old or all are too large.
    fn drop_files(&mut self, ttl: u64, limit: u64) {
        let mut dropped = 0;
        for (at, file) in self.files.iter().enumerate() {
            let bytes: u64 = self.files[at..].iter().map(|file| file.bytes).sum();
            let expired = ttl > 0 && file.hours * HOUR > ttl;
            if !expired && bytes <= limit {
                break;
            }
            dropped = at + 1;
        }
        self.files.drain(..dropped);
    }

    /// Draws a time to live, 0 for none, and a limit of the bytes of all files.
    fn limits(&mut self) -> (u64, u64) {
        let oldest = self.files.first().map_or(0, |file| file.hours);
        let ttl = match self.random.below(3) {
            0 => 0,
            _ => self.random.below(oldest + 2) * HOUR + HOUR / 2,
        };
        // A limit in the middle of a file, as the engines' tables have not the same sizes.
        let at = self.random.index(self.files.len() + 1);
        let newer: u64 = self.files[at..].iter().map(|file| file.bytes).sum();
        let limit = match at.checked_sub(1).filter(|_| self.random.one_in(2)) {
            Some(older) => newer + self.files[older].bytes / 2,
            None => 1 << 40,
        };
        (ttl, if self.is_near(limit) { 1 << 40 } else { limit })
    }
}

/// Family options with these limits. Files are not merged, because the time at which a file is
/// merged decides with which others it is dropped.
fn options(ttl: u64, limit: u64) -> String {
    format!(
        "compaction_style=kCompactionStyleFIFO;compression=kNoCompression;num_levels=1;ttl={ttl};periodic_compaction_seconds=0;compaction_options_fifo={{max_table_files_size={limit};allow_compaction=false}};level0_slowdown_writes_trigger=1000;level0_stop_writes_trigger=2000;"
    )
}

/// Writes the first files with KarstDB.
fn create(path: &Path, queue: &mut Queue) -> Result<(), String> {
    let clock = Arc::new(PastClock::default());
    let env = Env::builder().clock(clock.clone()).build();
    let text = |e: karst_engine::Error| e.to_string();
    let options = format!("create_if_missing=true;{}", options(0, 1 << 40));
    let mut hours = 20 + queue.random.below(300);
    clock.back.store(hours * HOUR, Ordering::Relaxed);
    let db = Db::open(path, &Options::new().env(env).set_all(&options).map_err(text)?).map_err(text)?;
    for _ in 0..3 + queue.random.index(10) {
        clock.back.store(hours * HOUR, Ordering::Relaxed);
        for (key, value) in queue.draw(hours) {
            db.put(key, value).map_err(text)?;
        }
        db.flush(&FlushOptions::default()).map_err(text)?;
        hours = hours.saturating_sub(queue.random.below(20));
    }
    db.close().map_err(text)
}

/// Applies an operation to both engines.
fn both(engines: &mut [Box<dyn Engine>; 2], op: &Op) -> Result<[Answer; 2], String> {
    let answers = [0, 1].map(|engine| engines[engine].apply(op));
    match answers.iter().any(|answer| matches!(answer, Answer::Failed(_))) {
        true => Err(format!("{op:?}: KarstDB {:?}, RocksDB {:?}", answers[0], answers[1])),
        false => Ok(answers),
    }
}

/// Compares all entries of both engines with the model's.
fn compare(engines: &mut [Box<dyn Engine>; 2], queue: &Queue) -> Result<(), String> {
    both(engines, &Op::Settle)?;
    let read = Read { total_order: true, ..Read::default() };
    both(engines, &Op::OpenIterator { number: 0, family: 0, read })?;
    let steps = usize::try_from(queue.keys).unwrap_or_default();
    let moves = std::iter::once(Move::First).chain(std::iter::repeat_n(Move::Next, steps)).collect();
    let answers = both(engines, &Op::Walk { number: 0, moves: Moves(moves) })?;
    both(engines, &Op::CloseIterator { number: 0 })?;
    let right: Vec<&Entry> = queue.files.iter().flat_map(|file| &file.entries).collect();
    for (engine, answer) in ["KarstDB", "RocksDB"].iter().zip(&answers) {
        let Answer::Walked(walked) = answer else { return Err(format!("{engine}: {answer:?}")) };
        let found: Vec<&Entry> = walked.iter().flatten().collect();
        if found != right {
            let first = |all: &[&Entry]| all.first().map(|(key, _)| Key(key.clone()));
            let ages: Vec<u64> = queue.files.iter().map(|file| file.hours).collect();
            return Err(format!(
                "{engine} keeps {} entries from {:?}, {} from {:?} are right; ages {ages:?}",
                found.len(),
                first(&found),
                right.len(),
                first(&right),
            ));
        }
    }
    Ok(())
}

/// One opening: files are dropped by the options, by options that are set, and as files are added.
fn open(paths: &[PathBuf; 2], queue: &mut Queue) -> Result<(), String> {
    let (ttl, limit) = queue.limits();
    let opening = Opening {
        database: "create_if_missing=false".into(),
        directories: paths.clone(),
        families: vec![(0, "default".into(), options(ttl, limit))],
        transactions: None,
        ignore_options_file: false,
        prepared: Vec::new(),
    };
    let failed = |failure| format!("opening: {failure:?}");
    let mut engines = [
        Karst::open(&paths[0], &opening).map_err(failed)?,
        Rocks::open(&paths[1], &opening).map_err(failed)?,
    ];
    queue.drop_files(ttl, limit);
    let told = |e: String| format!("ttl {ttl}, limit {limit}: {e}");
    compare(&mut engines, queue).map_err(told)?;
    let (ttl, limit) = queue.limits();
    let told = |e: String| format!("behind SetOptions, ttl {ttl}, limit {limit}: {e}");
    let fifo = format!("{{max_table_files_size={limit}}}");
    for (name, value) in [("compaction_options_fifo", fifo), ("ttl", ttl.to_string())] {
        both(&mut engines, &Op::SetOptions { family: 0, name: name.into(), value }).map_err(told)?;
    }
    for _ in 0..1 + queue.random.index(3) {
        let put = |(key, value)| Change::Plain(Write::Put { family: 0, key, value });
        let entries = loop {
            let entries = queue.draw(0);
            if !queue.is_near(limit) {
                break entries;
            }
            queue.files.pop();
        };
        let changes = entries.into_iter().map(put).collect();
        both(&mut engines, &Op::Write { changes, sync: false, unlogged: false }).map_err(told)?;
        both(&mut engines, &Op::Flush { families: vec![0] }).map_err(told)?;
        queue.drop_files(ttl, limit);
        compare(&mut engines, queue).map_err(told)?;
    }
    for engine in engines {
        engine.close().map_err(|failure| format!("closing: {failure:?}"))?;
    }
    Ok(())
}

/// Runs the openings of one database, and returns the number of files that it had.
pub(super) fn run(seed: u64, folder: &Path) -> Result<usize, String> {
    let mut queue = Queue { random: Random::new(seed), files: Vec::new(), keys: 0 };
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(io)?;
    let mut paths = ["a", "b"].map(|name| folder.join(name));
    create(&paths[0], &mut queue)?;
    copy(&paths[0], &paths[1]).map_err(io)?;
    let files = queue.files.len();
    for number in 0..OPENINGS {
        open(&paths, &mut queue).map_err(|e| format!("opening {number}: {e}"))?;
        paths.reverse();
    }
    std::fs::remove_dir_all(folder).map_err(io)?;
    Ok(files)
}
