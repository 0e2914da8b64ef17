//! Command lines of the tools and their endings: help, mistyped words, exit codes, readers that
//! close the pipe, progress on a terminal only, JSON results.

use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karstdb"));
    command.args(args);
    command
}

fn karst(args: &[&str]) -> Output {
    command(args).output().expect("the program under test runs")
}

/// Runs a tool. Returns its exit code, standard output and standard error.
fn told(args: &[&str]) -> (Option<i32>, String, String) {
    let output = karst(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a tool whose reader of standard output closes the pipe after `bytes` bytes.
fn told_in_part(bytes: usize, folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = command(args);
    let pipes =
        command.env("TMPDIR", folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("the program under test runs");
    let mut out = child.stdout.take().expect("it is piped");
    out.read_exact(&mut vec![0; bytes]).expect("it prints more than that");
    drop(out);
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn fill(db: &Path, args: &[&str]) {
    let flag = format!("-db={}", db.display());
    let all = [&["bench", &flag, "-benchmarks=fillseq"], args].concat();
    let (code, _, err) = told(&all);
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_reader_that_goes_away_ends_a_tool_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let (db, folder) = (dir.path().join("db"), dir.path().join("tmp"));
    std::fs::create_dir(&folder).unwrap();
    // Much more than a pipe holds.
    fill(&db, &["-num=20000", "-disable_auto_compactions", "-write_buffer_size=262144"]);
    let flag = format!("--db={}", db.display());
    let file = format!("--file={}", db.display());
    for args in [
        &["ldb", &flag, "scan"][..],
        &["ldb", &flag, "dump", "--hex"],
        &["ldb", &flag, "idump"],
        &["ldb", &flag, "dump_live_files"],
        &["sst_dump", &file, "--command=scan"],
    ] {
        assert_eq!(told_in_part(100, &folder, args), (Some(0), String::new()), "{args:?}");
    }
    // These print less than a pipe holds, so the reader has to close it before they print the rest.
    for json in ["-json", "-nojson"] {
        let workloads = "-benchmarks=fillseq,stats,readrandom,stats,readseq,stats";
        let args = ["bench", "-num=20000", "-histogram", workloads, json];
        let (code, err) = told_in_part(10, &folder, &args);
        let lines: Vec<&str> = err.lines().collect();
        assert_eq!(code, Some(0), "{err}");
        assert!(lines.len() == 1 && lines[0].contains("no --db given"), "{err}");
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert!(left.is_empty(), "the database is left behind: {left:?}");
    }
}

#[test]
fn each_tool_has_help_by_either_name() {
    for tool in ["bench", "stress", "ldb", "sst_dump", "inspect", "import"] {
        for asked in [&[tool, "-h"][..], &[tool, "--help"], &["help", tool]] {
            let (code, out, err) = told(asked);
            assert_eq!((code, err.as_str()), (Some(0), ""), "{asked:?}");
            assert!(out.lines().count() > 5 && out.contains(tool), "{asked:?}: {out}");
        }
    }
    let (code, out, _) = told(&["ldb", "scan", "-h"]);
    assert!(code == Some(0) && out.contains("scan [--from=KEY]"), "{out}");
    let (code, out, _) = told(&["-h"]);
    assert!(code == Some(0) && out.contains("sst_dump") && out.contains("inspect"), "{out}");
    let (code, out, _) = told(&["--version"]);
    assert_eq!((code, out.as_str()), (Some(0), concat!("karstdb ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn what_is_mistyped_ends_with_2_and_a_suggestion() {
    for (args, said) in [
        (&["bnech"][..], "'bench'"),
        (&[], "Usage"),
        (&["help", "ldbb"], "'ldb'"),
        (&["ldb"], "which command?"),
        (&["ldb", "--db=/nowhere", "scna"], "did you mean `scan`?"),
        (&["ldb", "--db=/nowhere", "xyzzy"], "`karstdb ldb --help`"),
        (&["ldb", "scan"], "--db=PATH must be given"),
        (&["ldb", "--db=/nowhere", "put", "alone"], "a key and a value"),
        (&["ldb", "--db=/nowhere", "put", "a", "b", "--creat"], "does not know --creat"),
        (&["ldb", "--db=/nowhere", "put", "a", "b", "--compression_type=rar"], "no compression rar"),
        (&["ldb", "--db=/nowhere", "checkconsistency", "--hexx"], "does not know --hexx"),
        (&["sst_dump"], "--file must be given"),
        (&["sst_dump", "--file=/nowhere", "--command=chek"], "did you mean check?"),
        (&["bench", "-cache_sise=5"], "did you mean --cache_size?"),
        (&["bench", "-num=ten"], "not a whole number"),
        (&["bench", "-benchmarks=fillrandm"], "did you mean `fillrandom`?"),
        (&["bench", "-db=/nowhere", "-benchmarks=readseq"], "no workload fills it"),
        (&["stress", "-treads=2"], "did you mean --threads?"),
        (&["import", "dump.rdb"], "<DB>"),
        (&["inspect"], "<DB>"),
        (&["inspect", "/nowhere", "--width=7"], "20..=400"),
        (&["inspect", "/nowhere", "--htlm=x"], "'--html'"),
    ] {
        let (code, out, err) = told(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
    // A correct command that fails ends with 1.
    for args in [
        &["ldb", "--db=/nowhere", "scan"][..],
        &["sst_dump", "--file=/nowhere"],
        &["inspect", "/nowhere"],
        &["bench", "-db=/nowhere", "-use_existing_db", "-benchmarks=readseq"],
    ] {
        let (code, _, err) = told(args);
        assert!(code == Some(1) && err.starts_with("karstdb: "), "{args:?}: {err}");
    }
}

#[test]
fn only_who_asks_is_told_of_progress_where_no_terminal_is() {
    let args = ["bench", "-num=3000", "-benchmarks=fillseq"];
    let progress = |more: &str| told(&[&args, &[more][..]].concat()).2.contains("... ");
    assert!(!progress("-seed=1"));
    assert!(progress("-progress_reports"));
    assert!(progress("-stats_interval=1000"));
    assert!(!progress("-noprogress_reports"));
}

#[test]
fn a_short_run_takes_processor_time_and_is_told_to_machines() {
    let (code, out, err) = told(&[
        "bench",
        "-json",
        "-statistics",
        "-histogram",
        "-threads=2",
        "-num=300",
        "-benchmarks=fillseq,readrandom[X2],flush,waitforcompaction,levelstats",
    ]);
    assert_eq!(code, Some(0), "{err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let names: Vec<Option<&str>> = lines.iter().map(|line| line["workload"].as_str()).collect();
    let read = Some("readrandom");
    assert_eq!(names, [None, Some("fillseq"), read, read, Some("levelstats"), None], "{out}");
    assert_eq!(lines[0]["program"], "karstdb bench");
    assert_eq!(lines[0]["arguments"][0], "-json");
    for line in &lines[1..4] {
        assert_eq!((&line["operations"], &line["threads"]), (&Value::from(600), &Value::from(2)), "{line}");
        for positive in ["seconds", "ops_per_second", "micros_per_op", "cpu_micros_per_op"] {
            assert!(line[positive].as_f64().is_some_and(|figure| figure > 0.0), "{positive}: {line}");
        }
    }
    assert_eq!(lines[2]["found"], 600);
    assert_eq!(lines[2]["latency_micros"]["read"]["count"], 600);
    assert!(lines[4]["text"].as_str().is_some_and(|text| text.contains("Level Files")), "{out}");
    assert_eq!(lines[5]["statistics"]["rocksdb.number.keys.read"], 1200);

    let (_, out, _) = told(&["bench", "-num=300", "-benchmarks=fillseq"]);
    let line = out.lines().find(|line| line.contains("micros CPU/op")).expect("it says how much");
    assert!(!line.contains(" 0.000 micros CPU/op"), "{line}");
}

#[test]
fn inspect_says_what_is_in_the_logs_only() {
    let dir = tempfile::tempdir().unwrap();
    let logged = dir.path().join("logged");
    fill(&logged, &["-num=40"]);
    let shown = |db: &Path, more: &[&str]| {
        let (code, out, err) = told(&[&["inspect", db.to_str().unwrap()], more].concat());
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let out = shown(&logged, &[]);
    assert!(out.contains("0 tables") && out.contains("all 40 entries are in the logs only"), "{out}");
    let page = dir.path().join("page.html");
    shown(&logged, &["--html", page.to_str().unwrap()]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("all 40 entries are in the logs only"), "{html}");

    let flag = format!("--db={}", logged.display());
    assert_eq!(told(&["ldb", &flag, "compact"]).0, Some(0));
    assert!(!shown(&logged, &[]).contains("in the logs only"));
    for key in ["a", "b"] {
        assert_eq!(told(&["ldb", &flag, "put", key, "value"]).0, Some(0));
    }
    let out = shown(&logged, &[]);
    // The first of the two keys was flushed when the second command opened the database, or is in
    // the older log.
    assert!(out.contains("1 tables") || out.contains("2 tables"), "{out}");
    assert!(out.contains(" in the logs only, in no table yet"), "{out}");

    // In another directory too.
    let (apart, logs) = (dir.path().join("apart"), dir.path().join("logs"));
    fill(&apart, &["-num=7", &format!("-wal_dir={}", logs.display())]);
    let out = shown(&apart, &[]);
    assert!(out.contains("all 7 entries are in the logs only"), "{out}");
    let mut files = std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path());
    let log = files.find(|path| path.extension().is_some_and(|extension| extension == "log")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[20] ^= 1;
    bytes.extend([0x55; 40_000]);
    std::fs::write(&log, bytes).unwrap();
    let out = shown(&apart, &[]);
    assert!(out.contains("unreadable: ") && !out.contains("all 7 entries"), "{out}");
}
