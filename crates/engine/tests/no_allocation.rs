//! Cached hits allocate nothing: `get` and `multi_get`, synchronous and asynchronous, except for a
//! batch's vector of results.
//!
//! A global allocator counts every allocation of the test's thread and delegates to the system's.

use karst_engine::db::Db;
use karst_engine::open::Options;
use karst_testkit::rocksdb_tools::{db_bench, ldb_scan};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches no memory
// that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocations in `run`.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

fn first_poll<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a cached read had to wait"),
    }
}

/// Returns the keys of a small database with levels, filters and a memtable, with all of it in the
/// handle's cache.
fn cached(flags: &[&str], options: Options) -> (tempfile::TempDir, Db, Vec<Vec<u8>>) {
    let directory = tempfile::tempdir().unwrap();
    let mut all = vec![
        "--num=4000",
        "--benchmarks=fillrandom,overwrite",
        "--write_buffer_size=120000",
        "--target_file_size_base=50000",
        "--max_bytes_for_level_base=150000",
        "--bloom_bits=10",
    ];
    all.extend(flags);
    db_bench(directory.path(), &all).unwrap();
    let keys: Vec<Vec<u8>> =
        ldb_scan(directory.path(), "default").unwrap().into_iter().map(|(key, _)| key).collect();
    assert!(keys.len() > 2000);
    let db = Db::open_read_only(directory.path(), &options).unwrap();
    for key in &keys {
        assert!(db.get(key).unwrap().is_some());
    }
    (directory, db, keys)
}

fn check(flags: &[&str], options: Options) {
    let (_directory, db, keys) = cached(flags, options);
    let absent: Vec<Vec<u8>> = keys.iter().map(|key| [key, &b"!"[..]].concat()).collect();
    absent.iter().for_each(|key| assert_eq!(db.get(key).unwrap(), None));

    let of_get = allocations(|| keys.iter().for_each(|key| assert!(db.get(key).unwrap().is_some())));
    let of_absent = allocations(|| absent.iter().for_each(|key| assert!(db.get(key).unwrap().is_none())));
    let of_async =
        allocations(|| keys.iter().for_each(|key| assert!(first_poll(db.get_async(key)).unwrap().is_some())));
    assert_eq!((of_get, of_absent, of_async), (0, 0, 0));

    let batches = keys.chunks(64).count() as u64;
    let of_batches = allocations(|| {
        for batch in keys.chunks(64) {
            assert!(db.multi_get(batch).iter().all(|result| result.as_ref().unwrap().is_some()));
        }
    });
    let of_async_batches = allocations(|| {
        for batch in keys.chunks(64) {
            let results = first_poll(db.multi_get_async(batch));
            assert!(results.iter().all(|result| result.as_ref().unwrap().is_some()));
        }
    });
    assert_eq!((of_batches, of_async_batches), (batches, batches), "one vector of results a batch");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn hits_with_metadata_in_the_tables() {
    check(&[], Options::new().block_cache_bytes(64 << 20));
}

#[test]
fn hits_with_partitioned_metadata_in_the_cache() {
    let options = Options::new().block_cache_bytes(64 << 20).column_families(|family| {
        family.table_factory.block_based.cache_index_and_filter_blocks = true;
    });
    check(&["--partition_index_and_filters=true", "--metadata_block_size=512"], options);
}

#[test]
fn hits_in_a_block_cache_with_few_open_files() {
    // The limit exceeds the number of files, so the test covers the lookup of open files under a
    // limit.
    check(&[], Options::new().block_cache_bytes(64 << 20).db(|db| db.max_open_files = 500));
}
