//! In steady state a read allocates nothing, neither on a reactor nor in `block_on`.

use karst_io::testing::pattern;
use karst_io::{
    Env, FileSystem, OpenOptions, PosixFileSystem, RandomAccessFile, Reactor, block_on, open, read,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises hold for the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises hold for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn reads(env: &Env, file: &Arc<dyn RandomAccessFile>, count: u64) {
    for i in 0..count {
        let offset = (i * 4099) % 500_000;
        let bytes = read(env, file, offset, 4096).await.unwrap();
        assert_eq!(bytes.len(), 4096);
    }
}

/// Returns the allocations of this thread in 2000 reads, after as many to warm up.
async fn count_allocations(env: Env, file: Arc<dyn RandomAccessFile>) -> u64 {
    reads(&env, &file, 2000).await;
    let before = ALLOCATIONS.with(Cell::get);
    reads(&env, &file, 2000).await;
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn none_for_a_read() {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    PosixFileSystem.create(&path).unwrap().append(&pattern(0, 600_000)).unwrap();
    let env = Env::posix();
    for options in [OpenOptions::BUFFERED, OpenOptions::DIRECT] {
        let file = block_on(&env, open(&env, &path, options)).unwrap();
        assert_eq!(block_on(&env, count_allocations(env.clone(), file.clone())), 0, "block_on, {options:?}");
        let reactor = Reactor::builder(&env).build().unwrap();
        let e = env.clone();
        let on_reactor = reactor.spawn(move || count_allocations(e, file)).join().unwrap();
        assert_eq!(on_reactor, 0, "reactor, {options:?}");
    }
    let file = block_on(&env, open(&env, &path, OpenOptions::BUFFERED)).unwrap();
    // Each in a call of its own, like a synchronous get.
    let one = |i: u64| block_on(&env, read(&env, &file, i * 100, 1000)).unwrap();
    (0..100).for_each(|i| drop(one(i)));
    let before = ALLOCATIONS.with(Cell::get);
    (0..100).for_each(|i| drop(one(i)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
