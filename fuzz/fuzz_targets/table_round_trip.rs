//! Any bytes as keys, values and options of a table: the table built from them reads back entry by
//! entry.
#![no_main]

use karst_format::block::{Block, BlockCursor};
use karst_format::checksum::{ChecksumType, verify_block_trailer};
use karst_format::compression::{CompressionType, Dictionary, decompress};
use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::handle::BlockHandle;
use karst_format::index::{IndexBlock, IndexCursor, IndexType};
use karst_format::key::{InternalKey, SeqNo, ValueType};
use karst_format::metaindex::{COMPRESSION_DICT, INDEX, Metaindex};
use karst_format::properties::TableProperties;
use karst_format::table_builder::{TableBuilder, TableOptions};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fuzz_target!(|data: &[u8]| {
    let [version, kind, index, shape, data @ ..] = data else { return };
    let mut entries = BTreeMap::new();
    let mut rest = data;
    while let [key_len, value_len, seq, after @ ..] = rest {
        let (key, after) = after.split_at((*key_len as usize % 40).min(after.len()));
        let (value, after) = after.split_at((*value_len as usize).min(after.len()));
        // Newest first, as internal keys sort.
        entries.insert((key, std::cmp::Reverse(*seq)), value);
        rest = after;
    }
    let index_type =
        [IndexType::BinarySearch, IndexType::TwoLevelIndexSearch, IndexType::BinarySearchWithFirstKey]
            [*index as usize % 3];
    let options = TableOptions {
        format_version: 2 + u32::from(version % 6),
        compression: CompressionType::ALL[*kind as usize % 7],
        checksum: ChecksumType::from_u8(kind % 5).unwrap(),
        max_dictionary_bytes: if index & 8 != 0 { 100 } else { 0 },
        index_type,
        index_restart_interval: 1 + usize::from(index >> 6),
        metadata_block_bytes: 50,
        block_bytes: 100 + 40 * usize::from(shape & 15),
        restart_interval: 1 + usize::from(shape >> 4 & 3),
        data_block_hash_ratio: (shape & 64 != 0).then_some(0.75),
        separate_values: shape & 128 != 0,
        ..TableOptions::default()
    };
    let mut builder = TableBuilder::new(options).unwrap();
    let encode =
        |key, seq: u8| InternalKey { user_key: key, seq: SeqNo(seq.into()), kind: ValueType::Value }.to_vec();
    for (&(key, seq), value) in &entries {
        builder.add(&encode(key, seq.0), value).unwrap();
    }
    let finished = builder.finish().expect("nothing was damaged while it was built");
    let bytes = builder.take_output();
    assert_eq!(finished.file_bytes, bytes.len() as u64);

    let size = bytes.len() as u64;
    let footer = Footer::decode(&bytes[bytes.len() - MAX_FOOTER_BYTES..], size).unwrap();
    let read = |handle: BlockHandle, dictionary: Option<&Dictionary>| {
        let range = handle.range(size).unwrap();
        let stored = &bytes[range.start as usize..range.end as usize];
        let compression =
            verify_block_trailer(footer.checksum, stored, footer.context(handle.offset)).unwrap();
        let compression = CompressionType::from_u8(compression).unwrap();
        decompress(compression, &stored[..stored.len() - 5], dictionary, footer.format_version, 1 << 24)
            .unwrap()
    };
    let metaindex = Metaindex::decode(read(footer.metaindex_handle, None), size).unwrap();
    let properties = TableProperties::decode(read(metaindex.properties().unwrap(), None)).unwrap();
    let dictionary = metaindex.get(COMPRESSION_DICT).map(|handle| Dictionary::new(read(handle, None)));
    let top = footer.index_handle.or(metaindex.get(INDEX)).unwrap();
    let layout = properties.index_layout();
    let handles = |handle: BlockHandle| {
        let index = IndexBlock::parse(read(handle, None), layout).unwrap();
        let mut cursor = IndexCursor::new();
        let mut handles = Vec::new();
        let mut found = cursor.seek_to_first(&index).unwrap();
        while found {
            handles.push(cursor.handle());
            found = cursor.next(&index).unwrap();
        }
        handles
    };
    let mut blocks = handles(top);
    if index_type == IndexType::TwoLevelIndexSearch {
        blocks = blocks.into_iter().flat_map(handles).collect();
    }
    let mut expected = entries.iter();
    for handle in blocks {
        let block = Block::parse(read(handle, dictionary.as_ref())).unwrap();
        let mut cursor = BlockCursor::new();
        let mut found = cursor.seek_to_first(&block).unwrap();
        while found {
            let (&(key, seq), value) = expected.next().unwrap();
            assert_eq!(cursor.key(&block), encode(key, seq.0));
            assert_eq!(cursor.value(&block), *value);
            found = cursor.next(&block).unwrap();
        }
    }
    assert!(expected.next().is_none());
});
