//! Clients of TLS that keep to no rule, beside others; the times and the end of connections.

use super::wire::{TLS, Wire};
use super::{Client, Gone, PLAIN, connect, served, served_by};
use karst_testkit::random::Random;
use karstdb::io::net::Stream;
use karstdb::io::{Env, sleep};
use std::time::Duration;

/// Beginning of a record of a handshake, whose length is 512.
const HEAD: [u8; 5] = [22, 3, 1, 2, 0];

/// Bytes that are no handshake: any, a part of one, a huge message, a request that is not
/// encrypted.
fn wrong_bytes(random: &mut Random) -> Vec<u8> {
    let mut any =
        |count: u64| -> Vec<u8> { (0..random.below(count)).map(|_| random.next_u64() as u8).collect() };
    let noise = any(300);
    match random.below(4) {
        0 => noise,
        1 => [&HEAD[..], &noise].concat(),
        // A message of 16 MiB in records of 16 KiB.
        2 => {
            let mut record = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[7; 0x4000 - 4]].concat();
            record.extend([&[22, 3, 1, 0x40, 0][..], &[7; 0x4000]].concat().repeat(8));
            record
        }
        _ => b"*1\r\n$8\r\nSHUTDOWN\r\n".to_vec(),
    }
}

/// Connects, sends what is no handshake, and leaves at once or later.
pub(super) async fn intrude(env: &Env, random: &mut Random) {
    let Ok(mut stream) = Stream::connect(env, TLS).await else { return };
    if stream.sender.send(wrong_bytes(random)).await.is_ok() && random.one_in(2) {
        sleep(env, Duration::from_millis(random.below(20))).await;
    }
}

/// Sends a wrong record behind requests, if the connection has TLS. It is over then.
pub(super) async fn break_off(client: &mut Client) -> Result<(), Gone> {
    client.wire.send_wrong_record().await?;
    match &client.wire {
        Wire::Plain(_) => Ok(()),
        Wire::Tls(_) => Err(Gone),
    }
}

/// The value of a field of INFO stats.
async fn field(client: &mut Client, name: &str) -> u64 {
    let head = client.call("INFO stats\r\n", 1).await.unwrap_or_else(|Gone| panic!("it was reset"));
    let mut left: usize = head[0].strip_prefix('$').expect("a string").parse().expect("its length");
    let mut found = None;
    while left > 0 {
        let line = client.call("", 1).await.unwrap_or_else(|Gone| panic!("it was reset")).remove(0);
        left -= line.len() + 2;
        found = found.or_else(|| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
    }
    assert!(client.call("", 1).await.is_ok(), "the end of the string");
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_handshake_ends_after_its_time() {
    let (passed, errors) = served(|env, address, server, _| async move {
        let mut other = connect(&env, address).await;
        let mut stream = Stream::connect(&env, TLS).await.expect("a network without faults");
        let begin = env.now();
        assert!(stream.sender.send(HEAD.to_vec()).await.is_ok());
        // A byte now and then is no progress.
        while stream.sender.send(vec![0]).await.is_ok() && env.now() - begin < Duration::from_secs(60) {
            sleep(&env, Duration::from_secs(1)).await;
        }
        let passed = env.now() - begin;
        let errors = field(&mut other, "tls_errors").await;
        server.stop();
        (passed, errors)
    });
    assert!(passed > Duration::from_secs(9) && passed < Duration::from_secs(12), "{passed:?}");
    assert_eq!(errors, 1);
}

#[test]
fn the_end_waits_for_no_handshake() {
    for sent in [&b""[..], &HEAD] {
        let passed = served(move |env, _, server, _| async move {
            let mut stream = Stream::connect(&env, TLS).await.expect("a network without faults");
            assert!(stream.sender.send(sent.to_vec()).await.is_ok());
            sleep(&env, Duration::from_millis(100)).await;
            let begin = env.now();
            server.stop();
            assert!(matches!(stream.receiver.fill().await, Ok(0) | Err(_)));
            env.now() - begin
        });
        assert!(passed < Duration::from_secs(1), "{passed:?}");
    }
}

#[test]
fn clients_are_told_the_end() {
    served(|env, _, server, _| async move {
        let mut clients = Vec::new();
        for _ in 0..4 {
            let wire = Wire::connect(&env, TLS).await.unwrap_or_else(|Gone| panic!("it was reset"));
            clients.push(Client { wire });
        }
        // One leaves by itself, one has requests, one waits, one is idle.
        assert!(clients[0].call("QUIT\r\n", 1).await.is_ok_and(|lines| lines == ["+OK"]));
        assert!(clients[1].send(b"PING\r\n".repeat(1000)).await.is_ok());
        assert!(clients[2].send(b"BLPOP none 0\r\n".to_vec()).await.is_ok());
        sleep(&env, Duration::from_millis(100)).await;
        server.stop();
        assert!(clients[1].call("", 1000).await.is_ok());
        for client in &mut clients {
            assert!(client.wire.fill().await.is_err());
            assert!(client.wire.is_told_the_end());
        }
    });
}

/// Bytes that are no TLS end their connection, and harm no other.
#[test]
fn wrong_bytes_end_their_connection() {
    for seed in 0..40 {
        served_by(seed, move |env, _, server, _| async move {
            let mut random = Random::new(seed);
            let mut other = connect(&env, PLAIN).await;
            let mut stream = Stream::connect(&env, TLS).await.expect("a network without faults");
            let _may_be_refused = stream.sender.send(wrong_bytes(&mut random)).await;
            // The alert comes, if there is one, and then the end: after the handshake's time at
            // most.
            while let Ok(1..) = stream.receiver.fill().await {}
            assert_eq!(field(&mut other, "tls_errors").await, 1, "seed {seed}");
            // A wrong record behind requests: these are carried out.
            let wire = Wire::connect(&env, TLS).await.unwrap_or_else(|Gone| panic!("it was reset"));
            let mut client = Client { wire };
            assert!(client.call("INCR before\r\n", 1).await.is_ok());
            assert!(client.send(b"INCR before\r\n".to_vec()).await.is_ok());
            assert!(client.wire.send_wrong_record().await.is_ok());
            assert!(!server.is_stopping());
            sleep(&env, Duration::from_secs(1)).await;
            assert_eq!(field(&mut other, "tls_errors").await, 2, "seed {seed}");
            let counted = other.call("GET before\r\n", 2).await.unwrap_or_else(|Gone| panic!("it was reset"));
            assert_eq!(counted, ["$1", "2"], "seed {seed}");
            server.stop();
        });
    }
}
