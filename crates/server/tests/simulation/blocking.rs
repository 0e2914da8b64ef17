//! Clients that wait for elements, beside those that push them, kill and unblock.
//!
//! Checked by seed: each element that was pushed reaches one client, once; none is left while
//! a client waits for it. A client that is killed may have been sent its element already, so at
//! most what it had asked for is missing.

use super::{Client, Gone, Tasks, connect, served_by};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::{Env, sleep};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const PUSHERS: u64 = 3;
const WAITERS: u64 = 5;
const PUSHES: u64 = 30;

#[derive(Default)]
struct Seen {
    pushed: BTreeSet<String>,
    taken: BTreeSet<String>,
    /// Elements that commands without a reply may have taken.
    unanswered: usize,
    /// Numbers of the waiters' connections.
    ids: Vec<String>,
    pushers: u64,
    /// Waits that ended by their timeout or by CLIENT UNBLOCK.
    given_up: u64,
    ended: bool,
}

type Shared = Rc<RefCell<Seen>>;

async fn push(env: Env, address: SocketAddr, number: u64, seed: u64, seen: Shared) {
    let mut random = Random::new(seed);
    let mut client = connect(&env, address).await;
    for round in 0..PUSHES {
        let (one, other) = (format!("{number}:{round}:a"), format!("{number}:{round}:b"));
        let key = random.below(2);
        let (commands, lines, elements) = match random.below(5) {
            0 => (format!("RPUSH q{key} {one}\r\n"), 1, vec![one]),
            1 => (format!("LPUSH q{key} {one} {other}\r\n"), 1, vec![one, other]),
            2 => (format!("MULTI\r\nRPUSH q1 {one}\r\nRPUSH q0 {other}\r\nEXEC\r\n"), 6, vec![one, other]),
            3 => (format!("RPUSH t{number} {one}\r\nLMOVE t{number} q{key} LEFT LEFT\r\n"), 3, vec![one]),
            _ => (
                format!("SELECT 1\r\nRPUSH m{number} {one}\r\nMOVE m{number} 0\r\nSELECT 0\r\n"),
                4,
                vec![one],
            ),
        };
        let is_moved = commands.starts_with("SELECT");
        seen.borrow_mut().pushed.extend(elements);
        assert!(client.call(&commands, lines).await.is_ok(), "pushers are not killed");
        if is_moved {
            // The waiters know it by its own name.
            assert!(client.call(&format!("LMOVE m{number} q{key} LEFT RIGHT\r\n"), 2).await.is_ok());
        }
        if random.one_in(2) {
            sleep(&env, Duration::from_millis(random.below(8))).await;
        }
    }
    seen.borrow_mut().pushers -= 1;
}

/// Reads the rest of a reply that begins with these lines, and returns its elements.
async fn elements(client: &mut Client, first: &str) -> Result<Vec<String>, Gone> {
    match first {
        "*-1" | "$-1" => return Ok(Vec::new()),
        "*2" => {}
        error => {
            assert!(error.starts_with("-UNBLOCKED"), "{error}");
            return Ok(Vec::new());
        }
    }
    let head = client.call("", 3).await?;
    let Some(count) = head[2].strip_prefix('*') else { return client.call("", 1).await };
    let count: usize = count.parse().expect("a number of elements");
    let lines = client.call("", 2 * count).await?;
    Ok(lines.into_iter().skip(1).step_by(2).collect())
}

async fn wait_once(client: &mut Client, random: &mut Random, seen: &Shared) -> Result<(), Gone> {
    let timeout = [0.0, 0.004, 0.02][random.below(3) as usize];
    let (command, most) = match random.below(5) {
        0 => (format!("BLPOP q0 q1 {timeout}\r\n"), 1),
        1 => (format!("BRPOP q1 q0 {timeout}\r\n"), 1),
        2 => (format!("BLMPOP {timeout} 2 q0 q1 LEFT COUNT 2\r\n"), 2),
        3 => (format!("BLPOP q1 {timeout}\r\n"), 1),
        // The element stays in one of the queues.
        _ => (format!("BLMOVE q0 q1 RIGHT LEFT {timeout}\r\n"), 0),
    };
    seen.borrow_mut().unanswered += most;
    let first = client.call(&command, 1).await?.remove(0);
    let found = match most {
        0 if first != "*-1" && !first.starts_with('-') => {
            client.call("", 1).await?;
            return Ok(());
        }
        _ => elements(client, &first).await?,
    };
    let mut seen = seen.borrow_mut();
    seen.unanswered -= most;
    seen.given_up += u64::from(found.is_empty());
    for element in found {
        assert!(seen.taken.insert(element.clone()), "{element} was taken twice");
    }
    Ok(())
}

async fn wait(env: Env, address: SocketAddr, number: usize, seed: u64, seen: Shared) {
    let mut random = Random::new(seed);
    while !seen.borrow().ended {
        let mut client = connect(&env, address).await;
        let Ok(id) = client.call("CLIENT ID\r\n", 1).await else { continue };
        seen.borrow_mut().ids[number] = id[0].replace(':', "");
        while !seen.borrow().ended && wait_once(&mut client, &mut random, &seen).await.is_ok() {}
    }
}

async fn disturb(env: Env, address: SocketAddr, seed: u64, seen: Shared) {
    let mut random = Random::new(seed);
    let mut client = connect(&env, address).await;
    while seen.borrow().pushers > 0 {
        let id = seen.borrow().ids[random.below(WAITERS) as usize].clone();
        let command = match random.below(3) {
            0 => format!("CLIENT KILL ID {id}\r\n"),
            1 => format!("CLIENT UNBLOCK {id} ERROR\r\n"),
            _ => format!("CLIENT UNBLOCK {id}\r\n"),
        };
        if !id.is_empty() {
            assert!(client.call(&command, 1).await.is_ok());
        }
        sleep(&env, Duration::from_millis(random.below(12))).await;
    }
}

/// Runs one seed. Returns the numbers of elements taken, of elements missing, and of waits that
/// were given up.
fn run(seed: u64) -> [u64; 3] {
    served_by(seed, move |env, address, server, tasks: Tasks| async move {
        let seen: Shared = Rc::default();
        seen.borrow_mut().pushers = PUSHERS;
        seen.borrow_mut().ids = vec![String::new(); WAITERS as usize];
        for number in 0..WAITERS {
            tasks.spawn(wait(env.clone(), address, number as usize, seed ^ (number << 40), seen.clone()));
        }
        for number in 0..PUSHERS {
            tasks.spawn(push(env.clone(), address, number, seed ^ (number << 48), seen.clone()));
        }
        tasks.spawn(disturb(env.clone(), address, !seed, seen.clone()));
        let mut client = connect(&env, address).await;
        // In the machine's time: it passes at once while every task is idle.
        for _ in 0..10_000 {
            sleep(&env, Duration::from_millis(20)).await;
            let lengths =
                client.call("LLEN q0\r\nLLEN q1\r\n", 2).await.unwrap_or_else(|Gone| panic!("reset"));
            if seen.borrow().pushers == 0 && lengths == [":0", ":0"] {
                break;
            }
        }
        let left = client.call("LLEN q0\r\nLLEN q1\r\n", 2).await.unwrap_or_else(|Gone| panic!("reset"));
        assert_eq!(left, [":0", ":0"], "elements are left while clients wait for them, seed {seed}");
        // The last replies arrive.
        sleep(&env, Duration::from_secs(1)).await;
        seen.borrow_mut().ended = true;
        server.stop();
        let seen = seen.borrow();
        let missing = seen.pushed.difference(&seen.taken).count();
        let unknown = seen.taken.difference(&seen.pushed).count();
        assert_eq!(unknown, 0, "elements that nobody has pushed, seed {seed}");
        // Those who still wait have asked for elements that do not come.
        assert!(missing <= seen.unanswered, "{missing} elements are missing, seed {seed}");
        [seen.taken.len() as u64, missing as u64, seen.given_up]
    })
}

#[test]
fn elements_reach_those_who_wait_once() {
    let mut sums = [0; 3];
    for seed in asked::seeds(20, 500) {
        println!("KARST_SEED={seed} cargo test -p karst-server --test simulation elements_reach");
        sums.iter_mut().zip(run(seed)).for_each(|(sum, count)| *sum += count);
    }
    let [taken, missing, given_up] = sums;
    println!("{taken} elements taken, {missing} sent to killed clients, {given_up} waits given up");
    assert!(taken > 0 && given_up > 0);
}

#[test]
fn a_wait_ends_after_its_time() {
    let passed = served_by(1, |env, address, server, _| async move {
        let mut client = connect(&env, address).await;
        let begin = env.now();
        let reply = client.call("BLPOP none 2.5\r\n", 1).await.unwrap_or_else(|Gone| panic!("it was reset"));
        let passed = env.now() - begin;
        server.stop();
        (reply, passed)
    });
    assert_eq!(passed.0, ["*-1"]);
    assert!(passed.1 >= Duration::from_millis(2500) && passed.1 < Duration::from_millis(2600), "{passed:?}");
}
