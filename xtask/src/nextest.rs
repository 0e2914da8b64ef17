//! The task `nextest`, and the workspace's tests: run by cargo-nextest, a process for each,
//! configured by `.config/nextest.toml`, or by cargo's own runner if nextest is not found.

use crate::run::{Result, cache_dir, found, path_text, repository_root, step};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The version that `install` builds. `.config/nextest.toml` names the oldest supported one.
const VERSION: &str = "0.9.151";

/// Maximum number of lines of a failed test's output that are repeated at the end, and of
/// characters of each.
const LINES_TOLD: usize = 60;
const LINE_TOLD: usize = 400;

/// Tests that failed and then passed in a retry, in all runs of this process.
static FLAKY: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Tests that failed in all runs of this process, each with the end of its output.
static FAILED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Profile of retries: none, or in CI one for each test without random seeds.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Profile {
    Default,
    Ci,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Ci => "ci",
        }
    }
}

/// Builds the pinned version in the cache, unless it is there. Takes some minutes.
pub(crate) fn install() -> Result {
    let program = cached();
    if program.exists() {
        return Ok(());
    }
    let root = folder();
    let build = cache_dir().join("nextest-build");
    // Not optimised, because it only starts processes; that builds in a third of the time. Without
    // its default features, which update the program and trace it.
    let args = [
        "install",
        "cargo-nextest",
        "--version",
        VERSION,
        "--locked",
        "--debug",
        "--no-default-features",
        "--root",
        path_text(&root)?,
    ];
    let env = [("CARGO_TARGET_DIR", path_text(&build)?), ("CARGO_PROFILE_DEV_DEBUG", "0")];
    let outcome = step("cargo", &args, &env);
    drop(std::fs::remove_dir_all(&build));
    outcome
}

fn folder() -> PathBuf {
    cache_dir().join(format!("nextest-{VERSION}"))
}

fn cached() -> PathBuf {
    folder().join("bin/cargo-nextest")
}

/// Returns the program if it is in the cache or on the PATH.
fn program() -> Option<PathBuf> {
    let cached = cached();
    if cached.exists() {
        return Some(cached);
    }
    found("cargo-nextest").then(|| "cargo-nextest".into())
}

/// Tests of the workspace.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Which {
    All,
    /// The tests of the engine that CI runs in their long form.
    Long,
}

/// Suites of the engine that CI runs in their long form, each one test binary, and modules of
/// `simulation` that CI runs so. The other long forms are in `soak`.
const LONG_SUITES: [&str; 8] =
    ["cancellation", "crash_states", "damage", "faults", "interop", "kill", "many_databases", "point_reads"];
const LONG_SIMULATIONS: [&str; 3] = ["opening", "reads", "writes"];

/// Returns the nextest filter of [`Which::Long`].
fn long_filter() -> String {
    let suites: Vec<String> = LONG_SUITES.iter().map(|name| format!("binary(={name})")).collect();
    let modules = LONG_SIMULATIONS.join("|");
    format!(
        "package(=karst-engine) & ({} | (binary(=simulation) & test(/^({modules})::/)))",
        suites.join(" | ")
    )
}

/// Runs these tests of the workspace, all from one build.
pub(crate) fn tests(profile: Profile, which: Which) -> Result {
    let Some(program) = program() else {
        println!(
            "cargo-nextest is neither on the PATH nor in {}: cargo test runs the tests, with no limit of time \
             and no retry. `cargo xtask nextest` installs it there.",
            folder().display()
        );
        return without_nextest(which);
    };
    let results = results_of(profile);
    drop(std::fs::remove_file(&results));
    let run = ["nextest", "run", "--workspace", "--profile", profile.name()];
    let long = long_filter();
    let (filter, env): (&[&str], &[(&str, &str)]) = match which {
        Which::All => (&[], &[]),
        Which::Long => (&["--filterset", &long], &LONG),
    };
    let outcome = step(path_text(&program)?, &[&run, filter].concat(), env);
    note_flaky(&results);
    note_failed(&results);
    outcome?;
    if which != Which::Long {
        // nextest does not run these.
        step("cargo", &["test", "--workspace", "--doc"], &[])?;
    }
    Ok(())
}

const LONG: [(&str, &str); 1] = [("KARST_LONG_TESTS", "1")];

fn without_nextest(which: Which) -> Result {
    if which != Which::Long {
        return step("cargo", &["test", "--workspace"], &[]);
    }
    let test = ["test", "--workspace"];
    let suites = LONG_SUITES.iter().flat_map(|name| ["--test", name]);
    step("cargo", &test.into_iter().chain(suites).collect::<Vec<_>>(), &LONG)?;
    // The arguments name modules of the engine's `simulation`; `txn` has a program of that name
    // too.
    let simulation = [&test[..], &["--test", "simulation", "--"], &LONG_SIMULATIONS].concat();
    step("cargo", &simulation, &LONG)
}

/// The JUnit report of the newest run. nextest writes it below the workspace, not among the builds.
fn results_of(profile: Profile) -> PathBuf {
    repository_root().join("target/nextest").join(profile.name()).join("junit.xml")
}

/// Adds the flaky tests of the newest run, possibly by another process, to the list.
pub(crate) fn note_earlier(profile: Profile) {
    note_flaky(&results_of(profile));
}

fn note_flaky(results: &Path) {
    let text = std::fs::read_to_string(results).unwrap_or_default();
    FLAKY.lock().expect("nobody panics with it").extend(flaky(&text));
}

fn note_failed(results: &Path) {
    let text = std::fs::read_to_string(results).unwrap_or_default();
    FAILED.lock().expect("nobody panics with it").extend(failed(&text));
}

/// Lists the tests that failed, with the end of their output, because thousands of lines of other
/// tests and builds may follow it; and the tests that passed only in a retry.
pub(crate) fn tell_failed() {
    for (test, output) in FAILED.lock().expect("nobody panics with it").iter() {
        println!("\nFAILED: {test}\n{output}");
    }
    let flaky = FLAKY.lock().expect("nobody panics with it");
    if flaky.is_empty() {
        return;
    }
    println!("\nThese tests failed, and passed in a retry. The next change mends them first:");
    for test in flaky.iter() {
        println!("FLAKY: {test}");
    }
}

/// Returns the test cases of a JUnit report that have this element.
fn cases<'a>(report: &'a str, element: &'a str) -> impl Iterator<Item = &'a str> {
    report.split("<testcase").skip(1).filter(move |case| case.contains(element))
}

/// Returns the name of a test case as `crate::binary test`.
fn name_of(case: &str) -> String {
    let attribute = |name: &str| -> Option<&str> {
        let (_, behind) = case.split_once(&format!(" {name}=\""))?;
        Some(behind.split_once('"')?.0)
    };
    let part = |name| attribute(name).unwrap_or_default();
    format!("{} {}", part("classname"), part("name"))
}

/// Returns the tests of a JUnit report that passed in a retry, each as `crate::binary test`.
fn flaky(report: &str) -> Vec<String> {
    cases(report, "<flakyFailure").map(name_of).collect()
}

/// Returns the tests of a JUnit report that failed, with the last lines of their output.
fn failed(report: &str) -> Vec<(String, String)> {
    let output = |case: &str| {
        let part = |element: &str| {
            let (_, behind) = case.split_once(&format!("<{element}>"))?;
            Some(behind.split_once(&format!("</{element}>"))?.0)
        };
        let text = [part("system-out"), part("system-err")].map(Option::unwrap_or_default).join("\n");
        // In this order, because `&amp;lt;` stands for `&lt;`.
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        let text = text.replace("&apos;", "'").replace("&amp;", "&");
        let lines: Vec<String> = text.lines().map(|line| line.chars().take(LINE_TOLD).collect()).collect();
        lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n")
    };
    cases(report, "<failure").map(|case| (name_of(case), output(case))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_passed_in_a_retry_is_found() {
        let report = r#"<testsuites><testsuite name="karst-engine::ingest">
            <testcase name="first" classname="karst-engine::ingest" time="0.1"></testcase>
            <testcase name="beside::second" classname="karst-engine::ingest" time="0.2">
                <flakyFailure timestamp="2026" time="0.1" type="test failure with exit code 101">text</flakyFailure>
            </testcase>
            <testcase name="third" classname="karst-engine::ingest" time="0.1"><failure/></testcase>
        </testsuite></testsuites>"#;
        assert_eq!(flaky(report), ["karst-engine::ingest beside::second"]);
        assert!(flaky("").is_empty());
    }

    #[test]
    fn a_test_that_failed_is_found_with_the_end_of_its_output() {
        let many = "early\n".repeat(100);
        let report = format!(
            r#"<testcase name="first" classname="karst-engine::kill" time="0.1"></testcase>
            <testcase name="second" classname="karst-engine::kill" time="0.1">
                <failure type="test failure with exit code 101">text</failure>
                <system-out>{many}out</system-out>
                <system-err>left: &lt;1&gt; &amp;lt;</system-err>
            </testcase>"#
        );
        let [(name, output)] = &failed(&report)[..] else { panic!("one test failed") };
        assert_eq!(name, "karst-engine::kill second");
        assert!(output.ends_with("early\nout\nleft: <1> &lt;"), "{output}");
        assert_eq!(output.lines().count(), LINES_TOLD);
        assert!(failed("").is_empty());
    }

    /// A failure of a test with random seeds is a finding, which a retry would lose.
    #[test]
    fn tests_with_seeds_are_not_retried() {
        let root = repository_root();
        let config = std::fs::read_to_string(root.join(".config/nextest.toml")).unwrap();
        let (_, behind) = config.split_once("# Not retried.").expect("the list is there");
        let (listed, _) = behind.split_once("retries = 0").expect("the list has its end");
        let mut checked = 0;
        for folder in std::fs::read_dir(root.join("crates")).unwrap().flatten() {
            let tests = folder.path().join("tests");
            for file in files_below(&tests) {
                let text = std::fs::read_to_string(&file).unwrap();
                let draws =
                    ["asked::{long, seed", "asked::seed", "KARST_SEED", "proptest", "RandomState::new"];
                if !draws.iter().any(|word| text.contains(word)) {
                    continue;
                }
                checked += 1;
                let path = file.strip_prefix(&tests).unwrap().with_extension("");
                let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
                let whole = format!("binary(={})\n", parts[0]);
                // `files/copies/import` is the module `copies::import` of the program `files`.
                let mut modules = (1..parts.len())
                    .map(|end| format!("(binary(={}) & test(/^{}::/))", parts[0], parts[1..=end].join("::")));
                assert!(
                    listed.contains(&whole) || modules.any(|module| listed.contains(&module)),
                    "{} draws seeds, and .config/nextest.toml does not say that it is not retried",
                    file.display()
                );
            }
        }
        assert!(checked > 10, "{checked} files only");
    }

    fn files_below(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files.extend(files_below(&path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
        files
    }
}
