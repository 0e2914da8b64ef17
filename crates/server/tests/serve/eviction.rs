//! Limits of memory: that of the process, and of clients, which are disconnected for theirs
//! (`maxmemory-clients`).

use crate::client::{Client, Served, encoded, options};
use karst_server::{Running, ServerOptions};
use karstdb::ErrorKind;
use karstdb::io::Env;

/// A server with a limit of 1 MiB.
fn limited() -> Served {
    let served = Served::start();
    served.check(&[
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"0\"]"),
        ("CONFIG SET maxmemory-clients 1mb", "+OK"),
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"1048576\"]"),
        (
            "CONFIG SET maxmemory-clients x",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - argument must be a \
             memory value",
        ),
    ]);
    served
}

fn evicted(client: &mut Client) -> u64 {
    let stats = client.line("INFO stats").text();
    let line = stats.lines().find_map(|line| line.strip_prefix("evicted_clients:")).expect("a line");
    line.parse().expect("a number")
}

/// Bytes of the beginning of a request, with an argument of `length` bytes that is missing its end.
fn half(length: usize) -> Vec<u8> {
    let mut bytes = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 2 * length).into_bytes();
    bytes.resize(bytes.len() + length, b'x');
    bytes
}

#[test]
fn a_client_with_a_large_request_is_evicted() {
    let served = limited();
    let (mut small, mut large) = (served.client(), served.client());
    small.check(&[("PING", "+PONG")]);
    large.try_send(&half(2 << 20));
    assert!(large.is_closed());
    assert_eq!(evicted(&mut small), 1);
}

#[test]
fn a_client_with_a_large_transaction_is_evicted() {
    let served = limited();
    let (mut small, mut large) = (served.client(), served.client());
    small.check(&[("PING", "+PONG")]);
    large.check(&[("MULTI", "+OK")]);
    let value = "x".repeat(200 << 10);
    let request = encoded(&["SET", "key", &value]);
    let _is_cut = (0..20).all(|_| large.try_send(&request));
    while large.reply().is_some_and(|reply| reply.to_string() == "+QUEUED") {}
    small.check(&[("EXISTS key", ":0")]);
    assert_eq!(evicted(&mut small), 1);
}

#[test]
fn a_client_that_takes_no_pushes_is_evicted() {
    let served = limited();
    let (mut listener, mut publisher) = (served.client(), served.client());
    listener.line("SUBSCRIBE news");
    let message = "x".repeat(256 << 10);
    // The kernel takes some.
    while evicted(&mut publisher) == 0 {
        publisher.call(&["PUBLISH", "news", &message]);
    }
    publisher.check(&[("PUBLISH news x", ":0")]);
}

#[test]
fn a_client_that_is_to_stay_stays() {
    let served = limited();
    let (mut small, mut large) = (served.client(), served.client());
    large.check(&[("CLIENT NO-EVICT maybe", "-ERR syntax error"), ("CLIENT NO-EVICT on", "+OK")]);
    assert!(large.line("CLIENT LIST").text().contains(" flags=e "));
    let request = half(2 << 20);
    large.send(&request);
    large.send(&request[request.len() - (2 << 20)..]);
    large.send(b"\r\n");
    assert_eq!(large.reply().map(|reply| reply.text().len()), Some(4 << 20));
    assert_eq!(evicted(&mut small), 0);
    // While it has more than all may have, others have what they need to be served.
    large.send(&half(3 << 20));
    let mut other = served.client();
    other.try_send(&half(1 << 20));
    assert!(other.is_closed());
    small.check(&[("SET key value", "+OK"), ("GET key", "\"value\"")]);
    assert_eq!(evicted(&mut small), 1);
    large.send(&vec![b'x'; 3 << 20]);
    large.send(b"\r\n");
    assert_eq!(large.reply().map(|reply| reply.text().len()), Some(6 << 20));
    // RESET ends it.
    large.check(&[("RESET", "+RESET")]);
    large.try_send(&request);
    assert!(large.is_closed());
    assert_eq!(evicted(&mut small), 2);
}

#[test]
fn memory_of_clients_that_have_gone_is_not_counted() {
    let served = Served::start();
    let mut small = served.client();
    let counted = |client: &mut Client| {
        let memory = client.line("INFO memory").text();
        let line = memory.lines().find_map(|line| line.strip_prefix("mem_clients_normal:")).expect("a line");
        line.parse::<u64>().expect("a number")
    };
    let mut large = served.client();
    large.send(&half(1 << 20));
    while counted(&mut small) < 1 << 20 {}
    drop(large);
    while counted(&mut small) > 0 {}
}

#[test]
fn a_limit_of_the_process_is_shared_out() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("karstdb.conf");
    let limited = ServerOptions { memory: Some(64 << 20), config_file: Some(file.clone()), ..options() };
    let served = Served::with(&limited);
    // The share is no setting of the operator's.
    served.check(&[("CONFIG REWRITE", "+OK")]);
    let text = std::fs::read_to_string(&file).expect("it is written");
    assert!(!text.contains("maxmemory-clients"), "{text}");
    served.check(&[
        ("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\" \"16777216\"]"),
        ("SET key value", "+OK"),
        ("GET key", "\"value\""),
    ]);
    let text = served.client().line("INFO memory").text();
    assert!(text.contains("\r\nmemory_limit:67108864\r\n"), "{text}");
    let directory = tempfile::tempdir().expect("a directory");
    let little = ServerOptions { memory: Some((64 << 20) - 1), ..options() };
    let refused = Running::start(directory.path(), &little, &Env::posix()).expect_err("it is refused");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("64 MiB"), "{refused}");
}
