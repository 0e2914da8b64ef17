//! The reactor's guarantees beyond reading: ends of tasks, wakes from other threads, timers,
//! shutdown, statistics.

use karst_io::testing::foreign_block_on;
use karst_io::{
    Env, IdlePolicy, JoinError, OpenOptions, Reactor, TransportKind, attach, block_on, carries_writes, open,
    read, sleep, spawn_local, sync_file, write_at, yield_now,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

fn policies() -> [IdlePolicy; 3] {
    [IdlePolicy::Block, IdlePolicy::SpinThenBlock(Duration::from_micros(50)), IdlePolicy::Spin]
}

/// An open has two steps, and every idle policy submits the second.
#[test]
fn files_are_opened_under_every_idle_policy() {
    for idle in policies() {
        let env = Env::posix();
        let reactor = Reactor::builder(&env).idle(idle).build().unwrap();
        let bytes = reactor.spawn(move || async move {
            let path = Path::new("/proc/self/exe");
            let file = open(&env, path, OpenOptions::default()).await.unwrap();
            read(&env, &file, 0, 4).await.unwrap().to_vec()
        });
        assert_eq!(bytes.join().unwrap(), b"\x7fELF", "{idle:?}");
    }
}

/// Counts its drops.
struct Bomb(Arc<AtomicUsize>);
impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_ends_with_its_value_its_panic_or_its_abort() {
    let env = Env::posix();
    let reactor = Reactor::builder(&env).build().unwrap();
    assert_eq!(reactor.spawn(|| async { 7 }).join().unwrap(), 7);
    let panicked = reactor.spawn(|| async { assert_eq!(1, 2, "on purpose") }).join().unwrap_err();
    assert!(matches!(&panicked, JoinError::Panicked(_)) && panicked.to_string().contains("on purpose"));
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = Bomb(dropped.clone());
    let task = reactor.spawn(move || async move {
        let _bomb = bomb;
        pending::<()>().await
    });
    assert!(!task.is_finished());
    task.abort();
    assert!(matches!(foreign_block_on(task), Err(JoinError::Cancelled)));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    // The reactor has survived all that, and a handle can be awaited in a task and in block_on.
    let outer = reactor.spawn(|| async { spawn_local(async { 8 }).await.unwrap() });
    assert_eq!(block_on(&env, outer).unwrap(), 8);
}

#[test]
fn a_read_starts_before_the_next_task_runs_and_those_of_a_task_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 1 << 16]).unwrap();
    let env = Env::posix();
    let file = block_on(&env, karst_io::open(&env, &path, karst_io::OpenOptions::BUFFERED)).unwrap();
    let reactor = Reactor::builder(&env).build().unwrap();
    let submits = reactor.spawn(move || async move {
        let before = env.io_stats().submits;
        let read = |at| karst_io::read(&env, &file, at, 100);
        let (one, two, three) = (read(0), read(100), read(200));
        let first = spawn_local(async move { one.await.unwrap().len() });
        let seen_by = |env: Env| spawn_local(async move { env.io_stats().submits - before });
        let after_one = seen_by(env.clone());
        let pair = spawn_local(async move {
            let mut both = [two, three];
            poll_fn(|cx| {
                both.iter_mut().for_each(|read| drop(Pin::new(read).poll(cx)));
                Poll::Pending::<()> // and is aborted
            })
            .await;
        });
        let after_pair = seen_by(env.clone());
        let submits = (after_one.await.unwrap(), after_pair.await.unwrap());
        first.abort();
        pair.abort();
        submits
    });
    assert_eq!(submits.join().unwrap(), (1, 2));
}

#[test]
fn a_task_may_abort_itself_and_its_sibling() {
    let env = Env::posix();
    let reactor = Reactor::builder(&env).build().unwrap();
    let order = reactor.spawn(|| async {
        let log = Rc::new(RefCell::new(Vec::new()));
        let own = Rc::new(RefCell::new(None::<karst_io::JoinHandle<()>>));
        let (l, o) = (log.clone(), own.clone());
        let suicide = spawn_local(async move {
            l.borrow_mut().push("aborts itself");
            o.borrow().as_ref().unwrap().abort();
            yield_now().await;
            l.borrow_mut().push("still alive");
        });
        *own.borrow_mut() = Some(suicide);
        let l = log.clone();
        let sibling = spawn_local(async move {
            sleep(&Env::posix(), Duration::from_millis(1)).await;
            l.borrow_mut().push("sibling ran");
        });
        sibling.abort();
        assert!(matches!(sibling.await, Err(JoinError::Cancelled)));
        let own = own.borrow_mut().take().unwrap();
        assert!(matches!(own.await, Err(JoinError::Cancelled)));
        log.take()
    });
    assert_eq!(order.join().unwrap(), ["aborts itself"]);
}

#[test]
fn another_thread_wakes_a_sleeping_reactor() {
    let env = Env::posix();
    for idle in policies() {
        let reactor = Reactor::builder(&env).idle(idle).build().unwrap();
        let (send_waker, wakers) = mpsc::channel::<Waker>();
        let count = Arc::new(AtomicUsize::new(0));
        let theirs = count.clone();
        let task = reactor.spawn(move || {
            poll_fn(move |cx| {
                if theirs.fetch_add(1, Ordering::SeqCst) == 200 {
                    return Poll::Ready(());
                }
                send_waker.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
        });
        let mut slept = 0;
        for (i, waker) in wakers.iter().enumerate() {
            if i % 20 == 0 && idle != IdlePolicy::Spin {
                // Waits for the next sleep each time, until the task has ended: two wakes can cause
                // two polls, and the task may end with wakers left over here.
                while reactor.stats()[0].sleeps == slept && count.load(Ordering::SeqCst) <= 200 {
                    std::thread::yield_now();
                }
                slept = reactor.stats()[0].sleeps;
            }
            waker.wake_by_ref();
            waker.wake();
        }
        task.join().unwrap();
        assert!(count.load(Ordering::SeqCst) >= 201);
        let stats = &reactor.stats()[0];
        assert!(stats.hold_times.count() >= 200, "{stats:?}");
        assert_eq!(stats.sleeps == 0, idle == IdlePolicy::Spin, "{idle:?}: {stats:?}");
    }
}

#[test]
fn block_on_is_woken_by_another_thread() {
    let env = Env::posix();
    for _ in 0..50 {
        let (send_waker, wakers) = mpsc::channel::<Waker>();
        let waking = std::thread::spawn(move || wakers.iter().for_each(Waker::wake));
        let mut polls = 0;
        block_on(
            &env,
            poll_fn(|cx| {
                polls += 1;
                if polls == 20 {
                    return Poll::Ready(());
                }
                send_waker.send(cx.waker().clone()).unwrap();
                Poll::Pending
            }),
        );
        drop(send_waker);
        waking.join().unwrap();
    }
}

#[test]
fn sleeps_end_in_order_and_tasks_take_turns() {
    let env = Env::posix();
    for idle in policies() {
        let reactor = Reactor::builder(&env).idle(idle).build().unwrap();
        let e = env.clone();
        let start = Instant::now();
        let order = reactor.spawn(move || async move {
            let log = Rc::new(RefCell::new(Vec::new()));
            let naps = [30u64, 10, 20].map(|ms| {
                let (env, log) = (e.clone(), log.clone());
                spawn_local(async move {
                    // The time at which the nap is due lies between these two: a thread without a
                    // processor begins a nap later than the code before it suggests.
                    let earliest = env.now() + Duration::from_millis(ms);
                    let mut nap = pin!(sleep(&env, Duration::from_millis(ms)));
                    let begun = poll_fn(|cx| Poll::Ready(nap.as_mut().poll(cx))).await;
                    let latest = env.now() + Duration::from_millis(ms);
                    if begun.is_pending() {
                        nap.await;
                    }
                    log.borrow_mut().push((earliest, latest));
                })
            });
            let spins = Rc::new(Cell::new(0u64));
            let counting = spins.clone();
            let busy = spawn_local(async move {
                loop {
                    counting.set(counting.get() + 1);
                    yield_now().await;
                }
            });
            for nap in naps {
                nap.await.unwrap();
            }
            // All naps may have ended at once, if this thread had no processor for their length.
            while spins.get() <= 10 {
                yield_now().await;
            }
            busy.abort();
            log.take()
        });
        let order = order.join().unwrap();
        assert_eq!(order.len(), 3);
        assert!(order.windows(2).all(|pair| pair[0].0 <= pair[1].1), "{order:?}");
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
    assert!(env.io_stats().is_quiescent());
}

#[test]
fn dropping_the_reactor_drops_its_tasks() {
    let env = Env::posix();
    let dropped = Arc::new(AtomicUsize::new(0));
    let reactor = Reactor::builder(&env).threads(2).build().unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (bomb, env) = (Bomb(dropped.clone()), env.clone());
            reactor.spawn(move || async move {
                let _bomb = bomb;
                sleep(&env, Duration::from_secs(1000)).await;
            })
        })
        .collect();
    drop(reactor);
    assert_eq!(dropped.load(Ordering::SeqCst), 20);
    for task in tasks {
        assert!(matches!(task.join(), Err(JoinError::Cancelled)));
    }
    assert!(env.io_stats().is_quiescent(), "{:?}", env.io_stats());
}

#[test]
fn the_environment_may_end_first() {
    let env = Env::posix();
    let reactor = Reactor::builder(&env).build().unwrap();
    foreign_block_on(sleep(&env, Duration::from_millis(1))); // starts the driver
    drop(env);
    assert_eq!(reactor.spawn(|| async { 1 }).join().unwrap(), 1);
}

#[test]
fn each_thread_is_bound_and_counts_for_itself() {
    let env = Env::posix();
    let reactor = Reactor::builder(&env).threads(2).pin(true).build().unwrap();
    for thread in 0..2 {
        let e = env.clone();
        let status = reactor.spawn_on(thread, move || async move {
            sleep(&e, Duration::from_micros(10)).await;
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        let allowed = status.lines().find(|l| l.starts_with("Cpus_allowed_list")).unwrap();
        assert!(!allowed.contains(['-', ',']), "{allowed}");
    }
    let path = std::env::current_exe().unwrap();
    let e = env.clone();
    let read = reactor.spawn_on(1, move || async move {
        let file = karst_io::open(&e, &path, karst_io::OpenOptions::BUFFERED).await.unwrap();
        karst_io::read(&e, &file, 0, 100).await.unwrap().len()
    });
    assert_eq!(read.join().unwrap(), 100);
    let stats = reactor.stats();
    assert_eq!((stats[0].io.reads, stats[1].io.reads, stats[1].io.bytes), (0, 1, 100));
}

/// A future that another thread wakes after its first poll.
fn woken_elsewhere(told: mpsc::Sender<Waker>) -> impl Future<Output = ()> + Send {
    let mut told = Some(told);
    poll_fn(move |cx| match told.take() {
        Some(told) => {
            told.send(cx.waker().clone()).unwrap();
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
}

#[test]
fn a_polled_reactor_runs_on_its_thread_while_it_is_polled() {
    let env = Env::posix();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let file = env.fs().open_random(&path, karst_io::OpenOptions::default()).unwrap();
    let reactor = karst_io::PolledReactor::new(&env).unwrap();
    let here = std::thread::current().id();
    let found = Arc::new(std::sync::Mutex::new(Vec::new()));
    for offset in 0..4 {
        let (env, file, found) = (env.clone(), file.clone(), found.clone());
        reactor.spawn(Box::pin(async move {
            let read = karst_io::read(&env, &file, offset, 2).await.unwrap();
            assert_eq!(std::thread::current().id(), here);
            found.lock().unwrap().push((offset, read.to_vec()));
        }));
    }
    assert!(found.lock().unwrap().is_empty(), "nothing runs before it is polled");
    while found.lock().unwrap().len() < 4 {
        reactor.poll();
        reactor.wait(Some(Duration::from_millis(100)));
    }
    let mut found = found.lock().unwrap().clone();
    found.sort();
    let text = b"0123456789";
    assert_eq!(found, (0..4).map(|at| (at as u64, text[at..at + 2].to_vec())).collect::<Vec<_>>());
}

#[test]
fn a_polled_reactor_sleeps_until_its_time_is_up_or_another_thread_calls() {
    let env = Env::posix();
    let reactor = karst_io::PolledReactor::new(&env).unwrap();
    reactor.poll();
    let began = Instant::now();
    reactor.wait(Some(Duration::from_millis(20)));
    assert!(began.elapsed() >= Duration::from_millis(15), "{:?}", began.elapsed());
    let (told, wakers) = mpsc::channel();
    let (ended, end) = mpsc::channel();
    let spawner = reactor.spawner();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(10));
        spawner.spawn(Box::pin(async move {
            woken_elsewhere(told).await;
            ended.send(()).unwrap();
        }));
        wakers.recv().unwrap().wake();
    });
    while end.try_recv().is_err() {
        reactor.wait(None);
        reactor.poll();
    }
    other.join().unwrap();
}

#[test]
fn a_polled_reactor_that_ends_drops_its_tasks_and_those_that_come_after() {
    let env = Env::posix();
    let dropped = Arc::new(AtomicUsize::new(0));
    let task = || {
        let bomb = Bomb(dropped.clone());
        Box::pin(async move {
            let _bomb = bomb;
            pending::<()>().await
        })
    };
    let reactor = karst_io::PolledReactor::new(&env).unwrap();
    let spawner = reactor.spawner();
    reactor.spawn(task());
    reactor.poll();
    spawner.spawn(task()); // not taken in
    drop(reactor);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    spawner.spawn(task());
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
}

#[test]
fn a_detached_task_runs_on_the_reactor_or_is_dropped_with_it() {
    let env = Env::posix();
    let reactor = Reactor::builder(&env).build().unwrap();
    let (ended, end) = mpsc::channel();
    reactor.spawn_detached(Box::pin(async move {
        yield_now().await;
        ended.send(std::thread::current().name().map(str::to_owned)).unwrap();
    }));
    assert_eq!(end.recv().unwrap().as_deref(), Some("karst-reactor"));
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = Bomb(dropped.clone());
    reactor.spawn_detached(Box::pin(async move {
        let _bomb = bomb;
        pending::<()>().await
    }));
    drop(reactor);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn attached_work_is_finished_before_its_thread_blocks_or_ends() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, idle) in [TransportKind::Auto, TransportKind::Threads].into_iter().zip(policies()) {
        let env = Env::builder().transport(kind).build();
        let file = env.fs().create_positional(&dir.path().join("file")).unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        assert!(!carries_writes(&env), "this thread is no reactor's");
        let plain = Reactor::builder(&env).build().unwrap();
        let theirs = env.clone();
        assert!(!plain.spawn(move || async move { carries_writes(&theirs) }).join().unwrap());
        let reactor = Reactor::builder(&env).idle(idle).carries_writes(true).build().unwrap();
        let (tell, told) = mpsc::channel();
        let (theirs, counted) = (env.clone(), ended.clone());
        let task = reactor.spawn(move || async move {
            let env = theirs;
            let add = || {
                let (env, file, ended) = (env.clone(), file.clone(), counted.clone());
                attach(&env.clone(), async move {
                    for _ in 0..5 {
                        write_at(&env, &file, 0, Arc::new(vec![1; 10_000])).await.unwrap();
                        sync_file(&env, &file, false).await.unwrap();
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            };
            let ended = || counted.load(Ordering::SeqCst);
            assert!(carries_writes(&env));
            add();
            add();
            assert_eq!(ended(), 0);
            block_on(&env, async { assert!(!carries_writes(&env) && ended() == 2) });
            attach(&env, async { panic!("on purpose") });
            add();
            while ended() < 3 {
                yield_now().await;
            }
            // Another thread's message is not lost while the thread blocks for attached work.
            let (wake, woken) = mpsc::channel();
            let waiting = spawn_local(poll_fn(move |cx| match woken.try_recv() {
                Ok(()) => Poll::Ready(()),
                Err(_) => {
                    let (wake, waker) = (wake.clone(), cx.waker().clone());
                    std::thread::spawn(move || {
                        wake.send(()).unwrap();
                        waker.wake();
                    });
                    Poll::Pending
                }
            }));
            yield_now().await;
            add();
            block_on(&env, async {});
            waiting.await.unwrap();
            add();
            tell.send(ended()).unwrap();
            pending::<()>().await
        });
        assert_eq!(told.recv().unwrap(), 4);
        drop(reactor);
        assert_eq!(ended.load(Ordering::SeqCst), 5, "{kind:?}");
        assert!(matches!(task.join(), Err(JoinError::Cancelled)));
    }
}

/// Attached work that others would prolong for ever ends when its thread blocks.
#[test]
fn attached_work_is_told_that_its_thread_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::posix();
    let file = env.fs().create_positional(&dir.path().join("file")).unwrap();
    let reactor = Reactor::builder(&env).carries_writes(true).build().unwrap();
    let theirs = env.clone();
    let task = reactor.spawn(move || async move {
        let env = theirs;
        let ended = Arc::new(AtomicUsize::new(0));
        for round in 1..=5 {
            let (of_task, file, counted) = (env.clone(), file.clone(), ended.clone());
            attach(&env, async move {
                while carries_writes(&of_task) {
                    write_at(&of_task, &file, 0, Arc::new(vec![1; 10_000])).await.unwrap();
                }
                counted.fetch_add(1, Ordering::SeqCst);
            });
            for _ in 0..round {
                yield_now().await;
            }
            assert_eq!(ended.load(Ordering::SeqCst), round - 1);
            block_on(&env, async { assert_eq!(ended.load(Ordering::SeqCst), round) });
            assert!(carries_writes(&env));
        }
    });
    task.join().unwrap();
}
