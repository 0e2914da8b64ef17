//! Missing permissions: a file system mounted read-only, files and directories without permission.
//! A refused call names the file and changes nothing; readable data is read.
//!
//! The first needs root. The others need another user, because root has all permissions: the test's
//! program runs again as one.

use karst_engine::{Db, ErrorKind, Options, WriteOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: &str = "KARST_NOT_WRITABLE_DIR";
const TEST: &str = "without_permission_the_file_is_named_and_nothing_changes";

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true)
}

/// Makes a database with a table and a log with an entry.
fn filled(path: &Path) {
    let db = Db::open(path, &options()).unwrap();
    db.put("flushed", "1").unwrap();
    db.flush(&Default::default()).unwrap();
    db.put_opt(&WriteOptions::synced(), "logged", "1").unwrap();
    db.close().unwrap();
}

fn reads(path: &Path) {
    let db = Db::open_read_only(path, &options()).unwrap();
    for key in ["flushed", "logged"] {
        assert!(db.get(key).unwrap().is_some(), "{key}");
    }
    assert_eq!(db.put("key", "1").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Returns names, sizes and modification times of all files.
fn state(path: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let mut state: Vec<_> = entries
        .map(|entry| {
            let metadata = entry.metadata().unwrap();
            (entry.path(), metadata.len(), metadata.modified().unwrap())
        })
        .collect();
    state.sort();
    state
}

fn run(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().is_ok_and(|status| status.success())
}

/// Unmounts when it is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        if !run(&format!("umount {0} || umount -l {0}", self.0.display())) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn on_a_file_system_for_reading_only_what_is_there_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("mount");
    std::fs::create_dir(&at).unwrap();
    if !run(&format!("mount -t tmpfs -o size=32m tmpfs {} 2>/dev/null", at.display())) {
        return eprintln!("not checked: mounting is not permitted here");
    }
    let mounted = Mounted(at.clone());
    let path = at.join("db");
    filled(&path);
    assert!(run(&format!("mount -o remount,ro {}", at.display())), "remount");
    let before = state(&path);
    reads(&path);
    for (what, outcome) in [
        ("open", Db::open(&path, &options()).map(drop)),
        ("create", Db::open(at.join("new"), &options()).map(drop)),
        ("destroy", Db::destroy(&path, &options())),
    ] {
        let error = outcome.expect_err(what);
        assert!(error.kind() == ErrorKind::Io, "{what}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("Read-only file system") && text.contains(at.to_str().unwrap()),
            "{what}: {text}"
        );
    }
    assert_eq!(state(&path), before);
    reads(&path);

    assert!(run(&format!("mount -o remount,rw {}", at.display())), "remount");
    let db = Db::open(&path, &options()).unwrap();
    assert!(db.get("logged").unwrap().is_some());
    db.put("later", "1").unwrap();
    drop(db);
    drop(mounted);
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn file_like(path: &Path, part: &str) -> PathBuf {
    let mut files: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.file_name().unwrap().to_str().unwrap().contains(part));
    files.sort();
    files.pop().unwrap_or_else(|| panic!("no file {part}"))
}

fn denied<T>(what: &str, outcome: karst_engine::Result<T>, file: &Path) {
    let error = outcome.err().unwrap_or_else(|| panic!("{what} went well"));
    let text = error.to_string();
    assert!(text.contains("Permission denied") && text.contains(file.to_str().unwrap()), "{what}: {text}");
}

/// Runs as a user other than root.
fn without_permission(directory: &Path) {
    let path = directory.join("db");
    filled(&path);
    let before = state(&path);

    // The directory cannot be written to.
    permit(&path, 0o555);
    reads(&path);
    denied("open", Db::open(&path, &options()), &path);
    // The directory cannot be entered.
    permit(&path, 0o000);
    denied("open", Db::open(&path, &options()), &path);
    denied("open for reading", Db::open_read_only(&path, &options()), &path);
    denied("list", Db::list_column_families(&path, &options()), &path);
    permit(&path, 0o755);
    assert_eq!(state(&path), before, "what was refused has changed something");
    // A new database beneath it cannot be created.
    permit(directory, 0o555);
    denied("create", Db::open(directory.join("new"), &options()), &directory.join("new"));
    permit(directory, 0o755);

    // One file cannot be read.
    for part in ["CURRENT", "MANIFEST", ".sst", ".log", "OPTIONS"] {
        let file = file_like(&path, part);
        permit(&file, 0o000);
        let read = Db::open_read_only(&path, &options());
        match part {
            // Tables are opened on access.
            ".sst" => denied(part, read.and_then(|db| db.get("flushed")), &file),
            _ => denied(part, read, &file),
        }
        denied(part, Db::open(&path, &options()).and_then(|db| db.get("flushed")), &file_like(&path, part));
        permit(&file, 0o644);
        if file.exists() {
            reads(&path);
        }
    }
    // LOCK and LOG, which reading does not need.
    for part in ["LOCK", "LOG"] {
        let file = path.join(part);
        permit(&file, 0o000);
        reads(&path);
        if part == "LOCK" {
            denied(part, Db::open(&path, &options()), &file);
        }
        permit(&file, 0o644);
    }
    let db = Db::open(&path, &options()).unwrap();
    assert!(db.get("flushed").unwrap().is_some() && db.get("logged").unwrap().is_some());

    // The directory of an open database loses its permission: calls that need a new file fail.
    permit(&path, 0o555);
    db.put("late", "1").unwrap();
    denied("flush", db.flush(&Default::default()), &path);
    assert!(db.get("late").unwrap().is_some(), "it is read as before");
    permit(&path, 0o755);
    db.resume().unwrap();
    db.put("later", "1").unwrap();
    db.flush(&Default::default()).unwrap();
    db.close().unwrap();
}

#[test]
fn without_permission_the_file_is_named_and_nothing_changes() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        without_permission(Path::new(&directory));
        return println!("checked");
    }
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    if !run("test \"$(id -u)\" = 0") {
        return without_permission(directory.path());
    }
    const AS_ANOTHER: [&str; 4] = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];
    // A copy, because the other user may not be able to reach the original.
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    permit(directory.path(), 0o777);
    let own = directory.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(54321), Some(54321)).unwrap();
    let output = Command::new(AS_ANOTHER[0]).args(&AS_ANOTHER[1..]).arg("true").status();
    if !output.is_ok_and(|status| status.success()) {
        return eprintln!("not checked: root cannot become another user here");
    }
    let output = Command::new(AS_ANOTHER[0])
        .args(&AS_ANOTHER[1..])
        .arg(&program)
        .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, &own)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("checked"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
