//! `cargo xtask tidy --same-code BASE` checks that a change of comments changes no code.
//!
//! In: the sources of the commit BASE and of the working tree. Out: each source whose tokens
//! differ, with the line of the first difference. Comments, attributes `doc` and the layout of
//! lines are ignored; the text of a `cfg_attr` is not. A source that only one side has differs.

use super::{Tree, git};
use crate::run::Result;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::Path;

/// Compares the working tree with a commit.
pub(crate) fn run(root: &Path, base: &str) -> Result {
    let tree = Tree::read(root)?;
    let before = sources_of(root, base)?;
    let now: BTreeSet<&str> = tree.sources().map(|(path, _)| path).collect();
    let mut differ = Vec::new();
    for path in before.iter().map(String::as_str).chain(now.iter().copied()).collect::<BTreeSet<_>>() {
        if !before.contains(path) || !now.contains(path) {
            differ.push(format!("{path}: only one side has it"));
            continue;
        }
        let old = git(root, &["show", &format!("{base}:{path}")])?;
        let new = tree.text(path).unwrap_or_default();
        if old != new {
            differ.extend(difference(&old, new)?.map(|line| format!("{path}:{line}: the code differs")));
        }
    }
    if differ.is_empty() {
        println!("tidy: the code of {} sources is that of {base}", now.len());
        return Ok(());
    }
    Err(format!("{}\ntidy: {} sources differ from {base}", differ.join("\n"), differ.len()))
}

fn sources_of(root: &Path, base: &str) -> Result<BTreeSet<String>> {
    let names = git(root, &["ls-tree", "-r", "--name-only", base])?;
    Ok(names.lines().filter(|path| path.ends_with(".rs")).map(str::to_string).collect())
}

/// Returns the line of `new` at which the tokens of two sources first differ.
fn difference(old: &str, new: &str) -> Result<Option<usize>> {
    let (old, new) = (tokens_of(old)?, tokens_of(new)?);
    let same = old.iter().zip(&new).take_while(|((old, _), (new, _))| old == new).count();
    if same == old.len() && same == new.len() {
        return Ok(None);
    }
    let line = new.get(same).or(new.last()).map_or(1, |(_, line)| *line);
    Ok(Some(line))
}

/// Returns the tokens of a source, each with its line.
fn tokens_of(text: &str) -> Result<Vec<(String, usize)>> {
    let stream: TokenStream = text.parse().map_err(|e| format!("a source cannot be read: {e}"))?;
    let mut tokens = Vec::new();
    gather(stream, &mut tokens);
    Ok(tokens)
}

fn gather(stream: TokenStream, tokens: &mut Vec<(String, usize)>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut rest = &trees[..];
    while let Some((tree, behind)) = rest.split_first() {
        if let Some(behind) = behind_documentation(rest) {
            rest = behind;
            continue;
        }
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push((open.to_string(), line));
                gather(group.stream(), tokens);
                tokens.push((close.to_string(), group.span_close().start().line));
            }
            TokenTree::Punct(punct) => {
                // `= =` and `==` are different code.
                let joint = if punct.spacing() == Spacing::Joint { "joint " } else { "" };
                tokens.push((format!("{joint}{punct}"), line));
            }
            other => tokens.push((other.to_string(), line)),
        }
        rest = behind;
    }
}

/// Returns the tokens after an attribute `doc`, or None if they do not begin with one.
fn behind_documentation(trees: &[TokenTree]) -> Option<&[TokenTree]> {
    let is = |tree: Option<&TokenTree>, sign: char| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == sign);
    if !is(trees.first(), '#') {
        return None;
    }
    let group = if is(trees.get(1), '!') { 2 } else { 1 };
    let Some(TokenTree::Group(attribute)) = trees.get(group) else { return None };
    let mut inside = attribute.stream().into_iter();
    let named = matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc");
    // `doc(hidden)` and `doc(alias = "...")` are code.
    let documentation = named && matches!(inside.next(), Some(TokenTree::Punct(p)) if p.as_char() == '=');
    documentation.then(|| &trees[group + 1..])
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn comments_and_layout_are_no_code() {
        let old = "//! Head.\n/// Text.\nfn a(x: u8) -> u8 { x == 1 /* c */; x }\n";
        let new = "//! Another.\n\n/// More\n/// text.\n#[doc = \"and more\"]\nfn a(\n    x: u8\n) -> u8 {\n    // Said.\n    x == 1;\n    x\n}\n";
        assert_eq!(difference(old, new), Ok(None));
    }

    #[test]
    fn code_that_differs_is_found_at_its_line() {
        let old = "fn a() -> &'static str {\n    \"one\"\n}\n";
        let cases = [
            ("fn a() -> &'static str {\n    \"two\"\n}\n", 2),
            ("fn b() -> &'static str {\n    \"one\"\n}\n", 1),
            ("#[doc(hidden)]\nfn a() -> &'static str {\n    \"one\"\n}\n", 1),
            ("fn a() -> &'static str {\n    \"one\"\n}\nfn b() {}\n", 4),
            ("", 1),
        ];
        for (new, line) in cases {
            assert_eq!(difference(old, new), Ok(Some(line)), "{new}");
        }
        assert_eq!(difference("fn a() { b == c }", "fn a() { b = = c }"), Ok(Some(1)));
        assert!(difference(old, "fn a( {").is_err());
    }
}
