//! SORT: orders, patterns, limits and targets.

use crate::client::Served;

#[test]
fn elements_are_sorted_by_number_and_by_text() {
    Served::start().check(&[
        ("RPUSH l 10 9 -1 2.5 1e1", ":5"),
        ("SORT l", "[\"-1\" \"2.5\" \"9\" \"10\" \"1e1\"]"),
        ("SORT l DESC", "[\"1e1\" \"10\" \"9\" \"2.5\" \"-1\"]"),
        ("SORT l ALPHA", "[\"-1\" \"10\" \"1e1\" \"2.5\" \"9\"]"),
        ("SORT l LIMIT 1 2", "[\"2.5\" \"9\"]"),
        ("SORT l LIMIT 9 2", "[]"),
        ("SORT_RO l LIMIT -5 -1 desc asc", "[\"-1\" \"2.5\" \"9\" \"10\" \"1e1\"]"),
        ("SORT l BY nosort", "[\"10\" \"9\" \"-1\" \"2.5\" \"1e1\"]"),
        ("SORT l BY # DESC", "[\"1e1\" \"2.5\" \"-1\" \"9\" \"10\"]"),
        ("SADD s 3 1 2", ":3"),
        ("SORT s", "[\"1\" \"2\" \"3\"]"),
        ("SORT none", "[]"),
        ("SADD words b a", ":2"),
        ("SORT words", "-ERR One or more scores can't be converted into double"),
        ("SORT words ALPHA", "[\"a\" \"b\"]"),
    ]);
}

#[test]
fn other_keys_give_weights_and_replies() {
    Served::start().check(&[
        ("RPUSH l 1 2 3 4", ":4"),
        ("MSET w_1 30 w_2 10 w_3 20", "+OK"),
        ("HSET h_1 f a", ":1"),
        ("HSET h_2 f c", ":1"),
        ("HSET h_3 f b", ":1"),
        ("SORT l BY w_*", "[\"4\" \"2\" \"3\" \"1\"]"),
        ("SORT l BY h_*->f ALPHA", "[\"4\" \"1\" \"3\" \"2\"]"),
        ("SORT l BY w_* GET # GET h_*->f", "[\"4\" nil \"2\" \"c\" \"3\" \"b\" \"1\" \"a\"]"),
        ("SORT l GET w_* LIMIT 0 2", "[\"30\" \"10\"]"),
        ("SORT_RO l GET h_*", "[nil nil nil nil]"),
        ("SORT l GET nothing LIMIT 0 1", "[nil]"),
        ("SET w_1 x", "+OK"),
        ("SORT l BY w_*", "-ERR One or more scores can't be converted into double"),
    ]);
}

#[test]
fn a_target_gets_a_list_or_is_deleted() {
    Served::start().check(&[
        ("RPUSH l 2 1 3", ":3"),
        ("SET to x EX 100000", "+OK"),
        ("SORT l GET # GET none_* STORE to", ":6"),
        ("LRANGE to 0 -1", "[\"1\" \"\" \"2\" \"\" \"3\" \"\"]"),
        ("TTL to", ":-1"),
        ("SORT l STORE l", ":3"),
        ("LRANGE l 0 -1", "[\"1\" \"2\" \"3\"]"),
        ("SADD s b c a", ":3"),
        ("SORT s BY nosort STORE to", ":3"),
        ("LRANGE to 0 -1", "[\"a\" \"b\" \"c\"]"),
        ("SORT none STORE to", ":0"),
        ("EXISTS to", ":0"),
        ("COMMAND GETKEYS SORT l BY w_* STORE to", "[\"l\" \"to\"]"),
    ]);
}

#[test]
fn sorted_sets_are_sorted_as_sets_or_keep_their_order() {
    Served::start().check(&[
        ("ZADD z 3 1 1 30 2 2", ":3"),
        ("SORT z", "[\"1\" \"2\" \"30\"]"),
        ("SORT z DESC", "[\"30\" \"2\" \"1\"]"),
        ("SORT z ALPHA LIMIT 1 2", "[\"2\" \"30\"]"),
        ("SORT z BY nosort", "[\"30\" \"2\" \"1\"]"),
        ("SORT_RO z BY nosort DESC", "[\"1\" \"2\" \"30\"]"),
        ("SORT z BY nosort DESC LIMIT 1 1 GET #", "[\"2\"]"),
        ("SORT z BY nosort LIMIT 0 2", "[\"30\" \"2\"]"),
        ("MSET w_1 5 w_2 6 w_30 4", "+OK"),
        ("SORT z BY w_* GET # GET w_*", "[\"30\" \"4\" \"1\" \"5\" \"2\" \"6\"]"),
        ("SORT z BY nosort STORE to", ":3"),
        ("LRANGE to 0 -1", "[\"30\" \"2\" \"1\"]"),
        ("SORT z BY nosort DESC STORE z", ":3"),
        ("LRANGE z 0 -1", "[\"1\" \"2\" \"30\"]"),
        ("ZADD words 1 b 2 a", ":2"),
        ("SORT words", "-ERR One or more scores can't be converted into double"),
        ("SORT words ALPHA", "[\"a\" \"b\"]"),
    ]);
}

#[test]
fn other_requests_are_refused() {
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    Served::start().check(&[
        ("SET text x", "+OK"),
        ("HSET h f v", ":1"),
        ("SORT text", wrong_type),
        ("SORT h", wrong_type),
        ("RPUSH l 1", ":1"),
        ("SORT l LIMIT 1", "-ERR syntax error"),
        ("SORT l LIMIT x 1", "-ERR value is not an integer or out of range"),
        ("SORT l BY", "-ERR syntax error"),
        ("SORT l STORE", "-ERR syntax error"),
        ("SORT_RO l STORE to", "-ERR syntax error"),
        ("SORT l SIDEWAYS", "-ERR syntax error"),
    ]);
}

#[test]
fn a_large_set_is_sorted() {
    let served = Served::start();
    let mut client = served.client();
    let members: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
    let mut args = vec!["SADD", "s"];
    args.extend(members.iter().map(String::as_str));
    client.call(&args);
    let sorted = client.line("SORT s DESC").list();
    let expected: Vec<String> = (0..5000).rev().map(|number| format!("\"{number}\"")).collect();
    assert_eq!(sorted.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}
