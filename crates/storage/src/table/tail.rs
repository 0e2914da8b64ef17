//! The tail of a table file: metadata is written last, so one read of the tail returns most of the
//! data that opening needs.
//!
//! In: a file and an estimate of its tail's length. Out: blocks by handle; missing ones are read
//! all at once.

use crate::spans::{join_all, short};
use karst_base::error::Result;
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_io::{Env, RandomAccessFile, ReadBuf, ReadFuture};
use std::sync::Arc;

/// Parts of a file in memory.
pub(super) struct Tail {
    file: Arc<dyn RandomAccessFile>,
    parts: Vec<(u64, ReadBuf)>,
}

impl Tail {
    /// Reads the last `tail_bytes` of the file, or all of it if it is shorter.
    pub(super) async fn read(env: &Env, file: Arc<dyn RandomAccessFile>, tail_bytes: u64) -> Result<Tail> {
        let length = tail_bytes.min(file.size());
        let start = file.size() - length;
        let bytes = karst_io::read(env, &file, start, length as usize).await?;
        if bytes.len() as u64 != length {
            return Err(short(&file, start, length, bytes.len()));
        }
        Ok(Tail { file, parts: vec![(start, bytes)] })
    }

    /// Returns the last `length` bytes of the file, or all that was read of its end, with their
    /// offset.
    pub(super) fn end(&self, length: usize) -> (u64, &[u8]) {
        let (start, bytes) = &self.parts[0];
        let skipped = bytes.len().saturating_sub(length);
        (start + skipped as u64, &bytes[skipped..])
    }

    /// Returns block and trailer at `handle`, if they were read.
    pub(super) fn block(&self, handle: BlockHandle) -> Option<&[u8]> {
        let length = usize::try_from(handle.size).ok()?.checked_add(BLOCK_TRAILER_BYTES)?;
        self.parts.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(handle.offset.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        })
    }

    /// Reads the blocks of `handles` that are not in memory yet, all at the same time. The handles
    /// must lie inside the file.
    pub(super) async fn bring(&mut self, env: &Env, handles: &[BlockHandle]) -> Result<()> {
        let missing: Vec<BlockHandle> =
            handles.iter().copied().filter(|handle| self.block(*handle).is_none()).collect();
        let mut reads: Vec<ReadFuture> = missing
            .iter()
            .map(|handle| {
                karst_io::read(env, &self.file, handle.offset, handle.size as usize + BLOCK_TRAILER_BYTES)
            })
            .collect();
        let results = join_all(&mut reads).await;
        for (handle, result) in missing.into_iter().zip(results) {
            let (bytes, length) = (result?, handle.size + BLOCK_TRAILER_BYTES as u64);
            if bytes.len() as u64 != length {
                return Err(short(&self.file, handle.offset, length, bytes.len()));
            }
            self.parts.push((handle.offset, bytes));
        }
        Ok(())
    }
}
