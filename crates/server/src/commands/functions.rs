//! FUNCTION and SCRIPT: libraries of functions, which the database keeps, and scripts, which the
//! server keeps in memory.
//!
//! A change of libraries is written when it is answered, also within EXEC, whose writes are others.

use super::machines::compile;
use super::table::Id;
use super::{Call, QUOTED_AT_MOST, containers, quoted};
use crate::lua::{Library, sha1_hex};
use crate::pattern::Pattern;
use crate::rdb::{self, Checksum, split_footer};
use crate::server::RestorePolicy;
use crate::wrong::Wrong;
use std::sync::Arc;

pub(super) async fn function(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (libraries, store) = (call.server.libraries(), call.server.store());
    let (env, durability) = (call.server.env(), call.server.settings().durability());
    match (&*call.word(1), call.args) {
        ("load", [_, _, options @ .., code]) => {
            let mut replaces = false;
            for option in options {
                if !option.eq_ignore_ascii_case(b"replace") {
                    let option = quoted(option, QUOTED_AT_MOST);
                    return Err(Wrong::err(format_args!("Unknown option given: {option}")));
                }
                replaces = true;
            }
            let name = libraries.add(code, replaces, store, env, durability).await?;
            call.out.bulk(name);
        }
        ("delete", [_, _, name]) => {
            let name = String::from_utf8_lossy(name);
            if !libraries.remove(&name, store, durability).await? {
                return Err(Wrong::err("Library not found"));
            }
            call.out.ok();
        }
        ("flush", [_, _]) => {
            libraries.flush(store, durability).await?;
            call.out.ok();
        }
        ("flush", [_, _, _]) if call.is(2, "sync") || call.is(2, "async") => {
            libraries.flush(store, durability).await?;
            call.out.ok();
        }
        ("flush", [_, _, _]) => return Err(Wrong::err("FUNCTION FLUSH only supports SYNC|ASYNC option")),
        ("flush", _) => return Err(wrong_number(call)),
        ("kill", _) => {
            call.server.scripts().kill(true)?;
            call.out.ok();
        }
        ("dump", _) => {
            let known = libraries.now();
            let mut writer = rdb::Writer::of_libraries();
            known.all().for_each(|library| writer.library(&library.code));
            call.out.bulk(writer.sealed());
        }
        ("restore", [_, _, payload, options @ ..]) => {
            let policy = match options {
                [] => RestorePolicy::Append,
                [word] if word.eq_ignore_ascii_case(b"append") => RestorePolicy::Append,
                [word] if word.eq_ignore_ascii_case(b"replace") => RestorePolicy::Replace,
                [word] if word.eq_ignore_ascii_case(b"flush") => RestorePolicy::Flush,
                [_] => {
                    return Err(Wrong::err(
                        "Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
                    ));
                }
                _ => return Err(wrong_number(call)),
            };
            let codes = codes_of(payload)?;
            libraries.restore(&codes, policy, store, env, durability).await?;
            call.out.ok();
        }
        ("list", _) => list(call).await?,
        ("stats", _) => stats(call),
        _ => containers::help(call, Id::Function),
    }
    Ok(())
}

/// The error for a subcommand with another number of arguments.
fn wrong_number(call: &Call<'_>) -> Wrong {
    let word = quoted(&call.args[1], QUOTED_AT_MOST);
    let what = "unknown subcommand or wrong number of arguments for";
    Wrong::err(format_args!("{what} '{word}'. Try FUNCTION HELP."))
}

/// The code of the libraries in a payload of DUMP.
fn codes_of(payload: &[u8]) -> Result<Vec<Vec<u8>>, Wrong> {
    let wrong = |_| Wrong::err("DUMP payload version or checksum are wrong");
    let (body, summed, expected) = split_footer(payload).map_err(wrong)?;
    let mut sum = Checksum::default();
    sum.add(summed);
    if expected != 0 && sum.sum() != expected {
        return Err(Wrong::err("DUMP payload version or checksum are wrong"));
    }
    rdb::libraries(body).map_err(Wrong::err)
}

async fn list(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (mut with_code, mut pattern, mut at) = (false, None, 2);
    while at < call.args.len() {
        match &*call.word(at) {
            "withcode" if !with_code => with_code = true,
            "libraryname" if pattern.is_none() => {
                at += 1;
                let given = call.args.get(at).ok_or(Wrong::err("library name argument was not given"))?;
                pattern = Some(given.to_ascii_lowercase());
            }
            _ => {
                let word = quoted(&call.args[at], QUOTED_AT_MOST);
                return Err(Wrong::err(format_args!("Unknown argument {word}")));
            }
        }
        at += 1;
    }
    let known = call.server.libraries().now();
    let mut found: Vec<(String, &Arc<Library>)> =
        known.all().map(|library| (library.name.to_ascii_lowercase(), library)).collect();
    if let Some(pattern) = &pattern {
        Pattern::new(pattern)?.retain(&mut found, |(name, _)| name.as_bytes()).await;
    }
    let out = &mut *call.out;
    out.array(found.len());
    for (_, library) in found {
        out.map(if with_code { 4 } else { 3 });
        out.bulk("library_name");
        out.bulk(&library.name);
        out.bulk("engine");
        out.bulk("LUA");
        out.bulk("functions");
        out.array(library.functions.len());
        for function in &library.functions {
            out.map(3);
            out.bulk("name");
            out.bulk(&function.name);
            out.bulk("description");
            out.optional_bulk(function.description.as_ref());
            out.bulk("flags");
            let flags = function.flags.names();
            out.set(flags.len());
            flags.into_iter().for_each(|flag| out.simple(flag));
        }
        if with_code {
            out.bulk("library_code");
            out.bulk(&library.code);
        }
    }
    Ok(())
}

fn stats(call: &mut Call<'_>) {
    let (libraries, functions, _) = call.server.libraries().now().sizes();
    let running = call.server.scripts().running();
    let now = call.server.env().now();
    let out = &mut *call.out;
    out.map(2);
    out.bulk("running_script");
    match running {
        Some(script) => {
            out.map(3);
            out.bulk("name");
            out.bulk(&script.name);
            out.bulk("command");
            out.array(script.command.len());
            script.command.iter().for_each(|argument| out.bulk(argument));
            out.bulk("duration_ms");
            let millis = now.saturating_sub(script.since).as_millis();
            out.integer(i64::try_from(millis).unwrap_or(i64::MAX));
        }
        None => out.null(),
    }
    out.bulk("engines");
    out.map(1);
    out.bulk("LUA");
    out.map(2);
    out.bulk("libraries_count");
    out.count(libraries);
    out.bulk("functions_count");
    out.count(functions);
}

pub(super) async fn script(call: &mut Call<'_>) -> Result<(), Wrong> {
    let scripts = call.server.scripts();
    match (&*call.word(1), call.args) {
        ("load", [_, _, text]) => {
            let sha = sha1_hex(text);
            match scripts.find(&sha) {
                Some(script) => scripts.add(&script, true)?,
                None => {
                    drop(compile(call.server, !call.session.is_in_exec(), sha.clone(), text, true).await?)
                }
            }
            call.out.bulk(sha);
        }
        ("exists", [_, _, hashes @ ..]) => {
            call.out.array(hashes.len());
            for sha in hashes {
                let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
                call.out.integer(scripts.has(&sha).into());
            }
        }
        ("flush", [_, _]) => {
            scripts.flush();
            call.out.ok();
        }
        ("flush", [_, _, _]) if call.is(2, "sync") || call.is(2, "async") => {
            scripts.flush();
            call.out.ok();
        }
        ("flush", _) => return Err(Wrong::err("SCRIPT FLUSH only support SYNC|ASYNC option")),
        ("kill", _) => {
            scripts.kill(false)?;
            call.out.ok();
        }
        ("debug", _) if call.is(2, "no") => call.out.ok(),
        ("debug", _) if call.is(2, "yes") || call.is(2, "sync") => {
            return Err(Wrong::err("the debugger of scripts is not served"));
        }
        ("debug", _) => return Err(Wrong::err("Use SCRIPT DEBUG YES/SYNC/NO")),
        _ => containers::help(call, Id::Script),
    }
    Ok(())
}

/// EVAL and its relatives run other handlers, so that `scripting` carries them out beside the
/// table.
pub(super) async fn run(_: &mut Call<'_>) -> Result<(), Wrong> {
    Err(Wrong::err("This Redis command is not allowed from script"))
}
