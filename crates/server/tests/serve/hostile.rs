//! Bytes that are no requests, and clients that leave in the middle of one.

use crate::client::{Served, encoded};

#[test]
fn malformed_requests_are_answered_and_end_the_connection() {
    let served = Served::start();
    let cases: [(&[u8], &str); 7] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n+5\r\n", "expected '$', got '+'"),
        (b"GET \"k\r\n", "unbalanced quotes in request"),
        (&[b'a'; (64 << 10) + 1], "too big inline request"),
    ];
    for (bytes, why) in cases {
        let mut client = served.client();
        client.send(b"PING\r\n");
        client.send(bytes);
        assert_eq!(client.reply().unwrap().to_string(), "+PONG");
        assert_eq!(client.reply().unwrap().to_string(), format!("-ERR Protocol error: {why}"));
        assert!(client.is_closed());
    }
    served.check(&[("PING", "+PONG")]);
}

#[test]
fn announced_lengths_hold_nothing_up() {
    let served = Served::start();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let mut client = served.client();
            client.send(b"*2147483647\r\n$536870912\r\nabc");
            client
        })
        .collect();
    served.check(&[("SET k v", "+OK"), ("GET k", "\"v\"")]);
    drop(waiting);
    served.check(&[("GET k", "\"v\"")]);
}

#[test]
fn requests_come_byte_by_byte() {
    let served = Served::start();
    let mut client = served.client();
    for byte in encoded(&["SET", "k", "a\r\nb"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.reply().unwrap().to_string(), "+OK");
    client.check(&[("GET k", "\"a\\r\\nb\"")]);
    client.send(b"\r\n*0\r\n*-1\r\nPING\r\n");
    assert_eq!(client.reply().unwrap().to_string(), "+PONG");
}

#[test]
fn half_a_request_at_the_end_is_dropped() {
    let served = Served::start();
    let mut client = served.client();
    client.send(&encoded(&["SET", "k", "whole"]));
    let half = encoded(&["SET", "k", "half"]);
    client.send(&half[..half.len() - 3]);
    client.finish();
    assert_eq!(client.reply().unwrap().to_string(), "+OK");
    assert!(client.is_closed());
    served.check(&[("GET k", "\"whole\"")]);
}

#[test]
fn errors_quote_no_more_than_redis_does() {
    let served = Served::start();
    let mut client = served.client();
    let long = "x".repeat(1000);
    let reply = client.call(&[&*long, "a\r\nb", &long]).to_string();
    let expected = format!(
        "-ERR unknown command '{}', with args beginning with: 'a  b' '{}' ",
        "x".repeat(128),
        "x".repeat(128 - "'a\r\nb' ".len())
    );
    assert_eq!(reply, expected);
}
