//! Output of the tools for a database whose keys have timestamps.

use karstdb::format::Comparator;
use karstdb::{Db, Options, WriteOptions};
use std::process::Command;

#[test]
fn a_log_with_timestamps_is_dumped_whole() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().comparator(Some("stamped"), Comparator::BytewiseU64Ts).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    let db = Db::open_cf(directory.path(), &options, &["default", "stamped"]).unwrap();
    let (write, family) = (WriteOptions::new(), db.column_family("stamped").unwrap());
    db.put("plain", "1").unwrap();
    db.put_cf_with_ts(&write, &family, "k", [2, 1, 0, 0, 0, 0, 0, 0], "2").unwrap();
    db.delete_cf_with_ts(&write, &family, "k", [4, 3, 0, 0, 0, 0, 0, 0]).unwrap();
    db.put("behind", "3").unwrap();
    db.close().unwrap();
    let mut logs: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|found| found.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    let [log] = &logs[..] else { panic!("{logs:?}") };
    let walfile = format!("--walfile={}", log.display());
    let output = Command::new(env!("CARGO_BIN_EXE_karstdb"))
        .args(["ldb", "dump_wal", &walfile, "--print_value"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    let operations: Vec<_> = shown.lines().map(|line| line.rsplit(',').next().unwrap().trim()).collect();
    let expected = [
        "PUT(0) : 0x706C61696E : 0x31",
        "PUT(1) : 0x6B0201000000000000 : 0x32",
        "DELETE(1) : 0x6B0403000000000000",
        "PUT(0) : 0x626568696E64 : 0x33",
    ];
    assert_eq!(operations, expected, "{shown}");
}
