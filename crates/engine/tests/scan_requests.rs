//! How many requests a scan of tables makes.

use karst_engine::{Db, FlushOptions, Options, ReadOptions};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;

/// Bytes of all values.
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
            // The widest window is reached by a few smaller requests, and a scan that waits for its reads widens it.
            assert!(reads <= enough + 8, "{reads} reads, {enough} of {request} bytes (forward: {forward})");
        }
    }
}
