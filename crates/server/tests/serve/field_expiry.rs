//! Fields of hashes with expiries.

use crate::client::{Served, options};

/// A moment far in the future, in seconds.
const LATE: &str = "33177117420";

#[test]
fn fields_get_expiries_on_conditions() {
    Served::start().check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HTTL h FIELDS 2 a none", "[:-1 :-2]"),
        ("HTTL none FIELDS 2 a b", "[:-2 :-2]"),
        ("HEXPIRE none 10 FIELDS 2 a b", "[:-2 :-2]"),
        (&format!("HEXPIREAT h {LATE} FIELDS 3 a none a"), "[:1 :-2 :1]"),
        ("HEXPIRETIME h FIELDS 2 a b", &format!("[:{LATE} :-1]")),
        ("HPEXPIRETIME h FIELDS 1 a", &format!("[:{LATE}000]")),
        ("HEXPIREAT h 33177117421 NX FIELDS 2 a b", "[:0 :1]"),
        ("HEXPIREAT h 33177117422 XX FIELDS 2 a c", "[:1 :0]"),
        ("HEXPIREAT h 33177117421 GT FIELDS 3 a b c", "[:0 :0 :0]"),
        ("HEXPIREAT h 33177117423 GT FIELDS 1 a", "[:1]"),
        ("HPEXPIREAT h 33177117420001 LT FIELDS 3 a b c", "[:1 :1 :1]"),
        ("HEXPIRETIME h FIELDS 1 a", "[:33177117421]"),
        ("HPERSIST h FIELDS 3 a none a", "[:1 :-2 :-1]"),
        ("HPERSIST none FIELDS 1 a", "[:-2]"),
        ("HPEXPIRE h 0 FIELDS 1 a", "[:2]"),
        ("HGETALL h", "[\"b\" \"2\" \"c\" \"3\"]"),
        ("HPEXPIREAT h 5 FIELDS 3 b c b", "[:2 :2 :-2]"),
        ("EXISTS h", ":0"),
    ]);
}

#[test]
fn wrong_arguments_are_refused() {
    let fields = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let number = "-ERR Parameter `numFields` should be greater than 0";
    let differ = "-ERR The `numfields` parameter must match the number of arguments";
    let time = "-ERR invalid expire time in 'hexpire' command";
    Served::start().check(&[
        ("SET s x", "+OK"),
        ("HEXPIRE s 10 FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HTTL s FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HEXPIRE h 10 a b c", fields),
        ("HEXPIRE h 10 NX NX FIELDS 1 a", fields),
        ("HEXPIRE h 10 FIELDS 0 a", number),
        ("HEXPIRE h 10 FIELDS x a", number),
        ("HEXPIRE h 10 FIELDS 2 a", differ),
        ("HEXPIRE h 10 FIELDS 9223372036854775807 a", differ),
        ("HTTL h FIELDS 1 a b", differ),
        ("HSETEX h FIELDS 9223372036854775807 a b", differ),
        ("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0"),
        ("HEXPIRE h 9223372036854775807 FIELDS 1 a", time),
        ("HEXPIRE h 70368744178 FIELDS 1 a", time),
        ("HPEXPIREAT h 70368744177663 FIELDS 1 a", "[:-2]"),
        ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range"),
        ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
    ]);
}

#[test]
fn writes_of_a_field_clear_its_expiry_and_increments_keep_it() {
    let expire = format!("HEXPIREAT h {LATE} FIELDS 2 a b");
    let times = |a: &str, b: &str| format!("[:{a} :{b}]");
    Served::start().check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        (&expire, "[:1 :1]"),
        ("HINCRBY h a 4", ":5"),
        ("HINCRBYFLOAT h b 0.5", "\"2.5\""),
        ("HEXPIRETIME h FIELDS 2 a b", &times(LATE, LATE)),
        ("HSET h a 1", ":0"),
        ("HEXPIRETIME h FIELDS 2 a b", &times("-1", LATE)),
        ("HSETNX h b 1", ":0"),
        ("HDEL h b", ":1"),
        ("HSET h b 1", ":1"),
        ("HEXPIRETIME h FIELDS 2 a b", &times("-1", "-1")),
        (&expire, "[:1 :1]"),
        ("OBJECT ENCODING h", "\"listpackex\""),
        ("RENAME h i", "+OK"),
        ("COPY i h", ":1"),
        ("HEXPIRETIME h FIELDS 2 a b", &times(LATE, LATE)),
        ("DEL h", ":1"),
        ("MOVE i 1", ":1"),
        ("SELECT 1", "+OK"),
        ("HEXPIRETIME i FIELDS 2 a b", &times(LATE, LATE)),
        ("HLEN i", ":3"),
    ]);
}

#[test]
fn a_field_is_gone_from_its_moment_on() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("HSET h a 1 b 2", ":2"), ("HPEXPIRE h 1 FIELDS 1 a", "[:1]")]);
    while !client.line("HGET h a").to_string().contains("nil") {}
    client.check(&[
        ("HGETALL h", "[\"b\" \"2\"]"),
        ("HMGET h a b", "[nil \"2\"]"),
        ("HEXISTS h a", ":0"),
        ("HSCAN h 0", "[\"0\" [\"b\" \"2\"]]"),
        ("HRANDFIELD h 5", "[\"b\"]"),
        ("HTTL h FIELDS 1 a", "[:-2]"),
        ("HDEL h a", ":0"),
    ]);
    // The server deletes it soon, and the hash with its last field.
    while client.line("HLEN h").integer() > 1 {}
    client.check(&[("HPEXPIRE h 1 FIELDS 1 b", "[:1]")]);
    while client.line("EXISTS h").integer() > 0 {}
    client.check(&[("DBSIZE", ":0")]);
    // One that was renamed or written anew meanwhile goes, or stays, by what it is.
    client.check(&[
        ("HSET h a 1", ":1"),
        ("HPEXPIRE h 20 FIELDS 1 a", "[:1]"),
        ("RENAME h i", "+OK"),
        ("HSET h a 1", ":1"),
        ("SELECT 1", "+OK"),
        ("HSET j a 1", ":1"),
        ("HPEXPIRE j 20 FIELDS 1 a", "[:1]"),
        ("SWAPDB 1 2", "+OK"),
        ("SELECT 2", "+OK"),
    ]);
    while client.line("EXISTS j").integer() > 0 {}
    client.check(&[("SELECT 0", "+OK")]);
    while client.line("EXISTS i").integer() > 0 {}
    client.check(&[("HGET h a", "\"1\""), ("DBSIZE", ":1")]);
}

#[test]
fn expiries_of_fields_survive_a_restart() {
    let mut served = Served::start();
    served.check(&[
        ("HSET h a 1 b 2", ":2"),
        (&format!("HEXPIREAT h {LATE} FIELDS 1 a"), "[:1]"),
        ("HSET gone a 1", ":1"),
        ("HPEXPIRE gone 1 FIELDS 1 a", "[:1]"),
    ]);
    served.close();
    served.open(&options());
    let mut client = served.client();
    client.check(&[("HEXPIRETIME h FIELDS 2 a b", &format!("[:{LATE} :-1]"))]);
    while client.line("EXISTS gone").integer() > 0 {}
}

#[test]
fn fields_are_read_and_written_with_expiries_at_once() {
    Served::start().check(&[
        (&format!("HSETEX h EXAT {LATE} FIELDS 2 a 1 b 2"), ":1"),
        ("HSETEX h FNX FIELDS 2 b 3 c 3", ":0"),
        ("HSETEX h FXX KEEPTTL FIELDS 1 b 3", ":1"),
        ("HSETEX h FIELDS 1 a 9", ":1"),
        ("HEXPIRETIME h FIELDS 3 a b c", &format!("[:-1 :{LATE} :-2]")),
        (&format!("HGETEX h PXAT {LATE}001 FIELDS 2 a none"), "[\"9\" nil]"),
        ("HPEXPIRETIME h FIELDS 1 a", &format!("[:{LATE}001]")),
        ("HGETEX h PERSIST FIELDS 1 a", "[\"9\"]"),
        ("HGETEX h FIELDS 1 b", "[\"3\"]"),
        ("HEXPIRETIME h FIELDS 2 a b", &format!("[:-1 :{LATE}]")),
        ("HGETDEL h FIELDS 2 a a", "[\"9\" \"9\"]"),
        ("HGETDEL h FIELDS 1 b", "[\"3\"]"),
        ("EXISTS h", ":0"),
        ("HGETDEL h FIELDS 1 b", "[nil]"),
        ("HSETEX h FIELDS 1 b", "-ERR wrong number of arguments for 'hsetex' command"),
        ("HSETEX h EX 1 PX 1 FIELDS 1 b 1", "-ERR syntax error"),
        ("HGETEX h EX 0 FIELDS 1 b", "-ERR invalid expire time in 'hgetex' command"),
    ]);
}

#[test]
fn dumps_carry_the_expiries_of_fields() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        (&format!("HEXPIREAT h {LATE} FIELDS 1 a"), "[:1]"),
        ("HPEXPIREAT h 33177117420001 FIELDS 1 c", "[:1]"),
    ]);
    client.send_command(&["DUMP", "h"]);
    let crate::client::Reply::Bulk(payload) = client.reply().expect("a reply") else { panic!("no string") };
    let restored = client.call(&[b"RESTORE".to_vec(), b"i".to_vec(), b"0".to_vec(), payload.clone()]);
    assert_eq!(restored.to_string(), "+OK");
    client.check(&[
        ("HGETALL i", "[\"a\" \"1\" \"b\" \"2\" \"c\" \"3\"]"),
        ("HPEXPIRETIME i FIELDS 3 a b c", "[:33177117420000 :-1 :33177117420001]"),
    ]);
    // Each byte but those of the footer changed: refused, or read as something else, but not fatal.
    for place in 0..payload.len() - 10 {
        let mut damaged = payload.clone();
        damaged[place] ^= 0x81;
        let args = [b"RESTORE".to_vec(), b"x".to_vec(), b"0".to_vec(), damaged, b"REPLACE".to_vec()];
        assert!(client.call(&args).to_string().starts_with("-ERR DUMP payload version or checksum"));
    }
}

#[test]
fn expiries_of_fields_have_events() {
    let served = Served::start();
    let (mut listener, mut client) = (served.client(), served.client());
    listener.check(&[("PSUBSCRIBE __keyevent@0__:*", "[\"psubscribe\" \"__keyevent@0__:*\" :1]")]);
    client.check(&[
        ("CONFIG SET notify-keyspace-events EA", "+OK"),
        ("HSET h a 1 b 2", ":2"),
        ("HEXPIRE h 100 FIELDS 1 a", "[:1]"),
        ("HPERSIST h FIELDS 1 a", "[:1]"),
        ("HPERSIST h FIELDS 1 a", "[:-1]"),
        ("HPEXPIRE h 0 FIELDS 1 a", "[:2]"),
        ("HPEXPIRE h 1 FIELDS 1 b", "[:1]"),
    ]);
    for event in ["hset", "hexpire", "hpersist", "hdel", "hexpire", "hexpired", "del"] {
        listener.expect(&[&format!("[\"pmessage\" \"__keyevent@0__:*\" \"__keyevent@0__:{event}\" \"h\"]")]);
    }
}
