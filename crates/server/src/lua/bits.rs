//! The library `bit`: operations on integers of 32 bits, as LuaBitOp has them.

use super::errors::raised;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// The number as an integer of 32 bits: rounded, and modulo 2^32.
fn bits_of(lua: &Lua, values: &MultiValue, at: usize, name: &str) -> Result<u32> {
    let value = values.get(at).cloned().unwrap_or(Value::Nil);
    match lua.coerce_number(value.clone())? {
        // Adding 2^52 + 2^51 leaves the integer in the lower bits of the fraction.
        Some(number) => Ok((number + 6_755_399_441_055_744.0).to_bits() as u32),
        None => {
            let found = if at < values.len() { value.type_name() } else { "no value" };
            let text = format!("bad argument #{} to '{name}' (number expected, got {found})", at + 1);
            Err(raised(lua, text))
        }
    }
}

fn signed(bits: u32) -> f64 {
    f64::from(bits.cast_signed())
}

/// Makes the library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    type One = fn(u32) -> u32;
    let ones: [(&'static str, One); 3] =
        [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", |bits| bits.swap_bytes())];
    for (name, of) in ones {
        let f = lua.create_function(move |lua, values: MultiValue| {
            Ok(signed(of(bits_of(lua, &values, 0, name)?)))
        })?;
        table.raw_set(name, f)?;
    }
    type Two = fn(u32, u32) -> u32;
    let folds: [(&'static str, Two); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, of) in folds {
        let f = lua.create_function(move |lua, values: MultiValue| {
            let mut bits = bits_of(lua, &values, 0, name)?;
            for at in 1..values.len() {
                bits = of(bits, bits_of(lua, &values, at, name)?);
            }
            Ok(signed(bits))
        })?;
        table.raw_set(name, f)?;
    }
    let shifts: [(&'static str, Two); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, of) in shifts {
        let f = lua.create_function(move |lua, values: MultiValue| {
            let (bits, by) = (bits_of(lua, &values, 0, name)?, bits_of(lua, &values, 1, name)?);
            Ok(signed(of(bits, by & 31)))
        })?;
        table.raw_set(name, f)?;
    }
    let hex = lua.create_function(|lua, values: MultiValue| {
        let bits = bits_of(lua, &values, 0, "tohex")?;
        let count = match values.len() {
            0 | 1 => 8,
            _ => bits_of(lua, &values, 1, "tohex")?.cast_signed(),
        };
        let digits = count.unsigned_abs().min(8) as usize;
        let text = if count < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
        Ok(text[8 - digits..].to_owned())
    })?;
    table.raw_set("tohex", hex)?;
    Ok(table)
}
