//! Single flight between threads: simultaneous identical reads share one, and no reader waits for a
//! thread that does not poll its channel.

use karst_io::testing::{foreign_block_on, pattern, quiesce};
use karst_io::{
    Disturb, Disturbance, DisturbedFileSystem, Env, EnvBuilder, FileSystem, Latency, LatencyFileSystem,
    MemoryFileSystem, OpenOptions, RandomAccessFile, Reactor, ReadFuture, TransportKind, block_on, open,
    read,
};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// Much longer than any of these tests should take.
const FOR_EVER: Duration = Duration::from_secs(600);
const LEN: usize = 5000;

type File = Arc<dyn RandomAccessFile>;

/// Delays the first read by `FOR_EVER`, and no other.
#[derive(Debug, Default)]
struct FirstIsStuck(AtomicBool);

impl Disturb for FirstIsStuck {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        let first = !self.0.swap(true, Ordering::Relaxed);
        first.then(|| Disturbance { delay: Some(FOR_EVER), ..Disturbance::default() })
    }
}

fn in_memory() -> Arc<MemoryFileSystem> {
    let memory = MemoryFileSystem::new();
    memory.create_dir(Path::new("/db")).unwrap();
    memory.write_file(Path::new("/db/file"), pattern(0, 1 << 20)).unwrap();
    Arc::new(memory)
}

fn disturbed<D: Disturb>(builder: EnvBuilder, between: D) -> (Env, File) {
    let env = builder.file_system(Arc::new(DisturbedFileSystem::new(in_memory(), between))).build();
    let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions { direct: false })).unwrap();
    (env, file)
}

fn slow(builder: EnvBuilder, latency: Duration) -> (Env, File) {
    disturbed(builder, Latency::of_reads(latency))
}

/// Runs `attempt` with ever slower reads until it returns true, which means that threads joined a
/// read of that latency: the machine determines how late a thread arrives.
fn until_they_meet(mut attempt: impl FnMut(Duration) -> bool) {
    assert!((0..8).any(|round| attempt(Duration::from_millis(50 << round))), "they never meet");
}

fn builders() -> [fn() -> EnvBuilder; 2] {
    [Env::builder, || Env::builder().transport(TransportKind::Threads).threads(4)]
}

/// Polls `future` once without waiting.
async fn nudge(future: &mut ReadFuture) {
    let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await;
    assert!(pending, "a slow read is not done at once");
}

/// Starts a thread that joins the read of `offset`, checks its bytes and returns the time it took.
fn joins(env: &Env, file: &File, offset: u64) -> JoinHandle<Duration> {
    let (env, file) = (env.clone(), file.clone());
    spawn(move || {
        let begin = Instant::now();
        let got = block_on(&env, read(&env, &file, offset, LEN)).unwrap();
        assert!(*got == *pattern(offset, LEN), "wrong bytes");
        begin.elapsed()
    })
}

/// Waits until `count` reads have joined another thread's.
fn until_joined(env: &Env, count: u64) {
    let begin = Instant::now();
    while env.io_stats().joined_elsewhere < count {
        assert!(begin.elapsed() < FOR_EVER, "nobody joined: {:?}", env.io_stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ends<T>(thread: JoinHandle<T>) -> T {
    let begin = Instant::now();
    while !thread.is_finished() {
        assert!(begin.elapsed() < FOR_EVER, "a thread waits for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

fn wait(signal: &Receiver<()>) {
    signal.recv_timeout(FOR_EVER).unwrap();
}

#[test]
fn threads_reactors_and_the_driver_share_one_read() {
    for builder in builders() {
        until_they_meet(|latency| {
            let (env, file) = slow(builder(), latency);
            let before = env.io_stats();
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            for form in 0..6 {
                let (env, file) = (env.clone(), file.clone());
                threads.push(spawn(move || {
                    let future = read(&env, &file, 100, LEN);
                    let got = match form % 3 {
                        0 => block_on(&env, future),
                        1 => foreign_block_on(future),
                        _ => {
                            let reactor = Reactor::builder(&env).build().unwrap();
                            reactor.spawn(move || future).join().unwrap()
                        }
                    };
                    assert!(*got.unwrap() == *pattern(100, LEN), "wrong bytes");
                }));
            }
            threads.into_iter().for_each(ends);
            let after = env.io_stats();
            quiesce(&env);
            // The driver is one channel for two of the six readers.
            (after.reads - before.reads, after.joined - before.joined) == (1, 5)
                && (after.joined_elsewhere, after.left) == (4, 0)
        });
    }
}

#[test]
fn an_error_goes_to_all_who_joined() {
    use karst_io::{FaultFileSystem, FaultPlan, Faults};
    until_they_meet(|latency| {
        let plan = FaultPlan { read_error: 1.0, read_errno: 5, ..FaultPlan::default() };
        let faulty = FaultFileSystem::new(in_memory(), Faults::new(1, plan));
        let slow = LatencyFileSystem::new(Arc::new(faulty), Latency::of_reads(latency));
        let env = Env::builder().file_system(Arc::new(slow)).build();
        let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions { direct: false })).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (env, file) = (env.clone(), file.clone());
                spawn(move || block_on(&env, read(&env, &file, 100, LEN)).unwrap_err())
            })
            .collect();
        for thread in threads {
            let error = ends(thread);
            assert_eq!((error.source.raw_os_error(), error.offset), (Some(5), Some(100)));
        }
        (env.io_stats().reads, env.io_stats().joined_elsewhere) == (1, 1)
    });
}

/// Starts a read that does not end, on a thread of its own, in the call `begin`, and lets another
/// thread join it before `begin` continues.
fn with_owner(
    builder: EnvBuilder,
    begin: impl FnOnce(&Env, ReadFuture, &dyn Fn()) + Send + 'static,
) -> (Env, Duration) {
    let (env, file) = disturbed(builder, FirstIsStuck::default());
    let (started, is_started): (Sender<()>, _) = channel();
    let (joined, is_joined): (Sender<()>, _) = channel();
    let owner = {
        let (env, file) = (env.clone(), file.clone());
        spawn(move || {
            let meet = || {
                started.send(()).unwrap();
                wait(&is_joined);
            };
            begin(&env, read(&env, &file, 100, LEN), &meet);
        })
    };
    wait(&is_started);
    let joiner = joins(&env, &file, 100);
    until_joined(&env, 1);
    joined.send(()).unwrap();
    let took = ends(joiner);
    drop(owner); // may still be blocked
    (env, took)
}

#[test]
fn the_end_of_a_call_releases_who_joined() {
    for builder in builders() {
        let (env, _) = with_owner(builder(), |env, mut ahead, meet| {
            block_on(env, async {
                nudge(&mut ahead).await;
                meet();
            });
            // The read stays in flight, for a later call that never comes.
            std::thread::park_timeout(FOR_EVER);
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
    }
}

#[test]
fn a_future_that_is_dropped_releases_who_joined() {
    for builder in builders() {
        let (env, _) = with_owner(builder(), |env, mut given_up, meet| {
            block_on(env, async {
                nudge(&mut given_up).await;
                meet();
                drop(given_up);
                karst_io::sleep(env, FOR_EVER).await;
            });
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
    }
}

#[test]
fn a_panic_releases_who_joined() {
    for builder in builders() {
        let (env, _) = with_owner(builder(), |env, mut ahead, meet| {
            let call = || {
                block_on(env, async {
                    nudge(&mut ahead).await;
                    meet();
                    std::panic::resume_unwind(Box::new("a bug of the user's"));
                });
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
            std::thread::park_timeout(FOR_EVER);
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
    }
}

#[test]
fn a_thread_that_stands_still_is_not_waited_for() {
    for builder in builders() {
        let (env, took) = with_owner(builder(), |env, mut ahead, meet| {
            block_on(env, async {
                nudge(&mut ahead).await;
                meet();
                // Simulates a comparator that waits for a lock held by the joiner.
                std::thread::park_timeout(FOR_EVER);
            });
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
        assert!(took < FOR_EVER / 2);
    }
}

#[test]
fn a_task_that_blocks_its_reactor_is_not_waited_for() {
    for builder in builders() {
        let (env, _) = with_owner(builder(), |env, mut ahead, meet| {
            let (there, is_there) = channel();
            let (go, may_go) = channel();
            let reactor = Reactor::builder(env).build().unwrap();
            let (e, nested) = (env.clone(), env.clone());
            reactor.spawn(move || async move {
                nudge(&mut ahead).await;
                there.send(()).unwrap();
                wait(&may_go);
                // Polls this thread's other channel, not the one of the read.
                block_on(&nested, karst_io::sleep(&e, FOR_EVER));
            });
            wait(&is_there);
            meet();
            go.send(()).unwrap();
            std::thread::park_timeout(FOR_EVER);
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
    }
}

#[test]
fn a_reactor_that_ends_releases_who_joined() {
    for builder in builders() {
        let (env, _) = with_owner(builder(), |env, ahead, meet| {
            let reactor = Reactor::builder(env).build().unwrap();
            let (there, is_there) = channel();
            reactor.spawn(move || async move {
                let mut ahead = ahead;
                nudge(&mut ahead).await;
                there.send(()).unwrap();
                ahead.await.map(drop)
            });
            wait(&is_there);
            meet();
            drop(reactor);
        });
        assert_eq!((env.io_stats().reads, env.io_stats().left), (2, 1));
    }
}

#[test]
fn whoever_joined_may_leave() {
    for builder in builders() {
        until_they_meet(|latency| {
            let (env, file) = slow(builder(), latency);
            let owner = joins(&env, &file, 100);
            while env.io_stats().reads == 0 {
                std::thread::yield_now();
            }
            let mut left = read(&env, &file, 100, LEN);
            block_on(&env, nudge(&mut left));
            let met = env.io_stats().joined_elsewhere == 1;
            drop(left);
            ends(owner);
            // Its slot now belongs to another read, which must not take the late outcome of the
            // first.
            assert_eq!(*block_on(&env, read(&env, &file, 9000, 10)).unwrap(), *pattern(9000, 10));
            quiesce(&env);
            assert!(!met || (env.io_stats().reads, env.io_stats().left) == (2, 0), "{:?}", env.io_stats());
            met
        });
    }
}

/// Threads read the same places in step: each place is read about once, by any of them, and all get
/// the right bytes.
#[test]
fn threads_in_step_read_each_place_about_once() {
    for builder in builders() {
        until_they_meet(|latency| {
            let (env, file) = slow(builder(), latency / 10);
            let barrier = Arc::new(std::sync::Barrier::new(4));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (env, file, barrier) = (env.clone(), file.clone(), barrier.clone());
                    spawn(move || {
                        for place in 0..50 {
                            barrier.wait();
                            let got = block_on(&env, read(&env, &file, place * 5000, LEN)).unwrap();
                            assert!(*got == *pattern(place * 5000, LEN), "wrong bytes");
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(ends);
            let stats = env.io_stats();
            assert_eq!(stats.reads + stats.joined_elsewhere - stats.left, 200);
            quiesce(&env);
            // More than 50, because on a busy machine a thread may arrive when the read has ended.
            stats.reads < 150
        });
    }
}
