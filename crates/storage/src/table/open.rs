//! Opening a table file.
//!
//! In: a file as recorded in the MANIFEST. Out: a [`Table`] with its metadata in memory. Round
//! trips: open the file; read its tail; the metaindex if the tail read was too short for it; then
//! all other missing parts at the same time.
//!
//! Foreign and damaged files give errors that name file and offset: a size other than the
//! MANIFEST's, an invalid footer, another table's file (unique id), a comparator other than the
//! column family's.

use crate::block::{BlockKind, BlockRef};
use crate::budget;
use crate::table::cache::TableCache;
use crate::table::context::count_cache_add;
use crate::table::decode::{Layout, Storage, count_read};
use crate::table::filter::TableFilter;
use crate::table::filter_history::Lately;
use crate::table::tail::Tail;
use crate::table::{MetaBlock, Table, check_bounds};
use karst_base::error::{Error, Result};
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::atomic::Ordering;
use karst_format::block::{Block, BlockCursor};
use karst_format::compression::Dictionary;
use karst_format::filter::COMPATIBILITY_NAME;
use karst_format::footer::{Footer, FooterError, MAX_FOOTER_BYTES};
use karst_format::handle::BlockHandle;
use karst_format::key::InternalKey;
use karst_format::metaindex::{self, FilterKind, Metaindex};
use karst_format::options::choice::{IndexType, PinningTier};
use karst_format::properties::TableProperties;
use karst_format::slice_transform::PrefixExtractor;
use karst_format::unique_id::table_unique_id;
use karst_io::{OpenOptions, RandomAccessFile, report};
use karst_lsm::FileMetadata;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use karst_mem::Handle;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Minimum and maximum size of the first tail read if its size is unknown, in bytes.
pub(super) const MIN_TAIL_BYTES: u64 = 16 << 10;
const MAX_TAIL_BYTES: u64 = 512 << 10;

/// Divisor of the first tail read with partitioned metadata: only the top levels and the data after
/// them are read.
const PARTITIONED_TAIL_SHARE: u64 = 16;

impl Table {
    /// Opens `file`; `level` decides about pinning its metadata.
    pub(super) async fn open(tables: &Arc<TableCache>, file: &FileMetadata, level: u32) -> Result<Table> {
        let shared = &tables.shared;
        let path = shared.table_path(file.number, file.path_id)?;
        let handle = open_file(tables, &path).await?;
        Opening { tables, meta: file, level, file: handle }.run().await
    }
}

pub(super) async fn open_file(tables: &TableCache, path: &Path) -> Result<Arc<dyn RandomAccessFile>> {
    let shared = &tables.shared;
    let options = if shared.use_direct_reads { OpenOptions::DIRECT } else { OpenOptions::BUFFERED };
    match karst_io::open(&shared.env, path, options).await {
        Err(refused) if shared.may_read_buffered && refused.is_direct_unsupported() => {
            shared.env.say_direct_refused(&refused);
            Ok(karst_io::open(&shared.env, path, OpenOptions::BUFFERED).await?)
        }
        Err(error) if error.is_not_found() => {
            // Compat: databases created by LevelDB have tables with its extension.
            let old = path.with_extension("ldb");
            match karst_io::open(&shared.env, &old, options).await {
                Err(older) if older.is_not_found() => Err(shared.missing(path, "table file", error)),
                result => Ok(result?),
            }
        }
        result => Ok(result?),
    }
}

/// An open file on the way to a [`Table`].
pub(super) struct Opening<'a> {
    pub(super) tables: &'a Arc<TableCache>,
    pub(super) meta: &'a FileMetadata,
    pub(super) level: u32,
    pub(super) file: Arc<dyn RandomAccessFile>,
}

/// The entry points to all other parts of a table.
pub(super) struct Head {
    footer: Footer,
    pub(super) storage: Storage,
    pub(super) metaindex: Metaindex,
    pub(super) parts: Parts,
}

/// Handles of the table's parts.
pub(super) struct Parts {
    pub(super) properties: BlockHandle,
    pub(super) index: BlockHandle,
    pub(super) filter: Option<(BlockHandle, BlockKind)>,
    range_del: Option<BlockHandle>,
    dictionary: Option<BlockHandle>,
}

impl Opening<'_> {
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn corrupt(&self, handle: BlockHandle, corruption: karst_format::Corruption) -> Error {
        Error::in_block(self.path(), handle.offset, corruption)
    }

    async fn run(self) -> Result<Table> {
        let tail_bytes = self.tail_bytes();
        let (mut tail, head) = self.head(tail_bytes).await?;
        let parts = &head.parts;
        let mut wanted = vec![parts.properties];
        wanted.extend(parts.range_del);
        wanted.extend(parts.dictionary);
        if !self.tables.configuration.table_options.cache_index_and_filter_blocks {
            wanted.push(parts.index);
            wanted.extend(parts.filter.map(|(handle, _)| handle));
        }
        self.bring(&mut tail, &wanted).await?;
        let properties = self.properties(&tail, &head)?;
        self.build(&mut tail, head.storage, head.parts, properties).await
    }

    /// Reads a tail of about `tail_bytes`, with footer and metaindex.
    pub(super) async fn head(&self, tail_bytes: u64) -> Result<(Tail, Head)> {
        let (shared, size) = (&self.tables.shared, self.file.size());
        if size != self.meta.size_bytes {
            return Err(Error::corruption_at(
                self.path(),
                size,
                format_args!("file has {size} bytes, the MANIFEST says {}", self.meta.size_bytes),
            ));
        }
        let tail_bytes = tail_bytes.min(size);
        shared.stats.measure(HistogramKind::TableOpenPrefetchTailReadBytes, tail_bytes);
        let mut tail = Tail::read(&shared.env, self.file.clone(), tail_bytes).await?;
        let footer = self.footer(&tail)?;
        let storage = Storage {
            format_version: footer.format_version,
            checksum: footer.checksum,
            base_context_checksum: footer.base_context_checksum,
        };
        let metaindex_handle = footer.metaindex_handle;
        self.check(metaindex_handle)?;
        self.bring(&mut tail, &[metaindex_handle]).await?;
        let metaindex = Metaindex::decode(self.unpack(&tail, &storage, metaindex_handle)?, size)
            .map_err(|c| self.corrupt(metaindex_handle, c))?;
        let parts = self.parts(&footer, &metaindex)?;
        self.learn_tail(&parts, size);
        Ok((tail, Head { footer, storage, metaindex, parts }))
    }

    /// Decodes the properties, whose block has been read, and checks that the table is supported
    /// and is the expected one.
    pub(super) fn properties(&self, tail: &Tail, head: &Head) -> Result<TableProperties> {
        let properties = self.properties_of_any(tail, head)?;
        self.check_properties(&properties, head.parts.properties)?;
        Ok(properties)
    }

    /// Decodes the properties of any supported table.
    pub(super) fn properties_of_any(&self, tail: &Tail, head: &Head) -> Result<TableProperties> {
        let at = head.parts.properties;
        let properties = tail.block(at).expect("the block was brought");
        count_read(None, properties.len());
        let properties = TableProperties::decode_verified(properties, &head.footer, at.offset)
            .map_err(|c| self.corrupt(at, c))?;
        if let Some(what) = properties.unsupported(head.footer.format_version) {
            return Err(Error::not_supported(format!("{}: {what}", self.path().display())));
        }
        Ok(properties)
    }

    /// Reads the blocks that the tail lacks.
    pub(super) async fn bring(&self, tail: &mut Tail, handles: &[BlockHandle]) -> Result<()> {
        let shared = &self.tables.shared;
        let hits = handles.iter().filter(|handle| tail.block(**handle).is_some()).count();
        shared.stats.record(Ticker::TableOpenPrefetchTailHit, hits as u64);
        shared.stats.record(Ticker::TableOpenPrefetchTailMiss, (handles.len() - hits) as u64);
        tail.bring(&shared.env, handles).await
    }

    pub(super) fn check(&self, handle: BlockHandle) -> Result<()> {
        check_bounds(self.path(), self.file.size(), handle)
    }

    fn unpack(&self, tail: &Tail, storage: &Storage, handle: BlockHandle) -> Result<Box<[u8]>> {
        let bytes = tail.block(handle).expect("the block was brought");
        count_read(None, bytes.len());
        // Always verified, because a table is opened once and trusted from then on.
        let contents = storage
            .unpack(&self.tables.shared, handle, bytes, None, true, Vec::with_capacity)
            .map_err(|c| self.corrupt(handle, c))?;
        Ok(contents.into_owned().into_boxed_slice())
    }

    fn footer(&self, tail: &Tail) -> Result<Footer> {
        let (_, bytes) = tail.end(MAX_FOOTER_BYTES);
        Footer::decode(bytes, self.file.size()).map_err(|error| match error {
            FooterError::Corrupt(c) => {
                self.tables.shared.stats.tick(Ticker::SstFooterCorruptionCount);
                Error::in_file(self.path(), 0, c)
            }
            FooterError::Unsupported(what) => {
                Error::not_supported(format!("{}: {what}", self.path().display()))
            }
        })
    }

    /// Returns the size of the first tail read, in bytes.
    fn tail_bytes(&self) -> u64 {
        let options = &self.tables.configuration.table_options;
        let known = self.meta.tail_size_bytes;
        let learned = self.tables.typical_tail_bytes.load(Ordering::Relaxed);
        let whole = match (known, learned) {
            (0, 0) => (self.meta.size_bytes / 16).clamp(MIN_TAIL_BYTES, MAX_TAIL_BYTES),
            (0, learned) => learned,
            (known, _) => known,
        };
        let partitioned = options.index_type == IndexType::TwoLevelIndexSearch;
        if partitioned && !self.pins_partitions() {
            (whole / PARTITIONED_TAIL_SHARE).max(MIN_TAIL_BYTES).min(whole)
        } else {
            whole
        }
    }

    /// Records the tail's size, for later files whose MANIFEST entry lacks it.
    fn learn_tail(&self, parts: &Parts, size: u64) {
        let first = [Some(parts.index), parts.filter.map(|(handle, _)| handle), Some(parts.properties)];
        let start = first.iter().flatten().map(|handle| handle.offset).min().unwrap_or(size);
        // Ordering: an estimate only.
        self.tables.typical_tail_bytes.fetch_max(size - start, Ordering::Relaxed);
    }

    fn parts(&self, footer: &Footer, metaindex: &Metaindex) -> Result<Parts> {
        let missing = |what: &str| {
            Error::corruption_at(
                self.path(),
                footer.metaindex_handle.offset,
                format_args!("the metaindex names no {what}"),
            )
        };
        let filter = match metaindex.filter() {
            Some((FilterKind::Full, policy, handle)) => self.known(&policy, handle, BlockKind::Filter),
            Some((FilterKind::Partitioned, policy, handle)) => {
                self.known(&policy, handle, BlockKind::FilterIndex)
            }
            Some((FilterKind::PerBlock, ..)) | None => None,
        };
        let index = metaindex.get(metaindex::INDEX).or(footer.index_handle);
        let index = index.ok_or_else(|| missing("index block"))?;
        self.check(index)?;
        let properties = metaindex.properties().ok_or_else(|| match footer.format_version {
            // Compat: LevelDB has this footer, and no properties.
            0 => Error::not_supported(format!("{}: a table of LevelDB", self.path().display())),
            _ => missing("properties block"),
        })?;
        Ok(Parts {
            properties,
            index,
            filter,
            range_del: metaindex.get(metaindex::RANGE_DEL),
            dictionary: metaindex.get(metaindex::COMPRESSION_DICT),
        })
    }

    /// Ignores filters of users' policies, which cannot be evaluated. This costs reads, but does
    /// not change results.
    fn known(&self, policy: &str, handle: BlockHandle, kind: BlockKind) -> Option<(BlockHandle, BlockKind)> {
        if policy == COMPATIBILITY_NAME {
            return Some((handle, kind));
        }
        report!(warn, file = %self.path().display(), policy, "filter policy is not known; its filter is not used");
        None
    }

    fn check_properties(&self, properties: &TableProperties, handle: BlockHandle) -> Result<()> {
        let refuse = |what: String| Err(Error::corruption_at(self.path(), handle.offset, what));
        let own = self.tables.configuration.comparator.name();
        let theirs = &properties.comparator_name;
        if !theirs.is_empty() && theirs != own {
            return Err(Error::invalid_argument(format!(
                "{}: the table is ordered by comparator {theirs}, the column family is opened with {own}",
                self.path().display(),
            )));
        }
        if let Some(expected) = self.meta.unique_id.filter(|_| self.tables.shared.verify_unique_ids) {
            let found = table_unique_id(
                properties.db_id.as_bytes(),
                properties.db_session_id.as_bytes(),
                properties.orig_file_number,
            );
            if found != expected {
                return refuse(format!(
                    "this is another table: its unique id is {found:x?}, the MANIFEST expects {expected:x?}"
                ));
            }
        }
        Ok(())
    }

    async fn build(
        &self,
        tail: &mut Tail,
        storage: Storage,
        parts: Parts,
        properties: TableProperties,
    ) -> Result<Table> {
        let options = &self.tables.configuration.table_options;
        let layout =
            Layout::new(&properties, self.meta.largest_seq).map_err(|c| self.corrupt(parts.properties, c))?;
        let dictionary = match parts.dictionary {
            Some(handle) => {
                let bytes = self.unpack(tail, &storage, handle)?;
                Some(Arc::new(Dictionary::new(bytes)))
            }
            None => None,
        };
        let range_tombstones = match parts.range_del {
            Some(handle) => self.range_tombstones(self.unpack(tail, &storage, handle)?, handle, &layout)?,
            None => None,
        };
        let mut table = Table {
            file: self.file.clone(),
            number: self.meta.number,
            file_id: self.tables.file_id(self.meta.number),
            comparator: self.tables.configuration.comparator.clone(),
            storage,
            layout,
            index: MetaBlock { handle: parts.index, kind: BlockKind::Index, held: None },
            filter: parts.filter.map(|(handle, kind)| self.filter(handle, kind, &properties)),
            range_tombstones,
            dictionary,
            pinned_partitions: Vec::new(),
            level: self.level,
            is_on_last_level: self.tables.is_last_level(self.level),
            metadata_has_high_priority: options.cache_index_and_filter_blocks_with_high_priority,
            properties: Arc::new(properties),
            leaving: OnceLock::new(),
            _charge: None,
        };
        self.hold_metadata(tail, &mut table).await?;
        table._charge = self.tables.shared.charge(budget::TABLES, table.memory_bytes());
        Ok(table)
    }

    fn filter(&self, handle: BlockHandle, kind: BlockKind, properties: &TableProperties) -> TableFilter {
        let extractor = match &self.tables.configuration.prefix_extractor {
            Some(own) if own.has_name(&properties.prefix_extractor_name) => Some(own.clone()),
            _ => PrefixExtractor::from_name(&properties.prefix_extractor_name),
        };
        TableFilter {
            block: MetaBlock { handle, kind, held: None },
            whole_keys: properties.whole_key_filtering(),
            prefixes: if properties.prefix_filtering() { extractor } else { None },
            right: Lately::always(),
        }
    }

    fn range_tombstones(
        &self,
        contents: Box<[u8]>,
        handle: BlockHandle,
        layout: &Layout,
    ) -> Result<Option<Arc<Fragments>>> {
        let corrupt = |c| self.corrupt(handle, c);
        let block = Block::parse(contents).map_err(corrupt)?;
        let (mut cursor, mut tombstones) = (BlockCursor::new(), Vec::new());
        let mut found = cursor.seek_to_first(&block).map_err(corrupt)?;
        while found {
            let key = InternalKey::parse(cursor.key(&block)).map_err(corrupt)?;
            let seq = layout.global_seqno.unwrap_or(key.seq);
            tombstones.push(RangeTombstone::new(key.user_key, cursor.value(&block), seq));
            found = cursor.next(&block).map_err(corrupt)?;
        }
        let fragments = Fragments::build(&self.tables.configuration.comparator, tombstones);
        Ok((!fragments.is_empty()).then(|| Arc::new(fragments)))
    }
}

/// The metadata that the table pins.
struct Pinning {
    top_level: bool,
    partitions: bool,
    unpartitioned: bool,
}

impl Opening<'_> {
    fn pinning(&self) -> Pinning {
        let options = &self.tables.configuration.table_options;
        let flushed = self.level == 0 && self.meta.size_bytes <= self.tables.configuration.max_flushed_bytes;
        let pins = |tier: PinningTier, fallback: PinningTier| {
            let tier = if tier == PinningTier::Fallback { fallback } else { tier };
            match tier {
                PinningTier::All => true,
                PinningTier::FlushedAndSimilar => flushed,
                PinningTier::None | PinningTier::Fallback => false,
            }
        };
        let when = |set: bool, tier: PinningTier| if set { tier } else { PinningTier::None };
        let of_l0 = when(options.pin_l0_filter_and_index_blocks_in_cache, PinningTier::FlushedAndSimilar);
        let of_top = when(options.pin_top_level_index_and_filter, PinningTier::All);
        let tiers = &options.metadata_cache_options;
        Pinning {
            top_level: pins(tiers.top_level_index_pinning, of_top),
            partitions: pins(tiers.partition_pinning, of_l0),
            unpartitioned: pins(tiers.unpartitioned_pinning, of_l0),
        }
    }

    fn pins_partitions(&self) -> bool {
        self.pinning().partitions
    }

    /// Places metadata that is already in memory as the options require.
    async fn hold_metadata(&self, tail: &mut Tail, table: &mut Table) -> Result<()> {
        let pinning = self.pinning();
        let use_cache = self.tables.configuration.table_options.cache_index_and_filter_blocks;
        let pin = |partitioned| if partitioned { pinning.top_level } else { pinning.unpartitioned };

        let (index, kind) = (table.index.handle, table.index.kind);
        let pin_index = pin(table.layout.index_is_partitioned);
        let filter = table.filter.as_ref().map(|f| (f.block.handle, f.block.kind));
        let pin_filter = filter.is_some_and(|(_, kind)| pin(kind == BlockKind::FilterIndex));
        let mut wanted = Vec::new();
        wanted.extend(pin_index.then_some(index));
        wanted.extend(filter.filter(|_| pin_filter).map(|(handle, _)| handle));
        self.bring(tail, &wanted).await?;

        let top_of_index = self.keep(tail, table, index, kind, use_cache)?;
        table.index.held = top_of_index.clone().filter(|_| pin_index || !use_cache);
        let mut top_of_filter = None;
        if let Some((handle, kind)) = filter {
            top_of_filter = self.keep(tail, table, handle, kind, use_cache)?;
            let held = top_of_filter.clone().filter(|_| pin_filter || !use_cache);
            table.filter.as_mut().expect("there is one").block.held = held;
        }
        if pinning.partitions {
            self.pin_partitions(tail, table, top_of_index, top_of_filter).await?;
        }
        Ok(())
    }

    /// Decodes a metadata block if it is in memory, and inserts it into the cache if it belongs
    /// there.
    fn keep(
        &self,
        tail: &Tail,
        table: &Table,
        handle: BlockHandle,
        kind: BlockKind,
        use_cache: bool,
    ) -> Result<Option<BlockRef>> {
        let Some(bytes) = tail.block(handle) else { return Ok(None) };
        let shared = &self.tables.shared;
        let key = table.cache_key(handle);
        if use_cache && let Some(block) = shared.cache.get(key) {
            return table.checked(block, handle, kind).map(Some);
        }
        count_read(kind, bytes.len());
        let dictionary = table.dictionary.as_deref();
        let contents = table
            .storage
            .unpack(shared, handle, bytes, dictionary, true, Vec::with_capacity)
            .map_err(|c| self.corrupt(handle, c))?;
        let block = table.layout.parse(kind, contents).map_err(|c| self.corrupt(handle, c))?;
        if !use_cache {
            return Ok(Some(Handle::standalone(block)));
        }
        let charge = shared.block_charge(&block);
        count_cache_add(&shared.stats, kind, charge);
        Ok(Some(shared.cache.insert(key, block, charge, table.priority(kind))))
    }

    /// Reads all partitions named in the top levels, all at the same time, and pins them in the
    /// cache.
    async fn pin_partitions(
        &self,
        tail: &mut Tail,
        table: &mut Table,
        top_of_index: Option<BlockRef>,
        top_of_filter: Option<BlockRef>,
    ) -> Result<()> {
        let mut partitions = Vec::new();
        if let Some(top) = top_of_index.filter(|_| table.layout.index_is_partitioned) {
            let handles = table.all_handles(&top, table.index.handle)?;
            partitions.extend(handles.into_iter().map(|handle| (handle, BlockKind::IndexPartition)));
        }
        if let Some(filter) = table.filter.as_ref().filter(|f| f.block.kind == BlockKind::FilterIndex)
            && let Some(top) = top_of_filter
        {
            let handles = table.all_handles(&top, filter.block.handle)?;
            partitions.extend(handles.into_iter().map(|handle| (handle, BlockKind::FilterPartition)));
        }
        let handles: Vec<BlockHandle> = partitions.iter().map(|(handle, _)| *handle).collect();
        for handle in &handles {
            self.check(*handle)?;
        }
        self.bring(tail, &handles).await?;
        for (handle, kind) in partitions {
            table.pinned_partitions.extend(self.keep(tail, table, handle, kind, true)?);
        }
        Ok(())
    }
}
