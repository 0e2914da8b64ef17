//! Reader of one table file without a database: footer, metaindex, properties, and every block in
//! order.
//!
//! Input: a path. Output: decoded parts; an error names the file and the offset. Blocks are read
//! one at a time, so a large file takes little memory. Every checksum is verified.

use karst_format::Corruption;
use karst_format::block::{Block, BlockCursor};
use karst_format::checksum::verify_block_trailer;
use karst_format::comparator::Comparator;
use karst_format::compression::{self, CompressionType, Dictionary, MAX_BLOCK_BYTES};
use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_format::index::{IndexBlock, IndexCursor, IndexType};
use karst_format::metaindex::{COMPRESSION_DICT, INDEX, Metaindex, RANGE_DEL};
use karst_format::properties::TableProperties;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open table file.
pub(crate) struct TableFile {
    path: PathBuf,
    file: File,
    pub(crate) size_bytes: u64,
    pub(crate) footer: Footer,
    pub(crate) metaindex: Metaindex,
    pub(crate) properties: TableProperties,
    dictionary: Option<Dictionary>,
    index: IndexBlock,
    partitioned: bool,
}

/// An entry of the index: the separator, as a user key, and the data block.
pub(crate) struct IndexRow {
    pub(crate) separator: Vec<u8>,
    pub(crate) handle: BlockHandle,
}

impl TableFile {
    pub(crate) fn open(path: &Path) -> Result<TableFile, String> {
        let at = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = File::open(path).map_err(at)?;
        let size_bytes = file.metadata().map_err(at)?.len();
        let mut tail = vec![0; size_bytes.min(MAX_FOOTER_BYTES as u64) as usize];
        let tail_at = size_bytes - tail.len() as u64;
        file.read_exact_at(&mut tail, tail_at).map_err(at)?;
        let footer = Footer::decode(&tail, size_bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        let raw = Raw { path, file: &file, size_bytes, footer: &footer };
        let metaindex = Metaindex::decode(raw.contents(footer.metaindex_handle, None)?, size_bytes)
            .map_err(|c| raw.corrupt(footer.metaindex_handle, c))?;
        let properties = match metaindex.properties() {
            None => TableProperties::default(),
            Some(handle) => TableProperties::decode_verified(&raw.stored(handle)?, &footer, handle.offset)
                .map_err(|c| raw.corrupt(handle, c))?,
        };
        let dictionary = match metaindex.get(COMPRESSION_DICT) {
            Some(handle) => Some(Dictionary::new(raw.contents(handle, None)?)),
            None => None,
        };
        let handle = footer.index_handle.or(metaindex.get(INDEX));
        let handle = handle.ok_or_else(|| format!("{}: the table has no index", path.display()))?;
        let index_type = properties
            .index_type()
            .map_err(|number| format!("{}: index of unknown type {number}", path.display()))?;
        let partitioned = index_type == IndexType::TwoLevelIndexSearch;
        let index = IndexBlock::parse(raw.contents(handle, None)?, properties.index_layout())
            .map_err(|c| raw.corrupt(handle, c))?;
        Ok(TableFile {
            path: path.to_owned(),
            size_bytes,
            footer,
            metaindex,
            properties,
            dictionary,
            index,
            partitioned,
            file,
        })
    }

    fn raw(&self) -> Raw<'_> {
        Raw { path: &self.path, file: &self.file, size_bytes: self.size_bytes, footer: &self.footer }
    }

    /// Returns the comparator of the table, or an error if it is not known.
    pub(crate) fn comparator(&self) -> Result<Comparator, String> {
        let name = &self.properties.comparator_name;
        Comparator::lookup(name).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Returns every entry of the index, in order.
    pub(crate) fn index_rows(&self) -> Result<Vec<IndexRow>, String> {
        let mut rows = Vec::new();
        let top_handle = self.footer.index_handle.or(self.metaindex.get(INDEX)).unwrap_or_default();
        let mut cursor = IndexCursor::new();
        let corrupt = |handle, c| self.raw().corrupt(handle, c);
        let mut found = cursor.seek_to_first(&self.index).map_err(|c| corrupt(top_handle, c))?;
        while found {
            if self.partitioned {
                let handle = cursor.handle();
                let partition = IndexBlock::parse(self.raw().contents(handle, None)?, self.index.layout())
                    .map_err(|c| corrupt(handle, c))?;
                collect(&partition, &mut rows).map_err(|c| corrupt(handle, c))?;
            } else {
                rows.push(IndexRow {
                    separator: cursor.user_key(&self.index).to_vec(),
                    handle: cursor.handle(),
                });
            }
            found = cursor.next(&self.index).map_err(|c| corrupt(top_handle, c))?;
        }
        Ok(rows)
    }

    /// Calls `entry` with each internal key and value of a data block, until it returns false.
    /// Returns false in that case.
    pub(crate) fn block_entries(
        &self,
        handle: BlockHandle,
        mut entry: impl FnMut(&[u8], &[u8]) -> Result<bool, String>,
    ) -> Result<bool, String> {
        let contents = self.raw().contents(handle, self.dictionary.as_ref())?;
        let corrupt = |c| self.raw().corrupt(handle, c);
        let block = Block::parse(contents).map_err(corrupt)?;
        let mut cursor = match self.properties.external_global_seqno() {
            Some(seq) if self.properties.external_file_version().is_some() => {
                BlockCursor::with_global_seqno(seq)
            }
            _ => BlockCursor::new(),
        };
        let mut found = cursor.seek_to_first(&block).map_err(corrupt)?;
        while found {
            if !entry(cursor.key(&block), cursor.value(&block))? {
                return Ok(false);
            }
            found = cursor.next(&block).map_err(corrupt)?;
        }
        Ok(true)
    }

    /// Calls `tombstone` with the internal key and the end key of each range tombstone.
    pub(crate) fn range_tombstones(
        &self,
        mut tombstone: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(handle) = self.metaindex.get(RANGE_DEL) else { return Ok(()) };
        self.block_entries(handle, |key, end| tombstone(key, end).map(|()| true)).map(|_| ())
    }

    /// Reads and verifies every block that the index and the metaindex refer to. Returns the number
    /// of blocks.
    pub(crate) fn verify(&self) -> Result<u64, String> {
        let mut blocks = 0;
        for row in self.index_rows()? {
            self.block_entries(row.handle, |_, _| Ok(true))?;
            blocks += 1;
        }
        for (_, handle) in self.metaindex.iter() {
            self.raw().stored_verified(handle)?;
            blocks += 1;
        }
        Ok(blocks)
    }

    /// Returns the compression of a block's stored bytes.
    pub(crate) fn block_compression(&self, handle: BlockHandle) -> Result<CompressionType, String> {
        let stored = self.raw().stored(handle)?;
        CompressionType::from_u8(stored[stored.len() - BLOCK_TRAILER_BYTES])
            .map_err(|c| self.raw().corrupt(handle, c))
    }
}

fn collect(index: &IndexBlock, rows: &mut Vec<IndexRow>) -> Result<(), Corruption> {
    let mut cursor = IndexCursor::new();
    let mut found = cursor.seek_to_first(index)?;
    while found {
        rows.push(IndexRow { separator: cursor.user_key(index).to_vec(), handle: cursor.handle() });
        found = cursor.next(index)?;
    }
    Ok(())
}

/// Values that are needed to read a block.
struct Raw<'a> {
    path: &'a Path,
    file: &'a File,
    size_bytes: u64,
    footer: &'a Footer,
}

impl Raw<'_> {
    fn corrupt(&self, handle: BlockHandle, c: Corruption) -> String {
        format!("{}: block at offset {}: {c}", self.path.display(), handle.offset)
    }

    /// Returns the block as stored, with its trailer.
    fn stored(&self, handle: BlockHandle) -> Result<Vec<u8>, String> {
        let Some(range) = handle.range(self.size_bytes) else {
            return Err(format!(
                "{}: a block of {} bytes at offset {} lies outside the file of {} bytes",
                self.path.display(),
                handle.size,
                handle.offset,
                self.size_bytes
            ));
        };
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file
            .read_exact_at(&mut bytes, range.start)
            .map_err(|e| format!("{}: offset {}: {e}", self.path.display(), handle.offset))?;
        Ok(bytes)
    }

    fn stored_verified(&self, handle: BlockHandle) -> Result<(Vec<u8>, u8), String> {
        let bytes = self.stored(handle)?;
        let kind = verify_block_trailer(self.footer.checksum, &bytes, self.footer.context(handle.offset))
            .map_err(|c| self.corrupt(handle, c))?;
        Ok((bytes, kind))
    }

    fn contents(&self, handle: BlockHandle, dictionary: Option<&Dictionary>) -> Result<Box<[u8]>, String> {
        let (bytes, kind) = self.stored_verified(handle)?;
        let body = &bytes[..bytes.len() - BLOCK_TRAILER_BYTES];
        CompressionType::from_u8(kind)
            .and_then(|kind| {
                compression::decompress(kind, body, dictionary, self.footer.format_version, MAX_BLOCK_BYTES)
            })
            .map_err(|c| self.corrupt(handle, c))
    }
}
