//! `karstdb serve DB`: a server for clients of Redis.
//!
//! Input: a database directory, made if there is none, and a command line. Output: one line with
//! the addresses once clients can connect, and answers to clients until SIGINT, SIGTERM or a
//! client's SHUTDOWN. The exit code is 0 if the database was closed.

use crate::output::{Fault, note, say};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use karst_server::{AppendSync, Running, ServerOptions};
use karstdb::Options;
use karstdb::io::Env;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

const ABOUT: &str = "Serve a database to clients of Redis and Valkey";
const HELP: &str = "\
Serves the database in DB, which is created if it does not exist, to clients that speak Redis' protocol
(RESP2 and RESP3). It prints the addresses once clients can connect. SIGINT, SIGTERM and the command
SHUTDOWN end it: what was received is answered, and the database is closed.

Without a password it listens on loopback addresses only.";

/// Returns the definition of the command line.
pub(crate) fn command() -> Command {
    let of = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    Command::new("serve")
        .about(ABOUT)
        .long_about(HELP)
        .arg(
            Arg::new("DB")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The database's directory"),
        )
        .arg(
            of("listen", "ADDRESS:PORT")
                .action(ArgAction::Append)
                .default_value("127.0.0.1:6379")
                .help("Where clients connect; may be given more than once. Port 0 takes a free one"),
        )
        .arg(
            of("threads", "N")
                .default_value("1")
                .value_parser(value_parser!(u16).range(1..=1024))
                .help("Number of threads that serve connections, each with its own ring"),
        )
        .arg(of("pin", "").num_args(0).action(ArgAction::SetTrue).help("Bind each of them to a CPU"))
        .arg(
            of("appendfsync", "WHEN")
                .default_value("everysec")
                .value_parser(["always", "everysec", "no"])
                .help("When a write is on the device: before its answer, within about a second, or later"),
        )
        .arg(
            of("databases", "N")
                .default_value("16")
                .value_parser(value_parser!(u16).range(1..))
                .help("Number of databases for SELECT"),
        )
        .arg(
            of("maxclients", "N")
                .default_value("10000")
                .value_parser(value_parser!(u32).range(1..))
                .help("Maximum number of connections"),
        )
        .arg(of("requirepass", "PASSWORD").help("Password of AUTH; others see it in the list of processes"))
        .arg(
            of("cache", "BYTES")
                .value_parser(value_parser!(usize))
                .help("Size of the block cache; the default is RocksDB's, 32 MiB"),
        )
        .arg(
            of("options", "NAME=VALUE;...")
                .default_value("")
                .help("More options of the database, by RocksDB's names"),
        )
}

/// Runs the program.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Fault> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let path = matches.get_one::<PathBuf>("DB").expect("clap asks for it");
    let mut db = Options::new().set_all(text("options")).map_err(|e| Fault::Usage(e.to_string()))?;
    if let Some(bytes) = matches.get_one::<usize>("cache") {
        db = db.block_cache_bytes(*bytes);
    }
    let options = ServerOptions {
        listen: addresses(matches.get_many::<String>("listen").into_iter().flatten())?,
        threads: matches.get_one::<u16>("threads").copied().unwrap_or(1).into(),
        pin: matches.get_flag("pin"),
        append_sync: AppendSync::from_name(text("appendfsync")).unwrap_or_default(),
        databases: matches.get_one::<u16>("databases").copied().unwrap_or(16),
        max_clients: matches.get_one::<u32>("maxclients").map_or(10_000, |count| *count as usize),
        password: text("requirepass").to_owned(),
        db,
    };
    if let Some(open) = options.listen.iter().find(|address| !address.ip().is_loopback())
        && options.password.is_empty()
    {
        let why = "is reached from other machines: that needs --requirepass";
        return Err(Fault::Usage(format!("--listen {open} {why}")));
    }
    // Before the threads, because they inherit that these signals are handled.
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|e| Fault::Failed(format!("cannot handle signals: {e}")))?;
    let env = Env::posix();
    let running = Running::start(path, &options, &env)?;
    let server = running.server().clone();
    let handle = signals.handle();
    let waiting = env.spawn_thread("karst-signals", move || {
        if signals.forever().next().is_some() {
            server.stop();
        }
    });
    let waiting = waiting.map_err(karst_engine::Error::from)?;
    for address in running.addresses() {
        say!("serving {} at {address}", path.display())?;
    }
    running.wait();
    handle.close();
    note!("stopping: answering what was received, and closing {}", path.display());
    let closed = running.shut_down();
    let _ended = waiting.join();
    Ok(closed?)
}

/// Resolves the addresses of `--listen`.
fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Result<Vec<SocketAddr>, Fault> {
    let mut all = Vec::new();
    for text in texts {
        let found = text.to_socket_addrs().map_err(|e| Fault::Usage(format!("--listen {text}: {e}")))?;
        all.extend(found);
    }
    Ok(all)
}
