//! Replay of batches: the memtable and the sequence number of each entry.

use super::replay::{Replay, Target};
use super::replay_duplicates::{Passed, Tables};
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::comparator::Comparator;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{self, SeqNo};
use karst_format::write_batch::{Op, PrepareKind, WriteBatch};
use karst_storage::memtable::MemTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CF: ColumnFamilyId = ColumnFamilyId(0);

fn target(cf: u32, log_number: u64) -> Target {
    let memtable = Arc::new(MemTable::new(Comparator::Bytewise));
    Target {
        cf: ColumnFamilyId(cf),
        log_number: FileNumber(log_number),
        memtable,
        memory_bytes: usize::MAX,
        tables: None,
    }
}

/// Returns all point entries as `key@seq=value`, in order.
fn shown(memtable: &MemTable) -> Vec<String> {
    let mut out = Vec::new();
    let mut at = memtable.first();
    while let Some(position) = at {
        let (user_key, trailer) = key::split(memtable.key(position));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        out.push(format!(
            "{}@{}={}",
            text(user_key),
            trailer >> 8,
            text(memtable.value(memtable.value_at(position)))
        ));
        at = memtable.next(position);
    }
    out
}

fn batch(seq: u64, ops: &[Op<'_>]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    ops.iter().for_each(|op| batch.push(*op));
    batch.set_seq(SeqNo(seq));
    batch
}

fn put<'a>(cf: u32, key: &'a str, value: &'a str) -> Op<'a> {
    Op::Put { cf: ColumnFamilyId(cf), key: key.as_bytes(), value: value.as_bytes() }
}

#[test]
fn entries_are_numbered_as_they_were_written() {
    let (a, b) = (target(0, 5), target(3, 9));
    let mut replay = Replay::new(vec![a.clone(), b.clone()], SeqNo(99));
    let ops =
        [put(0, "x", "1"), Op::LogData(b"note"), put(7, "gone", "2"), put(3, "y", "3"), put(0, "x", "4")];
    replay.apply(FileNumber(9), batch(100, &ops).reader()).unwrap();
    assert_eq!(shown(&a.memtable), ["x@103=4", "x@100=1"]);
    assert_eq!(shown(&b.memtable), ["y@102=3"]);
    assert_eq!((replay.next_seq(), replay.applied()), (SeqNo(104), 3));
    // Log 8 was flushed by family 3 but not by the default one.
    replay.apply(FileNumber(8), batch(104, &[put(3, "old", ""), put(0, "new", "")]).reader()).unwrap();
    assert_eq!(shown(&b.memtable).len(), 1);
    assert_eq!(shown(&a.memtable)[0], "new@105=");
    // Older batches do not take the numbering back.
    replay.apply(FileNumber(10), batch(50, &[]).reader()).unwrap();
    assert_eq!(replay.next_seq(), SeqNo(106));
}

#[test]
fn prepared_sections_wait_for_their_commit() {
    let a = target(0, 1);
    let mut replay = Replay::new(vec![a.clone()], SeqNo(9));
    let section = |xid, key| {
        [
            Op::BeginPrepare(PrepareKind::Committed),
            put(0, key, "p"),
            put(0, "k2", key),
            Op::EndPrepare { xid },
        ]
    };
    replay.apply(FileNumber(1), batch(10, &section(b"one", "a")).reader()).unwrap();
    replay.apply(FileNumber(1), batch(10, &section(b"two", "b")).reader()).unwrap();
    replay.apply(FileNumber(1), batch(10, &section(b"three", "c")).reader()).unwrap();
    assert!(shown(&a.memtable).is_empty());
    assert_eq!(replay.next_seq(), SeqNo(10));
    replay.apply(FileNumber(2), batch(10, &[put(0, "plain", "")]).reader()).unwrap();
    replay.apply(FileNumber(2), batch(11, &[Op::Commit { xid: b"two" }]).reader()).unwrap();
    replay
        .apply(
            FileNumber(2),
            batch(13, &[Op::Rollback { xid: b"one" }, Op::Commit { xid: b"unknown" }]).reader(),
        )
        .unwrap();
    assert_eq!(shown(&a.memtable), ["b@11=p", "k2@12=b", "plain@10="]);
    assert_eq!((replay.next_seq(), replay.into_undecided().len()), (SeqNo(13), 1));
}

#[test]
fn write_prepared_sections_keep_the_number_of_their_prepare() {
    let a = target(0, 1);
    let mut replay = Replay::new(vec![a.clone()], SeqNo(9));
    let ops = [
        Op::BeginPrepare(PrepareKind::Prepared),
        put(0, "a", "1"),
        put(0, "b", "2"),
        put(0, "a", "3"),
        Op::EndPrepare { xid: b"t" },
    ];
    let expected = ["a@21=3", "a@20=1", "b@20=2"];
    replay.apply(FileNumber(1), batch(20, &ops).reader()).unwrap();
    assert_eq!(shown(&a.memtable), expected, "in the order of numbers, not of decisions");
    replay.apply(FileNumber(1), batch(30, &[Op::Commit { xid: b"t" }]).reader()).unwrap();
    assert_eq!(shown(&a.memtable), expected);
}

#[test]
fn broken_batches_are_refused_with_their_place() {
    let a = target(0, 1);
    let refused = |ops: &[Op<'_>]| {
        Replay::new(vec![a.clone()], SeqNo(0)).apply(FileNumber(1), batch(1, ops).reader()).unwrap_err()
    };
    assert!(refused(&[Op::EndPrepare { xid: b"x" }]).what.contains("without its start"));
    assert!(refused(&[Op::BeginPrepare(PrepareKind::Committed)]).what.contains("without its end"));
    let error = refused(&[
        put(0, "k", "v"),
        Op::BeginPrepare(PrepareKind::Committed),
        Op::BeginPrepare(PrepareKind::Committed),
    ]);
    assert!(error.what.contains("inside another") && error.offset > 12);
    for op in [Op::Commit { xid: b"x" }, Op::Noop, put(0, "k", "v")] {
        let over = batch(u64::MAX, &[op, op]);
        assert!(Replay::new(vec![a.clone()], SeqNo(0)).apply(FileNumber(1), over.reader()).is_err());
    }
    let over = batch(SeqNo::MAX.0, &[put(0, "q", ""), put(0, "r", "")]);
    assert!(Replay::new(vec![a.clone()], SeqNo(0)).apply(FileNumber(1), over.reader()).is_err());
}

#[test]
fn every_kind_of_write_reaches_the_memtable() {
    let a = target(0, 1);
    let mut replay = Replay::new(vec![a.clone()], SeqNo(0));
    let ops = [
        Op::Delete { cf: CF, key: b"a" },
        Op::SingleDelete { cf: CF, key: b"b" },
        Op::DeleteRange { cf: CF, begin: b"a", end: b"z" },
        Op::Merge { cf: CF, key: b"c", operand: b"m" },
        Op::PutBlobIndex { cf: CF, key: b"d", index: b"i" },
        Op::PutEntity { cf: CF, key: b"e", entity: b"w" },
        Op::TimedPut { cf: CF, key: b"f", value: b"t", write_unix_time: 5 },
    ];
    replay.apply(FileNumber(1), batch(1, &ops).reader()).unwrap();
    let kinds: Vec<u8> = {
        let (mut kinds, mut at) = (Vec::new(), a.memtable.first());
        while let Some(position) = at {
            kinds.push(key::split(a.memtable.key(position)).1 as u8);
            at = a.memtable.next(position);
        }
        kinds
    };
    assert_eq!(kinds, [0x00, 0x07, 0x02, 0x11, 0x16, 0x18]);
    assert_eq!(a.memtable.covering_tombstone(b"q", SeqNo(9)), SeqNo(3));
    assert_eq!((a.memtable.entry_count(), a.memtable.delete_count(), replay.next_seq()), (7, 2, SeqNo(8)));
}

#[test]
fn batches_are_numbered_as_their_writers_did_whatever_the_policy() {
    let a = target(0, 1);
    let mut replay = Replay::new(vec![a.clone()], SeqNo(0));
    let mut apply = |log: u64, seq: u64, ops: &[Op<'_>]| {
        let behind = replay.apply(FileNumber(log), batch(seq, ops).reader()).unwrap();
        (behind.start().0, behind.end().0)
    };
    let exactly = |seq| (seq, seq);
    // RocksDB's: one record of two batches, of which the second writes a key twice. It may also be
    // one of the policy WriteCommitted, whose last transaction was empty.
    let merged = [
        Op::Noop,
        put(0, "a", "1"),
        put(0, "b", "1"),
        Op::Noop,
        put(0, "c", "1"),
        Op::Delete { cf: CF, key: b"c" },
        Op::Noop,
    ];
    assert_eq!(apply(1, 10, &merged), (13, 14));
    // Ours: a number for each operation.
    let ours = [put(0, "d", "1"), put(0, "e", "1"), Op::Noop, Op::LogData(b"")];
    assert_eq!(apply(1, 13, &ours), exactly(15));
    // RocksDB's, of a batch that was written a second time and got a second mark.
    let again = [put(0, "d", "2"), put(0, "e", "2"), Op::Noop, Op::Noop];
    assert_eq!(apply(1, 15, &again), (16, 17));
    // Written before the policy was chosen.
    assert_eq!(apply(1, 16, &[put(0, "f", "1"), put(0, "g", "1")]), exactly(18));
    let section = [
        Op::BeginPrepare(PrepareKind::Prepared),
        put(0, "h", "1"),
        put(0, "h", "2"),
        Op::EndPrepare { xid: b"t" },
    ];
    assert_eq!(apply(1, 18, &section), exactly(20));
    let rolled_back = [put(0, "h", "old"), put(0, "i", "old"), Op::Rollback { xid: b"t" }];
    assert_eq!(apply(1, 20, &rolled_back), exactly(21));
    // One number under WritePrepared, one for each operation under WriteCommitted.
    assert_eq!(apply(1, 21, &[Op::Commit { xid: b"gone" }]), (21, u64::MAX));
    assert_eq!(apply(1, 30, &[Op::Rollback { xid: b"gone" }]), (30, 31));
    // RocksDB's, of the policy WriteCommitted: a batch and a commit in one record, and batches of
    // two transactions.
    let committed = [
        Op::BeginPrepare(PrepareKind::Committed),
        put(0, "j", "1"),
        put(0, "k", "1"),
        Op::EndPrepare { xid: b"c" },
    ];
    assert_eq!(apply(1, 40, &committed), exactly(40));
    let grouped = [put(0, "l", "1"), put(0, "m", "1"), Op::Commit { xid: b"c" }];
    assert_eq!(apply(1, 40, &grouped), exactly(44));
    assert_eq!(
        apply(1, 44, &[Op::Noop, put(0, "n", "1"), put(0, "o", "1"), Op::Noop, put(0, "p", "1")]),
        exactly(47)
    );
    // An opening logs an undecided section anew: rolled back and prepared again, at its old number.
    let again: Vec<Op<'_>> = [Op::Rollback { xid: b"u" }].into_iter().chain(section).collect();
    assert_eq!(apply(2, 4, &again), exactly(7));
    assert_eq!(
        shown(&a.memtable),
        [
            "a@10=1", "b@10=1", "c@12=", "c@11=1", "d@15=2", "d@13=1", "e@15=2", "e@14=1", "f@16=1",
            "g@17=1", "h@20=old", "h@19=2", "h@18=1", "h@6=2", "h@5=1", "i@20=old", "j@42=1", "k@43=1",
            "l@40=1", "m@41=1", "n@44=1", "o@45=1", "p@46=1"
        ]
    );
    let undecided = replay.into_undecided();
    assert_eq!(undecided.iter().map(|u| u.range()).collect::<Vec<_>>(), [Some((SeqNo(5), 2))]);
}

/// An opening logs a prepared section anew, and fails before the MANIFEST is written: its tables
/// still have their entries.
#[test]
fn what_is_logged_anew_is_not_added_to_families_that_have_it_in_tables() {
    let (flushed, other) = (target(0, 2), target(1, 1));
    let mut replay = Replay::new(vec![flushed.clone(), other.clone()], SeqNo(0));
    let section = [
        Op::BeginPrepare(PrepareKind::Prepared),
        put(0, "a", "1"),
        put(1, "b", "1"),
        Op::EndPrepare { xid: b"t" },
    ];
    replay.apply(FileNumber(1), batch(5, &section).reader()).unwrap();
    let again: Vec<Op<'_>> = [Op::Rollback { xid: b"t" }].into_iter().chain(section).collect();
    replay.apply(FileNumber(3), batch(4, &again).reader()).unwrap();
    assert!(shown(&flushed.memtable).is_empty());
    assert_eq!(shown(&other.memtable), ["b@5=1"]);
}

/// The log of a section is no longer needed, and was not read to its end.
#[test]
fn sections_whose_log_is_needed_no_more_are_forgotten() {
    let a = target(0, 1);
    let mut replay = Replay::new(vec![a.clone()], SeqNo(0));
    let section = |kind, key: &'static str, xid: &'static str| {
        [Op::BeginPrepare(kind), put(0, key, "1"), Op::EndPrepare { xid: xid.as_bytes() }]
    };
    let (early, late) = (PrepareKind::Prepared, PrepareKind::Committed);
    replay.apply(FileNumber(1), batch(5, &section(early, "a", "early")).reader()).unwrap();
    replay.apply(FileNumber(1), batch(6, &section(late, "b", "late")).reader()).unwrap();
    replay.apply(FileNumber(1), batch(6, &section(early, "c", "kept")).reader()).unwrap();
    // Its log is now the one in which an opening has logged it anew.
    let again: Vec<Op<'_>> =
        [Op::Rollback { xid: b"kept" }].into_iter().chain(section(early, "c", "kept")).collect();
    replay.apply(FileNumber(3), batch(5, &again).reader()).unwrap();
    replay.forget_decided(FileNumber(2));
    assert_eq!(replay.undecided_ranges().collect::<Vec<_>>(), [(SeqNo(6), 1)]);
    // The next transaction of a name writes its own entries only.
    replay.apply(FileNumber(3), batch(9, &section(late, "d", "late")).reader()).unwrap();
    replay.apply(FileNumber(3), batch(9, &[Op::Commit { xid: b"late" }]).reader()).unwrap();
    assert_eq!(shown(&a.memtable), ["a@5=1", "c@6=1", "d@9=1"]);
    replay.forget_decided(FileNumber(4));
    assert!(replay.into_undecided().is_empty());
}

/// Half a batch would be a state that no writer wrote.
#[test]
fn nothing_of_a_batch_that_does_not_decode_is_applied() {
    let whole = batch(10, &[put(0, "a", "1"), put(0, "b", "2")]);
    let bytes = whole.as_bytes();
    let mut of_an_unknown_kind = bytes.to_vec();
    of_an_unknown_kind.push(0x7e);
    let mut of_another_count = bytes.to_vec();
    of_another_count[8] = 3;
    for damaged in [&bytes[..bytes.len() - 1], &of_an_unknown_kind, &of_another_count] {
        let a = target(0, 1);
        let mut replay = Replay::new(vec![a.clone()], SeqNo(0));
        let batch = karst_format::write_batch::BatchReader::parse(damaged).unwrap();
        assert!(replay.apply(FileNumber(1), batch).is_err());
        assert_eq!((a.memtable.entry_count(), replay.applied(), replay.next_seq()), (0, 0, SeqNo(1)));
    }
}

/// Tables with the newest numbers of some keys.
#[derive(Debug)]
struct Written {
    largest: u64,
    newest: Vec<(&'static str, u64)>,
    fails: bool,
}

impl Tables for Written {
    fn largest_seq(&self) -> SeqNo {
        SeqNo(self.largest)
    }

    fn written_since(&self, key: &[u8], seq: SeqNo) -> Result<bool> {
        if self.fails {
            return Err(Error::new(ErrorKind::Io, "the table cannot be read"));
        }
        Ok(self.newest.iter().any(|(name, newest)| name.as_bytes() == key && *newest > seq.0))
    }
}

/// Replays three batches of two operations from sequence number 5 on, beside `tables`. Returns the
/// entries and the skipped records.
fn replayed_beside(tables: Written) -> Result<(Vec<String>, Vec<Passed>)> {
    let target = Target { tables: Some(Arc::new(tables)), ..target(0, 1) };
    let mut replay = Replay::new(vec![target.clone()], SeqNo(4));
    for (seq, key) in [(5, "a"), (7, "b"), (9, "c")] {
        let merge = Op::Merge { cf: CF, key: b"all", operand: b"1" };
        replay.apply(FileNumber(1), batch(seq, &[merge, put(0, key, "")]).reader()).unwrap();
        replay.check()?;
    }
    let passed = replay.end()?;
    assert_eq!(replay.applied(), target.memtable.entry_count());
    Ok((shown(&target.memtable), passed))
}

#[test]
fn what_tables_have_is_passed_over_with_all_that_is_older() {
    let all = ["a@6=", "all@9=1", "all@7=1", "all@5=1", "b@8=", "c@10="];
    let passed = |entries, through| vec![Passed { column_family: CF, entries, through: SeqNo(through) }];
    let beside = |largest, newest| replayed_beside(Written { largest, newest, fails: false }).unwrap();
    assert_eq!(beside(4, vec![]), (all.map(String::from).to_vec(), vec![]), "tables end before the log");
    // The operands were merged when they were flushed; `b` was overwritten, or is as it was.
    for newest in [vec![("all", 7), ("b", 8)], vec![("all", 7)], vec![("b", 8)]] {
        let through = if newest.iter().any(|(key, _)| *key == "b") { 8 } else { 7 };
        let expected: &[&str] = match through {
            8 => &["all@9=1", "c@10="],
            _ => &["all@9=1", "b@8=", "c@10="],
        };
        assert_eq!(
            beside(8, newest),
            (expected.iter().map(|s| s.to_string()).collect(), passed(through - 4, through))
        );
    }
    // All records of the log; and the number of an ingested table, which has none of these keys.
    assert_eq!(beside(10, vec![("c", 10)]), (vec![], passed(6, 10)));
    assert_eq!(beside(100, vec![("z", 100)]), (all.map(String::from).to_vec(), vec![]));
}

#[test]
fn tables_that_cannot_be_read_are_no_damage_of_a_log() {
    let error = replayed_beside(Written { largest: 6, newest: vec![], fails: true }).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("with tables"), "{error}");
}

/// Tables whose numbers exceed the log's, like ingested ones, are checked for the first lot only.
#[test]
fn a_lot_that_no_table_has_ends_the_doubt() {
    #[derive(Debug)]
    struct Counting(AtomicU64, u64);
    impl Tables for Counting {
        fn largest_seq(&self) -> SeqNo {
            SeqNo(1 << 40)
        }
        fn written_since(&self, _: &[u8], seq: SeqNo) -> Result<bool> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(seq.0 < self.1)
        }
    }
    for (in_tables, asked) in [(0, 4096), (5000, 2 + 8192 - 5000 + 4096)] {
        let tables = Arc::new(Counting(AtomicU64::new(0), in_tables));
        let target = Target { tables: Some(tables.clone()), ..target(0, 1) };
        let mut replay = Replay::new(vec![target.clone()], SeqNo::ZERO);
        for seq in 1..=20_000 {
            replay.apply(FileNumber(1), batch(seq, &[put(0, &format!("{seq:05}"), "")]).reader()).unwrap();
        }
        let passed = replay.end().unwrap();
        assert_eq!(target.memtable.entry_count(), 20_000 - in_tables);
        assert_eq!(passed.iter().map(|passed| passed.entries).sum::<u64>(), in_tables);
        assert_eq!(tables.0.load(Ordering::Relaxed), asked);
        assert!(replay.next_seq() > SeqNo(1 << 40), "no number is used twice");
    }
}
