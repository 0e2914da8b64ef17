//! The server as a whole: INFO, CONFIG, COMMAND, databases, the time and the end.

use super::pace::Pace;
use super::statistics::Lines;
use super::table::{Id, Keys, Spec, TABLE, find};
use super::{
    Call, QUOTED_AT_MOST, categories, containers, details, docs, lower, operation, quoted, statistics,
    tracking,
};
use crate::lua::REDIS_VERSION;
use crate::numbers::integer;
use crate::pattern::Pattern;
use crate::server::Space;
use crate::tls::TlsSettings;
use crate::wrong::Wrong;
use async_lock::MutexGuardArc;
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(super) async fn db_size(call: &mut Call<'_>) -> Result<(), Wrong> {
    let size = call.access.size_seen(call.session.db()).await?;
    call.out.integer(size as i64);
    Ok(())
}

/// Checks the option of FLUSHALL and FLUSHDB; both forms take constant time.
fn check_flush(call: &Call<'_>) -> Result<(), Wrong> {
    match call.args.len() {
        1 => Ok(()),
        2 if call.is(1, "sync") || call.is(1, "async") => Ok(()),
        _ => Err(Wrong::syntax()),
    }
}

pub(super) async fn flush_db(call: &mut Call<'_>) -> Result<(), Wrong> {
    check_flush(call)?;
    call.access.flush(call.session.db()).await?;
    call.out.ok();
    Ok(())
}

pub(super) async fn flush_all(call: &mut Call<'_>) -> Result<(), Wrong> {
    check_flush(call)?;
    for db in 0..call.server.store().databases() {
        call.access.flush(db).await?;
    }
    call.out.ok();
    Ok(())
}

pub(super) async fn swap_db(call: &mut Call<'_>) -> Result<(), Wrong> {
    let number = |at: usize, which| {
        let number = integer(&call.args[at]).and_then(|number| i32::try_from(number).ok());
        let number = number.ok_or_else(|| Wrong::err(format_args!("invalid {which} DB index")))?;
        let number = u16::try_from(number).ok().filter(|number| *number < call.server.store().databases());
        number.ok_or(Wrong::db_out_of_range())
    };
    let (one, other) = (number(1, "first")?, number(2, "second")?);
    if one != other {
        call.access.swap(one, other).await?;
    }
    call.out.ok();
    Ok(())
}

pub(super) async fn time(call: &mut Call<'_>) -> Result<(), Wrong> {
    let now = call.server.env().unix_time();
    call.out.array(2);
    call.out.bulk_text(now.as_secs());
    call.out.bulk_text(now.subsec_micros());
    Ok(())
}

pub(super) async fn role(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.out.array(3);
    call.out.bulk("master");
    call.out.integer(0);
    call.out.array(0);
    Ok(())
}

/// Stops the server. There is no reply: the end of the connection is it.
pub(super) async fn shutdown(call: &mut Call<'_>) -> Result<(), Wrong> {
    let known = ["nosave", "save", "now", "force"];
    if call.args[1..].iter().any(|word| !known.contains(&&*lower(word))) {
        return Err(Wrong::syntax());
    }
    call.session.close();
    call.server.stop();
    Ok(())
}

pub(super) async fn config(call: &mut Call<'_>) -> Result<(), Wrong> {
    match (&*call.word(1), call.args.len()) {
        ("get", 3..) => {
            let mut found = values(call);
            let mut names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
            let mut pace = Pace::default();
            for pattern in &call.args[2..] {
                let (pattern, mut chosen) = (pattern.to_ascii_lowercase(), names.clone());
                Pattern::new(&pattern)?.retain(&mut chosen, |name| name.as_bytes()).await;
                names.retain(|name| !chosen.contains(name));
                pace.step().await;
            }
            // Those that are left match no pattern.
            found.retain(|(name, _)| !names.contains(name));
            call.out.map(found.len());
            for (name, value) in found {
                call.out.bulk(name);
                call.out.bulk(value);
            }
        }
        ("set", 4..) if call.args.len().is_multiple_of(2) => set_config(call).await?,
        ("resetstat", 2) => {
            call.server.stats().reset();
            call.server.command_stats().reset();
            call.server.store().counts().reset();
            call.out.ok();
        }
        ("rewrite", 2) => operation::rewrite_config(call).await?,
        ("help", _) => containers::help(call, Id::Config),
        _ => return Err(Wrong::arity("config|set")),
    }
    Ok(())
}

/// All settings and their values: those that can be changed, and some that clients look at.
fn values(call: &Call<'_>) -> Vec<(&'static str, String)> {
    let mut values = call.server.settings().values();
    values.extend(fixed_values(call));
    values
}

/// Fixed settings that Redis refuses to change too; the other fixed ones take their own value.
const IMMUTABLE: &[&str] = &[
    "aclfile",
    "cluster-enabled",
    "daemonize",
    "databases",
    "enable-debug-command",
    "io-threads",
    "replicaof",
    "slaveof",
];

/// Settings that cannot be changed, and their values.
fn fixed_values(call: &Call<'_>) -> Vec<(&'static str, String)> {
    let address = call.session.client.local;
    let (port, tls_port) = call.server.ports(&call.session.client);
    let acl_file = call.server.acl_file().map_or(String::new(), |path| path.display().to_string());
    let own = [
        ("aclfile", acl_file),
        ("bind", address.ip().to_string()),
        ("databases", call.server.store().databases().to_string()),
        ("dir", call.server.path().display().to_string()),
        ("io-threads", call.server.threads().to_string()),
        ("port", port.to_string()),
        ("tls-port", tls_port.to_string()),
    ];
    let debug = if call.server.allows_debug() { "yes" } else { "no" };
    let same = [
        ("appendonly", "yes"),
        ("cluster-enabled", "no"),
        ("daemonize", "no"),
        ("enable-debug-command", debug),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("replicaof", ""),
        ("save", ""),
        ("slaveof", ""),
    ];
    let same = same.map(|(name, value)| (name, value.to_owned()));
    own.into_iter().chain(same).collect()
}

/// Checks a value for a setting that cannot be changed.
///
/// # Errors
/// It is not the value that the setting has, or Redis does not take it either.
fn check_fixed(name: &str, is: &str, value: &[u8]) -> Result<(), String> {
    match value.eq_ignore_ascii_case(is.as_bytes()) {
        _ if IMMUTABLE.contains(&name) => Err("can't set immutable config".to_owned()),
        true => Ok(()),
        false => Err(format!("the only value served is '{is}'")),
    }
}

/// Reads certificates anew if CONFIG SET names a setting of TLS, also with the value that it has,
/// because the file may be another. The values are set while the guard is there.
///
/// # Errors
/// The setting, and why the files cannot be used. The certificates are those of before.
async fn reload_tls(call: &Call<'_>) -> Result<Option<MutexGuardArc<()>>, (String, String)> {
    let mut given: Vec<(String, &[u8])> =
        call.args[2..].chunks_exact(2).map(|pair| (lower(&pair[0]), &pair[1][..])).collect();
    given.retain(|(name, _)| TlsSettings::has(name));
    let Some((last, _)) = given.last() else { return Ok(None) };
    let turn = call.server.files_turn().await;
    let mut tls = call.server.settings().tls();
    for (name, value) in &given {
        let _was_checked = tls.assign(name, value);
    }
    call.server.use_tls(&tls).await.map_err(|why| (last.clone(), why))?;
    Ok(Some(turn))
}

/// Sets all of the pairs or none.
async fn set_config(call: &mut Call<'_>) -> Result<(), Wrong> {
    let settings = call.server.settings();
    let pairs = || call.args[2..].chunks_exact(2).map(|pair| (lower(&pair[0]), &pair[1]));
    let failed = |name: &str, why: &str| {
        Wrong::err(format_args!("CONFIG SET failed (possibly related to argument '{name}') - {why}"))
    };
    let (mut seen, fixed) = (BTreeSet::new(), fixed_values(call));
    let is_fixed = |name: &str| fixed.iter().find(|(known, _)| *known == name);
    for (name, _) in pairs() {
        if !seen.insert(name.clone()) {
            return Err(failed(&name, "duplicate parameter"));
        }
    }
    for (name, value) in pairs() {
        match (settings.check(&name, value), is_fixed(&name)) {
            (Ok(()), _) => {}
            (Err(Some(why)), _) => return Err(failed(&name, why)),
            (Err(None), Some((_, is))) => {
                check_fixed(&name, is, value).map_err(|why| failed(&name, &why))?;
            }
            (Err(None), None) => {
                let name = quoted(name.as_bytes(), QUOTED_AT_MOST);
                let what = "Unknown option or number of arguments for CONFIG SET";
                return Err(Wrong::err(format_args!("{what} - '{name}'")));
            }
        }
    }
    let _turn = reload_tls(call).await.map_err(|(name, why)| failed(&name, &why))?;
    for (name, value) in pairs().filter(|(name, _)| is_fixed(name).is_none()) {
        if let Err(why) = call.server.set(&name, value) {
            return Err(failed(&name, why.unwrap_or_default()));
        }
    }
    tracking::shrink(call.server).await;
    call.out.ok();
    Ok(())
}

pub(super) async fn command(call: &mut Call<'_>) -> Result<(), Wrong> {
    match (&*call.word(1), call.args.len()) {
        (_, 1) => {
            call.out.array(TABLE.len());
            TABLE.iter().for_each(|spec| describe(call, spec));
        }
        ("count", 2) => call.out.count(TABLE.len()),
        ("info", 2) => {
            call.out.array(TABLE.len());
            TABLE.iter().for_each(|spec| describe(call, spec));
        }
        ("info", _) => {
            let names = &call.args[2..];
            call.out.array(names.len());
            for name in names {
                match (find(name), containers::find_sub(name)) {
                    (Some(spec), _) => describe(call, spec),
                    (None, Some((spec, sub))) => details::describe_sub(call.out, spec, sub),
                    (None, None) => call.out.null_array(),
                }
            }
        }
        ("docs", _) => docs::docs(call),
        ("list", _) => details::list(call).await?,
        ("getkeys", 3..) => {
            let (_, positions) = details::keys_of(&call.args[2..])?;
            call.out.array(positions.len());
            positions.iter().for_each(|at| call.out.bulk(&call.args[at + 2]));
        }
        ("getkeysandflags", 3..) => details::keys_and_flags(call)?,
        ("help", _) => containers::help(call, Id::Command),
        _ => return Err(Wrong::syntax()),
    }
    Ok(())
}

/// A command's entry in COMMAND INFO.
fn describe(call: &mut Call<'_>, spec: &Spec) {
    let out = &mut *call.out;
    let (first, last, step) = match spec.keys {
        Keys::Range(first, last, step) => (first as i64, last as i64, step as i64),
        Keys::Sort | Keys::FirstAndCounted | Keys::FirstAndStored => (1, 1, 1),
        Keys::None | Keys::All | Keys::Counted(_) | Keys::Streams => (0, 0, 0),
    };
    out.array(10);
    out.bulk(spec.name);
    out.integer(spec.arity.into());
    let mut flags = spec.flags.names();
    if matches!(
        spec.keys,
        Keys::Counted(_) | Keys::Sort | Keys::FirstAndCounted | Keys::FirstAndStored | Keys::Streams
    ) {
        flags.push("movablekeys");
    }
    out.set(flags.len());
    flags.into_iter().for_each(|flag| out.simple(flag));
    out.integer(first);
    out.integer(last);
    out.integer(step);
    let categories = categories::of(spec);
    out.set(categories.len());
    categories.into_iter().for_each(|name| out.simple(&format!("@{name}")));
    details::end(out, spec);
}

pub(super) async fn info(call: &mut Call<'_>) -> Result<(), Wrong> {
    let asked: Vec<String> = call.args[1..].iter().map(|section| lower(section)).collect();
    let is_asked = |word: &str| asked.iter().any(|section| section == word);
    let is_all = is_asked("all") || is_asked("everything");
    let is_default = asked.is_empty() || is_asked("default");
    let mut text = String::new();
    for (name, lines) in SECTIONS {
        if is_all || is_default && !NOT_BY_DEFAULT.contains(&name) || is_asked(&name.to_ascii_lowercase()) {
            if !text.is_empty() {
                text += "\r\n";
            }
            let _never_fails = write!(text, "# {name}\r\n");
            for (field, value) in lines(call) {
                let _never_fails = write!(text, "{field}:{value}\r\n");
            }
        }
    }
    call.out.verbatim(&text);
    Ok(())
}

/// Name of a section of INFO, and what makes its lines.
type Section = (&'static str, fn(&Call<'_>) -> Lines);

/// Sections that INFO has only if they are asked for.
const NOT_BY_DEFAULT: [&str; 2] = ["Commandstats", "Latencystats"];

/// Sections of INFO. Fields of Redis whose values are not known here are left out.
const SECTIONS: [Section; 13] = [
    ("Server", of_server),
    ("Clients", of_clients),
    ("Memory", of_memory),
    ("Persistence", of_persistence),
    ("Stats", of_stats),
    ("Replication", of_replication),
    ("CPU", statistics::of_cpu),
    ("Modules", |_| Vec::new()),
    ("Commandstats", statistics::of_commands),
    ("Errorstats", statistics::of_errors),
    ("Latencystats", statistics::of_latencies),
    ("Cluster", |_| lines([("cluster_enabled", "0".to_owned())])),
    ("Keyspace", of_keyspace),
];

fn lines<const N: usize>(lines: [(&str, String); N]) -> Lines {
    lines.map(|(field, value)| (field.to_owned(), value)).to_vec()
}

fn of_server(call: &Call<'_>) -> Lines {
    let uptime = call.server.uptime().as_secs();
    lines([
        ("redis_version", REDIS_VERSION.to_owned()),
        ("karstdb_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("run_id", call.server.run_id().to_owned()),
        (
            "tcp_port",
            match call.server.ports(&call.session.client) {
                (0, of_tls) => of_tls.to_string(),
                (plain, _) => plain.to_string(),
            },
        ),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
        ("io_threads", call.server.threads().to_string()),
    ])
}

fn of_clients(call: &Call<'_>) -> Lines {
    lines([
        ("connected_clients", call.server.clients().count().to_string()),
        ("maxclients", call.server.settings().max_clients().to_string()),
        ("blocked_clients", call.server.clients().blocked().to_string()),
        ("tracking_clients", call.server.clients().tracking().totals().clients.to_string()),
    ])
}

fn of_memory(call: &Call<'_>) -> Lines {
    let (scripts, script_bytes) = call.server.scripts().sizes();
    let (libraries, functions, code_bytes) = call.server.libraries().now().sizes();
    let (memtables, cache) = operation::used_memory(call.server);
    let (used, memory) = (memtables + cache, call.server.memory());
    let peak = memory.note_used(used);
    let (limit, capacity) = memory.limit().unwrap_or_default();
    lines([
        ("used_memory", used.to_string()),
        ("used_memory_human", human(used)),
        ("used_memory_rss", memory.resident().to_string()),
        ("used_memory_rss_human", human(memory.resident())),
        ("used_memory_rss_peak", memory.resident_peak().to_string()),
        ("used_memory_peak", peak.to_string()),
        ("used_memory_peak_human", human(peak)),
        ("used_memory_memtables", memtables.to_string()),
        ("used_memory_block_cache", cache.to_string()),
        ("memory_limit", limit.to_string()),
        ("memory_limit_block_cache", capacity.to_string()),
        ("mem_clients_normal", call.server.clients().memory().bytes().to_string()),
        ("used_memory_scripts_eval", script_bytes.to_string()),
        ("used_memory_functions", code_bytes.to_string()),
        ("used_memory_scripts", (script_bytes + code_bytes).to_string()),
        ("number_of_cached_scripts", scripts.to_string()),
        ("number_of_functions", functions.to_string()),
        ("number_of_libraries", libraries.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory_policy", "noeviction".to_owned()),
    ])
}

fn of_persistence(call: &Call<'_>) -> Lines {
    let saves = call.server.saves();
    lines([
        ("loading", "0".to_owned()),
        ("aof_enabled", "1".to_owned()),
        ("appendfsync", call.server.settings().append_sync().name().to_owned()),
        ("rdb_bgsave_in_progress", u8::from(saves.is_running()).to_string()),
        ("rdb_last_save_time", saves.last().to_string()),
        ("rdb_last_bgsave_status", if saves.has_failed() { "err" } else { "ok" }.to_owned()),
        ("aof_rewrite_in_progress", "0".to_owned()),
    ])
}

fn of_stats(call: &Call<'_>) -> Lines {
    let (stats, pubsub) = (call.server.stats(), call.server.clients().pubsub());
    let (counts, tracked) = (call.server.store().counts(), call.server.clients().tracking().totals());
    lines([
        ("total_connections_received", stats.connections.get().to_string()),
        ("rejected_connections", stats.rejected.get().to_string()),
        ("total_commands_processed", stats.commands.get().to_string()),
        ("total_error_replies", stats.errors.get().to_string()),
        ("tls_errors", stats.tls_errors.get().to_string()),
        ("total_net_input_bytes", stats.received.get().to_string()),
        ("total_net_output_bytes", stats.sent.get().to_string()),
        ("expired_keys", counts.expired().to_string()),
        ("evicted_keys", "0".to_owned()),
        ("evicted_clients", stats.evicted.get().to_string()),
        ("keyspace_hits", counts.hits().to_string()),
        ("keyspace_misses", counts.misses().to_string()),
        ("tracking_total_keys", tracked.keys.to_string()),
        ("tracking_total_items", tracked.items.to_string()),
        ("tracking_total_prefixes", tracked.prefixes.to_string()),
        ("pubsub_channels", pubsub.count(Space::Channels).to_string()),
        ("pubsub_patterns", pubsub.count(Space::Patterns).to_string()),
        ("pubsubshard_channels", pubsub.count(Space::Shards).to_string()),
    ])
}

fn of_replication(call: &Call<'_>) -> Lines {
    lines([
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
        // There is no history that a replica could go on with: each run is one of its own.
        ("master_replid", call.server.run_id().to_owned()),
        ("master_repl_offset", "0".to_owned()),
    ])
}

/// A number of bytes as Redis prints it for people: `1.50M`.
fn human(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn of_keyspace(call: &Call<'_>) -> Lines {
    let sizes = (0..call.server.store().databases()).map(|db| (db, call.server.store().size(db)));
    let kept = sizes.filter(|(_, size)| *size > 0);
    // Keys with an expiry are not counted, so `expires` is left out. An `avg_ttl` of 0 says that
    // none is known, in Redis too.
    kept.map(|(db, size)| (format!("db{db}"), format!("keys={size},avg_ttl=0"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let cases = [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (3 << 19, "1.50M"), (5 << 30, "5.00G")];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }
}
