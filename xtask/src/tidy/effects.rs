//! Effects and types shared by threads: these come from modules that a simulation or an exploration
//! of threads can replace.

use super::{Tree, is_test_file};

/// Crates that must take effects from `io::Env`, so that a simulation can replace them.
const SIMULATED_CRATES: &[&str] = &["base", "storage", "commit", "engine"];
const EFFECTS: &[&str] = &["std::fs", "std::thread", "std::time::Instant", "std::time::SystemTime", "rand::"];

/// Crates whose threads are explored, so that types shared by threads come from their `sync`
/// modules; crates above `base` use that crate's.
const EXPLORED_CRATES: &[&str] = &["mem", "io", "base", "storage", "commit", "engine"];
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
/// Files that may still name such types directly, each with the reason.
const NOT_EXPLORED: &[(&str, &str)] = &[
    ("crates/mem/src/arena/stock.rs", "the process's, and nothing happens under its lock"),
    ("crates/mem/src/skiplist/mod.rs", "gives out names of the process"),
    ("crates/io/src/buffer/mod.rs", "counts references to memory, for which nobody waits"),
    ("crates/io/src/posix/mod.rs", "asks the operating system"),
    ("crates/io/src/ring/mod.rs", "io_uring is not explored"),
    ("crates/io/src/simulation/", "it has one thread, and checks that"),
    ("crates/io/src/soft/latency.rs", "sleeps by the clock"),
    ("crates/io/src/testing/", "for tests on real threads"),
    ("crates/io/src/waking.rs", "its events: the `sync` module of `base` puts others in their place"),
];

/// The one file that may call `tracing`, because a subscriber is the user's code.
const REPORTS: &str = "crates/io/src/reporting.rs";

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in tree.sources().filter(|(path, _)| !is_test_file(path)) {
        // The search ends at the unit tests, which are last in a file and may use effects.
        let tests = ["#[cfg(test)]\nmod ", "#[cfg(all(test, not(loom)))]\nmod tests {"];
        let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
        for (number, line) in text[..end].lines().enumerate() {
            check_line(path, number + 1, line.trim(), found);
        }
    }
}

fn check_line(path: &str, number: usize, line: &str, found: &mut Vec<String>) {
    if line.starts_with("//") {
        return;
    }
    if path.starts_with("crates/") && line.contains("tracing::") && path != REPORTS {
        let why = "is called through karst_io::report!, where its panic ends";
        found.push(format!("{path}:{number}: `tracing` {why}"));
    }
    if file_in(SIMULATED_CRATES, path).is_some() {
        for effect in EFFECTS.iter().filter(|effect| line.contains(*effect)) {
            found.push(format!("{path}:{number}: `{effect}` outside of `io`; take it from io::Env"));
        }
    }
    if must_share_through_sync(path)
        && let Some(named) = shared_by_threads(line)
    {
        found.push(format!("{path}:{number}: `{named}` outside of a `sync` module"));
    }
}

/// Returns the path of a source within its crate if that is one of `crates`.
fn file_in<'a>(crates: &[&str], path: &'a str) -> Option<&'a str> {
    crates.iter().find_map(|name| path.strip_prefix(&format!("crates/{name}/src/")))
}

/// True if types shared by threads must come from a `sync` module.
fn must_share_through_sync(path: &str) -> bool {
    file_in(EXPLORED_CRATES, path).is_some_and(|file| file != "sync.rs" && !file.starts_with("sync/"))
        && !NOT_EXPLORED.iter().any(|(excepted, _)| path.starts_with(excepted))
        && !path.ends_with("loom_tests.rs")
}

/// Returns the type shared by threads that a line names, by its path or in a list.
fn shared_by_threads(line: &str) -> Option<&'static str> {
    let listed = line.split_once("std::sync::{").map_or("", |(_, list)| list);
    let in_list = |name: &&&str| {
        let word = name.strip_prefix("std::sync::").unwrap_or("\0");
        listed.split(|c: char| !c.is_alphanumeric()).any(|listed| listed == word)
    };
    SHARED_BY_THREADS.iter().find(|name| line.contains(**name) || in_list(name)).copied()
}

#[cfg(test)]
mod tests {
    use super::super::said;

    #[test]
    fn sees_what_threads_share_outside_of_sync_modules() {
        let of = |path: &str, line: &str| said(super::check, &[(path, line)]).len();
        let pool = "crates/io/src/thread_pool.rs";
        for line in
            ["use std::sync::{Arc, Mutex};", "use std::sync::atomic::AtomicBool;", "std::thread::park();"]
        {
            assert_eq!(of(pool, line), 1, "{line}");
        }
        assert_eq!(of(pool, "use std::sync::{Arc, OnceLock};"), 0);
        assert_eq!(of("crates/engine/src/db/mod.rs", "use parking_lot::Mutex;"), 1);
        assert_eq!(of("crates/base/src/sync/mod.rs", "pub use parking_lot::Mutex;"), 0);
        assert_eq!(of("crates/io/src/ring/mod.rs", "use std::sync::atomic::AtomicBool;"), 0);
        assert_eq!(of("crates/tools/src/main.rs", "use std::sync::Mutex;"), 0);
    }

    #[test]
    fn sees_effects_where_they_come_from_the_environment() {
        let text = "//! x\nuse std::time::Instant;\n#[cfg(test)]\nmod tests {\nuse std::fs;\n}\n";
        let files = [("crates/engine/src/db/mod.rs", text), ("crates/io/src/clock.rs", text)];
        let found = said(super::check, &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/engine/src/db/mod.rs:2: `std::time::Instant`"), "{found:?}");
    }
}
