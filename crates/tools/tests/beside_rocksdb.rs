//! `karstdb ldb` and `karstdb sst_dump` compared with RocksDB's own on the same databases: their
//! output must be equal byte for byte.

use karst_testkit::rocksdb_tools::{db_bench, ldb, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn karst(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_karstdb")).args(args).output().expect("the program under test runs")
}

fn printed(args: &[&str]) -> String {
    let output = karst(args);
    assert!(output.status.success(), "karstdb {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("hex output is text")
}

/// Makes a database of two column families with every kind of entry that ldb can write, part of it
/// only in the log.
fn mixed(dir: &Path) -> PathBuf {
    let db = dir.join("mixed");
    let load: String =
        (0..500).map(|i| format!("key{i:05} ==> value {i} {}\n", "x".repeat(i % 50))).collect();
    ldb(
        &db,
        &["load", "--create_if_missing", "--compression_type=lz4", "--block_size=1024"],
        load.as_bytes(),
    )
    .unwrap();
    ldb(&db, &["create_column_family", "second"], b"").unwrap();
    ldb(&db, &["put", "--column_family=second", "a", "b"], b"").unwrap();
    ldb(&db, &["delete", "key00007"], b"").unwrap();
    ldb(&db, &["deleterange", "key00100", "key00150"], b"").unwrap();
    ldb(&db, &["put", "key00008", "newer"], b"").unwrap();
    db
}

#[test]
fn ldb_prints_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let flag = format!("--db={}", db.display());
    let same = |args: &[&str]| {
        let mut all = vec!["ldb", flag.as_str()];
        all.extend(args);
        let (ours, theirs) = (printed(&all), ldb(&db, args, b"").unwrap());
        assert!(!theirs.is_empty(), "ldb {args:?} printed nothing");
        assert!(ours == theirs, "{args:?}\n--- karstdb\n{ours}\n--- ldb\n{theirs}");
    };
    same(&["scan"]);
    same(&["scan", "--hex"]);
    same(&["scan", "--key_hex", "--no_value"]);
    same(&["scan", "--from=key00050", "--to=key00200", "--max_keys=60"]);
    same(&["scan", "--column_family=second"]);
    same(&["dump"]);
    same(&["dump", "--hex", "--from=0x6B65793030303530", "--to=0x6B65793030323030", "--max_keys=60"]);
    same(&["dump", "--count_only"]);
    same(&["dump", "--count_delim=0", "--max_keys=40"]);
    same(&["dump", "--count_delim", "--column_family=second"]);
    same(&["get", "key00008"]);
    same(&["get", "--hex", "0x6B65793030303038"]);
    same(&["idump"]);
    same(&["idump", "--hex", "--max_keys=10"]);
    same(&["idump", "--count_only"]);
    same(&["manifest_dump"]);
    same(&["list_column_families"]);
    let [own, theirs] =
        ["own", "theirs"].map(|name| format!("--secondary_path={}", dir.path().join(name).display()));
    for command in [&["scan"][..], &["get", "key00008"], &["dump", "--column_family=second"], &["idump"]] {
        let ours = printed(&[&["ldb", &flag, &own], command].concat());
        let theirs = ldb(&db, &[&[theirs.as_str()], command].concat(), b"").unwrap();
        assert!(ours == theirs && !ours.is_empty(), "{command:?}\n--- karstdb\n{ours}\n--- ldb\n{theirs}");
    }
    assert!(!karst(&["ldb", &flag, &own, "put", "a", "b"]).status.success(), "a secondary is not written to");
    same(&["checkconsistency"]);
    // ldb runs first, because it may write when it opens the database, and then there are more
    // tables.
    let same_behind = |args: &[&str]| {
        ldb(&db, args, b"").unwrap();
        same(args);
    };
    same_behind(&["list_file_range_deletes"]);
    same_behind(&["list_file_range_deletes", "--max_keys=1"]);
    same_behind(&["list_live_files_metadata"]);
    same_behind(&["list_live_files_metadata", "--sort_by_filename"]);
    same_behind(&["approxsize", "--from=key00050", "--to=key00400"]);
    same_behind(&["approxsize", "--hex", "--from=0x6B", "--to=0x6C"]);
    same_behind(&["get_property", "rocksdb.num-files-at-level0"]);
    same_behind(&["get_property", "rocksdb.total-sst-files-size"]);
    let found = printed(&["ldb", &flag, "multi_get", "key00008", "key00007"]);
    assert_eq!(found, "key00008 : newer\nKey not found: key00007\n");
}

#[test]
fn logs_are_dumped_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let mut logs = 0;
    for entry in std::fs::read_dir(&db).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "log") && path.metadata().unwrap().len() > 0 {
            logs += 1;
            let file = format!("--walfile={}", path.display());
            let args = ["dump_wal", &file, "--header", "--print_value"];
            let theirs = run("ldb", &args, b"").unwrap();
            assert_eq!(printed(&["ldb", args[0], args[1], args[2], args[3]]), theirs);
        }
    }
    assert!(logs > 0, "the database has a log");
}

#[test]
fn tables_are_dumped_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("tables");
    let flags = [
        // Each `flush` makes a table, even if db_bench's own flushes come late.
        "-benchmarks=fillrandom,flush,overwrite,flush",
        "-num=3000",
        "-partition_index_and_filters=true",
        "-bloom_bits=10",
        "-compression_type=zstd",
        "-disable_auto_compactions=true",
    ];
    db_bench(&db, &flags).unwrap();
    let mut tables = 0;
    for entry in std::fs::read_dir(&db).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "sst") {
            continue;
        }
        tables += 1;
        let file = format!("--file={}", path.display());
        for scan in
            [&["--command=scan", "--output_hex"][..], &["--command=scan", "--output_hex", "--read_num=7"]]
        {
            let theirs = run("sst_dump", &[&[file.as_str()], scan].concat(), b"").unwrap();
            // The first line of sst_dump is the address of its environment.
            let theirs = theirs.split_once('\n').expect("more than one line").1;
            assert_eq!(printed(&[&["sst_dump", &file], scan].concat()), theirs);
        }
        let ok = printed(&["sst_dump", &file, "--command=verify"]);
        assert!(ok.ends_with("The file is ok\n"), "{ok}");
        let shown = printed(&["sst_dump", &file, "--command=none", "--show_properties"]);
        let theirs = run("sst_dump", &[&file, "--command=none", "--show_properties"], b"").unwrap();
        for line in
            theirs.lines().filter(|l| l.contains("# entries:") || l.contains("filter") || l.contains("raw"))
        {
            // Compat: properties whose names differ in newer releases are left out above.
            assert!(shown.contains(line.trim_end()), "{line:?} is missing in\n{shown}");
        }
        // A damaged table is refused with its name and the offset.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        let damaged = dir.path().join("000001.sst");
        std::fs::write(&damaged, bytes).unwrap();
        let output = karst(&["sst_dump", &format!("--file={}", damaged.display()), "--command=verify"]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && message.contains("000001.sst") && message.contains("offset 0"),
            "{message}"
        );
    }
    assert!(tables > 1, "{tables} tables");
}

#[test]
fn bench_reads_what_db_bench_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("bench");
    db_bench(&db, &["-benchmarks=fillseq,compact", "-num=5000", "-bloom_bits=10"]).unwrap();
    let flag = format!("-db={}", db.display());
    let workloads = "-benchmarks=readrandom,multireadrandom,seekrandom,readseq,readreverse,readmissing,readtocache,\
                     readrandomcoroutine,multireadrandomcoroutine";
    let output = karst(&[
        "bench",
        &flag,
        "-use_existing_db",
        "-num=5000",
        "-reads",
        "800",
        "-batch_size=8",
        "-coro_jobs_per_thread=4",
        "-threads=2",
        "-statistics",
        "-histogram",
        "-cache_size=100000",
        "-use_direct_reads",
        workloads,
        "-enable_numa",
    ]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    for line in ["readrandom   : ", "multireadrandom : ", "readseq      : ", "readrandomcoroutine : "] {
        assert!(out.contains(line), "{line:?} is missing in\n{out}");
    }
    assert!(out.contains("(1600 of 1600 found)"), "{out}");
    assert!(out.contains("(0 of 1600 found)"), "{out}");
    assert!(out.contains("rocksdb.number.keys.read COUNT : "), "{out}");
    assert!(err.contains("flag --enable_numa has no effect here yet"), "{err}");
    let refused = karst(&["bench", &flag, "-nosuchflag"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown flag --nosuchflag"));
}

#[test]
fn bench_makes_a_database_when_none_is_given_and_inspect_draws_it() {
    let output = karst(&["bench", "-num=2000", "-benchmarks=readrandom,readmissing", "-bloom_bits=10"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("(2000 of 2000 found)") && out.contains("(0 of 2000 found)"), "{out}");

    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let page = dir.path().join("page.html");
    let output = karst(&["inspect", db.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("column family \"second\"") && out.contains("a point lookup reads"), "{out}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg") && !html.contains("src="), "{html}");
}

#[test]
fn ldb_repairs_and_removes_tables_and_rocksdb_reads_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let flag = format!("--db={}", db.display());
    let before = ldb(&db, &["scan"], b"").unwrap();
    std::fs::remove_file(db.join("CURRENT")).unwrap();
    assert!(!karst(&["ldb", &flag, "scan"]).status.success());
    assert_eq!(printed(&["ldb", &flag, "repair"]), "OK\n");
    assert_eq!(ldb(&db, &["scan"], b"").unwrap(), before);
    let table = std::fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
    let table = table.filter(|path| path.extension().is_some_and(|end| end == "sst")).max().unwrap();
    std::fs::remove_file(&table).unwrap();
    let verified = karst(&["verify", &db.display().to_string()]);
    let text = String::from_utf8(verified.stdout).unwrap();
    assert_eq!(verified.status.code(), Some(1), "{text}");
    assert!(text.contains(&table.display().to_string()), "{text}");
    let number: u64 = table.file_stem().unwrap().to_string_lossy().parse().unwrap();
    assert_eq!(printed(&["ldb", &flag, "unsafe_remove_sst_file", &number.to_string()]), "OK\n");
    assert_eq!(ldb(&db, &["checkconsistency"], b"").unwrap(), "OK\n");
    let again = karst(&["ldb", &flag, "unsafe_remove_sst_file", &number.to_string()]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("failed to unsafely remove SST file") && said.contains("not present"), "{said}");
    let json = karst(&["verify", "--json", "--rate-limit", "100000000", &db.display().to_string()]);
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let text = String::from_utf8(json.stdout).unwrap();
    assert!(text.contains("\"damaged\":[]"), "{text}");
}

#[test]
fn verify_on_a_schedule_goes_on_until_there_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let mut karst = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .args(["verify", "--schedule", "20ms", db.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(karst.stdout.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..3 {
        let line = lines.next().unwrap();
        assert!(line.ends_with("verified, 0 damaged or missing"), "{line}");
    }
    let tables = std::fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.filter(|path| path.extension().is_some_and(|end| end == "sst")).max().unwrap();
    std::fs::remove_file(&table).unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains(&table.display().to_string())), "{rest:?}");
    assert!(rest.last().unwrap().ends_with("verified, 1 damaged or missing"), "{rest:?}");
    assert_eq!(karst.wait().unwrap().code(), Some(1));
}

#[test]
fn a_repair_that_puts_tables_away_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let db = mixed(dir.path());
    let flag = format!("--db={}", db.display());
    let tables = std::fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.filter(|path| path.extension().is_some_and(|end| end == "sst")).max().unwrap();
    let bytes = std::fs::read(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    let repaired = karst(&["ldb", &flag, "repair"]);
    let told = String::from_utf8(repaired.stderr).unwrap();
    assert_eq!((repaired.status.code(), &*repaired.stdout), (Some(1), &b""[..]), "{told}");
    assert!(told.contains("1 tables and blob files were put away in `lost`"), "{told}");
    printed(&["ldb", &flag, "scan"]);
    assert_eq!(printed(&["ldb", &flag, "repair"]), "OK\n");
}
