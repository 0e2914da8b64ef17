//! Estimates of numbers of elements: equal to Redis', and kept in strings that both read.

use crate::client::{Reply, Served};

const NONE: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";

#[test]
fn elements_are_added_counted_and_merged() {
    Served::start().check(&[
        ("PFADD a x y z", ":1"),
        ("PFADD a x", ":0"),
        ("PFADD a", ":0"),
        ("PFCOUNT a", ":3"),
        ("PFADD b", ":1"),
        ("PFADD b", ":0"),
        ("PFCOUNT b", ":0"),
        ("PFADD b z w", ":1"),
        ("PFCOUNT a b none", ":4"),
        ("PFMERGE to a b none", "+OK"),
        ("PFCOUNT to", ":4"),
        ("PFMERGE to", "+OK"),
        ("PFCOUNT none", ":0"),
        ("TYPE a", "+string"),
        ("EXPIREAT a 33177117420", ":1"),
        ("PFADD a more", ":1"),
        ("EXPIRETIME a", ":33177117420"),
    ]);
}

#[test]
fn estimates_are_those_of_redis() {
    let served = Served::start();
    let mut client = served.client();
    for (end, estimate) in [(100, 100), (1000, 1001), (10_000, 9987)] {
        let elements: Vec<String> = (0..end).map(|number: u32| number.to_string()).collect();
        let mut args = vec!["PFADD", "many"];
        args.extend(elements.iter().map(String::as_str));
        client.call(&args);
        assert_eq!(client.line("PFCOUNT many").integer(), estimate, "{end}");
    }
}

#[test]
fn a_string_of_redis_is_read() {
    let served = Served::start();
    let mut client = served.client();
    // PFADD of a, b and c, with the estimate that PFCOUNT has left.
    let sparse = b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0";
    let kept = [&sparse[..], b"\x7f\xff"].concat();
    client.call(&[&b"SET"[..], b"k", &kept]);
    client.check(&[("PFCOUNT k", ":3"), ("PFCOUNT k k", ":0"), ("PFADD k x", ":1"), ("PFCOUNT k", ":1")]);
}

#[test]
fn other_strings_are_refused_and_left() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("SET text x", "+OK"),
        ("PFADD text x", NONE),
        ("PFCOUNT text", NONE),
        ("PFADD a x", ":1"),
        ("PFMERGE a text", NONE),
        ("PFCOUNT a text", NONE),
        ("PFCOUNT a", ":1"),
        ("LPUSH l x", ":1"),
        ("PFADD l x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
    let corrupt = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f".as_slice();
    client.call(&[&b"SET"[..], b"corrupt", corrupt]);
    let wrong = "-INVALIDOBJ Corrupted HLL object detected";
    client.check(&[
        ("PFCOUNT corrupt", wrong),
        ("PFADD corrupt x", wrong),
        ("PFMERGE a corrupt", wrong),
        ("PFCOUNT a", ":1"),
    ]);
    assert_eq!(client.line("GET corrupt"), Reply::Bulk(corrupt.to_vec()));
}
