//! Commands of operators: SAVE and its relatives, MEMORY without a key, DEBUG, and LOLWUT.

use super::{Call, QUOTED_AT_MOST, acl, quoted};
use crate::config_file::rewritten;
use crate::files::{read_whole, replace};
use crate::lua::REDIS_VERSION;
use crate::numbers::float_argument;
use crate::server::{AppendSync, MAX_CLIENTS, Server, Settings};
use crate::wrong::Wrong;
use futures_util::future::select;
use karstdb::io::{Env, report, sleep};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest time that DEBUG SLEEP takes, in seconds.
const SLEEP_AT_MOST: f64 = 86_400.0;

/// Result of a copy; empty while it is made.
type Outcome = Arc<OnceLock<karstdb::Result<()>>>;

/// Begins to make a copy of the database, on a thread of its own.
///
/// # Errors
/// There is no directory for it, one is being made, or no thread can be started.
fn begin(call: &Call<'_>) -> Result<Outcome, Wrong> {
    let directory = call.server.saves().directory().map(ToOwned::to_owned).ok_or(Wrong::err(
        "there is no directory for copies of the database: start the server with --save-dir",
    ))?;
    let busy = || Wrong::err("Background save already in progress");
    let saving = call.server.saves().begin().ok_or_else(busy)?;
    let (server, outcome) = (call.server.clone(), Outcome::default());
    let told = outcome.clone();
    let job = move || {
        let saved = saving.run(server.store().db(), &directory);
        if let Err(error) = &saved {
            report!(error, %error, "the database was not copied");
        }
        let _is_first = told.set(saved);
        drop(saving);
    };
    let started = call.server.env().run_apart("karst-save", job);
    started.map_err(Wrong::storage)?;
    Ok(outcome)
}

/// SAVE: answers when the copy is complete. Other clients are served meanwhile.
pub(super) async fn save(call: &mut Call<'_>) -> Result<(), Wrong> {
    let outcome = begin(call)?;
    call.server.saves().ended_and(|| outcome.get().is_some()).await;
    match outcome.get() {
        Some(Err(error)) => Err(Wrong::err(error)),
        Some(Ok(())) | None => {
            call.out.ok();
            Ok(())
        }
    }
}

pub(super) async fn background_save(call: &mut Call<'_>) -> Result<(), Wrong> {
    match call.args.len() {
        1 => {}
        2 if call.is(1, "schedule") => {}
        _ => return Err(Wrong::syntax()),
    }
    begin(call)?;
    call.out.simple("Background saving started");
    Ok(())
}

pub(super) async fn last_save(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.out.integer(call.server.saves().last().cast_signed());
    Ok(())
}

/// CONFIG REWRITE: puts the settings and users of now into the file.
///
/// # Errors
/// There is no file, or it cannot be replaced.
pub(super) async fn rewrite_config(call: &mut Call<'_>) -> Result<(), Wrong> {
    let path = call.server.config_file().map(ToOwned::to_owned);
    let path = path.ok_or(Wrong::err("The server is running without a config file"))?;
    let turn = call.server.files_turn().await;
    let now = call.server.settings().values();
    let users = match call.server.acl_file() {
        Some(_) => Vec::new(),
        None => acl::user_lines(call.server),
    };
    let defaults = Settings::new(AppendSync::default(), MAX_CLIENTS, "", Arc::default());
    defaults.set_client_memory(call.server.memory().share_of_clients());
    let rewrite = move |env: &Env| {
        let _turn = turn;
        let files = &**env.fs();
        let text = match files.exists(&path)? {
            true => read_whole(files, &path)?,
            false => Vec::new(),
        };
        replace(env, &path, &rewritten(&text, &now, &defaults.values(), &users))
    };
    let written = call.server.env().run_blocking(rewrite).await;
    written.map_err(|error| Wrong::err(format_args!("Rewriting config file: {error}")))?;
    call.out.ok();
    Ok(())
}

/// Memory that the database uses: memtables and the block cache, in bytes.
pub(super) fn used_memory(server: &Server) -> (u64, u64) {
    let bytes = |property: &str| server.store().db().int_property(property).unwrap_or(0);
    (bytes("rocksdb.cur-size-all-mem-tables"), bytes("rocksdb.block-cache-usage"))
}

/// MEMORY STATS.
pub(super) fn memory_stats(call: &mut Call<'_>) {
    let (memtables, cache) = used_memory(call.server);
    let memory = call.server.memory();
    let keys: u64 = (0..call.server.store().databases()).map(|db| call.server.store().size(db)).sum();
    let rows = [
        ("peak.allocated", memory.note_used(memtables + cache)),
        ("total.allocated", memtables + cache),
        ("memtables", memtables),
        ("block.cache", cache),
        ("process.rss", memory.resident()),
        ("process.rss.peak", memory.resident_peak()),
        ("clients.normal", call.server.clients().memory().bytes()),
        ("clients.count", call.server.clients().count() as u64),
        ("keys.count", keys),
    ];
    call.out.map(rows.len());
    for (name, number) in rows {
        call.out.bulk(name);
        call.out.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
}

/// MEMORY DOCTOR: the parts of the memory in a sentence, with what can be done.
pub(super) fn memory_report(call: &mut Call<'_>) {
    let ((memtables, cache), memory) = (used_memory(call.server), call.server.memory());
    let (used, resident) = (memtables + cache, memory.resident());
    let mebibytes = |bytes: u64| bytes >> 20;
    let mut text = format!(
        "The database uses {} MiB: {} MiB of memtables and {} MiB of block cache. The process has {} MiB \
         resident.\n",
        mebibytes(used),
        mebibytes(memtables),
        mebibytes(cache),
        mebibytes(resident)
    );
    if resident > 2 * used + (256 << 20) {
        text += "Much more is resident than the database uses: look for clients with large requests or replies \
                 (CLIENT LIST), and for fragmentation.\n";
    }
    call.out.verbatim(&text);
}

/// DEBUG, where the option allows it.
pub(super) async fn debug(call: &mut Call<'_>) -> Result<(), Wrong> {
    if !call.server.allows_debug() {
        return Err(Wrong::err(
            "DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it \
             from a local connection, otherwise you need to set this option in the configuration file, and then \
             restart the server.",
        ));
    }
    match (&*call.word(1), call.args.len()) {
        ("sleep", 3) => {
            let seconds = float_argument(&call.args[2])?;
            let span = Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_AT_MOST));
            let slept = pin!(sleep(call.server.env(), span));
            select(slept, pin!(call.server.stop_bell().rung())).await;
            call.out.ok();
        }
        // The forms that these choose in Redis are not there.
        ("quicklist-packed-threshold", 3) => call.out.ok(),
        (sub, _) => {
            let sub = quoted(sub.as_bytes(), QUOTED_AT_MOST);
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(Wrong::err(format_args!("{what} '{sub}'. Try DEBUG HELP.")));
        }
    }
    Ok(())
}

/// LOLWUT: a picture of limestone, and the version.
pub(super) async fn lolwut(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut seed = call.server.env().random_seed();
    let mut text = String::new();
    for layer in 0..8u32 {
        for _ in 0..40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_hole = (seed >> 33) % 9 < u64::from(layer);
            text.push(if is_hole { ' ' } else { '#' });
        }
        text.push('\n');
    }
    text += &format!("\nRedis ver. {REDIS_VERSION} (KarstDB {})\n", env!("CARGO_PKG_VERSION"));
    call.out.verbatim(&text);
    Ok(())
}
