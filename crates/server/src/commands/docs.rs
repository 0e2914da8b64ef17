//! COMMAND DOCS: the summary of each command, and the grammar of its arguments.
//!
//! The table is the text `docs.txt`, a line for each command: name, first version of Redis that has
//! it, group, complexity, summary and arguments. An argument is
//!
//! | text | argument |
//! |---|---|
//! | `name`, `name:type` | a string, or one of another type; `key` is a key |
//! | `WORD`, `WORD=argument` | a word, alone or before an argument |
//! | `[argument]` | one that may be missing |
//! | `(one\|other)`, `[one\|other]` | one of several |
//! | `{first second}` | several in a row |
//! | `argument...` | one or more of them |

use super::Call;
use super::containers;
use super::table::{Spec, TABLE, find};
use crate::resp::Encoder;
use std::collections::HashMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("docs.txt");

/// An argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Argument {
    name: String,
    kind: &'static str,
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    parts: Vec<Argument>,
}

/// A command's line.
struct Docs {
    since: &'static str,
    group: &'static str,
    complexity: &'static str,
    summary: &'static str,
    arguments: Vec<Argument>,
}

static DOCS: LazyLock<HashMap<&str, Docs>> = LazyLock::new(|| TEXT.lines().filter_map(parse_line).collect());

fn parse_line(line: &'static str) -> Option<(&'static str, Docs)> {
    let mut parts = line.split(" ; ");
    let mut next = || parts.next();
    let (name, since, group, complexity, summary) = (next()?, next()?, next()?, next()?, next()?);
    let mut rest = next().unwrap_or_default();
    Some((name, Docs { since, group, complexity, summary, arguments: sequence(&mut rest) }))
}

/// Arguments up to a bracket that closes, a bar or the end.
fn sequence(text: &mut &str) -> Vec<Argument> {
    let mut found = Vec::new();
    loop {
        *text = text.trim_start_matches(' ');
        if text.is_empty() || text.starts_with([']', ')', '}', '|']) {
            return found;
        }
        found.push(argument(text));
    }
}

/// Sequences between bars, up to the bracket that closes, which is taken too.
fn alternatives(text: &mut &str) -> Argument {
    let mut all = Vec::new();
    loop {
        *text = &text[1..];
        all.push(row(sequence(text)));
        if !text.starts_with('|') {
            break;
        }
    }
    *text = text.get(1..).unwrap_or_default();
    match all.len() {
        1 => all.remove(0),
        _ => of_parts("oneof", all),
    }
}

/// A row of arguments as one.
fn row(mut arguments: Vec<Argument>) -> Argument {
    match arguments.len() {
        1 => arguments.remove(0),
        _ => of_parts("block", arguments),
    }
}

/// An argument of parts, with a name made of theirs.
fn of_parts(kind: &'static str, parts: Vec<Argument>) -> Argument {
    let name = parts.iter().map(|part| &*part.name).collect::<Vec<_>>().join("-");
    Argument { name, kind, parts, ..Argument::default() }
}

fn argument(text: &mut &str) -> Argument {
    let mut found = match text.chars().next() {
        Some('[') => Argument { is_optional: true, ..alternatives(text) },
        Some('(' | '{') => alternatives(text),
        _ => word(text),
    };
    if let Some(rest) = text.strip_prefix("...") {
        *text = rest;
        found.is_multiple = true;
    }
    found
}

/// `name`, `name:type`, `WORD` or `WORD=argument`.
fn word(text: &mut &str) -> Argument {
    let end = text.find([' ', ']', ')', '}', '|', '=', '[', '(', '{']).unwrap_or(text.len());
    // Marks of approximation and numbers of entries are words of one sign.
    let end = if text.starts_with(['=', '~', '*']) { 1 } else { end.max(1) };
    let end = text[..end].find("...").unwrap_or(end);
    let (word, rest) = text.split_at(end);
    *text = rest;
    let is_token = !word.bytes().any(|byte| byte.is_ascii_lowercase());
    if is_token && let Some(rest) = text.strip_prefix('=') {
        *text = rest;
        return Argument { token: Some(word.to_owned()), ..argument(text) };
    }
    if is_token {
        let (name, token) = (word.to_ascii_lowercase(), Some(word.to_owned()));
        return Argument { name, kind: "pure-token", token, ..Argument::default() };
    }
    let (name, kind) = word.split_once(':').unwrap_or((word, if word == "key" { "key" } else { "string" }));
    let known = ["key", "integer", "double", "pattern", "unix-time"];
    let kind = known.into_iter().find(|of| *of == kind).unwrap_or("string");
    Argument { name: name.to_owned(), kind, ..Argument::default() }
}

/// DOCS: a map of the commands that are named, or of all. Names without a command are left out.
pub(super) fn docs(call: &mut Call<'_>) {
    let names = &call.args[2..];
    let chosen: Vec<(&Spec, Option<String>)> = match names.is_empty() {
        true => TABLE.iter().map(|spec| (spec, None)).collect(),
        false => names.iter().filter_map(|name| chosen(name)).collect(),
    };
    call.out.map(chosen.len());
    for (spec, sub) in chosen {
        match sub {
            None => tell(call.out, spec),
            Some(sub) => tell_sub(call.out, spec, &sub),
        }
    }
}

/// The command of a name, and the subcommand if it is one.
fn chosen(name: &[u8]) -> Option<(&'static Spec, Option<String>)> {
    match find(name) {
        Some(spec) => Some((spec, None)),
        None => containers::find_sub(name).map(|(spec, sub)| (spec, Some(sub.0.to_owned()))),
    }
}

fn tell(out: &mut Encoder, spec: &Spec) {
    out.bulk(spec.name);
    let subs = containers::subcommands(spec.id);
    let Some(docs) = DOCS.get(spec.name) else {
        out.map(0);
        return;
    };
    out.map(4 + usize::from(!docs.arguments.is_empty()) + usize::from(!subs.is_empty()));
    let texts = [
        ("summary", docs.summary),
        ("since", docs.since),
        ("group", docs.group),
        ("complexity", docs.complexity),
    ];
    for (name, text) in texts {
        out.bulk(name);
        out.bulk(text);
    }
    if !docs.arguments.is_empty() {
        out.bulk("arguments");
        tell_arguments(out, &docs.arguments);
    }
    if !subs.is_empty() {
        out.bulk("subcommands");
        out.map(subs.len());
        subs.iter().for_each(|(name, ..)| tell_sub(out, spec, name));
    }
}

/// A subcommand: the sentence of HELP.
fn tell_sub(out: &mut Encoder, spec: &Spec, sub: &str) {
    let subs = containers::subcommands(spec.id);
    let summary = subs.iter().find(|(name, ..)| *name == sub).map_or("", |(.., sentence)| *sentence);
    out.bulk(format!("{}|{sub}", spec.name));
    out.map(2);
    let group = DOCS.get(spec.name).map_or("", |docs| docs.group);
    for (name, text) in [("summary", summary), ("group", group)] {
        out.bulk(name);
        out.bulk(text);
    }
}

fn tell_arguments(out: &mut Encoder, arguments: &[Argument]) {
    out.array(arguments.len());
    for argument in arguments {
        let mut flags = Vec::new();
        if argument.is_optional {
            flags.push("optional");
        }
        if argument.is_multiple {
            flags.push("multiple");
        }
        let optional = [argument.token.is_some(), !flags.is_empty(), !argument.parts.is_empty()];
        out.map(2 + optional.into_iter().filter(|has| *has).count());
        let texts = [("name", Some(&*argument.name)), ("type", Some(argument.kind))];
        for (name, text) in texts.into_iter().chain([("token", argument.token.as_deref())]) {
            if let Some(text) = text {
                out.bulk(name);
                out.bulk(text);
            }
        }
        if !flags.is_empty() {
            out.bulk("flags");
            out.array(flags.len());
            flags.into_iter().for_each(|flag| out.simple(flag));
        }
        if !argument.parts.is_empty() {
            out.bulk("arguments");
            tell_arguments(out, &argument.parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The grammar of arguments again.
    fn shown(arguments: &[Argument]) -> String {
        let one = |it: &Argument| {
            let inner = it.parts.iter().map(|part| shown(std::slice::from_ref(part)));
            let inner = match it.kind {
                "oneof" => format!("({})", inner.collect::<Vec<_>>().join("|")),
                "block" => format!("{{{}}}", inner.collect::<Vec<_>>().join(" ")),
                "pure-token" => String::new(),
                kind => format!("{}:{kind}", it.name),
            };
            let token = it.token.as_ref().map(|token| format!("<{token}>")).unwrap_or_default();
            let text = format!("{token}{inner}{}", if it.is_multiple { "..." } else { "" });
            if it.is_optional { format!("[{text}]") } else { text }
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_have_a_grammar() {
        let of = |name: &str| shown(&DOCS[name].arguments);
        assert_eq!(of("mset"), "{key:key value:string}...");
        assert_eq!(of("expire"), "key:key seconds:integer [(<NX>|<XX>|<GT>|<LT>)]");
        assert_eq!(of("bitpos"), "key:key bit:integer [{start:integer [{end:integer [(<BYTE>|<BIT>)]}]}]");
        assert_eq!(of("lpos").split(' ').next_back(), Some("[<MAXLEN>len:integer]"));
        assert_eq!(of("pfmerge"), "destkey:key [sourcekey:key...]");
        assert_eq!(
            of("xtrim"),
            "key:key (<MAXLEN>|<MINID>) [(<=>|<~>)] threshold:string [<LIMIT>count:integer]"
        );
        assert_eq!(
            of("zinter"),
            "numkeys:integer key:key... [<WEIGHTS>weight:integer...] [<AGGREGATE>(<SUM>|<MIN>|<MAX>)] [<WITHSCORES>]"
        );
    }

    #[test]
    fn every_command_has_a_line_and_every_line_is_whole() {
        assert_eq!(DOCS.len(), TEXT.lines().count());
        for spec in TABLE {
            assert!(DOCS.contains_key(spec.name), "{}", spec.name);
        }
        for line in TEXT.lines() {
            let mut rest = line.split(" ; ").nth(5).unwrap_or_default();
            sequence(&mut rest);
            assert_eq!(rest, "", "{line}");
        }
    }
}
