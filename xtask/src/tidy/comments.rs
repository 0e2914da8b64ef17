//! Width of comments: at most 100 columns; `cargo xtask tidy --rewrap` wraps them.
//!
//! In: the sources. Out: comment lines that are wider; or the sources with each paragraph that has
//! such a line wrapped again. Lines of code blocks and tables may be wider, and those with a URL.
//!
//! A comment is read as Markdown. Code blocks, indented blocks, tables, headings, definitions of
//! links, lines with columns and paragraphs with hard line breaks stay as they are. An item of a
//! list is a paragraph of its own, whose lines are indented below its text. A line that begins with
//! `Why`, `Compat`, `Invariant` or `SAFETY` begins a paragraph too. Code spans and links are not
//! torn apart, and no line begins with a sign that has a meaning in Markdown.
//!
//! Invariant: the words of comments, and all other text, stay unchanged. A file in which wrapping
//! would change them is left alone and named.

use super::Tree;
use crate::run::Result;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const COLUMNS: usize = 100;

/// Words that begin a paragraph where they begin a line.
const LABELS: [&str; 4] = ["Why", "Compat", "Invariant", "SAFETY"];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in tree.sources() {
        found.extend(wide_lines(text).into_iter().map(|line| {
            format!(
                "{path}:{line}: a comment of more than {COLUMNS} columns; \
                 `cargo xtask tidy --rewrap {path}` wraps it"
            )
        }));
    }
}

/// Wraps the comments of the sources in these files and folders, or of all, and updates the planted
/// patches.
pub(super) fn rewrap(tree: &Tree, paths: &[String]) -> Result {
    let chosen = |path: &str| paths.is_empty() || paths.iter().any(|of| path.starts_with(of.as_str()));
    let (mut changed, mut refused) = (BTreeSet::new(), Vec::new());
    for (path, text) in tree.sources().filter(|(path, _)| chosen(path)) {
        let wrapped = wrapped(text);
        if wrapped == text {
            continue;
        }
        if essence(&wrapped) != essence(text) {
            refused.push(path);
            continue;
        }
        fs::write(tree.root.join(path), wrapped).map_err(|e| format!("{path}: {e}"))?;
        changed.insert(path);
    }
    let mut followed = 0;
    for (path, patch) in tree.files.iter().filter(|(path, _)| super::patches::is_planted(path)) {
        if touched(patch).any(|file| changed.contains(file)) {
            let text = follow(tree, &changed, patch).map_err(|e| format!("{path}: {e}"))?;
            fs::write(tree.root.join(path), text).map_err(|e| format!("{path}: {e}"))?;
            followed += 1;
        }
    }
    println!("tidy: comments of {} files are wrapped anew, and {followed} patches", changed.len());
    if refused.is_empty() {
        return Ok(());
    }
    Err(format!("tidy: wrapping would change more than lines in {}", refused.join(", ")))
}

/// Returns the files that a patch changes.
fn touched(patch: &str) -> impl Iterator<Item = &str> {
    patch.lines().filter_map(|line| line.strip_prefix("--- a/"))
}

/// Returns the patch between its two sides after wrapping both in the files that the tree wraps.
fn follow(tree: &Tree, wrapped_files: &BTreeSet<&str>, patch: &str) -> Result<String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("xtask-patch-{}-{number}", std::process::id()));
    let followed = follow_in(&dir, tree, wrapped_files, patch);
    // An error is ignored, because a remaining temporary folder does no harm.
    let _ = fs::remove_dir_all(&dir);
    followed
}

fn follow_in(dir: &Path, tree: &Tree, wrapped_files: &BTreeSet<&str>, patch: &str) -> Result<String> {
    let io = |e: std::io::Error| format!("{}: {e}", dir.display());
    let write = |side: &str, path: &str, text: &str| {
        let target = dir.join(side).join(path);
        let folder = target.parent().expect("it lies in a folder");
        fs::create_dir_all(folder).and_then(|()| fs::write(&target, text)).map_err(io)
    };
    let git = |folder: &Path, args: &[&str], code: i32| {
        let output = Command::new("git").args(args).current_dir(folder).output().map_err(io)?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        if output.status.code() == Some(code) { Ok(output.stdout) } else { Err(format!("git: {said}")) }
    };
    for path in touched(patch) {
        let text = tree.text(path).ok_or_else(|| format!("{path} is not there"))?;
        write("a", path, text)?;
        write("b", path, text)?;
    }
    fs::write(dir.join("patch"), patch).map_err(io)?;
    git(&dir.join("b"), &["apply", "../patch"], 0)?;
    for path in touched(patch).filter(|path| wrapped_files.contains(path)) {
        for side in ["a", "b"] {
            let text = fs::read_to_string(dir.join(side).join(path)).map_err(io)?;
            write(side, path, &wrapped(&text))?;
        }
    }
    // Exit code 1 means that both sides differ.
    let diff = git(dir, &["diff", "--no-index", "--no-prefix", "--no-color", "a", "b"], 1)?;
    let diff = String::from_utf8(diff).map_err(|e| e.to_string())?;
    // The patches are stored without `index` lines.
    let diff = diff.split_inclusive('\n').filter(|line| !line.starts_with("index "));
    let head = patch.split("diff --git").next().unwrap_or_default();
    Ok(diff.fold(head.to_string(), |text, line| text + line))
}

/// Returns the text that wrapping must not change: the words of comments and all other lines.
fn essence(text: &str) -> Vec<&str> {
    let comments = Comments::of(text);
    let mut essence = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match comments.split(number, line) {
            Some((_, marker, text)) => {
                // The marker counts once per comment, because wrapping changes the number of lines.
                if essence.last() != Some(&marker) {
                    essence.push(marker);
                }
                let words = text.split_whitespace();
                essence.extend(words.flat_map(|word| [word, marker]));
            }
            None => essence.push(line),
        }
    }
    essence
}

/// Finds the lines of a source that are comments.
struct Comments {
    /// True for each line, from 0, on which a literal continues.
    in_literals: Vec<bool>,
}

impl Comments {
    fn of(text: &str) -> Comments {
        let mut in_literals = vec![false; text.lines().count() + 1];
        if let Ok(tokens) = text.parse::<TokenStream>() {
            mark_literals(tokens, &mut in_literals);
        }
        Comments { in_literals }
    }

    /// Returns indentation, marker and text of a line that holds only a comment.
    fn split<'t>(&self, number: usize, line: &'t str) -> Option<(usize, &'t str, &'t str)> {
        if self.in_literals.get(number).copied().unwrap_or(false) {
            return None;
        }
        let body = line.trim_start();
        let marker = ["//!", "///", "//"].into_iter().find(|marker| body.starts_with(marker))?;
        let (marker, text) = body.split_at(marker.len());
        // A line of slashes is not text.
        (!text.starts_with('/')).then_some((line.len() - body.len(), marker, text))
    }
}

fn mark_literals(tokens: TokenStream, in_literals: &mut [bool]) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => mark_literals(group.stream(), in_literals),
            TokenTree::Literal(literal) => {
                let (first, last) = (literal.span().start().line, literal.span().end().line);
                // Lines count from 1. A literal's first line is not marked, because its start is
                // code.
                in_literals[first.min(last)..last].fill(true);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Returns the numbers of comment lines that are too wide, from 1.
fn wide_lines(text: &str) -> Vec<usize> {
    let comments = Comments::of(text);
    let mut wide = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        let Some((.., text)) = comments.split(number, line) else {
            in_code = false;
            continue;
        };
        let is_fence = is_fence(text);
        let may_be_wide = in_code || is_fence || text.trim_start().starts_with('|') || text.contains("://");
        in_code ^= is_fence;
        if !may_be_wide && line.chars().count() > COLUMNS {
            wide.push(number + 1);
        }
    }
    wide
}

fn is_fence(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("```") || text.starts_with("~~~")
}

/// Returns the source with its comments wrapped.
fn wrapped(text: &str) -> String {
    let comments = Comments::of(text);
    let mut out = String::with_capacity(text.len() + text.len() / 50);
    let mut block = Block::default();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.strip_suffix('\n').unwrap_or(line);
        match comments.split(number, bare) {
            Some((indent, marker, text)) => {
                if (block.indent, block.marker) != (indent, marker) {
                    block.end(&mut out);
                    block = Block { indent, marker, lines: Vec::new() };
                }
                block.lines.push(text);
            }
            None => {
                block.end(&mut out);
                out.push_str(line);
            }
        }
    }
    block.end(&mut out);
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

/// Neighbouring comment lines of one kind.
#[derive(Default)]
struct Block<'t> {
    indent: usize,
    marker: &'t str,
    /// Text of each line after the marker, including its first space.
    lines: Vec<&'t str>,
}

impl Block<'_> {
    fn end(&mut self, out: &mut String) {
        let prefix = format!("{:width$}{}", "", self.marker, width = self.indent);
        for paragraph in paragraphs(&std::mem::take(&mut self.lines)) {
            for line in paragraph.wrapped(COLUMNS.saturating_sub(prefix.len())) {
                out.push_str(prefix.as_str());
                out.push_str(&line);
                out.push('\n');
            }
        }
    }
}

/// Lines that are wrapped together, or stay unchanged.
struct Paragraph<'t> {
    lines: Vec<&'t str>,
    is_text: bool,
}

/// Splits lines into paragraphs.
fn paragraphs<'t>(lines: &[&'t str]) -> Vec<Paragraph<'t>> {
    let mut all: Vec<Paragraph<'t>> = Vec::new();
    let mut in_code = false;
    // `open` is true if the next line can continue the paragraph before it; `indent` is the
    // indentation of that paragraph's text.
    let (mut open, mut indent) = (false, 1);
    for line in lines {
        let text = line.trim_start();
        let is_fence = is_fence(line);
        let kept = in_code || is_fence || is_kept(line) || (!open && spaces(line) >= indent + 4);
        in_code ^= is_fence;
        if kept || text.is_empty() {
            open = false;
            all.push(Paragraph { lines: vec![line], is_text: false });
            if text.is_empty() {
                continue;
            }
            indent = 1;
        } else if open && !begins_paragraph(text) {
            all.last_mut().expect("one is open").lines.push(line);
        } else {
            // A text that follows an item at its depth belongs to it; so does an indented block
            // below that.
            indent = if spaces(line) + list_marker(text) > 1 { spaces(line) + list_marker(text) } else { 1 };
            open = true;
            all.push(Paragraph { lines: vec![line], is_text: true });
        }
    }
    all
}

fn spaces(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// True for headings, tables, quotes, definitions of links, rules, and lines with columns.
fn is_kept(line: &str) -> bool {
    let text = line.trim_start();
    let label_ends = text.find(']').filter(|_| text.starts_with('['));
    let is_definition = label_ends.is_some_and(|at| text[at..].starts_with("]: "));
    let is_rule = text.len() > 2 && text.chars().all(|c| "-=*_ ".contains(c));
    let first = text.chars().next().unwrap_or(' ');
    // A list's marker may be followed by several spaces.
    let behind = &text[list_marker(text)..];
    "#|><".contains(first) || is_definition || is_rule || behind.trim_end().contains("  ")
}

/// Returns the length of the marker of a list's item with its spaces, or 0 without a marker.
fn list_marker(text: &str) -> usize {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marker = match digits {
        0 if text.starts_with(['-', '*', '+']) => 1,
        1.. if text[digits..].starts_with(['.', ')']) => digits + 1,
        _ => return 0,
    };
    let behind = text[marker..].len() - text[marker..].trim_start().len();
    if behind == 0 { 0 } else { marker + behind }
}

fn begins_paragraph(text: &str) -> bool {
    let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    list_marker(text) > 0 || LABELS.contains(&word)
}

impl Paragraph<'_> {
    fn wrapped(&self, columns: usize) -> Vec<String> {
        let as_is = || self.lines.iter().map(|line| line.to_string()).collect();
        let is_wide = |line: &&str| line.chars().count() > columns && !line.contains("://");
        let has_breaks = self.lines.iter().any(|line| line.ends_with("  ") || line.ends_with('\\'));
        if !self.is_text || has_breaks || !self.lines.iter().any(is_wide) {
            return as_is();
        }
        let first = self.lines[0];
        let marker = list_marker(first.trim_start());
        let lead = " ".repeat(spaces(first)) + &first.trim_start()[..marker];
        let below = " ".repeat(lead.len());
        let text: Vec<&str> = self.lines.iter().map(|line| line.trim()).collect();
        let text = text.join(" ")[marker..].to_string();
        let (mut lines, mut line) = (Vec::new(), lead);
        let mut is_empty = true;
        for unit in units(&text, columns.saturating_sub(below.len())) {
            let room = line.chars().count() + usize::from(!is_empty) + unit.chars().count() <= columns;
            if !is_empty && !room {
                lines.push(std::mem::replace(&mut line, below.clone()));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&unit);
            is_empty = false;
        }
        lines.push(line);
        lines
    }
}

/// Splits text into units between which a line may end.
fn units(text: &str, columns: usize) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let (mut open_code, mut open_brackets) = (false, 0usize);
    for word in text.split_whitespace() {
        let inside = open_code || open_brackets > 0;
        for c in word.chars() {
            match c {
                '`' => open_code = !open_code,
                '[' if !open_code => open_brackets += 1,
                ']' if !open_code => open_brackets = open_brackets.saturating_sub(1),
                _ => {}
            }
        }
        match units.last_mut() {
            // The length is limited, because a bracket or backquote may have no closing one.
            Some(last) if inside && last.chars().count() + 1 + word.chars().count() <= columns => {
                last.push(' ');
                last.push_str(word);
            }
            Some(last) if means_something(word) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => units.push(word.to_string()),
        }
    }
    units
}

/// True if a line that begins with this word would not be plain text, or would begin a paragraph.
fn means_something(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = digits.len() < word.len() && (digits == "." || digits == ")");
    let is_sign = ["-", "*", "+", "=", "--", "---"].contains(&word);
    let is_label = LABELS.contains(&word.trim_end_matches(':'));
    is_number || is_sign || is_label || word.starts_with(['#', '|', '>', '<']) || is_fence(word)
}

#[cfg(test)]
mod tests {
    use super::super::{Tree, said};
    use super::*;

    /// Nine words fit into a line after any of the markers here, and ten do not.
    fn words(count: usize) -> String {
        vec!["limestone"; count].join(" ")
    }

    fn is_wrapped(source: &str, want: &str) {
        let out = wrapped(source);
        assert_eq!(out, want, "\n{out}");
        assert_eq!(essence(&out), essence(source), "words are lost");
        assert_eq!(wrapped(&out), out, "a second time changes more");
        assert_eq!(wide_lines(&out), Vec::<usize>::new());
    }

    #[test]
    fn a_paragraph_with_a_wide_line_is_wrapped_with_its_neighbours() {
        let (eight, nine, ten) = (words(8), words(9), words(10));
        is_wrapped(
            &format!("//! {ten}\n//! end. More.\n//!\n//! Short\n//! lines stay.\nfn a() {{}}\n"),
            &format!("//! {nine}\n//! limestone end. More.\n//!\n//! Short\n//! lines stay.\nfn a() {{}}\n"),
        );
        is_wrapped(
            &format!("fn a() {{\n    // {ten}\n    /// {ten} {ten}\n    b()\n}}\n"),
            &format!(
                "fn a() {{\n    // {nine}\n    // limestone\n    /// {nine}\n    /// {nine}\n    \
                 /// limestone limestone\n    b()\n}}\n"
            ),
        );
        // Lines that are not too wide stay unchanged.
        let narrow = format!("// {eight}\n// {nine}\n");
        assert_eq!(wrapped(&narrow), narrow);
    }

    #[test]
    fn items_of_lists_and_labels_stay_apart() {
        let (nine, ten) = (words(9), words(10));
        is_wrapped(
            &format!(
                "/// Text:\n/// - {ten}\n///   below\n/// - short\n/// 12. {ten}\n/// lazy\nfn a() {{}}\n"
            ),
            &format!(
                "/// Text:\n/// - {nine}\n///   limestone below\n/// - short\n/// 12. {nine}\n\
                 ///     limestone lazy\nfn a() {{}}\n"
            ),
        );
        is_wrapped(
            &format!("// It is so.\n// Why: {ten}\n// Compat: short.\n// Whyever {ten}\nfn a() {{}}\n"),
            &format!(
                "// It is so.\n// Why: {nine}\n// limestone\n// Compat: short. Whyever {}\n// {}\nfn a() {{}}\n",
                words(7),
                words(3)
            ),
        );
    }

    #[test]
    fn what_is_no_running_text_stays() {
        let (ten, long) = (words(10), "x".repeat(120));
        for kept in [
            format!("//! | a | b |\n//! |---|---|\n//! | {ten} | {long} |\n"),
            format!("//! ```\n//! let a = {ten};\n//! ```\n"),
            format!("//! ```text\n//! {ten}\n//!\n//! {ten}\n//! ~~~\n"),
            format!("//! Code:\n//!\n//!     {ten}\n"),
            format!("//! - An item:\n//!\n//!       {ten}\n"),
            format!("//! # A heading {ten}\n"),
            format!("//! [`link`]: {ten}\n"),
            format!("//! name          {ten}\n"),
            format!("//! See https://example.org/{long}\n"),
            format!("//! A hard break {ten}\\\n//! more.\n"),
            format!("const A: &str = \"\n// {ten}\n\";\n"),
            format!("const A: &str = r#\"\n    //! {ten}\n\"#;\n"),
            format!("//////// {ten}\n"),
            format!("fn a() {{}} // {ten}\n"),
        ] {
            assert_eq!(wrapped(&kept), kept);
        }
        // A link alone is text, and so are lines at an item's own depth.
        is_wrapped(
            &format!("/// [`A`] of {ten} [`B`]: it\nfn a() {{}}\n"),
            &format!("/// [`A`] of {}\n/// limestone limestone [`B`]: it\nfn a() {{}}\n", words(8)),
        );
        is_wrapped(
            &format!("//! - An item.\n//!\n//!   {ten}\nfn a() {{}}\n"),
            &format!("//! - An item.\n//!\n//!   {}\n//!   limestone\nfn a() {{}}\n", words(9)),
        );
    }

    #[test]
    fn code_spans_and_links_stay_whole_and_no_line_begins_with_a_sign() {
        let nine = words(9);
        for whole in ["`let code = span;`", "[a long link](to/some.md)", "[`A::b c`]", "(`a b`,"] {
            is_wrapped(
                &format!("/// {nine} {whole} end\nfn a() {{}}\n"),
                &format!("/// {nine}\n/// {whole} end\nfn a() {{}}\n"),
            );
        }
        // Unless it would not fit into any line.
        let (code, ten) = (format!("`{}`", words(12)), words(10));
        let out = wrapped(&format!("/// {code}\n/// Not [closed {ten}\n"));
        assert_eq!(wide_lines(&out), Vec::<usize>::new(), "{out}");
        for sign in ["-", "+", "#3", "12.", "|", ">", "Why", "SAFETY:"] {
            is_wrapped(
                &format!("/// {nine} at it {sign} and more\nfn a() {{}}\n"),
                &format!("/// {nine} at\n/// it {sign} and more\nfn a() {{}}\n"),
            );
        }
    }

    #[test]
    fn wide_comments_are_found() {
        let ten = words(10);
        let wide = format!("//! Head.\n\n// {ten}\nfn a() {{}}\n");
        let files = [("crates/a/src/lib.rs", wide.as_str())];
        let told = ["crates/a/src/lib.rs:3: a comment of more than 100 columns; \
                     `cargo xtask tidy --rewrap crates/a/src/lib.rs` wraps it"];
        assert_eq!(said(check, &files), told);
    }

    #[test]
    fn only_the_chosen_files_are_written_and_patches_follow() {
        let dir = std::env::temp_dir().join(format!("xtask-rewrap-{}", std::process::id()));
        fs::create_dir_all(dir.join("a")).unwrap();
        fs::create_dir_all(dir.join("mutants/planted")).unwrap();
        let text = format!("// {}\nfn a() {{\n    b();\n    c();\n}}\n", words(10));
        let patch = format!(
            "What it plants.\n\nSuite: a\n\ndiff --git a/a/b.rs b/a/b.rs\n--- a/a/b.rs\n+++ b/a/b.rs\n\
             @@ -1,5 +1,4 @@\n // {}\n fn a() {{\n-    b();\n     c();\n }}\n",
            words(10)
        );
        let name = "mutants/planted/one.patch";
        let tree =
            Tree { root: dir.clone(), ..Tree::of(&[("a/b.rs", &text), ("c.rs", &text), (name, &patch)]) };
        rewrap(&tree, &["a/".to_string()]).unwrap();
        let written = fs::read_to_string(dir.join("a/b.rs")).unwrap();
        let (followed, other) = (fs::read_to_string(dir.join(name)).unwrap(), dir.join("c.rs").exists());
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(written, format!("// {}\n// limestone\nfn a() {{\n    b();\n    c();\n}}\n", words(9)));
        assert!(!other);
        let want = patch
            .replace("-1,5 +1,4", "-1,6 +1,5")
            .replace(&words(10), &format!("{}\n // limestone", words(9)));
        assert_eq!(followed, want);
    }
}
