//! Patches that restore a past defect, and the function bodies that each changes.
//!
//! Input: `mutants/planted/*.patch`, plain `git diff` output against the tree, below a text that
//! describes the defect and a line `Suite: NAME`. A patch that changes only bodies of functions is
//! woven in behind a switch like a drawn mutant; every other one is built alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::visit::{self, Visit};

/// A patch.
pub struct Planted {
    /// The file's name without its extension.
    pub name: String,
    /// Name of the suite that should find it.
    pub suite: String,
    /// The changed files' new text, by path.
    pub files: BTreeMap<String, String>,
}

/// Reads all patches, in the order of their names.
pub fn read_all(root: &Path, scratch: &Path) -> Result<Vec<Planted>, String> {
    let folder = root.join("mutants/planted");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "patch")).collect();
    paths.sort();
    paths.iter().map(|path| read(root, path, scratch)).collect()
}

fn read(root: &Path, path: &Path, scratch: &Path) -> Result<Planted, String> {
    let of = |e: std::io::Error| format!("{}: {e}", path.display());
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).map_err(of)?;
    let suite = text.lines().find_map(|l| l.strip_prefix("Suite: "));
    let suite = suite.ok_or(format!("{name}: no line `Suite: NAME`"))?.trim().to_string();
    let changed: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("+++ b/")).collect();
    let _ = std::fs::remove_dir_all(scratch);
    for file in &changed {
        let to = scratch.join(file);
        std::fs::create_dir_all(to.parent().unwrap_or(scratch)).map_err(of)?;
        std::fs::copy(root.join(file), to).map_err(of)?;
    }
    // The ceiling hides the checkout around `scratch`, in which git would not apply a patch to
    // untracked files.
    let status = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .arg(path)
        .current_dir(scratch)
        .env("GIT_CEILING_DIRECTORIES", scratch.parent().unwrap_or(scratch))
        .status()
        .map_err(of)?;
    if !status.success() {
        return Err(format!("{name}: does not apply"));
    }
    let files = changed
        .iter()
        .map(|file| Ok((file.to_string(), std::fs::read_to_string(scratch.join(file)).map_err(of)?)))
        .collect::<Result<_, String>>()?;
    Ok(Planted { name, suite, files })
}

/// Returns the function bodies that differ between two texts of a file: the range of each in
/// `before`, and its text in `after`. None if anything else differs.
pub fn changed_bodies(before: &str, after: &str) -> Option<Vec<(Range<usize>, String)>> {
    let (old, new) = (bodies(before)?, bodies(after)?);
    if skeleton(before, &old)? != skeleton(after, &new)? {
        return None;
    }
    let pairs = old.into_iter().zip(new).filter(|(o, n)| before[o.range.clone()] != after[n.range.clone()]);
    pairs.map(|(o, n)| (!o.constant).then(|| (o.range, after[n.range].to_string()))).collect()
}

struct Body {
    range: Range<usize>,
    constant: bool,
}

/// Returns the bodies of the outermost functions of a file, in order.
fn bodies(source: &str) -> Option<Vec<Body>> {
    struct Finder(Vec<Body>);
    impl Finder {
        fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
            let braces = block.brace_token.span;
            let range = braces.open().byte_range().start..braces.close().byte_range().end;
            self.0.push(Body { range, constant: signature.constness.is_some() });
        }
    }
    impl<'ast> Visit<'ast> for Finder {
        fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
            self.add(&f.sig, &f.block);
        }
        fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
            self.add(&f.sig, &f.block);
        }
        fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
            if let Some(block) = &f.default {
                self.add(&f.sig, block);
            }
        }
    }
    let mut finder = Finder(Vec::new());
    visit::visit_file(&mut finder, &syn::parse_file(source).ok()?);
    Some(finder.0)
}

/// Returns all tokens outside of bodies, without comments.
fn skeleton(source: &str, bodies: &[Body]) -> Option<String> {
    let mut rest = String::new();
    let mut at = 0;
    for body in bodies {
        rest.push_str(&source[at..body.range.start]);
        rest.push_str("{}");
        at = body.range.end;
    }
    rest.push_str(&source[at..]);
    Some(rest.parse::<proc_macro2::TokenStream>().ok()?.to_string())
}
