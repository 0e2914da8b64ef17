//! The house rules that no compiler checks: which crate may depend on which, which engine module may
//! name which, where effects and `unsafe` may live, how files are named, headed and sized.
//!
//! Input: the files git tracks or would track. Output: every violation, one a line, with its file and line.

mod compatibility;
mod counted;
mod modules;

use crate::run::Result;
use compatibility::Compatibility;
use counted::Counted;
use modules::Modules;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Invariant: the direction of the house. A crate may depend on the crates listed with it and no other of ours.
const EDGES: &[(&str, &[&str])] = &[
    ("format", &[]),
    ("mem", &[]),
    ("io", &[]),
    ("lsm", &["format"]),
    ("engine", &["format", "mem", "io", "lsm"]),
    ("txn", &["engine"]),
    ("karstdb", &["engine", "txn"]),
    ("tools", &["karstdb", "engine", "lsm", "format", "io"]),
    ("testkit", &["format", "mem", "io", "lsm"]),
];

/// Crates in which `unsafe` is forbidden by the crate root.
const SAFE_CRATES: &[&str] = &["format", "lsm", "engine", "txn", "karstdb", "tools", "testkit"];

/// Invariant: the stack inside `engine`; a module may name its own layer and those before it.
const ENGINE_LAYERS: &[&[&str]] = &[
    &[
        "error",
        "caller",
        "life",
        "options",
        "stats",
        "perf_context",
        "merge_operator",
        "compaction_filter",
        "snapshot",
        "sync",
    ],
    &["health"],
    &["events"],
    &["pacing"],
    &["range_del", "memtable", "wal", "table", "blob", "superversion"],
    &["column_family"],
    &["versions"],
    &["read", "write", "flush", "compact"],
    &["background"],
    &["ingest", "checkpoint", "open"],
    &["live"],
    &["properties", "db", "blocking"],
];

/// What the engine must take from `io::Env`, so that a simulation can own it.
const EFFECTS: &[&str] = &["std::fs", "std::thread", "std::time::Instant", "std::time::SystemTime", "rand::"];

/// Crates whose threads are explored, so that what threads share comes from their `sync` modules.
const EXPLORED_CRATES: &[&str] = &["mem", "io", "engine"];
const SHARED_BY_THREADS: &[&str] = &[
    "parking_lot::",
    "arc_swap::",
    "event_listener::",
    "std::sync::atomic",
    "std::sync::mpsc",
    "std::sync::Mutex",
    "std::sync::Condvar",
    "std::sync::RwLock",
    "std::sync::Barrier",
    "std::thread::",
];
/// Files that name what threads share all the same, and why they may.
const NOT_EXPLORED: &[(&str, &str)] = &[
    ("crates/mem/src/arena/stock.rs", "the process's, and nothing happens under its lock"),
    ("crates/mem/src/skiplist.rs", "gives out names of the process"),
    ("crates/io/src/buffer.rs", "counts references to memory, for which nobody waits"),
    ("crates/io/src/posix.rs", "asks the operating system"),
    ("crates/io/src/ring.rs", "io_uring is not explored"),
    ("crates/io/src/simulation/", "it has one thread, and checks that"),
    ("crates/io/src/soft/latency.rs", "sleeps by the clock"),
    ("crates/io/src/testing/", "for tests on real threads"),
    ("crates/io/src/waking.rs", "its events: the engine's `sync` module puts others in their place"),
];

/// The one file that calls `tracing`: a subscriber is the user's code.
const REPORTS: &str = "crates/io/src/reporting.rs";

const BANNED_NAMES: &[&str] = &["util", "utils", "common", "manager", "impl", "helpers", "misc"];
const LINES_AT_MOST: usize = 1000;

pub(crate) fn run(root: &Path) -> Result {
    let mut found = Vec::new();
    let (mut counted, mut modules) = (Counted::default(), Modules::default());
    let mut compatibility = Compatibility::default();
    let files = tracked_files(root)?;
    for path in &files {
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        if path.ends_with(".rs") {
            check_name(path, &mut found);
            check_source(path, &text, &mut found);
        }
        if path.starts_with("crates/") && path.ends_with("Cargo.toml") {
            check_edges(path, &text, &mut found);
        }
        check_machine_paths(path, &text, &mut found);
        if path.starts_with("mutants/planted/") && path.ends_with(".patch") {
            check_patch(root, path, &text, &mut found);
        }
        modules.take(path, &text);
        compatibility.take(path, &text);
        counted.take(path, text);
    }
    counted.check(&mut found);
    compatibility.check(&mut found);
    modules.check(&mut found);
    for name in SAFE_CRATES {
        let roots = ["lib.rs", "main.rs"].map(|file| format!("crates/{name}/src/{file}"));
        let says = |root_file: &String| {
            fs::read_to_string(root.join(root_file))
                .is_ok_and(|text| text.contains("#![forbid(unsafe_code)]"))
        };
        if !roots.iter().any(says) {
            found.push(format!("{}: must say #![forbid(unsafe_code)]", roots[0]));
        }
    }
    if found.is_empty() {
        println!("tidy: {} files, clean", files.len());
        return Ok(());
    }
    for line in &found {
        eprintln!("{line}");
    }
    Err(format!("tidy: {} violations", found.len()))
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    if !output.status.success() {
        return Err("git ls-files failed: is this a checkout?".into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

/// A patch that plants a defect applies to the tree as it is, and says which suite is to find it.
fn check_patch(root: &Path, path: &str, text: &str, found: &mut Vec<String>) {
    let header = text.split("diff --git").next().unwrap_or_default();
    if !header.lines().any(|line| line.strip_prefix("Suite: ").is_some_and(|suite| !suite.trim().is_empty()))
    {
        found.push(format!("{path}: must say `Suite: NAME`, who is to find it, before the first diff"));
    }
    let output = Command::new("git").args(["apply", "--check", path]).current_dir(root).output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            found.push(format!("{path}: does not apply, so write it anew for today's code: {why}"));
        }
        Err(error) => found.push(format!("{path}: cannot run git: {error}")),
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
        || path.contains("/examples/")
        || path.starts_with("fuzz/")
}

fn check_name(path: &str, found: &mut Vec<String>) {
    for part in path.trim_end_matches(".rs").split('/') {
        if BANNED_NAMES.contains(&part) || part.ends_with("_v2") {
            found.push(format!("{path}: `{part}` says nothing; name the file for the noun it holds"));
        }
    }
}

fn check_source(path: &str, text: &str, found: &mut Vec<String>) {
    if !text.starts_with("//!") && !text.starts_with("#!") {
        found.push(format!("{path}:1: must open with //!: what it is, what goes in and out, its invariants"));
    }
    let lines = text.lines().count();
    if lines > LINES_AT_MOST {
        found.push(format!("{path}: {lines} lines; find the seam (at most {LINES_AT_MOST})"));
    }
    // Why: unit tests close a file; what they use of the outside world binds nobody.
    let tests = ["#[cfg(test)]\nmod ", "#[cfg(all(test, not(loom)))]\nmod tests {"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    let code = if is_test_file(path) { "" } else { &text[..end] };
    let engine_module =
        path.strip_prefix("crates/engine/src/").map(|p| p.split(['/', '.']).next().unwrap_or(p));
    for (number, line) in code.lines().enumerate() {
        let at = || format!("{path}:{}", number + 1);
        let line = line.trim();
        if line.starts_with("//") {
            continue;
        }
        if path.starts_with("crates/") && line.contains("tracing::") && path != REPORTS {
            found.push(format!(
                "{}: `tracing` is called through karst_io::report!, where its panic ends",
                at()
            ));
        }
        if engine_module.is_some() {
            for effect in EFFECTS.iter().filter(|e| line.contains(*e)) {
                found.push(format!("{}: `{effect}` in the engine; take it from io::Env", at()));
            }
        }
        if must_share_through_sync(path)
            && let Some(named) = shared_by_threads(line)
        {
            found.push(format!("{}: `{named}` outside of the crate's `sync` module", at()));
        }
        if let Some(module) = engine_module.filter(|m| *m != "lib") {
            check_layer(&at, module, line, found);
        }
    }
}

/// Whether what threads share must come from its crate's `sync` module.
fn must_share_through_sync(path: &str) -> bool {
    let in_crate = EXPLORED_CRATES.iter().find_map(|name| path.strip_prefix(&format!("crates/{name}/src/")));
    in_crate.is_some_and(|file| file != "sync.rs" && !file.starts_with("sync/"))
        && !NOT_EXPLORED.iter().any(|(excepted, _)| path.starts_with(excepted))
        && !path.ends_with("loom_tests.rs")
}

/// What a line names that threads share, by its path or in a list.
fn shared_by_threads(line: &str) -> Option<&'static str> {
    let listed = line.split_once("std::sync::{").map_or("", |(_, list)| list);
    let in_list = |name: &&&str| {
        let word = name.strip_prefix("std::sync::").unwrap_or("\0");
        listed.split(|c: char| !c.is_alphanumeric()).any(|listed| listed == word)
    };
    SHARED_BY_THREADS.iter().find(|name| line.contains(**name) || in_list(name)).copied()
}

fn layer_of(module: &str) -> Option<usize> {
    ENGINE_LAYERS.iter().position(|layer| layer.contains(&module))
}

fn check_layer(at: &impl Fn() -> String, module: &str, line: &str, found: &mut Vec<String>) {
    let Some(own) = layer_of(module) else {
        let message = format!("crates/engine: module `{module}` has no layer in xtask's ENGINE_LAYERS");
        if !found.contains(&message) {
            found.push(message);
        }
        return;
    };
    for (start, _) in line.match_indices("crate::") {
        let rest = &line[start + "crate::".len()..];
        for named in named_modules(rest) {
            if layer_of(named).is_some_and(|layer| layer > own) {
                found.push(format!("{}: `{module}` names `{named}`, which is above it", at()));
            }
        }
    }
}

/// The first path segments after `crate::`: one name, or those of a brace list.
fn named_modules(rest: &str) -> Vec<&str> {
    fn head(s: &str) -> &str {
        s.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or(s)
    }
    match rest.strip_prefix('{') {
        None => vec![head(rest)],
        Some(list) => {
            let mut depth = 0;
            let mut names = vec![head(list.trim_start())];
            for (i, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 0 => names.push(head(list[i + 1..].trim_start())),
                    _ => {}
                }
            }
            names
        }
    }
}

fn check_edges(path: &str, text: &str, found: &mut Vec<String>) {
    let name = path.split('/').nth(1).unwrap_or_default();
    let Some((_, allowed)) = EDGES.iter().find(|(n, _)| *n == name) else {
        found.push(format!("{path}: crate `{name}` has no place in xtask's EDGES"));
        return;
    };
    let mut binding = false;
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[') {
            binding = section.starts_with("dependencies") || section.starts_with("build-dependencies");
            continue;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let ours = if key == "karstdb" { Some(key) } else { key.strip_prefix("karst-") };
        if let Some(target) = ours.filter(|t| binding && !allowed.contains(t)) {
            found.push(format!("{path}: `{name}` must not depend on `{target}`"));
        }
    }
}

fn check_machine_paths(path: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let personal = ["/root/", "/home/"].iter().any(|p| {
            line.match_indices(p).any(|(i, _)| i == 0 || !line.as_bytes()[i - 1].is_ascii_alphanumeric())
        });
        if personal && !path.starts_with("xtask/src/tidy") {
            found.push(format!("{path}:{}: a path of one machine", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_an_upward_path_in_a_brace_list() {
        let mut found = Vec::new();
        check_source(
            "crates/engine/src/table/open.rs",
            "//! x\nuse crate::{error::Error, db::Db};\n",
            &mut found,
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`table` names `db`"), "{found:?}");
    }

    #[test]
    fn sees_a_forbidden_edge_but_allows_it_for_tests() {
        let mut found = Vec::new();
        let text =
            "[dependencies]\nkarst-io.workspace = true\n[dev-dependencies]\nkarst-engine.workspace = true\n";
        check_edges("crates/lsm/Cargo.toml", text, &mut found);
        assert_eq!(found, ["crates/lsm/Cargo.toml: `lsm` must not depend on `io`"]);
    }

    #[test]
    fn sees_what_threads_share_outside_of_sync_modules() {
        let of = |path: &str, line: &str| {
            let mut found = Vec::new();
            check_source(path, &format!("//! x\n{line}\n"), &mut found);
            found.len()
        };
        let pool = "crates/io/src/thread_pool.rs";
        for line in
            ["use std::sync::{Arc, Mutex};", "use std::sync::atomic::AtomicBool;", "std::thread::park();"]
        {
            assert_eq!(of(pool, line), 1, "{line}");
        }
        assert_eq!(of(pool, "use std::sync::{Arc, OnceLock};"), 0);
        assert_eq!(of("crates/engine/src/db.rs", "use parking_lot::Mutex;"), 1);
        assert_eq!(of("crates/engine/src/sync.rs", "pub(crate) use parking_lot::Mutex;"), 0);
        assert_eq!(of("crates/io/src/ring.rs", "use std::sync::atomic::AtomicBool;"), 0);
        assert_eq!(of("crates/tools/src/main.rs", "use std::sync::Mutex;"), 0);
    }

    #[test]
    fn sees_effects_in_the_engine_only() {
        let mut found = Vec::new();
        let text = "//! x\nuse std::time::Instant;\n";
        check_source("crates/engine/src/db.rs", text, &mut found);
        check_source("crates/io/src/clock.rs", text, &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
