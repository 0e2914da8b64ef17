//! Sources that belong to no module: the compiler does not see them, so their tests never run.
//!
//! In: all sources of the workspace. Out: those that no file in the same or the parent folder names
//! with `mod`.

use super::Tree;

/// Directories of a package in which each file is a program of its own.
const OF_PROGRAMS: [&str; 4] = ["tests", "examples", "benches", "fuzz_targets"];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, _) in tree.sources().filter(|(path, _)| !is_compiled(tree, path)) {
        found.push(format!("{path}: no `mod` names it, so nothing compiles it"));
    }
}

fn is_compiled(tree: &Tree, path: &str) -> bool {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(file, "lib.rs" | "main.rs" | "build.rs") || holds_programs(directory) {
        return true;
    }
    let (directory, module) = match file {
        "mod.rs" => directory.rsplit_once('/').unwrap_or(("", directory)),
        file => (directory, file.trim_end_matches(".rs")),
    };
    let naming = format!("mod {module};");
    let names = |text: &str| text.lines().any(|line| line.ends_with(&naming));
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|file| format!("{directory}/{file}"));
    let beside = |path: &str| path.rsplit_once('/').is_some_and(|(other, _)| other == directory);
    parents.iter().chain([&format!("{directory}.rs")]).any(|parent| tree.text(parent).is_some_and(names))
        || holds_programs(directory) && tree.sources().any(|(path, text)| beside(path) && names(text))
}

fn holds_programs(directory: &str) -> bool {
    let last = directory.rsplit('/').next().unwrap_or(directory);
    (!directory.contains("/src") && OF_PROGRAMS.contains(&last)) || directory.ends_with("src/bin")
}

#[cfg(test)]
mod tests {
    use super::super::said;

    #[test]
    fn sees_a_test_that_no_module_names() {
        let files = [
            ("crates/a/src/lib.rs", "mod write;\nmod one;\n"),
            ("crates/a/src/one.rs", "//! `mod lost;` would name it\n"),
            ("crates/a/src/write/mod.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/write/tests/mod.rs", "mod found;\n"),
            ("crates/a/src/write/tests/found.rs", ""),
            ("crates/a/src/write/tests/lost.rs", ""),
            ("crates/a/tests/program.rs", "mod support;\n"),
            ("crates/a/tests/support/mod.rs", ""),
            ("crates/a/tests/unsupported/mod.rs", ""),
            ("crates/a/tests/other/main.rs", "pub(crate) mod part;\n"),
            ("crates/a/tests/other/part.rs", ""),
        ];
        let found = said(super::check, &files);
        let lost: Vec<_> = found.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(lost, ["crates/a/src/write/tests/lost.rs", "crates/a/tests/unsupported/mod.rs"]);
    }
}
