//! The task `wheel`: builds the Python package, installs it in an empty virtual environment, and
//! tests it.

use crate::run::{Result, cache_dir, found, install, path_text, repository_root, step, step_in, succeeds};
use std::path::Path;

/// Builds and tests the package. Installs Python if it is missing and packages can be installed.
/// Without `--release` the build is not optimised, which suffices for the tests.
pub(crate) fn wheel(args: &[String]) -> Result {
    let profile = match args {
        [] => "dev",
        [flag] if flag == "--release" => "release",
        _ => return Err("wheel knows --release only".into()),
    };
    install_python()?;
    let source = repository_root().join("bindings/python");
    let venv = cache_dir().join("wheel-venv");
    let out = cache_dir().join("wheels");
    if out.exists() {
        // Removes older wheels, which would be tested in place of the new one.
        std::fs::remove_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let target = cache_dir().join("wheel-target");
    step("python3", &["-m", "venv", "--clear", path_text(&venv)?], &[])?;
    let python = venv.join("bin/python");
    let python = path_text(&python)?;
    step(python, &["-m", "pip", "install", "--quiet", "maturin>=1.7,<2", "pytest", "mypy"], &[])
        .map_err(|e| format!("{e}\n  maturin, pytest and mypy come from PyPI, which pip must reach"))?;
    let env = [("CARGO_TARGET_DIR", path_text(&target)?), ("PYO3_PYTHON", python)];
    let build = ["-m", "maturin", "build", "--locked", "--profile", profile, "--out", path_text(&out)?];
    step_in(&source, python, &build, &env)?;
    step(python, &["-m", "pip", "install", "--no-index", "--find-links", path_text(&out)?, "karstdb"], &[])?;
    let tests = source.join("tests");
    tested(python, &tests)
}

/// Installs Python, and the modules of virtual environments, which Debian has in a separate
/// package.
fn install_python() -> Result {
    let mut missing = Vec::new();
    if !found("python3") {
        missing.push("python3");
    }
    if !succeeds("python3", &["-c", "import ensurepip, venv"]) {
        missing.push("python3-venv");
    }
    install(&missing)?;
    match succeeds("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]) {
        true => Ok(()),
        false => Err("python3 is older than 3.11, which the package needs".into()),
    }
}

/// Runs the tests in their folder, where Python does not find the package's sources.
fn tested(python: &str, tests: &Path) -> Result {
    step_in(tests, python, &["-m", "pytest", "-q", "-p", "no:cacheprovider", "."], &[])?;
    step_in(tests, python, &["-m", "mypy", "--strict", "--cache-dir", "/dev/null", "typed.py"], &[])
}
