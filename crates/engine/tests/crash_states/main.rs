//! The states that a crash may leave at every boundary between two changes of the disk, opened and
//! checked ([docs/decisions/crash-states.md](../../../../docs/decisions/crash-states.md)).
//!
//! A workload runs once on the simulated machine, which records the changes of the disk. Change by
//! change, the states that a crash may leave are then made from the record. Each is opened on a
//! machine of its own, compared with the writes acknowledged by then, and used.
//!
//! | file | holds |
//! |---|---|
//! | `workload` | the runs: options, writers, the task that flushes, compacts, creates and drops families; and the facts known at each change |
//! | `check` | opens a state, checks it, uses it and reopens it |
//! | `explore` | boundaries and states, by number |
//!
//! Environment: by default a share of the states is checked, with `KARST_LONG_TESTS=1` a larger
//! one; `KARST_SEEDS=<n>` runs n seeds, for soaking; `KARST_SEED` runs one seed, and with
//! `KARST_STATE=boundary.state` only that state, with a trace.

mod check;
mod explore;
#[path = "../kill/reading.rs"]
mod reading;
mod workload;
#[path = "../kill/writing.rs"]
mod writing;

use explore::explore;
use workload::Plan;

/// Common settings of all runs, with small sizes, so that few changes include many operations.
const PLAN: Plan = Plan {
    name: "",
    options: "",
    families: 2,
    writers: 2,
    unlogged: false,
    buffers_log: false,
    killed: false,
};

fn run(name: &'static str, options: &'static str, change: impl FnOnce(&mut Plan)) {
    let mut plan = Plan { name, options, ..PLAN };
    change(&mut plan);
    explore(&plan);
}

#[test]
fn by_default() {
    run("by_default", "", |_| {});
}

#[test]
fn unordered_and_mapped() {
    run("unordered_and_mapped", "unordered_write=true;allow_mmap_writes=true;", |plan| {
        (plan.writers, plan.killed) = (3, true);
    });
}

#[test]
fn a_log_that_is_flushed_manually() {
    run("a_log_that_is_flushed_manually", "manual_wal_flush=true;", |plan| plan.buffers_log = true);
}

#[test]
fn recycled_logs() {
    run("recycled_logs", "recycle_log_file_num=2;", |_| {});
}

#[test]
fn recycled_and_compressed_logs_that_are_mapped() {
    let options =
        "recycle_log_file_num=1;wal_compression=kZSTD;allow_mmap_writes=true;max_total_wal_size=12000;";
    run("recycled_and_compressed_logs_that_are_mapped", options, |_| {});
}

#[test]
fn families_flushed_together_with_unlogged_writes() {
    run("families_flushed_together_with_unlogged_writes", "atomic_flush=true;", |plan| plan.unlogged = true);
}

#[test]
fn blob_files() {
    let options = "enable_blob_files=true;min_blob_size=100;enable_blob_garbage_collection=true;\
                   blob_garbage_collection_age_cutoff=0.6;use_direct_io_for_flush_and_compaction=true;";
    run("blob_files", options, |_| {});
}

#[test]
fn logs_that_opening_leaves() {
    let options = "avoid_flush_during_recovery=true;track_and_verify_wals_in_manifest=true;\
                   compaction_style=kCompactionStyleUniversal;";
    run("logs_that_opening_leaves", options, |plan| plan.killed = true);
}

#[test]
fn recovery_that_bears_no_damage() {
    let options = "wal_recovery_mode=kAbsoluteConsistency;recycle_log_file_num=0;";
    run("recovery_that_bears_no_damage", options, |_| {});
}
