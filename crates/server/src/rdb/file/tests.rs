//! A file that Redis wrote, files made by hand with every opcode, and damaged ones.

use super::super::{Reader, StreamReader, Type, Writer};
use super::*;

/// A file that Redis 7.0.15 wrote by SAVE: a library, 11 keys of database 0, a stream of
/// database 3. One string is compressed; hashes and sorted sets have two forms each.
pub(crate) fn of_redis() -> Vec<u8> {
    let hex = "\
        524544495330303130fa0972656469732d76657206372e302e3135fa0a72656469732d62697473c040fa056374696d65\
        c2ead30b6bfa08757365642d6d656dc2205a1300fa08616f662d62617365c000f5404423216c7561206e616d653d6c69\
        620a72656469732e72656769737465725f66756e6374696f6e282266222c2066756e6374696f6e28292072657475726e\
        203720656e6429fe00fb0a01100168121200000004008166028176028167020701ff12016c01020f0f00000003008161\
        028162020301ff040148040164c0040162c0020161c0010163c0030b01690e0200000003000000010002002c0100017a\
        c3093c016161e02f00016161fc7bd8c32cbb03000000016ec1393002016d02017801790001730568656c6c6f11017115\
        150000000400816202dffe0281610283312e3504ff050151040164000000000000114001630000000000000840016200\
        000000000000400161000000000000f03ffe03fb01001301780110000000000000000100000000000000013232000000\
        130001010101010181660200010301000100018176020401000101010401020181660281770281670201010801ff0102\
        050205010102010167020502010000000000000002000000000000000582cd3326a20100000101016382cd3326a20100\
        000100000000000000020000000000000005ffe94daeca1a98dcf3";
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks_exact(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

/// A file of a version with these bytes behind its beginning, and its checksum.
pub(crate) fn file(version: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("REDIS{version:04}").into_bytes();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.push(END);
    let mut sum = Checksum::default();
    sum.add(&bytes);
    if version >= 5 {
        bytes.extend(sum.sum().to_le_bytes());
    }
    bytes
}

/// The bytes of a key in a file.
pub(crate) fn key(name: &[u8], body: &[u8]) -> Vec<u8> {
    let mut writer = Writer(vec![body[0]], 0);
    writer.raw(name);
    writer.0.extend_from_slice(&body[1..]);
    writer.0
}

/// The body of a value that is written.
pub(crate) fn body(of: Type, parts: &[&[u8]]) -> Vec<u8> {
    let pairs = if of == Type::Hash { 2 } else { 1 };
    let mut writer = Writer::new(of, parts.len() as u64 / pairs);
    parts.iter().for_each(|part| writer.string(part));
    writer.0
}

fn parts(bytes: impl Read) -> Result<Vec<FilePart>, BadFile> {
    let mut reader = FileReader::new(bytes)?;
    let mut found = Vec::new();
    while let Some(part) = reader.next()? {
        found.push(part);
    }
    assert_eq!(reader.next(), Ok(None));
    Ok(found)
}

fn why(bytes: &[u8]) -> (u64, String) {
    let BadFile { offset, why, .. } = parts(bytes).unwrap_err();
    (offset, why.into_owned())
}

/// Decodes a body, which has one element at least.
fn decode(body: &[u8]) {
    if let Some(mut reader) = StreamReader::new(body).unwrap() {
        while reader.next().unwrap().is_some() {}
        return;
    }
    let mut reader = Reader::new(body).unwrap();
    while reader.next().unwrap().is_some() {}
}

/// A reader that returns few bytes at a time, and is interrupted in between.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        let count = (self.1 % 7 + 1).min(self.0.len());
        let (now, later) = self.0.split_at(count);
        into[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

#[test]
fn the_parts_of_a_file_of_redis_are_found() {
    let bytes = of_redis();
    let found = parts(&bytes[..]).unwrap();
    assert_eq!(parts(Pieces(&bytes, 0)).as_ref(), Ok(&found));
    let mut names = Vec::new();
    for part in &found {
        match part {
            FilePart::Library(code) => assert!(code.starts_with(b"#!lua name=lib\n")),
            FilePart::Key(key) => {
                decode(&key.body);
                assert_eq!(bytes[key.offset as usize], key.body[0]);
                names.push(format!("{}{}", String::from_utf8_lossy(&key.name), key.db));
                assert_eq!(key.expiry, (key.name == b"n").then_some(4_102_444_800_123));
            }
        }
    }
    assert_eq!(found.len(), 1 + names.len());
    names.sort();
    assert_eq!(names, ["H0", "Q0", "h0", "i0", "l0", "m0", "n0", "q0", "s0", "x3", "z0"]);
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let bytes = of_redis();
    for length in 0..bytes.len() {
        let (offset, why) = why(&bytes[..length]);
        let expected = if length < 9 { 0 } else { length as u64 };
        assert_eq!((offset, &*why), (expected, "the file ends too early"), "{length} bytes");
    }
}

#[test]
fn no_damaged_byte_goes_unnoticed() {
    let bytes = of_redis();
    for at in 0..bytes.len() {
        for flipped in [1, 0x40, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flipped;
            assert!(parts(&damaged[..]).is_err(), "byte {at}, bits {flipped:x}");
        }
    }
}

#[test]
fn opcodes_are_read_or_skipped() {
    let text = body(Type::String, &[b"v"]);
    let at = 1_700_000_000_123i64;
    let found = parts(
        &file(
            12,
            &[
                &[NOTE, 3, b'v', b'e', b'r', 0xc0, 5],
                &[SELECT, 0x40, 70],
                &[SIZES, 1, 0x80, 0, 0, 1, 0],
                &[SLOT_INFO, 1, 2, 3],
                &[SECONDS, 1, 0, 0, 0, IDLE, 0x81, 0, 0, 0, 0, 0, 0, 1, 0],
                &key(b"a", &text),
                &[FREQUENCY, 200, MILLISECONDS],
                &at.to_le_bytes(),
                &key(b"", &text),
                &[SECONDS, 0xff, 0xff, 0xff, 0xff],
                &key(b"c", &text),
                &key(b"d", &text),
                &[LIBRARY, 2, b'#', b'!'],
            ],
        )[..],
    );
    let found: Vec<_> = found
        .unwrap()
        .into_iter()
        .map(|part| match part {
            FilePart::Key(key) => (key.name, key.expiry, key.db),
            FilePart::Library(code) => (code, None, 0),
        })
        .collect();
    let expected = [
        (&b"a"[..], Some(1000), 70),
        (b"", Some(at), 70),
        (b"c", Some(-1000), 70),
        (b"d", None, 70),
        (b"#!", None, 0),
    ];
    assert_eq!(found, expected.map(|(name, expiry, db)| (name.to_vec(), expiry, db)));
}

#[test]
fn the_end_of_a_value_is_found_for_each_type() {
    let packed = b"\x0b\x0b\0\0\0\x01\0\x81a\x02\xff\xff";
    let bodies: [&[u8]; 22] = [
        b"\0\x01v",
        b"\0\xc0\x7f",
        b"\0\xc2\x01\x02\x03\x04",
        b"\0\xc3\x04\x0f\0a\xe0\x05",
        b"\x01\x02\x01a\xc1\x01\x02",
        b"\x02\x01\x80\0\0\0\x01a",
        b"\x03\x03\x01a\x011\x01b\xfe\x01c\xff",
        b"\x04\x02\x01f\x01v\x01g\xc0\x07",
        b"\x05\x01\x01m\0\0\0\0\0\0\xf0\x3f",
        b"\x0a\x02zz",
        b"\x0b\x02ii",
        b"\x0c\x02zz",
        b"\x0d\x02zz",
        b"\x0e\x02\x02zz\x01y",
        b"\x10\x02pp",
        b"\x11\x02pp",
        &[b"\x12\x02\x01\x05plain\x02", &packed[..]].concat(),
        b"\x14\x02pp",
        b"\x18\0\0\0\0\0\0\0\x01\x02\0\x01f\x01v\x40\x70\x01g\x01w",
        b"\x19\0\0\0\0\0\0\0\x01\x02pp",
        b"\x0f\0\0\0\0\x01\x01g\0\0\0\0",
        b"\x15\0\0\0\0\0\0\0\0\0\x01\x01g\0\0\0\0\x01\x01cssssssssaaaaaaaa\0",
    ];
    let keys = bodies.map(|body| key(b"name", body));
    let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = parts(&file(12, &slices)[..]).unwrap();
    let found = found.iter().map(|part| match part {
        FilePart::Key(key) => &key.body[..],
        FilePart::Library(_) => b"",
    });
    assert!(found.eq(bodies));
}

#[test]
fn what_is_not_read_is_named() {
    // 'ReJSON-RL' with version 3.
    let module = 5_035_677_737_576_115_203u64.to_be_bytes();
    let of_module = |before: &[u8], behind: &[u8]| why(&file(11, &[before, &[0x81], &module, behind]));
    let unknown = |number: u8| (9, format!("the unknown opcode {number}"));
    assert_eq!(of_module(b"\x07\x01k", b"\0"), (9, "a value of the module type ReJSON-RL".to_owned()));
    assert_eq!(
        of_module(&[OF_MODULE], b"\x02\x01"),
        (9, "data of the module of the type ReJSON-RL".to_owned())
    );
    for (of, text) in
        [(6, "before its release"), (9, "before 2.6"), (22, "before its release"), (26, "type 26")]
    {
        let (offset, why) = why(&file(11, &[&[of, 1, b'k', 0]]));
        assert!(offset == 9 && why.contains(text), "{why}");
        assert!(refused_type(&[of]).is_some_and(|why| why.contains(text)));
    }
    assert_eq!(refused_type(b"\0"), None);
    assert_eq!(why(&file(11, &[&[OLD_LIBRARY]])).0, 9);
    assert_eq!(why(&file(11, &[&[200]])), unknown(200));
    assert_eq!(why(&file(11, &[&[243]])), unknown(243));
    let named = |bytes: &[u8]| parts(bytes).unwrap_err().key;
    assert_eq!(named(&file(11, &[b"\xfe\x05\x09\x01k\0"])), Some((5, b"k".to_vec())));
}

#[test]
fn other_beginnings_and_ends_are_refused() {
    for (bytes, text) in [
        (&b"GIF89a_____"[..], "begin with REDIS"),
        (b"VALKEY080", "Valkey 9"),
        (b"REDIS00+1", "no version"),
        (b"REDIS0000", "version 0"),
        (b"REDIS0013", "version 13; 1 to 12"),
    ] {
        let (offset, why) = why(bytes);
        assert!(offset == 0 && why.contains(text), "{why}");
    }
    for version in 1..=12 {
        assert_eq!(parts(&file(version, &[])[..]), Ok(Vec::new()));
        let mut longer = file(version, &[]);
        longer.push(b'*');
        assert!(why(&longer).1.contains("append-only"));
    }
    let mut unsummed = file(10, &[]);
    let end = unsummed.len() - 8;
    unsummed[end..].fill(0);
    assert_eq!(parts(&unsummed[..]), Ok(Vec::new()));
    unsummed[end] = 1;
    assert!(why(&unsummed).1.contains("checksum"));
}

#[test]
fn announced_lengths_take_no_memory() {
    let huge = [0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    for before in [
        &b"\0\x01k"[..],
        b"\x01\x01k",
        b"\x04\x01k",
        b"\x0f\x01k",
        b"\x18\x01k........",
        b"\0\x01k\xc3",
        b"\0\x01k\xc3\x01",
        b"\0",
        &[NOTE],
        &[LIBRARY],
    ] {
        let mut bytes = [b"REDIS0012", before].concat();
        bytes.extend_from_slice(&huge);
        assert_eq!(why(&bytes).1, "the file ends too early", "{before:?}");
    }
    // A name of a few bytes that says that it has 512 MiB and one.
    let bytes = file(12, &[b"\0\xc3\x03\x81\0\0\0\0\x20\0\0\x01\0\0a\0"]);
    assert!(why(&bytes).1.contains("512 MiB"));
}
