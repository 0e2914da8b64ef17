//! Two processes: a primary under load that is killed again and again, and a secondary that follows
//! it. The primary runs this test's program again.

use super::{scanned, shown, step};
use karst_engine::{Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteOptions};
use karst_testkit::asked::long;
use karst_testkit::random::Random;
use karst_testkit::rocksdb_tools::Killed;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "KARST_SECONDARY_OF";
const OPTIONS: &str = "KARST_SECONDARY_OPTIONS";
const TEST: &str = "processes::a_primary_that_is_killed_over_and_over";

const SHAPES: [&str; 4] = [
    "recycle_log_file_num=2",
    "allow_mmap_writes=true;avoid_flush_during_recovery=true",
    "recycle_log_file_num=1;max_open_files=30;enable_blob_files=true;min_blob_size=50",
    "wal_compression=kZSTD;unordered_write=true;max_manifest_file_size=2000",
];

fn options(shape: &str) -> Options {
    let common = "create_if_missing=true;create_missing_column_families=true;merge_operator=uint64add;write_buffer_size=30000;target_file_size_base=20000;max_bytes_for_level_base=60000;level0_file_num_compaction_trigger=2";
    Options::new().set_all(&format!("{common};{shape}")).unwrap()
}

/// The primary: continues from its last state until it is killed.
fn primary(directory: &Path) {
    let options = options(&std::env::var(OPTIONS).unwrap());
    let db = Db::open_cf(directory, &options, &["default", "other"]).unwrap();
    let mut number = shown(&db, &ReadOptions::new());
    loop {
        number += 1;
        step(&db, number, &WriteOptions::new()).unwrap();
        if number.is_multiple_of(200) {
            let family = db.column_family("other").unwrap();
            db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
        }
    }
}

#[test]
fn a_primary_that_is_killed_over_and_over() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return primary(Path::new(&directory));
    }
    let (lives, life_ms) = if long() { (60, 1500) } else { (3, 250) };
    let mut random = Random::new(7);
    for shape in SHAPES {
        let directory = tempfile::tempdir().unwrap();
        let (path, options) = (directory.path().join("db"), options(shape));
        let mut db: Option<Db> = None;
        let (mut last, mut states, mut busy) = (0, 0, 0);
        for life in 0..lives {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([TEST, "--exact", "--nocapture"]).env(DIRECTORY, &path).env(OPTIONS, shape);
            let mut child = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
            let ends = Instant::now() + Duration::from_millis(life_ms + random.below(life_ms));
            let mut begun = false;
            while Instant::now() < ends || !begun {
                let Some(db) = &db else {
                    let opened = Db::open_as_secondary(&path, directory.path().join("own"), &options);
                    // Errors are ignored at first, because the primary has not created its database
                    // yet.
                    db = opened.ok().filter(|db| db.column_families().len() == 2);
                    assert!(Instant::now() < ends + Duration::from_secs(60), "there is no database");
                    continue;
                };
                match db.try_catch_up_with_primary() {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::TryAgain => busy += 1,
                    Err(error) => panic!("{shape}, life {life}: {error}"),
                }
                let limited = shape.contains("max_open_files");
                let now = match limited {
                    true => super::as_number(db.get("number").unwrap_or_else(|e| {
                        // With a limit on open files, a file may be gone when it is read; the error
                        // reports that.
                        assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
                        None
                    })),
                    false => shown(db, &ReadOptions::new()),
                };
                if limited && now == 0 {
                    continue;
                }
                assert!(now >= last, "{shape}: {now} after {last}");
                begun |= now > last;
                states += u64::from(now > last);
                last = now;
                if !limited && states % 8 == 1 {
                    assert_eq!(scanned(db, "default", &ReadOptions::new()), now);
                }
                assert!(Instant::now() < ends + Duration::from_secs(60), "{shape}: nothing is written");
            }
            child.0.kill().unwrap();
            child.0.wait().unwrap();
            // The primary has ended, so the secondary must now show its final state.
            let db = db.as_ref().unwrap();
            db.try_catch_up_with_primary().unwrap();
            let whole = Db::open_read_only(&path, &options).unwrap();
            last = shown(&whole, &ReadOptions::new());
            assert_eq!(shown(db, &ReadOptions::new()), last, "{shape}, life {life}");
            assert_eq!(scanned(db, "other", &ReadOptions::new()), last);
        }
        eprintln!("{shape}: {lives} lives, {states} states of {last} steps, busy {busy} times");
    }
}
