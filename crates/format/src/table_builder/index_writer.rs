//! Collecting index entries while data blocks are written, and encoding them at the end.
//!
//! Why at the end: whether index keys are user keys or internal keys is only known then. One user
//! key that continues from one block into the next needs its sequence number to tell the blocks
//! apart, and the choice holds for the whole table.
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

/// What an index says about a block, but for its place.
#[derive(Debug)]
pub(super) struct IndexEntry {
    /// An internal key.
    separator: Vec<u8>,
    /// Kept only where the index stores it.
    first_key: Option<Vec<u8>>,
}

/// The index of a table being written.
#[derive(Debug)]
pub(super) struct IndexWriter {
    layout: IndexLayout,
    entries: Vec<(IndexEntry, BlockHandle)>,
    entry_bytes: usize,
    hash: Option<HashIndex>,
    /// Blocks of the index that were marked as uniform, as far as they are encoded.
    uniform_blocks: u64,
}

/// The blocks of a hash index: all prefixes, and for each its length, first block and number of
/// blocks.
#[derive(Debug)]
struct HashIndex {
    extractor: PrefixExtractor,
    prefixes: Vec<u8>,
    metadata: Vec<u8>,
    /// Data blocks closed so far.
    block: u32,
    /// The current prefix and its first block; `None` between prefixes.
    pending: Option<(Vec<u8>, u32)>,
    /// The block in which the current prefix was last seen.
    last_block: u32,
}

impl IndexWriter {
    pub(super) fn new(options: &TableOptions) -> IndexWriter {
        let hash =
            (options.index_type == IndexType::HashSearch).then(|| options.prefix_extractor.clone()).flatten();
        IndexWriter {
            layout: IndexLayout {
                // Compat: format_version 2 has internal keys in the index only.
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

    /// How the index will be encoded; final only when all blocks are closed.
    pub(super) fn layout(&self) -> IndexLayout {
        self.layout
    }

    /// About how large the index will be, in bytes.
    pub(super) fn size_estimate(&self) -> usize {
        self.entry_bytes + 8 * self.entries.len()
    }

    /// What an entry adds to that.
    pub(super) fn entry_size_estimate(entry: &IndexEntry) -> usize {
        entry.separator.len() + entry.first_key.as_ref().map_or(0, Vec::len) + 8
    }

    /// Notes a key that goes into the open data block.
    pub(super) fn note_key(&mut self, user_key: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.note_key(user_key);
        }
    }

    /// The entry of a block that holds `first` to `last`, in front of `next`.
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

    /// The whole index as one block.
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

    /// The top of an index in partitions, of which each has its last key.
    pub(super) fn top(&mut self, options: &TableOptions, partitions: &[(Vec<u8>, BlockHandle)]) -> Vec<u8> {
        let threshold = options.uniform_cv_threshold;
        let mut writer = BlockWriter::new(self.layout, options.index_restart_interval, threshold);
        partitions.iter().for_each(|(key, handle)| writer.add(key, *handle, None));
        let block = writer.finish();
        self.uniform_blocks += writer.uniform_blocks;
        block
    }

    /// Blocks of the index that were marked as uniform, as far as they are encoded.
    pub(super) fn uniform_blocks(&self) -> u64 {
        self.uniform_blocks
    }

    /// The index in partitions, each with its last key.
    pub(super) fn partitions(&mut self, options: &TableOptions) -> Vec<(Vec<u8>, Vec<u8>)> {
        let limit = options.metadata_block_bytes;
        let mut partitions = Vec::new();
        let threshold = options.uniform_cv_threshold;
        let mut writer = BlockWriter::new(self.layout, options.index_restart_interval, threshold);
        let mut last_key: &[u8] = &[];
        let count = self.entries.len();
        for (i, (key, handle, first_key)) in self.encodable().enumerate() {
            // Why: the last entry never opens a partition of its own.
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

    /// Prefixes and metadata of a hash index.
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

/// An internal key at or behind `last` and in front of `next`.
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
        // Invariant: a user key that is really behind the block's gets the trailer that sorts
        // first.
        key::append(&mut short, &[], key::pack_trailer(SeqNo::MAX, ValueType::FOR_SEEK));
        return short;
    }
    last.to_vec()
}

/// Encodes entries, keys given as internal keys, as one block like those of an index, which is
/// never marked as uniform.
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
                // Compat: a delta says that the block follows the one before. Behind padding the
                // handle is whole, which readers tell by a key that shares nothing.
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
