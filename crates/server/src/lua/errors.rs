//! Errors between Lua and the host.
//!
//! A function of the host fails with [`Raised`]. For a script it is the text that `pcall` returns,
//! or the table with the field `err` that other ways show; `prelude.lua` converts it.

use mlua::{Error, Lua, Table, Value};
use std::fmt;

/// An error that a function of the host raises: the text that is the field `err`.
#[derive(Debug)]
pub(super) struct Raised {
    text: Vec<u8>,
    /// The text is a table's field even where a script catches it as a text.
    is_reply: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

/// Why a call has failed.
pub(super) enum Raise {
    /// With this reply, which `redis.pcall` returns.
    Reply(&'static str),
    /// With an error that `redis.pcall` raises too.
    Error(Error),
}

impl Raise {
    /// The error that `redis.call` raises.
    pub(super) fn error(self) -> Error {
        match self {
            Self::Reply(text) => raised_reply(text),
            Self::Error(error) => error,
        }
    }
}

impl From<Error> for Raise {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The error whose text is a reply: a code, a space and a sentence.
pub(super) fn raised_reply(text: impl Into<Vec<u8>>) -> Error {
    Error::external(Raised { text: text.into(), is_reply: true })
}

/// The error of a library's function: the place of the call is put before the text.
pub(super) fn raised(lua: &Lua, text: impl fmt::Display) -> Error {
    let place = place(lua, 1).map(|(source, line)| format!("{source}:{line}: ")).unwrap_or_default();
    Error::external(Raised { text: format!("{place}{text}").into_bytes(), is_reply: false })
}

/// Source, without its mark, and line of the function at a level of the stack, if it is one of Lua.
fn place(lua: &Lua, level: usize) -> Option<(String, usize)> {
    lua.inspect_stack(level, |frame| {
        let source = frame.source().short_src?.into_owned();
        Some((source, frame.current_line()?))
    })?
}

/// The text of an error of the host.
fn text_of(error: &Error) -> (Vec<u8>, bool) {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => text_of(cause),
        Error::ExternalError(external) => match external.downcast_ref::<Raised>() {
            Some(raised) => (raised.text.clone(), raised.is_reply),
            None => (external.to_string().into_bytes(), false),
        },
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            (text.clone().into_bytes(), false)
        }
        Error::MemoryError(_) => (b"not enough memory".to_vec(), false),
        other => (other.to_string().into_bytes(), false),
    }
}

/// The text of a reply: one without a code gets `ERR`.
pub(super) fn reply_of(error: &Error) -> Vec<u8> {
    match text_of(error) {
        (text, true) => text,
        (text, false) => [b"ERR ", &text[..]].concat(),
    }
}

/// Second result of `pcall` for an error: a text for those of the host and for tables whose `err`
/// is a text; others stay as they are.
pub(super) fn as_text(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match &error {
        Value::Error(inner) => Ok(Value::String(lua.create_string(text_of(inner).0)?)),
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            text @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => Ok(text),
            _ => Ok(error),
        },
        _ => Ok(error),
    }
}

/// Error that `xpcall` and coroutines give: a table for those of the host, others as they are.
pub(super) fn as_table(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match &error {
        Value::Error(inner) => {
            let (text, is_reply) = text_of(inner);
            let text = lua.create_string(text)?;
            match is_reply {
                true => error_table(lua, text).map(Value::Table),
                false => Ok(Value::String(text)),
            }
        }
        _ => Ok(error),
    }
}

/// A table with the field `err`.
pub(super) fn error_table(lua: &Lua, text: impl mlua::IntoLua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// Makes a table of an error that a script has not caught: its text as `err`, and the place of the
/// nearest function of a script as `source` and `line`.
pub(super) fn handle(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let table = match error {
        Value::Error(inner) => error_table(lua, lua.create_string(reply_of(&inner))?)?,
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Nil => b"nil".to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            error_table(lua, lua.create_string([b"ERR ", &text[..]].concat())?)?
        }
    };
    for level in 1..64 {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source().source?.into_owned();
            Some((source, frame.current_line()?))
        });
        let Some(frame) = frame else { break };
        if let Some((source, line)) = frame.filter(|(source, _)| source.starts_with("@user_")) {
            table.raw_set("source", source)?;
            table.raw_set("line", line)?;
            break;
        }
    }
    Ok(table)
}
