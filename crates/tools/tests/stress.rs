//! `karstdb stress`: it passes on a sound database, with kills; it fails on a manipulated one and
//! names the place; and a seed repeats a run.

use karst_engine::{Db, Options, WriteOptions};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A database so small that one process life changes much of it.
const SMALL: [&str; 5] =
    ["-max_key=1500", "-column_families=3", "-threads=3", "-async_jobs=8", "-progress_every=0"];

fn stress(db: &Path, args: &[&str]) -> Output {
    let flag = format!("-db={}", db.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .args(["stress", &flag, "-json"])
        .args(SMALL)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program under test runs");
    // Kept open, because a process life ends when its standard input closes.
    let _stdin = child.stdin.take();
    child.wait_with_output().expect("it ends")
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

fn number(report: &Value, name: &str) -> u64 {
    report["counts"][name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

fn passes(db: &Path, args: &[&str]) -> Value {
    let output = stress(db, args);
    let report = report(&output);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && report["errors"] == 0, "{report}\n{stderr}");
    report
}

/// Repeats runs of `lives` lives and returns their reports, until `enough` holds: the number of
/// operations per run depends on the machine. Lives of `life_ms` milliseconds at first, and of
/// longer ones from the fifth run on, because a busy machine may need a short life for its opening
/// alone.
fn passes_until(
    db: &Path,
    args: &[&str],
    (lives, life_ms): (usize, usize),
    enough: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let mut reports = Vec::new();
    while !enough(&reports) {
        assert!(reports.len() < 30, "{reports:?}");
        let life_ms = life_ms * (1 + reports.len() / 4);
        let (duration, interval) =
            (format!("-duration={}ms", lives * life_ms), format!("-interval={life_ms}ms"));
        reports.push(passes(db, &[args, &[&duration, &interval]].concat()));
    }
    reports
}

/// Returns true if each of these counts is positive in some run.
fn all_done(reports: &[Value], names: &[&str]) -> bool {
    names.iter().all(|name| reports.iter().any(|report| number(report, name) > 0))
}

/// Changes an entry, or removes it.
fn change(db: &Path, family: &str, key: &str, value: Option<&str>) {
    let db = Db::open(db, &Options::new()).unwrap();
    let (family, o) = (db.column_family(family).unwrap(), WriteOptions::default());
    match value {
        Some(value) => db.put_cf(&o, &family, key, value).unwrap(),
        None => db.delete_cf(&o, &family, key).unwrap(),
    }
    db.close().unwrap();
}

/// Returns the key and the value of an existing row.
fn some_row(db: &Path, family: &str, prefix: &str) -> (String, String) {
    let db = Db::open_read_only(db, &Options::new()).unwrap();
    let family = db.column_family(family).unwrap();
    let o = karst_engine::ReadOptions { total_order_seek: true, ..Default::default() };
    let mut iter = db.iter_cf(&o, &family).unwrap();
    iter.seek(prefix).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(iter.key()), text(iter.value()))
}

#[test]
fn kills_and_reopenings_pass_and_a_later_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    // Only the last life is closed, because with few random lives almost all could be.
    let names = ["operations", "batches", "scans", "entries_checked_in_reads", "keys_verified_after_opening"];
    let reports = passes_until(&db, &["-close_one_in=0"], (7, 700), |reports| {
        let killed: u64 = reports.iter().map(|report| report["killed"].as_u64().unwrap()).sum();
        killed >= 3 && all_done(reports, &names)
    });
    assert!(reports.iter().all(|report| report["closed"] == 1), "{reports:?}");
    let report = &reports[0];
    let again = passes(&db, &["-duration=1s", "-interval=0"]);
    assert_eq!((&again["seed"], &again["killed"]), (&report["seed"], &Value::from(0)));
    // A database made with other flags is refused.
    let other = stress(&db, &["-duration=1s", "-column_families=5"]);
    let stderr = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && stderr.contains("the database was made with"), "{stderr}");
}

/// Checkpoints, restored backups and ingested files are correct, with kills in the middle of them,
/// and only the backups remain of the copies.
#[test]
fn copies_and_ingested_files_are_what_they_must_be() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let often =
        ["-checkpoint_one_in=60", "-backup_one_in=120", "-ingest_external_file_one_in=10", "-close_one_in=3"];
    let names = ["checkpoints", "backups", "batches_ingested_as_files"];
    passes_until(&db, &often, (6, 1000), |reports| all_done(reports, &names));
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    left.sort_unstable();
    left.retain(|name| name != "db.saved");
    assert_eq!(left, ["db", "db.backups", "db.expected"]);
}

/// Covers imports, clips, timestamps, files ingested behind, bulk loads and backups restored in
/// place, each with kills in the middle.
#[test]
fn families_of_one_lane_and_whole_copies_are_what_they_must_be() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let often = [
        "-clear_column_family_one_in=10",
        "-import_column_family_one_in=30",
        "-clip_column_family_one_in=30",
        "-user_timestamp_size=8",
        "-timestamped_write_one_in=5",
        "-ingest_behind_one_in=10",
        "-bulk_load_one_in=100",
        "-whole_copy_one_in=2",
        "-restore_in_place_one_in=2",
        "-close_one_in=3",
    ];
    let names = [
        "column_families_imported",
        "column_families_clipped",
        "steps_with_timestamps",
        "steps_before_and_behind_files",
        "bulk_loads",
        "whole_copies_verified",
        "backups_restored_in_place",
    ];
    passes_until(&db, &often, (6, 1000), |reports| all_done(reports, &names));
}

/// Manipulations are found and named: a changed value, an entry that was never written, and a
/// missing one.
#[test]
fn a_value_changed_behind_its_back_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    // Without a family that cannot be opened with default options.
    let once = ["-ops_per_thread=1500", "-interval=0", "-duration=1h", "-user_timestamp_size=0"];
    passes(&db, &once);
    let (key, value) = some_row(&db, "family1", "v");
    let (of_list, items) = some_row(&db, "family1", "m");
    let cases: [(&str, &str, Option<&str>, [&str; 2]); 5] = [
        ("family1", &key, Some("changed"), [&value[..8], "found \"changed\""]),
        ("family1", &of_list, None, [&items[..1], "found nothing"]),
        ("default", "vzzz", Some("new"), ["it was never written", "found \"new\""]),
        ("behind", "zzz", Some("new"), ["expected nothing", "it was never written"]),
        ("default", "a00000000001", Some("12345678"), ["sum of all accounts", "it is "]),
    ];
    for (family, key, value, said) in cases {
        let copy = dir.path().join("copy");
        copy_all(&db, &copy);
        copy_all(&beside(&db), &beside(&copy));
        change(&copy, family, key, value);
        let output = stress(&copy, &once);
        let report = report(&output);
        assert_eq!((output.status.code(), &report["errors"]), (Some(1), &Value::from(1)), "{report}");
        let what = report["failure"]["what"].as_str().expect("it says what");
        assert!(said.iter().all(|text| what.contains(text)), "{key}: {what}");
        assert!(key.starts_with('a') || (what.contains(family) && what.contains(key)), "{key}: {what}");
        let options = report["failure"]["options"].as_str().expect("it says where");
        assert!(std::fs::read_to_string(options).unwrap().contains("write_buffer_size="), "{options}");
        // The database is unchanged, and can be checked again.
        let look = report["failure"]["look_again"].as_str().expect("it says how");
        let args: Vec<&str> = look.split(' ').skip(1).collect();
        let again = Command::new(env!("CARGO_BIN_EXE_karstdb")).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&again.stderr);
        assert!(!again.status.success() && stderr.contains("mismatch"), "{look}: {stderr}");
        std::fs::remove_dir_all(&copy).unwrap();
        std::fs::remove_dir_all(beside(&copy)).unwrap();
    }
}

/// Lost acknowledged writes are found: half of the log is cut off.
#[test]
fn acknowledged_writes_that_are_lost_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let args = [
        "-norandom_options",
        "-txn_lives_percent=0",
        "-avoid_flush_during_shutdown",
        "-disable_wal_one_in=0",
        // These operations begin a new log, which would be almost empty at the end.
        "-flush_one_in=0",
        "-compact_range_one_in=0",
        "-ingest_external_file_one_in=0",
        "-checkpoint_one_in=0",
        "-backup_one_in=0",
        "-bulk_load_one_in=0",
        "-clear_column_family_one_in=0",
        "-clip_column_family_one_in=0",
        "-compact_files_one_in=0",
        "-import_column_family_one_in=0",
        "-ingest_behind_one_in=0",
        "-restore_in_place_one_in=0",
        "-set_options_one_in=0",
        "-timestamped_write_one_in=0",
        "-whole_copy_one_in=0",
        "-ops_per_thread=400",
        "-interval=0",
        "-duration=1h",
        "-threads=1",
        "-async_threads=0",
    ];
    passes(&db, &args);
    // A separate life, which leaves its writes in the log.
    assert!(stress(&db, &[&args[..], &["-life=9"]].concat()).status.success());
    let mut logs: Vec<PathBuf> = std::fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "log"));
    let newest = logs.iter().max().unwrap();
    let len = std::fs::metadata(newest).unwrap().len();
    assert!(len > 10_000, "{len}");
    std::fs::File::options().write(true).open(newest).unwrap().set_len(len / 2).unwrap();
    let output = stress(&db, &[&args[..], &["-life=10", "-check_only"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    let says = stderr.contains("mismatch by") && stderr.contains("of lane 0): expected ");
    assert!(says && stderr.contains("found "), "{stderr}");
}

/// Equal seeds draw equal options and operations.
#[test]
fn a_seed_does_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: &str| {
        let db = dir.path().join(name);
        let args =
            ["-threads=1", "-async_threads=0", "-ops_per_thread=800", "-interval=0", "-duration=1h", seed];
        let report = passes(&db, &args);
        let options = std::fs::read_to_string(beside(&db).join("life-0000.options")).unwrap();
        let lane = std::fs::read(beside(&db).join("lane-000")).unwrap();
        let counts = ["operations", "gets", "scans", "batches", "transfers", "bytes_written"];
        (counts.map(|name| number(&report, name)), options, lane)
    };
    let (one, same, other) = (run("one", "-seed=9"), run("same", "-seed=9"), run("other", "-seed=10"));
    assert!(one == same, "{:?} {:?}", one.0, same.0);
    assert!(one.1 != other.1 && one.2 != other.2);
}

fn beside(db: &Path) -> PathBuf {
    PathBuf::from(format!("{}.expected", db.display()))
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
