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
    /// The words behind it, one at least.
    pub words: Vec<Vec<u8>>,
}

impl ConfigLine {
    /// The value: the words, joined by spaces.
    pub fn value(&self) -> Vec<u8> {
        self.words.join(&b' ')
    }
}

/// The lines of a text, without their ends.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = text.split_inclusive(|byte| *byte == b'\n');
    whole
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// The words of a line; `None` if it has none.
///
/// # Errors
/// A quote is not closed.
fn words(line: &[u8]) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
    if line.trim_ascii_start().starts_with(b"#") {
        return Ok(None);
    }
    let words = split_words(line).ok_or("unbalanced quotes")?;
    Ok(Some(words).filter(|words| !words.is_empty()))
}

/// Reads the lines of a file of settings.
///
/// # Errors
/// A line has a name without a value, or a quote that is not closed; the text has its number.
pub fn parse_config(text: &[u8]) -> Result<Vec<ConfigLine>, String> {
    let mut found = Vec::new();
    for (at, line) in lines(text).enumerate() {
        let number = at + 1;
        let wrong = |why: &str| format!("line {number}: {why}");
        let Some(mut words) = words(line).map_err(wrong)? else { continue };
        let name = String::from_utf8_lossy(&words.remove(0)).to_ascii_lowercase();
        if words.is_empty() {
            return Err(wrong(&format!("'{name}' has no value")));
        }
        found.push(ConfigLine { number, name, words });
    }
    Ok(found)
}

/// A value as a file has it: in quotes if a word of it is empty or has other bytes than printable
/// ones.
fn quoted(value: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    let has_plain_words =
        value.split(|byte| *byte == b' ').all(|word| !word.is_empty() && word.iter().all(is_plain));
    let mut text = "\"".to_owned();
    for byte in value {
        match byte {
            _ if has_plain_words => text.push(char::from(*byte)),
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                let _never_fails = write!(text, "\\x{byte:02x}");
            }
        }
    }
    match has_plain_words {
        true => text.split_off(1),
        false => text + "\"",
    }
}

/// Puts settings into the text of a file: lines of settings get the values of now, settings that
/// are not there and differ from their defaults are added, and users are written anew. Comments and
/// other lines stay. Of each user the words that follow `user` are given.
pub(crate) fn rewritten(
    text: &[u8],
    now: &[(&'static str, String)],
    defaults: &[(&'static str, String)],
    users: &[Vec<Vec<u8>>],
) -> Vec<u8> {
    let (mut result, mut seen) = (Vec::new(), BTreeSet::new());
    let setting = |name: &str, value: &str| format!("{name} {}\n", quoted(value.as_bytes())).into_bytes();
    for line in lines(text) {
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
                    result.extend(setting(known, value));
                }
            }
            None => {
                result.extend_from_slice(line);
                result.push(b'\n');
            }
        }
    }
    for (name, value) in now {
        let is_default = defaults.iter().any(|default| default.0 == *name && default.1 == *value);
        if !is_default && seen.insert(name) {
            result.extend(setting(name, value));
        }
    }
    for user in users {
        result.extend_from_slice(b"user");
        for word in user {
            result.push(b' ');
            result.extend_from_slice(quoted(word).as_bytes());
        }
        result.push(b'\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_and_values() {
        let lines =
            parse_config(b"# a\n\n  Timeout 5\nrequirepass \"a b\\\"\"\r\nlimit pubsub 1 2 3\n").unwrap();
        let all: Vec<_> = lines.iter().map(|line| (line.number, &*line.name, line.value())).collect();
        let expected: [(usize, &str, &[u8]); 3] =
            [(3, "timeout", b"5"), (4, "requirepass", b"a b\""), (5, "limit", b"pubsub 1 2 3")];
        assert_eq!(all, expected.map(|(number, name, value)| (number, name, value.to_vec())));
        for (text, why) in [("a", "line 1: 'a' has no value"), ("\nb \"c", "line 2: unbalanced quotes")] {
            assert_eq!(parse_config(text.as_bytes()), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_rewritten_file_keeps_what_is_not_a_setting() {
        let now =
            [("a", "2".to_owned()), ("b", "x y\"".to_owned()), ("c", "0".to_owned()), ("d", String::new())];
        let defaults = [("a", "1".to_owned()), ("c", "0".to_owned()), ("d", String::new())];
        let text = b"# \xff first\nA 1\nother 5\r\na 7\nuser me on\nd x";
        let user: [&[u8]; 4] = [b"you\"", b"off", b"~\xff'#", b""];
        let users = [user.map(<[u8]>::to_vec).to_vec()];
        let result = rewritten(text, &now, &defaults, &users);
        let expected =
            b"# \xff first\na 2\nother 5\nd \"\"\nb \"x y\\\"\"\nuser \"you\\\"\" off \"~\\xff'#\" ";
        assert_eq!(&result[..expected.len()], expected);
        let lines = parse_config(&result).unwrap();
        let values: Vec<_> = lines.iter().map(ConfigLine::value).collect();
        assert_eq!(values[..4], [&b"2"[..], b"5", b"", b"x y\""]);
        assert_eq!(lines[4].words, users[0]);
    }
}
