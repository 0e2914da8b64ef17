//! Publish and subscribe.

use crate::client::{Client, Served, encoded};

#[test]
fn messages_come_to_channels_and_patterns() {
    let served = Served::start();
    let (mut one, mut other, mut publisher) = (served.client(), served.client(), served.client());
    one.send_command(&["SUBSCRIBE", "a", "b", "a"]);
    one.expect(&["[\"subscribe\" \"a\" :1]", "[\"subscribe\" \"b\" :2]", "[\"subscribe\" \"a\" :2]"]);
    other.send_command(&["PSUBSCRIBE", "a*", "?"]);
    other.expect(&["[\"psubscribe\" \"a*\" :1]", "[\"psubscribe\" \"?\" :2]"]);
    publisher.check(&[
        ("PUBLISH a 1", ":3"),
        ("PUBLISH ab 2", ":1"),
        ("PUBLISH none 3", ":0"),
        ("SPUBLISH a 4", ":0"),
        ("PUBSUB CHANNELS", "[\"a\" \"b\"]"),
        ("PUBSUB CHANNELS [b-z]", "[\"b\"]"),
        ("PUBSUB NUMSUB a b c", "[\"a\" :1 \"b\" :1 \"c\" :0]"),
        ("PUBSUB NUMSUB", "[]"),
        ("PUBSUB NUMPAT", ":2"),
        ("PUBSUB SHARDCHANNELS", "[]"),
    ]);
    one.expect(&["[\"message\" \"a\" \"1\"]"]);
    other.expect(&[
        "[\"pmessage\" \"?\" \"a\" \"1\"]",
        "[\"pmessage\" \"a*\" \"a\" \"1\"]",
        "[\"pmessage\" \"a*\" \"ab\" \"2\"]",
    ]);
    one.send_command(&["UNSUBSCRIBE"]);
    one.expect(&["[\"unsubscribe\" \"a\" :1]", "[\"unsubscribe\" \"b\" :0]"]);
    one.check(&[("UNSUBSCRIBE", "[\"unsubscribe\" nil :0]"), ("GET k", "nil")]);
    other.check(&[("PUNSUBSCRIBE ?", "[\"punsubscribe\" \"?\" :1]")]);
    other.check(&[("PUNSUBSCRIBE none", "[\"punsubscribe\" \"none\" :1]")]);
    other.finish();
    assert!(other.is_closed());
    // The registry forgets a client that has left, once its connection has ended.
    while publisher.line("PUBSUB NUMPAT").integer() > 0 {}
    publisher.check(&[("PUBLISH a 1", ":0"), ("PUBSUB CHANNELS", "[]")]);
}

#[test]
fn shard_channels_are_a_space_of_their_own() {
    let served = Served::start();
    let (mut one, mut publisher) = (served.client(), served.client());
    one.check(&[("SSUBSCRIBE a", "[\"ssubscribe\" \"a\" :1]"), ("SUBSCRIBE b", "[\"subscribe\" \"b\" :1]")]);
    publisher.check(&[
        ("SPUBLISH a x", ":1"),
        ("PUBLISH a y", ":0"),
        ("PUBSUB SHARDCHANNELS *", "[\"a\"]"),
        ("PUBSUB SHARDNUMSUB a b", "[\"a\" :1 \"b\" :0]"),
    ]);
    one.expect(&["[\"smessage\" \"a\" \"x\"]"]);
    one.check(&[("SUNSUBSCRIBE", "[\"sunsubscribe\" \"a\" :0]")]);
    one.check(&[("SUNSUBSCRIBE", "[\"sunsubscribe\" nil :0]")]);
}

#[test]
fn a_subscribed_client_with_resp2_sends_few_commands() {
    let served = Served::start();
    let mut client = served.client();
    let refused = |command: &str| {
        format!(
            "-ERR Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        )
    };
    client.check(&[
        ("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]"),
        ("GET k", &refused("get")),
        ("CLIENT LIST", &refused("client|list")),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("PING", "[\"pong\" \"\"]"),
        ("PING x", "[\"pong\" \"x\"]"),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
        ("PUBSUB CHANNELS", "[]"),
        ("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]"),
        ("QUIT", "+OK"),
    ]);
    assert!(client.is_closed());
}

#[test]
fn a_subscribed_client_with_resp3_gets_pushes_beside_replies() {
    let served = Served::start();
    let (mut client, mut publisher) = (served.client(), served.client());
    assert!(client.line("HELLO 3").to_string().starts_with('{'));
    client.check(&[
        ("SUBSCRIBE a", "(\"subscribe\" \"a\" :1)"),
        ("SET k v", "+OK"),
        ("PING", "+PONG"),
        // The message of its own comes behind the reply.
        ("PUBLISH a own", ":1"),
    ]);
    client.expect(&["(\"message\" \"a\" \"own\")"]);
    publisher.check(&[("PUBLISH a x", ":1")]);
    client.expect(&["(\"message\" \"a\" \"x\")"]);
    client.send(&[encoded(&["CLIENT", "REPLY", "OFF"]), encoded(&["GET", "k"])].concat());
    client.send(&[encoded(&["SUBSCRIBE", "b"]), encoded(&["CLIENT", "REPLY", "ON"])].concat());
    client.expect(&["(\"subscribe\" \"b\" :2)", "+OK"]);
    client.check(&[
        ("UNSUBSCRIBE a", "(\"unsubscribe\" \"a\" :1)"),
        ("UNSUBSCRIBE b", "(\"unsubscribe\" \"b\" :0)"),
    ]);
}

#[test]
fn subscriptions_within_a_transaction_are_elements_of_its_reply() {
    let served = Served::start();
    served.check(&[
        ("MULTI", "+OK"),
        ("SUBSCRIBE a", "+QUEUED"),
        ("PUBLISH a x", "+QUEUED"),
        ("UNSUBSCRIBE a", "+QUEUED"),
        ("EXEC", "[[\"subscribe\" \"a\" :1] :1 [\"unsubscribe\" \"a\" :0]]"),
    ]);
}

#[test]
fn subscribers_are_listed_and_killed() {
    let served = Served::start();
    let (mut one, mut other) = (served.client(), served.client());
    let id = one.line("CLIENT ID").integer();
    one.send_command(&["SUBSCRIBE", "a", "b"]);
    one.expect(&["[\"subscribe\" \"a\" :1]", "[\"subscribe\" \"b\" :2]"]);
    one.check(&[
        ("PSUBSCRIBE c*", "[\"psubscribe\" \"c*\" :3]"),
        ("SSUBSCRIBE d", "[\"ssubscribe\" \"d\" :1]"),
    ]);
    let line = other.line(&format!("CLIENT LIST ID {id}")).text();
    assert!(line.contains(" flags=P ") && line.contains(" sub=2 psub=1 ssub=1 "), "{line}");
    assert_eq!(other.line("CLIENT LIST TYPE pubsub").text().lines().count(), 1);
    assert_eq!(other.line("CLIENT LIST TYPE normal").text().lines().count(), 1);
    let info = other.line("INFO stats").text();
    for field in ["pubsub_channels:2", "pubsub_patterns:1", "pubsubshard_channels:1"] {
        assert!(info.contains(&format!("\r\n{field}\r\n")), "{field} in {info}");
    }
    other.check(&[("CLIENT KILL TYPE pubsub", ":1"), ("PING", "+PONG")]);
    assert!(one.is_closed());
    other.check(&[
        ("PUBSUB NUMPAT x", "-ERR wrong number of arguments for 'pubsub|numpat' command"),
        ("PUBSUB NOTHING", "-ERR unknown subcommand 'NOTHING'. Try PUBSUB HELP."),
        (
            "PUBSUB CHANNELS a b",
            "-ERR unknown subcommand or wrong number of arguments for 'channels'. Try PUBSUB HELP.",
        ),
    ]);
}

#[test]
fn a_client_that_takes_no_messages_is_closed() {
    let served = Served::start();
    let (mut slow, mut publisher) = (served.client(), served.client());
    publisher.check(&[
        ("CONFIG SET client-output-buffer-limit x", "-ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Wrong number of arguments in buffer limit configuration."),
    ]);
    let set = publisher.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
    assert_eq!(set.to_string(), "+OK");
    publisher.check(&[(
        "CONFIG GET client-output-buffer-limit",
        "[\"client-output-buffer-limit\" \"normal 0 0 0 slave 0 0 0 pubsub 1048576 0 0\"]",
    )]);
    slow.check(&[("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]")]);
    let message = "x".repeat(300_000);
    // The sockets take some of them.
    while publisher.call(&["PUBLISH", "a", &message]).integer() > 0 {}
    // Those that were sent come, and then the end.
    let mut come = 0;
    while let Some(reply) = partial(&mut slow) {
        assert_eq!(reply, message);
        come += 1;
    }
    assert!(come > 0);
}

/// The text of a message; `None` if the connection ends before its end.
fn partial(client: &mut Client) -> Option<String> {
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.reply()));
    Some(read.ok()??.list().pop()?.text())
}

#[test]
fn messages_of_many_publishers_come_in_one_order() {
    let served = Served::start();
    let mut subscribers: Vec<_> = (0..4).map(|_| served.client()).collect();
    for subscriber in &mut subscribers {
        subscriber.check(&[("PSUBSCRIBE *", "[\"psubscribe\" \"*\" :1]")]);
    }
    std::thread::scope(|scope| {
        for number in 0..4 {
            let mut publisher = served.client();
            scope.spawn(move || {
                for round in 0..200 {
                    assert_eq!(publisher.line(&format!("PUBLISH {number} {round}")).integer(), 4);
                }
            });
        }
    });
    let mut orders = subscribers.iter_mut().map(|subscriber| {
        let messages: Vec<String> =
            (0..800).map(|_| subscriber.reply().expect("a message").to_string()).collect();
        for number in 0..4 {
            let of_one = messages.iter().filter(|it| it.contains(&format!("\"*\" \"{number}\"")));
            let expected = (0..200).map(|round| format!("[\"pmessage\" \"*\" \"{number}\" \"{round}\"]"));
            assert!(of_one.cloned().eq(expected), "messages of publisher {number}");
        }
        messages
    });
    let first = orders.next().expect("a subscriber");
    assert!(orders.all(|order| order == first));
}
