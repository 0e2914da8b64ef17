//! `karstdb serve DB`: a server for clients of Redis.
//!
//! Input: a database directory, made if there is none, and a command line. Output: one line with
//! the addresses once clients can connect, and answers to clients until SIGINT, SIGTERM or a
//! client's SHUTDOWN. The exit code is 0 if the database was closed.

mod config;
mod metrics;

use crate::output::{Fault, note, say};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use karst_engine::ErrorKind;
use karst_server::{AppendSync, Running, ServerOptions};
use karstdb::io::Env;
use karstdb::{Options, Statistics, StatsLevel};
use metrics::Metrics;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

/// The value of `--listen` for no address.
const NO_ADDRESS: &str = "none";
const ABOUT: &str = "Serve a database to clients of Redis and Valkey";
const HELP: &str = "\
Serves the database in DB, which is created if it does not exist, to clients that speak Redis' protocol
(RESP2 and RESP3). It prints the addresses once clients can connect. SIGINT, SIGTERM and the command
SHUTDOWN end it: what was received is answered, and the database is closed.

While the user default needs no password it listens on loopback addresses only.";

/// Options that are settings of CONFIG SET too.
const TLS_SETTINGS: [&str; 5] =
    ["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "tls-protocols"];

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
                .help("Where clients connect, or none; may be given more than once. Port 0 takes a free one"),
        )
        .arg(
            of("tls-listen", "ADDRESS:PORT")
                .action(ArgAction::Append)
                .help("Where clients connect with TLS; may be given more than once. Port 0 takes a free one"),
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
        .arg(
            of("config", "FILE")
                .value_parser(value_parser!(PathBuf))
                .help("File of settings: lines `name value`, of these options and of CONFIG SET"),
        )
        .arg(
            of("metrics", "ADDRESS:PORT")
                .help("Where Prometheus reads metrics, at /metrics. Port 0 takes a free one"),
        )
        .arg(of("requirepass", "PASSWORD").help("Password of AUTH; others see it in the list of processes"))
        .arg(
            of("aclfile", "FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Users that there are from the start, for ACL LOAD and ACL SAVE"),
        )
        .arg(
            of("save-dir", "DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .help("Where SAVE and BGSAVE put a copy of the database, in place of the last one"),
        )
        .arg(of("tls-cert-file", "FILE").help("Certificate of the server in PEM, and others of its chain"))
        .arg(of("tls-key-file", "FILE").help("Private key of the certificate in PEM"))
        .arg(
            of("tls-ca-cert-file", "FILE")
                .help("Certificates in PEM of the authorities that sign those of clients"),
        )
        .arg(
            of("tls-auth-clients", "WHETHER")
                .value_parser(["yes", "no", "optional"])
                .help("Whether clients of TLS need a certificate; they do by default"),
        )
        .arg(
            of("tls-protocols", "VERSIONS")
                .value_parser(|text: &str| {
                    ServerOptions::check_setting("tls-protocols", text.as_bytes()).map(|()| text.to_owned())
                })
                .help("TLSv1.2, TLSv1.3, or both in one argument, which is the default"),
        )
        .arg(
            of("enable-debug-command", "")
                .num_args(0)
                .action(ArgAction::SetTrue)
                .help("Allow the command DEBUG"),
        )
        .arg(
            of("cache", "BYTES")
                .value_parser(value_parser!(usize))
                .help("Size of the block cache; the default is RocksDB's, 32 MiB"),
        )
        .arg(
            of("memory", "BYTES")
                .value_parser(memory)
                .help("Maximum memory of the process, such as 1GiB; it sets the size of the block cache"),
        )
        .arg(
            of("options", "NAME=VALUE;...")
                .default_value("")
                .help("More options of the database, by RocksDB's names"),
        )
}

/// Parses a number of bytes with a unit.
fn memory(text: &str) -> Result<u64, &'static str> {
    karst_server::size(text).ok_or("it is a number of bytes, with a unit such as MiB or not")
}

/// Runs the program.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Fault> {
    let path = matches.get_one::<PathBuf>("DB").expect("clap asks for it");
    let config_file = matches.get_one::<PathBuf>("config").cloned();
    let file = config_file.as_deref().map_or_else(|| Ok(config::empty()), config::read)?;
    // What the command line has comes before what the file has.
    let from = |name: &str| match matches.value_source(name) {
        Some(ValueSource::CommandLine) => matches,
        _ => &file.options,
    };
    let text = |name: &str| from(name).get_one::<String>(name).map_or("", String::as_str);
    let file_at = |name: &str| from(name).get_one::<PathBuf>(name).cloned();
    let mut db = Options::new().set_all(text("options")).map_err(|e| Fault::Usage(e.to_string()))?;
    let memory = from("memory").get_one::<u64>("memory").copied();
    if let Some(bytes) = from("cache").get_one::<usize>("cache") {
        if memory.is_some() {
            return Err(Fault::Usage(
                "--memory sets the size of the block cache, so --cache cannot".to_owned(),
            ));
        }
        db = db.block_cache_bytes(*bytes);
    }
    let metrics = Some(text("metrics").to_owned()).filter(|address| !address.is_empty());
    let metrics = addresses("metrics", metrics.iter())?.first().copied();
    if metrics.is_some() {
        db = db.statistics(Arc::new(Statistics::new(StatsLevel::ExceptHistogramOrTimers)));
    }
    let texts = |name: &str| from(name).get_many::<String>(name).into_iter().flatten();
    let listen = match texts("listen").map(String::as_str).collect::<Vec<_>>()[..] {
        [NO_ADDRESS] => Vec::new(),
        _ => addresses("listen", texts("listen"))?,
    };
    let tls_listen = addresses("tls-listen", texts("tls-listen"))?;
    if listen.is_empty() && tls_listen.is_empty() {
        return Err(Fault::Usage("--listen none: that needs --tls-listen".to_owned()));
    }
    let mut settings = file.settings.clone();
    let given = TLS_SETTINGS.into_iter().filter_map(|name| Some((name, from(name).get_one::<String>(name)?)));
    settings.extend(given.map(|(name, value)| (name.to_owned(), value.clone().into_bytes())));
    let options = ServerOptions {
        listen,
        tls_listen,
        threads: from("threads").get_one::<u16>("threads").copied().unwrap_or(1).into(),
        pin: from("pin").get_flag("pin"),
        append_sync: AppendSync::from_name(text("appendfsync")).unwrap_or_default(),
        databases: from("databases").get_one::<u16>("databases").copied().unwrap_or(16),
        max_clients: from("maxclients").get_one::<u32>("maxclients").map_or(10_000, |count| *count as usize),
        password: text("requirepass").to_owned(),
        acl_file: file_at("aclfile"),
        save_directory: file_at("save-dir"),
        allow_debug: from("enable-debug-command").get_flag("enable-debug-command"),
        memory,
        settings,
        users: file.users.clone(),
        config_file,
        db,
    };
    if options.memory.is_some()
        && let Err(error) = tikv_jemalloc_ctl::background_thread::write(true)
    {
        note!("--memory: freed memory leaves the process late: {error}");
    }
    // Before the threads, because they inherit that these signals are handled.
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|e| Fault::Failed(format!("cannot handle signals: {e}")))?;
    let env = Env::posix();
    let running = Running::start(path, &options, &env).map_err(|error| match error.kind() {
        ErrorKind::InvalidArgument => Fault::Usage(error.to_string()),
        _ => error.into(),
    })?;
    let server = running.server().clone();
    let handle = signals.handle();
    let waiting = env.spawn_thread("karst-signals", move || {
        if signals.forever().next().is_some() {
            server.stop();
        }
    });
    let waiting = waiting.map_err(karst_engine::Error::from)?;
    let metrics = metrics.map(|address| Metrics::start(address, running.server(), &env)).transpose();
    let metrics = metrics.map_err(|error| Fault::Failed(format!("--metrics: {error}")))?;
    for address in running.addresses() {
        say!("serving {} at {address}", path.display())?;
    }
    for address in running.tls_addresses() {
        say!("serving {} at {address} with TLS", path.display())?;
    }
    if let Some(metrics) = &metrics {
        say!("metrics at http://{}/metrics", metrics.address())?;
    }
    running.wait();
    handle.close();
    note!("stopping: answering what was received, and closing {}", path.display());
    drop(metrics);
    let closed = running.shut_down();
    let _ended = waiting.join();
    Ok(closed?)
}

/// Resolves the addresses of an option.
fn addresses<'a>(option: &str, texts: impl Iterator<Item = &'a String>) -> Result<Vec<SocketAddr>, Fault> {
    let mut all = Vec::new();
    for text in texts {
        let found = text.to_socket_addrs().map_err(|e| Fault::Usage(format!("--{option} {text}: {e}")))?;
        all.extend(found);
    }
    Ok(all)
}
