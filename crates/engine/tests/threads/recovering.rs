//! Logs that fail, and automatic recovery of the database, concurrent with writers and created
//! families.

use crate::explorer::explore;
use crate::scene::{Scene, run};
use crate::world::contents;
use karst_engine::{ReadOptions, WaitForCompactOptions, WriteBatch};
use karst_testkit::random::Random;

/// Writers continue after the database has recovered, which fails a few times.
fn failing_logs(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    let mut threads = Vec::new();
    for writer in 0..2 {
        threads.push(scene.spawn(random, move |scene, random| {
            for _ in 0..2 {
                scene.insist("a write", || scene.write_one(random, writer));
            }
        }));
    }
    threads.push(scene.spawn(random, |scene, random| {
        for _ in 0..2 {
            scene.world.fail_logs(1 + random.below(2));
            scene.insist("a write of whoever spoils the logs", || scene.write_one(random, 2));
        }
        scene.world.fail_logs(0);
    }));
    if random.one_in(2) {
        threads.push(scene.spawn(random, |scene, _| scene.crash()));
    }
    run(threads);
    scene.insist("a write at the end", || scene.write_one(random, 3));
    scene.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    scene.settle();
}

#[test]
fn writers_go_on_after_logs_have_failed() {
    explore("failing logs", failing_logs);
}

/// A family is created while the database recovers from a failed log, after which no family may
/// need that log.
fn created_while_recovering(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    scene.write(random, 0, 1);
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, |scene, random| {
        scene.world.fail_logs(1);
        scene.insist("a write", || scene.write_one(random, 0));
    }));
    threads.push(scene.spawn(random, |scene, random| {
        let late = scene.insist("creating a family", || scene.create("late"));
        let mut write = || {
            let mut batch = WriteBatch::new();
            batch.put_cf(&late, b"key", b"1")?;
            scene.write_beside(random, 1, batch)
        };
        scene.insist("a write to a new family", &mut write);
    }));
    run(threads);
    scene.world.fail_logs(0);
    scene.insist("a write at the end", || scene.write_one(random, 3));
    scene.settle_and(|db| assert_eq!(contents(db, &ReadOptions::default(), "late").len(), 1));
}

#[test]
fn no_family_that_is_created_meanwhile_needs_a_log_that_failed() {
    explore("created while recovering", created_while_recovering);
}
