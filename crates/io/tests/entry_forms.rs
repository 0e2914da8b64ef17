//! A read gives the same bytes by every entry form: `block_on` and a foreign executor; on io_uring and on
//! threads; buffered and direct.

use karst_io::{Env, FileSystem, OpenOptions, PosixFileSystem, TransportKind, block_on, open, read, sleep};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

struct Unpark(std::thread::Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that knows nothing of channels.
fn foreign<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) ^ (i >> 8)) as u8).collect()
}

fn check(env: &Env) {
    // Why not the temporary directory: it may be memory, which some kernels do not read directly.
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    let data = bytes(1_000_003);
    PosixFileSystem.create(&path).unwrap().append(&data).unwrap();
    for options in [OpenOptions::BUFFERED, OpenOptions::DIRECT] {
        let file = block_on(env, open(env, &path, options)).unwrap();
        assert_eq!(file.size(), data.len() as u64);
        for (offset, len) in [
            (0, 0),
            (0, 1),
            (1, 4300),
            (4095, 2),
            (511, 600_000),
            (999_999, 4),
            (999_999, 9000),
            (2_000_000, 10),
        ] {
            let end = (offset + len).min(data.len());
            let expected = data.get(offset..end).unwrap_or_default();
            let got = block_on(env, read(env, &file, offset as u64, len)).unwrap();
            assert!(&*got == expected, "block_on, {options:?}, {len} at {offset}");
            let got = foreign(read(env, &file, offset as u64, len)).unwrap();
            assert!(&*got == expected, "driver, {options:?}, {len} at {offset}");
        }
        let beyond = block_on(env, read(env, &file, u64::MAX - 3, 10)).unwrap_err();
        assert_eq!((beyond.op, &*beyond.path, beyond.offset), ("read", &*path, Some(u64::MAX - 3)));
    }
    let start = Instant::now();
    block_on(env, sleep(env, Duration::from_millis(5)));
    foreign(sleep(env, Duration::from_millis(5)));
    assert!(start.elapsed() >= Duration::from_millis(10));
    assert!(env.io_stats().is_quiescent(), "{:?}", env.io_stats());
}

#[test]
fn on_the_default_transport() {
    check(&Env::posix());
}

#[test]
fn on_threads() {
    check(&Env::builder().transport(TransportKind::Threads).build());
}
