//! Keys of any type: existence, expiry, names, databases.

use crate::client::Served;
use std::collections::BTreeSet;

#[test]
fn existence_and_types() {
    Served::start().check(&[
        ("MSET a 1 b 2", "+OK"),
        ("EXISTS a b none a", ":3"),
        ("TOUCH a none", ":1"),
        ("TYPE a", "+string"),
        ("TYPE none", "+none"),
        ("DEL a none", ":1"),
        ("UNLINK b", ":1"),
        ("DBSIZE", ":0"),
        ("RANDOMKEY", "nil"),
        ("SET n 12", "+OK"),
        ("OBJECT ENCODING n", "\"int\""),
        ("OBJECT REFCOUNT n", ":1"),
        ("OBJECT ENCODING none", "nil"),
        ("RANDOMKEY", "\"n\""),
    ]);
}

#[test]
fn expiry_is_set_told_and_removed() {
    let served = Served::start();
    served.check(&[("SET t v EX 100000", "+OK"), ("EXPIRE t 200000", ":1")]);
    let ttl = served.client().line("TTL t").integer();
    assert!((1..=200_000).contains(&ttl), "{ttl}");
    served.check(&[
        ("DEL t", ":1"),
        ("EXPIRE none 1", ":0"),
        ("TTL none", ":-2"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("EXPIRETIME k", ":-1"),
        ("EXPIRE k x NEVER", "-ERR Unsupported option NEVER"),
        ("EXPIRE k x NX", "-ERR value is not an integer or out of range"),
        ("EXPIRE k 100000 XX", ":0"),
        ("EXPIRE k 100000 NX", ":1"),
        ("EXPIRE k 50000 GT", ":0"),
        ("EXPIRE k 200000 GT", ":1"),
        ("EXPIRE k 300000 LT", ":0"),
        ("EXPIREAT k 33177117420", ":1"),
        ("EXPIRETIME k", ":33177117420"),
        ("PEXPIREAT k 33177117420000", ":1"),
        ("PEXPIRETIME k", ":33177117420000"),
        ("PERSIST k", ":1"),
        ("PERSIST k", ":0"),
        ("EXPIRE k x", "-ERR value is not an integer or out of range"),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
        ("EXPIRE k 1 NX GT", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE k 1 HM", "-ERR Unsupported option HM"),
        ("PEXPIRE k -1", ":1"),
        ("EXISTS k", ":0"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn a_key_is_gone_once_its_time_has_come() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("SET k v PX 30", "+OK"), ("SET stays v", "+OK")]);
    while client.line("EXISTS k").integer() == 1 {}
    client.check(&[("GET k", "nil"), ("TTL k", ":-2"), ("SET k w NX", "+OK"), ("TTL k", ":-1")]);
    client.check(&[("PEXPIRE stays 1", ":1")]);
    // Expired keys are deleted in the background, and then counted no more.
    while client.line("DBSIZE").integer() != 1 {}
}

#[test]
fn renames_copies_and_moves() {
    Served::start().check(&[
        ("RENAME none k", "-ERR no such key"),
        ("SET a 1 EXAT 33177117420", "+OK"),
        ("RENAME a b", "+OK"),
        ("EXPIRETIME b", ":33177117420"),
        ("EXISTS a", ":0"),
        ("SET c 3", "+OK"),
        ("RENAMENX b c", ":0"),
        ("RENAME b b", "+OK"),
        ("RENAMENX b d", ":1"),
        ("COPY d e", ":1"),
        ("COPY c e", ":0"),
        ("COPY c e REPLACE", ":1"),
        ("GET e", "\"3\""),
        ("COPY e e", "-ERR source and destination objects are the same"),
        ("COPY e e DB 1", ":1"),
        ("COPY e x DB 16", "-ERR DB index is out of range"),
        ("MOVE c 1", ":1"),
        ("MOVE e 1", ":0"),
        ("MOVE e 0", "-ERR source and destination objects are the same"),
        ("MOVE e 99", "-ERR DB index is out of range"),
        ("SELECT 1", "+OK"),
        ("MGET c e", "[\"3\" \"3\"]"),
        ("DBSIZE", ":2"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":2"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
    ]);
}

#[test]
fn databases_are_flushed_and_swapped() {
    Served::start().check(&[
        ("SET k zero", "+OK"),
        ("SELECT 1", "+OK"),
        ("SET k one", "+OK"),
        ("SWAPDB 0 1", "+OK"),
        ("GET k", "\"zero\""),
        ("DBSIZE", ":1"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("GET k", "nil"),
        ("SELECT 0", "+OK"),
        ("GET k", "\"one\""),
        ("SWAPDB 0 x", "-ERR invalid second DB index"),
        ("SWAPDB 0 99", "-ERR DB index is out of range"),
        ("FLUSHALL ASYNC", "+OK"),
        ("DBSIZE", ":0"),
        ("FLUSHALL NOW", "-ERR syntax error"),
        ("SET k again", "+OK"),
        ("KEYS *", "[\"k\"]"),
    ]);
}

#[test]
fn scan_and_keys_find_what_is_there() {
    let served = Served::start();
    let mut client = served.client();
    let names: BTreeSet<String> = (0..1000).map(|n| format!("key:{n}")).collect();
    for name in &names {
        client.check(&[(&format!("SET {name} 1"), "+OK")]);
    }
    client.check(&[("SET other 1", "+OK")]);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.line(&format!("SCAN {cursor} MATCH key:* COUNT 100 TYPE string")).list();
        let [next, page] = <[_; 2]>::try_from(reply).expect("a cursor and a page");
        found.extend(page.list().into_iter().map(|name| name.text()));
        cursor = next.text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 1000, "keys that do not move are found once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    assert_eq!(client.line("KEYS key:99?").list().len(), 10);
    assert_eq!(client.line("KEYS *").list().len(), 1001);
    client.check(&[
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 0 MATCH", "-ERR syntax error"),
        ("SCAN 0 TYPE hash COUNT 9999", "[\"0\" []]"),
    ]);
}
