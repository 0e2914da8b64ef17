//! Pipelines: order, windows, endless ones, and clients that read slowly.

use crate::client::{Reply, Served, encoded};

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let served = Served::start();
    let mut client = served.client();
    let mut bytes = Vec::new();
    for n in 0..1000 {
        let (key, value) = (format!("k{}", n % 10), n.to_string());
        bytes.extend(encoded(&["SET", &key, &value]));
        bytes.extend(encoded(&["GET", &key]));
        bytes.extend(encoded(&["GET", &format!("k{}", (n + 1) % 10)]));
        bytes.extend(encoded(&["ECHO", &value]));
    }
    client.send(&bytes);
    for n in 0..1000 {
        assert_eq!(client.reply().unwrap().to_string(), "+OK");
        assert_eq!(client.reply().unwrap().to_string(), format!("\"{n}\""));
        let before = if n < 9 { "nil".to_owned() } else { format!("\"{}\"", n - 9) };
        assert_eq!(client.reply().unwrap().to_string(), before, "at {n}");
        assert_eq!(client.reply().unwrap().to_string(), format!("\"{n}\""));
    }
}

#[test]
fn errors_within_a_window_are_answers_of_their_own_requests() {
    let served = Served::start();
    let mut client = served.client();
    client.send(b"GET\r\nSET k v\r\nGET k\r\nEXISTS k k\r\nNONE\r\nGET k\r\nSTRLEN k\r\nMGET k\r\n");
    let answers: Vec<String> = (0..8).map(|_| client.reply().unwrap().to_string()).collect();
    let expected = [
        "-ERR wrong number of arguments for 'get' command",
        "+OK",
        "\"v\"",
        ":2",
        "-ERR unknown command 'NONE', with args beginning with: ",
        "\"v\"",
        ":1",
        "[\"v\"]",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn gets_between_other_reads_answer_in_their_places() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("SET a 1", "+OK"), ("RPUSH l x", ":1"), ("SET c 3", "+OK")]);
    let requests = "GET a\r\nGET none\r\nSTRLEN a\r\nGET c\r\nGET l\r\nGET a\r\nGET\r\nGET c\r\n".repeat(40);
    client.send(requests.as_bytes());
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let arity = "-ERR wrong number of arguments for 'get' command";
    for round in 0..40 {
        for expected in ["\"1\"", "nil", ":1", "\"3\"", wrong, "\"1\"", arity, "\"3\""] {
            assert_eq!(client.reply().unwrap().to_string(), expected, "in round {round}");
        }
    }
}

#[test]
fn a_slow_reader_gets_everything() {
    let served = Served::start();
    let (mut slow, mut other) = (served.client(), served.client());
    let value = vec![b'x'; 1 << 20];
    slow.call(&[b"SET".as_slice(), b"k", &value]);
    // 64 MiB of answers, which no socket buffers.
    slow.send(&encoded(&["GET", "k"]).repeat(64));
    other.check(&[("PING", "+PONG"), ("STRLEN k", ":1048576")]);
    for _ in 0..64 {
        assert_eq!(slow.reply(), Some(Reply::Bulk(value.clone())));
    }
}

#[test]
fn replies_that_a_client_does_not_want() {
    let served = Served::start();
    let mut client = served.client();
    client.send(b"CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\nCLIENT REPLY OFF\r\nGET a\r\nSET b 2\r\n");
    client.send(b"CLIENT REPLY ON\r\nGET b\r\n");
    let answers: Vec<String> = (0..3).map(|_| client.reply().unwrap().to_string()).collect();
    assert_eq!(answers, ["\"1\"", "+OK", "\"2\""]);
}

#[test]
fn writers_that_are_committed_together_see_each_other() {
    let served = Served::start();
    let mut client = served.client();
    let mut bytes = Vec::new();
    let requests = [
        "SET k 1",
        "INCR k",
        "APPEND k x",
        "INCR k",
        "GETSET k 7",
        "COPY k l",
        "DEL k",
        "INCR k",
        "MOVE l 1",
    ];
    requests.iter().for_each(|line| bytes.extend(encoded(&line.split(' ').collect::<Vec<_>>())));
    client.send(&bytes);
    let answers: Vec<String> = requests.iter().map(|_| client.reply().unwrap().to_string()).collect();
    let not_an_integer = "-ERR value is not an integer or out of range";
    assert_eq!(answers, ["+OK", ":2", ":2", not_an_integer, "\"2x\"", ":1", ":1", ":1", ":1"]);
    client.check(&[("MGET k l", "[\"1\" nil]"), ("SELECT 1", "+OK"), ("GET l", "\"7\"")]);
}
