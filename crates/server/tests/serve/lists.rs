//! Lists; the commands that wait are in `blocking`.

use crate::client::Served;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn elements_come_and_go_at_both_ends() {
    Served::start().check(&[
        ("RPUSH l a b", ":2"),
        ("LPUSH l x y", ":4"),
        ("LRANGE l 0 -1", "[\"y\" \"x\" \"a\" \"b\"]"),
        ("LLEN l", ":4"),
        ("TYPE l", "+list"),
        ("OBJECT ENCODING l", "\"listpack\""),
        ("LPOP l", "\"y\""),
        ("RPOP l 2", "[\"b\" \"a\"]"),
        ("LPOP l 0", "[]"),
        ("LPOP l 9", "[\"x\"]"),
        ("EXISTS l", ":0"),
        ("LPOP l", "nil"),
        ("RPOP l 1", "nil"),
        ("LPOP l -1", "-ERR value is out of range, must be positive"),
        ("LPUSHX l a", ":0"),
        ("RPUSHX l a", ":0"),
        ("EXISTS l", ":0"),
        ("RPUSH l a", ":1"),
        ("LPUSHX l b", ":2"),
        ("RPUSHX l c d", ":4"),
        ("LRANGE l 1 2", "[\"a\" \"c\"]"),
        ("LRANGE l -2 100", "[\"c\" \"d\"]"),
        ("LRANGE l 3 1", "[]"),
        ("LRANGE none 0 -1", "[]"),
        ("LRANGE l x 1", "-ERR value is not an integer or out of range"),
    ]);
}

#[test]
fn elements_are_changed_by_index_and_value() {
    Served::start().check(&[
        ("RPUSH l a b c b a b", ":6"),
        ("LINDEX l 0", "\"a\""),
        ("LINDEX l -1", "\"b\""),
        ("LINDEX l 6", "nil"),
        ("LSET l 2 C", "+OK"),
        ("LSET l 6 x", "-ERR index out of range"),
        ("LSET none 0 x", "-ERR no such key"),
        ("LPOS l b", ":1"),
        ("LPOS l b RANK 2", ":3"),
        ("LPOS l b RANK -1", ":5"),
        ("LPOS l b COUNT 0", "[:1 :3 :5]"),
        ("LPOS l b COUNT 2 RANK -1", "[:5 :3]"),
        ("LPOS l b MAXLEN 1", "nil"),
        ("LPOS l none COUNT 1", "[]"),
        ("LINSERT l BEFORE C 1", ":7"),
        ("LINSERT l AFTER C 2", ":8"),
        ("LINSERT l AFTER none 2", ":-1"),
        ("LINSERT none AFTER a 2", ":0"),
        ("LRANGE l 0 -1", "[\"a\" \"b\" \"1\" \"C\" \"2\" \"b\" \"a\" \"b\"]"),
        ("LREM l 2 b", ":2"),
        ("LREM l -1 a", ":1"),
        ("LRANGE l 0 -1", "[\"a\" \"1\" \"C\" \"2\" \"b\"]"),
        ("LREM l 0 none", ":0"),
        ("LTRIM l 1 -2", "+OK"),
        ("LRANGE l 0 -1", "[\"1\" \"C\" \"2\"]"),
        ("LREM l 0 C", ":1"),
        ("LTRIM l 5 9", "+OK"),
        ("EXISTS l", ":0"),
        ("RPUSH l x x", ":2"),
        ("LREM l 0 x", ":2"),
        ("EXISTS l", ":0"),
    ]);
}

#[test]
fn elements_move_between_lists() {
    Served::start().check(&[
        ("RPUSH a 1 2 3", ":3"),
        ("RPOPLPUSH a b", "\"3\""),
        ("LMOVE a b LEFT RIGHT", "\"1\""),
        ("LRANGE b 0 -1", "[\"3\" \"1\"]"),
        ("LMOVE b b LEFT RIGHT", "\"3\""),
        ("LRANGE b 0 -1", "[\"1\" \"3\"]"),
        ("RPOPLPUSH a a", "\"2\""),
        ("RPOPLPUSH none a", "nil"),
        ("LMOVE a b UP DOWN", "-ERR syntax error"),
        ("SET s 1", "+OK"),
        ("RPOPLPUSH a s", WRONG_TYPE),
        ("LPUSH s 1", WRONG_TYPE),
        ("LRANGE s 0 -1", WRONG_TYPE),
        ("LRANGE a 0 -1", "[\"2\"]"),
        ("LMPOP 3 none a b LEFT", "[\"a\" [\"2\"]]"),
        ("LMPOP 3 none a b RIGHT COUNT 5", "[\"b\" [\"3\" \"1\"]]"),
        ("LMPOP 1 b LEFT", "nil"),
        ("LMPOP 0 b LEFT", "-ERR numkeys should be greater than 0"),
        ("LMPOP 1 b LEFT COUNT 0", "-ERR count should be greater than 0"),
        ("DBSIZE", ":1"),
    ]);
}

#[test]
fn lists_survive_a_restart() {
    let mut served = Served::start();
    served.check(&[
        ("RPUSH l a b c", ":3"),
        ("LPOP l", "\"a\""),
        ("EXPIRE l 1000", ":1"),
        ("COPY l m DB 1", ":1"),
    ]);
    served.close();
    served.open(&crate::client::options());
    served.check(&[
        ("LRANGE l 0 -1", "[\"b\" \"c\"]"),
        ("LPUSH l z", ":3"),
        ("TTL none", ":-2"),
        ("PERSIST l", ":1"),
        ("SELECT 1", "+OK"),
        ("LRANGE m 0 -1", "[\"b\" \"c\"]"),
    ]);
}
