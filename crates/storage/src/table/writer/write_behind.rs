//! One file, written while the next piece of it is being built.
//!
//! In: bytes, in pieces. Out: the file, synced. Adding never waits; [`WriteBehind::make_room`]
//! hands what was added to the environment, and waits only while a window of bytes is in flight
//! already.
//!
//! Invariant: the caller heeds [`WriteBehind::has_waiting`], so a file takes one window and one
//! piece in memory. After an error the file takes nothing more.
//!
//! Dropped before it is closed: what is in flight ends by itself, the file stays as it is, and
//! whoever started the job removes it.

use super::Throttle;
use crate::budget::FileCharge;
use crate::file_checksum::RunningChecksum;
use karst_base::error::Result;
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_format::version_edit::FileChecksum;
use karst_io::{Env, FileWriter, WriterOptions};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Bytes of one file in flight at most. Why: two pieces, one of which is written while the next one
/// queues up behind it.
pub(super) const WINDOW_BYTES: usize = 2 << 20;

/// What a file takes in memory at most: what is in flight, what waits, what is being built, and
/// buffers to be used again.
pub(super) const MEMORY_BYTES: usize = 2 * WINDOW_BYTES;

/// A file being written.
pub(super) struct WriteBehind {
    env: Env,
    state: State,
    /// Comes next in the file.
    waiting: Vec<u8>,
    throttle: Option<Throttle>,
    writing: WriterOptions,
    /// The checksum of all bytes so far, where one is made.
    checksum: Option<RunningChecksum>,
    /// What waits is the last piece: the file is synced behind it.
    ending: bool,
    times: FileTimes,
    /// Counts what it has in memory.
    memory: Option<FileCharge>,
}

/// Where the times of a file are counted.
#[derive(Clone)]
pub(super) struct FileTimes {
    pub(super) stats: Arc<Statistics>,
    /// Of the sync.
    pub(super) sync: HistogramKind,
    /// Of handing on a piece, which may have to wait for those before it.
    pub(super) writes: [HistogramKind; 2],
}

enum State {
    /// Not yet created.
    Path(PathBuf),
    Open(FileWriter),
    /// Everything has been handed over; the rest is written and synced.
    Closing(Pin<Box<dyn Future<Output = Result<()>> + Send>>),
    Closed(Result<()>),
    /// An operation failed, or its future was dropped.
    Failed,
}

impl WriteBehind {
    /// A file that is created when its first piece is ready.
    pub(super) fn new(
        env: &Env,
        path: PathBuf,
        throttle: Option<Throttle>,
        writing: WriterOptions,
        checksum: Option<RunningChecksum>,
        times: FileTimes,
        memory: Option<FileCharge>,
    ) -> Self {
        WriteBehind {
            env: env.clone(),
            state: State::Path(path),
            waiting: Vec::new(),
            throttle,
            writing,
            checksum,
            ending: false,
            times,
            memory,
        }
    }

    /// Adds bytes at the end. They are handed on by [`make_room`](Self::make_room).
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&bytes);
        }
        if let Some(memory) = &mut self.memory {
            memory.add(bytes.len());
        }
        if self.waiting.is_empty() {
            self.waiting = bytes;
        } else {
            self.waiting.extend_from_slice(&bytes);
        }
    }

    /// Says that nothing more comes.
    pub(super) fn end(&mut self) {
        self.ending = true;
    }

    /// Whether bytes wait to be handed on.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An empty buffer, with memory of its own if one has been written.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        match &mut self.state {
            State::Open(writer) => writer.buffer(),
            _ => Vec::new(),
        }
    }

    /// Hands on what waits; waits itself while too much is in flight. A file that has ended goes on
    /// to be synced.
    pub(super) async fn make_room(&mut self) -> Result<()> {
        if !self.waiting.is_empty() {
            let mut writer = match std::mem::replace(&mut self.state, State::Failed) {
                State::Path(path) => FileWriter::create(&self.env, &path, self.writing).await?,
                State::Open(writer) => writer,
                _ => panic!("a file that failed or was closed takes nothing more"),
            };
            if let Some(throttle) = &self.throttle {
                let bytes = self.waiting.len() as u64;
                let begun = self.times.stats.start_timer(&self.env);
                let waits = throttle.limiter.wait_for(&self.env, bytes, throttle.priority).await;
                self.times.count_throttled(&self.env, begun, bytes, waits);
            }
            let begun = self.times.stats.start_timer(&self.env);
            writer.append(std::mem::take(&mut self.waiting)).await?;
            self.times.stats.measure_since(&self.env, &self.times.writes, begun);
            self.state = if self.ending {
                State::Closing(Box::pin(close(self.env.clone(), writer, self.times.clone())))
            } else {
                State::Open(writer)
            };
        }
        self.look().await;
        Ok(())
    }

    /// Lets the closing go on as far as it can without waiting.
    async fn look(&mut self) {
        let State::Closing(closing) = &mut self.state else { return };
        let outcome = poll_fn(|cx| match closing.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        if let Some(result) = outcome {
            self.state = State::Closed(result);
        }
    }

    /// Waits until everything is in the file and the file is synced. Returns its checksum, if one
    /// is made.
    pub(super) async fn close(mut self) -> Result<Option<FileChecksum>> {
        self.ending = true;
        self.make_room().await?;
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Path(_) => panic!("a file without bytes is not closed"),
            State::Open(writer) => close(self.env.clone(), writer, self.times).await?,
            State::Closing(closing) => closing.await?,
            State::Closed(result) => result?,
            State::Failed => panic!("a file that failed is not closed"),
        }
        Ok(self.checksum.and_then(RunningChecksum::finish))
    }
}

async fn close(env: Env, mut writer: FileWriter, times: FileTimes) -> Result<()> {
    let begun = times.stats.start_timer(&env);
    writer.sync().await?;
    times.stats.measure_since(&env, &[times.sync], begun);
    writer.finish().await?;
    Ok(())
}

impl FileTimes {
    /// Counts that the rate limiter let `bytes` through, after so many waits.
    fn count_throttled(&self, env: &Env, begun: Option<Duration>, bytes: u64, waits: u64) {
        let recorder = self.stats.recorder();
        recorder.tick(Ticker::RateLimiterRequestsWrite);
        recorder.record(Ticker::RateLimiterBytesWrite, bytes);
        if waits > 0 {
            recorder.record(Ticker::NumberRateLimiterDrains, waits);
            recorder.tick(Ticker::RateLimiterDelayedRequestsWrite);
            let micros = self.stats.measure_since(env, &[HistogramKind::RateLimiterWaitMicrosWrite], begun);
            recorder.record(Ticker::RateLimiterTotalWaitMicrosWrite, micros);
        }
    }
}

impl std::fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBehind").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}
