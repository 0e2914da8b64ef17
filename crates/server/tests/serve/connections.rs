//! Connections: protocols, names, authentication, lists and ends of clients; COMMAND and CONFIG.

use crate::client::{Served, encoded, options};
use karst_server::ServerOptions;

#[test]
fn both_protocols() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 NONSENSE", "-ERR Syntax error in HELLO option 'NONSENSE'"),
        ("GET none", "nil"),
    ]);
    let hello = client.line("HELLO 3 SETNAME me").to_string();
    assert!(hello.starts_with("{\"server\" \"redis\" \"version\" \"7."), "{hello}");
    assert!(hello.contains("\"proto\" :3"), "{hello}");
    client.check(&[("CLIENT GETNAME", "\"me\""), ("CONFIG GET maxmemory", "{\"maxmemory\" \"0\"}")]);
    client.check(&[("RESET", "+RESET"), ("CLIENT GETNAME", "nil")]);
    client.check(&[("CONFIG GET maxmemory", "[\"maxmemory\" \"0\"]")]);
}

#[test]
fn what_a_client_library_asks_first() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
        ("CLIENT SETINFO LIB-VER 5.0", "+OK"),
        ("CLIENT SETINFO LIB-COLOUR red", "-ERR Unrecognized option 'lib-colour'"),
        ("CLIENT SETNAME a\tb", "-ERR Client names cannot contain spaces, newlines or special characters."),
        ("CLIENT SETNAME worker", "+OK"),
        ("CLIENT NO-EVICT ON", "+OK"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[\"a\" \"b\"]"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments"),
        ("COMMAND LIST FILTERBY PATTERN mse*", "[\"mset\" \"msetnx\"]"),
        ("ECHO hello", "\"hello\""),
        ("PING hello", "\"hello\""),
        ("ROLE", "[\"master\" :0 []]"),
    ]);
    let info = client.line("COMMAND INFO get none").to_string();
    assert!(info.starts_with("[[\"get\" :2 [+readonly +fast] :1 :1 :1 "), "{info}");
    let id = client.line("CLIENT ID").integer();
    let line = client.line("CLIENT INFO").text();
    assert!(line.starts_with(&format!("id={id} addr=127.0.0.1:")), "{line}");
    assert!(line.contains(" name=worker ") && line.contains(" lib-name=redis-py lib-ver=5.0"), "{line}");
    let info = client.line("INFO server keyspace").text();
    assert!(info.starts_with("# Server\r\nredis_version:7.") && info.contains("karstdb_version:"), "{info}");
    let info = client.line("INFO").text();
    for section in ["Clients", "Memory", "Persistence", "Stats", "Replication", "Keyspace"] {
        assert!(info.contains(&format!("# {section}\r\n")), "{section} in {info}");
    }
    assert_eq!(client.line("TIME").list().len(), 2);
    assert_eq!(client.line("QUIT").to_string(), "+OK");
    assert!(client.is_closed());
}

#[test]
fn a_password_is_asked_for() {
    let served = Served::with(&ServerOptions { password: "secret".to_owned(), ..options() });
    let mut client = served.client();
    client.check(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH someone secret", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH secret", "+OK"),
        ("GET k", "nil"),
        ("RESET", "+RESET"),
        ("GET k", "-NOAUTH Authentication required."),
    ]);
    assert!(client.line("HELLO 3").to_string().starts_with("-NOAUTH HELLO must be called"));
    assert!(client.line("HELLO 3 AUTH default secret").to_string().starts_with('{'));
    // A stranger cannot make the server hold much.
    let mut stranger = served.client();
    stranger.send(b"*2\r\n$3\r\nGET\r\n$100000\r\n");
    assert_eq!(stranger.reply().unwrap().to_string(), "-ERR Protocol error: unauthenticated bulk length");
    let open = Served::start();
    let reply = open.client().line("AUTH x").to_string();
    assert!(reply.starts_with("-ERR AUTH <password> called without any password configured"), "{reply}");
}

#[test]
fn clients_are_listed_and_killed() {
    let served = Served::start();
    let (mut one, mut other, mut third) = (served.client(), served.client(), served.client());
    let id = other.line("CLIENT ID").integer();
    third.line("PING");
    assert_eq!(one.line("CLIENT LIST").text().lines().count(), 3);
    assert_eq!(one.line(&format!("CLIENT LIST ID {id}")).text().lines().count(), 1);
    one.check(&[("CLIENT KILL 1.2.3.4:5", "-ERR No such client"), (&format!("CLIENT KILL ID {id}"), ":1")]);
    assert!(other.is_closed());
    one.check(&[("CLIENT KILL TYPE normal", ":1"), ("PING", "+PONG")]);
    assert!(third.is_closed());
    one.check(&[
        ("CLIENT KILL MAXAGE 1000", ":0"),
        ("CLIENT KILL MAXAGE 0", "-ERR maxage is not an integer or out of range"),
    ]);
    one.check(&[("CLIENT KILL SKIPME no", ":1")]);
    assert!(one.is_closed());
}

#[test]
fn more_clients_than_allowed_are_refused() {
    let served = Served::with(&ServerOptions { max_clients: 2, ..options() });
    let (mut one, mut other) = (served.client(), served.client());
    one.line("PING");
    other.line("PING");
    let mut third = served.client();
    assert_eq!(third.reply().unwrap().to_string(), "-ERR max number of clients reached");
    assert!(third.is_closed());
    one.check(&[("CONFIG SET maxclients 3", "+OK")]);
    served.check(&[("PING", "+PONG")]);
}

#[test]
fn settings_are_changed_together_or_not() {
    Served::start().check(&[
        ("CONFIG GET appendfsync", "[\"appendfsync\" \"everysec\"]"),
        ("CONFIG SET appendfsync always maxclients 77", "+OK"),
        ("CONFIG GET append* maxclients", "[\"appendfsync\" \"always\" \"maxclients\" \"77\" \"appendonly\" \"yes\"]"),
        (
            "CONFIG SET maxclients 78 appendfsync never",
            "-ERR CONFIG SET failed (possibly related to argument 'appendfsync') - argument(s) must be one of \
             the following: everysec, always, no",
        ),
        ("CONFIG GET maxclients", "[\"maxclients\" \"77\"]"),
        ("CONFIG SET colour red", "-ERR Unknown option or number of arguments for CONFIG SET - 'colour'"),
        ("CONFIG RESETSTAT", "+OK"),
        (
            "CONFIG SET maxclients 78 MaxClients 79",
            "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - duplicate parameter",
        ),
        (
            "CONFIG SET maxclients 1kb",
            "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be \
             parsed into an integer",
        ),
        ("CONFIG GET maxclients", "[\"maxclients\" \"77\"]"),
    ]);
}

#[test]
fn limits_are_those_after_the_requests_before() {
    let served = Served::with(&ServerOptions { password: "secret".to_owned(), ..options() });
    let mut client = served.client();
    let mut bytes = encoded(&["AUTH", "secret"]);
    bytes.extend(encoded(&["SET", "k", &"x".repeat(100_000)]));
    bytes.extend(encoded(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]));
    bytes.extend(encoded(&["STRLEN", "k"]));
    bytes.extend(encoded(&["CONFIG", "SET", "proto-max-bulk-len", "3mb"]));
    bytes.extend(encoded(&["SET", "k", &"x".repeat(2 << 20)]));
    bytes.extend(encoded(&["RESET"]));
    // Announced and not sent, because the server reads no more of it.
    bytes.extend(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n");
    client.send(&bytes);
    let replies: Vec<String> = (0..8).map(|_| client.reply().unwrap().to_string()).collect();
    let refused = "-ERR Protocol error: unauthenticated bulk length";
    assert_eq!(replies, ["+OK", "+OK", "+OK", ":100000", "+OK", "+OK", "+RESET", refused]);
    assert!(client.is_closed());
    let mut stranger = served.client();
    stranger.send(b"*11\r\n");
    let reply = stranger.reply().unwrap().to_string();
    assert_eq!(reply, "-ERR Protocol error: unauthenticated multibulk length");
}

#[test]
fn http_ends_the_connection() {
    let served = Served::start();
    for request in ["POST / HTTP/1.1\r\n", "PING\r\nhost: somewhere\r\n", "MULTI\r\nHost: here\r\n"] {
        let mut client = served.client();
        client.send(&[request.as_bytes(), b"SET k v\r\n"].concat());
        if !request.starts_with("POST") {
            assert!(client.reply().unwrap().to_string().starts_with('+'));
        }
        assert!(client.is_closed(), "{request}");
    }
    served.check(&[("EXISTS k", ":0")]);
}

#[test]
fn subcommands_are_checked() {
    let served = Served::start();
    served.check(&[
        ("CONFIG FOO", "-ERR unknown subcommand 'FOO'. Try CONFIG HELP."),
        ("client foo bar", "-ERR unknown subcommand 'foo'. Try CLIENT HELP."),
        ("COMMAND FOO", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP."),
        ("OBJECT FOO k", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command"),
        ("CONFIG SET a b c", "-ERR wrong number of arguments for 'config|set' command"),
        ("CLIENT ID 1", "-ERR wrong number of arguments for 'client|id' command"),
        ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("OBJECT HELP me", "-ERR wrong number of arguments for 'object|help' command"),
        ("MULTI", "+OK"),
        ("CONFIG FOO", "-ERR unknown subcommand 'FOO'. Try CONFIG HELP."),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
    for container in ["CLIENT", "COMMAND", "CONFIG", "OBJECT"] {
        let help = served.client().line(&format!("{container} HELP")).to_string();
        let first = format!("[+{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +");
        assert!(help.starts_with(&first) && help.ends_with("+HELP +    Print this help.]"), "{help}");
    }
}

#[test]
fn hello_takes_effect_as_a_whole_or_not() {
    let served = Served::with(&ServerOptions { password: "secret".to_owned(), ..options() });
    let mut client = served.client();
    client.check(&[
        ("HELLO 3 AUTH default secret Nonsense", "-ERR Syntax error in HELLO option 'Nonsense'"),
        ("GET k", "-NOAUTH Authentication required."),
        ("HELLO 3 SETNAME me AUTH default", "-ERR Syntax error in HELLO option 'AUTH'"),
        ("AUTH secret", "+OK"),
        ("CLIENT GETNAME", "nil"),
        ("CONFIG GET maxmemory", "[\"maxmemory\" \"0\"]"),
    ]);
}

#[test]
fn info_says_what_is_known() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("SET k v", "+OK"), ("EXPIRE k 1000", ":1")]);
    let info = client.line("INFO").text();
    for field in ["redis_version:7.4.", "cluster_enabled:0", "evicted_keys:0", "used_memory_human:"] {
        assert!(info.contains(&format!("\r\n{field}")), "{field} in {info}");
    }
    assert!(info.contains("\r\ndb0:keys=1,avg_ttl=0\r\n"), "{info}");
    let id = info.lines().find_map(|line| line.strip_prefix("master_replid:")).expect("an id");
    assert!(id.len() == 40 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
}

#[test]
fn clients_are_listed_with_their_transactions() {
    let served = Served::start();
    let (mut one, mut other) = (served.client(), served.client());
    let id = one.line("CLIENT ID").integer();
    let mut line = || other.line(&format!("CLIENT LIST ID {id}")).text();
    assert!(line().contains(" multi=-1 watch=0 "));
    one.check(&[("WATCH a b a", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED"), ("PING", "+QUEUED")]);
    assert!(line().contains(" multi=2 watch=2 "));
    one.check(&[("EXEC", "[+PONG +PONG]")]);
    assert!(line().contains(" multi=-1 watch=0 "));
}
