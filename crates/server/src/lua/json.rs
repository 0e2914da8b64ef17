//! The library `cjson`, as Redis has it: texts of any bytes, numbers with 14 digits, and tables as
//! arrays if all their keys are positive integers.

use super::errors::raised;
use crate::numbers::general_text;
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// Default of the maximum depth.
const DEPTH: usize = 1000;
/// Largest depth that a script can set, because each level takes some of the stack.
const DEPTH_AT_MOST: usize = 4000;

/// JsonSettings that a script has changed; each run begins with the defaults.
#[derive(Clone, Debug)]
pub(super) struct JsonSettings {
    sparse_convert: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
    encode_depth: usize,
    decode_depth: usize,
    precision: usize,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// Treatment of infinite numbers and of NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for JsonSettings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: DEPTH,
            decode_depth: DEPTH,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
        }
    }
}

type Shared = Rc<RefCell<JsonSettings>>;

/// Makes the library.
pub(super) fn library(lua: &Lua, settings: &Shared) -> Result<Table> {
    let table = lua.create_table()?;
    let of = settings.clone();
    let encode = lua.create_function(move |lua, values: MultiValue| {
        if values.len() != 1 {
            return Err(raised(lua, "bad argument #1 to 'encode' (expected 1 argument)"));
        }
        let mut out = Vec::new();
        JsonWriter { lua, settings: &of.borrow(), out: &mut out }.value(&values[0], 0)?;
        lua.create_string(out)
    })?;
    table.raw_set("encode", encode)?;
    let of = settings.clone();
    let decode = lua.create_function(move |lua, values: MultiValue| {
        if values.len() != 1 {
            return Err(raised(lua, "bad argument #1 to 'decode' (expected 1 argument)"));
        }
        let Some(text) = lua.coerce_string(values[0].clone())? else {
            let found = values[0].type_name();
            let text = format!("bad argument #1 to 'decode' (string expected, got {found})");
            return Err(raised(lua, text));
        };
        let text = text.as_bytes();
        if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
            return Err(raised(lua, "JSON parser does not support UTF-16 or UTF-32"));
        }
        JsonParser { lua, settings: &of.borrow(), text: &text, at: 0 }.document()
    })?;
    table.raw_set("decode", decode)?;
    configuration(lua, &table, settings)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

/// Adds the functions that change settings.
fn configuration(lua: &Lua, table: &Table, settings: &Shared) -> Result<()> {
    type Number = fn(&mut JsonSettings) -> &mut usize;
    let numbers: [(&'static str, usize, Number); 3] = [
        ("encode_max_depth", DEPTH_AT_MOST, |of| &mut of.encode_depth),
        ("decode_max_depth", DEPTH_AT_MOST, |of| &mut of.decode_depth),
        ("encode_number_precision", 14, |of| &mut of.precision),
    ];
    for (name, most, field) in numbers {
        let of = settings.clone();
        let f = lua.create_function(move |lua, values: MultiValue| {
            let mut settings = of.borrow_mut();
            if let Some(number) = integer(lua, &values, 0, 1, most)? {
                *field(&mut settings) = number;
            }
            Ok(*field(&mut settings))
        })?;
        table.raw_set(name, f)?;
    }
    let of = settings.clone();
    let sparse = lua.create_function(move |lua, values: MultiValue| {
        let mut settings = of.borrow_mut();
        if let Some(Value::Boolean(convert)) = values.front() {
            settings.sparse_convert = *convert;
        }
        if let Some(ratio) = integer(lua, &values, 1, 0, i32::MAX as usize)? {
            settings.sparse_ratio = ratio;
        }
        if let Some(safe) = integer(lua, &values, 2, 0, i32::MAX as usize)? {
            settings.sparse_safe = safe;
        }
        Ok((settings.sparse_convert, settings.sparse_ratio, settings.sparse_safe))
    })?;
    table.raw_set("encode_sparse_array", sparse)?;
    let of = settings.clone();
    let keep = lua.create_function(move |_, values: MultiValue| {
        let mut settings = of.borrow_mut();
        if let Some(Value::Boolean(keep)) = values.front() {
            settings.keep_buffer = *keep;
        }
        Ok(settings.keep_buffer)
    })?;
    table.raw_set("encode_keep_buffer", keep)?;
    let of = settings.clone();
    let encode_invalid = lua.create_function(move |lua, values: MultiValue| {
        let mut settings = of.borrow_mut();
        match values.front() {
            Some(Value::Boolean(true)) => settings.encode_invalid = Invalid::Written,
            Some(Value::Boolean(false)) => settings.encode_invalid = Invalid::Refused,
            Some(Value::String(word)) if word.as_bytes() == b"null" => {
                settings.encode_invalid = Invalid::Null;
            }
            _ => {}
        }
        Ok(match settings.encode_invalid {
            Invalid::Refused => Value::Boolean(false),
            Invalid::Written => Value::Boolean(true),
            Invalid::Null => Value::String(lua.create_string("null")?),
        })
    })?;
    table.raw_set("encode_invalid_numbers", encode_invalid)?;
    let of = settings.clone();
    let decode_invalid = lua.create_function(move |_, values: MultiValue| {
        let mut settings = of.borrow_mut();
        if let Some(Value::Boolean(decode)) = values.front() {
            settings.decode_invalid = *decode;
        }
        Ok(settings.decode_invalid)
    })?;
    table.raw_set("decode_invalid_numbers", decode_invalid)
}

/// An optional argument that is an integer within bounds.
fn integer(lua: &Lua, values: &MultiValue, at: usize, least: usize, most: usize) -> Result<Option<usize>> {
    let Some(value) = values.get(at).filter(|value| !value.is_nil()) else { return Ok(None) };
    match lua.coerce_integer(value.clone())?.and_then(|number| usize::try_from(number).ok()) {
        Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => {
            let text = format!("bad argument #{} (expected integer between {least} and {most})", at + 1);
            Err(raised(lua, text))
        }
    }
}

struct JsonWriter<'a> {
    lua: &'a Lua,
    settings: &'a JsonSettings,
    out: &'a mut Vec<u8>,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        // The buffer is outside of the machine's memory.
        if self.out.len() > super::MEMORY_AT_MOST {
            return Err(raised(self.lua, "not enough memory"));
        }
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(is_true) => self.out.extend(if *is_true { &b"true"[..] } else { b"false" }),
            Value::Nil => self.out.extend(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend(b"null"),
            Value::Table(table) => {
                let depth = depth + 1;
                if depth > self.settings.encode_depth {
                    let text = format!("Cannot serialise, excessively nested ({depth})");
                    return Err(raised(self.lua, text));
                }
                match self.length(table)? {
                    Some(length @ 1..) => self.array(table, length, depth)?,
                    _ => self.object(table, depth)?,
                }
            }
            other => {
                let text = format!("Cannot serialise {}: type not supported", other.type_name());
                return Err(raised(self.lua, text));
            }
        }
        Ok(())
    }

    /// Length of a table that is an array.
    fn length(&self, table: &Table) -> Result<Option<usize>> {
        let (mut most, mut items) = (0, 0usize);
        for pair in table.pairs::<Value, Value>() {
            let index = match pair?.0 {
                Value::Integer(index) => index,
                _ => return Ok(None),
            };
            let Some(index) = usize::try_from(index).ok().filter(|index| *index > 0) else { return Ok(None) };
            most = most.max(index);
            items += 1;
        }
        let of = self.settings;
        if of.sparse_ratio > 0 && most > items.saturating_mul(of.sparse_ratio) && most > of.sparse_safe {
            return match of.sparse_convert {
                true => Ok(None),
                false => Err(raised(self.lua, "Cannot serialise table: excessively sparse array")),
            };
        }
        Ok(Some(most))
    }

    fn array(&mut self, table: &Table, length: usize, depth: usize) -> Result<()> {
        self.out.push(b'[');
        for at in 1..=length {
            if at > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(at)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<()> {
        self.out.push(b'{');
        for (number, pair) in table.pairs::<Value, Value>().enumerate() {
            let (key, value) = pair?;
            if number > 0 {
                self.out.push(b',');
            }
            match &key {
                Value::String(key) => self.text(&key.as_bytes()),
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    let number = self.lua.coerce_number(key)?.unwrap_or_default();
                    self.number(number)?;
                    self.out.push(b'"');
                }
                other => {
                    let name = other.type_name();
                    let text = format!("Cannot serialise {name}: table key must be a number or string");
                    return Err(raised(self.lua, text));
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refused => {
                    return Err(raised(self.lua, "Cannot serialise number: must not be NaN or Inf"));
                }
                Invalid::Null => {
                    self.out.extend(b"null");
                    return Ok(());
                }
                Invalid::Written => {}
            }
        }
        self.out.extend(general_text(number, self.settings.precision).bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend(b"\\\""),
                b'\\' => self.out.extend(b"\\\\"),
                b'/' => self.out.extend(b"\\/"),
                8 => self.out.extend(b"\\b"),
                9 => self.out.extend(b"\\t"),
                10 => self.out.extend(b"\\n"),
                12 => self.out.extend(b"\\f"),
                13 => self.out.extend(b"\\r"),
                0..32 | 127 => self.out.extend(format!("\\u{byte:04x}").bytes()),
                _ => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }
}

struct JsonParser<'a> {
    lua: &'a Lua,
    settings: &'a JsonSettings,
    text: &'a [u8],
    at: usize,
}

impl JsonParser<'_> {
    fn document(&mut self) -> Result<Value> {
        let value = self.value(0)?;
        self.skip_space();
        match self.at < self.text.len() {
            true => Err(self.unexpected("the end")),
            false => Ok(value),
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips spaces, and returns the next byte.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    /// The error that something else was expected here.
    fn unexpected(&self, expected: &str) -> mlua::Error {
        let rest = &self.text[self.at.min(self.text.len())..];
        let found = match rest.first() {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b'"') => "T_STRING",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            Some(b'0'..=b'9' | b'-') => "T_NUMBER",
            _ if rest.starts_with(b"true") || rest.starts_with(b"false") => "T_BOOLEAN",
            _ if rest.starts_with(b"null") => "T_NULL",
            _ => "invalid token",
        };
        self.wrong(expected, found)
    }

    fn wrong(&self, expected: &str, found: &str) -> mlua::Error {
        raised(self.lua, format!("Expected {expected} but found {found} at character {}", self.at + 1))
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        if depth + 1 > self.settings.decode_depth {
            let text = format!("Found too many nested data structures ({})", depth + 1);
            return Err(raised(self.lua, text));
        }
        Ok(depth + 1)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        match self.next() {
            Some(b'"') => Ok(Value::String(self.lua.create_string(self.string()?)?)),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            _ => self.scalar(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let depth = self.deeper(depth)?;
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(self.unexpected("object key string"));
            }
            let key = self.lua.create_string(self.string()?)?;
            if self.next() != Some(b':') {
                return Err(self.unexpected("colon"));
            }
            self.at += 1;
            let value = self.value(depth)?;
            table.raw_set(key, value)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Table(table));
                }
                _ => return Err(self.unexpected("comma or object end")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let depth = self.deeper(depth)?;
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        for index in 1usize.. {
            let value = self.value(depth)?;
            table.raw_set(index, value)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    break;
                }
                _ => return Err(self.unexpected("comma or array end")),
            }
        }
        Ok(Value::Table(table))
    }

    fn scalar(&mut self) -> Result<Value> {
        let rest = &self.text[self.at..];
        for (word, value) in
            [("true", Value::Boolean(true)), ("false", Value::Boolean(false)), ("null", Value::NULL)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        if !rest.first().is_some_and(|byte| byte.is_ascii_digit() || b"+-iInN".contains(byte)) {
            return Err(self.unexpected("value"));
        }
        match number(rest, self.settings.decode_invalid) {
            Some((number, length)) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            None if rest[0].is_ascii_digit() || rest[0] == b'-' => Err(self.wrong("value", "invalid number")),
            None => Err(self.wrong("value", "invalid token")),
        }
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        let begin = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(plain) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
                self.at = self.text.len();
                return Err(self.wrong("value", "unexpected end of string"));
            };
            text.extend(&rest[..plain]);
            self.at += plain;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Ok(text);
            }
            let escaped = match self.text.get(self.at + 1) {
                Some(b'"') => b'"',
                Some(b'\\') => b'\\',
                Some(b'/') => b'/',
                Some(b'b') => 8,
                Some(b't') => 9,
                Some(b'n') => 10,
                Some(b'f') => 12,
                Some(b'r') => 13,
                Some(b'u') => {
                    let (code, length) = unicode(&self.text[self.at..]).ok_or_else(|| {
                        self.at = begin.max(self.at);
                        self.wrong("value", "invalid unicode escape code")
                    })?;
                    let mut utf8 = [0; 4];
                    text.extend(code.encode_utf8(&mut utf8).bytes());
                    self.at += length;
                    continue;
                }
                _ => return Err(self.wrong("value", "invalid escape code")),
            };
            text.push(escaped);
            self.at += 2;
        }
    }
}

/// The character of an escape, and the number of its bytes: of two escapes if they are a pair.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = unit(6).filter(|second| (0xdc00..0xe000).contains(second))?;
    let code = 0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
    (first < 0xdc00).then_some((char::from_u32(code)?, 12))
}

/// The number at the front, and its length.
fn number(text: &[u8], takes_invalid: bool) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let body = &text[signed..];
    if takes_invalid {
        for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
            let beginning = body.get(..word.len());
            if beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(word.as_bytes())) {
                return Some((sign * value, signed + word.len()));
            }
        }
        if body.len() > 2 && body[..2].eq_ignore_ascii_case(b"0x") {
            let digits = body[2..].iter().take_while(|byte| byte.is_ascii_hexdigit());
            let (mut value, mut count) = (0.0, 0);
            for digit in digits {
                value = value * 16.0 + f64::from(char::from(*digit).to_digit(16)?);
                count += 1;
            }
            return (count > 0).then_some((sign * value, signed + 2 + count));
        }
    }
    let digits = |from: usize| body[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    if body.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(body.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(body.get(end + 1), Some(b'-' | b'+')));
        let exponent = digits((end + 1 + signed).min(body.len()));
        if exponent > 0 {
            end += 1 + signed + exponent;
        }
    }
    let value: f64 = std::str::from_utf8(&body[..end]).ok()?.parse().ok()?;
    (whole > 0 || end > 1).then_some((sign * value, signed + end))
}
