//! Power failures at every change of the disk while a checkpoint is made: in every resulting state
//! the checkpoint is complete or does not have its name yet, and the original has all synced
//! writes.

use crate::copies::states::each_state;
use crate::copies::{entries, key, options, prefix};
use karst_engine::{Checkpoint, Db, FlushOptions, WriteOptions};
use karst_io::{FileSystem, Simulation};
use karst_testkit::asked::seeds;
use std::path::Path;

/// Numbers of changes before and after the checkpoint, and the minimum number of its keys.
struct Made {
    begun: usize,
    done: usize,
    keys: u64,
}

fn crash_everywhere(more: &str, limit: u64, seed: u64) -> (usize, usize) {
    let simulation = Simulation::new(seed);
    let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
    disk.record();
    let all = options(&env, &format!("enable_blob_files=true;min_blob_size=200;{more}"));
    let made = simulation.run(async {
        let db = Db::open("/db", &all).unwrap();
        let put = |number: u64, sync| {
            let how = WriteOptions { sync, ..WriteOptions::default() };
            db.put_opt(&how, key(number), vec![number as u8; 100 + (number % 2 * 200) as usize]).unwrap();
        };
        for number in 0..40 {
            put(number, false);
            if number == 20 {
                db.flush(&FlushOptions::default()).unwrap();
            }
        }
        db.sync_wal().unwrap();
        let begun = disk.recorded();
        let checkpoint = Checkpoint::new(&db).unwrap();
        checkpoint.create_checkpoint_async(Path::new("/copy"), limit).await.unwrap();
        let done = disk.recorded();
        // Later changes of the original do not affect the copy.
        (40..60).for_each(|number| put(number, number % 4 == 0));
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
        Made { begun, done, keys: 40 }
    });
    let made = made.expect("the power is on");
    let journal = disk.take_journal().expect("it was recorded");
    let (mut opened, mut absent) = (0, 0);
    each_state((&journal, more, seed), (made.begun, made.done), |state| {
        let (machine, what) = (&state.machine, &state.what);
        let found = machine.fs().exists(Path::new("/copy")).unwrap();
        assert!(found || state.at < made.done, "a checkpoint that was made is gone: {what}");
        absent += usize::from(!found);
        opened += usize::from(found);
        let again = options(machine.env(), more);
        machine
            .run(async {
                if found {
                    let copy = Db::open("/copy", &again).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert_eq!(prefix(&copy, "default"), made.keys, "{what}");
                    copy.verify_checksum().unwrap_or_else(|e| panic!("{what}: {e}"));
                    copy.close().unwrap();
                }
                let Some(db) = state.open(&again) else { return };
                assert!(prefix(&db, "default") >= made.keys, "{what}");
                if !found {
                    // An unfinished checkpoint does not prevent the next one.
                    Checkpoint::new(&db).unwrap().create_checkpoint("/copy", 0).unwrap();
                    let copy = Db::open("/copy", &again).unwrap();
                    assert_eq!(entries(&copy, "default"), entries(&db, "default"), "{what}");
                    copy.close().unwrap();
                }
                db.close().unwrap();
            })
            .expect("the power is on");
    });
    (opened, absent)
}

#[test]
fn after_a_power_failure_a_checkpoint_is_whole_or_not_there() {
    for seed in seeds(1, 3) {
        for (more, limit) in [
            ("", 0),
            ("", u64::MAX),
            ("recycle_log_file_num=2", u64::MAX),
            ("allow_mmap_writes=true", u64::MAX),
        ] {
            let (opened, absent) = crash_everywhere(more, limit, seed);
            println!("{more:?}, flush at {limit}: {opened} states with the checkpoint, {absent} without");
            assert!(opened > 10 && absent > 10, "nothing was tried: {opened}, {absent}");
        }
    }
}
