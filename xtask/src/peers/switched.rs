//! A program linked with Debian's library of RocksDB, which runs with that and with KarstDB's by
//! turns on one database (`crates/capi/tests/c/switched.c`). Skipped unless `librocksdb-dev` is
//! installed.

use crate::run::{Result, repository_root, step};
use std::fs;
use std::path::Path;

/// Number of runs, beginning with RocksDB's library.
const ROUNDS: usize = 8;

pub(crate) fn run(library: &Path, scratch: &Path) -> Result {
    if !Path::new("/usr/include/rocksdb/c.h").exists() {
        println!("\nskipped: a program that is switched, as librocksdb-dev is not installed");
        return Ok(());
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let source = text(&repository_root().join("crates/capi/tests/c/switched.c"));
    let (program, database) = (text(&scratch.join("switched")), scratch.join("switched-db"));
    let compile = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", &source, "-lrocksdb", "-o", &program];
    step("cc", &compile, &[])?;
    for round in 0..ROUNDS {
        let ours = round % 2 == 1;
        let library = text(library);
        let env: &[(&str, &str)] = if ours { &[("LD_LIBRARY_PATH", &library)] } else { &[] };
        step(&program, &[&text(&database), &round.to_string()], env)?;
        let log = database.join("LOG");
        let log = fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        if log.contains("KarstDB version") != ours {
            return Err(format!("round {round} of switched.c ran with the other library"));
        }
    }
    println!(
        "\na program linked with RocksDB's library: {ROUNDS} rounds with that and with KarstDB's by turns"
    );
    Ok(())
}
