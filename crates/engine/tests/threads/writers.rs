//! Writers, concurrent with flushes and dropped flushes, crashes, readers and closing.

use crate::explorer::explore;
use crate::scene::{Scene, run};
use crate::world::batches;
use karst_engine::{CompactRangeOptions, ErrorKind, FlushOptions, ReadOptions};
use karst_testkit::random::Random;
use shuttle::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

/// Two writers, a flush and perhaps a crash.
fn merges_beside_flushes(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    let mut threads = Vec::new();
    for writer in 0..2 {
        let batches = 1 + random.below(3);
        threads.push(scene.spawn(random, move |scene, random| scene.write(random, writer, batches)));
    }
    threads.push(scene.spawn(random, |scene, random| (0..2 + random.below(3)).for_each(|_| scene.flush())));
    if random.one_in(2) {
        threads.push(scene.spawn(random, |scene, _| scene.crash()));
    }
    run(threads);
    scene.settle();
}

#[test]
fn merges_count_once_beside_flushes_and_crashes() {
    explore("merges beside flushes", merges_beside_flushes);
}

/// Writers log nothing, all families are flushed atomically, and the process crashes: each batch is
/// recovered completely or not at all.
fn unlogged_merges(random: &mut Random) {
    let scene = Scene::unlogged(random);
    let mut threads = Vec::new();
    for writer in 0..2 {
        let batches = 1 + random.below(3);
        threads.push(scene.spawn(random, move |scene, random| scene.write(random, writer, batches)));
    }
    threads.push(scene.spawn(random, |scene, _| scene.flush()));
    threads.push(scene.spawn(random, |scene, _| scene.crash()));
    run(threads);
    scene.settle();
}

#[test]
fn batches_in_no_log_are_flushed_as_wholes() {
    explore("unlogged merges", unlogged_merges);
}

/// Polls a future `polls` times, woken or not, and drops it.
fn give_up_after(polls: u64, future: impl Future) {
    let mut future = pin!(future);
    for poll in 0..polls {
        if poll > 0 {
            thread::yield_now();
        }
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
    }
}

/// A flush that is dropped while its log may still be created, later flushes, and a concurrent
/// writer.
fn dropped_flushes(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, |scene, random| {
        let all = scene.db.column_families();
        let all: Vec<_> = all.iter().collect();
        scene.write(random, 0, 1);
        let polls = 1 + random.below(3);
        give_up_after(polls, scene.db.flush_cfs_async(&FlushOptions::default(), &all));
        for _ in 0..2 {
            scene.write(random, 0, 1);
            scene.flush();
            // Threads that were overtaken may catch up here.
            (0..random.below(3)).for_each(|_| thread::yield_now());
        }
        scene.write(random, 0, 1);
    }));
    if random.one_in(2) {
        threads.push(scene.spawn(random, |scene, random| scene.write(random, 1, 2)));
    }
    run(threads);
    scene.settle();
}

#[test]
fn flushes_that_are_given_up_lose_nothing() {
    explore("dropped flushes", dropped_flushes);
}

/// Readers see whole batches, and through a snapshot equal ones during compactions.
fn readers_beside_compactions(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    scene.write(random, 0, 2);
    scene.flush();
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, |scene, random| scene.write(random, 0, 3)));
    threads.push(scene.spawn(random, |scene, random| {
        for _ in 0..2 {
            let snapshot = scene.db.snapshot();
            let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
            let first = batches(&scene.db, &options, "through a snapshot");
            if random.one_in(2) {
                thread::yield_now();
            }
            let again = batches(&scene.db, &options, "through the same snapshot");
            assert_eq!(first, again, "one snapshot");
        }
    }));
    threads.push(scene.spawn(random, |scene, _| {
        scene.flush();
        scene.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    }));
    run(threads);
    scene.settle();
}

#[test]
fn readers_see_whole_batches_beside_compactions() {
    explore("readers beside compactions", readers_beside_compactions);
}

/// One thread closes the database. The others continue until they get an error.
fn closing_beside_everything(random: &mut Random) {
    let scene = Scene::new(random, |_| {});
    let closed = |outcome: karst_engine::Result<()>| match outcome {
        Ok(()) => false,
        // A running compaction is cancelled.
        Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Incomplete) => true,
        Err(error) => panic!("beside closing: {error}"),
    };
    let mut threads = Vec::new();
    threads.push(scene.spawn(random, move |scene, random| {
        for _ in 0..4 {
            if closed(scene.write_one(random, 0)) {
                return;
            }
        }
    }));
    threads.push(scene.spawn(random, move |scene, random| {
        for turn in 0..3 {
            let done = match random.below(4) {
                0 => scene.try_flush(),
                1 => scene.db.compact_range(&CompactRangeOptions::default(), None, None),
                2 => scene.create(&format!("other{turn}")).map(drop),
                _ => scene.db.get(b"sum").map(drop),
            };
            match done {
                Err(error)
                    if error.to_string().contains("other") && scene.db.column_family("other").is_some() => {}
                done => drop(closed(done)),
            }
        }
    }));
    threads.push(scene.spawn(random, |scene, _| scene.db.close().unwrap()));
    run(threads);
    scene.settle_closed(|_, _| {});
}

#[test]
fn what_was_acknowledged_before_closing_is_kept() {
    explore("closing beside everything", closing_beside_everything);
}
