//! The tests of `gorocksdb`, the binding for Go, as programs whose tests are run one by one.
//!
//! In: the Go module in `crates/capi/tests/go`, which names the version, and a header that has what
//! RocksDB has removed since. Out: the tests. Go's module proxy gives the sources.

use super::{Place, Test};
use crate::run::{Result, repository_root, succeeds};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(super) const NAME: &str = "gorocksdb";
const PACKAGE: &str = "github.com/tecbot/gorocksdb";

/// Builds the tests of the binding, linked as the crates are, and lists them.
pub(super) fn tests(place: &Place) -> Result<Vec<Test>> {
    if !succeeds("go", &["version"]) {
        return Err("go is not installed (Debian: golang-go): the tests of gorocksdb cannot be built".into());
    }
    let module = repository_root().join("crates/capi/tests/go");
    println!("\n==> the tests of {PACKAGE}");
    let headers = place.library.with_file_name("include");
    let binary = place.tmp.join(format!("{NAME}.test"));
    let built = Command::new("go")
        .args(["test", "-c", "-o"])
        .arg(&binary)
        .arg(PACKAGE)
        .current_dir(&module)
        // Why no warnings: the binding casts functions to the types of RocksDB's former header.
        .env("CGO_CFLAGS", format!("-I{} -I{} -w", module.join("before").display(), headers.display()))
        .env("CGO_LDFLAGS", format!("-L{}", place.stand_in.display()))
        .status()
        .map_err(|e| format!("cannot run go: {e}"))?;
    if !built.success() {
        return Err(format!("cannot build the tests of {PACKAGE}"));
    }
    let mut list = Command::new(&binary);
    place.env(&mut list);
    let listed = list.args(["-test.list", "."]).stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|e| format!("{}: {e}", binary.display()))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let test = |name: &str| Test {
        name: format!("{NAME} {NAME} {name}"),
        binary: binary.clone(),
        args: ["-test.v", "-test.run", &format!("^{name}$")].map(String::from).to_vec(),
        dir: PathBuf::from(&place.tmp),
        ignored: false,
    };
    let tests: Vec<Test> = text.lines().filter(|line| line.starts_with("Test")).map(test).collect();
    if tests.is_empty() { Err(format!("{PACKAGE} has no tests")) } else { Ok(tests) }
}
