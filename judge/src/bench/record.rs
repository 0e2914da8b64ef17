//! Result files, one per run, in the form that the report reads.
//!
//! The file is rewritten after each table, so that an interrupted run keeps the tables it finished.

use super::results::{Figure, Machine, Measurement, Run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Label of a table's line: its text, and the numbers on the x axis of plots.
#[derive(Clone, Debug, Default)]
pub(super) struct Label {
    pub(super) text: String,
    /// The words without the numbers and the engine.
    variant: String,
    numbers: Vec<(&'static str, f64)>,
}

impl From<String> for Label {
    fn from(text: String) -> Label {
        Label { variant: text.clone(), text, numbers: Vec::new() }
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Label {
        Label::from(text.to_string())
    }
}

impl Label {
    /// A label whose only distinction is these numbers.
    pub(super) fn at(text: impl Into<String>, numbers: &[(&'static str, f64)]) -> Label {
        Label { text: text.into(), variant: String::new(), numbers: numbers.to_vec() }
    }

    /// Keeps the variant and sets the table's text and the numbers.
    pub(super) fn with(self, text: String, numbers: &[(&'static str, f64)]) -> Label {
        Label { text, numbers: numbers.to_vec(), ..self }
    }

    /// Engine named by the first word of the text.
    pub(super) fn engine(&self) -> &str {
        self.text.split([' ', ',']).next().unwrap_or_default()
    }

    /// Copy of the label whose variant does not name the engine.
    pub(super) fn of_engine(&self) -> Label {
        let words = self.variant.strip_prefix(self.engine()).unwrap_or(&self.variant);
        Label { variant: words.trim_start_matches([' ', ',']).into(), ..self.clone() }
    }

    /// The report's measurement for a line of this label. `who` is an engine, perhaps followed by
    /// words.
    pub(super) fn measurement(
        &self,
        workload: &str,
        who: &str,
        runs: usize,
        figures: Vec<Figure>,
    ) -> Measurement {
        let (engine, words) = who.split_at(who.find([' ', ',']).unwrap_or(who.len()));
        let parts = [self.variant.as_str(), words].map(how);
        let variant: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Measurement {
            rows: String::new(),
            workload: workload.into(),
            engine: engine.into(),
            variant: variant.join(", "),
            at: self.numbers.iter().map(|(name, value)| ((*name).to_string(), *value)).collect(),
            runs,
            figures,
        }
    }
}

/// Normalizes the words of a variant, so that both engines have the same ones and the report pairs
/// them. Removed are the version, which is in [`Run::versions`], and each engine's own name of the
/// call. RocksDB 7.8, which some rows measure, keeps its version because it is another contender.
fn how(words: &str) -> String {
    let mut rest = words;
    for own in ["11.8", "MultiGet", "multi_get", "iterator"] {
        rest = rest.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix(own).unwrap_or(rest);
    }
    rest.trim_start_matches([' ', ',']).replace(", optimize_multiget_for_io=true", "")
}

/// A figure, or None if the value is missing or not finite.
pub(super) fn figure(name: impl Into<String>, value: Option<f64>) -> Option<Figure> {
    let value = value.filter(|value| value.is_finite())?;
    Some(Figure { name: name.into(), value })
}

/// Result file of a run.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    run: Run,
}

impl Record {
    /// Creates the file of this run in `folder`.
    pub(super) fn begin(folder: &Path, args: &[&str]) -> Result<Record, String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let date = said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?;
        let head = said("git", &["rev-parse", "--short=12", "HEAD"])?;
        let changes = said("git", &["status", "--porcelain"])?;
        let commit = if changes.is_empty() { head.clone() } else { format!("{head}+") };
        let path = folder.join(format!("{}-{head}.json", date.replace(':', "")));
        let versions = [("RocksDB", "11.8.1"), ("KarstDB", env!("CARGO_PKG_VERSION"))];
        let versions = versions.map(|(name, version)| (name.to_string(), version.to_string()));
        let run = Run {
            date,
            commit,
            command: format!("cargo xtask compare {}", without_folders(args).join(" ")),
            machine: machine()?,
            versions: BTreeMap::from(versions),
            measurements: Vec::new(),
        };
        Ok(Record { path, run })
    }

    /// Adds a table's measurements and rewrites the file.
    pub(super) fn add(
        &mut self,
        rows: &str,
        measurements: impl IntoIterator<Item = Measurement>,
    ) -> Result<(), String> {
        let of = |measurement| Measurement { rows: rows.into(), ..measurement };
        self.run.measurements.extend(measurements.into_iter().map(of));
        let text = serde_json::to_string_pretty(&self.run).map_err(|e| e.to_string())?;
        std::fs::write(&self.path, text + "\n").map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// The arguments that affect measurements: without the folders of this machine.
fn without_folders<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match *arg {
            "--results" | "--data" | "--slowfs" => drop(rest.next()),
            other => kept.push(other),
        }
    }
    kept
}

fn machine() -> Result<Machine, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let field = |text: &str, name: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let memory = field(&read("/proc/meminfo")?, "MemTotal");
    let kilobytes = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Ok(Machine {
        processor: field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(|| "unknown".into()),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        kernel: read("/proc/sys/kernel/osrelease")?.trim().into(),
    })
}

/// Trimmed standard output of a program that is run in the repository.
fn said(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.map_err(|e| format!("cannot run {program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report's variants of two lines of a table.
    fn variants(rocks: &str, karst: &str) -> [String; 2] {
        [rocks, karst].map(|text| {
            let label = Label::from(text);
            label.of_engine().measurement("gets", label.engine(), 1, Vec::new()).variant
        })
    }

    #[test]
    fn what_both_engines_do_is_called_the_same() {
        for (rocks, karst, variant) in [
            ("RocksDB 11.8", "KarstDB", ""),
            ("RocksDB iterator", "KarstDB iterator", ""),
            (
                "RocksDB 11.8 MultiGet, async_io=true",
                "KarstDB multi_get, async_io=true, optimize_multiget_for_io=true",
                "async_io=true",
            ),
            (
                "RocksDB WritePrepared, unordered",
                "KarstDB WritePrepared, unordered",
                "WritePrepared, unordered",
            ),
        ] {
            assert_eq!(variants(rocks, karst), [variant, variant]);
        }
        let written =
            Label::at("1 writers", &[("writers", 1.0)]).measurement("puts", "RocksDB 11.8", 1, Vec::new());
        assert_eq!((written.engine.as_str(), written.variant.as_str()), ("RocksDB", ""));
    }

    #[test]
    fn what_differs_stays_apart() {
        let [rocks, karst] = variants(
            "RocksDB 7.8, Debian's db_bench, async_io=true",
            "KarstDB multi_get, async_io=true, optimize_multiget_for_io=false",
        );
        assert_eq!(rocks, "7.8, Debian's db_bench, async_io=true");
        assert_eq!(karst, "async_io=true, optimize_multiget_for_io=false");
    }
}
