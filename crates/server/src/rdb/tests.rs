//! Payloads of Redis, round trips, and bytes that are no payload.

use super::*;
use proptest::prelude::*;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks_exact(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

fn sum_of(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.sum()
}

fn elements(body: &[u8]) -> Result<(Type, Vec<Vec<u8>>)> {
    let mut reader = Reader::new(body)?;
    let mut found = Vec::new();
    while let Some(element) = reader.next()? {
        found.push(element.into_owned());
    }
    Ok((reader.of(), found))
}

fn whole(payload: &[u8]) -> Result<(Type, Vec<Vec<u8>>)> {
    let (body, summed, sum) = split_footer(payload)?;
    if sum_of(summed) != sum {
        return Err(BadPayload);
    }
    elements(body)
}

fn written(of: Type, parts: &[Vec<u8>]) -> Vec<u8> {
    let pairs = if of == Type::Hash { 2 } else { 1 };
    let mut writer = Writer::new(of, parts.len() as u64 / pairs);
    parts.iter().for_each(|part| writer.string(part));
    let sum = sum_of(writer.end());
    writer.seal(sum)
}

type Owned = (Vec<u8>, Vec<u8>, Option<i64>);

fn fields(body: &[u8]) -> Result<Vec<Owned>> {
    let mut reader = Reader::new(body)?;
    let mut found = Vec::new();
    while let Some(Field { name, value, expiry }) = reader.next_field()? {
        found.push((name.into_owned(), value.into_owned(), expiry));
    }
    Ok(found)
}

#[test]
fn expiries_of_fields_come_back() {
    let all: [Owned; 3] = [
        (b"a".into(), b"1".into(), Some(1_000_000)),
        (b"b".into(), b"".into(), None),
        (b"cc".into(), b"xyz".into(), Some(1_000_300)),
    ];
    let mut writer = Writer::of_fields(3, 1_000_000);
    all.iter().for_each(|(name, value, expiry)| writer.field(name, value, *expiry, 1_000_000));
    let sum = sum_of(writer.end());
    let payload = writer.seal(sum);
    let (body, _, _) = split_footer(&payload).unwrap();
    assert_eq!(fields(body).unwrap(), all);
    for length in 0..body.len() {
        assert!(Reader::new(&body[..length]).is_err() || fields(&body[..length]).is_err(), "{length}");
    }
    assert!(fields(&[body, b"x"].concat()).is_err());
    // A relative expiry before 1970 or behind the last moment.
    for earliest in [i64::MIN, i64::MAX] {
        let mut writer = Writer::of_fields(1, earliest);
        writer.field(b"a", b"1", Some(0), 1);
        assert!(fields(&writer.0).is_err());
    }
}

#[test]
fn packed_fields_with_expiries_are_read() {
    // f with an expiry, g without one.
    let packed = "1f0000000600816602817602f440420f000000000009816702817702".to_owned() + "0001ff";
    let body = bytes_of(&format!("1940420f00000000001f{packed}"));
    let expected: [Owned; 2] =
        [(b"f".into(), b"v".into(), Some(1_000_000)), (b"g".into(), b"w".into(), None)];
    assert_eq!(fields(&body).unwrap(), expected);
    for place in 0..body.len() {
        let mut damaged = body.clone();
        damaged[place] ^= 0xff;
        // Any bytes are accepted or refused.
        let _is_read = Reader::new(&damaged).is_ok() && fields(&damaged).is_ok();
    }
}

#[test]
fn payloads_of_redis_are_read() {
    let z = "z".repeat(100);
    let m = "m".repeat(100);
    let (x60, x70) = ("x".repeat(60), "x".repeat(70));
    let cases: [(&str, Type, &[&str]); 13] = [
        ("000568656c6c6f0a006372df766534200a", Type::String, &["hello"]),
        ("00c0f90a005e26d130d7a242ab", Type::String, &["-7"]),
        ("00c12c010a00954261f265825c10", Type::String, &["300"]),
        ("00c287d612000a00e93e1e362b3b7c5e", Type::String, &["1234567"]),
        ("00c3093c017878e02f000178780a00136a4bd61cb507ae", Type::String, &[&x60]),
        (
            "120102c3344074187400000008008161020c01d44802f270110104f400f2052a0120170309e04678e03c000e48f4ffff63a7\
             b3b6e00d09dfff02ff0a005787ddc0e0dd825a",
            Type::List,
            &["a", "12", "-3000", "70000", "5000000000", &x70, "999999999999999999", "-1"],
        ),
        ("0b0e0200000003000000010002002c010a00e510b28e7b9529aa", Type::Set, &["1", "2", "300"]),
        (
            "0bc320280408000000042003000120034000000240042000002cc01002f2052a200a00000a0047f701add603ce01",
            Type::Set,
            &["1", "2", "300", "5000000000"],
        ),
        (
            "0205c002c12c01c0010a3530303030303030303001780a007edf2ad8a906de37",
            Type::Set,
            &["2", "300", "1", "5000000000", "x"],
        ),
        ("1012120000000400816602817602816e021101ff0a00a180dda23510453b", Type::Hash, &["f", "v", "n", "17"]),
        (
            "040301660176046c6f6e67c3094064017a7ae05700017a7a016ec0110a00c6339bfd7731e160",
            Type::Hash,
            &["f", "v", "long", &z, "n", "17"],
        ),
        (
            "1118180000000400816202842d696e660581610283312e3504ff0a006283bc627bc94781",
            Type::SortedSet,
            &["b", "-inf", "a", "1.5"],
        ),
        (
            "0503c3094064016d6de05700016d6d00000000000008400161000000000000f83f0162000000000000f0ff0a003a8d89e646\
             d6d5b1",
            Type::SortedSet,
            &[&m, "3", "a", "1.5", "b", "-inf"],
        ),
    ];
    for (hex, of, expected) in cases {
        let (found, parts) = whole(&bytes_of(&hex.replace(' ', ""))).unwrap();
        let parts: Vec<String> = parts.into_iter().map(|part| String::from_utf8(part).unwrap()).collect();
        assert_eq!((found, parts.iter().map(String::as_str).collect()), (of, expected.to_vec()), "{hex}");
    }
}

#[test]
fn ziplists_are_read() {
    let mut list = vec![0; 10];
    list.extend(*b"\x00\x01a\x03\xc0\x18\xfc\x04\xf1\x02\xfd\x02\xfe\xff\x03\xf0\x00\x00\x80");
    list.extend(*b"\x05\x40\x03xyz\xfe\x07\x00\x00\x00\x80\x00\x00\x00\x01b\xff");
    let length = (list.len() as u32).to_le_bytes();
    list[..4].copy_from_slice(&length);
    let body = [&[10, list.len() as u8], &list[..]].concat();
    let expected = ["a", "-1000", "0", "12", "-1", "-8388608", "xyz", "b"];
    assert_eq!(elements(&body), Ok((Type::List, expected.map(|part| part.as_bytes().to_vec()).to_vec())));
    let hash = [&[13, list.len() as u8], &list[..]].concat();
    assert_eq!(elements(&hash).map(|(of, parts)| (of, parts.len())), Ok((Type::Hash, 8)));
    for length in 0..body.len() {
        assert_eq!(elements(&body[..length]), Err(BadPayload));
    }
}

#[test]
fn values_without_elements_and_half_pairs_are_refused() {
    for body in [&b"\x01\x00"[..], b"\x02\x00", b"\x04\x00", b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff"] {
        assert_eq!(elements(body), Err(BadPayload), "{body:?}");
    }
    assert_eq!(elements(b"\x10\x0a\x0a\0\0\0\x01\0\x81a\x02\xff"), Err(BadPayload));
    assert_eq!(elements(b"\x00\x01a"), Ok((Type::String, vec![b"a".to_vec()])));
    assert_eq!(elements(b"\x00\x01ab"), Err(BadPayload));
    assert_eq!(elements(b"\x0f\x00"), Err(BadPayload));
    let nan = [&b"\x05\x01\x01a"[..], &f64::NAN.to_le_bytes()].concat();
    assert_eq!(elements(&nan), Err(BadPayload));
    // 2^63 pairs are more than a number says.
    assert_eq!(elements(b"\x04\x81\x80\0\0\0\0\0\0\0"), Err(BadPayload));
    assert_eq!(elements(b"\x00\xc3\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00a"), Err(BadPayload));
}

#[test]
fn payloads_of_later_versions_are_refused() {
    let mut payload = written(Type::String, &[b"a".to_vec()]);
    let at = payload.len() - FOOTER;
    for (version, is_read) in [(1u16, true), (VERSION_READ, true), (VERSION_READ + 1, false)] {
        payload[at..at + 2].copy_from_slice(&version.to_le_bytes());
        assert_eq!(split_footer(&payload).is_ok(), is_read);
    }
    assert!(split_footer(&payload[..FOOTER - 1]).is_err());
}

#[test]
fn scores_come_back() {
    let scores = [0.0, -0.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
    let mut writer = Writer::new(Type::SortedSet, scores.len() as u64);
    for score in scores {
        writer.string(b"m");
        writer.score(score);
    }
    let sum = sum_of(writer.end());
    let (_, parts) = whole(&writer.seal(sum)).unwrap();
    let back: Vec<f64> =
        parts.chunks(2).map(|pair| std::str::from_utf8(&pair[1]).unwrap().parse().unwrap()).collect();
    assert_eq!(back, scores);
}

proptest! {
    #[test]
    fn values_come_back(of in 0..4, mut parts in prop::collection::vec(
        prop_oneof![prop::collection::vec(any::<u8>(), 0..100), any::<i64>().prop_map(|it| it.to_string().into_bytes()),
            (-70000..70000i32).prop_map(|it| it.to_string().into_bytes()), prop::collection::vec(Just(7u8), 16000..17000)],
        1..40)) {
        let of = [Type::String, Type::List, Type::Set, Type::Hash][of as usize];
        match of {
            Type::String => parts.truncate(1),
            Type::Hash if parts.len() % 2 == 1 => parts.push(b"value".to_vec()),
            _ => {}
        }
        prop_assert_eq!(whole(&written(of, &parts)), Ok((of, parts)));
    }

    #[test]
    fn any_bytes_are_a_value_or_refused(kind in 0..22u8, mut body in prop::collection::vec(any::<u8>(), 0..200)) {
        body.insert(0, kind);
        let _refused_or_not = elements(&body);
    }

    #[test]
    fn a_changed_payload_is_refused(at in 0..1000usize, with in 1..=255u8) {
        let mut payload = written(Type::List, &[b"one".to_vec(), b"2".to_vec(), vec![3; 200]]);
        let at = at % payload.len();
        payload[at] ^= with;
        prop_assert_eq!(whole(&payload), Err(BadPayload));
    }
}

#[test]
fn libraries_come_back_and_others_are_refused() {
    let mut writer = Writer::of_libraries();
    let codes = [b"#!lua name=a\n".to_vec(), vec![b'x'; 100_000]];
    codes.iter().for_each(|code| writer.library(code));
    writer.end();
    let payload = writer.seal(0);
    let (body, ..) = split_footer(&payload).unwrap();
    assert_eq!(libraries(body), Ok(codes.to_vec()));
    assert_eq!(libraries(b""), Ok(Vec::new()));
    assert_eq!(libraries(&[246, 1, b'x']), Err("given type is not a function"));
    for end in 1..20 {
        assert!(libraries(&body[..end]).is_err() || body[..end].len() == 15, "{end}");
    }
}
