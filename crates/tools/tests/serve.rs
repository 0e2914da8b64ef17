//! `karstdb serve` as a process: its line, its end by a signal, and what it leaves when it is
//! killed. In [`importing`], `karstdb import`.

#[path = "serve/importing.rs"]
mod importing;

use karst_testkit::random::Random;
use karst_testkit::redis_keys::{History, KEYS, Op, Output, State, reply};
use karst_testkit::tls::{Authority, connection};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::StreamOwned;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

/// Starts a server on a free port and waits for its line. Returns it with its address.
fn serve(db: &Path, options: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .arg("serve")
        .arg(db)
        .args(["--listen", "127.0.0.1:0"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program under test runs");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned();
    assert!(line.starts_with(&format!("serving {} at 127.0.0.1:", db.display())), "{line}");
    (child, address)
}

/// Sends a command of one line; returns the line of the reply, or `None` if the server has gone.
fn call(client: &mut BufReader<TcpStream>, line: &str) -> Option<String> {
    client.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
    let mut reply = String::new();
    client.read_line(&mut reply).ok()?;
    reply.strip_suffix("\r\n").map(str::to_owned)
}

fn connect(address: &str) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(address).expect("it listens"))
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it runs");
}

fn end(child: Child) -> std::process::Output {
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_signal_ends_it_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    for (number, by) in [Signal::SIGTERM, Signal::SIGINT].into_iter().enumerate() {
        let (child, address) = serve(&db, &["--threads", "2"]);
        let mut client = connect(&address);
        assert_eq!(call(&mut client, "INCR starts"), Some(format!(":{}", number + 1)));
        signal(&child, by);
        let output = end(child);
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("stopping"), "{output:?}");
        assert_eq!(call(&mut client, "PING"), None);
    }
}

#[test]
fn a_client_ends_it_by_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let (child, address) = serve(directory.path(), &[]);
    assert_eq!(call(&mut connect(&address), "SHUTDOWN"), None);
    assert!(end(child).status.success());
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for (round, appendfsync) in ["always", "everysec", "no", "always"].into_iter().enumerate() {
        let (child, address) = serve(directory.path(), &["--appendfsync", appendfsync]);
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = connect(&address);
                std::thread::spawn(move || {
                    let mut last = 0;
                    while let Some(reply) = call(&mut client, "INCR counter") {
                        last = reply.trim_start_matches(':').parse().expect("a number");
                    }
                    last
                })
            })
            .collect();
        // Once all of them count.
        let mut watcher = connect(&address);
        let enough = acknowledged + 200;
        let is_fewer = |reply: String| reply[1..].parse::<i64>().expect("a number") < enough;
        while call(&mut watcher, "INCR counter").is_some_and(is_fewer) {}
        signal(&child, Signal::SIGKILL);
        let counted = clients.into_iter().map(|client| client.join().expect("its replies are numbers"));
        acknowledged = counted.max().unwrap_or(0).max(enough);
        end(child);
        let (child, address) = serve(directory.path(), &[]);
        let mut client = connect(&address);
        let after: i64 =
            call(&mut client, "INCR counter").expect("it counts")[1..].parse().expect("a number");
        assert!(after > acknowledged, "round {round}: {acknowledged} was acknowledged, then came {after}");
        assert!(
            after <= acknowledged + 6,
            "round {round}: {acknowledged} was acknowledged, then came {after}"
        );
        acknowledged = after;
        signal(&child, Signal::SIGTERM);
        assert!(end(child).status.success());
    }
}

/// Sends an operation, behind `before` whose replies are dropped, and adds the call to the history.
/// Returns its output, or `None` if the server has gone.
fn call_on_keys(
    history: &History,
    client: &mut BufReader<TcpStream>,
    op: &Op,
    before: &str,
) -> Option<Output> {
    let (commands, count) = op.commands("g");
    let at = history.begin(op.clone(), unix_time());
    client.get_mut().write_all((before.to_owned() + &commands).as_bytes()).ok()?;
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    while replies.len() < before.lines().count() + count {
        match reply(&bytes) {
            Some((reply, len)) => {
                replies.push(reply);
                bytes.drain(..len);
            }
            None => {
                let more = client.fill_buf().ok().filter(|more| !more.is_empty())?;
                let len = more.len();
                bytes.extend_from_slice(more);
                client.consume(len);
            }
        }
    }
    Some(history.end(at, unix_time(), &replies[replies.len() - count..]))
}

/// Carries out operations until the server has gone.
fn operate(history: &History, client: &mut BufReader<TcpStream>, number: i64) {
    let mut random = Random::new(number as u64);
    for round in 1.. {
        let unique = (round * 100 + number) * 1000;
        let done = if random.one_in(6) {
            let at = random.index(KEYS);
            let watch = format!("WATCH {{g}}:{at}\r\n");
            match call_on_keys(history, client, &Op::Get(at), &watch) {
                Some(Output::Numbers(read)) => {
                    call_on_keys(history, client, &Op::Exchange(at, read[0], unique), "")
                }
                _ => None,
            }
        } else {
            let op = Op::draw(&mut random, unique, unix_time(), true);
            call_on_keys(history, client, &op, "")
        };
        if done.is_none() {
            return;
        }
    }
}

/// The clock that the server's deadlines are compared with, in milliseconds.
fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Clients on shared keys, in lives that end by a kill: the history is linearizable over all lives.
#[test]
fn shared_keys_are_linearizable_over_kills() {
    let directory = tempfile::tempdir().unwrap();
    let mut states = HashSet::from([State::default()]);
    for appendfsync in ["always", "everysec", "no", "always"] {
        let (child, address) = serve(directory.path(), &["--appendfsync", appendfsync, "--threads", "2"]);
        let history = History::default();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (history, mut client) = (&history, connect(&address));
                scope.spawn(move || operate(history, &mut client, number));
            }
            while history.len() < 400 {
                std::thread::yield_now();
            }
            signal(&child, Signal::SIGKILL);
        });
        end(child);
        let unanswered = history.end_unanswered();
        assert!(unanswered <= 4, "{unanswered}");
        let (child, address) = serve(directory.path(), &[]);
        assert!(call_on_keys(&history, &mut connect(&address), &Op::GetAll, "").is_some());
        signal(&child, Signal::SIGTERM);
        assert!(end(child).status.success());
        states = history.states_after(states);
    }
}

#[test]
fn what_cannot_be_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_karstdb"))
            .arg("serve")
            .arg(directory.path())
            .args(args)
            .output();
        let output = output.expect("the program under test runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = said(&["--listen", "0.0.0.0:0"]);
    assert!(code == Some(2) && text.contains("--requirepass"), "{text}");
    let (code, text) = said(&["--listen", "nowhere"]);
    assert!(code == Some(2) && text.contains("--listen nowhere"), "{text}");
    let (code, text) = said(&["--listen", "none"]);
    assert!(code == Some(2) && text.contains("--tls-listen"), "{text}");
    let (code, text) = said(&["--tls-listen", "127.0.0.1:0"]);
    assert!(code == Some(2) && text.contains("tls-cert-file is not set"), "{text}");
    let (code, text) = said(&["--tls-protocols", "TLSv1.1"]);
    assert!(code == Some(2) && text.contains("TLSv1.2"), "{text}");
    let (code, text) = said(&["--appendfsync", "sometimes"]);
    assert!(code == Some(2) && text.contains("always"), "{text}");
    let (code, text) = said(&["--options", "no_such_option=1"]);
    assert!(code == Some(2) && text.contains("no_such_option"), "{text}");
    let (child, address) = serve(&directory.path().join("db"), &[]);
    let output = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .arg("serve")
        .arg(directory.path().join("other"))
        .args(["--listen", &address])
        .output()
        .expect("the program under test runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("listen"), "{output:?}");
    signal(&child, Signal::SIGTERM);
    assert!(end(child).status.success());
}

#[test]
fn clients_of_tls_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().expect("a text").to_owned();
    let authority = Authority::new("authority");
    let (server, client) = (authority.identity(), authority.identity());
    std::fs::write(path("server.crt"), &server.certificate).unwrap();
    std::fs::write(path("server.key"), &server.key).unwrap();
    std::fs::write(path("ca.crt"), &authority.certificate).unwrap();
    let mut text = "listen none\ntls-listen 127.0.0.1:0\ntls-protocols TLSv1.2 TLSv1.3\n".to_owned();
    text += &format!("tls-cert-file {}\ntls-key-file {}\n", path("server.crt"), path("server.key"));
    std::fs::write(path("karst.conf"), text).unwrap();
    let serve = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_karstdb"))
            .args(["serve", &path("db"), "--config", &path("karst.conf")])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program under test runs")
    };
    // Clients need certificates, and whose is not said.
    let output = end(serve(&[]));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("tls-ca-cert-file is not set: tls-auth-clients is 'yes'"), "{error}");
    let mut child = serve(&["--tls-ca-cert-file", &path("ca.crt")]);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    let served = format!("serving {} at ", path("db"));
    let address = line.trim_end().strip_prefix(&*served).and_then(|line| line.strip_suffix(" with TLS"));
    let address = address.unwrap_or_else(|| panic!("{line}"));
    let session = connection(authority.client(Some(&client), &[]));
    let stream = TcpStream::connect(address).expect("it listens");
    let mut client = BufReader::new(StreamOwned::new(session, stream));
    client.get_mut().write_all(b"INCR a\r\n").unwrap();
    let mut reply = String::new();
    client.read_line(&mut reply).expect("a reply");
    assert_eq!(reply, ":1\r\n");
    signal(&child, Signal::SIGTERM);
    assert!(end(child).status.success());
    assert_eq!(client.read_to_string(&mut reply).expect("the end is told"), 0);
}

#[test]
fn settings_users_and_metrics_are_those_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("karst.conf");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("databases 3\ntimeout 9\nmetrics 127.0.0.1:0\nuser me on nopass ~* +@all\n");
    let db = directory.path().join("db");
    let file_name = file.to_str().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .arg("serve")
        .arg(&db)
        .args(["--listen", "127.0.0.1:0", "--config", file_name, "--databases", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program under test runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("a pipe");
    let (serving, metrics) = (line(), line());
    let address = serving.rsplit(' ').next().unwrap_or_default();
    let mut client = connect(address);
    assert_eq!(call(&mut client, "SELECT 1"), Some("+OK".to_owned()));
    assert_eq!(call(&mut client, "SELECT 2"), Some("-ERR DB index is out of range".to_owned()));
    assert_eq!(call(&mut client, "AUTH me x"), Some("+OK".to_owned()));
    assert_eq!(call(&mut client, "CONFIG SET timeout 11"), Some("+OK".to_owned()));
    assert_eq!(call(&mut client, "CONFIG REWRITE"), Some("+OK".to_owned()));
    assert!(std::fs::read_to_string(&file).unwrap().contains("databases 3\ntimeout 11\nmetrics"));
    let place = metrics.trim_start_matches("metrics at http://").trim_end_matches("/metrics");
    for (path, parts) in [
        (
            "/metrics",
            vec!["200 OK", "karst_commands_total{command=\"select\"} 2", "karst_db_total{ticker=\""],
        ),
        ("/other", vec!["404 Not Found"]),
    ] {
        let mut stream = TcpStream::connect(place).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        for part in parts {
            assert!(answer.contains(part), "{part} in {answer}");
        }
    }
    signal(&child, Signal::SIGTERM);
    assert!(end(child).status.success());
    write("threads 1\nnothing 1\n");
    let output = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .arg("serve")
        .arg(&db)
        .args(["--config", file_name])
        .output()
        .expect("the program under test runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("line 2: nothing: there is no such setting"),
        "{error}"
    );
}
