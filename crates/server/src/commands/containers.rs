//! Commands of which each argument behind the name is a command of its own: ACL, CLIENT, COMMAND,
//! CONFIG, FUNCTION, LATENCY, MEMORY, MODULE, OBJECT, PUBSUB, SCRIPT, SLOWLOG, XGROUP and XINFO.
//! Their subcommands, with arity and help.
//!
//! A subcommand that is unknown or has another number of arguments is refused before its handler
//! runs, so that EXEC refuses a transaction with it.

use super::table::{Id, Spec, find};
use super::{Call, QUOTED_AT_MOST, lower, quoted};
use crate::wrong::Wrong;

/// A subcommand: name, arity as in the table of commands (both names count), its other arguments
/// and a sentence for HELP.
pub(super) type Sub = (&'static str, i8, &'static str, &'static str);

const ACL: &[Sub] = &[
    ("cat", -2, "[<category>]", "Return the categories, or the commands of one."),
    ("deluser", -3, "<user> [...]", "Delete users, and disconnect their clients."),
    ("dryrun", -4, "<user> <command> [<arg> ...]", "Return OK if a user may carry out a command."),
    ("genpass", -2, "[<bits>]", "Return random hexadecimal digits."),
    ("getuser", 3, "<user>", "Return the rights of a user."),
    ("list", 2, "", "Return the rights of all users."),
    ("load", 2, "", "Replace the users by those of the file."),
    ("log", -2, "[<count>|RESET]", "Return what users were refused, or forget it."),
    ("save", 2, "", "Write the users into the file."),
    ("setuser", -3, "<user> [<rule> ...]", "Make or change a user."),
    ("users", 2, "", "Return the names of all users."),
    ("whoami", 2, "", "Return the user of the connection."),
];

const CLIENT: &[Sub] = &[
    ("caching", 3, "(YES|NO)", "Track the keys of the next command, or do not."),
    ("getname", 2, "", "Return the name of the connection."),
    ("getredir", 2, "", "Return the connection that gets the invalidations of this one."),
    ("id", 2, "", "Return the number of the connection."),
    ("info", 2, "", "Return information about the connection."),
    (
        "kill",
        -3,
        "<ip:port>|<option> <value> [...]",
        "Close connections: ADDR, LADDR, ID, TYPE, USER, MAXAGE, SKIPME.",
    ),
    ("list", -2, "[TYPE (normal|pubsub) | ID <id> [...]]", "Return information about connections."),
    ("no-evict", 3, "(ON|OFF)", "Keep the connection whatever memory it takes (maxmemory-clients)."),
    ("no-touch", 3, "(ON|OFF)", "Accepted; accesses are not kept."),
    ("pause", -3, "<milliseconds> [WRITE|ALL]", "Have the commands of all clients wait."),
    ("reply", 3, "(ON|OFF|SKIP)", "Choose the replies that are sent."),
    ("setinfo", 4, "<option> <value>", "Set LIB-NAME or LIB-VER."),
    ("setname", 3, "<name>", "Name the connection."),
    ("unblock", -3, "<id> [TIMEOUT|ERROR]", "End the wait of a connection's command."),
    ("unpause", 2, "", "End the pause."),
    (
        "tracking",
        -3,
        "(ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
        "Choose the invalidations that the connection gets.",
    ),
    ("trackinginfo", 2, "", "Return how the connection is tracked."),
];

const COMMAND: &[Sub] = &[
    ("count", 2, "", "Return the number of commands."),
    ("docs", -2, "[<name> [...]]", "Return summaries of commands and their arguments."),
    ("getkeys", -3, "<command>", "Return the keys of a command."),
    ("getkeysandflags", -3, "<command>", "Return the keys of a command with their flags."),
    ("info", -2, "[<name> [...]]", "Return details of commands."),
    (
        "list",
        -2,
        "[FILTERBY MODULE <name>|ACLCAT <category>|PATTERN <pattern>]",
        "Return the names of commands.",
    ),
];

const CONFIG: &[Sub] = &[
    ("get", -3, "<pattern> [...]", "Return settings that match."),
    ("resetstat", 2, "", "Reset the statistics of INFO."),
    ("rewrite", 2, "", "Write the settings into the file that they are from."),
    ("set", -4, "<name> <value> [...]", "Change settings."),
];

const FUNCTION: &[Sub] = &[
    ("delete", 3, "<library>", "Delete a library."),
    ("dump", 2, "", "Return all libraries as one string, for RESTORE."),
    ("flush", -2, "[ASYNC|SYNC]", "Delete all libraries."),
    ("kill", 2, "", "End the function that runs for too long."),
    ("list", -2, "[LIBRARYNAME <pattern>] [WITHCODE]", "Return the libraries and their functions."),
    ("load", -3, "[REPLACE] <code>", "Add a library."),
    ("restore", -3, "<payload> [FLUSH|APPEND|REPLACE]", "Add the libraries of a string of DUMP."),
    ("stats", 2, "", "Return the function that runs, and the numbers of libraries and functions."),
];

const LATENCY: &[Sub] = &[
    ("doctor", 2, "", "Return the slow events in sentences."),
    ("graph", 3, "<event>", "Return a picture of the times of an event."),
    ("histogram", -2, "[<command> [...]]", "Return histograms of the times of commands."),
    ("history", 3, "<event>", "Return the times of an event."),
    ("latest", 2, "", "Return the last time of each event."),
    ("reset", -2, "[<event> [...]]", "Forget events, or all."),
];

const MEMORY: &[Sub] = &[
    ("doctor", 2, "", "Return the parts of the memory in sentences."),
    ("malloc-stats", 2, "", "Return that the allocator tells nothing."),
    ("stats", 2, "", "Return the parts of the memory."),
    ("usage", -3, "<key> [SAMPLES <count>]", "Return an estimate of the bytes that a key takes."),
];

const MODULE: &[Sub] = &[
    ("list", 2, "", "Return an empty array."),
    ("load", -3, "<path> [<arg> ...]", "Refused; no module can be loaded."),
    ("loadex", -3, "<path> [<option> ...]", "Refused; no module can be loaded."),
    ("unload", 3, "<name>", "Refused; no module is loaded."),
];

const OBJECT: &[Sub] = &[
    ("encoding", 3, "<key>", "Return the form that Redis has for the value of a key."),
    ("freq", 3, "<key>", "Refused; accesses are not counted."),
    ("idletime", 3, "<key>", "Return 0; accesses are not kept."),
    ("refcount", 3, "<key>", "Return 1."),
];

const PUBSUB: &[Sub] = &[
    ("channels", -2, "[<pattern>]", "Return the channels with subscribers."),
    ("numpat", 2, "", "Return the number of patterns with subscribers."),
    ("numsub", -2, "[<channel> [...]]", "Return the numbers of subscribers of channels."),
    ("shardchannels", -2, "[<pattern>]", "Return the shard channels with subscribers."),
    ("shardnumsub", -2, "[<channel> [...]]", "Return the numbers of subscribers of shard channels."),
];

const SCRIPT: &[Sub] = &[
    ("debug", 3, "(YES|SYNC|NO)", "Refused, except for NO; there is no debugger."),
    ("exists", -3, "<sha1> [<sha1> ...]", "Return which scripts are kept."),
    ("flush", -2, "[ASYNC|SYNC]", "Forget all scripts."),
    ("kill", 2, "", "End the script that runs for too long."),
    ("load", 3, "<script>", "Keep a script, and return its hash."),
];

const SLOW_LOG: &[Sub] = &[
    ("get", -2, "[<count>]", "Return the newest entries, 10 by default; -1: all."),
    ("len", 2, "", "Return the number of entries."),
    ("reset", 2, "", "Remove all entries."),
];

const X_GROUP: &[Sub] = &[
    ("create", -5, "<key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]", "Make a group."),
    ("createconsumer", 5, "<key> <group> <consumer>", "Make a consumer of a group."),
    ("delconsumer", 5, "<key> <group> <consumer>", "Remove a consumer with its pending entries."),
    ("destroy", 4, "<key> <group>", "Remove a group with its consumers."),
    ("setid", -5, "<key> <group> <id|$> [ENTRIESREAD <count>]", "Set the last delivered id."),
];

const X_INFO: &[Sub] = &[
    ("consumers", 4, "<key> <group>", "Return the consumers of a group."),
    ("groups", 3, "<key>", "Return the groups of a stream."),
    ("stream", -3, "<key> [FULL [COUNT <count>]]", "Return the properties of a stream."),
];

/// Subcommands of a command; none if it is no container.
pub(super) fn subcommands(id: Id) -> &'static [Sub] {
    match id {
        Id::Acl => ACL,
        Id::Client => CLIENT,
        Id::Command => COMMAND,
        Id::Config => CONFIG,
        Id::Function => FUNCTION,
        Id::Latency => LATENCY,
        Id::Memory => MEMORY,
        Id::Module => MODULE,
        Id::Object => OBJECT,
        Id::PubSub => PUBSUB,
        Id::Script => SCRIPT,
        Id::SlowLog => SLOW_LOG,
        Id::XGroup => X_GROUP,
        Id::XInfo => X_INFO,
        _ => &[],
    }
}

/// Finds a subcommand by its full name, `config|get`, in any case.
pub(super) fn find_sub(name: &[u8]) -> Option<(&'static Spec, &'static Sub)> {
    let name = lower(name);
    let (container, name) = name.split_once('|')?;
    let spec = find(container.as_bytes())?;
    Some((spec, subcommands(spec.id).iter().find(|(of, ..)| *of == name)?))
}

/// Checks the subcommand of a request.
///
/// # Errors
/// The command has none of that name, or it takes another number of arguments.
pub(super) fn check(spec: &Spec, args: &[Vec<u8>]) -> Result<(), Wrong> {
    let subs = subcommands(spec.id);
    let ([_, word, ..], [_, ..]) = (args, subs) else { return Ok(()) };
    let known = subs.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name.as_bytes()));
    let (name, arity) = match known {
        Some((name, arity, ..)) => (*name, *arity),
        None if word.eq_ignore_ascii_case(b"help") => ("help", 2),
        None => {
            let (word, container) = (quoted(word, QUOTED_AT_MOST), spec.name.to_ascii_uppercase());
            return Err(Wrong::err(format_args!("unknown subcommand '{word}'. Try {container} HELP.")));
        }
    };
    let least = usize::from(arity.unsigned_abs());
    match if arity < 0 { args.len() >= least } else { args.len() == least } {
        true => Ok(()),
        false => Err(Wrong::arity(&format!("{}|{name}", spec.name))),
    }
}

/// Name of a request's command, with that of its subcommand: `client|list`.
pub(super) fn full_name(spec: &Spec, args: &[Vec<u8>]) -> String {
    match (subcommands(spec.id), args.get(1)) {
        ([_, ..], Some(word)) => {
            format!("{}|{}", spec.name, quoted(&word.to_ascii_lowercase(), QUOTED_AT_MOST))
        }
        _ => spec.name.to_owned(),
    }
}

/// HELP of a container.
pub(super) fn help(call: &mut Call<'_>, id: Id) {
    let (subs, name) = (subcommands(id), lower(&call.args[0]).to_ascii_uppercase());
    call.out.array(2 * subs.len() + 3);
    call.out.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (name, _, arguments, sentence) in subs {
        let line = format!("{} {arguments}", name.to_ascii_uppercase());
        call.out.simple(line.trim_end());
        call.out.simple(&format!("    {sentence}"));
    }
    call.out.simple("HELP");
    call.out.simple("    Print this help.");
}
