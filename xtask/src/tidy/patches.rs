//! Planted patches apply, and name the suite that should find their defect.

use super::Tree;
use std::path::Path;
use std::process::Command;

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in &tree.files {
        if is_planted(path) {
            check_patch(&tree.root, path, text, found);
        }
    }
}

/// True for a patch that plants a defect.
pub(super) fn is_planted(path: &str) -> bool {
    path.starts_with("mutants/planted/") && path.ends_with(".patch")
}

/// Checks that a planted patch applies to the tree and names the suite that should find it.
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
