//! Writing a file from async code, behind the writer's back: [`FileWriter`].
//!
//! What is appended is written while the writer prepares what comes next: up to
//! [`WriterOptions::window`] bytes are in flight, and `append` waits only when there are more. Each
//! buffer belongs to its write until that has ended, whatever becomes of the future or the writer;
//! then it can be used again ([`FileWriter::buffer`]).
//!
//! In: buffers, in order. Out: a file with their bytes, one after the other. Invariants: writes may
//! end in any order, so only after [`FileWriter::flush`] are all bytes up to [`FileWriter::size`]
//! in the file, and only after [`FileWriter::sync`] are they durable; after a failure every call
//! fails, with that failure: the file has a hole.
//!
//! A file that bypasses the page cache is written in whole units from aligned memory.
//! [`FileWriter::flush`] writes what is left padded with zeros and cuts the file behind it; what is
//! appended then writes that unit again. Until a flush has succeeded the file may be longer than
//! what was appended, as nobody relies on it before it is synced. Callers: flush, compaction and
//! whoever else writes files that are not logs.

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

/// Buffers kept to be used again.
const SPARE_AT_MOST: usize = 4;

/// How a [`FileWriter`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Bytes in flight at most, before `append` waits; a single buffer may be larger. Default: 4
    /// MiB.
    pub window: usize,
    /// After every so many bytes have the operating system begin to write them to the device
    /// (`bytes_per_sync`), so that the sync at the end finds little left; 0: leave that to it.
    /// Default: 0.
    pub sync_every: u64,
    /// Have it wait then for what it began with before (`strict_bytes_per_sync`), so that the
    /// writer is held up rather than the sync at the end. Default: false.
    pub strict: bool,
    /// Sync with `fsync` rather than `fdatasync` (`use_fsync`). Default: false.
    pub fsync: bool,
    /// Reserve space in steps of so many bytes ahead of what is written, and give back what is left
    /// at the end; 0: do not. Default: 0.
    pub reserve: u64,
    /// Bypass the page cache, if the file system lets it; if it does not, that is said
    /// ([`Env::say_direct_refused`]) and the file written as others are. What is appended is copied
    /// into aligned memory once. `sync_every` has no effect then. Default: false.
    pub direct: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { window: 4 << 20, sync_every: 0, strict: false, fsync: false, reserve: 0, direct: false }
    }
}

/// A new file, written by async code. It may be moved between threads and executors.
///
/// Dropping it leaves the writes that are in flight to end by themselves; call
/// [`FileWriter::finish`] to know how they did.
#[must_use = "a file is whole only after `finish`"]
pub struct FileWriter {
    env: Env,
    file: Arc<dyn PositionalFile>,
    options: WriterOptions,
    size: u64,
    reserved: u64,
    /// Below it the operating system has been told to begin writing.
    range_synced: u64,
    flights: VecDeque<Flight>,
    in_flight: usize,
    spare: Vec<Vec<u8>>,
    /// Of a file that bypasses the page cache.
    staged: Option<Box<Staged>>,
    failed: Option<Failed>,
}

/// The end of a file that is written in whole units: what does not fill one yet.
///
/// Invariant: `bytes` are those of the file from `at`, a multiple of the unit, up to its size;
/// everything before was handed over.
struct Staged {
    bytes: AlignedBuffer,
    at: u64,
    unit: usize,
    /// It is in the file too, padded and cut off behind, as it is.
    written: bool,
    spare: Vec<AlignedBuffer>,
}

impl Staged {
    fn new(unit: usize) -> Self {
        Self { bytes: AlignedBuffer::new(unit, unit), at: 0, unit, written: true, spare: Vec::new() }
    }

    /// A buffer for so many bytes.
    fn buffer(&mut self, len: usize) -> AlignedBuffer {
        match self.spare.pop().filter(|buffer| buffer.capacity() >= len) {
            Some(buffer) => buffer,
            None => AlignedBuffer::new(self.unit, len.next_multiple_of(self.unit)),
        }
    }

    /// Adds bytes at the end. Returns the whole units that there are now, and where they belong.
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

    /// What is left, padded to a unit, if the file does not have it yet.
    fn rest(&mut self) -> Option<(u64, AlignedBuffer)> {
        if std::mem::replace(&mut self.written, true) || self.bytes.len() == 0 {
            return None;
        }
        let mut unit = self.buffer(self.unit);
        unit.extend(self.bytes.as_slice());
        unit.pad();
        Some((self.at, unit))
    }

    /// Whether there is a rest that was handed over.
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

/// What a write gives back when it has ended.
enum Memory {
    None,
    Plain(Vec<u8>),
    Aligned(AlignedBuffer),
}

/// One thing that is done to the file in the background.
struct Flight {
    bytes: usize,
    ends: Blocking<(Result<()>, Memory)>,
}

/// The first failure, kept for every later call.
struct Failed {
    op: &'static str,
    offset: Option<u64>,
    failure: Failure,
}

impl FileWriter {
    /// Create the file at `path`, or cut an existing one to nothing.
    ///
    /// # Errors
    /// It cannot be created.
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

    /// Whether it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.staged.is_some()
    }

    /// The path it was created at.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes appended so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// An empty buffer to fill and append: one whose write has ended, if there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Add `data` at the end. Waits only while more than the window is in flight; returns before
    /// `data` is written. If it is dropped while it waits, nothing has been added.
    ///
    /// # Errors
    /// This or an earlier write has failed. The file must not be used.
    pub async fn append(&mut self, data: Vec<u8>) -> Result<()> {
        self.look().await?;
        if data.is_empty() {
            return Ok(());
        }
        if self.staged.as_ref().is_some_and(|staged| staged.rest_is_written()) {
            // Why: a flush that was given up may still be writing it and cutting the file behind
            // it.
            self.land_all().await?;
        }
        while !self.flights.is_empty() && self.in_flight + data.len() > self.options.window {
            self.land_first().await?;
        }
        self.begin_write_behind();
        let (offset, len) = (self.size, data.len());
        self.size += len as u64;
        let reserve = self.next_reservation();
        let reserve =
            move |file: &dyn PositionalFile| reserve.map_or(Ok(()), |(from, len)| file.reserve(from, len));
        let Some(staged) = &mut self.staged else {
            self.start(len, move |file| {
                (reserve(file).and_then(|()| file.write_at(offset, &data)), Memory::Plain(data))
            });
            return Ok(());
        };
        let units = staged.add(&data);
        self.keep(data);
        if let Some((at, units)) = units {
            self.start(units.len(), move |file| {
                let written = reserve(file).and_then(|()| file.write_at(at, units.as_slice()));
                (written, Memory::Aligned(units))
            });
        }
        Ok(())
    }

    /// Keeps a buffer to be used again.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_AT_MOST {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Wait until everything appended has left the process.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn flush(&mut self) -> Result<()> {
        self.land_all().await?;
        let size = self.size;
        if let Some((at, unit)) = self.staged.as_mut().and_then(|staged| staged.rest()) {
            // Why only now: a write that ends behind the cut would make the file longer again.
            self.start(unit.len(), move |file| {
                (file.write_at(at, unit.as_slice()).and_then(|()| file.truncate(size)), Memory::Aligned(unit))
            });
            self.land_all().await?;
        }
        Ok(())
    }

    /// Wait until everything that was started has ended.
    async fn land_all(&mut self) -> Result<()> {
        self.look().await?;
        while !self.flights.is_empty() {
            self.land_first().await?;
        }
        Ok(())
    }

    /// Make everything appended, and the file's length, durable (`fdatasync`). Its name is durable
    /// once its directory is synced too.
    ///
    /// # Errors
    /// A write or the sync has failed; the file must not be trusted with more.
    pub async fn sync(&mut self) -> Result<()> {
        self.flush().await?;
        let fsync = self.options.fsync;
        self.start(0, move |file| (if fsync { file.sync_all() } else { file.sync() }, Memory::None));
        self.flush().await
    }

    /// Cut the file to `size` bytes; what is appended next comes after them. `size` may not be
    /// beyond its end.
    ///
    /// # Errors
    /// It could not be cut, or a write has failed.
    pub async fn truncate(&mut self, size: u64) -> Result<()> {
        self.flush().await?;
        if size > self.size {
            let e = io::Error::new(io::ErrorKind::InvalidInput, "a file is not made longer by cutting it");
            return Err(Error::at("truncate", self.path(), size, e));
        }
        if size < self.size && self.is_direct() {
            // Why buffered from here on: what is left of the last unit would have to be read to be
            // written again, and nobody cuts files that are written for long.
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

    /// Wait for all writes, give back reserved space, close the file. Returns its length in bytes.
    /// It is not durable by this alone: [`FileWriter::sync`] first.
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

    /// Take in what has ended, without waiting.
    ///
    /// # Errors
    /// Something has failed.
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

    /// Wait for the flight that started first.
    ///
    /// # Errors
    /// It has failed.
    async fn land_first(&mut self) -> Result<()> {
        let flights = &mut self.flights;
        let (result, buffer) = poll_fn(|cx| match flights.front_mut() {
            Some(flight) => Pin::new(&mut flight.ends).poll(cx),
            None => Poll::Ready((Ok(()), Memory::None)),
        })
        .await;
        // Only now, so that a call that is dropped while it waits leaves the flight where it is.
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

    /// Have the operating system begin with what has been written since the last time, if that is
    /// enough.
    fn begin_write_behind(&mut self) {
        // Everything before the first flight has landed.
        let landed = self.size - self.in_flight as u64;
        let (from, every) = (self.range_synced, self.options.sync_every);
        if every > 0 && !self.is_direct() && landed - from >= every {
            self.range_synced = landed;
            let strict = self.options.strict;
            self.start(0, move |file| (file.sync_range(from, landed - from, strict), Memory::None));
        }
    }

    /// The next stretch to reserve, if what has been appended goes beyond the last.
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
