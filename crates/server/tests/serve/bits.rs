//! Bits of strings: single ones, ranges, operations and fields.

use crate::client::Served;

const OFFSET: &str = "-ERR bit offset is not an integer or out of range";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn single_bits_are_set_and_read() {
    Served::start().check(&[
        ("SETBIT k 7 1", ":0"),
        ("SETBIT k 7 1", ":1"),
        ("GET k", "\"\\x01\""),
        ("SETBIT k 100 0", ":0"),
        ("STRLEN k", ":13"),
        ("GETBIT k 7", ":1"),
        ("GETBIT k 8", ":0"),
        ("GETBIT k 100000", ":0"),
        ("GETBIT none 0", ":0"),
        ("SETBIT k -1 1", OFFSET),
        ("SETBIT k 4294967296 1", OFFSET),
        ("GETBIT k #1", OFFSET),
        ("SETBIT k 0 2", "-ERR bit is not an integer or out of range"),
        ("SET t v EXAT 33177117420", "+OK"),
        ("SETBIT t 6 1", ":1"),
        ("SETBIT t 6 0", ":1"),
        ("EXPIRETIME t", ":33177117420"),
        ("LPUSH l x", ":1"),
        ("SETBIT l 0 1", WRONG_TYPE),
        ("GETBIT l 0", WRONG_TYPE),
    ]);
}

#[test]
fn bits_are_counted_and_found_in_ranges_of_bytes_and_bits() {
    Served::start().check(&[
        ("SET k foobar", "+OK"),
        ("BITCOUNT k", ":26"),
        ("BITCOUNT k 0 0", ":4"),
        ("BITCOUNT k 1 1 BYTE", ":6"),
        ("BITCOUNT k 5 30 BIT", ":17"),
        ("BITCOUNT k -1 -2", ":0"),
        ("BITCOUNT k 0", "-ERR syntax error"),
        ("BITCOUNT k 0 1 WORD", "-ERR syntax error"),
        ("BITCOUNT none 0 x", ":0"),
        ("BITPOS k 1", ":1"),
        ("BITPOS k 0", ":0"),
        ("BITPOS k 1 1", ":9"),
        ("BITPOS k 1 3 5 BIT", ":5"),
        ("BITPOS k 1 100", ":-1"),
        ("BITPOS k 2", "-ERR The bit argument must be 1 or 0."),
        ("BITPOS none 1", ":-1"),
        ("BITPOS none 0", ":0"),
        ("SETBIT ones 0 1", ":0"),
        ("BITFIELD ones SET u8 0 255", "[:128]"),
        ("BITPOS ones 0", ":8"),
        ("BITPOS ones 0 0 -1", ":-1"),
        ("BITPOS ones 0 0 -1 BIT", ":-1"),
    ]);
}

#[test]
fn bits_of_several_strings_are_combined() {
    Served::start().check(&[
        ("MSET a foobar b abc", "+OK"),
        ("BITOP AND to a b", ":6"),
        ("GET to", "\"`bc\\x00\\x00\\x00\""),
        ("BITOP OR to b a none", ":6"),
        ("GET to", "\"goobar\""),
        ("BITOP XOR to a a", ":6"),
        ("GET to", "\"\\x00\\x00\\x00\\x00\\x00\\x00\""),
        ("BITOP NOT b b", ":3"),
        ("GET b", "\"\\x9e\\x9d\\x9c\""),
        ("BITOP NOT to a b", "-ERR BITOP NOT must be called with a single source key."),
        ("BITOP NAND to a b", "-ERR syntax error"),
        ("LPUSH l x", ":1"),
        ("BITOP OR to a l", WRONG_TYPE),
        ("BITOP OR l none", ":0"),
        ("EXISTS l", ":0"),
    ]);
}

#[test]
fn fields_of_bits_overflow_as_asked() {
    let fields = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
                  i64 is.";
    Served::start().check(&[
        ("BITFIELD k INCRBY i5 100 1 GET u4 0", "[:1 :0]"),
        ("STRLEN k", ":14"),
        ("BITFIELD k SET u8 #1 300 GET u8 8", "[:0 :44]"),
        ("BITFIELD k OVERFLOW SAT SET u8 #1 300 INCRBY u8 #1 -1000", "[:44 :0]"),
        ("BITFIELD k OVERFLOW FAIL INCRBY u2 0 4 INCRBY u2 0 3", "[nil :3]"),
        ("BITFIELD k INCRBY u2 0 1 INCRBY i64 #2 9223372036854775807", "[:0 :9223372036854775807]"),
        ("BITFIELD k INCRBY i64 #2 1", "[:-9223372036854775808]"),
        ("BITFIELD k OVERFLOW SAT SET i8 0 -9223372036854775808 GET i8 0", "[:0 :-128]"),
        ("BITFIELD_RO k GET i64 #2 GET u63 1000", "[:-9223372036854775808 :0]"),
        ("BITFIELD_RO k GET i8 0 SET i8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        ("BITFIELD k GET u64 0", fields),
        ("BITFIELD k GET i65 0", fields),
        ("BITFIELD k GET i8 4294967296", OFFSET),
        ("BITFIELD k GET i8 #9223372036854775807", OFFSET),
        ("BITFIELD k OVERFLOW NEVER", "-ERR Invalid OVERFLOW type specified"),
        ("BITFIELD k GET i8", "-ERR syntax error"),
        ("BITFIELD k", "[]"),
        ("BITFIELD none GET u8 0", "[:0]"),
        ("EXISTS none", ":0"),
        ("LPUSH l x", ":1"),
        ("BITFIELD l GET u8 0", WRONG_TYPE),
    ]);
}
