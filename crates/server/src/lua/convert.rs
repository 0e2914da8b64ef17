//! Replies of commands as values of Lua, and values of Lua as replies, as Redis converts them.

use super::errors::{error_table, raised_reply};
use super::{DEPTH_AT_MOST, ELEMENTS, REPLY_AT_MOST};
use crate::resp::{Encoder, Protocol};
use crate::wrong::Wrong;
use mlua::{Error, Lua, Result, Table, Value};

/// Lets others run.
pub(super) type Pausing<'a> = &'a dyn Fn() -> Result<()>;

/// A reply that is read.
pub(super) struct Replied<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
    elements: usize,
    pause: Pausing<'a>,
}

fn broken() -> Error {
    raised_reply("ERR a reply of the server cannot be read")
}

impl<'a> Replied<'a> {
    /// Reads a reply that [`Encoder`] has made.
    pub(super) fn new(lua: &'a Lua, bytes: &'a [u8], pause: Pausing<'a>) -> Self {
        Self { lua, bytes, at: 0, elements: 0, pause }
    }

    fn line(&mut self) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\r').ok_or_else(broken)?;
        self.at += end + 2;
        Ok(&rest[..end])
    }

    fn text(&mut self, length: usize) -> Result<&'a [u8]> {
        let text = self.bytes.get(self.at..self.at.saturating_add(length)).ok_or_else(broken)?;
        self.at += length + 2;
        Ok(text)
    }

    fn string(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    /// A table with one field.
    fn single(&self, name: &str, value: Value) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    /// The next value.
    ///
    /// # Errors
    /// The memory is not enough, or the script is ended in a pause.
    pub(super) fn value(&mut self) -> Result<Value> {
        self.elements += 1;
        if self.elements.is_multiple_of(ELEMENTS) {
            (self.pause)()?;
        }
        let line = self.line()?;
        let (mark, rest) = line.split_first().ok_or_else(broken)?;
        let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        let length = || number().and_then(|length| usize::try_from(length).ok());
        match mark {
            b'+' => self.single("ok", self.string(rest)?),
            b'-' => Ok(Value::Table(error_table(self.lua, self.lua.create_string(rest)?)?)),
            b':' => Ok(Value::Number(number().ok_or_else(broken)? as f64)),
            b'$' => match length() {
                Some(length) => {
                    let text = self.text(length)?;
                    self.string(text)
                }
                None => Ok(Value::Boolean(false)),
            },
            b'*' | b'>' => match length() {
                Some(length) => {
                    let table = self.lua.create_table()?;
                    for at in 1..=length {
                        let value = self.value()?;
                        table.raw_set(at, value)?;
                    }
                    Ok(Value::Table(table))
                }
                None => Ok(Value::Boolean(false)),
            },
            b'%' => {
                let table = self.lua.create_table()?;
                for _ in 0..length().ok_or_else(broken)? {
                    let (key, value) = (self.value()?, self.value()?);
                    table.raw_set(key, value)?;
                }
                self.single("map", Value::Table(table))
            }
            b'~' => {
                let table = self.lua.create_table()?;
                for _ in 0..length().ok_or_else(broken)? {
                    let member = self.value()?;
                    table.raw_set(member, true)?;
                }
                self.single("set", Value::Table(table))
            }
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(rest == b"t")),
            b',' => {
                let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<f64>().ok());
                self.single("double", Value::Number(number.ok_or_else(broken)?))
            }
            b'(' => self.single("big_number", self.string(rest)?),
            b'=' => {
                let text = self.text(length().ok_or_else(broken)?)?;
                let (format, text) = text.split_at_checked(4).ok_or_else(broken)?;
                let table = self.lua.create_table()?;
                table.raw_set("format", self.string(&format[..3])?)?;
                table.raw_set("string", self.string(text)?)?;
                self.single("verbatim_string", Value::Table(table))
            }
            _ => Err(broken()),
        }
    }
}

/// A reply that is made of the result of a script.
pub(super) struct Reply<'a> {
    out: Encoder,
    /// Protocol that the script has set.
    of_script: Protocol,
    elements: usize,
    pause: Pausing<'a>,
}

impl<'a> Reply<'a> {
    /// A reply for a client of a protocol.
    pub(super) fn new(of_client: Protocol, of_script: Protocol, pause: Pausing<'a>) -> Self {
        Self { out: Encoder::new(of_client), of_script, elements: 0, pause }
    }

    pub(super) fn take(mut self) -> Vec<u8> {
        self.out.take()
    }

    /// Adds a value.
    ///
    /// # Errors
    /// The reply is too long, or the script is ended in a pause.
    pub(super) fn add(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.elements += 1;
        if self.elements.is_multiple_of(ELEMENTS) {
            (self.pause)()?;
        }
        if self.out.len() > REPLY_AT_MOST {
            return Err(raised_reply("ERR the reply of the script exceeds 128 MiB"));
        }
        match value {
            Value::String(text) => self.out.bulk(text.as_bytes()),
            Value::Boolean(is_true) => match (self.of_script, is_true) {
                (Protocol::Two, true) => self.out.integer(1),
                (Protocol::Two, false) => self.out.null(),
                (Protocol::Three, _) => self.out.boolean(*is_true),
            },
            Value::Integer(number) => self.out.integer(*number),
            Value::Number(number) => self.out.integer(truncated(*number)),
            Value::Table(table) if depth < DEPTH_AT_MOST => self.table(table, depth)?,
            Value::Table(_) => self.out.error(&Wrong::err("reached lua stack limit")),
            _ => self.out.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let text = |field: &str| match table.raw_get::<Value>(field)? {
            Value::String(text) => Ok::<_, Error>(Some(text.as_bytes().to_vec())),
            _ => Ok(None),
        };
        if let Some(text) = text("err")? {
            self.out.error(&Wrong::new(String::from_utf8_lossy(&text)));
        } else if let Some(text) = text("ok")? {
            self.out.simple_bytes(&one_line(text));
        } else if let Some(number) = number_of(&table.raw_get("double")?) {
            self.out.double(number);
        } else if let Some(digits) = text("big_number")? {
            self.out.big_number(&one_line(digits));
        } else if let Some((format, text)) = verbatim(&table.raw_get("verbatim_string")?)? {
            self.out.verbatim_bytes(&format, &text);
        } else if let Value::Table(map) = table.raw_get("map")? {
            let mut pairs = Vec::new();
            for pair in map.pairs::<Value, Value>() {
                pairs.push(pair?);
                self.step(pairs.len())?;
            }
            self.out.map(pairs.len());
            for (key, value) in pairs {
                self.add(&key, depth + 1)?;
                self.add(&value, depth + 1)?;
            }
        } else if let Value::Table(set) = table.raw_get("set")? {
            let mut members = Vec::new();
            for pair in set.pairs::<Value, Value>() {
                members.push(pair?.0);
                self.step(members.len())?;
            }
            self.out.set(members.len());
            for member in members {
                self.add(&member, depth + 1)?;
            }
        } else {
            let mut length = 0;
            while !matches!(table.raw_get(length + 1)?, Value::Nil) {
                length += 1;
                self.step(length)?;
            }
            self.out.array(length);
            for at in 1..=length {
                self.add(&table.raw_get(at)?, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Counts elements that are looked at.
    fn step(&self, count: usize) -> Result<()> {
        if count.is_multiple_of(ELEMENTS) {
            (self.pause)()?;
        }
        Ok(())
    }
}

/// The integer towards zero; of a number beyond them the smallest, as the processor has it.
fn truncated(number: f64) -> i64 {
    let fits = number > -9_223_372_036_854_775_809.0 && number < 9_223_372_036_854_775_808.0;
    if fits { number as i64 } else { i64::MIN }
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn verbatim(value: &Value) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Value::Table(table) = value else { return Ok(None) };
    match (table.raw_get("format")?, table.raw_get("string")?) {
        (Value::String(format), Value::String(text)) => {
            Ok(Some((format.as_bytes().to_vec(), text.as_bytes().to_vec())))
        }
        _ => Ok(None),
    }
}

fn one_line(mut text: Vec<u8>) -> Vec<u8> {
    for byte in &mut text {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    text
}
