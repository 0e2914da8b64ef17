//! Number of allocations of an asynchronous get, which docs/c-api.md states.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block is a call of the API on handles it gave out"
)]

use libc::{c_char, c_uchar, c_void};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr::null_mut;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

type H = *mut c_void;
type E = *mut *mut c_char;

#[repr(C)]
struct Notify {
    queue: H,
    callback: Option<unsafe extern "C" fn(*const H)>,
    user_data: H,
}

unsafe extern "C" {
    fn rocksdb_options_create() -> H;
    fn rocksdb_options_destroy(o: H);
    fn rocksdb_options_set_create_if_missing(o: H, v: c_uchar);
    fn rocksdb_open(o: H, name: *const c_char, e: E) -> H;
    fn rocksdb_close(db: H);
    fn rocksdb_put(db: H, o: H, k: *const c_char, kn: usize, v: *const c_char, vn: usize, e: E);
    fn karst_reactor_create(db: H, threads: u32, e: E) -> H;
    fn karst_reactor_destroy(r: H, e: E);
    fn karst_reactor_poll(r: H) -> i64;
    fn karst_op_release(op: H);
    fn karst_get_async(r: H, db: H, o: H, cf: H, k: *const c_char, kn: usize, n: *const Notify) -> H;
}

unsafe extern "C" fn released(done: *const H) {
    // The operation is the completion's first field.
    unsafe { karst_op_release(*done) }
}

#[test]
fn a_get_that_does_not_wait_allocates_four_times() {
    // Without a use of the crate the linker would drop its symbols.
    assert!(!karst_capi::asynchronous().is_empty());
    let directory = tempfile::tempdir().unwrap();
    let path = CString::new(directory.path().join("db").to_str().unwrap()).unwrap();
    let mut error = null_mut();
    unsafe {
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        let db = rocksdb_open(options, path.as_ptr(), &mut error);
        assert!(error.is_null());
        rocksdb_put(db, null_mut(), c"key".as_ptr(), 3, c"value".as_ptr(), 5, &mut error);
        let reactor = karst_reactor_create(db, 0, &mut error);
        assert!(error.is_null());
        let notify = Notify { queue: null_mut(), callback: Some(released), user_data: null_mut() };
        let gets = |count: u64| {
            let before = ALLOCATED.get();
            for _ in 0..count {
                let op = karst_get_async(reactor, db, null_mut(), null_mut(), c"key".as_ptr(), 3, &notify);
                assert!(!op.is_null());
                assert_eq!(karst_reactor_poll(reactor), 1);
            }
            ALLOCATED.get() - before
        };
        gets(100); // allocations made once
        assert_eq!(gets(1000), 4000);
        karst_reactor_destroy(reactor, &mut error);
        rocksdb_close(db);
        rocksdb_options_destroy(options);
    }
}
