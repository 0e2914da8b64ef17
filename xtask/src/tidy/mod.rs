//! Rules of the repository that no compiler checks, one file each.
//!
//! In: the files that git tracks or would track. Out: every violation, with its file and line.

mod circles;
mod comments;
mod compatibility;
mod counted;
mod crates;
mod effects;
mod examples;
mod exports;
mod files;
mod imports;
mod lost;
mod pages;
mod parsed;
mod patches;
mod paths;
mod prose;
pub(crate) mod same_code;
mod vocabulary;

use crate::run::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run(root: &Path) -> Result {
    let tree = Tree::read(root)?;
    let mut found = Vec::new();
    for check in [
        files::check,
        imports::check,
        comments::check,
        crates::check,
        effects::check,
        examples::check,
        exports::check,
        lost::check,
        counted::check,
        compatibility::check,
        pages::check,
        patches::check,
        paths::check,
        prose::check,
    ] {
        check(&tree, &mut found);
    }
    let parsed = parsed::crates(&tree)?;
    for check in [circles::check, vocabulary::check] {
        check(&parsed, &mut found);
    }
    if found.is_empty() {
        println!("tidy: {} files, clean", tree.files.len());
        return Ok(());
    }
    for line in &found {
        eprintln!("{line}");
    }
    Err(format!("tidy: {} violations", found.len()))
}

/// Wraps comments at the width that the rules allow, in these files and folders or everywhere.
pub(crate) fn rewrap(root: &Path, paths: &[String]) -> Result {
    comments::rewrap(&Tree::read(root)?, paths)
}

/// The files that the rules check.
#[derive(Default)]
struct Tree {
    root: PathBuf,
    /// Text of each file, by its path from the root.
    files: BTreeMap<String, String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Tree> {
        let paths = git(root, &["ls-files", "--cached", "--others", "--exclude-standard"])?;
        let text_of = |path: &str| Some((path.to_string(), fs::read_to_string(root.join(path)).ok()?));
        Ok(Tree { root: root.to_path_buf(), files: paths.lines().filter_map(text_of).collect() })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns the Rust sources.
    fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(|(path, _)| path.ends_with(".rs"))
    }
}

/// Runs git in a folder and returns its output.
fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(folder)
        .output()
        .map_err(|e| format!("cannot run git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/benches/")
        || path.contains("/examples/")
        || path.starts_with("fuzz/")
}

#[cfg(test)]
impl Tree {
    fn of(files: &[(&str, &str)]) -> Tree {
        let owned = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
        Tree { root: PathBuf::new(), files: files.iter().map(owned).collect() }
    }
}

/// Returns the findings of a rule in these files.
#[cfg(test)]
fn said(check: fn(&Tree, &mut Vec<String>), files: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    check(&Tree::of(files), &mut found);
    found
}
