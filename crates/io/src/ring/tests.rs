//! Tests of the ring: at each level of kernel features, full, alarmed, timed out, refused for good.

use super::*;
use crate::buffer::BufferPool;
use crate::file::{FileSystem, OpenOptions, RandomAccessFile};
use crate::posix::PosixFileSystem;
use crate::stats::Counters;
use crate::testing::pattern;
use std::time::Instant;

fn file(dir: &Path, options: OpenOptions) -> Arc<dyn RandomAccessFile> {
    let path = dir.join("file");
    PosixFileSystem.create(&path).unwrap().append(&pattern(0, 1 << 20)).unwrap();
    PosixFileSystem.open_random(&path, options).unwrap()
}

fn directory() -> tempfile::TempDir {
    // Beside the program, because the temporary directory may be in memory, which some kernels do
    // not read with direct I/O.
    let program = std::env::current_exe().unwrap();
    tempfile::Builder::new().tempdir_in(program.parent().unwrap()).unwrap()
}

fn read_many(ring: &mut Ring, file: &Arc<dyn RandomAccessFile>, pool: &mut BufferPool, count: u32) {
    let mut done = Vec::new();
    for token in 0..count {
        let buffer = pool.take(4096);
        let offset = u64::from(token) * 4096;
        ring.queue(Op { token, file: file.clone(), buffer, start: 0, len: 4096, offset });
    }
    assert_eq!(ring.in_flight(), count as usize);
    let mut seen = vec![false; count as usize];
    while ring.in_flight() > 0 {
        ring.wait(None, &mut done);
        for completion in done.drain(..) {
            let Completion::Read { op, result } = completion else { panic!("nothing was opened") };
            assert_eq!(result.unwrap(), 4096);
            assert!(!std::mem::replace(&mut seen[op.token as usize], true));
            assert!(*op.buffer.freeze(0, 4096) == *pattern(op.offset, 4096));
        }
    }
    assert!(seen.into_iter().all(|s| s));
}

#[test]
fn reads_at_each_level_of_kernel_features() {
    let dir = directory();
    for level in 0..3 {
        for options in [OpenOptions::BUFFERED, OpenOptions::DIRECT] {
            let file = file(dir.path(), options);
            let mut ring = Ring::at_level(256, level).unwrap();
            let mut pool = BufferPool::new(1, Arc::default(), Arc::new(Counters::default()));
            read_many(&mut ring, &file, &mut pool, 256);
            assert!(ring.register(&pool.registrable()));
            read_many(&mut ring, &file, &mut pool, 256);
        }
    }
}

#[test]
fn poll_takes_in_completions_without_a_wait() {
    let dir = directory();
    let file = file(dir.path(), OpenOptions::DIRECT);
    for level in 0..3 {
        let mut ring = Ring::at_level(8, level).unwrap();
        let mut pool = BufferPool::new(1, Arc::default(), Arc::new(Counters::default()));
        let buffer = pool.take(4096);
        ring.queue(Op { token: 0, file: file.clone(), buffer, start: 0, len: 4096, offset: 0 });
        assert!(ring.submit() && !ring.submit());
        let (mut done, start) = (Vec::new(), Instant::now());
        while done.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(300), "level {level}");
            ring.poll(&mut done);
        }
    }
}

#[test]
fn a_wait_ends_with_the_time_and_with_the_alarm() {
    for level in 0..3 {
        let mut ring = Ring::at_level(8, level).unwrap();
        let mut done = Vec::new();
        let start = Instant::now();
        ring.wait(Some(Duration::from_millis(20)), &mut done);
        assert!(start.elapsed() >= Duration::from_millis(20) && done.is_empty());
        for round in 0..5 {
            let alarm = ring.alarm().clone();
            let other = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                alarm.ring();
            });
            ring.wait(Some(Duration::from_secs(1000)), &mut done);
            assert!(start.elapsed() < Duration::from_secs(300), "level {level}, round {round}");
            other.join().unwrap();
        }
        // A ring of the alarm before the wait ends the wait too.
        ring.alarm().ring();
        ring.wait(Some(Duration::from_secs(1000)), &mut done);
        assert!(start.elapsed() < Duration::from_secs(300));
    }
}

#[test]
fn what_the_kernel_refuses_for_good_fails_and_is_not_submitted_later() {
    let dir = directory();
    let file = file(dir.path(), OpenOptions::BUFFERED);
    let mut ring = Ring::new(8).unwrap();
    let mut pool = BufferPool::new(1, Arc::default(), Arc::new(Counters::default()));
    let op = |token, pool: &mut BufferPool| {
        let buffer = pool.take(4096);
        Op { token, file: file.clone(), buffer, start: 0, len: 4096, offset: 0 }
    };
    ring.queue(op(0, &mut pool));
    ring.queue(op(1, &mut pool));
    ring.entered(Err(io::Error::from_raw_os_error(libc::EPERM))); // as if the kernel had returned it
    let mut done = Vec::new();
    ring.wait(None, &mut done);
    assert_eq!((done.len(), ring.in_flight()), (2, 0));
    // More than its queue holds: each op completes with an error.
    for token in 0..50 {
        ring.queue(op(token, &mut pool));
        ring.submit();
    }
    ring.poll(&mut done);
    ring.wait(Some(Duration::from_millis(1)), &mut done);
    for completion in done {
        let Completion::Read { result, .. } = completion else { panic!("nothing was opened") };
        assert!(result.is_err());
    }
    assert_eq!(ring.in_flight(), 0);
}
