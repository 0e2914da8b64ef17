//! The state that all connections share: the store, settings, the list of clients, counters, and
//! the end.
//!
//! In: a directory, [`ServerOptions`] and an environment. Out: [`Server`], which knows neither
//! sockets nor commands; `serving` and `running` have these.

mod bell;
mod client;
mod clients;
mod forms;
mod mailbox;
mod pause;
mod pubsub;
mod settings;
mod slowlog;
mod stats;
mod subscriptions;

pub(crate) use bell::Bell;
pub(crate) use client::Client;
pub(crate) use clients::Clients;
pub(crate) use forms::FormSetting;
use pause::Pause;
pub use settings::AppendSync;
pub(crate) use settings::Settings;
use slowlog::SlowLog;
pub(crate) use stats::Stats;
pub(crate) use subscriptions::Space;

use crate::store::{Store, StoreOptions};
use karstdb::io::Env;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses to listen at; port 0 takes a free one. Default: 127.0.0.1:6379.
    pub listen: Vec<SocketAddr>,
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
    /// Options of the KarstDB database. Those that the layout needs override them.
    pub db: karstdb::Options,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            threads: 1,
            pin: false,
            append_sync: AppendSync::default(),
            databases: 16,
            max_clients: 10_000,
            password: String::new(),
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
    settings: Settings,
    clients: Clients,
    stats: Stats,
    slow_log: SlowLog,
    pause: Pause,
    stop: Bell,
    /// Environment's monotonic time when it was opened.
    since: Duration,
    /// 40 hexadecimal digits that tell this run from others.
    run_id: String,
    threads: usize,
}

impl Server {
    /// Opens or creates the database at `path`, and listens nowhere yet. A large database takes
    /// seconds, in which the future blocks no thread.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::open`].
    pub async fn open(path: &Path, options: &ServerOptions, env: &Env) -> karstdb::Result<Self> {
        let of_store = StoreOptions { databases: options.databases, options: options.db.clone() };
        let store = Store::open(path, &of_store, env).await?;
        let run_id = [env.random_seed(), env.random_seed(), env.random_seed()];
        let run_id = format!("{:016x}{:016x}{:08x}", run_id[0], run_id[1], run_id[2] as u32);
        Ok(Self(Arc::new(Inner {
            env: env.clone(),
            path: path.to_owned(),
            store,
            settings: Settings::new(options.append_sync, options.max_clients, &options.password),
            clients: Clients::default(),
            stats: Stats::default(),
            slow_log: SlowLog::default(),
            pause: Pause::default(),
            stop: Bell::default(),
            since: env.now(),
            run_id,
            threads: options.threads.max(1),
        })))
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

    /// Closes the database, once all tasks of the server have ended.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::close`].
    pub async fn close(&self) -> karstdb::Result<()> {
        self.0.store.close().await
    }

    /// Rung by [`stop`](Self::stop).
    pub(crate) fn stop_bell(&self) -> &Bell {
        &self.0.stop
    }

    pub(crate) fn is_stopping(&self) -> bool {
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

    pub(crate) fn slow_log(&self) -> &SlowLog {
        &self.0.slow_log
    }

    pub(crate) fn pause(&self) -> &Pause {
        &self.0.pause
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
