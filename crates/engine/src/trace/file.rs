//! Records of a trace in a file.
//!
//! In: records, whole, one behind the other. Out: the same. Every call may block. The file is not
//! synced: a trace is not what anybody's data depends on.

use karst_base::error::{Error, Result};
use karst_base::trace::TraceWriter;
use karst_format::trace::{PREFIX_BYTES, Prefix};
use karst_io::{Env, OpenOptions, RandomAccessFile, WritableFile, block_on, read};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are written at once, and read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes the records of a trace to a file.
#[derive(Debug)]
pub struct FileTraceWriter {
    file: Box<dyn WritableFile>,
    buffer: Vec<u8>,
}

impl FileTraceWriter {
    /// Makes the file, or cuts what is there to nothing. Blocks.
    ///
    /// # Errors
    /// It cannot be made.
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

/// Where the records of a trace come from. Called on threads that may block, one call at a time.
pub trait TraceReader: Send {
    /// The next record, its prefix included; `None` behind the last.
    ///
    /// # Errors
    /// It cannot be read, or is cut off.
    fn read(&mut self) -> Result<Option<Vec<u8>>>;

    /// Goes back to the first record.
    ///
    /// # Errors
    /// That is not to be had again.
    fn reset(&mut self) -> Result<()>;
}

/// Reads the records of a trace from a file.
#[derive(Debug)]
pub struct FileTraceReader {
    env: Env,
    file: Arc<dyn RandomAccessFile>,
    /// Bytes of the file from some place on, and where in them the next record begins.
    chunk: Vec<u8>,
    position: usize,
    /// Where in the file the chunk ends.
    end: u64,
}

impl FileTraceReader {
    /// Opens the file. Blocks.
    ///
    /// # Errors
    /// It is not there, or cannot be opened.
    pub fn open(env: &Env, path: impl AsRef<Path>) -> Result<Self> {
        let file = env.fs().open_random(path.as_ref(), OpenOptions::BUFFERED)?;
        Ok(Self { env: env.clone(), file, chunk: Vec::new(), position: 0, end: 0 })
    }

    /// What is in hand from the next record on.
    fn rest(&self) -> &[u8] {
        &self.chunk[self.position..]
    }

    /// Has `wanted` bytes in hand from the next record on, or all that the file has.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.rest().len() >= wanted {
            return Ok(());
        }
        self.chunk.drain(..self.position);
        self.position = 0;
        while self.chunk.len() < wanted {
            // Why no more at once, whatever a prefix says: memory is bounded by what the file has.
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
