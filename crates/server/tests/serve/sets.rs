//! Sets, and what is computed of several.

use crate::client::{Client, Reply, Served};
use std::collections::BTreeSet;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

fn members(reply: Reply) -> BTreeSet<String> {
    reply.list().into_iter().map(Reply::text).collect()
}

#[test]
fn members_are_added_found_and_removed() {
    Served::start().check(&[
        ("SADD s b a b", ":2"),
        ("SADD s a c", ":1"),
        ("SMEMBERS s", "[\"a\" \"b\" \"c\"]"),
        ("SCARD s", ":3"),
        ("SCARD none", ":0"),
        ("SISMEMBER s a", ":1"),
        ("SISMEMBER s x", ":0"),
        ("SMISMEMBER s a x c", "[:1 :0 :1]"),
        ("SMISMEMBER none a", "[:0]"),
        ("SREM s a x a", ":1"),
        ("SMOVE s t b", ":1"),
        ("SMOVE s t b", ":0"),
        ("SMOVE none t b", ":0"),
        ("SMOVE s s c", ":1"),
        ("SMEMBERS t", "[\"b\"]"),
        ("SMOVE s t c", ":1"),
        ("EXISTS s", ":0"),
        ("TYPE t", "+set"),
        ("SET str 1", "+OK"),
        ("SMOVE t str b", WRONG_TYPE),
        ("SMOVE str t b", WRONG_TYPE),
        ("SADD str a", WRONG_TYPE),
        ("SINTER t none str", WRONG_TYPE),
        ("SUNIONSTORE new t str", WRONG_TYPE),
        ("SMEMBERS t", "[\"b\" \"c\"]"),
    ]);
}

#[test]
fn sets_of_sets() {
    Served::start().check(&[
        ("SADD a 1 2 3 4", ":4"),
        ("SADD b 2 4 6", ":3"),
        ("SADD c 4", ":1"),
        ("SINTER a b", "[\"2\" \"4\"]"),
        ("SINTER a b c", "[\"4\"]"),
        ("SINTER a none", "[]"),
        ("SINTER a a", "[\"1\" \"2\" \"3\" \"4\"]"),
        ("SUNION a b none", "[\"1\" \"2\" \"3\" \"4\" \"6\"]"),
        ("SDIFF a b", "[\"1\" \"3\"]"),
        ("SDIFF none a", "[]"),
        ("SDIFF a", "[\"1\" \"2\" \"3\" \"4\"]"),
        ("SDIFF a a", "[]"),
        ("SINTERCARD 2 a b", ":2"),
        ("SINTERCARD 2 a b LIMIT 1", ":1"),
        ("SINTERCARD 2 a b LIMIT 0", ":2"),
        ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
        ("SINTERCARD x a", "-ERR numkeys should be greater than 0"),
        ("SINTERCARD 3 a b", "-ERR Number of keys can't be greater than number of args"),
        ("SINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SINTERCARD 1 a OTHER 1", "-ERR syntax error"),
        ("SET to text", "+OK"),
        ("SINTERSTORE to a b", ":2"),
        ("SMEMBERS to", "[\"2\" \"4\"]"),
        ("SUNIONSTORE a a c", ":4"),
        ("SDIFFSTORE to a b", ":2"),
        ("SMEMBERS to", "[\"1\" \"3\"]"),
        ("SINTERSTORE to a none", ":0"),
        ("EXISTS to", ":0"),
        ("DBSIZE", ":3"),
    ]);
}

#[test]
fn members_by_chance() {
    let served = Served::start();
    let mut client = served.client();
    let mut left: BTreeSet<String> = (0..500).map(|index| format!("m{index}")).collect();
    let add: Vec<&str> = ["SADD", "s"].into_iter().chain(left.iter().map(String::as_str)).collect();
    assert_eq!(client.call(&add).integer(), 500);
    let mut pop = |client: &mut Client, line: &str| match client.line(line) {
        Reply::Bulk(member) => assert!(left.remove(std::str::from_utf8(&member).expect("text"))),
        many => many.list().into_iter().for_each(|it| assert!(left.remove(&it.text()))),
    };
    for line in ["SPOP s", "SPOP s 10", "SPOP s 0", "SPOP s 200"] {
        pop(&mut client, line);
    }
    assert_eq!(client.line("SCARD s").integer(), 289);
    assert_eq!(members(client.line("SRANDMEMBER s 50")).len(), 50);
    assert_eq!(client.line("SRANDMEMBER s -40").list().len(), 40);
    assert_eq!(members(client.line("SMEMBERS s")), left);
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
    loop {
        let mut reply = client.line(&format!("SSCAN s {cursor} COUNT 30")).list();
        seen.extend(members(reply.pop().expect("two parts")));
        cursor = reply.pop().expect("two parts").text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, left);
    assert_eq!(members(client.line("SPOP s 1000")), left);
    client.check(&[
        ("EXISTS s", ":0"),
        ("SPOP s", "nil"),
        ("SPOP s 3", "[]"),
        ("SPOP s -1", "-ERR value is out of range, must be positive"),
        ("SRANDMEMBER s", "nil"),
        ("SRANDMEMBER s 5", "[]"),
        ("SRANDMEMBER s x", "-ERR value is not an integer or out of range"),
        ("SADD s a", ":1"),
        ("SRANDMEMBER s -3", "[\"a\" \"a\" \"a\"]"),
    ]);
    client.line("HELLO 3");
    client.check(&[("SMEMBERS s", "<\"a\">"), ("SUNION s", "<\"a\">")]);
}

#[test]
fn a_transaction_sees_its_own_sets() {
    let served = Served::start();
    served.check(&[
        ("SADD s a b", ":2"),
        ("MULTI", "+OK"),
        ("SREM s a", "+QUEUED"),
        ("SADD s c", "+QUEUED"),
        ("SMEMBERS s", "+QUEUED"),
        ("DEL s", "+QUEUED"),
        ("SCARD s", "+QUEUED"),
        ("SADD s d", "+QUEUED"),
        ("SMEMBERS s", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("FLUSHALL", "+QUEUED"),
        ("SADD s e", "+QUEUED"),
        ("SMEMBERS s", "+QUEUED"),
        ("EXEC", "[:1 :1 [\"b\" \"c\"] :1 :0 :1 [\"d\"] :1 +OK :1 [\"e\"]]"),
        ("SMEMBERS s", "[\"e\"]"),
        ("DBSIZE", ":1"),
    ]);
}
