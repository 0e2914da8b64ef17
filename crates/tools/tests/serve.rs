//! `karstdb serve` as a process: its line, its end by a signal, and what it leaves when it is
//! killed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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

fn end(child: Child) -> Output {
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
