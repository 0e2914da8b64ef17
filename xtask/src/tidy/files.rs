//! Names, heads and sizes of files, and paths in them that exist on one machine only.

use super::Tree;

const BANNED_NAMES: &[&str] = &["util", "utils", "common", "manager", "impl", "helpers", "misc"];
const LINES_AT_MOST: usize = 1000;

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in tree.sources() {
        check_name(path, found);
        check_layout(tree, path, found);
        check_head_and_size(path, text, found);
    }
    for (path, text) in &tree.files {
        check_machine_paths(path, text, found);
    }
}

fn check_name(path: &str, found: &mut Vec<String>) {
    for part in path.trim_end_matches(".rs").split('/') {
        if BANNED_NAMES.contains(&part) || part.ends_with("_v2") {
            found.push(format!("{path}: `{part}` says nothing; name the file for the noun it holds"));
        }
    }
}

/// Checks that a module with submodules is `x/mod.rs`, not `x.rs` beside `x/`.
fn check_layout(tree: &Tree, path: &str, found: &mut Vec<String>) {
    // Only below `src`, because elsewhere each file is a program, and may have a directory beside
    // it.
    let inside =
        path.strip_suffix(".rs").filter(|path| path.contains("/src/")).map(|path| format!("{path}/"));
    let is_inside = |other: &str| inside.as_ref().is_some_and(|inside| other.starts_with(inside.as_str()));
    if tree.sources().any(|(other, _)| is_inside(other)) {
        let place = path.replace(".rs", "/mod.rs");
        found.push(format!("{path}: there are modules inside it, so its place is {place}"));
    }
}

fn check_head_and_size(path: &str, text: &str, found: &mut Vec<String>) {
    if !text.starts_with("//!") && !text.starts_with("#!") {
        found.push(format!("{path}:1: must open with //!: what it is, what goes in and out, its invariants"));
    }
    let lines = text.lines().count();
    if lines > LINES_AT_MOST {
        found.push(format!("{path}: {lines} lines; find the seam (at most {LINES_AT_MOST})"));
    }
}

fn check_machine_paths(path: &str, text: &str, found: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let personal = ["/root/", "/home/"].iter().any(|p| {
            line.match_indices(p).any(|(i, _)| i == 0 || !line.as_bytes()[i - 1].is_ascii_alphanumeric())
        });
        if personal && path != "xtask/src/tidy/files.rs" {
            found.push(format!("{path}:{}: a path of one machine", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::said;

    #[test]
    fn sees_a_name_that_says_nothing_a_missing_head_and_a_path_of_one_machine() {
        let files =
            [("crates/a/src/utils.rs", "fn a() {}\n"), ("notes.md", "in /home/me, not in x/home/y\n")];
        let found = said(super::check, &files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`utils` says nothing"), "{found:?}");
        assert!(found[1].contains("must open with //!"), "{found:?}");
        assert_eq!(found[2], "notes.md:1: a path of one machine");
    }

    #[test]
    fn sees_a_module_beside_what_lies_inside_it() {
        let head = "//! A module.\n";
        let files =
            ["crates/a/src/x.rs", "crates/a/src/x/y.rs", "crates/a/src/z/mod.rs", "crates/a/src/z/y.rs"];
        let programs = ["crates/a/tests/x.rs", "crates/a/tests/x/y.rs"];
        let all: Vec<_> = files.iter().chain(&programs).map(|path| (*path, head)).collect();
        let expected =
            "crates/a/src/x.rs: there are modules inside it, so its place is crates/a/src/x/mod.rs";
        assert_eq!(said(super::check, &all), [expected]);
    }
}
