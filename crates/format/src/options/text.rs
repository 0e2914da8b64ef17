//! The syntax of option strings: `name=value` pairs with semicolons between them, braces around
//! nested ones, and the escapes of strings.
//!
//! Compat: a value that starts with a brace ends with the matching brace, and its inside is not
//! interpreted. Braces around a whole option string are removed. Nested values are split by the
//! caller, one level a call, so their depth costs no stack.
use super::error::{OptionError, OptionErrorKind};
use std::collections::HashSet;

fn syntax(what: impl Into<String>) -> OptionError {
    OptionError::new(OptionErrorKind::Syntax, "", what)
}

/// Splits an option string into names and values. Values keep their braces.
///
/// Compat: of several values of one name the last counts, and the others are not interpreted.
///
/// # Errors
/// If a pair has no `=`, no name, or braces that do not match.
pub fn split(options: &str) -> Result<Vec<(&str, &str)>, OptionError> {
    let mut rest = strip_braces(options);
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let Some(at) = rest.find(['=', '{', '}', ';']).filter(|at| rest.as_bytes()[*at] == b'=') else {
            let shown: String = rest.chars().take(40).collect();
            return Err(syntax(format!("expected name=value at {shown:?}")));
        };
        let name = rest[..at].trim();
        if name.is_empty() {
            return Err(syntax("a value has no name"));
        }
        let (value, behind) = take_value(rest[at + 1..].trim_start())
            .ok_or_else(|| syntax(format!("the braces of {name} do not match")))?;
        pairs.push((name, value));
        rest = behind.trim_start();
    }
    let mut later = HashSet::new();
    let mut counts: Vec<bool> = pairs.iter().rev().map(|(name, _)| later.insert(*name)).collect();
    pairs.retain(|_| counts.pop() == Some(true));
    Ok(pairs)
}

/// Returns the fields of `value` that are different or absent in `other`; `None` if either text is
/// not a nested value.
pub(super) fn differing_fields<'v>(value: &'v str, other: &str) -> Option<Vec<(&'v str, &'v str)>> {
    fn fields(value: &str) -> Option<Vec<(&str, &str)>> {
        split(value.strip_prefix('{')?.strip_suffix('}')?).ok()
    }
    let (mut fields_here, others) = (fields(value)?, fields(other)?);
    fields_here.retain(|field| !others.contains(field));
    Some(fields_here)
}

/// Returns the value at the start of `text`, and the text behind its semicolon.
fn take_value(text: &str) -> Option<(&str, &str)> {
    let end =
        if text.starts_with('{') { matching_brace(text)? + 1 } else { text.find(';').unwrap_or(text.len()) };
    let (value, behind) = text.split_at(end);
    let behind = behind.trim_start();
    match behind.strip_prefix(';') {
        Some(behind) => Some((value.trim(), behind)),
        None if behind.is_empty() => Some((value.trim(), behind)),
        None => None,
    }
}

/// Returns the offset of the brace that matches the one at the start of `text`.
fn matching_brace(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Removes one pair of braces that encloses the whole text, if any.
pub fn strip_layer(text: &str) -> &str {
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    inside.filter(|_| matching_brace(text) == Some(text.len() - 1)).unwrap_or(text)
}

/// Removes the braces that enclose the whole text, if any.
pub fn strip_braces(text: &str) -> &str {
    // Limited because each layer costs a walk over the text, and real texts do not nest deeper.
    const MOST_LAYERS: usize = 8;
    let mut text = text.trim();
    for _ in 0..MOST_LAYERS {
        let inside = strip_layer(text);
        if inside.len() == text.len() {
            break;
        }
        text = inside.trim();
    }
    text
}

/// Splits a list at the colons outside of braces. An empty text is an empty list.
pub fn split_list(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        items.push(text[start..].trim());
    }
    items
}

/// Escapes a string for an OPTIONS file.
pub fn escape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' | '#' | ':' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Returns the string that an escaped text represents.
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some(c) => out.push(c),
            None => {}
        }
    }
    out
}
