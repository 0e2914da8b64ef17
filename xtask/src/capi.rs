//! The task `capi`: RocksDB's C API as a library under RocksDB's names.

use crate::run::{Result, repository_root, step};
use std::path::{Path, PathBuf};

/// The names of the library: RocksDB's builds and Debian's packages name it differently.
const NAMES: &[&str] = &["librocksdb.so", "librocksdb.so.11", "librocksdb.so.11.8", "librocksdb.so.7.8"];

pub(crate) fn capi(args: &[String]) -> Result {
    match args {
        [flag] if flag == "--table" => {
            let env = [("KARST_WRITE_DOCS", "1")];
            step("cargo", &["test", "-p", "karst-capi", "--test", "table"], &env)
        }
        [flag, prefix] if flag == "--prefix" => install(Path::new(prefix), "release"),
        [flag, prefix, debug] if flag == "--prefix" && debug == "--debug" => {
            install(Path::new(prefix), "dev")
        }
        _ => Err("capi takes --prefix DIR [--debug], or --table".into()),
    }
}

/// Builds once, so that the optimiser runs once for both kinds of library, and puts them in place.
pub(crate) fn install(prefix: &Path, profile: &str) -> Result {
    let build = ["rustc", "-p", "karst-capi", "--lib", "--locked", "--profile", profile];
    step("cargo", &[&build[..], &["--crate-type", "cdylib,staticlib"]].concat(), &[])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let built = target.unwrap_or_else(|| repository_root().join("target"));
    let built = built.join(if profile == "dev" { "debug" } else { profile });
    let lib = prefix.join("lib");
    let failed = |path: &Path| format!("cannot write {}", path.display());
    std::fs::create_dir_all(lib.join("pkgconfig")).map_err(|e| format!("{}: {e}", failed(&lib)))?;
    for (from, to) in [("libkarst_capi.so", "libkarstdb.so"), ("libkarst_capi.a", "librocksdb.a")] {
        let to = lib.join(to);
        std::fs::copy(built.join(from), &to).map_err(|e| format!("{}: {e}", failed(&to)))?;
    }
    for name in NAMES {
        let link = lib.join(name);
        match std::fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", failed(&link)));
            }
            _ => {}
        }
        std::os::unix::fs::symlink("libkarstdb.so", &link).map_err(|e| format!("{}: {e}", failed(&link)))?;
    }
    let lib = std::fs::canonicalize(&lib).map_err(|e| format!("{}: {e}", lib.display()))?;
    let about = format!(
        "Name: rocksdb\nDescription: KarstDB under RocksDB's C API\nVersion: 11.8.0\nLibs: -L{} -lrocksdb\n",
        lib.display()
    );
    let file = lib.join("pkgconfig/rocksdb.pc");
    std::fs::write(&file, about).map_err(|e| format!("{}: {e}", failed(&file)))?;
    println!("installed in {}; programs find it with LD_LIBRARY_PATH={0}", lib.display());
    Ok(())
}
