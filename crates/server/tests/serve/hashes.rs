//! Hashes, with the errors that Redis has for them.

use crate::client::Served;
use std::collections::BTreeMap;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn fields_are_set_read_and_deleted() {
    Served::start().check(&[
        ("HSET h a 1 b 2 a 3", ":2"),
        ("HSET h a 4 c 5", ":1"),
        ("HGET h a", "\"4\""),
        ("HGET h none", "nil"),
        ("HGET none a", "nil"),
        ("HMGET h c x a", "[\"5\" nil \"4\"]"),
        ("HMGET none x y", "[nil nil]"),
        ("HGETALL h", "[\"a\" \"4\" \"b\" \"2\" \"c\" \"5\"]"),
        ("HKEYS h", "[\"a\" \"b\" \"c\"]"),
        ("HVALS h", "[\"4\" \"2\" \"5\"]"),
        ("HLEN h", ":3"),
        ("HSTRLEN h a", ":1"),
        ("HSTRLEN h none", ":0"),
        ("HEXISTS h a", ":1"),
        ("HEXISTS none a", ":0"),
        ("HSETNX h a 9", ":0"),
        ("HSETNX h d 9", ":1"),
        ("HMSET h e 10", "+OK"),
        ("HDEL h a a none b", ":2"),
        ("HDEL h c d e", ":3"),
        ("EXISTS h", ":0"),
        ("DBSIZE", ":0"),
        ("HDEL h a", ":0"),
        ("HGETALL h", "[]"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
        ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
        ("EXISTS h", ":0"),
    ]);
}

#[test]
fn fields_count() {
    Served::start().check(&[
        ("HINCRBY h n 5", ":5"),
        ("HINCRBY h n -7", ":-2"),
        ("HSET h text a1", ":1"),
        ("HINCRBY h text 1", "-ERR hash value is not an integer"),
        ("HINCRBY h n x", "-ERR value is not an integer or out of range"),
        ("HSET h most 9223372036854775807", ":1"),
        ("HINCRBY h most 1", "-ERR increment or decrement would overflow"),
        ("HINCRBYFLOAT h f 10.5", "\"10.5\""),
        ("HINCRBYFLOAT h f 0.1", "\"10.6\""),
        ("HINCRBYFLOAT h text 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
        ("HLEN h", ":4"),
    ]);
}

#[test]
fn another_type_is_refused_and_untouched() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("SET s 1", "+OK"), ("SADD set a", ":1")]);
    for line in [
        "HGET s a",
        "HSET s a 1",
        "HGETALL set",
        "HDEL set a",
        "HINCRBY s a 1",
        "HLEN set",
        "HSCAN s 0",
        "HRANDFIELD s",
    ] {
        client.check(&[(line, WRONG_TYPE)]);
    }
    client.check(&[("GET s", "\"1\""), ("HSET h a 1", ":1"), ("GET h", WRONG_TYPE), ("INCR h", WRONG_TYPE)]);
    client.check(&[("SET h 2", "+OK"), ("GET h", "\"2\""), ("HSET s2 f v", ":1"), ("TYPE s2", "+hash")]);
}

#[test]
fn a_map_in_the_third_protocol() {
    let served = Served::start();
    let mut client = served.client();
    client.line("HELLO 3");
    client.check(&[
        ("HSET h a 1", ":1"),
        ("HGETALL h", "{\"a\" \"1\"}"),
        ("HRANDFIELD h 1 WITHVALUES", "[[\"a\" \"1\"]]"),
        ("HGETALL none", "{}"),
    ]);
}

#[test]
fn a_large_hash_is_scanned_whole() {
    let served = Served::start();
    let mut client = served.client();
    let mut expected = BTreeMap::new();
    for part in 0..10 {
        let pairs: Vec<String> = (0..100)
            .flat_map(|index| [format!("field:{part}:{index}"), format!("value:{part}:{index}")])
            .collect();
        expected.extend(pairs.as_chunks().0.iter().map(|[field, value]| (field.clone(), value.clone())));
        let args = ["HSET", "h"].into_iter().chain(pairs.iter().map(String::as_str));
        assert_eq!(client.call(&args.collect::<Vec<_>>()).integer(), 100);
    }
    let (mut cursor, mut found, mut rounds) = ("0".to_owned(), BTreeMap::new(), 0);
    loop {
        let mut reply = client.line(&format!("HSCAN h {cursor} COUNT 70")).list();
        let fields: Vec<String> =
            reply.pop().expect("two parts").list().into_iter().map(|it| it.text()).collect();
        found.extend(fields.as_chunks().0.iter().map(|[field, value]| (field.clone(), value.clone())));
        cursor = reply.pop().expect("two parts").text();
        rounds += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, expected);
    assert!(rounds > 5, "{rounds} rounds");
    client.check(&[
        ("HSCAN h 0 MATCH field:3:77 COUNT 10000", "[\"0\" [\"field:3:77\" \"value:3:77\"]]"),
        ("HSCAN h 0 MATCH field:3:77 COUNT 10000 NOVALUES", "[\"0\" [\"field:3:77\"]]"),
        ("HSCAN none 0", "[\"0\" []]"),
        ("HSCAN h x", "-ERR invalid cursor"),
        ("HSCAN h 0 COUNT 0", "-ERR syntax error"),
        ("HSCAN h 0 MATCH", "-ERR syntax error"),
        ("HRANDFIELD none", "nil"),
        ("HRANDFIELD none 3", "[]"),
        ("HRANDFIELD h -9223372036854775808", "-ERR value is out of range"),
    ]);
    for (line, length) in [("HRANDFIELD h 20", 20), ("HRANDFIELD h -50", 50), ("HRANDFIELD h 2000", 1000)] {
        let fields = client.line(line).list();
        assert_eq!(fields.len(), length, "{line}");
        assert!(fields.into_iter().all(|field| expected.contains_key(&field.text())));
    }
    client.check(&[("DEL h", ":1"), ("HSET h only 1", ":1"), ("HGETALL h", "[\"only\" \"1\"]")]);
}

#[test]
fn hashes_survive_a_restart() {
    let mut served = Served::start();
    served.check(&[
        ("HSET h a 1 b 2", ":2"),
        ("EXPIRE h 1000", ":1"),
        ("HSET gone a 1", ":1"),
        ("DEL gone", ":1"),
    ]);
    served.close();
    served.open(&crate::client::options());
    served.check(&[
        ("HGETALL h", "[\"a\" \"1\" \"b\" \"2\"]"),
        ("PERSIST h", ":1"),
        ("HGETALL gone", "[]"),
        ("COPY h copy", ":1"),
        ("HSET copy a 9", ":0"),
        ("RENAME copy moved", "+OK"),
        ("MOVE moved 5", ":1"),
        ("HGET h a", "\"1\""),
        ("SELECT 5", "+OK"),
        ("HGETALL moved", "[\"a\" \"9\" \"b\" \"2\"]"),
        ("SWAPDB 0 5", "+OK"),
        ("HGET h a", "\"1\""),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("HGET moved a", "\"9\""),
        ("DBSIZE", ":1"),
    ]);
}
