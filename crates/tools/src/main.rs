//! `karst`: one program for the tools of KarstDB, named and spoken to as RocksDB's are.
#![forbid(unsafe_code)]

mod bench;
mod command_line;
mod inspect;
mod ldb;
mod random;
mod sst_dump;
mod stress;
mod table_file;
mod text;

use std::process::ExitCode;

/// Why not the C library's: it gives back little of what threads have allocated for each other,
/// twice the budget of a database under mixed load (docs/decisions/memory-budget.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const HELP: &str = "karst COMMAND [ARGUMENTS]

  bench      workloads that write and read, with db_bench's flags and output
  stress     write, kill and verify a database on your own disk for as long as you like, as RocksDB's db_stress
  ldb        look into a database or change it, as RocksDB's ldb
  sst_dump   look into table files, as RocksDB's sst_dump
  inspect    the tree as a picture: levels, files, filters, what a lookup costs

`karst COMMAND --help` says more.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("bench") => bench::run(&args[1..]),
        Some("stress") => stress::run(&args[1..]),
        Some("ldb") => ldb::run(&args[1..]),
        Some("sst_dump") => sst_dump::run(&args[1..]),
        Some("inspect") => inspect::run(&args[1..]),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some("--version" | "version") => {
            println!("karst {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Some(other) => Err(format!("unknown command `{other}`\n\n{HELP}")),
        None => Err(format!("which command?\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("karst: {message}");
            ExitCode::FAILURE
        }
    }
}
