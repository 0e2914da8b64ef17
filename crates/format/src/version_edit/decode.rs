//! Decoding of a MANIFEST record.
//!
//! In: a whole record's payload. Out: a [`VersionEdit`], or [`Corruption`] with the offset of the
//! invalid entry. Allocations are bounded by the record's length.
use super::{
    BlobFileAddition, BlobFileGarbage, FileChecksum, NewFile, Temperature, VersionEdit, WalAddition, field,
    tag, wal_tag,
};
use crate::Corruption;
use crate::coding::Reader;
use crate::ids::{ColumnFamilyId, FileNumber, Level};
use crate::key::{SeqNo, TRAILER_BYTES};

impl VersionEdit {
    /// Decodes one MANIFEST record.
    ///
    /// # Errors
    /// [`Corruption`] if an entry is cut short or malformed, or has a tag that is unknown and not
    /// marked as safe to ignore. The offset is that of the entry's first byte behind its tag,
    /// within `record`.
    pub fn decode(record: &[u8]) -> Result<VersionEdit, Corruption> {
        let mut edit = VersionEdit::default();
        let mut input = Entries { reader: Reader::new(record), base: 0 };
        while !input.reader.is_empty() {
            let tag = input.varint32("tag")?;
            input.decode_entry(tag, &mut edit)?;
        }
        Ok(edit)
    }
}

/// Reader whose errors name the item being read.
struct Entries<'a> {
    reader: Reader<'a>,
    /// Offset in the record of the reader's first byte.
    base: u64,
}

impl<'a> Entries<'a> {
    fn offset(&self) -> u64 {
        self.base + self.reader.position() as u64
    }

    fn wrong(&self, what: impl Into<String>) -> Corruption {
        Corruption {
            what: format!("version edit: {}", what.into()).into(),
            offset: self.offset(),
            missing_feature: None,
        }
    }

    fn varint32(&mut self, what: &str) -> Result<u32, Corruption> {
        self.reader.varint32().map_err(|_| self.wrong(format!("ill-formed {what}")))
    }

    fn varint64(&mut self, what: &str) -> Result<u64, Corruption> {
        self.reader.varint64().map_err(|_| self.wrong(format!("ill-formed {what}")))
    }

    fn bytes(&mut self, what: &str) -> Result<&'a [u8], Corruption> {
        self.reader.length_prefixed().map_err(|_| self.wrong(format!("ill-formed {what}")))
    }

    /// Returns a reader of a length-prefixed value, whose offsets count from the record's start.
    fn nested(&mut self, what: &str) -> Result<Entries<'a>, Corruption> {
        let value = self.bytes(what)?;
        Ok(Entries { reader: Reader::new(value), base: self.offset() - value.len() as u64 })
    }

    fn byte(&mut self, what: &str) -> Result<u8, Corruption> {
        match self.bytes(what)? {
            [byte] => Ok(*byte),
            value => Err(self.wrong(format!("{what} has {} bytes, not one", value.len()))),
        }
    }

    fn text(&mut self, what: &str) -> Result<String, Corruption> {
        let value = self.bytes(what)?;
        match std::str::from_utf8(value) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.wrong(format!("{what} is not UTF-8"))),
        }
    }

    fn level(&mut self, what: &str) -> Result<Level, Corruption> {
        let level = self.varint32(what)?;
        match u8::try_from(level) {
            Ok(level) => Ok(Level(level)),
            Err(_) => Err(self.wrong(format!("{what} {level} is out of range"))),
        }
    }

    fn file_number(&mut self, what: &str) -> Result<FileNumber, Corruption> {
        let number = self.varint64(what)?;
        if number > FileNumber::MAX.0 {
            return Err(self.wrong(format!("{what} {number} is out of range")));
        }
        Ok(FileNumber(number))
    }

    fn sequence(&mut self, what: &str) -> Result<SeqNo, Corruption> {
        let sequence = self.varint64(what)?;
        if sequence > SeqNo::MAX.0 {
            return Err(self.wrong(format!("{what} {sequence} is out of range")));
        }
        Ok(SeqNo(sequence))
    }

    fn internal_key(&mut self, what: &str) -> Result<Box<[u8]>, Corruption> {
        let key = self.bytes(what)?;
        if key.len() < TRAILER_BYTES {
            return Err(self.wrong(format!("{what} has {} bytes, fewer than an internal key", key.len())));
        }
        Ok(key.into())
    }

    fn decode_entry(&mut self, entry: u32, edit: &mut VersionEdit) -> Result<(), Corruption> {
        match entry {
            tag::DB_ID => edit.db_id = Some(self.bytes("db id")?.to_vec()),
            tag::COMPARATOR => edit.comparator = Some(self.text("comparator name")?),
            tag::LOG_NUMBER => edit.log_number = Some(self.file_number("log number")?),
            tag::PREV_LOG_NUMBER => edit.prev_log_number = Some(self.file_number("previous log number")?),
            tag::NEXT_FILE_NUMBER => edit.next_file_number = Some(self.file_number("next file number")?),
            tag::MAX_COLUMN_FAMILY => {
                edit.max_column_family = Some(ColumnFamilyId(self.varint32("largest column family id")?));
            }
            tag::MIN_LOG_NUMBER_TO_KEEP => {
                edit.min_log_number_to_keep = Some(self.file_number("smallest log number to keep")?);
            }
            tag::LAST_SEQUENCE => edit.last_sequence = Some(self.sequence("last sequence number")?),
            tag::COMPACT_CURSOR => {
                let level = self.level("compact cursor's level")?;
                edit.compact_cursors.push((level, self.internal_key("compact cursor")?));
            }
            tag::DELETED_FILE => {
                let level = self.level("deleted file's level")?;
                edit.deleted_files.push((level, self.file_number("deleted file's number")?));
            }
            tag::NEW_FILE | tag::NEW_FILE_2 | tag::NEW_FILE_3 | tag::NEW_FILE_4 => {
                self.decode_new_file(entry, edit)?;
            }
            tag::BLOB_FILE_ADDITION | tag::BLOB_FILE_ADDITION_OLD => {
                edit.blob_file_additions.push(self.blob_file_addition()?);
            }
            tag::BLOB_FILE_GARBAGE | tag::BLOB_FILE_GARBAGE_OLD => {
                edit.blob_file_garbages.push(self.blob_file_garbage()?);
            }
            tag::WAL_ADDITION => edit.wal_additions.push(self.wal_addition()?),
            tag::WAL_ADDITION_2 => edit.wal_additions.push(self.nested("log addition")?.wal_addition()?),
            tag::WAL_DELETION => edit.wal_deletion = Some(self.file_number("log deletion")?),
            tag::WAL_DELETION_2 => {
                edit.wal_deletion = Some(self.nested("log deletion")?.file_number("log deletion")?);
            }
            tag::COLUMN_FAMILY => edit.column_family = ColumnFamilyId(self.varint32("column family id")?),
            tag::COLUMN_FAMILY_ADD => edit.column_family_add = Some(self.text("column family name")?),
            tag::COLUMN_FAMILY_DROP => edit.column_family_drop = true,
            tag::IN_ATOMIC_GROUP => {
                edit.remaining_in_atomic_group = Some(self.varint32("atomic group's remaining edits")?);
            }
            tag::FULL_HISTORY_TS_LOW => {
                let timestamp = self.bytes("full_history_ts_low")?;
                if timestamp.is_empty() {
                    return Err(self.wrong("full_history_ts_low is empty"));
                }
                edit.full_history_ts_low = Some(timestamp.to_vec());
            }
            tag::PERSIST_USER_DEFINED_TIMESTAMPS => {
                let flag = self.byte("persist_user_defined_timestamps")?;
                edit.persist_user_defined_timestamps = Some(flag == 1);
            }
            tag::SUBCOMPACTION_PROGRESS => {
                edit.subcompaction_progress = Some(self.bytes("subcompaction progress")?.to_vec());
            }
            tag::LAST_COMPACTED_MANIFEST_FILE_SIZE => {
                let what = "last compacted manifest file size";
                edit.last_compacted_manifest_file_size = Some(self.nested(what)?.varint64(what)?);
            }
            unknown if unknown & tag::SAFE_TO_IGNORE != 0 => {
                self.bytes("contents of an unknown tag")?;
            }
            unknown => return Err(self.wrong(format!("unknown tag {unknown}"))),
        }
        Ok(())
    }

    fn decode_new_file(&mut self, entry: u32, edit: &mut VersionEdit) -> Result<(), Corruption> {
        let level = self.level("new file's level")?;
        let number = self.file_number("new file's number")?;
        let path_id = if entry == tag::NEW_FILE_3 { self.varint32("new file's path id")? } else { 0 };
        let path_id = self.path_id(path_id)?;
        let size_bytes = self.varint64("new file's size")?;
        let smallest = self.internal_key("new file's smallest key")?;
        let largest = self.internal_key("new file's largest key")?;
        // Compat: the oldest form has no sequence numbers. RocksDB then sets an empty range
        // (smallest the maximum, largest 0); such files come from LevelDB-era databases.
        let (smallest_seq, largest_seq) = if entry == tag::NEW_FILE {
            (SeqNo::MAX, SeqNo(0))
        } else {
            (
                self.sequence("new file's smallest sequence number")?,
                self.sequence("new file's largest sequence number")?,
            )
        };
        let mut file = NewFile::new(number, size_bytes, smallest, largest, smallest_seq, largest_seq);
        file.path_id = path_id;
        if entry == tag::NEW_FILE_4 {
            self.custom_fields(&mut file, edit)?;
        }
        edit.new_files.push((level, file));
        Ok(())
    }

    fn path_id(&self, path_id: u32) -> Result<u8, Corruption> {
        match u8::try_from(path_id) {
            Ok(id) if id <= 3 => Ok(id),
            _ => Err(self.wrong(format!("new file's path id {path_id} is out of range"))),
        }
    }

    fn custom_fields(&mut self, file: &mut NewFile, edit: &mut VersionEdit) -> Result<(), Corruption> {
        let (mut checksum, mut checksum_function): (&[u8], &[u8]) = (&[], &[]);
        loop {
            let custom = self.varint32("new file's field tag")?;
            match custom {
                field::TERMINATE => break,
                field::PATH_ID => {
                    let id = self.byte("path id")?;
                    file.path_id = self.path_id(u32::from(id))?;
                }
                field::OLDEST_ANCESTOR_TIME => {
                    file.oldest_ancestor_time_s = self.varint64_field("oldest ancestor time")?;
                }
                field::FILE_CREATION_TIME => {
                    file.creation_time_s = self.varint64_field("file creation time")?;
                }
                field::EPOCH_NUMBER => file.epoch_number = self.varint64_field("epoch number")?,
                field::FILE_CHECKSUM => checksum = self.bytes("file checksum")?,
                field::FILE_CHECKSUM_FUNCTION => checksum_function = self.bytes("file checksum function")?,
                field::NEED_COMPACTION => file.marked_for_compaction = self.byte("need compaction")? == 1,
                field::MIN_LOG_NUMBER_TO_KEEP => {
                    let what = "smallest log number to keep";
                    let mut value = self.nested(what)?;
                    let number =
                        value.reader.fixed64().map_err(|_| self.wrong(format!("ill-formed {what}")))?;
                    if number > FileNumber::MAX.0 {
                        return Err(self.wrong(format!("{what} {number} is out of range")));
                    }
                    edit.min_log_number_to_keep = Some(FileNumber(number));
                }
                field::OLDEST_BLOB_FILE_NUMBER => {
                    let number = self.nested("oldest blob file")?.file_number("oldest blob file")?;
                    file.oldest_blob_file = (number.0 != 0).then_some(number);
                }
                field::TEMPERATURE => file.temperature = Temperature::from_number(self.byte("temperature")?),
                field::UNIQUE_ID => file.unique_id = self.unique_id()?,
                field::COMPENSATED_RANGE_DELETION_SIZE => {
                    file.compensated_range_deletion_bytes =
                        self.varint64_field("compensated range deletion size")?;
                }
                field::TAIL_SIZE => file.tail_size_bytes = self.varint64_field("tail size")?,
                field::USER_DEFINED_TIMESTAMPS_PERSISTED => {
                    file.user_defined_timestamps_persisted =
                        self.byte("user-defined timestamps persisted")? == 1;
                }
                field::MIN_TIMESTAMP => file.min_timestamp = self.bytes("smallest timestamp")?.into(),
                field::MAX_TIMESTAMP => file.max_timestamp = self.bytes("largest timestamp")?.into(),
                field::FILE_OPEN_METADATA => file.open_metadata = self.bytes("file open metadata")?.into(),
                unknown if unknown & field::NOT_IGNORABLE != 0 => {
                    return Err(
                        self.wrong(format!("new file's field {unknown} is unknown and not ignorable"))
                    );
                }
                _ => {
                    self.bytes("contents of an unknown field of a new file")?;
                }
            }
        }
        if !checksum_function.is_empty() {
            file.checksum = Some(FileChecksum { value: checksum.into(), function: checksum_function.into() });
        }
        Ok(())
    }

    /// Reads a field whose value is one varint.
    fn varint64_field(&mut self, what: &str) -> Result<u64, Corruption> {
        self.nested(what)?.varint64(what)
    }

    fn unique_id(&mut self) -> Result<Option<[u64; 2]>, Corruption> {
        let value = self.bytes("unique id")?;
        let Some((first, second)) = value.split_first_chunk::<8>() else {
            return Err(self.wrong("unique id is too short"));
        };
        let Ok(second) = <[u8; 8]>::try_from(second) else {
            return Err(self.wrong(format!("unique id has {} bytes, not 16", value.len())));
        };
        let id = [u64::from_le_bytes(*first), u64::from_le_bytes(second)];
        Ok((id != [0, 0]).then_some(id))
    }

    fn blob_file_addition(&mut self) -> Result<BlobFileAddition, Corruption> {
        let addition = BlobFileAddition {
            number: self.file_number("blob file's number")?,
            total_count: self.varint64("blob file's blob count")?,
            total_bytes: self.varint64("blob file's blob bytes")?,
            checksum_method: self.bytes("blob file's checksum method")?.to_vec(),
            checksum_value: self.bytes("blob file's checksum")?.to_vec(),
        };
        self.skip_blob_fields()?;
        Ok(addition)
    }

    fn blob_file_garbage(&mut self) -> Result<BlobFileGarbage, Corruption> {
        let garbage = BlobFileGarbage {
            number: self.file_number("blob garbage's file number")?,
            count: self.varint64("blob garbage's count")?,
            bytes: self.varint64("blob garbage's bytes")?,
        };
        self.skip_blob_fields()?;
        Ok(garbage)
    }

    /// Skips the custom fields of a blob file entry: none is defined yet, so ignorable ones are
    /// skipped and others rejected.
    fn skip_blob_fields(&mut self) -> Result<(), Corruption> {
        loop {
            let custom = self.varint32("blob file's field tag")?;
            if custom == 0 {
                return Ok(());
            }
            if custom & field::NOT_IGNORABLE != 0 {
                return Err(self.wrong(format!("blob file's field {custom} is unknown and not ignorable")));
            }
            self.bytes("contents of an unknown field of a blob file")?;
        }
    }

    fn wal_addition(&mut self) -> Result<WalAddition, Corruption> {
        let mut addition =
            WalAddition { number: self.file_number("log addition's number")?, synced_size_bytes: None };
        loop {
            match self.varint32("log addition's tag")? {
                wal_tag::TERMINATE => return Ok(addition),
                wal_tag::SYNCED_SIZE => {
                    let size = self.varint64("log addition's synced size")?;
                    // Compat: `u64::MAX` is RocksDB's "unknown" in memory.
                    addition.synced_size_bytes = (size != u64::MAX).then_some(size);
                }
                unknown => return Err(self.wrong(format!("log addition's tag {unknown} is unknown"))),
            }
        }
    }
}
