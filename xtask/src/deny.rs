//! The task `deny`: every dependency has a licence and a source that deny.toml allows.
//!
//! If `cargo-deny` is installed it checks all of deny.toml, advisories and bans too. If not, this
//! module checks licences and sources of shipped packages from the output of `cargo tree`, because
//! building `cargo-deny` takes longer than the rest of tidy, and an unknown licence must not pass
//! without it.

use crate::run::{Result, found, repository_root, step};
use std::path::Path;
use std::process::Command;

/// Message about the checks that were left out, and the command that enables them.
const INSTALL: &str = "cargo-deny is not installed: only licences and sources were checked, not advisories and bans.\n  \
     install with: cargo install --locked cargo-deny";

pub(crate) fn deny() -> Result {
    if found("cargo-deny") {
        step("cargo", &["deny", "--workspace", "check"], &[])?;
        let config = repository_root().join("deny.toml");
        let config = config.to_string_lossy();
        let manifest = "bindings/python/Cargo.toml";
        return step("cargo", &["deny", "--manifest-path", manifest, "check", "--config", &config], &[]);
    }
    let path = repository_root().join("deny.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let allowed = allowed_licences(&text);
    for workspace in [".", "bindings/python"] {
        licences_and_sources(&repository_root().join(workspace), &allowed)?;
    }
    println!("{INSTALL}");
    Ok(())
}

/// Checks the dependencies and build dependencies of a workspace.
fn licences_and_sources(workspace: &Path, allowed: &[String]) -> Result {
    let tree = Command::new("cargo")
        .args(["tree", "--workspace", "--all-features", "--locked", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{l}|{p}"])
        .current_dir(workspace)
        .output()
        .map_err(|e| format!("cannot run cargo tree: {e}"))?;
    if !tree.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&tree.stderr)));
    }
    let tree = String::from_utf8_lossy(&tree.stdout);
    let mut lines: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.len() < 20 || allowed.is_empty() {
        return Err("deny: cargo tree, or deny.toml, was not understood".into());
    }
    let wrong: Vec<String> = lines.iter().filter_map(|line| wrong(line, allowed)).collect();
    if !wrong.is_empty() {
        return Err(format!("deny: {}", wrong.join("\n  ")));
    }
    println!("deny: {} packages have a licence and a source that deny.toml allows", lines.len());
    Ok(())
}

/// The list `allow` of the section `[licenses]`.
fn allowed_licences(text: &str) -> Vec<String> {
    let section = text.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("allow = [").map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split(',')
        .map(|name| name.trim().trim_matches('"').to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns the error of a package, given as `licence|name version (source)`. A package from
/// crates.io has no source, and one of ours has a path.
fn wrong(line: &str, allowed: &[String]) -> Option<String> {
    let (licence, package) = line.split_once('|')?;
    let package = package.trim_end_matches(" (*)").trim_end_matches(" (proc-macro)");
    let source = package.split_once(" (").map(|(_, source)| source);
    if source.is_some_and(|source| !source.starts_with('/')) {
        return Some(format!("{package}: comes from elsewhere than crates.io"));
    }
    let is_allowed = |name: &str| allowed.iter().any(|known| known == name);
    (!allows(licence, &is_allowed))
        .then(|| format!("{package}: licence {licence:?} is not among those of deny.toml"))
}

/// True if an SPDX expression can be met. The old form `A/B` means `A OR B`.
fn allows(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let met = any_of(&mut rest, is_allowed);
    met && rest.is_empty()
}

fn any_of(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = all_of(words, is_allowed);
    while let Some(("OR", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        *words = rest;
        met |= all_of(words, is_allowed);
    }
    met
}

fn all_of(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut met = one(words, is_allowed);
    while let Some(("AND", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
        *words = rest;
        met &= one(words, is_allowed);
    }
    met
}

fn one(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    *words = rest;
    if *first != "(" {
        // An exception allows more than the licence does.
        if let [with, _, rest @ ..] = *words
            && *with == "WITH"
        {
            *words = rest;
        }
        return is_allowed(first);
    }
    let met = any_of(words, is_allowed);
    match words.split_first() {
        Some((&")", rest)) => {
            *words = rest;
            met
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_allowed_as_their_expressions_say() {
        let allows = |expression| allows(expression, &|name| ["MIT", "Zlib", "Unicode-3.0"].contains(&name));
        for met in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Zlib AND (GPL-3.0 OR MIT WITH LLVM-exception)",
        ] {
            assert!(allows(met), "{met}");
        }
        for unmet in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "Zlib AND (GPL-3.0 OR AGPL-3.0)"] {
            assert!(!allows(unmet), "{unmet}");
        }
    }

    #[test]
    fn packages_are_told_apart_by_source_and_licence() {
        let allowed = allowed_licences(
            "[licenses]\nallow = [\n    \"MIT\",\n    \"Zlib\",\n]\n[bans]\nallow = [\"x\"]",
        );
        assert_eq!(allowed, ["MIT", "Zlib"]);
        assert_eq!(wrong("MIT|smallvec v1.15.1", &allowed), None);
        assert_eq!(wrong("MIT|karst-mem v0.1.0 (/checkout/crates/mem) (*)", &allowed), None);
        assert_eq!(wrong("MIT|derive v1.0.0 (proc-macro)", &allowed), None);
        let elsewhere = wrong("MIT|smallvec v1.15.1 (https://example.org/smallvec#1234)", &allowed);
        assert!(elsewhere.is_some_and(|text| text.contains("elsewhere")));
        assert!(wrong("GPL-3.0|odd v1.0.0", &allowed).is_some_and(|text| text.contains("odd v1.0.0")));
    }
}
