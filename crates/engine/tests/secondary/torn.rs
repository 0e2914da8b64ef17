//! Files that are read while they are written: a partial record is no error, and the state shown is
//! that of the complete records.

use super::{Pair, scanned, shown};
use karst_engine::{Db, ReadOptions};
use std::io::Write;
use std::path::Path;

/// Reads a copy of the primary's files, of which the newest log or the MANIFEST grows byte by byte.
fn grow(options: &str, kind: &str, flushes: bool, zeroes: usize) {
    let pair = Pair::new(options);
    // Deletions are disabled, because all files that the MANIFEST ever named must exist.
    pair.primary.disable_file_deletions().unwrap();
    let steps = 14;
    for number in 1..=steps {
        pair.step(number);
        if flushes && number.is_multiple_of(3) {
            pair.flush();
        }
    }
    pair.primary.close().unwrap();
    let copy = pair.directory.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    let mut grows = None;
    for entry in std::fs::read_dir(pair.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        if name.ends_with(kind) || name.starts_with(kind) {
            let newer = grows.as_ref().is_none_or(|(before, _): &(String, _)| *before < name);
            if newer && !bytes.is_empty() {
                grows = Some((name.clone(), bytes.clone()));
            }
        }
        if name.ends_with(".log") && flushes {
            // Without the logs, the state shown is the MANIFEST's alone.
            std::fs::write(copy.join(&name), b"").unwrap();
            continue;
        }
        std::fs::write(copy.join(&name), &bytes).unwrap();
    }
    let (name, bytes) = grows.unwrap();
    let at_first = if flushes { whole_manifest(&copy, &name, &bytes, &pair) } else { 0 };
    let write = |upto: usize| {
        let mut part = bytes[..upto].to_vec();
        part.resize(upto + zeroes, 0);
        std::fs::write(copy.join(&name), part).unwrap();
    };
    write(at_first);
    let db = Db::open_as_secondary(&copy, pair.directory.path().join("own"), &pair.options).unwrap();
    let (mut last, mut different) = (shown(&db, &ReadOptions::new()), 0);
    let mut at = at_first;
    while at < bytes.len() {
        at = (at + 1 + at % 7).min(bytes.len());
        write(at);
        db.try_catch_up_with_primary().unwrap_or_else(|e| panic!("{name} at {at}: {e}"));
        let now = if flushes { as_default(&db) } else { shown(&db, &ReadOptions::new()) };
        assert!(now >= last, "{name} at {at}: {now} after {last}");
        different += u64::from(now > last);
        last = now;
    }
    if flushes {
        assert!(different >= 2, "{different}");
    } else {
        assert_eq!((last, different), (steps, steps));
        assert_eq!(scanned(&db, "default", &ReadOptions::new()), steps);
    }
}

fn as_default(db: &Db) -> u64 {
    super::as_number(db.get("number").unwrap())
}

/// Returns the length of the shortest part of the MANIFEST with which the database can be opened.
fn whole_manifest(copy: &Path, name: &str, bytes: &[u8], pair: &Pair) -> usize {
    let mut upto = 0;
    loop {
        std::fs::File::create(copy.join(name)).unwrap().write_all(&bytes[..upto]).unwrap();
        if Db::open_read_only(copy, &pair.options).is_ok_and(|db| db.column_families().len() == 2) {
            return upto;
        }
        upto += 1;
    }
}

#[test]
fn a_log_that_grows_byte_by_byte() {
    grow("", ".log", false, 0);
}

#[test]
fn a_compressed_log_that_grows() {
    grow("wal_compression=kZSTD", ".log", false, 0);
}

#[test]
fn a_log_with_zeroes_behind_its_end() {
    grow("", ".log", false, 40_000);
}

#[test]
fn a_log_of_recyclable_records_that_grows() {
    grow("recycle_log_file_num=2", ".log", false, 0);
}

#[test]
fn a_manifest_that_grows_byte_by_byte() {
    grow("", "MANIFEST", true, 0);
}
