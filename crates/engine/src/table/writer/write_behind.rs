//! One file, written while the next piece of it is being built.
//!
//! In: bytes, in pieces. Out: the file, synced. Everything that may block runs on the environment's blocking threads, in order: create, append, sync.
//!
//! Invariant: one operation of a file runs at a time, and at most one more piece waits for it (the caller heeds [`WriteBehind::has_waiting`]), so a
//! file takes twice the size of a piece in memory. After an error the file takes nothing more.
//!
//! Dropped before it is closed: the operation that runs ends by itself, the file stays as it is, and whoever started the job removes it.

use std::path::PathBuf;
use std::sync::Arc;

use karst_io::{Blocking, Env, WritableFile};

use super::WriteThrottle;
use crate::error::Result;

/// A file being written.
pub(super) struct WriteBehind {
    env: Env,
    state: State,
    /// Comes next in the file.
    waiting: Vec<u8>,
    /// A buffer that has been written, for the next piece.
    spare: Vec<u8>,
    throttle: Option<Arc<dyn WriteThrottle>>,
    bytes_per_sync: u64,
    /// The checksum of all bytes so far, where one is made.
    checksum: Option<u32>,
    /// What waits is the last piece: the file is synced with it.
    ending: bool,
}

enum State {
    /// Not yet created.
    Path(PathBuf),
    Idle(Open),
    Busy(Blocking<Result<(Open, Vec<u8>)>>),
    /// An operation failed, or a future was dropped while it took the state.
    Failed,
}

struct Open {
    file: Box<dyn WritableFile>,
    /// Bytes that the device has been asked to take.
    synced: u64,
}

impl WriteBehind {
    /// A file that is created when its first piece is ready.
    pub(super) fn new(
        env: &Env,
        path: PathBuf,
        throttle: Option<Arc<dyn WriteThrottle>>,
        bytes_per_sync: u64,
        with_checksum: bool,
    ) -> Self {
        WriteBehind {
            env: env.clone(),
            state: State::Path(path),
            waiting: Vec::new(),
            spare: Vec::new(),
            throttle,
            bytes_per_sync,
            checksum: with_checksum.then_some(0),
            ending: false,
        }
    }

    /// Adds bytes at the end. They are handed to the file by [`make_room`](Self::make_room).
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        if let Some(checksum) = &mut self.checksum {
            *checksum = crc32c::crc32c_append(*checksum, &bytes);
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

    /// Whether bytes wait to be handed to the file.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An empty buffer that has its memory already, if there is one.
    pub(super) fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// Waits for what is being written, and starts to write what waits.
    pub(super) async fn make_room(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.settle().await?;
        if let Some(throttle) = &self.throttle {
            throttle.admit(self.waiting.len() as u64).await;
        }
        let bytes = std::mem::take(&mut self.waiting);
        let sync_after = match self.bytes_per_sync {
            _ if self.ending => 1,
            0 => u64::MAX,
            bytes => bytes,
        };
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Path(path) => State::Busy(self.env.run_blocking(move |env| {
                let file = env.fs().create(&path)?;
                Open { file, synced: 0 }.append(bytes, sync_after)
            })),
            State::Idle(open) => State::Busy(self.env.run_blocking(move |_| open.append(bytes, sync_after))),
            State::Busy(_) | State::Failed => unreachable!("`settle` has returned"),
        };
        Ok(())
    }

    /// Waits for what is being written.
    async fn settle(&mut self) -> Result<()> {
        if let State::Busy(running) = &mut self.state {
            let result = running.await;
            self.state = State::Failed;
            let (open, mut buffer) = result?;
            buffer.clear();
            self.spare = buffer;
            self.state = State::Idle(open);
        }
        assert!(!matches!(self.state, State::Failed), "a file that failed takes nothing more");
        Ok(())
    }

    /// Writes what waits and syncs the file, unless both have been done since it [ended](Self::end). Returns its checksum, if one is made.
    pub(super) async fn close(mut self) -> Result<Option<u32>> {
        self.make_room().await?;
        self.settle().await?;
        if let State::Idle(mut open) = std::mem::replace(&mut self.state, State::Failed)
            && open.file.size() > open.synced
        {
            self.env.run_blocking(move |_| open.file.sync()).await?;
        }
        Ok(self.checksum)
    }
}

impl Open {
    /// Blocks. Returns the buffer for the next piece.
    fn append(mut self, bytes: Vec<u8>, sync_after: u64) -> Result<(Open, Vec<u8>)> {
        self.file.append(&bytes)?;
        // Why a whole sync for `bytes_per_sync`: there is no portable way to only start it, and nobody waits for it here.
        if self.file.size() - self.synced >= sync_after {
            self.file.sync()?;
            self.synced = self.file.size();
        }
        Ok((self, bytes))
    }
}

impl std::fmt::Debug for WriteBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBehind").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}
