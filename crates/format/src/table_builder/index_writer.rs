//! Index writer: collects index entries while data blocks are written, and encodes them at the end.
//!
//! Encoding waits for the end because only then it is known if index keys can be user keys instead
//! of internal keys. A user key that continues from one block into the next needs its sequence
//! number to tell the blocks apart, and the choice applies to the whole table.
//!
//! In: first, last and next key of each block, then its handle. Out: index blocks, and the two
//! blocks of a hash index.

use super::uniformity::Uniformity;
use super::{IndexShortening, TableOptions};
use crate::block::{BlockBuilder, BlockShape};
use crate::coding::put_varint32;
use crate::comparator::Comparator;
use crate::handle::BlockHandle;
use crate::index::{IndexLayout, IndexType, encode_delta, encode_value};
use crate::key::{self, SeqNo, ValueType};
use crate::slice_transform::PrefixExtractor;

/// An index entry without its block handle.
#[derive(Debug)]
pub(super) struct IndexEntry {
    /// Internal key not smaller than any key of the block.
    separator: Vec<u8>,
    /// First key of the block; kept only if the index stores it.
    first_key: Option<Vec<u8>>,
}

/// The index of a table being written.
#[derive(Debug)]
pub(super) struct IndexWriter {
    layout: IndexLayout,
    entries: Vec<(IndexEntry, BlockHandle)>,
    entry_bytes: usize,
    hash: Option<HashIndex>,
    /// Number of encoded index blocks that were marked as uniform.
    uniform_blocks: u64,
}

/// The blocks of a hash index: all prefixes, and for each its length, first block and number of
/// blocks.
#[derive(Debug)]
struct HashIndex {
    extractor: PrefixExtractor,
    prefixes: Vec<u8>,
    metadata: Vec<u8>,
    /// Number of data blocks closed.
    block: u32,
    /// The current prefix and its first block; `None` between prefixes.
    pending: Option<(Vec<u8>, u32)>,
    /// Number of the last block that contains the current prefix.
    last_block: u32,
}

impl IndexWriter {
    pub(super) fn new(options: &TableOptions) -> IndexWriter {
        let hash =
            (options.index_type == IndexType::HashSearch).then(|| options.prefix_extractor.clone()).flatten();
        IndexWriter {
            layout: IndexLayout {
                // Compat: in format_version 2 index keys are always internal keys.
                user_keys: options.format_version > 2,
                delta_handles: options.format_version >= 4 && options.delta_encode_handles,
                first_keys: options.index_type == IndexType::BinarySearchWithFirstKey,
            },
            entries: Vec::new(),
            entry_bytes: 0,
            uniform_blocks: 0,
            hash: hash.map(|extractor| HashIndex {
                extractor,
                prefixes: Vec::new(),
                metadata: Vec::new(),
                block: 0,
                pending: None,
                last_block: 0,
            }),
        }
    }

    /// Returns the encoding of the index; final only when all blocks are closed.
    pub(super) fn layout(&self) -> IndexLayout {
        self.layout
    }

    /// Returns the approximate size of the index, in bytes.
    pub(super) fn size_estimate(&self) -> usize {
        self.entry_bytes + 8 * self.entries.len()
    }

    /// Returns the bytes that an entry adds to [`Self::size_estimate`].
    pub(super) fn entry_size_estimate(entry: &IndexEntry) -> usize {
        entry.separator.len() + entry.first_key.as_ref().map_or(0, Vec::len) + 8
    }

    /// Records a key of the open data block in the hash index.
    pub(super) fn note_key(&mut self, user_key: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.note_key(user_key);
        }
    }

    /// Returns the index entry of a block with the keys `first` to `last`; `next` is the key after
    /// them.
    pub(super) fn prepare(
        &mut self,
        options: &TableOptions,
        first: &[u8],
        last: &[u8],
        next: Option<&[u8]>,
    ) -> IndexEntry {
        if let Some(next) = next
            && options.comparator.equal_user(key::user_key(last), key::user_key(next))
        {
            self.layout.user_keys = false;
        }
        if let Some(hash) = &mut self.hash {
            hash.block += 1;
        }
        let separator = separator(&options.comparator, options.index_shortening, last, next);
        IndexEntry { separator, first_key: self.layout.first_keys.then(|| first.to_vec()) }
    }

    pub(super) fn add(&mut self, entry: IndexEntry, handle: BlockHandle) {
        self.entry_bytes += entry.separator.len() + entry.first_key.as_ref().map_or(0, Vec::len);
        self.entries.push((entry, handle));
    }

    /// Returns the whole index as one block.
    pub(super) fn whole(&mut self, options: &TableOptions) -> Vec<u8> {
        let interval = options.effective_index_restart_interval();
        let mut writer = BlockWriter::new(self.layout, interval, options.uniform_cv_threshold);
        for (key, handle, first_key) in self.encodable() {
            writer.add(key, handle, first_key);
        }
        let block = writer.finish();
        self.uniform_blocks += writer.uniform_blocks;
        block
    }

    /// Returns the top of an index whose `partitions` are given by last key and handle.
    pub(super) fn top(&mut self, options: &TableOptions, partitions: &[(Vec<u8>, BlockHandle)]) -> Vec<u8> {
        let threshold = options.uniform_cv_threshold;
        let mut writer = BlockWriter::new(self.layout, options.index_restart_interval, threshold);
        partitions.iter().for_each(|(key, handle)| writer.add(key, *handle, None));
        let block = writer.finish();
        self.uniform_blocks += writer.uniform_blocks;
        block
    }

    /// Returns the number of encoded index blocks that were marked as uniform.
    pub(super) fn uniform_blocks(&self) -> u64 {
        self.uniform_blocks
    }

    /// Returns the last key and the contents of each index partition.
    pub(super) fn partitions(&mut self, options: &TableOptions) -> Vec<(Vec<u8>, Vec<u8>)> {
        let limit = options.metadata_block_bytes;
        let mut partitions = Vec::new();
        let threshold = options.uniform_cv_threshold;
        let mut writer = BlockWriter::new(self.layout, options.index_restart_interval, threshold);
        let mut last_key: &[u8] = &[];
        let count = self.entries.len();
        for (i, (key, handle, first_key)) in self.encodable().enumerate() {
            // The last entry never opens a partition of its own.
            if writer.size_estimate() >= limit && i + 1 < count {
                partitions.push((last_key.to_vec(), writer.finish()));
            }
            writer.add(key, handle, first_key);
            last_key = key;
        }
        if !writer.is_empty() {
            partitions.push((last_key.to_vec(), writer.finish()));
        }
        self.uniform_blocks += writer.uniform_blocks;
        partitions
    }

    /// Returns prefixes and metadata of the hash index, if there is one.
    pub(super) fn hash_index(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut hash = self.hash.take()?;
        hash.flush();
        Some((hash.prefixes, hash.metadata))
    }

    fn encodable(&self) -> impl Iterator<Item = (&[u8], BlockHandle, Option<&[u8]>)> {
        self.entries.iter().map(|(entry, handle)| (&entry.separator[..], *handle, entry.first_key.as_deref()))
    }
}

impl HashIndex {
    fn note_key(&mut self, user_key: &[u8]) {
        let prefix = self.extractor.prefix(user_key);
        if let (Some(prefix), Some((pending, _))) = (prefix, &self.pending)
            && prefix == pending
        {
            self.last_block = self.block;
            return;
        }
        self.flush();
        self.pending = prefix.map(|prefix| (prefix.to_vec(), self.block));
        self.last_block = self.block;
    }

    fn flush(&mut self) {
        if let Some((prefix, first_block)) = self.pending.take() {
            self.prefixes.extend_from_slice(&prefix);
            put_varint32(&mut self.metadata, prefix.len() as u32);
            put_varint32(&mut self.metadata, first_block);
            put_varint32(&mut self.metadata, self.last_block - first_block + 1);
        }
    }
}

/// Returns an internal key not smaller than `last` and smaller than `next`.
fn separator(
    comparator: &Comparator,
    shortening: IndexShortening,
    last: &[u8],
    next: Option<&[u8]>,
) -> Vec<u8> {
    let mut short = key::user_key(last).to_vec();
    match (next, shortening) {
        (_, IndexShortening::NoShortening) | (None, IndexShortening::ShortenSeparators) => {
            return last.to_vec();
        }
        (Some(next), _) => comparator.shorten_separator(&mut short, key::user_key(next)),
        (None, _) => comparator.shorten_successor(&mut short),
    }
    let user_last = key::user_key(last);
    if short.len() <= user_last.len() && comparator.compare_user(user_last, &short).is_lt() {
        // Invariant: a user key greater than the block's gets the trailer that sorts first.
        key::append(&mut short, &[], key::pack_trailer(SeqNo::MAX, ValueType::FOR_SEEK));
        return short;
    }
    last.to_vec()
}

/// Encodes entries with internal keys as one block in the layout of an index, never marked as
/// uniform.
pub(super) fn encode_block<'a>(
    layout: IndexLayout,
    restart_interval: usize,
    entries: impl Iterator<Item = (&'a [u8], BlockHandle, Option<&'a [u8]>)>,
) -> Vec<u8> {
    let mut writer = BlockWriter::new(layout, restart_interval, -1.0);
    for (key, handle, first_key) in entries {
        writer.add(key, handle, first_key);
    }
    writer.finish()
}

/// One index block being encoded.
struct BlockWriter {
    layout: IndexLayout,
    builder: BlockBuilder,
    previous: Option<BlockHandle>,
    whole: Vec<u8>,
    delta: Vec<u8>,
    restart_interval: usize,
    uniformity: Uniformity,
    uniform_blocks: u64,
}

impl BlockWriter {
    fn new(layout: IndexLayout, restart_interval: usize, uniform_cv_threshold: f64) -> BlockWriter {
        let shape = BlockShape::plain(restart_interval);
        BlockWriter {
            layout,
            builder: BlockBuilder::new(shape),
            previous: None,
            whole: Vec::new(),
            delta: Vec::new(),
            restart_interval: shape.restart_interval,
            uniformity: Uniformity::new(uniform_cv_threshold),
            uniform_blocks: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    fn size_estimate(&self) -> usize {
        self.builder.size_estimate()
    }

    fn add(&mut self, internal_key: &[u8], handle: BlockHandle, first_key: Option<&[u8]>) {
        let first_key = first_key.filter(|_| self.layout.first_keys);
        let key = if self.layout.user_keys { key::user_key(internal_key) } else { internal_key };
        if self.builder.entry_count().is_multiple_of(self.restart_interval) {
            self.uniformity.note(key::user_key(internal_key));
        }
        self.whole.clear();
        encode_value(&mut self.whole, handle, first_key);
        if self.layout.delta_handles {
            self.delta.clear();
            match self.previous {
                // Compat: a delta implies that the block follows the previous one. Behind padding
                // the handle is whole, which readers recognize by a key that shares nothing.
                Some(previous) if !previous.is_followed_by(handle) => {
                    self.builder.add_undelimited_alone(key, &self.whole);
                }
                previous => {
                    if let Some(previous) = previous {
                        encode_delta(&mut self.delta, handle, previous, first_key);
                    }
                    self.builder.add_undelimited(key, &self.whole, &self.delta);
                }
            }
        } else {
            self.builder.add(key, &self.whole);
        }
        self.previous = Some(handle);
    }

    fn finish(&mut self) -> Vec<u8> {
        self.previous = None;
        if self.uniformity.end_block() {
            self.builder.mark_uniform();
            self.uniform_blocks += 1;
        }
        self.builder.finish()
    }
}
