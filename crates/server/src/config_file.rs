//! The file of settings: lines `name value ...`, as Redis has them.
//!
//! A line is a comment behind `#`, empty, or a name and values, of which each may be in quotes. A
//! line `user NAME RULE ...` is a user of ACL.

use crate::resp::split_words;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A line of a file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLine {
    /// Its number, from 1.
    pub number: usize,
    /// Name of the setting, in lower case.
    pub name: String,
    /// The values, joined by spaces.
    pub value: Vec<u8>,
}

/// The words of a line; `None` if it has none.
///
/// # Errors
/// A quote is not closed.
fn words(line: &str) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
    if line.trim_start().starts_with('#') {
        return Ok(None);
    }
    let words = split_words(line.as_bytes()).ok_or("unbalanced quotes")?;
    Ok(Some(words).filter(|words| !words.is_empty()))
}

/// Reads the lines of a file of settings.
///
/// # Errors
/// A line has a name without a value, or a quote that is not closed; the text has its number.
pub fn parse_config(text: &str) -> Result<Vec<ConfigLine>, String> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let wrong = |why: &str| format!("line {number}: {why}");
        let Some(words) = words(line).map_err(wrong)? else { continue };
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        if words.len() == 1 {
            return Err(wrong(&format!("'{name}' has no value")));
        }
        lines.push(ConfigLine { number, name, value: words[1..].join(&b' ') });
    }
    Ok(lines)
}

/// A value as a file has it: in quotes if it is empty or has other bytes than printable ones.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !value.is_empty() && value.split(' ').all(|word| !word.is_empty() && word.bytes().all(is_plain)) {
        return value.to_owned();
    }
    let mut text = "\"".to_owned();
    for byte in value.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _never_fails = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text + "\""
}

/// Puts settings into the text of a file: lines of settings get the values of now, settings that
/// are not there and differ from their defaults are added, and users are written anew. Comments and
/// other lines stay.
pub(crate) fn rewritten(
    text: &str,
    now: &[(&'static str, String)],
    defaults: &[(&'static str, String)],
    users: &[String],
) -> String {
    let (mut result, mut seen) = (String::new(), BTreeSet::new());
    for line in text.lines() {
        let name = match words(line) {
            Ok(Some(words)) => String::from_utf8_lossy(&words[0]).to_ascii_lowercase(),
            _ => String::new(),
        };
        if name == "user" {
            continue;
        }
        match now.iter().find(|(known, _)| *known == name) {
            Some((known, value)) => {
                if seen.insert(*known) {
                    let _never_fails = writeln!(result, "{known} {}", quoted(value));
                }
            }
            None => {
                result += line;
                result.push('\n');
            }
        }
    }
    for (name, value) in now {
        let is_default = defaults.iter().any(|default| default.0 == *name && default.1 == *value);
        if !is_default && seen.insert(name) {
            let _never_fails = writeln!(result, "{name} {}", quoted(value));
        }
    }
    users.iter().for_each(|user| result.extend([user, "\n"]));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_and_values() {
        let lines =
            parse_config("# a\n\n  Timeout 5\nrequirepass \"a b\\\"\"\nlimit pubsub 1 2 3\n").unwrap();
        let all: Vec<_> = lines.iter().map(|line| (line.number, &*line.name, &line.value[..])).collect();
        let expected: [(usize, &str, &[u8]); 3] =
            [(3, "timeout", b"5"), (4, "requirepass", b"a b\""), (5, "limit", b"pubsub 1 2 3")];
        assert_eq!(all, expected);
        for (text, why) in [("a", "line 1: 'a' has no value"), ("\nb \"c", "line 2: unbalanced quotes")] {
            assert_eq!(parse_config(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_rewritten_file_keeps_what_is_not_a_setting() {
        let now =
            [("a", "2".to_owned()), ("b", "x y\"".to_owned()), ("c", "0".to_owned()), ("d", String::new())];
        let defaults = [("a", "1".to_owned()), ("c", "0".to_owned()), ("d", String::new())];
        let text = "# first\nA 1\nother 5\na 7\nuser me on\nd x\n";
        let result = rewritten(text, &now, &defaults, &["user you off".to_owned()]);
        assert_eq!(result, "# first\na 2\nother 5\nd \"\"\nb \"x y\\\"\"\nuser you off\n");
        let values: Vec<_> = parse_config(&result).unwrap().into_iter().map(|line| line.value).collect();
        assert_eq!(values[..4], [&b"2"[..], b"5", b"", b"x y\""]);
    }
}
