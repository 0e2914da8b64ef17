//! After a fork the child leaves its parent's rings alone and makes its own; the parent is
//! unaffected.

use karst_io::testing::{foreign_block_on, pattern};
use karst_io::{
    Env, FileSystem, OpenOptions, PosixFileSystem, ReadFuture, TransportKind, block_on, open, read, sleep,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

fn nudge(future: &mut ReadFuture) {
    assert!(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

fn check(kind: TransportKind) {
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    PosixFileSystem.create(&path).unwrap().append(&pattern(0, 1_000_000)).unwrap();
    let env = Env::builder().transport(kind).build();
    let file = block_on(&env, open(&env, &path, OpenOptions::DIRECT)).unwrap();
    foreign_block_on(sleep(&env, Duration::from_millis(1))); // the driver runs
    // In flight during the fork: one read on this thread's ring, one with the driver.
    let (mut own, mut drivers) = (read(&env, &file, 1, 300_000), read(&env, &file, 2, 300_000));
    block_on(&env, async { nudge(&mut own) });
    nudge(&mut drivers);

    // SAFETY: the child uses memory allocation and threads after the fork, which glibc supports,
    // and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    let works = || {
        *block_on(&env, own).unwrap() == *pattern(1, 300_000)
            && *foreign_block_on(drivers).unwrap() == *pattern(2, 300_000)
            && *block_on(&env, read(&env, &file, 3, 5000)).unwrap() == *pattern(3, 5000)
            && *foreign_block_on(read(&env, &file, 4, 5000)).unwrap() == *pattern(4, 5000)
    };
    if child == 0 {
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(works)).unwrap_or(false);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    assert!(works());
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed: {status:#x}");
}

#[test]
fn the_child_of_a_fork_reads_too() {
    check(TransportKind::Auto);
    check(TransportKind::Threads);
}
