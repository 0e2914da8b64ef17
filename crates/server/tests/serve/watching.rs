//! MONITOR, SLOWLOG, CLIENT PAUSE, and the counts of INFO.

use crate::client::{Client, Reply, Served, encoded};

/// The command of a line of MONITOR, with its database.
fn shown(monitor: &mut Client) -> String {
    let Some(Reply::Line('+', line)) = monitor.reply() else { panic!("no line of MONITOR") };
    let (time, rest) = line.split_once(" [").expect("a time");
    let (seconds, micros) = time.split_once('.').expect("a fraction");
    assert!(seconds.parse::<u64>().is_ok() && micros.len() == 6, "{line}");
    let (client, command) = rest.split_once("] ").expect("a client");
    let (db, address) = client.split_once(' ').expect("a database");
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    format!("{db} {command}")
}

#[test]
fn a_monitor_sees_the_commands_of_all() {
    let served = Served::start();
    let (mut monitor, mut client) = (served.client(), served.client());
    monitor.check(&[("MONITOR", "+OK")]);
    client.check(&[("SET k v", "+OK"), ("CONFIG GET port*", &client_port(&served)), ("SELECT 2", "+OK")]);
    client.call(&["GET", "a\"\n\u{1}"]);
    client.line("AUTH default pw");
    client.check(&[("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: ")]);
    client.check(&[("MULTI", "+OK"), ("INCR n", "+QUEUED"), ("EXEC", "[:1]"), ("BLPOP l 0.001", "nil")]);
    client.send(&[encoded(&["SET", "a", "1"]), encoded(&["SET", "b", "2"])].concat());
    client.expect(&["+OK", "+OK"]);
    for expected in [
        "0 \"SET\" \"k\" \"v\"",
        "2 \"SELECT\" \"2\"",
        "2 \"GET\" \"a\\\"\\n\\x01\"",
        "2 \"AUTH\" \"(redacted)\" \"(redacted)\"",
        "2 \"MULTI\"",
        "2 \"INCR\" \"n\"",
        "2 \"EXEC\"",
        "2 \"BLPOP\" \"l\" \"0.001\"",
        "2 \"SET\" \"a\" \"1\"",
        "2 \"SET\" \"b\" \"2\"",
    ] {
        assert_eq!(shown(&mut monitor), expected);
    }
    assert!(client.line("CLIENT LIST").text().contains(" flags=O "));
    monitor.check(&[("RESET", "+RESET")]);
    client.check(&[("GET k", "nil")]);
    monitor.check(&[("PING", "+PONG")]);
    monitor.check(&[
        ("MULTI", "+OK"),
        ("MONITOR", "+QUEUED"),
        ("EXEC", "[-ERR MONITOR isn't allowed for DENY BLOCKING client]"),
    ]);
}

fn client_port(served: &Served) -> String {
    format!("[\"port\" \"{}\"]", served.address().port())
}

#[test]
fn slow_commands_are_listed() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        ("SLOWLOG LEN", ":0"),
        ("SLOWLOG GET", "[]"),
        ("CLIENT SETNAME me", "+OK"),
        ("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3", "+OK"),
        ("SET k v", "+OK"),
    ]);
    let newest = client.line("SLOWLOG GET 1").list().remove(0).list();
    assert_eq!(newest.len(), 6);
    assert!(newest[0].integer() > 0 && newest[1].integer() > 1_700_000_000 && newest[2].integer() >= 0);
    assert_eq!(newest[3].to_string(), "[\"SET\" \"k\" \"v\"]");
    assert!(newest[4].to_string().starts_with("\"127.0.0.1:"), "{}", newest[4]);
    assert_eq!(newest[5].to_string(), "\"me\"");
    client.check(&[("MULTI", "+OK"), ("SET k w", "+QUEUED"), ("EXEC", "[+OK]"), ("SLOWLOG LEN", ":3")]);
    let mut args = vec!["DEL".to_owned(), "x".repeat(200)];
    args.extend((0..40).map(|number| number.to_string()));
    client.call(&args);
    let entries = client.line("SLOWLOG GET -1").list();
    let of = |at: usize| entries[at].clone().list()[3].to_string();
    assert!(
        of(0).contains("... (72 more bytes)\" \"0\" ") && of(0).ends_with("\"... (11 more arguments)\"]")
    );
    assert_eq!((of(1), of(2)), ("[\"SLOWLOG\" \"LEN\"]".to_owned(), "[\"EXEC\"]".to_owned()));
    client.check(&[
        ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
        ("SLOWLOG RESET", "+OK"),
        ("SLOWLOG LEN", ":0"),
        ("CONFIG GET slowlog-*", "[\"slowlog-log-slower-than\" \"-1\" \"slowlog-max-len\" \"3\"]"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
        ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
        (
            "SLOWLOG GET 1 2",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ),
        (
            "CONFIG SET slowlog-max-len -1",
            "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be \
             between 0 and 9223372036854775807 inclusive",
        ),
    ]);
}

#[test]
fn a_pause_of_writes_lets_others_read() {
    let served = Served::start();
    let (mut operator, mut writer, mut reader) = (served.client(), served.client(), served.client());
    let mut transaction = served.client();
    operator.check(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 READ", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT UNPAUSE", "+OK"),
        ("CLIENT PAUSE 100000000 WRITE", "+OK"),
    ]);
    let requests =
        [encoded(&["PING"]), encoded(&["INCR", "k"]), encoded(&["INCR", "k"]), encoded(&["GET", "k"])];
    writer.send(&requests.concat());
    writer.expect(&["+PONG"]);
    transaction.check(&[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "[nil]"), ("MULTI", "+OK")]);
    transaction.send_command(&["INCR", "k"]);
    transaction.send_command(&["EXEC"]);
    reader.check(&[("GET k", "nil"), ("PING", "+PONG"), ("MGET k", "[nil]")]);
    // One that leaves while it is paused is let go.
    let mut gone = served.client();
    gone.send_command(&["INCR", "gone"]);
    gone.finish();
    assert!(gone.is_closed());
    operator.check(&[("CLIENT UNPAUSE", "+OK")]);
    let counted = writer.reply().expect("a reply").integer();
    assert!((1..=2).contains(&counted));
    writer.reply().expect("a reply");
    writer.reply().expect("a reply");
    transaction.expect(&["+QUEUED"]);
    assert!(transaction.reply().is_some_and(|reply| reply.to_string().starts_with("[:")));
    reader.check(&[("GET k", "\"3\""), ("EXISTS gone", ":0")]);
}

#[test]
fn a_pause_of_all_ends_after_its_time() {
    let served = Served::start();
    let (mut operator, mut other) = (served.client(), served.client());
    operator.check(&[("CLIENT PAUSE 50", "+OK"), ("PING", "+PONG")]);
    other.check(&[("CLIENT PAUSE 20", "+OK"), ("SET k v", "+OK"), ("CLIENT UNPAUSE", "+OK")]);
}

#[test]
fn lookups_and_expired_keys_are_counted() {
    let served = Served::start();
    let mut client = served.client();
    let has = |client: &mut Client, field: &str| {
        client.line("INFO stats").text().contains(&format!("\r\n{field}\r\n"))
    };
    client.check(&[("SET k v", "+OK"), ("RPUSH l a b", ":2"), ("CONFIG RESETSTAT", "+OK")]);
    client.check(&[("GET k", "\"v\""), ("GET none", "nil"), ("MGET k none l", "[\"v\" nil nil]")]);
    client.check(&[("LRANGE l 0 -1", "[\"a\" \"b\"]"), ("INCR n", ":1"), ("EXISTS n", ":1")]);
    assert!(has(&mut client, "keyspace_hits:5") && has(&mut client, "keyspace_misses:2"));
    client.check(&[("SET e v PX 1", "+OK")]);
    while !has(&mut client, "expired_keys:1") {}
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    assert!(has(&mut client, "keyspace_hits:0") && has(&mut client, "expired_keys:0"));
}
