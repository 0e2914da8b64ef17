//! `karst-report DIR`: the report of the side-by-side benchmark.
//!
//! In: the results of `cargo xtask compare`, one JSON file per run, in `DIR/results`. Out:
//! `DIR/benchmarks.md` for reading as text, and `DIR/index.html`, a self-contained page with plots.
//! A workload that several runs measured is shown from the newest.
//!
//! [`results`] is the format of the files, [`report`] derives tables and conclusions, [`plot`]
//! draws, [`page`] and [`markdown`] write.
#![forbid(unsafe_code)]

mod markdown;
mod page;
mod plot;
mod report;
mod results;

use report::Report;
use results::Run;
use std::path::Path;
use std::process::ExitCode;

fn run(args: &[String]) -> Result<(), String> {
    let [folder] = args else { return Err("usage: karst-report DIR".into()) };
    let folder = Path::new(folder);
    let report = Report::of(read(&folder.join("results"))?);
    let page = page::draw(&report)?;
    for (name, text) in [("benchmarks.md", markdown::write(&report)), ("index.html", page)] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Reads all runs, the oldest first.
fn read(folder: &Path) -> Result<Vec<Run>, String> {
    let at = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| at(folder, &e))? {
        let path = entry.map_err(|e| at(folder, &e))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).map_err(|e| at(&path, &e))?;
            runs.push(serde_json::from_str::<Run>(&text).map_err(|e| at(&path, &e))?);
        }
    }
    if runs.is_empty() {
        return Err(format!("{}: no results here", folder.display()));
    }
    runs.sort_by(|a, b| a.date.cmp(&b.date));
    Ok(runs)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("karst-report: {message}");
            ExitCode::FAILURE
        }
    }
}
