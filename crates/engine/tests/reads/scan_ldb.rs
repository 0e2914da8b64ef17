//! Iterators over databases that RocksDB's tools wrote, compared with the dumps of those tools.

use karst_engine::db::Db;
use karst_engine::open::Options;
use karst_engine::options::ReadOptions;
use std::path::Path;
use std::process::Command;

fn tool(name: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(name)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{name}: {e}; these tests need Debian's package rocksdb-tools"));
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the pairs that `ldb scan` prints.
fn expected(db: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let flag = format!("--db={}", db.display());
    let text = String::from_utf8(tool("ldb", &[&flag, "--hex", "scan"])).unwrap();
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.strip_prefix("0x").unwrap();
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
    };
    text.lines()
        .map(|line| {
            let (key, value) = line.split_once(" : ").unwrap();
            (bytes(key), bytes(value))
        })
        .collect()
}

fn check(db: &Path, options: &ReadOptions) {
    let want = expected(db);
    assert!(want.len() > 100, "{} entries", want.len());
    let db = Db::open_read_only(db, &Options::default()).unwrap();
    let mut iter = db.iter(options).unwrap();
    iter.seek_to_first().unwrap();
    for (i, (key, value)) in want.iter().enumerate() {
        assert!(iter.valid(), "ended before entry {i}");
        assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()), "entry {i} forwards");
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.seek_to_last().unwrap();
    for (i, (key, value)) in want.iter().enumerate().rev() {
        assert!(iter.valid(), "ended before entry {i}");
        assert_eq!((iter.key(), iter.value()), (key.as_slice(), value.as_slice()), "entry {i} backwards");
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    // Seeks to existing and to absent keys, and changes direction at each.
    for (i, (key, _)) in want.iter().enumerate().step_by(7) {
        iter.seek(key).unwrap();
        assert_eq!(iter.key(), key);
        iter.prev().unwrap();
        assert_eq!(iter.valid().then(|| iter.key().to_vec()), i.checked_sub(1).map(|i| want[i].0.clone()));
        iter.seek_for_prev(key).unwrap();
        assert_eq!(iter.key(), key);
        iter.next().unwrap();
        assert_eq!(iter.valid().then(|| iter.key().to_vec()), want.get(i + 1).map(|e| e.0.clone()));
        let mut behind = key.clone();
        behind.push(0);
        iter.seek(&behind).unwrap();
        assert_eq!(iter.valid().then(|| iter.key().to_vec()), want.get(i + 1).map(|e| e.0.clone()));
        iter.seek_for_prev(&behind).unwrap();
        assert_eq!(iter.key(), key);
    }
}

fn bench(db: &Path, flags: &[&str]) {
    let db = format!("-db={}", db.display());
    let mut args = vec![db.as_str(), "-num=20000", "-value_size=200", "-seed=7", "-write_buffer_size=262144"];
    args.extend(["-target_file_size_base=131072", "-max_bytes_for_level_base=524288"]);
    args.extend(flags);
    tool("db_bench", &args);
}

#[test]
fn a_tree_of_several_levels_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    bench(
        dir.path(),
        &["-benchmarks=fillrandom,overwrite,deleterandom", "-num=8000", "-compression_type=lz4"],
    );
    check(dir.path(), &ReadOptions::default());
    check(dir.path(), &ReadOptions { async_io: false, ..ReadOptions::default() });
    check(dir.path(), &ReadOptions { readahead_size: 1 << 20, ..ReadOptions::default() });
}

#[test]
fn partitioned_index_and_filters() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "-benchmarks=fillrandom",
        "-partition_index_and_filters=true",
        "-metadata_block_size=512",
        "-bloom_bits=10",
    ];
    bench(dir.path(), &flags);
    check(dir.path(), &ReadOptions::default());
    check(dir.path(), &ReadOptions { fill_cache: false, ..ReadOptions::default() });
}

#[test]
fn bounds_are_kept_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), &["-benchmarks=fillrandom"]);
    let want = expected(dir.path());
    let db = Db::open_read_only(dir.path(), &Options::default()).unwrap();
    let (low, high) = (want.len() / 3, want.len() / 2);
    let options = ReadOptions {
        iterate_lower_bound: Some(want[low].0.clone()),
        iterate_upper_bound: Some(want[high].0.clone()),
        ..ReadOptions::default()
    };
    let mut iter = db.iter(&options).unwrap();
    let mut seen = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        seen.push(iter.key().to_vec());
        iter.next().unwrap();
    }
    let keys: Vec<Vec<u8>> = want[low..high].iter().map(|e| e.0.clone()).collect();
    assert_eq!(seen, keys);
    seen.clear();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        seen.push(iter.key().to_vec());
        iter.prev().unwrap();
    }
    seen.reverse();
    assert_eq!(seen, keys);
    iter.seek(b"").unwrap();
    assert_eq!(iter.key(), keys[0]);
    iter.seek_for_prev([0xff; 32]).unwrap();
    assert_eq!(iter.key(), keys[keys.len() - 1]);
}
