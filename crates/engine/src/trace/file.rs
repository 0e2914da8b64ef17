//! Trace records in a file.
//!
//! In: complete records, appended in order. Out: the records in that order. Every call may block.
//! The file is not synced, because no data depends on a trace.

use karst_base::error::{Error, Result};
use karst_base::trace::TraceWriter;
use karst_format::trace::{PREFIX_BYTES, Prefix};
use karst_io::{Env, OpenOptions, RandomAccessFile, WritableFile, block_on, read};
use std::path::Path;
use std::sync::Arc;

/// Bytes per write and per read.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes the records of a trace to a file.
#[derive(Debug)]
pub struct FileTraceWriter {
    file: Box<dyn WritableFile>,
    buffer: Vec<u8>,
}

impl FileTraceWriter {
    /// Creates the file, or truncates an existing one. Blocks.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(env: &Env, path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { file: env.fs().create(path.as_ref())?, buffer: Vec::new() })
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl TraceWriter for FileTraceWriter {
    fn write(&mut self, record: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(record);
        if self.buffer.len() < CHUNK_BYTES { Ok(()) } else { self.flush() }
    }

    fn close(&mut self) -> Result<()> {
        self.flush()
    }
}

/// A source of trace records. Called on threads that may block, one call at a time.
pub trait TraceReader: Send {
    /// Returns the next record, including its prefix; `None` after the last.
    ///
    /// # Errors
    /// The record cannot be read, or is truncated.
    fn read(&mut self) -> Result<Option<Vec<u8>>>;

    /// Returns to the first record.
    ///
    /// # Errors
    /// The records cannot be read again.
    fn reset(&mut self) -> Result<()>;
}

/// Reads the records of a trace from a file.
#[derive(Debug)]
pub struct FileTraceReader {
    env: Env,
    file: Arc<dyn RandomAccessFile>,
    /// Buffered bytes of the file, and the offset of the next record in them.
    chunk: Vec<u8>,
    position: usize,
    /// File offset of the end of the buffered bytes.
    end: u64,
}

impl FileTraceReader {
    /// Opens the file. Blocks.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened.
    pub fn open(env: &Env, path: impl AsRef<Path>) -> Result<Self> {
        let file = env.fs().open_random(path.as_ref(), OpenOptions::BUFFERED)?;
        Ok(Self { env: env.clone(), file, chunk: Vec::new(), position: 0, end: 0 })
    }

    /// Returns the buffered bytes from the next record on.
    fn rest(&self) -> &[u8] {
        &self.chunk[self.position..]
    }

    /// Reads until `wanted` bytes from the next record on are buffered, or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.rest().len() >= wanted {
            return Ok(());
        }
        self.chunk.drain(..self.position);
        self.position = 0;
        while self.chunk.len() < wanted {
            // One chunk at a time regardless of the prefix, so that the file's size bounds memory.
            let got = block_on(&self.env, read(&self.env, &self.file, self.end, CHUNK_BYTES))?;
            self.chunk.extend_from_slice(&got);
            self.end += got.len() as u64;
            if got.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl TraceReader for FileTraceReader {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        self.fill(PREFIX_BYTES)?;
        if self.rest().is_empty() {
            return Ok(None);
        }
        let mut wanted = PREFIX_BYTES;
        if let Some(prefix) = self.rest().first_chunk() {
            wanted += Prefix::decode(*prefix).payload_bytes as usize;
            self.fill(wanted)?;
        }
        let Some(record) = self.rest().get(..wanted).map(<[u8]>::to_vec) else {
            let offset = self.end - self.rest().len() as u64;
            return Err(Error::corruption_at(self.file.path(), offset, "a record of a trace is cut off"));
        };
        self.position += wanted;
        Ok(Some(record))
    }

    fn reset(&mut self) -> Result<()> {
        (self.position, self.end) = (0, 0);
        self.chunk.clear();
        Ok(())
    }
}
