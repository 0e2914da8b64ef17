//! The contract's part about reading: every entry form, many at a time, joined, moved, abandoned.

use super::{foreign_block_on, quiesce};
use crate::buffer::ReadBuf;
use crate::env::Env;
use crate::error::Error;
use crate::file::{OpenOptions, RandomAccessFile};
use crate::operation::{ReadFuture, read, sleep};
use crate::random::mix;
use crate::reactor::{Reactor, spawn_local, yield_now};
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type File = Arc<dyn RandomAccessFile>;

/// Returns `len` bytes from `offset` of an endless file without repetitions.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (mix(at / 8) >> (at % 8 * 8)) as u8).collect()
}

const SIZE: u64 = 1_000_003;

fn make(env: &Env, dir: &Path, direct: bool) -> (PathBuf, File) {
    let path = dir.join("pattern");
    let mut file = env.fs().create(&path).unwrap();
    file.append(&pattern(0, SIZE as usize)).unwrap();
    drop(file);
    let file = crate::block_on(env, crate::open(env, &path, OpenOptions { direct })).unwrap();
    assert_eq!((file.size(), file.path()), (SIZE, &*path));
    assert_eq!(file.alignment() > 1, direct);
    (path, file)
}

fn expected(offset: u64, len: usize) -> Vec<u8> {
    pattern(offset, SIZE.saturating_sub(offset).min(len as u64) as usize)
}

fn check(got: Result<ReadBuf, Error>, offset: u64, len: usize, form: &str) {
    match got {
        Ok(bytes) => assert!(*bytes == *expected(offset, len), "{form}: wrong bytes, {len} at {offset}"),
        Err(e) => panic!("{form}: {e}"),
    }
}

pub(super) fn every_offset_by_every_entry_form(env: &Env, dir: &Path, direct: bool) {
    let (path, file) = make(env, dir, direct);
    let mut places =
        vec![(0, 0), (0, 1), (1, 4300), (4095, 2), (511, 600_000), (0, SIZE as usize), (7, 1 << 21)];
    places.extend([
        (SIZE - 4, 4),
        (SIZE - 4, 5),
        (SIZE - 1, 9000),
        (SIZE, 1),
        (SIZE + 5000, 10),
        (1 << 40, 4096),
    ]);
    places.extend((0..40).map(|i| (mix(i) % SIZE, (mix(i + 100) % 20_000) as usize)));
    let reactor = Reactor::builder(env).build().unwrap();
    for (offset, len) in places.clone() {
        check(crate::block_on(env, read(env, &file, offset, len)), offset, len, "block_on");
        check(foreign_block_on(read(env, &file, offset, len)), offset, len, "driver");
    }
    let (e, f) = (env.clone(), file.clone());
    let task = reactor.spawn(move || async move {
        for (offset, len) in places {
            check(read(&e, &f, offset, len).await, offset, len, "reactor");
            // From inside of a task, on the thread's own channel.
            check(crate::block_on(&e, read(&e, &f, offset, len)), offset, len, "block_on in a task");
        }
    });
    task.join().unwrap();
    let beyond = crate::block_on(env, read(env, &file, u64::MAX - 3, 10)).unwrap_err();
    assert_eq!((beyond.op, &*beyond.path, beyond.offset), ("read", &*path, Some(u64::MAX - 3)));
    drop((reactor, file));
    env.fs().remove(&path).unwrap();
    quiesce(env);
}

async fn hundreds(env: Env, file: File, form: &'static str) {
    let all: Vec<_> = (0..400u64)
        .map(|i| (mix(i) % SIZE, (mix(i + 1000) % 9000) as usize))
        .map(|(offset, len)| (offset, len, read(&env, &file, offset, len)))
        .collect();
    join_all(all, form).await;
}

/// Polls all until all are done, in no particular order, and checks each.
async fn join_all(mut all: Vec<(u64, usize, ReadFuture)>, form: &'static str) {
    poll_fn(move |cx| {
        all.retain_mut(|(offset, len, future)| match Pin::new(future).poll(cx) {
            Poll::Ready(got) => {
                check(got, *offset, *len, form);
                false
            }
            Poll::Pending => true,
        });
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

pub(super) fn many_in_flight(env: &Env, dir: &Path, direct: bool) {
    let (path, file) = make(env, dir, direct);
    crate::block_on(env, hundreds(env.clone(), file.clone(), "block_on"));
    foreign_block_on(hundreds(env.clone(), file.clone(), "driver"));
    let reactor = Reactor::builder(env).threads(2).build().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (env, file) = (env.clone(), file.clone());
            reactor.spawn(move || hundreds(env, file, "reactor"))
        })
        .collect();
    tasks.into_iter().for_each(|t| t.join().unwrap());
    assert!(reactor.stats().iter().map(|s| s.hold_times.count()).sum::<u64>() >= 4);
    drop((reactor, file));
    env.fs().remove(&path).unwrap();
    quiesce(env);
}

pub(super) fn identical_reads_are_joined(env: &Env, dir: &Path, direct: bool) {
    let (path, file) = make(env, dir, direct);
    let before = env.io_stats();
    let twins = |n: usize| (0..n).map(|_| (100, 5000, read(env, &file, 100, 5000))).collect::<Vec<_>>();
    crate::block_on(env, join_all(twins(5), "twins"));
    let after = env.io_stats();
    assert_eq!((after.reads - before.reads, after.joined - before.joined), (1, 4));
    // The first reader is dropped; the others get their bytes.
    crate::block_on(env, async {
        let mut all = twins(4);
        poll_fn(|cx| {
            for (.., future) in &mut all {
                assert!(
                    Pin::new(future).poll(cx).is_pending(),
                    "a read completed in the call that started it"
                );
            }
            Poll::Ready(())
        })
        .await;
        drop(all.remove(0));
        join_all(all, "orphaned twins").await;
    });
    assert_eq!(env.io_stats().reads - after.reads, 1);
    drop(file);
    env.fs().remove(&path).unwrap();
    quiesce(env);
}

/// Polls once with a waker that does nothing.
fn nudge(future: &mut ReadFuture) {
    let _ = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
}

pub(super) fn futures_may_move_and_go(env: &Env, dir: &Path, direct: bool) {
    let (path, file) = make(env, dir, direct);
    let reactor = Reactor::builder(env).build().unwrap();
    let started_in_block_on = |offset| {
        let mut future = read(env, &file, offset, 3000);
        crate::block_on(env, async { nudge(&mut future) });
        future
    };
    let started_on_reactor = |offset| {
        let (e, f) = (env.clone(), file.clone());
        let task = reactor.spawn(move || async move {
            let mut future = read(&e, &f, offset, 3000);
            nudge(&mut future);
            Some(future)
        });
        task.join().unwrap().unwrap()
    };
    let started_on_driver = |offset| {
        let mut future = read(env, &file, offset, 3000);
        nudge(&mut future);
        future
    };
    let starts: [&dyn Fn(u64) -> ReadFuture; 3] =
        [&started_in_block_on, &started_on_reactor, &started_on_driver];
    for (i, start) in starts.iter().enumerate() {
        let offset = |finish: u64| (i as u64 * 3 + finish) * 10_000;
        check(crate::block_on(env, start(offset(0))), offset(0), 3000, "moved to block_on");
        check(foreign_block_on(start(offset(1))), offset(1), 3000, "moved to a foreign executor");
        let (moved, at) = (start(offset(2)), offset(2));
        reactor
            .spawn(move || async move { check(moved.await, at, 3000, "moved to a reactor") })
            .join()
            .unwrap();
        drop(start(5)); // on this thread
        let gone = start(6);
        std::thread::scope(|s| drop(s.spawn(move || drop(gone)))); // on another thread
        let held = start(7);
        let env = env.clone();
        let nested = std::thread::spawn(move || {
            crate::block_on(&env.clone(), async move { crate::block_on(&env, held) })
        });
        check(nested.join().unwrap(), 7, 3000, "moved into a nested block_on");
    }
    drop((reactor, file));
    env.fs().remove(&path).unwrap();
    quiesce(env);
}

pub(super) fn buffers_outlive_their_channel(env: &Env, dir: &Path, direct: bool) {
    let (path, file) = make(env, dir, direct);
    let (e, f) = (env.clone(), file.clone());
    let held: Vec<ReadBuf> = std::thread::spawn(move || {
        (0..600).map(|i| crate::block_on(&e, read(&e, &f, i * 1000, 1000)).unwrap()).collect()
    })
    .join()
    .unwrap();
    assert_eq!(env.io_stats().buffers_out, 600);
    for (i, bytes) in held.iter().enumerate() {
        assert!(**bytes == *expected(i as u64 * 1000, 1000), "buffer {i} was written to while it was held");
    }
    assert_eq!(held[3].clone().into_boxed(), expected(3000, 1000).into());
    std::thread::spawn(move || drop(held)).join().unwrap();
    drop(file);
    env.fs().remove(&path).unwrap();
    quiesce(env);
}

/// Reads at random offsets for `span` by all three entry forms at the same time, drops reads at
/// random moments of their lives, and checks every result. Waits until nothing is in flight or
/// held. Returns the number of dropped reads.
pub fn cancellations(env: &Env, dir: &Path, direct: bool, span: Duration, seed: u64) -> u64 {
    let (path, file) = make(env, dir, direct);
    let reactor = Reactor::builder(env).threads(2).build().unwrap();
    let until = env.now() + span;
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let (env, file) = (env.clone(), file.clone());
            reactor.spawn(move || async move {
                let parts: Vec<_> = (0..4)
                    .map(|j| {
                        spawn_local(drops(
                            env.clone(),
                            file.clone(),
                            until,
                            mix(seed + i * 64 + j),
                            "reactor",
                        ))
                    })
                    .collect();
                let mut dropped = 0;
                for part in parts {
                    dropped += part.await.unwrap();
                }
                dropped
            })
        })
        .collect();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (env, file) = (env.clone(), file.clone());
            std::thread::spawn(move || {
                let seed = mix(seed + 10_000 + i);
                if i % 2 == 0 {
                    crate::block_on(&env, drops(env.clone(), file, until, seed, "block_on"))
                } else {
                    foreign_block_on(drops(env.clone(), file, until, seed, "driver"))
                }
            })
        })
        .collect();
    let mut dropped: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    dropped += tasks.into_iter().map(|t| t.join().unwrap()).sum::<u64>();
    drop((reactor, file));
    env.fs().remove(&path).unwrap();
    quiesce(env);
    dropped
}

async fn drops(env: Env, file: File, until: Duration, seed: u64, form: &'static str) -> u64 {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(state) % below
    };
    let mut dropped = 0;
    while env.now() < until {
        // Few offsets, which makes joined reads frequent.
        let mut batch: Vec<_> = (0..1 + random(12))
            .map(|_| (random(50) * 4099, 1 + (random(4) * 3333) as usize))
            .map(|(offset, len)| (offset, len, read(&env, &file, offset, len)))
            .collect();
        let rounds = random(4);
        for _ in 0..rounds {
            poll_fn(|cx| {
                batch.retain_mut(|(offset, len, future)| match Pin::new(future).poll(cx) {
                    Poll::Ready(got) => {
                        check(got, *offset, *len, form);
                        false
                    }
                    Poll::Pending => true,
                });
                Poll::Ready(())
            })
            .await;
            match random(3) {
                0 => yield_now().await,
                1 => sleep(&env, Duration::from_micros(random(300))).await,
                _ => {}
            }
        }
        let keep = random(batch.len() as u64 + 1) as usize;
        dropped += (batch.len() - keep) as u64;
        if random(4) == 0 {
            // Some are dropped on another thread.
            let gone = batch.split_off(keep);
            drop(env.run_blocking(move |_| drop(gone)));
        }
        batch.truncate(keep);
        join_all(batch, form).await;
    }
    dropped
}
