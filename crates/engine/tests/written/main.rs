//! Databases that KarstDB writes, one per cell of the option matrix, through its real write path:
//! put, delete, single delete, merge, range delete, several column families, blob files, flushes,
//! compactions, an unflushed log. Debian's RocksDB 7.8 tools then read them, check them, write and
//! compact them, and KarstDB reads them and writes more.

#[path = "../interop/karst.rs"]
mod karst;
mod store;
#[path = "../kill/writing.rs"]
mod writing;

use karst::{Form, Karst};
use karst_testkit::asked;
use karst_testkit::expectation::Expectation;
use karst_testkit::matrix::{Cell, Family, cells};
use karst_testkit::rocksdb_tools as tools;
use karst_testkit::script::{Ledger, Merging, Plan, Script, Step, Write, Writes};
use karst_testkit::subject::Subject;
use std::path::Path;
use std::sync::Mutex;
use store::KarstWriter;

/// The newest format version of tables that RocksDB 7.8 reads.
const NEWEST_FOR_7_8: u32 = 5;

/// A cell of the matrix and the plan by which KarstDB writes it.
struct Written {
    cell: Cell,
    plan: Plan,
    db_options: Vec<String>,
    /// True if KarstDB, in its second part, also compacts manually, flushes at random and reopens.
    manual: bool,
}

impl Written {
    fn new(mut cell: Cell, manual: bool) -> Written {
        for family in &mut cell.families {
            if !family.table.iter().any(|line| line.starts_with("format_version=")) {
                family.table.push(format!("format_version={NEWEST_FOR_7_8}"));
            }
        }
        let plan = Plan {
            families: cell.families.clone(),
            delete_ranges: cell.delete_ranges,
            single_deletes: cell.name.contains("single-deletes"),
        };
        let db_options = cell.db_options.iter().map(|o| (*o).to_string()).collect();
        Written { cell, plan, db_options, manual }
    }

    fn open(&self, path: &Path) -> Result<KarstWriter, String> {
        KarstWriter::open(path, &self.db_options, &self.plan.families)
    }

    /// Runs the whole test of the cell in `folder`. Returns the number of answers compared.
    fn check(&self, folder: &Path) -> Result<usize, String> {
        let path = folder.join(self.cell.name);
        let seed = self
            .cell
            .name
            .bytes()
            .fold(5 + asked::seed(), |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        let (mut script, mut ledger) = (Script::new(&self.plan, seed), Ledger::new(&self.plan));
        let mut store = self.open(&path)?;
        self.write(&mut store, &mut script, &mut ledger)?;
        let expectation = expectation(&ledger)?;
        let open = Karst::of(store.db().clone(), Form::Sync)?;
        let mut compared = ask(&open, &expectation, "while it is open")?;
        drop(open);
        store.close()?;
        for form in Form::ALL {
            compared += ask(&Karst::open(&path, form)?, &expectation, "when it was closed")?;
        }
        self.read_by_tools(&path, &ledger)?;
        self.cell.prove_files(&path)?;
        self.written_by_tools(&path, &mut ledger)?;
        let expectation = self::expectation(&ledger)?;
        for form in Form::ALL {
            compared += ask(&Karst::open(&path, form)?, &expectation, "after RocksDB wrote to it")?;
        }
        // KarstDB continues: it recovers what RocksDB left, writes to it and compacts it.
        let mut store = self.open(&path)?;
        for _ in 0..150 {
            let step = if self.manual { script.step(12) } else { script.batch(12) };
            one(&mut store, &mut ledger, &step)?;
        }
        for family in 0..self.plan.families.len() {
            let step = if self.manual { Step::Compact(family) } else { Step::Flush(family) };
            one(&mut store, &mut ledger, &step)?;
        }
        store.settle()?;
        one(&mut store, &mut ledger, &script.batch(20))?;
        store.close()?;
        let expectation = self::expectation(&ledger)?;
        compared += ask(&Karst::open(&path, Form::Sync)?, &expectation, "after it was written once more")?;
        self.read_by_tools(&path, &ledger)?;
        Ok(compared)
    }

    /// Writes all keys and compacts them; then adds newer files in L0 and a log tail that no file
    /// holds.
    fn write(&self, store: &mut KarstWriter, script: &mut Script, ledger: &mut Ledger) -> Result<(), String> {
        for family in 0..self.plan.families.len() {
            for step in script.bulk(family) {
                one(store, ledger, &step)?;
            }
            one(store, ledger, &Step::Flush(family))?;
        }
        store.settle()?;
        one(store, ledger, &Step::Reopen)?;
        // Keeps deletions, merges and blobs in the files until they are inspected.
        store.keep_newest()?;
        for round in 0..4 {
            for _ in 0..30 {
                one(store, ledger, &script.batch(20))?;
            }
            if round < 3 {
                for family in 0..self.plan.families.len() {
                    one(store, ledger, &Step::Flush(family))?;
                }
            }
        }
        Ok(())
    }

    /// Asserts that ldb, sst_dump and db_bench find exactly the content of the ledger.
    fn read_by_tools(&self, path: &Path, ledger: &Ledger) -> Result<(), String> {
        let said = tools::ldb(path, &["checkconsistency"], b"")?;
        if said.trim() != "OK" {
            return Err(format!("ldb checkconsistency said: {said}"));
        }
        for (family, wanted) in self.plan.families.iter().zip(ledger.contents()) {
            let found = tools::ldb_scan(path, family.name)?;
            if found != wanted {
                let at = found.iter().zip(&wanted).position(|(a, b)| a != b);
                return Err(format!(
                    "ldb scan of {}: {} entries, not {}; the first that differs is number {at:?}",
                    family.name,
                    found.len(),
                    wanted.len()
                ));
            }
        }
        tools::verify_tables(path)
    }

    /// RocksDB puts, deletes, deletes a range, and compacts.
    fn written_by_tools(&self, path: &Path, ledger: &mut Ledger) -> Result<(), String> {
        for (number, family) in self.plan.families.iter().enumerate() {
            let key = |i: u64| family.keys.key(i);
            let puts: Vec<_> =
                (0..family.bulk).step_by(7).map(|i| (key(i), family.values.value(i, 77))).collect();
            tools::ldb_load(path, family.name, &self.cell.ldb_flags, &puts)?;
            let puts = puts.into_iter().map(|(key, value)| Write::Put { family: number, key, value });
            ledger.apply(&Step::Write(puts.collect()));
            let deleted: Vec<_> = (3..family.bulk).step_by(31).map(key).collect();
            tools::ldb_delete(path, family.name, &self.cell.ldb_flags, &deleted)?;
            let deletes = deleted.into_iter().map(|key| Write::Delete { family: number, key });
            ledger.apply(&Step::Write(deletes.collect()));
            let mut ends = [key(40), key(52)];
            ends.sort_by(|a, b| family.order.compare(a, b));
            tools::ldb_delete_range(path, family.name, &self.cell.ldb_flags, &ends[0], &ends[1])?;
            let [begin, end] = ends;
            ledger.apply(&Step::Write(vec![Write::DeleteRange { family: number, begin, end }]));
            if number == 0 {
                let mut args = vec!["compact"];
                args.extend(&self.cell.ldb_flags);
                tools::ldb(path, &args, b"")?;
            }
        }
        Ok(())
    }
}

/// Returns the answers that a store with the content of the ledger must give.
fn expectation(ledger: &Ledger) -> Result<Expectation, String> {
    Expectation::record(&ledger.model()?, &ledger.inquiries(24), 2026)
}

/// Queries a store. Returns the number of answers compared.
fn ask(store: &dyn Subject, expectation: &Expectation, when: &str) -> Result<usize, String> {
    let compared = expectation.check(store).map_err(|e| format!("{when}: {e}"))?;
    Ok(compared.entries + compared.keys + compared.moves)
}

fn one(store: &mut KarstWriter, ledger: &mut Ledger, step: &Step) -> Result<(), String> {
    store.apply(step).map_err(|e| format!("{}: {e}", step.name()))?;
    ledger.apply(step);
    Ok(())
}

#[test]
fn what_karstdb_writes_rocksdb_7_8_reads_checks_and_goes_on_with() {
    check_cells(false);
}

#[test]
fn and_so_it_is_when_manual_compactions_and_reopenings_come_in_between() {
    check_cells(true);
}

/// Share of cells that the default form tests with manual compactions, because each takes longer.
const MANUAL_ONE_IN: usize = 6;

fn check_cells(manual: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // `KARST_CELLS` selects cells by name, to investigate a failure.
    let only = std::env::var("KARST_CELLS").ok();
    let chosen = |cell: &Cell| only.as_ref().is_none_or(|names| names.split(',').any(|n| n == cell.name));
    let step = if manual && !asked::long() && only.is_none() { MANUAL_ONE_IN } else { 1 };
    let queue: Vec<Written> =
        cells().into_iter().filter(chosen).step_by(step).map(|cell| Written::new(cell, manual)).collect();
    let (queue, failures) = (Mutex::new(queue), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(written) = queue.lock().expect("no panic").pop() else { break };
                    match written.check(folder.path()) {
                        Ok(compared) => assert!(compared > 3000, "cell {}: {compared}", written.cell.name),
                        Err(e) => {
                            let message = format!("cell {}: {e}", written.cell.name);
                            failures.lock().expect("no panic").push(message);
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{} cells:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn db_bench_reads_all_that_karstdb_wrote_for_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bench");
    let family = Family::new("default").table(&["format_version=5", "filter_policy=bloomfilter:10:false"]);
    let mut store = KarstWriter::open(&path, &[], std::slice::from_ref(&family)).expect("it opens");
    let key = |n: u64| [&n.to_be_bytes()[..], b"00000000"].concat();
    for chunk in (0..5000_u64).collect::<Vec<_>>().chunks(50) {
        let writes = chunk.iter().map(|n| Write::Put { family: 0, key: key(*n), value: vec![b'v'; 100] });
        store.apply(&Step::Write(writes.collect())).expect("a write");
    }
    store.close().expect("it closes");
    let flags =
        ["-use_existing_db", "-num=5000", "-benchmarks=readseq,readrandom,readmissing", "-bloom_bits=10"];
    let out = tools::db_bench(&path, &flags).expect("db_bench reads");
    assert!(out.contains("5000 operations"), "{out}");
    assert!(out.contains("(5000 of 5000 found)") && out.contains("(0 of 5000 found)"), "{out}");
    // RocksDB has flushed the log and perhaps compacted; all entries still exist.
    let db = karst_engine::Db::open_read_only(&path, &karst_engine::Options::new()).expect("it opens");
    for n in 0..5000 {
        assert_eq!(db.get(key(n)).expect("a get").expect("a value").len(), 100);
    }
    assert!(Merging::of(&family).is_none());
}
