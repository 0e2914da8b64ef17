//! Clients on shared keys: SET with and without deadlines, INCR, GETDEL, transactions, and WATCH
//! with EXEC, beside resets and power failures.
//!
//! Checked by seed: the history of each group of keys is linearizable over all lives of the
//! machine. A call whose reply did not come may have taken effect until its life has ended.

use super::wire::{Wire, install};
use super::{CLIENTS, Client, Gone, LIVES, connect, connected, live_with};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karst_testkit::redis_keys::{History, Op, Output, Reply, State, reply};
use karstdb::io::net::NetworkFaults;
use karstdb::io::{Crash, Env, Simulation};
use std::cell::Cell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const GROUPS: usize = 2;
const OPERATIONS: u64 = 30;

/// Histories of one life, and its clock.
#[derive(Default)]
struct Life {
    groups: [History; GROUPS],
    /// Value of the last SET.
    unique: Cell<i64>,
    /// The server's time minus the machine's, in milliseconds.
    offset: Cell<u64>,
}

impl Life {
    fn unique(&self) -> i64 {
        self.unique.set(self.unique.get() + 1000);
        self.unique.get()
    }

    /// The server's time.
    fn time(&self, env: &Env) -> u64 {
        env.now().as_millis() as u64 + self.offset.get()
    }
}

/// Receives `count` replies.
async fn replies(client: &mut Client, count: usize) -> Result<Vec<Reply>, Gone> {
    let mut found = Vec::new();
    while found.len() < count {
        match reply(client.wire.buffered()) {
            Some((reply, len)) => {
                client.wire.consume(len);
                found.push(reply);
            }
            None => client.wire.fill().await?,
        }
    }
    Ok(found)
}

/// Sends an operation, behind `before` whose replies are dropped, and adds the call to the history.
/// Returns its output.
async fn call(
    env: &Env,
    client: &mut Client,
    group: usize,
    op: Op,
    before: Option<String>,
    life: &Life,
) -> Result<Output, Gone> {
    let (commands, count) = op.commands(&format!("g{group}"));
    let dropped = before.iter().map(|commands| commands.lines().count()).sum();
    let at = life.groups[group].begin(op, life.time(env));
    client.send((before.unwrap_or_default() + &commands).into_bytes()).await?;
    replies(client, dropped).await?;
    let found = replies(client, count).await?;
    Ok(life.groups[group].end(at, life.time(env), &found))
}

/// Draws and carries out an operation.
async fn operate(env: &Env, client: &mut Client, random: &mut Random, life: &Life) -> Result<(), Gone> {
    let group = random.index(GROUPS);
    if random.one_in(6) {
        let at = random.index(karst_testkit::redis_keys::KEYS);
        let watch = format!("WATCH {{g{group}}}:{at}\r\n");
        let read = call(env, client, group, Op::Get(at), Some(watch), life).await?;
        let Output::Numbers(read) = read else { panic!("GET: {read:?}") };
        call(env, client, group, Op::Exchange(at, read[0], life.unique()), None, life).await?;
        return Ok(());
    }
    let op = Op::draw(random, life.unique(), life.time(env), true);
    call(env, client, group, op, None, life).await.map(drop)
}

async fn client(env: Env, address: SocketAddr, seed: u64, life: Rc<Life>) {
    let mut random = Random::new(seed);
    let operate = async |client: &mut Client, random: &mut Random| operate(&env, client, random, &life).await;
    connected(&env, address, &mut random, OPERATIONS, operate).await;
}

/// Reads the server's time by a client of its own.
async fn offset(env: &Env, address: SocketAddr) -> Result<u64, Gone> {
    let mut client = Client { wire: Wire::connect(env, address).await? };
    client.send(b"TIME\r\n".to_vec()).await?;
    let Reply::Many(Some(parts)) = replies(&mut client, 1).await?.remove(0) else { panic!("TIME") };
    let number = |at: usize| match &parts[at] {
        Reply::Bulk(Some(text)) => text.parse::<u64>().expect("a number"),
        other => panic!("TIME: {other:?}"),
    };
    Ok(number(0) * 1000 + number(1) / 1000 - env.now().as_millis() as u64)
}

/// One life of the machine: clients beside faults, or one client that reads all keys without.
async fn live(env: Env, seed: u64, life: Rc<Life>, is_check: bool) {
    live_with(env, |env, address, server, tasks| {
        let (env, tasks, spawner) = (env.clone(), tasks.clone(), tasks.clone());
        tasks.spawn(async move {
            // A new clock for each life.
            let found = loop {
                if let Ok(found) = offset(&env, address).await {
                    break found;
                }
            };
            life.offset.set(found);
            if is_check {
                let mut client = connect(&env, address).await;
                for group in 0..GROUPS {
                    let read = call(&env, &mut client, group, Op::GetAll, None, &life).await;
                    assert!(read.is_ok(), "a network without faults");
                }
                server.stop();
                return;
            }
            let left = Rc::new(Cell::new(CLIENTS));
            for number in 0..CLIENTS {
                let (env, life, left, server) = (env.clone(), life.clone(), left.clone(), server.clone());
                spawner.spawn(async move {
                    client(env, address, seed ^ (number << 32), life).await;
                    left.set(left.get() - 1);
                    if left.get() == 0 {
                        server.stop();
                    }
                });
            }
        });
    })
    .await;
}

/// Returns the numbers of calls, of calls without a reply, and of exchanges that were done.
fn run(seed: u64) -> [usize; 3] {
    let mut random = Random::new(seed);
    let mut simulation = Simulation::new(seed);
    install(&simulation);
    let mut states: [HashSet<State>; GROUPS] = Default::default();
    states.iter_mut().for_each(|states| {
        states.insert(State::default());
    });
    let (mut unique, mut counts) = (0, [0; 3]);
    for round in 0..LIVES {
        let life = Rc::new(Life::default());
        life.unique.set(unique);
        let env = simulation.env().clone();
        env.memory_network().expect("a simulation has one").set_faults(NetworkFaults {
            partial: 0.5,
            reset: if random.one_in(2) { 0.01 } else { 0.0 },
            late: 0.3,
            delay: Duration::from_millis(5),
        });
        if random.one_in(2) {
            simulation.fs().lose_power_after(20 + random.below(400));
        }
        let ended = simulation.run(live(env, seed ^ round, life.clone(), false));
        let crash = if ended.is_none() || random.one_in(2) { Crash::Power } else { Crash::Process };
        for history in &life.groups {
            counts[1] += history.end_unanswered();
        }
        simulation = simulation.restart(crash, random.next_u64());
        let env = simulation.env().clone();
        simulation.run(live(env, seed, life.clone(), true)).expect("the power stays");
        simulation = simulation.restart(Crash::Process, random.next_u64());
        for (states, history) in states.iter_mut().zip(&life.groups) {
            *states = history.states_after(std::mem::take(states));
            counts[0] += history.len();
            counts[2] += history.exchanged();
        }
        unique = life.unique.get();
    }
    counts
}

#[test]
fn shared_keys_are_linearizable() {
    let mut sums = [0; 3];
    for seed in asked::seeds(20, 500) {
        println!("KARST_SEED={seed} cargo test -p karst-server --test simulation shared_keys");
        sums.iter_mut().zip(run(seed)).for_each(|(sum, count)| *sum += count);
    }
    let [calls, unanswered, exchanged] = sums;
    println!("{calls} calls, {unanswered} of them unanswered, {exchanged} exchanges done");
    assert!(exchanged > 0);
}
