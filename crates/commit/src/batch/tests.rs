//! Write batches compared with a list of operations.

use super::*;
use proptest::prelude::*;

fn ops(batch: &WriteBatch) -> Vec<String> {
    batch.iter().map(|op| format!("{op:?}")).collect()
}

#[test]
fn save_points_nest_and_restore_everything() {
    let mut batch = WriteBatch::protected();
    batch.put("a", "1").unwrap();
    batch.set_save_point();
    batch.merge("b", "2").unwrap();
    batch.push(None, Op::Put { cf: ColumnFamilyId(7), key: b"c", value: b"3" }).unwrap();
    batch.set_save_point();
    batch.delete_range("a", "z").unwrap();
    assert_eq!((batch.count(), batch.families().len(), batch.merged().len()), (4, 2, 1));
    batch.pop_save_point().unwrap();
    batch.rollback_to_save_point().unwrap();
    assert_eq!((batch.count(), batch.families().len(), batch.merged().len()), (1, 1, 0));
    batch.verify().unwrap();
    let mut same = WriteBatch::new();
    same.put("a", "1").unwrap();
    assert_eq!(batch.as_bytes(), same.as_bytes());
    assert_eq!(batch.rollback_to_save_point().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(batch.pop_save_point().unwrap_err().kind(), ErrorKind::NotFound);
    batch.clear();
    assert!(batch.is_empty() && batch.families().is_empty());
}

#[test]
fn a_batch_stays_within_its_limit_to_the_byte() {
    let mut batch = WriteBatch::with_capacity(64, HEADER_BYTES + 2 * (1 + 2 + 2));
    batch.put("a", "1").unwrap();
    batch.put("b", "2").unwrap();
    let before = batch.as_bytes().to_vec();
    assert_eq!(batch.delete("c").unwrap_err().kind(), ErrorKind::LimitReached);
    assert_eq!((batch.as_bytes(), batch.count()), (&before[..], 2));
}

#[test]
fn an_entity_is_sorted_and_has_each_column_once() {
    let mut batch = WriteBatch::new();
    batch.put_entity(None, "k", &[(b"z", b"26"), (b"", b"default"), (b"a", b"1")]).unwrap();
    let Some(Op::PutEntity { entity, .. }) = batch.iter().next() else { panic!("an entity") };
    let names: Vec<_> = wide_column::decode(entity).unwrap().iter().map(|c| c.name).collect();
    assert_eq!(names, [&b""[..], b"a", b"z"]);
    let error = batch.put_entity(None, "k", &[(b"a", b""), (b"a", b"")]).unwrap_err();
    assert!(error.to_string().contains("\"a\"") && batch.count() == 1);
}

#[test]
fn damage_in_memory_is_seen_before_it_is_logged() {
    let mut batch = WriteBatch::protected();
    batch.put("key", "value").unwrap();
    batch.verify().unwrap();
    let mut bytes = batch.as_bytes().to_vec();
    *bytes.last_mut().unwrap() ^= 4;
    batch.records = write_batch::WriteBatch::from_bytes(bytes).unwrap();
    assert_eq!(batch.verify().unwrap_err().kind(), ErrorKind::Corruption);
}

const WITH_TIMESTAMPS: ColumnFamilyId = ColumnFamilyId(7);

/// Adds a key like the column family's handle does: with zeroes for its timestamp.
fn put_placeholder(batch: &mut WriteBatch, key: &str) {
    let key = [key.as_bytes(), &[0; 8]].concat();
    batch.push_whole(None, Op::Put { cf: WITH_TIMESTAMPS, key: &key, value: b"v" }).unwrap();
    batch.unsettled.placeholders = true;
}

fn size_of(cf: u32) -> Option<usize> {
    Some(if cf == WITH_TIMESTAMPS.0 { 8 } else { 0 })
}

fn keys(batch: &WriteBatch) -> Vec<Vec<u8>> {
    batch.iter().map(|op| strings(&op).0.to_vec()).collect()
}

#[test]
fn timestamps_come_into_the_keys_that_have_them_and_save_points_hold() {
    let mut batch = WriteBatch::protected();
    batch.put("twelve bytes", "1").unwrap();
    batch.set_save_point();
    put_placeholder(&mut batch, "a");
    batch.put_log_data("a note").unwrap();
    batch.set_save_point();
    put_placeholder(&mut batch, "b");
    let before = batch.protection.clone();
    assert!(batch.needs_timestamps());
    batch.update_timestamps(*b"stamped!", size_of).unwrap();
    assert!(!batch.needs_timestamps());
    let expected: [&[u8]; 4] = [b"twelve bytes", b"astamped!", b"", b"bstamped!"];
    assert_eq!(keys(&batch), expected);
    batch.verify().unwrap();
    assert_ne!(batch.protection, before);
    // Updated again; a key that has a timestamp gets the new one.
    put_placeholder(&mut batch, "c");
    batch.update_timestamps(*b"again...", size_of).unwrap();
    assert_eq!(keys(&batch)[3..], [b"bagain...", b"cagain..."]);
    // Operations before a save point keep their timestamp, so the batch does not need one again.
    batch.rollback_to_save_point().unwrap();
    assert_eq!(keys(&batch), [&b"twelve bytes"[..], b"aagain...", b""]);
    assert!(!batch.needs_timestamps());
    put_placeholder(&mut batch, "d");
    batch.rollback_to_save_point().unwrap();
    assert!(!batch.needs_timestamps() && batch.count() == 1);
    batch.verify().unwrap();
    put_placeholder(&mut batch, "e");
    batch.clear();
    assert!(!batch.needs_timestamps());
}

#[test]
fn a_batch_may_know_the_timestamps_of_a_default_column_family_that_is_not_named() {
    let mut batch = WriteBatch::protected().with_default_timestamp_size(8);
    for _ in 0..2 {
        batch.put("a", "1").unwrap();
        batch.delete("b").unwrap();
        batch.single_delete("c").unwrap();
        batch.merge("d", "2").unwrap();
        batch.put_log_data("a note").unwrap();
        assert_eq!(batch.delete_range("a", "b").unwrap_err().kind(), ErrorKind::NotSupported);
        assert_eq!(
            batch
                .push(None, Op::PutEntity { cf: ColumnFamilyId::DEFAULT, key: b"a", entity: b"" })
                .unwrap_err()
                .kind(),
            ErrorKind::InvalidArgument
        );
        assert!(batch.needs_timestamps() && batch.unsettled.foreign);
        batch.update_timestamps(*b"12345678", |cf| Some(if cf == 0 { 8 } else { 0 })).unwrap();
        batch.verify().unwrap();
        let cf = ColumnFamilyId::DEFAULT;
        let expected = [
            Op::Put { cf, key: b"a12345678", value: b"1" },
            Op::Delete { cf, key: b"b12345678" },
            Op::SingleDelete { cf, key: b"c12345678" },
            Op::Merge { cf, key: b"d12345678", operand: b"2" },
            Op::LogData(b"a note"),
        ];
        assert_eq!(ops(&batch), expected.map(|op| format!("{op:?}")));
        assert!(!batch.needs_timestamps());
        // The timestamp size stays known after `clear`.
        batch.clear();
    }
}

#[test]
fn timestamps_that_do_not_fit_change_nothing() {
    let mut batch = WriteBatch::new();
    put_placeholder(&mut batch, "a");
    batch.put_log_data("behind").unwrap();
    let before = batch.as_bytes().to_vec();
    let refused = |batch: &mut WriteBatch, timestamp: &[u8], size: Option<usize>| {
        let error = batch.update_timestamps(timestamp, |_| size).unwrap_err();
        assert!(batch.as_bytes() == before && batch.needs_timestamps(), "{error}");
        error.kind()
    };
    assert_eq!(refused(&mut batch, b"short", Some(8)), ErrorKind::InvalidArgument);
    assert_eq!(refused(&mut batch, b"of ten bytes", Some(12)), ErrorKind::InvalidArgument);
    assert_eq!(refused(&mut batch, b"12345678", None), ErrorKind::NotFound);
    batch.push_whole(None, Op::DeleteRange { cf: WITH_TIMESTAMPS, begin: b"a", end: b"b" }).unwrap();
    let before = batch.as_bytes().to_vec();
    let error = batch.update_timestamps(*b"12345678", size_of).unwrap_err();
    assert_eq!((error.kind(), batch.as_bytes()), (ErrorKind::NotSupported, &before[..]));
    let mut damaged = WriteBatch::protected();
    put_placeholder(&mut damaged, "a");
    damaged.protection.as_mut().unwrap()[0] ^= 1;
    assert_eq!(damaged.update_timestamps(*b"12345678", size_of).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn bytes_that_are_no_batch_are_refused_with_their_place() {
    let mut batch = WriteBatch::new();
    batch.put("key", "value").unwrap();
    let bytes = batch.as_bytes().to_vec();
    let error = WriteBatch::from_bytes(bytes[..bytes.len() - 1].to_vec()).unwrap_err();
    assert!(error.to_string().contains("offset"), "{error}");
    let mut marked = write_batch::WriteBatch::new();
    marked.push(Op::Commit { xid: b"t" });
    let error = WriteBatch::from_bytes(marked.as_bytes().to_vec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
}

/// End marks of RocksDB's WritePrepared batches; in a log of ours the mark would change the
/// numbering of the operations before it.
#[test]
fn marks_of_ends_are_left_out() {
    let mut marked = write_batch::WriteBatch::new();
    let put = Op::Put { cf: ColumnFamilyId::DEFAULT, key: b"k", value: b"v" };
    let range = Op::DeleteRange { cf: ColumnFamilyId::DEFAULT, begin: b"a", end: b"z" };
    [put, range, Op::Noop].into_iter().for_each(|op| marked.push(op));
    marked.set_seq(SeqNo(7));
    let batch = WriteBatch::from_bytes(marked.as_bytes().to_vec()).unwrap();
    assert_eq!(ops(&batch), [format!("{put:?}"), format!("{range:?}")]);
    assert_eq!((batch.count(), batch.sequence_number(), batch.mixes_ranges()), (2, 7, true));
}

proptest! {
    #[test]
    fn what_was_added_is_iterated_and_survives_its_bytes(
        adds in proptest::collection::vec((0u32..3, 0u8..5, proptest::collection::vec(any::<u8>(), 0..200), proptest::collection::vec(any::<u8>(), 0..9)), 0..20),
    ) {
        let mut batch = WriteBatch::protected();
        let mut expected = Vec::new();
        for (cf, kind, key, value) in &adds {
            let cf = ColumnFamilyId(*cf * 100);
            let op = match kind {
                0 => Op::Put { cf, key, value },
                1 => Op::Delete { cf, key },
                2 => Op::SingleDelete { cf, key },
                3 => Op::DeleteRange { cf, begin: key, end: value },
                _ => Op::Merge { cf, key, operand: value },
            };
            batch.push(None, op).unwrap();
            expected.push(format!("{op:?}"));
        }
        batch.verify().unwrap();
        prop_assert_eq!(ops(&batch), expected);
        let back = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
        prop_assert_eq!(ops(&back), ops(&batch));
        prop_assert_eq!(back.families(), batch.families());
        prop_assert_eq!(back.merged(), batch.merged());
    }
}
