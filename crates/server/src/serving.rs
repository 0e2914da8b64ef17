//! Listeners and background work of a [`Server`], for threads of its own ([`Running`]) or of an
//! executor of the caller's, such as a simulation.
//!
//! Invariants: a connection stays on the thread whose listener accepted it. After
//! [`Server::stop`] no connection is accepted and no more bytes are received; requests that were
//! received are answered.
//!
//! [`Running`]: crate::Running

use crate::connection;
use crate::server::{AppendSync, OperationSetting, Server};
use futures_util::future::{Either, join, select};
use karstdb::io::net::{ListenOptions, Listener};
use karstdb::io::{report, sleep};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

/// Pause after a connection could not be accepted, such as for want of a descriptor.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Time between two syncs of the log with [`AppendSync::EverySecond`].
const SYNC_PERIOD: Duration = Duration::from_secs(1);

/// A task of one thread.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

impl Server {
    /// Binds a listener of the calling thread at `address`.
    ///
    /// # Errors
    /// Those of [`Listener::bind`].
    pub fn bind(&self, address: SocketAddr) -> karstdb::io::Result<Listener> {
        let options = ListenOptions { reuse_port: self.threads() > 1, ..ListenOptions::default() };
        Listener::bind(self.env(), address, options)
    }

    /// Accepts connections until the server is stopped, and then waits until all clients of the
    /// server have gone. `spawn` runs a connection on the calling thread.
    pub async fn serve(&self, listener: Listener, spawn: &dyn Fn(LocalTask)) {
        self.accept(listener, false, spawn).await;
    }

    /// [`serve`](Self::serve) for clients of TLS. A server without
    /// [`ServerOptions::tls_listen`](crate::ServerOptions::tls_listen) has no certificates, and
    /// ends each connection at once.
    pub async fn serve_tls(&self, listener: Listener, spawn: &dyn Fn(LocalTask)) {
        self.accept(listener, true, spawn).await;
    }

    async fn accept(&self, mut listener: Listener, is_tls: bool, spawn: &dyn Fn(LocalTask)) {
        let local = listener.address();
        let mut stopped = pin!(self.stop_bell().rung());
        loop {
            // The end comes first: clients may be there whenever they are asked for.
            let accepted = match select(&mut stopped, pin!(listener.accept())).await {
                Either::Right((accepted, _)) => accepted,
                Either::Left(_) => break,
            };
            match accepted {
                Ok(stream) => {
                    self.stats().connections.add(1);
                    spawn(Box::pin(connection::serve(self.clone(), stream, local, is_tls)));
                }
                Err(error) => {
                    report!(warn, %error, "a connection was not accepted");
                    sleep(self.env(), PAUSE_AFTER_FAILURE).await;
                }
            }
        }
        drop(listener);
        self.clients().all_gone().await;
    }

    /// Deletes what has expired, and each second syncs the log if it is asked for, ends idle
    /// clients and takes a sample of the memory, until the server is stopped. One task of one
    /// thread runs it, to its end: a future that is dropped may have begun to commit, and the sizes
    /// of the databases would be wrong afterwards.
    pub async fn maintain(&self) {
        let each_second = async {
            loop {
                self.memory().sample(self.env()).await;
                let pause = pin!(sleep(self.env(), SYNC_PERIOD));
                select(pause, pin!(self.stop_bell().rung())).await;
                if self.is_stopping() {
                    break; // closing the database syncs
                }
                self.end_idle_clients();
                self.clients().forget_eviction();
                self.fit_clients();
                if self.settings().append_sync() == AppendSync::EverySecond
                    && let Err(error) = self.store().sync().await
                {
                    report!(warn, %error, "the log was not synced");
                }
            }
        };
        // Both end by themselves, because what has begun to commit is not to be dropped.
        join(self.store().maintain(), each_second).await;
    }
}

impl Server {
    /// Disconnects clients that have sent nothing for `timeout` seconds, if that is set. Those that
    /// wait for something stay.
    fn end_idle_clients(&self) {
        let timeout = Duration::from_secs(self.settings().operation().get(OperationSetting::Timeout));
        if timeout > Duration::ZERO {
            let now = self.env().now();
            for client in self.clients().all() {
                if client.is_idle(now, timeout) {
                    client.end.ring();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::server::{Server, ServerOptions};
    use crate::store::{Durability, Key, Lifetime};
    use karstdb::io::{Env, Simulation, sleep};
    use std::path::Path;
    use std::pin::pin;
    use std::time::Duration;

    /// Stops the server after a time at which the maintenance commits, or not. Returns the number
    /// of keys that it has left, and of those that the server counts.
    async fn stop_after(env: &Env, time: Duration) -> (u64, u64) {
        let server = Server::open(Path::new("/db"), &ServerOptions::default(), env).await.unwrap();
        let store = server.store();
        let keys: Vec<Key> = (0..200u8).map(|name| Key { db: 0, name: vec![name] }).collect();
        let mut access = store.change(&keys).await;
        let soon = access.now() + 1;
        for key in &keys {
            access.set_string(key, b"x", Lifetime::Until(soon)).await.unwrap();
        }
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        sleep(env, Duration::from_millis(2)).await;
        let stopping = async {
            sleep(env, time).await;
            server.stop();
        };
        futures_util::future::join(pin!(server.maintain()), pin!(stopping)).await;
        // Tasks that were begun and not awaited have ended then.
        sleep(env, Duration::from_secs(1)).await;
        let mut left = 0;
        store.view(0).names(0, b"", |_| left += 1).await.unwrap();
        (left, store.size(0))
    }

    #[test]
    fn a_stop_drops_no_commit_of_the_maintenance() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let simulation = Simulation::new(seed);
            let env = simulation.env().clone();
            let time = Duration::from_micros(seed);
            let (left, counted) = simulation.run(stop_after(&env, time)).expect("the power stays");
            assert_eq!(left, counted, "keys after a stop in {time:?}");
            seen.insert(left);
        }
        assert!(seen.len() > 1, "all stops were at one place of the work: {seen:?}");
    }

    /// Has three clients, two of which wait for their next command, and a `timeout` of a second for
    /// three seconds. Returns which of them are disconnected.
    async fn idle_clients(env: &Env) -> [bool; 3] {
        let server = Server::open(Path::new("/db"), &ServerOptions::default(), env).await.unwrap();
        server.set("timeout", b"1").unwrap();
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let add = || {
            let user = server.users().default();
            server.clients().add(nowhere, nowhere, user, env.now(), 9).expect("there is room")
        };
        let clients = [add(), add(), add()];
        let [idle, busy, subscribed] = clients.each_ref().map(|connected| connected.client.clone());
        idle.set_receiving(true);
        subscribed.set_receiving(true);
        server.clients().pubsub().subscribe(&subscribed, crate::server::Space::Channels, b"a", || {});
        let stopping = async {
            sleep(env, Duration::from_secs(3)).await;
            let ended = [&idle, &busy, &subscribed].map(|client| client.end.is_rung());
            server.stop();
            ended
        };
        futures_util::future::join(pin!(server.maintain()), pin!(stopping)).await.1
    }

    #[test]
    fn idle_clients_are_disconnected() {
        let simulation = Simulation::new(1);
        let env = simulation.env().clone();
        let ended = simulation.run(idle_clients(&env)).expect("the power stays");
        assert_eq!(ended, [true, false, false]);
    }
}
