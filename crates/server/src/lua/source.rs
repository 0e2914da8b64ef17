//! Sources of scripts and libraries: their names, flags and functions.

use crate::resp::split_words;
use crate::wrong::Wrong;
use sha1::{Digest, Sha1};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The hash of a text in 40 hexadecimal digits, which is its name in EVALSHA.
pub(crate) fn sha1_hex(text: &[u8]) -> String {
    let mut hex = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        let _never_fails = write!(hex, "{byte:02x}");
    }
    hex
}

/// Flags of a script or a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptFlags {
    /// It has a first line that declares flags; without it all is allowed.
    pub(crate) is_declared: bool,
    pub(crate) no_writes: bool,
    pub(crate) allow_oom: bool,
    pub(crate) allow_stale: bool,
    pub(crate) no_cluster: bool,
    pub(crate) allow_cross_slot: bool,
}

impl ScriptFlags {
    /// Sets the flag of this name. Returns false if the name is unknown.
    pub(crate) fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// The names of those that are set.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot, "allow-cross-slot-keys"),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect()
    }
}

/// A script of EVAL.
#[derive(Debug)]
pub(crate) struct Script {
    /// Hash of the whole text.
    pub(crate) sha: String,
    pub(crate) text: Vec<u8>,
    pub(crate) flags: ScriptFlags,
    /// Number of bytes before the end of the first line if that declares flags.
    pub(crate) head: usize,
    /// It has used keys that it had not declared, so that the next run has all keys for itself from
    /// the beginning.
    pub(crate) reaches_all: AtomicBool,
}

impl Script {
    /// # Errors
    /// The first line is wrong.
    pub(crate) fn new(sha: String, text: &[u8]) -> Result<Self, Wrong> {
        let mut flags = ScriptFlags::default();
        let mut head = 0;
        if text.starts_with(b"#!") {
            head = text.iter().position(|byte| *byte == b'\n').ok_or(Wrong::err("Invalid script shebang"))?;
            let mut words =
                split_words(&text[..head]).ok_or(Wrong::err("Invalid engine in script shebang"))?.into_iter();
            let engine = words.next().unwrap_or_default();
            if engine != b"#!lua" {
                let engine = String::from_utf8_lossy(&engine);
                return Err(Wrong::err(format_args!("Unexpected engine in script shebang: {engine}")));
            }
            flags.is_declared = true;
            for word in words {
                let Some(names) = word.strip_prefix(b"flags=") else {
                    let word = String::from_utf8_lossy(&word);
                    return Err(Wrong::err(format_args!("Unknown lua shebang option: {word}")));
                };
                for name in names.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
                    if !flags.set(name) {
                        let name = String::from_utf8_lossy(name);
                        return Err(Wrong::err(format_args!("Unexpected flag in script shebang: {name}")));
                    }
                }
            }
        }
        Ok(Self { sha, text: text.to_vec(), flags, head, reaches_all: AtomicBool::new(false) })
    }
}

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionMeta {
    pub(crate) name: String,
    pub(crate) description: Option<Vec<u8>>,
    pub(crate) flags: ScriptFlags,
}

/// A library of FUNCTION LOAD.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: String,
    /// The whole text.
    pub(crate) code: Arc<[u8]>,
    /// Functions in the order of their names.
    pub(crate) functions: Vec<FunctionMeta>,
    /// It has used keys that it had not declared.
    pub(crate) reaches_all: AtomicBool,
}

/// True for letters, digits and underscores, one at least.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Text of the error for another name.
pub(crate) const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and \
                                   must be at least one character long";

impl Library {
    /// The name in the first line of a library's code.
    ///
    /// # Errors
    /// The line is not as Redis has it.
    pub(crate) fn name_of(code: &[u8]) -> Result<String, Wrong> {
        if !code.starts_with(b"#!") {
            return Err(Wrong::err("Missing library metadata"));
        }
        let end = code.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(Wrong::err("Invalid library metadata"))?;
        let words = split_words(&code[..end]).ok_or(Wrong::err("Invalid library metadata"))?;
        let mut words = words.into_iter();
        let engine = words.next().unwrap_or_default();
        let mut name = None;
        for word in words {
            match word.split_at_checked(5) {
                Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => {
                    if name.replace(value.to_vec()).is_some() {
                        let text = "Invalid metadata value, name argument was given multiple times";
                        return Err(Wrong::err(text));
                    }
                }
                _ => {
                    let word = String::from_utf8_lossy(&word);
                    return Err(Wrong::err(format_args!("Invalid metadata value given: {word}")));
                }
            }
        }
        let name = name.ok_or(Wrong::err("Library name was not given"))?;
        if !is_name(&name) {
            return Err(Wrong::err(BAD_NAME));
        }
        let engine = engine.strip_prefix(b"#!").unwrap_or(&engine);
        if !engine.eq_ignore_ascii_case(b"lua") {
            let engine = String::from_utf8_lossy(engine);
            return Err(Wrong::err(format_args!("Engine '{engine}' not found")));
        }
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    /// The function of this name, in any case.
    pub(crate) fn function(&self, name: &str) -> Option<&FunctionMeta> {
        self.functions.iter().find(|function| function.name.eq_ignore_ascii_case(name))
    }
}

/// Code behind its first line, which stays as an empty one so that lines keep their numbers.
pub(crate) fn behind_first_line(code: &[u8]) -> &[u8] {
    let end = code.iter().position(|byte| *byte == b'\n').unwrap_or(code.len());
    &code[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_declares_flags() {
        let flags = |text: &str| Script::new(String::new(), text.as_bytes()).map(|script| script.flags);
        assert_eq!(flags("return 1"), Ok(ScriptFlags::default()));
        let both = flags("#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert_eq!(both.names(), ["no-writes", "allow-oom"]);
        assert!(both.is_declared && flags("#!lua\nreturn 1").unwrap().is_declared);
        let why = |text: &str| flags(text).unwrap_err().text().to_owned();
        assert_eq!(why("#!lua"), "ERR Invalid script shebang");
        assert_eq!(why("#!js\n"), "ERR Unexpected engine in script shebang: #!js");
        assert_eq!(why("#!lua x=1\n"), "ERR Unknown lua shebang option: x=1");
        assert_eq!(why("#!lua flags=bad\n"), "ERR Unexpected flag in script shebang: bad");
    }

    #[test]
    fn a_library_has_a_name() {
        let name = |text: &str| Library::name_of(text.as_bytes()).map_err(|wrong| wrong.text().to_owned());
        assert_eq!(name("#!lua name=one\n"), Ok("one".to_owned()));
        assert_eq!(name("#!LUA NAME=\"one\"\n"), Ok("one".to_owned()));
        for (text, why) in [
            ("return 1", "Missing library metadata"),
            ("#!lua name=one", "Invalid library metadata"),
            ("#!\n", "Library name was not given"),
            ("#! name=a\n", "Engine '' not found"),
            ("#!lua name=\"a\n", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua name=a-b\n", BAD_NAME),
            ("#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
            ("#!lua name=a foo=b\n", "Invalid metadata value given: foo=b"),
            ("#!js name=a\n", "Engine 'js' not found"),
        ] {
            assert_eq!(name(text), Err(format!("ERR {why}")), "{text}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        assert_eq!(sha1_hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha1_hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }
}
