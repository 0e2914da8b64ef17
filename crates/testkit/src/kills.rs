//! Kill tests: a process that writes a [`Tally`] is killed (`SIGKILL`) at a random moment,
//! repeatedly, with options drawn for each life, by one engine or by several on the same directory;
//! after each life the database is checked against the acknowledged batches.
//!
//! In: a [`Keeper`], which starts lives and checks the databases they leave, and in the process of
//! a life a [`Living`], an open database. Out: the number of lives, or the failure with the seed,
//! the options and the directory, which is kept together with a copy from before that life.
//!
//! A life prints to its standard output the number up to which each writer may have begun (`b
//! writer number`) and the number of the batch that must survive from now on (`a writer number`).
//! It closes the database and ends when its standard input ends, which happens to some lives.

use crate::chronicle::Cut;
use crate::random::Random;
use crate::script::Write;
use crate::subject::Subject;
use crate::tally::{FAMILIES, Tally};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Number of writers of each life.
const WRITERS: usize = 4;
/// Number of lives after which a new database is started, so that checks stay fast.
const LIVES_OF_ONE: u64 = 25;
/// Maximum number of acknowledged batches of a life.
const BATCHES_AT_MOST: u64 = 1500;
/// Time without output after which a life counts as hung, of an engine that is known to lock up.
const SILENCE_AT_MOST: Duration = Duration::from_secs(120);
/// That time of other engines: longer than a busy machine takes for the slowest sync or opening.
const SILENCE_AT_MOST_OF_SOUND: Duration = Duration::from_secs(900);
/// Number of batches a writer announces in advance, so that it need not announce each.
const AHEAD: u64 = 16;
/// The writer that does not log, in lives with an unlogged writer.
const UNLOGGED: usize = 0;

/// One life of a database.
#[derive(Clone, Debug)]
pub struct Life {
    /// Seed of the database.
    pub seed: u64,
    /// Number of the life, from 0.
    pub number: u64,
    /// The batches in the database at its start.
    pub from: Cut,
    /// Path of the database.
    pub path: PathBuf,
}

/// The options of a life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Options of the database.
    pub database: String,
    /// Options of each column family, besides its merge operator.
    pub family: String,
    /// True if log records stay in the process until an explicit flush.
    pub manual_wal_flush: bool,
    /// True if one writer does not log, in all families, which are flushed together.
    pub unlogged: bool,
}

impl Life {
    /// Formats the life as one line, for [`Life::parse`] in its own process.
    #[must_use]
    pub fn line(&self) -> String {
        let from: Vec<String> = self.from.0.iter().map(u64::to_string).collect();
        format!("{} {} {} {}", self.seed, self.number, from.join(","), self.path.display())
    }

    /// Parses a line from [`Life::line`].
    ///
    /// # Errors
    /// The line has another format.
    pub fn parse(line: &str) -> Result<Self, String> {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        let [seed, number, from, path] = parts[..] else { return Err(format!("no life: {line}")) };
        let parse = |text: &str| text.parse::<u64>().map_err(|e| format!("{line}: {e}"));
        let from = from.split(',').map(parse).collect::<Result<_, _>>()?;
        Ok(Self { seed: parse(seed)?, number: parse(number)?, from: Cut(from), path: path.into() })
    }

    /// Returns the batches of its writers.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally::new(self.seed, WRITERS, 1)
    }

    fn random(&self) -> Random {
        Random::new(Random::new(self.seed).next_u64() ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the index of the engine that runs it, of `engines`.
    #[must_use]
    pub fn engine(&self, engines: usize) -> usize {
        self.random().index(engines)
    }

    /// Returns its options. Those that determine the shape of the tree are equal in all lives of a
    /// database, and RocksDB accepts all of them.
    #[must_use]
    pub fn options(&self) -> Chosen {
        let mut of_database = Random::new(self.seed);
        let mut random = self.random();
        // The first number is skipped because it selects the engine.
        random.next_u64();
        let mut chosen = Chosen::default();
        let mut set = |name: &str, values: &[&str]| {
            let value = values[random.index(values.len())];
            let _ = write!(chosen.database, "{name}={value};");
            value.to_owned()
        };
        set("create_if_missing", &["true"]);
        set("create_missing_column_families", &["true"]);
        set("max_manifest_file_size", &["4000", "1000000"]);
        set("unordered_write", &["false", "true"]);
        let recycles = set("recycle_log_file_num", &["0", "1", "2"]) != "0";
        set("wal_compression", &["kNoCompression", "kZSTD"]);
        set("avoid_flush_during_recovery", &["false", "true"]);
        set("avoid_flush_during_shutdown", &["false", "true"]);
        let atomic = set("atomic_flush", &["false", "true"]) == "true";
        set("allow_mmap_writes", &["false", "true"]);
        set("two_write_queues", &["false", "false", "true"]);
        set("max_background_jobs", &["2", "4"]);
        set("max_total_wal_size", &["0", "100000"]);
        set("db_write_buffer_size", &["0", "0", "300000"]);
        chosen.manual_wal_flush = set("manual_wal_flush", &["false", "false", "false", "true"]) == "true";
        let mut set = |random: &mut Random, name: &str, values: &[&str]| {
            let _ = write!(chosen.family, "{name}={};", values[random.index(values.len())]);
        };
        let style = ["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"];
        set(&mut of_database, "compaction_style", &style);
        set(&mut random, "write_buffer_size", &["65536", "65536", "262144"]);
        set(&mut random, "max_write_buffer_number", &["2", "4"]);
        set(&mut random, "min_write_buffer_number_to_merge", &["1", "1", "2"]);
        set(&mut random, "level0_file_num_compaction_trigger", &["2", "4"]);
        set(&mut random, "target_file_size_base", &["30000", "1000000"]);
        set(&mut random, "max_bytes_for_level_base", &["100000", "1000000"]);
        set(&mut random, "compression", &["kNoCompression", "kLZ4Compression"]);
        set(&mut random, "enable_blob_files", &["false", "true"]);
        set(&mut random, "min_blob_size", &["200"]);
        set(&mut random, "blob_file_size", &["100000"]);
        set(&mut random, "enable_blob_garbage_collection", &["true"]);
        // Neither engine accepts unlogged writes with recycled logs; and such a batch survives as a
        // whole or not at all only if all families are flushed together.
        chosen.unlogged = atomic && !recycles && random.one_in(2);
        chosen
    }
}

/// Starts lives, and checks the databases they leave.
pub trait Keeper {
    /// Returns the number of engines.
    fn engines(&self) -> usize;
    /// Returns the name of an engine.
    fn name(&self, engine: usize) -> String;
    /// Returns the command of a life's process, which must call [`live`].
    fn command(&self, life: &Life) -> Result<Command, String>;
    /// Returns true if this engine is known to lock up occasionally while it writes. A life that
    /// hangs is then killed and counted, and its database is checked as after any other kill.
    fn may_hang(&self, _engine: usize) -> bool {
        false
    }
    /// Checks a life's database in all ways of reading, without changing it.
    fn check(&self, life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String>;
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Number of lives killed.
    pub killed: u64,
    /// Number of lives that closed their database.
    pub closed: u64,
    /// Number of acknowledged batches.
    pub acknowledged: u64,
    /// Number of killed lives without an acknowledged batch.
    pub in_opening: u64,
    /// Number of killed lives that hung, with an engine known to ([`Keeper::may_hang`]).
    pub hung: u64,
}

/// Runs lives until `kills` were killed, in databases in `folder`, which is left empty. With `say`,
/// prints progress.
///
/// # Errors
/// A life or a check failed.
pub fn run(keeper: &dyn Keeper, folder: &Path, seed: u64, kills: u64, say: bool) -> Result<Report, String> {
    let (mut random, mut report, started) = (Random::new(seed), Report::default(), Instant::now());
    let mut told = 0;
    while report.killed < kills {
        let seed_of_database = random.next_u64() % 1_000_000_007;
        let place = folder.join(seed_of_database.to_string());
        let path = place.join("db");
        let mut life = Life { seed: seed_of_database, number: 0, from: Cut(vec![0; WRITERS]), path };
        while life.number < LIVES_OF_ONE && report.killed < kills {
            life.from = one(keeper, &life, &place, &mut random, &mut report).map_err(|e| {
                let engine = keeper.name(life.engine(keeper.engines()));
                format!(
                    "after {} kills of seed {seed}: database {}, life {} ({engine}), {:#?}, from {:?}: {e}\nthe database is in {}, what it was before in {}",
                    report.killed, life.seed, life.number, life.options(), life.from, life.path.display(), before(&place).display()
                )
            })?;
            life.number += 1;
            if say && report.killed >= told + 100 {
                told = report.killed;
                println!("{told} of {kills} kills, {:.0} s: {report:?}", started.elapsed().as_secs_f64());
            }
        }
        std::fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    Ok(report)
}

fn before(place: &Path) -> PathBuf {
    place.join("before")
}

/// Runs one life and checks its database.
fn one(
    keeper: &dyn Keeper,
    life: &Life,
    place: &Path,
    random: &mut Random,
    report: &mut Report,
) -> Result<Cut, String> {
    let io = |e: std::io::Error| format!("{}: {e}", place.display());
    copy(&life.path, &before(place)).map_err(io)?;
    let mut command = keeper.command(life)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let lines = lines_of(&mut child);
    let mut heard = Heard { at_least: life.from.clone(), at_most: life.from.clone(), acknowledged: 0 };
    let (kill_after, in_order) = (1 + random.below(BATCHES_AT_MOST), random.one_in(12));
    if random.one_in(12) {
        std::thread::sleep(Duration::from_millis(random.below(60)));
        child.kill().map_err(io)?;
    }
    let may_hang = keeper.may_hang(life.engine(keeper.engines()));
    let silence = if may_hang { SILENCE_AT_MOST } else { SILENCE_AT_MOST_OF_SOUND };
    let mut status = heard.listen(&lines, &mut child, kill_after, in_order, silence);
    let mut threads = String::new();
    if !matches!(status, Ok(Some(_))) {
        threads = threads_of(child.id());
        let _ = child.kill();
        let killed = child.wait().map_err(io)?;
        // Not before the first acknowledgement, because a hang in opening may be caused by another
        // engine's database.
        let wrote = heard.acknowledged > 0;
        if status == Ok(None) && wrote && may_hang {
            report.hung += 1;
            // The remaining lines are read because output from before the kill may still be in the
            // pipe.
            lines.iter().try_for_each(|line| heard.take(&line))?;
            status = Ok(Some(killed));
        }
    }
    let hangs = || format!("it hangs: nothing was acknowledged for {silence:?}; its threads:{threads}");
    let status = status?.ok_or_else(hangs)?;
    if status.success() && in_order {
        report.closed += 1;
        heard.at_least = heard.at_most.clone();
    } else if status.code().is_some() {
        return Err(format!("it ended by itself: {status}"));
    } else {
        report.killed += 1;
        report.in_opening += u64::from(heard.acknowledged == 0);
    }
    report.acknowledged += heard.acknowledged;
    // The database was killed before it existed, or before it had all its families.
    if heard.at_most == Cut(vec![0; WRITERS]) {
        return Ok(life.from.clone());
    }
    keeper.check(life, &heard.at_least, &heard.at_most)
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let out = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the name of each thread of a process, and the function of the kernel that it waits in.
fn threads_of(process: u32) -> String {
    let mut threads = String::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
        let read = |file| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let _ = write!(threads, "\n{} in {}", read("comm").trim(), read("wchan").trim());
    }
    threads
}

/// The announcements of a life.
struct Heard {
    at_least: Cut,
    at_most: Cut,
    acknowledged: u64,
}

impl Heard {
    /// Listens until the process ends; ends it after `kill_after` acknowledgements. `None` if it
    /// hangs: it printed nothing for as long as `silence`.
    fn listen(
        &mut self,
        lines: &Receiver<String>,
        child: &mut Child,
        kill_after: u64,
        in_order: bool,
        silence: Duration,
    ) -> Result<Option<ExitStatus>, String> {
        loop {
            match lines.recv_timeout(silence) {
                Ok(line) => self.take(&line)?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
            }
            if self.acknowledged >= kill_after {
                match in_order {
                    true => drop(child.stdin.take()),
                    false => child.kill().map_err(|e| e.to_string())?,
                }
            }
        }
        child.wait().map(Some).map_err(|e| e.to_string())
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [what @ ("a" | "b"), writer, number] = parts[..] else { return Ok(()) };
        let number: u64 = number.parse().map_err(|e| format!("{line}: {e}"))?;
        let writer: usize = writer.parse().map_err(|e| format!("{line}: {e}"))?;
        if what == "b" {
            self.at_most.0[writer] = number;
            return Ok(());
        }
        let least = &mut self.at_least.0[writer];
        *least = number.max(*least);
        self.acknowledged += 1;
        Ok(())
    }
}

/// Copies a directory with its subdirectories to `to`, which is recreated.
///
/// # Errors
/// A file could not be read or written.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => std::fs::create_dir_all(to)?,
    }
    if !from.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A life's open database, used by several threads.
pub trait Living: Sync {
    /// Writes a batch.
    fn write(&self, changes: &[Write], sync: bool, unlogged: bool) -> Result<(), String>;
    /// Writes buffered log records to the file.
    fn flush_wal(&self) -> Result<(), String>;
    /// Flushes all families and waits.
    fn flush_all(&self) -> Result<(), String>;
    /// Performs a random operation beside the writers: a compaction, a flush that is awaited or
    /// whose future is dropped, and others. With `together` no family is flushed alone, which would
    /// split unlogged batches.
    fn maintain(&self, random: &mut Random, together: bool) -> Result<(), String>;
    /// Returns true if [`Living::look`] sees one state while others write.
    fn has_snapshots(&self) -> bool;
    /// Calls `at` with the current state of the database.
    fn look(&self, at: &mut dyn FnMut(&dyn Subject) -> Result<(), String>) -> Result<(), String>;
    /// Closes the database.
    fn close(&self) -> Result<(), String>;
}

/// Runs a life, until the process is killed or its standard input ends.
///
/// # Errors
/// The database differs from its expected contents, or an operation failed.
pub fn live(life: &Life, store: &dyn Living) -> Result<(), String> {
    store.look(&mut |subject| life.tally().check(subject, &life.from, &life.from).map(drop))?;
    let chosen = life.options();
    let counts = || life.from.0.iter().map(|n| AtomicU64::new(*n)).collect::<Vec<_>>();
    let life =
        Under { life, store, chosen, begun: counts(), written: counts(), over: AtomicBool::new(false) };
    // Ends the line, which begins with the test's name.
    println!();
    let failed = std::thread::scope(|scope| {
        // Not joined: it blocks in a read until the input ends, and then ends all threads.
        scope.spawn(|| life.wait_for_end());
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            threads.push(scope.spawn({
                let life = &life;
                move || life.write(writer)
            }));
        }
        for number in 0..2 {
            threads.push(scope.spawn({
                let life = &life;
                move || life.maintain(number)
            }));
        }
        threads.push(scope.spawn(|| life.look()));
        let results = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        results.collect::<Vec<_>>().into_iter().find_map(Result::err)
    });
    match failed {
        Some(error) => Err(error),
        // Flushed because closing may skip the flush, and unlogged batches are lost then.
        None if life.chosen.unlogged => store.flush_all().and_then(|()| store.close()),
        None => store.close(),
    }
}

fn say(what: char, writer: usize, number: u64) {
    let mut out = std::io::stdout().lock();
    // Ignored because the listener may have gone, and then this process is being killed too.
    let _ = out.write_all(format!("{what} {writer} {number}\n").as_bytes());
    let _ = out.flush();
}

/// State shared by the threads of a life.
struct Under<'a> {
    life: &'a Life,
    store: &'a dyn Living,
    chosen: Chosen,
    begun: Vec<AtomicU64>,
    written: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Under<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the process on an error, so that no thread continues with a wrong state.
    fn ok<T>(&self, result: Result<T, String>) -> T {
        result.unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(3)
        })
    }

    fn wait_for_end(&self) {
        let _ = std::io::stdin().read(&mut [0]);
        self.over.store(true, Ordering::Relaxed);
    }

    fn random(&self, of: u64) -> Random {
        Random::new(self.life.random().next_u64() ^ of)
    }

    fn write(&self, writer: usize) -> Result<(), String> {
        let (tally, mut random) = (self.life.tally(), self.random(writer as u64));
        let unlogged = self.chosen.unlogged && writer == UNLOGGED;
        let first = self.life.from.0[writer];
        for number in first + 1.. {
            if self.is_over() {
                break;
            }
            if (number - first) % AHEAD == 1 {
                say('b', writer, number + AHEAD - 1);
            }
            self.begun[writer].store(number, Ordering::SeqCst);
            let sync = !unlogged && random.one_in(64);
            self.ok(self.store.write(&tally.batch(writer, number), sync, unlogged));
            self.written[writer].store(number, Ordering::SeqCst);
            let flushed = !self.chosen.manual_wal_flush || {
                let flushes = !unlogged && random.one_in(8);
                if flushes {
                    self.ok(self.store.flush_wal());
                }
                flushes
            };
            if flushed && !unlogged {
                say('a', writer, number);
            }
        }
        // Withdraws the rest of the announced batches.
        say('b', writer, self.begun[writer].load(Ordering::SeqCst));
        Ok(())
    }

    fn maintain(&self, number: u64) -> Result<(), String> {
        let mut random = self.random(100 + number);
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(random.below(15)));
            if number == 0 && self.chosen.unlogged && random.one_in(3) {
                let written = self.written[UNLOGGED].load(Ordering::SeqCst);
                self.ok(self.store.flush_all());
                say('a', UNLOGGED, written);
            } else {
                self.ok(self.store.maintain(&mut random, self.chosen.unlogged));
            }
        }
        Ok(())
    }

    fn look(&self) -> Result<(), String> {
        let tally = self.life.tally();
        let cut = |counts: &[AtomicU64]| Cut(counts.iter().map(|n| n.load(Ordering::SeqCst)).collect());
        while self.store.has_snapshots() && !self.is_over() {
            let least = cut(&self.written);
            let looked = self.store.look(&mut |subject| {
                let most = cut(&self.begun);
                tally.check(subject, &least, &most).map(drop)
            });
            self.ok(looked.map_err(|e| format!("beside writers: {e}")));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Name prefix of families that are created and dropped within a life. A killed one may leave some
/// of them to the next.
pub const PASSING: &str = "passing";

/// Returns the options of those families.
#[must_use]
pub fn passing(chosen: &Chosen) -> String {
    format!("{}merge_operator=uint64add;", chosen.family)
}

/// Returns the families of each life, by name, with all their options: the default one, which the
/// tally does not use, those of the tally, and the temporary ones present in `there`.
#[must_use]
pub fn families(chosen: &Chosen, there: &[String]) -> Vec<(String, String)> {
    let text = |operator: &str| format!("{}merge_operator={operator};", chosen.family);
    let all = FAMILIES.iter().map(|(name, operator)| ((*name).to_string(), text(operator)));
    let left = there.iter().filter(|name| name.starts_with(PASSING));
    let left = left.map(|name| (name.clone(), passing(chosen)));
    std::iter::once(("default".to_string(), chosen.family.clone())).chain(all).chain(left).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(seed: u64, number: u64) -> Life {
        Life { seed, number, from: Cut(vec![1, 2, 3, 4]), path: "/some where/db".into() }
    }

    #[test]
    fn a_life_passes_through_its_line() {
        let parsed = Life::parse(&life(7, 2).line()).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", life(7, 2)));
        assert!(Life::parse("7 2").is_err() && Life::parse("7 x 1,2,3,4 /db").is_err());
    }

    #[test]
    fn the_options_of_both_known_failures_are_drawn() {
        let all: Vec<Chosen> =
            (0..40).flat_map(|seed| (0..25).map(move |number| life(seed, number).options())).collect();
        let has = |wanted: &[&str]| {
            let text = |c: &Chosen| format!("{}{}", c.database, c.family);
            all.iter().filter(|c| wanted.iter().all(|option| text(c).contains(option))).count()
        };
        let unordered = [
            "unordered_write=true",
            "recycle_log_file_num=1",
            "wal_compression=kZSTD",
            "avoid_flush_during_recovery=true",
            "write_buffer_size=65536",
        ];
        let atomic = ["atomic_flush=true", "allow_mmap_writes=true", "enable_blob_files=true"];
        assert!(has(&unordered) > 5 && has(&atomic) > 50, "{} {}", has(&unordered), has(&atomic));
        assert!(all.iter().any(|c| c.unlogged) && all.iter().any(|c| c.manual_wal_flush));
        assert_eq!(life(3, 4).options(), life(3, 4).options());
        let styles = |seed| {
            (0..25)
                .map(move |number| life(seed, number).options().family.split(';').next().map(str::to_owned))
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert!((0..20).all(|seed| styles(seed).len() == 1));
    }
}
