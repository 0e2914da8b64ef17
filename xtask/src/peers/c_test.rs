//! RocksDB's own test of its C API, `db/c_test.c`, in several releases as crates carry them.
//!
//! In: the source and the header of a release, both unchanged. Out: an outcome for each of its
//! phases. The original program ends at the first failed check; here it is compiled with an `abort`
//! that reports the failure, clears the error and continues, so that each phase has an outcome.
//! After a crash the phases that follow fail as not reached. A function that KarstDB lacks fails
//! the phase that calls it.

use super::{Outcome, Peer, Place, Test, fetched};
use crate::run::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its name in `docs/peers.md` and for `--only`.
pub(super) const NAME: &str = "c_test";

/// Crates with its source. Behind the `+` of the version stands RocksDB's release.
const RELEASES: &[Peer] = &[
    Peer::of("librocksdb-sys", "0.8.3+7.4.4"),
    Peer::of("librocksdb-sys", "0.11.0+8.1.1"),
    Peer::of("librocksdb-sys", "0.16.0+8.10.0"),
    Peer::of("librocksdb-sys", "0.17.3+10.4.2"),
    Peer::of("librocksdb-sys", "0.19.0+11.8.1"),
    Peer::of("rust-librocksdb-sys", "0.49.0+11.12.0"),
];

/// Text before the test's first line. `err` is the name of the local error variable where a check
/// fails; the macro clears it, because it would fail every later check. The global one serves where
/// no local one exists. The functions on strings accept the null pointers that failed calls return.
const BEFORE: &str = r#"#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char* err;
static void karst_goes_on(void) { fprintf(stderr, "karst: goes on\n"); }
static int karst_memcmp(const void* a, const void* b, size_t n) { return a && b ? memcmp(a, b, n) : a != b; }
static int karst_strcmp(const char* a, const char* b) { return a && b ? strcmp(a, b) : a != b; }
static int karst_strncmp(const char* a, const char* b, size_t n) { return a && b ? strncmp(a, b, n) : a != b; }
static size_t karst_strlen(const char* a) { return a ? strlen(a) : 0; }
static char* karst_strstr(const char* a, const char* b) { return a && b ? strstr(a, b) : NULL; }
#define memcmp karst_memcmp
#define strcmp karst_strcmp
#define strncmp karst_strncmp
#define strlen karst_strlen
#define strstr karst_strstr
#define abort() (karst_goes_on(), err = NULL)
#define __assert_fail(what, file, line, function) (fprintf(stderr, "%s:%d: %s\n", file, line, what), abort())
"#;

/// Lines that the program prints for a failed check, for a missing function, at the beginning of a
/// phase, and at its end.
const GOES_ON: &str = "karst: goes on";
const MISSING: &str = "karst: missing: ";
const PHASE: &str = "=== Test ";
const END: &str = "PASS";

/// Runs the test of each release, and returns the outcomes of the phases by their names in the
/// list.
pub(super) fn run(root: &Path, place: &Place, only: Option<&str>) -> Result<BTreeMap<String, Outcome>> {
    let (mut all, mut table) = (BTreeMap::new(), String::new());
    for peer in RELEASES {
        let release = peer.version.split('+').nth(1).unwrap_or(peer.version);
        let prefix = format!("{NAME} {release} ");
        if only.is_some_and(|only| !only.starts_with(&prefix) && !prefix.contains(only)) {
            continue;
        }
        println!("\n==> {NAME} of RocksDB {release}, from {} {}", peer.name, peer.version);
        let rocksdb = fetched(root, peer)?.join("rocksdb");
        let source = rocksdb.join("db/c_test.c");
        let text = fs::read_to_string(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        let dir = place.tmp.join(format!("{NAME}-{release}"));
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let (binary, missing) = build(place, &rocksdb, &source, &dir)?;
        if !missing.is_empty() {
            println!("functions that are missing: {}", missing.join(" "));
        }
        let test = Test { name: prefix.trim().to_owned(), binary, args: Vec::new(), dir, ignored: false };
        let ended = place.one(&test)?;
        let log = place.log(&test);
        let said = fs::read(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let found = phases(&text, &String::from_utf8_lossy(&said), &ended);
        let failed = || found.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let names: Vec<&str> = failed().map(|(name, _)| name.as_str()).collect();
        let clean = found.values().filter(|outcome| **outcome == Outcome::Passed).count();
        let ran = clean + names.len();
        table += &format!("| {release} | {ran} | {clean} | {} |\n", names.join(", "));
        all.extend(found.into_iter().map(|(phase, outcome)| (format!("{prefix}{phase}"), outcome)));
    }
    println!("\n| RocksDB | phases | clean | not clean |\n|---|---:|---:|---|\n{table}");
    Ok(all)
}

/// Compiles the test and links it with the library. A function that the library lacks is defined to
/// report itself and return 0.
fn build(place: &Place, rocksdb: &Path, source: &Path, dir: &Path) -> Result<(PathBuf, Vec<String>)> {
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let [before, object, lacking, binary] =
        ["before.h", "c_test.o", "lacking.c", "c_test"].map(|file| dir.join(file));
    fs::write(&before, BEFORE).map_err(|e| failed(&before, e))?;
    fs::write(&lacking, "").map_err(|e| failed(&lacking, e))?;
    let compiled = Command::new("cc")
        // Zeroes, because a missing function does not write its results.
        .args(["-g", "-O0", "-w", "-ftrivial-auto-var-init=zero", "-c", "-include"])
        .arg(&before)
        .args(["-I".as_ref(), rocksdb.join("include").as_os_str(), "-I".as_ref(), rocksdb.as_os_str()])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .map_err(|e| format!("cannot run cc: {e}"))?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr);
        return Err(format!("cannot compile {}:\n{said}", source.display()));
    }
    let link = || {
        let mut command = Command::new("cc");
        command.args(["-w", "-o"]).args([&binary, &object, &lacking]).arg("-L").arg(&place.library);
        command.arg("-lrocksdb").output().map_err(|e| format!("cannot run cc: {e}"))
    };
    let linked = link()?;
    if linked.status.success() {
        return Ok((binary, Vec::new()));
    }
    let missing = undefined(&String::from_utf8_lossy(&linked.stderr));
    let define = |name: &String| {
        format!("long {name}(void) {{ fprintf(stderr, \"{MISSING}{name}\\n\"); return 0; }}\n")
    };
    let text = format!("#include <stdio.h>\n{}", missing.iter().map(define).collect::<String>());
    fs::write(&lacking, text).map_err(|e| failed(&lacking, e))?;
    let linked = link()?;
    let said = String::from_utf8_lossy(&linked.stderr);
    if linked.status.success() { Ok((binary, missing)) } else { Err(format!("cannot link {NAME}:\n{said}")) }
}

/// Returns the undefined functions in a linker's output, each once.
fn undefined(said: &str) -> Vec<String> {
    let names = said.lines().filter_map(|line| line.split("undefined reference to ").nth(1));
    let mut names: Vec<String> = names
        .map(|name| name.trim_matches(|c: char| c != '_' && !c.is_ascii_alphanumeric()).to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Removes the folders of the file from a check's message.
fn without_folders(line: &str) -> String {
    let (place, rest) = line.split_once(' ').unwrap_or((line, ""));
    format!("{} {rest}", place.rsplit('/').next().unwrap_or(place)).trim_end().to_owned()
}

/// Returns the outcome of each phase of the source, from the program's output and its end.
fn phases(source: &str, said: &str, ended: &Outcome) -> BTreeMap<String, Outcome> {
    let mut found: BTreeMap<String, Outcome> = BTreeMap::new();
    let (mut phase, mut before, mut at_end) = (String::new(), "", false);
    for line in said.lines() {
        let failure = match line.strip_prefix(MISSING) {
            Some(name) => Some(format!("{name} is missing")),
            None => (line == GOES_ON).then(|| without_folders(before)),
        };
        if let Some(name) = line.strip_prefix(PHASE) {
            phase = name.to_owned();
            found.entry(phase.clone()).or_insert(Outcome::Passed);
        } else if let Some(failure) = failure
            && let Some(outcome @ Outcome::Passed) = found.get_mut(&phase)
        {
            *outcome = Outcome::Failed(failure);
        }
        at_end |= line == END;
        before = line;
    }
    let why = match ended {
        _ if at_end => None,
        Outcome::Failed(why) => Some(why.clone()),
        _ => Some("the program ended early".to_owned()),
    };
    if let (Some(why), Some(outcome @ Outcome::Passed)) = (&why, found.get_mut(&phase)) {
        *outcome = Outcome::Failed(format!("{why}; the last line: {before}"));
    }
    for name in source.split("StartPhase(\"").skip(1).filter_map(|after| after.split('"').next()) {
        // Not a failure if the program reached its end, because it leaves some phases out.
        let unreached = || match &why {
            None => Outcome::Ignored,
            Some(_) => Outcome::Failed(format!("not reached: the program ended in {phase}")),
        };
        found.entry(name.to_owned()).or_insert_with(unreached);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "StartPhase(\"one\"); StartPhase(\"two\");\n  StartPhase(\"three\");";

    fn failed(why: &str) -> Outcome {
        Outcome::Failed(why.into())
    }

    #[test]
    fn each_phase_has_an_outcome() {
        let said = "=== Test one\n=== Test two\n/x/y/a.c:5: two: x/z\nkarst: goes on\na.c:6: two: y\nkarst: goes on\n\
                    === Test three\nkarst: missing: rocksdb_f\nPASS\n";
        let found = phases(SOURCE, said, &Outcome::Passed);
        let outcomes = [&found["one"], &found["two"], &found["three"]];
        let expected = [Outcome::Passed, failed("a.c:5: two: x/z"), failed("rocksdb_f is missing")];
        assert_eq!(outcomes, expected.each_ref());
        // A phase that runs twice fails if either run fails.
        let twice = "=== Test one\nbad\nkarst: goes on\n=== Test two\n=== Test one\nPASS\n";
        let found = phases(SOURCE, twice, &Outcome::Passed);
        assert_eq!((&found["one"], &found["three"]), (&failed("bad"), &Outcome::Ignored));
    }

    #[test]
    fn where_it_crashes_the_rest_is_not_reached() {
        let found =
            phases(SOURCE, "=== Test one\n=== Test two\nlast\n", &failed("ended by signal 11; no panic"));
        assert_eq!(found["one"], Outcome::Passed);
        assert_eq!(found["two"], failed("ended by signal 11; no panic; the last line: last"));
        assert_eq!(found["three"], failed("not reached: the program ended in two"));
        let found = phases(SOURCE, "=== Test one\n", &Outcome::Passed);
        assert_eq!(found["one"], failed("the program ended early; the last line: === Test one"));
    }

    #[test]
    fn a_linker_says_what_is_missing() {
        let said = "ld: a.o: in function `main':\na.c:3: undefined reference to `rocksdb_b'\n\
                    a.c:4: undefined reference to `rocksdb_a'\na.c:5: undefined reference to `rocksdb_b'\n";
        assert_eq!(undefined(said), ["rocksdb_a", "rocksdb_b"]);
    }
}
