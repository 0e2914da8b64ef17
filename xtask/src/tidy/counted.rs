//! Checks the names of statistics against the code that counts them and the document that lists
//! those without a counter.
//!
//! In: the files that name them, the sources, `docs/statistics.md`. Out: a name that is neither
//! counted nor listed there, or both; a pattern that matches no name.

use super::{Tree, is_test_file};

/// Files that declare the names.
const NAMED: [&str; 2] = ["crates/base/src/stats/names.rs", "crates/base/src/perf_context.rs"];
const DOCUMENT: &str = "docs/statistics.md";
const SECTION: &str = "## Not counted";

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let named: Vec<&str> = NAMED.iter().filter_map(|path| tree.text(path)).collect();
    let ships = |path: &str| path.starts_with("crates/") && path.contains("/src/") && !is_test_file(path);
    let sources = tree.sources().filter(|(path, _)| ships(path) && !NAMED.contains(path));
    let sources: Vec<&str> = sources.map(|(_, text)| text).collect();
    check_names(&named, &sources, tree.text(DOCUMENT).unwrap_or_default(), found);
}

fn check_names(named: &[&str], sources: &[&str], document: &str, found: &mut Vec<String>) {
    let patterns: Vec<&str> = listed(document).collect();
    let mut fits = vec![false; patterns.len()];
    for (variant, name) in named.iter().flat_map(|text| names_in(text)) {
        let counted = sources.iter().any(|text| is_used(text, &variant));
        let is_listed = patterns.iter().zip(&mut fits).fold(false, |before, (pattern, fits)| {
            let now = matches(pattern, name);
            *fits |= now;
            before | now
        });
        match (counted, is_listed) {
            (false, false) => found.push(format!("{DOCUMENT}: `{name}` is never counted: count or list it")),
            (true, true) => found.push(format!("{DOCUMENT}: `{name}` is listed, but counted")),
            _ => {}
        }
    }
    let in_vain = patterns.iter().zip(fits).filter(|(_, fits)| !fits);
    found.extend(in_vain.map(|(pattern, _)| format!("{DOCUMENT}: `{pattern}` fits no name")));
}

/// Returns for each line `Variant = "rocksdb.name",` after `Enum {` its path in code,
/// `Enum::Variant`, and the name.
fn names_in(text: &str) -> impl Iterator<Item = (String, &str)> {
    let mut of = "";
    text.lines().filter_map(move |line| {
        if let Some(head) = line.strip_suffix(" {") {
            of = head;
        }
        let (variant, name) = line.trim().strip_suffix("\",")?.split_once(" = \"")?;
        Some((format!("{of}::{variant}"), name.strip_prefix("rocksdb.").unwrap_or(name)))
    })
}

/// True if `text` names the variant.
fn is_used(text: &str, variant: &str) -> bool {
    text.match_indices(variant).any(|(at, _)| {
        let behind = text[at + variant.len()..].chars().next();
        !behind.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Returns the names in backticks in the first column of the section's table.
fn listed(document: &str) -> impl Iterator<Item = &str> {
    let behind = document.split_once(SECTION).map_or("", |(_, behind)| behind);
    let section = behind.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    rows.flat_map(|names| names.split(", ").map(|name| name.trim_matches('`')))
}

/// True if `name` matches `pattern`, in which a star stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => name
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|skipped| matches(behind, &rest[skipped..]))),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sees_what_is_neither_counted_nor_listed_and_what_is_both() {
        let named = [
            "Ticker {\n    Hit = \"rocksdb.hit\",\n    Miss = \"rocksdb.a.miss\",\n    MissMore = \"rocksdb.more\",\n",
        ];
        let sources = ["stats.tick(Ticker::Hit); let _ = (Ticker::MissMore, Other::Miss);"];
        let check = |document: &str| {
            let mut found = Vec::new();
            super::check_names(&named, &sources, document, &mut found);
            found
        };
        assert_eq!(check("## Not counted\n| `a.*` | none |\n"), Vec::<String>::new());
        assert_eq!(
            check("## Not counted\n| `a.*` | none |\n\n## Properties\n| `x` | none |\n"),
            Vec::<String>::new()
        );
        assert_eq!(check(""), ["docs/statistics.md: `a.miss` is never counted: count or list it"]);
        assert_eq!(
            check("## Not counted\n| `*.miss`, `hit`, `x` | none |\n"),
            ["docs/statistics.md: `hit` is listed, but counted", "docs/statistics.md: `x` fits no name"]
        );
    }
}
