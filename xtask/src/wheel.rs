//! The task `wheel`: builds the Python package, installs it where nothing else is, and tests it.

use crate::run::{Result, cache_dir, found, install, path_text, repository_root, step, step_in, succeeds};
use std::path::Path;

/// Python is installed where it is missing and packages can be installed. Without `release` the
/// build is not optimised, which is all that the tests need.
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
        // A wheel of another day would be tested in place of this one.
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

/// Python, and what a virtual environment needs, which Debian has in a package of its own.
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

/// From the folder of the tests, where Python does not find the package's sources.
fn tested(python: &str, tests: &Path) -> Result {
    step_in(tests, python, &["-m", "pytest", "-q", "-p", "no:cacheprovider", "."], &[])?;
    step_in(tests, python, &["-m", "mypy", "--strict", "--cache-dir", "/dev/null", "typed.py"], &[])
}
