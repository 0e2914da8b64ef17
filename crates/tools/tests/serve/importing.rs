//! `karstdb import`: from a server with values of all types, from a file, and from servers that are
//! old, lose keys, go away or never answer.

use super::{call, connect, end, serve, signal};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

fn import(source: &str, db: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karstdb"));
    command.arg("import").arg(source).arg(db).args(options).env_remove("REDISCLI_AUTH");
    command
}

/// Runs an import. Returns its exit code, and the texts of both of its outputs.
fn imported(mut command: Command) -> (Option<i32>, String) {
    said(&command.output().expect("the program under test runs"))
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

/// Sends a command; returns the bytes of its reply, which has no arrays.
fn ask(client: &mut BufReader<TcpStream>, words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend([word, &b"\r\n"[..]].concat());
    }
    client.get_mut().write_all(&request).unwrap();
    let mut reply = Vec::new();
    client.read_until(b'\n', &mut reply).unwrap();
    if let Some(length) = reply.strip_prefix(b"$").filter(|length| !length.starts_with(b"-")) {
        let length: usize = std::str::from_utf8(length).unwrap().trim().parse().unwrap();
        reply.resize(reply.len() + length + 2, 0);
        let begin = reply.len() - length - 2;
        client.read_exact(&mut reply[begin..]).unwrap();
    }
    reply
}

/// Returns the value and the expiry of a key, as replies.
fn state(client: &mut BufReader<TcpStream>, key: &[u8]) -> [Vec<u8>; 2] {
    [ask(client, &[b"DUMP", key]), ask(client, &[b"PEXPIRETIME", key])]
}

const COMMANDS: &str = "\
SET string hello
SET number 12345 PXAT 4102444800123
SET old 1 PXAT 1
RPUSH list a b 3 d
SADD integers 1 2 300
SADD members x y z
HSET hash f v g 7
HSET fields f v g 7 h 8
HPEXPIREAT fields 4102444800456 FIELDS 2 f g
PEXPIREAT fields 4102444800789
ZADD scores 1.5 a -2 b inf c
GEOADD places 13.4 52.5 berlin
PFADD estimate a b c
SETBIT bits 9 1
SELECT 2
SET string of-another-database
XADD stream 1-1 f v
XADD stream 2-5 f w g 1
XADD stream 3-0 h x
XDEL stream 1-1
XGROUP CREATE stream group 0
XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >
XADD empty 1-1 f v
XDEL empty 1-1
SELECT 7
SET last 1";

#[test]
fn a_server_is_imported_with_all_types() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let (source, address) = serve(&from, &["--requirepass", "se/cret"]);
    let mut client = connect(&address);
    assert_eq!(call(&mut client, "AUTH se/cret").as_deref(), Some("+OK"));
    for line in COMMANDS.lines() {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = ask(&mut client, &words);
        assert!(!reply.starts_with(b"-"), "{line}: {}", String::from_utf8_lossy(&reply));
        if let Some(count) = reply.strip_prefix(b"*") {
            // The elements of an array are those of one stream.
            let nested = if line.starts_with('X') { 10 } else { count[0] - b'0' };
            (0..nested).for_each(|_| drop(ask_nothing(&mut client)));
        }
    }
    assert_eq!(call(&mut client, "SELECT 0").as_deref(), Some("+OK"));
    let large = vec![b'v'; 5 << 20];
    assert_eq!(ask(&mut client, &[b"SET", b"large\r\n\0\xff", &large]), b"+OK\r\n");
    for number in 0..2500 {
        ask(&mut client, &[b"SET", format!("key:{number}").as_bytes(), b"v"]);
    }
    let code = b"#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    assert_eq!(ask(&mut client, &[b"FUNCTION", b"LOAD", code]), b"$3\r\nlib\r\n");

    // Without the password, and with too few databases.
    let url = format!("redis://{address}");
    let (code, text) = imported(import(&url, &to, &[]));
    assert!(code == Some(1) && text.contains("NOAUTH"), "{text}");
    let with_password = format!("redis://default:se%2Fcret@{address}");
    let (code, text) = imported(import(&with_password, &to, &["--databases", "7"]));
    assert!(code == Some(1) && text.contains("--databases 8 is needed"), "{text}");
    assert!(!to.exists(), "no database is made for a source that is refused");

    // One database by itself, then all.
    let (code, text) = imported(import(&format!("redis://:se%2Fcret@{address}/2"), &to, &[]));
    assert!(code == Some(0) && text.starts_with("3 keys of "), "{text}");
    let mut command = import(&url, &to, &[]);
    let (code, text) = imported({
        command.env("REDISCLI_AUTH", "se/cret");
        command
    });
    assert!(code == Some(1) && text.contains("3 keys were there already"), "{text}");
    let (code, text) = imported(import(&with_password, &to, &["--replace"]));
    assert_eq!(code, Some(0), "{text}");
    for part in ["2516 keys of ", "2507 strings", "2 streams", "2 hashes", "1 libraries of functions"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let (target, target_address) = serve(&to, &[]);
    let mut other = connect(&target_address);
    assert_eq!(ask(&mut client, &[b"FUNCTION", b"DUMP"]), ask(&mut other, &[b"FUNCTION", b"DUMP"]));
    let names = [
        "string number list integers members hash fields scores places estimate bits",
        "string stream empty",
        "last",
    ];
    let numbers: Vec<String> = (0..2500).map(|number| format!("key:{number}")).collect();
    for (db, names) in ["0", "2", "7"].into_iter().zip(names) {
        for client in [&mut client, &mut other] {
            assert_eq!(call(client, &format!("SELECT {db}")).as_deref(), Some("+OK"));
        }
        let size = call(&mut client, "DBSIZE");
        assert_eq!(call(&mut other, "DBSIZE"), size);
        let more: &[String] = if db == "0" { &numbers } else { &[] };
        for name in names.split(' ').map(str::as_bytes).chain(more.iter().map(String::as_bytes)) {
            let expected = state(&mut client, name);
            assert!(!expected[0].starts_with(b"$-1"), "{}", String::from_utf8_lossy(name));
            assert_eq!(state(&mut other, name), expected, "{}", String::from_utf8_lossy(name));
        }
    }
    for client in [&mut client, &mut other] {
        call(client, "SELECT 0");
    }
    assert!(state(&mut client, b"large\r\n\0\xff") == state(&mut other, b"large\r\n\0\xff"));
    for child in [source, target] {
        signal(&child, Signal::SIGTERM);
        assert!(end(child).status.success());
    }
}

/// Takes one line or string of a reply with arrays.
fn ask_nothing(client: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut line = Vec::new();
    client.read_until(b'\n', &mut line).unwrap();
    if line.starts_with(b"$") {
        client.read_until(b'\n', &mut line).unwrap();
    }
    line
}

#[test]
fn a_file_is_imported_and_its_faults_have_places() {
    let directory = tempfile::tempdir().unwrap();
    let (file, db) = (directory.path().join("dump.rdb"), directory.path().join("db"));
    let name = file.to_str().unwrap();
    let text_of = |source: &str, options: &[&str]| imported(import(source, &db, options));
    let whole = b"REDIS0010\xfa\x01a\x01b\xfe\x01\xfb\x02\0\0\x01k\x05hello\xfc\x01\0\0\0\0\0\0\0\0\x03old\x01v\xff\0\0\0\0\0\0\0\0";
    std::fs::write(&file, &whole[..30]).unwrap();
    let (code, text) = text_of(name, &[]);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("karstdb: {name}: offset 30: the file ends too early")), "{text}");
    assert!(text.contains("--replace completes it"), "{text}");
    std::fs::write(&file, whole).unwrap();
    let (code, text) = text_of(name, &["--replace"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("1 keys of 7 bytes imported in "), "{text}");
    assert!(
        text.contains("1 strings\n") && text.contains("1 keys left out, because they have expired"),
        "{text}"
    );

    let (child, address) = serve(&db, &[]);
    let mut client = connect(&address);
    call(&mut client, "SELECT 1");
    assert_eq!(ask(&mut client, &[b"GET", b"k"]), b"$5\r\nhello\r\n");
    let (code, text) = text_of(name, &[]);
    assert!(code == Some(1) && text.to_ascii_lowercase().contains("lock"), "{text}");
    signal(&child, Signal::SIGTERM);
    assert!(end(child).status.success());

    for (source, code, why) in [
        ("rediss://localhost", 2, "--tls --rdb"),
        ("http://localhost", 2, "http://"),
        ("redis://127.0.0.1:1", 1, "127.0.0.1:1"),
        ("/no/such/file", 1, "/no/such/file"),
    ] {
        let (found, text) = text_of(source, &[]);
        assert!(found == Some(code) && text.contains(why), "{text}");
    }
    let (code, text) = text_of(name, &["--databases", "1"]);
    assert!(code == Some(1) && text.contains("of database 1: the number of databases is 1"), "{text}");
}

/// Listens, and answers the requests of one client; `None` ends the connection.
fn fake(mut answer: impl FnMut(&[String]) -> Option<String> + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut client = BufReader::new(listener.accept().unwrap().0);
        let line = |client: &mut BufReader<TcpStream>| {
            let mut line = String::new();
            client.read_line(&mut line).ok().filter(|read| *read > 0)?;
            Some(line.trim_end().to_owned())
        };
        while let Some(count) = line(&mut client) {
            let count: usize = count[1..].parse().unwrap();
            let mut words = Vec::new();
            for _ in 0..count {
                line(&mut client);
                words.extend(line(&mut client));
            }
            let Some(reply) = answer(&words) else { return };
            if client.get_mut().write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    });
    (url, thread)
}

/// Answers of Redis 4 whose SCAN has a key twice, and one that is gone when it is read. All bytes
/// of the payload of a string `1` are ASCII but its checksum, so keys have none.
fn old_server(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    Some(match &words[..] {
        ["INFO", _] => bulk("# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\n"),
        ["PEXPIRETIME" | "FUNCTION", ..] => format!("-ERR unknown command '{}'\r\n", words[0]),
        ["SELECT", _] => "+OK\r\n".to_owned(),
        ["SCAN", "0", ..] => format!("*2\r\n{}*2\r\n{}{}", bulk("9"), bulk("gone"), bulk("a")),
        ["SCAN", "9", ..] => format!("*2\r\n{}*2\r\n{}{}", bulk("0"), bulk("a"), bulk("module")),
        ["DUMP", "gone"] => "$-1\r\n".to_owned(),
        ["PTTL", "gone"] => ":-2\r\n".to_owned(),
        ["DUMP", _] => bulk("\u{7}\u{1}0123456789"),
        ["PTTL", "a"] => ":100000\r\n".to_owned(),
        ["PTTL", _] => ":-1\r\n".to_owned(),
        _ => panic!("{words:?}"),
    })
}

#[test]
fn a_server_without_newer_commands_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (url, thread) = fake(old_server);
    let (code, text) = imported(import(&url, directory.path(), &[]));
    thread.join().unwrap();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("3 keys or libraries were refused"), "{text}");
    assert!(text.contains("refused: key \"module\" of database 0: a value of the module type"), "{text}");
    assert!(text.contains("1 keys left out, because they were gone"), "{text}");
}

#[test]
fn a_connection_that_is_lost_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let (url, thread) =
        fake(|words| if words[0] == "SCAN" && words[1] == "9" { None } else { old_server(words) });
    let (code, text) = imported(import(&url, directory.path(), &[]));
    thread.join().unwrap();
    assert!(code == Some(1) && text.contains("the connection was lost after 0 keys"), "{text}");
    let (url, thread) = fake(|_| Some("HTTP/1.1 400 Bad Request\r\n".to_owned()));
    let (code, text) = imported(import(&url, directory.path(), &[]));
    thread.join().unwrap();
    assert!(code == Some(1) && text.contains("is it a Redis server?"), "{text}");
}

#[test]
fn a_signal_ends_an_import_that_waits() {
    let directory = tempfile::tempdir().unwrap();
    for by in [Signal::SIGINT, Signal::SIGTERM] {
        let (tell, told) = std::sync::mpsc::channel();
        let (url, thread) = fake(move |words| {
            if words[0] != "SCAN" {
                return old_server(words);
            }
            let _is_told = tell.send(());
            // It never answers.
            Some(String::new())
        });
        let mut command = import(&url, directory.path(), &[]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        told.recv().unwrap();
        signal(&child, by);
        let (code, text) = said(&end(child));
        thread.join().unwrap();
        assert!(code == Some(1) && text.contains("interrupted"), "{text}");
    }
}
