//! Questions of clients and test suites about the server: ACL, COMMAND, settings, and features
//! that are off.

use crate::client::{Served, options};
use karst_server::ServerOptions;

#[test]
fn at_first_there_is_one_user_who_may_do_all() {
    let served = Served::start();
    served.check(&[
        ("ACL WHOAMI", "\"default\""),
        ("ACL USERS", "[\"default\"]"),
        ("ACL LIST", "[\"user default on nopass sanitize-payload ~* &* +@all\"]"),
        ("ACL GETUSER nobody", "nil"),
        ("ACL DRYRUN default GET k", "+OK"),
        ("ACL DRYRUN nobody GET k", "-ERR User 'nobody' not found"),
        ("ACL DRYRUN default NOTHING", "-ERR Command 'NOTHING' not found"),
        ("ACL CAT nonsense", "-ERR Unknown category 'nonsense'"),
        ("ACL CAT transaction", "[\"discard\" \"exec\" \"multi\" \"unwatch\" \"watch\"]"),
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"),
    ]);
    let mut client = served.client();
    assert!(client.line("ACL CAT").list().len() > 20);
    assert_eq!(client.line("ACL GENPASS").text().len(), 64);
    assert_eq!(client.line("ACL GENPASS 5").text().len(), 2);
    for bits in ["0", "4097", "-1", "many"] {
        assert!(client.line(&format!("ACL GENPASS {bits}")).to_string().starts_with("-ERR ACL GENPASS"));
    }
}

#[test]
fn a_password_is_shown_as_its_hash() {
    let served = Served::with(&ServerOptions { password: "abc".to_owned(), ..options() });
    let mut client = served.client();
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    client.check(&[("AUTH abc", "+OK")]);
    let list = client.line("ACL LIST").to_string();
    assert_eq!(list, format!("[\"user default on sanitize-payload #{hash} ~* &* +@all\"]"));
    let user = client.line("ACL GETUSER default").to_string();
    assert!(user.contains(&format!("\"passwords\" [\"{hash}\"]")) && !user.contains("nopass"), "{user}");
}

#[test]
fn features_that_are_off_say_so() {
    let disabled = "-ERR This instance has cluster support disabled";
    Served::start().check(&[
        ("CLUSTER INFO", disabled),
        ("READONLY", disabled),
        ("READWRITE", disabled),
        ("ASKING", disabled),
        ("MODULE LIST", "[]"),
        ("MODULE LOAD /a.so", "-ERR Error loading the extension. Please check the server logs."),
        ("FUNCTION LIST WITHCODE", "[]"),
        ("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given"),
        ("FUNCTION FLUSH ASYNC", "+OK"),
        ("FUNCTION DELETE a", "-ERR Library not found"),
        ("FUNCTION LOAD a", "-ERR Missing library metadata"),
        ("REPLICAOF NO ONE", "+OK"),
        ("REPLICAOF 127.0.0.1 6379", "-ERR replication is not served: only NO ONE is taken"),
        ("CLIENT GETREDIR", ":-1"),
        ("CLIENT TRACKINGINFO", "[\"flags\" [\"off\"] \"redirect\" :-1 \"prefixes\" []]"),
    ]);
}

#[test]
fn keys_of_a_request_have_flags() {
    let served = Served::start();
    served.check(&[
        (
            "COMMAND GETKEYSANDFLAGS LMOVE a b LEFT RIGHT",
            "[[\"a\" [+RW +access +delete]] [\"b\" [+RW +insert]]]",
        ),
        ("COMMAND GETKEYSANDFLAGS SET a b", "[[\"a\" [+RW +access +update]]]"),
        ("COMMAND GETKEYSANDFLAGS MGET a b", "[[\"a\" [+RO +access]] [\"b\" [+RO +access]]]"),
        ("COMMAND GETKEYSANDFLAGS PING", "-ERR The command has no key arguments"),
        ("COMMAND GETKEYSANDFLAGS GET", "-ERR Invalid number of arguments specified for command"),
        ("COMMAND GETKEYSANDFLAGS NOTHING", "-ERR Invalid command specified"),
        ("COMMAND LIST FILTERBY MODULE any", "[]"),
        ("COMMAND LIST FILTERBY PATTERN config*", CONFIG),
        ("COMMAND LIST FILTERBY ACLCAT nonsense", "[]"),
        ("COMMAND LIST FILTERBY NONSENSE a", "-ERR syntax error"),
        ("COMMAND LIST nonsense", "-ERR syntax error"),
        ("COMMAND INFO get|key", "[nil]"),
    ]);
    let mut client = served.client();
    let lists = client.line("COMMAND LIST FILTERBY ACLCAT list").to_string();
    assert!(lists.contains("\"lpush\"") && !lists.contains("\"sadd\""), "{lists}");
    let sub = client.line("COMMAND INFO config|get").to_string();
    assert!(sub.starts_with("[[\"config|get\" :-3 "), "{sub}");
    let place = client.line("COMMAND INFO rename").to_string();
    assert!(place.contains("[\"index\" :2]"), "{place}");
}

const CONFIG: &str = "[\"config\" \"config|get\" \"config|resetstat\" \"config|rewrite\" \"config|set\"]";

#[test]
fn a_fixed_setting_takes_its_own_value_alone() {
    Served::start().check(&[
        ("CONFIG SET maxmemory 0 appendonly yes timeout 0", "+OK"),
        (
            "CONFIG SET maxmemory 100",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - the only value served is '0'",
        ),
        (
            "CONFIG SET maxmemory 1 maxmemory 2",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter",
        ),
        (
            "CONFIG SET databases 16",
            "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
        ),
    ]);
}

#[test]
fn memory_usage_grows_with_the_value() {
    let served = Served::start();
    served.check(&[
        ("MEMORY USAGE none", "nil"),
        ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        ("MEMORY PURGE", "-ERR unknown subcommand 'PURGE'. Try MEMORY HELP."),
        ("SET short x", "+OK"),
        (&format!("SET long {}", "x".repeat(1000)), "+OK"),
        ("RPUSH list a b c", ":3"),
        ("HSET hash a 1 b 2", ":2"),
        ("SADD set a", ":1"),
    ]);
    let mut client = served.client();
    let mut usage = |key: &str| client.line(&format!("MEMORY USAGE {key} SAMPLES 0")).integer();
    assert_eq!(usage("long") - usage("short"), 998);
    assert!(["list", "hash", "set"].into_iter().all(|key| usage(key) > 40));
}

#[test]
fn encodings_are_those_that_the_settings_say() {
    let served = Served::start();
    let long = "x".repeat(65);
    served.check(&[
        ("HSET h a 1", ":1"),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("CONFIG SET hash-max-ziplist-entries 0", "+OK"),
        ("CONFIG GET hash-max-listpack-entries", "[\"hash-max-listpack-entries\" \"0\"]"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("CONFIG SET hash-max-listpack-entries 512", "+OK"),
        (&format!("HSET h b {long}"), ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("SADD s 1 2", ":2"),
        ("OBJECT ENCODING s", "\"intset\""),
        ("CONFIG SET set-max-intset-entries 1", "+OK"),
        ("OBJECT ENCODING s", "\"listpack\""),
        (&format!("SADD s {long}"), ":1"),
        ("OBJECT ENCODING s", "\"hashtable\""),
        ("RPUSH l a b c", ":3"),
        ("OBJECT ENCODING l", "\"listpack\""),
        ("CONFIG SET list-max-ziplist-size 2", "+OK"),
        ("OBJECT ENCODING l", "\"quicklist\""),
        ("CONFIG SET list-max-ziplist-size -1", "+OK"),
        (&format!("RPUSH l {}", "y".repeat(5000)), ":4"),
        ("OBJECT ENCODING l", "\"quicklist\""),
    ]);
}
