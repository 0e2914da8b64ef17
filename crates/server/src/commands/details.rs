//! Details of commands in COMMAND INFO, LIST and GETKEYSANDFLAGS: their keys with Redis' flags,
//! their subcommands, and the filters of their names.

use super::table::{Id, Keys, Spec, TABLE, find};
use super::{Call, categories, containers};
use crate::pattern::Pattern;
use crate::resp::Encoder;
use crate::server::Uses;
use crate::wrong::Wrong;

/// Flags of the keys of commands: for the first key and the others, if these have other ones.
/// Commands that are not here have [`READS`] or [`CHANGES`] for all keys.
const KEY_FLAGS: &[(&str, &str, &[&str])] = &[
    ("OW insert", "", &["msetnx", "setnx"]),
    ("OW update", "", &["mset", "psetex", "restore", "setex"]),
    ("RM delete", "", &["del", "unlink"]),
    (
        "RO",
        "",
        &[
            "exists",
            "hexists",
            "hlen",
            "hstrlen",
            "llen",
            "object",
            "scard",
            "sismember",
            "strlen",
            "touch",
            "type",
            "watch",
            "xlen",
            "zcard",
        ],
    ),
    ("RW access", "", &["pfcount"]),
    (
        "RW access delete",
        "",
        &[
            "blmpop", "blpop", "brpop", "bzmpop", "bzpopmax", "bzpopmin", "getdel", "lmpop", "lpop", "rpop",
            "spop", "zmpop", "zpopmax", "zpopmin",
        ],
    ),
    (
        "RW delete",
        "",
        &[
            "hdel",
            "lrem",
            "ltrim",
            "srem",
            "xdel",
            "xtrim",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
        ],
    ),
    (
        "RW insert",
        "",
        &["append", "hsetnx", "linsert", "lpush", "lpushx", "pfadd", "rpush", "rpushx", "sadd", "xgroup"],
    ),
    (
        "RW update",
        "",
        &[
            "expire",
            "expireat",
            "geoadd",
            "hmset",
            "hset",
            "lset",
            "persist",
            "pexpire",
            "pexpireat",
            "setrange",
            "xack",
            "xadd",
            "xsetid",
            "zadd",
        ],
    ),
    (
        "OW update",
        "RO access",
        &[
            "bitop",
            "geosearchstore",
            "sdiffstore",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zrangestore",
            "zunionstore",
        ],
    ),
    ("RO access", "OW update", &["copy", "georadius", "georadiusbymember", "sort"]),
    ("RW access delete", "OW insert", &["renamenx"]),
    ("RW access delete", "OW update", &["rename"]),
    ("RW access delete", "RW insert", &["blmove", "brpoplpush", "lmove", "rpoplpush", "smove"]),
    ("RW access insert", "RO access", &["pfmerge"]),
    ("RW update", "RO access", &["sinterstore"]),
];

/// Flags of keys that are only read, and of those that are read and changed.
const READS: &str = "RO access";
const CHANGES: &str = "RW access update";

/// Flags of the first key of a command and of the others.
fn key_flags(spec: &Spec) -> (&'static str, &'static str) {
    let row = KEY_FLAGS.iter().find(|(.., names)| names.contains(&spec.name));
    let changes = spec.flags.has(super::Flags::WRITE) || spec.runs_writer();
    let default = if changes { CHANGES } else { READS };
    match row {
        Some((first, "", _)) => (first, first),
        Some((first, others, _)) => (first, others),
        None => (default, default),
    }
}

/// Returns whether a request reads or writes one of its keys, by the key's number from 0.
pub(super) fn uses(spec: &Spec, args: &[Vec<u8>], number: usize) -> Uses {
    let has_word = |from: usize, words: &[&str]| {
        let mut behind = args.iter().skip(from);
        behind.any(|it| words.iter().any(|word| it.eq_ignore_ascii_case(word.as_bytes())))
    };
    let flags = match spec.id {
        Id::Set if !has_word(3, &["get"]) => "OW update",
        Id::BitField if !has_word(2, &["set", "incrby"]) => READS,
        _ => {
            let (first, others) = key_flags(spec);
            if number == 0 { first } else { others }
        }
    };
    let has = |words: &[&str]| flags.split(' ').any(|flag| words.contains(&flag));
    Uses { reads: has(&["access"]), writes: has(&["insert", "update", "delete"]) }
}

/// GETKEYSANDFLAGS: the keys of a request, each with its flags.
///
/// # Errors
/// The request is none, or has no keys.
pub(super) fn keys_and_flags(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (spec, positions) = keys_of(&call.args[2..])?;
    let (first, others) = key_flags(spec);
    call.out.array(positions.len());
    for (number, at) in positions.into_iter().enumerate() {
        call.out.array(2);
        call.out.bulk(&call.args[at + 2]);
        flags(call.out, if number == 0 { first } else { others });
    }
    Ok(())
}

/// The command of a request and the numbers of the arguments that are keys.
///
/// # Errors
/// The request is none, or has no keys.
pub(super) fn keys_of(request: &[Vec<u8>]) -> Result<(&'static Spec, Vec<usize>), Wrong> {
    let spec = request.first().and_then(|name| find(name)).ok_or(Wrong::err("Invalid command specified"))?;
    if spec.keys == Keys::None {
        return Err(Wrong::err("The command has no key arguments"));
    }
    if !spec.takes(request.len()) {
        return Err(Wrong::err("Invalid number of arguments specified for command"));
    }
    let positions = spec.key_positions(request);
    match positions.is_empty() {
        true => Err(Wrong::err("Invalid arguments specified for command")),
        false => Ok((spec, positions)),
    }
}

fn flags(out: &mut Encoder, flags: &str) {
    let names: Vec<&str> = flags.split(' ').collect();
    out.set(names.len());
    names.into_iter().for_each(|name| out.simple(name));
}

fn tips(out: &mut Encoder, name: &str) {
    let tips = super::tips::of(name);
    out.array(tips.len());
    tips.iter().for_each(|tip| out.simple(tip));
}

/// Adds the last three parts of a command's entry in COMMAND INFO: its tips, the places of its
/// keys, and its subcommands.
pub(super) fn end(out: &mut Encoder, spec: &Spec) {
    tips(out, spec.name);
    key_specs(out, spec);
    let subs = containers::subcommands(spec.id);
    out.array(subs.len());
    subs.iter().for_each(|sub| describe_sub(out, spec, sub));
}

/// An entry of COMMAND INFO for a subcommand.
pub(super) fn describe_sub(out: &mut Encoder, spec: &Spec, (name, arity, ..): &containers::Sub) {
    out.array(10);
    let full_name = format!("{}|{name}", spec.name);
    out.bulk(&full_name);
    out.integer((*arity).into());
    let names = spec.flags.names();
    out.set(names.len());
    names.into_iter().for_each(|name| out.simple(name));
    let (first, last, step) = match spec.keys {
        Keys::Range(first, last, step) => (first as i64, last as i64, step as i64),
        _ => (0, 0, 0),
    };
    [first, last, step].into_iter().for_each(|number| out.integer(number));
    let categories = categories::of_sub(spec, name);
    out.set(categories.len());
    categories.into_iter().for_each(|name| out.simple(&format!("@{name}")));
    tips(out, &full_name);
    key_specs(out, spec);
    out.array(0);
}

fn key_specs(out: &mut Encoder, spec: &Spec) {
    let (first, others) = key_flags(spec);
    match spec.keys {
        Keys::Range(from, last, step) if first != others => {
            out.array(2);
            let (from, step) = (from as i64, step as i64);
            range_spec(out, first, (from, 0, 1));
            range_spec(out, others, (from + step, (last as i64).min(0), step));
        }
        Keys::Range(from, last, step) => {
            out.array(1);
            let last = if last < 0 { last as i64 } else { last as i64 - from as i64 };
            range_spec(out, first, (from as i64, last, step as i64));
        }
        Keys::Counted(at) => {
            out.array(1);
            begin_spec(out, first, at as i64);
            out.bulk("keynum");
            out.bulk("spec");
            out.map(3);
            for (name, number) in [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)] {
                out.bulk(name);
                out.integer(number);
            }
        }
        _ => out.array(0),
    }
}

/// Keys in a row: the argument of the first, the number of the last behind it (negative: from the
/// end) and the step.
fn range_spec(out: &mut Encoder, flags: &str, (first, last, step): (i64, i64, i64)) {
    begin_spec(out, flags, first);
    out.bulk("range");
    out.bulk("spec");
    out.map(3);
    for (name, number) in [("lastkey", last), ("keystep", step), ("limit", 0)] {
        out.bulk(name);
        out.integer(number);
    }
}

/// The beginning of a place of keys, up to how they are found.
fn begin_spec(out: &mut Encoder, of: &str, index: i64) {
    out.map(3);
    out.bulk("flags");
    flags(out, of);
    out.bulk("begin_search");
    out.map(2);
    out.bulk("type");
    out.bulk("index");
    out.bulk("spec");
    out.map(1);
    out.bulk("index");
    out.integer(index);
    out.bulk("find_keys");
    out.map(2);
    out.bulk("type");
}

/// COMMAND LIST: names of commands and of their subcommands, or those that a filter keeps.
///
/// # Errors
/// Another form than `[FILTERBY MODULE|ACLCAT|PATTERN value]`.
pub(super) async fn list(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut found: Vec<(&Spec, String)> = Vec::new();
    for spec in TABLE {
        let subs = containers::subcommands(spec.id).iter();
        found.push((spec, spec.name.to_owned()));
        found.extend(subs.map(|(name, ..)| (spec, format!("{}|{name}", spec.name))));
    }
    match (call.args.len(), &*call.word(3)) {
        (2, _) => {}
        (5, filter) if call.is(2, "filterby") => match filter {
            "module" => found.clear(),
            "aclcat" => {
                let name = call.word(4);
                found.retain(|(spec, full)| match full.split_once('|') {
                    Some((_, sub)) => categories::of_sub(spec, sub).contains(&&*name),
                    None => categories::of(spec).contains(&&*name),
                });
            }
            "pattern" => {
                Pattern::new(&call.args[4])?.retain(&mut found, |(_, name)| name.as_bytes()).await;
            }
            _ => return Err(Wrong::syntax()),
        },
        _ => return Err(Wrong::syntax()),
    }
    call.out.array(found.len());
    found.iter().for_each(|(_, name)| call.out.bulk(name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_flags_of_their_commands() {
        let flags = |name: &str| key_flags(find(name.as_bytes()).unwrap());
        assert_eq!(flags("get"), ("RO access", "RO access"));
        assert_eq!(flags("incr"), ("RW access update", "RW access update"));
        assert_eq!(flags("lmove"), ("RW access delete", "RW insert"));
        assert_eq!(flags("del"), ("RM delete", "RM delete"));
    }
}
