//! Client-side caching: once all invalidations have come, no client's cache is stale.
//!
//! Clients with RESP3 keep what they read until they are told of it. Others write, delete, expire
//! and flush the keys meanwhile; some of the writers cache too.

use super::{Client, Gone, connect, served_by};
use futures_util::future::{join, join_all};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::{Env, sleep};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const CLIENTS: u64 = 6;
const OPERATIONS: u64 = 60;
const KEYS: u64 = 5;

/// A client that caches.
struct Caching {
    client: Client,
    /// Values of keys by their names; `$-1` for those that are absent.
    cache: BTreeMap<String, String>,
    /// Values that came from the cache, and invalidations.
    hits: u64,
    told: u64,
}

impl Caching {
    async fn connect(env: &Env, address: SocketAddr) -> Result<Self, Gone> {
        let client = connect(env, address).await;
        let mut caching = Self { client, cache: BTreeMap::new(), hits: 0, told: 0 };
        caching.client.call("HELLO 3\r\n", 1).await?;
        // A map of 7 pairs: 4 strings of two lines each as values, two numbers, an array.
        caching.client.call("", 2 * 7 + 2 * 4 + 3).await?;
        Ok(caching)
    }

    /// Reads the next reply that is no push, after the pushes before it are carried out.
    async fn reply(&mut self) -> Result<Vec<String>, Gone> {
        loop {
            let head = self.client.call("", 1).await?.remove(0);
            if head != ">2" {
                let rest = usize::from(head.starts_with('$') && head != "$-1");
                let mut lines = vec![head];
                lines.extend(self.client.call("", rest).await?);
                return Ok(lines);
            }
            assert_eq!(self.client.call("", 2).await?[1], "invalidate");
            self.told += 1;
            let names = self.client.call("", 1).await?.remove(0);
            let Some(count) = names.strip_prefix('*') else {
                assert_eq!(names, "_");
                self.cache.clear();
                continue;
            };
            let lines = self.client.call("", 2 * count.parse::<usize>().expect("a number")).await?;
            lines.iter().skip(1).step_by(2).for_each(|name| drop(self.cache.remove(name)));
        }
    }

    async fn call(&mut self, command: &str) -> Result<Vec<String>, Gone> {
        self.client.call(&format!("{command}\r\n"), 0).await?;
        self.reply().await
    }

    /// Reads a key, from the cache if it is there.
    async fn get(&mut self, name: &str) -> Result<(), Gone> {
        if self.cache.contains_key(name) {
            self.hits += 1;
            return Ok(());
        }
        let value = self.call(&format!("GET {name}")).await?.join(" ");
        self.cache.insert(name.to_owned(), value);
        Ok(())
    }

    /// Reads a key by a script that only reads, in a transaction or not. A script that declares it
    /// has it for itself.
    async fn get_by_script(&mut self, name: &str, declares: bool, queues: bool) -> Result<(), Gone> {
        let script = match declares {
            true => {
                format!("EVAL_RO \"redis.call('get',KEYS[1]) return redis.call('get',KEYS[1])\" 1 {name}")
            }
            false => format!("EVAL_RO \"redis.call('exists','x') return redis.call('get','{name}')\" 0"),
        };
        if queues {
            self.client.call(&format!("MULTI\r\n{script}\r\nEXEC\r\n"), 0).await?;
            for _ in 0..3 {
                self.reply().await?;
            }
        } else {
            self.client.call(&format!("{script}\r\n"), 0).await?;
        }
        // A script with RESP2 has `false` for what is absent, which is null here.
        let value = self.reply().await?.join(" ");
        self.cache.insert(name.to_owned(), value);
        Ok(())
    }

    /// Reads two keys in a transaction, with a write or without.
    async fn get_both(&mut self, writes: bool) -> Result<(), Gone> {
        let write = if writes { "INCR number\r\n" } else { "" };
        let replies = if writes { 5 } else { 4 };
        self.client.call(&format!("MULTI\r\n{write}GET key:0\r\nGET key:1\r\nEXEC\r\n"), 0).await?;
        for _ in 0..replies {
            self.reply().await?;
        }
        if writes {
            self.reply().await?;
        }
        for name in ["key:0", "key:1"] {
            let value = self.reply().await?.join(" ");
            self.cache.insert(name.to_owned(), value);
        }
        Ok(())
    }

    async fn write(&mut self, random: &mut Random) -> Result<(), Gone> {
        let (name, number) = (format!("key:{}", random.below(KEYS)), random.below(1000));
        let command = match random.below(8) {
            0 => format!("DEL {name}"),
            1 => format!("SET {name} {number} PX {}", 1 + random.below(20)),
            2 => format!("PEXPIRE {name} {}", random.below(20)),
            3 => format!("RENAME {name} key:{}", random.below(KEYS)),
            4 if random.one_in(6) => "FLUSHALL".to_owned(),
            _ => format!("SET {name} {number}"),
        };
        self.call(&command).await.map(drop)
    }
}

/// One client's part of a history. Returns the values that it had in its cache when it asked for
/// them, and the invalidations that came.
async fn take_part(
    env: Env,
    address: SocketAddr,
    seed: u64,
    left: Rc<Cell<u64>>,
) -> Result<(u64, u64), Gone> {
    let mut random = Random::new(seed);
    let mut caching = Caching::connect(&env, address).await?;
    let options = ["", "", "BCAST", "NOLOOP", "OPTOUT", ""][random.below(6) as usize];
    assert_eq!(caching.call(&format!("CLIENT TRACKING ON {options}")).await?, ["+OK"]);
    for _ in 0..OPERATIONS {
        match random.below(5) {
            // One that is not told of its own writes would have to forget them by itself.
            0 if options != "NOLOOP" => caching.write(&mut random).await?,
            1 if random.one_in(2) => {
                let name = format!("key:{}", random.below(KEYS));
                caching.get_by_script(&name, random.one_in(2), random.one_in(2)).await?;
            }
            1 => caching.get_both(options != "NOLOOP" && random.one_in(2)).await?,
            _ => caching.get(&format!("key:{}", random.below(KEYS))).await?,
        }
        if random.one_in(3) {
            sleep(&env, Duration::from_millis(random.below(8))).await;
        }
    }
    left.set(left.get() - 1);
    while left.get() > 0 {
        sleep(&env, Duration::from_millis(1)).await;
    }
    // What expires has been deleted then.
    sleep(&env, Duration::from_secs(5)).await;
    assert_eq!(caching.call("PING").await?, ["+PONG"]);
    for (name, value) in std::mem::take(&mut caching.cache) {
        let now = caching.call(&format!("GET {name}")).await?.join(" ");
        assert_eq!(now, value, "{name} in the cache of a client with {options:?}, seed {seed}");
    }
    Ok((caching.hits, caching.told))
}

fn run(seed: u64) -> (u64, u64) {
    served_by(seed, move |env, address, server, _| async move {
        let left = Rc::new(Cell::new(CLIENTS));
        let part = |number: u64| take_part(env.clone(), address, seed ^ (number << 32), left.clone());
        let clients = async {
            let parts = join_all((0..CLIENTS).map(part)).await;
            server.stop();
            parts.into_iter().fold((0, 0), |sum, part| {
                let (hits, told) = part.unwrap_or_else(|Gone| panic!("a network without faults"));
                (sum.0 + hits, sum.1 + told)
            })
        };
        join(server.maintain(), clients).await.1
    })
}

#[test]
fn caches_are_not_stale_once_all_invalidations_have_come() {
    let mut sums = (0, 0);
    for seed in asked::seeds(20, 500) {
        println!("KARST_SEED={seed} cargo test -p karst-server --test simulation caches_are");
        let (hits, told) = run(seed);
        sums = (sums.0 + hits, sums.1 + told);
    }
    println!("{} values from caches, {} invalidations", sums.0, sums.1);
    assert!(sums.0 > 0 && sums.1 > 0);
}
