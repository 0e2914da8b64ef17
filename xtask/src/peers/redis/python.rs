//! The tests of redis-py, the client for Python, by pytest in a virtual environment.
//!
//! In: the source package of PyPI, which has the tests. Out: an outcome for each test, from the
//! lines that pytest prints while it runs and from its summary, which has the reasons.

use super::{Outcomes, failed, output};
use crate::run::{Result, path_text, step_in};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Its name in `docs/peers.md`.
pub(super) const SUITE: &str = "redis-py";
const VERSION: &str = "8.1.0";

/// Suite and file of each unit.
pub(super) const UNITS: &[(&str, &str)] =
    &[(SUITE, "tests/test_commands.py"), (SUITE, "tests/test_asyncio/test_commands.py")];

/// Time limits of a file and of a test, in seconds.
const LIMIT: Duration = Duration::from_secs(1_800);
const TEST_LIMIT: &str = "--timeout=120";

/// Downloads the sources and makes the environment, unless they are there. Returns the sources.
fn source(root: &Path) -> Result<PathBuf> {
    let source = root.join(format!("redis-{VERSION}"));
    if source.join("ready").exists() {
        return Ok(source);
    }
    let package = format!("redis=={VERSION}");
    let python = root.join("venv/bin/python");
    step_in(root, "python3", &["-m", "venv", "venv"], &[])?;
    let pip = |args: &[&str]| step_in(root, path_text(&python)?, &[&["-m", "pip", "-q"], args].concat(), &[]);
    pip(&["install", &package, "pytest", "pytest-asyncio", "pytest-timeout", "packaging"])?;
    pip(&["download", "--no-deps", "--no-binary", ":all:", &package])?;
    step_in(root, "tar", &["xf", &format!("redis-{VERSION}.tar.gz")], &[])?;
    fs::write(source.join("ready"), "").map_err(|e| failed(&source, e))?;
    Ok(source)
}

/// Runs a file of tests against the server at a port.
pub(super) fn run(root: &Path, file: &str, port: u16, log: &Path) -> Result<Outcomes> {
    let source = source(root)?;
    let url = format!("redis://127.0.0.1:{port}/0");
    let mut command = Command::new(root.join("venv/bin/python"));
    command
        .args(["-m", "pytest", file, "-o", "addopts=", "-p", "no:warnings", "-v", "--tb=line", "-rfE"])
        // The second URL is of a server with modules, which is tried at the beginning.
        .args([TEST_LIMIT, "-o", "timeout_func_only=true", "--redis-url", &url, "--redis-mod-url", &url])
        .env("COLUMNS", "300")
        .current_dir(&source);
    Ok(outcomes(file, &output(&mut command, log, LIMIT)?))
}

/// Reads pytest's output. A test that passes and then fails to clean up has failed.
fn outcomes(file: &str, text: &str) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let short = |name: &str| name.trim_start_matches(file).trim_start_matches("::").to_owned();
    for line in text.lines().filter(|line| line.starts_with(file)) {
        let line = line.rsplit_once('[').map_or(line, |(line, _)| line).trim_end();
        match line.rsplit_once(' ') {
            Some((name, "PASSED")) => outcomes.pass(&short(name.trim_end())),
            Some((name, "FAILED" | "ERROR")) => {
                let name = short(name.trim_end());
                outcomes.passed.remove(&name);
                outcomes.fail(&name, "no reason");
            }
            _ => {}
        }
    }
    let summary = text.lines().filter_map(|line| {
        let line = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
        line.split_once(" - ")
    });
    for (name, why) in summary {
        outcomes.fail(&short(name), why);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_pytest_prints() {
        let text = "tests/a.py::X::test_a PASSED        [ 10%]\ntests/a.py::X::test_b[x y] FAILED  [ 20%]\n\
            tests/a.py::X::test_c SKIPPED (no)   [ 30%]\ntests/a.py::X::test_d PASSED   [ 40%]\n\
            tests/a.py::X::test_d ERROR   [ 40%]\n== short test summary info ==\n\
            FAILED tests/a.py::X::test_b[x y] - assert 1 == 2\n";
        let outcomes = outcomes("tests/a.py", text);
        assert_eq!(outcomes.lines(), "X::test_a\n");
        assert_eq!(outcomes.failed["X::test_b[x y]"], "assert 1 == 2");
        assert_eq!(outcomes.failed["X::test_d"], "no reason");
    }
}
