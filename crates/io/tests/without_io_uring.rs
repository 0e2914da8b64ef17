//! If io_uring is forbidden, missing or out of lockable memory, everything works, and the log
//! reports it once.

use karst_io::testing::{cancellations, foreign_block_on, pattern, quiesce};
use karst_io::{Env, FileSystem, OpenOptions, PosixFileSystem, Reactor, block_on, open, read};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the messages of this process's log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Text(String);
impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Log {
    fn count(&self, what: &str) -> usize {
        self.0.lock().iter().filter(|line| line.contains(what)).count()
    }
}

/// Makes a system call fail with `errno` on this thread and those it starts.
fn forbid(call: libc::c_long, errno: u32) {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions outlive the calls, which only copy them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// Reads by all entry forms on a thread of its own, after `restrict` has run there.
fn read_all_forms(dir: &Path, restrict: impl FnOnce() + Send) -> Env {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            restrict();
            let path = dir.join("file");
            PosixFileSystem.create(&path).unwrap().append(&pattern(0, 100_000)).unwrap();
            let env = Env::posix();
            let file = block_on(&env, open(&env, &path, OpenOptions::DIRECT)).unwrap();
            assert_eq!(*block_on(&env, read(&env, &file, 77, 5000)).unwrap(), *pattern(77, 5000));
            assert_eq!(*foreign_block_on(read(&env, &file, 78, 5000)).unwrap(), *pattern(78, 5000));
            let reactor = Reactor::builder(&env).build().unwrap();
            let e = env.clone();
            let task = reactor.spawn(move || async move { read(&e, &file, 79, 5000).await });
            assert_eq!(*task.join().unwrap().unwrap(), *pattern(79, 5000));
            drop(reactor);
            // Until there were enough, because their number within a time depends on the machine.
            let (mut dropped, mut seed) = (0, 3);
            while dropped <= 100 {
                dropped += cancellations(&env, dir, true, Duration::from_millis(200), seed);
                seed += 100;
            }
            quiesce(&env);
            assert_eq!(env.io_stats().errors, 0);
            env
        });
        thread.join().unwrap()
    })
}

/// One test, because the limits apply to the process.
#[test]
fn reads_go_on_with_threads_and_the_log_says_why_once() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let dir = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let fallback = "io_uring cannot be used here";
    read_all_forms(dir.path(), || {});
    assert_eq!((log.count(fallback), log.count("WARN")), (0, 0), "{:?}", log.0.lock());
    assert_eq!(log.count("unregistered"), 0);

    read_all_forms(dir.path(), || forbid(libc::SYS_io_uring_setup, libc::EPERM as u32));
    assert_eq!((log.count(fallback), log.count("WARN")), (1, 1), "{:?}", log.0.lock());
    read_all_forms(dir.path(), || forbid(libc::SYS_io_uring_setup, libc::ENOSYS as u32));
    assert_eq!(log.count(fallback), 2);
    read_all_forms(dir.path(), || forbid(libc::SYS_io_uring_setup, libc::ENOMEM as u32));
    assert_eq!(log.count(fallback), 3);
    // A sandbox may allow making a ring and forbid using it.
    read_all_forms(dir.path(), || forbid(libc::SYS_io_uring_enter, libc::EPERM as u32));
    assert_eq!(log.count(fallback), 4);

    // Without locked buffers, the ring reads into unregistered ones.
    read_all_forms(dir.path(), || forbid(libc::SYS_io_uring_register, libc::ENOMEM as u32));
    assert_eq!((log.count(fallback), log.count("WARN")), (4, 4), "{:?}", log.0.lock());
    assert!(log.count("unregistered") > 0);
}
