//! Scripts beside other commands, and hostile ones.

use super::{Client, Gone, Known, bulk, connect, encoded, served_by};
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::sleep;
use std::cell::RefCell;
use std::time::Duration;

/// Adds to two keys that are equal: `one` is a key, and `other` is one or an argument.
const TRANSFER: &str = "
    local one, other = KEYS[1] or ARGV[1], KEYS[2] or ARGV[2] or ARGV[1]
    if redis.call('get', one) ~= redis.call('get', other) then return redis.error_reply('ERR half of a script') end
    local sum = redis.call('incr', one)
    for i = 1, 10000 do sum = sum + 1 end
    if redis.call('incr', other) ~= sum - 10000 then return redis.error_reply('ERR half of a script') end
    return sum - 10000";

fn eval(script: &str, keys: &[&str], others: &[&str]) -> Vec<u8> {
    let count = keys.len().to_string();
    let args = ["EVAL", script, &count].into_iter().chain(keys.iter().copied()).chain(others.iter().copied());
    encoded(&args.map(|arg| arg.as_bytes().to_vec()).collect::<Vec<_>>())
}

/// Adds to both keys by a script that declares both, one or none of them.
pub(super) async fn transfer(
    client: &mut Client,
    random: &mut Random,
    known: &RefCell<Known>,
) -> Result<(), Gone> {
    let keys = ["script:one", "script:other"];
    let (declared, others) = keys.split_at(random.below(3) as usize);
    known.borrow_mut().scripts.1 += 1;
    client.send(eval(TRANSFER, declared, others)).await?;
    let reply = client.call("", 1).await?;
    assert!(reply[0].starts_with(':'), "{reply:?}");
    let mut known = known.borrow_mut();
    known.scripts = (known.scripts.0 + 1, known.scripts.1 - 1);
    Ok(())
}

/// Checks that both keys have what the clients know.
pub(super) async fn check(client: &mut Client, (acknowledged, unanswered): (u64, u64)) -> Result<(), Gone> {
    assert_eq!(client.call("MGET script:one script:other\r\n", 1).await?, ["*2"]);
    let (one, other) = (bulk(client).await?, bulk(client).await?);
    assert_eq!(one, other, "half of a script has survived");
    let range = acknowledged..=acknowledged + unanswered;
    assert!(range.contains(&one), "{one} scripts, not in {range:?}");
    Ok(())
}

#[test]
fn a_hostile_script_is_killed_while_others_are_served() {
    for seed in asked::seeds(4, 40) {
        let killed = served_by(seed, |env, address, server, tasks| async move {
            let mut client = connect(&env, address).await;
            let config =
                client.call("CONFIG SET lua-time-limit 1\r\nCONFIG SET slowlog-max-len 0\r\n", 2).await;
            assert!(config.is_ok());
            let mut hostile = connect(&env, address).await;
            assert!(hostile.send(eval("while true do end", &[], &[])).await.is_ok());
            let mut victim = connect(&env, address).await;
            let clock = env.clone();
            tasks.spawn(async move {
                let _is_gone = victim.call("SET k v\r\n", 1).await;
                sleep(&clock, Duration::from_millis(1)).await;
            });
            // A script that is not slow yet is not killed.
            let mut replies = Vec::new();
            for _ in 0..10_000 {
                let reply = client.call("SCRIPT KILL\r\n", 1).await.unwrap_or_else(|Gone| panic!("reset"));
                replies.extend(reply);
                if replies.last().is_some_and(|reply| reply == "+OK") {
                    break;
                }
                sleep(&env, Duration::from_micros(200)).await;
            }
            let killed = hostile.call("", 1).await.unwrap_or_else(|Gone| panic!("reset"));
            let pong = client.call("PING\r\n", 1).await.unwrap_or_else(|Gone| panic!("reset"));
            assert_eq!(pong, ["+PONG"], "seed {seed}");
            server.stop();
            killed
        });
        assert!(killed[0].contains("killed by user"), "{killed:?}, seed {seed}");
    }
}

#[test]
fn a_long_script_lets_others_run() {
    let between = served_by(1, |env, address, server, _| async move {
        let (mut long, mut other) = (connect(&env, address).await, connect(&env, address).await);
        let script = "local n = 0; for i = 1, 3000000 do n = n + 1 end; return n";
        assert!(long.send(eval(script, &[], &[])).await.is_ok());
        let mut pongs = 0;
        let mut ended = Box::pin(long.call("", 1));
        while futures_util::future::poll_immediate(&mut ended).await.is_none() {
            assert!(other.call("PING\r\n", 1).await.is_ok());
            pongs += 1;
        }
        server.stop();
        pongs
    });
    assert!(between >= 8, "{between} commands of others were answered during a script");
}
