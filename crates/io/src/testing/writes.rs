//! The contract's part about writing from async code: in order, in the background, and abandoned at
//! any moment.

use super::pattern;
use crate::background::Priority;
use crate::env::Env;
use crate::file::{MAP_ALIGNMENT, OpenOptions};
use crate::writer::{FileWriter, WriterOptions};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

/// Returns ways to write a file; with `direct`, those that bypass the page cache too.
fn windows(direct: bool) -> impl Iterator<Item = WriterOptions> {
    let default = WriterOptions::default();
    let buffered = [
        default,
        WriterOptions { window: 1, ..default },
        WriterOptions { window: 30_000, sync_every: 10_000, reserve: 64 << 10, ..default },
        WriterOptions { sync_every: 5000, strict: true, fsync: true, ..default },
    ];
    let modes = if direct { &[false, true][..] } else { &[false] };
    modes.iter().flat_map(move |direct| buffered.map(|options| WriterOptions { direct: *direct, ..options }))
}

/// Appends chunks of the given sizes one after the other, which makes the file the pattern.
async fn append_all(file: &mut FileWriter, sizes: impl Iterator<Item = usize>) {
    for size in sizes {
        let mut buffer = file.buffer();
        assert!(buffer.is_empty());
        buffer.extend(pattern(file.size(), size));
        file.append(buffer).await.unwrap();
    }
}

fn sizes() -> impl Iterator<Item = usize> {
    (0..60).map(|i| i * i * 7 % 9973)
}

pub(super) fn appended_buffers_follow_each_other(env: &Env, dir: &Path, direct: bool) {
    let path = dir.join("written");
    let expected = pattern(0, sizes().sum());
    for options in windows(direct) {
        let write = |env: Env, path: std::path::PathBuf| async move {
            let mut file = FileWriter::create(&env, &path, options).await.unwrap();
            assert_eq!((file.size(), file.path(), file.is_direct()), (0, &*path, options.direct));
            // A flush in between: the next append continues within a unit that is already in the
            // file.
            append_all(&mut file, sizes().take(20)).await;
            file.flush().await.unwrap();
            assert_eq!(env.fs().read_file(&path).unwrap(), pattern(0, file.size() as usize));
            append_all(&mut file, sizes().skip(20)).await;
            file.flush().await.unwrap();
            assert_eq!(env.fs().metadata(&path).unwrap().len, file.size());
            file.flush().await.unwrap();
            file.sync().await.unwrap();
            file.finish().await.unwrap()
        };
        let on_this_thread = crate::block_on(env, write(env.clone(), path.clone()));
        assert_eq!(on_this_thread, expected.len() as u64);
        assert!(env.fs().read_file(&path).unwrap() == expected);
        env.fs().remove(&path).unwrap();
        let job = env.spawn(Priority::Low, write(env.clone(), path.clone()));
        assert_eq!(crate::block_on(env, job).unwrap(), expected.len() as u64);
        // The written bytes are read through the channel.
        let open = crate::block_on(env, crate::open(env, &path, OpenOptions::BUFFERED)).unwrap();
        assert_eq!(open.size(), expected.len() as u64);
        assert!(*crate::block_on(env, crate::read(env, &open, 0, expected.len())).unwrap() == *expected);
        env.fs().remove(&path).unwrap();
    }
}

pub(super) fn files_are_cut_and_replaced(env: &Env, dir: &Path, direct: bool) {
    let path = dir.join("cut");
    env.fs().create(&path).unwrap().append(&[0xff; 300_000]).unwrap();
    for options in windows(direct) {
        crate::block_on(env, async {
            let mut file = FileWriter::create(env, &path, options).await.unwrap();
            append_all(&mut file, [100_000, 50_000].into_iter()).await;
            file.truncate(70_001).await.unwrap();
            assert_eq!(file.size(), 70_001);
            append_all(&mut file, [1, 2, 9000].into_iter()).await;
            let beyond = file.truncate(1 << 20).await.unwrap_err();
            assert_eq!((beyond.op, &*beyond.path, beyond.offset), ("truncate", &*path, Some(1 << 20)));
            assert_eq!(file.finish().await.unwrap(), 79_004);
        });
        assert!(env.fs().read_file(&path).unwrap() == pattern(0, 79_004));
    }
    let none = dir.join("none/file");
    let missing = crate::block_on(env, FileWriter::create(env, &none, WriterOptions::default())).unwrap_err();
    assert_eq!((missing.op, &*missing.path, missing.is_not_found()), ("create", &*none, true));
    env.fs().remove(&path).unwrap();
}

/// A call that is dropped while it waits has no effect, and loses nothing.
pub(super) fn appends_may_be_given_up(env: &Env, dir: &Path, direct: bool) {
    let path = dir.join("given-up");
    let options = WriterOptions { window: 5000, direct, ..WriterOptions::default() };
    let size = crate::block_on(env, async {
        let mut file = FileWriter::create(env, &path, options).await.unwrap();
        for i in 0..200usize {
            let before = file.size();
            let data = pattern(before, 1 + i * 37 % 4000);
            let added = {
                let mut append = pin!(file.append(data));
                // Polled a few times, then dropped.
                let mut polls = i % 3;
                poll_fn(|cx| match append.as_mut().poll(cx) {
                    Poll::Ready(done) => Poll::Ready(Some(done)),
                    Poll::Pending if polls == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        polls -= 1;
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await
            };
            match added {
                Some(done) => done.unwrap(),
                None => assert_eq!(file.size(), before),
            }
        }
        file.finish().await.unwrap()
    });
    assert!(size > 0 && env.fs().read_file(&path).unwrap() == pattern(0, size as usize));
    env.fs().remove(&path).unwrap();
}

/// A file reopened under another name keeps the bytes that are not overwritten, and its space may
/// be reserved and released.
pub(super) fn what_is_there_is_written_over(env: &Env, dir: &Path) {
    let (old, new, fs) = (dir.join("old"), dir.join("new"), env.fs());
    let missing = fs.open_positional(&old).unwrap_err();
    assert_eq!((missing.op, &*missing.path, missing.is_not_found()), ("open", &*old, true));
    let mut file = fs.create(&old).unwrap();
    file.reserve(0, 100_000).unwrap();
    file.append(&[7; 5000]).unwrap();
    assert_eq!((file.size(), fs.metadata(&old).unwrap().len), (5000, 5000));
    drop(file);
    fs.rename(&old, &new).unwrap();
    let file = fs.open_positional(&new).unwrap();
    assert_eq!(fs.metadata(&new).unwrap().len, 5000);
    file.reserve(5000, 100_000).unwrap();
    file.write_at(0, &[1; 1000]).unwrap();
    file.sync().unwrap();
    let bytes = fs.read_file(&new).unwrap();
    assert!(bytes.len() == 5000 && bytes[..1000] == [1; 1000] && bytes[1000..] == [7; 4000]);
    file.truncate(1000).unwrap();
    file.write_at(1000, &[2; 10]).unwrap();
    let bytes = fs.read_file(&new).unwrap();
    assert!(bytes.len() == 1010 && bytes[..1000] == [1; 1000] && bytes[1000..] == [2; 10]);
    fs.remove(&new).unwrap();
}

/// Bytes put into a mapped range are in the file, beside those written; a file system that cannot
/// map leaves the file unchanged.
pub(super) fn stretches_are_mapped(env: &Env, dir: &Path) {
    let (path, fs) = (dir.join("mapped"), env.fs());
    let file = fs.create_positional(&path).unwrap();
    file.write_at(0, &pattern(0, 1000)).unwrap();
    let mut size = 1000;
    for start in [0, MAP_ALIGNMENT, 2 * MAP_ALIGNMENT] {
        let end = start + MAP_ALIGNMENT;
        match file.map(start, MAP_ALIGNMENT as usize) {
            None => {
                assert_eq!(fs.metadata(&path).unwrap().len, size);
                file.write_at(size, &pattern(size, (end - size) as usize)).unwrap();
            }
            Some(mut mapped) => {
                assert_eq!(fs.metadata(&path).unwrap().len, end);
                mapped.put(end - 5000, &pattern(end - 5000, 5000));
                file.write_at(end - 10_000, &pattern(end - 10_000, 5000)).unwrap();
                mapped.put(size, &pattern(size, (end - 10_000 - size) as usize));
            }
        }
        size = end;
    }
    file.sync().unwrap();
    assert!(fs.read_file(&path).unwrap() == pattern(0, size as usize));
    file.truncate(70_000).unwrap();
    assert!(fs.read_file(&path).unwrap() == pattern(0, 70_000));
    fs.remove(&path).unwrap();
}
