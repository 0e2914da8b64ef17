//! The result of each mutant, as a table in Markdown and as JSON.

use crate::planted::Planted;
use crate::sites::Site;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A mutant and its result so far.
#[derive(Clone)]
pub struct Row {
    pub id: u32,
    /// Place of a drawn mutant, or name of a patch.
    pub name: String,
    /// Description of the change.
    pub what: String,
    /// For a patch, the suite that should find it.
    pub expected: String,
    pub found: Option<Found>,
    /// Time that tests ran with it on, in seconds.
    pub seconds: f64,
    /// Number of these tests, and the time they take without it, in seconds.
    pub tests: usize,
    pub time_of_tests: f64,
}

/// The test that found a mutant.
#[derive(Clone)]
pub struct Found {
    pub suite: String,
    pub test: String,
    /// True if the test did not end.
    pub hangs: bool,
}

impl Row {
    pub fn drawn(id: u32, site: &Site) -> Row {
        let path = site.path.trim_start_matches("crates/").replacen("/src/", "/", 1);
        let name = format!("{path}:{} {}", site.line, site.function);
        Row::new(id, name, site.what.clone())
    }

    pub fn planted(id: u32, patch: &Planted) -> Row {
        Row {
            expected: patch.suite.clone(),
            ..Row::new(id, patch.name.clone(), format!("for {}", patch.suite))
        }
    }

    fn new(id: u32, name: String, what: String) -> Row {
        Row {
            id,
            name,
            what,
            expected: String::new(),
            found: None,
            seconds: 0.0,
            tests: 0,
            time_of_tests: 0.0,
        }
    }

    fn outcome(&self) -> String {
        match &self.found {
            Some(f) if f.hangs => format!("{} (hangs): {}", f.suite, f.test),
            Some(f) => format!("{}: {}", f.suite, f.test),
            None if self.tests == 0 => "not reached".into(),
            None => format!("missed by {} tests", self.tests),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:5} {} | {} | {} | {:.1} s", self.id, self.name, self.what, self.outcome(), self.seconds)
    }
}

/// Number of mutants found, in total and by suite, and the list of the others.
pub fn summary(rows: &BTreeMap<u32, Row>) -> String {
    let found: Vec<&Row> = rows.values().filter(|r| r.found.is_some()).collect();
    let mut seconds: Vec<f64> = found.iter().map(|r| r.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
    let mut text = format!("{} of {} found, in {median:.1} s (median)\n", found.len(), rows.len());
    let mut by_suite: BTreeMap<&str, usize> = BTreeMap::new();
    for f in found.iter().filter_map(|r| r.found.as_ref()) {
        *by_suite.entry(&f.suite).or_default() += 1;
    }
    let mut by_suite: Vec<_> = by_suite.into_iter().collect();
    by_suite.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    for (suite, n) in by_suite {
        text.push_str(&format!("  {n:3} by {suite}\n"));
    }
    for row in rows.values().filter(|r| r.found.is_none()) {
        text.push_str(&format!("not found: {row}\n"));
    }
    text
}

/// Writes `report.md` and `report.json`.
pub fn write(folder: &Path, commit: &str, seed: &str, rows: &BTreeMap<u32, Row>) -> Result<(), String> {
    let mut text = format!("Commit {commit}, seed {seed}\n\n{}\n", summary(rows));
    text.push_str("| | mutant | what | found by | s |\n|---|---|---|---|---|\n");
    let cell = |text: &str| text.replace('|', "\\|");
    for r in rows.values() {
        let (name, what, outcome) = (cell(&r.name), cell(&r.what), cell(&r.outcome()));
        text.push_str(&format!("| {} | {name} | {what} | {outcome} | {:.1} |\n", r.id, r.seconds));
    }
    let all: Vec<_> = rows
        .values()
        .map(|r| {
            let found = r.found.as_ref().map(|f| json!({"suite": f.suite, "test": f.test, "hangs": f.hangs}));
            json!({"id": r.id, "mutant": r.name, "what": r.what, "found": found, "seconds": r.seconds, "tests": r.tests})
        })
        .collect();
    let all = json!({"commit": commit, "seed": seed, "mutants": all});
    std::fs::write(folder.join("report.md"), text)
        .and_then(|()| std::fs::write(folder.join("report.json"), format!("{all:#}\n")))
        .map_err(|e| format!("{}: {e}", folder.display()))
}
