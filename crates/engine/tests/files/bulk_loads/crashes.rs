//! After any end of a load the directory holds the whole database or no database. In the second
//! case it can be loaded again, if necessary after `Db::destroy`, which the error names.

use crate::bulk_loads::{Entries, entries, options};
use karst_engine::{BulkLoader, Db, DbPath, Error, ErrorKind, Options};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;
use karst_io::{CrashStates, Env, Fault, FileSystem, Operation, Simulation};
use karst_testkit::asked::{long, seeds};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The short form opens one in this many crash states.
const SHARE: u64 = 5;
const EIO: i32 = 5;

fn indifferent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LO"))
}

/// Directories of the tables.
#[derive(Clone, Copy, Debug)]
enum Places {
    One,
    /// No table is in the database's directory.
    Others,
}

const VARIANTS: [(&str, Places); 3] = [
    ("", Places::One),
    ("", Places::Others),
    ("use_direct_io_for_flush_and_compaction=true;write_identity_file=false", Places::Others),
];

fn all_options(env: &Env, more: &str, places: Places) -> Options {
    let small = "target_file_size_base=1500;enable_blob_files=true;min_blob_size=200;blob_file_size=2000";
    let all = options(env, &format!("compression=kNoCompression;{small};{more}"));
    match places {
        Places::One => all,
        Places::Others => all
            .db_paths([DbPath::new("/fast", 1 << 30), DbPath::new("/large", 1 << 30)])
            .cf_paths(Some("other"), [DbPath::new("/own/deep", 1 << 30)]),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// Loads three levels and two column families.
fn load(options: &Options) -> Result<(), Error> {
    let mut loader = BulkLoader::create("/db", options)?;
    let other = loader.create_column_family("other")?;
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 6)?;
    for number in 0..40 {
        run.put(&key(number), &vec![number as u8; 100 + (number % 2 * 200) as usize])?;
    }
    run.finish()?;
    for number in 10..20 {
        loader.put(&key(number), b"newer")?;
    }
    loader.delete_range(&key(30), &key(35))?;
    loader.seal(3)?;
    loader.delete(&key(0))?;
    for number in 0..10 {
        loader.write(other, ValueType::Value, &key(number), b"other")?;
    }
    loader.finish()
}

/// Returns the entries of the default column family after a complete load.
fn loaded() -> Entries {
    let value = |number: u64| match number {
        10..20 => b"newer".to_vec(),
        _ => vec![number as u8; 100 + (number % 2 * 200) as usize],
    };
    (1..40).filter(|number| !(30..35).contains(number)).map(|number| (key(number), value(number))).collect()
}

/// Opens the database and compares it with the loaded entries.
fn check_whole(options: &Options, what: &str) {
    let db = Db::open("/db", options).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(entries(&db, "default"), loaded(), "{what}");
    let others: Entries = (0..10).map(|number| (key(number), b"other".to_vec())).collect();
    assert_eq!(entries(&db, "other"), others, "{what}");
    db.verify_checksum().unwrap_or_else(|e| panic!("{what}: {e}"));
    db.close().unwrap();
}

/// Numbers of crash states by the content of the directory.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    whole: usize,
    /// The directory could be loaded again at once.
    unused: usize,
    refused: usize,
}

impl Found {
    /// Checks the directory that a load has left.
    fn check(&mut self, files: &dyn FileSystem, options: &Options, what: &str) {
        if files.exists(Path::new("/db/CURRENT")).unwrap() {
            self.whole += 1;
            return check_whole(options, what);
        }
        let opened = Db::open("/db", options);
        assert!(opened.is_err(), "there is no database: {what}");
        match load(options) {
            Ok(()) => self.unused += 1,
            Err(error) => {
                self.refused += 1;
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
                let text = error.to_string();
                assert!(text.contains("Db::destroy"), "{what}: {text}");
                let (named, _) = text.split_once(": the file exists").expect("it names the file");
                let file = named.trim_start_matches("invalid argument: ");
                assert!(files.exists(Path::new(file)).unwrap(), "{what}: {text}");
                Db::destroy("/db", options).unwrap_or_else(|e| panic!("{what}: {e}"));
                load(options).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
        check_whole(options, what);
    }
}

#[test]
fn after_a_crash_a_load_is_whole_or_no_database() {
    for seed in seeds(1, 3) {
        for (more, places) in VARIANTS {
            let mut found = Found::default();
            let simulation = Simulation::new(seed);
            let disk = simulation.fs().clone();
            disk.record();
            let all = all_options(simulation.env(), more, places);
            simulation.run(async { load(&all).unwrap() }).expect("the power is on");
            let done = disk.recorded();
            let journal = disk.take_journal().expect("it was recorded");
            let mut states = CrashStates::new(&journal, indifferent);
            loop {
                let at = states.boundary();
                let point = states.point(seed);
                for state in 0..point.len() {
                    if !long() && !point.hash(state).is_multiple_of(SHARE) && at != done {
                        continue;
                    }
                    let what = format!(
                        "{more:?}, {places:?}, seed {seed}, boundary {at} after {}: {}",
                        states.last_change(),
                        point.what(state)
                    );
                    let machine = Simulation::with_image(&point.image(state), seed);
                    let before = found.whole;
                    let again = all_options(machine.env(), more, places);
                    machine.run(async { found.check(machine.fs(), &again, &what) }).expect("the power is on");
                    assert!(found.whole > before || at < done, "a load that has ended is gone: {what}");
                }
                if !states.advance() {
                    break;
                }
            }
            println!("{more:?}, {places:?}, seed {seed}: {found:?}");
            assert!(found.whole > 0 && found.unused > 0 && found.refused > 10, "{found:?}");
        }
    }
}

#[test]
fn after_a_fault_in_any_operation_a_load_is_whole_or_no_database() {
    for (more, places) in VARIANTS {
        let mut found = Found::default();
        for strike in 1u64.. {
            let simulation = Simulation::new(1);
            let struck: Arc<Mutex<Option<String>>> = Arc::default();
            let (mut seen, told) = (0, struck.clone());
            simulation.fs().set_faults(move |operation, path| {
                seen += 1;
                (seen == strike).then(|| {
                    *told.lock().unwrap() = Some(format!("{operation:?} {}", path.display()));
                    Fault::Fail(EIO)
                })
            });
            let all = all_options(simulation.env(), more, places);
            let outcome = simulation.run(async { load(&all) }).expect("the power is on");
            simulation.fs().set_faults(|_, _| None);
            let Some(what) = struck.lock().unwrap().clone() else {
                outcome.unwrap();
                assert!(strike > 50, "too few operations: {strike}");
                break;
            };
            let what = format!("{more:?}, {places:?}, operation {strike}, {what}");
            let failed = match outcome {
                Ok(()) => false,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains('/'), "{what}: names no file: {text}");
                    true
                }
            };
            let before = found.whole;
            simulation.run(async { found.check(simulation.fs(), &all, &what) }).expect("the power is on");
            assert!(failed || found.whole > before, "{what}: it succeeded, and there is no database");
        }
        println!("{more:?}, {places:?}: {found:?}");
        assert!(found.whole > 0 && found.unused > 0 && found.refused > 10, "{found:?}");
    }
}

#[test]
fn on_a_full_disk_a_load_is_whole_or_no_database() {
    for (more, places) in VARIANTS {
        let mut found = Found::default();
        for capacity in (0u64..).step_by(800) {
            let simulation = Simulation::new(1);
            simulation.fs().set_capacity(Some(capacity));
            let all = all_options(simulation.env(), more, places);
            let outcome = simulation.run(async { load(&all) }).expect("the power is on");
            simulation.fs().set_capacity(None);
            let what = format!("{more:?}, {places:?}, room for {capacity} bytes: {outcome:?}");
            let whole = outcome.is_ok();
            simulation.run(async { found.check(simulation.fs(), &all, &what) }).expect("the power is on");
            if whole {
                break;
            }
        }
        println!("{more:?}, {places:?}: {found:?}");
        assert!(found.whole > 0 && found.refused > 10, "{found:?}");
    }
}

#[test]
fn a_seal_that_has_failed_can_be_tried_again() {
    let simulation = Simulation::new(1);
    let all = all_options(simulation.env(), "", Places::One);
    let mut left = 1;
    simulation.fs().set_faults(move |operation, path| {
        let strikes =
            left > 0 && operation == Operation::Write && path.extension().is_some_and(|of| of == "sst");
        left -= u64::from(strikes);
        strikes.then_some(Fault::Fail(EIO))
    });
    let sealed = simulation.run(async {
        let mut loader = BulkLoader::create("/db", &all).unwrap();
        loader.put(b"key", b"value").unwrap();
        assert!(loader.seal(3).unwrap_err().to_string().contains(".sst"));
        loader.seal(3).unwrap();
        loader.finish().unwrap();
        let db = Db::open("/db", &all).unwrap();
        assert_eq!(entries(&db, "default"), [(b"key".to_vec(), b"value".to_vec())]);
        db.close().unwrap();
    });
    sealed.expect("the power is on");
}
