//! Power failures at every change of the disk during a repair: repairing any resulting state
//! recovers all entries. On a full disk a repair fails and does no harm.

use crate::repair::*;
use karst_engine::ErrorKind;
use karst_io::{CrashStates, Simulation};
use karst_testkit::asked::{long, seeds};

/// The short form repairs one in this many states.
const SHARE: u64 = 3;

fn indifferent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LO"))
}

/// Damage before the repair.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Manifest,
    Current,
    Log,
}

fn damage(files: &dyn FileSystem, lost: Lost) {
    match lost {
        Lost::Manifest => {
            named(files, "/db", "MANIFEST").iter().for_each(|path| files.remove(path).unwrap());
            files.remove(Path::new("/db/CURRENT")).unwrap();
        }
        Lost::Current => files.remove(Path::new("/db/CURRENT")).unwrap(),
        Lost::Log => {
            // An incomplete record after the last one, and a file that is not a table.
            let log = named(files, "/db", ".log").pop().unwrap();
            let mut bytes = files.read_file(&log).unwrap();
            bytes.extend_from_slice(&[7; 100]);
            rewrite(files, &log, &bytes);
            rewrite(files, Path::new("/db/009999.sst"), b"no table");
        }
    }
    files.sync_dir(Path::new("/db")).unwrap();
}

fn crash_everywhere(lost: Lost, seed: u64) -> usize {
    let simulation = Simulation::new(seed);
    let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
    disk.record();
    let how = options(&env, "");
    let begun_with = simulation.run(async {
        let there = fill(Path::new("/db"), &how, 5);
        damage(&disk, lost);
        let begun = disk.recorded();
        Db::repair("/db", &how).unwrap();
        (there, begun)
    });
    let (there, begun) = begun_with.expect("the power is on");
    let journal = disk.take_journal().expect("it was recorded");
    let mut states = CrashStates::new(&journal, indifferent);
    let mut repaired = 0;
    loop {
        if states.boundary() >= begun {
            let point = states.point(seed);
            for state in 0..point.len() {
                if !long() && !point.hash(state).is_multiple_of(SHARE) {
                    continue;
                }
                let what = format!(
                    "{lost:?}, seed {seed}, boundary {} after {}: {}",
                    states.boundary(),
                    states.last_change(),
                    point.what(state)
                );
                let machine = Simulation::with_image(&point.image(state), seed);
                let again = options(machine.env(), "");
                println!("{what}");
                machine
                    .run(async {
                        let report = Db::repair("/db", &again).unwrap_or_else(|e| panic!("{what}: {e}"));
                        let db = Db::open("/db", &again).unwrap_or_else(|e| panic!("{what}: {e}\n{report}"));
                        assert_eq!(all(&db), there, "{what}\n{report}");
                        db.close().unwrap();
                    })
                    .expect("the power is on");
                repaired += 1;
            }
        }
        if !states.advance() {
            break;
        }
    }
    repaired
}

#[test]
fn a_repair_that_the_power_ends_is_begun_again_and_brings_all_back() {
    for seed in seeds(1, 2) {
        for lost in [Lost::Manifest, Lost::Current, Lost::Log] {
            let repaired = crash_everywhere(lost, seed);
            println!("{lost:?}: {repaired} states");
            assert!(repaired > 10, "nothing was tried: {repaired}");
        }
    }
}

#[test]
fn on_a_full_disk_a_repair_fails_and_harms_nothing() {
    for full in [
        (|path: &Path| path.extension().is_some_and(|e| e == "sst")) as fn(&Path) -> bool,
        |path| path.extension().is_some_and(|e| e == "dbtmp"),
        |path| path.starts_with("/db/lost"),
        |_| true,
    ] {
        for lost in [Lost::Manifest, Lost::Log] {
            let simulation = Simulation::new(3);
            let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
            let how = options(&env, "");
            simulation
                .run(async {
                    let there = fill(Path::new("/db"), &how, 5);
                    damage(&disk, lost);
                    disk.set_full(Some(full));
                    if let Err(error) = Db::repair("/db", &how) {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    }
                    disk.set_full(None);
                    let report = Db::repair("/db", &how).unwrap();
                    let db = Db::open("/db", &how).unwrap_or_else(|e| panic!("{e}\n{report}"));
                    assert_eq!(all(&db), there, "{report}");
                    db.close().unwrap();
                })
                .expect("the power is on");
        }
    }
}
