//! The state that all connections share: the store, settings, the list of clients, counters, and
//! the end.
//!
//! In: a directory, [`ServerOptions`] and an environment. Out: [`Server`], which knows neither
//! sockets nor commands; `serving` and `running` have these.
//!
//! Lock: the mutex of the certificates, for a copy or a replacement.

mod acl_log;
mod bell;
mod client;
mod client_memory;
mod clients;
mod command_stats;
mod forms;
mod histogram;
mod integers;
mod latency;
mod libraries;
mod mailbox;
mod memory;
mod observer;
mod operation;
mod pause;
mod pubsub;
mod saves;
mod scripts;
mod settings;
mod slowlog;
mod stats;
mod subscriptions;
mod tracking;
mod users;

pub(crate) use acl_log::{AclLog, Denial, Reason, Scene};
pub(crate) use bell::Bell;
pub(crate) use client::{Client, Mode};
pub(crate) use clients::Clients;
pub(crate) use command_stats::CommandStats;
pub(crate) use forms::FormSetting;
pub(crate) use latency::{LatencyLog, Samples};
pub(crate) use libraries::{Libraries, RestorePolicy};
use memory::{LIMIT_AT_LEAST, Limit, Memory};
use observer::Teller;
pub(crate) use operation::{OperationSetting, SwitchSetting};
use pause::Pause;
use saves::Saves;
pub(crate) use scripts::Listed;
use scripts::Scripts;
pub(crate) use settings::Settings;
pub use settings::{AppendSync, size};
use slowlog::SlowLog;
pub(crate) use stats::Stats;
pub(crate) use subscriptions::Space;
pub(crate) use tracking::{Overlap, PREFIXES_AT_MOST, Post};
#[cfg(test)]
pub(crate) use users::COMMANDS_AT_MOST;
pub(crate) use users::{
    Changed, CommandSet, DEFAULT_USER, PASSWORD_AT_MOST, Rights, Selector, User, Users, Uses, hexadecimal,
    password_hash,
};

use crate::store::{Store, StoreOptions};
use crate::tls::TlsSettings;
use crate::wrong::Wrong;
use async_lock::{Mutex, MutexGuardArc};
use karstdb::io::Env;
use rustls::ServerConfig;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Default of `maxclients`.
pub(crate) const MAX_CLIENTS: usize = 10_000;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses to listen at; port 0 takes a free one. Default: 127.0.0.1:6379.
    pub listen: Vec<SocketAddr>,
    /// Addresses to listen at for clients of TLS; port 0 takes a free one. The certificates are in
    /// the files that `tls-cert-file`, `tls-key-file` and `tls-ca-cert-file` of `settings` name;
    /// `tls-auth-clients` (`yes` by default, `no`, `optional`) decides whether clients have
    /// certificates too. Default: none.
    pub tls_listen: Vec<SocketAddr>,
    /// Number of reactor threads. Default: 1.
    pub threads: usize,
    /// Binds each thread to a CPU. Default: false.
    pub pin: bool,
    /// When a write is on the device. Default: about a second after its answer.
    pub append_sync: AppendSync,
    /// Number of databases that SELECT knows, 1 to 65535. Default: 16.
    pub databases: u16,
    /// Maximum number of connections. Default: 10,000.
    pub max_clients: usize,
    /// Password of AUTH; empty: none is needed. Default: none.
    pub password: String,
    /// File of users that are there from the start, for ACL LOAD and SAVE. Default: none.
    pub acl_file: Option<PathBuf>,
    /// Directory of the copies that SAVE and BGSAVE make. Default: none, and both are refused.
    pub save_directory: Option<PathBuf>,
    /// Settings by the names of CONFIG SET, and their values. Default: none.
    pub settings: Vec<(String, Vec<u8>)>,
    /// Users that there are from the start: of each the words that follow `user` in the file of ACL
    /// SAVE. One that is `default` counts more than `password`. Default: none.
    pub users: Vec<Vec<Vec<u8>>>,
    /// File that CONFIG REWRITE changes. Default: none.
    pub config_file: Option<PathBuf>,
    /// Allows DEBUG. Default: false.
    pub allow_debug: bool,
    /// Maximum resident memory of the process in bytes, at least 64 MiB. The block cache, with
    /// memtables, open tables and buffers of jobs in it, has five eighths of it, in place of what
    /// `db` says, and less while a sample of each second is above the limit; all clients have a
    /// quarter (`maxmemory-clients`), unless `settings` say otherwise. What the process takes
    /// beyond these may exceed it: see docs/serve.md. Default: none.
    pub memory: Option<u64>,
    /// Options of the KarstDB database. Those that the layout needs override them.
    pub db: karstdb::Options,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            tls_listen: Vec::new(),
            threads: 1,
            pin: false,
            append_sync: AppendSync::default(),
            databases: 16,
            max_clients: MAX_CLIENTS,
            password: String::new(),
            acl_file: None,
            save_directory: None,
            settings: Vec::new(),
            users: Vec::new(),
            config_file: None,
            allow_debug: false,
            memory: None,
            db: karstdb::Options::new(),
        }
    }
}

/// An open server; a clone is another handle of it. `Send` and `Sync`.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    env: Env,
    path: PathBuf,
    store: Store,
    settings: Arc<Settings>,
    clients: Arc<Clients>,
    stats: Stats,
    command_stats: CommandStats,
    latency: LatencyLog,
    slow_log: SlowLog,
    users: Users,
    acl_file: Option<PathBuf>,
    acl_log: AclLog,
    saves: Arc<Saves>,
    memory: Memory,
    files: Arc<Mutex<()>>,
    config_file: Option<PathBuf>,
    allows_debug: bool,
    pause: Pause,
    scripts: Scripts,
    libraries: Libraries,
    stop: Bell,
    /// True if it listens for clients of TLS.
    has_tls: bool,
    /// Certificates for new connections.
    tls: parking_lot::Mutex<Option<Arc<ServerConfig>>>,
    /// First ports without TLS and with it, 0 for none, once a [`Running`](crate::Running) listens.
    ports: OnceLock<(u16, u16)>,
    /// Environment's monotonic time when it was opened.
    since: Duration,
    /// 40 hexadecimal digits that tell this run from others.
    run_id: String,
    threads: usize,
}

/// Why a setting is refused that there is not.
const UNKNOWN: &str = "there is no such setting";

impl ServerOptions {
    /// Checks a setting, as [`Server::open`] does.
    ///
    /// # Errors
    /// There is none of that name, or the value is wrong; the text says why.
    pub fn check_setting(name: &str, value: &[u8]) -> Result<(), &'static str> {
        let settings = Settings::new(AppendSync::default(), 1, "", Arc::default());
        settings.check(name, value).map_err(|why| why.unwrap_or(UNKNOWN))
    }
}

impl Server {
    /// Opens or creates the database at `path`, and listens nowhere yet. A large database takes
    /// seconds, in which the future blocks no thread.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::open`]. `InvalidArgument`: a setting is unknown, its value is wrong,
    /// or the certificates of [`ServerOptions::tls_listen`] cannot be used.
    pub async fn open(path: &Path, options: &ServerOptions, env: &Env) -> karstdb::Result<Self> {
        let limit = options.memory.map(Limit::new);
        if options.memory.is_some_and(|bytes| bytes < LIMIT_AT_LEAST) {
            let why = format!("the memory must be at least {} MiB", LIMIT_AT_LEAST >> 20);
            return Err(karstdb::Error::invalid_argument(why));
        }
        let mut db = options.db.clone();
        if let Some(limit) = &limit {
            db = db.block_cache(limit.cache().clone()).one_memory_budget(true);
        }
        let of_store = StoreOptions { databases: options.databases, options: db };
        let store = Store::open(path, &of_store, env).await?;
        let interests = store.interests().clone();
        let settings =
            Settings::new(options.append_sync, options.max_clients, &options.password, interests.clone());
        if let Some(limit) = &limit {
            settings.set_client_memory(limit.share_of_clients());
        }
        let (settings, clients) = (Arc::new(settings), Arc::new(Clients::new(interests.clone())));
        let (told, limits) = (clients.clone(), settings.clone());
        store.observe(Teller { clients: told, settings: limits, interests, env: env.clone() });
        let libraries = Libraries::load(&store, env).await?;
        let checked = settings.check("requirepass", options.password.as_bytes());
        let run_id = [env.random_seed(), env.random_seed(), env.random_seed()];
        let run_id = format!("{:016x}{:016x}{:08x}", run_id[0], run_id[1], run_id[2] as u32);
        let server = Self(Arc::new(Inner {
            env: env.clone(),
            path: path.to_owned(),
            store,
            settings,
            clients,
            stats: Stats::default(),
            command_stats: CommandStats::default(),
            latency: LatencyLog::default(),
            slow_log: SlowLog::default(),
            users: Users::new(options.password.as_bytes()),
            acl_file: options.acl_file.clone(),
            acl_log: AclLog::default(),
            saves: Arc::new(Saves::new(options.save_directory.clone(), env.unix_time())),
            memory: Memory::new(limit),
            files: Arc::default(),
            config_file: options.config_file.clone(),
            allows_debug: options.allow_debug,
            pause: Pause::default(),
            scripts: Scripts::new(options.threads.max(1)),
            libraries,
            stop: Bell::default(),
            has_tls: !options.tls_listen.is_empty(),
            tls: parking_lot::Mutex::default(),
            ports: OnceLock::new(),
            since: env.now(),
            run_id,
            threads: options.threads.max(1),
        }));
        let set =
            |(name, value): &(String, Vec<u8>)| server.set(name, value).map_err(|why| (name.clone(), why));
        let checked = checked.map_err(|why| ("requirepass".to_owned(), why));
        let set = checked.and_then(|()| options.settings.iter().try_for_each(set));
        let ready = match set {
            Ok(()) => server.use_tls(&server.settings().tls()).await,
            Err((name, why)) => Err(format!("{name}: {}", why.unwrap_or(UNKNOWN))),
        };
        if let Err(why) = ready {
            server.close().await?;
            return Err(karstdb::Error::invalid_argument(why));
        }
        Ok(server)
    }

    /// Stops accepting and receiving. Does not wait. May be called on any thread, more than once.
    pub fn stop(&self) {
        self.0.stop.ring();
        self.0.store.end_maintenance();
        for client in self.0.clients.all() {
            client.end.ring();
        }
    }

    /// Waits until somebody stops the server.
    pub async fn stopped(&self) {
        self.0.stop.rung().await;
    }

    /// Closes the database, once all tasks of the server and a copy that is being made have ended.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::close`].
    pub async fn close(&self) -> karstdb::Result<()> {
        self.0.saves.ended_and(|| !self.0.saves.is_running()).await;
        self.0.store.close().await
    }

    /// Rung by [`stop`](Self::stop).
    pub(crate) fn stop_bell(&self) -> &Bell {
        &self.0.stop
    }

    /// True after [`stop`](Self::stop).
    pub fn is_stopping(&self) -> bool {
        self.0.stop.is_rung()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.0.clients
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.0.stats
    }

    pub(crate) fn command_stats(&self) -> &CommandStats {
        &self.0.command_stats
    }

    /// Counts error replies.
    pub(crate) fn note_errors(&self, wrong: &Wrong, count: u64) {
        self.stats().errors.add(count);
        self.command_stats().note_error(wrong, count);
    }

    /// Events that took long.
    pub(crate) fn latency(&self) -> &LatencyLog {
        &self.0.latency
    }

    pub(crate) fn slow_log(&self) -> &SlowLog {
        &self.0.slow_log
    }

    pub(crate) fn users(&self) -> &Users {
        &self.0.users
    }

    /// File of ACL LOAD and SAVE.
    pub(crate) fn acl_file(&self) -> Option<&Path> {
        self.0.acl_file.as_deref()
    }

    /// Refusals for ACL LOG.
    pub(crate) fn acl_log(&self) -> &AclLog {
        &self.0.acl_log
    }

    /// Copies of the database.
    pub(crate) fn saves(&self) -> &Arc<Saves> {
        &self.0.saves
    }

    /// Memory of the process.
    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// File of CONFIG REWRITE.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.0.config_file.as_deref()
    }

    /// Waits for the turn to read or replace a file of users or settings. It ends with the guard,
    /// which goes into the job that does so: the job may outlive the call.
    pub(crate) async fn files_turn(&self) -> MutexGuardArc<()> {
        self.0.files.lock_arc().await
    }

    /// True if DEBUG is allowed.
    pub(crate) fn allows_debug(&self) -> bool {
        self.0.allows_debug
    }

    /// Sets a setting by its name, as [`Settings::set`] does.
    ///
    /// # Errors
    /// Those of [`Settings::set`].
    pub(crate) fn set(&self, name: &str, value: &[u8]) -> Result<(), Option<&'static str>> {
        self.settings().set(name, value)?;
        if name == "requirepass" {
            self.users().set_default_password(value);
        }
        Ok(())
    }

    /// Disconnects the clients with the most memory while all together have more than
    /// `maxmemory-clients`.
    pub(crate) fn fit_clients(&self) {
        let limit = self.settings().client_memory();
        if limit > 0 && self.clients().may_evict(limit) {
            self.stats().evicted.add(self.clients().evict(limit));
        }
    }

    /// Reads the certificates that settings name, for new connections, if it listens for clients of
    /// TLS.
    ///
    /// # Errors
    /// Those of [`TlsSettings::load`]. The certificates are those of before.
    pub(crate) async fn use_tls(&self, settings: &TlsSettings) -> Result<(), String> {
        if self.0.has_tls {
            let loaded = settings.load(self.env()).await?;
            *self.0.tls.lock() = Some(loaded);
        }
        Ok(())
    }

    /// Certificates for a new connection; `None` if it does not listen for clients of TLS.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.0.tls.lock().clone()
    }

    /// Notes the ports that it listens at, the first ones without TLS and with it; 0: none.
    pub(crate) fn note_ports(&self, plain: u16, tls: u16) {
        let _were_noted = self.0.ports.set((plain, tls));
    }

    /// First ports without TLS and with it, 0 for none; the client's while none are noted.
    pub(crate) fn ports(&self, client: &Client) -> (u16, u16) {
        self.0.ports.get().copied().unwrap_or((client.local.port(), 0))
    }

    pub(crate) fn pause(&self) -> &Pause {
        &self.0.pause
    }

    pub(crate) fn scripts(&self) -> &Scripts {
        &self.0.scripts
    }

    pub(crate) fn libraries(&self) -> &Libraries {
        &self.0.libraries
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.0.run_id
    }

    pub(crate) fn threads(&self) -> usize {
        self.0.threads
    }

    /// Time since it was opened.
    pub(crate) fn uptime(&self) -> Duration {
        self.0.env.now().saturating_sub(self.0.since)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({}, {} clients)", self.0.path.display(), self.0.clients.count())
    }
}
