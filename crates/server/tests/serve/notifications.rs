//! Keyspace notifications.

use crate::client::{Client, Served};

/// Subscribes a new client to the events of all databases.
fn listener(served: &Served) -> Client {
    let mut listener = served.client();
    listener.check(&[("PSUBSCRIBE __key*__:*", "[\"psubscribe\" \"__key*__:*\" :1]")]);
    listener
}

/// Reads the next messages: events by name in database 0, each with its key.
fn expect_events(listener: &mut Client, events: &[(&str, &str)]) {
    for (event, key) in events {
        let message = format!("[\"pmessage\" \"__key*__:*\" \"__keyevent@0__:{event}\" \"{key}\"]");
        listener.expect(&[&message]);
    }
}

#[test]
fn the_setting_has_one_form() {
    Served::start().check(&[
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"\"]"),
        ("CONFIG SET notify-keyspace-events EgK", "+OK"),
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"gKE\"]"),
        ("CONFIG SET notify-keyspace-events KEA", "+OK"),
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"AKE\"]"),
        (
            "CONFIG SET notify-keyspace-events KEq",
            "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event \
             class character. Use 'Ag$lshzxeKEtmdn'.",
        ),
        ("CONFIG GET notify-keyspace-events", "[\"notify-keyspace-events\" \"AKE\"]"),
    ]);
}

#[test]
fn events_come_by_key_and_by_name_of_their_database() {
    let served = Served::start();
    let (mut listener, mut client) = (listener(&served), served.client());
    client.check(&[
        ("SET silent x", "+OK"),
        ("CONFIG SET notify-keyspace-events K$", "+OK"),
        ("SET a x", "+OK"),
        ("DEL a", ":1"),
        ("LPUSH silent x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("CONFIG SET notify-keyspace-events KE$", "+OK"),
        ("SELECT 9", "+OK"),
        ("SET b x", "+OK"),
        ("CONFIG SET notify-keyspace-events $g", "+OK"),
        ("SET c x", "+OK"),
        ("CONFIG SET notify-keyspace-events Eg", "+OK"),
        ("DEL c", ":1"),
    ]);
    listener.expect(&[
        "[\"pmessage\" \"__key*__:*\" \"__keyspace@0__:a\" \"set\"]",
        "[\"pmessage\" \"__key*__:*\" \"__keyspace@9__:b\" \"set\"]",
        "[\"pmessage\" \"__key*__:*\" \"__keyevent@9__:set\" \"b\"]",
        "[\"pmessage\" \"__key*__:*\" \"__keyevent@9__:del\" \"c\"]",
    ]);
}

/// Sends commands that succeed and compares the events that they have.
fn check_events(script: &[(&str, &[(&str, &str)])]) {
    let served = Served::start();
    let (mut listener, mut client) = (listener(&served), served.client());
    client.check(&[("CONFIG SET notify-keyspace-events EA", "+OK")]);
    for (number, (line, events)) in script.iter().enumerate() {
        let reply = client.line(line).to_string();
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        expect_events(&mut listener, events);
        // Nothing else comes of the command before that of another.
        client.line(&format!("SETBIT mark {number} 1"));
        expect_events(&mut listener, &[("setbit", "mark")]);
    }
}

#[test]
fn strings_and_keys_have_events() {
    check_events(&[
        ("SET a 1", &[("set", "a")]),
        ("SET a 1 EX 100", &[("set", "a"), ("expire", "a")]),
        ("SET a 1 NX", &[]),
        ("SETEX a 100 1", &[("set", "a"), ("expire", "a")]),
        ("PERSIST a", &[("persist", "a")]),
        ("PERSIST a", &[]),
        ("GETEX a", &[]),
        ("GETEX a EX 100", &[("expire", "a")]),
        ("GETEX a PERSIST", &[("persist", "a")]),
        ("GETSET a 5", &[("set", "a")]),
        ("SETNX a 5", &[]),
        ("SETNX a2 5", &[("set", "a2")]),
        ("MSET a 1 b 2", &[("set", "a"), ("set", "b")]),
        ("INCR a", &[("incrby", "a")]),
        ("DECRBY a 7", &[("incrby", "a")]),
        ("INCRBYFLOAT a 0.5", &[("incrbyfloat", "a")]),
        ("APPEND a x", &[("append", "a")]),
        ("SETRANGE a 3 y", &[("setrange", "a")]),
        ("SETRANGE a 3 ", &[]),
        ("BITFIELD a SET u8 0 1", &[("setbit", "a")]),
        ("BITFIELD a GET u8 0", &[]),
        ("BITOP NOT c a", &[("set", "c")]),
        ("BITOP NOT c none", &[("del", "c")]),
        ("BITOP NOT c none", &[]),
        ("PFADD p x", &[("pfadd", "p")]),
        ("PFADD p x", &[]),
        ("EXPIRE a 100", &[("expire", "a")]),
        ("EXPIRE a -1", &[("del", "a")]),
        ("EXPIRE a 100", &[]),
        ("GETDEL a2", &[("del", "a2")]),
        ("RENAME b a", &[("rename_from", "b"), ("rename_to", "a")]),
        ("RENAMENX a b", &[("rename_from", "a"), ("rename_to", "b")]),
        ("COPY b c", &[("copy_to", "c")]),
        ("DEL b none c", &[("del", "b"), ("del", "c")]),
        ("UNLINK p", &[("del", "p")]),
    ]);
}

#[test]
fn lists_and_sets_have_events() {
    check_events(&[
        ("RPUSH l a b c d e", &[("rpush", "l")]),
        ("LPUSHX l x", &[("lpush", "l")]),
        ("LPUSHX none x", &[]),
        ("LPOP l", &[("lpop", "l")]),
        ("RPOP l 2", &[("rpop", "l")]),
        ("RPOP none", &[]),
        ("LSET l 0 z", &[("lset", "l")]),
        ("LINSERT l BEFORE b y", &[("linsert", "l")]),
        ("LINSERT l BEFORE none y", &[]),
        ("LREM l 0 y", &[("lrem", "l")]),
        ("LREM l 0 y", &[]),
        ("LTRIM l 0 -1", &[("ltrim", "l")]),
        ("LMOVE l m LEFT RIGHT", &[("rpush", "m"), ("lpop", "l")]),
        ("SORT l ALPHA STORE s", &[("sortstore", "s")]),
        ("SORT none STORE s", &[("del", "s")]),
        ("BRPOP l 0", &[("rpop", "l")]),
        ("LMPOP 1 l LEFT", &[("lpop", "l"), ("del", "l")]),
        ("LTRIM m 5 9", &[("ltrim", "m"), ("del", "m")]),
        ("SADD a 1 2 3", &[("sadd", "a")]),
        ("SADD a 1", &[]),
        ("SREM a 1 9", &[("srem", "a")]),
        ("SMOVE a b 2", &[("srem", "a"), ("sadd", "b")]),
        ("SUNIONSTORE c a b", &[("sunionstore", "c")]),
        ("SDIFFSTORE d c b", &[("sdiffstore", "d")]),
        ("SINTERSTORE c a b", &[("del", "c")]),
        ("SINTERSTORE c a b", &[]),
        ("SPOP a", &[("spop", "a"), ("del", "a")]),
        ("SREM b 2", &[("srem", "b"), ("del", "b")]),
    ]);
}

#[test]
fn hashes_and_sorted_sets_have_events() {
    check_events(&[
        ("HSET h a 1 b 2", &[("hset", "h")]),
        ("HSETNX h a 1", &[]),
        ("HSETNX h c 1", &[("hset", "h")]),
        ("HINCRBY h a 1", &[("hincrby", "h")]),
        ("HINCRBYFLOAT h a 1", &[("hincrbyfloat", "h")]),
        ("HDEL h a none", &[("hdel", "h")]),
        ("HDEL h b c", &[("hdel", "h"), ("del", "h")]),
        ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f", &[("zadd", "z")]),
        ("ZADD z 1 a", &[]),
        ("ZADD z INCR 1 a", &[("zincr", "z")]),
        ("ZINCRBY z 1 a", &[("zincr", "z")]),
        ("ZREM z a none", &[("zrem", "z")]),
        ("ZREMRANGEBYSCORE z 2 2", &[("zremrangebyscore", "z")]),
        ("ZREMRANGEBYRANK z 0 0", &[("zremrangebyrank", "z")]),
        ("ZREMRANGEBYLEX z [d [d", &[("zremrangebylex", "z")]),
        ("ZREMRANGEBYLEX z [d [d", &[]),
        ("ZUNIONSTORE y 1 z", &[("zunionstore", "y")]),
        ("ZINTERSTORE y 1 z", &[("zinterstore", "y")]),
        ("ZDIFFSTORE y 2 z z", &[("del", "y")]),
        ("ZRANGESTORE y z 0 -1", &[("zrangestore", "y")]),
        ("ZPOPMIN z", &[("zpopmin", "z")]),
        ("BZPOPMAX z 0", &[("zpopmax", "z"), ("del", "z")]),
        ("GEOADD g 1 1 a", &[("zadd", "g")]),
        ("GEOSEARCHSTORE f g FROMMEMBER a BYRADIUS 1 m", &[("geosearchstore", "f")]),
        ("GEORADIUS g 1 1 1 m STORE f", &[("georadiusstore", "f")]),
        ("GEORADIUS g 9 9 1 m STORE f", &[("del", "f")]),
    ]);
}

#[test]
fn streams_and_groups_have_events() {
    check_events(&[
        ("XADD s 1-0 a b", &[("xadd", "s")]),
        ("XADD none NOMKSTREAM * a b", &[]),
        ("XADD s 2-0 a b", &[("xadd", "s")]),
        ("XADD s MAXLEN 2 3-0 a b", &[("xadd", "s"), ("xtrim", "s")]),
        ("XADD s MAXLEN 9 4-0 a b", &[("xadd", "s")]),
        ("XTRIM s MAXLEN 2", &[("xtrim", "s")]),
        ("XTRIM s MAXLEN 2", &[]),
        ("XDEL s 3-0 9-9", &[("xdel", "s")]),
        ("XDEL s 3-0", &[]),
        ("XSETID s 10-0", &[("xsetid", "s")]),
        ("XGROUP CREATE s g 0", &[("xgroup-create", "s")]),
        ("XGROUP CREATE t g 0 MKSTREAM", &[("xgroup-create", "t")]),
        ("XGROUP SETID s g 0", &[("xgroup-setid", "s")]),
        ("XGROUP CREATECONSUMER s g c", &[("xgroup-createconsumer", "s")]),
        ("XGROUP CREATECONSUMER s g c", &[]),
        ("XREADGROUP GROUP g c STREAMS s >", &[]),
        ("XREADGROUP GROUP g d STREAMS s >", &[("xgroup-createconsumer", "s")]),
        ("XCLAIM s g e 0 4-0", &[("xgroup-createconsumer", "s")]),
        ("XAUTOCLAIM s g f 0 0", &[("xgroup-createconsumer", "s")]),
        ("XACK s g 4-0", &[]),
        ("XGROUP DELCONSUMER s g f", &[("xgroup-delconsumer", "s")]),
        ("XGROUP DELCONSUMER s g none", &[]),
        ("XGROUP DESTROY s none", &[]),
        ("XGROUP DESTROY s g", &[("xgroup-destroy", "s")]),
        ("DEL s", &[("del", "s")]),
    ]);
}

#[test]
fn an_expired_key_has_one_event() {
    let served = Served::start();
    let (mut listener, mut client) = (listener(&served), served.client());
    client.check(&[("CONFIG SET notify-keyspace-events Ex", "+OK")]);
    // The maintenance deletes some and writes the others, whichever comes first.
    for number in 0..20 {
        client.line(&format!("PSETEX k{number} 1 x"));
        if number % 2 == 0 {
            while client.line(&format!("EXISTS k{number}")).integer() > 0 {}
            client.line(&format!("SET k{number} y"));
        }
    }
    let mut seen: Vec<String> = (0..20).map(|_| listener.reply().expect("a message").to_string()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|message| message.contains("\"__keyevent@0__:expired\" \"k")), "{seen:?}");
    client.check(&[("CONFIG SET notify-keyspace-events E$", "+OK"), ("SET last x", "+OK")]);
    expect_events(&mut listener, &[("set", "last")]);
}

#[test]
fn new_keys_and_misses_are_told_if_asked_for() {
    let served = Served::start();
    let (mut listener, mut client) = (listener(&served), served.client());
    client.check(&[
        ("CONFIG SET notify-keyspace-events Emn", "+OK"),
        ("SET a x", "+OK"),
        ("SET a x", "+OK"),
        ("GET a", "\"x\""),
        ("GET none", "nil"),
        ("SADD s x", ":1"),
        ("MGET a none none2", "[\"x\" nil nil]"),
    ]);
    expect_events(
        &mut listener,
        &[("new", "a"), ("keymiss", "none"), ("new", "s"), ("keymiss", "none"), ("keymiss", "none2")],
    );
}

#[test]
fn events_of_a_transaction_come_in_order_and_only_if_it_commits() {
    let served = Served::start();
    let (mut listener, mut client) = (listener(&served), served.client());
    client.check(&[
        ("CONFIG SET notify-keyspace-events EA", "+OK"),
        ("WATCH a", "+OK"),
        ("MULTI", "+OK"),
        ("SET b x", "+QUEUED"),
    ]);
    served.check(&[("SET a x", "+OK")]);
    client.check(&[
        ("EXEC", "nil"),
        ("MULTI", "+OK"),
        ("RPUSH l x", "+QUEUED"),
        ("INCR l", "+QUEUED"),
        ("MOVE l 1", "+QUEUED"),
        ("SET c x", "+QUEUED"),
        ("EXEC", "[:1 -WRONGTYPE Operation against a key holding the wrong kind of value :1 +OK]"),
    ]);
    expect_events(&mut listener, &[("set", "a"), ("rpush", "l"), ("move_from", "l")]);
    listener.expect(&["[\"pmessage\" \"__key*__:*\" \"__keyevent@1__:move_to\" \"l\"]"]);
    expect_events(&mut listener, &[("set", "c")]);
}
