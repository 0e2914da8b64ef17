//! Metaindex block: maps the names of a table's metadata blocks to their handles.
//!
//! A plain block ([`crate::block`]) with a restart point at every entry; keys are names, values
//! block handles.
//!
//! | name | block |
//! |---|---|
//! | `rocksdb.properties` | table properties |
//! | `rocksdb.index` | index, from format_version 6 on |
//! | `rocksdb.range_del` | range tombstones |
//! | `rocksdb.compression_dict` | compression dictionary |
//! | `filter.`*policy*, `fullfilter.`*policy*, `partitionedfilter.`*policy* | filter: one per data block (not supported), one for all, top of a partitioned one |
//! | `rocksdb.hashindex.prefixes`, `rocksdb.hashindex.metadata` | hash index; not needed for reading |
//!
//! Specified by RocksDB's table/meta_blocks.cc and table/block_based/block_based_table_builder.cc.
//! In: decompressed bytes. Out: the map.

use crate::block::{Block, BlockBuilder, BlockCursor, BlockShape};
use crate::corruption::Corruption;
use crate::handle::BlockHandle;
use std::collections::BTreeMap;

/// Name of the properties block.
pub const PROPERTIES: &str = "rocksdb.properties";
/// Name of the properties block in tables made before 2013.
pub const PROPERTIES_OLD: &str = "rocksdb.stats";
/// Name of the index block, from format_version 6 on.
pub const INDEX: &str = "rocksdb.index";
/// Name of the block of range tombstones.
pub const RANGE_DEL: &str = "rocksdb.range_del";
/// Name of the compression dictionary.
pub const COMPRESSION_DICT: &str = "rocksdb.compression_dict";
/// Prefix of the policy's name for a filter per data block. No RocksDB since 8.0 reads or writes
/// them.
pub const BLOCK_FILTER_PREFIX: &str = "filter.";
/// Prefix of the policy's name for one filter of the whole table.
pub const FULL_FILTER_PREFIX: &str = "fullfilter.";
/// Prefix of the policy's name for a partitioned filter.
pub const PARTITIONED_FILTER_PREFIX: &str = "partitionedfilter.";
/// Name of the hash index's prefixes.
pub const HASH_INDEX_PREFIXES: &str = "rocksdb.hashindex.prefixes";
/// Name of the hash index's prefix lengths and positions.
pub const HASH_INDEX_METADATA: &str = "rocksdb.hashindex.metadata";

/// Layout of a filter in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// One filter for every data block; not supported, and safe to ignore.
    PerBlock,
    /// One filter for the table.
    Full,
    /// An index over filter partitions.
    Partitioned,
}

/// The decoded metaindex.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metaindex {
    handles: BTreeMap<Vec<u8>, BlockHandle>,
}

impl Metaindex {
    /// Decodes the block's contents and checks the handles against a file of `file_bytes` bytes.
    pub fn decode(contents: Box<[u8]>, file_bytes: u64) -> Result<Metaindex, Corruption> {
        let block = Block::parse(contents)?;
        let mut cursor = BlockCursor::new();
        let mut handles = BTreeMap::new();
        let mut found = cursor.seek_to_first(&block)?;
        while found {
            let at = cursor.value_range().start as u64;
            let handle = BlockHandle::decode_exact(cursor.value(&block)).map_err(|c| c.rebased(at))?;
            let name = cursor.key(&block);
            if handle.range(file_bytes).is_none() {
                return Err(Corruption::new(
                    format!("block {:?} lies outside the file", String::from_utf8_lossy(name)),
                    at,
                ));
            }
            handles.insert(name.to_vec(), handle);
            found = cursor.next(&block)?;
        }
        Ok(Metaindex { handles })
    }

    /// Returns the handle of the block `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<BlockHandle> {
        self.handles.get(name.as_bytes()).copied()
    }

    /// Returns the handle of the properties block.
    #[must_use]
    pub fn properties(&self) -> Option<BlockHandle> {
        self.get(PROPERTIES).or_else(|| self.get(PROPERTIES_OLD))
    }

    /// Returns kind, policy name and handle of the filter block, or `None` without one.
    #[must_use]
    pub fn filter(&self) -> Option<(FilterKind, String, BlockHandle)> {
        let kinds = [
            (FilterKind::Full, FULL_FILTER_PREFIX),
            (FilterKind::Partitioned, PARTITIONED_FILTER_PREFIX),
            (FilterKind::PerBlock, BLOCK_FILTER_PREFIX),
        ];
        kinds.iter().find_map(|&(kind, prefix)| {
            let (name, handle) = self.handles.iter().find(|(name, _)| name.starts_with(prefix.as_bytes()))?;
            Some((kind, String::from_utf8_lossy(&name[prefix.len()..]).into_owned(), *handle))
        })
    }

    /// Returns all names and handles, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], BlockHandle)> {
        self.handles.iter().map(|(name, handle)| (&name[..], *handle))
    }

    /// Adds a block.
    pub fn insert(&mut self, name: impl Into<Vec<u8>>, handle: BlockHandle) {
        self.handles.insert(name.into(), handle);
    }

    /// Returns the block's contents.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = BlockBuilder::new(BlockShape::plain(1));
        let mut value = Vec::new();
        for (name, handle) in &self.handles {
            value.clear();
            handle.encode_into(&mut value);
            builder.add(name, &value);
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(entries in proptest::collection::btree_map("[a-z.]{0,20}", (0u64..1000, 0u64..1000), 0..10)) {
            let mut metaindex = Metaindex::default();
            for (name, (offset, size)) in entries {
                metaindex.insert(name, BlockHandle { offset, size });
            }
            let bytes = metaindex.encode();
            prop_assert_eq!(Metaindex::decode(bytes.into(), 2005).unwrap(), metaindex);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = Metaindex::decode(bytes.into(), 1000);
        }
    }

    #[test]
    fn finds_filters_by_prefix() {
        let mut metaindex = Metaindex::default();
        let handle = BlockHandle { offset: 1, size: 2 };
        metaindex.insert("fullfilter.rocksdb.BuiltinBloomFilter", handle);
        assert_eq!(metaindex.filter(), Some((FilterKind::Full, "rocksdb.BuiltinBloomFilter".into(), handle)));
        assert!(Metaindex::decode(metaindex.encode().into(), 7).is_err());
    }
}
