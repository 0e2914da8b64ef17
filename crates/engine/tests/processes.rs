//! Two processes and one database: a second writer is refused with an error that names the file,
//! readers are not refused, and a killed process blocks no other.
//!
//! The other process runs this test's program again.

use karst_engine::{Db, ErrorKind, Options, WriteOptions};
use karst_testkit::rocksdb_tools::{Killed, ldb};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const DIRECTORY: &str = "KARST_OTHER_PROCESS_DIR";
const TEST: &str = "one_process_writes_and_others_read";

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true)
}

/// The other process: opens the database and executes one command per line.
fn other(directory: &Path) {
    let mut db = match Db::open(directory, &options()) {
        Ok(db) => Some(db),
        Err(error) => return println!("told refused {:?} {error}", error.kind()),
    };
    println!("told opened");
    for (number, line) in std::io::stdin().lines().enumerate() {
        match line.unwrap().as_str() {
            "write" => {
                let db = db.as_ref().unwrap();
                let key = format!("key{number}");
                db.put_opt(&WriteOptions::synced(), &key, "of the other").unwrap();
                println!("told {key}");
            }
            "close" => {
                db.take().unwrap().close().unwrap();
                println!("told closed");
            }
            line => panic!("{line}"),
        }
    }
}

/// Another process with the database open.
struct Other {
    child: Killed,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(directory: &Path) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([TEST, "--exact", "--nocapture", "--test-threads=1"]).env(DIRECTORY, directory);
        let child: Child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = Killed(child);
        let asks = child.0.stdin.take().unwrap();
        let answers = BufReader::new(child.0.stdout.take().unwrap());
        let mut other = Self { child, asks, answers };
        let told = other.told();
        (other, told)
    }

    /// Returns the next answer, skipping the lines of the test harness.
    fn told(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other process has ended");
            if let Some((_, told)) = line.split_once("told ") {
                return told.trim().to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.asks, "{what}").unwrap();
        self.told()
    }
}

fn refused(directory: &Path) {
    let error = Db::open(directory, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    let lock = directory.join("LOCK");
    let text = error.to_string();
    assert!(text.contains(lock.to_str().unwrap()) && text.contains("open elsewhere"), "{text}");
}

#[test]
fn one_process_writes_and_others_read() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return other(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (mut first, told) = Other::start(path);
    assert_eq!(told, "opened");
    let mut keys = vec![first.ask("write")];
    refused(path);
    assert_eq!(Db::destroy(path, &options()).unwrap_err().kind(), ErrorKind::Locked);
    assert!(ldb(path, &["put", "k", "v"], b"").is_err(), "RocksDB is refused too");
    // Readers open and close it concurrently, and change nothing.
    for _ in 0..3 {
        let db = Db::open_read_only(path, &options()).unwrap();
        for key in &keys {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"of the other"[..]));
        }
        drop(db);
        keys.push(first.ask("write"));
    }
    // A third process is refused too.
    let (_third, told) = Other::start(path);
    assert!(told.starts_with("refused Locked") && told.contains("LOCK"), "{told}");
    keys.push(first.ask("write"));

    // The process is killed in the middle of the write.
    first.child.0.kill().unwrap();
    first.child.0.wait().unwrap();
    let db = Db::open(path, &options()).unwrap();
    for key in &keys {
        assert!(db.get(key).unwrap().is_some(), "{key} was acknowledged");
    }
    // Now this process has the lock and the other one is refused.
    let (_second, told) = Other::start(path);
    assert!(told.starts_with("refused Locked"), "{told}");
    db.put("key", "mine").unwrap();
    db.close().unwrap();
    // The closed handle still exists, but the lock is free.
    let (mut second, told) = Other::start(path);
    assert_eq!(told, "opened");
    assert_eq!(db.put("key", "late").unwrap_err().kind(), ErrorKind::Closed);
    second.ask("write");
    refused(path);
    assert_eq!(second.ask("close"), "closed");
    drop(db);
    let db = Db::open(path, &options()).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"mine"[..]));
}
