//! Every file system passes the one contract, on io_uring and on threads, and dropped reads leak
//! nothing.

use karst_io::testing::{cancellations, file_system_contract};
use karst_io::{
    Env, EnvBuilder, FaultFileSystem, FaultPlan, Faults, FileSystem, Latency, LatencyFileSystem,
    MemoryFileSystem, PosixFileSystem, TransportKind,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn on_disk() -> tempfile::TempDir {
    // Not in the temporary directory, because it may be in memory, which some kernels do not read
    // with direct I/O.
    tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn builders() -> [EnvBuilder; 3] {
    [
        Env::builder(),
        Env::builder().transport(TransportKind::Threads).threads(8),
        // A depth of three, at which nearly every read waits in the backlog.
        Env::builder().depth(3).submit_batch(2).register_buffers(false),
    ]
}

fn check(file_system: impl FileSystem + 'static, dir: &Path) {
    let file_system: Arc<dyn FileSystem> = Arc::new(file_system);
    for builder in builders() {
        file_system_contract(&file_system, dir, builder, true);
    }
}

fn in_memory(dir: &Path) -> MemoryFileSystem {
    let memory = MemoryFileSystem::new();
    memory.create_dir(dir).unwrap();
    memory
}

fn slow() -> Latency {
    Latency::of_reads(Duration::from_micros(100)).with_jitter(Duration::from_micros(400), 7)
}

/// Faults that readers and writers must not notice.
fn benign() -> Faults {
    let plan = FaultPlan {
        read_error: 0.1,
        read_errno: 4, // EINTR
        short_read: 0.3,
        stuck: 0.02,
        stuck_for: Duration::from_millis(5),
        short_write: 0.3,
        interrupted_write: 0.1,
        ..FaultPlan::default()
    };
    Faults::new(42, plan)
}

#[test]
fn posix() {
    let dir = on_disk();
    check(PosixFileSystem, dir.path());
}

#[test]
fn memory() {
    let dir = Path::new("/db");
    check(in_memory(dir), dir);
}

#[test]
fn added_latency_over_posix_and_over_memory() {
    let dir = on_disk();
    check(LatencyFileSystem::new(Arc::new(PosixFileSystem), slow()), dir.path());
    let dir = Path::new("/db");
    check(LatencyFileSystem::new(Arc::new(in_memory(dir)), slow()), dir);
}

#[test]
fn benign_faults_over_posix_and_over_memory() {
    let dir = on_disk();
    let faulty = FaultFileSystem::new(Arc::new(PosixFileSystem), benign());
    check(faulty.clone(), dir.path());
    let counts = faulty.between().counts();
    assert!(counts.read_errors > 10 && counts.short_reads > 10 && counts.stuck > 10, "{counts:?}");
    assert!(counts.short_writes > 10 && counts.interrupted_writes > 10, "{counts:?}");
    let dir = Path::new("/db");
    check(FaultFileSystem::new(Arc::new(in_memory(dir)), benign()), dir);
}

/// Drops reads at random moments. With `slow`, reads take long enough for threads to join them.
fn drop_at_random(file_system: Arc<dyn FileSystem>, dir: &Path, slow: bool) {
    for (i, builder) in builders().into_iter().enumerate() {
        let env = builder.file_system(file_system.clone()).build();
        for direct in [false, true] {
            let (mut dropped, mut seed) = (0, i as u64);
            // Checked instead of a fixed time, because the number of events in it depends on the
            // machine.
            let enough = |dropped: u64| {
                let stats = env.io_stats();
                let met = stats.joined > 0 && (stats.joined_elsewhere > 0 || !slow);
                dropped > 200 && stats.abandoned > 0 && met
            };
            while dropped == 0 || !enough(dropped) {
                dropped += cancellations(&env, dir, direct, Duration::from_millis(300), seed);
                seed += 100;
                assert!(env.io_stats().errors == 0, "{:?}", env.io_stats());
                assert!(seed < 10_000, "{dropped} dropped, {:?}", env.io_stats());
            }
        }
    }
}

#[test]
fn dropping_reads_leaks_nothing() {
    let dir = on_disk();
    drop_at_random(Arc::new(PosixFileSystem), dir.path(), false);
    let faulty = FaultFileSystem::new(Arc::new(PosixFileSystem), benign());
    drop_at_random(Arc::new(LatencyFileSystem::new(Arc::new(faulty), slow())), dir.path(), true);
    let dir = Path::new("/db");
    drop_at_random(Arc::new(LatencyFileSystem::new(Arc::new(in_memory(dir)), slow())), dir, true);
}

#[test]
fn a_read_started_in_one_call_flies_until_the_next() {
    use std::future::Future;
    use std::pin::Pin;
    let dir = on_disk();
    let path = dir.path().join("file");
    PosixFileSystem.create(&path).unwrap().append(&karst_io::testing::pattern(0, 1 << 20)).unwrap();
    for builder in builders() {
        let env = builder.build();
        let file =
            karst_io::block_on(&env, karst_io::open(&env, &path, karst_io::OpenOptions::DIRECT)).unwrap();
        let submits = env.io_stats().submits;
        let mut ahead = karst_io::read(&env, &file, 5, 4000);
        karst_io::block_on(&env, async {
            let once = std::future::poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut ahead).poll(cx)));
            assert!(once.await.is_pending());
        });
        assert_eq!(env.io_stats().submits, submits + 1, "it was left in the queue");
        // A call that waits for nothing finds the outcome once it has arrived.
        let start = std::time::Instant::now();
        let got = loop {
            assert!(start.elapsed() < Duration::from_secs(300));
            let looked = karst_io::block_on(&env, async {
                std::future::poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut ahead).poll(cx))).await
            });
            if let std::task::Poll::Ready(got) = looked {
                break got.unwrap();
            }
        };
        assert_eq!(*got, *karst_io::testing::pattern(5, 4000));
    }
}

#[test]
fn simulated_disk() {
    let dir = Path::new("/db");
    let disk = karst_io::SimulatedFileSystem::new(3);
    disk.create_dir(dir).unwrap();
    check(disk, dir);
}
