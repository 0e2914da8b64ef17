//! `karstdb bench` and `karstdb ldb` as writers: RocksDB's tools find the written data, and print
//! equal output.

use karst_testkit::rocksdb_tools::{db_bench, ldb, ldb_scan, verify_tables};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn karst(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program under test runs");
    child.stdin.take().expect("it has one").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn bench(db: &Path, args: &[&str]) -> (String, String) {
    let flag = format!("-db={}", db.display());
    // The newest format that RocksDB 7.8 reads.
    let output = karst(&[&["bench", &flag, "-format_version=5", "-seed=7"], args].concat(), "");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "bench {args:?}: {err}\n{out}");
    (out.into_owned(), err.into_owned())
}

/// Returns the number of operations in a workload's result line.
fn operations(out: &str, workload: &str) -> u64 {
    let line = out.lines().find(|line| line.split(" :").next().is_some_and(|name| name.trim() == workload));
    let line = line.unwrap_or_else(|| panic!("no line of {workload} in\n{out}"));
    let before = line.split(" operations;").next().expect("it splits");
    before.rsplit(' ').next().expect("a word").parse().expect("a number")
}

fn keys(db: &Path) -> usize {
    ldb_scan(db, "default").expect("ldb scans").len()
}

/// The error for an unreadable OPTIONS file names the flag that continues without it; a command
/// with that flag writes an intact file.
#[test]
fn a_damaged_options_file_keeps_no_command_from_going_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("damaged");
    bench(&db, &["-num=1000", "-benchmarks=fillseq"]);
    for entry in std::fs::read_dir(&db).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("/OPTIONS-") {
            std::fs::write(path, "[DBOptions]\n").unwrap();
        }
    }
    let flag = format!("--db={}", db.display());
    let run = |args: &[&str]| {
        let output = karst(&[&["ldb", flag.as_str()], args].concat(), "");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), out.into_owned(), err.into_owned())
    };
    for command in [&["scan", "--hex"][..], &["checkconsistency"], &["put", "a", "b"]] {
        let (succeeds, _, err) = run(command);
        assert!(!succeeds && err.contains("--damaged_options=ignore"), "{command:?}: {err}");
    }
    for way_out in ["--damaged_options=ignore", "--try_load_options=false"] {
        let (succeeds, out, err) = run(&[way_out, "scan", "--hex"]);
        assert!(succeeds && out.lines().count() == 1000, "{way_out}: {err}");
    }
    let (succeeds, _, err) = run(&["--damaged_options=use_older", "scan"]);
    assert!(!succeeds && err.contains("no older OPTIONS file can be used"), "{err}");
    let (succeeds, _, err) = run(&["--damaged_options=perhaps", "scan"]);
    assert!(!succeeds && err.contains("refuse, use_older and ignore"), "{err}");
    let existing = ["-use_existing_db", "-num=1000", "-benchmarks=readrandom", "-damaged_options=ignore"];
    assert_eq!(operations(&bench(&db, &existing).0, "readrandom"), 1000);
    let (succeeds, _, err) = run(&["--damaged_options=ignore", "put", "a", "b"]);
    assert!(succeeds, "{err}");
    assert_eq!(run(&["scan", "--hex"]).1.lines().count(), 1001);
    assert_eq!(run(&["get", "a"]).1, "b\n");
}

#[test]
fn tables_in_several_directories_are_found_where_flags_say() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (db, paths) = (format!("--db={}", at("db")), format!("--db_paths={},{}:5", at("first"), at("db")));
    let of_family = format!("--cf_paths=own={}", at("own"));
    let run = |tool: &str, args: &[&str]| {
        let output = karst(&[&[tool, &db], args].concat(), "");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let with = |args: &[&str]| run("ldb", &[&[&paths[..], &of_family], args].concat());
    let succeeds = |args: &[&str]| {
        let (succeeds, out, err) = with(args);
        assert!(succeeds, "{args:?}: {err}");
        out
    };
    succeeds(&["--create_if_missing", "put", "a", "1"]);
    succeeds(&["create_column_family", "own"]);
    succeeds(&["--column_family=own", "put", "b", "2"]);
    succeeds(&["compact"]);
    succeeds(&["--column_family=own", "compact"]);
    let tables = |name: &str| {
        let names = std::fs::read_dir(dir.path().join(name)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".sst")).count()
    };
    assert_eq!((tables("db"), tables("first"), tables("own")), (0, 1, 1));
    assert!(!run("ldb", &["get", "a"]).0, "where it is nobody has said");
    let (succeeds_without, _, _) = run("verify", &[]);
    assert!(!succeeds_without);
    let (succeeds_with, out, err) = run("verify", &[&paths, &of_family]);
    assert!(succeeds_with, "{out}{err}");
    for name in ["CURRENT", "MANIFEST"] {
        let mut files = std::fs::read_dir(dir.path().join("db")).unwrap().map(|entry| entry.unwrap().path());
        let file = files.find(|path| path.display().to_string().contains(name)).unwrap();
        std::fs::remove_file(file).unwrap();
    }
    let (_, _, err) = with(&["repair"]);
    assert_eq!(
        (succeeds(&["get", "a"]), succeeds(&["--column_family=own", "get", "b"])),
        ("1\n".into(), "2\n".into()),
        "{err}"
    );
    for wrong in ["--db_paths=", "--cf_paths=own"] {
        let (succeeds, _, err) = run("ldb", &[wrong, "get", "a"]);
        assert!(!succeeds && err.contains("expected"), "{wrong}: {err}");
    }
}

#[test]
fn tables_are_made_and_ingested() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("ingested");
    let flags = ["-num=500", "-ingest_external_file_batch_size=3", "-ingest_external_file_num_batches=2"];
    let (out, err) = bench(&db, &[&flags[..], &["-benchmarks=ingestexternalfile"]].concat());
    assert_eq!((operations(&out, "ingestexternalfile"), keys(&db)), (2, 500), "{err}");
    assert!(out.contains("(2 batches x 3 files, 500 keys/file)") && out.contains("MB/s"), "{out}");
    // Ingests into an existing database, newer than its entries.
    let again = ["-use_existing_db=true", "-benchmarks=ingestexternalfile,readrandom", "-reads=200"];
    let (out, err) = bench(&db, &[&flags[..], &again].concat());
    assert!(out.contains("(200 of 200 found)"), "{out}{err}");
    assert!(!db.join("ingest_tmp").exists());
    verify_tables(&db).expect("RocksDB reads them");
}

#[test]
fn fills_are_what_db_bench_finds() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("fill");
    for (workload, batch, exact) in
        [("fillseq", "1", Some(3000)), ("fillrandom", "8", None), ("filluniquerandom", "10", Some(3000))]
    {
        let name = format!("-benchmarks={workload},waitforcompaction");
        let size = format!("-batch_size={batch}");
        let (out, _) = bench(&db, &["-num=3000", &name, &size, "-write_buffer_size=65536", "-bloom_bits=10"]);
        assert_eq!(operations(&out, workload), 3000, "{out}");
        let found = keys(&db);
        // Of 3,000 draws from 3,000 keys about 63 % are different.
        assert!(exact.map_or((1700..2100).contains(&found), |exact| found == exact), "{workload}: {found}");
        verify_tables(&db).unwrap();
        assert_eq!(ldb(&db, &["checkconsistency"], b"").unwrap().trim(), "OK");
        let flags = ["-use_existing_db", "-num=3000", "-benchmarks=readrandom", "-bloom_bits=10"];
        let theirs = db_bench(&db, &flags).unwrap();
        let all = theirs.contains("(3000 of 3000 found)");
        assert_eq!(all, exact.is_some(), "{workload}: {theirs}");
    }
}

#[test]
fn every_workload_that_writes_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("all");
    let (out, _) = bench(&db, &["-num=2000", "-benchmarks=fillseq,deleteseq,levelstats", "-deletes=500"]);
    assert_eq!((operations(&out, "deleteseq"), keys(&db)), (500, 1500));
    assert!(out.contains("Level Files Size(MB)"), "{out}");

    let use_it = ["-use_existing_db", "-num=2000"];
    let (out, _) =
        bench(&db, &[&use_it[..], &["-benchmarks=overwrite,flush,fillseq", "-threads=2"]].concat());
    assert_eq!(operations(&out, "overwrite"), 4000);
    assert!(out.contains("flush memtable") && out.contains("skipped (--use_existing_db is true)"), "{out}");

    let (out, _) = bench(
        &db,
        &[&use_it[..], &["-benchmarks=updaterandom,readrandomwriterandom,deleterandom", "-writes=700"]]
            .concat(),
    );
    assert!(out.contains("( updates:700 found:"), "{out}");
    assert!(out.contains("( reads:630 writes:70 total:700 found:"), "{out}");
    assert_eq!(operations(&out, "deleterandom"), 2000);

    for workload in ["readwhilewriting", "seekrandomwhilewriting"] {
        let name = format!("-benchmarks={workload}");
        let (out, _) =
            bench(&db, &[&use_it[..], &[&name, "-reads=3000", "-threads=2", "-histogram"]].concat());
        // The writer's operations are not counted as the readers'.
        assert_eq!(operations(&out, workload), 6000);
        assert!(out.contains(" of 6000 found)"), "{out}");
    }
    let before = keys(&db);
    let (out, _) = bench(
        &db,
        &[&use_it[..], &["-benchmarks=compact,compactall,waitforcompaction,stats,sstables"]].concat(),
    );
    assert!(out.contains("finished with status (OK)") && out.contains("compact      : "), "{out}");
    assert_eq!(keys(&db), before);
    verify_tables(&db).unwrap();
}

#[test]
fn merges_syncs_families_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("merge");
    let merge = ["-merge_operator=stringappend", "-num=1000", "-merge_keys=50", "-value_size=10"];
    let (out, _) = bench(&db, &[&merge[..], &["-benchmarks=mergerandom,readrandommergerandom"]].concat());
    assert!(out.contains("( updates:1000)") && out.contains(" maxlength:"), "{out}");
    assert_eq!(keys(&db), 50);
    let (out, _) = bench(
        &db,
        &[&merge[..], &["-use_existing_db", "-benchmarks=readwhilemerging", "-reads=500"]].concat(),
    );
    assert!(out.contains(" of 500 found)"), "{out}");

    let db = dir.path().join("sync");
    let (out, _) =
        bench(&db, &["-num=2000", "-writes=30", "-benchmarks=fillsync,fill100K", "-disable_wal=false"]);
    assert_eq!((operations(&out, "fillsync"), operations(&out, "fill100K")), (30, 30));
    assert!(out.contains("(2 ops)"), "{out}");
    let entries = ldb_scan(&db, "default").unwrap();
    assert!(entries.len() <= 2 && entries.iter().all(|(_, value)| value.len() == 100_000));

    let db = dir.path().join("families");
    bench(&db, &["-num=900", "-num_column_families=3", "-benchmarks=fillseq", "-disable_wal"]);
    for family in ["default", "column_family_name_000001", "column_family_name_000002"] {
        assert_eq!(ldb_scan(&db, family).unwrap().len(), 300, "{family}");
    }
}

#[test]
fn ranges_are_deleted_and_the_pace_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("ranges");
    let flags = [
        "-num=1000",
        "-benchmarks=fillseq",
        "-writes_per_range_tombstone=300",
        "-max_num_range_tombstones=2",
        "-range_tombstone_width=50",
    ];
    let (out, _) = bench(&db, &flags);
    assert!(out.contains("(range deletions:2)"), "{out}");
    // A sequential fill takes the beginning of a range from its own sequence, and continues within
    // the range.
    let found = keys(&db);
    assert!((900..=1000).contains(&found), "{found}");

    let start = std::time::Instant::now();
    let flags =
        ["-num=1000", "-benchmarks=fillrandom", "-value_size=984", "-benchmark_write_rate_limit=1000000"];
    bench(&db, &flags);
    assert!(
        start.elapsed().as_secs_f64() > 0.8,
        "a megabyte at a megabyte a second took {:?}",
        start.elapsed()
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("-db={}", dir.path().join("none").display());
    for (args, message) in [
        (&["-benchmarks=fillsideways"][..], "unknown benchmark `fillsideways`"),
        (&["-benchmarks=readrandom"], "no workload fills it"),
        (&["-benchmarks=replay"], "replay needs --trace_file"),
        (&["-benchmarks=replay", "-trace_file=x", "-trace_replay_fast_forward=0"], "is not above 0"),
        (&["-benchmarks=replay", "-trace_file=x", "-trace_replay_threads=0"], "less than 1"),
        (&["-benchmarks=fillseq", "-readonly"], "a workload writes"),
        (&["-benchmarks=fillseq", "-compression_type=rar"], "there is no compression rar"),
        (&["-benchmarks=fillseq", "-transaction_sets=0"], "not between 1 and 9999"),
        (&["-benchmarks=readrandom", "-use_existing_db", "-transaction_db", "-readonly"], "--readonly"),
        (&["-benchmarks=fillseq", "-write_buffer_size=much"], "write_buffer_size"),
    ] {
        let output = karst(&[&["bench", &db], args].concat(), "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(message), "{args:?}: {said}");
    }
    assert!(!dir.path().join("none").exists());
}

#[test]
fn a_workload_is_traced_and_replayed_by_either() {
    let dir = tempfile::tempdir().unwrap();
    let [first, again, theirs] = ["first", "again", "theirs"].map(|name| dir.path().join(name));
    let trace = format!("-trace_file={}", dir.path().join("trace").display());
    let fill = ["-num=500", "-benchmarks=fillrandom,overwrite,levelstats", &trace];
    let (out, _) = bench(&first, &fill);
    assert_eq!(out.matches("Tracing the workload to: [").count(), 2, "one for each workload:\n{out}");
    // The trace is that of the last workload.
    let fast = "-trace_replay_fast_forward=1000000";
    let replay = ["-benchmarks=replay,stats", "-trace_replay_threads=2", fast, &trace];
    let (out, _) = bench(&again, &replay);
    assert!(out.contains("Replay completed from trace_file: "), "{out}");
    assert_eq!(out.matches("replay       : ").count(), 1, "{out}");
    let overwritten = keys(&again);
    assert!(overwritten > 200 && overwritten <= keys(&first), "{overwritten} keys");
    let missing = karst(&["bench", "-benchmarks=replay", "-trace_file=/nowhere/trace"], "");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && said.contains("/nowhere/trace"), "{said}");
    // RocksDB's replay needs several families.
    db_bench(&theirs, &["-num=1", "-benchmarks=fillseq", "-key_size=8", "-num_column_families=2"]).unwrap();
    let replay = ["-use_existing_db", "-num_column_families=2", "-benchmarks=replay", fast, &trace];
    assert!(db_bench(&theirs, &replay).unwrap().contains("Replay completed"));
    let replayed = ldb_scan(&theirs, "default").unwrap();
    assert_eq!(replayed.iter().filter(|(key, _)| key.len() == 16).count(), overwritten);
    // `karstdb bench` replays a trace of RocksDB.
    let theirs = theirs.with_extension("traced");
    db_bench(&theirs, &["-num=300", "-benchmarks=fillrandom", "-seed=9", &trace]).unwrap();
    let again = again.with_extension("traced");
    let (out, _) = bench(&again, &["-benchmarks=replay", fast, &trace, "-json"]);
    assert!(!out.contains("completed") && out.lines().count() == 2, "{out}");
    assert_eq!(ldb_scan(&again, "default").unwrap(), ldb_scan(&theirs, "default").unwrap());
}

#[test]
fn ldb_writes_and_says_what_rocksdbs_does() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let flag = format!("--db={}", ours.display());
    let lines = "l1 ==> one\nno line\nl2 ==> two\nl3 ==> three ==> four\n";
    let hex = "0x6131 ==> 0x00FF\n0x6132 ==> 0x\n";
    for (args, input) in [
        (&["put", "--create_if_missing", "a", "1"][..], ""),
        (&["batchput", "b", "2", "c", "3", "d", "4"], ""),
        (&["put", "--hex", "0x6500", "0xFF"], ""),
        (&["delete", "c"], ""),
        (&["delete", "never"], ""),
        (&["put", "once", "1"], ""),
        (&["singledelete", "once"], ""),
        (&["load"], lines),
        (&["load", "--disable_wal", "--hex", "--compact"], hex),
        (&["deleterange", "b", "d"], ""),
        (&["create_column_family", "second"], ""),
        (&["put", "--column_family=second", "s", "t"], ""),
        (&["create_column_family", "third"], ""),
        (&["drop_column_family", "third"], ""),
        (&["compact"], ""),
        (&["put", "z", "after"], ""),
        (&["compact", "--column_family=second", "--from=a", "--to=z"], ""),
    ] {
        // format_version is not an option of ldb; by default the tools write what RocksDB 7.8
        // reads.
        let output = karst(&[&["ldb", &flag], args].concat(), input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {err}");
        let other = ldb(&theirs, args, input.as_bytes()).unwrap();
        assert_eq!(out, other, "{args:?}");
    }
    for family in ["default", "second"] {
        let family = format!("--column_family={family}");
        let scan = |db: &Path| {
            karst(&["ldb", &format!("--db={}", db.display()), "dump", "--hex", &family], "").stdout
        };
        assert!(!scan(&ours).is_empty());
        assert_eq!(scan(&ours), scan(&theirs));
    }
    for (args, message) in [
        (&["put", "only"][..], "a key and a value"),
        (&["batchput", "x"], "pairs"),
        (&["create_column_family", "second"], "Fail to create new column family"),
        (&["drop_column_family", "fourth"], "Column family: fourth doesn't exist in db."),
        (&["put", "--column_family=fourth", "a", "b"], "there is no column family `fourth`"),
        (&["put", "a", "b", "--no_such_option"], "no_such_option"),
    ] {
        let output = karst(&[&["ldb", &flag], args].concat(), "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(message), "{args:?}: {said}");
    }
    let missing = format!("--db={}", dir.path().join("missing").display());
    assert!(!karst(&["ldb", &missing, "put", "a", "b"], "").status.success());
}

/// Returns the output of `ldb --ttl`. Its exit status is ignored, because with `--ttl` it is a
/// failure for every existing database.
fn ldb_with_ttl(db: &Path, args: &[&str]) -> String {
    let output = Command::new("ldb")
        .env("TZ", "UTC")
        .arg(format!("--db={}", db.display()))
        .arg("--ttl")
        .args(args)
        .output()
        .expect("ldb runs; it is in the package rocksdb-tools");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn values_with_times_are_read_and_written_as_by_ldb() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let karst_with_ttl = |db: &Path, args: &[&str]| {
        let flag = format!("--db={}", db.display());
        let output = karst(&[&["ldb", &flag, "--ttl"], args].concat(), "");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {err}");
        out.into_owned()
    };
    // ldb makes both, so that OPTIONS selects tables that RocksDB 7.8 can read.
    for db in [&ours, &theirs] {
        assert_eq!(ldb_with_ttl(db, &["--create_if_missing", "put", "a", "0"]), "OK\n");
    }
    for args in
        [&["put", "a", "1"][..], &["batchput", "b", "22", "c", ""], &["put", "--hex", "0x6401", "0x01FF"]]
    {
        assert_eq!(karst_with_ttl(&ours, args), "OK\n");
        assert_eq!(ldb_with_ttl(&theirs, args), "OK\n");
    }
    // Each writes a key into the other's database.
    assert_eq!(ldb_with_ttl(&ours, &["put", "e", "theirs"]), "OK\n");
    assert_eq!(karst_with_ttl(&theirs, &["put", "e", "ours"]), "OK\n");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let (start, end) = (format!("--start_time={}", now - 500), format!("--end_time={}", now + 500));
    let before = format!("--end_time={}", now - 500);
    for db in [&ours, &theirs] {
        for args in [
            &["scan"][..],
            &["scan", "--hex"],
            &["scan", "--timestamp", "--from=b", "--max_keys=2"],
            &["scan", &start, &end, "--no_value", "--timestamp"],
            &["scan", &before],
            &["dump"],
            &["dump", "--timestamp"],
            &["dump", &start, &end, "--bucket=300"],
            &["dump", &start, &end, "--bucket=300", "--count_only", "--timestamp"],
            &["dump", &before, "--timestamp"],
            &["dump", "--count_delim=b"],
            &["get", "a"],
            &["get", "c"],
        ] {
            assert_eq!(karst_with_ttl(db, args), ldb_with_ttl(db, args), "{args:?}");
        }
        assert!(karst_with_ttl(db, &["scan"]).contains("b : 22\n"));
        assert_eq!(karst_with_ttl(db, &["multi_get", "a", "none"]), "a : 1\nKey not found: none\n");
        // Without the flag the timestamps are part of the values.
        let raw = karst(&["ldb", &format!("--db={}", db.display()), "--value_hex", "get", "a"], "");
        assert_eq!(raw.stdout.len(), "0x31".len() + 2 * 4 + 1);
        let flag = format!("--db={}", db.display());
        let wrong = karst(&["ldb", &flag, "--ttl", "scan", "--start_time=2", "--end_time=1"], "");
        assert!(!wrong.status.success());
        assert!(String::from_utf8_lossy(&wrong.stderr).contains("End time can't be less than start time"));
    }
}

/// RocksDB's published comparison of unordered writes, with fewer keys: every flag is known, and
/// those without effect are named.
#[test]
fn the_published_command_for_unordered_writes_runs_as_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let published = "--benchmarks=fillrandom --threads=32 --num=10000000 -max_write_buffer_number=16 --max_background_jobs=64 --batch_size=8 --writes=3000000 -level0_file_num_compaction_trigger=99999 --level0_slowdown_writes_trigger=99999 --level0_stop_writes_trigger=99999 -enable_pipelined_write=false -disable_auto_compactions --unordered_write=1 --disable_wal=1";
    let published: Vec<&str> = published.split_whitespace().collect();
    let fewer = ["--writes=800", "--two_write_queues"];
    let (out, err) = bench(&dir.path().join("db"), &[&published[..], &fewer].concat());
    // Operations are keys, over all threads.
    assert_eq!(operations(&out, "fillrandom"), 32 * 800);
    let unknown: Vec<&str> = err.lines().filter(|line| line.contains("has no effect")).collect();
    let without_effect = |flag: &str| format!("karstdb bench: flag --{flag} has no effect here yet");
    assert_eq!(unknown, ["enable_pipelined_write"].map(without_effect));
    let refused =
        karst(&["bench", "-benchmarks=fillrandom", "-unordered_write", "-enable_pipelined_write"], "");
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && err.contains("unordered_write and enable_pipelined_write"), "{err}");
}

/// That command with `--transaction_db`: the choices that db_bench makes are printed.
#[test]
fn the_published_command_with_transactions_says_what_it_chooses() {
    let dir = tempfile::tempdir().unwrap();
    let published = "--benchmarks=fillrandom --threads=32 --num=10000000 -max_write_buffer_number=16 --max_background_jobs=64 --batch_size=8 --writes=3000000 -level0_file_num_compaction_trigger=99999 --level0_slowdown_writes_trigger=99999 --level0_stop_writes_trigger=99999 -enable_pipelined_write=false -disable_auto_compactions --transaction_db=true --unordered_write=1 --disable_wal=1 --writes=800";
    let db = format!("--db={}", dir.path().join("db").display());
    let words: Vec<&str> = ["bench", &db].into_iter().chain(published.split_whitespace()).collect();
    let output = karst(&words, "");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let chosen = "write_policy=WritePrepared, two_write_queues=true, skip_concurrency_control=true";
    assert!(err.contains(chosen), "{err}");
    assert!(output.status.success(), "{err}");
    assert_eq!(operations(&String::from_utf8_lossy(&output.stdout), "fillrandom"), 32 * 800);
    // Without --unordered_write the policy is WriteCommitted.
    let other = format!("--db={}", dir.path().join("other").display());
    let words = words.into_iter().filter(|word| !word.starts_with("--unordered"));
    let words: Vec<&str> = words.map(|word| if word == db { &other } else { word }).collect();
    let output = karst(&words, "");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !err.contains("WritePrepared"), "{err}");
    assert_eq!(operations(&out, "fillrandom"), 32 * 800);
}

/// Each transaction adds one number to a key of each set, so the sums stay equal, also when another
/// engine continues with the database.
#[test]
fn random_transactions_leave_equal_sums() {
    let dir = tempfile::tempdir().unwrap();
    // Few keys, so that transactions conflict.
    let flags = ["-benchmarks=randomtransaction", "-num=20", "-transaction_sets=5", "-threads=4"];
    let shape = |kind| ["-writes=400", "-transaction_sleep=20", "-transaction_lock_timeout=5", kind];
    for kind in ["-transaction_db", "-optimistic_transaction_db"] {
        let (db, shape) = (dir.path().join(kind), shape(kind));
        let (out, err) = bench(&db, &[&flags[..], &shape].concat());
        assert!(!err.contains("has no effect"), "{err}");
        assert_eq!(operations(&out, "randomtransaction"), 1600);
        assert!(out.contains("RandomTransactionVerify Success."), "{out}");
        let aborts = out.split("( transactions:1600 aborts:").nth(1).expect("it counts transactions");
        let aborts: u64 = aborts.split(')').next().unwrap().parse().unwrap();
        assert!((1..1600).contains(&aborts), "{kind}: {aborts} of 1600");
        let found = keys(&db);
        assert!((50..=100).contains(&found), "{kind}: {found} keys");
        // Transactions with a snapshot; then RocksDB's db_bench continues with the database, and
        // KarstDB after it.
        let more = ["-use_existing_db", "-transaction_set_snapshot"];
        let (out, _) = bench(&db, &[&flags[..], &shape, &more].concat());
        assert!(out.contains("RandomTransactionVerify Success."), "{out}");
        let theirs = ["-use_existing_db", "-num=20", "-transaction_sets=5", "-writes=100", "-transaction_db"];
        let said = db_bench(&db, &[&theirs[..], &["-benchmarks=randomtransaction"]].concat()).unwrap();
        assert!(said.contains("RandomTransactionVerify Success."), "{said}");
        let (out, _) = bench(&db, &[&flags[..], &shape, &["-use_existing_db"]].concat());
        assert!(out.contains("RandomTransactionVerify Success."), "{out}");
        // An unequal sum is found.
        ldb(&db, &["put", "00013", "123456789"], b"").unwrap();
        let flag = format!("-db={}", db.display());
        let output = karst(&[&["bench", &flag], &flags[..], &shape, &["-use_existing_db"]].concat(), "");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && out.contains("RandomTransactionVerify FAILED!!"), "{out}");
    }
    // With --unordered_write only plain writes take no locks.
    let unordered = [&flags[..], &shape("-transaction_db"), &["-unordered_write"]].concat();
    let (out, _) = bench(&dir.path().join("prepared"), &unordered);
    assert!(out.contains("RandomTransactionVerify Success."), "{out}");
    assert!(!out.contains("aborts:0)"), "{out}");
    let (out, _) = bench(
        &dir.path().join("none"),
        &["-benchmarks=randomtransaction", "-num=20", "-transaction_sets=3", "-writes=100"],
    );
    assert!(out.contains("( batches:100 )") && !out.contains("Verify"), "{out}");
}

#[test]
fn a_deterministic_fill_lays_out_its_levels() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("levels");
    for (style, levels) in [("0", &[1, 2, 3][..]), ("1", &[1, 2, 3])] {
        let style = format!("-compaction_style={style}");
        let flags = [
            "-num=100000",
            "-num_levels=4",
            "-benchmarks=fillseqdeterministic",
            "-disable_auto_compactions",
            "-write_buffer_size=65536",
            "-max_bytes_for_level_multiplier=3",
            &style,
        ];
        let (out, _) = bench(&db, &flags);
        for level in levels {
            assert!(out.contains(&format!("Level[{level}]: ")), "{style}: {out}");
        }
        // The first run has every key; the others write some of them again.
        assert_eq!(keys(&db), 100_000);
        assert!(operations(&out, "fillseqdeterministic") > 130_000, "{out}");
        verify_tables(&db).unwrap();
    }
    let flag = format!("-db={}", db.display());
    let refused = karst(&["bench", &flag, "-benchmarks=fillseqdeterministic"], "");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("--disable_auto_compactions"), "{said}");
}

#[test]
fn long_runs_say_how_far_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (db, file) = (dir.path().join("db"), dir.path().join("report.csv"));
    let report = format!("-report_file={}", file.display());
    let flags = ["-benchmarks=fillrandom,readrandom", "-num=20000", "-compression_parallel_threads=2"];
    let intervals = ["-stats_interval=5000", "-stats_per_interval=1", "-report_interval_seconds=1", &report];
    let slowly = ["-benchmark_write_rate_limit=1000000", "-value_size=100"];
    let (out, err) = bench(&db, &[&flags[..], &intervals, &slowly].concat());
    assert!(!err.contains("has no effect"), "{err}");
    assert_eq!(operations(&out, "fillrandom"), 20_000);
    assert_eq!(err.matches("... thread 0: (5000,").count(), 8, "{err}");
    assert_eq!(err.matches("** DB Stats **").count(), 8, "{err}");
    assert!(err.contains("Cumulative writes: 5000 writes, 5000 keys"), "{err}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("secs_elapsed,interval_qps\n"), "{text}");
    // The file is the last workload's, which may have ended within the first second.
    let reported = |num: u64| {
        let num_flag = format!("-num={num}");
        let (out, _) =
            bench(&db, &[&["-benchmarks=fillrandom", &*num_flag], &intervals[2..], &slowly].concat());
        assert_eq!(operations(&out, "fillrandom"), num);
        let text = std::fs::read_to_string(&file).unwrap();
        let count = |line: &str| line.split_once(',').unwrap().1.parse().unwrap();
        let counts: Vec<u64> = text.lines().skip(1).map(count).collect();
        assert!(counts.iter().sum::<u64>() <= num, "{text}");
        counts
    };
    // At a million bytes per second, 40,000 entries of at least 116 bytes take over four seconds.
    // More entries, until the reporter had a processor in three of the seconds, and a writer in
    // one.
    let enough = |counts: &Vec<u64>| counts.len() >= 3 && counts.iter().any(|count| *count > 0);
    assert!((0..5).map(|round| reported(40_000 << round)).any(|counts| enough(&counts)));
}

/// ldb ingests a file that karstdb wrote, and the reverse; both print equal output.
#[test]
fn files_to_be_ingested_are_written_and_ingested_as_by_ldb() {
    let dir = tempfile::tempdir().unwrap();
    let (own, theirs) = (dir.path().join("own"), dir.path().join("theirs"));
    let (first, second) = (dir.path().join("first.sst"), dir.path().join("second.sst"));
    let flag = format!("--db={}", own.display());
    let run = |args: &[&str], input: &str| {
        let output = karst(&[&["ldb", flag.as_str()], args].concat(), input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), out.into_owned(), err.into_owned())
    };
    let lines = "a ==> 1\nb ==> 2\nno line\nz ==> 3\n";
    ldb(&theirs, &["--create_if_missing", "put", "b", "old"], b"").unwrap();
    // RocksDB 7.8 makes the database, so that files are written in its format.
    let copied = ["--create_if_missing", "put", "b", "old"];
    assert!(run(&copied, "").0);
    std::fs::remove_dir_all(&own).unwrap();
    ldb(&own, &copied, b"").unwrap();
    let (succeeds, out, err) = run(&["write_extern_sst", first.to_str().unwrap()], lines);
    assert!(succeeds, "{err}");
    assert!(out.is_empty() && err.contains("1 bad lines ignored"), "{out}{err}");
    assert!(err.contains("external SST file written to"), "{err}");
    ldb(&theirs, &["ingest_extern_sst", first.to_str().unwrap()], b"").unwrap();
    assert_eq!(ldb_scan(&theirs, "default").unwrap().len(), 3);
    ldb(&theirs, &["write_extern_sst", second.to_str().unwrap()], b"b ==> new\nc ==> new\n").unwrap();
    for file in [&first, &second] {
        let (succeeds, out, err) = run(&["ingest_extern_sst", file.to_str().unwrap(), "--move_files"], "");
        assert!(succeeds && out.is_empty() && err == "external SST files ingested\n", "{out}{err}");
        assert!(!file.exists(), "it was moved");
    }
    let found = ldb_scan(&own, "default").unwrap();
    let found: Vec<_> = found.iter().map(|(key, value)| [&key[..], &value[..]].concat()).collect();
    assert_eq!(found, [&b"a1"[..], b"bnew", b"cnew", b"z3"]);
    verify_tables(&own).unwrap();
    let (succeeds, _, err) = run(&["write_extern_sst", first.to_str().unwrap()], "b ==> 1\na ==> 2\n");
    assert!(!succeeds && err.contains("failed to write record to file"), "{err}");
    assert!(!first.exists());
    let (succeeds, _, err) = run(&["ingest_extern_sst", first.to_str().unwrap()], "");
    assert!(!succeeds && err.contains("failed to ingest external SST"), "{err}");
    let (succeeds, _, err) = run(&["ingest_extern_sst", "x", "--allow_global_seqno=perhaps"], "");
    assert!(!succeeds && err.contains("neither true nor false"), "{err}");
}

/// Each tool opens the copies of the other, and both print equal output.
#[test]
fn checkpoints_and_backups_are_made_and_restored_as_by_ldb() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let own = |db: &Path, args: &[&str]| {
        let flag = format!("--db={}", db.display());
        let output = karst(&[&["ldb", flag.as_str()], args].concat(), "");
        let err = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(format!("{:?}: {err}", output.status.code()))
        }
    };
    let theirs = |db: &Path, args: &[&str]| ldb(db, args, b"");
    let flag = |name: &str, to: &str| format!("--{name}={}", at(to).display());
    theirs(&at("db"), &["--create_if_missing", "put", "a", "1"]).unwrap();

    let (first, second) = (flag("checkpoint_dir", "first"), flag("checkpoint_dir", "second"));
    let said = own(&at("db"), &["checkpoint", &first]).unwrap();
    assert_eq!(theirs(&at("db"), &["checkpoint", &second]).unwrap(), said);
    for copy in ["first", "second"] {
        assert_eq!(ldb_scan(&at(copy), "default").unwrap().len(), 1, "{copy}");
    }
    let again = own(&at("db"), &["checkpoint", &first]).unwrap_err();
    assert!(again.starts_with("Some(1)") && again.contains("exists already"), "{again}");
    let misused = own(&at("db"), &["checkpoint"]).unwrap_err();
    assert!(misused.starts_with("Some(2)") && misused.contains("--checkpoint_dir"), "{misused}");

    // Both add to the backups of one directory.
    let backups = flag("backup_dir", "backups");
    let said = own(&at("db"), &["backup", &backups, "--num_threads=2"]).unwrap();
    theirs(&at("db"), &["put", "b", "2"]).unwrap();
    assert_eq!(theirs(&at("db"), &["backup", &backups]).unwrap(), said);
    let said = own(&at("restored"), &["restore", &backups]).unwrap();
    assert_eq!(ldb_scan(&at("restored"), "default").unwrap().len(), 2);
    own(&at("db"), &["put", "c", "3"]).unwrap();
    own(&at("db"), &["backup", &backups]).unwrap();
    assert_eq!(theirs(&at("restored"), &["restore", &backups]).unwrap(), said);
    assert_eq!(ldb_scan(&at("restored"), "default").unwrap().len(), 3);
    let none = own(&at("nowhere"), &["restore", &flag("backup_dir", "none")]).unwrap_err();
    assert!(none.starts_with("Some(1)") && !at("none").exists(), "{none}");
}

#[test]
fn bench_makes_a_backup_and_restores_it() {
    let dir = tempfile::tempdir().unwrap();
    let (db, backups, restored) = (dir.path().join("db"), dir.path().join("b"), dir.path().join("r"));
    let flags = [
        format!("-backup_dir={}", backups.display()),
        format!("-restore_dir={}", restored.display()),
        "-num=2000".to_owned(),
        "-benchmarks=fillseq,backup,restore,backup".to_owned(),
        "-restore_rate_limit=100000000".to_owned(),
    ];
    let (out, err) = bench(&db, &flags.each_ref().map(String::as_str));
    assert_eq!(operations(&out, "restore"), 1, "{out}");
    assert!(!err.contains("no effect"), "{err}");
    assert_eq!(keys(&restored), 2000);
    let list =
        ldb(&dir.path().join("x"), &["restore", &flags[0].replace("-backup", "--backup")], b"").unwrap();
    assert!(list.contains("OK"), "{list}");
    assert_eq!(keys(&dir.path().join("x")), 2000);
}
