//! Compressing data blocks elsewhere, while more of them are being filled.
//!
//! In: blocks as they are closed. Out: [`ClosedBlock`]s for whoever compresses them, on any thread,
//! in any order; they come back in the order in which they were closed.
//!
//! Invariants:
//! - The file has the same bytes as without this: sizes, and so places, are settled in order.
//! - What is decided by the size of the file ([`TableBuilder::file_bytes`]) may be decided by
//!   [`TableBuilder::file_bytes_at_most`] where that is too small to matter, and else after all
//!   blocks have come back. Everything else that a caller sees does not depend on what is under
//!   way.

use super::index_writer::{IndexEntry, IndexWriter};
use super::{Compressing, CompressionType, Dictionary, Part, TableBuildError, TableBuilder};
use crate::block_kind::BlockKind;
use crate::handle::BLOCK_TRAILER_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks on their way.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// Closed, and not fetched yet.
    closed: Vec<ClosedBlock>,
    /// What the index will say of the blocks that have not come back, oldest first, and their bytes
    /// before compression.
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

/// A data block, and what compression made of it.
#[derive(Debug)]
pub struct CompressedBlock {
    contents: Vec<u8>,
    compressed: Vec<u8>,
    outcome: Result<(), TableBuildError>,
}

impl ClosedBlock {
    /// Its bytes before compression.
    #[must_use]
    pub fn raw_bytes(&self) -> usize {
        self.contents.len()
    }

    /// Compresses it; takes as long as that takes.
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
    /// From now on data blocks are compressed by the caller: see [`TableBuilder::take_closed`].
    /// Without effect if the table is not compressed. Call it before the first entry.
    pub fn defer_compression(&mut self) {
        if self.options.compression != CompressionType::None {
            self.deferred = Some(Deferred::default());
        }
    }

    /// Data blocks that were closed since the last call, in their order.
    pub fn take_closed(&mut self) -> impl Iterator<Item = ClosedBlock> + '_ {
        self.deferred.iter_mut().flat_map(|deferred| deferred.closed.drain(..))
    }

    /// Whether [`TableBuilder::take_closed`] has any.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| !deferred.closed.is_empty())
    }

    /// Takes a block back. They come in the order in which they were closed.
    ///
    /// # Panics
    /// None is expected.
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

    /// How many bytes the file has at most, once all blocks have come back.
    #[must_use]
    pub fn file_bytes_at_most(&self) -> u64 {
        let under_way = self
            .deferred
            .as_ref()
            .map_or(0, |deferred| deferred.raw_bytes + deferred.expected.len() * BLOCK_TRAILER_BYTES);
        // At each end of a super block there is padding at most once.
        let super_blocks = under_way.checked_div(self.options.super_block_bytes).map_or(0, |whole| whole + 1);
        let under_way = under_way + super_blocks * self.options.super_block_padding_limit();
        self.file_bytes() + under_way as u64
    }

    /// Closes the last data block, so that it too is compressed by the caller. Nothing may be added
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
