//! Order, atomicity, visibility, and the fate of dropped futures.

use super::unordered::Slow;
use super::*;
use crate::order::BUFFERED_BYTES;
use crate::publish::IN_FLIGHT;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[test]
fn writes_are_visible_when_they_return_and_in_the_log_in_order() {
    let bench = Bench::new(rules());
    bench.put("a", "1").unwrap();
    assert_eq!(bench.pipeline.visible_seq(), SeqNo(1));
    let mut batch = WriteBatch::new();
    batch.put("b", "2").unwrap();
    batch.put_log_data("note").unwrap();
    batch.delete("a").unwrap();
    bench.pipeline.write(&WriteOptions::synced(), Source::Batch(&batch)).unwrap();
    bench.write(&WriteOptions::unlogged(), put(b"c", b"3")).unwrap();
    assert_eq!(bench.entries(), ["a@1=1", "b@2=2", "a@3=", "c@4=3"]);
    let (recovered, next) = recover(&[(1, &bench.log_bytes(1))], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!((recovered, next), (bench.entries()[..3].to_vec(), SeqNo(4)));
    assert!(bench.pipeline.has_unlogged());
}

#[test]
fn a_batch_without_counted_operations_takes_no_number() {
    let bench = Bench::new(rules());
    let mut batch = WriteBatch::new();
    batch.put_log_data("only a note").unwrap();
    bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap();
    bench.put("a", "1").unwrap();
    assert_eq!(bench.entries(), ["a@1=1"]);
    recover(&[(1, &bench.log_bytes(1))], RecoveryMode::AbsoluteConsistency).unwrap();
}

#[test]
fn families_that_are_not_open_fail_the_write_or_are_passed_over() {
    let bench = Bench::new(rules());
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.push_checked(Op::Put { cf: ColumnFamilyId(9), key: b"x", value: b"" });
    batch.put("b", "2").unwrap();
    let error = bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap_err();
    assert!(error.to_string().contains('9'), "{error}");
    assert_eq!((bench.entries().len(), bench.log_bytes(1).len()), (0, 0));
    let lenient = WriteOptions { ignore_missing_column_families: true, ..WriteOptions::new() };
    bench.pipeline.write(&lenient, Source::Batch(&batch)).unwrap();
    assert_eq!(bench.entries(), ["a@1=1", "b@3=2"]);
    let sync_unlogged = WriteOptions { sync: true, disable_wal: true, ..WriteOptions::new() };
    bench.write(&sync_unlogged, put(b"a", b"")).unwrap_err();
}

/// Many threads write batches of two keys with one value; a reader sees both or neither, and all
/// earlier writes of a writer.
#[test]
fn stress_batches_are_atomic_and_acknowledged_ones_visible() {
    let bench = Bench::new(rules());
    let (threads, each) = (6, 400);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let bench = &bench;
            scope.spawn(move || {
                let mut batch = WriteBatch::new();
                for n in 0..each {
                    batch.clear();
                    batch.put(format!("x{thread}"), n.to_string()).unwrap();
                    batch.put(format!("y{thread}"), n.to_string()).unwrap();
                    let options =
                        WriteOptions { sync: n % 50 == 7, disable_wal: n % 10 == 3, ..WriteOptions::new() };
                    let options =
                        WriteOptions { disable_wal: options.disable_wal && !options.sync, ..options };
                    if n % 3 == 0 {
                        let write = bench.pipeline.write_async(&options, Source::Batch(&batch));
                        karst_io::block_on(&bench.env, write).unwrap();
                    } else {
                        bench.pipeline.write(&options, Source::Batch(&batch)).unwrap();
                    }
                    let memtable = bench.memtables.lock()[&CF].clone();
                    let seq = bench.pipeline.visible_seq();
                    let newest = |name: String| {
                        let mut seek = Vec::new();
                        key::append(
                            &mut seek,
                            name.as_bytes(),
                            key::pack_trailer(seq, karst_format::key::ValueType::FOR_SEEK),
                        );
                        memtable
                            .entries_of(&seek)
                            .unwrap()
                            .next()
                            .map(|e| memtable.value(e.unwrap().at).to_vec())
                    };
                    assert_eq!(newest(format!("x{thread}")), Some(n.to_string().into_bytes()));
                    for other in 0..threads {
                        assert_eq!(newest(format!("x{other}")), newest(format!("y{other}")));
                    }
                }
            });
        }
    });
    assert_eq!(bench.pipeline.visible_seq(), SeqNo(threads * each * 2));
}

/// Polls a write up to `polls` times and drops it; returns true if it succeeded.
fn poll_and_drop(bench: &Bench, source: Source<'_>, polls: usize) -> bool {
    let mut write = pin!(bench.pipeline.write_async(&WriteOptions::new(), source));
    let mut cx = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(write.as_mut().poll(&mut cx), Poll::Ready(outcome) if outcome.is_ok()))
}

#[test]
fn a_dropped_write_happens_whole_or_not_at_all_and_blocks_nobody() {
    let bench = Bench::new(rules());
    let mut acknowledged = 0;
    for n in 0..300 {
        let mut batch = WriteBatch::new();
        batch.put(format!("x{n}"), "").unwrap();
        batch.put(format!("y{n}"), "").unwrap();
        acknowledged += usize::from(poll_and_drop(&bench, Source::Batch(&batch), n % 4));
        if n % 5 == 0 {
            let (key, value) = (format!("x{n}b"), String::new());
            poll_and_drop(&bench, Source::one(put(key.as_bytes(), value.as_bytes())).unwrap(), 1);
        }
    }
    bench.put("last", "").unwrap();
    let found = bench.entries();
    let starting = |c: char| found.iter().filter(|e| e.starts_with(c) && !e.contains('b')).count();
    assert_eq!(starting('x'), starting('y'));
    // Three of four futures were polled, and a polled write is ordered.
    assert_eq!(starting('x'), 225);
    assert!(acknowledged <= 225);
    let (recovered, _) = recover(&[(1, &bench.log_bytes(1))], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!(recovered, found);
}

#[test]
fn more_writes_than_the_ring_holds_wait_for_room() {
    let bench = Bench::new(rules());
    let count = IN_FLIGHT + 500;
    let keys: Vec<String> = (0..count).map(|n| format!("{n:05}")).collect();
    let mut writes: Vec<_> = keys
        .iter()
        .map(|k| {
            let source = Source::one(put(k.as_bytes(), b"")).unwrap();
            Box::pin(bench.pipeline.write_async(&WriteOptions::new(), source))
        })
        .collect();
    // All in one task: none may be forgotten.
    let all = std::future::poll_fn(|cx| {
        writes.retain_mut(|write| match write.as_mut().poll(cx) {
            Poll::Ready(outcome) => {
                outcome.unwrap();
                false
            }
            Poll::Pending => true,
        });
        if writes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    karst_io::block_on(&bench.env, all);
    assert_eq!((bench.entries().len(), bench.pipeline.visible_seq()), (count, SeqNo(count as u64)));
}

#[test]
fn a_write_is_not_ordered_while_the_ring_is_full() {
    let (bench, options) = (Bench::new(rules()), WriteOptions::unlogged());
    let keys: Vec<String> = (0..=IN_FLIGHT).map(|n| format!("{n:05}")).collect();
    let sources = keys.iter().map(|key| Source::one(put(key.as_bytes(), b"")).unwrap());
    let mut slow: Vec<Slow<'_>> =
        sources.take(IN_FLIGHT).map(|source| Slow::order(&bench, &options, source)).collect();
    let ordered = || bench.pipeline.order.lock().next_ticket() as usize;
    let mut cx = Context::from_waker(Waker::noop());
    let last = Source::one(put(keys[IN_FLIGHT].as_bytes(), b"")).unwrap();
    let mut next = pin!(bench.pipeline.write_async(&options, last));
    assert!(next.as_mut().poll(&mut cx).is_pending());
    assert_eq!(ordered(), IN_FLIGHT);
    slow.remove(0).insert();
    // The write is ordered now, and waits until it is visible.
    assert!(next.as_mut().poll(&mut cx).is_pending());
    assert_eq!(ordered(), IN_FLIGHT + 1);
    slow.into_iter().for_each(Slow::insert);
    karst_io::block_on(&bench.env, next).unwrap();
    assert_eq!(bench.entries().len(), IN_FLIGHT + 1);
}

/// Under `manual_wal_flush`, with a limit above the buffer's.
#[test]
fn records_that_nobody_asks_for_leave_when_no_more_may_be_buffered() {
    let bench = Bench::new(Rules { manual_flush: Some(usize::MAX), ..rules() });
    let value = "v".repeat(BUFFERED_BYTES / 8);
    (0..12).for_each(|n| bench.put(&n.to_string(), &value).unwrap());
    assert!(bench.log_bytes(1).len() >= BUFFERED_BYTES);
}

/// A caller that waits for a locked log to hold up writers has its turn before the log is locked
/// again, and one that leaves meanwhile holds up no writer.
#[test]
fn a_log_that_is_locked_again_at_once_does_not_keep_out_who_waits_to_hold_up_writers() {
    let bench = Bench::new(rules());
    let pipeline = &bench.pipeline;
    let mut cx = Context::from_waker(Waker::noop());
    karst_io::block_on(&bench.env, pipeline.lock_wal()).unwrap();
    {
        let mut holding = pin!(pipeline.hold());
        assert!(holding.as_mut().poll(&mut cx).is_pending());
        pipeline.unlock_wal().unwrap();
        let mut locking = pin!(pipeline.lock_wal());
        assert!(locking.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(held) = holding.as_mut().poll(&mut cx) else { panic!("the lock went first") };
        assert!(locking.as_mut().poll(&mut cx).is_pending());
        drop(held.unwrap());
        karst_io::block_on(&bench.env, locking).unwrap();
    }
    {
        let mut holding = pin!(pipeline.hold());
        assert!(holding.as_mut().poll(&mut cx).is_pending());
        pipeline.unlock_wal().unwrap();
    }
    bench.put("a", "1").unwrap();
    assert_eq!(bench.entries(), ["a@1=1"]);
}
