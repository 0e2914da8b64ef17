//! MONITOR and SLOWLOG, which show operators the commands that run.

use super::table::{Flags, Id, Spec};
use super::{Call, containers, lower, numbering};
use crate::numbers::integer_argument;
use crate::server::{OperationSetting, Server, SwitchSetting};
use crate::session::Session;
use crate::wrong::Wrong;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// Number of entries of SLOWLOG GET without a count.
const ENTRIES: usize = 10;

/// The arguments without passwords.
fn redacted(args: &[Vec<u8>]) -> Cow<'_, [Vec<u8>]> {
    let word = |at: usize| args.get(at).map(|word| lower(word)).unwrap_or_default();
    let secret: Vec<usize> = match &*word(0) {
        "auth" => (1..args.len()).collect(),
        "hello" => secrets_of_hello(args),
        "acl" if word(1) == "setuser" => (2..args.len()).collect(),
        "config" => (2..args.len()).filter(|at| at % 2 == 1 && word(at - 1) == "requirepass").collect(),
        _ => return Cow::Borrowed(args),
    };
    let mut args = args.to_vec();
    for at in secret {
        if let Some(argument) = args.get_mut(at) {
            *argument = b"(redacted)".to_vec();
        }
    }
    Cow::Owned(args)
}

/// Numbers of the arguments of HELLO that are names of users or passwords. A name of a connection
/// may be the word of an option, so the options are gone through in their order.
fn secrets_of_hello(args: &[Vec<u8>]) -> Vec<usize> {
    let (mut secret, mut at) = (Vec::new(), 2);
    while let Some(word) = args.get(at) {
        match &*lower(word) {
            "auth" => {
                secret.extend([at + 1, at + 2]);
                at += 3;
            }
            "setname" => at += 2,
            _ => {
                secret.extend(at..args.len());
                break;
            }
        }
    }
    secret
}

/// Shows a command that has run, and began at this monotonic time of the environment, to MONITOR,
/// SLOWLOG and the statistics.
pub(super) fn note<T>(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    begun: Duration,
    done: &Result<T, Wrong>,
) {
    let took = note_queued(spec, server, session, args, begun, done);
    note_if_slow(server, session, args, took);
}

/// Shows a command that EXEC has run to MONITOR and the statistics; SLOWLOG gets the transaction.
/// Returns the time that the command took.
pub(super) fn note_queued<T>(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    begun: Duration,
    done: &Result<T, Wrong>,
) -> Duration {
    // A script was shown before its commands.
    if !spec.runs_script() {
        show(spec, server, session, args);
    }
    let took = server.env().now().saturating_sub(begun);
    count(spec, server, args, took, 1);
    if done.is_err() {
        server.command_stats().of(numbering::of_request(spec, args)).failed.add(1);
    }
    took
}

/// Adds requests of one command, which took this time together, to the statistics and to LATENCY.
fn count(spec: &Spec, server: &Server, args: &[Vec<u8>], took: Duration, count: u64) {
    let operation = server.settings().operation();
    let keeps_times = operation.is_on(SwitchSetting::LatencyTracking);
    server.command_stats().ran(numbering::of_request(spec, args), count, took, keeps_times);
    let threshold = operation.get(OperationSetting::LatencyThreshold);
    if threshold > 0 && took.as_millis() >= threshold.into() {
        let event = if spec.flags.has(Flags::FAST) { "fast-command" } else { "command" };
        server.latency().add(event, server.env().unix_time(), took);
    }
}

/// Tells the clients of MONITOR of a command that runs.
pub(super) fn show(spec: &Spec, server: &Server, session: &Session, args: &[Vec<u8>]) {
    if !server.clients().has_monitors() || spec.flags.has(Flags::ADMIN) {
        return;
    }
    let now = server.env().unix_time();
    let from = if session.is_script() { "lua".to_owned() } else { session.client.peer.to_string() };
    let mut line = format!("+{}.{:06} [{} {from}]", now.as_secs(), now.subsec_micros(), session.db());
    for argument in &*redacted(args) {
        line.push(' ');
        quote(&mut line, argument);
    }
    line += "\r\n";
    let (limit, now) = (server.settings().pubsub_limit(), server.env().now());
    server.clients().each_monitor(|monitor| monitor.post([line.as_bytes(), &[]], &limit, now));
}

/// Adds bytes in quotes, as Redis prints them.
fn quote(line: &mut String, bytes: &[u8]) {
    line.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
            b'\n' => *line += "\\n",
            b'\r' => *line += "\\r",
            b'\t' => *line += "\\t",
            7 => *line += "\\a",
            8 => *line += "\\b",
            b' '..=b'~' => line.push(char::from(*byte)),
            _ => {
                let _never_fails = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line.push('"');
}

pub(super) async fn monitor(call: &mut Call<'_>) -> Result<(), Wrong> {
    if call.session.is_in_exec() {
        return Err(Wrong::err("MONITOR isn't allowed for DENY BLOCKING client"));
    }
    call.server.clients().add_monitor(&call.session.client);
    call.out.ok();
    Ok(())
}

/// Counts requests of one command that began at this monotonic time of the environment, and notes
/// the first of them if they were slow.
pub(super) fn time(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    begun: Duration,
    requests: u64,
) {
    let took = server.env().now().saturating_sub(begun);
    count(spec, server, args, took, requests);
    note_if_slow(server, session, args, took);
}

/// Adds a request to SLOWLOG if it took as long as the setting says.
fn note_if_slow(server: &Server, session: &Session, args: &[Vec<u8>], took: Duration) {
    let Some(threshold) = server.settings().slower_than() else { return };
    // A request that a transaction has queued has given its arguments away.
    if took < threshold || args.is_empty() || server.settings().slow_log_length() == 0 {
        return;
    }
    let (client, at_most) = (&session.client, server.settings().slow_log_length());
    let times = (server.env().unix_time(), took);
    server.slow_log().add(&redacted(args), times, (client.peer.to_string(), client.name()), at_most);
}

pub(super) async fn slow_log(call: &mut Call<'_>) -> Result<(), Wrong> {
    let log = call.server.slow_log();
    match (&*call.word(1), call.args) {
        ("len", [_, _]) => call.out.count(log.count()),
        ("reset", [_, _]) => {
            log.reset();
            call.out.ok();
        }
        ("get", [_, _]) => entries(call, ENTRIES),
        ("get", [_, _, count]) => {
            let wrong = Wrong::err("count should be greater than or equal to -1");
            match integer_argument(count) {
                Ok(-1) => entries(call, usize::MAX),
                Ok(count) => entries(call, usize::try_from(count).map_err(|_| wrong)?),
                Err(_) => return Err(wrong),
            }
        }
        ("help", _) => containers::help(call, Id::SlowLog),
        _ => {
            let word = String::from_utf8_lossy(&call.args[1]);
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(Wrong::err(format_args!("{what} '{word}'. Try SLOWLOG HELP.")));
        }
    }
    Ok(())
}

fn entries(call: &mut Call<'_>, count: usize) {
    let found = call.server.slow_log().newest(count);
    let out = &mut *call.out;
    out.array(found.len());
    for entry in found {
        out.array(6);
        out.integer(entry.id.cast_signed());
        out.integer(entry.at.as_secs().cast_signed());
        out.integer(i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX));
        out.array(entry.args.len());
        entry.args.iter().for_each(|argument| out.bulk(argument));
        out.bulk(entry.peer);
        out.bulk(entry.name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let cases = [
            ("AUTH me pw", "AUTH (redacted) (redacted)"),
            ("HELLO 3 SETNAME x AUTH me pw", "HELLO 3 SETNAME x AUTH (redacted) (redacted)"),
            ("HELLO 3 AUTH me", "HELLO 3 AUTH (redacted)"),
            ("CONFIG SET port 1 RequirePass pw", "CONFIG SET port 1 RequirePass (redacted)"),
            ("ACL SETUSER me >pw", "ACL SETUSER (redacted) (redacted)"),
            ("SET auth pw", "SET auth pw"),
        ];
        for (line, shown) in cases {
            assert_eq!(*redacted(&words(line)), words(shown)[..]);
        }
    }

    #[test]
    fn bytes_are_quoted_as_in_redis() {
        let mut line = String::new();
        quote(&mut line, b"a\"\\\n\r\t\x07\x08\x00\xff ");
        assert_eq!(line, "\"a\\\"\\\\\\n\\r\\t\\a\\b\\x00\\xff \"");
    }
}
