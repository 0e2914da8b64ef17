//! The engine on a simulated machine: one thread, virtual time, a disk whose power fails, all
//! determined by a seed (`karst_io::Simulation`). Equal seeds give equal histories; a failing seed
//! prints the command that replays it.
//!
//! Environment: `KARST_SEED` runs one seed only, `KARST_SEEDS` this number of seeds from there on,
//! `KARST_TRACE=1` prints the trace of a failing run, `KARST_LONG_TESTS=1` selects the long form
//! that `cargo xtask ci` runs.

#[path = "../reads/timestamps/all_writes.rs"]
mod all_writes;
mod blob_garbage;
mod clipping;
mod copying;
mod fifo;
mod importing;
mod ingesting;
mod layers;
mod machine;
mod memtables;
mod opening;
#[path = "../kill/reading.rs"]
mod reading;
mod reads;
mod setting_back;
mod store;
mod timestamps;
mod torn_manifest;
mod writes;
#[path = "../kill/writing.rs"]
mod writing;

use karst_testkit::asked::{self, long, number};
use karst_testkit::panics::panics;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Checks that the traces of two runs are equal; otherwise shows the place of the first difference.
fn same_trace(first: &[String], second: &[String]) {
    let parting = first.iter().zip(second).position(|(a, b)| a != b).unwrap_or(first.len().min(second.len()));
    let show = |trace: &[String]| {
        let from = parting.saturating_sub(12);
        trace.iter().skip(from).take(18).cloned().collect::<Vec<_>>().join("\n  ")
    };
    assert!(
        first.len() == second.len() && parting == first.len(),
        "the histories part at step {parting}:\n  {}\nand\n  {}",
        show(first),
        show(second)
    );
}

/// Runs `test` with each requested seed, or with the number of seeds of the test's form. Prints the
/// command that replays a failing one.
fn each_seed(name: &str, short: u64, in_long: u64, mut test: impl FnMut(u64)) {
    for seed in asked::seeds(short, in_long) {
        let before = panics();
        let one = AssertUnwindSafe(|| {
            test(seed);
            assert_eq!(panics(), before, "a task panicked");
        });
        if let Err(panic) = catch_unwind(one) {
            let form = if long() { "KARST_LONG_TESTS=1 " } else { "" };
            eprintln!(
                "\nseed {seed} fails; to replay it:\n  {form}KARST_SEED={seed} cargo test -p karst-engine --test simulation {name}\n"
            );
            resume_unwind(panic);
        }
    }
}
