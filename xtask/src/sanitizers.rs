//! The tests under LLVM's sanitizers: use of freed memory and leaks (address), data races (thread).
//! Both need a nightly compiler; the second builds the standard library too, because only
//! instrumented code detects a race.
//!
//! A sanitizer whose tools are not installed is skipped with a message. Doc tests are left out,
//! because they are linked separately.

use crate::run::{Result, cache_dir, step, succeeds};

/// Passed to cargo, because with a target build scripts and macros are built without the sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A group of tests.
struct Part {
    arguments: &'static [&'static str],
    /// Name prefixes of tests that are left out.
    without: &'static [&'static str],
}

/// Tests of all `unsafe` code, and of the threads that share it.
const MEM_AND_IO: &[Part] = &[
    Part { arguments: &["-p", "karst-mem", "--lib"], without: &[] },
    Part {
        arguments: &["-p", "karst-io", "--lib", "--test=background", "--test=network", "--test=reactor"],
        without: &[],
    },
    Part { arguments: &["-p", "karst-io", "--test", "single_flight", "--test", "no_threads"], without: &[] },
];

/// Tests too long for CI: the contract of all file systems, and crates that use `mem` and `io`.
const ALL_WITH_ADDRESS: &[Part] = &[
    Part { arguments: &["-p", "karst-mem", "-p", "karst-io", "--lib", "--tests"], without: &[] },
    Part {
        arguments: &["-p", "karst-format", "-p", "karst-lsm", "-p", "karst-base", "--lib", "--tests"],
        without: &[],
    },
    Part {
        arguments: &["-p", "karst-storage", "-p", "karst-commit", "-p", "karst-engine", "--lib"],
        without: &[],
    },
    Part {
        // Tests in which memory changes owners: values that pin blocks, iterators, dropped futures,
        // handles of closed databases.
        arguments: &[
            "-p",
            "karst-engine",
            "--test=cancellation",
            "--test=events",
            "--test=options",
            "--test=point_reads",
            "--test=reads",
            "--test=writes",
        ],
        without: &[],
    },
    Part { arguments: &["-p", "karst-txn", "--lib", "--tests"], without: &["simulation"] },
    Part { arguments: &["-p", "karstdb", "--tests"], without: &[] },
];

const ALL_WITH_THREAD: &[Part] = &[
    Part {
        arguments: &["-p", "karst-mem", "-p", "karst-io", "--lib", "--tests"],
        // The sanitizer does not support threads in a forked child, nor a filter of system calls.
        without: &["the_child_of_a_fork", "reads_go_on_with_threads"],
    },
    Part { arguments: &["-p", "karst-engine", "--test=cancellation", "--test=writes"], without: &[] },
];

/// The part for CI: the crates with `unsafe` code, about two minutes including the build.
pub(crate) fn sanitizers() -> Result {
    address(MEM_AND_IO)
}

/// All tests that the sanitizers can run: half an hour and more.
pub(crate) fn all_sanitizers() -> Result {
    address(ALL_WITH_ADDRESS)?;
    thread(ALL_WITH_THREAD)
}

fn address(parts: &[Part]) -> Result {
    if !succeeds("rustc", &["+nightly", "--version"]) {
        println!(
            "No nightly compiler is installed (rustup toolchain install nightly): AddressSanitizer is left out"
        );
        return Ok(());
    }
    parts.iter().try_for_each(|part| test("address", &[], part))
}

fn thread(parts: &[Part]) -> Result {
    let sources = "f=$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock; test -f $f";
    if !succeeds("sh", &["-c", sources]) {
        println!(
            "The sources of a nightly's library are not installed (rustup +nightly component add rust-src): ThreadSanitizer is left out"
        );
        return Ok(());
    }
    parts.iter().try_for_each(|part| test("thread", &["-Zbuild-std"], part))
}

fn test(sanitizer: &str, build: &[&str], part: &Part) -> Result {
    let target = cache_dir().join(format!("{sanitizer}-sanitizer-target"));
    let target = target.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", target.display()))?;
    let flags = format!("-Zsanitizer={sanitizer}");
    let env = [
        ("RUSTFLAGS", &flags[..]),
        ("CARGO_TARGET_DIR", target),
        ("ASAN_OPTIONS", "detect_leaks=1"),
        ("TSAN_OPTIONS", "halt_on_error=1"),
    ];
    let mut arguments = [&["+nightly", "test"], build, &["--target", TARGET], part.arguments].concat();
    if !part.without.is_empty() {
        arguments.push("--");
        arguments.extend(part.without.iter().flat_map(|name| ["--skip", name]));
    }
    step("cargo", &arguments, &env)
}
