//! Commands that wait for an element.

use crate::client::{Served, encoded};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn an_element_that_is_there_is_taken_at_once() {
    Served::start().check(&[
        ("RPUSH l a b c d e", ":5"),
        ("BLPOP none l 0", "[\"l\" \"a\"]"),
        ("BRPOP l none 0", "[\"l\" \"e\"]"),
        ("BLMOVE l m LEFT RIGHT 0", "\"b\""),
        ("BRPOPLPUSH l m 0", "\"d\""),
        ("LRANGE m 0 -1", "[\"d\" \"b\"]"),
        ("BLMPOP 0 2 none m RIGHT COUNT 5", "[\"m\" [\"b\" \"d\"]]"),
        ("BLMPOP 0.01 1 m RIGHT", "nil"),
        ("BLPOP m n 0.01", "nil"),
        ("BLMOVE m n LEFT LEFT 0.01", "nil"),
        ("SET s 1", "+OK"),
        ("BLPOP none s l 0", WRONG_TYPE),
        ("BLMOVE l s LEFT LEFT 0", WRONG_TYPE),
        ("LRANGE l 0 -1", "[\"c\"]"),
    ]);
}

#[test]
fn a_member_that_is_there_is_taken_at_once() {
    let served = Served::start();
    served.check(&[
        ("ZADD z 1 a 2 b 3 c 4.5 d -inf e", ":5"),
        ("BZPOPMIN none z 0", "[\"z\" \"e\" \"-inf\"]"),
        ("BZPOPMAX z none 0", "[\"z\" \"d\" \"4.5\"]"),
        ("BZMPOP 0 2 none z max COUNT 2", "[\"z\" [[\"c\" \"3\"] [\"b\" \"2\"]]]"),
        ("RPUSH l x", ":1"),
        ("BZPOPMIN none l z 0", WRONG_TYPE),
        ("BZMPOP 0 2 l z MIN", WRONG_TYPE),
        ("BLPOP z 0", WRONG_TYPE),
    ]);
    let mut client = served.client();
    client.line("HELLO 3");
    client.check(&[
        ("BZPOPMIN z 0", "[\"z\" \"a\" ,1]"),
        ("EXISTS z", ":0"),
        ("ZADD z 1 a 2 b", ":2"),
        ("BZMPOP 0 1 z MIN COUNT 10", "[\"z\" [[\"a\" ,1] [\"b\" ,2]]]"),
        ("BZPOPMAX z none 0.01", "nil"),
        ("BZMPOP 0.01 1 z MIN", "nil"),
    ]);
}

#[test]
fn arguments_are_checked_before_a_wait() {
    Served::start().check(&[
        ("BLPOP k x", "-ERR timeout is not a float or out of range"),
        ("BLPOP k nan", "-ERR timeout is not a float or out of range"),
        ("BLPOP k -1", "-ERR timeout is negative"),
        ("BLPOP k 1e30", "-ERR timeout is out of range"),
        ("BLPOP 0", "-ERR wrong number of arguments for 'blpop' command"),
        ("BLMOVE a b UP LEFT x", "-ERR syntax error"),
        ("BLMOVE a b LEFT LEFT x", "-ERR timeout is not a float or out of range"),
        ("BLMPOP x 1 a LEFT", "-ERR timeout is not a float or out of range"),
        ("BLMPOP 0 0 a LEFT", "-ERR numkeys should be greater than 0"),
        ("BLMPOP 0 2 a LEFT", "-ERR syntax error"),
        ("BLMPOP 0 1 a LEFT COUNT 0", "-ERR count should be greater than 0"),
        ("BZPOPMIN k x", "-ERR timeout is not a float or out of range"),
        ("BZPOPMAX k -1", "-ERR timeout is negative"),
        ("BZPOPMAX 0", "-ERR wrong number of arguments for 'bzpopmax' command"),
        ("BZMPOP x 1 a MIN", "-ERR timeout is not a float or out of range"),
        ("BZMPOP 0 0 a MIN", "-ERR numkeys should be greater than 0"),
        ("BZMPOP 0 9223372036854775807 a MIN", "-ERR syntax error"),
        ("BZMPOP 0 2 a MIN", "-ERR syntax error"),
        ("BZMPOP 0 1 a LEFT", "-ERR syntax error"),
        ("BZMPOP 0 1 a MIN COUNT", "-ERR syntax error"),
        ("BZMPOP 0 1 a MIN COUNT 0", "-ERR count should be greater than 0"),
        ("BZMPOP 0 1 a MIN COUNT 1 COUNT 1", "-ERR syntax error"),
        ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
        ("WAIT 0 -1", "-ERR timeout is negative"),
        ("WAIT 1 0", ":0"),
        ("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1"),
        ("SET k v", "+OK"),
        ("WAITAOF 1 0 0", "[:1 :0]"),
        ("WAITAOF 0 0 0", "[:0 :0]"),
    ]);
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let served = Served::start();
    let (mut pusher, mut waiters) = (served.client(), Vec::new());
    for number in 0..6 {
        let mut waiter = served.client();
        waiter.send_line("BLPOP other l 0");
        pusher.wait_for_blocked(number + 1);
        waiters.push(waiter);
    }
    // The waiters have taken what they get when the push is answered.
    pusher.check(&[("RPUSH l 0 1", ":2"), ("LLEN l", ":0"), ("RPUSH l 2", ":1"), ("LLEN l", ":0")]);
    pusher.check(&[("MULTI", "+OK"), ("LPUSH l 3", "+QUEUED"), ("LPUSH other 4", "+QUEUED")]);
    pusher.check(&[
        ("EXEC", "[:1 :1]"),
        ("EXISTS l other", ":0"),
        ("RPUSH l 5 6", ":2"),
        ("LPOP l", "\"6\""),
    ]);
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let key = if number == 4 { "other" } else { "l" };
        waiter.expect(&[&format!("[\"{key}\" \"{number}\"]")]);
    }
    pusher.wait_for_blocked(0);
}

#[test]
fn a_pipeline_serves_those_who_wait_between_its_commands() {
    let served = Served::start();
    let (mut waiter, mut pusher) = (served.client(), served.client());
    waiter.send_line("BLPOP l 0");
    pusher.wait_for_blocked(1);
    pusher.send(&[encoded(&["RPUSH", "l", "a"]), encoded(&["LPOP", "l"]), encoded(&["LLEN", "l"])].concat());
    pusher.expect(&[":1", "nil", ":0"]);
    waiter.expect(&["[\"l\" \"a\"]"]);
}

#[test]
fn every_way_in_which_a_key_comes_serves_those_who_wait() {
    let ways: &[&[&str]] = &[
        &["RPUSH l v"],
        &["RPUSH m v", "RENAME m l"],
        &["RPUSH m v", "RENAMENX m l"],
        &["RPUSH m v", "COPY m l"],
        &["RPUSH m v", "LMOVE m l LEFT LEFT"],
        &["RPUSH m v", "BLMOVE m l LEFT LEFT 0"],
        &["SELECT 1", "RPUSH l v", "MOVE l 0"],
        &["SELECT 1", "RPUSH l v", "COPY l l DB 0"],
        &["SELECT 1", "RPUSH l v", "SWAPDB 0 1"],
        &["MULTI", "SET l x", "DEL l", "RPUSH l v", "EXEC"],
        &["SET l x", "DEL l", "RPUSH l v"],
    ];
    let served = Served::start();
    for way in ways {
        let (mut waiter, mut pusher) = (served.client(), served.client());
        waiter.send_line("BLPOP l 0");
        pusher.wait_for_blocked(1);
        for line in *way {
            pusher.line(line);
        }
        waiter.expect(&["[\"l\" \"v\"]"]);
        pusher.check(&[("FLUSHALL", "+OK")]);
    }
}

#[test]
fn every_way_in_which_a_sorted_set_comes_serves_those_who_wait() {
    let ways: &[&[&str]] = &[
        &["ZADD z 5 v"],
        &["ZINCRBY z 5 v"],
        &["ZADD m 5 v", "RENAME m z"],
        &["ZADD m 5 v", "COPY m z"],
        &["ZADD m 5 v", "ZUNIONSTORE z 1 m"],
        &["ZADD m 5 v", "ZINTERSTORE z 1 m"],
        &["ZADD m 5 v", "ZDIFFSTORE z 1 m"],
        &["ZADD m 5 v", "ZRANGESTORE z m 0 -1"],
        &["SELECT 1", "ZADD z 5 v", "MOVE z 0"],
        &["SELECT 1", "ZADD z 5 v", "SWAPDB 0 1"],
        &["MULTI", "RPUSH z x", "DEL z", "ZADD z 5 v", "EXEC"],
        &["RPUSH z x", "DEL z", "ZADD z 5 v"],
    ];
    let served = Served::start();
    for way in ways {
        for (wait, reply) in [
            ("BZPOPMIN z 0", "[\"z\" \"v\" \"5\"]"),
            ("BZPOPMAX none z 0", "[\"z\" \"v\" \"5\"]"),
            ("BZMPOP 0 2 none z MAX COUNT 3", "[\"z\" [[\"v\" \"5\"]]]"),
        ] {
            let (mut waiter, mut pusher) = (served.client(), served.client());
            waiter.send_line(wait);
            pusher.wait_for_blocked(1);
            for line in *way {
                pusher.line(line);
            }
            waiter.expect(&[reply]);
            pusher.check(&[("FLUSHALL", "+OK")]);
        }
    }
}

#[test]
fn those_who_wait_for_lists_and_for_sorted_sets_share_a_key() {
    let served = Served::start();
    let (mut list, mut sorted) = (served.client(), served.client());
    let (mut third, mut pusher) = (served.client(), served.client());
    list.send_line("BLPOP k 0");
    pusher.wait_for_blocked(1);
    sorted.send_line("BZPOPMIN k 0");
    pusher.wait_for_blocked(2);
    third.send_line("BZPOPMAX k 0");
    pusher.wait_for_blocked(3);
    // The first in the queue waits for a list, so those behind it take the members.
    pusher.check(&[("ZADD k 1 a 2 b 3 c", ":3"), ("ZRANGE k 0 -1", "[\"b\"]"), ("DEL k", ":1")]);
    sorted.expect(&["[\"k\" \"a\" \"1\"]"]);
    third.expect(&["[\"k\" \"c\" \"3\"]"]);
    pusher.check(&[("RPUSH k v", ":1"), ("EXISTS k", ":0")]);
    list.expect(&["[\"k\" \"v\"]"]);
    pusher.wait_for_blocked(0);
}

#[test]
fn moves_between_lists_serve_those_who_wait_behind_them() {
    let served = Served::start();
    let (mut first, mut second, mut pusher) = (served.client(), served.client(), served.client());
    first.send_line("BLMOVE a b LEFT LEFT 0");
    pusher.wait_for_blocked(1);
    second.send_line("BRPOP b 0");
    pusher.wait_for_blocked(2);
    pusher.check(&[("RPUSH a v", ":1"), ("EXISTS a b", ":0")]);
    first.expect(&["\"v\""]);
    second.expect(&["[\"b\" \"v\"]"]);
    // A target of another type refuses the first, and the element is for the next.
    pusher.check(&[("SET s 1", "+OK")]);
    first.send_line("BLMOVE a s LEFT LEFT 0");
    pusher.wait_for_blocked(1);
    second.send_line("BLPOP a 0");
    pusher.wait_for_blocked(2);
    pusher.check(&[("RPUSH a w", ":1")]);
    first.expect(&[WRONG_TYPE]);
    second.expect(&["[\"a\" \"w\"]"]);
}

#[test]
fn a_key_of_another_type_wakes_nobody() {
    let served = Served::start();
    let (mut waiter, mut pusher) = (served.client(), served.client());
    waiter.send_line("BLPOP l 0");
    pusher.wait_for_blocked(1);
    pusher.check(&[("SET l 1", "+OK"), ("DEL l", ":1"), ("SADD l x", ":1")]);
    pusher.wait_for_blocked(1);
    pusher.check(&[("DEL l", ":1"), ("RPUSH l v", ":1")]);
    waiter.expect(&["[\"l\" \"v\"]"]);
}

#[test]
fn within_a_transaction_nothing_waits() {
    let served = Served::start();
    let queued = "+QUEUED";
    served.check(&[
        ("MULTI", "+OK"),
        ("BLPOP l 0", queued),
        ("BLMOVE l m LEFT LEFT 0", queued),
        ("BLMPOP 0 1 l LEFT", queued),
        ("RPUSH l a", queued),
        ("BRPOP l 0", queued),
        ("EXEC", "[nil nil nil :1 [\"l\" \"a\"]]"),
        ("MULTI", "+OK"),
        ("BZPOPMIN z 0", queued),
        ("BZMPOP 0 1 z MAX", queued),
        ("ZADD z 1 a", queued),
        ("BZPOPMAX z 0", queued),
        ("EXEC", "[nil nil :1 [\"z\" \"a\" \"1\"]]"),
    ]);
}

#[test]
fn a_client_that_has_gone_takes_nothing() {
    let served = Served::start();
    let (mut waiter, mut killed, mut pusher) = (served.client(), served.client(), served.client());
    let id = killed.line("CLIENT ID").integer();
    waiter.send_line("BLPOP l 0");
    pusher.wait_for_blocked(1);
    killed.send_line("BLPOP l 0");
    pusher.wait_for_blocked(2);
    drop(waiter);
    pusher.wait_for_blocked(1);
    pusher.check(&[
        (&format!("CLIENT KILL ID {id}"), ":1"),
        ("RPUSH l a", ":1"),
        ("LRANGE l 0 -1", "[\"a\"]"),
    ]);
    assert!(killed.is_closed());
}

#[test]
fn a_wait_is_ended_by_others() {
    let served = Served::start();
    let (mut waiter, mut other) = (served.client(), served.client());
    let id = waiter.line("CLIENT ID").integer();
    let unblock = |how: &str| format!("CLIENT UNBLOCK {id}{how}");
    other.check(&[
        (&unblock(""), ":0"),
        ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
        (&unblock(" now"), "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
    ]);
    for (how, reply) in
        [("", "nil"), (" TIMEOUT", "nil"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        waiter.send_line("BLPOP l 0");
        other.wait_for_blocked(1);
        let line = other.line(&format!("CLIENT LIST ID {id}")).text();
        assert!(line.contains(" flags=b ") && line.contains(" cmd=blpop "), "{line}");
        other.check(&[(&unblock(how), ":1"), (&unblock(how), ":0")]);
        waiter.expect(&[reply]);
    }
    other.check(&[("RPUSH l a", ":1"), ("LLEN l", ":1")]);
}

#[test]
fn later_commands_of_a_client_that_waits_wait() {
    let served = Served::start();
    let (mut waiter, mut pusher) = (served.client(), served.client());
    waiter.send(
        &[encoded(&["SET", "k", "1"]), encoded(&["BLPOP", "l", "0"]), encoded(&["INCR", "k"])].concat(),
    );
    // Parts of requests arrive while it waits.
    waiter.expect(&["+OK"]);
    pusher.wait_for_blocked(1);
    let rest = [encoded(&["INCR", "k"]), encoded(&["BLPOP", "l", "0"]), encoded(&["GET", "k"])].concat();
    waiter.send(&rest[..10]);
    pusher.check(&[("GET k", "\"1\""), ("RPUSH l a", ":1")]);
    waiter.expect(&["[\"l\" \"a\"]", ":2"]);
    waiter.send(&rest[10..]);
    waiter.expect(&[":3"]);
    pusher.wait_for_blocked(1);
    pusher.check(&[("RPUSH l b", ":1")]);
    waiter.expect(&["[\"l\" \"b\"]", "\"3\""]);
}

#[test]
fn messages_come_to_a_client_that_waits() {
    let served = Served::start();
    let (mut waiter, mut other) = (served.client(), served.client());
    waiter.line("HELLO 3");
    waiter.check(&[("SUBSCRIBE a", "(\"subscribe\" \"a\" :1)")]);
    waiter.send_line("BLPOP l 0");
    other.wait_for_blocked(1);
    other.check(&[("PUBLISH a x", ":1")]);
    waiter.expect(&["(\"message\" \"a\" \"x\")"]);
    other.check(&[("RPUSH l v", ":1")]);
    waiter.expect(&["[\"l\" \"v\"]"]);
    // A wait whose reply is not sent ends as well.
    waiter.send(&[encoded(&["CLIENT", "REPLY", "SKIP"]), encoded(&["BLPOP", "l", "0"])].concat());
    other.wait_for_blocked(1);
    other.check(&[("RPUSH l v", ":1"), ("LLEN l", ":0")]);
    waiter.check(&[("PING", "+PONG")]);
}

#[test]
fn a_client_that_waits_and_takes_nothing_keeps_nobody_waiting() {
    let served = Served::start();
    let (mut slow, mut other, mut pusher) = (served.client(), served.client(), served.client());
    slow.line("HELLO 3");
    slow.check(&[("SUBSCRIBE a", "(\"subscribe\" \"a\" :1)")]);
    slow.send_line("BLPOP l 0");
    pusher.wait_for_blocked(1);
    // More than the sockets take.
    let message = "x".repeat(300_000);
    (0..80).for_each(|_| assert_eq!(pusher.call(&["PUBLISH", "a", &message]).integer(), 1));
    other.send_line("BLPOP l 0");
    pusher.wait_for_blocked(2);
    // One of them is for the other client, in whichever order.
    pusher.check(&[("RPUSH l x", ":1")]);
    pusher.line("RPUSH l y");
    let one = other.reply().expect("an element").to_string();
    let rest = if one == "[\"l\" \"x\"]" { "[\"l\" \"y\"]" } else { "[\"l\" \"x\"]" };
    let mut found = 0;
    for _ in 0..81 {
        found += usize::from(slow.reply().expect("a message or the element").to_string() == rest);
    }
    assert_eq!(found, 1);
    pusher.check(&[("LLEN l", ":0")]);
}

#[test]
fn a_server_that_stops_ends_those_who_wait() {
    let mut served = Served::start();
    let (mut waiter, mut other) = (served.client(), served.client());
    waiter.send_line("BLPOP l 0");
    other.wait_for_blocked(1);
    served.close();
    assert!(waiter.is_closed());
}
