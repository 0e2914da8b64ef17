//! Records and queries, encoded and decoded; other bytes are rejected.

use super::*;
use crate::ids::ColumnFamilyId;

const V1: Version = Version(1);

fn family(id: u32) -> ColumnFamilyId {
    ColumnFamilyId(id)
}

fn payload(query: &Query<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    query.put_payload(&mut out);
    out
}

fn queries() -> Vec<Query<'static>> {
    vec![
        Query::Write(b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\x01k\x01v"),
        Query::Get { family: family(7), key: b"key" },
        Query::Seek { family: family(0), key: b"", lower: b"", upper: b"" },
        Query::Seek { family: family(1), key: b"k", lower: b"a", upper: b"z" },
        Query::SeekForPrev { family: family(2), key: b"k", lower: b"", upper: b"z" },
        Query::MultiGet(vec![(family(0), b"a"), (family(9), b""), (family(0), b"a")]),
    ]
}

#[test]
fn what_is_put_is_decoded() {
    for query in queries() {
        let bytes = payload(&query);
        assert_eq!(Query::decode(VERSION, query.kind(), &bytes), Ok(Some(query)));
    }
}

#[test]
fn the_bytes_of_a_get_and_of_bounds_are_those_of_rocksdb() {
    let get = payload(&Query::Get { family: family(5), key: b"ab" });
    assert_eq!(get, b"\x0c\0\0\0\0\0\0\0\x05\0\0\0\x02ab");
    let seek = payload(&Query::Seek { family: family(0), key: b"k", lower: b"", upper: b"z" });
    assert_eq!(seek, b"\xb0\0\0\0\0\0\0\0\0\0\0\0\x01k\x01z");
    let many = payload(&Query::MultiGet(vec![(family(1), b"a"), (family(2), b"b")]));
    assert_eq!(many, b"\0\x07\0\0\0\0\0\0\x02\0\0\0\x08\x01\0\0\0\x02\0\0\0\x04\x01a\x01b");
}

#[test]
fn the_header_names_its_versions() {
    let mut out = Vec::new();
    put_header(&mut out, 77, (11, 8));
    let (prefix, text) = split(&out).unwrap();
    assert_eq!((prefix.micros, prefix.kind), (77, BEGIN));
    let expected =
        "feedcafedeadbeef\tTrace Version: 0.2\tRocksDB Version: 11.8\tFormat: Timestamp OpType Payload\n";
    assert_eq!(text, expected.as_bytes());
    assert_eq!(version(prefix, text), Ok(VERSION));
}

#[test]
fn other_headers_are_refused() {
    let begin = Prefix { micros: 0, kind: BEGIN, payload_bytes: 0 };
    for (text, why) in [
        ("feedcafedeadbeee\tTrace Version: 0.2\t", "magic"),
        ("", "magic"),
        ("feedcafedeadbeef", "without a version"),
        ("feedcafedeadbeef\tVersion: 0.2\t", "without a version"),
        ("feedcafedeadbeef\tTrace Version: 2\t", "without a version"),
        ("feedcafedeadbeef\tTrace Version: 0.x\t", "no number"),
        ("feedcafedeadbeef\tTrace Version: 0.99999\t", "no number"),
    ] {
        let refused = version(begin, text.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(why), "{text:?}: {refused}");
    }
    assert!(version(begin, b"\xff\xfe").unwrap_err().to_string().contains("no text"));
    let end = Prefix { kind: END, ..begin };
    assert!(version(end, b"feedcafedeadbeef\tTrace Version: 0.2\t").is_err());
    assert_eq!(version(begin, b"feedcafedeadbeef\tTrace Version: 0.1\t"), Ok(V1));
}

#[test]
fn a_record_is_as_long_as_it_says() {
    let mut out = b"before".to_vec();
    assert!(put_record(&mut out, u64::MAX, 4, |payload| payload.extend_from_slice(b"abc")));
    let record = &out[6..];
    assert_eq!(split(record).unwrap(), (Prefix { micros: u64::MAX, kind: 4, payload_bytes: 3 }, &b"abc"[..]));
    for len in 0..record.len() {
        assert!(split(&record[..len]).is_err(), "{len} bytes");
    }
    out.push(0);
    assert!(split(&out[6..]).is_err());
}

#[test]
fn traces_of_version_0_1_have_no_maps() {
    let get = Query::Get { family: family(5), key: b"ab" };
    let old = b"\x05\0\0\0\x02ab";
    assert_eq!(Query::decode(V1, get.kind(), old), Ok(Some(get)));
    assert_eq!(Query::decode(V1, 3, b"batch"), Ok(Some(Query::Write(b"batch"))));
    let seek = Query::SeekForPrev { family: family(5), key: b"ab", lower: b"", upper: b"" };
    assert_eq!(Query::decode(V1, 6, old), Ok(Some(seek)));
    assert!(Query::decode(V1, 13, &payload(&queries()[5])).is_err());
}

#[test]
fn other_kinds_say_no_query() {
    for kind in [0, BEGIN, END, 7, 8, 9, 10, 11, 12, 14, 255] {
        assert_eq!(Query::decode(VERSION, kind, b"whatever"), Ok(None), "kind {kind}");
    }
}

#[test]
fn damaged_payloads_are_refused() {
    for query in queries() {
        let bytes = payload(&query);
        for len in 0..bytes.len() {
            assert!(Query::decode(VERSION, query.kind(), &bytes[..len]).is_err(), "{query:?}, {len} bytes");
        }
        let longer = [&bytes[..], b"\0"].concat();
        assert!(Query::decode(VERSION, query.kind(), &longer).is_err(), "{query:?}, a byte more");
        let mut unknown = bytes.clone();
        unknown[7] = 0x80;
        assert!(Query::decode(VERSION, query.kind(), &unknown).is_err(), "{query:?}, an unknown field");
        // A flipped bit never makes decoding panic or read beyond the payload.
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let _ = Query::decode(VERSION, query.kind(), &turned);
            let _ = Query::decode(V1, query.kind(), &turned);
        }
    }
    let none = b"\0\x07\0\0\0\0\0\0\0\0\0\0\0\0";
    assert!(Query::decode(VERSION, 13, none).is_err(), "a multi get of no keys");
    let many = b"\0\x07\0\0\0\0\0\0\xff\xff\xff\xff\x04\0\0\0\0\x01\0";
    assert!(Query::decode(VERSION, 13, many).is_err(), "a multi get of more keys than bytes");
}

fn accesses() -> Vec<FileAccess<'static>> {
    let plain = FileAccess {
        operation: b"Sync",
        nanos: 5,
        status: b"OK",
        file_name: b"000012.log",
        size: None,
        length: None,
        offset: None,
    };
    vec![
        FileAccess { operation: b"Read", length: Some(4096), offset: Some(8), ..plain.clone() },
        FileAccess { operation: b"Truncate", size: Some(u64::MAX), ..plain.clone() },
        FileAccess { status: b"IO error: no space", ..plain },
    ]
}

#[test]
fn accesses_to_files_are_decoded_and_damaged_ones_refused() {
    for access in accesses() {
        let mut bytes = Vec::new();
        access.put_payload(&mut bytes);
        assert_eq!(FileAccess::decode(&bytes), Ok(access.clone()));
        for len in 0..bytes.len() {
            assert!(FileAccess::decode(&bytes[..len]).is_err(), "{access:?}, {len} bytes");
        }
        let requested = [&bytes[..bytes.len() - 8], b"\x01\0\0\0\0\0\0\0\x03req"].concat();
        assert_eq!(FileAccess::decode(&requested), Ok(access.clone()), "with the id of a request");
        for at in [7, bytes.len() - 1] {
            let mut unknown = bytes.clone();
            unknown[at] = 0x80;
            assert!(FileAccess::decode(&unknown).is_err(), "{access:?}, an unknown bit");
        }
        assert!(FileAccess::decode(&[&bytes[..], b"\0"].concat()).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let _ = FileAccess::decode(&turned);
        }
    }
    let mut read = Vec::new();
    accesses()[0].put_payload(&mut read);
    let expected = b"\x06\0\0\0\0\0\0\0\x04Read\x05\0\0\0\0\0\0\0\x02OK\x0a000012.log\
        \0\x10\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(read, expected);
}

#[test]
fn the_header_of_an_io_trace_is_one() {
    let mut out = Vec::new();
    put_io_header(&mut out, 7, (11, 8));
    let (prefix, payload) = split(&out).unwrap();
    assert_eq!((prefix.micros, io_header(prefix, payload)), (7, Ok((11, 8))));
    for len in 0..payload.len() {
        assert!(io_header(prefix, &payload[..len]).is_err(), "{len} bytes");
    }
    assert!(io_header(prefix, &[payload, b"\0"].concat()).is_err());
    assert!(io_header(Prefix { kind: END, ..prefix }, payload).is_err());
    let mut other = payload.to_vec();
    other[1] ^= 1;
    assert!(io_header(prefix, &other).is_err());
    // A header of an I/O trace is no header of a query trace.
    assert!(version(prefix, payload).is_err());
}
