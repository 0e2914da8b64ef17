//! Client-side caching: CLIENT TRACKING and its invalidations.

use crate::client::{Client, Served};

/// A client with RESP3 that has sent a CLIENT TRACKING ON with these options.
fn tracker(served: &Served, options: &str) -> Client {
    let mut client = served.client();
    client.line("HELLO 3");
    client.check(&[(format!("CLIENT TRACKING ON {options}").trim(), "+OK")]);
    client
}

/// Checks that nothing came before the reply of a command that is sent now.
fn expect_silence(client: &mut Client) {
    client.check(&[("PING", "+PONG")]);
}

fn field(client: &mut Client, name: &str) -> String {
    let info = client.line("INFO").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a field").to_owned()
}

#[test]
fn a_reader_is_told_once() {
    let served = Served::start();
    let (mut one, mut writer) = (tracker(&served, ""), served.client());
    writer.check(&[("MSET a 1 b 2 c 3", "+OK")]);
    one.check(&[("GET a", "\"1\""), ("MGET a b none", "[\"1\" \"2\" nil]")]);
    assert_eq!(field(&mut writer, "tracking_clients"), "1");
    assert_eq!(field(&mut writer, "tracking_total_keys"), "3");
    assert_eq!(field(&mut writer, "tracking_total_items"), "3");
    writer.check(&[("SET a 5", "+OK"), ("SET a 6", "+OK"), ("SET c 6", "+OK"), ("MSET none 1 b 1", "+OK")]);
    one.expect(&["(\"invalidate\" [\"a\"])", "(\"invalidate\" [\"none\"])", "(\"invalidate\" [\"b\"])"]);
    expect_silence(&mut one);
    one.check(&[("GET a", "\"6\""), ("CLIENT TRACKING OFF", "+OK")]);
    writer.check(&[("SET a 7", "+OK")]);
    expect_silence(&mut one);
    assert_eq!(field(&mut writer, "tracking_total_keys"), "0");
}

#[test]
fn own_writes_are_told_behind_their_replies() {
    let served = Served::start();
    let mut one = tracker(&served, "");
    one.check(&[("SET a 1", "+OK"), ("GET a", "\"1\""), ("INCR a", ":2")]);
    one.expect(&["(\"invalidate\" [\"a\"])"]);
    one.check(&[
        ("GET a", "\"2\""),
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("EXEC", "[:3 \"3\" :4]"),
    ]);
    one.expect(&["(\"invalidate\" [\"a\"])"]);
    expect_silence(&mut one);
    let mut quiet = tracker(&served, "NOLOOP");
    quiet.check(&[("GET a", "\"4\""), ("SET a 1", "+OK"), ("PING", "+PONG"), ("GET a", "\"1\"")]);
    served.check(&[("DEL a", ":1")]);
    quiet.expect(&["(\"invalidate\" [\"a\"])"]);
}

#[test]
fn reads_of_a_transaction_are_tracked() {
    let served = Served::start();
    let mut one = served.client();
    one.line("HELLO 3");
    one.check(&[
        ("MULTI", "+OK"),
        ("GET before", "+QUEUED"),
        ("CLIENT TRACKING ON", "+QUEUED"),
        ("GET behind", "+QUEUED"),
        ("EXEC", "[nil +OK nil]"),
    ]);
    served.check(&[("MSET before 1 behind 2", "+OK")]);
    one.expect(&["(\"invalidate\" [\"behind\"])"]);
    expect_silence(&mut one);
}

#[test]
fn pipelines_of_reads_and_writes_keep_their_order() {
    let served = Served::start();
    let mut one = tracker(&served, "");
    one.send(b"GET a\r\nGET b\r\nSET a 1\r\nGET a\r\nSET a 2\r\nPING\r\n");
    one.expect(&["nil", "nil", "+OK", "(\"invalidate\" [\"a\"])", "\"1\"", "+OK"]);
    one.expect(&["(\"invalidate\" [\"a\"])", "+PONG"]);
}

#[test]
fn opting_in_and_out_is_for_the_next_command() {
    let served = Served::start();
    let only_in_mode = "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
    let mut one = tracker(&served, "OPTIN");
    one.send(b"CLIENT CACHING YES\r\nGET a\r\nGET b\r\nGET c\r\n");
    one.expect(&["+OK", "nil", "nil", "nil"]);
    one.check(&[
        ("CLIENT CACHING YES", "+OK"),
        (
            "CLIENT TRACKINGINFO",
            "{\"flags\" <\"on\" \"optin\" \"caching-yes\"> \"redirect\" :0 \"prefixes\" []}",
        ),
        ("MULTI", "+OK"),
        ("GET d", "+QUEUED"),
        ("GET e", "+QUEUED"),
        ("EXEC", "[nil nil]"),
        ("GET f", "nil"),
    ]);
    served.check(&[("MSET a 1 b 1 c 1 d 1 e 1 f 1", "+OK")]);
    one.expect(&["(\"invalidate\" [\"a\"])", "(\"invalidate\" [\"d\"])", "(\"invalidate\" [\"e\"])"]);
    expect_silence(&mut one);
    let mut other = tracker(&served, "OPTOUT");
    other.check(&[
        ("CLIENT CACHING YES", only_in_mode),
        ("CLIENT CACHING NO", "+OK"),
        ("GET a", "\"1\""),
        ("GET b", "\"1\""),
    ]);
    served.check(&[("MSET a 2 b 2", "+OK")]);
    other.expect(&["(\"invalidate\" [\"b\"])"]);
    expect_silence(&mut other);
}

#[test]
fn any_command_ends_what_caching_has_begun() {
    let served = Served::start();
    let mut out = tracker(&served, "OPTOUT");
    for line in ["EVAL return 0", "BLPOP none 0.001", "GET", "NOTHING", "EVAL_RO return 0"] {
        out.check(&[("CLIENT CACHING NO", "+OK")]);
        out.line(line);
        out.check(&[("GET a", "nil")]);
        served.check(&[("DEL a", ":0"), ("SET a 1", "+OK"), ("DEL a", ":1")]);
        out.expect(&["(\"invalidate\" [\"a\"])"]);
    }
    // A script is one command.
    let mut opted = tracker(&served, "OPTIN");
    opted.check(&[("CLIENT CACHING YES", "+OK")]);
    let script = "redis.call('get', 'a'); return redis.call('get', 'b')";
    opted.call(&["EVAL_RO", script, "0"]);
    opted.check(&[("GET c", "nil")]);
    served.check(&[("MSET a 1 b 1 c 1", "+OK")]);
    opted.expect(&["(\"invalidate\" [\"a\"])", "(\"invalidate\" [\"b\"])"]);
    expect_silence(&mut opted);
}

#[test]
fn streams_that_were_read_are_tracked() {
    let served = Served::start();
    served.check(&[("XADD s 1-1 f v", "\"1-1\"")]);
    let mut one = tracker(&served, "");
    one.line("XREAD STREAMS s 0");
    served.check(&[("XADD s 2-1 f v", "\"2-1\"")]);
    one.expect(&["(\"invalidate\" [\"s\"])"]);
    // One that waits gets what it waits for, and is told of the next change.
    one.send_line("XREAD BLOCK 0 STREAMS s $");
    let mut other = served.client();
    other.wait_for_blocked(1);
    other.line("XADD s 3-1 f v");
    let mut seen = vec![one.reply().expect("a push or the reply").to_string()];
    seen.push(one.reply().expect("the other").to_string());
    assert!(seen.iter().any(|reply| reply.contains("3-1")), "{seen:?}");
    other.line("XADD s 4-1 f v");
    one.expect(&["(\"invalidate\" [\"s\"])"]);
}

#[test]
fn broadcasts_are_for_prefixes() {
    let served = Served::start();
    let mut one = tracker(&served, "BCAST PREFIX a PREFIX b");
    let mut all = tracker(&served, "BCAST NOLOOP");
    served.check(&[("MSET a1 1 c 1 b1 1 a2 1", "+OK")]);
    one.expect(&["(\"invalidate\" [\"a1\" \"a2\"])", "(\"invalidate\" [\"b1\"])"]);
    all.expect(&["(\"invalidate\" [\"a1\" \"a2\" \"b1\" \"c\"])"]);
    all.check(&[("SET c 1", "+OK"), ("PING", "+PONG")]);
    let switch = "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                  re-enabling it with a different mode.";
    let overlap = |given, which, other| {
        format!(
            "-ERR Prefix '{given}' overlaps with {which} prefix '{other}'. Prefixes for a single client must \
             not overlap."
        )
    };
    one.check(&[
        ("CLIENT TRACKING ON", switch),
        ("CLIENT TRACKING ON BCAST PREFIX ab", &overlap("ab", "an existing", "a")),
        ("CLIENT TRACKING ON BCAST PREFIX cd PREFIX c", &overlap("cd", "another provided", "c")),
        ("CLIENT TRACKING ON BCAST PREFIX d", "+OK"),
        (
            "CLIENT TRACKINGINFO",
            "{\"flags\" <\"on\" \"bcast\"> \"redirect\" :0 \"prefixes\" [\"a\" \"b\" \"d\"]}",
        ),
    ]);
    assert_eq!(field(&mut all, "tracking_total_prefixes"), "4");
    served.check(&[
        ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode"),
        ("CLIENT TRACKING ON REDIRECT 999", "-ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING perhaps", "-ERR syntax error"),
        (
            "CLIENT CACHING YES",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
             mode enabled",
        ),
        ("CLIENT GETREDIR", ":-1"),
    ]);
}

#[test]
fn invalidations_are_redirected() {
    let served = Served::start();
    let (mut one, mut target, mut writer) = (served.client(), served.client(), served.client());
    let id = target.line("CLIENT ID").integer();
    one.check(&[
        (&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK"),
        ("CLIENT GETREDIR", &format!(":{id}")),
        ("MGET a b", "[nil nil]"),
    ]);
    // A target with RESP2 that is not subscribed gets nothing.
    writer.check(&[("SET a 1", "+OK")]);
    target.check(&[
        ("PING", "+PONG"),
        ("SUBSCRIBE __redis__:invalidate", "[\"subscribe\" \"__redis__:invalidate\" :1]"),
    ]);
    writer.check(&[("SET b 1", "+OK"), ("FLUSHALL", "+OK")]);
    target.expect(&[
        "[\"message\" \"__redis__:invalidate\" [\"b\"]]",
        "[\"message\" \"__redis__:invalidate\" nil]",
    ]);
    one.line("HELLO 3");
    one.check(&[("GET a", "nil")]);
    target.check(&[("QUIT", "+OK")]);
    writer.check(&[("SET a 2", "+OK")]);
    one.expect(&[&format!("(\"tracking-redir-broken\" :{id})")]);
    one.check(&[(
        "CLIENT TRACKINGINFO",
        &format!("{{\"flags\" <\"on\" \"broken_redirect\"> \"redirect\" :{id} \"prefixes\" []}}"),
    )]);
    let line = one.line("CLIENT INFO").text();
    assert!(line.contains(" flags=tR ") && line.contains(&format!(" redir={id} ")), "{line}");
}

#[test]
fn flushes_and_expiry_invalidate() {
    let served = Served::start();
    let (mut one, mut writer) = (tracker(&served, ""), served.client());
    one.check(&[("GET a", "nil")]);
    writer.check(&[("FLUSHDB", "+OK"), ("SET a 1", "+OK")]);
    one.expect(&["(\"invalidate\" nil)"]);
    expect_silence(&mut one);
    writer.check(&[("SET soon 1 PX 20", "+OK")]);
    one.line("GET soon");
    while writer.line("DBSIZE").integer() > 1 {}
    // Read before or behind its end: if behind, the next write tells the client.
    writer.check(&[("SET soon 1", "+OK")]);
    one.expect(&["(\"invalidate\" [\"soon\"])"]);
}

#[test]
fn a_full_table_forgets_a_key_by_invalidating_it() {
    let served = Served::start();
    let mut one = tracker(&served, "");
    one.check(&[
        ("CONFIG SET tracking-table-max-keys 2", "+OK"),
        ("GET a", "nil"),
        ("GET b", "nil"),
        ("GET c", "nil"),
    ]);
    one.expect(&["(\"invalidate\" [\"a\"])"]);
    one.check(&[("CONFIG SET tracking-table-max-keys 1", "+OK")]);
    one.expect(&["(\"invalidate\" [\"b\"])"]);
    assert_eq!(field(&mut one, "tracking_total_keys"), "1");
}

#[test]
fn reset_ends_tracking() {
    let served = Served::start();
    let mut one = tracker(&served, "BCAST");
    one.check(&[("RESET", "+RESET"), ("CLIENT GETREDIR", ":-1")]);
    served.check(&[("SET a 1", "+OK")]);
    expect_silence(&mut one);
    assert_eq!(field(&mut one, "tracking_clients"), "0");
}
