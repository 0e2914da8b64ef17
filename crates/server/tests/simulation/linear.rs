//! Clients on shared keys: SET with and without deadlines, INCR, GETDEL, transactions, and WATCH
//! with EXEC, beside resets and power failures.
//!
//! Checked by seed: the history of each group of keys is linearizable over all lives of the
//! machine. A call whose reply did not come may have taken effect until its life has ended.

use super::{CLIENTS, Client, Gone, LIVES, live_with};
use karst_testkit::asked;
use karst_testkit::linear::Call;
use karst_testkit::random::Random;
use karst_testkit::redis_keys::{GroupCall, Op, Output, Reply, State, Timed, checked, reply};
use karstdb::io::net::{NetworkFaults, Stream};
use karstdb::io::{Crash, Env, Simulation, sleep};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const GROUPS: usize = 2;
const OPERATIONS: u64 = 30;

/// History of one life.
#[derive(Default)]
struct History {
    groups: [RefCell<Vec<GroupCall>>; GROUPS],
    /// Number of moments so far.
    moments: Cell<u64>,
    /// Value of the last SET.
    unique: Cell<i64>,
    /// The server's time minus the machine's, in milliseconds.
    offset: Cell<u64>,
}

impl History {
    fn moment(&self) -> u64 {
        self.moments.set(self.moments.get() + 1);
        self.moments.get()
    }

    fn unique(&self) -> i64 {
        self.unique.set(self.unique.get() + 1000);
        self.unique.get()
    }

    /// The server's time. Both ends of a window are a millisecond wider, because the two clocks'
    /// milliseconds begin at different moments.
    fn time(&self, env: &Env) -> u64 {
        env.now().as_millis() as u64 + self.offset.get()
    }
}

/// Receives `count` replies.
async fn replies(client: &mut Client, count: usize) -> Result<Vec<Reply>, Gone> {
    let mut found = Vec::new();
    while found.len() < count {
        match reply(client.stream.receiver.buffered()) {
            Some((reply, len)) => {
                client.stream.receiver.consume(len);
                found.push(reply);
            }
            None => match client.stream.receiver.fill().await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(Gone),
            },
        }
    }
    Ok(found)
}

/// Sends an operation, behind `before` whose replies are dropped, and notes the call. Returns its
/// output.
async fn call(
    env: &Env,
    client: &mut Client,
    group: usize,
    op: Op,
    before: Option<String>,
    history: &History,
) -> Result<Output, Gone> {
    let (commands, count) = op.commands(&format!("g{group}"));
    let dropped = before.iter().map(|commands| commands.lines().count()).sum();
    let at = history.groups[group].borrow().len();
    history.groups[group].borrow_mut().push(Call {
        input: Timed { op: op.clone(), window: (history.time(env).saturating_sub(1), u64::MAX) },
        called: history.moment(),
        ended: u64::MAX,
        output: None,
    });
    client.send((before.unwrap_or_default() + &commands).into_bytes()).await?;
    replies(client, dropped).await?;
    let output = op.output(&replies(client, count).await?);
    let noted = &mut history.groups[group].borrow_mut()[at];
    noted.input.window.1 = history.time(env) + 1;
    (noted.ended, noted.output) = (history.moment(), Some(output.clone()));
    Ok(output)
}

/// Draws and carries out an operation.
async fn operate(env: &Env, client: &mut Client, random: &mut Random, history: &History) -> Result<(), Gone> {
    let group = random.index(GROUPS);
    if random.one_in(6) {
        let at = random.index(karst_testkit::redis_keys::KEYS);
        let watch = format!("WATCH {{g{group}}}:{at}\r\n");
        let read = call(env, client, group, Op::Get(at), Some(watch), history).await?;
        let Output::Numbers(read) = read else { panic!("GET: {read:?}") };
        call(env, client, group, Op::Exchange(at, read[0], history.unique()), None, history).await?;
        return Ok(());
    }
    let op = Op::draw(random, history.unique(), history.time(env), true);
    call(env, client, group, op, None, history).await.map(drop)
}

async fn client(env: Env, address: SocketAddr, seed: u64, history: Rc<History>) {
    let mut random = Random::new(seed);
    let mut connected = None;
    for _ in 0..OPERATIONS {
        let mut client = match connected.take() {
            Some(client) => client,
            None => match Stream::connect(&env, address).await {
                Ok(stream) => Client { stream },
                Err(_) => continue,
            },
        };
        if operate(&env, &mut client, &mut random, &history).await.is_ok() {
            connected = Some(client);
        }
        if random.one_in(4) {
            sleep(&env, Duration::from_millis(random.below(10))).await;
        }
    }
}

/// Reads the server's time by a client of its own.
async fn offset(env: &Env, address: SocketAddr) -> Result<u64, Gone> {
    let mut client = Client { stream: Stream::connect(env, address).await.map_err(|_| Gone)? };
    client.send(b"TIME\r\n".to_vec()).await?;
    let Reply::Many(Some(parts)) = replies(&mut client, 1).await?.remove(0) else { panic!("TIME") };
    let number = |at: usize| match &parts[at] {
        Reply::Bulk(Some(text)) => text.parse::<u64>().expect("a number"),
        other => panic!("TIME: {other:?}"),
    };
    Ok(number(0) * 1000 + number(1) / 1000 - env.now().as_millis() as u64)
}

/// One life of the machine: clients beside faults, or one client that reads all keys without.
async fn live(env: Env, seed: u64, history: Rc<History>, is_check: bool) {
    live_with(env, |env, address, server, tasks| {
        let (env, tasks, spawner) = (env.clone(), tasks.clone(), tasks.clone());
        tasks.spawn(async move {
            // A new clock for each life.
            let found = loop {
                if let Ok(found) = offset(&env, address).await {
                    break found;
                }
            };
            history.offset.set(found);
            if is_check {
                let stream = Stream::connect(&env, address).await.expect("a network without faults");
                let mut client = Client { stream };
                for group in 0..GROUPS {
                    let read = call(&env, &mut client, group, Op::GetAll, None, &history).await;
                    assert!(read.is_ok(), "a network without faults");
                }
                server.stop();
                return;
            }
            let left = Rc::new(Cell::new(CLIENTS));
            for number in 0..CLIENTS {
                let (env, history, left, server) =
                    (env.clone(), history.clone(), left.clone(), server.clone());
                spawner.spawn(async move {
                    client(env, address, seed ^ (number << 32), history).await;
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

/// Returns the numbers of calls with an output, of calls without, and of exchanges that were done.
fn run(seed: u64) -> [usize; 3] {
    let mut random = Random::new(seed);
    let mut simulation = Simulation::new(seed);
    let mut states: [HashSet<State>; GROUPS] = Default::default();
    states.iter_mut().for_each(|states| {
        states.insert(State::default());
    });
    let (mut unique, mut counts) = (0, [0; 3]);
    for life in 0..LIVES {
        let history = Rc::new(History::default());
        history.unique.set(unique);
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
        let ended = simulation.run(live(env, seed ^ life, history.clone(), false));
        let crash = if ended.is_none() || random.one_in(2) { Crash::Power } else { Crash::Process };
        // Unanswered calls have their effect before the machine's next life, or never.
        let end = history.moment();
        for calls in &history.groups {
            let mut calls = calls.borrow_mut();
            for (more, call) in calls.iter_mut().filter(|call| call.output.is_none()).enumerate() {
                call.ended = end + 1 + more as u64;
            }
            history.moments.set(history.moments.get() + calls.len() as u64 + 1);
        }
        simulation = simulation.restart(crash, random.next_u64());
        let env = simulation.env().clone();
        simulation.run(live(env, seed, history.clone(), true)).expect("the power stays");
        simulation = simulation.restart(Crash::Process, random.next_u64());
        for (states, calls) in states.iter_mut().zip(&history.groups) {
            let calls = calls.borrow();
            *states = checked(std::mem::take(states), &calls);
            let has_output = |call: &&GroupCall| call.output.is_some();
            counts[0] += calls.iter().filter(has_output).count();
            counts[1] += calls.iter().filter(|call| !has_output(call)).count();
            let is_exchanged = |call: &&GroupCall| {
                matches!(call.input.op, Op::Exchange(..)) && call.output == Some(Output::Done)
            };
            counts[2] += calls.iter().filter(is_exchanged).count();
        }
        unique = history.unique.get();
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
    let [answered, unanswered, exchanged] = sums;
    println!("{answered} calls answered, {unanswered} unanswered, {exchanged} exchanges done");
    assert!(exchanged > 0);
}
