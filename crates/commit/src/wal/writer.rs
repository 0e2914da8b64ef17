//! Writing of log files.
//!
//! A new log is created in a directory, possibly over the file of a retired log. Framed bytes are
//! appended in order, and made durable when asked.
//!
//! The two halves of a log are separate: its framing ([`LogFraming`]) is under the order lock,
//! because a record's place in its block depends on all before it; its file ([`LogFile`]) belongs
//! to the leader that writes. [`NewLog`] is both, created ahead of need, so that no writer waits
//! for `open(2)`.
//!
//! Invariants:
//! - All bytes of a framing reach its file, in order, or the file is never written again.
//! - A log is durable only once its name is: the first sync of a file syncs its directory too.
//! - A recycled file is truncated at its log's end before the next log has a byte, so only the
//!   newest log can have records of an older one after its end.

use super::log_chain::Follows;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::DbOptions;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::{LogWriter, Predecessor, TimestampSize};
use karst_io::{
    Env, FileSystem, MAP_ALIGNMENT, MappedRange, PositionalFile, WriteBackend, reserve_space, sync_file,
    write_at,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a log that are mapped at a time. A compromise: each mapping costs some microseconds in
/// addition to its pages, and all its pages are allocated before the first write to it.
const MAPPED_BYTES: u64 = 4 * MAP_ALIGNMENT;

/// Options of new logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Every record carries the log's number (`recycle_log_file_num` above 0).
    pub recyclable: bool,
    /// Records are compressed with zstd (`wal_compression`).
    pub zstd: bool,
    /// Each log begins with RocksDB's record of its predecessor (`track_and_verify_wals`).
    pub names_predecessor: bool,
    /// Space is reserved ahead of the writes (`allow_fallocate`).
    pub reserves: bool,
    /// Bytes of space to reserve at a time: a log's size when its memtables are full. See
    /// [`reserve_bytes`].
    pub reserve_bytes: u64,
    /// Bytes after which writeback of written bytes is started (`wal_bytes_per_sync`); 0: never.
    pub bytes_per_sync: u64,
    /// Starting a writeback waits for the previous one (`strict_bytes_per_sync`).
    pub strict: bool,
    /// Logs are synced with `fsync` (`use_fsync`).
    pub fsync: bool,
    /// Files are written through a memory map (`allow_mmap_writes`).
    pub mapped: bool,
}

impl LogOptions {
    /// Returns the log options of the database's options.
    ///
    /// # Errors
    /// `NotSupported`: a compression other than zstd.
    pub fn of(options: &DbOptions) -> Result<LogOptions> {
        let zstd = match options.wal_compression.name() {
            "kNoCompression" => false,
            "kZSTD" => true,
            other => {
                let text = format!("wal_compression={other}: logs are compressed with kZSTD or not at all");
                return Err(Error::not_supported(text));
            }
        };
        Ok(LogOptions {
            recyclable: options.recycle_log_file_num > 0,
            zstd,
            names_predecessor: options.track_and_verify_wals,
            reserves: options.allow_fallocate,
            reserve_bytes: 0,
            bytes_per_sync: options.wal_bytes_per_sync,
            strict: options.strict_bytes_per_sync,
            fsync: options.use_fsync,
            mapped: options.allow_mmap_writes,
        })
    }

    /// Sets the bytes to reserve at a time, if space is reserved at all.
    pub fn reserving(self, bytes: u64) -> LogOptions {
        LogOptions { reserve_bytes: if self.reserves { bytes } else { 0 }, ..self }
    }
}

/// Returns the bytes to reserve for a log: a memtable and a tenth, but no more than the limit of
/// all logs or of all memtables (0: no such limit).
///
/// Compat: RocksDB's formula, with the largest memtable for that of the family that asked for the
/// log.
pub fn reserve_bytes(largest_memtable: usize, all_logs: u64, all_memtables: usize) -> u64 {
    let one = (largest_memtable as u64).saturating_add(largest_memtable as u64 / 10);
    [all_logs, all_memtables as u64].into_iter().filter(|limit| *limit > 0).fold(one, u64::min)
}

/// The framing half of a log.
#[derive(Debug)]
pub struct LogFraming {
    number: FileNumber,
    writer: LogWriter,
    names_predecessor: bool,
    /// Bytes framed so far.
    bytes: u64,
    /// First sequence number of the last record; 0 if no record was framed.
    last_seq: SeqNo,
    /// Sequence number after the last record; 0 if no record was framed.
    end_seq: SeqNo,
}

impl LogFraming {
    /// Returns the log's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Returns the bytes framed so far: the size of the file once all are written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if no record was framed yet.
    pub fn is_empty(&self) -> bool {
        self.last_seq == SeqNo::ZERO
    }

    /// Frames one record of `bytes` bytes, which `put` appends: a batch with the sequence number
    /// `seq` that takes `count` of them.
    ///
    /// # Errors
    /// Compression failed; no record was framed.
    #[inline]
    pub fn append(
        &mut self,
        seq: SeqNo,
        count: u32,
        (bytes, put): (usize, impl FnOnce(&mut Vec<u8>)),
        out: &mut Vec<u8>,
    ) -> Result<(), std::io::Error> {
        let before = out.len();
        self.writer.append_with(bytes, put, out)?;
        self.bytes += (out.len() - before) as u64;
        self.last_seq = seq;
        self.end_seq = SeqNo(seq.0 + u64::from(count));
        Ok(())
    }

    /// Frames the timestamp sizes of column families that this log has not named yet. Comes before
    /// the first record with such keys.
    pub fn name_timestamps(&mut self, sizes: &[TimestampSize], out: &mut Vec<u8>) {
        let start = out.len();
        self.writer.append_timestamp_sizes(sizes, out);
        self.bytes += (out.len() - start) as u64;
    }

    /// Frames the record about the predecessor. Comes before the first record, which will have the
    /// sequence number `next_seq`.
    ///
    /// # Errors
    /// Compression failed.
    pub fn follow(
        &mut self,
        before: &LogFraming,
        next_seq: SeqNo,
        out: &mut Vec<u8>,
    ) -> Result<(), std::io::Error> {
        let start = out.len();
        if self.names_predecessor {
            let predecessor =
                Predecessor { log: before.number, size_bytes: before.bytes, last_seq: before.last_seq };
            self.writer.append_predecessor(&predecessor, out);
        } else {
            let follows = Follows { log: before.number, end: before.end_seq, size_bytes: Some(before.bytes) };
            self.writer.append(follows.batch(next_seq).as_bytes(), out)?;
            self.end_seq = next_seq;
        }
        self.bytes += (out.len() - start) as u64;
        Ok(())
    }
}

/// A mapped stretch of a log, and its end offset.
#[derive(Debug)]
struct Stretch {
    range: Box<dyn MappedRange>,
    end: u64,
}

/// The file half of a log.
#[derive(Debug)]
pub struct LogFile {
    number: FileNumber,
    file: Arc<dyn PositionalFile>,
    file_system: Arc<dyn FileSystem>,
    directory: PathBuf,
    size: u64,
    /// Bytes in the file, including those of its former life.
    file_bytes: u64,
    /// Bytes reserved, and bytes to reserve at a time (0: none).
    reserved: u64,
    reserve_bytes: u64,
    /// Offset up to which writeback was started, and the bytes after which it is started again (0:
    /// never).
    started: u64,
    bytes_per_sync: u64,
    strict: bool,
    fsync: bool,
    /// The mapped stretch that is written next.
    stretch: Option<Stretch>,
    /// True if stretches are mapped.
    mapped: bool,
    /// True if its name is durable.
    named: bool,
    /// True if it has bytes that may not be durable.
    unsynced: bool,
}

impl LogFile {
    /// Returns the log's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Returns the bytes written.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns true if bytes were written or truncated since the last sync.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Returns true if all written bytes and the name are durable. False for a log that was never
    /// written.
    pub fn is_durable(&self) -> bool {
        !self.unsynced && self.named
    }

    /// Appends. The bytes have left the process when this returns. Blocks.
    ///
    /// # Errors
    /// The write failed; the file must not be written again.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.size + bytes.len() as u64;
        if let Some((offset, more)) = self.lacks_space(end) {
            // Ignored, because the space may still be available; the write will tell.
            let _ = self.file.reserve(offset, more);
            self.reserved += more;
        }
        self.unsynced = true;
        if !self.put(bytes) {
            self.file.write_at(self.size, bytes)?;
        }
        self.has_grown(end);
        if self.starts_writeback(end) {
            self.file.sync_range(self.started, end - self.started, self.strict)?;
            self.started = end;
        }
        Ok(())
    }

    /// Appends on the channel of the calling task. The bytes have left the process when this
    /// returns. The caller has checked [`suits_tasks`](Self::suits_tasks).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub(crate) async fn write_async(&mut self, env: &Env, bytes: &Arc<Vec<u8>>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.size + bytes.len() as u64;
        if let Some((offset, more)) = self.lacks_space(end) {
            // Ignored, because the space may still be available; the write will tell.
            let _ = reserve_space(env, &self.file, offset, more).await;
            self.reserved += more;
        }
        self.unsynced = true;
        if !self.put(bytes) {
            write_at(env, &self.file, self.size, bytes.clone()).await?;
        }
        self.has_grown(end);
        Ok(())
    }

    /// Makes the appended bytes durable, on the channel of the calling task. The caller has checked
    /// [`suits_tasks`](Self::suits_tasks).
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub(crate) async fn sync_async(&mut self, env: &Env) -> Result<()> {
        debug_assert!(self.named, "the name was synced before");
        if self.unsynced {
            sync_file(env, &self.file, self.fsync).await?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Returns true if a task can append `bytes` bytes, and with `sync` make them durable, without
    /// a call that may block for long: the file's calls do no more than the operating system's, no
    /// writeback is started, and no directory is synced.
    pub(crate) fn suits_tasks(&self, bytes: u64, sync: bool) -> bool {
        !self.starts_writeback(self.size + bytes) && (self.named || !sync) && !self.has_blocking_calls_only()
    }

    /// Returns true if no task can append.
    pub(crate) fn has_blocking_calls_only(&self) -> bool {
        matches!(self.file.backend(), WriteBackend::Blocking)
    }

    /// Returns the space to reserve before the file grows to `end`: its offset and length.
    pub(crate) fn lacks_space(&self, end: u64) -> Option<(u64, u64)> {
        let lacks = self.reserve_bytes > 0 && end > self.reserved;
        lacks.then(|| (self.reserved, (end - self.reserved).next_multiple_of(self.reserve_bytes)))
    }

    /// Returns true if writeback is started when the file has grown to `end`.
    fn starts_writeback(&self, end: u64) -> bool {
        self.bytes_per_sync > 0 && end - self.started >= self.bytes_per_sync
    }

    /// Records that all bytes up to `end` are written.
    fn has_grown(&mut self, end: u64) {
        self.size = end;
        self.file_bytes = self.file_bytes.max(end);
    }

    /// Appends `bytes` through the memory map; returns false if they must be written by a call.
    /// Blocks at most for new pages.
    fn put(&mut self, bytes: &[u8]) -> bool {
        // A large write is as cheap by a call.
        if !self.mapped || bytes.len() as u64 > MAPPED_BYTES / 4 {
            return false;
        }
        let (mut at, mut left) = (self.size, bytes);
        loop {
            // A write by a call may have gone beyond the stretch.
            if let Some(stretch) = self.stretch.as_mut().filter(|stretch| at < stretch.end) {
                let room = (stretch.end - at).min(left.len() as u64) as usize;
                stretch.range.put(at, &left[..room]);
                (at, left) = (at + room as u64, &left[room..]);
            }
            if left.is_empty() {
                return true;
            }
            let start = at - at % MAP_ALIGNMENT;
            let Some(range) = self.file.map(start, MAPPED_BYTES as usize) else {
                // Disabled for good, because asking on each write would cost more than the map
                // could save.
                (self.mapped, self.stretch) = (false, None);
                return false;
            };
            let end = start + MAPPED_BYTES;
            self.stretch = Some(Stretch { range, end });
            self.file_bytes = self.file_bytes.max(end);
        }
    }

    /// Ends a log that takes no more writes: truncates the rest of the file's former life, or of
    /// the map. Blocks.
    ///
    /// # Errors
    /// The file could not be truncated: later logs may not be recovered.
    pub fn end(&mut self) -> Result<()> {
        self.stretch = None;
        if self.file_bytes > self.size {
            self.file.truncate(self.size)?;
            (self.file_bytes, self.reserved) = (self.size, self.size);
            self.unsynced = true;
        }
        Ok(())
    }

    /// Returns a function that releases the unused space of an ended log, if there is some. It may
    /// run at any time, on any thread; it blocks.
    pub fn unused_space(&self) -> Option<impl FnOnce() + Send + 'static> {
        let (file, size) = (self.file.clone(), self.size);
        // Ignored, because only space is lost, until the log is removed.
        (self.reserved > self.size).then_some(move || drop(file.truncate(size)))
    }

    /// Makes the appended bytes and the file's name durable. Blocks.
    ///
    /// # Errors
    /// The sync failed; the file must not be written again.
    pub fn sync(&mut self) -> Result<()> {
        if self.unsynced {
            if self.fsync { self.file.sync_all() } else { self.file.sync() }?;
            self.unsynced = false;
        }
        if !self.named {
            self.file_system.sync_dir(&self.directory)?;
            self.named = true;
        }
        Ok(())
    }
}

/// A log that was created and not used yet.
#[derive(Debug)]
pub struct NewLog {
    /// Framing, for the order lock.
    pub framing: LogFraming,
    /// File, for the leader.
    pub file: LogFile,
    /// Bytes that are framed and not in the file yet.
    pub head: Vec<u8>,
}

impl NewLog {
    /// Creates the file of log `number` in `directory`. Blocks.
    ///
    /// # Errors
    /// The file cannot be created, or a file of that name is not empty.
    pub fn create(
        file_system: &Arc<dyn FileSystem>,
        directory: &Path,
        number: FileNumber,
        options: LogOptions,
    ) -> Result<NewLog> {
        let path = free_path(file_system.as_ref(), directory, number)?;
        let file = file_system.create_positional(&path).map_err(creating)?;
        NewLog::over((file_system.clone(), file, directory.to_owned()), 0, number, options)
    }

    /// Turns the file of `old`, which is no longer needed nor open for writing, into that of log
    /// `number`. Blocks.
    ///
    /// # Errors
    /// The file cannot be renamed or opened, or a file of the new name is not empty.
    pub fn reuse(
        file_system: &Arc<dyn FileSystem>,
        directory: &Path,
        old: FileNumber,
        number: FileNumber,
        options: LogOptions,
    ) -> Result<NewLog> {
        let path = free_path(file_system.as_ref(), directory, number)?;
        let old = directory.join(FileName::Wal(old).to_string());
        file_system.rename(&old, &path).map_err(creating)?;
        let file_bytes = file_system.metadata(&path).map_err(creating)?.len;
        let file = file_system.open_positional(&path).map_err(creating)?;
        NewLog::over((file_system.clone(), file, directory.to_owned()), file_bytes, number, options)
    }

    /// Creates a log at the start of a file of `file_bytes` bytes.
    fn over(
        (file_system, file, directory): (Arc<dyn FileSystem>, Arc<dyn PositionalFile>, PathBuf),
        file_bytes: u64,
        number: FileNumber,
        options: LogOptions,
    ) -> Result<NewLog> {
        let mut head = Vec::new();
        let mut writer = LogWriter::new(number, options.recyclable);
        if options.zstd {
            let set_up = writer.compress_with_zstd(&mut head);
            set_up.map_err(|e| {
                let text = format!("{}: setting up compression: {e}", file.path().display());
                Error::with_source(ErrorKind::Io, text, e)
            })?;
        }
        let framing = LogFraming {
            number,
            writer,
            names_predecessor: options.names_predecessor,
            bytes: head.len() as u64,
            last_seq: SeqNo::ZERO,
            end_seq: SeqNo::ZERO,
        };
        // Reserved now, because no writer waits for the log yet.
        if options.reserve_bytes > file_bytes {
            // Ignored, because the space may still be available; the write will tell.
            let _ = file.reserve(file_bytes, options.reserve_bytes - file_bytes);
        }
        let file = LogFile {
            number,
            file,
            file_system,
            directory,
            size: 0,
            file_bytes,
            reserved: file_bytes.max(options.reserve_bytes),
            reserve_bytes: options.reserve_bytes,
            started: 0,
            bytes_per_sync: options.bytes_per_sync,
            strict: options.strict,
            fsync: options.fsync,
            stretch: None,
            // A recycled file is not mapped, because its pages would first have to be read.
            mapped: options.mapped && file_bytes == 0,
            named: false,
            unsynced: false,
        };
        Ok(NewLog { framing, file, head })
    }
}

fn creating(e: karst_io::Error) -> Error {
    Error::from(e).in_context("creating a log")
}

/// Returns the path of log `number`, and fails if a file with contents is there.
fn free_path(file_system: &dyn FileSystem, directory: &Path, number: FileNumber) -> Result<PathBuf> {
    let path = directory.join(FileName::Wal(number).to_string());
    match file_system.metadata(&path) {
        // Creating the file would destroy this one.
        Ok(found) if found.len > 0 => {
            let text = format!("{}: a log of {} bytes is in the way of a new one", path.display(), found.len);
            Err(Error::new(ErrorKind::Corruption, text))
        }
        Ok(_) => Ok(path),
        Err(e) if e.is_not_found() => Ok(path),
        Err(e) => Err(creating(e)),
    }
}
