//! ACL LOAD and ACL SAVE: users in a file, each a line as ACL LIST has them.
//!
//! Files are read and written on a thread for blocking work, because they may be on a slow device.

use super::super::{QUOTED_AT_MOST, quoted};
use super::rules::{Fault, apply, joined, line};
use crate::files::{read_whole, replace};
use crate::server::{Rights, Server};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads the users of a file's text.
///
/// # Errors
/// All that is wrong in it, in a line.
pub(super) fn parse(
    text: &[u8],
    path: &str,
    all_channels: bool,
) -> Result<BTreeMap<Vec<u8>, Rights>, String> {
    let (mut users, mut errors) = (BTreeMap::new(), String::new());
    for (at, text) in text.split(|byte| *byte == b'\n').enumerate() {
        let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
        let place = format!("{path}:{}", at + 1);
        let [first, name, words @ ..] = &words[..] else {
            if !words.is_empty() {
                errors += &format!("{place} should start with user keyword followed by the username. ");
            }
            continue;
        };
        if first != b"user" {
            errors += &format!("{place} should start with user keyword followed by the username. ");
            continue;
        }
        if users.contains_key(name) {
            let name = quoted(name, QUOTED_AT_MOST);
            errors += &format!("WARNING: Duplicate user '{name}' found on line {}. ", at + 1);
            continue;
        }
        match rights(words, all_channels) {
            Ok(rights) => {
                users.insert(name.clone(), rights);
            }
            Err(why) => errors += &format!("{place}: {why}. "),
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors += "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    Err(errors)
}

/// Rights that words make. The text of an error has no word that may be a password.
fn rights(words: &[Vec<u8>], all_channels: bool) -> Result<Rights, String> {
    let mut rights = Rights::new(all_channels);
    let rules = joined(words).map_err(|_| "Unmatched parenthesis in selector definition".to_owned())?;
    for rule in rules {
        apply(&mut rights, &rule, all_channels).map_err(|fault| match fault {
            Fault::Unknown => {
                let rule = quoted(&rule, QUOTED_AT_MOST);
                format!("Error in applying operation '{rule}': {}", fault.text())
            }
            fault => fault.text().to_owned(),
        })?;
    }
    Ok(rights)
}

/// Reads the file of users.
///
/// # Errors
/// It cannot be read, or something in it is wrong.
pub(super) async fn read(server: &Server, path: &Path) -> Result<BTreeMap<Vec<u8>, Rights>, String> {
    let (shown, path) = (path.display().to_string(), path.to_owned());
    let text = server.env().run_blocking(move |env| read_whole(&**env.fs(), &path)).await;
    let text = text.map_err(|error| format!("Error loading ACLs, opening file '{shown}': {error}"))?;
    parse(&text, &shown, server.settings().allows_channels())
}

/// Writes all users into the file, which is replaced as a whole.
///
/// # Errors
/// It cannot be written; the file of before is kept.
pub(super) async fn write(server: &Server, path: &Path) -> karstdb::io::Result<()> {
    let mut text = Vec::new();
    for user in server.users().all() {
        text.extend(line(&user.name, &user.rights()));
        text.push(b'\n');
    }
    let path = path.to_owned();
    server.env().run_blocking(move |env| replace(&**env.fs(), &path, &text)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_user() {
        let text = b"user me on nopass ~a* +get (%R~b +@read)\r\n\n  user default on >pw ~* &* +@all\n";
        let users = parse(text, "f", false).unwrap();
        assert_eq!(users.len(), 2);
        assert_eq!(
            String::from_utf8(line(b"me", &users[&b"me"[..]])).unwrap(),
            "user me on nopass sanitize-payload ~a* resetchannels -@all +get (%R~b resetchannels -@all +@read)"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let end = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
        let cases = [
            ("me on", "f:1 should start with user keyword followed by the username. "),
            ("\nuser", "f:2 should start with user keyword followed by the username. "),
            ("user a\nuser a", "WARNING: Duplicate user 'a' found on line 2. "),
            (
                "user a +none",
                "f:1: Error in applying operation '+none': Unknown command or category name in ACL. ",
            ),
            ("user a pw", "f:1: Syntax error. "),
            ("user a (~b", "f:1: Unmatched parenthesis in selector definition. "),
        ];
        for (text, errors) in cases {
            assert_eq!(parse(text.as_bytes(), "f", false), Err(format!("{errors}{end}")), "{text}");
        }
    }
}
