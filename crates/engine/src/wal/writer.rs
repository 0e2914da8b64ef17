//! Log files as they are written.
//!
//! In: options, a number and a directory for a new log; bytes that were framed in order. Out: a file that holds them, durable when asked.
//!
//! The two halves of a log live in two places: its framing ([`LogFraming`]) under the lock that orders writes, since a record's place in its block depends on all before
//! it; its file ([`LogFile`]) with the leader that writes. [`NewLog`] is both, made before anyone needs it, so that nobody waits for `open(2)`.
//!
//! Invariants:
//! - All bytes of a framing reach its file, in order, or the file is never written again.
//! - A log is durable only once its name is: the first sync of a file syncs its directory too.

use crate::error::{Error, ErrorKind, Result};
use crate::options::DbOptions;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::{LogWriter, Predecessor};
use karst_io::{FileSystem, PositionalFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why not RocksDB's, which reserves the size of a memtable at once: a small database shall not hold space that it never uses.
const RESERVE_BYTES: u64 = 4 << 20;

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Every record carries the log's number (`recycle_log_file_num` above 0).
    pub(crate) recyclable: bool,
    /// Records are compressed (`wal_compression`).
    pub(crate) zstd: bool,
    /// Each log says what the one before it was (`track_and_verify_wals`).
    pub(crate) names_predecessor: bool,
    /// Bytes of space to reserve at a time (`allow_fallocate`); 0 for none.
    pub(crate) reserve_bytes: u64,
    /// Bytes after which what was written starts to travel to the device (`wal_bytes_per_sync`); 0 for never.
    pub(crate) bytes_per_sync: u64,
}

impl LogOptions {
    /// What the database's options say.
    ///
    /// # Errors
    /// The compression is none that a log can have.
    pub(crate) fn of(options: &DbOptions) -> Result<LogOptions> {
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
            reserve_bytes: if options.allow_fallocate { RESERVE_BYTES } else { 0 },
            bytes_per_sync: options.wal_bytes_per_sync,
        })
    }
}

/// The framing half of a log.
#[derive(Debug)]
pub(crate) struct LogFraming {
    number: FileNumber,
    writer: LogWriter,
    names_predecessor: bool,
    /// Bytes framed so far.
    bytes: u64,
    /// The sequence number that the last record starts with; 0 if there is none.
    last_seq: SeqNo,
}

impl LogFraming {
    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    /// Bytes framed so far: the size of the file once all of them are written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no record was framed yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_seq == SeqNo::ZERO
    }

    /// Frames one record: a batch in two parts, the first of which has its sequence number.
    ///
    /// # Errors
    /// Compression failed; nothing was framed.
    pub(crate) fn append(
        &mut self,
        seq: SeqNo,
        head: &[u8],
        tail: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), std::io::Error> {
        let before = out.len();
        self.writer.append_parts(head, tail, out)?;
        self.bytes += (out.len() - before) as u64;
        self.last_seq = seq;
        Ok(())
    }

    /// Says what the log before was, where that is wanted. Comes before the first record.
    pub(crate) fn follow(&mut self, before: &LogFraming, out: &mut Vec<u8>) {
        if self.names_predecessor {
            let predecessor =
                Predecessor { log: before.number, size_bytes: before.bytes, last_seq: before.last_seq };
            let start = out.len();
            self.writer.append_predecessor(&predecessor, out);
            self.bytes += (out.len() - start) as u64;
        }
    }
}

/// The file half of a log.
#[derive(Debug)]
pub(crate) struct LogFile {
    number: FileNumber,
    file: Arc<dyn PositionalFile>,
    file_system: Arc<dyn FileSystem>,
    directory: PathBuf,
    size: u64,
    /// Bytes reserved, and how many to reserve at a time; 0 for none.
    reserved: u64,
    reserve_bytes: u64,
    /// Bytes that were told to travel to the device, and after how many more they are told again; 0 for never.
    started: u64,
    bytes_per_sync: u64,
    /// Whether its name is durable.
    named: bool,
    /// Whether it has bytes that may not be durable.
    unsynced: bool,
}

impl LogFile {
    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    /// Bytes in the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether bytes were written since the last sync.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Whether all that was written is durable, and the name too. Not so for a log into which nothing was written.
    pub(crate) fn is_durable(&self) -> bool {
        !self.unsynced && self.named
    }

    /// Appends. The bytes have left the process when this returns. Blocks.
    ///
    /// # Errors
    /// The write failed; the file must not be written again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = self.size + bytes.len() as u64;
        if self.reserve_bytes > 0 && end > self.reserved {
            let more = (end - self.reserved).next_multiple_of(self.reserve_bytes);
            // Why ignored: space that cannot be reserved may still be there; the write will tell.
            let _ = self.file.reserve(self.reserved, more);
            self.reserved += more;
        }
        self.unsynced = true;
        self.file.write_at(self.size, bytes)?;
        self.size = end;
        if self.bytes_per_sync > 0 && end - self.started >= self.bytes_per_sync {
            self.file.sync_range(self.started, end - self.started)?;
            self.started = end;
        }
        Ok(())
    }

    /// Ends a log that takes no more writes: gives back what was reserved and not used. Blocks.
    pub(crate) fn end(&mut self) {
        if self.reserved > self.size {
            // Why ignored: nothing is lost but space, and that only until the log is removed.
            let _ = self.file.truncate(self.size);
            self.reserved = self.size;
        }
    }

    /// Makes what was appended durable, and the file's name. Blocks.
    ///
    /// # Errors
    /// The sync failed; the file must not be written again.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.unsynced {
            self.file.sync()?;
            self.unsynced = false;
        }
        if !self.named {
            self.file_system.sync_dir(&self.directory)?;
            self.named = true;
        }
        Ok(())
    }
}

/// A log that was made and not used yet.
#[derive(Debug)]
pub(crate) struct NewLog {
    pub(crate) framing: LogFraming,
    pub(crate) file: LogFile,
    /// Bytes that are framed and not in the file.
    pub(crate) head: Vec<u8>,
}

impl NewLog {
    /// Makes the file of log `number` in `directory`. Blocks.
    ///
    /// # Errors
    /// The file cannot be created, or a file of that name has something in it.
    pub(crate) fn create(
        file_system: &Arc<dyn FileSystem>,
        directory: &Path,
        number: FileNumber,
        options: LogOptions,
    ) -> Result<NewLog> {
        let path = directory.join(FileName::Wal(number).to_string());
        // Why: `create` would cut a log that someone may still need to nothing.
        match file_system.metadata(&path) {
            Ok(found) if found.len > 0 => {
                let text =
                    format!("{}: a log of {} bytes is in the way of a new one", path.display(), found.len);
                return Err(Error::new(ErrorKind::Corruption, text));
            }
            Ok(_) => {}
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(Error::from(e).in_context("creating a log")),
        }
        let file =
            file_system.create_positional(&path).map_err(|e| Error::from(e).in_context("creating a log"))?;
        let mut head = Vec::new();
        let mut writer = LogWriter::new(number, options.recyclable);
        if options.zstd {
            let set_up = writer.compress_with_zstd(&mut head);
            set_up.map_err(|e| {
                let text = format!("{}: setting up compression: {e}", path.display());
                Error::with_source(ErrorKind::Io, text, e)
            })?;
        }
        let framing = LogFraming {
            number,
            writer,
            names_predecessor: options.names_predecessor,
            bytes: head.len() as u64,
            last_seq: SeqNo::ZERO,
        };
        let file = LogFile {
            number,
            file,
            file_system: file_system.clone(),
            directory: directory.to_owned(),
            size: 0,
            reserved: 0,
            reserve_bytes: options.reserve_bytes,
            started: 0,
            bytes_per_sync: options.bytes_per_sync,
            named: false,
            unsynced: false,
        };
        Ok(NewLog { framing, file, head })
    }
}
