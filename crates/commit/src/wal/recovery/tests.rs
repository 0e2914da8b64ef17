//! Recovery modes over logs that are whole, torn, damaged in the middle, recycled, or follow a
//! damaged one.

use super::*;
use karst_format::comparator::Comparator;
use karst_format::ids::ColumnFamilyId;
use karst_format::log::LogWriter;
use karst_format::write_batch::{Op, PrepareKind, WriteBatch};
use karst_storage::memtable::MemTable;
use std::sync::Arc;

const MODES: [RecoveryMode; 4] = [
    RecoveryMode::TolerateCorruptedTailRecords,
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::PointInTimeRecovery,
    RecoveryMode::SkipAnyCorruptedRecords,
];

/// Returns a log with one put per record, at sequence numbers from `first` on.
fn log(number: u64, first: u64, count: u64, recyclable: bool, compressed: bool) -> Vec<u8> {
    let mut writer = LogWriter::new(FileNumber(number), recyclable);
    let mut out = Vec::new();
    if compressed {
        writer.compress_with_zstd(&mut out).unwrap();
    }
    for seq in first..first + count {
        let mut batch = WriteBatch::new();
        batch.put(format!("key{seq:04}").as_bytes(), &[b'v'; 50]);
        batch.set_seq(SeqNo(seq));
        writer.append(batch.as_bytes(), &mut out).unwrap();
    }
    out
}

/// Replays the logs and returns the number of entries, or the error.
fn recover(mode: RecoveryMode, logs: &[(u64, &[u8])]) -> Result<(u64, Recovered)> {
    recover_with(mode, false, logs)
}

fn recover_with(mode: RecoveryMode, two_phases: bool, logs: &[(u64, &[u8])]) -> Result<(u64, Recovered)> {
    let memtable = Arc::new(MemTable::new(Comparator::Bytewise));
    let target = Target {
        cf: ColumnFamilyId(0),
        log_number: FileNumber(1),
        memtable: memtable.clone(),
        memory_bytes: usize::MAX,
        tables: None,
    };
    let mut recovery = Recovery::new(mode, vec![target], (SeqNo(0), FileNumber(1)), two_phases);
    for (number, bytes) in logs {
        let path = format!("/db/{number:06}.log");
        recovery.log(FileNumber(*number), Path::new(&path), bytes, &mut |_| Ok(()))?;
    }
    let recovered = recovery.finish([("default", FileNumber(1))])?;
    assert_eq!(recovered.applied, memtable.entry_count());
    Ok((memtable.entry_count(), recovered))
}

#[test]
fn whole_logs_are_replayed_in_every_mode() {
    for mode in MODES {
        for (recyclable, compressed) in [(false, false), (true, false), (false, true), (true, true)] {
            let (a, b) = (log(4, 1, 700, recyclable, compressed), log(7, 701, 10, recyclable, compressed));
            let (entries, recovered) = recover(mode, &[(4, &a), (7, &b)]).unwrap();
            assert_eq!((entries, recovered.next_seq), (710, SeqNo(711)), "{mode:?}");
            assert!(recovered.stopped.is_none());
        }
    }
}

#[test]
fn a_torn_tail_is_an_error_only_where_everything_is() {
    let whole = log(4, 1, 20, false, false);
    for cut in whole.len() - 80..whole.len() {
        for mode in MODES {
            let outcome = recover(mode, &[(4, &whole[..cut])]);
            let complete = (1..=20).rev().find(|n| log(4, 1, *n, false, false).len() <= cut).unwrap();
            let at_boundary = log(4, 1, complete, false, false).len() == cut;
            if mode == RecoveryMode::AbsoluteConsistency && !at_boundary {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("/db/000004.log, offset "), "{error}");
            } else {
                assert_eq!(outcome.unwrap().0, complete, "{mode:?} cut at {cut}");
            }
        }
    }
}

#[test]
fn damage_in_the_middle() {
    let mut bytes = log(4, 1, 20, false, false);
    let third = log(4, 1, 2, false, false).len();
    bytes[third + 30] ^= 1;
    for mode in [RecoveryMode::TolerateCorruptedTailRecords, RecoveryMode::AbsoluteConsistency] {
        let error = recover(mode, &[(4, &bytes)]).unwrap_err().to_string();
        assert!(error.contains(&format!("000004.log, offset {third}")), "{error}");
    }
    let (entries, recovered) = recover(RecoveryMode::PointInTimeRecovery, &[(4, &bytes)]).unwrap();
    assert_eq!((entries, recovered.next_seq), (2, SeqNo(3)));
    assert_eq!(recovered.stopped.unwrap().corruption.offset, third as u64);
    // The rest of the block is dropped, because its lengths cannot be trusted.
    assert_eq!(recover(RecoveryMode::SkipAnyCorruptedRecords, &[(4, &bytes)]).unwrap().0, 2);
}

#[test]
fn after_damage_only_what_follows_without_a_gap_counts() {
    let mode = RecoveryMode::PointInTimeRecovery;
    let mut first = log(4, 1, 20, false, false);
    let third = log(4, 1, 2, false, false).len();
    first[third + 30] ^= 1;
    // The database was opened after the damage and continued at sequence number 3.
    let next = log(9, 3, 5, false, false);
    let (entries, recovered) = recover(mode, &[(4, &first), (9, &next)]).unwrap();
    assert_eq!((entries, recovered.next_seq), (7, SeqNo(8)));
    assert!(recovered.stopped.is_none());
    // A log written before the damage was noticed has a gap in front of it.
    let gap = log(9, 21, 5, false, false);
    let (entries, recovered) = recover(mode, &[(4, &first), (9, &gap)]).unwrap();
    assert_eq!((entries, recovered.stopped.unwrap().log), (2, FileNumber(4)));
    // An empty log in between changes nothing.
    assert_eq!(recover(mode, &[(4, &first), (8, &[]), (9, &next)]).unwrap().0, 7);
}

/// Some sectors were not written before a loss of power, and later ones were.
#[test]
fn zeroed_space_is_damage_where_records_are_missing_behind_it() {
    let whole = log(4, 1, 2000, false, false);
    let start = log(4, 1, 100, false, false).len();
    let mut holed = whole.clone();
    holed[start..karst_format::log::BLOCK_BYTES].fill(0);
    let (entries, recovered) = recover(RecoveryMode::PointInTimeRecovery, &[(4, &holed)]).unwrap();
    assert_eq!((entries, recovered.next_seq), (100, SeqNo(101)));
    assert!(recovered.stopped.is_some());
    recover(RecoveryMode::AbsoluteConsistency, &[(4, &holed)]).unwrap_err();
    // Reserved space that was never written is no damage.
    let mut reserved = log(4, 1, 100, false, false);
    reserved.resize(100_000, 0);
    let next = log(5, 101, 3, false, false);
    assert_eq!(recover(RecoveryMode::AbsoluteConsistency, &[(4, &reserved), (5, &next)]).unwrap().0, 103);
}

#[test]
fn a_recycled_log_ends_where_its_former_life_begins() {
    let old = log(3, 1, 40, true, false);
    let new = log(8, 41, 10, true, false);
    let mut recycled = old.clone();
    recycled[..new.len()].copy_from_slice(&new);
    for mode in MODES {
        assert_eq!(recover(mode, &[(8, &recycled)]).unwrap().0, 10, "{mode:?}");
    }
    let following = log(9, 51, 2, true, false);
    let mode = RecoveryMode::PointInTimeRecovery;
    assert_eq!(recover(mode, &[(8, &recycled), (9, &following)]).unwrap().0, 12);
    let gap = log(9, 60, 2, true, false);
    assert_eq!(recover(mode, &[(8, &recycled), (9, &gap)]).unwrap().0, 10);
}

/// An ingested file takes numbers that no log has. They are no gap if the next log shows that its
/// predecessor is whole.
#[test]
fn numbers_may_be_missing_behind_a_recycled_log_that_is_whole() {
    let new = log(8, 41, 10, true, false);
    let mut recycled = log(3, 1, 40, true, false);
    recycled[..new.len()].copy_from_slice(&new);
    let next = |size_bytes: usize| {
        let mut writer = LogWriter::new(FileNumber(9), true);
        let mut out = Vec::new();
        let (size_bytes, last_seq) = (size_bytes as u64, SeqNo(50));
        writer.append_predecessor(&Predecessor { log: FileNumber(8), size_bytes, last_seq }, &mut out);
        let mut batch = WriteBatch::new();
        batch.put(b"behind", b"the file");
        batch.set_seq(SeqNo(60));
        writer.append(batch.as_bytes(), &mut out).unwrap();
        out
    };
    let mode = RecoveryMode::PointInTimeRecovery;
    let (entries, recovered) = recover(mode, &[(8, &recycled), (9, &next(new.len()))]).unwrap();
    assert_eq!((entries, recovered.stopped.is_none()), (11, true));
    let (entries, recovered) = recover(mode, &[(8, &recycled), (9, &next(new.len() + 70))]).unwrap();
    assert_eq!((entries, recovered.stopped.is_some()), (10, true));
}

#[test]
fn tables_newer_than_the_recovered_point_are_refused() {
    let whole = log(4, 1, 20, false, false);
    let target = Target {
        cf: ColumnFamilyId(0),
        log_number: FileNumber(1),
        memtable: Arc::new(MemTable::new(Comparator::Bytewise)),
        memory_bytes: usize::MAX,
        tables: None,
    };
    let mut recovery =
        Recovery::new(RecoveryMode::PointInTimeRecovery, vec![target], (SeqNo(0), FileNumber(1)), false);
    let torn = &whole[..whole.len() - 5];
    recovery.log(FileNumber(4), Path::new("/db/000004.log"), torn, &mut |_| Ok(())).unwrap();
    let error =
        recovery.finish([("default", FileNumber(1)), ("other", FileNumber(5))]).unwrap_err().to_string();
    assert!(error.contains("\"other\"") && error.contains("/db/000004.log, offset "), "{error}");
}

#[test]
fn a_log_that_misses_its_predecessor_is_noticed() {
    let first = log(4, 1, 3, false, false);
    let second = |size_bytes: u64| {
        let mut writer = LogWriter::new(FileNumber(6), false);
        let mut out = Vec::new();
        let predecessor = Predecessor { log: FileNumber(4), size_bytes, last_seq: SeqNo(3) };
        writer.append_predecessor(&predecessor, &mut out);
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v");
        batch.set_seq(SeqNo(4));
        writer.append(batch.as_bytes(), &mut out).unwrap();
        out
    };
    let mode = RecoveryMode::AbsoluteConsistency;
    let good = second(first.len() as u64);
    assert_eq!(recover(mode, &[(4, &first), (6, &good)]).unwrap().0, 4);
    let error = recover(mode, &[(6, &good)]).unwrap_err().to_string();
    assert!(error.contains("000006.log") && error.contains("should be #4"), "{error}");
    assert!(recover(mode, &[(4, &first), (6, &second(9))]).is_err());
}

/// A log's number and bytes.
type Log<'a> = (u64, &'a [u8]);

#[test]
fn a_log_in_the_middle_that_is_gone_or_torn_leaves_no_hole() {
    let first = log_of(4, false, None, &[(1, put(b"a"))]);
    let second = log_of(6, false, None, &[(2, put(b"b")), (3, put(b"c"))]);
    let torn = &second[..second.len() - 3];
    let note = log_of(8, false, Some((6, 4, second.len() as u64)), &[(4, put(b"d"))]);
    let mut record = Vec::new();
    let mut writer = LogWriter::new(FileNumber(8), false);
    let predecessor = Predecessor { log: FileNumber(6), size_bytes: second.len() as u64, last_seq: SeqNo(3) };
    writer.append_predecessor(&predecessor, &mut record);
    let mut batch = WriteBatch::new();
    batch.push(put(b"d"));
    batch.set_seq(SeqNo(4));
    writer.append(batch.as_bytes(), &mut record).unwrap();
    for third in [&note, &record] {
        let whole: [Log<'_>; 3] = [(4, &first), (6, &second), (8, third)];
        let damaged: [(&[Log<'_>], u64); 3] = [
            (&[(4, &first), (8, third)], 1),
            (&[(4, &first), (6, &[]), (8, third)], 1),
            (&[(4, &first), (6, torn), (8, third)], 2),
        ];
        for mode in MODES {
            assert_eq!(recover(mode, &whole).unwrap().0, 4, "{mode:?}");
            for (logs, before) in damaged {
                match (mode, recover(mode, logs)) {
                    (RecoveryMode::SkipAnyCorruptedRecords, found) => {
                        let (entries, recovered) = found.unwrap();
                        assert_eq!((entries, recovered.skipped), (before + 1, true), "it is told");
                    }
                    (RecoveryMode::PointInTimeRecovery, found) => {
                        let (entries, recovered) = found.unwrap();
                        let stopped = recovered.stopped.expect("it ends before the third log");
                        // Replay ends in the log that is not whole, because a family that was
                        // flushed after it is ahead.
                        assert_eq!((entries, stopped.log), (before, FileNumber(6)));
                    }
                    (RecoveryMode::AbsoluteConsistency, found) => {
                        assert!(found.unwrap_err().to_string().contains(".log, offset "));
                    }
                    (RecoveryMode::TolerateCorruptedTailRecords, found) => {
                        let error = found.unwrap_err().to_string();
                        assert!(error.contains("000008.log") && error.contains("#6"), "{error}");
                    }
                }
            }
        }
    }
}

/// With `track_and_verify_wals` a log names the end of its predecessor. The lost records may have
/// taken no number.
#[test]
fn a_torn_end_without_numbers_is_noticed_by_what_the_next_log_says() {
    let put_at = |writer: &mut LogWriter, seq, out: &mut Vec<u8>| {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v");
        batch.set_seq(SeqNo(seq));
        writer.append(batch.as_bytes(), out).unwrap();
    };
    let mut writer = LogWriter::new(FileNumber(4), false);
    let (mut first, mut next) = (Vec::new(), Vec::new());
    put_at(&mut writer, 5, &mut first);
    let plain = first.len();
    let mut section = WriteBatch::new();
    section.push(Op::BeginPrepare(PrepareKind::Committed));
    section.push(put(b"prepared"));
    section.push(Op::EndPrepare { xid: b"t" });
    section.set_seq(SeqNo(6));
    writer.append(section.as_bytes(), &mut first).unwrap();
    let mut writer = LogWriter::new(FileNumber(7), false);
    let predecessor = Predecessor { log: FileNumber(4), size_bytes: first.len() as u64, last_seq: SeqNo(6) };
    writer.append_predecessor(&predecessor, &mut next);
    put_at(&mut writer, 6, &mut next);
    let mode = RecoveryMode::PointInTimeRecovery;
    assert_eq!(recover_with(mode, true, &[(4, &first), (7, &next)]).unwrap().0, 2);
    let torn = &first[..plain + 20];
    let (entries, recovered) = recover_with(mode, true, &[(4, torn), (7, &next)]).unwrap();
    assert_eq!((entries, recovered.stopped.map(|stopped| stopped.log)), (1, Some(FileNumber(4))));
    // If the next log shows that no record is missing, the apparent damage is the file's former
    // content.
    let mut next = Vec::new();
    let mut writer = LogWriter::new(FileNumber(7), false);
    writer.append_predecessor(&Predecessor { size_bytes: plain as u64, ..predecessor }, &mut next);
    put_at(&mut writer, 6, &mut next);
    let (entries, recovered) = recover_with(mode, true, &[(4, torn), (7, &next)]).unwrap();
    assert_eq!((entries, recovered.stopped.is_none()), (2, true));
}

#[test]
fn records_that_are_no_batches() {
    let mut writer = LogWriter::new(FileNumber(4), false);
    let mut bytes = log(4, 1, 2, false, false);
    let start = bytes.len();
    let mut junk = Vec::new();
    writer.append(b"short", &mut junk).unwrap();
    bytes.extend_from_slice(&junk);
    let error = recover(RecoveryMode::TolerateCorruptedTailRecords, &[(4, &bytes)]).unwrap_err().to_string();
    assert!(error.contains(&format!("offset {start}")) && error.contains("header"), "{error}");
    assert_eq!(recover(RecoveryMode::PointInTimeRecovery, &[(4, &bytes)]).unwrap().0, 2);
}

/// A family that was flushed after a log needs none of it, and the log was synced before the flush
/// was recorded. The power failed before the log's file was truncated and before the next log had a
/// byte.
#[test]
fn a_family_may_be_ahead_of_a_recycled_log_that_ends() {
    let old = log(3, 1, 40, true, false);
    // The log ends in the middle of an old record.
    let new = log(8, 41, 10, true, true);
    let mut recycled = old.clone();
    recycled[..new.len()].copy_from_slice(&new);
    let finish = |next: Option<&[u8]>| {
        let memtable = Arc::new(MemTable::new(Comparator::Bytewise));
        let target = Target {
            cf: ColumnFamilyId(0),
            log_number: FileNumber(1),
            memtable,
            memory_bytes: usize::MAX,
            tables: None,
        };
        let mode = RecoveryMode::PointInTimeRecovery;
        let mut recovery = Recovery::new(mode, vec![target], (SeqNo(0), FileNumber(1)), false);
        for (number, bytes) in [(8, Some(&recycled[..])), (9, next)] {
            let path = format!("/db/{number:06}.log");
            recovery.log(FileNumber(number), Path::new(&path), bytes.unwrap_or_default(), &mut |_| Ok(()))?;
        }
        recovery.finish([("default", FileNumber(1)), ("flushed", FileNumber(9))])
    };
    assert_eq!(finish(None).unwrap().applied, 10);
    // The first log had more records, and the flushed family has tables with them.
    let error = finish(Some(&log(9, 60, 2, true, false))).unwrap_err().to_string();
    assert!(error.contains("newer than the damage in a log"), "{error}");
}

/// The former content after the newest log's end in a recycled file is no damage, unless a later
/// log shows a gap; only then it is reported.
#[test]
fn the_end_of_a_recycled_log_is_told_from_damage() {
    let old = log(3, 1, 40, true, false);
    // The second log ends in the middle of an old record.
    let mode = RecoveryMode::PointInTimeRecovery;
    for extra in [0, 7] {
        let mut new = log(8, 41, 10, true, false);
        let mut writer = LogWriter::new(FileNumber(8), true);
        let mut batch = WriteBatch::new();
        batch.put(&vec![b'k'; extra + 1], b"");
        batch.set_seq(SeqNo(51));
        writer.append(batch.as_bytes(), &mut new).unwrap();
        let mut recycled = old.clone();
        recycled[..new.len()].copy_from_slice(&new);
        let (entries, recovered) = recover(mode, &[(8, &recycled)]).unwrap();
        assert_eq!((entries, recovered.next_seq), (11, SeqNo(52)), "{extra}");
        assert!(recovered.stopped.unwrap().is_plain_end());
        let hole = log(9, 60, 2, true, false);
        let (entries, recovered) = recover(mode, &[(8, &recycled), (9, &hole)]).unwrap();
        assert_eq!(entries, 11);
        assert!(!recovered.stopped.unwrap().is_plain_end());
    }
}

/// Returns a log with these batches, after the predecessor `before` if given: its number, the
/// sequence number after it and its size.
fn log_of(
    number: u64,
    recyclable: bool,
    before: Option<(u64, u64, u64)>,
    batches: &[(u64, Op<'_>)],
) -> Vec<u8> {
    let mut writer = LogWriter::new(FileNumber(number), recyclable);
    let mut out = Vec::new();
    if let Some((log, end, size)) = before {
        let follows = Follows { log: FileNumber(log), end: SeqNo(end), size_bytes: Some(size) };
        writer.append(follows.batch(SeqNo(end)).as_bytes(), &mut out).unwrap();
    }
    for (seq, op) in batches {
        let mut batch = WriteBatch::new();
        batch.push(*op);
        batch.set_seq(SeqNo(*seq));
        writer.append(batch.as_bytes(), &mut out).unwrap();
    }
    out
}

fn put<'a>(key: &'a [u8]) -> Op<'a> {
    Op::Put { cf: ColumnFamilyId(0), key, value: b"" }
}

/// The count of numbers that the commit took is unknown, because its section is in a removed log.
#[test]
fn what_is_lost_behind_a_commit_without_its_section_is_noticed() {
    let commit = Op::Commit { xid: b"gone" };
    for recyclable in [false, true] {
        let whole = log_of(4, recyclable, None, &[(5, put(b"a")), (6, commit), (9, put(b"b"))]);
        let torn = log_of(4, recyclable, None, &[(5, put(b"a")), (6, commit)]);
        let next = log_of(7, recyclable, Some((4, 10, whole.len() as u64)), &[(10, put(b"c"))]);
        let mode = RecoveryMode::PointInTimeRecovery;
        assert_eq!(recover(mode, &[(4, &whole), (7, &next)]).unwrap().0, 3);
        let (entries, recovered) = recover(mode, &[(4, &torn), (7, &next)]).unwrap();
        assert_eq!((entries, recovered.stopped.map(|stopped| stopped.log)), (1, Some(FileNumber(4))));
        let error =
            recover(RecoveryMode::AbsoluteConsistency, &[(4, &torn), (7, &next)]).unwrap_err().to_string();
        assert!(error.contains("before sequence number 10") && error.contains("000007.log"), "{error}");
        // No record is lost, because the commit is the last. A recycled file makes no difference.
        let next = log_of(7, recyclable, Some((4, 9, torn.len() as u64)), &[(9, put(b"c"))]);
        let mut file = torn.clone();
        if recyclable {
            file.extend_from_slice(&log(3, 1, 40, true, false)[torn.len()..]);
        }
        assert_eq!(recover(mode, &[(4, &file), (7, &next)]).unwrap().0, 2);
    }
}

/// A prepared section takes no number under WriteCommitted.
#[test]
fn a_record_without_numbers_is_missed_too() {
    let rollback = Op::Rollback { xid: b"gone" };
    let whole = log_of(4, false, None, &[(5, put(b"a")), (6, rollback)]);
    let torn = log_of(4, false, None, &[(5, put(b"a"))]);
    let next = log_of(7, false, Some((4, 6, whole.len() as u64)), &[(6, put(b"c"))]);
    let mode = RecoveryMode::PointInTimeRecovery;
    assert_eq!(recover(mode, &[(4, &whole), (7, &next)]).unwrap().0, 2);
    assert_eq!(recover(mode, &[(4, &torn), (7, &next)]).unwrap().0, 1);
}

/// In the middle of a log: the sector of a prepared section was not written, the next one was.
#[test]
fn zeroed_space_may_have_had_a_record_without_numbers() {
    let with_filler = |filler: usize| {
        let mut batch = WriteBatch::new();
        batch.push(Op::BeginPrepare(PrepareKind::Committed));
        batch.push(put(&vec![b'k'; filler]));
        batch.push(Op::EndPrepare { xid: b"t" });
        batch.set_seq(SeqNo(6));
        batch
    };
    let block = karst_format::log::BLOCK_BYTES;
    let written = |filler: usize| {
        let mut writer = LogWriter::new(FileNumber(4), false);
        let (mut first, mut out) = (WriteBatch::new(), Vec::new());
        first.push(put(b"a"));
        first.set_seq(SeqNo(5));
        writer.append(first.as_bytes(), &mut out).unwrap();
        let start = out.len();
        writer.append(with_filler(filler).as_bytes(), &mut out).unwrap();
        (writer, out, start)
    };
    // The longest lengths take three bytes, like that of half a block.
    let missing = block - written(block / 2).1.len();
    let (mut writer, mut out, start) = written(block / 2 + missing);
    assert_eq!(out.len(), block, "the section ends with its block");
    let mut last = WriteBatch::new();
    last.push(put(b"b"));
    last.set_seq(SeqNo(6));
    writer.append(last.as_bytes(), &mut out).unwrap();
    let mode = RecoveryMode::PointInTimeRecovery;
    assert_eq!(recover_with(mode, true, &[(4, &out)]).unwrap().0, 2);
    out[start..block].fill(0);
    let (entries, recovered) = recover_with(mode, true, &[(4, &out)]).unwrap();
    assert_eq!((entries, recovered.stopped.is_some()), (1, true));
    assert_eq!(recover_with(mode, false, &[(4, &out)]).unwrap().0, 2, "nothing takes no number");
}

/// If the count of a commit's numbers is unknown, and its log is damaged after it, no later log is
/// replayed, because it would hide the loss.
#[test]
fn what_may_begin_anywhere_makes_no_damage_good() {
    let mode = RecoveryMode::PointInTimeRecovery;
    let commit = Op::Commit { xid: b"gone" };
    let whole = log_of(4, false, None, &[(5, put(b"a")), (6, commit), (9, put(b"b"))]);
    let next = log_of(7, false, None, &[(10, put(b"c"))]);
    assert_eq!(recover(mode, &[(4, &whole), (7, &next)]).unwrap().0, 3);
    let (entries, recovered) = recover(mode, &[(4, &whole[..whole.len() - 3]), (7, &next)]).unwrap();
    let stopped = recovered.stopped.expect("the log is torn");
    assert_eq!((entries, stopped.log, stopped.left_out), (1, FileNumber(4), true));
}

/// Returns a log with one put for each of these column families and keys, after these timestamp
/// sizes.
fn log_with_timestamps(sizes: &[(u32, u16)], keys: &[(u32, &[u8])]) -> Vec<u8> {
    let mut writer = LogWriter::new(FileNumber(4), false);
    let mut out = Vec::new();
    let sizes: Vec<_> =
        sizes.iter().map(|(cf, bytes)| TimestampSize { cf: ColumnFamilyId(*cf), bytes: *bytes }).collect();
    writer.append_timestamp_sizes(&sizes, &mut out);
    for (n, (cf, key)) in keys.iter().enumerate() {
        let mut batch = WriteBatch::new();
        batch.push(Op::Put { cf: ColumnFamilyId(*cf), key, value: b"" });
        batch.set_seq(SeqNo(1 + n as u64));
        writer.append(batch.as_bytes(), &mut out).unwrap();
    }
    out
}

/// Column family 0 has no timestamps, family 3 has.
fn targets_with_timestamps() -> Vec<Target> {
    let target = |(cf, comparator)| Target {
        cf: ColumnFamilyId(cf),
        log_number: FileNumber(1),
        memtable: Arc::new(MemTable::new(comparator)),
        memory_bytes: usize::MAX,
        tables: None,
    };
    [(0, Comparator::Bytewise), (3, Comparator::BytewiseU64Ts)].map(target).into()
}

fn replayed(mode: RecoveryMode, log: &[u8]) -> Result<u64> {
    let mut recovery = Recovery::new(mode, targets_with_timestamps(), (SeqNo(0), FileNumber(1)), false);
    recovery.log(FileNumber(4), Path::new("/db/000004.log"), log, &mut |_| Ok(()))?;
    recovery.finish([("default", FileNumber(1))]).map(|recovered| recovered.applied)
}

#[test]
fn logs_and_comparators_that_differ_in_timestamps_are_an_error_in_every_mode() {
    let stamped = &b"key-of-8-bytes"[..];
    let good = log_with_timestamps(&[(3, 8), (5, 4)], &[(0, b"plain"), (3, stamped), (5, b"x")]);
    let unsaid = log_with_timestamps(&[], &[(0, b"plain"), (3, stamped)]);
    let other_size = log_with_timestamps(&[(3, 16)], &[(3, b"sixteen bytes are in it")]);
    let in_none = log_with_timestamps(&[(0, 8)], &[(0, stamped)]);
    let short = log_with_timestamps(&[(3, 8)], &[(0, b"plain"), (3, b"7 bytes")]);
    for mode in MODES {
        // Entries of a family that is not open are ignored.
        assert_eq!(replayed(mode, &good).unwrap(), 2, "{mode:?}");
        for (log, what) in [
            (&unsaid, "have 0 bytes, and 8 in the comparator leveldb.BytewiseComparator.u64ts"),
            (&other_size, "have 16 bytes, and 8 in"),
            (&in_none, "have 8 bytes, and 0 in"),
            (&short, "a key of 7 bytes in column family 3, whose timestamps have 8"),
        ] {
            let error = replayed(mode, log).unwrap_err();
            assert_eq!(error.kind(), karst_base::error::ErrorKind::Corruption, "{mode:?}");
            let text = error.to_string();
            assert!(text.contains("/db/000004.log, offset ") && text.contains(what), "{mode:?}: {text}");
        }
    }
    // The offset is that of the record.
    let start = log_with_timestamps(&[(3, 8)], &[(0, b"plain")]).len();
    let error = replayed(RecoveryMode::PointInTimeRecovery, &short).unwrap_err().to_string();
    assert!(error.contains(&format!("offset {start}:")), "{error}");
}

#[test]
fn what_is_not_done_with_timestamps_is_refused_by_name() {
    let log = |ops: &[Op<'_>]| {
        let mut writer = LogWriter::new(FileNumber(4), false);
        let mut out = Vec::new();
        writer.append_timestamp_sizes(&[TimestampSize { cf: ColumnFamilyId(3), bytes: 8 }], &mut out);
        let mut batch = WriteBatch::new();
        ops.iter().for_each(|op| batch.push(*op));
        batch.set_seq(SeqNo(1));
        writer.append(batch.as_bytes(), &mut out).unwrap();
        out
    };
    let (cf, key) = (ColumnFamilyId(3), &b"key-of-8-bytes"[..]);
    let range = [Op::DeleteRange { cf, begin: key, end: key }];
    let section =
        [Op::BeginPrepare(PrepareKind::Prepared), Op::Delete { cf, key }, Op::EndPrepare { xid: b"t" }];
    for mode in MODES {
        for (ops, what) in [
            (&range[..], "a removed range"),
            (&section, "a transaction that is inserted when it is prepared"),
        ] {
            let error = replayed(mode, &log(ops)).unwrap_err();
            assert_eq!(error.kind(), karst_base::error::ErrorKind::NotSupported);
            assert!(error.to_string().contains(what), "{mode:?}: {error}");
        }
    }
    // Entries that tables have already are not checked.
    let mut targets = targets_with_timestamps();
    targets[1].log_number = FileNumber(9);
    let mut recovery =
        Recovery::new(RecoveryMode::AbsoluteConsistency, targets, (SeqNo(0), FileNumber(1)), false);
    recovery.log(FileNumber(4), Path::new("log"), &log(&range), &mut |_| Ok(())).unwrap();
}

/// Returns a log of these records, after the timestamp size of 8 bytes of column family 3.
fn log_of_records(number: u64, next: u64, records: &[&[Op<'_>]]) -> Vec<u8> {
    let mut writer = LogWriter::new(FileNumber(number), false);
    let mut out = Vec::new();
    writer.append_timestamp_sizes(&[TimestampSize { cf: ColumnFamilyId(3), bytes: 8 }], &mut out);
    for ops in records {
        let mut batch = WriteBatch::new();
        ops.iter().for_each(|op| batch.push(*op));
        batch.set_seq(SeqNo(next));
        writer.append(batch.as_bytes(), &mut out).unwrap();
    }
    out
}

/// Returns the stored user keys of a memtable, each with the first byte of its trailer.
fn keys_in(memtable: &MemTable) -> Vec<(Vec<u8>, u8)> {
    let mut found = Vec::new();
    let mut next = memtable.first();
    while let Some(position) = next {
        let (user_key, trailer) = karst_format::key::split(memtable.key(position));
        found.push((user_key.to_vec(), trailer as u8));
        next = memtable.next(position);
    }
    found
}

#[test]
fn a_commit_gives_a_prepared_section_its_timestamp() {
    let (stamped, plain) = (ColumnFamilyId(3), ColumnFamilyId(0));
    let at = |key: &str, timestamp: u64| [key.as_bytes(), &timestamp.to_le_bytes()].concat();
    let (a, b) = (at("a", 0), at("b", 0));
    let section = [
        Op::BeginPrepare(PrepareKind::Committed),
        Op::Put { cf: stamped, key: &a, value: b"1" },
        Op::Put { cf: plain, key: b"a key without one", value: b"1" },
        Op::Delete { cf: stamped, key: &b },
        Op::EndPrepare { xid: b"t" },
    ];
    let timestamp = 7_u64.to_le_bytes();
    let commit = [Op::CommitWithTimestamp { xid: b"t", timestamp: &timestamp }];
    // In one log, and in two.
    for logs in [
        vec![log_of_records(4, 1, &[&section, &commit])],
        vec![log_of_records(4, 1, &[&section]), log_of_records(5, 1, &[&commit])],
    ] {
        let targets = targets_with_timestamps();
        let (of_plain, of_stamped) = (targets[0].memtable.clone(), targets[1].memtable.clone());
        let mode = RecoveryMode::AbsoluteConsistency;
        let mut recovery = Recovery::new(mode, targets, (SeqNo(0), FileNumber(1)), true);
        for (log, number) in logs.iter().zip(4..) {
            recovery.log(FileNumber(number), Path::new("log"), log, &mut |_| Ok(())).unwrap();
        }
        let recovered = recovery.finish([]).unwrap();
        assert_eq!((recovered.applied, recovered.next_seq), (3, SeqNo(4)));
        assert!(recovered.undecided.is_empty());
        let deletion = karst_format::key::ValueType::DeletionWithTimestamp as u8;
        assert_eq!(keys_in(&of_stamped), [(at("a", 7), 1), (at("b", 7), deletion)]);
        assert_eq!(keys_in(&of_plain), [(b"a key without one".to_vec(), 1)]);
    }
}

#[test]
fn commits_whose_timestamps_do_not_fit_are_an_error_in_every_mode() {
    let cf = ColumnFamilyId(3);
    let section = |key| {
        [
            Op::BeginPrepare(PrepareKind::Committed),
            Op::Put { cf, key, value: b"" },
            Op::EndPrepare { xid: b"t" },
        ]
    };
    let (good, short) = (section(b"key-of-8-bytes"), section(b"7 bytes"));
    let without = [Op::Commit { xid: b"t" }];
    let at = |timestamp| [Op::CommitWithTimestamp { xid: b"t", timestamp }];
    let (fits, of_four, of_none) = (at(&[1; 8]), at(&[1; 4]), at(&[]));
    for mode in MODES {
        for (records, what) in [
            (&[&good[..], &without][..], "a commit without a timestamp, of keys in column family 3"),
            (&[&good, &of_four], "a timestamp of 4 bytes; those of column family 3 have 8"),
            (&[&good, &of_none], "a timestamp of 0 bytes; those of column family 3 have 8"),
            (&[&short, &fits], "a key of 7 bytes in column family 3, whose timestamps have 8"),
        ] {
            let error = replayed(mode, &log_of_records(4, 1, records)).unwrap_err();
            assert_eq!(error.kind(), karst_base::error::ErrorKind::Corruption, "{mode:?}");
            assert!(error.to_string().contains(what), "{mode:?}: {error}");
        }
        // All in one record, so the section is not known before it is applied.
        let together = [good[0], good[1], good[2], of_four[0]];
        let outcome = replayed(mode, &log_of_records(4, 1, &[&together]));
        assert_ne!(outcome.ok(), Some(1), "{mode:?}: it was committed at no timestamp");
        // The section of a removed log is ignored, because its entries are in tables.
        assert_eq!(replayed(mode, &log_of_records(4, 1, &[&of_four])).unwrap(), 0);
    }
}

/// A secondary reads a log that grows: the timestamp sizes at its beginning apply to later records.
#[test]
fn a_log_that_is_gone_on_with_keeps_its_timestamp_sizes() {
    let keys: Vec<_> = (0..2000).map(|n| format!("{n:08}12345678")).collect();
    let of = |count: usize| {
        let keys: Vec<_> = keys[..count].iter().map(|key| (3, key.as_bytes())).collect();
        log_with_timestamps(&[(3, 8)], &keys)
    };
    let whole = of(keys.len());
    assert!(whole.len() > 2 * BLOCK_BYTES);
    let targets = targets_with_timestamps();
    let memtable = targets[1].memtable.clone();
    let mode = RecoveryMode::PointInTimeRecovery;
    let mut recovery = Recovery::new(mode, targets, (SeqNo(0), FileNumber(1)), false);
    let (number, path) = (FileNumber(4), Path::new("log"));
    let mut place = Place::default();
    for count in [0, 1, 1500, keys.len()] {
        let bytes = &whole[place.read_from() as usize..of(count).len()];
        let part = (place.read_from(), bytes);
        place = recovery.log_from(number, path, part, place, &mut |_| Ok(())).unwrap();
        assert_eq!(memtable.entry_count(), count as u64);
    }
    assert!(place.read_from() > 0);
}
