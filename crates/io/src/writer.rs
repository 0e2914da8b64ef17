//! [`FileWriter`] writes a file from async code, in the background.
//!
//! Appended bytes are written while the caller prepares the next ones: up to
//! [`WriterOptions::window`] bytes are in flight, and `append` waits only beyond that. Each buffer
//! belongs to its write until the write has ended, even if the future or the writer is dropped;
//! then it can be used again ([`FileWriter::buffer`]).
//!
//! The file holds the buffers' bytes in the order of their appends. Invariants: writes may end in
//! any order, therefore only after [`FileWriter::flush`] are all bytes up to [`FileWriter::size`]
//! in the file, and only after [`FileWriter::sync`] are they durable; after a failure every call
//! fails, with that failure, because the file has a hole.
//!
//! A file that bypasses the page cache is written in whole units from aligned memory.
//! [`FileWriter::flush`] writes the rest padded with zeros and truncates the padding; the next
//! append writes that unit again. Until a flush has succeeded the file may be longer than its
//! appended bytes, which is harmless because no reader relies on it before a sync. Used by flush,
//! compaction and all other writers of files that are not logs.

use crate::aligned::AlignedBuffer;
use crate::blocking::Blocking;
use crate::env::Env;
use crate::error::{Error, Failure, Result};
use crate::file::PositionalFile;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Maximum number of buffers kept for reuse.
const SPARE_AT_MOST: usize = 4;

/// Options of a [`FileWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Maximum number of bytes in flight before `append` waits; a single buffer may be larger.
    /// Default: 4 MiB.
    pub window: usize,
    /// Number of bytes after which the operating system is asked to start writing them to the
    /// device (`bytes_per_sync`), which leaves little for the sync at the end; 0: never. Default:
    /// 0.
    pub sync_every: u64,
    /// Wait for the writeback started earlier before starting more (`strict_bytes_per_sync`), which
    /// delays the writer rather than the sync at the end. Default: false.
    pub strict: bool,
    /// Sync with `fsync` rather than `fdatasync` (`use_fsync`). Default: false.
    pub fsync: bool,
    /// Step in bytes in which space is reserved ahead of the written bytes; the unused part is
    /// released at the end; 0: no reservation. Default: 0.
    pub reserve: u64,
    /// Bypass the page cache if the file system supports it; otherwise the refusal is logged
    /// ([`Env::say_direct_refused`]) and the file is written through the page cache. Appended bytes
    /// are copied into aligned memory once. `sync_every` has no effect then. Default: false.
    pub direct: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { window: 4 << 20, sync_every: 0, strict: false, fsync: false, reserve: 0, direct: false }
    }
}

/// A new file, written by async code. It may be moved between threads and executors.
///
/// Dropping it leaves the writes in flight to end in the background; [`FileWriter::finish`] returns
/// their result.
#[must_use = "a file is whole only after `finish`"]
pub struct FileWriter {
    env: Env,
    file: Arc<dyn PositionalFile>,
    options: WriterOptions,
    size: u64,
    reserved: u64,
    /// Offset below which the operating system has been asked to start writeback.
    range_synced: u64,
    flights: VecDeque<Flight>,
    in_flight: usize,
    spare: Vec<Vec<u8>>,
    /// The unwritten end of a file that bypasses the page cache.
    staged: Option<Box<Staged>>,
    failed: Option<Failed>,
}

/// The end of a file that is written in whole units: the bytes that do not yet fill a unit.
///
/// Invariant: `bytes` are those of the file from `at`, a multiple of the unit, up to its size; all
/// bytes before `at` were handed over.
struct Staged {
    bytes: AlignedBuffer,
    at: u64,
    unit: usize,
    /// True if `bytes` were handed over too, padded to a unit, with the padding truncated.
    written: bool,
    spare: Vec<AlignedBuffer>,
}

impl Staged {
    fn new(unit: usize) -> Self {
        Self { bytes: AlignedBuffer::new(unit, unit), at: 0, unit, written: true, spare: Vec::new() }
    }

    /// Returns a buffer with room for `len` bytes.
    fn buffer(&mut self, len: usize) -> AlignedBuffer {
        match self.spare.pop().filter(|buffer| buffer.capacity() >= len) {
            Some(buffer) => buffer,
            None => AlignedBuffer::new(self.unit, len.next_multiple_of(self.unit)),
        }
    }

    /// Appends bytes. Returns the whole units that are now complete, and their offset.
    fn add(&mut self, data: &[u8]) -> Option<(u64, AlignedBuffer)> {
        self.written = false;
        let whole = (self.bytes.len() + data.len()) / self.unit * self.unit;
        if whole == 0 {
            self.bytes.extend(data);
            return None;
        }
        let mut units = self.buffer(whole);
        let (now, rest) = data.split_at(whole - self.bytes.len());
        units.extend(self.bytes.as_slice());
        units.extend(now);
        self.bytes.clear();
        self.bytes.extend(rest);
        let at = self.at;
        self.at += whole as u64;
        Some((at, units))
    }

    /// Returns the rest, padded to a unit, with its offset, unless it was already handed over.
    fn rest(&mut self) -> Option<(u64, AlignedBuffer)> {
        if std::mem::replace(&mut self.written, true) || self.bytes.len() == 0 {
            return None;
        }
        let mut unit = self.buffer(self.unit);
        unit.extend(self.bytes.as_slice());
        unit.pad();
        Some((self.at, unit))
    }

    /// Returns true if a non-empty rest was handed over.
    fn rest_is_written(&self) -> bool {
        self.written && self.bytes.len() > 0
    }

    fn take_back(&mut self, mut buffer: AlignedBuffer) {
        if self.spare.len() < SPARE_AT_MOST {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// The buffer that a write returns when it has ended.
enum Memory {
    None,
    Plain(Vec<u8>),
    Aligned(AlignedBuffer),
}

/// One operation on the file in the background.
struct Flight {
    bytes: usize,
    ends: Blocking<(Result<()>, Memory)>,
}

/// The first failure, returned again by every later call.
struct Failed {
    op: &'static str,
    offset: Option<u64>,
    failure: Failure,
}

impl FileWriter {
    /// Creates the file at `path`, or truncates an existing one.
    ///
    /// # Errors
    /// The file cannot be created.
    pub async fn create(env: &Env, path: &Path, options: WriterOptions) -> Result<Self> {
        let at = path.to_path_buf();
        let create = move |env: &Env| match options.direct.then(|| env.fs().create_direct(&at)) {
            Some(Err(refused)) if refused.is_direct_unsupported() => {
                env.say_direct_refused(&refused);
                env.fs().create_positional(&at)
            }
            Some(created) => created,
            None => env.fs().create_positional(&at),
        };
        let file = env.run_blocking(create).await?;
        let unit = file.alignment();
        Ok(Self {
            env: env.clone(),
            file,
            options,
            size: 0,
            reserved: 0,
            range_synced: 0,
            flights: VecDeque::new(),
            in_flight: 0,
            spare: Vec::new(),
            staged: (unit > 1).then(|| Box::new(Staged::new(unit))),
            failed: None,
        })
    }

    /// Returns true if the file bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.staged.is_some()
    }

    /// Returns the path it was created at.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the number of bytes appended.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns an empty buffer to fill and append: one whose write has ended, or a new one.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends `data`. Waits only while more than the window is in flight; returns before `data` is
    /// written. A call that is dropped while it waits has appended nothing.
    ///
    /// # Errors
    /// This or an earlier write has failed. The file must not be used.
    pub async fn append(&mut self, data: Vec<u8>) -> Result<()> {
        self.look().await?;
        if data.is_empty() {
            return Ok(());
        }
        if self.staged.as_ref().is_some_and(|staged| staged.rest_is_written()) {
            // Waits, because a flush whose future was dropped may still be writing the rest and
            // truncating the file behind it.
            self.land_all().await?;
        }
        while !self.flights.is_empty() && self.in_flight + data.len() > self.options.window {
            self.land_first().await?;
        }
        self.begin_write_behind();
        let (offset, len) = (self.size, data.len());
        self.size += len as u64;
        let reserve = self.next_reservation();
        // Errors are ignored, because the write itself fails if it finds no space.
        let reserve = move |file: &dyn PositionalFile| {
            let _ = reserve.map(|(from, len)| file.reserve(from, len));
        };
        let Some(staged) = &mut self.staged else {
            self.start(len, move |file| {
                reserve(file);
                (file.write_at(offset, &data), Memory::Plain(data))
            });
            return Ok(());
        };
        let units = staged.add(&data);
        self.keep(data);
        if let Some((at, units)) = units {
            self.start(units.len(), move |file| {
                reserve(file);
                (file.write_at(at, units.as_slice()), Memory::Aligned(units))
            });
        }
        Ok(())
    }

    /// Keeps a buffer for reuse.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_AT_MOST {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Waits until everything appended has left the process.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn flush(&mut self) -> Result<()> {
        self.land_all().await?;
        let size = self.size;
        if let Some((at, unit)) = self.staged.as_mut().and_then(|staged| staged.rest()) {
            // Only after all other writes, because a write beyond the cut would extend the file
            // again.
            self.start(unit.len(), move |file| {
                (file.write_at(at, unit.as_slice()).and_then(|()| file.truncate(size)), Memory::Aligned(unit))
            });
            self.land_all().await?;
        }
        Ok(())
    }

    /// Waits until all operations in flight have ended.
    async fn land_all(&mut self) -> Result<()> {
        self.look().await?;
        while !self.flights.is_empty() {
            self.land_first().await?;
        }
        Ok(())
    }

    /// Makes everything appended and the file's length durable (`fdatasync`). Its name is durable
    /// once its directory is synced too.
    ///
    /// # Errors
    /// A write or the sync has failed; the caller must append nothing more to the file.
    pub async fn sync(&mut self) -> Result<()> {
        self.flush().await?;
        let fsync = self.options.fsync;
        self.start(0, move |file| (if fsync { file.sync_all() } else { file.sync() }, Memory::None));
        self.flush().await
    }

    /// Truncates the file to `size` bytes; the next append continues there. `size` may not be
    /// beyond the end.
    ///
    /// # Errors
    /// The file could not be truncated, or a write has failed.
    pub async fn truncate(&mut self, size: u64) -> Result<()> {
        self.flush().await?;
        if size > self.size {
            let e = io::Error::new(io::ErrorKind::InvalidInput, "a file is not made longer by cutting it");
            return Err(Error::at("truncate", self.path(), size, e));
        }
        if size < self.size && self.is_direct() {
            // Buffered from here on, because a direct write would have to read the rest of the last
            // unit first, and no caller truncates files that it writes for long.
            let path = self.path().to_path_buf();
            self.file = self.env.run_blocking(move |env| env.fs().open_positional(&path)).await?;
            self.staged = None;
        }
        self.start(0, move |file| (file.truncate(size), Memory::None));
        self.flush().await?;
        self.size = size;
        self.reserved = self.reserved.min(size);
        self.range_synced = self.range_synced.min(size);
        Ok(())
    }

    /// Waits for all writes, releases reserved space and closes the file. Returns its length in
    /// bytes. Does not make it durable: call [`FileWriter::sync`] first.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn finish(mut self) -> Result<u64> {
        self.flush().await?;
        if self.reserved > self.size {
            self.truncate(self.size).await?;
        }
        Ok(self.size)
    }

    fn start(
        &mut self,
        bytes: usize,
        what: impl FnOnce(&dyn PositionalFile) -> (Result<()>, Memory) + Send + 'static,
    ) {
        let file = self.file.clone();
        let ends = self.env.run_blocking(move |_| what(&*file));
        self.in_flight += bytes;
        self.flights.push_back(Flight { bytes, ends });
    }

    /// Takes in the operations that have ended, without waiting.
    ///
    /// # Errors
    /// This or an earlier operation has failed.
    async fn look(&mut self) -> Result<()> {
        while self.flights.front().is_some_and(|flight| flight.ends.is_done()) {
            self.land_first().await?;
        }
        match &self.failed {
            None => Ok(()),
            Some(failed) => Err(Error {
                op: failed.op,
                path: self.file.path().into(),
                offset: failed.offset,
                source: failed.failure.to_io(),
            }),
        }
    }

    /// Waits for the operation that started first.
    ///
    /// # Errors
    /// The operation has failed.
    async fn land_first(&mut self) -> Result<()> {
        let flights = &mut self.flights;
        let (result, buffer) = poll_fn(|cx| match flights.front_mut() {
            Some(flight) => Pin::new(&mut flight.ends).poll(cx),
            None => Poll::Ready((Ok(()), Memory::None)),
        })
        .await;
        // Popped only now, because a call that is dropped while it waits must leave the operation
        // in the list.
        self.in_flight -= self.flights.pop_front().map_or(0, |flight| flight.bytes);
        match (buffer, &mut self.staged) {
            (Memory::Plain(buffer), _) => self.keep(buffer),
            (Memory::Aligned(buffer), Some(staged)) => staged.take_back(buffer),
            (Memory::Aligned(_), None) | (Memory::None, _) => {}
        }
        result.inspect_err(|e| {
            let failure = Failure::of(&e.source);
            self.failed.get_or_insert(Failed { op: e.op, offset: e.offset, failure });
        })
    }

    /// Starts writeback of the bytes written since the last time, if they amount to `sync_every`.
    fn begin_write_behind(&mut self) {
        // All bytes before the first operation in flight are written.
        let landed = self.size - self.in_flight as u64;
        let (from, every) = (self.range_synced, self.options.sync_every);
        if every > 0 && !self.is_direct() && landed - from >= every {
            self.range_synced = landed;
            let strict = self.options.strict;
            self.start(0, move |file| (file.sync_range(from, landed - from, strict), Memory::None));
        }
    }

    /// Returns the offset and length of the next range to reserve, if the appended bytes exceed the
    /// last one.
    fn next_reservation(&mut self) -> Option<(u64, u64)> {
        let step = self.options.reserve;
        if step == 0 || self.size <= self.reserved {
            return None;
        }
        let from = self.reserved;
        self.reserved = self.size.next_multiple_of(step);
        Some((from, self.reserved - from))
    }
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileWriter({}, {} bytes, {} in flight)", self.path().display(), self.size, self.in_flight)
    }
}
