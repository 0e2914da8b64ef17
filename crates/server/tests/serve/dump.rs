//! DUMP and RESTORE: values of all types come back, and damaged payloads change nothing.

use crate::client::{Client, Reply, Served};

const SUM: &str = "-ERR DUMP payload version or checksum are wrong";

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&["DUMP", key]) {
        Reply::Bulk(payload) => payload,
        other => panic!("no payload: {other}"),
    }
}

fn restore(client: &mut Client, key: &str, ttl: &str, payload: &[u8], options: &[&str]) -> String {
    let mut args = vec![&b"RESTORE"[..], key.as_bytes(), ttl.as_bytes(), payload];
    args.extend(options.iter().map(|option| option.as_bytes()));
    client.call(&args).to_string()
}

#[test]
fn values_of_all_types_come_back() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("SET s hello", "+OK"),
        ("SET n -300", "+OK"),
        ("RPUSH l a 1 b", ":3"),
        ("SADD set b a 5", ":3"),
        ("HSET h f v g 7", ":2"),
        ("ZADD z 1.5 a -inf b 1e300 17 5e-324 c 0.1 d", ":5"),
        ("DUMP none", "nil"),
    ]);
    for key in ["s", "n", "l", "set", "h", "z"] {
        let payload = dump(&mut client, key);
        assert_eq!(restore(&mut client, &format!("{key}2"), "0", &payload, &[]), "+OK");
        assert_eq!(dump(&mut client, &format!("{key}2")), payload);
    }
    client.check(&[
        ("GET s2", "\"hello\""),
        ("GET n2", "\"-300\""),
        ("LRANGE l2 0 -1", "[\"a\" \"1\" \"b\"]"),
        ("SMEMBERS set2", "[\"5\" \"a\" \"b\"]"),
        ("HGETALL h2", "[\"f\" \"v\" \"g\" \"7\"]"),
        (
            "ZRANGE z2 0 -1 WITHSCORES",
            "[\"b\" \"-inf\" \"c\" \"5e-324\" \"d\" \"0.1\" \"a\" \"1.5\" \"17\" \"1e+300\"]",
        ),
        ("DBSIZE", ":12"),
    ]);
}

#[test]
fn large_collections_come_back() {
    let served = Served::start();
    let mut client = served.client();
    let parts: Vec<String> = (0..6000).map(|number| format!("part {number}")).collect();
    for (command, key) in [("RPUSH", "l"), ("SADD", "s"), ("HSET", "h")] {
        let mut args = vec![command, key];
        args.extend(parts.iter().map(String::as_str));
        client.call(&args);
        let payload = dump(&mut client, key);
        assert_eq!(restore(&mut client, key, "0", &payload, &["REPLACE"]), "+OK");
        assert_eq!(dump(&mut client, key), payload);
    }
    client.check(&[("LLEN l", ":6000"), ("SCARD s", ":6000"), ("HLEN h", ":3000"), ("DBSIZE", ":3")]);
    let scores: Vec<String> = (0..6000).map(|number| (number % 100).to_string()).collect();
    let mut args = vec!["ZADD", "z"];
    args.extend(scores.iter().zip(&parts).flat_map(|(score, member)| [score.as_str(), member.as_str()]));
    client.call(&args);
    let (payload, range) = (dump(&mut client, "z"), client.line("ZRANGE z 0 -1 WITHSCORES"));
    assert_eq!(restore(&mut client, "z", "0", &payload, &["REPLACE"]), "+OK");
    assert_eq!(client.line("ZRANGE z 0 -1 WITHSCORES"), range);
    client.check(&[("ZCARD z", ":6000"), ("ZCOUNT z 99 99", ":60"), ("DBSIZE", ":4")]);
}

#[test]
fn options_of_restore() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("SET k v", "+OK")]);
    let payload = dump(&mut client, "k");
    let mut check = |key: &str, ttl: &str, options: &[&str], expected: &str| {
        assert_eq!(restore(&mut client, key, ttl, &payload, options), expected, "{key} {ttl} {options:?}");
    };
    check("k", "0", &[], "-BUSYKEY Target key name already exists.");
    check("k", "33177117420000", &["REPLACE", "absttl"], "+OK");
    check("n", "-1", &[], "-ERR Invalid TTL value, must be >= 0");
    check("n", "x", &[], "-ERR value is not an integer or out of range");
    check("n", "0", &["IDLETIME", "-1"], "-ERR Invalid IDLETIME value, must be >= 0");
    check("n", "0", &["FREQ", "256"], "-ERR Invalid FREQ value, must be >= 0 and <= 255");
    check("n", "0", &["FREQ", "1", "IDLETIME", "1"], "-ERR syntax error");
    check("n", "0", &["IDLETIME"], "-ERR syntax error");
    check("n", "0", &["NEVER"], "-ERR syntax error");
    check("old", "1", &["ABSTTL"], "+OK");
    check("idle", "100000000", &["IDLETIME", "1000"], "+OK");
    check("l", "0", &["FREQ", "255"], "+OK");
    client.check(&[
        ("PEXPIRETIME k", ":33177117420000"),
        ("EXISTS n old", ":0"),
        ("PERSIST idle", ":1"),
        ("TTL l", ":-1"),
    ]);
    assert_eq!(restore(&mut client, "k", "1", &payload, &["REPLACE", "ABSTTL"]), "+OK");
    client.check(&[("EXISTS k", ":0")]);
}

#[test]
fn damaged_payloads_change_nothing() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("RPUSH k a b c", ":3")]);
    let good = dump(&mut client, "k");
    for at in 0..good.len() {
        let mut payload = good.clone();
        payload[at] ^= 0x55;
        assert_eq!(restore(&mut client, "k", "0", &payload, &["REPLACE"]), SUM);
        assert_eq!(restore(&mut client, "k", "0", &good[..at], &["REPLACE"]), SUM);
    }
    // A stream without entries, with the right checksum.
    let stream = b"\x0f\x00\x0a\x00\xd4\x1e\xa7\x5a\xc5\xb8\xe3\x06";
    assert!(restore(&mut client, "k", "0", stream, &["REPLACE"]).starts_with("-ERR"));
    // Sorted sets whose scores are no numbers, with the right checksums.
    let no_number = b"\x11\x18\x18\x00\x00\x00\x04\x00\x81b\x02\x84-inx\x05\x81\
          a\x02\x831.5\x04\xff\x0a\x00=\xa8\x02/\x99\xe4\x92\xa7";
    let nan = b"\x11\x18\x18\x00\x00\x00\x04\x00\x81b\x02\x84-inf\x05\x81\
          a\x02\x83nan\x04\xff\x0a\x00\xdc\x0e.\xc1v\x98\xec\xe9";
    for payload in [&no_number[..], nan] {
        assert_eq!(restore(&mut client, "k", "0", payload, &["REPLACE"]), "-ERR Bad data format");
    }
    client.check(&[("LRANGE k 0 -1", "[\"a\" \"b\" \"c\"]")]);
}

#[test]
fn payloads_of_redis_are_restored() {
    let served = Served::start();
    let mut client = served.client();
    // A hash as a listpack, a set as integers, and a compressed string.
    let hash = b"\x10\x12\x12\x00\x00\x00\x04\x00\x81\x66\x02\x81\x76\x02\x81\x6e\x02\x11\
                 \x01\xff\x0a\x00\xa1\x80\xdd\xa2\x35\x10\x45\x3b";
    let set = b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x2c\x01\x0a\0\xe5\x10\xb2\x8e\x7b\x95\x29\xaa";
    let text = b"\0\xc3\x09\x3c\x01xx\xe0/\0\x01xx\x0a\0\x13jK\xd6\x1c\xb5\x07\xae";
    assert_eq!(restore(&mut client, "h", "0", hash, &[]), "+OK");
    assert_eq!(restore(&mut client, "s", "0", set, &[]), "+OK");
    assert_eq!(restore(&mut client, "t", "0", text, &[]), "+OK");
    // A sorted set as a listpack.
    let sorted = b"\x11\x18\x18\0\0\0\x04\0\x81b\x02\x84-inf\x05\x81a\x02\x831.5\x04\xff\
                   \x0a\0b\x83\xbcb{\xc9G\x81";
    assert_eq!(restore(&mut client, "z", "0", sorted, &[]), "+OK");
    client.check(&[
        ("HGETALL h", "[\"f\" \"v\" \"n\" \"17\"]"),
        ("SMEMBERS s", "[\"1\" \"2\" \"300\"]"),
        ("STRLEN t", ":60"),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"b\" \"-inf\" \"a\" \"1.5\"]"),
    ]);
}
