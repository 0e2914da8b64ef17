//! Number of read requests that a scan of tables issues.

use karst_engine::{CompactFilesOptions, Db, FlushOptions, Options, ReadOptions};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;

/// Total size of all values in bytes.
const BYTES: u64 = 20 << 20;

#[test]
fn a_scan_reads_ahead_in_large_requests_alone() {
    let files = MemoryFileSystem::new();
    files.create_dir(Path::new("/db")).unwrap();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let options = options.set("compression", "kNoCompression").unwrap();
    let db = Db::open(Path::new("/db"), &options).unwrap();
    for number in 0..BYTES / 1000 {
        db.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    for (readahead_size, request) in [(2 << 20, 256 << 10), (256 << 10, 64 << 10)] {
        for forward in [true, false] {
            let options = ReadOptions { readahead_size, fill_cache: false, ..ReadOptions::default() };
            let mut iter = db.iter(&options).unwrap();
            let before = env.io_stats().reads;
            if forward { iter.seek_to_first() } else { iter.seek_to_last() }.unwrap();
            let mut entries = 0;
            while iter.valid() {
                entries += 1;
                if forward { iter.next() } else { iter.prev() }.unwrap();
            }
            let (reads, enough) = (env.io_stats().reads - before, BYTES / request);
            assert_eq!(entries, BYTES / 1000);
            // A few smaller requests precede the widest readahead window; a scan that waits for its
            // reads widens the window.
            assert!(reads <= enough + 8, "{reads} reads, {enough} of {request} bytes (forward: {forward})");
        }
    }
}

/// Near the end of a file the scan opens the next file of the level and reads ahead in it; the scan
/// uses every byte that it has read ahead.
#[test]
fn what_is_read_ahead_of_the_next_file_is_not_read_again() {
    const FILES: u64 = 5;
    const KEYS_OF_A_FILE: u64 = 40;
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let options = options
        .set_all("disable_auto_compactions=true;compression=kNoCompression;block_based_table_factory={block_size=4096}")
        .unwrap();
    let db = Db::open(Path::new("/db"), &options).unwrap();
    for number in 0..FILES * KEYS_OF_A_FILE {
        db.put(number.to_be_bytes(), [number as u8; 4000]).unwrap();
        if number % KEYS_OF_A_FILE == KEYS_OF_A_FILE - 1 {
            db.flush(&FlushOptions::default()).unwrap();
            let flushed: Vec<u64> =
                db.live_files().iter().filter(|f| f.level == Some(0)).map(|f| f.number).collect();
            let family = db.default_column_family();
            db.compact_files(&CompactFilesOptions::default(), family, &flushed, 2).unwrap();
        }
    }
    let files = db.live_files();
    assert_eq!(files.iter().filter(|file| file.level == Some(2)).count() as u64, FILES);
    let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
    let options = ReadOptions { readahead_size: 64 << 10, fill_cache: false, ..ReadOptions::default() };
    for forward in [true, false] {
        let mut iter = db.iter(&options).unwrap();
        let before = env.io_stats().bytes;
        if forward { iter.seek_to_first() } else { iter.seek_to_last() }.unwrap();
        let mut entries = 0;
        while iter.valid() {
            entries += 1;
            if forward { iter.next() } else { iter.prev() }.unwrap();
        }
        assert_eq!(entries, FILES * KEYS_OF_A_FILE);
        let read = env.io_stats().bytes - before;
        // The rest of a table is read once, when the table is opened.
        assert!(read <= bytes, "{read} bytes were read of {bytes} (forward: {forward})");
    }
}

/// L0 files whose keys the bounds exclude, on either side, are not read.
#[test]
fn files_outside_the_bounds_are_not_read() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let options = options.set_all("disable_auto_compactions=true").unwrap();
    let db = Db::open(Path::new("/db"), &options).unwrap();
    for key in ["b", "d", "f"] {
        db.put(key, "value").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    let reads_of = |lower: Option<&str>, upper: Option<&str>| {
        let bound = |key: Option<&str>| key.map(|key| key.as_bytes().to_vec());
        let options = ReadOptions {
            iterate_lower_bound: bound(lower),
            iterate_upper_bound: bound(upper),
            fill_cache: false,
            ..ReadOptions::default()
        };
        let mut iter = db.iter(&options).unwrap();
        let before = env.io_stats().reads;
        iter.seek_to_first().unwrap();
        let mut keys = 0;
        while iter.valid() {
            keys += 1;
            iter.next().unwrap();
        }
        (keys, env.io_stats().reads - before)
    };
    // The tables are open by now, and each has one block.
    assert_eq!(reads_of(None, None).0, 3);
    assert_eq!(reads_of(None, None), (3, 3));
    assert_eq!(reads_of(Some("c"), Some("e")), (1, 1));
    assert_eq!(reads_of(Some("c"), None), (2, 2));
    assert_eq!(reads_of(None, Some("c")), (1, 1));
}
