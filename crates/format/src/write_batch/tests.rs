//! Tests of write batches: round trips of every operation, the count, and hostile bytes.

use super::*;
use proptest::prelude::*;

fn string() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        proptest::collection::vec(any::<u8>(), 120..140)
    ]
}

/// Each operation as (number of the variant, column family, two strings, a number).
type Plan = (u8, u32, Vec<u8>, Vec<u8>, u64);

fn plan() -> impl Strategy<Value = Plan> {
    (0..18u8, prop_oneof![Just(0u32), any::<u32>()], string(), string(), any::<u64>())
}

fn op(plan: &Plan) -> Op<'_> {
    let (n, cf, a, b, t) = (plan.0, ColumnFamilyId(plan.1), &plan.2[..], &plan.3[..], plan.4);
    match n {
        0 => Op::Put { cf, key: a, value: b },
        1 => Op::Delete { cf, key: a },
        2 => Op::SingleDelete { cf, key: a },
        3 => Op::DeleteRange { cf, begin: a, end: b },
        4 => Op::Merge { cf, key: a, operand: b },
        5 => Op::PutBlobIndex { cf, key: a, index: b },
        6 => Op::PutEntity { cf, key: a, entity: b },
        7 => Op::TimedPut { cf, key: a, value: b, write_unix_time: t },
        8 => Op::LogData(a),
        9 => Op::Noop,
        10 => Op::BeginPrepare(PrepareKind::Committed),
        11 => Op::BeginPrepare(PrepareKind::Prepared),
        12 => Op::BeginPrepare(PrepareKind::Unprepared),
        13 => Op::EndPrepare { xid: a },
        14 => Op::Commit { xid: a },
        15 => Op::CommitWithTimestamp { xid: a, timestamp: b },
        16 => Op::Rollback { xid: a },
        _ => Op::Put { cf: ColumnFamilyId::DEFAULT, key: b, value: a },
    }
}

proptest! {
    #[test]
    fn every_operation_comes_back(plans in proptest::collection::vec(plan(), 0..12), seq in 0..=SeqNo::MAX.0) {
        let mut batch = WriteBatch::new();
        batch.set_seq(SeqNo(seq));
        let ops: Vec<Op<'_>> = plans.iter().map(op).collect();
        ops.iter().for_each(|op| batch.push(*op));
        let counted = ops.iter().filter(|op| op.is_counted()).count();
        prop_assert_eq!(batch.count() as usize, counted);

        let read = BatchReader::parse(batch.as_bytes()).unwrap();
        prop_assert_eq!(read.seq(), SeqNo(seq));
        prop_assert_eq!(read.count() as usize, counted);
        let back: Vec<Op<'_>> = read.ops().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(&back, &ops);
        prop_assert_eq!(batch.reader().ops().collect::<Result<Vec<_>, _>>().unwrap(), ops);
        prop_assert_eq!(WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap(), batch.clone());
        batch.clear();
        prop_assert_eq!(batch, WriteBatch::new());
    }

    #[test]
    fn hostile_bytes_end_in_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(batch) = BatchReader::parse(&bytes) {
            let mut ops = 0;
            for op in batch.ops() {
                if let Err(e) = op { prop_assert!(e.offset <= bytes.len() as u64); }
                ops += 1;
            }
            prop_assert!(ops <= bytes.len());
        }
    }

    #[test]
    fn a_truncated_batch_is_refused(plans in proptest::collection::vec(plan(), 1..8), cut in 1usize..100) {
        let mut batch = WriteBatch::new();
        plans.iter().for_each(|p| batch.push(op(p)));
        let bytes = batch.as_bytes();
        let cut = &bytes[..bytes.len().saturating_sub(cut)];
        let counted = |b: BatchReader<'_>| b.ops().collect::<Result<Vec<_>, _>>().map(|ops| ops.iter().filter(|o| o.is_counted()).count());
        // A cut that removes only uncounted operations leaves a valid batch.
        match BatchReader::parse(cut).and_then(counted) {
            Ok(n) => prop_assert_eq!(n, batch.count() as usize),
            Err(e) => prop_assert!(e.offset <= cut.len() as u64),
        }
    }
}

#[test]
fn layout_of_a_batch_with_two_operations() {
    let mut batch = WriteBatch::new();
    batch.set_seq(SeqNo(100));
    batch.put(b"foo", b"bar");
    batch.push(Op::Delete { cf: ColumnFamilyId(300), key: b"k" });
    let expected = b"\x64\0\0\0\0\0\0\0\x02\0\0\0\x01\x03foo\x03bar\x04\xac\x02\x01k";
    assert_eq!(batch.as_bytes(), expected);
    assert!(!batch.is_empty());
}

#[test]
fn a_wrong_count_is_refused() {
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"b");
    batch.delete(b"a");
    batch.merge(b"a", b"c");
    batch.delete_range(b"a", b"b");
    let mut bytes = batch.as_bytes().to_vec();
    bytes[8] = 3;
    let ops: Vec<_> = BatchReader::parse(&bytes).unwrap().ops().collect();
    assert_eq!(ops.len(), 5);
    assert!(ops[..4].iter().all(Result::is_ok));
    assert!(ops[4].as_ref().unwrap_err().what.contains("header says 3"));
    assert!(WriteBatch::from_bytes(bytes).is_err());
}

#[test]
fn bad_operations_name_their_place() {
    for (tail, offset) in [
        (&b"\x1a"[..], 12u64),             // unknown tag
        (b"\x14\x01a", 12),                // a tag that occurs in tables only
        (b"\x01\x09abc\x01b", 13),         // key cut off
        (b"\x05\xff\xff\xff\xff\xff", 13), // column family id too long
        (b"\x18\x01k\x07abcdefg", 15),     // timed put too short for its time
    ] {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[8] = 1;
        bytes.extend_from_slice(tail);
        let error = BatchReader::parse(&bytes).unwrap().ops().next().unwrap().unwrap_err();
        assert!((offset..=offset + 1).contains(&error.offset), "{error}");
    }
    assert!(BatchReader::parse(&[0; 11]).is_err());
    assert!(BatchReader::parse(&[0xff; 12]).is_err());
}
