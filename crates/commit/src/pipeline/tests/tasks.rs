//! Logs led by tasks of a reactor, on its ring: beside blocking writers of the same and of other
//! threads, across switches of logs and the reactor's end, and with failures.

use super::*;
use karst_io::testing::{ThreadAllowance, poll_times};
use karst_io::{
    FaultFileSystem, FaultPlan, Faults, PosixFileSystem, Reactor, TransportKind, block_on, yield_now,
};
use std::pin::pin;
use std::sync::atomic::AtomicBool;

fn options(sync: bool) -> WriteOptions {
    WriteOptions { sync, ..WriteOptions::new() }
}

fn reactor(env: &Env) -> Reactor {
    Reactor::builder(env).carries_writes(true).build().unwrap()
}

/// Returns a pipeline over files of the operating system, whose first log was synced once.
fn on_disk(env: Env, directory: &tempfile::TempDir) -> Arc<Bench> {
    let bench = Arc::new(Bench::on(env, directory.path(), rules(), &[CF]));
    bench.write(&options(true), put(b"first", b"")).unwrap();
    bench
}

async fn write(bench: &Bench, options: WriteOptions, key: &str) -> Result<()> {
    let op = put(key.as_bytes(), b"value");
    bench.pipeline.write_async(&options, Source::one(op).unwrap()).await
}

fn keys(entries: &[String]) -> Vec<&str> {
    entries.iter().map(|entry| entry.split('@').next().unwrap()).collect()
}

/// Returns the keys that the real recovery finds in a log.
fn recovered(bench: &Bench, log: u64) -> Vec<String> {
    let bytes = bench.log_bytes(log);
    let (entries, _) = recover(&[(log, &bytes)], RecoveryMode::AbsoluteConsistency).unwrap();
    keys(&entries).into_iter().map(str::to_owned).collect()
}

/// No thread beside the reactor's exists, so none helps.
#[test]
fn a_reactor_writes_and_syncs_without_another_thread() {
    let directory = tempfile::tempdir().unwrap();
    let allowance = ThreadAllowance::new(1);
    let bench = on_disk(Env::builder().thread_allowance(allowance).build(), &directory);
    let reactor = reactor(&bench.env);
    let theirs = bench.clone();
    let task = reactor.spawn(move || async move {
        for number in 0..20 {
            write(&theirs, options(number % 2 == 0), &format!("key{number:02}")).await.unwrap();
        }
    });
    task.join().unwrap();
    let counts = bench.pipeline.write_counts();
    assert_eq!((counts.task_groups, counts.log_syncs), (20, 11), "{counts:?}");
    assert_eq!(recovered(&bench, 1).len(), 21);
    assert_eq!(bench.entries().len(), 21);
}

/// Writers of one turn of the reactor share one round and one sync.
#[test]
fn writers_that_are_ready_together_share_a_sync() {
    let directory = tempfile::tempdir().unwrap();
    let bench = on_disk(Env::posix(), &directory);
    let reactor = reactor(&bench.env);
    let theirs = bench.clone();
    let task = reactor.spawn(move || async move {
        let mut writers = Vec::new();
        for number in 0..50 {
            let bench = theirs.clone();
            let key = format!("key{number:02}");
            writers.push(karst_io::spawn_local(async move { write(&bench, options(true), &key).await }));
        }
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
    });
    task.join().unwrap();
    let counts = bench.pipeline.write_counts();
    assert_eq!((counts.task_groups, counts.log_syncs), (1, 2), "{counts:?}");
    assert_eq!(recovered(&bench, 1).len(), 51);
}

/// A blocking write on the reactor's thread finds a round of its own thread in flight.
#[test]
fn a_blocking_write_meets_a_round_of_its_own_thread() {
    let directory = tempfile::tempdir().unwrap();
    for kind in [TransportKind::Auto, TransportKind::Threads] {
        let directory = tempfile::tempdir_in(directory.path()).unwrap();
        let bench = on_disk(Env::builder().transport(kind).build(), &directory);
        let reactor = reactor(&bench.env);
        let theirs = bench.clone();
        let task = reactor.spawn(move || async move {
            for number in 0..30 {
                let [first, second] = ["a", "b"].map(|name| format!("{name}{number:02}"));
                let begun = write(&theirs, options(true), &first);
                let mut begun = pin!(begun);
                let polls = 1 + number % 3;
                if poll_times(begun.as_mut(), polls).await.is_some() {
                    continue;
                }
                theirs.write(&options(number % 2 == 0), put(second.as_bytes(), b"")).unwrap();
                if number % 4 == 0 {
                    begun.await.unwrap();
                } // else its future is dropped, and the batch is written
            }
        });
        task.join().unwrap();
        block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
        assert_eq!(recovered(&bench, 1).len(), bench.entries().len());
        assert!(bench.pipeline.write_counts().task_groups > 0);
        drop(reactor);
    }
}

/// A thread that leads blocks again and again, while the writers of another one never pause.
#[test]
fn a_thread_blocks_while_others_write_without_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    let bench = on_disk(Env::posix(), &directory);
    let reactor = Reactor::builder(&bench.env).threads(2).carries_writes(true).build().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..8)
        .map(|number| {
            let (bench, ends) = (bench.clone(), ends.clone());
            reactor.spawn_on(1, move || async move {
                let mut writes = 0;
                while !ends.load(Ordering::SeqCst) {
                    write(&bench, options(true), &format!("other{number}-{writes}")).await.unwrap();
                    writes += 1;
                }
                writes
            })
        })
        .collect();
    let theirs = bench.clone();
    let blocks = reactor.spawn_on(0, move || async move {
        for i in 0..50 {
            let key = format!("key{i}");
            let mut begun = pin!(write(&theirs, options(true), &key));
            // The second poll is behind the beginning of the round.
            let ended = poll_times(begun.as_mut(), 1 + i % 2).await.is_some();
            block_on(&theirs.env, async {});
            if !ended {
                begun.await.unwrap();
            }
        }
    });
    blocks.join().unwrap();
    ends.store(true, Ordering::SeqCst);
    let writes: u32 = others.into_iter().map(|other| other.join().unwrap()).sum();
    assert!(writes > 0);
    assert_eq!(recovered(&bench, 1).len(), 51 + writes as usize);
}

/// Syncs that need no record are led by tasks while the log is closed.
#[test]
fn the_log_is_closed_beside_leaders() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let directory = tempfile::tempdir_in(directory.path()).unwrap();
        let bench = on_disk(Env::posix(), &directory);
        let reactor = reactor(&bench.env);
        let (tell, told) = std::sync::mpsc::channel();
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let (bench, tell) = (bench.clone(), tell.clone());
                reactor.spawn(move || async move {
                    let mut written = 0;
                    while write(&bench, options(number == 0), &format!("key{number}-{written}")).await.is_ok()
                    {
                        written += 1;
                        let _closed = bench.pipeline.flush_wal(true).await;
                        let _ = tell.send(());
                    }
                    written
                })
            })
            .collect();
        told.recv().unwrap();
        block_on(&bench.env, bench.pipeline.close_log()).unwrap();
        let log = recovered(&bench, 1).len();
        let written: usize = tasks.into_iter().map(|task| task.join().unwrap()).sum();
        assert_eq!(log, 1 + written);
    }
}

/// A task whose writes are all done by calls lets the others of its thread run.
#[test]
fn a_writer_that_never_waits_lets_others_run() {
    let directory = tempfile::tempdir().unwrap();
    let bench = on_disk(Env::posix(), &directory);
    let reactor = reactor(&bench.env);
    let (theirs, ends) = (bench.clone(), Arc::new(AtomicBool::new(false)));
    let ended = ends.clone();
    let writer = reactor.spawn(move || async move {
        let other = karst_io::spawn_local(async move { ended.store(true, Ordering::SeqCst) });
        let mut writes = 0;
        while !ends.load(Ordering::SeqCst) {
            write(&theirs, options(false), &format!("key{writes}")).await.unwrap();
            writes += 1;
        }
        other.await.unwrap();
        writes
    });
    assert_eq!(writer.join().unwrap(), 65);
}

/// The reactor ends while rounds of its writers are in flight: each is written, and writers of
/// other threads go on.
#[test]
fn a_reactor_ends_in_the_middle_of_a_round() {
    let directory = tempfile::tempdir().unwrap();
    let bench = on_disk(Env::posix(), &directory);
    for round in 0..20 {
        let reactor = reactor(&bench.env);
        let theirs = bench.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let task = reactor.spawn(move || async move {
            let key = format!("key{round:02}");
            let mut begun = pin!(write(&theirs, options(true), &key));
            let _ended = poll_times(begun.as_mut(), 1 + round % 2).await;
            tell.send(()).unwrap();
            std::future::pending::<()>().await
        });
        told.recv().unwrap();
        drop(reactor);
        task.join().unwrap_err();
        bench.write(&options(true), put(format!("then{round:02}").as_bytes(), b"")).unwrap();
    }
    assert_eq!(recovered(&bench, 1).len(), 41);
    assert_eq!(bench.entries().len(), 41);
    assert!(bench.pipeline.write_counts().task_groups > 0);
    block_on(&bench.env, bench.pipeline.close_log()).unwrap();
}

/// Reactors and threads write, with and without syncs, while logs are switched.
#[test]
fn all_kinds_of_writers_write_at_the_same_time() {
    const WRITES: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    for kind in [TransportKind::Auto, TransportKind::Threads] {
        let directory = tempfile::tempdir_in(directory.path()).unwrap();
        let bench = on_disk(Env::builder().transport(kind).build(), &directory);
        let reactor = Reactor::builder(&bench.env).threads(2).carries_writes(true).build().unwrap();
        let mut tasks = Vec::new();
        for number in 0..6 {
            let bench = bench.clone();
            tasks.push(reactor.spawn(move || async move {
                for i in 0..WRITES {
                    write(&bench, options((i + number) % 3 == 0), &format!("task{number}-{i:03}"))
                        .await
                        .unwrap();
                    if i % 50 == number {
                        bench.pipeline.flush_wal(true).await.unwrap();
                        yield_now().await;
                    }
                }
            }));
        }
        let mut memtables = Vec::new();
        std::thread::scope(|scope| {
            for number in 0..2 {
                let bench = &bench;
                scope.spawn(move || {
                    for i in 0..WRITES {
                        let key = format!("thread{number}-{i:03}");
                        bench.write(&options((i + number) % 3 == 0), put(key.as_bytes(), b"")).unwrap();
                    }
                });
            }
            for log in 2..12 {
                let written = bench.pipeline.next_seq().0;
                memtables.extend(bench.seal(log).into_values());
                let logs = block_on(&bench.env, bench.pipeline.written_logs()).unwrap();
                assert!(logs.iter().any(|(number, _)| number.0 >= log - 1), "{logs:?}");
                while bench.pipeline.next_seq().0 < written + 100
                    && tasks.iter().any(|task| !task.is_finished())
                {
                    std::thread::yield_now();
                }
            }
        });
        for task in tasks {
            task.join().unwrap();
        }
        drop(reactor);
        block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
        let bytes: Vec<_> = (1..12).map(|log| (log, bench.log_bytes(log))).collect();
        let logs: Vec<_> = bytes.iter().map(|(log, bytes)| (*log, &bytes[..])).collect();
        let (entries, _) = recover(&logs, RecoveryMode::AbsoluteConsistency).unwrap();
        assert_eq!(entries.len() as u64, 8 * WRITES + 1);
        let counts = bench.pipeline.write_counts();
        assert!(counts.task_groups > 0 && counts.groups >= counts.task_groups, "{counts:?}");
        block_on(&bench.env, bench.pipeline.close_log()).unwrap();
    }
}

/// A failed write or sync of a task refuses writes, names the file, and writes nothing afterwards.
#[test]
fn a_round_of_a_task_that_fails_refuses_writes() {
    let directory = tempfile::tempdir().unwrap();
    for sync in [false, true] {
        let directory = tempfile::tempdir_in(directory.path()).unwrap();
        let faulty = FaultFileSystem::new(Arc::new(PosixFileSystem), Faults::new(7, FaultPlan::default()));
        let env = Env::builder().file_system(Arc::new(faulty.clone())).build();
        let bench = on_disk(env, &directory);
        let before = bench.log_bytes(1).len();
        faulty.between().set_plan(FaultPlan { write_error: 1.0, ..FaultPlan::default() });
        let reactor = reactor(&bench.env);
        let theirs = bench.clone();
        let failed = reactor.spawn(move || async move {
            // Beyond what is written by a call.
            let value = vec![7; 100_000];
            let source = Source::one(put(b"key", &value)).unwrap();
            theirs.pipeline.write_async(&options(sync), source).await.unwrap_err().to_string()
        });
        let failed = failed.join().unwrap();
        let path = bench.log_path(1);
        let place = format!("write {} at offset {before}", path.display());
        assert!(failed.contains(&place), "{failed}");
        faulty.between().set_plan(FaultPlan::default());
        bench.put("later", "").unwrap_err();
        assert_eq!(bench.log_bytes(1).len(), before);
        assert_eq!(bench.failures.load(Ordering::SeqCst), 1);
        assert_eq!(bench.entries(), ["first@1="]);
        // A new log takes writes again, from tasks too.
        bench.seal(2);
        block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
        let theirs = bench.clone();
        let written = reactor.spawn(move || async move { write(&theirs, options(true), "again").await });
        written.join().unwrap().unwrap();
        assert_eq!(recovered(&bench, 2).last().unwrap(), "again");
    }
}

/// A file system in memory, as files that do not block, has its logs led by tasks too; one with
/// blocking calls only has not.
#[test]
fn files_choose_who_leads() {
    let memory = Bench::new(rules());
    let reactor_of = |bench: &Arc<Bench>| {
        let reactor = reactor(&bench.env);
        let theirs = bench.clone();
        reactor
            .spawn(move || async move { write(&theirs, options(true), "key").await })
            .join()
            .unwrap()
            .unwrap();
        bench.pipeline.write_counts().task_groups
    };
    memory.write(&options(true), put(b"first", b"")).unwrap();
    assert_eq!(reactor_of(&Arc::new(memory)), 1);
    #[derive(Debug)]
    struct Plain;
    impl karst_io::Disturb for Plain {
        fn read(&self, _: &Path, _: u64, _: usize) -> Option<karst_io::Disturbance> {
            None
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let plain = karst_io::DisturbedFileSystem::new(Arc::new(PosixFileSystem), Plain);
    let bench = on_disk(Env::builder().file_system(Arc::new(plain)).build(), &directory);
    assert_eq!(reactor_of(&bench), 0);
}
