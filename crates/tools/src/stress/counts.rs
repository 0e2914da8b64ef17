//! Counts of a life's work by kind: lanes add to them, the life prints them on its standard output,
//! the watching process sums them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// Kinds of work counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count { $($name),* }

        impl Count {
            pub(crate) const ALL: &'static [(Count, &'static str)] = &[$((Count::$name, $text)),*];
        }
    };
}

counts! {
    Operations = "operations",
    Gets = "gets",
    MultiGets = "multi_gets",
    Scans = "scans",
    PrefixScans = "prefix scans",
    Sums = "sums",
    Batches = "batches",
    Unlogged = "unlogged batches",
    Ingested = "batches ingested as files",
    RangeDeletions = "range deletions",
    Transfers = "transfers",
    Commits = "transactions committed",
    RollBacks = "transactions rolled back",
    Prepares = "transactions prepared",
    Recovered = "prepared transactions found again",
    Conflicts = "conflicts",
    Snapshots = "snapshots read again",
    Flushes = "flushes",
    Compactions = "manual compactions",
    OptionChanges = "option changes",
    Checkpoints = "checkpoints",
    Backups = "backups",
    WholeCopies = "whole copies verified",
    Restores = "backups restored in place",
    Families = "column families made and dropped",
    Imports = "column families imported",
    Clips = "column families clipped",
    Stamped = "steps with timestamps",
    Behind = "steps before and behind files",
    Loads = "bulk loads",
    Other = "other calls",
    Checked = "entries checked in reads",
    Undecided = "entries that changed too often to be checked",
    Verified = "keys verified after opening",
    Bytes = "bytes written",
}

/// Counters of all kinds.
pub(crate) struct Counts([AtomicU64; Count::ALL.len()]);

impl Default for Counts {
    fn default() -> Counts {
        Counts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counts {
    pub(crate) fn add(&self, what: Count, number: u64) {
        // Ordering: no other data is read depending on a counter.
        self.0[what as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.iter().map(|number| number.load(Ordering::Relaxed)).collect()
    }
}
