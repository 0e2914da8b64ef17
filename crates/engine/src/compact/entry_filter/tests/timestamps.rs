//! Single deletions of keys with timestamps.

use super::*;

fn at(timestamp: u64, seq: u64, kind: ValueType, value: &[u8]) -> Entry {
    ([b"key".as_slice(), &timestamp.to_le_bytes()].concat(), seq, kind, value.to_vec())
}

/// A job that knows nothing about older data, with history from 10 on.
fn job() -> Job {
    Job { history_low: Some(10), flush: true, ..Job::default() }
}

#[test]
fn a_single_deletion_stays_below_what_hides_it() {
    // If the single deletion were dropped with the put above it, a put below would be seen again.
    let entries = [
        at(3, 3, ValueType::Value, b"third"),
        at(2, 2, ValueType::SingleDeletion, b""),
        at(1, 1, ValueType::Value, b"first"),
    ];
    let (left, _) = job().run(&entries).unwrap();
    assert_eq!(left, entries[..2]);
}

#[test]
fn a_single_deletion_stays_where_its_timestamp_may_be_read() {
    let entries = [
        at(12, 3, ValueType::SingleDeletion, b""),
        at(12, 2, ValueType::Value, b"later"),
        at(11, 1, ValueType::Value, b"earlier"),
    ];
    let bottommost = Job { bottommost: true, flush: false, ..job() };
    for job in [job(), bottommost] {
        let (left, _) = job.run(&entries).unwrap();
        assert_eq!(left, [entries[0].clone(), entries[2].clone()]);
    }
    // Before the history the single deletion is dropped together with its put.
    let past = [at(5, 2, ValueType::SingleDeletion, b""), at(5, 1, ValueType::Value, b"")];
    assert_eq!(job().run(&past).unwrap().0, []);
}
