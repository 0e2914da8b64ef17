//! Permitted dependencies between crates, and the crates that forbid `unsafe`.

use super::Tree;

/// Invariant: the direction of dependencies. A crate may depend on the workspace crates listed with
/// it and on no others.
const EDGES: &[(&str, &[&str])] = &[
    ("format", &[]),
    ("mem", &[]),
    ("io", &[]),
    ("lsm", &["format"]),
    ("base", &["format", "mem", "io", "lsm"]),
    ("storage", &["format", "mem", "io", "lsm", "base"]),
    ("commit", &["format", "mem", "io", "base", "storage"]),
    ("engine", &["format", "mem", "io", "lsm", "base", "storage", "commit"]),
    ("txn", &["engine"]),
    ("karstdb", &["engine", "txn"]),
    ("server", &["karstdb"]),
    ("capi", &["karstdb"]),
    ("tools", &["karstdb", "server", "engine", "lsm", "format", "io"]),
    ("testkit", &["format", "mem", "io", "lsm"]),
];

/// Crates in which `unsafe` is forbidden by the crate root.
const SAFE_CRATES: &[&str] =
    &["format", "lsm", "base", "storage", "commit", "engine", "txn", "karstdb", "server", "tools", "testkit"];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in &tree.files {
        if path.starts_with("crates/") && path.ends_with("Cargo.toml") {
            check_edges(path, text, found);
        }
    }
    for name in SAFE_CRATES {
        let roots = ["lib.rs", "main.rs"].map(|file| format!("crates/{name}/src/{file}"));
        let says =
            |root: &String| tree.text(root).is_some_and(|text| text.contains("#![forbid(unsafe_code)]"));
        if !roots.iter().any(says) {
            found.push(format!("{}: must say #![forbid(unsafe_code)]", roots[0]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_a_forbidden_edge_but_allows_it_for_tests() {
        let mut found = Vec::new();
        let text =
            "[dependencies]\nkarst-io.workspace = true\n[dev-dependencies]\nkarst-engine.workspace = true\n";
        check_edges("crates/lsm/Cargo.toml", text, &mut found);
        assert_eq!(found, ["crates/lsm/Cargo.toml: `lsm` must not depend on `io`"]);
    }
}
