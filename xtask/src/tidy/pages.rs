//! Checks the pages in Markdown: `docs/README.md` and the indexes of its folders list all of them,
//! and links within the repository lead to a file and a heading that exist.
//!
//! In: the tracked Markdown. Out: a page of `docs` that its index does not link to; a link to a
//! path or a heading that is missing.

use super::Tree;
use std::collections::BTreeSet;

const DOCS: &str = "docs/";
const INDEX: &str = "docs/README.md";

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let pages = || tree.files.iter().filter(|(path, _)| path.ends_with(".md"));
    for (path, text) in pages() {
        check_links(tree, path, text, found);
    }
    let inside = pages().filter(|(path, _)| path.starts_with(DOCS) && *path != INDEX);
    for (path, _) in inside {
        let index = index_of(tree, path);
        if !lists(tree, &index, path) {
            found.push(format!("{path}: {index} does not list it"));
        }
    }
}

/// Returns the README.md of the page's folder, or [`INDEX`] if the folder has none or the page is
/// that README.md.
fn index_of(tree: &Tree, path: &str) -> String {
    let own = format!("{}README.md", folder_of(path));
    if own != path && tree.text(&own).is_some() { own } else { INDEX.to_string() }
}

/// True if the index links to the page, or to its folder.
fn lists(tree: &Tree, index: &str, path: &str) -> bool {
    let text = tree.text(index).unwrap_or_default();
    links(text).any(|link| {
        let target = resolve(index, link.split('#').next().unwrap_or_default());
        target == path || target == folder_of(path)
    })
}

fn check_links(tree: &Tree, path: &str, text: &str, found: &mut Vec<String>) {
    for link in links(text) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.to_string() } else { resolve(path, file) };
        match tree.text(&target) {
            Some(text) if heading.is_empty() || headings(text).contains(heading) => {}
            Some(_) => found.push(format!("{path}: `{link}` names a heading that is missing")),
            None if is_folder(tree, &target) => {}
            None => found.push(format!("{path}: `{link}` leads to no file")),
        }
    }
}

fn is_folder(tree: &Tree, path: &str) -> bool {
    let inside = format!("{}/", path.trim_end_matches('/'));
    tree.files.keys().any(|file| file.starts_with(&inside))
}

/// Returns the path up to and with its last slash.
fn folder_of(path: &str) -> &str {
    &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
}

/// Returns the path from the root of a target that is relative to the file `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder_of(from).split_terminator('/').collect();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the lines outside of fenced code.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    })
}

/// Returns the targets of links, without those that name a protocol.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = lines(text).flat_map(|line| line.split("](").skip(1));
    targets.filter_map(|rest| rest.split_once(')').map(|(link, _)| link)).filter(|link| !link.contains(':'))
}

/// Returns the anchors of the headings, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = lines(text).filter(|line| line.starts_with('#'));
    titles.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::check;

    #[test]
    fn a_page_that_no_index_lists_is_found() {
        let files = [
            ("docs/README.md", "[a](a.md) [d](decisions/README.md) [f](formats/)\n"),
            ("docs/a.md", "# A\n"),
            ("docs/b.md", "# B\n"),
            ("docs/decisions/README.md", "[one](one.md)\n"),
            ("docs/decisions/one.md", ""),
            ("docs/decisions/two.md", ""),
            ("docs/formats/x.md", ""),
            ("docs/other/y.md", ""),
            ("z.md", ""),
        ];
        assert_eq!(
            said(check, &files),
            [
                "docs/b.md: docs/README.md does not list it",
                "docs/decisions/two.md: docs/decisions/README.md does not list it",
                "docs/other/y.md: docs/README.md does not list it",
            ]
        );
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_found() {
        let here = "# `One` thing, and more\n\
                    [self](#one-thing-and-more) [up](../src/x.rs) [folder](../src) [web](https://x.org/y.md)\n\
                    [gone](gone.md) [b](./b.md#b_c) [no](b.md#no) [own](#own)\n\
                    ```\n# code\ncalls[0](gone.rs)\n```\n[code](#code)\n";
        let files = [
            ("docs/README.md", "[a](a.md#one-thing-and-more) [b](b.md)"),
            ("docs/a.md", here),
            ("docs/b.md", "## B_c\n"),
            ("src/x.rs", ""),
        ];
        assert_eq!(
            said(check, &files),
            [
                "docs/a.md: `gone.md` leads to no file",
                "docs/a.md: `b.md#no` names a heading that is missing",
                "docs/a.md: `#own` names a heading that is missing",
                "docs/a.md: `#code` names a heading that is missing",
            ]
        );
    }
}
