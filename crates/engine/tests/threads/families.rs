//! Column families that are created and dropped concurrently with writers, flushes and crashes.

use crate::explorer::explore;
use crate::scene::{Scene, run};
use crate::world::{COUNTS, contents};
use karst_engine::{Db, ReadOptions, WriteBatch};
use karst_testkit::random::Random;

fn has(db: &Db, family: &str, key: &str) -> bool {
    db.column_family(family).is_some()
        && contents(db, &ReadOptions::default(), family).contains_key(key.as_bytes())
}

/// An unlogged batch is written to an old family and to a new one, while all families are flushed
/// atomically.
fn unlogged_to_new_families(random: &mut Random) {
    let scene = Scene::unlogged(random);
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, |scene, random| {
        let late = scene.create("late").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"to both", b"1").unwrap();
        batch.put_cf(&late, b"to both", b"1").unwrap();
        scene.write_beside(random, 0, batch).unwrap();
    }));
    threads.push(scene.spawn(random, |scene, random| {
        scene.write(random, 1, 1);
        scene.flush();
    }));
    run(threads);
    scene.settle_and(|db| {
        let found = [COUNTS, "late"].map(|family| has(db, family, "to both"));
        assert_eq!(found[0], found[1], "a batch is there as a whole or not at all");
    });
}

#[test]
fn a_batch_to_a_new_family_is_flushed_as_a_whole() {
    explore("unlogged to new families", unlogged_to_new_families);
}

/// Families are created, written to, dropped and some recreated, concurrently with a writer and
/// flushes.
fn come_and_go(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    let mut threads = Vec::new();
    for (number, dropped) in [(0, true), (1, false)] {
        threads.push(scene.spawn(random, move |scene, random| {
            let name = format!("family{number}");
            for life in 0..2 {
                let family = scene.create(&name).unwrap();
                let mut batch = WriteBatch::new();
                batch.merge_cf(&family, b"lives", 1u64.to_le_bytes()).unwrap();
                scene.write_beside(random, number, batch).unwrap();
                if dropped || life == 0 {
                    scene.db.drop_column_family(&family).unwrap();
                }
            }
        }));
    }
    threads.push(scene.spawn(random, |scene, random| scene.write(random, 2, 2)));
    threads.push(scene.spawn(random, |scene, _| {
        // The flush of a family fails if it is dropped meanwhile.
        let _ = scene.try_flush();
        let _ = scene.try_flush();
    }));
    run(threads);
    assert_eq!(scene.db.background_error().map(|failed| failed.error.to_string()), None);
    scene.settle_and(|db| {
        assert!(db.column_family("family0").is_none());
        let left = contents(db, &ReadOptions::default(), "family1");
        assert_eq!(left.into_values().collect::<Vec<_>>(), [1u64.to_le_bytes()], "it was written once");
    });
}

#[test]
fn families_come_and_go_beside_writers_and_flushes() {
    explore("families come and go", come_and_go);
}
