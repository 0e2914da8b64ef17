//! Test suites of Redis and of its client for Python, run against `karstdb serve`.
//!
//! In: the list of expected failures in `docs/peers.md`. Out: a table of the tests that
//! redis-server passes and of those among them that KarstDB passes, by suite and unit; and an error
//! if one fails that is not in the list. The denominator is redis-server as Debian installs it,
//! because the suites have tests that no server passes as it is run here. Its outcomes stay in the
//! cache, with the suites' sources.

mod python;
mod servers;
mod tcl;

use super::{EXPECTED, failed, run_for};
use crate::run::{Result, cache_dir, repository_root};
use servers::Program;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Its name for `--only`; what follows selects suites and units whose names contain it.
pub(super) const NAME: &str = "redis";

/// A part of a suite that is run on a fresh server.
struct Unit {
    suite: &'static str,
    name: &'static str,
}

/// Outcomes of a unit's tests. A name that occurs several times is counted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcomes {
    passed: BTreeMap<String, u64>,
    /// Reason of the last failure of each name.
    failed: BTreeMap<String, String>,
}

impl Outcomes {
    fn pass(&mut self, name: &str) {
        *self.passed.entry(name.to_owned()).or_default() += 1;
    }

    fn fail(&mut self, name: &str, why: &str) {
        self.failed.insert(name.to_owned(), why.to_owned());
    }

    /// Names of the tests passed, for the cache: one on a line for each time.
    fn lines(&self) -> String {
        let repeated =
            self.passed.iter().flat_map(|(name, count)| (0..*count).map(move |_| format!("{name}\n")));
        repeated.collect()
    }

    fn from_lines(text: &str) -> Self {
        let mut outcomes = Self::default();
        text.lines().for_each(|name| outcomes.pass(name));
        outcomes
    }
}

/// A row of the list of expected failures: suite, unit and test, each with `*` for any text.
struct Row {
    patterns: [String; 3],
}

impl Row {
    fn matches(&self, unit: &Unit, test: &str) -> bool {
        let [suite, name, pattern] = &self.patterns;
        matches(suite, unit.suite) && matches(name, unit.name) && matches(pattern, test)
    }
}

/// Returns true if `text` is `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Reads the rows `| suite | unit | test | reason |` of the table with this head.
fn rows(text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let table = text.lines().skip_while(|line| *line != "| suite | unit | test | reason |");
    for line in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [suite, unit, test, reason] = cells[..] else {
            return Err(format!("{EXPECTED}: a row has {} cells: {line}", cells.len()));
        };
        if reason.is_empty() {
            return Err(format!("{EXPECTED}: no reason: {line}"));
        }
        rows.push(Row { patterns: [suite, unit, test].map(|cell| cell.trim_matches('`').to_owned()) });
    }
    Ok(rows)
}

/// Folders of the run.
struct Place {
    /// Sources, downloads and redis-server's outcomes.
    root: PathBuf,
    logs: PathBuf,
}

/// A line of the table.
struct Line {
    unit: Unit,
    of_redis: u64,
    of_karst: u64,
}

/// Runs the suites on both servers. `karstdb` is the program under test; `None` builds it.
///
/// # Errors
/// A test failed that the list does not expect, or a suite could not be run.
pub(super) fn run(only: Option<&str>, karst: Option<PathBuf>) -> Result {
    let list = repository_root().join(EXPECTED);
    let rows = rows(&fs::read_to_string(&list).map_err(|e| failed(&list, e))?)?;
    let root = cache_dir().join("peers").join(NAME);
    let place = Place { logs: root.join("logs"), root };
    fs::create_dir_all(&place.logs).map_err(|e| failed(&place.logs, e))?;
    let karst = karst.map_or_else(servers::build, Ok)?;
    let part = only.and_then(|only| only.strip_prefix(NAME)).map(str::trim).unwrap_or_default();
    let (mut lines, mut wrong, mut used) = (Vec::new(), Vec::new(), vec![false; rows.len()]);
    let units = python::UNITS.iter().chain(tcl::UNITS).map(|(suite, name)| Unit { suite, name });
    for unit in units.filter(|unit| format!("{} {}", unit.suite, unit.name).contains(part)) {
        let redis = of_redis(&place, &unit)?;
        let ours = one(&place, &unit, &Program::Karst(karst.clone()))?;
        let mut line = Line { unit, of_redis: 0, of_karst: 0 };
        for (test, count) in &redis.passed {
            let passed = ours.passed.get(test).copied().unwrap_or(0).min(*count);
            line.of_redis += count;
            line.of_karst += passed;
            if passed == *count {
                continue;
            }
            let expected: Vec<usize> =
                (0..rows.len()).filter(|at| rows[*at].matches(&line.unit, test)).collect();
            expected.iter().for_each(|at| used[*at] = true);
            let why = ours.failed.get(test).map_or("not reached", String::as_str);
            let said = format!("{} {}: {test}: {why}", line.unit.suite, line.unit.name);
            println!("failed, {}: {said}", if expected.is_empty() { "NOT EXPECTED" } else { "expected" });
            if expected.is_empty() {
                wrong.push(said);
            }
        }
        println!("{}", line.text());
        lines.push(line);
    }
    println!("\n{}", table(&lines));
    println!("output in {}", place.logs.display());
    if part.is_empty() {
        let idle = rows.iter().zip(&used).filter(|(_, used)| !**used);
        idle.for_each(|(row, _)| println!("listed, and no such failure: {}", row.patterns.join(" ")));
    }
    match wrong.len() {
        _ if lines.is_empty() => Err(format!("no suite or unit has the name {part}")),
        0 => Ok(()),
        count => Err(format!("{count} tests failed that {EXPECTED} does not list:\n{}", wrong.join("\n"))),
    }
}

impl Line {
    fn text(&self) -> String {
        let share = self.of_karst as f64 * 100.0 / (self.of_redis.max(1)) as f64;
        let Unit { suite, name } = &self.unit;
        format!("| `{suite}` | `{name}` | {} | {} | {share:.1} % |", self.of_redis, self.of_karst)
    }
}

/// The table of all lines, with a sum for each suite.
fn table(lines: &[Line]) -> String {
    let mut text =
        "| suite | unit | Redis passes | KarstDB passes | ratio |\n|---|---|---:|---:|---:|\n".to_owned();
    let mut sums: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for line in lines {
        text += &format!("{}\n", line.text());
        let sum = sums.entry(line.unit.suite).or_default();
        *sum = (sum.0 + line.of_redis, sum.1 + line.of_karst);
    }
    for (suite, (of_redis, of_karst)) in sums {
        let line = Line { unit: Unit { suite, name: "all" }, of_redis, of_karst };
        text += &format!("{}\n", line.text());
    }
    text
}

/// Outcomes of redis-server, from the cache if they are there.
fn of_redis(place: &Place, unit: &Unit) -> Result<Outcomes> {
    let version = servers::redis_version()?;
    let file = place.root.join(format!("{version}-{}-{}", unit.suite, unit.name.replace('/', "-")));
    if let Ok(text) = fs::read_to_string(&file) {
        return Ok(Outcomes::from_lines(&text));
    }
    let outcomes = one(place, unit, &Program::Redis)?;
    if outcomes.passed.is_empty() {
        return Err(format!("redis-server passes no test of {} {}", unit.suite, unit.name));
    }
    fs::write(&file, outcomes.lines()).map_err(|e| failed(&file, e))?;
    Ok(outcomes)
}

/// Runs a unit on a fresh server.
fn one(place: &Place, unit: &Unit, program: &Program) -> Result<Outcomes> {
    let name = format!("{}-{}-{}", program.name(), unit.suite, unit.name.replace('/', "-"));
    let server =
        servers::start(program, &place.root.join("data"), &place.logs.join(format!("{name}.server")))?;
    let log = place.logs.join(format!("{name}.log"));
    match unit.suite {
        python::SUITE => python::run(&place.root, unit.name, server.port, &log),
        _ => tcl::run(&place.root, unit.name, server.port, &log),
    }
}

/// Runs a command until it ends or `limit` has passed, and returns its output, which stays in
/// `log`.
fn output(command: &mut Command, log: &Path, limit: Duration) -> Result<String> {
    if run_for(command, log, limit)?.is_none() {
        println!("hangs: not done after {} s: {}", limit.as_secs(), log.display());
    }
    let bytes = fs::read(log).map_err(|e| failed(log, e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_for_any_text() {
        assert!(matches("a*c", "abc") && matches("*", "") && matches("abc", "abc") && matches("*b*", "abc"));
        assert!(!matches("a*c", "ab") && !matches("ab", "abc") && !matches("a*a", "a"));
    }

    #[test]
    fn the_list_has_a_reason_for_each_row() {
        let head = "text\n| suite | unit | test | reason |\n|---|---|---|---|\n";
        let list = rows(&format!("{head}| `a` | `b/*` | `x *` | missing |\n\n| c | d | e | f |\n")).unwrap();
        let [row] = &list[..] else { panic!("{} rows", list.len()) };
        assert!(row.matches(&Unit { suite: "a", name: "b/c" }, "x y"));
        assert!(!row.matches(&Unit { suite: "a", name: "c" }, "x y"));
        assert!(rows(&format!("{head}| a | b | c | |\n")).is_err());
        assert!(rows(&format!("{head}| a | b | c |\n")).is_err());
    }

    #[test]
    fn outcomes_survive_the_cache() {
        let mut outcomes = Outcomes::default();
        ["a", "b c", "a"].into_iter().for_each(|name| outcomes.pass(name));
        assert_eq!(Outcomes::from_lines(&outcomes.lines()), outcomes);
        assert_eq!(outcomes.passed["a"], 2);
    }
}
