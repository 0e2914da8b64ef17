//! Decoding: from the stored bytes of a block to the decoded block in the cache.
//!
//! In: block and trailer as read. Steps: verify the checksum, decompress or copy once into an
//! allocation of the right size (filters are parsed in place), parse, insert into the cache. Out:
//! the pinned block. Errors name the file and the block's offset.

use crate::block::stock;
use crate::block::{BlockKind, BlockRef, CachedBlock};
use crate::open_files::Shared;
use crate::table::Table;
use crate::table::context::ReadCtx;
use karst_base::error::Result;
use karst_base::perf_context::{self, PerfMetric, Timer};
use karst_base::stats::Ticker;
use karst_format::Corruption;
use karst_format::block::Block;
use karst_format::checksum::{self, ChecksumType};
use karst_format::compression::{self, CompressionType, Dictionary};
use karst_format::filter::FilterReader;
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_format::index::{IndexBlock, IndexLayout, IndexType};
use karst_format::key::SeqNo;
use karst_format::properties::TableProperties;
use karst_mem::{Handle, Priority};
use std::borrow::Cow;

/// Storage format of one table's blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage {
    pub(super) format_version: u32,
    pub(super) checksum: ChecksumType,
    pub(super) base_context_checksum: u32,
}

/// Maximum decompressed size of a block in bytes, because sizes are 32 bits in the format.
const MAX_BLOCK_BYTES: usize = u32::MAX as usize;

impl Storage {
    /// Verifies the checksum of the block in `bytes`, block and trailer. Returns the number of its
    /// compression. Counted in the statistics of `shared`.
    pub(super) fn verify(
        &self,
        shared: &Shared,
        handle: BlockHandle,
        bytes: &[u8],
    ) -> Result<u8, Corruption> {
        shared.stats.tick(Ticker::BlockChecksumComputeCount);
        let timer = Timer::start(&shared.env);
        let context = checksum::context_modifier(self.base_context_checksum, handle.offset);
        let kind = checksum::verify_block_trailer(self.checksum, bytes, context);
        timer.stop(&shared.env, PerfMetric::BlockChecksumTime);
        kind.inspect_err(|_| shared.stats.tick(Ticker::BlockChecksumMismatchCount))
    }

    /// Returns the contents of the block in `bytes`, block and trailer: in place if not compressed,
    /// else decompressed into the memory that `memory` returns for the size. Counted in the
    /// statistics of `shared`.
    pub(super) fn unpack<'b>(
        &self,
        shared: &Shared,
        handle: BlockHandle,
        bytes: &'b [u8],
        dictionary: Option<&Dictionary>,
        verify: bool,
        memory: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<Cow<'b, [u8]>, Corruption> {
        let Some(length) = bytes.len().checked_sub(BLOCK_TRAILER_BYTES) else {
            return Err(Corruption::new("block is too short for its trailer", bytes.len()));
        };
        let kind = if verify { self.verify(shared, handle, bytes)? } else { bytes[length] };
        let contents = &bytes[..length];
        if kind == CompressionType::None as u8 {
            return Ok(Cow::Borrowed(contents));
        }
        let kind = CompressionType::from_u8(kind)?;
        let unpacked = shared.time_decompression(|| {
            compression::decompress_in(
                kind,
                contents,
                dictionary,
                self.format_version,
                MAX_BLOCK_BYTES,
                memory,
            )
        })?;
        perf_context::count(PerfMetric::BlockDecompressCount, 1);
        let recorder = shared.stats.recorder();
        recorder.tick(Ticker::NumberBlockDecompressed);
        recorder.record(Ticker::BytesDecompressedFrom, length as u64);
        recorder.record(Ticker::BytesDecompressedTo, unpacked.len() as u64);
        Ok(Cow::Owned(unpacked))
    }
}

/// Encoding of blocks, from the table's properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) index: IndexLayout,
    filter_index: IndexLayout,
    pub(super) index_is_partitioned: bool,
    /// Sequence number of every entry, overriding that in its key (an ingested file).
    pub(super) global_seqno: Option<SeqNo>,
}

impl Layout {
    /// Returns the layout of a table with these properties; `largest_seq` is its largest sequence
    /// number in the MANIFEST.
    pub(super) fn new(properties: &TableProperties, largest_seq: SeqNo) -> Result<Layout, Corruption> {
        let index_type = properties
            .index_type()
            .map_err(|number| Corruption::new(format!("index of unknown type {number}"), 0u64))?;
        Ok(Layout {
            index: properties.index_layout(),
            filter_index: properties.filter_index_layout(),
            index_is_partitioned: index_type == IndexType::TwoLevelIndexSearch,
            global_seqno: global_seqno(properties, largest_seq)?,
        })
    }

    /// Parses a block's contents as `kind` requires.
    pub(super) fn parse(&self, kind: BlockKind, contents: Cow<'_, [u8]>) -> Result<CachedBlock, Corruption> {
        let owned = |contents: Cow<'_, [u8]>| contents.into_owned().into_boxed_slice();
        Ok(match kind {
            BlockKind::Data => CachedBlock::Data(Block::parse(match contents {
                Cow::Owned(contents) => contents,
                Cow::Borrowed(contents) => {
                    let mut memory = stock::take(contents.len());
                    memory.clear();
                    memory.extend_from_slice(contents);
                    memory
                }
            })?),
            BlockKind::Index | BlockKind::IndexPartition => {
                CachedBlock::Index(IndexBlock::parse(owned(contents), self.index)?)
            }
            BlockKind::FilterIndex => {
                CachedBlock::Index(IndexBlock::parse(owned(contents), self.filter_index)?)
            }
            BlockKind::Filter | BlockKind::FilterPartition => {
                CachedBlock::Filter(FilterReader::parse(&contents))
            }
        })
    }
}

/// Returns the sequence number that all entries of an ingested file have.
///
/// Compat: version 2 files are written with sequence number 0; the number assigned at ingestion is
/// in the MANIFEST, and in the property only if the file was rewritten then.
fn global_seqno(properties: &TableProperties, largest_seq: SeqNo) -> Result<Option<SeqNo>, Corruption> {
    let stored = properties.external_global_seqno().map(|seq| seq.0);
    match (properties.external_file_version(), stored) {
        (None, None) | (Some(1), None) => return Ok(None),
        (None, Some(_)) => {
            return Err(Corruption::new("a global sequence number in a table that was not ingested", 0u64));
        }
        (Some(2), _) => {}
        (Some(version), _) => {
            return Err(Corruption::new(format!("ingested file of unknown version {version}"), 0u64));
        }
    }
    let stored = stored.unwrap_or(0);
    if stored != 0 && stored != largest_seq.0 {
        return Err(Corruption::new(
            format!("ingested with sequence number {stored}, the MANIFEST says {largest_seq}"),
            0u64,
        ));
    }
    Ok(Some(largest_seq))
}

impl Table {
    /// Decodes the block at `handle` from `bytes` (block and trailer) and inserts it into the
    /// cache, if the read may fill it.
    pub fn decode(
        &self,
        ctx: &ReadCtx<'_>,
        handle: BlockHandle,
        kind: BlockKind,
        bytes: &[u8],
    ) -> Result<BlockRef> {
        self.decode_into(ctx, handle, kind, bytes, &mut None)
    }

    /// Decodes like [`decode`](Self::decode); a block that does not go into the cache reuses
    /// `spare`, if that has no other owner.
    pub fn decode_into(
        &self,
        ctx: &ReadCtx<'_>,
        handle: BlockHandle,
        kind: BlockKind,
        bytes: &[u8],
        spare: &mut Option<BlockRef>,
    ) -> Result<BlockRef> {
        count_read(kind, bytes.len());
        let fills_cache = ctx.options.fill_cache && !ctx.tables.configuration.table_options.no_block_cache;
        if kind.is_metadata()
            && fills_cache
            && let Some(block) = ctx.cache().get(self.cache_key(handle))
        {
            // Checked because lookups that missed the block together share one read, and the first
            // of them has decoded it.
            return Ok(block);
        }
        let contents = self
            .storage
            .unpack(
                &ctx.tables.shared,
                handle,
                bytes,
                self.dictionary.as_deref(),
                ctx.options.verify_checksums,
                |len| if kind == BlockKind::Data { stock::take(len) } else { Vec::with_capacity(len) },
            )
            .map_err(|corruption| self.corrupt(handle, corruption))?;
        let block =
            self.layout.parse(kind, contents).map_err(|corruption| self.corrupt(handle, corruption))?;
        if !fills_cache {
            return Ok(match spare.take() {
                Some(mut spare) => match spare.replace_if_alone(block) {
                    Ok(_) => spare,
                    Err(block) => Handle::standalone(block),
                },
                None => Handle::standalone(block),
            });
        }
        let charge = ctx.tables.shared.block_charge(&block);
        ctx.count_cache_add(kind, charge);
        Ok(ctx.cache().insert(self.cache_key(handle), block, charge, self.priority(kind)))
    }

    pub(super) fn priority(&self, kind: BlockKind) -> Priority {
        if kind.is_metadata() && self.metadata_has_high_priority { Priority::High } else { Priority::Low }
    }
}

/// Counts a block as read by the calling thread: of this kind, or, for `None`, one read only when a
/// table is opened. `bytes` includes the trailer.
pub(super) fn count_read(kind: impl Into<Option<BlockKind>>, bytes: usize) {
    perf_context::count(PerfMetric::BlockReadCount, 1);
    perf_context::count(PerfMetric::BlockReadByte, bytes as u64);
    let Some(kind) = kind.into() else {
        return perf_context::count(PerfMetric::MetadataBlockReadByte, bytes as u64);
    };
    let bytes_of_kind = if kind.is_filter() {
        perf_context::count(PerfMetric::FilterBlockReadCount, 1);
        PerfMetric::FilterBlockReadByte
    } else if kind.is_metadata() {
        perf_context::count(PerfMetric::IndexBlockReadCount, 1);
        PerfMetric::IndexBlockReadByte
    } else {
        PerfMetric::DataBlockReadByte
    };
    perf_context::count(bytes_of_kind, bytes as u64);
}
