//! The results of `cargo xtask compare`, stored as one JSON file per run.
//!
//! The judge writes them and the report reads them; both include this file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run and its measurements.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    /// Start time in UTC: `2026-11-25T14:50:00Z`.
    pub(crate) date: String,
    /// KarstDB's commit, followed by `+` if the checkout had changes.
    pub(crate) commit: String,
    /// The command line.
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Versions of the engines.
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) measurements: Vec<Measurement>,
}

/// The machine of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

/// Medians of one engine in one place.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Measurement {
    /// The group that `--rows` names.
    pub(crate) rows: String,
    /// Description of the work: the title of a table.
    pub(crate) workload: String,
    /// `RocksDB`, `KarstDB`, `fio`.
    pub(crate) engine: String,
    /// The engine's method or setting, in equal words for measurements that are compared.
    pub(crate) variant: String,
    /// Numbers that distinguish it from other measurements of the workload, such as `in flight`.
    pub(crate) at: BTreeMap<String, f64>,
    /// Number of repetitions.
    pub(crate) runs: usize,
    /// Figures; engines are compared by the first, of which more is better.
    pub(crate) figures: Vec<Figure>,
}

/// One number. Unknown figures are left out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Name with its unit: `keys/s`.
    pub(crate) name: String,
    pub(crate) value: f64,
}
