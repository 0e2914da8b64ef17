//! Round trips of whole edits, the older forms of entries, skipped and rejected tags, hostile
//! bytes.
use super::*;
use crate::coding::{put_fixed64, put_length_prefixed, put_varint32, put_varint64};
use proptest::option::of;
use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

fn number() -> impl Strategy<Value = FileNumber> {
    prop_oneof![0..300u64, Just(FileNumber::MAX.0), 0..FileNumber::MAX.0].prop_map(FileNumber)
}

fn sequence() -> impl Strategy<Value = SeqNo> {
    prop_oneof![0..300u64, 0..=SeqNo::MAX.0].prop_map(SeqNo)
}

fn internal_key() -> impl Strategy<Value = Box<[u8]>> {
    proptest::collection::vec(any::<u8>(), TRAILER_BYTES..40).prop_map(Into::into)
}

fn temperature() -> impl Strategy<Value = Temperature> {
    use Temperature::*;
    prop_oneof![Just(Unknown), Just(Hot), Just(Warm), Just(Cool), Just(Cold), Just(Ice)]
}

prop_compose! {
    fn new_file()(
        (number, path_id, size_bytes) in (number(), 0..=3u8, any::<u64>()),
        (smallest, largest) in (internal_key(), internal_key()),
        (smallest_seq, largest_seq, epoch_number) in (sequence(), sequence(), any::<u64>()),
        (marked_for_compaction, temperature) in (any::<bool>(), temperature()),
        oldest_blob_file in of(number().prop_filter("0 is none", |number| number.0 != 0)),
        (oldest_ancestor_time_s, creation_time_s) in any::<(u64, u64)>(),
        checksum in of((bytes(20), bytes(20).prop_filter("named", |name| !name.is_empty()))),
        unique_id in of(any::<[u64; 2]>().prop_filter("0 is none", |id| *id != [0, 0])),
        (compensated, tail, persisted) in any::<(u64, u64, bool)>(),
        (min_timestamp, max_timestamp, open_metadata) in (bytes(9), bytes(9), bytes(9)),
    ) -> NewFile {
        NewFile {
            path_id,
            epoch_number,
            marked_for_compaction,
            temperature,
            oldest_blob_file,
            oldest_ancestor_time_s,
            creation_time_s,
            checksum: checksum
                .map(|(value, function)| FileChecksum { value: value.into(), function: function.into() }),
            unique_id,
            compensated_range_deletion_bytes: compensated,
            tail_size_bytes: tail,
            user_defined_timestamps_persisted: persisted,
            min_timestamp: min_timestamp.into(),
            max_timestamp: max_timestamp.into(),
            open_metadata: open_metadata.into(),
            ..NewFile::new(number, size_bytes, smallest, largest, smallest_seq, largest_seq)
        }
    }
}

prop_compose! {
    fn edit()(
        (db_id, comparator, persisted) in (of(bytes(40)), of(any::<String>()), of(any::<bool>())),
        (log_number, prev_log_number, next_file_number) in (of(number()), of(number()), of(number())),
        (min_log_number_to_keep, last_sequence) in (of(number()), of(sequence())),
        (max_column_family, column_family) in (of(any::<u32>()), any::<u32>()),
        cursors in proptest::collection::vec((any::<u8>(), internal_key()), 0..3),
        deleted in proptest::collection::vec((any::<u8>(), number()), 0..4),
        added in proptest::collection::vec((any::<u8>(), new_file()), 0..4),
        blobs in proptest::collection::vec((number(), any::<(u64, u64)>(), bytes(9), bytes(9)), 0..3),
        garbage in proptest::collection::vec((number(), any::<(u64, u64)>()), 0..3),
        wals in proptest::collection::vec((number(), of(0..u64::MAX)), 0..3),
        (wal_deletion, add, drop) in (of(number()), of(any::<String>()), any::<bool>()),
        (remaining, progress, manifest_size) in (of(any::<u32>()), of(bytes(20)), of(any::<u64>())),
        ts_low in of(bytes(9).prop_filter("never empty", |timestamp| !timestamp.is_empty())),
    ) -> VersionEdit {
        VersionEdit {
            db_id,
            comparator,
            persist_user_defined_timestamps: persisted,
            log_number,
            prev_log_number,
            next_file_number,
            max_column_family: max_column_family.map(ColumnFamilyId),
            min_log_number_to_keep,
            last_sequence,
            compact_cursors: cursors.into_iter().map(|(level, key)| (Level(level), key)).collect(),
            deleted_files: deleted.into_iter().map(|(level, number)| (Level(level), number)).collect(),
            new_files: added.into_iter().map(|(level, file)| (Level(level), file)).collect(),
            blob_file_additions: blobs
                .into_iter()
                .map(|(number, (total_count, total_bytes), checksum_method, checksum_value)| BlobFileAddition {
                    number,
                    total_count,
                    total_bytes,
                    checksum_method,
                    checksum_value,
                })
                .collect(),
            blob_file_garbages: garbage
                .into_iter()
                .map(|(number, (count, bytes))| BlobFileGarbage { number, count, bytes })
                .collect(),
            wal_additions: wals
                .into_iter()
                .map(|(number, synced_size_bytes)| WalAddition { number, synced_size_bytes })
                .collect(),
            wal_deletion,
            column_family: ColumnFamilyId(column_family),
            column_family_add: add,
            column_family_drop: drop,
            remaining_in_atomic_group: remaining,
            full_history_ts_low: ts_low,
            subcompaction_progress: progress,
            last_compacted_manifest_file_size: manifest_size,
        }
    }
}

proptest! {
    #[test]
    fn an_edit_survives_encoding(edit in edit()) {
        let encoded = edit.encode();
        let decoded = VersionEdit::decode(&encoded).unwrap();
        prop_assert_eq!(&decoded, &edit);
        prop_assert_eq!(decoded.encode(), encoded);
    }

    #[test]
    fn a_cut_or_flipped_edit_ends_in_an_answer(edit in edit(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
        let mut encoded = edit.encode();
        prop_assume!(!encoded.is_empty());
        let at = cut.index(encoded.len());
        if let Err(corruption) = VersionEdit::decode(&encoded[..at]) {
            prop_assert!(corruption.offset <= at as u64);
        }
        encoded[at] ^= flip;
        if let Err(corruption) = VersionEdit::decode(&encoded) {
            prop_assert!(corruption.offset <= encoded.len() as u64);
        }
    }

    #[test]
    fn hostile_bytes_end_in_an_answer(bytes in bytes(200)) {
        let _ = VersionEdit::decode(&bytes);
    }
}

/// Entries in RocksDB's encoding, written by hand.
#[derive(Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn varint(mut self, value: u64) -> Raw {
        put_varint64(&mut self.0, value);
        self
    }

    fn bytes(mut self, value: &[u8]) -> Raw {
        put_length_prefixed(&mut self.0, value);
        self
    }

    fn decode(&self) -> Result<VersionEdit, Corruption> {
        VersionEdit::decode(&self.0)
    }

    fn refused(&self) -> Corruption {
        self.decode().unwrap_err()
    }
}

use crate::Corruption;

const KEY: &[u8] = b"key\x01\x07\0\0\0\0\0\0";

#[test]
fn the_older_forms_of_new_files_are_read() {
    let first = Raw::default().varint(7).varint(2).varint(9).varint(100).bytes(KEY).bytes(KEY);
    let (level, file) = first.decode().unwrap().new_files.remove(0);
    assert_eq!((level, file.number, file.size_bytes, file.path_id), (Level(2), FileNumber(9), 100, 0));
    assert_eq!((file.smallest_user_key(), file.largest_trailer()), (&b"key"[..], 0x0701));
    assert_eq!((file.smallest_seq, file.largest_seq), (SeqNo::MAX, SeqNo(0)));
    let second =
        Raw::default().varint(100).varint(2).varint(9).varint(100).bytes(KEY).bytes(KEY).varint(5).varint(7);
    let (_, file) = second.decode().unwrap().new_files.remove(0);
    assert_eq!((file.smallest_seq, file.largest_seq), (SeqNo(5), SeqNo(7)));
    let third = |path_id| {
        let raw = Raw::default().varint(102).varint(2).varint(9).varint(path_id).varint(100);
        raw.bytes(KEY).bytes(KEY).varint(5).varint(7)
    };
    assert_eq!(third(3).decode().unwrap().new_files[0].1.path_id, 3);
    assert!(third(4).refused().what.contains("path id 4"));
}

#[test]
fn the_older_tags_of_logs_and_blob_files_are_read() {
    let edit = Raw::default()
        .varint(8196)
        .varint(5)
        .varint(2)
        .varint(77)
        .varint(1) // a log addition without a length
        .varint(8197)
        .varint(4)
        .varint(8194)
        .varint(6)
        .varint(10)
        .varint(1000)
        .bytes(b"crc")
        .bytes(b"xyzw")
        .varint(0)
        .varint(8195)
        .varint(6)
        .varint(1)
        .varint(100)
        .varint(0)
        .decode()
        .unwrap();
    let wal = WalAddition { number: FileNumber(5), synced_size_bytes: Some(77) };
    assert_eq!((edit.wal_additions, edit.wal_deletion), (vec![wal], Some(FileNumber(4))));
    assert_eq!(edit.blob_file_additions[0].checksum_value, b"xyzw");
    assert_eq!(edit.blob_file_garbages, [BlobFileGarbage { number: FileNumber(6), count: 1, bytes: 100 }]);
}

#[test]
fn unknown_tags_are_skipped_only_where_they_may_be() {
    let skipped = Raw::default().varint(8192 + 500).bytes(b"whatever").varint(2).varint(33);
    assert_eq!(
        skipped.decode().unwrap(),
        VersionEdit { log_number: Some(FileNumber(33)), ..Default::default() }
    );
    let cut = Raw::default().varint(8192 + 500).varint(9).varint(1);
    assert!(cut.refused().what.contains("unknown tag"));
    for unknown in [0, 8, 11, 101, 104, 204, 301, 402, 8191] {
        let corruption = Raw::default().varint(unknown).bytes(b"").refused();
        assert_eq!(corruption.what, format!("version edit: unknown tag {unknown}"));
    }
    let file = || {
        let raw = Raw::default().varint(103).varint(0).varint(9).varint(100).bytes(KEY).bytes(KEY);
        raw.varint(5).varint(7)
    };
    let edit = file().varint(18).bytes(b"new").varint(13).bytes(&[4]).varint(1).decode().unwrap();
    assert_eq!(edit.new_files[0].1.epoch_number, 4);
    for unknown in [64, 66, 127, 192] {
        assert!(file().varint(unknown).bytes(b"new").varint(1).refused().what.contains("not ignorable"));
    }
    for blob in [400, 401] {
        let counts = |raw: Raw| if blob == 400 { raw.bytes(b"").bytes(b"") } else { raw };
        let entry = || counts(Raw::default().varint(blob).varint(9).varint(1).varint(1));
        assert!(entry().varint(5).bytes(b"new").varint(0).decode().is_ok());
        assert!(entry().varint(64).bytes(b"new").varint(0).refused().what.contains("not ignorable"));
    }
    assert!(Raw::default().varint(8199).bytes(&[5, 3, 1]).refused().what.contains("tag 3"));
}

#[test]
fn values_out_of_range_are_refused_with_their_offset() {
    let level = Raw::default().varint(2).varint(1).varint(6).varint(256).varint(1).refused();
    assert_eq!(level.to_string(), "version edit: deleted file's level 256 is out of range at offset 5");
    assert!(Raw::default().varint(2).varint(1 << 62).refused().what.contains("log number"));
    assert!(Raw::default().varint(4).varint(1 << 56).refused().what.contains("last sequence"));
    assert!(Raw::default().varint(5).varint(1).bytes(b"short").refused().what.contains("5 bytes"));
    assert!(Raw::default().varint(201).bytes(b"\xff").refused().what.contains("UTF-8"));
    assert!(Raw::default().varint(8198).bytes(b"").refused().what.contains("empty"));
    assert!(Raw::default().varint(8201).bytes(b"ab").refused().what.contains("2 bytes"));
}

#[test]
fn custom_fields_of_the_wrong_size_are_refused() {
    let file = |field: u64, value: &[u8]| {
        let raw = Raw::default().varint(103).varint(0).varint(9).varint(100).bytes(KEY).bytes(KEY);
        raw.varint(5).varint(7).varint(field).bytes(value).varint(1).decode()
    };
    for one_byte in [2, 9, 16, 65] {
        assert!(
            file(one_byte, b"").is_err()
                && file(one_byte, b"\0\0").is_err()
                && file(one_byte, b"\x01").is_ok()
        );
    }
    for varint in [4, 5, 6, 13, 14, 15] {
        assert!(
            file(varint, b"").is_err() && file(varint, b"\x80").is_err() && file(varint, b"\x05").is_ok()
        );
    }
    assert!(file(12, &[1; 15]).is_err() && file(12, &[1; 17]).is_err() && file(12, &[1; 16]).is_ok());
    assert!(file(3, &[1; 7]).is_err());
    let mut log = Vec::new();
    put_fixed64(&mut log, 12);
    assert_eq!(file(3, &log).unwrap().min_log_number_to_keep, Some(FileNumber(12)));
    assert_eq!(file(9, b"\x05").unwrap().new_files[0].1.temperature, Temperature::Unknown);
    let mut huge = Vec::new();
    put_varint32(&mut huge, 103);
    huge.extend([0, 9, 100]);
    put_varint32(&mut huge, u32::MAX);
    assert!(VersionEdit::decode(&huge).is_err());
}
