//! A file that is written while its next piece is being built.
//!
//! In: bytes, in pieces. Out: the file, synced. Adding never waits; [`WriteBehind::make_room`]
//! passes added bytes to the environment, and waits only while a window of bytes is in flight.
//!
//! Invariant: the caller checks [`WriteBehind::has_waiting`], so a file takes one window and one
//! piece in memory. After an error the file accepts nothing more.
//!
//! If dropped before it is closed, writes in flight complete, the file stays as it is, and the
//! job's owner removes it.

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

/// Maximum bytes of one file in flight: two pieces, one being written and one queued.
pub(super) const WINDOW_BYTES: usize = 2 << 20;

/// Maximum memory of a file in bytes: in flight, waiting, being built, and buffers for reuse.
pub(super) const MEMORY_BYTES: usize = 2 * WINDOW_BYTES;

/// A file being written.
pub(super) struct WriteBehind {
    env: Env,
    state: State,
    /// The next bytes of the file.
    waiting: Vec<u8>,
    throttle: Option<Throttle>,
    writing: WriterOptions,
    /// The checksum of all bytes so far, if enabled.
    checksum: Option<RunningChecksum>,
    /// True if the waiting bytes are the last piece, after which the file is synced.
    ending: bool,
    times: FileTimes,
    /// Charge for the file's memory.
    memory: Option<FileCharge>,
}

/// The histograms of a file's times.
#[derive(Clone)]
pub(super) struct FileTimes {
    pub(super) stats: Arc<Statistics>,
    /// Histogram of the sync.
    pub(super) sync: HistogramKind,
    /// Histograms of passing on a piece, which may wait for earlier ones.
    pub(super) writes: [HistogramKind; 2],
}

enum State {
    /// Path of a file that has not been created yet.
    Path(PathBuf),
    Open(FileWriter),
    /// Everything has been passed on; the rest is being written and synced.
    Closing(Pin<Box<dyn Future<Output = Result<()>> + Send>>),
    Closed(Result<()>),
    /// An operation failed, or its future was dropped.
    Failed,
}

impl WriteBehind {
    /// Describes a file, which is created when its first piece is ready.
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

    /// Appends bytes, which [`make_room`](Self::make_room) passes on.
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

    /// Marks the end: nothing more is appended.
    pub(super) fn end(&mut self) {
        self.ending = true;
    }

    /// Returns true if bytes wait to be passed on.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns an empty buffer, reusing memory of a written one if possible.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        match &mut self.state {
            State::Open(writer) => writer.buffer(),
            _ => Vec::new(),
        }
    }

    /// Passes on waiting bytes; waits while too much is in flight. An ended file then starts to
    /// sync.
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

    /// Advances the closing without waiting.
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

    /// Waits until everything is written and the file is synced. Returns its checksum, if enabled.
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
    /// Counts that the rate limiter let `bytes` through, after `waits` waits.
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
