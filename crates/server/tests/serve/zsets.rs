//! Sorted sets: members with scores, ranges, and what is computed of several.

use crate::client::{Client, Reply, Served};
use std::collections::BTreeSet;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const NO_FLOAT: &str = "-ERR value is not a valid float";

#[test]
fn members_are_added_scored_and_removed() {
    Served::start().check(&[
        ("ZADD z 1 a 2 b 1 c", ":3"),
        ("ZADD z 3 a 4 d", ":1"),
        ("ZADD z CH 3 a 5 b 6 e", ":2"),
        ("ZRANGE z 0 -1 WITHSCORES", "[\"c\" \"1\" \"a\" \"3\" \"d\" \"4\" \"b\" \"5\" \"e\" \"6\"]"),
        ("ZADD z NX 9 a 9 f", ":1"),
        ("ZADD z XX 9 a 9 g", ":0"),
        ("ZADD z GT CH 8 a 10 f", ":1"),
        ("ZADD z LT CH 8 a 10 f 1 g", ":2"),
        ("ZADD z INCR 2.5 a", "\"10.5\""),
        ("ZADD z NX INCR 1 a", "nil"),
        ("ZADD z GT INCR -1 a", "nil"),
        ("ZINCRBY z -0.5 a", "\"10\""),
        ("ZINCRBY z 7 new", "\"7\""),
        ("ZSCORE z a", "\"10\""),
        ("ZSCORE z x", "nil"),
        ("ZSCORE none a", "nil"),
        ("ZMSCORE z a x b", "[\"10\" nil \"5\"]"),
        ("ZMSCORE none a", "[nil]"),
        ("ZCARD z", ":8"),
        ("ZCARD none", ":0"),
        ("ZREM z a x a b", ":2"),
        ("ZREM none a", ":0"),
        ("TYPE z", "+zset"),
        ("OBJECT ENCODING z", "\"listpack\""),
        ("COPY z y", ":1"),
        ("RENAME y x", "+OK"),
        ("ZREM z c d e f g new", ":6"),
        ("EXISTS z", ":0"),
        ("ZCARD x", ":6"),
        ("MOVE x 1", ":1"),
        ("SCAN 0 TYPE zset", "[\"0\" []]"),
        ("SELECT 1", "+OK"),
        ("SCAN 0 TYPE zset", "[\"0\" [\"x\"]]"),
        ("ZRANGEBYSCORE x 6 7 WITHSCORES", "[\"e\" \"6\" \"new\" \"7\"]"),
        ("FLUSHDB", "+OK"),
        ("ZRANGE x 0 -1", "[]"),
    ]);
}

#[test]
fn scores_are_printed_as_redis_prints_them() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("ZADD z inf a -inf b 3.0 c 0.1 d 1e20 e -0 f 1.5e-9 g", ":7"),
        (
            "ZRANGE z 0 -1 WITHSCORES",
            "[\"b\" \"-inf\" \"f\" \"0\" \"g\" \"1.5e-9\" \"d\" \"0.1\" \"c\" \"3\" \"e\" \"1e+20\" \"a\" \"inf\"]",
        ),
        ("ZINCRBY z -inf a", "-ERR resulting score is not a number (NaN)"),
        ("ZADD z INCR +inf b", "-ERR resulting score is not a number (NaN)"),
        ("ZSCORE z a", "\"inf\""),
    ]);
    client.line("HELLO 3");
    client.check(&[
        ("ZSCORE z a", ",inf"),
        ("ZSCORE z x", "nil"),
        ("ZINCRBY z 0.2 d", ",0.30000000000000004"),
        ("ZRANGE z 1 2 WITHSCORES", "[[\"f\" ,0] [\"g\" ,1.5e-9]]"),
        ("ZRANGE z 1 2", "[\"f\" \"g\"]"),
        ("ZMSCORE z b x", "[,-inf nil]"),
        ("ZPOPMIN z", "[\"b\" ,-inf]"),
        ("ZPOPMAX z 1", "[[\"a\" ,inf]]"),
        ("ZMPOP 1 z MIN COUNT 2", "[\"z\" [[\"f\" ,0] [\"g\" ,1.5e-9]]]"),
        ("ZRANK z c WITHSCORE", "[:1 ,3]"),
    ]);
    assert_eq!(client.line("ZRANDMEMBER z -2 WITHSCORES").list().len(), 2);
    client.check(&[
        ("ZUNION 1 z WITHSCORES", "[[\"d\" ,0.30000000000000004] [\"c\" ,3] [\"e\" ,1e+20]]"),
        ("ZSCAN z 0 MATCH c", "[\"0\" [\"c\" \"3\"]]"),
    ]);
}

#[test]
fn ranges_by_score_member_and_rank() {
    Served::start().check(&[
        ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5"),
        ("ZRANGE z 1 2", "[\"b\" \"c\"]"),
        ("ZRANGE z -2 -1 REV WITHSCORES", "[\"b\" \"2\" \"a\" \"1\"]"),
        ("ZREVRANGE z 0 1", "[\"e\" \"d\"]"),
        ("ZRANGE z 5 9", "[]"),
        ("ZRANGE z (2 +inf BYSCORE", "[\"c\" \"d\" \"e\"]"),
        ("ZRANGE z (4 2 BYSCORE REV", "[\"c\" \"b\"]"),
        ("ZRANGE z -inf inf BYSCORE LIMIT 1 2", "[\"b\" \"c\"]"),
        ("ZRANGE z -inf inf BYSCORE LIMIT 3 -1", "[\"d\" \"e\"]"),
        ("ZRANGE z -inf inf BYSCORE LIMIT -1 5", "[]"),
        ("ZRANGEBYSCORE z 2 (4 WITHSCORES LIMIT 1 1", "[\"c\" \"3\"]"),
        ("ZREVRANGEBYSCORE z 4 2", "[\"d\" \"c\" \"b\"]"),
        ("ZRANGE none 0 -1", "[]"),
        ("ZCOUNT z (1 (5", ":3"),
        ("ZCOUNT z 5 1", ":0"),
        ("ZCOUNT none 1 2", ":0"),
        ("ZRANK z c", ":2"),
        ("ZREVRANK z a", ":4"),
        ("ZRANK z c WITHSCORE", "[:2 \"3\"]"),
        ("ZRANK z x", "nil"),
        ("ZRANK z x WITHSCORE", "nil"),
        ("ZADD l 0 a 0 aa 0 b 0 c 0 ca", ":5"),
        ("ZRANGEBYLEX l - +", "[\"a\" \"aa\" \"b\" \"c\" \"ca\"]"),
        ("ZRANGEBYLEX l [aa (c", "[\"aa\" \"b\"]"),
        ("ZREVRANGEBYLEX l + (b LIMIT 1 1", "[\"c\"]"),
        ("ZRANGE l (a [c BYLEX", "[\"aa\" \"b\" \"c\"]"),
        ("ZRANGE l [c (a BYLEX REV", "[\"c\" \"b\" \"aa\"]"),
        ("ZRANGEBYLEX l + -", "[]"),
        ("ZLEXCOUNT l - (b", ":2"),
        ("ZRANGESTORE to z 1 2", ":2"),
        ("ZRANGESTORE to z 5 4 BYSCORE REV", ":2"),
        ("ZRANGE to 0 -1 WITHSCORES", "[\"d\" \"4\" \"e\" \"5\"]"),
        ("ZRANGESTORE to none 0 -1", ":0"),
        ("EXISTS to", ":0"),
        ("ZRANGESTORE z z 0 3", ":4"),
        ("ZREMRANGEBYRANK z 0 0", ":1"),
        ("ZREMRANGEBYSCORE z (2 3", ":1"),
        ("ZRANGE z 0 -1", "[\"b\" \"d\"]"),
        ("ZREMRANGEBYLEX l [a (b", ":2"),
        ("ZREMRANGEBYLEX l - +", ":3"),
        ("ZREMRANGEBYRANK z 0 -1", ":2"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn members_are_popped_from_either_end() {
    Served::start().check(&[
        ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5"),
        ("ZPOPMIN z", "[\"a\" \"1\"]"),
        ("ZPOPMAX z 2", "[\"e\" \"5\" \"d\" \"4\"]"),
        ("ZPOPMIN z 0", "[]"),
        ("ZPOPMIN none", "[]"),
        ("ZMPOP 2 none z MAX", "[\"z\" [[\"c\" \"3\"]]]"),
        ("ZMPOP 2 none z MIN COUNT 10", "[\"z\" [[\"b\" \"2\"]]]"),
        ("ZMPOP 2 none z MIN", "nil"),
        ("EXISTS z", ":0"),
        ("ZPOPMIN z -1", "-ERR value is out of range, must be positive"),
        ("ZPOPMIN z x", "-ERR value is out of range, must be positive"),
        ("ZPOPMIN z 1 2", SYNTAX),
        ("ZMPOP 0 z MIN", "-ERR numkeys should be greater than 0"),
        ("ZMPOP 2 z MIN", SYNTAX),
        ("ZMPOP 1 z OTHER", SYNTAX),
        ("ZMPOP 1 z MIN COUNT 0", "-ERR count should be greater than 0"),
        ("ZMPOP 1 z MIN COUNT 1 COUNT 1", SYNTAX),
        ("SET s 1", "+OK"),
        ("ZMPOP 2 none s MIN", WRONG_TYPE),
    ]);
}

#[test]
fn sorted_sets_of_several() {
    Served::start().check(&[
        ("ZADD a 1 x 2 y 3 z", ":3"),
        ("ZADD b 10 y 20 z 30 w", ":3"),
        ("SADD s x y", ":2"),
        ("ZUNION 2 a b", "[\"x\" \"y\" \"z\" \"w\"]"),
        ("ZUNION 3 a b s WITHSCORES", "[\"x\" \"2\" \"y\" \"13\" \"z\" \"23\" \"w\" \"30\"]"),
        ("ZUNION 2 a b WEIGHTS 2 -1 WITHSCORES", "[\"w\" \"-30\" \"z\" \"-14\" \"y\" \"-6\" \"x\" \"2\"]"),
        ("ZINTER 2 a b WITHSCORES AGGREGATE MAX", "[\"y\" \"10\" \"z\" \"20\"]"),
        ("ZINTER 2 a b AGGREGATE min WEIGHTS 1 0 WITHSCORES", "[\"y\" \"0\" \"z\" \"0\"]"),
        ("ZINTER 2 a none", "[]"),
        ("ZDIFF 2 a b WITHSCORES", "[\"x\" \"1\"]"),
        ("ZDIFF 3 a none s", "[\"z\"]"),
        ("ZINTERCARD 2 a b", ":2"),
        ("ZINTERCARD 2 a s LIMIT 1", ":1"),
        ("ZINTERCARD 2 a s LIMIT 0", ":2"),
        ("SET to text", "+OK"),
        ("ZUNIONSTORE to 2 a b WEIGHTS 1 10", ":4"),
        ("ZRANGE to 0 -1 WITHSCORES", "[\"x\" \"1\" \"y\" \"102\" \"z\" \"203\" \"w\" \"300\"]"),
        ("ZINTERSTORE a 2 a s", ":2"),
        ("ZDIFFSTORE to 2 a s", ":0"),
        ("EXISTS to", ":0"),
        ("ZADD i inf m", ":1"),
        ("ZADD j -inf m", ":1"),
        ("ZUNION 2 i j WITHSCORES", "[\"m\" \"0\"]"),
        ("ZUNION 1 i WEIGHTS 0 WITHSCORES", "[\"m\" \"0\"]"),
        ("SET str 1", "+OK"),
        ("ZUNION 2 a str", WRONG_TYPE),
        ("ZUNIONSTORE to 0 a", "-ERR at least 1 input key is needed for 'zunionstore' command"),
        ("ZUNION x a", "-ERR value is not an integer or out of range"),
        ("ZUNION 3 a b", SYNTAX),
        ("ZUNION 1 a WEIGHTS", SYNTAX),
        ("ZUNION 1 a WEIGHTS x", "-ERR weight value is not a float"),
        ("ZUNION 1 a AGGREGATE other", SYNTAX),
        ("ZUNIONSTORE to 1 a WITHSCORES", SYNTAX),
        ("ZDIFF 1 a WEIGHTS 1", SYNTAX),
        ("ZINTERCARD 1 a WEIGHTS 1", SYNTAX),
        ("ZINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative"),
    ]);
}

#[test]
fn refused_commands_of_sorted_sets_write_nothing() {
    Served::start().check(&[
        ("ZADD z 1 a x b", NO_FLOAT),
        ("ZADD z nan a", NO_FLOAT),
        ("ZADD z 1e999 a", NO_FLOAT),
        ("ZADD z 1 a 2", SYNTAX),
        ("ZADD z NX CH", SYNTAX),
        ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
        ("ZADD z GT LT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
        ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
        ("ZINCRBY z x a", NO_FLOAT),
        ("EXISTS z", ":0"),
        ("ZADD z XX 1 a", ":0"),
        ("EXISTS z", ":0"),
        ("SADD s a", ":1"),
        ("ZADD s 1 a", WRONG_TYPE),
        ("ZSCORE s a", WRONG_TYPE),
        ("ZRANGE s 0 -1", WRONG_TYPE),
        ("ZPOPMIN s 0", WRONG_TYPE),
        ("ZADD z 1 a", ":1"),
        ("SADD z a", WRONG_TYPE),
        ("HSET z a b", WRONG_TYPE),
        ("ZRANGE z a b", "-ERR value is not an integer or out of range"),
        ("ZRANGE z a b BYSCORE", "-ERR min or max is not a float"),
        ("ZRANGE z a b BYLEX", "-ERR min or max not valid string range item"),
        ("ZRANGE z 0 1 BYSCORE BYLEX", SYNTAX),
        (
            "ZRANGE z - + BYLEX WITHSCORES",
            "-ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        (
            "ZRANGE z 0 1 LIMIT 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        ("ZRANGEBYSCORE z 0 1 REV", SYNTAX),
        ("ZRANGEBYSCORE z 0 1 LIMIT 0", SYNTAX),
        ("ZRANGESTORE to z 0 1 WITHSCORES", SYNTAX),
        ("ZCOUNT z 0 x", "-ERR min or max is not a float"),
        ("ZLEXCOUNT z a [b", "-ERR min or max not valid string range item"),
        ("ZRANK z a OTHER", SYNTAX),
        ("ZRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
        ("ZRANDMEMBER z 1 OTHER", SYNTAX),
        ("ZREMRANGEBYRANK z 0 x", "-ERR value is not an integer or out of range"),
        ("COMMAND GETKEYS ZUNIONSTORE to 2 a b", "[\"to\" \"a\" \"b\"]"),
    ]);
}

fn texts(reply: Reply) -> Vec<String> {
    reply.list().into_iter().map(Reply::text).collect()
}

#[test]
fn a_large_sorted_set_is_scanned_sampled_and_dropped() {
    let served = Served::start();
    let mut client = served.client();
    let mut words = vec!["ZADD".to_owned(), "z".to_owned()];
    words.extend((0..1000).flat_map(|it| [it.to_string(), format!("m{it:03}")]));
    assert_eq!(client.call(&words).integer(), 1000);
    client.check(&[
        ("OBJECT ENCODING z", "\"skiplist\""),
        ("ZRANK z m777", ":777"),
        ("ZREVRANK z m777", ":222"),
        ("ZCOUNT z 100 (900", ":800"),
        ("ZRANGE z 990 991", "[\"m990\" \"m991\"]"),
        ("ZADD long 1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", ":1"),
        ("OBJECT ENCODING long", "\"skiplist\""),
    ]);
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
    loop {
        let mut reply = client.line(&format!("ZSCAN z {cursor} COUNT 30")).list();
        for pair in texts(reply.pop().expect("two parts")).chunks(2) {
            assert_eq!(pair[0], format!("m{:03}", pair[1].parse::<u32>().expect("a score")));
            seen.insert(pair[0].clone());
        }
        cursor = reply.pop().expect("two parts").text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    let chosen: BTreeSet<String> = texts(client.line("ZRANDMEMBER z 50")).into_iter().collect();
    assert!(chosen.len() == 50 && chosen.is_subset(&seen));
    assert_eq!(texts(client.line("ZRANDMEMBER z -40 WITHSCORES")).len(), 80);
    drop_all(&mut client);
}

fn drop_all(client: &mut Client) {
    client.check(&[
        ("ZREMRANGEBYSCORE z -inf inf", ":1000"),
        ("EXISTS z", ":0"),
        ("ZRANDMEMBER z", "nil"),
        ("ZRANDMEMBER z 5", "[]"),
        ("ZADD z 1 again", ":1"),
        ("ZRANGE z 0 -1", "[\"again\"]"),
    ]);
}

#[test]
fn a_transaction_sees_its_own_scores() {
    Served::start().check(&[
        ("ZADD z 1 a 2 b", ":2"),
        ("MULTI", "+OK"),
        ("ZADD z 3 a 1 c", "+QUEUED"),
        ("ZRANGE z 0 -1 WITHSCORES", "+QUEUED"),
        ("ZREVRANK z c", "+QUEUED"),
        ("ZCOUNT z 2 3", "+QUEUED"),
        ("ZPOPMIN z", "+QUEUED"),
        ("ZREVRANGE z 0 0", "+QUEUED"),
        ("DEL z", "+QUEUED"),
        ("ZADD z 5 d", "+QUEUED"),
        ("ZRANGE z 0 -1", "+QUEUED"),
        ("EXEC", "[:1 [\"c\" \"1\" \"b\" \"2\" \"a\" \"3\"] :2 :2 [\"c\" \"1\"] [\"a\"] :1 :1 [\"d\"]]"),
    ]);
}
