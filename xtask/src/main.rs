//! KarstDB's development tasks: `cargo xtask TASK`, which [`HELP`] lists.
//!
//! Each task is a list of commands anyone could type; this program only keeps their order, checks
//! that the tools they need are present, and stops at the first failure. Beside the standard
//! library it uses `syn` and `proc-macro2` alone, by which tidy reads sources, so that a fresh
//! machine builds it in ten seconds instead of two.

mod capi;
mod ci;
mod deny;
mod nextest;
mod peers;
mod run;
mod sanitizers;
mod soak;
mod tidy;
mod wheel;

use std::process::ExitCode;

const HELP: &str = "cargo xtask TASK

  tidy      check the house rules that no compiler checks: crates and layers; circles (modules of one parent,
            each with all inside it, name each other in one direction only); vocabulary (no module can name
            two types of one name); effects, what threads share, unsafe, file heads, names, planted patches, the width of comments
            [--rewrap [PATH ...]: wrap comments that are too wide, in these files and folders, and stop]
  deny      check what is depended on by deny.toml: with cargo-deny where it is installed, else the licences and
            sources alone
  test      install or name what the tests need, then run the default test command: by cargo-nextest if it is
            on the PATH or was installed by the task nextest, else by cargo test
  nextest   build the pinned version of cargo-nextest from crates.io, and keep it in KARST_CACHE
  capi      build RocksDB's C API over KarstDB, and put the library, its names, headers and pkg-config files
            into a prefix: --prefix DIR [--debug]; --check DIR: compile and run a program against that;
            --table: write the lists in docs/c-api.md anew
  peers     run the tests of published bindings of RocksDB's C API, linked with KarstDB's, and hold the failures
            against docs/peers.md: needs crates.io and libclang  [--debug: the library not optimised]
            [--library DIR: one that is there] [--only TEXT: tests whose name has it]
  ci        format, lints, tidy, docs, then the slow checks: model checking, sanitizers, fuzzing, interop with
            RocksDB 11.8, the fault and cancellation sweeps, and `wheel`  [--quick: without RocksDB 11.8]
  sanitizers
            the tests under AddressSanitizer and ThreadSanitizer, which need a nightly compiler and,
            for the second, its sources
  soak      every test that has a long form, in turns, each round with a fresh printed seed, and a report
            --hours N [--suite NAME[,NAME]] [--seed S: of the first round] [--folder DIR: for the output of
            failing runs]; --list: the suites
  wheel     build the Python package and test it in a fresh virtual environment: needs PyPI, and Python 3.11,
            which is installed on Debian
            [--release: optimised, as it is given away]
  mutants   change the source in small ways, all compiled at once behind a switch, bring past defects back,
            and ask which test notices each; hours on two cores. Its options follow (--help lists them)
  compare   build the RocksDB 11.8 judge and run the side-by-side benchmark; its options follow
            [--report DIR: keep the results in DIR/results, as JSON, and make DIR/benchmarks.md and
            DIR/index.html, with plots, of all that lie there]
  report    make them again: DIR";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("tidy") => match &args[1..] {
            [flag, paths @ ..] if flag == "--rewrap" => tidy::rewrap(&run::repository_root(), paths),
            [] => tidy::run(&run::repository_root()),
            [unknown, ..] => Err(format!("tidy knows --rewrap only, not {unknown}")),
        },
        Some("deny") => deny::deny(),
        Some("test") => ci::test(),
        Some("nextest") => nextest::install(),
        Some("capi") => capi::capi(&args[1..]),
        Some("peers") => peers::peers(&args[1..]),
        Some("ci") => ci::ci(&args[1..]),
        Some("sanitizers") => sanitizers::all_sanitizers(),
        Some("soak") => soak::soak(&args[1..]),
        Some("wheel") => wheel::wheel(&args[1..]),
        Some("mutants") => ci::mutants(&args[1..]),
        Some("compare") => ci::compare(&args[1..]),
        Some("report") => ci::report(&args[1..]),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("which task?\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
