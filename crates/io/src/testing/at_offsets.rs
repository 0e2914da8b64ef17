//! The contract's part about writing at any offset without blocking: by every entry form, with
//! faults that a writer must not notice, dropped and moved half-way.

use super::{foreign_block_on, pattern, poll_times, quiesce};
use crate::env::Env;
use crate::file::{PositionalFile, WriteBackend};
use crate::reactor::{Reactor, spawn_local};
use crate::writing::{WriteFuture, reserve_space, sync_file, write_at};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;

type File = Arc<dyn PositionalFile>;

/// Length of a piece of the pattern, which is no multiple of anything.
const PIECE: usize = 37_013;
const PIECES: u64 = 24;

fn piece(env: &Env, file: &File, number: u64) -> WriteFuture {
    let offset = number * PIECE as u64;
    write_at(env, file, offset, Arc::new(pattern(offset, PIECE)))
}

/// Writes the odd pieces at the same time, then the even ones one after the other, and syncs.
async fn write_all(env: Env, file: File) {
    let mut odd: Vec<_> = (0..PIECES).filter(|n| n % 2 == 1).map(|n| piece(&env, &file, n)).collect();
    let mut left = Vec::new();
    for mut write in odd.drain(..) {
        match poll_times(Pin::new(&mut write), 1).await {
            Some(done) => done.unwrap(),
            None => left.push(write),
        }
    }
    for write in left.into_iter().rev() {
        write.await.unwrap();
    }
    for number in (0..PIECES).filter(|n| n % 2 == 0) {
        piece(&env, &file, number).await.unwrap();
    }
    write_at(&env, &file, 0, Arc::default()).await.unwrap();
    sync_file(&env, &file, false).await.unwrap();
    sync_file(&env, &file, true).await.unwrap();
}

pub(super) fn any_offset_by_every_entry_form(env: &Env, dir: &Path) {
    let (path, fs) = (dir.join("at-offsets"), env.fs());
    let expected = pattern(0, PIECE * PIECES as usize);
    for form in ["block_on", "reactor", "foreign"] {
        let file = fs.create_positional(&path).unwrap();
        let all = write_all(env.clone(), file.clone());
        match form {
            "block_on" => crate::block_on(env, all),
            "reactor" => {
                let reactor = Reactor::builder(env).build().unwrap();
                let (env, file) = (env.clone(), file.clone());
                reactor.spawn(move || write_all(env, file)).join().unwrap();
            }
            _ => foreign_block_on(all),
        }
        assert!(fs.read_file(&path).unwrap() == expected, "{form}");
        // What is there is written over, and space is reserved without a change of the length.
        crate::block_on(env, async {
            reserve_space(env, &file, expected.len() as u64, 100_000).await.unwrap();
            write_at(env, &file, 5, Arc::new(vec![7; 3])).await.unwrap();
        });
        let bytes = fs.read_file(&path).unwrap();
        assert!(bytes[5..8] == [7; 3] && bytes[..5] == expected[..5] && bytes[8..] == expected[8..]);
        fs.remove(&path).unwrap();
    }
}

pub(super) fn failures_name_the_operation_the_path_and_the_offset(env: &Env, dir: &Path) {
    let (path, fs) = (dir.join("too-far"), env.fs());
    let file = fs.create_positional(&path).unwrap();
    // Beyond any file, so that a short first step fails too.
    let offset = 1 << 63;
    let e = crate::block_on(env, write_at(env, &file, offset, Arc::new(vec![1; 10]))).unwrap_err();
    assert_eq!((e.op, &*e.path, e.offset), ("write", &*path, Some(offset)), "{e}");
    fs.remove(&path).unwrap();
}

/// A dropped write leaves its data with the channel until it has ended, and is then freed.
pub(super) fn dropped_writes_leave_their_data(env: &Env, dir: &Path) {
    let (path, fs) = (dir.join("dropped"), env.fs());
    let file = fs.create_positional(&path).unwrap();
    let data: Vec<_> = (0..PIECES).map(|n| Arc::new(pattern(n * PIECE as u64, PIECE))).collect();
    crate::block_on(env, async {
        for (n, data) in data.iter().enumerate() {
            let write = pin!(write_at(env, &file, (n * PIECE) as u64, data.clone()));
            // Dropped unpolled, at its beginning, or somewhere later.
            if let Some(done) = poll_times(write, n as u64 % 3).await {
                done.unwrap();
            }
        }
    });
    quiesce(env);
    // A blocking call has its data for as long as it takes.
    let start = std::time::Instant::now();
    while data.iter().any(|data| Arc::strong_count(data) > 1) {
        assert!(start.elapsed().as_secs() < 300, "data is never given back");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let bytes = fs.read_file(&path).unwrap();
    for (n, data) in data.iter().enumerate() {
        let place = n * PIECE..((n + 1) * PIECE).min(bytes.len());
        let Some(found) = bytes.get(place) else { continue };
        // With `n % 3 == 0` it was never polled.
        assert!(n % 3 != 0 || found.iter().all(|byte| *byte == 0), "piece {n} was never begun");
        assert!(found.iter().zip(&**data).all(|(byte, wanted)| *byte == 0 || byte == wanted), "piece {n}");
    }
    fs.remove(&path).unwrap();
}

/// A write ends on the channel that it began on: polled inside of another call it blocks until
/// then, and on another thread it fails.
pub(super) fn writes_stay_with_their_channel(env: &Env, dir: &Path) {
    let (path, fs) = (dir.join("stays"), env.fs());
    let file = fs.create_positional(&path).unwrap();
    let reactor = Reactor::builder(env).build().unwrap();
    let (theirs, file_there) = (env.clone(), file.clone());
    let begun = move || async move {
        let mut write = piece(&theirs, &file_there, 0);
        if let Some(done) = poll_times(Pin::new(&mut write), 1).await {
            done.unwrap();
        } else {
            crate::block_on(&theirs, write).unwrap();
        }
        // Other tasks of the reactor still run.
        spawn_local(async {}).await.unwrap();
        let mut write = piece(&theirs, &file_there, 1);
        match poll_times(Pin::new(&mut write), 1).await {
            Some(done) => done.map(|()| None).unwrap(),
            None => Some(write),
        }
    };
    let moved = reactor.spawn(begun).join().unwrap();
    if let (Some(write), WriteBackend::Fd(_)) = (moved, file.backend()) {
        let e = crate::block_on(env, write).unwrap_err();
        assert_eq!((e.op, &*e.path, e.offset), ("write", &*path, Some(PIECE as u64)), "{e}");
    }
    drop(reactor);
    quiesce(env);
    assert!(fs.read_file(&path).unwrap()[..PIECE] == pattern(0, PIECE));
    fs.remove(&path).unwrap();
}
