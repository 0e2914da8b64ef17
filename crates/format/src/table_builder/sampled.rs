//! How well the data of a table would compress, whatever it is compressed with
//! (`sample_for_compression`).
//!
//! In: data blocks as they are closed. Out: about how many bytes all of them would take if they
//! were compressed fast, and if they were compressed slowly.
//!
//! Compat: the fast way is LZ4, or Snappy where that is not built in; the slow one is ZSTD or zlib.
//! RocksDB draws lots for each block; here it is each so-manieth, since equal input makes equal
//! files.

use super::saves_enough;
use crate::compression::{self, CompressionType};
use crate::handle::BLOCK_TRAILER_BYTES;

/// What the samples came to so far.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    blocks: u64,
    raw_bytes: u64,
    /// Of the blocks that were sampled: as they are, compressed fast and slowly.
    sampled_bytes: u64,
    fast_bytes: u64,
    slow_bytes: u64,
}

const FAST: [CompressionType; 2] = [CompressionType::Lz4, CompressionType::Snappy];
const SLOW: [CompressionType; 2] = [CompressionType::Zstd, CompressionType::Zlib];

impl Sampled {
    /// Takes in a block, and compresses it if it is the next of `one_in`; 0 for none.
    pub(super) fn note(&mut self, one_in: u64, contents: &[u8]) {
        if one_in == 0 {
            return;
        }
        let is_sample = self.blocks.is_multiple_of(one_in);
        self.blocks += 1;
        self.raw_bytes += contents.len() as u64;
        if is_sample {
            self.sampled_bytes += contents.len() as u64;
            self.fast_bytes += stored_bytes(&FAST, contents);
            self.slow_bytes += stored_bytes(&SLOW, contents);
        }
    }

    /// About what all data would take, trailers included: fast, slow.
    pub(super) fn estimates(&self) -> (u64, u64) {
        let trailers = self.blocks * BLOCK_TRAILER_BYTES as u64;
        let all = |stored: u64| {
            let part = if self.sampled_bytes == 0 { 1.0 } else { stored as f64 / self.sampled_bytes as f64 };
            (part * self.raw_bytes as f64 + trailers as f64 + 0.5) as u64
        };
        (all(self.fast_bytes), all(self.slow_bytes))
    }
}

/// How many bytes a block would be stored in.
fn stored_bytes(ways: &[CompressionType], contents: &[u8]) -> u64 {
    let Some(way) = ways.iter().find(|way| way.check_built_in().is_ok()) else {
        return contents.len() as u64;
    };
    let mut compressed = Vec::new();
    compression::compress_into(*way, None, contents, None, &mut compressed);
    let stored = if saves_enough(contents, compressed.len()) { compressed.len() } else { contents.len() };
    stored as u64
}
