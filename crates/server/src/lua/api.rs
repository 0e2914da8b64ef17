//! The table `redis` of scripts, except for the functions that suspend the machine.

use super::errors::{Raise, error_table, raised, raised_reply};
use super::source::{FunctionMeta, ScriptFlags, is_name, sha1_hex};
use super::state::State;
use crate::numbers::general_text;
use crate::resp::Protocol;
use karstdb::io::report;
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use std::rc::Rc;

/// Version that scripts see, as INFO says it.
const VERSION: &str = crate::lua::REDIS_VERSION;
/// `VERSION` with a byte for each part.
const VERSION_NUMBER: i32 = 0x0007_0402;

/// Levels of `redis.log`.
const LEVELS: [(&str, i32); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];

/// Arguments of `redis.call` as those of a command.
///
/// # Errors
/// There is none, or one is no text and no number.
pub(super) fn arguments(values: &MultiValue) -> std::result::Result<Vec<Vec<u8>>, Raise> {
    if values.is_empty() {
        return Err(Raise::Reply("ERR Please specify at least one argument for this redis lib call"));
    }
    let mut args = Vec::with_capacity(values.len());
    for value in values {
        args.push(match value {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Number(number) => number_text(*number).into_bytes(),
            _ => return Err(Raise::Reply("ERR Lua redis lib command arguments must be strings or integers")),
        });
    }
    Ok(args)
}

/// Text of a number as an argument.
fn number_text(number: f64) -> String {
    let whole = number as i64;
    if whole as f64 == number && whole != i64::MAX { whole.to_string() } else { general_text(number, 17) }
}

/// The table of a script, without `call` and `pcall`, and that of a library that is loaded.
pub(super) fn tables(lua: &Lua, state: &Rc<State>) -> Result<(Table, Table)> {
    let (table, of_load) = (lua.create_table()?, lua.create_table()?);
    for table in [&table, &of_load] {
        table.raw_set("REDIS_VERSION", VERSION)?;
        table.raw_set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
        table.raw_set("log", lua.create_function(log)?)?;
        for (name, level) in LEVELS {
            table.raw_set(name, level)?;
        }
    }
    for (name, flags) in [("NONE", 0), ("AOF", 1), ("SLAVE", 2), ("REPLICA", 2), ("ALL", 3)] {
        table.raw_set(format!("REPL_{name}"), flags)?;
    }
    let of = state.clone();
    let set_protocol = lua.create_function(move |lua, values: MultiValue| {
        inside(&of, "redis.setresp")?;
        if values.len() != 1 {
            return Err(raised_reply("ERR redis.setresp() requires one argument."));
        }
        of.protocol.set(match lua.coerce_number(values[0].clone())? {
            Some(2.0) => Protocol::Two,
            Some(3.0) => Protocol::Three,
            _ => return Err(raised_reply("ERR RESP version must be 2 or 3.")),
        });
        Ok(())
    })?;
    table.raw_set("setresp", set_protocol)?;
    let of = state.clone();
    let set_replication = lua.create_function(move |lua, values: MultiValue| {
        inside(&of, "redis.set_repl")?;
        if values.len() != 1 {
            return Err(raised_reply("ERR redis.set_repl() requires two arguments."));
        }
        let flags = lua.coerce_number(values[0].clone())?.unwrap_or(0.0) as i64;
        if flags & !3 != 0 {
            let text = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
            return Err(raised_reply(text));
        }
        Ok(())
    })?;
    table.raw_set("set_repl", set_replication)?;
    table.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    table.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set("sha1hex", lua.create_function(sha1)?)?;
    let error_reply = lua.create_function(|lua, values: MultiValue| {
        let Some(text) = single_text(&values) else { return wrong_arguments(lua) };
        // Without a code it gets one.
        let text = match text.strip_prefix(b"-") {
            Some(text) => text.to_vec(),
            None => text,
        };
        let text = if text.contains(&b' ') { text } else { [b"ERR ", &text[..]].concat() };
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
        error_table(lua, lua.create_string(&text[..end])?)
    })?;
    table.raw_set("error_reply", error_reply)?;
    let status_reply = lua.create_function(|lua, values: MultiValue| {
        let Some(text) = single_text(&values) else { return wrong_arguments(lua) };
        let table = lua.create_table()?;
        table.raw_set("ok", lua.create_string(text)?)?;
        Ok(table)
    })?;
    table.raw_set("status_reply", status_reply)?;
    Ok((table, of_load))
}

/// Checks that a script runs.
pub(super) fn inside(state: &State, name: &str) -> Result<()> {
    match state.is_running.get() {
        true => Ok(()),
        false => Err(raised_reply(format!("ERR {name} can only be called inside a script invocation"))),
    }
}

fn single_text(values: &MultiValue) -> Option<Vec<u8>> {
    match (values.len(), values.front()) {
        (1, Some(Value::String(text))) => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

fn wrong_arguments(lua: &Lua) -> Result<Table> {
    error_table(lua, "ERR wrong number or type of arguments")
}

fn sha1(lua: &Lua, values: MultiValue) -> Result<String> {
    if values.len() != 1 {
        return Err(raised_reply("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(values[0].clone())?;
    Ok(text.map_or_else(|| sha1_hex(b""), |text| sha1_hex(&text.as_bytes())))
}

fn log(lua: &Lua, values: MultiValue) -> Result<()> {
    if values.len() < 2 {
        return Err(raised_reply("ERR redis.log() requires two arguments or more."));
    }
    let Some(level) = lua.coerce_number(values[0].clone())? else {
        return Err(raised_reply("ERR First argument must be a number (log level)."));
    };
    let mut text = String::new();
    for value in values.iter().skip(1) {
        if let Some(part) = lua.coerce_string(value.clone())? {
            if !text.is_empty() {
                text.push(' ');
            }
            text += &part.to_string_lossy();
        }
    }
    match level as i64 {
        0 | 1 => {}
        2 => report!(info, "a script: {text}"),
        3 => report!(warn, "a script: {text}"),
        _ => return Err(raised_reply("ERR Invalid debug level.")),
    }
    Ok(())
}

/// `math.random` and `math.randomseed`, whose numbers follow from the seed.
pub(super) fn random(lua: &Lua, state: &Rc<State>) -> Result<(Function, Function)> {
    let of = state.clone();
    let random = lua.create_function(move |lua, values: MultiValue| {
        let fraction = f64::from(next_random(&of) % RANDOM_AT_MOST) / f64::from(RANDOM_AT_MOST);
        let bound = |at: usize| -> Result<f64> {
            let number = lua.coerce_number(values[at].clone())?;
            let found = values[at].type_name();
            let text = format!("bad argument #{} to 'random' (number expected, got {found})", at + 1);
            // As an integer of 32 bits.
            number.map(|number| f64::from(number as i32)).ok_or_else(|| raised(lua, text))
        };
        let (least, most) = match values.len() {
            0 => return Ok(fraction),
            1 => (1.0, bound(0)?),
            2 => (bound(0)?, bound(1)?),
            _ => return Err(raised(lua, "wrong number of arguments")),
        };
        if least > most {
            let text = format!("bad argument #{} to 'random' (interval is empty)", values.len());
            return Err(raised(lua, text));
        }
        Ok((fraction * (most - least + 1.0)).floor() + least)
    })?;
    let of = state.clone();
    let seed = lua.create_function(move |lua, values: MultiValue| {
        let number = values.front().cloned().unwrap_or(Value::Nil);
        let Some(number) = lua.coerce_number(number)? else {
            return Err(raised(lua, "bad argument #1 to 'randomseed' (number expected, got no value)"));
        };
        of.random.set(seeded(number as i64 as u32));
        Ok(())
    })?;
    Ok((random, seed))
}

/// The largest random number, which is never given.
const RANDOM_AT_MOST: i32 = i32::MAX;

/// State of the generator behind a seed.
fn seeded(seed: u32) -> u64 {
    u64::from(seed) << 16 | 0x330e
}

/// The next number of the generator of `lrand48`.
fn next_random(state: &State) -> i32 {
    let next = state.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
    state.random.set(next);
    (next >> 17) as i32
}

/// `redis.register_function`.
pub(super) fn register(lua: &Lua, state: &Rc<State>) -> Result<Function> {
    let of = state.clone();
    lua.create_function(move |_, values: MultiValue| {
        let mut registered = of.registered.borrow_mut();
        let Some(functions) = registered.as_mut() else {
            let text = "ERR redis.register_function can only be called on FUNCTION LOAD command";
            return Err(raised_reply(text));
        };
        let (meta, callback) = registration(&values)?;
        if !is_name(meta.name.as_bytes()) {
            let text = "ERR Library names can only contain letters, numbers, or underscores(_) and must be \
                        at least one character long";
            return Err(raised_reply(text));
        }
        if functions.iter().any(|(known, _)| known.name == meta.name) {
            return Err(raised_reply("ERR Function already exists in the library"));
        }
        functions.push((meta, callback));
        Ok(())
    })
}

/// The function that arguments of `redis.register_function` describe.
fn registration(values: &MultiValue) -> Result<(FunctionMeta, Function)> {
    let wrong = |text: &str| raised_reply(format!("ERR {text}"));
    // A number is taken as its text.
    let name_of = |value: &Value| match value {
        Value::String(text) => Some(text.to_string_lossy()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Number(number) => Some(general_text(*number, 14)),
        _ => None,
    };
    let mut flags = ScriptFlags { is_declared: true, ..ScriptFlags::default() };
    match values.iter().collect::<Vec<_>>()[..] {
        [name, callback] => {
            let name = name_of(name);
            let name = name.ok_or(wrong("first argument to redis.register_function must be a string"))?;
            let Value::Function(callback) = callback else {
                return Err(wrong("second argument to redis.register_function must be a function"));
            };
            Ok((FunctionMeta { name, description: None, flags }, callback.clone()))
        }
        [Value::Table(table)] => {
            let (mut name, mut callback, mut description) = (None, None, None);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                let key = name_of(&key);
                let text = "named argument key given to redis.register_function is not a string";
                match (&*key.ok_or(wrong(text))?.to_ascii_lowercase(), value) {
                    ("function_name", value) => {
                        let text = "function_name argument given to redis.register_function must be a string";
                        name = Some(name_of(&value).ok_or(wrong(text))?);
                    }
                    ("description", Value::String(text)) => description = Some(text.as_bytes().to_vec()),
                    ("description", _) => {
                        let text = "description argument given to redis.register_function must be a string";
                        return Err(wrong(text));
                    }
                    ("callback", Value::Function(function)) => callback = Some(function),
                    ("callback", _) => {
                        let text = "callback argument given to redis.register_function must be a function";
                        return Err(wrong(text));
                    }
                    ("flags", Value::Table(names)) => set_flags(&mut flags, &names)?,
                    ("flags", _) => {
                        let text = "flags argument to redis.register_function must be a table representing \
                                    function flags";
                        return Err(wrong(text));
                    }
                    _ => return Err(wrong("unknown argument given to redis.register_function")),
                }
            }
            let name = name.ok_or(wrong("redis.register_function must get a function name argument"))?;
            let callback = callback.ok_or(wrong("redis.register_function must get a callback argument"))?;
            Ok((FunctionMeta { name, description, flags }, callback))
        }
        [_] => Err(wrong(
            "calling redis.register_function with a single argument is only applicable to Lua table \
             (representing named arguments).",
        )),
        _ => Err(wrong("wrong number of arguments to redis.register_function")),
    }
}

fn set_flags(flags: &mut ScriptFlags, names: &Table) -> Result<()> {
    for at in 1usize.. {
        match names.raw_get(at)? {
            Value::Nil => break,
            Value::String(name) if flags.set(&name.as_bytes()) => {}
            _ => return Err(raised_reply("ERR unknown flag given")),
        }
    }
    Ok(())
}
