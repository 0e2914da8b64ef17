//! Writes that return before older ones are visible, and reads that wait for those.

use super::*;
use crate::apply::Gather;
use crate::host::Pins;
use crate::order::Ordered;
use crate::pipeline::write::{Commit, Lead};
use karst_base::caller::Caller;
use karst_base::error::ErrorKind;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Wake, Waker};

fn unordered() -> Bench {
    Bench::new(Rules { unordered: true, ..rules() })
}

/// A write that was ordered and is not inserted yet, because its writer is slow.
pub(super) struct Slow<'a> {
    bench: &'a Bench,
    source: Source<'a>,
    ordered: Ordered,
    pins: Pins<Arc<MemTable>>,
}

impl<'a> Slow<'a> {
    pub(super) fn order(bench: &'a Bench, options: &WriteOptions, source: Source<'a>) -> Self {
        let mut pins = Pins::new();
        let ordered = bench.pipeline.order(options, &source, None, &mut pins, Lead::Elsewhere);
        let (ordered, _) = ordered.ok().expect("there is room");
        Slow { bench, source, ordered, pins }
    }

    /// Gathers its entries.
    pub(super) fn gather(mut self) -> Gather {
        let Ordered { ticket, first_seq, last_seq, .. } = self.ordered;
        self.bench.pipeline.apply.gather(&self.source, (ticket, first_seq, last_seq), &mut self.pins)
    }

    /// Inserts it like [`insert`](Self::insert), by the real apply step.
    pub(super) fn apply(mut self) {
        let Ordered { ticket, first_seq, .. } = self.ordered;
        self.bench.pipeline.apply.apply(ticket, &self.source, first_seq, &mut self.pins);
    }

    pub(super) fn insert(mut self) {
        self.source.insert::<TestHost>(self.ordered.first_seq, &self.pins).unwrap();
        self.pins.clear();
        self.bench.pipeline.apply.finish(self.ordered.ticket);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn one<'a>(key: &'a str) -> Source<'a> {
    Source::one(put(key.as_bytes(), b"")).unwrap()
}

#[test]
fn a_write_returns_before_older_ones_are_inserted_and_reads_wait_for_those() {
    for options in [WriteOptions::unlogged(), WriteOptions::new()] {
        let bench = unordered();
        let slow = Slow::order(&bench, &WriteOptions::unlogged(), one("a"));
        bench.write(&options, put(b"b", b"")).unwrap();
        assert_eq!((bench.pipeline.read_seq(), bench.pipeline.visible_seq()), (SeqNo(2), SeqNo(0)));
        let woken = Arc::new(Woken::default());
        let (waker, mut read) = (Waker::from(woken.clone()), bench.pipeline.readable(SeqNo(2)));
        let mut poll = || std::pin::Pin::new(&mut read).poll(&mut Context::from_waker(&waker));
        // A later write does not prolong the wait.
        let later = Slow::order(&bench, &WriteOptions::unlogged(), one("c"));
        bench.write(&options, put(b"d", b"")).unwrap();
        assert!(poll().is_pending() && poll().is_pending());
        assert!(!woken.0.load(Ordering::SeqCst));
        slow.insert();
        assert!(woken.0.load(Ordering::SeqCst) && poll().is_ready());
        assert!(bench.pipeline.is_readable(SeqNo(2)) && !bench.pipeline.is_readable(SeqNo(4)));
        assert_eq!(bench.entries(), ["a@1=", "b@2="]);
        later.insert();
        bench.pipeline.wait_until_readable(bench.pipeline.read_seq());
        assert_eq!(bench.entries(), ["a@1=", "b@2=", "c@3=", "d@4="]);
    }
}

/// With more threads than processors the read would otherwise wait for a writer without a processor
/// while others keep theirs.
#[test]
fn writes_give_way_to_a_read_that_sleeps() {
    let bench = unordered();
    let slow = Slow::order(&bench, &WriteOptions::unlogged(), one("a"));
    bench.write(&WriteOptions::unlogged(), put(b"b", b"")).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut read = pin!(bench.pipeline.readable(SeqNo(2)));
    assert!(read.as_mut().poll(&mut cx).is_pending());
    let mut write = pin!(bench.pipeline.write_async(&WriteOptions::unlogged(), one("c")));
    assert!(write.as_mut().poll(&mut cx).is_pending());
    slow.insert();
    assert!(read.as_mut().poll(&mut cx).is_ready());
    assert!(matches!(write.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
}

#[test]
fn an_ordered_write_waits_for_older_ones_and_no_read_does() {
    let bench = Bench::new(rules());
    let slow = Slow::order(&bench, &WriteOptions::unlogged(), one("a"));
    let mut write = pin!(bench.pipeline.write_async(&WriteOptions::unlogged(), one("b")));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(write.as_mut().poll(&mut cx).is_pending());
    assert_eq!((bench.pipeline.read_seq(), bench.pipeline.is_readable(SeqNo(0))), (SeqNo(0), true));
    slow.insert();
    assert!(matches!(write.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
}

/// Otherwise reads would wait for the device, because of a write acknowledged behind one that does.
#[test]
fn no_write_is_acknowledged_before_what_is_ahead_of_it_is_persisted() {
    for sync in [false, true] {
        let bench = unordered();
        let first = WriteOptions { sync, ..WriteOptions::new() };
        let slow = Slow::order(&bench, &first, one("a"));
        let mut write = pin!(bench.pipeline.write_async(&WriteOptions::unlogged(), one("b")));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(write.as_mut().poll(&mut cx).is_pending());
        assert_eq!(bench.pipeline.read_seq(), SeqNo(0));
        karst_io::block_on(&bench.env, bench.pipeline.flush_wal(false)).unwrap();
        if sync {
            assert!(bench.synced.lock().is_empty());
            karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
        }
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(matches!(write.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
        assert_eq!((bench.pipeline.read_seq(), bench.pipeline.visible_seq()), (SeqNo(2), SeqNo(0)));
        slow.insert();
        assert_eq!(bench.entries(), ["a@1=", "b@2="]);
    }
}

/// With unordered writes RocksDB flushed a memtable while a writer had not finished with it (its
/// pull request 6113), and its ingestion missed such a writer's keys (its issue 6026); here
/// ingestion holds writers up first.
#[test]
fn a_sealed_memtable_is_not_flushed_before_its_last_writer_has_left() {
    let bench = unordered();
    let slow = Slow::order(&bench, &WriteOptions::new(), one("a"));
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(false)).unwrap();
    bench.put("b", "").unwrap();
    let old = bench.seal(2)[&CF].clone();
    let largest = old.sealed().unwrap().largest_seq;
    bench.put("c", "").unwrap();
    assert_eq!((largest, bench.pipeline.read_seq()), (SeqNo(2), SeqNo(3)));
    {
        let mut flush = pin!(bench.pipeline.wait_until_visible(largest));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(flush.as_mut().poll(&mut cx).is_pending());
        assert_eq!(entries(&old, largest), ["b@2="]);
        slow.insert();
        assert!(flush.as_mut().poll(&mut cx).is_ready());
    }
    assert_eq!(entries(&old, largest), ["a@1=", "b@2="]);
    let logs = [(1, &bench.log_bytes(1)[..]), (2, &bench.log_bytes(2))];
    assert_eq!(recover(&logs, RecoveryMode::PointInTimeRecovery).unwrap().0, ["a@1=", "b@2=", "c@3="]);
}

/// The writer's future is kept, and its task waits, on the same thread, for a later write.
#[test]
fn nobody_waits_for_a_future_that_is_not_polled() {
    for unordered in [false, true] {
        for sync in [false, true] {
            let bench = Bench::new(Rules { unordered, ..rules() });
            let options = WriteOptions { sync, ..WriteOptions::new() };
            let (mut a, mut b) = (
                bench.pipeline.write_async(&options, one("a")),
                bench.pipeline.write_async(&options, one("b")),
            );
            let mut cx = Context::from_waker(Waker::noop());
            let mut poll = |write: &mut Commit<'_, TestHost>| std::pin::Pin::new(write).poll(&mut cx);
            // Mostly both are pending; a write that was persisted at once is complete.
            let before = (poll(&mut a), poll(&mut b));
            bench.put("c", "").unwrap();
            bench.pipeline.wait_until_readable(bench.pipeline.read_seq());
            assert_eq!(bench.entries(), ["a@1=", "b@2=", "c@3="]);
            for (mut write, before) in [(a, before.0), (b, before.1)] {
                assert!(before.is_ready() || matches!(poll(&mut write), Poll::Ready(Ok(()))));
            }
        }
    }
}

#[test]
fn a_write_that_depends_on_a_key_sees_who_writes_it_though_that_is_not_inserted() {
    let (bench, options) = (unordered(), WriteOptions::new());
    bench.pipeline.track_conflicts(1 << 10).unwrap();
    let slow = Slow::order(&bench, &options, one("a"));
    let depending = |key: &'static str| {
        let seen = bench.pipeline.publish.visible();
        let claim = bench.pipeline.claim([(CF, Some(key.as_bytes()))].into_iter(), seen).unwrap();
        let write = bench.pipeline.write_by(Caller::Thread, &options, one("b"), Some(&claim));
        karst_io::block_on(&bench.env, write).err().map(|error| error.kind())
    };
    assert_eq!(depending("a"), Some(ErrorKind::Busy));
    assert_eq!(bench.pipeline.order.lock().next_ticket(), 1, "it was not ordered");
    slow.insert();
    assert_eq!((depending("a"), bench.entries()), (None, vec!["a@1=".into(), "b@2=".into()]));
}
