//! Compressibility estimate: samples data blocks to estimate the table's size with a fast and a
//! slow algorithm, independently of the compression in use (`sample_for_compression`).
//!
//! In: data blocks as they are closed. Out: the approximate size in bytes of all of them under the
//! fast and under the slow algorithm.
//!
//! Compat: the fast algorithm is LZ4, or Snappy in builds without LZ4; the slow one is ZSTD or
//! zlib. RocksDB samples blocks at random; here each n-th block is sampled, because equal input
//! must produce equal files.

use super::saves_enough;
use crate::compression::{self, CompressionType};
use crate::handle::BLOCK_TRAILER_BYTES;

/// Sums over the blocks so far.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    blocks: u64,
    raw_bytes: u64,
    /// Bytes of the sampled blocks: uncompressed, compressed fast, compressed slowly.
    sampled_bytes: u64,
    fast_bytes: u64,
    slow_bytes: u64,
}

const FAST: [CompressionType; 2] = [CompressionType::Lz4, CompressionType::Snappy];
const SLOW: [CompressionType; 2] = [CompressionType::Zstd, CompressionType::Zlib];

impl Sampled {
    /// Counts a block, and samples it if it is the next of `one_in`; 0 samples none.
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

    /// Returns the approximate sizes of all data, trailers included: fast, slow.
    pub(super) fn estimates(&self) -> (u64, u64) {
        let trailers = self.blocks * BLOCK_TRAILER_BYTES as u64;
        let all = |stored: u64| {
            let part = if self.sampled_bytes == 0 { 1.0 } else { stored as f64 / self.sampled_bytes as f64 };
            (part * self.raw_bytes as f64 + trailers as f64 + 0.5) as u64
        };
        (all(self.fast_bytes), all(self.slow_bytes))
    }
}

/// Returns the stored size of a block, in bytes.
fn stored_bytes(ways: &[CompressionType], contents: &[u8]) -> u64 {
    let Some(way) = ways.iter().find(|way| way.check_built_in().is_ok()) else {
        return contents.len() as u64;
    };
    let mut compressed = Vec::new();
    compression::compress_into(*way, None, contents, None, &mut compressed);
    let stored = if saves_enough(contents, compressed.len()) { compressed.len() } else { contents.len() };
    stored as u64
}
