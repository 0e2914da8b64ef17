//! Power failures at every change that a flush makes: synced data survives, and column families
//! that are flushed atomically are recovered as of one moment.

use super::all_of;
use karst_engine::{Db, FlushOptions, Options, WriteBatch, WriteOptions};
use karst_io::{Crash, Env, Simulation};
use std::collections::BTreeMap;

fn options(env: &Env, atomic: bool) -> Options {
    Options::new().env(env.clone()).db(move |db| {
        db.create_if_missing = true;
        db.atomic_flush = atomic;
    })
}

/// Runs `act` on a database with the families `default` and `other`, with a power failure at each
/// change in turn, and `check` on the recovered database.
fn lose_power_everywhere<T>(
    atomic: bool,
    prepare: impl Fn(&Db),
    act: impl AsyncFn(&Db) -> T,
    check: impl Fn(&Db, bool, u64),
) -> u64 {
    for change in 0..400 {
        let simulation = Simulation::new(change);
        let env = simulation.env().clone();
        let db = Db::open("/db", &options(&env, atomic)).unwrap();
        db.create_column_family("other", &options(&env, atomic)).unwrap();
        prepare(&db);
        simulation.fs().lose_power_after(change);
        let done = simulation.run(async { act(&db).await }).is_some();
        drop(db);
        drop(env);
        let simulation = simulation.restart(Crash::Power, change + 1_000);
        let db = Db::open("/db", &options(simulation.env(), atomic)).unwrap();
        check(&db, done, change);
        if done {
            return change;
        }
    }
    panic!("a flush makes fewer changes");
}

fn batch(db: &Db, number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let other = db.column_family("other").unwrap();
    for i in 0..5 {
        let (key, value) = (format!("{i}"), format!("{number}"));
        batch.put(&key, &value).unwrap();
        batch.put_cf(&other, &key, &value).unwrap();
    }
    batch
}

fn expected(number: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..5).map(|i| (format!("{i}").into_bytes(), format!("{number}").into_bytes())).collect()
}

#[test]
fn synced_entries_outlive_a_flush_that_is_cut_short() {
    let changes = lose_power_everywhere(
        false,
        |db| {
            for number in 0..20 {
                db.write(&WriteOptions::synced(), &batch(db, number)).unwrap();
            }
        },
        async |db: &Db| {
            let other = db.column_family("other").unwrap();
            let families = [db.default_column_family(), &other];
            db.flush_cfs_async(&FlushOptions::default(), &families).await.unwrap();
        },
        |db, _, change| {
            assert_eq!(all_of(db, "default"), expected(19), "power lost at change {change}");
            assert_eq!(all_of(db, "other"), expected(19), "power lost at change {change}");
        },
    );
    assert!(changes > 10, "{changes}");
}

#[test]
fn an_atomic_flush_of_unlogged_entries_happens_to_all_families_or_to_none() {
    let mut kept = [0, 0];
    let kept = std::cell::RefCell::new(&mut kept);
    let changes = lose_power_everywhere(
        true,
        |db| {
            db.write(&WriteOptions::unlogged(), &batch(db, 1)).unwrap();
            db.flush(&FlushOptions::default()).unwrap();
            db.write(&WriteOptions::unlogged(), &batch(db, 2)).unwrap();
        },
        async |db: &Db| db.flush_async(&FlushOptions::default()).await.unwrap(),
        |db, done, change| {
            let found = all_of(db, "default");
            assert_eq!(found, all_of(db, "other"), "power lost at change {change}");
            let flushed = found == expected(2);
            assert!(flushed || (!done && found == expected(1)), "power lost at change {change}: {found:?}");
            kept.borrow_mut()[usize::from(flushed)] += 1;
        },
    );
    let kept = kept.into_inner();
    assert!(changes > 5 && kept[0] > 0 && kept[1] > 0, "{changes} changes, {kept:?}");
}

/// A batch to both families is in the log, unsynced. If one family's part were in a table and the
/// log lost its end, the batch would be torn.
#[test]
fn a_flush_of_one_family_tears_no_batch() {
    let (mut lost, mut kept) = (0, 0);
    for batches in 1..9 {
        let seen = std::cell::RefCell::new((&mut lost, &mut kept));
        lose_power_everywhere(
            false,
            |db| {
                for number in 0..batches {
                    db.write(&WriteOptions::new(), &batch(db, number)).unwrap();
                }
            },
            async |db: &Db| {
                let family = [db.default_column_family()];
                db.flush_cfs_async(&FlushOptions::default(), &family).await.unwrap();
            },
            |db, done, change| {
                let found = all_of(db, "default");
                let at = format!("{batches} batches, power lost at change {change}, flushed: {done}");
                assert_eq!(found, all_of(db, "other"), "{at}");
                assert!(!done || found == expected(batches - 1), "{at}");
                let (lost, kept) = &mut *seen.borrow_mut();
                **(if found == expected(batches - 1) { kept } else { lost }) += 1;
            },
        );
    }
    assert!(lost > 5 && kept > 20, "{lost} times something was lost, {kept} times nothing");
}

/// A flush leaves nothing of a single deletion and its put. If they were the newest entries, the
/// MANIFEST still records their sequence numbers, because the log may be lost with the power, and
/// readers that follow the database by sequence numbers have seen these.
#[test]
fn sequence_numbers_of_which_a_flush_leaves_nothing_are_not_given_again() {
    for (seed, keeps_another) in (0..8).flat_map(|seed| [(seed, true), (seed, false)]) {
        let simulation = Simulation::new(seed);
        let db = Db::open("/db", &options(simulation.env(), false)).unwrap();
        if keeps_another {
            db.put("kept", "1").unwrap();
        }
        db.put("gone", "2").unwrap();
        db.single_delete("gone").unwrap();
        let latest = db.latest_sequence_number();
        let flushed = simulation.run(async { db.flush_async(&FlushOptions::default()).await });
        flushed.expect("the power is on").unwrap();
        let largest: Vec<u64> = db.live_files().iter().map(|file| file.largest_seq).collect();
        assert_eq!(largest, if keeps_another { vec![1] } else { vec![] }, "the pair has gone");
        simulation.fs().lose_power_after(0);
        drop(db);
        let simulation = simulation.restart(Crash::Power, seed);
        let db = Db::open("/db", &options(simulation.env(), false)).unwrap();
        assert_eq!(db.latest_sequence_number(), latest, "seed {seed}, keeps another: {keeps_another}");
        assert_eq!(all_of(&db, "default").len(), usize::from(keeps_another));
    }
}
