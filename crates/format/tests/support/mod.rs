//! A whole-file table reader for tests, which checks, decodes and walks every block; and the tools
//! of Debian's rocksdb-tools package, whose absence fails a test.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use karst_format::block::{Block, BlockCursor, PointSeek};
use karst_format::checksum::verify_block_trailer;
use karst_format::comparator::Comparator;
use karst_format::compression::{self, CompressionType, Dictionary, MAX_BLOCK_BYTES};
use karst_format::filter::FilterReader;
use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::handle::BlockHandle;
use karst_format::index::{IndexBlock, IndexCursor, IndexLayout, IndexType};
use karst_format::key::{self, InternalKey};
use karst_format::metaindex::{COMPRESSION_DICT, FilterKind, INDEX, Metaindex, RANGE_DEL};
use karst_format::properties::TableProperties;
use std::path::Path;
use std::process::Command;

pub type Entry = (Vec<u8>, Vec<u8>);
pub type Entries = Vec<Entry>;

pub struct Table {
    bytes: Vec<u8>,
    pub footer: Footer,
    pub metaindex: Metaindex,
    pub properties: TableProperties,
    dictionary: Option<Dictionary>,
    index: IndexBlock,
    pub comparator: Comparator,
    /// Compression types of the data blocks read so far.
    pub compressions: std::cell::RefCell<std::collections::BTreeSet<CompressionType>>,
    pub data_blocks_with_hash_index: std::cell::Cell<usize>,
}

impl Table {
    pub fn open(path: &Path) -> Table {
        Table::from_bytes(std::fs::read(path).unwrap())
    }

    pub fn from_bytes(bytes: Vec<u8>) -> Table {
        Table::try_from_bytes(bytes).unwrap()
    }

    pub fn try_from_bytes(bytes: Vec<u8>) -> Result<Table, String> {
        let size = bytes.len() as u64;
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let footer = Footer::decode(&bytes[bytes.len().saturating_sub(MAX_FOOTER_BYTES)..], size)
            .map_err(|e| text(&e))?;
        let read =
            |handle: BlockHandle| read_block(&bytes, &footer, handle, None).map(|(contents, _)| contents);
        let metaindex = Metaindex::decode(read(footer.metaindex_handle)?, size).map_err(|e| text(&e))?;
        let handle = metaindex.properties().ok_or("no properties")?;
        let range = handle.range(size).ok_or("properties outside")?;
        let properties = TableProperties::decode_verified(
            &bytes[range.start as usize..range.end as usize],
            &footer,
            handle.offset,
        )
        .map_err(|e| text(&e))?;
        let dictionary = match metaindex.get(COMPRESSION_DICT) {
            Some(handle) => Some(Dictionary::new(read(handle)?)),
            None => None,
        };
        let index_handle = footer.index_handle.or(metaindex.get(INDEX)).ok_or("no index")?;
        let index_type = properties.index_type().map_err(|n| format!("index type {n}"))?;
        let mut layout = properties.index_layout();
        if index_type == IndexType::TwoLevelIndexSearch {
            layout.first_keys = false;
        }
        let index = IndexBlock::parse(read(index_handle)?, layout).map_err(|e| text(&e))?;
        let comparator = Comparator::from_name(&properties.comparator_name).unwrap_or_default();
        Ok(Table {
            footer,
            metaindex,
            properties,
            dictionary,
            index,
            comparator,
            compressions: Default::default(),
            data_blocks_with_hash_index: Default::default(),
            bytes,
        })
    }

    pub fn layout(&self) -> IndexLayout {
        self.index.layout()
    }

    pub fn has_dictionary(&self) -> bool {
        self.dictionary.is_some()
    }

    fn read(&self, handle: BlockHandle, dictionary: Option<&Dictionary>) -> Result<Box<[u8]>, String> {
        let (contents, compression) = read_block(&self.bytes, &self.footer, handle, dictionary)?;
        self.compressions.borrow_mut().insert(compression);
        Ok(contents)
    }

    fn partitioned(&self) -> bool {
        self.properties.index_type() == Ok(IndexType::TwoLevelIndexSearch)
    }

    /// Returns every data block's index entry, in order: user key of the separator, handle, first
    /// key.
    #[allow(clippy::type_complexity)]
    pub fn data_handles(&self) -> Result<Vec<(Vec<u8>, BlockHandle, Option<Vec<u8>>)>, String> {
        let mut handles = Vec::new();
        let mut collect = |index: &IndexBlock| -> Result<(), String> {
            let mut cursor = IndexCursor::new();
            let mut found = cursor.seek_to_first(index).map_err(|e| e.to_string())?;
            while found {
                handles.push((
                    cursor.user_key(index).to_vec(),
                    cursor.handle(),
                    cursor.first_internal_key(index).map(<[u8]>::to_vec),
                ));
                found = cursor.next(index).map_err(|e| e.to_string())?;
            }
            Ok(())
        };
        if self.partitioned() {
            let mut top = IndexCursor::new();
            let mut found = top.seek_to_first(&self.index).map_err(|e| e.to_string())?;
            while found {
                let contents = self.read(top.handle(), None)?;
                collect(&IndexBlock::parse(contents, self.index.layout()).map_err(|e| e.to_string())?)?;
                found = top.next(&self.index).map_err(|e| e.to_string())?;
            }
        } else {
            collect(&self.index)?;
        }
        Ok(handles)
    }

    pub fn data_block(&self, handle: BlockHandle) -> Result<Block, String> {
        let contents = self.read(handle, self.dictionary.as_ref())?;
        let block = Block::parse(contents).map_err(|e| e.to_string())?;
        if block.has_hash_index() {
            self.data_blocks_with_hash_index.set(self.data_blocks_with_hash_index.get() + 1);
        }
        Ok(block)
    }

    /// Returns all point entries, forwards. Checks their order, the separators and the first keys.
    pub fn scan(&self) -> Result<Entries, String> {
        let mut entries: Entries = Vec::new();
        for (separator, handle, first_key) in self.data_handles()? {
            let block = self.data_block(handle)?;
            let mut cursor = BlockCursor::new();
            let mut found = cursor.seek_to_first(&block).map_err(|e| e.to_string())?;
            if let Some(first_key) = first_key
                && (!found || cursor.key(&block) != first_key)
            {
                return Err("first key in the index is not the block's".into());
            }
            while found {
                let key = cursor.key(&block);
                InternalKey::parse(key).map_err(|e| e.to_string())?;
                if let Some((last, _)) = entries.last()
                    && self.comparator.compare_internal(last, key).is_ge()
                {
                    return Err("keys out of order".into());
                }
                if self.comparator.compare_user(key::user_key(key), &separator).is_gt() {
                    return Err("key behind its separator".into());
                }
                entries.push((key.to_vec(), cursor.value(&block).to_vec()));
                found = cursor.next(&block).map_err(|e| e.to_string())?;
            }
        }
        Ok(entries)
    }

    /// Returns all point entries, backwards.
    pub fn scan_backwards(&self) -> Result<Entries, String> {
        let mut entries: Entries = Vec::new();
        for (_, handle, _) in self.data_handles()?.into_iter().rev() {
            let block = self.data_block(handle)?;
            let mut cursor = BlockCursor::new();
            let mut found = cursor.seek_to_last(&block).map_err(|e| e.to_string())?;
            while found {
                entries.push((cursor.key(&block).to_vec(), cursor.value(&block).to_vec()));
                found = cursor.prev(&block).map_err(|e| e.to_string())?;
            }
        }
        Ok(entries)
    }

    /// Returns the first entry not smaller than `target`, found by index and block search.
    pub fn seek(&self, target: &[u8]) -> Result<Option<Entry>, String> {
        let text = |e: karst_format::Corruption| e.to_string();
        let mut handle = self.index.find(&self.comparator, target).map_err(text)?;
        if let (true, Some(partition)) = (self.partitioned(), handle) {
            let partition =
                IndexBlock::parse(self.read(partition, None)?, self.index.layout()).map_err(text)?;
            handle = partition.find(&self.comparator, target).map_err(text)?;
        }
        let Some(handle) = handle else { return Ok(None) };
        let block = self.data_block(handle)?;
        let mut cursor = BlockCursor::new();
        match cursor.seek_for_get(&block, &self.comparator, target).map_err(text)? {
            PointSeek::At => Ok(Some((cursor.key(&block).to_vec(), cursor.value(&block).to_vec()))),
            PointSeek::PastEnd | PointSeek::Absent => Ok(None),
        }
    }

    /// Returns false if the filter excludes a user key; `None` without a filter.
    pub fn may_contain(&self, user_key: &[u8]) -> Result<Option<bool>, String> {
        let Some((kind, _, handle)) = self.metaindex.filter() else { return Ok(None) };
        let mut contents = self.read(handle, None)?;
        if kind == FilterKind::Partitioned {
            let layout = self.properties.filter_index_layout();
            let top = IndexBlock::parse(contents, layout).map_err(|e| e.to_string())?;
            let target =
                InternalKey { user_key, seq: key::SeqNo::MAX, kind: key::ValueType::FOR_SEEK }.to_vec();
            let Some(partition) = top.find(&self.comparator, &target).map_err(|e| e.to_string())? else {
                return Ok(Some(false));
            };
            contents = self.read(partition, None)?;
        }
        Ok(Some(FilterReader::parse(&contents).may_match_key(user_key)))
    }

    /// Returns the contents of the filter block, if the table has a full filter.
    pub fn full_filter(&self) -> Result<Option<Box<[u8]>>, String> {
        match self.metaindex.filter() {
            Some((FilterKind::Full, _, handle)) => self.read(handle, None).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the range tombstones: start internal key and end user key.
    pub fn range_deletions(&self) -> Result<Entries, String> {
        let Some(handle) = self.metaindex.get(RANGE_DEL) else { return Ok(Vec::new()) };
        let block = Block::parse(self.read(handle, None)?).map_err(|e| e.to_string())?;
        let mut cursor = BlockCursor::new();
        let mut entries = Vec::new();
        let mut found = cursor.seek_to_first(&block).map_err(|e| e.to_string())?;
        while found {
            entries.push((cursor.key(&block).to_vec(), cursor.value(&block).to_vec()));
            found = cursor.next(&block).map_err(|e| e.to_string())?;
        }
        Ok(entries)
    }
}

fn read_block(
    bytes: &[u8],
    footer: &Footer,
    handle: BlockHandle,
    dictionary: Option<&Dictionary>,
) -> Result<(Box<[u8]>, CompressionType), String> {
    let range = handle.range(bytes.len() as u64).ok_or("block outside the file")?;
    let stored = &bytes[range.start as usize..range.end as usize];
    let byte = verify_block_trailer(footer.checksum, stored, footer.context(handle.offset))
        .map_err(|e| e.to_string())?;
    let compression = CompressionType::from_u8(byte).map_err(|e| e.to_string())?;
    let data = &stored[..handle.size as usize];
    let contents =
        compression::decompress(compression, data, dictionary, footer.format_version, MAX_BLOCK_BYTES)
            .map_err(|e| e.to_string())?;
    Ok((contents, compression))
}

/// Runs one of RocksDB's tools and returns its output of both streams.
pub fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|e| {
        panic!("{name} does not start ({e}); this test needs RocksDB's tools: apt-get install rocksdb-tools")
    });
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {arguments:?} failed: {text}");
    text
}

/// Returns the lines that `sst_dump --command=scan` prints for point entries: user key, sequence
/// number, type, value, the bytes in hexadecimal.
pub fn scan_lines(entries: &Entries) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<String>();
    entries
        .iter()
        .map(|(key, value)| {
            let parsed = InternalKey::parse(key).unwrap();
            format!(
                "'{}' seq:{}, type:{} => {}",
                hex(parsed.user_key),
                parsed.seq,
                parsed.kind as u8,
                hex(value)
            )
        })
        .collect()
}

/// Returns the entries that `sst_dump` finds in a file, in the form of [`scan_lines`].
pub fn sst_dump_scan(path: &Path) -> Vec<String> {
    let file = format!("--file={}", path.display());
    let text = tool("sst_dump", &[&file, "--command=scan", "--output_hex"]);
    text.lines().filter(|line| line.starts_with('\'')).map(str::to_owned).collect()
}
