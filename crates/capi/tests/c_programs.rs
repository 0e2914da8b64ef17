//! Programs in C, compiled against the headers and the library with all warnings as errors.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the shared library, which lies beside the test or one directory up.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut found = test.ancestors().skip(1).take(2).map(|directory| directory.join("libkarst_capi.so"));
    found.find(|path| path.exists()).expect("cargo builds the library for its tests")
}

/// Compiles a program, runs it with a new directory for its database, and returns its output.
fn run(compiler: &str, flags: &[&str], source: &str, arguments: &[&str]) -> String {
    linked("librocksdb.so", compiler, flags, source, arguments, |_| {})
}

/// Like [`run`], linked with the library under `name`; `look` gets the database's directory.
///
/// A missing compiler is a failure, because the code linked with it would go untested unnoticed.
fn linked(
    name: &str,
    compiler: &str,
    flags: &[&str],
    source: &str,
    arguments: &[&str],
    look: impl FnOnce(&Path),
) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    // Names that an installation has.
    for name in BTreeSet::from(["libkarstdb.so", name]) {
        std::os::unix::fs::symlink(library(), directory.path().join(name)).unwrap();
    }
    let include = directory.path().join("include");
    std::fs::create_dir_all(include.join("rocksdb")).unwrap();
    std::fs::write(include.join("karst.h"), karst_capi::karst_header().unwrap()).unwrap();
    std::fs::write(include.join("rocksdb/c.h"), karst_capi::rocksdb_header().unwrap()).unwrap();
    let program = directory.path().join("program");
    let compiled = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .arg(root.join(source))
        .arg("-L")
        .arg(directory.path())
        .arg(format!("-l:{name}"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|e| panic!("a compiler of C is needed: {compiler}: {e}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(program)
        .arg(directory.path().join("db"))
        .args(arguments)
        .env("LD_LIBRARY_PATH", directory.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    look(&directory.path().join("db"));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn asynchronous_calls_from_c() {
    assert_eq!(
        run("cc", &["-std=c99", "-D_POSIX_C_SOURCE=200809L"], "tests/c/async.c", &[]),
        "all is well\n"
    );
}

#[test]
fn a_listener_by_the_types_of_the_header() {
    assert_eq!(
        run("cc", &["-std=c99"], "tests/c/events.c", &[]),
        "3 flushes of 6 entries, 3 sealed; 1 compactions of 1 parts from 0 to 6, 4 replaced; 0 stalls; 1 ends\n"
    );
}

#[test]
fn the_example_reads_what_it_has_written() {
    let flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1"];
    let said = run("cc", &flags, "examples/async_gets.c", &["500", "3000", "64"]);
    assert!(said.contains("3000 gets, 64 in flight"), "{said}");
    assert!(said.contains(" 3000 found, 12288000 bytes"), "{said}");
}

#[test]
fn tables_are_those_of_the_release_that_a_program_is_linked_with() {
    for (name, version) in
        [("librocksdb.so", 6), ("librocksdb.so.7.8", 5), ("librocksdb.so.11", 7), ("libkarstdb.so", 6)]
    {
        let said = linked(name, "cc", &["-std=c99"], "tests/c/switched.c", &["0"], |database| {
            let text = std::fs::read_to_string(database.join("LOG")).unwrap();
            assert_eq!(text.matches(&format!("  format_version: {version}\n")).count(), 2, "{name}: {text}");
        });
        assert_eq!(said, "2000 entries of 1 rounds\n", "{name}");
    }
}

#[test]
fn the_measured_calls_find_what_was_written() {
    let flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1"];
    let said = run("cc", &flags, "examples/speed.c", &["1000"]);
    assert_eq!(said.lines().count(), 8, "{said}");
}
