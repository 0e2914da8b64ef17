//! Strings: values, options of SET, counters, parts.

use crate::client::Served;

const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";

#[test]
fn values_and_the_options_of_set() {
    Served::start().check(&[
        ("GET k", "nil"),
        ("SET k v", "+OK"),
        ("get k", "\"v\""),
        ("SET k w NX", "nil"),
        ("SET k w XX GET", "\"v\""),
        ("SET n 1 XX", "nil"),
        ("SET n 1 NX GET", "nil"),
        ("SETNX n 2", ":0"),
        ("GETSET n 3", "\"1\""),
        ("GETDEL n", "\"3\""),
        ("GETDEL n", "nil"),
        ("SET k x EXAT 33177117420", "+OK"),
        ("EXPIRETIME k", ":33177117420"),
        ("SET k y KEEPTTL", "+OK"),
        ("EXPIRETIME k", ":33177117420"),
        ("SET k y", "+OK"),
        ("TTL k", ":-1"),
        ("SETEX k 100000 z", "+OK"),
        ("PSETEX k 100000000 z", "+OK"),
        ("GETEX k", "\"z\""),
        ("GETEX k PERSIST", "\"z\""),
        ("TTL k", ":-1"),
        ("GETEX k EXAT 33177117420", "\"z\""),
        ("EXPIRETIME k", ":33177117420"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX x", NOT_AN_INTEGER),
        ("SETEX k -1 v", "-ERR invalid expire time in 'setex' command"),
        ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX 1 PX 1", "-ERR syntax error"),
        ("SET k v NX XX", "-ERR syntax error"),
        ("SET k v KEEPTTL EX 1", "-ERR syntax error"),
        ("SET k v EX", "-ERR syntax error"),
        ("SET k", "-ERR wrong number of arguments for 'set' command"),
        ("SET k v PXAT 1", "+OK"),
        ("EXISTS k", ":0"),
    ]);
}

#[test]
fn many_at_once() {
    Served::start().check(&[
        ("MSET a 1 b 2 c 3", "+OK"),
        ("MGET a x b c", "[\"1\" nil \"2\" \"3\"]"),
        ("MSETNX d 4 a 5", ":0"),
        ("MGET a d", "[\"1\" nil]"),
        ("MSETNX d 4 e 5", ":1"),
        ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("MSETNX f 1 g", "-ERR wrong number of arguments for 'msetnx' command"),
        ("MSET a 1 a 2", "+OK"),
        ("GET a", "\"2\""),
        ("DBSIZE", ":5"),
    ]);
}

#[test]
fn counters_count_exactly_or_say_why_not() {
    Served::start().check(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n 41", ":0"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("GET n", "\"9223372036854775807\""),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("INCRBY n x", NOT_AN_INTEGER),
        ("SET s 01", "+OK"),
        ("INCR s", NOT_AN_INTEGER),
        ("SET f 10.50", "+OK"),
        ("INCRBYFLOAT f 0.1", "\"10.6\""),
        ("INCRBYFLOAT f -5", "\"5.6\""),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
        ("SET t 1 EXAT 33177117420", "+OK"),
        ("INCR t", ":2"),
        ("EXPIRETIME t", ":33177117420"),
    ]);
}

#[test]
fn parts_of_strings() {
    Served::start().check(&[
        ("APPEND s Hello", ":5"),
        ("APPEND s World", ":10"),
        ("STRLEN s", ":10"),
        ("STRLEN none", ":0"),
        ("GETRANGE s 0 4", "\"Hello\""),
        ("GETRANGE s -5 -1", "\"World\""),
        ("SUBSTR s 0 0", "\"H\""),
        ("GETRANGE none 0 -1", "\"\""),
        ("SETRANGE s 5 _", ":10"),
        ("GET s", "\"Hello_orld\""),
        ("SETRANGE new 3 x", ":4"),
        ("GET new", "\"\\x00\\x00\\x00x\""),
        ("SETRANGE s -1 x", "-ERR offset is out of range"),
        ("SETRANGE s 536870912 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("SETRANGE s 9223372036854775807 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
    ]);
}

#[test]
fn the_longest_common_subsequence_is_found() {
    let both = "-ERR If you want both the length and indexes, please just use IDX.";
    Served::start().check(&[
        ("MSET a ohmytext b mynewtext", "+OK"),
        ("LCS a b", "\"mytext\""),
        ("LCS a b LEN", ":6"),
        ("LCS a b IDX", "[\"matches\" [[[:4 :7] [:5 :8]] [[:2 :3] [:0 :1]]] \"len\" :6]"),
        ("LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN", "[\"matches\" [[[:4 :7] [:5 :8] :4]] \"len\" :6]"),
        ("LCS a none", "\"\""),
        ("LCS none a LEN", ":0"),
        ("LCS a none IDX", "[\"matches\" [] \"len\" :0]"),
        ("LCS a b LEN IDX", both),
        ("LCS a b MINMATCHLEN", "-ERR syntax error"),
        ("LCS a b MINMATCHLEN x", NOT_AN_INTEGER),
        ("LPUSH l x", ":1"),
        ("LCS a l", "-ERR The specified keys must contain string values"),
        ("SETRANGE large 20000 x", ":20001"),
        (
            "LCS large large LEN",
            "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ),
    ]);
}

#[test]
fn keys_and_values_are_any_bytes() {
    let served = Served::start();
    let mut client = served.client();
    let all: Vec<u8> = (0..=255).collect();
    let large = vec![7; 3 << 20];
    assert_eq!(client.call(&[b"SET".as_slice(), &all, &large]).to_string(), "+OK");
    assert_eq!(client.call(&[b"GET".as_slice(), &all]), crate::client::Reply::Bulk(large));
    assert_eq!(client.call(&[b"SET".as_slice(), b"", b""]).to_string(), "+OK");
    assert_eq!(client.call(&[b"GET".as_slice(), b""]).to_string(), "\"\"");
}
