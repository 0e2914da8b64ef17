//! The library `cmsgpack`: values as MessagePack, as Redis has it.

use super::RESULTS_AT_MOST;
use super::errors::raised;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// Depth from which on tables are written as nil, as Redis does.
const NESTING: usize = 16;
/// Maximum depth that is read.
const DEPTH_AT_MOST: usize = 2000;

/// Makes the library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, values: MultiValue| {
        if values.is_empty() {
            return Err(raised(lua, "bad argument #0 to 'pack' (MessagePack pack needs input.)"));
        }
        let mut out = Vec::new();
        for value in &values {
            encode(lua, value, 0, &mut out)?;
        }
        lua.create_string(out)
    })?;
    table.raw_set("pack", pack)?;
    table.raw_set("unpack", lua.create_function(|lua, values| unpack(lua, &values, "unpack", None))?)?;
    let one = lua.create_function(|lua, values| unpack(lua, &values, "unpack_one", Some((1, 1))))?;
    table.raw_set("unpack_one", one)?;
    let limit = lua.create_function(|lua, values: MultiValue| {
        let limit = integer(lua, &values, 1, "unpack_limit")?;
        unpack(lua, &values, "unpack_limit", Some((limit, 2)))
    })?;
    table.raw_set("unpack_limit", limit)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

fn integer(lua: &Lua, values: &MultiValue, at: usize, name: &str) -> Result<i64> {
    let value = values.get(at).cloned().unwrap_or(Value::Nil);
    match lua.coerce_number(value)? {
        Some(number) => Ok(number as i64),
        None => {
            let found = values.get(at).map_or("no value", Value::type_name);
            Err(raised(lua, format!("bad argument #{} to '{name}' (number expected, got {found})", at + 1)))
        }
    }
}

/// Reads values. With a limit, from the offset of argument `at` on; the offset behind the values
/// comes first then, -1 at the end of the text.
fn unpack(lua: &Lua, values: &MultiValue, name: &str, limit: Option<(i64, usize)>) -> Result<MultiValue> {
    let text = values.front().cloned().unwrap_or(Value::Nil);
    let Some(text) = lua.coerce_string(text)? else {
        let found = values.front().map_or("no value", Value::type_name);
        return Err(raised(lua, format!("bad argument #1 to '{name}' (string expected, got {found})")));
    };
    let text = text.as_bytes();
    let (most, offset) = match limit {
        None => (0, 0),
        Some((most, at)) if values.len() > at => (most, integer(lua, values, at, name)?),
        Some((most, _)) => (most, 0),
    };
    if offset < 0 || most < 0 {
        let what = "Invalid request to unpack with offset of";
        return Err(raised(lua, format!("{what} {offset} and limit of {}.", text.len())));
    }
    let mut reader = Unpacker { lua, text: &text, at: usize::try_from(offset).unwrap_or(usize::MAX) };
    if reader.at > text.len() {
        let what = "Start offset";
        return Err(raised(lua, format!("{what} {offset} greater than input length {}.", text.len())));
    }
    let mut found = MultiValue::new();
    let most = if most == 0 { usize::MAX } else { usize::try_from(most).unwrap_or(usize::MAX) };
    while reader.at < text.len() && found.len() < most {
        if found.len() >= RESULTS_AT_MOST {
            return Err(raised(lua, "too many results to unpack"));
        }
        let value = reader.value(0)?;
        found.push_back(value);
    }
    if limit.is_some() {
        let at = if reader.at < text.len() { reader.at as f64 } else { -1.0 };
        found.push_front(Value::Number(at));
    }
    Ok(found)
}

fn encode(lua: &Lua, value: &Value, level: usize, out: &mut Vec<u8>) -> Result<()> {
    // The buffer is outside of the machine's memory.
    if out.len() > super::MEMORY_AT_MOST {
        return Err(raised(lua, "not enough memory"));
    }
    match value {
        Value::Boolean(is_true) => out.push(if *is_true { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => encode_integer(*number, out),
        Value::Number(number) if *number as i64 as f64 == *number => encode_integer(*number as i64, out),
        Value::Number(number) if f64::from(*number as f32) == *number => {
            out.push(0xca);
            out.extend((*number as f32).to_be_bytes());
        }
        Value::Number(number) => {
            out.push(0xcb);
            out.extend(number.to_be_bytes());
        }
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                length @ ..32 => out.push(0xa0 | length as u8),
                length @ 32..0x100 => out.extend([0xd9, length as u8]),
                length => head(length, [0xda, 0xdb], out),
            }
            out.extend(&text[..]);
        }
        Value::Table(table) if level < NESTING => encode_table(lua, table, level, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// Adds a length of 16 or 32 bits behind its mark.
fn head(length: usize, marks: [u8; 2], out: &mut Vec<u8>) {
    match u16::try_from(length) {
        Ok(length) => {
            out.push(marks[0]);
            out.extend(length.to_be_bytes());
        }
        Err(_) => {
            out.push(marks[1]);
            out.extend((length as u32).to_be_bytes());
        }
    }
}

fn encode_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend([0xcc, number as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
        -32..0 => out.push((number as i8).cast_unsigned()),
        -0x80..-32 => out.extend([0xd0, (number as i8).cast_unsigned()]),
        -0x8000..-0x80 => {
            out.push(0xd1);
            out.extend((number as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xd2);
            out.extend((number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend(number.to_be_bytes());
        }
    }
}

fn encode_table(lua: &Lua, table: &Table, level: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut most, mut is_array) = (0usize, 0, true);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        count += 1;
        match key {
            Value::Integer(index @ 1..) => most = index.max(most),
            _ => is_array = false,
        }
    }
    if is_array && most == count as i64 {
        match count {
            ..16 => out.push(0x90 | count as u8),
            _ => head(count, [0xdc, 0xdd], out),
        }
        for at in 1..=count {
            encode(lua, &table.raw_get(at)?, level + 1, out)?;
        }
        return Ok(());
    }
    match count {
        ..16 => out.push(0x80 | count as u8),
        _ => head(count, [0xde, 0xdf], out),
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        encode(lua, &key, level + 1, out)?;
        encode(lua, &value, level + 1, out)?;
    }
    Ok(())
}

struct Unpacker<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl Unpacker<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let taken = self.at.checked_add(count).and_then(|end| self.text.get(self.at..end));
        let taken = taken.ok_or_else(|| raised(self.lua, "Missing bytes in input."))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn unsigned(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize> {
        Ok(self.unsigned(bytes)? as usize)
    }

    fn string(&mut self, length: usize) -> Result<Value> {
        let lua = self.lua;
        Ok(Value::String(lua.create_string(self.take(length)?)?))
    }

    fn list(&mut self, length: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=length {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            let is_number = |value: &Value| matches!(value, Value::Number(number) if number.is_nan());
            if key.is_nil() || is_number(&key) {
                return Err(raised(self.lua, "Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_AT_MOST {
            return Err(raised(self.lua, "stack overflow (in function mp_decode_to_lua_type)"));
        }
        let number = |number: f64| Ok(Value::Number(number));
        let [mark] = self.array()?;
        match mark {
            0..0x80 => number(mark.into()),
            0xe0.. => number(mark.cast_signed().into()),
            0x80..0x90 => self.map((mark & 15).into(), depth),
            0x90..0xa0 => self.list((mark & 15).into(), depth),
            0xa0..0xc0 => self.string((mark & 31).into()),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(mark == 0xc3)),
            0xc4 | 0xd9 => {
                let length = self.length(1)?;
                self.string(length)
            }
            0xc5 | 0xda => {
                let length = self.length(2)?;
                self.string(length)
            }
            0xc6 | 0xdb => {
                let length = self.length(4)?;
                self.string(length)
            }
            0xca => number(f32::from_be_bytes(self.array()?).into()),
            0xcb => number(f64::from_be_bytes(self.array()?)),
            0xcc..=0xcf => number(self.unsigned(1 << (mark - 0xcc))? as f64),
            0xd0 => number(i8::from_be_bytes(self.array()?).into()),
            0xd1 => number(i16::from_be_bytes(self.array()?).into()),
            0xd2 => number(i32::from_be_bytes(self.array()?).into()),
            0xd3 => number(i64::from_be_bytes(self.array()?) as f64),
            0xdc | 0xdd => {
                let length = self.length(if mark == 0xdc { 2 } else { 4 })?;
                self.list(length, depth)
            }
            0xde | 0xdf => {
                let length = self.length(if mark == 0xde { 2 } else { 4 })?;
                self.map(length, depth)
            }
            _ => Err(raised(self.lua, "Bad data format in input.")),
        }
    }
}
