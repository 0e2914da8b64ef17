//! Verification of stored files by their checksums.

use karst_engine::{
    Db, ErrorKind, FlushOptions, LiveFile, Options, ReadOptions, Statistics, StatsLevel, Ticker, WriteOptions,
};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Returns a value. Every thousandth makes a block or blob record larger than one read of the
/// verification.
fn value(number: u32) -> Vec<u8> {
    let length = if number % 1000 == 999 { 1_400_000 } else { 60 + number % 50 };
    (0..length).map(|at: u32| at.wrapping_mul(number) as u8).collect()
}

/// Returns a database with two families of `keys` - 11 keys each, tables of several levels, range
/// tombstones and, in the second family, blob files.
fn new(folder: &tempfile::TempDir, more: &str, keys: u32, stats: Arc<Statistics>) -> Db {
    let all = format!(
        "create_if_missing=true;disable_auto_compactions=true;filter_policy=bloomfilter:10:false;block_size=1K;\
         file_checksum_gen_factory=FileChecksumGenCrc32cFactory;{more}"
    );
    let options = Options::new().set_all(&all).unwrap().statistics(stats).block_cache_bytes(64 << 20);
    let db = Db::open(folder.path(), &options).unwrap();
    let with_blobs = options.set_all("enable_blob_files=true;min_blob_size=80").unwrap();
    let write = WriteOptions::new();
    let second = db.create_column_family("second", &with_blobs).unwrap();
    for family in [db.default_column_family(), &second] {
        for start in 0..2 {
            (start..keys).step_by(2).for_each(|number| {
                db.put_cf(&write, family, key(number), value(number)).unwrap();
            });
            db.delete_range_cf(&write, family, key(10), key(20 + start)).unwrap();
            db.flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        }
    }
    db.compact_range(&Default::default(), None, None).unwrap();
    db.put(key(5), value(5)).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db
}

fn path(file: &LiveFile) -> PathBuf {
    file.directory.join(&file.name)
}

const SHAPES: [&str; 4] = [
    "compression=kNoCompression",
    "compression=kZSTD;compression_opts={max_dict_bytes=4096};index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=512",
    "compression=kLZ4Compression;checksum=kCRC32c;format_version=5;cache_index_and_filter_blocks=true",
    "compression=kNoCompression;use_direct_reads=true;max_open_files=12;format_version=4",
];

#[test]
fn what_is_as_it_was_written_is_verified_whole() {
    for shape in SHAPES {
        let (folder, stats) = (tempfile::tempdir().unwrap(), Arc::new(Statistics::new(StatsLevel::All)));
        let db = new(&folder, shape, 3000, stats.clone());
        let files = db.live_files();
        let tables: u64 = files.iter().filter(|file| file.level.is_some()).map(|file| file.size_bytes).sum();
        let blobs: u64 = files.iter().map(|file| file.size_bytes).sum::<u64>() - tables;
        assert!(blobs > 0 && tables > 0);

        db.verify_checksum().unwrap();
        let read = stats.ticker(Ticker::VerifyChecksumReadBytes);
        // All bytes are read, except for the few that locate the rest.
        let rest = (tables + blobs).abs_diff(read);
        assert!(rest < files.len() as u64 * 8000, "{shape}: {read} of {tables} and {blobs}");
        assert_eq!(stats.ticker(Ticker::BlockChecksumMismatchCount), 0);

        assert_eq!(db.verify_file_checksums().unwrap(), files.len() as u64, "{shape}");
        assert_eq!(stats.ticker(Ticker::VerifyChecksumReadBytes) - read, tables + blobs, "{shape}");
        fn sent<T: Send>(future: T) -> T {
            future
        }
        karst_io::block_on(&karst_io::Env::posix(), async {
            sent(db.verify_checksum_async()).await.unwrap();
            assert_eq!(sent(db.verify_file_checksums_async()).await.unwrap(), files.len() as u64);
        });
        db.close().unwrap();

        let db = Db::open_read_only(folder.path(), &Options::new()).unwrap();
        db.verify_checksum().unwrap();
        assert_eq!(db.verify_file_checksums().unwrap(), files.len() as u64, "{shape}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_though_all_is_in_memory() {
    const KEYS: u32 = 300;
    for shape in SHAPES {
        let folder = tempfile::tempdir().unwrap();
        let db = new(&folder, shape, KEYS, Arc::new(Statistics::new(StatsLevel::All)));
        let families = ["default", "second"].map(|name| db.column_family(name).unwrap());
        let read_all = || {
            for family in &families {
                let mut iter = db.iter_cf(&ReadOptions::new(), family).unwrap();
                iter.seek_to_first().unwrap();
                let mut count = 0;
                while iter.valid() {
                    count += 1;
                    iter.next().unwrap();
                }
                assert_eq!(count, KEYS - 11);
            }
        };
        read_all();
        for file in db.live_files() {
            let stored = std::fs::OpenOptions::new().read(true).write(true).open(path(&file)).unwrap();
            let size = stored.metadata().unwrap().len();
            assert_eq!(size, file.size_bytes, "{}", file.name);
            // Bytes that only the whole file's checksum covers and that may validly differ: the
            // compression of a blob file, and footers before format_version 6.
            let unchecked = match file.level {
                None => 13..14,
                Some(_) if shape.contains("format_version") => size - 53..size,
                Some(_) => 0..0,
            };
            // Samples the middle, and tests all bytes at both ends.
            let places =
                (0..40).chain(size - 120..size).chain((40..size - 120).step_by((size / 40) as usize));
            for at in places {
                let mut byte = [0];
                stored.read_exact_at(&mut byte, at).unwrap();
                stored.write_all_at(&[byte[0] ^ (1 << (at % 8))], at).unwrap();
                if !unchecked.contains(&at) {
                    let found = db.verify_checksum().expect_err(&format!("{shape}: {} at {at}", file.name));
                    assert!(found.to_string().contains(&file.name), "{found}");
                }
                let found_whole = db.verify_file_checksums().unwrap_err();
                assert_eq!(found_whole.kind(), ErrorKind::Corruption, "{found_whole}");
                assert!(found_whole.to_string().contains(&file.name), "{found_whole}");
                stored.write_all_at(&byte, at).unwrap();
            }
            let mut last = [0];
            stored.read_exact_at(&mut last, size - 1).unwrap();
            stored.set_len(size - 1).unwrap();
            let found = db.verify_checksum().unwrap_err().to_string();
            assert!(found.contains(&file.name), "{found}");
            assert!(db.verify_file_checksums().is_err());
            stored.write_all_at(&last, size - 1).unwrap();
            db.verify_checksum().unwrap();
        }
        read_all();
    }
}
