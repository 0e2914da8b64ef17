//! The scripted use of the database during which one operation fails, and recovery after the error.

use crate::ingesting::ingest;
use crate::kinds::Nature;
use crate::reading::Reading;
use crate::writing::batch;
use karst_engine::{
    ColumnFamily, CompactRangeOptions, Db, Error, FlushOptions, Options, ReadOptions, WriteOptions,
};
use karst_io::{Env, Simulation, block_on};
use karst_testkit::chronicle::{Chronicle, Cut, mark, marked};
use karst_testkit::random::Random;
use karst_testkit::ways::differences;
use std::collections::{BTreeMap, BTreeSet};

const DIRECTORY: &str = "/db";
const FAMILIES: [&str; 2] = ["default", "second"];
/// Number of attempts after which a step must succeed; the fault occurs in the first.
const ATTEMPTS: u32 = 5;

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All data is present, and the database works.
    Right,
    /// The database can no longer be read or used, and returns errors.
    Refused,
    /// Batches from some point on are missing; `told` is true if the database reported it.
    Lost { told: bool },
}

/// Step of the script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Write(u32),
    /// A write by ingesting files.
    Ingest,
    Flush,
    SyncLog,
    Compact,
    CreateFamily,
    DropFamily,
    SetOptions(&'static str),
    Read,
    Close,
}

const STORY: [Step; 32] = [
    Step::Open,
    Step::Write(6),
    Step::Flush,
    Step::Write(6),
    Step::SyncLog,
    Step::CreateFamily,
    Step::Read,
    Step::Flush,
    Step::Ingest,
    Step::Write(4),
    Step::SetOptions("70000"),
    Step::Flush,
    Step::Compact,
    Step::Read,
    Step::Write(4),
    Step::Close,
    Step::Open,
    Step::Read,
    Step::DropFamily,
    Step::Write(4),
    Step::SetOptions("80000"),
    Step::Write(3),
    Step::Close,
    Step::Open,
    Step::Write(6),
    Step::Ingest,
    Step::Flush,
    Step::Compact,
    Step::Read,
    Step::Close,
    Step::Open,
    Step::Read,
];

pub(crate) struct Story {
    nature: Nature,
    chronicle: Chronicle,
    random: Random,
    db: Option<Db>,
    /// Texts of all errors.
    pub(crate) told: Vec<String>,
}

/// Reason why a run ended early.
struct Ended(End);

impl Story {
    pub(crate) fn new(nature: Nature) -> Self {
        let chronicle = Chronicle::new(FAMILIES.len(), 1);
        Self { nature, chronicle, random: Random::new(3), db: None, told: Vec::new() }
    }

    /// Runs the script on this machine.
    pub(crate) fn run(&mut self, simulation: &Simulation) -> End {
        simulation.set_most_steps(3_000_000);
        let options = options(simulation.env());
        let end = simulation.run(async {
            for step in STORY {
                if let Err(Ended(end)) = self.step(step, &options) {
                    return end;
                }
            }
            End::Right
        });
        self.db = None;
        end.expect("the power is on")
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    fn step(&mut self, step: Step, options: &Options) -> Result<(), Ended> {
        match step {
            Step::Open => self.open(options),
            Step::Write(count) => (0..count).try_for_each(|_| self.write(options, false)),
            Step::Ingest => self.write(options, true),
            Step::Read => self.read(),
            Step::Flush => self.try_hard(options, |db| {
                let families = families(db);
                db.flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>())
            }),
            Step::SyncLog => self.try_hard(options, |db| db.flush_wal(true)),
            Step::Compact => self.try_hard(options, |db| {
                let compact =
                    |family| db.compact_range_cf(&CompactRangeOptions::default(), family, None, None);
                families(db).iter().try_for_each(compact)
            }),
            Step::CreateFamily => self.try_hard(options, |db| match db.column_family("passing") {
                Some(_) => Ok(()),
                None => db.create_column_family("passing", options).map(drop),
            }),
            Step::DropFamily => self.try_hard(options, |db| match db.column_family("passing") {
                Some(family) => db.drop_column_family(&family),
                None => Ok(()),
            }),
            Step::SetOptions(size) => self.try_hard(options, |db| {
                db.set_options(db.default_column_family(), &[("write_buffer_size", size)])
            }),
            Step::Close => {
                if let Err(error) = self.db().close() {
                    self.note(&error);
                }
                self.db = None;
                Ok(())
            }
        }
    }

    /// Checks that an error names a file or the directory, and records its text.
    fn note(&mut self, error: &Error) {
        let text = error.to_string();
        // Any path will do, because the error may concern the parent of the database's directory.
        assert!(text.contains(" /"), "names no file: {text}");
        self.told.push(text);
    }

    /// Ends the run after a persistent error, which is allowed only if the fault has put wrong
    /// bytes on the disk.
    fn give_up(&self, error: &Error) -> Ended {
        assert!(
            self.nature == Nature::Silent,
            "it does not work again: {error}\ntold before: {:#?}",
            self.told
        );
        Ended(End::Refused)
    }

    /// Repeats a step until it succeeds.
    fn try_hard(
        &mut self,
        options: &Options,
        what: impl Fn(&Db) -> karst_engine::Result<()>,
    ) -> Result<(), Ended> {
        for attempt in 1.. {
            match what(self.db()) {
                Ok(()) => return Ok(()),
                Err(error) if attempt == ATTEMPTS => return Err(self.give_up(&error)),
                Err(error) => {
                    self.note(&error);
                    self.go_on(attempt, options)?;
                }
            }
        }
        unreachable!("attempts end")
    }

    /// Recovers from an error: resumes the database, or reopens it.
    fn go_on(&mut self, attempt: u32, options: &Options) -> Result<(), Ended> {
        if attempt < 3 {
            match self.db().resume() {
                Ok(()) => return Ok(()),
                Err(error) => self.note(&error),
            }
        }
        // The result is ignored, because the next opening reports any remaining problem.
        drop(self.db().close());
        self.db = None;
        self.open(options)
    }

    fn open(&mut self, options: &Options) -> Result<(), Ended> {
        for attempt in 1.. {
            let found = Db::list_column_families(DIRECTORY, options).unwrap_or_default();
            let mut names = FAMILIES.to_vec();
            names.extend(found.iter().map(|name| &**name).filter(|name| !FAMILIES.contains(name)));
            match Db::open_cf(DIRECTORY, options, &names) {
                Ok(db) => {
                    self.db = Some(db);
                    break;
                }
                Err(error) if attempt == ATTEMPTS => return Err(self.give_up(&error)),
                Err(error) => self.note(&error),
            }
        }
        let cut = loop {
            match self.db().get(mark(0)) {
                Ok(value) => break Cut(vec![marked(value.as_deref()).expect("a number")]),
                Err(error) if self.nature == Nature::Silent && self.told.len() > ATTEMPTS as usize => {
                    return Err(self.give_up(&error));
                }
                Err(error) => self.note(&error),
            }
            assert!(self.told.len() < 50, "{:#?}", self.told);
        };
        if self.nature == Nature::Silent && cut.0[0] < self.chronicle.acknowledged().0[0] {
            // The remaining batches must be complete; the run does not continue.
            self.contents(&cut)?;
            return Err(Ended(End::Lost { told: self.db().log_damage().is_some() || !self.told.is_empty() }));
        }
        self.chronicle.survive(&cut, false).unwrap_or_else(|e| panic!("{e}\ntold before: {:#?}", self.told));
        Ok(())
    }

    fn write(&mut self, options: &Options, ingests: bool) -> Result<(), Ended> {
        let (number, changes) = self.chronicle.begin(0, &[0, 1], &mut self.random);
        let write = WriteOptions { sync: ingests || self.random.one_in(2), ..WriteOptions::default() };
        for attempt in 1.. {
            let (db, families) = (self.db.clone().expect("it is open"), families(self.db()));
            let outcome = if ingests {
                block_on(db.env(), ingest(&db, &families, &changes, "/ingest", &mut self.random))
            } else {
                db.write(&write, &batch(&families, &changes).unwrap())
            };
            drop((db, families));
            match outcome {
                Ok(()) => {
                    self.chronicle.acknowledge(0, number, write.sync);
                    return Ok(());
                }
                Err(error) if attempt == ATTEMPTS => return Err(self.give_up(&error)),
                Err(error) => {
                    self.note(&error);
                    self.go_on(attempt, options)?;
                    if self.chronicle.acknowledged() == Cut(vec![number])
                        || self.chronicle.begun().0[0] < number
                    {
                        // The database was reopened and has the batch, or has never had it.
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Ended> {
        self.contents(&self.chronicle.acknowledged())
    }

    /// Asserts that the database holds exactly the entries of a cut, in each way of reading. An
    /// error is retried.
    fn contents(&mut self, cut: &Cut) -> Result<(), Ended> {
        for (number, name) in FAMILIES.iter().enumerate() {
            let right: BTreeMap<_, _> = self.chronicle.entries(number, cut).into_iter().collect();
            for attempt in 1.. {
                let store = Reading { db: self.db(), options: ReadOptions::default() };
                match differences(&store, name, &right, BTreeSet::new()) {
                    Ok(wrong) => {
                        assert!(wrong.is_empty(), "{wrong:#?}\ntold before: {:#?}", self.told);
                        break;
                    }
                    Err(text) => {
                        assert!(text.contains(DIRECTORY), "names no file: {text}");
                        self.told.push(text.clone());
                        if attempt == ATTEMPTS {
                            assert!(self.nature == Nature::Silent, "it does not work again: {text}");
                            return Err(Ended(End::Refused));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn options(env: &Env) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;ttl=0;\
                periodic_compaction_seconds=0;target_file_size_base=4000;block_size=500;max_manifest_file_size=1500;\
                max_manifest_space_amp_pct=50;enable_blob_files=true;min_blob_size=100;max_open_files=20;\
                merge_operator={id=StringAppendOperator;delimiter=,;}";
    let options = Options::new().set_all(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    // No block cache, so that every read is a read of a file.
    options.env(env.clone()).block_cache_bytes(0)
}

fn families(db: &Db) -> Vec<ColumnFamily> {
    FAMILIES.iter().map(|name| db.column_family(name).expect("it was made")).collect()
}
