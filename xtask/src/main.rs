//! KarstDB's development tasks: `cargo xtask TASK`, which [`HELP`] lists.
//!
//! Each task is a list of shell commands; this program runs them in order, checks that the tools
//! they need are present, and stops at the first failure. Its only dependencies are `syn` and
//! `proc-macro2`, with which tidy parses sources. They lengthen its build on a fresh machine from
//! two seconds to ten.

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

const HELP: &str = "cargo xtask TASK [--help]

  tidy      check the house rules that no compiler checks: crates and layers; circles (modules of one parent,
            each with all inside it, name each other in one direction only); vocabulary (no module can name
            two types of one name); effects, what threads share, unsafe, file heads, names, planted patches, the width of comments,
            and the pages of docs: every one is in its index, and links lead to a file and a heading
            [--rewrap [PATH ...]: wrap comments that are too wide, in these files and folders, and stop]
            [--same-code BASE: compare the tokens of all sources with those of a commit, without comments]
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
            [--only redis: suites of Redis and of its client for Python against karstdb serve
            [--karst FILE: a program that is there]]
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
            and ask which test notices each; hours on two cores. Its options follow
  compare   build the RocksDB 11.8 judge and run the side-by-side benchmark; its options follow
            [--report DIR: keep the results in DIR/results, as JSON, and make DIR/benchmarks.md and
            DIR/index.html, with plots, of all that lie there]
  report    make them again: DIR";

/// A task, with the arguments that follow its name.
type Task = fn(&[String]) -> run::Result;

const TASKS: &[(&str, Task)] = &[
    ("tidy", |args| match args {
        [flag, paths @ ..] if flag == "--rewrap" => tidy::rewrap(&run::repository_root(), paths),
        [flag, base] if flag == "--same-code" => tidy::same_code::run(&run::repository_root(), base),
        [] => tidy::run(&run::repository_root()),
        [unknown, ..] => Err(format!("tidy knows --rewrap and --same-code BASE only, not {unknown}")),
    }),
    ("deny", |args| alone("deny", args).and_then(|()| deny::deny())),
    ("test", |args| alone("test", args).and_then(|()| ci::test())),
    ("nextest", |args| alone("nextest", args).and_then(|()| nextest::install())),
    ("capi", capi::capi),
    ("peers", peers::peers),
    ("ci", ci::ci),
    ("sanitizers", |args| alone("sanitizers", args).and_then(|()| sanitizers::all_sanitizers())),
    ("soak", soak::soak),
    ("wheel", wheel::wheel),
    ("mutants", ci::mutants),
    ("compare", ci::compare),
    ("report", ci::report),
];

/// Refuses arguments of a task that takes none.
fn alone(task: &str, args: &[String]) -> run::Result {
    match args {
        [] => Ok(()),
        [unknown, ..] => Err(format!("{task} takes no arguments, not {unknown}")),
    }
}

/// Returns the entry of a task in [`HELP`], and the options of the program that the task runs.
fn help_of(task: &str) -> Option<String> {
    let begins = |line: &str| line.strip_prefix("  ").is_some_and(|name| !name.starts_with(' '));
    let mut lines = HELP.lines().skip_while(|line| {
        let name = line.split_whitespace().next();
        !(begins(line) && name == Some(task))
    });
    let first = lines.next()?;
    let entry: Vec<&str> = [first].into_iter().chain(lines.take_while(|line| !begins(line))).collect();
    // The options are read from the program's source, because it takes minutes to build.
    let program = match task {
        "mutants" => include_str!("../../mutants/src/main.rs"),
        "compare" => include_str!("../../judge/src/bench/mod.rs"),
        _ => return Some(entry.join("\n")),
    };
    let (_, text) = program.split_once("const HELP: &str")?.1.split_once('"')?;
    let (text, _) = text.split_once("\";\n")?;
    Some(format!("{}\n\n{text}", entry.join("\n")))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = args.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let task = TASKS.iter().find(|(known, _)| *known == name);
    let result = match (name, task) {
        ("help" | "--help" | "-h", _) => {
            println!("{HELP}");
            Ok(())
        }
        (_, Some(_)) if rest.iter().any(|arg| arg == "--help" || arg == "-h") => {
            println!("cargo xtask{}", help_of(name).unwrap_or_default().trim_end().replacen("  ", " ", 1));
            Ok(())
        }
        (_, Some((_, task))) => task(rest),
        (_, None) => Err(format!("which task?\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_help() {
        for (name, _) in TASKS {
            let help = help_of(name).unwrap_or_else(|| panic!("{name} has no help"));
            let first = help.lines().next().unwrap_or_default();
            assert!(first.starts_with(&format!("  {name}")), "{help}");
            let others = TASKS.iter().filter(|(other, _)| other != name);
            for (other, _) in others {
                assert!(!help.contains(&format!("\n  {other} ")), "{name} and {other}: {help}");
            }
        }
        let named = HELP.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        assert_eq!(named.count(), TASKS.len(), "a task that is not there is in HELP");
        assert!(help_of("compare").unwrap().contains("--paced-seconds"));
        assert!(help_of("mutants").unwrap().contains("--at-most SECONDS"));
        assert_eq!(help_of("no such task"), None);
    }
}
