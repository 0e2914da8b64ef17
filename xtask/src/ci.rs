//! The tasks `test`, `ci`, `soak` and `compare`.

use crate::run::{Result, cache_dir, found, repository_root, step, step_in, succeeds};
use crate::sanitizers::sanitizers;
use crate::tidy;

/// Debian packages whose programs the tests compare KarstDB with, or that building needs, and one
/// program of each.
const ROCKSDB_TOOLS: [(&str, &str); 2] = [("rocksdb-tools", "ldb"), ("make", "make")];
/// What the RocksDB 11.8 judge needs to build and to run, beside the above.
const JUDGE_TOOLS: [(&str, &str); 3] = [("clang", "clang"), ("fio", "fio"), ("pkg-config", "pkg-config")];
const JUDGE_LIBRARIES: [(&str, &str); 2] =
    [("libclang-dev", "/usr/lib/llvm-14/lib/libclang.so"), ("liburing-dev", "/usr/include/liburing.h")];

/// The default test command: all that runs in a few minutes.
pub(crate) fn test() -> Result {
    install(&missing_programs(&ROCKSDB_TOOLS))?;
    step("cargo", &["test", "--workspace"], &[])
}

/// Kills of both engines' processes: what two minutes are enough for, and what is tried at leisure.
const CI_KILLS: &str = "100";
const SOAK_KILLS: u64 = 5000;

/// Everything that must hold before a change lands, beyond [`test()`].
pub(crate) fn ci(args: &[String]) -> Result {
    let quick = args.iter().any(|a| a == "--quick");
    if let Some(unknown) = args.iter().find(|a| *a != "--quick") {
        return Err(format!("ci knows --quick only, not {unknown}"));
    }
    step("cargo", &["fmt", "--all", "--check"], &[])?;
    tidy::run(&repository_root())?;
    step("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    step("cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    model_checks()?;
    sanitizers()?;
    fuzz()?;
    long_tests()?;
    if !quick {
        judge_matrix()?;
    }
    Ok(())
}

/// Every interleaving of small scenarios of the lock-free types, and undefined behaviour.
fn model_checks() -> Result {
    let target = cache_dir().join("loom-target");
    let env = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", path_text(&target)?)];
    let crates = ["-p", "karst-mem", "-p", "karst-io", "-p", "karst-txn"];
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

/// Each fuzz target for a few seconds, from an empty corpus.
fn fuzz() -> Result {
    let dir = repository_root().join("fuzz");
    let target = cache_dir().join("fuzz-target");
    let env = [("CARGO_TARGET_DIR", path_text(&target)?)];
    let mut names: Vec<String> = std::fs::read_dir(dir.join("fuzz_targets"))
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>())
        .map_err(|e| format!("fuzz targets: {e}"))?
        .iter()
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_string))
        .collect();
    names.sort();
    for name in names {
        let args =
            ["run", "--release", "--locked", "--bin", &name, "--", "-max_total_time=5", "-verbosity=0"];
        step_in(&dir, "cargo", &args, &env)?;
    }
    Ok(())
}

/// The tests that have a longer form, in it.
fn long_tests() -> Result {
    let env = [("KARST_LONG_TESTS", "1")];
    let tests = ["damage", "cancellation", "kill", "written"];
    let mut args = vec!["test", "-p", "karst-engine"];
    args.extend(tests.iter().flat_map(|test| ["--test", test]));
    step("cargo", &args, &env)?;
    step("cargo", &["test", "-p", "karst-txn", "--test", "simulation"], &env)?;
    // Why not with the others: they print how many states and faults were tried. About three minutes.
    let states = ["--test", "crash_states", "--test", "faults", "--", "--nocapture"];
    step("cargo", &[&["test", "-p", "karst-engine"], &states[..]].concat(), &env)?;
    // Why not with the others: it prints how many operations were simulated. About four minutes on two cores.
    let simulation = ["test", "-p", "karst-engine", "--test", "simulation", "--", "--nocapture"];
    step("cargo", &simulation, &env)
}

fn path_text(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))
}

/// RocksDB 11.8 writes a database for each cell of the option matrix, and KarstDB must read back
/// what RocksDB reads; KarstDB writes one for each, and both go on with it in turns; each decides
/// the transactions that the other has prepared; and processes of both are killed while they count.
fn judge_matrix() -> Result {
    install_judge()?;
    judge(&["matrix"])?;
    judge(&["written"])?;
    judge(&["prepared"])?;
    judge(&["kills", "--kills", CI_KILLS])
}

/// What needs an hour and more: the loops that kill, each from a seed that is printed.
pub(crate) fn soak(args: &[String]) -> Result {
    let (mut kills, mut seed) = (SOAK_KILLS, seconds_of_now());
    for pair in args.chunks(2) {
        match pair {
            [name, value] if name == "--kills" => kills = number(name, value)?,
            [name, value] if name == "--seed" => seed = number(name, value)?,
            _ => return Err(format!("soak takes --kills and --seed, each with a number, not {pair:?}")),
        }
    }
    install_judge()?;
    judge(&["kills", "--kills", &kills.to_string(), "--seed", &seed.to_string()])?;
    let alone = (kills * 2 / 5).to_string();
    let seed = seed.to_string();
    let env = [("KARST_LONG_TESTS", "1"), ("KARST_KILLS", &alone[..]), ("KARST_SEED", &seed[..])];
    let counting = "nothing_counts_twice_when_the_process_is_killed";
    step("cargo", &["test", "-p", "karst-engine", "--test", "kill", counting, "--", "--nocapture"], &env)
}

fn number(name: &str, text: &str) -> Result<u64> {
    text.parse().map_err(|e| format!("{name} {text}: {e}"))
}

fn seconds_of_now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_secs())
}

/// The side-by-side benchmark; `args` go to it as they are.
pub(crate) fn compare(args: &[String]) -> Result {
    install_judge()?;
    let mut all = vec!["bench"];
    all.extend(args.iter().map(String::as_str));
    judge(&all)
}

fn judge(args: &[&str]) -> Result {
    let target = cache_dir().join("judge-target");
    let mut all = vec!["run", "--release", "--locked", "--"];
    all.extend(args);
    step_in(&repository_root().join("judge"), "cargo", &all, &[("CARGO_TARGET_DIR", path_text(&target)?)])
}

fn install_judge() -> Result {
    let mut missing = missing_programs(&ROCKSDB_TOOLS);
    missing.extend(missing_programs(&JUDGE_TOOLS));
    missing.extend(
        JUDGE_LIBRARIES.iter().filter(|(_, file)| !std::path::Path::new(file).exists()).map(|(p, _)| *p),
    );
    install(&missing)
}

fn missing_programs(wanted: &[(&'static str, &str)]) -> Vec<&'static str> {
    wanted.iter().filter(|(_, program)| !found(program)).map(|(package, _)| *package).collect()
}

/// Install Debian packages where that is possible, else say exactly what to install.
fn install(packages: &[&str]) -> Result {
    if packages.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !found("apt-get") || !succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        return Err(format!("missing: {}\n  install with: sudo {line}", packages.join(", ")));
    }
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(packages);
    let noninteractive = [("DEBIAN_FRONTEND", "noninteractive")];
    step("apt-get", &["update", "-qq"], &[])
        .and_then(|()| step("apt-get", &args, &noninteractive))
        .map_err(|e| format!("{e}\n  install by hand with: sudo {line}"))
}
