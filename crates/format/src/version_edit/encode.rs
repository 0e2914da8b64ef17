//! Encoding of a MANIFEST record, in the order in which RocksDB writes the entries.
//!
//! In: a [`VersionEdit`]. Out: bytes that RocksDB 7.8 and 11.8 read. Table files are always written
//! in their newest form (tag 103). The caller frames the bytes as a log record.
use super::{NewFile, Temperature, VersionEdit, field, tag, wal_tag};
use crate::coding::{put_fixed64, put_length_prefixed, put_varint32, put_varint64};
use crate::ids::{ColumnFamilyId, Level};

impl VersionEdit {
    /// Appends the encoded edit to `out`.
    ///
    /// Compat: a file without an epoch number is written in the form that RocksDB 7.8 writes for
    /// all files. Every release reads that, but then assigns all files new epoch numbers by their
    /// sequence numbers; a caller that knows epochs gives every file one.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        if let Some(id) = &self.db_id {
            put_bytes(out, tag::DB_ID, id);
        }
        if let Some(name) = &self.comparator {
            put_bytes(out, tag::COMPARATOR, name.as_bytes());
        }
        self.encode_numbers(out);
        for (level, key) in &self.compact_cursors {
            put_level(out, tag::COMPACT_CURSOR, *level);
            put_length_prefixed(out, key);
        }
        for (level, number) in &self.deleted_files {
            put_level(out, tag::DELETED_FILE, *level);
            put_varint64(out, number.0);
        }
        for (at, (level, file)) in self.new_files.iter().enumerate() {
            // Compat: the first file repeats the smallest log number to keep, for readers that do
            // not know its tag.
            let min_log = if at == 0 { self.min_log_number_to_keep.map(|number| number.0) } else { None };
            put_new_file(out, *level, file, min_log);
        }
        self.encode_blob_files(out);
        self.encode_logs(out);
        self.encode_column_family(out);
        if let Some(remaining) = self.remaining_in_atomic_group {
            put_varint32(out, tag::IN_ATOMIC_GROUP);
            put_varint32(out, remaining);
        }
        if let Some(timestamp) = &self.full_history_ts_low {
            put_bytes(out, tag::FULL_HISTORY_TS_LOW, timestamp);
        }
        if let Some(persisted) = self.persist_user_defined_timestamps {
            put_bytes(out, tag::PERSIST_USER_DEFINED_TIMESTAMPS, &[u8::from(persisted)]);
        }
        if let Some(progress) = &self.subcompaction_progress {
            put_bytes(out, tag::SUBCOMPACTION_PROGRESS, progress);
        }
        if let Some(size) = self.last_compacted_manifest_file_size {
            put_varint_field(out, tag::LAST_COMPACTED_MANIFEST_FILE_SIZE, size);
        }
    }

    /// Returns the encoded edit.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    fn encode_numbers(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u32, value: Option<u64>| {
            if let Some(value) = value {
                put_varint32(out, tag);
                put_varint64(out, value);
            }
        };
        put(tag::LOG_NUMBER, self.log_number.map(|number| number.0));
        put(tag::PREV_LOG_NUMBER, self.prev_log_number.map(|number| number.0));
        put(tag::NEXT_FILE_NUMBER, self.next_file_number.map(|number| number.0));
        put(tag::MAX_COLUMN_FAMILY, self.max_column_family.map(|id| u64::from(id.0)));
        put(tag::MIN_LOG_NUMBER_TO_KEEP, self.min_log_number_to_keep.map(|number| number.0));
        put(tag::LAST_SEQUENCE, self.last_sequence.map(|sequence| sequence.0));
    }

    fn encode_blob_files(&self, out: &mut Vec<u8>) {
        for addition in &self.blob_file_additions {
            put_varint32(out, tag::BLOB_FILE_ADDITION);
            put_varint64(out, addition.number.0);
            put_varint64(out, addition.total_count);
            put_varint64(out, addition.total_bytes);
            put_length_prefixed(out, &addition.checksum_method);
            put_length_prefixed(out, &addition.checksum_value);
            put_varint32(out, 0);
        }
        for garbage in &self.blob_file_garbages {
            put_varint32(out, tag::BLOB_FILE_GARBAGE);
            put_varint64(out, garbage.number.0);
            put_varint64(out, garbage.count);
            put_varint64(out, garbage.bytes);
            put_varint32(out, 0);
        }
    }

    fn encode_logs(&self, out: &mut Vec<u8>) {
        for addition in &self.wal_additions {
            let mut value = Vec::new();
            put_varint64(&mut value, addition.number.0);
            if let Some(size) = addition.synced_size_bytes {
                put_varint32(&mut value, wal_tag::SYNCED_SIZE);
                put_varint64(&mut value, size);
            }
            put_varint32(&mut value, wal_tag::TERMINATE);
            put_bytes(out, tag::WAL_ADDITION_2, &value);
        }
        if let Some(number) = self.wal_deletion {
            put_varint_field(out, tag::WAL_DELETION_2, number.0);
        }
    }

    fn encode_column_family(&self, out: &mut Vec<u8>) {
        if self.column_family != ColumnFamilyId::DEFAULT {
            put_varint32(out, tag::COLUMN_FAMILY);
            put_varint32(out, self.column_family.0);
        }
        if let Some(name) = &self.column_family_add {
            put_bytes(out, tag::COLUMN_FAMILY_ADD, name.as_bytes());
        }
        if self.column_family_drop {
            put_varint32(out, tag::COLUMN_FAMILY_DROP);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    put_varint32(out, tag);
    put_length_prefixed(out, value);
}

fn put_varint_field(out: &mut Vec<u8>, tag: u32, value: u64) {
    let mut encoded = Vec::with_capacity(10);
    put_varint64(&mut encoded, value);
    put_bytes(out, tag, &encoded);
}

fn put_level(out: &mut Vec<u8>, tag: u32, level: Level) {
    put_varint32(out, tag);
    put_varint32(out, u32::from(level.0));
}

fn put_new_file(out: &mut Vec<u8>, level: Level, file: &NewFile, min_log: Option<u64>) {
    put_level(out, tag::NEW_FILE_4, level);
    put_varint64(out, file.number.0);
    put_varint64(out, file.size_bytes);
    put_length_prefixed(out, &file.smallest);
    put_length_prefixed(out, &file.largest);
    put_varint64(out, file.smallest_seq.0);
    put_varint64(out, file.largest_seq.0);
    put_varint_field(out, field::OLDEST_ANCESTOR_TIME, file.oldest_ancestor_time_s);
    put_varint_field(out, field::FILE_CREATION_TIME, file.creation_time_s);
    if file.epoch_number != 0 {
        put_varint_field(out, field::EPOCH_NUMBER, file.epoch_number);
    }
    if let Some(checksum) = &file.checksum {
        put_bytes(out, field::FILE_CHECKSUM, &checksum.value);
        put_bytes(out, field::FILE_CHECKSUM_FUNCTION, &checksum.function);
    }
    if file.path_id != 0 {
        put_bytes(out, field::PATH_ID, &[file.path_id]);
    }
    if file.temperature != Temperature::Unknown {
        put_bytes(out, field::TEMPERATURE, &[file.temperature as u8]);
    }
    if file.marked_for_compaction {
        put_bytes(out, field::NEED_COMPACTION, &[1]);
    }
    if let Some(number) = min_log {
        let mut value = Vec::with_capacity(8);
        put_fixed64(&mut value, number);
        put_bytes(out, field::MIN_LOG_NUMBER_TO_KEEP, &value);
    }
    if let Some(number) = file.oldest_blob_file {
        put_varint_field(out, field::OLDEST_BLOB_FILE_NUMBER, number.0);
    }
    if let Some([first, second]) = file.unique_id {
        let mut value = Vec::with_capacity(16);
        put_fixed64(&mut value, first);
        put_fixed64(&mut value, second);
        put_bytes(out, field::UNIQUE_ID, &value);
    }
    if file.compensated_range_deletion_bytes != 0 {
        put_varint_field(out, field::COMPENSATED_RANGE_DELETION_SIZE, file.compensated_range_deletion_bytes);
    }
    if file.tail_size_bytes != 0 {
        put_varint_field(out, field::TAIL_SIZE, file.tail_size_bytes);
    }
    if !file.user_defined_timestamps_persisted {
        put_bytes(out, field::USER_DEFINED_TIMESTAMPS_PERSISTED, &[0]);
    }
    for (tag, value) in [
        (field::MIN_TIMESTAMP, &file.min_timestamp),
        (field::MAX_TIMESTAMP, &file.max_timestamp),
        (field::FILE_OPEN_METADATA, &file.open_metadata),
    ] {
        if !value.is_empty() {
            put_bytes(out, tag, value);
        }
    }
    put_varint32(out, field::TERMINATE);
}
