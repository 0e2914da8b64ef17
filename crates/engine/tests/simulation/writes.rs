//! The whole engine: databases that are written, read, flushed, compacted, crashed and reopened, held against a chronicle of what was done.

use crate::machine::run;
use crate::{each_seed, long, number, same_trace};
use std::sync::atomic::Ordering;

#[test]
fn what_is_seen_is_what_was_written_whatever_crashes() {
    let (mut operations, mut crashes, mut lost) = (0, 0, 0);
    let in_one = if long() { 4000 } else { 1500 };
    each_seed("what_is_seen_is_what_was_written_whatever_crashes", 8, 260, |seed| {
        let trace = std::env::var_os("KARST_TRACE").is_some();
        let (world, _) = run(seed, in_one, trace);
        operations += world.operations();
        crashes += world.crashes.load(Ordering::Relaxed);
        lost += world.lost.load(Ordering::Relaxed);
    });
    println!("{operations} operations, {crashes} crashes, {lost} acknowledged and unsynced batches lost");
    let one_seed = number("KARST_SEED").is_some() || number("KARST_SEEDS").is_some();
    assert!(
        one_seed || (crashes > 8 && lost > 0),
        "nothing was tried: {crashes} crashes, {lost} batches lost"
    );
    assert!(one_seed || !long() || operations >= 1_000_000, "{operations} operations only");
}

#[test]
fn the_same_seed_writes_the_same_history() {
    each_seed("the_same_seed_writes_the_same_history", 2, 20, |seed| {
        let [first, second] = [(); 2].map(|()| run(seed, 600, true).1);
        same_trace(&first.take_trace(), &second.take_trace());
        assert_eq!(first.history(), second.history());
        assert_ne!(first.history(), run(seed + 1000, 600, false).1.history());
    });
}
