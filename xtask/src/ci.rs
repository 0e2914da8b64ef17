//! The tasks `test`, `ci` and `compare`.

use crate::run::{Result, cache_dir, found, repository_root, step, step_in, succeeds};
use crate::tidy;

/// Debian packages whose programs the tests compare KarstDB with, and one program of each.
const ROCKSDB_TOOLS: [(&str, &str); 1] = [("rocksdb-tools", "ldb")];
/// What the RocksDB 11.8 judge needs to build and to run, beside the above.
const JUDGE_TOOLS: [(&str, &str); 3] = [("clang", "clang"), ("fio", "fio"), ("pkg-config", "pkg-config")];
const JUDGE_LIBRARIES: [(&str, &str); 2] =
    [("libclang-dev", "/usr/lib/llvm-14/lib/libclang.so"), ("liburing-dev", "/usr/include/liburing.h")];

/// The default test command: all that runs in a few minutes.
pub(crate) fn test() -> Result {
    install(&missing_programs(&ROCKSDB_TOOLS))?;
    step("cargo", &["test", "--workspace"], &[])
}

/// Everything that must hold before a change lands, beyond [`test`].
pub(crate) fn ci(args: &[String]) -> Result {
    let quick = args.iter().any(|a| a == "--quick");
    if let Some(unknown) = args.iter().find(|a| *a != "--quick") {
        return Err(format!("ci knows --quick only, not {unknown}"));
    }
    step("cargo", &["fmt", "--all", "--check"], &[])?;
    tidy::run(&repository_root())?;
    step("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    step("cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    if !quick {
        judge_matrix()?;
    }
    Ok(())
}

/// RocksDB 11.8 writes a database for each cell of the option matrix, and KarstDB must read back what RocksDB reads.
fn judge_matrix() -> Result {
    install_judge()?;
    judge(&["matrix"])
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
    let target = target.to_str().ok_or("the cache folder's name is not UTF-8")?;
    let mut all = vec!["run", "--release", "--locked", "--"];
    all.extend(args);
    step_in(&repository_root().join("judge"), "cargo", &all, &[("CARGO_TARGET_DIR", target)])
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
