//! ACL LOAD and ACL SAVE: users in a file, each a line as ACL LIST has them.
//!
//! Files are read and written on a thread for blocking work, because they may be on a slow device.

use super::super::{QUOTED_AT_MOST, quoted};
use super::rules::{Fault, apply, is_name, joined, line};
use crate::files::{read_whole, replace};
use crate::server::{Rights, Server};
use karstdb::io::Env;
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
    let mut made = Made::default();
    for (at, text) in text.split(|byte| *byte == b'\n').enumerate() {
        let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
        match &words[..] {
            [] => {}
            [first, words @ ..] if first == b"user" => made.add(path, at + 1, words, all_channels),
            _ => made.refuse_start(path, at + 1),
        }
    }
    made.end()
}

/// Makes users of words, of each those that follow `user`.
///
/// # Errors
/// All that is wrong in them.
pub(super) fn of_words(
    lines: &[Vec<Vec<u8>>],
    all_channels: bool,
) -> Result<BTreeMap<Vec<u8>, Rights>, String> {
    let mut made = Made::default();
    for (at, words) in lines.iter().enumerate() {
        made.add("users", at + 1, words, all_channels);
    }
    made.end()
}

/// Users of the lines so far, and what was wrong in these.
#[derive(Default)]
struct Made {
    users: BTreeMap<Vec<u8>, Rights>,
    errors: String,
}

impl Made {
    /// Adds the user of a line whose words follow `user`.
    fn add(&mut self, path: &str, line: usize, words: &[Vec<u8>], all_channels: bool) {
        let [name, words @ ..] = words else { return self.refuse_start(path, line) };
        if !is_name(name) {
            self.errors += &format!("{path}:{line}: Usernames can't contain spaces or null characters. ");
            return;
        }
        if self.users.contains_key(name) {
            let name = quoted(name, QUOTED_AT_MOST);
            self.errors += &format!("WARNING: Duplicate user '{name}' found on line {line}. ");
            return;
        }
        match rights(words, all_channels) {
            Ok(rights) => {
                self.users.insert(name.clone(), rights);
            }
            Err(why) => self.errors += &format!("{path}:{line}: {why}. "),
        }
    }

    fn refuse_start(&mut self, path: &str, line: usize) {
        let why = "should start with user keyword followed by the username. ";
        self.errors += &format!("{path}:{line} {why}");
    }

    fn end(mut self) -> Result<BTreeMap<Vec<u8>, Rights>, String> {
        if self.errors.is_empty() {
            return Ok(self.users);
        }
        self.errors +=
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
        Err(self.errors)
    }
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
    let turn = server.files_turn().await;
    let mut text = Vec::new();
    for user in server.users().all() {
        text.extend(line(&user.name, &user.rights()));
        text.push(b'\n');
    }
    let path = path.to_owned();
    let write = move |env: &Env| {
        let _turn = turn;
        replace(env, &path, &text)
    };
    server.env().run_blocking(write).await
}

#[cfg(test)]
mod tests {
    use super::super::rules::words_of;
    use super::*;
    use crate::config_file::{parse_config, rewritten};
    use proptest::prelude::*;

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

    /// Words that a client may give to SETUSER; those that are refused are left out.
    fn rule() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            6 => prop::sample::select(&b"ab*?#\"'\\()|+~&%\x0b\t \r\x7f\xc3\xa9\xff"[..]),
            1 => any::<u8>(),
        ];
        let text = prop::collection::vec(byte, 0..5);
        let begin = prop::sample::select(
            &["~", "&", "%R~", "%W~", ">", "+select|", "-@read +", "(~", "(+get &", "", "(+@all -"][..],
        );
        let fixed = prop::sample::select(
            &[
                "on",
                "off",
                "nopass",
                "+get",
                "-get",
                "+@all",
                "-@all",
                "+@read",
                "-@write",
                "~*",
                "&*",
                "resetkeys",
                "resetchannels",
                "+config",
                "-config|get",
                "+config|get",
                "(~x +get)",
                "(%R~y +@all -set)",
                "+select|0",
                "-select",
                "+@connection",
                "clearselectors",
                "skip-sanitize-payload",
                "resetpass",
            ][..],
        );
        let end = prop::sample::select(&["", "", ")", " +@all)", "\x0b+@all"][..]);
        prop_oneof![
            fixed.prop_map(|word| word.as_bytes().to_vec()),
            (begin, text, end)
                .prop_map(|(begin, text, end)| [begin.as_bytes(), &text, end.as_bytes()].concat()),
        ]
    }

    proptest! {
        #[test]
        fn users_come_back_from_both_files(
            names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 3),
            rules in prop::collection::vec(prop::collection::vec(rule(), 0..9), 3),
            all_channels in any::<bool>(),
        ) {
            let mut users = BTreeMap::new();
            for (name, rules) in names.into_iter().zip(rules).filter(|(name, _)| is_name(name)) {
                let mut rights = Rights::new(all_channels);
                for rule in rules {
                    let mut changed = rights.clone();
                    if apply(&mut changed, &rule, all_channels).is_ok() {
                        rights = changed;
                    }
                }
                users.insert(name, rights);
            }
            let text: Vec<u8> =
                users.iter().flat_map(|(name, rights)| [&line(name, rights)[..], b"\n"].concat()).collect();
            prop_assert_eq!(&parse(&text, "f", all_channels).unwrap(), &users);
            let words: Vec<_> = users.iter().map(|(name, rights)| words_of(name, rights)).collect();
            let lines = parse_config(&rewritten(b"", &[], &[], &words)).unwrap();
            let words: Vec<_> = lines.into_iter().map(|line| line.words).collect();
            prop_assert_eq!(&of_words(&words, all_channels).unwrap(), &users);
        }
    }
}
