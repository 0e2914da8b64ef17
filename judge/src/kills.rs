//! The kill loop (`karst_testkit::kills`) with both engines: lives of KarstDB and of RocksDB 11.8
//! on one directory, drawn by the seed. After each life both open the directory read-only and must
//! read equal contents.
//!
//! The database holds counters, which show a batch that is applied twice (`karst_testkit::tally`).

#[path = "../../crates/engine/tests/kill/karst.rs"]
mod karst;

use crate::rocks::Rocks;
use karst_testkit::chronicle::Cut;
use karst_testkit::kills::{self, Keeper, Life, Living, families};
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use karst_testkit::subject::Subject;
use rocksdb::{ColumnFamily, DB, FlushOptions, Options, WriteBatch, WriteOptions};
use std::path::PathBuf;
use std::process::Command;

/// Both engines, in the order of their numbers.
struct Both {
    program: PathBuf,
}

const NAMES: [&str; 2] = ["KarstDB", "RocksDB 11.8"];

/// `--kills N`, `--seed S`, `--folder DIR`.
pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    let (mut count, mut seed, mut folder) = (200, 1, std::env::temp_dir());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: which?"))?;
        let number = || value.parse().map_err(|e| format!("{word} {value}: {e}"));
        match *word {
            "--kills" => count = number()?,
            "--seed" => seed = number()?,
            "--folder" => folder = PathBuf::from(value),
            _ => return Err(format!("kills takes --kills, --seed and --folder, not {word}")),
        }
    }
    let folder = folder.join(format!("karst-judge-kills-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let both = Both { program: std::env::current_exe().map_err(|e| e.to_string())? };
    println!("kills: seed {seed}");
    let report = kills::run(&both, &folder, seed, count, true)?;
    println!("kills of both engines: {report:?}, nothing was wrong");
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// One life, in a process of its own.
pub(crate) fn live(line: &str) -> Result<(), String> {
    let life = Life::parse(line)?;
    let store: Box<dyn Living> = match life.engine(NAMES.len()) {
        0 => Box::new(karst::Karst::open(&life)?),
        _ => Box::new(RocksDb::open(&life)?),
    };
    kills::live(&life, &*store)
}

impl Keeper for Both {
    fn engines(&self) -> usize {
        NAMES.len()
    }

    fn name(&self, engine: usize) -> String {
        NAMES[engine].into()
    }

    fn command(&self, life: &Life) -> Result<Command, String> {
        let mut command = Command::new(&self.program);
        command.args(["kills-life", &life.line()]);
        Ok(command)
    }

    // RocksDB 11.8 hangs in about one of a thousand lives, in the middle of writing: with
    // `unordered_write`, or with writers stopped for memtables that no job flushes. Its LOG ends.
    fn may_hang(&self, engine: usize) -> bool {
        engine == 1
    }

    fn check(&self, life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
        // Both are checked even if the first fails, because the second result tells whose fault it
        // is.
        let ours = karst::check(life, at_least, at_most);
        let theirs = check_rocks(life, at_least, at_most);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if ours == theirs => Ok(ours),
            (ours, theirs) => Err(format!("KarstDB: {}\nRocksDB: {}", said(ours), said(theirs))),
        }
    }
}

fn said(result: Result<Cut, String>) -> String {
    result.map_or_else(|e| e, |cut| format!("all is right with {cut:?}"))
}

fn check_rocks(life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
    let chosen = life.options();
    let rocks = Rocks::open(&life.path, &chosen.database, &families(&chosen, &[]), Vec::new())
        .map_err(|e| format!("read-only: {e}"))?;
    life.tally().check(&rocks, at_least, at_most)
}

/// RocksDB in a life.
struct RocksDb(Rocks);

impl RocksDb {
    fn open(life: &Life) -> Result<Self, String> {
        let chosen = life.options();
        let says = |option: &str| chosen.database.contains(option);
        // With these options and manual_wal_flush RocksDB 11.8 locks the mutex of its log a second
        // time on the thread that holds it (`ConcurrentWriteGroupToWAL`, then `WriteToWAL`) and
        // hangs.
        let locks_up = says("unordered_write=true;") && says("two_write_queues=false;");
        let database = match locks_up {
            true => chosen.database.replace("manual_wal_flush=true;", "manual_wal_flush=false;"),
            false => chosen.database.clone(),
        };
        // An error means that there is no database yet.
        let there = DB::list_cf(&Options::default(), &life.path).unwrap_or_default();
        Rocks::open_for_writing(&life.path, &database, &families(&chosen, &there)).map(Self)
    }

    fn family(&self, number: usize) -> &ColumnFamily {
        self.0.family(&self.0.families()[number]).expect("it was opened with the database")
    }
}

fn text(error: rocksdb::Error) -> String {
    error.to_string()
}

impl Living for RocksDb {
    fn write(&self, changes: &[Write], sync: bool, unlogged: bool) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Write::Put { family, key, value } => batch.put_cf(self.family(*family), key, value),
                Write::Delete { family, key } => batch.delete_cf(self.family(*family), key),
                Write::SingleDelete { family, key } => batch.single_delete_cf(self.family(*family), key),
                Write::DeleteRange { family, begin, end } => {
                    batch.delete_range_cf(self.family(*family), begin, end);
                }
                Write::Merge { family, key, operand } => batch.merge_cf(self.family(*family), key, operand),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        options.disable_wal(unlogged);
        self.0.db().write_opt(batch, &options).map_err(text)
    }

    fn flush_wal(&self) -> Result<(), String> {
        self.0.db().flush_wal(false).map_err(text)
    }

    fn flush_all(&self) -> Result<(), String> {
        let all: Vec<&ColumnFamily> =
            (0..self.0.families().len()).map(|number| self.family(number)).collect();
        self.0.db().flush_cfs_opt(&all, &FlushOptions::default()).map_err(text)
    }

    fn maintain(&self, random: &mut Random, together: bool) -> Result<(), String> {
        let one = self.family(random.index(self.0.families().len()));
        match random.below(16) {
            0 => {
                self.0.db().compact_range_cf(one, None::<&[u8]>, None::<&[u8]>);
                Ok(())
            }
            1 => self.flush_wal(),
            2..=5 => self.flush_all(),
            _ if together => self.flush_all(),
            6..=8 => self.0.db().flush_cf(one).map_err(text),
            _ => {
                let mut options = FlushOptions::default();
                options.set_wait(false);
                match self.0.db().flush_cf_opt(one, &options) {
                    // Writers are stopped, and the flush must not wait for them.
                    Err(e) if e.kind() == rocksdb::ErrorKind::TryAgain => Ok(()),
                    flushed => flushed.map_err(text),
                }
            }
        }
    }

    fn has_snapshots(&self) -> bool {
        // With `unordered_write` RocksDB's snapshots change, and RocksDB is not under test here.
        false
    }

    fn look(&self, at: &mut dyn FnMut(&dyn Subject) -> Result<(), String>) -> Result<(), String> {
        at(&self.0)
    }

    fn close(&self) -> Result<(), String> {
        // Dropping the database does the rest.
        self.0.db().cancel_all_background_work(true);
        Ok(())
    }
}
