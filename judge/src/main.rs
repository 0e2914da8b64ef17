//! RocksDB 11.8 as a judge of KarstDB: it writes a database for each cell of the option matrix and
//! records its own reads of them, it reads and continues databases that KarstDB writes, and it runs
//! the same workloads side by side.
//!
//! `karst-judge make-matrix DIR | check DIR | matrix | written | prepared | timestamps ... |
//! kills ... | lockstep ... | bench ...`; see [`HELP`].

mod bench;
#[path = "../../crates/engine/tests/interop/karst.rs"]
mod karst;
mod kills;
mod lockstep;
mod matrix;
mod prepared;
#[path = "../../crates/engine/tests/kill/reading.rs"]
mod reading;
mod rocks;
#[path = "../../crates/engine/tests/written/store.rs"]
mod store;
mod timestamps;
#[path = "../../crates/engine/tests/kill/writing.rs"]
mod writing;
mod written;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "karst-judge COMMAND

  make-matrix DIR   write one database per cell, with what RocksDB reads from it beside each
  check DIR         read them with KarstDB, in every form, and compare
  matrix            both, in a temporary folder
  written [CELL...] databases that KarstDB writes, read by RocksDB, then ten rounds of both writing in turns
  prepared          transactions that one engine prepares and the other recovers and decides, in turns
  timestamps ...    column families with user-defined timestamps, written in turns and read by both after each;
                    [--seed S] [--cell NAME]
  kills ...         processes of both engines that write counters to one directory, in turns, and are killed;
                    [--kills N] [--seed S] [--folder DIR]
  lockstep ...      the same random operations on both, every answer compared, directories swapped at each reopening;
                    [--ops N] [--seed S] [--folder DIR]; of one seed [--until N] [--with KIND] [--without KIND] [--set OPTION=VALUE]
  lockstep fifo|options|timestamps ...
                    FIFO compaction of files of many ages; option strings; families with timestamps;
                    [--ops N] [--seed S] [--folder DIR]
  bench ...         the side-by-side benchmark; `bench --help` lists its options";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["make-matrix", dir] => matrix::make(Path::new(dir)),
        ["check", dir] => matrix::check(Path::new(dir)),
        ["matrix"] => matrix::make_and_check(),
        ["written", cells @ ..] => written::run(cells),
        ["prepared"] => prepared::run(),
        ["prepared-life", path, seed, number] => prepared::live(path, seed, number),
        ["timestamps", rest @ ..] => timestamps::run(rest),
        ["kills", rest @ ..] => kills::run(rest),
        ["kills-life", line] => kills::live(line),
        ["lockstep", rest @ ..] => lockstep::run(rest),
        ["bench", rest @ ..] => bench::run(rest),
        _ => Err(format!("which command?\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("karst-judge: {message}");
            ExitCode::FAILURE
        }
    }
}
