//! Opens a state that a crash has left, compares it with the known writes, uses it and reopens it.

use crate::reading::Reading;
use crate::workload::{DIRECTORY, Known, Passing, Plan, passing_key};
use crate::writing::batch;
use karst_engine::{Db, Error, ErrorKind, FlushOptions, Options, ReadOptions, WriteOptions};
use karst_io::Simulation;
use karst_testkit::chronicle::{Cut, mark, marked};
use karst_testkit::random::Random;
use karst_testkit::ways::differences;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of wrong keys in a failure's message.
const TOLD: usize = 8;

/// Result of checking a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All required batches are present; `lost` acknowledged unsynced batches are missing.
    Recovered { lost: u64 },
    /// The recovery mode refuses such a state.
    Refused,
}

/// Kind of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'a> {
    /// True if only the process has ended, so that all completed writes of files survive.
    pub(crate) whole: bool,
    /// A file whose content the crash garbled.
    pub(crate) damaged: Option<&'a Path>,
}

impl State<'_> {
    /// Returns true if the database may refuse to open with this error.
    ///
    /// Compat: a MANIFEST whose last record is complete but wrong is refused, as by RocksDB,
    /// because the record may have been acknowledged. A recovery mode that tolerates no damage
    /// refuses a torn log.
    fn may_refuse(&self, plan: &Plan, error: &Error) -> bool {
        let manifest = self.damaged.filter(|path| path.to_string_lossy().contains("/MANIFEST-"));
        let names_it = manifest.is_some_and(|path| error.to_string().contains(&*path.to_string_lossy()));
        error.kind() == ErrorKind::Corruption && (names_it || (plan.bears_no_damage() && !self.whole))
    }
}

/// Checks the database of `simulation`.
pub(crate) fn check(plan: &Plan, known: &Known, state: State<'_>, simulation: &Simulation) -> Outcome {
    simulation.set_most_steps(5_000_000);
    let options = plan.options(simulation.env());
    simulation.run(async { open_and_check(plan, known.clone(), state, &options) }).expect("the power is on")
}

fn open_and_check(plan: &Plan, mut known: Known, state: State<'_>, options: &Options) -> Outcome {
    let db = match plan.open(options) {
        Ok(db) => db,
        Err(e) if state.may_refuse(plan, &e) => return Outcome::Refused,
        Err(e) => panic!("opening: {e}"),
    };
    let acknowledged = known.chronicle.acknowledged();
    let cut = cut(plan, &db);
    let power = !state.whole || plan.buffers_log;
    known.chronicle.survive(&cut, power).unwrap_or_else(|e| panic!("{e}"));
    let passing = passing(&db, plan);
    if passing != known.passing {
        let allowed = known.under_way.as_ref() == Some(&passing);
        assert!(allowed, "families {passing:?}, not {:?} or {:?}", known.passing, known.under_way);
    }
    contents(plan, &known, &db, &cut);
    // Any state that opens must accept writes.
    let families = plan.families(&db);
    let mut random = Random::new(7);
    for writer in 0..plan.writers {
        let numbers: Vec<usize> =
            if plan.unlogged && writer == 0 { vec![0] } else { (0..plan.families).collect() };
        let (number, changes) = known.chronicle.begin(writer, &numbers, &mut random);
        db.write(&WriteOptions::synced(), &batch(&families, &changes).unwrap()).expect("write");
        known.chronicle.acknowledge(writer, number, true);
    }
    let cut = known.chronicle.acknowledged();
    contents(plan, &known, &db, &cut);
    db.flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>()).expect("flush");
    drop(families);
    db.close().expect("close");
    drop(db);
    let db = plan.open(options).unwrap_or_else(|e| panic!("opening again: {e}"));
    assert_eq!(self::passing(&db, plan), passing, "opened again");
    contents(plan, &known, &db, &cut);
    db.close().expect("close");
    nothing_is_left_over(&db);
    let lost = acknowledged.0.iter().zip(&cut.0).map(|(before, now)| (before + 1).saturating_sub(*now)).sum();
    Outcome::Recovered { lost }
}

/// Returns the number of batches of each writer that the database holds.
fn cut(plan: &Plan, db: &Db) -> Cut {
    let number = |writer| marked(db.get(mark(writer)).expect("get").as_deref()).expect("a number");
    Cut((0..plan.writers).map(number).collect())
}

/// Asserts that the database holds exactly the entries of a cut, in each way of reading.
fn contents(plan: &Plan, known: &Known, db: &Db, cut: &Cut) {
    let store = Reading { db, options: ReadOptions::default() };
    for (number, name) in plan.names().iter().enumerate() {
        let right: BTreeMap<_, _> = known.chronicle.entries(number, cut).into_iter().collect();
        let wrong = differences(&store, name, &right, BTreeSet::new()).unwrap_or_else(|e| panic!("{e}"));
        let told = wrong.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(wrong.is_empty(), "{cut:?}, {} wrong:\n  {told}", wrong.len());
    }
}

/// Returns the column families that come and go, with their numbers of keys; their keys must be the
/// first ones written.
fn passing(db: &Db, plan: &Plan) -> Passing {
    let mut all = Passing::new();
    for family in db.column_families().iter().filter(|family| !plan.names().contains(&family.name())) {
        let mut cursor = db.iter_cf(&ReadOptions::default(), family).expect("iterator");
        let mut count = 0;
        cursor.seek_to_first().expect("iterator");
        while cursor.valid() {
            assert_eq!(cursor.key(), passing_key(count), "{}", family.name());
            count += 1;
            cursor.next().expect("iterator");
        }
        all.insert(family.name().to_owned(), count);
    }
    all
}

/// Asserts, after closing, that the directory holds no table, blob file, MANIFEST or temporary file
/// that the database does not need.
fn nothing_is_left_over(db: &Db) {
    let (live, _) = db.live_file_names();
    let mut names = db.env().fs().list_dir(Path::new(DIRECTORY)).expect("list");
    names.retain(|name| {
        let kinds = [".sst", ".blob", ".dbtmp"];
        let stored = name.starts_with("MANIFEST-") || kinds.iter().any(|kind| name.ends_with(kind));
        stored && !live.iter().any(|live| live.trim_start_matches('/') == name)
    });
    assert!(names.is_empty(), "files that nobody needs: {names:?}; needed: {live:?}");
}
