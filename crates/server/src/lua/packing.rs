//! The library `struct`: values as the bytes of structures of C, as Redis has it.

use super::RESULTS_AT_MOST;
use super::errors::raised;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};

/// Largest integer in bytes.
const INTEGER_AT_MOST: usize = 32;
/// Alignment of `!` without a number.
const ALIGNMENT: usize = 8;

/// Makes the library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(|lua, values: MultiValue| pack(lua, &values))?)?;
    table.raw_set("unpack", lua.create_function(|lua, values: MultiValue| unpack(lua, &values))?)?;
    table.raw_set("size", lua.create_function(|lua, values: MultiValue| size(lua, &values))?)?;
    Ok(table)
}

/// A format that is read.
struct Format<'a> {
    lua: &'a Lua,
    text: Vec<u8>,
    at: usize,
    is_big: bool,
    alignment: usize,
}

/// One item of a format: its letter, and the number of its bytes.
struct Item {
    letter: u8,
    size: usize,
}

fn bad(lua: &Lua, at: usize, name: &str, why: &str) -> Error {
    raised(lua, format!("bad argument #{at} to '{name}' ({why})"))
}

fn text_argument(lua: &Lua, values: &MultiValue, at: usize, name: &str) -> Result<Vec<u8>> {
    let value = values.get(at).cloned().unwrap_or(Value::Nil);
    match lua.coerce_string(value)? {
        Some(text) => Ok(text.as_bytes().to_vec()),
        None => {
            let found = values.get(at).map_or("no value", Value::type_name);
            Err(bad(lua, at + 1, name, &format!("string expected, got {found}")))
        }
    }
}

fn number_argument(lua: &Lua, values: &MultiValue, at: usize, name: &str) -> Result<f64> {
    let value = values.get(at).cloned().unwrap_or(Value::Nil);
    lua.coerce_number(value)?.ok_or_else(|| {
        let found = values.get(at).map_or("no value", Value::type_name);
        bad(lua, at + 1, name, &format!("number expected, got {found}"))
    })
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, text: Vec<u8>) -> Self {
        Self { lua, text, at: 0, is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The number at this place of the format.
    fn number(&mut self, default: usize) -> Result<usize> {
        let mut number = None;
        while let Some(digit) = self.text.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            let next = number.unwrap_or(0i32).checked_mul(10);
            let next = next.and_then(|next| next.checked_add((digit - b'0').into()));
            number = Some(next.ok_or_else(|| raised(self.lua, "integral size overflow"))?);
            self.at += 1;
        }
        Ok(number.map_or(default, |number| number as usize))
    }

    /// The next item that stands for bytes, and the bytes of padding before it, behind `total`
    /// bytes.
    fn next(&mut self, total: usize) -> Result<Option<(Item, usize)>> {
        while let Some(&letter) = self.text.get(self.at).filter(|byte| **byte != 0) {
            self.at += 1;
            let size = match letter {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'f' => 4,
                b's' => 0,
                b'c' => self.number(1)?,
                b'i' | b'I' => match self.number(4)? {
                    size @ 1..=INTEGER_AT_MOST => size,
                    size => {
                        let what = "is larger than limit of";
                        let text = format!("integral size {size} {what} {INTEGER_AT_MOST}");
                        return Err(raised(self.lua, text));
                    }
                },
                b' ' => continue,
                b'>' => {
                    self.is_big = true;
                    continue;
                }
                b'<' => {
                    self.is_big = false;
                    continue;
                }
                b'!' => {
                    self.alignment = self.number(ALIGNMENT)?;
                    if !self.alignment.is_power_of_two() {
                        let text = format!("alignment {} is not a power of 2", self.alignment);
                        return Err(raised(self.lua, text));
                    }
                    continue;
                }
                other => {
                    let text = format!("invalid format option '{}'", char::from(other));
                    return Err(bad(self.lua, 1, "pack", &text));
                }
            };
            let padding = match (size, letter) {
                (0, _) | (_, b'c') => 0,
                _ => {
                    // Wrapping, because the size of an integer may be no power of two.
                    let mask = size.min(self.alignment) - 1;
                    size.min(self.alignment).wrapping_sub(total & mask) & mask
                }
            };
            return Ok(Some((Item { letter, size }, padding)));
        }
        Ok(None)
    }
}

/// Bytes of an integer: those of 64 bits, and zeros.
fn integer_bytes(number: f64, size: usize, is_big: bool) -> Vec<u8> {
    let value = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(size, 0);
    if is_big {
        bytes.reverse();
    }
    bytes
}

fn integer_of(bytes: &[u8], is_signed: bool, is_big: bool) -> f64 {
    let mut bytes = bytes.to_vec();
    if !is_big {
        bytes.reverse();
    }
    let value = bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let bits = (8 * bytes.len()).min(64) as u32;
    match is_signed {
        true => ((value << (64 - bits)).cast_signed() >> (64 - bits)) as f64,
        false => value as f64,
    }
}

fn pack(lua: &Lua, values: &MultiValue) -> Result<mlua::LuaString> {
    let mut format = Format::new(lua, text_argument(lua, values, 0, "pack")?);
    let (mut out, mut argument) = (Vec::new(), 1);
    while let Some((item, padding)) = format.next(out.len())? {
        // The buffer is outside of the machine's memory.
        if out.len() > super::MEMORY_AT_MOST {
            return Err(raised(lua, "not enough memory"));
        }
        out.resize(out.len() + padding, 0);
        match item.letter {
            b'x' => out.push(0),
            b's' | b'c' => {
                let text = text_argument(lua, values, argument, "pack")?;
                argument += 1;
                let size = if item.size == 0 { text.len() } else { item.size };
                let taken = text.get(..size);
                out.extend(taken.ok_or_else(|| bad(lua, argument + 1, "pack", "string too short"))?);
                if item.letter == b's' {
                    out.push(0);
                }
            }
            letter => {
                let number = number_argument(lua, values, argument, "pack")?;
                argument += 1;
                match (letter, format.is_big) {
                    (b'f', true) => out.extend((number as f32).to_be_bytes()),
                    (b'f', false) => out.extend((number as f32).to_le_bytes()),
                    (b'd', true) => out.extend(number.to_be_bytes()),
                    (b'd', false) => out.extend(number.to_le_bytes()),
                    (_, is_big) => out.extend(integer_bytes(number, item.size, is_big)),
                }
            }
        }
    }
    lua.create_string(out)
}

fn unpack(lua: &Lua, values: &MultiValue) -> Result<MultiValue> {
    let mut format = Format::new(lua, text_argument(lua, values, 0, "unpack")?);
    let data = text_argument(lua, values, 1, "unpack")?;
    let offset = match values.get(2) {
        None | Some(Value::Nil) => 1,
        Some(_) => number_argument(lua, values, 2, "unpack")? as i64,
    };
    let mut at = usize::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
    let at = at.as_mut().ok_or_else(|| bad(lua, 3, "unpack", "offset must be 1 or greater"))?;
    let mut found = MultiValue::new();
    while let Some((item, padding)) = format.next(*at)? {
        if found.len() >= RESULTS_AT_MOST {
            return Err(raised(lua, "too many results to unpack"));
        }
        let short = || bad(lua, 2, "unpack", "data string too short");
        *at = at.saturating_add(padding);
        let mut size = item.size;
        let rest = data.get(*at..).ok_or_else(short)?;
        let bytes = rest.get(..size).ok_or_else(short)?;
        let wide = |bytes: &[u8]| -> [u8; 8] { bytes.try_into().unwrap_or_default() };
        let narrow = |bytes: &[u8]| -> [u8; 4] { bytes.try_into().unwrap_or_default() };
        match (item.letter, format.is_big) {
            (b'x', _) => {}
            (b'f', true) => found.push_back(Value::Number(f32::from_be_bytes(narrow(bytes)).into())),
            (b'f', false) => found.push_back(Value::Number(f32::from_le_bytes(narrow(bytes)).into())),
            (b'd', true) => found.push_back(Value::Number(f64::from_be_bytes(wide(bytes)))),
            (b'd', false) => found.push_back(Value::Number(f64::from_le_bytes(wide(bytes)))),
            (b'c', _) => {
                let bytes = match size {
                    0 => {
                        // The number before it says how long it is.
                        let length = match found.pop_back() {
                            Some(Value::Number(length)) => length as i64,
                            Some(Value::Integer(length)) => length,
                            _ => return Err(raised(lua, "format 'c0' needs a previous size")),
                        };
                        size = usize::try_from(length).map_err(|_| short())?;
                        rest.get(..size).ok_or_else(short)?
                    }
                    _ => bytes,
                };
                found.push_back(Value::String(lua.create_string(bytes)?));
            }
            (b's', _) => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| raised(lua, "unfinished string in data"))?;
                found.push_back(Value::String(lua.create_string(&rest[..end])?));
                size = end + 1;
            }
            (letter, is_big) => {
                let number = integer_of(bytes, letter.is_ascii_lowercase(), is_big);
                found.push_back(Value::Number(number));
            }
        }
        *at += size;
    }
    found.push_back(Value::Number((*at + 1) as f64));
    Ok(found)
}

fn size(lua: &Lua, values: &MultiValue) -> Result<f64> {
    let mut format = Format::new(lua, text_argument(lua, values, 0, "size")?);
    let mut total = 0usize;
    while let Some((item, padding)) = format.next(total)? {
        if item.letter == b's' {
            return Err(bad(lua, 1, "size", "option 's' has no fixed size"));
        }
        if item.letter == b'c' && item.size == 0 {
            return Err(bad(lua, 1, "size", "option 'c0' has no fixed size"));
        }
        total = total.saturating_add(padding).saturating_add(item.size);
    }
    Ok(total as f64)
}
