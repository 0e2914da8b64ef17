//! RocksDB 7.8 as primary or as secondary.

use super::{Pair, names, shown};
use karst_engine::{Db, Options, ReadOptions};
use karst_testkit::rocksdb_tools::{ldb, run};

#[test]
fn rocksdb_is_a_secondary_of_our_primary() {
    let pair = Pair::new("");
    (1..=5).for_each(|number| pair.step(number));
    pair.flush();
    let own = pair.directory.path().join("rocksdb");
    let flag = format!("--secondary_path={}", own.display());
    for number in 6..=8 {
        pair.step(number);
        let args = [flag.as_str(), "--hex", "--column_family=other", "get", "0x6E756D626572"];
        let value = ldb(&pair.path(), &args, b"").unwrap();
        assert_eq!(value.trim(), format!("0x{number:02X}00000000000000"));
    }
    assert_eq!(shown(&pair.secondary("second"), &ReadOptions::new()), 8);
}

#[test]
fn our_secondary_follows_a_rocksdb_primary() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let put = |number: u32| {
        let text = number.to_string();
        let args = ["--create_if_missing", "batchput", "a", &text, "b", &text, &format!("k{text}"), "v"];
        ldb(&path, &args, b"").unwrap();
    };
    put(0);
    let db = Db::open_as_secondary(&path, directory.path().join("own"), &Options::new()).unwrap();
    let keys = ["a", "b"];
    for number in 1..12 {
        put(number);
        if number.is_multiple_of(4) {
            ldb(&path, &["compact"], b"").unwrap();
        }
        let snapshot = db.snapshot();
        db.try_catch_up_with_primary().unwrap();
        let got =
            db.multi_get(&keys).into_iter().map(|v| String::from_utf8(v.unwrap().unwrap().to_vec()).unwrap());
        assert_eq!(got.collect::<Vec<_>>(), [number.to_string(), number.to_string()]);
        let read = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() };
        assert_eq!(db.get_opt(&read, "a").unwrap().as_deref(), Some((number - 1).to_string().as_bytes()));
        assert_eq!(db.range(..).unwrap().count() as u32, 2 + number + 1);
    }
}

/// RocksDB writes as fast as it can, flushes, compacts and recycles logs.
#[test]
fn our_secondary_follows_db_bench() {
    // More writes, until this thread had a processor while RocksDB wrote.
    let states: Vec<u64> = (0..5).map(|round| follow(120_000 << round)).take_while(|n| *n <= 1).collect();
    assert!(states.len() < 5, "{states:?}");
}

/// Follows RocksDB through `writes` writes of each of two threads. Returns the number of states
/// that were seen.
fn follow(writes: u64) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let flag = format!("--db={}", path.display());
    let writes = format!("--writes={writes}");
    let bench = std::thread::spawn(move || {
        let args = [
            flag.as_str(),
            "--benchmarks=overwrite",
            "--num=20000",
            &writes,
            "--value_size=60",
            "--write_buffer_size=500000",
            "--target_file_size_base=300000",
            "--max_bytes_for_level_base=1000000",
            "--threads=2",
            "--compression_type=none",
        ];
        run("db_bench", &args, b"").unwrap();
    });
    let options = Options::new();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let db = loop {
        match Db::open_as_secondary(&path, directory.path().join("own"), &options) {
            Ok(db) => break db,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
    };
    let (mut last, mut states) = (0, 0);
    loop {
        let ends = bench.is_finished();
        if let Err(error) = db.try_catch_up_with_primary() {
            assert!(!ends && error.kind() == karst_engine::ErrorKind::TryAgain, "{error}");
        }
        let now = db.latest_sequence_number();
        assert!(now >= last);
        states += u64::from(now > last);
        last = now;
        if ends {
            break;
        }
    }
    bench.join().unwrap();
    let whole = Db::open_read_only(&path, &options).unwrap();
    assert_eq!(last, whole.latest_sequence_number());
    let all = |db: &Db| {
        let entries = db.range(..).unwrap().map(|entry| entry.unwrap());
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>()
    };
    assert!(all(&db) == all(&whole));
    assert!(!names(&path).is_empty());
    states
}
