//! `karstdb`: one program for the tools of KarstDB, with the names and command lines of RocksDB's.
#![forbid(unsafe_code)]
// Both macros panic when the reader has closed the pipe; `output` has replacements.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod command_line;
mod import;
mod inspect;
mod ldb;
mod output;
mod paths;
mod random;
mod serve;
mod sst_dump;
mod stress;
mod table_file;
mod text;
mod verify;

use clap::{Arg, Command};
use output::Fault;
use std::process::ExitCode;

/// Not the C library's allocator, because it returns little of the memory that threads allocate for
/// each other: twice the budget of a database under mixed load (docs/decisions/memory-budget.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Tool = fn(&[String]) -> Result<(), Fault>;

/// The tools that parse their command lines themselves, like RocksDB's tools.
const TOOLS: [(&str, &str, Tool); 4] = [
    ("bench", "Run workloads that write and read, with db_bench's flags and output", bench::run),
    (
        "stress",
        "Write to a database, kill its process and verify its contents, as RocksDB's db_stress does",
        stress::run,
    ),
    ("ldb", "Print or change the contents of a database, as RocksDB's ldb does", ldb::run),
    ("sst_dump", "Print or verify table files, as RocksDB's sst_dump does", sst_dump::run),
];

fn command() -> Command {
    let tools = TOOLS.map(|(name, about, _)| {
        let rest = Arg::new("arguments").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
        Command::new(name).about(about).disable_help_flag(true).arg(rest)
    });
    let help = Command::new("help").about("Print the help of a command").arg(Arg::new("command"));
    Command::new("karstdb")
        .about("The tools of KarstDB, for its databases and RocksDB's")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help("`karstdb COMMAND --help` prints the help of a command.")
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(tools)
        .subcommand(import::command())
        .subcommand(inspect::command())
        .subcommand(serve::command())
        .subcommand(verify::command())
        .subcommand(help)
}

fn run(args: Vec<std::ffi::OsString>) -> Result<(), Fault> {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        // Help and version come as errors too, but belong on standard output.
        Err(told) if !told.use_stderr() => return output::to_stdout(format_args!("{told}")),
        Err(misused) => {
            let text = misused.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            return Err(Fault::Usage(text.to_string()));
        }
    };
    match matches.subcommand() {
        Some(("import", matches)) => import::run(matches),
        Some(("inspect", matches)) => inspect::run(matches),
        Some(("serve", matches)) => serve::run(matches),
        Some(("verify", matches)) => verify::run(matches),
        Some(("help", matches)) => {
            let of = matches.get_one::<String>("command").cloned();
            let words = ["karstdb".to_string()].into_iter().chain(of).chain(["--help".to_string()]);
            run(words.map(Into::into).collect())
        }
        Some((name, matches)) => {
            let (.., tool) = TOOLS.into_iter().find(|(tool, ..)| *tool == name).expect("clap knows no other");
            let rest: Vec<String> = matches.get_many("arguments").into_iter().flatten().cloned().collect();
            tool(&rest)
        }
        None => unreachable!("clap asks for a command"),
    }
}

fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.end(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        super::command().debug_assert();
    }
}
