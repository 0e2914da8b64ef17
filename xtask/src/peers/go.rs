//! The tests of bindings for Go, compiled to programs and run one by one.
//!
//! In: the Go modules in `crates/capi/tests`, which name the versions, and for `gorocksdb` a header
//! with the functions that RocksDB has removed since. Out: the tests. The sources come from Go's
//! module proxy; the header of RocksDB's release that a binding was written for comes with a crate.

use super::{Peer, Place, Test, fetched};
use crate::run::{Result, repository_root, succeeds};
use std::path::Path;
use std::process::{Command, Stdio};

/// A binding with its tests.
pub(super) struct Binding {
    pub(super) name: &'static str,
    package: &'static str,
    /// The folder in `crates/capi/tests` of the module that names its version.
    module: &'static str,
    /// Additional arguments of `go test`.
    flags: &'static [&'static str],
    /// A crate with the header of RocksDB's release that the binding was written for. Without one
    /// it is compiled with KarstDB's header.
    header: Option<Peer>,
}

pub(super) const BINDINGS: &[Binding] = &[
    Binding {
        name: "gorocksdb",
        package: "github.com/tecbot/gorocksdb",
        module: "go",
        flags: &[],
        header: None,
    },
    Binding {
        name: "grocksdb",
        package: "github.com/linxGnu/grocksdb",
        module: "grocksdb",
        // Without this tag it links compression libraries, which are not RocksDB's.
        flags: &["-tags", "grocksdb_clean_link"],
        header: None,
    },
    Binding {
        name: "cometbft-db",
        package: "github.com/cometbft/cometbft-db",
        module: "cometbft",
        flags: &["-tags", "rocksdb grocksdb_clean_link"],
        header: Some(Peer::of("rust-librocksdb-sys", "0.30.0+9.8.4")),
    },
];

/// Builds the tests of the binding, linked as the crates are, and lists them.
pub(super) fn tests(root: &Path, place: &Place, binding: &Binding) -> Result<Vec<Test>> {
    let Binding { name, package, .. } = *binding;
    if !succeeds("go", &["version"]) {
        return Err(format!("go is not installed (Debian: golang-go): the tests of {name} cannot be built"));
    }
    let module = repository_root().join("crates/capi/tests").join(binding.module);
    println!("\n==> the tests of {package}");
    let headers = match &binding.header {
        Some(peer) => fetched(root, peer)?.join("rocksdb/include"),
        None => place.library.with_file_name("include"),
    };
    let binary = place.tmp.join(format!("{name}.test"));
    let built = Command::new("go")
        .args(["test", "-c", "-o"])
        .arg(&binary)
        .args(binding.flags)
        .arg(package)
        .current_dir(&module)
        // Without warnings, because gorocksdb casts functions to the types of RocksDB's former
        // header.
        .env("CGO_CFLAGS", format!("-I{} -I{} -w", module.join("before").display(), headers.display()))
        .env("CGO_LDFLAGS", format!("-L{}", place.stand_in.display()))
        .status()
        .map_err(|e| format!("cannot run go: {e}"))?;
    if !built.success() {
        return Err(format!("cannot build the tests of {package}"));
    }
    let mut list = Command::new(&binary);
    place.env(&mut list);
    let listed = list.args(["-test.list", "."]).stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|e| format!("{}: {e}", binary.display()))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    // A folder for each test, because one of them writes into its working directory.
    let test = |test: &str| -> Result<Test> {
        let dir = place.tmp.join(format!("{name}-{test}"));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Test {
            name: format!("{name} {name} {test}"),
            binary: binary.clone(),
            args: ["-test.v", "-test.run", &format!("^{test}$")].map(String::from).to_vec(),
            dir,
            ignored: false,
        })
    };
    let tests: Vec<Test> =
        text.lines().filter(|line| line.starts_with("Test")).map(test).collect::<Result<_>>()?;
    if tests.is_empty() { Err(format!("{package} has no tests")) } else { Ok(tests) }
}
