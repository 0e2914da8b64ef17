//! A server with its threads: [`Running`].

use crate::server::{Server, ServerOptions};
use karstdb::io::{Env, JoinError, JoinHandle, Reactor, block_on, report, spawn_local};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::channel;

/// A server that runs on its own reactor threads. Dropping it stops it, as [`Running::shut_down`]
/// does.
pub struct Running {
    server: Server,
    env: Env,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    /// Dropped last, after its tasks have ended.
    _reactor: Reactor,
    is_closed: bool,
}

impl Running {
    /// Opens the database at `path`, listens, and starts the threads. Blocks until clients can
    /// connect.
    ///
    /// # Errors
    /// The database cannot be opened, the file of users is wrong, certificates cannot be used, an
    /// address is in use, or a thread cannot be started.
    pub fn start(path: &Path, options: &ServerOptions, env: &Env) -> karstdb::Result<Self> {
        let server = block_on(env, Server::open(path, options, env))?;
        if let Err(why) = block_on(env, server.load_users(options)) {
            return Err(closed_after(&server, env, karstdb::Error::invalid_argument(why)));
        }
        let mut all = options.listen.iter().chain(&options.tls_listen);
        let open = all.find(|address| !address.ip().is_loopback());
        if let Some(open) = open.filter(|_| server.users().default().is_open()) {
            let why = format!(
                "{open} is reached from other machines, and the user default needs no password: that needs \
                 --requirepass, or a user default with a password"
            );
            return Err(closed_after(&server, env, karstdb::Error::invalid_argument(why)));
        }
        let threads = server.threads();
        let started = Reactor::builder(env)
            .threads(threads)
            .name("karst-serve")
            .pin(options.pin)
            .carries_writes(true)
            .build();
        let reactor = match started {
            Ok(reactor) => reactor,
            Err(e) => return Err(closed_after(&server, env, e.into())),
        };
        let mut running = Self {
            server,
            env: env.clone(),
            addresses: Vec::new(),
            tls_addresses: Vec::new(),
            tasks: Vec::new(),
            _reactor: reactor,
            is_closed: false,
        };
        running.addresses = running.listen(&options.listen, threads, false)?;
        running.tls_addresses = running.listen(&options.tls_listen, threads, true)?;
        let port = |addresses: &[SocketAddr]| addresses.first().map_or(0, SocketAddr::port);
        running.server.note_ports(port(&running.addresses), port(&running.tls_addresses));
        let server = running.server.clone();
        let maintenance = running._reactor.spawn_on(0, move || async move { server.maintain().await });
        running.tasks.push(maintenance);
        Ok(running)
    }

    /// Listens at addresses on all threads. Returns the addresses with their ports.
    fn listen(
        &mut self,
        addresses: &[SocketAddr],
        threads: usize,
        is_tls: bool,
    ) -> karstdb::Result<Vec<SocketAddr>> {
        let mut bound = Vec::new();
        for address in addresses {
            // With port 0 the first thread's listener determines the port of the others'.
            let mut address = *address;
            for thread in 0..threads {
                address = self.listen_on(thread, address, is_tls)?;
            }
            bound.push(address);
        }
        Ok(bound)
    }

    /// Binds a listener on a thread, which begins to accept. Returns its address.
    fn listen_on(&mut self, thread: usize, address: SocketAddr, is_tls: bool) -> karstdb::Result<SocketAddr> {
        let (tell, told) = channel();
        let server = self.server.clone();
        let task = self._reactor.spawn_on(thread, move || async move {
            match server.bind(address) {
                Ok(listener) => {
                    let _is_told = tell.send(Ok(listener.address()));
                    let spawn = |task| drop(spawn_local(task));
                    match is_tls {
                        true => server.serve_tls(listener, &spawn).await,
                        false => server.serve(listener, &spawn).await,
                    }
                }
                Err(e) => {
                    let _is_told = tell.send(Err(e));
                }
            }
        });
        match told.recv() {
            Ok(bound) => {
                self.tasks.push(task);
                Ok(bound?)
            }
            Err(_) => {
                let why = task.join().err().unwrap_or(JoinError::Cancelled);
                Err(karstdb::Error::of_task("listen", &why))
            }
        }
    }

    /// Addresses that it listens at, with the ports that it was given; those for clients of TLS are
    /// [`tls_addresses`](Self::tls_addresses).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Addresses that it listens at for clients of TLS, with the ports that it was given.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// The server, to stop it from another thread.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Blocks until the server is stopped: by [`Server::stop`], or by a client's SHUTDOWN.
    pub fn wait(&self) {
        block_on(&self.env, self.server.stopped());
    }

    /// Stops accepting and receiving, answers what was received, and closes the database. Blocks
    /// until then; clients that do not take their answers have five seconds.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::close`].
    pub fn shut_down(mut self) -> karstdb::Result<()> {
        self.end()
    }

    fn end(&mut self) -> karstdb::Result<()> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        self.server.stop();
        for task in self.tasks.drain(..) {
            if let Err(error) = task.join() {
                report!(error, %error, "a task of the server has failed");
            }
        }
        block_on(&self.env, self.server.close())
    }
}

/// Closes the database of a server that cannot start, and returns why.
fn closed_after(server: &Server, env: &Env, why: karstdb::Error) -> karstdb::Error {
    if let Err(error) = block_on(env, server.close()) {
        report!(warn, %error, "the database was not closed");
    }
    why
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            report!(error, %error, "the database was not closed");
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Running({:?} at {:?})", self.server, self.addresses)
    }
}
