//! Databases that KarstDB writes and RocksDB 11.8 reads, over the option matrix; then ten rounds in
//! which both write to the same database in turns, random histories with flushes, compactions and
//! reopenings, each turn checked by the other against a ledger.

use crate::karst::{Form, Karst};
use crate::matrix::cells::{Cell, cells};
use crate::matrix::{features, option_string};
use crate::rocks::{Rocks, descriptors, options};
use crate::store::KarstWriter;
use karst_testkit::expectation::Expectation;
use karst_testkit::matrix::Family;
use karst_testkit::script::{Ledger, Plan, Script, Step, Write, Writes};
use karst_testkit::subject::Subject;
use rocksdb::{ColumnFamily, DB, WriteBatch};
use std::path::{Path, PathBuf};

/// Number of turns.
const ROUNDS: u64 = 10;
/// Number of steps of one turn.
const STEPS: usize = 80;

/// Runs every cell that KarstDB can write, or those in `names`, in a temporary folder.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("karst-judge-written-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut failures = Vec::new();
    for cell in cells() {
        // Cells that only RocksDB's own calls write are read in the other half.
        let foreign = cell.entities || cell.timed_puts || cell.ingest || cell.two_phase;
        if foreign || (!names.is_empty() && !names.contains(&cell.name.as_str())) {
            continue;
        }
        let name = cell.name.clone();
        match Duel::new(cell, &folder).fight() {
            Ok(answers) => println!("written {name:32} {answers} answers"),
            Err(e) => {
                eprintln!("FAILED written {name}: {e}");
                failures.push(format!("cell {name}: {e}"));
            }
        }
    }
    if failures.is_empty() {
        return std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()));
    }
    Err(format!("{}\nthe databases are left in {}", failures.join("\n"), folder.display()))
}

/// One cell.
struct Duel {
    cell: Cell,
    plan: Plan,
    path: PathBuf,
}

impl Duel {
    fn new(cell: Cell, folder: &Path) -> Duel {
        let plan = Plan {
            families: cell.families.clone(),
            delete_ranges: cell.delete_ranges,
            single_deletes: cell.single_deletes,
        };
        let path = folder.join(&cell.name);
        Duel { cell, plan, path }
    }

    fn karst(&self) -> Result<KarstWriter, String> {
        KarstWriter::open(&self.path, &self.cell.db_options, &self.plan.families)
    }

    fn rocks(&self) -> Result<RocksWriter, String> {
        RocksWriter::open(&self.path, &self.cell.db_options, &self.plan.families)
    }

    fn fight(self) -> Result<usize, String> {
        let seed = self.cell.name.bytes().fold(3_u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        let (mut script, mut ledger) = (Script::new(&self.plan, seed), Ledger::new(&self.plan));
        let mut karst = self.karst()?;
        for family in 0..self.plan.families.len() {
            // The flush is manual, because due compactions depend on the flushes of memtables, and
            // blobs that begin below level 0 might reach no file. It takes two flushes, because a
            // compaction of a single table only moves it.
            let begins_below =
                self.plan.families[family].options.iter().any(|o| o.starts_with("blob_file_starting_level="));
            let bulk = script.bulk(family);
            let half = bulk.len() / 2;
            for (number, step) in bulk.iter().enumerate() {
                if begins_below && number == half {
                    turn(&mut karst, &mut ledger, &Step::Flush(family))?;
                }
                turn(&mut karst, &mut ledger, step)?;
            }
            let step = if begins_below { Step::Compact(family) } else { Step::Flush(family) };
            turn(&mut karst, &mut ledger, &step)?;
        }
        karst.settle()?;
        // Deletes, merges and blobs must remain in the files until these are checked.
        karst.keep_newest()?;
        for _ in 0..3 {
            for _ in 0..20 {
                turn(&mut karst, &mut ledger, &script.batch(20))?;
            }
            for family in 0..self.plan.families.len() {
                turn(&mut karst, &mut ledger, &Step::Flush(family))?;
            }
        }
        for _ in 0..20 {
            turn(&mut karst, &mut ledger, &script.batch(20))?;
        }
        karst.close()?;
        let mut answers = self.ask_rocks(&ledger, "what KarstDB wrote")?;
        features::prove(&self.cell, &self.path)?;
        for round in 0..ROUNDS {
            let when = format!("round {round}");
            if round % 2 == 0 {
                let mut rocks = self.rocks()?;
                for _ in 0..STEPS {
                    turn(&mut rocks, &mut ledger, &script.step(16))?;
                }
                drop(rocks);
                answers += self.ask_karst(&ledger, round, &when)?;
            } else {
                let mut karst = self.karst()?;
                for _ in 0..STEPS {
                    turn(&mut karst, &mut ledger, &script.step(16))?;
                }
                karst.close()?;
                answers += self.ask_rocks(&ledger, &when)?;
            }
        }
        std::fs::remove_dir_all(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?;
        Ok(answers)
    }

    fn ask(&self, store: &dyn Subject, ledger: &Ledger, when: &str) -> Result<usize, String> {
        let expectation = Expectation::record(&ledger.model()?, &ledger.inquiries(16), 2026)?;
        let compared = expectation.check(store).map_err(|e| format!("{when}: {e}"))?;
        Ok(compared.entries + compared.keys + compared.moves)
    }

    fn ask_karst(&self, ledger: &Ledger, round: u64, when: &str) -> Result<usize, String> {
        let form = Form::ALL[(round / 2 % 3) as usize];
        self.ask(&Karst::open(&self.path, form)?, ledger, when)
    }

    fn ask_rocks(&self, ledger: &Ledger, when: &str) -> Result<usize, String> {
        let strings = option_strings(&self.plan.families);
        let prefixed = self.plan.families.iter().filter(|f| f.prefix.is_some()).map(|f| f.name.to_string());
        let store = Rocks::open(&self.path, &self.cell.db_options.join(";"), &strings, prefixed.collect())?;
        self.ask(&store, ledger, when)
    }
}

fn option_strings(families: &[Family]) -> Vec<(String, String)> {
    families.iter().map(|f| (f.name.to_string(), option_string(f))).collect()
}

fn turn(store: &mut dyn Writes, ledger: &mut Ledger, step: &Step) -> Result<(), String> {
    store.apply(step).map_err(|e| format!("{}, {}: {e}", store.name(), step.name()))?;
    ledger.apply(step);
    Ok(())
}

/// RocksDB as a store that histories are written to.
struct RocksWriter {
    path: PathBuf,
    db_options: String,
    families: Vec<Family>,
    /// Invariant: absent only between closing and opening.
    db: Option<DB>,
}

impl RocksWriter {
    fn open(path: &Path, db_options: &[String], families: &[Family]) -> Result<RocksWriter, String> {
        let db_options = format!(
            "create_if_missing=true;create_missing_column_families=true;avoid_flush_during_shutdown=true;{}",
            db_options.join(";")
        );
        let mut writer =
            RocksWriter { path: path.to_path_buf(), db_options, families: families.to_vec(), db: None };
        writer.reopen()?;
        Ok(writer)
    }

    fn reopen(&mut self) -> Result<(), String> {
        drop(self.db.take());
        let families = descriptors(&option_strings(&self.families))?;
        let db = DB::open_cf_descriptors(&options(&self.db_options)?, &self.path, families);
        self.db = Some(db.map_err(|e| e.to_string())?);
        Ok(())
    }

    fn db(&self) -> &DB {
        self.db.as_ref().expect("it is open")
    }

    fn family(&self, number: usize) -> &ColumnFamily {
        self.db().cf_handle(self.families[number].name).expect("it was opened with the database")
    }

    fn batch(&self, writes: &[Write]) -> WriteBatch {
        let mut batch = WriteBatch::default();
        for write in writes {
            match write {
                Write::Put { family, key, value } => batch.put_cf(self.family(*family), key, value),
                Write::Delete { family, key } => batch.delete_cf(self.family(*family), key),
                Write::SingleDelete { family, key } => batch.single_delete_cf(self.family(*family), key),
                Write::DeleteRange { family, begin, end } => {
                    batch.delete_range_cf(self.family(*family), begin, end);
                }
                Write::Merge { family, key, operand } => batch.merge_cf(self.family(*family), key, operand),
            }
        }
        batch
    }
}

impl Writes for RocksWriter {
    fn name(&self) -> String {
        "RocksDB 11.8".into()
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        let none = None::<&[u8]>;
        match step {
            Step::Write(writes) => self.db().write(self.batch(writes)).map_err(|e| e.to_string()),
            Step::Flush(family) => self.db().flush_cf(self.family(*family)).map_err(|e| e.to_string()),
            Step::Compact(family) => {
                self.db().compact_range_cf(self.family(*family), none, none);
                Ok(())
            }
            Step::CompactRange { family, begin, end } => {
                self.db().compact_range_cf(self.family(*family), Some(begin), Some(end));
                Ok(())
            }
            Step::Reopen => self.reopen(),
        }
    }
}
