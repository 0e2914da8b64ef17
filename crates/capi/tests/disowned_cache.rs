//! Memory of a disowned cache: destroying the cache does not free it.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block is a call of the API on handles it gave out"
)]

use libc::{c_char, c_uchar, c_void};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is forwarded unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

type H = *mut c_void;
type E = *mut *mut c_char;

unsafe extern "C" {
    fn rocksdb_options_create() -> H;
    fn rocksdb_options_destroy(o: H);
    fn rocksdb_options_set_create_if_missing(o: H, v: c_uchar);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_block_based_options_set_block_cache(o: H, c: H);
    fn rocksdb_cache_create_lru(n: usize) -> H;
    fn rocksdb_cache_get_usage(c: H) -> usize;
    fn rocksdb_cache_disown_data(c: H);
    fn rocksdb_cache_destroy(c: H);
    fn rocksdb_open(o: H, name: *const c_char, e: E) -> H;
    fn rocksdb_close(db: H);
    fn rocksdb_writeoptions_create() -> H;
    fn rocksdb_writeoptions_destroy(o: H);
    fn rocksdb_readoptions_create() -> H;
    fn rocksdb_readoptions_destroy(o: H);
    fn rocksdb_flushoptions_create() -> H;
    fn rocksdb_flushoptions_destroy(o: H);
    fn rocksdb_put(db: H, o: H, k: *const c_char, kn: usize, v: *const c_char, vn: usize, e: E);
    fn rocksdb_get(db: H, o: H, k: *const c_char, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_flush(db: H, o: H, e: E);
    fn rocksdb_free(p: H);
}

// Without a use of the crate the linker would drop its symbols.
#[test]
fn the_library_is_linked() {
    assert!(!karst_capi::functions().is_empty());
}

fn ok<T>(call: impl FnOnce(E) -> T) -> T {
    let mut error = null_mut();
    let value = call(&mut error);
    assert!(error.is_null());
    value
}

/// Returns the bytes freed by destroying a cache that holds a value of `size` bytes.
unsafe fn given_back(size: usize, disowned: bool) -> usize {
    unsafe {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().to_str().unwrap()).unwrap();
        let (cache, table) = (rocksdb_cache_create_lru(4 * size), rocksdb_block_based_options_create());
        rocksdb_block_based_options_set_block_cache(table, cache);
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_block_based_options_destroy(table);
        let db = ok(|e| rocksdb_open(options, path.as_ptr(), e));
        rocksdb_options_destroy(options);
        let (write, read, flush) =
            (rocksdb_writeoptions_create(), rocksdb_readoptions_create(), rocksdb_flushoptions_create());
        let value = vec![7_u8; size];
        ok(|e| rocksdb_put(db, write, c"k".as_ptr(), 1, value.as_ptr().cast(), size, e));
        ok(|e| rocksdb_flush(db, flush, e));
        let mut length = 0;
        rocksdb_free(ok(|e| rocksdb_get(db, read, c"k".as_ptr(), 1, &mut length, e)).cast());
        assert_eq!(length, size);
        rocksdb_writeoptions_destroy(write);
        rocksdb_readoptions_destroy(read);
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        assert!(rocksdb_cache_get_usage(cache) >= size);
        if disowned {
            rocksdb_cache_disown_data(cache);
        }
        let before = IN_USE.load(Ordering::Relaxed);
        rocksdb_cache_destroy(cache);
        before.saturating_sub(IN_USE.load(Ordering::Relaxed))
    }
}

#[test]
fn it_stays_if_the_cache_was_disowned() {
    const SIZE: usize = 8 << 20;
    let (kept, lost) = unsafe { (given_back(SIZE, false), given_back(SIZE, true)) };
    assert!(kept >= SIZE, "{kept}");
    assert!(lost < SIZE / 8, "{lost}");
}
