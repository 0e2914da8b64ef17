//! Contents of the logs: prefixes at every cut, switches under load, syncs, manual flushing, all
//! kinds of records.

use super::*;

#[test]
fn every_cut_of_the_log_is_a_prefix() {
    for (recyclable, zstd) in [(false, false), (true, false), (false, true)] {
        let log = LogOptions { recyclable, zstd, ..LogOptions::default() };
        let bench = Bench::new(Rules { log, manual_flush: None, unordered: false, two_queues: false });
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let bench = &bench;
                scope.spawn(move || {
                    for n in 0..15 {
                        let mut batch = WriteBatch::new();
                        for part in 0..=n % 3 {
                            batch.put(format!("{thread}-{n}-{part}"), vec![b'v'; n * 200]).unwrap();
                        }
                        bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap();
                    }
                });
            }
        });
        let (all, bytes) = (bench.entries(), bench.log_bytes(1));
        assert_eq!(all.len(), 3 * 30);
        let mut lengths = std::collections::BTreeSet::new();
        for cut in (0..bytes.len()).step_by(37).chain([bytes.len()]) {
            let (found, next) = recover(&[(1, &bytes[..cut])], RecoveryMode::PointInTimeRecovery).unwrap();
            assert_eq!(found, all[..found.len()], "cut at {cut}");
            assert_eq!(next, SeqNo(found.len() as u64 + 1));
            lengths.insert(found.len());
        }
        assert!(lengths.len() > 20 && lengths.contains(&all.len()));
    }
}

#[test]
fn stress_memtables_and_logs_switch_while_writers_write() {
    let log = LogOptions { names_predecessor: true, ..LogOptions::default() };
    let bench = Bench::new(Rules { log, manual_flush: None, unordered: false, two_queues: false });
    let mut sealed = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for n in 0..500 {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("{thread}-{n}a"), "").unwrap();
                    batch.put(format!("{thread}-{n}b"), "").unwrap();
                    bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap();
                }
            });
        }
        for number in 2..30 {
            // An empty log would stay current.
            bench.put(&format!("before {number}"), "").unwrap();
            let old = bench.seal(number)[&CF].clone();
            let seal = old.sealed().unwrap();
            karst_io::block_on(&bench.env, bench.pipeline.wait_until_visible(seal.largest_seq));
            // No entry is added to it any more, and none in it is newer.
            let count = old.entry_count();
            assert_eq!(entries(&old, seal.largest_seq).len() as u64, count);
            assert_eq!(seal.next_log, FileNumber(number));
            sealed.push((old, count));
        }
    });
    assert!(sealed.iter().all(|(memtable, count)| memtable.entry_count() == *count));
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(false)).unwrap();
    let mut all: Vec<String> = sealed.iter().flat_map(|(m, _)| entries(m, SeqNo::MAX)).collect();
    all.extend(bench.entries());
    assert_eq!(all.len(), 4 * 500 * 2 + 28);
    // Each memtable's entries are in its own log, and the logs together are whole; predecessors are
    // checked too.
    let logs: Vec<(u64, Vec<u8>)> = (1..30).map(|n| (n, bench.log_bytes(n))).collect();
    for ((memtable, _), (number, bytes)) in sealed.iter().zip(&logs) {
        let (found, _) = recover(&[(*number, bytes)], RecoveryMode::SkipAnyCorruptedRecords).unwrap();
        assert_eq!(found, entries(memtable, SeqNo::MAX));
    }
    let logs: Vec<(u64, &[u8])> = logs.iter().map(|(n, bytes)| (*n, &bytes[..])).collect();
    let (found, next) = recover(&logs, RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!((found, next), (all, SeqNo(4029)));
}

#[test]
fn a_missing_tail_of_the_log_before_is_noticed() {
    let log = LogOptions { names_predecessor: true, ..LogOptions::default() };
    let bench = Bench::new(Rules { log, manual_flush: None, unordered: false, two_queues: false });
    bench.put("a", "1").unwrap();
    bench.put("b", "2").unwrap();
    bench.seal(2);
    bench.put("c", "3").unwrap();
    let (first, second) = (bench.log_bytes(1), bench.log_bytes(2));
    let mode = RecoveryMode::AbsoluteConsistency;
    assert_eq!(recover(&[(1, &first), (2, &second)], mode).unwrap().0.len(), 3);
    let whole_records = first.len() / 2;
    let error = recover(&[(1, &first[..whole_records]), (2, &second)], mode).unwrap_err();
    assert!(error.to_string().contains("previous log"), "{error}");
}

/// With default options: a loss of power may take the end of a log, at a record boundary, and leave
/// the next log.
#[test]
fn nothing_is_recovered_behind_a_lost_end_of_a_log() {
    for (recyclable, zstd) in [(false, false), (true, false), (false, true)] {
        let log = LogOptions { recyclable, zstd, ..LogOptions::default() };
        let bench = Bench::new(Rules { log, manual_flush: None, unordered: false, two_queues: false });
        let mut ends = vec![0];
        for key in ["a", "b", "c"] {
            bench.put(key, "1").unwrap();
            ends.push(bench.log_bytes(1).len());
        }
        // A write that takes a sequence number and is in no log is no gap. Unlogged writes are
        // refused if logs are recycled.
        let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::new() };
        assert_eq!(bench.write(&unlogged, put(b"d", b"2")).is_err(), recyclable);
        bench.seal(2);
        bench.put("e", "3").unwrap();
        bench.seal(3);
        bench.put("f", "4").unwrap();
        let logs = [1, 2, 3].map(|n| bench.log_bytes(n));
        let point = RecoveryMode::PointInTimeRecovery;
        let all = [(1, &logs[0][..]), (2, &logs[1][..]), (3, &logs[2][..])];
        for mode in [point, RecoveryMode::AbsoluteConsistency] {
            assert_eq!(recover(&all, mode).unwrap().0.len(), 5, "{mode:?}");
        }
        for (count, end) in ends[..3].iter().enumerate() {
            let torn = [(1, &logs[0][..*end]), all[1], all[2]];
            let (found, next) = recover(&torn, point).unwrap();
            assert_eq!((found.len(), next), (count, SeqNo(count as u64 + 1)), "cut at {end}");
            recover(&torn, RecoveryMode::AbsoluteConsistency).unwrap_err();
        }
        assert_eq!(recover(&[all[0], all[2]], point).unwrap().0.len(), 3, "a log is missing");
        assert_eq!(recover(&[all[0], (2, &[]), all[2]], point).unwrap().0.len(), 3, "a log is empty");
    }
}

#[test]
fn a_synced_write_syncs_older_logs_first() {
    let bench = Bench::new(rules());
    bench.put("a", "1").unwrap();
    bench.seal(2);
    bench.put("b", "2").unwrap();
    bench.seal(3);
    bench.put("c", "3").unwrap();
    assert_eq!(*bench.synced.lock(), []);
    bench.write(&WriteOptions::synced(), put(b"d", b"4")).unwrap();
    let sizes = [1, 2].map(|n| (FileNumber(n), bench.log_bytes(n).len() as u64));
    assert_eq!(*bench.synced.lock(), sizes);
    // A log that a flush has made unnecessary is not synced.
    bench.put("e", "5").unwrap();
    bench.seal(4);
    bench.pipeline.release_logs(FileNumber(4));
    bench.put("f", "6").unwrap();
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
    assert_eq!(bench.synced.lock().len(), 2);
}

#[test]
fn manual_flushing_keeps_records_until_asked_or_until_there_are_many() {
    let bench = Bench::new(Rules {
        log: LogOptions::default(),
        manual_flush: Some(1000),
        unordered: false,
        two_queues: false,
    });
    bench.put("a", "1").unwrap();
    assert_eq!((bench.entries().len(), bench.log_bytes(1).len()), (1, 0));
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(false)).unwrap();
    let one = bench.log_bytes(1).len();
    assert!(one > 0);
    bench.put("b", "2").unwrap();
    assert_eq!(bench.log_bytes(1).len(), one);
    bench.put("c", &"3".repeat(1000)).unwrap();
    assert!(bench.log_bytes(1).len() > 1000);
    bench.put("d", "4").unwrap();
    let before = bench.log_bytes(1).len();
    bench.write(&WriteOptions::synced(), put(b"e", b"5")).unwrap();
    assert!(bench.log_bytes(1).len() > before);
    // Records gathered for a log go to that log when another takes over.
    bench.put("f", "6").unwrap();
    bench.seal(2);
    bench.put("g", "7").unwrap();
    karst_io::block_on(&bench.env, bench.pipeline.close_log()).unwrap();
    let logs = [bench.log_bytes(1), bench.log_bytes(2)];
    let (found, _) = recover(&[(1, &logs[0]), (2, &logs[1])], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!(found.len(), 7);
}

#[test]
fn a_log_is_not_made_over_one_that_has_something_in_it() {
    let bench = Bench::new(rules());
    bench.put("a", "1").unwrap();
    let error = NewLog::create(bench.env.fs(), &bench.directory, FileNumber(1), LogOptions::default());
    assert!(error.unwrap_err().to_string().contains("000001.log"));
    assert!(!bench.log_bytes(1).is_empty());
}

/// A log in the file of another, longer one is read back at every moment of its life; once ended,
/// the file has only its own records.
#[test]
fn a_log_takes_the_file_of_an_older_one() {
    let log = LogOptions { recyclable: true, names_predecessor: true, ..LogOptions::default() };
    let bench = Bench::new(Rules { log, manual_flush: None, unordered: false, two_queues: false });
    let mode = RecoveryMode::PointInTimeRecovery;
    for n in 0..100 {
        bench.put(&format!("old{n}"), &"v".repeat(100 + n)).unwrap();
    }
    bench.seal(2);
    bench.put("second", "2").unwrap();
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
    while !bench.ended.lock().contains(&FileNumber(1)) {
        std::thread::yield_now();
    }
    let second = bench.log_bytes(2);
    let old_bytes = bench.log_bytes(1);
    let options = bench.pipeline.log_options().reserving(1 << 20);
    let reused =
        NewLog::reuse(bench.env.fs(), &bench.directory, FileNumber(1), FileNumber(3), options).unwrap();
    assert!(!bench.env.fs().exists(&bench.log_path(1)).unwrap());
    assert!(bench.log_bytes(3) == old_bytes, "nothing is written before a record is");
    let check = |bench: &Bench, more: usize| {
        let third = bench.log_bytes(3);
        let (found, _) = recover(&[(1, &old_bytes), (2, &second), (3, &third)], mode).unwrap();
        assert_eq!(found.len(), 101 + more, "{found:?}");
    };
    let exchange = |seal| {
        let mut open = bench.memtables.lock();
        open.values_mut().for_each(|memtable| std::mem::replace(memtable, self::memtable()).seal(seal));
    };
    bench.pipeline.seal(&mut Some(reused), exchange).unwrap().expect("there is a log");
    check(&bench, 0);
    for n in 0..30 {
        bench.put(&format!("new{n}"), &"w".repeat(n * 7)).unwrap();
        check(&bench, n + 1);
        assert_eq!(bench.log_bytes(3).len(), old_bytes.len());
    }
    bench.seal(4);
    bench.put("fourth", "4").unwrap();
    let (third, fourth) = (bench.log_bytes(3), bench.log_bytes(4));
    assert!(third.len() < old_bytes.len());
    // The predecessor recorded by the fourth log matches the third.
    let logs = [(1, &old_bytes[..]), (2, &second[..]), (3, &third[..]), (4, &fourth[..])];
    for mode in [mode, RecoveryMode::AbsoluteConsistency, RecoveryMode::SkipAnyCorruptedRecords] {
        assert_eq!(recover(&logs, mode).unwrap().0.len(), 132, "{mode:?}");
    }
}

/// A seal is prepared without the order lock. A record may be logged meanwhile: the sealed memtable
/// then has it, and a seal that named this log would replay it beside its table.
#[test]
fn a_seal_leaves_a_log_that_has_got_a_record_and_only_that() {
    let bench = Bench::new(rules());
    let mut spare = Some(bench.new_log(2));
    bench.write(&WriteOptions::unlogged(), put(b"unlogged", b"")).unwrap();
    let sealed = bench.seal_with(&mut spare).unwrap().unwrap();
    assert_eq!(sealed[&CF].sealed().unwrap().next_log, FileNumber(1), "it has no record");
    assert!(spare.is_some());
    let spare_of_nobody = &mut None;
    bench.put("a", "").unwrap();
    let before = bench.memtables.lock()[&CF].clone();
    assert!(bench.seal_with(spare_of_nobody).unwrap().is_none(), "it has a record, and none follows it");
    assert!(Arc::ptr_eq(&before, &bench.memtables.lock()[&CF]) && before.sealed().is_none());
    let sealed = bench.seal_with(&mut spare).unwrap().unwrap();
    assert_eq!(sealed[&CF].sealed().unwrap().next_log, FileNumber(2));
    assert!(spare.is_none());
}

#[test]
fn no_log_follows_one_of_a_larger_number() {
    let bench = Bench::new(rules());
    bench.put("a", "").unwrap();
    let (second, third) = (bench.new_log(2), bench.new_log(3));
    bench.seal_with(&mut Some(third)).unwrap().unwrap();
    bench.put("b", "").unwrap();
    let error = bench.seal_with(&mut Some(second)).unwrap_err();
    assert!(error.to_string().contains("log #2 cannot follow log #3"), "{error}");
    assert_eq!(bench.entries(), ["b@2="], "nothing was exchanged");
    bench.seal(4);
}

#[test]
fn a_closed_pipeline_seals_nothing() {
    let bench = Bench::new(rules());
    bench.put("a", "").unwrap();
    karst_io::block_on(&bench.env, bench.pipeline.close_log()).unwrap();
    let error = bench.seal_with(&mut Some(bench.new_log(2))).unwrap_err();
    assert_eq!(error.kind(), karst_base::error::ErrorKind::Closed, "{error}");
}

#[test]
fn what_logs_have_that_are_needed_no_more_does_not_count() {
    let bench = Bench::new(rules());
    bench.put("a", "1").unwrap();
    let first = bench.pipeline.order.lock().log_bytes();
    bench.seal(2);
    bench.put("b", "2").unwrap();
    let both = bench.pipeline.order.lock().log_bytes();
    assert!(first > 0 && both > first, "{first}, then {both}");
    bench.pipeline.release_logs(FileNumber(1));
    assert_eq!(bench.pipeline.order.lock().log_bytes(), both);
    bench.pipeline.release_logs(FileNumber(2));
    assert_eq!(bench.pipeline.order.lock().log_bytes(), both - first);
}
