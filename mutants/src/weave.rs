//! A copy of the source tree, in which every mutant is behind a switch.
//!
//! Input: the files of the tree, and drawn sites and patches, each with its number. Output: these
//! files with `crate::mutant::on(NUMBER)` around each change, and the ranges of each mutant's text,
//! which map a compiler error to its mutant.

use crate::planted::changed_bodies;
use crate::sites::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// A file of the copy.
pub struct Woven {
    pub text: String,
    /// Ranges of the text with their mutants; a place belongs to the smallest range around it.
    regions: Vec<(Range<usize>, u32)>,
}

impl Woven {
    /// Returns the mutant whose text contains a place.
    pub fn mutant_at(&self, place: usize) -> Option<u32> {
        let around = self.regions.iter().filter(|(range, _)| range.contains(&place));
        around.min_by_key(|(range, _)| range.len()).map(|(_, id)| *id)
    }
}

/// Changes of a file's text that do not overlap.
#[derive(Default)]
pub struct Edits(Vec<Edit>);

struct Edit {
    /// Byte range of the removed original text.
    range: Range<usize>,
    /// The new text in pieces, each with its mutant.
    pieces: Vec<(Option<u32>, String)>,
}

impl Edits {
    /// True if `range` overlaps another change.
    pub fn touches(&self, range: &Range<usize>) -> bool {
        let over = |a: &Range<usize>, b: &Range<usize>| a.start <= b.start && b.start < a.end;
        self.0.iter().any(|edit| over(&edit.range, range) || over(range, &edit.range))
    }

    pub fn add_site(&mut self, id: u32, site: &Site, source: &str) {
        let pieces = vec![(Some(id), site.woven(source, &on(id)))];
        self.0.push(Edit { range: site.range.clone(), pieces });
    }

    /// Adds the bodies that one or more patches give a function: the first whose mutant is on runs,
    /// else the original.
    pub fn add_bodies(&mut self, original: Range<usize>, bodies: &[(u32, String)]) {
        let mut before = vec![(None, "{ ".to_string())];
        for (id, body) in bodies {
            before.push((None, format!("if {} ", on(*id))));
            before.push((Some(*id), body.clone()));
            before.push((None, " else ".to_string()));
        }
        self.0.push(Edit { range: original.start..original.start, pieces: before });
        self.0.push(Edit { range: original.end..original.end, pieces: vec![(None, " }".to_string())] });
    }

    pub fn woven(mut self, source: &str) -> Woven {
        self.0.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let (mut text, mut regions, mut at) = (String::new(), Vec::new(), 0);
        for Edit { range, pieces } in self.0 {
            text.push_str(&source[at..range.start]);
            for (id, piece) in pieces {
                let start = text.len();
                text.push_str(&piece);
                regions.extend(id.map(|id| (start..text.len(), id)));
            }
            at = range.end;
        }
        text.push_str(&source[at..]);
        Woven { text, regions }
    }
}

fn on(id: u32) -> String {
    format!("crate::mutant::on({id})")
}

/// Returns the bodies that a patch changes, by file, or None if it changes anything else.
pub fn bodies_of(
    files: &BTreeMap<String, String>,
    originals: &BTreeMap<String, String>,
) -> Option<Vec<(String, Range<usize>, String)>> {
    let mut all = Vec::new();
    for (path, after) in files {
        let bodies = changed_bodies(originals.get(path)?, after)?;
        all.extend(bodies.into_iter().map(|(range, body)| (path.clone(), range, body)));
    }
    Some(all)
}

/// Returns the crates (`crates/NAME`) of these files.
pub fn crates_of<'a>(paths: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    paths.filter_map(|p| Some(p.split_once("/src/")?.0.to_string())).collect()
}

/// Returns the source of the module `mutant` of the copy's crates, for numbers up to `last`.
pub fn switch(last: u32) -> String {
    SWITCH.replace("LAST: usize = 0", &format!("LAST: usize = {last}"))
}

const SWITCH: &str = r#"//! Which mutant is on, as `KARST_MUTANT` says; with `KARST_MUTANTS_REACHED`, every one that is asked for leaves its
//! number in that file. This module is part of each crate of the copy, and of no crate of the tree.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const LAST: usize = 0;

/// Whether this mutant is on.
pub fn on(id: usize) -> bool {
    static ON: OnceLock<(usize, Option<std::path::PathBuf>)> = OnceLock::new();
    let (wanted, reached) = ON.get_or_init(|| {
        let wanted = std::env::var("KARST_MUTANT").ok().and_then(|n| n.parse().ok());
        (wanted.unwrap_or(0), std::env::var_os("KARST_MUTANTS_REACHED").map(Into::into))
    });
    if let Some(path) = reached {
        static REACHED: [AtomicBool; LAST + 1] = [const { AtomicBool::new(false) }; LAST + 1];
        if !REACHED[id].swap(true, Ordering::Relaxed) {
            use std::io::Write;
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!("{id}\n").as_bytes()));
        }
    }
    *wanted == id
}
"#;

/// Writes `files` to the copy, except those that are equal already, so that little is compiled.
pub fn write_tree(tree: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (path, bytes) in files {
        let to = tree.join(path);
        if std::fs::read(&to).is_ok_and(|old| old == *bytes) {
            continue;
        }
        let write = || {
            std::fs::create_dir_all(to.parent().unwrap_or(tree))?;
            std::fs::write(&to, bytes)
        };
        write().map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(())
}
