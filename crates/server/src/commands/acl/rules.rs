//! The rule words of ACL SETUSER, and their text in ACL LIST.
//!
//! The text of a user's rights, given to SETUSER after `reset`, makes the same rights. Rules for
//! commands are kept as they were given, because their order counts; a rule replaces those before
//! it for the same command, its subcommands or the same category.

use super::super::{categories, numbering as numbers};
use crate::pattern::Pattern;
use crate::server::{CommandSet, PASSWORD_AT_MOST, Rights, Selector, Uses, password_hash};
use std::borrow::Cow;

/// Why a word is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Syntax,
    Unknown,
    KeyAfterAll,
    ChannelAfterAll,
    NoSuchPassword,
    NoHash,
    ArgumentOfSub,
    LongPassword,
}

impl Fault {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::KeyAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                 any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not \
                 have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Self::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
            }
            Self::LongPassword => "The password has more than 4096 bytes",
            Self::ArgumentOfSub => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Joins words between parentheses, which are one rule.
///
/// # Errors
/// The word with a parenthesis that is not closed.
pub(super) fn joined(words: &[Vec<u8>]) -> Result<Vec<Cow<'_, [u8]>>, &[u8]> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        open = match open {
            Some((begin, mut rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                match word.ends_with(b")") {
                    true => {
                        rules.push(Cow::Owned(rule));
                        None
                    }
                    false => Some((begin, rule)),
                }
            }
            None if word.starts_with(b"(") && !word.ends_with(b")") => Some((word, word.clone())),
            None => {
                rules.push(Cow::Borrowed(&word[..]));
                None
            }
        };
    }
    open.map_or(Ok(rules), |(begin, _)| Err(begin))
}

/// Applies a rule to rights. `all_channels`: `acl-pubsub-default` allows all channels to new
/// selectors.
///
/// # Errors
/// The rule is none; the rights may be changed in part.
pub(super) fn apply(rights: &mut Rights, rule: &[u8], all_channels: bool) -> Result<(), Fault> {
    match (&*rule.to_ascii_lowercase(), rule) {
        (b"", _) => {}
        (b"on", _) => rights.is_on = true,
        (b"off", _) => rights.is_on = false,
        (b"skip-sanitize-payload", _) => rights.skips_sanitizing = true,
        (b"sanitize-payload", _) => rights.skips_sanitizing = false,
        (b"nopass", _) => {
            rights.no_password = true;
            rights.passwords.clear();
        }
        (b"resetpass", _) => {
            rights.no_password = false;
            rights.passwords.clear();
        }
        (b"clearselectors", _) => rights.selectors.clear(),
        (b"reset", _) => *rights = Rights::new(all_channels),
        (_, [mark @ (b'>' | b'#'), text @ ..]) => {
            let hash = hash_of(*mark == b'>', text)?;
            if !rights.passwords.contains(&hash) {
                rights.passwords.push(hash);
            }
            rights.no_password = false;
        }
        (_, [mark @ (b'<' | b'!'), text @ ..]) => {
            let hash = hash_of(*mark == b'<', text)?;
            let at = rights.passwords.iter().position(|known| *known == hash).ok_or(Fault::NoSuchPassword)?;
            rights.passwords.remove(at);
        }
        (_, [b'(', rules @ .., b')']) => {
            let mut selector = Selector::new(all_channels);
            for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                // In the text of the rights it would end the selector.
                if rule.ends_with(b")") {
                    return Err(Fault::Syntax);
                }
                select(&mut selector, rule)?;
            }
            rights.selectors.push(selector);
        }
        _ => select(&mut rights.root, rule)?,
    }
    Ok(())
}

/// The hash that a password has, or that is given instead of one.
fn hash_of(is_password: bool, text: &[u8]) -> Result<String, Fault> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match is_password {
        true if text.len() > PASSWORD_AT_MOST => Err(Fault::LongPassword),
        true => Ok(password_hash(text)),
        false if text.len() == 64 && text.iter().all(is_digit) => {
            Ok(String::from_utf8_lossy(text).into_owned())
        }
        false => Err(Fault::NoHash),
    }
}

/// Applies a rule to a selector.
fn select(selector: &mut Selector, rule: &[u8]) -> Result<(), Fault> {
    match (&*rule.to_ascii_lowercase(), rule) {
        (b"allkeys" | b"~*", _) => {
            selector.all_keys = true;
            selector.keys.clear();
        }
        (b"resetkeys", _) => {
            selector.all_keys = false;
            selector.keys.clear();
        }
        (b"allchannels" | b"&*", _) => {
            selector.all_channels = true;
            selector.channels.clear();
        }
        (b"resetchannels", _) => {
            selector.all_channels = false;
            selector.channels.clear();
        }
        (b"allcommands" | b"+@all", _) => set_commands(selector, true),
        (b"nocommands" | b"-@all", _) => set_commands(selector, false),
        (_, [b'~', pattern @ ..]) => add_key(selector, Uses::BOTH, pattern)?,
        (_, [b'%', rest @ ..]) => {
            let at = rest.iter().position(|byte| *byte == b'~').ok_or(Fault::Syntax)?;
            add_key(selector, uses(&rest[..at])?, &rest[at + 1..])?;
        }
        (_, [b'&', pattern @ ..]) => {
            if selector.all_channels {
                return Err(Fault::ChannelAfterAll);
            }
            check_pattern(pattern)?;
            if !selector.channels.iter().any(|known| known == pattern) {
                selector.channels.push(pattern.to_vec());
            }
        }
        (_, [sign @ (b'+' | b'-'), b'@', category @ ..]) => {
            let category = String::from_utf8_lossy(category).to_ascii_lowercase();
            if !categories::ALL.contains(&&*category) {
                return Err(Fault::Unknown);
            }
            for (number, known) in numbers::all().iter().enumerate() {
                if known.categories.contains(&&*category) {
                    put(selector, number, *sign == b'+');
                }
            }
            note_rule(selector, *sign == b'+', format!("@{category}"));
        }
        (_, [b'+', name @ ..]) => allow(selector, name)?,
        (_, [b'-', name @ ..]) => {
            let number = numbers::find(name).ok_or(Fault::Unknown)?;
            change(selector, number, false);
        }
        _ => return Err(Fault::Syntax),
    }
    Ok(())
}

fn set_commands(selector: &mut Selector, is_allowed: bool) {
    selector.commands = if is_allowed { CommandSet::ALL } else { CommandSet::NONE };
    selector.has_later = is_allowed;
    selector.rules.clear();
    selector.first_arguments.clear();
}

/// The uses that the letters of `%RW~` grant.
fn uses(letters: &[u8]) -> Result<Uses, Fault> {
    match &*letters.to_ascii_uppercase() {
        b"R" => Ok(Uses::READS),
        b"W" => Ok(Uses { reads: false, writes: true }),
        b"RW" | b"WR" => Ok(Uses::BOTH),
        _ => Err(Fault::Syntax),
    }
}

/// True if bytes are one word in a text of rules: without spaces and control bytes, of which some
/// readers take more for spaces than others.
fn is_word(bytes: &[u8]) -> bool {
    !bytes.iter().any(|byte| *byte == b' ' || byte.is_ascii_control())
}

/// True if a user can have this name.
pub(super) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && is_word(name)
}

/// Checks a pattern of keys or channels.
fn check_pattern(pattern: &[u8]) -> Result<(), Fault> {
    match !is_word(pattern) || Pattern::new(pattern).is_err() {
        true => Err(Fault::Syntax),
        false => Ok(()),
    }
}

fn add_key(selector: &mut Selector, uses: Uses, pattern: &[u8]) -> Result<(), Fault> {
    if selector.all_keys {
        return Err(Fault::KeyAfterAll);
    }
    check_pattern(pattern)?;
    match selector.keys.iter_mut().find(|(_, known)| known == pattern) {
        Some((known, _)) => {
            known.reads |= uses.reads;
            known.writes |= uses.writes;
        }
        None => selector.keys.push((uses, pattern.to_vec())),
    }
    // Its text is that of all keys.
    if selector.keys.iter().any(|(uses, known)| *uses == Uses::BOTH && known == b"*") {
        selector.all_keys = true;
        selector.keys.clear();
    }
    Ok(())
}

/// `+name`, `+name|sub` or `+name|first-argument`.
fn allow(selector: &mut Selector, name: &[u8]) -> Result<(), Fault> {
    if let Some(number) = numbers::find(name) {
        change(selector, number, true);
        return Ok(());
    }
    let bar = name.iter().rposition(|byte| *byte == b'|').ok_or(Fault::Unknown)?;
    let (command, argument) = (&name[..bar], &name[bar + 1..]);
    let number = numbers::find(command).ok_or(Fault::Unknown)?;
    if numbers::is_sub(number) {
        return Err(Fault::ArgumentOfSub);
    }
    if argument.is_empty() || !is_word(argument) || std::str::from_utf8(argument).is_err() {
        return Err(Fault::Syntax);
    }
    if !numbers::subs(number).is_empty() {
        return Err(Fault::Unknown);
    }
    let argument = argument.to_ascii_lowercase();
    let text = format!("{}|{}", numbers::all()[number].name, String::from_utf8_lossy(&argument));
    let known = selector.first_arguments.entry(number).or_default();
    // In the order of their rules, as `note_rule` has them.
    known.retain(|other| *other != argument);
    known.push(argument);
    note_rule(selector, true, text);
    Ok(())
}

/// Allows or forbids a command with its subcommands.
fn change(selector: &mut Selector, number: usize, is_allowed: bool) {
    put(selector, number, is_allowed);
    for sub in numbers::subs(number) {
        put(selector, sub, is_allowed);
    }
    note_rule(selector, is_allowed, numbers::all()[number].name.clone());
}

fn put(selector: &mut Selector, number: usize, is_allowed: bool) {
    selector.commands.put(number, is_allowed);
    selector.first_arguments.remove(&number);
}

fn note_rule(selector: &mut Selector, is_allowed: bool, rule: String) {
    let is_covered = |(_, known): &(bool, String)| {
        known.strip_prefix(&*rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    };
    selector.rules.retain(|known| !is_covered(known));
    selector.rules.push((is_allowed, rule));
}

/// The words for on or off and the like, in Redis' order.
pub(super) fn flags(rights: &Rights) -> Vec<&'static str> {
    let all = [
        (rights.is_on, "on"),
        (!rights.is_on, "off"),
        (rights.no_password, "nopass"),
        (rights.skips_sanitizing, "skip-sanitize-payload"),
        (!rights.skips_sanitizing, "sanitize-payload"),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect()
}

/// The rules for the commands of a selector.
pub(super) fn commands(selector: &Selector) -> String {
    let mut text = if selector.has_later { "+@all" } else { "-@all" }.to_owned();
    for (is_allowed, rule) in &selector.rules {
        text.push_str(if *is_allowed { " +" } else { " -" });
        text += rule;
    }
    text
}

/// The rules for the keys of a selector.
pub(super) fn keys(selector: &Selector) -> Vec<u8> {
    if selector.all_keys {
        return b"~*".to_vec();
    }
    let rule = |(uses, pattern): &(Uses, Vec<u8>)| {
        let mark: &[u8] = match (uses.reads, uses.writes) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        };
        [mark, pattern].concat()
    };
    selector.keys.iter().map(rule).collect::<Vec<_>>().join(&b' ')
}

/// The rules for the channels of a selector.
pub(super) fn channels(selector: &Selector) -> Vec<u8> {
    match selector.all_channels {
        true => b"&*".to_vec(),
        false => {
            let rules: Vec<_> =
                selector.channels.iter().map(|pattern| [b"&", &pattern[..]].concat()).collect();
            rules.join(&b' ')
        }
    }
}

fn all_of(selector: &Selector) -> Vec<u8> {
    let mut words = vec![keys(selector)];
    if !selector.all_channels {
        words.push(b"resetchannels".to_vec());
    }
    words.extend([channels(selector), commands(selector).into_bytes()]);
    words.retain(|word| !word.is_empty());
    words.join(&b' ')
}

/// The line of a user in ACL LIST and in the file of ACL SAVE, without its end.
pub(super) fn line(name: &[u8], rights: &Rights) -> Vec<u8> {
    let mut words = vec![b"user".to_vec(), name.to_vec()];
    words.extend(flags(rights).into_iter().map(|word| word.as_bytes().to_vec()));
    words.extend(rights.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
    words.push(all_of(&rights.root));
    words.extend(rights.selectors.iter().map(|selector| [b"(", &all_of(selector)[..], b")"].concat()));
    words.join(&b' ')
}

/// The words of [`line`] behind `user`.
pub(super) fn words_of(name: &[u8], rights: &Rights) -> Vec<Vec<u8>> {
    line(name, rights).split(|byte| *byte == b' ').skip(1).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::words;
    use super::*;

    fn made(rules: &str) -> Result<Rights, Fault> {
        let mut rights = Rights::new(false);
        let words = words(rules);
        for rule in joined(&words).unwrap() {
            apply(&mut rights, &rule, false)?;
        }
        Ok(rights)
    }

    fn text(rules: &str) -> String {
        String::from_utf8(line(b"me", &made(rules).unwrap())).unwrap()
    }

    #[test]
    fn rules_have_a_text_that_makes_them_again() {
        let hash = password_hash(b"pw");
        let cases = [
            ("", "off sanitize-payload resetchannels -@all".to_owned()),
            ("on nopass allkeys allchannels allcommands", "on nopass sanitize-payload ~* &* +@all".to_owned()),
            (
                "on >pw ~a:* %R~b %W~c %RW~d &news +@read -get",
                format!(
                    "on sanitize-payload #{hash} ~a:* %R~b %W~c ~d resetchannels &news -@all +@read -get"
                ),
            ),
            ("%R~a %W~a", "off sanitize-payload ~a resetchannels -@all".to_owned()),
            ("+@all -CONFIG|SET", "off sanitize-payload resetchannels +@all -config|set".to_owned()),
            ("+config|get +config", "off sanitize-payload resetchannels -@all +config".to_owned()),
            ("+get -get +get", "off sanitize-payload resetchannels -@all +get".to_owned()),
            ("+select|0 +SELECT|1", "off sanitize-payload resetchannels -@all +select|0 +select|1".to_owned()),
            (
                "(~a +get) ( %W~b &x +set )",
                "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (%W~b resetchannels &x \
                 -@all +set)"
                    .to_owned(),
            ),
        ];
        for (rules, expected) in cases {
            let shown = text(rules);
            assert_eq!(shown, format!("user me {expected}"), "{rules}");
            assert_eq!(made(&shown["user me ".len()..]), made(rules), "{rules}");
        }
    }

    #[test]
    fn commands_are_allowed_by_names_and_categories() {
        let allows = |rules: &str, name: &str| {
            made(rules).unwrap().root.commands.has(numbers::find(name.as_bytes()).unwrap())
        };
        assert!(allows("+@string -set", "get") && !allows("+@string -set", "set"));
        assert!(!allows("+@string", "hget") && allows("+config", "config|set"));
        assert!(allows("+client|id", "client|id") && !allows("+client|id", "client|kill"));
        assert!(allows("+@all -client|kill", "client|id") && !allows("+@all -@admin", "acl|setuser"));
        assert!(allows("+@all -@dangerous", "acl|whoami") && !allows("+@all -@dangerous", "client|kill"));
    }

    #[test]
    fn wrong_rules_say_why() {
        let cases = [
            ("nothing", Fault::Syntax),
            ("%~a", Fault::Syntax),
            ("%RR~a", Fault::Syntax),
            ("%X~a", Fault::Syntax),
            ("+nothing", Fault::Unknown),
            ("-config|nothing", Fault::Unknown),
            ("+config|nothing", Fault::Unknown),
            ("+get|a|b", Fault::Unknown),
            ("-select|0", Fault::Unknown),
            ("+config|get|a", Fault::ArgumentOfSub),
            ("+select|", Fault::Syntax),
            ("+@nothing", Fault::Unknown),
            ("~* ~a", Fault::KeyAfterAll),
            ("&* &a", Fault::ChannelAfterAll),
            ("<never", Fault::NoSuchPassword),
            ("#12", Fault::NoHash),
            ("(on)", Fault::Syntax),
            (")", Fault::Syntax),
        ];
        for (rules, fault) in cases {
            assert_eq!(made(rules).err(), Some(fault), "{rules}");
        }
        assert_eq!(joined(&words("on (~a +get")).err(), Some(&b"(~a"[..]));
        let long = [b'x'; PASSWORD_AT_MOST + 2];
        let faults: [(&[u8], Fault); 7] = [
            (b"~a b", Fault::Syntax),
            (b"~a\x0b+@all", Fault::Syntax),
            (b"&a\x7f", Fault::Syntax),
            (b"%R~\x01", Fault::Syntax),
            (b"(~a) +@all ~b)", Fault::Syntax),
            (b"+select|\xff", Fault::Syntax),
            (&[b">", &long[..]].concat(), Fault::LongPassword),
        ];
        for (rule, fault) in faults {
            assert_eq!(apply(&mut Rights::new(false), rule, false), Err(fault), "{rule:?}");
        }
        assert!(is_name(b"\xffa\"'#") && !is_name(b"") && !is_name(b"a\x0bb") && !is_name(b"a b"));
    }
}
