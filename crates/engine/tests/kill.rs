//! A process that writes under load is killed (`SIGKILL`) at random moments, and the database is
//! opened again each time: no acknowledged write is lost, synced or not, because data that has left
//! the process survives its death; the surviving batches of each writer are a prefix, and no batch
//! survives without those that were acknowledged before it began; no unneeded file is left.
//!
//! The writer is this test's own program, run again with `KARST_KILLED_DIR` set. It prints on its
//! standard output when a batch begins and when it was acknowledged. The contents of a batch follow
//! from the seed, the writer and the batch's number, so the parent process can compute them too.
//! Some batches are ingested as files instead of written.
//!
//! Meanwhile the writer takes checkpoints and backups. Each completed one opens, and equals the
//! database at some moment between two known ones; an unfinished one does not obstruct the next. It
//! also exports a family, imports it again and clips the import, which then exists whole or not at
//! all.
//!
//! Backups are also restored over the database by a process that is killed: afterwards the
//! directory has the old database or the backup, whole, or no database.
//!
//! A second test makes writes whose double application would show (`karst_testkit::tally`):
//! counters, lists and single deletions, equal in several families, with options drawn for each
//! life (`karst_testkit::kills`).
//!
//! The default run kills 10 times in each test, `KARST_LONG_TESTS=1` 200 times.

#[path = "kill/copying.rs"]
mod copying;
#[path = "simulation/ingesting.rs"]
mod ingesting;
#[path = "kill/karst.rs"]
mod karst;
#[path = "kill/reading.rs"]
mod reading;
#[path = "kill/restoring.rs"]
mod restoring;
#[path = "kill/writing.rs"]
mod writing;

use ingesting::ingest;
use karst_engine::io::block_on;
use karst_engine::{ColumnFamily, Db, FlushOptions, Options, ReadOptions, WriteOptions};
use karst_testkit::asked::{long, number};
use karst_testkit::chronicle::{Chronicle, Cut, mark, marked};
use karst_testkit::kills::{self, Life, Living};
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use writing::batch;

const DIRECTORY: &str = "KARST_KILLED_DIR";
const SEED: &str = "KARST_SEED";
const KILLS: &str = "KARST_KILLS";
const TEST: &str = "nothing_acknowledged_is_lost_when_the_process_is_killed";
const WRITERS: usize = 4;
const FAMILIES: [&str; 2] = ["default", "second"];
/// Number of kills after which a new database is begun, so that checking its whole history stays
/// quick.
const KILLS_OF_ONE: u64 = 20;

/// Every other database recycles its logs, and two of four write them through mmap.
fn options(seed: u64) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;write_buffer_size=60000;\
                target_file_size_base=30000;max_bytes_for_level_base=100000;max_manifest_file_size=4000;\
                merge_operator={id=StringAppendOperator;delimiter=,;};enable_blob_files=true;min_blob_size=1000;\
                enable_blob_garbage_collection=true;level0_file_num_compaction_trigger=3";
    let database = seed / KILLS_OF_ONE;
    let options = Options::new().set_all(text).unwrap().db(move |db| {
        db.recycle_log_file_num = if database.is_multiple_of(2) { 2 } else { 0 };
        db.allow_mmap_writes = (database / 2).is_multiple_of(2);
    });
    // A family with blob files cannot be exported.
    options.column_family(FAMILIES[1], |family| family.enable_blob_files = false)
}

fn families(db: &Db) -> Vec<ColumnFamily> {
    FAMILIES.iter().map(|name| db.column_family(name).unwrap()).collect()
}

/// Draws the batches of one writer.
struct Drawing {
    chronicle: Chronicle,
    random: Random,
    writer: usize,
}

impl Drawing {
    fn new(seed: u64, writer: usize) -> Self {
        let random = Random::new(seed * 1000 + writer as u64);
        Self { chronicle: Chronicle::new(FAMILIES.len(), WRITERS), random, writer }
    }

    fn next(&mut self) -> (u64, Vec<Write>) {
        draw(&mut self.chronicle, &mut self.random, self.writer)
    }
}

fn draw(chronicle: &mut Chronicle, random: &mut Random, writer: usize) -> (u64, Vec<Write>) {
    let both = random.one_in(2);
    chronicle.begin(writer, if both { &[0, 1] } else { &[0] }, random)
}

/// Returns the number of batches of each writer that the database holds.
fn cut_of(db: &Db) -> Cut {
    let seen = (0..WRITERS).map(|writer| marked(db.get(mark(writer)).unwrap().as_deref()).unwrap());
    Cut(seen.collect())
}

/// Checks that the family has these entries and no others.
fn same_entries(db: &Db, family: &ColumnFamily, expected: &[karst_testkit::Entry]) {
    let mut cursor = db.iter_cf(&ReadOptions::default(), family).unwrap();
    cursor.seek_to_first().unwrap();
    for (key, value) in expected {
        assert!(cursor.valid(), "{} is missing, and all behind it", karst_testkit::show(key));
        assert_eq!(karst_testkit::show(cursor.key()), karst_testkit::show(key));
        assert!(cursor.value() == value, "the value of {}", karst_testkit::show(key));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid(), "{} was never written", karst_testkit::show(cursor.key()));
}

/// Runs the process that is killed.
fn write_until_killed(directory: &Path, seed: u64) -> ! {
    let db = Db::open_cf(directory, &options(seed), &FAMILIES).unwrap();
    let cut = cut_of(&db);
    let say = |what: char, writer: usize, number: u64| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{what} {writer} {number}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    // The test's name stands at the beginning of the current line.
    println!();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, batches) = (db.clone(), cut.0[writer]);
            scope.spawn(move || {
                let families = families(&db);
                let mut drawing = Drawing::new(seed, writer);
                (0..batches).for_each(|_| drop(drawing.next()));
                let mut syncs = Random::new(batches);
                loop {
                    let (number, changes) = drawing.next();
                    let batch = batch(&families, &changes).unwrap();
                    say('b', writer, number);
                    if syncs.one_in(24) {
                        let name = directory.with_file_name(format!("ingest-{writer}"));
                        let name = name.to_str().unwrap();
                        block_on(db.env(), ingest(&db, &families, &changes, name, &mut syncs)).unwrap();
                    } else {
                        let options = WriteOptions { sync: syncs.one_in(8), ..WriteOptions::default() };
                        db.write(&options, &batch).unwrap();
                    }
                    say('a', writer, number);
                }
            });
        }
        scope.spawn(|| copying::copy_until_killed(&db, directory, seed + cut.0.iter().sum::<u64>(), &say));
        scope.spawn(|| {
            let mut random = Random::new(cut.0.iter().sum());
            loop {
                std::thread::sleep(Duration::from_millis(random.below(80)));
                let all = families(&db);
                db.flush_cfs(&FlushOptions::default(), &[&all[random.index(all.len())]]).unwrap();
            }
        });
    });
    unreachable!("writers write until they are killed")
}

/// The parent's knowledge of the database in a directory.
struct Known {
    chronicle: Chronicle,
    randoms: Vec<Random>,
    seed: u64,
    told: copying::Told,
}

impl Known {
    /// Returns the knowledge of a database with the batches of `cut`.
    fn of(seed: u64, cut: &Cut) -> Self {
        let randoms = (0..WRITERS).map(|writer| Drawing::new(seed, writer).random).collect();
        let mut known = Self {
            chronicle: Chronicle::new(FAMILIES.len(), WRITERS),
            randoms,
            seed,
            told: Default::default(),
        };
        for (writer, batches) in cut.0.iter().enumerate() {
            for _ in 0..*batches {
                let number = known.begin(writer);
                known.chronicle.acknowledge(writer, number, false);
            }
        }
        known
    }

    fn begin(&mut self, writer: usize) -> u64 {
        draw(&mut self.chronicle, &mut self.randoms[writer], writer).0
    }

    /// Runs a writer and kills it after `after` acknowledgements; returns their number.
    fn run_and_kill(&mut self, directory: &Path, after: u64) -> u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .env(SEED, self.seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if after == 0 {
            // Kills it while it opens the database, or shortly after.
            std::thread::sleep(Duration::from_millis(self.randoms[0].clone().below(60)));
            child.kill().unwrap();
        }
        let (started, mut acknowledged) = (Instant::now(), 0);
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::result::Result::ok) {
            let parts: Vec<&str> = line.split(' ').collect();
            let [what, writer, number] = parts[..] else { continue };
            let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse::<u64>()) else { continue };
            if !matches!(what, "a" | "b") {
                self.told.hear(what, number, &self.chronicle);
                continue;
            }
            if what == "b" {
                assert_eq!(self.begin(writer), number, "the two sides draw different batches");
                continue;
            }
            self.chronicle.acknowledge(writer, number, false);
            acknowledged += 1;
            if acknowledged == after {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(
            status.code().is_none(),
            "the writer ended by itself, {:?} after its start: {status}",
            started.elapsed()
        );
        acknowledged
    }

    /// Opens the database that is left and compares it with what is known.
    fn check(&mut self, directory: &Path) -> Cut {
        copying::check(directory, self.seed, &self.told, &self.chronicle);
        let imported = copying::imported(directory, self.seed);
        let names: Vec<&str> = FAMILIES.into_iter().chain(imported.iter().map(String::as_str)).collect();
        let db = Db::open_cf(directory, &options(self.seed), &names).unwrap();
        let cut = cut_of(&db);
        copying::check_imported(&db, &self.told, &self.chronicle);
        for (number, family) in families(&db).iter().enumerate() {
            same_entries(&db, family, &self.chronicle.entries(number, &cut));
        }
        self.chronicle.survive(&cut, false).unwrap();
        copying::check_unfinished(&db, directory);
        db.close().unwrap();
        let (live, _) = db.live_file_names();
        let names = db.env().fs().list_dir(directory).unwrap();
        let leaked = names.iter().filter(|name| {
            let is_data = name.ends_with(".sst") || name.ends_with(".blob") || name.ends_with(".dbtmp");
            is_data && !live.iter().any(|l| l.trim_start_matches('/') == *name)
        });
        assert_eq!(leaked.collect::<Vec<_>>(), Vec::<&String>::new(), "files that nobody needs");
        cut
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let seed = number(SEED).unwrap_or(1);
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        write_until_killed(Path::new(&directory), seed);
    }
    let kills = number(KILLS).unwrap_or(if long() { 200 } else { 10 });
    let mut random = Random::new(seed);
    let mut place = None;
    let (mut total, mut imports) = (0, 0);
    for kill in 0..kills {
        if kill % KILLS_OF_ONE == 0 {
            let directory = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            place = Some((directory, Cut(vec![0; WRITERS]), seed + kill));
        }
        let (directory, cut, of_place) = place.as_mut().unwrap();
        let path = directory.path().join("db");
        let mut known = Known::of(*of_place, cut);
        let after = if random.one_in(8) { 0 } else { 1 + random.below(400) };
        total += known.run_and_kill(&path, after);
        *cut = known.check(&path);
        imports += known.told.imports();
    }
    println!("{total} writes and {imports} imports in {kills} lives");
    assert!(total > kills * 20, "{total} writes in {kills} lives");
}

const LIFE: &str = "KARST_KILLED_LIFE";
const COUNTING_TEST: &str = "nothing_counts_twice_when_the_process_is_killed";

/// KarstDB as the only engine.
struct Alone;

impl kills::Keeper for Alone {
    fn engines(&self) -> usize {
        1
    }

    fn name(&self, _engine: usize) -> String {
        "KarstDB".into()
    }

    fn command(&self, life: &Life) -> Result<Command, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args([COUNTING_TEST, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(LIFE, life.line());
        Ok(command)
    }

    fn check(&self, life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
        karst::check(life, at_least, at_most)
    }
}

#[test]
fn nothing_counts_twice_when_the_process_is_killed() {
    if let Ok(line) = std::env::var(LIFE) {
        let life = Life::parse(&line).unwrap();
        let store: Box<dyn Living> = Box::new(karst::Karst::open(&life).unwrap());
        return kills::live(&life, &*store).unwrap();
    }
    let (seed, kills) = (number(SEED).unwrap_or(1), number(KILLS).unwrap_or(if long() { 200 } else { 10 }));
    let folder = tempfile::Builder::new().prefix("kills").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    match kills::run(&Alone, folder.path(), seed, kills, long()) {
        Ok(report) => println!("{report:?}"),
        Err(e) => panic!("{e}\n{} is kept", folder.keep().display()),
    }
}

#[test]
fn a_restore_that_is_killed_leaves_a_whole_database_or_none() {
    restoring::restore_if_asked();
    let seed = number(SEED).unwrap_or(1);
    let folder = tempfile::Builder::new().prefix("restores").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    restoring::kill_restores(folder.path(), seed, if long() { 20 } else { 3 });
}
