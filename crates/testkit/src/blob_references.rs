//! The values in blob files that tables refer to, counted by a walk over the tables' blocks that
//! shares no code with the engine. Tests compare the MANIFEST's counts with it.

use karst_format::blob::{BlobIndex, RECORD_HEADER_BYTES};
use karst_format::block::{Block, BlockCursor};
use karst_format::checksum::verify_block_trailer;
use karst_format::compression::{CompressionType, Dictionary, MAX_BLOCK_BYTES, decompress};
use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_format::index::{IndexBlock, IndexCursor, IndexType};
use karst_format::key::{self, ValueType};
use karst_format::metaindex::{COMPRESSION_DICT, INDEX, Metaindex};
use karst_format::properties::TableProperties;
use karst_format::wide_column;
use std::collections::BTreeMap;

/// Number of values and bytes of their records, by the number of the blob file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobReferences(pub BTreeMap<u64, (u64, u64)>);

impl BlobReferences {
    /// Adds those of a table, which is given whole.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn add_table(&mut self, table: &[u8]) -> Result<(), String> {
        let tail = &table[table.len().saturating_sub(MAX_FOOTER_BYTES)..];
        let footer = Footer::decode(tail, table.len() as u64).map_err(|e| e.to_string())?;
        let blocks = Blocks { table, footer: &footer };
        let metaindex =
            Metaindex::decode(blocks.contents(footer.metaindex_handle, None)?, table.len() as u64)
                .map_err(|e| e.to_string())?;
        let handle = metaindex.properties().ok_or("the table has no properties")?;
        let properties = TableProperties::decode_verified(blocks.stored(handle)?, &footer, handle.offset)
            .map_err(|e| e.to_string())?;
        let dictionary = match metaindex.get(COMPRESSION_DICT) {
            Some(handle) => Some(Dictionary::new(blocks.contents(handle, None)?)),
            None => None,
        };
        let handle = footer.index_handle.or(metaindex.get(INDEX)).ok_or("the table has no index")?;
        let parse = |handle| {
            let contents = blocks.contents(handle, None)?;
            IndexBlock::parse(contents, properties.index_layout()).map_err(|e| e.to_string())
        };
        let mut of_data = handles(&parse(handle)?)?;
        if properties.index_type() == Ok(IndexType::TwoLevelIndexSearch) {
            let mut of_partitions = Vec::new();
            for handle in of_data {
                of_partitions.extend(handles(&parse(handle)?)?);
            }
            of_data = of_partitions;
        }
        for handle in of_data {
            let contents = blocks.contents(handle, dictionary.as_ref())?;
            let block = Block::parse(contents).map_err(|e| e.to_string())?;
            let mut cursor = BlockCursor::new();
            let mut found = cursor.seek_to_first(&block).map_err(|e| e.to_string())?;
            while found {
                self.add_entry(cursor.key(&block), cursor.value(&block)).map_err(|e| e.to_string())?;
                found = cursor.next(&block).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Adds those of an entry.
    fn add_entry(&mut self, internal_key: &[u8], value: &[u8]) -> Result<(), karst_format::Corruption> {
        let kind = internal_key[internal_key.len() - key::TRAILER_BYTES];
        let key_bytes = key::user_key(internal_key).len();
        if kind == ValueType::BlobIndex as u8 {
            return self.add(key_bytes, value);
        }
        if kind == ValueType::WideColumnEntity as u8 && wide_column::has_blobs(value)? {
            for column in wide_column::decode(value)?.iter().filter(|column| column.is_blob) {
                self.add(key_bytes, column.value)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, key_bytes: usize, reference: &[u8]) -> Result<(), karst_format::Corruption> {
        let (BlobIndex::Stored { file, size, .. } | BlobIndex::StoredTtl { file, size, .. }) =
            BlobIndex::decode(reference)?
        else {
            return Ok(());
        };
        let (count, bytes) = self.0.entry(file.0).or_default();
        *count += 1;
        *bytes += (RECORD_HEADER_BYTES + key_bytes) as u64 + size;
        Ok(())
    }
}

/// The blocks that an index leads to.
fn handles(index: &IndexBlock) -> Result<Vec<BlockHandle>, String> {
    let (mut cursor, mut handles) = (IndexCursor::new(), Vec::new());
    let mut found = cursor.seek_to_first(index).map_err(|e| e.to_string())?;
    while found {
        handles.push(cursor.handle());
        found = cursor.next(index).map_err(|e| e.to_string())?;
    }
    Ok(handles)
}

struct Blocks<'a> {
    table: &'a [u8],
    footer: &'a Footer,
}

impl<'a> Blocks<'a> {
    /// The block as stored, with its trailer.
    fn stored(&self, handle: BlockHandle) -> Result<&'a [u8], String> {
        let range = handle.range(self.table.len() as u64).ok_or("a block lies outside of the table")?;
        Ok(&self.table[range.start as usize..range.end as usize])
    }

    fn contents(&self, handle: BlockHandle, dictionary: Option<&Dictionary>) -> Result<Box<[u8]>, String> {
        let stored = self.stored(handle)?;
        let kind = verify_block_trailer(self.footer.checksum, stored, self.footer.context(handle.offset));
        let body = &stored[..stored.len() - BLOCK_TRAILER_BYTES];
        kind.and_then(CompressionType::from_u8)
            .and_then(|kind| decompress(kind, body, dictionary, self.footer.format_version, MAX_BLOCK_BYTES))
            .map_err(|e| format!("block at offset {}: {e}", handle.offset))
    }
}
