//! The tasks `test`, `ci`, `mutants` and `compare`.

use crate::deny::deny;
use crate::nextest::{self, Profile, Which};
use crate::run::{
    Result, UNOPTIMISED, at_once, cache_dir, check_room, found, fresh_seed, install, path_text,
    repository_root, step, step_in, succeeds, target_dir,
};
use crate::sanitizers::sanitizers;
use crate::tidy;
use crate::wheel::wheel;
use std::path::{Path, PathBuf};

/// Debian packages that tests or builds need, each with one of its programs.
const ROCKSDB_TOOLS: [(&str, &str); 3] = [("rocksdb-tools", "ldb"), ("make", "make"), ("g++", "c++")];
/// Further packages that the RocksDB 11.8 judge needs to build and to run.
const JUDGE_TOOLS: [(&str, &str); 3] = [("clang", "clang"), ("fio", "fio"), ("pkg-config", "pkg-config")];
const JUDGE_LIBRARIES: [(&str, &str); 2] =
    [("libclang-dev", "/usr/lib/llvm-14/lib/libclang.so"), ("liburing-dev", "/usr/include/liburing.h")];

/// Disk space of the builds of the default test command, and of `ci` with them.
const TEST_GIGABYTES: u64 = 14;
const CI_GIGABYTES: u64 = 20;

/// The default test command: all tests that run in a few minutes. If the variable `CI` is set it
/// installs cargo-nextest and runs the tests by its profile `ci`, which has retries.
pub(crate) fn test() -> Result {
    check_room(TEST_GIGABYTES)?;
    install(&missing_programs(&ROCKSDB_TOOLS))?;
    if std::env::var_os("CI").is_none() {
        return nextest::tests(Profile::Default, Which::All);
    }
    install_nextest();
    let outcome = nextest::tests(Profile::Ci, Which::All);
    nextest::tell_failed();
    outcome
}

/// Installs cargo-nextest. A failure is only printed, because tests run without it too.
fn install_nextest() {
    if let Err(error) = nextest::install() {
        println!("cargo-nextest cannot be installed: {error}");
    }
}

/// Number of kills of both engines' processes, which take about two minutes.
const CI_KILLS: &str = "100";
/// Operations in lockstep with RocksDB: one database of twelve lives, or two.
const CI_LOCKSTEP: &str = "20000";
/// Walks of lockstep with a driver of their own, each of some seconds.
const CI_WALKS: [&str; 2] = ["fifo", "timestamps"];

/// All checks before a change lands, beyond [`test()`]. At the end it lists tests that failed, with
/// the end of their output, and tests that passed only in a retry, including those of an earlier
/// [`test()`] in this clone.
pub(crate) fn ci(args: &[String]) -> Result {
    nextest::note_earlier(Profile::Ci);
    let outcome = all_of_ci(args);
    nextest::tell_failed();
    outcome
}

fn all_of_ci(args: &[String]) -> Result {
    let quick = args.iter().any(|a| a == "--quick");
    if let Some(unknown) = args.iter().find(|a| *a != "--quick") {
        return Err(format!("ci knows --quick only, not {unknown}"));
    }
    check_room(CI_GIGABYTES)?;
    step("cargo", &["fmt", "--all", "--check"], &[])?;
    tidy::run(&repository_root())?;
    // Early, because a lock file that is behind is the commonest reason why the last steps fail.
    for workspace in ["fuzz", "judge", "mutants", "bindings/python"] {
        step_in(&repository_root().join(workspace), "cargo", &["fetch", "--locked"], &[])?;
    }
    install_nextest();
    install(&missing_programs(&ROCKSDB_TOOLS))?;
    // At the same time, because builds and tests leave a processor idle at times. The second group
    // builds in separate folders.
    at_once(&[
        &|| {
            step("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
            let docs = ["doc", "--workspace", "--no-deps", "--all-features"];
            step("cargo", &docs, &[("RUSTDOCFLAGS", "-D warnings")])?;
            without_features()?;
            crate::capi::installed()?;
            deny()?;
            nextest::tests(Profile::Ci, Which::Long)?;
            stress()
        },
        &|| {
            // First, because it is the quickest, and no other step compiles these targets.
            fuzz()?;
            model_checks()?;
            sanitizers()?;
            explored_threads()?;
            wheel(&[])?;
            if quick { Ok(()) } else { build_judge() }
        },
    ])?;
    if quick { Ok(()) } else { judge_matrix() }
}

/// Checks that the facade without features, as users build it, compiles without `testing` and
/// refuses compressed files. The workspace has all features, because its tests need them.
fn without_features() -> Result {
    let facade = ["-p", "karstdb", "--no-default-features"];
    step("cargo", &[&["clippy"], &facade[..], &["--lib", "--", "-D", "warnings"]].concat(), &[])?;
    step("cargo", &[&["test"], &facade[..], &["--test", "without_codecs"]].concat(), &UNOPTIMISED)
}

/// Checks every interleaving of small scenarios of the lock-free types, and undefined behaviour.
fn model_checks() -> Result {
    let target = cache_dir().join("loom-target");
    // LTO is off, because linking would take half of the time.
    let env = [
        ("RUSTFLAGS", "--cfg loom"),
        ("CARGO_PROFILE_RELEASE_LTO", "off"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        ("CARGO_TARGET_DIR", path_text(&target)?),
    ];
    let crates = ["-p", "karst-mem", "-p", "karst-io", "-p", "karst-commit", "-p", "karst-txn"];
    let args = [&["test", "--release"], &crates[..], &["--lib", "loom"]].concat();
    step("cargo", &args, &env)?;
    if !succeeds("cargo", &["+nightly", "miri", "--version"]) {
        println!("Miri is not installed (rustup +nightly component add miri): its check is left out");
        return Ok(());
    }
    let target = cache_dir().join("miri-target");
    let env = [("CARGO_TARGET_DIR", path_text(&target)?), ("MIRIFLAGS", "-Zmiri-disable-isolation")];
    step("cargo", &["+nightly", "miri", "test", "-p", "karst-mem", "--lib"], &env)
}

/// Explores schedules of the engine's threads, from seeds that are printed: per scenario
/// `KARST_SCHEDULES`, or the suite's default, which takes three minutes.
fn explored_threads() -> Result {
    let target = cache_dir().join("shuttle-target");
    let env = [("RUSTFLAGS", "--cfg shuttle"), ("CARGO_TARGET_DIR", path_text(&target)?)];
    step("cargo", &["test", "-p", "karst-engine", "--test", "threads", "--", "--nocapture"], &env)
}

/// Runs each fuzz target for 5 seconds, from an empty corpus.
fn fuzz() -> Result {
    let dir = repository_root().join("fuzz");
    let target = cache_dir().join("fuzz-target");
    let env = [("CARGO_TARGET_DIR", path_text(&target)?)];
    // All at once, so that both processors link.
    step_in(&dir, "cargo", &["build", "--release", "--locked", "--bins"], &env)?;
    for name in fuzz_targets()? {
        let args =
            ["run", "--release", "--locked", "--bin", &name, "--", "-max_total_time=5", "-verbosity=0"];
        step_in(&dir, "cargo", &args, &env)?;
    }
    Ok(())
}

/// Returns the names of all fuzz targets.
pub(crate) fn fuzz_targets() -> Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(repository_root().join("fuzz/fuzz_targets"))
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>())
        .map_err(|e| format!("fuzz targets: {e}"))?
        .iter()
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_string))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs `karstdb stress` for a minute, with a seed from the clock, which it prints.
///
/// Not by `cargo run`, because it would build all crates again with the features of this package
/// alone.
fn stress() -> Result {
    step("cargo", &["test", "--workspace", "--no-run", "--quiet"], &[])?;
    let karst = target_dir().join("debug/karstdb");
    step(path_text(&karst)?, &["stress", "-duration=55s", "-interval=4s"], &[])
}

/// Profiles of the judge: for CI, which compares answers, and for measurements.
const JUDGE_OF_CI: &str = "ci";
const JUDGE_MEASURED: &str = "release";

/// Builds the judge, and RocksDB 11.8 if it is not in the cache.
fn build_judge() -> Result {
    install_judge()?;
    let target = cache_dir().join("judge-target");
    let env = [("CARGO_TARGET_DIR", path_text(&target)?)];
    let build = ["build", "--profile", JUDGE_OF_CI, "--locked"];
    step_in(&repository_root().join("judge"), "cargo", &build, &env)
}

/// Runs the judge. RocksDB 11.8 writes a database for each cell of the option matrix, and KarstDB
/// must read the contents that RocksDB reads. KarstDB writes one for each, and both continue it in
/// turns. Each engine decides the transactions that the other has prepared. Both write keys with
/// timestamps in turns, and run equal random operations, from new seeds each time. Processes of
/// both are killed while they write counters.
fn judge_matrix() -> Result {
    let seeds = [fresh_seed(), fresh_seed() + 1].map(|seed| seed.to_string());
    at_once(&[
        &|| {
            judge(JUDGE_OF_CI, &["kills", "--kills", CI_KILLS])?;
            judge(JUDGE_OF_CI, &["written"])?;
            judge(JUDGE_OF_CI, &["prepared"])
        },
        &|| {
            judge(JUDGE_OF_CI, &["matrix"])?;
            judge(JUDGE_OF_CI, &["timestamps", "--seed", &seeds[0]])?;
            for walk in CI_WALKS {
                judge(JUDGE_OF_CI, &["lockstep", walk, "--seed", &seeds[1]])?;
            }
            judge(JUDGE_OF_CI, &["lockstep", "--ops", CI_LOCKSTEP, "--seed", &seeds[1]])
        },
    ])
}

/// Finds the tests that notice each of many small changes of the source. Passes `args` on.
pub(crate) fn mutants(args: &[String]) -> Result {
    install(&missing_programs(&ROCKSDB_TOOLS))?;
    let target = cache_dir().join("mutants-target");
    let mut all = vec!["run", "--locked", "--"];
    all.extend(args.iter().map(String::as_str));
    step_in(&repository_root().join("mutants"), "cargo", &all, &[("CARGO_TARGET_DIR", path_text(&target)?)])
}

/// Runs the side-by-side benchmark. Passes `args` on except `--report DIR`, which stores the
/// results in `DIR/results` and makes the report of all results there.
pub(crate) fn compare(args: &[String]) -> Result {
    let (folder, rest) = take_report(args)?;
    install_judge()?;
    let results = folder.as_ref().map(|folder| folder.join("results"));
    let mut all = vec!["bench"];
    all.extend(rest);
    if let Some(results) = &results {
        all.extend(["--results", path_text(results)?]);
    }
    judge(JUDGE_MEASURED, &all)?;
    folder.map_or(Ok(()), |folder| make_report(&folder))
}

/// Returns the folder of `--report DIR`, absolute because the judge runs in another one, and the
/// other arguments.
fn take_report(args: &[String]) -> Result<(Option<PathBuf>, Vec<&str>)> {
    let mut rest: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some(at) = rest.iter().position(|arg| *arg == "--report") else { return Ok((None, rest)) };
    let folder = rest.get(at + 1).ok_or("--report needs a folder")?;
    let folder = std::path::absolute(folder).map_err(|e| format!("--report {folder}: {e}"))?;
    rest.drain(at..at + 2);
    Ok((Some(folder), rest))
}

/// Makes the report of the results in a folder.
pub(crate) fn report(args: &[String]) -> Result {
    let [folder] = args else {
        return Err("report needs the folder that `compare --report` has filled".into());
    };
    make_report(&std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))?)
}

fn make_report(folder: &Path) -> Result {
    step("cargo", &["run", "--quiet", "-p", "karst-report", "--", path_text(folder)?], &[])
}

fn judge(profile: &str, args: &[&str]) -> Result {
    let target = cache_dir().join("judge-target");
    let mut all = vec!["run", "--profile", profile, "--locked", "--"];
    all.extend(args);
    step_in(&repository_root().join("judge"), "cargo", &all, &[("CARGO_TARGET_DIR", path_text(&target)?)])
}

pub(crate) fn install_judge() -> Result {
    let mut missing = missing_programs(&ROCKSDB_TOOLS);
    missing.extend(missing_programs(&JUDGE_TOOLS));
    missing.extend(JUDGE_LIBRARIES.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(p, _)| *p));
    install(&missing)
}

fn missing_programs(wanted: &[(&'static str, &str)]) -> Vec<&'static str> {
    wanted.iter().filter(|(_, program)| !found(program)).map(|(package, _)| *package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_report_is_told_apart_from_what_is_measured() {
        let args = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        let all = args("--rows point --report out/r --repeat 1");
        let (folder, rest) = take_report(&all).unwrap();
        assert!(folder.is_some_and(|folder| folder.is_absolute() && folder.ends_with("out/r")));
        assert_eq!(rest, ["--rows", "point", "--repeat", "1"]);
        assert_eq!(take_report(&args("--rows point")).unwrap(), (None, vec!["--rows", "point"]));
        assert!(take_report(&args("--report")).unwrap_err().contains("needs a folder"));
    }
}
