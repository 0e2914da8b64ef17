//! The results of a run of `cargo xtask compare`, as they are kept: one JSON file a run.
//!
//! The judge writes them and the report reads them; both have this file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run, and all that was measured in it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    /// When it began, in UTC: `2026-11-25T14:50:00Z`.
    pub(crate) date: String,
    /// Of KarstDB, with `+` behind it if the checkout had changes.
    pub(crate) commit: String,
    /// What was typed.
    pub(crate) command: String,
    pub(crate) machine: Machine,
    /// Of the engines.
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) measurements: Vec<Measurement>,
}

/// Where it ran.
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
    /// What is done: the title of a table.
    pub(crate) workload: String,
    /// `RocksDB`, `KarstDB`, `fio`.
    pub(crate) engine: String,
    /// How the engine does it, or with what, in words that are the same for all that is compared.
    pub(crate) variant: String,
    /// Numbers that tell it from other measurements of the workload, such as `in flight`.
    pub(crate) at: BTreeMap<String, f64>,
    /// How often it was measured.
    pub(crate) runs: usize,
    /// The first is what engines are compared by; more of it is better.
    pub(crate) figures: Vec<Figure>,
}

/// One number. What cannot be told is left out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// With its unit: `keys/s`.
    pub(crate) name: String,
    pub(crate) value: f64,
}
