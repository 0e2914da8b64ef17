//! Power failures at every change of the disk while a family is imported or clipped or files are
//! ingested, and during later writes. In every resulting state the database opens, shows the whole
//! operation or nothing of it, and has all acknowledged synced writes.

use crate::copies::states::{State, each_state};
use crate::copies::{entries, key, options};
use karst_engine::{
    Checkpoint, CompactFilesOptions, CompactRangeOptions, Db, ExportImportFilesMetaData, FlushOptions,
    ImportColumnFamilyOptions, IngestExternalFileOptions, Options, SstFileWriter, WriteOptions,
};
use karst_io::{Env, FileSystem, SimulatedFileSystem, Simulation};
use karst_testkit::asked::seeds;
use std::collections::BTreeMap;
use std::path::Path;

/// Options of the runs: without blob files, and with some values in blob files.
const RUNS: [&str; 2] = [
    "",
    "enable_blob_files=true;min_blob_size=150;blob_file_size=4000;enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1.0;",
];

fn run_options(env: &Env, more: &str) -> Options {
    let calm = "disable_auto_compactions=true;target_file_size_base=3000;write_buffer_size=30000;";
    options(env, &format!("{calm}{more}"))
}

fn value(number: u64, round: u8) -> Vec<u8> {
    vec![round; 100 + (number % 2 * 100) as usize]
}

type Found = BTreeMap<Vec<u8>, Vec<u8>>;

fn found(db: &Db, family: &str) -> Found {
    entries(db, family).into_iter().collect()
}

/// Acknowledged synced writes, each with the number of changes of the disk by then.
#[derive(Default)]
struct Acknowledged(Vec<(usize, &'static str, Vec<u8>, Vec<u8>)>);

impl Acknowledged {
    fn put(&mut self, disk: &SimulatedFileSystem, db: &Db, family: &'static str, number: u64, round: u8) {
        let of = db.column_family(family).unwrap();
        db.put_cf(&WriteOptions::synced(), &of, key(number), value(number, round)).unwrap();
        self.0.push((disk.recorded(), family, key(number), value(number, round)));
    }

    /// Asserts that every key has its last value that was durable in this state, or a later one.
    fn check(&self, state: &State, db: &Db) {
        for (at, family, key, _) in self.0.iter().filter(|(at, ..)| *at <= state.at) {
            let later = self.0.iter().filter(|(later, of, k, _)| later >= at && of == family && k == key);
            let allowed: Vec<&Vec<u8>> = later.map(|(.., value)| value).collect();
            let cf = db.cf(family).unwrap_or_else(|e| state.fail(&e));
            let now = cf.get(key).unwrap_or_else(|e| state.fail(&e)).map(|value| value.to_vec());
            assert!(
                now.is_some_and(|now| allowed.contains(&&now)),
                "{}: key {key:?} of {family}",
                state.what
            );
        }
    }
}

/// A recorded run and the expected content of its states.
struct Run {
    begun: usize,
    done: usize,
    acknowledged: Acknowledged,
    before: Found,
    after: Found,
}

/// Checks the states of a run. `shown` is the family that changes; apart from keys written after
/// the change, each state must hold its entries from before the change or from after it.
fn check(
    (simulation, name, seed): (&Simulation, &str, u64),
    run: &Run,
    (more, shown): (&str, &str),
    ended: impl Fn(&State, &Db, bool),
) {
    let journal = simulation.fs().take_journal().expect("it was recorded");
    let (mut whole, mut nothing) = (0, 0);
    each_state((&journal, name, seed), (run.begun, run.done), |state| {
        let all = run_options(state.machine.env(), more);
        let checked = state.machine.run(async {
            let Some(db) = state.open(&all) else { return };
            run.acknowledged.check(state, &db);
            db.verify_checksum().unwrap_or_else(|e| state.fail(&e));
            let mut now = match db.column_family(shown) {
                Some(_) => found(&db, shown),
                None => Found::new(),
            };
            // Keys written after the change were checked above.
            let later =
                |key: &Vec<u8>| run.acknowledged.0.iter().any(|(_, of, k, _)| *of == shown && k == key);
            now.retain(|key, _| !later(key));
            let without = |all: &Found| -> Found {
                all.iter().filter(|(key, _)| !later(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            let is_done = now == without(&run.after);
            assert!(is_done || now == without(&run.before), "{}: a part of it: {:?}", state.what, now.keys());
            assert!(is_done || state.at < run.done, "{}: it was done and is gone", state.what);
            whole += usize::from(is_done);
            nothing += usize::from(!is_done);
            ended(state, &db, is_done);
            // The database accepts writes.
            db.put("on", "1").unwrap_or_else(|e| state.fail(&e));
            db.flush(&FlushOptions::default()).unwrap_or_else(|e| state.fail(&e));
            db.close().unwrap_or_else(|e| state.fail(&e));
            let db = Db::open("/db", &all).unwrap_or_else(|e| state.fail(&e));
            assert_eq!(db.get("on").unwrap().as_deref(), Some(&b"1"[..]), "{}", state.what);
            db.close().unwrap_or_else(|e| state.fail(&e));
        });
        checked.expect("the power is on");
    });
    println!("{name}, seed {seed}: {whole} states have it, {nothing} do not");
    assert!(whole > 5 && nothing > 1, "{name}: nothing was tried: {whole} and {nothing}");
}

/// Copies a file, with or without syncing the copy.
fn carry(disk: &SimulatedFileSystem, from: &Path, to: &Path, synced: bool) {
    let bytes = disk.read_file(from).unwrap();
    let mut file = disk.create(to).unwrap();
    file.append(&bytes).unwrap();
    if synced {
        file.sync().unwrap();
        disk.sync_dir(to.parent().unwrap()).unwrap();
    }
}

/// Makes tables of a family with overwritten and deleted keys in two levels, and copies them to
/// another directory.
fn carried(env: &Env, disk: &SimulatedFileSystem, synced: bool) -> (ExportImportFilesMetaData, Found) {
    let source = Db::open("/source", &run_options(env, "")).unwrap();
    for round in 1..4u8 {
        (0..20).for_each(|number| source.put(key(number * u64::from(round)), value(number, round)).unwrap());
        source.delete(key(u64::from(round))).unwrap();
        source.flush(&FlushOptions::default()).unwrap();
        if round == 1 {
            source.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        }
    }
    let family = source.default_column_family();
    let mut metadata = Checkpoint::new(&source).unwrap().export_column_family(family, "/export").unwrap();
    let expected = found(&source, "default");
    source.close().unwrap();
    disk.create_dir_durably(Path::new("/carried")).unwrap();
    for file in &mut metadata.files {
        let to = Path::new("/carried");
        carry(disk, &file.directory.join(&file.name), &to.join(&file.name), synced);
        file.directory = to.to_owned();
    }
    (metadata, expected)
}

#[test]
fn an_imported_family_has_all_its_tables_or_is_not_there() {
    for seed in seeds(1, 3) {
        for (more, move_files, synced) in
            [(RUNS[0], true, false), (RUNS[1], true, true), (RUNS[1], false, false), (RUNS[0], false, true)]
        {
            let name = format!("import, move {move_files}, synced {synced}, {more:?}");
            let simulation = Simulation::new(seed);
            let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
            let import = ImportColumnFamilyOptions { move_files };
            disk.record();
            let made = simulation.run(async {
                let (metadata, after) = carried(&env, &disk, synced);
                let all = run_options(&env, more);
                let db = Db::open("/db", &all).unwrap();
                let mut acknowledged = Acknowledged::default();
                (0..4).for_each(|number| acknowledged.put(&disk, &db, "default", number, 1));
                let begun = disk.recorded();
                db.create_column_family_with_import("imported", &all, &import, &metadata).unwrap();
                let done = disk.recorded();
                acknowledged.put(&disk, &db, "imported", 7, 9);
                acknowledged.put(&disk, &db, "default", 2, 2);
                db.cf("imported").unwrap().flush(&FlushOptions::default()).unwrap();
                acknowledged.put(&disk, &db, "imported", 8, 9);
                let imported = db.column_family("imported").unwrap();
                db.compact_range_cf(&CompactRangeOptions::default(), &imported, None, None).unwrap();
                acknowledged.put(&disk, &db, "default", 3, 2);
                drop(imported);
                db.close().unwrap();
                (Run { begun, done, acknowledged, before: Found::new(), after }, metadata)
            });
            let (run, metadata) = made.expect("the power is on");
            check((&simulation, &name, seed), &run, (more, "imported"), |state, db, is_done| {
                assert_eq!(db.column_family("imported").is_some(), is_done, "{}", state.what);
                if !is_done && synced {
                    // No file was lost, and a second import succeeds.
                    let all = run_options(state.machine.env(), more);
                    let again = db.create_column_family_with_import("imported", &all, &import, &metadata);
                    drop(again.unwrap_or_else(|e| state.fail(&e)));
                    assert_eq!(found(db, "imported"), run.after, "{}", state.what);
                }
            });
        }
    }
}

#[test]
fn ingested_files_are_all_there_or_none_is() {
    for seed in seeds(1, 3) {
        for (more, way) in [(RUNS[0], "move"), (RUNS[1], "link"), (RUNS[0], "copy")] {
            let name = format!("ingestion, {way}, {more:?}");
            let simulation = Simulation::new(seed);
            let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
            disk.record();
            let made = simulation.run(async {
                let all = run_options(&env, more);
                disk.create_dir_durably(Path::new("/carried")).unwrap();
                for file in 0..2u64 {
                    let (made, to) = (format!("/made{file}.sst"), format!("/carried/{file}.sst"));
                    let mut writer = SstFileWriter::create(&all).unwrap();
                    writer.open(&made).unwrap();
                    (0..15).for_each(|n| writer.put(key(file * 20 + n), value(n, 5)).unwrap());
                    writer.delete_range(key(file * 20 + 15), key(file * 20 + 18)).unwrap();
                    writer.finish().unwrap();
                    carry(&disk, Path::new(&made), Path::new(&to), false);
                }
                let db = Db::open("/db", &all).unwrap();
                let mut acknowledged = Acknowledged::default();
                (0..40).for_each(|number| db.put(key(number), value(number, 1)).unwrap());
                db.flush(&FlushOptions::default()).unwrap();
                (0..40).step_by(3).for_each(|number| db.put(key(number), value(number, 2)).unwrap());
                db.sync_wal().unwrap();
                let (begun, before) = (disk.recorded(), found(&db, "default"));
                let how = IngestExternalFileOptions {
                    move_files: way == "move",
                    link_files: way == "link",
                    ..Default::default()
                };
                db.ingest_external_file(&how, ["/carried/0.sst", "/carried/1.sst"]).unwrap();
                let (done, after) = (disk.recorded(), found(&db, "default"));
                acknowledged.put(&disk, &db, "default", 7, 9);
                db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
                acknowledged.put(&disk, &db, "default", 8, 9);
                db.close().unwrap();
                Run { begun, done, acknowledged, before, after }
            });
            let run = made.expect("the power is on");
            check((&simulation, &name, seed), &run, (more, "default"), |_, _, _| {});
        }
    }
}

#[test]
fn a_clipped_family_has_all_it_had_or_nothing_outside_of_the_range() {
    for seed in seeds(1, 3) {
        for more in RUNS {
            let name = format!("clip, {more:?}");
            let simulation = Simulation::new(seed);
            let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
            disk.record();
            let made = simulation.run(async {
                let db = Db::open("/db", &run_options(&env, more)).unwrap();
                let family = db.default_column_family().clone();
                let mut acknowledged = Acknowledged::default();
                (0..60).for_each(|number| db.put(key(number), value(number, 1)).unwrap());
                db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
                // Deletions at both ends, in separate files above the entries that they delete.
                for (from, to) in [(0, 2), (58, 60)] {
                    (from..to).for_each(|number| db.delete(key(number)).unwrap());
                    db.flush(&FlushOptions::default()).unwrap();
                    let newest = db.live_files().into_iter().filter(|file| file.level == Some(0));
                    let newest = newest.map(|file| file.number).collect::<Vec<_>>();
                    let moved = CompactFilesOptions { allow_trivial_move: true, ..Default::default() };
                    db.compact_files(&moved, &family, &newest, 5).unwrap();
                }
                (5..50).step_by(9).for_each(|number| db.put(key(number), value(number, 2)).unwrap());
                db.sync_wal().unwrap();
                let (begun, before) = (disk.recorded(), found(&db, "default"));
                db.clip_column_family(&family, key(20), key(40)).unwrap();
                let (done, after) = (disk.recorded(), found(&db, "default"));
                assert_eq!(after.len(), 20);
                assert!(after.iter().all(|(key, value)| before.get(key) == Some(value)));
                acknowledged.put(&disk, &db, "default", 27, 9);
                db.flush(&FlushOptions::default()).unwrap();
                acknowledged.put(&disk, &db, "default", 28, 9);
                drop(family);
                db.close().unwrap();
                Run { begun, done, acknowledged, before, after }
            });
            let run = made.expect("the power is on");
            check((&simulation, &name, seed), &run, (more, "default"), |state, db, is_done| {
                let family = db.default_column_family();
                db.clip_column_family(family, key(20), key(40)).unwrap_or_else(|e| state.fail(&e));
                let now = found(db, "default");
                assert!(now.keys().eq(run.after.keys()), "{}, {is_done}: {:?}", state.what, now.keys());
            });
        }
    }
}
