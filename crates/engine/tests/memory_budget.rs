//! Memtables that are charged to the block cache: blocks make room for them, and get it back.

use karst_engine::{BlockCache, Db, FlushOptions, Options, WriteBufferManager};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn fill(db: &Db, keys: std::ops::Range<u64>) {
    for number in keys {
        db.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
    }
}

/// A job that has just ended may be the last that holds a memtable.
fn soon(done: impl Fn() -> bool, cache: &BlockCache) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{cache:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memtables_evict_blocks_and_give_the_room_back() {
    let files = MemoryFileSystem::new();
    files.create_dir(Path::new("/db")).unwrap();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let cache = BlockCache::new(4 * MIB);
    let budget = WriteBufferManager::with_cache(0, &cache, false);
    let options = Options::new()
        .env(env)
        .block_cache(cache.clone())
        .write_buffer_manager(budget.clone())
        .set("compression", "kNoCompression")
        .unwrap()
        .db(|db| db.create_if_missing = true);
    let db = Db::open(Path::new("/db"), &options).unwrap();
    fill(&db, 0..5000);
    // Beyond the capacity, as nothing can be evicted.
    assert!(cache.memtable_bytes() > 4 * MIB, "{cache:?}");
    assert_eq!((cache.memtable_bytes(), cache.usage_bytes()), (budget.used_bytes(), budget.used_bytes()));
    db.flush(&FlushOptions::default()).unwrap();
    soon(|| cache.memtable_bytes() < MIB / 4, &cache);
    for number in 0..5000u64 {
        assert!(db.get(number.to_be_bytes()).unwrap().is_some());
    }
    let read = (cache.memtable_bytes(), cache.usage_bytes());
    assert_eq!(read.0, budget.used_bytes());
    assert!(read.0 < MIB / 4 && read.1 > 3 * MIB && read.1 <= 4 * MIB, "{read:?}");
    fill(&db, 0..2000);
    let written = (cache.memtable_bytes(), cache.usage_bytes());
    assert_eq!(written.0, budget.used_bytes());
    assert!(written.0 > 3 * MIB / 2 && written.1 > 3 * MIB && written.1 <= 4 * MIB, "{written:?}");
    drop(db);
    soon(|| (cache.memtable_bytes(), budget.used_bytes()) == (0, 0), &cache);
    assert!(cache.usage_bytes() < 2 * MIB + MIB / 4, "blocks only: {cache:?}");
}
