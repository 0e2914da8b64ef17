//! A server on a simulated machine: connections that deliver bytes in parts and are reset, and
//! power failures of the disk, all determined by a seed.
//!
//! Clients count, set keys of their own, run transactions and scripts, and add, sum and pop the
//! members of sorted sets, over several lives of the machine. Checked: writes acknowledged under
//! `always` survive every life; no two acknowledged INCRs gave one number, and the counter is what
//! they and the unanswered ones allow; a transaction or a script is there as a whole or not at all;
//! no member is popped twice, and the index of a sorted set agrees with its members; entries of a
//! stream are delivered to a group once, and are pending until they are acknowledged ([`streams`]);
//! equal seeds give equal histories. The memory of clients is limited, so that some are evicted.
//! Without faults: what one client costs the others, how the end comes to clients that are slow or
//! never pause, in [`blocking`] that elements reach those who wait for them, in [`linear`] that
//! histories of shared keys are linearizable, and in [`tracking`] that caches of clients are not
//! stale. Half of the connections have TLS ([`wire`]), beside clients of it that keep to no rule
//! ([`tls`]).
//!
//! Environment: `KARST_SEED` runs one seed only, `KARST_SEEDS` this number of seeds from there on.

#[path = "simulation/blocking.rs"]
mod blocking;
#[path = "simulation/linear.rs"]
mod linear;
#[path = "simulation/scripts.rs"]
mod scripts;
#[path = "simulation/streams.rs"]
mod streams;
#[path = "simulation/tls.rs"]
mod tls;
#[path = "simulation/tracking.rs"]
mod tracking;
#[path = "simulation/wire.rs"]
mod wire;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use karst_server::{AppendSync, LocalTask, Server, ServerOptions};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::net::{NetworkFaults, Stream};
use karstdb::io::{Crash, Env, Simulation, sleep};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use wire::{TLS, Wire};

/// Address of the server for clients without TLS.
const PLAIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 6379);
const CLIENTS: u64 = 4;
const OPERATIONS: u64 = 40;
const LIVES: u64 = 4;
/// Memory of all clients together beyond which some are disconnected, in bytes.
const CLIENT_MEMORY: usize = 24 << 10;
/// Bytes of a large request; two of them are too many.
const MUCH: usize = 20 << 10;

/// What the clients know of the data.
#[derive(Clone, Default)]
struct Known {
    /// Replies of INCR.
    counted: BTreeSet<i64>,
    /// INCRs whose replies did not come.
    unanswered: i64,
    /// Last acknowledged and last sent number in each client's own key.
    own: Vec<(u64, u64)>,
    /// Acknowledged transactions, and those whose replies did not come.
    transactions: (i64, i64),
    /// Acknowledged scripts, and those whose replies did not come.
    scripts: (u64, u64),
    scores: KnownScores,
    stream: streams::KnownStream,
    /// Connections that were reset.
    resets: u64,
    /// Lives that a power failure ended.
    failures: u64,
    /// Clients that were disconnected for their memory, in lives that came to their end.
    evicted: u64,
}

/// The clients' knowledge of the sorted sets.
#[derive(Clone, Default)]
struct KnownScores {
    /// Members that were sent to `queue`, each once, with their scores and true if acknowledged.
    added: BTreeMap<String, (u64, bool)>,
    /// Members that replies of ZPOPMIN had.
    popped: BTreeSet<String>,
    /// ZPOPMINs whose replies did not come.
    unanswered_pops: usize,
    /// Acknowledged ZINCRBYs of `sums`, and those whose replies did not come.
    sums: (u64, u64),
}

/// Tasks that a future of the test runs beside itself.
#[derive(Clone, Default)]
struct Tasks(Rc<RefCell<Vec<LocalTask>>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push(Box::pin(task));
    }

    /// Runs all tasks until `main` is ready.
    async fn run_beside<T>(&self, main: impl Future<Output = T>) -> T {
        let mut main = pin!(main);
        let mut running: FuturesUnordered<LocalTask> = FuturesUnordered::new();
        poll_fn(|cx| {
            loop {
                running.extend(self.0.borrow_mut().drain(..));
                let ended = running.poll_next_unpin(cx);
                if self.0.borrow().is_empty() && !matches!(ended, Poll::Ready(Some(()))) {
                    break;
                }
            }
            let polled = main.as_mut().poll(cx);
            if !self.0.borrow().is_empty() {
                cx.waker().wake_by_ref();
            }
            polled
        })
        .await
    }
}

/// A client's connection and the replies that it has received.
struct Client {
    wire: Wire,
}

/// The connection has ended.
struct Gone;

impl Client {
    /// Sends commands of one line each, and returns the lines of `lines` replies.
    async fn call(&mut self, commands: &str, lines: usize) -> Result<Vec<String>, Gone> {
        self.send(commands.as_bytes().to_vec()).await?;
        let mut found = Vec::new();
        while found.len() < lines {
            let buffered = self.wire.buffered();
            let Some(end) = buffered.iter().position(|byte| *byte == b'\n') else {
                self.wire.fill().await?;
                continue;
            };
            let line = String::from_utf8_lossy(&buffered[..end]).trim_end().to_owned();
            assert!(!line.starts_with("-ERR Protocol"), "{line}");
            self.wire.consume(end + 1);
            found.push(line);
        }
        Ok(found)
    }
}

/// The address of a connection: that of TLS for half of them.
fn drawn(env: &Env, plain: SocketAddr) -> SocketAddr {
    if env.random_seed().is_multiple_of(2) { TLS } else { plain }
}

/// Carries out `operations`, by a new connection after each that was reset, with pauses in between.
async fn connected(
    env: &Env,
    address: SocketAddr,
    random: &mut Random,
    operations: u64,
    operate: impl AsyncFn(&mut Client, &mut Random) -> Result<(), Gone>,
) {
    let mut connected = None;
    for _ in 0..operations {
        let mut client = match connected.take() {
            Some(client) => client,
            None => match Wire::connect(env, drawn(env, address)).await {
                Ok(wire) => Client { wire },
                Err(Gone) => continue,
            },
        };
        if operate(&mut client, random).await.is_ok() {
            connected = Some(client);
        }
        if random.one_in(4) {
            sleep(env, Duration::from_millis(random.below(10))).await;
        }
    }
}

/// One client of one life.
async fn client(env: Env, address: SocketAddr, number: u64, seed: u64, known: Rc<RefCell<Known>>) {
    let operate = async |client: &mut Client, random: &mut Random| {
        let went = match random.below(14) {
            0 => count(client, &known).await,
            1 => set_own(client, number, &known, 1).await,
            2 => transact(client, &known).await,
            3 => add_score(client, random, &known).await,
            4 => pop_score(client, &known).await,
            5 => sum_score(client, &known).await,
            6..9 => streams::operate(client, number, random, &known).await,
            9 => scripts::transfer(client, random, &known).await,
            10 if random.one_in(3) => tls::break_off(client).await,
            11 => {
                tls::intrude(&env, random).await;
                Ok(())
            }
            12 => set_own(client, number, &known, MUCH).await,
            _ => look(client, number, &known).await,
        };
        known.borrow_mut().resets += u64::from(went.is_err());
        went
    };
    connected(&env, address, &mut Random::new(seed), OPERATIONS, operate).await;
}

async fn count(client: &mut Client, known: &RefCell<Known>) -> Result<(), Gone> {
    // Unanswered until it is answered, because the power may fail in between.
    known.borrow_mut().unanswered += 1;
    let reply = client.call("INCR counter\r\n", 1).await?;
    let number = reply[0].strip_prefix(':').and_then(|number| number.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{reply:?}"));
    let mut known = known.borrow_mut();
    known.unanswered -= 1;
    assert!(known.counted.insert(number), "{number} was counted twice");
    Ok(())
}

/// Sets the client's key, in a pipeline with a request of `echoed` bytes.
async fn set_own(
    client: &mut Client,
    number: u64,
    known: &RefCell<Known>,
    echoed: usize,
) -> Result<(), Gone> {
    let next = {
        let own = &mut known.borrow_mut().own[number as usize];
        own.1 += 1;
        own.1
    };
    let reply = client.call(&format!("SET own:{number} {next}\r\nECHO {:x<echoed$}\r\n", ""), 3).await?;
    assert_eq!((&*reply[0], reply[2].len()), ("+OK", echoed));
    known.borrow_mut().own[number as usize].0 = next;
    Ok(())
}

async fn transact(client: &mut Client, known: &RefCell<Known>) -> Result<(), Gone> {
    known.borrow_mut().transactions.1 += 1;
    let reply = client.call("MULTI\r\nINCR left\r\nINCR right\r\nEXEC\r\n", 6).await?;
    assert_eq!(reply[4], reply[5], "both sides of a transaction: {reply:?}");
    let mut known = known.borrow_mut();
    known.transactions.0 += 1;
    known.transactions.1 -= 1;
    Ok(())
}

/// Adds a member that no other command adds.
async fn add_score(client: &mut Client, random: &mut Random, known: &RefCell<Known>) -> Result<(), Gone> {
    let score = random.below(10);
    let member = {
        let added = &mut known.borrow_mut().scores.added;
        let member = format!("m{}", added.len());
        added.insert(member.clone(), (score, false));
        member
    };
    assert_eq!(client.call(&format!("ZADD queue {score} {member}\r\n"), 1).await?, [":1"]);
    known.borrow_mut().scores.added.insert(member, (score, true));
    Ok(())
}

async fn pop_score(client: &mut Client, known: &RefCell<Known>) -> Result<(), Gone> {
    known.borrow_mut().scores.unanswered_pops += 1;
    let popped = strings(client, "ZPOPMIN queue\r\n").await?;
    let scores = &mut known.borrow_mut().scores;
    scores.unanswered_pops -= 1;
    for pair in popped.chunks(2) {
        assert_eq!(scores.added[&pair[0]].0.to_string(), pair[1], "the score of {}", pair[0]);
        assert!(scores.popped.insert(pair[0].clone()), "{} was popped twice", pair[0]);
    }
    Ok(())
}

async fn sum_score(client: &mut Client, known: &RefCell<Known>) -> Result<(), Gone> {
    known.borrow_mut().scores.sums.1 += 1;
    client.call("ZINCRBY sums 1 all\r\n", 2).await?;
    let sums = &mut known.borrow_mut().scores.sums;
    *sums = (sums.0 + 1, sums.1 - 1);
    Ok(())
}

/// Returns the strings of an array that a command replies with.
async fn strings(client: &mut Client, command: &str) -> Result<Vec<String>, Gone> {
    let head = client.call(command, 1).await?;
    let count: usize = head[0].strip_prefix('*').and_then(|count| count.parse().ok()).expect("an array");
    let lines = client.call("", 2 * count).await?;
    Ok(lines.into_iter().skip(1).step_by(2).collect())
}

/// Checks the sorted sets: the index and the members' own entries agree, and are those that the
/// clients know.
async fn check_scores(client: &mut Client, scores: &KnownScores) -> Result<(), Gone> {
    let by_score = strings(client, "ZRANGE queue -inf inf BYSCORE WITHSCORES\r\n").await?;
    let by_score: BTreeMap<&str, &str> = by_score.chunks(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    let by_name = strings(client, "ZRANGE queue - + BYLEX\r\n").await?;
    assert_eq!(by_name, by_score.keys().copied().collect::<Vec<_>>(), "index and members");
    assert_eq!(client.call("ZCARD queue\r\n", 1).await?, [format!(":{}", by_name.len())]);
    for (member, score) in &by_score {
        let reply = client.call(&format!("ZSCORE queue {member}\r\n"), 2).await?;
        assert_eq!(reply[1], *score, "the score of {member} in the index");
        assert_eq!(scores.added[*member].0.to_string(), *score, "the score of {member}");
        assert!(!scores.popped.contains(*member), "{member} was popped");
    }
    let is_missing = |(member, (_, is_acknowledged)): &(&String, &(u64, bool))| {
        *is_acknowledged && !scores.popped.contains(*member) && !by_score.contains_key(&***member)
    };
    let missing = scores.added.iter().filter(is_missing).count();
    assert!(missing <= scores.unanswered_pops, "{missing} members are missing");
    let range = scores.sums.0..=scores.sums.0 + scores.sums.1;
    let sum: u64 = match strings(client, "ZRANGE sums 0 -1 WITHSCORES\r\n").await?.last() {
        Some(sum) => sum.parse().expect("a number"),
        None => 0,
    };
    assert!(range.contains(&sum), "the sum is {sum}, not in {range:?}");
    Ok(())
}

/// Reads in one pipeline what must be there.
async fn look(client: &mut Client, number: u64, known: &RefCell<Known>) -> Result<(), Gone> {
    let least = known.borrow().own[number as usize].0;
    let reply = client.call(&format!("MGET left right\r\nGET own:{number}\r\nEXISTS counter\r\n"), 1).await?;
    assert_eq!(reply, ["*2"]);
    let left = bulk(client).await?;
    assert_eq!(left, bulk(client).await?, "half of a transaction was seen");
    let own = bulk(client).await?;
    assert!(own >= least, "client {number} has set {least} and reads {own}");
    client.call("", 1).await?;
    Ok(())
}

/// Reads a number, or null as 0.
async fn bulk(client: &mut Client) -> Result<u64, Gone> {
    match &*client.call("", 1).await?[0] {
        "$-1" => Ok(0),
        _ => Ok(client.call("", 1).await?[0].parse().expect("a number")),
    }
}

/// Options of a server with TLS, whose certificates [`wire::install`] has put on the disk.
fn options() -> ServerOptions {
    ServerOptions { tls_listen: vec![TLS], settings: wire::settings(), ..ServerOptions::default() }
}

/// Listens at both addresses from now on; the future serves until the server is stopped.
fn serve(server: Server, tasks: Tasks) -> impl Future<Output = ()> {
    let bind = |address| server.bind(address).expect("the address is free");
    let (plain, tls) = (bind(PLAIN), bind(TLS));
    async move {
        let spawn = |task| tasks.spawn(task);
        join(server.serve(plain, &spawn), server.serve_tls(tls, &spawn)).await;
    }
}

/// One life of the machine, from opening the database to closing it, or to the power's end. `begin`
/// spawns the clients, which stop the server.
async fn live_with(env: Env, begin: impl FnOnce(&Env, SocketAddr, Server, &Tasks)) {
    let mut options = ServerOptions { append_sync: AppendSync::Always, ..options() };
    options.settings.push(("maxmemory-clients".to_owned(), CLIENT_MEMORY.to_string().into_bytes()));
    let server = Server::open(Path::new("/db"), &options, &env).await.expect("the database opens");
    let tasks = Tasks::default();
    let served = serve(server.clone(), tasks.clone());
    let maintaining = server.clone();
    // Both end by themselves: what the maintenance has begun to commit is not to be dropped.
    let both = async move {
        join(served, maintaining.maintain()).await;
    };
    begin(&env, PLAIN, server, &tasks);
    tasks.run_beside(both).await;
    // The database is closed by the drop of its last handle. `Server::close` does it on a thread of
    // its own, which a simulation has as a job, in which closing is refused.
}

/// Number of clients that a server has disconnected for their memory.
fn evicted(server: &Server) -> u64 {
    let metrics = server.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix("karst_clients_evicted_total "));
    line.and_then(|number| number.parse().ok()).expect("the metric is there")
}

/// A life with clients that each have keys of their own.
async fn live(env: Env, seed: u64, known: Rc<RefCell<Known>>) {
    live_with(env, |env, address, server, tasks| {
        let left = Rc::new(Cell::new(CLIENTS));
        for number in 0..CLIENTS {
            let (known, left, server) = (known.clone(), left.clone(), server.clone());
            let (env, all) = (env.clone(), known.clone());
            tasks.spawn(async move {
                client(env, address, number, seed ^ (number << 32), known).await;
                left.set(left.get() - 1);
                if left.get() == 0 {
                    all.borrow_mut().evicted += evicted(&server);
                    server.stop();
                }
            });
        }
    })
    .await;
}

/// Reads everything without faults, and compares it with what the clients know.
async fn check(env: Env, known: Known) {
    let server = Server::open(Path::new("/db"), &options(), &env).await.expect("it opens");
    let tasks = Tasks::default();
    let served = serve(server.clone(), tasks.clone());
    let stopping = server.clone();
    tasks.spawn(async move {
        let mut client = connect(&env, PLAIN).await;
        let mut values = Vec::new();
        for key in ["counter", "left", "right"] {
            let sent = client.call(&format!("MGET {key}\r\n"), 1).await;
            assert!(sent.is_ok_and(|lines| lines == ["*1"]));
            values.push(bulk(&mut client).await.unwrap_or_else(|Gone| panic!("it was reset")) as i64);
        }
        check_scores(&mut client, &known.scores).await.unwrap_or_else(|Gone| panic!("it was reset"));
        streams::check(&mut client, &known.stream).await.unwrap_or_else(|Gone| panic!("it was reset"));
        scripts::check(&mut client, known.scripts).await.unwrap_or_else(|Gone| panic!("it was reset"));
        let acknowledged = known.counted.len() as i64;
        let most = known.counted.last().copied().unwrap_or(0);
        assert!(values[0] >= most, "{most} was acknowledged, and the counter is {}", values[0]);
        let range = acknowledged..=acknowledged + known.unanswered;
        assert!(range.contains(&values[0]), "the counter is {}, not in {range:?}", values[0]);
        assert_eq!(values[1], values[2], "half of a transaction has survived");
        let (acknowledged, unanswered) = known.transactions;
        assert!((acknowledged..=acknowledged + unanswered).contains(&values[1]), "{}", values[1]);
        for (number, (least, most)) in known.own.iter().enumerate() {
            let sent = client.call(&format!("MGET own:{number}\r\n"), 1).await;
            assert!(sent.is_ok_and(|lines| lines == ["*1"]));
            let own = bulk(&mut client).await.unwrap_or_else(|Gone| panic!("it was reset"));
            assert!((*least..=*most).contains(&own), "own:{number} is {own}, not in {least}..={most}");
        }
        stopping.stop();
    });
    tasks.run_beside(served).await;
}

/// Runs all lives of one machine. Returns the sum of their histories, and the numbers of
/// acknowledged INCRs, of resets, of power failures, of writes and syncs of the log by tasks, and
/// of evicted clients.
fn lives(seed: u64) -> (u64, [u64; 5]) {
    let known = Rc::new(RefCell::new(Known { own: vec![(0, 0); CLIENTS as usize], ..Known::default() }));
    let mut random = Random::new(seed);
    let mut simulation = Simulation::new(seed);
    wire::install(&simulation);
    let (mut sum, mut by_tasks) = (0u64, 0);
    for life in 0..LIVES {
        let env = simulation.env().clone();
        let network = env.memory_network().expect("a simulation has one");
        network.set_faults(NetworkFaults {
            partial: 0.5,
            reset: if random.one_in(2) { 0.01 } else { 0.0 },
            late: 0.3,
            delay: Duration::from_millis(5),
        });
        if random.one_in(2) {
            simulation.fs().lose_power_after(20 + random.below(400));
        }
        let ended = simulation.run(live(env, seed ^ life, known.clone()));
        sum = sum.rotate_left(1) ^ simulation.history().0;
        by_tasks += simulation.env().io_stats().writes;
        known.borrow_mut().failures += u64::from(ended.is_none());
        let crash = if ended.is_none() || random.one_in(2) { Crash::Power } else { Crash::Process };
        simulation = simulation.restart(crash, random.next_u64());
        let env = simulation.env().clone();
        simulation.run(check(env, known.borrow().clone())).expect("the power stays");
        simulation = simulation.restart(Crash::Process, random.next_u64());
    }
    let known = known.borrow();
    (sum, [known.counted.len() as u64, known.resets, known.failures, by_tasks, known.evicted])
}

/// Bytes of a command of any arguments.
fn encoded(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command whose arguments behind `words` are `count` numbers.
fn numbered(words: &str, count: usize) -> Vec<u8> {
    let mut args: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    args.extend((0..count).map(|number| number.to_string().into_bytes()));
    encoded(&args)
}

/// Serves on a machine without faults until `clients` have ended the server, and returns what they
/// return.
fn served<T: 'static, F>(clients: impl FnOnce(Env, SocketAddr, Server, Tasks) -> F) -> T
where
    F: Future<Output = T> + 'static,
{
    served_by(1, clients)
}

/// [`served`] with the simulation of a seed.
fn served_by<T: 'static, F>(seed: u64, clients: impl FnOnce(Env, SocketAddr, Server, Tasks) -> F) -> T
where
    F: Future<Output = T> + 'static,
{
    let simulation = Simulation::new(seed);
    wire::install(&simulation);
    let env = simulation.env().clone();
    let served = async move {
        let clock = env.clone();
        let server = Server::open(Path::new("/db"), &options(), &env).await.expect("the database opens");
        let tasks = Tasks::default();
        let serving = serve(server.clone(), tasks.clone());
        let found = Rc::new(Cell::new(None));
        let (ended, clients) = (found.clone(), clients(env, PLAIN, server, tasks.clone()));
        tasks.spawn(async move { ended.set(Some(clients.await)) });
        let both = async {
            serving.await;
            // The server can have ended before its clients have seen it.
            loop {
                match found.take() {
                    Some(found) => return found,
                    None => sleep(&clock, Duration::from_millis(1)).await,
                }
            }
        };
        tasks.run_beside(both).await
    };
    simulation.run(served).expect("the power stays")
}

async fn connect(env: &Env, address: SocketAddr) -> Client {
    let wire = Wire::connect(env, drawn(env, address)).await;
    Client { wire: wire.unwrap_or_else(|Gone| panic!("a network without faults")) }
}

impl Client {
    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.wire.send(bytes).await
    }

    /// Receives so many bytes and drops them.
    async fn skip(&mut self, mut count: usize) -> Result<(), Gone> {
        while count > 0 {
            self.wire.fill().await?;
            let come = self.wire.buffered().len().min(count);
            self.wire.consume(come);
            count -= come;
        }
        Ok(())
    }
}

/// Number of commands that the server has carried out.
async fn carried_out(client: &mut Client) -> u64 {
    let lines = client.call("INFO stats\r\n", 5).await.unwrap_or_else(|Gone| panic!("it was reset"));
    let found = lines.iter().find_map(|line| line.strip_prefix("total_commands_processed:"));
    found.expect("the counter").parse().expect("a number")
}

#[test]
fn replies_that_nobody_reads_are_not_made() {
    const VALUE: usize = 1 << 20;
    for command in ["GET k\r\n", "GETEX k\r\n", "MGET k\r\n"] {
        let made = served(move |env, address, server, _| async move {
            let (mut slow, mut other) = (connect(&env, address).await, connect(&env, address).await);
            let set = encoded(&[b"SET".to_vec(), b"k".to_vec(), vec![b'x'; VALUE]]);
            assert!(slow.send(set).await.is_ok() && slow.call("", 1).await.is_ok());
            assert!(slow.send(command.as_bytes().repeat(128)).await.is_ok());
            sleep(&env, Duration::from_secs(10)).await;
            let made = carried_out(&mut other).await;
            // All of them come once they are taken.
            let head = if command.starts_with('M') { 4 } else { 0 } + "$1048576\r\n\r\n".len();
            assert!(slow.skip(128 * (VALUE + head)).await.is_ok());
            server.stop();
            made
        });
        assert!(made < 32, "{made} commands were carried out for a client that reads nothing: {command}");
    }
}

#[test]
fn long_commands_let_others_run() {
    let many = 50_000;
    let name = vec![b'a'; 5000];
    let stars = [b"*", &b"a".repeat(2000)[..], b"b"].concat();
    let class = [b"*[", &b"x".repeat(1 << 19)[..], b"]?"].concat();
    let of_name = |words: &str, more: &[u8]| {
        let mut args: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        args.push(more.to_vec());
        encoded(&args)
    };
    let queued = [&b"MULTI\r\n"[..], &b"PING\r\n".repeat(many)].concat();
    // None of them writes, because a commit waits, in which others run anyway.
    let cases = vec![
        (Vec::new(), 0, numbered("WATCH", many)),
        (numbered("SET 0", 1), 1, numbered("MSETNX", many)),
        (Vec::new(), 0, numbered("MGET", many)),
        (Vec::new(), 0, numbered("EXISTS", many)),
        (Vec::new(), 0, numbered("DEL", many)),
        (Vec::new(), 0, numbered("UNLINK", many)),
        (Vec::new(), 0, numbered("SUNION", many)),
        (Vec::new(), 0, numbered("SDIFF", many)),
        (Vec::new(), 0, numbered("ZUNION 50000", many)),
        (numbered("ZADD z", many), 1, b"ZRANGE z 0 -1\r\n".to_vec()),
        (numbered("ZADD z", many), 1, b"ZCOUNT z 12000 37000\r\n".to_vec()),
        (numbered("SADD s", 1), 1, encoded(&[vec![b"SINTER".to_vec()], vec![b"s".to_vec(); many]].concat())),
        (queued, many + 1, b"EXEC\r\n".to_vec()),
        (of_name("SADD s", &name), 1, of_name("SSCAN s 0 MATCH", &stars)),
        (of_name("INCR", &name), 1, of_name("KEYS", &stars)),
        (of_name("INCR", &name), 1, of_name("SCAN 0 MATCH", &stars)),
        (Vec::new(), 0, of_name("COMMAND LIST FILTERBY PATTERN", &class)),
        (Vec::new(), 0, of_name("CONFIG GET", &class)),
    ];
    for (before, replies, command) in cases {
        let what = command[..command.len().min(60)].escape_ascii().to_string();
        let pings = served(move |env, address, server, tasks| async move {
            let (pongs, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let mut other = connect(&env, address).await;
            // The replies are read while the commands are sent.
            let stream = Stream::connect(&env, address).await.expect("a network without faults");
            let Stream { mut receiver, mut sender } = stream;
            let sending = async move {
                sender.send(before).await.map_err(|_| Gone)?;
                Ok::<_, Gone>(sender)
            };
            let receiving = async move {
                let mut left = replies;
                while left > 0 {
                    receiver.fill().await.map_err(|_| Gone)?;
                    let buffered = receiver.buffered();
                    let ends = buffered.iter().filter(|byte| **byte == b'\n').count();
                    receiver.consume(buffered.len());
                    left = left.saturating_sub(ends);
                }
                Ok::<_, Gone>(receiver)
            };
            let both = futures_util::future::try_join(sending, receiving).await;
            let Ok((sender, receiver)) = both else { panic!("it was reset") };
            let mut client = Client { wire: Wire::Plain(Stream { receiver, sender }) };
            let (counted, ended) = (pongs.clone(), ends.clone());
            tasks.spawn(async move {
                while !ended.get() && other.call("PING\r\n", 1).await.is_ok() {
                    counted.set(counted.get() + 1);
                }
            });
            assert!(client.send(command).await.is_ok());
            let before = pongs.get();
            assert!(client.call("", 1).await.is_ok());
            let between = pongs.get() - before;
            ends.set(true);
            server.stop();
            between
        });
        assert!(pings >= 8, "{pings} of others were answered during {what}");
    }
}

#[test]
fn the_end_gives_last_replies_five_seconds_in_all() {
    [PLAIN, TLS].into_iter().for_each(end_of_a_slow_client);
}

fn end_of_a_slow_client(address: SocketAddr) {
    let passed = served(move |env, _, server, tasks| async move {
        let wire = Wire::connect(&env, address).await;
        let mut slow = Client { wire: wire.unwrap_or_else(|Gone| panic!("a network without faults")) };
        let set = encoded(&[b"SET".to_vec(), b"k".to_vec(), vec![b'x'; 100 << 10]]);
        assert!(slow.send(set).await.is_ok() && slow.call("", 1).await.is_ok());
        assert!(slow.send(b"GET k\r\n".repeat(128)).await.is_ok());
        sleep(&env, Duration::from_secs(1)).await;
        let stopped = env.now();
        server.stop();
        let (clock, left) = (env.clone(), Rc::new(Cell::new(false)));
        let gone = left.clone();
        tasks.spawn(async move {
            // It takes some of the replies each second, so that the server can send more.
            while slow.skip(64 << 10).await.is_ok() {
                sleep(&env, Duration::from_secs(1)).await;
            }
            gone.set(true);
        });
        while !left.get() {
            sleep(&clock, Duration::from_millis(100)).await;
        }
        clock.now() - stopped
    });
    assert!(passed < Duration::from_secs(8), "the last replies took {passed:?} of the machine's time");
}

#[test]
fn a_client_that_never_pauses_is_ended() {
    let rounds = served(|env, address, server, tasks| async move {
        let stream = Stream::connect(&env, address).await.expect("a network without faults");
        let Stream { mut receiver, mut sender } = stream;
        tasks.spawn(async move {
            while let Ok(1..) = receiver.fill().await {
                receiver.consume(receiver.buffered().len());
            }
        });
        let mut rounds = 0;
        while rounds < 200 && sender.send(b"PING\r\n".repeat(10_000)).await.is_ok() {
            rounds += 1;
            if rounds == 10 {
                server.stop();
            }
        }
        rounds
    });
    assert!(rounds < 20, "the server has taken {rounds} rounds of requests, and was to end after 10");
}

#[test]
fn acknowledged_writes_survive_and_counters_count_exactly() {
    let mut sums = [0; 5];
    for seed in asked::seeds(20, 500) {
        println!("KARST_SEED={seed} cargo test -p karst-server --test simulation");
        let (_, counts) = lives(seed);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [counted, resets, failures, by_tasks, evicted] = sums;
    println!("{counted} INCRs acknowledged, {resets} connections reset, {failures} power failures");
    println!("{by_tasks} writes and syncs of the log by tasks of the server, {evicted} clients evicted");
    assert!(by_tasks > 0, "all rounds of the log were led by jobs");
    assert!(evicted > 0, "no client was evicted");
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in asked::seeds(2, 20) {
        assert_eq!(lives(seed), lives(seed), "seed {seed}");
    }
}
