//! Column families with and without timestamps: the timestamp sizes that the log names, and when.

use super::*;
use karst_format::log::{LogReader, TimestampSize};

const STAMPED: ColumnFamilyId = ColumnFamilyId(4);

fn at(key: &str, timestamp: u64) -> Vec<u8> {
    [key.as_bytes(), &timestamp.to_le_bytes()].concat()
}

/// Returns the timestamp sizes known at each record of a log.
fn said(bytes: &[u8], number: u64) -> Vec<Vec<TimestampSize>> {
    let mut reader = LogReader::new(bytes, FileNumber(number), RecoveryMode::AbsoluteConsistency);
    let mut said = Vec::new();
    while let Some(record) = reader.next_record() {
        said.push(record.unwrap().timestamp_sizes.to_vec());
    }
    said
}

fn stamped() -> Arc<MemTable> {
    Arc::new(MemTable::new(Comparator::BytewiseU64Ts))
}

#[test]
fn each_log_says_once_and_in_time_which_families_have_timestamps() {
    for (recyclable, zstd) in [(false, false), (true, false), (false, true)] {
        let log = LogOptions { recyclable, zstd, ..LogOptions::default() };
        let bench = Bench::new(Rules { log, ..rules() });
        bench.memtables.lock().insert(STAMPED, stamped());
        let put_stamped = |key: &str, timestamp| {
            let key = at(key, timestamp);
            bench.write(&WriteOptions::new(), Op::Put { cf: STAMPED, key: &key, value: b"" }).unwrap();
        };
        bench.put("plain", "").unwrap();
        put_stamped("a", 1);
        bench.put("more", "").unwrap();
        let deleted = at("a", 2);
        bench.write(&WriteOptions::new(), Op::Delete { cf: STAMPED, key: &deleted }).unwrap();
        let of_stamped = [TimestampSize { cf: STAMPED, bytes: 8 }];
        let first = bench.log_bytes(1);
        assert_eq!(said(&first, 1), [&[][..], &of_stamped, &of_stamped, &of_stamped]);
        put_stamped("b", 3);
        assert_eq!(said(&bench.log_bytes(1), 1).len(), 5, "what is said twice is damage");

        bench.seal(2);
        bench.memtables.lock().insert(STAMPED, stamped());
        bench.put("in the next", "").unwrap();
        put_stamped("c", 4);
        let second = said(&bench.log_bytes(2), 2);
        // The first record describes the predecessor.
        assert_eq!(second, [&[][..], &[], &of_stamped]);

        // Both are replayed, and the deletion is as it was in the memtable.
        let target = Target {
            cf: STAMPED,
            log_number: FileNumber(0),
            memtable: stamped(),
            memory_bytes: usize::MAX,
            tables: None,
        };
        let of_plain = Target { cf: CF, memtable: memtable(), ..target.clone() };
        let mode = RecoveryMode::AbsoluteConsistency;
        let mut recovery =
            Recovery::new(mode, vec![target.clone(), of_plain], (SeqNo(0), FileNumber(1)), false);
        for number in [1, 2] {
            let bytes = bench.log_bytes(number);
            recovery.log(FileNumber(number), Path::new("log"), &bytes, &mut |_| Ok(())).unwrap();
        }
        recovery.finish([]).unwrap();
        let memtable = &target.memtable;
        let mut found = Vec::new();
        let mut next = memtable.first();
        while let Some(position) = next {
            let (user_key, trailer) = key::split(memtable.key(position));
            found.push((user_key.to_vec(), trailer as u8));
            next = memtable.next(position);
        }
        let (value, deletion) = (key::ValueType::Value as u8, key::ValueType::DeletionWithTimestamp as u8);
        let expected =
            [(at("a", 2), deletion), (at("a", 1), value), (at("b", 3), value), (at("c", 4), value)];
        assert_eq!(found, expected);
    }
}

#[test]
fn what_is_not_logged_says_nothing() {
    let bench = Bench::new(rules());
    bench.memtables.lock().insert(STAMPED, stamped());
    let options = WriteOptions { disable_wal: true, ..WriteOptions::new() };
    bench.write(&options, Op::Put { cf: STAMPED, key: &at("a", 1), value: b"" }).unwrap();
    assert_eq!(bench.memtables.lock()[&STAMPED].entry_count(), 1);
    bench.put("plain", "").unwrap();
    assert_eq!(said(&bench.log_bytes(1), 1), [[]]);
}
