//! Errors about options: section, name, line, and a description of the problem.

use std::fmt;

/// Kind of problem with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionErrorKind {
    /// No option has this name.
    Unknown,
    /// The value is malformed or out of range.
    Invalid,
    /// The text around the options is malformed.
    Syntax,
}

/// An option, or a text of options, that is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionError {
    /// Kind of the problem.
    pub kind: OptionErrorKind,
    /// The section, with its argument if it has one; empty outside of any section.
    pub section: String,
    /// The option's name; empty if the problem does not concern one option.
    pub option: String,
    /// The line of the OPTIONS file, counted from 1, if the option came from one.
    pub line: Option<u32>,
    /// Description of the problem.
    pub what: String,
}

impl OptionError {
    pub(super) fn new(kind: OptionErrorKind, option: &str, what: impl Into<String>) -> OptionError {
        let (section, option) = (String::new(), option.to_owned());
        OptionError { kind, section, option, line: None, what: what.into() }
    }

    pub(super) fn within(mut self, section: impl Into<String>, line: u32) -> OptionError {
        self.section = section.into();
        self.line = Some(line);
        self
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.section.is_empty() {
            write!(f, "[{}] ", self.section)?;
        }
        if !self.option.is_empty() {
            write!(f, "{}: ", self.option)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for OptionError {}
