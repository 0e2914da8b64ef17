//! Disabled file deletions and checkpoints, concurrent with compactions.

use crate::explorer::explore;
use crate::scene::{Scene, run};
use crate::world::PATH;
use karst_engine::{
    Checkpoint, CompactRangeOptions, DatabaseFile, Error, ErrorKind, LiveFilesStorageInfoOptions,
};
use karst_testkit::random::Random;
use shuttle::thread;
use std::path::Path;

/// Asserts that all files of a list exist with at least their listed size.
fn check_there(scene: &Scene, files: &[DatabaseFile], when: &str) {
    for file in files {
        let found = scene.world.env.fs().metadata(&file.path());
        let found = found.unwrap_or_else(|e| panic!("{when}: {}: {e}", file.path().display()));
        let counts = if file.replacement_contents.is_some() { 0 } else { file.size_bytes };
        assert!(found.len >= counts, "{when}: {} has {} of {counts} bytes", file.name, found.len);
    }
}

/// Returns the obsolete tables that still exist.
fn left_over(scene: &Scene) -> Vec<String> {
    let (live, _) = scene.db.live_file_names();
    let mut names = scene.world.env.fs().list_dir(Path::new(PATH)).unwrap();
    names.retain(|name| name.ends_with(".sst") && !live.iter().any(|l| l.trim_start_matches('/') == name));
    names
}

/// Two threads disable and enable file deletions at any time, a third makes a checkpoint, and a
/// fourth compacts a writer's flushed tables.
fn held_beside_compactions(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    scene.write(random, 0, 2);
    scene.flush();
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, |scene, random| {
        scene.write(random, 0, 1);
        scene.flush();
    }));
    threads.push(scene.spawn(random, |scene, _| {
        scene.flush();
        scene.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    }));
    for _ in 0..2 {
        threads.push(scene.spawn(random, |scene, random| {
            scene.db.disable_file_deletions().unwrap();
            let options = LiveFilesStorageInfoOptions {
                wal_size_for_flush: if random.one_in(2) { 0 } else { u64::MAX },
                ..Default::default()
            };
            let files = scene.db.live_files_storage_info(&options).unwrap();
            check_there(scene, &files, "at once");
            (0..random.below(4)).for_each(|_| thread::yield_now());
            check_there(scene, &files, "later");
            scene.db.enable_file_deletions().unwrap();
        }));
    }
    let copies = random.one_in(2);
    if copies {
        threads.push(scene.spawn(random, |scene, random| {
            let least = if random.one_in(2) { 0 } else { u64::MAX };
            let before = scene.ledger.known();
            Checkpoint::new(&scene.db).unwrap().create_checkpoint("/copy", least).unwrap();
            scene.copied("/copy", before);
        }));
    }
    run(threads);
    // Obsolete tables have been removed, or are removed now.
    scene.insist("removing what nobody needs", || match left_over(&scene) {
        left if left.is_empty() => Ok(()),
        left => Err(Error::new(ErrorKind::Busy, format!("{left:?}"))),
    });
    scene.settle();
}

#[test]
fn files_that_are_held_are_there_beside_compactions_and_gone_afterwards() {
    explore("held beside compactions", held_beside_compactions);
}
