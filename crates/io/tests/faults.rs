//! Injected faults reach the reader as errors, retries or wrong bits.

use karst_io::testing::{foreign_block_on, pattern, quiesce};
use karst_io::{
    Disturb, Disturbance, DisturbedFileSystem, Env, FaultFileSystem, FaultPlan, Faults, FileSystem,
    FileWriter, MemoryFileSystem, OpenOptions, WriterOptions, block_on, open, read,
};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn faulty(plan: FaultPlan) -> (Env, FaultFileSystem) {
    let memory = MemoryFileSystem::new();
    memory.write_file(Path::new("/db/file"), pattern(0, 100_000)).unwrap();
    let file_system = FaultFileSystem::new(Arc::new(memory), Faults::new(1, plan));
    (Env::builder().file_system(Arc::new(file_system.clone())).build(), file_system)
}

#[test]
fn a_failed_read_names_the_operation_the_path_and_the_offset_for_every_joiner() {
    let (env, file_system) = faulty(FaultPlan { read_error: 1.0, ..FaultPlan::default() });
    let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions::DIRECT)).unwrap();
    block_on(&env, async {
        let (mut first, second) = (read(&env, &file, 1234, 10), read(&env, &file, 1234, 10));
        let poll_first = std::future::poll_fn(|cx| {
            assert!(std::pin::Pin::new(&mut first).poll(cx).is_pending());
            std::task::Poll::Ready(())
        });
        poll_first.await;
        for e in [second.await.unwrap_err(), first.await.unwrap_err()] {
            assert_eq!(e.to_string(), "read /db/file at offset 1234: Input/output error (os error 5)");
        }
    });
    assert_eq!(file_system.between().counts().read_errors, 1, "the second joined the first");
    assert_eq!(env.io_stats().errors, 1);
    assert!(foreign_block_on(read(&env, &file, 0, 1)).is_err());
    // The same offset reads correctly once the fault is gone: a failure is not cached.
    file_system.between().set_plan(FaultPlan::default());
    assert_eq!(*block_on(&env, read(&env, &file, 1234, 10)).unwrap(), *pattern(1234, 10));
    quiesce(&env);
}

#[test]
fn an_interruption_without_end_is_an_error() {
    let (env, _) = faulty(FaultPlan { read_error: 1.0, read_errno: 4, ..FaultPlan::default() });
    let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions::BUFFERED)).unwrap();
    let e = block_on(&env, read(&env, &file, 0, 10)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Interrupted);
    assert_eq!(env.io_stats().continued, 1000);
}

#[test]
fn a_flipped_bit_is_one_bit() {
    let (env, file_system) = faulty(FaultPlan { bit_flip: 1.0, ..FaultPlan::default() });
    let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions::BUFFERED)).unwrap();
    for offset in 0..50 {
        let got = block_on(&env, read(&env, &file, offset, 4000)).unwrap();
        let wrong: u32 = got.iter().zip(pattern(offset, 4000)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(wrong, 1, "at {offset}");
    }
    assert_eq!(file_system.between().counts().bit_flips, 50);
}

#[test]
fn a_stuck_read_is_late_and_holds_nobody_up() {
    // Delays grow until the healthy read ends first, because its duration on a busy machine must
    // not matter.
    let sooner = |late: Duration| {
        let (env, file_system) = faulty(FaultPlan { stuck: 1.0, stuck_for: late, ..FaultPlan::default() });
        let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions::BUFFERED)).unwrap();
        let start = Instant::now();
        let mut stuck = read(&env, &file, 0, 100);
        let sooner = block_on(&env, async {
            let poll_once =
                std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut stuck).poll(cx)));
            assert!(poll_once.await.is_pending());
            file_system.between().set_plan(FaultPlan::default());
            read(&env, &file, 500, 100).await.unwrap();
            start.elapsed() < late
        });
        assert_eq!(*block_on(&env, stuck).unwrap(), *pattern(0, 100));
        assert!(start.elapsed() >= late);
        sooner
    };
    let mut lateness = (0..8).map(|round| Duration::from_millis(60 << round));
    assert!(lateness.any(sooner), "a healthy read waits for a stuck one");
}

#[test]
fn opens_and_writes_fail_too_and_counts_tell() {
    let (env, file_system) = faulty(FaultPlan { open_error: 1.0, write_error: 1.0, ..FaultPlan::default() });
    let path = Path::new("/db/file");
    let e = block_on(&env, open(&env, path, OpenOptions::BUFFERED)).unwrap_err();
    assert_eq!((e.op, &*e.path), ("open", path));
    assert_eq!(env.fs().create(path).unwrap_err().op, "create");
    file_system.between().set_plan(FaultPlan::default());
    let mut file = env.fs().append(path).unwrap();
    file_system.between().set_plan(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
    assert_eq!(file.append(b"x").unwrap_err().op, "append to");
    assert_eq!(file.sync().unwrap_err().op, "sync");
    let counts = file_system.between().counts();
    assert_eq!((counts.open_errors, counts.write_errors), (1, 3));
}

#[test]
fn the_same_seed_fails_the_same_reads() {
    let run = || {
        let (env, _) = faulty(FaultPlan { read_error: 0.5, ..FaultPlan::default() });
        let file = block_on(&env, open(&env, Path::new("/db/file"), OpenOptions::BUFFERED)).unwrap();
        (0..64).map(|i| block_on(&env, read(&env, &file, i, 1)).is_ok()).collect::<Vec<_>>()
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.contains(&true) && first.contains(&false));
}

#[test]
fn a_file_whose_write_failed_stays_failed() {
    let path = Path::new("/db/new");
    let (env, file_system) = faulty(FaultPlan::default());
    block_on(&env, async {
        let options = WriterOptions { window: 1000, ..WriterOptions::default() };
        let mut file = FileWriter::create(&env, path, options).await.unwrap();
        file.append(pattern(0, 1000)).await.unwrap();
        file.flush().await.unwrap();
        file_system.between().set_plan(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
        file.append(pattern(1000, 1000)).await.unwrap(); // fails in the background
        let e = file.append(pattern(2000, 1000)).await.unwrap_err();
        assert_eq!(e.to_string(), "write /db/new at offset 1000: Input/output error (os error 5)");
        file_system.between().set_plan(FaultPlan::default());
        for later in
            [file.append(vec![1]).await, file.flush().await, file.sync().await, file.truncate(0).await]
        {
            assert_eq!(later.unwrap_err().to_string(), e.to_string());
        }
        assert_eq!(file.finish().await.unwrap_err().to_string(), e.to_string());
        let mut file = FileWriter::create(&env, path, options).await.unwrap();
        file_system.between().set_plan(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
        assert_eq!(file.sync().await.unwrap_err().op, "sync");
        assert_eq!(FileWriter::create(&env, path, options).await.unwrap_err().op, "create");
    });
    quiesce(&env);
}

/// Refuses direct writes, or fails them, and counts the attempts.
#[derive(Debug)]
struct NoDirect {
    errno: i32,
    tried: AtomicU32,
}

impl Disturb for NoDirect {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn create_direct(&self, _: &Path) -> io::Result<()> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(self.errno))
    }
}

#[test]
fn where_direct_writes_are_refused_the_file_is_written_all_the_same() {
    for (errno, is_refusal) in
        [(libc::EINVAL, true), (libc::EOPNOTSUPP, true), (libc::EIO, false), (libc::ENOSPC, false)]
    {
        let memory = MemoryFileSystem::new();
        memory.create_dir(Path::new("/db")).unwrap();
        let between = NoDirect { errno, tried: AtomicU32::new(0) };
        let file_system = DisturbedFileSystem::new(Arc::new(memory), between);
        let env = Env::builder().file_system(Arc::new(file_system.clone())).build();
        let options = WriterOptions { direct: true, ..WriterOptions::default() };
        let path = Path::new("/db/file");
        for attempt in 1..3 {
            let written = block_on(&env, async {
                let mut file = FileWriter::create(&env, path, options).await?;
                assert!(!file.is_direct());
                file.append(pattern(0, 5001)).await?;
                file.sync().await?;
                file.finish().await
            });
            match written {
                Ok(bytes) => assert_eq!((bytes, env.fs().read_file(path).unwrap()), (5001, pattern(0, 5001))),
                Err(error) => assert_eq!((error.op, error.source.raw_os_error()), ("create", Some(errno))),
            }
            assert_eq!(env.fs().exists(path).unwrap(), is_refusal, "errno {errno}");
            assert_eq!(file_system.between().tried.load(Ordering::Relaxed), attempt);
        }
    }
}

#[test]
fn a_direct_write_that_is_not_aligned_is_refused_in_memory_too() {
    let memory = MemoryFileSystem::new();
    let file = memory.create_direct(Path::new("/file")).unwrap();
    assert_eq!(file.alignment(), 512);
    let bytes = vec![1; 2048];
    let start = bytes.as_ptr().align_offset(512);
    file.write_at(512, &bytes[start..start + 512]).unwrap();
    for (offset, from, len) in [(1, start, 512), (0, start + 1, 512), (0, start, 511)] {
        let error = file.write_at(offset, &bytes[from..from + len]).unwrap_err();
        assert_eq!((error.op, error.kind()), ("write", io::ErrorKind::InvalidInput));
    }
    assert_eq!(memory.read_file(Path::new("/file")).unwrap().len(), 1024);
}
