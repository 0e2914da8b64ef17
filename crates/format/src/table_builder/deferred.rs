//! Deferred compression: data blocks are compressed by the caller while the builder fills more of
//! them.
//!
//! In: blocks as they are closed. Out: [`ClosedBlock`]s, which may be compressed on any thread and
//! in any order; they must be returned in the order in which they were closed.
//!
//! Invariants:
//! - The file is byte for byte equal to one built without deferring, because sizes, and thus
//!   offsets, are determined in order.
//! - Decisions that depend on the size of the file ([`TableBuilder::file_bytes`]) may use
//!   [`TableBuilder::file_bytes_at_most`] while that bound is too small to matter, and must
//!   otherwise wait until all blocks have been returned. No other result that a caller sees depends
//!   on blocks in flight.

use super::index_writer::{IndexEntry, IndexWriter};
use super::{Compressing, CompressionType, Dictionary, Part, TableBuildError, TableBuilder};
use crate::block_kind::BlockKind;
use crate::handle::BLOCK_TRAILER_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;

/// Data blocks that are closed and not yet written.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// Blocks that are closed and not yet fetched.
    closed: Vec<ClosedBlock>,
    /// Index entries of the blocks that have not been returned, oldest first, and the blocks' sizes
    /// in bytes before compression.
    expected: VecDeque<(IndexEntry, usize)>,
    raw_bytes: usize,
    index_bytes: usize,
}

impl Deferred {
    pub(super) fn index_bytes(&self) -> usize {
        self.index_bytes
    }
}

/// A data block to be compressed.
#[derive(Debug)]
pub struct ClosedBlock {
    contents: Vec<u8>,
    compression: CompressionType,
    level: Option<i32>,
    dictionary: Option<Arc<Dictionary>>,
    verified_for: Option<u32>,
}

/// A data block, and its compressed form.
#[derive(Debug)]
pub struct CompressedBlock {
    contents: Vec<u8>,
    compressed: Vec<u8>,
    outcome: Result<(), TableBuildError>,
}

impl ClosedBlock {
    /// Returns the block's size before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> usize {
        self.contents.len()
    }

    /// Compresses the block; CPU-bound.
    #[must_use]
    pub fn compress(self) -> CompressedBlock {
        let ClosedBlock { contents, compression, level, dictionary, verified_for } = self;
        let mut compressed = Vec::new();
        let compressing = Compressing { compression, level, dictionary: dictionary.as_deref(), verified_for };
        let outcome = compressing.run(&contents, &mut compressed);
        CompressedBlock { contents, compressed, outcome }
    }
}

impl TableBuilder {
    /// Leaves the compression of data blocks to the caller: see [`TableBuilder::take_closed`]. Has
    /// no effect if the table is not compressed. Must be called before the first entry.
    pub fn defer_compression(&mut self) {
        if self.options.compression != CompressionType::None {
            self.deferred = Some(Deferred::default());
        }
    }

    /// Returns the data blocks that were closed since the last call, in order.
    pub fn take_closed(&mut self) -> impl Iterator<Item = ClosedBlock> + '_ {
        self.deferred.iter_mut().flat_map(|deferred| deferred.closed.drain(..))
    }

    /// Returns true if [`TableBuilder::take_closed`] would return a block.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| !deferred.closed.is_empty())
    }

    /// Adds a compressed block to the file. Blocks must be returned in the order in which they were
    /// closed.
    ///
    /// # Panics
    /// If no block is expected, or another one is next.
    pub fn add_compressed(&mut self, block: CompressedBlock) {
        let deferred = self.deferred.as_mut().expect("compression is deferred");
        let (entry, raw_bytes) = deferred.expected.pop_front().expect("a block is expected");
        assert_eq!(raw_bytes, block.contents.len(), "blocks come back in their order");
        deferred.raw_bytes -= raw_bytes;
        deferred.index_bytes -= IndexWriter::entry_size_estimate(&entry);
        self.note_damage(block.outcome);
        let start = self.out.len();
        self.out.extend_from_slice(&block.compressed);
        let (handle, kept) =
            self.end_compressed(&block.contents, start, self.options.compression, Part::Data);
        self.keep(BlockKind::Data, handle, &block.contents);
        self.add_data_block(entry, handle, kept);
        self.data_block.recycle(block.contents);
    }

    /// Returns an upper bound of the file's size in bytes once all blocks have been returned.
    #[must_use]
    pub fn file_bytes_at_most(&self) -> u64 {
        let under_way = self
            .deferred
            .as_ref()
            .map_or(0, |deferred| deferred.raw_bytes + deferred.expected.len() * BLOCK_TRAILER_BYTES);
        // Each end of a super block adds padding at most once.
        let super_blocks = under_way.checked_div(self.options.super_block_bytes).map_or(0, |whole| whole + 1);
        let under_way = under_way + super_blocks * self.options.super_block_padding_limit();
        self.file_bytes() + under_way as u64
    }

    /// Closes the last data block, so that the caller compresses it too. Nothing may be added
    /// afterwards.
    pub fn close_data(&mut self) {
        self.close_data_block(None);
        self.make_dictionary();
    }

    pub(super) fn defer(&mut self, contents: Vec<u8>, entry: IndexEntry) {
        let verified_for = self.verified_for();
        let deferred = self.deferred.as_mut().expect("compression is deferred");
        deferred.raw_bytes += contents.len();
        deferred.index_bytes += IndexWriter::entry_size_estimate(&entry);
        deferred.expected.push_back((entry, contents.len()));
        deferred.closed.push(ClosedBlock {
            contents,
            compression: self.options.compression,
            level: self.options.compression_level,
            dictionary: self.dictionary.clone(),
            verified_for,
        });
    }

    /// Ends deferring.
    pub(super) fn write_deferred(&mut self) {
        let under_way = self.deferred.take().map_or(0, |deferred| deferred.expected.len());
        assert_eq!(under_way, 0, "all blocks come back before the table is finished");
    }
}
