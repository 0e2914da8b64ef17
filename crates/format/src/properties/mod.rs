//! Table properties: metadata about a table, stored in the table.
//!
//! A plain block ([`crate::block`]) with one restart point; keys are names in byte order, values as
//! follows.
//!
//! | kind | value |
//! |---|---|
//! | number | varint64 |
//! | text | raw bytes |
//! | index type (`rocksdb.block.based.table.index.type`) | four bytes |
//! | whole-key and prefix filtering | `1` or `0` |
//! | external file version, global sequence number | four bytes, eight bytes |
//!
//! The names are listed once, below. Unlisted names are kept as user-collected properties.
//! Specified by RocksDB's table/meta_blocks.cc and table/table_properties.cc.
//!
//! In: decompressed bytes. Out: [`TableProperties`]. Invariant: encoded properties decode to an
//! equal value.

use crate::block::{Block, BlockBuilder, BlockCursor, BlockShape};
use crate::checksum;
use crate::coding::{self, Reader};
use crate::corruption::Corruption;
use crate::footer::Footer;
use crate::handle::BLOCK_TRAILER_BYTES;
use crate::index::{IndexLayout, IndexType};
use crate::key::SeqNo;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
const DECOUPLED_FILTERS: &str = "rocksdb.block.based.table.decoupled.partitioned.filters";
const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";
const GLOBAL_SEQNO: &str = "rocksdb.external_sst_file.global_seqno";
const EMBEDDED_BLOBS: &str = "rocksdb.embedded.blob.stats";
/// First format_version in which `compression_name` begins with the name of the compression
/// manager.
const NAMED_COMPRESSION: u32 = 7;
/// Name of the compression manager that all releases have.
pub(crate) const BUILTIN_COMPRESSION: &str = "BuiltinV2";

/// Condition for writing a number.
#[derive(PartialEq)]
enum Written {
    Always,
    /// Written unless it is the default.
    UnlessDefault,
}

macro_rules! properties {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident = $default:expr, $number_name:literal, $written:ident;)* }
        texts { $($(#[$text_doc:meta])* $text:ident, $text_name:literal;)* }
    ) => {
        /// The properties of a table. Fields that a table lacks have their defaults.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct TableProperties {
            $($(#[$number_doc])* pub $number: u64,)*
            $($(#[$text_doc])* pub $text: String,)*
            /// File offset of the global sequence number in a file made for ingestion; 0 in other
            /// files, and in properties that were not read from a file.
            pub external_sst_file_global_seqno_offset: u64,
            /// All other properties, by name: those that property collectors added, and names that
            /// this version does not know.
            pub user_collected: BTreeMap<Vec<u8>, Vec<u8>>,
        }

        impl Default for TableProperties {
            fn default() -> Self {
                TableProperties {
                    $($number: $default,)*
                    $($text: String::new(),)*
                    external_sst_file_global_seqno_offset: 0,
                    user_collected: BTreeMap::new(),
                }
            }
        }

        impl TableProperties {
            fn number_mut(&mut self, name: &[u8]) -> Option<&mut u64> {
                $(if name == $number_name.as_bytes() { return Some(&mut self.$number); })*
                None
            }

            fn text_mut(&mut self, name: &[u8]) -> Option<&mut String> {
                $(if name == $text_name.as_bytes() { return Some(&mut self.$text); })*
                None
            }

            /// Returns all properties by name, as stored.
            fn encoded(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
                let mut all = self.user_collected.clone();
                $(if Written::$written == Written::Always || self.$number != $default {
                    let mut value = Vec::new();
                    coding::put_varint64(&mut value, self.$number);
                    all.insert($number_name.into(), value);
                })*
                $(if !self.$text.is_empty() {
                    all.insert($text_name.into(), self.$text.clone().into());
                })*
                all
            }
        }
    };
}

properties! {
    numbers {
        /// The file number under which the table was made; 0 is unknown.
        orig_file_number = 0, "rocksdb.original.file.number", Always;
        /// Total size of data blocks, with trailers, compressed.
        data_size = 0, "rocksdb.data.size", Always;
        /// Total size of index blocks, with trailers, compressed.
        index_size = 0, "rocksdb.index.size", Always;
        /// Number of partitions of the index; 0 if it is not partitioned.
        index_partitions = 0, "rocksdb.index.partitions", UnlessDefault;
        /// Size of the top of a partitioned index.
        top_level_index_size = 0, "rocksdb.top-level.index.size", UnlessDefault;
        /// 1 if index keys are user keys.
        index_key_is_user_key = 0, "rocksdb.index.key.is.user.key", Always;
        /// 1 if handles in index blocks are delta-encoded.
        index_value_is_delta_encoded = 0, "rocksdb.index.value.is.delta.encoded", Always;
        /// 1 if a user-defined index replaces the built-in one.
        udi_is_primary_index = 0, "rocksdb.udi.is.primary.index", UnlessDefault;
        /// Size of the filter, all partitions together.
        filter_size = 0, "rocksdb.filter.size", Always;
        /// Total size of keys before any compression.
        raw_key_size = 0, "rocksdb.raw.key.size", Always;
        /// Total size of values before any compression.
        raw_value_size = 0, "rocksdb.raw.value.size", Always;
        /// Number of data blocks.
        num_data_blocks = 0, "rocksdb.num.data.blocks", Always;
        /// Number of data blocks stored uncompressed because compression gained too little.
        num_data_blocks_compression_rejected = 0, "rocksdb.num.data.blocks.compression.rejected", UnlessDefault;
        /// Number of data blocks stored uncompressed without trying.
        num_data_blocks_compression_bypassed = 0, "rocksdb.num.data.blocks.compression.bypassed", UnlessDefault;
        /// Number of blocks with evenly spread keys.
        num_uniform_blocks = 0, "rocksdb.num.uniform.blocks", UnlessDefault;
        /// Number of entries, range tombstones included.
        num_entries = 0, "rocksdb.num.entries", Always;
        /// Number of keys and prefixes in the filter.
        num_filter_entries = 0, "rocksdb.num.filter_entries", Always;
        /// Number of deletions of any kind, range tombstones included.
        num_deletions = 0, "rocksdb.deleted.keys", Always;
        /// Number of merge operands.
        num_merge_operands = 0, "rocksdb.merge.operands", Always;
        /// Number of range tombstones.
        num_range_deletions = 0, "rocksdb.num.range-deletions", Always;
        /// Format version of the table, 0 in block-based tables of older RocksDB releases.
        format_version = 0, "rocksdb.format.version", Always;
        /// Length of all keys if they have equal lengths, else 0.
        fixed_key_len = 0, "rocksdb.fixed.key.length", Always;
        /// The column family's id; `i32::MAX` is unknown.
        column_family_id = i32::MAX as u64, "rocksdb.column.family.id", Always;
        /// Time at which the oldest data of the table was written, in seconds since 1970; 0 is
        /// unknown.
        creation_time = 0, "rocksdb.creation.time", Always;
        /// Time at which the oldest key of the table was written, in seconds since 1970; 0 is
        /// unknown.
        oldest_key_time = 0, "rocksdb.oldest.key.time", Always;
        /// Time at which the newest key of the table was written, in seconds since 1970; 0 is
        /// unknown.
        newest_key_time = 0, "rocksdb.newest.key.time", UnlessDefault;
        /// Time at which the file was made, in seconds since 1970; 0 is unknown.
        file_creation_time = 0, "rocksdb.file.creation.time", UnlessDefault;
        /// Size of the data with a slow and strong compression, estimated from samples.
        slow_compression_estimated_data_size = 0, "rocksdb.sample_for_compression.slow.data.size", UnlessDefault;
        /// Size of the data with a fast and weak compression, estimated from samples.
        fast_compression_estimated_data_size = 0, "rocksdb.sample_for_compression.fast.data.size", UnlessDefault;
        /// Offset of the first byte behind the data blocks; 0 is unknown.
        tail_start_offset = 0, "rocksdb.tail.start.offset", UnlessDefault;
        /// 0 if user-defined timestamps were stripped from the keys.
        user_defined_timestamps_persisted = 1, "rocksdb.user.defined.timestamps.persisted", UnlessDefault;
        /// Largest sequence number; `u64::MAX` is unknown.
        key_largest_seqno = u64::MAX, "rocksdb.key.largest.seqno", UnlessDefault;
        /// Smallest sequence number; `u64::MAX` is unknown.
        key_smallest_seqno = u64::MAX, "rocksdb.key.smallest.seqno", UnlessDefault;
        /// Restart interval of data blocks; 0 is unknown.
        data_block_restart_interval = 0, "rocksdb.data.block.restart.interval", UnlessDefault;
        /// Restart interval of index blocks; 0 is unknown.
        index_block_restart_interval = 0, "rocksdb.index.block.restart.interval", UnlessDefault;
        /// 1 if data blocks store values apart from keys.
        separate_key_value_in_data_block = 0, "rocksdb.separate.key.value.in.data.block", UnlessDefault;
    }
    texts {
        /// Identity of the database that made the table.
        db_id, "rocksdb.creating.db.identity";
        /// Identity of the session that made the table.
        db_session_id, "rocksdb.creating.session.identity";
        /// Name of the host that made the table.
        db_host_id, "rocksdb.creating.host.identity";
        /// Name of the column family.
        column_family_name, "rocksdb.column.family.name";
        /// Name of the filter policy; empty without a filter.
        filter_policy_name, "rocksdb.filter.policy";
        /// Name of the comparator.
        comparator_name, "rocksdb.comparator";
        /// Name of the merge operator, or `nullptr`.
        merge_operator_name, "rocksdb.merge.operator";
        /// Name of the prefix extractor, or `nullptr`.
        prefix_extractor_name, "rocksdb.prefix.extractor.name";
        /// Names of the property collectors.
        property_collectors_names, "rocksdb.property.collectors";
        /// Name of the compression; from format_version 7 on, of the compression manager and its
        /// types.
        compression_name, "rocksdb.compression";
        /// Options of the compression.
        compression_options, "rocksdb.compression_options";
    }
}

/// Name of the sequence-number-to-time mapping, whose encoded form is one of the user-collected
/// properties.
pub const SEQNO_TO_TIME: &str = "rocksdb.seqno.time.map";

impl TableProperties {
    /// Decodes the block's contents.
    pub fn decode(contents: Box<[u8]>) -> Result<TableProperties, Corruption> {
        Ok(decode_with_seqno_place(contents)?.0)
    }

    /// Checks the trailer of the properties block at `offset` and decodes the block, which is never
    /// compressed.
    ///
    /// Compat: ingesting a file with `write_global_seqno` overwrites the sequence number in the
    /// block and leaves its checksum, which is then correct for the number zero.
    pub fn decode_verified(
        block_and_trailer: &[u8],
        footer: &Footer,
        offset: u64,
    ) -> Result<TableProperties, Corruption> {
        let Some(size) = block_and_trailer.len().checked_sub(BLOCK_TRAILER_BYTES) else {
            return Err(Corruption::new(
                "properties block is too short for its trailer",
                block_and_trailer.len(),
            ));
        };
        let verify =
            |bytes: &[u8]| checksum::verify_block_trailer(footer.checksum, bytes, footer.context(offset));
        let verified = verify(block_and_trailer);
        let decoded = decode_with_seqno_place(block_and_trailer[..size].into());
        let compression = match (verified, &decoded) {
            (Ok(compression), _) => compression,
            (Err(e), Ok((_, Some(place)))) => {
                let mut zeroed = block_and_trailer.to_vec();
                zeroed[place.clone()].fill(0);
                verify(&zeroed).map_err(|_| e)?
            }
            (Err(e), _) => return Err(e),
        };
        if compression != 0 {
            return Err(Corruption::new("properties block is compressed", size));
        }
        let (mut properties, place) = decoded?;
        properties.external_sst_file_global_seqno_offset = place.map_or(0, |at| offset + at.start as u64);
        Ok(properties)
    }

    /// Returns the block's contents.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = BlockBuilder::new(BlockShape::plain(usize::MAX));
        for (name, value) in self.encoded() {
            builder.add(&name, &value);
        }
        builder.finish()
    }

    /// Returns the kind of index; binary search if the property is absent. The error holds an
    /// unknown number.
    pub fn index_type(&self) -> Result<IndexType, u32> {
        match self.user_collected.get(INDEX_TYPE.as_bytes()).map(|v| Reader::new(v).fixed32()) {
            Some(Ok(n)) => IndexType::from_u32(n).ok_or(n),
            Some(Err(_)) => Err(u32::MAX),
            None => Ok(IndexType::BinarySearch),
        }
    }

    /// Sets the kind of index.
    pub fn set_index_type(&mut self, index_type: IndexType) {
        self.user_collected.insert(INDEX_TYPE.into(), (index_type as u32).to_le_bytes().into());
    }

    /// Returns the encoding of the table's index blocks. First keys occur only in tables of index
    /// type 3, and never in the top of a partitioned filter.
    #[must_use]
    pub fn index_layout(&self) -> IndexLayout {
        IndexLayout {
            user_keys: self.index_key_is_user_key != 0,
            delta_handles: self.index_value_is_delta_encoded != 0,
            first_keys: self.index_type() == Ok(IndexType::BinarySearchWithFirstKey),
        }
    }

    /// Returns the encoding of the top of the table's partitioned filter.
    #[must_use]
    pub fn filter_index_layout(&self) -> IndexLayout {
        IndexLayout { first_keys: false, ..self.index_layout() }
    }

    /// Returns true if the filter holds whole keys, or the property is absent.
    #[must_use]
    pub fn whole_key_filtering(&self) -> bool {
        self.user_collected.get(WHOLE_KEY_FILTERING.as_bytes()).is_none_or(|v| v != b"0")
    }

    /// Returns true if the filter holds prefixes, or the property is absent.
    #[must_use]
    pub fn prefix_filtering(&self) -> bool {
        self.user_collected.get(PREFIX_FILTERING.as_bytes()).is_none_or(|v| v != b"0")
    }

    /// Sets the properties for whole keys and prefixes in the filter.
    pub fn set_filtering(&mut self, whole_keys: bool, prefixes: bool) {
        let flag = |on: bool| if on { b"1".to_vec() } else { b"0".to_vec() };
        self.user_collected.insert(WHOLE_KEY_FILTERING.into(), flag(whole_keys));
        self.user_collected.insert(PREFIX_FILTERING.into(), flag(prefixes));
    }

    /// Returns a text that names the feature of the table which this crate cannot read; `None` if
    /// there is no such feature.
    ///
    /// Checked from the properties, so that a table is rejected when it is opened, and not when the
    /// first block that needs the feature is read.
    #[must_use]
    pub fn unsupported(&self, format_version: u32) -> Option<String> {
        if self.user_collected.contains_key(EMBEDDED_BLOBS.as_bytes()) {
            return Some("the table has blob records in it (embedded blobs), which are not supported".into());
        }
        if self.user_defined_timestamps_persisted == 0 {
            return Some("user-defined timestamps were cut off its keys, which is not supported".into());
        }
        let (manager, _) = self.compression_name.split_once(';')?;
        let known =
            format_version < NAMED_COMPRESSION || ["", "nullptr", BUILTIN_COMPRESSION].contains(&manager);
        (!known).then(|| format!("compression manager {manager:?} is not supported"))
    }

    /// Returns true if filter partitions are cut independently of index partitions.
    #[must_use]
    pub fn decoupled_partitioned_filters(&self) -> bool {
        self.user_collected.get(DECOUPLED_FILTERS.as_bytes()).is_some_and(|v| v == b"1")
    }

    /// Sets the property of filter partitions that are cut independently of index partitions.
    pub fn set_decoupled_partitioned_filters(&mut self) {
        self.user_collected.insert(DECOUPLED_FILTERS.into(), b"1".to_vec());
    }

    /// Returns the version of a file made outside a database for ingestion: 1, or 2 with a global
    /// sequence number; `None` for others.
    #[must_use]
    pub fn external_file_version(&self) -> Option<u32> {
        Reader::new(self.user_collected.get(EXTERNAL_VERSION.as_bytes())?).fixed32().ok()
    }

    /// Returns the sequence number that the file's properties assign to all its entries; often 0,
    /// in which case the MANIFEST holds it.
    #[must_use]
    pub fn external_global_seqno(&self) -> Option<SeqNo> {
        Some(SeqNo(Reader::new(self.user_collected.get(GLOBAL_SEQNO.as_bytes())?).fixed64().ok()?))
    }

    /// Marks the table as made for ingestion, with a global sequence number to be assigned later.
    pub fn set_external_file(&mut self) {
        self.user_collected.insert(EXTERNAL_VERSION.into(), 2u32.to_le_bytes().into());
        self.user_collected.insert(GLOBAL_SEQNO.into(), 0u64.to_le_bytes().into());
    }

    /// Returns the properties as names and values for people, in byte order of the names; numbers
    /// in decimal, bytes that are not printable in hexadecimal.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let mut probe = TableProperties::default();
        self.encoded()
            .into_iter()
            .map(|(name, value)| {
                let text = if probe.number_mut(&name).is_some() {
                    Reader::new(&value).varint64().map_or_else(|_| hex(&value), |n| n.to_string())
                } else {
                    match String::from_utf8(value) {
                        Ok(text) if text.chars().all(|c| !c.is_control()) => text,
                        Ok(text) => hex(text.as_bytes()),
                        Err(e) => hex(e.as_bytes()),
                    }
                };
                (String::from_utf8_lossy(&name).into_owned(), text)
            })
            .collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Decodes the properties, and the range in the block of the global sequence number.
fn decode_with_seqno_place(
    contents: Box<[u8]>,
) -> Result<(TableProperties, Option<std::ops::Range<usize>>), Corruption> {
    let block = Block::parse(contents)?;
    let mut properties = TableProperties::default();
    let mut place = None;
    let mut cursor = BlockCursor::new();
    let mut last_name: Option<Vec<u8>> = None;
    let mut found = cursor.seek_to_first(&block)?;
    while found {
        let (name, value) = (cursor.key(&block), cursor.value(&block));
        if last_name.as_ref().is_some_and(|last| &last[..] >= name) {
            return Err(Corruption::new("table properties are out of order", cursor.value_range().start));
        }
        if name == GLOBAL_SEQNO.as_bytes() && value.len() == 8 {
            place = Some(cursor.value_range());
        }
        if let Some(number) = properties.number_mut(name) {
            // Compat: RocksDB ignores a number that it cannot read.
            if let Ok(n) = Reader::new(value).varint64() {
                *number = n;
            }
        } else if let Some(text) = properties.text_mut(name) {
            *text = String::from_utf8_lossy(value).into_owned();
        } else {
            properties.user_collected.insert(name.to_vec(), value.to_vec());
        }
        last_name = Some(name.to_vec());
        found = cursor.next(&block)?;
    }
    Ok((properties, place))
}
