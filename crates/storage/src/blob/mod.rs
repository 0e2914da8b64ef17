//! Reads of values in blob files.
//!
//! In: a reference found in a table or a memtable. Out: the value, uncompressed, from the blob
//! cache or from storage. Reads go through `Needs` like blocks: in parallel with everything else
//! that a batch needs.
//!
//! A blob file is opened at the first read of a value in it; its header, its footer and the value
//! itself are then read at the same time. Every value is checked: its record's checksum, and the
//! key stored in the record.
//!
//! Invariant: a reference to a blob file that the version does not have is corruption, never a
//! missing key.

mod warming;

pub use warming::BlobWarming;

use crate::block::{BlockRef, CachedBlock};
use crate::budget;
use crate::open_files::Shared;
use crate::spans::{join_all, read_spans, spans};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, PerfMetric, Timer};
use karst_base::stats::{HistogramKind, Ticker};
use karst_format::blob::{self, BlobFooter, BlobHeader, BlobIndex, BlobRecord, BlobRecordHeader};
use karst_format::compression::{self, CompressionType};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::version_edit::BlobFileAddition;
use karst_io::{OpenOptions, RandomAccessFile, ReadBuf};
use karst_lsm::{BlobFileMetadata, Version};
use karst_mem::{BlockCache, CacheKey, Handle, Priority};
use std::path::Path;
use std::sync::Arc;

/// A value to be read.
#[derive(Clone, Debug)]
pub struct BlobNeed {
    files: Arc<BlobFiles>,
    file: Arc<BlobFileMetadata>,
    /// Offset of the value in the file, in bytes.
    offset: u64,
    /// Stored size of the value, in bytes.
    size: u64,
    compression: CompressionType,
    user_key: Box<[u8]>,
}

impl BlobNeed {
    /// Resolves `reference`, found under `user_key`, in `version`.
    pub fn new(
        files: &Arc<BlobFiles>,
        version: &Version,
        user_key: &[u8],
        reference: &[u8],
    ) -> Result<BlobNeed> {
        let corrupt = |what: String| Error::new(ErrorKind::Corruption, what);
        let index = BlobIndex::decode(reference)
            .map_err(|c| corrupt(format!("blob reference of key {}: {c}", Shown(user_key))))?;
        let BlobIndex::Stored { file: number, offset, size, compression } = index else {
            return Err(corrupt(format!(
                "blob reference of key {} is inlined or has a time to live",
                Shown(user_key)
            )));
        };
        if number.0 == 0 {
            return Err(Error::not_supported(format!(
                "the value of key {} is embedded as a blob in its table, which is not supported",
                Shown(user_key)
            )));
        }
        let Some(file) = version.blob_files().get(&number) else {
            return Err(corrupt(format!(
                "key {} refers to blob file {number}, which the database does not have",
                Shown(user_key)
            )));
        };
        Ok(BlobNeed {
            files: files.clone(),
            file: file.clone(),
            offset,
            size,
            compression,
            user_key: user_key.into(),
        })
    }

    /// Returns the cache key of the value, unique within the process.
    pub fn key(&self) -> CacheKey {
        CacheKey(self.files.shared.file_id(self.file.number()), self.offset)
    }

    /// Returns the value if the blob cache has it.
    pub fn cached(&self) -> Option<BlockRef> {
        let found = self.files.cache.as_ref()?.get(self.key());
        let stats = &self.files.shared.stats;
        match &found {
            Some(value) => {
                stats.tick(Ticker::BlobDbCacheHit);
                let bytes = value.charge_bytes() as u64;
                stats.record(Ticker::BlobDbCacheBytesRead, bytes);
                perf_context::count(PerfMetric::BlobCacheHitCount, 1);
                perf_context::count(PerfMetric::BlobCacheReadByte, bytes);
            }
            None => stats.tick(Ticker::BlobDbCacheMiss),
        }
        found
    }

    /// Returns the number of the value's file.
    pub fn file_number(&self) -> FileNumber {
        self.file.number()
    }

    /// Returns true if the blob cache has the value; does not count as a read.
    pub fn is_cached(&self) -> bool {
        self.files.cache.as_ref().is_some_and(|cache| cache.get(self.key()).is_some())
    }

    /// Returns the file if it is open.
    pub fn opened(&self) -> Option<Arc<BlobFile>> {
        self.files.opened(&self.file)
    }

    /// Returns the range of the file to read for the value: offset and length in bytes. The range
    /// lies inside the file.
    pub fn range_in(&self, file: &BlobFile, verify_checksums: bool) -> Result<(u64, usize)> {
        record_range(self, file, verify_checksums)
    }

    /// Returns the value contained in `record`, the bytes at [`range_in`](Self::range_in).
    pub fn value_in(&self, file: &BlobFile, record: &[u8], options: &ReadOptions) -> Result<BlockRef> {
        self.files.value_in(self, file, record, options.verify_checksums, options.fill_cache)
    }

    /// Reads the value.
    pub async fn fetch(&self, verify_checksums: bool, fill_cache: bool) -> Result<BlockRef> {
        self.files.fetch(self, verify_checksums, fill_cache).await
    }
}

/// An open blob file with verified header and footer.
#[derive(Debug)]
pub struct BlobFile {
    file: Arc<dyn RandomAccessFile>,
    compression: CompressionType,
    /// End of the values in the file, in bytes.
    values_end: u64,
}

impl BlobFile {
    /// Returns the open file.
    pub fn file(&self) -> &Arc<dyn RandomAccessFile> {
        &self.file
    }
}

/// Returns the size of a blob file in bytes: header, footer, and its blobs with their headers and
/// keys.
pub fn file_bytes(described: &BlobFileMetadata) -> u64 {
    added_bytes(&described.file)
}

/// Returns the size in bytes of a file that is being added to a tree.
pub fn added_bytes(file: &BlobFileAddition) -> u64 {
    file.total_bytes.saturating_add((blob::HEADER_BYTES + blob::FOOTER_BYTES) as u64)
}

/// The blob files of a column family.
#[derive(Debug)]
pub struct BlobFiles {
    shared: Arc<Shared>,
    column_family: ColumnFamilyId,
    cache: Option<Arc<BlockCache<CachedBlock>>>,
}

impl BlobFiles {
    /// Returns the family's blob cache, which is separate from the block cache.
    pub fn cache(&self) -> Option<&BlockCache<CachedBlock>> {
        self.cache.as_deref()
    }

    /// `cache` is the blob cache, if one is configured.
    pub fn new(
        shared: Arc<Shared>,
        column_family: ColumnFamilyId,
        cache: Option<Arc<BlockCache<CachedBlock>>>,
    ) -> Self {
        BlobFiles { shared, column_family, cache }
    }

    async fn fetch(&self, need: &BlobNeed, verify_checksums: bool, fill_cache: bool) -> Result<BlockRef> {
        let timer = Timer::start(&self.shared.env);
        let began = self.shared.start_timer();
        let (file, record) = match self.opened(&need.file) {
            Some(file) => {
                let (start, length) = record_range(need, &file, verify_checksums)?;
                let _charge = self.shared.charge(budget::READS, length);
                let record = karst_io::read(&self.shared.env, &file.file, start, length).await?;
                (file, record)
            }
            None => self.open_and_read(need, verify_checksums).await?,
        };
        timer.stop(&self.shared.env, PerfMetric::BlobReadTime);
        self.shared.measure_since(HistogramKind::BlobDbBlobFileReadMicros, began);
        self.value_in(need, &file, &record, verify_checksums, fill_cache)
    }

    /// Decodes the value from its record and inserts it into the blob cache if `fill_cache`.
    fn value_in(
        &self,
        need: &BlobNeed,
        file: &BlobFile,
        record: &[u8],
        verify_checksums: bool,
        fill_cache: bool,
    ) -> Result<BlockRef> {
        let stats = &self.shared.stats;
        stats.record(Ticker::BlobDbBlobFileBytesRead, record.len() as u64);
        perf_context::count(PerfMetric::BlobReadCount, 1);
        perf_context::count(PerfMetric::BlobReadByte, record.len() as u64);
        let value = self.decode(need, file, record, verify_checksums)?;
        match &self.cache {
            Some(cache) if fill_cache => {
                let value = CachedBlock::Blob(value);
                let charge = value.charge_bytes();
                stats.tick(Ticker::BlobDbCacheAdd);
                stats.record(Ticker::BlobDbCacheBytesWrite, charge as u64);
                Ok(cache.insert(need.key(), value, charge, Priority::Bottom))
            }
            _ => Ok(Handle::standalone(CachedBlock::Blob(value))),
        }
    }

    fn opened(&self, file: &BlobFileMetadata) -> Option<Arc<BlobFile>> {
        let open = &self.shared.open_files;
        if open.is_limited() {
            return open.get(file.number());
        }
        file.stored().attachment::<Arc<BlobFile>>().cloned()
    }

    /// Keeps a file open; returns the kept one, which may be another reader's.
    fn keep(&self, file: &BlobFileMetadata, opened: Arc<BlobFile>) -> Arc<BlobFile> {
        let open = &self.shared.open_files;
        if open.is_limited() {
            return open.keep(file.number(), opened);
        }
        match file.stored().attach(opened) {
            Some(kept) => kept.clone(),
            None => unreachable!("only blob files are attached to what is stored"),
        }
    }

    /// Opens a file. Returns it with the offset of its footer.
    pub async fn open_file(&self, number: FileNumber) -> Result<(Arc<dyn RandomAccessFile>, u64)> {
        let path = self.shared.blob_path(number);
        let options = if self.shared.use_direct_reads { OpenOptions::DIRECT } else { OpenOptions::BUFFERED };
        let file = match karst_io::open(&self.shared.env, &path, options).await {
            Err(error) if self.shared.is_secondary && error.is_not_found() => {
                return Err(self.shared.missing(&path, "blob file", error));
            }
            opened => opened?,
        };
        self.shared.stats.tick(Ticker::NoFileOpens);
        let (size, least) = (file.size(), (blob::HEADER_BYTES + blob::FOOTER_BYTES) as u64);
        if size < least {
            return Err(Error::corruption_at(
                &path,
                size,
                format_args!("a blob file has {least} bytes at least"),
            ));
        }
        Ok((file, size - blob::FOOTER_BYTES as u64))
    }

    /// Opens a file that must stay open even after its removal.
    pub async fn hold_open(&self, described: &BlobFileMetadata) -> Result<()> {
        if self.opened(described).is_some() {
            return Ok(());
        }
        let (file, values_end) = self.open_file(described.number()).await?;
        let env = &self.shared.env;
        let header = karst_io::read(env, &file, 0, blob::HEADER_BYTES).await?;
        let footer = karst_io::read(env, &file, values_end, blob::FOOTER_BYTES).await?;
        let compression = self.check_header(file.path(), &header)?;
        BlobFooter::decode(&footer).map_err(|c| Error::in_file(file.path(), values_end, c))?;
        self.keep(described, Arc::new(BlobFile { file, compression, values_end }));
        Ok(())
    }

    /// Verifies header, footer and every record of a file, without using cached data.
    ///
    /// # Errors
    /// The file cannot be read, or a part of it is damaged.
    pub async fn verify(&self, described: &BlobFileMetadata) -> Result<()> {
        let (env, shared) = (&self.shared.env, &self.shared);
        let (file, footer_at) = self.open_file(described.number()).await?;
        let (path, size, expected) = (file.path(), file.size(), file_bytes(described));
        if size != expected {
            let text = format_args!("file has {size} bytes, by the MANIFEST it has {expected}");
            return Err(Error::corruption_at(path, size, text));
        }
        let mut ends = [
            karst_io::read(env, &file, 0, blob::HEADER_BYTES),
            karst_io::read(env, &file, footer_at, blob::FOOTER_BYTES),
        ];
        let mut ends = join_all(&mut ends).await.into_iter();
        let mut next = || ends.next().expect("there were two reads");
        let (header, mut as_written) = (next()?, Vec::new());
        // The header has no checksum, but only one valid encoding.
        let compression = self.check_header(path, &header)?;
        let column_family = self.column_family;
        BlobHeader { column_family, compression, has_ttl: false, expiration_range: (0, 0) }
            .encode_into(&mut as_written);
        if *header != *as_written {
            return Err(Error::corruption_at(
                path,
                0,
                "the header has times to live, or flags that are not known",
            ));
        }
        let footer = BlobFooter::decode(&next()?).map_err(|c| Error::in_file(path, footer_at, c))?;

        // Bytes read after the last complete record, which start at offset `at`.
        let (mut rest, mut at, mut records) = (Vec::new(), blob::HEADER_BYTES as u64, 0);
        let spans = spans(at, footer_at);
        read_spans(shared, &file, spans, |_, bytes| {
            rest.extend_from_slice(bytes);
            let mut used = 0;
            while let Some(header) = rest[used..].get(..blob::RECORD_HEADER_BYTES) {
                let header = BlobRecordHeader::decode(header).map_err(|c| Error::in_file(path, at, c))?;
                let Some(length) = header.record_bytes().filter(|length| *length <= footer_at - at) else {
                    return Err(Error::corruption_at(
                        path,
                        at,
                        "a record that does not end before the footer",
                    ));
                };
                let Some(record) = rest[used..].get(..length as usize) else { break };
                BlobRecord::parse(record).map_err(|c| Error::in_file(path, at, c))?;
                used += record.len();
                at += length;
                records += 1;
            }
            rest.drain(..used);
            Ok(())
        })
        .await?;
        if !rest.is_empty() {
            return Err(Error::corruption_at(path, at, "bytes before the footer that are no record"));
        }
        if [footer.blob_count, described.file.total_count] != [records; 2] {
            let text = format_args!(
                "{records} records, the footer says {}, the MANIFEST {}",
                footer.blob_count, described.file.total_count
            );
            return Err(Error::corruption_at(path, footer_at, text));
        }
        Ok(())
    }

    /// Opens the file and reads header, footer and the value's record at the same time.
    async fn open_and_read(
        &self,
        need: &BlobNeed,
        verify_checksums: bool,
    ) -> Result<(Arc<BlobFile>, ReadBuf)> {
        let (env, number) = (&self.shared.env, need.file.number());
        let (file, footer_at) = self.open_file(number).await?;
        let path = file.path();
        // Invariant: nothing read is used before header and footer have been verified.
        let unchecked = BlobFile { file: file.clone(), compression: need.compression, values_end: footer_at };
        let (start, length) = record_range(need, &unchecked, verify_checksums)?;
        let _charge = self.shared.charge(budget::READS, length);
        let mut reads = [
            karst_io::read(env, &file, 0, blob::HEADER_BYTES),
            karst_io::read(env, &file, footer_at, blob::FOOTER_BYTES),
            karst_io::read(env, &file, start, length),
        ];
        let mut results = join_all(&mut reads).await.into_iter();
        let mut next = || results.next().expect("there were three reads");
        let (header, footer, record) = (next()?, next()?, next()?);
        let compression = self.check_header(path, &header)?;
        BlobFooter::decode(&footer).map_err(|c| Error::in_file(path, footer_at, c))?;
        let opened = Arc::new(BlobFile { file, compression, values_end: footer_at });
        Ok((self.keep(&need.file, opened), record))
    }

    fn check_header(&self, path: &Path, bytes: &[u8]) -> Result<CompressionType> {
        let header = BlobHeader::decode(bytes).map_err(|c| Error::in_file(path, 0, c))?;
        if header.has_ttl {
            return Err(Error::corruption_at(path, 0, "a blob file with times to live is another engine's"));
        }
        if header.column_family != self.column_family {
            return Err(Error::corruption_at(
                path,
                0,
                format_args!(
                    "blob file of column family {}, expected {}",
                    header.column_family, self.column_family
                ),
            ));
        }
        Ok(header.compression)
    }

    /// Decodes the value from its record, uncompressed.
    fn decode(
        &self,
        need: &BlobNeed,
        file: &BlobFile,
        record: &[u8],
        verify_checksums: bool,
    ) -> Result<Box<[u8]>> {
        let (path, shared) = (file.file.path(), &self.shared);
        let (start, length) = record_range(need, file, verify_checksums)?;
        if record.len() != length {
            return Err(Error::corruption_at(path, start, "file ends inside a blob record"));
        }
        let value = if verify_checksums {
            let timer = Timer::start(&shared.env);
            let parsed = BlobRecord::parse(record).map_err(|c| Error::in_file(path, start, c))?;
            timer.stop(&shared.env, PerfMetric::BlobChecksumTime);
            if parsed.key != &*need.user_key || parsed.value.len() as u64 != need.size {
                return Err(Error::corruption_at(path, start, "the blob record is another key's"));
            }
            parsed.value
        } else {
            record
        };
        if file.compression == CompressionType::None {
            return Ok(value.into());
        }
        let timer = Timer::start(&shared.env);
        let began = shared.start_timer();
        // Blobs are compressed like format_version 2 blocks.
        let value = compression::decompress(file.compression, value, None, 2, u32::MAX as usize)
            .map_err(|c| Error::in_block(path, need.offset, c))?;
        timer.stop(&shared.env, PerfMetric::BlobDecompressTime);
        shared.measure_since(HistogramKind::BlobDbDecompressionMicros, began);
        Ok(value)
    }
}

/// Returns the range to read for a value: its whole record if the checksum is verified, else the
/// value alone.
fn record_range(need: &BlobNeed, file: &BlobFile, verify_checksums: bool) -> Result<(u64, usize)> {
    let before = (blob::RECORD_HEADER_BYTES + need.user_key.len()) as u64;
    let lowest = blob::HEADER_BYTES as u64 + before;
    let end = need.offset.checked_add(need.size);
    let fits = need.offset >= lowest && end.is_some_and(|end| end <= file.values_end);
    // The limit is 32 bits because RocksDB's values are no longer; the file's size bounds the read
    // in any case.
    if !fits || need.size > u64::from(u32::MAX) {
        return Err(Error::corruption_at(
            file.file.path(),
            need.offset,
            format_args!("a value of {} bytes does not lie inside the blob file", need.size),
        ));
    }
    if need.compression != file.compression {
        return Err(Error::corruption_at(
            file.file.path(),
            need.offset,
            format_args!("the reference says {:?}, the file {:?}", need.compression, file.compression),
        ));
    }
    let before = if verify_checksums { before } else { 0 };
    Ok((need.offset - before, (before + need.size) as usize))
}
