//! Table builder: writes block-based tables.
//!
//! | part of the file | compressed |
//! |---|---|
//! | data blocks | yes, with the dictionary if the table has one |
//! | filter, or filter partitions and their index | no |
//! | hash index blocks, index, or index partitions and their top | yes, without dictionary |
//! | compression dictionary | no |
//! | range tombstones | no |
//! | properties | no |
//! | metaindex | no |
//! | footer | no |
//!
//! Every block is followed by its trailer ([`crate::checksum`]). Specified by RocksDB's
//! table/block_based/block_based_table_builder.cc.
//!
//! In: internal keys in ascending order with their values, range tombstones in any order. Out: the
//! bytes of the file, piece by piece ([`TableBuilder::take_output`]), and the metadata that a
//! MANIFEST records ([`FinishedTable`]).
//! Invariant: equal input and options produce equal bytes, also with deferred compression
//! ([`TableBuilder::defer_compression`]), because the builder uses no clock and no randomness. Used
//! by bulk loading, flush and compaction, and by tests.

mod deferred;
mod index_writer;
mod options;
mod sampled;
mod uniformity;

pub use deferred::{ClosedBlock, CompressedBlock};
pub use options::{IndexShortening, TableBuildError, TableIdentity, TableOptions};

use crate::block::{BlockBuilder, BlockShape};
use crate::block_kind::BlockKind;
use crate::checksum;
use crate::compression::{self, CompressionType, Dictionary};
use crate::filter::{COMPATIBILITY_NAME, FilterBuilder, FilterContext, PartitionedFilterBuilder};
use crate::footer::Footer;
use crate::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use crate::index::{IndexLayout, IndexType};
use crate::key::{self, InternalKey, RANGE_TOMBSTONE_SENTINEL, SeqNo, ValueType};
use crate::metaindex::{self, Metaindex};
use crate::properties::{BUILTIN_COMPRESSION, TableProperties};
use deferred::Deferred;
use index_writer::{IndexEntry, IndexWriter};
use sampled::Sampled;
use std::sync::Arc;

/// A table being written.
#[derive(Debug)]
pub struct TableBuilder {
    options: TableOptions,
    out: Vec<u8>,
    /// Bytes of the file that the caller has taken.
    taken: u64,
    data_block: BlockBuilder,
    /// First key of the data block being filled.
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// Finished data blocks that are held back until the dictionary is made from them; `None` once
    /// it is made, or if the table gets no dictionary.
    waiting: Option<Vec<WaitingBlock>>,
    waiting_bytes: usize,
    dictionary: Option<Arc<Dictionary>>,
    /// State of deferred compression, if enabled.
    deferred: Option<Deferred>,
    index: IndexWriter,
    filter: Option<Filter>,
    range_deletions: BlockBuilder,
    properties: TableProperties,
    bounds: Bounds,
    compressed_any: bool,
    compression: CompressionCounts,
    sampled: Sampled,
    /// The first damage found.
    damage: Option<TableBuildError>,
    kept: Vec<WrittenBlock>,
}

/// A block before compression, and its handle in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenBlock {
    /// Purpose of the block.
    pub kind: BlockKind,
    /// Handle as stored in the index.
    pub handle: BlockHandle,
    /// Contents as a reader of the table gets them.
    pub contents: Vec<u8>,
}

/// Part of the file that a block belongs to; only data blocks are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Data,
    Rest,
}

/// Compression settings of a block.
#[derive(Clone, Copy, Debug)]
struct Compressing<'a> {
    compression: CompressionType,
    level: Option<i32>,
    dictionary: Option<&'a Dictionary>,
    /// Format version for which the compressed block is decompressed again and compared, or `None`
    /// for no verification.
    verified_for: Option<u32>,
}

impl Compressing<'_> {
    /// Appends `contents`, compressed, to `out`.
    ///
    /// # Errors
    /// If the result does not decompress to `contents`.
    fn run(&self, contents: &[u8], out: &mut Vec<u8>) -> Result<(), TableBuildError> {
        let start = out.len();
        compression::compress_into(self.compression, self.level, contents, self.dictionary, out);
        let compressed = &mut out[start..];
        #[cfg(test)]
        tests::flip_if_asked(compressed);
        match self.verified_for.filter(|_| saves_enough(contents, compressed.len())) {
            Some(format_version) => self.verify(contents, compressed, format_version),
            None => Ok(()),
        }
    }

    fn verify(&self, contents: &[u8], compressed: &[u8], format_version: u32) -> Result<(), TableBuildError> {
        let back = compression::decompress(
            self.compression,
            compressed,
            self.dictionary,
            format_version,
            contents.len(),
        );
        let what = match back {
            Ok(back) if *back == *contents => return Ok(()),
            Ok(_) => "something else".to_owned(),
            Err(corruption) => format!("nothing ({})", corruption.what),
        };
        let (name, bytes) = (self.compression.name(), contents.len());
        Err(TableBuildError::Damaged(format!(
            "a block of {bytes} bytes, compressed with {name}, decompresses to {what}"
        )))
    }
}

/// Returns true if compression saves enough for the block to be stored compressed.
///
/// Compat: RocksDB stores a block compressed if that saves more than an eighth.
fn saves_enough(contents: &[u8], compressed_bytes: usize) -> bool {
    compressed_bytes < contents.len() - contents.len() / 8
}

#[derive(Debug)]
enum Filter {
    Full(FilterBuilder),
    Partitioned(PartitionedFilterBuilder),
}

#[derive(Debug)]
struct WaitingBlock {
    contents: Vec<u8>,
    entry: IndexEntry,
}

/// The smallest and largest internal keys so far, range tombstones included.
#[derive(Debug, Default)]
struct Bounds {
    smallest: Option<Vec<u8>>,
    largest: Option<Vec<u8>>,
    smallest_seq: Option<SeqNo>,
    largest_seq: SeqNo,
}

/// Metadata of a table that has been written.
#[derive(Debug, Clone)]
pub struct FinishedTable {
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Smallest internal key, range tombstones included; `None` if the table is empty.
    pub smallest: Option<Vec<u8>>,
    /// Largest internal key. If it is the end of a range tombstone it is exclusive and ends in
    /// [`RANGE_TOMBSTONE_SENTINEL`].
    pub largest: Option<Vec<u8>>,
    /// Smallest sequence number; 0 if the table is empty.
    pub smallest_seq: SeqNo,
    /// Largest sequence number.
    pub largest_seq: SeqNo,
    /// Contents of the properties block.
    pub properties: TableProperties,
    /// Counts of the data and index blocks, by form of storage.
    pub compression: CompressionCounts,
}

/// Number of blocks, and their bytes before compression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Number of blocks.
    pub blocks: u64,
    /// Their bytes before compression.
    pub raw_bytes: u64,
}

impl BlockCounts {
    fn add(&mut self, raw_bytes: u64) {
        self.blocks += 1;
        self.raw_bytes += raw_bytes;
    }
}

/// Counts of a table's data and index blocks by the form in which they were stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressionCounts {
    /// Blocks stored compressed.
    pub compressed: BlockCounts,
    /// Bytes of the compressed blocks as stored.
    pub compressed_to_bytes: u64,
    /// Blocks stored uncompressed because compression saved too little.
    pub rejected: BlockCounts,
    /// Blocks stored uncompressed because the options disable compression.
    pub bypassed: BlockCounts,
}

impl TableBuilder {
    /// Returns the builder of an empty table, or an error for options that no RocksDB accepts.
    pub fn new(options: TableOptions) -> Result<TableBuilder, TableBuildError> {
        options.check()?;
        let context = FilterContext { format_version: options.format_version, level: options.level };
        let bits = options.filter_policy.as_ref().and_then(|policy| policy.builder(context));
        let filter = bits.map(|mut bits| {
            if options.verify_filters {
                bits.verify();
            }
            let filter =
                FilterBuilder::new(bits, options.prefix_extractor.clone(), options.whole_key_filtering);
            if options.partition_filters {
                let bytes = options.metadata_block_bytes * (100 - options.block_size_deviation_percent) / 100;
                let timestamp_bytes = options.comparator.timestamp_size();
                Filter::Partitioned(PartitionedFilterBuilder::new(filter, bytes, timestamp_bytes))
            } else {
                Filter::Full(filter)
            }
        });
        let data_block = BlockBuilder::new(BlockShape {
            restart_interval: options.restart_interval,
            share_prefixes: options.share_prefixes,
            hash_index_ratio: options.data_block_hash_ratio,
            separate_values: options.separate_values,
        });
        let buffers = options.max_dictionary_bytes > 0 && options.compression != CompressionType::None;
        Ok(TableBuilder {
            data_block,
            index: IndexWriter::new(&options),
            filter,
            waiting: buffers.then(Vec::new),
            options,
            out: Vec::new(),
            taken: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            waiting_bytes: 0,
            dictionary: None,
            deferred: None,
            range_deletions: BlockBuilder::new(BlockShape::plain(1)),
            properties: TableProperties::default(),
            bounds: Bounds::default(),
            compressed_any: false,
            compression: CompressionCounts::default(),
            sampled: Sampled::default(),
            damage: None,
            kept: Vec::new(),
        })
    }

    /// Adds an entry. Keys must ascend; range tombstones are added by
    /// [`TableBuilder::add_range_deletion`].
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<(), TableBuildError> {
        let parsed = InternalKey::parse(internal_key).map_err(TableBuildError::BadKey)?;
        if parsed.kind == ValueType::RangeDeletion {
            return Err(TableBuildError::Misplaced("a range tombstone among point entries"));
        }
        if u32::try_from(value.len()).is_err() || u32::try_from(internal_key.len()).is_err() {
            return Err(TableBuildError::Misplaced("a key or value of 4 GiB or more"));
        }
        let is_first = self.properties.num_entries == self.properties.num_range_deletions;
        if !is_first && self.options.comparator.compare_internal(&self.last_key, internal_key).is_ge() {
            return Err(TableBuildError::OutOfOrder {
                key: internal_key.into(),
                after: self.last_key.clone(),
            });
        }
        if self.data_block_is_full(internal_key, value) {
            self.close_data_block(Some(internal_key));
        }
        match &mut self.filter {
            Some(Filter::Full(filter)) => filter.add(self.options.comparator.bare(parsed.user_key)),
            Some(Filter::Partitioned(filter)) => filter.add(self.options.comparator.bare(parsed.user_key)),
            None => {}
        }
        if self.data_block.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(internal_key);
        }
        self.index.note_key(self.options.comparator.bare(parsed.user_key));
        self.data_block.add(internal_key, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);
        if is_first && self.bounds.smallest.is_none() {
            self.bounds.smallest = Some(internal_key.to_vec());
        } else if is_first {
            self.bounds.widen(&self.options, internal_key, None);
        }
        self.count(&parsed, internal_key.len(), value.len());
        match parsed.kind {
            kind if kind.is_deletion() => self.properties.num_deletions += 1,
            ValueType::Merge => self.properties.num_merge_operands += 1,
            _ => {}
        }
        Ok(())
    }

    /// Adds a range tombstone, which deletes all entries in `[start, end)` older than `seq`.
    pub fn add_range_deletion(
        &mut self,
        start: &[u8],
        end: &[u8],
        seq: SeqNo,
    ) -> Result<(), TableBuildError> {
        if self.options.comparator.timestamp_size() > 0 {
            return Err(TableBuildError::Misplaced("a range tombstone among keys with timestamps"));
        }
        if self.options.comparator.compare_user(start, end).is_ge() {
            return Err(TableBuildError::Misplaced("a range tombstone that ends where it starts, or before"));
        }
        let start_key = InternalKey { user_key: start, seq, kind: ValueType::RangeDeletion };
        let encoded = start_key.to_vec();
        self.range_deletions.add(&encoded, end);
        let mut largest = Vec::with_capacity(end.len() + key::TRAILER_BYTES);
        key::append(&mut largest, end, RANGE_TOMBSTONE_SENTINEL);
        self.bounds.widen(&self.options, &encoded, Some(&largest));
        self.count(&start_key, encoded.len(), end.len());
        self.properties.num_deletions += 1;
        self.properties.num_range_deletions += 1;
        Ok(())
    }

    /// Sets a user property. A property that the table itself writes takes precedence.
    pub fn set_user_property(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.properties.user_collected.insert(name, value);
    }

    fn count(&mut self, key: &InternalKey<'_>, key_bytes: usize, value_bytes: usize) {
        self.properties.num_entries += 1;
        self.properties.raw_key_size += key_bytes as u64;
        self.properties.raw_value_size += value_bytes as u64;
        self.bounds.largest_seq = self.bounds.largest_seq.max(key.seq);
        self.bounds.smallest_seq = Some(self.bounds.smallest_seq.map_or(key.seq, |s| s.min(key.seq)));
    }

    /// Returns the size of the file so far, in bytes, without the open block.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// Returns the approximate size in bytes of the file if it were finished now.
    #[must_use]
    pub fn estimated_file_bytes(&self) -> u64 {
        self.file_bytes()
            + (self.waiting_bytes + self.data_block.size_estimate() + self.index.size_estimate()) as u64
    }

    /// Returns the approximate size in bytes of index, filter and all else behind the data blocks,
    /// if finished now.
    #[must_use]
    pub fn estimated_tail_bytes(&self) -> u64 {
        let filter = match &self.filter {
            // Two bytes an entry, because the policy's bits a key seldom exceed 16.
            Some(Filter::Full(filter)) => 2 * filter.entries(),
            Some(Filter::Partitioned(filter)) => 2 * filter.entries(),
            None => 0,
        };
        let deferred = self.deferred.as_ref().map_or(0, Deferred::index_bytes);
        (self.index.size_estimate() + deferred + filter) as u64
    }

    /// Returns the number of entries added, range tombstones included.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.properties.num_entries
    }

    /// Returns the last key added; `None` before the first one. Range tombstones do not count.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.properties.num_entries > self.properties.num_range_deletions).then_some(&self.last_key[..])
    }

    /// Returns the number of bytes that the next [`TableBuilder::take_output`] would return.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.out.len() as u64
    }

    /// Returns the bytes of [`TableBuilder::take_output`]; `buffer` is cleared and holds the
    /// following bytes, so that its memory is reused.
    #[must_use]
    pub fn exchange_output(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        buffer.clear();
        self.taken += self.out.len() as u64;
        std::mem::replace(&mut self.out, buffer)
    }

    /// Returns the bytes written since the last call, which are the next ones of the file.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    fn data_block_is_full(&self, key: &[u8], value: &[u8]) -> bool {
        if self.data_block.is_empty() {
            return false;
        }
        let (size, limit) = (self.data_block.size_estimate(), self.options.block_bytes);
        if self.options.align_blocks && self.options.block_size_deviation_percent < 100 {
            // Compat: aligned blocks are closed before they need more than one unit, and not for
            // being nearly full.
            let after = self.data_block.size_estimate_with(key, value) + BLOCK_TRAILER_BYTES;
            return size >= limit || after > limit;
        }
        let nearly = limit * (100 - self.options.block_size_deviation_percent) / 100;
        size >= limit || (size > nearly && self.data_block.size_estimate_with(key, value) > limit)
    }

    /// Closes the data block; `next` is the next key, or `None` at the end.
    fn close_data_block(&mut self, next: Option<&[u8]>) {
        if self.data_block.is_empty() {
            return;
        }
        let contents = self.data_block.finish();
        self.sampled.note(self.options.sample_for_compression, &contents);
        let entry = self.index.prepare(&self.options, &self.first_key, &self.last_key, next);
        let Some(waiting) = &mut self.waiting else {
            if self.deferred.is_some() {
                return self.defer(contents, entry);
            }
            self.write_data_block(&contents, entry);
            self.data_block.recycle(contents);
            return;
        };
        self.waiting_bytes += contents.len();
        waiting.push(WaitingBlock { contents, entry });
        let limit = self.options.max_dictionary_buffer_bytes;
        if limit != 0 && self.waiting_bytes > limit {
            self.make_dictionary();
        }
    }

    /// Makes the dictionary from the blocks held back, and writes them.
    fn make_dictionary(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let training = self.options.training_bytes();
        let limit = training.unwrap_or(self.options.max_dictionary_bytes);
        let (mut samples, mut lengths) = (Vec::new(), Vec::new());
        // Blocks from all over the file make a better dictionary than the first ones. Steps of a
        // large prime, taken modulo the number of blocks, visit each of them once.
        const STEP: usize = 1_000_003;
        for i in 0..waiting.len() {
            let block = &waiting[(waiting.len() / 2 + i * (STEP % waiting.len())) % waiting.len()];
            let room = limit - samples.len();
            let sample = &block.contents[..block.contents.len().min(room)];
            samples.extend_from_slice(sample);
            lengths.push(sample.len());
            if samples.len() == limit {
                break;
            }
        }
        if training.is_some() {
            // Compat: if training fails the table has no dictionary.
            samples = compression::train_dictionary(&samples, &lengths, self.options.max_dictionary_bytes)
                .unwrap_or_default();
        }
        if !samples.is_empty() {
            self.dictionary = Some(Arc::new(Dictionary::new(samples.into_boxed_slice())));
        }
        self.waiting_bytes = 0;
        for block in waiting {
            match self.deferred.is_some() {
                true => self.defer(block.contents, block.entry),
                false => self.write_data_block(&block.contents, block.entry),
            }
        }
    }

    fn write_data_block(&mut self, contents: &[u8], entry: IndexEntry) {
        let dictionary = self.dictionary.take();
        let (compression, part) = (self.options.compression, Part::Data);
        let (handle, kept) = self.write_block(contents, compression, dictionary.as_deref(), part);
        self.dictionary = dictionary;
        self.keep(BlockKind::Data, handle, contents);
        self.add_data_block(entry, handle, kept);
    }

    /// Counts a data block that was written, and adds it to the index.
    fn add_data_block(&mut self, entry: IndexEntry, handle: BlockHandle, kept: bool) {
        self.properties.num_data_blocks += 1;
        if self.options.compression == CompressionType::None {
            self.properties.num_data_blocks_compression_bypassed += 1;
        } else if !kept {
            self.properties.num_data_blocks_compression_rejected += 1;
        }
        self.properties.data_size = self.file_bytes();
        self.index.add(entry, handle);
    }

    /// Writes a block with its trailer, compressed if that saves enough; returns its handle, and
    /// true if it is stored compressed.
    fn write_block(
        &mut self,
        contents: &[u8],
        compression: CompressionType,
        dictionary: Option<&Dictionary>,
        part: Part,
    ) -> (BlockHandle, bool) {
        if compression == CompressionType::None {
            self.compression.bypassed.add(contents.len() as u64);
            return (self.write_stored(contents, part), false);
        }
        let start = self.out.len();
        let compressing = Compressing {
            compression,
            level: self.options.compression_level,
            dictionary,
            verified_for: self.verified_for(),
        };
        let outcome = compressing.run(contents, &mut self.out);
        self.note_damage(outcome);
        self.end_compressed(contents, start, compression, part)
    }

    /// Returns the blocks written since the last call, if the options keep them: data blocks as
    /// they are written, all others when the table is finished.
    pub fn take_blocks(&mut self) -> Vec<WrittenBlock> {
        std::mem::take(&mut self.kept)
    }

    #[inline]
    fn keep(&mut self, kind: BlockKind, handle: BlockHandle, contents: &[u8]) {
        if self.options.keep_blocks {
            self.kept.push(WrittenBlock { kind, handle, contents: contents.to_vec() });
        }
    }

    fn verified_for(&self) -> Option<u32> {
        self.options.verify_compression.then_some(self.options.format_version)
    }

    fn note_damage(&mut self, outcome: Result<(), TableBuildError>) {
        if let Err(damage) = outcome {
            self.damage.get_or_insert(damage);
        }
    }

    /// Ends a block whose compressed form starts at `start` in `out`: keeps that form if it saved
    /// enough, else stores the block uncompressed.
    fn end_compressed(
        &mut self,
        contents: &[u8],
        start: usize,
        compression: CompressionType,
        part: Part,
    ) -> (BlockHandle, bool) {
        let raw_bytes = contents.len() as u64;
        let compressed_bytes = self.out.len() - start;
        if saves_enough(contents, compressed_bytes) {
            self.compressed_any = true;
            self.compression.compressed.add(raw_bytes);
            self.compression.compressed_to_bytes += compressed_bytes as u64;
            return (self.end_block(start, compression, part), true);
        }
        self.out.truncate(start);
        self.compression.rejected.add(raw_bytes);
        (self.write_stored(contents, part), false)
    }

    /// Writes an uncompressed block that is not data.
    fn write_raw_block(&mut self, contents: &[u8]) -> BlockHandle {
        self.write_stored(contents, Part::Rest)
    }

    fn write_stored(&mut self, contents: &[u8], part: Part) -> BlockHandle {
        let start = self.out.len();
        self.out.extend_from_slice(contents);
        self.end_block(start, CompressionType::None, part)
    }

    /// Inserts padding before a data block that starts at `start` in `out`, if the block would
    /// cross the border of a super block and the padding is small; returns the block's new start.
    ///
    /// Compat: RocksDB does not count the trailer, and pads by less than the limit only.
    fn avoid_two_super_blocks(&mut self, start: usize) -> usize {
        let super_block = self.options.super_block_bytes as u64;
        let limit = self.options.super_block_padding_limit();
        if super_block == 0 || limit == 0 {
            return start;
        }
        let (begin, end) = (self.taken + start as u64, self.taken + self.out.len() as u64);
        let padding = (super_block - begin % super_block) as usize;
        if begin / super_block == end / super_block || padding >= limit {
            return start;
        }
        self.out.splice(start..start, std::iter::repeat_n(0, padding));
        start + padding
    }

    /// Appends the trailer to the stored block that starts at `start` in `out`.
    fn end_block(&mut self, start: usize, compression: CompressionType, part: Part) -> BlockHandle {
        let start = if part == Part::Data { self.avoid_two_super_blocks(start) } else { start };
        let handle = BlockHandle { offset: self.taken + start as u64, size: (self.out.len() - start) as u64 };
        let context = checksum::context_modifier(self.options.context_base(), handle.offset);
        checksum::append_block_trailer(
            &mut self.out,
            start,
            compression as u8,
            self.options.checksum,
            context,
        );
        if part == Part::Data && self.options.align_blocks {
            let padded = (self.out.len() - start).next_multiple_of(self.options.block_bytes);
            self.out.resize(start + padded, 0);
        }
        handle
    }

    /// Writes all parts behind the data blocks. [`TableBuilder::take_output`] then returns the rest
    /// of the file.
    ///
    /// # Errors
    /// [`TableBuildError::Damaged`] if a check that the options enable found damage.
    ///
    /// # Panics
    /// If data blocks whose compression was deferred have not been returned.
    pub fn finish(&mut self) -> Result<FinishedTable, TableBuildError> {
        self.write_deferred();
        self.close_data_block(None);
        self.make_dictionary();
        self.properties.tail_start_offset = self.file_bytes();
        let mut metaindex = Metaindex::default();
        self.write_filter(&mut metaindex);
        let index_handle = self.write_index(&mut metaindex);
        if let Some(dictionary) = self.dictionary.take() {
            let handle = self.write_raw_block(dictionary.raw());
            metaindex.insert(metaindex::COMPRESSION_DICT, handle);
        }
        if !self.range_deletions.is_empty() {
            let contents = self.range_deletions.finish();
            let handle = self.write_raw_block(&contents);
            metaindex.insert(metaindex::RANGE_DEL, handle);
        }
        self.fill_in_properties();
        let contents = self.properties.encode();
        let handle = self.write_raw_block(&contents);
        metaindex.insert(metaindex::PROPERTIES, handle);
        let metaindex_handle = self.write_raw_block(&metaindex.encode());
        let footer = Footer {
            format_version: self.options.format_version,
            checksum: self.options.checksum,
            metaindex_handle,
            index_handle: (self.options.format_version < 6).then_some(index_handle),
            base_context_checksum: self.options.context_base(),
        };
        let offset = self.file_bytes();
        footer.encode_into(&mut self.out, offset);
        if self.properties.num_entries > self.properties.num_range_deletions {
            let largest = std::mem::take(&mut self.last_key);
            self.bounds.widen_largest(&self.options, &largest);
        }
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        Ok(FinishedTable {
            file_bytes: self.file_bytes(),
            smallest: self.bounds.smallest.take(),
            largest: self.bounds.largest.take(),
            smallest_seq: self.bounds.smallest_seq.unwrap_or_default(),
            largest_seq: self.bounds.largest_seq,
            properties: self.properties.clone(),
            compression: self.compression,
        })
    }

    fn write_filter(&mut self, metaindex: &mut Metaindex) {
        let before = self.file_bytes();
        let (prefix, handle) = match self.filter.take() {
            None => return,
            Some(Filter::Full(mut filter)) => {
                self.properties.num_filter_entries = filter.entries() as u64;
                let contents = filter.finish();
                self.note_damage(filter_outcome(filter.is_damaged()));
                let Some(contents) = contents else { return };
                let handle = self.write_raw_block(&contents);
                self.keep(BlockKind::Filter, handle, &contents);
                (metaindex::FULL_FILTER_PREFIX, handle)
            }
            Some(Filter::Partitioned(filter)) => {
                self.properties.num_filter_entries = filter.entries() as u64;
                let (partitions, damaged) = filter.finish();
                self.note_damage(filter_outcome(damaged));
                if partitions.is_empty() {
                    return;
                }
                let mut entries = Vec::with_capacity(partitions.len());
                for partition in partitions {
                    let handle = self.write_raw_block(&partition.block);
                    self.keep(BlockKind::FilterPartition, handle, &partition.block);
                    entries.push((partition.last_key, handle));
                }
                let layout = IndexLayout { first_keys: false, ..self.index.layout() };
                let top = index_writer::encode_block(
                    layout,
                    self.options.index_restart_interval,
                    entries.iter().map(|(key, handle)| (&key[..], *handle, None)),
                );
                let handle = self.write_raw_block(&top);
                self.keep(BlockKind::FilterIndex, handle, &top);
                (metaindex::PARTITIONED_FILTER_PREFIX, handle)
            }
        };
        self.properties.filter_size = self.file_bytes() - before;
        metaindex.insert(format!("{prefix}{COMPATIBILITY_NAME}"), handle);
    }

    fn write_index(&mut self, metaindex: &mut Metaindex) -> BlockHandle {
        let compression =
            if self.options.compress_index { self.options.compression } else { CompressionType::None };
        let mut index = std::mem::replace(&mut self.index, IndexWriter::new(&self.options));
        let layout = index.layout();
        self.properties.index_key_is_user_key = layout.user_keys.into();
        self.properties.index_value_is_delta_encoded = layout.delta_handles.into();
        if let Some((prefixes, metadata)) = index.hash_index() {
            let (handle, _) = self.write_block(&prefixes, compression, None, Part::Rest);
            metaindex.insert(metaindex::HASH_INDEX_PREFIXES, handle);
            let (handle, _) = self.write_block(&metadata, compression, None, Part::Rest);
            metaindex.insert(metaindex::HASH_INDEX_METADATA, handle);
        }
        let mut index_bytes = 0;
        let top = if self.options.index_type == IndexType::TwoLevelIndexSearch {
            let partitions = index.partitions(&self.options);
            self.properties.index_partitions = partitions.len() as u64;
            let mut entries = Vec::with_capacity(partitions.len());
            for (last_key, contents) in partitions {
                index_bytes += contents.len();
                let (handle, _) = self.write_block(&contents, compression, None, Part::Rest);
                self.keep(BlockKind::IndexPartition, handle, &contents);
                entries.push((last_key, handle));
            }
            let top = index.top(&self.options, &entries);
            self.properties.top_level_index_size = top.len() as u64;
            top
        } else {
            index.whole(&self.options)
        };
        index_bytes += top.len();
        self.properties.num_uniform_blocks = index.uniform_blocks();
        let (handle, _) = self.write_block(&top, compression, None, Part::Rest);
        self.keep(BlockKind::Index, handle, &top);
        self.properties.index_size = index_bytes as u64 + BLOCK_TRAILER_BYTES as u64;
        if self.options.format_version >= 6 {
            metaindex.insert(metaindex::INDEX, handle);
        }
        handle
    }

    fn fill_in_properties(&mut self) {
        let (options, properties) = (&self.options, &mut self.properties);
        options.describe(properties);
        if options.sample_for_compression > 0 {
            (
                properties.fast_compression_estimated_data_size,
                properties.slow_compression_estimated_data_size,
            ) = self.sampled.estimates();
        }
        if options.format_version >= 7 {
            let manager = if options.compression == CompressionType::None { "" } else { BUILTIN_COMPRESSION };
            let used = if self.compressed_any {
                format!("{:02X}", options.compression as u8)
            } else {
                String::new()
            };
            properties.compression_name = format!("{manager};{used};");
        }
        if properties.num_entries > 0 {
            properties.key_largest_seqno = self.bounds.largest_seq.0;
            properties.key_smallest_seqno = self.bounds.smallest_seq.unwrap_or_default().0;
        }
    }
}

impl Bounds {
    /// Extends the bounds by `smallest` and, if given, `largest`.
    fn widen(&mut self, options: &TableOptions, smallest: &[u8], largest: Option<&[u8]>) {
        let is_smaller = |old: &Vec<u8>| options.comparator.compare_internal(smallest, old).is_lt();
        if self.smallest.as_ref().is_none_or(is_smaller) {
            self.smallest = Some(smallest.to_vec());
        }
        if let Some(largest) = largest {
            self.widen_largest(options, largest);
        }
    }

    fn widen_largest(&mut self, options: &TableOptions, largest: &[u8]) {
        let is_larger = |old: &Vec<u8>| options.comparator.compare_internal(largest, old).is_gt();
        if self.largest.as_ref().is_none_or(is_larger) {
            self.largest = Some(largest.to_vec());
        }
    }
}

fn filter_outcome(damaged: bool) -> Result<(), TableBuildError> {
    match damaged {
        false => Ok(()),
        true => Err(TableBuildError::Damaged("its filter has not all the keys that were added".to_owned())),
    }
}

#[cfg(test)]
mod tests;
