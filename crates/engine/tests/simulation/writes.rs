//! The whole engine: databases that are written, read, flushed, compacted, crashed and reopened,
//! and compared with a chronicle of all writes.

use crate::machine::{Weather, run};
use crate::{each_seed, long, number, same_trace};
use std::sync::atomic::Ordering;

#[test]
fn what_is_seen_is_what_was_written_whatever_crashes() {
    let (mut operations, mut crashes, mut lost, mut followed, mut set_back) = (0, 0, 0, 0, 0);
    let (mut imports, mut clipped, mut restored, mut full) = (0, 0, 0, 0);
    let in_one = if long() { 4000 } else { 1500 };
    each_seed("what_is_seen_is_what_was_written_whatever_crashes", 16, 400, |seed| {
        let trace = std::env::var_os("KARST_TRACE").is_some();
        let (world, _) = run(seed, Weather::Fair, in_one, trace);
        operations += world.operations();
        crashes += world.crashes.load(Ordering::Relaxed);
        lost += world.lost.load(Ordering::Relaxed);
        followed += world.followed.load(Ordering::Relaxed);
        set_back += world.set_back.load(Ordering::Relaxed);
        imports += world.imports.load(Ordering::Relaxed);
        clipped += world.clipped.load(Ordering::Relaxed);
        restored += world.restored.load(Ordering::Relaxed);
        full += world.memtables.at_most.load(Ordering::Relaxed);
    });
    println!(
        "{operations} operations, {crashes} crashes, {lost} acknowledged and unsynced batches lost, followed {followed} times, set back {set_back} times, {imports} families imported, {clipped} clipped to nothing, {restored} backups restored in place"
    );
    let one_seed = number("KARST_SEED").is_some() || number("KARST_SEEDS").is_some();
    assert!(
        one_seed || (crashes > 8 && lost > 0 && followed > 20 && set_back > 0),
        "nothing was tried: {crashes} crashes, {lost} batches lost, followed {followed} times, set back {set_back} times"
    );
    assert!(
        one_seed || (imports > 5 && clipped > 0 && restored > 0 && full > 0),
        "nothing was tried: {imports} families imported, {clipped} clipped, {restored} backups restored, {full} times as many memtables as there may be"
    );
    assert!(one_seed || !long() || operations >= 1_000_000, "{operations} operations only");
}

#[test]
fn the_same_seed_writes_the_same_history() {
    each_seed("the_same_seed_writes_the_same_history", 2, 20, |seed| {
        let [(world, first), (again, second)] = [(); 2].map(|()| run(seed, Weather::Fair, 600, true));
        same_trace(&world.trace.lock().unwrap(), &again.trace.lock().unwrap());
        assert_eq!(first.history(), second.history());
        assert_ne!(first.history(), run(seed + 1000, Weather::Fair, 600, false).1.history());
    });
}

#[test]
fn nothing_is_lost_when_the_disk_fails_and_writes_go_on_behind_it() {
    let (mut operations, mut crashes, mut failed) = (0, 0, 0);
    let in_one = if long() { 3000 } else { 1200 };
    each_seed("nothing_is_lost_when_the_disk_fails_and_writes_go_on_behind_it", 8, 150, |seed| {
        let trace = std::env::var_os("KARST_TRACE").is_some();
        let (world, _) = run(seed, Weather::Foul, in_one, trace);
        operations += world.operations();
        crashes += world.crashes.load(Ordering::Relaxed);
        failed += world.failed.load(Ordering::Relaxed);
    });
    println!("{operations} operations, {crashes} crashes, {failed} calls failed with the disk");
    let one_seed = number("KARST_SEED").is_some() || number("KARST_SEEDS").is_some();
    assert!(one_seed || (crashes > 8 && failed > 100), "nothing was tried: {crashes}, {failed}");
}
